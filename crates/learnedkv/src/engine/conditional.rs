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
//!    numbers under way) is still there, so is every later one. If it is gone, it [cannot be told](Tried::Unknown).
//! 4. An ingest has no number of its own. The View counts those of a keyspace in the change that shows their tables,
//!    which is made under the commit lock. A count that moved is one more thing of which nothing can be told.
//!
//! **Why it ends.** Where that cannot be told, nobody need have touched what is watched: flushes and ingests of
//! other keys come as often as others write, and a caller who thinks, or writes a long value, for longer than a memtable
//! takes to fill would be sent back for ever. So he reads again what he has read, and if that is the same
//! commits at m all the same, with what he had made of it: what he read is what a reader at m - 1 sees. It need not be
//! the same *version*. That another was there in between, or the same bytes were written anew, changes nothing of what
//! it means: read and write are one step at m, as if he had begun just before.
//! Read again without a lock, that may be in vain once more. In the end it is read under the commit lock
//! ([`Engine::commit_where`]), at the number before m: with all that was given out visible, and no number, no rotation
//! and no ingest to come before m. Flushes, sweeps and merges go on and take that lock for nothing but rotations; they
//! do not change what a View and a number show, and such a read waits for none of them. If the keyspace is dropped, then before the read,
//! which says so, or beside the commit, as for any other. So one is sent back only by another's commit to what he
//! watches, and a caller who needs no more than that it *is* so (`compare_and_swap`) by none.
//!
//! Whoever adds an operation on a range of keys (a range tombstone) must be found by
//! [`Memtable::changed_within`](crate::memtable::Memtable::changed_within) too.

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
        let ingests = self.keyspace(keyspace).map_or(0, |before| before.ingests);
        WasRead { ingests, visible: self.visible, oldest }
    }
}

/// What a conditional commit has read.
#[derive(Debug)]
pub struct WasRead {
    /// Into its keyspace, until then.
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

/// What became of a conditional commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// It is committed.
    Done,
    /// What it watches has changed, and nothing was written.
    Changed,
    /// That cannot be told, and nothing was written.
    Unknown,
}

impl Engine {
    /// Begins a conditional commit: what it may read.
    pub fn look(&self) -> Seen {
        let (view, visible) = self.snapshot();
        Seen { view, visible }
    }

    /// Commits if nothing `watched` has changed since it `was_read`.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub fn commit_unless_changed(
        &self,
        commit: Commit<'_>,
        durability: Durability,
        was_read: &WasRead,
        watched: Watched<'_>,
    ) -> Result<Tried> {
        let mut tried = Tried::Unknown;
        let is_unchanged = || {
            tried = self.what_happened(was_read, watched)?;
            Ok(tried == Tried::Done)
        };
        self.commit_and_pay(commit, durability, is_unchanged)?;
        Ok(tried)
    }

    /// Commits if `holds` says so of what there is just before the commit, which it reads under the commit lock: nothing comes
    /// between, and no one commits meanwhile. So it is for those whom others sent back before, and `holds` reads little and
    /// runs nothing of the user's. False: nothing was written.
    ///
    /// # Errors
    /// As [`Engine::commit`]; those of `holds`.
    pub fn commit_where(
        &self,
        commit: Commit<'_>,
        durability: Durability,
        holds: impl FnOnce(&Seen) -> Result<bool>,
    ) -> Result<bool> {
        self.commit_and_pay(commit, durability, || {
            self.log.await_reserved()?;
            holds(&self.look())
        })
    }

    fn commit_and_pay(
        &self,
        commit: Commit<'_>,
        durability: Durability,
        holds: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let (keyspaces, bytes) = (commit.keyspaces, commit.bytes());
        let is_done = self.commit_if(commit, durability, holds)?;
        if is_done {
            // Paid afterwards: a wait since it was read is time for others to change it. It is committed,
            // whatever happens to the database meanwhile.
            let _ = self.keep_pace(keyspaces, bytes);
        }
        Ok(is_done)
    }

    /// Whether anything `watched` has changed since it `was_read`; `Done` if not. Under `commit`.
    fn what_happened(&self, was_read: &WasRead, watched: Watched<'_>) -> Result<Tried> {
        let (now, visible) = (self.keyspace(watched.keyspace)?, was_read.visible);
        let Some(oldest) = &was_read.oldest else { return Ok(Tried::Unknown) };
        if now.ingests != was_read.ingests {
            return Ok(Tried::Unknown);
        }
        if !now.memtables().any(|memtable| std::ptr::eq(Arc::as_ptr(memtable), oldest.as_ptr())) {
            return Ok(Tried::Unknown);
        }
        if now.memtables().all(|memtable| memtable.latest_commit() <= visible) {
            return Ok(Tried::Done);
        }
        self.log.await_reserved()?;
        let (first, last) = (watched.first, watched.last);
        let has_changed = now.memtables().any(|m| m.changed_within(first, last, visible));
        Ok(if has_changed { Tried::Changed } else { Tried::Done })
    }
}
