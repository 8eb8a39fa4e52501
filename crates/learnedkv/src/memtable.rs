//! Fresh writes of one keyspace, in memory and in order: every version since the last rotation.
//!
//! A concurrent skip list ordered by key, then by sequence number downwards. Writers insert without
//! locks; readers see an entry or not, and filter by the visible sequence number of their snapshot.
//! Keys and values stay where their commit was encoded: a version points into the payload, and keeps
//! the key's first eight bytes beside the pointer, so that most comparisons follow none.
//! Of a very long value it holds the pointer, and the segment that leads into ([`streamed`]).
//!
//! Ranges of keys that were removed stand beside the list ([`removals`]): a version is hidden by a newer
//! range that covers its key. A reader who sees no ranges pays for one load.
//!
//! A memtable never knows the log, a file, or another memtable.

mod positions;
mod presence;
mod removals;
mod streamed;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use crossbeam_skiplist::SkipSet;

use self::positions::Positions;
use self::presence::Presence;
use self::removals::{RANGE_OVERHEAD_BYTES, Removals, RemovedAt, Span};
use crate::cursor::{Cover, Cursor, Seek, Source};
use crate::error::Result;
use crate::format::batch::Op;
use crate::format::bytes::first_eight;
use crate::format::checksum::{HashedKey, key_hash};
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::Ranges;
use crate::format::value::LOGGED_TAG_BYTES;
use crate::slice::{Lookup, Slice};
use streamed::Streamed;

/// What an entry takes besides its key and value, reckoned, not measured: a version (64 bytes), the
/// skip list's node with a tower of two on average (24), the allocator's header (16) and the operation's
/// own header in the payload (about 8). Its share of [`Presence`] (2 to 18) is counted apart
/// ([`Memtable::filter_bytes`]).
const ENTRY_OVERHEAD_BYTES: usize = 112;

/// One version of a key, in the payload it was committed with.
#[derive(Clone)]
struct Version {
    payload: Bytes,
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
        Slice::of_bytes(self.payload.clone(), self.range())
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
    }

    /// Takes one operation of `payload`, which it keeps alive.
    pub fn insert(&self, payload: &Bytes, op: &Op<'_>, sequence: SequenceNumber) {
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
    }

    fn remove_range(&self, payload: &Bytes, op: &Op<'_>, sequence: SequenceNumber) {
        self.size_bytes.fetch_add(RANGE_OVERHEAD_BYTES, Relaxed);
        let middle = op.start + op.key_length;
        let end = payload.slice(middle..op.start + op.key_and_value.len());
        self.removals.add(
            payload.slice(op.start..middle),
            (!end.is_empty()).then_some(end),
            sequence,
        );
    }

    /// Takes one operation, and a copy of its key and value.
    pub fn insert_copy(&self, op: &Op<'_>, sequence: SequenceNumber) {
        let payload = Bytes::copy_from_slice(op.key_and_value);
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
        let place: &dyn Place = &Target::new(first, SequenceNumber::MAX);
        let mut next = self.versions.lower_bound(Bound::Included(place));
        while let Some(newest) = next {
            if last.is_some_and(|last| newest.key() > last) {
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

    /// Its entries at or below `visible`, and what it says is gone from older data.
    pub fn source(self: &Arc<Memtable>, visible: SequenceNumber) -> Source {
        self.source_of(Walked::Kept(self.clone()), visible)
    }

    /// As [`Memtable::source`], which does not keep the memtable: whoever moves it does, as long as that takes.
    pub fn lent_source(self: &Arc<Memtable>, visible: SequenceNumber) -> Source {
        self.source_of(Walked::Lent(Arc::downgrade(self)), visible)
    }

    fn source_of(&self, memtable: Walked, visible: SequenceNumber) -> Source {
        let removed = self.removals.now();
        let cover =
            removed.map(|removed| -> Box<dyn Cover> { Box::new(RemovedAt::new(removed, visible)) });
        Source::new(Box::new(self.cursor_of(memtable, visible)), cover)
    }

    /// Walks the newest versions at or below `visible`, without those in ranges removed since.
    pub fn cursor(self: &Arc<Memtable>, visible: SequenceNumber) -> MemtableCursor {
        self.cursor_of(Walked::Kept(self.clone()), visible)
    }

    fn cursor_of(&self, memtable: Walked, visible: SequenceNumber) -> MemtableCursor {
        MemtableCursor {
            memtable,
            seen: Seen {
                visible,
                removed: self.removals.now().map(|removed| RemovedAt::new(removed, visible)),
                span: None,
            },
            forward: true,
            ahead: Vec::new(),
            ahead_length: 1,
            last: None,
        }
    }

    /// Up to `count` versions from `bound` on, upwards: of each key the newest visible one.
    fn upwards(&self, bound: Bound<&[u8]>, reader: &mut Seen, count: usize) -> Vec<Version> {
        let found = match bound {
            Bound::Unbounded => self.versions.front(),
            Bound::Included(key) => {
                let place: &dyn Place = &Target::new(key, SequenceNumber::MAX);
                self.versions.lower_bound(Bound::Included(place))
            }
            Bound::Excluded(key) => {
                // All versions of an excluded key sort up to sequence number 0.
                let place: &dyn Place = &Target::new(key, 0);
                self.versions.lower_bound(Bound::Excluded(place))
            }
        };
        let mut versions: Vec<Version> = Vec::with_capacity(count);
        let mut next = found;
        while let Some(entry) = next
            && versions.len() < count
        {
            // Newest first: the first visible version of a key is the one, older ones are not.
            let seen =
                versions.last().is_some_and(|last| compare_keys(last, entry.value()).is_eq());
            if entry.sequence <= reader.visible && !seen && !reader.hides(entry.value()) {
                versions.push(entry.value().clone());
            }
            next = entry.next();
        }
        versions
    }

    /// Up to `count` versions below `bound`, downwards: of each key the newest visible one.
    fn downwards(&self, bound: Bound<&[u8]>, reader: &mut Seen, count: usize) -> Vec<Version> {
        let mut next = match bound {
            Bound::Excluded(key) => {
                let place: &dyn Place = &Target::new(key, SequenceNumber::MAX);
                self.versions.upper_bound(Bound::Excluded(place))
            }
            _ => self.versions.back(),
        };
        let mut versions: Vec<Version> = Vec::with_capacity(count);
        while let Some(entry) = next {
            // Oldest first: each newer visible version of a key takes the older one's place.
            if entry.sequence <= reader.visible && !reader.hides(entry.value()) {
                let seen =
                    versions.last().is_some_and(|last| compare_keys(last, entry.value()).is_eq());
                if seen {
                    versions.pop();
                } else if versions.len() == count {
                    break;
                }
                versions.push(entry.value().clone());
            }
            next = entry.prev();
        }
        versions
    }
}

fn compare_keys(a: &Version, b: &Version) -> Ordering {
    a.head.cmp(&b.head).then_with(|| a.key().cmp(b.key()))
}

/// What a reader sees of versions and ranges.
struct Seen {
    visible: SequenceNumber,
    removed: Option<RemovedAt>,
    /// What was said of the last key.
    span: Option<Span>,
}

impl Seen {
    /// Whether a newer range covers a version.
    fn hides(&mut self, version: &Version) -> bool {
        let Some(removed) = &mut self.removed else { return false };
        let key = version.key();
        let span = match self.span.take() {
            Some(span) if span.contains(key) => span,
            _ => removed.span(key),
        };
        self.span.insert(span).sequence > version.sequence
    }
}

/// The memtable of a cursor.
enum Walked {
    /// It is alive as long as the cursor.
    Kept(Arc<Memtable>),
    /// It is alive whenever the cursor is moved.
    Lent(Weak<Memtable>),
}

/// How many versions a cursor fetches ahead at most.
const MAX_AHEAD: usize = 256;
/// The same of a memtable that is lent: what was fetched keeps the payloads that it is of, each up to a piece of many
/// ([`crate::engine`]), when the memtable is gone.
const MAX_AHEAD_LENT: usize = 8;

/// Walks a memtable. It holds no reference into the skip list, so that it may live as long as it
/// likes; versions are fetched ahead, more of them the longer the walk.
pub struct MemtableCursor {
    memtable: Walked,
    seen: Seen,
    forward: bool,
    /// Versions fetched, the current one last.
    ahead: Vec<Version>,
    ahead_length: usize,
    /// The furthest version fetched; `None` before a seek and at the end.
    last: Option<Version>,
}

impl MemtableCursor {
    fn fetch(&mut self, bound: Bound<&[u8]>) {
        let walk = if self.forward { Memtable::upwards } else { Memtable::downwards };
        let lent;
        let (memtable, most) = match &self.memtable {
            Walked::Kept(memtable) => (memtable, MAX_AHEAD),
            Walked::Lent(memtable) => {
                lent = memtable.upgrade().expect("whoever moves the cursor keeps it");
                (&lent, MAX_AHEAD_LENT)
            }
        };
        self.ahead = walk(memtable, bound, &mut self.seen, self.ahead_length);
        let whole = self.ahead.len() == self.ahead_length;
        self.last = self.ahead.last().filter(|_| whole).cloned();
        self.ahead_length = (self.ahead_length * 2).min(most);
        self.ahead.reverse();
    }

    fn version(&self) -> &Version {
        self.ahead.last().expect("a cursor past its end has no entry")
    }
}

impl Cursor for MemtableCursor {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        self.forward = to.is_forward();
        self.ahead_length = 1;
        self.fetch(match to {
            Seek::First | Seek::Last => Bound::Unbounded,
            Seek::AtOrAfter(key) => Bound::Included(key),
            Seek::Before(key) => Bound::Excluded(key),
        });
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        self.ahead.pop();
        if self.ahead.is_empty()
            && let Some(last) = self.last.take()
        {
            self.fetch(Bound::Excluded(last.key()));
        }
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        self.ahead.last().map(Version::key)
    }

    fn kind(&self) -> (Kind, SequenceNumber) {
        (self.version().kind, self.version().sequence)
    }

    fn value(&self) -> &[u8] {
        self.version().value()
    }

    fn value_slice(&self) -> Slice {
        self.version().value_slice()
    }
}

#[cfg(test)]
mod tests;
