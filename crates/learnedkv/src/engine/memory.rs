//! Who gets how much of the one memory budget.
//!
//! **Memtables of all keyspaces together** are kept below [`DatabaseOptions::all_memtables_bytes`]. They are
//! added up whenever a share of that was put since the last time, not at each put, and only where they may be above it by what was put
//! since: there may be thousands. Above the bound
//! the largest active ones are sealed, so that a flush takes them, unless half of the bound waits for
//! flushes already; a quarter above it writers wait for flushes. Memtables whose flush failed are waited
//! for by nobody but their own writers, until all together take twice the bound: then all are refused.
//!
//! **Memtables that only readers keep** are counted, and bounded by [`lsm::spill`](crate::lsm::spill) (`pins.rs`). **The block
//! cache** has what all memtables and the metadata leave; for it too they are added up only once a share has changed: there
//! may be thousands, and it is asked for at each edit.
//!
//! [`DatabaseOptions::all_memtables_bytes`]: crate::options::DatabaseOptions::all_memtables_bytes

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Engine, Work, lock};
use crate::error::Error;
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::memtable::MOST_OVERHEAD_BYTES;
use crate::options::MAX_SEALED;
use crate::view::View;

/// Memtables are added up each time such a share of what all may take was put: there may be very many.
const LOOKS: u64 = 128;

/// What is known of all memtables together.
#[derive(Debug, Default)]
pub struct Memory {
    /// Whether writers wait because they take too much.
    is_over: AtomicBool,
    /// Bytes of memtables that were sealed, flushed or dropped so far, each time.
    moved_bytes: AtomicU64,
    /// What they took when they were last looked at.
    looked_at: Mutex<Option<LookedAt>>,
    /// What they took beside the largest when they were last added up for the cache, and what had been put and moved by
    /// then.
    added_up: Mutex<Option<(u64, u64)>>,
}

/// What memtables took, and what had been put by then, bytes; and up to which number all was in them.
#[derive(Debug, Clone, Copy)]
struct LookedAt {
    bytes: u64,
    put: u64,
    visible: SequenceNumber,
}

impl Engine {
    /// Looks whether all memtables together take too much, if enough was put since the last look.
    pub(super) fn look_at_memtables(&self, put_before: u64, put_now: u64) {
        let share = self.share_bytes();
        if put_before / share != put_now / share && self.may_take_too_much(put_now) {
            self.bound_memtables();
        }
    }

    /// Whether they may by what they took at the last look, if each operation since takes the most that it can.
    fn may_take_too_much(&self, put_now: u64) -> bool {
        let Some(before) = *lock(&self.memory.looked_at) else { return true };
        let operations = self.log.reserved().saturating_sub(before.visible);
        let most = put_now.saturating_sub(before.put) + operations * MOST_OVERHEAD_BYTES as u64;
        before.bytes + most > self.options.all_memtables_bytes()
    }

    /// Whether writers wait until memtables were flushed. Cheap while they do not.
    pub(super) fn are_memtables_over(&self) -> bool {
        self.memory.is_over.load(Ordering::Acquire) && {
            self.bound_memtables();
            self.memory.is_over.load(Ordering::Acquire)
        }
    }

    /// Whether writers wait for flushes, or do as soon as the next memtable of some keyspace is full.
    pub fn awaits_flushes(&self, view: &View) -> bool {
        self.are_memtables_over() || view.keyspaces.most_sealed() >= MAX_SEALED
    }

    /// What some flush met since somebody asked, where nothing else than flushes that failed since could give memory back.
    pub(super) fn flush_error_if_over(&self, since: u64) -> Option<Error> {
        if !self.are_memtables_over() {
            return None;
        }
        let view = self.view();
        let sealed = view.keyspaces.with_sealed();
        let errors = sealed.map(|k| self.health.work_error_since(Work::Flush(k.id), since));
        errors.reduce(Option::and).flatten()
    }

    /// Seals the largest memtables while all together take too much.
    fn bound_memtables(&self) {
        let bound = self.options.all_memtables_bytes();
        let (put, visible) = (self.metrics.put_bytes.load(Ordering::Relaxed), self.log.visible());
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
        *lock(&self.memory.looked_at) = Some(LookedAt { bytes: total, put, visible });
        let over =
            sealed_bytes > 0 && total > bound + bound / 4 || stuck_bytes > 0 && total > bound * 2;
        self.memory.is_over.store(over, Ordering::Release);
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
        let pinning = self.idle_since(up_to);
        self.rotate_all(&pinning);
    }

    /// Gives the cache what memtables and metadata leave of the budget. Called whenever a memtable is
    /// sealed or tables change.
    pub fn fit_cache(&self) {
        let metadata = self.context.metrics.metadata_bytes.load(Ordering::Relaxed);
        // With the share that may have come since they were added up: the cache never has what they take.
        let memtables = self.beside_the_largest() + self.share_bytes();
        let sealed = memtables + self.pinned_memory_bytes();
        self.context.cache.set_capacity_bytes(self.options.cache_bytes(sealed, metadata));
    }

    /// What memtables take beside the largest active one, to within a share of what all may take. Active
    /// memtables of more than one keyspace are counted as they are.
    fn beside_the_largest(&self) -> u64 {
        let put = self.metrics.put_bytes.load(Ordering::Relaxed);
        let moved = put + self.memory.moved_bytes.load(Ordering::Relaxed);
        let mut added_up = lock(&self.memory.added_up);
        if let Some((bytes, at)) = *added_up
            && moved.saturating_sub(at) < self.share_bytes()
        {
            return bytes;
        }
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
        let bytes = (taken - largest) as u64;
        *added_up = Some((bytes, moved));
        bytes
    }

    /// Memtables of so many bytes were sealed, are flushed, or are gone with their keyspace.
    pub fn note_moved_memory(&self, bytes: usize) {
        self.memory.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// After so much has changed memtables are added up anew.
    fn share_bytes(&self) -> u64 {
        (self.options.all_memtables_bytes() / LOOKS).max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::executor::SeededExecutor;
    use crate::{Database, KeyspaceOptions};

    fn open(memtable_bytes: usize, memory_budget_bytes: u64) -> Database {
        let builder = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let builder = builder.executor(Arc::new(SeededExecutor::new(1)));
        let builder = builder.memtable_bytes(memtable_bytes);
        builder.memory_budget_bytes(memory_budget_bytes).open().unwrap()
    }

    fn memtables_take(db: &Database) -> usize {
        let view = db.engine().view();
        let all = view.keyspaces.values().flat_map(|keyspace| keyspace.memtables());
        all.map(|memtable| memtable.size_bytes()).sum()
    }

    /// They were added up each time a share was put, all of thousands of keyspaces that held an entry each.
    #[test]
    fn memtables_are_added_up_where_they_may_take_too_much() {
        let db = open(64 << 10, 8 << 20);
        let engine = db.engine();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let looked_at = || lock(&engine.memory.looked_at).map(|at| (at.visible, at.bytes));
        let bound = engine.options.all_memtables_bytes() as usize;
        let (mut looks, mut last, mut most) = (0, None, 0);
        // Values of a tenth of a share, ranges and small entries.
        for number in 0..3000u32 {
            match number % 3 {
                0 => keyspace.remove_range(format!("{number}")..format!("{number}~")).unwrap(),
                1 => keyspace.insert(format!("{number}"), "v").unwrap(),
                _ => keyspace.insert(format!("{number}"), vec![7; bound / 1280]).unwrap(),
            }
            if number % 2 == 0 {
                let other = db.keyspace(&format!("{number}"), KeyspaceOptions::default()).unwrap();
                other.insert("key", vec![7; bound / 1280]).unwrap();
            }
            most = most.max(memtables_take(&db));
            looks += u32::from(looked_at() != last);
            last = looked_at();
        }
        let shares = engine.metrics.put_bytes.load(Ordering::Relaxed) / engine.share_bytes();
        assert!(u64::from(looks) < shares / 2, "{looks} of {shares}");
        assert!((bound / 2..bound * 5 / 4).contains(&most), "{most} of {bound}");
    }

    /// What an entry takes beside its bytes is most of it where these are few.
    #[test]
    fn memtables_of_small_entries_are_bounded_too() {
        let db = open(64 << 10, 8 << 20);
        let engine = db.engine();
        let make = |n: u32| db.keyspace(&format!("{n}"), KeyspaceOptions::default()).unwrap();
        let keyspaces: Vec<_> = (0..100).map(make).collect();
        let bound = engine.options.all_memtables_bytes() as usize;
        let mut most = 0;
        for number in 0..40_000u32 {
            keyspaces[number as usize % 100].insert(number.to_be_bytes(), "").unwrap();
            if number % 100 == 0 {
                most = most.max(memtables_take(&db));
            }
        }
        assert!((bound / 2..bound * 5 / 4).contains(&most), "{most} of {bound}");
    }

    /// Each keyspace that was made or dropped looked at all that held something unflushed.
    #[test]
    fn memtables_are_added_up_for_the_cache_once_a_share_has_changed() {
        let db = open(1 << 20, 16 << 20);
        let engine = db.engine();
        let make = |name: &str| db.keyspace(name, KeyspaceOptions::default()).unwrap();
        let added_up = || lock(&engine.memory.added_up).unwrap();
        let (share, capacity) =
            (engine.share_bytes() as usize, || engine.context.cache.capacity_bytes());
        let (a, b) = (make("a"), make("b"));
        a.insert("key", vec![7; 1000]).unwrap();
        let (before, at_first) = (added_up(), capacity());
        make("c");
        db.drop_keyspace("c").unwrap();
        assert_eq!((added_up(), capacity()), (before, at_first), "of a share of {share}");
        // What is beside the largest counts once it is a share.
        b.insert("key", vec![7; share]).unwrap();
        b.insert("other", vec![7; share]).unwrap();
        make("d");
        assert!(added_up() != before && at_first - capacity() > 1000, "{:?}", added_up());
        let before = capacity();
        // Sealed, it is beside the other.
        engine.rotate(2).unwrap();
        engine.fit_cache();
        let sealed = capacity();
        assert!(before - sealed > share as u64, "{sealed} of {before}");
        b.flush().unwrap();
        assert!(capacity() > sealed + share as u64, "it is flushed");
        let before = capacity();
        (0..2).for_each(|n| b.insert(format!("{n}"), vec![7; 2 * share]).unwrap());
        a.insert("key", vec![7; 8 * share]).unwrap();
        engine.fit_cache();
        assert!(before - capacity() > 3 * share as u64);
        // As is what is dropped.
        drop(b);
        db.drop_keyspace("b").unwrap();
        assert!(before.abs_diff(capacity()) < 2 * share as u64, "{} of {before}", capacity());
    }
}
