//! Side by side: engines in turn within each round, each in a process of its own, on the suites of
//! [`suites`]; medians, spread, ratios; JSON, a terminal table, Markdown, and a page with pictures.
//!
//! The order within a round is drawn by the seed, and begins with another engine in each round:
//! whatever drifts on the machine drifts for all, nobody is always first, and nobody always follows
//! the same. Before each engine what others wrote is synced, so that nobody pays for it.
//!
//! *The same work for all*: a mix is so many operations. Its time limit is only for safety; where
//! it ended a mix the engines did not do the same, and figures, ratios and notes say so
//! ([`Doubt`]). Before the first run every run's arguments are read and every engine is opened once
//! with its settings.
//!
//! *Settled* (`--settle`) is one thing for all engines of a run. At rest, the default: each has flushed and
//! done what it does by itself, and nothing more was asked of it. Compacted: each by its own full compaction.
//!
//! *Without root* all is measured but what bounds memory (the `cold` suite's cases of 384 MiB, and those of
//! `memory`): those run unbounded, and a note says so and why. `cold`'s direct reads need no bound.
//!
//! An engine that the kernel kills within such a bound has no figures in that case: that is a result,
//! and stands in the table. Any other end of an engine makes the whole comparison fail at its end.

mod baseline;
mod bound;
mod case;
mod caution;
mod chart;
mod check;
mod child;
mod device;
mod limit;
mod metrics;
mod page;
mod rounds;
pub mod suites;
mod summary;
mod tables;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use ::learnedkv::Compression;

pub use baseline::{BaselineCheck, WITHIN as BASELINE_WITHIN};
pub use case::{Case, Suite};
pub use caution::{Doubt, Mark};
pub use child::{ChildArgs, ChildResult, Ended, Job};
pub use device::{Device, Speeds};
pub use summary::{Compared, Comparison, DEVICE_REQUESTS, KILLED, Row};

use crate::engines::{Reads, opener};
use crate::random::{Rng, mix};
use crate::requests::Distribution;
use crate::sizes::{parse_bytes, parse_count, show_bytes, show_count};
use crate::suite::place::{Place, check_room, store_in};
use crate::values::Compressibility;
use crate::workloads::{Settling, with_rates};
use crate::{Error, Result};
use bound::Bounds;
use check::check;
use limit::Limit;
use suites::suite;

/// Engines, suites, and how often.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Engines, in turn within each round
    #[arg(long, value_name = "LIST", default_value = "learnedkv,learnedkv-lsm")]
    engines: String,
    /// What is compared: ycsb, cold, phases, memory, size, dist, sosd, values, sizes, scan, absent,
    /// overprovision, threads, open, durable or redb
    #[arg(long, value_name = "NAME", default_value = "ycsb")]
    suite: String,
    /// Of the suite's cases only that of this name, or, if there is none, those that have these
    /// words in their names, one after another; may be repeated
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Rounds; each runs every engine once
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// full, or tiny (shows that it works and measures nothing)
    #[arg(long, value_name = "NAME", default_value = "full")]
    scale: String,
    /// Keys of each case, instead of the suite's
    #[arg(long, value_name = "N")]
    keys: Option<String>,
    /// Value size of each case, instead of the suite's
    #[arg(long, value_name = "SIZE")]
    value_size: Option<String>,
    /// Memory budget of each case, instead of the suite's
    #[arg(long, value_name = "SIZE")]
    memory_budget: Option<String>,
    /// Operations of each mix, instead of the suite's (most: 300k); scans and ranges do a twentieth
    /// of them, calls for 32 keys a 32nd, commits of 1,000 a hundredth; C and absent of ycsb and of
    /// absent ten times them
    #[arg(long, value_name = "N")]
    operations: Option<String>,
    /// Seconds after which a mix is ended (suites: 120 and more, for safety), ten times as many
    /// where it does ten times the operations. Engines that it strikes do fewer operations than the
    /// others, and are marked
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Operations a second of the mixes, in an open loop: for all of them (50k), or by name
    /// (A=50k,C=100k)
    #[arg(long, value_name = "RATES")]
    rate: Option<String>,
    /// How blocks are read, instead of the suite's way: mapped, buffered or direct
    #[arg(long, value_name = "HOW")]
    reads: Option<String>,
    /// Which keys are asked for, instead of the suite's way: as run has it
    #[arg(long, value_name = "NAME")]
    requests: Option<String>,
    /// Largest data block, of engines whose blocks can be told (suites: 4 KiB)
    #[arg(long, value_name = "SIZE")]
    block_size: Option<String>,
    /// How blocks are compressed: none, lz4, zstd or zstd:LEVEL; engines that cannot do not (suites: none)
    #[arg(long, value_name = "HOW")]
    compression: Option<String>,
    /// Share of a value's bytes that compress, 0 to 1 (suites: 0)
    #[arg(long, value_name = "SHARE")]
    value_compressibility: Option<String>,
    /// What settle does: at-rest (each engine is left until its own work is done) or compacted (by each
    /// engine's full compaction)
    #[arg(long, value_name = "HOW", default_value = "at-rest")]
    settle: String,
    /// Directory with the key sets of the suite sosd
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
    /// An option of one engine, as ENGINE:NAME=VALUE; its own, or reads=HOW or memtable=SIZE for it
    /// alone; may be repeated
    #[arg(long = "option", value_name = "ENGINE:NAME=VALUE")]
    options: Vec<String>,
    /// Directory for the stores; must be new or empty; removed afterwards
    #[arg(long, value_name = "DIR", default_value = "./bench-out/compare-store")]
    dir: PathBuf,
    /// Directory for compare.html, compare.json, compare.md and every run's own report
    #[arg(long, value_name = "DIR", default_value = "./bench-out/compare")]
    out: PathBuf,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

impl CompareArgs {
    /// Compares, and leaves the reports.
    ///
    /// # Errors
    /// If an option makes no sense, an engine is not in this build, or (at the end, the reports
    /// being written all the same) an engine failed.
    pub fn run(&self) -> Result<()> {
        let asked = suite(&self.suite)?;
        let engines: Vec<String> = self.engines.split(',').map(|e| e.trim().to_string()).collect();
        for (number, engine) in engines.iter().enumerate() {
            opener(engine)?;
            if engines[..number].contains(engine) {
                return Err(Error::usage(format!("--engines: `{engine}` is there twice")));
            }
        }
        let options = self.options_by_engine(&engines)?;
        let wanted = self.wanted(asked)?.into_iter();
        let cases = wanted.map(|case| self.changed(case)).collect::<Result<Vec<_>>>()?;
        if self.rounds == 0 {
            return Err(Error::usage("--rounds: at least 1, found 0"));
        }
        let settling: Settling = self.settle.parse().map_err(|e: Error| e.within("--settle"))?;
        let in_words = cases.iter().map(|case| (case.name.to_string(), in_words(case)));
        let mut comparison = Comparison {
            suite: format!("{}: {}", asked.name, asked.about),
            rounds: self.rounds,
            settling: settling.name().to_string(),
            cases: in_words.collect(),
            ..Comparison::begin(&engines)
        };
        let largest = cases.iter().map(Case::data_bytes).max();
        check_room(&self.dir, largest.unwrap_or_default())?;
        // For the whole run: each engine's process has a place of its own in it.
        let place = Place::prepare(&self.dir, false)?;
        check(&self.first_jobs(&cases, &engines, &options)?)?;
        let (mut failures, mut bounds) = (Vec::new(), Bounds::default());
        for case in &cases {
            match case.missing(&self.data) {
                Some(why) => note(&mut comparison.notes, why)?,
                None => {
                    self.run_case(case, &options, &mut bounds, &mut comparison, &mut failures)?
                }
            }
        }
        place.leave()?;
        comparison.notes.append(&mut failures.clone());
        comparison.caution();
        self.write(&comparison, &[])?;
        say(&format!("\n{}\n", tables::text(&comparison)))?;
        say(&format!("report: {}\n", self.out.join("compare.html").display()))?;
        match failures.first() {
            None if comparison.rows.is_empty() && comparison.killed.is_empty() => {
                let words =
                    "no case ran: the notes say why (--data names the directory of key sets)";
                Err(Error::runtime(words))
            }
            None => Ok(()),
            Some(first) => {
                Err(Error::runtime(format!("{} runs failed; the first: {first}", failures.len())))
            }
        }
    }

    /// Runs every engine of `comparison` on `case`, as often as asked for.
    fn run_case(
        &self,
        case: &Case,
        options: &[Vec<String>],
        bounds: &mut Bounds,
        comparison: &mut Comparison,
        failures: &mut Vec<String>,
    ) -> Result<()> {
        let engines: Vec<String> = comparison.engines.iter().map(|e| e.name.clone()).collect();
        for round in 1..=self.rounds {
            for number in order_of(round, engines.len(), self.seed_of(case)) {
                let engine = &engines[number];
                let job = self.job(engine, case, round, &options[number])?;
                if let Some(why) = job.case.leaves_out(engine) {
                    note(&mut comparison.notes, why)?;
                    continue;
                }
                if let Some(why) = case.lacks_compression(engine) {
                    note(&mut comparison.notes, why)?;
                }
                say(&format!("{} round {round}: {engine} ", case.name))?;
                if self.scale == "full" {
                    rustix::fs::sync();
                }
                match run_limited(&job, bounds, &mut comparison.notes) {
                    Ok(Ended::Done(result)) => {
                        for words in &result.report.notes {
                            let words = format!("{}: {engine}: {words}", case.name);
                            note(&mut comparison.notes, words)?;
                        }
                        comparison.add(case.name, number, &result);
                        comparison.judge_baseline();
                        say(&tables::line(&result))?;
                    }
                    Ok(Ended::OutOfMemory) => {
                        comparison.killed.push((case.name.to_string(), number));
                        let bound = show_bytes(job.case.limit_bytes);
                        let words = format!("{}: {engine}: {KILLED} ({bound} in all)", case.name);
                        note(&mut comparison.notes, words)?;
                    }
                    Err(error) => {
                        say(&format!("failed: {error}\n"))?;
                        failures.push(format!("{} round {round}: {error}", case.name));
                    }
                }
                self.write(comparison, failures)?;
            }
            // After the engines: what it writes and removes slows none of the round.
            self.try_device(case, round, comparison)?;
            self.write(comparison, failures)?;
        }
        Ok(())
    }

    /// What the device leaves, where the case's data is beyond memory.
    fn try_device(&self, case: &Case, round: usize, comparison: &mut Comparison) -> Result<()> {
        let Some(bytes) = case.bytes_beyond_memory() else { return Ok(()) };
        let tried = Duration::from_millis(if self.scale == "full" { 1000 } else { 20 });
        let tried = device::speeds(&store_in(&self.dir), bytes, tried, self.seed + round as u64);
        match tried.unwrap_or_else(|e| Err(format!("the device alone was not tried: {e}"))) {
            Err(why) => note(&mut comparison.notes, format!("{}: {why}", case.name)),
            Ok(speeds) => {
                Device::add(&mut comparison.devices, case.name, speeds);
                Ok(())
            }
        }
    }

    /// The seed of the order in `case`.
    fn seed_of(&self, case: &Case) -> u64 {
        case.name.bytes().fold(self.seed, |seed, byte| mix(seed ^ u64::from(byte)))
    }

    /// What all engines do in the first round, but those that are left out.
    fn first_jobs(
        &self,
        cases: &[Case],
        engines: &[String],
        options: &[Vec<String>],
    ) -> Result<Vec<Job>> {
        let pairs =
            cases.iter().flat_map(|case| engines.iter().zip(options).map(move |of| (case, of)));
        let jobs = pairs.map(|(case, (engine, options))| self.job(engine, case, 1, options));
        let left_out = |job: &Job| job.case.leaves_out(&job.engine).is_some();
        jobs.filter(|job| !job.as_ref().is_ok_and(left_out)).collect()
    }

    /// The case with what the command line changes.
    fn changed(&self, case: &Case) -> Result<Case> {
        let mut case = match self.scale.as_str() {
            "full" => *case,
            "tiny" => case.tiny(),
            other => {
                let words = format!("--scale: expected tiny or full, found `{other}`");
                return Err(Error::usage(words));
            }
        };
        if let Some(keys) = &self.keys {
            case.count = parse_count(keys).map_err(|e| e.within("--keys"))?;
        }
        if let Some(size) = &self.value_size {
            case.value_size = leaked(size.clone());
        }
        if let Some(budget) = &self.memory_budget {
            let bytes = parse_bytes(budget).map_err(|e| e.within("--memory-budget"))?;
            case.memory_budget_bytes = bytes;
            case.memtable_bytes = case.memtable_bytes.min(bytes / 8);
        }
        if let Some(operations) = &self.operations {
            case.operations = parse_count(operations).map_err(|e| e.within("--operations"))?;
        }
        case.seconds = self.seconds.unwrap_or(case.seconds);
        if let Some(rates) = &self.rate {
            let rated = with_rates(case.workloads, rates).map_err(|e| e.within("--rate"))?;
            case.workloads = leaked(rated);
        }
        if let Some(reads) = &self.reads {
            let reads: Reads = reads.parse().map_err(|e: Error| e.within("--reads"))?;
            case.reads = reads.name();
        }
        if let Some(requests) = &self.requests {
            requests.parse::<Distribution>().map_err(|e| e.within("--requests"))?;
            case.requests = leaked(requests.clone());
        }
        if let Some(size) = &self.block_size {
            case.block_bytes = parse_bytes(size).map_err(|e| e.within("--block-size"))?;
        }
        if let Some(how) = &self.compression {
            let known = Compression::from_text(how).map_err(|e| Error::usage(e.to_string()));
            known.map_err(|e| e.within("--compression"))?;
            case.compression = leaked(how.clone());
        }
        if let Some(share) = &self.value_compressibility {
            let share = share.parse::<Compressibility>();
            share.map_err(|e| e.within("--value-compressibility"))?;
            case.compressible = self.value_compressibility.clone().map_or("0", leaked);
        }
        let settling: Settling = self.settle.parse().map_err(|e: Error| e.within("--settle"))?;
        case.settle = settling.name();
        Ok(case)
    }

    /// The suite's cases that are asked for.
    fn wanted(&self, suite: &'static Suite) -> Result<Vec<&'static Case>> {
        let mut wanted: Vec<&Case> = Vec::new();
        for name in &self.cases {
            let named = cases_named(suite.cases, name);
            if named.is_empty() {
                let names: Vec<_> =
                    suite.cases.iter().map(|case| format!("\"{}\"", case.name)).collect();
                return Err(Error::usage(format!(
                    "--case: no case of the suite {} is called {name:?} or has these words in its name; \
                     there are {}",
                    suite.name,
                    names.join(", ")
                )));
            }
            wanted.extend(named);
        }
        let asked_for = |case: &&Case| wanted.iter().any(|wanted| wanted.name == case.name);
        Ok(suite.cases.iter().filter(|case| self.cases.is_empty() || asked_for(case)).collect())
    }

    /// Each engine's options, in the engines' order.
    fn options_by_engine(&self, engines: &[String]) -> Result<Vec<Vec<String>>> {
        let mut by_engine = vec![Vec::new(); engines.len()];
        for text in &self.options {
            let of = text.split_once(':').and_then(|(engine, option)| {
                let number = engines.iter().position(|known| known == engine)?;
                option.contains('=').then(|| (number, option.to_string()))
            });
            let (number, option) = of.ok_or_else(|| {
                Error::usage(format!(
                    "--option: expected ENGINE:NAME=VALUE with an engine of --engines, found `{text}`"
                ))
            })?;
            by_engine[number].push(option);
        }
        Ok(by_engine)
    }

    /// What `engine` does of `case`; `options` are those of the command line for it.
    fn job(&self, engine: &str, case: &Case, round: usize, options: &[String]) -> Result<Job> {
        let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let run = format!("{}-{}-{round}", plain(case.name), plain(engine));
        let (case, options) = case.for_engine(engine, options)?;
        Ok(Job {
            engine: engine.to_string(),
            case,
            options,
            data: self.data.clone(),
            dir: store_in(&self.dir),
            out: self.out.join("runs").join(run),
            seed: self.seed + round as u64 - 1,
        })
    }

    /// Writes what is known so far: a comparison that is cut short leaves what it has.
    fn write(&self, comparison: &Comparison, failures: &[String]) -> Result<()> {
        let mut comparison = comparison.clone();
        comparison.notes.extend(failures.iter().cloned());
        comparison.caution();
        let dir = &self.out;
        fs::create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, &e))?;
        let json = serde_json::to_string_pretty(&comparison)
            .map_err(|e| Error::runtime(format!("could not put the figures into JSON: {e}")))?;
        for (name, text) in [
            ("compare.json", json),
            ("compare.md", tables::markdown(&comparison)),
            ("compare.html", page::page(&comparison)),
        ] {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|e| Error::io("write the report", &path, &e))?;
        }
        Ok(())
    }
}

/// The case called `name`, or, if none is, those that have its words in their names, one after
/// another.
fn cases_named<'a>(cases: &'a [Case], name: &str) -> Vec<&'a Case> {
    if let Some(case) = cases.iter().find(|case| case.name == name) {
        return vec![case];
    }
    let wanted = words(name);
    let has = |case: &&Case| {
        !wanted.is_empty() && words(case.name).windows(wanted.len()).any(|some| some == wanted)
    };
    cases.iter().filter(has).collect()
}

/// What stands between spaces, without commas.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().map(|word| word.trim_matches(',')).collect()
}

/// Runs a job, within the limit its case asks for if it can be set; a note says where it cannot.
///
/// # Errors
/// The job's; and that it cannot be limited, where another engine was.
fn run_limited(job: &Job, bounds: &mut Bounds, notes: &mut Vec<String>) -> Result<Ended> {
    let limit = match job.case.limit_bytes {
        0 => None,
        bytes => match bounds.set(&job.engine, || Limit::new(bytes))? {
            Ok(limit) => Some(limit),
            Err(why) => {
                let of = format!("{}: {}", job.case.name, job.engine);
                note(notes, format!("{of}: NOT limited in memory: {why}"))?;
                None
            }
        },
    };
    job.run(limit.as_ref())
}

/// A text that lives for good, as those of the table of cases do: a few of them, once per process.
fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// In which order `engines` run in `round` (from 1), by `seed`: each round begins with another, and
/// then the others come as they are drawn for it.
fn order_of(round: usize, engines: usize, seed: u64) -> Vec<usize> {
    let drawn = |seed: u64| {
        let (mut order, mut rng) = ((0..engines).collect::<Vec<_>>(), Rng::seeded(seed));
        (1..engines).rev().for_each(|last| order.swap(last, rng.below(last as u64 + 1) as usize));
        order
    };
    let first = drawn(seed)[(round - 1) % engines];
    let others = drawn(mix(seed ^ round as u64)).into_iter().filter(|number| *number != first);
    std::iter::once(first).chain(others).collect()
}

/// Says `words` and keeps them, once.
fn note(notes: &mut Vec<String>, words: String) -> Result<()> {
    if !notes.contains(&words) {
        say(&format!("{words}\n"))?;
        notes.push(words);
    }
    Ok(())
}

/// A case's settings, for people.
fn in_words(case: &Case) -> String {
    let limit = match case.limit_bytes {
        0 => String::new(),
        bytes => format!(", {} of memory in all, cached pages included", show_bytes(bytes)),
    };
    let count = show_count(case.count);
    let keys = match (case.keys.strip_prefix("bytes:").and_then(|k| k.split_once(':')), case.file) {
        (Some((mean, deviation)), _) => {
            format!("{count} random keys of {mean} bytes (deviation {deviation})")
        }
        (None, "") => format!("{count} {} keys of 8 bytes", case.keys),
        (None, file) => format!("keys of {file}, {count} at most"),
    };
    let options: Vec<String> =
        case.options.iter().map(|(engine, option)| format!("{engine} with {option}")).collect();
    let options = match options.join(", ") {
        none if none.is_empty() => none,
        some => format!(", {some}"),
    };
    let compressible = match case.compressible {
        "0" => String::new(),
        share => format!(" ({share} of them compressible)"),
    };
    format!(
        "{keys}, values of {} bytes{compressible}, {} clients, {} requests, {}, {} reads, blocks of {} and compression \
         {} where an engine has such, memory budget {} with memtables of {}{limit}{options}; settled: {}; \
         {} operations of each mix (of one with /N the N-th part, with *N N times them), {} s at most (with *N N \
         times as many); ~ is before what only warms up, and is not compared: {}",
        case.value_size,
        case.threads,
        case.requests,
        case.durability,
        case.reads,
        show_bytes(case.block_bytes),
        case.compression,
        show_bytes(case.memory_budget_bytes),
        show_bytes(case.memtable_bytes),
        case.settle,
        show_count(case.operations),
        case.seconds,
        case.workloads.replace(',', " ")
    )
}

fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|e| Error::output(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        compare: CompareArgs,
    }

    #[test]
    fn engines_of_a_round_have_one_seed_and_rounds_have_their_own() {
        let args = <Command as clap::Parser>::parse_from(["it", "--seed", "9"]).compare;
        let case = suites::SUITES[0].cases[0];
        let seed = |engine: &str, round| args.job(engine, &case, round, &[]).unwrap().seed;
        assert_eq!([seed("learnedkv", 1), seed("rocksdb", 1), seed("rocksdb", 2)], [9, 9, 10]);
    }

    #[test]
    fn each_round_begins_with_another_engine_has_all_and_nobody_always_follows_the_same() {
        let orders: Vec<_> = (1..=12).map(|round| order_of(round, 4, 42)).collect();
        for (number, order) in orders.iter().enumerate() {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            let before = &orders[..number % 4];
            assert!(before.iter().all(|other| number > 3 || other[0] != order[0]), "{orders:?}");
        }
        for engine in 0..4 {
            let before = |order: &Vec<usize>| {
                order.iter().position(|of| *of == engine)?.checked_sub(1).map(|at| order[at])
            };
            let followed: std::collections::BTreeSet<_> =
                orders.iter().filter_map(before).collect();
            assert!(followed.len() > 1, "{engine} always follows {followed:?}: {orders:?}");
        }
        assert_eq!((order_of(3, 4, 42), order_of(7, 1, 1)), (orders[2].clone(), vec![0]));
        assert!((1..=12).any(|round| order_of(round, 4, 43) != orders[round - 1]));
    }

    #[test]
    fn a_case_is_asked_for_by_its_name_or_by_whole_words_of_it() {
        let named = |of: &str, name: &str| -> Vec<&str> {
            cases_named(suite(of).unwrap().cases, name).iter().map(|case| case.name).collect()
        };
        // Not "absent keys with filters, 384 MiB", though "4 M" stands in that too.
        let large = "4 M x 1016 B, 384 MiB";
        assert_eq!(named("cold", "4 M"), [large]);
        assert_eq!(named("cold", "384 MiB"), [large, "absent keys with filters, 384 MiB"]);
        assert_eq!(named("cold", "1016 B 384 MiB"), [large]);
        // A name that is the beginning of others is that of one case.
        assert_eq!(named("scan", "1016 B"), ["1016 B"]);
        assert_eq!(named("scan", "zipfian"), ["1016 B, zipfian"]);
        assert_eq!(named("threads", "clients"), ["2 clients", "4 clients"]);
        for none in ["", " ", ",", "4 MiB", "84 MiB", "M 4", "direct  writes", "client"] {
            assert_eq!(named("cold", none), Vec::<&str>::new(), "{none:?}");
        }
    }
}
