//! How fast background work may write ([`learnedkv::Builder::background_bytes_per_s`]), by the executor's clock.

use std::sync::Arc;
use std::time::Duration;

use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::{Executor, SeededExecutor};
use learnedkv::{Builder, Database, ErrorKind, Keyspace, KeyspaceOptions, Store};

const MEMTABLE_BYTES: u64 = 16 << 10;
/// So little that the steps' own time, 50 us each and no part of that, is little beside it.
const RATE: u64 = 512 << 10;
/// The least there can be: a step of a sweep takes a tenth of a second, one of these conversions minutes.
const LEAST: u64 = 64 << 10;

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
        let (took, bytes) = settle(store, None, 0);
        let unlimited = bytes as f64 / took.as_secs_f64();
        assert!(unlimited > 2.0 * RATE as f64, "{store:?}: {bytes} bytes in {took:?}");
        for seed in 0..3 {
            let (took, bytes) = settle(store, Some(RATE), seed);
            assert!(bytes > 1 << 20, "{store:?}, seed {seed}: {bytes} bytes");
            let allowed = Duration::from_secs_f64(bytes as f64 / RATE as f64);
            let range = allowed.mul_f64(0.95)..allowed.mul_f64(1.3);
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
    assert!(took >= allowed.mul_f64(0.95), "{took:?} for {allowed:?}");
}

/// Two keyspaces at once, of either kind, have one allowance, and neither waits for ever.
#[test]
fn keyspaces_share_what_may_be_written() {
    for seed in 0..3 {
        let (disk, executor) = (SimDisk::new(seed), Arc::new(SeededExecutor::new(seed)));
        let db = builder(&disk, &executor).background_bytes_per_s(RATE).open().unwrap();
        let options = |store| KeyspaceOptions::default().store(store).partition_bytes(64 << 10);
        let keyspaces = [("a", Store::Tiered), ("b", Store::Lsm), ("c", Store::Tiered)]
            .map(|(name, store)| db.keyspace(name, options(store)).unwrap());
        for round in 0..2 {
            keyspaces.iter().for_each(|keyspace| put(keyspace, round));
        }
        keyspaces.iter().for_each(|keyspace| keyspace.convert().unwrap());
        let stats = db.stats();
        let bytes = stats.merged_bytes + stats.swept_bytes + stats.compacted_bytes;
        let allowed = Duration::from_secs_f64(bytes as f64 / RATE as f64);
        let took = executor.now();
        assert!(took >= allowed.mul_f64(0.95), "seed {seed}: {took:?} for {allowed:?}");
    }
}

/// A compaction of a keyspace that is gone waits for nothing. (Of what settles see `tiered/settle/patience.rs`.)
#[test]
fn nothing_is_held_back_for_a_keyspace_that_is_gone() {
    let (disk, executor) = (SimDisk::new(1), Arc::new(SeededExecutor::new(1)));
    let db = builder(&disk, &executor).background_bytes_per_s(LEAST).open().unwrap();
    let keyspace = keyspace(&db, Store::Lsm);
    put(&keyspace, 0);
    keyspace.flush().unwrap();
    // Not the ten seconds after which files of the log go.
    let is_soon = |due| due < executor.now() + Duration::from_secs(5);
    while !executor.next_due().is_some_and(is_soon) {
        assert!(executor.step_one(), "something is due to be compacted");
    }
    db.drop_keyspace("k").unwrap();
    drop(keyspace);
    let before = executor.now();
    db.wait_idle().unwrap();
    let took = executor.now() - before;
    assert!(took < Duration::from_millis(50), "{took:?}");
}

/// While puts are refused it is what makes room; and it is not paid for when there is room again.
#[test]
fn a_full_disk_has_no_limit() {
    let (disk, executor) = (SimDisk::new(1), Arc::new(SeededExecutor::new(1)));
    let db = builder(&disk, &executor).background_bytes_per_s(LEAST).open().unwrap();
    let options = KeyspaceOptions::default().min_conversion_bytes(1 << 30);
    let keyspace = db.keyspace("k", options.partition_bytes(16 << 10)).unwrap();
    put(&keyspace, 1);
    keyspace.flush().unwrap();
    executor.run_until_idle();
    let written = || db.stats().swept_bytes + db.stats().merged_bytes;
    let (before, base) = (executor.now(), written());
    disk.set_space_limit_bytes(Some(disk.used_bytes() + (64 << 10)));
    let refused = (0..100_000_u32).find_map(|number| {
        let put = keyspace.insert(number.to_be_bytes(), [2; 200]);
        put.err()
    });
    assert_eq!(refused.map(|e| e.kind()), Some(ErrorKind::DiskFull));
    for number in 0..3000_u32 {
        if number % 2 > 0 {
            keyspace.remove(number.to_be_bytes()).unwrap();
        }
    }
    keyspace.convert().unwrap();
    let took = executor.now() - before;
    let allowed = Duration::from_secs_f64((written() - base) as f64 / LEAST as f64);
    assert!(allowed > 4 * Duration::from_secs(1) && took < allowed / 2, "{took:?} for {allowed:?}");

    disk.set_space_limit_bytes(None);
    executor.advance(Duration::from_secs(2));
    executor.run_until_idle();
    keyspace.insert("room", "again").unwrap();
    let (before, base) = (executor.now(), written());
    keyspace.convert().unwrap();
    let took = executor.now() - before;
    let allowed = Duration::from_secs_f64((written() - base) as f64 / LEAST as f64);
    assert!(took < allowed.mul_f64(1.3) + Duration::from_millis(500), "{took:?} for {allowed:?}");
}
