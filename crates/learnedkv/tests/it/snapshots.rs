//! Snapshots that are held for long: the memory they keep is bounded, and what they read does not change.

use std::sync::Arc;

use learnedkv::disk::Disk;
use learnedkv::disk::OperationKind;
use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, DatabaseHealth, Keyspace, Snapshot, Store};

use crate::keys::Keys;
use crate::workload::{Model, Random, Setup, contents, draw, key};

/// Memtables that only snapshots keep may take an eighth of it: two of them.
const BUDGET_BYTES: u64 = 64 << 10;

fn open(
    disk: &(impl Disk + Clone + 'static),
    setup: &Setup,
    seed: u64,
) -> (Database, Arc<SeededExecutor>) {
    let executor = Arc::new(SeededExecutor::new(seed));
    let db = Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor.clone())
        .memtable_bytes(setup.memtable_bytes)
        .memory_budget_bytes(BUDGET_BYTES)
        .log_segment_bytes(setup.log_segment_bytes)
        .stream_at(setup.stream_at)
        .open()
        .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    (db, executor)
}

/// A snapshot, the keyspaces of its moment, and what it ought to show.
struct Held {
    snapshot: Snapshot,
    keyspaces: Vec<Keyspace>,
    expected: Model,
    keys: Keys,
}

impl Held {
    fn take(db: &Database, model: &Model, keys: Keys) -> Held {
        let keyspaces = model.keys().map(|name| db.find(name).unwrap()).collect();
        Held { snapshot: db.snapshot(), keyspaces, expected: model.clone(), keys }
    }
}

fn owned(entry: learnedkv::Result<(learnedkv::Slice, learnedkv::Slice)>) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = entry.unwrap();
    (key.to_vec(), value.to_vec())
}

/// Reads all that a snapshot shows, in every way.
fn check(held: &Held, at: &str) {
    let Held { snapshot, keyspaces, expected, keys: shape } = held;
    for (keyspace, content) in keyspaces.iter().zip(expected.values()) {
        let all: Vec<_> = content.clone().into_iter().collect();
        assert_eq!(snapshot.iter(keyspace).map(owned).collect::<Vec<_>>(), all, "{at}");
        let mut down: Vec<_> = snapshot.iter(keyspace).rev().map(owned).collect();
        down.reverse();
        assert_eq!(down, all, "{at}, downwards");
        let keys: Vec<_> = (0..60).map(|number| shape.key(number)).collect();
        let many = snapshot.multi_get(keyspace, &keys).unwrap();
        for (key, found) in keys.iter().zip(many) {
            assert_eq!(found.as_deref(), content.get(key).map(Vec::as_slice), "{at}, {key:?}");
            let one = snapshot.get(keyspace, key).unwrap();
            assert_eq!(one.as_deref(), found.as_deref(), "{at}, {key:?}");
        }
    }
}

fn table_files(disk: &SimDisk) -> usize {
    let names = disk.list("/db".as_ref()).unwrap();
    names.iter().filter(|name| name.starts_with("table")).count()
}

/// A workload under which many snapshots stay open, some of the same moment; and what each ought to show.
fn run(db: &Database, setup: &Setup, seed: u64) -> (Model, Vec<Held>) {
    let mut random = Random::new(seed);
    let (mut model, mut held) = (Model::new(), Vec::<Held>::new());
    for (number, op) in draw(&mut random, setup.keys, 900, 300).into_iter().enumerate() {
        if !op.fits(&model) {
            continue;
        }
        op.apply(db, setup).unwrap_or_else(|e| panic!("seed {seed}, {number} {op:?}: {e}"));
        op.change(&mut model);
        if number % 25 == 0 {
            let again = usize::from(number % 50 == 0) + 1;
            held.extend((0..again).map(|_| Held::take(db, &model, setup.keys)));
        }
        if number % 40 == 0 && !held.is_empty() {
            let one = &held[random.below(held.len() as u64) as usize];
            check(one, &format!("seed {seed}, {number}"));
        }
    }
    (model, held)
}

#[test]
fn many_snapshots_take_little_memory_and_show_what_they_showed() {
    for seed in 0..8 {
        let store = if seed % 2 == 0 { Store::Tiered } else { Store::Lsm };
        let setup = Setup::of(store, seed);
        let disk = SimDisk::new(seed);
        let (db, executor) = open(&disk, &setup, seed);
        let (model, held) = run(&db, &setup, seed);
        model.keys().for_each(|name| db.find(name).unwrap().flush().unwrap());
        executor.run_until_idle();
        let stats = db.stats();
        assert!(stats.spills > 5, "seed {seed}: {} spills", stats.spills);
        assert!(stats.pinned_memory_bytes <= BUDGET_BYTES / 8, "seed {seed}: {stats}");
        assert!(stats.pinned_disk_bytes > 0, "seed {seed}");
        for (number, held) in held.iter().enumerate() {
            check(held, &format!("seed {seed}, snapshot {number}"));
        }
        assert!(contents(&db, setup.keys).unwrap() == model, "seed {seed}");
        // What the snapshots kept goes with them.
        let before = table_files(&disk);
        drop(held);
        executor.run_until_idle();
        let stats = db.stats();
        assert_eq!((stats.pinned_memory_bytes, stats.pinned_disk_bytes), (0, 0), "seed {seed}");
        assert!(table_files(&disk) < before, "seed {seed}");
    }
}

/// So many snapshots in each memtable that spilling writes many times what it gives back: half of the
/// budget is the end of what they may keep all the same.
#[test]
fn snapshots_taken_often_keep_half_of_the_budget_at_most() {
    let setup = Setup { automatic_conversion: false, ..Setup::default() };
    let (db, executor) = open(&SimDisk::new(1), &setup, 1);
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    let mut held = Vec::new();
    for number in 0..1500u64 {
        keyspace.insert(key(number % 50), number.to_be_bytes()).unwrap();
        if number % 3 == 0 {
            held.push((number, db.snapshot()));
        }
    }
    keyspace.flush().unwrap();
    executor.run_until_idle();
    let stats = db.stats();
    assert!(stats.spills > 0 && stats.pinned_memory_bytes <= BUDGET_BYTES / 2, "{stats}");
    assert!(stats.pinned_memory_bytes > BUDGET_BYTES / 8, "not worth more: {stats}");
    for (number, snapshot) in held {
        let found = snapshot.get(&keyspace, key(number % 50)).unwrap();
        assert_eq!(found.as_deref(), Some(&number.to_be_bytes()[..]), "{number}");
    }
}

/// A snapshot's files are nobody's after a crash.
#[test]
fn files_of_snapshots_do_not_outlive_the_process() {
    let setup = Setup::default();
    let disk = SimDisk::new(3);
    let (db, _) = open(&disk, &setup, 3);
    let (model, held) = run(&db, &setup, 3);
    assert!(db.stats().spills > 0);
    let kept = db.stats().pinned_disk_bytes;
    let crashed = disk.crash_clone(CrashKind::Process, 1);
    let before = table_files(&crashed);
    drop((held, db));
    let (db, _) = open(&crashed, &setup, 4);
    assert!(contents(&db, setup.keys).unwrap() == model);
    let removed = db.open_report().removed_files.len();
    assert!(kept > 0 && removed > 0, "{kept} bytes kept, {removed} files removed");
    assert!(table_files(&crashed) < before);
}

/// Values that were put beside their keys under a higher `stream_at` are in the snapshot's table, too.
#[test]
fn a_spill_under_a_lower_stream_at_keeps_values_beside_their_keys() {
    let setup = Setup { automatic_conversion: false, ..Setup::default() };
    let disk = SimDisk::new(1);
    let larger = Setup { stream_at: 4000, ..setup.clone() };
    let (db, _) = open(&disk, &larger, 1);
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    keyspace.insert("long", [7; 3000]).unwrap();
    drop((keyspace, db));
    let (db, executor) = open(&disk, &setup, 2);
    let keyspace = db.find("k").unwrap();
    let snapshot = db.snapshot();
    for round in 0..30 {
        for number in 0..40 {
            keyspace.insert(key(number), [round; 30]).unwrap();
        }
        keyspace.flush().unwrap();
        let _hold = db.snapshot();
    }
    let held: Vec<_> = (0..20u8)
        .map(|round| {
            (0..40).for_each(|number| keyspace.insert(key(number), [round; 30]).unwrap());
            db.snapshot()
        })
        .collect();
    keyspace.flush().unwrap();
    executor.run_until_idle();
    assert!(db.stats().spills > 0, "{}", db.stats());
    let found = snapshot.get(&keyspace, "long").unwrap();
    assert_eq!(found.as_deref(), Some(&[7; 3000][..]));
    assert_eq!(snapshot.iter(&keyspace).count(), 1);
    drop((held, snapshot));
    executor.run_until_idle();
    assert_eq!(db.stats().pinned_disk_bytes, 0);
}

/// What cannot be written stays in memory: nothing is lost, and it is tried again.
#[test]
fn a_table_that_cannot_be_made_for_a_snapshot_or_a_flush_loses_nothing() {
    let setup = Setup { automatic_conversion: false, ..Setup::default() };
    for failing in 0..20 {
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(failing)));
        let (db, executor) = open(&disk, &setup, failing);
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let fault = Fault::at(failing).of(&[OperationKind::Create]).on_paths_with("table");
        let counts = disk.fail(fault);
        let mut held = Vec::new();
        for round in 0..30 {
            for number in 0..40 {
                keyspace.insert(key(number), [round; 20]).unwrap();
            }
            held.push(db.snapshot());
            let _ = keyspace.flush();
        }
        assert_eq!(counts.fired(), 1, "{failing}");
        disk.clear_faults();
        db.resume().unwrap();
        keyspace.insert("after", "v").unwrap();
        keyspace.flush().unwrap();
        executor.run_until_idle();
        for (round, snapshot) in held.iter().enumerate() {
            for number in 0..40 {
                let found = snapshot.get(&keyspace, key(number)).unwrap();
                assert_eq!(found.as_deref(), Some(&[round as u8; 20][..]), "{failing}, {number}");
            }
        }
        let stats = db.stats();
        assert!(stats.spills > 0 && stats.pinned_memory_bytes <= BUDGET_BYTES / 8, "{stats}");
        assert!(matches!(db.health(), DatabaseHealth::Well), "{:?}", db.health());
    }
}
