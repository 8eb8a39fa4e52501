//! Databases of which one table's file is damaged or missing: they open, all else is read and
//! written, what may be in the table fails, and once the file is back nothing was lost. See
//! docs/decisions/0027.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::{DamagedTable, Database, DatabaseHealth, ErrorKind, Keyspace, Store};

use crate::files::{exists, files, is_about, read, restore};
use crate::workload::{
    Content, KEYS, Model, Op, Random, Removal, Setup, contents, difference, draw, key,
};

fn tables(disk: &SimDisk) -> Vec<PathBuf> {
    files(disk, "table-")
}

/// What is done to a table's file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Missing,
    Empty,
    Footer,
}

/// A clone of `disk` with the file of one table damaged.
fn damaged(disk: &SimDisk, path: &Path, damage: Damage) -> SimDisk {
    let left = disk.crash_clone(CrashKind::Process, 0);
    let file = left.open(path, Access::Random).unwrap();
    match damage {
        Damage::Missing => left.remove(path).unwrap(),
        Damage::Empty => file.truncate(0).unwrap(),
        Damage::Footer => {
            let at = file.length_bytes().unwrap() - 20;
            file.write_all_at(&[0x55; 8], at).unwrap();
        }
    }
    left
}

/// A closed database with something of each sort, and what it holds.
fn sample(setup: &Setup, seed: u64) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let db = setup.open(&disk, seed).unwrap();
    let mut model = Model::new();
    let mut ops = draw(&mut Random::new(seed), setup.keys, 60, 100);
    ops.extend([Op::Create("a".into()), Op::Create("b".into())]);
    // Settled in several partitions, deltas over some of them, runs, the log.
    ops.extend((0..KEYS).map(|number| put(number, 1)));
    ops.extend([Op::Convert("a".into()), put(7, 2), put(50, 2), Op::Convert("a".into())]);
    ops.extend((20..40).map(|number| put(number, 3)));
    ops.extend([Op::Flush("a".into()), put(3, 4), remove(60, 63), Op::Flush("a".into())]);
    ops.push(put(5, 5));
    for op in &ops {
        if op.fits(&model) || matches!(op, Op::Create(_)) {
            op.apply(&db, setup).unwrap();
            op.change(&mut model);
        }
    }
    db.close().unwrap();
    (disk, model)
}

fn put(number: u64, value: u8) -> Op {
    Op::Commit(vec![("a".into(), key(number), Some(vec![value; 70]))], false)
}

fn remove(from: u64, to: u64) -> Op {
    let range = (Bound::Included(key(from)), Bound::Excluded(key(to)));
    let (before, after) = (Vec::new(), Vec::new());
    Op::Remove(Removal { before, name: "a".into(), range, after, synced: false })
}

/// A closed database with tables that say of ranges that they are gone, and have no entries; of
/// which a sweep is stuck amid its work if so asked. And what it holds.
fn ranges_alone(setup: &Setup, seed: u64, is_stuck: bool) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let faulty = FaultyDisk::new(Arc::new(disk.clone()));
    let db = setup.open(&faulty, seed).unwrap();
    let mut model = Model::new();
    let (flush, convert) = (|| Op::Flush("a".into()), || Op::Convert("a".into()));
    let mut ops = vec![Op::Create("a".into())];
    ops.extend((0..KEYS).map(|number| put(number, 1)));
    ops.extend([convert(), remove(10, 11), remove(50, 52), convert()]);
    ops.extend([remove(20, 26), flush(), put(30, 2), flush(), remove(40, 43), put(3, 3), flush()]);
    for op in &ops {
        op.apply(&db, setup).unwrap();
        op.change(&mut model);
    }
    if is_stuck {
        let create = Fault::at(0).of(&[OperationKind::Create]).on_paths_with("table-");
        faulty.fail(create.from_then_on());
        db.find("a").unwrap().convert().unwrap_err();
        assert!(db.stats().keyspaces[0].watermark.is_some(), "no sweep is under way");
    }
    db.close().unwrap();
    (disk, model)
}

/// How many reads were answered, and how many failed.
#[derive(Debug, Default)]
struct Counts {
    answers: u64,
    errors: u64,
}

/// Each key is answered rightly, or fails because the table may hold it.
fn check_keys(
    keyspace: &Keyspace,
    content: &Content,
    table: Option<&DamagedTable>,
    path: &Path,
    counts: &mut Counts,
) {
    for key in (0..KEYS + 5).map(key).chain([Vec::new(), b"z".to_vec()]) {
        let may_fail = table.is_some_and(|table| match &table.keys {
            Some((first, last)) => (first..=last).contains(&&key),
            None => true,
        });
        let expected = content.get(&key).map(Vec::as_slice);
        let shown = key.escape_ascii();
        match keyspace.get(&key) {
            Ok(found) => {
                assert_eq!(found.as_deref(), expected, "{shown}");
                counts.answers += 1;
            }
            Err(e) => {
                assert!(may_fail && is_about(&e, path), "{shown}: {e:?} of {table:?}");
                counts.errors += 1;
            }
        }
        match keyspace.multi_get([&key]) {
            Ok(found) => assert_eq!(found[0].as_deref(), expected, "{shown}, among many"),
            Err(e) => assert!(may_fail && is_about(&e, path), "{shown}: {e:?}, among many"),
        }
    }
}

/// A walk hands out what there is up to where it fails; `least` is how much that must be.
fn check_walk<'a>(
    found: impl Iterator<Item = learnedkv::Result<(learnedkv::Slice, learnedkv::Slice)>>,
    expected: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    may_fail: bool,
    least: usize,
    path: &Path,
) {
    let expected: Vec<_> = expected.collect();
    let mut count = 0;
    for entry in found {
        match entry {
            Ok((key, value)) => {
                let (expected_key, expected_value) =
                    expected.get(count).expect("an entry too many");
                assert_eq!((&*key, &*value), (expected_key.as_slice(), expected_value.as_slice()));
                count += 1;
            }
            Err(e) => {
                assert!(may_fail && is_about(&e, path), "{e:?}");
                assert!(count >= least, "only {count} of {least} entries before the damage");
                return;
            }
        }
    }
    assert_eq!(count, expected.len(), "entries are missing, and no error says so");
}

fn check_walks(keyspace: &Keyspace, content: &Content, table: Option<&DamagedTable>, path: &Path) {
    let keys = table.map(|table| table.keys.as_ref());
    let (before, after) = match keys {
        None => (content.len(), content.len()),
        Some(None) => (0, 0),
        Some(Some((first, last))) => {
            let behind = (Bound::Excluded(last.clone()), Bound::Unbounded);
            (content.range(..first.clone()).count(), content.range(behind).count())
        }
    };
    let may_fail = table.is_some();
    check_walk(keyspace.iter(), content.iter(), may_fail, before, path);
    check_walk(keyspace.iter().rev(), content.iter().rev(), may_fail, after, path);
    for from in (0..KEYS).step_by(7).map(key) {
        check_walk(keyspace.range(from.clone()..), content.range(from..), may_fail, 0, path);
    }
    if let Some(Some((first, last))) = keys {
        // What lies around it can be read.
        let below = ..first.clone();
        check_walk(keyspace.range(below.clone()), content.range(below), false, 0, path);
        let behind = (Bound::Excluded(last.clone()), Bound::Unbounded);
        check_walk(keyspace.range(behind.clone()), content.range(behind), false, 0, path);
    }
}

/// All reads of a database of which one table may be damaged.
fn check(db: &Database, model: &Model, path: &Path, counts: &mut Counts) {
    let names: BTreeSet<_> = db.keyspace_names().into_iter().collect();
    assert!(names.iter().eq(model.keys()), "{names:?}");
    for (name, content) in model {
        let damaged = &db.open_report().damaged_tables;
        // One made since has the name of one that was dropped, and none of its tables.
        let table = damaged.iter().find(|table| table.keyspace == *name);
        let keyspace = db.find(name).unwrap();
        check_keys(&keyspace, content, table, path, counts);
        check_walks(&keyspace, content, table, path);
    }
}

/// Applies operations; those that cannot be done fail because of the table, and change nothing.
fn work(db: &Database, setup: &Setup, model: &mut Model, ops: &[Op], path: &Path) {
    for op in ops.iter().filter(|op| !matches!(op, Op::Create(_) | Op::Drop(_))) {
        if !op.fits(model) {
            continue;
        }
        match op.apply(db, setup) {
            Ok(()) => op.change(model),
            Err(e) => assert!(is_about(&e, path), "{op:?}: {e:?}"),
        }
    }
}

/// A checkpoint is refused for as long as the table is needed.
fn check_copy(db: &Database, disk: &SimDisk, path: &Path) {
    let copied = db.checkpoint("/copy");
    match db.health() {
        DatabaseHealth::Well => copied.unwrap(),
        _ => assert!(is_about(&copied.unwrap_err(), path)),
    }
    if let Ok(names) = disk.list(Path::new("/copy")) {
        names.iter().for_each(|name| disk.remove(&Path::new("/copy").join(name)).unwrap());
    }
}

/// Damages one table, reads, works, opens again, puts the file back. Returns whether the table said
/// that ranges are gone.
fn live_with(
    (setup, seed): (&Setup, u64),
    (disk, model): (&SimDisk, &Model),
    (path, damage): (&Path, Damage),
    counts: &mut Counts,
) -> bool {
    let mut model = model.clone();
    let bytes = read(disk, path);
    let left = damaged(disk, path, damage);
    let reader = setup.open(&left.crash_clone(CrashKind::Process, 0), 1).unwrap();
    let report = reader.open_report().damaged_tables.clone();
    assert_eq!(report.len(), 1, "{report:?}");
    assert!(is_about(&report[0].error, path), "{report:?}");
    assert!(matches!(reader.health(), DatabaseHealth::Damaged(_)));
    assert_eq!(reader.stats().keyspaces.iter().map(|k| k.damaged_tables).max(), Some(1));
    check(&reader, &model, path, counts);
    drop(reader);
    for round in 0..2 {
        let db = setup.open(&left, seed + round).unwrap();
        // Where ranges were removed, in the place of keys and between them.
        let entries = (20..23).map(|number| (key(number), vec![9; 30]));
        let between = |number, count| {
            let key = |n| [key(number), vec![b'!', n]].concat();
            Op::Ingest("a".into(), (0..count).map(|n| (key(n), vec![9; 30])).collect())
        };
        let mut ops = Vec::new();
        if round == 0 {
            // Once: again they would lie over what they lay in, and be seen in any case.
            ops.extend([Op::Ingest("a".into(), entries.collect()), between(24, 5), between(41, 3)]);
        }
        if (seed + round) % 4 > 1 {
            ops.extend(draw(&mut Random::new(seed * 10 + round), setup.keys, 50, 100));
        }
        work(&db, setup, &mut model, &ops, path);
        check(&db, &model, path, counts);
        // Whatever comes of it.
        for name in model.keys() {
            let keyspace = db.find(name).unwrap();
            let settled = if round == 0 { keyspace.convert() } else { keyspace.compact() };
            if let Err(e) = settled {
                assert!(is_about(&e, path), "{e:?}");
            }
        }
        if let Err(e) = db.wait_idle() {
            assert!(is_about(&e, path), "{e:?}");
        }
        check(&db, &model, path, counts);
        check_copy(&db, &left, path);
        db.close().unwrap();
    }
    // What the manifest still names nobody has removed.
    let still_named = !setup.open(&left, 5).unwrap().open_report().damaged_tables.is_empty();
    let is_there = exists(&left, path);
    assert_eq!(still_named && !matches!(damage, Damage::Missing), is_there);
    restore(&left, path, &bytes);
    let db = setup.open(&left, 6).unwrap();
    assert!(db.open_report().damaged_tables.is_empty());
    assert!(matches!(db.health(), DatabaseHealth::Well));
    let found = contents(&db, setup.keys).unwrap();
    assert!(found == model, "put back: {}", difference(&found, &model));
    for name in model.keys() {
        db.find(name).unwrap().compact().unwrap();
    }
    assert!(db.stats().keyspaces.iter().all(|k| k.deltas == 0));
    assert_eq!(contents(&db, setup.keys).unwrap(), model, "put back and compacted");
    report[0].keys.is_none()
}

/// Makes a closed database from a seed.
type Sample = fn(&Setup, u64) -> (SimDisk, Model);

fn live_with_each(setup: &Setup, seeds: std::ops::Range<u64>, make: Sample) {
    let mut counts = Counts::default();
    let mut said_ranges = BTreeMap::from([(false, 0), (true, 0)]);
    for seed in seeds {
        let (disk, model) = make(setup, seed);
        let damages = [Damage::Missing, Damage::Empty, Damage::Footer];
        for (path, damage) in tables(&disk).iter().zip(damages.iter().cycle().skip(seed as usize)) {
            println!("seed {seed}: {damage:?} of {}", path.display());
            let one = (path.as_path(), *damage);
            let ranges = live_with((setup, seed), (&disk, &model), one, &mut counts);
            *said_ranges.get_mut(&ranges).unwrap() += 1;
        }
    }
    println!("{counts:?}, with ranges: {said_ranges:?}");
    assert!(counts.errors > 100 && counts.answers > 1000, "{counts:?}");
    assert!(said_ranges.values().all(|count| *count > 0), "{said_ranges:?}");
}

#[test]
fn one_damaged_table_keeps_nothing_else_from_being_read_and_loses_nothing() {
    live_with_each(&Setup::default(), 0..4, sample);
}

#[test]
fn one_damaged_table_that_lies_in_levels_loses_nothing() {
    live_with_each(&Setup::levels(), 0..4, sample);
}

#[test]
fn one_damaged_table_loses_nothing_where_indexes_are_paged() {
    live_with_each(&Setup::default().paged(false), 4..6, sample);
}

/// What such a table hides nobody knows: neither reads nor jobs may pass it.
#[test]
fn a_damaged_table_of_removed_ranges_alone_brings_nothing_back() {
    let by_hand = |setup: Setup| Setup { automatic_conversion: false, ..setup };
    for setup in [by_hand(Setup::default()), Setup::default(), Setup::levels()] {
        live_with_each(&setup, 0..2, |setup, seed| ranges_alone(setup, seed, false));
    }
    live_with_each(&by_hand(Setup::default()), 0..2, |setup, seed| ranges_alone(setup, seed, true));
}

/// Runs with such a table stay, those beside them are merged: there are not more and more of them.
#[test]
fn runs_beside_a_damaged_one_are_merged() {
    let setup = Setup { automatic_conversion: false, ..Setup::default() };
    let (disk, mut model) = ranges_alone(&setup, 1, false);
    let path = tables(&disk).pop().unwrap();
    let left = damaged(&disk, &path, Damage::Missing);
    let db = setup.open(&left, 1).unwrap();
    for number in 0..40 {
        for op in [put(70 + number % 9, number as u8), Op::Flush("a".into())] {
            op.apply(&db, &setup).unwrap();
            op.change(&mut model);
        }
    }
    let error = db.find("a").unwrap().convert().unwrap_err();
    assert!(is_about(&error, &path), "{error:?}");
    let runs = db.stats().keyspaces[0].runs;
    assert!(runs < 14, "{runs} runs");
    db.close().unwrap();
    restore(&left, &path, &read(&disk, &path));
    assert_eq!(contents(&setup.open(&left, 1).unwrap(), setup.keys).unwrap(), model);
}

/// Whether it told of that was by the store, by what else there was to settle, and by what had been asked before.
#[test]
fn a_conversion_tells_of_a_table_that_could_not_be_opened_each_time() {
    for store in [Store::Tiered, Store::Lsm] {
        let options = Setup::default().keyspace.store(store);
        let setup = Setup { automatic_conversion: false, keyspace: options, ..Setup::default() };
        let disk = SimDisk::new(1);
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
        (0..KEYS).for_each(|number| keyspace.insert(key(number), [1; 20]).unwrap());
        keyspace.convert().unwrap();
        drop(keyspace);
        db.close().unwrap();
        let path = tables(&disk).remove(0);
        let left = damaged(&disk, &path, Damage::Footer);
        let db = setup.open(&left, 1).unwrap();
        let (keyspace, other) = (db.find("a").unwrap(), db.keyspace("b", setup.keyspace).unwrap());
        for round in 0..3 {
            let error = keyspace.convert().unwrap_err();
            assert!(error.is_corruption() && is_about(&error, &path), "{store:?} {round}: {error}");
            assert!(matches!(db.health(), DatabaseHealth::Damaged(_)), "{store:?} {round}");
            (KEYS..KEYS + 9).for_each(|n| keyspace.insert(key(n), [2; 20]).unwrap());
            other.insert("b", "c").unwrap();
            other.convert().expect("it has no part in it");
        }
    }
}

/// A disk that refuses to read says nothing about the table: another open may find it.
#[test]
fn a_table_that_the_disk_refuses_to_read_is_not_taken_for_damaged() {
    let setup = Setup::default();
    let (disk, model) = sample(&setup, 1);
    let faulty = FaultyDisk::new(Arc::new(disk.clone()));
    faulty.fail(Fault::at(0).of(&[OperationKind::Read]).on_paths_with("table-"));
    assert_eq!(setup.open(&faulty, 1).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(contents(&setup.open(&disk, 1).unwrap(), setup.keys).unwrap(), model);
}

/// A base of which the very first block is damaged: the sweep found that as it began, and was
/// stuck.
#[test]
fn a_sweep_goes_round_a_base_whose_first_block_is_damaged() {
    let setup = Setup { automatic_conversion: false, ..Setup::default() };
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    (0..KEYS).for_each(|number| keyspace.insert(key(number), [1; 20]).unwrap());
    keyspace.convert().unwrap();
    keyspace.insert(key(40), [2; 20]).unwrap();
    // Much, so that it is no delta.
    (0..KEYS).for_each(|number| keyspace.insert(key(number), [2; 20]).unwrap());
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    let path = tables(&disk).remove(0);
    disk.open(&path, Access::Random).unwrap().write_all_at(&[0x55; 16], 8).unwrap();
    let error = keyspace.convert().unwrap_err();
    assert!(is_about(&error, &path), "{error:?}");
    let _ = db.wait_idle();
    assert_eq!(db.stats().keyspaces[0].runs, 0, "the sweep did not end");
    assert_eq!(db.stats().keyspaces[0].deltas, 1);
}
