//! How far walks of a keyspace usually go, learned from those before.
//!
//! A walk's first read is a wait for the device whatever its length, and so is each that follows. Whoever knows how
//! many entries will be wanted reads them by one. Nobody says so beforehand; but walks of one keyspace are alike.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Longer walks count as so long: what is read at first has a bound of its own (`sstable::cursor`), and one walk over all
/// must not stand in the way of short ones for long.
const MOST_ENTRIES: u32 = 4096;
/// A length is held in parts of an entry.
const PARTS: u32 = 16;

/// The length that about three of four walks do not go beyond, entries: by 3/16 more after each that goes beyond it, by
/// 1/16 less after each that does not. Never beyond the longest, never below the shortest of late: walks of one
/// length are known exactly. Walks at once may miss each other's step.
#[derive(Debug)]
pub struct Lengths(AtomicU32);

impl Default for Lengths {
    /// One entry, until walks go further.
    fn default() -> Lengths {
        Lengths(AtomicU32::new(PARTS))
    }
}

impl Lengths {
    /// So many entries are to be expected of a walk, with an eighth, and one at least, for chance where it is more than one.
    pub fn expected(&self) -> usize {
        let entries = self.0.load(Relaxed) / PARTS;
        if entries > 1 { (entries + entries.div_ceil(8)) as usize } else { 1 }
    }

    /// A walk has gone over so many entries.
    pub fn went(&self, entries: usize) {
        let walked = entries.clamp(1, MOST_ENTRIES as usize) as u32 * PARTS;
        let before = self.0.load(Relaxed);
        let after = match walked > before {
            true => walked.min(before + (3 * before).div_ceil(16)),
            false => walked.max(before - before.div_ceil(16)),
        };
        if after != before {
            self.0.store(after, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_of_one_length_are_known_soon_and_exactly() {
        let lengths = Lengths::default();
        assert_eq!(lengths.expected(), 1);
        for (length, expected) in [(50, 57), (3, 4), (1, 1), (10, 12), (100_000, 4608), (2, 3)] {
            (0..150).for_each(|_| lengths.went(length));
            assert_eq!(lengths.expected(), expected, "{length}");
        }
    }

    /// And a few long ones among short ones do not count.
    #[test]
    fn three_of_four_walks_do_not_go_beyond_it() {
        let lengths = Lengths::default();
        let mut seen = Vec::new();
        for round in 0..4000u64 {
            lengths.went(1 + (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 100);
            if round > 200 {
                seen.push(lengths.0.load(Relaxed) / PARTS);
            }
        }
        let mean = seen.iter().sum::<u32>() / seen.len() as u32;
        assert!((65..85).contains(&mean), "{mean}");
        (0..400).for_each(|round| lengths.went(if round % 10 == 0 { 1_000_000 } else { 5 }));
        assert!(lengths.expected() < 12, "{}", lengths.expected());
    }
}
