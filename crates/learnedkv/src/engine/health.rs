//! Whether writes can go on, and if not, why.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Engine, lock};
use crate::error::{Error, ErrorKind, MAKE_ROOM, Result};
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
    /// Background work failed (on a full disk, say), and waits to be asked again, or is being tried again for a writer who
    /// asked amid it. Reads go on, and writes until they would have to wait for it.
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
    background: Mutex<BTreeMap<Work, Met>>,
    /// How often somebody asked.
    asked: AtomicU64,
    /// How often somebody had asked when a user did last.
    insisted: AtomicU64,
}

/// What background work met that has not gone well since.
#[derive(Debug)]
struct Met {
    error: Error,
    /// How often somebody had asked when that began which failed, a step or all of the work. Who asked later is not told of it: he may
    /// have removed what stopped it, and it is tried again for him.
    asked: u64,
    /// Nobody has asked since it was noted, nor a user while it was being done.
    waits: bool,
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
        let failed = waiting(&lock(&self.background)).next().cloned();
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

    /// Notes how background work went, or a step of it, that began when somebody had [asked](Health::asked) so often. Whoever asks later
    /// than that has it tried again, and is told how that went.
    pub fn note(&self, work: Work, result: &Result<()>, asked: u64) {
        let mut background = lock(&self.background);
        match result {
            Ok(()) => _ = background.remove(&work),
            // What began before says nothing to whom the other is told.
            Err(_) if background.get(&work).is_some_and(|before| before.asked > asked) => {}
            Err(error) => {
                // Asked for under this lock. Writers ask all the time: what takes long would be seen by nobody.
                let waits = asked >= self.insisted();
                background.insert(work, Met { error: error.clone(), asked, waits });
            }
        }
        self.look(&background);
    }

    /// Forgets what work on a keyspace met that was dropped: nobody misses it.
    pub fn forget(&self, keyspace: KeyspaceId) {
        let mut background = lock(&self.background);
        background.remove(&Work::Flush(keyspace));
        background.remove(&Work::Settle(keyspace));
        self.look(&background);
    }

    /// Has failed background work tried again. How often somebody has asked by now: whoever waits for such work is told of what it meets
    /// [from then on](Health::check_work).
    pub fn ask_again(&self) -> u64 {
        self.ask(false)
    }

    /// As [`Health::ask_again`], for a user: what is damaged is tried again as well.
    pub fn insist(&self) -> u64 {
        self.ask(true)
    }

    fn ask(&self, insists: bool) -> u64 {
        let mut background = lock(&self.background);
        let asked = self.asked.load(Ordering::Acquire) + 1;
        if insists {
            self.insisted.store(asked, Ordering::Release);
        }
        self.asked.store(asked, Ordering::Release);
        background.values_mut().for_each(|met| met.waits = false);
        self.look(&background);
        asked
    }

    /// How often somebody had [asked](Health::asked) when [`Health::insist`] was called last. What was found damaged is left alone until it
    /// changes.
    pub fn insisted(&self) -> u64 {
        self.insisted.load(Ordering::Acquire)
    }

    /// How often somebody asked ([`Health::ask_again`], [`Health::insist`]). A job that failed waits until it changes.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    fn look(&self, background: &BTreeMap<Work, Met>) {
        let failed = waiting(background).next().is_some();
        let unwell =
            failed || lock(&self.poisoned).is_some() || self.is_closed() || self.is_read_only();
        self.unwell.store(unwell, Ordering::Release);
    }

    /// What some work met, if it has not succeeded since and nobody has asked again (nor a user while it was being done).
    pub fn work_error(&self, work: Work) -> Option<Error> {
        if self.is_well() {
            return None;
        }
        lock(&self.background).get(&work).filter(|met| met.waits).map(|met| met.error.clone())
    }

    /// What some work met that began when somebody had asked `since` times or more often, if it has not succeeded since.
    pub fn work_error_since(&self, work: Work, since: u64) -> Option<Error> {
        let background = lock(&self.background);
        background.get(&work).filter(|met| met.asked >= since).map(|met| met.error.clone())
    }

    /// An error that background work met, if that has not succeeded since and nobody has asked again (nor a user while it was being done).
    pub fn background_error(&self) -> Option<Error> {
        // Not locked together: others take them the other way round.
        let poisoned = lock(&self.poisoned).clone();
        poisoned.or_else(|| waiting(&lock(&self.background)).next().cloned())
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

    /// For whoever waits for all work and [asked](Health::ask_again) the time that `since` is.
    ///
    /// # Errors
    /// As [`Health::check_writable`], or the error that any work met since.
    pub fn check_all(&self, since: u64) -> Result<()> {
        self.check_writable()?;
        let background = lock(&self.background);
        let failed = background.values().find(|met| met.asked >= since);
        failed.map_or(Ok(()), |met| Err(met.error.clone()))
    }

    /// As [`Health::check_all`], for whoever waits for some work: what other work met is no reason to give up.
    ///
    /// # Errors
    /// As [`Health::check_writable`], or the error that one of `works` met since.
    pub fn check_work(&self, works: &[Work], since: u64) -> Result<()> {
        self.check_writable()?;
        works.iter().find_map(|work| self.work_error_since(*work, since)).map_or(Ok(()), Err)
    }
}

/// What is to be asked for again.
fn waiting(background: &BTreeMap<Work, Met>) -> impl Iterator<Item = &Error> {
    background.values().filter(|met| met.waits).map(|met| &met.error)
}

impl Engine {
    /// [Notes](Health::note) how work went. What a keyspace met that was dropped meanwhile nobody misses.
    pub fn note_work(&self, work: Work, result: &Result<()>, asked: u64) {
        self.health.note(work, result, asked);
        if let (Err(_), Work::Flush(at) | Work::Settle(at)) = (result, work)
            && !self.view().keyspaces.contains_key(&at)
        {
            self.health.forget(at);
        }
    }

    /// What work that was waited for has met; one for want of room says what to do.
    pub fn advised(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::DiskFull {
            return error;
        }
        error.advise(|| match self.disk().room(self.dir()) {
            Some(room) => format!("; {} bytes are free here: {MAKE_ROOM}", room.free_bytes),
            None => format!("; {MAKE_ROOM}"),
        })
    }

    /// Waits until something is done, or `met` says why it will not be.
    ///
    /// # Errors
    /// What `met` said.
    pub fn wait_until_done(
        &self,
        is_done: &dyn Fn() -> bool,
        met: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        // Kept: others may have it tried again, and go well, before this thread is on.
        let mut told = Ok(());
        self.executor.wait_until(&mut || {
            is_done() || {
                told = met();
                told.is_err()
            }
        });
        if is_done() { Ok(()) } else { told }
    }

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
    use std::sync::Arc;

    use super::*;
    use crate::disk::OperationKind;
    use crate::disk::faulty::{Fault, FaultyDisk};
    use crate::disk::sim::SimDisk;
    use crate::executor::SeededExecutor;
    use crate::{Database, KeyspaceOptions, Store};

    fn failed(why: &str) -> Result<()> {
        Err(Error::new(ErrorKind::Io, why))
    }

    #[test]
    fn who_asked_is_told_of_what_began_since() {
        let (health, work) = (Health::default(), Work::Flush(1));
        let begun = health.asked();
        let since = health.ask_again();
        health.note(work, &failed("before"), begun);
        assert!(health.check_work(&[work], since).is_ok() && health.check_all(since).is_ok());
        // Others who ask hide nothing from him.
        let begun = health.asked();
        health.note(work, &failed("since"), begun);
        let later = health.ask_again();
        let why = |result: Result<()>| result.unwrap_err().to_string();
        assert!(why(health.check_work(&[work], since)).contains("since"));
        assert!(why(health.check_all(since)).contains("since"));
        assert!(health.check_work(&[work], later).is_ok() && health.check_all(later).is_ok());
        assert!(health.check_work(&[Work::Settle(1)], since).is_ok(), "it is other work");
        health.note(work, &Ok(()), health.asked());
        assert!(health.check_all(0).is_ok());
    }

    /// Two jobs at one keyspace: what the slower met hid what the other did, for which nobody tried again.
    #[test]
    fn what_began_before_does_not_hide_what_began_since() {
        let (health, work) = (Health::default(), Work::Settle(1));
        let slow = health.asked();
        let since = health.ask_again();
        health.note(work, &failed("quick"), since);
        health.note(work, &failed("slow"), slow);
        let told = health.check_work(&[work], since).unwrap_err().to_string();
        assert!(told.contains("quick"), "{told}");
    }

    /// Writers ask with each memtable that is full: long work that failed amid them was seen by nobody.
    #[test]
    fn what_fails_amid_writers_who_ask_is_seen_and_amid_users_who_do_tried_again() {
        let (health, work) = (Health::default(), Work::Settle(1));
        let begun = health.asked();
        health.ask_again();
        health.note(work, &failed("amid writers"), begun);
        assert!(!health.is_well() && health.work_error(work).is_some());
        assert!(matches!(health.report(), DatabaseHealth::Failing(_)));
        let begun = health.ask_again();
        assert!(health.is_well() && health.work_error(work).is_none(), "it is tried again");
        health.insist();
        health.note(work, &failed("amid users"), begun);
        assert!(health.is_well() && health.background_error().is_none());
        health.note(work, &failed("tried again"), health.asked());
        assert!(health.background_error().is_some_and(|e| e.to_string().contains("again")));
    }

    /// A database with keyspaces of several runs and something in memory, on a disk that fails.
    struct Failing {
        sim: SimDisk,
        faulty: FaultyDisk,
        executor: Arc<SeededExecutor>,
        db: Database,
        keyspaces: Vec<crate::Keyspace>,
    }

    impl Failing {
        fn new(stores: &[Store]) -> Failing {
            let sim = SimDisk::new(1);
            let faulty = FaultyDisk::new(Arc::new(sim.clone()));
            let executor = Arc::new(SeededExecutor::new(1));
            let builder = Database::builder("/db").disk(Arc::new(faulty.clone()));
            let db = builder.executor(executor.clone()).open().unwrap();
            let of = |(number, store): (usize, &Store)| {
                let options = KeyspaceOptions::default().store(*store);
                db.keyspace(&format!("k{number}"), options).unwrap()
            };
            let keyspaces: Vec<_> = stores.iter().enumerate().map(of).collect();
            for run in 0..5_u8 {
                for keyspace in &keyspaces {
                    (0..100_u8).for_each(|key| keyspace.insert([key], [run; 100]).unwrap());
                    keyspace.flush().unwrap();
                }
            }
            keyspaces.iter().for_each(|keyspace| keyspace.insert("new", "in memory").unwrap());
            Failing { sim, faulty, executor, db, keyspaces }
        }

        /// The sync of a table that is `at` fails, `once` or with all behind it, and until it has somebody asks amid each attempt.
        fn fail(&self, at: u64, once: bool) {
            let fault = Fault::at(at).of(&[OperationKind::Sync]).on_paths_with("table-");
            let counts = self.faulty.fail(if once { fault } else { fault.from_then_on() });
            let engine = self.db.engine().clone();
            self.sim.observe(move |operation, _| {
                let is_over = once && counts.fired() > 0;
                if operation.path.to_string_lossy().contains("table-") && !is_over {
                    engine.health.ask_again();
                }
            });
        }

        fn end(&self) {
            self.sim.stop_observing();
            self.faulty.clear_faults();
        }
    }

    /// A sweep that failed was begun again for whoever had asked meanwhile, without end where somebody always had, and nobody was told.
    #[test]
    fn who_waits_is_told_though_others_ask_amid_each_attempt() {
        type Wait = fn(&crate::Keyspace, &Database) -> Result<()>;
        let waits: [(Store, Wait); 5] = [
            (Store::Tiered, |keyspace, _| keyspace.convert()),
            (Store::Tiered, |keyspace, _| keyspace.flush()),
            (Store::Lsm, |keyspace, _| keyspace.compact()),
            (Store::Lsm, |_, db| {
                db.engine().rotate_all(&[1]);
                db.wait_idle()
            }),
            (Store::Lsm, |keyspace, _| keyspace.flush()),
        ];
        for (store, wait) in waits {
            let failing = Failing::new(&[store]);
            failing.fail(0, false);
            let (db, asked) = (&failing.db, failing.db.engine().health.asked());
            let error = wait(&failing.keyspaces[0], db).expect_err("no table can be synced");
            assert_eq!(error.kind(), ErrorKind::Io, "{store:?}: {error}");
            assert!(db.engine().health.asked() > asked + 1, "nobody asked amid it");
            failing.end();
            db.wait_idle().unwrap();
            assert!(matches!(db.health(), DatabaseHealth::Well), "{:?}", db.health());
        }
    }

    /// What failed was tried again for who had asked amid it and went well, and the database said that it waits to be asked.
    #[test]
    fn what_went_well_when_it_was_tried_again_is_told_of_no_more() {
        // The flush, and the sweep or compaction.
        for (store, at) in
            [Store::Tiered, Store::Lsm].map(|store| [(store, 0), (store, 1)]).concat()
        {
            let failing = Failing::new(&[store]);
            failing.fail(at, true);
            let (db, engine) = (&failing.db, failing.db.engine());
            let number = lock(&engine.conversions).ask(1);
            engine.executor.notify();
            let mut was_failing = false;
            while failing.executor.step_one() {
                was_failing |= matches!(db.health(), DatabaseHealth::Failing(_));
            }
            assert!(was_failing, "{store:?} {at}");
            assert!(
                matches!(db.health(), DatabaseHealth::Well),
                "{store:?} {at}: {:?}",
                db.health()
            );
            assert!(lock(&engine.conversions).outcome(1, number).unwrap().is_ok());
            failing.end();
        }
    }

    /// The flush of the oldest memtable failed, and was tried again and again for who had asked amid it, and the other's never.
    #[test]
    fn of_flushes_that_fail_none_is_behind_another_for_ever() {
        let failing = Failing::new(&[Store::Tiered, Store::Lsm]);
        failing.fail(0, false);
        failing.db.engine().rotate_all(&[1]);
        for of in [1, 0, 1] {
            assert_eq!(failing.keyspaces[of].flush().unwrap_err().kind(), ErrorKind::Io);
        }
        failing.end();
        failing.db.flush().unwrap();
    }

    /// Who waited for one keyspace was told what to do, and who waited for all was told of a file that could not be made.
    #[test]
    fn on_a_full_disk_all_who_wait_are_told_what_to_do() {
        let failing = Failing::new(&[Store::Tiered]);
        let (db, keyspace) = (&failing.db, &failing.keyspaces[0]);
        let full = Fault::at(0).of(&[OperationKind::Create]).with(ErrorKind::DiskFull);
        failing.faulty.fail(full.on_paths_with("table-").from_then_on());
        for told in [db.flush(), db.wait_idle(), keyspace.flush(), keyspace.convert()] {
            let text = told.unwrap_err().to_string();
            assert_eq!(text.matches(MAKE_ROOM).count(), 1, "{text}");
        }
        failing.end();
        db.flush().unwrap();
    }

    /// What somebody waited for failed, and went well for another before he woke: he was told that all had.
    #[test]
    fn who_gave_up_is_told_of_what_he_gave_up_for() {
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = db.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
        let asked = std::cell::Cell::new(0);
        let met = || {
            asked.set(asked.get() + 1);
            if asked.get() == 1 { failed("once") } else { Ok(()) }
        };
        let told = db.engine().wait_until_done(&|| false, &met).unwrap_err();
        assert!(told.to_string().contains("once"), "{told}");
        db.engine().wait_until_done(&|| true, &|| failed("not asked")).unwrap();
    }
}
