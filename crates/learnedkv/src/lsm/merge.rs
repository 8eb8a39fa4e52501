//! Merges of runs: few runs in the LSM part, lazily.
//!
//! When there are more than [`MAX_RUNS`], neighbours become one run ([`super::neighbours`] says which);
//! while memtables wait to be flushed, only when there are very many. Runs with a table that could
//! not be opened stay as they are.
//! Tombstones stay, and so do removed ranges, united: older data may lie below.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::generation;
use super::neighbours;
use super::output::{Output, Written};
use super::read::run_source;
use super::shadow::Shadow;
use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::engine::Engine;
use crate::error::Result;
use crate::format::entry::{KeyspaceId, TableId};
use crate::format::manifest::Change;
use crate::format::range::Ranges;
use crate::options::Store;
use crate::sstable::cursor::Walk;
use crate::sstable::generation::Generation;
use crate::view::{KeyspaceView, Run, damage_of};

/// The most runs the LSM part keeps.
pub const MAX_RUNS: usize = 8;
/// The most it gets while memtables wait to be flushed.
pub const MAX_RUNS_WHILE_FLUSHING: usize = 3 * MAX_RUNS;

/// A merge under way.
pub struct Merge {
    engine: Arc<Engine>,
    keyspace: KeyspaceId,
    /// The first of the merged runs, counted from the oldest.
    first: usize,
    /// Their tables, oldest run first: what must still stand there at the end.
    replaced: Vec<Vec<TableId>>,
    cursor: MergeCursor,
    output: Output,
    table_bytes: u64,
    input_bytes: u64,
    /// See [`Merge::rewriting`].
    rewrites: bool,
    /// See [`Merge::for_reads`].
    is_for_reads: bool,
}

/// What a run takes, without the values it points at, bytes.
pub fn bytes(run: &Run) -> u64 {
    run.iter().map(|table| table.file_bytes()).sum()
}

/// What the merge of these runs writes.
fn output(engine: &Arc<Engine>, view: &KeyspaceView, runs: Range<usize>) -> Output {
    let tables = || view.tables.runs[runs.clone()].iter().flatten();
    let ranges = tables().flat_map(|table| table.ranges().iter().cloned()).collect();
    let (options, apart) = (view.options.lsm_table(), view.options.fresh_apart());
    let output = Output::new(engine, options, apart, &view.tables.segments)
        .in_background()
        .with_shadow(Shadow::over(view.tables.clone(), runs.end))
        .with_ranges(Ranges::union(ranges))
        .replacing(tables());
    if let Some(common) = Generation::of_all(tables()) {
        return output.in_generation(common.clone(), true);
    }
    let entries = tables().map(|table| table.properties().entries).sum();
    match generation::of_merge(engine, view, entries) {
        Some(generation) => output.in_generation(generation, false),
        None => output,
    }
}

impl Merge {
    /// How many bytes one may read. While the disk is full a merge must not take what flushes and removals need; and where it refused
    /// one, none is begun that it says it has no room for: it might be refused at its end, again and again. (Before that it
    /// is asked nothing: it may have more room than it says.)
    pub fn may_read(engine: &Engine, was_refused: bool) -> u64 {
        let room = match (engine.ballast.is_given_up(), was_refused) {
            (true, _) => engine.room_to_settle(),
            (false, true) => engine.free_bytes(),
            (false, false) => None,
        };
        room.unwrap_or(u64::MAX)
    }

    /// Whether there is room for all that it may write, and for what is put meanwhile, as far as the disk tells.
    pub fn has_room(&self) -> bool {
        Merge::finds_room(&self.engine, self.input_bytes)
    }

    /// Whether there is room for one that writes so many bytes.
    pub fn finds_room(engine: &Engine, bytes: u64) -> bool {
        let meanwhile = engine.options.log_segment_bytes + engine.options.memtable_bytes as u64;
        let room = engine.disk().room(engine.dir());
        room.is_none_or(|room| room.free_bytes >= bytes.saturating_add(meanwhile))
    }

    /// What it reads, bytes.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    /// The merge a keyspace needs, if it needs one that reads at most `most_bytes`. About so many runs are still
    /// `coming` before all are taken away.
    ///
    /// # Errors
    /// Those of the cursor.
    pub fn find(
        engine: &Arc<Engine>,
        view: &KeyspaceView,
        coming: usize,
        most_bytes: u64,
    ) -> Result<Option<Merge>> {
        let due = Merge::due(view, coming, most_bytes);
        due.map(|chosen| Merge::of(engine, view, chosen)).transpose()
    }

    /// The runs it would merge, counted from the newest.
    pub fn due(view: &KeyspaceView, coming: usize, most_bytes: u64) -> Option<Range<usize>> {
        let runs = &view.tables.runs;
        if runs.len() <= MAX_RUNS || view.options.chosen_store() != Store::Tiered {
            return None;
        }
        let readable = |run: &Run| damage_of(run).is_none().then(|| bytes(run));
        let sizes: Vec<_> = runs.iter().map(readable).collect();
        neighbours::to_merge(&sizes, coming, most_bytes)
    }

    /// The merge of neighbouring runs, counted from the newest.
    ///
    /// # Errors
    /// Those of the cursor; the damage of a table that could not be opened.
    pub fn of(engine: &Arc<Engine>, view: &KeyspaceView, runs: Range<usize>) -> Result<Merge> {
        let first = view.tables.runs.len() - runs.end;
        let window = &view.tables.runs[runs.clone()];
        if let Some(damage) = damage_of(window.iter().flatten()) {
            return Err(damage);
        }
        let sources = window.iter().map(|run| run_source(run, &[], None, Walk::Bulk)).collect();
        let mut cursor = MergeCursor::new(sources);
        cursor.seek(Seek::First)?;
        let ids = |run: &Run| run.iter().map(|table| table.id()).collect();
        Ok(Merge {
            engine: engine.clone(),
            keyspace: view.id,
            first,
            replaced: window.iter().rev().map(ids).collect(),
            cursor,
            output: output(engine, view, runs),
            table_bytes: engine.sizes(&view.options).table_bytes,
            input_bytes: window.iter().map(bytes).sum(),
            rewrites: false,
            is_for_reads: false,
        })
    }

    /// Whether it is done for the space it gives back, instead of a sweep.
    pub fn is_rewrite(&self) -> bool {
        self.rewrites
    }

    /// It is done for what reads have paid.
    pub fn for_reads(mut self) -> Merge {
        self.is_for_reads = true;
        self
    }

    /// Whether it is.
    pub fn is_for_reads(&self) -> bool {
        self.is_for_reads
    }

    /// Has the values in these segments, of which `live_bytes` are pointed at, be written anew.
    pub fn rewriting(mut self, segments: Arc<BTreeSet<u64>>, live_bytes: u64) -> Merge {
        self.output = self.output.with_victims(segments);
        self.input_bytes += live_bytes;
        self.rewrites = true;
        self
    }

    /// Goes on; true when the merge is over.
    ///
    /// # Errors
    /// Those of the disk; the merge is then given up.
    pub fn step(&mut self) -> Result<bool> {
        if !self.output.copy(&mut self.cursor, true, Some(self.table_bytes))? {
            return Ok(false);
        }
        if self.cursor.key().is_some() {
            self.output.end_table()?;
            return Ok(false);
        }
        self.install()?;
        Ok(true)
    }

    /// Gives it up. What it wrote counts as merged: the device has it.
    pub fn give_up(self) {
        let written = self.output.all_bytes();
        self.engine.metrics.merged_bytes.fetch_add(written, Ordering::Relaxed);
    }

    fn install(&mut self) -> Result<()> {
        let Written { tables, opened, bytes: written } = self.output.finish()?;
        let (keyspace, first, count) = (self.keyspace, self.first, self.replaced.len());
        let replaced = &self.replaced;
        let plan = |state: &crate::manifest::State| {
            let runs = state.keyspaces.get(&keyspace)?.runs.get(first..first + count)?;
            let same =
                runs.iter().zip(replaced).all(|(run, ids)| run.iter().map(|t| &t.id).eq(ids));
            let (first, count) = (first as u64, count as u64);
            same.then(|| vec![Change::ReplaceRuns { keyspace, first, count, tables }])
        };
        if self.engine.edit(0, &opened, plan, |_| {})? {
            self.output.keep();
            let metrics = &self.engine.metrics;
            metrics.merged_bytes.fetch_add(written, Ordering::Relaxed);
            metrics.rewrites.fetch_add(self.rewrites.into(), Ordering::Relaxed);
            metrics.merges_for_reads.fetch_add(self.is_for_reads.into(), Ordering::Relaxed);
            if self.rewrites {
                self.engine.note_settled();
            }
            if let Ok(view) = self.engine.keyspace(self.keyspace) {
                // What was paid so far was for more runs.
                view.merging.begin_anew();
            }
        }
        Ok(())
    }
}
