//! On a full disk: settled partitions of which a removed range leaves nothing are emptied before the sweep comes to them.
//!
//! A step that the sweep has to do before, of fresh entries that live, needs room; what the range removed would have come free
//! behind it. To empty a partition is an edit alone. What is in the runs and, from the watermark on, in the frozen part is newer than
//! what is settled, and so are its ranges (an ingest puts nothing into the settled run over which one lies). Below the watermark
//! the frozen part is in the bases already, with what was put there after its ranges.

use crate::engine::{Engine, Opened};
use crate::error::Result;
use crate::format::manifest::{Change, PartitionRecord, Watermark};
use crate::format::range::Ranges;
use crate::manifest::State;
use crate::view::{Frozen, KeyspaceView, Run, Tables};

/// An edit empties so many at most: it needs room too. The others come next.
const MOST: usize = 256;

/// The ranges of some runs.
fn ranges_of<'a>(runs: impl Iterator<Item = &'a Run>) -> Ranges {
    Ranges::union(runs.flatten().flat_map(|table| table.ranges().iter().cloned()).collect())
}

/// The numbers of the partitions that hold anything, and of which ranges of newer tables leave nothing.
fn covered(tables: &Tables, frozen: &Frozen) -> Vec<usize> {
    let fresh = ranges_of(tables.runs.iter());
    let all = ranges_of(tables.runs.iter().chain(&frozen.runs));
    let is_covered = |at: &usize| {
        let (partition, upper) = (&tables.partitions[*at], tables.upper(*at));
        let over = if partition.lower < frozen.watermark { &fresh } else { &all };
        (partition.base.is_some() || partition.delta.is_some())
            && over.cover(&partition.lower, upper)
    };
    (0..tables.partitions.len()).filter(is_covered).collect()
}

/// Empties the partitions of which ranges leave nothing. False: there are none. For who holds the keyspace, with no step under way.
///
/// # Errors
/// Those of the edit.
pub fn empty(engine: &Engine, view: &KeyspaceView) -> Result<bool> {
    let Some(frozen) = &view.tables.frozen else { return Ok(false) };
    let mut covered = covered(&view.tables, frozen);
    covered.truncate(MOST);
    if covered.is_empty() {
        return Ok(false);
    }
    let plan = |state: &State| {
        let now = state.keyspaces.get(&view.id)?;
        let stands = now.frozen.as_ref().is_some_and(|now| now.watermark == frozen.watermark);
        let is_as_seen = |at: &usize| {
            let seen = &view.tables.partitions[*at];
            let found = now.partitions.binary_search_by(|p| p.lower.cmp(&seen.lower)).ok()?;
            let (now, next) = (&now.partitions[found], now.partitions.get(found + 1));
            let ids = [&seen.base, &seen.delta].map(|table| table.as_ref().map(|t| t.id()));
            let is_same = ids == [&now.base, &now.delta].map(|table| table.as_ref().map(|t| t.id))
                && next.map(|next| next.lower.as_slice()) == view.tables.upper(*at);
            is_same.then(|| Change::ReplacePartitions {
                keyspace: view.id,
                from: seen.lower.clone(),
                count: 1,
                partitions: vec![PartitionRecord {
                    lower: seen.lower.clone(),
                    base: None,
                    delta: None,
                }],
                watermark: Watermark::Keep,
            })
        };
        let changes: Vec<_> = covered.iter().filter_map(is_as_seen).collect();
        (stands && !changes.is_empty()).then_some(changes)
    };
    engine.edit(0, &Opened::default(), plan, |_| {})
}
