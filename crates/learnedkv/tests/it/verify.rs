//! Checking whole databases: nothing is told of a sound one, and every damage of a damaged one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk, Stage};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, Error, ErrorKind, KeyspaceOptions, Store, Verified, Verifying};

use crate::files::{files, flip, read};
use crate::workload::{KEYS, Model, Op, Random, Removal, Setup, contents, draw, key};

/// Every so many bytes of a file one is flipped.
const STRIDE: usize = 23;

fn verify_of(disk: &SimDisk, keyspace: Option<&str>) -> (Verified, Vec<Error>) {
    verify_by(builder(disk), keyspace)
}

fn verify_by(builder: learnedkv::Builder, keyspace: Option<&str>) -> (Verified, Vec<Error>) {
    let mut damages = Vec::new();
    let mut last = 0;
    let verified = builder.verify(keyspace, &mut |told| match told {
        Verifying::Damage(error) => damages.push(error.clone()),
        Verifying::Progress { done_bytes, total_bytes } => {
            assert!(last <= done_bytes && done_bytes <= total_bytes);
            last = done_bytes;
        }
        other => panic!("{other:?}"),
    });
    let verified = verified.unwrap();
    assert_eq!(verified.damages, damages.len() as u64);
    (verified, damages)
}

pub fn verify(disk: &SimDisk) -> Vec<Error> {
    verify_of(disk, None).1
}

fn builder(disk: &SimDisk) -> learnedkv::Builder {
    let executor = Arc::new(SeededExecutor::new(1));
    Database::builder("/db").disk(Arc::new(disk.clone())).executor(executor)
}

/// A closed database with something of each sort, and what it holds.
fn sample(setup: &Setup, seed: u64) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let db = setup.open(&disk, seed).unwrap();
    let mut model = Model::new();
    let put = |number: u64, value: u8, length: usize| {
        Op::Commit(vec![("a".into(), key(number), Some(vec![value; length]))], false)
    };
    let length = |number: u64| [60, 150, 260, 20][number as usize % 4];
    let mut ops = draw(&mut Random::new(seed), setup.keys, 60, 300);
    ops.extend([Op::Create("a".into()), Op::Create("b".into())]);
    ops.extend((0..KEYS).map(|number| put(number, 1, length(number))));
    ops.push(Op::Convert("a".into()));
    ops.extend((20..40).map(|number| put(number, 3, length(number + 1))));
    let range = (Bound::Included(key(60)), Bound::Excluded(key(63)));
    let (before, after) = (Vec::new(), Vec::new());
    ops.push(Op::Remove(Removal { before, name: "a".into(), range, after, synced: false }));
    ops.extend([Op::Flush("a".into()), put(3, 4, 90), put(5, 5, 700), put(6, 5, 10)]);
    for op in &ops {
        if op.fits(&model) || matches!(op, Op::Create(_)) {
            op.apply(&db, setup).unwrap();
            op.change(&mut model);
        }
    }
    db.close().unwrap();
    (disk, model)
}

#[test]
fn nothing_is_told_of_a_sound_database_and_nothing_in_it_is_changed() {
    for (seed, store) in (0..12).zip([Store::Tiered, Store::Lsm].into_iter().cycle()) {
        let setup = Setup::of(store, seed);
        let (disk, model) = sample(&setup, seed);
        let before = disk.operation_count();
        let (verified, damages) = verify_of(&disk, None);
        assert!(damages.is_empty(), "{store:?}, seed {seed}: {damages:?}");
        assert_eq!(disk.operation_count(), before, "the disk was changed");
        assert_eq!(verified.tables, files(&disk, "table-").len() as u64);
        assert_eq!(verified.filters, files(&disk, "filter-").len() as u64);
        assert_eq!(verified.segments, files(&disk, "values-").len() as u64);
        let db = setup.open(&disk, 1).unwrap();
        let stats = db.stats();
        let sum = |of: fn(&learnedkv::KeyspaceStats) -> u64| stats.keyspaces.iter().map(of).sum();
        assert_eq!(verified.blocks, sum(|keyspace| keyspace.blocks));
        let entries: u64 = sum(|keyspace| keyspace.lsm_entries + keyspace.settled_entries);
        assert_eq!(verified.entries, entries);
        assert_eq!(verified.log_operations, db.open_report().recovered_operations);
        assert!(verified.values > 20, "{verified:?}");
        assert_eq!(contents(&db, setup.keys).unwrap(), model);
    }
}

/// A sweep under way, and partitions that share a table, are no damage.
#[test]
fn nothing_is_told_of_what_a_crash_leaves() {
    let setup = Setup::default();
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let left = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = left.clone();
    disk.observe(move |operation, disk| {
        if operation.index.is_multiple_of(13) {
            sink.lock().unwrap().push(disk.crash_clone(CrashKind::Machine, operation.index));
        }
    });
    let mut model = Model::new();
    for op in draw(&mut Random::new(3), setup.keys, 150, 300) {
        op.apply(&db, &setup).unwrap();
        op.change(&mut model);
    }
    disk.stop_observing();
    let left = std::mem::take(&mut *left.lock().unwrap());
    let mut swept = 0;
    for disk in &left {
        // Before the first edit there is no database.
        if !disk.list(Path::new("/db")).is_ok_and(|names| names.iter().any(|n| n == "CURRENT")) {
            continue;
        }
        let damages = verify(disk);
        assert!(damages.is_empty(), "{damages:?}");
        let db = setup.open(disk, 1).unwrap();
        swept += u32::from(db.stats().keyspaces.iter().any(|k| k.watermark.is_some()));
    }
    assert!(left.len() > 100 && swept > 0, "{} crashes, {swept} amid a sweep", left.len());
}

/// Below the watermark what frozen tables point at is not there any more: it stands in blocks.
#[test]
fn nothing_is_told_of_values_whose_places_a_sweep_gave_back() {
    let (disk, _db, keyspace) = crate::giving_back::open(5);
    let left = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = left.clone();
    disk.observe(move |operation, disk| {
        if operation.kind == OperationKind::Discard && operation.stage == Stage::After {
            sink.lock().unwrap().push(disk.crash_clone(CrashKind::Process, 0));
        }
    });
    keyspace.convert().unwrap();
    disk.stop_observing();
    let left = std::mem::take(&mut *left.lock().unwrap());
    assert!(left.len() > 3, "{}", left.len());
    for disk in &left {
        let (verified, damages) = verify_of(disk, None);
        assert!(damages.is_empty() && verified.values > 0, "{verified:?}: {damages:?}");
    }
}

/// What of a table, a filter or the values that count is flipped is told, with its file, and the place where that is known.
fn every_flip_is_told(setup: &Setup, seed: u64) {
    let (disk, model) = sample(setup, seed);
    let mut told = BTreeMap::new();
    for prefix in ["table-", "filter-", "values-"] {
        for path in files(&disk, prefix) {
            let bytes = read(&disk, &path);
            for at in (0..bytes.len()).step_by(STRIDE) {
                let left = disk.crash_clone(CrashKind::Process, 0);
                flip(&left, &path, at as i64, 0x10);
                let damages = verify(&left);
                let shown = path.display();
                let is_of_file = |error: &Error| error.path() == Some(path.as_path());
                assert!(damages.iter().all(is_of_file), "byte {at} of {shown}: {damages:?}");
                let counts: &mut (u32, u32) = told.entry(prefix).or_default();
                if !damages.is_empty() {
                    counts.0 += 1;
                    let place = damages.iter().filter_map(Error::offset_bytes).min();
                    let is_before = |place: u64| place <= at as u64 || prefix == "filter-";
                    assert!(place.is_none_or(is_before), "byte {at} of {shown}: {damages:?}");
                    continue;
                }
                counts.1 += 1;
                match prefix {
                    // Only what fills blocks up is in no checksum.
                    "table-" => assert_eq!(bytes[at], 0, "byte {at} of {shown} is not missed"),
                    "values-" => {
                        let found = contents(&setup.open(&left, 1).unwrap(), setup.keys).unwrap();
                        assert_eq!(found, model, "byte {at} of {shown} is not missed");
                    }
                    _ => panic!("byte {at} of {shown} is not missed"),
                }
            }
        }
    }
    println!("told and not: {told:?}");
    let enough = |prefix: &str, least: u32| told.get(prefix).is_some_and(|(n, _)| *n > least);
    assert!(enough("table-", 100) && enough("values-", 20) && enough("filter-", 10), "{told:?}");
}

#[test]
fn every_flipped_byte_that_counts_is_told() {
    every_flip_is_told(&Setup::default(), 1);
}

#[test]
fn every_flipped_byte_that_counts_is_told_of_levels() {
    every_flip_is_told(&Setup::levels(), 2);
}

/// What the log and the manifest lose an open refuses: so it is told, and the tables are looked at all the same.
#[test]
fn damage_of_log_and_manifest_is_told_where_an_open_would_fail() {
    let setup = Setup::default();
    let (disk, _) = sample(&setup, 1);
    let whole = verify_of(&disk, None).0;
    let mut told = 0;
    for path in files(&disk, "log-").into_iter().chain(files(&disk, "manifest-")) {
        let bytes = read(&disk, &path);
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for at in (0..end).step_by(STRIDE) {
            let left = disk.crash_clone(CrashKind::Process, 0);
            flip(&left, &path, at as i64, 0x10);
            let (verified, damages) = verify_of(&left, None);
            let opened = setup.open(&left, 1);
            assert_eq!(damages.is_empty(), opened.is_ok(), "byte {at} of {}", path.display());
            if let Err(e) = opened {
                told += 1;
                assert_eq!(damages[0].to_string(), e.to_string());
                if path.to_string_lossy().contains("log-") {
                    assert_eq!(verified.entries, whole.entries);
                }
            }
        }
    }
    assert!(told > 20, "{told} damages told");
}

/// A crash of the machine leaves the same, so it is no damage: what an open drops is counted.
#[test]
fn whole_records_behind_a_damaged_one_that_was_never_synced_are_counted() {
    let disk = SimDisk::new(1);
    let db = builder(&disk).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (1..=5u8).for_each(|number| keyspace.insert([number], [number; 100]).unwrap());
    let left = disk.crash_clone(CrashKind::Process, 0);
    let [log] = files(&left, "log-").try_into().unwrap();
    let second = read(&left, &log).windows(100).position(|value| value == [2; 100]).unwrap();
    flip(&left, &log, second as i64, 0x10);
    let (verified, damages) = verify_of(&left, None);
    assert!(damages.is_empty(), "{damages:?}");
    assert_eq!((verified.log_records, verified.dropped_records), (1, 3));
    let db = builder(&left).open().unwrap();
    assert_eq!(db.open_report().dropped_records, 3);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert_eq!(keyspace.get([1]).unwrap().unwrap()[..], [1; 100]);
    assert_eq!(keyspace.iter().count(), 1);
}

#[test]
fn missing_files_are_told_and_all_else_is_looked_at() {
    let (disk, _) = sample(&Setup::default(), 1);
    let whole = verify_of(&disk, None).0;
    for prefix in ["table-", "filter-", "values-"] {
        for path in files(&disk, prefix) {
            let left = disk.crash_clone(CrashKind::Process, 0);
            left.remove(&path).unwrap();
            let (verified, damages) = verify_of(&left, None);
            assert!(!damages.is_empty());
            assert!(damages.iter().all(|e| e.path() == Some(&path)), "{damages:?}");
            assert_eq!(verified.tables, whole.tables);
            if prefix == "values-" {
                // One line for the file, one for each value that is lost with it, which names the key.
                let lost = whole.values - verified.values;
                assert_eq!(damages.len() as u64, 1 + lost, "{damages:?}");
                let names_key = |e: &Error| e.to_string().contains("the value of key \"");
                assert!(damages[1..].iter().all(names_key), "{damages:?}");
            }
        }
    }
    let path = files(&disk, "log-").remove(0);
    let left = disk.crash_clone(CrashKind::Process, 0);
    left.remove(&path).unwrap();
    let (verified, damages) = verify_of(&left, None);
    assert_eq!((damages.len(), verified.entries), (1, whole.entries), "{damages:?}");
    disk.open(Path::new("/db/CURRENT"), Access::Random).unwrap().truncate(3).unwrap();
    let (verified, damages) = verify_of(&disk, None);
    assert_eq!((damages.len(), verified.tables), (1, 0), "{damages:?}");
    assert_eq!(damages[0].path(), Some(Path::new("/db/CURRENT")));
}

/// A table cut short, an empty one, another's, garbage: told, and blocks are looked at as far as they can be found.
#[test]
fn it_goes_on_after_damage() {
    let (disk, _) = sample(&Setup::default(), 1);
    let whole = verify_of(&disk, None).0;
    let paths = files(&disk, "table-");
    let (path, bytes) =
        paths.iter().map(|path| (path, read(&disk, path))).max_by_key(|(_, b)| b.len()).unwrap();
    // Three blocks and the index of one table, and a filter: one line each.
    let left = disk.crash_clone(CrashKind::Process, 0);
    for at in [30, 600, 1500] {
        flip(&left, path, at as i64, 0x10);
    }
    let filter = files(&disk, "filter-").pop().unwrap();
    flip(&left, &filter, 70, 0x10);
    let (verified, damages) = verify_of(&left, None);
    assert_eq!((verified.blocks, damages.len()), (whole.blocks - 3, 4), "{damages:?}");
    let mut places: Vec<_> = damages.iter().filter(|e| e.path() == Some(path)).collect();
    places.sort_by_key(|e| e.offset_bytes());
    let places: Vec<_> = places.iter().map(|e| e.offset_bytes().unwrap()).collect();
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]) && places.len() == 3, "{damages:?}");
    let of_table = blocks_of(&disk, path);
    for damage in ["empty", "cut", "another", "garbage"] {
        let left = disk.crash_clone(CrashKind::Process, 0);
        let file = left.open(path, Access::Random).unwrap();
        match damage {
            "empty" => file.truncate(0).unwrap(),
            "cut" => file.truncate(bytes.len() as u64 / 2).unwrap(),
            "another" => {
                let other = paths.iter().find(|other| *other != path).unwrap();
                left.remove(path).unwrap();
                left.create(path).unwrap().write_all_at(&read(&disk, other), 0).unwrap();
            }
            _ => {
                let mut random = Random::new(7);
                let garbage: Vec<u8> = bytes.iter().map(|_| random.next() as u8).collect();
                file.write_all_at(&garbage, 0).unwrap();
            }
        }
        let (verified, damages) = verify_of(&left, None);
        let is_of_table = |e: &Error| e.path() == Some(path);
        assert!(!damages.is_empty() && damages.iter().all(is_of_table), "{damage}: {damages:?}");
        let lost = whole.blocks - verified.blocks;
        match damage {
            // Without its end it has no index: blocks are found by their own headers.
            "cut" => assert!(lost > 0 && lost < of_table * 2 / 3, "{lost} of {of_table}"),
            _ => assert_eq!(lost, of_table, "{damage}"),
        }
    }
}

/// How many blocks a table has: what a check finds less without its file.
fn blocks_of(disk: &SimDisk, path: &Path) -> u64 {
    let without = disk.crash_clone(CrashKind::Process, 0);
    without.remove(path).unwrap();
    verify_of(disk, None).0.blocks - verify_of(&without, None).0.blocks
}

/// Of its values it was said that nobody names the segment they are in.
#[test]
fn of_the_values_of_a_segment_that_the_disk_refuses_it_is_said_why() {
    let setup = Setup::default();
    let (disk, _) = sample(&setup, 1);
    let sound = verify_of(&disk, None).0;
    let faulty = FaultyDisk::new(Arc::new(disk.clone()));
    faulty.fail(Fault::at(0).of(&[OperationKind::Read]).on_paths_with("values-"));
    let (verified, damages) = verify_by(builder(&disk).disk(Arc::new(faulty)), None);
    let (lost, refused): (Vec<_>, Vec<_>) =
        damages.iter().partition(|e| e.to_string().contains("the value of key"));
    assert_eq!(refused.len(), 1, "of the segment itself: {damages:?}");
    let path = refused[0].path();
    assert!(path.is_some() && refused[0].kind() == ErrorKind::Io, "{refused:?}");
    assert_eq!(lost.len() as u64, sound.values - verified.values);
    assert!(!lost.is_empty());
    assert!(lost.iter().all(|e| e.kind() == ErrorKind::Io && e.path() == path), "{lost:?}");
}

#[test]
fn one_keyspace_is_checked_and_others_are_not() {
    let setup = Setup::default();
    let (disk, _) = sample(&setup, 1);
    let db = setup.open(&disk, 1).unwrap();
    db.keyspace("other", setup.keyspace.clone()).unwrap().insert("key", [1; 20]).unwrap();
    db.find("other").unwrap().flush().unwrap();
    drop(db);
    let (all, of_one) = (verify_of(&disk, None).0, verify_of(&disk, Some("other")).0);
    assert_eq!((of_one.tables, of_one.entries, of_one.damages), (1, 1, 0));
    assert!(all.tables > 3);
    let error = builder(&disk).verify(Some("none"), &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("\"none\"; there are: "), "{error}");
}

#[test]
fn an_open_database_is_checked_beside_readers_alone() {
    let setup = Setup::default();
    let (disk, _) = sample(&setup, 1);
    let reader = builder(&disk).read_only(true).open().unwrap();
    assert!(verify(&disk).is_empty());
    drop(reader);
    let db = setup.open(&disk, 1).unwrap();
    let error = builder(&disk).verify(None, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    drop(db);
    assert!(verify(&disk).is_empty());
    for path in ["/none", "/empty"] {
        disk.create_dir(Path::new("/empty")).unwrap();
        let builder = Database::builder(path).disk(Arc::new(disk.clone()));
        let error = builder.verify(None, &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(disk.list(Path::new("/empty")).unwrap(), Vec::<String>::new());
    }
}
