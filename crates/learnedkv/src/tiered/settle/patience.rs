//! What of the settling the program is not to notice ([`Step::Patiently`](crate::executor::Step::Patiently)).
//!
//! Steps of sweeps and merges have patience: they go on where a processor is left over, and slowly where flushes leave
//! none. There is a hurry where writers pay ([`crate::engine::pace`]), where somebody waits until nothing is left to do, and
//! always where sweeps go ahead by themselves. None has patience
//! * a merge that a sweep waits for: until it begins nothing is given back, and what it takes grows with the wait;
//! * a merge of very many runs, which all lookups pay for;
//! * what goes on while the disk is full, and what ends because its keyspace is gone.

use std::sync::Arc;

use super::{SettleJob, Work, damage_of_runs};
use crate::engine::lock;
use crate::lsm::merge;
use crate::view::KeyspaceView;

impl SettleJob {
    /// Whether the next step of its work has patience.
    pub(super) fn is_patient(&mut self) -> bool {
        let view = self.engine.view();
        let Some(at) = self.at.and_then(|at| view.keyspaces.get(&at)).cloned() else {
            return false;
        };
        drop(view);
        !self.engine.ballast.is_given_up()
            && match &self.work {
                Work::None => false,
                Work::Merge(merge) if merge.is_rewrite() => true,
                Work::Merge(_) => {
                    let is_many = at.tables.runs.len() >= merge::MAX_RUNS_WHILE_FLUSHING;
                    !is_many && !self.is_awaited(&at)
                }
                Work::Sweep(_) => true,
            }
    }

    /// Whether a sweep of the keyspace begins when the merge under way there ends.
    fn is_awaited(&mut self, at: &Arc<KeyspaceView>) -> bool {
        let tables = &at.tables;
        if tables.frozen.is_some()
            || damage_of_runs(at).is_some()
            || lock(&self.shared).failed.contains_key(&at.id)
        {
            return false;
        }
        // Sums over all tables: once for each that a merge sees.
        let seen = self.seen.as_ref().filter(|(seen, _)| std::ptr::eq(seen.as_ptr(), &**tables));
        let is_due = seen.map_or_else(|| self.is_due(at), |(_, is_due)| *is_due);
        self.seen = Some((Arc::downgrade(tables), is_due));
        is_due || lock(&self.engine.conversions).is_wanted(at.id)
    }
}
