//! What deltas replace in their bases: garbage, which stands in the settled run.

use std::path::Path;

use learnedkv::disk::sim::SimDisk;
use learnedkv::disk::{Access, Disk};
use learnedkv::{Database, Keyspace, KeyspaceOptions};

use crate::workload::Setup;

pub const KEYS: u32 = 64_000;

/// Sweeps come when they are asked for; a partition takes all.
pub fn setup(over_provision_percent: u64) -> Setup {
    Setup {
        stream_at: 1 << 20,
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
pub fn settled(setup: &Setup) -> (Database, Keyspace, u64) {
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    put(&keyspace, 1, 1);
    keyspace.convert().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.space_bytes, stats.deltas), (stats.live_bytes, 0));
    (db, keyspace, stats.space_bytes)
}

pub fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Stores every so manieth key.
pub fn put(keyspace: &Keyspace, every: usize, fill: u8) {
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
    type Change<'a> = &'a dyn Fn(&Keyspace);
    let changes: [(Change, u64); 3] = [(&overwrite, 100), (&remove, 80), (&remove_range, 80)];
    for (at, (change, live_percent)) in changes.into_iter().enumerate() {
        let (_db, keyspace, live) = settled(&setup(100));
        change(&keyspace);
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.deltas, stats.runs), (1, 0), "{at}: {stats}");
        assert!(stats.space_bytes >= live, "{live} live: {stats}");
        assert!(
            is_about(stats.live_bytes, live * live_percent / 100),
            "{at}: {live} live: {stats}"
        );
    }
}

/// Where deltas replace more than a quarter of the garbage that is allowed a sweep writes their bases anew, though
/// next to nothing is fresh; where less, they stay.
#[test]
fn a_sweep_is_rid_of_deltas_that_replace_much() {
    for (over_provision, left) in [(30, 0), (100, 1)] {
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
    let mut setup = setup(30);
    let disk = SimDisk::new(1);
    let open = |setup: &Setup| {
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        (db, keyspace)
    };
    let put = |keyspace: &Keyspace, parts: std::ops::Range<u32>, fill| {
        for number in (0..KEYS).filter(|number| parts.contains(&(number % 50))) {
            keyspace.insert(key(number), [fill; 30]).unwrap();
        }
    };
    let (db, keyspace) = open(&setup);
    put(&keyspace, 0..50, 1);
    keyspace.convert().unwrap();
    let live = keyspace.stats().unwrap().space_bytes;
    put(&keyspace, 0..10, 2);
    keyspace.convert().unwrap();
    assert_eq!(keyspace.stats().unwrap().deltas, 1);
    drop(keyspace);
    db.close().unwrap();
    setup.automatic_conversion = true;
    let (db, keyspace) = open(&setup);
    // A fifth, and another.
    put(&keyspace, 30..40, 3);
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((db.stats().sweeps, stats.deltas), (1, 0), "{stats}");
    assert!(is_about(stats.space_bytes, live), "{live} live: {stats}");
    put(&keyspace, 30..31, 4);
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().sweeps, 1, "{}", keyspace.stats().unwrap());
}

/// A fifth of the keys had nearly all bytes. They were removed, which is few bytes and a fifth of the entries: a delta,
/// and nothing was given back.
#[test]
fn removals_of_long_values_are_no_delta() {
    let setup = setup(30);
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    let keys = 20_000;
    for number in 0..keys {
        let value = vec![1; if number % 5 == 0 { 4000 } else { 40 }];
        keyspace.insert(key(number), value).unwrap();
    }
    keyspace.convert().unwrap();
    (0..keys).step_by(5).for_each(|number| keyspace.remove(key(number)).unwrap());
    keyspace.convert().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.deltas, stats.runs), (0, 0), "{stats}");
    assert!(stats.space_bytes < u64::from(keys) * 60, "{stats}");
}

/// Some partitions hold short values alone, of which an eighth is removed, others long ones too, which all are. What was
/// removed was to be charged by where the tombstones lie: mostly to the first, which need no rewriting.
#[test]
fn each_base_is_held_against_what_its_own_delta_replaces() {
    let mut setup = setup(30);
    // What a delta replaces is known of one key in 256: of the removals in a partition that are some six.
    setup.keyspace = setup.keyspace.partition_bytes(8 << 20);
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    // The first three quarters take 8 MiB, the rest 48: of these a fifth are long.
    let (keys, long_from) = (240_000, 180_000);
    let is_long = |number: u32| number >= long_from && number.is_multiple_of(5);
    for number in 0..keys {
        keyspace.insert(key(number), vec![1; if is_long(number) { 4000 } else { 30 }]).unwrap();
    }
    keyspace.convert().unwrap();
    let before = keyspace.stats().unwrap();
    assert!(before.partitions > 4, "{before}");
    let is_removed =
        |number: u32| is_long(number) || number < long_from && number.is_multiple_of(8);
    let removed = (0..keys).filter(|number| is_removed(*number));
    removed.for_each(|number| keyspace.remove(key(number)).unwrap());
    keyspace.convert().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!(stats.runs, 0, "{stats}");
    assert!(stats.deltas > 0, "where short ones were removed they fit: {stats}");
    assert!(stats.space_bytes < before.space_bytes / 4, "{} before: {stats}", before.space_bytes);
}

/// A fourth of the entries, nearly, were removed, and a little more of the bytes: they fit a delta, and what that left was
/// more than is allowed, of what stayed. The next sweep was due at once.
#[test]
fn deltas_are_held_against_what_stays() {
    let setup = setup(30);
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    let is_removed = |number: u32| number % 25 < 6;
    for number in 0..KEYS {
        keyspace.insert(key(number), vec![1; if is_removed(number) { 46 } else { 30 }]).unwrap();
    }
    keyspace.convert().unwrap();
    let removed = (0..KEYS).filter(|number| is_removed(*number));
    removed.for_each(|number| keyspace.remove(key(number)).unwrap());
    keyspace.convert().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((db.stats().sweeps, stats.deltas), (2, 0), "{stats}");
}

/// Dead bytes of values kept apart that a sweep leaves are garbage too: deltas are smaller by that.
#[test]
fn what_stays_dead_leaves_deltas_less() {
    for (dead_percent, deltas) in [(0, 1), (20, 0)] {
        let mut setup = setup(30);
        setup.keyspace = setup.keyspace.separate_at(1000).inline_limit(1000);
        let db = setup.open(&SimDisk::new(1), 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let long = |numbers: std::ops::Range<u32>, fill: u8| {
            numbers.for_each(|n| keyspace.insert(key(KEYS + n), [fill; 1100]).unwrap());
        };
        put(&keyspace, 1, 1);
        long(0..2000, 1);
        keyspace.convert().unwrap();
        // Of long values, in a base that is rewritten: no segment has so many that it is emptied.
        (0..20 * dead_percent).for_each(|n| long(n * 5 % 2000..n * 5 % 2000 + 1, 2));
        put(&keyspace, 3, 3);
        keyspace.convert().unwrap();
        assert_eq!(keyspace.stats().unwrap().deltas, 0);
        put(&keyspace, 5, 2);
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.deltas, stats.runs), (deltas, 0), "{dead_percent} % dead: {stats}");
    }
}

/// Where little garbage is allowed, deltas that fit the usual limit would make the next sweep due at once: half of what
/// the first one wrote was for nothing.
#[test]
fn deltas_are_small_where_little_garbage_is_allowed() {
    for (over_provision, deltas) in [(20, 0), (30, 1)] {
        let (_db, keyspace, _) = settled(&setup(over_provision));
        put(&keyspace, 5, 2);
        keyspace.convert().unwrap();
        assert_eq!(keyspace.stats().unwrap().deltas, deltas, "{over_provision} %");
    }
}

/// What was put back under a removed range counted as replaced twice: by the range, and by its keys.
#[test]
fn what_is_put_back_under_a_removed_range_counts_once() {
    let (_db, keyspace, live) = settled(&setup(100));
    let removed = KEYS / 5..KEYS / 25 * 8;
    keyspace.remove_range(key(removed.start)..key(removed.end)).unwrap();
    removed.for_each(|number| keyspace.insert(key(number), [2; 30]).unwrap());
    keyspace.convert().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.deltas, stats.runs), (1, 0), "{stats}");
    assert!(is_about(stats.live_bytes, live), "{live} live: {stats}");
}

/// Bases that are rewritten for their deltas alone, and cannot be read, are left as they are, reported once. Before
/// deltas counted nobody read them.
#[test]
fn bases_that_cannot_be_read_stay_outgrown_and_stop_no_sweep() {
    let mut setup = setup(30);
    setup.keyspace = setup.keyspace.partition_bytes(512 << 10);
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    let bases = || {
        let names = disk.list(Path::new("/db")).unwrap();
        names.into_iter().filter(|name| name.starts_with("table-")).collect::<Vec<_>>()
    };
    put(&keyspace, 1, 1);
    keyspace.convert().unwrap();
    let old = bases();
    put(&keyspace, 5, 2);
    keyspace.convert().unwrap();
    let deltas = keyspace.stats().unwrap().deltas;
    assert!(deltas >= 4);
    let kept = bases();
    for name in old.iter().filter(|name| kept.contains(name)) {
        let file = disk.open(&Path::new("/db").join(name), Access::Random).unwrap();
        let length = file.length_bytes().unwrap();
        // Not the small one at the end, which has no delta.
        if length > 100_000 {
            file.write_all_at(&[0xee; 64], length / 3).unwrap();
        }
    }
    keyspace.insert(key(7), [3; 30]).unwrap();
    let error = keyspace.convert().expect_err("the damage is reported");
    assert!(error.is_corruption());
    // One after the other.
    let reports = (0..10).take_while(|_| db.wait_idle().is_err()).count();
    assert!((1..5).contains(&reports), "{reports}");
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.deltas, stats.runs, stats.watermark), (deltas, 0, None), "it ended");
    keyspace.insert(key(KEYS - 1), [3; 30]).unwrap();
    keyspace.convert().unwrap();
    for (number, fill) in [(7, 3), (KEYS - 1, 3), (0, 2), (1, 1)] {
        assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), [fill; 30], "{number}");
    }
}
