//! Ranges of keys removed in one memtable, each with its sequence number.
//!
//! Asked: which is the newest range at or below a number that covers a key? Ranges come one by one, in
//! about the order of their numbers, and may nest and overlap as they like; a hundred thousand of them
//! must stay fast, for readers at any number.
//!
//! Ranges are kept as a log-structured merge tree keeps runs. Each comes as a node of its own; [`FAN_OUT`]
//! nodes of one level become a node of the next. A node knows its smallest and largest number, and
//! its ranges flattened: disjoint pieces in key order, each with the newest number there. A question goes to
//! the nodes whose numbers are all visible, by one binary search each, and to the parts of those of which
//! only some are. With n ranges that are about `FAN_OUT / 2 * log n` searches (logarithm to base
//! `FAN_OUT`), an insertion costs as many copied pieces, and memory is n pieces a level. That holds
//! whatever the ranges and numbers are: nothing walks over the ranges that cover a key. (An interval tree does,
//! and a map of fragments that remember all numbers takes n * n for nested ranges.)
//!
//! A list of nodes is immutable; an insertion publishes another. Readers take no lock. A walk that asks often
//! flattens all that it sees into one node of its own first ([`RemovedAt`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use crate::cursor::Cover;
use crate::format::entry::SequenceNumber;
use crate::format::range::{KeyRange, Ranges, Stretch, is_before};

/// So many nodes of a level become one of the next.
const FAN_OUT: usize = 8;

/// What a range takes besides its bounds, reckoned: 80 bytes a piece, five levels, a piece and a half of
/// each range in each.
pub(super) const RANGE_OVERHEAD_BYTES: usize = 640;

/// Keys in a row, and the newest number that removed them.
#[derive(Debug, Clone)]
struct Piece {
    start: Bytes,
    end: Option<Bytes>,
    sequence: SequenceNumber,
    /// The first and the last piece of the row of pieces around this one that leaves nothing out.
    row: (u32, u32),
}

impl Piece {
    fn ends_by(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_some_and(|end| end <= key)
    }
}

#[derive(Debug)]
struct Node {
    level: u32,
    first: SequenceNumber,
    last: SequenceNumber,
    pieces: Vec<Piece>,
    /// What it was made of.
    parts: Vec<Arc<Node>>,
}

/// What a node says of a key.
enum Place<'a> {
    /// It lies in this piece.
    In(&'a Piece),
    /// It lies between two, of which either may be missing.
    Between(Option<&'a Piece>, Option<&'a Piece>),
}

impl Node {
    fn leaf(start: Bytes, end: Option<Bytes>, sequence: SequenceNumber) -> Node {
        let piece = Piece { start, end, sequence, row: (0, 0) };
        Node { level: 0, first: sequence, last: sequence, pieces: vec![piece], parts: Vec::new() }
    }

    fn of(parts: Vec<Arc<Node>>) -> Node {
        let mut pieces = Vec::new();
        for part in &parts {
            pieces = overlay(&pieces, &part.pieces);
        }
        set_rows(&mut pieces);
        Node {
            level: parts.iter().map(|part| part.level + 1).max().unwrap_or(0),
            first: parts.iter().map(|part| part.first).min().unwrap_or(0),
            last: parts.iter().map(|part| part.last).max().unwrap_or(0),
            pieces,
            parts,
        }
    }

    fn piece(&self, number: u32) -> &Piece {
        &self.pieces[number as usize]
    }

    fn place(&self, key: &[u8]) -> Place<'_> {
        let at = self.pieces.partition_point(|piece| piece.ends_by(key));
        match self.pieces.get(at) {
            Some(piece) if &piece.start[..] <= key => Place::In(piece),
            next => Place::Between(at.checked_sub(1).and_then(|i| self.pieces.get(i)), next),
        }
    }
}

/// Of two rows of pieces one, with the newer number everywhere.
fn overlay(a: &[Piece], b: &[Piece]) -> Vec<Piece> {
    let mut laid: Vec<Piece> = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    // Keys below it are done with.
    let mut at = Bytes::new();
    loop {
        while a.next_if(|piece| piece.ends_by(&at)).is_some() {}
        while b.next_if(|piece| piece.ends_by(&at)).is_some() {}
        let next = [a.peek().copied(), b.peek().copied()];
        let Some(first) = next.iter().flatten().map(|piece| &piece.start).min() else { break };
        let start = first.max(&at).clone();
        let (mut end, mut sequence): (Option<&Bytes>, _) = (None, 0);
        for piece in next.into_iter().flatten() {
            let begun = piece.start <= start;
            let stop = if begun { piece.end.as_ref() } else { Some(&piece.start) };
            end = match (end, stop) {
                (Some(end), Some(stop)) => Some(end.min(stop)),
                (end, stop) => end.or(stop),
            };
            sequence = if begun { sequence.max(piece.sequence) } else { sequence };
        }
        let end = end.cloned();
        match laid.last_mut() {
            // One range that the other row cut.
            Some(last) if last.sequence == sequence && last.end.as_ref() == Some(&start) => {
                last.end.clone_from(&end);
            }
            _ => laid.push(Piece { start, end: end.clone(), sequence, row: (0, 0) }),
        }
        let Some(end) = end else { break };
        at = end;
    }
    laid
}

fn set_rows(pieces: &mut [Piece]) {
    let mut first = 0;
    while first < pieces.len() {
        let mut last = first;
        while pieces
            .get(last + 1)
            .is_some_and(|next| pieces[last].end.as_ref() == Some(&next.start))
        {
            last += 1;
        }
        pieces[first..=last].iter_mut().for_each(|p| p.row = (first as u32, last as u32));
        first = last + 1;
    }
}

/// Keys around one of which the answer is the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Span {
    start: Bytes,
    end: Option<Bytes>,
    /// The newest number that removed them; 0 if none did.
    pub(super) sequence: SequenceNumber,
}

impl Span {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        &self.start[..] <= key && is_before(key, self.end.as_deref())
    }

    /// Leaves no more than what lies within bounds, of which either may be missing.
    fn narrow(&mut self, start: Option<&Bytes>, end: Option<&Bytes>) {
        if let Some(start) = start.filter(|start| **start > self.start) {
            self.start = start.clone();
        }
        if let Some(end) = end.filter(|end| self.end.as_ref().is_none_or(|own| *end < own)) {
            self.end = Some(end.clone());
        }
    }
}

/// Ranges at one time.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Those of higher levels first.
    nodes: Vec<Arc<Node>>,
}

impl Removed {
    fn with(&self, leaf: Node) -> Removed {
        let mut nodes = self.nodes.clone();
        nodes.push(Arc::new(leaf));
        while let Some(level) = nodes.last().map(|node| node.level) {
            let of_level = nodes.iter().rev().take_while(|node| node.level == level).count();
            if of_level < FAN_OUT {
                break;
            }
            let parts = nodes.split_off(nodes.len() - of_level);
            nodes.push(Arc::new(Node::of(parts)));
        }
        Removed { nodes }
    }

    /// Calls `tell` with the nodes that hold exactly the ranges visible at a number, newest first.
    fn visit<'a>(
        nodes: &'a [Arc<Node>],
        visible: SequenceNumber,
        tell: &mut impl FnMut(&'a Arc<Node>),
    ) {
        for node in nodes.iter().rev().filter(|node| node.first <= visible) {
            if node.last <= visible {
                tell(node);
            } else {
                Removed::visit(&node.parts, visible, tell);
            }
        }
    }

    /// The newest number at or below `visible` that removed `key`, and around which keys that holds.
    pub(super) fn span(&self, key: &[u8], visible: SequenceNumber) -> Span {
        let mut span = Span::default();
        Removed::visit(&self.nodes, visible, &mut |node| {
            if node.last <= span.sequence {
                return; // nothing newer
            }
            match node.place(key) {
                Place::In(piece) => {
                    span.narrow(Some(&piece.start), piece.end.as_ref());
                    span.sequence = span.sequence.max(piece.sequence);
                }
                Place::Between(before, after) => {
                    span.narrow(before.and_then(|b| b.end.as_ref()), after.map(|a| &a.start));
                }
            }
        });
        span
    }

    /// The newest number at or below `visible` that removed `key`; 0 if none did.
    pub(super) fn newest(&self, key: &[u8], visible: SequenceNumber) -> SequenceNumber {
        let mut newest = 0;
        Removed::visit(&self.nodes, visible, &mut |node| {
            if node.last > newest
                && let Place::In(piece) = node.place(key)
            {
                newest = newest.max(piece.sequence);
            }
        });
        newest
    }

    /// Whether keys around `key` were removed, by whatever number up to `visible`.
    fn stretch(&self, key: &[u8], visible: SequenceNumber) -> Stretch {
        let mut gap = Span::default();
        let mut row: Option<Span> = None;
        Removed::visit(&self.nodes, visible, &mut |node| match node.place(key) {
            Place::In(piece) => {
                let (first, last) = (node.piece(piece.row.0), node.piece(piece.row.1));
                let row = row.get_or_insert_with(|| Span {
                    start: first.start.clone(),
                    end: last.end.clone(),
                    sequence: 0,
                });
                row.start = first.start.clone().min(row.start.clone());
                row.end = match (&row.end, &last.end) {
                    (Some(own), Some(end)) => Some(own.max(end).clone()),
                    _ => None,
                };
            }
            Place::Between(before, after) => {
                gap.narrow(before.and_then(|b| b.end.as_ref()), after.map(|a| &a.start));
            }
        });
        let (span, is_covered) = row.map_or((gap, false), |row| (row, true));
        let keys = KeyRange { start: span.start.to_vec(), end: span.end.map(|end| end.to_vec()) };
        Stretch { keys, is_covered }
    }

    /// All that was removed up to a number.
    pub(super) fn union(&self, visible: SequenceNumber) -> Ranges {
        let mut ranges = Vec::new();
        Removed::visit(&self.nodes, visible, &mut |node| {
            ranges.extend(node.pieces.iter().map(|piece| KeyRange {
                start: piece.start.to_vec(),
                end: piece.end.as_ref().map(|end| end.to_vec()),
            }));
        });
        Ranges::union(ranges)
    }

    /// Whether a range above `sequence` holds a key of `first..=last` (`None`: to the end).
    pub(super) fn changed_within(
        &self,
        first: &[u8],
        last: Option<&[u8]>,
        sequence: SequenceNumber,
    ) -> bool {
        changed(&self.nodes, first, last, sequence)
    }
}

fn changed(
    nodes: &[Arc<Node>],
    first: &[u8],
    last: Option<&[u8]>,
    sequence: SequenceNumber,
) -> bool {
    nodes.iter().filter(|node| node.last > sequence).any(|node| {
        if node.first <= sequence {
            return changed(&node.parts, first, last, sequence);
        }
        let at = node.pieces.partition_point(|piece| piece.ends_by(first));
        node.pieces.get(at).is_some_and(|piece| last.is_none_or(|last| &piece.start[..] <= last))
    })
}

/// A walk that has asked once for so many ranges flattens them: that takes about as long as so many
/// questions do.
const RANGES_PER_QUESTION: usize = 16;

/// What a walk at one number sees of the ranges.
pub(super) struct RemovedAt {
    removed: Arc<Removed>,
    visible: SequenceNumber,
    /// How often it has asked while there is more than one node.
    asked: usize,
}

impl RemovedAt {
    /// A walk over those at or below `visible`.
    pub(super) fn new(removed: Arc<Removed>, visible: SequenceNumber) -> RemovedAt {
        RemovedAt { removed, visible, asked: 0 }
    }

    /// What is to be asked now.
    fn ask(&mut self) -> &Removed {
        if self.removed.nodes.len() > 1 {
            self.asked += 1;
            let pieces: usize = self.removed.nodes.iter().map(|node| node.pieces.len()).sum();
            if self.asked * RANGES_PER_QUESTION > pieces {
                self.flatten();
            }
        }
        &self.removed
    }

    fn flatten(&mut self) {
        let mut parts = Vec::new();
        Removed::visit(&self.removed.nodes, self.visible, &mut |node| parts.push(node.clone()));
        let nodes = if parts.is_empty() { Vec::new() } else { vec![Arc::new(Node::of(parts))] };
        self.removed = Arc::new(Removed { nodes });
    }

    /// As [`Removed::span`].
    pub(super) fn span(&mut self, key: &[u8]) -> Span {
        let visible = self.visible;
        self.ask().span(key, visible)
    }
}

impl Cover for RemovedAt {
    fn stretch(&mut self, key: &[u8]) -> Stretch {
        let visible = self.visible;
        self.ask().stretch(key, visible)
    }
}

/// The ranges of a memtable.
#[derive(Debug, Default)]
pub(super) struct Removals {
    count: AtomicUsize,
    now: ArcSwapOption<Removed>,
    /// Held while a range is added.
    adding: Mutex<()>,
}

impl Removals {
    pub(super) fn add(&self, start: Bytes, end: Option<Bytes>, sequence: SequenceNumber) {
        let _one_at_a_time = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let leaf = Node::leaf(start, end, sequence);
        let next = match &*self.now.load() {
            Some(removed) => removed.with(leaf),
            None => Removed::default().with(leaf),
        };
        self.now.store(Some(Arc::new(next)));
        self.count.fetch_add(1, Relaxed);
    }

    /// How many there are. Whoever sees a number as visible sees its range counted.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// The ranges of now; `None` if there are none.
    pub(super) fn now(&self) -> Option<Arc<Removed>> {
        if self.count() == 0 { None } else { self.now.load_full() }
    }

    /// As [`Removed::newest`].
    #[cold]
    pub(super) fn newest(&self, key: &[u8], visible: SequenceNumber) -> SequenceNumber {
        self.now.load().as_ref().map_or(0, |removed| removed.newest(key, visible))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_add(1);
            crate::format::checksum::mix(self.0) % n
        }
    }

    fn key(number: u64) -> Vec<u8> {
        vec![b'a' + number as u8]
    }

    /// Random ranges, nested and overlapping, in an order near that of their numbers, at every number
    /// and every key against a look at each range.
    #[test]
    fn every_question_at_every_number_is_answered_as_a_look_at_each_range_says() {
        const KEYS: u64 = 12;
        for seed in 0..40 {
            let mut random = Random(seed << 32);
            let removals = Removals::default();
            let mut ranges: Vec<(u64, Option<u64>, u64)> = Vec::new();
            // Writers hand their ranges in out of turn, a few places.
            let mut numbers: Vec<u64> = (1..=90).map(|n| n * 2).collect();
            for at in 0..numbers.len() - 4 {
                if random.below(5) == 0 {
                    numbers.swap(at, at + 1 + random.below(3) as usize);
                }
            }
            for sequence in numbers {
                let start = random.below(KEYS);
                let end = (random.below(6) > 0).then(|| start + 1 + random.below(KEYS - start));
                let bytes = |n: u64| Bytes::from(key(n));
                removals.add(bytes(start), end.map(bytes), sequence);
                ranges.push((start, end, sequence));
            }
            let removed = removals.now().unwrap();
            for visible in 0..=182 {
                check(&removed, &ranges, visible, KEYS, seed);
            }
        }
    }

    fn check(
        removed: &Arc<Removed>,
        ranges: &[(u64, Option<u64>, u64)],
        visible: u64,
        keys: u64,
        seed: u64,
    ) {
        let newest = |n: u64| {
            let covers = |(start, end, sequence): &&(u64, Option<u64>, u64)| {
                *start <= n && end.is_none_or(|end| n < end) && *sequence <= visible
            };
            ranges.iter().filter(covers).map(|range| range.2).max().unwrap_or(0)
        };
        let union = removed.union(visible);
        // It flattens amid the questions.
        let mut walk = RemovedAt::new(removed.clone(), visible);
        for n in 0..=keys {
            let at = format!("seed {seed}, key {n} at {visible}");
            assert_eq!(removed.newest(&key(n), visible), newest(n), "{at}");
            assert_eq!(union.covers(&key(n)), newest(n) > 0, "{at}");
            let span = removed.span(&key(n), visible);
            assert_eq!(span.sequence, newest(n), "{at}");
            let walked = walk.span(&key(n));
            assert!(walked.sequence == newest(n) && walked.contains(&key(n)), "{at}");
            let stretch = walk.stretch(&key(n));
            assert_eq!(stretch.is_covered, newest(n) > 0, "{at}");
            assert!(span.contains(&key(n)) && stretch.keys.contains(&key(n)), "{at}");
            for other in 0..=keys {
                if span.contains(&key(other)) {
                    assert_eq!(newest(other), span.sequence, "{at}: {other}");
                }
                if stretch.keys.contains(&key(other)) {
                    assert_eq!(newest(other) > 0, stretch.is_covered, "{at}: {other}");
                }
                let changed = |n: u64| {
                    ranges.iter().any(|(start, end, sequence)| {
                        *start <= n && end.is_none_or(|end| n < end) && *sequence > visible
                    })
                };
                if n <= other {
                    let expected = (n..=other).any(changed);
                    let found = removed.changed_within(&key(n), Some(&key(other)), visible);
                    assert_eq!(found, expected, "{at} to {other}");
                }
            }
        }
    }

    /// The worst for structures that list what covers a key: each range within the one before.
    #[test]
    fn a_hundred_thousand_nested_ranges_stay_few_pieces_a_level() {
        let removals = Removals::default();
        let count = 100_000u32;
        let bytes = |n: u32| Bytes::from(format!("{n:08}"));
        for n in 0..count {
            removals.add(bytes(n), Some(bytes(2 * count - n)), u64::from(n) + 1);
        }
        let removed = removals.now().unwrap();
        fn pieces(nodes: &[Arc<Node>]) -> usize {
            nodes.iter().map(|node| node.pieces.len() + pieces(&node.parts)).sum()
        }
        let pieces = pieces(&removed.nodes);
        assert!(pieces < count as usize * 2 * 7, "{pieces} pieces");
        assert!(removed.nodes.len() < FAN_OUT * 6, "{} nodes", removed.nodes.len());
        for n in (0..count).step_by(997) {
            for visible in [1, n / 2, n, n + 1, count] {
                let expected = u64::from(visible.min(n + 1));
                assert_eq!(removed.newest(&bytes(n), visible.into()), expected, "{n} at {visible}");
            }
        }
        let all = removed.union(u64::MAX);
        assert_eq!(all.len(), 1);
    }
}
