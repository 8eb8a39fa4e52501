//! Which keys a memtable surely does not hold: a Bloom filter that grows, asked before the list is searched.
//!
//! Searching the list follows some 20 pointers, and most keys that are read are not in it. Here a key is two
//! bits of one word, of 16 bits for each version that a part takes. Parts are made as versions come, each
//! for eight times as many as the one before, so that an idle keyspace has none; all are asked.
//!
//! **A key that a reader may see is never refused.** A writer adds it before its commit is visible, and the
//! reader has seen the number by which it is: so it sees the count, the part and the bits as well.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// How many versions the first part takes.
const FIRST: usize = 512;
/// Each part takes so many times what the one before does, as a power of two.
const GROWTH: usize = 3;
/// Enough for all that memory holds.
const PARTS: usize = 8;
const BITS_PER_VERSION: usize = 16;

/// See the module page.
#[derive(Default)]
pub struct Presence {
    /// How many were added.
    count: AtomicUsize,
    parts: [OnceLock<Box<[AtomicU64]>>; PARTS],
}

/// The part of version `number`, from 0.
fn part_of(number: usize) -> usize {
    match (number / FIRST).checked_ilog2() {
        None => 0,
        Some(power) => (power as usize / GROWTH + 1).min(PARTS - 1),
    }
}

/// The word of a hash, and its bits there.
fn place(words: &[AtomicU64], hash: u64) -> Option<(&AtomicU64, u64)> {
    let bits = 1 << (hash & 63) | 1 << (hash >> 6 & 63);
    // The number of words is a power of two.
    Some((words.get((hash >> 12) as usize & words.len().wrapping_sub(1))?, bits))
}

impl Presence {
    /// Adds a key.
    pub fn add(&self, hash: u64) {
        let part = part_of(self.count.fetch_add(1, Relaxed));
        let words = (FIRST << (GROWTH * part)) * BITS_PER_VERSION / 64;
        let words =
            self.parts[part].get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect());
        if let Some((word, bits)) = place(words, hash)
            && word.load(Relaxed) & bits != bits
        {
            word.fetch_or(bits, Relaxed);
        }
    }

    /// What it takes, bytes.
    pub fn bytes(&self) -> usize {
        self.parts.iter().filter_map(OnceLock::get).map(|words| words.len() * 8).sum()
    }

    /// False: no key of this hash was added.
    pub fn may_hold(&self, hash: u64) -> bool {
        let Some(last) = self.count.load(Relaxed).checked_sub(1) else { return false };
        self.parts.iter().take(part_of(last) + 1).any(|part| {
            let place = part.get().and_then(|words| place(words, hash));
            place.is_some_and(|(word, bits)| word.load(Relaxed) & bits == bits)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum::key_hash;

    fn hash(number: u64) -> u64 {
        key_hash(&number.to_be_bytes())
    }

    #[test]
    fn what_was_added_is_never_refused_and_others_nearly_always() {
        let presence = Presence::default();
        assert!(!presence.may_hold(hash(0)));
        let mut passed = 0;
        for number in 0..100_000u64 {
            presence.add(hash(number));
            assert!(presence.may_hold(hash(number)) && presence.may_hold(hash(number / 2)));
            passed += u64::from(presence.may_hold(hash(number + (1 << 40))));
        }
        assert!((0..100_000).all(|number| presence.may_hold(hash(number))));
        assert_eq!(presence.bytes(), (512 + 4096 + 32_768 + 262_144) * 2);
        assert!(passed < 6_000, "{passed} of 100,000 keys that are not there");
    }

    #[test]
    fn parts_grow_eightfold() {
        let part = |number| part_of(number);
        assert_eq!([0, 511, 512, 4095, 4096, 32_767, 32_768].map(part), [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(part_of(usize::MAX), PARTS - 1);
    }

    #[test]
    fn writers_at_once_lose_none() {
        let presence = Presence::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let presence = &presence;
                scope.spawn(move || (0..5_000).for_each(|i| presence.add(hash(i * 4 + thread))));
            }
        });
        assert!((0..20_000).all(|number| presence.may_hold(hash(number))));
    }
}
