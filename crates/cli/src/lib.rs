//! The `learnedkv` command: benchmarks, and small tools to look into a database.
//!
//! Every failure is one line on standard error and an exit code: 2 if what was asked for cannot be
//! done, 1 if it went wrong underway, 3 if the key is not there. Output that nobody reads any more (a
//! closed pipe) ends the program quietly.

mod check;
mod commands;
mod load;
mod store;
mod text;

use std::io::Write;

use clap::{Parser, Subcommand};
use learnedkv_bench::args::BenchArgs;
use learnedkv_bench::command::report_error;
use learnedkv_bench::{Result, suite};

/// learnedkv: an embedded, ordered, durable key-value store whose indexes are learned
#[derive(Debug, Parser)]
#[command(name = "learnedkv", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the store on this machine and write a report (without options: under three minutes)
    Bench(Box<BenchArgs>),
    /// Store a value under a key
    Put(commands::Put),
    /// Print the value of a key
    Get(commands::Get),
    /// Remove a key, or all keys of a range
    Delete(commands::Delete),
    /// Remove all keys of a keyspace
    Clear(commands::Clear),
    /// Print entries in key order
    ///
    /// A line is a key, a tab, a value. What is no text, and what would break lines, is escaped as
    /// `load --help` says: `load` takes what is printed back, byte for byte.
    Scan(commands::Scan),
    /// Take in many entries at once, sorted
    Load(load::Load),
    /// Copy the database as it is to another directory, sharing its tables by hard links
    Checkpoint(commands::Checkpoint),
    /// Print what the database says about itself
    Stats(commands::Stats),
    /// Read every file of the database and tell what is damaged
    ///
    /// Nothing is changed, and nobody may have the database open for writing. Each damage is a line: the file, the
    /// place in it, what was expected and found. The exit code is 1 if there is any.
    Verify(check::Verify),
    /// Print what a file of a database says: a table, a filter, a value segment, the log, a manifest
    Inspect(check::Inspect),
}

/// Runs the command line of this process and returns its exit code.
#[must_use]
pub fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refused) => {
            let _ = refused.print();
            if refused.kind() == clap::error::ErrorKind::InvalidUtf8 {
                let hint = "a key or value that is no text is given in hexadecimal, with --hex";
                let _ = writeln!(std::io::stderr(), "{hint}");
            }
            return u8::try_from(refused.exit_code()).unwrap_or(2);
        }
    };
    match cli.command.run() {
        Ok(()) => 0,
        Err(error) => report_error(&error),
    }
}

impl Command {
    fn run(self) -> Result<()> {
        match self {
            Command::Bench(args) => {
                suite::run(&args.plan(store::ENGINE)?, &mut std::io::stdout()).map(|_| ())
            }
            Command::Put(put) => put.run(),
            Command::Get(get) => get.run(),
            Command::Delete(delete) => delete.run(),
            Command::Clear(clear) => clear.run(),
            Command::Scan(scan) => scan.run(),
            Command::Load(load) => load.run(),
            Command::Checkpoint(checkpoint) => checkpoint.run(),
            Command::Stats(stats) => stats.run(),
            Command::Verify(verify) => verify.run(),
            Command::Inspect(inspect) => inspect.run(),
        }
    }
}
