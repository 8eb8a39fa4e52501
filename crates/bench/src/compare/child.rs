//! One engine, one case, one process: so that memory, processor time and device traffic are its
//! own.
//!
//! The child waits for a line on its standard input (by then its parent has put it where its memory
//! is bounded), runs the case as `run` would, and prints its result as one line of JSON.

use std::io::{BufRead, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::limit::Limit;
use super::suites::Case;
use crate::args::BenchArgs;
use crate::figures::kernel::Busy;
use crate::report::Report;
use crate::{Error, Result, suite};

/// What a child found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildResult {
    /// The run's report.
    pub report: Report,
    /// How many cores others kept busy meanwhile, on average.
    pub others_cores: f64,
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
        let mut line = String::new();
        std::io::stdin()
            .lock()
            .read_line(&mut line)
            .map_err(|e| Error::runtime(format!("could not wait for the parent: {e}")))?;
        end_with_the_parent();
        let busy = Busy::now();
        let report = suite::run(&plan, &mut std::io::sink())?;
        let result = ChildResult { report, others_cores: busy.others_cores() };
        let json = serde_json::to_string(&result)
            .map_err(|e| Error::runtime(format!("could not put the result into JSON: {e}")))?;
        writeln!(std::io::stdout(), "{json}").map_err(|e| Error::output(&e))
    }
}

/// Ends this process when its standard input does: its parent is gone then, and nobody would read
/// the result, or keep its memory within bounds.
fn end_with_the_parent() {
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
        std::process::exit(1);
    });
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
        add("seed", self.seed.to_string());
        add("dir", path(&self.dir));
        add("out", path(&self.out));
        for option in &self.options {
            add("option", option.clone());
        }
        arguments.push("--quiet".into());
        arguments
    }

    /// Does it in a child process, within `limit` if there is one.
    ///
    /// # Errors
    /// The child's, with its words.
    pub fn run(&self, limit: Option<&Limit>) -> Result<ChildResult> {
        let failed = |what: &str, e: &dyn std::fmt::Display| {
            Error::runtime(format!("{}: {what}: {e}", self.engine))
        };
        let program = std::env::current_exe().map_err(|e| failed("no program to run", &e))?;
        let mut child = Command::new(program)
            .args(self.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed("could not start a process", &e))?;
        let admitted = limit.map_or(Ok(()), |limit| limit.admit(child.id()));
        if let Err(why) = admitted {
            // Ours, not yet at work, and by its own handle.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed("its memory could not be limited", &why));
        }
        // A line tells it to begin, and its input stays open while we live; a child that is gone
        // already says why below.
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            let _ = writeln!(input);
        }
        let output = child.wait_with_output().map_err(|e| failed("lost it", &e))?;
        drop(input);
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let words = words.trim().trim_start_matches("error: ");
            let words = if words.is_empty() { "without a word" } else { words };
            return Err(failed(&output.status.to_string(), &words));
        }
        serde_json::from_slice(&output.stdout).map_err(|e| failed("its result is not JSON", &e))
    }
}
