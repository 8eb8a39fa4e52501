//! Tables clipped to a key range, and what they say is gone from older data.

use std::sync::Arc;

use super::{RunCursor, Walk};
use crate::cursor::{Cover, Source};
use crate::format::range::{KeyRange, Ranges, Stretch, is_before, least_end};
use crate::sstable::reader::Table;

/// A table of a run, of which only the keys in `lower <= key < upper` count.
#[derive(Debug, Clone)]
pub struct Clipped {
    /// The table.
    pub table: Arc<Table>,
    /// The first key that counts.
    pub lower: Vec<u8>,
    /// The first key that does not count any more; `None`: all do.
    pub upper: Option<Vec<u8>>,
}

impl Clipped {
    /// Whether any entry of the table may count. One that a sweep or an ingest cut off wholly must not
    /// stand in a run: the run is searched by its tables' smallest and largest keys.
    pub fn is_inhabited(&self) -> bool {
        let properties = self.table.properties();
        let below = self.upper.as_ref().is_none_or(|upper| properties.smallest < *upper);
        let above = self.lower.is_empty() || properties.largest >= self.lower;
        properties.entries > 0 && below && above
    }

    /// The ranges of the table that count.
    pub fn ranges(&self) -> impl Iterator<Item = KeyRange> {
        self.table.ranges().within(&self.lower, self.upper.as_deref())
    }

    /// How many bytes the blocks take that may hold its keys of `from <= key < to`, but for those all of
    /// whose keys lie in one of the `removed` ranges. No block is read.
    pub fn alive_bytes(&self, from: &[u8], to: Option<&[u8]>, removed: &Ranges) -> u64 {
        let from = from.max(self.lower.as_slice());
        let to = least_end(to, self.upper.as_deref());
        if !is_before(from, to) {
            return 0;
        }
        let bytes = self.table.bytes_between(from, to);
        bytes.saturating_sub(self.table.covered_between(from, to, removed))
    }

    /// What `ranges` cover of it, with separated values, bytes.
    pub fn covered_bytes(&self, ranges: &Ranges) -> u64 {
        let blocks = self.table.covered_between(&self.lower, self.upper.as_deref(), ranges);
        self.table.weight(blocks, |_| true)
    }

    fn part(&self) -> Option<Part> {
        let ranges = self.table.ranges();
        let count = ranges.overlapping(&self.lower, self.upper.as_deref());
        let (first, last) = (count.first()?, count.last()?);
        Some(Part {
            ranges: ranges.clone(),
            start: first.start.clone().max(self.lower.clone()),
            end: least_end(last.end(), self.upper.as_deref()).map(<[u8]>::to_vec),
        })
    }

    pub(super) fn holds(&self, key: &[u8]) -> bool {
        key >= self.lower.as_slice()
            && self.upper.as_ref().is_none_or(|upper| key < upper.as_slice())
    }
}

/// The ranges of one table of a run, so far as they count.
struct Part {
    ranges: Arc<Ranges>,
    /// Where the first that counts begins, and the last ends.
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

/// What the tables of a run say is gone from older data.
struct RunCover(Vec<Part>);

impl Cover for RunCover {
    fn stretch(&mut self, key: &[u8]) -> Stretch {
        let at = self.0.partition_point(|part| part.end.as_deref().is_some_and(|end| end <= key));
        match self.0.get(at) {
            Some(part) if part.start.as_slice() <= key => {
                let Stretch { mut keys, is_covered } = part.ranges.stretch(key);
                keys.start = keys.start.max(part.start.clone());
                if part.end.as_ref().is_some_and(|end| is_before(end, keys.end())) {
                    keys.end.clone_from(&part.end);
                }
                Stretch { keys, is_covered }
            }
            next => {
                let before = at.checked_sub(1).and_then(|before| self.0.get(before));
                let start = before.and_then(|part| part.end.clone()).unwrap_or_default();
                let keys = KeyRange { start, end: next.map(|part| part.start.clone()) };
                Stretch { keys, is_covered: false }
            }
        }
    }
}

/// The entries of tables that are in key order and do not overlap once clipped, and what they say is
/// gone from older data.
pub fn source(tables: Vec<Clipped>, walk: Walk) -> Source {
    let cover = cover(tables.iter());
    Source::new(Box::new(RunCursor::new(tables, walk)), cover)
}

/// What such tables say is gone from older data, if anything.
pub fn cover<'a>(tables: impl Iterator<Item = &'a Clipped>) -> Option<Box<dyn Cover>> {
    let parts: Vec<Part> = tables.filter_map(Clipped::part).collect();
    if parts.is_empty() { None } else { Some(Box::new(RunCover(parts))) }
}
