//! What a keyspace owes: fresh data to settle, and garbage to give back. From it follows when a sweep
//! begins, and which value segments it empties.
//!
//! Nothing is counted as it dies. Dead bytes of a value segment are those that no table points at; what
//! fresh entries overwrite in the settled run is estimated as tables are written ([`crate::lsm::shadow`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::lsm::garbage;
use crate::options::KeyspaceOptions;
use crate::sstable::reader::Table;
use crate::view::Tables;

/// Sums over a keyspace's tables, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Debt {
    /// The LSM part, with the values it points at.
    pub fresh: u64,
    /// The settled run, with the values it points at.
    pub settled: u64,
    /// Bytes of value segments that no table points at.
    pub dead: u64,
    /// Settled bytes that the LSM part overwrites or removes, estimated.
    pub shadowed: u64,
}

impl Debt {
    /// That of a keyspace.
    pub fn of(tables: &Tables) -> Debt {
        let bytes = |t: &Arc<Table>| t.file_bytes() + t.properties().separated_bytes();
        Debt {
            fresh: tables.runs.iter().flatten().map(bytes).sum(),
            settled: tables.settled().map(bytes).sum(),
            dead: garbage::dead(tables).values().sum(),
            shadowed: tables.runs.iter().flatten().map(|t| t.properties().shadowed_bytes).sum(),
        }
    }

    /// Whether a sweep is due: the garbage is more than `over_provision` of the settled bytes, or the
    /// LSM part more than `lsm_ratio` of them; and there is enough of it to be worth one. Where the disk
    /// is full one is due if it frees more than it takes: what is fresh is written again before its
    /// old place is given back.
    pub fn is_due(&self, options: &KeyspaceOptions, disk_is_full: bool) -> bool {
        let share =
            |percent: u64| self.settled / 100 * percent + self.settled % 100 * percent / 100;
        let garbage = self.dead + self.shadowed;
        if disk_is_full {
            return garbage > self.fresh && self.fresh > 0;
        }
        self.fresh > 0
            && self.fresh + self.dead >= options.min_conversion()
            && (garbage > share(options.over_provision())
                || self.fresh > share(options.lsm_ratio()))
    }
}

/// The value segments that a sweep empties: of those that settled tables point into the ones with more
/// than `over_provision` of dead bytes. Fixed for a sweep.
pub fn victims(tables: &Tables, over_provision_percent: u64) -> BTreeSet<u64> {
    let settled = tables.settled().flat_map(|table| &table.properties().segments);
    let settled: BTreeSet<_> = settled.map(|used| used.segment).collect();
    garbage::mostly_dead(tables, over_provision_percent).intersection(&settled).copied().collect()
}
