//! Multi-get: many cold keys at once against one by one, through io_uring and without.

use std::time::Instant;

use ::learnedkv::disk::real::{ManyReads, Waiting};

use super::sheet::{Rounds, Target};
use super::store::{Shape, Store, VALUE_BYTES, budget_bytes};
use super::{Run, remove};
use crate::engines::Reads;
use crate::keys::{Generator, KeySet};
use crate::random::{Rng, mix};
use crate::run::resources::Usage;
use crate::sizes::{show_bytes, show_count};
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

/// How often as many keys a second, all at once, as one by one.
const TIMES_SINGLE: Target = Target::AtLeast { must: 3.0, aim: 4.0 };
/// Keys of a call; 1 is a get.
const KEYS_OF_A_CALL: [u64; 5] = [1, 2, 8, 32, 128];
/// The calls that the target is for.
const JUDGED: u64 = 32;
/// The store is so many times the memory budget.
const TIMES_BUDGET: u64 = 8;
/// Keys that are asked for in a round.
const KEYS_OF_A_ROUND: u64 = 32_768;

/// The rounds of one way of asking.
/// The ways of reading. Calls for many are waited for asleep in all of them.
const WAYS: [(ManyReads, Waiting); 3] = [
    (ManyReads::IoUring, Waiting::Awake),
    (ManyReads::IoUring, Waiting::Asleep),
    (ManyReads::OneByOne, Waiting::Asleep),
];

#[derive(Default)]
struct Measured {
    keys: Rounds,
    requests: f64,
    cpu_us: Rounds,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let entry_bytes = u64::from(VALUE_BYTES) + 8;
    let count = budget_bytes(run.scale) * TIMES_BUDGET / entry_bytes;
    let asked = run.scale.of(KEYS_OF_A_ROUND).next_multiple_of(128);
    let keys = Generator::Uniform.generate(count as usize, run.seed);
    let values = Values::new(ValueSize::Fixed(VALUE_BYTES), run.seed);
    run.sheet.head("Multi-get: cold keys together and one by one");
    run.sheet.line(&format!(
        "{} uniform settled keys of {} ({}, {TIMES_BUDGET} times the budget), {VALUE_BYTES} B, direct \
         reads, no block cache, one client. k keys/s as median (lowest-highest) of {} rounds, the \
         ways of asking taking turns; each value is checked byte by byte in the clock. Calls of \
         {JUDGED} keys must bring 3 times as many keys a second as gets. `asleep`: gets wait for the device asleep (by default awake, \
         where nobody else wants the processor and it is found to be worth it). `one by one`: without io_uring, as where the kernel forbids it.",
        show_count(asked),
        show_count(count),
        show_bytes(count * entry_bytes),
        run.rounds,
    ));
    let mut rows = Vec::new();
    for (number, (many_reads, waiting)) in WAYS.into_iter().enumerate() {
        let shape = Shape {
            reads: Reads::Direct,
            block_cache: false,
            many_reads,
            waiting,
            ..Shape::default()
        };
        let store = Store::open(&run.dir, run.scale, shape)?;
        if number == 0 {
            store.ingest(&keys, &values)?;
        }
        let mut measured: [Measured; KEYS_OF_A_CALL.len()] = Default::default();
        for round in 0..run.rounds {
            for (way, together) in KEYS_OF_A_CALL.into_iter().enumerate() {
                // No two rounds and ways ask for the same keys: the device has a cache too.
                let seed = mix(run.seed ^ u64::from(round) << 8 ^ way as u64);
                let ask = Ask { store: &store, keys: &keys, values: &values, together };
                ask.round(asked, seed, &mut measured[way])?;
            }
        }
        let used = name_of(&shape);
        let (single, rounds) = (measured[0].keys.median(), measured[0].keys.count());
        for (together, measured) in KEYS_OF_A_CALL.into_iter().zip(&measured) {
            let times = measured.keys.median() / single;
            let is_judged = together == JUDGED && many_reads == ManyReads::IoUring;
            rows.push(vec![
                used.to_string(),
                together.to_string(),
                measured.keys.show(1e3, 1),
                format!("{times:.2}"),
                format!("{:.3}", measured.requests),
                measured.cpu_us.show(1.0, 1),
                if is_judged { TIMES_SINGLE.judge_after(times, rounds) } else { String::new() },
            ]);
        }
        store.close()?;
    }
    remove(&run.dir)?;
    let names = [
        "reads",
        "keys a call",
        "k keys/s",
        "times get",
        "requests a key",
        "CPU us a key",
        "stands",
    ];
    run.sheet.table(&names, &rows);
    Ok(())
}

/// What a way of reading is called.
fn name_of(shape: &Shape) -> &'static str {
    match (shape.many_reads, shape.waiting, shape.disk().uses_io_uring()) {
        (ManyReads::IoUring, Waiting::Awake, true) => "io_uring",
        (ManyReads::IoUring, Waiting::Asleep, true) => "io_uring, asleep",
        (ManyReads::IoUring, _, false) => "io_uring (refused)",
        (ManyReads::OneByOne, ..) => "one by one",
    }
}

/// A way of asking.
struct Ask<'a> {
    store: &'a Store,
    keys: &'a KeySet,
    values: &'a Values,
    together: u64,
}

impl Ask<'_> {
    fn round(&self, asked: u64, seed: u64, measured: &mut Measured) -> Result<()> {
        let mut rng = Rng::seeded(seed);
        let mut scratch = Vec::new();
        let (before, used) = (self.store.stats(), Usage::now());
        let clock = Instant::now();
        for _ in 0..asked / self.together {
            let ranks = (0..self.together).map(|_| rng.below(self.keys.len() as u64) as usize);
            let ranks: Vec<usize> = ranks.collect();
            if let [rank] = ranks[..] {
                self.store.check(self.keys.key(rank).as_ref(), self.values, 1, &mut scratch)?;
                continue;
            }
            let found = self.store.keyspace.multi_get(ranks.iter().map(|&r| self.keys.key(r)));
            let found = found.map_err(|e| Error::engine("a multi-get", e))?;
            for (rank, value) in ranks.into_iter().zip(found) {
                let value = value.ok_or_else(|| Error::wrong_answer("a key is not there"))?;
                self.values
                    .check(self.keys.key(rank).as_ref(), 1..=1, &value, &mut scratch)
                    .map_err(|mismatch| Error::wrong_answer(mismatch.to_string()))?;
            }
        }
        let seconds = clock.elapsed().as_secs_f64();
        let (after, used) = (self.store.stats(), Usage::now().since(used));
        measured.keys.push(asked as f64 / seconds);
        measured.cpu_us.push(used.cpu_seconds * 1e6 / asked as f64);
        measured.requests = (after.read_requests - before.read_requests) as f64 / asked as f64;
        Ok(())
    }
}
