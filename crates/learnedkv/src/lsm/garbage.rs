//! Which bytes of value segments are dead. Nothing is counted as it dies: dead are those that no table
//! points at.

use std::collections::{BTreeMap, BTreeSet};

use crate::view::Tables;

/// The dead bytes of each value segment. During a sweep what is settled already is pointed at twice: no
/// more than the segment counts.
pub fn dead(tables: &Tables) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for used in tables.all().flat_map(|table| &table.properties().segments) {
        *live.entry(used.segment).or_insert(0u64) += used.bytes;
    }
    let dead = tables.segments.iter().map(|segment| {
        let live = live.get(&segment.id()).copied().unwrap_or(0);
        (segment.id(), segment.value_bytes().saturating_sub(live))
    });
    dead.collect()
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
