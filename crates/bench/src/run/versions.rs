//! What every read must return: one expected version per key.
//!
//! Each key has one writer (clients write only ranks that are theirs modulo the number of clients),
//! which marks the key as pending before it writes and stores the new version after. A reader that
//! takes [`Versions::floor`] before and [`Versions::ceiling`] after its read may accept exactly the
//! versions in between: an older one is a lost update, a newer one was never written.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Set while a write of the next version is under way.
const PENDING: u32 = 1 << 31;
/// Set once the key was removed, for good.
const REMOVED: u32 = 1 << 30;

/// Expected versions by key rank. Version 0 means "not written yet".
#[derive(Debug)]
pub struct Versions {
    cells: Vec<AtomicU32>,
    /// See [`Versions::reached`].
    reached: AtomicU64,
}

impl Versions {
    /// No key written yet.
    #[must_use]
    pub fn new(keys: usize) -> Versions {
        let cells = (0..keys).map(|_| AtomicU32::new(0)).collect();
        Versions { cells, reached: AtomicU64::new(0) }
    }

    /// Up to which position of the load order keys have been written: all of the load, and behind it, where
    /// several clients insert, there may be some that are still to come.
    #[inline]
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::SeqCst)
    }

    /// Says that keys have been written up to `position` of the load order, exclusive.
    pub fn reach(&self, position: u64) {
        self.reached.fetch_max(position, Ordering::SeqCst);
    }

    /// Whether key `index` has been written, and was not removed.
    #[inline]
    #[must_use]
    pub fn is_there(&self, index: usize) -> bool {
        let cell = self.cells[index].load(Ordering::SeqCst);
        cell & REMOVED == 0 && cell & !PENDING > 0
    }

    /// Announces a write of key `index` and returns its version. Only the key's writer may call it.
    pub fn begin(&self, index: usize) -> u32 {
        let version = self.cells[index].load(Ordering::Relaxed);
        debug_assert!(
            version & (PENDING | REMOVED) == 0,
            "two writers of one key, or a removed one"
        );
        self.cells[index].store(version | PENDING, Ordering::SeqCst);
        version + 1
    }

    /// Says that the write of `version` to key `index` is acknowledged.
    pub fn finish(&self, index: usize, version: u32) {
        self.cells[index].store(version, Ordering::SeqCst);
    }

    /// Says that key `index` was removed; it is neither written nor asked for from then on.
    pub fn remove(&self, index: usize) {
        self.cells[index].fetch_or(REMOVED, Ordering::SeqCst);
    }

    /// Whether key `index` was removed.
    #[must_use]
    pub fn is_removed(&self, index: usize) -> bool {
        self.cells[index].load(Ordering::SeqCst) & REMOVED != 0
    }

    /// The oldest version a read that starts now may return.
    #[inline]
    #[must_use]
    pub fn floor(&self, index: usize) -> u32 {
        self.cells[index].load(Ordering::SeqCst) & !(PENDING | REMOVED)
    }

    /// The newest version a read that ended before now may have returned.
    #[inline]
    #[must_use]
    pub fn ceiling(&self, index: usize) -> u32 {
        let cell = self.cells[index].load(Ordering::SeqCst);
        let version = cell & !(PENDING | REMOVED);
        if cell & PENDING == 0 { version } else { version + 1 }
    }
}
