//! Databases: keyspaces, what concerns all of them, closing.

use std::path::Path;
use std::sync::Arc;

use super::{Batch, Builder, Keyspace, Snapshot, Stats};
use crate::engine::{DatabaseHealth, Engine, OpenReport, Opened, Without};
use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::Change;
use crate::lsm;
use crate::options::{KeyspaceOptions, Store};
use crate::tiered;

/// The longest name of a keyspace, bytes.
pub const MAX_NAME_BYTES: usize = 255;

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
///
/// It is of the process that opened it. One that was forked from that may not use it, nor drop a handle of it (end it with `_exit`, or by
/// executing another program, as `std::process::Command` does): its threads are not there, and two processes would write the same log. Nor
/// may it read a [`Slice`](crate::Slice) of before: the other process knows nothing of that, and may write over the file it is lent from.
#[derive(Debug, Clone)]
pub struct Database {
    handle: Arc<Handle>,
}

impl Database {
    /// Begins to say how the database in directory `path` is opened.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref().to_owned())
    }

    /// Opens (or makes) the database in directory `path` with default options.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Database::builder(path).open()
    }

    /// One that was opened.
    pub(super) fn of(engine: Arc<Engine>, report: OpenReport) -> Database {
        Database { handle: Arc::new(Handle { engine, report }) }
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
    /// and files it needs, whole: what merges and sweeps replace meanwhile takes space until the last snapshot goes that shows it.
    /// Many that are held amid updates, each some sweeps younger than the one before, keep all that was written between them.
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

    /// Flushes all that is in memory of any keyspace now, and waits for it: of many keyspaces that have little each some hundred at a
    /// time, where [`Keyspace::flush`] of one after the other waits for each.
    ///
    /// # Errors
    /// The error that a flush met; what others could flush is flushed all the same, if not yet when this returns.
    pub fn flush(&self) -> Result<()> {
        let engine = self.engine();
        engine.health.check_writable()?;
        let all: Vec<_> = engine.view().keyspaces.values().map(|keyspace| keyspace.id).collect();
        lsm::flush::flush(engine, &all).map_err(|e| engine.advised(e))
    }

    /// Waits until there is no background work: flushes, merges, sweeps and compactions that are under way or due
    /// are done, and files that nobody uses any more are removed. On a full disk what waits for room, or for the moment when
    /// what was removed is settled (`Builder::ballast_bytes`), is not waited for.
    ///
    /// # Errors
    /// The error that background work met that began since the call; `Closed` once the database is closed.
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
        let since = engine.health.insist();
        let given_up = || engine.health.check_all(since);
        engine.executor.hurry(true);
        engine.executor.notify();
        let met = engine.wait_until_done(&|| !busy(), &given_up);
        engine.executor.hurry(false);
        engine.bury_all();
        if busy() { met.map_err(|e| engine.advised(e)) } else { Ok(()) }
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

    /// An error that background work met, if it has not succeeded since and nobody has asked for it again: also what the last
    /// sweep of a keyspace could not read and went round.
    pub fn background_error(&self) -> Option<Error> {
        self.engine().health.background_error().or_else(|| self.engine().met_damage())
    }

    /// How the database is: whether writes are taken, and if not, why. Of several things the one that
    /// stops most is told: a file that is damaged (`Damaged`) only where nothing else is wrong.
    pub fn health(&self) -> DatabaseHealth {
        match (self.engine().health.report(), self.engine().full_error()) {
            (DatabaseHealth::Well | DatabaseHealth::Failing(_), Some(e)) => DatabaseHealth::Full(e),
            (DatabaseHealth::Well, None) => {
                let damage = self.engine().damage().or_else(|| self.engine().met_damage());
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
        engine.retake_ballast();
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
