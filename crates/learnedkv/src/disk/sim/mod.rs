//! A disk in memory that crashes.
//!
//! **Crashes make clones.** [`SimDisk::crash_clone`] returns a new disk as the crash leaves it;
//! the old one goes on, so that a test can crash at every operation of one run. Clones share
//! pages until one writes: a clone costs about as much as there are files.
//!
//! **What is pending.** Beside what is durable, the disk keeps, since the last sync: of every page
//! its states, of every file its lengths, of the directories their changes of names. A crash of the
//! machine chooses among them by its seed: every 512-byte sector by itself (or every page), every
//! length, every change of names. A crash of the process loses no written byte, and what was pending
//! stays pending: the machine may still crash afterwards.
//!
//! **Maps.** What is mapped is what the file held then. To rename a file that somebody has mapped is an assertion that fails:
//! it is to be written over, and on a real disk what he has would change. (Whoever only damages one may write to it.)
//!
//! **Observers.** [`SimDisk::observe`] calls a closure before, amid and after every operation that
//! changes the disk, with its index and the disk to take clones of. No lock of the disk is held,
//! so the closure may use the disk; what it does there is not observed. Calls are one at a time:
//! other threads' operations wait, so do not wait in it for other threads.
//!
//! ```
//! use std::path::Path;
//! use learnedkv::disk::sim::{CrashKind, SimDisk, Stage};
//! use learnedkv::disk::{Access, Disk};
//!
//! # fn main() -> learnedkv::Result<()> {
//! let path = Path::new("/settings");
//! let disk = SimDisk::new(1);
//! disk.observe(move |operation, disk| {
//!     if operation.stage == Stage::Midway {
//!         return;
//!     }
//!     for seed in 0..20 {
//!         // Whenever the machine crashes: no settings, or all of them.
//!         let left = disk.crash_clone(CrashKind::Machine, seed);
//!         if let Ok(file) = left.open(path, Access::Random) {
//!             assert_eq!(file.length_bytes().unwrap(), 5, "after {:?}", operation.kind);
//!         }
//!     }
//! });
//! let file = disk.create(Path::new("/settings.tmp"))?;
//! file.write_all_at(b"a = 1", 0)?;
//! file.sync()?; // Without this, the assertion fails.
//! disk.rename(Path::new("/settings.tmp"), path)?;
//! disk.sync_dir(Path::new("/"))?;
//! # Ok(())
//! # }
//! ```
//!
//! Paths are as on Unix; `/` and the empty path are directories that are always there. Nothing
//! depends on the clock or on addresses: the same calls with the same seeds give the same disks.

mod fate;
mod handles;
mod inode;
mod names;
mod page;
mod random;
mod state;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::handles::{SimFile, SimLock, SimRegion};
use self::inode::Inode;
use self::names::normal;
use self::random::Random;
use self::state::{Held, State};
use crate::disk::{
    Access, Disk, File, Lock, LogRegion, OperationKind, ReadRequest, Room, Take, region,
};
use crate::error::{Error, Result};

/// What crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashKind {
    /// The process dies. Everything written survives; locks are released; where log records were reserved
    /// but not published stands what stood there before.
    Process,
    /// The machine dies. What was not synced vanishes, persists or tears, as the seed says. Seeds 0
    /// to 5 are the extremes: (0) all lost, (1) all kept, (2) names and lengths without content,
    /// (3) names and content without lengths, (4) content without names, (5) names and lengths
    /// with torn content; all others are random mixtures.
    Machine,
}

/// When an observer is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing has happened yet.
    Before,
    /// Half of a write or of a published record is there (a log record's second half may come
    /// first).
    Midway,
    /// It is done, or has failed.
    After,
}

/// An operation that changes the disk, as observers see it.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// Which.
    pub kind: OperationKind,
    /// The file or directory, by the path it was opened or named with.
    pub path: &'a Path,
    /// The new path of a rename or a link.
    pub to: Option<&'a Path>,
    /// Where in the file (of a truncation: the new length).
    pub offset_bytes: u64,
    /// How many bytes it is about.
    pub length_bytes: u64,
    /// Its number: operations that change the disk are counted from 0.
    pub index: u64,
    /// Whether it is about to happen or has happened.
    pub stage: Stage,
}

impl<'a> Operation<'a> {
    fn new(kind: OperationKind, path: &'a Path) -> Operation<'a> {
        let stage = Stage::Before;
        Operation { kind, path, to: None, offset_bytes: 0, length_bytes: 0, index: 0, stage }
    }

    fn at(self, offset_bytes: u64, length_bytes: u64) -> Operation<'a> {
        Operation { offset_bytes, length_bytes, ..self }
    }
}

type Observer = Arc<Mutex<dyn FnMut(&Operation<'_>, &SimDisk) + Send>>;

/// A disk in memory that crashes. Clones of the handle are the same disk; see
/// [`SimDisk::crash_clone`] for another one. See the module page for the rules.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    observer: Mutex<Option<Observer>>,
    operations: AtomicU64,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk")
            .field("operations", &self.operation_count())
            .finish_non_exhaustive()
    }
}

/// The data behind a mutex, also after a panic: a test that fails should say why, once.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimDisk {
    /// An empty disk without a space limit, whose random numbers follow `seed`.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::of_state(State::new(seed))
    }

    fn of_state(state: State) -> SimDisk {
        let operations = AtomicU64::new(0);
        SimDisk {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                observer: Mutex::new(None),
                operations,
            }),
        }
    }

    /// A new disk as a crash now would leave this one. It inherits the space limit; not the locks,
    /// the observer or the count of operations.
    pub fn crash_clone(&self, kind: CrashKind, seed: u64) -> SimDisk {
        let now = self.state().clone();
        SimDisk::of_state(now.after_crash(kind, seed))
    }

    /// Calls `observer` around every operation that changes the disk, from now on, in place of any
    /// earlier observer.
    pub fn observe(&self, observer: impl FnMut(&Operation<'_>, &SimDisk) + Send + 'static) {
        *lock(&self.shared.observer) = Some(Arc::new(Mutex::new(observer)));
    }

    /// Calls no observer any more.
    pub fn stop_observing(&self) {
        *lock(&self.shared.observer) = None;
    }

    /// How many operations that change the disk were begun.
    pub fn operation_count(&self) -> u64 {
        self.shared.operations.load(Ordering::Relaxed)
    }

    /// Files may take this much space from now on (whole pages of 4096 bytes); none: any.
    pub fn set_space_limit_bytes(&self, limit_bytes: Option<u64>) {
        self.state().space_limit_bytes = limit_bytes;
    }

    /// Of the space that files may take, so much is not told of, as file systems keep some for the
    /// superuser, who may be asking.
    pub fn set_unsaid_bytes(&self, bytes: u64) {
        self.state().unsaid_bytes = bytes;
    }

    /// The space taken by files that have a name or an open handle, in whole pages of 4096 bytes.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    /// Counts an operation and tells the observer; its end is told when the guard drops.
    fn begin<'a>(&'a self, operation: Operation<'a>) -> Running<'a> {
        let index = self.shared.operations.fetch_add(1, Ordering::Relaxed);
        let observer = lock(&self.shared.observer).clone().filter(|_| !OBSERVING.get());
        let running = Running { disk: self, operation: Operation { index, ..operation }, observer };
        running.tell(Stage::Before);
        running
    }

    /// Does `change` as an operation on `path`, which errors name.
    fn change<T>(
        &self,
        operation: Operation<'_>,
        change: impl FnOnce(&mut State, &Path) -> Result<T>,
    ) -> Result<T> {
        let path = normal(operation.path);
        let _running = self.begin(operation);
        change(&mut self.state(), &path).map_err(|e| e.at_path(operation.path))
    }
}

thread_local! {
    /// Whether this thread is inside an observer.
    static OBSERVING: Cell<bool> = const { Cell::new(false) };
}

/// An operation under way.
struct Running<'a> {
    disk: &'a SimDisk,
    operation: Operation<'a>,
    observer: Option<Observer>,
}

impl Running<'_> {
    fn index(&self) -> u64 {
        self.operation.index
    }

    fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    fn midway(&self) {
        self.tell(Stage::Midway);
    }

    fn tell(&self, stage: Stage) {
        struct Outside;
        impl Drop for Outside {
            fn drop(&mut self) {
                OBSERVING.set(false);
            }
        }
        if let Some(observer) = &self.observer {
            let mut observer = lock(observer);
            OBSERVING.set(true);
            let _outside = Outside;
            observer(&Operation { stage, ..self.operation }, self.disk);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // A panic inside an observer must not become a second one here.
        if !std::thread::panicking() {
            self.tell(Stage::After);
        }
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.change(Operation::new(OperationKind::Create, path), |state, normal| {
            let number = state.create(normal, Inode::default())?;
            state.opened(number);
            Ok(Arc::new(SimFile::open(self, number, path)) as Arc<dyn File>)
        })
    }

    fn open(&self, path: &Path, _access: Access) -> Result<Arc<dyn File>> {
        let mut state = self.state();
        let found = state.find("open the file", &normal(path));
        let number = found.map_err(|e| e.at_path(path))?;
        state.opened(number);
        Ok(Arc::new(SimFile::open(self, number, path)))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.change(Operation::new(OperationKind::Remove, path), |state, path| {
            let number = state.find("remove the file", path)?;
            state.names.unlink(path, names::Node::File(number));
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let operation = Operation { to: Some(to), ..Operation::new(OperationKind::Rename, from) };
        self.change(operation, |state, from| {
            let target = normal(to);
            let action = format!("rename the file to {}", to.display());
            let number = state.find(&action, from)?;
            // Files that are used again are renamed first, and no others but the one that says which manifest counts.
            assert!(state.is_unmapped(number), "{from:?} is renamed, which somebody has in memory");
            if !state.names.parent_is_dir(&target) {
                return Err(state::not_found(&action, from));
            }
            if state.names.is_dir(&target) {
                return Err(Error::io(&action, from, &std::io::ErrorKind::IsADirectory.into()));
            }
            state.names.rename(from, &target, names::Node::File(number));
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let operation = Operation { to: Some(to), ..Operation::new(OperationKind::Link, from) };
        self.change(operation, |state, from| {
            let target = normal(to);
            let action = format!("link the file to {}", to.display());
            let number = state.find(&action, from)?;
            if !state.names.parent_is_dir(&target) {
                return Err(state::not_found(&action, from));
            }
            if state.names.get(&target).is_some() || state.names.is_dir(&target) {
                return Err(Error::io(&action, from, &std::io::ErrorKind::AlreadyExists.into()));
            }
            state.names.link(&target, names::Node::File(number));
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let state = self.state();
        let normal = normal(dir);
        if !state.names.is_dir(&normal) {
            return Err(state::not_found("list the directory", dir));
        }
        Ok(state.names.list(&normal))
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.change(Operation::new(OperationKind::CreateDir, dir), State::create_dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.change(Operation::new(OperationKind::SyncDir, dir), |state, dir| {
            if !state.names.is_dir(dir) {
                return Err(state::not_found("sync the directory", dir));
            }
            state.names.sync_dir(dir);
            state.forget_unreachable();
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let normal = normal(path);
        let mut state = self.state();
        if state.names.get(&normal).is_none() {
            state.create(&normal, Inode::default()).map_err(|e| e.at_path(path))?;
        }
        if state.locks.contains_key(&normal) {
            return Err(region::locked(path));
        }
        state.locks.insert(normal.clone(), Held::Alone);
        Ok(Box::new(SimLock { disk: self.clone(), path: normal }))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let normal = normal(path);
        let mut state = self.state();
        state.find("open the lock file", &normal).map_err(|e| e.at_path(path))?;
        let holders = match state.locks.get(&normal) {
            Some(Held::Alone) => return Err(region::locked(path)),
            Some(Held::Together(holders)) => holders + 1,
            None => 1,
        };
        state.locks.insert(normal.clone(), Held::Together(holders));
        Ok(Box::new(SimLock { disk: self.clone(), path: normal }))
    }

    fn create_log_region(&self, path: &Path, length_bytes: u64) -> Result<Arc<dyn LogRegion>> {
        region::check_length(path, length_bytes)?;
        let operation = Operation::new(OperationKind::CreateLogRegion, path).at(0, length_bytes);
        self.change(operation, |state, normal| {
            let number = state.create_preallocated(normal, length_bytes)?;
            state.opened(number);
            let file = SimFile::open(self, number, path);
            Ok(Arc::new(SimRegion::new(file, length_bytes)) as Arc<dyn LogRegion>)
        })
    }

    fn room(&self, _dir: &Path) -> Option<Room> {
        let state = self.state();
        let total_bytes = state.space_limit_bytes?;
        let free_bytes = total_bytes.saturating_sub(state.used_bytes() + state.unsaid_bytes);
        Some(Room { free_bytes, total_bytes })
    }

    /// One by one, in an order that the places asked for decide: a device keeps to none.
    fn read_many(&self, requests: Vec<ReadRequest>, take: &mut Take<'_>) {
        let seed = requests.iter().fold(0, |seed: u64, r| seed.rotate_left(7) ^ r.offset_bytes);
        let mut random = Random::new(seed);
        let mut left: Vec<_> = requests.into_iter().enumerate().collect();
        while !left.is_empty() {
            let (number, request) = left.swap_remove(random.below(left.len()));
            take(number, request.read_alone());
        }
    }

    fn random_u64(&self) -> u64 {
        self.state().random.next()
    }
}
