//! How large each level should be.
//!
//! The last level holds nearly all; each above it is to be a [`multiplier`]-th of the one below, counted
//! from the last one's size as it is, so that what upper levels hold of old versions stays that small a
//! share whatever the store's size (Dong et al., "Optimizing Space Amplification in RocksDB", CIDR 2017,
//! section 3). Runs are compacted into the **base**: the highest level in use, of at most `level_base_bytes`;
//! the levels above it are empty. A store begins with the last level as its base, and uses one more
//! whenever the base would be too large.
//!
//! A score says how much a level is beyond its size: [`DUE`] is just as large as it should be.
//!
//! [`multiplier`]: crate::options::KeyspaceOptions::level_multiplier

use super::garbage;
use crate::engine::pace::FULL;
use crate::format::manifest::LEVELS;
use crate::options::{KeyspaceOptions, Sizes};
use crate::view::{Extent, Run, Tables};

/// From this score on a level is to be compacted.
pub const DUE: u64 = 1000;
/// So many runs are to be compacted.
const RUNS: u64 = 4;
/// From so many on writers are kept back,
const RUNS_PRESSED: u64 = 2 * RUNS;
/// and so many are the most there should ever be.
const RUNS_FULL: u64 = 6 * RUNS;
/// The same of dead bytes of value segments, by [`garbage::promised_bytes`]: from where they begin to be given back.
const GARBAGE_PRESSED: u64 = DUE;
const GARBAGE_FULL: u64 = 2 * DUE;

/// The sizes of a keyspace's levels. 0 stands for the runs above them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    runs: u64,
    bytes: [u64; LEVELS + 1],
    targets: [u64; LEVELS + 1],
    base: usize,
}

/// Bytes of the files of tables.
pub fn run_bytes(run: &Run) -> u64 {
    run.iter().map(|table| table.file_bytes()).sum()
}

impl Shape {
    /// That of a keyspace's tables.
    pub fn of(tables: &Tables, options: &KeyspaceOptions, sizes: Sizes) -> Shape {
        let mut bytes = [0; LEVELS + 1];
        bytes[0] = tables.fresh().iter().map(run_bytes).sum();
        for (level, run) in (1..).zip(tables.levels()) {
            bytes[level] = run_bytes(run);
        }
        let runs = tables.fresh().len() as u64;
        Shape::from_bytes(runs, bytes, sizes.level_base_bytes, options.multiplier())
    }

    fn from_bytes(runs: u64, bytes: [u64; LEVELS + 1], base_bytes: u64, multiplier: u64) -> Shape {
        // Where much was removed a level above the last may be the largest.
        let mut target = bytes[1..].iter().copied().max().unwrap_or(0);
        let mut targets = [0; LEVELS + 1];
        targets[0] = base_bytes;
        let highest_in_use = (1..LEVELS).find(|level| bytes[*level] > 0).unwrap_or(LEVELS);
        let mut base = LEVELS;
        loop {
            targets[base] = target.max(base_bytes / multiplier).max(1);
            if base == 1 || target <= base_bytes && base <= highest_in_use {
                return Shape { runs, bytes, targets, base };
            }
            target /= multiplier;
            base -= 1;
        }
    }

    /// The level that runs are compacted into: those above it are empty.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Whether there are so many runs that writers are kept back, or nearly.
    pub fn has_many_runs(&self) -> bool {
        self.runs >= RUNS_PRESSED
    }

    /// How large a level is, bytes.
    pub fn bytes(&self, level: usize) -> u64 {
        self.bytes[level]
    }

    /// How large it should be at most, bytes; 0 above the base. The last may be as large as it is.
    pub fn target(&self, level: usize) -> u64 {
        self.targets[level]
    }

    /// How much a level is beyond its size, of which `claimed` bytes are being compacted.
    pub fn score(&self, level: usize, claimed_bytes: u64) -> u64 {
        let share = self.share(level, self.bytes[level].saturating_sub(claimed_bytes));
        match level {
            0 => (self.runs * DUE / RUNS).max(share),
            LEVELS => 0,
            _ => share,
        }
    }

    /// How much of a level's size `bytes` are.
    pub fn share(&self, level: usize, bytes: u64) -> u64 {
        permille(bytes, self.targets[level])
    }
}

/// How hard pressed writers are to be for the runs of a keyspace with these tables; see [`crate::engine::pace`].
pub fn by_runs(tables: &Tables) -> u64 {
    between(tables.fresh().len() as u64, (RUNS_PRESSED, RUNS_FULL))
}

/// The same for so much that is dead in its value segments and may go.
pub fn by_garbage(dead_bytes: u64, tables: &Tables, options: &KeyspaceOptions) -> u64 {
    between(garbage_share(dead_bytes, tables, options), (GARBAGE_PRESSED, GARBAGE_FULL))
}

/// How much so many dead bytes are of those that value segments may have: [`DUE`] is all.
pub fn garbage_share(dead_bytes: u64, tables: &Tables, options: &KeyspaceOptions) -> u64 {
    permille(dead_bytes, garbage::promised_bytes(tables, options))
}

/// 0 at `from`, [`FULL`] at `to`.
fn between(value: u64, (from, to): (u64, u64)) -> u64 {
    let above = u128::from(value.saturating_sub(from)) * u128::from(FULL);
    u64::try_from(above / u128::from(to - from)).unwrap_or(u64::MAX)
}

/// The deepest level where no table meets `extent`, nor does any in the levels above or the runs, and
/// how many of its tables lie before it; `None` if a run does, or a table of level 1, or nobody
/// knows. It lies above `busy`, a level that somebody writes to: his tables would not fit beside what is put there.
pub fn deepest_free(
    tables: &Tables,
    extent: &Extent,
    busy: Option<usize>,
) -> Option<(usize, usize)> {
    // Where ranges are that nobody can read, anything may be.
    if tables.damaged.iter().any(|table| table.has_unknown_ranges()) {
        return None;
    }
    if tables.fresh().iter().flatten().any(|table| Extent::of(table).meets(extent)) {
        return None;
    }
    let occupied = |level: &Run| !extent.of_run(level).is_empty();
    let free = tables.levels().iter().position(occupied).unwrap_or(LEVELS);
    let free = busy.map_or(free, |busy| free.min(busy.saturating_sub(1)));
    let before = |level: usize| tables.levels().get(level - 1).map_or(0, |run| extent.behind(run));
    (free > 0).then(|| (free, before(free)))
}

fn permille(part: u64, whole: u64) -> u64 {
    let share = u128::from(part) * u128::from(DUE) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 1000;

    fn shape(bytes: &[(usize, u64)]) -> Shape {
        let mut all = [0; LEVELS + 1];
        bytes.iter().for_each(|(level, size)| all[*level] = *size);
        Shape::from_bytes(0, all, BASE, 10)
    }

    #[test]
    fn an_empty_store_begins_with_its_last_level() {
        let shape = shape(&[]);
        assert_eq!((shape.base(), shape.target(LEVELS)), (6, 100));
        assert!((1..=LEVELS).all(|level| shape.score(level, 0) == 0));
    }

    #[test]
    fn a_level_more_is_used_when_the_base_would_be_too_large() {
        for (last, base, target) in [
            (1000, 6, 1000),
            (1001, 5, 100),
            (9_999, 5, 999),
            (10_010, 4, 100),
            (1_000_000, 3, 1000),
            (u64::MAX, 1, u64::MAX / 100_000),
        ] {
            let shape = shape(&[(6, last)]);
            assert_eq!((shape.base(), shape.target(base)), (base, target), "{last}");
            let above: Vec<_> = (1..base).map(|level| shape.target(level)).collect();
            assert!(above.iter().all(|target| *target == 0), "{last}: {above:?}");
        }
    }

    #[test]
    fn targets_follow_from_the_last_level() {
        let shape = shape(&[(4, 500), (5, 5000), (6, 40_000)]);
        assert_eq!((shape.base(), shape.target(5), shape.target(4)), (4, 4000, 400));
        assert_eq!((shape.score(5, 0), shape.score(4, 0)), (1250, 1250));
        assert_eq!((shape.score(5, 1000), shape.score(6, 0)), (1000, 0));
    }

    /// What lies in a level that is not needed any more is not passed by what is newer.
    #[test]
    fn the_base_is_never_below_a_level_in_use() {
        let shape = shape(&[(3, 50), (6, 500)]);
        assert_eq!(shape.base(), 3);
        assert!(shape.target(3) > 0);
    }

    /// Nearly all was removed from the last level: the one above is the largest, and sinks.
    #[test]
    fn a_last_level_that_shrank_is_filled_again() {
        let shape = shape(&[(5, 100_000), (6, 10)]);
        assert!(shape.score(5, 0) > DUE, "{shape:?}");
    }
}
