//! The jobs that compact.
//!
//! Each does one compaction after the other: what one works at no other picks ([`crate::engine::claims`]), and the room
//! that one may take is not promised to another. Where there is none but what was promised for what somebody waits for, nothing else is begun until
//! there is. Where there is none at all others go on for a while, who may make some; then whoever waits is told that there is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::compact::Compaction;
use super::goals::{Goals, Kind};
use super::outlook::{Found, Outlook, Pick, Space};
use super::pick::Picker;
use crate::engine::claims::Claims;
use crate::engine::{Engine, RoomSeen, Work, lock};
use crate::error::{Error, ErrorKind, MAKE_ROOM};
use crate::executor::{Job, Step};
use crate::format::entry::{KeyspaceId, TableId};
use crate::options::Store;
use crate::view::{KeyspaceView, Question, View};

/// The keyspaces of levels.
pub fn of_levels(view: &View) -> impl Iterator<Item = &Arc<KeyspaceView>> {
    view.keyspaces.values().filter(|k| k.options.chosen_store() == Store::Lsm)
}

/// Those in which something may be to be compacted, by what they hold or because somebody waits for it. All others are idle, and not looked
/// at: there may be very many. On a full disk all are.
pub fn may_be_due<'a>(
    engine: &Engine,
    view: &'a View,
    waited: impl Iterator<Item = KeyspaceId>,
) -> Vec<&'a Arc<KeyspaceView>> {
    if engine.ballast.is_given_up() {
        return of_levels(view).collect();
    }
    let disk_bytes = engine.disk_bytes();
    // Whatever is claimed, cannot be read or lacks room.
    let may_compact = |keyspace: &KeyspaceView| {
        let (claims, outlook) = (Claims::default(), Outlook { disk_bytes, ..Outlook::default() });
        keyspace.options.chosen_store() == Store::Lsm
            && !matches!(Picker::new(keyspace, &claims, outlook).pick(), Found::Nothing)
    };
    let by = disk_bytes.unwrap_or(u64::MAX);
    let found = view.keyspaces.answering(Question::Compacts, by, may_compact);
    let mut ids: BTreeSet<_> = found.iter().map(|keyspace| keyspace.id).collect();
    ids.extend(waited);
    let ours = ids.iter().filter_map(|id| view.keyspaces.get(id));
    ours.filter(|k| k.options.chosen_store() == Store::Lsm).collect()
}

/// Whether a compaction is under way that has a full disk to itself. Nor is it asked then how much room there is: for a moment that
/// takes the room ([`Engine::free_bytes`]).
pub fn is_left_alone(engine: &Engine, claims: &Claims) -> bool {
    engine.ballast.is_given_up() && !claims.is_empty()
}

/// How much room there is for compactions, where those under way may take `promised_bytes` of it: two memtables may be flushed
/// meanwhile, and on a full disk half of what was held back is for flushes and removals.
pub fn space(engine: &Engine, promised_bytes: u64) -> Option<Space> {
    let is_full = engine.ballast.is_given_up();
    if is_full {
        // What went is room.
        engine.bury();
    }
    let free = engine.free_bytes();
    let flushes = (2 * engine.options.memtable_bytes as u64).max(engine.ballast.half_bytes());
    let known = free.map(|free| {
        let left = free.saturating_sub(flushes);
        // What moves values out of mostly dead segments gives back more than it takes: it is left some where nothing else is.
        // What is promised, and written already, counts twice until whoever writes ends.
        Space { free_bytes: left, promised_bytes, moving_bytes: free / 2, is_full }
    });
    let no_end = Space { free_bytes: u64::MAX, promised_bytes: 0, moving_bytes: u64::MAX, is_full };
    known.or(is_full.then_some(no_end))
}

fn no_room(engine: &Engine, keyspace: &KeyspaceView) -> Error {
    let free = engine.disk().room(engine.dir()).map_or(0, |room| room.free_bytes);
    let message = format!(
        "keyspace {:?} cannot be compacted: {free} bytes are free here, its next compaction may need \
         more; {MAKE_ROOM}",
        keyspace.name
    );
    Error::new(ErrorKind::DiskFull, message).at_path(engine.dir()).advise(String::new)
}

/// Compacts whatever is due most.
pub struct CompactJob {
    engine: Arc<Engine>,
    goals: Goals,
    work: Option<Box<Compaction>>,
    /// The files that were left alone when it was chosen.
    avoided: BTreeSet<TableId>,
    /// What was seen of the room there is when its work began.
    room_seen: RoomSeen,
}

impl CompactJob {
    /// One for the keyspaces of `engine`.
    pub fn new(engine: &Arc<Engine>, goals: &Goals) -> CompactJob {
        let room_seen = engine.room_seen();
        let (engine, goals) = (engine.clone(), goals.clone());
        CompactJob { engine, goals, work: None, avoided: BTreeSet::new(), room_seen }
    }

    /// Begins the compaction whose turn it is of those that no other job does.
    pub fn begin(&mut self, asked: u64) -> Step {
        let (engine, health) = (&self.engine, &self.engine.health);
        engine.see_room(&mut self.room_seen);
        let mut claims = lock(&engine.claims);
        if is_left_alone(engine, &claims) {
            return Step::Wait;
        }
        // Looked at under the claims: of what is free no edit is still to come.
        let view = engine.view();
        let (room, disk_bytes) = (space(engine, claims.promised_bytes()), engine.disk_bytes());
        engine.see_probes(&mut self.room_seen);
        let mut waited = lock(&self.goals);
        let mut found: Option<(&Arc<KeyspaceView>, Box<Pick>)> = None;
        let (mut lacking, mut is_promised, mut gave_up) = (Vec::new(), false, false);
        let keyspaces = may_be_due(engine, &view, waited.keyspaces());
        for keyspace in keyspaces.into_iter().filter(|k| !claims.has_failed(k.id, health)) {
            let (goal, first) = (waited.get(keyspace.id), waited.first());
            let outlook = Outlook { health: Some(health), goal, first, room, disk_bytes };
            let picker = Picker::new(keyspace, &claims, outlook);
            let picked = picker.pick();
            let is_served = matches!(&picked, Found::Work(pick) if pick.turn.is_awaited);
            // Alone it is told otherwise.
            let others_work = !claims.is_empty() || found.is_some();
            if picker.goal_lacks_room()
                && !is_served
                && others_work
                && waited.is_impatient(keyspace.id)
            {
                waited.fail(keyspace.id, no_room(engine, keyspace));
                gave_up = true;
                continue;
            }
            match picked {
                Found::Work(pick) if found.as_ref().is_none_or(|(_, f)| f.turn < pick.turn) => {
                    found = Some((keyspace, pick));
                }
                Found::NoRoom => lacking.push((keyspace.clone(), goal.is_some())),
                Found::Promised => is_promised = true,
                _ => {}
            }
        }
        if gave_up {
            engine.executor.notify();
        }
        if let Some((keyspace, pick)) = found.filter(|_| !is_promised) {
            claims.forget_thinned(&view);
            let kind = match (pick.moves, pick.above.is_empty()) {
                (true, _) => Kind::Moves,
                (_, true) => Kind::Writes,
                (_, false) => Kind::Thins,
            };
            waited.note_begun(keyspace.id, pick.turn, kind);
            let claimed = claims.hold(engine, pick.claim.clone(), pick.room_bytes);
            self.avoided = claims.avoided(health);
            drop((waited, claims));
            self.work = Some(Box::new(Compaction::begin(engine, keyspace, *pick, claimed)));
            return Step::Again;
        }
        let others_work = !claims.is_empty();
        drop((waited, claims));
        // They may make room.
        if others_work { Step::Wait } else { self.tell_that_there_is_no_room(lacking, asked) }
    }

    /// For the next compaction of these there is no room, and nobody is at work who could make some; for each whether somebody waits.
    fn tell_that_there_is_no_room(
        &self,
        lacking: Vec<(Arc<KeyspaceView>, bool)>,
        asked: u64,
    ) -> Step {
        let (engine, health) = (&self.engine, &self.engine.health);
        let waits = lacking.iter().any(|(_, waits)| *waits);
        if lacking.is_empty() || waits && engine.give_up_ballast(self.room_seen) {
            return if waits { Step::Again } else { Step::Wait };
        }
        if health.asked() != asked {
            // Looked at before that: what was removed may be seen now.
            return Step::Again;
        }
        let mut changed = false;
        for (keyspace, _) in lacking {
            let (is_wanted, is_unbegun) = {
                let conversions = lock(&engine.conversions);
                (conversions.is_wanted(keyspace.id), conversions.is_unbegun(keyspace.id))
            };
            if is_unbegun {
                // It begins with what is in memory: that may be removals.
                changed |= lock(&self.goals).forget(keyspace.id);
                continue;
            }
            let fails = health.work_error(Work::Flush(keyspace.id)).is_some();
            let has_goal = lock(&self.goals).get(keyspace.id).is_some();
            if !fails && (is_wanted && !has_goal || !keyspace.sealed.is_empty()) {
                // It has begun, and has not said yet what it waits for: for that more room may be given up. Or what is being flushed may
                // make some.
                continue;
            }
            changed = true;
            let is_seen = |now: Arc<KeyspaceView>| Arc::ptr_eq(&now, &keyspace);
            if engine.keyspace(keyspace.id).is_ok_and(is_seen) {
                let no_room = Err(no_room(engine, &keyspace));
                let mut claims = lock(&engine.claims);
                claims.fail(keyspace.id, asked);
                engine.note_work(Work::Settle(keyspace.id), &no_room, asked);
                lock(&self.goals).is_told(keyspace.id);
            }
        }
        if !changed {
            return Step::Wait;
        }
        engine.executor.notify();
        Step::Again
    }

    fn succeeded(&self, keyspace: KeyspaceId) {
        let mut claims = lock(&self.engine.claims);
        claims.succeeded(keyspace);
        // Looked at under the claims: what others met is known by then.
        let Ok(view) = self.engine.keyspace(keyspace) else { return };
        let health = &self.engine.health;
        // Not by what else went well: a file that cannot be read is still there.
        let outlook = Outlook { health: Some(health), ..Outlook::default() };
        if Picker::new(&view, &claims, outlook).unread().is_none() {
            health.note(Work::Settle(keyspace), &Ok(()), health.asked());
        }
    }

    fn failed(&self, work: &Compaction, error: Error, asked: u64) {
        let (keyspace, health) = (work.keyspace(), &self.engine.health);
        let mut claims = lock(&self.engine.claims);
        match work.unread(&error) {
            // What is met again although it was left alone would be chosen again, without end.
            Some(file) if error.kind() != ErrorKind::DiskFull && !self.avoided.contains(&file) => {
                claims.avoid(file, &error, asked, health);
            }
            _ => claims.fail(keyspace, asked),
        }
        // For whoever asked meanwhile it is tried again (what is damaged, for users).
        self.engine.note_work(Work::Settle(keyspace), &Err(error), asked);
        drop(claims);
        self.engine.executor.notify();
    }

    /// One step of its work.
    fn go_on(&mut self) -> Step {
        if self.engine.health.check_writable().is_err() {
            self.work = None;
            return Step::Wait;
        }
        let asked = self.engine.health.asked();
        let Some(mut work) = self.work.take() else { return self.begin(asked) };
        match work.step() {
            Ok(None) => self.work = Some(work),
            Ok(Some(is_done)) => {
                self.room_seen.is_over();
                if is_done {
                    self.succeeded(work.keyspace());
                }
            }
            // Begun again, with more room.
            Err(e)
                if e.kind() == ErrorKind::DiskFull
                    && self.engine.may_have_room(&mut self.room_seen) => {}
            Err(e) => {
                self.room_seen.is_over();
                self.failed(&work, e, asked);
            }
        }
        // Its claim, if it is over, is let go here: what came of it is known.
        Step::Again
    }
}

impl Job for CompactJob {
    fn name(&self) -> &'static str {
        "compact"
    }

    fn step(&mut self) -> Step {
        let engine = self.engine.clone();
        let stays = |work: &Compaction| {
            engine.health.check_writable().is_ok() && engine.keyspace(work.keyspace()).is_ok()
        };
        if let Some(work) = self.work.as_deref().filter(|work| stays(work)) {
            if engine.waits_for_burials(work.keyspace(), false) {
                return Step::Wait;
            }
            if let Some(wait) = engine.wait_for_allowance() {
                return wait;
            }
        }
        engine.settling(|| self.go_on())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::engine::claims::Claim;
    use crate::executor::SeededExecutor;
    use crate::format::manifest::LEVELS;
    use crate::lsm::goals::{First, Goal, Turn};
    use crate::lsm::levels::Shape;
    use crate::tiered::testing::Without;
    use crate::view::Extent;
    use crate::{Database, Keyspace, KeyspaceOptions};

    const KEYS: u16 = 400;

    /// A database in which nothing is compacted but by hand.
    struct Fixture {
        disk: SimDisk,
        executor: Arc<Without>,
        goals: Goals,
        keyspaces: Vec<Keyspace>,
        db: Database,
    }

    impl Fixture {
        fn new(keyspaces: u32, level_base_bytes: u64) -> Fixture {
            let disk = SimDisk::new(1);
            let executor = Without(SeededExecutor::new(1), &["compact", "tend levels"]);
            let executor = Arc::new(executor);
            let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
            let builder = builder.memtable_bytes(64 << 10).log_segment_bytes(64 << 10);
            let builder = builder.ballast_bytes(0);
            let db = builder.executor(executor.clone()).open().unwrap();
            let options =
                KeyspaceOptions::default().store(Store::Lsm).level_base_bytes(level_base_bytes);
            let options = options.partition_bytes(64 << 10).separate_at(1 << 20);
            let names = (1..=keyspaces).map(|number| format!("k{number}"));
            let keyspaces = names.map(|name| db.keyspace(&name, options.clone()).unwrap());
            let keyspaces = keyspaces.collect();
            Fixture { disk, executor, goals: Goals::default(), keyspaces, db }
        }

        fn engine(&self) -> &Arc<Engine> {
            self.db.engine()
        }

        fn job(&self) -> CompactJob {
            CompactJob::new(self.engine(), &self.goals)
        }

        /// Runs of so many entries of 1,000 B each, over all keys.
        fn runs(&self, keyspace: usize, runs: usize, entries: usize) {
            for run in 0..runs {
                for number in (0..KEYS).step_by(KEYS as usize / entries) {
                    let value = [run as u8; 1000];
                    self.keyspaces[keyspace - 1].insert(number.to_be_bytes(), value).unwrap();
                }
                self.keyspaces[keyspace - 1].flush().unwrap();
            }
        }

        /// The first keyspaces have a base of [`KEYS`] entries, and four runs over it.
        fn runs_over_a_base(&self, keyspaces: usize) {
            for keyspace in 1..=keyspaces {
                self.runs(keyspace, 1, KEYS as usize);
                self.runs(keyspace, 4, 4);
            }
            finish_all(&mut self.job());
            (1..=keyspaces).for_each(|keyspace| self.runs(keyspace, 4, 4));
        }

        fn is_held(&self, keyspace: KeyspaceId) -> bool {
            lock(&self.engine().claims).any_of(keyspace)
        }
    }

    /// Steps to the end of what it has begun.
    fn finish(job: &mut CompactJob) {
        while job.work.is_some() {
            job.step();
        }
    }

    /// Compacts all that is due.
    fn finish_all(job: &mut CompactJob) {
        while matches!(job.begin(job.engine.health.asked()), Step::Again) {
            finish(job);
        }
    }

    /// What writers are kept back for had gone first each time, for it was due more.
    #[test]
    fn who_waits_for_one_keyspace_does_not_wait_for_ever_behind_another() {
        let f = Fixture::new(3, 1 << 20);
        f.runs(1, 1, 10);
        (2..=3).for_each(|keyspace| f.runs(keyspace, 9, 10));
        lock(&f.goals).set(1, Goal { level: 0, before: TableId::MAX });
        let served = Turn::new(0, true, false, First::Awaited);
        lock(&f.goals).note_begun(9, served, Kind::Writes);
        let [mut first, mut second] = [f.job(), f.job()];
        assert!(matches!(first.begin(0), Step::Again));
        assert!(f.is_held(2) && !f.is_held(1), "writers wait there");
        assert!(matches!(second.begin(0), Step::Again));
        assert!(f.is_held(1) && !f.is_held(3), "and then whoever waits here");
    }

    /// Two large ingests over one another made a level many times as large as it should be, and while it sank the runs piled up that
    /// writers pay for.
    #[test]
    fn runs_that_keep_writers_back_go_before_a_level_far_beyond_its_size() {
        let f = Fixture::new(1, 64 << 10);
        for fill in 0..2_u16 {
            let entries = (0..2000_u16).map(|n| ((2 * n + fill).to_be_bytes(), [1; 500]));
            f.keyspaces[0].ingest(entries).unwrap();
        }
        f.runs(1, 8, 3);
        let view = f.engine().keyspace(1).unwrap();
        let shape = Shape::of(&view.tables, &view.options, f.engine().sizes(&view.options));
        assert_eq!(view.tables.fresh().len(), 8);
        let scores = (shape.score(LEVELS - 1, 0), shape.score(0, 0));
        assert!(scores.0 > 2 * scores.1 && shape.base() < LEVELS - 1, "{scores:?} {shape:?}");
        let claims = lock(&f.engine().claims);
        match Picker::new(&view, &claims, Outlook::default()).pick() {
            Found::Work(pick) => assert_eq!(pick.from, 0),
            _ => panic!("nothing is to be done"),
        }
    }

    /// Each of several that began at once was promised all the room there is, and they met a full disk.
    #[test]
    fn room_is_promised_once() {
        for is_enough in [true, false] {
            let f = Fixture::new(2, 1 << 20);
            f.runs_over_a_base(2);
            let free = |bytes| f.disk.set_space_limit_bytes(Some(f.disk.used_bytes() + bytes));
            // Beside two memtables, which flushes may need.
            free((128 << 10) + if is_enough { 900_000 } else { 600_000 });
            let [mut first, mut second] = [f.job(), f.job()];
            assert!(matches!(first.begin(0), Step::Again));
            let promised = || lock(&f.engine().claims).promised_bytes();
            let all = 300_000..450_000;
            assert!(all.contains(&promised()), "{}", promised());
            let before = promised();
            second.begin(0);
            assert_eq!(all.contains(&(promised() - before)), is_enough);
            assert!(is_enough || second.work.is_none());
            // Who is done has given back what is not needed any more.
            finish(&mut first);
            finish(&mut second);
            f.executor.0.run_until_idle();
            assert_eq!(promised(), 0);
            second.begin(0);
            assert_eq!(all.contains(&promised()), !is_enough);
        }
    }

    /// Small ones took what was free, one after the other, and a large one that writers waited for never found as much.
    #[test]
    fn what_is_waited_for_does_not_lose_its_room_to_others() {
        for is_waited_for in [true, false] {
            let f = Fixture::new(3, 1 << 20);
            f.runs_over_a_base(2);
            if is_waited_for {
                f.runs(2, 4, 4);
            }
            f.runs(3, 4, 1);
            f.disk.set_space_limit_bytes(Some(f.disk.used_bytes() + (128 << 10) + 600_000));
            let [mut first, mut second] = [f.job(), f.job()];
            // As one that is due as much and came first.
            let claim =
                Claim { keyspace: 1, levels: 0..=LEVELS, extent: Extent::between(b"a", b"b") };
            let claimed = lock(&f.engine().claims).hold(f.engine(), claim, 400_000);
            assert_eq!(matches!(second.begin(0), Step::Again), !is_waited_for);
            assert_eq!(f.is_held(3), !is_waited_for);
            assert!(!f.is_held(2), "there is no room yet");
            finish(&mut second);
            drop(claimed);
            assert!(matches!(first.begin(0), Step::Again));
            assert_eq!(f.is_held(2), is_waited_for);
        }
    }

    /// Others might make room: so the error did not come as long as any of them was at work.
    #[test]
    fn who_finds_no_room_is_told_though_others_are_always_at_work() {
        let f = Fixture::new(2, 1 << 20);
        f.runs_over_a_base(1);
        lock(&f.goals).set(1, Goal { level: 0, before: TableId::MAX });
        f.disk.set_space_limit_bytes(Some(f.disk.used_bytes() + (128 << 10) + 150_000));
        let [mut one, mut other] = [f.job(), f.job()];
        let mut rounds = 0;
        let told = loop {
            if let Some(told) = lock(&f.goals).take_failed(1) {
                break told;
            }
            rounds += 1;
            assert!(rounds < 200, "nobody is told");
            // One at least of the two is at work always.
            f.runs(2, 4, 1);
            let asked = f.engine().health.asked();
            one.begin(asked);
            finish(&mut other);
            std::mem::swap(&mut one, &mut other);
        };
        assert!(rounds > 20, "others were given time: {rounds}");
        assert_eq!(told.kind(), ErrorKind::DiskFull);
        assert!(lock(&f.goals).get(1).is_none());
        // And others go on.
        finish(&mut one);
        finish(&mut other);
        f.runs(2, 4, 1);
        one.begin(f.engine().health.asked());
        assert!(f.is_held(2));
        assert_eq!(f.engine().keyspace(1).unwrap().tables.fresh().len(), 4);
    }

    /// Who looked before a conversion had begun said that it found no room: what was in memory, removals too, was never looked at.
    #[test]
    fn who_converts_is_not_told_of_what_was_seen_before_he_asked() {
        let f = Fixture::new(1, 1 << 20);
        f.runs_over_a_base(1);
        f.disk.set_space_limit_bytes(Some(f.disk.used_bytes() + (128 << 10) + 150_000));
        let (engine, mut job) = (f.engine(), f.job());
        let mut is_told = || {
            finish_all(&mut job);
            engine.health.work_error(Work::Settle(1)).is_some()
        };
        let number = lock(&engine.conversions).ask(1);
        assert!(!is_told(), "it has not begun");
        lock(&engine.conversions).begin(1, number);
        assert!(!is_told(), "it has not said what it waits for");
        lock(&f.goals).set(1, Goal { level: 0, before: TableId::MAX });
        assert!(is_told());
        // And who asks again begins anew.
        engine.health.insist();
        lock(&engine.conversions).ask(1);
        assert!(!is_told() && lock(&f.goals).get(1).is_none());
        lock(&engine.conversions).finish(1, number + 1, None);
        assert!(is_told(), "nobody waits");
        // Where the flush that it waits for fails it would never say so, and writers would pay for ever.
        engine.health.insist();
        let number = lock(&engine.conversions).ask(1);
        lock(&engine.conversions).begin(1, number);
        assert!(!is_told());
        let failed = Err(Error::new(ErrorKind::Io, "a flush failed"));
        engine.health.note(Work::Flush(1), &failed, engine.health.asked());
        assert!(is_told());
    }

    #[test]
    fn nobody_looks_at_levels_in_which_nothing_is_due() {
        let f = Fixture::new(70, 1 << 20);
        (1..=70).for_each(|keyspace| f.runs(keyspace, 1, 1));
        let due = |waited: &[KeyspaceId]| -> Vec<_> {
            let (engine, view) = (f.engine(), f.engine().view());
            let due = may_be_due(engine, &view, waited.iter().copied());
            due.into_iter().map(|keyspace| keyspace.id).collect()
        };
        assert_eq!(due(&[]), []);
        assert_eq!(due(&[3]), [3]);
        f.runs(68, 3, 1);
        assert_eq!(due(&[3]), [3, 68]);
        finish_all(&mut f.job());
        assert_eq!(due(&[]), []);
    }
}
