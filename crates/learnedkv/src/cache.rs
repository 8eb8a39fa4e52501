//! Decoded data blocks in memory, the most useful of them, within a stated number of bytes; and
//! among them the indexes of tables that do not keep theirs by themselves.
//!
//! A cache never knows a file: blocks are named by table and ordinal, an index by its table. What
//! an index is it does not know either, only what it weighs. Parts of the cache have a lock each;
//! what is larger than a part is not kept.
//!
//! The bytes of evicted blocks serve the next blocks that are read or decompressed: nothing is allocated, cleared
//! and freed for a miss, and the allocator need not keep a heap of freed blocks for each thread
//! that ever read one (docs/decisions/0005).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder};

use crate::format::block::Block;
use crate::format::entry::TableId;

/// What names a block: its table and its number in it.
type Name = (TableId, u64);

/// The number that an index has in place of a block's.
const INDEX: u64 = u64::MAX;

/// What is kept for tables beside their blocks.
pub trait Weight: Send + Sync {
    /// What it takes in memory, bytes.
    fn size_bytes(&self) -> usize;
}

enum Cached<I> {
    Block(Arc<Block>),
    Index(Arc<I>),
}

impl<I> Clone for Cached<I> {
    fn clone(&self) -> Cached<I> {
        match self {
            Cached::Block(block) => Cached::Block(block.clone()),
            Cached::Index(index) => Cached::Index(index.clone()),
        }
    }
}

#[derive(Clone)]
struct Bytes;

impl<I: Weight> quick_cache::Weighter<Name, Cached<I>> for Bytes {
    fn weight(&self, _: &Name, cached: &Cached<I>) -> u64 {
        let bytes = match cached {
            Cached::Block(block) => block.size_bytes(),
            Cached::Index(index) => index.size_bytes(),
        };
        // The cache's own bookkeeping is counted at 64 bytes an entry.
        bytes as u64 + 64
    }
}

/// How large a part is that has a lock of its own: the fence pointers of a table may take a MiB.
const PART_BYTES: u64 = 4 << 20;
/// What a cache that has more does not give up.
const LEAST_BYTES: u64 = 64 << 10;
/// More parts than this there are not, however large the cache is.
const MOST_PARTS: u64 = 64;

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

impl<I> Lifecycle<Name, Cached<I>> for Recycled {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Name, cached: Cached<I>) {
        if let Cached::Block(block) = cached
            && let Ok(block) = Arc::try_unwrap(block)
        {
            self.keep(block.into_bytes());
        }
    }
}

/// The block cache, shared by all keyspaces of a database; `I` is an index.
pub struct BlockCache<I> {
    kept: Option<Cache<Name, Cached<I>, Bytes, DefaultHashBuilder, Recycled>>,
    recycled: Recycled,
}

impl<I: Weight> std::fmt::Debug for BlockCache<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockCache({} of {} bytes)", self.used_bytes(), self.capacity_bytes())
    }
}

impl<I: Weight> BlockCache<I> {
    /// A cache of at most `capacity_bytes`; with 0 nothing is kept.
    pub fn new(capacity_bytes: u64) -> BlockCache<I> {
        let items = (capacity_bytes / 4096).max(16) as usize;
        let recycled = Recycled::default();
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(items).weight_capacity(capacity_bytes);
        options.shards((capacity_bytes / PART_BYTES).clamp(1, MOST_PARTS) as usize);
        let options = options.build().ok().filter(|_| capacity_bytes > 0);
        let kept = options.map(|options| {
            let hash = DefaultHashBuilder::default();
            Cache::with_options(options, Bytes, hash, recycled.clone())
        });
        BlockCache { kept, recycled }
    }

    /// A buffer of `length` bytes to read a block into, its content any.
    ///
    /// At most twice as large as asked for: what is cached in it counts, and takes, all of it.
    pub fn buffer(&self, length: usize) -> Vec<u8> {
        let kept = {
            let mut buffers = self.recycled.buffers();
            let fits = |buffer: &Vec<u8>| (length..=2 * length).contains(&buffer.capacity());
            match buffers.iter().rposition(fits) {
                Some(at) => Some(buffers.swap_remove(at)),
                None => {
                    // Others are wanted now.
                    buffers.pop();
                    None
                }
            }
        };
        // New ones have few different sizes: among buffers of any, what is freed fits nothing that is asked for next, and
        // the cache took two thirds more than it holds.
        let size = length.next_multiple_of((length.next_power_of_two() / 16).max(1));
        let mut buffer = kept.unwrap_or_else(|| Vec::with_capacity(size));
        buffer.resize(length, 0);
        buffer
    }

    /// Takes back a buffer: what a compressed block was read into, say.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.recycled.keep(buffer);
    }

    /// The block, if it is here.
    pub fn get(&self, table: TableId, ordinal: u64) -> Option<Arc<Block>> {
        match self.kept.as_ref()?.get(&(table, ordinal))? {
            Cached::Block(block) => Some(block),
            Cached::Index(_) => None,
        }
    }

    /// The block, if it is here; that somebody looked does not count as a use.
    pub fn peek(&self, table: TableId, ordinal: u64) -> Option<Arc<Block>> {
        match self.kept.as_ref()?.peek(&(table, ordinal))? {
            Cached::Block(block) => Some(block),
            Cached::Index(_) => None,
        }
    }

    /// Keeps a block, at the cost of less useful ones.
    pub fn insert(&self, table: TableId, ordinal: u64, block: &Arc<Block>) {
        if let Some(kept) = &self.kept {
            kept.insert((table, ordinal), Cached::Block(block.clone()));
        }
    }

    /// A table's index, if it is here.
    pub fn index(&self, table: TableId) -> Option<Arc<I>> {
        match self.kept.as_ref()?.get(&(table, INDEX))? {
            Cached::Index(index) => Some(index),
            Cached::Block(_) => None,
        }
    }

    /// Keeps a table's index, at the cost of what is less useful.
    pub fn insert_index(&self, table: TableId, index: &Arc<I>) {
        if let Some(kept) = &self.kept {
            kept.insert((table, INDEX), Cached::Index(index.clone()));
        }
    }

    /// Forgets a table's index: nobody will ask for it any more.
    pub fn remove_index(&self, table: TableId) {
        if let Some(kept) = &self.kept {
            kept.remove(&(table, INDEX));
        }
    }

    /// What is here takes.
    pub fn used_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, Cache::weight)
    }

    /// The most it may take.
    pub fn capacity_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, Cache::capacity)
    }

    /// Whether half of it stays empty where `bytes` are taken from it; a cache that is none never is.
    pub fn is_half_empty(&self, bytes: u64) -> bool {
        let left = self.capacity_bytes().saturating_sub(bytes);
        left > 0 && self.used_bytes() <= left / 2
    }

    /// Lowers the most it may take by `bytes`, which something else takes from now on, but not below
    /// [`LEAST_BYTES`]. Two at once may count as one: whoever sets it next knows better.
    pub fn give_up(&self, bytes: u64) {
        let capacity_bytes = self.capacity_bytes();
        if bytes > 0 && capacity_bytes > LEAST_BYTES {
            self.set_capacity_bytes(capacity_bytes.saturating_sub(bytes).max(LEAST_BYTES));
        }
    }

    /// Sets the most it may take; a cache made with 0 stays empty.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        if let Some(kept) = &self.kept
            && kept.capacity() != capacity_bytes
        {
            kept.set_capacity(capacity_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weight for () {
        fn size_bytes(&self) -> usize {
            0
        }
    }

    /// A buffer of 64 KiB took in a block of 4, again and again, and what was cached weighed sixteen times as much.
    #[test]
    fn a_buffer_is_no_more_than_twice_what_it_is_for() {
        let cache = BlockCache::<()>::new(1 << 20);
        (0..10).for_each(|_| cache.give_back(vec![0; 64 << 10]));
        for _ in 0..10 {
            let buffer = cache.buffer(4096);
            assert!((4096..=8192).contains(&buffer.capacity()), "{}", buffer.capacity());
            cache.give_back(buffer);
        }
        let first = cache.buffer(4096);
        let place = first.as_ptr();
        cache.give_back(first);
        let second = cache.buffer(3000);
        assert_eq!(second.as_ptr(), place, "one that suits is taken");
    }
}
