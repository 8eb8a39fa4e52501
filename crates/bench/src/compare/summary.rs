//! From children's results to figures: every metric by case, workload and engine, one number per
//! round.

use serde::{Deserialize, Serialize};

use super::baseline::BaselineCheck;
use super::child::ChildResult;
use crate::engines::Kind;
use crate::report::machine::Machine;
use crate::report::{Report, median};
use crate::run::PhaseResult;
use crate::workloads::Settling;

/// The workload that stands for a whole run in [`Row::workload`].
pub const WHOLE_RUN: &str = "whole run";

/// Everything that was found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The version of this program, and its commit.
    pub version: String,
    /// The suite.
    pub suite: String,
    /// The command line.
    pub command: String,
    /// When it started, in seconds since 1970.
    pub started_unix_s: u64,
    /// Where it ran.
    pub machine: Machine,
    /// Who was compared, in order.
    pub engines: Vec<Compared>,
    /// How often each was run.
    pub rounds: usize,
    /// What settling was, as `--settle` has it.
    #[serde(default)]
    pub settling: String,
    /// The cases and their settings, in words.
    pub cases: Vec<(String, String)>,
    /// Every figure.
    pub rows: Vec<Row>,
    /// In which cases the LearnedKV paper's baseline may be compared with, if it ran.
    pub baseline: Vec<BaselineCheck>,
    /// Cases in which the kernel killed an engine (by number) at its limit of memory, once a round.
    #[serde(default)]
    pub killed: Vec<(String, usize)>,
    /// What did not go as asked: engines that failed or cannot do it, limits that could not be set,
    /// data that is missing.
    pub notes: Vec<String>,
}

/// One engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// Whether it is one of this workspace's.
    pub ours: bool,
    /// Whether it is a rival, and a log-structured merge tree.
    pub lsm_rival: bool,
    /// Whether it is a rival at all.
    pub rival: bool,
    /// How it is tuned.
    pub tuned: String,
    /// Its version, as it says itself, once it has run; nothing where it is this program's.
    #[serde(default)]
    pub version: String,
}

/// One metric of one workload, for every engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The case's name.
    pub case: String,
    /// The workload's name, or `whole run`.
    pub workload: String,
    /// The metric's name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Per engine, in their order: one number per round; none where it has no such figure.
    pub cells: Vec<Vec<f64>>,
}

type OfPhase = fn(&Report, &PhaseResult) -> Option<f64>;
type OfRun = fn(&ChildResult) -> Option<f64>;

/// The metric that engines are ranked by.
pub const THROUGHPUT: &str = "throughput";

/// What the store's device completed, of the whole machine. Rows of every workload: where the device
/// cannot be found their cells are empty.
pub const DEVICE_REQUESTS: [&str; 2] = ["device read requests", "device write requests"];

/// Their unit.
const PER_OPERATION: &str = "per operation";

fn per_operation(phase: &PhaseResult, count: Option<u64>) -> Option<f64> {
    (phase.operations > 0).then_some(count? as f64 / phase.operations as f64)
}

/// Of a workload without operations: what it took in all.
fn in_all(phase: &PhaseResult, what: f64) -> Option<f64> {
    (phase.operations == 0).then_some(what)
}

/// Seconds that the clients of `phase` spent in the engine, each; where that was not told apart, all.
pub(super) fn seconds_in_engine(phase: &PhaseResult) -> f64 {
    let told_apart = phase.engine_seconds > 0.0;
    if told_apart { phase.engine_seconds / phase.threads as f64 } else { phase.seconds }
}

/// What settling is called in the tables, where it is by the engines' full compactions.
const COMPACT: &str = "compact";
const SETTLE: &str = "settle";

/// Metrics of a workload: name, unit, how it is read off.
const OF_PHASE: &[(&str, &str, OfPhase)] = &[
    // While the engine works: making requests and checking answers is the same for all, and left
    // out.
    (THROUGHPUT, "ops/s", |_, phase| {
        // In an open loop it is no more than what was asked for.
        let closed = phase.operations > 0 && phase.rate_per_second.is_none();
        closed.then(|| phase.operations as f64 / seconds_in_engine(phase).max(1e-9))
    }),
    // The same by the clock: the client's own time is in it.
    ("throughput by the clock, client included", "ops/s", |_, phase| {
        let closed = phase.operations > 0 && phase.rate_per_second.is_none();
        closed.then(|| phase.operations as f64 / phase.seconds.max(1e-9))
    }),
    ("reached", "ops/s", |_, phase| {
        phase.rate_per_second.map(|_| phase.operations as f64 / phase.seconds.max(1e-9))
    }),
    ("time", "s", |_, phase| in_all(phase, phase.seconds)),
    ("processor in all", "s", |_, phase| in_all(phase, phase.cpu_seconds)),
    ("device read in all", "MiB", |_, phase| in_all(phase, mib(phase.read_bytes))),
    ("device written in all", "MiB", |_, phase| in_all(phase, mib(phase.written_bytes))),
    ("device read requests in all", "", |_, phase| in_all(phase, phase.device_reads? as f64)),
    ("device write requests in all", "", |_, phase| in_all(phase, phase.device_writes? as f64)),
    ("processor", "s per million operations", |_, phase| {
        // In an open loop a client's waiting is in it.
        let closed = phase.operations > 0 && phase.rate_per_second.is_none();
        closed.then(|| phase.cpu_seconds * 1e6 / phase.operations as f64)
    }),
    ("device read", "bytes per operation", |_, phase| {
        (phase.operations > 0).then(|| phase.read_bytes as f64 / phase.operations as f64)
    }),
    ("device written", "bytes per operation", |_, phase| {
        (phase.operations > 0).then(|| phase.written_bytes as f64 / phase.operations as f64)
    }),
    (DEVICE_REQUESTS[0], PER_OPERATION, |_, phase| per_operation(phase, phase.device_reads)),
    (DEVICE_REQUESTS[1], PER_OPERATION, |_, phase| per_operation(phase, phase.device_writes)),
    ("peak memory", "MiB", |_, phase| Some(mib(phase.peak_memory_bytes))),
    ("peak anonymous memory", "MiB", |report, phase| {
        Some(mib(phase.peak_anonymous_bytes.saturating_sub(report.idle_anonymous_bytes)))
    }),
];

/// Those metrics of a whole run that are looked at over all cases.
pub const OVER_CASES: [&str; 3] =
    ["written per byte put", "most space after a workload", "metadata"];

/// Metrics of a whole run.
const OF_RUN: &[(&str, &str, OfRun)] = &[
    ("written per byte put", "", |result| {
        let sum =
            |of: fn(&PhaseResult) -> u64| result.report.phases.iter().map(of).sum::<u64>() as f64;
        let put = sum(|phase| phase.put_bytes);
        (put > 0.0).then(|| sum(|phase| phase.written_bytes) / put)
    }),
    ("space at the end", "MiB", |result| {
        result.report.phases.last().map(|phase| mib(phase.store_bytes))
    }),
    ("most space after a workload", "MiB", |result| {
        result.report.phases.iter().map(|phase| mib(phase.store_bytes)).reduce(f64::max)
    }),
    ("metadata", "bits per key", |result| {
        let figures = &result.report.engine_stats.figures;
        figures.iter().find(|(name, _)| name == "metadata_bits_per_entry").map(|(_, bits)| *bits)
    }),
    // RocksDB's, with `--option rocksdb:statistics=true`.
    ("found in the cache", "%", |result| {
        let figures = &result.report.engine_stats.figures;
        figures.iter().find(|(name, _)| name == "cache_hit_percent").map(|(_, percent)| *percent)
    }),
    ("others kept busy", "cores", |result| Some(result.others_cores)),
];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

impl Compared {
    /// What is known of an engine.
    #[must_use]
    pub fn of(name: &str) -> Compared {
        let known = crate::engines::known(name);
        let kind = known.map_or(Kind::Floor, |known| known.kind);
        Compared {
            name: name.to_string(),
            ours: kind == Kind::Ours,
            lsm_rival: kind == Kind::LsmRival,
            rival: matches!(kind, Kind::LsmRival | Kind::BTreeRival),
            tuned: known.map_or_else(String::new, |known| known.tuned.to_string()),
            version: String::new(),
        }
    }
}

impl Row {
    /// The median of an engine's rounds.
    #[must_use]
    pub fn median(&self, engine: usize) -> Option<f64> {
        median(self.cells.get(engine)?)
    }

    /// Half of what lies between an engine's lowest and highest round, as a share of the median.
    #[must_use]
    pub fn spread(&self, engine: usize) -> Option<f64> {
        let rounds = self.cells.get(engine)?;
        let high = rounds.iter().copied().reduce(f64::max)?;
        let low = rounds.iter().copied().reduce(f64::min)?;
        let median = self.median(engine)?;
        Some(if median > 0.0 { (high - low) / 2.0 / median } else { 0.0 })
    }

    /// The best of the `engines` that `is` says yes to: its number and its median.
    #[must_use]
    pub fn best(&self, engines: &[Compared], is: fn(&Compared) -> bool) -> Option<(usize, f64)> {
        let of = |(number, _): (usize, &Compared)| Some((number, self.median(number)?));
        let asked = engines.iter().enumerate().filter(|(_, engine)| is(engine));
        asked.filter_map(of).max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// What stands in the place of figures where an engine was killed at its limit of memory.
pub const KILLED: &str = "killed: out of memory";

impl Comparison {
    /// What stands where `engine` has no figure in `case`.
    #[must_use]
    pub fn nothing(&self, case: &str, engine: usize) -> &'static str {
        let killed = self.killed.iter().any(|(of, number)| of == case && *number == engine);
        if killed { KILLED } else { "-" }
    }

    /// What stands behind a figure of `engine` in `case` that is not of all rounds, since it was killed in
    /// some.
    #[must_use]
    pub fn mark(&self, case: &str, engine: usize) -> String {
        let is = |(of, number): &&(String, usize)| of == case && *number == engine;
        match self.killed.iter().filter(is).count() {
            0 => String::new(),
            rounds => format!(" ({rounds} of {} rounds {KILLED})", self.rounds),
        }
    }

    /// Takes in what `engine` (by number) did in `case`.
    pub fn add(&mut self, case: &str, engine: usize, result: &ChildResult) {
        self.engines[engine].version.clone_from(&result.report.engine_version);
        let compacted = self.settling == Settling::Compacted.name();
        let settle = if compacted { COMPACT } else { SETTLE };
        let mut seen: Vec<&str> = Vec::new();
        for phase in &result.report.phases {
            let before = seen.iter().filter(|name| **name == phase.name).count();
            seen.push(&phase.name);
            let name = if phase.name == SETTLE { settle } else { &phase.name };
            let workload = match before {
                0 => name.to_string(),
                again => format!("{name} ({})", again + 1),
            };
            for (metric, unit, of) in OF_PHASE {
                let value = of(&result.report, phase);
                let shown = DEVICE_REQUESTS.contains(metric) && phase.operations > 0;
                if shown || value.is_some() {
                    self.put(engine, case, &workload, metric, unit, value);
                }
            }
            for latency in &phase.latencies {
                let percentiles = [
                    ("p50", latency.latency_us_p50),
                    ("p99", latency.latency_us_p99),
                    ("p99.9", latency.latency_us_p999),
                ];
                for (percentile, us) in percentiles {
                    let metric = format!("{} {percentile}", latency.operation);
                    self.put(engine, case, &workload, &metric, "us", Some(us));
                }
            }
        }
        // What a load leaves to be done later counts, too.
        if let [load, settled, ..] = &result.report.phases[..]
            && settled.name == SETTLE
            && load.operations > 0
        {
            let workload = format!("{} + {settle}", load.name);
            let seconds = seconds_in_engine(load) + settled.seconds;
            let rate = load.operations as f64 / seconds.max(1e-9);
            self.put(engine, case, &workload, THROUGHPUT, "ops/s", Some(rate));
        }
        for (metric, unit, of) in OF_RUN {
            if let Some(value) = of(result) {
                self.put(engine, case, WHOLE_RUN, metric, unit, Some(value));
            }
        }
    }

    /// Adds a round's figure to its row, which is made where it is missing, also for no figure.
    fn put(
        &mut self,
        engine: usize,
        case: &str,
        workload: &str,
        metric: &str,
        unit: &str,
        value: Option<f64>,
    ) {
        let is =
            |row: &&mut Row| row.case == case && row.workload == workload && row.metric == metric;
        let engines = self.engines.len();
        if let Some(row) = self.rows.iter_mut().find(is) {
            row.cells[engine].extend(value);
            return;
        }
        let mut cells = vec![Vec::new(); engines];
        cells[engine].extend(value);
        let owned = |text: &str| text.to_string();
        self.rows.push(Row {
            case: owned(case),
            workload: owned(workload),
            metric: owned(metric),
            unit: owned(unit),
            cells,
        });
    }

    /// The row of `metric` of `workload` in `case`.
    #[must_use]
    pub fn row(&self, case: &str, workload: &str, metric: &str) -> Option<&Row> {
        let is = |row: &&Row| row.case == case && row.workload == workload && row.metric == metric;
        self.rows.iter().find(is)
    }

    /// The rows of `case`.
    pub fn of_case<'a>(&'a self, case: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.case == case)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_spreads_and_the_best_are_those_of_the_rounds() {
        let row = Row {
            case: String::new(),
            workload: "A".to_string(),
            metric: THROUGHPUT.to_string(),
            unit: String::new(),
            cells: vec![vec![5.0, 1.0, 3.0], vec![4.0, 2.0], Vec::new(), vec![10.0]],
        };
        assert_eq!((row.median(0), row.median(1), row.median(2)), (Some(3.0), Some(3.0), None));
        assert_eq!(row.spread(0), Some(4.0 / 2.0 / 3.0));
        assert_eq!(row.spread(2), None);
        let engines = ["learnedkv", "rocksdb", "fjall", "lmdb"].map(Compared::of);
        assert_eq!(row.best(&engines, |engine| engine.lsm_rival), Some((1, 3.0)));
        assert_eq!(row.best(&engines, |engine| engine.rival), Some((3, 10.0)));
        assert_eq!(row.best(&engines, |engine| engine.ours), Some((0, 3.0)));
    }
}
