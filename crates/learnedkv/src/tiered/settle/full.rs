//! What settling does on a full disk beside steps of sweeps: see [`crate::engine::Ballast`] for why they find room.

use std::collections::BTreeSet;

use super::super::covered;
use super::super::debt::Victims;
use super::super::plan::Course;
use super::super::sweep::SweepStep;
use super::super::trim::{Tried, Trim};
use super::hold::Sweeping;
use super::{Found, SettleJob, Work};
use crate::engine::{self, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::KeyspaceId;
use crate::lsm::merge::Merge;
use crate::view::KeyspaceView;

/// Whether a sweep that is over has given value segments back, or had none to empty and settled something.
pub(super) fn made_room(keyspace: &KeyspaceView, over: &Sweeping) -> bool {
    let is_there = |id: &u64| keyspace.tables.segments.get(*id).is_some();
    let Some(course) = &over.course else { return false };
    !course.victims.iter().all(is_there)
        // One that follows settles nothing: so it is done once.
        || over.chosen.is_empty() && over.swept_bytes > 0
}

impl SettleJob {
    /// The merge that a keyspace needs, if there is room for it, or for a smaller one.
    ///
    /// # Errors
    /// `DiskFull` if there is none that has room; those of the cursor; the damage of a table that could not be opened.
    pub(super) fn merge_that_fits(&self, keyspace: &KeyspaceView) -> Result<Option<Merge>> {
        let (coming, most_bytes) = (self.coming(keyspace), self.may_merge(keyspace));
        let was_refused = lock(&self.shared).refuses_merges(keyspace.id);
        let may_read = Merge::may_read(&self.engine, was_refused);
        let found = Merge::find(&self.engine, keyspace, coming, most_bytes.min(may_read))?;
        let is_due = || Merge::due(keyspace, coming, most_bytes).is_some();
        if found.is_none() && may_read < most_bytes && is_due() {
            return Err(self.engine.full());
        }
        Ok(found)
    }

    /// A merge that reads so much is over: the disk may have refused it.
    pub(super) fn note_merge(&self, input_bytes: u64, error: Option<&Error>) {
        let at = self.at.unwrap_or_default();
        let is_refused = error.is_some_and(|error| error.kind() == ErrorKind::DiskFull);
        if error.is_none() || is_refused {
            lock(&self.shared).note_merge(at, input_bytes, is_refused);
        }
    }

    /// What is done before a step of a sweep on a full disk: what is in memory is flushed, and what removed ranges leave nothing of
    /// comes free.
    ///
    /// # Errors
    /// Those of an edit.
    pub(super) fn before_step(&self, keyspace: &KeyspaceView) -> Result<Option<Found>> {
        if !self.engine.ballast.is_given_up() {
            return Ok(None);
        }
        if self.flushes_first(keyspace) {
            return Ok(Some(Found::Nothing));
        }
        match covered::empty(&self.engine, keyspace) {
            // A step may find room where the edit did not.
            Err(e) if e.kind() == ErrorKind::DiskFull => Ok(None),
            emptied => Ok(emptied?.then_some(Found::Done)),
        }
    }

    /// On a full disk: whether what is in memory is to be flushed before a step, and can be: what it removes the
    /// step does not write. What is not full yet only where somebody waits, and once for each who has asked: each flush takes
    /// room, and while others go on removing there is always something.
    fn flushes_first(&self, keyspace: &KeyspaceView) -> bool {
        let id = keyspace.id;
        if self.engine.health.work_error(engine::Work::Flush(id)).is_some() {
            return false;
        }
        !keyspace.sealed.is_empty()
            || !keyspace.active.is_empty()
                && self.has_new_request(id)
                && self.engine.rotate(id).is_ok()
    }

    /// Whether somebody has asked for a conversion since memory was looked at last.
    fn has_new_request(&self, keyspace: KeyspaceId) -> bool {
        let conversions = lock(&self.engine.conversions);
        let (is_wanted, asked) = (conversions.is_wanted(keyspace), conversions.asked(keyspace));
        drop(conversions);
        let mut shared = lock(&self.shared);
        let flushed_for = &mut shared.sweeps.entry(keyspace).or_default().flushed_for;
        is_wanted && std::mem::replace(flushed_for, asked) != asked
    }

    /// A step of a sweep found no room: it is begun again once what it wrote is removed, with more room or with less to write.
    ///
    /// # Errors
    /// `error`, if neither can be had.
    pub(super) fn make_room_for(&mut self, step: Box<SweepStep>, error: Error) -> Result<()> {
        let at = self.at.unwrap_or_default();
        let has_room = lock(&self.shared).stop_ahead(at)
            || match step.leaves_too_little() {
                true => self.engine.give_up_ballast(self.room_seen),
                false => self.engine.may_have_room(&mut self.room_seen),
            };
        drop(step);
        if has_room {
            self.let_go();
        } else if let Some(trim) = self.find_trim(at) {
            self.work = Work::Trim(trim);
        } else if self.spares_victims(at) {
            self.let_go();
        } else {
            return Err(error);
        }
        Ok(())
    }

    /// A table of the frozen part that is trimmed first, if that gives room.
    fn find_trim(&self, at: KeyspaceId) -> Option<Box<Trim>> {
        if !self.engine.ballast.is_given_up() {
            return None;
        }
        let view = self.engine.view();
        let keyspace = view.keyspaces.get(&at)?;
        let mut shared = lock(&self.shared);
        let sweeping = shared.sweeps.get_mut(&at)?;
        let (since, found_none) = &mut sweeping.found_no_room;
        if *since != self.asked {
            (*since, *found_none) = (self.asked, BTreeSet::new());
        }
        let was_tried =
            |table: &Tried| sweeping.tried.contains(table) || found_none.contains(table);
        Trim::find(&self.engine, keyspace, was_tried).map(Box::new)
    }

    /// Has the sweep of a keyspace leave the value segments alone that it was to empty: a step that moves no values gives back what it
    /// takes. False: there are none.
    fn spares_victims(&self, at: KeyspaceId) -> bool {
        let mut shared = lock(&self.shared);
        let Some(sweeping) = shared.sweeps.get_mut(&at) else { return false };
        if !sweeping.is_on_full_disk {
            return false;
        }
        sweeping.claimed_bytes = 0;
        sweeping.course.as_mut().is_some_and(Course::spare_segments)
    }

    /// The value segments that a sweep finds room to empty.
    pub(super) fn victims(&self, keyspace: &KeyspaceView, claimed_by_others: u64) -> Victims {
        let room = self.engine.room_to_settle().unwrap_or(0) / 2;
        Victims::that_fit(
            &keyspace.tables,
            &keyspace.options,
            room.saturating_sub(claimed_by_others),
        )
    }

    /// Goes on with trimming a table. One that finds no room, or meets damage, is left as it is, and another comes.
    ///
    /// # Errors
    /// Others.
    pub(super) fn trim(&mut self, mut trim: Box<Trim>) -> Result<bool> {
        let is_over = trim.step();
        if matches!(is_over, Ok(false)) {
            self.work = Work::Trim(trim);
            return Ok(true);
        }
        let at = self.at.unwrap_or_default();
        if let Some(sweeping) = lock(&self.shared).sweeps.get_mut(&at) {
            let found_none = &mut sweeping.found_no_room.1;
            let tried = if is_over.is_ok() { &mut sweeping.tried } else { found_none };
            tried.extend(trim.tried());
        }
        drop(trim);
        // The step that found no room is begun again.
        match is_over {
            Err(e) if e.kind() != ErrorKind::DiskFull && !e.is_corruption() => Err(e),
            _ => {
                self.let_go();
                Ok(true)
            }
        }
    }

    /// Whether another sweep follows one that is over, for there may be room to empty more value segments: it gave some back, or it had
    /// room for none before it settled what it did; and that was not enough.
    pub(super) fn follows_on_full_disk(&self, keyspace: &KeyspaceView, over: &Sweeping) -> bool {
        made_room(keyspace, over) && self.empties_segments(keyspace)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::debt::{self, Choice};
    use super::super::hold::Sweeping;
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::executor::Job;
    use crate::tiered::testing::Without;
    use crate::{Database, Keyspace, KeyspaceOptions, Result};
    use std::sync::Arc;

    const KEYSPACE: KeyspaceId = 1;
    const PLENTY: u64 = 1 << 30;

    /// A keyspace on a disk that is said to be full, and a job that has it to itself.
    struct Full {
        disk: SimDisk,
        db: Database,
        keyspace: Keyspace,
        job: SettleJob,
    }

    fn open(options: KeyspaceOptions) -> Full {
        let disk = SimDisk::new(1);
        disk.set_space_limit_bytes(Some(PLENTY));
        let builder = Database::builder("/db")
            .disk(Arc::new(disk.clone()))
            .executor(Arc::new(Without::settling()))
            .memtable_bytes(64 << 10)
            .memory_budget_bytes(1 << 20)
            .log_segment_bytes(64 << 10)
            .automatic_conversion(false);
        let db = builder.open().unwrap();
        let keyspace = db.keyspace("k", options).unwrap();
        let job = SettleJob::new(db.engine(), Arc::default(), true);
        Full { disk, db, keyspace, job }
    }

    impl Full {
        fn becomes_full(&self) {
            let engine = self.db.engine();
            while !engine.ballast.is_given_up() {
                assert!(engine.give_up_ballast(engine.room_seen()), "there is one");
            }
        }

        fn view(&self) -> Arc<KeyspaceView> {
            self.db.engine().keyspace(KEYSPACE).unwrap()
        }

        fn is_unsettled(&self) -> bool {
            let tables = &self.view().tables;
            tables.frozen.is_some() || !tables.runs.is_empty()
        }

        fn convert(&self) {
            lock(&self.db.engine().conversions).ask(KEYSPACE);
        }

        fn trim(&mut self, mut trim: Box<Trim>) -> Result<bool> {
            self.job.at = Some(KEYSPACE);
            loop {
                self.job.trim(trim)?;
                match std::mem::replace(&mut self.job.work, Work::None) {
                    Work::Trim(goes_on) => trim = goes_on,
                    _ => return Ok(self.job.at.is_none()),
                }
            }
        }
    }

    /// Two runs frozen, most of which a newer one has removed, and nothing swept of them yet.
    fn frozen() -> Full {
        let mut full = open(KeyspaceOptions::default().block_bytes(512).partition_bytes(64 << 10));
        for run in 0..2u8 {
            (0..200u8).for_each(|key| full.keyspace.insert([key, run], [run; 100]).unwrap());
            full.keyspace.flush().unwrap();
        }
        full.convert();
        while full.keyspace.stats().unwrap().runs != 2 || full.view().tables.frozen.is_none() {
            full.job.step();
        }
        full.job.drop_work();
        for run in 0..2u8 {
            (0..180u8).for_each(|key| full.keyspace.remove([key, run]).unwrap());
        }
        full.keyspace.flush().unwrap();
        full.becomes_full();
        full
    }

    /// The table of which most would be gained was chosen again each time, though there was no room for it, and no other
    /// was ever tried.
    #[test]
    fn where_one_table_finds_no_room_another_is_trimmed() {
        let mut full = frozen();
        let first = full.job.find_trim(KEYSPACE).expect("most is hidden");
        let tried = first.tried().next();
        full.disk.set_space_limit_bytes(Some(full.disk.used_bytes()));
        assert!(full.trim(first).unwrap(), "it lets go, and the step is begun again");
        full.disk.set_space_limit_bytes(Some(PLENTY));
        let second = full.job.find_trim(KEYSPACE).expect("there are two tables");
        assert_ne!(second.tried().next(), tried);
        // Perhaps others have made room.
        full.job.asked += 1;
        let again = full.job.find_trim(KEYSPACE).expect("somebody has asked");
        assert_eq!(again.tried().next(), tried);
        assert!(full.trim(again).unwrap());
        // What came of it is not tried: nothing more is hidden there, though as many newer removals lie over it.
        let next = full.job.find_trim(KEYSPACE).expect("there is the other");
        assert_eq!(next.tried().next(), second.tried().next());
    }

    /// The same was begun again each time, whatever room there was; and on a full disk one took half of what was left to flushes and
    /// removals.
    #[test]
    fn where_a_merge_was_refused_one_is_sought_that_fits() {
        let full = open(KeyspaceOptions::default());
        // Of the same size but for the first.
        for run in 0..14u8 {
            let keys = 0..if run == 0 { 200u8 } else { 20 };
            keys.for_each(|key| full.keyspace.insert([key, run], [run; 200]).unwrap());
            full.keyspace.flush().unwrap();
        }
        let found = || full.job.merge_that_fits(&full.view());
        let reads = || found().unwrap().map(|merge| merge.input_bytes());
        let most = reads().expect("there are too many runs");
        let leave = |bytes| {
            full.disk.set_space_limit_bytes(Some(full.disk.used_bytes() + bytes));
        };
        leave(most - 1);
        assert_eq!(reads(), Some(most), "nothing was refused: it is not asked");
        let mut job = SettleJob::new(full.db.engine(), full.job.shared.clone(), true);
        job.at = Some(KEYSPACE);
        job.note_merge(most, Some(&full.db.engine().full()));
        let smaller = reads().expect("one of fewer runs");
        assert!(smaller < most, "{smaller} of {most}");
        leave(smaller / 4);
        assert_eq!(found().map(drop).unwrap_err().kind(), ErrorKind::DiskFull);
        leave(PLENTY);
        assert_eq!(reads(), Some(most));
        full.becomes_full();
        let half =
            full.db.engine().free_bytes().unwrap() - full.db.engine().room_to_settle().unwrap();
        assert!(half > most, "{half}");
        leave(half + most);
        assert_eq!(reads(), Some(most));
        leave(half);
        assert_eq!(found().map(drop).unwrap_err().kind(), ErrorKind::DiskFull);
    }

    /// Values of 3 kB apart, two of three removed and settled; and something fresh all over.
    fn mostly_dead() -> Full {
        let options = KeyspaceOptions::default().inline_limit(1024).partition_bytes(8 << 10);
        let mut full = open(options);
        // Each segment has some all over.
        for key in (0..90u32).map(|number| (number * 37 % 90) as u8) {
            full.keyspace.insert([key], [key; 3000]).unwrap();
            (0..5u8).for_each(|short| full.keyspace.insert([key, short], [key; 100]).unwrap());
        }
        full.keyspace.flush().unwrap();
        (0..90u8).filter(|key| key % 3 > 0).for_each(|key| full.keyspace.remove([key]).unwrap());
        full.keyspace.flush().unwrap();
        // Only now are they dead, and pointed at by what is settled.
        full.convert();
        while full.keyspace.stats().unwrap().settled_entries == 0 || full.is_unsettled() {
            full.job.step();
            full.db.engine().bury();
        }
        (0..90u8).for_each(|key| full.keyspace.insert([key, 9], [key; 100]).unwrap());
        full.keyspace.flush().unwrap();
        full.becomes_full();
        full
    }

    /// What the first sweep went round was forgotten by the one that followed it, and a conversion said that all was well.
    #[test]
    fn a_sweep_that_follows_another_knows_what_that_could_not_read() {
        let full = mostly_dead();
        // So that there is no room for puts.
        full.disk.set_space_limit_bytes(Some(full.disk.used_bytes() + (512 << 10)));
        full.convert();
        let view = full.view();
        let victims = BTreeSet::from([u64::MAX]);
        let course = Course::of(&view.tables, &view.options, victims, true);
        let damage = Error::new(ErrorKind::Corruption, "a base");
        let mut over = Sweeping::decided(1, 0);
        (over.course, over.damage) = (Some(course), vec![damage.clone()]);
        assert!(full.job.sweeps_again(KEYSPACE, &over), "there is a segment to empty");
        let shared = lock(&full.job.shared);
        let found = shared.sweeps[&KEYSPACE].damage.last().map(ToString::to_string);
        assert_eq!(found, Some(damage.to_string()));
    }

    /// A sweep that had given back so much that the disk was full no more was followed by none, and a conversion said that all was
    /// well.
    #[test]
    fn where_the_disk_is_full_no_more_another_sweep_follows_for_what_is_left() {
        let full = mostly_dead();
        full.convert();
        let view = full.view();
        let engine = full.db.engine();
        let course = Course::of(&view.tables, &view.options, BTreeSet::from([u64::MAX]), true);
        let mut over = Sweeping::decided(lock(&engine.conversions).asked(KEYSPACE), 0);
        over.course = Some(course);
        assert!(engine.ballast.is_given_up());
        assert!(full.job.sweeps_again(KEYSPACE, &over), "there are segments to empty");
        assert!(!engine.ballast.is_given_up());
        let all = debt::settled_and_mostly_dead(&view.tables, &view.options);
        let following = &lock(&full.job.shared).sweeps[&KEYSPACE];
        assert_eq!((following.to_empty.as_ref(), all.len() > 1), (Some(&all), true));
    }

    /// What a damaged table holds was the deadest, took the room of all else each time, and no sweep was due for that.
    #[test]
    fn what_an_earlier_sweep_could_not_empty_comes_last() {
        let full = mostly_dead();
        let view = full.view();
        let victims = |choice: &Choice| debt::victims(&view.tables, &view.options, choice);
        let all = debt::settled_and_mostly_dead(&view.tables, &view.options);
        let before = victims(&Choice::default());
        assert!(!before.is_empty() && before.len() < all.len(), "{before:?} of {all:?}");
        let kept = Choice { kept: before.clone(), ..Choice::default() };
        assert!(!victims(&kept).is_subset(&before), "there are others");
        let first = all.difference(&before).last().copied();
        let wanted = Choice { first: first.into_iter().collect(), ..Choice::default() };
        assert!(victims(&wanted).is_superset(&wanted.first), "somebody waits for it");
        assert!(victims(&Choice { room: Some(0), ..Choice::default() }).is_empty());
    }

    #[test]
    fn what_other_sweeps_are_to_empty_is_not_there_for_this_one() {
        let mut full = mostly_dead();
        let view = full.view();
        let victims = full.job.victims(&view, 0);
        assert!(!victims.segments.is_empty() && victims.live_bytes >= 30 * 3000);
        let room = full.db.engine().room_to_settle().unwrap() / 2;
        assert!(full.job.victims(&view, room).segments.is_empty());
        let but_one = Victims::that_fit(&view.tables, &view.options, victims.live_bytes - 1);
        assert!(but_one.segments.len() < victims.segments.len());

        full.convert();
        while lock(&full.job.shared).sweeps.get(&KEYSPACE).is_none_or(|s| s.course.is_none()) {
            full.job.step();
        }
        let shared = lock(&full.job.shared);
        assert_eq!(shared.claimed_by_others(KEYSPACE + 1), victims.live_bytes);
        assert_eq!(shared.claimed_by_others(KEYSPACE), 0);
        drop(shared);
        assert!(full.job.spares_victims(KEYSPACE), "once");
        assert!(!full.job.spares_victims(KEYSPACE));
        assert_eq!(lock(&full.job.shared).claimed_by_others(KEYSPACE + 1), 0);
    }

    /// Part of a segment is used by what the sweep has settled: then it does not go, whatever is moved out of it.
    #[test]
    fn a_segment_that_settled_partitions_keep_is_not_emptied() {
        let mut full = mostly_dead();
        full.convert();
        while lock(&full.job.shared).sweeps.get(&KEYSPACE).is_none_or(|s| s.course.is_none()) {
            full.job.step();
        }
        full.job.drop_work();
        let all = full.job.victims(&full.view(), 0).segments;
        assert!(full.job.spares_victims(KEYSPACE));
        let watermark = |full: &Full| full.view().tables.frozen.as_ref().unwrap().watermark.clone();
        while watermark(&full).is_empty() {
            full.job.step();
        }
        assert!(full.view().tables.partitions.len() > 1);
        let view = full.view();
        let first = &view.tables.partitions[0];
        let tables = first.base.iter().chain(&first.delta);
        let kept: BTreeSet<_> =
            tables.flat_map(|t| &t.properties().segments).map(|used| used.segment).collect();
        assert!(!kept.is_disjoint(&all), "{kept:?} of {all:?}");
        let left = full.job.victims(&view, 0).segments;
        assert!(kept.is_disjoint(&left) && !left.is_empty(), "{kept:?}, {left:?} of {all:?}");
    }

    /// What was put after a range was removed is settled below the watermark, where the range in the frozen part is older.
    #[test]
    fn what_was_put_behind_a_removed_range_is_not_emptied_with_what_it_covers() {
        let options = KeyspaceOptions::default().block_bytes(512).partition_bytes(8 << 10);
        let mut full = open(options);
        let put = |full: &Full, keys: std::ops::Range<u8>, fill: u8| {
            let all = keys.flat_map(|key| (0..5u8).map(move |short| [key, short]));
            all.for_each(|key| full.keyspace.insert(key, [fill; 100]).unwrap());
        };
        put(&full, 0..200, 1);
        full.keyspace.flush().unwrap();
        full.convert();
        let step_until = |full: &mut Full, is_there: fn(&Full) -> bool| {
            for _ in 0..100_000 {
                if is_there(full) {
                    return;
                }
                full.job.step();
                // It waits for that, and nobody else does it here.
                full.db.engine().bury();
            }
            panic!("it does not get there");
        };
        step_until(&mut full, |full| !full.is_unsettled());
        assert!(full.view().tables.partitions.len() > 10);
        full.keyspace.remove_range([5]..).unwrap();
        put(&full, 0..60, 2);
        full.keyspace.flush().unwrap();
        full.convert();
        step_until(&mut full, |full| {
            full.view().tables.frozen.as_ref().is_some_and(|frozen| frozen.watermark > vec![20])
        });
        full.job.drop_work();
        full.becomes_full();
        let check = |full: &Full| {
            let mut found = full.keyspace.iter().map(Result::unwrap);
            let all = (0..60u8).flat_map(|key| (0..5u8).map(move |short| [key, short]));
            for key in all {
                let (found, value) = found.next().unwrap();
                assert_eq!((&found[..], &value[..]), (&key[..], &[2; 100][..]));
            }
            assert!(found.next().is_none());
        };
        let bytes = |full: &Full| full.view().tables.settled().map(|t| t.file_bytes()).sum::<u64>();
        let before = bytes(&full);
        assert!(covered::empty(full.db.engine(), &full.view()).unwrap());
        assert!(bytes(&full) < before / 2, "{} of {before}", bytes(&full));
        check(&full);
        assert!(!covered::empty(full.db.engine(), &full.view()).unwrap(), "nothing is left");
        step_until(&mut full, |full| !full.is_unsettled());
        check(&full);
    }
}
