//! What a sweep does where: what it keeps in mind as a whole, and what each step does to its partition.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::debt::{self, Debt};
use crate::format::entry::TableId;
use crate::format::range::Ranges;
use crate::format::table::SegmentUse;
use crate::lsm::garbage;
use crate::lsm::read::clip;
use crate::options::KeyspaceOptions;
use crate::sstable::cursor::Clipped;
use crate::sstable::reader::Table;
use crate::sstable::scale;
use crate::view::{Frozen, KeyspaceView, Partition, Tables, damage_of};

/// What a step does to its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    Delta,
    Base,
}

/// What a sweep keeps in mind from step to step. It is found again after a crash.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// The value segments that it empties.
    pub victims: Arc<BTreeSet<u64>>,
    /// Bases that could not be read: they get deltas, and stay.
    pub unreadable: BTreeSet<TableId>,
    /// Bases that are rewritten to be rid of what their deltas replace.
    outgrown: Arc<BTreeSet<TableId>>,
}

impl Course {
    /// That of a sweep which begins, or goes on after a restart.
    pub fn of(tables: &Tables, options: &KeyspaceOptions, disk_is_full: bool) -> Course {
        let victims = debt::victims(tables, options.over_provision());
        let outgrown = outgrown(tables, options, &victims, disk_is_full);
        Course {
            victims: Arc::new(victims),
            outgrown: Arc::new(outgrown),
            unreadable: BTreeSet::new(),
        }
    }

    /// Leaves a base as it is that could not be read (then it gets a delta), or whose delta could not. False: there is no
    /// way around it.
    pub fn leave(&mut self, base: TableId, is_damaged: bool) -> bool {
        if is_damaged {
            self.unreadable.insert(base);
        }
        Arc::make_mut(&mut self.outgrown).remove(&base) || is_damaged
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
        let readable = |t: &&Arc<Table>| !self.unreadable.contains(&t.id());
        let base = partition.base.as_ref().filter(readable);
        base.is_some_and(|base| self.rewrites(base))
            || partition.delta.as_ref().is_some_and(|delta| self.empties(delta))
    }
}

/// The bases whose deltas replace the largest part of them: so many that what is replaced in the others is less than
/// half of the garbage that is allowed beside what stays dead in value segments, or that nothing is, where the disk
/// is full. Else what a sweep leaves might make the next one due at once. Those behind the watermark are left out.
fn outgrown(
    tables: &Tables,
    options: &KeyspaceOptions,
    victims: &BTreeSet<u64>,
    disk_is_full: bool,
) -> BTreeSet<TableId> {
    let dead = garbage::dead(tables);
    let stays_dead = dead.iter().filter(|(segment, _)| !victims.contains(*segment));
    let stays_dead: u64 = stays_dead.map(|(_, bytes)| bytes).sum();
    let most = match disk_is_full {
        true => 0,
        false => Debt::of(tables).allows(options).saturating_sub(stays_dead) / 2,
    };
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

/// What lies in a partition's range, whole blocks, with the separated values that move into blocks. Fresh
/// and settled tables may be compressed differently: what they hold is compared uncompressed.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    stored_bytes: u64,
    unpacked_bytes: u64,
    entries: u64,
    tombstones: u64,
    /// Of settled entries that these overwrite or remove, estimated, with separated values, bytes.
    shadowed_bytes: u64,
    /// With all its separated values.
    weight: u64,
}

impl Size {
    /// That of a table's part, without the blocks all of whose keys lie in one of the `removed` ranges.
    fn of(clipped: &Clipped, removed: &Ranges, separate_at: u64) -> Size {
        let moves = |used: &SegmentUse| used.mean_length() < separate_at;
        let whole = clipped.table.properties();
        let stored = clipped.alive_bytes(&[], None, removed);
        let share = |of: u64| scale(stored, of, whole.data_bytes.max(1));
        let moved = whole.segments.iter().filter(|used| moves(used));
        let (moved, unpacked) = moved.fold((0, 0), |(stored, unpacked), used| {
            (stored + used.bytes, unpacked + used.value_bytes)
        });
        Size {
            stored_bytes: stored + share(moved),
            unpacked_bytes: share(whole.unpacked_bytes) + share(unpacked),
            entries: share(whole.entries),
            tombstones: share(whole.tombstones),
            shadowed_bytes: share(whole.shadowed_bytes),
            weight: clipped.table.weight(stored, |_| true),
        }
    }

    fn add(&mut self, other: Size) {
        self.stored_bytes += other.stored_bytes;
        self.unpacked_bytes += other.unpacked_bytes;
        self.entries += other.entries;
        self.tombstones += other.tombstones;
        self.shadowed_bytes += other.shadowed_bytes;
        self.weight += other.weight;
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
        let around = removed.stretch(&partition.lower);
        let is_covered = around.is_covered
            && around.keys.end().is_none_or(|end| upper.is_some_and(|upper| upper <= end));
        Weights { frozen: in_frozen, delta, base, whole_base, removed, is_covered }
    }

    /// What a partition will take: no tombstones, and each takes an entry from the base.
    fn left(&self) -> u64 {
        let part = |size: Size, entries| scale(size.stored_bytes, entries, size.entries.max(1));
        let tombstones = self.frozen.tombstones + self.delta.tombstones;
        let values = |size: Size| part(size, size.entries - size.tombstones);
        let base = part(self.base, self.base.entries.saturating_sub(tombstones));
        values(self.frozen) + values(self.delta) + base
    }

    fn newer_bytes(&self) -> u64 {
        self.frozen.unpacked_bytes + self.delta.unpacked_bytes
    }

    /// Whether all that is newer, what it covers and what it replaces of the base is a small part of the base.
    fn fits_delta(&self, limit_percent: u64) -> bool {
        let limit = |whole: u64| scale(whole, limit_percent, 100);
        let (base, whole) = (self.base, self.whole_base);
        let covered_bytes = whole.unpacked_bytes - base.unpacked_bytes;
        // By entries too: tombstones are small, and what they remove is given back by a rewrite alone.
        let covered = whole.entries - base.entries;
        // And by what they replace: long values may give way to short ones.
        let replaced = self.frozen.shadowed_bytes + self.delta.shadowed_bytes;
        self.newer_bytes() + covered_bytes <= limit(whole.unpacked_bytes)
            && self.frozen.entries + self.delta.entries + covered <= limit(whole.entries)
            && replaced + (whole.weight - base.weight) <= limit(whole.weight)
    }
}

/// Whether a range of the frozen part lies over anything that a partition holds.
pub fn is_covered_by(frozen: &Frozen, tables: &Tables, at: usize) -> bool {
    let (partition, upper) = (&tables.partitions[at], tables.upper(at));
    let lower = partition.lower.as_slice();
    (partition.base.is_some() || partition.delta.is_some())
        && frozen.runs.iter().flatten().any(|t| !t.ranges().overlapping(lower, upper).is_empty())
}

/// The largest part of a base that a delta takes, per cent. All deltas together leave room for other garbage: where less
/// than usual is allowed, so is less of this.
fn delta_limit(options: &KeyspaceOptions) -> u64 {
    options.delta_limit().min(options.over_provision() * 5 / 6)
}

/// What a step is to do.
pub struct Plan {
    /// What it writes anew.
    pub rewrite: Rewrite,
    /// The partition behind the last one that it may take.
    pub end: usize,
    /// Where the output ends if the end of the last partition does not come before, bytes.
    pub target_bytes: u64,
    /// What a delta says is gone from the base.
    pub ranges: Ranges,
}

impl Plan {
    /// That of the step at partition number `at`.
    pub fn of(
        view: &KeyspaceView,
        frozen: &Frozen,
        at: usize,
        course: &Course,
        disk_is_full: bool,
    ) -> Plan {
        let (tables, options) = (&view.tables, &view.options);
        let weights = Weights::of(view, frozen, at);
        let unreadable = |table: &Arc<Table>| course.unreadable.contains(&table.id());
        let rewrites_delta = |base: &Arc<Table>| {
            let fits =
                weights.fits_delta(delta_limit(options)) && !course.rewrites(base) && !disk_is_full;
            !weights.is_covered && (unreadable(base) || fits)
        };
        if tables.partitions[at].base.as_ref().is_some_and(rewrites_delta) {
            let (end, ranges) = (at + 1, weights.removed);
            return Plan {
                rewrite: Rewrite::Delta,
                end,
                target_bytes: options.partition(),
                ranges,
            };
        }
        let (partition_bytes, ranges) = (options.partition(), Ranges::default());
        let mut stored = weights.left();
        let mut end = at + 1;
        while let Some(next) = tables.partitions.get(end) {
            let next_weights = Weights::of(view, frozen, end);
            stored += next_weights.left();
            let is_readable = !next.base.as_ref().is_some_and(unreadable);
            let delta_is_readable = damage_of(&next.delta).is_none();
            if stored > partition_bytes / 2
                || !(is_readable || next_weights.is_covered)
                || !delta_is_readable
            {
                break;
            }
            end += 1;
        }
        if end > at + 1 {
            return Plan { rewrite: Rewrite::Base, end, target_bytes: partition_bytes, ranges };
        }
        // Equal parts: no small rest at the end of a large partition. What is fresh will shrink as the
        // base did; where there is none, as it did when it was flushed.
        let base = weights.base;
        let like = if base.unpacked_bytes > 0 { base } else { weights.frozen };
        let total = weights.newer_bytes() + base.unpacked_bytes;
        let total = scale(total, like.stored_bytes, like.unpacked_bytes.max(1));
        let parts = total.div_ceil(partition_bytes).max(1);
        let target_bytes = (total / parts).max(partition_bytes / 2);
        Plan { rewrite: Rewrite::Base, end, target_bytes, ranges }
    }
}
