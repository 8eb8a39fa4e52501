//! A non-decreasing sequence of `u64`s in a few bits a value, with direct access to each.
//!
//! Every 64 values are a line plus what each value lies above it, in as many bits as the largest of
//! these residuals needs. What is evaluated is the encoded form itself: nothing is unpacked, and a
//! sequence takes no more memory than its bytes and a struct of a few words.
//!
//! # Layout
//! ```text
//! sequence  := version:u8 = 1, count:varint, origin:u64, slope_floor:varint,
//!              base_bits:u8, slope_bits:u8, width_bits:u8, start_bits:u8,
//!              residual_bytes:varint, records, residuals
//! records   := ceil(count / 64) records, bit-packed, padded to a byte
//! record    := base:base_bits  slope:slope_bits  width:width_bits  start:start_bits
//! residuals := bit-packed: 64 residuals of `width` bits for each chunk, fewer for the last
//! ```
//! Value `i`, of chunk `c = i / 64` at place `k = i % 64`, all modulo 2^64:
//! ```text
//! origin + base[c] + ((slope_floor + slope[c]) * k >> 8) + residual
//! residual: the width[c] bits at bit 64 * start[c] + k * width[c] of the residuals
//! ```
//! The sequence 0, 10, 21, 30:
//! ```text
//! 0104 0000000000000000 8014 00000100 01 0104
//! ```
//! version 1, 4 values; origin 0; the slope 2560 / 256 = 10, a floor that the only record adds no
//! bits to; only the width has bits in a record (1 of them); 1 byte of residuals; the record: width
//! 1; the residuals 0, 0, 1, 0.
//!
//! Bit strings run from the least significant bit of the first byte.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod bits;
#[allow(clippy::indexing_slicing)] // plans only: it never sees encoded bytes
pub(crate) mod strip;

#[allow(clippy::indexing_slicing, clippy::expect_used)] // never sees encoded bytes
mod builder;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;

pub use builder::MonotoneBuilder;

use std::sync::Arc;

use crate::bytes::Reader;
use crate::error::{DecodeError, Found};

/// Values that share a line.
const CHUNK: u64 = 64;
/// Bits of a slope behind the binary point: over 64 places a slope is wrong by a quarter at most.
const FRACTION: u32 = 8;
const VERSION: u8 = 1;

/// A non-decreasing sequence of `u64`s, read in place. See the [module page](self).
///
/// ```
/// use learned::monotone::{Monotone, MonotoneBuilder};
///
/// let mut builder = MonotoneBuilder::new();
/// for i in 0..1000 {
///     builder.push(i * 64 + i % 3)?;
/// }
/// let ends = Monotone::decode(builder.finish())?;
/// assert_eq!((ends.len(), ends.get(999)), (1000, 999 * 64));
/// assert_eq!(ends.rank(63), 1); // one value, 0, is at most 63
/// assert!(ends.size_bytes() < 500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Monotone {
    bytes: Arc<[u8]>,
    /// Where in `bytes` the sequence, its records and its residuals begin, and where it ends.
    start: usize,
    records: usize,
    residuals: usize,
    end: usize,
    count: u64,
    origin: u64,
    slope_floor: u64,
    base_bits: u32,
    slope_bits: u32,
    width_bits: u32,
    start_bits: u32,
}

/// One chunk's line.
struct Record {
    base: u64,
    slope: u64,
    width: u32,
    start: u64,
}

impl Monotone {
    /// Takes encoded bytes over.
    ///
    /// # Errors
    /// The bytes are cut short, are followed by others, have another version, or a field points
    /// outside them. Values that lie are not noticed: they give wrong answers, nothing else.
    pub fn decode(bytes: impl Into<Arc<[u8]>>) -> Result<Self, DecodeError> {
        let bytes = bytes.into();
        let sequence = Self::decode_at(bytes.clone(), 0)?;
        match bytes.len() - sequence.end {
            0 => Ok(sequence),
            more => Err(DecodeError {
                offset: sequence.end,
                expected: "the end",
                found: Found::Trailing(more),
            }),
        }
    }

    /// The sequence that begins at byte `start` of `bytes`, which it shares; it may be followed by
    /// anything, from its byte [`end`](Self::end) on.
    ///
    /// # Errors
    /// As [`Monotone::decode`].
    pub(crate) fn decode_at(bytes: Arc<[u8]>, start: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&bytes);
        reader.take(start, "a sequence")?;
        let at = reader.offset();
        match reader.u8("version 1 of a sequence")? {
            VERSION => {}
            other => {
                let found = Found::Number(other.into());
                return Err(reader.refuse(at, "version 1 of a sequence", found));
            }
        }
        let count = reader.varint("a count of values")?;
        let origin = reader.u64("an origin")?;
        let slope_floor = reader.varint("a slope")?;
        let mut field_bits = [0; 4];
        for bits in &mut field_bits {
            let at = reader.offset();
            *bits = u32::from(reader.u8("a width of at most 64 bits")?);
            if *bits > 64 {
                let found = Found::Number((*bits).into());
                return Err(reader.refuse(at, "a width of at most 64 bits", found));
            }
        }
        let [base_bits, slope_bits, width_bits, start_bits] = field_bits;
        let residual_bytes = reader.varint("a length of residuals")?;
        let records = reader.offset();
        let record_bits = u128::from(field_bits.iter().sum::<u32>());
        let record_bytes = (u128::from(count.div_ceil(CHUNK)) * record_bits).div_ceil(8);
        let fits = |bytes: u128| usize::try_from(bytes).unwrap_or(usize::MAX);
        reader.take(fits(record_bytes), "records for every value")?;
        let residuals = reader.offset();
        reader.take(fits(residual_bytes.into()), "as many residuals as announced")?;
        let end = reader.offset();
        let sequence = Self {
            start,
            records,
            residuals,
            end,
            count,
            origin,
            slope_floor,
            base_bits,
            slope_bits,
            width_bits,
            start_bits,
            bytes: bytes.clone(),
        };
        sequence.check_records()?;
        Ok(sequence)
    }

    /// Refuses chunks whose residuals are not all there.
    fn check_records(&self) -> Result<(), DecodeError> {
        if self.width_bits == 0 {
            return Ok(()); // no residuals anywhere, and perhaps no bytes that bound the loop below
        }
        let residual_bits = 8 * (self.end - self.residuals) as u128;
        for chunk in 0..self.count.div_ceil(CHUNK) {
            let record = self.record(chunk);
            let values = (self.count - chunk * CHUNK).min(CHUNK);
            let needed = u128::from(record.start) * u128::from(CHUNK)
                + u128::from(values) * u128::from(record.width);
            if record.width > 64 || needed > residual_bits {
                return Err(DecodeError {
                    offset: self.records + chunk as usize * self.record_bits() / 8,
                    expected: "a record whose residuals are there",
                    found: Found::Number(needed.min(u64::MAX.into()) as u64),
                });
            }
        }
        Ok(())
    }

    /// How many values there are.
    #[inline]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Value `index`, counted from 0; 0 from [`len`](Self::len) on.
    #[inline]
    pub fn get(&self, index: u64) -> u64 {
        if index >= self.count {
            return 0;
        }
        self.value(&self.record(index / CHUNK), index % CHUNK)
    }

    /// Values `index` and `index + 1`, for little more than the price of one.
    #[inline]
    pub fn pair(&self, index: u64) -> (u64, u64) {
        if index >= self.count || index % CHUNK == CHUNK - 1 || index + 1 >= self.count {
            return (self.get(index), self.get(index.saturating_add(1)));
        }
        let record = self.record(index / CHUNK);
        let (place, width) = (index % CHUNK, record.width);
        if width > 32 {
            return (self.value(&record, place), self.value(&record, place + 1));
        }
        let both = self.residual(&record, place, 2 * width);
        let above = |place, residual| self.line(&record, place).wrapping_add(residual);
        (above(place, both & bits::mask(width)), above(place + 1, both >> width))
    }

    /// All values, in order: for less than asking for each.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.count.div_ceil(CHUNK)).flat_map(move |chunk| {
            let record = self.record(chunk);
            let values = (self.count - chunk * CHUNK).min(CHUNK);
            (0..values).map(move |place| self.value(&record, place))
        })
    }

    /// How many values are at most `x`: a binary search over chunks, then one inside a chunk.
    pub fn rank(&self, x: u64) -> u64 {
        let (mut low, mut high) = (0, self.count.div_ceil(CHUNK));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle * CHUNK) <= x { low = middle + 1 } else { high = middle }
        }
        let Some(chunk) = low.checked_sub(1) else { return 0 };
        let record = self.record(chunk);
        // The first value of the chunk is at most `x`; the next chunk's first is not.
        let (mut low, mut high) = (1, (self.count - chunk * CHUNK).min(CHUNK));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.value(&record, middle) <= x { low = middle + 1 } else { high = middle }
        }
        chunk * CHUNK + low
    }

    /// Bytes the sequence takes in memory: its encoded bytes and this struct.
    pub fn size_bytes(&self) -> usize {
        self.encoded_bytes() + size_of::<Self>()
    }

    /// Bytes of the encoded form, header included.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Where the sequence ended in the bytes it was decoded from.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    #[inline]
    fn record_bits(&self) -> usize {
        (self.base_bits + self.slope_bits + self.width_bits + self.start_bits) as usize
    }

    #[inline]
    fn record(&self, chunk: u64) -> Record {
        // A chunk below the count lies in the records, whose length in bits fits a `usize` (decode
        // took them); other chunks are never asked for.
        let bytes = self.bytes.get(self.records..self.residuals).unwrap_or_default();
        let (mut at, all) = ((chunk as usize).wrapping_mul(self.record_bits()), self.record_bits());
        if all <= 64 {
            // One read serves all four.
            let mut left = bits::read(bytes, at, all as u32);
            let mut field = |width: u32| {
                let value = left & bits::mask(width);
                left = left.checked_shr(width).unwrap_or(0);
                value
            };
            let (base, slope) = (field(self.base_bits), field(self.slope_bits));
            let width = field(self.width_bits).min(65) as u32;
            return Record { base, slope, width, start: field(self.start_bits) };
        }
        let mut field = |width: u32| {
            let value = bits::read(bytes, at, width);
            at = at.wrapping_add(width as usize);
            value
        };
        let base = field(self.base_bits);
        let slope = field(self.slope_bits);
        let width = field(self.width_bits).min(65) as u32;
        Record { base, slope, width, start: field(self.start_bits) }
    }

    #[inline]
    fn value(&self, record: &Record, place: u64) -> u64 {
        self.line(record, place).wrapping_add(self.residual(record, place, record.width))
    }

    /// Where a chunk's line is at a place.
    #[inline]
    fn line(&self, record: &Record, place: u64) -> u64 {
        self.origin
            .wrapping_add(record.base)
            .wrapping_add(line(self.slope_floor.wrapping_add(record.slope), place))
    }

    /// The `width` bits from a place's residual on.
    #[inline]
    fn residual(&self, record: &Record, place: u64, width: u32) -> u64 {
        let bytes = self.bytes.get(self.residuals..self.end).unwrap_or_default();
        let at = record.start.wrapping_mul(CHUNK).wrapping_add(place * u64::from(record.width));
        bits::read(bytes, at as usize, width.min(64))
    }
}

/// How far a line with this fixed-point slope has risen at `place`, modulo 2^64.
#[inline]
fn line(slope: u64, place: u64) -> u64 {
    ((u128::from(slope) * u128::from(place)) >> FRACTION) as u64
}
