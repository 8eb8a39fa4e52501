//! Reads that cost more than of settled data pay for settling it ([`crate::view::Rent`]): those of values that stand apart
//! only until they are settled, gets that ask several runs, walks over many, and over what was removed.
//!
//! What they pay in is requests of the device. What is in memory costs more too, if less: a walk goes to its place in each
//! run, and looks at all of them for each entry; a get asks the filters of many, and looks for its key in each that its filter
//! does not speak for; a value apart is another place in memory. That is counted in shares of a request, which each thread
//! gathers until they are one ([`owe`]): whose keyspace pays it is chance, in proportion.

use std::sync::Arc;

use crate::engine::Engine;
use crate::format::value::ValuePointer;
use crate::options::Store;
use crate::sstable::scale;
use crate::sstable::sought::Sought;
use crate::view::{KeyspaceView, Run, SHARES};

/// What a walk reads of settled data with one request, about, bytes.
const WALKED_BYTES: u64 = 64 << 10;

/// What a walk takes to begin in a run more, shares,
const SEEK_SHARES: u64 = 24;
/// and each entry for a run more that it is compared with.
const STEP_SHARES: u64 = 1;
/// What a get takes in a run that it asks in vain.
const IN_VAIN_SHARES: u64 = 12;
/// What a get takes in each run but the first whose own filter refuses it. (Updates that never end leave a run or two behind
/// each sweep: gets take a tenth longer for them, which is not worth writing more. Two pay where no filter over both speaks.)
const REFUSED_SHARES: u64 = 3;
/// What a removed key takes that a walk goes over, beside that.
const REMOVED_SHARES: u64 = 3;
/// What a value takes that stands apart in memory.
const APART_SHARES: u64 = 4;

/// Counts what a walk over so many entries took longer in memory than one over settled data alone.
pub fn owe_for_merging(engine: &Engine, view: &KeyspaceView, entries: usize) {
    let tables = &view.tables;
    let is_settled =
        tables.partitions.iter().take(2).any(|p| p.base.is_some() || p.delta.is_some());
    let more = (tables.fresh().len() + usize::from(is_settled)).saturating_sub(1) as u64;
    if more > 0 {
        let shares = more.saturating_mul(SEEK_SHARES + STEP_SHARES * entries as u64);
        owe_over_runs(engine, view, shares, more);
    }
}

/// Counts runs that a get asked in vain, or whose filters it had to ask, before it found its key or came to the settled run.
#[inline]
pub fn owe_for_runs(engine: &Engine, view: &KeyspaceView, sought: &Sought<'_>) {
    let refused = sought.refused().saturating_sub(1);
    let shares = IN_VAIN_SHARES * sought.asked_in_vain() + REFUSED_SHARES * refused;
    if shares > 0 {
        owe_over_runs(engine, view, shares, view.tables.fresh().len() as u64);
    }
}

/// Counts removed keys that a walk went over: none is left of them when they are settled.
pub fn owe_for_removed(engine: &Engine, view: &KeyspaceView, count: usize) {
    owe(engine, view, REMOVED_SHARES * count as u64, |by| !by.now.tables.fresh().is_empty());
}

/// Values that stood apart and were in memory.
#[derive(Debug, Default)]
pub struct Apart {
    count: u64,
    /// One for all.
    last: Option<ValuePointer>,
}

impl Apart {
    /// All that these lead to.
    pub fn of(pointers: impl IntoIterator<Item = ValuePointer>) -> Apart {
        pointers.into_iter().fold(Apart::default(), |mut apart, pointer| {
            apart.add(pointer);
            apart
        })
    }

    /// Those of `other` too.
    pub fn join(&mut self, other: Apart) {
        if other.last.is_some() {
            self.count += other.count;
            self.last = other.last;
        }
    }

    /// One more.
    pub fn add(&mut self, pointer: ValuePointer) {
        self.count += 1;
        self.last = Some(pointer);
    }
}

/// Counts values that stood apart.
pub fn owe_for_values(engine: &Engine, view: &KeyspaceView, apart: Apart) {
    if let Some(last) = apart.last {
        owe(engine, view, APART_SHARES * apart.count, |by| by.moves(&last));
    }
}

/// Counts what runs, and the settled one, took that are so many `more` than one. Merged, the runs would take a part of it less.
fn owe_over_runs(engine: &Engine, view: &KeyspaceView, shares: u64, more: u64) {
    let requests = engine.context.metrics.owed.passes(shares, SHARES);
    if requests == 0 {
        return;
    }
    if let Some(by) = Payer::of(engine, view).filter(|by| !by.now.tables.fresh().is_empty()) {
        by.pay(requests);
        by.pay_for_merging(view, requests, more);
    }
}

/// Counts shares of a request; a whole one is paid if that brings a sweep which `helps`.
fn owe(engine: &Engine, view: &KeyspaceView, shares: u64, helps: impl FnOnce(&Payer<'_>) -> bool) {
    let requests = engine.context.metrics.owed.passes(shares, SHARES);
    if requests > 0 {
        Payer::of(engine, view).filter(helps).inspect(|by| by.pay(requests));
    }
}

/// A keyspace of which such reads may bring a sweep.
pub(super) struct Payer<'a> {
    engine: &'a Engine,
    /// As it is now: whoever reads an older View may read what is settled by now.
    now: Arc<KeyspaceView>,
    /// Values shorter than that will stand in blocks.
    moved_below: u64,
}

impl<'a> Payer<'a> {
    /// Of reads of `view`; `None` where no sweep begins for them.
    pub fn of(engine: &'a Engine, view: &KeyspaceView) -> Option<Payer<'a>> {
        let options = &view.options;
        let may_settle = options.settles_for_reads()
            && options.chosen_store() == Store::Tiered
            && engine.options.automatic_conversion
            && !engine.health.is_read_only();
        let now = may_settle.then(|| engine.view().keyspaces.get(&view.id).cloned()).flatten()?;
        let moved_below = options.separate_settled_at().min(engine.options.stream_at);
        Some(Payer { engine, now, moved_below })
    }

    /// Whether the next sweep will put a value in its block. (What one under way settles is paid for.)
    pub fn moves(&self, pointer: &ValuePointer) -> bool {
        pointer.length < self.moved_below && self.now.tables.is_fresh(pointer.segment)
    }

    /// Counts requests that would not have been made if all were settled.
    pub fn pay(&self, requests: u64) {
        if requests > 0 && self.now.rent.pay(requests) {
            self.engine.note_paid(self.now.id);
        }
    }

    /// Counts the part of requests that would not have been paid if all runs of `view` were one, where they stand yet: whoever
    /// reads an older View reads what was merged meanwhile, for as long as it is held.
    fn pay_for_merging(&self, view: &KeyspaceView, requests: u64, more: u64) {
        let (runs, now) = (view.tables.fresh(), self.now.tables.fresh());
        let id = |run: &Run| run.first().map(|table| table.id());
        let saved = (runs.len() as u64).saturating_sub(1).min(more);
        if saved > 0
            && runs.iter().all(|run| now.iter().any(|other| id(other) == id(run)))
            && self.now.merging.pay(scale(requests * SHARES, saved, more))
        {
            self.engine.note_paid(self.now.id);
        }
    }

    /// Counts those of the so many that a walk made for the values of `pointers`, all of which were read: the ones of short
    /// values, without those that their blocks would take.
    pub fn pay_for_walk(
        &self,
        requests: u64,
        pointers: impl ExactSizeIterator<Item = ValuePointer>,
    ) {
        let count = pointers.len() as u64;
        let moving = pointers.filter(|pointer| self.moves(pointer));
        let (moving, bytes) = moving.fold((0, 0), |(n, bytes), p| (n + 1, bytes + p.length));
        if moving > 0 {
            let of_blocks = (bytes + WALKED_BYTES / 2) / WALKED_BYTES;
            self.pay(requests.saturating_sub(count - moving + of_blocks));
        }
    }
}
