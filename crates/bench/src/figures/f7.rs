//! F7: memory, at its highest, against the budget: while a sweep runs and snapshots are open.

use super::sheet::{Rounds, Target};
use super::store::{Shape, Store, budget_bytes};
use super::watch::Watch;
use super::{Run, remove};
use crate::Result;
use crate::keys::{Generator, KeySet, LoadOrder};
use crate::random::{Rng, mix};
use crate::requests::{Chooser, Distribution};
use crate::run::resources::{peak_memory_bytes, private_bytes, reset_peak_memory, resident_bytes};
use crate::sizes::{show_bytes, show_count};
use crate::values::{ValueSize, Values};

/// Memory above the budget, per cent of it.
const ABOVE: Target = Target::AtMost { must: 10.0, aim: 5.0 };
const KEYS: [u64; 2] = [1_000_000, 10_000_000];
/// Values, bytes: with 10 M keys the store is six times the budget.
const VALUE_BYTES: u32 = 150;
const SNAPSHOTS: u64 = 100;

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let budget = budget_bytes(run.scale);
    run.sheet.head("F7: memory against the budget");
    run.sheet.line(&format!(
        "Keys of 8 B, values of {VALUE_BYTES} B, settled; then as many zipfian updates as keys, 2 M at \
         most, a get after each, sweeps as they come; without snapshots, and with {SNAPSHOTS} of them, \
         each taken after a hundredth of the updates and held to the end. Memory that the process has to \
         itself (`RssAnon`, looked at every 2 ms) at its highest, less what it took before the store was \
         opened, and how far above the budget of {} that is. Beside it all resident memory (`VmHWM`): with \
         the pages of tables and the log that are mapped, which are the page cache's. Median (lowest-highest) of \
         {} rounds; must 10 %, aim 5 %.",
        show_bytes(budget),
        run.rounds,
    ));
    let mut rows = Vec::new();
    for count in KEYS.map(|keys| run.scale.of(keys)) {
        let keys = Generator::Uniform.generate(count as usize, run.seed);
        for snapshots in [0, SNAPSHOTS] {
            let (mut above, mut peak, mut metadata) = <(Rounds, Rounds, Rounds)>::default();
            let (mut resident, mut spills) = <(Rounds, Rounds)>::default();
            for round in 0..run.rounds {
                let seed = mix(run.seed ^ u64::from(round));
                let memory = one(run, &keys, snapshots, seed)?;
                peak.push(memory.highest_bytes as f64);
                above.push((memory.highest_bytes as f64 / budget as f64 - 1.0) * 100.0);
                resident.push(memory.resident_bytes as f64);
                spills.push(memory.spills as f64);
                metadata.push(memory.bits);
            }
            rows.push(vec![
                show_count(count),
                snapshots.to_string(),
                peak.show((1 << 20) as f64, 0),
                above.show(1.0, 1),
                ABOVE.judge_rounds(&above, 1.0),
                resident.show((1 << 20) as f64, 0),
                spills.show(1.0, 0),
                metadata.show(1.0, 1),
            ]);
        }
    }
    let names = [
        "keys",
        "snapshots",
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

/// The memory of a run: at its highest, the process's own and all that was resident; how often a snapshot
/// was spilled; and the metadata's bits a key at the end.
struct Memory {
    highest_bytes: u64,
    resident_bytes: u64,
    spills: u64,
    bits: f64,
}

fn one(run: &Run, keys: &KeySet, snapshots: u64, seed: u64) -> Result<Memory> {
    let values = Values::new(ValueSize::Fixed(VALUE_BYTES), run.seed);
    let updates = (keys.len() as u64).min(run.scale.of(2_000_000));
    let mut versions = vec![1; keys.len()];
    let (idle, idle_resident) = (private_bytes(), resident_bytes());
    reset_peak_memory();
    let watch = Watch::begin(&run.dir);
    let store = Store::open(&run.dir, run.scale, Shape::default())?;
    store.ingest(keys, &values)?;
    let order = LoadOrder::Sorted;
    let chooser = Chooser::new(Distribution::Zipfian, keys.len() as u64, &order);
    let (mut rng, mut value, mut scratch) = (Rng::seeded(seed), Vec::new(), Vec::new());
    let every = updates.checked_div(snapshots).unwrap_or(u64::MAX).max(1);
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
    store.settle()?;
    let memory = Memory {
        highest_bytes: watch.most_memory_bytes().saturating_sub(idle),
        resident_bytes: peak_memory_bytes().saturating_sub(idle_resident),
        spills: store.stats().spills,
        bits: store.keyspace_stats()?.metadata_bits_per_entry(),
    };
    drop((held, watch));
    store.close()?;
    remove(&run.dir)?;
    Ok(memory)
}
