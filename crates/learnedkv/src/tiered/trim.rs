//! Trimming: on a full disk a table of the frozen part is written anew without what nobody needs of it any more.
//!
//! A step of a sweep gives back what it replaces of the settled run, and of the frozen part those tables that end
//! below the new watermark. One that reaches over it stays whole, and of each run there may be one: together
//! they may take more than all the room there is, and then no step finds any, whatever was removed. So where a step found no
//! room, the table of which most is gained goes: what lies below the watermark (it is settled), and what newer tables hide
//! ([`crate::lsm::thin`] says why that is right at any time). It needs room for what is left of the
//! table, and gives back the whole.
//!
//! Its edit puts the frozen part as it then stands ([`Change::Frozen`]), the watermark untouched. A crash before it leaves
//! an orphan; after it the sweep goes on with a smaller table. Values that stand apart are not moved.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::engine::Engine;
use crate::error::Result;
use crate::format::entry::{KeyspaceId, TableId};
use crate::format::manifest::{Change, TableRecord};
use crate::format::range::Ranges;
use crate::lsm::output::{Moving, Output, Written};
use crate::lsm::read::clip;
use crate::lsm::thin::{self, Oldest, WHOLE};
use crate::manifest::{FrozenState, State};
use crate::sstable::cursor::{self, Walk};
use crate::sstable::generation::Generation;
use crate::sstable::reader::Table;
use crate::sstable::scale;
use crate::view::{Extent, Frozen, KeyspaceView, Run};

/// What is gained is so large a share of the table at least, in parts of [`WHOLE`].
const LEAST_GAIN: u64 = WHOLE / 16;

/// What a table was when it was tried: then nothing more comes of it.
pub type Tried = (TableId, Vec<u8>, TableId);

/// A table that is being trimmed.
pub struct Trim {
    engine: Arc<Engine>,
    keyspace: KeyspaceId,
    table: Arc<Table>,
    tried: Tried,
    /// What came of it.
    made: Vec<TableId>,
    cursor: Oldest,
    begun: bool,
    lower: Vec<u8>,
    output: Output,
}

/// A table that may be trimmed.
struct Candidate {
    table: Arc<Table>,
    /// What lies over it, newest first.
    above: Vec<Run>,
    tried: Tried,
    gain_bytes: u64,
}

impl Candidate {
    fn of(view: &KeyspaceView, frozen: &Frozen, run: usize, table: &Arc<Table>) -> Candidate {
        let extent = Extent::of(table);
        let newer = view.tables.runs.iter().chain(&frozen.runs[..run]);
        let above: Vec<Run> = newer.map(|run| extent.of_run(run).to_vec()).collect();
        let above: Vec<Run> = above.into_iter().filter(|run| !run.is_empty()).collect();
        let data_bytes = table.properties().data_bytes.max(1);
        let settled = table.bytes_between(&[], Some(&frozen.watermark));
        let settled = scale(settled, WHOLE, data_bytes);
        let tombstones = |newer: &Arc<Table>| newer.properties().tombstones;
        let hidden = thin::hidden(table, &above, tombstones);
        // As if what is hidden lay everywhere.
        let gain = settled + scale(hidden, WHOLE - settled.min(WHOLE), WHOLE);
        let tried = (table.id(), frozen.watermark.clone(), thin::newest(&above));
        let gain_bytes = scale(table.file_bytes(), gain.min(WHOLE), WHOLE);
        Candidate { table: table.clone(), above, tried, gain_bytes }
    }

    fn is_worth(&self) -> bool {
        self.gain_bytes >= scale(self.table.file_bytes(), LEAST_GAIN, WHOLE).max(1)
    }

    fn is_readable(&self) -> bool {
        let newer = self.above.iter().flatten();
        newer.chain([&self.table]).all(|table| table.damage().is_none() && table.is_readable())
    }
}

impl Trim {
    /// The table of the frozen part of which most is gained, if there is one that fits what room there is, and whose
    /// space comes free. One that `was_tried` is left out.
    pub fn find(
        engine: &Arc<Engine>,
        view: &KeyspaceView,
        was_tried: impl Fn(&Tried) -> bool,
    ) -> Option<Trim> {
        let frozen = view.tables.frozen.as_ref()?;
        let free = engine.free_bytes().unwrap_or(u64::MAX);
        // What is in memory is to be flushed, too.
        let most = free - (engine.options.memtable_bytes as u64).min(free / 4);
        let kept = engine.kept_by_snapshots(view.id);
        let runs = frozen.runs.iter().enumerate();
        let tables = runs.flat_map(|(run, tables)| tables.iter().map(move |table| (run, table)));
        let found = tables
            .filter(|(_, table)| !kept.contains(&table.id()))
            .map(|(run, table)| Candidate::of(view, frozen, run, table))
            .filter(|found| found.table.file_bytes().saturating_sub(found.gain_bytes) <= most)
            .filter(|found| found.is_worth() && found.is_readable() && !was_tried(&found.tried))
            .max_by_key(|found| found.gain_bytes)?;
        Some(Trim::of(engine, view, frozen, found))
    }

    fn of(
        engine: &Arc<Engine>,
        view: &KeyspaceView,
        frozen: &Frozen,
        Candidate { table, above, tried, .. }: Candidate,
    ) -> Trim {
        let lower = frozen.watermark.clone();
        let of_run = |run: &Run| {
            let clipped = run.iter().map(|newer| clip(newer, &lower, None)).collect();
            cursor::source(clipped, Walk::Bulk).into_removed()
        };
        let mut sources: Vec<_> = above.iter().map(of_run).collect();
        sources.push(cursor::source(vec![clip(&table, &lower, None)], Walk::Bulk));
        let ranges = table.ranges().within(&lower, None).collect();
        let (options, apart) = (view.options.lsm_table(), view.options.fresh_apart());
        let output = Output::new(engine, options, apart, &view.tables.segments)
            .moving(Moving::Nothing)
            .with_ranges(Ranges::union(ranges));
        let output = match Generation::of_all([&table].into_iter()) {
            Some(generation) => output.in_generation(generation.clone(), true),
            None => output,
        };
        Trim {
            engine: engine.clone(),
            keyspace: view.id,
            table,
            tried,
            made: Vec::new(),
            cursor: Oldest(MergeCursor::new(sources)),
            begun: false,
            lower,
            output,
        }
    }

    /// What was tried, and what came of it: that holds nothing to be left out, as long as the same lies over it.
    pub fn tried(&self) -> impl Iterator<Item = Tried> {
        let (table, watermark, newest) = &self.tried;
        [table].into_iter().chain(&self.made).map(|id| (*id, watermark.clone(), *newest))
    }

    /// Goes on; true when it is over.
    ///
    /// # Errors
    /// Those of the disk; the table then stays as it is.
    pub fn step(&mut self) -> Result<bool> {
        if !std::mem::replace(&mut self.begun, true) {
            self.cursor.seek(Seek::AtOrAfter(&self.lower))?;
        }
        if !self.output.copy(&mut self.cursor, true, None)? || self.cursor.key().is_some() {
            return Ok(false);
        }
        self.install()?;
        Ok(true)
    }

    fn install(&mut self) -> Result<()> {
        let Written { tables, opened, bytes } = self.output.finish()?;
        let before = self.table.file_bytes();
        if bytes > before - scale(before, LEAST_GAIN, WHOLE) / 2 {
            // Not worth an edit.
            return Ok(());
        }
        self.engine.check_left(bytes, before)?;
        let (keyspace, id) = (self.keyspace, self.table.id());
        let mut made = Vec::new();
        let plan = |state: &State| {
            let FrozenState { mut runs, watermark } =
                state.keyspaces.get(&keyspace)?.frozen.clone()?;
            let place = |run: &Vec<TableRecord>| run.iter().position(|table| table.id == id);
            let (run, at) = runs.iter_mut().find_map(|run| place(run).map(|at| (run, at)))?;
            made = tables.iter().map(|table| table.id).collect();
            run.splice(at..=at, tables);
            runs.retain(|run| !run.is_empty());
            Some(vec![Change::Frozen { keyspace, runs, watermark }])
        };
        if self.engine.edit(0, &opened, plan, |_| {})? {
            self.output.keep();
            self.made = made;
            self.engine.metrics.swept_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}
