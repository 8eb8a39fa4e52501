//! One engine, one case, one process ([`crate::process`]): so that memory, processor time and device
//! traffic are its own. The child runs the case as `run` would.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::limit::Limit;
use crate::args::BenchArgs;
use crate::figures::kernel::Busy;
use crate::process::{Waiting, answer, wait_to_begin};
use crate::report::Report;
use crate::suite::place::remove_left;
use crate::suite::{self, Plan};
use crate::{Error, Result};

/// What a child found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildResult {
    /// The run's report.
    pub report: Report,
    /// How many cores others kept busy meanwhile, on average.
    pub others_cores: f64,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// It did its case.
    Done(Box<ChildResult>),
    /// The kernel killed it, since it wanted more memory than its limit.
    OutOfMemory,
}

/// The hidden command that a child is started with.
#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    /// Engine name
    #[arg(long, value_name = "NAME")]
    engine: String,
    #[command(flatten)]
    bench: Box<BenchArgs>,
}

impl ChildArgs {
    /// Runs the case.
    ///
    /// # Errors
    /// Those of the run.
    pub fn run(&self) -> Result<()> {
        let plan = self.bench.plan(&self.engine)?;
        wait_to_begin()?;
        let busy = Busy::now();
        let report = suite::run(&plan, &mut std::io::sink())?;
        answer(&ChildResult { report, others_cores: busy.others_cores() })
    }
}

/// A child's arguments, the command among them.
#[derive(Debug, clap::Parser)]
struct ChildCommand {
    #[command(flatten)]
    child: ChildArgs,
}

/// What a child is to do.
#[derive(Debug, Clone)]
pub struct Job {
    /// The engine.
    pub engine: String,
    /// What is done on it.
    pub case: Case,
    /// Its own options, as `NAME=VALUE`.
    pub options: Vec<String>,
    /// Where files of keys are.
    pub data: PathBuf,
    /// Where its store is made, and where its report goes.
    pub dir: PathBuf,
    /// See `dir`.
    pub out: PathBuf,
    /// Of its keys and requests.
    pub seed: u64,
}

impl Job {
    /// The arguments that make a child do it.
    fn arguments(&self) -> Vec<String> {
        let case = &self.case;
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let mut arguments: Vec<String> = vec!["compare-child".into()];
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        add("engine", self.engine.clone());
        match case.file_in(&self.data) {
            None => add("keys", format!("{}:{}", case.keys, case.count)),
            Some(file) => {
                add("keys", format!("{}:{}", case.keys, path(&file)));
                add("max-keys", case.count.to_string());
            }
        }
        add("value-size", case.value_size.to_string());
        add("threads", case.threads.to_string());
        add("requests", case.requests.to_string());
        add("workloads", case.workloads.to_string());
        add("operations", case.operations.to_string());
        add("seconds", case.seconds.to_string());
        add("memory-budget", case.memory_budget_bytes.to_string());
        add("memtable", case.memtable_bytes.to_string());
        add("durability", case.durability.to_string());
        add("reads", case.reads.to_string());
        add("block-size", case.block_bytes.to_string());
        add("compression", case.compression.to_string());
        add("value-compressibility", case.compressible.to_string());
        add("settle", case.settle.to_string());
        add("seed", self.seed.to_string());
        add("dir", path(&self.dir));
        add("out", path(&self.out));
        for option in &self.options {
            add("option", option.clone());
        }
        arguments.push("--quiet".into());
        arguments
    }

    /// What a child makes of its arguments.
    ///
    /// # Errors
    /// If one of them makes no sense.
    pub fn plan(&self) -> Result<Plan> {
        let command = <ChildCommand as clap::Parser>::try_parse_from(self.arguments());
        let command = command.map_err(|e| Error::usage(e.to_string().trim_end().to_string()))?;
        command.child.bench.plan(&self.engine)
    }

    /// Does it in a child process, within `limit` if there is one.
    ///
    /// # Errors
    /// The child's, with its words.
    pub fn run(&self, limit: Option<&Limit>) -> Result<Ended> {
        let ended = self.run_child(limit);
        if !matches!(ended, Ok(Ended::Done(_))) {
            // One that was killed could not.
            remove_left(&self.dir)?;
        }
        ended
    }

    fn run_child(&self, limit: Option<&Limit>) -> Result<Ended> {
        let waiting = Waiting::start(&self.arguments()).map_err(|e| e.within(&self.engine))?;
        if let Err(why) = limit.map_or(Ok(()), |limit| limit.admit(waiting.id())) {
            waiting.give_up();
            let words = format!("{}: its memory could not be limited: {why}", self.engine);
            return Err(Error::runtime(words));
        }
        match waiting.finish().map_err(|e| e.within(&self.engine))? {
            Ok(result) => Ok(Ended::Done(Box::new(result))),
            Err(failed) if failed.was_killed() && limit.is_some_and(Limit::has_killed) => {
                Ok(Ended::OutOfMemory)
            }
            Err(failed) => Err(Error::runtime(format!("{}: {failed}", self.engine))),
        }
    }
}
