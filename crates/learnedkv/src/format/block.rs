//! Data blocks: entries in key order, the separators they lie between, and their place.
//!
//! ```text
//! block   := checksum u64 | stored length u32 | raw length u32 | ordinal u32 | compression u8 | layout u8 | 00 00
//!          | body                                          (stored length bytes; starts on a 64-byte multiple)
//! body    := prefix length varint | lower length varint | upper length varint | prefix | lower | upper
//!          | entry* | offset of each entry in the body (u16, or u32 if layout = 1) | count u32
//! entry   := kind u8 | key length varint | sequence varint | value length varint | key | value
//! ```
//! * Every key `k` of the block has `prefix + lower <= k < prefix + upper`. Hence `prefix` (what the
//!   two separators share) begins every key, and keys are stored without it.
//! * `checksum` covers what follows it, bound to the file's tag and the block's offset.
//! * `compression` 0: stored as it is. Others are reserved.
//!
//! A block [aa, ac) of one entry `ab = v`, sequence 7, in a file tagged 1, at offset 0: see the test
//! `the_example_is_what_is_written`, which prints it.

use super::bytes::varint_length;
use super::bytes::{Reader, common_prefix_length, put_u16, put_u32, put_u64, put_varint};
use super::checksum::{checksum, seal};
use super::entry::{Kind, SequenceNumber};
use crate::error::{Error, ErrorKind, Result};

/// What stands before a block's body.
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

/// An upper bound of the bytes an entry takes in a block.
pub fn entry_bytes(key_length: usize, sequence: SequenceNumber, value_length: usize) -> usize {
    1 + varint_length(key_length as u64)
        + varint_length(sequence)
        + varint_length(value_length as u64)
        + key_length
        + value_length
        + 2
}

/// What a block takes besides its entries, for separators of up to `separator_length` bytes.
pub fn block_overhead_bytes(separator_length: usize) -> usize {
    BLOCK_HEADER_BYTES + 4 + 2 * (separator_length + varint_length(separator_length as u64)) + 1
}

/// Builds one block at a time; keeps its buffer for the next.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
    prefix_length: usize,
}

impl BlockBuilder {
    /// Begins a block for keys in `lower <= key < upper`.
    pub fn begin(&mut self, lower: &[u8], upper: &[u8]) {
        assert!(lower < upper, "a block's separators are out of order");
        self.offsets.clear();
        self.bytes.clear();
        self.bytes.resize(BLOCK_HEADER_BYTES, 0);
        let (prefix, lower_suffix) = lower.split_at(common_prefix_length(lower, upper));
        let (_, upper_suffix) = upper.split_at(prefix.len());
        self.prefix_length = prefix.len();
        for part in [prefix, lower_suffix, upper_suffix] {
            put_varint(&mut self.bytes, part.len() as u64);
        }
        for part in [prefix, lower_suffix, upper_suffix] {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Adds an entry. Keys come in order and lie between the separators.
    pub fn add(&mut self, kind: Kind, key: &[u8], sequence: SequenceNumber, value: &[u8]) {
        self.offsets.push((self.bytes.len() - BLOCK_HEADER_BYTES) as u32);
        let suffix = key.get(self.prefix_length..).unwrap_or_default();
        self.bytes.push(kind as u8);
        put_varint(&mut self.bytes, suffix.len() as u64);
        put_varint(&mut self.bytes, sequence);
        put_varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(suffix);
        self.bytes.extend_from_slice(value);
    }

    /// Ends the block: its bytes, to be written at `offset_bytes` of the file tagged `tag`.
    #[allow(clippy::indexing_slicing)] // our own buffer, which begins with the header
    pub fn finish(&mut self, tag: u64, offset_bytes: u64, ordinal: u32) -> &[u8] {
        let wide = self.bytes.len() > usize::from(u16::MAX);
        for &offset in &self.offsets {
            if wide {
                put_u32(&mut self.bytes, offset);
            } else {
                put_u16(&mut self.bytes, offset as u16);
            }
        }
        put_u32(&mut self.bytes, self.offsets.len() as u32);
        let mut header = Vec::with_capacity(BLOCK_HEADER_BYTES);
        put_u64(&mut header, 0);
        let body_bytes = (self.bytes.len() - BLOCK_HEADER_BYTES) as u32;
        put_u32(&mut header, body_bytes);
        put_u32(&mut header, body_bytes);
        put_u32(&mut header, ordinal);
        header.extend_from_slice(&[0, if wide { LAYOUT_WIDE } else { LAYOUT_NARROW }, 0, 0]);
        self.bytes[..BLOCK_HEADER_BYTES].copy_from_slice(&header);
        seal(tag, offset_bytes, &mut self.bytes);
        &self.bytes
    }
}

/// A block that was read and checked. Its entries are decoded when looked at.
pub struct Block {
    bytes: Vec<u8>,
    ordinal: u32,
    count: u32,
    wide: bool,
    /// Ends of prefix, lower suffix, upper suffix in `bytes`; entries follow.
    ends: [u32; 3],
    prefix_start: u32,
    /// Where the offset array begins in `bytes`.
    offsets_start: u32,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({}, {} entries, {} bytes)", self.ordinal, self.count, self.bytes.len())
    }
}

impl Block {
    /// Checks the bytes of one block, read from `offset_bytes` of the file tagged `tag`. Bytes
    /// after the block (alignment) are ignored.
    ///
    /// # Errors
    /// `Corruption` if they are not what was written there; `Unsupported` for an unknown
    /// compression or layout.
    pub fn decode(bytes: Vec<u8>, tag: u64, offset_bytes: u64) -> Result<Block> {
        decode(bytes, tag, offset_bytes)
            .map_err(|e| match e.offset_bytes() {
                // Offsets inside are the block's; the reader of the message wants the file's.
                Some(inner) => {
                    Error::new(e.kind(), format!("data block: {e} (byte {inner} of it)"))
                }
                None => e,
            })
            .map_err(|e| e.at_offset(offset_bytes))
    }

    /// The block's number in its table, from 0.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// How many entries it holds.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// What it takes in memory.
    pub fn size_bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<Block>()
    }

    fn part(&self, start: u32, end: u32) -> &[u8] {
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    /// What every key of the block begins with.
    pub fn prefix(&self) -> &[u8] {
        self.part(self.prefix_start, self.ends[0])
    }

    /// The lower separator, without the prefix: no key of the block is below it.
    pub fn lower_suffix(&self) -> &[u8] {
        self.part(self.ends[0], self.ends[1])
    }

    /// The upper separator, without the prefix: every key of the block is below it.
    pub fn upper_suffix(&self) -> &[u8] {
        self.part(self.ends[1], self.ends[2])
    }

    /// Where `key` lies: `Less` if below the lower separator, `Equal` if between the separators,
    /// `Greater` if at or above the upper one.
    pub fn place(&self, key: &[u8]) -> std::cmp::Ordering {
        use std::cmp::Ordering;
        let prefix = self.prefix();
        let (head, suffix) = key.split_at(prefix.len().min(key.len()));
        match head.cmp(prefix) {
            Ordering::Equal => {}
            other => return other,
        }
        if suffix < self.lower_suffix() {
            Ordering::Less
        } else if suffix < self.upper_suffix() {
            Ordering::Equal
        } else {
            Ordering::Greater
        }
    }

    /// The entry at `index`.
    ///
    /// # Errors
    /// `Corruption` if it does not lie within the block (a writer's bug that the checksum sealed).
    pub fn entry(&self, index: usize) -> Result<Entry<'_>> {
        let mut reader = Reader::at(&self.bytes, self.entry_start(index)?);
        let kind = Kind::from_byte(reader.u8()?)?;
        let key_length = reader.length()?;
        let sequence = reader.varint()?;
        let value_length = reader.length()?;
        let key_suffix = reader.take(key_length)?;
        let value = reader.take(value_length)?;
        Ok(Entry { kind, sequence, key_suffix, value })
    }

    /// Where in [`Block::bytes`] the value of an entry of this block stands.
    pub fn value_range(&self, entry: &Entry<'_>) -> std::ops::Range<usize> {
        let start = entry.value.as_ptr() as usize - self.bytes.as_ptr() as usize;
        start..start + entry.value.len()
    }

    /// The block's bytes, to be used for another.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// All bytes of the block.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn entry_start(&self, index: usize) -> Result<usize> {
        if index >= self.count as usize {
            return Err(Error::corruption(format!("expected entry {index}, found {self:?}")));
        }
        let width = if self.wide { 4 } else { 2 };
        let at = self.offsets_start as usize + index * width;
        let mut reader = Reader::at(&self.bytes, at);
        let offset = if self.wide { reader.u32()? } else { u32::from(reader.u16()?) };
        Ok(BLOCK_HEADER_BYTES + offset as usize)
    }

    fn key_suffix(&self, index: usize) -> Result<&[u8]> {
        let mut reader = Reader::at(&self.bytes, self.entry_start(index)? + 1);
        let length = reader.length()?;
        reader.varint()?;
        reader.varint()?;
        reader.take(length)
    }

    /// The index of the first entry whose key is at or above `key` (`count` if there is none), and
    /// whether it is `key` itself. `key` must have [`Block::place`] `Equal`, or the ends are given.
    ///
    /// # Errors
    /// As [`Block::entry`].
    pub fn lower_bound(&self, key: &[u8]) -> Result<(usize, bool)> {
        match self.place(key) {
            std::cmp::Ordering::Less => return Ok((0, false)),
            std::cmp::Ordering::Greater => return Ok((self.count(), false)),
            std::cmp::Ordering::Equal => {}
        }
        let suffix = key.get(self.prefix().len()..).unwrap_or_default();
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key_suffix(middle)?.cmp(suffix) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok((middle, true)),
            }
        }
        Ok((low, false))
    }
}

fn decode(mut bytes: Vec<u8>, tag: u64, offset_bytes: u64) -> Result<Block> {
    let mut reader = Reader::new(&bytes);
    let expected = reader.u64()?;
    let stored_bytes = reader.u32()? as usize;
    let raw_bytes = reader.u32()? as usize;
    let ordinal = reader.u32()?;
    let (compression, layout) = (reader.u8()?, reader.u8()?);
    reader.u16()?;
    reader.take(stored_bytes)?;
    let end = reader.position();
    let found = checksum(tag, offset_bytes, bytes.get(8..end).unwrap_or_default());
    if found != expected {
        return Err(Error::corruption(format!(
            "data block: expected checksum {expected:016x}, found {found:016x}"
        )));
    }
    if compression != 0 || layout > LAYOUT_WIDE {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "data block of compression {compression}, layout {layout}: this build has neither"
            ),
        ));
    }
    if raw_bytes != stored_bytes {
        return Err(Error::corruption(format!(
            "data block: expected {raw_bytes} bytes, found {stored_bytes}"
        )));
    }
    bytes.truncate(end);
    let mut reader = Reader::at(&bytes, BLOCK_HEADER_BYTES);
    let lengths = [reader.length()?, reader.length()?, reader.length()?];
    let prefix_start = reader.position() as u32;
    let mut ends = [0; 3];
    for (end, length) in ends.iter_mut().zip(lengths) {
        reader.take(length)?;
        *end = reader.position() as u32;
    }
    let wide = layout == LAYOUT_WIDE;
    let count_start = bytes.len().saturating_sub(4);
    let count = Reader::at(&bytes, count_start).u32()?;
    let array_bytes = count as usize * if wide { 4 } else { 2 };
    let offsets_start = count_start
        .checked_sub(array_bytes)
        .filter(|start| *start >= reader.position())
        .ok_or_else(|| Error::corruption(format!("data block: {count} entries do not fit it")))?;
    Ok(Block {
        ordinal,
        count,
        wide,
        ends,
        prefix_start,
        offsets_start: offsets_start as u32,
        bytes,
    })
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    fn build(lower: &[u8], upper: &[u8], entries: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        builder.begin(lower, upper);
        for (key, value) in entries {
            builder.add(Kind::Value, key, 7, value);
        }
        builder.finish(1, 0, 3).to_vec()
    }

    #[test]
    fn the_example_is_what_is_written() {
        let bytes = build(b"aa", b"ac", &[(b"ab", b"v")]);
        println!("{bytes:02x?}");
        assert_eq!(
            bytes[8..],
            [
                0x12, 0, 0, 0, 0x12, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0,
                0, // lengths, ordinal, layout
                1, 1, 1, b'a', b'a', b'c', // separators
                1, 1, 7, 1, b'b', b'v', // the entry
                6, 0, 1, 0, 0, 0, // its offset, the count
            ]
        );
    }

    #[test]
    fn entries_are_found_and_strangers_are_not() {
        let bytes = build(b"ka", b"kz", &[(b"kb", b"1"), (b"kd", b"2"), (b"kdd", b"")]);
        let block = Block::decode(bytes, 1, 0).unwrap();
        assert_eq!((block.ordinal(), block.count(), block.prefix()), (3, 3, &b"k"[..]));
        assert_eq!(block.lower_bound(b"kd").unwrap(), (1, true));
        assert_eq!(block.lower_bound(b"kc").unwrap(), (1, false));
        assert_eq!(block.lower_bound(b"ky").unwrap(), (3, false));
        assert_eq!(block.lower_bound(b"z").unwrap(), (3, false));
        assert_eq!(block.lower_bound(b"").unwrap(), (0, false));
        for (key, place) in [
            (&b"k"[..], Ordering::Less),
            (b"ka", Ordering::Equal),
            (b"kz", Ordering::Greater),
            (b"j", Ordering::Less),
            (b"l", Ordering::Greater),
        ] {
            assert_eq!(block.place(key), place, "{key:?}");
        }
        let entry = block.entry(1).unwrap();
        assert_eq!(&block.bytes()[block.value_range(&entry)], b"2");
    }

    #[test]
    fn wide_blocks_hold_large_values() {
        let large = vec![9; 100_000];
        let bytes = build(b"", b"z", &[(b"a", &large), (b"b", b"x")]);
        let block = Block::decode(bytes, 1, 0).unwrap();
        assert_eq!(block.entry(0).unwrap().value, large);
        assert_eq!(block.entry(1).unwrap().value, b"x");
    }

    #[test]
    fn damage_anywhere_is_refused() {
        let bytes = build(b"ka", b"kz", &[(b"kb", b"1"), (b"kd", b"2")]);
        for i in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[i] ^= 1;
            assert!(Block::decode(bad, 1, 0).is_err(), "byte {i}");
            assert!(Block::decode(bytes[..i].to_vec(), 1, 0).is_err(), "cut {i}");
        }
        assert!(Block::decode(bytes.clone(), 2, 0).is_err(), "another file");
        assert!(Block::decode(bytes, 1, 64).is_err(), "another place");
    }
}
