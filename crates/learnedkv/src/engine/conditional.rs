//! Commits that count only if what they were made from has not changed: read, think, then commit.
//!
//! **Why no update is lost.** Sequence numbers are the order of all operations, and a reader at number n
//! sees exactly those up to n. A conditional commit reads at the visible number n of a [`Seen`], without
//! a lock and for as long as it likes, and is then given its own number m under the commit lock, in the
//! same hold in which [`Engine::is_unchanged`] finds that no operation n < s < m touches what it watches.
//! So what it read is still what a reader at m - 1 sees: read and write are one step at m.
//!
//! Every operation s > n that was given out is found, for each stands, or will stand, in a memtable:
//! 1. Numbers are given out under the commit lock, so nobody is given one while it is held.
//! 2. One given out earlier may not be in its memtable yet. Each memtable knows the number of the last
//!    commit sent to it, before that has a number; if none is above n there is nothing to look for. Else we
//!    wait until all that was given out is visible: what its writers still do takes no lock of ours.
//! 3. A memtable that held one may have been flushed meanwhile: the number is in a table then, and tables
//!    are not searched. Memtables of a keyspace leave the View from the oldest on. So if the oldest memtable
//!    of the View read from that may take numbers above n (the active one, or one sealed with such
//!    numbers under way) is still there, so is every later one. If it is gone, we look again from the
//!    beginning.
//! 4. An ingest has no number of its own. Each is counted once its tables are in the View, still under the
//!    commit lock; the count is read before the View is. A count that moved means looking again.
//!
//! Whoever adds an operation on a range of keys (a range tombstone) must be found by
//! [`Memtable::changed_within`](crate::memtable::Memtable::changed_within) too.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Commit, Engine};
use crate::error::Result;
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::memtable::Memtable;
use crate::options::Durability;
use crate::view::{KeyspaceView, View};

/// What a conditional commit reads from.
#[derive(Debug)]
pub struct Seen {
    ingests: u64,
    view: Arc<View>,
    /// Operations up to here are seen.
    pub visible: SequenceNumber,
}

impl Seen {
    /// A keyspace as it was seen.
    pub fn keyspace(&self, id: KeyspaceId) -> Option<&Arc<KeyspaceView>> {
        self.view.keyspaces.get(&id)
    }

    /// What is left to be known once it was read: tables are let go, which may be what a sweep is to give back.
    pub fn read(self, keyspace: KeyspaceId) -> WasRead {
        let oldest = self.keyspace(keyspace).map(|before| {
            let under_way = before.sealed.iter().rev().find(|sealed| sealed.up_to > self.visible);
            Arc::downgrade(under_way.map_or(&before.active, |sealed| &sealed.memtable))
        });
        WasRead { ingests: self.ingests, visible: self.visible, oldest }
    }
}

/// What a conditional commit has read.
#[derive(Debug)]
pub struct WasRead {
    ingests: u64,
    visible: SequenceNumber,
    /// Of the memtables of its keyspace then, the oldest that may take later operations. Not held: the commit may wait
    /// for long, and what is flushed meanwhile is to go.
    oldest: Option<Weak<Memtable>>,
}

/// The keys that must not have changed: `first..=last` of a keyspace.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The first key.
    pub first: &'a [u8],
    /// The last key; `None`: all from the first on.
    pub last: Option<&'a [u8]>,
}

impl Engine {
    /// Begins a conditional commit: what it may read.
    pub fn look(&self) -> Seen {
        let ingests = self.ingests.load(Ordering::Acquire);
        let (view, visible) = self.snapshot();
        Seen { ingests, view, visible }
    }

    /// Commits if nothing `watched` has changed since it `was_read`. False: it may have, and nothing was written.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub fn commit_unless_changed(
        &self,
        commit: Commit<'_>,
        durability: Durability,
        was_read: &WasRead,
        watched: Watched<'_>,
    ) -> Result<bool> {
        let (keyspaces, bytes) = (commit.keyspaces, commit.bytes());
        let is_unchanged = || self.is_unchanged(was_read, watched);
        let is_done = self.commit_if(commit, durability, is_unchanged)?;
        if is_done {
            // Paid afterwards: a wait since it was read is time for others to change it. It is committed,
            // whatever happens to the database meanwhile.
            let _ = self.keep_pace(keyspaces, bytes);
        }
        Ok(is_done)
    }

    /// Whether nothing `watched` has changed since it `was_read`. Under `commit`. False also where that
    /// cannot be told.
    fn is_unchanged(&self, was_read: &WasRead, watched: Watched<'_>) -> Result<bool> {
        let (now, visible) = (self.keyspace(watched.keyspace)?, was_read.visible);
        let Some(oldest) = &was_read.oldest else { return Ok(false) };
        if self.ingests.load(Ordering::Acquire) != was_read.ingests {
            return Ok(false);
        }
        if !now.memtables().any(|memtable| std::ptr::eq(Arc::as_ptr(memtable), oldest.as_ptr())) {
            return Ok(false);
        }
        if now.memtables().all(|memtable| memtable.latest_commit() <= visible) {
            return Ok(true);
        }
        self.log.await_reserved()?;
        let (first, last) = (watched.first, watched.last);
        Ok(!now.memtables().any(|memtable| memtable.changed_within(first, last, visible)))
    }
}
