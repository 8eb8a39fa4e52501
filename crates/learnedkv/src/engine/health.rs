//! Whether writes can go on, and if not, why.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Engine, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::KeyspaceId;

/// Background work that may fail and be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A keyspace's memtables become tables.
    Flush(KeyspaceId),
    /// A keyspace's runs are merged and settled.
    Settle(KeyspaceId),
    /// Snapshots' memtables are written to tables of their own.
    Spill,
}

/// How a database is; see [`crate::Database::health`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DatabaseHealth {
    /// All is well.
    Well,
    /// Background work failed (on a full disk, say), and waits to be asked again. Reads go on, and
    /// writes until they would have to wait for it.
    Failing(Error),
    /// A table or value segment was found damaged or missing when the database was opened
    /// ([`crate::DamagedTable`], [`crate::DamagedSegment`]), or by the last sweep of a keyspace, which went
    /// round it: reads of what it holds fail; all else goes on. All other states but `Well` hide this one:
    /// `open_report()` and `stats()` tell of it in any.
    Damaged(Error),
    /// The disk is full: reads, removals, flushes and conversions go on, puts are refused until there is
    /// room; they are then taken again by themselves.
    Full(Error),
    /// A write or sync of the log or the manifest failed: reads go on, writes are refused until the
    /// database is reopened.
    Poisoned(Error),
    /// It was opened for reading only.
    ReadOnly,
    /// It was closed: reads through handles that are left go on, writes are refused.
    Closed,
}

/// The state of health of an engine.
#[derive(Debug, Default)]
pub struct Health {
    unwell: AtomicBool,
    read_only: AtomicBool,
    closed: AtomicBool,
    /// A sync of the log or the manifest failed: nothing is written any more.
    poisoned: Mutex<Option<Error>>,
    /// Background work that failed (a full disk, say), by [`Work`]. It is tried again when somebody
    /// asks, not before: a job that woke itself would spin.
    background: Mutex<BTreeMap<Work, Error>>,
    /// How often somebody asked.
    asked: AtomicU64,
    /// How often it was a user who did.
    insisted: AtomicU64,
}

impl Health {
    /// Of a database that was just opened; `read_only`: writes are refused from the beginning.
    pub fn new(read_only: bool) -> Health {
        let (unwell, read_only) = (AtomicBool::new(read_only), AtomicBool::new(read_only));
        Health { unwell, read_only, ..Health::default() }
    }

    /// Whether nothing is wrong.
    pub fn is_well(&self) -> bool {
        !self.unwell.load(Ordering::Acquire)
    }

    /// Whether the database was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// All of it, for users.
    pub fn report(&self) -> DatabaseHealth {
        if self.is_closed() {
            return DatabaseHealth::Closed;
        }
        if self.is_read_only() {
            return DatabaseHealth::ReadOnly;
        }
        if let Some(error) = lock(&self.poisoned).clone() {
            return DatabaseHealth::Poisoned(error);
        }
        let failed = lock(&self.background).values().next().cloned();
        failed.map_or(DatabaseHealth::Well, DatabaseHealth::Failing)
    }

    /// Whether [`Health::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses writes from now on; true the first time.
    pub fn close(&self) -> bool {
        let first = !self.closed.swap(true, Ordering::AcqRel);
        self.look(&lock(&self.background));
        first
    }

    /// Refuses writes from now on because of `error`.
    pub fn poison(&self, error: &Error) {
        lock(&self.poisoned).get_or_insert_with(|| error.clone());
        self.look(&lock(&self.background));
    }

    /// Whether writes are refused because a sync or a record failed.
    pub fn is_poisoned(&self) -> bool {
        !self.is_well() && lock(&self.poisoned).is_some()
    }

    /// Notes how background work went.
    pub fn note_background(&self, work: Work, result: &Result<()>) {
        self.note(&mut lock(&self.background), work, result);
    }

    /// As [`Health::note_background`], if nobody has [asked](Health::asked) since it was `asked` so often; whether it did. What was met
    /// before somebody asked is nothing he is to be told: he may have removed what stopped it. For who is sure to try again then, and not
    /// for long work that those who ask would never let come to an end.
    pub fn note_unless_asked(&self, work: Work, result: &Result<()>, asked: u64) -> bool {
        let mut background = lock(&self.background);
        // Counted, and what was noted forgotten, under this lock.
        let is_so = self.asked() == asked;
        if is_so {
            self.note(&mut background, work, result);
        }
        is_so
    }

    fn note(&self, background: &mut BTreeMap<Work, Error>, work: Work, result: &Result<()>) {
        match result {
            Ok(()) => drop(background.remove(&work)),
            Err(e) => drop(background.insert(work, e.clone())),
        }
        self.look(background);
    }

    /// Forgets what work on a keyspace met that was dropped: nobody misses it.
    pub fn forget(&self, keyspace: KeyspaceId) {
        let mut background = lock(&self.background);
        background.remove(&Work::Flush(keyspace));
        background.remove(&Work::Settle(keyspace));
        self.look(&background);
    }

    /// Has failed background work tried again, its errors forgotten. Whoever waits for such work
    /// says so before.
    pub fn ask_again(&self) {
        let mut background = lock(&self.background);
        self.asked.fetch_add(1, Ordering::AcqRel);
        background.clear();
        self.look(&background);
    }

    /// As [`Health::ask_again`], for a user: what is damaged is tried again as well.
    pub fn insist(&self) {
        self.insisted.fetch_add(1, Ordering::AcqRel);
        self.ask_again();
    }

    /// How often [`Health::insist`] was called. What was found damaged is left alone until it changes.
    pub fn insisted(&self) -> u64 {
        self.insisted.load(Ordering::Acquire)
    }

    /// How often [`Health::ask_again`] was called. A job that failed waits until it changes.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    fn look(&self, background: &BTreeMap<Work, Error>) {
        let failed = !background.is_empty();
        let unwell =
            failed || lock(&self.poisoned).is_some() || self.is_closed() || self.is_read_only();
        self.unwell.store(unwell, Ordering::Release);
    }

    /// What some work met, if it has not succeeded since and nobody has asked again.
    pub fn work_error(&self, work: Work) -> Option<Error> {
        if self.is_well() { None } else { lock(&self.background).get(&work).cloned() }
    }

    /// The error that background work met last, if it has not succeeded since.
    pub fn background_error(&self) -> Option<Error> {
        let failed = || lock(&self.background).values().next().cloned();
        // Not locked together: others take them the other way round.
        let poisoned = lock(&self.poisoned).clone();
        poisoned.or_else(failed)
    }

    /// # Errors
    /// `Closed`, `ReadOnly` or `Poisoned` if nothing can be written.
    pub fn check_writable(&self) -> Result<()> {
        if self.is_well() {
            return Ok(());
        }
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        if self.is_read_only() {
            let message = "the database was opened for reading only: open it without `read_only` or `salvage` to write";
            return Err(Error::new(ErrorKind::ReadOnly, message));
        }
        match &*lock(&self.poisoned) {
            Some(cause) => Err(Error::new(
                ErrorKind::Poisoned,
                format!(
                    "an earlier write or sync of the log or the manifest failed ({cause}); reads go \
                     on, writes do not: reopen the database to recover what is on the disk"
                ),
            )),
            None => Ok(()),
        }
    }

    /// # Errors
    /// As [`Health::check_writable`], or the error that background work met.
    pub fn check_background(&self) -> Result<()> {
        self.check_writable()?;
        let failed = lock(&self.background).values().next().cloned();
        failed.map_or(Ok(()), Err)
    }

    /// For whoever waits for some work: what other work met is no reason to give up.
    ///
    /// # Errors
    /// As [`Health::check_writable`], or the error that one of `works` met.
    pub fn check_work(&self, works: &[Work]) -> Result<()> {
        if self.is_well() {
            return Ok(());
        }
        self.check_writable()?;
        let background = lock(&self.background);
        let failed = works.iter().find_map(|work| background.get(work));
        failed.map_or(Ok(()), |e| Err(e.clone()))
    }
}

impl Engine {
    /// Why the first of the tables and value segments that could not be opened, and that are still needed,
    /// could not be.
    pub fn damage(&self) -> Option<Error> {
        self.view().keyspaces.values().find_map(|keyspace| keyspace.damage())
    }

    /// What the last sweep of a keyspace could not read and went round, or compactions leave alone.
    pub fn met_damage(&self) -> Option<Error> {
        let view = self.view();
        let swept = lock(&self.conversions).damage(|id| view.keyspaces.contains_key(&id));
        swept.or_else(|| lock(&self.claims).damage(&view, &self.health))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_before_somebody_asked_is_not_noted_after() {
        let (health, work) = (Health::default(), Work::Spill);
        let failed = Err(Error::new(ErrorKind::Io, "the device failed"));
        let asked = health.asked();
        assert!(health.note_unless_asked(work, &failed, asked) && !health.is_well());
        health.ask_again();
        assert!(health.is_well() && !health.note_unless_asked(work, &failed, asked));
        assert!(health.is_well() && health.note_unless_asked(work, &failed, health.asked()));
        assert_eq!(health.work_error(work).unwrap().kind(), ErrorKind::Io);
    }
}
