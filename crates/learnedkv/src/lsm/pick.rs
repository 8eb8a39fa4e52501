//! What is compacted next: of the levels that are due the one most beyond its size, but for those that somebody waits for; of it the
//! table that overlaps the least of the level below, for its size.
//!
//! **Runs to the base.** All runs, with what they overlap in the base level, become tables of it. The
//! levels between are empty. The oldest run may go alone if nothing lies in its place.
//! **A level to the next.** One table, with what it overlaps below. If it overlaps nothing it *moves*: an
//! edit alone, no bytes.
//! **In place.** Value segments that are mostly dead are emptied: when dead bytes are more than
//! `over_provision` allows, the tables that point into such segments are written anew, and compactions to
//! the last level move values likewise; out of as many segments at a time as find room, the deadest first.
//!
//! **Removed ranges.** A table's place is that of its entries and its ranges ([`Extent::of`]): nothing it covers
//! is passed, all it covers in the next level is taken with it, and what is covered whole goes unread. What
//! is covered costs nothing to take, so such a table goes first; one that covers more than its entries take is due
//! however small its level is, and so are the runs where theirs cover more than `over_provision` of all.
//! Ranges are united as tables are, and end as tombstones do.
//!
//! **Tombstones** go where no deeper level has a table in the key range of the compaction. That range is
//! connected (each table of the lower level overlaps what comes from above), so no table stands between
//! its tables; and data gets deeper only through compactions, whose claims do not meet this one. An ingest
//! goes deeper at once, but only where no table above overlaps it.
//!
//! **Round what cannot be read.** A table that could not be read is left alone, and so is what would have to
//! be merged with it. Runs must go on: where they lie over such a table of the base, the level above it,
//! which is empty, becomes the base. Only over one of level 1, or among the runs, they wait. One
//! that could not be opened is such a table from the start; if removed ranges are in it, all wait.
//!
//! **On a full disk** one compaction is done at a time. There, and elsewhere, one begins only if what it
//! writes, at the most, finds room. Else a table is thinned ([`super::thin`]), the one of which most is
//! hidden: it gives its place back at once. Where that would not help either it is said that there is no
//! room, and tried again when somebody asks. Values are moved in place only, out of so few segments at a time
//! that they find room.
//!
//! **What somebody waits for** is a [`Goal`]: of a level the tables there were then. They go first, so that
//! it is reached whatever others write meanwhile. Which level's turn it is, [`Turn`] says.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::goals::{Goal, Turn};
use super::levels::{DUE, Shape, run_bytes};
use super::outlook::{Found, Outlook, Pick};
use super::{garbage, levels, thin};
use crate::engine::claims::{Claim, Claims};
use crate::error::Error;
use crate::format::entry::TableId;
use crate::format::manifest::LEVELS;
use crate::options::Sizes;
use crate::sstable::reader::Table;
use crate::sstable::scale;
use crate::view::{Extent, KeyspaceView, Run, Tables, damage_of};

/// A run goes alone to a level only if its tables are at least one in so many of a table's size: small
/// ones are merged on the way.
const LEAST_MOVED: u64 = 8;

/// A table is thinned where so much of it is hidden, in parts of [`thin::WHOLE`]: by whatever is newer where there is no room for
/// what is due; by tombstones on any full disk.
const LEAST_HIDDEN: u64 = 60;

/// A table removes much where one in so many of its entries is a tombstone, at the least.
const TOMBSTONES: u64 = 10;

/// A table is not to lie over more than so many times as much of the level below.
pub const MOST_BELOW: u64 = 10;

/// A look at a keyspace.
pub struct Picker<'a> {
    view: &'a KeyspaceView,
    claims: &'a Claims,
    outlook: Outlook<'a>,
    sizes: Sizes,
    shape: Shape,
    victims: Arc<BTreeSet<u64>>,
    /// What lives in the victims, bytes, where the room for it is known.
    moved_bytes: u64,
    /// Those that would be victims if there were no end of room.
    all_victims: BTreeSet<u64>,
    /// There was no room for something that is due.
    lacks_room: Cell<bool>,
    /// Nor for what somebody waits for.
    goal_lacks_room: Cell<bool>,
    /// There is some for garbage that somebody waits for but for what was promised.
    garbage_is_promised: bool,
    /// And for something else that somebody waits for.
    is_promised: Cell<bool>,
}

impl<'a> Picker<'a> {
    /// Looks at `view`, of which `claims` are held.
    pub fn new(view: &'a KeyspaceView, claims: &'a Claims, outlook: Outlook<'a>) -> Picker<'a> {
        let sizes = Sizes::of(&view.options, outlook.disk_bytes);
        let shape = Shape::of(&view.tables, &view.options, sizes);
        let is_full = outlook.room.is_some_and(|room| room.is_full);
        let mut victims = garbage::victims(view, outlook.goal.is_some(), is_full);
        let health = outlook.health;
        victims.retain(|segment| health.is_none_or(|h| claims.avoids(*segment, h).is_none()));
        let all_victims = victims.clone();
        let (mut moved_bytes, mut lacks_room, mut is_promised) = (0, false, false);
        if let Some(room) = outlook.room.filter(|_| !victims.is_empty()) {
            let fit = |bytes| garbage::that_fit(view, all_victims.clone(), bytes);
            (victims, moved_bytes) = fit(room.moving_left_bytes());
            // Nobody is told that garbage stays for now but who asks for it to go.
            if victims.is_empty() && !is_full && outlook.goal.is_some() {
                is_promised = room.promised_bytes > 0 && !fit(room.moving_bytes).0.is_empty();
                lacks_room = !is_promised;
            }
        }
        let waits_for_garbage = outlook.goal.is_some_and(|goal| goal.level == LEVELS);
        let goal_lacks_room = Cell::new(lacks_room && waits_for_garbage);
        let garbage_is_promised = is_promised && waits_for_garbage;
        let (victims, lacks_room) = (Arc::new(victims), Cell::new(lacks_room));
        Picker {
            view,
            claims,
            outlook,
            sizes,
            shape,
            victims,
            moved_bytes,
            all_victims,
            lacks_room,
            goal_lacks_room,
            garbage_is_promised,
            is_promised: Cell::new(false),
        }
    }

    /// What is dead in value segments that are to be emptied, as far as it will go: nothing where there is no room for any; nor what
    /// cannot be read, or a table points to that cannot.
    pub fn garbage_bytes(&self) -> u64 {
        if self.victims.is_empty() {
            return 0;
        }
        let unreadable = self.tables().all().filter(|table| !self.is_readable(table));
        let stays = unreadable.flat_map(|table| &table.properties().segments);
        let stays: BTreeSet<_> = stays.map(|used| used.segment).collect();
        let goes = |segment: &u64| self.all_victims.contains(segment) && !stays.contains(segment);
        let dead = garbage::dead(self.tables());
        dead.iter().filter(|(segment, _)| goes(segment)).map(|(_, bytes)| bytes).sum()
    }

    /// Whether the goal is reached.
    pub fn is_reached(&self, goal: Goal) -> bool {
        let is_old = |table: &&Arc<Table>| table.id() < goal.before;
        match goal.level {
            0 => !self.tables().fresh().iter().flatten().any(|table| is_old(&table)),
            LEVELS => {
                let mut tables = self.tables().levels().iter().flatten();
                if self.is_full() {
                    return !tables.any(|table| self.points_at_victim(table));
                }
                // Where there is little room a few are emptied at a time, and their tables are new then. Of old segments there is
                // an end.
                let is_left =
                    |segment: u64| segment < goal.before && self.all_victims.contains(&segment);
                !tables.any(|table| table.properties().segments.iter().any(|u| is_left(u.segment)))
            }
            level => {
                let old = || self.level(level).iter().filter(is_old);
                self.shape.share(level, old().map(|table| table.file_bytes()).sum()) < DUE
                    && !old().any(|table| {
                        self.covers_much(level, table) || self.removes_much(level, table)
                    })
            }
        }
    }

    /// Why a file of the keyspace is left alone, if one is.
    pub fn unread(&self) -> Option<Error> {
        let (tables, health) = (self.tables(), self.outlook.health?);
        let files = tables.all().map(|t| t.id()).chain(tables.segments.iter().map(|s| s.id()));
        let damage = || damage_of(&tables.damaged);
        files.into_iter().find_map(|file| self.claims.avoids(file, health)).cloned().or_else(damage)
    }

    fn is_full(&self) -> bool {
        self.outlook.room.is_some_and(|room| room.is_full)
    }

    fn is_readable(&self, table: &Table) -> bool {
        table.damage().is_none()
            && self
                .outlook
                .health
                .is_none_or(|health| self.claims.avoids(table.id(), health).is_none())
    }

    fn tables(&self) -> &'a Tables {
        &self.view.tables
    }

    fn level(&self, level: usize) -> &'a [Arc<Table>] {
        self.tables().levels().get(level - 1).map_or(&[], Vec::as_slice)
    }

    /// What is to be done first, of what no other job works at.
    pub fn pick(&self) -> Found {
        let is_full = self.is_full();
        if is_full && !self.claims.is_empty() {
            return Found::Nothing;
        }
        // What such a table has the say of is not known: nothing may pass it.
        if self.tables().damaged.iter().any(|table| table.has_unknown_ranges()) {
            return Found::Nothing;
        }
        let pick = self.due();
        if pick.is_none() && (self.is_promised.get() || self.garbage_is_promised) {
            return Found::Promised;
        }
        let lacks_room = self.lacks_room.get();
        let thins = pick.is_none() && (is_full || lacks_room);
        match pick.or_else(|| if thins { self.thin(lacks_room) } else { None }) {
            Some(pick) => Found::Work(Box::new(pick)),
            None if lacks_room => Found::NoRoom,
            None => Found::Nothing,
        }
    }

    fn due(&self) -> Option<Pick> {
        let levels = (0..=LEVELS).map(|level| (self.score(level), level));
        let due = levels.filter(|(score, _)| *score >= DUE);
        let is_awaited = |level| self.awaited(level).is_some();
        let due =
            due.map(|(score, level)| (self.turn(level, score, is_awaited(level)), level, score));
        let mut due: Vec<_> = due.collect();
        due.sort_unstable_by_key(|(turn, level, _)| (std::cmp::Reverse(*turn), *level));
        for (turn, level, score) in due {
            let lacked = self.lacks_room.replace(false);
            let pick = match level {
                0 => self.of_runs(),
                LEVELS => self.of_garbage(),
                _ => self.table_of(level),
            };
            if let Some(pick) = pick {
                // Of such a level new tables may be all that can be taken, which nobody waits for.
                let above = pick.runs.iter().rev().skip(1).flatten();
                let before = self.awaited(level).map_or(0, |goal| goal.before);
                let is_awaited = level == LEVELS || above.into_iter().any(|t| t.id() < before);
                let turn = self.turn(level, score, turn.is_awaited && is_awaited);
                return Some(Pick { turn, ..pick });
            }
            let lacks = self.lacks_room.get();
            self.goal_lacks_room.set(self.goal_lacks_room.get() || turn.is_awaited && lacks);
            self.lacks_room.set(lacked || lacks);
            match turn.is_urgent() {
                true if self.is_promised.get() => return None,
                _ => self.is_promised.set(false),
            }
        }
        let turn = self.turn(LEVELS, DUE, is_awaited(LEVELS));
        self.in_place(TableId::MAX).map(|pick| Pick { turn, ..pick })
    }

    /// Whether there is no room for what somebody waits for, as far as was seen when something was picked.
    pub fn goal_lacks_room(&self) -> bool {
        self.goal_lacks_room.get()
    }

    /// What somebody waits for of a level.
    fn awaited(&self, level: usize) -> Option<Goal> {
        self.outlook.goal.filter(|goal| goal.level == level)
    }

    fn turn(&self, level: usize, score: u64, is_awaited: bool) -> Turn {
        let presses = match level {
            LEVELS => score > DUE,
            _ => self.shape.has_many_runs() && (level == 0 || level == self.shape.base()),
        };
        Turn::new(score, is_awaited, presses, self.outlook.first)
    }

    /// How much it is due that value segments are emptied: more than [`DUE`] where writers are kept back for it. On a full disk they are
    /// refused, and what else is due may give more back for less: there it comes last, unless somebody waits for it.
    fn garbage_score(&self) -> u64 {
        if self.victims.is_empty() || self.is_full() && self.awaited(LEVELS).is_none() {
            return 0;
        }
        let (tables, options) = (self.tables(), &self.view.options);
        let share = levels::garbage_share(self.garbage_bytes(), tables, options);
        if self.awaited(LEVELS).is_some() { share.max(DUE) } else { share }
    }

    fn score(&self, level: usize) -> u64 {
        if level == LEVELS {
            return self.garbage_score();
        }
        let claimed = match level {
            0 => 0,
            _ => {
                let claimed = |table: &&Arc<Table>| !self.is_free(level, level, table);
                self.level(level).iter().filter(claimed).map(|table| table.file_bytes()).sum()
            }
        };
        let score = self.shape.score(level, claimed);
        let frees = |table: &Arc<Table>| {
            (self.covers_much(level, table) || self.waits_to_remove(level, table))
                && self.is_free(level, level, table)
        };
        let score = if (1..LEVELS).contains(&level) && self.level(level).iter().any(frees) {
            score.max(DUE)
        } else {
            score
        };
        let waits = |table: &Arc<Table>| self.points_at_victim(table);
        let fresh = self.tables().fresh();
        let wanted = || self.awaited(0).is_some_and(|goal| !self.is_reached(goal));
        let much = || {
            let covered = fresh.iter().flatten().map(|table| self.covered(0, table)).sum::<u64>();
            let held: u64 = self.tables().levels().iter().map(run_bytes).sum();
            let allowed = u128::from(held) * u128::from(self.view.options.over_provision()) / 100;
            covered > 0 && u128::from(covered) > allowed
        };
        let drains = level == 0 && (wanted() || fresh.iter().flatten().any(waits) || much());
        if drains { score.max(DUE) } else { score }
    }

    /// What the ranges of a table of a level cover below it, bytes of whole blocks.
    fn covered(&self, level: usize, table: &Table) -> u64 {
        let ranges = table.ranges();
        if ranges.is_empty() {
            return 0;
        }
        let extent = Extent::of(table);
        let deeper = self.tables().levels().iter().skip(level);
        let under = deeper.flat_map(|run| extent.of_run(run));
        under.map(|under| under.covered_between(&[], None, ranges)).sum()
    }

    fn covers_much(&self, level: usize, table: &Table) -> bool {
        self.covered(level, table) > table.properties().data_bytes
    }

    /// Whether a table, above the last level, has so many tombstones that what they remove below is worth to be rid of. On a full disk it
    /// is not asked: what gives room there is another matter. Nor over what cannot be read.
    fn removes_much(&self, level: usize, table: &Arc<Table>) -> bool {
        let properties = table.properties();
        let below =
            self.tables().levels().get(level).map_or(&[][..], |run| Extent::of(table).of_run(run));
        properties.tombstones > 0
            && properties.tombstones >= properties.entries / TOMBSTONES
            && !self.is_full()
            && self.is_readable(table)
            && below.iter().all(|below| self.is_readable(below))
    }

    /// Whether somebody waits for what a table removes; see [`Goal`].
    fn waits_to_remove(&self, level: usize, table: &Arc<Table>) -> bool {
        let goal = self.awaited(level);
        goal.is_some_and(|goal| table.id() < goal.before && self.removes_much(level, table))
    }

    fn is_free(&self, from: usize, to: usize, table: &Table) -> bool {
        self.claims.is_free(&self.claim(from, to, Extent::of(table)))
    }

    fn claim(&self, from: usize, to: usize, extent: Extent) -> Claim {
        Claim { keyspace: self.view.id, levels: from..=to, extent }
    }

    fn points_at_victim(&self, table: &Table) -> bool {
        table.properties().segments.iter().any(|used| self.victims.contains(&used.segment))
    }

    /// The level that runs are compacted into: the base, or one above it where there is a table under
    /// them that cannot be read.
    fn base(&self) -> usize {
        let mut base = self.shape.base();
        let fresh = Extent::hull(self.tables().fresh().iter().flatten());
        let is_blocked = |level: usize| {
            let run = self.tables().levels().get(level - 1);
            let under = fresh.iter().zip(run).flat_map(|(fresh, run)| fresh.of_run(run));
            under.into_iter().any(|table| !self.is_readable(table))
        };
        while base > 1 && is_blocked(base) {
            base -= 1;
        }
        base
    }

    /// The oldest run goes to the base as it is.
    fn oldest_run(&self) -> Option<Pick> {
        let run = self.tables().fresh().last()?;
        let small = self.sizes.table_bytes / LEAST_MOVED * run.len() as u64;
        if run_bytes(run) < small {
            return None;
        }
        self.finish(0, self.base(), vec![run.clone()]).filter(|pick| pick.moves)
    }

    /// All runs, or the oldest alone: if it goes as it is, and if there is no room for all.
    fn of_runs(&self) -> Option<Pick> {
        let of = |runs: &[Run]| self.finish(0, self.base(), runs.to_vec());
        let fresh = self.tables().fresh();
        let oldest = || of(&fresh[fresh.len().saturating_sub(1)..]);
        let all = || of(fresh).or_else(|| oldest().filter(|_| self.lacks_room.get()));
        self.oldest_run().or_else(all)
    }

    /// The table of a level whose compaction writes least for what it brings down; one that somebody
    /// waits for before others.
    fn table_of(&self, level: usize) -> Option<Pick> {
        let below = self.tables().levels().get(level);
        let price = |table: &Arc<Table>| {
            let below = below.map_or(&[][..], |below| Extent::of(table).of_run(below));
            let bytes: u64 = below.iter().map(|below| uncovered(below, table)).sum();
            u128::from(bytes) * 1000 / u128::from(table.file_bytes().max(1))
        };
        let goal = self.awaited(level);
        let waits = |table: &Arc<Table>| goal.is_some_and(|goal| table.id() < goal.before);
        // Where the level is not beyond its size, only those that it is due for.
        let is_beyond = self.shape.score(level, 0) >= DUE;
        let frees = |t: &Arc<Table>| self.covers_much(level, t) || self.waits_to_remove(level, t);
        let tables = self.level(level).iter().map(|t| (frees(t), t));
        let tables = tables.filter(|(covers, _)| is_beyond || *covers);
        let mut tables: Vec<_> =
            tables.map(|(covers, t)| ((!waits(t), !covers, price(t)), t)).collect();
        tables.sort_by_key(|(turn, _)| *turn);
        for (_, table) in tables {
            let pick = self.finish(level, level + 1, vec![vec![table.clone()]]);
            if pick.is_some() {
                return pick;
            }
            if waits(table) {
                self.goal_lacks_room.set(self.goal_lacks_room.get() || self.lacks_room.get());
                if self.is_promised.get() {
                    return None;
                }
            }
        }
        None
    }

    /// A table that points into a victim, written anew where it is: if somebody waits, first one of those there were then.
    fn of_garbage(&self) -> Option<Pick> {
        let old = || self.in_place(self.awaited(LEVELS)?.before);
        old().or_else(|| self.in_place(TableId::MAX))
    }

    /// A table older than `before` that points into a victim, written anew where it is.
    fn in_place(&self, before: TableId) -> Option<Pick> {
        let levels = (1..=LEVELS).rev();
        let tables = levels.flat_map(|at| self.level(at).iter().map(move |table| (at, table)));
        let mut found =
            tables.filter(|(_, table)| table.id() < before && self.points_at_victim(table));
        found.find_map(|(level, table)| self.finish(level, level, vec![vec![table.clone()]]))
    }

    /// Adds what `runs` of level `from` overlap in level `to`; `None` if another job works there, or a
    /// table cannot be read.
    fn finish(&self, from: usize, to: usize, mut runs: Vec<Run>) -> Option<Pick> {
        let extent = Extent::hull(runs.iter().flatten())?;
        let mut below = Vec::new();
        if let Some(level) = self.tables().levels().get(to - 1).filter(|_| from != to) {
            below = extent.of_run(level).to_vec();
        }
        let options = &self.view.options;
        // Tables of the last level are compressed as it asks.
        let fits = to < LEVELS || from == to || options.compresses_alike();
        let alone = runs.len() == 1 && below.is_empty();
        runs.push(below);
        let extent = Extent::hull(runs.iter().flatten())?;
        let deeper = self.tables().levels().get(to..).unwrap_or_default();
        let keep_tombstones = deeper.iter().any(|run| !extent.of_run(run).is_empty());
        let removes =
            |table: &Arc<Table>| table.properties().tombstones > 0 || table.properties().ranges > 0;
        // What removes nothing any more is left out by writing anew.
        let as_it_is = keep_tombstones || !runs.iter().flatten().any(removes);
        let moved: u64 = runs.iter().flatten().map(|table| table.file_bytes()).sum();
        let over = deeper.first().map_or(&[][..], |below| extent.of_run(below));
        let taken = || runs.iter().flatten();
        let alive = |over: &Arc<Table>| taken().map(|t| uncovered(over, t)).min().unwrap_or(0);
        let over: u64 = over.iter().map(alive).sum();
        // What lies over much of the level below is written anew, and cut.
        let narrow = over <= MOST_BELOW * moved.max(self.sizes.table_bytes);
        let moves = from != to && alone && fits && as_it_is && narrow;
        let claim = self.claim(from, to, extent);
        let readable = |table: &Arc<Table>| self.is_readable(table);
        if !self.claims.is_free(&claim) || !runs.iter().flatten().all(readable) {
            return None;
        }
        let left_bytes = if moves { 0 } else { self.left_bytes(&runs) };
        if from != to && !self.has_room(left_bytes) {
            let promised = self.outlook.room.is_some_and(|room| left_bytes <= room.free_bytes);
            if promised { &self.is_promised } else { &self.lacks_room }.set(true);
            return None;
        }
        let apart = taken().flat_map(|table| &table.properties().segments);
        let moved =
            apart.filter(|used| self.victims.contains(&used.segment)).map(|used| used.bytes);
        let with_values = left_bytes.saturating_add(moved.sum::<u64>().min(self.moved_bytes));
        let along = || to == LEVELS && !moves && !self.is_full() && self.has_room(with_values);
        let empties = from == to || along();
        let victims = if empties { self.victims.clone() } else { Arc::default() };
        let room_bytes = if empties { with_values } else { left_bytes };
        let (turn, above) = (Turn::default(), Vec::new());
        Some(Pick {
            turn,
            from,
            to,
            runs,
            claim,
            moves,
            keep_tombstones,
            victims,
            above,
            room_bytes,
        })
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.outlook.room.is_none_or(|room| bytes <= room.left_bytes())
    }

    /// What is left of `runs` when they are one, bytes at the most; 0 where room is not known. Only ranges are known to take something
    /// away of runs; and tombstones of what lies below, where it was not thinned.
    fn left_bytes(&self, runs: &[Run]) -> u64 {
        if self.outlook.room.is_none() {
            return 0;
        }
        let left = |(at, table): (usize, &Arc<Table>)| {
            let is_below = at + 1 == runs.len() && self.claims.thinned(table.id()).is_none();
            let hidden = thin::hidden(table, &runs[..at], |newer| match is_below {
                true => newer.properties().tombstones,
                false => 0,
            });
            scale(table.file_bytes(), thin::WHOLE - hidden, thin::WHOLE)
        };
        let tables = runs.iter().enumerate().flat_map(|(at, run)| run.iter().map(move |t| (at, t)));
        tables.map(left).sum()
    }

    /// The table of which most is hidden of those that find room, to be written anew without that. `at_all`: whatever is newer may
    /// hide something; else only what tombstones hide counts.
    fn thin(&self, at_all: bool) -> Option<Pick> {
        let levels = (1..=LEVELS).flat_map(|at| self.level(at).iter().map(move |t| (at, t)));
        let room = self.outlook.room.map_or(u64::MAX, |room| room.for_thinning());
        let weigh = |(level, table): (usize, &Arc<Table>)| {
            let above = thin::above(self.tables(), level, table);
            // What older ones hid is gone already.
            let thinned_by = self.claims.thinned(table.id());
            let is_new = |newer: &Arc<Table>| thinned_by.is_none_or(|by| newer.id() > by);
            let readable = above.iter().flatten().all(|newer| self.is_readable(newer));
            let hidden = thin::hidden(table, &above, |newer: &Arc<Table>| match at_all {
                _ if !is_new(newer) => 0,
                true => newer.properties().entries,
                false => newer.properties().tombstones,
            });
            let is_new = above.iter().flatten().any(is_new);
            let bytes = scale(table.file_bytes(), hidden, thin::WHOLE);
            let left = table.file_bytes().saturating_sub(bytes);
            let is_worth = hidden >= LEAST_HIDDEN && left <= room;
            (is_new && readable && is_worth).then(|| (bytes, level, table.clone(), above))
        };
        let mut found: Vec<_> = levels.filter_map(weigh).collect();
        found.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        let is_awaited = self.outlook.goal.is_some();
        let turn = Turn::new(DUE, is_awaited, false, self.outlook.first);
        found.into_iter().find_map(|(_, level, table, above)| {
            let pick = self.finish(level, level, vec![vec![table]])?;
            Some(Pick { above, turn, ..pick })
        })
    }
}

/// The bytes of a table but for blocks that the ranges of a newer one cover.
fn uncovered(table: &Table, newer: &Table) -> u64 {
    table.file_bytes() - table.covered_between(&[], None, newer.ranges()).min(table.file_bytes())
}
