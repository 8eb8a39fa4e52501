//! Which keys none of several runs holds: one filter over all tables of a generation of the LSM
//! part, asked once before any of their own.
//!
//! A generation is what is flushed between two freezes, and merges of that. Flushes and merges add
//! the keys of the tables they write; a table then *belongs* to the generation
//! ([`Table::generation`]), and where neighbouring runs belong to one, a lookup asks it first. It
//! is in memory only: after an open a table belongs to none, until a merge writes it anew, or its keys are
//! read because lookups have paid for that.
//!
//! Invariants:
//! 1. **Every key of a table that belongs to it was added before the table [joined][`Table::join`].** A
//!    table whose keys were not all taken belongs to none. So nobody but the table needs to know what a
//!    generation covers.
//! 2. **It only grows**, so a View of any age may ask it: keys added later make it refuse less,
//!    never more. Work that fails behind its adds leaves nothing but that.
//! 3. **Who sees that a table belongs to it sees the table's bits.** They were set before it joined.
//! 4. It takes memory only while metadata then leaves a quarter of what it may take to others
//!    ([`TableContext::max_metadata_bytes`]). From the first part that has no room on it takes no keys.
//!
//! A key is four bits of one 64-bit word, of eight bits for each key a part has room for: a full
//! part lets one absent key in 25 pass, which is then asked for as without it. A key that passes
//! already sets no bit and takes no room, so keys overwritten in many runs count once. Parts are
//! made as keys come, each twice as large as the one before; a lookup asks all. There are four at
//! most, so that of absent keys no more than 15 % pass, however small the first was: what has no room
//! in them begins another generation ([`Generation::has_room_for`]).
//!
//! [`Table::generation`]: super::reader::Table::generation
//! [`Table::join`]: super::reader::Table::join

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::reader::{Table, TableContext};

const PARTS: usize = 4;
const WORD_KEYS: usize = 64 / BITS_PER_KEY;
const BITS_PER_KEY: usize = 8;
/// The least that the first part has room for, in keys.
const LEAST_KEYS: usize = 512;

/// See the module page.
#[derive(Debug)]
pub struct Generation {
    context: Arc<TableContext>,
    /// How many keys the first part has room for.
    first_keys: usize,
    /// How many keys were added that did not pass before. Held by whoever adds.
    keys: Mutex<usize>,
    /// `None` is a part that there was no room for.
    parts: [OnceLock<Option<Box<[AtomicU64]>>>; PARTS],
}

/// The word of a hash, and its bits there.
#[inline]
fn place(words: &[AtomicU64], hash: u64) -> Option<(&AtomicU64, u64)> {
    let bit = |shift: u32| 1u64 << (hash >> shift & 63);
    let bits = bit(0) | bit(6) | bit(12) | bit(18);
    // By the upper bits of the hash.
    let at = (u128::from(hash) * words.len() as u128) >> 64;
    Some((words.get(at as usize)?, bits))
}

impl Generation {
    /// One without keys, whose first part has room for `first_keys`. It takes no memory yet.
    pub fn new(context: &Arc<TableContext>, first_keys: usize) -> Generation {
        Generation {
            context: context.clone(),
            first_keys: first_keys.max(LEAST_KEYS),
            keys: Mutex::new(0),
            parts: [const { OnceLock::new() }; PARTS],
        }
    }

    /// Whether there is room for one of so many keys.
    pub fn would_fit(context: &TableContext, keys: u64) -> bool {
        let bytes = keys.saturating_mul(BITS_PER_KEY as u64) / 8;
        context.has_room_for_filter(bytes)
    }

    /// The generation that all these tables belong to, if there is one.
    pub fn of_all<'a>(
        mut tables: impl Iterator<Item = &'a Arc<Table>>,
    ) -> Option<&'a Arc<Generation>> {
        let first = tables.next()?.generation()?;
        let is_first = |other: &Arc<Generation>| Arc::ptr_eq(first, other);
        tables.all(|table| table.generation().is_some_and(is_first)).then_some(first)
    }

    /// Whether its parts have room for so many keys more, as far as memory has.
    pub fn has_room_for(&self, keys: usize) -> bool {
        let most = self.first_keys.saturating_mul((1 << PARTS) - 1);
        let held = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        // A part that memory had no room for once never comes.
        let is_whole = !self.parts.iter().any(|part| matches!(part.get(), Some(None)));
        is_whole && held.saturating_add(keys) <= most
    }

    /// The parts there are, up to the first that is not.
    fn parts(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.parts.iter().map_while(|part| part.get()?.as_deref())
    }

    /// Adds keys. False: there is no room for all of them, nor for others.
    pub fn add_all(&self, hashes: &[u64]) -> bool {
        // One at a time: so a word is read and written like any other, and its misses overlap.
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.iter().all(|hash| self.may_hold(*hash) || self.add(*hash, &mut keys))
    }

    /// Adds a key that did not pass.
    fn add(&self, hash: u64, keys: &mut usize) -> bool {
        // The first `p` parts together have room for 2^p - 1 times the first's keys.
        let part = (*keys / self.first_keys + 1).ilog2() as usize;
        // Nobody looks behind a part that is not there.
        let next = (self.parts().count() >= part).then(|| self.parts.get(part)).flatten();
        let words = next.and_then(|part_of| part_of.get_or_init(|| self.make(part)).as_deref());
        let Some((word, bits)) = words.and_then(|words| place(words, hash)) else { return false };
        word.store(word.load(Relaxed) | bits, Relaxed);
        *keys += 1;
        true
    }

    /// The memory of a part, if there is room for it.
    fn make(&self, part: usize) -> Option<Box<[AtomicU64]>> {
        let keys = self.first_keys.checked_shl(part as u32)?;
        let words = keys.div_ceil(WORD_KEYS);
        let (context, bytes) = (&self.context, words as u64 * 8);
        if !context.take_room(bytes, context.most_with_filters()) {
            return None;
        }
        context.cache.give_up(bytes);
        Some((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// False: no key of this hash was added.
    #[inline]
    pub fn may_hold(&self, hash: u64) -> bool {
        self.parts().any(|words| {
            let place = place(words, hash);
            place.is_some_and(|(word, bits)| word.load(Relaxed) & bits == bits)
        })
    }

    /// What it takes in memory, bytes.
    pub fn size_bytes(&self) -> usize {
        self.parts().map(|words| words.len() * 8).sum()
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let bytes = self.size_bytes() as u64;
        self.context.metrics.metadata_bytes.fetch_sub(bytes, Relaxed);
    }
}
