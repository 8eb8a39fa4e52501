//! The removal of files that no View uses any more.
//!
//! An `unlink` takes milliseconds of a processor for a table, and waits where the file system is busy. So a job does it
//! ([`Engine::bury`]), and nobody who drops the last View of a file. What makes such files, merges, sweeps and compactions,
//! waits where those of its keyspace are behind ([`Engine::waits_for_burials`]): else what the disk holds would have no
//! ceiling where files are written faster than they are removed. Flushes do not wait, writers do at the price of what
//! is not settled ([`super::pace`]).

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::spares::Spares;
use super::{Engine, lock};
use crate::format::entry::KeyspaceId;

/// How long a job's look is waited for, and how often.
const A_LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 20;

/// So many memtables may wait to be removed before background work waits for that, where no writer pays.
const MEMTABLES: u64 = 2;

/// So many files that nobody waits for are removed before other jobs have a turn: of those there may be very many.
const OTHERS: usize = 8;

/// What was removed.
#[derive(Debug, Default)]
pub struct Burials {
    /// How many files, and parts of files, so far; and of what the log kept for later.
    count: AtomicU64,
    /// Held by whoever removes some, for as long as that takes: tens of milliseconds each where the disk is busy.
    pub(super) one_at_a_time: Mutex<()>,
    /// What is kept of that to be written over.
    pub(super) spares: Spares,
}

impl Burials {
    /// How many files, and parts of files, were removed so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// So many more were removed.
    pub(super) fn note(&self, count: u64) {
        self.count.fetch_add(count, Ordering::AcqRel);
    }
}

impl Engine {
    /// Removes files, and parts of files, that no View uses any more. When it returns they are gone,
    /// whoever removed them, and what was kept of them to be written over.
    pub fn bury(&self) {
        while self.bury_some() {}
        self.remove_spare();
    }

    /// Does a part of that, but for a file that is kept ([`super::spares`]). False: there is nothing else left, and what others were
    /// removing is gone.
    pub fn bury_some(&self) -> bool {
        let _one_at_a_time = lock(&self.burials.one_at_a_time);
        self.remove_useless_spare();
        let graveyard = &self.context.graveyard;
        let parts = graveyard.take_parts();
        self.burials.note(parts.iter().filter(|part| part.give_back()).count() as u64);
        let mut others = 0;
        while others < OTHERS {
            let Some((path, retired)) = graveyard.take() else { return false };
            // What cannot be removed is an orphan that the next open removes.
            let remove = |path: PathBuf| drop(self.disk().remove(&path));
            let gone = self.keep_spare(path, retired);
            let is_gone = gone.is_some();
            match retired.owner {
                // A part of settling, which waits for it.
                Some(_) => self.settling(|| gone.into_iter().for_each(remove)),
                None => {
                    gone.into_iter().for_each(remove);
                    others += 1;
                }
            }
            self.burials.note(is_gone.into());
            let (before, after) = graveyard.removed(retired);
            if before > 0
                && [0, self.allowed_bytes()].iter().any(|limit| (after..before).contains(limit))
            {
                self.executor.notify();
            }
        }
        true
    }

    /// What a keyspace may have replaced that is not removed before its work waits, where no writer pays.
    fn allowed_bytes(&self) -> u64 {
        MEMTABLES * self.options.memtable_bytes as u64
    }

    /// As [`Engine::bury`], of all that is replaced, and of what the log keeps for later. A job may have an old View for the moment of a look, and
    /// is waited for; a snapshot, an iterator or a read of the caller's may have one for long, and is not.
    pub fn bury_all(&self) {
        self.log.give_back();
        for _ in 0..LOOKS {
            // Before: what was retired then is in the graveyard by now.
            let is_last = self.retired_bytes() == 0;
            self.bury();
            if is_last {
                return;
            }
            self.executor.pause(A_LOOK);
        }
        self.bury();
    }

    /// Bytes of files that the View of now does without, and somebody has still.
    pub(super) fn retired_bytes(&self) -> u64 {
        self.context.metrics.retired_bytes.load(Ordering::Acquire)
    }

    /// Bytes of files that nobody uses any more and that are not removed yet, or kept to be written over.
    pub fn unremoved_bytes(&self) -> u64 {
        self.context.graveyard.bytes() + self.burials.spares.bytes()
    }

    /// Whether what writes a keyspace's files in the background is to wait until those are removed that it replaced, of which it is told
    /// ([`Executor::notify`](crate::executor::Executor::notify)): more than two memtables, or anything where writers `pay`. While the
    /// disk is full nothing waits: whoever meets that removes what there is.
    pub fn waits_for_burials(&self, keyspace: KeyspaceId, pay: bool) -> bool {
        let allowed = if pay { 0 } else { self.allowed_bytes() };
        self.context.graveyard.bytes_of(keyspace) > allowed && !self.ballast.is_given_up()
    }
}
