//! Decoded data blocks in memory, the most useful of them, within a stated number of bytes; and
//! among them the indexes of tables that do not keep theirs by themselves.
//!
//! A cache never knows a file: blocks are named by table and ordinal, an index by its table. What
//! an index is it does not know either, only what it weighs. Parts of the cache have a lock each;
//! what is larger than a part is not kept.
//!
//! Blocks stand in buffers of a [pool](crate::memory), whose slabs, and not what is in them, count, beside bookkeeping and
//! indexes: where they would be too many the cache lets go of what stands in one of them. So does whoever takes buffers to read
//! for himself, a merge too: for as long as he has them the cache has less. The pool has a sixteenth more than blocks may
//! weigh, for pieces that are free.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder};

use crate::format::block::Block;
use crate::format::entry::TableId;
use crate::memory::lines::Tally;
use crate::memory::{Buffer, Pool, Room};

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
    Index(Arc<I>, Arc<Charge>),
}

impl<I> Clone for Cached<I> {
    fn clone(&self) -> Cached<I> {
        match self {
            Cached::Block(block) => Cached::Block(block.clone()),
            Cached::Index(index, charge) => Cached::Index(index.clone(), charge.clone()),
        }
    }
}

/// How many indexes there are, and what they take.
#[derive(Default)]
struct Indexes {
    count: AtomicU64,
    bytes: AtomicU64,
}

/// An index that is counted for as long as it is here.
struct Charge {
    bytes: u64,
    of: Arc<Indexes>,
}

impl Charge {
    fn new(bytes: u64, of: &Arc<Indexes>) -> Charge {
        of.count.fetch_add(1, Relaxed);
        of.bytes.fetch_add(bytes, Relaxed);
        Charge { bytes, of: of.clone() }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.count.fetch_sub(1, Relaxed);
        self.of.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[derive(Clone)]
struct Bytes;

impl<I: Weight> quick_cache::Weighter<Name, Cached<I>> for Bytes {
    fn weight(&self, _: &Name, cached: &Cached<I>) -> u64 {
        let bytes = match cached {
            Cached::Block(block) => block.size_bytes() as u64,
            Cached::Index(_, charge) => charge.bytes,
        };
        bytes + ENTRY_BYTES
    }
}

/// Bookkeeping of an entry, bytes, reckoned: a place of 64, half as many again for what is remembered of those that are gone, all
/// in tables that double as they grow; what the pool has of its piece (56), and the allocator of the block's own (16).
pub(crate) const ENTRY_BYTES: u64 = 256;
/// How large a part is that has a lock of its own: the fence pointers of a table may take a MiB.
const PART_BYTES: u64 = 4 << 20;
/// What a cache that has more does not give up.
const LEAST_BYTES: u64 = 64 << 10;
/// More parts than this there are not, however large the cache is.
const MOST_PARTS: u64 = 64;
/// What entries may weigh leaves such a share to free pieces.
const SHARE_OF_FREE: u64 = 16;
/// After so many blocks of a thread it is looked how much bookkeeping leaves to slabs: parts are locked one by one for it.
const INSERTS_A_FIT: u64 = 64;
/// So many slabs at most are emptied for one buffer.
const MOST_EMPTIED: usize = 16;

/// The block cache, shared by all keyspaces of a database; `I` is an index.
pub struct BlockCache<I> {
    kept: Option<Cache<Name, Cached<I>, Bytes>>,
    pool: Pool,
    capacity_bytes: AtomicU64,
    /// For whoever bounds slabs, or says by what.
    fitting: Mutex<()>,
    indexes: Arc<Indexes>,
    /// How many blocks were kept so far.
    inserted: Tally,
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
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(items).weight_capacity(may_weigh(capacity_bytes));
        options.shards((capacity_bytes / PART_BYTES).clamp(1, MOST_PARTS) as usize);
        let options = options.build().ok().filter(|_| capacity_bytes > 0);
        let kept = options.map(|options| {
            let hash = DefaultHashBuilder::default();
            Cache::with_options(options, Bytes, hash, DefaultLifecycle::default())
        });
        BlockCache {
            kept,
            pool: Pool::new(capacity_bytes),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            fitting: Mutex::default(),
            indexes: Arc::default(),
            inserted: Tally::default(),
        }
    }

    /// A buffer of `length` bytes, its content any.
    pub fn buffer(&self, length: usize) -> Buffer {
        if self.pool.is_over() {
            // What readers held was more than there may be, and is less by now.
            self.empty_a_slab();
        }
        self.pool.take_within(length).unwrap_or_else(|| self.buffer_beyond(length))
    }

    /// A buffer where the slabs are full: of what is let go of, or beyond the bound where nothing can be.
    #[cold]
    fn buffer_beyond(&self, length: usize) -> Buffer {
        self.fit_pool();
        for _ in 0..MOST_EMPTIED {
            if let Some(buffer) = self.pool.take_within(length) {
                return buffer;
            }
            if !self.empty_a_slab() {
                break;
            }
        }
        self.pool.take(length)
    }

    /// Empties a slab, or as much of it as nobody looks at; whether there is one.
    fn empty_a_slab(&self) -> bool {
        match self.pool.reclaim() {
            Room::Made => {}
            Room::Asks(names) => {
                let kept = self.kept.iter();
                kept.for_each(|kept| names.iter().for_each(|name| _ = kept.remove(name)));
            }
            Room::None => return false,
        }
        true
    }

    /// Bounds slabs to what indexes and bookkeeping leave.
    fn fit_pool(&self) {
        // Or the bound of a capacity that was would come after that of the one that is.
        let _fitting = self.fitting.lock().unwrap_or_else(PoisonError::into_inner);
        self.pool.set_limit_bytes(self.capacity_bytes().saturating_sub(self.beside_slabs_bytes()));
    }

    /// The same, and gives back what is beyond.
    fn shrink_pool(&self) {
        self.fit_pool();
        while self.pool.is_over() && self.empty_a_slab() {}
    }

    fn beside_slabs_bytes(&self) -> u64 {
        let entries = self.kept.as_ref().map_or(0, Cache::len) as u64;
        let blocks = entries.saturating_sub(self.indexes.count.load(Relaxed));
        let of_indexes = self.indexes.bytes.load(Relaxed);
        of_indexes + entries * ENTRY_BYTES + blocks * size_of::<Block>() as u64
    }

    /// Where blocks get their memory from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The block, if it is here.
    pub fn get(&self, table: TableId, ordinal: u64) -> Option<Arc<Block>> {
        match self.kept.as_ref()?.get(&(table, ordinal))? {
            Cached::Block(block) => Some(block),
            Cached::Index(..) => None,
        }
    }

    /// The block, if it is here; that somebody looked does not count as a use.
    pub fn peek(&self, table: TableId, ordinal: u64) -> Option<Arc<Block>> {
        match self.kept.as_ref()?.peek(&(table, ordinal))? {
            Cached::Block(block) => Some(block),
            Cached::Index(..) => None,
        }
    }

    /// Keeps a block, at the cost of less useful ones.
    pub fn insert(&self, table: TableId, ordinal: u64, block: &Arc<Block>) {
        if let Some(kept) = &self.kept {
            if self.inserted.passes(1, INSERTS_A_FIT) > 0 {
                self.fit_pool();
            }
            kept.insert((table, ordinal), Cached::Block(block.clone()));
            // Not before: it would be asked for in vain by whoever comes between, and never again.
            block.label((table, ordinal));
        }
    }

    /// A table's index, if it is here.
    pub fn index(&self, table: TableId) -> Option<Arc<I>> {
        match self.kept.as_ref()?.get(&(table, INDEX))? {
            Cached::Index(index, _) => Some(index),
            Cached::Block(_) => None,
        }
    }

    /// Keeps a table's index, at the cost of what is less useful.
    pub fn insert_index(&self, table: TableId, index: &Arc<I>) {
        if let Some(kept) = &self.kept {
            let charge = Arc::new(Charge::new(index.size_bytes() as u64, &self.indexes));
            kept.insert((table, INDEX), Cached::Index(index.clone(), charge));
            // It took the place of blocks, of which pieces are left.
            self.shrink_pool();
        }
    }

    /// Forgets a table's index: nobody will ask for it any more.
    pub fn remove_index(&self, table: TableId) {
        if let Some(kept) = &self.kept {
            kept.remove(&(table, INDEX));
        }
    }

    /// What is here takes, with what of its slabs is free, or lent to readers; empty slabs are not counted.
    pub fn used_bytes(&self) -> u64 {
        self.pool.used_bytes() + self.beside_slabs_bytes()
    }

    /// The most it may take.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Relaxed)
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
        let Some(kept) = &self.kept else { return };
        let is_another = {
            let _fitting = self.fitting.lock().unwrap_or_else(PoisonError::into_inner);
            let is_another = self.capacity_bytes.swap(capacity_bytes, Relaxed) != capacity_bytes;
            if is_another {
                kept.set_capacity(may_weigh(capacity_bytes));
            }
            is_another
        };
        // Where readers held more than there may be nobody else looks, if blocks are mapped.
        if is_another || self.pool.is_over() {
            self.shrink_pool();
        }
    }
}

impl<I> Drop for BlockCache<I> {
    /// A slice that a user keeps has its slab, and no others.
    fn drop(&mut self) {
        self.pool.let_go();
    }
}

/// What entries may weigh in a cache of so many bytes.
fn may_weigh(capacity_bytes: u64) -> u64 {
    capacity_bytes - capacity_bytes / SHARE_OF_FREE
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::format::block::{BlockBuilder, BlockPlace, NewEntry, Stored};
    use crate::format::checksum::mix;
    use crate::format::compression::Codecs;
    use crate::format::entry::Kind;

    impl Weight for () {
        fn size_bytes(&self) -> usize {
            0
        }
    }

    struct Of(usize);

    impl Weight for Of {
        fn size_bytes(&self) -> usize {
            self.0
        }
    }

    const MIB: u64 = 1 << 20;

    /// A block with a value of so many bytes, as table 1 has it.
    fn block<I: Weight>(cache: &BlockCache<I>, ordinal: u64, value_bytes: usize) -> Arc<Block> {
        let value = vec![ordinal as u8; value_bytes];
        let entry = NewEntry { key: b"k", kind: Kind::Value, sequence: 1, value: &value };
        let (mut bytes, place) =
            (Vec::new(), BlockPlace { tag: 1, offset_bytes: 0, ordinal: ordinal as u32 });
        let entries = std::iter::once(entry);
        BlockBuilder::default().write(&mut bytes, place, (b"a", b"z"), entries, None);
        let stored = Stored::check(&bytes, 1, 0).unwrap();
        let memory = cache.buffer(stored.raw_bytes());
        Arc::new(stored.unpack(&Codecs::default(), memory).unwrap())
    }

    /// Reads blocks through the cache; how many were there.
    fn read<I: Weight>(
        cache: &BlockCache<I>,
        ordinals: impl Iterator<Item = u64>,
        value_bytes: usize,
    ) -> usize {
        let mut hits = 0;
        for ordinal in ordinals {
            let block = match cache.get(1, ordinal) {
                Some(block) => {
                    hits += 1;
                    block
                }
                None => {
                    let block = block(cache, ordinal, value_bytes);
                    cache.insert(1, ordinal, &block);
                    block
                }
            };
            let entries = block.entries();
            let entry = entries.entry(0).unwrap();
            assert!(
                entry.value.len() == value_bytes && entry.value.iter().all(|b| *b == ordinal as u8)
            );
        }
        hits
    }

    /// What is in it was counted, and not what it took: blocks of other sizes came beside the holes of those that were there.
    #[test]
    fn all_that_it_takes_is_bounded_whatever_sizes_come() {
        let cache = BlockCache::<()>::new(8 * MIB);
        for (round, value_bytes) in [4000, 600, 12_000, 1500, 30_000, 4000].into_iter().enumerate()
        {
            let first = round as u64 * 100_000;
            let count = 6 * MIB / (value_bytes as u64 + 250);
            let some = |round: u64| (0..count).map(move |i| first + mix(i ^ round << 32) % count);
            (0..8).for_each(|round| _ = read(&cache, some(round), value_bytes));
            let hits = read(&cache, some(8), value_bytes);
            assert!(hits as u64 > count * 7 / 10, "{value_bytes}: {hits} of {count}");
            assert!(cache.used_bytes() <= 8 * MIB + MIB / 4, "{} bytes", cache.used_bytes());
        }
    }

    #[test]
    fn what_it_gives_up_goes_back() {
        let cache = BlockCache::<()>::new(8 * MIB);
        read(&cache, 0..4000, 4000);
        assert!(cache.used_bytes() > 7 * MIB && !cache.is_half_empty(0));
        cache.set_capacity_bytes(2 * MIB);
        assert!(cache.used_bytes() <= 2 * MIB, "{} bytes", cache.used_bytes());
        assert!(read(&cache, 0..4000, 4000) > 200);
        cache.give_up(MIB);
        assert!(cache.capacity_bytes() == MIB && cache.used_bytes() <= MIB);
    }

    #[test]
    fn blocks_that_readers_hold_count_and_keep_others_out() {
        let cache = BlockCache::<()>::new(4 * MIB);
        let held: Vec<_> = (0..2000).map(|ordinal| block(&cache, ordinal, 4000)).collect();
        assert!(cache.used_bytes() > 7 * MIB, "{} bytes", cache.used_bytes());
        // There is no room for what others read, and they read all the same.
        read(&cache, 5000..6000, 4000);
        assert!(cache.used_bytes() < 9 * MIB, "{} bytes", cache.used_bytes());
        // The last block of each slab stays: none of these is empty, and in no slab is too little free for what comes.
        let some: Vec<_> = held.iter().step_by(3).cloned().collect();
        some.iter().zip(0..).for_each(|(block, n)| cache.insert(1, n * 3, block));
        drop((held, some));
        let before = cache.used_bytes();
        // As is said again and again, whatever it is.
        cache.set_capacity_bytes(4 * MIB);
        assert!(cache.used_bytes() <= 4 * MIB, "{} bytes of {before}", cache.used_bytes());
        read(&cache, 6000..6200, 4000);
        assert!(cache.used_bytes() <= 4 * MIB, "{} bytes of {before}", cache.used_bytes());
        read(&cache, 7000..9000, 4000);
        assert!(cache.used_bytes() <= 4 * MIB, "{} bytes", cache.used_bytes());
    }

    #[test]
    fn a_block_that_is_kept_for_longer_than_the_cache_keeps_its_slab_alone() {
        let cache = BlockCache::<()>::new(8 * MIB);
        read(&cache, 0..4000, 4000);
        let kept = (0..4000).rev().find_map(|ordinal| cache.get(1, ordinal)).unwrap();
        let payload = cache.pool().take_to_last(100);
        let pool = cache.pool().clone();
        assert!(pool.held_bytes() > 6 * MIB);
        drop(cache);
        assert!(pool.held_bytes() <= 192 << 10, "{} bytes", pool.held_bytes());
        drop((kept, payload));
        assert_eq!(pool.held_bytes(), 0);
    }

    #[test]
    fn indexes_take_their_part_for_as_long_as_they_are_here() {
        let cache = BlockCache::new(8 * MIB);
        let before = cache.used_bytes();
        for table in 0..4 {
            cache.insert_index(table, &Arc::new(Of(MIB as usize / 2)));
        }
        assert!(cache.used_bytes() - before >= 2 * MIB);
        let index = cache.index(2).unwrap();
        (0..4).for_each(|table| cache.remove_index(table));
        assert!(index.0 > 0 && cache.used_bytes() == before && cache.index(2).is_none());
    }

    #[test]
    fn none_keeps_nothing() {
        let cache = BlockCache::<()>::new(0);
        assert_eq!(read(&cache, 0..100, 4000) + read(&cache, 0..100, 4000), 0);
        assert!(cache.used_bytes() <= 512 << 10 && cache.capacity_bytes() == 0);
        cache.set_capacity_bytes(MIB);
        assert_eq!(cache.capacity_bytes(), 0);
    }
}
