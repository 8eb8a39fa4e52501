//! Which bytes of value segments are dead. Nothing is counted as it dies: dead are those that no table
//! points at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::format::table::SegmentUse;
use crate::options::KeyspaceOptions;
use crate::sstable::reader::Table;
use crate::sstable::scale;
use crate::value_log::Segment;
use crate::view::{KeyspaceView, Tables};

/// The dead bytes of each value segment. During a sweep what is settled already is pointed at twice: no
/// more than the segment counts. Of one that cannot be read nothing is, for what lives in it cannot be moved.
pub fn dead(tables: &Tables) -> BTreeMap<u64, u64> {
    let live = live(tables);
    let dead = tables.segments.iter().map(|segment| {
        let live = live.get(&segment.id()).copied().unwrap_or(0);
        let dead = segment.value_bytes().saturating_sub(live);
        (segment.id(), if segment.is_readable() { dead } else { 0 })
    });
    dead.collect()
}

/// The dead bytes of all value segments.
pub fn dead_bytes(tables: &Tables) -> u64 {
    dead(tables).values().sum()
}

/// So many bytes of a keyspace of levels may be dead before its value segments are emptied: a share of what tables hold and
/// point at, or what is worth the work, if that is more.
pub fn promised_bytes(tables: &Tables, options: &KeyspaceOptions) -> u64 {
    let held = tables.all().map(|t| t.file_bytes() + t.properties().separated_bytes());
    scale(held.sum(), options.over_provision(), 100).max(options.min_conversion())
}

/// The bytes of each value segment that tables point at, each time they do.
fn live(tables: &Tables) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for used in tables.all().flat_map(|table| &table.properties().segments) {
        *live.entry(used.segment).or_insert(0u64) += used.bytes;
    }
    live
}

/// The bytes of value segments that tables point at; of none more than it has.
pub fn live_bytes(tables: &Tables) -> u64 {
    let live = live(tables);
    let of = |segment: &Arc<Segment>| live.get(&segment.id()).copied().unwrap_or(0);
    tables.segments.iter().map(|segment| of(segment).min(segment.value_bytes())).sum()
}

/// Of the value segments that cannot be read: what they take, which stays for as long as anything points there; and
/// how much tables point at, whether it is there or not.
pub fn stuck(tables: &Tables) -> (u64, u64) {
    let unreadable: Vec<_> = tables.segments.iter().filter(|s| !s.is_readable()).collect();
    if unreadable.is_empty() {
        return (0, 0);
    }
    let is_unreadable = |used: &&SegmentUse| unreadable.iter().any(|s| s.id() == used.segment);
    let pointed = |table: &Arc<Table>| {
        let used = table.properties().segments.iter().filter(is_unreadable);
        used.map(|used| used.bytes).sum::<u64>()
    };
    // Below the watermark it is settled, and counts there.
    let is_settled = |(watermark, table): (&[u8], &Arc<Table>)| {
        let (left, all) = (table.bytes_between(watermark, None), table.properties().data_bytes);
        let pointed = pointed(table);
        pointed.saturating_sub(scale(pointed, left, all.max(1)))
    };
    let frozen = tables.frozen.iter().flat_map(|frozen| {
        frozen.runs.iter().flatten().map(|table| (frozen.watermark.as_slice(), table))
    });
    let twice: u64 = frozen.map(is_settled).sum();
    let all: u64 = tables.all().map(pointed).sum();
    let occupied = unreadable.iter().map(|segment| segment.occupied_bytes()).sum();
    (occupied, all.saturating_sub(twice))
}

/// The value segments that have more dead bytes than `over_provision` of their live ones. So if all have no more, there
/// are no more in all.
pub fn mostly_dead(tables: &Tables, over_provision_percent: u64) -> BTreeSet<u64> {
    let dead = dead(tables);
    let segments = tables.segments.iter();
    let is_mostly_dead = segments.filter(|segment| {
        let dead = dead.get(&segment.id()).copied().unwrap_or(0);
        let live = segment.value_bytes().saturating_sub(dead);
        u128::from(dead) * 100 > u128::from(live) * u128::from(over_provision_percent)
    });
    is_mostly_dead.map(|segment| segment.id()).collect()
}

/// Those of the `victims` that are emptied first where there is little room, the deadest, as long as what lives in them
/// and one of the tables that point there (they are written anew one after another) take no more than `room_bytes`; and what lives
/// in them, bytes.
pub fn that_fit(
    view: &KeyspaceView,
    victims: BTreeSet<u64>,
    room_bytes: u64,
) -> (BTreeSet<u64>, u64) {
    let tables = &view.tables;
    let dead = dead(tables);
    let live = tables.segments.iter().filter(|s| victims.contains(&s.id())).map(|segment| {
        let dead = dead.get(&segment.id()).copied().unwrap_or(0);
        (segment.value_bytes().saturating_sub(dead), segment.id())
    });
    let mut live: Vec<_> = live.collect();
    live.sort_unstable();
    let points = |table: &&Arc<Table>| {
        table.properties().segments.iter().any(|used| victims.contains(&used.segment))
    };
    let largest = tables.all().filter(points).map(|table| table.file_bytes()).max().unwrap_or(0);
    let (mut moved, mut few) = (0, BTreeSet::new());
    for (live, segment) in live {
        if largest + moved + live > room_bytes {
            break;
        }
        moved += live;
        few.insert(segment);
    }
    (few, moved)
}

/// The segments to be emptied: those that are mostly dead, if there are more dead bytes than the
/// options allow, or somebody waits; `at_all`: however few.
pub fn victims(view: &KeyspaceView, wanted: bool, at_all: bool) -> BTreeSet<u64> {
    let (tables, options) = (&view.tables, &view.options);
    let dead = dead_bytes(tables);
    let held = tables.all().map(|t| t.file_bytes() + t.properties().separated_bytes());
    let allowed = u128::from(held.sum::<u64>()) * u128::from(options.over_provision()) / 100;
    let worth = wanted || dead >= options.min_conversion();
    if !at_all && (!worth || u128::from(dead) <= allowed) {
        return BTreeSet::new();
    }
    mostly_dead(tables, options.over_provision())
}
