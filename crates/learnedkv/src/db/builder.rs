//! How databases are opened, and checked.

use std::path::PathBuf;
use std::sync::Arc;

use super::Database;
use crate::disk::Disk;
use crate::disk::real::RealDisk;
use crate::engine::open;
use crate::error::{Error, Result};
use crate::executor::{Executor, ThreadExecutor};
use crate::lsm;
use crate::options::{DatabaseOptions, Durability};
use crate::tiered;
use crate::verify::{Verified, Verifying, verify};

/// One for what writers wait for, two for the rest, which waits for the disk half of its time.
const BACKGROUND_THREADS: usize = 3;

/// Of the memory budget a memtable takes so many-th a part at most, unless its size is said: with those that wait to be flushed they
/// take three such parts, and leave the rest to metadata and cache.
const MEMTABLE_SHARES: u64 = 8;
/// The least that may be said, bytes: so that a budget that is too small is refused by its own name.
const LEAST_MEMTABLE_BYTES: u64 = 4 << 10;

/// How large memtables get whose size was not said, bytes.
fn memtable_bytes_for(options: &DatabaseOptions) -> usize {
    let share = (options.memory_budget_bytes / MEMTABLE_SHARES).max(LEAST_MEMTABLE_BYTES);
    options.memtable_bytes.min(usize::try_from(share).unwrap_or(usize::MAX))
}

/// Says how a database is opened.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    path: PathBuf,
    options: DatabaseOptions,
    /// As it was said; none: by the budget.
    memtable_bytes: Option<usize>,
    disk: Option<Arc<dyn Disk>>,
    executor: Option<Arc<dyn Executor>>,
    background_threads: usize,
}

impl Builder {
    /// One with default options, of the database in directory `path`.
    pub(super) fn new(path: PathBuf) -> Builder {
        Builder {
            path,
            options: DatabaseOptions::default(),
            memtable_bytes: None,
            disk: None,
            executor: None,
            background_threads: BACKGROUND_THREADS,
        }
    }

    /// All memory the database may use, bytes: memtables, indexes, cache; 512 MiB by default, 64 KiB at least. Where the size of
    /// memtables is said too, it must hold four of them. Give it what the machine can spare: what the memtables
    /// and the (small) metadata leave is cache.
    pub fn memory_budget_bytes(mut self, bytes: u64) -> Self {
        self.options.memory_budget_bytes = bytes;
        self
    }

    /// How large a memtable grows before it is flushed, bytes; 32 MiB by default, but an eighth of the memory budget at most, and of the
    /// disk a 32nd part at most, so that a full one can be emptied (this also where it is said, but not with [`Builder::ballast_bytes`]). Larger ones make fewer, larger runs and hold more of a skewed update load; they also make recovery longer.
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = Some(bytes);
        self
    }

    /// How large a segment of the log gets, bytes; 32 MiB by default, and of the disk as much at most as a memtable. The first
    /// after an open is a 32nd of that, each after it four times as large as the one before.
    pub fn log_segment_bytes(mut self, bytes: u64) -> Self {
        self.options.log_segment_bytes = bytes;
        self
    }

    /// How large the log may get, bytes, before keyspaces are flushed for its sake: those whose oldest write it is kept for, though
    /// their memtables are not full. By default four times what a keyspace's memtables or a segment take, whichever is more: 384
    /// MiB. At least two memtables or segments. Less makes an open after a crash quicker, and a log on a small disk shorter; more
    /// lets keyspaces that are seldom written to gather more before they are flushed. The log is longer while these
    /// are flushed, and where a keyspace's own memtables wait for that; files that are kept to be used again are beside it.
    pub fn max_log_bytes(mut self, bytes: u64) -> Self {
        self.options.max_log_bytes = Some(bytes);
        self
    }

    /// When a write is durable. **The default is [`Durability::Buffered`]: writes survive the death
    /// of the process, not that of the machine.**
    pub fn durability(mut self, durability: Durability) -> Self {
        self.options.durability = durability;
        self
    }

    /// Reads tables around the operating system's page cache, where that is possible; off by
    /// default. For measuring, and for machines whose page cache belongs to others.
    pub fn direct_reads(mut self, direct: bool) -> Self {
        self.options.direct_reads = direct;
        self
    }

    /// How much of the memory budget metadata may take, 0 to 100 percent; 50 by default. Tables
    /// that are opened when indexes and filters take more do not keep their index
    /// (`stats().paged_tables`): it is read when it is needed, one request more, and kept in the
    /// cache beside the blocks (docs/decisions/0024). Filters leave an eighth of it to indexes, and are not in
    /// memory where that has no room (`filters_without_room` of a keyspace's statistics); those of runs may take an eighth of the
    /// budget in any case (docs/decisions/0050). Less makes sense where a store is much larger
    /// than memory and few of its keys are hot: then use decides which indexes are in memory, and
    /// not which table came first. More: where reads are spread evenly.
    pub fn metadata_percent(mut self, percent: u64) -> Self {
        self.options.metadata_percent = percent;
        self
    }

    /// How many files of tables and value segments are kept open at most; 512 by default, or a quarter of what
    /// the process may have open (`ulimit -n`), if that is less: one that is read around the page cache is
    /// open twice. What was not used lately is closed, and opened again when it is read, some
    /// microseconds. A database may have any number of files. A few more are open:
    /// the log's, those that background work reads and writes, and those a call is reading (as many at most, and 64). Where the
    /// process may open no more all the same, half of them are closed, and so few are kept for a while.
    pub fn max_open_files(mut self, most: usize) -> Self {
        self.options.max_open_files = Some(most);
        self
    }

    /// Reads blocks where the operating system holds them, in its page cache, by mapping tables into
    /// memory; on by default. A block is mapped once a read brought it there and found its checksum
    /// right; where the system drops pages, blocks are read and cached again (docs/decisions/0021). Compressed blocks are
    /// decompressed from there into the cache. Only on
    /// Linux, and file systems whose mappings fail with the device alone (ext2 to ext4, XFS).
    ///
    /// A device that fails while a mapped page is brought back ends the process (`SIGBUS`), where a read
    /// would return an error: turn it off where that is worse than hot gets at some 40 % of the speed. Mapped
    /// pages are the system's: they are not part of the memory budget. Values that stand apart, up to 256 KiB, are read
    /// there too, longer ones than 16 KiB where the system holds all of one and this process may write to the file: one that
    /// is held keeps its file on the disk, also when a sweep has emptied it, so copy what is kept for long.
    pub fn mapped_reads(mut self, on: bool) -> Self {
        self.options.mapped_reads = on;
        self
    }

    /// Whether blocks are cached in memory; on by default. Off only for measuring.
    pub fn block_cache(mut self, on: bool) -> Self {
        self.options.block_cache = on;
        self
    }

    /// Whether a directory without a database gets one; on by default.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.options.create_if_missing = create;
        self
    }

    /// Whether fresh data is settled by itself once there is much of it; on by default. Where it is
    /// off, [`Keyspace::convert`](crate::Keyspace::convert) settles, and on a full disk what is removed ([`Builder::ballast_bytes`]).
    pub fn automatic_conversion(mut self, automatic: bool) -> Self {
        self.options.automatic_conversion = automatic;
        self
    }

    /// Whether two threads settle a keyspace at once also where no writer is held back for it; off by default. A
    /// conversion is over sooner then, and takes a processor more, which whoever reads meanwhile does without. Nor do merges
    /// and sweeps leave the program a processor then.
    pub fn sweeps_ahead(mut self, always: bool) -> Self {
        self.options.sweeps_ahead = always;
        self
    }

    /// How many bytes a second merges, sweeps and compactions may write, those of all keyspaces together; by default as many as they
    /// can, 64 KiB at least. For a device that others need, too. Flushes, which writers wait for, and the log are not in it.
    /// Whoever puts more than that lets settle is slowed, sooner or later: what is put is written some three times
    /// more ([`crate::Stats::write_amplification`] says how often), and a conversion takes as long as its
    /// bytes do. Choose it so that it settles what is put: each writer is slowed to 100 kB a second at most, and where
    /// that is still too much space grows beyond its ceiling. While a full disk refuses puts there is no limit, for
    /// then this is what makes room (not so without a ballast: [`Builder::ballast_bytes`]).
    pub fn background_bytes_per_s(mut self, bytes: u64) -> Self {
        self.options.background_bytes_per_s = Some(bytes);
        self
    }

    /// From which length on, bytes, a value does not pass the log but is written to a file of its own, and
    /// synced, before the log points at it; 1 MiB by default, 256 MiB at most. A shorter value is copied
    /// to the log, to memory and at the flush; a longer one is written once, and costs a sync and a file.
    pub fn stream_at(mut self, bytes: u64) -> Self {
        self.options.stream_at = bytes;
        self
    }

    /// Opens for reading only; off by default. Not a byte of the directory is changed, and it may lie on
    /// a file system that takes no writes. Writes are refused (`ReadOnly`).
    ///
    /// What an earlier process left in the log is read into memory, and stays there. Any number of
    /// processes may read at once, but not while one has the database open for writing: the lock file is
    /// held together by readers, and by a writer alone. (A copy of a database needs its `LOCK`, which
    /// is empty.)
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.options.read_only = read_only;
        self
    }

    /// Opens for reading only what is left of a database of which part of the log is damaged or missing; off by default. Otherwise such a database is
    /// not opened (`Corruption`): put back what is missing, or restore it from a backup, if there is one.
    ///
    /// Of the log counts what stands before the damage, which [`OpenReport::log_damage`](crate::OpenReport::log_damage) tells; of what was put behind that, what
    /// had come to tables. So keys may be missing, others have older values or may be there though they were removed, and of a batch there may be a
    /// part. (Damaged tables and value segments need none of this: [`OpenReport::damaged_tables`](crate::OpenReport::damaged_tables). Of those files one that the disk does not
    /// give counts as damaged here.) To go on with what is left, put it into a new database; this ends at the first entry that cannot be read:
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-salvage-{}", std::process::id()));
    /// # Database::open(dir.join("damaged"))?.keyspace("fruit", KeyspaceOptions::default())?.insert("apple", "red")?;
    /// let left = Database::builder(dir.join("damaged")).salvage(true).open()?;
    /// if let Some(damage) = &left.open_report().log_damage {
    ///     eprintln!("{damage}");
    /// }
    /// let new = Database::open(dir.join("new"))?;
    /// for name in left.keyspace_names() {
    ///     let Some(from) = left.find(&name) else { continue };
    ///     let to = new.keyspace(&name, from.options().clone())?;
    ///     for entry in from.iter() {
    ///         let (key, value) = entry?;
    ///         to.insert(key, value)?;
    ///     }
    /// }
    /// # assert_eq!(new.find("fruit").unwrap().get("apple")?.as_deref(), Some(&b"red"[..]));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.options.salvage = salvage;
        self
    }

    /// How many threads do background work; 3 by default, 2 at least: one for flushes, which writers wait for, the
    /// others for the rest: what settles, and beside it what makes log segments and removes files, which waits
    /// for the disk more than it computes. More let compactions of keyspaces of [`crate::Store::Lsm`] run
    /// side by side, up to three at once; give them where there are cores to spare. While no writer pays, merges and sweeps
    /// of the tiered store leave the program one processor: on one or two they go on slowly beside flushes. 1,024 at most: [`Builder::open`] refuses more.
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = threads;
        self
    }

    /// How much room on the disk is held back, bytes, so that a full disk stops puts cleanly while
    /// removals, flushes and conversions can go on to make room. By default two partitions' size (128 MiB),
    /// but no more than the tables and what was put into a memtable take, and an eighth of the disk at most; about 2 MiB
    /// besides are held for the next open. 0 holds nothing back, not even for an open: choose it where
    /// the disk cannot become full, or somebody sees to it. Bytes are held back, no files: a file system that has no inode left refuses
    /// new tables whatever else is done. While the disk is full a removal now and then waits until what was
    /// removed so far is settled: each time that they have taken an eighth of what is held back. What takes less than that (a range, a few
    /// long values) is settled in the background some two seconds after a put was refused, once nobody removes any more, or some seconds later.
    pub fn ballast_bytes(mut self, bytes: u64) -> Self {
        self.options.ballast_bytes = Some(bytes);
        self
    }

    /// Uses another disk than the operating system's: a simulated one, in tests.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = Some(disk);
        self
    }

    /// Uses another executor than threads of the database's own: a seeded one, in tests. It belongs to this database from then on, and
    /// stops with it; one that was stopped is refused.
    pub fn executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Checks every file of the database, which is not opened: the manifest, the log, and all blocks, filters and
    /// values that they name; of its keyspaces the one of that name, if one is named. Damage is told to `watch` as it is
    /// found, and what can be found without it is looked at all the same. Nothing is changed. It reads all there is, in
    /// large pieces, and holds of that what a table's index and filter take, and some MiB. Of the options that were
    /// chosen it minds the disk and the executor.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions, Verifying};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-verify-{}", std::process::id()));
    /// let db = Database::open(&dir)?;
    /// db.keyspace("fruit", KeyspaceOptions::default())?.insert("apple", "red")?;
    /// db.close()?;
    /// let verified = Database::builder(&dir).verify(None, &mut |told| {
    ///     if let Verifying::Damage(error) = told {
    ///         println!("{error}");
    ///     }
    /// })?;
    /// assert_eq!((verified.damages, verified.log_operations), (0, 1));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Locked` if it is open for writing; `NotFound` if there is no database, or no such keyspace;
    /// `NotADatabase`; any error of the disk before the manifest is read. Damage is no error: see
    /// [`Verified::damages`].
    pub fn verify(
        self,
        keyspace: Option<&str>,
        watch: &mut dyn FnMut(Verifying<'_>),
    ) -> Result<Verified> {
        let disk = self.disk.unwrap_or_else(|| Arc::new(RealDisk::new()));
        let executor = match self.executor {
            Some(executor) => executor,
            None => Arc::new(ThreadExecutor::new(self.background_threads)?),
        };
        let verified = verify(&disk, &executor, &self.path, keyspace, watch);
        executor.shutdown();
        verified
    }

    /// Opens the database, recovering what an earlier process left.
    ///
    /// # Errors
    /// `Locked` if it is open already; `NotFound` if there is none and none is to be made;
    /// `NotADatabase` if something else is there; `Unsupported` if a newer version wrote it;
    /// `Corruption` if it is damaged; `InvalidArgument` for options that cannot work.
    pub fn open(self) -> Result<Database> {
        if self.path.as_os_str().is_empty() {
            return Err(Error::invalid(
                "expected the directory of a database, found an empty path",
            ));
        }
        let disk = self.disk.unwrap_or_else(|| Arc::new(RealDisk::new()));
        // So that syncs wait neither for flushes nor for the rest.
        let for_syncs = usize::from(matches!(self.options.durability, Durability::SyncedEvery(_)));
        let executor = match self.executor {
            Some(executor) => executor,
            None => Arc::new(ThreadExecutor::and_more(self.background_threads, for_syncs)?),
        };
        if executor.is_stopped() {
            return Err(Error::invalid(
                "executor: expected one that runs, found one that was stopped: a database stops its own when it \
                 is closed or could not be opened, so that each needs another",
            ));
        }
        let for_budget = || memtable_bytes_for(&self.options);
        let memtable_bytes = self.memtable_bytes.unwrap_or_else(for_budget);
        let options = DatabaseOptions { memtable_bytes, ..self.options };
        let opened = open(disk, executor.clone(), &self.path, options);
        let (engine, report) = opened.inspect_err(|_| executor.shutdown())?;
        if engine.options.sweeps_ahead {
            executor.hurry(true);
        }
        if !engine.options.read_only {
            tiered::spawn(&engine);
            lsm::spawn_if_wanted(&engine);
        }
        Ok(Database::of(engine, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::error::ErrorKind;
    use crate::executor::SeededExecutor;

    fn open_with(say: impl FnOnce(Builder) -> Builder) -> Result<Database> {
        let builder = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        say(builder.executor(Arc::new(SeededExecutor::new(1)))).open()
    }

    /// It was refused, as too small for four memtables that nobody had asked for.
    #[test]
    fn a_memory_budget_that_is_said_alone_has_memtables_that_fit_it() {
        for (budget, expected) in
            [(64 << 10, 8 << 10), (1 << 20, 128 << 10), (256 << 20, 32 << 20), (1 << 40, 32 << 20)]
        {
            let db = open_with(|builder| builder.memory_budget_bytes(budget)).unwrap();
            assert_eq!(db.engine().options.memtable_bytes, expected, "{budget}");
            let keyspace = db.keyspace("k", crate::KeyspaceOptions::default()).unwrap();
            (0..100_u32).for_each(|key| keyspace.insert(key.to_be_bytes(), [7; 1000]).unwrap());
            assert_eq!(keyspace.iter().count(), 100);
        }
        let refused = open_with(|builder| builder.memory_budget_bytes(10)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.to_string().starts_with("memory_budget_bytes: "), "{refused}");
    }

    #[test]
    fn memtables_that_were_said_are_as_they_were_said_or_refused() {
        let both = |bytes| open_with(|b| b.memtable_bytes(bytes).memory_budget_bytes(1 << 20));
        assert_eq!(both(256 << 10).unwrap().engine().options.memtable_bytes, 256 << 10);
        let refused = both(257 << 10).unwrap_err().to_string();
        assert!(refused.contains("expected at least 1052672 (four memtables"), "{refused}");
    }
}
