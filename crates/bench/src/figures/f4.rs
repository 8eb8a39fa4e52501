//! F4: gets of hot settled data.

use std::time::Instant;

use super::sheet::{Rounds, Target};
use super::store::{BLOCK_BYTES, Shape, Store, VALUE_BYTES};
use super::{Run, remove};
use crate::engines::Reads;
use crate::keys::{Generator, KeySet, LoadOrder};
use crate::random::{Rng, mix};
use crate::requests::{Chooser, Distribution};
use crate::run::resources::Usage;
use crate::sizes::show_count;
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

const HOT: Target = Target::AtLeast { must: 800e3, aim: 1000e3 };
const KEYS: u64 = 1_000_000;
const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Zipfian, Distribution::Uniform];
/// Bytes at the start of a value that are checked within the clock.
const CHECKED_BYTES: usize = 12;

/// The rounds of one distribution.
#[derive(Default)]
struct Measured {
    gets: Rounds,
    hits: Rounds,
    mapped: Rounds,
    cpu_ns: Rounds,
}

/// Each size of blocks, then what else the first of them is held against.
fn shapes() -> impl Iterator<Item = Shape> {
    let sizes = BLOCK_BYTES.map(|block_bytes| Shape { block_bytes, ..Shape::default() });
    let buffered = Shape { reads: Reads::Buffered, ..Shape::default() };
    sizes.into_iter().chain([buffered, Shape::lz4()])
}

struct Gets<'a> {
    store: &'a Store,
    keys: &'a KeySet,
    values: &'a Values,
    /// The first bytes of each key's value.
    starts: Vec<[u8; CHECKED_BYTES]>,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let count = run.scale.of(KEYS);
    let keys = Generator::Uniform.generate(count as usize, run.seed);
    let values = Values::new(ValueSize::Fixed(VALUE_BYTES), run.seed);
    run.sheet.head("F4: gets of hot settled data");
    run.sheet.line(&format!(
        "{} gets of as many settled keys, {VALUE_BYTES} B, one client, page cache \
         warm, after as many gets that warm the block cache. k gets/s as median (lowest-highest) of \
         {} rounds; must 800, aim 1,000 for zipfian requests. In the clock each value's length and \
         first {CHECKED_BYTES} bytes (hash of its key, version) are checked; the same requests are \
         then made once more and checked byte by byte. In the run with lz4 half of each value's bytes \
         compress.",
        show_count(count),
        run.rounds
    ));
    let mut rows = Vec::new();
    for shape in shapes() {
        let store = Store::open(&run.dir, run.scale, shape)?;
        let values = shape.values(&values);
        store.ingest(&keys, &values)?;
        let gets = Gets::new(&store, &keys, &values);
        for distribution in DISTRIBUTIONS {
            let mut measured = Measured::default();
            for round in 0..=run.rounds {
                // The first is for warming.
                let seed = mix(run.seed ^ u64::from(round));
                let into = if round == 0 { &mut Measured::default() } else { &mut measured };
                gets.round(distribution, seed, into)?;
            }
            let rate = measured.gets.median();
            let judged = match distribution {
                Distribution::Zipfian => HOT.judge_rounds(&measured.gets, 1.0),
                _ => "none set".to_string(),
            };
            rows.push(vec![
                distribution.to_string(),
                shape.block_bytes.to_string(),
                shape.compression.to_string(),
                shape.reads.to_string(),
                measured.gets.show(1e3, 0),
                format!("{:.0}", 1e9 / rate),
                measured.cpu_ns.show(1.0, 0),
                measured.mapped.show(0.01, 1),
                measured.hits.show(0.01, 1),
                judged,
            ]);
        }
        let alone = gets.client_ns();
        drop(gets);
        store.close()?;
        remove(&run.dir)?;
        if shape == Shape::default() {
            run.sheet.line(&format!("The client's part, measured alone: {alone:.0} ns a get."));
        }
    }
    let names = [
        "requests",
        "block",
        "compression",
        "reads",
        "k gets/s",
        "ns a get",
        "CPU ns a get",
        "mapped %",
        "cache hits %",
        "stands",
    ];
    run.sheet.table(&names, &rows);
    Ok(())
}

impl<'a> Gets<'a> {
    fn new(store: &'a Store, keys: &'a KeySet, values: &'a Values) -> Gets<'a> {
        let mut value = Vec::new();
        let starts = (0..keys.len()).map(|rank| {
            values.fill(keys.key(rank).as_ref(), 1, &mut value);
            std::array::from_fn(|i| value[i])
        });
        Gets { store, keys, values, starts: starts.collect() }
    }

    /// What looping, keys and checks cost, ns.
    fn client_ns(&self) -> f64 {
        let mut rng = Rng::seeded(1);
        let ranks: Vec<u32> =
            (0..self.keys.len()).map(|_| rng.below(self.keys.len() as u64) as u32).collect();
        let clock = Instant::now();
        for &rank in &ranks {
            std::hint::black_box(self.keys.key(rank as usize));
            std::hint::black_box(self.starts[rank as usize]);
        }
        clock.elapsed().as_nanos() as f64 / ranks.len() as f64
    }

    fn round(&self, kind: Distribution, seed: u64, measured: &mut Measured) -> Result<()> {
        let (count, order) = (self.keys.len(), LoadOrder::Sorted);
        let chooser = Chooser::new(kind, count as u64, &order);
        let mut rng = Rng::seeded(seed);
        let ranks: Vec<u32> = (0..count).map(|_| chooser.next(&mut rng) as u32).collect();
        let (before, used) = (self.store.stats(), Usage::now());
        let clock = Instant::now();
        for &rank in &ranks {
            let rank = rank as usize;
            let found = self.store.keyspace.get(self.keys.key(rank));
            let found = found.map_err(|e| Error::engine("a get", e))?;
            let right = found.is_some_and(|value| {
                value.len() == VALUE_BYTES as usize && value.starts_with(&self.starts[rank])
            });
            if !right {
                return Err(Error::wrong_answer("a value that is not its key's"));
            }
        }
        let seconds = clock.elapsed().as_secs_f64();
        let (after, used) = (self.store.stats(), Usage::now().since(used));
        let hits = (after.cache_hits - before.cache_hits) as f64;
        let mapped = (after.mapped_reads - before.mapped_reads) as f64;
        let all = hits + mapped + (after.cache_misses - before.cache_misses) as f64;
        measured.gets.push(count as f64 / seconds);
        measured.hits.push(hits / all.max(1.0));
        measured.mapped.push(mapped / all.max(1.0));
        measured.cpu_ns.push(used.cpu_seconds * 1e9 / count as f64);
        let mut scratch = Vec::new();
        for rank in ranks {
            let key = self.keys.key(rank as usize);
            self.store.check(key.as_ref(), self.values, 1, &mut scratch)?;
        }
        Ok(())
    }
}
