//! Which runs are merged among themselves, and when.

use std::sync::Arc;

use super::super::debt::{self, Debt};
use super::{Found, SettleJob, Work};
use crate::engine::lock;
use crate::error::{ErrorKind, Result};
use crate::lsm::merge::{self, Merge};
use crate::view::{KeyspaceView, View};

impl SettleJob {
    pub(super) fn find_merges(
        &mut self,
        keyspaces: &[Arc<KeyspaceView>],
        view: &View,
    ) -> Result<bool> {
        let least = self.least_runs(view);
        let due = keyspaces.iter().filter(|k| k.tables.runs.len() >= least).cloned();
        self.find_at(&due.collect::<Vec<_>>(), Self::find_merge)
    }

    /// So many runs are merged, at least.
    pub(super) fn least_runs(&self, view: &View) -> usize {
        let flushing = view.keyspaces.with_sealed().next().is_some();
        // Writers wait for flushes, nobody for merges, unless there are very many runs.
        if flushing { merge::MAX_RUNS_WHILE_FLUSHING } else { 0 }
    }

    /// Whether a merge of runs is due.
    pub(super) fn is_merge_due(&self, keyspace: &KeyspaceView) -> bool {
        Merge::due(keyspace, self.coming(keyspace), self.may_merge(keyspace)).is_some()
    }

    fn find_merge(&self, keyspace: &KeyspaceView) -> Result<Found> {
        if keyspace.tables.runs.len() <= merge::MAX_RUNS {
            return Ok(Found::Nothing);
        }
        let merge = match self.merge_that_fits(keyspace) {
            Ok(Some(merge)) => merge,
            Ok(None) => return Ok(Found::Nothing),
            Err(e) => {
                // A sweep takes the runs, and needs less room: it may just wait for a flush.
                let is_swept = lock(&self.shared).sweeps.contains_key(&keyspace.id)
                    || lock(&self.engine.conversions).is_wanted(keyspace.id);
                let waits = is_swept && e.kind() == ErrorKind::DiskFull;
                return if waits { Ok(Found::Nothing) } else { Err(e) };
            }
        };
        if let Some(sweeping) = lock(&self.shared).sweeps.get_mut(&keyspace.id) {
            sweeping.merged_bytes += merge.input_bytes();
        }
        Ok(Found::Begun(Work::Merge(Box::new(merge))))
    }

    /// How many runs will be flushed before a sweep takes them all, about.
    pub(super) fn coming(&self, keyspace: &KeyspaceView) -> usize {
        const MANY: usize = usize::MAX / 2;
        let is_stuck = lock(&self.shared).failed.contains_key(&keyspace.id);
        if !self.engine.options.automatic_conversion || is_stuck {
            return MANY;
        }
        // The newest run is what a flush makes, unless it was merged already.
        let newest = keyspace.tables.runs.first().map_or(0, debt::run_bytes);
        let flushed = newest.min(self.engine.options.memtable_bytes as u64).max(1);
        let left = Debt::of(&keyspace.tables).left(&keyspace.options);
        usize::try_from(left.div_ceil(flushed)).map_or(MANY, |runs| runs.min(MANY))
    }

    /// How many bytes a merge may take now. See the module page.
    pub(super) fn may_merge(&self, keyspace: &KeyspaceView) -> u64 {
        if self.engine.ballast.is_given_up() {
            return u64::MAX;
        }
        let shared = lock(&self.shared);
        if shared.failed.contains_key(&keyspace.id) {
            // The sweep may be stuck for long: runs are not to pile up behind it.
            return u64::MAX;
        }
        match shared.sweeps.get(&keyspace.id) {
            Some(sweeping) => (sweeping.swept_bytes / 2).saturating_sub(sweeping.merged_bytes),
            // One that an earlier process began.
            None if keyspace.tables.frozen.is_some() => 0,
            None => u64::MAX,
        }
    }
}
