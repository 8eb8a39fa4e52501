//! The jobs that settle. Each does one thing at a time: the beginning of a sweep, else a merge of runs where
//! a keyspace has too many, else the next step of a sweep, else a merge that reads have paid for. A sweep begins when it was asked for or a trigger is met
//! and nothing is cheaper ([`super::rewrite`]): rotate, wait until what was rotated is flushed, freeze;
//! then steps until the watermark passes the last key.
//!
//! **Merges and sweeps share.** Merges are for reads, sweeps for space, and a keyspace has one of them at a time. A
//! sweep that is due begins first: it takes all runs, and merging them would have been for nothing; a merge under way is given up. From
//! then on merges of newer runs read half as many bytes as the sweep has written: however fast the
//! writers, the sweep takes at most half as long again. What waits to be merged meanwhile presses the writers
//! ([`super::press`]).
//!
//! Several jobs share what is known of the keyspaces ([`Shared`]). One that works at a keyspace holds it;
//! others are swept meanwhile, in turn where there are more of them than jobs. A job that finds nothing else begins a
//! step ahead of another's ([`hold`]).
//!
//! **A full disk.** When the ballast is given up, each job drops what it does (its output is removed, which
//! gives room); then one of them goes on alone, and sweeps before it merges: what may be written at most
//! before something is given back is one step of a sweep, or a merge that was seen to have room. See
//! [`crate::engine::Ballast`].

mod ahead;
mod due;
mod full;
mod hold;
mod merges;
mod patience;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

pub use self::due::is_busy;
use self::hold::{Shared, Sweeping};
use self::patience::Held;
use super::debt;
use super::plan::Course;
use super::rewrite::Rewrite;
use super::sweep::{self, Ended, Next, Progress, SweepStep};
use super::trim::Trim;
use crate::engine::{self, Engine, Opened, RoomSeen, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Job, Step};
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::format::manifest::Change;
use crate::lsm::merge::{self, Merge};
use crate::view::{KeyspaceView, Tables, View, damage_of};

/// So many keyspaces may be settled at the same moment.
const JOBS: usize = 2;

/// Why the runs cannot be settled, if they cannot: one of their tables could not be opened.
fn damage_of_runs(keyspace: &KeyspaceView) -> Option<Error> {
    damage_of(keyspace.tables.runs.iter().flatten())
}

/// Starts the jobs.
pub fn spawn(engine: &Arc<Engine>) {
    let shared = Arc::new(Mutex::new(Shared::default()));
    for number in 0..JOBS {
        engine.executor.spawn(Box::new(SettleJob::new(engine, shared.clone(), number == 0)));
    }
}

enum Work {
    None,
    Merge(Box<Merge>),
    Sweep(Box<SweepStep>),
    Trim(Box<Trim>),
}

/// Merges runs and sweeps. See the module page.
struct SettleJob {
    engine: Arc<Engine>,
    shared: Arc<Mutex<Shared>>,
    /// Whether it goes on when the disk is full.
    is_first: bool,
    work: Work,
    /// The keyspace it works at, which it holds unless it goes ahead there.
    at: Option<KeyspaceId>,
    is_ahead: bool,
    /// What was seen of the room there is when its work began.
    room_seen: RoomSeen,
    /// How often somebody had asked by then; see `Health::asked`.
    asked: u64,
    held: Held,
    /// It looks once more for another, which came while it looked before; see [`hold`].
    stands_in: bool,
    /// The tables it looked at last while it merged, if that was in no sweep's way.
    not_in_the_way_of: Option<Weak<Tables>>,
}

/// Looks for something of a kind to do at a keyspace.
type Find = fn(&SettleJob, &KeyspaceView) -> Result<Found>;

/// What was found to do at a keyspace that is held.
enum Found {
    Nothing,
    /// It was done.
    Done,
    Begun(Work),
}

impl SettleJob {
    fn new(engine: &Arc<Engine>, shared: Arc<Mutex<Shared>>, is_first: bool) -> SettleJob {
        SettleJob {
            engine: engine.clone(),
            shared,
            is_first,
            work: Work::None,
            at: None,
            is_ahead: false,
            room_seen: RoomSeen::default(),
            asked: 0,
            held: Held::Not,
            stands_in: false,
            not_in_the_way_of: None,
        }
    }

    /// Does one piece of work. False: there is none now.
    fn advance(&mut self) -> Result<bool> {
        if self.engine.is_given_up_since(self.room_seen) {
            // Planned for a disk with room.
            self.drop_work();
        }
        if self.is_at_nothing() || self.is_ahead && !self.may_stay_ahead() || self.is_in_the_way() {
            self.drop_work();
        }
        match std::mem::replace(&mut self.work, Work::None) {
            Work::Merge(mut merge) => match merge.step() {
                Ok(true) => {
                    self.note_merge(merge.input_bytes(), None);
                    self.succeeded();
                    self.let_go();
                }
                Ok(false) => self.work = Work::Merge(merge),
                Err(e) => return self.give_up_merge(*merge, e),
            },
            Work::Sweep(step) => return self.sweep(step),
            Work::Trim(trim) => return self.trim(trim),
            Work::None => {
                return self.look(Self::find);
            }
        }
        Ok(true)
    }

    /// Goes on with a step of a sweep. False: it waits for the one before it.
    fn sweep(&mut self, mut step: Box<SweepStep>) -> Result<bool> {
        let at = self.at.unwrap_or_default();
        if self.is_ahead {
            self.is_ahead = !lock(&self.shared).takes_lead(at);
            if let Some(now) = self.engine.view().keyspaces.get(&at) {
                step.see(&now.tables);
            }
        }
        let leads = !self.is_ahead;
        match step.step(leads) {
            Ok(Progress::GoesOn) => {
                let end = step.half_way_to().filter(|_| leads);
                if end.is_some_and(|end| lock(&self.shared).note_half_way(at, end)) {
                    self.engine.executor.notify();
                }
                self.work = Work::Sweep(step);
            }
            Ok(Progress::Waits) => {
                self.work = Work::Sweep(step);
                return Ok(false);
            }
            Ok(Progress::Ended(ended)) => {
                let (swept_bytes, unread) = (step.swept_bytes(), step.unread().cloned());
                // What it does not keep is removed first.
                drop(step);
                self.after_step(ended, swept_bytes, unread);
            }
            Err(_) if !leads => {
                drop(step);
                self.give_up_ahead(at);
            }
            Err(e) if e.kind() == ErrorKind::DiskFull => self.make_room_for(step, e)?,
            Err(e) => {
                if !self.goes_on_without(&step, &e) {
                    return Err(e);
                }
                // Not lost, and in nobody's way: what is newer becomes its delta, or stays that.
                // And not tried again: who has asked by now is told.
                let asked = self.engine.health.asked();
                self.engine.note_work(engine::Work::Settle(at), &Err(e), asked);
                self.let_go();
            }
        }
        Ok(true)
    }

    /// Whether the sweep goes on though this step failed: it leaves what can be left, and goes round a damaged base.
    fn goes_on_without(&self, step: &SweepStep, error: &Error) -> bool {
        let at = self.at.unwrap_or_default();
        let view = self.engine.view();
        let tables = view.keyspaces.get(&at).into_iter().flat_map(|k| k.tables.settled());
        let mut blamed = tables.filter(|table| Some(table.path()) == error.path()).peekable();
        let is_of_table = blamed.peek().is_some();
        if error.is_corruption() {
            blamed.for_each(|table| table.note_unreadable());
        }
        let mut shared = lock(&self.shared);
        let Some(sweeping) = shared.sweeps.get_mut(&at) else { return false };
        let damaged = step.unreadable_base(error);
        let leave = |course: &mut Course| course.leave(step.first_base(), damaged);
        let goes_on = sweeping.course.as_mut().is_some_and(leave);
        if goes_on && is_of_table && error.is_corruption() {
            sweeping.note_damage(error.clone());
        } else if goes_on && (is_of_table || sweeping.is_whole) {
            // It may be gone by the next one.
            sweeping.left = Some(error.clone());
        }
        goes_on
    }

    fn succeeded(&self) {
        let Some(at) = self.at else { return };
        if lock(&self.shared).failed.remove(&at).is_some() {
            self.engine.health.note(engine::Work::Settle(at), &Ok(()), self.asked);
        }
    }

    /// Others may work at the keyspace now.
    fn let_go(&mut self) {
        if let Some(at) = self.at.take() {
            match std::mem::take(&mut self.is_ahead) {
                true => lock(&self.shared).give_up_ahead(at),
                false => _ = self.hand_over(at),
            }
            self.engine.executor.notify();
        }
    }

    /// Lets go of a keyspace. True: a step ahead is to go on.
    fn hand_over(&self, at: KeyspaceId) -> bool {
        let view = self.engine.view();
        let frozen = view.keyspaces.get(&at).and_then(|k| k.tables.frozen.as_ref());
        let watermark = frozen.map(|frozen| frozen.watermark.as_slice());
        lock(&self.shared).let_go(at, watermark)
    }

    fn after_step(&mut self, ended: Ended, swept_bytes: u64, unread: Option<Error>) {
        let at = self.at.unwrap_or_default();
        if let Some(sweeping) = lock(&self.shared).sweeps.get_mut(&at) {
            sweeping.swept_bytes += swept_bytes;
            unread.into_iter().for_each(|unread| sweeping.note_damage(unread));
            if let (Ended::Outgrown(base), Some(course)) = (&ended, &mut sweeping.course) {
                course.outgrow(*base);
            }
        }
        self.succeeded();
        if matches!(ended, Ended::Sweep) {
            self.engine.note_sweep();
            self.finish();
        }
        self.room_seen.is_over();
        self.let_go();
    }

    /// Says that the requests are done that the sweep now over covers.
    fn finish(&self) {
        let Some(at) = self.at else { return };
        let mut over = lock(&self.shared).end_sweep(at);
        let view = self.engine.view();
        let keyspace = view.keyspaces.get(&at);
        keyspace.inspect(|keyspace| over.forget_what_is_gone(&keyspace.tables));
        if self.sweeps_again(at, &over) {
            return;
        }
        let kept = keyspace.map_or_else(BTreeSet::new, |k| over.kept(&k.tables.segments));
        let told = keyspace.and_then(|keyspace| self.to_tell(keyspace, &over));
        let mut conversions = lock(&self.engine.conversions);
        if over.is_told() {
            conversions.swept(at, over.damage.pop(), kept);
        }
        conversions.finish(at, over.covers, told);
        drop(conversions);
        self.engine.executor.notify();
    }

    /// Looks for something to do, unless another job looks now. True: there was some, or it is to look again; see [`hold`].
    fn look(&mut self, find: impl FnOnce(&mut Self) -> Result<bool>) -> Result<bool> {
        // While the disk is full the others have nothing to look for.
        let rests = !self.is_first && self.engine.ballast.is_given_up();
        if rests || !lock(&self.shared).begin_look() {
            return Ok(false);
        }
        self.engine.see_room(&mut self.room_seen);
        self.asked = self.engine.health.asked();
        let found = find(self);
        self.engine.see_probes(&mut self.room_seen);
        let somebody_came = lock(&self.shared).end_look();
        let is_for_others = matches!(found, Ok(true))
            || self.engine.is_given_up_since(self.room_seen)
            || !self.is_first && self.engine.ballast.is_given_up();
        let stood_in = std::mem::replace(&mut self.stands_in, somebody_came && !is_for_others);
        if is_for_others && (somebody_came || stood_in) {
            self.engine.executor.notify();
        }
        Ok(found? || somebody_came)
    }

    fn find(&mut self) -> Result<bool> {
        let mut shared = lock(&self.shared);
        let view = arc_swap::Guard::into_inner(self.engine.view());
        shared.sweeps.retain(|id, _| view.keyspaces.contains_key(id));
        shared.failed.retain(|id, _| view.keyspaces.contains_key(id));
        drop(shared);
        let keyspaces = self.in_turn(&view);
        // A merge frees space at its end only, a sweep at each step.
        let full = self.engine.ballast.is_given_up();
        if full && (!self.is_first || !lock(&self.shared).is_idle()) {
            // The others let go at their next step, and say so.
            return Ok(false);
        }
        // A step ahead, and its job, wait for those.
        let shared = lock(&self.shared);
        let awaited = keyspaces.iter().filter(|k| shared.ahead(k.id).is_some());
        let awaited: Vec<_> = awaited.cloned().collect();
        drop(shared);
        Ok(self.find_at(&keyspaces, Self::begin_sweep)?
            || self.find_at(&awaited, Self::find_step)?
            || (!full && self.find_merges(&keyspaces, &view)?)
            || self.find_at(&keyspaces, Self::find_step)?
            || (full && self.find_merges(&keyspaces, &view)?)
            || (!full && self.find_merges_for_reads(&keyspaces)?)
            || (!full && self.find_ahead(&view)))
    }

    /// The first of the keyspaces with something of a kind to do: it is done, or begun.
    fn find_at(&mut self, keyspaces: &[Arc<KeyspaceView>], find: Find) -> Result<bool> {
        for keyspace in keyspaces {
            if self.work_at(keyspace, find)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The keyspaces, the one whose turn it is first; of those that failed, those that were asked for since.
    fn in_turn(&self, view: &View) -> Vec<Arc<KeyspaceView>> {
        let asked = self.engine.health.asked();
        let mut ids = due::may_be_due(&self.engine, view);
        let shared = lock(&self.shared);
        // A sweep that was decided on is to begin, whatever has changed.
        ids.extend(shared.sweeps.keys());
        let ours = ids.iter().filter_map(|id| view.keyspaces.get(id));
        let free = ours.filter(|k| !shared.is_held(k.id));
        let again = free.filter(|k| shared.failed.get(&k.id) != Some(&asked));
        let mut keyspaces: Vec<_> = again.cloned().collect();
        keyspaces.sort_by_key(|k| (k.id <= shared.last, k.id));
        keyspaces
    }

    /// Looks for work at a keyspace, holding it; lets go of it again unless there is some.
    fn work_at(&mut self, keyspace: &KeyspaceView, find: Find) -> Result<bool> {
        if !lock(&self.shared).hold(keyspace.id) {
            return Ok(false);
        }
        self.at = Some(keyspace.id);
        // What another job did here meanwhile is in the View of now.
        let found = match self.engine.view().keyspaces.get(&keyspace.id) {
            Some(now) => find(self, now)?,
            None => Found::Nothing,
        };
        if let Found::Begun(work) = found {
            self.work = work;
            lock(&self.shared).last = keyspace.id;
            return Ok(true);
        }
        // Quietly: a look that finds nothing wakes nobody, unless the first job may wait for that.
        self.at = None;
        let goes_on = self.hand_over(keyspace.id);
        let is_done = matches!(found, Found::Done);
        if is_done {
            lock(&self.shared).last = keyspace.id;
        }
        if is_done || goes_on || self.engine.is_given_up_since(self.room_seen) {
            self.engine.executor.notify();
        }
        Ok(is_done)
    }

    /// The next step of a sweep under way; why one that is due cannot begin.
    fn find_step(&self, keyspace: &KeyspaceView) -> Result<Found> {
        let Some(frozen) = &keyspace.tables.frozen else {
            // Looked at last: what can be merged was.
            let is_due = || {
                keyspace.tables.runs.len() > merge::MAX_RUNS
                    || lock(&self.engine.conversions).is_wanted(keyspace.id)
                    || due::is_due(&self.engine, keyspace)
            };
            let damage = damage_of_runs(keyspace).filter(|_| is_due());
            return damage.map_or(Ok(Found::Nothing), Err);
        };
        if let Some(found) = self.before_step(keyspace)? {
            return Ok(found);
        }
        let ahead = lock(&self.shared).ahead(keyspace.id).map(<[u8]>::to_vec);
        if ahead.as_ref() == Some(&frozen.watermark) {
            // It is handed the hold, and leads.
            return Ok(Found::Nothing);
        }
        let course = self.course(keyspace);
        match sweep::next(&self.engine, keyspace, frozen, &course, ahead.as_deref())? {
            Next::Rewrite(step) => Ok(Found::Begun(Work::Sweep(step))),
            Next::Skip(skip) => {
                if skip.commit(&self.engine)? {
                    self.succeeded();
                    self.engine.note_sweep();
                    self.finish();
                }
                Ok(Found::Done)
            }
        }
    }

    /// What the sweep of a keyspace keeps in mind.
    fn course(&self, keyspace: &KeyspaceView) -> Course {
        let first = lock(&self.shared).sweeps.get(&keyspace.id).and_then(|s| s.to_empty.clone());
        let nothing_fresh = keyspace.tables.frozen.as_ref().is_none_or(|f| f.runs.is_empty());
        let asked = !nothing_fresh || lock(&self.engine.conversions).is_wanted(keyspace.id);
        let choice = due::choice(&self.engine, keyspace, first.unwrap_or_default(), asked);
        let mut shared = lock(&self.shared);
        let others = shared.claimed_by_others(keyspace.id);
        let sweeping = shared.sweeps.entry(keyspace.id).or_default();
        let full = self.engine.ballast.is_given_up();
        if full && !std::mem::replace(&mut sweeping.is_on_full_disk, true) {
            // What it was to empty may find no room by now.
            sweeping.course = None;
        }
        let mut claimed = sweeping.claimed_bytes;
        let begin = || {
            let victims = if full {
                let victims = self.victims(keyspace, others);
                claimed = victims.live_bytes;
                victims.segments
            } else {
                claimed = 0;
                debt::victims(&keyspace.tables, &keyspace.options, &choice)
            };
            let course = Course::of(&keyspace.tables, &keyspace.options, victims, full);
            let course = if sweeping.is_for_reads { course.for_reads() } else { course };
            if sweeping.is_whole && !full { course.whole(&keyspace.tables) } else { course }
        };
        let course = sweeping.course.get_or_insert_with(begin).clone();
        sweeping.claimed_bytes = claimed;
        sweeping.chosen.extend(course.victims.iter());
        course
    }

    /// Rotates where a sweep is wanted; freezes once all that was rotated is flushed.
    fn begin_sweep(&self, keyspace: &KeyspaceView) -> Result<Found> {
        if keyspace.tables.frozen.is_some() || damage_of_runs(keyspace).is_some() {
            return Ok(Found::Nothing);
        }
        let decided = lock(&self.shared).sweeps.get(&keyspace.id).map(|sweeping| sweeping.up_to);
        if let Some(up_to) = decided {
            return self.freeze(keyspace, up_to);
        }
        let mut is_for_reads = false;
        if !lock(&self.engine.conversions).is_wanted(keyspace.id) {
            if !due::is_due(&self.engine, keyspace) {
                return Ok(Found::Nothing);
            }
            is_for_reads = !due::is_due_for_space(&self.engine, keyspace);
            if let Some(merge) = self.rewrite(keyspace)? {
                return Ok(Found::Begun(Work::Merge(Box::new(merge))));
            }
        }
        // Requests up to here are covered: what they want settled is in the memtables by now.
        let conversions = lock(&self.engine.conversions);
        let (covers, is_whole) =
            (conversions.asked(keyspace.id), conversions.wants_whole(keyspace.id));
        drop(conversions);
        // Dropped meanwhile: then there is nothing to settle.
        let Ok(up_to) = self.engine.rotate(keyspace.id) else { return Ok(Found::Done) };
        let is_for_reads = is_for_reads && !lock(&self.engine.conversions).is_wanted(keyspace.id);
        let sweeping = Sweeping::decided(covers, up_to).for_reads(is_for_reads).whole(is_whole);
        lock(&self.shared).sweeps.insert(keyspace.id, sweeping);
        Ok(Found::Done)
    }

    /// What is done instead of a sweep that is due, if anything.
    fn rewrite(&self, keyspace: &KeyspaceView) -> Result<Option<Merge>> {
        let Some(Rewrite { runs, victims, live_bytes }) = self.instead_of_sweep(keyspace) else {
            return Ok(None);
        };
        let merge = Merge::of(&self.engine, keyspace, runs)?.rewriting(victims, live_bytes);
        // It frees space at its end only: with little room a sweep is better.
        Ok(Some(merge).filter(Merge::has_room))
    }

    fn freeze(&self, keyspace: &KeyspaceView, up_to: SequenceNumber) -> Result<Found> {
        if keyspace.sealed.iter().any(|s| s.up_to <= up_to) {
            return Ok(Found::Nothing);
        }
        let id = keyspace.id;
        let is_whole = || lock(&self.shared).sweeps.get(&id).is_some_and(|s| s.is_whole);
        // On a full disk it is a conversion like others.
        let joins = || {
            !self.engine.ballast.is_given_up()
                && debt::divided(&keyspace.tables).next().is_some()
                && is_whole()
        };
        if keyspace.tables.runs.is_empty() && !self.empties_segments(keyspace) && !joins() {
            self.finish();
            return Ok(Found::Done);
        }
        let plan = |state: &crate::manifest::State| {
            let state = state.keyspaces.get(&id)?;
            state.frozen.is_none().then(|| vec![Change::Freeze { keyspace: id }])
        };
        self.engine.edit(0, &Opened::default(), plan, |_| {})?;
        keyspace.rent.begin_anew();
        keyspace.merging.begin_anew();
        Ok(Found::Done)
    }

    /// Gives up what it does.
    fn drop_work(&mut self) {
        if let Work::Merge(merge) = std::mem::replace(&mut self.work, Work::None) {
            merge.give_up();
        }
        self.let_go();
    }

    /// One step of its work.
    fn go_on(&mut self) -> Step {
        if self.engine.health.check_writable().is_err() {
            self.drop_work();
            return Step::Wait;
        }
        let before = self.engine.operations();
        match self.advance() {
            Ok(true) => self.goes_on(before),
            Ok(false) => Step::Wait,
            // Whoever asked while it was done may have removed what stopped it: it is begun again.
            Err(e) => {
                if let Some(keyspace) = self.at {
                    let mut shared = lock(&self.shared);
                    let before = shared.failed.entry(keyspace).or_default();
                    *before = self.asked.max(*before);
                    // Others first.
                    shared.last = keyspace;
                    drop(shared);
                    self.engine.note_work(engine::Work::Settle(keyspace), &Err(e), self.asked);
                }
                self.room_seen.is_over();
                self.drop_work();
                self.engine.executor.notify();
                Step::Again
            }
        }
    }
}

impl Job for SettleJob {
    fn name(&self) -> &'static str {
        "settle"
    }

    fn step(&mut self) -> Step {
        let engine = self.engine.clone();
        if let Some(step) = self.hold_back() {
            return step;
        }
        engine.settling(|| self.go_on())
    }
}
