//! Chunks whose separators are numbers: a line, a grid, and fixed-width residuals.
//!
//! With the chunk's prefix cut off, the next eight bytes of a key are a number (zeros fill up what is
//! missing). A separator is a number `S` too, and stands for the byte string `t(S)`: prefix, then the
//! eight bytes of `S` without the zero bytes at their end. Comparing numbers routes every key `k`
//! with that prefix as comparing bytes would: **`number(k) >= S` exactly if `k >= t(S)`**. Let `k`
//! and `t` be what follows the prefix.
//! - If they differ at a place that both have, it is among the first eight and the first at which
//!   the numbers differ: both comparisons are decided there.
//! - If `t` is `k` or a beginning of `k`, then `k >= t`, and where `S` has only zeros left the number
//!   of `k` has anything: `number(k) >= S`.
//! - If `k` is a true beginning of `t`, then `k < t`, and where the number of `k` has only zeros left
//!   `S` has the rest of `t`, whose last byte is not zero: `number(k) < S`.
//!
//! # Layout
//! ```text
//! numeric   := shift:u8, width:u8, slope:varint, start:signed varint,
//!              [exceptions:u8, exception_shift:u8, exception_width:u8]   if the flag says so
//!              bits
//! bits      := width bits for each inner separator, then exception_width for each exception
//! ```
//! Separator `i` (1 is that below the chunk's second block) has the code `r`, and is
//! ```text
//! ((base >> shift) + start + (slope * i >> 8) + r) << shift                  r < 2^width - exceptions
//! ((base >> exception_shift) + exception[2^width - 1 - r]) << exception_shift     otherwise
//! ```
//! modulo 2^64: the greatest codes name the misfits.
//!
//! Sixteen keys, 0, 1000 to 15,000 as big-endian `u64`s, but 7001 for 8000, two to a block, with flags and prefix:
//! ```text
//! 09 06                   numeric with exceptions; a prefix of 6 bytes of the head, which is 0: so is the base
//! 37 01 a01f 09           shift 55, width 1; slope 4000 / 256, start -5
//! 01 30 0d                one exception; shift 48, width 13
//! 88 ac0d                 the codes 0 0 0 1 0 0 0, a bit each, and then 7001 in 13 bits
//! ```
//! Separator 1 is `-5 + (4000 * 1 >> 8) << 55`, 1280 in the last two bytes: above 1000, not above 2000. Only 7001 lies
//! above 7000 and not above 7001, far off the line and off its grid: separator 4 has the code 1, which names the exception.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::search::count_while;
use crate::bytes::Reader;
use crate::error::DecodeError;
use crate::monotone::bits::{mask, read};

/// Bits of a slope behind the binary point.
pub(super) const FRACTION: u32 = 8;

/// A numeric chunk's body, read in place.
#[derive(Debug)]
pub(super) struct Numeric<'a> {
    pub shift: u32,
    pub width: u32,
    pub slope: u64,
    /// `(base >> shift) + start`.
    pub start: u64,
    pub exceptions: u64,
    pub exception_shift: u32,
    pub exception_width: u32,
    pub exception_base: u64,
    /// How many separators the codes are for.
    count: u64,
    bits: &'a [u8],
}

impl<'a> Numeric<'a> {
    /// Reads a body behind its prefix. `count` inner separators are expected.
    #[inline]
    pub fn read(
        reader: &mut Reader<'a>,
        base: u64,
        count: u64,
        has_exceptions: bool,
    ) -> Result<Self, DecodeError> {
        let shift = u32::from(reader.u8("a shift")?) & 63;
        let width = u32::from(reader.u8("a width")?).min(64);
        let slope = reader.varint("a slope")?;
        let start = reader.signed_varint("a start")? as u64;
        let [exceptions, exception_shift, exception_width] = match has_exceptions {
            true => [reader.u8("exceptions")?, reader.u8("a shift")?, reader.u8("a width")?],
            false => [0; 3],
        };
        let exception_shift = u32::from(exception_shift) & 63;
        let bits = reader.take(reader.remaining(), "codes")?;
        Ok(Self {
            shift,
            width,
            slope,
            start: (base >> shift).wrapping_add(start),
            exceptions: exceptions.into(),
            exception_shift,
            exception_width: u32::from(exception_width).min(64),
            exception_base: base >> exception_shift,
            count,
            bits,
        })
    }

    /// Bytes of the codes and exceptions.
    pub fn encoded_bytes(&self) -> usize {
        self.bits.len()
    }

    /// The number of inner separator `i`, from 1 to the count.
    #[inline]
    pub fn separator(&self, i: u64) -> u64 {
        let at = i.wrapping_sub(1).wrapping_mul(self.width.into());
        let code = read(self.bits, at as usize, self.width);
        let from_the_top = mask(self.width) - code;
        if from_the_top < self.exceptions {
            let width = u64::from(self.exception_width);
            let at = self.count.wrapping_mul(self.width.into());
            let at = at.wrapping_add(from_the_top * width);
            let value = read(self.bits, at as usize, self.exception_width);
            return self.exception_base.wrapping_add(value) << self.exception_shift;
        }
        self.start.wrapping_add(line(self.slope, i)).wrapping_add(code) << self.shift
    }

    /// How many inner separators are at most `number`.
    #[inline]
    pub fn rank(&self, number: u64) -> u64 {
        count_while(self.count, |i| self.separator(i + 1) <= number)
    }
}

/// How far the line has risen at separator `i`, in grid cells, modulo 2^64.
#[inline]
pub(super) fn line(slope: u64, i: u64) -> u64 {
    ((u128::from(slope) * u128::from(i)) >> FRACTION) as u64
}
