//! Several sources as one: a merge by the order in which their keys come.
//!
//! The sources stand in a list, that whose key comes next at its end. One step moves that source and puts it back in
//! its place: where runs lie side by side that is mostly the same end, where they lie one in the other it is among a
//! few. The first bytes of each key stand in the list itself ([`Place::lead`]), so most comparisons look at no source.
//! (A loser tree, Knuth 5.4.1, compares less often, but there are rarely ten sources, and it asks each of them.)

use std::cmp::Ordering;

use super::{Cover, Cursor, Seek, Source};
use crate::error::Result;
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
        let lead = match key.first_chunk() {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => {
                let mut bytes = [0; 8];
                bytes[..key.len()].copy_from_slice(key);
                u64::from_be_bytes(bytes)
            }
        };
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Keys of one byte in order; the value says whose they are.
    struct Bytes {
        keys: Vec<[u8; 1]>,
        owner: u8,
        at: Option<usize>,
        forward: bool,
    }

    impl Cursor for Bytes {
        fn seek(&mut self, to: Seek<'_>) -> Result<()> {
            self.forward = to.is_forward();
            let before = |key: &[u8]| self.keys.partition_point(|k| k.as_slice() < key);
            self.at = match to {
                Seek::First => Some(0),
                Seek::AtOrAfter(key) => Some(before(key)),
                Seek::Last => self.keys.len().checked_sub(1),
                Seek::Before(key) => before(key).checked_sub(1),
            };
            Ok(())
        }

        fn advance(&mut self) -> Result<()> {
            self.at =
                self.at.and_then(|at| if self.forward { Some(at + 1) } else { at.checked_sub(1) });
            Ok(())
        }

        fn key(&self) -> Option<&[u8]> {
            self.keys.get(self.at?).map(<[u8; 1]>::as_slice)
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

    fn walked(cursor: &mut MergeCursor, to: Seek<'_>) -> Vec<(u8, u8)> {
        let mut found = Vec::new();
        cursor.seek(to).unwrap();
        while let Some(key) = cursor.key() {
            found.push((key[0], cursor.value()[0]));
            cursor.advance().unwrap();
        }
        found
    }

    /// Each key once, with the value of the newest source that has it, from wherever the walk begins: also where one
    /// source shows many in a row, and where several end on the same key.
    #[test]
    fn the_newest_of_equal_keys_is_shown_in_both_directions() {
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % below
        };
        for round in 0..600 {
            let (mut model, mut sources) = (BTreeMap::new(), Vec::new());
            for owner in 0..draw(5) as u8 {
                // From very few keys to nearly all.
                let share = 1 + draw(40);
                let keys: Vec<_> = (0..40u8).filter(|_| draw(40) < share).map(|k| [k]).collect();
                keys.iter().for_each(|key| _ = model.entry(key[0]).or_insert(owner));
                let cursor = Bytes { keys, owner, at: None, forward: true };
                sources.push(Source::new(Box::new(cursor), None));
            }
            let mut cursor = MergeCursor::new(sources);
            let from = [draw(42) as u8];
            let up: Vec<_> = model.range(from[0]..).map(|(k, o)| (*k, *o)).collect();
            let down: Vec<_> = model.range(..from[0]).rev().map(|(k, o)| (*k, *o)).collect();
            assert_eq!(walked(&mut cursor, Seek::AtOrAfter(&from)), up, "round {round}");
            assert_eq!(walked(&mut cursor, Seek::Before(&from)), down, "round {round}");
            let all: Vec<_> = model.into_iter().collect();
            assert_eq!(walked(&mut cursor, Seek::First), all, "round {round}");
            let back = walked(&mut cursor, Seek::Last);
            assert!(back.iter().rev().eq(&all), "round {round}: {back:?}");
        }
    }
}
