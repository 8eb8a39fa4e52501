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

/// Builds one block at a time; keeps its buffer for the next.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    heads: Vec<u8>,
    values: Vec<u8>,
    /// Where in `heads` and in `values` those of each entry begin.
    starts: Vec<(u32, u32)>,
    prefix_length: usize,
    /// Where in `bytes` the content begins.
    content_start: usize,
    /// The block with its content compressed, if that served.
    packed: Vec<u8>,
}

/// What `bytes` bytes of a block take with the padding up to the next one.
fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(BLOCK_ALIGNMENT)
}

impl BlockBuilder {
    /// Begins a block for keys in `lower <= key < upper`.
    pub fn begin(&mut self, lower: &[u8], upper: &[u8]) {
        assert!(lower < upper, "a block's separators are out of order");
        self.heads.clear();
        self.values.clear();
        self.starts.clear();
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
        self.content_start = self.bytes.len();
    }

    /// Adds an entry. Keys come in order and lie between the separators.
    pub fn add(&mut self, kind: Kind, key: &[u8], sequence: SequenceNumber, value: &[u8]) {
        self.starts.push((self.heads.len() as u32, self.values.len() as u32));
        self.heads.push(kind as u8);
        put_varint(&mut self.heads, sequence);
        self.heads.extend_from_slice(key.get(self.prefix_length..).unwrap_or_default());
        self.values.extend_from_slice(value);
    }

    /// Puts the content behind the separators; whether its places are wide.
    fn gather(&mut self) -> bool {
        let numbers = 2 * self.starts.len() + 1;
        let before = self.bytes.len() - BLOCK_HEADER_BYTES + 4;
        let rest = self.heads.len() + self.values.len();
        let wide = before + 2 * numbers + rest > usize::from(u16::MAX);
        let heads_start = before + if wide { 4 } else { 2 } * numbers;
        let values_start = heads_start + self.heads.len();
        put_u32(&mut self.bytes, self.starts.len() as u32);
        let heads = self.starts.iter().map(|(head, _)| heads_start + *head as usize);
        let values = self.starts.iter().map(|(_, value)| values_start + *value as usize);
        for place in heads.chain(values).chain([values_start + self.values.len()]) {
            if wide {
                put_u32(&mut self.bytes, place as u32);
            } else {
                put_u16(&mut self.bytes, place as u16);
            }
        }
        self.bytes.extend_from_slice(&self.heads);
        self.bytes.extend_from_slice(&self.values);
        wide
    }

    /// Ends the block: its bytes, to be written at `offset_bytes` of the file tagged `tag`, and what
    /// it would take uncompressed, with its padding.
    pub fn finish(
        &mut self,
        tag: u64,
        offset_bytes: u64,
        ordinal: u32,
        codec: Option<&mut (dyn Codec + 'static)>,
    ) -> (&[u8], u64) {
        let wide = self.gather();
        let raw_bytes = self.bytes.len() - BLOCK_HEADER_BYTES;
        let mark = codec.and_then(|codec| self.pack(codec).then(|| codec.mark())).unwrap_or(RAW);
        let block = if mark == RAW { &mut self.bytes } else { &mut self.packed };
        let mut header = Vec::with_capacity(BLOCK_HEADER_BYTES);
        put_u64(&mut header, 0);
        put_u32(&mut header, (block.len() - BLOCK_HEADER_BYTES) as u32);
        put_u32(&mut header, raw_bytes as u32);
        put_u32(&mut header, ordinal);
        header.extend_from_slice(&[mark, if wide { LAYOUT_WIDE } else { LAYOUT_NARROW }, 0, 0]);
        if let Some(place) = block.get_mut(..BLOCK_HEADER_BYTES) {
            place.copy_from_slice(&header);
        }
        seal(tag, offset_bytes, block);
        (block, padded(BLOCK_HEADER_BYTES + raw_bytes))
    }

    /// Makes `packed` of `bytes`; whether it is so much shorter that it pays.
    fn pack(&mut self, codec: &mut dyn Codec) -> bool {
        let (before, content) = self.bytes.split_at(self.content_start);
        let raw_bytes = self.bytes.len() - BLOCK_HEADER_BYTES;
        let Some(most_bytes) = content.len().checked_sub(raw_bytes.div_ceil(LEAST_GAIN)) else {
            return false;
        };
        self.packed.clear();
        self.packed.extend_from_slice(before);
        codec.compress(content, most_bytes, &mut self.packed)
            && padded(self.packed.len()) < padded(self.bytes.len())
    }
}
