//! What somebody waits for in keyspaces of levels, and whose turn it is.
//!
//! Writers who are kept back wait for compactions, and so does whoever asked for a conversion. Neither is to wait
//! for ever behind the other, or behind a level far beyond its size: see [`Turn`]. And a conversion that
//! finds no room waits for what others may give back, but not without an end: see [`Waited::is_impatient`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::format::entry::{KeyspaceId, TableId};

/// So many compactions begin while a conversion waits for room that they may make, before it is said that there is none.
const MOST_AWAITED: u64 = 64;
/// One in so many is for what is furthest beyond its size, whoever waits for what.
const FURTHEST_EACH: u64 = 8;

/// What somebody waits for: that the old tables of a level go as far down as they must. Of level 0 all, of
/// one above the last those beyond its size, and those that remove much; the last stands for value segments that are mostly dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// The level.
    pub level: usize,
    /// Tables and value segments of smaller numbers are old.
    pub before: TableId,
}

/// What goes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum First {
    /// What writers are kept back for.
    #[default]
    Pressing,
    /// What somebody waits for.
    Awaited,
    /// What is furthest beyond its size.
    Furthest,
}

/// When a compaction comes: of several the greatest first.
///
/// 1. What somebody waits for, if the one begun last was not begun for that ([`First`]);
/// 2. what writers are kept back for: the runs and the level that they go to, whichever is further beyond its size, and value
///    segments that are mostly dead;
/// 3. what else somebody waits for;
/// 4. what is beyond its size, the most first. One in eight goes by that alone, so that no level waits for ever.
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
    pub fn new(score: u64, is_awaited: bool, is_pressing: bool, first: First) -> Turn {
        let order = match first {
            First::Furthest => 0,
            First::Awaited if is_awaited => 3,
            _ if is_pressing => 2,
            _ if is_awaited => 1,
            _ => 0,
        };
        Turn { order, score, is_awaited }
    }

    /// Whether anybody waits for it.
    pub fn is_urgent(self) -> bool {
        self.is_awaited || self.order > 0
    }
}

/// What a compaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An edit alone.
    Moves,
    /// It makes room.
    Thins,
    /// Tables are written.
    Writes,
}

/// Shared by the jobs. Locked after the claims, if with them.
pub type Goals = Arc<Mutex<Waited>>;

/// What is waited for in each keyspace.
#[derive(Debug, Default)]
pub struct Waited {
    goals: BTreeMap<KeyspaceId, Goal>,
    /// How many compactions were begun, and how many of them that write tables.
    begun: u64,
    written: u64,
    /// The last of them was begun because somebody waits for it.
    is_served: bool,
    /// Those of which a goal finds no room, and how many that write had been begun when that was seen first.
    lacking: BTreeMap<KeyspaceId, u64>,
    /// What whoever waits is to be told.
    failed: BTreeMap<KeyspaceId, Error>,
}

impl Waited {
    /// What is waited for in a keyspace.
    pub fn get(&self, keyspace: KeyspaceId) -> Option<Goal> {
        self.goals.get(&keyspace).copied()
    }

    /// The keyspaces of which something is waited for.
    pub fn keyspaces(&self) -> impl Iterator<Item = KeyspaceId> {
        self.goals.keys().copied()
    }

    /// Has a goal reached.
    pub fn set(&mut self, keyspace: KeyspaceId, goal: Goal) {
        self.goals.insert(keyspace, goal);
    }

    /// The goal is to be set anew; whether there was one. (How long it has found no room is known until it finds some.)
    pub fn forget(&mut self, keyspace: KeyspaceId) -> bool {
        self.failed.remove(&keyspace);
        self.goals.remove(&keyspace).is_some()
    }

    /// All that was waited for is reached.
    pub fn reach(&mut self, keyspace: KeyspaceId) {
        self.forget(keyspace);
        self.lacking.remove(&keyspace);
    }

    /// Gives a goal up: whoever waits is told so.
    pub fn fail(&mut self, keyspace: KeyspaceId, error: Error) {
        self.goals.remove(&keyspace);
        self.lacking.remove(&keyspace);
        self.failed.insert(keyspace, error);
    }

    /// What whoever waits is to be told, if his goal was given up.
    pub fn take_failed(&mut self, keyspace: KeyspaceId) -> Option<Error> {
        self.failed.remove(&keyspace)
    }

    /// Forgets keyspaces that are gone.
    pub fn retain(&mut self, is_there: impl Fn(KeyspaceId) -> bool) {
        self.goals.retain(|keyspace, _| is_there(*keyspace));
        self.lacking.retain(|keyspace, _| is_there(*keyspace));
        self.failed.retain(|keyspace, _| is_there(*keyspace));
    }

    /// What goes first of what is begun next.
    pub fn first(&self) -> First {
        match (self.begun + 1).is_multiple_of(FURTHEST_EACH) {
            true => First::Furthest,
            false if self.is_served => First::Pressing,
            false => First::Awaited,
        }
    }

    /// A compaction begins of a keyspace.
    pub fn note_begun(&mut self, keyspace: KeyspaceId, turn: Turn, kind: Kind) {
        self.begun += 1;
        self.written += u64::from(kind != Kind::Moves);
        let is_awaited = turn.is_awaited && kind != Kind::Thins;
        self.is_served = is_awaited && turn.order != 2;
        if is_awaited {
            self.lacking.remove(&keyspace);
        }
    }

    /// Whoever waits is told that there is no room: if he tries again, others have as long again.
    pub fn is_told(&mut self, keyspace: KeyspaceId) {
        self.lacking.remove(&keyspace);
    }

    /// Notes that a keyspace's goal finds no room. Whether it has found none for long.
    pub fn is_impatient(&mut self, keyspace: KeyspaceId) -> bool {
        let since = *self.lacking.entry(keyspace).or_insert(self.written);
        self.written - since >= MOST_AWAITED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_who_are_kept_back_and_who_waits_take_turns() {
        let turn = |score, is_awaited, is_pressing| {
            move |first| Turn::new(score, is_awaited, is_pressing, first)
        };
        let (far, further) = (turn(50_000, false, false), turn(50_001, false, false));
        // The last is both, and pays for no turn of those who wait.
        let (runs, asked, both) =
            (turn(2000, false, true), turn(1000, true, false), turn(1500, true, true));
        let mut waited = Waited::default();
        let mut seen = Vec::new();
        for _ in 0..16 {
            let first = waited.first();
            seen.push(first);
            let all = [runs(first), asked(first), far(first), further(first)];
            let expected = match first {
                First::Pressing => runs(first),
                First::Awaited => asked(first),
                First::Furthest => further(first),
            };
            assert_eq!(all.into_iter().max(), Some(expected), "{first:?}");
            assert!(expected.is_urgent() == (first != First::Furthest));
            waited.note_begun(1, expected, Kind::Writes);
        }
        let (a, p, f) = (First::Awaited, First::Pressing, First::Furthest);
        assert_eq!(seen, [a, p, a, p, a, p, a, f, a, p, a, p, a, p, a, f]);
        assert_eq!(waited.first(), First::Awaited);
        waited.note_begun(1, both(First::Pressing), Kind::Writes);
        assert_eq!(waited.first(), First::Awaited);
    }

    #[test]
    fn who_finds_no_room_waits_while_so_many_compactions_begin() {
        let mut waited = Waited::default();
        let of_others = Turn::new(2000, false, true, First::Pressing);
        let awaited = Turn::new(1000, true, false, First::Awaited);
        assert!(!waited.is_impatient(1));
        (1..MOST_AWAITED).for_each(|_| waited.note_begun(2, of_others, Kind::Writes));
        (0..MOST_AWAITED).for_each(|_| waited.note_begun(2, of_others, Kind::Moves));
        assert!(!waited.is_impatient(1) && !waited.is_impatient(3));
        // It makes room, and has found none yet.
        waited.note_begun(1, awaited, Kind::Thins);
        assert_eq!(waited.first(), First::Awaited, "that served nobody");
        assert!(waited.is_impatient(1) && !waited.is_impatient(3));
        // A goal that is set anew has waited as long.
        waited.set(1, Goal { level: 0, before: 7 });
        assert!(waited.forget(1) && waited.is_impatient(1));
        waited.note_begun(1, awaited, Kind::Writes);
        assert!(!waited.is_impatient(1) && waited.take_failed(1).is_none());
        waited.set(1, Goal { level: 0, before: 7 });
        waited.fail(1, Error::invalid("no room"));
        assert!(waited.get(1).is_none() && waited.take_failed(1).is_some());
        assert!(waited.take_failed(1).is_none());
    }
}
