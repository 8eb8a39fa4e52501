//! Who gets how much of the one memory budget.
//!
//! **Memtables of all keyspaces together** are kept below [`DatabaseOptions::all_memtables_bytes`]. They are
//! added up whenever a share of that was put since the last time, not at each put. Above the bound
//! the largest active ones are sealed, so that a flush takes them, unless half of the bound waits for
//! flushes already; a quarter above it writers wait for flushes. Memtables whose flush failed are waited
//! for by nobody but their own writers, until all together take twice the bound: then all are refused.
//!
//! **Memtables that only readers keep** are counted, and bounded by [`lsm::spill`](crate::lsm::spill) (`pins.rs`). **The block
//! cache** has what all memtables and the metadata leave.
//!
//! [`DatabaseOptions::all_memtables_bytes`]: crate::options::DatabaseOptions::all_memtables_bytes

use std::sync::atomic::Ordering;

use super::{Engine, Work};
use crate::error::Error;
use crate::format::entry::KeyspaceId;

/// Memtables are added up each time such a share of what all may take was put: there may be very many.
const LOOKS: u64 = 128;

impl Engine {
    /// Looks whether all memtables together take too much, if enough was put since the last look.
    pub(super) fn look_at_memtables(&self, put_before: u64, put_now: u64) {
        let share = (self.options.all_memtables_bytes() / LOOKS).max(1);
        if put_before / share != put_now / share {
            self.bound_memtables();
        }
    }

    /// Whether writers wait until memtables were flushed. Cheap while they do not.
    pub(super) fn are_memtables_over(&self) -> bool {
        self.memtables_over.load(Ordering::Acquire) && {
            self.bound_memtables();
            self.memtables_over.load(Ordering::Acquire)
        }
    }

    /// What some flush met, where nothing else than flushes that failed could give memory back.
    pub(super) fn flush_error_if_over(&self) -> Option<Error> {
        if !self.are_memtables_over() {
            return None;
        }
        let view = self.view();
        let sealed = view.keyspaces.with_sealed();
        let errors = sealed.map(|k| self.health.work_error(Work::Flush(k.id)));
        errors.reduce(Option::and).flatten()
    }

    /// Seals the largest memtables while all together take too much.
    fn bound_memtables(&self) {
        let bound = self.options.all_memtables_bytes();
        let mut active: Vec<(u64, KeyspaceId)> = Vec::new();
        // Sealed ones: those whose flush failed, and others.
        let (mut active_bytes, mut stuck_bytes, mut sealed_bytes) = (0, 0, 0);
        self.look_at_unflushed(|unflushed| {
            for keyspace in unflushed {
                let bytes = keyspace.active.size_bytes() as u64;
                if bytes > 0 {
                    active.push((bytes, keyspace.id));
                    active_bytes += bytes;
                }
                if keyspace.sealed.is_empty() {
                    continue;
                }
                let sealed = keyspace.sealed.iter().map(|s| s.memtable.size_bytes() as u64);
                let is_stuck = self.health.work_error(Work::Flush(keyspace.id)).is_some();
                *(if is_stuck { &mut stuck_bytes } else { &mut sealed_bytes }) +=
                    sealed.sum::<u64>();
            }
        });
        let total = active_bytes + stuck_bytes + sealed_bytes;
        let over =
            sealed_bytes > 0 && total > bound + bound / 4 || stuck_bytes > 0 && total > bound * 2;
        self.memtables_over.store(over, Ordering::Release);
        if total <= bound || sealed_bytes > bound / 2 {
            return;
        }
        // So many that the next look is not the next rotation: a quarter of the bound.
        active.sort_unstable_by(|a, b| b.cmp(a));
        let mut taken = 0;
        let largest = active.iter().take_while(|(bytes, _)| {
            let goes_on = taken < bound / 4;
            taken += bytes;
            goes_on
        });
        let largest: Vec<_> = largest.map(|(_, id)| *id).collect();
        self.rotate_all(&largest);
    }

    /// Has keyspaces flushed that the log is kept for, while it is larger than it may get: an idle keyspace
    /// must not pin it.
    pub fn bound_log(&self) {
        let Some(up_to) = self.log.excess(self.options.max_log_bytes()) else { return };
        let oldest = |first| first <= up_to;
        let pinning: Vec<_> = self.look_at_unflushed(|unflushed| {
            let idle = unflushed.filter(|k| k.sealed.is_empty());
            idle.filter(|k| k.oldest_unflushed().is_some_and(oldest)).map(|k| k.id).collect()
        });
        self.rotate_all(&pinning);
    }

    /// Gives the cache what memtables and metadata leave of the budget. Called whenever a memtable is
    /// sealed or tables change.
    pub fn fit_cache(&self) {
        let metadata = self.context.metrics.metadata_bytes.load(Ordering::Relaxed);
        let (mut taken, mut largest) = (0, 0);
        self.look_at_unflushed(|unflushed| {
            for keyspace in unflushed {
                let active = keyspace.active.size_bytes();
                largest = largest.max(active);
                let sealed = keyspace.sealed.iter().map(|s| s.memtable.size_bytes());
                let filters = keyspace.memtables().map(|m| m.filter_bytes());
                taken += active + sealed.sum::<usize>() + filters.sum::<usize>();
            }
        });
        // Active memtables of more than one keyspace are counted as they are.
        let sealed = (taken - largest) as u64 + self.pinned_memory_bytes();
        self.context.cache.set_capacity_bytes(self.options.cache_bytes(sealed, metadata));
    }
}
