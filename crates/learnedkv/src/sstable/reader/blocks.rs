//! A table's blocks: from the cache, or read from the file, checked and unpacked.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Blocks, Caching, Indexed, Reads, Span, Table};
use crate::disk::ReadRequest;
use crate::error::{Error, Result};
use crate::format::block::{Block, Stored};
use crate::memory::Buffer;

impl Indexed<'_> {
    /// The block of that number, from memory or the disk.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn block(self, ordinal: u64, caching: Caching) -> Result<Arc<Block>> {
        match self.at_hand(ordinal, caching) {
            Some(block) => Ok(block),
            None => self.uncached(ordinal, caching, &Reads::default()),
        }
    }

    pub(super) fn uncached(
        self,
        ordinal: u64,
        caching: Caching,
        reads: &Reads,
    ) -> Result<Arc<Block>> {
        self.table.context.metrics.cache_misses.fetch_add(1, Relaxed);
        let among = || self.read_among_neighbours(ordinal, reads);
        if let Some(block) = (caching == Caching::Fill).then(among).flatten() {
            return Ok(block);
        }
        self.or_walked(|| self.read_extent(ordinal, self.extent(ordinal)?, caching, reads))
    }

    /// The block of that number with those beside it, by one request, where they are small and full of pointers: the device reads
    /// many as soon as one, and each spares twenty keys a request for what it takes of the cache. `None`: they are not, or
    /// one of them could not be read.
    fn read_among_neighbours(self, ordinal: u64, reads: &Reads) -> Option<Arc<Block>> {
        let count = self.table.neighbours()?;
        let first = ordinal - ordinal % count;
        let last = (first + count).min(self.table.block_count()).saturating_sub(1);
        // Some of them may be longer than most.
        let bytes = self.extent(last).ok()?.1.saturating_sub(self.extent(first).ok()?.0);
        if bytes > 2 * NEIGHBOURS_BYTES {
            return None;
        }
        let around = self.table.context.go_around(1);
        let read = self.read_range_once(first, last, around, reads);
        let blocks = read.inspect_err(|_| self.table.reads_alone.store(true, Relaxed)).ok()?;
        let (id, cache) = (self.table.record.id, &self.table.context.cache);
        let missing = blocks.iter().filter(|(ordinal, _)| cache.peek(id, *ordinal).is_none());
        missing.for_each(|(ordinal, block)| self.table.keep(*ordinal, block, around));
        blocks.into_iter().find(|(at, _)| *at == ordinal).map(|(_, block)| block)
    }

    /// The block of that number, if it is in the page cache and mapped, or in our cache; one that is compressed comes from there to here.
    pub fn at_hand(self, ordinal: u64, caching: Caching) -> Option<Arc<Block>> {
        if caching != Caching::Checked
            && let Some(block) = self.lent_block(ordinal)
        {
            self.table.context.metrics.mapped_reads.add(1);
            return Some(Arc::new(block));
        }
        let (id, cache) = (self.table.record.id, &self.table.context.cache);
        if let Some(block) = cache.get(id, ordinal) {
            self.table.context.metrics.cache_hits.add(1);
            return Some(block);
        }
        if caching == Caching::Checked {
            return None;
        }
        let block = Arc::new(self.unpacked(ordinal)?);
        self.table.context.metrics.mapped_reads.add(1);
        if caching == Caching::Fill && !block.is_as_stored() {
            cache.insert(id, ordinal, &block);
        }
        Some(block)
    }

    /// Whether that finds it, as far as is noted.
    pub(super) fn is_at_hand(self, ordinal: u64, caching: Caching) -> bool {
        (caching != Caching::Checked && self.is_noted(ordinal))
            || self.table.context.cache.peek(self.table.record.id, ordinal).is_some()
    }

    /// Does `read`; if it finds no blocks where the index says, once more where the walk found them.
    fn or_walked<T>(self, read: impl Fn() -> Result<T>) -> Result<T> {
        match read() {
            Err(e) if e.is_corruption() && self.table.walked.get().is_none() => {
                self.table.context.metrics.fallbacks.fetch_add(1, Relaxed);
                if self.table.walked().is_ok() { read() } else { Err(e) }
            }
            done => done,
        }
    }

    pub(super) fn read_extent(
        self,
        ordinal: u64,
        (start, end): (u64, u64),
        caching: Caching,
        reads: &Reads,
    ) -> Result<Arc<Block>> {
        let mut bytes = self.table.context.cache.buffer((end - start) as usize);
        self.table.context.metrics.request(bytes.len(), reads);
        let around = self.table.context.go_around(1);
        self.table.read_at(&mut bytes, start, around)?;
        let block = Arc::new(self.table.decode(bytes, ordinal, start)?);
        if caching != Caching::Leave {
            self.table.keep(ordinal, &block, around);
        }
        Ok(block)
    }

    /// The blocks `first..=last`: from memory if all are there, else by one request.
    pub(super) fn fetch(
        self,
        first: u64,
        last: u64,
        caching: Caching,
        reads: &Reads,
    ) -> Result<Blocks> {
        let named = first..=last.min(self.table.block_count());
        if named.clone().all(|ordinal| self.is_at_hand(ordinal, caching)) {
            let at_hand = named.map(|ordinal| Some((ordinal, self.at_hand(ordinal, caching)?)));
            if let Some(blocks) = at_hand.collect::<Option<Vec<_>>>() {
                return Ok(blocks);
            }
        }
        self.table.context.metrics.cache_misses.fetch_add(1, Relaxed);
        reads.in_table.set(true);
        let around = self.table.context.go_around(1);
        let blocks = self.or_walked(|| self.read_range_once(first, last, around, reads))?;
        if caching != Caching::Leave {
            blocks.iter().for_each(|(ordinal, block)| self.table.keep(*ordinal, block, around));
        }
        Ok(blocks)
    }

    /// Reads the blocks `first..=last` by one request; where the index says that they are, which whoever then reads them one by
    /// one finds out about. They go into the cache where that is wanted.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn read_ahead(self, first: u64, last: u64, caching: Caching) -> Result<Blocks> {
        let around = self.table.context.go_around(1);
        let blocks = self.read_range_once(first, last, around, &Reads::default())?;
        if caching == Caching::Fill {
            blocks.iter().for_each(|(ordinal, block)| self.table.keep(*ordinal, block, around));
        }
        Ok(blocks)
    }

    /// Reads them past the cache, through the system's; also where the index lies.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn read_range(self, first: u64, last: u64) -> Result<Blocks> {
        self.or_walked(|| self.read_range_once(first, last, false, &Reads::default()))
    }

    pub(super) fn read_range_once(
        self,
        first: u64,
        last: u64,
        around: bool,
        reads: &Reads,
    ) -> Result<Blocks> {
        let (start, end) = (self.extent(first)?.0, self.extent(last)?.1);
        let mut bytes = self.table.context.cache.buffer(end.saturating_sub(start) as usize);
        self.table.context.metrics.request(bytes.len(), reads);
        self.table.read_at(&mut bytes, start, around)?;
        self.cut(&bytes, first, last)
    }

    /// What reads a span.
    ///
    /// # Errors
    /// `Corruption` if it lies where no blocks are; any error of opening the file.
    pub fn request(self, span: Span, around: bool, reads: &Reads) -> Result<ReadRequest> {
        let (start, end) = (self.extent(span.first)?.0, self.extent(span.last)?.1);
        let buffer = vec![0; end.saturating_sub(start) as usize];
        let file = self.table.file()?;
        self.table.context.metrics.request(buffer.len(), reads);
        Ok(ReadRequest { file, offset_bytes: start, buffer, around })
    }

    /// The blocks in the `bytes` of a span.
    ///
    /// # Errors
    /// `Corruption` if one is not sound.
    pub fn blocks_in(self, bytes: &[u8], span: Span) -> Result<Blocks> {
        self.cut(bytes, span.first, span.last)
    }

    /// The blocks `first..=last`, of which the `bytes` are.
    fn cut(self, bytes: &[u8], first: u64, last: u64) -> Result<Blocks> {
        let start = self.extent(first)?.0;
        let mut blocks = Vec::with_capacity((last - first) as usize + 1);
        for ordinal in first..=last {
            let (from, to) = self.extent(ordinal)?;
            let piece = from.checked_sub(start).zip(to.checked_sub(start));
            let piece = piece.and_then(|(from, to)| bytes.get(from as usize..to as usize));
            let piece = piece.ok_or_else(|| {
                Error::corruption("the index's block ends are out of order")
                    .at_path(&self.table.path)
            })?;
            let block = self.table.unpack(&self.table.check(piece, ordinal, from)?)?;
            blocks.push((ordinal, Arc::new(block)));
        }
        Ok(blocks)
    }
}

/// Blocks shorter than this are read with those beside them, if they hold pointers,
const SMALL_BYTES: u64 = 1 << 10;
/// so many bytes of them together.
const NEIGHBOURS_BYTES: u64 = 16 << 10;

impl Table {
    /// How many blocks are read together, if they are.
    fn neighbours(&self) -> Option<u64> {
        let properties = &self.record.properties;
        let mean_bytes = properties.data_bytes.checked_div(properties.blocks)?;
        let is_kept = self.context.cache.capacity_bytes() > 0;
        let is_small = mean_bytes <= SMALL_BYTES && !properties.segments.is_empty();
        let is_sound = !self.reads_alone.load(Relaxed);
        (is_kept && is_small && is_sound).then(|| NEIGHBOURS_BYTES.div_ceil(mean_bytes.max(1)))
    }

    /// What so many stored bytes of its blocks take once decompressed, about.
    pub(super) fn unpacked_bytes(&self, stored_bytes: u64) -> u64 {
        let properties = &self.record.properties;
        let unpacked = u128::from(stored_bytes) * u128::from(properties.unpacked_bytes);
        (unpacked / u128::from(properties.data_bytes.max(1))) as u64
    }

    /// The block in `bytes`, which are its own if it is not compressed.
    pub(super) fn decode(&self, bytes: Buffer, ordinal: u64, start: u64) -> Result<Block> {
        let stored = self.check(&bytes, ordinal, start)?;
        if stored.is_compressed() {
            return self.unpack(&stored);
        }
        let head = stored.head();
        Block::keep(bytes, head, start).map_err(|e| e.at_path(&self.path))
    }

    pub(super) fn check<'a>(
        &self,
        bytes: &'a [u8],
        ordinal: u64,
        start: u64,
    ) -> Result<Stored<'a>> {
        let stored =
            Stored::check(bytes, self.record.tag, start).map_err(|e| e.at_path(&self.path))?;
        if u64::from(stored.ordinal()) != ordinal {
            return Err(Error::corruption(format!(
                "expected block {ordinal}, found {}",
                stored.ordinal()
            ))
            .at_path(&self.path)
            .at_offset(start));
        }
        Ok(stored)
    }

    pub(super) fn unpack(&self, stored: &Stored<'_>) -> Result<Block> {
        let memory = self.context.cache.buffer(stored.raw_bytes());
        stored.unpack(&self.context.codecs, memory).map_err(|e| e.at_path(&self.path))
    }

    /// Has a block that was just read be at hand from now on: mapped, or in our cache if it was read
    /// `around` the system's.
    pub fn keep(&self, ordinal: u64, block: &Arc<Block>, around: bool) {
        if around || !self.note(ordinal, block) {
            self.context.cache.insert(self.record.id, ordinal, block);
        }
    }
}
