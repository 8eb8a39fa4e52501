//! Databases: opening, keyspaces, closing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Batch, Keyspace, Snapshot, Stats};
use crate::disk::Disk;
use crate::disk::real::RealDisk;
use crate::engine::{DatabaseHealth, Engine, OpenReport, Opened, Without, open};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, ThreadExecutor};
use crate::format::manifest::Change;
use crate::lsm;
use crate::options::{DatabaseOptions, Durability, KeyspaceOptions, Store};
use crate::tiered;
use crate::verify::{Verified, Verifying, verify};

/// The longest name of a keyspace, bytes.
const MAX_NAME_BYTES: usize = 255;

/// Closes the engine when the last handle goes.
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    report: OpenReport,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.engine.dir()).finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever wants to know how it went calls `Database::close`.
        let _ = self.engine.close();
    }
}

/// A database: a directory of keyspaces that share a log, a cache and a memory budget.
///
/// Handles are cheap to clone and may be used from any thread. The database is closed when the last
/// handle (of it, its keyspaces, snapshots and iterators) is dropped, or by [`Database::close`].
#[derive(Debug, Clone)]
pub struct Database {
    handle: Arc<Handle>,
}

/// Says how a database is opened.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    path: PathBuf,
    options: DatabaseOptions,
    disk: Option<Arc<dyn Disk>>,
    executor: Option<Arc<dyn Executor>>,
    background_threads: usize,
}

impl Builder {
    /// All memory the database may use, bytes: memtables, indexes, cache; 512 MiB by default. It
    /// must hold four memtables at least. Give it what the machine can spare: what the memtables
    /// and the (small) metadata leave is cache.
    pub fn memory_budget_bytes(mut self, bytes: u64) -> Self {
        self.options.memory_budget_bytes = bytes;
        self
    }

    /// How large a memtable grows before it is flushed, bytes; 32 MiB by default, and of the disk a 32nd part at most, so that a full one can
    /// be emptied (not so with [`Builder::ballast_bytes`]). Larger ones make fewer, larger runs and hold more of a skewed update load; they also make recovery longer.
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.options.memtable_bytes = bytes;
        self
    }

    /// How large a segment of the log is, bytes; 32 MiB by default, and of the disk as much at most as a memtable.
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
    /// the log's, those that background work reads and writes, and those a call is reading. Where the
    /// process may open no more all the same, half of them are closed, and so few are kept for a while.
    pub fn max_open_files(mut self, most: usize) -> Self {
        self.options.max_open_files = Some(most);
        self
    }

    /// Reads blocks where the operating system holds them, in its page cache, by mapping tables into
    /// memory; on by default. A block is mapped once a read brought it there and found its checksum
    /// right; where the system drops pages, blocks are read and cached again (docs/decisions/0021). Only on
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
    /// off, [`Keyspace::convert`] settles, and on a full disk what is removed ([`Builder::ballast_bytes`]).
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
    /// Of the log counts what stands before the damage, which [`OpenReport::log_damage`] tells; of what was put behind that, what
    /// had come to tables. So keys may be missing, others have older values or may be there though they were removed, and of a batch there may be a
    /// part. (Damaged tables and value segments need none of this: [`OpenReport::damaged_tables`]. Of those files one that the disk does not
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
    /// but no more than the tables and a memtable take, and an eighth of the disk at most; about 2 MiB
    /// besides are held for the next open. 0 holds nothing back, not even for an open: choose it where
    /// the disk cannot become full, or somebody sees to it. While the disk is full a removal now and then waits until what was
    /// removed so far is settled: each time that they have taken an eighth of what is held back.
    pub fn ballast_bytes(mut self, bytes: u64) -> Self {
        self.options.ballast_bytes = Some(bytes);
        self
    }

    /// Uses another disk than the operating system's: a simulated one, in tests.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = Some(disk);
        self
    }

    /// Uses another executor than threads: a seeded one, in tests.
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
        let disk = self.disk.unwrap_or_else(|| Arc::new(RealDisk::new()));
        // So that syncs wait neither for flushes nor for the rest.
        let for_syncs = usize::from(matches!(self.options.durability, Durability::SyncedEvery(_)));
        let executor = match self.executor {
            Some(executor) => executor,
            None => {
                Arc::new(ThreadExecutor::new(self.background_threads.saturating_add(for_syncs))?)
            }
        };
        let opened = open(disk, executor.clone(), &self.path, self.options);
        let (engine, report) = opened.inspect_err(|_| executor.shutdown())?;
        if engine.options.sweeps_ahead {
            executor.hurry(true);
        }
        if !engine.options.read_only {
            tiered::spawn(&engine);
            lsm::spawn_if_wanted(&engine);
        }
        Ok(Database { handle: Arc::new(Handle { engine, report }) })
    }
}

/// One for what writers wait for, two for the rest, which waits for the disk half of its time.
const BACKGROUND_THREADS: usize = 3;

impl Database {
    /// Begins to say how the database in directory `path` is opened.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder {
            path: path.as_ref().to_owned(),
            options: DatabaseOptions::default(),
            disk: None,
            executor: None,
            background_threads: BACKGROUND_THREADS,
        }
    }

    /// Opens (or makes) the database in directory `path` with default options.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Database::builder(path).open()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// What opening found and did.
    pub fn open_report(&self) -> &OpenReport {
        &self.handle.report
    }

    /// The keyspace of that name, made with `options` if there is none.
    ///
    /// An existing one keeps the options it was made with ([`Keyspace::options`]), whatever `options` say
    /// besides the store: so a program that knows the name alone may open it with the defaults, and none
    /// changes another's. To change them, copy the entries into a new keyspace.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad name or options, or if another store is asked for than the keyspace was
    /// made with; any error of the disk.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::invalid(format!(
                "expected a keyspace name of 1 to {MAX_NAME_BYTES} bytes, found {}",
                name.len()
            )));
        }
        let same_store = |found: Keyspace| {
            let same = found.options().check_same_store(&options);
            same.map_err(|e| Error::invalid(format!("keyspace {name:?}: {e}")))?;
            Ok(found)
        };
        if let Some(keyspace) = self.find(name) {
            return same_store(keyspace);
        }
        options.check()?;
        let engine = self.engine();
        engine.executor.yield_now();
        engine.check_room()?;
        let plan = |state: &crate::manifest::State| {
            // Somebody else may have made it meanwhile.
            let there = engine.view().keyspaces.find(name).is_some();
            let keyspace = state.next_keyspace;
            let (name, options) = (name.to_owned(), options.encode());
            (!there).then(|| vec![Change::CreateKeyspace { keyspace, name, options }])
        };
        engine.edit(engine.log.reserved(), &Opened::default(), plan, |_| {})?;
        let made = self.find(name).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("keyspace {name:?} was dropped while it was made"),
            )
        })?;
        // It looks at all keyspaces.
        if made.options().chosen_store() == Store::Lsm {
            lsm::spawn_if_wanted(engine);
        }
        same_store(made)
    }

    /// The keyspace of that name, if there is one.
    pub fn find(&self, name: &str) -> Option<Keyspace> {
        let view = self.engine().view();
        let found = view.keyspaces.find(name)?;
        Some(Keyspace::new(self.handle.clone(), found))
    }

    /// The names of all keyspaces, in the order they were made.
    pub fn keyspace_names(&self) -> Vec<String> {
        self.engine().view().keyspaces.values().map(|k| k.name.to_string()).collect()
    }

    /// Removes a keyspace and all its data. Handles to it answer `NotFound` from then on; snapshots
    /// and iterators that hold it go on.
    ///
    /// # Errors
    /// `NotFound` if there is none of that name; any error of the disk.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        let mut retention = None;
        let plan = |state: &crate::manifest::State| {
            // The View shows what the state says, and knows names.
            let keyspace = engine.view().keyspaces.find(name)?.id;
            debug_assert!(state.keyspaces.contains_key(&keyspace));
            // Of what was never flushed the log forgets here, or, if nobody flushes anything, never.
            let keep = engine.log.retention(engine.oldest_needed(Without::Keyspace(keyspace)));
            let changes = vec![Change::DropKeyspace { keyspace }, keep.change.clone()];
            retention = Some(keep);
            Some(changes)
        };
        if engine.edit(engine.log.reserved(), &Opened::default(), plan, |_| {})? {
            if let Some(retention) = retention {
                engine.log.remove(&retention);
                // Whoever looks after what the log keeps for later may have looked before.
                engine.executor.notify();
            }
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}")))
    }

    /// An empty batch: operations on any keyspaces that become visible and durable together.
    pub fn batch(&self) -> Batch {
        Batch::new(self.handle.clone())
    }

    /// The database as it is now, to read from for as long as you hold it. It keeps the memtables
    /// and files it needs.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.handle.clone())
    }

    /// Makes all writes up to now durable, whatever the durability mode.
    ///
    /// # Errors
    /// Any error of the disk; the writer is then poisoned.
    pub fn sync(&self) -> Result<()> {
        let engine = self.engine();
        engine.health.check_writable()?;
        engine.log.sync(engine.log.visible()).inspect_err(|e| engine.poison(e))
    }

    /// Waits until there is no background work: flushes, merges, sweeps and compactions that are under way or due
    /// are done, and files that nobody uses any more are removed.
    ///
    /// # Errors
    /// The error that background work met; `Closed` once the database is closed.
    pub fn wait_idle(&self) -> Result<()> {
        let engine = self.engine();
        let busy = || {
            let view = engine.view();
            view.keyspaces.with_sealed().next().is_some()
                || tiered::is_busy(engine, &view)
                || lsm::is_busy(engine, &view)
        };
        match engine.health.check_writable() {
            Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
            _ if engine.health.is_read_only() => return Ok(()),
            _ => {}
        }
        engine.health.insist();
        engine.executor.hurry(true);
        engine.executor.notify();
        engine.executor.wait_until(&mut || !busy() || !engine.health.is_well());
        engine.executor.hurry(false);
        engine.bury_all();
        if busy() { engine.health.check_background() } else { Ok(()) }
    }

    /// Makes the directory `path`, which must be empty or not there, a copy of the database as it is at
    /// one moment of the call: all commits that were acknowledged before it, each whole. It opens as a
    /// database of its own. Writes go on meanwhile.
    ///
    /// Tables are shared by hard links, so that a copy on the same file system takes little time and
    /// space; elsewhere they are copied. When the call returns the copy is durable. After a crash amid it
    /// there is no database in `path`: remove what is there.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-checkpoint-{}", std::process::id()));
    /// # let db = Database::open(dir.join("db"))?;
    /// let fruit = db.keyspace("fruit", KeyspaceOptions::default())?;
    /// fruit.insert("apple", "red")?;
    /// db.checkpoint(dir.join("copy"))?;
    /// fruit.insert("apple", "brown")?;
    /// let copy = Database::builder(dir.join("copy")).read_only(true).open()?;
    /// let apple = copy.find("fruit").unwrap().get("apple")?;
    /// assert_eq!(apple.as_deref(), Some(&b"red"[..]));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if something is in `path`; `Locked` if it is open; `Closed`, `Poisoned`,
    /// `ReadOnly`; any error of the disk. What was written is removed then, where that can be done.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.engine().checkpoint(path.as_ref())
    }

    /// What the database holds and what it cost so far.
    pub fn stats(&self) -> Stats {
        Stats::of(self.engine())
    }

    /// The error that background work met last, if it has not succeeded since: also what the last
    /// sweep of a keyspace could not read and went round.
    pub fn background_error(&self) -> Option<Error> {
        self.engine().health.background_error().or_else(|| self.engine().swept_damage())
    }

    /// How the database is: whether writes are taken, and if not, why. Of several things the one that
    /// stops most is told: a file that is damaged (`Damaged`) only where nothing else is wrong.
    pub fn health(&self) -> DatabaseHealth {
        match (self.engine().health.report(), self.engine().full_error()) {
            (DatabaseHealth::Well | DatabaseHealth::Failing(_), Some(e)) => DatabaseHealth::Full(e),
            (DatabaseHealth::Well, None) => {
                let damage = self.engine().damage().or_else(|| self.engine().swept_damage());
                damage.map_or(DatabaseHealth::Well, DatabaseHealth::Damaged)
            }
            (report, _) => report,
        }
    }

    /// Has background work that failed tried again, now that the cause is gone (there is room on the disk
    /// again, say). It is tried again by itself where somebody waits for it; [`Database::wait_idle`] tells
    /// how it went.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`, `ReadOnly`: that cannot be resumed; reopen.
    pub fn resume(&self) -> Result<()> {
        let engine = self.engine();
        engine.health.check_writable()?;
        engine.health.insist();
        engine.executor.notify();
        Ok(())
    }

    /// Stops background work and makes all writes durable, whatever the durability mode. Writes through
    /// other handles are refused (`Closed`) from then on; reads go on. The directory stays locked until
    /// the last handle is dropped.
    ///
    /// Dropping the last handle closes too, but cannot say how it went.
    ///
    /// # Errors
    /// Those of the last sync: then what was not durable before may be lost if the machine dies.
    /// `Closed` if another handle has closed it.
    pub fn close(self) -> Result<()> {
        self.engine().close()
    }
}
