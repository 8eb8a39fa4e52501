//! What conversions give back: value segments are emptied though nothing is fresh, since what a sweep makes dead is given back by
//! the next, which needs no further write; few long values count among many short ones; levels are rid of what was removed.

use std::path::Path;
use std::sync::{Arc, Mutex};

use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk};
use learnedkv::{
    Database, DatabaseHealth, ErrorKind, Keyspace, KeyspaceOptions, KeyspaceStats, Store,
};

use crate::files::files;
use crate::workload::Setup;

const KEYS: u64 = 3000;
const LENGTH: usize = 300;

/// Values that stay apart for good.
fn setup(automatic_conversion: bool) -> Setup {
    let options = KeyspaceOptions::default().separate_at(100).inline_limit(200).block_bytes(512);
    let options = options.partition_bytes(64 << 10).min_conversion_bytes(64 << 10);
    Setup {
        memtable_bytes: 64 << 10,
        log_segment_bytes: 64 << 10,
        keyspace: options,
        automatic_conversion,
        stream_at: 1 << 20,
        ..Setup::default()
    }
}

fn open(disk: &SimDisk, setup: &Setup, seed: u64) -> (Database, Keyspace) {
    let db = setup.open(disk, seed).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (db, keyspace)
}

/// Each segment has some of each part of the key space.
fn key(number: u64) -> String {
    format!("key{:05}", number * 7919 % 100_000)
}

fn put(keyspace: &Keyspace, numbers: impl Iterator<Item = u64>, fill: u8) {
    numbers.for_each(|number| keyspace.insert(key(number), vec![fill; LENGTH]).unwrap());
}

/// Three of four.
fn is_overwritten(number: u64) -> bool {
    !number.is_multiple_of(4)
}

fn check(keyspace: &Keyspace) {
    for number in 0..KEYS {
        let expected = vec![1 + u8::from(is_overwritten(number)); LENGTH];
        assert!(keyspace.get(key(number)).unwrap().unwrap() == expected, "{number}");
    }
}

/// All settled, and then most of it overwritten and flushed.
fn mostly_overwritten(keyspace: &Keyspace) {
    put(keyspace, 0..KEYS, 1);
    keyspace.convert().unwrap();
    put(keyspace, (0..KEYS).filter(|number| is_overwritten(*number)), 2);
    keyspace.flush().unwrap();
}

/// Of what lives so much may be dead, with a file's own bytes.
fn is_given_back(stats: &KeyspaceStats) -> bool {
    stats.value_live_bytes >= KEYS * LENGTH as u64
        && stats.value_bytes <= stats.value_live_bytes * 133 / 100
}

/// They stayed as they were, 1.75 times what lived, through any number of conversions: until something was written.
#[test]
fn a_conversion_gives_back_what_it_makes_dead() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let (db, keyspace) = open(&disk, &setup(false), seed);
        mostly_overwritten(&keyspace);
        let sweeps = db.stats().sweeps;
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        assert!(is_given_back(&stats), "{} of {}", stats.value_live_bytes, stats.value_bytes);
        assert!(db.stats().sweeps >= sweeps + 2);
        assert_eq!((stats.runs, stats.watermark.as_ref()), (0, None));
        check(&keyspace);
        // And then there is nothing to do.
        let (sweeps, written) = (db.stats().sweeps, db.stats().swept_bytes);
        keyspace.convert().unwrap();
        assert_eq!((db.stats().sweeps, db.stats().swept_bytes), (sweeps, written));
        db.wait_idle().unwrap();
        assert!(on_disk(&disk) <= stats.value_live_bytes * 135 / 100, "{}", on_disk(&disk));
        drop((db, keyspace));
        let (_db, keyspace) = open(&disk, &setup(false), seed);
        check(&keyspace);
    }
}

/// A sweep had begun for what was overwritten, and left all of it dead, since nothing came after: also once it was opened
/// again.
#[test]
fn a_sweep_that_leaves_too_much_dead_is_followed_by_another() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        // All that is overwritten comes by one flush, and is settled by one sweep.
        let setup = Setup { memtable_bytes: 2 << 20, memory_budget_bytes: 16 << 20, ..setup(true) };
        let (db, keyspace) = open(&disk, &setup, seed);
        let sink: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
        mostly_overwritten(&keyspace);
        let (seen, watched) = (sink.clone(), db.clone());
        let sweeps = db.stats().sweeps;
        disk.observe(move |operation, disk| {
            let mut seen = seen.lock().unwrap();
            if seen.is_empty() && watched.stats().sweeps > sweeps {
                seen.push(disk.crash_clone(CrashKind::Process, operation.index));
            }
        });
        db.wait_idle().unwrap();
        disk.stop_observing();
        let crashed = sink.lock().unwrap().pop().expect("it goes on after a sweep");
        let opened = open(&crashed, &setup, seed);
        opened.0.wait_idle().unwrap();
        for (db, keyspace) in [(db, keyspace), opened] {
            let stats = keyspace.stats().unwrap();
            assert_eq!((stats.runs, stats.watermark.as_ref()), (0, None));
            assert!(is_given_back(&stats), "{} of {}", stats.value_live_bytes, stats.value_bytes);
            check(&keyspace);
            drop(db);
        }
    }
}

/// One would follow the other for ever: what a table that cannot be read points at stays.
#[test]
fn a_segment_that_cannot_be_emptied_is_not_swept_for_again_and_again() {
    let disk = SimDisk::new(1);
    // Each segment has some values in each of many bases.
    let setup = setup(true);
    let setup = Setup { keyspace: setup.keyspace.clone().partition_bytes(4 << 10), ..setup };
    let (db, keyspace) = open(&disk, &setup, 1);
    put(&keyspace, 0..KEYS, 1);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    drop((db, keyspace));
    let bases = files(&disk, "table-");
    assert!(bases.len() > 10, "{}", bases.len());
    let base = &bases[bases.len() / 2];
    disk.open(base, Access::Random).unwrap().write_all_at(&[0x55; 8], 100).unwrap();
    let (db, keyspace) = open(&disk, &setup, 2);
    put(&keyspace, (0..KEYS).filter(|number| number % 5 > 0), 2);
    keyspace.flush().unwrap();
    // They end, and say what they met.
    assert!(keyspace.convert().unwrap_err().is_corruption());
    let _ = db.wait_idle();
    let sweeps = db.stats().sweeps;
    assert!(sweeps < 20, "{sweeps}");
    assert!(keyspace.convert().unwrap_err().is_corruption());
    // Background work has its turn whenever somebody writes.
    let other = db.keyspace("other", setup.keyspace.clone()).unwrap();
    put(&other, 0..KEYS, 1);
    let _ = db.wait_idle();
    assert!(db.stats().sweeps <= sweeps + 6, "{} after {sweeps}", db.stats().sweeps);
    for number in (0..KEYS).filter(|number| number % 5 > 0) {
        assert!(keyspace.get(key(number)).unwrap().unwrap() == vec![2; LENGTH], "{number}");
    }
}

/// Nothing is frozen but a watermark, in the midst of what is settled: a restart goes on from there, and nothing is lost.
#[test]
fn a_crash_amid_a_sweep_of_nothing_fresh_loses_nothing() {
    for kind in [CrashKind::Process, CrashKind::Machine] {
        let disk = SimDisk::new(1);
        // Many steps.
        let setup = setup(false);
        let setup = Setup { keyspace: setup.keyspace.clone().partition_bytes(8 << 10), ..setup };
        let (db, keyspace) = open(&disk, &setup, 1);
        mostly_overwritten(&keyspace);
        let sweeps = db.stats().sweeps;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let mut every = 0;
        disk.observe(move |operation, disk| {
            every += 1;
            if every % 2 == 0 {
                sink.lock().unwrap().push(disk.crash_clone(kind, operation.index));
            }
        });
        keyspace.convert().unwrap();
        disk.stop_observing();
        assert!(db.stats().sweeps >= sweeps + 2);
        let crashed = std::mem::take(&mut *seen.lock().unwrap());
        let mut amid = 0;
        for (seed, disk) in crashed.iter().enumerate() {
            let automatic = seed % 2 == 1;
            let setup = Setup { automatic_conversion: automatic, ..setup.clone() };
            let (db, keyspace) = open(disk, &setup, seed as u64);
            check(&keyspace);
            // All is settled, and a sweep is under way: only the one that empties.
            let stats = keyspace.stats().unwrap();
            amid += u64::from(stats.runs == 0 && stats.watermark.is_some_and(|w| !w.is_empty()));
            if automatic {
                // A sweep that goes on leaves what it had passed to the next.
                db.wait_idle().unwrap();
            } else {
                keyspace.convert().unwrap();
            }
            check(&keyspace);
            let stats = keyspace.stats().unwrap();
            assert!(is_given_back(&stats), "{} of {}", stats.value_live_bytes, stats.value_bytes);
        }
        assert!(amid >= 10, "{amid} of {}", crashed.len());
    }
}

/// It would have filled the disk, given the ballast up, ended with nothing emptied, and begun anew.
#[test]
fn where_there_is_no_room_for_what_lives_no_segment_is_emptied() {
    let disk = SimDisk::new(1);
    // One segment.
    let setup = Setup { memtable_bytes: 2 << 20, memory_budget_bytes: 16 << 20, ..setup(false) };
    let (db, keyspace) = open(&disk, &setup, 1);
    mostly_overwritten(&keyspace);
    db.wait_idle().unwrap();
    let limit = disk.used_bytes() + (320 << 10);
    disk.set_space_limit_bytes(Some(limit));
    // It said that all was well.
    for _ in 0..2 {
        let told = keyspace.convert().unwrap_err();
        assert_eq!((told.kind(), told.path()), (ErrorKind::DiskFull, Some(Path::new("/db"))));
        assert!(told.to_string().contains("of its value segments 1 stays"), "{told}");
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.runs, stats.watermark.as_ref()), (0, None));
        assert!(stats.value_bytes > stats.value_live_bytes * 16 / 10, "nothing was emptied");
        assert!(matches!(db.health(), DatabaseHealth::Well), "puts go on");
    }
    drop((db, keyspace));
    // Memtables and log segments are smaller on so small a disk, and leave more room.
    let opened = open(&disk, &setup, 3);
    let limit = disk.used_bytes() + (320 << 10);
    drop(opened);
    disk.set_space_limit_bytes(Some(limit));
    let (db, keyspace) = open(&disk, &Setup { automatic_conversion: true, ..setup }, 2);
    let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
    for number in 0..200 {
        other.insert(key(number), "v").expect("there is room");
    }
    db.wait_idle().unwrap();
    assert_eq!(db.stats().sweeps, 0);
    disk.set_space_limit_bytes(None);
    other.insert("more", "v").unwrap();
    db.wait_idle().unwrap();
    let stats = keyspace.stats().unwrap();
    assert!(is_given_back(&stats), "{} of {}", stats.value_live_bytes, stats.value_bytes);
    check(&keyspace);
}

fn on_disk(disk: &SimDisk) -> u64 {
    let length = |path| disk.open(path, Access::Random).unwrap().length_bytes().unwrap();
    files(disk, "values-").iter().map(|path| length(path)).sum()
}

/// Of removals one in 256 was looked up, as of short values, or one in some more: of few long values none, or one that stood
/// for 32. Their space stayed for good, and counted as alive.
#[test]
fn few_long_values_that_are_removed_among_many_short_ones_come_back() {
    const LONG: usize = 200 << 10;
    for overwrites in [false, true] {
        let disk = SimDisk::new(1);
        let (_db, keyspace) = open(&disk, &setup(false), 1);
        put(&keyspace, 0..KEYS, 1);
        let long = |number: u64| format!("{}-long", key(number * 100));
        (0..20).for_each(|number| keyspace.insert(long(number), vec![3; LONG]).unwrap());
        keyspace.convert().unwrap();
        let before = keyspace.stats().unwrap().value_bytes;
        assert!(before > 20 * LONG as u64);
        for number in 0..18 {
            match overwrites {
                true => keyspace.insert(long(number), "short").unwrap(),
                false => keyspace.remove(long(number)).unwrap(),
            }
        }
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        let left = 2 * LONG as u64 + KEYS * LENGTH as u64;
        assert!(stats.value_bytes < left * 11 / 10, "{} of {before}, {left}", stats.value_bytes);
        (18..20)
            .for_each(|number| assert!(keyspace.get(long(number)).unwrap().unwrap() == [3; LONG]));
    }
}

/// Tombstones of levels stayed above the last one until more was written, and all that they removed below them: four times what
/// lived, whatever was converted.
#[test]
fn a_conversion_of_levels_is_rid_of_what_was_removed() {
    for seed in 0..4 {
        let options = KeyspaceOptions::default().store(Store::Lsm).partition_bytes(64 << 10);
        let setup = Setup {
            memtable_bytes: 64 << 10,
            log_segment_bytes: 64 << 10,
            keyspace: options.level_base_bytes(128 << 10).level_multiplier(4),
            ..Setup::default()
        };
        let disk = SimDisk::new(seed);
        let db = setup.open(&disk, seed).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let key = |number: u32| (number * 7919 % 20_000).to_be_bytes();
        (0..20_000).for_each(|number| keyspace.insert(key(number), [7; 100]).unwrap());
        keyspace.convert().unwrap();
        let before = keyspace.stats().unwrap();
        let is_removed = |number: &u32| !number.is_multiple_of(5);
        (0..20_000).filter(is_removed).for_each(|number| keyspace.remove(key(number)).unwrap());
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        assert!(
            stats.lsm_entries < 5000 && stats.space_bytes < before.space_bytes / 3,
            "{} entries in {} bytes, of {} before",
            stats.lsm_entries,
            stats.space_bytes,
            before.space_bytes
        );
        assert_eq!(keyspace.iter().count(), 4000);
    }
}
