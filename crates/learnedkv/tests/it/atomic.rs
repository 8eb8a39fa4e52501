//! Compare and swap, update and pop: what is read and what is written are one step, whatever happens
//! between them. First each thing that may come between, one at a time; then all at once, on threads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions};

use crate::workload::Setup;

fn open(disk: &SimDisk) -> (Database, Keyspace) {
    let setup = Setup::default();
    let db = setup.open(disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace).unwrap();
    (db, keyspace)
}

fn appended(old: Option<&[u8]>, byte: u8) -> Option<Vec<u8>> {
    Some([old.unwrap_or_default(), &[byte]].concat())
}

type Between = fn(&Database, &Keyspace);

/// What may happen between reading and writing, and how often the change then has to be made.
const BETWEEN: &[(&str, Between, u32)] = &[
    ("nothing", |_, _| {}, 1),
    ("another key", |_, k| k.insert("other", "v").unwrap(), 1),
    ("the key", |_, k| k.insert("key", "x").unwrap(), 2),
    ("the key, the same value", |_, k| k.insert("key", "old").unwrap(), 2),
    ("its removal", |_, k| k.remove("key").unwrap(), 2),
    (
        "a key before and one behind",
        |_, k| {
            k.insert("kex", "v").unwrap();
            k.insert("key\0", "v").unwrap();
        },
        1,
    ),
    (
        "a batch over it",
        |db, k| {
            let mut batch = db.batch();
            batch.insert(k, "a", "v");
            batch.insert(k, "key", "x");
            batch.commit().unwrap();
        },
        2,
    ),
    ("a range over it", |_, k| k.remove_range("a".."z").unwrap(), 2),
    ("a range that begins with it", |_, k| k.remove_range("key"..).unwrap(), 2),
    ("a range that ends with it", |_, k| k.remove_range("a"..="key").unwrap(), 2),
    (
        "a range before and one behind",
        |_, k| {
            k.remove_range(.."key").unwrap();
            k.remove_range("key\0"..).unwrap();
        },
        1,
    ),
    (
        "a batch that clears all",
        |db, k| {
            let mut batch = db.batch();
            batch.insert(k, "key", "y");
            batch.clear(k);
            batch.commit().unwrap();
        },
        2,
    ),
    (
        "a range over it, flushed",
        |_, k| {
            k.clear().unwrap();
            k.flush().unwrap();
        },
        2,
    ),
    // What came between is in a table by now, or nothing did: that cannot be told, but what is there can.
    (
        "another key, flushed",
        |_, k| {
            k.insert("other", "v").unwrap();
            k.flush().unwrap();
        },
        1,
    ),
    (
        "the same entry, flushed",
        |_, k| {
            let same = k.get("key").unwrap();
            k.insert("key", "x").unwrap();
            match same {
                Some(same) => k.insert("key", same).unwrap(),
                None => k.remove("key").unwrap(),
            }
            k.flush().unwrap();
        },
        1,
    ),
    (
        "other keys, settled",
        |_, k| {
            k.insert("other", "v").unwrap();
            k.convert().unwrap();
        },
        1,
    ),
    (
        "an ingest around it",
        |_, k| {
            k.ingest([("kex", "v"), ("key\0", "v")]).map(drop).unwrap();
        },
        1,
    ),
    (
        "the key, flushed",
        |_, k| {
            k.insert("key", "x").unwrap();
            k.flush().unwrap();
        },
        2,
    ),
    (
        "the key, flushed, and another in memory",
        |_, k| {
            k.insert("key", "x").unwrap();
            k.flush().unwrap();
            k.insert("other", "v").unwrap();
        },
        2,
    ),
    (
        "the key, settled",
        |_, k| {
            k.insert("key", "x").unwrap();
            k.convert().unwrap();
        },
        2,
    ),
    (
        "an ingest over it",
        |_, k| {
            k.ingest([("key", "x")]).map(drop).unwrap();
        },
        2,
    ),
    (
        "an ingest over it, where it was flushed before",
        |_, k| {
            k.flush().unwrap();
            k.ingest([("key", "x")]).map(drop).unwrap();
        },
        2,
    ),
    (
        "another keyspace's writes",
        |db, _| {
            let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
            other.insert("key", "x").unwrap();
            other.flush().unwrap();
        },
        1,
    ),
    (
        "another keyspace's ingest, where it was flushed before",
        |db, k| {
            k.flush().unwrap();
            let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
            other.ingest([("key", "x")]).map(drop).unwrap();
        },
        1,
    ),
];

#[test]
fn whatever_comes_between_is_seen() {
    for start in ["absent", "in memory", "flushed", "settled"] {
        for (what, between, expected_calls) in BETWEEN {
            let (db, keyspace) = open(&SimDisk::new(1));
            match start {
                "absent" => {}
                _ => keyspace.insert("key", "old").unwrap(),
            }
            match start {
                "flushed" => keyspace.flush().unwrap(),
                "settled" => keyspace.convert().unwrap(),
                _ => {}
            }
            let (mut calls, mut found) = (0, None);
            let change = |old: Option<&[u8]>| {
                calls += 1;
                if calls == 1 {
                    between(&db, &keyspace);
                }
                found = old.map(<[u8]>::to_vec);
                appended(old, b'+')
            };
            // What is there just before, is what the change was made of.
            let new = keyspace.update("key", change).unwrap().unwrap();
            let at = format!("{start}, then {what}");
            // What was not there was removed: it is in a table that it was not there.
            let is_same = start == "absent" && *what == "a range over it, flushed";
            assert_eq!(calls, if is_same { 1 } else { *expected_calls }, "{at}");
            assert_eq!(*new, *appended(found.as_deref(), b'+').unwrap(), "{at}");
            assert_eq!(keyspace.get("key").unwrap().unwrap(), *new, "{at}");
            let expected: &[u8] = match *what {
                "its removal" => b"+",
                what if what.contains("range") && *expected_calls == 2 => b"+",
                "a batch that clears all" => b"+",
                "the key, the same value" => b"old+",
                _ if *expected_calls == 2 => b"x+",
                _ if start == "absent" => b"+",
                _ => b"old+",
            };
            assert_eq!(&*new, expected, "{at}");
        }
    }
}

#[test]
fn what_does_not_hold_is_told_and_changes_nothing() {
    let (db, keyspace) = open(&SimDisk::new(1));
    let swap = |expected: Option<&[u8]>, new: Option<&[u8]>| {
        keyspace.compare_and_swap("key", expected, new).unwrap().map_err(|e| e.current)
    };
    let slice = |bytes: &[u8]| Some(learnedkv::Slice::copy_from(bytes));
    assert_eq!(swap(Some(b"a"), Some(b"b")), Err(None));
    assert_eq!(swap(None, None), Ok(()));
    assert_eq!(db.stats().last_sequence, 0, "nothing was written so far");
    assert_eq!(swap(None, Some(b"")), Ok(()), "an empty value is a value");
    assert_eq!(swap(None, Some(b"b")), Err(slice(b"")));
    assert_eq!(swap(Some(b""), Some(b"b")), Ok(()));
    assert_eq!(swap(Some(b"c"), None), Err(slice(b"b")));
    assert_eq!(keyspace.get("key").unwrap(), slice(b"b"));
    assert_eq!(swap(Some(b"b"), None), Ok(()));
    assert_eq!(keyspace.get("key").unwrap(), None);
    assert_eq!(db.stats().last_sequence, 3);
    // What `update` and `fetch_update` return.
    let grow = |old: Option<&[u8]>| appended(old, b'1');
    assert_eq!(keyspace.fetch_update("key", grow).unwrap(), None);
    assert_eq!(keyspace.fetch_update("key", grow).unwrap(), slice(b"1"));
    assert_eq!(keyspace.update("key", grow).unwrap(), slice(b"111"));
    assert_eq!(keyspace.update("key", |_| None::<&str>).unwrap(), None);
    assert_eq!(keyspace.get("key").unwrap(), None);
    let long = vec![0; (64 << 10) + 1];
    let error = keyspace.compare_and_swap(&long, None, Some(b"v")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    db.drop_keyspace("k").unwrap();
    assert_eq!(keyspace.update("key", grow).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(keyspace.pop_first().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(swap_error(&keyspace), ErrorKind::NotFound);
    let again = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    db.close().unwrap();
    assert_eq!(swap_error(&again), ErrorKind::Closed);
}

fn swap_error(keyspace: &Keyspace) -> ErrorKind {
    keyspace.compare_and_swap("key", None, None).unwrap_err().kind()
}

#[test]
fn both_ends_are_popped_until_nothing_is_left() {
    let (_db, keyspace) = open(&SimDisk::new(1));
    let mut model = std::collections::BTreeMap::new();
    for number in 0..300u32 {
        let (key, value) = (number.wrapping_mul(7919).to_be_bytes().to_vec(), vec![7; 30]);
        keyspace.insert(&key, &value).unwrap();
        model.insert(key, value);
        if number == 200 {
            keyspace.convert().unwrap();
        }
    }
    for turn in 0.. {
        let (found, expected) = match turn % 3 {
            0 => (keyspace.pop_last(), model.pop_last()),
            _ => (keyspace.pop_first(), model.pop_first()),
        };
        let found = found.unwrap().map(|(k, v)| (k.to_vec(), v.to_vec()));
        assert_eq!(found, expected, "turn {turn}");
        if expected.is_none() {
            break;
        }
    }
    assert!(keyspace.is_empty().unwrap());
}

/// Acknowledged at `Synced`, it survives the machine; by default the process. Never in part.
#[test]
fn acknowledged_swaps_survive_crashes() {
    let disk = SimDisk::new(1);
    let (_db, keyspace) = open(&disk);
    for round in 0..40u8 {
        let synced = if round % 2 == 0 { Durability::Synced } else { Durability::Buffered };
        let old = round.checked_sub(1).map(|old| vec![old; 100]);
        let new = vec![round; 100];
        let swapped = keyspace.compare_and_swap_with("key", old.as_deref(), Some(&new), synced);
        swapped.unwrap().unwrap();
        for kind in [CrashKind::Process, CrashKind::Machine] {
            let (_db, left) = open(&disk.crash_clone(kind, u64::from(round % 6)));
            let value = left.get("key").unwrap().unwrap();
            let least = if kind == CrashKind::Process { round } else { round & !1 };
            assert!(value.len() == 100 && value.iter().all(|byte| *byte == value[0]));
            assert!((least..=round).contains(&value[0]), "{kind:?} after {round}: {}", value[0]);
        }
    }
}

const THREADS: u64 = 4;
const INCREMENTS: u64 = 800;

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// A counter's value, long enough that memtables are flushed often.
fn padded(number: u64) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[7; 100]].concat()
}

fn threads_open(dir: &std::path::Path) -> (Database, Keyspace) {
    let db = Database::builder(dir.join("db"))
        .memtable_bytes(8 << 10)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(16 << 10)
        .open()
        .unwrap();
    let keyspace = db.keyspace("k", Setup::default().keyspace).unwrap();
    (db, keyspace)
}

/// Half of the threads add by `update`, half by `compare_and_swap`; others write beside, in batches over
/// the counters' neighbours, flush, convert and ingest.
#[test]
fn no_increment_is_lost_among_threads() {
    let dir = tempfile::tempdir().unwrap();
    let (db, keyspace) = threads_open(dir.path());
    let over = AtomicBool::new(false);
    let seen: Vec<Vec<u64>> = thread::scope(|scope| {
        let disturb = scope.spawn(|| disturb(&db, &keyspace, &over));
        let keyspace = &keyspace;
        let adders: Vec<_> =
            (0..THREADS).map(|t| scope.spawn(move || add(keyspace, t % 2 == 0))).collect();
        let seen = adders.into_iter().map(|adder| adder.join()).collect::<Vec<_>>();
        over.store(true, Ordering::Release);
        assert!(disturb.join().unwrap() > 0);
        seen.into_iter().map(Result::unwrap).collect()
    });
    let total = THREADS * INCREMENTS;
    assert_eq!(number(&keyspace.get("counter").unwrap().unwrap()), total);
    // Each increment made a number of its own, and each thread saw them grow.
    assert!(seen.iter().all(|numbers| numbers.is_sorted_by(|a, b| a < b)));
    let all: BTreeSet<u64> = seen.into_iter().flatten().collect();
    assert!(all.iter().copied().eq(1..=total));
    let stats = db.stats();
    assert!(stats.flushes > 5, "too little happened: {stats}");
}

fn add(keyspace: &Keyspace, by_update: bool) -> Vec<u64> {
    let next = |old: Option<&[u8]>| old.map_or(0, number) + 1;
    let once = || {
        if by_update {
            let new = keyspace.update("counter", |old| Some(padded(next(old)))).unwrap();
            return number(&new.unwrap());
        }
        let mut current = keyspace.get("counter").unwrap();
        loop {
            let new = padded(next(current.as_deref()));
            match keyspace.compare_and_swap("counter", current.as_deref(), Some(&new)).unwrap() {
                Ok(()) => return number(&new),
                Err(error) => current = error.current,
            }
        }
    };
    (0..INCREMENTS).map(|_| once()).collect()
}

fn disturb(db: &Database, keyspace: &Keyspace, over: &AtomicBool) -> u64 {
    let mut round = 0u64;
    while !over.load(Ordering::Acquire) {
        round += 1;
        let mut batch = db.batch();
        for key in ["counte", "counter\0", "d"] {
            batch.insert(keyspace, key, padded(round));
        }
        batch.commit().unwrap();
        match round % 50 {
            10 => keyspace.flush().unwrap(),
            20 => keyspace.convert().unwrap(),
            30 => keyspace.ingest([("b", "v"), ("e", "v")]).map(drop).unwrap(),
            _ => {}
        }
    }
    round
}

/// Each entry goes to one popper; those a producer pushed come in its order.
#[test]
fn each_entry_is_popped_once_among_threads() {
    const ENTRIES: u64 = 600;
    let dir = tempfile::tempdir().unwrap();
    let (_db, keyspace) = threads_open(dir.path());
    let left = AtomicU64::new(2 * ENTRIES);
    let pop = |first: bool| {
        let mut popped = Vec::new();
        while left.load(Ordering::Acquire) > 0 {
            let entry = if first { keyspace.pop_first() } else { keyspace.pop_last() };
            if let Some((key, value)) = entry.unwrap() {
                assert_eq!(*key, value[..8]);
                popped.push(number(&key));
                left.fetch_sub(1, Ordering::AcqRel);
            }
        }
        popped
    };
    let popped: Vec<Vec<u64>> = thread::scope(|scope| {
        let keyspace = &keyspace;
        // One producer's numbers grow, so that whoever pops the first gets them in order; the other's are
        // all above and fall, so that whoever pops the last does too.
        let up = scope.spawn(move || (0..ENTRIES).for_each(|n| push(keyspace, n)));
        let down = scope.spawn(move || (0..ENTRIES).for_each(|n| push(keyspace, u64::MAX - n)));
        let poppers = [true, true, false].map(|first| scope.spawn(move || pop(first)));
        up.join().unwrap();
        down.join().unwrap();
        poppers.into_iter().map(|popper| popper.join().unwrap()).collect()
    });
    let mut all: Vec<u64> = popped.into_iter().flatten().collect();
    assert_eq!(all.len() as u64, 2 * ENTRIES);
    all.sort_unstable();
    assert!(all.iter().copied().eq((0..ENTRIES).chain(u64::MAX - ENTRIES + 1..=u64::MAX)));
    assert!(keyspace.is_empty().unwrap());
}

/// A queue left each removed key where it was, and each pop went over all of them: 20,000 took a quarter of a minute.
#[test]
fn what_was_popped_is_not_gone_over_again() {
    for first in [true, false] {
        let setup =
            Setup { memtable_bytes: 8 << 20, memory_budget_bytes: 64 << 20, ..Setup::default() };
        let db = setup.open(&SimDisk::new(1), 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        // What lies below, settled and in a run, is popped as well.
        (0..300).for_each(|n| push(&keyspace, 10 * n));
        keyspace.convert().unwrap();
        (0..300).for_each(|n| push(&keyspace, 10 * n + 1));
        keyspace.flush().unwrap();
        (0..300).for_each(|n| push(&keyspace, 10 * n + 2));
        let mut left: BTreeSet<u64> = (0..3000).filter(|n| n % 10 < 3).collect();
        for step in 0..5000u64 {
            // At the other end, at this end now and then, and where it was emptied.
            let new = match step % 10 {
                3 if first => step / 100,
                3 => 1_000_000 - step,
                _ if first => 10_000 + step,
                _ => 100_000 - step,
            };
            push(&keyspace, new);
            left.insert(new);
            let expected = if first { left.pop_first() } else { left.pop_last() };
            let popped = if first { keyspace.pop_first() } else { keyspace.pop_last() };
            assert_eq!(popped.unwrap().map(|(key, _)| number(&key)), expected, "step {step}");
        }
        let keys = keyspace.keys().map(|key| number(&key.unwrap()));
        assert!(keys.eq(left.iter().copied()));
        keyspace.flush().unwrap();
        let stats = keyspace.stats().unwrap();
        // Of 5,000 removed keys ranges took the place of most.
        assert!(stats.removed_ranges > 0, "{stats}");
        assert!(stats.lsm_entries < 1500 + left.len() as u64, "{stats}");
        let rest = std::iter::from_fn(|| keyspace.pop_first().unwrap());
        assert!(rest.map(|(key, _)| number(&key)).eq(left));
        assert!(keyspace.is_empty().unwrap());
    }
}

fn push(keyspace: &Keyspace, key: u64) {
    keyspace.insert(key.to_be_bytes(), padded(key)).unwrap();
}

/// Who was told that a key is not there, and that this is durable, lost that with the machine: its removal was not synced.
#[test]
fn what_is_found_as_it_is_to_be_is_made_durable_where_writes_are() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    keyspace.insert_with("k", "v", Durability::Synced).unwrap();
    keyspace.remove_with("k", Durability::Buffered).unwrap();
    assert_eq!(keyspace.update_with("k", |_| None::<Vec<u8>>, Durability::Synced).unwrap(), None);
    assert!(db.stats().synced_sequence >= db.stats().last_sequence);
    for seed in 0..6 {
        let (_db, keyspace) = open(&disk.crash_clone(CrashKind::Machine, seed));
        assert_eq!(keyspace.get("k").unwrap(), None);
    }
}
