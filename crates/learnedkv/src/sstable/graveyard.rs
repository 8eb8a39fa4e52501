//! Files, and parts of files, that no View uses any more, until they are removed.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::format::entry::KeyspaceId;

/// Of so many files one is taken that replaced nothing in a keyspace, however many others there are.
const TURNS: u32 = 8;

/// A part of a file that no View uses any more.
pub trait Part: std::fmt::Debug + Send + Sync {
    /// Gives its space back; whether it did.
    fn give_back(&self) -> bool;
}

/// What a file takes that the newest View does without, and which keyspace's work replaced it: `None` if none did, or the keyspace is
/// gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    /// Bytes.
    pub bytes: u64,
    /// Whoever writes there waits for its removal.
    pub owner: Option<KeyspaceId>,
}

/// See the module page.
pub struct Graveyard {
    files: Mutex<Files>,
    /// What files take that were added and are not removed yet.
    bytes: AtomicU64,
    parts: Mutex<Vec<Box<dyn Part>>>,
    tell: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Files {
    /// Those that somebody may wait for, and the others: of a dropped keyspace, or a snapshot's, there may be very many.
    owned: VecDeque<(PathBuf, Retired)>,
    others: VecDeque<(PathBuf, Retired)>,
    turn: u32,
    /// What is not removed yet of what each keyspace replaced, bytes.
    unremoved: BTreeMap<KeyspaceId, u64>,
}

impl std::fmt::Debug for Graveyard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Graveyard").field(&self.files).finish()
    }
}

impl Graveyard {
    /// An empty one. `tell` is called after each file that comes: the last reader of a file may be
    /// anybody, at any time.
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Graveyard {
        Graveyard {
            files: Mutex::default(),
            bytes: AtomicU64::new(0),
            parts: Mutex::default(),
            tell: Box::new(tell),
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file.
    pub fn add(&self, path: PathBuf, retired: Retired) {
        self.bytes.fetch_add(retired.bytes, AcqRel);
        let mut files = self.files();
        match retired.owner {
            Some(owner) => {
                *files.unremoved.entry(owner).or_default() += retired.bytes;
                files.owned.push_back((path, retired));
            }
            None => files.others.push_back((path, retired)),
        }
        drop(files);
        (self.tell)();
    }

    /// Adds a part of a file.
    pub fn add_part(&self, part: Box<dyn Part>) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        (self.tell)();
    }

    /// Takes all parts there are.
    pub fn take_parts(&self) -> Vec<Box<dyn Part>> {
        std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a file, mostly one that somebody may wait for. Whoever does says when it is [removed](Graveyard::removed).
    pub fn take(&self) -> Option<(PathBuf, Retired)> {
        let mut files = self.files();
        files.turn = (files.turn + 1) % TURNS;
        let other = if files.turn == 0 { files.others.pop_front() } else { None };
        other.or_else(|| files.owned.pop_front()).or_else(|| files.others.pop_front())
    }

    /// A file was removed.
    pub fn removed(&self, retired: Retired) {
        self.bytes.fetch_sub(retired.bytes, AcqRel);
        let Some(owner) = retired.owner else { return };
        let mut files = self.files();
        if let Some(bytes) = files.unremoved.get_mut(&owner) {
            *bytes -= retired.bytes;
            if *bytes == 0 {
                files.unremoved.remove(&owner);
            }
        }
    }

    /// What files take that nobody uses any more and that are not removed yet.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Acquire)
    }

    /// What of that a keyspace's work has replaced.
    pub fn bytes_of(&self, keyspace: KeyspaceId) -> u64 {
        if self.bytes() == 0 {
            return 0;
        }
        self.files().unremoved.get(&keyspace).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settling everywhere would have waited until a dropped keyspace's files were gone.
    #[test]
    fn files_that_somebody_may_wait_for_go_first_and_others_go_too() {
        let graveyard = Graveyard::new(|| {});
        let add = |name: &str, owner| graveyard.add(name.into(), Retired { bytes: 10, owner });
        (0..20).for_each(|_| add("dropped", None));
        (0..20).for_each(|_| add("replaced", Some(7)));
        add("another", Some(8));
        let of = |keyspace| graveyard.bytes_of(keyspace);
        assert_eq!((of(7), of(8), of(9), graveyard.bytes()), (200, 10, 0, 410));
        let mut names = Vec::new();
        while let Some((path, retired)) = graveyard.take() {
            assert!(retired.owner.is_none_or(|owner| of(owner) > 0), "taken is not removed");
            graveyard.removed(retired);
            names.push(path.to_string_lossy().into_owned());
        }
        let dropped_at = |from: &[String]| from.iter().filter(|name| *name == "dropped").count();
        assert_eq!((names.len(), dropped_at(&names[..24])), (41, 3), "{names:?}");
        assert_eq!(names[23..25], ["dropped".to_string(), "dropped".to_string()][..], "{names:?}");
        assert_eq!((of(7), of(8), graveyard.bytes()), (0, 0, 0));
    }
}
