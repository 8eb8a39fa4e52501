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
        // Where the line would reach the number if all codes were in their middle; below it at its beginning.
        let above = shifted.wrapping_sub(start).wrapping_sub(code_mask / 2);
        let above = ((above << shift) as i64 >> shift).max(0) as u64;
        let reached = (above as f64 * f64::from(1 << FRACTION) / f64::from(plain.slope)) as u64;
        Some(count_from(reached.saturating_sub(1), count, holds))
    }
}

impl Plain {
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
