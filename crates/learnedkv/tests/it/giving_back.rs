//! What a sweep has moved out of value segments is given back while it goes on, and nobody sees it go.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use learnedkv::disk::real::RealDisk;
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::{Database, Keyspace, KeyspaceOptions, Slice};

use crate::workload::Setup;

const KEYS: u32 = 600;

fn setup() -> Setup {
    let keyspace = KeyspaceOptions::default().separate_at(100).partition_bytes(32 << 10);
    Setup {
        memtable_bytes: 64 << 10,
        log_segment_bytes: 64 << 10,
        automatic_conversion: false,
        stream_at: 1 << 20,
        keyspace: keyspace.block_bytes(4096),
        ..Setup::default()
    }
}

/// A keyspace of values kept apart that a sweep moves, nothing swept yet.
pub fn open(seed: u64) -> (SimDisk, Database, Keyspace) {
    open_as(&setup(), seed)
}

fn open_as(setup: &Setup, seed: u64) -> (SimDisk, Database, Keyspace) {
    let disk = SimDisk::new(seed);
    let db = setup.open(&disk, seed).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    put(&keyspace, 1);
    (disk, db, keyspace)
}

fn open_real(path: &Path) -> Database {
    let setup = setup();
    Database::builder(path)
        .disk(Arc::new(RealDisk::new()))
        .memtable_bytes(setup.memtable_bytes)
        .log_segment_bytes(setup.log_segment_bytes)
        .automatic_conversion(false)
        .open()
        .unwrap()
}

fn value(key: u32, round: u8) -> Vec<u8> {
    let mut value = vec![round; 1000];
    value[..4].copy_from_slice(&key.to_be_bytes());
    value
}

/// Each key once, in an order that leaves some of each part of the key space in each memtable.
fn put(keyspace: &Keyspace, round: u8) {
    for number in 0..KEYS {
        let key = number * 7 % KEYS;
        keyspace.insert(key.to_be_bytes(), value(key, round)).unwrap();
    }
    keyspace.flush().unwrap();
}

fn check(keyspace: &Keyspace, round: u8) {
    for key in 0..KEYS {
        assert!(*keyspace.get(key.to_be_bytes()).unwrap().unwrap() == value(key, round), "{key}");
    }
    let all: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().1.to_vec()).collect();
    assert!(all == (0..KEYS).map(|key| value(key, round)).collect::<Vec<_>>());
}

/// The first conversion of values kept apart took twice their space until its end.
#[test]
fn a_first_conversion_needs_little_more_than_what_is_live() {
    let setup = setup();
    // Beside tables of eight blocks the one that a filter's file takes would be much.
    let keyspace = setup.keyspace.clone().attach_filters(false);
    // So few runs that none are merged before: how many stand is not what this is about.
    let setup = Setup { keyspace, memtable_bytes: 96 << 10, ..setup };
    let mut least = u64::MAX;
    for seed in 1..=6 {
        let (disk, db, keyspace) = open_as(&setup, seed);
        db.wait_idle().unwrap();
        let before = disk.used_bytes();
        let most = Arc::new(AtomicU64::new(0));
        let seen = most.clone();
        disk.observe(move |_, disk| _ = seen.fetch_max(disk.used_bytes(), Relaxed));
        keyspace.convert().unwrap();
        let live = u64::from(KEYS) * 1004;
        let extra = most.load(Relaxed) - before;
        // When what is replaced goes depends on the seed: 0.30 to 0.48 of what is live, of twelve (also before merges gave way).
        assert!(
            extra < live / 2,
            "seed {seed}: {extra} bytes beside {before}, of {live} live ones"
        );
        check(&keyspace, 1);
        least = least.min(extra);
    }
    assert!(least < u64::from(KEYS) * 1004 / 3, "{least} bytes at the least");
}

/// A snapshot holds up what it reads; when it goes, what it held up is given back.
#[test]
fn a_snapshot_reads_what_a_sweep_beside_it_moves() {
    let (disk, db, keyspace) = open(2);
    let discards = Arc::new(AtomicU64::new(0));
    let seen = discards.clone();
    disk.observe(move |operation, _| {
        seen.fetch_add(u64::from(operation.kind == OperationKind::Discard), Relaxed);
    });
    let snapshot = db.snapshot();
    keyspace.convert().unwrap();
    put(&keyspace, 2);
    assert_eq!(discards.load(Relaxed), 0, "all is read by the snapshot");
    for key in 0..KEYS {
        let found = snapshot.get(&keyspace, key.to_be_bytes()).unwrap().unwrap();
        assert!(*found == value(key, 1), "{key}");
    }
    keyspace.convert().unwrap();
    drop(snapshot);
    db.wait_idle().unwrap();
    check(&keyspace, 2);
    put(&keyspace, 3);
    keyspace.convert().unwrap();
    assert!(discards.load(Relaxed) > 0);
    check(&keyspace, 3);
}

/// A checkpoint links the files, before a sweep or at any moment of it: they are left whole from then on.
#[test]
fn a_checkpoint_keeps_all_its_values() {
    let (disk, db, keyspace) = open(3);
    db.checkpoint(Path::new("/before")).unwrap();
    std::thread::scope(|scope| {
        let copies = scope.spawn(|| {
            let mut copies = vec!["/before".to_string()];
            while copies.len() < 20 && keyspace.stats().unwrap().settled_share() < 1.0 {
                let to = format!("/copy{}", copies.len());
                db.checkpoint(Path::new(&to)).unwrap();
                copies.push(to);
            }
            copies
        });
        keyspace.convert().unwrap();
        let copies = copies.join().unwrap();
        db.wait_idle().unwrap();
        for copy in copies {
            let builder = Database::builder(&copy).disk(Arc::new(disk.clone())).read_only(true);
            let copy = builder.open().unwrap();
            check(&copy.find("k").unwrap(), 1);
        }
    });
    check(&keyspace, 1);
}

/// Values lent from a map stay what they were for as long as somebody has them; after the process died amid
/// the sweep, too, nothing is missing.
#[test]
fn values_that_were_lent_stay_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = open_real(&path);
    let keyspace = db.keyspace("k", setup().keyspace).unwrap();
    put(&keyspace, 1);
    let lent: Mutex<Vec<_>> = Mutex::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                for key in (0..KEYS).rev() {
                    let found = keyspace.get(key.to_be_bytes()).unwrap().unwrap();
                    assert!(found[..4] == key.to_be_bytes());
                    lent.lock().unwrap().push((key, found));
                }
            }
        });
        keyspace.convert().unwrap();
        put(&keyspace, 1);
        keyspace.convert().unwrap();
    });
    for (key, found) in lent.into_inner().unwrap() {
        assert!(*found == value(key, 1), "{key}");
    }
    db.wait_idle().unwrap();
    check(&keyspace, 1);
    drop((keyspace, db));
    check(&open_real(&path).find("k").unwrap(), 1);
}

fn lend(keyspace: &Keyspace) -> Vec<Slice> {
    (0..KEYS).map(|key| keyspace.get(key.to_be_bytes()).unwrap().unwrap()).collect()
}

fn check_lent(lent: &[Slice]) {
    for (key, found) in (0..KEYS).zip(lent) {
        assert!(**found == value(key, 1), "{key}");
    }
}

/// A value outlives the database that lent it. The next one knew nothing of that, and gave the file's beginning
/// back under it.
#[test]
fn values_lent_by_a_database_that_was_closed_stay_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_real(dir.path());
    let keyspace = db.keyspace("k", setup().keyspace).unwrap();
    put(&keyspace, 1);
    let lent = lend(&keyspace);
    drop((keyspace, db));
    let db = open_real(dir.path());
    db.find("k").unwrap().convert().unwrap();
    db.wait_idle().unwrap();
    check_lent(&lent);
    check(&db.find("k").unwrap(), 1);
}

/// A checkpoint lends values from files that it shares, and then has them no more: that they have one name
/// again does not say that nobody reads there.
#[test]
fn values_lent_by_a_checkpoint_stay_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_real(&dir.path().join("db"));
    let keyspace = db.keyspace("k", setup().keyspace).unwrap();
    put(&keyspace, 1);
    db.checkpoint(dir.path().join("copy")).unwrap();
    let copy = open_real(&dir.path().join("copy"));
    let of_copy = copy.find("k").unwrap();
    let lent = lend(&of_copy);
    put(&of_copy, 2);
    of_copy.convert().unwrap();
    copy.wait_idle().unwrap();
    drop((of_copy, copy));
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    check_lent(&lent);
    check(&keyspace, 1);
}

/// Somebody else linked a file, to keep it.
#[test]
fn a_file_with_a_second_name_is_left_whole() {
    let (disk, db, keyspace) = open(5);
    db.wait_idle().unwrap();
    let names = disk.list(Path::new("/db")).unwrap();
    let content = |path: &Path| {
        let file = disk.open(path, Access::Random).unwrap();
        let mut bytes = vec![0; file.length_bytes().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    disk.create_dir(Path::new("/kept")).unwrap();
    let mut kept = Vec::new();
    for name in names.iter().filter(|name| name.starts_with("values-")) {
        let (from, to) = (Path::new("/db").join(name), Path::new("/kept").join(name));
        disk.link(&from, &to).unwrap();
        kept.push((content(&from), to));
    }
    assert!(kept.len() > 3);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert!(kept.iter().all(|(before, path)| content(path) == *before));
    check(&keyspace, 1);
}

/// The process dies at any moment of a sweep.
#[test]
fn what_was_given_back_is_missed_by_nobody_after_a_crash() {
    let (disk, db, keyspace) = open(4);
    db.wait_idle().unwrap();
    let seen: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
    let sink = seen.clone();
    disk.observe(move |operation, disk| {
        if operation.kind == OperationKind::Discard {
            for kind in [CrashKind::Process, CrashKind::Machine] {
                sink.lock().unwrap().push(disk.crash_clone(kind, operation.index));
            }
        }
    });
    keyspace.convert().unwrap();
    let crashed = std::mem::take(&mut *seen.lock().unwrap());
    assert!(crashed.len() > 10, "{}", crashed.len());
    for (number, disk) in crashed.iter().enumerate() {
        let db = setup().open(disk, number as u64).unwrap();
        let keyspace = db.find("k").unwrap();
        check(&keyspace, 1);
        keyspace.convert().unwrap();
        check(&keyspace, 1);
    }
}

/// It counted as occupied, and as garbage, until the sweep was over.
#[test]
fn what_an_earlier_life_gave_back_is_not_counted() {
    let (disk, db, keyspace) = open(6);
    db.wait_idle().unwrap();
    let seen: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
    let sink = seen.clone();
    disk.observe(move |operation, disk| {
        if operation.kind == OperationKind::Discard {
            sink.lock().unwrap().push(disk.crash_clone(CrashKind::Process, operation.index));
        }
    });
    keyspace.convert().unwrap();
    let crashed = std::mem::take(&mut *seen.lock().unwrap());
    let mut most_given_back = 0;
    for (number, disk) in crashed.iter().enumerate() {
        let db = setup().open(disk, number as u64).unwrap();
        let stats = db.find("k").unwrap().stats().unwrap();
        // What goes with the files is what they took.
        let (disk, mut lengths) = (disk.crash_clone(CrashKind::Process, 0), 0);
        let before = disk.used_bytes();
        let names = disk.list(Path::new("/db")).unwrap();
        for name in names.iter().filter(|name| name.starts_with("values-")) {
            let path = Path::new("/db").join(name);
            lengths += disk.open(&path, Access::Random).unwrap().length_bytes().unwrap();
            disk.remove(&path).unwrap();
        }
        let (taken, blocks) = (before - disk.used_bytes(), 4096 * stats.value_segments);
        assert!(
            (taken - blocks..=taken).contains(&stats.value_bytes),
            "{number}: {} counted of {taken} in {blocks}",
            stats.value_bytes
        );
        most_given_back = most_given_back.max(lengths - stats.value_bytes);
    }
    let all = u64::from(KEYS) * 1000;
    assert!(most_given_back > all / 4, "{most_given_back} of {all} bytes");
}

/// A value that a sweep cannot read stays where it is: so nothing goes of its segment, though all around it was moved.
#[test]
fn nothing_is_given_back_of_a_segment_in_which_a_value_is_damaged() {
    let (disk, db, keyspace) = open(7);
    db.wait_idle().unwrap();
    let names = disk.list(Path::new("/db")).unwrap();
    let segments: Vec<_> = names.iter().filter(|name| name.starts_with("values-")).collect();
    let flip_all = || {
        for (number, name) in segments.iter().enumerate() {
            let file = disk.open(&Path::new("/db").join(name), Access::Random).unwrap();
            let length = file.length_bytes().unwrap();
            let at = length * (number as u64 + 1) / (segments.len() as u64 + 1);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
    };
    assert!(segments.len() > 3, "{segments:?}");
    flip_all();
    assert!(keyspace.convert().unwrap_err().is_corruption());
    let _told = db.wait_idle();
    let lost = (0..KEYS).filter(|key| keyspace.get(key.to_be_bytes()).is_err()).count();
    assert_eq!((lost, keyspace.stats().unwrap().runs), (segments.len(), 0));
    flip_all();
    check(&keyspace, 1);
}
