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
const VALUE_SIZES: [u32; 2] = [VALUE_BYTES, 100];

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let keys = Generator::Uniform.generate(run.scale.of(KEYS) as usize, run.seed);
    run.sheet.head("F12: build cost of each index");
    run.sheet.line(&format!(
        "Process CPU (ns a key, making the values taken off) of ingesting {} uniform keys: tables \
         are written by the same writer as in flushes and sweeps. Median (lowest-highest) of {} \
         rounds, kinds in turn. The index's share is what a kind takes beyond `fence`, which only \
         copies separators, over the whole; must 5 %, aim 2 %.",
        show_count(keys.len() as u64),
        run.rounds
    ));
    let mut rows = Vec::new();
    for value_bytes in VALUE_SIZES {
        let values = Values::new(ValueSize::Fixed(value_bytes), run.seed);
        let mut costs = vec![Rounds::default(); IndexKind::ALL.len()];
        for _ in 0..run.rounds {
            let making_ns = making_ns(&keys, &values);
            for (kind, cost) in IndexKind::ALL.iter().zip(&mut costs) {
                cost.push(build_ns(run, &keys, &values, *kind)? - making_ns);
            }
        }
        let fence = IndexKind::ALL.iter().position(|kind| *kind == IndexKind::Fence);
        let fence_ns = fence.map_or(f64::NAN, |at| costs[at].median());
        for (kind, cost) in IndexKind::ALL.iter().zip(&costs) {
            let share = (cost.median() - fence_ns) * 100.0 / cost.median();
            let compared = *kind != IndexKind::Fence;
            rows.push(vec![
                kind.to_string(),
                value_bytes.to_string(),
                cost.show(1.0, 0),
                if compared { format!("{:.0}", cost.median() - fence_ns) } else { String::new() },
                if compared { format!("{share:.1}") } else { String::new() },
                if compared { SHARE.judge_after(share, cost.count()) } else { String::new() },
            ]);
        }
    }
    let names = ["index", "value", "CPU ns a key", "index ns a key", "index % of CPU", "stands"];
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
