//! What deltas replace in their bases: garbage, which stands in the settled run.

use learnedkv::disk::sim::SimDisk;
use learnedkv::{Database, Keyspace, KeyspaceOptions};

use crate::workload::Setup;

const KEYS: u32 = 64_000;

/// Sweeps come when they are asked for; a partition takes all.
fn setup(over_provision_percent: u64) -> Setup {
    Setup {
        memtable_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        automatic_conversion: false,
        keyspace: KeyspaceOptions::default()
            .over_provision_percent(over_provision_percent)
            .min_conversion_bytes(0)
            .separate_at(1 << 20),
        ..Setup::default()
    }
}

/// A store of settled keys, and what they take.
fn settled(setup: &Setup) -> (Database, Keyspace, u64) {
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    put(&keyspace, 1, 1);
    keyspace.convert().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.space_bytes, stats.deltas), (stats.live_bytes, 0));
    (db, keyspace, stats.space_bytes)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Stores every so manieth key.
fn put(keyspace: &Keyspace, every: usize, fill: u8) {
    for number in (0..KEYS).step_by(every) {
        keyspace.insert(key(number), [fill; 30]).unwrap();
    }
}

fn is_about(found: u64, expected: u64) -> bool {
    (expected * 9 / 10..=expected * 11 / 10).contains(&found)
}

/// It counted as live: stores that were settled often took a quarter more than was allowed.
#[test]
fn what_deltas_replace_is_not_live() {
    let overwrite = |keyspace: &Keyspace| put(keyspace, 5, 2);
    let remove = |keyspace: &Keyspace| {
        (0..KEYS).step_by(5).for_each(|number| keyspace.remove(key(number)).unwrap());
    };
    let remove_range =
        |keyspace: &Keyspace| keyspace.remove_range(key(KEYS / 5 * 2)..key(KEYS / 5 * 3)).unwrap();
    let changes: [(&dyn Fn(&Keyspace), u64); 3] =
        [(&overwrite, 100), (&remove, 80), (&remove_range, 80)];
    for (at, (change, live_percent)) in changes.into_iter().enumerate() {
        let (_db, keyspace, live) = settled(&setup(100));
        change(&keyspace);
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.deltas, stats.runs), (1, 0), "{at}: {stats}");
        assert!(stats.space_bytes >= live, "{live} live: {stats}");
        assert!(is_about(stats.live_bytes, live * live_percent / 100), "{at}: {live} live: {stats}");
    }
}

/// Where deltas replace more than half of the garbage that is allowed a sweep writes their bases anew, though next to
/// nothing is fresh; where less, they stay.
#[test]
fn a_sweep_is_rid_of_deltas_that_replace_much() {
    for (over_provision, left) in [(30, 0), (50, 1)] {
        let (_db, keyspace, live) = settled(&setup(over_provision));
        put(&keyspace, 5, 2);
        keyspace.convert().unwrap();
        assert_eq!(keyspace.stats().unwrap().deltas, 1);
        keyspace.insert(key(7), [3; 30]).unwrap();
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        assert_eq!(stats.deltas, left, "{over_provision} %: {stats}");
        assert!(left == 1 || is_about(stats.space_bytes, live), "{live} live: {stats}");
        let expected = |number| match number {
            7 => 3,
            n if n % 5 == 0 => 2,
            _ => 1,
        };
        for number in 0..KEYS {
            let value = keyspace.get(key(number)).unwrap();
            assert!(value.unwrap() == [expected(number); 30], "{number}");
        }
    }
}

/// What deltas replace makes a sweep due like other garbage, which ends that: another is not due at once.
#[test]
fn what_deltas_replace_makes_a_sweep_due_once() {
    let mut setup = setup(15);
    let disk = SimDisk::new(1);
    let open = |setup: &Setup| {
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        (db, keyspace)
    };
    let (db, keyspace) = open(&setup);
    put(&keyspace, 1, 1);
    keyspace.convert().unwrap();
    let live = keyspace.stats().unwrap().space_bytes;
    put(&keyspace, 5, 2);
    keyspace.convert().unwrap();
    assert_eq!(keyspace.stats().unwrap().deltas, 1);
    drop(keyspace);
    db.close().unwrap();
    setup.automatic_conversion = true;
    let (db, keyspace) = open(&setup);
    keyspace.insert(key(7), [3; 30]).unwrap();
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((db.stats().sweeps, stats.deltas, stats.runs), (1, 0, 0), "{stats}");
    assert!(is_about(stats.space_bytes, live), "{live} live: {stats}");
    put(&keyspace, 1000, 4);
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().sweeps, 1, "{}", keyspace.stats().unwrap());
}
