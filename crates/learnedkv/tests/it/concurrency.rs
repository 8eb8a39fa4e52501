//! Real threads: snapshots are whole, keys never go back, iterators stay as they were, whoever waits is woken. Bounded by
//! counts; time bounds only what would never end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use learnedkv::disk::sim::SimDisk;
use learnedkv::{Database, Keyspace, KeyspaceOptions, Store};

const WRITERS: u64 = 3;
const COMMITS: u64 = 1500;
const KEYS: u64 = 40;

fn open(dir: &std::path::Path, metadata_percent: u64) -> Database {
    Database::builder(dir.join("db"))
        .memtable_bytes(16 << 10)
        .memory_budget_bytes(1 << 20)
        .metadata_percent(metadata_percent)
        .log_segment_bytes(4 << 10)
        .open()
        .unwrap()
}

fn options(store: Store) -> KeyspaceOptions {
    KeyspaceOptions::default()
        .store(store)
        .level_base_bytes(16 << 10)
        .level_multiplier(2)
        .block_bytes(512)
        .partition_bytes(8 << 10)
        .min_conversion_bytes(16 << 10)
}

/// A key of one writer; each commit of it puts the next version of one key into both keyspaces.
fn key(writer: u64, number: u64) -> String {
    format!("w{writer}k{number:03}")
}

fn value(version: u64) -> Vec<u8> {
    format!("{version:08}").repeat(8).into_bytes()
}

fn version(value: &[u8]) -> u64 {
    std::str::from_utf8(&value[..8]).unwrap().parse().unwrap()
}

fn write(db: &Database, pair: &[Keyspace; 2], writer: u64) {
    for commit in 0..COMMITS {
        let key = key(writer, commit % KEYS);
        let mut batch = db.batch();
        for keyspace in pair {
            batch.insert(keyspace, &key, value(commit));
        }
        batch.commit().unwrap();
        if commit % 300 == 299 {
            pair[(writer % 2) as usize].convert().unwrap();
        }
        // One's own write is there, or nothing newer.
        assert_eq!(version(&pair[0].get(&key).unwrap().unwrap()), commit);
    }
}

/// Versions of all keys in a snapshot, the same in both keyspaces.
fn whole(db: &Database, pair: &[Keyspace; 2]) -> std::collections::BTreeMap<Vec<u8>, u64> {
    let snapshot = db.snapshot();
    let [a, b] = pair.each_ref().map(|keyspace| {
        let entries = snapshot.iter(keyspace).map(Result::unwrap);
        entries
            .map(|(k, v)| (k.to_vec(), version(&v)))
            .collect::<std::collections::BTreeMap<_, _>>()
    });
    assert_eq!(a, b, "a batch over two keyspaces was seen torn");
    for (key, version_seen) in a.iter().step_by(7) {
        let found = snapshot.get(&pair[1], key).unwrap().unwrap();
        assert_eq!(version(&found), *version_seen, "get and iter of one snapshot");
    }
    // All keys at once, against the walk; from the back, so that the order is not theirs.
    let keys: Vec<_> = a.keys().rev().collect();
    let many = snapshot.multi_get(&pair[0], &keys).unwrap();
    let many = many.iter().map(|value| version(value.as_ref().expect("the walk found it")));
    assert!(many.eq(a.values().rev().copied()), "multi_get and iter of one snapshot");
    // Of one writer, the versions are those of its last commits, without a gap.
    for writer in 0..WRITERS {
        let prefix = format!("w{writer}");
        let own = a.iter().filter(|(k, _)| k.starts_with(prefix.as_bytes()));
        let mut versions: Vec<_> = own.map(|(_, v)| *v).collect();
        versions.sort_unstable();
        assert!(versions.windows(2).all(|w| w[0] + 1 == w[1]), "writer {writer}: {versions:?}");
    }
    a
}

fn read(db: &Database, pair: &[Keyspace; 2], over: &AtomicBool) -> u64 {
    let (mut rounds, mut before) = (0, std::collections::BTreeMap::new());
    while !over.load(Ordering::Acquire) {
        // An iterator begun here is finished after much was written, flushed and settled.
        let mut slow = pair[0].iter();
        let expected = slow.next().transpose().unwrap().map(|(k, _)| k);
        let again: Vec<_> = db.snapshot().iter(&pair[0]).map(|e| e.unwrap().0).collect();
        let now = whole(db, pair);
        // Outside a snapshot: one moment too, so a writer's versions are its last, without a gap.
        let seen = pair[0].multi_get((0..KEYS).map(|n| key(0, n))).unwrap();
        let mut seen: Vec<_> = seen.iter().flatten().map(|value| version(value)).collect();
        seen.sort_unstable();
        assert!(seen.windows(2).all(|w| w[0] + 1 == w[1]), "torn: {seen:?}");
        for (key, version) in &before {
            assert!(now.get(key).is_some_and(|v| v >= version), "{key:?} went back");
        }
        let rest: Vec<_> = expected.into_iter().chain(slow.map(|e| e.unwrap().0)).collect();
        assert!(rest.is_sorted(), "an iterator out of order");
        assert!(rest.len() <= again.len(), "an iterator met keys made after it");
        before = now;
        rounds += 1;
    }
    rounds
}

#[test]
fn threads_see_whole_batches_and_nothing_goes_back() {
    see_whole_batches(Store::Tiered, 50);
}

#[test]
fn threads_see_whole_batches_of_a_store_of_levels_and_nothing_goes_back() {
    see_whole_batches(Store::Lsm, 50);
}

/// Indexes are loaded by several at once, and pushed out by others.
#[test]
fn threads_see_whole_batches_where_tables_do_not_keep_their_index() {
    see_whole_batches(Store::Tiered, 0);
    see_whole_batches(Store::Lsm, 1);
}

/// Conversions end beside the writers of others.
fn see_whole_batches(store: Store, metadata_percent: u64) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), metadata_percent);
    let pair = ["a", "b"].map(|name| db.keyspace(name, options(store)).unwrap());
    let over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(|| read(&db, &pair, &over))).collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                scope.spawn({
                    let (db, pair) = (&db, &pair);
                    move || write(db, pair, w)
                })
            })
            .collect();
        let written: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        over.store(true, Ordering::Release);
        let read = readers.into_iter().map(|r| r.join().unwrap()).min();
        written.into_iter().for_each(|w| w.unwrap());
        read.unwrap()
    });
    assert!(rounds > 3, "the readers saw hardly anything: {rounds} rounds");
    let stats = db.stats();
    let settled = if store == Store::Lsm { stats.compactions } else { stats.sweeps };
    assert!(stats.flushes > 5 && settled > 2, "too little happened: {stats}");
    let last = whole(&db, &pair);
    assert_eq!(last.len() as u64, WRITERS * KEYS);
    drop((db, pair));
    // Segments were used in the order of their numbers, or this misses some.
    let db = open(dir.path(), metadata_percent);
    let pair = ["a", "b"].map(|name| db.find(name).unwrap());
    assert_eq!(whole(&db, &pair), last, "opened again");
}

/// Far beyond what a conversion takes here.
const LONG: Duration = Duration::from_secs(60);

/// Each of two jobs hid the keyspace from the other for the moment of a look, and both went to sleep: one of some 20 conversions
/// waited for ever.
#[test]
fn conversions_end_where_jobs_look_for_work_at_the_same_moment() {
    let (done, over) = channel();
    thread::spawn(move || {
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1))).background_threads(4);
        let db = db.memtable_bytes(64 << 10).memory_budget_bytes(4 << 20).open().unwrap();
        let keyspace = db.keyspace("k", options(Store::Tiered).partition_bytes(64 << 10)).unwrap();
        for round in 0..60u32 {
            for n in 0..500u32 {
                let key = n.wrapping_mul(2_654_435_761).wrapping_add(round);
                keyspace.insert(key.to_be_bytes(), [1; 100]).unwrap();
            }
            keyspace.convert().unwrap();
            done.send(round).unwrap();
        }
    });
    for round in 0..60 {
        assert_eq!(over.recv_timeout(LONG), Ok(round), "it waits for ever");
    }
}
