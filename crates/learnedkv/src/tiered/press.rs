//! How hard pressed a keyspace is: what writers pay for ([`crate::engine::pace`]).
//!
//! Three debts press, and the heaviest counts:
//! * **Space** that is neither live nor promised: garbage, and what a sweep has settled and cannot give back
//!   yet; and what waits behind a flush, which becomes that all at once where it overwrites, however long the flush takes. A sweep is due at the latest where garbage is `over_provision` of what is live (or `min_conversion`, if
//!   that is more); the ceiling is `over_provision` twice, and two partitions. Writers begin to pay a little before the sweep
//!   begins, and pay [`FULL`] three partitions and a quarter before the ceiling: what steps have written and no edit has, two, each an
//!   eighth larger than it should be, and what memtables hold is still to come. So what is put
//!   while a sweep runs is no more than the sweep gives back, whatever both rates are. (Three fortieths beyond where a sweep
//!   begins at the least: where `min_conversion` is most of what the ceiling leaves, that is nearer to it, and where it
//!   is more, beyond it.)
//! * **Fresh data** that waits to be settled, beyond several times what begins a sweep.
//! * **Runs** that wait to be merged: each costs every lookup.
//!
//! Nobody pays where settling finds no room on the disk: no time would help. Flushes go on until the disk refuses one, and then
//! whoever puts is told (decision 13).
//!
//! Nobody is slowed by garbage where no sweep is under way or due, or sweeps are not to begin by themselves. (One that is
//! stuck, because something cannot be read, presses: else space had no ceiling.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use super::debt::{Debt, Space, share};
use crate::engine::pace::FULL;
use crate::engine::{Engine, Work};
use crate::executor::{Job, Step};
use crate::format::entry::KeyspaceId;
use crate::lsm::merge::MAX_RUNS_WHILE_FLUSHING;
use crate::options::{KeyspaceOptions, Store};
use crate::view::{KeyspaceView, Question, Tables};

/// Garbage, per mille of what begins a sweep: where writers begin to pay, and where they pay [`FULL`], at the least
/// and at most.
const SPACE: (u64, [u64; 2]) = (975, [1075, 1350]);
/// Fresh data, likewise.
const FRESH: (u64, u64) = (4000, 12_000);
/// Runs: as many as wait at most while there is time to merge them, and twice that.
const RUNS: (u64, u64) = (MAX_RUNS_WHILE_FLUSHING as u64 + 2, 2 * MAX_RUNS_WHILE_FLUSHING as u64);
/// Looks whenever tables have changed.
pub struct PressJob {
    engine: Arc<Engine>,
    seen: BTreeMap<KeyspaceId, Seen>,
}

/// What was seen of a keyspace last, and how pressed it was. Nobody's files are held for that.
struct Seen {
    tables: Weak<Tables>,
    sealed_bytes: u64,
    lacks_room: bool,
    pressure: u64,
}

impl PressJob {
    /// A job that looks at the keyspaces of `engine`.
    pub fn new(engine: &Arc<Engine>) -> PressJob {
        PressJob { engine: engine.clone(), seen: BTreeMap::new() }
    }
}

impl PressJob {
    /// What stands in memtables behind the one that is being flushed, which is so in the usual course. Where that failed nobody is to pay for it:
    /// whoever fills what memory is left is told.
    fn waiting_bytes(&self, keyspace: &KeyspaceView) -> u64 {
        if self.engine.health.work_error(Work::Flush(keyspace.id)).is_some() {
            return 0;
        }
        let oldest_first = keyspace.sealed.iter().rev();
        oldest_first.skip(1).map(|sealed| sealed.memtable.put_bytes()).sum()
    }
}

impl Job for PressJob {
    fn name(&self) -> &'static str {
        "press"
    }

    fn step(&mut self) -> Step {
        let view = self.engine.view();
        self.engine.press_none_but(|id| view.keyspaces.contains_key(&id));
        let automatic = self.engine.options.automatic_conversion;
        // Those that have come to rest are looked at until they press no more; of those that are idle there may be very many.
        let may_press = view.keyspaces.answering(Question::Presses, 0, may_press);
        let mut ids: BTreeSet<_> = may_press.iter().map(|k| k.id).collect();
        self.seen.retain(|id, seen| ids.contains(id) || seen.pressure > 0);
        ids.extend(self.seen.keys());
        for id in ids {
            let Some(keyspace) = view.keyspaces.get(&id) else {
                self.seen.remove(&id);
                continue;
            };
            let tables = &keyspace.tables;
            let sealed_bytes = self.waiting_bytes(keyspace);
            let lacks_room = self.engine.lacks_room_to_settle(id);
            let is_known = |seen: &Seen| {
                std::ptr::eq(seen.tables.as_ptr(), &**tables)
                    && (seen.sealed_bytes, seen.lacks_room) == (sealed_bytes, lacks_room)
            };
            if self.seen.get(&id).is_some_and(is_known) {
                continue;
            }
            let pressure = match lacks_room {
                true => 0,
                false => pressure(tables, sealed_bytes, &keyspace.options, automatic),
            };
            let seen = Seen { tables: Arc::downgrade(tables), sealed_bytes, lacks_room, pressure };
            let before = self.seen.insert(id, seen);
            if before.map_or(0, |before| before.pressure) != pressure {
                self.engine.press(id, pressure);
            }
        }
        Step::Wait
    }
}

/// Whether a keyspace may press, by what it holds.
fn may_press(keyspace: &KeyspaceView) -> bool {
    let (tables, options) = (&keyspace.tables, &keyspace.options);
    options.chosen_store() == Store::Tiered
        && (keyspace.sealed.len() > 1 || pressure(tables, 0, options, true) > 0)
}

/// 0 at `from`, [`FULL`] at `to` and above.
fn between(value: u64, (from, to): (u64, u64)) -> u64 {
    let above = value.saturating_sub(from);
    (u128::from(above) * u128::from(FULL) / u128::from(to - from)).min(u128::from(FULL)) as u64
}

fn permille(part: u64, whole: u64) -> u64 {
    let share = u128::from(part) * 1000 / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// How hard garbage presses, `sealed_bytes` of which are still to come.
fn by_space(space: &Space, sealed_bytes: u64, options: &KeyspaceOptions) -> u64 {
    let over_provision = share(space.live, options.over_provision());
    let promised = over_provision.max(options.min_conversion());
    let (from, [least, most]) = SPACE;
    // Three partitions and a quarter before the ceiling.
    let before = options.partition().saturating_add(options.partition() / 4);
    let end = over_provision.saturating_mul(2).saturating_sub(before);
    let full = permille(end, promised).clamp(least, most);
    let garbage = space.garbage().saturating_add(sealed_bytes);
    between(permille(garbage, promised), (from, full))
}

fn pressure(tables: &Tables, sealed_bytes: u64, options: &KeyspaceOptions, automatic: bool) -> u64 {
    let runs = between(tables.runs.len() as u64, RUNS);
    if !automatic {
        return runs;
    }
    let (debt, space) = (Debt::of(tables), Space::of(tables));
    let settles_at = share(debt.settled, options.lsm_ratio()).max(options.min_conversion());
    let is_given_back = tables.frozen.is_some() || debt.is_due(options, false);
    let space = match is_given_back {
        true => by_space(&space, sealed_bytes, options),
        false => 0,
    };
    let fresh = between(permille(debt.fresh, settles_at), FRESH);
    runs.max(space).max(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use crate::disk::sim::SimDisk;
    use crate::error::{Error, ErrorKind};
    use crate::executor::SeededExecutor;
    use crate::format::batch::Op;
    use crate::format::entry::Kind;
    use crate::memtable::Memtable;
    use crate::tiered::plan::stretched;
    use crate::tiered::testing::Without;
    use crate::view::Sealed;

    /// A quarter of a partition beyond was too late, for ten minutes of updates: space went beyond its ceiling.
    #[test]
    fn garbage_presses_from_where_a_sweep_soon_begins() {
        let options =
            KeyspaceOptions::default().partition_bytes(100_000).min_conversion_bytes(1_000_000);
        let pressure =
            |garbage: u64| by_space(&Space { used: 50_000 + garbage, live: 50_000 }, 0, &options);
        assert_eq!([0, 975_000, 1_075_000].map(pressure), [0, 0, FULL]);
        assert!(pressure(976_000) > 0 && pressure(1_074_000) < FULL);
    }

    /// Where the disk stood still for a moment three memtables were full before a byte cost more, and all of them garbage then.
    #[test]
    fn what_waits_to_be_flushed_presses_as_what_was_flushed() {
        let options =
            KeyspaceOptions::default().partition_bytes(100_000).min_conversion_bytes(1_000_000);
        let pressure = |garbage: u64, sealed_bytes: u64| {
            by_space(&Space { used: 50_000 + garbage, live: 50_000 }, sealed_bytes, &options)
        };
        assert_eq!([pressure(975_000, 0), pressure(900_000, 75_000)], [0, 0]);
        assert_eq!(pressure(1_030_000, 0), pressure(970_000, 60_000));
        assert!((1..FULL).contains(&pressure(1_030_000, 0)));
        assert_eq!(pressure(1_000_000, 100_000), FULL);
    }

    /// Of a keyspace with so many memtables sealed, of 100 bytes each.
    fn waiting_bytes(job: &PressJob, sealed: u64) -> u64 {
        let engine = &job.engine;
        let mut keyspace = KeyspaceView::clone(engine.view().keyspaces.get(&1).unwrap());
        keyspace.sealed = (0..sealed)
            .map(|up_to| {
                let memtable = Memtable::default();
                let (kind, key_and_value) = (Kind::Value, &[7; 100][..]);
                let op = Op { keyspace: 1, kind, key_and_value, start: 0, key_length: 10 };
                memtable.insert_copy(&op, up_to);
                Sealed { memtable: Arc::new(memtable), up_to }
            })
            .collect();
        job.waiting_bytes(&keyspace)
    }

    /// The one that is being flushed is there in the usual course: writers would have paid at each rotation.
    #[test]
    fn memtables_behind_the_one_that_is_flushed_wait_unless_flushes_fail() {
        let db = Database::builder("/db")
            .disk(Arc::new(SimDisk::new(1)))
            .executor(Arc::new(SeededExecutor::new(1)))
            .open()
            .unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let job = PressJob::new(db.engine());
        assert_eq!([0, 1, 2, 4].map(|sealed| waiting_bytes(&job, sealed)), [0, 0, 100, 300]);
        let failed = Err(Error::new(ErrorKind::Io, "a flush failed"));
        let health = &db.engine().health;
        health.note(Work::Flush(1), &failed, health.asked());
        assert_eq!(waiting_bytes(&job, 4), 0);
        drop(keyspace);
    }

    /// Merges found no room, again and again, and each writer paid for the runs: a hundred puts a second, for minutes, where a full disk is
    /// to refuse them.
    #[test]
    fn nobody_pays_where_settling_finds_no_room() {
        let disk = SimDisk::new(1);
        let builder = Database::builder("/db").disk(Arc::new(disk)).memtable_bytes(64 << 10);
        let builder = builder.executor(Arc::new(Without::settling()));
        let db = builder.memory_budget_bytes(4 << 20).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().min_conversion_bytes(64 << 10));
        let keyspace = keyspace.unwrap();
        for number in 0..3000_u32 {
            keyspace.insert(number.to_be_bytes(), [7; 1000]).unwrap();
        }
        keyspace.flush().unwrap();
        let mut job = PressJob::new(db.engine());
        let mut pressed = || {
            job.step();
            db.engine().pace.pressure(1)
        };
        assert!(pressed() > 0);
        for (kind, presses) in [(ErrorKind::DiskFull, false), (ErrorKind::Io, true)] {
            let failed = Err(Error::new(kind, "a merge failed"));
            let health = &db.engine().health;
            health.note(Work::Settle(1), &failed, health.asked());
            assert_eq!(pressed() > 0, presses, "{kind:?}");
        }
    }

    /// What the memtables held went beyond the ceiling, on top of what steps had written: of one step, and of one with
    /// another ahead of it. Where `min_conversion` is most of what is allowed there is room for the first only.
    #[test]
    fn the_price_is_full_before_steps_and_memtables_reach_the_ceiling() {
        let options =
            KeyspaceOptions::default().partition_bytes(67_000).min_conversion_bytes(530_000);
        let partition = options.partition();
        let (step, memtable) = (stretched(partition), partition / 2);
        for (live, uncommitted) in
            [(1_000_000, step + memtable), (1_150_000, 2 * step + 2 * memtable)]
        {
            let pressure =
                |garbage: u64| by_space(&Space { used: live + garbage, live }, 0, &options);
            let ceiling = 2 * share(live, options.over_provision()) + 2 * partition;
            assert_eq!(pressure(ceiling - uncommitted), FULL, "{live}");
            assert!(pressure(ceiling - uncommitted - partition) < FULL, "{live}: not long before");
        }
    }

    /// What begins a sweep was a share of what is settled, what presses one of what is live: whoever removed
    /// a quarter of it paid the full price for hours, while no sweep was due.
    #[test]
    fn garbage_that_presses_makes_a_sweep_due() {
        let options = KeyspaceOptions::default().partition_bytes(1000);
        let mut pressed = 0;
        for (settled, fresh) in
            [(0, 1 << 30), (2 << 30, 30 << 20), (10 << 30, 1 << 20), (10 << 30, 3 << 30)]
        {
            for percent in (0..=100).step_by(3) {
                for min_conversion in [0, 512 << 20] {
                    let options = options.clone().min_conversion_bytes(min_conversion);
                    let (shadowed, covered) = (settled / 100 * percent, settled / 300 * percent);
                    let dead = settled / 200 * percent;
                    let of = Debt { fresh, settled, ..Debt::default() };
                    for debt in [
                        Debt { shadowed, ..of },
                        Debt { covered, ..of },
                        Debt { dead, ..of },
                        Debt { overwritten: fresh / 100 * percent, ..of },
                        Debt { covered, dead, shadowed: shadowed / 2, ..of },
                        Debt { replaced: shadowed / 4, ..of },
                        Debt { replaced: shadowed / 4, dead, shadowed: shadowed / 2, ..of },
                    ] {
                        let used = settled + fresh + debt.dead;
                        let space = Space { used, live: used.saturating_sub(debt.garbage()) };
                        // Below it is pressed only where one is under way.
                        let promised = share(space.live, options.over_provision());
                        let promised = promised.max(options.min_conversion());
                        let is_pressed = permille(space.garbage(), promised) > 1000;
                        assert!(!is_pressed || by_space(&space, 0, &options) > 0, "{debt:?}");
                        assert!(!is_pressed || debt.is_due(&options, false), "{debt:?}");
                        pressed += u64::from(is_pressed);
                    }
                }
            }
        }
        assert!(pressed > 300, "{pressed}");
    }

    #[test]
    fn pressure_rises_from_nothing_to_full_and_has_an_end() {
        let ends = (1000, 1350);
        assert_eq!([0, 1000, 1001, 1350].map(|g| between(g, ends)), [0, 0, 2, FULL]);
        assert_eq!(between(u64::MAX, ends), FULL);
        assert_eq!(permille(u64::MAX, 0), u64::MAX);
    }

    /// After each change of tables it looked at all that was not settled, which thousands of idle keyspaces are.
    #[test]
    fn nobody_looks_at_what_presses_nobody() {
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = db.executor(Arc::new(Without::settling())).open().unwrap();
        let make = |n: u32| db.keyspace(&format!("{n}"), KeyspaceOptions::default()).unwrap();
        let keyspaces: Vec<_> = (0..70).map(make).collect();
        keyspaces.iter().for_each(|keyspace| keyspace.insert("key", "value").unwrap());
        db.flush().unwrap();
        let mut job = PressJob::new(db.engine());
        let mut seen = || {
            job.step();
            job.seen.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(seen(), []);
        for run in 0..RUNS.0 {
            keyspaces[66].insert("key", run.to_string()).unwrap();
            keyspaces[66].flush().unwrap();
        }
        let pressing = keyspaces[66].id();
        assert_eq!(seen(), [pressing]);
        assert!(db.engine().pace.pressure(pressing) > 0);
    }
}
