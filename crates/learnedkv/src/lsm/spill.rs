//! Spill: what a snapshot sees of memtables that only readers keep becomes a run of its own. An iterator
//! that is known ([`Pinned`]) is as good as a snapshot of its keyspace.
//!
//! As a flush, but for one number: of each key the newest version that the snapshot sees. So the table
//! has one entry per key, as all tables, and the snapshot's View shows it as the newest run of the
//! keyspace, below the memtables that the database still has. The oldest snapshot goes first: it is the
//! likeliest to keep memtables that no other does. Snapshots that see the same of these memtables share the
//! table: those of one moment, and all that see the whole of them.
//!
//! A memtable is given back when the last snapshot that sees it was spilled, and snapshots that see different
//! parts of it write a table each. Where that is more than [`MOST_WRITTEN`] times what is given back, the
//! memtables stay, until they take half of the budget: then it is kept at any price. `stats()` says what is pinned.
//!
//! The table is retired at once: it goes with the last View that shows it, or at the next open. Reads
//! under way keep the old View, and what it holds, to their end; iterators to their next step, if at all.
//!
//! Writers that are ahead of it wait, where so much is pinned that half of the budget and a memtable are taken, while it
//! gets on: each memtable they fill may be kept by the next snapshot. Its tables are not synced: no edit names them.
//!
//! A spill that fails loses nothing but memory. It is tried again once the View has changed, somebody asks, or an iterator
//! comes to be known that keeps what may be written.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use super::output::{Moving, Output, Written};
use crate::cursor::{Cursor, MergeCursor, Seek, Source};
use crate::engine::{Engine, Pinned, Work, still_shown};
use crate::error::Result;
use crate::executor::{Job, Step};
use crate::format::entry::KeyspaceId;
use crate::format::range::Ranges;
use crate::memtable::Memtable;
use crate::sstable::writer::TableOptions;
use crate::view::{Group, KeyspaceView, Run, Tables, View};

/// So many bytes are written at most for each byte of memory that comes free.
const MOST_WRITTEN: u64 = 4;

/// Writes snapshots' memtables to tables where they take too much memory.
pub struct SpillJob {
    engine: Arc<Engine>,
    /// How things stood when it last found nothing to do, or failed.
    seen: Option<Seen>,
    work: Option<Spill>,
}

/// What it looks at.
#[derive(Clone)]
struct Seen {
    view: Weak<View>,
    /// How often somebody had asked for failed work to be tried again.
    asked: u64,
    /// How many holders came to be known late.
    late: u64,
}

impl Seen {
    fn now(engine: &Engine) -> Seen {
        // Not held: a step may write and sync a table.
        let view = Arc::downgrade(&engine.view());
        Seen { late: engine.pinned_late(), asked: engine.health.asked(), view }
    }

    fn is_same(&self, other: &Seen) -> bool {
        self.view.ptr_eq(&other.view) && self.asked == other.asked && self.late == other.late
    }
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
        SpillJob { engine: engine.clone(), seen: None, work: None }
    }

    /// The oldest snapshot's memtables that only snapshots keep, if these take too much.
    fn find(&self) -> Option<Spill> {
        let engine = &self.engine;
        let pinned_bytes = engine.pinned_memory_bytes();
        if pinned_bytes <= engine.options.pinned_bytes() {
            return None;
        }
        let at_any_price = pinned_bytes > engine.options.memory_budget_bytes / 2;
        let (now, all) = (engine.view(), engine.pinned());
        all.iter().find_map(|pinned| {
            let mut keyspaces = pinned.unlike(&now).into_iter();
            keyspaces.find_map(|keyspace| {
                let keep = still_shown(&now, &keyspace);
                let gone = keyspace.memtables().skip(keep);
                let oldest = gone.filter(|memtable| !memtable.is_empty()).last()?;
                (at_any_price || is_worth_it(&all, keyspace.id, oldest))
                    .then(|| Spill::begin(engine, pinned.clone(), keyspace.clone(), keep))
            })
        })
    }

    fn advance(&mut self) -> Result<bool> {
        // Of a snapshot that was dropped meanwhile nothing is written.
        let work = self.work.take().filter(|spill| Arc::strong_count(&spill.pinned) > 1);
        let Some(mut spill) = work.or_else(|| self.find()) else { return Ok(false) };
        if !std::mem::replace(&mut spill.begun, true) {
            spill.cursor.seek(Seek::First)?;
        }
        spill.output.be_quick(self.engine.are_pins_over());
        if !spill.output.copy(&mut spill.cursor, true, Some(u64::MAX))? {
            self.work = Some(spill);
        } else if spill.cursor.key().is_some() {
            spill.output.end_table()?;
            self.work = Some(spill);
        } else {
            spill.install(&self.engine)?;
            // Nothing here keeps the memtables any more.
            self.engine.fit_cache();
            // Perhaps writers wait for that.
            self.engine.executor.notify();
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
        // One snapshot reads it: a filter would take more memory than it saves.
        let table = keyspace.options.lsm_table();
        let options = TableOptions { filter: None, is_scratch: true, ..table };
        let apart = keyspace.options.fresh_apart();
        let output = Output::new(engine, options, apart, &segments).separating_nothing();
        Spill {
            output: output.with_ranges(ranges).moving(Moving::Nothing),
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
        let runs: Vec<Run> = run.into_iter().chain(old.runs.iter().cloned()).collect();
        let tables = Tables {
            groups: Group::all(&runs),
            runs,
            level_count: old.level_count,
            frozen: old.frozen.clone(),
            partitions: old.partitions.clone(),
            deltas: old.deltas.clone(),
            ranged: old.ranged.clone(),
            has_ranges: old.has_ranges || opened.tables.iter().any(|t| !t.ranges().is_empty()),
            segments,
            external_position: old.external_position,
            fresh_segments: OnceLock::new(),
            damaged: old.damaged.clone(),
            readable: OnceLock::new(),
        };
        let mut shown = KeyspaceView::clone(&self.keyspace);
        if self.keep == 0 {
            shown.active = Arc::new(Memtable::default());
        }
        shown.sealed.truncate(self.keep.saturating_sub(1));
        shown.tables = Arc::new(tables);
        let shown = Arc::new(shown);
        for pinned in engine.pinned() {
            self.put(&pinned, &shown);
        }
        // From now on the snapshots alone keep them.
        opened.tables.iter().for_each(|table| table.retire(None, 0));
        engine.metrics.spills.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Whether two snapshots see the same of memtables that both keep.
fn see_alike(gone: &[&Arc<Memtable>], one: &Pinned, other: &Pinned) -> bool {
    let less = one.visible.min(other.visible);
    one.visible == other.visible || gone.iter().all(|memtable| memtable.latest_commit() <= less)
}

/// Whether spilling all snapshots that keep `memtable` writes little enough for the memory it gives back.
fn is_worth_it(all: &[Arc<Pinned>], id: KeyspaceId, memtable: &Arc<Memtable>) -> bool {
    let mut seen: Vec<&Arc<Pinned>> = Vec::new();
    for pinned in all {
        let keyspace = pinned.keyspace(id);
        let keeps = keyspace.is_some_and(|k| k.memtables().any(|kept| Arc::ptr_eq(kept, memtable)));
        if keeps && !seen.iter().any(|other| see_alike(&[memtable], pinned, other)) {
            seen.push(pinned);
        }
        if seen.len() as u64 > MOST_WRITTEN {
            return false;
        }
    }
    true
}

impl Spill {
    /// Has a snapshot show the run, if it sees the same as the one it was written for.
    fn put(&self, pinned: &Pinned, shown: &Arc<KeyspaceView>) {
        let old = &self.keyspace;
        let gone: Vec<&Arc<Memtable>> = old.memtables().skip(self.keep).collect();
        let shows = pinned.keyspace(old.id).is_some_and(|found| Arc::ptr_eq(&found, old));
        if shows && see_alike(&gone, pinned, &self.pinned) {
            pinned.show(shown);
        }
    }
}

impl Job for SpillJob {
    fn name(&self) -> &'static str {
        "spill"
    }

    fn step(&mut self) -> Step {
        let now = Seen::now(&self.engine);
        let seen = self.work.is_none() && self.seen.as_ref().is_some_and(|seen| seen.is_same(&now));
        if seen || self.engine.health.check_writable().is_err() || self.engine.ballast.is_given_up()
        {
            self.work = None;
            self.engine.note_spilling(false);
            return Step::Wait;
        }
        let done = self.advance();
        self.engine.note_spilling(matches!(done, Ok(true)));
        let result = done.as_ref().map(|_| ()).map_err(Clone::clone);
        match done {
            Ok(true) if self.work.is_some() => return Step::Again,
            Ok(true) => {}
            Ok(false) => self.seen = Some(now.clone()),
            Err(_) => {
                self.work = None;
                self.seen = Some(now.clone());
            }
        }
        if result.is_err() || self.engine.health.work_error_since(Work::Spill, 0).is_some() {
            self.engine.health.note(Work::Spill, &result, now.asked);
            self.engine.executor.notify();
        }
        let seen = self.seen.as_ref().is_some_and(|seen| seen.is_same(&now));
        if seen { Step::Wait } else { Step::Again }
    }
}
