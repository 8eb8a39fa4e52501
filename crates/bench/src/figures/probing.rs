//! One cold key in several tables: asked for one after the other, and at once (LearnedKV's concurrent
//! probing), with filters and without.

use std::time::Instant;

use ::learnedkv::ReadOptions;

use super::sheet::Rounds;
use super::store::{Shape, Store};
use super::{Run, remove};
use crate::engines::Reads;
use crate::keys::{Generator, KeySet};
use crate::random::{Rng, mix};
use crate::sizes::show_count;
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

/// Keys that are settled.
const KEYS: u64 = 2_000_000;
/// Bytes of a value: none is kept apart.
const VALUE_BYTES: u32 = 150;
/// How many runs lie above them.
const RUNS: [u64; 4] = [0, 1, 4, 8];
/// Updates that are in each.
const UPDATES_OF_A_RUN: u64 = 20_000;
/// Gets of a round.
const GETS: u64 = 4_096;

/// The rounds of one way of asking.
#[derive(Default)]
struct Measured {
    latency_us: Rounds,
    requests: Rounds,
}

/// A store with some runs, and what it must answer.
struct Layered {
    store: Store,
    keys: KeySet,
    values: Values,
    versions: Vec<u32>,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let count = run.scale.of(KEYS);
    let updates = run.scale.of(UPDATES_OF_A_RUN);
    run.sheet.head("Probing: one cold key, tables asked in turn and at once");
    run.sheet.line(&format!(
        "{} uniform settled keys, values of {VALUE_BYTES} B, below runs of {} uniform updates each; direct \
         reads, no block cache, one client; {} gets of uniform keys a round. us a get as median \
         (lowest-highest) of {} rounds, the ways of asking taking turns; each value is checked byte by byte \
         in the clock. `at once`: all tables that may hold the key by one call to the disk.",
        show_count(count),
        show_count(updates),
        show_count(run.scale.of(GETS)),
        run.rounds,
    ));
    let mut rows = Vec::new();
    for filters in [false, true] {
        let shape = Shape {
            reads: Reads::Direct,
            block_cache: false,
            automatic_conversion: false,
            attach_filters: false,
            lsm_filters: filters,
            ..Shape::default()
        };
        let keys = Generator::Uniform.generate(count as usize, run.seed);
        let values = Values::new(ValueSize::Fixed(VALUE_BYTES), run.seed);
        let store = Store::open(&run.dir, run.scale, shape)?;
        store.ingest(&keys, &values)?;
        let versions = vec![1; keys.len()];
        let mut layered = Layered { store, keys, values, versions };
        let mut rng = Rng::seeded(run.seed);
        let mut runs = 0;
        for wanted in RUNS {
            while runs < wanted {
                layered.add_run(updates, &mut rng)?;
                runs += 1;
            }
            let there = layered.store.keyspace_stats()?.runs;
            if there != wanted {
                return Err(Error::runtime(format!("expected {wanted} runs, found {there}")));
            }
            rows.extend(layered.compare(run, filters, wanted)?);
        }
        layered.store.close()?;
        remove(&run.dir)?;
    }
    let names = ["filters of runs", "runs", "asked", "us a get", "times in turn", "requests a get"];
    run.sheet.table(&names, &rows);
    Ok(())
}

impl Layered {
    fn add_run(&mut self, updates: u64, rng: &mut Rng) -> Result<()> {
        let mut value = Vec::new();
        for _ in 0..updates {
            let rank = rng.below(self.keys.len() as u64) as usize;
            self.versions[rank] += 1;
            let key = self.keys.key(rank);
            self.values.fill(key.as_ref(), self.versions[rank], &mut value);
            self.store.insert(key.as_ref(), &value)?;
        }
        self.store.flush()
    }

    /// A row for each way of asking.
    fn compare(&self, run: &Run, filters: bool, runs: u64) -> Result<Vec<Vec<String>>> {
        let mut measured: [Measured; 2] = Default::default();
        for round in 0..run.rounds {
            for (way, measured) in measured.iter_mut().enumerate() {
                // No two rounds and ways ask for the same keys: the device has a cache too.
                let seed = mix(run.seed ^ runs << 16 ^ u64::from(round) << 8 ^ way as u64);
                let options = ReadOptions::default().at_once(way == 1);
                self.round(run.scale.of(GETS), seed, options, measured)?;
            }
        }
        let in_turn = measured[0].latency_us.median();
        let row = |way: usize, measured: &Measured| {
            vec![
                if filters { "10 bits a key" } else { "none" }.to_string(),
                runs.to_string(),
                if way == 1 { "at once" } else { "in turn" }.to_string(),
                measured.latency_us.show(1.0, 1),
                format!("{:.2}", measured.latency_us.median() / in_turn),
                measured.requests.show(1.0, 2),
            ]
        };
        Ok(measured.iter().enumerate().map(|(way, measured)| row(way, measured)).collect())
    }

    fn round(
        &self,
        gets: u64,
        seed: u64,
        options: ReadOptions,
        measured: &mut Measured,
    ) -> Result<()> {
        let mut rng = Rng::seeded(seed);
        let mut scratch = Vec::new();
        let before = self.store.stats();
        let clock = Instant::now();
        for _ in 0..gets {
            let rank = rng.below(self.keys.len() as u64) as usize;
            let key = self.keys.key(rank);
            let found = self.store.keyspace.get_with(key, &options);
            let found = found.map_err(|e| Error::engine("a get", e))?;
            let found = found.ok_or_else(|| Error::wrong_answer("a key is not there"))?;
            let version = self.versions[rank];
            self.values
                .check(key.as_ref(), version..=version, &found, &mut scratch)
                .map_err(|mismatch| Error::wrong_answer(mismatch.to_string()))?;
        }
        let seconds = clock.elapsed().as_secs_f64();
        let after = self.store.stats();
        measured.latency_us.push(seconds * 1e6 / gets as f64);
        let requests = after.get_requests - before.get_requests;
        measured.requests.push(requests as f64 / gets as f64);
        Ok(())
    }
}
