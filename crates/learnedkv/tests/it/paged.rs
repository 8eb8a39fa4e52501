//! Stores whose indexes are more than memory has room for: the budget holds, what is not in memory
//! costs one request and says so, and a failure on the way is nobody else's.

use std::sync::Arc;

use learnedkv::disk::OperationKind;
use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::SeededExecutor;
use learnedkv::{Builder, Database, ErrorKind, IndexKind, Keyspace, KeyspaceOptions, Stats, Store};

use crate::workload::Random;

const BUDGET_BYTES: u64 = 256 << 10;
const KEYS: u64 = 90_000;

fn builder(disk: impl learnedkv::disk::Disk + 'static) -> Builder {
    Database::builder("/db")
        .disk(Arc::new(disk))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(16 << 10)
        .memory_budget_bytes(BUDGET_BYTES)
        .log_segment_bytes(64 << 10)
}

/// Short values in small blocks: much index for little data.
fn options(index: IndexKind) -> KeyspaceOptions {
    KeyspaceOptions::default()
        .block_bytes(256)
        .partition_bytes(64 << 10)
        .min_conversion_bytes(128 << 10)
        .level_base_bytes(128 << 10)
        .lsm_index(index)
        .settled_index(index)
}

fn key(number: u64) -> Vec<u8> {
    format!("user/{:012}/profile", number * 7919).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

fn fill(keyspace: &Keyspace, numbers: impl Iterator<Item = u64>) {
    numbers.for_each(|number| keyspace.insert(key(number), value(number)).unwrap());
}

fn check(keyspace: &Keyspace, number: u64) {
    let found = keyspace.get(key(number)).unwrap();
    assert_eq!(found.as_deref(), Some(&value(number)[..]), "{number}");
}

/// Blocks that work under way has read, which count too, and what is free beside them in slabs: two of 16 KiB for each run
/// that is merged or swept. Where none is under way there is nothing of it.
fn work_bytes(store: Store) -> u64 {
    let runs = if store == Store::Tiered { 12 } else { 1 };
    runs * (32 << 10)
}

/// What the budget governs.
fn held_bytes(stats: &Stats) -> u64 {
    let keyspaces = &stats.keyspaces;
    let metadata: u64 = keyspaces.iter().map(|k| k.metadata_bytes).sum();
    let memtables: u64 = keyspaces.iter().map(|k| k.memtable_bytes).sum();
    // The half, and what tables keep in any case that were opened when it was full.
    let most = BUDGET_BYTES * 11 / 20 + stats.paged_tables * 1024;
    assert!(metadata <= most, "{metadata} bytes of metadata of {most}: {stats}");
    metadata + memtables + stats.cache_bytes
}

#[test]
fn memory_stays_within_the_budget_however_large_the_store_is() {
    for (store, seed) in [(Store::Tiered, 1), (Store::Tiered, 2), (Store::Lsm, 1)] {
        let executor = Arc::new(SeededExecutor::new(seed));
        let db = builder(SimDisk::new(seed)).executor(executor).open().unwrap();
        // Filters are not paged.
        let options = options(IndexKind::Fence).lsm_filter(None).partition_bytes(128 << 10);
        let keyspace = db.keyspace("k", options.store(store)).unwrap();
        let mut random = Random::new(1);
        let mut most = 0;
        for number in 0..KEYS {
            fill(&keyspace, std::iter::once(number));
            check(&keyspace, random.below(number + 1));
            if number % 500 == 0 {
                most = most.max(held_bytes(&db.stats()));
            }
            if number % 10_000 == 0 {
                db.wait_idle().unwrap();
                let held = held_bytes(&db.stats());
                assert!(held <= BUDGET_BYTES * 11 / 10, "{store:?}: {held} bytes at {number}");
            }
        }
        keyspace.convert().unwrap();
        let before = db.stats();
        let indexes: u64 = before.keyspaces.iter().map(|k| k.index_bytes).sum();
        assert!(indexes > BUDGET_BYTES, "{indexes} bytes of indexes: the test could not fail");
        assert!(before.paged_tables > 10, "{store:?}: {before}");
        const GETS: u64 = 5000;
        for _ in 0..GETS {
            check(&keyspace, random.below(KEYS));
        }
        let after = db.stats();
        let at_rest = held_bytes(&after);
        assert!(at_rest <= BUDGET_BYTES * 11 / 10, "{store:?}: {at_rest} bytes of {BUDGET_BYTES}");
        let allowed = BUDGET_BYTES * 11 / 10 + work_bytes(store);
        assert!(most <= allowed, "{store:?}: {most} bytes of {BUDGET_BYTES}");
        let loads = after.index_loads - before.index_loads;
        let requests = after.read_requests - before.read_requests;
        assert!(loads > 0 && loads < GETS, "{store:?}: {loads} loads");
        assert!(requests >= loads && requests < 2 * GETS, "{store:?}: {requests} requests");
        assert_eq!(after.index_fallbacks, 0);
        let told = after.to_string();
        assert!(told.contains("paged indexes") && told.contains("not in memory"), "{told}");
        // In order, each is loaded once at most.
        let mut number = 0;
        for entry in keyspace.iter() {
            assert_eq!(*entry.unwrap().0, key(number)[..]);
            number += 1;
        }
        let walked = db.stats().index_loads - after.index_loads;
        assert!(number == KEYS && walked <= after.paged_tables, "{walked} loads by a walk");
    }
}

/// A database of settled tables, opened anew as `open` says.
fn settled(disk: &SimDisk, keys: u64) {
    let db = builder(disk.clone()).memory_budget_bytes(64 << 20).open().unwrap();
    let keyspace = db.keyspace("k", options(IndexKind::Exact)).unwrap();
    fill(&keyspace, 0..keys);
    keyspace.convert().unwrap();
    assert_eq!(db.stats().paged_tables, 0);
    db.close().unwrap();
}

#[test]
fn an_open_reads_no_index_that_it_has_no_room_for() {
    let disk = SimDisk::new(1);
    settled(&disk, 30_000);
    let open = |percent| {
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        let counts = faulty.fail(Fault::never().of(&[OperationKind::Read]).on_paths_with("table"));
        let builder = builder(faulty.clone()).memory_budget_bytes(64 << 20);
        let db = builder.metadata_percent(percent).open().unwrap();
        (counts.matched(), db)
    };
    let (all, db) = open(50);
    assert_eq!((db.stats().paged_tables, db.stats().read_requests), (0, 0));
    drop(db);
    let (without, db) = open(0);
    let stats = db.stats();
    assert_eq!(stats.paged_index_bytes, stats.keyspaces[0].index_bytes);
    assert!(stats.paged_tables > 10 && all - without == stats.paged_tables, "{all}, {without}");
    assert_eq!((stats.index_loads, stats.cache_bytes), (0, 0));
}

#[test]
fn a_get_through_an_index_that_is_not_in_memory_is_two_requests() {
    let disk = SimDisk::new(1);
    settled(&disk, 3000);
    for (cache, again) in [(true, (0, 0)), (false, (2, 1))] {
        let builder = builder(disk.clone()).metadata_percent(0).mapped_reads(false);
        let db = builder.block_cache(cache).open().unwrap();
        let keyspace = db.find("k").unwrap();
        let cost = |number| {
            let before = db.stats();
            check(&keyspace, number);
            let after = db.stats();
            let requests = after.read_requests - before.read_requests;
            (requests, after.index_loads - before.index_loads)
        };
        assert_eq!(cost(700), (2, 1));
        assert_eq!(cost(700), again, "cache: {cache}");
    }
}

/// File names have eight bytes in common wherever blocks end; of numbers some lie off their line.
#[test]
fn stats_say_what_indexes_consist_of() {
    let disk = SimDisk::new(1);
    let of = |db: &Database, name: &str| {
        let stats = db.find(name).unwrap().stats().unwrap();
        (stats.index_chunks, stats.separated_blocks, stats.separator_exceptions, stats.blocks)
    };
    let db = builder(disk.clone()).memory_budget_bytes(64 << 20).open().unwrap();
    let smooth = |n: u64| (n * 1000).to_be_bytes().to_vec();
    // Now and then a gap that no separator of the line falls into.
    let uneven = |n: u64| (n * 1000 + (n / 500) * (1 << 40)).to_be_bytes().to_vec();
    let path = |n: u64| format!("/srv/very/long/path/to/{:x}/some/file{n}", n / 3).into_bytes();
    type Named<'a> = (&'a str, &'a dyn Fn(u64) -> Vec<u8>);
    let kinds: [Named<'_>; 3] = [("smooth", &smooth), ("uneven", &uneven), ("paths", &path)];
    for (name, key) in kinds {
        let keyspace = db.keyspace(name, options(IndexKind::Exact)).unwrap();
        (0..20_000).for_each(|n| keyspace.insert(key(n), [7; 20]).unwrap());
        keyspace.convert().unwrap();
    }
    db.wait_idle().unwrap();
    let all = kinds.map(|(name, _)| of(&db, name));
    let [(chunks, separated, exceptions, blocks), uneven, paths] = all;
    assert!(separated == 0 && exceptions < blocks / 10, "{all:?}");
    assert!(chunks >= blocks / 64 && chunks < blocks, "{all:?}");
    assert!(uneven.1 + uneven.2 > exceptions, "{all:?}");
    assert!(paths.1 > paths.3 / 2 && paths.1 <= paths.3, "{all:?}");
    db.close().unwrap();

    // An index that is not there says nothing, until it was read once.
    let open = builder(disk).memory_budget_bytes(64 << 20).metadata_percent(0);
    let db = open.block_cache(false).open().unwrap();
    for ((name, key), before) in kinds.into_iter().zip(all) {
        assert_eq!(of(&db, name), (0, 0, 0, before.3), "{name}");
        let keyspace = db.find(name).unwrap();
        (0..20_000).for_each(|n| assert!(keyspace.contains_key(key(n)).unwrap()));
        assert_eq!(of(&db, name), before, "{name}");
    }
    assert!(db.stats().paged_tables > 0);
}

#[test]
fn a_failed_read_of_an_index_is_the_error_of_that_get_alone() {
    let disk = SimDisk::new(1);
    settled(&disk, 3000);
    let faulty = FaultyDisk::new(Arc::new(disk));
    let db = builder(faulty.clone()).metadata_percent(0).mapped_reads(false).open().unwrap();
    let keyspace = db.find("k").unwrap();
    let fail = || faulty.fail(Fault::at(0).of(&[OperationKind::Read]).on_paths_with("table"));
    fail();
    let error = keyspace.get(key(7)).expect_err("the index cannot be read");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let named = error.path().is_some_and(|path| path.to_string_lossy().contains("table"));
    assert!(named, "{error:?}");
    assert_eq!(db.stats().index_loads, 1);
    check(&keyspace, 7);
    // The last partition's.
    fail();
    assert_eq!(keyspace.iter().next_back().unwrap().expect_err("a walk").kind(), ErrorKind::Io);
    fail();
    let many = keyspace.multi_get([key(7), key(2500)]).expect_err("many keys");
    assert_eq!(many.kind(), ErrorKind::Io);
    (0..3000).for_each(|number| check(&keyspace, number));
    let stats = db.stats();
    assert_eq!((stats.index_fallbacks, stats.rebuilt_indexes), (0, 0));
    keyspace.insert("more", "v").unwrap();
}

/// The budget is shared: what one keyspace leaves, the tables of another take when they are read.
#[test]
fn room_that_a_dropped_keyspace_leaves_is_taken() {
    let disk = SimDisk::new(1);
    let db = builder(disk.clone()).memory_budget_bytes(512 << 10).open().unwrap();
    let make = |name: &str| {
        let keyspace = db.keyspace(name, options(IndexKind::Fence)).unwrap();
        fill(&keyspace, 0..25_000);
        keyspace.convert().unwrap();
        keyspace
    };
    let (_first, second) = (make("first"), make("second"));
    let paged = || {
        let stats = db.stats();
        stats.keyspaces.iter().find(|k| k.name == "second").unwrap().paged_tables
    };
    let before = paged();
    assert!(before > 5, "{}", db.stats());
    (0..25_000).step_by(50).for_each(|number| check(&second, number));
    let with_both = paged();
    db.drop_keyspace("first").unwrap();
    db.wait_idle().unwrap();
    // Those in the cache stay there; they are pushed out by blocks in time.
    (0..25_000).for_each(|number| check(&second, number));
    assert!(paged() < with_both / 2, "{} of {with_both}, {before}", paged());
}

#[test]
fn a_reader_and_a_checkpoint_need_no_index_in_memory() {
    let disk = SimDisk::new(1);
    settled(&disk, 3000);
    let db = builder(disk.clone()).metadata_percent(0).open().unwrap();
    db.checkpoint("/copy").unwrap();
    drop(db);
    for dir in ["/db", "/copy"] {
        let builder = Database::builder(dir).disk(Arc::new(disk.clone())).read_only(true);
        let executor = Arc::new(SeededExecutor::new(1));
        let db = builder.executor(executor).metadata_percent(0).open().unwrap();
        let keyspace = db.find("k").unwrap();
        (0..3000).for_each(|number| check(&keyspace, number));
        assert!(db.stats().index_loads > 0 && db.stats().paged_tables > 0);
    }
}
