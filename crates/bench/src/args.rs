//! The options of a benchmark run, shared by both binaries.
//!
//! Options arrive as plain text and are read here, so that every complaint is one line of ours.

use std::path::PathBuf;
use std::str::FromStr;

use ::learnedkv::Compression;

use crate::engines::{Durability, OpenSettings, Reads};
use crate::keys::KeySpec;
use crate::requests::Distribution;
use crate::run::{Limits, MOST_SECONDS};
use crate::sizes::{parse_bytes, parse_count};
use crate::suite::Plan;
use crate::values::{Compressibility, ValueSize};
use crate::workloads::{MAX_CLIENTS, Settling, parse_phases};
use crate::{Error, Result};

/// What to run, on what, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchArgs {
    /// Key set: uniform:N, sequential:N, lognormal:N, segmented:N, normal:N, clustered:N (N may end
    /// in k, m, g), bytes:MEAN:DEVIATION:N (random bytes of such lengths), sosd:FILE, text:FILE (a
    /// key per line) or paths:DIR
    #[arg(long, value_name = "SET", default_value = "uniform:500k")]
    pub keys: String,
    /// Of a key set from files no more than so many keys, the smallest (default: all)
    #[arg(long, value_name = "N")]
    pub max_keys: Option<String>,
    /// Value size in bytes, or normal:MEAN:DEVIATION
    #[arg(long, value_name = "SIZE", default_value = "1016")]
    pub value_size: String,
    /// Share of a value's bytes that compress, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub value_compressibility: String,
    /// Operations of each workload, but for those of which a part is asked for (E/20), or a
    /// multiple (absent*10)
    #[arg(long, value_name = "N", default_value = "1m")]
    pub operations: String,
    /// Seconds after which a workload stops even if operations are left; of a multiple as many
    /// times longer
    #[arg(long, value_name = "S", default_value = "25")]
    pub seconds: String,
    /// Client threads
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: String,
    /// Operations per second in all of each mix: an open loop of Poisson arrivals, latencies from when
    /// an operation was due (default: as fast as it goes)
    #[arg(long, value_name = "N")]
    pub rate: Option<String>,
    /// What to run, in order: load, bulk or ingest first, then any of settle, verify, remove and
    /// the mixes A, B, C, D, E, F, R7W3, R3W7, absent, multiget, update, batch, scan10, range10,
    /// range100, range1000; behind a mix /PART (it does so many times fewer operations), *TIMES (so
    /// many times more), @CLIENTS and =RATE, as A@2=50k, E/20 or absent*10; before it ~ (it warms
    /// up, and is not compared)
    #[arg(long, value_name = "LIST", default_value = "load,settle,A,B,C,F,verify")]
    pub workloads: String,
    /// Which keys are asked for: zipfian (0.99, scrambled as YCSB has it), zipfian-keys (0.99 over the keys themselves), uniform, latest or hotspot (four of five
    /// requests to a fifth of the keys)
    #[arg(long, value_name = "NAME", default_value = "zipfian")]
    pub requests: String,
    /// Directory for the store; must be new or empty; removed afterwards unless --keep
    #[arg(long, value_name = "DIR", default_value = "./bench-out/store")]
    pub dir: PathBuf,
    /// Directory for report.html and report.json
    #[arg(long, value_name = "DIR", default_value = "./bench-out")]
    pub out: PathBuf,
    /// All memory the store may hold (default: the store's own)
    #[arg(long, value_name = "SIZE")]
    pub memory_budget: Option<String>,
    /// Memtable size (default: the store's own)
    #[arg(long, value_name = "SIZE")]
    pub memtable: Option<String>,
    /// Largest data block (default: the store's own)
    #[arg(long, value_name = "SIZE")]
    pub block_size: Option<String>,
    /// How blocks are compressed: none, lz4, zstd or zstd:LEVEL (default: the store's own)
    #[arg(long, value_name = "HOW")]
    pub compression: Option<String>,
    /// The same for settled data alone
    #[arg(long, value_name = "HOW")]
    pub settled_compression: Option<String>,
    /// When a write is acknowledged: buffered (by the operating system), every-100ms (by the disk so much later at most), or synced (by the disk)
    #[arg(long, value_name = "MODE", default_value = "buffered")]
    pub durability: String,
    /// How blocks are read: mapped (where the operating system holds them), buffered (by calls), or direct (around its cache)
    #[arg(long, value_name = "HOW", default_value = "mapped")]
    pub reads: String,
    /// What settle does: compacted (everything, by the store's full compaction) or at-rest (until the store has nothing left to do by itself)
    #[arg(long, value_name = "HOW", default_value = "compacted")]
    pub settle: String,
    /// An option of the store's keyspace as NAME=VALUE, for example lsm_filter=none; may be repeated
    #[arg(long = "option", value_name = "NAME=VALUE")]
    pub options: Vec<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// Keep the store afterwards
    #[arg(long)]
    pub keep: bool,
    /// Print nothing but the report's path and errors
    #[arg(long)]
    pub quiet: bool,
}

impl BenchArgs {
    /// Reads the options into a plan for the engine called `engine`.
    ///
    /// # Errors
    /// If an option makes no sense.
    pub fn plan(&self, engine: &str) -> Result<Plan> {
        let keys: KeySpec = option("--keys", &self.keys, KeySpec::from_str)?;
        let value_size = option("--value-size", &self.value_size, ValueSize::from_str)?;
        let distribution = option("--requests", &self.requests, Distribution::from_str)?;
        let phases =
            option("--workloads", &self.workloads, |list| parse_phases(list, distribution))?;
        let operations = option("--operations", &self.operations, at_least_one)?;
        let threads = option("--threads", &self.threads, at_least_one)?;
        if threads > MAX_CLIENTS as u64 {
            return Err(Error::usage(format!("--threads: at most {MAX_CLIENTS}, found {threads}")));
        }
        let rate = self.rate.as_deref().map(|text| option("--rate", text, at_least_one));
        let max_keys = self.max_keys.as_deref().map(|n| option("--max-keys", n, at_least_one));
        let bytes = |name: &str, text: &Option<String>| {
            text.as_deref().map(|text| option(name, text, parse_bytes)).transpose()
        };
        let how = |name: &str, text: &Option<String>| {
            text.as_deref().map(|text| option(name, text, compression)).transpose()
        };
        let compressibility = &self.value_compressibility;
        Ok(Plan {
            engine: engine.to_string(),
            open: OpenSettings {
                dir: self.dir.clone(),
                memory_budget_bytes: bytes("--memory-budget", &self.memory_budget)?,
                memtable_bytes: bytes("--memtable", &self.memtable)?,
                block_size_bytes: bytes("--block-size", &self.block_size)?,
                compression: how("--compression", &self.compression)?,
                settled_compression: how("--settled-compression", &self.settled_compression)?,
                durability: option("--durability", &self.durability, Durability::from_str)?,
                reads: option("--reads", &self.reads, Reads::from_str)?,
                options: self
                    .options
                    .iter()
                    .map(|text| name_and_value(text))
                    .collect::<Result<_>>()?,
            },
            keys,
            max_keys: max_keys.transpose()?,
            value_size,
            compressibility: option(
                "--value-compressibility",
                compressibility,
                Compressibility::from_str,
            )?,
            phases,
            distribution,
            limits: Limits {
                threads: threads as usize,
                operations,
                seconds: Some(option("--seconds", &self.seconds, seconds)?),
                rate_per_second: rate.transpose()?.map(|rate| rate as f64),
                seed: self.seed,
                settling: option("--settle", &self.settle, Settling::from_str)?,
                quiet: self.quiet,
            },
            out: self.out.clone(),
            keep: self.keep,
        })
    }
}

/// Reads the value of option `name`, naming it in the error.
pub(crate) fn option<T>(
    name: &str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T>,
) -> Result<T> {
    parse(text).map_err(|error| error.within(name))
}

/// The two sides of `NAME=VALUE`.
fn name_and_value(text: &str) -> Result<(String, String)> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| Error::usage(format!("--option: expected NAME=VALUE, found `{text}`")))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// How blocks are compressed.
pub(crate) fn compression(text: &str) -> Result<Compression> {
    Compression::from_text(text).map_err(|e| Error::usage(e.to_string()))
}

/// A count of at least one.
fn at_least_one(text: &str) -> Result<u64> {
    match parse_count(text)? {
        0 => Err(Error::usage("at least 1, found 0")),
        count => Ok(count),
    }
}

/// A positive number of seconds, at most a year.
fn seconds(text: &str) -> Result<f64> {
    match text.parse() {
        Ok(seconds) if (0.001..=MOST_SECONDS).contains(&seconds) => Ok(seconds),
        _ => Err(Error::usage(format!("`{text}` is not a number of seconds above 0"))),
    }
}
