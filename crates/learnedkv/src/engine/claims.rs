//! Which parts of keyspaces background jobs work at, so that no two work at the same.
//!
//! A claim is a rectangle: levels and a key range. Jobs whose claims do not meet have no table in common,
//! and what they write does not overlap. It is in memory alone: the plan of a job's edit looks again
//! whether what it replaces still stands.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{Engine, lock};
use crate::format::entry::{KeyspaceId, TableId};
use crate::view::Extent;

/// A part of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose part it is.
    pub keyspace: KeyspaceId,
    /// Its levels; 0 are the runs above them.
    pub levels: RangeInclusive<usize>,
    /// Its keys.
    pub extent: Extent,
}

impl Claim {
    fn meets(&self, other: &Claim) -> bool {
        self.keyspace == other.keyspace
            && self.levels.start() <= other.levels.end()
            && other.levels.start() <= self.levels.end()
            && self.extent.meets(&other.extent)
    }
}

/// The claims that are held.
#[derive(Debug, Default)]
pub struct Claims {
    next: u64,
    held: BTreeMap<u64, Claim>,
    /// Tables that could not be read, and when they were tried; see `Health::asked`.
    unreadable: BTreeMap<TableId, u64>,
}

impl Claims {
    /// Whether `claim` meets none that is held.
    pub fn is_free(&self, claim: &Claim) -> bool {
        self.held.values().all(|held| !held.meets(claim))
    }

    /// Whether any of a keyspace is held.
    pub fn any_of(&self, keyspace: KeyspaceId) -> bool {
        self.held.values().any(|held| held.keyspace == keyspace)
    }

    /// Whether any at all is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many are held.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Has a table left alone until somebody asks again.
    pub fn avoid(&mut self, table: TableId, asked: u64) {
        self.unreadable.retain(|_, at| *at == asked);
        self.unreadable.insert(table, asked);
    }

    /// Whether a table is left alone.
    pub fn avoids(&self, table: TableId, asked: u64) -> bool {
        self.unreadable.get(&table) == Some(&asked)
    }

    /// Holds a claim, which must be free, until what is returned is dropped.
    pub fn hold(&mut self, engine: &Arc<Engine>, claim: Claim) -> Claimed {
        debug_assert!(self.is_free(&claim), "{claim:?} is held");
        self.next += 1;
        self.held.insert(self.next, claim);
        Claimed { engine: engine.clone(), number: self.next }
    }
}

/// A claim that is held.
pub struct Claimed {
    engine: Arc<Engine>,
    number: u64,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        lock(&self.engine.claims).held.remove(&self.number);
        self.engine.executor.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(keyspace: KeyspaceId, levels: RangeInclusive<usize>, keys: (&str, &str)) -> Claim {
        let extent = Extent::between(keys.0.as_bytes(), keys.1.as_bytes());
        Claim { keyspace, levels, extent }
    }

    #[test]
    fn claims_meet_where_levels_and_keys_do() {
        let one = claim(1, 2..=3, ("c", "f"));
        for (other, meets) in [
            (claim(1, 2..=3, ("c", "f")), true),
            (claim(1, 3..=4, ("f", "z")), true),
            (claim(1, 0..=2, ("a", "c")), true),
            (claim(1, 0..=6, ("d", "e")), true),
            (claim(1, 4..=5, ("c", "f")), false),
            (claim(1, 0..=1, ("c", "f")), false),
            (claim(1, 2..=3, ("g", "z")), false),
            (claim(1, 2..=3, ("a", "bz")), false),
            (claim(2, 2..=3, ("c", "f")), false),
        ] {
            assert_eq!(one.meets(&other), meets, "{other:?}");
            assert_eq!(other.meets(&one), meets, "{other:?}");
        }
    }
}
