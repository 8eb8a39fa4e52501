//! What a keyspace owes: fresh data to settle, and garbage to give back. From it follows when a sweep
//! begins, and which value segments it empties.
//!
//! Nothing is counted as it dies. Dead bytes of a value segment are those that no table points at; what
//! fresh entries overwrite in the settled run, and deltas in their bases, is estimated as tables are written
//! ([`crate::lsm::shadow`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::format::entry::TableId;
use crate::lsm::garbage;
use crate::options::KeyspaceOptions;
use crate::sstable::reader::Table;
use crate::sstable::scale;
use crate::value_log::Segment;
use crate::view::{Partition, Run, Tables};

/// Sums over a keyspace's tables, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Debt {
    /// The LSM part, with the values it points at.
    pub fresh: u64,
    /// The settled run, with the values it points at.
    pub settled: u64,
    /// Bytes of value segments that no table points at.
    pub dead: u64,
    /// Settled bytes that entries of the LSM part overwrite or remove, estimated.
    pub shadowed: u64,
    /// Bytes of the LSM part that its newer entries overwrite or remove, estimated: merges of runs find them, and
    /// then they are `dead` or gone.
    pub overwritten: u64,
    /// Settled bytes that removed ranges of the LSM part cover, at most all that are not replaced.
    pub covered: u64,
    /// Settled bytes that deltas overwrite, remove or cover in their bases, estimated.
    pub replaced: u64,
}

/// What a table takes, with the values it points at.
pub fn bytes(table: &Arc<Table>) -> u64 {
    table.file_bytes() + table.properties().separated_bytes()
}

/// The bases that have a delta, with it, by partition. Without those that cannot be read: no sweep is rid of them.
fn below_deltas(tables: &Tables) -> impl Iterator<Item = (usize, &Arc<Table>, &Arc<Table>)> {
    let deltas = tables.deltas.iter().map(|at| (*at, &tables.partitions[*at]));
    let both = deltas.filter_map(|(at, p)| Some((at, p.base.as_ref()?, p.delta.as_ref()?)));
    both.filter(|(_, base, delta)| base.is_readable() && delta.is_readable())
}

/// These bases.
pub fn divided(tables: &Tables) -> impl Iterator<Item = TableId> {
    below_deltas(tables).map(|(_, base, _)| base.id())
}

/// The same, and how many bytes of each the delta replaces, estimated: of a small one perhaps more than it has.
pub fn replaced(tables: &Tables) -> impl Iterator<Item = (usize, &Arc<Table>, u64)> {
    // Of a partition that was cut in two both have the same.
    let mut seen = BTreeSet::new();
    let each = below_deltas(tables).filter(move |(_, _, delta)| seen.insert(delta.id()));
    each.map(|(at, base, delta)| {
        let of = delta.properties();
        (at, base, of.shadowed_bytes + of.covered_bytes)
    })
}

/// What a run takes, with the values it points at, bytes.
pub fn run_bytes(run: &Run) -> u64 {
    run.iter().map(bytes).sum()
}

impl Debt {
    /// That of a keyspace.
    pub fn of(tables: &Tables) -> Debt {
        let fresh = || tables.runs.iter().flatten();
        let settled = tables.settled().map(bytes).sum();
        let covered: u64 = fresh().map(|t| t.properties().covered_bytes).sum();
        let replaced = replaced(tables).map(|(_, _, bytes)| bytes).sum::<u64>().min(settled);
        Debt {
            fresh: tables.fresh_bytes(),
            settled,
            dead: garbage::dead(tables).values().sum(),
            shadowed: fresh().map(|t| t.properties().shadowed_bytes).sum(),
            overwritten: fresh().map(|t| t.properties().overwritten_bytes).sum(),
            // What is replaced is not covered again.
            covered: covered.min(settled - replaced),
            replaced,
        }
    }

    /// Whether a sweep is due: the garbage is more than `over_provision` of what is settled and will stay, or the
    /// LSM part more than `lsm_ratio` of the settled bytes; and there is enough of it to be worth one: to settle, or
    /// to give back (many removals are few bytes). Where removed
    /// ranges cover most of what is settled, a sweep gives back more than it writes, however little
    /// there is: covered partitions are dropped unread. Where the disk is full one is due if it frees
    /// more than it takes: what is fresh is written again before its old place is given back.
    pub fn is_due(&self, options: &KeyspaceOptions, disk_is_full: bool) -> bool {
        if disk_is_full {
            return self.garbage() > self.fresh && self.fresh > 0;
        }
        let is_enough = self.fresh + self.dead + self.covered >= options.min_conversion()
            || self.garbage() >= options.min_conversion()
            || self.covered > self.settled / 2;
        self.fresh > 0
            && is_enough
            && (self.garbage() > share(self.stays(), options.over_provision())
                || self.is_due_for_fresh(options))
    }

    /// Whether a sweep would be due for its garbage if anything were fresh.
    pub fn is_too_much(&self, options: &KeyspaceOptions) -> bool {
        self.garbage() > self.allows(options)
    }

    /// Whether the LSM part is more than `lsm_ratio` of the settled bytes.
    pub fn is_due_for_fresh(&self, options: &KeyspaceOptions) -> bool {
        self.fresh > share(self.settled, options.lsm_ratio())
    }

    /// So many bytes more of fresh data make a sweep due, if there is as much garbage in them as there was in
    /// those so far.
    pub fn left(&self, options: &KeyspaceOptions) -> u64 {
        let over_provision = options.over_provision();
        let times = |bytes: u64, part: u64, whole: u64| {
            let bytes = (u128::from(bytes) * u128::from(part)).checked_div(u128::from(whole));
            bytes.map_or(u64::MAX, |bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
        };
        // With each fresh byte the garbage grows, but not what deltas replace, and by what is more than it the bytes
        // that stay shrink.
        let grows = self.garbage() - self.replaced;
        let gone = self.gone() - self.replaced;
        let shrinks = share(gone.saturating_sub(self.fresh), over_provision);
        let allowed = share(self.settled.saturating_sub(self.replaced), over_provision);
        let allowed = allowed.saturating_sub(self.replaced);
        let for_garbage = match allowed {
            0 => 0,
            _ => times(allowed, self.fresh, grows.saturating_add(shrinks)),
        };
        let worth_one = options.min_conversion().saturating_sub(self.dead + self.covered);
        let enough = options.min_conversion().saturating_sub(self.replaced);
        let worth_one = worth_one.min(times(enough, self.fresh, grows));
        let due_at = share(self.settled, options.lsm_ratio()).min(for_garbage).max(worth_one);
        due_at.saturating_sub(self.fresh)
    }

    /// What is not live, bytes.
    pub fn garbage(&self) -> u64 {
        self.dead + self.gone()
    }

    /// What is not live of the bytes that tables take and point at.
    fn gone(&self) -> u64 {
        self.shadowed + self.overwritten + self.covered + self.replaced
    }

    /// What is settled and live, about: all that is live, at most as much as is settled and not replaced.
    fn stays(&self) -> u64 {
        let most = self.settled.saturating_sub(self.replaced);
        most.min((self.settled + self.fresh).saturating_sub(self.gone()))
    }

    /// The garbage that a keyspace is to have, bytes.
    pub fn allows(&self, options: &KeyspaceOptions) -> u64 {
        share(self.stays(), options.over_provision()).max(options.min_conversion())
    }
}

/// So many percent of `bytes`.
pub(super) fn share(bytes: u64, percent: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(percent) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// What a keyspace's files take, and how much of it is live, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// All its tables and value segments, without what snapshots alone hold up.
    pub used: u64,
    /// What would be left of them if all were settled now and no partition had a delta, estimated.
    pub live: u64,
}

impl Space {
    /// That of a keyspace. During a sweep what was frozen and is settled by now counts once as live; its
    /// files stay to the sweep's end.
    pub fn of(tables: &Tables) -> Space {
        let debt = Debt::of(tables);
        let (mut frozen, mut gone) = (0, debt.gone());
        if let Some(part) = &tables.frozen {
            for table in part.runs.iter().flatten() {
                let properties = table.properties();
                let left = table.bytes_between(&part.watermark, None);
                frozen += table.weight(left, |_| true);
                let shadows = properties.shadowed_bytes
                    + properties.overwritten_bytes
                    + properties.covered_bytes;
                gone += scale(shadows, left, properties.data_bytes.max(1));
            }
        }
        let (stays, pointed) = garbage::stuck(tables);
        let live = (debt.settled + debt.fresh + frozen).saturating_sub(gone + pointed) + stays;
        Space { used: Space::used(tables), live }
    }

    /// What a keyspace's tables and value segments take, without what snapshots alone hold up.
    pub fn used(tables: &Tables) -> u64 {
        let needed = |s: &Arc<Segment>| s.occupied_bytes().saturating_sub(s.held_up_bytes());
        let segments = tables.segments.iter().map(needed).sum::<u64>();
        tables.all().map(|t| t.file_bytes()).sum::<u64>() + segments
    }

    /// What is not live.
    pub fn garbage(&self) -> u64 {
        self.used.saturating_sub(self.live)
    }
}

/// A value segment that is mostly dead, and what lives and is dead in it, bytes.
struct MostlyDead {
    id: u64,
    live: u64,
    dead: u64,
}

impl MostlyDead {
    /// All of them, in the order of what is gained for each byte that is written.
    fn by_gain(tables: &Tables, over_provision_percent: u64) -> Vec<MostlyDead> {
        let dead = garbage::dead(tables);
        let weigh = |id: u64| {
            let segment = tables.segments.get(id)?;
            let dead = dead.get(&id).copied().unwrap_or(0);
            Some(MostlyDead { id, live: segment.value_bytes().saturating_sub(dead), dead })
        };
        let mostly = garbage::mostly_dead(tables, over_provision_percent);
        let mut found: Vec<_> = mostly.into_iter().filter_map(weigh).collect();
        found.sort_by(|a, b| {
            let gain =
                |of: &MostlyDead, other: &MostlyDead| u128::from(of.dead) * u128::from(other.live);
            gain(b, a).cmp(&gain(a, b))
        });
        found
    }
}

/// The value segments that settled tables point into with more than `over_provision` of dead bytes.
pub fn settled_and_mostly_dead(tables: &Tables, options: &KeyspaceOptions) -> BTreeSet<u64> {
    let settled = tables.settled().flat_map(|table| &table.properties().segments);
    let settled: BTreeSet<_> = settled.map(|used| used.segment).collect();
    let mostly = garbage::mostly_dead(tables, options.over_provision());
    mostly.intersection(&settled).copied().collect()
}

/// What matters beside gain where value segments are chosen to be emptied.
#[derive(Debug, Default)]
pub struct Choice {
    /// These come first: somebody waits for them.
    pub first: BTreeSet<u64>,
    /// The last sweep was to empty these and did not: they come last.
    pub kept: BTreeSet<u64>,
    /// So many bytes may be written, as far as the disk tells.
    pub room: Option<u64>,
}

/// The value segments that a sweep empties: the deadest of those [that settled tables point into](settled_and_mostly_dead) and that
/// go with them. What lives in them takes space twice until the sweep ends: so there is no more of it than there is room, nor
/// than garbage that may lie or a partition's bytes, whichever is more, but of one segment. Fixed for a sweep.
pub fn victims(tables: &Tables, options: &KeyspaceOptions, choice: &Choice) -> BTreeSet<u64> {
    let (among, stay) = (settled_and_mostly_dead(tables, options), out_of_reach(tables));
    let mut found = MostlyDead::by_gain(tables, options.over_provision());
    found.retain(|segment| among.contains(&segment.id) && !stay.contains(&segment.id));
    found.sort_by_key(|s| (choice.kept.contains(&s.id), !choice.first.contains(&s.id)));
    let mut room = choice.room.unwrap_or(u64::MAX);
    let may_lie = share(Debt::of(tables).stays(), options.over_provision());
    let mut left = may_lie.max(options.partition());
    let mut victims = BTreeSet::new();
    for MostlyDead { id, live, .. } in found {
        if live <= room && (live <= left || victims.is_empty()) {
            (room, left) = (room - live, left.saturating_sub(live));
            victims.insert(id);
        }
    }
    victims
}

/// The value segments that a sweep empties on a full disk.
pub struct Victims {
    /// Which.
    pub segments: BTreeSet<u64>,
    /// What lives in them, bytes: it is written before they go.
    pub live_bytes: u64,
}

impl Victims {
    /// Of the segments that are mostly dead those for which there is room, the deadest first. Half of the `room` is for the
    /// tables that point there: they are written anew, too.
    pub fn that_fit(tables: &Tables, options: &KeyspaceOptions, room: u64) -> Victims {
        let stay = out_of_reach(tables);
        let mut victims = Victims { segments: BTreeSet::new(), live_bytes: 0 };
        for MostlyDead { id, live, .. } in MostlyDead::by_gain(tables, options.over_provision()) {
            if !stay.contains(&id) && live <= room - victims.live_bytes {
                victims.live_bytes += live;
                victims.segments.insert(id);
            }
        }
        victims
    }
}

/// The segments that a sweep under way does not empty any more: what it has settled points there, or what was flushed since.
fn out_of_reach(tables: &Tables) -> BTreeSet<u64> {
    let Some(frozen) = &tables.frozen else { return BTreeSet::new() };
    let is_done = |partition: &&Partition| partition.lower < frozen.watermark;
    let done = tables.partitions.iter().filter(is_done);
    let done = done.flat_map(|partition| partition.delta.iter().chain(&partition.base));
    let used = done.chain(tables.runs.iter().flatten()).flat_map(|t| &t.properties().segments);
    used.map(|used| used.segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was estimated to be left makes a sweep due, and less does not.
    #[test]
    fn so_many_bytes_are_left_until_a_sweep_is_due() {
        let options = KeyspaceOptions::default().min_conversion_bytes(50_000);
        let debt = |fresh: u64, garbage_percent: u64| Debt {
            fresh,
            settled: 1_000_000,
            overwritten: fresh / 100 * garbage_percent,
            ..Debt::default()
        };
        // All garbage, some, none.
        let cases = [(100, 300_000), (50, 600_000), (0, 1_000_000)];
        for (garbage_percent, due_at) in cases {
            for fresh in [10_000, 200_000] {
                let left = debt(fresh, garbage_percent).left(&options);
                assert_eq!(left, due_at - fresh, "{garbage_percent} % of {fresh}");
                assert!(!debt(fresh + left, garbage_percent).is_due(&options, false));
                assert!(debt(fresh + left + 100, garbage_percent).is_due(&options, false));
            }
            assert_eq!(debt(due_at + 100, garbage_percent).left(&options), 0);
        }
        let small = Debt { settled: 0, ..debt(10_000, 0) };
        assert_eq!(small.left(&options), 40_000);
        let dead = Debt { dead: 15_000, ..small };
        assert_eq!(dead.left(&options), 23_333, "the garbage grows with it, to 50 000");
    }

    /// It was no garbage at all: a store that was settled often kept a quarter more than its sums said.
    #[test]
    fn what_deltas_replace_is_garbage_that_does_not_grow() {
        let options = KeyspaceOptions::default().min_conversion_bytes(0);
        let debt = |fresh| Debt {
            fresh,
            settled: 1_250_000,
            overwritten: fresh,
            replaced: 250_000,
            ..Debt::default()
        };
        // 30 % of the million that stays are 300 000.
        assert_eq!(debt(1000).left(&options), 49_000);
        assert!(!debt(49_000).is_due(&options, false));
        assert!(debt(51_000).is_due(&options, false));
        assert_eq!(debt(1000).garbage(), 251_000);
    }

    /// Each fresh byte removes or covers many: what stays shrinks with it.
    #[test]
    fn so_many_removals_are_left_until_a_sweep_is_due() {
        let options = KeyspaceOptions::default().min_conversion_bytes(0);
        let debt = |fresh: u64, times: u64| Debt {
            fresh,
            settled: 1_000_000,
            shadowed: fresh * times,
            ..Debt::default()
        };
        for times in [1, 2, 5, 40] {
            let left = debt(1000, times).left(&options);
            assert!(left > 1000, "{times}");
            assert!(!debt(1000 + left - 10, times).is_due(&options, false), "{times}");
            assert!(debt(1000 + left + 10, times).is_due(&options, false), "{times}");
        }
    }

    /// They were never due, while their writers paid for them: what was removed did not count as worth a sweep.
    #[test]
    fn removals_are_worth_a_sweep_though_they_are_few_bytes() {
        let options = KeyspaceOptions::default();
        let debt =
            |shadowed| Debt { settled: 2 << 30, fresh: 30 << 20, shadowed, ..Debt::default() };
        assert!(debt(1 << 30).is_due(&options, false));
        assert!(!debt(500 << 20).is_due(&options, false), "less than `min_conversion`");
    }
}
