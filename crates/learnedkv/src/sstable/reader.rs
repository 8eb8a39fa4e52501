//! Reading a table: a key to its entry with one read request.
//!
//! 1. The index names a contiguous range of blocks; they come from the cache or by one request.
//! 2. The block whose separators hold the key is searched.
//! 3. If none of them does, or a named block is no block, the index lies: the table's blocks are
//!    walked once by their own headers, and the separators found so serve from then on (`stats`
//!    counts it). A model costs time, never an answer.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::index::{self, Index, fence::Fence};
use super::{Graveyard, ReadMetrics, scale, table_path};
use crate::cache::BlockCache;
use crate::disk::{Access, Disk, File};
use crate::error::{Error, ErrorKind, Result};
use crate::format::block::{self, BLOCK_ALIGNMENT, Block, Stored};
use crate::format::bytes::Reader;
use crate::format::compression::Codecs;
use crate::format::entry::Kind;
use crate::format::manifest::TableRecord;
use crate::format::table::{FOOTER_BYTES, Footer, Properties, Section, SegmentUse};
use crate::slice::{Lookup, Slice};

/// The section of [`Properties`].
pub const PROPERTIES: &str = "properties";

/// How much a walk over damaged tables reads at once.
const WALK_BYTES: usize = 1 << 20;

/// What all tables of a database share.
#[derive(Debug)]
pub struct TableContext {
    /// Where the files are read from.
    pub disk: Arc<dyn Disk>,
    /// Their directory.
    pub dir: PathBuf,
    /// How data blocks are read.
    pub access: Access,
    /// Where blocks are kept.
    pub cache: BlockCache,
    /// What decompresses them.
    pub codecs: Codecs,
    /// What reading costs.
    pub metrics: ReadMetrics,
    /// Files that no View uses any more.
    pub graveyard: Graveyard,
}

/// What a read does with blocks it had to fetch. Blocks that are in the cache serve it either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// They go into the cache.
    Fill,
    /// They do not: a read that touches much once must not push out what others need.
    Leave,
}

/// An open table.
pub struct Table {
    record: TableRecord,
    path: PathBuf,
    file: Arc<dyn File>,
    index: Box<dyn Index>,
    /// What the index takes in memory; asked often, and costly to count.
    index_memory_bytes: usize,
    /// The length of the index's section.
    index_bytes: u64,
    /// The separators of the blocks themselves, once they were needed.
    walked: OnceLock<Result<Fence>>,
    context: Arc<TableContext>,
    obsolete: AtomicBool,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({}, {} entries)", self.record.id, self.record.properties.entries)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.context.graveyard.add(std::mem::take(&mut self.path));
        }
    }
}

impl Table {
    /// Opens the table that `record` tells of: its index is in memory from then on.
    ///
    /// # Errors
    /// `Corruption` if the file is not what the record says; `Unsupported` if it has a required
    /// section this build does not know; any error of the disk.
    pub fn open(context: &Arc<TableContext>, record: TableRecord) -> Result<Table> {
        let path = table_path(&context.dir, record.id);
        let file = context.disk.open(&path, context.access).map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let message =
                    "the manifest names this table, but it is not there: restore it from a copy";
                Error::corruption(message).at_path(&path)
            }
            _ => e,
        })?;
        let sections = read_directory(&*file, &record).map_err(|e| e.at_path(&path))?;
        let (mut index, mut index_bytes) = (None, 0);
        for section in &sections {
            let bytes = read_section(&*file, &record, section);
            if section.name.starts_with(index::SECTION_PREFIX) {
                index = Some(bytes.and_then(|bytes| index::decode(&section.name, bytes)));
                index_bytes += section.length;
            } else if section.name == PROPERTIES {
                check_properties(&bytes.map_err(|e| e.at_path(&path))?, &record)
                    .map_err(|e| e.at_path(&path))?;
            } else if section.required {
                let message = format!(
                    "table section {:?} is unknown: a newer version wrote it",
                    section.name
                );
                return Err(Error::new(ErrorKind::Unsupported, message).at_path(&path));
            }
        }
        let index: Box<dyn Index> = match index {
            Some(Ok(index)) if index.block_count() == record.properties.blocks => index,
            Some(Err(e)) if e.kind() == ErrorKind::Unsupported => return Err(e.at_path(&path)),
            // Damaged, missing, or of another table: the blocks know better.
            _ => {
                context.metrics.rebuilt_indexes.fetch_add(1, Relaxed);
                Box::new(walk(&*file, &record).map_err(|e| e.at_path(&path))?)
            }
        };
        Ok(Table {
            record,
            path,
            file,
            index_memory_bytes: index.size_bytes(),
            index,
            index_bytes,
            walked: OnceLock::new(),
            context: context.clone(),
            obsolete: AtomicBool::new(false),
        })
    }

    /// The same table with another index: one that lies, say.
    #[cfg(test)]
    pub fn with_index(self, index: impl FnOnce(Box<dyn Index>) -> Box<dyn Index>) -> Table {
        // `Drop` forbids taking fields out of `self`.
        let context = self.context.clone();
        let mut table = Table::open(&context, self.record.clone()).expect("it was open");
        let honest = std::mem::replace(&mut table.index, Box::new(Fence::default()));
        table.index = index(honest);
        table
    }

    /// What the manifest says of it.
    pub fn record(&self) -> &TableRecord {
        &self.record
    }

    /// What it says of itself.
    pub fn properties(&self) -> &Properties {
        &self.record.properties
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its index takes in the file, bytes.
    pub fn index_bytes(&self) -> u64 {
        self.index_bytes
    }

    /// What it keeps in memory to find blocks, bytes.
    pub fn metadata_bytes(&self) -> usize {
        let walked = self.walked.get().and_then(|w| w.as_ref().ok()).map_or(0, Fence::size_bytes);
        let record = &self.record.properties;
        self.index_memory_bytes
            + walked
            + record.smallest.len()
            + record.largest.len()
            + size_of::<Table>()
    }

    /// Has the file removed once nobody uses the table.
    pub fn retire(&self) {
        self.obsolete.store(true, Relaxed);
    }

    /// How many bytes of blocks lie between two keys as they are stored, about (whole blocks).
    pub fn bytes_between(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        if self.index.block_count() == 0 || from > self.properties().largest.as_slice() {
            return 0;
        }
        let start = self.extent(self.index.locate(from).0).map_or(0, |(start, _)| start);
        let end = match to {
            Some(to) if to <= self.properties().smallest.as_slice() => return 0,
            Some(to) => self.extent(self.index.locate(to).1).map_or(0, |(_, end)| end),
            None => self.properties().data_bytes,
        };
        end.saturating_sub(start)
    }

    /// What lies between two keys, about, bytes: the blocks, and of the separated values in those
    /// segments that `counts` says the share that the blocks are of all blocks.
    pub fn weight_between(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        counts: impl Fn(&SegmentUse) -> bool,
    ) -> u64 {
        let blocks = self.bytes_between(from, to);
        let properties = self.properties();
        let used = properties.segments.iter().filter(|used| counts(used));
        let separated = used.map(|used| used.bytes).sum();
        blocks + scale(separated, blocks, properties.data_bytes.max(1))
    }

    /// Looks `key` up.
    ///
    /// # Errors
    /// `Corruption` if the block that must hold it is damaged; any error of the disk.
    pub fn get(&self, key: &[u8], caching: Caching) -> Result<Lookup> {
        let properties = &self.record.properties;
        if key < properties.smallest.as_slice() || key > properties.largest.as_slice() {
            return Ok(Lookup::Absent);
        }
        let (_, block) = self.find_block(key, caching)?;
        let (index, found) = block.lower_bound(key).map_err(|e| e.at_path(&self.path))?;
        if !found {
            return Ok(Lookup::Absent);
        }
        let entry = block.entry(index).map_err(|e| e.at_path(&self.path))?;
        let (kind, range) = (entry.kind, block.value_range(&entry));
        Ok(match kind {
            Kind::Value => Lookup::Value(Slice::of_block(block, range)),
            Kind::Pointer => Lookup::Pointer(Slice::of_block(block, range)),
            _ => Lookup::Removed,
        })
    }

    /// The block whose separators hold `key`; the first or the last block for keys outside all.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn find_block(&self, key: &[u8], caching: Caching) -> Result<(u64, Arc<Block>)> {
        let (first, last) = self.index.locate(key);
        let found = self.search(first, last, key, caching);
        match found {
            Ok(Some(found)) => return Ok(found),
            // A read that failed says nothing about the index.
            Err(e) if !e.is_corruption() => return Err(e),
            _ => {}
        }
        self.context.metrics.fallbacks.fetch_add(1, Relaxed);
        match (self.walked(), found) {
            (Ok(fence), _) => {
                let (ordinal, _) = fence.locate(key);
                Ok((ordinal, self.read_extent(ordinal, fence.extent(ordinal), caching)?))
            }
            (Err(_), Err(e)) => Err(e),
            (Err(e), Ok(_)) => Err(e.clone()),
        }
    }

    /// Among the blocks `first..=last`, the one that holds `key`'s place.
    fn search(
        &self,
        first: u64,
        last: u64,
        key: &[u8],
        caching: Caching,
    ) -> Result<Option<(u64, Arc<Block>)>> {
        let read = if last > first { self.fetch(first, last, caching)? } else { Vec::new() };
        // An absent key's place may be in the block just before or after those named.
        let count = self.block_count();
        let (mut low, mut high) = (first.saturating_sub(1), last.saturating_add(2).min(count));
        // The named blocks come first: present keys lie in them.
        let mut middle = first + last.saturating_sub(first) / 2;
        while low < high {
            let at_hand = read.iter().find(|(ordinal, _)| *ordinal == middle);
            let block = match at_hand {
                Some((_, block)) => block.clone(),
                None => self.block(middle, caching)?,
            };
            match block.place(key) {
                Ordering::Equal => return Ok(Some((middle, block))),
                // Keys below the first block, and above the last, have no better place.
                Ordering::Less if middle == 0 => return Ok(Some((middle, block))),
                Ordering::Greater if middle + 1 == self.block_count() => {
                    return Ok(Some((middle, block)));
                }
                Ordering::Less => high = middle,
                Ordering::Greater => low = middle + 1,
            }
            middle = low + (high - low) / 2;
        }
        Ok(None)
    }

    /// How many blocks it has.
    pub fn block_count(&self) -> u64 {
        self.record.properties.blocks
    }

    fn extent(&self, ordinal: u64) -> Result<(u64, u64)> {
        if ordinal >= self.block_count() {
            return Err(Error::corruption(format!(
                "expected one of {} blocks, found that the index names number {ordinal}",
                self.block_count()
            ))
            .at_path(&self.path));
        }
        let (start, end) = match self.walked.get() {
            Some(Ok(fence)) => fence.extent(ordinal),
            _ => self.index.extent(ordinal),
        };
        let limit = self.record.properties.data_bytes;
        if start >= end || end > limit {
            return Err(Error::corruption(format!(
                "block {ordinal}: expected a place within {limit} bytes, found {start}..{end}"
            ))
            .at_path(&self.path));
        }
        Ok((start, end))
    }

    /// The block of that number, from the cache or the disk.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn block(&self, ordinal: u64, caching: Caching) -> Result<Arc<Block>> {
        if let Some(block) = self.cached(ordinal) {
            return Ok(block);
        }
        self.context.metrics.cache_misses.fetch_add(1, Relaxed);
        self.or_walked(|| self.read_extent(ordinal, self.extent(ordinal)?, caching))
    }

    /// The block of that number, if it is in the cache.
    pub fn cached(&self, ordinal: u64) -> Option<Arc<Block>> {
        let block = self.context.cache.get(self.record.id, ordinal)?;
        self.context.metrics.cache_hits.fetch_add(1, Relaxed);
        Some(block)
    }

    /// Does `read`; if it finds no blocks where the index says, once more where the walk found them.
    fn or_walked<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        match read() {
            Err(e) if e.is_corruption() && self.walked.get().is_none() => {
                self.context.metrics.fallbacks.fetch_add(1, Relaxed);
                if self.walked().is_ok() { read() } else { Err(e) }
            }
            done => done,
        }
    }

    fn read_extent(
        &self,
        ordinal: u64,
        (start, end): (u64, u64),
        caching: Caching,
    ) -> Result<Arc<Block>> {
        let mut bytes = self.context.cache.buffer((end - start) as usize);
        self.context.metrics.request(bytes.len());
        self.file.read_exact_at(&mut bytes, start).map_err(|e| e.at_path(&self.path))?;
        let block = Arc::new(self.decode(bytes, ordinal, start)?);
        if caching == Caching::Fill {
            self.context.cache.insert(self.record.id, ordinal, &block);
        }
        Ok(block)
    }

    /// The block in `bytes`, which are its own if it is not compressed.
    fn decode(&self, bytes: Vec<u8>, ordinal: u64, start: u64) -> Result<Block> {
        let stored = self.check(&bytes, ordinal, start)?;
        if stored.is_compressed() {
            let block = self.unpack(&stored)?;
            self.context.cache.give_back(bytes);
            return Ok(block);
        }
        let head = stored.head();
        Block::keep(bytes, head, start).map_err(|e| e.at_path(&self.path))
    }

    fn check<'a>(&self, bytes: &'a [u8], ordinal: u64, start: u64) -> Result<Stored<'a>> {
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

    fn unpack(&self, stored: &Stored<'_>) -> Result<Block> {
        let memory = self.context.cache.buffer(stored.raw_bytes());
        stored.unpack(&self.context.codecs, memory).map_err(|e| e.at_path(&self.path))
    }

    /// The blocks `first..=last`: from the cache if all are there, else by one request.
    fn fetch(&self, first: u64, last: u64, caching: Caching) -> Result<Vec<(u64, Arc<Block>)>> {
        let cached = (first..=last.min(self.block_count()))
            .map(|ordinal| Some((ordinal, self.context.cache.get(self.record.id, ordinal)?)));
        if let Some(blocks) = cached.collect::<Option<Vec<_>>>() {
            self.context.metrics.cache_hits.fetch_add(1, Relaxed);
            return Ok(blocks);
        }
        self.context.metrics.cache_misses.fetch_add(1, Relaxed);
        let blocks = self.read_range(first, last)?;
        if caching == Caching::Fill {
            self.keep(&blocks);
        }
        Ok(blocks)
    }

    /// Puts blocks into the cache.
    pub fn keep(&self, blocks: &[(u64, Arc<Block>)]) {
        for (ordinal, block) in blocks {
            self.context.cache.insert(self.record.id, *ordinal, block);
        }
    }

    /// Reads the blocks `first..=last` by one request, past the cache.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn read_range(&self, first: u64, last: u64) -> Result<Vec<(u64, Arc<Block>)>> {
        self.or_walked(|| self.read_range_once(first, last))
    }

    fn read_range_once(&self, first: u64, last: u64) -> Result<Vec<(u64, Arc<Block>)>> {
        let (start, end) = (self.extent(first)?.0, self.extent(last)?.1);
        let mut bytes = vec![0; end.saturating_sub(start) as usize];
        self.context.metrics.request(bytes.len());
        self.file.read_exact_at(&mut bytes, start).map_err(|e| e.at_path(&self.path))?;
        let mut blocks = Vec::with_capacity((last - first) as usize + 1);
        for ordinal in first..=last {
            let (from, to) = self.extent(ordinal)?;
            let piece = from.checked_sub(start).zip(to.checked_sub(start));
            let piece = piece.and_then(|(from, to)| bytes.get(from as usize..to as usize));
            let piece = piece.ok_or_else(|| {
                Error::corruption("the index's block ends are out of order").at_path(&self.path)
            })?;
            let block = self.unpack(&self.check(piece, ordinal, from)?)?;
            blocks.push((ordinal, Arc::new(block)));
        }
        Ok(blocks)
    }

    fn walked(&self) -> std::result::Result<&Fence, &Error> {
        let walked = self.walked.get_or_init(|| {
            self.context.metrics.rebuilt_indexes.fetch_add(1, Relaxed);
            walk(&*self.file, &self.record).map_err(|e| e.at_path(&self.path))
        });
        walked.as_ref()
    }
}

fn read_directory(file: &dyn File, record: &TableRecord) -> Result<Vec<Section>> {
    let length = file.length_bytes()?;
    if length != record.file_bytes || length < FOOTER_BYTES as u64 {
        return Err(Error::corruption(format!(
            "table: expected a file of {} bytes, found {length}",
            record.file_bytes
        )));
    }
    let footer_offset = length - FOOTER_BYTES as u64;
    let mut footer = [0; FOOTER_BYTES];
    file.read_exact_at(&mut footer, footer_offset)?;
    let footer = Footer::decode(&footer).map_err(|e| e.at_offset(footer_offset))?;
    let end = footer.directory_offset.checked_add(u64::from(footer.directory_bytes));
    if footer.tag != record.tag || end != Some(footer_offset) {
        return Err(Error::corruption(format!(
            "table: expected the file tagged {:016x}, found {:016x}: another table took its place",
            record.tag, footer.tag
        )));
    }
    let mut directory = vec![0; footer.directory_bytes as usize];
    file.read_exact_at(&mut directory, footer.directory_offset)?;
    footer.decode_directory(&directory).map_err(|e| e.at_offset(footer.directory_offset))
}

fn read_section(file: &dyn File, record: &TableRecord, section: &Section) -> Result<Vec<u8>> {
    let mut bytes = vec![0; section.length as usize];
    file.read_exact_at(&mut bytes, section.offset)?;
    section.check(record.tag, &bytes)?;
    Ok(bytes)
}

fn check_properties(bytes: &[u8], record: &TableRecord) -> Result<()> {
    let found = Properties::decode(&mut Reader::new(bytes))?;
    if found == record.properties {
        return Ok(());
    }
    Err(Error::corruption("table: its properties are not those the manifest says"))
}

/// Finds the blocks of a table without its index, by their headers, one after another.
fn walk(file: &dyn File, record: &TableRecord) -> Result<Fence> {
    let data_bytes = record.properties.data_bytes;
    let mut fence = Fence::default();
    let mut offset = 0u64;
    while offset < data_bytes {
        // A window; a block longer than that is read alone.
        let mut window = vec![0; WALK_BYTES.min((data_bytes - offset) as usize)];
        file.read_exact_at(&mut window, offset)?;
        let mut inside = 0usize;
        while let Some((_, length)) = window.get(inside..).and_then(block::peek) {
            let start = offset + inside as u64;
            let end = (start + length as u64).next_multiple_of(BLOCK_ALIGNMENT);
            if end > data_bytes {
                return Err(Error::corruption(format!(
                    "data block: expected an end within {data_bytes} bytes, found {end}"
                ))
                .at_offset(start));
            }
            let alone;
            let bytes = match window.get(inside..(end - offset) as usize) {
                Some(bytes) => bytes,
                None if inside > 0 => break,
                None => {
                    let mut bytes = vec![0; (end - start) as usize];
                    file.read_exact_at(&mut bytes, start)?;
                    alone = bytes;
                    &alone
                }
            };
            // The separators are not compressed.
            fence.push(&Stored::check(bytes, record.tag, start)?.lower(), end);
            inside = (end - offset) as usize;
        }
        if inside == 0 {
            return Err(
                Error::corruption("data block: expected a header, found the end").at_offset(offset)
            );
        }
        offset += inside as u64;
    }
    if fence.block_count() != record.properties.blocks {
        return Err(Error::corruption(format!(
            "table: expected {} blocks, found {}",
            record.properties.blocks,
            fence.block_count()
        )));
    }
    Ok(fence)
}
