//! Many keyspaces in one database: what they share is bounded, and idle ones hold nothing up.

use std::sync::Arc;

use learnedkv::Database;
use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::SeededExecutor;

use crate::workload::Setup;

const MEMTABLE_BYTES: usize = 32 << 10;

fn open(disk: &SimDisk, seed: u64) -> (Database, Arc<SeededExecutor>) {
    let executor = Arc::new(SeededExecutor::new(seed));
    let db = Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor.clone())
        .memtable_bytes(MEMTABLE_BYTES)
        .memory_budget_bytes(4 * MEMTABLE_BYTES as u64)
        .log_segment_bytes(32 << 10)
        .open()
        .unwrap();
    (db, executor)
}

fn memtable_bytes(db: &Database) -> u64 {
    db.stats().keyspaces.iter().map(|k| k.memtable_bytes).sum()
}

/// Each keyspace could fill memtables of its own: fifty of them took fifty times the budget.
#[test]
fn memtables_of_all_keyspaces_together_are_bounded() {
    for seed in 0..4 {
        let disk = SimDisk::new(seed);
        let (db, _executor) = open(&disk, seed);
        let make = |n: u32| db.keyspace(&format!("k{n}"), Setup::default().keyspace).unwrap();
        let keyspaces: Vec<_> = (0..50).map(make).collect();
        // Four memtables, a quarter more before writers wait, and what is put between two looks.
        let most = (4 * MEMTABLE_BYTES + MEMTABLE_BYTES + MEMTABLE_BYTES / 2) as u64;
        let mut seen = 0;
        for number in 0..8000u32 {
            let keyspace = &keyspaces[number as usize % keyspaces.len()];
            keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
            if number % 64 == 0 {
                seen = seen.max(memtable_bytes(&db));
                assert!(seen <= most, "seed {seed}, {number}: {seen} bytes of memtables");
            }
        }
        // The test could not fail if each were small anyway.
        assert!(seen > 3 * MEMTABLE_BYTES as u64, "seed {seed}: {seen}");
        for (n, keyspace) in keyspaces.iter().enumerate() {
            let keys =
                keyspace.keys().map(|k| u32::from_be_bytes(k.unwrap()[..].try_into().unwrap()));
            assert!(keys.eq((0..8000).filter(|number| *number as usize % 50 == n)), "keyspace {n}");
        }
    }
}

/// One keyspace was flushed at each wake-up: hundreds of idle ones pinned the log for as many.
#[test]
fn idle_keyspaces_that_pin_the_log_are_flushed_together() {
    let (db, executor) = open(&SimDisk::new(1), 1);
    let make = |n: u32| db.keyspace(&format!("idle{n}"), Setup::default().keyspace).unwrap();
    let idle: Vec<_> = (0..300).map(make).collect();
    idle.iter().for_each(|keyspace| keyspace.insert("once", "v").unwrap());
    let busy = db.keyspace("busy", Setup::default().keyspace).unwrap();
    let max_log_bytes = 4 * 3 * MEMTABLE_BYTES as u64;
    for number in 0..10_000u32 {
        busy.insert(number.to_be_bytes(), [7; 100]).unwrap();
        let log_bytes = db.stats().log_bytes;
        assert!(log_bytes <= 2 * max_log_bytes, "{number}: {log_bytes} bytes of log");
    }
    executor.run_until_idle();
    assert!(db.stats().log_bytes <= max_log_bytes, "{} bytes of log", db.stats().log_bytes);
    let held = db.stats().keyspaces.iter().filter(|k| k.memtable_bytes > 0).count();
    assert!(held <= 1, "{held} keyspaces hold memtables");
    assert!(idle.iter().all(|keyspace| keyspace.get("once").unwrap().as_deref() == Some(b"v")));
}

/// The log forgot what it held of a dropped keyspace at the next flush of another: where there was none, never.
#[test]
fn keyspaces_that_are_dropped_before_they_are_flushed_leave_the_log() {
    let disk = SimDisk::new(1);
    let (db, executor) = open(&disk, 1);
    let kept = db.keyspace("kept", Setup::default().keyspace).unwrap();
    kept.insert("once", "v").unwrap();
    kept.flush().unwrap();
    let max_log_bytes = 4 * 3 * MEMTABLE_BYTES as u64;
    for round in 0..100 {
        let scratch = db.keyspace("scratch", Setup::default().keyspace).unwrap();
        for number in 0..50u32 {
            scratch.insert(number.to_be_bytes(), [7; 200]).unwrap();
        }
        drop(scratch);
        db.drop_keyspace("scratch").unwrap();
        executor.run_until_idle();
        let log_bytes = db.stats().log_bytes;
        assert!(log_bytes <= max_log_bytes, "round {round}: {log_bytes} bytes of log");
    }
    assert_eq!(db.stats().flushes, 1, "nothing else was flushed");
    // What is in the log behind what was dropped is recovered.
    kept.insert("twice", "w").unwrap();
    let scratch = db.keyspace("scratch", Setup::default().keyspace).unwrap();
    scratch.insert("a", "b").unwrap();
    db.drop_keyspace("scratch").unwrap();
    db.sync().unwrap();
    drop((kept, scratch, db));
    let (db, _executor) = open(&disk, 2);
    let kept = db.find("kept").unwrap();
    assert_eq!(kept.get("once").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(kept.get("twice").unwrap().as_deref(), Some(&b"w"[..]));
    assert!(db.find("scratch").is_none());
}
