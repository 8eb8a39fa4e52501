//! Damaged files: right answers or an error that names the file, never a panic, never a wrong answer.
//!
//! A database with settled and fresh tables, a log and a manifest is closed; then each file is
//! damaged at many places (a flipped bit, a zeroed stretch, a cut), opened and read. What is covered:
//! every [`STRIDE`]-th byte of every file that holds something (where keys are very long some [`PLACES`]
//! of a file), with a flip; a zeroed sector and a cut at every [`STRIDE`] * 16-th;
//! `LEARNEDKV_CORRUPTION_STRIDE=1` tries every byte.

use std::ops::Bound;
use std::path::{Path, PathBuf};

use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk};
use learnedkv::{Compression, Error, ErrorKind, FilterKind};

use crate::files::{files, read};
use crate::keys::Keys;
use crate::workload::{
    Model, Op, Random, Removal, Setup, contents, difference, draw, guarded, key,
};

const STRIDE: usize = 11;
/// How many bytes of a file with very long keys are flipped, at most, where nobody asks for more.
const PLACES: usize = 60;

/// What is done to a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip,
    Zero,
    Cut,
}

fn all_files(disk: &SimDisk) -> Vec<PathBuf> {
    files(disk, "").into_iter().filter(|path| !path.ends_with("LOCK")).collect()
}

/// A clone of `disk` with one place of one file damaged; `None` if nothing would change.
fn damaged(disk: &SimDisk, path: &Path, at: usize, damage: Damage) -> Option<SimDisk> {
    let left = disk.crash_clone(CrashKind::Process, 0);
    let file = left.open(path, Access::Sequential).unwrap();
    let length = file.length_bytes().unwrap() as usize;
    let mut bytes = vec![
        0;
        match damage {
            Damage::Flip => 1,
            _ => 64.min(length - at),
        }
    ];
    file.read_exact_at(&mut bytes, at as u64).unwrap();
    match damage {
        Damage::Flip => file.write_all_at(&[bytes[0] ^ 0x40], at as u64).unwrap(),
        Damage::Zero if bytes.iter().all(|b| *b == 0) => return None,
        Damage::Zero => file.write_all_at(&vec![0; bytes.len()], at as u64).unwrap(),
        Damage::Cut => file.truncate(at as u64).unwrap(),
    }
    Some(left)
}

/// An error about damage, naming the file.
fn check_error(error: &Error, path: &Path) -> Result<(), String> {
    let kinds = [ErrorKind::Corruption, ErrorKind::NotADatabase, ErrorKind::Unsupported];
    if !kinds.contains(&error.kind()) {
        return Err(format!("expected damage to be reported, found {error:?}"));
    }
    // The damage of a file that names others may show at those.
    let names_others = path.ends_with("CURRENT") || path.to_string_lossy().contains("manifest");
    // A log segment that begins with nothing is missed at the end of the one before.
    let is_log = |path: &Path| path.to_string_lossy().contains("log-");
    let before = is_log(path)
        && error.path().is_some_and(|found| is_log(found) && found < path)
        && error.offset_bytes().is_some();
    if names_others || error.path() == Some(path) || before {
        Ok(())
    } else {
        Err(format!("expected an error of {}, found {error:?}", path.display()))
    }
}

/// Whoever meets damage while he reads is told, once, of which keyspace it is and what to do.
fn check_advice(error: &Error) -> Result<(), String> {
    let text = error.to_string();
    let is_told = ["keyspace \"", "copy what can be read to another keyspace"]
        .iter()
        .all(|part| text.matches(part).count() == 1);
    if error.is_corruption() && !is_told {
        return Err(format!("expected advice, found {text}"));
    }
    Ok(())
}

/// Opens and reads: `allowed` or an error. True if it was an error.
fn check(setup: &Setup, disk: &SimDisk, path: &Path, allowed: &[Model]) -> Result<bool, String> {
    let db = match setup.open(disk, 1) {
        Ok(db) => db,
        Err(e) => return check_error(&e, path).map(|()| true),
    };
    let found = match contents(&db, setup.keys) {
        Ok(found) => found,
        Err(e) => return check_error(&e, path).and_then(|()| check_advice(&e)).map(|()| true),
    };
    if allowed.contains(&found) {
        return Ok(false);
    }
    Err(format!("a wrong answer: {}", difference(&found, &allowed[allowed.len() - 1])))
}

/// A closed database, and what it holds.
fn sample(setup: &Setup, seed: u64, length: usize) -> (SimDisk, Model) {
    let disk = SimDisk::new(seed);
    let db = setup.open(&disk, seed).unwrap();
    let mut model = Model::new();
    for op in draw(&mut Random::new(seed), setup.keys, length, 100) {
        op.apply(&db, setup).unwrap();
        op.change(&mut model);
    }
    // Something of each sort, whatever was drawn: settled, fresh, and only in the log.
    let put = |number, value: u8| {
        Op::Commit(vec![("a".into(), setup.keys.key(number), Some(vec![value; 130]))], false)
    };
    let mut ops = vec![Op::Create("a".into()), put(1, 1), Op::Convert("a".into()), put(2, 2)];
    let remove = |from, to| {
        let (from, to) = (setup.keys.key(from), setup.keys.key(to));
        let range = (Bound::Included(from), Bound::Excluded(to));
        let (before, after) = (Vec::new(), Vec::new());
        Op::Remove(Removal { before, name: "a".into(), range, after, synced: false })
    };
    ops.extend([remove(10, 20), remove(30, 33)]);
    ops.extend([Op::Flush("a".into()), put(3, 3), remove(40, 41), put(4, 4)]);
    for op in ops {
        op.apply(&db, setup).unwrap();
        op.change(&mut model);
    }
    db.close().unwrap();
    (disk, model)
}

/// For a file of that length.
fn stride(keys: Keys, length: usize) -> usize {
    let asked = std::env::var("LEARNEDKV_CORRUPTION_STRIDE").ok().and_then(|n| n.parse().ok());
    let many = if keys == Keys::Long { length / PLACES } else { 0 };
    asked.unwrap_or(STRIDE.max(many))
}

/// Damages every file of a closed database. Returns (errors, right answers), by kind of file.
fn damage_all(setup: &Setup, seed: u64) -> std::collections::BTreeMap<String, (u32, u32)> {
    let (disk, model) = sample(setup, seed, 60);
    let mut counts = std::collections::BTreeMap::new();
    for path in all_files(&disk) {
        let bytes = read(&disk, &path);
        // Behind what was written, a preallocated file is zeros that nobody looks at.
        let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        for (damage, step) in [(Damage::Flip, 1), (Damage::Zero, 16), (Damage::Cut, 16)]
            .map(|(d, n)| (d, n * stride(setup.keys, end)))
        {
            for at in (seed as usize % step..end).step_by(step) {
                let Some(left) = damaged(&disk, &path, at, damage) else { continue };
                let checked = guarded(|| check(setup, &left, &path, std::slice::from_ref(&model)));
                let is_error = checked.unwrap_or_else(|e| {
                    panic!("seed {seed}: {damage:?} of {} at {at} of {end}: {e}", path.display())
                });
                let name = path.file_name().unwrap().to_string_lossy();
                let sort = name.split('-').next().unwrap().to_owned();
                let (errors, answers) = counts.entry(sort).or_insert((0, 0));
                *if is_error { errors } else { answers } += 1;
            }
        }
    }
    counts
}

#[test]
fn damage_is_reported_or_does_not_matter() {
    for (seed, keys) in (0..).zip([Keys::Text, Keys::Nested]) {
        let counts = damage_all(&Setup { keys, ..Setup::default() }, seed);
        println!("errors and right answers: {counts:?}");
        for sort in ["CURRENT", "manifest", "table", "values", "log"] {
            assert!(counts[sort].0 > 0, "no damage of {sort} was reported: {counts:?}");
        }
        // A filter is no data: without it everything is read as well.
        let (errors, answers) = counts["filter"];
        assert!(errors == 0 && answers > 10, "damage of filters: {counts:?}");
    }
}

/// Tables in levels, and runs above them.
#[test]
fn damage_of_levels_is_reported_or_does_not_matter() {
    let levels = Setup::levels();
    let keyspace = levels.keyspace.clone().separate_at(64);
    let setup = Setup { keyspace, keys: Keys::Integers, ..levels };
    let counts = damage_all(&setup, 4);
    println!("errors and right answers: {counts:?}");
    for sort in ["manifest", "table", "values", "log"] {
        assert!(counts[sort].0 > 0, "no damage of {sort} was reported: {counts:?}");
    }
    let (errors, answers) = counts["filter"];
    assert!(errors == 0 && answers > 10, "damage of filters: {counts:?}");
}

/// Indexes that are not read when the database is opened, but when somebody needs them.
#[test]
fn damage_of_tables_that_do_not_keep_their_index_is_reported_or_does_not_matter() {
    for setup in [Setup::default().paged(true), Setup::levels().paged(true)] {
        let counts = damage_all(&Setup { keys: Keys::Long, ..setup }, 5);
        println!("errors and right answers: {counts:?}");
        let (errors, answers) = counts["table"];
        assert!(errors > 0 && answers > 10, "damage of tables: {counts:?}");
    }
}

/// Compressed tables too: their checksums stand before what decompresses them.
#[test]
fn damage_of_compressed_tables_is_reported_or_does_not_matter() {
    for (seed, &how) in (2..).zip(Compression::ALL.iter().skip(1)) {
        let small = Setup::default();
        let setup = Setup { keyspace: small.keyspace.clone().compression(how), ..small };
        let (disk, _) = sample(&setup, seed, 60);
        let db = setup.open(&disk, seed).unwrap();
        let stats = db.stats();
        let bytes = |of: fn(&learnedkv::KeyspaceStats) -> u64| stats.keyspaces.iter().map(of).sum();
        let (stored, raw): (u64, u64) =
            (bytes(|k| k.block_bytes), bytes(|k| k.unpacked_block_bytes));
        assert!(stored < raw, "{how}: nothing was compressed: {stored} of {raw} bytes");
        let (apart, long): (u64, u64) =
            (bytes(|k| k.value_live_bytes), bytes(|k| k.unpacked_value_bytes));
        assert!(apart * 2 < long, "{how}: values took {apart} of {long} bytes");
        drop(db);
        let counts = damage_all(&setup, seed);
        println!("{how}: errors and right answers: {counts:?}");
        for sort in ["table", "values"] {
            assert!(counts[sort].0 > 0, "no damage of {sort} was reported: {counts:?}");
        }
    }
}

/// The index of a table is found again from its blocks.
#[test]
fn a_damaged_index_is_rebuilt_from_the_blocks() {
    let ways = [Setup::default(), Setup::default().paged(true), Setup::default().paged(false)];
    for (setup, keys) in ways.into_iter().zip([Keys::Text, Keys::Nested, Keys::Integers]) {
        rebuild_damaged_indexes(&Setup { keys, ..setup });
    }
}

fn rebuild_damaged_indexes(setup: &Setup) {
    let (disk, model) = sample(setup, 3, 60);
    let (mut rebuilt, is_paged) = (0, setup.metadata_percent == 0);
    for path in all_files(&disk).iter().filter(|p| p.to_string_lossy().contains("table")) {
        let length = read(&disk, path).len();
        let (first, step) = if is_paged { (length / 2, 5) } else { (0, 1) };
        for at in (first..length).step_by(step) {
            let left = damaged(&disk, path, at, Damage::Flip).unwrap();
            let Ok(db) = setup.open(&left, 1) else { continue };
            if !is_paged && db.stats().rebuilt_indexes == 0 {
                continue;
            }
            let found = contents(&db, setup.keys);
            // Those of blocks are errors.
            if db.stats().rebuilt_indexes > 0 && db.stats().index_fallbacks == 0 {
                rebuilt += 1;
                assert_eq!(found.unwrap(), model, "{} at {at}", path.display());
            }
        }
        if rebuilt > 100 {
            break;
        }
    }
    assert!(rebuilt > 0, "no index section was met");
}

/// A filter that is lost, cut, too long or another table's is done without, and forgotten.
#[test]
fn a_filter_that_cannot_be_read_costs_no_answer() {
    let filter = Some(FilterKind::BinaryFuse8);
    let keyspace = Setup::default().keyspace.settled_filter(filter);
    let setup = Setup { keyspace, automatic_conversion: false, ..Setup::default() };
    let (disk, model) = sample(&setup, 3, 60);
    // So that no file is there that nothing names.
    drop(setup.open(&disk, 3).unwrap());
    let is_filter = |p: &PathBuf| p.to_string_lossy().contains("filter-");
    let filters: Vec<_> = all_files(&disk).into_iter().filter(is_filter).collect();
    assert!(filters.len() > 2, "{filters:?}");
    let whole = setup.open(&disk.crash_clone(CrashKind::Process, 0), 1).unwrap().stats();
    let count = |stats: &learnedkv::Stats| stats.keyspaces.iter().map(|k| k.filters).sum::<u64>();
    assert_eq!((whole.dropped_filters, count(&whole)), (0, filters.len() as u64));
    for (number, path) in filters.iter().enumerate() {
        let bytes = read(&disk, path);
        let other = read(&disk, &filters[(number + 1) % filters.len()]);
        let empty: &[u8] = &[];
        let mut contents_of = vec![
            ("lost", None),
            ("empty", Some(empty.to_vec())),
            ("too long", Some([&bytes[..], &[0]].concat())),
            ("another table's", Some(other)),
            ("zeros", Some(vec![0; bytes.len()])),
        ];
        for at in (0..bytes.len()).step_by(5) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            contents_of.push(("a bit flipped", Some(flipped)));
            contents_of.push(("cut", Some(bytes[..at].to_vec())));
        }
        for (name, new) in contents_of {
            let left = disk.crash_clone(CrashKind::Process, 0);
            left.remove(path).unwrap();
            if let Some(new) = &new {
                left.create(path).unwrap().write_all_at(new, 0).unwrap();
            }
            let db = setup.open(&left, 1).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            assert_eq!(contents(&db, setup.keys).unwrap(), model, "{name}: {}", path.display());
            let stats = db.stats();
            assert_eq!(stats.dropped_filters, 1, "{name}");
            assert_eq!(count(&stats), filters.len() as u64 - 1, "{name}");
            let removed = path.file_name().unwrap().to_str().unwrap();
            let orphans = &db.open_report().removed_files;
            assert_eq!(orphans.iter().any(|n| n == removed), new.is_some(), "{name}: {orphans:?}");
            // The tables go on as those that never had one.
            for keyspace in db.keyspace_names() {
                db.find(&keyspace).unwrap().convert().unwrap();
            }
            assert_eq!(contents(&db, setup.keys).unwrap(), model, "{name}, converted");
            drop(db);
            let db = setup.open(&left, 2).unwrap();
            assert_eq!(db.stats().dropped_filters, 0, "{name}: it was forgotten");
            assert_eq!(contents(&db, setup.keys).unwrap(), model, "{name}, opened again");
        }
    }
}

/// Of a log whose end was never synced, a torn end is cut off, and the report says so.
#[test]
fn a_torn_end_of_the_log_is_cut_off_and_a_torn_middle_is_an_error() {
    let setup = Setup { memtable_bytes: 64 << 10, log_segment_bytes: 64 << 10, ..Setup::default() };
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let mut states = vec![Model::new()];
    let mut ops = vec![Op::Create("a".into())];
    ops.extend(
        (0..20).map(|n| Op::Commit(vec![("a".into(), key(n), Some(vec![n as u8; 20]))], n == 9)),
    );
    for op in &ops {
        op.apply(&db, &setup).unwrap();
        let mut next = states[states.len() - 1].clone();
        op.change(&mut next);
        states.push(next);
    }
    // The process dies: nothing after the tenth commit is known to be durable.
    let left = disk.crash_clone(CrashKind::Process, 0);
    let path = all_files(&left).into_iter().find(|p| p.to_string_lossy().contains("log-")).unwrap();
    let end = read(&left, &path).iter().rposition(|b| *b != 0).unwrap() + 1;
    let (mut errors, mut kept) = (0, std::collections::BTreeSet::new());
    for at in 64..end {
        let torn = damaged(&left, &path, at, Damage::Flip).unwrap();
        match setup.open(&torn, 1) {
            Ok(db) => {
                let found = contents(&db, setup.keys).unwrap();
                let k = states.iter().position(|state| *state == found);
                kept.insert(k.expect("the state after some commit"));
            }
            Err(e) => {
                assert!(e.is_corruption(), "{e:?}");
                assert_eq!(e.path(), Some(path.as_path()), "{e:?}");
                assert!(e.offset_bytes().is_some_and(|o| o <= at as u64), "{e:?} for {at}");
                errors += 1;
            }
        }
    }
    assert!(errors > 500, "synced records cannot be lost unseen: {errors}");
    // Each unsynced record may be the torn one (and an end without bytes changes nothing).
    assert_eq!(kept.first(), Some(&11), "{kept:?}");
    assert!(kept.len() > 9, "{kept:?}");
}
