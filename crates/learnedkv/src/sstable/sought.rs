//! One lookup, as the tables that are asked see it.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use super::ReadMetrics;
use super::lookups::Answer;
use super::reader::Caching;
use crate::format::checksum::HashedKey;
use crate::format::entry::TableId;
use crate::slice::Lookup;

/// What a lookup made the disk do.
#[derive(Debug, Default)]
pub struct Reads {
    /// A block was read from the disk in the table asked last.
    pub(super) in_table: Cell<bool>,
    requests: Cell<u64>,
}

impl Reads {
    /// Counts so many requests.
    pub fn add(&self, requests: u64) {
        self.requests.update(|count| count + requests);
    }

    /// How many were counted.
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }
}

/// How lookups are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// What becomes of blocks that had to be read.
    pub caching: Caching,
    /// Whether all tables that may hold a key are asked at once; else one after the other, newest first.
    pub at_once: bool,
}

/// A key that is looked up in one table after another: hashed once, when the first filter asks. It
/// counts what filters did and the disk had to do, for the caller to add to the metrics once.
#[derive(Debug)]
pub struct Sought<'a> {
    hashed: HashedKey<'a>,
    pub(super) caching: Caching,
    pub(super) stops: Cell<u64>,
    pub(super) false_positives: Cell<u64>,
    /// What it made the disk do.
    pub reads: Reads,
    asks_settled: Cell<bool>,
    /// What was asked last, and then what answered.
    answer: Cell<Answer>,
    spared: Cell<u64>,
    in_vain: Cell<u64>,
    refused: Cell<u64>,
    /// Misses have paid for a filter of this table, which has none.
    pub(super) unfiltered: Cell<Option<TableId>>,
    /// It brought a filter into memory.
    pub(super) has_woken: Cell<bool>,
}

impl<'a> Sought<'a> {
    /// A lookup of `key`, what it reads being cached or not.
    pub fn new(key: &'a [u8], caching: Caching) -> Sought<'a> {
        Sought {
            hashed: HashedKey::new(key),
            caching,
            stops: Cell::new(0),
            false_positives: Cell::new(0),
            reads: Reads::default(),
            asks_settled: Cell::new(false),
            answer: Cell::new(Answer::Fresh),
            spared: Cell::new(0),
            in_vain: Cell::new(0),
            refused: Cell::new(0),
            unfiltered: Cell::new(None),
            has_woken: Cell::new(false),
        }
    }

    /// Another lookup of the same key, which has counted nothing.
    pub fn again(&self) -> Sought<'a> {
        Sought { hashed: self.hashed.clone(), ..Sought::new(self.key(), self.caching) }
    }

    /// Counts what `other` counted, a lookup of the same key, as its own.
    pub fn absorb(&self, other: &Sought<'_>) {
        for (own, others) in [
            (&self.stops, &other.stops),
            (&self.false_positives, &other.false_positives),
            (&self.reads.requests, &other.reads.requests),
            (&self.in_vain, &other.in_vain),
            (&self.refused, &other.refused),
        ] {
            own.update(|count| count + others.take());
        }
        self.has_woken.set(self.has_woken.get() || other.has_woken.get());
        self.unfiltered.set(self.unfiltered.get().or(other.unfiltered.get()));
    }

    /// The key.
    pub fn key(&self) -> &'a [u8] {
        self.hashed.key()
    }

    /// Whether it brought a filter into memory: somebody should see what that leaves to others.
    pub fn has_woken(&self) -> bool {
        self.has_woken.get()
    }

    /// The key, to be hashed once.
    pub fn hashed(&self) -> &HashedKey<'a> {
        &self.hashed
    }

    pub(super) fn hash(&self) -> u64 {
        self.hashed.hash()
    }

    /// A filter ended the lookup for so many tables.
    pub fn stop(&self, tables: usize) {
        self.stops.update(|stops| stops + tables as u64);
    }

    /// A table's own filter ended the lookup there.
    pub(super) fn refuse(&self) {
        self.stop(1);
        if !self.asks_settled.get() {
            self.refused.update(|count| count + 1);
        }
    }

    /// It has found nothing in runs, and one filter over them would have spared it asking so many.
    pub fn pass(&self, spares: u64) {
        self.spared.update(|spared| spared + spares);
    }

    /// The block of a table that must hold the key does not.
    pub(super) fn miss(&self) {
        if !self.asks_settled.get() {
            self.in_vain.update(|count| count + 1);
        }
    }

    /// How many tables that are not settled were asked in vain, and their filters had not said so.
    pub fn asked_in_vain(&self) -> u64 {
        self.in_vain.get()
    }

    /// How many tables that are not settled refused it by filters of their own, before another had the key. None if none had.
    pub fn refused(&self) -> u64 {
        if self.answer.get() == Answer::Nothing { 0 } else { self.refused.get() }
    }

    /// How many it would have been spared.
    pub fn spared(&self) -> u64 {
        self.spared.get()
    }

    /// A table without a filter, if this lookup has paid the last of what making one costs.
    pub fn unfiltered(&self) -> Option<TableId> {
        self.unfiltered.get()
    }

    /// What becomes of blocks that it has to read.
    pub fn caching(&self) -> Caching {
        self.caching
    }

    /// The settled run is asked.
    pub fn reach_settled(&self) {
        self.asks_settled.set(true);
        self.answer.set(Answer::Block);
    }

    /// What answered is not settled, though the settled run was asked too.
    pub fn answer_fresh(&self) {
        self.answer.set(Answer::Fresh);
    }

    /// What the one asked last said; an error if it failed.
    pub fn end<E>(&self, found: std::result::Result<&Lookup, &E>) {
        let is_settled = self.answer.get() == Answer::Block;
        let is_nothing = match found {
            Ok(Lookup::Value(_) | Lookup::Pointer(_)) => false,
            Ok(Lookup::Removed) => is_settled,
            Ok(Lookup::Absent) | Err(_) => true,
        };
        if is_nothing {
            self.answer.set(Answer::Nothing);
        }
    }

    /// The value of the answer is kept apart, and read.
    pub fn load_apart(&self) {
        if self.answer.get() == Answer::Block {
            self.answer.set(Answer::Apart);
        }
    }

    /// Adds itself, and what it came to, to `metrics`.
    pub fn count(&self, metrics: &ReadMetrics) {
        let (requests, stops) = (self.reads.requests.take(), self.stops.take());
        metrics.lookups.count(self.answer.get(), self.asks_settled.get(), stops, requests);
        let false_positives = self.false_positives.take();
        if false_positives > 0 {
            metrics.filter_false_positives.fetch_add(false_positives, Relaxed);
        }
    }
}
