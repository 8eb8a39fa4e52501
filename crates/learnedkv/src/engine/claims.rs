//! Which parts of keyspaces background jobs work at, so that no two work at the same.
//!
//! A claim is a rectangle: levels and a key range. Jobs whose claims do not meet have no table in common,
//! and what they write does not overlap. It is in memory alone: the plan of a job's edit looks again
//! whether what it replaces still stands.
//!
//! Here jobs also learn what others could not do. A claim is let go only when that is noted, so that
//! nobody begins the same again in between. A file that could not be read is left alone, and nothing
//! else; a keyspace where something else failed (a full disk, say) waits until somebody asks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{Engine, Health, lock};
use crate::error::{Error, ErrorKind};
use crate::format::entry::{KeyspaceId, TableId};
use crate::view::{Extent, KeyspaceView, View};

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

/// One that is held, and how much room was promised to whoever holds it, bytes.
#[derive(Debug)]
pub struct Held {
    claim: Claim,
    room_bytes: u64,
}

/// The claims that are held.
#[derive(Debug, Default)]
pub struct Claims {
    next: u64,
    held: BTreeMap<u64, Held>,
    /// Tables and value segments (their numbers are of one sequence) that could not be read.
    unreadable: BTreeMap<TableId, Unread>,
    /// Keyspaces where something failed, and when; see `Health::asked`.
    failed: BTreeMap<KeyspaceId, u64>,
    /// Tables that hold nothing any more that tables up to some number hide.
    thinned: BTreeMap<TableId, TableId>,
    /// So many are kept before it is looked which of them are still there.
    thinned_before: usize,
}

/// What is known of a file that could not be read.
#[derive(Debug)]
struct Unread {
    error: Error,
    /// How often somebody had asked when it was to be read; see `Health::asked`.
    asked: u64,
}

impl Claims {
    /// Whether `claim` meets none that is held.
    pub fn is_free(&self, claim: &Claim) -> bool {
        self.held.values().all(|held| !held.claim.meets(claim))
    }

    /// The first level in which any of a keyspace is held that meets `extent`.
    pub fn first_level(&self, keyspace: KeyspaceId, extent: &Extent) -> Option<usize> {
        let held = self.held.values().map(|held| &held.claim);
        let held = held.filter(|held| held.keyspace == keyspace);
        held.filter(|held| held.extent.meets(extent)).map(|held| *held.levels.start()).min()
    }

    /// Whether any of a keyspace is held.
    pub fn any_of(&self, keyspace: KeyspaceId) -> bool {
        self.held.values().any(|held| held.claim.keyspace == keyspace)
    }

    /// Whether any at all is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds others, and returns those that were held.
    #[cfg(test)]
    pub fn swap(&mut self, held: BTreeMap<u64, Held>) -> BTreeMap<u64, Held> {
        std::mem::replace(&mut self.held, held)
    }

    /// How many are held.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Has a file left alone that could not be read when somebody had `asked` so often: until a user asks later than that if it is
    /// damaged, else until anybody does.
    pub fn avoid(&mut self, file: TableId, error: &Error, asked: u64, health: &Health) {
        self.unreadable.retain(|_, unread| health.insisted() <= unread.asked);
        let is_newest = self.unreadable.get(&file).is_none_or(|before| before.asked <= asked);
        if is_newest {
            self.unreadable.insert(file, Unread { error: error.clone(), asked });
        }
    }

    /// Why a file is left alone; `None`: it is not.
    pub fn avoids(&self, file: TableId, health: &Health) -> Option<&Error> {
        let unread = self.unreadable.get(&file)?;
        let is_damaged = unread.error.kind() == ErrorKind::Corruption;
        let asked = if is_damaged { health.insisted() } else { health.asked() };
        (asked <= unread.asked).then_some(&unread.error)
    }

    /// Why one is left alone that is still needed and damaged. (The error itself is seen until anything is asked for.)
    pub fn damage(&self, view: &View, health: &Health) -> Option<Error> {
        let damaged = |file: &TableId| self.avoids(*file, health).filter(|e| e.is_corruption());
        let found: Vec<_> = self.unreadable.keys().filter(|file| damaged(file).is_some()).collect();
        let needed = |keyspace: &Arc<KeyspaceView>, file: TableId| {
            keyspace.tables.segments.get(file).is_some()
                || keyspace.tables.all().any(|table| table.id() == file)
        };
        let is_needed = |file: &TableId| view.keyspaces.values().any(|k| needed(k, *file));
        found.into_iter().find(|file| is_needed(file)).and_then(damaged).cloned()
    }

    /// All that are left alone.
    pub fn avoided(&self, health: &Health) -> BTreeSet<TableId> {
        self.unreadable
            .keys()
            .filter(|file| self.avoids(**file, health).is_some())
            .copied()
            .collect()
    }

    /// Has a keyspace left alone until somebody asks again who had not by `asked`.
    pub fn fail(&mut self, keyspace: KeyspaceId, asked: u64) {
        let before = self.failed.entry(keyspace).or_default();
        *before = asked.max(*before);
    }

    /// Whether a keyspace is left alone.
    pub fn has_failed(&self, keyspace: KeyspaceId, health: &Health) -> bool {
        self.failed.get(&keyspace) == Some(&health.asked())
    }

    /// Says that of a table all is gone that tables up to number `by` hide.
    pub fn thin(&mut self, table: TableId, by: TableId) {
        self.thinned.insert(table, by);
    }

    /// By tables up to which number nothing is hidden of a table; `None`: by any.
    pub fn thinned(&self, table: TableId) -> Option<TableId> {
        self.thinned.get(&table).copied()
    }

    /// Forgets of what was thinned that which is not there any more.
    pub fn forget_thinned(&mut self, view: &View) {
        if self.thinned.len() <= self.thinned_before {
            return;
        }
        let tables = view.keyspaces.values().flat_map(|keyspace| keyspace.tables.all());
        let there: BTreeSet<_> = tables.map(|table| table.id()).collect();
        self.thinned.retain(|table, _| there.contains(table));
        self.thinned_before = 2 * self.thinned.len();
    }

    /// Something went well at a keyspace: it may be tried whenever there is work.
    pub fn succeeded(&mut self, keyspace: KeyspaceId) {
        self.failed.remove(&keyspace);
    }

    /// How much room was promised to those who hold any, bytes: also what they have taken of it.
    pub fn promised_bytes(&self) -> u64 {
        self.held.values().map(|held| held.room_bytes).fold(0, u64::saturating_add)
    }

    /// Holds a claim, which must be free, until what is returned is dropped; `room_bytes` are promised with it.
    pub fn hold(&mut self, engine: &Arc<Engine>, claim: Claim, room_bytes: u64) -> Claimed {
        debug_assert!(self.is_free(&claim), "{claim:?} is held");
        self.next += 1;
        self.held.insert(self.next, Held { claim, room_bytes });
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

    /// It was left alone for whoever had asked while it was being read, and he was told what was met before.
    #[test]
    fn what_could_not_be_read_is_read_again_for_who_asked_meanwhile() {
        let (mut claims, health) = (Claims::default(), Health::default());
        let failed = Error::new(ErrorKind::Io, "the device failed");
        let damaged = Error::corruption("damaged");
        let begun = health.ask_again();
        for (file, error) in [(1, &failed), (2, &damaged)] {
            claims.avoid(file, error, begun, &health);
            assert!(claims.avoids(file, &health).is_some());
        }
        health.ask_again();
        assert!(claims.avoids(1, &health).is_none(), "anybody has it tried again");
        assert!(claims.avoids(2, &health).is_some(), "users alone have it");
        claims.avoid(1, &failed, begun, &health);
        assert!(claims.avoids(1, &health).is_none(), "somebody asked since");
        let amid = health.asked();
        let insisted = health.insist();
        for (file, error) in [(1, &failed), (2, &damaged)] {
            claims.avoid(file, error, amid, &health);
            assert!(claims.avoids(file, &health).is_none(), "a user asked since");
            claims.avoid(file, error, insisted, &health);
            claims.avoid(file, error, amid, &health);
            assert!(claims.avoids(file, &health).is_some(), "what was met before is not the last");
        }
    }
}
