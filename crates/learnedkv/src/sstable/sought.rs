//! One lookup, as the tables that are asked see it.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering::Relaxed;

use super::ReadMetrics;
use super::reader::Caching;
use crate::format::checksum::key_hash;

/// A key that is looked up in one table after another: hashed once, when the first filter asks. It
/// counts what filters did, for the caller to add to the metrics once.
#[derive(Debug)]
pub struct Sought<'a> {
    key: &'a [u8],
    pub(super) caching: Caching,
    hash: OnceCell<u64>,
    pub(super) stops: Cell<u64>,
    pub(super) false_positives: Cell<u64>,
    /// A block was read from the disk in the table asked last.
    pub(super) read: Cell<bool>,
    /// By the misses of some table a filter would be paid for now.
    pub(super) pays: Cell<bool>,
}

impl<'a> Sought<'a> {
    /// A lookup of `key`, what it reads being cached or not.
    pub fn new(key: &'a [u8], caching: Caching) -> Sought<'a> {
        Sought {
            key,
            caching,
            hash: OnceCell::new(),
            stops: Cell::new(0),
            false_positives: Cell::new(0),
            read: Cell::new(false),
            pays: Cell::new(false),
        }
    }

    /// The key.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Whether a table's misses have reached what its filter costs, by this lookup: somebody should be
    /// told.
    pub fn pays(&self) -> bool {
        self.pays.get()
    }

    pub(super) fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| key_hash(self.key))
    }

    /// Adds what filters did to `metrics`.
    pub fn count(&self, metrics: &ReadMetrics) {
        for (cell, total) in [
            (&self.stops, &metrics.filter_stops),
            (&self.false_positives, &metrics.filter_false_positives),
        ] {
            let count = cell.take();
            if count > 0 {
                total.fetch_add(count, Relaxed);
            }
        }
    }
}
