//! Which keys an engine is asked for: others by each phase, the same by each run of one seed.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use learnedkv_bench::Result;
use learnedkv_bench::engines::btree_map::BTreeMapEngine;
use learnedkv_bench::engines::{Engine, EngineStats};
use learnedkv_bench::keys::KeySpec;
use learnedkv_bench::requests::Distribution;
use learnedkv_bench::run::{Limits, Stage, Versions, inserts_at_most, run_phase};
use learnedkv_bench::values::{ValueSize, Values};
use learnedkv_bench::workloads::{Phase, Settling, parse_phases};

/// An engine that notes what it is asked for.
struct Witness {
    inner: BTreeMapEngine,
    asked: Mutex<Vec<(char, Vec<u8>)>>,
}

impl Witness {
    fn note(&self, what: char, key: &[u8]) {
        self.asked.lock().unwrap().push((what, key.to_vec()));
    }
}

impl Engine for Witness {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.note('w', key);
        self.inner.insert(key, value)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.note('r', key);
        self.inner.get(key, found)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.inner.remove(key)
    }

    fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.note('s', start);
        self.inner.scan(start, visit)
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.inner.range(from, to, visit)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn settle(&self) -> Result<()> {
        self.note('q', b"at rest");
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        self.note('q', b"compacted");
        Ok(())
    }

    fn looked_on(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn stats(&self) -> EngineStats {
        EngineStats::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// What clients ask for in each phase of `list`, which it does without a failure.
fn asked(
    list: &str,
    threads: usize,
    requests: Distribution,
    seed: u64,
    settling: Settling,
) -> Vec<Vec<(char, Vec<u8>)>> {
    let mut engine = Witness { inner: BTreeMapEngine::in_memory(), asked: Mutex::new(Vec::new()) };
    let limits = Limits {
        threads,
        operations: 3000,
        seconds: None,
        rate_per_second: None,
        seed,
        settling,
        quiet: true,
    };
    let phases = parse_phases(list, requests).unwrap();
    let most = inserts_at_most(&phases, &limits);
    let keys = "uniform:2000".parse::<KeySpec>().unwrap().make_to_grow(7, None, most).unwrap();
    let (values, order) = (Values::new(ValueSize::Fixed(20), 7), keys.load_order(7));
    let versions = Versions::new(keys.set.len());
    let mut of_phases = Vec::new();
    for phase in phases {
        let mut stage = Stage {
            engine: &mut engine,
            keys: &keys.set,
            order: &order,
            loaded: keys.loaded,
            values: &values,
            versions: &versions,
        };
        let result = run_phase(&mut stage, &phase, &limits).unwrap();
        // What the engine's adapter only looked on for is not the engine's: all of it, and more.
        assert_eq!(result.seconds == 0.0, phase.phase == Phase::Settle, "{}", phase.name);
        assert_eq!(result.failures, 0, "{:?}", result.failure_samples);
        of_phases.push(std::mem::take(&mut *engine.asked.lock().unwrap()));
    }
    of_phases
}

#[test]
fn a_phase_that_comes_again_asks_for_other_keys_and_every_engine_is_asked_the_same() {
    let of = |seed| asked("load,A,A,A", 1, Distribution::Uniform, seed, Settling::AtRest);
    let phases = of(5);
    for (one, other) in [(1, 2), (1, 3), (2, 3)] {
        let same = phases[one].iter().zip(&phases[other]).filter(|(a, b)| a == b).count();
        // By chance one in 4,000: half of the operations agree, and one key in 2,000.
        assert!(same < 20, "phases {one} and {other} agree in {same} of 3,000 requests");
        assert_eq!(phases[one].len(), 3000);
    }
    assert!(of(5) == phases, "another engine was asked for something else");
    assert!(of(6)[1..] != phases[1..], "the seed changes nothing");
}

#[test]
fn settling_is_what_was_asked_for() {
    for (settling, words) in [(Settling::AtRest, "at rest"), (Settling::Compacted, "compacted")] {
        let phases = asked("load,settle,C", 1, Distribution::Uniform, 1, settling);
        assert_eq!(phases[1], [('q', words.as_bytes().to_vec())]);
    }
}

/// The keys that a phase wrote, and those that it read.
fn written_and_read(phase: &[(char, Vec<u8>)]) -> (BTreeSet<&[u8]>, Vec<&[u8]>) {
    let of =
        |what: char| phase.iter().filter(move |(of, _)| *of == what).map(|(_, key)| key.as_slice());
    (of('w').collect(), of('r').collect())
}

#[test]
fn inserts_are_of_new_keys_each_once_and_the_newest_are_read_most() {
    for threads in [1, 3] {
        let phases =
            asked("load,D,E,D,verify", threads, Distribution::Zipfian, 5, Settling::AtRest);
        let mut there = written_and_read(&phases[0]).0;
        assert_eq!(there.len(), 2000);
        for phase in &phases[1..4] {
            let writes = phase.iter().filter(|(what, _)| *what == 'w').count();
            let (inserted, read) = written_and_read(phase);
            assert_eq!(writes, inserted.len(), "a key was inserted twice");
            assert!(writes.abs_diff(150) < 60 && inserted.is_disjoint(&there), "{writes}");
            // They lie among the others, as all do.
            let middle = there.iter().nth(there.len() / 2).unwrap();
            let below = inserted.iter().filter(|key| key < &middle).count();
            assert!((writes / 4..writes * 3 / 4).contains(&below), "{below} of {writes}");
            // Of 2,100 to 2,300 items the newest 75, on average, have zipfian six tenths.
            let newest = read.iter().filter(|key| inserted.contains(*key)).count();
            let scans = phase.iter().filter(|(what, _)| *what == 's').count();
            let share = newest as f64 / read.len().max(1) as f64;
            assert!(scans > 2500 || (0.4..0.75).contains(&share), "{share} of {}", read.len());
            there.extend(inserted);
        }
    }
}

#[test]
fn one_client_inserts_the_same_in_each_run() {
    let of = || asked("load,D,E", 1, Distribution::Zipfian, 5, Settling::AtRest);
    assert!(of() == of());
}
