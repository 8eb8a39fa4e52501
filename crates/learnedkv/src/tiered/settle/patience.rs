//! What of the settling the program is not to notice ([`Step::Patiently`](crate::executor::Step::Patiently)).
//!
//! Steps of sweeps and merges have patience: they go on where a processor is left over, and slowly where flushes leave
//! none. There is a hurry where writers pay ([`crate::engine::pace`]), where somebody waits until nothing is left to do, and
//! always where sweeps go ahead by themselves. What has patience rests beside a program that does something
//! ([`Step::Leisurely`](crate::executor::Step::Leisurely), decision 56): so the share of what settles rises with what is owed. None has patience
//! * a merge of very many runs, which all lookups pay for;
//! * what goes on while the disk is full, and what ends because its keyspace is gone.
//!
//! No sweep that could begin waits for a merge of its keyspace's runs among themselves: it is given up, since the sweep takes them as they are,
//! and what it wrote would be written again (decision 58).

use std::sync::Arc;

use super::super::price;
use super::super::rewrite::Rewrite;
use super::{SettleJob, Work, damage_of_runs, due};
use crate::engine::lock;
use crate::executor::Step;
use crate::lsm::merge;
use crate::view::KeyspaceView;

/// Whether a step is put off for what background work has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Not,
    Back,
    /// It was, and comes next.
    Over,
}

impl SettleJob {
    /// Whether the next step of its work has patience.
    pub(super) fn is_patient(&self) -> bool {
        let view = self.engine.view();
        let Some(at) = self.at.and_then(|at| view.keyspaces.get(&at)).cloned() else {
            return false;
        };
        drop(view);
        !self.engine.ballast.is_given_up()
            && match &self.work {
                Work::None => false,
                Work::Merge(_) => at.tables.runs.len() < merge::MAX_RUNS_WHILE_FLUSHING,
                Work::Sweep(_) | Work::Trim(_) => true,
            }
    }

    /// How its next step is to come, after one before which the program had done so many `operations`.
    pub(super) fn goes_on(&self, operations: u64) -> Step {
        match self.is_patient() {
            true if self.engine.operations() != operations => Step::Leisurely,
            true => Step::Patiently,
            false => Step::Again,
        }
    }

    /// Whether what it goes on with waits until files are removed.
    fn waits_for_burials(&self) -> bool {
        let at = self.at.unwrap_or_default();
        self.engine.waits_for_burials(at, self.engine.pace.pressure(at) > 0)
    }

    /// What it says instead of a step, while background work has written too much for now, or removals are behind; and once more
    /// when that is over, since for the executor it has only looked, without patience. Then it is its turn, whoever
    /// wrote meanwhile.
    pub(super) fn hold_back(&mut self) -> Option<Step> {
        if !self.goes_on_writing() {
            self.held = Held::Not;
            return None;
        }
        let removals = self.waits_for_burials().then_some(Step::Wait);
        let wait = removals.or_else(|| self.engine.wait_for_allowance());
        match (self.held, wait) {
            (Held::Back, None) => {
                self.held = Held::Over;
                Some(if self.is_patient() { Step::Patiently } else { Step::Again })
            }
            (Held::Not | Held::Back, Some(wait)) => {
                self.held = Held::Back;
                Some(wait)
            }
            (Held::Not, None) | (Held::Over, _) => {
                self.held = Held::Not;
                None
            }
        }
    }

    /// Whether there is work that its next step goes on with, for all that is known.
    fn goes_on_writing(&mut self) -> bool {
        !self.is_in_the_way()
            && !matches!(self.work, Work::None)
            && self.engine.health.check_writable().is_ok()
            && !self.engine.is_given_up_since(self.room_seen)
            && (!self.is_ahead || self.may_stay_ahead())
            && !self.is_at_nothing()
    }

    /// Whether its keyspace is gone.
    pub(super) fn is_at_nothing(&self) -> bool {
        self.at.is_some_and(|at| !self.engine.view().keyspaces.contains_key(&at))
    }

    /// Whether it merges where a sweep would begin that takes the runs, or for reads alone where others would merge. One that is due does not where the merge is, or another
    /// would be, `instead` of it.
    pub(super) fn is_in_the_way(&mut self) -> bool {
        let Work::Merge(merge) = &self.work else { return false };
        let (instead, is_for_reads) = (merge.is_rewrite(), merge.is_for_reads());
        let Some(at) = self.at.and_then(|at| self.engine.view().keyspaces.get(&at).cloned()) else {
            return false;
        };
        if is_for_reads && at.tables.runs.len() > merge::MAX_RUNS && self.is_merge_due(&at) {
            return true;
        }
        let tables = &at.tables;
        let is_known = {
            let shared = lock(&self.shared);
            // One that is decided waits for a flush, and on a full disk the flush for the merge.
            shared.failed.contains_key(&at.id) || shared.sweeps.contains_key(&at.id)
        };
        if is_known || tables.frozen.is_some() || damage_of_runs(&at).is_some() {
            return false;
        }
        if lock(&self.engine.conversions).is_wanted(at.id) {
            return true;
        }
        // Sums over all tables: once for each that a merge sees, unless it is given up. (That is asked anew: the sweep is.)
        let seen = self.not_in_the_way_of.as_ref();
        if instead || seen.is_some_and(|seen| std::ptr::eq(seen.as_ptr(), &**tables)) {
            return false;
        }
        let is_swept = due::is_due(&self.engine, &at) && self.instead_of_sweep(&at).is_none();
        if !is_swept {
            self.not_in_the_way_of = Some(Arc::downgrade(tables));
        }
        is_swept
    }

    /// What is cheaper than a sweep that is due, if anything.
    pub(super) fn instead_of_sweep(&self, keyspace: &KeyspaceView) -> Option<Rewrite> {
        // Where the disk is full, something cannot be read or reads have paid for a sweep, what is known to help goes on.
        let is_hindered = self.engine.ballast.is_given_up()
            || price::is_due(&self.engine, keyspace)
            || lock(&self.shared).failed.contains_key(&keyspace.id);
        let rewrite = Rewrite::instead_of_sweep(&keyspace.tables, &keyspace.options);
        rewrite.filter(|_| !is_hindered)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::time::Duration;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::executor::{Job, Step};
    use crate::format::entry::KeyspaceId;
    use crate::lsm::merge::Merge;
    use crate::sstable::Retired;
    use crate::tiered::settle::hold::Sweeping;
    use crate::tiered::testing::Without;
    use crate::{Database, Keyspace, KeyspaceOptions};

    /// The least that background work may be left a second.
    const LEAST: u64 = 64 << 10;

    /// A keyspace with so many runs of 6 KiB, and a job that has it to itself.
    fn with_runs(runs: u8) -> (Database, Keyspace, SettleJob) {
        with_runs_and(runs, 1 << 50, false)
    }

    /// The same where background work may write so many bytes a second, and sweeps begin by themselves, from 72 KiB on.
    fn with_runs_and(runs: u8, limit: u64, automatic: bool) -> (Database, Keyspace, SettleJob) {
        let db = Database::builder("/db")
            .background_bytes_per_s(limit)
            .disk(Arc::new(SimDisk::new(1)))
            .executor(Arc::new(Without::settling()))
            .memtable_bytes(16 << 10)
            .memory_budget_bytes(1 << 20)
            .log_segment_bytes(64 << 10)
            .automatic_conversion(automatic)
            .open()
            .unwrap();
        let options = KeyspaceOptions::default().block_bytes(512).min_conversion_bytes(72 << 10);
        let keyspace = db.keyspace("k", options).unwrap();
        flush_runs(&keyspace, 0..runs);
        assert_eq!(keyspace.stats().unwrap().runs, u64::from(runs));
        let job = SettleJob::new(db.engine(), Arc::default(), true);
        (db, keyspace, job)
    }

    fn flush_runs(keyspace: &Keyspace, runs: Range<u8>) {
        for run in runs {
            for key in 0..60u8 {
                keyspace.insert([key, run], [run; 100]).unwrap();
            }
            keyspace.flush().unwrap();
        }
    }

    /// The first step that does something, with `beside` done by the program meanwhile.
    fn step_beside(job: &mut SettleJob, beside: impl FnOnce()) -> Step {
        let before = job.engine.operations();
        beside();
        assert_eq!(job.advance().ok(), Some(true));
        job.goes_on(before)
    }

    #[test]
    fn what_has_patience_rests_only_beside_a_program_that_does_something() {
        let (db, keyspace, mut job) = with_runs(12);
        assert_eq!([job.step(), job.step()], [Step::Patiently; 2]);
        assert_eq!(step_beside(&mut job, || {}), Step::Patiently);
        let reads: [fn(&Keyspace); 6] = [
            |k| assert!(k.first_key_value().unwrap().is_some()),
            |k| assert!(k.get([1, 1]).unwrap().is_some()),
            |k| assert!(k.get("none").unwrap().is_none()),
            |k| assert_eq!(k.iter().take(3).count(), 3),
            |k| assert_eq!(k.iter().rev().take(3).count(), 3),
            |k| assert!(k.multi_get([[1, 1]]).unwrap()[0].is_some()),
        ];
        for (at, read) in reads.into_iter().enumerate() {
            assert_eq!(step_beside(&mut job, || read(&keyspace)), Step::Leisurely, "{at}");
        }
        assert_eq!(step_beside(&mut job, || keyspace.remove("none").unwrap()), Step::Leisurely);
        assert_eq!(step_beside(&mut job, || {}), Step::Patiently);
        keyspace.flush().unwrap();
        ask(&db);
        while !matches!(job.work, Work::Sweep(_)) {
            job.step();
            db.engine().bury();
        }
        assert_eq!(step_beside(&mut job, || reads[1](&keyspace)), Step::Leisurely);
        assert_eq!(job.step(), Step::Patiently);
    }

    fn ask(db: &Database) {
        lock(&db.engine().conversions).ask(1);
    }

    /// A merge that a conversion waited for went on beside flushes and the program, for a second at a time: the program had
    /// half of a processor. The sweep then wrote again what it had written.
    #[test]
    fn a_merge_is_given_up_where_a_sweep_would_begin() {
        let (db, _keyspace, mut job) = with_runs(12);
        assert_eq!([(); 3].map(|()| job.step()), [Step::Patiently; 3]);
        assert!(matches!(job.work, Work::Merge(_)));
        ask(&db);
        // Decides, freezes, begins.
        assert_eq!([(); 3].map(|()| job.step()), [Step::Again, Step::Again, Step::Patiently]);
        assert!(matches!(job.work, Work::Sweep(_)));
        let merged = db.stats().merged_bytes;
        assert!((1..12 * 6100).contains(&merged), "what was written, for nothing: {merged}");
        while job.at.is_some() {
            job.step();
        }
    }

    #[test]
    fn very_many_runs_are_merged_at_once() {
        let (_db, _keyspace, mut job) = with_runs(merge::MAX_RUNS_WHILE_FLUSHING as u8);
        assert_eq!([job.step(), job.step()], [Step::Again; 2]);
        assert!(matches!(job.work, Work::Merge(_)));
    }

    #[test]
    fn what_goes_on_where_its_keyspace_is_gone_has_no_patience() {
        let (db, _keyspace, mut job) = with_runs(12);
        assert_eq!(job.step(), Step::Patiently);
        db.drop_keyspace("k").unwrap();
        assert!(matches!(job.work, Work::Merge(_)) && !job.is_patient());
    }

    #[test]
    fn on_a_full_disk_nothing_has_patience() {
        let (db, _keyspace, mut job) = with_runs(12);
        assert_eq!(job.step(), Step::Patiently);
        let engine = db.engine();
        while !engine.ballast.is_given_up() {
            assert!(engine.give_up_ballast(engine.room_seen()), "there is one");
        }
        assert!(matches!(job.work, Work::Merge(_)) && !job.is_patient());
    }

    #[test]
    fn a_merge_is_given_up_once_a_sweep_is_due() {
        let (db, keyspace, mut job) = with_runs_and(9, 1 << 50, true);
        assert_eq!([(); 2].map(|()| job.step()), [Step::Patiently; 2]);
        assert!(matches!(job.work, Work::Merge(_)) && !job.is_in_the_way());
        flush_runs(&keyspace, 9..12);
        assert!(job.is_in_the_way());
        // Asked anew each time: what was due may not be any more.
        assert!(job.is_in_the_way() && job.not_in_the_way_of.is_some());
        while !matches!(job.work, Work::Sweep(_)) {
            assert_eq!(db.stats().swept_bytes, 0);
            job.step();
        }
    }

    /// It is done instead of the one that is due, which would be due for ever; not of one that somebody waits for.
    #[test]
    fn a_rewriting_goes_on_where_a_sweep_is_due_and_not_where_one_was_asked_for() {
        let (db, keyspace, mut job) = with_runs_and(9, 1 << 50, true);
        let view = db.engine().view().keyspaces.get(&1).cloned().unwrap();
        let merge = Merge::of(db.engine(), &view, 0..9).unwrap();
        assert!(lock(&job.shared).hold(1));
        (job.at, job.work) = (Some(1), Work::Merge(Box::new(merge)));
        flush_runs(&keyspace, 9..12);
        assert!(job.is_in_the_way(), "a merge of runs alone");
        let merge = Merge::of(db.engine(), &view, 0..9).unwrap().rewriting(Arc::default(), 0);
        job.work = Work::Merge(Box::new(merge));
        assert!(!job.is_in_the_way());
        assert_eq!(job.step(), Step::Patiently);
        assert!(matches!(&job.work, Work::Merge(merge) if merge.is_rewrite()));
        ask(&db);
        assert!(job.is_in_the_way());
    }

    /// It was put off for what the merge had written, by a quarter of a minute.
    #[test]
    fn what_is_given_up_is_not_waited_for_where_writing_is_limited() {
        let (db, _keyspace, mut job) = with_runs_and(12, LEAST, false);
        while !matches!(job.step(), Step::WaitUntil(_)) {}
        assert!(matches!(job.work, Work::Merge(_)) && job.held == Held::Back);
        ask(&db);
        assert_eq!(job.step(), Step::Again);
        assert!(matches!(job.work, Work::None));
    }

    /// The sweep waits for somebody to ask again, or for a flush, not for the merge.
    #[test]
    fn a_merge_goes_on_where_no_sweep_would_begin() {
        let (db, _keyspace, mut job) = with_runs(12);
        assert_eq!(job.step(), Step::Patiently);
        ask(&db);
        assert!(job.is_in_the_way());
        lock(&job.shared).failed.insert(1, 0);
        assert!(!job.is_in_the_way());
        lock(&job.shared).failed.clear();
        lock(&job.shared).sweeps.insert(1, Sweeping::decided(1, 1));
        assert!(!job.is_in_the_way());
        assert_eq!(job.step(), Step::Patiently);
    }

    /// Whoever waited has only looked, for the executor: it has patience after that as before.
    #[test]
    fn a_merge_that_was_held_back_has_patience_again() {
        let (db, _keyspace, mut job) = with_runs_and(12, LEAST, false);
        let executor = &db.engine().executor;
        let mut steps = vec![job.step()];
        while !matches!(steps.last(), Some(Step::WaitUntil(_))) {
            steps.push(job.step());
        }
        let Some(Step::WaitUntil(due)) = steps.pop() else { unreachable!() };
        assert!(steps.iter().all(|step| *step == Step::Patiently), "{steps:?}");
        assert_eq!(job.step(), Step::WaitUntil(due), "looked at again before");
        executor.pause(due.saturating_sub(executor.now()));
        assert_eq!(job.step(), Step::Patiently);
        assert_eq!(db.engine().wait_for_allowance(), None, "nothing was written");
        // By others. It is not put off again.
        db.engine().spend_allowance(1);
        assert_eq!(job.step(), Step::Patiently);
        assert!(matches!(job.step(), Step::WaitUntil(later) if later > due));
    }

    /// Writers wait for those.
    #[test]
    fn flushes_are_not_held_back_and_hold_nothing_back() {
        let (db, keyspace, _job) = with_runs_and(6, LEAST, false);
        let engine = db.engine();
        assert_eq!(engine.wait_for_allowance(), None, "of six flushes");
        engine.spend_allowance(100 * LEAST);
        keyspace.insert("k", "v").unwrap();
        keyspace.flush().unwrap();
        assert!(engine.executor.now() < Duration::from_secs(1), "{:?}", engine.executor.now());
    }

    /// Adds a file that a keyspace has replaced, and that is not removed before somebody does.
    fn replaced(db: &Database, owner: KeyspaceId, bytes: u64) {
        let retired = Retired { bytes, owner: Some(owner), views: 0, is_alone: false };
        db.engine().context.graveyard.add("/db/none".into(), retired);
    }

    #[test]
    fn what_writes_waits_while_much_is_to_be_removed_or_anything_where_writers_pay() {
        let (db, _keyspace, mut job) = with_runs(12);
        let engine = db.engine();
        let two_memtables = 2 * engine.options.memtable_bytes as u64;
        replaced(&db, 2, 100 * two_memtables);
        assert_eq!([job.step(), job.step()], [Step::Patiently; 2], "by another keyspace");
        assert!(matches!(job.work, Work::Merge(_)));
        replaced(&db, 1, two_memtables);
        assert_eq!(job.step(), Step::Patiently);
        replaced(&db, 1, 1);
        assert_eq!([job.step(), job.step()], [Step::Wait; 2]);
        engine.bury();
        assert_eq!(engine.unremoved_bytes(), 0);
        // It has only looked, for the executor; then it is its turn, whatever was replaced meanwhile.
        assert_eq!(job.step(), Step::Patiently);
        replaced(&db, 1, 1);
        engine.press(1, 1);
        assert_eq!([job.step(), job.step()], [Step::Patiently, Step::Wait]);
        engine.press(1, 0);
        assert_eq!([job.step(), job.step()], [Step::Patiently; 2]);
    }

    /// Whoever needs room there removes what there is.
    #[test]
    fn on_a_full_disk_nothing_waits_for_what_is_to_be_removed() {
        let (db, _keyspace, mut job) = with_runs(12);
        let engine = db.engine();
        while !engine.ballast.is_given_up() {
            assert!(engine.give_up_ballast(engine.room_seen()), "there is one");
        }
        job.room_seen = engine.room_seen();
        assert_eq!(job.step(), Step::Again);
        replaced(&db, 1, 1 << 40);
        assert!(job.goes_on_writing());
        assert_eq!(job.step(), Step::Again);
    }

    #[test]
    fn what_is_held_back_is_given_up_where_its_keyspace_goes() {
        let (db, keyspace, mut job) = with_runs_and(12, LEAST, false);
        while !matches!(job.step(), Step::WaitUntil(_)) {}
        assert_eq!(job.held, Held::Back);
        db.drop_keyspace("k").unwrap();
        drop(keyspace);
        assert!(!matches!(job.step(), Step::WaitUntil(_)));
        assert!(matches!(job.work, Work::None) && lock(&job.shared).is_idle());
    }
}
