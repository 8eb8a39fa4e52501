//! What lies where in a table, about, by its index: no block is read.

use std::ops::Range;

use super::Table;
use crate::format::range::{KeyRange, Ranges};
use crate::format::table::SegmentUse;
use crate::sstable::scale;

fn length(bytes: &Range<u64>) -> u64 {
    bytes.end.saturating_sub(bytes.start)
}

impl Table {
    /// Where the blocks stand that may hold keys of `from <= key < to`.
    fn touched(&self, from: &[u8], to: Option<&[u8]>) -> Range<u64> {
        if self.index.block_count() == 0 || from > self.properties().largest.as_slice() {
            return 0..0;
        }
        let start = self.extent(self.index.locate(from).0).map_or(0, |(start, _)| start);
        let end = match to {
            Some(to) if to <= self.properties().smallest.as_slice() => return 0..0,
            Some(to) => self.extent(self.index.locate(to).1).map_or(0, |(_, end)| end),
            None => self.properties().data_bytes,
        };
        start..end
    }

    /// Where the blocks stand all of whose keys lie in `range`.
    fn inside(&self, range: &KeyRange) -> Range<u64> {
        let (smallest, largest) = (&self.properties().smallest, &self.properties().largest);
        let start = match range.start.as_slice() {
            _ if self.index.block_count() == 0 => return 0..0,
            start if start <= smallest.as_slice() => 0,
            start if start > largest.as_slice() => return 0..0,
            start => self.extent(self.index.locate(start).1).map_or(u64::MAX, |(_, end)| end),
        };
        let end = match range.end() {
            Some(end) if end <= smallest.as_slice() => return 0..0,
            Some(end) if end <= largest.as_slice() => {
                self.extent(self.index.locate(end).0).map_or(0, |(start, _)| start)
            }
            _ => self.properties().data_bytes,
        };
        start..end
    }

    /// How many bytes the blocks take that may hold keys of `from <= key < to`, as they are stored.
    pub fn bytes_between(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        length(&self.touched(from, to))
    }

    /// How many of these bytes are blocks all of whose keys lie in one of `ranges`.
    pub fn covered_between(&self, from: &[u8], to: Option<&[u8]>, ranges: &Ranges) -> u64 {
        if ranges.is_empty() {
            return 0;
        }
        let touched = self.touched(from, to);
        let from = from.max(self.properties().smallest.as_slice());
        let covered = ranges.overlapping(from, to).iter().map(|range| {
            let inside = self.inside(range);
            length(&(inside.start.max(touched.start)..inside.end.min(touched.end)))
        });
        covered.sum()
    }

    /// What `blocks` bytes of its blocks weigh: with them, of the separated values in those segments that
    /// `counts` says, the share that they are of all blocks.
    pub fn weight(&self, blocks: u64, counts: impl Fn(&SegmentUse) -> bool) -> u64 {
        let properties = self.properties();
        let used = properties.segments.iter().filter(|used| counts(used));
        let separated = used.map(|used| used.bytes).sum();
        blocks + scale(separated, blocks, properties.data_bytes.max(1))
    }
}
