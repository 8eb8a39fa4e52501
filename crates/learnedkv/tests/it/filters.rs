//! What filters save, what they cost, and that they come and go with their tables.

use std::sync::{Arc, Mutex};

use learnedkv::disk::Disk;
use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::{Database, ErrorKind, FilterKind, Keyspace, KeyspaceOptions, Stats, Store};

use crate::workload::Setup;

const KEYS: u32 = 4000;
const RUNS: u32 = 8;

fn setup(keyspace: KeyspaceOptions) -> Setup {
    let keyspace = keyspace.block_bytes(512);
    Setup {
        // Each block that is asked for is read, and nothing happens unasked.
        block_cache: false,
        automatic_conversion: false,
        memtable_bytes: 200 << 10,
        keyspace,
        ..Setup::default()
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Every second number is a key: the first part settled, then run upon run, each over all the range.
fn fill(setup: &Setup, disk: &SimDisk) -> (Database, Keyspace) {
    let db = setup.open(disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    for part in 0..=RUNS {
        for number in (0..KEYS).filter(|number| number % (RUNS + 1) == part) {
            keyspace.insert(key(number * 2), [7; 20]).unwrap();
        }
        if part == 0 {
            keyspace.convert().unwrap();
        } else {
            keyspace.flush().unwrap();
        }
    }
    assert_eq!(db.stats().keyspaces[0].runs, u64::from(RUNS));
    (db, keyspace)
}

fn names(disk: &SimDisk, prefix: &str) -> usize {
    let names = disk.list("/db".as_ref()).unwrap();
    names.iter().filter(|name| name.starts_with(prefix)).count()
}

/// What the reads cost: (blocks that were not in our cache, stops, false positives).
fn cost(db: &Database, read: impl FnOnce()) -> (u64, u64, u64) {
    let blocks = |s: &Stats| s.read_requests + s.mapped_reads;
    let figures = |s: Stats| (blocks(&s), s.filter_stops, s.filter_false_positives);
    let before = figures(db.stats());
    read();
    let after = figures(db.stats());
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

fn read_all(keyspace: &Keyspace, parity: u32) {
    for number in 0..KEYS {
        let found = keyspace.get(key(number * 2 + parity)).unwrap();
        assert_eq!(found.is_some(), parity == 0, "{number}");
    }
}

/// As [`read_all`], so many keys a call.
fn read_together(keyspace: &Keyspace, parity: u32, call: usize) {
    let keys: Vec<_> = (0..KEYS).map(|number| key(number * 2 + parity)).collect();
    for keys in keys.chunks(call) {
        let found = keyspace.multi_get(keys).unwrap();
        assert_eq!(found.len(), keys.len());
        assert!(found.iter().all(|found| found.is_some() == (parity == 0)), "{keys:?}");
    }
}

/// Of all KEYS lookups; half of the runs are asked before a key's own, on average.
#[test]
fn filters_save_the_reads_of_runs_that_lack_a_key() {
    let keys = u64::from(KEYS);
    let disk = SimDisk::new(1);
    let (db, keyspace) = fill(&setup(KeyspaceOptions::default()), &disk);
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 0));
    assert_eq!(requests, keys + wrong, "one read a key, and those of the false positives");
    assert!(wrong < keys * 4 * 2 / 100, "{wrong} false positives");
    assert!(stops > keys * 7 / 2, "{stops} stops");
    // The settled run has no filter: an absent key's block is read there.
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests <= keys + wrong && wrong < keys * 8 * 2 / 100, "{requests}, {wrong}");
    assert!(stops > keys * 7, "{stops} stops");
    let none = setup(KeyspaceOptions::default().lsm_filter(None));
    let (db, keyspace) = fill(&none, &SimDisk::new(1));
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests > keys * 8 && (stops, wrong) == (0, 0), "{requests}: is nothing saved?");
    // A snapshot's lookups are counted as well.
    let (db, keyspace) = fill(&setup(KeyspaceOptions::default()), &SimDisk::new(1));
    let snapshot = db.snapshot();
    let (_, stops, _) =
        cost(&db, || assert!(snapshot.get(&keyspace, key(KEYS + 1)).unwrap().is_none()));
    assert!(stops > 5, "{stops}");
}

#[test]
fn filters_of_settled_tables_save_the_last_read_of_absent_keys() {
    for (kind, percent) in
        [(FilterKind::BinaryFuse8, 1), (FilterKind::BlockedBloom { bits_per_key: 10 }, 2)]
    {
        let options = KeyspaceOptions::default().settled_filter(Some(kind));
        let (db, keyspace) = fill(&setup(options), &SimDisk::new(1));
        keyspace.convert().unwrap();
        let (requests, _, wrong) = cost(&db, || read_all(&keyspace, 1));
        assert_eq!(requests, wrong, "{kind}");
        assert!(wrong <= u64::from(KEYS) * percent / 100, "{kind}: {wrong} false positives");
        let (requests, stops, _) = cost(&db, || read_all(&keyspace, 0));
        assert_eq!((requests, stops), (u64::from(KEYS), 0), "{kind}");
        let stats = &db.stats().keyspaces[0];
        assert_eq!((stats.lsm_entries, stats.filtered_entries), (0, u64::from(KEYS)));
    }
}

#[test]
fn a_bulk_load_writes_the_filter_of_settled_tables() {
    let options = KeyspaceOptions::default().settled_filter(Some(FilterKind::BinaryFuse8));
    let (setup, disk) = (setup(options), SimDisk::new(1));
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.ingest((0..KEYS).map(|n| (key(n * 2), [7; 20]))).unwrap();
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests == wrong && stops > u64::from(KEYS) * 98 / 100, "{requests}, {stops}");
}

#[test]
fn filters_are_in_the_figures_and_go_with_their_tables() {
    let (setup, disk) = (setup(KeyspaceOptions::default()), SimDisk::new(1));
    let (db, keyspace) = fill(&setup, &disk);
    let stats = db.stats().keyspaces[0].clone();
    assert_eq!((stats.filters, names(&disk, "filter-")), (u64::from(RUNS), RUNS as usize));
    assert_eq!(stats.filtered_entries, stats.lsm_entries);
    // Lines of 64 bytes for some hundred keys, and what a filter takes besides.
    assert!((10.0..13.0).contains(&stats.filter_bits_per_key()), "{}", stats.filter_bits_per_key());
    assert!(stats.metadata_bytes > stats.filter_bytes && stats.filter_bytes > 0);
    drop((db, keyspace));
    let db = setup.open(&disk, 2).unwrap();
    assert_eq!(
        db.stats().keyspaces[0].filters,
        u64::from(RUNS),
        "they are there when opened again"
    );
    let keyspace = db.find("a").unwrap();
    let snapshot = db.snapshot();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().keyspaces[0].filters, 0);
    assert_eq!(names(&disk, "filter-"), RUNS as usize, "the snapshot uses them");
    drop(snapshot);
    keyspace.insert(key(0), [8; 20]).unwrap();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    // The last that left the View may not be buried yet; the next open does that.
    assert!(names(&disk, "filter-") <= 1, "their tables are gone");
    drop((db, keyspace));
    let _db = setup.open(&disk, 3).unwrap();
    assert_eq!((names(&disk, "filter-"), names(&disk, "table-")), (0, 2));
}

/// A database of one settled part, without filters, closed; all that is read is read from the disk.
fn settled(setup: &Setup, keys: u32) -> SimDisk {
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.ingest((0..keys).map(|n| (key(n * 2), [7; 20]))).unwrap();
    keyspace.insert(key(0), [7; 20]).unwrap();
    keyspace.convert().unwrap();
    drop((db, keyspace));
    disk
}

#[test]
fn a_settled_table_gets_a_filter_when_misses_have_paid_for_it() {
    let (setup, keys) = (setup(KeyspaceOptions::default()), u64::from(KEYS));
    let disk = settled(&setup, KEYS);
    let db = setup.open(&disk, 2).unwrap();
    let keyspace = db.find("a").unwrap();
    // Few misses pay for nothing, and what is found is no miss.
    (0..10).for_each(|n| assert!(keyspace.get(key(2 * n + 1)).unwrap().is_none()));
    read_all(&keyspace, 0);
    db.wait_idle().unwrap();
    assert_eq!((db.stats().attached_filters, db.stats().keyspaces[0].filters), (0, 0));
    read_all(&keyspace, 1);
    db.wait_idle().unwrap();
    let stats = db.stats();
    let tables = stats.keyspaces[0].partitions;
    assert_eq!((stats.attached_filters, stats.keyspaces[0].filters), (tables, tables));
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests == wrong && wrong < keys / 100, "{requests}, {wrong}");
    assert!(stops > keys * 98 / 100, "{stops}");
    read_all(&keyspace, 0);
    // It is there when opened again, and made again with its table.
    drop((db, keyspace));
    let db = setup.open(&disk, 3).unwrap();
    let keyspace = db.find("a").unwrap();
    assert_eq!((db.stats().keyspaces[0].filters, db.stats().dropped_filters), (tables, 0));
    (0..KEYS).for_each(|n| keyspace.insert(key(n * 2), [9; 20]).unwrap());
    keyspace.convert().unwrap();
    let stats = db.stats();
    assert_eq!(stats.keyspaces[0].filters, stats.keyspaces[0].partitions);
    let (requests, _, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests == wrong && wrong < keys / 100, "{requests}, {wrong}");
}

/// In levels too: what misses bought is made again with its table, and spreads to no other.
#[test]
fn a_bought_filter_of_the_last_level_outlives_compactions() {
    let levels = KeyspaceOptions::default().store(Store::Lsm).level_base_bytes(1 << 20);
    let setup = setup(levels.partition_bytes(16 << 10).lsm_filter(None));
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.ingest((0..KEYS).map(|n| (key(n * 2), [7; 20]))).unwrap();
    let (half, filters) = (KEYS / 2, || keyspace.stats().unwrap().filters);
    let tables = || keyspace.stats().unwrap().levels.iter().map(|l| l.tables).sum::<u64>();
    for _ in 0..4 {
        (0..half).for_each(|n| assert!(keyspace.get(key(2 * n + 1)).unwrap().is_none()));
    }
    db.wait_idle().unwrap();
    let bought = filters();
    assert!(bought > 1 && bought < tables() * 3 / 4, "{bought} of {}", tables());
    for round in 0..4 {
        (0..KEYS).step_by(3).for_each(|n| keyspace.insert(key(n * 2), [round; 20]).unwrap());
        keyspace.convert().unwrap();
        let kept = filters();
        assert!(kept.abs_diff(bought) <= 1, "round {round}: {kept} of {}, {bought}", tables());
    }
    let half_reads = |from: u32| {
        let (requests, ..) = cost(&db, || {
            (from..from + half)
                .for_each(|n| assert!(keyspace.get(key(2 * n + 1)).unwrap().is_none()))
        });
        requests
    };
    let (with, without) = (half_reads(0), half_reads(half));
    assert!(with * 4 < without, "{with} reads where filters were bought, {without} elsewhere");
}

#[test]
fn many_keys_ask_filters_as_each_alone_does() {
    let (db, keyspace) = fill(&setup(KeyspaceOptions::default()), &SimDisk::new(1));
    for parity in [0, 1] {
        let (single, stops, wrong) = cost(&db, || read_all(&keyspace, parity));
        for call in [1, 100, KEYS as usize] {
            let together = cost(&db, || read_together(&keyspace, parity, call));
            assert_eq!((together.1, together.2), (stops, wrong), "{parity}, {call}");
            assert!(together.0 <= single, "{parity}, {call}: {} requests", together.0);
        }
    }
}

#[test]
fn misses_of_many_keys_pay_for_a_filter() {
    let setup = setup(KeyspaceOptions::default());
    let disk = settled(&setup, KEYS);
    let db = setup.open(&disk, 2).unwrap();
    let keyspace = db.find("a").unwrap();
    read_together(&keyspace, 0, KEYS as usize);
    db.wait_idle().unwrap();
    assert_eq!(db.stats().keyspaces[0].filters, 0, "what is found is no miss");
    // However many keys of a block are not there, its one read is all that a filter saves.
    let one_block: Vec<_> = (100..105).map(|number| key(number * 2 + 1)).collect();
    for _ in 0..6 {
        let found = keyspace.multi_get(&one_block).unwrap();
        assert!(found.iter().all(Option::is_none));
    }
    db.wait_idle().unwrap();
    assert_eq!(db.stats().keyspaces[0].filters, 0, "few reads pay for nothing");
    read_together(&keyspace, 1, KEYS as usize);
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert_eq!(stats.keyspaces[0].filters, stats.keyspaces[0].partitions);
    let (requests, stops, wrong) = cost(&db, || read_together(&keyspace, 1, 100));
    assert!(requests <= wrong && stops > u64::from(KEYS) * 98 / 100, "{requests}, {stops}");
}

#[test]
fn no_filter_is_attached_where_none_is_wanted_or_there_is_no_room() {
    let unwanted = setup(KeyspaceOptions::default().attach_filters(false));
    // Of this budget metadata may take 32 KiB; there is room for the filter of few keys, not of many.
    let tight = setup(KeyspaceOptions::default());
    let cases = [
        (unwanted, 1 << 20, KEYS, 0),
        (tight.clone(), 64 << 10, KEYS, 1),
        (tight, 64 << 10, 4 * KEYS, 0),
    ];
    for (setup, budget, keys, expected) in cases {
        let disk = settled(&setup, keys);
        let db = Database::builder("/db")
            .disk(Arc::new(disk))
            .executor(Arc::new(learnedkv::executor::SeededExecutor::new(1)))
            .memtable_bytes(16 << 10)
            .memory_budget_bytes(budget)
            .block_cache(false)
            .open()
            .unwrap();
        let keyspace = db.find("a").unwrap();
        for n in 0..1000 {
            assert!(keyspace.get(key(n * 2 + 1)).unwrap().is_none());
        }
        db.wait_idle().unwrap();
        assert_eq!(db.stats().attached_filters, expected, "{budget}, {keys}: {}", db.stats());
    }
}

/// Before and amid each operation of an attachment: the answers stay, and no filter is half there.
#[test]
fn a_crash_while_a_filter_is_attached_leaves_it_there_or_not() {
    let setup = setup(KeyspaceOptions::default());
    let disk = settled(&setup, KEYS);
    let db = setup.open(&disk, 2).unwrap();
    let keyspace = db.find("a").unwrap();
    read_all(&keyspace, 1);
    let taken = Arc::new(Mutex::new(Vec::new()));
    let sink = taken.clone();
    disk.observe(move |operation, disk| {
        let kinds = [(CrashKind::Process, 0), (CrashKind::Machine, operation.index)];
        sink.lock().unwrap().extend(kinds.map(|(kind, seed)| disk.crash_clone(kind, seed)));
    });
    db.wait_idle().unwrap();
    disk.stop_observing();
    assert_eq!(db.stats().attached_filters, 1);
    let (mut with, mut without) = (0, 0);
    for left in std::mem::take(&mut *taken.lock().unwrap()) {
        let db = setup.open(&left, 1).unwrap();
        let stats = db.stats();
        assert_eq!(stats.dropped_filters, 0, "a filter that is named was synced");
        *if stats.keyspaces[0].filters > 0 { &mut with } else { &mut without } += 1;
        assert_eq!(names(&left, "filter-") as u64, stats.keyspaces[0].filters, "an orphan");
        let keyspace = db.find("a").unwrap();
        read_all(&keyspace, 0);
        read_all(&keyspace, 1);
    }
    assert!(with > 0 && without > 5, "{with} with, {without} without");
}

/// A failure of any operation of an attachment: no answer changes, and nothing but a failed edit stops writes.
#[test]
fn a_filter_that_cannot_be_attached_is_done_without() {
    let setup = setup(KeyspaceOptions::default());
    let start = settled(&setup, KEYS);
    let (mut dropped, mut poisoned, mut attached) = (0, 0, 0);
    for number in 0.. {
        let disk = start.crash_clone(CrashKind::Process, 0);
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        let db = setup.open(&faulty, 2).unwrap();
        let keyspace = db.find("a").unwrap();
        read_all(&keyspace, 1);
        let counts = faulty.fail(Fault::at(number));
        // Where the writer is poisoned this says so; what counts is what follows.
        let _ = db.wait_idle();
        let fired = counts.fired() > 0;
        faulty.clear_faults();
        read_all(&keyspace, 0);
        read_all(&keyspace, 1);
        let stats = db.stats();
        match keyspace.insert(key(0), [7; 20]) {
            Ok(()) => dropped += stats.dropped_filters,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Poisoned);
                poisoned += 1;
            }
        }
        attached += stats.attached_filters;
        drop((db, keyspace));
        let db = setup.open(&disk, 3).unwrap();
        read_all(&db.find("a").unwrap(), 0);
        assert_eq!(db.stats().dropped_filters, 0);
        if !fired {
            break;
        }
    }
    assert!(dropped > 3 && poisoned > 0 && attached > 0, "{dropped} {poisoned} {attached}");
}
