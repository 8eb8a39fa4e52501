//! Files, and parts of files, that no View uses any more, until they are removed.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::format::entry::KeyspaceId;

/// Of so many files one is taken that nobody waits for, however many others there are.
const TURNS: u32 = 8;
/// Whoever used a file until so many Views later was no background work: a snapshot, or an iterator. There may be very many of those.
const MOST_VIEWS: u64 = 16;

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
    /// The [`Graveyard::views`] of that moment.
    pub views: u64,
    /// Nobody has a part of it in memory, as far as is known when it is added: it may be written over.
    pub is_alone: bool,
}

/// See the module page.
pub struct Graveyard {
    files: Mutex<Files>,
    /// How many Views did without something so far.
    views: AtomicU64,
    /// What files take that were added and are not removed yet.
    bytes: AtomicU64,
    parts: Mutex<Vec<Box<dyn Part>>>,
    tell: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Files {
    /// Those that somebody may wait for, of each keyspace, which has its turn.
    owned: BTreeMap<KeyspaceId, Owned>,
    last: KeyspaceId,
    /// Of a dropped keyspace, or that snapshots had: there may be very many.
    others: VecDeque<(PathBuf, Retired)>,
    turn: u32,
}

/// What a keyspace's work replaced.
#[derive(Debug, Default)]
struct Owned {
    files: VecDeque<(PathBuf, Retired)>,
    /// What is not removed yet, bytes; of those that are being removed, too.
    unremoved: u64,
    /// How many are being removed.
    taken: usize,
}

impl Files {
    /// A file of the keyspace whose turn it is.
    fn owned_in_turn(&mut self) -> Option<(PathBuf, Retired)> {
        let behind = self.owned.range(self.last + 1..).chain(self.owned.range(..=self.last));
        let next = behind.filter(|(_, owned)| !owned.files.is_empty()).map(|(id, _)| *id).next()?;
        self.last = next;
        let owned = self.owned.get_mut(&next)?;
        owned.taken += 1;
        owned.files.pop_front()
    }
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
            views: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            parts: Mutex::default(),
            tell: Box::new(tell),
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a View does without something; its number.
    pub fn next_view(&self) -> u64 {
        self.views.fetch_add(1, AcqRel) + 1
    }

    /// Adds a file. Nobody waits for one that somebody had for long.
    pub fn add(&self, path: PathBuf, mut retired: Retired) {
        if self.views.load(Acquire) > retired.views + MOST_VIEWS {
            retired.owner = None;
        }
        self.bytes.fetch_add(retired.bytes, AcqRel);
        let mut files = self.files();
        match retired.owner {
            Some(owner) => {
                let owned = files.owned.entry(owner).or_default();
                owned.unremoved += retired.bytes;
                owned.files.push_back((path, retired));
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
        other.or_else(|| files.owned_in_turn()).or_else(|| files.others.pop_front())
    }

    /// A file was removed. What of its keyspace was to be removed before that and is now, bytes.
    pub fn removed(&self, retired: Retired) -> (u64, u64) {
        self.bytes.fetch_sub(retired.bytes, AcqRel);
        let Some(owner) = retired.owner else { return (0, 0) };
        let mut files = self.files();
        let Some(owned) = files.owned.get_mut(&owner) else { return (0, 0) };
        let before = owned.unremoved;
        owned.unremoved -= retired.bytes;
        owned.taken -= 1;
        let after = owned.unremoved;
        if owned.files.is_empty() && owned.taken == 0 {
            files.owned.remove(&owner);
        }
        (before, after)
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
        self.files().owned.get(&keyspace).map_or(0, |owned| owned.unremoved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settling everywhere would have waited until a dropped keyspace's files were gone, and one keyspace for another's.
    #[test]
    fn files_that_somebody_may_wait_for_go_first_in_turn_and_others_go_too() {
        let graveyard = Graveyard::new(|| {});
        let add = |name: &str, owner| {
            graveyard.add(name.into(), Retired { bytes: 10, owner, views: 0, is_alone: false })
        };
        (0..20).for_each(|_| add("dropped", None));
        (0..20).for_each(|_| add("of 7", Some(7)));
        (0..2).for_each(|_| add("of 8", Some(8)));
        let of = |keyspace| graveyard.bytes_of(keyspace);
        assert_eq!((of(7), of(8), of(9), graveyard.bytes()), (200, 20, 0, 420));
        let mut names = Vec::new();
        while let Some((path, retired)) = graveyard.take() {
            let before = retired.owner.map_or(0, of);
            assert!(before > 0 || retired.owner.is_none(), "taken is not removed");
            let after = before.saturating_sub(10);
            assert_eq!(graveyard.removed(retired), (before, after));
            names.push(path.to_string_lossy().into_owned());
        }
        assert_eq!(names[..4], ["of 7", "of 8", "of 7", "of 8"]);
        let dropped = names.iter().map(|name| name == "dropped").collect::<Vec<_>>();
        assert_eq!((dropped[..25].iter().filter(|d| **d).count(), names.len()), (3, 42));
        assert!(dropped[25..].iter().all(|d| *d), "{names:?}");
        assert_eq!((of(7), of(8), graveyard.bytes()), (0, 0, 0));
        assert!(graveyard.files().owned.is_empty());
    }

    /// A snapshot that was held for an hour left what its keyspace had replaced in that time, all at once.
    #[test]
    fn nobody_waits_for_what_a_snapshot_had_for_long() {
        let graveyard = Graveyard::new(|| {});
        let views = graveyard.next_view();
        let retired = Retired { bytes: 10, owner: Some(7), views, is_alone: false };
        (0..MOST_VIEWS).for_each(|_| _ = graveyard.next_view());
        graveyard.add("soon".into(), retired);
        assert_eq!(graveyard.bytes_of(7), 10);
        graveyard.next_view();
        graveyard.add("late".into(), retired);
        assert_eq!((graveyard.bytes_of(7), graveyard.bytes()), (10, 20));
    }
}
