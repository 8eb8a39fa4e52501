//! Checkpoints: a copy that opens as a database of its own and holds what was there at the call, whatever
//! goes on meanwhile, wherever it crashes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk, Stage};
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, ErrorKind, KeyspaceOptions};

use crate::keys::Keys;
use crate::workload::{Model, Random, Setup, contents, difference, draw};

const COPY: &str = "/copies/one";

/// Opens the copy as its own database.
fn open_copy(disk: &(impl Disk + Clone + 'static), path: &str) -> learnedkv::Result<Database> {
    Database::builder(path)
        .disk(Arc::new(disk.clone()))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(4 << 10)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(4 << 10)
        .create_if_missing(false)
        .open()
}

#[track_caller]
fn assert_holds(db: &Database, model: &Model, at: &str) {
    let found = contents(db, Keys::Text).unwrap();
    assert!(found == *model, "{at}: {}", difference(&found, model));
}

/// Amid any workload; then the source and the copy go their own ways, and the source may be gone.
#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let setup = Setup::default();
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        let db = setup.open(&disk, seed).unwrap();
        let mut model = Model::new();
        let mut copies = Vec::new();
        for (number, op) in
            draw(&mut Random::new(seed), setup.keys, 250, 250).into_iter().enumerate()
        {
            op.apply(&db, &setup).unwrap();
            op.change(&mut model);
            if number % 25 == 0 {
                let path = format!("/copies/{number}");
                db.checkpoint(&path).unwrap();
                copies.push((path, model.clone()));
            }
        }
        assert_holds(&db, &model, "the source");
        drop(db);
        // Durable when the call returned, and none shares anything that the others write.
        let left = disk.crash_clone(CrashKind::Machine, seed % 6);
        for (path, expected) in &copies {
            let at = format!("seed {seed}, {path}");
            let copy = open_copy(&left, path).unwrap_or_else(|e| panic!("{at}: {e:?}"));
            assert!(!copy.open_report().removed_files.iter().any(|f| f.starts_with("table")));
            assert_holds(&copy, expected, &at);
            for name in copy.keyspace_names() {
                let keyspace = copy.find(&name).unwrap();
                keyspace.insert("only here", path).unwrap();
                keyspace.convert().unwrap();
            }
            // And a copy of the copy.
            copy.checkpoint(format!("{path}/again")).unwrap();
        }
        for (path, mut expected) in copies {
            let path = format!("{path}/again");
            let copy = open_copy(&left, &path).unwrap();
            for content in expected.values_mut() {
                let value = path.trim_end_matches("/again").as_bytes().to_vec();
                content.insert(b"only here".to_vec(), value);
            }
            assert_holds(&copy, &expected, &path);
        }
        assert_holds(&setup.open(&left, seed).unwrap(), &model, "the source, opened again");
    }
}

/// Before and amid each operation of a checkpoint, process and machine die.
#[test]
fn a_crash_amid_a_checkpoint_leaves_the_source_and_no_half_copy() {
    let setup = Setup::default();
    let disk = SimDisk::new(3);
    let db = setup.open(&disk, 3).unwrap();
    let mut model = Model::new();
    for op in draw(&mut Random::new(3), setup.keys, 120, 250) {
        op.apply(&db, &setup).unwrap();
        op.change(&mut model);
    }
    db.sync().unwrap();
    let clones = Arc::new(Mutex::new(Vec::new()));
    let taken = clones.clone();
    disk.observe(move |operation, disk| {
        if operation.stage != Stage::After {
            let at =
                format!("{:?} {} {}", operation.stage, operation.kind, operation.path.display());
            let mut taken = taken.lock().unwrap();
            taken.push((at.clone(), disk.crash_clone(CrashKind::Process, 0)));
            let seed = operation.index;
            taken.push((at.clone(), disk.crash_clone(CrashKind::Machine, seed % 6)));
            taken.push((at, disk.crash_clone(CrashKind::Machine, 6 + seed)));
        }
    });
    db.checkpoint(COPY).unwrap();
    disk.stop_observing();
    let (mut whole, mut none) = (0, 0);
    let clones = std::mem::take(&mut *clones.lock().unwrap());
    for (at, left) in &clones {
        assert_holds(&setup.open(left, 1).unwrap(), &model, at);
        match open_copy(left, COPY) {
            Ok(copy) => {
                whole += 1;
                assert_holds(&copy, &model, at);
            }
            Err(e) => {
                none += 1;
                let missing = [ErrorKind::NotFound, ErrorKind::NotADatabase];
                assert!(missing.contains(&e.kind()), "{at}: {e:?}");
            }
        }
    }
    assert!(whole > 0 && none > 30, "{whole} whole, {none} not there");
    assert_holds(&open_copy(&disk, COPY).unwrap(), &model, "not crashed");
}

/// Each operation of a checkpoint fails once: told, cleared away, done again.
#[test]
fn a_checkpoint_that_fails_can_be_made_again() {
    let setup = Setup::default();
    let sim = SimDisk::new(5);
    let faulty = FaultyDisk::new(Arc::new(sim.clone()));
    let db = setup.open(&faulty, 5).unwrap();
    let mut model = Model::new();
    for op in draw(&mut Random::new(5), setup.keys, 120, 250) {
        op.apply(&db, &setup).unwrap();
        op.change(&mut model);
    }
    db.wait_idle().unwrap();
    for kind in [ErrorKind::Io, ErrorKind::DiskFull] {
        for number in 0.. {
            let path = format!("/copies/{kind:?}{number}");
            let counts =
                faulty.fail(Fault::at(number).with(kind).on_paths_with("/copies").writing_part());
            let made = db.checkpoint(&path);
            faulty.clear_faults();
            if counts.fired() == 0 {
                made.unwrap();
                break;
            }
            if made.is_err() {
                // One whose CURRENT may count is left; it is whole then.
                let names = sim.list(Path::new(&path)).unwrap_or_default();
                if !names.iter().any(|name| name == "CURRENT") {
                    db.checkpoint(&path).unwrap_or_else(|e| panic!("{kind:?} {number}: {e:?}"));
                }
            }
            assert_holds(&open_copy(&sim, &path).unwrap(), &model, &path);
        }
    }
    // Without links, files are copied; the copies are their own.
    faulty.fail(Fault::at(0).of(&[OperationKind::Link]).from_then_on());
    let before = sim.used_bytes();
    db.checkpoint(COPY).unwrap();
    assert!(sim.used_bytes() > before + (8 << 10), "nothing was copied");
    let left = sim.crash_clone(CrashKind::Machine, 0);
    assert_holds(&open_copy(&left, COPY).unwrap(), &model, "copied, and the machine died");
    assert_holds(&open_copy(&sim, COPY).unwrap(), &model, "copied");
    assert_holds(&db, &model, "the source");
}

/// All its tables leave the database, and are removed, before the first is linked.
#[test]
fn files_stay_until_they_are_linked() {
    let setup = Setup::default();
    let disk = SimDisk::new(7);
    let db = setup.open(&disk, 7).unwrap();
    let mut model = Model::new();
    for op in draw(&mut Random::new(7), setup.keys, 120, 250) {
        op.apply(&db, &setup).unwrap();
        op.change(&mut model);
    }
    let names = db.keyspace_names();
    names.iter().for_each(|name| db.find(name).unwrap().convert().unwrap());
    let mut other = Some(db.clone());
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::Link
            && let Some(db) = other.take()
        {
            for name in db.keyspace_names() {
                db.drop_keyspace(&name).unwrap();
            }
            db.wait_idle().unwrap();
            // Jobs run where writers give way: the files would be removed here.
            let keyspace = db.keyspace("later", KeyspaceOptions::default()).unwrap();
            (0..50u8).for_each(|n| keyspace.insert([n], [n; 200]).unwrap());
            keyspace.convert().unwrap();
        }
    });
    db.checkpoint(COPY).unwrap();
    disk.stop_observing();
    assert_eq!(db.keyspace_names(), ["later"], "nothing came between");
    assert_holds(&open_copy(&disk, COPY).unwrap(), &model, "the copy");
}

#[test]
fn where_no_checkpoint_can_be_made_it_says_so() {
    let setup = Setup::default();
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let kind = |db: &Database, path: &str| db.checkpoint(path).unwrap_err().kind();
    // It was said that another process holds the lock.
    let error = db.checkpoint("/db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("needs an empty directory, found \""), "{error}");
    disk.create_dir(Path::new("/full")).unwrap();
    drop(disk.create(Path::new("/full/letters")).unwrap());
    let error = db.checkpoint("/full").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("letters"), "{error}");
    db.checkpoint(COPY).unwrap();
    assert_eq!(kind(&db, COPY), ErrorKind::InvalidArgument);
    assert!(open_copy(&disk, COPY).unwrap().keyspace_names().is_empty(), "an empty database");
    let again = db.clone();
    db.close().unwrap();
    assert_eq!(kind(&again, "/late"), ErrorKind::Closed);
    assert_eq!(disk.list(Path::new("/late")).unwrap_err().kind(), ErrorKind::NotFound);
    drop(again);
    let reader =
        Database::builder("/db").disk(Arc::new(disk.clone())).read_only(true).open().unwrap();
    assert_eq!(kind(&reader, "/late"), ErrorKind::ReadOnly);
}

/// Threads put the same number into two keyspaces by one batch, and settle; each copy taken meanwhile has
/// whole batches, all that were acknowledged before it, and none that began after it.
#[test]
fn checkpoints_amid_writes_are_one_moment() {
    const WRITERS: usize = 2;
    let temporary = tempfile::tempdir().unwrap();
    let small = |path: &Path| {
        Database::builder(path)
            .memtable_bytes(16 << 10)
            .memory_budget_bytes(1 << 20)
            .log_segment_bytes(8 << 10)
    };
    let db = small(&temporary.path().join("db")).open().unwrap();
    let options =
        KeyspaceOptions::default().partition_bytes(8 << 10).min_conversion_bytes(16 << 10);
    let pair = ["a", "b"].map(|name| db.keyspace(name, options.clone()).unwrap());
    let over = AtomicBool::new(false);
    let acknowledged: [AtomicU64; WRITERS] = Default::default();
    let begun: [AtomicU64; WRITERS] = Default::default();
    let key = |writer: usize, number: u64| format!("w{writer}k{:02}", number % 50);
    let value = |number: u64| [&number.to_be_bytes()[..], &[7; 60]].concat();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, pair, over) = (&db, &pair, &over);
            let (begun, acknowledged) = (&begun[writer], &acknowledged[writer]);
            scope.spawn(move || {
                for number in 1.. {
                    begun.store(number, Ordering::SeqCst);
                    let mut batch = db.batch();
                    pair.iter().for_each(|k| batch.insert(k, key(writer, number), value(number)));
                    batch.commit().unwrap();
                    acknowledged.store(number, Ordering::SeqCst);
                    if number % 500 == 0 {
                        pair[writer % 2].convert().unwrap();
                    }
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        for round in 0..12 {
            let least = acknowledged.each_ref().map(|n| n.load(Ordering::SeqCst));
            let path = temporary.path().join(format!("copy{round}"));
            let made = db.checkpoint(&path);
            let most = begun.each_ref().map(|n| n.load(Ordering::SeqCst));
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                made.unwrap();
                let copy = small(&path).open().unwrap();
                let [a, b] = ["a", "b"].map(|name| {
                    let keyspace = copy.find(name).unwrap();
                    keyspace.iter().map(Result::unwrap).collect::<Vec<_>>()
                });
                assert_eq!(a, b, "a batch was torn");
                for writer in 0..WRITERS {
                    let prefix = format!("w{writer}");
                    let own = a.iter().filter(|(key, _)| key.starts_with(prefix.as_bytes()));
                    let newest = own.map(|(_, v)| u64::from_be_bytes(v[..8].try_into().unwrap()));
                    let newest = newest.max().unwrap_or(0);
                    assert!((least[writer]..=most[writer]).contains(&newest), "{newest}");
                }
            }));
            if checked.is_err() || round == 11 {
                over.store(true, Ordering::SeqCst);
            }
            checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    assert!(db.stats().flushes > 3, "too little happened: {}", db.stats());
}
