//! Fresh writes of one keyspace, in memory and in order: every version since the last rotation.
//!
//! A concurrent skip list ordered by key, then by sequence number downwards. Writers insert without
//! locks; readers see an entry or not, and filter by the visible sequence number of their snapshot.
//! Keys and values stay where their commit was encoded: a version points into the payload, and keeps
//! the key's first eight bytes beside the pointer, so that most comparisons follow none.
//! Of a very long value it holds the pointer, and the segment that leads into ([`streamed`]).
//!
//! Ranges of keys that were removed stand beside the list ([`removals`]): a version is hidden by a newer
//! range that covers its key. A reader who sees no ranges pays for one load. What ranges emptied at either end is not
//! walked over ([`emptied`]).
//!
//! A memtable never knows the log, a file, or another memtable.

mod cursor;
mod emptied;
mod positions;
mod presence;
mod removals;
mod streamed;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use crossbeam_skiplist::SkipSet;

use self::emptied::{Emptied, End};
use self::positions::Positions;
use self::presence::Presence;
use self::removals::{RANGE_OVERHEAD_BYTES, Removals};
use crate::format::batch::Op;
use crate::format::bytes::first_eight;
use crate::format::checksum::{HashedKey, key_hash};
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::Ranges;
use crate::format::value::LOGGED_TAG_BYTES;
use crate::memory::Shared;
use crate::slice::{Lookup, Slice};
use streamed::Streamed;

/// What an entry takes besides its key and value, reckoned, not measured, and 8 more: a version (56 bytes), the
/// skip list's node with a tower of two on average (24), the allocator's header (16) and the operation's
/// own header in the payload (about 8). Its share of [`Presence`] (2 to 18) is counted apart
/// ([`Memtable::filter_bytes`]).
const ENTRY_OVERHEAD_BYTES: usize = 112;
/// The most that an operation takes beside its key and value.
pub const MOST_OVERHEAD_BYTES: usize = ENTRY_OVERHEAD_BYTES + RANGE_OVERHEAD_BYTES;

/// So many versions are looked at for newer ones, at most, when a range is removed that is open at an end.
const LOOKED_AT: usize = 4096;

/// One version of a key, in the payload it was committed with.
#[derive(Clone)]
struct Version {
    payload: Shared,
    /// The key's first eight bytes, big-endian, zeros behind its end.
    head: u64,
    start: u32,
    key_length: u32,
    value_length: u32,
    kind: Kind,
    sequence: SequenceNumber,
}

impl Version {
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.start as usize + self.key_length as usize;
        start..start + self.value_length as usize
    }

    fn key(&self) -> &[u8] {
        &self.payload[self.start as usize..][..self.key_length as usize]
    }

    fn value(&self) -> &[u8] {
        &self.payload[self.range()]
    }

    fn value_slice(&self) -> Slice {
        Slice::of_shared(self.payload.clone(), self.range())
    }
}

/// What the order of versions depends on; lets a search borrow its key.
trait Place {
    fn head(&self) -> u64;
    fn key(&self) -> &[u8];
    fn sequence(&self) -> SequenceNumber;
}

impl Place for Version {
    fn head(&self) -> u64 {
        self.head
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn sequence(&self) -> SequenceNumber {
        self.sequence
    }
}

/// A place to search for.
struct Target<'a> {
    head: u64,
    key: &'a [u8],
    sequence: SequenceNumber,
}

impl<'a> Target<'a> {
    fn new(key: &'a [u8], sequence: SequenceNumber) -> Target<'a> {
        Target { head: first_eight(key), key, sequence }
    }
}

impl Place for Target<'_> {
    fn head(&self) -> u64 {
        self.head
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn sequence(&self) -> SequenceNumber {
        self.sequence
    }
}

fn compare<A: Place + ?Sized, B: Place + ?Sized>(a: &A, b: &B) -> Ordering {
    // Equal heads say nothing: a key may end in zeros, or go on.
    let keys = a.head().cmp(&b.head()).then_with(|| a.key().cmp(b.key()));
    keys.then_with(|| b.sequence().cmp(&a.sequence()))
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        compare(self, other)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Version) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

impl<'a> Ord for dyn Place + 'a {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self, other)
    }
}

impl<'a> PartialOrd for dyn Place + 'a {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> PartialEq for dyn Place + 'a {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<'a> Eq for dyn Place + 'a {}

impl<'a> Borrow<dyn Place + 'a> for Version {
    fn borrow(&self) -> &(dyn Place + 'a) {
        self
    }
}

/// Fresh writes of one keyspace. See the module page.
pub struct Memtable {
    versions: SkipSet<Version>,
    /// Of all keys in the list.
    presence: Presence,
    removals: Removals,
    emptied: Emptied,
    size_bytes: AtomicUsize,
    tombstones: AtomicUsize,
    /// The smallest sequence number that goes here; 0 while empty.
    first: AtomicU64,
    /// The first number of the last commit that goes here; 0 while there is none.
    latest: AtomicU64,
    /// The segments that its pointers lead into.
    pub streamed: Streamed,
    /// The external positions that its commits carry.
    pub positions: Positions,
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memtable({} bytes from {})", self.size_bytes(), self.first_sequence())
    }
}

impl Default for Memtable {
    fn default() -> Memtable {
        Memtable {
            versions: SkipSet::new(),
            presence: Presence::default(),
            removals: Removals::default(),
            emptied: Emptied::default(),
            size_bytes: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            first: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            streamed: Streamed::default(),
            positions: Positions::default(),
        }
    }
}

impl Memtable {
    /// Says that operations from `sequence` on will come here. Called in log order, before they do:
    /// from then on the log keeps them.
    pub fn expect(&self, sequence: SequenceNumber) {
        if self.first.load(Relaxed) == 0 {
            self.first.store(sequence, Relaxed);
        }
        self.latest.store(sequence, Relaxed);
        if self.has_ranges() {
            self.emptied.arm(sequence);
        }
    }

    /// Takes one operation of `payload`, which it keeps alive.
    pub fn insert(&self, payload: &Shared, op: &Op<'_>, sequence: SequenceNumber) {
        self.size_bytes.fetch_add(op.key_and_value.len() + ENTRY_OVERHEAD_BYTES, Relaxed);
        match op.kind {
            Kind::Tombstone => _ = self.tombstones.fetch_add(1, Relaxed),
            Kind::RangeTombstone => return self.remove_range(payload, op, sequence),
            _ => {}
        }
        let (key, value) = op.key_and_value.split_at(op.key_length);
        let tag_bytes = if op.kind == Kind::Pointer { LOGGED_TAG_BYTES } else { 0 };
        self.presence.add(key_hash(key));
        self.versions.insert(Version {
            payload: payload.clone(),
            head: first_eight(key),
            start: op.start as u32,
            key_length: key.len() as u32,
            value_length: value.len().saturating_sub(tag_bytes) as u32,
            kind: op.kind,
            sequence,
        });
        self.emptied.wrote(key, sequence);
    }

    fn remove_range(&self, payload: &[u8], op: &Op<'_>, sequence: SequenceNumber) {
        self.size_bytes.fetch_add(RANGE_OVERHEAD_BYTES, Relaxed);
        let middle = op.start + op.key_length;
        let bytes = |range| payload.get(range).map_or_else(Bytes::new, Bytes::copy_from_slice);
        let start = bytes(op.start..middle);
        let end = bytes(middle..op.start + op.key_and_value.len());
        let end = (!end.is_empty()).then_some(end);
        self.removals.add(start.clone(), end.clone(), sequence);
        match end {
            None => self.emptied.removed(End::Back, start, sequence, |from, until| {
                self.finds_newer(from, until, sequence)
            }),
            Some(end) if start.is_empty() => {
                self.emptied.removed(End::Front, end, sequence, |until, from| {
                    self.finds_newer(from.unwrap_or_default(), Some(until), sequence)
                });
            }
            Some(_) => {}
        }
    }

    /// Whether a version from `from` on and below `until` is above `sequence`, or there are too many to look at.
    fn finds_newer(&self, from: &[u8], until: Option<&[u8]>, sequence: SequenceNumber) -> bool {
        let place: &dyn Place = &Target::new(from, SequenceNumber::MAX);
        let mut next = self.versions.lower_bound(Bound::Included(place));
        for _ in 0..LOOKED_AT {
            let Some(entry) = next else { return false };
            if until.is_some_and(|until| entry.key() >= until) {
                return false;
            }
            if entry.sequence > sequence {
                return true;
            }
            next = entry.next();
        }
        true
    }

    /// Takes one operation, and a copy of its key and value.
    pub fn insert_copy(&self, op: &Op<'_>, sequence: SequenceNumber) {
        let payload = Shared::from(op.key_and_value.to_vec());
        self.insert(&payload, &Op { start: 0, ..*op }, sequence);
    }

    /// Whether it is to be flushed, where it may take `memtable_bytes`.
    pub fn is_full(&self, memtable_bytes: usize) -> bool {
        self.size_bytes() >= memtable_bytes || self.streamed.is_much(memtable_bytes)
    }

    /// What it takes in memory, about.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes.load(Relaxed)
    }

    /// The keys and values in it, bytes: what a flush writes at most, about.
    pub fn put_bytes(&self) -> u64 {
        let entries = self.versions.len() * ENTRY_OVERHEAD_BYTES;
        let ranges = self.removals.count() * (ENTRY_OVERHEAD_BYTES + RANGE_OVERHEAD_BYTES);
        self.size_bytes().saturating_sub(entries + ranges) as u64
    }

    /// What its filter takes beside that, bytes.
    pub fn filter_bytes(&self) -> usize {
        self.presence.bytes()
    }

    /// Whether any range of keys was removed here.
    pub fn has_ranges(&self) -> bool {
        self.removals.count() > 0
    }

    /// The keys in ranges that were removed here up to `visible`.
    pub fn ranges(&self, visible: SequenceNumber) -> Ranges {
        self.removals.now().map_or_else(Ranges::default, |removed| removed.union(visible))
    }

    /// How many versions it holds, and how many of them are tombstones.
    pub fn counts(&self) -> (u64, u64) {
        (self.versions.len() as u64, self.tombstones.load(Relaxed) as u64)
    }

    /// How many keys and ranges were removed here.
    pub fn removed(&self) -> u64 {
        (self.tombstones.load(Relaxed) + self.removals.count()) as u64
    }

    /// The smallest sequence number that went here; 0 if none did.
    pub fn first_sequence(&self) -> SequenceNumber {
        self.first.load(Relaxed)
    }

    /// The first number of the last commit that goes here, in it already or not; 0 if there is none.
    /// Whoever gives out numbers knows which is the last; others see one of the last ones.
    pub fn latest_commit(&self) -> SequenceNumber {
        self.latest.load(Relaxed)
    }

    /// Whether any key in `first..=last` (`None`: to the end) has a version above `sequence`, or lies in
    /// a range removed above it.
    pub fn changed_within(
        &self,
        first: &[u8],
        last: Option<&[u8]>,
        sequence: SequenceNumber,
    ) -> bool {
        let removed = self.removals.now();
        if removed.is_some_and(|removed| removed.changed_within(first, last, sequence)) {
            return true;
        }
        let [front, back] = [End::Front, End::Back].map(|end| self.emptied.bound(end, sequence));
        let first = front.as_deref().map_or(first, |front| front.max(first));
        let place: &dyn Place = &Target::new(first, SequenceNumber::MAX);
        let mut next = self.versions.lower_bound(Bound::Included(place));
        while let Some(newest) = next {
            let key = newest.key();
            if last.is_some_and(|last| key > last) || back.as_deref().is_some_and(|b| key >= b) {
                return false;
            }
            if newest.sequence > sequence {
                return true;
            }
            // All versions of a key sort up to sequence number 0, the newest first.
            let place: &dyn Place = &Target::new(newest.key(), 0);
            next = self.versions.lower_bound(Bound::Excluded(place));
        }
        false
    }

    /// Whether nothing was ever sent here.
    pub fn is_empty(&self) -> bool {
        self.first_sequence() == 0
    }

    /// The newest version of a key at or below `visible`.
    pub fn get(&self, hashed: &HashedKey<'_>, visible: SequenceNumber) -> Lookup {
        // Whoever sees a number as visible sees that it was expected here.
        if self.is_empty() {
            return Lookup::Absent;
        }
        let key = hashed.key();
        let removed =
            if self.removals.count() == 0 { 0 } else { self.removals.newest(key, visible) };
        if self.presence.may_hold(hashed.hash()) {
            let place: &dyn Place = &Target::new(key, visible);
            match self.versions.lower_bound(Bound::Included(place)) {
                Some(found) if found.key() == key && found.sequence > removed => {
                    return match found.kind {
                        Kind::Value => Lookup::Value(found.value_slice()),
                        Kind::Pointer => Lookup::Pointer(found.value_slice()),
                        _ => Lookup::Removed,
                    };
                }
                _ => {}
            }
        }
        if removed > 0 { Lookup::Removed } else { Lookup::Absent }
    }
}

#[cfg(test)]
mod tests;
