//! What somebody waits for in keyspaces of levels, and whose turn it is.
//!
//! Writers who are kept back wait for compactions, and so does whoever asked for a conversion. Neither is to wait
//! for ever behind the other, or behind a level far beyond its size: see [`Turn`]. And a conversion that
//! finds no room waits for what others may give back, but not without an end: see [`Waited::are_impatient`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::format::entry::{KeyspaceId, TableId};

/// So many files are written while a conversion waits for room that others may make, before it is said that there is none.
const MOST_AWAITED: u64 = 256;

/// What somebody waits for: that the old tables of a level go as far down as they must. Of level 0 all, of
/// one above the last those beyond its size, and those that remove much; the last stands for value segments that are mostly dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// The level.
    pub level: usize,
    /// Tables and value segments of smaller numbers are old.
    pub before: TableId,
}

/// When a compaction comes: of several the greatest first.
///
/// 1. What somebody waits for, if the one begun last was for nobody;
/// 2. what writers are kept back for: the runs and the level that they go to, whichever is further beyond its size;
/// 3. what else somebody waits for;
/// 4. what is beyond its size, the most first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    order: u8,
    /// How much it is due.
    score: u64,
    /// Somebody waits for it.
    pub is_awaited: bool,
}

impl Turn {
    /// That of a compaction that is due so much.
    pub fn new(score: u64, is_awaited: bool, is_pressing: bool, awaited_first: bool) -> Turn {
        let order = match () {
            () if is_awaited && awaited_first => 3,
            () if is_pressing => 2,
            () if is_awaited => 1,
            () => 0,
        };
        Turn { order, score, is_awaited }
    }
}

/// Shared by the jobs. Locked after the claims, if with them.
pub type Goals = Arc<Mutex<Waited>>;

/// What is waited for in each keyspace.
#[derive(Debug, Default)]
pub struct Waited {
    goals: BTreeMap<KeyspaceId, Goal>,
    /// The compaction that was begun last was awaited.
    is_served: bool,
    /// Those of which a goal finds no room, and the number of the next file when that was seen first.
    lacking: BTreeMap<KeyspaceId, TableId>,
}

impl Waited {
    /// What is waited for in a keyspace.
    pub fn get(&self, keyspace: KeyspaceId) -> Option<Goal> {
        self.goals.get(&keyspace).copied()
    }

    /// Has a goal reached.
    pub fn set(&mut self, keyspace: KeyspaceId, goal: Goal) {
        self.goals.insert(keyspace, goal);
    }

    /// Nobody waits any more; whether somebody did.
    pub fn forget(&mut self, keyspace: KeyspaceId) -> bool {
        self.lacking.remove(&keyspace);
        self.goals.remove(&keyspace).is_some()
    }

    /// It is told that there is no room: if it is tried again, others have as long again.
    pub fn is_told(&mut self, keyspace: KeyspaceId) {
        self.lacking.remove(&keyspace);
    }

    /// Forgets keyspaces that are gone.
    pub fn retain(&mut self, is_there: impl Fn(KeyspaceId) -> bool) {
        self.goals.retain(|keyspace, _| is_there(*keyspace));
        self.lacking.retain(|keyspace, _| is_there(*keyspace));
    }

    /// Whether what is awaited goes first.
    pub fn goes_first(&self) -> bool {
        !self.is_served
    }

    /// A compaction begins.
    pub fn note_begun(&mut self, turn: Turn) {
        self.is_served = turn.is_awaited;
    }

    /// Notes for which keyspaces' goals there is no room (for no others there is any lack), the next file having such a number. Those
    /// that have waited for long are to be told, and nothing else to be begun until they are.
    pub fn are_impatient(
        &mut self,
        lacking: impl Iterator<Item = KeyspaceId>,
        next_file: TableId,
    ) -> Vec<KeyspaceId> {
        let since = |keyspace| (keyspace, *self.lacking.get(&keyspace).unwrap_or(&next_file));
        let lacking: BTreeMap<_, _> = lacking.map(since).collect();
        self.lacking = lacking;
        let is_long = |since: &TableId| next_file.saturating_sub(*since) >= MOST_AWAITED;
        self.lacking.iter().filter(|(_, since)| is_long(since)).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_who_are_kept_back_and_who_waits_take_turns() {
        let turn = |score, is_awaited, is_pressing| {
            move |awaited_first| Turn::new(score, is_awaited, is_pressing, awaited_first)
        };
        let beyond = turn(50_000, false, false);
        let (runs, asked) = (turn(2000, false, true), turn(1000, true, false));
        let mut waited = Waited::default();
        for _ in 0..3 {
            let first = waited.goes_first();
            assert!(asked(first) > runs(first) && runs(first) > beyond(first));
            waited.note_begun(asked(first));
            let first = waited.goes_first();
            assert!(runs(first) > asked(first) && asked(first) > beyond(first));
            waited.note_begun(runs(first));
        }
        assert!(turn(3000, false, true)(false) > runs(false));
        assert!(beyond(false) > turn(49_999, false, false)(false));
    }

    #[test]
    fn who_finds_no_room_waits_while_so_many_files_are_written() {
        let mut waited = Waited::default();
        let mut are_impatient = |lacking: &[KeyspaceId], next_file| {
            waited.are_impatient(lacking.iter().copied(), next_file)
        };
        assert!(are_impatient(&[1], 1000).is_empty());
        assert!(are_impatient(&[1, 2], 1255).is_empty());
        assert_eq!(are_impatient(&[1, 2], 1256), [1]);
        // There was room in between.
        assert!(are_impatient(&[2], 1257).is_empty());
        assert!(are_impatient(&[1, 2], 1258).is_empty());
        assert_eq!(are_impatient(&[1, 2], 1511), [2]);
        assert_eq!(are_impatient(&[1, 2], 1514), [1, 2]);
    }
}
