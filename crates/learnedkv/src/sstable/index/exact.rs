//! `exact`: always one block. Separators and block ends as models with residual bits, chosen together
//! with where the blocks end; see [`learned::exact`], which owns the layout of the section.

use std::sync::OnceLock;

use learned::exact::{Directory, DirectoryBuilder};

use super::{Index, IndexBuilder, Makeup, between, refused};
use crate::error::Result;
use crate::format::block::BLOCK_ALIGNMENT;
use crate::sstable::partition::{Cut, Limits};

/// The kind's name.
pub const NAME: &str = "exact";

/// Blocks that are planned together: what a directory's chunk holds.
const BLOCKS_PER_CHUNK: usize = 64;
/// What a block usually takes in memory besides the section, bytes; see [`super::usual_bytes`].
pub const BLOCK_BYTES: u64 = 2;
/// Separators are about as long as keys are at the start of the table, and at least this.
const SEPARATOR_BYTES: usize = 8;

/// Builds [`Exact`].
#[derive(Debug)]
pub struct ExactBuilder(DirectoryBuilder);

impl ExactBuilder {
    /// A builder for a table whose smallest key is `smallest`.
    pub fn new(limits: Limits, smallest: &[u8]) -> ExactBuilder {
        let entries = limits.entries_bytes(smallest.len().max(SEPARATOR_BYTES));
        let limits = learned::exact::Limits {
            max_block_bytes: entries as u64,
            blocks_per_chunk: BLOCKS_PER_CHUNK,
        };
        ExactBuilder(DirectoryBuilder::new(limits, smallest))
    }
}

impl IndexBuilder for ExactBuilder {
    fn wanted_bytes(&self) -> usize {
        self.0.wanted_bytes() as usize
    }

    fn cut(&mut self, keys: &[&[u8]], sizes: &[u32], end_of_table: bool) -> Vec<Cut> {
        self.0.cut(keys, sizes, end_of_table)
    }

    fn push_end(&mut self, end_bytes: u64) {
        self.0.push_end(end_bytes / BLOCK_ALIGNMENT);
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>> {
        Ok(self.0.finish())
    }
}

/// The index in memory: the section's bytes as they are.
#[derive(Debug)]
pub struct Exact {
    directory: Directory,
    /// Once somebody asked: all chunks are looked at.
    makeup: OnceLock<Makeup>,
}

impl Exact {
    /// Reads a section.
    ///
    /// # Errors
    /// `Corruption` if it is not one.
    pub fn decode(bytes: Vec<u8>) -> Result<Exact> {
        let directory = Directory::decode(bytes).map_err(|e| refused(NAME, &e))?;
        Ok(Exact { directory, makeup: OnceLock::new() })
    }
}

impl Index for Exact {
    fn block_count(&self) -> u64 {
        self.directory.block_count()
    }

    fn locate(&self, key: &[u8]) -> (u64, u64) {
        let block = self.directory.locate(key);
        (block, block)
    }

    fn extent(&self, block: u64) -> (u64, u64) {
        let (start, end) = self.directory.extent(block);
        (start.saturating_mul(BLOCK_ALIGNMENT), end.saturating_mul(BLOCK_ALIGNMENT))
    }

    fn extents(&self) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        Box::new(between(self.directory.ends().map(|end| end.saturating_mul(BLOCK_ALIGNMENT))))
    }

    fn makeup(&self) -> Makeup {
        *self.makeup.get_or_init(|| {
            let of = self.directory.statistics();
            Makeup {
                chunks: of.numeric_chunks + of.string_chunks + of.single_chunks,
                separated_blocks: of.string_blocks,
                exceptions: of.exceptions,
            }
        })
    }

    fn size_bytes(&self) -> usize {
        self.directory.size_bytes() + size_of::<OnceLock<Makeup>>()
    }

    fn describe(&self) -> String {
        let of = self.directory.statistics();
        format!(
            "{} numeric chunks, {} exceptions, {} chunks of strings; bits: {} numeric, {} of exceptions, {} of strings, {} \
             of heads, {} of offsets, {} of headers",
            of.numeric_chunks,
            of.exceptions,
            of.string_chunks,
            of.numeric_bits,
            of.exception_bits,
            of.string_bits,
            of.head_bits,
            of.offset_bits,
            of.header_bits
        )
    }
}
