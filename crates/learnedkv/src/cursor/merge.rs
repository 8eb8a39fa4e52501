//! Several sources as one: a merge by the order in which their keys come.
//!
//! The sources stand in a list, that whose key comes next at its end. One step moves that source and puts it back in
//! its place: where runs lie side by side that is mostly the same end, where they lie one in the other it is among a
//! few. The first bytes of each key stand in the list itself ([`Place::lead`]), so most comparisons look at no source.
//! (A loser tree, Knuth 5.4.1, compares less often, which pays where there are many more sources than the few here.)

use std::cmp::Ordering;

use super::{Cover, Cursor, Seek, Source};
use crate::error::Result;
use crate::format::bytes::first_eight;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::Stretch;
use crate::slice::Slice;

/// The cover of a source, and what it said last.
struct Covering {
    /// The source: it covers those behind it.
    source: usize,
    cover: Box<dyn Cover>,
    last: Option<Stretch>,
}

impl Covering {
    /// The stretch around `key`, if it is covered.
    fn hides(&mut self, key: &[u8]) -> Option<&Stretch> {
        if !self.last.as_ref().is_some_and(|last| last.keys.contains(key)) {
            self.last = Some(self.cover.stretch(key));
        }
        self.last.as_ref().filter(|last| last.is_covered)
    }
}

/// A source that stands on a key.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The key's first eight bytes as a number, zeros behind a shorter one; its complement where the walk goes
    /// downwards. Of two places that with the smaller lead comes first; where they are the same the keys say.
    lead: u64,
    source: usize,
}

impl Place {
    #[inline]
    fn of(source: usize, key: &[u8], forward: bool) -> Place {
        let lead = first_eight(key);
        Place { lead: if forward { lead } else { !lead }, source }
    }
}

/// Several cursors as one, the earlier in the list the newer: of equal keys the newest is shown, and
/// none that a newer source covers.
pub struct MergeCursor {
    sources: Vec<Box<dyn Cursor>>,
    /// Mostly none.
    covers: Vec<Covering>,
    forward: bool,
    /// The sources that stand on a key and are not done with: what comes last is at the front, what is shown at the end;
    /// of equal keys the newest is nearest to the end.
    order: Vec<Place>,
    /// Whether the source before the end is known to stand behind it: not on its key.
    is_alone: bool,
}

impl MergeCursor {
    /// Merges `sources`, newest first.
    pub fn new(sources: Vec<Source>) -> MergeCursor {
        let (mut cursors, mut covers) = (Vec::with_capacity(sources.len()), Vec::new());
        for (source, Source { cursor, cover }) in sources.into_iter().enumerate() {
            cursors.push(cursor);
            covers.extend(cover.map(|cover| Covering { source, cover, last: None }));
        }
        let order = Vec::with_capacity(cursors.len());
        MergeCursor { sources: cursors, covers, forward: true, order, is_alone: false }
    }

    /// How the keys of two places come one after the other.
    #[inline]
    fn compare(&self, place: Place, other: Place) -> Ordering {
        place.lead.cmp(&other.lead).then_with(|| {
            let order = self.sources[place.source].key().cmp(&self.sources[other.source].key());
            if self.forward { order } else { order.reverse() }
        })
    }

    /// Puts a source in its place, if it stands on a key.
    #[inline]
    fn put(&mut self, source: usize) {
        let Some(key) = self.sources[source].key() else {
            self.is_alone = false;
            return;
        };
        let place = Place::of(source, key, self.forward);
        let mut at = self.order.len();
        self.is_alone = true;
        while at > 0 {
            let other = self.order[at - 1];
            match self.compare(place, other) {
                Ordering::Less => break,
                Ordering::Equal if source < other.source => {
                    self.is_alone = false;
                    break;
                }
                _ => at -= 1,
            }
        }
        // Of what is at the end now it is not known.
        self.is_alone &= at == self.order.len();
        self.order.insert(at, place);
    }

    /// Moves the sources at the end on that stand in what newer ones cover.
    fn leave_covered(&mut self) -> Result<()> {
        if self.covers.is_empty() {
            return Ok(());
        }
        while let Some(&Place { source, .. }) = self.order.last() {
            match self.skip_covered(source)? {
                Skipped::Nothing => break,
                Skipped::On => {
                    self.order.pop();
                    self.put(source);
                }
                Skipped::All => {
                    self.order.pop();
                    self.is_alone = false;
                }
            }
        }
        Ok(())
    }

    /// Moves a source on from a covered stretch that it stands in. By one step first, for the stretch may be one key;
    /// then by a seek.
    fn skip_covered(&mut self, source: usize) -> Result<Skipped> {
        let cursor = &mut self.sources[source];
        let Some(key) = cursor.key() else { return Ok(Skipped::Nothing) };
        let newer = self.covers.iter_mut().filter(|covering| covering.source < source);
        let Some(stretch) = newer.filter_map(|covering| covering.hides(key)).next() else {
            return Ok(Skipped::Nothing);
        };
        if self.forward && stretch.keys.end.is_none() {
            return Ok(Skipped::All);
        }
        cursor.advance()?;
        if cursor.key().is_some_and(|key| stretch.keys.contains(key)) {
            match (self.forward, &stretch.keys.end) {
                (true, Some(end)) => cursor.skip(Seek::AtOrAfter(end))?,
                _ => cursor.skip(Seek::Before(&stretch.keys.start))?,
            }
        }
        Ok(Skipped::On)
    }

    /// Seeks a source upwards from `from`, or from behind what covers that. False: that covers all that is left of it.
    fn enter(&mut self, source: usize, from: &[u8]) -> Result<bool> {
        let mut from = from.to_vec();
        loop {
            let newer = self.covers.iter_mut().filter(|covering| covering.source < source);
            match newer.filter_map(|covering| covering.hides(&from)).next() {
                None => {
                    self.sources[source].seek(Seek::AtOrAfter(&from))?;
                    return Ok(true);
                }
                Some(Stretch { keys, .. }) => match &keys.end {
                    Some(end) => from.clone_from(end),
                    None => return Ok(false),
                },
            }
        }
    }

    /// Moves the older sources that stand on the key of the newest off it.
    fn leave_shadowed(&mut self) -> Result<()> {
        while let [.., older, newest] = self.order[..]
            && self.compare(older, newest).is_eq()
        {
            self.sources[older.source].advance()?;
            self.order.truncate(self.order.len() - 2);
            self.put(older.source);
            self.order.push(newest);
        }
        Ok(())
    }

    /// Goes to where `to` leads in each source.
    fn find(&mut self, to: Seek<'_>) -> Result<()> {
        for source in 0..self.sources.len() {
            let is_left = match to {
                // A source of which a part is covered is not read there.
                Seek::First if !self.covers.is_empty() => self.enter(source, &[])?,
                Seek::AtOrAfter(key) if !self.covers.is_empty() => self.enter(source, key)?,
                _ => {
                    self.sources[source].seek(to)?;
                    true
                }
            };
            if is_left {
                self.put(source);
            }
        }
        self.leave_covered()
    }

    /// Goes on to what comes next.
    #[inline]
    fn go_on(&mut self) -> Result<()> {
        if !self.is_alone {
            self.leave_shadowed()?;
        }
        let Some(Place { source, .. }) = self.order.pop() else { return Ok(()) };
        self.sources[source].advance()?;
        self.put(source);
        self.leave_covered()
    }

    /// Whether the entry here is of the oldest source.
    pub fn shows_oldest(&self) -> bool {
        self.order.last().is_some_and(|place| place.source + 1 == self.sources.len())
    }

    fn source(&self) -> &dyn Cursor {
        let place = self.order.last().expect("a cursor past its end has no entry");
        &*self.sources[place.source]
    }
}

/// How far a source was moved on.
enum Skipped {
    /// It stands in nothing that is covered.
    Nothing,
    /// Behind it, or a part of it.
    On,
    /// All that is left of it is covered.
    All,
}

impl Cursor for MergeCursor {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        self.forward = to.is_forward();
        self.order.clear();
        self.find(to).inspect_err(|_| self.order.clear())
    }

    fn advance(&mut self) -> Result<()> {
        self.go_on().inspect_err(|_| self.order.clear())
    }

    fn key(&self) -> Option<&[u8]> {
        self.order.last().and_then(|place| self.sources[place.source].key())
    }

    fn kind(&self) -> (Kind, SequenceNumber) {
        self.source().kind()
    }

    fn value(&self) -> &[u8] {
        self.source().value()
    }

    fn value_slice(&self) -> Slice {
        self.source().value_slice()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::format::range::{KeyRange, Ranges};

    /// Keys in order; the value says whose they are. It fails once `fails_in` moves were made.
    struct Keys {
        keys: Vec<Vec<u8>>,
        owner: u8,
        at: Option<usize>,
        forward: bool,
        fails_in: usize,
    }

    impl Keys {
        fn go(&mut self, at: Option<usize>) -> Result<()> {
            self.at = at;
            let left = self.fails_in.checked_sub(1);
            left.map(|left| self.fails_in = left).ok_or_else(|| {
                self.at = None;
                Error::new(ErrorKind::Io, "the disk is gone")
            })
        }
    }

    impl Cursor for Keys {
        fn seek(&mut self, to: Seek<'_>) -> Result<()> {
            self.forward = to.is_forward();
            let before = |key: &[u8]| self.keys.partition_point(|k| k.as_slice() < key);
            let at = match to {
                Seek::First => Some(0),
                Seek::AtOrAfter(key) => Some(before(key)),
                Seek::Last => self.keys.len().checked_sub(1),
                Seek::Before(key) => before(key).checked_sub(1),
            };
            self.go(at)
        }

        fn advance(&mut self) -> Result<()> {
            let next = |at: usize| if self.forward { Some(at + 1) } else { at.checked_sub(1) };
            self.go(self.at.and_then(next))
        }

        fn key(&self) -> Option<&[u8]> {
            self.keys.get(self.at?).map(Vec::as_slice)
        }

        fn kind(&self) -> (Kind, SequenceNumber) {
            (Kind::Value, 1)
        }

        fn value(&self) -> &[u8] {
            std::slice::from_ref(&self.owner)
        }

        fn value_slice(&self) -> Slice {
            Slice::copy_from(self.value())
        }
    }

    /// What is shown, and whose it is.
    type Model = BTreeMap<Vec<u8>, u8>;

    struct Gone(Ranges);

    impl Cover for Gone {
        fn stretch(&mut self, key: &[u8]) -> Stretch {
            self.0.stretch(key)
        }
    }

    fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % below
        }
    }

    /// Keys whose first eight bytes are the same, also with the zeros behind shorter ones, and others.
    fn universe() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for first in [0, b'a', 0xff] {
            for length in [0, 1, 2, 7, 8, 9, 16] {
                keys.push(vec![first; length]);
                keys.push([&vec![first; length][..], &[0]].concat());
                keys.push([&vec![first; length][..], b"b"].concat());
            }
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Some sources, and what they show together.
    fn some(
        draw: &mut impl FnMut(u64) -> u64,
        all: &[Vec<u8>],
        with_covers: bool,
    ) -> (Vec<Keys>, Vec<Option<Ranges>>, Model) {
        let (mut sources, mut covers, mut model) = (Vec::new(), Vec::new(), Model::new());
        let mut hidden: Vec<KeyRange> = Vec::new();
        for owner in 0..draw(6) as u8 {
            // From very few keys to nearly all.
            let share = 1 + draw(40);
            let keys: Vec<_> = all.iter().filter(|_| draw(40) < share).cloned().collect();
            for key in &keys {
                let is_hidden = hidden.iter().any(|range| range.contains(key));
                if !is_hidden && !model.contains_key(key) {
                    model.insert(key.clone(), owner);
                }
            }
            let mut ranges = Vec::new();
            while with_covers && draw(2) == 0 {
                let [a, b] = [0; 2].map(|_| draw(all.len() as u64 + 1) as usize);
                let (a, b) = (a.min(b), a.max(b));
                if a < b {
                    ranges.push(KeyRange { start: all[a].clone(), end: all.get(b).cloned() });
                }
            }
            hidden.extend(ranges.iter().cloned());
            covers.push((!ranges.is_empty()).then(|| Ranges::union(ranges)));
            sources.push(Keys { keys, owner, at: None, forward: true, fails_in: usize::MAX });
        }
        (sources, covers, model)
    }

    fn merged(sources: Vec<Keys>, covers: Vec<Option<Ranges>>) -> MergeCursor {
        let cover = |ranges| Box::new(Gone(ranges)) as Box<dyn Cover>;
        let one =
            |(keys, ranges): (Keys, Option<Ranges>)| Source::new(Box::new(keys), ranges.map(cover));
        MergeCursor::new(sources.into_iter().zip(covers).map(one).collect())
    }

    /// What it shows from somewhere on, to an error if one comes.
    fn walked(cursor: &mut MergeCursor, to: Seek<'_>) -> (Vec<(Vec<u8>, u8)>, Result<()>) {
        let mut found = Vec::new();
        let mut moved = cursor.seek(to);
        while let (Ok(()), Some(key)) = (&moved, cursor.key()) {
            found.push((key.to_vec(), cursor.value()[0]));
            moved = cursor.advance();
        }
        (found, moved)
    }

    /// Each key once, with the value of the newest source that has it and none that a newer source covers, from
    /// wherever the walk begins: also where one source shows many in a row, where several end on the same key, and
    /// where keys differ behind their first eight bytes, or in how many zeros they end with.
    #[test]
    fn the_newest_of_equal_keys_is_shown_in_both_directions() {
        let (mut draw, all) = (draws(7), universe());
        let mut shown = 0;
        for round in 0..2000 {
            let (sources, covers, model) = some(&mut draw, &all, round % 2 == 1);
            let mut cursor = merged(sources, covers);
            let from = all[draw(all.len() as u64) as usize].clone();
            let pairs = |(key, owner): (&Vec<u8>, &u8)| (key.clone(), *owner);
            let up: Vec<_> = model.range(from.clone()..).map(pairs).collect();
            let down: Vec<_> = model.range(..from.clone()).rev().map(pairs).collect();
            let mut back: Vec<_> = model.iter().map(pairs).collect();
            shown += back.len();
            assert_eq!(walked(&mut cursor, Seek::AtOrAfter(&from)).0, up, "round {round}");
            assert_eq!(walked(&mut cursor, Seek::Before(&from)).0, down, "round {round}");
            assert_eq!(walked(&mut cursor, Seek::First).0, back, "round {round}");
            back.reverse();
            assert_eq!(walked(&mut cursor, Seek::Last).0, back, "round {round}");
        }
        assert!(shown > 20_000, "{shown} entries");
    }

    /// Nothing else than what comes is shown before an error, and nothing after it.
    #[test]
    fn after_a_source_failed_the_walk_is_past_its_end() {
        let (mut draw, all) = (draws(11), universe());
        let mut failed = 0;
        for round in 0..1000 {
            let (mut sources, covers, model) = some(&mut draw, &all, round % 2 == 1);
            let Some(failing) = (sources.len() as u64).checked_sub(1).map(|last| draw(last + 1))
            else {
                continue;
            };
            sources[failing as usize].fails_in = draw(30) as usize;
            let mut cursor = merged(sources, covers);
            let (found, moved) = walked(&mut cursor, Seek::First);
            let expected: Vec<_> = model.into_iter().take(found.len()).collect();
            assert_eq!(found, expected, "round {round}");
            if moved.is_err() {
                failed += 1;
                for _ in 0..3 {
                    assert!(cursor.key().is_none(), "round {round}: a key after an error");
                    cursor.advance().unwrap();
                }
            }
        }
        assert!(failed > 300, "{failed} failed");
    }
}
