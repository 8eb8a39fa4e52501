//! The `learnedkv-bench` command: any engine of this build, and both sides of kill tests.

use std::io::Write;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::args::BenchArgs;
use crate::compare::{ChildArgs, CompareArgs};
use crate::engines::{Durability, ENGINES, OpenSettings};
use crate::figures::{FiguresArgs, FillArgs, GrowthArgs, MemoryArgs};
use crate::oracle::{Setup, WriterPlan, verify, write};
use crate::sizes::{parse_bytes, parse_count, show_count};
use crate::{Error, Result, suite};

/// Benchmarks ordered key-value stores, checking every read.
#[derive(Debug, Parser)]
#[command(name = "learnedkv-bench", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run workloads on an engine and write a report
    Run {
        /// Engine name
        #[arg(long, value_name = "NAME", default_value = ENGINES[0].0)]
        engine: String,
        #[command(flatten)]
        bench: Box<BenchArgs>,
    },
    /// Write until killed, acknowledging every operation outside the store
    Writer(Box<WriterArgs>),
    /// Check a killed writer's store against its acknowledgements
    Verify(VerifyArgs),
    /// Measure learnedkv's figures against their targets, as Markdown tables
    Figures(FiguresArgs),
    /// Compare engines, in turn, each in a process of its own
    Compare(Box<CompareArgs>),
    /// The process of one engine
    #[command(hide = true)]
    CompareChild(ChildArgs),
    /// The child that figure f9 kills
    #[command(hide = true)]
    FiguresFill(FillArgs),
    /// The process of one case of figure f7
    #[command(hide = true)]
    FiguresMemory(MemoryArgs),
    /// The process of one size of figure growth
    #[command(hide = true)]
    FiguresGrowth(GrowthArgs),
}

#[derive(Debug, clap::Args)]
struct WriterArgs {
    /// Engine name
    #[arg(long, value_name = "NAME", default_value = ENGINES[0].0)]
    engine: String,
    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// File for acknowledgements, outside the store; continued if sealed (default: standard output)
    #[arg(long, value_name = "FILE")]
    acks: Option<PathBuf>,
    /// Key set, as for run
    #[arg(long, value_name = "SET", default_value = "uniform:10k")]
    keys: String,
    /// Value size, as for run
    #[arg(long, value_name = "SIZE", default_value = "100")]
    value_size: String,
    /// Writer threads
    #[arg(long, value_name = "N", default_value = "1")]
    threads: String,
    /// Operations between two acknowledgements of a thread
    #[arg(long, value_name = "N", default_value = "1")]
    batch: String,
    /// Operations per thread after which to stop (default: none)
    #[arg(long, value_name = "N")]
    operations: Option<String>,
    /// Memtable size: small ones bring flushes and compactions into reach of a kill
    #[arg(long, value_name = "SIZE")]
    memtable: Option<String>,
    /// Memory budget
    #[arg(long, value_name = "SIZE")]
    memory_budget: Option<String>,
    /// When a write is acknowledged: buffered, every-100ms or synced
    #[arg(long, value_name = "MODE", default_value = "buffered")]
    durability: String,
    /// Seed of the operations
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Engine name
    #[arg(long, value_name = "NAME", default_value = ENGINES[0].0)]
    engine: String,
    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// File with the acknowledgements
    #[arg(long, value_name = "FILE")]
    acks: PathBuf,
    /// If all is well, note it in the file, so that a writer may go on from here
    #[arg(long)]
    seal: bool,
}

/// Runs the command line of this process and returns its exit code.
#[must_use]
pub fn main() -> u8 {
    match Cli::parse().command.run() {
        Ok(()) => 0,
        Err(error) => report_error(&error),
    }
}

/// The program's arguments as they were given, its name first. What is no text stands there as well as it can be shown.
pub fn arguments() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Prints an error as one line on standard error and returns its exit code.
#[must_use]
pub fn report_error(error: &Error) -> u8 {
    if error.exit_code() != 0 {
        // If standard error is gone too there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "error: {error}");
    }
    error.exit_code()
}

impl Command {
    fn run(self) -> Result<()> {
        match self {
            Command::Run { engine, bench } => {
                suite::run(&bench.plan(&engine)?, &mut std::io::stdout()).map(|_| ())
            }
            Command::Writer(args) => write(&args.plan()?),
            Command::Verify(args) => args.run(),
            Command::Figures(args) => args.run(),
            Command::Compare(args) => args.run(),
            Command::CompareChild(args) => args.run(),
            Command::FiguresFill(args) => args.run(),
            Command::FiguresMemory(args) => args.run(),
            Command::FiguresGrowth(args) => args.run(),
        }
    }
}

impl WriterArgs {
    fn plan(&self) -> Result<WriterPlan> {
        let bytes = |text: &Option<String>| text.as_deref().map(parse_bytes).transpose();
        let durability: Durability = self.durability.parse()?;
        let (threads, batch) = (parse_count(&self.threads)?, parse_count(&self.batch)?);
        if threads == 0 || batch == 0 {
            return Err(Error::usage("--threads and --batch: at least 1, found 0"));
        }
        if let Some(acks) = &self.acks
            && inside(acks, &self.dir)
        {
            return Err(Error::usage(format!(
                "--acks: {} lies inside the store; a store must not hold its own witness",
                acks.display()
            )));
        }
        Ok(WriterPlan {
            engine: self.engine.clone(),
            open: OpenSettings {
                memtable_bytes: bytes(&self.memtable)?,
                memory_budget_bytes: bytes(&self.memory_budget)?,
                durability,
                ..OpenSettings::at(&self.dir)
            },
            setup: Setup {
                keys: self.keys.parse()?,
                value_size: self.value_size.parse()?,
                seed: self.seed,
                threads: threads as usize,
                batch,
                durability,
            },
            acks: self.acks.clone(),
            operations: self.operations.as_deref().map_or(Ok(u64::MAX), parse_count)?,
        })
    }
}

/// Whether `file` lies below `dir`.
fn inside(file: &std::path::Path, dir: &std::path::Path) -> bool {
    match (std::path::absolute(file), std::path::absolute(dir)) {
        (Ok(file), Ok(dir)) => file.starts_with(dir),
        _ => false,
    }
}

impl VerifyArgs {
    fn run(&self) -> Result<()> {
        let verdict = verify(&self.engine, &OpenSettings::at(&self.dir), &self.acks, self.seal)?;
        let sum = |counts: &[u64]| show_count(counts.iter().sum());
        let failures = &verdict.failures;
        if failures.count > 0 {
            let mut err = std::io::stderr();
            for sample in &failures.samples {
                let _ = writeln!(err, "  {sample}");
            }
            return Err(Error::wrong_answer(format!(
                "{}: {} keys are not what {} acknowledged operations made them",
                self.dir.display(),
                show_count(failures.count),
                sum(&verdict.acknowledged)
            )));
        }
        writeln!(
            std::io::stdout(),
            "{} entries are as after {} operations; {} were acknowledged",
            show_count(verdict.entries),
            sum(&verdict.found),
            sum(&verdict.acknowledged)
        )
        .map_err(|e| Error::output(&e))
    }
}
