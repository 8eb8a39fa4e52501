//! Steps of a sweep that are begun ahead of the one that leads; see [`super::hold`].

use std::sync::Arc;

use super::{SettleJob, Work};
use crate::engine::lock;
use crate::error::Result;
use crate::format::entry::KeyspaceId;
use crate::tiered::sweep::{self, SweepStep};
use crate::view::{KeyspaceView, View};

impl SettleJob {
    /// Begins a step ahead of another's, where writers pay (or it is to be always so) and no merge waits for the hold.
    pub(super) fn find_ahead(&mut self, view: &View) -> bool {
        if self.engine.options.background_bytes_per_s.is_some() {
            // It would take from what the one before it may write.
            return false;
        }
        let ids = lock(&self.shared).may_go_ahead();
        let always = self.engine.options.sweeps_ahead;
        let pressed = ids.into_iter().filter(|id| always || self.engine.pace.pressure(*id) > 0);
        for id in pressed.collect::<Vec<_>>() {
            let waits = |k: &KeyspaceView| {
                k.tables.runs.len() >= self.least_runs(view) && self.is_merge_due(k)
            };
            if view.keyspaces.get(&id).is_none_or(|k| waits(k) || !self.has_room(k)) {
                continue;
            }
            let Some(from) = lock(&self.shared).go_ahead(id) else { continue };
            (self.at, self.is_ahead) = (Some(id), true);
            match self.step_ahead(id, &from) {
                Ok(Some(step)) => {
                    self.work = Work::Sweep(step);
                    return true;
                }
                Ok(None) => self.let_go(),
                Err(_) => self.give_up_ahead(id),
            }
        }
        false
    }

    /// Whether what a step ahead writes is far from filling the disk.
    fn has_room(&self, keyspace: &KeyspaceView) -> bool {
        let room = self.engine.disk().room(self.engine.dir());
        room.is_none_or(|room| room.free_bytes >= 2 * keyspace.options.partition())
    }

    /// The step ahead failed: whatever it met, the one that will lead there meets and deals with. There may be room for one.
    pub(super) fn give_up_ahead(&mut self, at: KeyspaceId) {
        lock(&self.shared).go_alone(at);
        self.let_go();
    }

    fn step_ahead(&self, id: KeyspaceId, from: &[u8]) -> Result<Option<Box<SweepStep>>> {
        let view = self.engine.view();
        let Some(keyspace) = view.keyspaces.get(&id) else { return Ok(None) };
        let Some(frozen) = &keyspace.tables.frozen else { return Ok(None) };
        let course = self.course(keyspace);
        let step = sweep::next_ahead(&self.engine, keyspace, frozen, &course, from)?;
        Ok(step.filter(|step| lock(&self.shared).go_further(id, step.lower())))
    }

    /// Whether the sweep that its step is ahead of goes on.
    pub(super) fn may_stay_ahead(&self) -> bool {
        let at = self.at.unwrap_or_default();
        let is_swept = |k: &Arc<KeyspaceView>| k.tables.frozen.is_some();
        self.engine.view().keyspaces.get(&at).is_some_and(is_swept)
            && lock(&self.shared).may_stay_ahead(at)
    }
}
