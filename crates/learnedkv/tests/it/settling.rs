//! When sweeps begin, what they give back, and what they do about a base that cannot be read.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, Keyspace, KeyspaceOptions};

use crate::files::files;
use crate::workload::Setup;

fn setup(keyspace: KeyspaceOptions) -> Setup {
    Setup { memtable_bytes: 16 << 10, log_segment_bytes: 16 << 10, keyspace, ..Setup::default() }
}

fn open(disk: &SimDisk, setup: &Setup) -> (Database, Keyspace) {
    let db = setup.open(disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (db, keyspace)
}

fn key(number: u64) -> String {
    // Spread, so that each part of the key space has some.
    format!("key{:05}", number * 7919 % 100_000)
}

fn put(keyspace: &Keyspace, numbers: std::ops::Range<u64>, length: usize, fill: u8) {
    for number in numbers {
        keyspace.insert(key(number), vec![fill; length]).unwrap();
    }
}

/// Keys were removed one by one, and no sweep came: what they removed was not counted as worth one.
#[test]
fn removals_alone_begin_a_sweep() {
    let setup = setup(KeyspaceOptions::default().min_conversion_bytes(1 << 20));
    let (db, keyspace) = open(&SimDisk::new(1), &setup);
    put(&keyspace, 0..8000, 500, 1);
    keyspace.convert().unwrap();
    let before = keyspace.stats().unwrap().settled_bytes;
    let sweeps = db.stats().sweeps;
    (0..6000).for_each(|number| keyspace.remove(key(number)).unwrap());
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(db.stats().sweeps > sweeps);
    let after = keyspace.stats().unwrap();
    assert!(after.settled_bytes < before / 2, "{} of {before} bytes", after.settled_bytes);
}

/// It returned where a sweep was due and had not begun, or was about to.
#[test]
fn nothing_is_due_once_one_has_waited_for_it() {
    for seed in 0..5 {
        let executor = Arc::new(SeededExecutor::new(seed));
        let setup = setup(KeyspaceOptions::default().min_conversion_bytes(0));
        let db = Database::builder("/db")
            .disk(Arc::new(SimDisk::new(seed)))
            .executor(executor.clone())
            .memtable_bytes(4 << 20)
            .open()
            .unwrap();
        let keyspace = db.keyspace("k", setup.keyspace).unwrap();
        put(&keyspace, 0..8000, 100, 1);
        keyspace.convert().unwrap();
        put(&keyspace, 0..5000, 100, 2);
        keyspace.flush().unwrap();
        db.wait_idle().unwrap();
        let (sweeps, merged) = (db.stats().sweeps, db.stats().merged_bytes);
        executor.run_until_idle();
        let stats = db.stats();
        assert_eq!((stats.sweeps, stats.merged_bytes), (sweeps, merged), "{seed}");
    }
}

/// A sweep was due for dead bytes of which no sweep thought a segment worth emptying: those between 23 and 30 % of
/// it, all where `over_provision` is 100 % or more. Each flush began one, and none gave anything back.
#[test]
fn segments_whose_garbage_makes_a_sweep_due_are_emptied_by_one() {
    for (over_provision, removed) in [(30, 27), (100, 60)] {
        let options = KeyspaceOptions::default().min_conversion_bytes(0).inline_limit(200);
        let setup = setup(options.over_provision_percent(over_provision));
        let setup = Setup { stream_at: 1 << 20, memtable_bytes: 256 << 10, ..setup };
        let (db, keyspace) = open(&SimDisk::new(1), &setup);
        put(&keyspace, 0..200, 1000, 1);
        keyspace.convert().unwrap();
        for number in (0..200).filter(|number| number * 37 % 100 < removed) {
            keyspace.remove(key(number)).unwrap();
        }
        keyspace.convert().unwrap();
        let mut sweeps = Vec::new();
        for number in 0..6 {
            put(&keyspace, 200 + number..201 + number, 1000, 1);
            keyspace.flush().unwrap();
            db.wait_idle().unwrap();
            sweeps.push(db.stats().sweeps);
        }
        let stats = keyspace.stats().unwrap();
        let headers = 32 * stats.value_segments;
        let (used, live) = (stats.value_bytes - headers, stats.value_live_bytes);
        assert!(used <= live * (100 + over_provision) / 100, "{used} bytes for {live}");
        assert_eq!(sweeps[1], sweeps[5], "{sweeps:?}: sweeps that give nothing back");
    }
}

/// Of few long values a sample of one key in 256 found none, or took one for 256: garbage was not seen, or
/// writers paid for what nobody could give back.
#[test]
fn few_long_values_that_are_overwritten_or_removed_are_all_counted() {
    let options = KeyspaceOptions::default().min_conversion_bytes(0).partition_bytes(1 << 20);
    let setup = setup(options.lsm_ratio_percent(1000));
    let change: [fn(&Keyspace, u64); 2] = [
        |keyspace, number| keyspace.insert(key(number), vec![2; 1 << 20]).unwrap(),
        |keyspace, number| keyspace.remove(key(number)).unwrap(),
    ];
    for change in change {
        let (db, keyspace) = open(&SimDisk::new(1), &setup);
        put(&keyspace, 0..24, 1 << 20, 1);
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let sweeps = db.stats().sweeps;
        (0..5).for_each(|number| change(&keyspace, number));
        keyspace.flush().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(db.stats().sweeps, sweeps, "a fifth of what is settled is garbage");
        (5..12).for_each(|number| change(&keyspace, number));
        keyspace.flush().unwrap();
        db.wait_idle().unwrap();
        assert!(db.stats().sweeps > sweeps, "half of it is garbage");
    }
}

/// New keys alone: the share of them that the option names begins a sweep, and less does not.
#[test]
fn a_sweep_begins_when_there_is_as_much_fresh_data_as_was_chosen() {
    for percent in [20, 50, 200] {
        let options = KeyspaceOptions::default().min_conversion_bytes(0);
        let setup = setup(options.lsm_ratio_percent(percent));
        let (db, keyspace) = open(&SimDisk::new(1), &setup);
        put(&keyspace, 0..8000, 100, 1);
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let sweeps = db.stats().sweeps;
        let [less, more] = [80, 120].map(|share| 8000 + 80 * percent * share / 100);
        put(&keyspace, 8000..less, 100, 2);
        keyspace.flush().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(db.stats().sweeps, sweeps, "four fifths of {percent} %");
        put(&keyspace, less..more, 100, 2);
        keyspace.flush().unwrap();
        db.wait_idle().unwrap();
        assert!(db.stats().sweeps > sweeps, "six fifths of {percent} %");
    }
}

/// Settled and shadowed: a tenth of the garbage allowed begins no sweep, twice as much does.
#[test]
fn a_sweep_begins_when_there_is_garbage_enough_and_new_keys_are_none() {
    let options = KeyspaceOptions::default().min_conversion_bytes(0).over_provision_percent(30);
    let setup = setup(options.lsm_ratio_percent(1000));
    let (db, keyspace) = open(&SimDisk::new(1), &setup);
    put(&keyspace, 0..8000, 100, 1);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let sweeps = db.stats().sweeps;
    put(&keyspace, 8000..14_000, 100, 2);
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().sweeps, sweeps, "new keys overwrite nothing");
    put(&keyspace, 0..400, 100, 3);
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().sweeps, sweeps, "5 % of the settled keys are overwritten");
    put(&keyspace, 0..6000, 100, 4);
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(db.stats().sweeps > sweeps, "75 % of the settled keys are overwritten");
    for number in 0..14_000 {
        let fill = if number < 6000 { 4 } else { 1 + u8::from(number >= 8000) };
        assert!(keyspace.get(key(number)).unwrap().unwrap() == vec![fill; 100], "{number}");
    }
}

/// Values too long for blocks stay in their segments; dead ones are given back all the same.
#[test]
fn a_sweep_empties_segments_that_are_mostly_dead() {
    let options = KeyspaceOptions::default().min_conversion_bytes(1 << 40).separate_at(100);
    let setup = setup(options.inline_limit(200).over_provision_percent(30));
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &setup);
    for round in 0..6 {
        // Each time two thirds of them, others each time.
        for number in (0..300).filter(|number| (number + round) % 3 > 0) {
            keyspace.insert(key(number), vec![round as u8; 1000]).unwrap();
        }
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
    }
    let stats = db.stats().keyspaces.remove(0);
    assert!(stats.value_live_bytes >= 300 * 1008, "{stats:?}");
    let most = stats.value_live_bytes * 2;
    assert!(stats.value_bytes <= most, "{} live, {}", stats.value_live_bytes, stats.value_bytes);
    let on_disk = on_disk(&disk, "values-");
    assert!(on_disk <= most + 64 * 100, "{on_disk} on the disk, {stats:?}");
    for number in 0..300 {
        let round = (0..6).rev().find(|round| (number + round) % 3 > 0).unwrap();
        let value = keyspace.get(key(number)).unwrap().unwrap();
        assert!(value == vec![round as u8; 1000], "{number}");
    }
}

/// The length of the files of a kind.
fn on_disk(disk: &SimDisk, kind: &str) -> u64 {
    let length = |path: &PathBuf| disk.open(path, Access::Random).unwrap().length_bytes().unwrap();
    files(disk, kind).iter().map(length).sum()
}

/// In stretches of 1000 numbers the first 900, and beside these gaps of a hundred.
fn with_gaps(numbers: u64) -> impl Iterator<Item = u64> {
    (0..numbers).filter(|number| number % 1000 < 900)
}

fn ordered(number: u64) -> String {
    format!("key{number:05}")
}

fn ingest_gaps(keyspace: &Keyspace, numbers: u64, length: usize) {
    for gap in (900..numbers).step_by(1000) {
        let entries = (gap..gap + 100).map(|number| (ordered(number), vec![1; length]));
        assert!(keyspace.ingest(entries).unwrap().settled, "{gap}");
    }
}

/// Twenty ingests into the gaps of one base made 21 partitions of it, and it counted 21 times: no sweep
/// was due before six times as much was garbage as there was data.
#[test]
fn a_base_that_ingests_cut_counts_once_and_its_garbage_begins_a_sweep() {
    let options = KeyspaceOptions::default().min_conversion_bytes(0).over_provision_percent(20);
    let setup = setup(options.lsm_ratio_percent(1000).partition_bytes(16 << 20));
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &setup);
    let numbers = 20_000;
    keyspace.ingest(with_gaps(numbers).map(|n| (ordered(n), vec![1; 100]))).unwrap();
    ingest_gaps(&keyspace, numbers, 100);
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.partitions, files(&disk, "table-").len()), (40, 21));
    assert_eq!((stats.settled_bytes, stats.settled_entries), (on_disk(&disk, "table-"), numbers));
    assert!(stats.block_bytes < stats.settled_bytes, "{stats:?}");
    let is_overwritten = |number: u64| number % 5 < 2;
    for number in (0..numbers).filter(|n| is_overwritten(*n)) {
        keyspace.insert(ordered(number), vec![2; 100]).unwrap();
    }
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(db.stats().sweeps > 0, "40 % of the settled keys are overwritten");
    for number in 0..numbers {
        let fill = 1 + u8::from(is_overwritten(number));
        assert!(keyspace.get(ordered(number)).unwrap().unwrap() == vec![fill; 100], "{number}");
    }
}

/// What a base points at counted once for each partition that ingests cut of it: its segments never
/// looked dead, and no sweep emptied them.
#[test]
fn segments_that_a_cut_base_points_into_are_emptied_once_they_are_mostly_dead() {
    let options = KeyspaceOptions::default().min_conversion_bytes(1 << 40).separate_at(100);
    let options = options.inline_limit(200).partition_bytes(16 << 20);
    let setup = setup(options.over_provision_percent(30));
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &setup);
    let numbers = 4000;
    keyspace.ingest(with_gaps(numbers).map(|n| (ordered(n), vec![1; 300]))).unwrap();
    // A fifth is dead then, which may lie.
    for number in with_gaps(numbers).filter(|number| number % 5 == 0) {
        keyspace.insert(ordered(number), vec![2; 300]).unwrap();
    }
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let before = keyspace.stats().unwrap();
    assert!(before.value_bytes > before.value_live_bytes * 115 / 100, "{before:?}");
    ingest_gaps(&keyspace, numbers, 300);
    let cut = keyspace.stats().unwrap();
    assert_eq!(cut.value_live_bytes, before.value_live_bytes + 400 * 308, "{cut:?}");
    // And now two.
    for number in with_gaps(numbers).filter(|number| number % 5 == 1) {
        keyspace.insert(ordered(number), vec![2; 300]).unwrap();
    }
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let after = keyspace.stats().unwrap();
    let most = after.value_live_bytes + after.value_live_bytes / 20;
    assert!(after.value_bytes <= most, "two dead fifths of {} are still there", after.value_bytes);
    assert!(on_disk(&disk, "values-") <= most);
    for number in 0..numbers {
        let fill = 1 + u8::from(number % 5 < 2 && number % 1000 < 900);
        assert!(keyspace.get(ordered(number)).unwrap().unwrap() == vec![fill; 300], "{number}");
    }
}

#[test]
fn partitions_that_became_small_are_joined() {
    let options = KeyspaceOptions::default().partition_bytes(32 << 10).block_bytes(512);
    let setup = setup(options);
    let (db, keyspace) = open(&SimDisk::new(1), &setup);
    put(&keyspace, 0..6000, 100, 1);
    keyspace.convert().unwrap();
    let before = db.stats().keyspaces[0].partitions;
    assert!(before > 20, "{before}");
    (0..6000).filter(|n| n % 40 > 0).for_each(|n| keyspace.remove(key(n)).unwrap());
    keyspace.convert().unwrap();
    let after = db.stats().keyspaces[0].partitions;
    assert!(after <= 3, "{before} partitions, then {after}");
    let left: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    let mut expected: Vec<_> = (0..6000).step_by(40).map(|n| key(n).into_bytes()).collect();
    expected.sort();
    assert_eq!(left, expected);
}

/// What is newer than a base that cannot be read becomes its delta; the sweep ends, and nothing is lost
/// that could be read.
#[test]
fn a_sweep_goes_round_a_base_that_cannot_be_read() {
    let setup = setup(KeyspaceOptions::default().partition_bytes(16 << 10).block_bytes(512));
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &setup);
    put(&keyspace, 0..1000, 100, 1);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    drop((db, keyspace));
    let damaged = files(&disk, "table-").remove(2);
    let file = disk.open(&damaged, Access::Random).unwrap();
    file.write_all_at(&[0x55; 8], 700).unwrap();
    let (db, keyspace) = open(&disk, &setup);
    put(&keyspace, 0..900, 100, 2);
    let error = keyspace.convert().expect_err("the damage is reported");
    assert_eq!((error.is_corruption(), error.path()), (true, Some(damaged.as_path())));
    db.wait_idle().unwrap();
    let stats = db.stats().keyspaces.remove(0);
    assert_eq!((stats.runs, stats.watermark), (0, None), "the sweep ended");
    assert!(stats.deltas >= 1);
    for number in 0..900 {
        assert!(keyspace.get(key(number)).unwrap().unwrap() == vec![2; 100], "{number}");
    }
    let unread = (900..1000).filter(|number| keyspace.get(key(*number)).is_err()).count();
    assert!(unread < 20, "one block is damaged: {unread} keys");
    drop((db, keyspace));
    let (_db, keyspace) = open(&disk, &setup);
    assert!(keyspace.get(key(0)).unwrap().unwrap() == vec![2; 100]);
}

/// A sweep that cannot go on, since a value that it is to move is damaged, allowed no merges beside it: each flush
/// left one run more.
#[test]
fn runs_do_not_pile_up_behind_a_sweep_that_is_stuck() {
    let options = KeyspaceOptions::default().separate_at(100).partition_bytes(16 << 10);
    let mut setup = setup(options);
    setup.stream_at = 1 << 20;
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &setup);
    put(&keyspace, 0..300, 200, 1);
    keyspace.flush().unwrap();
    for path in files(&disk, "values-") {
        let file = disk.open(&path, Access::Random).unwrap();
        file.write_all_at(&[0x55; 8], file.length_bytes().unwrap() / 2).unwrap();
    }
    assert!(keyspace.convert().expect_err("values are damaged").is_corruption());
    for round in 0..60 {
        put(&keyspace, 1000..1010, 50, round);
        keyspace.flush().unwrap();
    }
    let _reported = db.wait_idle();
    let runs = keyspace.stats().unwrap().runs;
    assert!(runs <= 30, "{runs} runs");
    assert!(keyspace.get(key(1000)).unwrap().unwrap() == vec![59; 50]);
}

/// Of the runs being settled only what lies above the watermark counts: a walk down from below it read a block of
/// each of them all the same.
#[test]
fn a_walk_down_from_below_the_watermark_reads_nothing_of_what_is_frozen() {
    let options = KeyspaceOptions::default().partition_bytes(4 << 10).block_bytes(512);
    let mut setup = setup(options.lsm_filter(None));
    setup.automatic_conversion = false;
    let disk = SimDisk::new(1);
    let (_db, keyspace) = open(&disk, &setup);
    let ordered = |number: u32| number.to_be_bytes();
    (0..1000).for_each(|n| keyspace.insert(ordered(n), [1; 40]).unwrap());
    keyspace.convert().unwrap();
    for round in 2..6 {
        (0..1000).step_by(7).for_each(|n| keyspace.insert(ordered(n), [round; 40]).unwrap());
        keyspace.flush().unwrap();
    }
    // The disk as it was all along the sweep; opened for reading only, the sweep stands still.
    let seen: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
    let sink = seen.clone();
    disk.observe(move |operation, disk| {
        if operation.index.is_multiple_of(9) {
            sink.lock().unwrap().push(disk.crash_clone(CrashKind::Process, operation.index));
        }
    });
    keyspace.convert().unwrap();
    let mut looked = 0;
    for disk in seen.lock().unwrap().iter() {
        let db = Database::builder("/db").disk(Arc::new(disk.clone())).read_only(true);
        let db = db.executor(Arc::new(SeededExecutor::new(1)));
        let db = db.block_cache(false).mapped_reads(false).open().unwrap();
        let keyspace = db.find("k").unwrap();
        let stats = keyspace.stats().unwrap();
        let Some(watermark) = stats.watermark.filter(|w| w.len() == 4 && stats.runs > 2) else {
            continue;
        };
        let before = db.stats().read_requests;
        let (last, _) =
            keyspace.range::<&[u8]>(..watermark.as_slice()).next_back().unwrap().unwrap();
        assert!(*last < *watermark);
        // The base's block, the delta's, and a neighbour of each.
        let requests = db.stats().read_requests - before;
        assert!(requests <= 4, "{requests} requests, {} runs", stats.runs);
        looked += 1;
    }
    assert!(looked > 5, "{looked} disks amid the sweep");
}

/// One keyspace's long sweep does not keep another waiting for its end.
#[test]
fn keyspaces_are_swept_side_by_side() {
    let options = KeyspaceOptions::default().partition_bytes(4 << 10).block_bytes(512);
    let mut setup = setup(options);
    setup.automatic_conversion = false;
    let (db, large) = open(&SimDisk::new(1), &setup);
    let small = db.keyspace("small", setup.keyspace.clone()).unwrap();
    put(&large, 0..4000, 100, 1);
    put(&small, 0..10, 100, 1);
    large.flush().unwrap();
    small.flush().unwrap();
    let partitions = || large.stats().unwrap().partitions;
    std::thread::scope(|scope| {
        scope.spawn(|| large.convert().unwrap());
        while large.stats().unwrap().watermark.is_none() {
            std::thread::yield_now();
        }
        small.convert().unwrap();
        assert!(large.stats().unwrap().watermark.is_some(), "{} partitions", partitions());
    });
}

/// What was updated counted twice, as what it was and what it became: partitions were cut in two by sweeps that made them no
/// larger, and their halves again.
#[test]
fn updates_do_not_cut_partitions() {
    const KEYS: u64 = 50_000;
    let options = KeyspaceOptions::default().delta_limit_percent(0).partition_bytes(1 << 20);
    let setup = Setup { automatic_conversion: false, ..setup(options) };
    let (_db, keyspace) = open(&SimDisk::new(1), &setup);
    put(&keyspace, 0..KEYS, 20, 0);
    keyspace.convert().unwrap();
    let partitions = || keyspace.stats().unwrap().partitions;
    let before = partitions();
    assert!((2..6).contains(&before), "{before} partitions");
    for round in 1..4u64 {
        for number in (0..KEYS).filter(|number| (number + round) % 2 == 0) {
            keyspace.insert(key(number), [round as u8; 20]).unwrap();
        }
        keyspace.convert().unwrap();
        assert_eq!(partitions(), before, "round {round}");
    }
    // What grows is cut.
    put(&keyspace, KEYS..2 * KEYS, 20, 4);
    for number in 0..KEYS {
        keyspace.insert(key(number), [5; 60]).unwrap();
    }
    keyspace.convert().unwrap();
    assert!(partitions() >= before * 2, "{} partitions, {before} before", partitions());
    assert_eq!(keyspace.iter().count() as u64, 2 * KEYS);
}
