//! Decoded data blocks in memory, the most useful of them, within a stated number of bytes.
//!
//! A cache never knows a file: blocks are named by table and ordinal.

use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::format::block::Block;
use crate::format::entry::TableId;

/// What names a block: its table and its number in it.
type Name = (TableId, u64);

#[derive(Clone)]
struct BlockBytes;

impl quick_cache::Weighter<Name, Arc<Block>> for BlockBytes {
    fn weight(&self, _: &Name, block: &Arc<Block>) -> u64 {
        // The cache's own bookkeeping is counted at 64 bytes an entry.
        block.size_bytes() as u64 + 64
    }
}

/// The block cache, shared by all keyspaces of a database.
pub struct BlockCache {
    blocks: Option<Cache<Name, Arc<Block>, BlockBytes>>,
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockCache({} of {} bytes)", self.used_bytes(), self.capacity_bytes())
    }
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`; with 0 nothing is kept.
    pub fn new(capacity_bytes: u64) -> BlockCache {
        let items = (capacity_bytes / 4096).max(16) as usize;
        let blocks =
            (capacity_bytes > 0).then(|| Cache::with_weighter(items, capacity_bytes, BlockBytes));
        BlockCache { blocks }
    }

    /// The block, if it is here.
    pub fn get(&self, table: TableId, ordinal: u64) -> Option<Arc<Block>> {
        self.blocks.as_ref()?.get(&(table, ordinal))
    }

    /// Keeps a block, at the cost of less useful ones.
    pub fn insert(&self, table: TableId, ordinal: u64, block: &Arc<Block>) {
        if let Some(blocks) = &self.blocks {
            blocks.insert((table, ordinal), block.clone());
        }
    }

    /// What the blocks here take.
    pub fn used_bytes(&self) -> u64 {
        self.blocks.as_ref().map_or(0, Cache::weight)
    }

    /// The most they may take.
    pub fn capacity_bytes(&self) -> u64 {
        self.blocks.as_ref().map_or(0, Cache::capacity)
    }

    /// Sets the most they may take; a cache made with 0 stays empty.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        if let Some(blocks) = &self.blocks
            && blocks.capacity() != capacity_bytes
        {
            blocks.set_capacity(capacity_bytes);
        }
    }
}
