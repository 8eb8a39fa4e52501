//! Fence pointers: every block's lower separator and end, in full.
//!
//! ```text
//! section := count varint | (separator slice | length of the block in 64-byte units varint)*
//! ```
//! Two blocks, from `a` on 64 bytes and from `m` on 128:
//! ```text
//! 02 | 01 61 | 01 | 01 6d | 02   two blocks; a, 1 unit; m, 2 units
//! ```

use super::{Index, IndexBuilder};
use crate::error::{Error, Result};
use crate::format::block::BLOCK_ALIGNMENT;
use crate::format::bytes::{Reader, put_slice, put_varint};
use crate::sstable::partition::{Cut, Limits, Separator, by_size};

/// The kind's name.
pub const NAME: &str = "fence";

/// What a block usually takes in memory besides the section, bytes; see [`super::usual_bytes`].
pub const BLOCK_BYTES: u64 = 12;

/// Builds [`Fence`].
#[derive(Debug)]
pub struct FenceBuilder {
    limits: Limits,
    fence: Fence,
    /// Lower separators of blocks that were cut but not yet written; the first is the next one's.
    pending: std::collections::VecDeque<Separator>,
}

impl FenceBuilder {
    /// A builder for a table whose smallest key is `smallest`.
    pub fn new(limits: Limits, smallest: &[u8]) -> FenceBuilder {
        FenceBuilder { limits, fence: Fence::default(), pending: [smallest.into()].into() }
    }
}

impl IndexBuilder for FenceBuilder {
    fn wanted_bytes(&self) -> usize {
        // More than a block; a few at a time keep the writer's bookkeeping cheap.
        self.limits.block_bytes * 8
    }

    fn cut(&mut self, keys: &[&[u8]], sizes: &[u32], end_of_table: bool) -> Vec<Cut> {
        let cuts = by_size(self.limits, keys, sizes, end_of_table);
        self.pending.extend(cuts.iter().map(|cut| cut.separator.clone()));
        cuts
    }

    fn push_end(&mut self, end_bytes: u64) {
        let separator = self.pending.pop_front().expect("a block was written that was not cut");
        self.fence.push(&separator, end_bytes);
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        put_varint(&mut out, self.fence.block_count());
        for block in 0..self.fence.block_count() {
            let (start, end) = self.fence.extent(block);
            put_slice(&mut out, self.fence.separator(block));
            put_varint(&mut out, (end - start) / BLOCK_ALIGNMENT);
        }
        Ok(out)
    }
}

/// The index in memory: separators back to back, with where each ends.
#[derive(Debug, Default)]
pub struct Fence {
    separators: Vec<u8>,
    separator_ends: Vec<u32>,
    ends: Vec<u64>,
}

impl Fence {
    /// Reads a section.
    ///
    /// # Errors
    /// `Corruption` if it is not one, or its separators are out of order.
    pub fn decode(bytes: &[u8]) -> Result<Fence> {
        let mut reader = Reader::new(bytes);
        let mut fence = Fence::default();
        let mut end = 0u64;
        for block in 0..reader.varint()? {
            let separator = reader.slice()?;
            let length = reader.varint()?.checked_mul(BLOCK_ALIGNMENT);
            end = length.and_then(|length| end.checked_add(length)).ok_or_else(|| {
                Error::corruption(format!("fence pointers: block {block} ends nowhere"))
            })?;
            if block > 0 && separator <= fence.separator(block - 1) {
                return Err(Error::corruption(format!(
                    "fence pointers: the separator of block {block} is not above the one before"
                )));
            }
            fence.push(separator, end);
        }
        reader.finish("fence pointers")?;
        fence.separators.shrink_to_fit();
        fence.separator_ends.shrink_to_fit();
        fence.ends.shrink_to_fit();
        Ok(fence)
    }

    /// Adds the next block.
    pub fn push(&mut self, separator: &[u8], end_bytes: u64) {
        self.separators.extend_from_slice(separator);
        self.separator_ends.push(self.separators.len() as u32);
        self.ends.push(end_bytes);
    }

    fn separator(&self, block: u64) -> &[u8] {
        let block = block as usize;
        let start = if block == 0 { 0 } else { self.separator_ends[block - 1] };
        &self.separators[start as usize..self.separator_ends[block] as usize]
    }
}

impl Index for Fence {
    fn block_count(&self) -> u64 {
        self.ends.len() as u64
    }

    fn locate(&self, key: &[u8]) -> (u64, u64) {
        // The last block whose separator is at or below the key.
        let (mut low, mut high) = (0, self.block_count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.separator(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let block = low.saturating_sub(1);
        (block, block)
    }

    fn extent(&self, block: u64) -> (u64, u64) {
        let block = block as usize;
        let start = if block == 0 { 0 } else { self.ends[block - 1] };
        (start, self.ends[block])
    }

    fn size_bytes(&self) -> usize {
        self.separators.capacity() + self.separator_ends.capacity() * 4 + self.ends.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::example::assert_shown;

    #[test]
    fn the_example_above_is_what_is_written() {
        let mut builder = FenceBuilder::new(Limits { block_bytes: 100 }, b"a");
        builder.pending.push_back(b"m".as_slice().into());
        builder.push_end(64);
        builder.push_end(192);
        let bytes = Box::new(builder).finish().unwrap();
        assert_shown(include_str!("fence.rs"), "Two blocks", &bytes);
    }
}
