//! Options of a database and of a keyspace, each written as a decision: what it means, its default,
//! when to change it and when not to.

mod derived;
mod persisted;
mod single;
mod sizes;

use std::time::Duration;

pub(crate) use self::derived::Apart;
pub use self::single::{ReadOptions, WriteOptions};
pub(crate) use self::sizes::Sizes;
use crate::error::{Error, Result};
use crate::format::compression::Compression;
use crate::sstable::filter::FilterKind;
use crate::sstable::index::IndexKind;

/// When a write is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// The default. **An acknowledged write survives the death of the process, but a crash of the
    /// machine or a power cut may lose the latest ones** (never out of order: what is left is the
    /// state after some acknowledged write). Use it where the last moments can be had again.
    #[default]
    Buffered,
    /// As [`Durability::Buffered`], and the log is synced at most so long after each write: a power cut
    /// loses the writes of the last so many milliseconds at most, and of the time that a sync and a step
    /// of background work take (with a device of its own some milliseconds). All writes of one
    /// period share a sync; a database that is not written to does nothing. Of one write
    /// ([`WriteOptions`]) it says by when this write, with all before it, is durable.
    /// Use it where a few lost moments can be borne, but not an unknown number of them.
    SyncedEvery(Duration),
    /// An acknowledged write survives a power cut: each commit waits for the log to be synced,
    /// together with all commits that wait at the same time. Use it for money; expect a device
    /// sync's time for each commit of a single writer.
    Synced,
}

/// Options of a database. They are not persisted: each open says them anew.
#[derive(Debug, Clone)]
pub struct DatabaseOptions {
    /// All memory the database may use: memtables, indexes, cache.
    pub memory_budget_bytes: u64,
    /// How much of it metadata may take, as far as it can be done without.
    pub metadata_percent: u64,
    /// How large a memtable grows before it is flushed.
    pub memtable_bytes: usize,
    /// How large a log segment is.
    pub log_segment_bytes: u64,
    /// How large the log may get before a keyspace is flushed for its sake; none: as memtables and segments ask.
    pub max_log_bytes: Option<u64>,
    /// When a write is durable.
    pub durability: Durability,
    /// Whether tables are read around the page cache.
    pub direct_reads: bool,
    /// Whether tables in the page cache are read there.
    pub mapped_reads: bool,
    /// Whether blocks are cached at all.
    pub block_cache: bool,
    /// Whether a directory without a database gets one.
    pub create_if_missing: bool,
    /// Whether settling starts by itself.
    pub automatic_conversion: bool,
    /// Whether steps of sweeps are begun ahead of one another though no writer is held back.
    pub sweeps_ahead: bool,
    /// How many bytes a second merges, sweeps and compactions may write together; none: as many as they can.
    pub background_bytes_per_s: Option<u64>,
    /// From which length on a value does not pass the log but gets a file of its own.
    pub stream_at: u64,
    /// Whether nothing is written, whatever happens.
    pub read_only: bool,
    /// Whether what is left is read where the log is damaged; then it is for reading only.
    pub salvage: bool,
    /// How much room on the disk is held back for when it is full; none: as the data asks.
    pub ballast_bytes: Option<u64>,
    /// How many files of tables and value segments are kept open; none: as the process may.
    pub max_open_files: Option<usize>,
}

impl Default for DatabaseOptions {
    fn default() -> DatabaseOptions {
        DatabaseOptions {
            memory_budget_bytes: 512 << 20,
            metadata_percent: 50,
            memtable_bytes: 32 << 20,
            log_segment_bytes: 32 << 20,
            max_log_bytes: None,
            durability: Durability::Buffered,
            direct_reads: false,
            mapped_reads: true,
            block_cache: true,
            create_if_missing: true,
            automatic_conversion: true,
            sweeps_ahead: false,
            background_bytes_per_s: None,
            stream_at: 1 << 20,
            read_only: false,
            salvage: false,
            ballast_bytes: None,
            max_open_files: None,
        }
    }
}

/// So many files of tables and value segments are kept open, unless the process may open few.
const MAX_OPEN_FILES: usize = 512;

/// How many memtables of a keyspace may wait to be flushed before writers wait for them.
pub const MAX_SEALED: usize = 2;

/// Of a small disk memtables and log segments take so many-th a part at most: two such parts are what flushes have of the room
/// that is held back for when it is full (an eighth of the disk, half of it for flushes).
const DISK_SHARES: u64 = 32;
/// They are no smaller for that.
const LEAST_SHARE_BYTES: u64 = 64 << 10;

impl DatabaseOptions {
    /// The same for a database on a disk of so many bytes in all. Where a memtable is as large as what a full disk has held back
    /// its flush found no room, whatever was removed.
    pub fn on_disk_of(mut self, disk_bytes: Option<u64>) -> DatabaseOptions {
        if let Some(disk_bytes) = disk_bytes.filter(|_| self.ballast_bytes.is_none()) {
            let share = (disk_bytes / DISK_SHARES).max(LEAST_SHARE_BYTES);
            self.memtable_bytes = self.memtable_bytes.min(share as usize);
            self.log_segment_bytes = self.log_segment_bytes.min(share);
        }
        self
    }

    /// What is left for the block cache once memtables and metadata have their part. Of the
    /// memtables count the sealed ones and, full, the active one.
    pub fn cache_bytes(&self, sealed_bytes: u64, metadata_bytes: u64) -> u64 {
        if !self.block_cache {
            return 0;
        }
        let taken = sealed_bytes + self.memtable_bytes as u64 + metadata_bytes;
        self.memory_budget_bytes.saturating_sub(taken).max(self.least_cache_bytes())
    }

    /// What the block cache has at least: a sixteenth of the budget, and not more than a MiB.
    fn least_cache_bytes(&self) -> u64 {
        (self.memory_budget_bytes / 16).min(1 << 20)
    }

    /// How much metadata may take, as far as it can be done without.
    pub fn max_metadata_bytes(&self) -> u64 {
        self.memory_budget_bytes * self.metadata_percent / 100
    }

    /// How much metadata may take for a filter that a keyspace asks for (by default those of runs) to come into memory with
    /// its table: what indexes may, but for an eighth; and an eighth of the budget even where indexes may have none, for without
    /// them each lookup reads a block of every run.
    pub fn max_filtered_bytes(&self) -> u64 {
        let most_bytes = self.max_metadata_bytes();
        (most_bytes - most_bytes / 8).max(self.memory_budget_bytes / 8)
    }

    /// How much the memtables of all keyspaces may take together before some are flushed early: a quarter
    /// of the budget, and no less than one keyspace may fill by itself.
    pub fn all_memtables_bytes(&self) -> u64 {
        let one = (MAX_SEALED as u64 + 2) * self.memtable_bytes as u64;
        one.max(self.memory_budget_bytes / 4)
    }

    /// How much memory memtables may take that only snapshots keep before it is looked whether writing them
    /// to files is worth it: an eighth of the budget. At half of the budget it is done at any price.
    pub fn pinned_bytes(&self) -> u64 {
        self.memory_budget_bytes / 8
    }

    /// How large the log may get before a keyspace is flushed for its sake.
    pub fn max_log_bytes(&self) -> u64 {
        let memtables = (MAX_SEALED as u64 + 1) * self.memtable_bytes as u64;
        self.max_log_bytes.unwrap_or(4 * memtables.max(self.log_segment_bytes))
    }

    /// The least that may be asked for: with less each segment that ends would have all flushed.
    fn least_log_bytes(&self) -> u64 {
        2 * self.log_segment_bytes.max(self.memtable_bytes as u64)
    }

    /// How many files of tables and value segments are kept open at most, in a process that may have so many
    /// open; `None`: nobody knows.
    pub fn max_open_files(&self, of_process: Option<u64>) -> usize {
        // A file that is read around the page cache is open twice; half is left to all else.
        let quarter = of_process.map_or(usize::MAX, |most| most as usize / 4);
        self.max_open_files.unwrap_or(MAX_OPEN_FILES.min(quarter))
    }

    /// Checks that the options can work together.
    ///
    /// # Errors
    /// `InvalidArgument` naming the option, what is allowed and what was found.
    pub fn check(&self) -> Result<()> {
        within("memtable_bytes", self.memtable_bytes as u64, 4 << 10, 4 << 30)?;
        within("log_segment_bytes", self.log_segment_bytes, 4 << 10, 1 << 30)?;
        let least_log = self.least_log_bytes();
        within("max_log_bytes", self.max_log_bytes.unwrap_or(least_log), least_log, 1 << 50)?;
        within("memory_budget_bytes", self.memory_budget_bytes, 64 << 10, 1 << 50)?;
        within("metadata_percent", self.metadata_percent, 0, 100)?;
        within("ballast_bytes", self.ballast_bytes.unwrap_or(0), 0, 1 << 50)?;
        within("max_open_files", self.max_open_files.unwrap_or(1) as u64, 1, 1 << 30)?;
        within(
            "background_bytes_per_s",
            self.background_bytes_per_s.unwrap_or(1 << 50),
            64 << 10,
            1 << 50,
        )?;
        within("stream_at", self.stream_at, 1, 256 << 20)?;
        let least = (MAX_SEALED as u64 + 2) * self.memtable_bytes as u64;
        if self.memory_budget_bytes < least {
            return Err(Error::invalid(format!(
                "memory_budget_bytes: expected at least {least} (four memtables of {} bytes), found {}",
                self.memtable_bytes, self.memory_budget_bytes
            )));
        }
        Ok(())
    }
}

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name}: expected {least} to {most}, found {value}")))
}

/// How a keyspace keeps its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Store {
    /// The default: fresh writes in a few runs, all else settled into partitions with learned indexes,
    /// where a cold read is one request. Settling rewrites partitions as garbage asks for it.
    #[default]
    Tiered,
    /// Levels, each some times as large as the one above, kept within their sizes by compactions all the
    /// time, several at once. Choose it for steady writes of short values whose garbage must go soon,
    /// and to compare; a lookup asks a filter per level.
    Lsm,
}

impl Store {
    /// All of them.
    pub const ALL: &'static [Store] = &[Store::Tiered, Store::Lsm];

    /// The name that stands in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Store::Tiered => "tiered",
            Store::Lsm => "lsm",
        }
    }

    /// The store of that name.
    ///
    /// # Errors
    /// `InvalidArgument` naming those there are.
    pub fn from_text(text: &str) -> Result<Store> {
        let found = Store::ALL.iter().find(|store| store.name() == text);
        let names = || Store::ALL.iter().map(|s| s.name()).collect::<Vec<_>>().join(" or ");
        let unknown = || Error::invalid(format!("expected a store, {}; found {text:?}", names()));
        found.copied().ok_or_else(unknown)
    }
}

/// A store that was chosen, or none. They are the same where a new keyspace gets the same. (Who names none may open one of any.)
#[derive(Debug, Clone, Copy, Default)]
struct Chosen(Option<Store>);

impl PartialEq for Chosen {
    fn eq(&self, other: &Chosen) -> bool {
        self.0.unwrap_or_default() == other.0.unwrap_or_default()
    }
}

impl Eq for Chosen {}

/// Options of a keyspace, chosen when it is created and persisted with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct KeyspaceOptions {
    store: Chosen,
    level_base_bytes: u64,
    level_multiplier: u64,
    block_bytes: u64,
    partition_bytes: u64,
    delta_limit_percent: u64,
    min_conversion_bytes: u64,
    over_provision_percent: u64,
    lsm_ratio_percent: u64,
    settle_for_reads: bool,
    separate_at: u64,
    inline_limit: u64,
    move_values: bool,
    lsm_index: IndexKind,
    settled_index: IndexKind,
    lsm_compression: Compression,
    settled_compression: Compression,
    lsm_filter: Option<FilterKind>,
    settled_filter: Option<FilterKind>,
    attach_filters: bool,
    disk: sizes::OnDisk,
}

impl Default for KeyspaceOptions {
    fn default() -> KeyspaceOptions {
        KeyspaceOptions {
            store: Chosen::default(),
            level_base_bytes: 128 << 20,
            level_multiplier: 10,
            block_bytes: 4096,
            partition_bytes: 64 << 20,
            delta_limit_percent: 25,
            min_conversion_bytes: 512 << 20,
            over_provision_percent: 30,
            lsm_ratio_percent: 100,
            settle_for_reads: true,
            separate_at: 512,
            inline_limit: 16 << 10,
            move_values: true,
            lsm_index: IndexKind::Exact,
            settled_index: IndexKind::Exact,
            lsm_compression: Compression::None,
            settled_compression: Compression::None,
            lsm_filter: Some(FilterKind::BlockedBloom { bits_per_key: 10 }),
            settled_filter: None,
            attach_filters: true,
            disk: sizes::OnDisk::default(),
        }
    }
}

impl KeyspaceOptions {
    /// How the keyspace keeps its tables; [`Store::Tiered`] by default. It cannot be changed later: a
    /// keyspace that was made with another store than the one asked for here is not opened.
    ///
    /// In a keyspace of [`Store::Lsm`] the options `lsm_*` are of all levels but the last, which has those
    /// named `settled_*`; tables are as large as partitions would be; `delta_limit_percent`, `inline_limit`,
    /// `move_values` and `lsm_ratio_percent` mean nothing.
    pub fn store(mut self, store: Store) -> Self {
        self.store = Chosen(Some(store));
        self
    }

    /// How large the highest level in use gets at most before one above it is used too, and so how much
    /// fresh data is merged into it at once, bytes; 128 MiB by default. Only in [`Store::Lsm`]. Set it
    /// to four memtables, if these are not of 32 MiB (nor are they in a memory budget below 256 MiB). On a small disk it is a sixteenth of it at most, unless the
    /// database has `ballast_bytes` set.
    pub fn level_base_bytes(mut self, bytes: u64) -> Self {
        self.level_base_bytes = bytes;
        self
    }

    /// How many times as large each level is as the one above it; 10 by default. Only in
    /// [`Store::Lsm`]. Smaller ones write less in each of more levels, and leave more garbage: about
    /// one part in `level_multiplier` - 1.
    pub fn level_multiplier(mut self, times: u64) -> Self {
        self.level_multiplier = times;
        self
    }

    /// How large a data block may get, bytes; 4,096 by default. Larger blocks need less metadata
    /// and more time per cold read; smaller ones than a page of the device gain nothing. Of entries without values of their own
    /// (kept apart, or removed) a block that is not compressed holds some 20 at most.
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// How large a settled partition gets, bytes; 64 MiB by default. A sweep step rewrites about
    /// one: smaller ones make steps (and the space they need) smaller, and files more. The first and the last key of each
    /// table stay in memory, and where a partition begins: where keys take KiB, keep partitions a thousand times as large.
    /// On a small disk one takes a sixteenth of it at most, a table of [`Store::Lsm`] a 256th, unless the database has
    /// `ballast_bytes` set.
    pub fn partition_bytes(mut self, bytes: u64) -> Self {
        self.partition_bytes = bytes;
        self
    }

    /// How large a partition's delta table may get before the base is rewritten, percent of the base, and how much
    /// of the base it may replace; 25 by default. Five sixths of `over_provision_percent` at most: what deltas replace
    /// is garbage. A sweep that is due for what reads paid alone ([`settle_for_reads`](Self::settle_for_reads)) may leave one twice as
    /// large, if it replaces no more.
    pub fn delta_limit_percent(mut self, percent: u64) -> Self {
        self.delta_limit_percent = percent;
        self
    }

    /// How large the LSM part gets at least before it is settled by itself, or what it overwrites and removes;
    /// 512 MiB by default. Set it to sixteen memtables, if these are not of 32 MiB (nor are they in a memory budget below 256 MiB). On a small disk it is a sixteenth of it at
    /// most, unless the database has `ballast_bytes` set.
    pub fn min_conversion_bytes(mut self, bytes: u64) -> Self {
        self.min_conversion_bytes = bytes;
        self
    }

    /// How much garbage there may be before a sweep begins by itself, percent of the settled bytes that stay; 30
    /// by default. A value segment is emptied where more of it than that is dead, percent of its live bytes. Garbage is what fresh entries overwrite in the settled run and in each other, what delta tables
    /// replace, and dead bytes of value segments. Less of it costs more rewriting: each byte put is written about
    /// 1 + 100 / `over_provision_percent` times more if keys are updated evenly.
    pub fn over_provision_percent(mut self, percent: u64) -> Self {
        self.over_provision_percent = percent;
        self
    }

    /// How large the LSM part may get before a sweep begins by itself, percent of the settled bytes;
    /// 100 by default. It matters where keys are new: there is no garbage then.
    pub fn lsm_ratio_percent(mut self, percent: u64) -> Self {
        self.lsm_ratio_percent = percent;
        self
    }

    /// Whether fresh data is also settled, however little it is, once reads of it have cost as much more as settling it does:
    /// those that asked the device for more than they would have asked it of settled data (a value that still stands apart from
    /// its key takes a request more), and those that took longer in memory (a scan goes through each run, a get asks the filter of
    /// each; counted as shares of a request). Before that runs are made one, once reads over several have paid for it, where that
    /// costs a small part of what settling does. True by default; without it such reads stay as they are until one of the reasons
    /// above comes, and as little as possible is written.
    pub fn settle_for_reads(mut self, settle: bool) -> Self {
        self.settle_for_reads = settle;
        self
    }

    /// From which length on a fresh value is kept apart from its key, in a value segment, bytes; 512
    /// by default. Merges then move pointers instead of values, and a read of a fresh value costs one
    /// request more. Lower it for heavy updates of small values, raise it where fresh data is mostly
    /// scanned.
    pub fn separate_at(mut self, bytes: u64) -> Self {
        self.separate_at = bytes;
        self
    }

    /// Up to which length a settled value stands in the blocks beside its key, bytes; 16 KiB by
    /// default. Such a value is read by one request; a longer one takes two, but is not written again
    /// by every sweep over its key. Lower it where values of some KiB are overwritten often and
    /// seldom read.
    pub fn inline_limit(mut self, bytes: u64) -> Self {
        self.inline_limit = bytes;
        self
    }

    /// Whether sweeps move values up to the inline limit into the settled blocks; true by default.
    /// Without it every separated value stays where its flush wrote it, and costs two requests for
    /// ever: the form of the LearnedKV paper, for experiments.
    pub fn move_values(mut self, moves: bool) -> Self {
        self.move_values = moves;
        self
    }

    /// The index of fresh tables.
    pub fn lsm_index(mut self, kind: IndexKind) -> Self {
        self.lsm_index = kind;
        self
    }

    /// The index of settled tables.
    pub fn settled_index(mut self, kind: IndexKind) -> Self {
        self.settled_index = kind;
        self
    }

    /// How the blocks of fresh tables are compressed, and values apart from their keys that a sweep will
    /// move into settled blocks; not at all by default. Fresh data is written once by a flush and again by
    /// a merge or two, soon to be settled: what is saved is saved for a short time. Choose lz4 where
    /// writing to the device is what limits.
    pub fn lsm_compression(mut self, compression: Compression) -> Self {
        self.lsm_compression = compression;
        self
    }

    /// How the blocks of settled tables are compressed, and values that stay apart from their keys for good:
    /// those above `inline_limit`, with [`Store::Lsm`] all from `separate_at` on, and streamed ones
    /// (`Builder::stream_at`). Not at all by default, since the store does
    /// not know whether values are text or compressed already, and a cold read costs the same one
    /// request either way. With compressible values lz4 costs about a microsecond a block read from
    /// the disk, nothing for blocks in the cache, and saves space and the sweeps' writing; zstd saves
    /// more, for several times that. Larger blocks (`block_bytes`) compress better.
    ///
    /// A value apart is compressed alone, by the flush that writes it (a streamed one by whoever puts it): one
    /// of 1 KiB by less than a block of such values, one of 16 KiB by more. It is not cached: each read
    /// decompresses it, into memory of its own. `zstd` at high levels makes flushes slow where many
    /// values are long.
    pub fn settled_compression(mut self, compression: Compression) -> Self {
        self.settled_compression = compression;
        self
    }

    /// Sets both [`KeyspaceOptions::lsm_compression`] and [`KeyspaceOptions::settled_compression`].
    pub fn compression(self, compression: Compression) -> Self {
        self.lsm_compression(compression).settled_compression(compression)
    }

    /// The filter of fresh tables; blocked Bloom with 10 bits a key by default. Lookups ask each run in
    /// turn, so without it a lookup of a settled or absent key reads a block of each. It is in memory, as far as metadata
    /// has room ([`crate::Builder::metadata_percent`]); give it up only where nobody looks single keys up before they are settled.
    pub fn lsm_filter(mut self, kind: Option<FilterKind>) -> Self {
        self.lsm_filter = kind;
        self
    }

    /// The filter of settled tables; none by default: a settled key is found by one read without it.
    /// Where many lookups are of absent keys, it saves their read for about nine bits of memory a key;
    /// see also [`KeyspaceOptions::attach_filters`].
    pub fn settled_filter(mut self, kind: Option<FilterKind>) -> Self {
        self.settled_filter = kind;
        self
    }

    /// Whether settled tables for which `settled_filter` asks none get one that rests in its file (blocked
    /// Bloom, 10 bits a key): it comes into memory once lookups of absent keys have cost as much as that
    /// does, unless metadata would then take more than half the memory budget. True by default; without it
    /// bulk loads and sweeps of very small entries are somewhat faster, and an absent key costs a read.
    pub fn attach_filters(mut self, attach: bool) -> Self {
        self.attach_filters = attach;
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    /// `InvalidArgument` naming the option, what is allowed and what was found.
    pub fn check(&self) -> Result<()> {
        for (name, filter) in
            [("lsm_filter", self.lsm_filter), ("settled_filter", self.settled_filter)]
        {
            let checked = filter.map_or(Ok(()), FilterKind::check);
            checked.map_err(|e| Error::invalid(format!("{name}: {e}")))?;
        }
        within("level_base_bytes", self.level_base_bytes, 64, 1 << 40)?;
        within("level_multiplier", self.level_multiplier, 2, 100)?;
        within("block_bytes", self.block_bytes, 256, 1 << 20)?;
        within("partition_bytes", self.partition_bytes, 4 << 10, 4 << 30)?;
        within("delta_limit_percent", self.delta_limit_percent, 0, 100)?;
        within("min_conversion_bytes", self.min_conversion_bytes, 0, 1 << 50)?;
        within("over_provision_percent", self.over_provision_percent, 1, 1000)?;
        within("lsm_ratio_percent", self.lsm_ratio_percent, 1, 10_000)?;
        within("separate_at", self.separate_at, 1, 1 << 20)?;
        within("inline_limit", self.inline_limit, 0, 1 << 20)?;
        for (name, compression) in [
            ("lsm_compression", self.lsm_compression),
            ("settled_compression", self.settled_compression),
        ] {
            compression.check().map_err(|e| Error::invalid(format!("{name}: {e}")))?;
        }
        Ok(())
    }

    /// The store; where nothing was said, the default.
    pub fn chosen_store(&self) -> Store {
        self.store.0.unwrap_or_default()
    }

    /// Whether a keyspace made with `self` is one that `asked` may open.
    ///
    /// # Errors
    /// `InvalidArgument` if another store was asked for.
    pub(crate) fn check_same_store(&self, asked: &KeyspaceOptions) -> Result<()> {
        let made = self.chosen_store();
        match asked.store.0 {
            Some(asked) if asked != made => Err(Error::invalid(format!(
                "expected the store {} that the keyspace was made with, found {}: a store is chosen \
                 once; copy the entries into a new keyspace to change it",
                made.name(),
                asked.name()
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two memtables, a log segment and a step of a sweep find room in what a full disk has held back, an eighth of it.
    #[test]
    fn memtables_and_log_segments_are_small_on_a_small_disk() {
        let of = |disk_bytes, options: DatabaseOptions| {
            let options = options.on_disk_of(disk_bytes);
            options.check().unwrap();
            (options.memtable_bytes as u64, options.log_segment_bytes)
        };
        let usual = (32 << 20, 32 << 20);
        for (disk_bytes, expected) in [
            (None, usual),
            (Some(1 << 40), usual),
            (Some(1 << 30), usual),
            (Some(256 << 20), (8 << 20, 8 << 20)),
            (Some(1 << 20), (64 << 10, 64 << 10)),
        ] {
            assert_eq!(of(disk_bytes, DatabaseOptions::default()), expected, "{disk_bytes:?}");
        }
        // Whoever says what is held back says what fits it; and none becomes larger.
        let said = DatabaseOptions { ballast_bytes: Some(0), ..DatabaseOptions::default() };
        assert_eq!(of(Some(1 << 20), said), usual);
        let small = DatabaseOptions { memtable_bytes: 16 << 10, ..DatabaseOptions::default() };
        assert_eq!(of(Some(256 << 20), small), (16 << 10, 8 << 20));
    }
}
