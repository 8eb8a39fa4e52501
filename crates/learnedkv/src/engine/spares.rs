//! A file that was replaced and is kept to be written over.
//!
//! A step of a sweep replaces about as much as it writes. To write over the file that another step has replaced takes half of
//! a processor's time and a third of the time by the clock that it takes to make a file and remove another: the system
//! looks for no space, makes no page of memory ready and gives none back (docs/decisions/0065). So while a keyspace is swept one file
//! is kept, of all keyspaces. It goes on counting as one that is to be removed, but nobody waits for that.
//!
//! It is nobody's any more, as every file that is to be removed: no durable edit names it, no View shows it. More is asked of
//! one that will have other bytes, since whoever had it still would not see an old file but those: nobody lends a part of it
//! in memory ([`Retired::is_alone`]), and it has one name (a checkpoint's, or that of a user's own copy by hard links, is
//! another). After a crash it is an orphan, under its old name or its new one.

use std::path::PathBuf;
use std::sync::Mutex;

use super::{Engine, lock};
use crate::format::entry::KeyspaceId;
use crate::sstable::Retired;

/// It is kept only where the disk has room for so many of its size.
const ROOM: u64 = 4;

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Option<Spare>>);

#[derive(Debug)]
struct Spare {
    path: PathBuf,
    bytes: u64,
    /// In whose sweep it was replaced.
    owner: KeyspaceId,
}

impl Spares {
    /// What the file takes that is kept, bytes.
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.0).as_ref().map_or(0, |spare| spare.bytes)
    }
}

impl Engine {
    /// Keeps a file that would be removed, if it is of use and larger than what is kept. The file to be removed: it, the one that was
    /// kept before, or none.
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
        let mut spare = lock(&self.burials.spares.0);
        match &*spare {
            Some(kept) if kept.bytes >= bytes => Some(path),
            _ => spare.replace(Spare { path, bytes, owner }).map(|less| less.path),
        }
    }

    /// The file that is kept, for a table that takes about `bytes`: to be [written over](crate::sstable::writer::TableWriter::over).
    /// None that is half as large, or more than a quarter larger.
    pub fn take_spare(&self, bytes: u64) -> Option<PathBuf> {
        let fits = |spare: &mut Spare| spare.bytes >= bytes / 2 && spare.bytes <= larger(bytes);
        lock(&self.burials.spares.0).take_if(fits).map(|spare| spare.path)
    }

    /// Removes the file that is kept where its keyspace is swept no more.
    pub(super) fn remove_useless_spare(&self) {
        let owner = lock(&self.burials.spares.0).as_ref().map(|spare| spare.owner);
        if owner.is_some_and(|owner| self.most_spare_bytes(owner) == 0) {
            self.remove_spare();
        }
    }

    /// Removes the file that is kept, if there is one.
    pub(super) fn remove_spare(&self) {
        let spare = lock(&self.burials.spares.0).take();
        if let Some(spare) = spare {
            // What cannot be removed is an orphan that the next open removes.
            let _ = self.disk().remove(&spare.path);
            self.burials.note(1);
        }
    }

    /// A larger file of the keyspace is of no use: a sweep writes no larger ones, and none where there is no sweep.
    fn most_spare_bytes(&self, keyspace: KeyspaceId) -> u64 {
        let view = self.view();
        let swept = view.keyspaces.get(&keyspace).filter(|k| k.tables.frozen.is_some());
        swept.map_or(0, |keyspace| larger(keyspace.options.partition()))
    }
}

/// A quarter larger: so much may a file be that is written over.
fn larger(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 4)
}
