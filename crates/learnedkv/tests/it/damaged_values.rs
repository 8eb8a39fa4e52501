//! Databases of which one value segment's file is damaged or missing: they open, what lies in it fails, all
//! else is read, written and settled, and once the file is back nothing was lost. See docs/decisions/0027.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, DatabaseHealth, Error, ErrorKind, Keyspace};

use crate::files::{files, flip, is_about, read, restore};
use crate::workload::{Content, KEYS, Model, Op, Random, Setup, contents, difference, draw, key};

fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    files(disk, "values-")
}

/// What is done to a segment's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Missing,
    Empty,
    /// Its last third.
    Cut,
    /// A byte of its header.
    Header,
    /// Another segment stands in its place.
    Swapped,
    /// A byte of a value, perhaps of one that nothing points at any more.
    Byte,
}

const DAMAGES: [Damage; 6] =
    [Damage::Missing, Damage::Empty, Damage::Cut, Damage::Header, Damage::Swapped, Damage::Byte];

/// A clone of `disk` with the file of one segment damaged.
fn damaged(disk: &SimDisk, path: &Path, damage: Damage) -> SimDisk {
    let left = disk.crash_clone(CrashKind::Process, 0);
    let file = left.open(path, Access::Random).unwrap();
    let length = file.length_bytes().unwrap();
    let flip = |at: u64| flip(&left, path, at as i64, 0x20);
    match damage {
        Damage::Missing => left.remove(path).unwrap(),
        Damage::Empty => file.truncate(0).unwrap(),
        Damage::Cut => file.truncate(length - length / 3).unwrap(),
        Damage::Header => flip(17),
        Damage::Swapped => {
            let other = segments(disk).into_iter().find(|other| other != path).unwrap();
            restore(&left, path, &read(disk, &other));
        }
        Damage::Byte => flip(length / 2),
    }
    left
}

fn put(number: u64, value: u8, length: usize) -> Op {
    Op::Commit(vec![("a".into(), key(number), Some(vec![value; length]))], false)
}

/// A closed database with values in blocks, in segments that runs, deltas and bases point into, and in those that
/// the log alone points into. And what it holds.
fn sample(setup: &Setup, seed: u64) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let db = setup.open(&disk, seed).unwrap();
    let mut model = Model::new();
    let mut ops = draw(&mut Random::new(seed), setup.keys, 40, 350);
    ops.extend([Op::Create("a".into()), Op::Create("b".into())]);
    let length = |number: u64| [60, 150, 260, 20][number as usize % 4];
    ops.extend((0..KEYS).map(|number| put(number, 1, length(number))));
    ops.extend([Op::Convert("a".into()), put(7, 2, 150), put(50, 2, 300)]);
    ops.extend([Op::Convert("a".into())]);
    ops.extend((20..40).map(|number| put(number, 3, length(number + 1))));
    ops.extend([put(41, 3, 500), Op::Flush("a".into()), put(3, 4, 90), Op::Flush("a".into())]);
    ops.extend([put(5, 5, 700), put(6, 5, 10)]);
    for op in &ops {
        if op.fits(&model) || matches!(op, Op::Create(_)) {
            op.apply(&db, setup).unwrap();
            op.change(&mut model);
        }
    }
    db.close().unwrap();
    (disk, model)
}

/// The keys whose values stand in a segment, by keyspace: reads of them fail where nothing of its file can be read.
fn lie_in(
    disk: &SimDisk,
    setup: &Setup,
    model: &Model,
    path: &Path,
) -> BTreeSet<(String, Vec<u8>)> {
    let setup = Setup { mapped_reads: false, ..setup.clone() };
    let faulty = FaultyDisk::new(Arc::new(disk.crash_clone(CrashKind::Process, 0)));
    let db = setup.open(&faulty, 1).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    faulty.fail(Fault::at(0).of(&[OperationKind::Read]).on_paths_with(name).from_then_on());
    let mut found = BTreeSet::new();
    for (name, content) in model {
        let keyspace = db.find(name).unwrap();
        for key in content.keys() {
            match keyspace.get(key) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Io => {
                    _ = found.insert((name.clone(), key.clone()))
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
    found
}

/// Reads that were answered, and that failed.
#[derive(Debug, Default)]
struct Counts {
    answers: u64,
    errors: u64,
}

/// What of a damaged database may fail, and what must.
struct Expected<'a> {
    path: &'a Path,
    may_fail: &'a dyn Fn(&str, &[u8]) -> bool,
    must_fail: &'a dyn Fn(&str, &[u8]) -> bool,
}

impl Expected<'_> {
    fn check_key(&self, keyspace: &Keyspace, content: &Content, key: &[u8], counts: &mut Counts) {
        let (name, shown) = (keyspace.name().to_owned(), key.escape_ascii());
        let expected = content.get(key).map(Vec::as_slice);
        let (may, must) = ((self.may_fail)(&name, key), (self.must_fail)(&name, key));
        match keyspace.get(key) {
            Ok(found) => {
                assert!(!must, "{shown} was read");
                assert_eq!(found.as_deref(), expected, "{shown}");
                counts.answers += 1;
            }
            Err(e) => {
                assert!(may && is_about(&e, self.path), "{shown}: {e:?}");
                let said = e.to_string();
                for words in [&format!("keyspace {name:?}"), "copy what can be read to another"] {
                    assert_eq!(said.matches(words).count(), 1, "{words:?} in {said}");
                }
                counts.errors += 1;
            }
        }
        match keyspace.multi_get([key]) {
            Ok(found) => assert!(!must && found[0].as_deref() == expected, "{shown}, among many"),
            Err(e) => assert!(may && is_about(&e, self.path), "{shown}: {e:?}, among many"),
        }
        let reader = keyspace.get_reader(key).and_then(|reader| {
            let mut bytes = Vec::new();
            let Some(mut reader) = reader else { return Ok(None) };
            reader.read_to_end(&mut bytes).map_err(|e| Error::corruption(e.to_string()))?;
            Ok(Some(bytes))
        });
        match reader {
            Ok(found) => assert!(!must && found.as_deref() == expected, "{shown}, in pieces"),
            Err(e) => assert!(may && e.is_corruption(), "{shown}: {e:?}, in pieces"),
        }
        // These need no value.
        assert_eq!(keyspace.contains_key(key).unwrap(), expected.is_some(), "{shown}");
        let size = expected.map(|value| value.len() as u64);
        assert_eq!(keyspace.size_of(key).unwrap(), size, "{shown}");
    }

    /// A walk hands out what there is, up to a value that it cannot read.
    fn check_walk<'a>(
        &self,
        keyspace: &Keyspace,
        found: impl Iterator<Item = learnedkv::Result<(learnedkv::Slice, learnedkv::Slice)>>,
        mut expected: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    ) {
        for entry in found {
            let next = expected.next();
            match entry {
                Ok((key, value)) => {
                    assert_eq!(Some((&*key, &*value)), next.map(|(k, v)| (&**k, &**v)))
                }
                Err(e) => {
                    let (key, _) = next.expect("an error behind the last entry");
                    assert!(is_about(&e, self.path), "{e:?}");
                    assert!((self.may_fail)(keyspace.name(), key), "{}: {e:?}", key.escape_ascii());
                    return;
                }
            }
        }
        assert_eq!(expected.next(), None, "entries are missing, and no error says so");
    }

    fn check(&self, db: &Database, model: &Model, counts: &mut Counts) {
        let names: BTreeSet<_> = db.keyspace_names().into_iter().collect();
        assert!(names.iter().eq(model.keys()), "{names:?}");
        for (name, content) in model {
            let keyspace = db.find(name).unwrap();
            for key in (0..KEYS + 3).map(key) {
                self.check_key(&keyspace, content, &key, counts);
            }
            self.check_walk(&keyspace, keyspace.iter(), content.iter());
            self.check_walk(&keyspace, keyspace.iter().rev(), content.iter().rev());
            let keys: Vec<_> = keyspace.keys().map(|key| key.unwrap().to_vec()).collect();
            assert!(keys.iter().eq(content.keys()), "{keys:?}");
        }
    }
}

/// A checkpoint is refused for as long as the segment is needed, and known to be damaged.
fn check_copy(db: &Database, disk: &SimDisk, path: &Path) {
    let copied = db.checkpoint("/copy");
    match db.stats().keyspaces.iter().any(|keyspace| keyspace.damaged_segments > 0) {
        false => copied.unwrap(),
        true => assert!(is_about(&copied.unwrap_err(), path)),
    }
    if let Ok(names) = disk.list(Path::new("/copy")) {
        names.iter().for_each(|name| disk.remove(&Path::new("/copy").join(name)).unwrap());
    }
}

/// Writes over some keys, removes some, and settles all, whatever comes of it.
fn work(db: &Database, setup: &Setup, model: &mut Model, seed: u64, path: &Path) {
    let mut random = Random::new(seed);
    let ops = (0..25).map(|at| {
        let (number, length) = (random.below(KEYS), 20 + random.below(500) as usize);
        let value = (at % 5 > 0).then(|| vec![seed as u8; length]);
        Op::Commit(vec![("a".into(), key(number), value)], false)
    });
    for op in ops.collect::<Vec<_>>() {
        op.apply(db, setup).unwrap();
        op.change(model);
    }
    for name in model.keys() {
        let keyspace = db.find(name).unwrap();
        keyspace.flush().unwrap();
        if let Err(e) = keyspace.convert() {
            assert!(is_about(&e, path), "{e:?}");
        }
    }
    if let Err(e) = db.wait_idle() {
        assert!(is_about(&e, path), "{e:?}");
    }
    // Nothing is stuck.
    for stats in &db.stats().keyspaces {
        assert!(stats.watermark.is_none() && stats.runs < 12, "{stats}");
    }
}

/// Damages one segment, reads, works, opens again, puts the file back.
fn live_with(
    (setup, seed): (&Setup, u64),
    (disk, model): (&SimDisk, &Model),
    (path, damage): (&Path, Damage),
    counts: &mut Counts,
) {
    let mut model = model.clone();
    let bytes = read(disk, path);
    let before = lie_in(disk, setup, &model, path);
    let left = damaged(disk, path, damage);
    let is_found = damage != Damage::Byte;
    let reader = setup.open(&left.crash_clone(CrashKind::Process, 0), 1).unwrap();
    let report = reader.open_report().damaged_segments.clone();
    assert_eq!(report.len(), usize::from(is_found), "{report:?}");
    let is_in = |name: &str, key: &[u8]| before.contains(&(name.to_owned(), key.to_vec()));
    let no_file = [Damage::Missing, Damage::Empty, Damage::Swapped].contains(&damage);
    let must = |name: &str, key: &[u8]| no_file && is_in(name, key);
    let may = |name: &str, key: &[u8]| damage != Damage::Header && is_in(name, key);
    let expected = Expected { path, may_fail: &may, must_fail: &must };
    if is_found {
        assert!(is_about(&report[0].error, path), "{report:?}");
        assert!(before.iter().all(|(name, _)| *name == report[0].keyspace), "{report:?}");
        assert!(matches!(reader.health(), DatabaseHealth::Damaged(_)));
    }
    expected.check(&reader, &model, counts);
    drop(reader);
    let mut written = BTreeSet::new();
    for round in 0..3 {
        let db = setup.open(&left, seed + round).unwrap();
        let old = model.clone();
        work(&db, setup, &mut model, seed * 10 + round, path);
        let changed = |key: &Vec<u8>| old["a"].get(key) != model["a"].get(key);
        written.extend((0..KEYS).map(key).filter(changed));
        let is_old = |name: &str, key: &[u8]| !(name == "a" && written.contains(key));
        let may = |name: &str, key: &[u8]| may(name, key) && is_old(name, key);
        let must = |name: &str, key: &[u8]| must(name, key) && is_old(name, key);
        let expected = Expected { path, may_fail: &may, must_fail: &must };
        expected.check(&db, &model, counts);
        check_copy(&db, &left, path);
        db.close().unwrap();
    }
    // What is still named nobody has removed.
    let db = setup.open(&left, 5).unwrap();
    let still_named = !db.open_report().damaged_segments.is_empty();
    drop(db);
    let is_there = segments(&left).iter().any(|segment| segment == path);
    match damage {
        Damage::Missing => assert!(!is_there),
        _ => assert!(is_there || !still_named),
    }
    restore(&left, path, &bytes);
    let db = setup.open(&left, 6).unwrap();
    assert!(matches!(db.health(), DatabaseHealth::Well));
    let found = contents(&db, setup.keys).unwrap();
    assert!(found == model, "put back: {}", difference(&found, &model));
    model.keys().for_each(|name| db.find(name).unwrap().convert().unwrap());
    assert_eq!(contents(&db, setup.keys).unwrap(), model, "put back and converted");
}

fn live_with_each(setup: &Setup, seeds: std::ops::Range<u64>) {
    let mut counts = Counts::default();
    for seed in seeds {
        let (disk, model) = sample(setup, seed);
        let paths = segments(&disk);
        assert!(paths.len() > 2, "{paths:?}");
        for (path, damage) in paths.iter().zip(DAMAGES.iter().cycle().skip(seed as usize)) {
            println!("seed {seed}: {damage:?} of {}", path.display());
            live_with((setup, seed), (&disk, &model), (path, *damage), &mut counts);
        }
    }
    println!("{counts:?}");
    assert!(counts.errors > 30 && counts.answers > 1000, "{counts:?}");
}

#[test]
fn one_damaged_value_segment_keeps_nothing_else_from_being_read_and_loses_nothing() {
    live_with_each(&Setup::default(), 0..6);
}

#[test]
fn one_damaged_value_segment_of_levels_loses_nothing() {
    live_with_each(&Setup::levels(), 0..6);
}

/// A database of one keyspace, all values of one length apart in one segment that the runs point into; its path.
fn flushed(setup: &Setup, length: usize) -> (SimDisk, Content, PathBuf) {
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    // No compression makes them shorter.
    let value = |number: u64| -> Vec<u8> {
        let mut random = Random::new(number);
        (0..length).map(|_| random.next() as u8).collect()
    };
    let mut batch = db.batch();
    (0..KEYS).for_each(|number| batch.insert(&keyspace, key(number), value(number)));
    batch.commit().unwrap();
    keyspace.flush().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let paths = segments(&disk);
    assert_eq!(paths.len(), 1, "{paths:?}");
    let content = (0..KEYS).map(|number| (key(number), value(number))).collect();
    (disk, content, paths[0].clone())
}

fn by_hand(setup: Setup) -> Setup {
    Setup { automatic_conversion: false, memtable_bytes: 64 << 10, stream_at: 1 << 20, ..setup }
}

/// Both stores, with values that are kept apart when they are flushed.
fn both() -> [Setup; 2] {
    let levels = Setup::levels();
    let keyspace = levels.keyspace.clone().separate_at(32);
    [by_hand(Setup::default()), by_hand(Setup { keyspace, ..levels })]
}

#[test]
fn once_all_that_lies_in_a_missing_segment_is_written_anew_or_removed_all_is_well() {
    for setup in both() {
        for removes in [false, true] {
            let (disk, mut content, path) = flushed(&setup, 70);
            let left = damaged(&disk, &path, Damage::Missing);
            let db = setup.open(&left, 1).unwrap();
            let keyspace = db.find("a").unwrap();
            assert!(is_about(&keyspace.get(key(3)).unwrap_err(), &path));
            // In levels nothing would have been moved.
            if let Err(e) = keyspace.convert() {
                assert!(is_about(&e, &path), "{e:?}");
            }
            assert!(matches!(db.health(), DatabaseHealth::Damaged(_)), "{:?}", db.health());
            assert_eq!(keyspace.stats().unwrap().damaged_segments, 1);
            for number in 0..KEYS {
                match removes {
                    true => keyspace.remove(key(number)).unwrap(),
                    false => keyspace.insert(key(number), [9; 70]).unwrap(),
                }
            }
            content.iter_mut().for_each(|(_, value)| *value = vec![9; 70]);
            if removes {
                content.clear();
            }
            keyspace.convert().unwrap();
            db.wait_idle().unwrap();
            assert!(matches!(db.health(), DatabaseHealth::Well), "{:?}", db.health());
            assert_eq!(keyspace.stats().unwrap().damaged_segments, 0);
            db.checkpoint("/copy").unwrap();
            drop(keyspace);
            db.close().unwrap();
            let db = setup.open(&left, 1).unwrap();
            assert!(db.open_report().damaged_segments.is_empty());
            assert_eq!(contents(&db, setup.keys).unwrap()["a"], content);
        }
    }
}

/// A value that a sweep was to move and could not read stopped it, for ever.
#[test]
fn a_sweep_goes_round_a_value_that_is_damaged() {
    let setup = by_hand(Setup::default());
    let (disk, mut content, path) = flushed(&setup, 70);
    let left = damaged(&disk, &path, Damage::Byte);
    let bytes = read(&disk, &path);
    let db = setup.open(&left, 1).unwrap();
    let keyspace = db.find("a").unwrap();
    let lost: Vec<_> = content.keys().filter(|key| keyspace.get(key).is_err()).cloned().collect();
    assert_eq!(lost.len(), 1, "one byte is one value's");
    // The second time all is written anew: what is left of the segment is tried again.
    for round in 0..2 {
        for number in (0..KEYS).filter(|number| round == 1 && number % 2 == 0) {
            let value = content.get_mut(&key(number)).unwrap();
            if key(number) != lost[0] {
                *value = vec![1; 40];
                keyspace.insert(key(number), &value).unwrap();
            }
        }
        let error = keyspace.convert().unwrap_err();
        assert!(is_about(&error, &path), "{error:?}");
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.runs, &stats.watermark), (0, &None), "the sweep did not end");
        // All but that one value was moved.
        assert_eq!((stats.value_segments, stats.value_live_bytes), (1, 78));
        assert!(is_about(&db.background_error().unwrap(), &path));
        for (key, value) in &content {
            match keyspace.get(key) {
                Ok(found) => assert!(found.as_ref().unwrap() == value && *key != lost[0]),
                Err(e) => assert!(is_about(&e, &path) && *key == lost[0], "{e:?}"),
            }
        }
    }
    // Nobody tries to empty the segment for it again and again: a sweep of something else leaves what points there alone.
    let (swept, settled) = (db.stats().swept_bytes, keyspace.stats().unwrap().settled_bytes);
    keyspace.insert(key(KEYS), [1; 40]).unwrap();
    content.insert(key(KEYS), vec![1; 40]);
    let _told = keyspace.convert();
    assert_eq!(keyspace.stats().unwrap().runs, 0);
    let swept = db.stats().swept_bytes - swept;
    assert!(swept > 0 && swept < settled / 2, "swept {swept} of {settled} bytes");
    let sweeps = db.stats().sweeps;
    let _told = db.wait_idle();
    assert_eq!(db.stats().sweeps, sweeps);
    drop(keyspace);
    db.close().unwrap();
    restore(&left, &path, &bytes);
    let db = setup.open(&left, 1).unwrap();
    assert_eq!(contents(&db, setup.keys).unwrap()["a"], content);
}

/// What is known to be missing is not asked for value by value; the values beside it are moved.
#[test]
fn a_sweep_moves_what_stands_before_a_cut_and_leaves_the_rest_in_one_go() {
    let setup = by_hand(Setup::default());
    let (disk, content, path) = flushed(&setup, 70);
    let left = damaged(&disk, &path, Damage::Cut);
    let db = setup.open(&left, 1).unwrap();
    let keyspace = db.find("a").unwrap();
    let readable = || content.keys().filter(|key| keyspace.get(key).is_ok()).count();
    // Two thirds of the file, with its header.
    let before = readable();
    assert!((52..56).contains(&before), "{before}");
    assert!(is_about(&keyspace.convert().unwrap_err(), &path));
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.runs, &stats.watermark, stats.damaged_segments), (0, &None, 1));
    assert_eq!(stats.value_live_bytes, 78 * (KEYS - before as u64));
    assert_eq!(readable(), before);
    drop(keyspace);
    db.close().unwrap();
    restore(&left, &path, &read(&disk, &path));
    let db = setup.open(&left, 1).unwrap();
    assert_eq!(contents(&db, setup.keys).unwrap()["a"], content);
    db.find("a").unwrap().convert().unwrap();
    assert_eq!(contents(&db, setup.keys).unwrap()["a"], content);
}

/// A crash at any moment of a sweep that goes round a segment loses nothing of it.
#[test]
fn a_crash_of_a_sweep_that_goes_round_a_segment_loses_nothing() {
    for damage in [Damage::Missing, Damage::Cut, Damage::Byte] {
        let setup = by_hand(Setup::default());
        let (disk, content, path) = flushed(&setup, 70);
        let bytes = read(&disk, &path);
        let left = damaged(&disk, &path, damage);
        let db = setup.open(&left, 1).unwrap();
        let crashed: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
        let sink = crashed.clone();
        left.observe(move |operation, disk| {
            let kinds = [CrashKind::Process, CrashKind::Machine];
            let kind = kinds[operation.index as usize % 2];
            sink.lock().unwrap().push(disk.crash_clone(kind, operation.index));
        });
        assert!(is_about(&db.find("a").unwrap().convert().unwrap_err(), &path));
        left.stop_observing();
        let crashed = std::mem::take(&mut *crashed.lock().unwrap());
        assert!(crashed.len() > 20, "{} operations", crashed.len());
        for disk in crashed {
            let db = setup.open(&disk, 1).unwrap();
            // Perhaps the sweep was over.
            if let Err(e) = db.find("a").unwrap().convert() {
                assert!(is_about(&e, &path), "{e:?}");
            }
            db.close().unwrap();
            restore(&disk, &path, &bytes);
            let db = setup.open(&disk, 1).unwrap();
            assert_eq!(contents(&db, setup.keys).unwrap()["a"], content, "{damage:?}");
        }
    }
}

/// The log may point at the file with the highest number of all: that is not given to another file.
#[test]
fn the_number_of_a_missing_file_that_the_log_points_at_is_not_given_out_again() {
    let setup = Setup { stream_at: 400, ..by_hand(Setup::default()) };
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.insert("long", [7; 900]).unwrap();
    drop((keyspace, db));
    let path = segments(&disk).remove(0);
    let bytes = read(&disk, &path);
    disk.remove(&path).unwrap();
    for round in 0..2 {
        let db = setup.open(&disk, 1).unwrap();
        let report = &db.open_report().damaged_segments;
        assert!(report.len() == 1 && is_about(&report[0].error, &path), "{report:?}");
        let keyspace = db.find("a").unwrap();
        assert!(is_about(&keyspace.get("long").unwrap_err(), &path));
        assert_eq!(keyspace.size_of("long").unwrap(), Some(900));
        keyspace.insert(format!("other {round}"), [round; 900]).unwrap();
        assert!(!segments(&disk).contains(&path), "its number was given out again");
        if round == 1 {
            // A flush takes the pointer along.
            keyspace.flush().unwrap();
            assert!(is_about(&keyspace.get("long").unwrap_err(), &path));
            assert!(is_about(&db.checkpoint("/copy").unwrap_err(), &path));
        }
    }
    restore(&disk, &path, &bytes);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.find("a").unwrap();
    assert!(keyspace.get("long").unwrap().unwrap() == [7; 900]);
    assert!(keyspace.get("other 0").unwrap().unwrap() == [0; 900]);
    assert!(keyspace.get("other 1").unwrap().unwrap() == [1; 900]);
}

#[test]
fn a_reader_opens_a_database_with_a_missing_segment_and_changes_nothing() {
    let setup = by_hand(Setup::default());
    let (disk, content, path) = flushed(&setup, 70);
    let left = damaged(&disk, &path, Damage::Missing);
    let names = left.list(Path::new("/db")).unwrap();
    let executor = Arc::new(SeededExecutor::new(1));
    let builder = Database::builder("/db").disk(Arc::new(left.clone())).executor(executor);
    let db = builder.read_only(true).open().unwrap();
    assert_eq!(db.open_report().damaged_segments.len(), 1);
    let keyspace = db.find("a").unwrap();
    assert!(is_about(&keyspace.get(key(3)).unwrap_err(), &path));
    assert!(keyspace.keys().map(|key| key.unwrap().to_vec()).eq(content.keys().cloned()));
    assert_eq!(left.list(Path::new("/db")).unwrap(), names);
}

/// A disk that refuses to read, and a file of a newer version, say nothing about the values.
#[test]
fn a_segment_that_the_disk_refuses_to_read_is_not_taken_for_damaged() {
    let setup = by_hand(Setup::default());
    let (disk, content, path) = flushed(&setup, 70);
    let faulty = FaultyDisk::new(Arc::new(disk.clone()));
    faulty.fail(Fault::at(0).of(&[OperationKind::Read]).on_paths_with("values-"));
    assert_eq!(setup.open(&faulty, 1).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(contents(&setup.open(&disk, 1).unwrap(), setup.keys).unwrap()["a"], content);
    assert!(segments(&disk).contains(&path));
}
