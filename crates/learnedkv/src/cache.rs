//! Decoded data blocks in memory, the most useful of them, within a stated number of bytes.
//!
//! A cache never knows a file: blocks are named by table and ordinal.
//!
//! The bytes of evicted blocks serve the next blocks that are read or decompressed: nothing is allocated, cleared
//! and freed for a miss, and the allocator need not keep a heap of freed blocks for each thread
//! that ever read one (docs/decisions/0005).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle};

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

/// Buffers kept for the next reads; more than this are given back.
const KEPT_BUFFERS: usize = 64;
/// Larger buffers are given back at once.
const KEPT_BUFFER_BYTES: usize = 64 << 10;

/// The bytes of evicted blocks that nobody else holds.
#[derive(Clone, Default)]
struct Recycled(Arc<Mutex<Vec<Vec<u8>>>>);

impl Recycled {
    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, bytes: Vec<u8>) {
        let mut buffers = self.buffers();
        if buffers.len() < KEPT_BUFFERS && bytes.capacity() <= KEPT_BUFFER_BYTES {
            buffers.push(bytes);
        }
    }
}

impl Lifecycle<Name, Arc<Block>> for Recycled {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Name, block: Arc<Block>) {
        if let Ok(block) = Arc::try_unwrap(block) {
            self.keep(block.into_bytes());
        }
    }
}

/// The block cache, shared by all keyspaces of a database.
pub struct BlockCache {
    blocks: Option<Cache<Name, Arc<Block>, BlockBytes, DefaultHashBuilder, Recycled>>,
    recycled: Recycled,
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
        let recycled = Recycled::default();
        let blocks = (capacity_bytes > 0).then(|| {
            let hash = DefaultHashBuilder::default();
            Cache::with(items, capacity_bytes, BlockBytes, hash, recycled.clone())
        });
        BlockCache { blocks, recycled }
    }

    /// A buffer of `length` bytes to read a block into, its content any.
    pub fn buffer(&self, length: usize) -> Vec<u8> {
        let mut buffer = self.recycled.buffers().pop().unwrap_or_default();
        if buffer.capacity() < length {
            return vec![0; length];
        }
        buffer.resize(length, 0);
        buffer
    }

    /// Takes back a buffer: what a compressed block was read into, say.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.recycled.keep(buffer);
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
