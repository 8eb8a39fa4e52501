//! Which operations fail, and how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::OperationKind;
use crate::error::{Error, ErrorKind};

/// A failure to come: which operation, and how it fails.
///
/// ```
/// use learnedkv::disk::OperationKind;
/// use learnedkv::disk::faulty::Fault;
/// use learnedkv::ErrorKind;
///
/// // The third write to a file with ".log" in its path fails half done, and so do all later ones.
/// let fault = Fault::at(2)
///     .of(&[OperationKind::Write, OperationKind::Publish])
///     .on_paths_with(".log")
///     .with(ErrorKind::DiskFull)
///     .writing_part()
///     .from_then_on();
/// ```
#[derive(Debug, Clone)]
#[must_use = "a fault does nothing until it is given to FaultyDisk::fail"]
pub struct Fault {
    at: u64,
    kinds: Option<Vec<OperationKind>>,
    path_part: Option<String>,
    error: ErrorKind,
    from_then_on: bool,
    pub(super) writes_part: bool,
}

impl Fault {
    /// Fails operation number `index` (from 0) of those that match, counted from when the fault is
    /// given to the disk. Every operation matches, it fails once, with `Io`, having done
    /// nothing; the other methods change that.
    pub fn at(index: u64) -> Fault {
        Fault {
            at: index,
            kinds: None,
            path_part: None,
            error: ErrorKind::Io,
            from_then_on: false,
            writes_part: false,
        }
    }

    /// Never fails: for counting the operations that match.
    pub fn never() -> Fault {
        Fault::at(u64::MAX)
    }

    /// Only operations of these kinds match.
    pub fn of(self, kinds: &[OperationKind]) -> Fault {
        Fault { kinds: Some(kinds.to_vec()), ..self }
    }

    /// Only operations on paths that contain `part` match.
    pub fn on_paths_with(self, part: &str) -> Fault {
        Fault { path_part: Some(part.to_owned()), ..self }
    }

    /// Fails with this kind of error.
    pub fn with(self, error: ErrorKind) -> Fault {
        Fault { error, ..self }
    }

    /// All later operations that match fail too.
    pub fn from_then_on(self) -> Fault {
        Fault { from_then_on: true, ..self }
    }

    /// Failing writes and publications write their first half.
    pub fn writing_part(self) -> Fault {
        Fault { writes_part: true, ..self }
    }

    fn matches(&self, kind: OperationKind, path: &Path) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
            && self.path_part.as_ref().is_none_or(|part| path.to_string_lossy().contains(part))
    }
}

/// What has become of a [`Fault`].
#[derive(Debug, Default)]
pub struct FaultCounts {
    matched: AtomicU64,
    fired: AtomicU64,
}

impl FaultCounts {
    /// How many operations matched, whether they failed or not.
    pub fn matched(&self) -> u64 {
        self.matched.load(Ordering::Relaxed)
    }

    /// How many operations it failed.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }
}

/// The faults of a disk, and the files whose syncs lie.
#[derive(Debug, Default)]
pub(super) struct Script {
    faults: Mutex<Vec<(Fault, Arc<FaultCounts>)>>,
    operations: AtomicU64,
    /// Files with a failed sync: the system holds their pages to be clean. Up to which byte each was synced before,
    /// or written anew since.
    lying: Mutex<BTreeMap<PathBuf, u64>>,
    /// Up to which byte log regions were synced: nothing before is written any more.
    synced: Mutex<BTreeMap<PathBuf, u64>>,
}

/// An operation that is to fail.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) writes_part: bool,
}

impl Script {
    pub(super) fn add(&self, fault: Fault) -> Arc<FaultCounts> {
        let counts = Arc::new(FaultCounts::default());
        lock(&self.faults).push((fault, Arc::clone(&counts)));
        counts
    }

    pub(super) fn clear(&self) {
        lock(&self.faults).clear();
    }

    pub(super) fn operation_count(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Counts an operation; an error if it is to fail.
    pub(super) fn meet(&self, kind: OperationKind, path: &Path) -> Result<(), Failure> {
        let operation = self.operations.fetch_add(1, Ordering::Relaxed);
        let mut failure = None;
        for (fault, counts) in lock(&self.faults).iter().filter(|(f, _)| f.matches(kind, path)) {
            let index = counts.matched.fetch_add(1, Ordering::Relaxed);
            let fires = index == fault.at || (fault.from_then_on && index > fault.at);
            if fires && failure.is_none() {
                counts.fired.fetch_add(1, Ordering::Relaxed);
                let message = format!("scripted failure of {kind} (operation {operation})");
                failure = Some(Failure {
                    error: Error::new(fault.error, message).at_path(path),
                    writes_part: fault.writes_part,
                });
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Syncs of `path` lie from now on.
    pub(super) fn lies(&self, path: &Path) {
        let synced = lock(&self.synced).get(path).copied().unwrap_or(0);
        lock(&self.lying).insert(path.to_path_buf(), synced);
    }

    /// The region `path` was synced up to a byte.
    pub(super) fn has_synced(&self, path: &Path, up_to: u64) {
        let mut synced = lock(&self.synced);
        let before = synced.entry(path.to_path_buf()).or_insert(0);
        *before = up_to.max(*before);
    }

    pub(super) fn is_lying(&self, path: &Path) -> bool {
        lock(&self.lying).contains_key(path)
    }

    /// Some bytes of `path` were written.
    pub(super) fn written(&self, path: &Path, from: u64, to: u64) {
        if let Some(anew) = lock(&self.lying).get_mut(path)
            && from <= *anew
        {
            *anew = to.max(*anew);
        }
    }

    /// `path` is so long: if all of that was written anew, there is nothing to lie about any more.
    pub(super) fn has_length(&self, path: &Path, length_bytes: u64) {
        let mut lying = lock(&self.lying);
        if lying.get(path).is_some_and(|anew| *anew >= length_bytes) {
            lying.remove(path);
        }
    }

    /// `path` is another file now.
    pub(super) fn tells_truth(&self, path: &Path) {
        lock(&self.synced).remove(path);
        lock(&self.lying).remove(path);
    }

    /// A lie is told under the second name too.
    pub(super) fn linked(&self, from: &Path, to: &Path) {
        let mut lying = lock(&self.lying);
        if let Some(anew) = lying.get(from).copied() {
            lying.insert(to.to_path_buf(), anew);
        } else {
            lying.remove(to);
        }
    }

    /// A lie follows its file to a new name.
    pub(super) fn renamed(&self, from: &Path, to: &Path) {
        let mut lying = lock(&self.lying);
        if let Some(anew) = lying.remove(from) {
            lying.insert(to.to_path_buf(), anew);
        } else {
            lying.remove(to);
        }
    }
}

/// The data behind a mutex, also after a panic elsewhere in a test.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
