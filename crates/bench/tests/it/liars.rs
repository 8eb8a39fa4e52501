//! Engines that lie must be caught, each kind of lie by the reads that can see it; and an honest one
//! must never be accused, whatever runs side by side.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use learnedkv_bench::Result;
use learnedkv_bench::engines::btree_map::BTreeMapEngine;
use learnedkv_bench::engines::{Engine, EngineStats};
use learnedkv_bench::keys::KeySpec;
use learnedkv_bench::requests::Distribution;
use learnedkv_bench::run::{Limits, PhaseResult, Stage, Versions, inserts_at_most, run_phase};
use learnedkv_bench::values::{ValueSize, Values};
use learnedkv_bench::workloads::{Settling, parse_phases};

/// What is wrong with an engine.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    FlippedBit,
    LostUpdate,
    LostInsert,
    LostKey,
    ForeignValue,
    InventedKey,
    ScanOutOfOrder,
    ScanSkips,
    ScanEndsEarly,
    RangeGoesBeyondTheEnd,
    /// No lie: one get keeps all that come after it waiting.
    Stalls,
}

/// How long that takes.
const STALL: Duration = Duration::from_millis(40);

/// A baseline that lies once in [`EVERY`] times.
struct Liar {
    inner: BTreeMapEngine,
    lie: Lie,
    calls: AtomicU64,
}

const EVERY: u64 = 100;
/// Keys that are loaded where lies are told.
const KEYS: u64 = 300;

impl Liar {
    fn now(&self, lie: Lie) -> bool {
        self.lie == lie && self.calls.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
    }
}

impl Engine for Liar {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // Only overwrites are dropped: a lost first write would be a lost key.
        let known = self.inner.get(key, &mut |_| {})?;
        if known && self.now(Lie::LostUpdate) {
            return Ok(());
        }
        // Of keys that come after the load.
        let loaded = || self.inner.stats().figures[0].1 >= KEYS as f64;
        if !known && self.lie == Lie::LostInsert && loaded() && self.now(Lie::LostInsert) {
            return Ok(());
        }
        self.inner.insert(key, value)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if self.lie == Lie::Stalls && self.calls.fetch_add(1, Ordering::Relaxed) == 1000 {
            let begun = Instant::now();
            while begun.elapsed() < STALL {
                std::hint::spin_loop();
            }
        }
        if self.now(Lie::LostKey) {
            return Ok(false);
        }
        if self.now(Lie::InventedKey) {
            found(b"ghost");
            return Ok(true);
        }
        if self.now(Lie::FlippedBit) {
            return self.inner.get(key, &mut |value| {
                let mut value = value.to_vec();
                let middle = value.len() / 2;
                value[middle] ^= 4;
                found(&value);
            });
        }
        if self.now(Lie::ForeignValue) {
            let mut other = None;
            let next = [key, &[0]].concat();
            self.inner.scan(&next, &mut |_, value| {
                other = Some(value.to_vec());
                false
            })?;
            return Ok(other.map(|value| found(&value)).is_some());
        }
        self.inner.get(key, found)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.inner.remove(key)
    }

    fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut held: Option<(Vec<u8>, Vec<u8>)> = None;
        self.inner.scan(start, &mut |key, value| {
            if let Some((held_key, held_value)) = held.take() {
                return visit(key, value) && visit(&held_key, &held_value);
            }
            if self.now(Lie::ScanOutOfOrder) {
                held = Some((key.to_vec(), value.to_vec()));
                return true;
            }
            if self.now(Lie::ScanSkips) {
                return true;
            }
            !self.now(Lie::ScanEndsEarly) && visit(key, value)
        })
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        // As a scan that stops by itself, with one entry too many where it lies so.
        let mut beyond = self.now(Lie::RangeGoesBeyondTheEnd);
        self.scan(from, &mut |key, value| {
            let within = key < to || std::mem::take(&mut beyond);
            within && visit(key, value)
        })
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn stats(&self) -> EngineStats {
        EngineStats::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Runs `phases` on a liar with `threads` clients.
fn run(lie: Lie, phases: &str, keys: &str, threads: usize) -> Vec<PhaseResult> {
    let limits = Limits {
        threads,
        operations: 4000,
        seconds: None,
        rate_per_second: None,
        seed: 3,
        settling: Settling::AtRest,
        quiet: true,
    };
    let phases = parse_phases(phases, Distribution::Zipfian).unwrap();
    let most = inserts_at_most(&phases, &limits);
    let keys = keys.parse::<KeySpec>().unwrap().make_to_grow(3, None, most).unwrap();
    let mut engine = Liar { inner: BTreeMapEngine::in_memory(), lie, calls: AtomicU64::new(0) };
    let values = Values::new(ValueSize::Fixed(40), 3);
    let versions = Versions::new(keys.set.len());
    let order = keys.load_order(3);
    let mut stage = Stage {
        engine: &mut engine,
        keys: &keys.set,
        order: &order,
        loaded: keys.loaded,
        values: &values,
        versions: &versions,
    };
    phases.iter().map(|phase| run_phase(&mut stage, phase, &limits).unwrap()).collect()
}

#[track_caller]
fn caught(lie: Lie, phase: &str, words: &str) {
    let result = run(lie, &format!("load,{phase}"), "uniform:300", 1).pop().unwrap();
    assert!(result.failures > 0, "{lie:?} was not caught by {phase}");
    let samples = result.failure_samples.join("\n");
    assert!(samples.contains(words), "{lie:?} in {phase}: expected `{words}` in:\n{samples}");
}

#[test]
fn a_wrong_value_is_caught() {
    caught(Lie::FlippedBit, "C", "byte 20 of 40 wrong");
    caught(Lie::FlippedBit, "F", "byte 20 of 40 wrong");
    caught(Lie::ForeignValue, "C", "another key's value");
    caught(Lie::FlippedBit, "multiget", "byte 20 of 40 wrong");
    caught(Lie::ForeignValue, "multiget", "another key's value");
}

#[test]
fn a_lost_write_is_caught() {
    caught(Lie::LostUpdate, "A", "whole");
    caught(Lie::LostUpdate, "F", "whole");
    caught(Lie::LostUpdate, "update,E", "whole");
    caught(Lie::LostUpdate, "update,verify", "whole");
    caught(Lie::LostInsert, "D", "found nothing");
    caught(Lie::LostInsert, "E", "expected key");
    caught(Lie::LostInsert, "E,verify", "expected in the full scan, found nothing");
    caught(Lie::LostKey, "C", "found nothing");
    caught(Lie::LostKey, "multiget", "of many: expected version");
}

#[test]
fn an_invented_key_is_caught() {
    caught(Lie::InventedKey, "absent", "expected nothing");
}

#[test]
fn a_wrong_scan_is_caught() {
    caught(Lie::ScanOutOfOrder, "E", "expected key");
    caught(Lie::ScanSkips, "E", "expected key");
    caught(Lie::ScanEndsEarly, "E", "a scan ended after");
    caught(Lie::ScanOutOfOrder, "verify", "");
    caught(Lie::ScanSkips, "verify", "expected in the full scan, found nothing");
    caught(Lie::ScanEndsEarly, "verify", "expected in the full scan, found nothing");
}

#[test]
fn a_wrong_range_is_caught() {
    for mix in ["range10", "range100", "range1000"] {
        caught(Lie::RangeGoesBeyondTheEnd, mix, "entries went on after them");
        caught(Lie::ScanOutOfOrder, mix, "expected key");
        caught(Lie::ScanSkips, mix, "expected key");
        caught(Lie::ScanEndsEarly, mix, "a scan ended after");
    }
    caught(Lie::LostUpdate, "update,range100", "whole");
}

/// Everything that can be asked of an engine that keeps its keys.
const HONEST: &str =
    "load,A,B,C,D,E,F,absent,multiget,scan10,range10,range100,range1000,batch,D,E,update,verify";
/// The same without what inserts: where keys are fewer than clients' shares some have none of their own.
const HONEST_FEW: &str =
    "load,A,B,C,F,absent,multiget,scan10,range10,range100,range1000,update,verify";

#[test]
fn an_honest_engine_is_never_accused() {
    for (list, keys, threads) in [
        (HONEST, "uniform:300", 1),
        (HONEST, "uniform:300", 4),
        (HONEST, "sequential:300", 3),
        (HONEST, "uniform:1", 1),
        (HONEST_FEW, "normal:7", 7),
    ] {
        for result in run(Lie::None, list, keys, threads) {
            assert_eq!(result.failures, 0, "{keys} {}: {:?}", result.name, result.failure_samples);
        }
    }
}

/// What an open loop's operations took is counted from when they were due: one that stalls delays all that come meanwhile, here a tenth. (From
/// when they began all but one took microseconds.)
#[test]
fn a_stall_counts_for_all_that_were_due_meanwhile() {
    let result = run(Lie::Stalls, "load,C=10k", "uniform:300", 1).pop().unwrap();
    let [reads] = &result.latencies[..] else { panic!("{:?}", result.latencies) };
    assert_eq!((result.failures, reads.count), (0, 4000));
    let most = STALL.as_nanos() as f64;
    assert!(reads.latency_us_p99 * 1e3 > most / 2.0, "{reads:?}");
}

#[test]
fn every_operation_is_counted_and_every_read_checked() {
    for threads in [1, 3] {
        let mut inserted = 0;
        for result in
            run(Lie::None, "ingest,A,C,D,E,F,absent,multiget,verify", "uniform:300", threads)
        {
            let timed: u64 = result.latencies.iter().map(|l| l.count).sum();
            let of = |name: &str| {
                result
                    .latencies
                    .iter()
                    .filter(|l| l.operation == name)
                    .map(|l| l.count)
                    .sum::<u64>()
            };
            inserted += of("insert");
            let in_engine = result.engine_seconds / result.threads as f64;
            assert!(result.seconds >= in_engine, "{}: less by the clock", result.name);
            // A twentieth of 4,000, give or take five deviations.
            let inserts = ["D", "E"].contains(&result.name.as_str());
            assert!(!inserts || of("insert").abs_diff(200) < 70, "{}", of("insert"));
            match result.name.as_str() {
                "ingest" => assert_eq!(result.operations, 300),
                "verify" => assert_eq!(result.checked, 300 + inserted),
                "E" => assert!(result.checked > of("scan") * 10),
                "multiget" => assert_eq!(result.checked, of("read many") * 32),
                _ => {
                    assert_eq!((result.operations, timed), (4000, 4000), "{}", result.name);
                    let reads = of("read") + of("read-modify-write") + of("read absent");
                    assert_eq!(result.checked, reads, "{}", result.name);
                }
            }
        }
    }
}
