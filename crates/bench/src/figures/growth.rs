//! Growth: what an operation costs, what memory and space are taken, from 1 M to 10 M keys; and laws
//! fitted to that ([`super::model`]), which say what 100 M and 1 G keys would cost if they went on so.

use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::model::{Fit, logarithm, power};
use super::store::{MEMTABLE_BYTES, Shape, Store, budget_bytes};
use super::watch::{Watch, data_bytes};
use super::{Run, Scale, remove};
use crate::engines::Reads;
use crate::keys::{Generator, KeySet};
use crate::process::{Waiting, answer, wait_to_begin};
use crate::random::{Permutation, Rng, mix};
use crate::run::resources::{Usage, private_bytes};
use crate::sizes::{show_bytes, show_count};
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

const KEYS: [u64; 4] = [1_000_000, 2_000_000, 5_000_000, 10_000_000];
/// Where the laws are asked.
const BEYOND: [u64; 2] = [100_000_000, 1_000_000_000];
const KEY_BYTES: u64 = 8;
/// Values, bytes: with 10 M keys the store is six times the budget.
const VALUE_BYTES: u32 = 150;
const GETS: u64 = 1_000_000;
const COLD_GETS: u64 = 100_000;
const SCANS: u64 = 20_000;
const SCAN_ENTRIES: usize = 50;
/// The same rule for all sizes: by default the smallest stores would not be swept at all.
const LEAST_CONVERSION_BYTES: u64 = MEMTABLE_BYTES;
/// What is done to each store, in the order of the table.
const PHASES: [&str; 5] =
    ["load", "uniform updates", "gets, warm", "gets, cold", "scans of 50 entries"];
/// Which of them write.
const WRITING_PHASES: usize = 2;

/// What the child is told: `learnedkv-bench figures-growth`.
#[derive(Debug, Clone, clap::Args)]
pub struct GrowthArgs {
    /// Directory of the store
    #[arg(long)]
    dir: PathBuf,
    /// Scale of the figures
    #[arg(long)]
    scale: String,
    /// Seed of everything random
    #[arg(long)]
    seed: u64,
    /// How many keys
    #[arg(long)]
    keys: u64,
}

/// What one phase cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Cost {
    /// Processor time, us an operation.
    cpu_us: f64,
    /// Read requests to the disk an operation.
    requests: f64,
    /// Bytes written per byte put, where any was.
    written: Option<f64>,
    /// The process's own memory at its highest.
    memory_bytes: f64,
    /// Metadata at the end, bits a key.
    bits: f64,
    /// Tables, filters and values over the live bytes: at their highest, and at the end.
    highest_space: f64,
    space: f64,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let mut measured: Vec<(u64, Vec<Cost>)> = Vec::new();
    let clock = Instant::now();
    for count in KEYS.map(|keys| run.scale.of(keys)) {
        measured.push((count, in_a_child(run, count)?));
        remove(&run.dir)?;
    }
    head(run, clock.elapsed().as_secs_f64());
    let mut rows = Vec::new();
    for (number, phase) in PHASES.iter().enumerate() {
        for (count, costs) in &measured {
            rows.push(row(phase, *count, &costs[number]));
        }
    }
    let names = [
        "phase",
        "keys",
        "CPU us an operation",
        "requests an operation",
        "written per byte put",
        "highest memory, MiB",
        "metadata bits a key",
        "space over live, highest",
        "at the end",
    ];
    run.sheet.table(&names, &rows);
    laws(run, &measured);
    Ok(())
}

fn head(run: &mut Run, seconds: f64) {
    let Run { scale, sheet, .. } = run;
    sheet.head("Growth: cost, memory and space from 1 M to 10 M keys");
    sheet.line(&format!(
        "Keys of {KEY_BYTES} B, values of {VALUE_BYTES} B, budget {}, each size in a process and a store of its own, \
         once ({seconds:.0} s in all). Load: puts in random order into an empty store. Updates: as many as keys, \
         uniform. Both up to the end of their conversion, which is asked for; sweeps begin from {} of fresh data on, \
         so that all sizes are swept by one rule. Then every value is read and checked, which warms the system's \
         cache; {} uniform gets; {} scans of {SCAN_ENTRIES} entries; the store is opened again with direct reads and \
         no block cache for {} cold gets. Processor time is that of the process: making and checking keys and values is \
         in it, and the thread that looks at memory every 2 ms. Requests: of reads to the disk, by the store's \
         counters, those of background work included. Written: what the kernel counts for the process. Memory: what the process has to itself \
         (`RssAnon`), less what it had when it began and the keys and versions it holds. Space: tables, filters and \
         values over the bytes of keys and newest values. Every value read is checked.",
        show_bytes(budget_bytes(*scale)),
        show_bytes(scale.of(LEAST_CONVERSION_BYTES)),
        show_count(scale.of(GETS)),
        show_count(scale.of(SCANS)),
        show_count(scale.of(COLD_GETS)),
    ));
}

fn row(phase: &str, count: u64, cost: &Cost) -> Vec<String> {
    vec![
        phase.to_string(),
        show_count(count),
        format!("{:.2}", cost.cpu_us),
        format!("{:.4}", cost.requests),
        cost.written.map_or_else(String::new, |written| format!("{written:.2}")),
        format!("{:.0}", cost.memory_bytes / (1 << 20) as f64),
        format!("{:.2}", cost.bits),
        format!("{:.2}", cost.highest_space),
        format!("{:.2}", cost.space),
    ]
}

/// A cost that is followed: name, how it is read off, whether of reading phases too.
type Followed = (&'static str, fn(&Cost) -> Option<f64>, bool);

const FOLLOWED: [Followed; 6] = [
    ("CPU us an operation", |cost| Some(cost.cpu_us), true),
    ("requests an operation", |cost| Some(cost.requests), true),
    ("written per byte put", |cost| cost.written, false),
    ("highest memory, MiB", |cost| Some(cost.memory_bytes / (1 << 20) as f64), true),
    ("metadata bits a key", |cost| Some(cost.bits), false),
    ("space over live, highest", |cost| Some(cost.highest_space), false),
];

/// The table of fitted laws.
fn laws(run: &mut Run, measured: &[(u64, Vec<Cost>)]) {
    let beyond = BEYOND.map(|keys| run.scale.of(keys));
    let mut rows = Vec::new();
    for (number, phase) in PHASES.iter().enumerate() {
        for (name, of, _) in FOLLOWED.iter().filter(|(.., read)| *read || number < WRITING_PHASES) {
            let point =
                |(count, costs): &(u64, Vec<Cost>)| Some((*count as f64, of(&costs[number])?));
            let points: Vec<(f64, f64)> = measured.iter().filter_map(point).collect();
            rows.push(law_row(&format!("{phase}: {name}"), &points, beyond));
        }
    }
    run.sheet.line(
        "Two laws fitted to each of these rows by least squares (n keys; the second on logarithms); \"off\" is \
         the root of the mean square of what a law is off, per cent of the mean; the one that is less off \
         fits. **What stands at the sizes beyond is a model, not a measurement**: four points say little of \
         a tenfold and nothing of what only begins there.",
    );
    let at = beyond.map(|keys| format!("model at {}", show_count(keys)));
    let names = [
        "quantity",
        "a + b log2 n",
        "off, %",
        "a n^k",
        "off, %",
        "fits",
        at[0].as_str(),
        at[1].as_str(),
    ];
    run.sheet.table(&names, &rows);
    let bits = measured.last().and_then(|(_, costs)| costs.last()).map_or(0.0, |cost| cost.bits);
    let room_bits = budget_bytes(run.scale) as f64 / 2.0 * 8.0;
    run.sheet.line(&format!(
        "What begins beyond: metadata has half of the budget, which {bits:.2} bits a key fill at {} keys; from \
         there on tables are paged (decision 24), so that memory stops to grow and a get may take a second \
         request. No law above has seen that.",
        show_count((room_bits / bits.max(1e-9)) as u64),
    ));
}

fn law_row(name: &str, points: &[(f64, f64)], beyond: [u64; 2]) -> Vec<String> {
    let log = logarithm(points);
    let power = power(points);
    let better = power.filter(|power| power.off_percent < log.off_percent).unwrap_or(log);
    let shown = |fit: Option<Fit>| match fit {
        Some(fit) => [fit.law.to_string(), format!("{:.1}", fit.off_percent)],
        None => ["none: a cost is 0".to_string(), String::new()],
    };
    let ahead = |keys: u64| match better.law.at(keys as f64) {
        below if below < 0.0 => "none: below 0".to_string(),
        value => format!("{value:.3}"),
    };
    let fits = if better == log { "a + b log2 n" } else { "a n^k" };
    let [log, log_off] = shown(Some(log));
    let [power, power_off] = shown(power);
    let cells =
        [log, log_off, power, power_off, fits.to_string(), ahead(beyond[0]), ahead(beyond[1])];
    std::iter::once(name.to_string()).chain(cells).collect()
}

/// All phases on a store of `count` keys.
fn in_a_child(run: &Run, count: u64) -> Result<Vec<Cost>> {
    let mut arguments = vec!["figures-growth".to_string()];
    let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    add("dir", run.dir.to_string_lossy().into_owned());
    add("scale", run.scale.name().to_string());
    add("seed", run.seed.to_string());
    add("keys", count.to_string());
    let costs: Vec<Cost> = Waiting::start(&arguments)?
        .finish()?
        .map_err(|failed| Error::engine("growth's child", failed))?;
    match costs.len() == PHASES.len() {
        true => Ok(costs),
        false => Err(Error::runtime(format!("expected {} phases, found {costs:?}", PHASES.len()))),
    }
}

impl GrowthArgs {
    /// Runs all phases and prints what they cost.
    ///
    /// # Errors
    /// A wrong answer, or if the store fails.
    pub fn run(&self) -> Result<()> {
        wait_to_begin()?;
        let scale: Scale = self.scale.parse()?;
        let had = private_bytes();
        let keys = Generator::Uniform.generate(self.keys as usize, self.seed);
        let ours = had + keys.total_bytes() + keys.len() as u64 * size_of::<u32>() as u64;
        let mut grown = Grown {
            dir: self.dir.clone(),
            scale,
            values: Values::new(ValueSize::Fixed(VALUE_BYTES), self.seed),
            versions: vec![0; keys.len()],
            keys,
            ours,
            rng: Rng::seeded(mix(self.seed)),
        };
        answer(&grown.all()?)
    }
}

/// A store of one size.
struct Grown {
    dir: PathBuf,
    scale: Scale,
    keys: KeySet,
    values: Values,
    versions: Vec<u32>,
    /// The memory that the measurement itself holds, bytes.
    ours: u64,
    rng: Rng,
}

impl Grown {
    /// Every phase, in the order of [`PHASES`].
    fn all(&mut self) -> Result<Vec<Cost>> {
        let min_conversion_bytes = LEAST_CONVERSION_BYTES;
        let shape = Shape { min_conversion_bytes, ..Shape::default() };
        let store = Store::open(&self.dir, self.scale, shape)?;
        let count = self.keys.len() as u64;
        let order = Permutation::new(count, self.rng.next_u64());
        let load = self.phase(&store, count, |grown| grown.put(&store, |at, _| order.at(at)))?;
        let updates =
            self.phase(&store, count, |grown| grown.put(&store, |_, rng| rng.below(count)))?;
        store.check_all(&self.keys, &self.values, &self.versions)?;
        let gets = self.scale.of(GETS);
        let warm = self.phase(&store, gets, |grown| grown.get(&store, gets))?;
        let scans = self.scale.of(SCANS);
        let scanned = self.phase(&store, scans, |grown| grown.scan(&store, scans))?;
        store.close()?;
        let shape = Shape { reads: Reads::Direct, block_cache: false, ..shape };
        let store = Store::open(&self.dir, self.scale, shape)?;
        let gets = self.scale.of(COLD_GETS);
        let cold = self.phase(&store, gets, |grown| grown.get(&store, gets))?;
        store.close()?;
        Ok(vec![load, updates, warm, cold, scanned])
    }

    /// What `work`, of so many operations, costs.
    fn phase(
        &mut self,
        store: &Store,
        operations: u64,
        work: impl FnOnce(&mut Grown) -> Result<()>,
    ) -> Result<Cost> {
        let watch = Watch::begin(&self.dir);
        let (before, used) = (store.stats(), Usage::now());
        work(self)?;
        let (after, used) = (store.stats(), Usage::now().since(used));
        let live = (self.keys.len() as u64 * (KEY_BYTES + u64::from(VALUE_BYTES))) as f64;
        // A phase may be over before anybody looked.
        let (now, held) = (data_bytes(&self.dir), private_bytes());
        let requests = (after.read_requests + after.value_requests)
            - (before.read_requests + before.value_requests);
        let put_bytes = (after.put_bytes - before.put_bytes) as f64;
        Ok(Cost {
            cpu_us: used.cpu_seconds * 1e6 / operations as f64,
            requests: requests as f64 / operations as f64,
            written: (put_bytes > 0.0).then(|| used.written_bytes as f64 / put_bytes),
            memory_bytes: watch.most_memory_bytes().max(held).saturating_sub(self.ours) as f64,
            bits: store.keyspace_stats()?.metadata_bits_per_entry(),
            highest_space: watch.most_data_bytes().max(now) as f64 / live,
            space: now as f64 / live,
        })
    }

    /// As many puts as keys, of the ranks that `rank` says, up to the end of their conversion.
    fn put(&mut self, store: &Store, rank: impl Fn(u64, &mut Rng) -> u64) -> Result<()> {
        let mut value = Vec::new();
        for at in 0..self.keys.len() as u64 {
            let rank = rank(at, &mut self.rng) as usize;
            self.versions[rank] += 1;
            let key = self.keys.key(rank);
            self.values.fill(key.as_ref(), self.versions[rank], &mut value);
            store.insert(key.as_ref(), &value)?;
        }
        store.settle()
    }

    /// Uniform gets.
    fn get(&mut self, store: &Store, count: u64) -> Result<()> {
        let mut scratch = Vec::new();
        for _ in 0..count {
            let rank = self.rng.below(self.keys.len() as u64) as usize;
            let key = self.keys.key(rank);
            store.check(key.as_ref(), &self.values, self.versions[rank], &mut scratch)?;
        }
        Ok(())
    }

    /// Scans from uniform keys on.
    fn scan(&mut self, store: &Store, count: u64) -> Result<()> {
        let mut scratch = Vec::new();
        for _ in 0..count {
            let first = self.rng.below(self.keys.len() as u64) as usize;
            let wanted = SCAN_ENTRIES.min(self.keys.len() - first);
            let mut rank = first;
            let from = self.keys.key(first);
            for entry in store.keyspace.range(from.as_ref()..).take(wanted) {
                let (key, value) = entry.map_err(|e| Error::engine("a scan", e))?;
                if key[..] != *self.keys.key(rank).as_ref() {
                    return Err(Error::wrong_answer("a scan found another key than comes next"));
                }
                let version = self.versions[rank];
                let checked = self.values.check(&key, version..=version, &value, &mut scratch);
                checked.map_err(|mismatch| Error::wrong_answer(mismatch.to_string()))?;
                rank += 1;
            }
            if rank - first != wanted {
                return Err(Error::wrong_answer("a scan ended early"));
            }
        }
        Ok(())
    }
}
