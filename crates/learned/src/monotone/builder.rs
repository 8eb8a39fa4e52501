//! Values in, encoded bytes out, 64 values at a time.

use super::bits::{BitWriter, bits_of};
use super::strip::{Scratch, narrowest_slope};
use super::{CHUNK, FRACTION, VERSION, line};
use crate::bytes::Writer;
use crate::error::BuildError;

/// Encodes a [`Monotone`](super::Monotone) sequence. Takes values one at a time and buffers 64 of
/// them besides what is encoded already.
#[derive(Debug, Default)]
pub struct MonotoneBuilder {
    buffer: Vec<u64>,
    chunks: Vec<Chunk>,
    residuals: BitWriter,
    count: u64,
    previous: u64,
    points: Vec<(f64, f64)>,
    scratch: Scratch,
}

#[derive(Debug)]
struct Chunk {
    /// What the line begins at: below the first value, even below zero, where residuals say so.
    base: i128,
    slope: u64,
    width: u32,
    /// Where its residuals begin, in 64 bits.
    start: u64,
}

impl MonotoneBuilder {
    /// A builder of an empty sequence.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many values were pushed.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether none was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the next value.
    ///
    /// # Errors
    /// It is below the value before it. It is not taken then.
    pub fn push(&mut self, value: u64) -> Result<(), BuildError> {
        if value < self.previous {
            return Err(BuildError::UnsortedKey {
                position: self.count,
                previous: self.previous,
                found: value,
            });
        }
        self.previous = value;
        self.count += 1;
        self.buffer.push(value);
        if self.buffer.len() == CHUNK as usize {
            self.flush();
        }
        Ok(())
    }

    /// The encoded sequence.
    pub fn finish(mut self) -> Vec<u8> {
        if !self.buffer.is_empty() {
            self.flush();
        }
        let origin = self.chunks.iter().map(|c| c.base).min().unwrap_or(0);
        let slope_floor = self.chunks.iter().map(|c| c.slope).min().unwrap_or(0);
        // Bases may span more than 64 bits; modulo 2^64 they are right all the same.
        let base = |c: &Chunk| (c.base - origin) as u64;
        let widest = |field: &dyn Fn(&Chunk) -> u64| {
            self.chunks.iter().map(|c| bits_of(field(c))).max().unwrap_or(0)
        };
        let base_bits = widest(&base);
        let slope_bits = widest(&|c| c.slope - slope_floor);
        let width_bits = widest(&|c| c.width.into());
        let start_bits = widest(&|c| c.start);
        let mut records = BitWriter::default();
        for chunk in &self.chunks {
            records.push(base(chunk), base_bits);
            records.push(chunk.slope - slope_floor, slope_bits);
            records.push(chunk.width.into(), width_bits);
            records.push(chunk.start, start_bits);
        }
        let residuals = self.residuals.finish();

        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.u8(VERSION);
        writer.varint(self.count);
        writer.u64(origin as u64);
        writer.varint(slope_floor);
        for bits in [base_bits, slope_bits, width_bits, start_bits] {
            writer.u8(bits as u8);
        }
        writer.varint(residuals.len() as u64);
        out.extend(records.finish());
        out.extend(residuals);
        out
    }

    /// Fits and encodes the buffered values, at least one.
    fn flush(&mut self) {
        let first = self.buffer[0];
        self.points.clear();
        let rises = self.buffer.iter().map(|v| (v - first) as f64);
        self.points.extend(rises.enumerate().map(|(place, rise)| (place as f64, rise)));
        let fitted = narrowest_slope(&self.points, &mut self.scratch);
        let scaled = fitted * f64::from(1u32 << FRACTION);
        // The cast saturates: a slope of 2^56 and more is cut there and paid for in residuals. The
        // slope 0 stands by for cases where rounding made the fitted one the wider.
        let fitted = scaled.round() as u64;
        let (low, height) = self.strip(fitted);
        let rise = self.previous - first;
        let (slope, low, height) =
            if height <= rise { (fitted, low, height) } else { (0, 0, rise) };
        let width = bits_of(height);
        let base = i128::from(first) + low;
        self.chunks.push(Chunk { base, slope, width, start: self.residuals.len() as u64 / CHUNK });
        // Modulo 2^64 residuals are right whatever the base.
        let base = base as u64;
        for (place, &value) in self.buffer.iter().enumerate() {
            let above = value.wrapping_sub(line(slope, place as u64));
            self.residuals.push(above.wrapping_sub(base), width);
        }
        self.buffer.clear();
    }

    /// The lower edge at place 0, above the first value, and the height of the strip of this slope
    /// around the buffered values; the height saturates.
    fn strip(&self, slope: u64) -> (i128, u64) {
        let first = self.buffer[0];
        let places = || self.buffer.iter().enumerate().map(|(place, value)| (place as u64, value));
        // Almost always all of it fits 64 bits.
        if slope < 1 << 50 && self.previous - first < 1 << 62 {
            let above = |(place, &value): (u64, &u64)| {
                (value - first) as i64 - ((slope * place) >> FRACTION) as i64
            };
            let (low, high) = places()
                .map(above)
                .fold((i64::MAX, i64::MIN), |(low, high), above| (low.min(above), high.max(above)));
            return (low.into(), high.abs_diff(low));
        }
        let above = |(place, &value): (u64, &u64)| {
            i128::from(value - first) - i128::from(line(slope, place))
        };
        let low = places().map(above).min().unwrap_or(0);
        let high = places().map(above).max().unwrap_or(0);
        (low, u64::try_from(high - low).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Steps of every size: the strip around them is that of wide numbers, and of the fitted slope and 0
    /// the narrower one is taken.
    #[test]
    fn strips_are_those_of_wide_numbers() {
        let mut state = 5u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            state ^ (state >> 31)
        };
        for (bits, even) in (0..64).flat_map(|bits| [(bits, true), (bits, false)]) {
            let mut builder = MonotoneBuilder::new();
            let mut value = if even { 0 } else { random() >> 8 };
            while builder.len() < CHUNK - 1 {
                builder.push(value).unwrap();
                let step = if even { 1 << bits } else { random() >> (63 - bits) };
                value = value.saturating_add(step);
            }
            let (first, rise) = (builder.buffer[0], builder.previous - builder.buffer[0]);
            let points = builder.buffer.iter().map(|v| (v - first) as f64).enumerate();
            let points: Vec<_> = points.map(|(place, rise)| (place as f64, rise)).collect();
            let fitted = narrowest_slope(&points, &mut Scratch::default()) * 256.0;
            let fitted = fitted.round() as u64;
            for slope in [0, 1, fitted / 2, fitted, fitted.saturating_mul(3), 1 << 58, u64::MAX] {
                let above = builder.buffer.iter().enumerate().map(|(place, &value)| {
                    i128::from(value - first) - i128::from(line(slope, place as u64))
                });
                let (low, high) = (above.clone().min().unwrap(), above.max().unwrap());
                let height = u64::try_from(high - low).unwrap_or(u64::MAX);
                assert_eq!(builder.strip(slope), (low, height), "{bits} bits, slope {slope}");
            }
            let narrower = builder.strip(fitted).1.min(rise);
            builder.flush();
            assert_eq!(builder.chunks[0].width, bits_of(narrower), "{bits} bits");
        }
    }
}
