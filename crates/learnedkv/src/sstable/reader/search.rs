//! From the index to the block that holds a key's place: where it is lent, in the cache, or by one
//! request; and where the index lies, by the walk over the blocks.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Beyond, Blocks, Caching, Indexed, Numbered, Reads, Sought, Span};
use crate::error::{Error, Result};
use crate::format::block::Block;
use crate::slice::Lookup;
use crate::sstable::index::{Index, MAX_READ_BYTES};

impl Indexed<'_> {
    /// Looks a key up that the table does not exclude.
    #[inline]
    pub(super) fn get(self, sought: &Sought<'_>) -> Result<Lookup> {
        sought.reads.in_table.set(false);
        let named = self.index.locate(sought.key());
        if named.0 == named.1
            && let Some(found) = self.look_where_lent(named.0, sought)
        {
            return found;
        }
        let (_, block) =
            self.find_block_among(sought.key(), named, None, sought.caching, &sought.reads)?;
        self.table.look_in(block, sought)
    }

    /// What the block of that number says of the key, if it is lent and the key's place is in it.
    fn look_where_lent(self, ordinal: u64, sought: &Sought<'_>) -> Option<Result<Lookup>> {
        if sought.caching == Caching::Checked {
            return None;
        }
        let lent = self.lent(ordinal)?;
        let (place, found) = lent.entries.search(sought.key());
        if place != Ordering::Equal {
            return None;
        }
        self.table.context.metrics.mapped_reads.add(1);
        Some(self.table.say(&lent.entries, found, sought, |range| lent.slice(range)))
    }

    /// The block whose separators hold `key`; the first or the last block for keys outside all.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn find_block(self, key: &[u8], caching: Caching) -> Result<(u64, Arc<Block>)> {
        self.find_block_among(key, self.index.locate(key), None, caching, &Reads::default())
    }

    /// As [`Indexed::find_block`]; where the named block has to be read, then by the same request those `beyond` it: that
    /// stand behind it, or before it if not `forward`. They come beside it, in that order, as many as adjoin it.
    ///
    /// # Errors
    /// As [`Table::get`]; none of the further blocks.
    pub fn find_blocks(
        self,
        key: &[u8],
        caching: Caching,
        beyond: Beyond<'_>,
        forward: bool,
    ) -> Result<(Numbered, VecDeque<Numbered>)> {
        let named = self.index.locate(key);
        let alone = |at_hand| {
            let found = self.find_block_among(key, named, at_hand, caching, &Reads::default())?;
            Ok((found, VecDeque::new()))
        };
        if named.0 != named.1 {
            return alone(None);
        }
        if let Some(block) = self.at_hand(named.0, caching) {
            return alone(Some(vec![(named.0, block)]));
        }
        let (first, last) = self.adjoining(named.0, beyond, forward);
        // One of them may be damaged, and never be come to.
        let around = self.table.context.go_around(1);
        let read = self.read_range_once(first, last, around, &Reads::default());
        let Ok(blocks) = read else { return alone(None) };
        self.table.context.metrics.cache_misses.fetch_add(1, Relaxed);
        if caching == Caching::Fill {
            blocks.iter().for_each(|(ordinal, block)| self.table.keep(*ordinal, block, around));
        }
        self.found(blocks, named.0, key, caching, forward).map_or_else(|| alone(None), Ok)
    }

    /// What [`Indexed::find_blocks`] would read of them; `None`: nothing, or otherwise.
    pub fn unread(
        self,
        key: &[u8],
        caching: Caching,
        beyond: Beyond<'_>,
        forward: bool,
    ) -> Option<Span> {
        let (named, end) = self.index.locate(key);
        if named != end || self.is_at_hand(named, caching) {
            return None;
        }
        let (first, last) = self.adjoining(named, beyond, forward);
        Some(Span { named, first, last })
    }

    /// Among `blocks`, which were read for the block `named`, the one that holds `key`'s place, and those beyond it that adjoin
    /// it, in the order of the walk. `None`: it is not among them, or none is sound.
    pub fn found(
        self,
        blocks: Blocks,
        named: u64,
        key: &[u8],
        caching: Caching,
        forward: bool,
    ) -> Option<(Numbered, VecDeque<Numbered>)> {
        let found = self.search(&blocks, (named, named), key, caching, &Reads::default());
        let (ordinal, block) = found.ok().flatten()?;
        let mut ahead: VecDeque<_> = match forward {
            true => blocks.into_iter().filter(|(at, _)| *at > ordinal).collect(),
            false => blocks.into_iter().rev().filter(|(at, _)| *at < ordinal).collect(),
        };
        if ahead.front().is_some_and(|(at, _)| at.abs_diff(ordinal) != 1) {
            ahead.clear();
        }
        Some(((ordinal, block), ahead))
    }

    /// The last block that a walk comes to which ends at `until`, by the index; without, the last there is.
    pub fn last_until(self, until: Option<&[u8]>, forward: bool) -> u64 {
        let last = self.table.block_count().saturating_sub(1);
        match (until.map(|key| self.index.locate(key)), forward) {
            (Some((_, end)), true) => end.min(last),
            (Some((end, _)), false) => end.min(last),
            (None, true) => last,
            (None, false) => 0,
        }
    }

    /// The first and the last of the blocks beyond `at`, and it.
    fn adjoining(self, at: u64, beyond: Beyond<'_>, forward: bool) -> (u64, u64) {
        let end = self.last_until(beyond.until, forward);
        let blocks = if forward { end.saturating_sub(at) } else { at.saturating_sub(end) };
        let mut blocks = blocks.min(beyond.blocks);
        loop {
            let (from, to) = if forward { (at, at + blocks) } else { (at - blocks, at) };
            let bytes = match (self.extent(from), self.extent(to)) {
                (Ok((start, _)), Ok((_, end))) => end.saturating_sub(start),
                _ => u64::MAX,
            };
            if blocks == 0 || bytes <= beyond.most_bytes {
                return (from, to);
            }
            // They are longer than most.
            blocks -= blocks.div_ceil(8);
        }
    }

    /// As [`Table::find_block`], of a key whose index `named` blocks; those `at_hand` were read.
    /// Says in `reads` what it made the disk do.
    pub(super) fn find_block_among(
        self,
        key: &[u8],
        named: (u64, u64),
        at_hand: Option<Blocks>,
        caching: Caching,
        reads: &Reads,
    ) -> Result<(u64, Arc<Block>)> {
        let (first, last) = named;
        let fetched = match at_hand {
            at_hand if self.is_wide(named) => {
                self.table.context.metrics.wide_bounds.fetch_add(1, Relaxed);
                Ok(at_hand.unwrap_or_default())
            }
            Some(blocks) => Ok(blocks),
            None if last > first => self.fetch(first, last, caching, reads),
            None => Ok(Vec::new()),
        };
        let found = fetched.and_then(|fetched| self.search(&fetched, named, key, caching, reads));
        match found {
            Ok(Some(found)) => return Ok(found),
            // A read that failed says nothing about the index.
            Err(e) if !e.is_corruption() => return Err(e),
            _ => {}
        }
        self.table.context.metrics.fallbacks.fetch_add(1, Relaxed);
        match (self.table.walked(), found) {
            (Ok(fence), _) => {
                let (ordinal, _) = fence.locate(key);
                let block = self.read_extent(ordinal, fence.extent(ordinal), caching, reads)?;
                Ok((ordinal, block))
            }
            (Err(_), Err(e)) => Err(e),
            (Err(e), Ok(_)) => Err(e),
        }
    }

    /// Whether the blocks `first..=last` are not to be read at once: they take more than
    /// [`MAX_READ_BYTES`].
    pub(super) fn is_wide(self, (first, last): (u64, u64)) -> bool {
        first < last
            && match (self.extent(first), self.extent(last)) {
                (Ok((start, _)), Ok((_, end))) => end.saturating_sub(start) > MAX_READ_BYTES,
                _ => false,
            }
    }

    /// Among the blocks `first..=last`, some of which were `fetched`, the one that holds `key`'s
    /// place. Others are read one by one, as they are needed.
    fn search(
        self,
        fetched: &[(u64, Arc<Block>)],
        (first, last): (u64, u64),
        key: &[u8],
        caching: Caching,
        reads: &Reads,
    ) -> Result<Option<(u64, Arc<Block>)>> {
        // An absent key's place may be in the block just before or after those named.
        let count = self.table.block_count();
        let (mut low, mut high) = (first.saturating_sub(1), last.saturating_add(2).min(count));
        // The named blocks come first: present keys lie in them.
        let mut middle = first + last.saturating_sub(first) / 2;
        while low < high {
            let at_hand = fetched.iter().find(|(ordinal, _)| *ordinal == middle);
            let block = match at_hand {
                Some((_, block)) => block.clone(),
                None => match self.at_hand(middle, caching) {
                    Some(block) => block,
                    None => {
                        reads.in_table.set(true);
                        self.uncached(middle, caching, reads)?
                    }
                },
            };
            match block.entries().place(key) {
                Ordering::Equal => return Ok(Some((middle, block))),
                // Keys below the first block, and above the last, have no better place.
                Ordering::Less if middle == 0 => return Ok(Some((middle, block))),
                Ordering::Greater if middle + 1 == self.table.block_count() => {
                    return Ok(Some((middle, block)));
                }
                Ordering::Less => high = middle,
                Ordering::Greater => low = middle + 1,
            }
            middle = low + (high - low) / 2;
        }
        Ok(None)
    }

    /// Where a block begins and ends in the file.
    pub(super) fn extent(self, ordinal: u64) -> Result<(u64, u64)> {
        if ordinal >= self.table.block_count() {
            return Err(Error::corruption(format!(
                "expected one of {} blocks, found that the index names number {ordinal}",
                self.table.block_count()
            ))
            .at_path(&self.table.path));
        }
        let place = match self.table.walked_before() {
            Some(fence) => fence.extent(ordinal),
            _ => self.index.extent(ordinal),
        };
        self.inside(ordinal, place)
    }

    /// The same of all blocks, in order.
    pub(super) fn extents(self) -> impl Iterator<Item = Result<(u64, u64)>> {
        let places = match self.table.walked_before() {
            Some(fence) => fence.extents(),
            _ => self.index.extents(),
        };
        let places = (0..self.table.block_count()).zip(places);
        places.map(move |(ordinal, place)| self.inside(ordinal, place))
    }

    /// A block's place, if it lies where blocks do.
    fn inside(self, ordinal: u64, (start, end): (u64, u64)) -> Result<(u64, u64)> {
        let limit = self.table.record.properties.data_bytes;
        if start >= end || end > limit {
            return Err(Error::corruption(format!(
                "block {ordinal}: expected a place within {limit} bytes, found {start}..{end}"
            ))
            .at_path(&self.table.path));
        }
        Ok((start, end))
    }
}
