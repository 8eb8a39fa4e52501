//! Value segments: values kept apart from their keys, and the pointers that stand in their place.
//!
//! ```text
//! segment := header value*
//! header  := magic "LKVVALUE" | version u32 | 00 00 00 00 | tag u64 | checksum u64 of those 24 bytes
//! value   := chunk* [table]                        (at least one chunk; all are full but the last)
//! chunk   := checksum u64 | up to 262,144 bytes of the value, as they are or compressed
//! table   := checksum u64 | stored length u32 of each chunk, without its checksum
//! pointer := segment varint | offset varint | length varint [| compression u8 | stored varint]
//! ```
//! * A pointer (the payload of a pointer entry) has the last two where a chunk of the value is compressed:
//!   how (1 lz4, 2 zstd, see [`super::compression`]), and what the value takes with checksums and table.
//!   So its length is known without reading it, and one request reads what is stored.
//! * Each chunk is compressed by itself, if that makes it an eighth and 32 bytes shorter; else it stands as
//!   it is. So what is as long as the chunk of the value is not compressed.
//! * A compressed value of several chunks ends with the table: where each stands. Without it their places
//!   follow from the pointer.
//! * A chunk's checksum is bound to the segment's tag, to the chunk's offset, to the hash of the
//!   value's key and to how it is compressed (0: not), the last one's also to the value's length: a pointer
//!   to another key's value, or to a part, fails. (Not the others': a value may be written before its end
//!   is known.) The table's is bound to all of these.
//! * A pointer's offset is where the first chunk's checksum stands; its length is the value's.
//! * Values stand one behind the other, in the order they were added (key order, where a flush or a
//!   sweep wrote them). Nothing in a segment says where a value begins: the pointers do.
//!
//! In the log, where no table tells the segment's tag, it follows the pointer (`tag u64`).
//!
//! The value `v` of key `k`, the first of segment 3, tagged 1:
//! ```text
//! 4c 4b 56 56 41 4c 55 45 | 02 00 00 00 | 00 00 00 00   LKVVALUE; version 2
//! 01 00 00 00 00 00 00 00 | 80 e5 2a cf d8 69 f4 b0     tag 1; checksum
//! 6f 02 22 2e c5 92 84 4b | 76                          the chunk's checksum; v
//! ```
//! and the pointer to it: `03 20 01`. Behind it the value of key `l`, `v` 80 times, as lz4:
//! ```text
//! 4f c0 17 a8 7c 9e 17 f0                               the chunk's checksum
//! 1f 76 01 00 36 | 60 76 76 76 76 76 76                 v and 73 more like it, then 6 as they are
//! ```
//! and the pointer to that: `03 29 50 01 14`. Behind it the value of key `m`, `v` 262,145 times. Its first chunk
//! takes 1039 bytes as lz4; what follows these, the last chunk, which does not compress, and the table:
//! ```text
//! 0c 20 af 76 55 68 7f 72 | 76                          the chunk's checksum; v
//! 6a 73 46 80 2e 8a bf dc | 0f 04 00 00 | 01 00 00 00   the table's checksum; 1039 bytes and 1 are stored
//! ```
//! and the pointer to all: `03 3d 81 80 10 01 b0 08`.

mod chunks;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::chunks::mend;
pub use self::chunks::{
    Layout, ValueWriter, check_chunk, check_packed, check_short, join_chunks, put_value,
};
use super::bytes::{Reader, put_u32, put_u64, put_varint};
use super::checksum::checksum;
use super::compression::{MOST_EXPANSION, RAW};
use crate::error::{Error, ErrorKind, Result};

/// What stands before the first value.
pub const VALUES_HEADER_BYTES: usize = 32;
/// How much of a value one checksum covers.
pub const CHUNK_BYTES: usize = 256 << 10;
/// What stands before each chunk.
pub const CHUNK_HEADER_BYTES: usize = 8;
/// What stands in the table of a compressed value's chunks for each.
const PLACE_BYTES: usize = 4;
/// What follows a pointer in a log record.
pub const LOGGED_TAG_BYTES: usize = 8;

pub(super) const MAGIC: &[u8; 8] = b"LKVVALUE";
const VERSION: u32 = 2;

/// Where a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValuePointer {
    /// The segment's number, which names the file.
    pub segment: u64,
    /// Where its first chunk begins.
    pub offset: u64,
    /// The value's length, bytes.
    pub length: u64,
    /// How it is stored, if not as it is.
    pub packed: Option<Packed>,
}

/// What a pointer says of a compressed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packed {
    /// The mark of what its chunks are compressed with.
    pub mark: u8,
    /// What it takes in the segment, with all checksums, bytes.
    pub stored_bytes: u64,
}

impl ValuePointer {
    /// A pointer to a value that stands in its segment as it is.
    pub fn raw(segment: u64, offset: u64, length: u64) -> ValuePointer {
        ValuePointer { segment, offset, length, packed: None }
    }

    /// Appends the pointer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.segment);
        put_varint(out, self.offset);
        put_varint(out, self.length);
        if let Some(packed) = self.packed {
            out.push(packed.mark);
            put_varint(out, packed.stored_bytes);
        }
    }

    /// Reads the payload of a pointer entry.
    ///
    /// # Errors
    /// `Corruption` if it is none.
    pub fn decode(payload: &[u8]) -> Result<ValuePointer> {
        let mut reader = Reader::new(payload);
        let (segment, offset) = (reader.varint()?, reader.varint()?);
        let mut pointer = ValuePointer::raw(segment, offset, reader.varint()?);
        if !reader.is_empty() {
            let packed = Packed { mark: reader.u8()?, stored_bytes: reader.varint()? };
            reader.finish("pointer")?;
            pointer.packed = Some(packed);
            pointer.check(packed)?;
        }
        Ok(pointer)
    }

    /// Whether the value may be stored so: nobody believes in more than a codec can do.
    fn check(&self, packed: Packed) -> Result<()> {
        let chunks = self.chunks();
        let around =
            chunks.saturating_mul(CHUNK_HEADER_BYTES as u64).saturating_add(self.table_bytes());
        let content = packed.stored_bytes.checked_sub(around);
        let most = |content: u64| content.saturating_mul(MOST_EXPANSION as u64);
        let fits =
            |content: u64| (chunks..self.length).contains(&content) && self.length <= most(content);
        if packed.mark == RAW || !content.is_some_and(fits) {
            return Err(Error::corruption(format!(
                "pointer to a compressed value: expected a compression and a stored length that {} bytes \
                 can have, found {packed:?}",
                self.length
            )));
        }
        Ok(())
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

    /// What the table of its chunks takes; 0 if it has none.
    fn table_bytes(&self) -> u64 {
        match self.packed {
            Some(_) => table_bytes(self.chunks()),
            None => 0,
        }
    }

    /// Where in the segment the table of its chunks stands; `None` if it has none.
    pub fn table(&self) -> Option<std::ops::Range<u64>> {
        let bytes = self.table_bytes();
        (bytes > 0).then(|| self.end().saturating_sub(bytes)..self.end())
    }

    /// What the value takes in its segment, with its checksums, bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.packed.map_or_else(|| stored_bytes(self.length), |packed| packed.stored_bytes)
    }

    /// Where the value ends in its segment.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.stored_bytes())
    }
}

/// What a value of `length` bytes takes in a segment where it stands as it is, bytes.
pub fn stored_bytes(length: u64) -> u64 {
    length.saturating_add(chunks(length) * CHUNK_HEADER_BYTES as u64)
}

fn chunks(length: u64) -> u64 {
    length.div_ceil(CHUNK_BYTES as u64).max(1)
}

/// What the table of so many compressed chunks takes.
fn table_bytes(chunks: u64) -> u64 {
    match chunks {
        1 => 0,
        _ => CHUNK_HEADER_BYTES as u64 + chunks.saturating_mul(PLACE_BYTES as u64),
    }
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

/// The tag that a segment's header tells of, unchecked.
pub fn peek_tag(bytes: &[u8]) -> Option<u64> {
    Reader::at(bytes, MAGIC.len() + 8).u64().ok()
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
