//! Finished segments: looking one up, evaluating its line, and their bytes.
//!
//! # Bytes
//!
//! Integers as in [`bytes`](crate::bytes). The kinds differ in what `end` counts, not in layout.
//!
//! ```text
//! version    u8      1
//! epsilon    u16     positions (or blocks)
//! end        varint  the value above the last key: number of keys (or blocks)
//! segments   varint  how many follow; 0 exactly when `end` is 0
//!   key      varint  first key, minus the previous segment's (the very first: minus 0)
//!   start    varint  `y` at the first key, minus the previous segment's
//!   slope    varint  u32, in 2^-shift positions per key
//!   shift    u8      0..=67
//!   intercept signed varint   eighths of a position, relative to `start`, within 24 bits
//! ```
//!
//! The keys 10, 20, 30, 40, 50 at epsilon 1 are
//! `01 01 00 05 01 0a 00 01 04 0a`: one segment
//! from key 10 and position 0, rising 1/16 per key from 5/8.
//! (The test `the_worked_example` compares this with the code.)

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::Bound;
use crate::bytes::{Reader, Writer};
use crate::error::{DecodeError, Found};

const VERSION: u8 = 1;
/// Fixed-point one of intercepts: they count eighths of a position.
pub(super) const ONE: i32 = 8;
/// [`ONE`] is this power of two.
const ONE_LOG2: u8 = 3;
/// Largest slope shift the cone produces: 63 bits of key span, and 4 for the rounding.
const MAX_SHIFT: u8 = 67;
/// Intercepts fit 24 signed bits: eight times the largest epsilon, plus a little, is below 2^20.
const INTERCEPTS: std::ops::Range<i64> = -(1 << 23)..1 << 23;
/// No segment is encoded in fewer bytes; bounds the allocation for a claimed count.
const MIN_SEGMENT_BYTES: usize = 5;

/// A line of rational slope in fixed point, 16 bytes:
/// `f(dx) = start + floor(intercept / 8 + slope * dx / 2^shift)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    start: u64,
    slope: u32,
    /// Intercept in the upper 24 bits, shift in the lower 8: together they spare a third of a line.
    intercept_and_shift: i32,
}

impl Line {
    pub(super) fn new(start: u64, slope: u32, shift: u8, intercept: i32) -> Self {
        debug_assert!(shift <= MAX_SHIFT && INTERCEPTS.contains(&intercept.into()));
        Self { start, slope, intercept_and_shift: intercept << 8 | i32::from(shift) }
    }

    fn shift(self) -> u8 {
        self.intercept_and_shift as u8
    }

    fn intercept(self) -> i32 {
        self.intercept_and_shift >> 8
    }

    /// The line's value `dx` keys to the right of the segment's first, unclipped. No intermediate can
    /// overflow, whatever was decoded: 24 + 67 bits, 3 + 32 + 64 bits, and a `u64` on top.
    pub(super) fn at(self, dx: u64) -> i128 {
        let rise = (i128::from(self.slope) * i128::from(dx)) << ONE_LOG2;
        let intercept = i128::from(self.intercept()) << self.shift();
        i128::from(self.start) + ((intercept + rise) >> (self.shift() + ONE_LOG2))
    }
}

/// Lines sorted by the first key they hold for, each holding up to the next one's.
///
/// Invariants, checked when decoding: first keys strictly rise, starts never fall, no start is above
/// `end`, and there are segments exactly if `end > 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    epsilon: u16,
    end: u64,
    /// Apart from the lines, so that the binary search touches eight of them per cache line.
    first_keys: Vec<u64>,
    lines: Vec<Line>,
}

impl Segments {
    pub(super) fn new(epsilon: u16) -> Self {
        Self { epsilon, end: 0, first_keys: Vec::new(), lines: Vec::new() }
    }

    pub(super) fn push(&mut self, first_key: u64, line: Line) {
        self.first_keys.push(first_key);
        self.lines.push(line);
    }

    pub(super) fn finish(mut self, end: u64) -> Self {
        self.end = end;
        self.first_keys.shrink_to_fit();
        self.lines.shrink_to_fit();
        self
    }

    /// The value above the last key: how many keys (or blocks) there are.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn epsilon(&self) -> u16 {
        self.epsilon
    }

    pub(crate) fn count(&self) -> usize {
        self.lines.len()
    }

    /// The prediction for `key`, less epsilon, up to the prediction plus epsilon plus `above`, clipped
    /// to the values the staircase takes within the segment.
    pub(crate) fn around(&self, key: u64, above: u64) -> Bound {
        let after = self.first_keys.partition_point(|&first| first <= key);
        let ceiling = self.lines.get(after).map_or(self.end, |next| next.start);
        let Some(index) = after.checked_sub(1) else {
            // Below every key: the value at the first one.
            return Bound::exact(ceiling);
        };
        let (Some(&first_key), Some(line)) = (self.first_keys.get(index), self.lines.get(index))
        else {
            return Bound { first: 0, last: self.end };
        };
        let floor = line.start;
        let at = line.at(key - first_key).clamp(floor.into(), ceiling.into()) as u64;
        let epsilon = u64::from(self.epsilon);
        Bound {
            first: at.saturating_sub(epsilon).max(floor),
            last: at.saturating_add(epsilon + above).min(ceiling),
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.first_keys.capacity() * size_of::<u64>() + self.lines.capacity() * size_of::<Line>()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(VERSION);
        writer.u16(self.epsilon);
        writer.varint(self.end);
        writer.varint(self.lines.len() as u64);
        let (mut key, mut start) = (0, 0);
        for (&first_key, line) in self.first_keys.iter().zip(&self.lines) {
            writer.varint(first_key - key);
            writer.varint(line.start - start);
            writer.varint(line.slope.into());
            writer.u8(line.shift());
            writer.signed_varint(line.intercept().into());
            (key, start) = (first_key, line.start);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8("a version")?;
        if version != VERSION {
            return Err(reader.refuse(0, "version 1", Found::Number(version.into())));
        }
        let mut segments = Self::new(reader.u16("epsilon")?);
        segments.end = reader.varint("the number of keys or blocks")?;

        let offset = reader.offset();
        let claimed = reader.varint("the number of segments")?;
        let fits = reader.remaining() / MIN_SEGMENT_BYTES;
        let Some(count) = usize::try_from(claimed).ok().filter(|&count| count <= fits) else {
            return Err(reader.refuse(
                offset,
                "segments that fit the bytes",
                Found::Number(claimed),
            ));
        };
        if (count == 0) != (segments.end == 0) {
            let expected = "segments exactly if there are keys or blocks";
            return Err(reader.refuse(offset, expected, Found::Number(claimed)));
        }
        segments.first_keys.reserve_exact(count);
        segments.lines.reserve_exact(count);
        for _ in 0..count {
            segments.decode_one(&mut reader)?;
        }
        reader.finish()?;
        Ok(segments)
    }

    fn decode_one(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let offset = reader.offset();
        let delta = reader.varint("a segment's first key")?;
        let first_key = match self.first_keys.last() {
            None => Some(delta),
            Some(&previous) => previous.checked_add(delta).filter(|_| delta > 0),
        };
        let Some(first_key) = first_key else {
            return Err(reader.refuse(offset, "a larger first key", Found::Number(delta)));
        };

        let offset = reader.offset();
        let delta = reader.varint("a segment's start")?;
        let previous = self.lines.last().map_or(0, |line| line.start);
        let Some(start) = previous.checked_add(delta).filter(|&start| start <= self.end) else {
            return Err(reader.refuse(offset, "a start within the end", Found::Number(delta)));
        };

        let offset = reader.offset();
        let slope = reader.varint("a slope")?;
        let Ok(slope) = u32::try_from(slope) else {
            return Err(reader.refuse(offset, "a slope of 32 bits", Found::Number(slope)));
        };

        let offset = reader.offset();
        let shift = reader.u8("a slope's shift")?;
        if shift > MAX_SHIFT {
            return Err(reader.refuse(
                offset,
                "a shift of at most 67",
                Found::Number(shift.into()),
            ));
        }

        let offset = reader.offset();
        let intercept = reader.signed_varint("an intercept")?;
        if !INTERCEPTS.contains(&intercept) {
            let found = Found::Number(intercept.unsigned_abs());
            return Err(reader.refuse(offset, "an intercept of 24 bits", found));
        }
        self.push(first_key, Line::new(start, slope, shift, intercept as i32));
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::plr::Fitter;

    #[test]
    fn the_worked_example() {
        let mut fitter = Fitter::new(1);
        for position in 0..5 {
            fitter.push(10 * (position + 1), position);
        }
        let segments = fitter.finish(5);
        let mut bytes = Vec::new();
        segments.encode(&mut bytes);
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = segments.lines[0];
        let words = format!(
            "`{}`: one segment\n//! from key 10 and position {}, rising {}/{} per key from {}/8.",
            hex.join(" "),
            line.start,
            line.slope,
            1u64 << line.shift(),
            line.intercept()
        );
        assert!(
            include_str!("segments.rs").contains(&words),
            "the module page should say\n{words}"
        );
    }

    /// A hundred keys side by side, then one far away: in between, the line would run on to 2^40.
    #[test]
    fn a_gap_is_answered_as_tightly_as_a_key() {
        let mut fitter = Fitter::new(8);
        for position in 0..100 {
            fitter.push(position, position);
        }
        fitter.push(1 << 50, 100);
        fitter.push((1 << 50) + 1, 101);
        let segments = fitter.finish(102);
        assert_eq!(segments.count(), 2);
        assert_eq!(segments.around(1 << 40, 1), Bound { first: 92, last: 100 });
    }

    /// The extremes a decoder lets through, evaluated far away.
    #[test]
    fn no_accepted_line_overflows() {
        for (slope, shift, intercept) in [
            (u32::MAX, 0, INTERCEPTS.end - 1),
            (u32::MAX, MAX_SHIFT, INTERCEPTS.end - 1),
            (u32::MAX, MAX_SHIFT, INTERCEPTS.start),
            (0, MAX_SHIFT, INTERCEPTS.start),
        ] {
            let line = Line::new(u64::MAX, slope, shift, intercept as i32);
            assert_eq!((line.shift(), i64::from(line.intercept())), (shift, intercept));
            let mut segments = Segments::new(u16::MAX);
            segments.push(0, line);
            let segments = segments.finish(u64::MAX);
            for key in [0, 1, u64::MAX / 2, u64::MAX] {
                assert_eq!(segments.around(key, 1), Bound::exact(u64::MAX));
            }
        }
        let steep = Line::new(0, u32::MAX, 0, 0);
        assert_eq!(steep.at(u64::MAX), i128::from(u32::MAX) * i128::from(u64::MAX));
    }

    #[test]
    fn each_bad_field_is_named_with_its_offset() {
        let good = [1, 1, 0, 5, 2, 10, 0, 7, 6, 5, 10, 1, 7, 6, 5];
        assert_eq!(Segments::decode(&good).unwrap().count(), 2);
        for (index, byte, expected) in [
            (0, 2, "version 1"),
            (4, 0, "segments exactly if there are keys or blocks"),
            (4, 3, "segments that fit the bytes"),
            (8, 68, "a shift of at most 67"),
            (10, 0, "a larger first key"),
            (11, 6, "a start within the end"),
        ] {
            let mut bad = good;
            *bad.get_mut(index).unwrap() = byte;
            let error = Segments::decode(&bad).unwrap_err();
            assert_eq!((error.offset, error.expected), (index, expected));
            assert_eq!(error.found, Found::Number(byte.into()));
        }
        let wide_slope = [1, 1, 0, 5, 1, 10, 0, 0x80, 0x80, 0x80, 0x80, 0x10, 6, 5];
        assert_eq!(Segments::decode(&wide_slope).unwrap_err().expected, "a slope of 32 bits");
        let wide_intercept = [1, 1, 0, 5, 1, 10, 0, 7, 6, 0x80, 0x80, 0x80, 0x08];
        assert_eq!(
            Segments::decode(&wide_intercept).unwrap_err().expected,
            "an intercept of 24 bits"
        );
    }
}
