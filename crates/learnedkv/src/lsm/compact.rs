//! A compaction: tables of a level, and what they overlap in the next, become tables of the next.
//!
//! What it takes is claimed, and stays in the View; what it writes is shown by *one* edit, whose plan looks
//! again whether all that was taken still stands where it stood, and whether what comes overlaps nothing
//! else in its level (an ingest may have come between): else it is given up, and its files go. A crash
//! before the edit leaves orphans; after it, the old tables are orphans. Where the keyspace is dropped
//! meanwhile the next step ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::levels::run_bytes;
use super::outlook::Pick;
use super::output::{Output, Written};
use super::pick::MOST_BELOW;
use super::read::run_source;
use super::thin::{self, Oldest};
use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::engine::claims::Claimed;
use crate::engine::{Engine, Opened, lock};
use crate::error::{Error, Result};
use crate::format::entry::{KeyspaceId, TableId};
use crate::format::manifest::{Change, LEVELS, TableRecord};
use crate::format::range::{KeyRange, Ranges};
use crate::sstable::cursor::Walk;
use crate::sstable::reader::Table;
use crate::sstable::table_path;
use crate::value_log::{Segments, segment_path};
use crate::view::{Extent, KeyspaceView};

/// What is left of the tables that a compaction takes.
fn entries(pick: &Pick) -> Box<dyn Cursor> {
    let taken = pick.runs.iter().map(|run| run_source(run, &[], None, Walk::Bulk));
    if pick.above.is_empty() {
        return Box::new(MergeCursor::new(taken.collect()));
    }
    let Extent { start, end } = &pick.claim.extent;
    let above = pick.above.iter().map(|run| run_source(run, start, end.as_deref(), Walk::Bulk));
    // The last of them is empty: nothing is below a table that stays where it is.
    Box::new(Oldest(MergeCursor::new(above.chain(taken.take(1)).collect())))
}

/// The value segments that the tables taken point into: all that is written anew comes from them.
fn segments(view: &KeyspaceView, pick: &Pick) -> Segments {
    let mut segments = Segments::default();
    let used = pick.runs.iter().flatten().flat_map(|table| &table.properties().segments);
    let known = used.filter_map(|used| view.tables.segments.get(used.segment));
    known.for_each(|segment| segments.insert(segment.clone()));
    segments
}

/// What of the ranges of the tables taken may hide something deeper. United: what is newer than one of them
/// stands as an entry, or is gone.
fn ranges(pick: &Pick) -> Ranges {
    let taken = pick.runs.iter().flatten().filter(|_| pick.keep_tombstones);
    Ranges::union(taken.flat_map(|table| table.ranges().iter().cloned()).collect())
}

/// Of which keys tables of the last level have filters that misses woke, so that those that take their place
/// are woken too. Each of its tables stands for the keys up to its end. (Not for more: in the end all
/// would be in memory.)
fn woken(view: &KeyspaceView, pick: &Pick) -> Ranges {
    let last = view.tables.levels().get(LEVELS - 1).into_iter().flatten();
    let taken = |table: &&Arc<Table>| pick.runs.iter().flatten().any(|t| t.id() == table.id());
    let (mut start, mut ranges) = (Vec::new(), Vec::new());
    let mut taken = last.filter(taken).peekable();
    while let Some(table) = taken.next() {
        let end = taken.peek().and_then(|_| Extent::of(table).end);
        if table.has_woken_filter() {
            ranges.push(KeyRange { start: start.clone(), end: end.clone() });
        }
        start = end.unwrap_or_default();
    }
    Ranges::union(ranges)
}

/// A compaction under way.
pub struct Compaction {
    engine: Arc<Engine>,
    keyspace: KeyspaceId,
    pick: Pick,
    /// If tables are written.
    work: Option<(Box<dyn Cursor>, Output)>,
    /// The cursor was sought.
    begun: bool,
    table_bytes: u64,
    /// The first key that the table being written may have.
    first_key: Vec<u8>,
    _claimed: Claimed,
}

impl Compaction {
    /// What was picked and claimed. Nothing is read yet.
    pub fn begin(
        engine: &Arc<Engine>,
        view: &KeyspaceView,
        pick: Pick,
        claimed: Claimed,
    ) -> Compaction {
        let options = &view.options;
        let bytes: u64 = pick.runs.iter().map(run_bytes).sum();
        // Equal parts, with room for what is not known to shrink: no small rest at the end.
        let parts = bytes.div_ceil(engine.sizes(options).table_bytes).max(1);
        let table_bytes = bytes / parts + bytes / parts / 8 + options.block();
        let work = (!pick.moves).then(|| {
            let table =
                if pick.to == LEVELS { options.settled_table() } else { options.lsm_table() };
            // It may last for long: no segment is held that others empty meanwhile.
            let (apart, segments) = (options.fresh_apart(), segments(view, &pick));
            let output = Output::new(engine, table, apart, &segments).in_background();
            let output = output.waking_filters(woken(view, &pick));
            let output = output.replacing(pick.runs.iter().flatten());
            let output = output.with_victims(pick.victims.clone()).with_ranges(ranges(&pick));
            (entries(&pick), output)
        });
        let (engine, keyspace) = (engine.clone(), view.id);
        let first_key = pick.claim.extent.start.clone();
        Compaction {
            engine,
            keyspace,
            pick,
            work,
            begun: false,
            table_bytes,
            first_key,
            _claimed: claimed,
        }
    }

    /// The keyspace.
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// Goes on. `None`: it is not over; else whether it came to something.
    ///
    /// # Errors
    /// Those of the disk; the compaction is then given up.
    pub fn step(&mut self) -> Result<Option<bool>> {
        if !self.engine.view().keyspaces.contains_key(&self.keyspace) {
            return Ok(Some(false));
        }
        let Some((cursor, output)) = &mut self.work else {
            let tables = self.pick.runs.iter().flatten().map(|t| t.record()).collect();
            let committed = self.commit(tables, &Opened::default())?;
            if committed {
                let moved = self.pick.runs.iter().flatten().count() as u64;
                self.engine.metrics.moved_tables.fetch_add(moved, Ordering::Relaxed);
            }
            return Ok(Some(committed));
        };
        if !std::mem::replace(&mut self.begun, true) {
            cursor.seek(Seek::First)?;
            return Ok(None);
        }
        let ended =
            output.copy(&mut **cursor, self.pick.keep_tombstones, Some(self.table_bytes))?;
        if let Some(key) = cursor.key() {
            // A table over too much of the level below would be a compaction of that size. Looked at after
            // each step, as it is then.
            let below = Extent::between(&self.first_key, key);
            let Ok(now) = self.engine.keyspace(self.keyspace) else { return Ok(Some(false)) };
            let deeper = now.tables.levels().get(self.pick.to).into_iter();
            let over = deeper.flat_map(|level| below.of_run(level));
            let bytes: u64 = over.map(|table| table.file_bytes()).sum();
            drop(now);
            if ended || bytes > self.table_bytes * MOST_BELOW {
                self.first_key = key.to_vec();
                output.end_table()?;
            }
            return Ok(None);
        }
        // The last table takes all ranges that are left.
        let Written { tables, opened, bytes } = output.finish()?;
        let ids: Vec<_> = tables.iter().map(|table| table.id).collect();
        let by = (!self.pick.above.is_empty()).then(|| thin::newest(&self.pick.above));
        if by.is_some() && bytes > self.pick.runs.iter().map(run_bytes).sum::<u64>() / 16 * 15 {
            // Not worth an edit.
            self.note_thinned(by, self.pick.runs.iter().flatten().map(|table| table.id()));
            return Ok(Some(true));
        }
        let committed = self.commit(tables, &opened)?;
        if committed {
            self.note_thinned(by, ids.into_iter());
            if let Some((_, output)) = &mut self.work {
                output.keep();
            }
            self.engine.metrics.compactions.fetch_add(1, Ordering::Relaxed);
            self.engine.metrics.compacted_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.engine.note_settled();
        }
        Ok(Some(committed))
    }

    fn note_thinned(&self, by: Option<TableId>, tables: impl Iterator<Item = TableId>) {
        if let Some(by) = by {
            let mut claims = lock(&self.engine.claims);
            tables.for_each(|table| claims.thin(table, by));
        }
    }

    /// Commits `tables` in the place of what was taken. False: it does not fit any more.
    fn commit(&self, tables: Vec<TableRecord>, opened: &Opened) -> Result<bool> {
        let Pick { from, to, runs, .. } = &self.pick;
        let removed: Vec<TableId> = runs.iter().flatten().map(|table| table.id()).collect();
        let (keyspace, level) = (self.keyspace, *to as u64);
        let (below, above) = runs.split_last().map_or((&[][..], &[][..]), |(b, a)| (b, a));
        let plan = |state: &crate::manifest::State| {
            let state = state.keyspaces.get(&keyspace)?;
            let above = above.iter().flatten().map(|table| (table.id(), *from));
            let mut taken = above.chain(below.iter().map(|table| (table.id(), *to)));
            let stands = taken.all(|(table, level)| state.level_of(table) == Some(level));
            let at = self.place()?;
            stands.then(|| vec![Change::ReplaceTables { keyspace, removed, level, at, tables }])
        };
        self.engine.edit(0, opened, plan, |_| {})
    }

    /// How many of the tables that stay in the level written to lie before what is written; `None` if one
    /// lies in between. Edits are held: the View shows what the state says.
    fn place(&self) -> Option<u64> {
        let Pick { to, claim, runs, .. } = &self.pick;
        let view = self.engine.keyspace(self.keyspace).ok()?;
        let mut level = view.tables.levels().get(to - 1).cloned().unwrap_or_default();
        level.retain(|table| !runs.iter().flatten().any(|taken| taken.id() == table.id()));
        claim.extent.of_run(&level).is_empty().then(|| claim.extent.behind(&level) as u64)
    }

    /// The table or value segment among those taken that `error` is about.
    pub fn unread(&self, error: &Error) -> Option<TableId> {
        let dir = self.engine.dir();
        let taken = || self.pick.above.iter().chain(&self.pick.runs).flatten();
        let used = taken().flat_map(|table| &table.properties().segments);
        let segments = used.map(|used| (segment_path(dir, used.segment), used.segment));
        let tables = taken().map(|table| (table_path(dir, table.id()), table.id()));
        let mut files = tables.chain(segments);
        files.find(|(path, _)| error.path() == Some(path)).map(|(_, file)| file)
    }
}
