//! The cheaper way to give space back: the value segments of the LSM part with the most dead bytes are
//! written anew, instead of a sweep.
//!
//! Where few keys get most updates, garbage is for the most part values of the LSM part that newer flushes
//! overwrote. A sweep would write all of the settled run that is touched, to be rid of it. To write what lives
//! in the deadest segments, once, with the pointers to it (a merge of the runs that point there), frees
//! a byte for far fewer.
//!
//! When a sweep is due for its garbage, both are estimated: what each writes and what it frees. Segments are taken
//! deadest first, as long as the next one still frees a byte for three quarters of the sweep's price, and not more
//! than a quarter of the garbage that is allowed: while it is written it takes space twice. It is done if what it frees
//! is worth an edit (a quarter of what is allowed) and no sweep is due soon after (another quarter is free
//! then): else the settled run's own garbage is what must go, and the sweep is done.
//!
//! It is done in pieces, since what lives takes space twice until its piece is done: so many of the deadest as have
//! a partition's bytes alive, or those of the tables between them, which each piece writes anew too. The whole
//! is done where the piece is not cheap by itself. What is left is looked at again when a sweep is due again.
//!
//! Which segments are dead is known only once the runs are merged that overwrite each other. Where enough may
//! turn out to be dead, that is done first, for it copies pointers only.
//!
//! The share of three quarters is by a model of the two (docs/decisions, 26): a segment that is left alone gets
//! deader.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::debt::Debt;
use crate::format::table::SegmentUse;
use crate::lsm::garbage;
use crate::options::KeyspaceOptions;
use crate::sstable::reader::Table;
use crate::view::{Run, Tables, each_once};

/// What is done instead of a sweep: a merge of neighbouring runs.
#[derive(Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The runs, counted from the newest.
    pub runs: Range<usize>,
    /// The segments whose values are written anew; all that points into them stands in these runs. None: it
    /// is to show what is dead.
    pub victims: Arc<BTreeSet<u64>>,
    /// What lives in them, bytes.
    pub live_bytes: u64,
}

impl Rewrite {
    /// What is to be done instead of a sweep of `tables` that is due, if anything.
    pub fn instead_of_sweep(tables: &Tables, options: &KeyspaceOptions) -> Option<Rewrite> {
        let debt = Debt::of(tables);
        let allowed = debt.allows(options);
        let stays = debt.shadowed + debt.covered + debt.replaced;
        if tables.frozen.is_some() || debt.is_due_for_fresh(options) || stays > allowed / 4 * 3 {
            return None;
        }
        // What deltas replace is left out of both: some of it a sweep leaves, the rest costs it bases that runs may not touch.
        let sweep = Cost {
            writes: moved(tables, options) + touched(tables),
            frees: debt.garbage() - debt.replaced,
        };
        let candidates = candidates(tables);
        let dead: u64 = candidates.iter().map(|candidate| candidate.dead).sum();
        let garbage = debt.garbage();
        let of = Rewrite::of(tables, &candidates, &sweep, (garbage, allowed), options.partition());
        of.or_else(|| {
            let runs = 0..tables.runs.len();
            let might_do =
                dead + debt.overwritten >= allowed / 4 && debt.overwritten >= allowed / 8;
            let is_cheap = bytes(&tables.runs) < sweep.writes / 8;
            (might_do && is_cheap && runs.len() > 1).then(|| Rewrite {
                runs,
                victims: Arc::default(),
                live_bytes: 0,
            })
        })
    }

    /// Whether enough is gained is asked of all that is cheap; of it the deadest is done, of at most
    /// `piece_bytes` or what the tables take, if that is cheap by itself.
    fn of(
        tables: &Tables,
        candidates: &[Candidate],
        sweep: &Cost,
        (garbage, allowed): (u64, u64),
        piece_bytes: u64,
    ) -> Option<Rewrite> {
        let mut live = 0;
        let count = candidates.iter().take_while(|candidate| {
            live += candidate.live;
            candidate.cost().is_cheaper(sweep) && live <= allowed / 4
        });
        let plan = &candidates[..count.count()];
        let (all, whole) = Rewrite::merging(tables, plan)?;
        let left = garbage.saturating_sub(whole.frees);
        let is_worth = whole.frees >= allowed / 4 && left <= allowed / 4 * 3;
        if !is_worth || !whole.is_cheaper(sweep) {
            return None;
        }
        // Each piece writes the tables between its segments anew too.
        let least = bytes(&tables.runs[all.runs.clone()]);
        let (piece, cost) = Rewrite::merging(tables, deadest(plan, piece_bytes.max(least)))?;
        Some(if cost.is_cheaper(sweep) { piece } else { all })
    }

    /// What writes these segments anew, and what that costs.
    fn merging(tables: &Tables, segments: &[Candidate]) -> Option<(Rewrite, Cost)> {
        let victims: BTreeSet<u64> = segments.iter().map(|segment| segment.id).collect();
        let runs = span(&tables.runs, &victims)?;
        let live_bytes: u64 = segments.iter().map(|segment| segment.live).sum();
        let cost = Cost {
            writes: live_bytes + bytes(&tables.runs[runs.clone()]),
            frees: segments.iter().map(|segment| segment.dead).sum(),
        };
        Some((Rewrite { runs, victims: Arc::new(victims), live_bytes }, cost))
    }
}

/// The first of `segments`, deadest first, that have `most_bytes` alive together; one at least.
fn deadest(segments: &[Candidate], most_bytes: u64) -> &[Candidate] {
    let mut live = 0;
    let fit = segments.iter().take_while(|segment| {
        live += segment.live;
        live <= most_bytes
    });
    &segments[..fit.count().max(1).min(segments.len())]
}

/// What is written, and what is given back for it, bytes.
struct Cost {
    writes: u64,
    frees: u64,
}

impl Cost {
    /// Whether a byte is freed for less than three quarters of what the sweep takes for it.
    fn is_cheaper(&self, sweep: &Cost) -> bool {
        4 * u128::from(self.writes) * u128::from(sweep.frees)
            < 3 * u128::from(sweep.writes) * u128::from(self.frees)
    }
}

fn bytes(runs: &[Run]) -> u64 {
    runs.iter().flatten().map(|table| table.file_bytes()).sum()
}

/// A segment of the LSM part that has garbage.
struct Candidate {
    id: u64,
    live: u64,
    dead: u64,
}

impl Candidate {
    fn cost(&self) -> Cost {
        Cost { writes: self.live, frees: self.dead }
    }
}

/// The segments with garbage that only runs point into, deadest first.
fn candidates(tables: &Tables) -> Vec<Candidate> {
    let settled = tables.settled().flat_map(|table| &table.properties().segments);
    let settled: BTreeSet<u64> = settled.map(|used| used.segment).collect();
    let dead = garbage::dead(tables);
    let mut candidates: Vec<_> = tables
        .segments
        .iter()
        .filter(|segment| !settled.contains(&segment.id()))
        .map(|segment| {
            let dead = dead.get(&segment.id()).copied().unwrap_or(0);
            Candidate { id: segment.id(), live: segment.value_bytes().saturating_sub(dead), dead }
        })
        .filter(|candidate| candidate.dead > 0)
        .collect();
    candidates.sort_by_key(|c| (u128::from(c.live) << 32) / u128::from(c.dead));
    candidates
}

/// The neighbours among which are all runs that point into `segments`.
fn span(runs: &[Run], segments: &BTreeSet<u64>) -> Option<Range<usize>> {
    let points = |run: &Run| {
        let mut used = run.iter().flat_map(|table| &table.properties().segments);
        used.any(|used| segments.contains(&used.segment))
    };
    let newest = runs.iter().position(points)?;
    let oldest = runs.iter().rposition(points)?;
    Some(newest..oldest + 1)
}

/// What a sweep would write of the LSM part: values that are to stay apart it leaves where they are.
pub(super) fn moved(tables: &Tables, options: &KeyspaceOptions) -> u64 {
    let stays = |used: &&SegmentUse| used.mean_length() >= options.separate_settled_at();
    let bytes = |table: &Arc<Table>| {
        let values = table.properties().segments.iter().filter(|used| !stays(used));
        // As they are stored, if blocks take them so.
        let alike = options.compresses_alike();
        let bytes = values.map(|used| if alike { used.bytes } else { used.value_bytes });
        table.file_bytes() + bytes.sum::<u64>()
    };
    tables.runs.iter().flatten().map(bytes).sum()
}

/// The bytes of the partitions that a sweep would write anew: those that runs have something in.
fn touched(tables: &Tables) -> u64 {
    let partitions = tables.partitions.iter().enumerate().filter(|(at, partition)| {
        let (from, to) = (partition.lower.as_slice(), tables.upper(*at));
        tables.runs.iter().flatten().any(|table| table.bytes_between(from, to) > 0)
    });
    let tables = each_once(partitions.flat_map(|(_, partition)| partition.tables()));
    tables.map(|table| table.file_bytes()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_the_deadest_that_fit_and_one_at_least() {
        let segment = |live| Candidate { id: live, live, dead: 1 };
        let segments = [10, 20, 5, 0, 40].map(segment);
        let count = |most_bytes| deadest(&segments, most_bytes).len();
        assert_eq!([0, 9, 10, 29, 30, 34, 35, 74, 75].map(count), [1, 1, 1, 1, 2, 2, 4, 4, 5]);
        assert_eq!(deadest(&[], 10).len(), 0);
    }
}
