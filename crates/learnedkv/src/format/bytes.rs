//! Checked reading and plain writing of little-endian integers, varints and byte strings.
//!
//! A varint is LEB128: seven bits a byte, low bits first, the top bit set on all but the last byte.

use std::cmp::Ordering;

pub use learned::bytes::first_eight;

use crate::error::{Error, Result};

/// A piece of zeros to compare with.
const ZEROS: [u8; 4096] = [0; 4096];

/// Where the zeros at the end of `bytes` begin: behind the last byte that is none. Pieces are compared whole, since manifests
/// and log segments are reserved megabytes ahead.
pub fn zeros_from(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((before, _)) = rest.split_last_chunk().filter(|(_, piece)| **piece == ZEROS) {
        rest = before;
    }
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Appends a `u16`.
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `u32`.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `u64`.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes [`put_varint`] appends.
pub fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a byte string with its length as a varint before it.
pub fn put_slice(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// How many leading bytes two strings share.
pub fn common_prefix_length(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// A byte string that is compared with several, as `cmp` does, quicker where the first eight bytes decide.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    bytes: &'a [u8],
    number: u64,
}

impl<'a> Probe<'a> {
    /// To compare `bytes` with others.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Probe<'a> {
        Probe { bytes, number: first_eight(bytes) }
    }

    /// How it compares with another.
    #[inline]
    pub fn compare(&self, other: &[u8]) -> Ordering {
        self.compare_numbered(first_eight(other), other)
    }

    /// As [`Probe::compare`], where the number of the other is at hand.
    #[inline]
    pub fn compare_numbered(&self, number: u64, other: &[u8]) -> Ordering {
        match self.number.cmp(&number) {
            Ordering::Equal => self.compare_behind(other),
            decided => decided,
        }
    }

    /// The number of the bytes: their first eight, big-endian, missing ones as zeros.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How it compares with another whose number is the same.
    fn compare_behind(&self, other: &[u8]) -> Ordering {
        match (self.bytes.get(8..), other.get(8..)) {
            (Some(ours), Some(theirs)) => ours.cmp(theirs),
            // One that is no longer than eight bytes begins the other.
            _ => self.bytes.len().cmp(&other.len()),
        }
    }
}

/// The shortest byte string `s` with `after < s <= up_to`.
///
/// `after` must be smaller than `up_to`.
pub fn shortest_separator<'a>(after: &[u8], up_to: &'a [u8]) -> &'a [u8] {
    debug_assert!(after < up_to);
    let length = common_prefix_length(after, up_to) + 1;
    up_to.get(..length).unwrap_or(up_to)
}

/// Reads from a byte string, front to back, never past its end.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0 }
    }

    /// Reads `bytes` from `position`.
    #[inline]
    pub fn at(bytes: &'a [u8], position: usize) -> Reader<'a> {
        Reader { bytes, position }
    }

    /// How many bytes were read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// What was not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    /// `Corruption` if there are fewer.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.position.checked_add(length);
        match end.and_then(|end| self.bytes.get(self.position..end)) {
            Some(slice) => {
                self.position += length;
                Ok(slice)
            }
            None => Err(self.short(length)),
        }
    }

    #[cold]
    fn short(&self, length: usize) -> Error {
        let left = self.bytes.len().saturating_sub(self.position);
        Error::corruption(format!("expected {length} more bytes, found {left}"))
            .at_offset(self.position as u64)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// `Corruption` if there are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    ///
    /// # Errors
    /// `Corruption` at the end.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        match self.bytes.get(self.position) {
            Some(byte) => {
                self.position += 1;
                Ok(*byte)
            }
            None => Err(self.short(1)),
        }
    }

    /// The next `u32`.
    ///
    /// # Errors
    /// `Corruption` at the end.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next `u64`.
    ///
    /// # Errors
    /// `Corruption` at the end.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next varint.
    ///
    /// # Errors
    /// `Corruption` at the end, or if it does not fit 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        match self.bytes.get(self.position) {
            // Lengths and young sequence numbers.
            Some(&byte) if byte < 0x80 => {
                self.position += 1;
                Ok(byte.into())
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::corruption("expected a varint of at most 64 bits, found a longer one")
            .at_offset(self.position as u64))
    }

    /// The next varint, as a length or count.
    ///
    /// # Errors
    /// `Corruption` at the end, or if it does not fit.
    #[inline]
    pub fn length(&mut self) -> Result<usize> {
        let value = self.varint()?;
        usize::try_from(value)
            .map_err(|_| Error::corruption(format!("expected a length, found {value}")))
    }

    /// The next byte string with a varint length before it.
    ///
    /// # Errors
    /// `Corruption` if it does not end within the bytes.
    pub fn slice(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    /// Checks that all was read.
    ///
    /// # Errors
    /// `Corruption` if bytes are left.
    pub fn finish(&self, what: &str) -> Result<()> {
        let left = self.bytes.len().saturating_sub(self.position);
        if left == 0 {
            return Ok(());
        }
        Err(Error::corruption(format!("expected the end of the {what}, found {left} more bytes"))
            .at_offset(self.position as u64))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn the_zeros_at_the_end_begin_behind_the_last_other_byte() {
        for length in [0, 1, 7, 4095, 4096, 4097, 3 * 4096 + 5] {
            let mut bytes = vec![0; length];
            assert_eq!(zeros_from(&bytes), 0, "{length}");
            for at in [0, 1, length / 2, length.saturating_sub(4096), length.saturating_sub(1)] {
                let Some(byte) = bytes.get_mut(at) else { continue };
                *byte = 1;
                assert_eq!(zeros_from(&bytes), at + 1, "{length}");
                bytes.fill(0);
            }
        }
    }

    #[test]
    fn varints_round_trip_and_say_their_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_length(value));
                let mut reader = Reader::new(&out);
                assert_eq!(reader.varint().unwrap(), value);
                reader.finish("varint").unwrap();
            }
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        let mut long = [0xff; 10];
        long[9] = 0x02;
        assert!(Reader::new(&long).varint().unwrap_err().is_corruption());
        assert!(Reader::new(&[0xff; 20]).varint().unwrap_err().is_corruption());
        assert!(Reader::new(&[0xff; 3]).varint().unwrap_err().is_corruption());
    }

    #[test]
    fn comparing_is_what_cmp_says() {
        let alphabet = [0u8, 1, 0x7f, 0xff];
        let mut strings: Vec<Vec<u8>> = vec![Vec::new()];
        for length in 1..=18 {
            for number in 0..40u64 {
                let digits =
                    (0..length).map(|i| super::super::checksum::mix(number) >> (2 * i) & 3);
                let mut string: Vec<u8> = digits.map(|at| alphabet[at as usize]).collect();
                strings.push(string.clone());
                // Alike but for the end, and for zeros behind it.
                string[length - 1] = 0;
                strings.push(string);
                strings.push(vec![0; length]);
            }
        }
        for a in &strings {
            for b in &strings {
                assert_eq!(Probe::new(a).compare(b), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn separators_are_short_and_separate() {
        for (after, up_to, expected) in [
            (&b"apple"[..], &b"apricot"[..], &b"apr"[..]),
            (b"", b"x", b"x"),
            (b"a", b"a\0", b"a\0"),
            (b"abc", b"abcdef", b"abcd"),
        ] {
            assert_eq!(shortest_separator(after, up_to), expected);
            assert!(after < expected && expected <= up_to);
        }
    }
}
