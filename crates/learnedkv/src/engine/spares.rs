//! A file that was replaced and is kept to be written over.
//!
//! A step of a sweep replaces about as much as it writes. To write over the file that another step has replaced takes half of
//! a processor's time and a third of the time by the clock that it takes to make a file and remove another: the system
//! looks for no space, makes no page of memory ready and gives none back (docs/decisions/0065). So while a keyspace is swept
//! one file is kept, of all keyspaces. It goes on counting as one that is to be removed, but nobody waits for that.
//!
//! It is nobody's any more, as every file that is to be removed: no durable edit names it, no View shows it. More is asked
//! of one that will have other bytes, since whoever had it still would see those ([`Retired::is_alone`]):
//! * **Users with a slice.** Nobody lends a part of it in memory.
//! * **Another database, an earlier life of this one, or another's file that a link leads to.** This engine wrote it, and
//!   no checkpoint linked it, also not one that is gone by now.
//! * **Users' copies by hard links.** It has one name when it is written over. (Where somebody reads a copy whose names were
//!   all removed meanwhile, nothing tells.)
//!
//! After a crash it is an orphan, under its old name or its new one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::{Engine, lock};
use crate::format::entry::KeyspaceId;
use crate::sstable::Retired;

/// It is kept only where the disk has room for so many of its size.
const ROOM: u64 = 4;
/// Where so many files are being written by which sweeps of a keyspace will replace others, none is kept beside them: that
/// is all that they may take beyond the space that is promised (DESIGN section 8).
const MOST_SUCCESSORS: usize = 2;

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    spare: Option<Spare>,
    /// How many [successors](Successor) are being written in each keyspace.
    successors: BTreeMap<KeyspaceId, usize>,
}

#[derive(Debug)]
struct Spare {
    path: PathBuf,
    bytes: u64,
    /// In whose sweep it was replaced.
    owner: KeyspaceId,
}

/// A file that a step of a sweep is writing.
pub struct Successor {
    engine: Arc<Engine>,
    keyspace: KeyspaceId,
}

impl Drop for Successor {
    fn drop(&mut self) {
        let mut kept = lock(&self.engine.burials.spares.0);
        if let Some(count) = kept.successors.get_mut(&self.keyspace) {
            *count -= 1;
        }
        kept.successors.retain(|_, count| *count > 0);
    }
}

impl Kept {
    /// Whether the files of a keyspace's sweep take all that they may.
    fn is_enough(&self, keyspace: KeyspaceId) -> bool {
        self.successors.get(&keyspace).is_some_and(|count| *count >= MOST_SUCCESSORS)
    }
}

impl Spares {
    /// What the file takes that is kept, bytes.
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.0).spare.as_ref().map_or(0, |spare| spare.bytes)
    }
}

impl Engine {
    /// Keeps a file that would be removed, if it is of use and larger than what is kept. The file to be removed: it, the one
    /// that was kept before, or none.
    pub(super) fn keep_spare(&self, path: PathBuf, retired: Retired) -> Option<PathBuf> {
        let Retired { bytes, owner: Some(owner), is_alone: true, .. } = retired else {
            return Some(path);
        };
        let most_bytes = self.most_spare_bytes(owner);
        let room = || self.disk().room(self.dir());
        let has_room = || room().is_none_or(|room| room.free_bytes / ROOM >= bytes);
        if self.ballast.is_given_up() || most_bytes < bytes || !has_room() {
            return Some(path);
        }
        let mut kept = lock(&self.burials.spares.0);
        match &kept.spare {
            _ if kept.is_enough(owner) => Some(path),
            Some(spare) if spare.bytes >= bytes => Some(path),
            _ => kept.spare.replace(Spare { path, bytes, owner }).map(|less| less.path),
        }
    }

    /// Begins a file of about `bytes` that is to replace others of a keyspace; which is to be held until it is written. And
    /// what it may be [written over](crate::sstable::writer::TableWriter::over): the file that is kept, if that is not half
    /// as large, nor more than an eighth larger.
    pub fn begin_successor(
        self: &Arc<Engine>,
        keyspace: KeyspaceId,
        bytes: u64,
    ) -> (Successor, Option<PathBuf>) {
        let fits = |spare: &mut Spare| spare.bytes >= bytes / 2 && spare.bytes <= larger(bytes);
        let mut kept = lock(&self.burials.spares.0);
        *kept.successors.entry(keyspace).or_default() += 1;
        let spare = kept.spare.take_if(fits);
        let is_enough = kept.is_enough(keyspace);
        drop(kept);
        if is_enough {
            // It does not fit: there is no room beside them.
            self.remove_spare();
        }
        (Successor { engine: self.clone(), keyspace }, spare.map(|spare| spare.path))
    }

    /// Removes the file that is kept where its keyspace is swept no more. Whoever removes files calls it, alone.
    pub(super) fn remove_useless_spare(&self) {
        let owner = lock(&self.burials.spares.0).spare.as_ref().map(|spare| spare.owner);
        if owner.is_some_and(|owner| self.most_spare_bytes(owner) == 0) {
            self.remove_kept();
        }
    }

    /// Removes the file that is kept. Whether there was one; when it returns none is there, whoever removed it.
    pub(super) fn remove_spare(&self) -> bool {
        let _one_at_a_time = lock(&self.burials.one_at_a_time);
        self.remove_kept()
    }

    fn remove_kept(&self) -> bool {
        let spare = lock(&self.burials.spares.0).spare.take();
        let Some(spare) = spare else { return false };
        // What cannot be removed is an orphan that the next open removes.
        let _ = self.disk().remove(&spare.path);
        self.burials.note(1);
        true
    }

    /// A larger file of the keyspace is of no use: a sweep writes no larger ones, and none where there is no sweep.
    fn most_spare_bytes(&self, keyspace: KeyspaceId) -> u64 {
        let view = self.view();
        let swept = view.keyspaces.get(&keyspace).filter(|k| k.tables.frozen.is_some());
        swept.map_or(0, |keyspace| larger(keyspace.options.partition()))
    }
}

/// An eighth larger: so much may a file be that is written over, as a step may be.
fn larger(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}
