//! What a sweep does where: what it keeps in mind as a whole, and what each step does to its partition.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::debt::{self, Debt};
use crate::format::entry::TableId;
use crate::format::manifest::TableRecord;
use crate::format::range::Ranges;
use crate::format::table::SegmentUse;
use crate::lsm::garbage;
use crate::lsm::read::clip;
use crate::options::KeyspaceOptions;
use crate::sstable::cursor::Clipped;
use crate::sstable::reader::Table;
use crate::sstable::scale;
use crate::view::{Frozen, KeyspaceView, Partition, Tables};

/// What a step does to its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    Delta,
    Base,
}

/// What a sweep keeps in mind from step to step. It is found again after a crash.
#[derive(Debug, Clone)]
pub struct Course {
    /// The value segments that it empties.
    pub victims: Arc<BTreeSet<u64>>,
    /// The largest part of a base that a delta replaces, per cent.
    pub delta_limit: u64,
    /// The largest part of a base that a delta may be, per cent.
    size_limit: u64,
    /// Bases that could not be read: they get deltas, and stay.
    unreadable: BTreeSet<TableId>,
    /// Bases that are rewritten to be rid of what their deltas replace.
    outgrown: Arc<BTreeSet<TableId>>,
    /// Those where that failed: they may have any delta.
    left: BTreeSet<TableId>,
    /// No other base gets one.
    is_whole: bool,
}

impl Course {
    /// Leaves all value segments as they are. False: it empties none.
    pub fn spare_segments(&mut self) -> bool {
        !std::mem::take(&mut self.victims).is_empty()
    }

    /// That of a sweep which begins, or goes on after a restart. What it leaves is not to make the next one due at
    /// once: dead bytes of segments that are no victims, what old deltas replace, and what new ones do.
    pub fn of(
        tables: &Tables,
        options: &KeyspaceOptions,
        victims: BTreeSet<u64>,
        disk_is_full: bool,
    ) -> Course {
        let allowed = Debt::of(tables).allows(options);
        let left = allowed.saturating_sub(dead_after(tables, options, &victims));
        // Where less than usual is left, deltas are smaller: five sixths of what is allowed, at 30 per cent the usual 25.
        let largest = scale(options.over_provision() * 5 / 6, left, allowed.max(1));
        let most = if disk_is_full { 0 } else { left / 4 };
        let delta_limit = options.delta_limit().min(largest);
        Course {
            victims: Arc::new(victims),
            delta_limit,
            size_limit: delta_limit,
            unreadable: BTreeSet::new(),
            outgrown: Arc::new(outgrown(tables, most)),
            left: BTreeSet::new(),
            is_whole: false,
        }
    }

    /// The same of a sweep that is due for what reads paid alone. It is to end what these pay, and to write little for it: deltas
    /// may be twice as large where they replace no more than others.
    pub fn for_reads(mut self) -> Course {
        self.size_limit = 2 * self.delta_limit;
        self
    }

    /// The same of a sweep that leaves no deltas, but over what cannot be read.
    pub fn whole(mut self, tables: &Tables) -> Course {
        self.is_whole = true;
        self.outgrown = Arc::new(debt::divided(tables).collect());
        self
    }

    /// Has a base be rewritten: its delta would replace too much of it.
    pub fn outgrow(&mut self, base: TableId) {
        if !self.left.contains(&base) {
            Arc::make_mut(&mut self.outgrown).insert(base);
        }
    }

    /// After a step failed: a base that `is_damaged` gets a delta, and is joined with no other. Where that was known, or none is, the
    /// base of the step's `first` partition is no longer rewritten for its delta alone. False: there is no way around what
    /// failed. Of each base it says true once for either.
    pub fn leave(&mut self, first: Option<TableId>, is_damaged: Option<TableId>) -> bool {
        if is_damaged.is_some_and(|base| self.unreadable.insert(base)) {
            return true;
        }
        first.is_some_and(|base| {
            let was_to_be = Arc::make_mut(&mut self.outgrown).remove(&base) || self.is_whole;
            was_to_be && self.left.insert(base)
        })
    }

    /// Whether there is a way to do without a delta over a base.
    fn may_rewrite(&self, base: &Arc<Table>) -> bool {
        base.is_readable() && !self.is_unreadable(base) && !self.left.contains(&base.id())
    }

    /// Whether a base could not be read.
    fn is_unreadable(&self, base: &Arc<Table>) -> bool {
        self.unreadable.contains(&base.id())
    }

    /// Whether a base is to be rewritten whatever is new.
    fn rewrites(&self, base: &Arc<Table>) -> bool {
        self.empties(base) || self.outgrown.contains(&base.id())
    }

    fn empties(&self, table: &Arc<Table>) -> bool {
        table.properties().segments.iter().any(|used| self.victims.contains(&used.segment))
    }

    /// Whether a partition is to be rewritten though nothing frozen lies in it.
    pub fn wants(&self, partition: &Partition) -> bool {
        let (base, delta) = (partition.base.as_ref(), partition.delta.as_ref());
        let outgrown = |base: &Arc<Table>| {
            self.outgrown.contains(&base.id()) && delta.is_none_or(|delta| delta.is_readable())
        };
        base.filter(|b| !self.is_unreadable(b)).is_some_and(|b| self.empties(b) || outgrown(b))
            || delta.is_some_and(|delta| self.empties(delta))
    }
}

/// Bytes of value segments that will be dead after a sweep which empties `victims`: of those that settled tables use, or
/// will. The others go.
fn dead_after(tables: &Tables, options: &KeyspaceOptions, victims: &BTreeSet<u64>) -> u64 {
    let settled = tables.settled().flat_map(|table| &table.properties().segments);
    let frozen = tables.frozen.iter().flat_map(|frozen| frozen.runs.iter().flatten());
    let frozen = frozen.flat_map(|table| &table.properties().segments);
    let stay = frozen.filter(|used| used.mean_length() >= options.separate_settled_at());
    let used: BTreeSet<u64> = settled.chain(stay).map(|used| used.segment).collect();
    let dead = garbage::dead(tables);
    used.difference(victims).filter_map(|segment| dead.get(segment)).sum()
}

/// The bases whose deltas replace the largest part of them: so many that what is replaced in the others is no more than
/// `most` bytes. Those behind the watermark are left out.
fn outgrown(tables: &Tables, most: u64) -> BTreeSet<TableId> {
    let watermark = tables.frozen.as_ref().map(|frozen| tables.partition(&frozen.watermark));
    let ahead = |at: usize| watermark.is_none_or(|watermark| at >= watermark);
    let share = |bytes: u64, base: &Arc<Table>| {
        (u128::from(bytes) << 32) / u128::from(debt::bytes(base).max(1))
    };
    let mut bases: Vec<_> = debt::replaced(tables).filter(|(at, ..)| ahead(*at)).collect();
    let mut left: u64 = bases.iter().map(|(_, _, bytes)| bytes).sum();
    bases.sort_by_key(|(_, base, bytes)| std::cmp::Reverse(share(*bytes, base)));
    let mut chosen = BTreeSet::new();
    for (_, base, bytes) in bases {
        if left <= most {
            break;
        }
        left = left.saturating_sub(bytes);
        chosen.insert(base.id());
    }
    chosen
}

/// What a delta that was written is held against.
pub struct Limit {
    base: Clipped,
    percent: u64,
}

impl Limit {
    /// Whether a delta, whose keys lie below `end`, replaces too much of its base: much more than it may take, of what
    /// will stay of it. (Long values may give way to short ones, or to tombstones.) An estimate: a fifth more is let be.
    pub fn is_passed_by(&self, delta: &TableRecord, end: Option<&[u8]>) -> bool {
        let of = &delta.properties;
        let replaced = of.shadowed_bytes + of.covered_bytes;
        let base = self.base.alive_bytes(&[], end, &Ranges::default());
        let base = self.base.table.weight(base, |_| true);
        let stays = base.saturating_sub(replaced) + delta.file_bytes + of.separated_bytes();
        u128::from(replaced) * 500 > u128::from(stays) * u128::from(self.percent) * 6
    }

    /// The base.
    pub fn base(&self) -> TableId {
        self.base.table.id()
    }
}

/// The most that a step writes where partitions are of so many bytes.
pub fn stretched(partition_bytes: u64) -> u64 {
    partition_bytes + partition_bytes / 8
}

/// Of so many entries enough were looked up to say how many are overwritten: 32 and more.
const LOOKED_UP_ENOUGH: u64 = 32 * 256;

/// What lies in a partition's range, whole blocks, with the separated values that move into blocks. Fresh
/// and settled tables may be compressed differently: what they hold is compared uncompressed.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    stored_bytes: u64,
    unpacked_bytes: u64,
    entries: u64,
    tombstones: u64,
    /// What it overwrites of what is settled, or of its base, as that is stored; an estimate.
    shadowed_bytes: u64,
    /// What it overwrites of what is fresh, uncompressed; an estimate.
    overwritten_bytes: u64,
    /// Values stay apart, so that of what it overwrites nothing is known here.
    stays_apart: bool,
}

impl Size {
    /// That of a table's part, without the blocks all of whose keys lie in one of the `removed` ranges.
    fn of(clipped: &Clipped, removed: &Ranges, separate_at: u64) -> Size {
        let moves = |used: &SegmentUse| used.mean_length() < separate_at;
        let whole = clipped.table.properties();
        let stored = clipped.alive_bytes(&[], None, removed);
        let share = |of: u64| scale(stored, of, whole.data_bytes.max(1));
        let stays_apart = !whole.segments.iter().all(moves);
        let unpacked = |stored| scale(stored, whole.unpacked_bytes, whole.data_bytes.max(1));
        let overwritten = unpacked(whole.overwritten_bytes);
        let moved = whole.segments.iter().filter(|used| moves(used));
        let (moved, unpacked) = moved.fold((0, 0), |(stored, unpacked), used| {
            (stored + used.bytes, unpacked + used.value_bytes)
        });
        Size {
            stored_bytes: stored + share(moved),
            unpacked_bytes: share(whole.unpacked_bytes) + share(unpacked),
            entries: share(whole.entries),
            tombstones: share(whole.tombstones),
            // Where values stay apart what is overwritten is mostly theirs, and no part of a partition.
            shadowed_bytes: if stays_apart { 0 } else { share(whole.shadowed_bytes) },
            overwritten_bytes: if stays_apart { 0 } else { share(overwritten) },
            stays_apart,
        }
    }

    /// Whether what it overwrites is known.
    fn is_known(&self) -> bool {
        self.entries >= LOOKED_UP_ENOUGH
    }

    fn add(&mut self, other: Size) {
        self.stored_bytes += other.stored_bytes;
        self.unpacked_bytes += other.unpacked_bytes;
        self.entries += other.entries;
        self.tombstones += other.tombstones;
        self.shadowed_bytes += other.shadowed_bytes;
        self.overwritten_bytes += other.overwritten_bytes;
        self.stays_apart |= other.stays_apart;
    }
}

/// What lies in a partition's range and is not covered by newer ranges.
struct Weights {
    frozen: Size,
    delta: Size,
    base: Size,
    /// The base as if nothing were covered.
    whole_base: Size,
    /// All ranges that cover the base.
    removed: Ranges,
    /// Whether these leave nothing of it.
    is_covered: bool,
}

impl Weights {
    fn of(view: &KeyspaceView, frozen: &Frozen, at: usize) -> Weights {
        let (tables, separate_at) = (&view.tables, view.options.separate_settled_at());
        let (partition, upper) = (&tables.partitions[at], tables.upper(at));
        let mut removed = Ranges::default();
        // Newest first: what each says is gone from those behind it.
        let mut weigh = |of: &mut dyn Iterator<Item = &Arc<Table>>| {
            let (mut size, mut ranges) = (Size::default(), Vec::new());
            for clipped in of.map(|table| clip(table, &partition.lower, upper)) {
                size.add(Size::of(&clipped, &removed, separate_at));
                ranges.extend(clipped.ranges());
            }
            if !ranges.is_empty() {
                removed = Ranges::union(removed.iter().cloned().chain(ranges).collect());
            }
            size
        };
        let mut in_frozen = Size::default();
        frozen.runs.iter().for_each(|run| in_frozen.add(weigh(&mut run.iter())));
        let delta = weigh(&mut partition.delta.iter());
        let base = weigh(&mut partition.base.iter());
        let clipped = partition.base.iter().map(|base| clip(base, &partition.lower, upper));
        let mut whole_base = Size::default();
        clipped.for_each(|c| whole_base.add(Size::of(&c, &Ranges::default(), separate_at)));
        let is_covered = removed.cover(&partition.lower, upper);
        Weights { frozen: in_frozen, delta, base, whole_base, removed, is_covered }
    }

    /// What a partition will take at most: no tombstones, and each takes an entry from the base.
    fn left(&self) -> u64 {
        let part = |size: Size, entries| scale(size.stored_bytes, entries, size.entries.max(1));
        let tombstones = self.frozen.tombstones + self.delta.tombstones;
        let values = |size: Size| part(size, size.entries - size.tombstones);
        let base = part(self.base, self.base.entries.saturating_sub(tombstones));
        values(self.frozen) + values(self.delta) + base
    }

    /// What is newer will shrink as the base did; where there is none, as it did when it was flushed.
    fn like_settled(&self, unpacked_bytes: u64) -> u64 {
        let like = if self.base.unpacked_bytes > 0 { self.base } else { self.frozen };
        scale(unpacked_bytes, like.stored_bytes, like.unpacked_bytes.max(1))
    }

    /// What a partition will take, as if its tombstones took nothing off: without what is overwritten, so far as that is known
    /// (one key in 256 was looked up).
    fn total(&self) -> u64 {
        let fresh = |size: Size| {
            let overwritten = if size.is_known() { size.overwritten_bytes } else { 0 };
            size.unpacked_bytes - overwritten.min(size.unpacked_bytes)
        };
        let shadowed = |size: Size| if size.is_known() { size.shadowed_bytes } else { 0 };
        let newer = self.like_settled(fresh(self.frozen) + fresh(self.delta));
        let gone = shadowed(self.frozen) + shadowed(self.delta);
        // No more than there is: what a table shadows elsewhere is in its estimate too.
        newer + self.base.stored_bytes.saturating_sub(gone)
    }

    fn newer_bytes(&self) -> u64 {
        self.frozen.unpacked_bytes + self.delta.unpacked_bytes
    }

    /// What of the base is replaced, bytes as it is stored: all that is newer may, where it is not known.
    fn replaced_bytes(&self) -> u64 {
        let of = |size: Size| match size.is_known() && !size.stays_apart {
            true => size.shadowed_bytes,
            false => self.like_settled(size.unpacked_bytes),
        };
        of(self.frozen) + of(self.delta)
    }

    /// Whether all that is newer, and what it covers of the base, is a small part of the base.
    fn fits_delta(&self, course: &Course) -> bool {
        let (base, whole) = (self.base, self.whole_base);
        let takes = |whole: u64| scale(whole, course.size_limit, 100);
        let replaces = |whole: u64| scale(whole, course.delta_limit, 100);
        let covered_bytes = whole.unpacked_bytes - base.unpacked_bytes;
        // By entries too: tombstones are small, and what they remove is given back by a rewrite alone.
        let covered = whole.entries - base.entries;
        self.newer_bytes() + covered_bytes <= takes(whole.unpacked_bytes)
            && self.frozen.entries + self.delta.entries + covered <= takes(whole.entries)
            && (course.size_limit == course.delta_limit
                || self.frozen.tombstones + self.delta.tombstones + covered
                    <= replaces(whole.entries)
                    && self.replaced_bytes() + whole.stored_bytes - base.stored_bytes
                        <= replaces(whole.stored_bytes))
    }
}

/// Whether a range of the frozen part lies over anything that a partition holds.
pub fn is_covered_by(frozen: &Frozen, tables: &Tables, at: usize) -> bool {
    let (partition, upper) = (&tables.partitions[at], tables.upper(at));
    let lower = partition.lower.as_slice();
    (partition.base.is_some() || partition.delta.is_some())
        && frozen.runs.iter().flatten().any(|t| !t.ranges().overlapping(lower, upper).is_empty())
}

/// What a step is to do.
pub struct Plan {
    /// What it writes anew.
    pub rewrite: Rewrite,
    /// The partition behind the last one that it may take.
    pub end: usize,
    /// Where the output ends if the end of the last partition does not come before, bytes.
    pub target_bytes: u64,
    /// Half of what it will write, about, bytes.
    pub half_bytes: u64,
    /// What a delta says is gone from the base.
    pub ranges: Ranges,
    /// What it is held against, where there is a way to do without it.
    pub limit: Option<Limit>,
}

impl Plan {
    /// That of the step at the first of the partitions with these numbers; it takes none but them. A partition takes so many
    /// bytes at most.
    pub fn of(
        view: &KeyspaceView,
        frozen: &Frozen,
        most: Range<usize>,
        course: &Course,
        (partition_bytes, disk_is_full): (u64, bool),
    ) -> Plan {
        let (tables, at) = (&view.tables, most.start);
        let weights = Weights::of(view, frozen, at);
        let unreadable = |table: &Arc<Table>| course.is_unreadable(table);
        let rewrites_delta = |base: &Arc<Table>| {
            let may = !course.is_whole || course.left.contains(&base.id());
            let fits = may && weights.fits_delta(course) && !course.rewrites(base) && !disk_is_full;
            !weights.is_covered && (unreadable(base) || fits)
        };
        if tables.partitions[at].base.as_ref().is_some_and(rewrites_delta) {
            let (partition, upper) = (&tables.partitions[at], tables.upper(at));
            let base = partition.base.as_ref().filter(|base| course.may_rewrite(base));
            let base = base.map(|base| clip(base, &partition.lower, upper));
            return Plan {
                rewrite: Rewrite::Delta,
                end: at + 1,
                target_bytes: partition_bytes,
                half_bytes: (weights.frozen.stored_bytes + weights.delta.stored_bytes) / 2,
                ranges: weights.removed,
                limit: base.map(|base| Limit { base, percent: course.delta_limit }),
            };
        }
        let ranges = Ranges::default();
        let mut stored = weights.left();
        let mut end = at + 1;
        for next in &tables.partitions[end..most.end] {
            let next_weights = Weights::of(view, frozen, end);
            stored += next_weights.left();
            let is_readable =
                next.base.as_ref().is_none_or(|base| base.is_readable() && !unreadable(base));
            let delta_is_readable = next.delta.iter().all(|delta| delta.is_readable());
            // Also one that is all removed: alone it is passed over, and from the base before it a walk would come to it.
            if stored > partition_bytes / 2 || !is_readable || !delta_is_readable {
                break;
            }
            end += 1;
        }
        if end > at + 1 {
            let (target_bytes, half_bytes) = (partition_bytes, stored.min(partition_bytes) / 2);
            return Plan {
                rewrite: Rewrite::Base,
                end,
                target_bytes,
                half_bytes,
                ranges,
                limit: None,
            };
        }
        // Equal parts: no small rest at the end of a large partition, and no large one is cut for a little that is by
        // an estimate alone.
        let total = weights.total();
        let target_bytes =
            if weights.base.entries > 0 && total <= stretched(partition_bytes) && !disk_is_full {
                stretched(partition_bytes)
            } else {
                let parts = total.div_ceil(partition_bytes).max(1);
                (total / parts).max(partition_bytes / 2)
            };
        let half_bytes = total.min(target_bytes) / 2;
        let rewrite = Rewrite::Base;
        Plan { rewrite, end, target_bytes, half_bytes, ranges, limit: None }
    }
}

/// What a sweep would do that began now for what reads paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moves {
    /// Its steps, about: a partition each.
    pub steps: u64,
    /// What it would write, bytes.
    pub bytes: u64,
}

impl Moves {
    /// Of so many partitions the rest is inferred.
    const LOOKED_AT: usize = 256;

    /// That of a sweep of the LSM part of `view`. An estimate: it sees what [`Plan`] sees, but of no two partitions together.
    pub fn of(view: &KeyspaceView) -> Moves {
        let tables = &view.tables;
        let victims = debt::victims(tables, &view.options, &debt::Choice::default());
        let course = Course::of(tables, &view.options, victims, false).for_reads();
        let fresh = Frozen { runs: tables.runs.clone(), groups: vec![], watermark: vec![] };
        let met = met(tables);
        let met = (0..tables.partitions.len())
            .filter(|at| met.contains(at) || course.wants(&tables.partitions[*at]));
        let met: Vec<usize> = met.collect();
        let every = met.len().div_ceil(Moves::LOOKED_AT).max(1);
        let looked_at: Vec<u64> =
            met.iter().step_by(every).map(|at| written_at(view, &fresh, *at, &course)).collect();
        let bytes = scale(looked_at.iter().sum(), met.len() as u64, looked_at.len().max(1) as u64);
        Moves { steps: met.len() as u64, bytes }
    }
}

/// What a sweep would write in a partition, bytes.
fn written_at(view: &KeyspaceView, fresh: &Frozen, at: usize, course: &Course) -> u64 {
    let weights = Weights::of(view, fresh, at);
    let stays = |base: &Arc<Table>| {
        weights.fits_delta(course) && !course.rewrites(base) && !weights.is_covered
    };
    match view.tables.partitions[at].base.as_ref().is_some_and(stays) {
        true => weights.like_settled(weights.newer_bytes()),
        false => weights.total(),
    }
}

/// The partitions in which tables of runs begin or end, or over which they reach.
fn met(tables: &Tables) -> BTreeSet<usize> {
    let runs = tables.runs.iter().flatten();
    runs.flat_map(|table| {
        let ends = [&table.properties().smallest, &table.properties().largest];
        let [first, last] = ends.map(|key| tables.partition(key));
        first..=last
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delta that replaced too much was dropped, the base could not be read for the disk's sake, so a delta was written, and
    /// so on for ever.
    #[test]
    fn a_base_that_could_not_be_rewritten_is_not_tried_again() {
        let mut course = Course {
            victims: Arc::default(),
            delta_limit: 25,
            size_limit: 25,
            unreadable: BTreeSet::new(),
            outgrown: Arc::default(),
            left: BTreeSet::new(),
            is_whole: false,
        };
        assert!(!course.leave(Some(7), None), "nothing is to be left");
        course.outgrow(7);
        assert!(course.outgrown.contains(&7) && course.leave(Some(7), None));
        course.outgrow(7);
        assert!(!course.outgrown.contains(&7) && !course.leave(Some(7), None));
        // One that is damaged, joined to another, which has done nothing.
        course.outgrow(9);
        assert!(course.leave(Some(9), Some(8)) && course.unreadable.contains(&8));
        assert!(course.outgrown.contains(&9));
        assert!(course.leave(Some(9), Some(8)) && !course.outgrown.contains(&9));
        assert!(!course.leave(Some(9), Some(8)));
        assert!(!course.leave(None, None));
    }
}
