//! Which runs are merged among themselves, and when: where there are too many, and where reads have paid for it
//! ([`price::is_merge_due`]).

use std::sync::Arc;

use super::super::debt::{self, Debt};
use super::super::price;
use super::{Found, SettleJob, Work};
use crate::engine::lock;
use crate::error::{Error, ErrorKind, Result};
use crate::lsm::merge::{self, Merge};
use crate::view::{KeyspaceView, View};

impl SettleJob {
    pub(super) fn find_merges(
        &mut self,
        keyspaces: &[Arc<KeyspaceView>],
        view: &View,
    ) -> Result<bool> {
        let least = self.least_runs(view);
        let due = keyspaces.iter().filter(|k| k.tables.runs.len() >= least).cloned();
        self.find_at(&due.collect::<Vec<_>>(), Self::find_merge)
    }

    /// The same of those that reads have paid for: nobody needs them, so they come after all else.
    pub(super) fn find_merges_for_reads(
        &mut self,
        keyspaces: &[Arc<KeyspaceView>],
    ) -> Result<bool> {
        // Of idle keyspaces there may be very many.
        let paid = keyspaces.iter().filter(|k| price::is_merge_due(&self.engine, k));
        self.find_at(&paid.cloned().collect::<Vec<_>>(), Self::find_merge_for_reads)
    }

    fn find_merge_for_reads(&self, keyspace: &KeyspaceView) -> Result<Found> {
        let is_swept = lock(&self.shared).sweeps.contains_key(&keyspace.id)
            || lock(&self.engine.conversions).is_wanted(keyspace.id);
        let is_flushing = self.engine.view().keyspaces.with_sealed().next().is_some();
        if is_swept || is_flushing || !price::is_merge_due(&self.engine, keyspace) {
            return Ok(Found::Nothing);
        }
        let runs = 0..keyspace.tables.runs.len();
        let Ok(merge) = Merge::of(&self.engine, keyspace, runs) else {
            keyspace.merging.put_off();
            return Ok(Found::Nothing);
        };
        Ok(Found::Begun(Work::Merge(Box::new(merge.for_reads()))))
    }

    /// So many runs are merged, at least.
    pub(super) fn least_runs(&self, view: &View) -> usize {
        let flushing = view.keyspaces.with_sealed().next().is_some();
        // Writers wait for flushes, nobody for merges, unless there are very many runs.
        if flushing { merge::MAX_RUNS_WHILE_FLUSHING } else { 0 }
    }

    /// Whether a merge of runs is due.
    pub(super) fn is_merge_due(&self, keyspace: &KeyspaceView) -> bool {
        Merge::due(keyspace, self.coming(keyspace), self.may_merge(keyspace)).is_some()
    }

    fn find_merge(&self, keyspace: &KeyspaceView) -> Result<Found> {
        if keyspace.tables.runs.len() <= merge::MAX_RUNS {
            return Ok(Found::Nothing);
        }
        let merge = match self.merge_that_fits(keyspace) {
            Ok(Some(merge)) => merge,
            Ok(None) => return Ok(Found::Nothing),
            Err(e) => {
                // A sweep takes the runs, and needs less room: it may just wait for a flush.
                let is_swept = lock(&self.shared).sweeps.contains_key(&keyspace.id)
                    || lock(&self.engine.conversions).is_wanted(keyspace.id);
                let waits = is_swept && e.kind() == ErrorKind::DiskFull;
                return if waits { Ok(Found::Nothing) } else { Err(e) };
            }
        };
        if let Some(sweeping) = lock(&self.shared).sweeps.get_mut(&keyspace.id) {
            sweeping.merged_bytes += merge.input_bytes();
        }
        Ok(Found::Begun(Work::Merge(Box::new(merge))))
    }

    /// One that failed. What reads alone have paid for nobody needs: it is put off, and nobody is told. What is damaged there the
    /// reads of it say, and the sweep that is to take it.
    ///
    /// # Errors
    /// Why it failed, of any other.
    pub(super) fn give_up_merge(&mut self, merge: Merge, error: Error) -> Result<bool> {
        if !merge.is_for_reads() {
            self.note_merge(merge.input_bytes(), Some(&error));
            merge.give_up();
            return Err(error);
        }
        merge.give_up();
        let view = self.engine.view();
        if let Some(keyspace) = self.at.and_then(|at| view.keyspaces.get(&at)) {
            keyspace.merging.put_off();
        }
        drop(view);
        self.let_go();
        Ok(true)
    }

    /// How many runs will be flushed before a sweep takes them all, about.
    pub(super) fn coming(&self, keyspace: &KeyspaceView) -> usize {
        const MANY: usize = usize::MAX / 2;
        let is_stuck = lock(&self.shared).failed.contains_key(&keyspace.id);
        if !self.engine.options.automatic_conversion || is_stuck {
            return MANY;
        }
        // The newest run is what a flush makes, unless it was merged already.
        let newest = keyspace.tables.runs.first().map_or(0, debt::run_bytes);
        let flushed = newest.min(self.engine.options.memtable_bytes as u64).max(1);
        let left = Debt::of(&keyspace.tables).left(&keyspace.options);
        usize::try_from(left.div_ceil(flushed)).map_or(MANY, |runs| runs.min(MANY))
    }

    /// How many bytes a merge may take now. See the module page.
    pub(super) fn may_merge(&self, keyspace: &KeyspaceView) -> u64 {
        if self.engine.ballast.is_given_up() {
            return u64::MAX;
        }
        let shared = lock(&self.shared);
        if shared.failed.contains_key(&keyspace.id) {
            // The sweep may be stuck for long: runs are not to pile up behind it.
            return u64::MAX;
        }
        match shared.sweeps.get(&keyspace.id) {
            Some(sweeping) => (sweeping.swept_bytes / 2).saturating_sub(sweeping.merged_bytes),
            // One that an earlier process began.
            None if keyspace.tables.frozen.is_some() => 0,
            None => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::executor::Job;
    use crate::tiered::testing::Without;
    use crate::{Database, Keyspace, KeyspaceOptions};

    /// A keyspace with so many runs, in which gets ask one after the other, and a job that has it to itself.
    fn with_runs(runs: u32) -> (Database, Keyspace, SettleJob) {
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = db.executor(Arc::new(Without::settling())).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().lsm_filter(None)).unwrap();
        (0..runs).for_each(|run| flush_run(&keyspace, run));
        let job = SettleJob::new(db.engine(), Arc::default(), true);
        (db, keyspace, job)
    }

    fn flush_run(keyspace: &Keyspace, run: u32) {
        (0..100u32).for_each(|n| keyspace.insert((n * 100 + run).to_be_bytes(), [1]).unwrap());
        keyspace.flush().unwrap();
    }

    fn paid(keyspace: &Keyspace, db: &Database) -> u64 {
        let view = db.engine().keyspace(1).unwrap();
        assert_eq!(view.name.as_ref(), keyspace.name());
        view.merging.paid()
    }

    /// The share of no run at all was asked for, by a division.
    #[test]
    fn a_snapshot_of_what_is_being_settled_pays_for_no_merge_of_what_came_after_it() {
        let (db, keyspace, mut job) = with_runs(3);
        lock(&db.engine().conversions).ask(1);
        while db.engine().keyspace(1).unwrap().tables.frozen.is_none() {
            job.step();
        }
        let snapshot = db.snapshot();
        (3..6).for_each(|run| flush_run(&keyspace, run));
        let before = keyspace.stats().unwrap().unsettled_requests;
        for round in 0..200u32 {
            for n in 0..100u32 {
                let key = (n * 100).to_be_bytes();
                assert!(snapshot.get(&keyspace, key).unwrap().is_some(), "{round}");
            }
        }
        assert!(keyspace.stats().unwrap().unsettled_requests > before, "or it tests nothing");
        assert_eq!(paid(&keyspace, &db), 0);
    }

    /// Of the runs that a snapshot shows none stands any more, and merging others does not help it.
    #[test]
    fn reads_of_runs_that_were_merged_pay_for_no_other_merge() {
        let (db, keyspace, mut job) = with_runs(3);
        let snapshot = db.snapshot();
        let walk = |reads: u32| {
            (0..reads).for_each(|_| assert_eq!(snapshot.iter(&keyspace).count(), 300));
        };
        walk(100);
        assert!(paid(&keyspace, &db) > 0);
        walk(2000);
        while db.stats().merges_for_reads == 0 {
            assert_ne!(job.step(), crate::executor::Step::Wait);
        }
        assert_eq!(paid(&keyspace, &db), 0);
        (3..5).for_each(|run| flush_run(&keyspace, run));
        walk(100);
        assert_eq!(paid(&keyspace, &db), 0);
        (0..100).for_each(|_| assert_eq!(keyspace.iter().count(), 500));
        assert!(paid(&keyspace, &db) > 0);
    }

    /// Writers wait for flushes, and what is being settled is over before what a merge would gain is paid.
    #[test]
    fn nothing_is_merged_for_reads_while_a_memtable_waits_or_something_is_settled() {
        let (db, keyspace, mut job) = with_runs(3);
        let pay = |id| {
            let view = db.engine().keyspace(id).unwrap();
            assert!(view.merging.pay(1 << 30));
        };
        let is_begun = |job: &mut SettleJob| {
            let found = job.find_merges_for_reads(&[db.engine().keyspace(1).unwrap()]);
            let begun = found.unwrap() && matches!(job.work, Work::Merge(_));
            job.drop_work();
            begun
        };
        assert!(!is_begun(&mut job), "nothing was paid");
        pay(1);
        assert!(is_begun(&mut job));
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        other.insert("key", "value").unwrap();
        db.engine().rotate(other.id()).unwrap();
        assert!(!is_begun(&mut job), "a memtable waits");
        other.flush().unwrap();
        assert!(is_begun(&mut job));
        lock(&db.engine().conversions).ask(1);
        assert!(!is_begun(&mut job), "a sweep is wanted");
        while !lock(&job.shared).sweeps.contains_key(&1) {
            job.step();
        }
        lock(&db.engine().conversions).finish(1, 1, None);
        assert!(!is_begun(&mut job), "a sweep is decided on");
        lock(&db.engine().conversions).ask(1);
        while db.engine().keyspace(1).unwrap().tables.frozen.is_none() {
            job.step();
        }
        assert_eq!(paid(&keyspace, &db), 0, "it was for what is being settled");
        (3..6).for_each(|run| flush_run(&keyspace, run));
        pay(1);
        assert!(!is_begun(&mut job), "something is being settled");
    }

    /// More and more runs came, and the merge that had become due waited for the one that nobody needs.
    #[test]
    fn a_merge_for_reads_is_given_up_where_another_is_due() {
        let (db, keyspace, mut job) = with_runs(3);
        assert!(db.engine().keyspace(1).unwrap().merging.pay(1 << 30));
        db.engine().note_paid(1);
        job.step();
        assert!(matches!(&job.work, Work::Merge(merge) if merge.is_for_reads()));
        flush_run(&keyspace, 3);
        assert!(!job.is_in_the_way());
        (4..30).for_each(|run| flush_run(&keyspace, run));
        assert!(job.is_merge_due(&db.engine().keyspace(1).unwrap()) && job.is_in_the_way());
        job.step();
        assert!(matches!(&job.work, Work::Merge(merge) if !merge.is_for_reads()));
    }

    #[test]
    fn a_merge_is_priced_by_its_entries_and_bytes() {
        let (db, keyspace, _job) = with_runs(2);
        let price = || price::of_merge(&db.engine().keyspace(1).unwrap());
        assert_eq!(price(), 64, "200 entries of a few bytes");
        for n in 0..6000u32 {
            keyspace.insert((n * 100 + 2).to_be_bytes(), [1]).unwrap();
        }
        keyspace.flush().unwrap();
        // 6,200 of 512, and less than 128 KiB.
        let of_entries = price();
        assert!((76..=78).contains(&of_entries), "{of_entries}");
        for n in 0..100u32 {
            keyspace.insert((n * 100 + 3).to_be_bytes(), vec![1; 400 << 10]).unwrap();
        }
        keyspace.flush().unwrap();
        assert!(price() <= of_entries + 1, "values apart stay where they are");
    }
}
