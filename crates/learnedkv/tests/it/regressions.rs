//! Bugs that were found, each in the smallest test that shows it, named by what went wrong.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, DatabaseHealth, Durability, ErrorKind, KeyspaceOptions};

use crate::workload::Setup;

/// Opens `/db`, its executor at hand.
fn open(disk: &SimDisk, setup: &Setup, seed: u64) -> (Database, Arc<SeededExecutor>) {
    let executor = Arc::new(SeededExecutor::new(seed));
    let db = Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor.clone())
        .memtable_bytes(setup.memtable_bytes)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(setup.log_segment_bytes)
        .automatic_conversion(setup.automatic_conversion)
        .open()
        .unwrap();
    (db, executor)
}

/// A step of the sweep that was begun before an ingest split its partition replaced the ingested
/// part, or raised the watermark over entries that were not merged.
#[test]
fn an_ingest_amid_a_sweep_step_is_kept() {
    let mut setup = Setup::default();
    setup.keyspace = setup.keyspace.min_conversion_bytes(0);
    for (seed, steps) in (0..6).flat_map(|seed| (0..50).map(move |steps| (seed, steps))) {
        let (db, executor) = open(&SimDisk::new(seed), &setup, seed);
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let keys = |letter: char| (0..40).map(move |n| format!("{letter}{n:02}"));
        let mut expected: Vec<String> = Vec::new();
        for key in keys('b').chain(keys('y')) {
            keyspace.insert(&key, [b'v'; 100]).unwrap();
            expected.push(key);
        }
        if seed % 2 == 0 {
            // The swept partition has a base already, and more comes on both sides.
            keyspace.convert().unwrap();
            for key in keys('a').chain(keys('z')) {
                keyspace.insert(&key, [b'v'; 100]).unwrap();
                expected.push(key);
            }
        }
        keyspace.flush().unwrap();
        for _ in 0..steps {
            executor.step_one();
        }
        keyspace.ingest(keys('m').map(|key| (key, [b'i'; 50]))).unwrap();
        expected.extend(keys('m'));
        expected.sort();
        for when in ["at once", "at rest", "converted"] {
            let found: Vec<_> = keyspace
                .iter()
                .map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap())
                .collect();
            assert_eq!(found, expected, "seed {seed}, {steps} steps, {when}");
            db.wait_idle().unwrap();
            if when == "at rest" {
                keyspace.convert().unwrap();
            }
        }
    }
}

/// A job that failed on a full disk woke itself for ever; and once there was room again, a write
/// met the error of before.
#[test]
fn a_full_disk_refuses_puts_and_goes_on_when_there_is_room() {
    let setup = Setup::default();
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (db, executor) = open(&disk, &setup, seed);
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        keyspace.insert("before", "there").unwrap();
        disk.set_space_limit_bytes(Some(disk.used_bytes() + (20 << 10)));
        let mut taken = 0;
        let error = loop {
            match keyspace.insert(format!("key{taken:05}"), [b'v'; 100]) {
                Ok(()) => taken += 1,
                Err(e) => break e,
            }
            assert!(taken < 100_000, "seed {seed}: the disk is never full");
        };
        assert_eq!(error.kind(), ErrorKind::DiskFull, "seed {seed}");
        // Refused again, not made to wait; background work comes to rest; reads go on.
        for _ in 0..3 {
            assert_eq!(keyspace.insert("x", [b'v'; 100]).unwrap_err().kind(), ErrorKind::DiskFull);
        }
        assert!(executor.run_until_idle() < 1000, "seed {seed}");
        let there = keyspace.iter().map(Result::unwrap).count();
        assert_eq!(there, taken + 1, "seed {seed}");
        disk.set_space_limit_bytes(None);
        keyspace.insert("after", "there").unwrap();
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(db.background_error().map(|e| e.kind()), None, "seed {seed}");
        drop((db, keyspace));
        let (db, _) = open(&disk, &setup, seed);
        let keyspace = db.find("k").unwrap();
        assert_eq!(keyspace.iter().map(Result::unwrap).count(), taken + 2, "seed {seed}");
    }
}

/// Not found in the engine, but no other test would: the next buffered write must be refused too.
#[test]
fn after_a_failed_sync_of_the_log_the_next_write_is_refused() {
    let setup = Setup::default();
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let db = setup.open(&faulty, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    keyspace.insert("before", "there").unwrap();
    faulty.fail(Fault::at(0).of(&[OperationKind::SyncLog]));
    let mut batch = db.batch();
    batch.insert(&keyspace, "synced", "perhaps");
    let failed = batch.commit_with(Durability::Synced).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
    assert_eq!(keyspace.insert("x", "y").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(keyspace.get("before").unwrap().as_deref(), Some(&b"there"[..]));
}

/// A crash amid a sweep, of the process or of a machine that loses all that was not synced: the
/// sweep goes on where it was, and what was removed does not come back.
#[test]
fn a_sweep_goes_on_at_its_watermark_after_a_crash() {
    // Nothing is flushed or swept unasked; what is flushed then outweighs what is settled.
    let mut setup = Setup { memtable_bytes: 256 << 10, ..Setup::default() };
    setup.keyspace = setup.keyspace.min_conversion_bytes(0);
    let disk = SimDisk::new(1);
    let (db, executor) = open(&disk, &setup, 1);
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    let name = |number: u32| format!("key{number:03}");
    for number in 0..200 {
        keyspace.insert(name(number), [b'o'; 100]).unwrap();
    }
    keyspace.convert().unwrap();
    for number in 0..200 {
        match number % 3 {
            0 => keyspace.remove(name(number)).unwrap(),
            _ => keyspace.insert(name(number), [b'n'; 600]).unwrap(),
        }
    }
    keyspace.flush().unwrap();
    let watermark = |db: &Database| db.stats().keyspaces[0].watermark.clone();
    let inside = |key: &[u8]| key > name(50).as_bytes() && key < name(150).as_bytes();
    let is_inside = |found: Option<Vec<u8>>| found.is_some_and(|key| inside(&key));
    while !is_inside(watermark(&db)) {
        assert!(executor.step_one(), "no sweep stops amid the keys");
    }
    let reached = watermark(&db);
    let crashes = [CrashKind::Process, CrashKind::Machine];
    let left = crashes.map(|kind| (kind, disk.crash_clone(kind, 0)));
    // What was left to do is what the same sweep does that was not interrupted.
    let done = db.stats().sweep_steps;
    db.wait_idle().unwrap();
    let left_to_do = db.stats().sweep_steps - done;

    for (kind, disk) in left {
        // Opened, and crashed again at once: the watermark stands in the fresh manifest too.
        let (once, _) = open(&disk, &setup, 2);
        assert_eq!(watermark(&once), reached, "{kind:?}");
        let (again, _) = open(&disk.crash_clone(kind, 0), &setup, 2);
        assert_eq!(watermark(&again), reached, "{kind:?}, twice");
        again.wait_idle().unwrap();
        let stats = again.stats();
        let keyspace = &stats.keyspaces[0];
        assert_eq!((keyspace.watermark.clone(), keyspace.runs), (None, 0), "{kind:?}: at rest");
        assert_eq!(stats.sweep_steps, left_to_do, "{kind:?}: begun anew");
        let keyspace = again.find("k").unwrap();
        let entries: Vec<_> = keyspace.iter().map(Result::unwrap).collect();
        let kept = (0..200).filter(|number| number % 3 != 0).map(name);
        assert!(entries.iter().map(|(key, _)| &**key).eq(kept.map(String::into_bytes)), "{kind:?}");
        assert!(entries.iter().all(|(_, value)| **value == [b'n'; 600]), "{kind:?}");
    }
}

/// A partition whose tables were cut off below its lower key took them for tables before the
/// ingested range: two partitions got one lower key, and the writer was poisoned.
#[test]
fn an_ingest_at_the_lower_key_of_a_cut_partition_fits() {
    let (db, _) = open(&SimDisk::new(1), &Setup::default(), 1);
    let keyspace = db.keyspace("k", Setup::default().keyspace).unwrap();
    for keys in [&["a", "z"][..], &["m"], &["m\0"]] {
        keyspace.ingest(keys.iter().map(|key| (key, "v"))).unwrap();
    }
    keyspace.insert("after", "v").unwrap();
    let keys: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, ["a", "after", "m", "m\0", "z"]);
}

/// Where an ingest splits a partition beyond its base, the part behind it keeps a base that has no key
/// in it. Ranges were searched by that base's largest key and skipped what lies beside it; the next
/// ingest then took the range for free, and settled over acknowledged entries.
#[test]
fn ranges_find_keys_beside_a_table_that_was_cut_off_wholly() {
    let name = |number: u32| format!("{number:06}").into_bytes();
    for groups in 3..8 {
        for group in 0..groups {
            let (db, _) = open(&SimDisk::new(1), &Setup::default(), 1);
            let keyspace = db.keyspace("k", learnedkv::KeyspaceOptions::default()).unwrap();
            let keys = |from: u32, to: u32| (from..to).map(move |number| (name(number), [7; 100]));
            for start in (0..groups).map(|group| group * 1000) {
                keyspace.ingest(keys(start, start + 100)).unwrap();
            }
            let start = group * 1000;
            keyspace.insert(name(start + 490), [7; 100]).unwrap();
            keyspace.convert().unwrap();
            keyspace.ingest(keys(start + 450, start + 460)).unwrap();
            let next = keyspace.range(name(start + 453)..).next().unwrap().unwrap();
            assert_eq!(next.0, name(start + 453), "group {group} of {groups}");
            let before = keyspace.range(..name(start + 453)).next_back().unwrap().unwrap();
            assert_eq!(before.0, name(start + 452), "group {group} of {groups}");
            keyspace.ingest([(name(start + 453), "new"), (name(start + 457), "new")]).unwrap();
            assert_eq!(
                keyspace.iter().count() as u32,
                groups * 100 + 11,
                "group {group} of {groups}"
            );
        }
    }
}

/// Each life of a database left a whole log segment behind, and each open read them all.
#[test]
fn many_short_lives_leave_a_small_log() {
    let disk = SimDisk::new(1);
    let setup = Setup { log_segment_bytes: 1 << 20, ..Setup::default() };
    for life in 0..30u32 {
        let (db, _) = open(&disk, &setup, u64::from(life));
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        keyspace.insert(life.to_be_bytes(), b"v").unwrap();
        assert_eq!(keyspace.iter().count() as u32, life + 1);
        assert!(disk.used_bytes() < 5 << 20, "life {life}: {} bytes", disk.used_bytes());
    }
}

/// One entry in a keyspace that is written no more kept every later log segment.
#[test]
fn an_idle_keyspace_does_not_pin_the_log() {
    let setup = Setup { memtable_bytes: 8 << 10, log_segment_bytes: 8 << 10, ..Setup::default() };
    let (db, executor) = open(&SimDisk::new(1), &setup, 1);
    let idle = db.keyspace("idle", setup.keyspace.clone()).unwrap();
    let busy = db.keyspace("busy", setup.keyspace.clone()).unwrap();
    idle.insert("once", "v").unwrap();
    for number in 0..4000u32 {
        busy.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    executor.run_until_idle();
    assert!(db.stats().log_bytes <= 200 << 10, "{} bytes of log", db.stats().log_bytes);
    assert_eq!(idle.get("once").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Space reserved in part on a full disk counted as reserved; the manifest went on behind it, had a
/// length that no manifest has, and could not be opened any more. And the writer was poisoned.
#[test]
fn a_full_disk_amid_the_manifest_leaves_a_manifest_that_opens() {
    let setup = Setup::default();
    let disk = SimDisk::new(1);
    let (db, _) = open(&disk, &setup, 1);
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    keyspace.insert("before", "there").unwrap();
    // Room for less than the manifest's next piece.
    disk.set_space_limit_bytes(Some(disk.used_bytes() + (100 << 10)));
    let mut made = Vec::new();
    let error = loop {
        let name = format!("{:0>250}", made.len());
        match db.keyspace(&name, setup.keyspace.clone()) {
            Ok(_) => made.push(name),
            Err(e) => break e,
        }
        assert!(made.len() < 10_000, "the manifest never asks for more room");
    };
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    for _ in 0..3 {
        // As long as the one that found no room: a shorter one may still fit.
        let name = format!("{:x>250}", "");
        let error = db.keyspace(&name, setup.keyspace.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    }
    for kind in [CrashKind::Process, CrashKind::Machine] {
        let left = disk.crash_clone(kind, 7);
        left.set_space_limit_bytes(None);
        let (db, _) = open(&left, &setup, 2);
        assert_eq!(db.keyspace_names().len(), made.len() + 1);
    }
    disk.set_space_limit_bytes(None);
    db.keyspace("after", setup.keyspace.clone()).unwrap();
    keyspace.insert("after", "there").unwrap();
    keyspace.convert().unwrap();
    drop((db, keyspace));
    let (db, _) = open(&disk, &setup, 3);
    assert_eq!(db.keyspace_names().len(), made.len() + 2);
    assert_eq!(db.find("k").unwrap().iter().count(), 2);
}

/// A settled table that could not be read made puts and flushes fail, also of other keyspaces, and
/// no other keyspace was settled any more.
#[test]
fn a_damaged_settled_table_fails_no_put_and_no_other_keyspace() {
    let mut setup = Setup { automatic_conversion: true, ..Setup::default() };
    setup.keyspace = setup.keyspace.min_conversion_bytes(0);
    let disk = SimDisk::new(1);
    let (db, _) = open(&disk, &setup, 1);
    let damaged = db.keyspace("damaged", setup.keyspace.clone()).unwrap();
    let other = db.keyspace("other", setup.keyspace.clone()).unwrap();
    let key = |n: u32| format!("{:05}", n % 300);
    (0..300).for_each(|n| damaged.insert(key(n), [7; 40]).unwrap());
    damaged.convert().unwrap();
    db.wait_idle().unwrap();
    drop((db, damaged, other));
    for name in disk.list(Path::new("/db")).unwrap() {
        if name.starts_with("table-") {
            let file = disk.open(&Path::new("/db").join(name), Access::Random).unwrap();
            file.write_all_at(&[0x55; 64], file.length_bytes().unwrap() / 4).unwrap();
        }
    }
    let (db, _) = open(&disk, &setup, 2);
    let [damaged, other] = ["damaged", "other"].map(|name| db.find(name).unwrap());
    for n in 0..3000 {
        damaged.insert(key(n), [8; 40]).unwrap();
        other.insert(key(n), [9; 40]).unwrap();
    }
    for _ in 0..5 {
        damaged.insert("x", "y").unwrap();
        damaged.flush().unwrap();
        other.insert("x", "y").unwrap();
        other.convert().unwrap();
        let error = damaged.convert().unwrap_err();
        assert!(error.is_corruption(), "{error}");
        let _ = db.wait_idle();
        // Also when nothing fails any more: it was gone round, and is damaged still.
        db.resume().unwrap();
        assert!(db.background_error().unwrap().is_corruption());
        assert!(matches!(db.health(), DatabaseHealth::Damaged(e) if e.is_corruption()));
    }
    assert_eq!(other.stats().unwrap().lsm_entries, 0);
    assert_eq!(other.iter().count(), 301);
}

/// A keyspace that could not be settled was dropped, and the database said for ever that it was
/// failing.
#[test]
fn what_failed_in_a_keyspace_is_forgotten_with_it() {
    let setup = Setup::default();
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let db = setup.open(&faulty, 1).unwrap();
    let bad = db.keyspace("bad", setup.keyspace.clone()).unwrap();
    (0..50).for_each(|n| bad.insert(format!("{n:05}"), [7; 20]).unwrap());
    bad.flush().unwrap();
    faulty.fail(Fault::at(0).of(&[OperationKind::Create]).on_paths_with("table-").from_then_on());
    assert_eq!(bad.convert().unwrap_err().kind(), ErrorKind::Io);
    assert!(matches!(db.health(), DatabaseHealth::Failing(e) if e.kind() == ErrorKind::Io));
    db.drop_keyspace("bad").unwrap();
    assert!(matches!(db.health(), DatabaseHealth::Well), "{:?}", db.health());
    assert!(db.background_error().is_none());
    let error = bad.insert("a", "b").unwrap_err().to_string();
    assert!(error.starts_with("keyspace \"bad\" was dropped"), "{error}");
    assert_eq!(bad.get("a").unwrap_err().to_string(), error);
}

/// One keyspace whose flush failed stopped the flushes of all: soon nobody could put anything.
#[test]
fn a_flush_that_fails_stops_no_other_keyspaces_flushes() {
    let setup = Setup { memtable_bytes: 16 << 10, ..Setup::default() };
    let key = |n: u32| format!("{n:05}");
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let db = setup.open(&faulty, 1).unwrap();
    let bad = db.keyspace("bad", setup.keyspace.clone()).unwrap();
    (0..300).for_each(|n| bad.insert(key(n), [7; 40]).unwrap());
    bad.flush().unwrap();
    let others = ["a", "z"].map(|name| db.keyspace(name, KeyspaceOptions::default()).unwrap());
    // It alone keeps its values apart, and no file can be made for them.
    let create = Fault::at(0).of(&[OperationKind::Create]).on_paths_with("values-");
    faulty.fail(create.from_then_on());
    bad.insert("new", [7; 40]).unwrap();
    bad.remove_range("00100".."00200").unwrap();
    assert_eq!(bad.flush().unwrap_err().kind(), ErrorKind::Io);
    for n in 0..4000 {
        others.iter().for_each(|keyspace| keyspace.insert(key(n), [8; 40]).unwrap());
    }
    for keyspace in &others {
        keyspace.flush().unwrap();
        keyspace.convert().unwrap();
    }
    assert_eq!(bad.flush().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(db.wait_idle().unwrap_err().kind(), ErrorKind::Io);
    // What it may hold in memory it does, then its own writers are told.
    let refused = (0..4000).find_map(|n| bad.insert(key(n + 1000), [9; 40]).err());
    assert_eq!(refused.expect("all were taken").kind(), ErrorKind::Io);
    others[0].insert("after", "v").unwrap();
    faulty.clear_faults();
    bad.insert("after", "v").unwrap();
    db.wait_idle().unwrap();
    assert!(db.background_error().is_none());
    assert!(bad.get("00150").unwrap().is_none() && bad.get("00099").unwrap().is_some());
}

/// Tombstones of keys that were never there passed for removed entries: all partitions were joined, and one
/// base was written that held them all.
#[test]
fn a_join_on_a_wrong_guess_writes_no_more_than_a_partition() {
    let setup = Setup::default();
    let (db, _) = open(&SimDisk::new(1), &setup, 1);
    let options = KeyspaceOptions::default().partition_bytes(64 << 10);
    let keyspace = db.keyspace("k", options).unwrap();
    let key = |n: u32| format!("{n:05}");
    (0..3000).for_each(|n| keyspace.insert(key(n), [7; 200]).unwrap());
    keyspace.convert().unwrap();
    let before = keyspace.stats().unwrap().partitions;
    assert!(before >= 10, "{before} partitions");
    for n in 0..3000 {
        keyspace.remove(key(n) + "x").unwrap();
    }
    keyspace.convert().unwrap();
    let after = keyspace.stats().unwrap().partitions;
    assert!(after * 2 > before, "{before} partitions became {after}");
    assert_eq!(keyspace.iter().count(), 3000);
}

/// The last reader of a file let it go and told nobody: it stayed until something else happened.
#[test]
fn a_file_goes_with_the_snapshot_that_used_it() {
    let setup = Setup::default();
    let disk = SimDisk::new(1);
    let (db, executor) = open(&disk, &setup, 1);
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    keyspace.insert("key", "value").unwrap();
    keyspace.flush().unwrap();
    let snapshot = db.snapshot();
    keyspace.convert().unwrap();
    executor.run_until_idle();
    let tables = || {
        let names = disk.list(Path::new("/db")).unwrap();
        names.iter().filter(|name| name.starts_with("table-")).count()
    };
    assert_eq!(tables(), 2);
    drop(snapshot);
    executor.run_until_idle();
    assert_eq!(tables(), 1);
}

/// An ingest waited for the memtables of its range to be flushed, and again, and again.
#[test]
fn an_ingest_ends_though_others_write_into_its_range() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let n = written.fetch_add(1, Ordering::Relaxed);
                keyspace.insert(format!("m{:03}x", n % 900), "written").unwrap();
            }
        });
        while written.load(Ordering::Relaxed) < 1000 {
            std::thread::yield_now();
        }
        for _ in 0..5 {
            let before = db.stats().flushes;
            keyspace.ingest((0..1000).map(|n| (format!("m{n:03}"), "ingested"))).unwrap();
            // The first flush, the one while commits are held, one for a commit that had begun.
            let flushes = db.stats().flushes - before;
            assert!(flushes <= 4, "{flushes} flushes");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(keyspace.iter().count(), 1900);
}

/// A stranger's file with the largest number made numbers begin anew at 0; making a segment that was
/// there already removed it.
#[test]
fn a_file_with_a_number_that_was_never_given_out_is_a_strangers() {
    let setup = Setup::default();
    let disk = SimDisk::new(1);
    let (db, _) = open(&disk, &setup, 1);
    db.keyspace("k", setup.keyspace.clone()).unwrap().insert("key", "value").unwrap();
    drop(db);
    for kind in ["log", "table", "manifest"] {
        disk.create(&Path::new("/db").join(format!("{kind}-18446744073709551615"))).unwrap();
    }
    for seed in 2..5 {
        let (db, _) = open(&disk, &setup, seed);
        let keyspace = db.find("k").unwrap();
        assert_eq!(keyspace.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        keyspace.insert(format!("key{seed}"), "value").unwrap();
    }
}

/// While a sweep was under way what it had settled was pointed at twice: more was said to live than there was.
#[test]
fn no_more_values_live_than_there_are_while_a_sweep_is_under_way() {
    let mut setup = Setup { memtable_bytes: 256 << 10, ..Setup::default() };
    setup.keyspace = setup.keyspace.separate_at(100).inline_limit(100).min_conversion_bytes(0);
    let disk = SimDisk::new(1);
    let (db, executor) = open(&disk, &setup, 1);
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    let put = |fill: u8| {
        for number in 0..400 {
            keyspace
                .insert(format!("long-key-of-a-value-kept-apart-{number:04}"), [fill; 400])
                .unwrap();
        }
    };
    put(1);
    keyspace.convert().unwrap();
    put(2);
    keyspace.flush().unwrap();
    let mut amid = 0;
    while executor.step_one() {
        let stats = keyspace.stats().unwrap();
        amid += usize::from(stats.watermark.is_some_and(|watermark| !watermark.is_empty()));
        let (live, all) = (stats.value_live_bytes, stats.value_bytes);
        assert!((400 * 400..=all).contains(&live), "{live} of {all}");
    }
    assert!(amid > 3, "{amid}");
}
