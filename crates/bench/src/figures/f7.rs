//! F7: memory, at its highest, against the budget: while sweeps run and snapshots are open. Each case in
//! a process of its own: heap that one leaves behind would hide what the next one takes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::sheet::{Rounds, Target};
use super::store::{MEMTABLE_BYTES, Shape, Store, budget_bytes};
use super::usual::UsualArgs;
use super::watch::Watch;
use super::{Run, Scale, remove};
use crate::engines::Reads;
use crate::keys::{Generator, LoadOrder};
use crate::process::{Waiting, answer, wait_to_begin};
use crate::random::{Rng, mix};
use crate::requests::{Chooser, Distribution};
use crate::run::resources::{peak_memory_bytes, private_bytes, reset_peak_memory, resident_bytes};
use crate::sizes::{show_bytes, show_count};
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

/// Memory above the budget, per cent of it.
const ABOVE: Target = Target::AtMost { must: 10.0, aim: 5.0 };
const KEYS: [u64; 2] = [1_000_000, 10_000_000];
/// As many updates as keys, and no more than this: zipfian ones, of which the memtable swallows a part,
/// so that garbage passes 30 % of 10 M keys.
const MOST_UPDATES: u64 = 10_000_000;
/// Values, bytes: with 10 M keys the store is six times the budget.
const VALUE_BYTES: u32 = 150;
const SNAPSHOTS: u64 = 100;
/// So little is worth a sweep here: with the default none would begin.
const LEAST_CONVERSION_BYTES: u64 = MEMTABLE_BYTES;

/// What the child is told: `learnedkv-bench figures-memory`.
#[derive(Debug, Clone, clap::Args)]
pub struct MemoryArgs {
    /// Directory of the store
    #[arg(long)]
    dir: PathBuf,
    /// Scale of the figures
    #[arg(long)]
    scale: String,
    /// Seed of keys and values
    #[arg(long)]
    seed: u64,
    /// Seed of the updates
    #[arg(long)]
    updates_seed: u64,
    /// How many keys
    #[arg(long)]
    keys: u64,
    /// How many snapshots are held
    #[arg(long)]
    snapshots: u64,
    /// How blocks are read
    #[arg(long)]
    reads: Reads,
    #[command(flatten)]
    usual: UsualArgs,
}

/// What a case found out.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Memory {
    /// The process's own memory at its highest, without what it holds for the measurement.
    highest_bytes: u64,
    /// All that was resident at its highest, the same taken off.
    resident_bytes: u64,
    /// How often a snapshot was spilled.
    spills: u64,
    /// Sweeps that began while updates came.
    sweeps: u64,
    /// The metadata's bits a key at the end.
    bits: f64,
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Case {
    reads: Reads,
    count: u64,
    snapshots: u64,
}

/// The rounds of a case.
#[derive(Default)]
struct Measured {
    above: Rounds,
    peak: Rounds,
    resident: Rounds,
    spills: Rounds,
    sweeps: Rounds,
    metadata: Rounds,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let budget = budget_bytes(run.scale);
    let min_conversion_bytes = shape(&run.usual, Reads::Mapped)?.min_conversion_bytes;
    run.sheet.head("F7: memory against the budget");
    run.sheet.line(&format!(
        "Keys of 8 B, values of {VALUE_BYTES} B, settled; then as many zipfian updates as keys, {} at \
         most, a get after each; sweeps as they come by themselves, from {} of fresh data on (512 MiB by default: \
         none would begin); those that began meanwhile are counted. Blocks read where the operating system holds them \
         (mapped), and by calls (buffered), which fill the store's own cache. Without snapshots, and with {SNAPSHOTS} of them, \
         each taken after a hundredth of the updates and held to the end. Each round of each case in a process of its \
         own. Memory that the process has to itself (`RssAnon`, looked at every 2 ms) at its highest, less what it had \
         when it began and the keys and expected versions it holds, and how far above the budget of {} that is. Beside it all resident memory \
         (`VmHWM`): with the pages of tables and the log that are mapped, which are the page cache's. Median \
         (lowest-highest) of {} rounds; must 10 %, aim 5 %, in the worst round.",
        show_count(run.scale.of(MOST_UPDATES)),
        show_bytes(run.scale.of(min_conversion_bytes)),
        show_bytes(budget),
        run.rounds,
    ));
    let mut rows = Vec::new();
    for reads in [Reads::Mapped, Reads::Buffered] {
        for (keys, snapshots) in [(0, 0), (0, SNAPSHOTS), (1, 0), (1, SNAPSHOTS)] {
            let case = Case { reads, count: run.scale.of(KEYS[keys]), snapshots };
            let mut measured = Measured::default();
            for round in 0..run.rounds {
                let seed = mix(run.seed ^ u64::from(round));
                measured.add(&in_a_child(run, case, seed)?, budget);
                remove(&run.dir)?;
            }
            rows.push(measured.row(case));
        }
    }
    let names = [
        "blocks",
        "keys",
        "snapshots",
        "sweeps",
        "highest, MiB",
        "above the budget, %",
        "stands",
        "resident, MiB",
        "spills",
        "metadata bits a key",
    ];
    run.sheet.table(&names, &rows);
    Ok(())
}

impl Measured {
    fn add(&mut self, memory: &Memory, budget: u64) {
        self.peak.push(memory.highest_bytes as f64);
        self.above.push((memory.highest_bytes as f64 / budget as f64 - 1.0) * 100.0);
        self.resident.push(memory.resident_bytes as f64);
        self.spills.push(memory.spills as f64);
        self.sweeps.push(memory.sweeps as f64);
        self.metadata.push(memory.bits);
    }

    fn row(&self, case: Case) -> Vec<String> {
        vec![
            case.reads.to_string(),
            show_count(case.count),
            case.snapshots.to_string(),
            self.sweeps.show(1.0, 0),
            self.peak.show((1 << 20) as f64, 0),
            self.above.show(1.0, 1),
            match self.sweeps.median() {
                none if none < 1.0 => "**no sweep began**".to_string(),
                _ => ABOVE.judge_worst(&self.above, 1.0),
            },
            self.resident.show((1 << 20) as f64, 0),
            self.spills.show(1.0, 0),
            self.metadata.show(1.0, 1),
        ]
    }
}

/// The shape of a case's store, if nothing else is asked for.
fn shape(usual: &UsualArgs, reads: Reads) -> Result<Shape> {
    let min_conversion_bytes = LEAST_CONVERSION_BYTES;
    usual.or(Shape { min_conversion_bytes, reads, ..Shape::default() })
}

/// One case, once.
fn in_a_child(run: &Run, case: Case, updates_seed: u64) -> Result<Memory> {
    let mut arguments = vec!["figures-memory".to_string()];
    let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    add("dir", run.dir.to_string_lossy().into_owned());
    add("scale", run.scale.name().to_string());
    add("seed", run.seed.to_string());
    add("updates-seed", updates_seed.to_string());
    add("keys", case.count.to_string());
    add("snapshots", case.snapshots.to_string());
    add("reads", case.reads.to_string());
    arguments.extend(run.usual.arguments());
    let memory: Memory = Waiting::start(&arguments)?
        .finish()?
        .map_err(|failed| Error::engine("F7's child", failed))?;
    credible(memory.highest_bytes, run.scale.of(MEMTABLE_BYTES))?;
    Ok(memory)
}

/// Refuses what cannot be: a store that was put to holds more than one memtable.
fn credible(highest_bytes: u64, memtable_bytes: u64) -> Result<()> {
    if highest_bytes >= memtable_bytes {
        return Ok(());
    }
    Err(Error::runtime(format!(
        "F7: found {} at the highest, expected more than the memtable of {} that was filled: \
         the memory of this process is not what the store takes",
        show_bytes(highest_bytes),
        show_bytes(memtable_bytes)
    )))
}

impl MemoryArgs {
    /// Runs the case and prints what memory it took.
    ///
    /// # Errors
    /// A wrong answer, or if the store fails.
    pub fn run(&self) -> Result<()> {
        wait_to_begin()?;
        answer(&self.measure()?)
    }

    fn measure(&self) -> Result<Memory> {
        let scale: Scale = self.scale.parse()?;
        let (private, resident) = (private_bytes(), resident_bytes());
        let keys = Generator::Uniform.generate(self.keys as usize, self.seed);
        let values = Values::new(ValueSize::Fixed(VALUE_BYTES), self.seed);
        let updates = (keys.len() as u64).min(scale.of(MOST_UPDATES));
        let mut versions = vec![1; keys.len()];
        // Not what is resident now: heap that making the keys left over is the store's to use.
        let ours = keys.total_bytes() + size_of_val(&versions[..]) as u64;
        reset_peak_memory();
        let watch = Watch::begin(&self.dir);
        let shape = shape(&self.usual, self.reads)?;
        let values = shape.values(&values);
        let store = Store::open(&self.dir, scale, shape)?;
        store.ingest(&keys, &values)?;
        let order = LoadOrder::Sorted;
        let chooser = Chooser::new(Distribution::Zipfian, keys.len() as u64, &order);
        let mut rng = Rng::seeded(self.updates_seed);
        let (mut value, mut scratch) = (Vec::new(), Vec::new());
        let every = updates.checked_div(self.snapshots).unwrap_or(u64::MAX).max(1);
        let mut held = Vec::new();
        for number in 0..updates {
            let rank = chooser.next(&mut rng);
            versions[rank] += 1;
            values.fill(keys.key(rank).as_ref(), versions[rank], &mut value);
            store.insert(keys.key(rank).as_ref(), &value)?;
            let read = rng.below(keys.len() as u64) as usize;
            store.check(keys.key(read).as_ref(), &values, versions[read], &mut scratch)?;
            if number % every == every - 1 {
                held.push(store.database.snapshot());
            }
        }
        let under_way = store.keyspace_stats()?.watermark.is_some();
        let sweeps = store.stats().sweeps + u64::from(under_way);
        store.settle()?;
        let memory = Memory {
            highest_bytes: watch.most_memory_bytes().saturating_sub(private + ours),
            resident_bytes: peak_memory_bytes().saturating_sub(resident + ours),
            spills: store.stats().spills,
            sweeps,
            bits: store.keyspace_stats()?.metadata_bits_per_entry(),
        };
        drop((held, watch));
        store.close()?;
        Ok(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_memory_than_a_memtable_is_refused() {
        assert!(credible(32 << 20, 32 << 20).is_ok());
        let refused = credible(3 << 20, 32 << 20).unwrap_err().to_string();
        assert!(refused.contains("found 3.0 MiB at the highest"), "{refused}");
    }
}
