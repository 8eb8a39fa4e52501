//! Filters where metadata has little room: the budget holds, those of runs come first, and a filter that finds
//! no room is not read, and comes when there is some. Where there is room enough: [`super::filters`], [`super::resting`].

use std::sync::Arc;

use learnedkv::disk::faulty::{Fault, FaultCounts, FaultyDisk};
use learnedkv::disk::sim::SimDisk;
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Builder, Database, FilterKind, Keyspace, KeyspaceOptions, Stats, Store};

use crate::filters::key;
use crate::workload::Random;

const BUDGET_BYTES: u64 = 256 << 10;

fn builder(disk: impl Disk + 'static) -> Builder {
    Database::builder("/db")
        .disk(Arc::new(disk))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(16 << 10)
        .memory_budget_bytes(BUDGET_BYTES)
        .log_segment_bytes(64 << 10)
        .mapped_reads(false)
}

/// Two bytes a key in memory, where an entry takes twenty bytes.
fn options() -> KeyspaceOptions {
    let kind = Some(FilterKind::BlockedBloom { bits_per_key: 16 });
    KeyspaceOptions::default()
        .block_bytes(1024)
        .partition_bytes(32 << 10)
        .min_conversion_bytes(128 << 10)
        .level_base_bytes(128 << 10)
        .lsm_filter(kind)
        .settled_filter(kind)
}

/// Counts how often a filter's file is read.
fn filter_reads(disk: &FaultyDisk) -> Arc<FaultCounts> {
    disk.fail(Fault::never().of(&[OperationKind::Read]).on_paths_with("filter"))
}

/// Even numbers are keys.
fn fill(keyspace: &Keyspace, numbers: impl Iterator<Item = u32>) {
    numbers.for_each(|n| keyspace.insert(key(2 * n), n.to_be_bytes()).unwrap());
}

fn check(keyspace: &Keyspace, number: u32) {
    let found = keyspace.get(key(number)).unwrap();
    let expected = number.is_multiple_of(2).then(|| (number / 2).to_be_bytes());
    assert_eq!(found.as_deref(), expected.as_ref().map(|value| &value[..]), "{number}");
}

/// What the budget governs.
fn held_bytes(stats: &Stats) -> u64 {
    let sum =
        |of: fn(&learnedkv::KeyspaceStats) -> u64| stats.keyspaces.iter().map(of).sum::<u64>();
    let (metadata, tables) = (sum(|k| k.metadata_bytes), sum(|k| k.filters + k.resting_filters));
    // The half, and what each table keeps in any case.
    let most = BUDGET_BYTES / 2 + tables * 1024;
    assert!(metadata <= most, "{metadata} bytes of metadata of {most}: {stats}");
    metadata + sum(|k| k.memtable_bytes) + stats.cache_bytes
}

#[test]
fn filters_and_indexes_together_stay_within_the_budget() {
    const KEYS: u32 = 100_000;
    for store in [Store::Tiered, Store::Lsm] {
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
        let db = builder(disk.clone()).open().unwrap();
        let keyspace = db.keyspace("k", options().store(store)).unwrap();
        let (mut random, mut most) = (Random::new(1), 0);
        for number in 0..KEYS {
            fill(&keyspace, std::iter::once(number));
            if number % 500 == 0 {
                check(&keyspace, random.below(2 * u64::from(number) + 2) as u32);
                most = most.max(held_bytes(&db.stats()));
            }
        }
        keyspace.convert().unwrap();
        let before = db.stats().keyspaces[0].clone();
        assert!(before.filter_file_bytes > BUDGET_BYTES / 2, "could not fail: {before}");
        assert!(before.filters > 5 && before.filters_without_room > 5, "{store:?}: {before}");
        assert!(before.to_string().contains("for want of room"), "{before}");
        let reads = filter_reads(&disk);
        for _ in 0..20_000 {
            check(&keyspace, random.below(2 * u64::from(KEYS)) as u32);
        }
        most = most.max(held_bytes(&db.stats()));
        assert!(most <= BUDGET_BYTES * 11 / 10, "{store:?}: {most} bytes of {BUDGET_BYTES}");
        let came = db.stats().keyspaces[0].filters - before.filters;
        assert_eq!(reads.matched(), came, "{store:?}: one read for each that comes, and no other");
    }
}

/// A settled part and `runs` runs over all of it; closed.
fn filled(disk: &SimDisk, names: &[&str], keys: u32, runs: u32) {
    let builder = builder(disk.clone()).memory_budget_bytes(64 << 20).automatic_conversion(false);
    let db = builder.open().unwrap();
    for name in names {
        let keyspace = db.keyspace(name, options()).unwrap();
        fill(&keyspace, 0..keys);
        keyspace.convert().unwrap();
        for run in 0..runs {
            // Less than a memtable.
            fill(&keyspace, (run..keys).step_by(300));
            keyspace.flush().unwrap();
        }
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.runs, stats.filters_without_room), (u64::from(runs), 0));
    }
    db.close().unwrap();
}

#[test]
fn an_open_reads_no_filter_that_it_has_no_room_for() {
    const KEYS: u32 = 30_000;
    let disk = SimDisk::new(1);
    filled(&disk, &["k"], KEYS, 0);
    let open = |budget_bytes| {
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        let reads = filter_reads(&faulty);
        let db = builder(faulty).memory_budget_bytes(budget_bytes).open().unwrap();
        let stats = db.stats().keyspaces[0].clone();
        assert_eq!(reads.matched(), stats.filters, "{stats}");
        (stats.filters, stats.filters_without_room, stats.filter_bytes, db)
    };
    let (all, without, _, db) = open(64 << 20);
    assert!(all > 10 && without == 0);
    drop(db);
    let (some, without, bytes, db) = open(128 << 10);
    assert_eq!((some + without, some > 0), (all, true));
    assert!(without > 0 && bytes <= 56 << 10, "{some}, {without}, {bytes}");
    assert_eq!(db.stats().paged_tables, 0, "indexes come before filters");
    (0..2000).for_each(|n| check(&db.find("k").unwrap(), n * 29));
}

#[test]
fn filters_of_runs_come_first_and_also_where_indexes_have_no_room() {
    const KEYS: u32 = 30_000;
    let disk = SimDisk::new(1);
    filled(&disk, &["k"], KEYS, 4);
    let budget = builder(disk).metadata_percent(0).memory_budget_bytes(128 << 10);
    let db = budget.automatic_conversion(false).open().unwrap();
    let (keyspace, stats) = (db.find("k").unwrap(), db.stats().keyspaces[0].clone());
    assert!(stats.filters >= 4 && stats.filters_without_room > 10, "{stats}");
    assert!(stats.paged_tables == stats.filters + stats.resting_filters, "{stats}");
    let before = db.stats().filter_stops;
    // None of these is in a run.
    (0..500).for_each(|n| check(&keyspace, 2 * (n * 50 + 20)));
    let stops = db.stats().filter_stops - before;
    assert!((4 * 490..=4 * 500).contains(&stops), "{stops} stops");
}

#[test]
fn a_filter_without_room_is_not_read_and_comes_once_there_is_some() {
    const KEYS: u32 = 20_000;
    let disk = SimDisk::new(1);
    filled(&disk, &["first", "second"], KEYS, 0);
    let faulty = FaultyDisk::new(Arc::new(disk));
    // Each lookup of an absent key reads, and pays for a filter after two or three.
    let builder = builder(faulty.clone()).memory_budget_bytes(128 << 10).block_cache(false);
    let db = builder.open().unwrap();
    let second = db.find("second").unwrap();
    let stats = || second.stats().unwrap();
    let (lacking, tables) =
        (stats().filters_without_room, stats().filters + stats().resting_filters);
    assert!(lacking > 3, "{}", stats());
    let reads = filter_reads(&faulty);
    let miss_all = || (0..KEYS / 10).for_each(|n| check(&second, n * 20 + 1));
    (0..3).for_each(|_| miss_all());
    assert_eq!((reads.matched(), stats().filters_without_room), (0, lacking));
    db.drop_keyspace("first").unwrap();
    db.wait_idle().unwrap();
    assert_eq!(reads.matched(), 0, "nobody wants them yet");
    (0..3).for_each(|_| miss_all());
    assert_eq!((stats().filters, stats().filters_without_room), (tables, 0), "{}", stats());
    assert_eq!((reads.matched(), db.stats().attached_filters), (lacking, lacking));
}
