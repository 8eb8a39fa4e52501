//! One filter over all runs of a generation: what it saves, what it must not hide, and that it
//! comes and goes with its tables.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, Keyspace, KeyspaceOptions, KeyspaceStats, Snapshot};

use crate::workload::{Content, Random, Setup};

const KEYS: u64 = 600;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Nothing is settled unless it is asked for.
fn unsettled() -> Setup {
    let keyspace = KeyspaceOptions::default().block_bytes(512).partition_bytes(16 << 10);
    let setup = Setup {
        memtable_bytes: 200 << 10,
        automatic_conversion: false,
        keyspace,
        ..Setup::default()
    };
    Setup { block_cache: false, log_segment_bytes: 64 << 10, ..setup }
}

fn open(setup: &Setup, disk: &SimDisk, seed: u64) -> (Database, Keyspace) {
    let db = setup.open(disk, seed).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (db, keyspace)
}

/// A run of the keys of these numbers.
fn run(keyspace: &Keyspace, numbers: impl Iterator<Item = u64>) {
    numbers.for_each(|number| keyspace.insert(key(number), [7; 20]).unwrap());
    keyspace.flush().unwrap();
}

/// Eight runs, each of an eighth of the even keys.
fn eight_runs(keyspace: &Keyspace) {
    for part in 0..8 {
        run(keyspace, (0..4000).filter(|number| number % 8 == part).map(|number| number * 2));
    }
}

fn stats(keyspace: &Keyspace) -> KeyspaceStats {
    keyspace.stats().unwrap()
}

#[test]
fn a_key_that_no_run_holds_is_seldom_asked_for_in_any() {
    let (db, keyspace) = open(&unsettled(), &SimDisk::new(1), 1);
    eight_runs(&keyspace);
    let (before, of_keyspace) = (db.stats(), stats(&keyspace));
    assert_eq!((of_keyspace.runs, of_keyspace.generations), (8, 1));
    for number in 0..4000 {
        assert!(keyspace.get(key(number * 2 + 1)).unwrap().is_none());
    }
    let keys: Vec<_> = (0..4000).map(|number| key(number * 2 + 1)).collect();
    assert!(keyspace.multi_get(&keys).unwrap().iter().all(Option::is_none));
    let after = db.stats();
    let stops = after.filter_stops - before.filter_stops;
    assert!(stops > 8000 * 8 * 98 / 100, "{stops} stops");
    // Their own filters, each of one in a hundred, would let some 640 pass.
    let wrong = after.filter_false_positives - before.filter_false_positives;
    assert!(wrong < 200, "{wrong} false positives");
    let bits = of_keyspace.generation_bytes * 8 / of_keyspace.lsm_entries;
    assert!((8..=16).contains(&bits), "{bits} bits a key");
    assert!(of_keyspace.metadata_bytes > of_keyspace.generation_bytes + of_keyspace.filter_bytes);
    // With the last table that belongs to it, it goes; a snapshot keeps both.
    let snapshot = db.snapshot();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let settled = stats(&keyspace);
    assert_eq!((settled.runs, settled.generations, settled.generation_bytes), (0, 0, 0));
    for number in 0..8000 {
        let found = snapshot.get(&keyspace, key(number)).unwrap();
        assert_eq!(found.is_some(), number % 2 == 0, "{number}");
    }
}

#[test]
fn removed_ranges_count_where_the_generation_refuses_the_key() {
    let (_db, keyspace) = open(&unsettled(), &SimDisk::new(1), 1);
    run(&keyspace, 0..100);
    keyspace.convert().unwrap();
    run(&keyspace, 200..210);
    keyspace.insert(key(300), [7; 20]).unwrap();
    keyspace.remove_range(key(10)..key(20)).unwrap();
    keyspace.flush().unwrap();
    run(&keyspace, 400..410);
    assert_eq!(stats(&keyspace).generations, 1);
    for number in 0..100 {
        let found = keyspace.get(key(number)).unwrap();
        assert_eq!(found.is_none(), (10..20).contains(&number), "{number}");
    }
    let all: Vec<_> = (0..100).map(key).collect();
    let found = keyspace.multi_get(&all).unwrap();
    assert_eq!(found.iter().filter(|found| found.is_none()).count(), 10);
}

/// Keys that no run holds, each asked for once.
fn ask_for_absent(keyspace: &Keyspace, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| assert!(keyspace.get(key(number * 2 + 1)).unwrap().is_none()));
}

#[test]
fn after_an_open_lookups_pay_for_a_filter_over_the_runs_there_are() {
    let (setup, disk) = (unsettled(), SimDisk::new(1));
    let (db, keyspace) = open(&setup, &disk, 1);
    eight_runs(&keyspace);
    drop((db, keyspace));
    let (db, keyspace) = open(&setup, &disk, 2);
    ask_for_absent(&keyspace, 0..500);
    db.wait_idle().unwrap();
    assert_eq!((stats(&keyspace).runs, stats(&keyspace).generations), (8, 0), "not enough");
    ask_for_absent(&keyspace, 0..4000);
    // It is background work as other.
    db.wait_idle().unwrap();
    let of_keyspace = stats(&keyspace);
    assert_eq!((of_keyspace.runs, of_keyspace.generations), (8, 1));
    let bits = of_keyspace.generation_bytes * 8 / of_keyspace.lsm_entries;
    assert!((8..=16).contains(&bits), "{bits} bits a key");
    let before = db.stats();
    ask_for_absent(&keyspace, 0..4000);
    let after = db.stats();
    let wrong = after.filter_false_positives - before.filter_false_positives;
    assert!(wrong < 100, "{wrong} false positives: their own filters let some 320 pass");
    (0..4000).for_each(|number| assert!(keyspace.get(key(number * 2)).unwrap().is_some()));
    // What is flushed now belongs to it too.
    run(&keyspace, (0..100).map(|number| number * 2));
    assert_eq!(stats(&keyspace).generations, 1);
    assert!(stats(&keyspace).generation_bytes == of_keyspace.generation_bytes);
}

/// Nobody merges its runs, and nothing but memory changes.
#[test]
fn a_database_opened_for_reading_only_gets_a_filter_over_its_runs_too() {
    let (setup, disk) = (unsettled(), SimDisk::new(1));
    let (db, keyspace) = open(&setup, &disk, 1);
    eight_runs(&keyspace);
    drop((db, keyspace));
    let executor = Arc::new(SeededExecutor::new(2));
    let builder = Database::builder("/db").disk(Arc::new(disk.clone())).executor(executor.clone());
    let db = builder.read_only(true).open().unwrap();
    let changes = Arc::new(AtomicU64::new(0));
    let sink = changes.clone();
    disk.observe(move |_, _| _ = sink.fetch_add(1, Ordering::Relaxed));
    let keyspace = db.find("k").unwrap();
    ask_for_absent(&keyspace, 0..4000);
    executor.run_until_idle();
    assert_eq!((stats(&keyspace).runs, stats(&keyspace).generations), (8, 1));
    ask_for_absent(&keyspace, 0..4000);
    (0..4000).for_each(|number| assert!(keyspace.get(key(number * 2)).unwrap().is_some()));
    assert_eq!(changes.load(Ordering::Relaxed), 0);
    drop(keyspace);
    db.close().unwrap();
}

/// What was open before belongs to none; a merge has it belong to one again.
#[test]
fn after_an_open_runs_belong_to_none_until_they_are_merged() {
    let (setup, disk) = (unsettled(), SimDisk::new(1));
    let (db, keyspace) = open(&setup, &disk, 1);
    eight_runs(&keyspace);
    drop((db, keyspace));
    let (db, keyspace) = open(&setup, &disk, 2);
    assert_eq!((stats(&keyspace).runs, stats(&keyspace).generations), (8, 0));
    // One more, and they are merged.
    run(&keyspace, (0..500).map(|number| 10_000 + number * 2));
    db.wait_idle().unwrap();
    let merged = stats(&keyspace);
    assert!(merged.runs < 8 && merged.generations == 1, "{merged}");
    for number in 0..11_000u64 {
        let found = keyspace.get(key(number)).unwrap();
        let expected = number.is_multiple_of(2) && !(8000..10_000).contains(&number);
        assert_eq!(found.is_some(), expected, "{number}");
    }
}

#[test]
fn without_room_for_metadata_there_is_none() {
    let setup = unsettled().paged(true);
    let (_db, keyspace) = open(&setup, &SimDisk::new(1), 1);
    eight_runs(&keyspace);
    assert_eq!((stats(&keyspace).generations, stats(&keyspace).generation_bytes), (0, 0));
    for number in 0..8000 {
        assert_eq!(keyspace.get(key(number)).unwrap().is_some(), number % 2 == 0, "{number}");
    }
}

/// What was seen on the way, so that it is known what was tried.
#[derive(Debug, Default)]
struct Seen {
    most_generations: u64,
    sweeps: u64,
    merges: bool,
    /// Filters over runs that an open found.
    restored: u64,
}

struct Bench {
    setup: Setup,
    disk: SimDisk,
    db: Database,
    keyspace: Keyspace,
    model: Content,
    random: Random,
    snapshot: Option<(Snapshot, Content)>,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let setup = Setup::default();
        let options =
            setup.keyspace.clone().min_conversion_bytes(48 << 10).partition_bytes(8 << 10);
        let setup =
            Setup { keyspace: options, automatic_conversion: !seed.is_multiple_of(3), ..setup };
        let disk = SimDisk::new(seed);
        let (db, keyspace) = open(&setup, &disk, seed);
        let (model, random, snapshot) = (Content::new(), Random::new(seed), None);
        Bench { setup, disk, db, keyspace, model, random, snapshot }
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.random.below(KEYS))
    }

    fn step(&mut self, step: u64) {
        match self.random.below(1000) {
            0..750 => {
                let (key, length) = (self.key(), self.random.below(120) as usize);
                let value = vec![step as u8; length];
                self.keyspace.insert(&key, &value).unwrap();
                self.model.insert(key, value);
            }
            750..850 => {
                let key = self.key();
                self.keyspace.remove(&key).unwrap();
                self.model.remove(&key);
            }
            850..852 => {
                let from = self.random.below(KEYS);
                let to = from + self.random.below(30);
                let range = (Bound::Excluded(key(from)), Bound::Included(key(to)));
                self.keyspace.remove_range(range.clone()).unwrap();
                self.model.retain(|key, _| !range.contains(key));
            }
            852..990 => self.check(step),
            990..994 => self.keyspace.flush().unwrap(),
            994..995 => self.snapshot = Some((self.db.snapshot(), self.model.clone())),
            995..997 => self.keyspace.convert().unwrap(),
            997..998 => {
                let start = self.random.below(KEYS);
                let entries: Vec<_> = (start..start + 20).map(|n| (key(n), vec![8; 9])).collect();
                self.keyspace.ingest(entries.iter().map(|(k, v)| (k, v))).unwrap();
                self.model.extend(entries);
            }
            _ => self.snapshot = None,
        }
    }

    fn opened_anew(self, seed: u64) -> Bench {
        let Bench { setup, disk, db, keyspace, model, random, snapshot } = self;
        drop((db, keyspace, snapshot));
        let (db, keyspace) = open(&setup, &disk, seed);
        Bench { setup, disk, db, keyspace, model, random, snapshot: None }
    }

    /// Looks for so much that is nowhere that runs get a filter over them. Whether they have one that was not flushed.
    fn pays(&self) -> bool {
        for number in 0..3000 {
            let absent = [&key(number % KEYS)[..], &number.to_be_bytes()].concat();
            assert!(self.keyspace.get(absent).unwrap().is_none());
        }
        self.db.wait_idle().unwrap();
        let all = self.db.stats();
        stats(&self.keyspace).generations > 0 && all.flushes + all.merged_bytes == 0
    }

    /// Some keys, alone and together; of now, and of the snapshot.
    fn check(&mut self, step: u64) {
        let keys: Vec<_> = (0..8).map(|_| self.key()).collect();
        let found = self.keyspace.multi_get(&keys).unwrap();
        for (key, found) in keys.iter().zip(found) {
            let expected = self.model.get(key).map(Vec::as_slice);
            assert_eq!(found.as_deref(), expected, "step {step}: {key:?}, with others");
            let found = self.keyspace.get(key).unwrap();
            assert_eq!(found.as_deref(), expected, "step {step}: {key:?}");
            if let Some((snapshot, model)) = &self.snapshot {
                let found = snapshot.get(&self.keyspace, key).unwrap();
                let expected = model.get(key).map(Vec::as_slice);
                assert_eq!(found.as_deref(), expected, "step {step}: {key:?}, of the snapshot");
            }
        }
    }
}

#[test]
fn whatever_comes_and_goes_gets_answer_like_a_btree_map() {
    let mut seen = Seen::default();
    for seed in 0..12 {
        let mut bench = Bench::new(seed);
        for step in 0..4000 {
            bench.step(step);
            if bench.random.below(1500) == 0 {
                bench = bench.opened_anew(step);
                if bench.random.below(3) > 0 {
                    seen.restored += u64::from(bench.pays());
                }
            }
            if step % 50 == 0 {
                let now = stats(&bench.keyspace);
                seen.most_generations = seen.most_generations.max(now.generations);
            }
        }
        for number in 0..KEYS {
            let found = bench.keyspace.get(key(number)).unwrap();
            let expected = bench.model.get(&key(number)).map(Vec::as_slice);
            assert_eq!(found.as_deref(), expected, "seed {seed}: {number}");
        }
        let all = bench.db.stats();
        seen.sweeps += all.sweeps;
        seen.merges |= all.merged_bytes > 0;
    }
    // One of the frozen part, and one of what has come since.
    assert!(seen.most_generations >= 2 && seen.sweeps > 20 && seen.merges, "{seen:?}");
    assert!(seen.restored > 3, "{seen:?}");
}
