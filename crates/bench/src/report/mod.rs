//! What a run leaves behind: a table in the terminal, JSON for programs, one HTML file for people.

pub mod html;
pub mod machine;
pub mod terminal;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engines::EngineStats;
use crate::run::PhaseResult;
use crate::{Error, Result};

/// Everything a run found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of this program, and its commit.
    pub version: String,
    /// The engine's name.
    pub engine: String,
    /// Its version, where it is not this program's.
    #[serde(default)]
    pub engine_version: String,
    /// The command line.
    pub command: String,
    /// When it started, in seconds since 1970.
    pub started_unix_s: u64,
    /// Where it ran.
    pub machine: machine::Machine,
    /// Every setting, by name.
    pub settings: Vec<(String, String)>,
    /// Memory the run's own tables hold (keys, versions), resident before the engine was opened, in
    /// bytes: take it off the peaks to see the engine's.
    pub idle_memory_bytes: u64,
    /// The part of it that is no file's, in bytes.
    pub idle_anonymous_bytes: u64,
    /// What was measured, in order.
    pub phases: Vec<PhaseResult>,
    /// What the engine says about itself at the end.
    pub engine_stats: EngineStats,
    /// What did not go as asked.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Report {
    /// Wrong answers in all phases.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.phases.iter().map(|phase| phase.failures).sum()
    }

    /// Writes `report.html` and `report.json` to `dir`, creating it; returns the HTML file's path.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&self, dir: &Path) -> Result<PathBuf> {
        fs::create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, &e))?;
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| Error::runtime(format!("could not put the report into JSON: {e}")))?;
        let put = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|e| Error::io("write the report", &path, &e))?;
            Ok(path)
        };
        put("report.json", &json)?;
        put("report.html", &html::page(self))
    }
}

/// Whether a report can be written to `dir`, which is made: asked before what takes long.
///
/// # Errors
/// If it cannot.
pub fn check_writable(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, &e))?;
    let path = dir.join(".can-be-written");
    let written = fs::write(&path, b"").and_then(|()| fs::remove_file(&path));
    written.map_err(|e| Error::io("write a file there", dir, &e))
}

/// This program's version and the commit that it was built from.
#[must_use]
pub fn version() -> String {
    format!("{}, commit {}", env!("CARGO_PKG_VERSION"), env!("LEARNEDKV_COMMIT"))
}

/// The one in the middle of `rounds`; of an even number the mean of the two in the middle.
#[must_use]
pub fn median(rounds: &[f64]) -> Option<f64> {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (lower, upper) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((sorted[lower] + sorted[upper]) / 2.0)
}

/// Microseconds with three significant digits and a unit that suits them.
#[must_use]
pub fn show_us(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1_000.0 => (us, "us"),
        us if us < 1_000_000.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}
