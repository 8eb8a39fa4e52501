//! Walking sorted entries: one trait for memtables, runs of tables and their merge.
//!
//! A cursor is positioned by [`Cursor::seek`] and then moved in the direction it was sought in:
//! [`Seek::First`] and [`Seek::AtOrAfter`] are followed by [`Cursor::advance`] upwards,
//! [`Seek::Last`] and [`Seek::Before`] downwards. A double-ended iterator uses two cursors. Each
//! cursor shows at most one entry per user key: the newest it may see.
//!
//! A source may also say that whole ranges of keys are gone from all older sources: its [`Cover`]. The
//! merge hides what is covered, and goes past the end of a covered stretch by one seek of the older
//! source. Reads, merges of runs and sweeps all walk so, and see the same.

use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::Stretch;
use crate::slice::Slice;

/// Where to go, and in which direction to walk from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek<'a> {
    /// The first entry; then upwards.
    First,
    /// The first entry at or after a key; then upwards.
    AtOrAfter(&'a [u8]),
    /// The last entry; then downwards.
    Last,
    /// The last entry before a key; then downwards.
    Before(&'a [u8]),
}

impl Seek<'_> {
    /// Whether the walk goes upwards from here.
    pub fn is_forward(&self) -> bool {
        matches!(self, Seek::First | Seek::AtOrAfter(_))
    }
}

/// A position among sorted entries.
pub trait Cursor: Send {
    /// Goes to an entry, or past the end if there is none.
    ///
    /// # Errors
    /// Any error of the disk; the cursor is then past the end.
    fn seek(&mut self, to: Seek<'_>) -> Result<()>;

    /// Goes to the next entry in the direction of the last seek.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    fn advance(&mut self) -> Result<()>;

    /// Goes on to a place that lies ahead in the direction of the last seek: as a seek, perhaps cheaper.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    fn skip(&mut self, to: Seek<'_>) -> Result<()> {
        self.seek(to)
    }

    /// The key here, or `None` past the end.
    fn key(&self) -> Option<&[u8]>;

    /// The kind and sequence number here. Only to be asked where there is a key.
    fn kind(&self) -> (Kind, SequenceNumber);

    /// The value here. Only to be asked where there is a key.
    fn value(&self) -> &[u8];

    /// The value here, to keep. Only to be asked where there is a key.
    fn value_slice(&self) -> Slice;
}

/// Which keys a source says are gone from all older sources.
pub trait Cover: Send {
    /// A stretch around `key` of keys that are all gone, or all not. It may be a part of a longer one.
    fn stretch(&mut self, key: &[u8]) -> Stretch;
}

/// What a merge takes entries from.
pub struct Source {
    cursor: Box<dyn Cursor>,
    cover: Option<Box<dyn Cover>>,
}

impl Source {
    /// The entries of `cursor`; what `cover` says is gone from older sources.
    pub fn new(cursor: Box<dyn Cursor>, cover: Option<Box<dyn Cover>>) -> Source {
        Source { cursor, cover }
    }

    /// The same keys and ranges, all of them removed: it hides what is older, and has no values.
    pub fn into_removed(self) -> Source {
        Source { cursor: Box::new(Removed(self.cursor)), cover: self.cover }
    }
}

/// Each entry of a cursor as a tombstone.
struct Removed(Box<dyn Cursor>);

impl Cursor for Removed {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        self.0.seek(to)
    }

    fn advance(&mut self) -> Result<()> {
        self.0.advance()
    }

    fn skip(&mut self, to: Seek<'_>) -> Result<()> {
        self.0.skip(to)
    }

    fn key(&self) -> Option<&[u8]> {
        self.0.key()
    }

    fn kind(&self) -> (Kind, SequenceNumber) {
        (Kind::Tombstone, self.0.kind().1)
    }

    fn value(&self) -> &[u8] {
        &[]
    }

    fn value_slice(&self) -> Slice {
        Slice::copy_from(&[])
    }
}

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

/// What is known of the sources that do not hold the current entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Nothing: one of them may stand on the same key.
    Unknown,
    /// All stand behind the current key; that of this source, if any has one, comes next.
    Behind(Option<usize>),
}

/// Several cursors as one, the earlier in the list the newer: of equal keys the newest is shown, and
/// none that a newer source covers.
pub struct MergeCursor {
    sources: Vec<Box<dyn Cursor>>,
    /// Mostly none.
    covers: Vec<Covering>,
    forward: bool,
    /// The source that holds the current entry.
    current: Option<usize>,
    /// What is known of the others.
    others: Others,
    /// Sources that are done with: all that is left of them is covered.
    over: Vec<usize>,
}

impl MergeCursor {
    /// Merges `sources`, newest first.
    pub fn new(sources: Vec<Source>) -> MergeCursor {
        let (mut cursors, mut covers) = (Vec::with_capacity(sources.len()), Vec::new());
        for (source, Source { cursor, cover }) in sources.into_iter().enumerate() {
            cursors.push(cursor);
            covers.extend(cover.map(|cover| Covering { source, cover, last: None }));
        }
        MergeCursor {
            sources: cursors,
            covers,
            forward: true,
            current: None,
            others: Others::Unknown,
            over: Vec::new(),
        }
    }

    /// Whether the walk comes to `key` before it comes to `other`.
    #[inline]
    fn is_before(&self, key: &[u8], other: &[u8]) -> bool {
        if self.forward { key < other } else { key > other }
    }

    /// The source to show, the newest of those with the extreme key, and what is then known of the others.
    fn two_extremes(&self) -> (Option<usize>, Others) {
        let mut best: Option<(usize, &[u8])> = None;
        let mut second: Option<(usize, &[u8])> = None;
        let mut is_shared = false;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(key) = source.key() else { continue };
            match best {
                Some((_, found)) if key == found => is_shared = true,
                Some((_, found)) if !self.is_before(key, found) => {
                    if second.is_none_or(|(_, found)| self.is_before(key, found)) {
                        second = Some((index, key));
                    }
                }
                _ => {
                    second = best;
                    best = Some((index, key));
                    is_shared = false;
                }
            }
        }
        let others = match is_shared {
            true => Others::Unknown,
            false => Others::Behind(second.map(|(index, _)| index)),
        };
        (best.map(|(index, _)| index), others)
    }

    /// Whether the source that was just advanced still shows what comes next, all others standing behind it.
    #[inline]
    fn goes_on(&self, current: usize) -> bool {
        let Others::Behind(second) = self.others else { return false };
        let Some(key) = self.sources[current].key() else { return false };
        let next = second.and_then(|second| self.sources[second].key());
        next.is_none_or(|next| self.is_before(key, next))
    }

    /// The source to show among those that count: that of the extreme key, the newest that has it.
    #[inline]
    fn extreme(&self, counts: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(usize, &[u8])> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(key) = source.key() else { continue };
            let is_better = best.is_none_or(|(_, found)| self.is_before(key, found));
            if is_better && counts(index) {
                best = Some((index, key));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Finds the source to show, past what is covered.
    fn choose(&mut self) -> Result<()> {
        if self.covers.is_empty() {
            (self.current, self.others) = self.two_extremes();
            return Ok(());
        }
        self.others = Others::Unknown;
        loop {
            self.current = self.extreme(|source| !self.over.contains(&source));
            let Some(current) = self.current else { return Ok(()) };
            if !self.skip_covered(current)? {
                return Ok(());
            }
        }
    }

    /// Moves a source on from a covered stretch that it stands in; false: it stands in none. By one step
    /// first, for the stretch may be one key; then by a seek.
    fn skip_covered(&mut self, source: usize) -> Result<bool> {
        let cursor = &mut self.sources[source];
        let Some(key) = cursor.key() else { return Ok(false) };
        let newer = self.covers.iter_mut().filter(|covering| covering.source < source);
        let Some(stretch) = newer.filter_map(|covering| covering.hides(key)).next() else {
            return Ok(false);
        };
        if self.forward && stretch.keys.end.is_none() {
            self.over.push(source);
            return Ok(true);
        }
        cursor.advance()?;
        if cursor.key().is_some_and(|key| stretch.keys.contains(key)) {
            match (self.forward, &stretch.keys.end) {
                (true, Some(end)) => cursor.skip(Seek::AtOrAfter(end))?,
                _ => cursor.skip(Seek::Before(&stretch.keys.start))?,
            }
        }
        Ok(true)
    }

    /// Seeks a source upwards from `from`, or from behind what covers that.
    fn enter(&mut self, source: usize, from: &[u8]) -> Result<()> {
        let mut from = from.to_vec();
        loop {
            let newer = self.covers.iter_mut().filter(|covering| covering.source < source);
            match newer.filter_map(|covering| covering.hides(&from)).next() {
                None => return self.sources[source].seek(Seek::AtOrAfter(&from)),
                Some(Stretch { keys, .. }) => match &keys.end {
                    Some(end) => from.clone_from(end),
                    None => {
                        self.over.push(source);
                        return Ok(());
                    }
                },
            }
        }
    }

    /// Moves every older source that stands on the current key off it.
    fn skip_shadowed(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        let (newer, older) = self.sources.split_at_mut(current + 1);
        let key = newer[current].key();
        for source in older {
            if source.key() == key {
                source.advance()?;
            }
        }
        Ok(())
    }

    /// Whether the entry here is of the oldest source.
    pub fn shows_oldest(&self) -> bool {
        self.current.is_some_and(|current| current + 1 == self.sources.len())
    }

    fn source(&self) -> &dyn Cursor {
        &*self.sources[self.current.expect("a cursor past its end has no entry")]
    }
}

impl Cursor for MergeCursor {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        self.current = None;
        self.forward = to.is_forward();
        self.over.clear();
        for source in 0..self.sources.len() {
            match to {
                // A source of which a part is covered is not read there.
                Seek::First if !self.covers.is_empty() => self.enter(source, &[])?,
                Seek::AtOrAfter(key) if !self.covers.is_empty() => self.enter(source, key)?,
                _ => self.sources[source].seek(to)?,
            }
        }
        self.choose().inspect_err(|_| self.current = None)
    }

    fn advance(&mut self) -> Result<()> {
        if self.others == Others::Unknown {
            self.skip_shadowed().inspect_err(|_| self.current = None)?;
        }
        let Some(current) = self.current.take() else { return Ok(()) };
        self.sources[current].advance()?;
        // Mostly one source shows many in a row.
        if self.goes_on(current) {
            self.current = Some(current);
            return Ok(());
        }
        self.choose().inspect_err(|_| self.current = None)
    }

    fn key(&self) -> Option<&[u8]> {
        self.current.and_then(|current| self.sources[current].key())
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
