//! Entries that are in no block yet: keys and values back to back, in pieces of memory that are used
//! again. What the index leaves over when it cuts blocks stays where it is: of long values that may be a
//! third of what was gathered.

use std::ops::Range;

use crate::format::block::NewEntry;
use crate::format::entry::{Kind, SequenceNumber};

/// How long a piece is, bytes. An entry that takes more has one of its own, which is not kept.
const PIECE_BYTES: usize = 64 << 10;

/// An entry without its key and value.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// Its version.
    pub sequence: SequenceNumber,
    /// What it takes in a block at most, bytes.
    pub size: u32,
    /// What it counts for where blocks are cut: its size, or more.
    pub weight: u32,
}

/// Where an entry stands.
struct Place {
    /// The piece, counted from the table's first.
    piece: u32,
    key_start: u32,
    value_start: u32,
    end: u32,
    head: Head,
}

/// See the [module page](self).
#[derive(Default)]
pub struct Gathered {
    places: Vec<Place>,
    weights: Vec<u32>,
    weight: usize,
    bytes: usize,
    pieces: Vec<Vec<u8>>,
    /// How many pieces were given up before the first of them.
    first_piece: u32,
    spare: Vec<Vec<u8>>,
}

impl Gathered {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// What they take in blocks at most, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What each counts for where blocks are cut.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// What they count for together.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The keys from entry `start` on.
    pub fn keys(&self, start: usize) -> Vec<&[u8]> {
        self.places[start..]
            .iter()
            .map(|place| self.part(place, place.key_start..place.value_start))
            .collect()
    }

    /// Those of a range.
    pub fn entries(&self, range: Range<usize>) -> impl Iterator<Item = NewEntry<'_>> + Clone {
        self.places[range].iter().map(|place| NewEntry {
            key: self.part(place, place.key_start..place.value_start),
            kind: place.head.kind,
            sequence: place.head.sequence,
            value: self.part(place, place.value_start..place.end),
        })
    }

    fn part(&self, place: &Place, range: Range<u32>) -> &[u8] {
        let piece = &self.pieces[(place.piece - self.first_piece) as usize];
        &piece[range.start as usize..range.end as usize]
    }

    /// Adds an entry.
    pub fn add(&mut self, key: &[u8], value: &[u8], head: Head) {
        let length = key.len() + value.len();
        let has_room = |piece: &Vec<u8>| piece.capacity() - piece.len() >= length;
        if !self.pieces.last().is_some_and(has_room) {
            let spare = self.spare.pop_if(|piece| has_room(piece));
            let fresh = || Vec::with_capacity(length.max(PIECE_BYTES));
            self.pieces.push(spare.unwrap_or_else(fresh));
        }
        let last = self.pieces.len() - 1;
        let (number, piece) = (self.first_piece + last as u32, &mut self.pieces[last]);
        let key_start = piece.len() as u32;
        piece.extend_from_slice(key);
        let value_start = piece.len() as u32;
        piece.extend_from_slice(value);
        let end = piece.len() as u32;
        self.places.push(Place { piece: number, key_start, value_start, end, head });
        self.weights.push(head.weight);
        self.weight += head.weight as usize;
        self.bytes += head.size as usize;
    }

    /// Drops the first `count`.
    pub fn forget(&mut self, count: usize) {
        let bytes = self.places.drain(..count).map(|place| place.head.size as usize);
        self.bytes -= bytes.sum::<usize>();
        self.weight -= self.weights.drain(..count).map(|weight| weight as usize).sum::<usize>();
        let behind = self.first_piece + self.pieces.len() as u32;
        let kept = self.places.first().map_or(behind, |place| place.piece);
        for mut piece in self.pieces.drain(..(kept - self.first_piece) as usize) {
            piece.clear();
            if piece.capacity() <= PIECE_BYTES {
                self.spare.push(piece);
            }
        }
        self.first_piece = kept;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Entries of all lengths, forgotten a few at a time, against a plain queue; and no more memory
    /// is held than what is not forgotten asks for.
    #[test]
    fn entries_stay_until_they_are_forgotten() {
        let (mut gathered, mut expected) = (Gathered::default(), VecDeque::new());
        let mut state = 1u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        for number in 0..3000u64 {
            let length = [random(20), random(3000), random(200_000)][(random(20) / 9) as usize];
            let (key, value) = (number.to_be_bytes(), vec![number as u8; length as usize]);
            let size = 8 + length as u32;
            let head = Head { kind: Kind::Value, sequence: number, size, weight: 2 * size };
            gathered.add(&key, &value, head);
            expected.push_back((key, value));
            if random(30) == 0 {
                let count = random(expected.len() as u64 + 1) as usize;
                gathered.forget(count);
                expected.drain(..count);
            }
            assert_eq!(gathered.len(), expected.len());
            let bytes: usize = expected.iter().map(|(_, value)| 8 + value.len()).sum();
            assert_eq!((gathered.bytes(), gathered.weight()), (bytes, 2 * bytes));
            if number % 7 > 0 {
                continue;
            }
            let from = random(expected.len() as u64 + 1) as usize;
            let entries = gathered.entries(from..expected.len());
            let keys = gathered.keys(from);
            assert_eq!(keys.len(), expected.len() - from);
            for ((entry, key), (same, value)) in entries.zip(keys).zip(expected.iter().skip(from)) {
                assert_eq!((entry.key, entry.value, key), (&same[..], value.as_slice(), &same[..]));
                assert_eq!(entry.sequence, u64::from_be_bytes(*same));
            }
            let held: usize = gathered.pieces.iter().map(Vec::capacity).sum();
            // At worst every other piece was left empty for an entry of its own.
            assert!(held <= 2 * (bytes + 2 * PIECE_BYTES) + 400_000, "{held} held for {bytes}");
        }
        gathered.forget(expected.len());
        assert!(
            gathered.pieces.len() <= 1
                && gathered.spare.iter().all(|p| p.capacity() <= PIECE_BYTES)
        );
    }
}
