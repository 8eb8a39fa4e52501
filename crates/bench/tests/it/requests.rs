//! Which keys an engine is asked for: others by each phase, the same by each run of one seed.

use std::sync::Mutex;

use learnedkv_bench::Result;
use learnedkv_bench::engines::btree_map::BTreeMapEngine;
use learnedkv_bench::engines::{Engine, EngineStats};
use learnedkv_bench::keys::KeySpec;
use learnedkv_bench::requests::Distribution;
use learnedkv_bench::run::{Limits, Stage, Versions, run_phase};
use learnedkv_bench::values::{ValueSize, Values};
use learnedkv_bench::workloads::{Settling, parse_phases};

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

    fn stats(&self) -> EngineStats {
        EngineStats::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// What one client asks for in each phase of `list`, which it does without a failure.
fn asked(
    list: &str,
    requests: Distribution,
    seed: u64,
    settling: Settling,
) -> Vec<Vec<(char, Vec<u8>)>> {
    let keys = "uniform:2000".parse::<KeySpec>().unwrap().make(7).unwrap();
    let mut engine = Witness { inner: BTreeMapEngine::in_memory(), asked: Mutex::new(Vec::new()) };
    let (values, versions) = (Values::new(ValueSize::Fixed(20), 7), Versions::new(2000));
    let order = keys.load_order(7);
    let limits = Limits {
        threads: 1,
        operations: 3000,
        seconds: None,
        rate_per_second: None,
        seed,
        settling,
        quiet: true,
    };
    let mut of_phases = Vec::new();
    for phase in parse_phases(list, requests).unwrap() {
        let (keys, order) = (&keys.set, &order);
        let mut stage =
            Stage { engine: &mut engine, keys, order, values: &values, versions: &versions };
        let result = run_phase(&mut stage, &phase, &limits).unwrap();
        assert_eq!(result.failures, 0, "{:?}", result.failure_samples);
        of_phases.push(std::mem::take(&mut *engine.asked.lock().unwrap()));
    }
    of_phases
}

#[test]
fn a_phase_that_comes_again_asks_for_other_keys_and_every_engine_is_asked_the_same() {
    let of = |seed| asked("load,A,A,A", Distribution::Uniform, seed, Settling::AtRest);
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
        let phases = asked("load,settle,C", Distribution::Uniform, 1, settling);
        assert_eq!(phases[1], [('q', words.as_bytes().to_vec())]);
    }
}
