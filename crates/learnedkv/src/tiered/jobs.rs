//! The jobs of the tiered store, besides the flush: settling, the log, removals.
//!
//! [`SettleJob`] does one thing at a time: a merge of runs where a keyspace has too many, else the
//! next step of a sweep, else a filter that has come to pay. A sweep begins when it was asked for or a trigger is met: rotate, wait
//! until what was rotated is flushed, freeze; then steps until the watermark passes the last key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::attach::Attach;
use super::debt::{self, Debt};
use super::sweep::{self, Course, Next, SweepStep};
use crate::engine::{self, BallastJob, Engine, Opened, SyncJob, lock};
use crate::error::{ErrorKind, Result};
use crate::executor::{Job, Step};
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::format::manifest::Change;
use crate::lsm::flush::FlushJob;
use crate::lsm::merge::{self, Merge};
use crate::options::Store;
use crate::view::{KeyspaceView, View};

/// Starts the jobs of `engine`.
pub fn spawn(engine: &Arc<Engine>) {
    let executor = &engine.executor;
    executor.spawn(Box::new(LogJob { engine: engine.clone() }));
    executor.spawn(Box::new(FlushJob::new(engine)));
    executor.spawn(Box::new(BuryJob { engine: engine.clone() }));
    executor.spawn(Box::new(BallastJob::new(engine)));
    executor.spawn(Box::new(SyncJob::new(engine)));
    executor.spawn(Box::new(SettleJob {
        engine: engine.clone(),
        work: Work::None,
        freezing: None,
        course: None,
        covers: None,
        at: None,
        failed: BTreeMap::new(),
        ballast_seen: 0,
    }));
}

/// What a rotation asks for: the cache gives way to the sealed memtable, the next log segment is made
/// ready, and the log is synced ahead of a flush that depends on it, which meanwhile writes its
/// table (see [`Engine::needs_no_log`]).
struct LogJob {
    engine: Arc<Engine>,
}

impl Job for LogJob {
    fn name(&self) -> &'static str {
        "log"
    }

    fn step(&mut self) -> Step {
        let engine = &self.engine;
        if engine.health.check_writable().is_err() {
            return Step::Wait;
        }
        engine.fit_cache();
        let visible = engine.log.visible();
        let view = engine.view();
        let sealed = view.keyspaces.values().flat_map(|k| k.sealed.iter().map(|s| (k.id, s.up_to)));
        let sealed = sealed.filter(|(_, up_to)| *up_to <= visible);
        let needed = sealed.filter(|(keyspace, up_to)| !engine.needs_no_log(*keyspace, *up_to));
        if let Some(up_to) = needed.map(|(_, up_to)| up_to).max()
            && let Err(e) = engine.log.sync(up_to)
        {
            engine.poison(&e);
            return Step::Wait;
        }
        engine.bound_log();
        // If there is no room now, the commit that needs the segment tries again and says so.
        let _ = engine.log.prepare_spare();
        Step::Wait
    }
}

/// Removes files that no View uses any more.
struct BuryJob {
    engine: Arc<Engine>,
}

impl Job for BuryJob {
    fn name(&self) -> &'static str {
        "remove files"
    }

    fn step(&mut self) -> Step {
        self.engine.bury();
        Step::Wait
    }
}

enum Work {
    None,
    Merge(Box<Merge>),
    Sweep(KeyspaceId, Box<SweepStep>),
    Attach(Box<Attach>),
}

/// A keyspace about to be frozen.
struct Freezing {
    keyspace: KeyspaceId,
    /// What was rotated: to be flushed first.
    up_to: SequenceNumber,
}

/// Merges runs and sweeps. See the module page.
struct SettleJob {
    engine: Arc<Engine>,
    work: Work,
    freezing: Option<Freezing>,
    /// The requests that the sweep under way covers.
    covers: Option<(KeyspaceId, u64)>,
    /// The keyspace being swept, and what the sweep keeps in mind.
    course: Option<(KeyspaceId, Course)>,
    /// The keyspace it works at.
    at: Option<KeyspaceId>,
    /// Those where it failed, and when; see `Health::asked`. They are tried again when somebody has
    /// asked since, and come last: the damage of one keeps no other from being settled.
    failed: BTreeMap<KeyspaceId, u64>,
    /// How often the ballast had been given up when its work began.
    ballast_seen: u64,
}

impl SettleJob {
    /// Does one piece of work. False: there is none now.
    fn advance(&mut self) -> Result<bool> {
        match std::mem::replace(&mut self.work, Work::None) {
            Work::Merge(mut merge) => {
                if merge.step()? {
                    self.failed.retain(|id, _| Some(*id) != self.at);
                } else {
                    self.work = Work::Merge(merge);
                }
                Ok(true)
            }
            Work::Sweep(keyspace, mut step) => {
                match step.step() {
                    Ok(None) => self.work = Work::Sweep(keyspace, step),
                    Ok(Some(ends)) => self.after_step(keyspace, ends),
                    Err(e) => match (step.unreadable_base(&e), &mut self.course) {
                        (Some(base), Some((_, course))) => {
                            // Not lost, and in nobody's way: what is newer becomes its delta.
                            course.unreadable.insert(base);
                            let work = engine::Work::Settle(keyspace);
                            self.engine.health.note_background(work, &Err(e));
                        }
                        // Begun again, with more room.
                        _ if e.kind() == ErrorKind::DiskFull
                            && self.engine.give_up_ballast(self.ballast_seen) => {}
                        _ => return Err(e),
                    },
                }
                Ok(true)
            }
            Work::Attach(mut attach) => {
                if !attach.step() {
                    self.work = Work::Attach(attach);
                }
                Ok(true)
            }
            Work::None => {
                self.ballast_seen = self.engine.ballast.times();
                self.find()
            }
        }
    }

    fn after_step(&mut self, keyspace: KeyspaceId, ends: bool) {
        if ends {
            self.failed.remove(&keyspace);
            self.course = None;
            self.engine.metrics.sweeps.fetch_add(1, Ordering::Relaxed);
            self.finish(keyspace);
        }
    }

    /// What the sweep of a keyspace keeps in mind.
    fn course(&mut self, keyspace: &KeyspaceView) -> Course {
        match &self.course {
            Some((id, course)) if *id == keyspace.id => course.clone(),
            _ => {
                let over_provision = keyspace.options.over_provision();
                let victims = Arc::new(debt::victims(&keyspace.tables, over_provision));
                let course = Course { victims, ..Course::default() };
                self.course = Some((keyspace.id, course.clone()));
                course
            }
        }
    }

    /// Says that the requests of a keyspace are done that the sweep now over covers.
    fn finish(&mut self, keyspace: KeyspaceId) {
        if let Some((_, number)) = self.covers.take_if(|(id, _)| *id == keyspace) {
            lock(&self.engine.conversions).finish(keyspace, number);
        }
        self.engine.executor.notify();
    }

    fn find(&mut self) -> Result<bool> {
        let view = arc_swap::Guard::into_inner(self.engine.view());
        let asked = self.engine.health.asked();
        let ours = view.keyspaces.values().filter(|k| k.options.chosen_store() == Store::Tiered);
        let (failed, others): (Vec<_>, Vec<_>) =
            ours.partition(|k| self.failed.contains_key(&k.id));
        let again = |k: &&Arc<KeyspaceView>| self.failed.get(&k.id) != Some(&asked);
        let again: Vec<_> = failed.into_iter().filter(again).collect();
        Ok(self.find_among(&others, &view)? || self.find_among(&again, &view)?)
    }

    fn find_among(&mut self, keyspaces: &[&Arc<KeyspaceView>], view: &View) -> Result<bool> {
        // A merge frees space at its end only, a sweep at each step.
        let full = self.engine.ballast.is_given_up();
        Ok((!full && self.find_merge(keyspaces, view)?)
            || self.find_sweep(keyspaces, view)?
            || (full && self.find_merge(keyspaces, view)?)
            || self.find_filter(view))
    }

    fn find_merge(&mut self, keyspaces: &[&Arc<KeyspaceView>], view: &View) -> Result<bool> {
        let flushing = view.keyspaces.values().any(|k| !k.sealed.is_empty());
        for keyspace in keyspaces {
            self.at = Some(keyspace.id);
            // Writers wait for flushes, nobody for merges, unless there are very many runs.
            if flushing && keyspace.tables.runs.len() < merge::MAX_RUNS_WHILE_FLUSHING {
                continue;
            }
            if let Some(merge) = Merge::find(&self.engine, keyspace)? {
                merge.check_room()?;
                self.work = Work::Merge(Box::new(merge));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn find_filter(&mut self, view: &View) -> bool {
        let attach = Attach::find(&self.engine, view);
        let found = attach.is_some();
        self.work = attach.map_or(Work::None, |attach| Work::Attach(Box::new(attach)));
        found
    }

    fn find_sweep(&mut self, keyspaces: &[&Arc<KeyspaceView>], view: &View) -> Result<bool> {
        for keyspace in keyspaces {
            self.at = Some(keyspace.id);
            if let Some(frozen) = &keyspace.tables.frozen {
                let course = self.course(keyspace);
                match sweep::next(&self.engine, keyspace, frozen, &course)? {
                    Next::Rewrite(step) => self.work = Work::Sweep(keyspace.id, step),
                    Next::Skip(skip) => {
                        let ends = skip.commit(&self.engine)?;
                        self.after_step(keyspace.id, ends);
                    }
                }
                return Ok(true);
            }
        }
        if let Some(freezing) = self.freezing.take() {
            self.at = Some(freezing.keyspace);
            return self.freeze(freezing, view);
        }
        let wanted = keyspaces.iter().find(|k| self.is_wanted(k)).map(|k| k.id);
        let Some(keyspace) = wanted else { return Ok(false) };
        // Requests up to here are covered: what they want settled is in the memtables by now.
        self.covers = Some((keyspace, lock(&self.engine.conversions).asked(keyspace)));
        // Dropped meanwhile: then there is nothing to settle.
        let rotated = self.engine.rotate(keyspace);
        self.freezing = rotated.ok().map(|up_to| Freezing { keyspace, up_to });
        Ok(true)
    }

    fn is_wanted(&self, keyspace: &KeyspaceView) -> bool {
        if lock(&self.engine.conversions).is_wanted(keyspace.id) {
            return true;
        }
        self.engine.options.automatic_conversion
            && Debt::of(&keyspace.tables)
                .is_due(&keyspace.options, self.engine.ballast.is_given_up())
    }

    /// Freezes once all that was rotated is flushed. False: it is not yet.
    fn freeze(&mut self, freezing: Freezing, view: &View) -> Result<bool> {
        let Some(keyspace) = view.keyspaces.get(&freezing.keyspace) else { return Ok(true) };
        if keyspace.sealed.iter().any(|s| s.up_to <= freezing.up_to) {
            self.freezing = Some(freezing);
            return Ok(false);
        }
        let id = freezing.keyspace;
        if keyspace.tables.runs.is_empty() {
            self.finish(id);
            return Ok(true);
        }
        let plan = |state: &crate::manifest::State| {
            let state = state.keyspaces.get(&id)?;
            state.frozen.is_none().then(|| vec![Change::Freeze { keyspace: id }])
        };
        self.engine.edit(0, &Opened::default(), plan, |_| {})?;
        Ok(true)
    }
}

impl Job for SettleJob {
    fn name(&self) -> &'static str {
        "settle"
    }

    fn step(&mut self) -> Step {
        if self.engine.health.check_writable().is_err() {
            self.work = Work::None;
            return Step::Wait;
        }
        let asked = self.engine.health.asked();
        match self.advance() {
            Ok(true) => Step::Again,
            Ok(false) => Step::Wait,
            Err(e) => {
                if let Some(keyspace) = self.at {
                    self.failed.insert(keyspace, asked);
                    self.engine.health.note_background(engine::Work::Settle(keyspace), &Err(e));
                }
                self.engine.executor.notify();
                Step::Again
            }
        }
    }
}
