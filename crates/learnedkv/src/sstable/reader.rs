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
//! A table whose file is damaged or missing has a stand-in that says so ([`damaged`]).
//!
//! [`paged`] has the index at hand, wherever it is; [`many`] looks many keys up at once; [`search`]
//! goes from the index to the block, [`blocks`] brings blocks from the cache or the file;
//! [`estimates`] says what lies where without reading one; [`resting`] knows when a filter comes into
//! memory.

mod behind;
mod blocks;
mod damaged;
mod estimates;
pub mod many;
mod mapped;
mod paged;
mod resting;
mod search;
pub mod warm;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use self::mapped::Mapped;
use self::paged::Home;
pub use self::paged::{Held, Indexed, Loan};
use self::resting::TableFilter;
use super::filter::file::filter_path;
use super::generation::Generation;
use super::index::{self, Index, fence::Fence};
use super::opening::{check_properties, read_directory, read_section, walk};
use super::sought::{Reads, Sought};
use super::{Graveyard, ReadMetrics, Retired, table_path};
use crate::cache::BlockCache;
use crate::disk::{Access, Around, Disk, File, Maps, OpenFiles, PooledFile};
use crate::error::{Error, ErrorKind, Result};
use crate::format::block::{Block, Entries};
use crate::format::bytes::Probe;
use crate::format::compression::Codecs;
use crate::format::entry::{KeyspaceId, Kind, TableId};
use crate::format::manifest::TableRecord;
use crate::format::range::Ranges;
use crate::format::table::Properties;
use crate::slice::{Lookup, Slice};

/// The section of [`Properties`].
pub const PROPERTIES: &str = "properties";
/// The section of [`Ranges`].
pub const RANGES: &str = "ranges";

/// A block with its number.
pub type Numbered = (u64, Arc<Block>);
/// Blocks with their numbers.
pub type Blocks = Vec<Numbered>;

/// What may be read with a block, of those that adjoin it.
#[derive(Debug, Clone, Copy)]
pub struct Beyond<'a> {
    /// So many of them,
    pub blocks: u64,
    /// so long, with it, as they are stored.
    pub most_bytes: u64,
    /// None beyond that of this key.
    pub until: Option<&'a [u8]>,
}

/// Blocks that stand side by side, the one that an index `named` among them.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// The number of that.
    pub named: u64,
    first: u64,
    last: u64,
}

/// What all tables of a database share.
#[derive(Debug)]
pub struct TableContext {
    /// Where the files are read from.
    pub disk: Arc<dyn Disk>,
    /// Those of tables and value segments, opened when they are read.
    pub files: Arc<OpenFiles>,
    /// Their directory.
    pub dir: PathBuf,
    /// How data blocks are read.
    pub access: Access,
    /// Through which blocks in the page cache are read there, if they are.
    pub maps: Option<Arc<Maps>>,
    /// Where blocks are kept, and indexes that their tables do not keep.
    pub cache: BlockCache<Held>,
    /// The most that metadata may take, as far as it can be done without.
    pub max_metadata_bytes: u64,
    /// Filters that tables are asked to have in memory come while metadata takes no more than this.
    pub max_filtered_bytes: u64,
    /// What decompresses them.
    pub codecs: Codecs,
    /// What reading costs.
    pub metrics: ReadMetrics,
    /// Whether reads go around the system's cache.
    pub around: Around,
    /// Files that no View uses any more.
    pub graveyard: Graveyard,
    /// See [`TableContext::has_missed`].
    pub missed: AtomicU64,
    /// Whether what is left of the database is to be read.
    pub salvages: bool,
}

impl TableContext {
    /// Whether a file that could not be opened for that gets a stand-in: it is damaged or missing, or the disk does not give it and what is
    /// left is to be read.
    pub fn stands_in_for(&self, error: &Error) -> bool {
        error.is_corruption() || self.salvages && error.kind() == ErrorKind::Io
    }

    /// Whether readers hold more of blocks than there may be of them; where the cache has no room of its own, half of the budget.
    pub fn do_readers_hold_much(&self) -> bool {
        let may_take = self.cache.capacity_bytes().max(self.max_metadata_bytes);
        // A cache that is full is at its bound, and a little beyond now and then.
        self.cache.used_bytes() > may_take.saturating_add(may_take / 16)
    }

    /// Whether a block was not at hand since this was asked last, to whomever.
    pub fn has_missed(&self) -> bool {
        let misses = self.metrics.cache_misses.load(Relaxed);
        let before = self.missed.load(Relaxed);
        if misses != before {
            self.missed.store(misses, Relaxed);
        }
        misses != before
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
    file: PooledFile,
    index: Home,
    /// Keys that are gone from all older data.
    ranges: Arc<Ranges>,
    /// The separators of the blocks themselves, once they were needed.
    walked: OnceLock<Result<Fence>>,
    /// Held by whoever walks them.
    walking: Mutex<()>,
    /// Its blocks in the page cache.
    mapped: Mapped,
    /// Asked first by lookups, once it is in memory.
    filter: TableFilter,
    /// See [`Table::generation`].
    generation: OnceLock<Arc<Generation>>,
    context: Arc<TableContext>,
    /// Why it could not be opened; see [`damaged`].
    damage: Option<Error>,
    /// See [`Table::note_unreadable`].
    unreadable: AtomicBool,
    /// A block could not be read with its neighbours: each is read by itself from then on.
    reads_alone: AtomicBool,
    /// See [`Table::is_ours`].
    is_ours: AtomicBool,
    /// Set once the newest View does without it.
    retired: OnceLock<Retired>,
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
        if self.is_paged() {
            self.context.cache.remove_index(self.record.id);
        }
        if let Some(mut retired) = self.retired.take() {
            // Whoever removes the file at once gets its space, and who finds no bytes retired may bury all.
            let is_unmapped = std::mem::take(&mut self.mapped).unmap();
            let is_alone = is_unmapped && *self.is_ours.get_mut() && self.is_readable();
            self.file.close();
            let graveyard = &self.context.graveyard;
            if let Some(filter) = &self.record.filter {
                let path = filter_path(&self.context.dir, filter.id);
                graveyard.add(path, Retired { bytes: filter.file_bytes, ..retired });
            }
            retired.is_alone = is_alone;
            graveyard.add(std::mem::take(&mut self.path), retired);
            self.context.metrics.retired_bytes.fetch_sub(retired.bytes, Release);
        }
    }
}

impl Table {
    /// Opens the table that `record` tells of. If there is room its index is in memory from then
    /// on.
    ///
    /// # Errors
    /// `Corruption` if the file is not what the record says; `Unsupported` if it has a required
    /// section this build does not know; any error of the disk.
    pub fn open(context: &Arc<TableContext>, mut record: TableRecord) -> Result<Table> {
        let path = table_path(&context.dir, record.id);
        let pooled = context.files.file(&path, context.access);
        let file = pooled.get().map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let message = "the manifest names this table, but it is not there";
                Error::corruption(message).at_path(&path)
            }
            _ => e,
        })?;
        let sections = read_directory(&*file, &record).map_err(|e| e.at_path(&path))?;
        let (mut index, mut ranges) = (None, Ranges::default());
        for section in sections {
            if section.name.starts_with(index::SECTION_PREFIX) {
                index = Some(section);
                continue;
            }
            let bytes = read_section(&*file, &record, &section);
            if section.name == PROPERTIES {
                check_properties(&bytes.map_err(|e| e.at_path(&path))?, &record)
                    .map_err(|e| e.at_path(&path))?;
            } else if section.name == RANGES {
                let decoded = bytes.and_then(|bytes| Ranges::decode(&bytes));
                let at = |e: Error| e.at_path(&path).at_offset(section.offset);
                ranges = decoded.map_err(at)?;
            } else if section.required {
                let message = format!(
                    "table: expected sections that this build knows, found {:?}, which is required: a newer version \
                     of learnedkv wrote it: open it with that one",
                    section.name
                );
                let error = Error::new(ErrorKind::Unsupported, message);
                return Err(error.at_path(&path).at_offset(section.offset));
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
        let opened = Home::open(context, &*file, &record, index);
        let (index, _room) = opened.map_err(|e| e.at_path(&path))?;
        let (filter, _filter_room) = TableFilter::open(context, &mut record);
        let table = Table {
            record,
            path,
            file: pooled,
            filter,
            generation: OnceLock::new(),
            index,
            ranges: Arc::new(ranges),
            walked: OnceLock::new(),
            walking: Mutex::new(()),
            mapped: Mapped::default(),
            context: context.clone(),
            damage: None,
            unreadable: AtomicBool::new(false),
            reads_alone: AtomicBool::new(false),
            is_ours: AtomicBool::new(false),
            retired: OnceLock::new(),
            counted_bytes: AtomicU64::new(0),
        };
        table.count_metadata();
        Ok(table)
    }

    /// Has the metrics know what it takes by now, and the cache give up what that is more than before.
    fn count_metadata(&self) {
        loop {
            let now = self.metadata_bytes() as u64;
            let before = self.counted_bytes.swap(now, Relaxed);
            // The sum of all such differences is right, whatever order they come in; the last to look
            // sees all.
            self.context.metrics.metadata_bytes.fetch_add(now.wrapping_sub(before), Relaxed);
            self.context.cache.give_up(now.saturating_sub(before));
            if now == self.metadata_bytes() as u64 {
                return;
            }
        }
    }

    /// The generation that it belongs to: all its keys were added there.
    pub fn generation(&self) -> Option<&Arc<Generation>> {
        self.generation.get()
    }

    /// Has it belong to `generation`, to which all its keys were added, unless it belongs to one.
    pub fn join(&self, generation: Arc<Generation>) {
        let _ = self.generation.set(generation);
    }

    /// The same table with another index: one that lies, say.
    #[cfg(test)]
    pub fn with_index(self, index: impl FnOnce(Box<dyn Index>) -> Box<dyn Index>) -> Table {
        // `Drop` forbids taking fields out of `self`.
        let context = self.context.clone();
        let mut table = Table::open(&context, self.record.clone()).expect("it was open");
        table.index.replace(index);
        table
    }

    /// The first block that its index names for a key.
    #[cfg(test)]
    pub fn index_names(&self, key: &[u8]) -> u64 {
        self.with(&self.borrow(Caching::Fill).expect("an index")).index.locate(key).0
    }

    /// What the manifest says of it, but of a filter that could not be read: that is left out.
    pub fn record(&self) -> TableRecord {
        self.record.clone()
    }

    /// Its number.
    pub fn id(&self) -> TableId {
        self.record.id
    }

    /// What it shares with others.
    pub fn context(&self) -> &Arc<TableContext> {
        &self.context
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
        let behind_ranges = || {
            !self.has_unknown_ranges() && (self.properties().ranges == 0 || self.ranges.end_by(key))
        };
        behind_entries && behind_ranges()
    }

    /// What it says of a key that it has no entry of.
    #[inline]
    fn without_entry(&self, key: &[u8]) -> Lookup {
        if self.properties().ranges == 0 || !self.ranges.covers(key) {
            return Lookup::Absent;
        }
        Lookup::Removed
    }

    /// Its file, opened if need be.
    ///
    /// # Errors
    /// Those of opening it; why the table could not be opened.
    fn file(&self) -> Result<Arc<dyn File>> {
        match &self.damage {
            Some(damage) => Err(damage.clone()),
            None => self.file.get(),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64, around: bool) -> Result<()> {
        let read = self.file().and_then(|file| match around {
            true => file.read_around_at(buffer, offset_bytes),
            false => file.read_exact_at(buffer, offset_bytes),
        });
        read.map_err(|e| e.at_path(&self.path))
    }

    /// Says that somebody who wanted to write it anew could not read it.
    pub fn note_unreadable(&self) {
        self.unreadable.store(true, Relaxed);
    }

    /// Whether it can be read, as far as is known.
    pub fn is_readable(&self) -> bool {
        self.damage.is_none() && !self.unreadable.load(Relaxed)
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its index takes in the file, bytes.
    pub fn index_bytes(&self) -> u64 {
        self.index.section_bytes()
    }

    /// What it keeps in memory to find blocks, or that there is nothing to find, bytes.
    pub fn metadata_bytes(&self) -> usize {
        let walked = self.walked_before().map_or(0, Fence::size_bytes);
        let record = &self.record.properties;
        self.index.size_bytes()
            + self.mapped.size_bytes()
            + walked
            + self.filter_bytes().unwrap_or(0)
            + record.smallest.len()
            + record.largest.len()
            + self.ranges.size_bytes()
            + size_of::<Table>()
    }

    /// Says that this engine wrote the file. Of another, parts may be lent by an earlier life of the database that this one knows
    /// nothing of; or it is not the database's at all, but led to by a link.
    pub fn is_ours(&self) {
        self.is_ours.store(true, Relaxed);
    }

    /// Says that a checkpoint links the file: it is not the engine's alone, also when that is gone.
    pub fn is_shared(&self) {
        self.is_ours.store(false, Relaxed);
    }

    /// Has the file removed once nobody uses the table. It was replaced in keyspace `owner`, if in any that is there, by
    /// View `views` ([`Graveyard::next_view`](crate::sstable::Graveyard::next_view)).
    pub fn retire(&self, owner: Option<KeyspaceId>, views: u64) {
        let bytes = self.record.file_bytes;
        if self.retired.set(Retired { bytes, owner, views, is_alone: false }).is_ok() {
            self.context.metrics.retired_bytes.fetch_add(bytes, Relaxed);
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
        let found = match self.resident() {
            Some(indexed) => indexed.get(sought),
            None => self
                .borrow_for(sought.caching, &sought.reads)
                .and_then(|loan| self.with(&loan).get(sought)),
        };
        found.or_else(|error| self.get_unread(sought, error))
    }

    /// What is to be said of a key whose place is lost: that it is not there, if the filter says so, which had rested until now. (A
    /// device that fails may not, the next time.)
    #[cold]
    fn get_unread(&self, sought: &Sought<'_>, error: Error) -> Result<Lookup> {
        let is_lost = error.is_corruption() || self.damage.is_some();
        if !is_lost || self.has_unknown_ranges() || !self.refuses_at_rest(sought) {
            return Err(error);
        }
        sought.refuse();
        Ok(self.without_entry(sought.key()))
    }

    /// It will be asked for the key soon.
    pub fn expect(&self, sought: &Sought<'_>) {
        self.filter.fetch_ahead(sought);
    }

    /// Whether no entry has the key for certain; nothing is read to say so. The filter is asked first:
    /// whoever comes here is mostly within the table's keys.
    fn excludes(&self, sought: &Sought<'_>) -> bool {
        if self.filter.refuses(sought) && !self.has_unknown_ranges() {
            sought.refuse();
            return true;
        }
        let (properties, probe) = (&self.record.properties, Probe::new(sought.key()));
        let is_outside = probe.compare(&properties.smallest).is_lt()
            || probe.compare(&properties.largest).is_gt();
        is_outside && !self.has_unknown_ranges()
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
            sought.miss();
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

    /// How many blocks it has.
    pub fn block_count(&self) -> u64 {
        self.record.properties.blocks
    }

    /// The walk over its blocks, if there was one and it found them.
    fn walked_before(&self) -> Option<&Fence> {
        self.walked.get()?.as_ref().ok()
    }

    /// The walk over its blocks. A read that fails says nothing of them: the next one walks again.
    fn walked(&self) -> Result<&Fence> {
        if let Some(walked) = self.walked.get() {
            return walked.as_ref().map_err(Clone::clone);
        }
        let _one_at_a_time = self.walking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.walked.get().is_none() {
            self.context.metrics.rebuilt_indexes.fetch_add(1, Relaxed);
            let walked = self.file().and_then(|file| walk(&*file, &self.record));
            let walked = walked.map_err(|e| e.at_path(&self.path));
            if let Err(e) = &walked
                && !e.is_corruption()
            {
                return Err(e.clone());
            }
            let _ = self.walked.set(walked);
            self.count_metadata();
        }
        let walked = self.walked.get_or_init(|| unreachable!("it was set above"));
        walked.as_ref().map_err(Clone::clone)
    }
}
