//! The jobs of keyspaces that keep levels.
//!
//! [`CompactJob`]s do one compaction after the other, each by itself: what one works at no other picks
//! ([`crate::engine::claims`]). [`TendJob`] says how hard pressed a keyspace is, and carries out what
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
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::compact::Compaction;
use super::pick::{Found, Goal, Outlook, Pick, Picker, Space};
use super::{garbage, levels};
use crate::engine::claims::Claims;
use crate::engine::{Engine, RoomSeen, Work, lock};
use crate::error::{Error, ErrorKind, MAKE_ROOM};
use crate::executor::{Job, Step};
use crate::format::entry::{KeyspaceId, SequenceNumber, TableId};
use crate::format::manifest::LEVELS;
use crate::options::Store;
use crate::view::{KeyspaceView, View};

/// So many compactions may be under way at once, as far as there are threads.
const COMPACTIONS: usize = 3;

/// What is waited for in each keyspace. Locked after the claims, if with them.
type Goals = Arc<Mutex<BTreeMap<KeyspaceId, Goal>>>;

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
        let (engine, goals) = (engine.clone(), goals.clone());
        let job = CompactJob {
            engine: engine.clone(),
            goals,
            work: None,
            avoided: BTreeSet::new(),
            room_seen: engine.room_seen(),
        };
        engine.executor.spawn(Box::new(job));
    }
    let job = TendJob { engine: engine.clone(), goals, under_way: BTreeMap::new() };
    engine.executor.spawn(Box::new(job));
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
    let known = (!is_full).then(|| space(engine)).flatten();
    let moving_bytes = known.map_or(if is_full { 0 } else { u64::MAX }, |room| room.moving_bytes);
    let room = Some(Space { free_bytes: 0, moving_bytes, is_full });
    let disk_bytes = engine.disk_bytes();
    let look =
        |k| Picker::new(k, &claims, Outlook { room, disk_bytes, ..Outlook::default() }).pick();
    !claims.is_empty() || of_levels(view).any(|k| !matches!(look(k), Found::Nothing))
}

fn of_levels(view: &View) -> impl Iterator<Item = &Arc<KeyspaceView>> {
    view.keyspaces.values().filter(|k| k.options.chosen_store() == Store::Lsm)
}

/// Whether a compaction is under way that has a full disk to itself. Nor is it asked then how much room there is: for a moment that
/// takes the room ([`Engine::free_bytes`]).
fn is_left_alone(engine: &Engine, claims: &Claims) -> bool {
    engine.ballast.is_given_up() && !claims.is_empty()
}

/// How much room there is for compactions: two memtables may be flushed meanwhile, and on a full disk half of what was held back
/// is for flushes and removals.
fn space(engine: &Engine) -> Option<Space> {
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
        Space { free_bytes: left, moving_bytes: free / 2, is_full }
    });
    let no_end = Space { free_bytes: u64::MAX, moving_bytes: u64::MAX, is_full };
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
struct CompactJob {
    engine: Arc<Engine>,
    goals: Goals,
    work: Option<Box<Compaction>>,
    /// The files that were left alone when it was chosen.
    avoided: BTreeSet<TableId>,
    /// What was seen of the room there is when its work began.
    room_seen: RoomSeen,
}

impl CompactJob {
    /// Begins the compaction that is due most of those that no other job does.
    fn begin(&mut self, asked: u64) -> Step {
        let (engine, health) = (&self.engine, &self.engine.health);
        engine.see_room(&mut self.room_seen);
        let mut claims = lock(&engine.claims);
        if is_left_alone(engine, &claims) {
            return Step::Wait;
        }
        // Looked at under the claims: of what is free no edit is still to come.
        let view = engine.view();
        let (room, disk_bytes) = (space(engine), engine.disk_bytes());
        engine.see_probes(&mut self.room_seen);
        let mut found: Option<(&Arc<KeyspaceView>, Box<Pick>)> = None;
        let mut lacking = Vec::new();
        for keyspace in of_levels(&view).filter(|k| !claims.has_failed(k.id, health)) {
            let goal = lock(&self.goals).get(&keyspace.id).copied();
            let outlook = Outlook { health: Some(health), goal, room, disk_bytes };
            match Picker::new(keyspace, &claims, outlook).pick() {
                Found::Work(pick) if found.as_ref().is_none_or(|(_, f)| f.score < pick.score) => {
                    found = Some((keyspace, pick));
                }
                Found::NoRoom => lacking.push((keyspace.clone(), goal.is_some())),
                _ => {}
            }
        }
        if let Some((keyspace, pick)) = found {
            if pick.above.is_empty() && room.is_none_or(|room| !room.is_full) {
                claims.forget_thinned();
            }
            let claimed = claims.hold(engine, pick.claim.clone());
            self.avoided = claims.avoided(health);
            drop(claims);
            self.work = Some(Box::new(Compaction::begin(engine, keyspace, *pick, claimed)));
            return Step::Again;
        }
        drop(claims);
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
            if lock(&engine.conversions).is_overtaken(keyspace.id) {
                // Begun anew, with what is in memory: that may be removals.
                changed |= lock(&self.goals).remove(&keyspace.id).is_some();
                continue;
            }
            let fails = || health.work_error(Work::Flush(keyspace.id)).is_some();
            if !keyspace.sealed.is_empty() && !fails() {
                // So may what is being flushed.
                continue;
            }
            changed = true;
            lock(&engine.claims).fail(keyspace.id, asked);
            health.note_background(Work::Settle(keyspace.id), &Err(no_room(engine, &keyspace)));
        }
        if !changed {
            return Step::Wait;
        }
        engine.executor.notify();
        Step::Again
    }

    fn succeeded(&self, keyspace: KeyspaceId) {
        let Ok(view) = self.engine.keyspace(keyspace) else { return };
        let mut claims = lock(&self.engine.claims);
        claims.succeeded(keyspace);
        let health = &self.engine.health;
        // Not by what else went well: a file that cannot be read is still there.
        let outlook = Outlook { health: Some(health), ..Outlook::default() };
        if Picker::new(&view, &claims, outlook).unread().is_none() {
            health.note_background(Work::Settle(keyspace), &Ok(()));
        }
    }

    fn failed(&self, work: &Compaction, error: Error, asked: u64) {
        let (keyspace, health) = (work.keyspace(), &self.engine.health);
        let mut claims = lock(&self.engine.claims);
        match work.unread(&error) {
            // What is met again although it was left alone would be chosen again, without end.
            Some(file) if error.kind() != ErrorKind::DiskFull && !self.avoided.contains(&file) => {
                claims.avoid(file, &error, health);
            }
            _ => claims.fail(keyspace, asked),
        }
        health.note_background(Work::Settle(keyspace), &Err(error));
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
}

impl TendJob {
    /// How hard pressed writers are to be. Garbage presses only where it goes: not if something cannot be read, or there is no room.
    fn pressure(&self, keyspace: &KeyspaceView) -> u64 {
        let (engine, tables, options) = (&self.engine, &keyspace.tables, &keyspace.options);
        if engine.lacks_room_to_settle(keyspace.id) {
            return 0;
        }
        let goes = || {
            let (room, disk_bytes) = (space(engine), engine.disk_bytes());
            let outlook = Outlook { health: Some(&engine.health), goal: None, room, disk_bytes };
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

    fn look(&mut self) {
        let view = arc_swap::Guard::into_inner(self.engine.view());
        for keyspace in of_levels(&view) {
            let pressure = self.pressure(keyspace);
            self.engine.press(keyspace.id, pressure);
        }
        self.under_way.retain(|id, _| view.keyspaces.contains_key(id));
        lock(&self.goals).retain(|id, _| view.keyspaces.contains_key(id));
        for keyspace in of_levels(&view) {
            if self.under_way.contains_key(&keyspace.id) {
                if !self.is_overtaken(keyspace.id) {
                    self.go_on(keyspace.id);
                    continue;
                }
                self.under_way.remove(&keyspace.id);
                lock(&self.goals).remove(&keyspace.id);
            }
            let covers = {
                let mut conversions = lock(&self.engine.conversions);
                let covers = conversions.asked(keyspace.id);
                let is_wanted = conversions.is_wanted(keyspace.id);
                is_wanted.then(|| conversions.begin(keyspace.id, covers)).map(|()| covers)
            };
            // Dropped meanwhile: then there is nothing to do.
            if let Some(covers) = covers
                && let Ok(up_to) = self.engine.rotate(keyspace.id)
            {
                let converting = Converting { covers, up_to, stuck: None, has_failed: false };
                self.under_way.insert(keyspace.id, converting);
                self.engine.executor.notify();
            }
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
            || !lock(&self.goals).contains_key(&keyspace);
        is_stuck && lock(&engine.conversions).is_overtaken(keyspace)
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
        let before = lock(&self.goals).get(&keyspace.id).copied();
        let mut goal = before.unwrap_or_else(|| Goal { level: 0, before: engine.next_file() });
        let disk_bytes = engine.disk_bytes();
        let outlook =
            |goal| Outlook { goal: Some(goal), room: space(engine), health: None, disk_bytes };
        while Picker::new(&keyspace, &claims, outlook(goal)).is_reached(goal) {
            if goal.level == LEVELS {
                lock(&self.goals).remove(&keyspace.id);
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
            lock(&self.goals).insert(keyspace.id, goal);
            engine.executor.notify();
        }
        let asked = engine.health.asked();
        if converting.stuck != Some(asked)
            && let Some(error) = why_stuck(engine, &keyspace, &claims, goal)
        {
            converting.stuck = Some(asked);
            engine.health.note_background(Work::Settle(keyspace.id), &Err(error));
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
    let outlook =
        Outlook { health: Some(&engine.health), goal: Some(goal), room: None, disk_bytes };
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
    use crate::{Database, KeyspaceOptions};

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
        while engine.give_up_ballast(engine.room_seen()) {}
        disk.set_unsaid_bytes(1 << 30);
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        disk.observe(move |operation, _| {
            let reserves = operation.kind == OperationKind::Preallocate;
            counted.fetch_add(reserves.into(), Ordering::Relaxed);
        });
        let goals = Goals::default();
        let mut compact = CompactJob {
            engine: engine.clone(),
            goals: goals.clone(),
            work: None,
            avoided: BTreeSet::new(),
            room_seen: engine.room_seen(),
        };
        let mut tend = TendJob { engine: engine.clone(), goals, under_way: BTreeMap::new() };
        lock(&engine.conversions).ask(1);
        let extent = Extent::between(b"x", b"z");
        let claim = Claim { keyspace: 1, levels: 3..=4, extent };
        let claimed = lock(&engine.claims).hold(engine, claim);
        for _ in 0..3 {
            tend.look();
            assert!(matches!(compact.begin(0), Step::Wait));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        drop(claimed);
        // What flushes and removals live on is no room for compactions.
        let (free, half) = (engine.free_bytes().unwrap(), engine.ballast.half_bytes());
        assert!(half > 2 * engine.options.memtable_bytes as u64, "{half}");
        assert_eq!(space(engine).unwrap().free_bytes, free - half);
        tend.look();
        assert!(lock(&compact.goals).contains_key(&1), "it goes on");
        assert!(asked.load(Ordering::Relaxed) > 0);
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
        let (goals, under_way) = (Goals::default(), BTreeMap::new());
        let mut tend = TendJob { engine: engine.clone(), goals, under_way };
        let mut pressed = || {
            tend.look();
            engine.pace.pressure(1)
        };
        assert!(pressed() > 0);
        for (kind, presses) in [(ErrorKind::DiskFull, false), (ErrorKind::Io, true)] {
            let failed = Err(Error::new(kind, "a compaction failed"));
            db.engine().health.note_background(Work::Settle(1), &failed);
            assert_eq!(pressed() > 0, presses, "{kind:?}");
        }
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
            let (goals, under_way) = (Goals::default(), BTreeMap::new());
            TendJob { engine: engine.clone(), goals, under_way }.look();
            engine.pace.pressure(1)
        };
        let avoid = |engine: &Engine, file| {
            let damaged = Error::corruption("damaged");
            lock(&engine.claims).avoid(file, &damaged, &engine.health);
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
