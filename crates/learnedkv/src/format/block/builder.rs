//! Writing blocks.

use super::{BLOCK_ALIGNMENT, BLOCK_HEADER_BYTES, LAYOUT_NARROW, LAYOUT_WIDE};
use crate::format::bytes::{
    common_prefix_length, put_u16, put_u32, put_u64, put_varint, varint_length,
};
use crate::format::checksum::seal;
use crate::format::compression::{Codec, RAW};
use crate::format::entry::{Kind, SequenceNumber};

/// A block is compressed if that makes it shorter by one part in so many.
const LEAST_GAIN: usize = 8;

/// An upper bound of the bytes an entry takes in a block of the narrow layout.
pub fn entry_bytes(key_length: usize, sequence: SequenceNumber, value_length: usize) -> usize {
    1 + varint_length(sequence) + key_length + value_length + 4
}

/// What a block takes besides its entries, for separators of up to `separator_length` bytes.
pub fn block_overhead_bytes(separator_length: usize) -> usize {
    BLOCK_HEADER_BYTES + 6 + 2 * (separator_length + varint_length(separator_length as u64)) + 1
}

/// An entry to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry<'a> {
    /// Its key, whole.
    pub key: &'a [u8],
    /// What it is.
    pub kind: Kind,
    /// Its version.
    pub sequence: SequenceNumber,
    /// Its value or what stands for it.
    pub value: &'a [u8],
}

/// Where a block is to stand.
#[derive(Debug, Clone, Copy)]
pub struct BlockPlace {
    /// The file's tag.
    pub tag: u64,
    /// Where in the file.
    pub offset_bytes: u64,
    /// The block's number in its table.
    pub ordinal: u32,
}

/// Writes blocks; keeps its buffers for the next. A value is copied once, to where it is written from.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    heads: Vec<u8>,
    /// Where in `heads`, and among the values, those of each entry begin.
    starts: Vec<(u32, u32)>,
    /// The content compressed.
    packed: Vec<u8>,
}

/// What `bytes` bytes of a block take with the padding up to the next one.
fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(BLOCK_ALIGNMENT)
}

impl BlockBuilder {
    /// Appends the block of `entries` to `out`, to be written at that place, and says what it would take
    /// uncompressed, with its padding. The keys come in order, and lie in `lower <= key < upper`.
    pub fn write<'a>(
        &mut self,
        out: &mut Vec<u8>,
        place: BlockPlace,
        (lower, upper): (&[u8], &[u8]),
        entries: impl Iterator<Item = NewEntry<'a>> + Clone,
        codec: Option<&mut (dyn Codec + 'static)>,
    ) -> u64 {
        assert!(lower < upper, "a block's separators are out of order");
        let start = out.len();
        out.resize(start + BLOCK_HEADER_BYTES, 0);
        let prefix_length = put_separators(out, lower, upper);
        let content_start = out.len();
        let before = content_start - start - BLOCK_HEADER_BYTES;
        let wide = self.put_content(out, before, prefix_length, entries);
        let raw_bytes = out.len() - start - BLOCK_HEADER_BYTES;
        let packed = codec
            .and_then(|codec| self.pack(out, start, content_start, codec).then(|| codec.mark()));
        let block = out.get_mut(start..).unwrap_or_default();
        let mut header = Vec::with_capacity(BLOCK_HEADER_BYTES);
        put_u64(&mut header, 0);
        put_u32(&mut header, (block.len() - BLOCK_HEADER_BYTES) as u32);
        put_u32(&mut header, raw_bytes as u32);
        put_u32(&mut header, place.ordinal);
        let layout = if wide { LAYOUT_WIDE } else { LAYOUT_NARROW };
        header.extend_from_slice(&[packed.unwrap_or(RAW), layout, 0, 0]);
        if let Some(front) = block.get_mut(..BLOCK_HEADER_BYTES) {
            front.copy_from_slice(&header);
        }
        seal(place.tag, place.offset_bytes, block);
        padded(BLOCK_HEADER_BYTES + raw_bytes)
    }

    /// Appends the content, which begins `before` bytes behind the block's header; whether its places are wide.
    fn put_content<'a>(
        &mut self,
        out: &mut Vec<u8>,
        before: usize,
        prefix_length: usize,
        entries: impl Iterator<Item = NewEntry<'a>> + Clone,
    ) -> bool {
        self.heads.clear();
        self.starts.clear();
        let mut value_bytes = 0;
        for entry in entries.clone() {
            self.starts.push((self.heads.len() as u32, value_bytes as u32));
            self.heads.push(entry.kind as u8);
            put_varint(&mut self.heads, entry.sequence);
            self.heads.extend_from_slice(entry.key.get(prefix_length..).unwrap_or_default());
            value_bytes += entry.value.len();
        }
        let numbers = 2 * self.starts.len() + 1;
        let rest = self.heads.len() + value_bytes;
        let wide = before + 4 + 2 * numbers + rest > usize::from(u16::MAX);
        let heads_start = before + 4 + if wide { 4 } else { 2 } * numbers;
        let values_start = heads_start + self.heads.len();
        out.reserve(4 + 4 * numbers + rest);
        put_u32(out, self.starts.len() as u32);
        let heads = self.starts.iter().map(|(head, _)| heads_start + *head as usize);
        let values = self.starts.iter().map(|(_, value)| values_start + *value as usize);
        for place in heads.chain(values).chain([values_start + value_bytes]) {
            if wide {
                put_u32(out, place as u32);
            } else {
                put_u16(out, place as u16);
            }
        }
        out.extend_from_slice(&self.heads);
        entries.for_each(|entry| out.extend_from_slice(entry.value));
        wide
    }

    /// Puts the content of the block that begins at `start` compressed in its place, if that makes it so much
    /// shorter that it pays; whether it did.
    fn pack(
        &mut self,
        out: &mut Vec<u8>,
        start: usize,
        content_start: usize,
        codec: &mut (dyn Codec + 'static),
    ) -> bool {
        let content = out.get(content_start..).unwrap_or_default();
        let raw_bytes = out.len() - start - BLOCK_HEADER_BYTES;
        let Some(most_bytes) = content.len().checked_sub(raw_bytes.div_ceil(LEAST_GAIN)) else {
            return false;
        };
        self.packed.clear();
        let packs = codec.compress(content, most_bytes, &mut self.packed)
            && padded(content_start - start + self.packed.len()) < padded(out.len() - start);
        if packs {
            out.truncate(content_start);
            out.extend_from_slice(&self.packed);
        }
        packs
    }
}

/// Appends the separators; how much of each key they share.
fn put_separators(out: &mut Vec<u8>, lower: &[u8], upper: &[u8]) -> usize {
    let (prefix, lower_suffix) = lower.split_at(common_prefix_length(lower, upper));
    let (_, upper_suffix) = upper.split_at(prefix.len());
    for part in [prefix, lower_suffix, upper_suffix] {
        put_varint(out, part.len() as u64);
    }
    for part in [prefix, lower_suffix, upper_suffix] {
        out.extend_from_slice(part);
    }
    prefix.len()
}
