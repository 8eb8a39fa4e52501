//! Reading what is left of a database whose log is damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{
    Builder, Compression, Database, DatabaseHealth, ErrorKind, KeyspaceOptions, Slice, Store,
};

use crate::files::{files, flip, read};

const NAMES: [&str; 2] = ["a", "b"];
const OPERATIONS: usize = 160;
const KEYS: usize = 30;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// What each keyspace held after so many operations.
type States = Vec<[Entries; 2]>;

fn builder(disk: &(impl Disk + Clone + 'static)) -> Builder {
    Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(64 << 10)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(4 << 10)
}

/// What a process leaves that dies: segments of two lives, which hold some that is flushed already; what each
/// keyspace held after each operation; and after how many it was flushed.
fn sample() -> (SimDisk, States, [usize; 2]) {
    let disk = SimDisk::new(3);
    let mut states: States = vec![Default::default()];
    let mut flushed = [0; 2];
    for life in 0..2 {
        let db = builder(&disk).open().unwrap();
        let spaces = NAMES.map(|name| db.keyspace(name, KeyspaceOptions::default()).unwrap());
        for number in life * OPERATIONS / 2..(life + 1) * OPERATIONS / 2 {
            let mut now = states[number].clone();
            let (at, key) = (number % 2, format!("{:02}", number * 7 % KEYS).into_bytes());
            if number % 5 == 3 {
                spaces[at].remove(&key).unwrap();
                now[at].remove(&key);
            } else {
                let value = vec![number as u8; 100 + number % 300];
                spaces[at].insert(&key, &value).unwrap();
                now[at].insert(key, value);
            }
            states.push(now);
            // The one flushed early keeps the log of what the other put since.
            if let Some(at) = [50, 90].iter().position(|when| *when == number) {
                spaces[at].flush().unwrap();
                flushed[at] = number + 1;
            }
            // So that what is lost was durable.
            if number % 40 == 39 {
                db.sync().unwrap();
            }
        }
        drop(spaces);
        drop(db);
    }
    (disk.crash_clone(CrashKind::Process, 0), states, flushed)
}

fn contents(db: &Database) -> [Entries; 2] {
    let owned = |slice: Slice| slice.to_vec();
    NAMES.map(|name| {
        let entries = db.find(name).unwrap().iter().map(Result::unwrap);
        entries.map(|(key, value)| (owned(key), owned(value))).collect()
    })
}

/// After how many operations the log ends of which that is left: all of each keyspace up to there, or up to its flush.
fn end_of(left: &[Entries; 2], states: &States, flushed: [usize; 2]) -> Option<usize> {
    let is_left = |end: &usize| (0..2).all(|at| left[at] == states[(*end).max(flushed[at])][at]);
    (0..states.len()).rev().find(is_left)
}

fn all_files(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    files(disk, "").into_iter().map(|path| (path.clone(), read(disk, &path))).collect()
}

/// A damaged segment of the log made all that was settled long ago unreadable.
#[test]
fn what_tables_hold_and_the_log_up_to_its_damage_is_read() {
    let (disk, states, flushed) = sample();
    let logs = files(&disk, "log-");
    assert!(logs.len() > 6 && flushed[0] < flushed[1], "{logs:?} {flushed:?}");
    let (mut told, mut ends) = (0, BTreeSet::new());
    let mut damaged: Vec<(String, SimDisk)> = Vec::new();
    for path in &logs {
        let lost = disk.crash_clone(CrashKind::Process, 0);
        lost.remove(path).unwrap();
        damaged.push((format!("without {}", path.display()), lost));
        let bytes = read(&disk, path);
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for at in (0..end).step_by(97) {
            let left = disk.crash_clone(CrashKind::Process, 0);
            flip(&left, path, at as i64, 0x10);
            damaged.push((format!("byte {at} of {}", path.display()), left));
        }
    }
    for (what, left) in damaged {
        let before = all_files(&left);
        let db = builder(&left).salvage(true).open().unwrap_or_else(|e| panic!("{what}: {e}"));
        let damage = db.open_report().log_damage.clone();
        let found = contents(&db);
        let end = end_of(&found, &states, flushed);
        let end = end.unwrap_or_else(|| panic!("{what}: no prefix of what was put"));
        ends.insert(end);
        assert_eq!(db.find("a").unwrap().insert("x", "y").unwrap_err().kind(), ErrorKind::ReadOnly);
        db.close().unwrap();
        assert!(all_files(&left) == before, "{what}: something was written");
        // The same as an open says, and of a log that only ends there all that an open reads.
        match builder(&left).open() {
            Ok(db) => {
                assert!(damage.is_none(), "{what}: {damage:?}");
                assert!(contents(&db) == found, "{what}");
            }
            Err(e) => {
                told += 1;
                let damage = damage.unwrap_or_else(|| panic!("{what}: {e}"));
                let advised =
                    format!("{damage}; what is left can be read in an open with `salvage`");
                assert_eq!(advised, e.to_string(), "{what}");
            }
        }
    }
    assert!(told > 50 && ends.len() > 20, "{told} damages, {ends:?}");
    // Where nothing of the log is left there is what was flushed.
    assert!(*ends.first().unwrap() <= flushed[0] + 1, "{ends:?}");
}

#[test]
fn what_the_disk_does_not_give_of_the_log_is_gone_without() {
    let (disk, states, flushed) = sample();
    let middle = files(&disk, "log-").remove(3);
    let open = |salvage: bool, once: bool| {
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        let fault = Fault::at(0).of(&[OperationKind::Read]).on_paths_with(middle.to_str().unwrap());
        faulty.fail(if once { fault } else { fault.from_then_on() });
        builder(&faulty).read_only(true).salvage(salvage).open()
    };
    assert_eq!(open(false, false).unwrap_err().kind(), ErrorKind::Io);
    // It is asked for less than that, and gives it.
    assert_eq!(end_of(&contents(&open(false, true).unwrap()), &states, flushed), Some(OPERATIONS));
    let db = open(true, false).unwrap();
    let damage = db.open_report().log_damage.as_ref().unwrap();
    assert_eq!((damage.kind(), damage.path()), (ErrorKind::Io, Some(&*middle)));
    let end = end_of(&contents(&db), &states, flushed).unwrap();
    assert!(end > 0 && end < OPERATIONS, "{end}");
}

#[test]
fn salvage_reads_only() {
    let disk = SimDisk::new(1);
    drop(builder(&disk).open().unwrap());
    let db = builder(&disk).salvage(true).read_only(false).open().unwrap();
    assert!(db.open_report().log_damage.is_none());
    assert!(matches!(db.health(), DatabaseHealth::ReadOnly));
    drop(db);
    let db = builder(&disk).salvage(true).salvage(false).open().unwrap();
    assert!(matches!(db.health(), DatabaseHealth::Well));
    let nothing = builder(&SimDisk::new(1)).salvage(true).open().unwrap_err();
    assert_eq!((nothing.kind(), nothing.path()), (ErrorKind::NotFound, Some(Path::new("/db"))));
}

/// A bit of a header made of it that of a newer version, and then nothing was opened, whatever else was well.
#[test]
fn a_flipped_bit_of_a_header_is_damage_and_no_newer_version() {
    let (disk, states, flushed) = sample();
    let is_header = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        ["log-", "table-", "values-"].iter().any(|prefix| name.starts_with(prefix))
    };
    let (mut flips, mut stand_ins) = (0, 0);
    for path in files(&disk, "").iter().filter(|path| is_header(path)) {
        let is_log = path.to_string_lossy().contains("log-");
        // Of tables what counts stands at the end.
        let places = if path.to_string_lossy().contains("table-") { -40..0 } else { 0..40 };
        for (at, bit) in places.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let left = disk.crash_clone(CrashKind::Process, 0);
            flip(&left, path, at, 1 << bit);
            let what = format!("bit {bit} of byte {at} of {}", path.display());
            for salvage in [false, true] {
                let builder = builder(&left).read_only(true).salvage(salvage);
                let db = builder.open().unwrap_or_else(|e| panic!("{what}: {e}"));
                stand_ins += db.open_report().damaged_tables.len();
                assert!(db.open_report().log_damage.is_none(), "{what}");
                if is_log {
                    assert_eq!(
                        end_of(&contents(&db), &states, flushed),
                        Some(OPERATIONS),
                        "{what}"
                    );
                }
            }
            flips += 1;
        }
    }
    assert!(flips > 3000 && stand_ins > 100, "{flips}, {stand_ins}");
}

/// A file of values that the disk did not give ended the log where it was pointed at; one of a table that was settled, all.
#[test]
fn a_file_that_the_disk_does_not_give_takes_no_other_with_it() {
    let disk = SimDisk::new(5);
    let db = builder(&disk).stream_at(4 << 10).open().unwrap();
    let options = KeyspaceOptions::default().separate_at(100).inline_limit(0);
    let keyspace = db.keyspace("a", options).unwrap();
    keyspace.insert("apart", [1; 1000]).unwrap();
    keyspace.insert("short", "2").unwrap();
    keyspace.convert().unwrap();
    let other = db.keyspace("b", KeyspaceOptions::default()).unwrap();
    other.insert("settled", "3").unwrap();
    other.convert().unwrap();
    keyspace.insert("long", [4; 8000]).unwrap();
    (0..50u8).for_each(|n| other.insert([n], [n; 100]).unwrap());
    let left = disk.crash_clone(CrashKind::Process, 0);
    drop((keyspace, other, db));
    let (tables, values) = (files(&left, "table-"), files(&left, "values-"));
    let mut named = 0;
    for path in tables.iter().chain(&values) {
        let faulty = FaultyDisk::new(Arc::new(left.clone()));
        for at in 0..40 {
            let fault = Fault::at(at).of(&[OperationKind::Open]);
            faulty.fail(fault.on_paths_with(path.to_str().unwrap()));
        }
        let open = |salvage| builder(&faulty).read_only(true).salvage(salvage).open();
        let what = path.display();
        // Another may be left over.
        let Err(error) = open(false) else { continue };
        named += 1;
        assert_eq!(error.kind(), ErrorKind::Io, "{what}");
        let db = open(true).unwrap_or_else(|e| panic!("{what}: {e}"));
        let report = db.open_report();
        assert!(report.log_damage.is_none(), "{what}: {report:?}");
        let damaged = report.damaged_tables.len() + report.damaged_segments.len();
        assert_eq!(damaged, 1, "{what}: {report:?}");
        let (a, b) = (db.find("a").unwrap(), db.find("b").unwrap());
        let lost = [a.get("apart"), a.get("short"), a.get("long"), b.get("settled")];
        let lost = lost.iter().filter(|got| got.is_err()).count();
        assert!((1..=2).contains(&lost), "{what}: {lost}");
        (0..50u8).for_each(|n| assert_eq!(b.get([n]).unwrap().unwrap(), [n; 100], "{what}"));
    }
    assert!(named >= 4, "{named} of {tables:?} {values:?}");
}

/// A walk ended at the first block that could not be read, and nobody could say where the next one begins. What it held may have
/// replaced or removed what older tables hold: that is not to come back.
#[test]
fn what_is_behind_a_damaged_block_is_read_and_nothing_comes_back() {
    for store in [Store::Tiered, Store::Lsm] {
        let disk = SimDisk::new(5);
        let options = KeyspaceOptions::default().store(store).block_bytes(512);
        let mut model = Entries::new();
        let db = builder(&disk).automatic_conversion(false).open().unwrap();
        let keyspace = db.keyspace("k", options).unwrap();
        for round in 0..4_u8 {
            for number in
                (0..2000_u32).filter(|n| n.wrapping_mul(2_654_435_761) >> 30 != round.into())
            {
                let key = format!("key{number:05}").into_bytes();
                if round > 0 && number % 7 == u32::from(round) {
                    keyspace.remove(&key).unwrap();
                    model.remove(&key);
                } else {
                    let value = format!("{round} of {number}").into_bytes();
                    keyspace.insert(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            keyspace.flush().unwrap();
            if round == 1 {
                keyspace.convert().unwrap();
            }
        }
        db.close().unwrap();
        drop(keyspace);
        let (mut walks, mut gone_round) = (0, 0);
        for table in files(&disk, "table-") {
            let length = read(&disk, &table).len() as i64;
            for at in (40..length).step_by(length as usize / 23) {
                flip(&disk, &table, at, 16);
                let db = builder(&disk).salvage(true).open().unwrap();
                let keyspace = db.find("k").unwrap();
                let (mut last, mut found) = (None, 0);
                for key in keyspace.salvage::<&[u8]>(..) {
                    let value = key.and_then(|key| Ok((keyspace.get(&key)?.unwrap(), key)));
                    match value {
                        Ok((value, key)) => {
                            let key = key.to_vec();
                            assert!(last < Some(key.clone()), "{store:?} {table:?} {at}");
                            let expected = model.get(&key).map(Vec::as_slice);
                            assert_eq!(expected, Some(&value[..]), "{store:?} {table:?} {at}");
                            (last, found) = (Some(key), found + 1);
                        }
                        Err(error) => {
                            gone_round += 1;
                            assert!(error.is_corruption(), "{error}");
                        }
                    }
                }
                assert!((1600..=model.len()).contains(&found), "{store:?} {table:?} {at}: {found}");
                walks += 1;
                drop((keyspace, db));
                flip(&disk, &table, at, 16);
            }
        }
        assert!(walks > 50 && gone_round > walks / 2, "{store:?}: {gone_round} of {walks}");
    }
}

/// Settled keys, and few fresh ones over all of them: of the files, the settled table's first.
fn few_over_many(store: Store) -> (SimDisk, Vec<PathBuf>) {
    let disk = SimDisk::new(5);
    let options = KeyspaceOptions::default().store(store).block_bytes(512);
    let db = builder(&disk).automatic_conversion(false).open().unwrap();
    let keyspace = db.keyspace("k", options).unwrap();
    (0..5000).for_each(|number| keyspace.insert(key(number), "settled").unwrap());
    keyspace.convert().unwrap();
    for number in (0..5000).step_by(100) {
        match number % 300 {
            0 => keyspace.remove(key(number)).unwrap(),
            _ => keyspace.insert(key(number), "fresh").unwrap(),
        }
    }
    keyspace.flush().unwrap();
    db.close().unwrap();
    let tables = files(&disk, "table-");
    (disk, tables)
}

fn key(number: usize) -> String {
    format!("{number:05}")
}

/// What a walk gives of that, how many errors, and what gets find.
fn salvaged(disk: &(impl Disk + Clone + 'static)) -> (Vec<String>, usize, Vec<String>) {
    let db = builder(disk).salvage(true).open().unwrap();
    let keyspace = db.find("k").unwrap();
    let (found, errors): (Vec<_>, Vec<_>) = keyspace.salvage::<&[u8]>(..).partition(Result::is_ok);
    let text = |key: Slice| String::from_utf8(key.to_vec()).unwrap();
    let is_read = |key: &String| keyspace.contains_key(key).is_ok_and(|is_there| is_there);
    let read = (0..5000).map(key).filter(is_read).collect();
    (found.into_iter().flatten().map(text).collect(), errors.len(), read)
}

/// One lost block of a run that has little to say took all that lies between its keys with it, though a get read that: its
/// filter says that it is not in there.
#[test]
fn what_a_get_finds_beside_a_lost_block_is_given_too() {
    for store in [Store::Tiered, Store::Lsm] {
        let (disk, tables) = few_over_many(store);
        flip(&disk, tables.last().unwrap(), 700, 16);
        let (found, errors, read) = salvaged(&disk);
        assert!((4800..4990).contains(&read.len()), "{store:?}: {}", read.len());
        assert_eq!((found, errors), (read, 1), "{store:?}");
    }
}

/// A second table that was met amid what the first had lost was left out up to the end of that, and not only its lost blocks.
#[test]
fn what_a_get_finds_beside_two_lost_blocks_one_over_the_other_is_given_too() {
    for store in [Store::Tiered, Store::Lsm] {
        let (disk, tables) = few_over_many(store);
        flip(&disk, tables.last().unwrap(), 300, 16);
        let settled = &tables[0];
        let length = read(&disk, settled).len() as i64;
        [3, 4, 7].iter().for_each(|tenth| flip(&disk, settled, length / 10 * tenth, 16));
        let (found, errors, read) = salvaged(&disk);
        assert!((4600..4990).contains(&read.len()), "{store:?}: {}", read.len());
        assert_eq!((found, errors), (read, 4), "{store:?}");
    }
}

/// The first get that met a table that the disk had refused to open ended all that lies over it, as one does that a device has to
/// be asked for.
#[test]
fn what_a_get_finds_over_a_table_that_the_disk_refused_is_given_too() {
    for store in [Store::Tiered, Store::Lsm] {
        let (disk, tables) = few_over_many(store);
        let faulty = FaultyDisk::new(Arc::new(disk));
        let fresh = tables.last().unwrap().to_str().unwrap();
        for at in 0..40 {
            faulty.fail(Fault::at(at).of(&[OperationKind::Open]).on_paths_with(fresh));
        }
        let (found, errors, read) = salvaged(&faulty);
        assert!((4800..4990).contains(&read.len()), "{store:?}: {}", read.len());
        assert_eq!((found, errors), (read, 1), "{store:?}");
    }
}

/// It ended all that lies over a lost table, without a word.
#[test]
fn what_the_disk_does_not_give_once_is_told_and_little_is_lost() {
    for (at, least) in [(-3, 30), (300, 20)] {
        let (disk, tables) = few_over_many(Store::Tiered);
        flip(&disk, tables.last().unwrap(), at, 16);
        once_at_each_read(disk, least);
    }
}

fn once_at_each_read(disk: SimDisk, least: usize) {
    let (all, _, _) = salvaged(&disk);
    let faulty = FaultyDisk::new(Arc::new(disk));
    let mut told = 0;
    for failing in 0..400 {
        let db = builder(&faulty).salvage(true).block_cache(false).open().unwrap();
        let keyspace = db.find("k").unwrap();
        let counts = faulty.fail(Fault::at(failing).of(&[OperationKind::Read]));
        let (found, errors): (Vec<_>, Vec<_>) =
            keyspace.salvage::<&[u8]>(..).partition(Result::is_ok);
        faulty.clear_faults();
        let io = errors.iter().flat_map(|e| e.as_ref().err());
        let io = io.filter(|e| e.kind() == ErrorKind::Io).count();
        assert!(found.len() + 60 > all.len(), "{failing}: {} of {}", found.len(), all.len());
        assert!(io == 1 || found.len() == all.len(), "{failing}: {io}, {}", found.len());
        told += io;
        if counts.matched() <= failing {
            break;
        }
    }
    assert!(told > least, "{told}");
}

/// Nobody knows what it hides: but of what is newer.
#[test]
fn what_is_newer_than_removed_ranges_that_cannot_be_read_is_given() {
    for store in [Store::Tiered, Store::Lsm] {
        let (disk, _) = few_over_many(store);
        let db = builder(&disk).automatic_conversion(false).open().unwrap();
        let keyspace = db.find("k").unwrap();
        keyspace.remove_range("00010".."00020").unwrap();
        keyspace.flush().unwrap();
        let ranged = files(&disk, "table-").pop().unwrap();
        (0..5000).step_by(40).for_each(|number| keyspace.insert(key(number), "new").unwrap());
        keyspace.flush().unwrap();
        drop(keyspace);
        db.close().unwrap();
        flip(&disk, &ranged, -3, 16);
        let (found, errors, read) = salvaged(&disk);
        assert_eq!(read.len(), 125, "{store:?}");
        assert_eq!((found, errors), (read, 1), "{store:?}");
    }
}

/// A walk looks at what each run has first before it gives anything: where that block was lost, all that lies before it in other
/// runs was lost with it.
#[test]
fn what_lies_before_a_run_whose_first_block_is_lost_is_read() {
    for store in [Store::Tiered, Store::Lsm] {
        let disk = SimDisk::new(5);
        let options = KeyspaceOptions::default().store(store).block_bytes(512);
        let db = builder(&disk).automatic_conversion(false).open().unwrap();
        let keyspace = db.keyspace("k", options).unwrap();
        for part in ["a", "g", "m"] {
            (0..300).for_each(|n| keyspace.insert(format!("{part}{n:03}"), [n as u8; 20]).unwrap());
            keyspace.flush().unwrap();
        }
        db.close().unwrap();
        drop(keyspace);
        let tables = files(&disk, "table-");
        assert_eq!(tables.len(), 3);
        // The last and the one before: first the one is met, then on the way to it the other.
        tables[1..].iter().for_each(|table| flip(&disk, table, 40, 16));
        let db = builder(&disk).salvage(true).open().unwrap();
        let walk = db.find("k").unwrap().salvage::<&[u8]>(..);
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for key in walk {
            match key {
                Ok(key) => found.push(key.to_vec()),
                Err(error) => errors.push((found.len(), error)),
            }
        }
        assert!(found.is_sorted());
        let of = |part: u8| found.iter().filter(|key| key[0] == part).count();
        assert_eq!(of(b'a'), 300, "{store:?}");
        assert!((250..300).contains(&of(b'g')) && (250..300).contains(&of(b'm')), "{store:?}");
        let places: Vec<usize> = errors.iter().map(|(at, _)| *at).collect();
        assert_eq!(places, [300, 300 + of(b'g')], "{store:?}: {errors:?}");
    }
}

/// What a process leaves that dies, with removed keys and ranges, values apart and perhaps a sweep that had not ended; and what it held.
fn mixed(seed: u64, draw: &mut impl FnMut(usize) -> usize) -> (SimDisk, Entries) {
    let disk = SimDisk::new(seed);
    let store = if seed.is_multiple_of(2) { Store::Tiered } else { Store::Lsm };
    let packs = if seed % 4 < 2 { Compression::None } else { Compression::Lz4 };
    let options = KeyspaceOptions::default().store(store).block_bytes(512);
    let options = options.partition_bytes(16 << 10).separate_at(200).inline_limit(250);
    let options = options.lsm_compression(packs).settled_compression(packs);
    let db = builder(&disk).automatic_conversion(seed.is_multiple_of(3)).open().unwrap();
    let keyspace = db.keyspace("k", options.min_conversion_bytes(8 << 10)).unwrap();
    let mut model = Entries::new();
    let key = |number: usize| format!("key{number:04}").into_bytes();
    for round in 0..6 {
        for at in 0..400 {
            let number = draw(1500);
            match draw(12) {
                0 if at % 40 == 0 => {
                    let (from, to) = (key(number), key(number + draw(100)));
                    keyspace.remove_range::<&[u8]>(&from[..]..&to[..]).unwrap();
                    model.retain(|key, _| *key < from || *key >= to);
                }
                0..3 => {
                    keyspace.remove(key(number)).unwrap();
                    model.remove(&key(number));
                }
                _ => {
                    let value = format!("{round} {at} ").into_bytes().repeat(1 + draw(40));
                    keyspace.insert(key(number), &value).unwrap();
                    model.insert(key(number), value);
                }
            }
        }
        keyspace.flush().unwrap();
        if draw(4) == 0 {
            keyspace.convert().unwrap();
        }
    }
    (disk.crash_clone(CrashKind::Process, 0), model)
}

/// Several places at once, in whatever tables; removed keys and ranges among them, a sweep that had not ended, values apart. What
/// is given is what was put last, in order, within the bounds, all that gets find, and the walk ends.
#[test]
fn whatever_is_damaged_nothing_comes_back_that_was_removed_or_replaced() {
    let (mut walks, mut errors, mut given, mut all) = (0, 0, 0, 0);
    for seed in 0..220_u64 {
        let mut state = seed;
        let mut draw = move |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % below
        };
        let (left, model) = mixed(seed, &mut draw);
        let key = |number: usize| format!("key{number:04}").into_bytes();
        let tables = files(&left, "table-");
        for _ in 0..1 + draw(4) {
            let path = &tables[draw(tables.len())];
            let length = read(&left, path).len();
            flip(&left, path, draw(length) as i64, 1 << draw(8));
        }
        let db = builder(&left).salvage(true).open().unwrap_or_else(|e| panic!("{seed}: {e}"));
        let keyspace = db.find("k").unwrap();
        let (from, to) = (key(draw(700)), key(700 + draw(800)));
        for bounds in [None, Some((from, to))] {
            let (from, to) = bounds.clone().unwrap_or((Vec::new(), vec![0xff]));
            let mut last = None;
            let mut found_keys = BTreeSet::new();
            for (steps, found) in keyspace.salvage::<&[u8]>(&from[..]..&to[..]).enumerate() {
                assert!(steps < 3000, "{seed}: it does not end");
                let Ok(key) = found else {
                    errors += 1;
                    continue;
                };
                let key = key.to_vec();
                assert!(last < Some(key.clone()) && key >= from && key < to, "{seed} {bounds:?}");
                // A value apart is in no table.
                let value = keyspace.get(&key).unwrap_or_else(|e| panic!("{seed}: {e}"));
                assert_eq!(value.as_deref(), model.get(&key).map(Vec::as_slice), "{seed} {key:?}");
                found_keys.insert(key.clone());
                (last, given) = (Some(key), given + 1);
            }
            for key in model.range(from.clone()..to.clone()).map(|(key, _)| key) {
                let is_read = keyspace.contains_key(key).is_ok_and(|is_there| is_there);
                assert_eq!(found_keys.contains(key), is_read, "{seed} {bounds:?} {key:?}");
            }
            all += model.range(from..to).count();
            walks += 1;
        }
    }
    assert!(errors > walks / 2, "{errors} errors of {walks} walks");
    assert!(given * 10 > all * 9 && given < all, "{given} of {all}");
}
