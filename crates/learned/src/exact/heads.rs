//! The separators below chunks; their layout is in the [module page](super).
//!
//! A directory with heads of kind 1: the keys `orchard/apple`, `orchard/apricot`, `orchard/banana`, `orchard/blueberry`,
//! `orchard/cherry`, `orchard/citron`, `quince` and `raisin`, two to a block, two blocks to a chunk:
//! ```text
//! 01 04 02 0d 6f7263686172642f6170706c65   version, 4 blocks, 2 chunks, first: orchard/apple
//! 00 00                                    all share no byte of it; no alphabet
//! 01                                       heads are strings:
//! 01 01 0900000000000000 00 00000000 00    the first ends at 9 (see `monotone`)
//! 6f7263686172642f63                       orchard/c
//! 01 02 0000000000000000 8004 00000000 00      first blocks: 0, 2
//! 01 02 0600000000000000 800c 00000000 00      body ends: 6, 12
//! 01 04 2000000000000000 8040 00000000 00      ends: 32, 64, 96, 128 units
//! 01 08 39 00 00 02                        numeric, prefix: 8 bytes of orchard/apple; shift 57, width 0, a line at 1
//! 01 00 3c 00 00 02                        numeric, no prefix; shift 60, width 0, a line at 1
//! ```
//! The heads are no numbers: behind the bytes that all share the second one has nine. Inside the chunks lie `orchard/b` and
//! `p`: the grid values next above `a` (of `apple`, even ones) and `o` (multiples of 16).

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::sync::Arc;

use super::builder::{NUMERIC_HEADS, STRING_HEADS};
use super::search::{Line, count_from, count_while};
use super::{embed, trimmed};
use crate::bytes::Reader;
use crate::error::{DecodeError, Found};
use crate::monotone::{Monotone, bits};

/// The heads of all chunks but the first.
#[derive(Clone, Debug)]
pub(super) enum Heads {
    /// `numbers` are unpacked, still shifted: every step of a search needs one. A search begins where `line` leads, if there is one.
    Numbers { numbers: Box<[u64]>, line: Option<Line>, encoded_bytes: usize, shift: u32 },
    /// `ends` are unpacked likewise.
    Strings { ends: Box<[u32]>, start: usize, end: usize, encoded_ends: usize },
}

/// A head without the bytes that all share.
#[derive(Clone, Copy)]
pub(super) enum Head<'a> {
    Number(u64),
    String(&'a [u8]),
}

impl<'a> Head<'a> {
    /// The head's bytes, which a number writes to `room`.
    pub fn bytes(self, room: &'a mut [u8; 8]) -> &'a [u8] {
        match self {
            Head::Number(number) => {
                *room = number.to_be_bytes();
                trimmed(room)
            }
            Head::String(bytes) => bytes,
        }
    }

    /// What follows behind the first `skipped` bytes, as a number.
    #[inline]
    pub fn number_behind(self, skipped: usize) -> u64 {
        match self {
            Head::Number(number) if skipped < 8 => number << (8 * skipped),
            Head::Number(_) => 0,
            Head::String(bytes) => embed(bytes.get(skipped..).unwrap_or_default()),
        }
    }

    /// What follows in `key` behind the first `of_head` bytes of this head.
    #[inline]
    pub fn behind(self, key: &[u8], of_head: usize) -> Result<&[u8], Ordering> {
        match self {
            Head::Number(_) if of_head == 0 => Ok(key),
            // The bytes as numbers: going through memory would cost more than all the rest.
            Head::Number(number) => {
                let unused = 64 - 8 * of_head.min(8) as u32;
                match (embed(key) >> unused).cmp(&(number >> unused)) {
                    Ordering::Equal => key.get(of_head..).ok_or(Ordering::Less),
                    order => Err(order),
                }
            }
            Head::String(bytes) => behind(key, bytes.get(..of_head).unwrap_or(bytes)),
        }
    }
}

impl Heads {
    pub fn read(
        bytes: &Arc<[u8]>,
        reader: &mut Reader<'_>,
        count: u64,
    ) -> Result<Self, DecodeError> {
        let at = reader.offset();
        match reader.u8("a kind of heads")? {
            NUMERIC_HEADS => {
                let shift = u32::from(reader.u8("a shift")?) & 63;
                let width = u32::from(reader.u8("a width")?).min(64);
                let length = (u128::from(count) * u128::from(width)).div_ceil(8);
                let encoded =
                    reader.take(usize::try_from(length).unwrap_or(usize::MAX), "heads")?;
                // A chunk's body has a byte at least: that bounds what is allocated, though the bodies
                // are not looked for yet.
                let count = count.min(reader.remaining() as u64);
                let number = |index: u64| {
                    bits::read(encoded, (index as usize).wrapping_mul(width as usize), width)
                };
                let numbers: Box<[u64]> = (0..count).map(number).collect();
                let line = Line::through(&numbers);
                Ok(Self::Numbers { numbers, line, encoded_bytes: encoded.len(), shift })
            }
            STRING_HEADS => {
                let begin = reader.offset();
                let ends = Monotone::decode_at(bytes.clone(), begin)?;
                reader.take(ends.end() - begin, "a sequence")?;
                if ends.len() != count {
                    let found = Found::Number(ends.len());
                    return Err(reader.refuse(begin, "an end for every head", found));
                }
                let start = reader.offset();
                let length = ends.get(count.saturating_sub(1));
                reader.take(usize::try_from(length).unwrap_or(usize::MAX), "heads")?;
                // Each head has a byte at least, which bounds what is allocated.
                let ends_fit = length <= u64::from(u32::MAX) && count <= length;
                if !ends_fit {
                    return Err(reader.refuse(begin, "heads below 4 GiB", Found::Number(length)));
                }
                let encoded_ends = ends.encoded_bytes();
                let ends = (0..count).map(|index| ends.get(index).min(length) as u32).collect();
                Ok(Self::Strings { ends, start, end: reader.offset(), encoded_ends })
            }
            other => Err(reader.refuse(at, "a kind of heads", Found::Number(other.into()))),
        }
    }

    /// The head of chunk `index + 1`.
    #[inline]
    pub fn get<'a>(&self, bytes: &'a [u8], index: u64) -> Head<'a> {
        match self {
            Self::Numbers { .. } => Head::Number(self.number(index)),
            Self::Strings { ends, start, end, .. } => {
                let bytes = bytes.get(*start..*end).unwrap_or_default();
                let end_of = |index: usize| ends.get(index).map_or(0, |&end| end as usize);
                let index = index as usize;
                let from = index.checked_sub(1).map_or(0, end_of);
                Head::String(bytes.get(from..end_of(index)).unwrap_or_default())
            }
        }
    }

    /// The head of chunk `index + 1` as a number, if heads are numbers.
    #[inline]
    pub fn number(&self, index: u64) -> u64 {
        match self {
            Self::Numbers { numbers, shift, .. } => {
                numbers.get(index as usize).map_or(0, |number| number << shift)
            }
            Self::Strings { .. } => 0,
        }
    }

    /// How many of the `count` heads are at most `key`.
    #[inline]
    pub fn rank(&self, bytes: &[u8], key: &[u8], count: u64) -> u64 {
        match self {
            Self::Numbers { numbers, line, shift, .. } => {
                let number = embed(key) >> shift;
                let count = count.min(numbers.len() as u64);
                let holds = |i| numbers.get(i as usize).is_some_and(|head| *head <= number);
                count_from(line.map(|line| line.place(number)), count, holds)
            }
            Self::Strings { .. } => count_while(count, |i| match self.get(bytes, i) {
                Head::String(head) => head <= key,
                Head::Number(_) => false,
            }),
        }
    }

    /// Heap bytes besides the encoded ones.
    pub fn unpacked_bytes(&self) -> usize {
        match self {
            Self::Numbers { numbers, .. } => size_of_val(&**numbers),
            Self::Strings { ends, .. } => size_of_val(&**ends),
        }
    }

    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Numbers { encoded_bytes, .. } => encoded_bytes + 3,
            Self::Strings { start, end, encoded_ends, .. } => end - start + 1 + encoded_ends,
        }
    }
}

/// What follows in `key` behind `prefix`, or how it relates to all that begins with it.
#[inline]
pub(super) fn behind<'a>(key: &'a [u8], prefix: &[u8]) -> Result<&'a [u8], Ordering> {
    key.strip_prefix(prefix).ok_or_else(|| key.cmp(prefix))
}
