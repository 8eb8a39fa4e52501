//! What is compacted next: of the levels that are due the one most beyond its size; of it the table that
//! overlaps the least of the level below, for its size.
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
//! it is reached whatever others write meanwhile.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::levels::{DUE, Shape, run_bytes};
use super::{garbage, thin};
use crate::engine::Health;
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

/// So much is written whatever the disk says of its room: what leaves next to nothing gives back all it took,
/// and file systems keep some that they do not tell of.
const LITTLE_BYTES: u64 = 64 << 10;

/// A table is thinned where so much of it is hidden, in parts of [`thin::WHOLE`]: where there is no room for
/// what is due; and where tombstones hide it, on any full disk.
const LEAST_HIDDEN: u64 = 60;
const MUCH_HIDDEN: u64 = 250;

/// A table removes much where one in so many of its entries is a tombstone, at the least.
const TOMBSTONES: u64 = 10;

/// A table is not to lie over more than so many times as much of the level below.
pub const MOST_BELOW: u64 = 10;

/// What one compaction does.
pub struct Pick {
    /// How much it is due.
    pub score: u64,
    /// The level that tables are taken from; 0 are the runs.
    pub from: usize,
    /// The level that tables are written to.
    pub to: usize,
    /// What is taken, newest first; the last of them, if it is not empty, from level `to`.
    pub runs: Vec<Run>,
    /// What it works at.
    pub claim: Claim,
    /// The tables go down as they are.
    pub moves: bool,
    /// Older data may lie below.
    pub keep_tombstones: bool,
    /// Values in these segments are written anew.
    pub victims: Arc<BTreeSet<u64>>,
    /// What is newer than a table that is thinned, newest first; else nothing.
    pub above: Vec<Run>,
}

/// What somebody waits for: that the old tables of a level go as far down as they must. Of level 0 all, of
/// one above the last those beyond its size, and those that remove much; the last stands for value segments that are mostly dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// The level.
    pub level: usize,
    /// Tables and value segments of smaller numbers are old.
    pub before: TableId,
}

/// What a look goes by besides the tables and the claims.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outlook<'a> {
    /// What could not be read is left alone; `None`: as if all could be.
    pub health: Option<&'a Health>,
    /// What somebody waits for.
    pub goal: Option<Goal>,
    /// `None`: as if there were no end of it.
    pub room: Option<Space>,
    /// How large the disk is that sizes go by; `None`: a large one.
    pub disk_bytes: Option<u64>,
}

/// How much room there is on the disk.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// For what is written, bytes, besides what flushes need.
    pub free_bytes: u64,
    /// For values that are moved out of mostly dead segments, and the tables that point there, bytes.
    pub moving_bytes: u64,
    /// Whether puts are refused.
    pub is_full: bool,
}

/// What a look came to.
pub enum Found {
    /// There is nothing to do, or others do it.
    Nothing,
    /// This is to be done.
    Work(Box<Pick>),
    /// There is something to do, and no room for it.
    NoRoom,
}

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
}

impl<'a> Picker<'a> {
    /// Looks at `view`, of which `claims` are held.
    pub fn new(view: &'a KeyspaceView, claims: &'a Claims, outlook: Outlook<'a>) -> Picker<'a> {
        let sizes = Sizes::of(&view.options, outlook.disk_bytes);
        let shape = Shape::of(&view.tables, &view.options, sizes);
        let is_full = outlook.room.is_some_and(|room| room.is_full);
        let mut victims = victims(view, outlook.goal.is_some(), is_full);
        let health = outlook.health;
        victims.retain(|segment| health.is_none_or(|h| claims.avoids(*segment, h).is_none()));
        let all_victims = victims.clone();
        let (mut moved_bytes, mut lacks_room) = (0, false);
        if let Some(room) = outlook.room.filter(|_| !victims.is_empty()) {
            (victims, moved_bytes) = that_fit(view, victims, room.moving_bytes);
            // Nobody is told that garbage stays for now but who asks for it to go.
            lacks_room = victims.is_empty() && !is_full && outlook.goal.is_some();
        }
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
        let lacks_room = self.lacks_room.get();
        let thins = pick.is_none() && (is_full || lacks_room);
        match pick.or_else(|| if thins { self.thin(lacks_room) } else { None }) {
            Some(pick) => Found::Work(Box::new(pick)),
            // Others may make room.
            None if lacks_room && self.claims.is_empty() => Found::NoRoom,
            None => Found::Nothing,
        }
    }

    fn due(&self) -> Option<Pick> {
        let mut due: Vec<(u64, usize)> = (0..LEVELS)
            .map(|level| (self.score(level), level))
            .filter(|(score, _)| *score >= DUE)
            .collect();
        due.sort_unstable_by_key(|(score, level)| (std::cmp::Reverse(*score), *level));
        if let Some(goal) = self.outlook.goal.filter(|goal| goal.level == LEVELS)
            && let Some(pick) = self.in_place(goal.before)
        {
            return Some(pick);
        }
        let of_level = |(score, level): (u64, usize)| match level {
            0 => self.of_runs(score),
            _ => self.table_of(level, score),
        };
        due.into_iter().find_map(of_level).or_else(|| self.in_place(TableId::MAX))
    }

    fn score(&self, level: usize) -> u64 {
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
        let wanted =
            || self.outlook.goal.is_some_and(|goal| goal.level == 0 && !self.is_reached(goal));
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
        let goal = self.outlook.goal.filter(|goal| goal.level == level);
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
    fn oldest_run(&self, score: u64) -> Option<Pick> {
        let run = self.tables().fresh().last()?;
        let small = self.sizes.table_bytes / LEAST_MOVED * run.len() as u64;
        if run_bytes(run) < small {
            return None;
        }
        self.finish(score, 0, self.base(), vec![run.clone()]).filter(|pick| pick.moves)
    }

    /// All runs, or the oldest alone: if it goes as it is, and if there is no room for all.
    fn of_runs(&self, score: u64) -> Option<Pick> {
        let of = |runs: &[Run]| self.finish(score, 0, self.base(), runs.to_vec());
        let fresh = self.tables().fresh();
        let oldest = || of(&fresh[fresh.len().saturating_sub(1)..]);
        let all = || of(fresh).or_else(|| oldest().filter(|_| self.lacks_room.get()));
        self.oldest_run(score).or_else(all)
    }

    /// The table of a level whose compaction writes least for what it brings down; one that somebody
    /// waits for before others.
    fn table_of(&self, level: usize, score: u64) -> Option<Pick> {
        let below = self.tables().levels().get(level);
        let price = |table: &Arc<Table>| {
            let below = below.map_or(&[][..], |below| Extent::of(table).of_run(below));
            let bytes: u64 = below.iter().map(|below| uncovered(below, table)).sum();
            u128::from(bytes) * 1000 / u128::from(table.file_bytes().max(1))
        };
        let goal = self.outlook.goal.filter(|goal| goal.level == level);
        let waits = |table: &Arc<Table>| goal.is_some_and(|goal| table.id() < goal.before);
        // Where the level is not beyond its size, only those that it is due for.
        let is_beyond = self.shape.score(level, 0) >= DUE;
        let frees = |t: &Arc<Table>| self.covers_much(level, t) || self.waits_to_remove(level, t);
        let tables = self.level(level).iter().map(|t| (frees(t), t));
        let tables = tables.filter(|(covers, _)| is_beyond || *covers);
        let mut tables: Vec<_> =
            tables.map(|(covers, t)| ((!waits(t), !covers, price(t)), t)).collect();
        tables.sort_by_key(|(turn, _)| *turn);
        let pick = |(_, table): (_, &Arc<Table>)| {
            self.finish(score, level, level + 1, vec![vec![table.clone()]])
        };
        tables.into_iter().find_map(pick)
    }

    /// A table older than `before` that points into a victim, written anew where it is.
    fn in_place(&self, before: TableId) -> Option<Pick> {
        let levels = (1..=LEVELS).rev();
        let tables = levels.flat_map(|at| self.level(at).iter().map(move |table| (at, table)));
        let mut found =
            tables.filter(|(_, table)| table.id() < before && self.points_at_victim(table));
        found.find_map(|(level, table)| self.finish(DUE, level, level, vec![vec![table.clone()]]))
    }

    /// Adds what `runs` of level `from` overlap in level `to`; `None` if another job works there, or a
    /// table cannot be read.
    fn finish(&self, score: u64, from: usize, to: usize, mut runs: Vec<Run>) -> Option<Pick> {
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
        if !moves && from != to && !self.has_room(&runs, 0) {
            self.lacks_room.set(true);
            return None;
        }
        let along = || to == LEVELS && !self.is_full() && self.has_room(&runs, self.moved_bytes);
        let empties = from == to || along();
        let victims = if empties { self.victims.clone() } else { Arc::default() };
        let above = Vec::new();
        Some(Pick { score, from, to, runs, claim, moves, keep_tombstones, victims, above })
    }

    /// Whether there is room for what is left of `runs` when they are one, and so many bytes more. Only ranges are known to
    /// take something away of runs; and tombstones of what lies below, where it was not thinned.
    fn has_room(&self, runs: &[Run], more_bytes: u64) -> bool {
        let Some(room) = self.outlook.room else { return true };
        let left = |(at, table): (usize, &Arc<Table>)| {
            let is_below = at + 1 == runs.len() && self.claims.thinned(table.id()).is_none();
            let hidden = thin::hidden(table, &runs[..at], |newer| match is_below {
                true => newer.properties().tombstones,
                false => 0,
            });
            scale(table.file_bytes(), thin::WHOLE - hidden, thin::WHOLE)
        };
        let tables = runs.iter().enumerate().flat_map(|(at, run)| run.iter().map(move |t| (at, t)));
        tables.map(left).sum::<u64>() + more_bytes <= room.free_bytes.max(LITTLE_BYTES)
    }

    /// The table of which most is hidden, to be written anew without that. `at_all`: whatever is newer may
    /// hide something; else only much that tombstones hide counts.
    fn thin(&self, at_all: bool) -> Option<Pick> {
        let levels = (1..=LEVELS).flat_map(|at| self.level(at).iter().map(move |t| (at, t)));
        let weigh = |(level, table): (usize, &Arc<Table>)| {
            let above = thin::above(self.tables(), level, table);
            let is_new = self.claims.thinned(table.id()).is_none_or(|to| thin::newest(&above) > to);
            let readable = above.iter().flatten().all(|newer| self.is_readable(newer));
            let least = if at_all { LEAST_HIDDEN } else { MUCH_HIDDEN };
            let hidden = thin::hidden(table, &above, |newer: &Arc<Table>| match at_all {
                true => newer.properties().entries,
                false => newer.properties().tombstones,
            });
            let bytes = scale(table.file_bytes(), hidden, thin::WHOLE);
            (is_new && readable && hidden >= least).then(|| (bytes, level, table.clone(), above))
        };
        let mut found: Vec<_> = levels.filter_map(weigh).collect();
        found.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        found.into_iter().find_map(|(_, level, table, above)| {
            let pick = self.finish(DUE, level, level, vec![vec![table]])?;
            Some(Pick { above, ..pick })
        })
    }
}

/// The bytes of a table but for blocks that the ranges of a newer one cover.
fn uncovered(table: &Table, newer: &Table) -> u64 {
    table.file_bytes() - table.covered_between(&[], None, newer.ranges()).min(table.file_bytes())
}

/// Those of the `victims` that are emptied first where there is little room, the deadest, as long as what lives in them
/// and one of the tables that point there (they are written anew one after another) take no more than `room_bytes`; and what lives
/// in them, bytes.
fn that_fit(view: &KeyspaceView, victims: BTreeSet<u64>, room_bytes: u64) -> (BTreeSet<u64>, u64) {
    let tables = &view.tables;
    let dead = garbage::dead(tables);
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
fn victims(view: &KeyspaceView, wanted: bool, at_all: bool) -> BTreeSet<u64> {
    let (tables, options) = (&view.tables, &view.options);
    let dead: u64 = garbage::dead(tables).values().sum();
    let held = tables.all().map(|t| t.file_bytes() + t.properties().separated_bytes());
    let allowed = u128::from(held.sum::<u64>()) * u128::from(options.over_provision()) / 100;
    let worth = wanted || dead >= options.min_conversion();
    if !at_all && (!worth || u128::from(dead) <= allowed) {
        return BTreeSet::new();
    }
    garbage::mostly_dead(tables, options.over_provision())
}
