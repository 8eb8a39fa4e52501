//! Data blocks: entries in key order, the separators they lie between, and their place.
//!
//! ```text
//! block      := checksum u64 | stored length u32 | raw length u32 | ordinal u32 | compression u8 | layout u8 | 00 00
//!             | separators | content               (together: stored length bytes; starts on a 64-byte multiple)
//! separators := prefix length varint | lower length varint | upper length varint | prefix | lower | upper
//! content    := count u32 | place* | head* | value*                                        as it is, or compressed
//! place      := u16, or u32 if layout = 1: of each head, of each value, of the end of the last
//! head       := kind u8 | sequence varint | key
//! ```
//! * Every key `k` of the block has `prefix + lower <= k < prefix + upper`. Hence `prefix` (what the
//!   two separators share) begins every key, and keys are stored without it.
//! * What a search looks at stands together at the block's beginning: its separators, the places, the
//!   heads with the keys. A head ends where the next place is, the last one where values begin.
//! * `checksum` covers what follows it, bound to the file's tag and the block's offset.
//! * `compression` is 0 (none), 1 (lz4) or 2 (zstd), see [`super::compression`]. The separators stand
//!   outside what is compressed: where a block belongs is known without decompressing it.
//! * `raw length` is that of separators and content once decompressed, and places count
//!   from where the separators begin: a block in memory has one form, however it was stored. The
//!   content is at most [`MOST_EXPANSION`] times as long as it is stored.
//! * The content is stored as it is unless compression makes separators and content an eighth
//!   shorter, and the block by 64 bytes or more with its padding.
//!
//! A block [aa, ac) of one entry `ab = v`, sequence 7, with ordinal 3 in a file tagged 1, at offset 0:
//! ```text
//! a5 e1 41 19 08 43 d8 7b | 14 00 00 00 | 14 00 00 00   checksum; 20 bytes stored, and raw
//! 03 00 00 00 | 00 00 00 00                             ordinal 3; not compressed, places are u16
//! 01 01 01 | 61 | 61 | 63                               a, then a and c: what the separators begin with, and end with
//! 01 00 00 00 | 10 00 | 13 00 | 14 00                   one entry: its head, its value, the end
//! 01 07 62 | 76                                         a value, sequence 7, key (a)b; v
//! ```
//! The same with the value `v` 80 times, as lz4:
//! ```text
//! 2a 99 f5 eb 56 41 d5 ae | 1f 00 00 00 | 63 00 00 00   31 bytes stored, 99 raw
//! 03 00 00 00 | 01 | 00 | 00 00                         lz4
//! 01 01 01 | 61 | 61 | 63                               the separators as they are
//! ef 01 00 00 00 10 00 13 00 63 00 01 07 62 76 | 01 00 36
//! 60 76 76 76 76 76 76
//! ```
//! (14 bytes as they are, then 73 more like the last of them, then 6 bytes as they are.) With the value `v` 80 times, as zstd:
//! ```text
//! 40 5a 96 51 e5 02 a3 96 | 23 00 00 00 | 63 00 00 00   35 bytes stored, 99 raw
//! 03 00 00 00 | 02 | 00 | 00 00                         zstd
//! 01 01 01 | 61 | 61 | 63                               the separators as they are
//! 28 b5 2f fd 00 00 a5 00 00 70 01 00 00 00 10 00 13    a frame, as RFC 8878 has it
//! 00 63 00 01 07 62 76 01 00 8c 02 25
//! ```
//! Once more, with `v` 65,536 times as it is, which makes the places `u32`s, up to the first of these:
//! ```text
//! 65 dd 0f d6 d0 a2 70 51 | 19 00 01 00 | 19 00 01 00   65,561 bytes
//! 03 00 00 00 | 00 | 01 | 00 00                         places are u32
//! 01 01 01 | 61 | 61 | 63
//! 01 00 00 00 | 16 00 00 00 | 19 00 00 00 | 19 00 01 00
//! 01 07 62 | 76
//! ```
//! A block [aa, ae) of `ab`, whose value is kept apart (see [`super::value`]), and `ad`, which is removed:
//! ```text
//! 93 87 c7 9a 5c 96 a3 64 | 1f 00 00 00 | 1f 00 00 00
//! 03 00 00 00 | 00 | 00 | 00 00
//! 01 01 01 | 61 | 61 | 65
//! 02 00 00 00 | 14 00 | 18 00 | 1c 00 | 1f 00 | 1f 00   two entries: heads, values (the second is none), the end
//! 02 ac 02 62 | 03 ac 02 64                             a pointer, sequence 300, (a)b; a tombstone, 300, (a)d
//! 03 20 01                                              segment 3, offset 32, length 1
//! ```

use std::ops::Deref;

use bytes::Bytes;

pub use self::builder::{BlockBuilder, BlockPlace, NewEntry, block_overhead_bytes, entry_bytes};
pub use self::entries::Entries;
use super::bytes::Reader;
use super::checksum::checksum;
#[cfg(any(test, feature = "fuzzing"))]
use super::checksum::seal;
use super::compression::{Codecs, MOST_EXPANSION, RAW, check_mark};
use super::entry::{Kind, SequenceNumber};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Buffer;

mod builder;
mod entries;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests;

/// What stands before a block's separators.
pub const BLOCK_HEADER_BYTES: usize = 24;
/// Blocks start on multiples of this.
pub const BLOCK_ALIGNMENT: u64 = 64;

const LAYOUT_NARROW: u8 = 0;
const LAYOUT_WIDE: u8 = 1;

/// One entry of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it is.
    pub kind: Kind,
    /// When it was written.
    pub sequence: SequenceNumber,
    /// Its key, without the block's prefix.
    pub key_suffix: &'a [u8],
    /// Its payload.
    pub value: &'a [u8],
}

/// What a block's header and separators say of it.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    ordinal: u32,
    compression: u8,
    wide: bool,
    prefix_start: u32,
    /// Ends of prefix, lower suffix, upper suffix; the content follows.
    ends: [u32; 3],
    /// Where the block ends, as stored and once decompressed.
    stored_end: u32,
    raw_end: u32,
}

/// A block as it is stored, checked, but not decompressed.
#[derive(Debug)]
pub struct Stored<'a> {
    bytes: &'a [u8],
    offset_bytes: u64,
    head: Head,
}

impl<'a> Stored<'a> {
    /// Checks the bytes of one block, read from `offset_bytes` of the file tagged `tag`. Bytes
    /// after the block (alignment) are ignored.
    ///
    /// # Errors
    /// `Corruption` if they are not what was written there; `Unsupported` for an unknown
    /// compression or layout.
    pub fn check(bytes: &'a [u8], tag: u64, offset_bytes: u64) -> Result<Stored<'a>> {
        let head = check(bytes, tag, offset_bytes).map_err(|e| in_file(e, offset_bytes))?;
        Ok(Stored { bytes, offset_bytes, head })
    }

    /// The block's number in its table, from 0.
    pub fn ordinal(&self) -> u32 {
        self.head.ordinal
    }

    /// The lower separator: no key of the block is below it.
    pub fn lower(&self) -> Vec<u8> {
        let [_, end, _] = self.head.ends;
        self.bytes.get(self.head.prefix_start as usize..end as usize).unwrap_or_default().to_vec()
    }

    /// Whether it has to be decompressed.
    pub fn is_compressed(&self) -> bool {
        self.head.compression != RAW
    }

    /// What it takes once decompressed, bytes: in proportion to what is stored.
    pub fn raw_bytes(&self) -> usize {
        self.head.raw_end as usize
    }

    /// The block, in `memory`: a buffer of [`Stored::raw_bytes`].
    ///
    /// # Errors
    /// `Corruption` if its content is none (a writer's bug that the checksum sealed).
    pub fn unpack(&self, codecs: &Codecs, memory: Buffer) -> Result<Block> {
        unpack(self, codecs, memory).map_err(|e| in_file(e, self.offset_bytes))
    }

    /// What [`Block::keep`] needs to know.
    pub fn head(&self) -> Head {
        self.head
    }
}

/// Offsets inside are the block's; the reader of the message wants the file's.
#[cold]
fn in_file(error: Error, offset_bytes: u64) -> Error {
    match error.offset_bytes() {
        Some(inner) => {
            Error::new(error.kind(), format!("data block: {error} (byte {inner} of it)"))
        }
        None => error,
    }
    .at_offset(offset_bytes)
}

/// A block that was read, checked and decompressed. Its entries are decoded when looked at.
pub struct Block {
    bytes: Memory,
    head: Head,
    count: u32,
}

/// What a block's bytes stand in.
enum Memory {
    Own(Buffer),
    /// Those of a file in memory.
    Lent(Bytes),
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Memory::Own(bytes) => bytes,
            Memory::Lent(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Block({}, {} entries, {} bytes)",
            self.head.ordinal,
            self.count,
            self.bytes.len()
        )
    }
}

impl Block {
    /// The block in `bytes`, of which [`Stored::check`] said `head`, and that it is not compressed.
    ///
    /// # Errors
    /// As [`Stored::unpack`].
    pub fn keep(mut bytes: Buffer, head: Head, offset_bytes: u64) -> Result<Block> {
        bytes.truncate(head.raw_end as usize);
        Block::new(Memory::Own(bytes), head).map_err(|e| in_file(e, offset_bytes))
    }

    /// The block in `bytes`, of which [`Entries::lend`] said `entries`. It shares the bytes.
    pub fn lent(mut bytes: Bytes, entries: &Entries<'_>) -> Block {
        bytes.truncate(entries.head.raw_end as usize);
        Block { bytes: Memory::Lent(bytes), head: entries.head, count: entries.count }
    }

    /// The block of these bytes: separators and content as they were before they were stored.
    fn new(bytes: Memory, head: Head) -> Result<Block> {
        let count = Entries::new(&bytes, head)?.count;
        Ok(Block { bytes, head, count })
    }

    /// What is in it.
    #[inline]
    pub fn entries(&self) -> Entries<'_> {
        Entries { bytes: &self.bytes, head: self.head, count: self.count }
    }

    /// Whether it stands in a file's bytes as they are.
    pub fn is_as_stored(&self) -> bool {
        self.head.compression == RAW
    }

    /// How many entries it holds.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// What it takes in memory, bytes; those of a file in memory are not counted.
    pub fn size_bytes(&self) -> usize {
        self.capacity_bytes() + size_of::<Block>()
    }

    fn capacity_bytes(&self) -> usize {
        match &self.bytes {
            Memory::Own(bytes) => bytes.capacity_bytes(),
            Memory::Lent(_) => 0,
        }
    }

    /// Says under what its memory is kept, if that is its own.
    pub fn label(&self, label: (u64, u64)) {
        if let Memory::Own(bytes) = &self.bytes {
            bytes.label(label);
        }
    }

    /// All bytes of the block.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn check(bytes: &[u8], tag: u64, offset_bytes: u64) -> Result<Head> {
    let mut reader = Reader::new(bytes);
    let expected = reader.u64()?;
    let stored_bytes = reader.u32()? as usize;
    let end = BLOCK_HEADER_BYTES.saturating_add(stored_bytes);
    let covered = Reader::at(bytes, 8).take(end - 8)?;
    let found = checksum(tag, offset_bytes, covered);
    if found != expected {
        return Err(Error::corruption(format!(
            "data block: expected checksum {expected:016x}, found {found:016x}"
        )));
    }
    parse(bytes)
}

/// What header and separators say, whatever the checksum.
fn parse(bytes: &[u8]) -> Result<Head> {
    let mut reader = Reader::at(bytes, 8);
    // Reading from an array of known length costs no checks.
    let header = reader.array::<{ BLOCK_HEADER_BYTES - 8 }>()?;
    let mut fields = Reader::new(&header);
    let stored_bytes = fields.u32()? as usize;
    let raw_bytes = fields.u32()? as usize;
    let ordinal = fields.u32()?;
    let (compression, layout) = (fields.u8()?, fields.u8()?);
    reader.take(stored_bytes)?;
    let end = reader.position();
    let block = bytes.get(..end).unwrap_or_default();
    check_mark(compression)?;
    if layout > LAYOUT_WIDE {
        let message =
            format!("data block of layout {layout}: a newer version of learnedkv wrote it");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut reader = Reader::at(block, BLOCK_HEADER_BYTES);
    let lengths = [reader.length()?, reader.length()?, reader.length()?];
    let prefix_start = reader.position() as u32;
    let mut ends = [0; 3];
    for (end, length) in ends.iter_mut().zip(lengths) {
        reader.take(length)?;
        *end = reader.position() as u32;
    }
    let stored_content = end - reader.position();
    let most = match compression {
        RAW => stored_content,
        _ => stored_content.saturating_mul(MOST_EXPANSION),
    };
    let raw_end = BLOCK_HEADER_BYTES.saturating_add(raw_bytes);
    let raw_content = raw_end.checked_sub(reader.position());
    let fits = raw_content.filter(|content| match compression {
        RAW => *content == stored_content,
        _ => *content <= most,
    });
    match (fits, u32::try_from(end), u32::try_from(raw_end)) {
        (Some(_), Ok(stored_end), Ok(raw_end)) => {
            let wide = layout == LAYOUT_WIDE;
            Ok(Head { ordinal, compression, wide, prefix_start, ends, stored_end, raw_end })
        }
        _ => Err(Error::corruption(format!(
            "data block of compression {compression}: expected at most {most} bytes of content from \
             {stored_content} stored ones, found {raw_bytes} with the separators"
        ))),
    }
}

fn unpack(stored: &Stored<'_>, codecs: &Codecs, mut memory: Buffer) -> Result<Block> {
    let Stored { bytes, head, .. } = stored;
    let bytes = bytes.get(..head.stored_end as usize).unwrap_or_default();
    memory.truncate(head.raw_end as usize);
    if memory.len() < head.raw_end as usize {
        let message = format!(
            "data block: expected {} bytes of memory, found {}",
            head.raw_end,
            memory.len()
        );
        return Err(Error::invalid(message));
    }
    let content_start = if stored.is_compressed() { head.ends[2] as usize } else { bytes.len() };
    let (before, content) = bytes.split_at_checked(content_start).unwrap_or_default();
    if let Some((place, raw)) = memory.split_at_mut_checked(content_start) {
        place.copy_from_slice(before);
        if stored.is_compressed() {
            codecs.decompress(head.compression, content, raw)?;
        }
    }
    Block::new(Memory::Own(memory), *head)
}

/// The ordinal and length of the block that begins at `bytes`, unchecked: for walking damaged
/// tables. `None` if so short a piece holds no header.
pub fn peek(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut reader = Reader::at(bytes, 8);
    let stored_bytes = reader.u32().ok()? as usize;
    reader.u32().ok()?;
    Some((reader.u32().ok()?, BLOCK_HEADER_BYTES + stored_bytes))
}

/// Makes the checksum of the block that begins at `bytes` right, whatever it holds: for fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub fn mend(bytes: &mut [u8], tag: u64, offset_bytes: u64) {
    if let Some(block) = peek(bytes).and_then(|(_, length)| bytes.get_mut(..length)) {
        seal(tag, offset_bytes, block);
    }
}
