//! Fresh writes of one keyspace, in memory and in order: every version since the last rotation.
//!
//! A concurrent skip list ordered by key, then by sequence number downwards. Writers insert without
//! locks; readers see an entry or not, and filter by the visible sequence number of their snapshot.
//! A memtable never knows the log, a file, or another memtable.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crossbeam_skiplist::SkipSet;

use crate::cursor::{Cursor, Seek};
use crate::error::Result;
use crate::format::batch::Op;
use crate::format::entry::{Kind, SequenceNumber};
use crate::slice::{Lookup, Slice};

/// What an entry takes besides its key and value: node, tower, counts, allocator (measured with
/// values of 16 and 1016 bytes; see docs/MEASURED.md).
const ENTRY_OVERHEAD_BYTES: usize = 112;

/// One version of a key. Key and value stand next to each other in one allocation.
#[derive(Clone)]
struct Version {
    key_and_value: Arc<[u8]>,
    key_length: u32,
    kind: Kind,
    sequence: SequenceNumber,
}

impl Version {
    fn key(&self) -> &[u8] {
        &self.key_and_value[..self.key_length as usize]
    }

    fn value(&self) -> &[u8] {
        &self.key_and_value[self.key_length as usize..]
    }

    fn value_slice(&self) -> Slice {
        let range = self.key_length as usize..self.key_and_value.len();
        Slice::of_bytes(self.key_and_value.clone(), range)
    }
}

/// What the order of versions depends on; lets a search borrow its key.
trait Place {
    fn place(&self) -> (&[u8], SequenceNumber);
}

impl Place for Version {
    fn place(&self) -> (&[u8], SequenceNumber) {
        (self.key(), self.sequence)
    }
}

impl Place for (&[u8], SequenceNumber) {
    fn place(&self) -> (&[u8], SequenceNumber) {
        (self.0, self.1)
    }
}

fn compare(a: (&[u8], SequenceNumber), b: (&[u8], SequenceNumber)) -> Ordering {
    a.0.cmp(b.0).then(b.1.cmp(&a.1))
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        compare(self.place(), other.place())
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
        compare(self.place(), other.place())
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
    /// The smallest sequence number that goes here; 0 while empty.
    first: AtomicU64,
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
            first: AtomicU64::new(0),
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
    }

    /// Takes one operation.
    pub fn insert(&self, op: &Op<'_>, sequence: SequenceNumber) {
        self.size_bytes.fetch_add(op.key_and_value.len() + ENTRY_OVERHEAD_BYTES, Relaxed);
        self.versions.insert(Version {
            key_and_value: op.key_and_value.into(),
            key_length: op.key_length as u32,
            kind: op.kind,
            sequence,
        });
    }

    /// What it takes in memory, about.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes.load(Relaxed)
    }

    /// The smallest sequence number that went here; 0 if none did.
    pub fn first_sequence(&self) -> SequenceNumber {
        self.first.load(Relaxed)
    }

    /// Whether nothing was ever sent here.
    pub fn is_empty(&self) -> bool {
        self.first_sequence() == 0
    }

    /// The newest version of `key` at or below `visible`.
    pub fn get(&self, key: &[u8], visible: SequenceNumber) -> Lookup {
        let place: &dyn Place = &(key, visible);
        match self.versions.lower_bound(Bound::Included(place)) {
            Some(found) if found.key() == key => match found.kind {
                Kind::Value => Lookup::Value(found.value_slice()),
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

    /// The newest visible version of the first key after (or before) `bound`.
    fn step(&self, bound: Bound<&[u8]>, forward: bool, visible: SequenceNumber) -> Option<Version> {
        let mut key: Vec<u8>;
        let mut bound = bound;
        loop {
            let found = if forward {
                // All versions of an excluded key sort up to sequence number 0.
                match bound {
                    Bound::Included(k) => self.from(k, visible),
                    Bound::Excluded(k) => self.after(k),
                    Bound::Unbounded => self.versions.front().map(|e| e.value().clone()),
                }?
            } else {
                match bound {
                    Bound::Excluded(k) => self.before(k),
                    _ => self.versions.back().map(|e| e.value().clone()),
                }?
            };
            // Of this key, the newest visible version, if there is one.
            if let Some(version) = self.from(found.key(), visible)
                && version.key() == found.key()
            {
                return Some(version);
            }
            key = found.key().to_vec();
            bound = Bound::Excluded(&key);
        }
    }

    fn from(&self, key: &[u8], sequence: SequenceNumber) -> Option<Version> {
        let place: &dyn Place = &(key, sequence);
        self.versions.lower_bound(Bound::Included(place)).map(|e| e.value().clone())
    }

    fn after(&self, key: &[u8]) -> Option<Version> {
        let place: &dyn Place = &(key, 0);
        self.versions.lower_bound(Bound::Excluded(place)).map(|e| e.value().clone())
    }

    fn before(&self, key: &[u8]) -> Option<Version> {
        let place: &dyn Place = &(key, SequenceNumber::MAX);
        self.versions.upper_bound(Bound::Excluded(place)).map(|e| e.value().clone())
    }
}

/// How many versions a cursor fetches ahead at most.
const MAX_AHEAD: usize = 64;

/// Walks a memtable. It holds no reference into the skip list, so that it may live as long as it
/// likes; versions are fetched ahead, more of them the longer the walk.
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    visible: SequenceNumber,
    forward: bool,
    /// Versions fetched, the current one last.
    ahead: Vec<Version>,
    ahead_length: usize,
    /// The key of the furthest version fetched; `None` before a seek and at the end.
    last: Option<Vec<u8>>,
}

impl MemtableCursor {
    fn fetch(&mut self, mut bound: Bound<Vec<u8>>) {
        self.ahead.clear();
        self.last = None;
        while self.ahead.len() < self.ahead_length {
            let from = bound.as_ref().map(Vec::as_slice);
            let Some(version) = self.memtable.step(from, self.forward, self.visible) else { break };
            bound = Bound::Excluded(version.key().to_vec());
            self.ahead.push(version);
        }
        if self.ahead.len() == self.ahead_length
            && let Bound::Excluded(key) = bound
        {
            self.last = Some(key);
        }
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
            Seek::AtOrAfter(key) => Bound::Included(key.to_vec()),
            Seek::Before(key) => Bound::Excluded(key.to_vec()),
        });
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        self.ahead.pop();
        if self.ahead.is_empty()
            && let Some(last) = self.last.take()
        {
            self.fetch(Bound::Excluded(last));
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

    fn put(memtable: &Memtable, key: &str, value: Option<&str>, sequence: u64) {
        let kind = if value.is_some() { Kind::Value } else { Kind::Tombstone };
        let both = [key, value.unwrap_or_default()].concat();
        memtable.expect(sequence);
        let op = Op { keyspace: 1, kind, key_and_value: both.as_bytes(), key_length: key.len() };
        memtable.insert(&op, sequence);
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
}
