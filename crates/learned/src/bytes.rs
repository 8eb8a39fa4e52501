//! Numbers to bytes and back, for every model's encoding.
//!
//! Fixed-width numbers are little-endian. Variable-length ones (*varints*) are LEB128: seven bits a
//! byte, low bits first, the top bit set on every byte but the last; 300 is `ac 02`. Signed varints
//! are zigzag-coded first (0, -1, 1, -2 become 0, 1, 2, 3).
//!
//! The reader never panics, and it allocates nothing: whatever a length field says, compare it with
//! [`Reader::remaining`] before reserving memory for it.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::error::{DecodeError, Found};

/// The first eight bytes as a big-endian number, zeros where there are none.
#[inline]
pub fn first_eight(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*eight);
    }
    // Fewer (a key of eight without its prefix, say) are two pieces that may overlap: where they do,
    // they agree.
    let last_bit = 64 - 8 * bytes.len() as u32;
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        return u64::from(first) << 32 | u64::from(last) << last_bit;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
        let (first, last) = (u16::from_be_bytes(*first), u16::from_be_bytes(*last));
        return u64::from(first) << 48 | u64::from(last) << last_bit;
    }
    bytes.first().map_or(0, |&byte| u64::from(byte) << 56)
}

/// Appends numbers to a byte vector.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// A writer that appends to `out` and leaves what is in it alone.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Appends two bytes, little-endian.
    pub fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends four bytes, little-endian.
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends eight bytes, little-endian.
    pub fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a varint of 1 to 10 bytes.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// Appends a zigzag-coded varint of 1 to 10 bytes.
    pub fn signed_varint(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }
}

/// Reads numbers from untrusted bytes, keeping count of the offset for error messages.
///
/// Every method takes `expected`, the field's name for a [`DecodeError`], and leaves the reader
/// where it was when it fails.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: 0 }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `count` bytes.
    ///
    /// # Errors
    /// Fewer than `count` bytes are left.
    pub fn take(&mut self, count: usize, expected: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(self.refuse(self.offset, expected, Found::End));
        };
        self.rest = rest;
        self.offset += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.refuse(self.offset, expected, Found::End));
        };
        self.rest = rest;
        self.offset += N;
        Ok(*taken)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// No byte is left.
    pub fn u8(&mut self, expected: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array(expected)?))
    }

    /// Reads two bytes, little-endian.
    ///
    /// # Errors
    /// Fewer than two bytes are left.
    pub fn u16(&mut self, expected: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(expected)?))
    }

    /// Reads four bytes, little-endian.
    ///
    /// # Errors
    /// Fewer than four bytes are left.
    pub fn u32(&mut self, expected: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(expected)?))
    }

    /// Reads eight bytes, little-endian.
    ///
    /// # Errors
    /// Fewer than eight bytes are left.
    pub fn u64(&mut self, expected: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(expected)?))
    }

    /// Reads a varint.
    ///
    /// # Errors
    /// The bytes end inside it, or it is longer than 64 bits.
    pub fn varint(&mut self, expected: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 {
                break; // the tenth byte holds the one bit that nine times seven leave over
            }
            value |= bits << (7 * index);
            if byte < 0x80 {
                self.take(index + 1, expected)?;
                return Ok(value);
            }
        }
        let found = if self.rest.len() < 10 { Found::End } else { Found::Overlong };
        Err(self.refuse(self.offset, expected, found))
    }

    /// Reads a zigzag-coded varint.
    ///
    /// # Errors
    /// As [`Reader::varint`].
    pub fn signed_varint(&mut self, expected: &'static str) -> Result<i64, DecodeError> {
        let coded = self.varint(expected)?;
        Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    /// Ends reading.
    ///
    /// # Errors
    /// Bytes are left: they belong to no field.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(self.refuse(self.offset, "the end", Found::Trailing(left))),
        }
    }

    /// The error for a field that began at `offset` and was read, but makes no sense.
    pub fn refuse(&self, offset: usize, expected: &'static str, found: Found) -> DecodeError {
        DecodeError { offset, expected, found }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_the_module_page() {
        let mut out = vec![0xee];
        let mut writer = Writer::new(&mut out);
        writer.varint(300);
        writer.u16(0x1234);
        writer.signed_varint(-2);
        assert_eq!(out, [0xee, 0xac, 0x02, 0x34, 0x12, 0x03]);
    }

    #[test]
    fn numbers_come_back() {
        let numbers =
            [0, 1, 127, 128, 16_383, 16_384, 1 << 56, u64::MAX >> 1, u64::MAX - 1, u64::MAX];
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        for &n in &numbers {
            writer.varint(n);
            writer.signed_varint(n as i64);
            writer.u8(n as u8);
            writer.u16(n as u16);
            writer.u32(n as u32);
            writer.u64(n);
        }
        let mut reader = Reader::new(&out);
        for &n in &numbers {
            assert_eq!(reader.varint("n").unwrap(), n);
            assert_eq!(reader.signed_varint("n").unwrap(), n as i64);
            assert_eq!(reader.u8("n").unwrap(), n as u8);
            assert_eq!(reader.u16("n").unwrap(), n as u16);
            assert_eq!(reader.u32("n").unwrap(), n as u32);
            assert_eq!(reader.u64("n").unwrap(), n);
        }
        assert_eq!((reader.offset(), reader.remaining()), (out.len(), 0));
        reader.finish().unwrap();
    }

    #[test]
    fn failures_say_where_and_leave_the_reader_there() {
        let mut reader = Reader::new(&[7, 0x80, 0x80]);
        reader.u8("a byte").unwrap();
        let end = DecodeError { offset: 1, expected: "a field", found: Found::End };
        assert_eq!(reader.varint("a field"), Err(end.clone()));
        assert_eq!(reader.u32("a field"), Err(end.clone()));
        assert_eq!(reader.take(3, "a field"), Err(end));
        assert_eq!(reader.u16("a field"), Ok(0x8080));

        let mut overlong = [0xff; 11];
        overlong[9] = 2;
        let error = Reader::new(&overlong).varint("a count").unwrap_err();
        assert_eq!(error.found, Found::Overlong);
        overlong[9] = 1;
        assert_eq!(Reader::new(&overlong).varint("a count"), Ok(u64::MAX));
        assert_eq!(
            Reader::new(&[1, 2]).finish().unwrap_err().to_string(),
            "at offset 0: expected the end, found 2 more bytes"
        );
    }
}
