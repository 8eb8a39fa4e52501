//! Where few keys get most updates, the deadest value segments are written anew instead of a sweep.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::{Database, Keyspace, KeyspaceOptions, Stats};

use crate::workload::{Random, Setup};

const KEYS: u32 = 1000;

fn setup() -> Setup {
    Setup {
        memtable_bytes: 32 << 10,
        log_segment_bytes: 32 << 10,
        stream_at: 1 << 20,
        keyspace: KeyspaceOptions::default()
            .separate_at(100)
            .partition_bytes(64 << 10)
            .min_conversion_bytes(128 << 10),
        ..Setup::default()
    }
}

/// A settled keyspace, all of whose values have the number 0.
fn open(disk: &SimDisk, seed: u64) -> (Database, Keyspace) {
    open_as(&setup(), disk, seed)
}

fn open_as(setup: &Setup, disk: &SimDisk, seed: u64) -> (Database, Keyspace) {
    let db = setup.open(disk, seed).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (0..KEYS).for_each(|key| put(&keyspace, key, 0));
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    (db, keyspace)
}

fn put(keyspace: &Keyspace, key: u32, number: u32) {
    let mut value = [number as u8; 1000];
    value[..4].copy_from_slice(&key.to_be_bytes());
    value[4..8].copy_from_slice(&number.to_be_bytes());
    keyspace.insert(key.to_be_bytes(), value).unwrap();
}

/// Keys to put: four of five are one in twenty.
fn hot_keys(seed: u64) -> impl Iterator<Item = u32> {
    let mut random = Random::new(seed);
    std::iter::from_fn(move || {
        let any = random.below(u64::from(KEYS)) as u32;
        Some(if random.below(5) > 0 { any / 20 * 20 } else { any })
    })
}

/// The number of each key's value once `puts` keys of [`hot_keys`] were put, numbered from 1.
fn after(seed: u64, puts: u32) -> Vec<u32> {
    let mut numbers = vec![0; KEYS as usize];
    (1..=puts).zip(hot_keys(seed)).for_each(|(number, key)| numbers[key as usize] = number);
    numbers
}

/// The number of each key's value.
fn numbers(entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Vec<u32> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let numbers = entries.enumerate().map(|(at, (key, value))| {
        let found = number(&value[4..]);
        assert_eq!((number(&key), number(&value), value.len()), (at as u32, at as u32, 1000));
        assert!(value[8..].iter().all(|byte| *byte == found as u8));
        found
    });
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(numbers.len(), KEYS as usize);
    numbers
}

fn of(keyspace: &Keyspace) -> Vec<u32> {
    numbers(keyspace.iter().map(|entry| entry.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())))
}

/// A sweep would write all of the store, for garbage that is newer than it.
#[test]
fn a_few_hot_keys_cost_few_sweeps() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, 1);
    let before = db.stats();
    let snapshot = db.snapshot();
    (1..=6 * KEYS).zip(hot_keys(1)).for_each(|(number, key)| put(&keyspace, key, number));
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert!(stats.rewrites > 3, "{stats}");
    // Sweeps alone write 1.34 bytes for each byte put here.
    let written = |stats: &Stats| stats.merged_bytes + stats.swept_bytes;
    let (put, written) = (stats.put_bytes - before.put_bytes, written(&stats) - written(&before));
    assert!(written < put, "{written} for {put}: {stats}");
    assert_eq!(of(&keyspace), after(1, 6 * KEYS));
    let old = snapshot.iter(&keyspace);
    assert_eq!(
        numbers(old.map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec()))),
        [0; KEYS as usize]
    );
    drop(snapshot);
    // What is asked for is done, whatever is cheaper.
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert!(db.stats().sweeps > before.sweeps && keyspace.stats().unwrap().runs == 0);
    assert_eq!(of(&keyspace), after(1, 6 * KEYS));
}

/// A quarter of the garbage that is allowed was written anew at once: that took space twice until it was done.
#[test]
fn a_rewriting_is_done_in_pieces_of_a_partition() {
    let disk = SimDisk::new(5);
    let mut setup = setup();
    setup.keyspace = setup.keyspace.partition_bytes(16 << 10);
    let (db, keyspace) = open_as(&setup, &disk, 5);
    let most = Arc::new(AtomicU64::new(0));
    let sink = most.clone();
    disk.observe(move |operation, disk| {
        if operation.kind == OperationKind::Sync
            && operation.path.to_string_lossy().contains("values-")
        {
            let file = disk.open(operation.path, Access::Random).unwrap();
            sink.fetch_max(file.length_bytes().unwrap(), Relaxed);
        }
    });
    (1..=6 * KEYS).zip(hot_keys(5)).for_each(|(number, key)| put(&keyspace, key, number));
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert!(stats.rewrites > 3, "{stats}");
    // What a memtable holds is more than a partition here; a quarter of what is allowed are 75 KiB.
    let most = most.load(Relaxed);
    assert!(most <= 32 << 10, "{most} bytes in one segment");
    assert_eq!(of(&keyspace), after(5, 6 * KEYS));
}

/// What is written anew takes space twice until it is done; a sweep gives back at each step.
#[test]
fn where_there_is_no_room_for_a_rewriting_it_is_swept() {
    let disk = SimDisk::new(4);
    let (db, keyspace) = open(&disk, 4);
    let before = db.stats();
    // There is room, but the disk says that there is none.
    disk.set_space_limit_bytes(Some(1 << 30));
    disk.set_unsaid_bytes(1 << 30);
    (1..=6 * KEYS).zip(hot_keys(4)).for_each(|(number, key)| put(&keyspace, key, number));
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert!(stats.sweeps > before.sweeps + 3, "{stats}");
    assert_eq!(stats.rewrites, 0, "{stats}");
    assert_eq!(of(&keyspace), after(4, 6 * KEYS));
}

/// Evenly spread updates leave their garbage in the settled run: nothing but a sweep gives that back.
#[test]
fn even_updates_are_swept() {
    let disk = SimDisk::new(2);
    let (db, keyspace) = open(&disk, 2);
    let before = db.stats();
    for round in 1..=6 {
        (0..KEYS).for_each(|key| put(&keyspace, key * 77 % KEYS, round));
    }
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert!(stats.sweeps > before.sweeps + 3, "{stats}");
    assert_eq!(stats.rewrites, 0, "{stats}");
    assert_eq!(of(&keyspace), [6; KEYS as usize]);
}

/// The process or the machine dies at any moment of a rewriting.
#[test]
fn a_crash_amid_a_rewriting_loses_nothing() {
    let disk = SimDisk::new(3);
    let (db, keyspace) = open(&disk, 3);
    let seen: Arc<Mutex<Vec<(SimDisk, CrashKind, u32)>>> = Arc::default();
    let acknowledged = Arc::new(AtomicU32::new(0));
    let (sink, so_far) = (seen.clone(), acknowledged.clone());
    disk.observe(move |operation, disk| {
        let is_values = operation.path.to_string_lossy().contains("values-");
        let kinds = [OperationKind::Sync, OperationKind::Remove, OperationKind::SyncDir];
        if kinds.contains(&operation.kind) && (is_values || operation.index % 31 == 0) {
            let kind = [CrashKind::Process, CrashKind::Machine][operation.index as usize % 2];
            let crashed = disk.crash_clone(kind, operation.index);
            sink.lock().unwrap().push((crashed, kind, so_far.load(Relaxed)));
        }
    });
    for (number, key) in (1..=3 * KEYS).zip(hot_keys(3)) {
        put(&keyspace, key, number);
        acknowledged.store(number, Relaxed);
    }
    db.wait_idle().unwrap();
    assert!(db.stats().rewrites > 1, "{}", db.stats());
    let crashed = std::mem::take(&mut *seen.lock().unwrap());
    assert!(crashed.len() > 40, "{}", crashed.len());
    for (at, (disk, kind, acknowledged)) in crashed.iter().enumerate() {
        let db = setup().open(disk, at as u64).unwrap();
        let keyspace = db.find("k").unwrap();
        // All up to some put, and nothing else: that on its way at most, and buffered puts outlive the process.
        let found = of(&keyspace);
        let last = *found.iter().max().unwrap();
        let is_process = matches!(kind, CrashKind::Process);
        assert!(last <= acknowledged + 1 && (last >= *acknowledged || !is_process), "{at}: {last}");
        assert_eq!(found, after(3, last), "crash {at}");
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(of(&keyspace), found, "crash {at}");
        let names = disk.list(Path::new("/db")).unwrap();
        let segments = names.iter().filter(|name| name.starts_with("values-")).count();
        assert_eq!(segments, 0, "orphans after crash {at}: {names:?}");
    }
}
