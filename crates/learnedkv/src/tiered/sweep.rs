//! The sweep: the frozen part is merged into the settled run, partition by partition.
//!
//! One step, at watermark W, which is always the lower key of a partition P:
//! 1. Nothing frozen lies in P, no entry and no removed range over anything that is there, P points
//!    into no segment that the sweep empties (a victim), and its delta does not replace too much of it: W rises to
//!    the first partition where that is not so.
//! 2. What lies in P, with its delta, and what removed ranges cover of the base, stays below the delta limit
//!    (in bytes and in entries), and the base points into no victim and is not [outgrown](Course): they become
//!    P's new delta, which carries the ranges on. So they do where the base cannot be read.
//! 3. Else P's base is rewritten from all of them, without tombstones, up to the partition size; if
//!    that ends within P, the rest of P becomes a partition of its own, with the old tables cut off
//!    below W'. What a range covers is not read: of a partition that is covered whole nothing. Partitions
//!    that seem to have become small are joined with those behind them, as far as a partition's bytes go:
//!    how much tombstones leave is a guess (a block of them that reaches over many partitions counts in
//!    each), so the output is measured as it is written.
//!
//! While the disk is full a step is to give back more than it takes:
//! * It moves no values: they stay where their flush wrote them, so that a step needs room for a partition
//!   only, and no value segment is held up that something was removed from. A later sweep moves them.
//! * It rewrites the base wherever that can be read: a delta gives nothing back before the sweep ends.
//! * It leaves out what newer runs overwrite or remove, though these are not settled by this sweep: they are
//!   in front of what it writes, and stay until a sweep settles them too. So it goes on, however much was
//!   frozen, once that was removed.
//! * It ends without an edit, as if the disk refused it, where it takes more than it gives and would leave
//!   too little to flushes and removals ([`Engine::check_left`]).
//!
//! A value that is to be moved and cannot be read stays where it is: its pointer is copied, and the conversion says why.
//!
//! Each step ends in one edit: the new partitions and W'. Where an ingest has split the partition
//! meanwhile, the step is given up and begun again. A crash before it leaves orphans; after it,
//! the sweep goes on at W'. Readers see the frozen part and the old partitions from W on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::plan::{Course, Limit, Plan, Rewrite, is_covered_by};
use crate::cursor::{Cursor, MergeCursor, Seek, Source};
use crate::engine::{Engine, Opened};
use crate::error::{Error, Result};
use crate::format::entry::{KeyspaceId, TableId};
use crate::format::manifest::{Change, PartitionRecord, Watermark};
use crate::format::range::Ranges;
use crate::lsm::output::{Moving, Output, Written};
use crate::lsm::read::{clip, run_source};
use crate::lsm::shadow::Shadow;
use crate::manifest::KeyspaceState;
use crate::sstable::cursor::{self, Walk};
use crate::sstable::reader::Table;
use crate::sstable::table_path;
use crate::value_log::{Segment, Segments};
use crate::view::{Frozen, KeyspaceView, Partition, Tables, damage_of};

/// One step of a sweep under way.
pub struct SweepStep {
    engine: Arc<Engine>,
    keyspace: KeyspaceId,
    old: Place,
    rewrite: Rewrite,
    cursor: MergeCursor,
    /// The cursor was sought.
    begun: bool,
    /// All was copied.
    copied: bool,
    /// It went ahead.
    was_ahead: bool,
    /// The tables whose segments values are read through, where they are not those it began with.
    seen: Weak<Tables>,
    output: Output,
    /// Where the output ends if the end of the last partition does not come before.
    target_bytes: u64,
    /// About half of what it will write.
    half_bytes: u64,
    /// What a delta is held against.
    limit: Option<Limit>,
    /// What it wrote, once it is over.
    written_bytes: u64,
    /// It found too little left when it was over: the disk did not refuse it.
    leaves_too_little: bool,
}

/// How far a step came.
pub enum Progress {
    /// It is under way.
    GoesOn,
    /// So it is, and goes no further while it does not lead.
    Waits,
    /// It is over.
    Ended(Ended),
}

/// How a step ended.
pub enum Ended {
    /// The watermark moved, unless an ingest came between.
    Step,
    /// So did the sweep.
    Sweep,
    /// The delta it wrote would replace too much of this base, and is dropped: the base is to be rewritten.
    Outgrown(TableId),
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

/// The partitions at the watermark as a step found them: one, or several to be joined. An ingest may
/// split one meanwhile; then the step's change does not fit any more.
struct Place {
    partitions: Vec<PartitionRecord>,
    upper: Option<Vec<u8>>,
}

impl Place {
    fn of(tables: &Tables, at: Range<usize>) -> Place {
        let upper = tables.upper(at.end - 1).map(<[u8]>::to_vec);
        Place { partitions: tables.partitions[at].iter().map(record).collect(), upper }
    }

    fn lower(&self) -> &Vec<u8> {
        &self.partitions[0].lower
    }

    /// Leaves partitions out that lie at or behind `key`, which is above the first one's lower key.
    fn end_at(&mut self, key: &[u8]) {
        let end = self.partitions.partition_point(|p| p.lower.as_slice() < key);
        if let Some(next) = self.partitions.get(end) {
            self.upper = Some(next.lower.clone());
            self.partitions.truncate(end);
        }
    }

    /// Whether the watermark is still here, and the partitions as they were.
    fn still_stands(&self, state: &KeyspaceState) -> bool {
        let Some(at) = state.partitions.iter().position(|p| p.lower == *self.lower()) else {
            return false;
        };
        let end = at + self.partitions.len();
        let upper = state.partitions.get(end).map(|next| &next.lower);
        state.frozen.as_ref().is_some_and(|frozen| frozen.watermark == *self.lower())
            && state.partitions.get(at..end) == Some(self.partitions.as_slice())
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
            from: self.at.lower().clone(),
            count: 1,
            partitions: self.at.partitions.clone(),
            watermark: self.watermark,
        };
        Ok(commit(engine, self.keyspace, &self.at, change, &Opened::default())? && ends)
    }
}

/// Looks at the watermark: what comes next? A step goes as far as `ahead`, where another begins, at most.
///
/// # Errors
/// Those of reading the frozen part; the damage of a table that could not be opened, other than of
/// a base.
pub fn next(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    frozen: &Frozen,
    course: &Course,
    ahead: Option<&[u8]>,
) -> Result<Next> {
    let tables = &view.tables;
    let at = tables.partition(&frozen.watermark);
    debug_assert_eq!(tables.partitions[at].lower, frozen.watermark);
    let ahead = ahead.map(|lower| tables.partition(lower));
    let wanted = next_wanted(tables, frozen, course, at)?;
    let watermark = match wanted.into_iter().chain(ahead).min() {
        None => Some(Watermark::End),
        Some(target) if target > at => {
            Some(Watermark::Raise(tables.partitions[target].lower.clone()))
        }
        Some(_) => None,
    };
    if let Some(watermark) = watermark {
        let at = Place::of(tables, at..at + 1);
        let skip = SkipTo { keyspace: view.id, at, watermark };
        return Ok(Next::Skip(Box::new(skip)));
    }
    let most = at..ahead.unwrap_or(tables.partitions.len());
    let step = SweepStep::begin(engine, view, frozen, most, course)?;
    Ok(Next::Rewrite(Box::new(step)))
}

/// The first step at `from`, where a partition begins, or behind it. `None`: there is none.
///
/// # Errors
/// As [`next`].
pub fn next_ahead(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    frozen: &Frozen,
    course: &Course,
    from: &[u8],
) -> Result<Option<Box<SweepStep>>> {
    let tables = &view.tables;
    let from = tables.partition(from);
    let Some(at) = next_wanted(tables, frozen, course, from)? else { return Ok(None) };
    let most = at..tables.partitions.len();
    Ok(Some(Box::new(SweepStep::begin(engine, view, frozen, most, course)?)))
}

/// The first partition from number `at` on in which the sweep has something to do.
fn next_wanted(
    tables: &Tables,
    frozen: &Frozen,
    course: &Course,
    at: usize,
) -> Result<Option<usize>> {
    if let Some(damage) = damage_of(frozen.runs.iter().flatten()) {
        return Err(damage);
    }
    let lower = &tables.partitions[at].lower;
    let mut coming = MergeCursor::new(frozen_sources(frozen, lower, None, Walk::Cached));
    coming.seek(Seek::AtOrAfter(lower))?;
    let next_frozen = coming.key().map(|key| tables.partition(key).max(at));
    let wanted = (at..tables.partitions.len())
        .find(|i| course.wants(&tables.partitions[*i]) || is_covered_by(frozen, tables, *i));
    Ok(next_frozen.into_iter().chain(wanted).min())
}

/// The segments that nothing points into but the frozen part, and settled tables as they stand in partitions from `lower` on:
/// whose keys below a watermark there are settled anew. Of the partition that begins there the base counts among the others
/// where it `stays`.
fn segments_ahead(tables: &Tables, lower: &[u8], stays: bool) -> Segments {
    let used = |table: &Arc<Table>| table.properties().segments.clone();
    let frozen = tables.frozen.iter().flat_map(|frozen| frozen.runs.iter().flatten());
    let is_ahead = |partition: &&Partition| partition.lower.as_slice() >= lower;
    let ahead = tables.partitions.iter().filter(is_ahead);
    let ahead = ahead.flat_map(|partition| partition.base.iter().chain(&partition.delta));
    let mut ids: BTreeSet<u64> =
        frozen.chain(ahead).flat_map(used).map(|used| used.segment).collect();
    let behind = tables.partitions.iter().filter(|partition| !is_ahead(partition));
    let behind = behind.flat_map(|partition| partition.base.iter().chain(&partition.delta));
    let first = tables.partitions.iter().find(is_ahead).and_then(|first| first.base.as_ref());
    let others = tables.runs.iter().flatten().chain(behind).chain(first.filter(|_| stays));
    others.flat_map(used).for_each(|used| _ = ids.remove(&used.segment));
    let mut segments = Segments::default();
    let ahead = ids.iter().filter_map(|id| tables.segments.get(*id));
    ahead.for_each(|segment| segments.insert(segment.clone()));
    segments
}

fn frozen_sources(frozen: &Frozen, lower: &[u8], upper: Option<&[u8]>, walk: Walk) -> Vec<Source> {
    frozen.runs.iter().map(|run| run_source(run, lower, upper, walk)).collect()
}

/// One table of each partition, as one sorted run.
fn settled_source(
    tables: &Tables,
    partitions: Range<usize>,
    choose: impl Fn(&Partition) -> Option<&Arc<Table>>,
) -> Source {
    let clipped = partitions.filter_map(|at| {
        let partition = &tables.partitions[at];
        Some(clip(choose(partition)?, &partition.lower, tables.upper(at)))
    });
    cursor::source(clipped.collect(), Walk::Bulk)
}

fn record(partition: &Partition) -> PartitionRecord {
    let of = |table: &Option<Arc<Table>>| table.as_ref().map(|t| t.record());
    PartitionRecord {
        lower: partition.lower.clone(),
        base: of(&partition.base),
        delta: of(&partition.delta),
    }
}

/// The bytes of the tables of `old` partitions that the `new` ones do without, and nobody `keeps`.
fn bytes_that_go(
    old: &[PartitionRecord],
    new: &[PartitionRecord],
    keeps: &BTreeSet<TableId>,
) -> u64 {
    fn tables(of: &[PartitionRecord]) -> impl Iterator<Item = (TableId, u64)> {
        let tables = of.iter().flat_map(|p| p.base.iter().chain(&p.delta));
        tables.map(|table| (table.id, table.file_bytes))
    }
    let mut going: BTreeMap<_, _> = tables(old).collect();
    tables(new).for_each(|(id, _)| _ = going.remove(&id));
    going.retain(|id, _| !keeps.contains(id));
    going.values().sum()
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

/// The rest of a partition, from this key on: with its old tables, if they have anything there. (Whoever put more behind the last
/// key had all value segments of before held up until the end of the sweep.)
fn rest_of(partition: &PartitionRecord, from: &[u8]) -> PartitionRecord {
    let mut tables = partition.base.iter().chain(&partition.delta);
    let is_behind = tables.all(|table| table.properties.largest.as_slice() < from);
    let lower = from.to_vec();
    match is_behind {
        true => PartitionRecord { lower, base: None, delta: None },
        false => PartitionRecord { lower, ..partition.clone() },
    }
}

impl SweepStep {
    fn begin(
        engine: &Arc<Engine>,
        view: &KeyspaceView,
        frozen: &Frozen,
        most: Range<usize>,
        course: &Course,
    ) -> Result<SweepStep> {
        let (tables, at) = (&view.tables, most.start);
        let disk_is_full = engine.ballast.is_given_up();
        let sizes = (engine.sizes(&view.options).table_bytes, disk_is_full);
        let plan = Plan::of(view, frozen, most, course, sizes);
        let (rewrite, joined) = (plan.rewrite, at..plan.end);
        let partitions = &tables.partitions[joined.clone()];
        // It may have removed ranges besides entries.
        if let Some(damage) = damage_of(partitions.iter().flat_map(|p| &p.delta)) {
            return Err(damage);
        }
        let replaced = || partitions.iter().flat_map(|p| p.base.iter().chain(&p.delta));
        let wakes = replaced().any(|table| table.has_woken_filter());
        let woken = if wakes { Ranges::everything() } else { Ranges::default() };
        let (lower, upper) = (&tables.partitions[at].lower, tables.upper(joined.end - 1));
        let mut sources = Vec::new();
        if disk_is_full && rewrite == Rewrite::Base {
            let runs = &tables.runs;
            let newer = runs.iter().map(|run| run_source(run, lower, upper, Walk::Bulk));
            sources.extend(newer.map(Source::into_removed));
        }
        sources.extend(frozen_sources(frozen, lower, upper, Walk::Bulk));
        sources.push(settled_source(tables, joined.clone(), |p| p.delta.as_ref()));
        if rewrite == Rewrite::Base {
            sources.push(settled_source(tables, joined.clone(), |p| p.base.as_ref()));
        }
        let cursor = MergeCursor::new(sources);
        let (table, apart) = (view.options.settled_table(), view.options.settled_apart());
        let output = Output::new(engine, table, apart, &tables.segments).in_background();
        // A delta says what it replaces.
        let output = match (rewrite, &tables.partitions[at].base) {
            (Rewrite::Delta, Some(base)) => {
                let base = clip(base, lower, tables.upper(at));
                output.with_shadow(Shadow::over_base(base, plan.ranges.clone()))
            }
            _ => output,
        };
        Ok(SweepStep {
            engine: engine.clone(),
            keyspace: view.id,
            old: Place::of(tables, joined),
            rewrite,
            cursor,
            begun: false,
            copied: false,
            was_ahead: false,
            seen: Weak::new(),
            output: output
                .with_victims(course.victims.clone())
                .replacing_of(view.id, 2 * plan.half_bytes)
                .leaving_unread()
                .moving(if disk_is_full { Moving::Victims } else { Moving::All })
                .with_ranges(plan.ranges)
                .waking_filters(woken)
                .replacing(frozen.between(lower, upper).chain(replaced())),
            target_bytes: plan.target_bytes,
            half_bytes: plan.half_bytes,
            limit: plan.limit,
            written_bytes: 0,
            leaves_too_little: false,
        })
    }

    /// Why a value that it was to move, and left where it was, cannot be read; `None`: there was none.
    pub fn unread(&self) -> Option<&Error> {
        self.output.unread()
    }

    /// What it wrote, bytes, once it is over.
    pub fn swept_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Whether it failed because it would have left too little, though the disk took it ([`Engine::check_left`]).
    pub fn leaves_too_little(&self) -> bool {
        self.leaves_too_little
    }

    /// The base that a step which failed could not read, if that is why.
    pub fn unreadable_base(&self, error: &Error) -> Option<TableId> {
        let dir = self.engine.dir();
        let bases = self.old.partitions.iter().filter_map(|p| p.base.as_ref());
        let mut ids = bases.map(|base| base.id);
        ids.find(|id| error.is_corruption() && error.path() == Some(&table_path(dir, *id)))
    }

    /// The base of the partition at the watermark.
    pub fn first_base(&self) -> Option<TableId> {
        self.old.partitions[0].base.as_ref().map(|base| base.id)
    }

    /// Where it begins: the lower key of a partition.
    pub fn lower(&self) -> &[u8] {
        self.old.lower()
    }

    /// Where it ends at the latest, unless that is behind all keys, once it is half way.
    pub fn half_way_to(&self) -> Option<&[u8]> {
        self.old.upper.as_deref().filter(|_| self.is_half_way())
    }

    /// Whether half of it is written, about, or all.
    fn is_half_way(&self) -> bool {
        self.copied || self.output.written_bytes() >= self.half_bytes
    }

    /// It is ahead: what the steps before it give back of segments is not held up for it.
    pub fn see(&mut self, now: &Arc<Tables>) {
        if self.seen.as_ptr() != Arc::as_ptr(now) {
            self.seen = Arc::downgrade(now);
            self.output.read_through(&now.segments);
        }
    }

    /// Goes on: to its end if it `leads`, else until all is copied that it will write.
    ///
    /// # Errors
    /// Those of the disk; the step is then given up, and begun again later.
    pub fn step(&mut self, leads: bool) -> Result<Progress> {
        self.was_ahead |= !leads;
        if !leads && self.copied {
            return Ok(Progress::Waits);
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.cursor.seek(Seek::AtOrAfter(self.old.lower()))?;
        }
        if !self.copied {
            let keep_tombstones = self.rewrite == Rewrite::Delta;
            let end_at = Some(self.target_bytes);
            self.copied = self.output.copy(&mut self.cursor, keep_tombstones, end_at)?;
        }
        match self.copied && leads {
            true => self.install().map(Progress::Ended),
            false => Ok(Progress::GoesOn),
        }
    }

    /// Of each segment whose values now stand elsewhere up to some place: its successor, and that place.
    /// Values stand in key order there, and nobody else points into it, so all before are dead too: as it is now, all
    /// steps before this one have taken effect. (What is settled counts as what is fresh: of values that no sweep had moved on a
    /// full disk, all that one base pointed at stayed until the last of it was settled anew.)
    fn ways(&self) -> Vec<(Arc<Segment>, Arc<Segment>, u64)> {
        let view = self.engine.view();
        let Some(now) = view.keyspaces.get(&self.keyspace) else { return Vec::new() };
        let stays = self.rewrite == Rewrite::Delta;
        let segments = segments_ahead(&now.tables, self.old.lower(), stays);
        let emptied = self.output.emptied();
        let known = emptied.filter_map(|(id, end)| Some((segments.get(id)?, end)));
        known
            .filter(|(segment, end)| segment.is_worth(*end))
            .map(|(segment, end)| (segment.clone(), segment.successor(), end))
            .collect()
    }

    /// The bytes of frozen tables that go once all below `key` is settled, but those that somebody keeps.
    fn frozen_bytes_below(&self, key: &[u8], kept: &BTreeSet<TableId>) -> u64 {
        let view = self.engine.view();
        let frozen = view.keyspaces.get(&self.keyspace).and_then(|k| k.tables.frozen.as_ref());
        let tables = frozen.into_iter().flat_map(|frozen| frozen.runs.iter().flatten());
        let going = tables.filter(|t| !kept.contains(&t.id()) && t.properties().is_all_below(key));
        going.map(|table| table.file_bytes()).sum()
    }

    fn install(&mut self) -> Result<Ended> {
        let Written { mut tables, mut opened, bytes: written } = self.output.finish()?;
        let new = tables.pop();
        let ways = self.ways();
        opened.segments.extend(ways.iter().map(|(_, next, _)| next.clone()));
        // Where the output stopped within a partition, its rest keeps the old tables; so do those behind it.
        let rest = self.cursor.key().map(<[u8]>::to_vec);
        rest.iter().for_each(|rest| self.old.end_at(rest));
        let end = rest.as_ref().or(self.old.upper.as_ref()).map(Vec::as_slice);
        let passed = |limit: &&Limit| new.as_ref().is_some_and(|new| limit.is_passed_by(new, end));
        if let Some(limit) = self.limit.as_ref().filter(passed) {
            return Ok(Ended::Outgrown(limit.base()));
        }
        let old = &self.old.partitions[0];
        let lower = old.lower.clone();
        let mut partitions = vec![match self.rewrite {
            Rewrite::Delta => PartitionRecord { delta: new, ..old.clone() },
            Rewrite::Base => PartitionRecord { lower: lower.clone(), base: new, delta: None },
        }];
        let last = self.old.partitions.last().unwrap_or(old);
        match &rest {
            Some(rest) if self.old.upper.as_ref() != Some(rest) => {
                partitions.push(rest_of(last, rest));
            }
            _ => {}
        }
        let watermark = match rest.or_else(|| self.old.upper.clone()) {
            Some(key) => Watermark::Raise(key),
            None => Watermark::End,
        };
        if let Watermark::Raise(key) = &watermark {
            let kept = self.engine.kept_by_snapshots(self.keyspace);
            let replaced = bytes_that_go(&self.old.partitions, &partitions, &kept);
            let freed = replaced + self.frozen_bytes_below(key, &kept);
            let checked = self.engine.check_left(written, freed);
            self.leaves_too_little = checked.is_err();
            checked?;
        }
        let ends = watermark == Watermark::End;
        let (keyspace, count) = (self.keyspace, self.old.partitions.len() as u64);
        let change =
            Change::ReplacePartitions { keyspace, from: lower, count, partitions, watermark };
        let fits = commit(&self.engine, keyspace, &self.old, change, &opened)?;
        if fits {
            ways.into_iter().for_each(|(segment, next, end)| segment.give_way(next, end));
            self.output.keep();
            self.written_bytes = written;
            let metrics = &self.engine.metrics;
            metrics.sweep_steps.fetch_add(1, Ordering::Relaxed);
            metrics.steps_ahead.fetch_add(self.was_ahead.into(), Ordering::Relaxed);
            metrics.swept_bytes.fetch_add(written, Ordering::Relaxed);
        }
        Ok(if fits && ends { Ended::Sweep } else { Ended::Step })
    }
}
