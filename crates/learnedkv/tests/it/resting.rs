//! Filters that rest in their files: who writes them, when misses bring them into memory, what becomes of them
//! when their table, the disk or the process goes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{
    Builder, Database, ErrorKind, FilterKind, Keyspace, KeyspaceOptions, KeyspaceStats, Store,
};

use crate::files::{files, flip};
use crate::filters::{KEYS, cost, key, names, read_all, read_together, setup};
use crate::workload::Setup;

fn resting() -> Setup {
    setup(KeyspaceOptions::default())
}

fn stats(db: &Database) -> KeyspaceStats {
    db.stats().keyspaces[0].clone()
}

/// Tables whose filter is in memory, and those whose filter rests.
fn filters(db: &Database) -> (u64, u64) {
    let stats = stats(db);
    (stats.filters, stats.resting_filters)
}

/// A database of one settled part, closed; all that is read is read from the disk.
fn settled(setup: &Setup, keys: u32) -> SimDisk {
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.ingest((0..keys).map(|n| (key(n * 2), [7; 20]))).unwrap();
    drop((db, keyspace));
    disk
}

fn open(setup: &Setup, disk: &SimDisk, seed: u64) -> (Database, Keyspace) {
    let db = setup.open(disk, seed).unwrap();
    let keyspace = db.find("a").unwrap();
    (db, keyspace)
}

fn builder(disk: &SimDisk) -> Builder {
    let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
    builder.executor(Arc::new(SeededExecutor::new(1))).block_cache(false)
}

fn filter_files(disk: &SimDisk) -> Vec<PathBuf> {
    let names = disk.list("/db".as_ref()).unwrap();
    let filters = names.iter().filter(|name| name.starts_with("filter-"));
    filters.map(|name| PathBuf::from("/db").join(name)).collect()
}

#[test]
fn a_resting_filter_comes_into_memory_when_misses_have_paid_for_it() {
    let (setup, keys) = (resting(), u64::from(KEYS));
    let disk = settled(&setup, KEYS);
    let (db, keyspace) = open(&setup, &disk, 2);
    let tables = stats(&db).partitions;
    assert_eq!((filters(&db), stats(&db).filter_bytes), ((0, tables), 0));
    // One miss pays for nothing, and what is found is none.
    assert!(keyspace.get(key(1)).unwrap().is_none());
    read_all(&keyspace, 0);
    assert_eq!((filters(&db), db.stats().attached_filters), ((0, tables), 0));
    // No background work is needed.
    let mut misses = 1;
    while filters(&db).1 > 0 {
        assert!(keyspace.get(key(2 * (misses * 37 % KEYS) + 1)).unwrap().is_none());
        misses += 1;
    }
    assert!((2..10).contains(&misses), "{misses} misses of the disk for a filter of 5 KiB");
    assert_eq!((filters(&db), db.stats().attached_filters), ((tables, 0), tables));
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests == wrong && wrong < keys / 100, "{requests}, {wrong}");
    assert!(stops > keys * 98 / 100, "{stops}");
    read_all(&keyspace, 0);
    assert!(stats(&db).filter_bytes > keys && stats(&db).metadata_bytes > stats(&db).filter_bytes);
    // It rests again when opened again: memory is paid for by who uses it.
    drop((db, keyspace));
    let (db, _keyspace) = open(&setup, &disk, 3);
    assert_eq!((filters(&db), db.stats().dropped_filters), ((0, tables), 0));
}

/// A get of what is not in a block that cannot be read failed until others had paid for the filter.
#[test]
fn what_cannot_be_read_is_asked_for_in_the_filter_that_rests() {
    let setup = resting();
    let disk = settled(&setup, KEYS);
    let table = files(&disk, "table-").remove(0);
    flip(&disk, &table, 100, 16);
    for together in [false, true] {
        let (db, keyspace) = open(&setup, &disk, 2);
        let get = |key| match together {
            true => keyspace.multi_get([key]).map(|mut values| values.remove(0)),
            false => keyspace.get(key),
        };
        let lost = get(key(0)).unwrap_err();
        assert!(lost.is_corruption(), "{lost}");
        assert_eq!(filters(&db).0, 1, "it was asked whether it is there");
        drop((db, keyspace));
        let (db, keyspace) = open(&setup, &disk, 2);
        assert_eq!((filters(&db).0, keyspace.get(key(1)).unwrap()), (0, None));
        let found = keyspace.multi_get([key(1), key(2 * KEYS - 2), key(3)]).unwrap();
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(filters(&db).0, 1);
        assert!(keyspace.get(key(0)).unwrap_err().is_corruption());
    }
    // Where memory has no room for it it is read for each answer alone.
    let db = builder(&disk).metadata_percent(0).open().unwrap();
    let keyspace = db.find("a").unwrap();
    for number in [1, 3, 5] {
        assert!(keyspace.get(key(number)).unwrap().is_none(), "{number}");
        assert!(keyspace.get(key(number - 1)).unwrap_err().is_corruption(), "{number}");
    }
    assert_eq!((filters(&db).0, db.stats().attached_filters), (0, 0));
    drop((db, keyspace));
    // Where it cannot be read either.
    filter_files(&disk).iter().for_each(|filter| flip(&disk, filter, -3, 16));
    let (_db, keyspace) = open(&setup, &disk, 3);
    assert!(keyspace.get(key(1)).unwrap_err().is_corruption());
}

/// Misses of one key until its filter is in memory, where the cache has so many bytes.
fn misses_until_woken(disk: &SimDisk, memory_budget_bytes: u64) -> u64 {
    let builder = builder(disk).block_cache(true).mapped_reads(false).memtable_bytes(64 << 10);
    let db = builder.memory_budget_bytes(memory_budget_bytes).open().unwrap();
    let keyspace = db.find("a").unwrap();
    (0..KEYS).for_each(|n| assert!(keyspace.get(key(20 * n)).unwrap().is_some()));
    let is_half_empty = db.stats().cache_bytes < memory_budget_bytes / 4;
    assert_eq!(is_half_empty, memory_budget_bytes > 16 << 20, "{}", db.stats().cache_bytes);
    let mut misses = 0;
    while db.stats().attached_filters == 0 {
        assert!(keyspace.get(key(1)).unwrap().is_none());
        misses += 1;
    }
    misses
}

#[test]
fn a_filter_is_cheap_while_half_of_the_cache_is_empty() {
    let setup = setup(KeyspaceOptions::default().partition_bytes(16 << 20));
    let disk = settled(&setup, 10 * KEYS);
    // In memory: 256 of them; else 64 for each 4 KiB of a filter of 49, and 64 more.
    assert_eq!(misses_until_woken(&disk, 64 << 20), 256);
    assert!((700..900).contains(&misses_until_woken(&disk, 1 << 20)));
}

/// A miss costs processor time though its block is in memory; so little that it takes many of them.
#[test]
fn misses_of_blocks_in_memory_pay_little_and_enough() {
    let disk = settled(&resting(), KEYS);
    let db = builder(&disk).block_cache(true).mapped_reads(false).open().unwrap();
    let keyspace = db.find("a").unwrap();
    // Every block is in memory from here on.
    read_all(&keyspace, 0);
    let before = db.stats();
    let mut misses = 0;
    while filters(&db).1 > 0 {
        assert!(keyspace.get(key(2 * (misses % KEYS) + 1)).unwrap().is_none());
        misses += 1;
    }
    assert!((100..1000).contains(&misses), "{misses} misses in memory for a filter of 5 KiB");
    assert_eq!(db.stats().read_requests, before.read_requests);
}

#[test]
fn a_sweep_wakes_the_filters_of_what_it_writes_where_misses_had_woken_them() {
    let (setup, keys) = (resting(), u64::from(KEYS));
    let disk = settled(&setup, KEYS);
    let (db, keyspace) = open(&setup, &disk, 2);
    let sweep = |value: u8| {
        (0..KEYS).for_each(|n| keyspace.insert(key(n * 2), [value; 20]).unwrap());
        keyspace.convert().unwrap();
    };
    sweep(8);
    assert_eq!(filters(&db), (0, stats(&db).partitions), "nobody missed anything");
    read_all(&keyspace, 1);
    let woken = db.stats().attached_filters;
    assert_eq!((filters(&db), woken), ((stats(&db).partitions, 0), stats(&db).partitions));
    sweep(9);
    assert_eq!(filters(&db), (stats(&db).partitions, 0));
    assert_eq!(db.stats().attached_filters, woken, "misses had to pay only once");
    let (requests, _, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests == wrong && wrong < keys / 100, "{requests}, {wrong}");
}

/// A small delta over a base has a filter of its own; each is woken by its own misses.
#[test]
fn deltas_have_resting_filters_too() {
    let setup = resting();
    let disk = settled(&setup, KEYS);
    let (db, keyspace) = open(&setup, &disk, 2);
    (0..20).for_each(|n| keyspace.insert(key(n * 8), [9; 20]).unwrap());
    keyspace.convert().unwrap();
    assert_eq!((stats(&db).deltas, filters(&db)), (1, (0, 2)));
    // What the base holds misses the delta.
    (0..4).for_each(|_| read_all(&keyspace, 0));
    assert_eq!(filters(&db), (1, 1));
    let (requests, _, wrong) = cost(&db, || read_all(&keyspace, 0));
    assert!(requests <= u64::from(KEYS) + wrong, "{requests}, {wrong}");
    read_all(&keyspace, 1);
    assert_eq!(filters(&db), (2, 0));
}

/// In levels too: what misses woke is woken again with its table, and spreads to no other.
#[test]
fn a_woken_filter_of_the_last_level_outlives_compactions() {
    let levels = KeyspaceOptions::default().store(Store::Lsm).level_base_bytes(1 << 20);
    let setup = setup(levels.partition_bytes(16 << 10).lsm_filter(None));
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.ingest((0..KEYS).map(|n| (key(n * 2), [7; 20]))).unwrap();
    let (half, filters) = (KEYS / 2, || keyspace.stats().unwrap().filters);
    let tables = || keyspace.stats().unwrap().levels.iter().map(|l| l.tables).sum::<u64>();
    assert_eq!(keyspace.stats().unwrap().resting_filters, tables());
    for _ in 0..4 {
        (0..half).for_each(|n| assert!(keyspace.get(key(2 * n + 1)).unwrap().is_none()));
    }
    let woken = filters();
    assert!(woken > 1 && woken < tables() * 3 / 4, "{woken} of {}", tables());
    for round in 0..4 {
        (0..KEYS).step_by(3).for_each(|n| keyspace.insert(key(n * 2), [round; 20]).unwrap());
        keyspace.convert().unwrap();
        let kept = filters();
        assert!(kept.abs_diff(woken) <= 1, "round {round}: {kept} of {}, {woken}", tables());
    }
    let reads = |numbers: std::ops::Range<u32>| {
        let absent = |n| assert!(keyspace.get(key(2 * n + 1)).unwrap().is_none());
        cost(&db, || numbers.for_each(absent)).0
    };
    // One elsewhere, and what rests there pays for itself soon.
    let (with, without) = (reads(0..half / 20), reads(KEYS - 5..KEYS - 4));
    assert!(with < u64::from(half / 200) && without == 1, "{with} where filters woke, {without}");
}

#[test]
fn misses_of_many_keys_wake_filters() {
    let setup = resting();
    let disk = settled(&setup, KEYS);
    let (db, keyspace) = open(&setup, &disk, 2);
    read_together(&keyspace, 0, KEYS as usize);
    assert_eq!(filters(&db).0, 0, "what is found is no miss");
    // However many keys of a block are not there, its one read is all that a filter saves of reading.
    let one_block: Vec<_> = (100..105).map(|number| key(number * 2 + 1)).collect();
    assert!(keyspace.multi_get(&one_block).unwrap().iter().all(Option::is_none));
    assert_eq!(filters(&db).0, 0, "one read pays for nothing");
    read_together(&keyspace, 1, KEYS as usize);
    assert_eq!(filters(&db), (stats(&db).partitions, 0));
    let (requests, stops, wrong) = cost(&db, || read_together(&keyspace, 1, 100));
    assert!(requests <= wrong && stops > u64::from(KEYS) * 98 / 100, "{requests}, {stops}");
}

#[test]
fn no_filter_is_written_where_none_is_wanted() {
    for store in [Store::Tiered, Store::Lsm] {
        let unwanted = setup(KeyspaceOptions::default().store(store).attach_filters(false));
        let disk = settled(&unwanted, KEYS);
        let (db, keyspace) = open(&unwanted, &disk, 2);
        read_all(&keyspace, 1);
        db.wait_idle().unwrap();
        assert_eq!((filters(&db), names(&disk, "filter-")), ((0, 0), 0), "{store:?}");
        let wanted = setup(KeyspaceOptions::default().store(store));
        let (db, _) = open(&wanted, &settled(&wanted, KEYS), 2);
        assert!(stats(&db).resting_filters > 0, "{store:?}");
    }
}

#[test]
fn a_filter_stays_at_rest_where_metadata_has_no_room() {
    // Of 64 KiB metadata may take half; there is room for the filter of few keys, not of many.
    for (keys, expected) in [(KEYS, 1), (8 * KEYS, 0)] {
        let disk = settled(&resting(), keys);
        let budget = builder(&disk).memtable_bytes(16 << 10).memory_budget_bytes(64 << 10);
        let db = budget.open().unwrap();
        let keyspace = db.find("a").unwrap();
        for n in 0..1000 {
            assert!(keyspace.get(key(n * 2 + 1)).unwrap().is_none());
        }
        let stats = db.stats();
        assert_eq!(
            (stats.attached_filters, stats.dropped_filters),
            (expected, 0),
            "{keys}: {stats}"
        );
        assert_eq!(filters(&db), (expected, 1 - expected));
    }
}

/// Nothing is written for it, and no job runs.
#[test]
fn misses_wake_filters_of_a_database_opened_for_reading_only() {
    let disk = settled(&resting(), KEYS);
    let changes = Arc::new(Mutex::new(0));
    let sink = changes.clone();
    let db = builder(&disk).read_only(true).open().unwrap();
    disk.observe(move |_, _| *sink.lock().unwrap() += 1);
    let keyspace = db.find("a").unwrap();
    read_all(&keyspace, 1);
    read_all(&keyspace, 0);
    assert_eq!((filters(&db), *changes.lock().unwrap()), ((1, 0), 0));
}

/// Both halves of a partition that an ingest split share the table and its filter.
#[test]
fn an_ingest_that_splits_a_partition_leaves_its_filter() {
    let setup = resting();
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    let gap = 1000..1500;
    let ingest = |numbers: &mut dyn Iterator<Item = u32>| {
        keyspace.ingest(numbers.map(|n| (key(n * 2), [7; 20]))).unwrap()
    };
    ingest(&mut (0..KEYS).filter(|n| !gap.contains(n)));
    assert!(ingest(&mut gap.clone()).settled);
    assert_eq!((stats(&db).partitions, names(&disk, "filter-")), (3, 2));
    read_all(&keyspace, 1);
    read_all(&keyspace, 0);
    assert_eq!(db.stats().attached_filters, 2);
    drop((db, keyspace));
    let (db, keyspace) = open(&setup, &disk, 2);
    let ours = |name: &String| name.starts_with("filter-") || name.starts_with("table-");
    assert_eq!((db.stats().dropped_filters, names(&disk, "filter-")), (0, 2));
    assert!(!db.open_report().removed_files.iter().any(ours), "{:?}", db.open_report());
    keyspace.insert(key(1), [7; 20]).unwrap();
    keyspace.clear().unwrap();
    keyspace.convert().unwrap();
    drop((db, keyspace));
    let _db = setup.open(&disk, 3).unwrap();
    assert_eq!((names(&disk, "table-"), names(&disk, "filter-")), (0, 0), "gone with its table");
}

#[test]
fn a_checkpoint_has_the_resting_filters() {
    let setup = resting();
    let disk = settled(&setup, KEYS);
    let (db, keyspace) = open(&setup, &disk, 2);
    read_all(&keyspace, 1);
    db.checkpoint("/copy").unwrap();
    let left = disk.crash_clone(CrashKind::Machine, 3);
    let builder = Database::builder("/copy").disk(Arc::new(left));
    let copy =
        builder.executor(Arc::new(SeededExecutor::new(1))).block_cache(false).open().unwrap();
    assert_eq!((filters(&copy), copy.stats().dropped_filters), ((0, 1), 0));
    let keyspace = copy.find("a").unwrap();
    read_all(&keyspace, 1);
    read_all(&keyspace, 0);
    assert_eq!((filters(&copy), copy.stats().dropped_filters), ((1, 0), 0));
}

/// Before and amid each operation of an ingest and a sweep: whatever is named is there whole, and nothing else.
#[test]
fn a_crash_while_filters_are_written_leaves_them_whole_or_not_named() {
    let small = KeyspaceOptions::default().partition_bytes(16 << 10);
    let (setup, disk) = (setup(small), SimDisk::new(1));
    let taken = Arc::new(Mutex::new(Vec::new()));
    let sink = taken.clone();
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    disk.observe(move |operation, disk| {
        let kinds = [(CrashKind::Process, 0), (CrashKind::Machine, operation.index)];
        sink.lock().unwrap().extend(kinds.map(|(kind, seed)| disk.crash_clone(kind, seed)));
    });
    keyspace.ingest((0..KEYS / 8).map(|n| (key(n * 2), [7; 20]))).unwrap();
    (0..KEYS / 8).for_each(|n| keyspace.insert(key(n * 2), [8; 20]).unwrap());
    keyspace.convert().unwrap();
    disk.stop_observing();
    let mut seen = std::collections::BTreeSet::new();
    for left in std::mem::take(&mut *taken.lock().unwrap()) {
        let (db, keyspace) = open(&setup, &left, 1);
        let (stats, tables) = (db.stats(), stats(&db));
        assert_eq!(stats.dropped_filters, 0, "a filter that is named was synced");
        let named = tables.filters + tables.resting_filters;
        assert_eq!(names(&left, "filter-") as u64, named, "an orphan, or one that is lost");
        assert_eq!(names(&left, "table-") as u64, named, "each table has one");
        seen.insert(named);
        for _ in 0..4 {
            for number in 0..KEYS / 8 {
                assert!(keyspace.get(key(number * 2 + 1)).unwrap().is_none());
            }
        }
        assert_eq!((filters(&db), db.stats().dropped_filters), ((named, 0), 0), "each is whole");
    }
    assert!(seen.len() > 2 && seen.contains(&0), "{seen:?}");
}

/// Its file is met by the read that wakes it alone: lookups have their answers, and pay once more.
#[test]
fn a_filter_whose_read_fails_is_tried_again() {
    let setup = resting();
    let start = settled(&setup, KEYS);
    for number in 0.. {
        let disk = start.crash_clone(CrashKind::Process, 0);
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        let db = setup.open(&faulty, 2).unwrap();
        let keyspace = db.find("a").unwrap();
        let counts = faulty.fail(Fault::at(number).on_paths_with("filter-"));
        read_all(&keyspace, 1);
        read_all(&keyspace, 0);
        let stats = db.stats();
        assert_eq!((stats.dropped_filters, stats.attached_filters), (counts.fired(), 1));
        assert_eq!(filters(&db), (1, 0));
        if counts.fired() == 0 {
            assert!(number > 2, "its opening, its length, its bytes");
            break;
        }
    }
}

/// A disk that refused to read a filter once, as the database was opened, cost it the filter for ever: the next
/// manifest did not name it, and its file was removed.
#[test]
fn a_filter_that_an_open_could_not_read_is_read_later() {
    let of_runs = KeyspaceOptions::default().lsm_filter(Some(FilterKind::BinaryFuse8));
    for (setup, rests) in [(resting(), true), (setup(of_runs), false)] {
        let start = if rests {
            settled(&setup, KEYS)
        } else {
            let disk = SimDisk::new(1);
            let db = setup.open(&disk, 1).unwrap();
            let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
            (0..KEYS).for_each(|n| keyspace.insert(key(n * 2), [7; 20]).unwrap());
            keyspace.flush().unwrap();
            drop((db, keyspace));
            disk
        };
        let files = filter_files(&start).len() as u64;
        assert!(files > 0, "{rests}");
        for later in ["misses", "the next open"] {
            let disk = start.crash_clone(CrashKind::Process, 0);
            let faulty = FaultyDisk::new(Arc::new(disk.clone()));
            let kinds = [OperationKind::Open, OperationKind::Read];
            faulty.fail(Fault::at(0).of(&kinds).on_paths_with("filter-").from_then_on());
            let db = setup.open(&faulty, 2).unwrap();
            assert_eq!((db.stats().dropped_filters, filters(&db)), (files, (0, files)), "{rests}");
            assert_eq!(filter_files(&disk).len() as u64, files, "{rests}: removed");
            faulty.clear_faults();
            if later == "misses" {
                let keyspace = db.find("a").unwrap();
                read_all(&keyspace, 1);
                read_all(&keyspace, 0);
                assert_eq!(filters(&db), (files, 0), "{rests}");
            }
            drop(db);
            let db = setup.open(&faulty, 3).unwrap();
            assert_eq!(db.stats().dropped_filters, 0, "{rests}");
            let (awake, resting) = filters(&db);
            assert_eq!((awake + resting, resting), (files, if rests { files } else { 0 }));
        }
    }
}

fn replace(disk: &SimDisk, path: &Path, bytes: Option<Vec<u8>>) {
    disk.remove(path).unwrap();
    if let Some(bytes) = bytes {
        disk.create(path).unwrap().write_all_at(&bytes, 0).unwrap();
    }
}

/// One that is lost, or of another length, is forgotten by the open; damage shows when it is read. Neither costs an
/// answer, and a sweep brings a filter back.
#[test]
fn a_resting_filter_that_is_lost_or_damaged_is_done_without() {
    let setup = resting();
    let start = settled(&setup, KEYS);
    let path = filter_files(&start)[0].clone();
    let file = start.open(&path, Access::Random).unwrap();
    let mut bytes = vec![0; file.length_bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        Some(bytes)
    };
    let too_long = Some([&bytes[..], &[0]].concat());
    let cases = [
        (None, true),
        (Some(bytes[..bytes.len() / 2].to_vec()), true),
        (too_long, true),
        (Some(vec![0; bytes.len()]), false),
        (flipped(0), false),
        (flipped(bytes.len() / 2), false),
        (flipped(bytes.len() - 1), false),
    ];
    for (number, (new, shows_at_once)) in cases.into_iter().enumerate() {
        let disk = start.crash_clone(CrashKind::Process, 0);
        replace(&disk, &path, new);
        let (db, keyspace) = open(&setup, &disk, 2);
        let at_once = u64::from(shows_at_once);
        assert_eq!(
            (db.stats().dropped_filters, filters(&db).1),
            (at_once, 1 - at_once),
            "{number}"
        );
        // Nobody reads it again and again.
        for _ in 0..3 {
            read_all(&keyspace, 1);
            read_all(&keyspace, 0);
        }
        assert_eq!((db.stats().dropped_filters, filters(&db).0), (1, 0), "{number}");
        // A copy can be made of a database with such a file.
        db.checkpoint("/copy").unwrap();
        (0..KEYS).for_each(|n| keyspace.insert(key(n * 2), [9; 20]).unwrap());
        keyspace.convert().unwrap();
        // Where there was none any more, misses have paid for another, and for those of what comes in its place.
        let partitions = stats(&db).partitions;
        let (awake, resting) = if shows_at_once { (partitions, 0) } else { (0, partitions) };
        assert_eq!(filters(&db), (awake, resting), "{number}");
        read_all(&keyspace, 1);
        assert_eq!((db.stats().dropped_filters, filters(&db).1), (1, 0), "{number}");
        drop((db, keyspace));
        let (db, _) = open(&setup, &disk, 3);
        assert_eq!(db.stats().dropped_filters, 0, "{number}: it is gone");
    }
}

/// A filter that is only to rest is no reason to need more room than a table does.
#[test]
fn a_sweep_on_a_full_disk_writes_no_resting_filter() {
    let setup = Setup { memtable_bytes: 64 << 10, ..resting() };
    let disk = SimDisk::new(1);
    let open = |disk: &SimDisk| builder(disk).memtable_bytes(64 << 10).log_segment_bytes(256 << 10);
    let db = open(&disk).open().unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone().partition_bytes(64 << 10)).unwrap();
    keyspace.ingest((0..KEYS * 4).map(|n| (key(n), [7; 100]))).unwrap();
    let (tables, before) = (stats(&db).partitions, names(&disk, "filter-") as u64);
    assert!(tables == before && tables > 10, "{tables} tables, {before} filters");
    disk.set_space_limit_bytes(Some(disk.used_bytes() + (64 << 10)));
    let mut number = 0;
    let full = loop {
        match keyspace.insert(key(number * 2), [number as u8; 100]) {
            Ok(()) => number += 1,
            Err(e) => break e,
        }
        assert!(number < KEYS * 4, "the disk is not full");
    };
    assert_eq!(full.kind(), ErrorKind::DiskFull);
    keyspace.remove_range(key(KEYS)..key(KEYS * 2)).unwrap();
    keyspace.convert().unwrap();
    let (after, swept) = (stats(&db), db.stats().sweep_steps);
    assert!(swept > 0 && after.resting_filters < after.partitions, "{after}");
    // With room again they come back with their tables.
    disk.set_space_limit_bytes(None);
    (0..KEYS * 4).for_each(|n| keyspace.insert(key(n), [9; 100]).unwrap());
    keyspace.convert().unwrap();
    let after = stats(&db);
    assert_eq!(after.resting_filters, after.partitions + after.deltas, "{after}");
}
