//! Where blocks end: the partitioner by size, and what every partitioner is given.

use crate::format::block::{block_overhead_bytes, entry_bytes};
use crate::format::bytes::shortest_separator;
use crate::format::entry::Kind;

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

/// A block holds about so many entries without a value of their own, at most.
const MOST_WITHOUT_VALUES: u32 = 20;

/// What an entry that takes `size` bytes counts for where blocks are cut. One without a value of its own (a
/// pointer, a tombstone) counts for more: a block full of those, a hundred and more, is slow to search, since each
/// step waits for other lines of it, and nothing in it but the entry sought is read (decision 43). For tables that pay
/// little for a block: not compressed, with `exact` for an index.
pub fn entry_weight(limits: Limits, kind: Kind, size: u32) -> u32 {
    match kind {
        Kind::Pointer | Kind::Tombstone => {
            size.max(limits.block_bytes as u32 / MOST_WITHOUT_VALUES)
        }
        _ => size,
    }
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

    /// Of small entries a hundred and more fit a block; of those without a value it has so many as are quickly searched,
    /// beside values as many fewer as there are values, and where blocks are small already no fewer than fit.
    #[test]
    fn entries_without_a_value_share_a_block_with_few_others() {
        let keys: Vec<_> = (0..200u32).map(u32::to_be_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        let longest = |block_bytes, kinds: &dyn Fn(usize) -> (Kind, u32)| {
            let limits = Limits { block_bytes };
            let weight = |at| entry_weight(limits, kinds(at).0, kinds(at).1);
            let weights: Vec<_> = (0..keys.len()).map(weight).collect();
            let ends: Vec<_> =
                by_size(limits, &keys, &weights, true).iter().map(|c| c.end).collect();
            let starts = std::iter::once(0).chain(ends.iter().copied());
            starts.zip(&ends).map(|(start, end)| end - start).max().unwrap_or(0)
        };
        for kind in [Kind::Pointer, Kind::Tombstone] {
            assert_eq!(longest(4096, &|_| (kind, 22)), 19);
            assert_eq!(longest(1 << 20, &|_| (kind, 22)), 19);
            assert_eq!(longest(512, &|_| (kind, 40)), 11, "as many as fit");
            assert_eq!(longest(4096, &|_| (kind, 3000)), 1);
            // One value of half a block leaves room for half as many.
            assert_eq!(
                longest(4096, &|at| if at % 10 == 0 { (Kind::Value, 2000) } else { (kind, 22) }),
                10
            );
        }
        assert_eq!(longest(4096, &|_| (Kind::Value, 22)), 184);
    }

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
