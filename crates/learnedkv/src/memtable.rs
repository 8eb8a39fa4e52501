//! Fresh writes of one keyspace, in memory and in order: every version since the last rotation.
//!
//! A concurrent skip list ordered by key, then by sequence number downwards. Writers insert without
//! locks; readers see an entry or not, and filter by the visible sequence number of their snapshot.
//! Keys and values stay where their commit was encoded: a version points into the payload, and keeps
//! the key's first eight bytes beside the pointer, so that most comparisons follow none.
//! Of a very long value it holds the pointer, and the segment that leads into ([`streamed`]).
//! A memtable never knows the log, a file, or another memtable.

mod streamed;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use crossbeam_skiplist::SkipSet;

use crate::cursor::{Cursor, Seek};
use crate::error::Result;
use crate::format::batch::Op;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::value::LOGGED_TAG_BYTES;
use crate::slice::{Lookup, Slice};
use streamed::Streamed;

/// What an entry takes besides its key and value, reckoned, not measured: a version (64 bytes), the
/// skip list's node with a tower of two on average (24), the allocator's header (16), the operation's
/// own header in the payload (about 8).
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

/// The first eight bytes of a key as a number that compares as they do.
fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
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
        Target { head: head(key), key, sequence }
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
    size_bytes: AtomicUsize,
    tombstones: AtomicUsize,
    /// The smallest sequence number that goes here; 0 while empty.
    first: AtomicU64,
    /// The first number of the last commit that goes here; 0 while there is none.
    latest: AtomicU64,
    /// The segments that its pointers lead into.
    pub streamed: Streamed,
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
            size_bytes: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            first: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            streamed: Streamed::default(),
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
        if op.kind == Kind::Tombstone {
            self.tombstones.fetch_add(1, Relaxed);
        }
        let (key, value) = op.key_and_value.split_at(op.key_length);
        let tag_bytes = if op.kind == Kind::Pointer { LOGGED_TAG_BYTES } else { 0 };
        self.versions.insert(Version {
            payload: payload.clone(),
            head: head(key),
            start: op.start as u32,
            key_length: key.len() as u32,
            value_length: value.len().saturating_sub(tag_bytes) as u32,
            kind: op.kind,
            sequence,
        });
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

    /// Whether any key in `first..=last` (`None`: to the end) has a version above `sequence`.
    pub fn changed_within(
        &self,
        first: &[u8],
        last: Option<&[u8]>,
        sequence: SequenceNumber,
    ) -> bool {
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

    /// The newest version of `key` at or below `visible`.
    pub fn get(&self, key: &[u8], visible: SequenceNumber) -> Lookup {
        let place: &dyn Place = &Target::new(key, visible);
        match self.versions.lower_bound(Bound::Included(place)) {
            Some(found) if found.key() == key => match found.kind {
                Kind::Value => Lookup::Value(found.value_slice()),
                Kind::Pointer => Lookup::Pointer(found.value_slice()),
                _ => Lookup::Removed,
            },
            _ => Lookup::Absent,
        }
    }

    /// Walks the newest versions at or below `visible`.
    pub fn cursor(self: &Arc<Memtable>, visible: SequenceNumber) -> MemtableCursor {
        MemtableCursor {
            memtable: self.clone(),
            visible,
            forward: true,
            ahead: Vec::new(),
            ahead_length: 1,
            last: None,
        }
    }

    /// Up to `count` versions from `bound` on, upwards: of each key the newest visible one.
    fn upwards(&self, bound: Bound<&[u8]>, visible: SequenceNumber, count: usize) -> Vec<Version> {
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
            if entry.sequence <= visible && !seen {
                versions.push(entry.value().clone());
            }
            next = entry.next();
        }
        versions
    }

    /// Up to `count` versions below `bound`, downwards: of each key the newest visible one.
    fn downwards(
        &self,
        bound: Bound<&[u8]>,
        visible: SequenceNumber,
        count: usize,
    ) -> Vec<Version> {
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
            if entry.sequence <= visible {
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

/// How many versions a cursor fetches ahead at most.
const MAX_AHEAD: usize = 256;

/// Walks a memtable. It holds no reference into the skip list, so that it may live as long as it
/// likes; versions are fetched ahead, more of them the longer the walk.
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    visible: SequenceNumber,
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
        self.ahead = walk(&self.memtable, bound, self.visible, self.ahead_length);
        let whole = self.ahead.len() == self.ahead_length;
        self.last = self.ahead.last().filter(|_| whole).cloned();
        self.ahead_length = (self.ahead_length * 2).min(MAX_AHEAD);
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
mod tests {
    use super::*;
    use crate::format::batch::{Ops, put_op};

    fn put(memtable: &Memtable, key: &str, value: Option<&str>, sequence: u64) {
        let kind = if value.is_some() { Kind::Value } else { Kind::Tombstone };
        let mut payload = Vec::new();
        put_op(&mut payload, 1, kind, key.as_bytes(), value.unwrap_or_default().as_bytes());
        let payload = Bytes::from(payload);
        memtable.expect(sequence);
        for op in Ops::new(&payload) {
            memtable.insert(&payload, &op.unwrap(), sequence);
        }
    }

    fn walk(memtable: &Arc<Memtable>, visible: u64, seek: Seek<'_>) -> String {
        let mut cursor = memtable.cursor(visible);
        cursor.seek(seek).unwrap();
        let mut out = Vec::new();
        while let Some(key) = cursor.key() {
            let (kind, sequence) = cursor.kind();
            let mark = if kind == Kind::Value { "=" } else { "-" };
            let (key, value) =
                (String::from_utf8_lossy(key), String::from_utf8_lossy(cursor.value()));
            out.push(format!("{key}{mark}{value}@{sequence}"));
            cursor.advance().unwrap();
        }
        out.join(" ")
    }

    #[test]
    fn readers_see_the_newest_version_they_may_see() {
        let memtable = Arc::new(Memtable::default());
        put(&memtable, "b", Some("1"), 1);
        put(&memtable, "a", Some("2"), 2);
        put(&memtable, "b", None, 3);
        put(&memtable, "b", Some("4"), 4);
        put(&memtable, "", Some("empty"), 5);
        put(&memtable, "c", Some("6"), 6);
        assert_eq!(memtable.get(b"b", 2), Lookup::Value(Slice::copy_from(b"1")));
        assert_eq!(memtable.get(b"b", 3), Lookup::Removed);
        assert_eq!(memtable.get(b"b", 9), Lookup::Value(Slice::copy_from(b"4")));
        assert_eq!(memtable.get(b"a", 1), Lookup::Absent);
        assert_eq!(memtable.first_sequence(), 1);
        assert_eq!(walk(&memtable, 9, Seek::First), "=empty@5 a=2@2 b=4@4 c=6@6");
        assert_eq!(walk(&memtable, 3, Seek::First), "a=2@2 b-@3");
        assert_eq!(walk(&memtable, 3, Seek::Last), "b-@3 a=2@2");
        assert_eq!(walk(&memtable, 9, Seek::Before(b"b")), "a=2@2 =empty@5");
        assert_eq!(walk(&memtable, 9, Seek::AtOrAfter(b"aa")), "b=4@4 c=6@6");
        assert_eq!(walk(&memtable, 1, Seek::AtOrAfter(b"b")), "b=1@1");
        assert_eq!(walk(&memtable, 0, Seek::Last), "");
    }

    #[test]
    fn changes_are_found_in_their_range_and_above_their_number() {
        let memtable = Arc::new(Memtable::default());
        for (key, sequence) in [("b", 1), ("d", 2), ("b", 3), ("c", 4), ("d", 5), ("b", 6)] {
            put(&memtable, key, (sequence != 4).then_some("v"), sequence);
        }
        assert_eq!(memtable.latest_commit(), 6);
        let newest = [("b", 6), ("c", 4), ("d", 5)];
        for first in ["", "a", "b", "b\0", "c", "d", "e"] {
            for last in [None, Some("a"), Some("b"), Some("bb"), Some("c"), Some("d"), Some("z")] {
                for sequence in 0..8 {
                    let inside = |key: &str| key >= first && last.is_none_or(|last| key <= last);
                    let expected = newest.iter().any(|(key, s)| inside(key) && *s > sequence);
                    let last = last.map(str::as_bytes);
                    let found = memtable.changed_within(first.as_bytes(), last, sequence);
                    assert_eq!(found, expected, "{first:?} to {last:?} above {sequence}");
                }
            }
        }
    }

    #[test]
    fn long_walks_both_ways_miss_nothing() {
        let memtable = Arc::new(Memtable::default());
        for i in 0..1000u64 {
            put(&memtable, &format!("{:04}", i * 7 % 1000), Some("x"), i + 1);
        }
        let up = walk(&memtable, 1000, Seek::First);
        let mut down: Vec<_> =
            walk(&memtable, 1000, Seek::Last).split(' ').map(String::from).collect();
        down.reverse();
        assert_eq!(up.split(' ').count(), 1000);
        assert_eq!(up, down.join(" "));
    }

    /// Several versions of each key, more keys than are fetched at once, at every number, both ways.
    #[test]
    fn walks_at_every_number_find_of_each_key_the_newest_version_below_it() {
        let memtable = Arc::new(Memtable::default());
        let mut written: Vec<(String, u64)> = Vec::new();
        for sequence in 1..=90u64 {
            // Each key three times, its versions far apart; every seventh operation removes.
            let key = format!("{:02}", sequence * 7 % 30);
            let value = (sequence % 7 > 0).then(|| format!("v{sequence}"));
            put(&memtable, &key, value.as_deref(), sequence);
            written.push((key, sequence));
        }
        for visible in 0..=90 {
            let newest: std::collections::BTreeMap<_, _> =
                written.iter().filter(|(_, sequence)| *sequence <= visible).cloned().collect();
            let shown = |(key, sequence): (&String, &u64)| match sequence % 7 {
                0 => format!("{key}-@{sequence}"),
                _ => format!("{key}=v{sequence}@{sequence}"),
            };
            let up: Vec<_> = newest.iter().map(shown).collect();
            let down: Vec<_> = newest.iter().rev().map(shown).collect();
            assert_eq!(walk(&memtable, visible, Seek::First), up.join(" "), "up at {visible}");
            assert_eq!(walk(&memtable, visible, Seek::Last), down.join(" "), "down at {visible}");
        }
    }
}
