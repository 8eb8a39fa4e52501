//! Where a directory's chunks lie, with what most lookups need of each decoded: kept in memory besides the
//! encoded bytes, since every lookup needs it, and some five bits a block.
//!
//! A *plain* chunk is numeric, and its prefix lies in its head's first seven bytes.
//! There a separator is the number that `numeric.rs` says, and comparing is done a `shift` lower:
//! `n << shift <= x` exactly if `n` without its highest `shift` bits is at most `x >> shift`.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::num::NonZeroU8;

use super::embed;
use super::numeric::{FRACTION, Numeric};
use super::search::count_from;
use crate::monotone::bits::{mask, read};

/// A line is no guide where codes span more than it rises over 32 blocks, half of the longest chunk: more than such a part of a slope,
/// which counts 256ths a block.
const WIDE_PART: u64 = 8;

/// Where a chunk lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// One past its last block.
    pub end_block: u32,
    /// Where its body ends in the bodies, and the next one's begins.
    pub body_end: u32,
    /// How many it has.
    pub blocks: u8,
    pub plain: Option<Plain>,
}

// Two stand in a line of the processor's caches.
const _: () = assert!(size_of::<Place>() == 32);

pub(super) const NOWHERE: Place = Place { end_block: 0, body_end: 0, blocks: 0, plain: None };

/// A plain chunk, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    /// `(base >> shift) + start`: the line at 0. A `u64`, which would have its place begin at a multiple of 8.
    start: [u8; 8],
    slope: u32,
    /// How many bytes its codes take, the last of its body.
    codes_bytes: u16,
    shift: u8,
    width: u8,
    exceptions: u8,
    exception_shift: u8,
    exception_width: u8,
    /// How many bits of the head's number are not the prefix: 8 to 64.
    behind: NonZeroU8,
}

impl Plain {
    /// A numeric chunk whose prefix is `of_head` bytes of its head, whose number is `head`; `None` if it is not plain.
    pub fn of(numeric: &Numeric<'_>, head: u64, of_head: usize) -> Option<Plain> {
        if of_head > 7
            || numeric.exception_base != (head << (8 * of_head)) >> numeric.exception_shift
        {
            return None;
        }
        Some(Plain {
            start: numeric.start.to_le_bytes(),
            slope: u32::try_from(numeric.slope).ok()?,
            codes_bytes: u16::try_from(numeric.encoded_bytes()).ok()?,
            shift: u8::try_from(numeric.shift).ok()?,
            width: u8::try_from(numeric.width).ok()?,
            exceptions: u8::try_from(numeric.exceptions).ok()?,
            exception_shift: u8::try_from(numeric.exception_shift).ok()?,
            exception_width: u8::try_from(numeric.exception_width).ok()?,
            behind: NonZeroU8::new(64 - 8 * of_head as u8)?,
        })
    }
}

impl Place {
    pub fn first_block(&self) -> u64 {
        u64::from(self.end_block.saturating_sub(u32::from(self.blocks)))
    }

    /// How many inner separators it has: one fewer than blocks.
    #[inline]
    pub fn count(&self) -> u64 {
        u64::from(self.blocks.saturating_sub(1))
    }

    /// How many inner separators are at most `key`, if the chunk is plain and the key is not shorter than
    /// its prefix. `head` is the head's number; both are without what the table shares.
    #[inline]
    pub fn rank(&self, head: u64, key: &[u8], bodies: &[u8]) -> Option<u64> {
        let plain = self.plain.as_ref()?;
        let behind = u32::from(plain.behind.get());
        let mut number = embed(key);
        if behind < 64 {
            let of_head = 8 - behind as usize / 8;
            if key.len() < of_head {
                return None;
            }
            if (number ^ head) >> behind != 0 {
                // All separators begin with the prefix: they relate to the key as it does.
                return Some(if number < head { 0 } else { self.count() });
            }
            number = match key.get(of_head..) {
                Some(tail) if key.len() > 8 => embed(tail),
                _ => number << (64 - behind),
            };
        }
        let (shift, width) = (u32::from(plain.shift), u32::from(plain.width));
        let (shifted, significant) = (number >> shift, mask(64 - shift));
        let (code_mask, exceptions) = (mask(width), u64::from(plain.exceptions));
        let codes = (self.body_end as usize).saturating_sub(usize::from(plain.codes_bytes));
        let codes = bodies.get(codes..).unwrap_or_default();
        let (count, start) = (self.count(), u64::from_le_bytes(plain.start));
        let holds = |i: u64| {
            let at = i as usize * width as usize;
            let eight = codes.get(at >> 3..).and_then(|rest| rest.first_chunk::<8>());
            let code = match eight {
                Some(eight) if width <= 57 => u64::from_le_bytes(*eight) >> (at & 7) & code_mask,
                _ => read(codes, at, width),
            };
            if code_mask - code < exceptions {
                return plain.exception(head, code, count, codes) <= number;
            }
            // At most 2^32 * 64.
            let risen = (u64::from(plain.slope) * (i + 1)) >> FRACTION;
            start.wrapping_add(risen).wrapping_add(code) & significant <= shifted
        };
        Some(count_from(plain.guess(head, shifted), count, holds))
    }
}

impl Plain {
    /// About how many separators are at most a number of the chunk, whose highest bits are `shifted`: where the line with all codes
    /// in their middle reaches it, the last of them. `None` where codes take so much that halving is no longer.
    #[inline]
    fn guess(&self, head: u64, shifted: u64) -> Option<u64> {
        let code_mask = mask(self.width.into());
        if code_mask > u64::from(self.slope) / WIDE_PART {
            return None;
        }
        // Both from the head, which is at most the number: so nothing wraps that was not written to.
        let base = (head << (64 - u32::from(self.behind.get()))) >> self.shift;
        let start = u64::from_le_bytes(self.start).wrapping_sub(base) as i64;
        let risen = i64::try_from(shifted.saturating_sub(base)).unwrap_or(i64::MAX);
        let above = risen.saturating_sub(start).saturating_sub((code_mask / 2) as i64);
        let reached = above as f64 * f64::from(1 << FRACTION) / f64::from(self.slope);
        // What is below zero, or no number, is zero.
        Some((reached as u64).saturating_sub(1))
    }

    /// The exception that a code names, of a chunk of `count` codes.
    #[cold]
    fn exception(&self, head: u64, code: u64, count: u64, codes: &[u8]) -> u64 {
        let (width, own) = (u32::from(self.width), u32::from(self.exception_width));
        let at = count * u64::from(width) + (mask(width) - code) * u64::from(own);
        let shift = u32::from(self.exception_shift);
        let base = (head << (64 - u32::from(self.behind.get()))) >> shift;
        base.wrapping_add(read(codes, at as usize, own)) << shift
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::super::{Directory, DirectoryBuilder, Limits};
    use super::embed;

    /// A line over more than half of all numbers was taken to lie above the second half of them.
    #[test]
    fn a_guess_is_near_however_much_of_all_numbers_a_chunk_covers() {
        let even = |first: u64, step: u32| (0..64).map(move |i| first + (i << step));
        let sets: [Vec<u64>; 4] = [
            even(0, 58).collect(),
            even(1 << 63, 57).collect(),
            even(u64::MAX - (64 << 50), 50).collect(),
            even(1 << 56, 49).chain(even(4 << 56, 49)).collect(),
        ];
        for numbers in sets {
            let keys: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_be_bytes()).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let limits = Limits { max_block_bytes: 100, blocks_per_chunk: 64 };
            let mut builder = DirectoryBuilder::new(limits, keys[0]);
            for chunk in keys.chunks(64) {
                let cuts = builder.cut(chunk, &[100; 64], chunk.last() == keys.last());
                cuts.iter().for_each(|_| builder.push_end(1));
            }
            let directory = Directory::decode(builder.finish()).unwrap();
            let (shared, chunks) = directory.places();
            let mut guessed = 0;
            for (head, place) in chunks {
                // Of two sets the second's prefix may end behind its head.
                let Some(plain) = place.plain else { continue };
                for block in place.first_block()..u64::from(place.end_block) {
                    let tail = embed(&keys[block as usize][shared..]);
                    let shifted = tail << (64 - u32::from(plain.behind.get())) >> plain.shift;
                    let guess = plain.guess(head, shifted).unwrap();
                    let off = guess.abs_diff(block - place.first_block());
                    assert!(off <= 2, "{guess} for block {block} of {numbers:?}");
                    guessed += 1;
                }
            }
            assert!(guessed >= 60, "{guessed} of {numbers:?}");
        }
    }
}
