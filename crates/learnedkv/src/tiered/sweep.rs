//! The sweep: the frozen part is merged into the settled run, partition by partition.
//!
//! One step, at watermark W, which is always the lower key of a partition P:
//! 1. Nothing frozen lies in P: W rises to the first partition in which something does.
//! 2. What lies in P, with its delta, stays below the delta limit: they become P's new delta.
//! 3. Else P's base is rewritten from all of them, without tombstones, up to the partition size; if
//!    that ends within P, the rest of P becomes a partition of its own, with the old tables cut off
//!    below W'.
//!
//! Each step ends in one edit: the new partitions and W'. Where an ingest has split the partition
//! meanwhile, the step is given up and begun again. A crash before it leaves orphans; after it,
//! the sweep goes on at W'. Readers see the frozen part and the old partitions from W on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::output::{Output, Written};
use super::read::{clip, run_cursor};
use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::engine::{Engine, Opened};
use crate::error::Result;
use crate::format::entry::KeyspaceId;
use crate::format::manifest::{Change, PartitionRecord, Watermark};
use crate::format::table::SegmentUse;
use crate::format::value::stored_bytes;
use crate::manifest::KeyspaceState;
use crate::sstable::cursor::{RunCursor, Walk};
use crate::sstable::reader::Table;
use crate::sstable::scale;
use crate::view::{Frozen, KeyspaceView, Partition, Tables};

/// What a step does to its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rewrite {
    Delta,
    Base,
}

/// One step of a sweep under way.
pub struct SweepStep {
    engine: Arc<Engine>,
    keyspace: KeyspaceId,
    old: Place,
    rewrite: Rewrite,
    cursor: MergeCursor,
    output: Output,
    /// Where the output ends if the partition's end does not come before.
    target_bytes: u64,
}

/// What to do at the watermark.
pub enum Next {
    /// The frozen part has nothing more: the sweep ends, or goes on at a later partition.
    Skip(Box<SkipTo>),
    /// A partition is rewritten.
    Rewrite(Box<SweepStep>),
}

/// A move of the watermark over partitions that nothing frozen lies in.
pub struct SkipTo {
    keyspace: KeyspaceId,
    at: Place,
    watermark: Watermark,
}

/// The partition at the watermark as a step found it. An ingest may split it meanwhile; then the
/// step's change does not fit any more.
struct Place {
    partition: PartitionRecord,
    upper: Option<Vec<u8>>,
}

impl Place {
    fn of(tables: &Tables, at: usize) -> Place {
        let upper = tables.upper(at).map(<[u8]>::to_vec);
        Place { partition: record(&tables.partitions[at]), upper }
    }

    /// Whether the watermark is still here, and the partition as it was.
    fn still_stands(&self, state: &KeyspaceState) -> bool {
        let lower = &self.partition.lower;
        let at = state.partitions.iter().position(|p| p.lower == *lower);
        let upper = at.and_then(|at| state.partitions.get(at + 1)).map(|next| &next.lower);
        state.frozen.as_ref().is_some_and(|frozen| frozen.watermark == *lower)
            && at.is_some_and(|at| state.partitions[at] == self.partition)
            && upper == self.upper.as_ref()
    }
}

impl SkipTo {
    /// Moves the watermark. True when the sweep is over.
    ///
    /// # Errors
    /// Those of the edit.
    pub fn commit(self, engine: &Engine) -> Result<bool> {
        let ends = self.watermark == Watermark::End;
        let change = Change::ReplacePartitions {
            keyspace: self.keyspace,
            from: self.at.partition.lower.clone(),
            count: 1,
            partitions: vec![self.at.partition.clone()],
            watermark: self.watermark,
        };
        Ok(commit(engine, self.keyspace, &self.at, change, &Opened::default())? && ends)
    }
}

/// Looks at the watermark: what comes next?
///
/// # Errors
/// Those of reading the frozen part.
pub fn next(engine: &Arc<Engine>, view: &KeyspaceView, frozen: &Frozen) -> Result<Next> {
    let tables = &view.tables;
    let at = tables.partition(&frozen.watermark);
    let partition = &tables.partitions[at];
    debug_assert_eq!(partition.lower, frozen.watermark, "the watermark begins a partition");
    let upper = tables.upper(at);
    let mut ahead = MergeCursor::new(frozen_sources(frozen, None, Walk::Cached));
    ahead.seek(Seek::AtOrAfter(&frozen.watermark))?;
    let watermark = match (ahead.key(), upper) {
        (None, _) => Some(Watermark::End),
        (Some(key), Some(upper)) if key >= upper => {
            let target = tables.partition(key);
            Some(Watermark::Raise(tables.partitions[target].lower.clone()))
        }
        _ => None,
    };
    if let Some(watermark) = watermark {
        let at = Place::of(tables, at);
        let skip = SkipTo { keyspace: view.id, at, watermark };
        return Ok(Next::Skip(Box::new(skip)));
    }
    drop(ahead);
    let step = SweepStep::begin(engine, view, frozen, at)?;
    Ok(Next::Rewrite(Box::new(step)))
}

fn frozen_sources(frozen: &Frozen, upper: Option<&[u8]>, walk: Walk) -> Vec<Box<dyn Cursor>> {
    frozen.runs.iter().map(|run| run_cursor(run, &frozen.watermark, upper, walk)).collect()
}

fn record(partition: &Partition) -> PartitionRecord {
    let of = |table: &Option<Arc<Table>>| table.as_ref().map(|t| t.record());
    PartitionRecord {
        lower: partition.lower.clone(),
        base: of(&partition.base),
        delta: of(&partition.delta),
    }
}

/// Commits a change of the partition at the watermark. False: it does not fit any more.
fn commit(
    engine: &Engine,
    keyspace: KeyspaceId,
    at: &Place,
    change: Change,
    opened: &Opened,
) -> Result<bool> {
    let plan = |state: &crate::manifest::State| {
        at.still_stands(state.keyspaces.get(&keyspace)?).then(|| vec![change])
    };
    engine.edit(0, opened, plan, |_| {})
}

/// What lies in a partition's range, whole blocks, with the separated values that move into blocks. Fresh
/// and settled tables may be compressed differently: what they hold is compared uncompressed.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    stored_bytes: u64,
    unpacked_bytes: u64,
}

impl Size {
    fn of<'a>(
        tables: impl IntoIterator<Item = &'a Arc<Table>>,
        partition: &Partition,
        upper: Option<&[u8]>,
        separate_at: u64,
    ) -> Size {
        let moves =
            |used: &SegmentUse| used.bytes / used.entries.max(1) < stored_bytes(separate_at);
        let mut sum = Size::default();
        for table in tables {
            let stored = table.bytes_between(&partition.lower, upper);
            let whole = table.properties();
            let moved = table.weight_between(&partition.lower, upper, moves) - stored;
            sum.stored_bytes += stored + moved;
            let unpacked = scale(stored, whole.unpacked_bytes, whole.data_bytes.max(1));
            sum.unpacked_bytes += unpacked + moved;
        }
        sum
    }
}

impl SweepStep {
    fn begin(
        engine: &Arc<Engine>,
        view: &KeyspaceView,
        frozen: &Frozen,
        at: usize,
    ) -> Result<SweepStep> {
        let tables = &view.tables;
        let partition = &tables.partitions[at];
        let upper = tables.upper(at);
        let separate_at = view.options.separate_settled_at();
        let in_frozen = Size::of(frozen.runs.iter().flatten(), partition, upper, separate_at);
        let in_delta = Size::of(&partition.delta, partition, upper, separate_at);
        let in_base = Size::of(&partition.base, partition, upper, separate_at);
        let newer_bytes = in_frozen.unpacked_bytes + in_delta.unpacked_bytes;
        let delta_limit = in_base.unpacked_bytes / 100 * view.options.delta_limit();
        let rewrite = if partition.base.is_some() && newer_bytes <= delta_limit {
            Rewrite::Delta
        } else {
            Rewrite::Base
        };
        // A filter that misses paid for once is made anew with its table.
        let mut options = view.options.settled_table();
        let tables_here = || partition.base.iter().chain(&partition.delta);
        if tables_here().any(|table| table.filter_bytes().is_some()) {
            options.filter = options.filter.or(view.options.attached_filter());
        }
        let mut sources = frozen_sources(frozen, upper, Walk::Bulk);
        let old = match rewrite {
            Rewrite::Delta => [&partition.delta, &None],
            Rewrite::Base => [&partition.delta, &partition.base],
        };
        for table in old.into_iter().flatten() {
            let clipped = clip(table, &partition.lower, upper);
            sources.push(Box::new(RunCursor::new(vec![clipped], Walk::Bulk)));
        }
        let mut cursor = MergeCursor::new(sources);
        cursor.seek(Seek::First)?;
        // Equal parts: no small rest at the end of a large partition. What is fresh will shrink as the
        // base did; where there is none, as it did when it was flushed.
        let like = if in_base.unpacked_bytes > 0 { in_base } else { in_frozen };
        let total = newer_bytes + in_base.unpacked_bytes;
        let total = scale(total, like.stored_bytes, like.unpacked_bytes.max(1));
        let parts = total.div_ceil(view.options.partition()).max(1);
        let target_bytes = (total / parts).max(view.options.partition() / 2);
        Ok(SweepStep {
            engine: engine.clone(),
            keyspace: view.id,
            old: Place::of(tables, at),
            rewrite,
            cursor,
            output: Output::new(
                engine,
                options,
                view.options.separate_settled_at(),
                &tables.segments,
            ),
            target_bytes,
        })
    }

    /// Goes on. `None`: not over yet; else whether the whole sweep is over.
    ///
    /// # Errors
    /// Those of the disk; the step is then given up, and begun again later.
    pub fn step(&mut self) -> Result<Option<bool>> {
        let (rewrite, target_bytes) = (self.rewrite, self.target_bytes);
        let keep_tombstones = rewrite == Rewrite::Delta;
        // A delta is one table, whatever its size.
        let end_at = (rewrite == Rewrite::Base).then_some(target_bytes);
        let ended = self.output.copy(&mut self.cursor, keep_tombstones, end_at)?;
        if ended { self.install().map(Some) } else { Ok(None) }
    }

    fn install(&mut self) -> Result<bool> {
        let Written { mut tables, opened, bytes: written } = self.output.finish()?;
        let new = tables.pop();
        let old = &self.old.partition;
        let lower = old.lower.clone();
        let mut partitions = vec![match self.rewrite {
            Rewrite::Delta => PartitionRecord { delta: new, ..old.clone() },
            Rewrite::Base => PartitionRecord { lower: lower.clone(), base: new, delta: None },
        }];
        // Where the output stopped within the partition, the rest keeps the old tables.
        let rest = self.cursor.key().map(<[u8]>::to_vec);
        if let Some(rest) = &rest {
            partitions.push(PartitionRecord { lower: rest.clone(), ..old.clone() });
        }
        let watermark = match rest.or_else(|| self.old.upper.clone()) {
            Some(key) => Watermark::Raise(key),
            None => Watermark::End,
        };
        let ends = watermark == Watermark::End;
        let keyspace = self.keyspace;
        let change =
            Change::ReplacePartitions { keyspace, from: lower, count: 1, partitions, watermark };
        let fits = commit(&self.engine, keyspace, &self.old, change, &opened)?;
        if fits {
            self.output.keep();
            self.engine.metrics.sweep_steps.fetch_add(1, Ordering::Relaxed);
            self.engine.metrics.swept_bytes.fetch_add(written, Ordering::Relaxed);
        }
        Ok(fits && ends)
    }
}
