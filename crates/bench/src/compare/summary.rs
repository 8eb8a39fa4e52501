//! From children's results to figures: every metric by case, workload and engine, one number per
//! round.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::baseline::BaselineCheck;
use super::caution::Mark;
use super::child::ChildResult;
use super::device::Device;
pub use super::metrics::{BY_CLOCK, DEVICE_REQUESTS, OTHERS_BUSY, OVER_CASES, THROUGHPUT};
use super::metrics::{DIRTIED, OF_PHASE, OF_RUN, SETTLE, is_closed, seconds_in_engine};
use crate::engines::Kind;
use crate::report::machine::Machine;
use crate::report::{median, version};
use crate::run::PhaseResult;
use crate::workloads::{Settling, writes};

/// The workload that stands for a whole run in [`Row::workload`].
pub const WHOLE_RUN: &str = "whole run";
/// What settling is called in the tables, where it is by the engines' full compactions.
const COMPACT: &str = "compact";
/// What stands between a workload and the settle behind it in [`Row::workload`], where a rate is of both.
pub(super) const WITH: &str = " + ";

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
    /// Figures that there is a doubt about.
    #[serde(default)]
    pub marks: Vec<Mark>,
    /// What the device alone did in cases of data beyond memory.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// What must be known beside the figures: see [`Comparison::caution`].
    #[serde(default)]
    pub cautions: Vec<String>,
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
    /// The median of an engine's rounds that have a figure.
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
    /// One of `engines` that has found out nothing yet, here and now.
    #[must_use]
    pub fn begin(engines: &[String]) -> Comparison {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Comparison {
            version: version(),
            suite: String::new(),
            command: crate::command::arguments().join(" "),
            started_unix_s: started.as_secs(),
            machine: Machine::here(),
            engines: engines.iter().map(|engine| Compared::of(engine)).collect(),
            rounds: 1,
            settling: String::new(),
            cases: Vec::new(),
            rows: Vec::new(),
            baseline: Vec::new(),
            killed: Vec::new(),
            marks: Vec::new(),
            devices: Vec::new(),
            cautions: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// One of `engines` and `cases`, for tests.
    #[cfg(test)]
    pub(super) fn of_engines(engines: &[&str], rounds: usize, cases: &[&str]) -> Comparison {
        let engines: Vec<String> = engines.iter().map(|name| (*name).to_string()).collect();
        let cases = cases.iter().map(|case| ((*case).to_string(), String::new())).collect();
        Comparison { rounds, cases, ..Comparison::begin(&engines) }
    }

    /// What stands where `engine` has no figure in `case`.
    #[must_use]
    pub fn nothing(&self, case: &str, engine: usize) -> &'static str {
        let killed = self.killed.iter().any(|(of, number)| of == case && *number == engine);
        let killed = killed && self.of_case(case).all(|row| row.cells[engine].is_empty());
        if killed { KILLED } else { "-" }
    }

    /// Takes in what `engine` (by number) did in `case`.
    pub fn add(&mut self, case: &str, engine: usize, result: &ChildResult) {
        self.engines[engine].version.clone_from(&result.report.engine_version);
        let compacted = self.settling == Settling::Compacted.name();
        let settle = if compacted { COMPACT } else { SETTLE };
        let is_btree = self.engines[engine].rival && !self.engines[engine].lsm_rival;
        let (mut seen, mut cut): (Vec<&str>, bool) = (Vec::new(), false);
        let mut debtor: Option<(String, &PhaseResult)> = None;
        for phase in &result.report.phases {
            let before = seen.iter().filter(|name| **name == phase.name).count();
            seen.push(&phase.name);
            let name = if phase.name == SETTLE { settle } else { &phase.name };
            let workload = match before {
                0 => name.to_string(),
                again => format!("{name} ({})", again + 1),
            };
            self.doubt(case, &workload, engine, phase, &mut cut);
            if let Some((of, before)) = debtor.take().filter(|_| phase.name == SETTLE) {
                self.put_with_rest(engine, case, &format!("{of}{WITH}{settle}"), before, phase);
            }
            if phase.warms_up {
                continue;
            }
            for (metric, unit, of) in OF_PHASE {
                let is_told = !(is_btree && DIRTIED.contains(metric));
                let value = of(&result.report, phase).filter(|_| is_told);
                let shown = DEVICE_REQUESTS.contains(metric) && phase.operations > 0;
                if shown || value.is_some() {
                    self.put(engine, case, &workload, metric, unit, value);
                }
            }
            self.put_latencies(engine, case, &workload, phase);
            debtor = (writes(&phase.name) && is_closed(phase)).then_some((workload, phase));
        }
        for (metric, unit, of) in OF_RUN {
            if let Some(value) = of(result).filter(|_| !(is_btree && DIRTIED.contains(metric))) {
                self.put(engine, case, WHOLE_RUN, metric, unit, Some(value));
            }
        }
    }

    /// Adds the percentiles of a workload's operations.
    fn put_latencies(&mut self, engine: usize, case: &str, workload: &str, phase: &PhaseResult) {
        for latency in &phase.latencies {
            let percentiles = [
                ("p50", latency.latency_us_p50),
                ("p99", latency.latency_us_p99),
                ("p99.9", latency.latency_us_p999),
            ];
            for (percentile, us) in percentiles {
                let metric = format!("{} {percentile}", latency.operation);
                self.put(engine, case, workload, &metric, "us", Some(us));
            }
        }
    }

    /// Adds what a workload's rate is when what it leaves to be done counts, too: `phase` and the settle
    /// directly behind it.
    fn put_with_rest(
        &mut self,
        engine: usize,
        case: &str,
        workload: &str,
        phase: &PhaseResult,
        settled: &PhaseResult,
    ) {
        let clocks = [(THROUGHPUT, seconds_in_engine(phase)), (BY_CLOCK, Some(phase.seconds))];
        for (metric, seconds) in clocks {
            let Some(seconds) = seconds.map(|seconds| seconds + settled.seconds) else { continue };
            let rate = phase.operations as f64 / seconds.max(1e-9);
            self.put(engine, case, workload, metric, "ops/s", Some(rate));
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
    use super::super::caution::Doubt;
    use super::super::metrics::WRITTEN;
    use super::super::tables;
    use super::*;
    use crate::engines::CacheCounts;
    use crate::report::Report;

    /// A phase of one client that did `done` of `asked` operations, each a microsecond in the
    /// engine, in a second by the clock.
    fn phase(name: &str, done: u64, asked: u64) -> PhaseResult {
        PhaseResult {
            name: name.to_string(),
            about: String::new(),
            threads: 1,
            rate_per_second: None,
            share_of_rate: None,
            operations: done,
            asked_operations: asked,
            warms_up: name.starts_with('~'),
            seconds: 1.0,
            throughput_ops_per_s: done as f64,
            engine_seconds: done as f64 / 1e6,
            latencies: Vec::new(),
            checked: 0,
            failures: 0,
            failure_samples: Vec::new(),
            cpu_seconds: 0.5,
            peak_memory_bytes: 0,
            peak_anonymous_bytes: 0,
            read_bytes: 0,
            written_bytes: 100,
            device_reads: None,
            device_writes: None,
            cache: None,
            put_bytes: done,
            store_bytes: 0,
            timeline_interval_s: 1.0,
            timeline_ops_per_s: Vec::new(),
        }
    }

    /// A phase to which a million operations come in its second.
    fn open_loop(name: &str, done: u64) -> PhaseResult {
        PhaseResult { rate_per_second: Some(1e6), ..phase(name, done, 1) }
    }

    fn result(phases: Vec<PhaseResult>) -> ChildResult {
        let report = Report {
            version: String::new(),
            engine: String::new(),
            engine_version: String::new(),
            command: String::new(),
            started_unix_s: 0,
            machine: Machine::here(),
            settings: Vec::new(),
            idle_memory_bytes: 0,
            idle_anonymous_bytes: 0,
            phases,
            engine_stats: Default::default(),
            notes: Vec::new(),
        };
        ChildResult { report, others_cores: 0.0 }
    }

    /// What a comparison makes of one round in which every engine did `phases`.
    fn comparison(engines: &[&str], phases: &[PhaseResult]) -> Comparison {
        let mut comparison = Comparison::of_engines(engines, 1, &["case"]);
        for number in 0..engines.len() {
            comparison.add("case", number, &result(phases.to_vec()));
        }
        comparison.caution();
        comparison
    }

    fn first(comparison: &Comparison, workload: &str, metric: &str) -> Option<f64> {
        comparison.row("case", workload, metric)?.median(0)
    }

    #[test]
    fn a_mix_that_did_nothing_is_the_slowest_and_no_settle() {
        let mut open = PhaseResult { rate_per_second: Some(1e3), ..phase("C=1k", 0, 100) };
        open.seconds = 120.0;
        let found = comparison(&["learnedkv"], &[phase("load", 10, 0), phase("A", 0, 100), open]);
        assert_eq!(first(&found, "A", THROUGHPUT), Some(0.0));
        assert_eq!(first(&found, "A", BY_CLOCK), Some(0.0));
        assert_eq!(first(&found, "C=1k", "reached"), Some(0.0));
        assert!(found.rows.iter().all(|row| row.metric != "time"), "{:?}", found.rows);
    }

    /// Sixteen clients: who came last by chance ended at 0.93 of the rate, and kept up. Who did not is marked, however many did.
    #[test]
    fn the_last_of_many_clients_is_late_by_chance() {
        let shares = |least| [0.999, least, 0.9995];
        for (least, is_marked) in [(0.998, false), (0.98, true)] {
            let mut all = crate::run::Tally::default();
            for share in shares(least) {
                let mut of_one = crate::run::Tally::default();
                of_one.share_of_rate = Some(share);
                all.absorb(of_one);
            }
            let open = PhaseResult {
                rate_per_second: Some(1e3),
                share_of_rate: all.share_of_rate,
                seconds: 10_000.0 / 930.0,
                ..phase("update=1k", 10_000, 10_000)
            };
            let found = comparison(&["learnedkv"], &[open]);
            let is_below = found.marks.iter().any(|mark| mark.doubt == Doubt::BelowRate);
            assert_eq!(is_below, is_marked, "{least}");
        }
    }

    #[test]
    fn a_mix_that_the_time_limit_ended_is_marked_and_so_is_a_rate_that_was_missed() {
        let open = |done: u64| PhaseResult {
            share_of_rate: Some(done as f64 / 1e6),
            ..open_loop("C=1m", done)
        };
        let phases = [phase("load", 10, 0), phase("A", 60, 100), phase("~B", 7, 9), open(970_000)];
        let found = comparison(&["learnedkv", "rocksdb"], &phases);
        let text = tables::text(&found);
        for words in [
            "1000 (cut short)",
            "1.00 rocksdb (learnedkv: cut short) (rocksdb: cut short)",
            "case: rocksdb: A cut short (60 of 100 operations in 1 s): engines' operations differ",
            "case: rocksdb: ~B cut short (7 of 9 operations in 1 s)",
            "case: learnedkv: C=1m below the rate (0.97 of its rate)",
            "970000 (after a cut, below the rate)",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        // What is a hundredth below is no miss, and what was done whole is not cut.
        let found =
            comparison(&["learnedkv"], &[phase("load", 10, 0), phase("A", 9, 9), open(990_001)]);
        assert_eq!(found.marks, []);
    }

    #[test]
    fn what_has_no_time_of_its_own_in_the_engine_is_by_the_clock_and_in_no_ratio() {
        let alone = |name: &str| PhaseResult { engine_seconds: 0.0, ..phase(name, 10, 0) };
        let phases = [alone("ingest"), phase("settle", 0, 0), alone("verify")];
        let found = comparison(&["learnedkv", "rocksdb"], &phases);
        for workload in ["ingest", "verify", "ingest + settle"] {
            assert_eq!(first(&found, workload, THROUGHPUT), None, "{workload}");
            assert!(first(&found, workload, BY_CLOCK).is_some(), "{workload}");
        }
        assert!(!tables::text(&found).contains("1.00 rocksdb"), "{}", tables::text(&found));
    }

    #[test]
    fn what_writes_is_compared_by_both_clocks_and_so_is_a_load_with_what_it_left() {
        let latency = |operation: &str| crate::run::Latency {
            operation: operation.to_string(),
            count: 1,
            latency_us_mean: 1.0,
            latency_us_p50: 1.0,
            latency_us_p99: 1.0,
            latency_us_p999: 1.0,
            latency_us_max: 1.0,
        };
        let load =
            PhaseResult { latencies: vec![latency("insert")], ..phase("load", 1_000_000, 0) };
        let reads = PhaseResult { latencies: vec![latency("read")], ..phase("C", 5, 5) };
        let found = comparison(&["learnedkv", "rocksdb"], &[load, phase("settle", 0, 0), reads]);
        assert_eq!(first(&found, "load + settle", THROUGHPUT), Some(1e6 / 2.0));
        assert_eq!(first(&found, "load + settle", BY_CLOCK), Some(1e6 / 2.0));
        assert_eq!(first(&found, "load", BY_CLOCK), Some(1e6));
        let text = tables::markdown(&found);
        let (_, by_clock) = text.split_once("by the clock, client included:").unwrap();
        let has = |row: &str| by_clock.contains(row);
        assert!(has("| load | 1000 | 1000 | 1.00 rocksdb | 1.00 rocksdb |"), "{by_clock}");
        assert!(has("| load + settle | 500 | 500 | 1.00 rocksdb | 1.00 rocksdb |"), "{by_clock}");
        assert!(has("| C | 0.005 | 0.005 | - | - |"), "{by_clock}");
    }

    #[test]
    fn a_mix_that_writes_counts_with_the_settle_directly_behind_it() {
        let open = PhaseResult { share_of_rate: Some(0.97), ..open_loop("update=1m", 970_000) };
        let two = PhaseResult { threads: 2, ..phase("B@2", 100, 100) };
        let phases = [
            phase("load", 100, 0),
            phase("A", 2_000_000, 2_000_000),
            phase("A", 1_000_000, 1_000_000),
            phase("settle", 0, 0),
            phase("C", 5, 5),
            phase("settle", 0, 0),
            phase("~A", 5, 5),
            phase("settle", 0, 0),
            two,
            phase("~C", 5, 5),
            phase("settle", 0, 0),
            open,
            phase("settle", 0, 0),
            phase("F", 500_000, 1_000_000),
            phase("settle", 0, 0),
        ];
        let found = comparison(&["learnedkv", "rocksdb"], &phases);
        let with_rest: Vec<_> =
            found.rows.iter().filter(|row| row.workload.contains(WITH)).collect();
        let told = |row: &&Row| (row.workload.clone(), row.metric.clone(), row.median(0));
        let row = |workload: &str, metric: &str, rate| {
            (workload.to_string(), metric.to_string(), Some(rate))
        };
        let expected = [
            row("A (2) + settle", THROUGHPUT, 1e6 / 2.0),
            row("A (2) + settle", BY_CLOCK, 1e6 / 2.0),
            row("F + settle", THROUGHPUT, 0.5e6 / 1.5),
            row("F + settle", BY_CLOCK, 0.5e6 / 2.0),
        ];
        assert_eq!(with_rest.iter().map(told).collect::<Vec<_>>(), expected);
        // It stands behind its mix, has the mix's doubt, and ratios by both clocks.
        let text = tables::markdown(&found);
        let (by_engine, by_clock) = text.split_once("by the clock, client included:").unwrap();
        for (rates, rate) in [(by_engine, "333"), (by_clock, "250")] {
            let cell = format!("{rate} (cut short)");
            let row =
                format!("| F + settle | {cell} | {cell} | 1.00 rocksdb (learnedkv: cut short)");
            assert!(rates.contains(&row), "{row}: {rates}");
            let at = |row: &str| rates.find(row).unwrap();
            assert!(at("| A (2) |") < at("| A (2) + settle |") && at("+ settle |") < at("| C |"));
        }
        // Where settling was by full compactions the row says so.
        let mut compacted = Comparison::of_engines(&["learnedkv"], 1, &["case"]);
        compacted.settling = Settling::Compacted.name().to_string();
        compacted.add("case", 0, &result(phases.to_vec()));
        assert!(compacted.row("case", "F + compact", BY_CLOCK).is_some());
    }

    #[test]
    fn warming_up_is_no_result_and_what_settling_writes_last_counts() {
        let counts = |hits, misses| Some(CacheCounts { hits, misses });
        let warm = PhaseResult { cache: counts(0, 100), ..phase("~C", 50, 50) };
        let measured = PhaseResult { cache: counts(3, 1), ..phase("C", 50, 50) };
        let phases = [phase("load", 100, 0), warm, measured, phase("settle", 0, 0)];
        let found = comparison(&["rocksdb", "lmdb", "redb", "btree-map"], &phases);
        assert!(found.rows.iter().all(|row| row.workload != "~C"), "{:?}", found.rows);
        assert_eq!(first(&found, "C", "found in the cache"), Some(75.0));
        // Four phases wrote 100 bytes each, of 200 that were put. What B-trees dirty is no such
        // sum.
        let written = found.row("case", WHOLE_RUN, WRITTEN).unwrap();
        assert_eq!(written.cells, [vec![2.0], vec![], vec![], vec![2.0]]);
        let written = found.row("case", "C", "device written").unwrap();
        assert_eq!(written.cells, [vec![2.0], vec![], vec![], vec![2.0]]);
    }

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
