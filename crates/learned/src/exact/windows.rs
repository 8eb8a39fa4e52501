//! Where a block may end: planning only, on trusted input.

use super::{Cut, Limits, Separator, common_prefix};

/// The entries that the writer has buffered, and where the block that begins at each may end.
///
/// A block `[a, j)` may hold up to `max` bytes, or one entry of any size. `j` equal to the number of
/// entries means that the block takes all of them.
#[derive(Debug)]
pub(super) struct Buffered<'a> {
    pub keys: &'a [&'a [u8]],
    /// `sums[i]`: bytes of the entries before `i`.
    pub sums: &'a [u64],
    pub end_of_table: bool,
    /// The separator below the first entry.
    pub head: &'a [u8],
    /// The most blocks a chunk may have.
    pub blocks: usize,
    pub max: u64,
}

impl<'a> Buffered<'a> {
    /// `sums` becomes a part of it.
    pub fn new(
        keys: &'a [&'a [u8]],
        sizes: &[u32],
        sums: &'a mut Vec<u64>,
        end_of_table: bool,
        head: &'a [u8],
        limits: Limits,
    ) -> Self {
        let mut sum = 0;
        sums.clear();
        sums.push(0);
        sums.extend(sizes.iter().map(|&size| {
            sum += u64::from(size);
            sum
        }));
        let Limits { max_block_bytes: max, blocks_per_chunk: blocks } = limits;
        Self { keys, sums, end_of_table, head, blocks, max }
    }

    /// The greatest end of a block that begins at `start`. Looked for step by step from `guess` on:
    /// entries are mostly as large as those of the block before, and where they are not, a walk over
    /// all blocks makes at most two steps for each entry.
    #[inline]
    pub fn last(&self, start: usize, guess: usize) -> usize {
        let most = self.sums[start].saturating_add(self.max);
        let mut end = guess.clamp(start + 1, self.keys.len());
        while end < self.keys.len() && self.sums[end + 1] <= most {
            end += 1;
        }
        while end > start + 1 && self.sums[end] > most {
            end -= 1;
        }
        end
    }

    /// The first end that leaves no more than a `slack`-th of the block empty, where `last` is the
    /// greatest one.
    #[inline]
    pub fn first(&self, start: usize, last: usize, slack: u64) -> usize {
        let full = self.sums[start].saturating_add(self.max - self.max / slack);
        let mut end = last;
        while end > start + 1 && self.sums[end - 1] >= full {
            end -= 1;
        }
        end
    }

    /// Whether the block that begins at `start` would take all that is buffered.
    pub fn is_open(&self, start: usize) -> bool {
        let bytes = self.sums[self.keys.len()] - self.sums[start];
        bytes <= self.max || start + 1 == self.keys.len()
    }

    /// The first entry whose block would take all that is buffered.
    pub fn open_from(&self) -> usize {
        let least = self.sums[self.keys.len()].saturating_sub(self.max);
        self.sums.partition_point(|&sum| sum < least).min(self.keys.len() - 1)
    }

    /// One past the last entry that a chunk can reach, all blocks as full as they can be.
    pub fn reach(&self) -> usize {
        let (mut end, mut entries) = (0, 0);
        for _ in 0..self.blocks {
            if end == self.keys.len() {
                break;
            }
            let start = end;
            end = self.last(start, start + entries);
            entries = end - start;
        }
        end
    }

    /// Where the chunk's last block ends, if it begins at `start`, and the separator above it.
    pub fn last_cut(&self, start: usize, slack: u64) -> Cut {
        if self.is_open(start) {
            return Cut { end: self.keys.len(), separator: Separator::default() };
        }
        let last = self.last(start, start);
        self.shortest(self.first(start, last, slack), last)
    }

    /// The shortest separator of any gap in `first..=last` (gap `j` lies below entry `j`), and its
    /// gap; of equals the last, for a full block.
    pub fn shortest(&self, first: usize, last: usize) -> Cut {
        let length = |gap: &usize| common_prefix(self.keys[*gap - 1], self.keys[*gap]) + 1;
        let end = (first..=last).rev().min_by_key(length).unwrap_or(last);
        Cut { end, separator: rounded_separator(self.keys[end - 1], self.keys[end]) }
    }
}

/// The shortest string above `low` and not above `high`, its last byte as round as it can be: rounder
/// ends make narrower heads.
pub(super) fn rounded_separator(low: &[u8], high: &[u8]) -> Separator {
    let shared = common_prefix(low, high);
    let top = u64::from(high[shared]);
    // A byte above the byte that `low` has there, if it has one; else any byte but 0 sorts above.
    let bottom = low.get(shared).map_or(0, |&byte| u64::from(byte));
    let last = if top > bottom { roundest(bottom, top) } else { top };
    Separator::of(&high[..shared], &[last as u8])
}

/// The value in `(low, high]` with the most trailing zero bits. `low < high`.
pub(super) fn roundest(low: u64, high: u64) -> u64 {
    let differing = 63 - (low ^ high).leading_zeros();
    high >> differing << differing
}
