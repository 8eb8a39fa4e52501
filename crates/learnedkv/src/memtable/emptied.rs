//! Where a memtable has nothing for a walk: its first keys, or its last, that a range removed, and nothing came since.
//!
//! A range hides what is older, but the versions that it hides stand in the memtable still, and a walk looks at each: of a
//! queue, which is emptied at one end, all that was ever taken out. So of a removed range that is open at an end of the key space it is
//! remembered that no newer version lies in it. Whoever reads at its number or later begins behind it.
//!
//! *Right for concurrent writers.* A writer has put its version in before it looks here, and becomes visible after that; who
//! removes a range says so here before it looks for newer versions. A fence on both sides: one of them sees the other. So that
//! others do not pay for the fence, none of this begins before a commit has *armed* it, in the order of the log: whoever comes
//! after that sees that it is, and ranges that came before it are not remembered. Of
//! ranges that grow only what is new is looked at; so a range and those it grew from are broken together: a writer that has
//! seen one of them only breaks all. So none may come between a range and the one it grew from: it takes that one's place, or is not
//! remembered. A range that is broken is forgotten, and the next begins anew. No answer depends on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use crate::format::entry::SequenceNumber;

/// An end of the key space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Before the first key: the range has no first key, and a first key behind it.
    Front,
    /// Behind the last: it has a first key, and no end.
    Back,
}

#[derive(Debug)]
struct Stretch {
    /// The first key behind it, or its own first.
    bound: Bytes,
    sequence: SequenceNumber,
    /// Looked through, and nothing newer was found.
    is_ready: AtomicBool,
    /// Somebody wrote there since; one for all that grew from each other.
    is_broken: Arc<AtomicBool>,
}

/// A stretch that is to be remembered.
struct Grown {
    /// What was remembered when it was made.
    before: Option<Arc<Stretch>>,
    /// The bound of that, if it grew from it.
    known: Option<Bytes>,
    stretch: Arc<Stretch>,
}

impl Stretch {
    fn holds(&self, end: End, key: &[u8]) -> bool {
        match end {
            End::Front => *key < *self.bound,
            End::Back => *key >= *self.bound,
        }
    }

    fn is_valid(&self) -> bool {
        self.is_ready.load(Ordering::Acquire) && !self.is_broken.load(Ordering::Acquire)
    }
}

/// See the module page.
#[derive(Debug, Default)]
pub struct Emptied {
    /// From which number on ranges are remembered; 0: none is yet.
    armed: AtomicU64,
    front: ArcSwapOption<Stretch>,
    back: ArcSwapOption<Stretch>,
}

impl Emptied {
    fn at(&self, end: End) -> &ArcSwapOption<Stretch> {
        match end {
            End::Front => &self.front,
            End::Back => &self.back,
        }
    }

    /// Ranges are worth remembering from `sequence` on. Called where the log's order is given out, which whoever gets a later
    /// number comes through after that.
    pub fn arm(&self, sequence: SequenceNumber) {
        if self.armed.load(Ordering::Relaxed) == 0 {
            self.armed.store(sequence, Ordering::Relaxed);
        }
    }

    fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) > 0
    }

    /// A version of `key` was put in; nobody sees it yet.
    pub fn wrote(&self, key: &[u8], sequence: SequenceNumber) {
        if !self.is_armed() {
            return;
        }
        fence(Ordering::SeqCst);
        for end in [End::Front, End::Back] {
            let stretch = self.at(end).load();
            if let Some(stretch) = &*stretch
                && stretch.sequence < sequence
                && stretch.holds(end, key)
            {
                stretch.is_broken.store(true, Ordering::Release);
            }
        }
    }

    /// A range from `bound` to that end, or from there to `bound`, was removed. `finds_newer` says whether there is a version above
    /// `sequence` in it, or of a part: between `bound` and another (in the direction of the end), or else to the end.
    pub fn removed(
        &self,
        end: End,
        bound: Bytes,
        sequence: SequenceNumber,
        finds_newer: impl FnOnce(&[u8], Option<&[u8]>) -> bool,
    ) {
        if let Some(grown) = self.grown(end, bound, sequence) {
            self.remember(end, &grown, finds_newer);
        }
    }

    /// What is to be remembered of such a range, if anything.
    fn grown(&self, end: End, bound: Bytes, sequence: SequenceNumber) -> Option<Grown> {
        if !self.is_armed() || sequence < self.armed.load(Ordering::Relaxed) {
            return None;
        }
        let before = self.at(end).load_full();
        if before.as_ref().is_some_and(|before| before.sequence > sequence) {
            return None;
        }
        let parent = before.as_ref().filter(|before| before.is_valid());
        if parent.is_some_and(|parent| !parent.grows(end, &bound)) {
            return None;
        }
        let stretch = Arc::new(Stretch {
            bound,
            sequence,
            is_ready: AtomicBool::new(false),
            is_broken: parent.map(|parent| parent.is_broken.clone()).unwrap_or_default(),
        });
        let known = parent.map(|parent| parent.bound.clone());
        Some(Grown { before, known, stretch })
    }

    /// Remembers it, unless another came first.
    fn remember(
        &self,
        end: End,
        grown: &Grown,
        finds_newer: impl FnOnce(&[u8], Option<&[u8]>) -> bool,
    ) {
        let Grown { before, known, stretch } = grown;
        let found = self.at(end).compare_and_swap(before, Some(stretch.clone()));
        let stood = found.as_ref().map(Arc::as_ptr) == before.as_ref().map(Arc::as_ptr);
        fence(Ordering::SeqCst);
        if stood && !finds_newer(&stretch.bound, known.as_deref()) {
            stretch.is_ready.store(true, Ordering::Release);
        }
    }

    /// From where to that end there is nothing for who sees `visible`; the first key behind it, for the front.
    pub fn bound(&self, end: End, visible: SequenceNumber) -> Option<Bytes> {
        if !self.is_armed() {
            return None;
        }
        let stretch = self.at(end).load();
        let stretch = stretch.as_ref().filter(|stretch| stretch.sequence <= visible)?;
        stretch.is_valid().then(|| stretch.bound.clone())
    }
}

impl Stretch {
    /// Whether a stretch with that bound is more.
    fn grows(&self, end: End, bound: &[u8]) -> bool {
        match end {
            End::Front => *bound > *self.bound,
            End::Back => *bound < *self.bound,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    /// A third range that was remembered between a range and the one it grew from took the writer's mark: the key that he put between
    /// the two bounds was in no walk any more.
    #[test]
    fn a_range_that_came_between_two_hides_no_writer_from_them() {
        let emptied = Emptied::default();
        emptied.arm(1);
        let bytes = Bytes::from_static;
        let other = emptied.grown(End::Back, bytes(b"x"), 5).unwrap();
        emptied.removed(End::Back, bytes(b"m"), 4, |_, _| false);
        assert_eq!(emptied.bound(End::Back, 9), Some(bytes(b"m")));
        let grown = emptied.grown(End::Back, bytes(b"g"), 6).unwrap();
        emptied.remember(End::Back, &other, |_, _| false);
        emptied.wrote(b"p", 7);
        emptied.remember(End::Back, &grown, |from, to| {
            assert_eq!((from, to), (&b"g"[..], Some(&b"m"[..])), "it looks at what is new alone");
            false
        });
        assert_eq!(emptied.bound(End::Back, 9), None);
        // The next begins anew, and looks at all.
        emptied.removed(End::Back, bytes(b"q"), 8, |_, to| to.is_some());
        assert_eq!(emptied.bound(End::Back, 9), Some(bytes(b"q")));
    }
}
