//! The jobs of keyspaces that keep levels.
//!
//! [`CompactJob`]s do one compaction after the other, each by itself: what one works at no other picks
//! ([`crate::engine::claims`]). [`TendJob`] says how hard pressed a keyspace is, and carries out what
//! [`crate::Keyspace::convert`] asks for: rotate, wait until that is flushed, then until the runs there
//! are then have been compacted away and no level is beyond its size.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::compact::Compaction;
use super::levels::Shape;
use super::pick::{Pick, Picker};
use crate::engine::{Engine, Work, lock};
use crate::error::{Error, Result};
use crate::executor::{Job, Step};
use crate::format::entry::{KeyspaceId, SequenceNumber, TableId};
use crate::options::Store;
use crate::view::{KeyspaceView, View};

/// So many compactions may be under way at once, as far as there are threads.
const COMPACTIONS: usize = 3;

/// Starts the jobs once there is a keyspace for them.
pub fn spawn_if_wanted(engine: &Arc<Engine>) {
    let wanted = of_levels(&engine.view()).next().is_some();
    if !wanted || engine.compacts.swap(true, Ordering::AcqRel) {
        return;
    }
    for _ in 0..COMPACTIONS {
        let engine = engine.clone();
        engine.clone().executor.spawn(Box::new(CompactJob {
            engine,
            work: None,
            failed: BTreeMap::new(),
        }));
    }
    let job = TendJob { engine: engine.clone(), under_way: BTreeMap::new() };
    engine.executor.spawn(Box::new(job));
}

/// Whether a compaction is under way or due.
pub fn is_busy(engine: &Engine, view: &View) -> bool {
    let claims = lock(&engine.claims);
    let asked = engine.health.asked();
    !claims.is_empty()
        || of_levels(view).any(|k| Picker::new(k, &claims, asked, false).pick().is_some())
}

fn of_levels(view: &View) -> impl Iterator<Item = &Arc<KeyspaceView>> {
    view.keyspaces.values().filter(|k| k.options.chosen_store() == Store::Lsm)
}

/// Compacts whatever is due most.
struct CompactJob {
    engine: Arc<Engine>,
    work: Option<Box<Compaction>>,
    /// Keyspaces where it failed, and when; see `Health::asked`.
    failed: BTreeMap<KeyspaceId, u64>,
}

impl CompactJob {
    /// Begins the compaction that is due most of those that no other job does.
    fn find(&self) -> Option<(KeyspaceId, Result<Box<Compaction>>)> {
        let asked = self.engine.health.asked();
        let (keyspace, pick, claimed) = {
            let mut claims = lock(&self.engine.claims);
            // Looked at under the claims: of what is free no edit is still to come.
            let view = self.engine.view();
            let conversions = lock(&self.engine.conversions);
            let tried = |k: &&Arc<KeyspaceView>| self.failed.get(&k.id) != Some(&asked);
            let picks = of_levels(&view).filter(tried).filter_map(|keyspace| {
                let wanted = conversions.is_wanted(keyspace.id);
                let pick = Picker::new(keyspace, &claims, asked, wanted).pick()?;
                Some((keyspace, pick))
            });
            let (keyspace, pick) = picks.max_by_key(|(_, pick): &(_, Pick)| pick.score)?;
            let claimed = claims.hold(&self.engine, pick.claim.clone());
            (keyspace.clone(), pick, claimed)
        };
        let mut work = Box::new(Compaction::begin(&self.engine, &keyspace, pick, claimed));
        let entered = work.enter();
        self.leave_alone(&work, entered.as_ref().err());
        Some((keyspace.id, entered.map(|()| work)))
    }

    fn leave_alone(&self, work: &Compaction, error: Option<&Error>) {
        let asked = self.engine.health.asked();
        let error = error.filter(|e| e.is_corruption());
        for table in error.map_or(Vec::new(), |e| work.unreadable(e)) {
            lock(&self.engine.claims).avoid(table, asked);
        }
    }

    fn advance(&mut self) -> (Option<KeyspaceId>, Result<bool>) {
        let Some(mut work) = self.work.take() else {
            return match self.find() {
                None => (None, Ok(false)),
                Some((keyspace, found)) => {
                    let begun = found.map(|work| self.work = Some(work));
                    (Some(keyspace), begun.map(|()| true))
                }
            };
        };
        let keyspace = Some(work.keyspace());
        match work.step() {
            Ok(false) => self.work = Some(work),
            Ok(true) => self.failed.retain(|id, _| Some(*id) != keyspace),
            Err(e) => {
                self.leave_alone(&work, Some(&e));
                return (keyspace, Err(e));
            }
        }
        (keyspace, Ok(true))
    }
}

impl Job for CompactJob {
    fn name(&self) -> &'static str {
        "compact"
    }

    fn step(&mut self) -> Step {
        if self.engine.health.check_writable().is_err() {
            self.work = None;
            return Step::Wait;
        }
        let asked = self.engine.health.asked();
        match self.advance() {
            (_, Ok(true)) => Step::Again,
            (_, Ok(false)) => Step::Wait,
            (keyspace, Err(e)) => {
                let keyspace = keyspace.expect("work is at a keyspace");
                // Of damaged tables the claims know; others of the keyspace may be well.
                if !e.is_corruption() {
                    self.failed.insert(keyspace, asked);
                }
                self.engine.health.note_background(Work::Settle(keyspace), &Err(e));
                self.engine.executor.notify();
                Step::Again
            }
        }
    }
}

/// A conversion under way.
struct Converting {
    /// The requests that it covers.
    covers: u64,
    /// What was rotated: to be flushed first.
    up_to: SequenceNumber,
    /// Once it is: the tables of the runs there were.
    runs: Option<BTreeSet<TableId>>,
}

/// Reports pressure and answers requests. See the module page.
struct TendJob {
    engine: Arc<Engine>,
    under_way: BTreeMap<KeyspaceId, Converting>,
}

impl TendJob {
    fn look(&mut self) {
        let view = arc_swap::Guard::into_inner(self.engine.view());
        for keyspace in of_levels(&view) {
            let pressure = Shape::of(&keyspace.tables, &keyspace.options).pressure();
            self.engine.pace.press(keyspace.id, pressure);
        }
        self.under_way.retain(|id, _| view.keyspaces.contains_key(id));
        for keyspace in of_levels(&view) {
            let covers = {
                let conversions = lock(&self.engine.conversions);
                conversions.is_wanted(keyspace.id).then(|| conversions.asked(keyspace.id))
            };
            match (self.under_way.get_mut(&keyspace.id), covers) {
                (Some(converting), _) => {
                    if Self::is_done(&self.engine, keyspace, converting) {
                        lock(&self.engine.conversions).finish(keyspace.id, converting.covers);
                        self.under_way.remove(&keyspace.id);
                        self.engine.executor.notify();
                    }
                }
                (None, Some(covers)) => {
                    // Dropped meanwhile: then there is nothing to do.
                    if let Ok(up_to) = self.engine.rotate(keyspace.id) {
                        let converting = Converting { covers, up_to, runs: None };
                        self.under_way.insert(keyspace.id, converting);
                        self.engine.executor.notify();
                    }
                }
                (None, None) => {}
            }
        }
    }

    fn is_done(engine: &Engine, keyspace: &KeyspaceView, converting: &mut Converting) -> bool {
        let fresh = || keyspace.tables.fresh().iter().flatten().map(|table| table.id());
        if converting.runs.is_none() {
            if keyspace.sealed.iter().any(|sealed| sealed.up_to <= converting.up_to) {
                return false;
            }
            converting.runs = Some(fresh().collect());
        }
        let left =
            converting.runs.as_ref().is_some_and(|runs| fresh().any(|id| runs.contains(&id)));
        let claims = lock(&engine.claims);
        let idle = || {
            let picker = Picker::new(keyspace, &claims, engine.health.asked(), true);
            !claims.any_of(keyspace.id) && picker.pick().is_none()
        };
        !left && idle()
    }
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
