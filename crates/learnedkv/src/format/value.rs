//! Value segments: values kept apart from their keys, and the pointers that stand in their place.
//!
//! ```text
//! segment := header value*
//! header  := magic "LKVVALUE" | version u32 | 00 00 00 00 | tag u64 | checksum u64 of those 24 bytes
//! value   := chunk*                                      (at least one; all full but the last)
//! chunk   := checksum u64 | up to 262,144 bytes of the value
//! pointer := segment varint | offset varint | length varint          (the payload of a pointer entry)
//! ```
//! * A chunk's checksum is bound to the segment's tag, to the chunk's offset and to the hash of the
//!   value's key, the last one's also to the value's length: a pointer to another key's value, or to
//!   a part, fails. (Not the others': a value may be written before its end is known.)
//! * A pointer's offset is where the first chunk's checksum stands; its length is the value's.
//! * Values stand one behind the other, in the order they were added (key order, where a flush or a
//!   sweep wrote them). Nothing in a segment says where a value begins: the pointers do.
//!
//! In the log, where no table tells the segment's tag, it follows the pointer (`tag u64`).
//!
//! The value `v` of key `k`, the first of segment 3, tagged 1:
//! ```text
//! 4c 4b 56 56 41 4c 55 45 | 01 00 00 00 | 00 00 00 00   LKVVALUE; version 1
//! 01 00 00 00 00 00 00 00 | 3e 06 37 cf 8c a8 27 fb     tag 1; checksum
//! 6f 02 22 2e c5 92 84 4b | 76                          the chunk's checksum; v
//! ```
//! and the pointer to it: `03 20 01`.

use super::bytes::{Reader, put_u32, put_u64, put_varint};
use super::checksum::{checksum, mix};
use crate::error::{Error, ErrorKind, Result};

/// What stands before the first value.
pub const VALUES_HEADER_BYTES: usize = 32;
/// How much of a value one checksum covers.
pub const CHUNK_BYTES: usize = 256 << 10;
/// What stands before each chunk.
pub const CHUNK_HEADER_BYTES: usize = 8;
/// What follows a pointer in a log record.
pub const LOGGED_TAG_BYTES: usize = 8;

const MAGIC: &[u8; 8] = b"LKVVALUE";
const VERSION: u32 = 1;

/// Where a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValuePointer {
    /// The segment's number, which names the file.
    pub segment: u64,
    /// Where its first chunk begins.
    pub offset: u64,
    /// The value's length, bytes.
    pub length: u64,
}

impl ValuePointer {
    /// Appends the pointer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.segment);
        put_varint(out, self.offset);
        put_varint(out, self.length);
    }

    /// Reads the payload of a pointer entry.
    ///
    /// # Errors
    /// `Corruption` if it is none.
    pub fn decode(payload: &[u8]) -> Result<ValuePointer> {
        let mut reader = Reader::new(payload);
        let pointer = ValuePointer {
            segment: reader.varint()?,
            offset: reader.varint()?,
            length: reader.varint()?,
        };
        reader.finish("pointer")?;
        Ok(pointer)
    }

    /// Appends the pointer as a log record holds it: with the tag of its segment.
    pub fn encode_logged(&self, tag: u64, out: &mut Vec<u8>) {
        self.encode(out);
        put_u64(out, tag);
    }

    /// Reads the pointer that a log record holds, and the tag of its segment.
    ///
    /// # Errors
    /// `Corruption` if it is none.
    pub fn decode_logged(logged: &[u8]) -> Result<(ValuePointer, u64)> {
        let (payload, tag) = logged.split_at(logged.len().saturating_sub(LOGGED_TAG_BYTES));
        Ok((ValuePointer::decode(payload)?, Reader::new(tag).u64()?))
    }

    /// How many chunks the value is cut into.
    pub fn chunks(&self) -> u64 {
        chunks(self.length)
    }

    /// Where chunk `index` stands in the segment, its checksum included, bytes.
    ///
    /// # Errors
    /// `Corruption` if the pointer leads beyond any file.
    pub fn chunk(&self, index: u64) -> Result<std::ops::Range<u64>> {
        let whole = (CHUNK_HEADER_BYTES + CHUNK_BYTES) as u64;
        let start = index.checked_mul(whole).and_then(|from| from.checked_add(self.offset));
        let left = self.length.saturating_sub(index.saturating_mul(CHUNK_BYTES as u64));
        let length = CHUNK_HEADER_BYTES as u64 + left.min(CHUNK_BYTES as u64);
        let range = start.and_then(|start| Some(start..start.checked_add(length)?));
        range.ok_or_else(|| Error::corruption(format!("{self:?} leads beyond any file")))
    }

    /// What the value takes in its segment, with its checksums, bytes.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(self.length)
    }

    /// Where the value ends in its segment.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.stored_bytes())
    }
}

/// What a value of `length` bytes takes in a segment, bytes.
pub fn stored_bytes(length: u64) -> u64 {
    length.saturating_add(chunks(length) * CHUNK_HEADER_BYTES as u64)
}

fn chunks(length: u64) -> u64 {
    length.div_ceil(CHUNK_BYTES as u64).max(1)
}

/// Encodes the header of a segment.
pub fn encode_header(tag: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(VALUES_HEADER_BYTES);
    out.extend_from_slice(MAGIC);
    put_u32(&mut out, VERSION);
    put_u32(&mut out, 0);
    put_u64(&mut out, tag);
    let sum = checksum(tag, 0, &out);
    put_u64(&mut out, sum);
    out
}

/// Checks the header of the segment that ought to be tagged `tag`.
///
/// # Errors
/// `Corruption` if it is another file's or damaged, `Unsupported` if a newer version wrote it.
pub fn check_header(bytes: &[u8], tag: u64) -> Result<()> {
    let mut reader = Reader::new(bytes);
    let magic = reader.take(MAGIC.len())?;
    let version = reader.u32()?;
    reader.u32()?;
    let found_tag = reader.u64()?;
    let sum = checksum(found_tag, 0, bytes.get(..reader.position()).unwrap_or_default());
    let expected = reader.u64()?;
    if magic != MAGIC || sum != expected {
        return Err(Error::corruption(format!(
            "expected a value segment's header, found {magic:02x?} and checksum {expected:016x} \
             where {sum:016x} were right"
        ))
        .at_offset(0));
    }
    if version != VERSION {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("value segment of version {version}; this build reads version {VERSION}"),
        ));
    }
    if found_tag != tag {
        return Err(Error::corruption(format!(
            "value segment: expected the file tagged {tag:016x}, found {found_tag:016x}: another \
             segment took its place"
        ))
        .at_offset(0));
    }
    Ok(())
}

/// What a chunk's checksum is seeded with; `ends` is the value's length, given with its last chunk.
fn seed(tag: u64, key: &[u8], ends: Option<u64>) -> u64 {
    let ends = ends.map_or(0, |length| length.wrapping_add(1));
    tag ^ mix(checksum(0, ends, key))
}

/// Appends one chunk of `key`'s value, which begins at `offset_bytes` of the segment; with the last one
/// goes the length of the whole value.
pub fn put_chunk(
    out: &mut Vec<u8>,
    tag: u64,
    offset_bytes: u64,
    key: &[u8],
    chunk: &[u8],
    ends: Option<u64>,
) {
    put_u64(out, checksum(seed(tag, key, ends), offset_bytes, chunk));
    out.extend_from_slice(chunk);
}

/// Appends the chunks of `value`, which belongs to `key` and begins at `offset_bytes` of the segment.
pub fn put_value(out: &mut Vec<u8>, tag: u64, offset_bytes: u64, key: &[u8], value: &[u8]) {
    let mut left = value;
    let mut at = offset_bytes;
    loop {
        let (chunk, rest) = left.split_at(left.len().min(CHUNK_BYTES));
        let ends = rest.is_empty().then_some(value.len() as u64);
        put_chunk(out, tag, at, key, chunk, ends);
        at += (CHUNK_HEADER_BYTES + chunk.len()) as u64;
        left = rest;
        if left.is_empty() {
            break;
        }
    }
}

/// Checks chunk `index` of `key`'s value, as it stands in the segment tagged `tag`: its bytes are
/// `stored[8..]` then.
///
/// # Errors
/// `Corruption` if it is not what was written there for that key.
pub fn check_chunk(
    stored: &[u8],
    tag: u64,
    pointer: ValuePointer,
    key: &[u8],
    index: u64,
) -> Result<()> {
    let place = pointer.chunk(index)?.start;
    let ends = (index + 1 == pointer.chunks()).then_some(pointer.length);
    let expected = Reader::new(stored).u64()?;
    let bytes = stored.get(CHUNK_HEADER_BYTES..).unwrap_or_default();
    let found = checksum(seed(tag, key, ends), place, bytes);
    if found != expected {
        return Err(Error::corruption(format!(
            "separated value: expected checksum {expected:016x}, found {found:016x}"
        ))
        .at_offset(place));
    }
    Ok(())
}

/// Checks the chunks of `key`'s value, read from where `pointer` says in the segment tagged `tag`, and
/// closes the gaps between them: the value is `stored[8..]` then.
///
/// # Errors
/// `Corruption` if they are not what was written there for that key.
pub fn join_chunks(
    stored: &mut Vec<u8>,
    tag: u64,
    pointer: ValuePointer,
    key: &[u8],
) -> Result<()> {
    let mut end = CHUNK_HEADER_BYTES;
    for index in 0..pointer.chunks() {
        let place = pointer.chunk(index)?;
        let (from, to) = (place.start - pointer.offset, place.end - pointer.offset);
        let (from, to) = (from as usize, to as usize);
        check_chunk(stored.get(from..to).unwrap_or_default(), tag, pointer, key, index)?;
        if from + CHUNK_HEADER_BYTES != end {
            stored.copy_within(from + CHUNK_HEADER_BYTES..to, end);
        }
        end += to - from - CHUNK_HEADER_BYTES;
    }
    stored.truncate(end);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::format::example::assert_shown;

    fn stored(tag: u64, offset: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_value(&mut out, tag, offset, key, value);
        assert_eq!(out.len() as u64, stored_bytes(value.len() as u64));
        out
    }

    fn at(offset: u64, length: usize) -> ValuePointer {
        ValuePointer { segment: 0, offset, length: length as u64 }
    }

    #[test]
    fn the_example_is_what_is_written() {
        let mut segment = encode_header(1);
        let pointer = ValuePointer { segment: 3, offset: segment.len() as u64, length: 1 };
        put_value(&mut segment, 1, pointer.offset, b"k", b"v");
        let mut payload = Vec::new();
        pointer.encode(&mut payload);
        assert_shown(include_str!("value.rs"), "The value `v` of key `k`", &segment);
        assert_eq!(payload, [0x03, 0x20, 0x01]);
        assert_eq!(pointer.end(), segment.len() as u64);
    }

    #[test]
    fn values_of_every_number_of_chunks_come_back() {
        let full = CHUNK_BYTES;
        for length in [0, 1, full - 1, full, full + 1, 2 * full, 3 * full + 7] {
            let value: Vec<u8> = (0..length).map(|i| (i * 31 % 251) as u8).collect();
            let mut bytes = stored(9, 100, b"key", &value);
            join_chunks(&mut bytes, 9, at(100, value.len()), b"key").unwrap();
            assert_eq!(bytes[CHUNK_HEADER_BYTES..], value);
        }
    }

    #[test]
    fn another_keys_value_another_place_or_damage_is_refused() {
        let length = CHUNK_BYTES + 5;
        let good = stored(9, 100, b"key", &vec![7; length]);
        let refused = |mut bytes: Vec<u8>, tag, offset, key: &[u8]| {
            join_chunks(&mut bytes, tag, at(offset, length), key).unwrap_err().is_corruption()
        };
        assert!(refused(good.clone(), 8, 100, b"key"));
        assert!(refused(good.clone(), 9, 108, b"key"));
        assert!(refused(good.clone(), 9, 100, b"kez"));
        for i in [0, 7, 8, 1000, CHUNK_BYTES + 7, CHUNK_BYTES + 8, good.len() - 1] {
            let mut bad = good.clone();
            bad[i] ^= 1;
            assert!(refused(bad, 9, 100, b"key"), "byte {i}");
        }
        // A pointer to the first chunk alone.
        let mut part = good[..CHUNK_HEADER_BYTES + CHUNK_BYTES].to_vec();
        let error = join_chunks(&mut part, 9, at(100, CHUNK_BYTES), b"key").unwrap_err();
        assert!(error.is_corruption());
        for cut in [0, 4, 8, 100, CHUNK_BYTES + 7, good.len() - 1] {
            assert!(refused(good[..cut].to_vec(), 9, 100, b"key"), "cut at {cut}");
        }
    }

    #[test]
    fn headers_are_checked() {
        let good = encode_header(77);
        check_header(&good, 77).unwrap();
        assert!(check_header(&good, 78).unwrap_err().is_corruption());
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 1;
            assert!(check_header(&bad, 77).is_err(), "byte {i}");
            assert!(check_header(&good[..i], 77).is_err(), "cut at {i}");
        }
        let mut newer = good.clone();
        newer[8] = 2;
        let sum = checksum(77, 0, &newer[..24]);
        newer[24..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(check_header(&newer, 77).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn pointers_round_trip() {
        let pointer = ValuePointer { segment: 1 << 40, offset: 1 << 33, length: 1 << 30 };
        let mut payload = Vec::new();
        pointer.encode(&mut payload);
        assert_eq!(ValuePointer::decode(&payload).unwrap(), pointer);
        for cut in 0..payload.len() {
            assert!(ValuePointer::decode(&payload[..cut]).unwrap_err().is_corruption());
        }
        payload.push(0);
        assert!(ValuePointer::decode(&payload).unwrap_err().is_corruption());
    }
}
