//! What lies where in a table, about, by its index: no block is read, and of a table that lies in
//! or out of a range as a whole not even the index.

use std::ops::Range;

use super::{Caching, Loan, Table};
use crate::format::range::{KeyRange, Ranges};
use crate::format::table::{Properties, SegmentUse};
use crate::sstable::scale;

fn length(bytes: &Range<u64>) -> u64 {
    bytes.end.saturating_sub(bytes.start)
}

impl Table {
    /// Where the blocks stand that may hold keys of `from <= key < to`; if the index cannot be
    /// read, all of them.
    fn touched(&self, from: &[u8], to: Option<&[u8]>) -> Range<u64> {
        let Properties { smallest, largest, data_bytes, .. } = self.properties();
        if self.block_count() == 0
            || from > largest.as_slice()
            || to.is_some_and(|to| to <= smallest.as_slice())
        {
            return 0..0;
        }
        // Keys outside the table need no index.
        let from = Some(from).filter(|from| *from > smallest.as_slice());
        let to = to.filter(|to| *to <= largest.as_slice());
        if from.is_none() && to.is_none() {
            return 0..*data_bytes;
        }
        let Ok(loan) = self.borrow(Caching::Fill) else { return 0..*data_bytes };
        let (indexed, index) = (self.with(&loan), self.with(&loan).index);
        let start = |from| indexed.extent(index.locate(from).0).map_or(0, |(start, _)| start);
        let end = |to| indexed.extent(index.locate(to).1).map_or(0, |(_, end)| end);
        from.map_or(0, start)..to.map_or(*data_bytes, end)
    }

    /// Where the blocks stand all of whose keys lie in `range`; if the index cannot be read, none.
    fn inside(&self, range: &KeyRange, loan: &mut Option<Loan>) -> Range<u64> {
        let Properties { smallest, largest, data_bytes, .. } = self.properties();
        let (start, end) = (range.start.as_slice(), range.end());
        if self.block_count() == 0
            || start > largest.as_slice()
            || end.is_some_and(|end| end <= smallest.as_slice())
        {
            return 0..0;
        }
        let start = Some(start).filter(|start| *start > smallest.as_slice());
        let end = end.filter(|end| *end <= largest.as_slice());
        if start.is_none() && end.is_none() {
            return 0..*data_bytes;
        }
        if loan.is_none() {
            *loan = self.borrow(Caching::Fill).ok();
        }
        let Some(loan) = loan else { return 0..0 };
        let (indexed, index) = (self.with(loan), self.with(loan).index);
        let behind = |key| indexed.extent(index.locate(key).1).map_or(u64::MAX, |(_, end)| end);
        let before = |key| indexed.extent(index.locate(key).0).map_or(0, |(start, _)| start);
        start.map_or(0, behind)..end.map_or(*data_bytes, before)
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
        let mut loan = None;
        let covered = ranges.overlapping(from, to).iter().map(|range| {
            let inside = self.inside(range, &mut loan);
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
