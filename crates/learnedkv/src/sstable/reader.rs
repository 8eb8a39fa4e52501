//! Reading a table: a key to its entry with one read request.
//!
//! 0. The filter, if there is one, may say that the key is not there.
//! 1. The index names a contiguous range of blocks; they come from the cache or by one request.
//! 2. The block whose separators hold the key is searched.
//! 3. If none of them does, or a named block is no block, the index lies: the table's blocks are
//!    walked once by their own headers, and the separators found so serve from then on (`stats`
//!    counts it). A model costs time, never an answer.
//!
//! 4. Of a key without an entry the table's removed ranges may say that it is gone from older data.
//!
//! [`many`] looks many keys up at once; [`blocks`] brings blocks from the cache or the file; [`estimates`]
//! says what lies where without reading; [`resting`] knows when a filter comes into memory.

mod blocks;
mod estimates;
pub mod many;
mod mapped;
mod resting;

use std::cell::Cell;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use self::mapped::Mapped;
use self::resting::TableFilter;
use super::filter::file::filter_path;
use super::index::{self, Index, fence::Fence};
use super::opening::{check_properties, read_directory, read_section, walk};
use super::sought::Sought;
use super::{Graveyard, ReadMetrics, table_path};
use crate::cache::BlockCache;
use crate::disk::{Access, Disk, File, OpenFiles};
use crate::error::{Error, ErrorKind, Result};
use crate::format::block::{Block, Entries};
use crate::format::bytes::Probe;
use crate::format::compression::Codecs;
use crate::format::entry::{Kind, TableId};
use crate::format::manifest::TableRecord;
use crate::format::range::Ranges;
use crate::format::table::Properties;
use crate::slice::{Lookup, Slice};

/// The section of [`Properties`].
pub const PROPERTIES: &str = "properties";
/// The section of [`Ranges`].
pub const RANGES: &str = "ranges";

/// Blocks with their numbers.
type Blocks = Vec<(u64, Arc<Block>)>;

/// What all tables of a database share.
#[derive(Debug)]
pub struct TableContext {
    /// Where the files are read from.
    pub disk: Arc<dyn Disk>,
    /// The files of value segments, opened when they are read.
    pub segment_files: Arc<OpenFiles>,
    /// Their directory.
    pub dir: PathBuf,
    /// How data blocks are read.
    pub access: Access,
    /// Whether blocks in the page cache are read there.
    pub maps: bool,
    /// Where blocks are kept.
    pub cache: BlockCache,
    /// How much metadata may take, bytes, before filters at rest stay there.
    pub most_metadata_bytes: u64,
    /// What decompresses them.
    pub codecs: Codecs,
    /// What reading costs.
    pub metrics: ReadMetrics,
    /// Files that no View uses any more.
    pub graveyard: Graveyard,
}

impl TableContext {
    /// Whether metadata may grow by `bytes`.
    fn has_room_for_metadata(&self, bytes: u64) -> bool {
        self.metrics.metadata_bytes.load(Relaxed) + bytes <= self.most_metadata_bytes
    }
}

/// What a read does with blocks it had to fetch. Blocks that are in the cache serve it either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// They go into the cache.
    Fill,
    /// They do not: a read that touches much once must not push out what others need.
    Leave,
    /// As [`Caching::Fill`]; and none is taken from where the system holds it, whose checksum was computed
    /// some time ago: what is copied into another table gets a new checksum.
    Checked,
}

/// An open table.
pub struct Table {
    record: TableRecord,
    path: PathBuf,
    file: Arc<dyn File>,
    index: Box<dyn Index>,
    /// Keys that are gone from all older data.
    ranges: Arc<Ranges>,
    /// What the index takes in memory; asked often, and costly to count.
    index_memory_bytes: usize,
    /// The length of the index's section.
    index_bytes: u64,
    /// The separators of the blocks themselves, once they were needed.
    walked: OnceLock<Result<Fence>>,
    /// Its blocks in the page cache.
    mapped: Mapped,
    /// Asked first by lookups, once it is in memory.
    filter: TableFilter,
    context: Arc<TableContext>,
    obsolete: AtomicBool,
    /// What of its metadata is counted in the metrics.
    counted_bytes: AtomicU64,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({}, {} entries)", self.record.id, self.record.properties.entries)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let counted_bytes = *self.counted_bytes.get_mut();
        self.context.metrics.metadata_bytes.fetch_sub(counted_bytes, Relaxed);
        if *self.obsolete.get_mut() {
            self.context.metrics.retired_bytes.fetch_sub(self.record.file_bytes, Relaxed);
            let filter = self.record.filter.map(|f| filter_path(&self.context.dir, f.id));
            self.context.graveyard.add(std::mem::take(&mut self.path));
            filter.into_iter().for_each(|path| self.context.graveyard.add(path));
        }
    }
}

impl Table {
    /// Opens the table that `record` tells of: its index is in memory from then on.
    ///
    /// # Errors
    /// `Corruption` if the file is not what the record says; `Unsupported` if it has a required
    /// section this build does not know; any error of the disk.
    pub fn open(context: &Arc<TableContext>, mut record: TableRecord) -> Result<Table> {
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
        let (mut index, mut index_bytes, mut ranges) = (None, 0, Ranges::default());
        for section in &sections {
            let bytes = read_section(&*file, &record, section);
            if section.name.starts_with(index::SECTION_PREFIX) {
                index = Some(bytes.and_then(|bytes| index::decode(&section.name, bytes)));
                index_bytes += section.length;
            } else if section.name == PROPERTIES {
                check_properties(&bytes.map_err(|e| e.at_path(&path))?, &record)
                    .map_err(|e| e.at_path(&path))?;
            } else if section.name == RANGES {
                let decoded = bytes.and_then(|bytes| Ranges::decode(&bytes));
                let at = |e: Error| e.at_path(&path).at_offset(section.offset);
                ranges = decoded.map_err(at)?;
            } else if section.required {
                let message = format!(
                    "table section {:?} is unknown: a newer version wrote it",
                    section.name
                );
                return Err(Error::new(ErrorKind::Unsupported, message).at_path(&path));
            }
        }
        if ranges.len() as u64 != record.properties.ranges {
            return Err(Error::corruption(format!(
                "table: expected {} removed ranges, found {}",
                record.properties.ranges,
                ranges.len()
            ))
            .at_path(&path));
        }
        let index: Box<dyn Index> = match index {
            None if record.properties.entries == 0 => Box::new(Fence::default()),
            Some(Ok(index)) if index.block_count() == record.properties.blocks => index,
            Some(Err(e)) if e.kind() == ErrorKind::Unsupported => return Err(e.at_path(&path)),
            // Damaged, missing, or of another table: the blocks know better.
            _ => {
                context.metrics.rebuilt_indexes.fetch_add(1, Relaxed);
                Box::new(walk(&*file, &record).map_err(|e| e.at_path(&path))?)
            }
        };
        let filter = TableFilter::open(context, &mut record);
        let table = Table {
            record,
            path,
            file,
            filter,
            index_memory_bytes: index.size_bytes(),
            index,
            ranges: Arc::new(ranges),
            index_bytes,
            walked: OnceLock::new(),
            mapped: Mapped::default(),
            context: context.clone(),
            obsolete: AtomicBool::new(false),
            counted_bytes: AtomicU64::new(0),
        };
        table.count_metadata();
        Ok(table)
    }

    /// Has the metrics know what it takes by now.
    fn count_metadata(&self) {
        let now = self.metadata_bytes() as u64;
        let before = self.counted_bytes.swap(now, Relaxed);
        // The sum of all such differences is right, whatever order they come in.
        self.context.metrics.metadata_bytes.fetch_add(now.wrapping_sub(before), Relaxed);
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

    /// The first block that its index names for a key.
    #[cfg(test)]
    pub fn index_names(&self, key: &[u8]) -> u64 {
        self.index.locate(key).0
    }

    /// What the manifest says of it, but of a filter that could not be read: that is left out.
    pub fn record(&self) -> TableRecord {
        self.record.clone()
    }

    /// Its number.
    pub fn id(&self) -> TableId {
        self.record.id
    }

    /// The length of its file.
    pub fn file_bytes(&self) -> u64 {
        self.record.file_bytes
    }

    /// What it says of itself.
    pub fn properties(&self) -> &Properties {
        &self.record.properties
    }

    /// The keys that it says are gone from all older data.
    pub fn ranges(&self) -> &Arc<Ranges> {
        &self.ranges
    }

    /// Whether `key` lies behind all that it says anything of.
    pub fn ends_by(&self, key: &[u8]) -> bool {
        let behind_entries = Probe::new(key).compare(&self.properties().largest).is_gt();
        behind_entries && (self.properties().ranges == 0 || self.ranges.end_by(key))
    }

    /// What it says of a key that it has no entry of.
    #[inline]
    fn without_entry(&self, key: &[u8]) -> Lookup {
        if self.properties().ranges == 0 || !self.ranges.covers(key) {
            return Lookup::Absent;
        }
        Lookup::Removed
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its index takes in the file, bytes.
    pub fn index_bytes(&self) -> u64 {
        self.index_bytes
    }

    /// What it keeps in memory to find blocks, or that there is nothing to find, bytes.
    pub fn metadata_bytes(&self) -> usize {
        let walked = self.walked.get().and_then(|w| w.as_ref().ok()).map_or(0, Fence::size_bytes);
        let record = &self.record.properties;
        self.index_memory_bytes
            + self.mapped.size_bytes()
            + walked
            + self.filter_bytes().unwrap_or(0)
            + record.smallest.len()
            + record.largest.len()
            + self.ranges.size_bytes()
            + size_of::<Table>()
    }

    /// Has the file removed once nobody uses the table.
    pub fn retire(&self) {
        if !self.obsolete.swap(true, Relaxed) {
            self.context.metrics.retired_bytes.fetch_add(self.record.file_bytes, Relaxed);
        }
    }

    /// Looks a key up.
    ///
    /// # Errors
    /// `Corruption` if the block that must hold it is damaged; any error of the disk.
    pub fn get(&self, sought: &Sought<'_>) -> Result<Lookup> {
        if self.excludes(sought) {
            return Ok(self.without_entry(sought.key()));
        }
        sought.read.set(false);
        let named = self.index.locate(sought.key());
        if named.0 == named.1
            && let Some(found) = self.look_where_lent(named.0, sought)
        {
            return found;
        }
        let (_, block) =
            self.find_block_among(sought.key(), named, None, sought.caching, &sought.read)?;
        self.look_in(block, sought)
    }

    /// What the block of that number says of the key, if it is lent and the key's place is in it.
    fn look_where_lent(&self, ordinal: u64, sought: &Sought<'_>) -> Option<Result<Lookup>> {
        if sought.caching == Caching::Checked {
            return None;
        }
        let lent = self.lent(ordinal)?;
        let (place, found) = lent.entries.search(sought.key());
        if place != Ordering::Equal {
            return None;
        }
        self.context.metrics.mapped_reads.fetch_add(1, Relaxed);
        Some(self.say(&lent.entries, found, sought, |range| lent.slice(range)))
    }

    /// Whether no entry has the key for certain; nothing is read to say so.
    fn excludes(&self, sought: &Sought<'_>) -> bool {
        let properties = &self.record.properties;
        let key = sought.key();
        let probe = Probe::new(key);
        if probe.compare(&properties.smallest).is_lt() || probe.compare(&properties.largest).is_gt()
        {
            return true;
        }
        let stops = self.filter.refuses(sought);
        if stops {
            sought.stops.update(|stops| stops + 1);
        }
        stops
    }

    /// What the block that holds the key's place says of it.
    fn look_in(&self, block: Arc<Block>, sought: &Sought<'_>) -> Result<Lookup> {
        let entries = block.entries();
        let found = entries.lower_bound(sought.key());
        self.say(&entries, found, sought, |range| Slice::of_block(block.clone(), range))
    }

    /// What was `found` of the key: which entry of a block, if it is there. `slice` lends of its bytes.
    #[inline]
    fn say(
        &self,
        entries: &Entries<'_>,
        found: Result<(usize, bool)>,
        sought: &Sought<'_>,
        slice: impl FnOnce(std::ops::Range<usize>) -> Slice,
    ) -> Result<Lookup> {
        let (index, is_there) = found.map_err(|e| e.at_path(&self.path))?;
        if !is_there {
            self.miss(sought);
            return Ok(self.without_entry(sought.key()));
        }
        let entry = entries.entry(index).map_err(|e| e.at_path(&self.path))?;
        let range = entries.value_range(&entry);
        Ok(match entry.kind {
            Kind::Value => Lookup::Value(slice(range)),
            Kind::Pointer => Lookup::Pointer(slice(range)),
            _ => Lookup::Removed,
        })
    }

    /// The block whose separators hold `key`; the first or the last block for keys outside all.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn find_block(&self, key: &[u8], caching: Caching) -> Result<(u64, Arc<Block>)> {
        self.find_block_among(key, self.index.locate(key), None, caching, &Cell::new(false))
    }

    /// As [`Table::find_block`], of a key whose index `named` blocks; those `at_hand` were read. Says in
    /// `read` whether a block was read from the disk for it.
    fn find_block_among(
        &self,
        key: &[u8],
        named: (u64, u64),
        at_hand: Option<Blocks>,
        caching: Caching,
        read: &Cell<bool>,
    ) -> Result<(u64, Arc<Block>)> {
        let (first, last) = named;
        let fetched = match at_hand {
            Some(blocks) => Ok(blocks),
            None if last > first => self.fetch(first, last, caching, read),
            None => Ok(Vec::new()),
        };
        let found = fetched.and_then(|fetched| self.search(&fetched, named, key, caching, read));
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

    /// Among the blocks `first..=last`, some of which were `fetched`, the one that holds `key`'s place.
    fn search(
        &self,
        fetched: &[(u64, Arc<Block>)],
        (first, last): (u64, u64),
        key: &[u8],
        caching: Caching,
        read: &Cell<bool>,
    ) -> Result<Option<(u64, Arc<Block>)>> {
        // An absent key's place may be in the block just before or after those named.
        let count = self.block_count();
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
                        read.set(true);
                        self.uncached(middle, caching)?
                    }
                },
            };
            match block.entries().place(key) {
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

    fn walked(&self) -> std::result::Result<&Fence, &Error> {
        if self.walked.get().is_none() {
            self.walked.get_or_init(|| {
                self.context.metrics.rebuilt_indexes.fetch_add(1, Relaxed);
                walk(&*self.file, &self.record).map_err(|e| e.at_path(&self.path))
            });
            self.count_metadata();
        }
        self.walked.get_or_init(|| unreachable!("it was set above")).as_ref()
    }
}
