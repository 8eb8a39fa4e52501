//! Spill: what a snapshot sees of memtables that only snapshots keep becomes a run of its own.
//!
//! As a flush, but for one number: of each key the newest version that the snapshot sees. So the table
//! has one entry per key, as all tables, and the snapshot's View shows it as the newest run of the
//! keyspace, below the memtables that the database still has. The oldest snapshot goes first: it is the
//! likeliest to keep memtables that no other does. Snapshots of the same moment share the table.
//!
//! The table is retired at once: it goes with the last View that shows it, or at the next open. Reads
//! and iterators under way keep the old View, and what it holds, to their end.
//!
//! A spill that fails loses nothing but memory. It is tried again after the next flush.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::output::{Output, Written};
use crate::cursor::{Cursor, MergeCursor, Seek, Source};
use crate::engine::{Engine, Pinned, Work, still_shown};
use crate::error::Result;
use crate::executor::{Job, Step};
use crate::format::entry::KeyspaceId;
use crate::format::range::Ranges;
use crate::memtable::Memtable;
use crate::view::{KeyspaceView, Tables, View};

/// Writes snapshots' memtables to tables where they take too much memory.
pub struct SpillJob {
    engine: Arc<Engine>,
    /// How many flushes there had been when it last found nothing to do, or failed.
    flushes_seen: Option<u64>,
    work: Option<Spill>,
}

/// A keyspace of a snapshot whose memtables are being written.
struct Spill {
    pinned: Arc<Pinned>,
    keyspace: Arc<KeyspaceView>,
    /// How many of its memtables, newest first, stay.
    keep: usize,
    begun: bool,
    cursor: MergeCursor,
    output: Output,
}

impl SpillJob {
    /// A job that spills for the snapshots of `engine`.
    pub fn new(engine: &Arc<Engine>) -> SpillJob {
        SpillJob { engine: engine.clone(), flushes_seen: None, work: None }
    }

    /// The oldest snapshot's memtables that only snapshots keep, if these take too much.
    fn find(&self) -> Option<Spill> {
        let engine = &self.engine;
        if engine.pinned_memory_bytes() <= engine.options.pinned_bytes() {
            return None;
        }
        let now = engine.view();
        engine.pinned().into_iter().find_map(|pinned| {
            let view = pinned.view.load_full();
            let gone = |keyspace: &&Arc<KeyspaceView>| {
                let keep = still_shown(&now, keyspace);
                keyspace.memtables().skip(keep).any(|memtable| !memtable.is_empty())
            };
            let keyspace = view.keyspaces.values().find(gone)?.clone();
            let keep = still_shown(&now, &keyspace);
            Some(Spill::begin(engine, pinned, keyspace, keep))
        })
    }

    fn advance(&mut self) -> Result<bool> {
        let Some(mut spill) = self.work.take().or_else(|| self.find()) else { return Ok(false) };
        if !std::mem::replace(&mut spill.begun, true) {
            spill.cursor.seek(Seek::First)?;
        }
        if !spill.output.copy(&mut spill.cursor, true, Some(u64::MAX))? {
            self.work = Some(spill);
        } else if spill.cursor.key().is_some() {
            spill.output.end_table()?;
            self.work = Some(spill);
        } else {
            spill.install(&self.engine)?;
        }
        Ok(true)
    }
}

impl Spill {
    fn begin(
        engine: &Arc<Engine>,
        pinned: Arc<Pinned>,
        keyspace: Arc<KeyspaceView>,
        keep: usize,
    ) -> Spill {
        let (visible, mut segments) = (pinned.visible, keyspace.tables.segments.clone());
        let gone: Vec<&Arc<Memtable>> = keyspace.memtables().skip(keep).collect();
        for memtable in &gone {
            memtable.streamed.all().iter().for_each(|segment| segments.insert(segment.clone()));
        }
        let sources: Vec<Source> = gone.iter().map(|memtable| memtable.source(visible)).collect();
        let ranges = gone
            .iter()
            .flat_map(|memtable| memtable.ranges(visible).iter().cloned().collect::<Vec<_>>());
        let ranges = Ranges::union(ranges.collect());
        let options = keyspace.options.lsm_table();
        let output = Output::new(engine, options, u64::MAX, &segments);
        Spill {
            output: output.with_ranges(ranges).moving_values(false),
            cursor: MergeCursor::new(sources),
            begun: false,
            pinned,
            keyspace,
            keep,
        }
    }

    /// Puts the run into the snapshots in the place of the memtables.
    fn install(mut self, engine: &Engine) -> Result<()> {
        let Written { opened, .. } = self.output.finish()?;
        self.output.keep();
        let old = &self.keyspace.tables;
        let mut segments = old.segments.clone();
        for memtable in self.keyspace.memtables().skip(self.keep) {
            memtable.streamed.all().iter().for_each(|segment| segments.insert(segment.clone()));
        }
        let run = (!opened.tables.is_empty()).then(|| opened.tables.clone());
        let tables = Tables {
            runs: run.into_iter().chain(old.runs.iter().cloned()).collect(),
            level_count: old.level_count,
            frozen: old.frozen.clone(),
            partitions: old.partitions.clone(),
            deltas: old.deltas.clone(),
            has_ranges: old.has_ranges || opened.tables.iter().any(|t| !t.ranges().is_empty()),
            segments,
        };
        let mut shown = KeyspaceView::clone(&self.keyspace);
        if self.keep == 0 {
            shown.active = Arc::new(Memtable::default());
        }
        shown.sealed.truncate(self.keep.saturating_sub(1));
        shown.tables = Arc::new(tables);
        let shown = Arc::new(shown);
        for pinned in engine.pinned() {
            put(&pinned, &self.pinned, &self.keyspace, &shown);
        }
        // From now on the snapshots alone keep them.
        opened.tables.iter().for_each(|table| table.retire());
        engine.metrics.spills.fetch_add(1, Ordering::Relaxed);
        engine.fit_cache();
        Ok(())
    }
}

/// Has a snapshot show `shown` where it shows `old`, if it is of the same moment as `like`.
fn put(pinned: &Pinned, like: &Pinned, old: &Arc<KeyspaceView>, shown: &Arc<KeyspaceView>) {
    let id: KeyspaceId = old.id;
    let view = pinned.view.load_full();
    let shows = view.keyspaces.get(&id).is_some_and(|found| Arc::ptr_eq(found, old));
    if shows && pinned.visible == like.visible {
        let mut view = View::clone(&view);
        view.keyspaces.insert(id, shown.clone());
        pinned.view.store(Arc::new(view));
    }
}

impl Job for SpillJob {
    fn name(&self) -> &'static str {
        "spill"
    }

    fn step(&mut self) -> Step {
        let flushes = self.engine.metrics.flushes.load(Ordering::Relaxed);
        let seen = self.flushes_seen == Some(flushes) && self.work.is_none();
        if seen || self.engine.health.check_writable().is_err() || self.engine.ballast.is_given_up()
        {
            self.work = None;
            return Step::Wait;
        }
        let done = self.advance();
        let result = done.as_ref().map(|_| ()).map_err(Clone::clone);
        match done {
            Ok(true) if self.work.is_some() => return Step::Again,
            Ok(true) => {}
            Ok(false) => self.flushes_seen = Some(flushes),
            Err(_) => {
                self.work = None;
                self.flushes_seen = Some(flushes);
            }
        }
        if result.is_err() || self.engine.health.work_error(Work::Spill).is_some() {
            self.engine.health.note_background(Work::Spill, &result);
            self.engine.executor.notify();
        }
        if self.flushes_seen == Some(flushes) { Step::Wait } else { Step::Again }
    }
}
