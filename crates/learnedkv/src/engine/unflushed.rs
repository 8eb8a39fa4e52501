//! Which keyspaces hold operations that no table has: of many most are idle, and nobody looks at those.
//!
//! Those with sealed memtables the View knows. Those whose active memtable holds something are
//! [`Touched`]: a keyspace is added before its memtable gets its first operation, and taken out after the
//! View shows that memtable sealed, both under `commit`. So who reads what is touched first, and takes the View
//! then, misses none that held something when he began.
//!
//! Thousands may be touched, and each edit asks what the oldest of it is: so they stand in the order of the number that was
//! visible when each was. Commits are given higher ones, and touch one after the other. Nothing here asks the log what it
//! has given out: who drops a keyspace may hold what says that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::{Engine, lock};
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::memtable::Memtable;
use crate::view::{KeyspaceView, View};

/// The keyspaces whose active memtables hold something, or will in a moment.
#[derive(Debug, Default)]
pub struct Touched(Mutex<ByAge>);

/// Those keyspaces in the order in which they got their first operations.
#[derive(Debug, Default)]
struct ByAge {
    /// No operation in the active memtable of each lies below.
    from: BTreeMap<KeyspaceId, SequenceNumber>,
    /// The same the other way round.
    order: BTreeSet<(SequenceNumber, KeyspaceId)>,
}

impl ByAge {
    /// One that is there stays where it is.
    fn insert(&mut self, id: KeyspaceId, from: SequenceNumber) {
        let from = *self.from.entry(id).or_insert(from);
        self.order.insert((from, id));
    }

    fn remove(&mut self, id: KeyspaceId) {
        if let Some(from) = self.from.remove(&id) {
            self.order.remove(&(from, id));
        }
    }
}

impl Touched {
    /// Those of a View that was just recovered.
    pub fn of(view: &View) -> Touched {
        let mut touched = ByAge::default();
        for keyspace in view.keyspaces.values().filter(|k| !k.active.is_empty()) {
            touched.insert(keyspace.id, keyspace.active.first_sequence());
        }
        Touched(Mutex::new(touched))
    }

    /// `active` takes an operation next, above all that is `visible`. Under `commit`.
    pub(super) fn touch(&self, id: KeyspaceId, active: &Memtable, visible: SequenceNumber) {
        if active.is_empty() {
            lock(&self.0).insert(id, visible + 1);
        }
    }

    /// Whether there is none.
    pub(super) fn is_none(&self) -> bool {
        lock(&self.0).from.is_empty()
    }

    /// The View shows their memtables sealed, or them no more. Under `commit`, or once they were dropped.
    pub(super) fn forget(&self, ids: impl Iterator<Item = KeyspaceId>) {
        let mut touched = lock(&self.0);
        ids.for_each(|id| touched.remove(id));
    }
}

impl Engine {
    /// Looks at the keyspaces that hold operations which no table has, each once. There may be thousands: none is
    /// copied, and who has seen enough stops.
    pub(super) fn look_at_unflushed<T>(
        &self,
        look: impl FnOnce(&mut dyn Iterator<Item = &Arc<KeyspaceView>>) -> T,
    ) -> T {
        // In this order: see the module page.
        let touched = lock(&self.touched.0);
        let view = self.view();
        let others = view.keyspaces.with_sealed().filter(|k| !touched.from.contains_key(&k.id));
        look(&mut touched.from.keys().filter_map(|id| view.keyspaces.get(id)).chain(others))
    }

    /// Looks at the keyspaces whose active memtables hold something, oldest first, each with a number such that no operation in those that
    /// were not seen by then lies below: of thousands the first say what is oldest. And at the View that shows what is sealed.
    fn look_at_oldest<T>(
        &self,
        look: impl FnOnce(&View, &mut dyn Iterator<Item = (SequenceNumber, &Arc<KeyspaceView>)>) -> T,
    ) -> T {
        let touched = lock(&self.touched.0);
        let view = self.view();
        let touched = touched.order.iter();
        let mut touched = touched.filter_map(|(from, id)| Some((*from, view.keyspaces.get(id)?)));
        look(&view, &mut touched)
    }

    /// The keyspaces that have nothing sealed, and operations up to `up_to` that no table has.
    pub(super) fn idle_since(&self, up_to: SequenceNumber) -> Vec<KeyspaceId> {
        self.look_at_oldest(|_, touched| {
            let old = touched.take_while(|(from, _)| *from <= up_to).map(|(_, keyspace)| keyspace);
            let idle = old.filter(|keyspace| keyspace.sealed.is_empty());
            let pins = |first: SequenceNumber| first <= up_to;
            idle.filter(|k| k.oldest_unflushed().is_some_and(pins)).map(|k| k.id).collect()
        })
    }

    /// Whether an edit that flushes memtables up to `up_to`, all of which is visible, may become durable
    /// before the log is. It may if the log then needs no record up to there: every memtable that does not
    /// go, by this edit or before it, holds later ones alone, so no batch can tear, and no segment that stays has one, so
    /// recovery begins behind it. Once true it stays so: only later records are still to come.
    pub fn needs_no_log(
        &self,
        up_to: SequenceNumber,
        goes: impl Fn(KeyspaceId, &Arc<Memtable>) -> bool,
    ) -> bool {
        self.log.ends_at(up_to)
            && self.look_at_oldest(|view, touched| {
                let mut old = touched.take_while(|(from, _)| *from <= up_to);
                let stays = |(_, keyspace): (_, &Arc<KeyspaceView>)| {
                    let active = &keyspace.active;
                    let is_old = !active.is_empty() && active.first_sequence() <= up_to;
                    is_old && !goes(keyspace.id, active)
                };
                let mut sealed = view.keyspaces.sealed_begun_by(up_to);
                !old.any(stays) && sealed.all(|(keyspace, s)| goes(keyspace.id, &s.memtable))
            })
    }

    /// What the log may forget once the View shows neither a memtable that was flushed nor a keyspace that was
    /// dropped, given that edits are held.
    pub fn oldest_needed(&self, without: Without<'_>) -> SequenceNumber {
        // Whatever is reserved later is above `reserved`, read before the View. Commits that are under way stay in the
        // log, also where nobody will need them: their keyspace may just have been dropped.
        let next = self.log.reserved().min(self.log.visible()) + 1;
        let stays = |keyspace: &KeyspaceView, memtable: &Arc<Memtable>| match without {
            Without::Keyspace(id) => keyspace.id != id,
            Without::Memtables(gone) => !gone.iter().any(|gone| Arc::ptr_eq(gone, memtable)),
        };
        self.look_at_oldest(|view, touched| {
            let sealed = view.keyspaces.oldest_sealed(|keyspace| {
                keyspace.sealed.iter().rev().find(|sealed| stays(keyspace, &sealed.memtable))
            });
            let next = sealed.map_or(next, |(_, sealed)| next.min(sealed.first_sequence()));
            let first = |keyspace: &KeyspaceView| {
                let stays = stays(keyspace, &keyspace.active) && !keyspace.active.is_empty();
                stays.then(|| keyspace.active.first_sequence())
            };
            least(next, touched.map(|(from, keyspace)| (from, first(keyspace))))
        })
    }
}

/// The least of `least` and the numbers of `all`, each of which comes with one that it and all later ones do not lie below.
fn least(
    least: SequenceNumber,
    all: impl Iterator<Item = (SequenceNumber, Option<SequenceNumber>)>,
) -> SequenceNumber {
    let mut least = least;
    for (from, number) in all {
        if from >= least {
            break;
        }
        least = number.map_or(least, |number| number.min(least));
    }
    least
}

/// What goes with an edit.
#[derive(Debug, Clone, Copy)]
pub enum Without<'a> {
    /// Memtables: they are flushed.
    Memtables(&'a [Arc<Memtable>]),
    /// A keyspace: it is dropped.
    Keyspace(KeyspaceId),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::executor::SeededExecutor;
    use crate::format::checksum::mix;
    use crate::{Database, KeyspaceOptions};

    #[test]
    fn who_looks_for_the_oldest_does_not_look_at_all() {
        // Behind the third none can be older than the second.
        let seen = [(0, None), (3, Some(9)), (7, Some(8)), (8, Some(8)), (9, Some(9))];
        let mut looks = 0;
        let looking = seen.into_iter().inspect(|_| looks += 1);
        assert_eq!((least(20, looking), looks), (8, 4));
        assert_eq!(least(5, seen.into_iter()), 5);
    }

    struct Bench {
        db: Database,
        random: u64,
        made: u64,
    }

    impl Bench {
        fn below(&mut self, n: u64) -> u64 {
            self.random += 1;
            mix(self.random) % n
        }

        fn step(&mut self) {
            let db = self.db.clone();
            let ids: Vec<_> = db.engine().view().keyspaces.values().map(|k| k.id).collect();
            let id = ids.get(self.below(ids.len().max(1) as u64) as usize).copied();
            let name = |id: KeyspaceId| db.engine().keyspace(id).unwrap().name.to_string();
            match (self.below(20), id) {
                (0, Some(id)) => _ = db.engine().rotate(id).unwrap(),
                (1, Some(id)) => db.find(&name(id)).unwrap().flush().unwrap(),
                (2, Some(id)) if ids.len() > 5 => db.drop_keyspace(&name(id)).unwrap(),
                (3..6, _) if ids.len() < 30 => {
                    self.made += 1;
                    let name = format!("k{}", self.made);
                    db.keyspace(&name, KeyspaceOptions::default()).unwrap();
                }
                (_, Some(id)) => {
                    let mut batch = db.batch();
                    let others =
                        (0..self.below(3)).map(|_| ids[self.below(ids.len() as u64) as usize]);
                    for id in [id].into_iter().chain(others.collect::<Vec<_>>()) {
                        batch.insert(&db.find(&name(id)).unwrap(), "key", "value");
                    }
                    batch.commit().unwrap();
                }
                _ => {}
            }
        }

        /// What the engine says, and what looking at every keyspace says.
        fn check(&mut self, at: &str) {
            let engine = self.db.engine().clone();
            let view = engine.view();
            let all: Vec<_> = view.keyspaces.values().collect();
            let next = engine.log.visible() + 1;
            let up_to = engine.log.visible().saturating_sub(self.below(40));
            let firsts = |keyspace: &KeyspaceView, gone: &[Arc<Memtable>]| {
                let is_gone = |memtable| gone.iter().any(|gone| Arc::ptr_eq(gone, memtable));
                let memtables = keyspace.memtables().filter(|m| !m.is_empty() && !is_gone(m));
                memtables.map(|m| m.first_sequence()).min()
            };
            let idle = all.iter().filter(|k| k.sealed.is_empty());
            let idle = idle.filter(|k| firsts(k, &[]).is_some_and(|first| first <= up_to));
            let mut found = engine.idle_since(up_to);
            found.sort_unstable();
            assert_eq!(found, idle.map(|k| k.id).collect::<Vec<_>>(), "{at}: up to {up_to}");
            for without in &all {
                let gone: Vec<_> = without.memtables().cloned().collect();
                let expected = all.iter().filter_map(|k| firsts(k, &gone)).fold(next, u64::min);
                assert_eq!(engine.oldest_needed(Without::Memtables(&gone)), expected, "{at}");
                assert_eq!(engine.oldest_needed(Without::Keyspace(without.id)), expected, "{at}");
                let goes = |id, _: &Arc<Memtable>| id == without.id;
                let expected = engine.log.ends_at(up_to) && expected > up_to;
                assert_eq!(engine.needs_no_log(up_to, goes), expected, "{at}: up to {up_to}");
            }
        }
    }

    #[test]
    fn what_is_unflushed_is_what_a_look_at_all_finds() {
        for seed in 0..6 {
            let (disk, mut made) = (SimDisk::new(seed), 0);
            for life in 0..3 {
                let db = Database::builder("/db")
                    .disk(Arc::new(disk.clone()))
                    .executor(Arc::new(SeededExecutor::new(seed)))
                    .memtable_bytes(16 << 10)
                    .memory_budget_bytes(1 << 20)
                    .log_segment_bytes(16 << 10)
                    .open()
                    .unwrap();
                let mut bench = Bench { db, random: (seed * 3 + life) << 32, made };
                for step in 0..200 {
                    bench.check(&format!("seed {seed}, life {life}, step {step}"));
                    bench.step();
                }
                made = bench.made;
            }
        }
    }

    /// A conversion seals a memtable in the midst of a segment; that was full in the midst of the next memtable, and so on: each
    /// of a dozen flushes waited until the beginning of the segment after it was synced.
    #[test]
    fn a_memtable_sealed_early_does_not_have_all_others_need_the_log() {
        let db = Database::builder("/db")
            .disk(Arc::new(SimDisk::new(1)))
            .executor(Arc::new(SeededExecutor::new(1)))
            .memtable_bytes(256 << 10)
            .memory_budget_bytes(4 << 20)
            .log_segment_bytes(256 << 10)
            .open()
            .unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let put = |count: u32| {
            for key in 0..count {
                keyspace.insert(key.to_be_bytes(), [7; 400]).unwrap();
                db.engine().executor.yield_now();
            }
        };
        put(240);
        keyspace.flush().unwrap();
        let before = db.stats();
        put(6000);
        db.wait_idle().unwrap();
        let after = db.stats();
        let flushes = after.flushes - before.flushes;
        let unlogged = after.unlogged_flushes - before.unlogged_flushes;
        assert!(flushes >= 8 && flushes - unlogged <= 1, "{unlogged} of {flushes}");
    }
}
