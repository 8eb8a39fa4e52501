//! Which runs are asked together: neighbours that belong to one generation.

use std::ops::Range;
use std::sync::Arc;

use super::Run;
use crate::format::checksum::HashedKey;
use crate::sstable::generation::Generation;
use crate::sstable::reader::Table;

/// Neighbouring runs, asked together.
#[derive(Debug, Clone)]
pub struct Group {
    /// Which of the runs.
    pub runs: Range<usize>,
    /// The generation that all of them belong to. None of them has removed ranges, so a key that it
    /// refuses they say nothing of. Not of a single run, whose own filters say no less.
    generation: Option<Arc<Generation>>,
    /// So many of its runs would not be asked for a key that none holds, if those of each stretch that
    /// [could](ungrouped) belonged to a generation.
    pub spares: u64,
}

impl Group {
    /// All `runs` in groups, newest first.
    pub fn all(runs: &[Run]) -> Vec<Group> {
        // Each looked at once: tables of runs that an open found come to belong to one meanwhile.
        let of_runs: Vec<_> = runs.iter().map(Group::generation).collect();
        let alike = |a: &Option<&Arc<Generation>>, b: &Option<&Arc<Generation>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let mut end = 0;
        let group = |of_runs: &[Option<&Arc<Generation>>]| {
            let start = end;
            end += of_runs.len();
            let generation = of_runs.first().filter(|_| of_runs.len() > 1).copied().flatten();
            let stretches = ungrouped(&runs[start..end]);
            let spares = stretches.map(|stretch| stretch.len() as u64 - 1).sum();
            Group { runs: start..end, generation: generation.cloned(), spares }
        };
        of_runs.chunk_by(alike).map(group).collect()
    }

    /// The generation that says all of a run.
    fn generation(run: &Run) -> Option<&Arc<Generation>> {
        let removes_ranges = run.iter().any(|table| table.properties().ranges > 0);
        if removes_ranges { None } else { Generation::of_all(run.iter()) }
    }

    /// Whether none of the runs says anything of keys of this hash, for certain.
    #[inline]
    pub fn refuses(&self, key: &HashedKey<'_>) -> bool {
        self.generation.as_ref().is_some_and(|generation| !generation.may_hold(key.hash()))
    }
}

/// The stretches of neighbouring runs that belong to no generation and could to one, as those that were there when the
/// database was opened: two runs or more, all tables of which can be read, without removed ranges.
pub fn ungrouped(runs: &[Run]) -> impl Iterator<Item = Range<usize>> {
    let could = |run: &Run| {
        let ready = |table: &Arc<Table>| {
            table.generation().is_none() && table.properties().ranges == 0 && table.is_readable()
        };
        !run.is_empty() && run.iter().all(ready)
    };
    let mut end = 0;
    let stretches = runs.chunk_by(move |a, b| could(a) == could(b)).filter_map(move |stretch| {
        let start = end;
        end += stretch.len();
        stretch.first().is_some_and(could).then_some(start..end)
    });
    stretches.filter(|stretch| stretch.len() > 1)
}
