//! Where blocks end: the partitioner by size, and what every partitioner is given.

use crate::format::block::{block_overhead_bytes, entry_bytes};
use crate::format::bytes::shortest_separator;

pub use learned::exact::{Cut, Separator};

/// How large blocks may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most a block may take on disk, its header and separators included, unless a single
    /// entry takes more.
    pub block_bytes: usize,
}

impl Limits {
    /// What the entries of a block may sum to if its separators have up to `separator_length` bytes.
    pub fn entries_bytes(&self, separator_length: usize) -> usize {
        self.block_bytes.saturating_sub(block_overhead_bytes(separator_length)).max(1)
    }
}

/// The most bytes an entry takes in a block.
pub fn entry_size(key: &[u8], value_length: usize, sequence: u64) -> u32 {
    entry_bytes(key.len(), sequence, value_length) as u32
}

/// Cuts blocks as large as they may be; separators are as short as they may be.
///
/// `keys` and `sizes` are the entries not yet in a block. Unless `end_of_table`, a last block that
/// may still grow is not cut.
pub fn by_size(limits: Limits, keys: &[&[u8]], sizes: &[u32], end_of_table: bool) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut bytes = 0;
    for (index, (key, size)) in keys.iter().zip(sizes).enumerate() {
        let start = cuts.last().map_or(0, |cut: &Cut| cut.end);
        let room = limits.entries_bytes(key.len());
        if index > start && bytes + *size as usize > room {
            let separator = shortest_separator(keys[index - 1], key).into();
            cuts.push(Cut { end: index, separator });
            bytes = 0;
        }
        bytes += *size as usize;
    }
    if end_of_table && !keys.is_empty() {
        cuts.push(Cut { end: keys.len(), separator: Separator::default() });
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_large_as_they_may_be_and_giants_stand_alone() {
        let keys: [&[u8]; 5] = [b"aa", b"ab", b"b", b"c", b"d"];
        let sizes = [100, 100, 1000, 100, 100];
        let limits = Limits { block_bytes: 300 };
        let cuts = by_size(limits, &keys, &sizes, true);
        let ends: Vec<_> = cuts.iter().map(|c| (c.end, &*c.separator)).collect();
        assert_eq!(ends, [(2, &b"b"[..]), (3, b"c"), (5, b"")]);
        let open = by_size(limits, &keys, &sizes, false);
        assert_eq!(open.len(), 2, "the last block may still grow");
        assert!(by_size(limits, &[], &[], true).is_empty());
    }
}
