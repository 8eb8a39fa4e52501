//! Walks over a memtable, both ways.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use super::emptied::End;
use super::removals::{RemovedAt, Span};
use super::{Memtable, Place, Target, Version};
use crate::cursor::{Cover, Cursor, Seek, Source};
use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::memory;
use crate::slice::Slice;

impl Memtable {
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

    pub(super) fn cursor_of(&self, memtable: Walked, visible: SequenceNumber) -> MemtableCursor {
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
        let front = self.emptied.bound(End::Front, reader.visible);
        let is_below = |front: &[u8]| match bound {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => key < front,
        };
        let bound = match front.as_deref().filter(|front| is_below(front)) {
            Some(front) => Bound::Included(front),
            None => bound,
        };
        let back = self.emptied.bound(End::Back, reader.visible);
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
            if entry.sequence <= reader.visible && !seen {
                if !reader.hides(entry.value()) {
                    versions.push(entry.value().clone());
                } else if back.as_deref().is_some_and(|back| entry.key() >= back) {
                    break;
                }
            }
            next = entry.next();
        }
        versions
    }

    /// Up to `count` versions below `bound`, downwards: of each key the newest visible one.
    fn downwards(&self, bound: Bound<&[u8]>, reader: &mut Seen, count: usize) -> Vec<Version> {
        let back = self.emptied.bound(End::Back, reader.visible);
        let bound = match (back.as_deref(), bound) {
            (Some(back), Bound::Excluded(key)) if key <= back => Bound::Excluded(key),
            (Some(back), _) => Bound::Excluded(back),
            (None, bound) => bound,
        };
        let front = self.emptied.bound(End::Front, reader.visible);
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
            let is_visible = entry.sequence <= reader.visible;
            let is_hidden = is_visible && reader.hides(entry.value());
            if is_hidden && front.as_deref().is_some_and(|front| entry.key() < front) {
                break;
            }
            if is_visible && !is_hidden {
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

/// The processor is asked for a version's key and value, up to so many bytes, while it is so many entries away: they lie where their
/// commit put them, each at a place of its own, and a walk would wait for memory at each.
const FETCHED_BYTES: usize = 1024;
const FETCHED_ENTRIES: usize = 4;

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
pub(super) enum Walked {
    /// It is alive as long as the cursor.
    Kept(Arc<Memtable>),
    /// It is alive whenever the cursor is moved.
    Lent(Weak<Memtable>),
}

/// How many versions a cursor fetches ahead at most.
pub(super) const MAX_AHEAD: usize = 256;
/// The same of a memtable that is lent: what was fetched keeps the payloads that it is of, each up to a piece of many
/// ([`crate::engine`]), when the memtable is gone.
pub(super) const MAX_AHEAD_LENT: usize = 8;

/// Walks a memtable. It holds no reference into the skip list, so that it may live as long as it
/// likes; versions are fetched ahead, more of them the longer the walk.
pub struct MemtableCursor {
    memtable: Walked,
    seen: Seen,
    forward: bool,
    /// Versions fetched, the current one last.
    pub(super) ahead: Vec<Version>,
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
        (0..FETCHED_ENTRIES).for_each(|away| self.fetch_payload(away));
    }

    /// Has the processor fetch what a version is of that comes so many entries later, if it was fetched.
    fn fetch_payload(&self, away: usize) {
        if let Some(version) = self.ahead.iter().nth_back(away) {
            let bytes = version.payload.get(version.start as usize..).unwrap_or_default();
            let length = (version.key_length + version.value_length) as usize;
            memory::fetch_ahead(&bytes[..bytes.len().min(length).min(FETCHED_BYTES)]);
        }
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
        } else {
            self.fetch_payload(FETCHED_ENTRIES - 1);
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
