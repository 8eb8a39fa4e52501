//! How fast background work may write ([`learnedkv::Builder::background_bytes_per_s`]), by the executor's clock.

use std::sync::Arc;
use std::time::Duration;

use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::{Executor, SeededExecutor};
use learnedkv::{Builder, Database, ErrorKind, Keyspace, KeyspaceOptions, Store};

const MEMTABLE_BYTES: u64 = 16 << 10;
const RATE: u64 = 1 << 20;

fn builder(disk: &SimDisk, executor: &Arc<SeededExecutor>) -> Builder {
    Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor.clone())
        .memtable_bytes(MEMTABLE_BYTES as usize)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(64 << 10)
}

fn keyspace(db: &Database, store: Store) -> Keyspace {
    let options = KeyspaceOptions::default().store(store).partition_bytes(64 << 10);
    let options = options.min_conversion_bytes(256 << 10).level_base_bytes(64 << 10);
    db.keyspace("k", options).unwrap()
}

fn put(keyspace: &Keyspace, round: u8) {
    for number in 0..3000_u32 {
        let key = (number * 7919 % 3000).to_be_bytes();
        keyspace.insert(key, [round; 200]).unwrap();
    }
}

/// How long it took to put four times and settle, and what was merged, swept and compacted for it.
fn settle(store: Store, rate: Option<u64>, seed: u64) -> (Duration, u64) {
    let (disk, executor) = (SimDisk::new(seed), Arc::new(SeededExecutor::new(seed)));
    let builder = builder(&disk, &executor);
    let builder = match rate {
        Some(rate) => builder.background_bytes_per_s(rate),
        None => builder,
    };
    let db = builder.open().unwrap();
    let keyspace = keyspace(&db, store);
    (0..4).for_each(|round| put(&keyspace, round));
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let stats = db.stats();
    for number in 0..3000_u32 {
        assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().as_deref(), Some(&[3; 200][..]));
    }
    (executor.now(), stats.merged_bytes + stats.swept_bytes + stats.compacted_bytes)
}

/// Whoever puts more than that is slowed, and whoever waits waits; what is written takes as long as it may.
#[test]
fn what_background_work_writes_takes_as_long_as_it_may() {
    for store in [Store::Tiered, Store::Lsm] {
        for seed in 0..3 {
            let (took, bytes) = settle(store, Some(RATE), seed);
            assert!(bytes > 1 << 20, "{store:?}, seed {seed}: {bytes} bytes");
            let allowed = Duration::from_secs_f64(bytes as f64 / RATE as f64);
            // Beside entries the files have directories, filters and ends; what failed to be used is in none.
            let range = allowed.mul_f64(0.8)..allowed.mul_f64(1.5);
            assert!(range.contains(&took), "{store:?}, seed {seed}: {took:?} for {allowed:?}");
        }
    }
}

/// Merges of runs among themselves, which nobody waits for.
#[test]
fn merges_take_as_long_as_they_may() {
    let (disk, executor) = (SimDisk::new(1), Arc::new(SeededExecutor::new(1)));
    let db = builder(&disk, &executor).background_bytes_per_s(RATE).open().unwrap();
    let options = KeyspaceOptions::default().min_conversion_bytes(1 << 30).separate_at(1000);
    let keyspace = db.keyspace("k", options).unwrap();
    (0..4).for_each(|round| put(&keyspace, round));
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    let (stats, took) = (db.stats(), executor.now());
    assert!(stats.merged_bytes > 1 << 20 && stats.swept_bytes == 0, "{}", stats.merged_bytes);
    let allowed = Duration::from_secs_f64(stats.merged_bytes as f64 / RATE as f64);
    assert!(took >= allowed.mul_f64(0.8), "{took:?} for {allowed:?}");
}

/// Of what flushes write, which writers wait for, nothing is in it.
#[test]
fn flushes_are_not_limited() {
    let (disk, executor) = (SimDisk::new(1), Arc::new(SeededExecutor::new(1)));
    let db = builder(&disk, &executor).background_bytes_per_s(1).open().unwrap();
    let options = KeyspaceOptions::default().min_conversion_bytes(1 << 30);
    let keyspace = db.keyspace("k", options).unwrap();
    for number in 0..300_u32 {
        keyspace.insert(number.to_be_bytes(), [1; 200]).unwrap();
    }
    keyspace.flush().unwrap();
    assert!(db.stats().flushes > 2);
    assert!(executor.now() < Duration::from_secs(1), "{:?}", executor.now());
}

/// Then it is what makes room.
#[test]
fn a_full_disk_has_no_limit() {
    let (disk, executor) = (SimDisk::new(1), Arc::new(SeededExecutor::new(1)));
    // A day for each of its steps, and more.
    let db = builder(&disk, &executor).background_bytes_per_s(1).open().unwrap();
    let options = KeyspaceOptions::default().min_conversion_bytes(1 << 30);
    let keyspace = db.keyspace("k", options.partition_bytes(16 << 10)).unwrap();
    put(&keyspace, 1);
    keyspace.flush().unwrap();
    executor.run_until_idle();
    let before = executor.now();
    let room = disk.used_bytes() + (64 << 10);
    disk.set_space_limit_bytes(Some(room));
    let full = (0..100_000_u32).find_map(|number| {
        let put = keyspace.insert(number.to_be_bytes(), [2; 200]);
        put.err()
    });
    assert_eq!(full.map(|e| e.kind()), Some(ErrorKind::DiskFull));
    for number in 0..3000_u32 {
        keyspace.remove(number.to_be_bytes()).unwrap();
    }
    keyspace.convert().unwrap();
    assert!(executor.now() - before < Duration::from_secs(3600), "{:?}", executor.now() - before);
    assert_eq!(keyspace.iter().count(), 0);
}
