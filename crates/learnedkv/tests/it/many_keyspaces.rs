//! Many keyspaces in one database: what they share is bounded, and idle ones hold nothing up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use learnedkv::disk::OperationKind;
use learnedkv::disk::sim::{CrashKind, SimDisk, Stage};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, ErrorKind, Keyspace, KeyspaceOptions};

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

/// Counts the syncs of manifests and of the log from now on.
fn count_syncs(disk: &SimDisk) -> [Arc<AtomicU64>; 2] {
    let all = [0; 2].map(|_| Arc::new(AtomicU64::new(0)));
    let counts: Vec<_> = ["manifest-", "log-"].into_iter().zip(all.clone()).collect();
    disk.observe(move |operation, _| {
        let path = operation.path.to_string_lossy();
        let syncs = [OperationKind::Sync, OperationKind::SyncLog].contains(&operation.kind)
            && operation.stage == Stage::Before;
        for (name, count) in &counts {
            count.fetch_add(u64::from(syncs && path.contains(name)), Ordering::Relaxed);
        }
    });
    all
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

/// There was no way to ask for less than four times what memtables may take.
#[test]
fn the_log_is_as_short_as_its_user_asks() {
    let builder = || {
        Database::builder("/db")
            .disk(Arc::new(SimDisk::new(1)))
            .executor(Arc::new(SeededExecutor::new(1)))
            .memtable_bytes(MEMTABLE_BYTES)
            .memory_budget_bytes(8 * MEMTABLE_BYTES as u64)
            .log_segment_bytes(8 << 10)
    };
    let most = 3 * MEMTABLE_BYTES as u64;
    let db = builder().max_log_bytes(most).open().unwrap();
    let [idle, busy] = ["idle", "busy"].map(|name| {
        let keyspace = db.keyspace(name, Setup::default().keyspace).unwrap();
        keyspace.insert("once", "v").unwrap();
        keyspace
    });
    for number in 0..3000u32 {
        busy.insert(number.to_be_bytes(), [7; 100]).unwrap();
        let log_bytes = db.stats().log_bytes;
        assert!(log_bytes <= 2 * most, "{number}: {log_bytes} bytes of log");
    }
    db.wait_idle().unwrap();
    assert!(db.stats().log_bytes <= most, "{} bytes of log", db.stats().log_bytes);
    assert_eq!(idle.stats().unwrap().memtable_bytes, 0, "the log is kept for it");
    let error = builder().max_log_bytes(2 * MEMTABLE_BYTES as u64 - 1).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("max_log_bytes: expected 65536 to"), "{error}");
}

/// There was no call for all: one after the other waited for a sync of the log and of the manifest each.
#[test]
fn all_are_flushed_by_one_call_and_few_edits() {
    let disk = SimDisk::new(1);
    let (db, _executor) = open(&disk, 1);
    let make = |n: u32| db.keyspace(&format!("k{n}"), Setup::default().keyspace).unwrap();
    let keyspaces: Vec<_> = (0..300).map(make).collect();
    keyspaces.iter().for_each(|keyspace| keyspace.insert("once", "v").unwrap());
    let [edits, _] = count_syncs(&disk);
    db.flush().unwrap();
    assert_eq!(memtable_bytes(&db), 0);
    let edits = edits.load(Ordering::Relaxed);
    assert!((1..30).contains(&edits), "{edits} edits");
    assert!(keyspaces.iter().all(|keyspace| keyspace.get("once").unwrap().is_some()));
    // Nothing is left to flush, and what is dropped keeps nobody.
    keyspaces[0].insert("twice", "v").unwrap();
    db.drop_keyspace("k0").unwrap();
    db.flush().unwrap();
}

/// Each was flushed by an edit of its own, with a sync of the manifest and one of the log.
#[test]
fn idle_keyspaces_that_pin_the_log_are_flushed_by_few_edits() {
    let disk = SimDisk::new(1);
    let (db, executor) = open(&disk, 1);
    let make = |n: u32| db.keyspace(&format!("idle{n}"), Setup::default().keyspace).unwrap();
    let idle: Vec<_> = (0..300).map(make).collect();
    idle.iter().for_each(|keyspace| keyspace.insert("once", "v").unwrap());
    // Large partitions: nothing is swept.
    let busy = db.keyspace("busy", KeyspaceOptions::default()).unwrap();
    let [edits, log_syncs] = count_syncs(&disk);
    let mut number = 0u32;
    while db.stats().flushes < 300 {
        busy.insert(number.to_be_bytes(), [7; 100]).unwrap();
        number += 1;
        assert!(number < 20_000, "the idle keyspaces are not flushed");
    }
    executor.run_until_idle();
    disk.stop_observing();
    let [edits, log_syncs] = [edits, log_syncs].map(|count| count.load(Ordering::Relaxed));
    // Those of the busy one's flushes and merges are among them.
    let of_busy = u64::from(number) * 112 / MEMTABLE_BYTES as u64;
    println!(
        "{edits} edits, {log_syncs} syncs of the log, {of_busy} memtables of the busy keyspace"
    );
    assert!(edits < 15 + 3 * of_busy, "{edits} edits");
    assert!(log_syncs < 15 + 3 * of_busy, "{log_syncs} syncs of the log");
}

const IDLE: u64 = 12;

/// Commit `number` wrote to the busy keyspace and to one that is idle else, in one batch.
fn commits_of(keyspace: &Keyspace) -> Vec<u64> {
    let number = |key: learnedkv::Slice| u64::from_be_bytes(key[..].try_into().unwrap());
    keyspace.keys().map(|key| number(key.unwrap())).collect()
}

/// Process and machine die before and amid each operation that is not one commit's: while several flushes are
/// written, while one edit installs them, and after it. No batch is torn, and what was acknowledged is there.
#[test]
fn a_crash_anywhere_is_no_worse_where_flushes_are_installed_together() {
    for seed in 0..2 {
        let disk = SimDisk::new(seed);
        let setup = Setup::default();
        let db = setup.open(&disk, seed).unwrap();
        let names: Vec<_> = (0..IDLE).map(|n| format!("idle{n}")).collect();
        let make = |name: &String| db.keyspace(name, setup.keyspace.clone()).unwrap();
        let idle: Vec<_> = names.iter().map(make).collect();
        let busy = make(&"busy".to_owned());
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (now, sink) = (acknowledged.clone(), taken.clone());
        disk.observe(move |operation, disk| {
            let is_log = operation.path.to_string_lossy().contains("log-");
            if operation.stage == Stage::After || is_log && operation.kind != OperationKind::SyncLog
            {
                return;
            }
            let at =
                format!("{:?} {} {}", operation.stage, operation.kind, operation.path.display());
            let machines =
                [operation.index % 6, 6 + operation.index].map(|s| (CrashKind::Machine, s));
            for (kind, seed) in [(CrashKind::Process, 0)].into_iter().chain(machines) {
                let dies = kind == CrashKind::Process;
                let least = if dies { now.load(Ordering::Relaxed) } else { 0 };
                sink.lock().unwrap().push((at.clone(), least, disk.crash_clone(kind, seed)));
            }
        });
        for number in 0..900u64 {
            let mut batch = db.batch();
            batch.insert(&busy, number.to_be_bytes(), [7; 30]);
            // In turns of thirty, the last ones never again.
            if number % 30 < IDLE && number < 700 {
                batch.insert(&idle[(number % 30) as usize], number.to_be_bytes(), [8; 10]);
            }
            batch.commit().unwrap();
            acknowledged.store(number as usize + 1, Ordering::Relaxed);
        }
        disk.stop_observing();
        let stats = db.stats();
        assert!(stats.flushes > 3 * IDLE, "{} flushes", stats.flushes);
        let clones = std::mem::take(&mut *taken.lock().unwrap());
        assert!(clones.len() > 500, "{} crashes", clones.len());
        let mut orphaned = 0;
        for (at, least, left) in &clones {
            let at = format!("seed {seed}: {at}");
            let db = setup.open(left, seed).unwrap_or_else(|e| panic!("{at}: {e}"));
            let removed = &db.open_report().removed_files;
            orphaned += usize::from(removed.iter().filter(|f| f.starts_with("table-")).count() > 2);
            let all = commits_of(&db.find("busy").unwrap());
            let count = all.len() as u64;
            assert!(all.iter().copied().eq(0..count), "{at}: a gap");
            assert!(all.len() >= *least, "{at}: {count} commits of {least}");
            for (n, name) in (0..).zip(&names) {
                let expected = (0..count.min(700)).filter(|number| number % 30 == n);
                let found = commits_of(&db.find(name).unwrap());
                assert!(
                    found.iter().copied().eq(expected),
                    "{at}: {name} after {count}: {found:?}"
                );
            }
        }
        assert!(orphaned > 10, "no crash came between several flushes and their edit: {orphaned}");
    }
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
