//! The jobs of keyspaces that keep levels.
//!
//! [`CompactJob`]s do one compaction after the other, each by itself. [`TendJob`] says how hard pressed a keyspace is, and carries out what
//! [`crate::Keyspace::convert`] asks for.
//!
//! **A conversion**: rotate, and wait until that is flushed; then [`Goal`]s one after the other, each with
//! the tables there are when the one before is reached: the runs go, then each level comes to its
//! size from above and is rid of the tables that are tombstones to a tenth and more (each takes what it removes with it, level by
//! level), then value segments are emptied. What is written later is nobody's goal, so
//! that each is a bounded piece of work, and its tables go first: a conversion ends whatever writers do. In a
//! keyspace at rest all is as large as it should be then. Where a goal is not reached, nothing is under way,
//! and nothing can be begun (a table cannot be read), that is reported; it is tried again when somebody asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::compact_job::{CompactJob, is_left_alone, may_be_due, of_levels, space};
use super::goals::{Goal, Goals};
use super::outlook::{Found, Outlook, Space};
use super::pick::Picker;
use super::{garbage, levels};
use crate::engine::claims::Claims;
use crate::engine::{Engine, Work, lock};
use crate::error::Error;
use crate::executor::{Job, Step};
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::format::manifest::LEVELS;
use crate::options::Store;
use crate::view::{KeyspaceView, Question, View};

/// So many compactions may be under way at once, as far as there are threads.
const COMPACTIONS: usize = 3;

/// Starts the jobs once there is a keyspace for them.
pub fn spawn_if_wanted(engine: &Arc<Engine>) {
    // First: who looks for such a keyspace looks at all.
    let runs = engine.compacts.load(Ordering::Acquire);
    let wanted = !runs && of_levels(&engine.view()).next().is_some();
    if !wanted || engine.compacts.swap(true, Ordering::AcqRel) {
        return;
    }
    let goals = Goals::default();
    for _ in 0..COMPACTIONS {
        engine.executor.spawn(Box::new(CompactJob::new(engine, &goals)));
    }
    engine.executor.spawn(Box::new(TendJob::new(engine, goals)));
}

/// Whether a compaction is under way or due, also one of what could not be read, or for which there is
/// no room; or a filter is being made.
pub fn is_busy(engine: &Engine, view: &View) -> bool {
    if engine.wants_filters() {
        return true;
    }
    let claims = lock(&engine.claims);
    // A full disk is due other things, whatever room there is.
    let is_full = engine.ballast.is_given_up();
    let known = (!is_full).then(|| space(engine, 0)).flatten();
    let moving_bytes = known.map_or(if is_full { 0 } else { u64::MAX }, |room| room.moving_bytes);
    let room = Some(Space { free_bytes: 0, promised_bytes: 0, moving_bytes, is_full });
    let disk_bytes = engine.disk_bytes();
    let look =
        |k| Picker::new(k, &claims, Outlook { room, disk_bytes, ..Outlook::default() }).pick();
    let mut keyspaces = may_be_due(engine, view, std::iter::empty()).into_iter();
    !claims.is_empty() || keyspaces.any(|k| !matches!(look(k), Found::Nothing))
}

/// A conversion under way.
struct Converting {
    /// The requests that it covers.
    covers: u64,
    /// What was rotated: to be flushed first.
    up_to: SequenceNumber,
    /// When it was said last that it does not get on; see `Health::asked`.
    stuck: Option<u64>,
    /// Something was met since it began, and said to whoever waited.
    has_failed: bool,
}

/// Reports pressure and answers requests. See the module page.
struct TendJob {
    engine: Arc<Engine>,
    goals: Goals,
    under_way: BTreeMap<KeyspaceId, Converting>,
    /// Those that pressed when it looked last.
    pressing: BTreeSet<KeyspaceId>,
}

impl TendJob {
    /// One for the keyspaces of `engine`.
    fn new(engine: &Arc<Engine>, goals: Goals) -> TendJob {
        let (under_way, pressing) = (BTreeMap::new(), BTreeSet::new());
        TendJob { engine: engine.clone(), goals, under_way, pressing }
    }

    /// How hard pressed writers are to be. Garbage presses only where it goes: not if something cannot be read, or there is no room.
    fn pressure(&self, keyspace: &KeyspaceView) -> u64 {
        let (engine, tables, options) = (&self.engine, &keyspace.tables, &keyspace.options);
        if engine.lacks_room_to_settle(keyspace.id) {
            return 0;
        }
        let goes = || {
            let (room, disk_bytes) = (space(engine, 0), engine.disk_bytes());
            let health = Some(&engine.health);
            let outlook = Outlook { health, room, disk_bytes, ..Outlook::default() };
            let claims = lock(&engine.claims);
            match claims.has_failed(keyspace.id, &engine.health) {
                true => 0,
                false => Picker::new(keyspace, &claims, outlook).garbage_bytes(),
            }
        };
        let of = |dead_bytes| levels::by_garbage(dead_bytes, tables, options);
        // Mostly there is little, and nobody needs to know more.
        let by_garbage = if of(garbage::dead_bytes(tables)) > 0 { of(goes()) } else { 0 };
        by_garbage.max(levels::by_runs(tables))
    }

    /// Says how hard pressed writers are to be: of idle keyspaces, of which there may be very many, nobody needs to say it.
    fn press(&mut self, view: &View) {
        let presses = |keyspace: &KeyspaceView| {
            let (tables, options) = (&keyspace.tables, &keyspace.options);
            let by_garbage = || levels::by_garbage(garbage::dead_bytes(tables), tables, options);
            options.chosen_store() == Store::Lsm
                && (levels::by_runs(tables) > 0 || by_garbage() > 0)
        };
        let found = view.keyspaces.answering(Question::CompactsPressed, 0, presses);
        let mut ids: BTreeSet<_> = found.iter().map(|keyspace| keyspace.id).collect();
        ids.append(&mut self.pressing);
        for keyspace in ids.iter().filter_map(|id| view.keyspaces.get(id)) {
            let pressure = self.pressure(keyspace);
            self.engine.press(keyspace.id, pressure);
            if pressure > 0 {
                self.pressing.insert(keyspace.id);
            }
        }
    }

    fn look(&mut self) {
        let view = arc_swap::Guard::into_inner(self.engine.view());
        self.press(&view);
        self.under_way.retain(|id, _| view.keyspaces.contains_key(id));
        lock(&self.goals).retain(|id| view.keyspaces.contains_key(&id));
        let wanted: Vec<_> = lock(&self.engine.conversions).wanted().collect();
        let ids: BTreeSet<_> = wanted.into_iter().chain(self.under_way.keys().copied()).collect();
        let ours = ids.iter().filter_map(|id| view.keyspaces.get(id));
        for keyspace in ours.filter(|k| k.options.chosen_store() == Store::Lsm) {
            self.tell_what_failed(keyspace.id);
            if self.under_way.contains_key(&keyspace.id) {
                if !self.is_overtaken(keyspace.id) {
                    self.go_on(keyspace.id);
                    continue;
                }
                self.under_way.remove(&keyspace.id);
                lock(&self.goals).forget(keyspace.id);
            }
            let covers = {
                let conversions = lock(&self.engine.conversions);
                conversions.is_wanted(keyspace.id).then(|| conversions.asked(keyspace.id))
            };
            // Dropped meanwhile: then there is nothing to do.
            if let Some(covers) = covers
                && let Ok(up_to) = self.engine.rotate(keyspace.id)
            {
                // Who sees that it began sees what was in memory on its way.
                lock(&self.engine.conversions).begin(keyspace.id, covers);
                let converting = Converting { covers, up_to, stuck: None, has_failed: false };
                self.under_way.insert(keyspace.id, converting);
                self.engine.executor.notify();
            }
        }
    }

    /// Ends a conversion whose goal was given up: whoever waits is told why. (Who asked since is another's.)
    fn tell_what_failed(&mut self, keyspace: KeyspaceId) {
        let failed = lock(&self.goals).take_failed(keyspace);
        if let Some(error) = failed
            && let Some(converting) = self.under_way.remove(&keyspace)
        {
            lock(&self.engine.conversions).finish(keyspace, converting.covers, Some(error));
            self.engine.executor.notify();
        }
    }

    /// Whether a conversion that does not get on is asked for anew: what was removed meanwhile may be in memory, and
    /// makes room only once it is flushed.
    fn is_overtaken(&mut self, keyspace: KeyspaceId) -> bool {
        let engine = &self.engine;
        let Some(converting) = self.under_way.get_mut(&keyspace) else { return false };
        converting.has_failed |= engine.health.work_error(Work::Settle(keyspace)).is_some();
        let is_stuck = converting.has_failed
            || engine.ballast.is_given_up()
            || lock(&self.goals).get(keyspace).is_none();
        is_stuck && lock(&engine.conversions).is_unbegun(keyspace)
    }

    /// Looks how far a conversion is.
    fn go_on(&mut self, keyspace: KeyspaceId) {
        let (engine, claims) = (&self.engine, lock(&self.engine.claims));
        if is_left_alone(engine, &claims) {
            return;
        }
        // Looked at under the claims: see `CompactJob::begin`.
        let (Some(converting), Ok(keyspace)) =
            (self.under_way.get_mut(&keyspace), engine.keyspace(keyspace))
        else {
            return;
        };
        if keyspace.sealed.iter().any(|sealed| sealed.up_to <= converting.up_to) {
            return;
        }
        let before = lock(&self.goals).get(keyspace.id);
        let mut goal = before.unwrap_or_else(|| Goal { level: 0, before: engine.next_file() });
        let disk_bytes = engine.disk_bytes();
        let outlook = |goal| {
            let room = space(engine, claims.promised_bytes());
            Outlook { goal: Some(goal), room, disk_bytes, ..Outlook::default() }
        };
        while Picker::new(&keyspace, &claims, outlook(goal)).is_reached(goal) {
            if goal.level == LEVELS {
                lock(&self.goals).reach(keyspace.id);
                let outlook = Outlook { health: Some(&engine.health), ..Outlook::default() };
                let unread = Picker::new(&keyspace, &claims, outlook).unread();
                let told = unread.or_else(|| keyspace.tables.damage());
                drop(claims);
                engine.retake_ballast();
                lock(&engine.conversions).finish(keyspace.id, converting.covers, told);
                self.under_way.remove(&keyspace.id);
                engine.executor.notify();
                return;
            }
            goal = Goal { level: goal.level + 1, before: engine.next_file() };
        }
        if before != Some(goal) {
            lock(&self.goals).set(keyspace.id, goal);
            engine.executor.notify();
        }
        let asked = engine.health.asked();
        if converting.stuck != Some(asked)
            && let Some(error) = why_stuck(engine, &keyspace, &claims, goal)
        {
            converting.stuck = Some(asked);
            // Who asked since has it looked at anew.
            engine.note_work(Work::Settle(keyspace.id), &Err(error), asked);
            engine.executor.notify();
        }
    }
}

/// Why nothing more is done for a goal, if nothing is.
fn why_stuck(
    engine: &Engine,
    keyspace: &KeyspaceView,
    claims: &Claims,
    goal: Goal,
) -> Option<Error> {
    let disk_bytes = engine.disk_bytes();
    let health = Some(&engine.health);
    let outlook = Outlook { health, goal: Some(goal), disk_bytes, ..Outlook::default() };
    let picker = Picker::new(keyspace, claims, outlook);
    if claims.any_of(keyspace.id) || matches!(picker.pick(), Found::Work(_)) {
        return None;
    }
    picker.unread()
}

impl Job for TendJob {
    fn name(&self) -> &'static str {
        "tend levels"
    }

    fn step(&mut self) -> Step {
        if self.engine.health.check_writable().is_ok() {
            self.look();
        }
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::disk::OperationKind;
    use crate::disk::sim::SimDisk;
    use crate::engine::claims::Claim;
    use crate::executor::SeededExecutor;
    use crate::tiered::testing::Without;
    use crate::view::Extent;
    use crate::{Database, ErrorKind, KeyspaceOptions, Store};

    /// To know how much room there is they reserved it for a moment, of a compaction that was writing there.
    #[test]
    fn nobody_asks_for_room_while_a_compaction_has_a_full_disk_to_itself() {
        let disk = SimDisk::new(1);
        disk.set_space_limit_bytes(Some(1 << 30));
        let executor = Without(SeededExecutor::new(1), &["compact", "tend levels"]);
        let builder =
            Database::builder("/db").disk(Arc::new(disk.clone())).memtable_bytes(64 << 10);
        let db = builder.executor(Arc::new(executor)).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(Store::Lsm)).unwrap();
        keyspace.insert("a", "b").unwrap();
        keyspace.flush().unwrap();
        let engine = db.engine();
        let looked_at = || may_be_due(engine, &engine.view(), std::iter::empty()).len();
        assert_eq!(looked_at(), 0, "one run");
        while engine.give_up_ballast(engine.room_seen()) {}
        assert_eq!(looked_at(), 1, "on a full disk all are");
        disk.set_unsaid_bytes(1 << 30);
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        disk.observe(move |operation, _| {
            let reserves = operation.kind == OperationKind::Preallocate;
            counted.fetch_add(reserves.into(), Ordering::Relaxed);
        });
        let goals = Goals::default();
        let mut compact = CompactJob::new(engine, &goals);
        let mut tend = TendJob::new(engine, goals.clone());
        lock(&engine.conversions).ask(1);
        let extent = Extent::between(b"x", b"z");
        let claim = Claim { keyspace: 1, levels: 3..=4, extent };
        let claimed = lock(&engine.claims).hold(engine, claim, 0);
        for _ in 0..3 {
            tend.look();
            assert!(matches!(compact.begin(0), Step::Wait));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        drop(claimed);
        // What flushes and removals live on is no room for compactions.
        let (free, half) = (engine.free_bytes().unwrap(), engine.ballast.half_bytes());
        assert!(half > 2 * engine.options.memtable_bytes as u64, "{half}");
        assert_eq!(space(engine, 0).unwrap().free_bytes, free - half);
        assert_eq!(space(engine, 1000).unwrap().promised_bytes, 1000);
        tend.look();
        assert!(lock(&goals).get(1).is_some(), "it goes on");
        assert!(asked.load(Ordering::Relaxed) > 0);
    }

    /// What was noted for all to see was forgotten by the next who asked for anything, before whoever waited had seen it.
    #[test]
    fn who_waits_for_what_is_given_up_is_told_why() {
        let executor = Without(SeededExecutor::new(1), &["compact", "tend levels"]);
        let builder = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = builder.executor(Arc::new(executor)).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(Store::Lsm)).unwrap();
        keyspace.insert("a", "b").unwrap();
        keyspace.flush().unwrap();
        let (engine, goals) = (db.engine().clone(), Goals::default());
        let mut tend = TendJob::new(&engine, goals.clone());
        for is_given_up in [true, false] {
            let number = lock(&engine.conversions).ask(1);
            tend.look();
            tend.look();
            assert!(lock(&goals).get(1).is_some());
            let outcome = || lock(&engine.conversions).outcome(1, number);
            assert!(outcome().is_none());
            if is_given_up {
                let later = lock(&engine.conversions).ask(1);
                lock(&goals).fail(1, Error::new(ErrorKind::DiskFull, "there is no room"));
                engine.health.ask_again();
                tend.look();
                let told = outcome().expect("it is over").unwrap_err();
                assert_eq!(told.kind(), ErrorKind::DiskFull);
                assert!(lock(&goals).get(1).is_none());
                assert!(lock(&engine.conversions).outcome(1, later).is_none(), "another one's");
            }
        }
    }

    /// On a disk with little room puts and removals crawled, for compactions that had none, without an error.
    #[test]
    fn nobody_pays_where_compactions_find_no_room() {
        let executor = Without(SeededExecutor::new(1), &["compact", "tend levels"]);
        let builder = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = builder.executor(Arc::new(executor)).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(Store::Lsm)).unwrap();
        for run in 0..40_u8 {
            keyspace.insert([run], [run]).unwrap();
            keyspace.flush().unwrap();
        }
        let engine = db.engine().clone();
        let mut tend = TendJob::new(&engine, Goals::default());
        let mut pressed = || {
            tend.look();
            engine.pace.pressure(1)
        };
        assert!(pressed() > 0);
        for (kind, presses) in [(ErrorKind::DiskFull, false), (ErrorKind::Io, true)] {
            let failed = Err(Error::new(kind, "a compaction failed"));
            engine.health.note(Work::Settle(1), &failed, engine.health.asked());
            assert_eq!(pressed() > 0, presses, "{kind:?}");
        }
        // And nobody once the runs are gone.
        engine.health.ask_again();
        assert!(pressed() > 0);
        let mut compact = CompactJob::new(&engine, &Goals::default());
        while !engine.keyspace(1).unwrap().tables.fresh().is_empty() {
            compact.step();
        }
        assert_eq!(pressed(), 0);
    }

    /// Who waited for garbage to go that could not go waited for ever.
    #[test]
    fn garbage_presses_only_where_it_goes() {
        let disk = SimDisk::new(1);
        let open = |executor: Arc<dyn crate::executor::Executor>| {
            let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
            let builder = builder.memtable_bytes(256 << 10).log_segment_bytes(256 << 10);
            builder.executor(executor).open().unwrap()
        };
        let executor = Arc::new(SeededExecutor::new(1));
        let db = open(executor.clone());
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(Store::Lsm)).unwrap();
        for round in 0..8_u8 {
            for number in (0..4000_u16).filter(|number| round == 0 || number % 3 > 0) {
                keyspace.insert(number.to_be_bytes(), [round; 1000]).unwrap();
            }
            keyspace.flush().unwrap();
            executor.run_until_idle();
        }
        drop(keyspace);
        db.close().unwrap();
        let at_first = disk.used_bytes();
        let pressure = |left_bytes: Option<u64>, meets: &dyn Fn(&Engine, &KeyspaceView)| {
            disk.set_space_limit_bytes(Some(at_first + (8 << 20)));
            let quiet = Without(SeededExecutor::new(1), &["compact", "tend levels"]);
            let db = open(Arc::new(quiet));
            let engine = db.engine().clone();
            if let Some(left_bytes) = left_bytes {
                disk.set_space_limit_bytes(Some(disk.used_bytes() + left_bytes));
            }
            meets(&engine, &engine.keyspace(1).unwrap());
            TendJob::new(&engine, Goals::default()).look();
            engine.pace.pressure(1)
        };
        let avoid = |engine: &Engine, file| {
            let damaged = Error::corruption("damaged");
            let health = &engine.health;
            lock(&engine.claims).avoid(file, &damaged, health.asked(), health);
        };
        assert!(pressure(None, &|_, _| ()) > 0);
        assert_eq!(pressure(Some(8 << 10), &|_, _| ()), 0, "there is no room");
        let fails = |engine: &Engine, keyspace: &KeyspaceView| {
            lock(&engine.claims).fail(keyspace.id, engine.health.asked());
        };
        assert_eq!(pressure(None, &fails), 0, "nobody tries again");
        let segments = |engine: &Engine, keyspace: &KeyspaceView| {
            keyspace.tables.segments.iter().for_each(|segment| avoid(engine, segment.id()));
        };
        assert_eq!(pressure(None, &segments), 0, "no segment can be read");
        let tables = |engine: &Engine, keyspace: &KeyspaceView| {
            keyspace.tables.all().for_each(|table| avoid(engine, table.id()));
        };
        assert_eq!(pressure(None, &tables), 0, "no table can be read");
    }
}
