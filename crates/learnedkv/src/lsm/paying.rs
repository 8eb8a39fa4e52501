//! Reads of values that stand apart only until they are settled: they pay for that ([`crate::view::Rent`]).

use std::sync::Arc;

use crate::engine::Engine;
use crate::format::value::ValuePointer;
use crate::options::Store;
use crate::view::KeyspaceView;

/// What a walk reads of settled data with one request, about, bytes.
const WALKED_BYTES: u64 = 64 << 10;

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
            self.engine.executor.notify();
        }
    }

    /// Counts those of the so many that a walk made for the values of `pointers`: the ones of short values, without those that
    /// their blocks would take.
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
