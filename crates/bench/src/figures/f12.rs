//! F12: what building each kind of index costs, as CPU of writing tables.

use ::learnedkv::IndexKind;

use super::sheet::{Rounds, Target};
use super::store::{Shape, Store, VALUE_BYTES};
use super::{Run, remove};
use crate::Result;
use crate::keys::{Generator, KeySet};
use crate::run::resources::Usage;
use crate::sizes::show_count;
use crate::values::{ValueSize, Values};

/// The index's share of the CPU of writing tables, percent.
const SHARE: Target = Target::AtMost { must: 5.0, aim: 2.0 };
const KEYS: u64 = 1_000_000;
/// Value sizes, and turns of each round. One ingest's CPU differs from the next's by more than an index costs, since most of
/// it is the system's; what is compared are ingests right after each other, and of those differences the middle one. With five
/// turns it moved by some per cent from run to run; where values are short more of them take no longer.
const SIZES: [(u32, usize); 2] = [(VALUE_BYTES, 10), (100, 40)];

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let keys = Generator::Uniform.generate(run.scale.of(KEYS) as usize, run.seed);
    run.sheet.head("F12: build cost of each index");
    run.sheet.line(&format!(
        "Process CPU (ns a key, making the values taken off) of ingesting {} uniform keys: tables \
         are written by the same writer as in flushes and sweeps. Median (lowest-highest) of {} \
         rounds, each of so many turns as the table says; in each all kinds, one after another, each turn \
         beginning with the next. The index's cost is what a kind takes beyond `fence`, which only copies \
         separators, in the same turn; its share is that over all that the kind took; must 5 %, \
         aim 2 %.",
        show_count(keys.len() as u64),
        run.rounds
    ));
    let kinds = IndexKind::ALL;
    let fence = kinds.iter().position(|kind| *kind == IndexKind::Fence).expect("it is a kind");
    let mut rows = Vec::new();
    for (value_bytes, turns) in SIZES {
        let turns = run.rounds as usize * turns;
        let values = Values::new(ValueSize::Fixed(value_bytes), run.seed);
        let [mut costs, mut beyond, mut shares] =
            [(); 3].map(|()| vec![Rounds::default(); kinds.len()]);
        for turn in 0..turns {
            let making_ns = making_ns(&keys, &values);
            let mut taken_ns = vec![0.0; kinds.len()];
            for at in (0..kinds.len()).map(|at| (at + turn) % kinds.len()) {
                taken_ns[at] = build_ns(run, &keys, &values, kinds[at])? - making_ns;
            }
            for (at, ns) in taken_ns.iter().enumerate() {
                costs[at].push(*ns);
                beyond[at].push(ns - taken_ns[fence]);
                shares[at].push((ns - taken_ns[fence]) * 100.0 / ns);
            }
        }
        for (at, kind) in kinds.iter().enumerate() {
            let compared = |text: String| if at == fence { String::new() } else { text };
            rows.push(vec![
                kind.to_string(),
                value_bytes.to_string(),
                turns.to_string(),
                costs[at].show(1.0, 0),
                compared(beyond[at].show(1.0, 0)),
                compared(shares[at].show(1.0, 1)),
                compared(SHARE.judge_after(shares[at].median(), run.rounds as usize)),
            ]);
        }
    }
    let names =
        ["index", "value", "turns", "CPU ns a key", "index ns a key", "index % of CPU", "stands"];
    run.sheet.table(&names, &rows);
    Ok(())
}

/// CPU of making the keys and values that an ingest takes, ns a key.
fn making_ns(keys: &KeySet, values: &Values) -> f64 {
    let (used, mut value) = (Usage::now(), Vec::new());
    for rank in 0..keys.len() {
        values.fill(keys.key(rank).as_ref(), 1, &mut value);
        std::hint::black_box(value.clone());
    }
    Usage::now().since(used).cpu_seconds * 1e9 / keys.len() as f64
}

/// CPU of an ingest, ns a key.
fn build_ns(run: &Run, keys: &KeySet, values: &Values, index: IndexKind) -> Result<f64> {
    remove(&run.dir)?;
    let store = Store::open(&run.dir, run.scale, Shape { index, ..Shape::default() })?;
    let used = Usage::now();
    store.ingest(keys, values)?;
    let spent = Usage::now().since(used).cpu_seconds;
    store.close()?;
    remove(&run.dir)?;
    Ok(spent * 1e9 / keys.len() as f64)
}
