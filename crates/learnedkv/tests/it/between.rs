//! Conditional commits beside others: whatever these do just before the commit takes its place, what was decided still
//! holds where it is made, and whoever writes other keys sends nobody back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use learnedkv::disk::sim::{SimDisk, Stage};
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::executor::{Executor, Job, SeededExecutor};
use learnedkv::{Database, ErrorKind, Keyspace, KeyspaceOptions, Slice};

use crate::workload::{Random, Setup};

type Meddle = Box<dyn FnMut() + Send>;

/// Does what a test says wherever a commit is about to ask for its place: once for each attempt.
#[derive(Debug)]
struct Meddling {
    seeded: SeededExecutor,
    meddle: Mutex<Option<Nameless>>,
}

struct Nameless(Meddle);

impl std::fmt::Debug for Nameless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("something")
    }
}

impl Meddling {
    fn set(&self, meddle: Option<Meddle>) {
        *self.meddle.lock().unwrap() = meddle.map(Nameless);
    }
}

impl Executor for Meddling {
    fn spawn(&self, job: Box<dyn Job>) {
        self.seeded.spawn(job);
    }

    fn notify(&self) {
        self.seeded.notify();
    }

    fn hurry(&self, begins: bool) {
        self.seeded.hurry(begins);
    }

    fn wait_until(&self, ready: &mut dyn FnMut() -> bool) {
        self.seeded.wait_until(ready);
    }

    fn yield_now(&self) {
        // Taken out: what it does itself is not meddled with.
        let taken = self.meddle.lock().unwrap().take();
        if let Some(mut taken) = taken {
            (taken.0)();
            *self.meddle.lock().unwrap() = Some(taken);
        }
        self.seeded.yield_now();
    }

    fn give_way(&self) -> bool {
        self.seeded.give_way()
    }

    fn pause(&self, duration: Duration) {
        self.seeded.pause(duration);
    }

    fn now(&self) -> Duration {
        self.seeded.now()
    }

    fn shutdown(&self) {
        self.seeded.shutdown();
    }

    fn is_stopped(&self) -> bool {
        self.seeded.is_stopped()
    }
}

/// Values of so many bytes are streamed.
const STREAM_AT: usize = 400;

fn open(disk: &SimDisk, seed: u64) -> (Database, Keyspace, Arc<Meddling>) {
    let executor =
        Arc::new(Meddling { seeded: SeededExecutor::new(seed), meddle: Mutex::new(None) });
    let db = Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor.clone())
        .memtable_bytes(4 << 10)
        .memory_budget_bytes(64 << 10)
        .log_segment_bytes(4 << 10)
        .stream_at(STREAM_AT as u64)
        .open()
        .unwrap();
    let keyspace = db.keyspace("k", Setup::default().keyspace).unwrap();
    (db, keyspace, executor)
}

/// `one` step, beside somebody who writes another key, flushes, and ingests into another keyspace before each attempt.
fn beside_others(db: &Database, keyspace: &Keyspace, executor: &Meddling, one: impl FnOnce()) {
    let (k, other) = (keyspace.clone(), db.keyspace("other", KeyspaceOptions::default()).unwrap());
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = attempts.clone();
    executor.set(Some(Box::new(move || {
        let attempt = counted.fetch_add(1, Ordering::Relaxed);
        assert!(attempt < 3, "sent back for ever");
        k.insert("m", "v").unwrap();
        k.flush().unwrap();
        other.ingest([(attempt.to_be_bytes(), "v")]).unwrap();
    })));
    one();
    executor.set(None);
    assert!(attempts.load(Ordering::Relaxed) > 1, "nothing came between");
}

fn segments(disk: &SimDisk) -> usize {
    let names = disk.list(Path::new("/db")).unwrap();
    names.iter().filter(|name| name.contains("values")).count()
}

#[test]
fn who_writes_other_keys_and_flushes_sends_nobody_back() {
    let disk = SimDisk::new(1);
    let (db, keyspace, executor) = open(&disk, 1);
    let beside = |one: &mut dyn FnMut()| beside_others(&db, &keyspace, &executor, one);
    let mut calls = 0;
    for (key, old) in [("b", None), ("c", Some(&b"old"[..])), ("d", Some(&[3; 50]))] {
        if let Some(old) = old {
            keyspace.insert(key, old).unwrap();
        }
        let mut change = |found: Option<&[u8]>| {
            calls += 1;
            assert_eq!(found, old);
            Some("new")
        };
        beside(&mut || assert_eq!(&*keyspace.update(key, &mut change).unwrap().unwrap(), b"new"));
        let mut back = |_: Option<&[u8]>| {
            calls += 1;
            old
        };
        beside(&mut || {
            let found = keyspace.fetch_update(key, &mut back).unwrap();
            assert_eq!(found.as_deref(), Some(&b"new"[..]));
        });
        beside(&mut || keyspace.compare_and_swap(key, old, Some(b"x")).unwrap().unwrap());
    }
    assert_eq!(calls, 6, "somebody was asked again");
    beside(&mut || assert_eq!(&*keyspace.pop_first().unwrap().unwrap().0, b"b"));
    keyspace.insert("z", [7; 300]).unwrap();
    beside(&mut || assert_eq!(&*keyspace.pop_last().unwrap().unwrap().1, [7; 300]));
}

/// Each attempt wrote the value anew.
#[test]
fn a_long_value_is_written_once_however_often_its_commit_is_tried() {
    let disk = SimDisk::new(1);
    let (db, keyspace, executor) = open(&disk, 1);
    let created = Arc::new(AtomicU64::new(0));
    let seen = created.clone();
    disk.observe(move |operation, _| {
        let is_segment = operation.path.to_string_lossy().contains("values");
        if operation.kind == OperationKind::Create && operation.stage == Stage::After && is_segment
        {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (long, other) = (vec![7; 10 * STREAM_AT], vec![8; 10 * STREAM_AT]);
    let swap = |old: Option<&[u8]>, new: &[u8]| keyspace.compare_and_swap("key", old, Some(new));
    beside_others(&db, &keyspace, &executor, || swap(None, &long).unwrap().unwrap());
    assert_eq!(created.load(Ordering::Relaxed), 1);
    beside_others(&db, &keyspace, &executor, || swap(Some(&long), &other).unwrap().unwrap());
    assert_eq!(created.load(Ordering::Relaxed), 2);
    beside_others(&db, &keyspace, &executor, || {
        keyspace.update("key", |old| old.map(<[u8]>::to_vec)).map(drop).unwrap();
    });
    assert_eq!(created.load(Ordering::Relaxed), 3);
    // One that comes to nothing leaves nothing behind.
    let k = keyspace.clone();
    executor.set(Some(Box::new(move || k.insert("key", "x").unwrap())));
    let refused = swap(Some(&other), &long).unwrap().unwrap_err();
    assert_eq!(refused.current.as_deref(), Some(&b"x"[..]));
    executor.set(None);
    assert_eq!(created.load(Ordering::Relaxed), 4);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(segments(&disk), 0, "files of values that nobody can read");
    drop((keyspace, db));
    let (db, keyspace, _) = open(&disk, 2);
    assert_eq!(keyspace.get("key").unwrap().as_deref(), Some(&b"x"[..]));
    assert_eq!(db.keyspace("other", KeyspaceOptions::default()).unwrap().iter().count(), 3);
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: [&str; 6] = ["a", "b", "k", "k2", "y", "z"];

/// Something another writer may do, to the database and to the model.
fn meddle(random: &mut Random, k: &Keyspace, model: &Mutex<Model>) {
    let mut model = model.lock().unwrap();
    for _ in 0..random.below(4) {
        let key = KEYS[random.below(KEYS.len() as u64) as usize];
        let lengths = [1, 40, 120, STREAM_AT + 100];
        let value = vec![random.below(3) as u8; lengths[random.below(4) as usize]];
        match random.below(20) {
            0..=4 => {
                k.insert(key, &value).unwrap();
                model.insert(key.into(), value);
            }
            // What is there, anew.
            5..=6 => {
                if let Some(value) = model.get(key.as_bytes()) {
                    k.insert(key, value).unwrap();
                }
            }
            7..=8 => {
                k.remove(key).unwrap();
                model.remove(key.as_bytes());
            }
            9 => {
                k.remove_range(key..="k2").unwrap();
                model.retain(|k, _| !(key.as_bytes()..=b"k2").contains(&&k[..]));
            }
            10 => {
                k.clear().unwrap();
                model.clear();
            }
            11..=12 => {
                k.ingest([(key, &value)]).unwrap();
                model.insert(key.into(), value);
            }
            13..=17 => k.flush().unwrap(),
            _ => k.convert().unwrap(),
        }
    }
}

/// At whichever attempt what comes between, each operation is one step at its end: nobody meddles after its last look.
#[test]
fn each_step_is_made_of_what_is_there_when_it_is_made() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let (db, keyspace, executor) = open(&disk, seed);
        let model = Arc::new(Mutex::new(Model::new()));
        let mut random = Random::new(seed);
        for round in 0..30 {
            let (k, shared, mut own) =
                (keyspace.clone(), model.clone(), Random::new(random.next()));
            let mut left = random.below(5);
            executor.set(Some(Box::new(move || {
                if left > 0 {
                    left -= 1;
                    meddle(&mut own, &k, &shared);
                }
            })));
            step(&mut random, &keyspace, &model, &format!("seed {seed}, round {round}"));
            executor.set(None);
        }
        let expected = model.lock().unwrap().clone();
        let holds = |keyspace: &Keyspace| {
            let entries = keyspace.iter().map(|entry| entry.unwrap());
            let found: Model = entries.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            assert!(found == expected, "seed {seed}: {found:?}, expected {expected:?}");
        };
        holds(&keyspace);
        drop((keyspace, db));
        let (db, keyspace, _) = open(&disk, seed + 1);
        holds(&keyspace);
        // Of long values nothing is left that nobody points at.
        keyspace.clear().unwrap();
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(segments(&disk), 0, "seed {seed}");
    }
}

fn step(random: &mut Random, keyspace: &Keyspace, model: &Mutex<Model>, at: &str) {
    let key = "k";
    let long = random.below(3) == 0;
    let grown = |old: Option<&[u8]>| {
        let old = old.unwrap_or_default();
        let more = if long { STREAM_AT } else { 1 };
        (old.len() < 2000).then(|| [old, &vec![b'+'; more]].concat())
    };
    let popped = |found: Option<(Slice, Slice)>| found.map(|(k, v)| (k.to_vec(), v.to_vec()));
    match random.below(4) {
        0 => {
            let new = keyspace.update(key, grown).unwrap();
            let mut model = model.lock().unwrap();
            let expected = grown(model.get(key.as_bytes()).map(Vec::as_slice));
            assert_eq!(new.map(|new| new.to_vec()), expected, "{at}: update");
            model.remove(key.as_bytes());
            model.extend(expected.map(|new| (key.into(), new)));
        }
        1 => {
            let expected = model.lock().unwrap().get(key.as_bytes()).cloned();
            let new = grown(expected.as_deref());
            let swapped = keyspace.compare_and_swap(key, expected.as_deref(), new.as_deref());
            let mut model = model.lock().unwrap();
            let there = model.get(key.as_bytes()).cloned();
            match swapped.unwrap() {
                Ok(()) => {
                    assert_eq!(there, expected, "{at}: swapped");
                    model.remove(key.as_bytes());
                    model.extend(new.map(|new| (key.into(), new)));
                }
                Err(error) => {
                    assert_eq!(error.current.map(|v| v.to_vec()), there, "{at}: refused");
                    assert_ne!(there, expected, "{at}: refused");
                }
            }
        }
        2 => {
            let found = popped(keyspace.pop_first().unwrap());
            assert_eq!(found, model.lock().unwrap().pop_first(), "{at}: the first");
        }
        _ => {
            let found = popped(keyspace.pop_last().unwrap());
            assert_eq!(found, model.lock().unwrap().pop_last(), "{at}: the last");
        }
    }
}

#[test]
fn a_keyspace_that_is_dropped_in_between_says_so_at_every_attempt() {
    for drop_at in 0..3 {
        let (db, keyspace, executor) = open(&SimDisk::new(1), 1);
        let steps: [fn(&Keyspace) -> learnedkv::Result<()>; 3] = [
            |k| k.update("key", |_| Some("new")).map(drop),
            |k| k.compare_and_swap("key", Some(b"old"), Some(b"new")).map(drop),
            |k| k.pop_first().map(drop),
        ];
        for step in steps {
            let k = db.keyspace("k", Setup::default().keyspace).unwrap();
            k.insert("key", "old").unwrap();
            let (of, meddled, mut attempt) = (db.clone(), k.clone(), 0);
            executor.set(Some(Box::new(move || {
                if attempt == drop_at {
                    of.drop_keyspace("k").unwrap();
                } else if attempt < drop_at {
                    meddled.insert("other", "v").unwrap();
                    meddled.flush().unwrap();
                }
                attempt += 1;
            })));
            let done = step(&k);
            executor.set(None);
            // Who pops tries no third time.
            match done {
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "at {drop_at}"),
                Ok(()) => {
                    assert_eq!(drop_at, 2, "done in a keyspace that is no more");
                    assert!(!k.contains_key("key").unwrap());
                }
            }
        }
        drop(keyspace);
    }
}

/// Beside a writer of other keys, on threads: whoever thinks until several memtables were flushed meanwhile is asked once.
#[test]
fn a_change_that_takes_longer_than_memtables_to_fill_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path().join("db"))
        .memtable_bytes(8 << 10)
        .memory_budget_bytes(1 << 20)
        .open()
        .unwrap();
    let keyspace = db.keyspace("k", Setup::default().keyspace).unwrap();
    let over = AtomicBool::new(false);
    let flushed = || db.stats().flushes;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0u64.. {
                if over.load(Ordering::Acquire) {
                    break;
                }
                keyspace.insert((number % 1000).to_be_bytes(), [7; 100]).unwrap();
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut calls = 0;
            let slow = |_: Option<&[u8]>| {
                calls += 1;
                assert!(calls == 1, "nobody wrote the key");
                let before = flushed();
                while flushed() < before + 3 {
                    thread::yield_now();
                }
                Some("new")
            };
            keyspace.update("slow", slow).unwrap();
            let long = vec![7; 8 << 20];
            keyspace.compare_and_swap("long", None, Some(&long)).unwrap().unwrap();
            keyspace.compare_and_swap("long", Some(&long), None).unwrap().unwrap();
            assert_eq!(&*keyspace.pop_last().unwrap().unwrap().0, b"slow");
        }));
        over.store(true, Ordering::Release);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
