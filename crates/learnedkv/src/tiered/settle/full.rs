//! What settling does on a full disk beside steps of sweeps: see [`crate::engine::Ballast`] for why they find room.

use super::super::debt;
use super::super::trim::Trim;
use super::hold::Sweeping;
use super::{SettleJob, Work};
use crate::engine::{self, lock};
use crate::error::Result;
use crate::format::entry::KeyspaceId;
use crate::view::KeyspaceView;

impl SettleJob {
    /// On a full disk: whether what is in memory is to be flushed before a step, and can be: what it removes the
    /// step does not write. What is not full yet only where somebody waits: each flush takes room.
    pub(super) fn flushes_first(&self, keyspace: &KeyspaceView) -> bool {
        if self.engine.health.work_error(engine::Work::Flush(keyspace.id)).is_some() {
            return false;
        }
        let is_wanted = || lock(&self.engine.conversions).is_wanted(keyspace.id);
        !keyspace.sealed.is_empty()
            || !keyspace.active.is_empty() && is_wanted() && self.engine.rotate(keyspace.id).is_ok()
    }

    /// Where a step of a sweep found no room: a table of the frozen part that is trimmed first, if that gives some.
    pub(super) fn find_trim(&self, at: KeyspaceId) -> Option<Box<Trim>> {
        if !self.engine.ballast.is_given_up() {
            return None;
        }
        let view = self.engine.view();
        let keyspace = view.keyspaces.get(&at)?;
        let shared = lock(&self.shared);
        let tried = &shared.sweeps.get(&at)?.tried;
        Trim::find(&self.engine, keyspace, |table| tried.contains(table)).map(Box::new)
    }

    /// Goes on with trimming a table.
    pub(super) fn trim(&mut self, mut trim: Box<Trim>) -> Result<bool> {
        if !trim.step()? {
            self.work = Work::Trim(trim);
            return Ok(true);
        }
        // The step that found no room is begun again.
        let at = self.at.unwrap_or_default();
        if let Some(sweeping) = lock(&self.shared).sweeps.get_mut(&at) {
            sweeping.tried.insert(trim.tried().clone());
        }
        drop(trim);
        self.let_go();
        Ok(true)
    }

    /// Whether another sweep follows one that is over: that gave segments back, and so there is room to empty more.
    pub(super) fn sweeps_again(&self, at: KeyspaceId, over: &Sweeping) -> bool {
        let Some(course) = &over.course else { return false };
        // Or that was enough.
        if !self.engine.ballast.is_given_up() || self.engine.check_room().is_ok() {
            return false;
        }
        let view = self.engine.view();
        let Some(keyspace) = view.keyspaces.get(&at) else { return false };
        let has_given = course.victims.iter().any(|id| keyspace.tables.segments.get(*id).is_none());
        if !has_given || !self.empties_segments(keyspace) {
            return false;
        }
        lock(&self.shared).sweeps.insert(at, Sweeping::decided(over.covers, 0));
        true
    }

    /// Whether a sweep has value segments to empty, though nothing is fresh: on a full disk, where somebody
    /// waits for it.
    pub(super) fn empties_segments(&self, keyspace: &KeyspaceView) -> bool {
        let is_wanted = lock(&self.engine.conversions).is_wanted(keyspace.id);
        self.engine.ballast.is_given_up()
            && is_wanted
            && !debt::victims_that_fit(&self.engine, &keyspace.tables, &keyspace.options).is_empty()
    }
}
