//! Reads that ask the device for more than they would of settled data pay for settling it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use learnedkv::disk::sim::SimDisk;
use learnedkv::{Database, Keyspace, KeyspaceOptions, KeyspaceStats};

use crate::workload::Setup;

const KEYS: u32 = 2000;

fn name(number: u32) -> String {
    format!("key{number:05}")
}

/// Nothing but reads makes a sweep due; blocks are neither cached nor mapped.
fn nothing_kept() -> Setup {
    Setup {
        mapped_reads: false,
        block_cache: false,
        memtable_bytes: 4 << 20,
        memory_budget_bytes: 32 << 20,
        stream_at: 1 << 20,
        keyspace: KeyspaceOptions::default(),
        ..Setup::default()
    }
}

/// Keys with values of so many bytes, flushed.
fn fresh(setup: &Setup, value_bytes: usize) -> (Database, Keyspace) {
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (0..KEYS).for_each(|n| keyspace.insert(name(n), vec![n as u8; value_bytes]).unwrap());
    keyspace.flush().unwrap();
    (db, keyspace)
}

fn get(keyspace: &Keyspace, gets: u32) {
    for n in 0..gets {
        assert!(keyspace.get(name(n * 7 % KEYS)).unwrap().is_some());
    }
}

/// After all that is due is done: what it says of itself, and how many sweeps there were.
fn idle(db: &Database, keyspace: &Keyspace) -> (KeyspaceStats, u64) {
    db.wait_idle().unwrap();
    (keyspace.stats().unwrap(), db.stats().sweeps)
}

/// However little there is to settle, and nothing else asks for it: each of these gets takes two requests, until that has cost
/// as much as settling.
#[test]
fn gets_of_values_apart_pay_for_a_sweep() {
    let (db, keyspace) = fresh(&nothing_kept(), 1000);
    let (before, sweeps) = idle(&db, &keyspace);
    let price = before.settling_price_requests;
    assert!((1025..1500).contains(&price), "{price}");
    assert_eq!((before.unsettled_requests, sweeps), (0, 0));
    get(&keyspace, price as u32 - 1);
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.unsettled_requests, sweeps), (price - 1, 0), "one a get");
    get(&keyspace, 1);
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.settled_entries, sweeps), (u64::from(KEYS), 1));
    assert_eq!((stats.unsettled_requests, stats.settling_price_requests), (0, 0));
    let requests = db.stats().get_requests;
    get(&keyspace, 100);
    assert_eq!(db.stats().get_requests - requests, 100);
    assert_eq!(idle(&db, &keyspace).0.unsettled_requests, 0);
}

/// Nobody asks, and nothing is written: whoever paid the last of it says so.
#[test]
fn the_sweep_begins_by_itself_while_reads_go_on() {
    let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1))).mapped_reads(false);
    let db =
        db.block_cache(false).memtable_bytes(4 << 20).memory_budget_bytes(32 << 20).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (0..KEYS).for_each(|n| keyspace.insert(name(n), [n as u8; 1000]).unwrap());
    keyspace.flush().unwrap();
    let begun = Instant::now();
    while db.stats().sweeps == 0 {
        get(&keyspace, 100);
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", keyspace.stats().unwrap());
    }
    assert_eq!(keyspace.stats().unwrap().settled_entries, u64::from(KEYS));
}

/// What settled data would take too is not paid for: a value that stays apart, a block that is read in the place of another,
/// what is in memory.
#[test]
fn reads_that_settled_data_would_take_too_pay_nothing() {
    let with = |keyspace: KeyspaceOptions| Setup { keyspace, ..nothing_kept() };
    let options = KeyspaceOptions::default;
    let cases = [
        ("values that stay apart", with(options().inline_limit(600)), 1000),
        ("values that never move", with(options().move_values(false)), 1000),
        ("values beside their keys", nothing_kept(), 100),
        ("pointers in the cache", Setup { block_cache: true, ..nothing_kept() }, 1000),
    ];
    for (case, setup, value_bytes) in cases {
        let (db, keyspace) = fresh(&setup, value_bytes);
        // Into the cache, where there is one.
        (0..KEYS).for_each(|n| assert!(keyspace.contains_key(name(n)).unwrap()));
        let before = db.stats().get_requests;
        get(&keyspace, 3000);
        assert!(db.stats().get_requests - before >= 3000, "{case}");
        let keys: Vec<String> = (0..KEYS).step_by(100).map(name).collect();
        assert!(keyspace.multi_get(&keys).unwrap().iter().all(Option::is_some));
        let (stats, sweeps) = idle(&db, &keyspace);
        assert_eq!((stats.unsettled_requests, sweeps), (0, 0), "{case}");
    }
}

/// A snapshot of what was not settled then takes two requests for each get as long as it is held: no sweep helps it.
#[test]
fn reads_of_what_is_settled_by_now_pay_nothing() {
    let (db, keyspace) = fresh(&nothing_kept(), 1000);
    let snapshot = db.snapshot();
    keyspace.convert().unwrap();
    keyspace.insert("new", [1; 1000]).unwrap();
    keyspace.flush().unwrap();
    let requests = db.stats().get_requests;
    (0..KEYS).for_each(|n| assert!(snapshot.get(&keyspace, name(n)).unwrap().is_some()));
    assert_eq!(snapshot.range(&keyspace, name(100)..).take(60).count(), 60);
    assert_eq!(db.stats().get_requests - requests, 2 * u64::from(KEYS));
    assert_eq!(keyspace.stats().unwrap().unsettled_requests, 0);
}

#[test]
fn without_the_rule_or_automatic_conversion_reads_bring_no_sweep() {
    let without = KeyspaceOptions::default().settle_for_reads(false);
    let cases = [
        Setup { keyspace: without, ..nothing_kept() },
        Setup { automatic_conversion: false, ..nothing_kept() },
    ];
    for setup in cases {
        let (db, keyspace) = fresh(&setup, 1000);
        get(&keyspace, 5000);
        let (stats, sweeps) = idle(&db, &keyspace);
        assert_eq!((stats.unsettled_requests, sweeps), (5000, 0));
        let price = stats.settling_price_requests;
        assert_eq!(price == 0, setup.automatic_conversion, "{price}");
    }
}

/// By so many requests as they make for values, which would have come with the blocks.
#[test]
fn walks_and_calls_for_many_keys_pay_too() {
    let (db, keyspace) = fresh(&nothing_kept(), 1000);
    let paid = |read: &dyn Fn()| {
        let (before, of_values) = (keyspace.stats().unwrap(), db.stats().value_requests);
        read();
        let paid = keyspace.stats().unwrap().unsettled_requests - before.unsettled_requests;
        (paid, db.stats().value_requests - of_values)
    };
    let (of_walk, requests) =
        paid(&|| assert_eq!(keyspace.range(name(100)..).take(60).count(), 60));
    assert!(of_walk == requests && requests > 0, "{of_walk} of {requests}");
    let many: Vec<String> = (0..KEYS).step_by(100).map(name).collect();
    let (of_call, requests) =
        paid(&|| assert!(keyspace.multi_get(&many).unwrap().iter().all(Option::is_some)));
    // Twenty values, and blocks of pointers: of each key one is what it would take anyway.
    assert!(of_call > 0 && of_call <= requests && requests == 20, "{of_call} of {requests}");
    assert_eq!(paid(&|| get(&keyspace, 10)), (10, 10));
}

/// A delta takes what is fresh; more than a delta may take costs the whole partition; and only what lies where something is
/// fresh.
#[test]
fn the_price_is_of_what_a_sweep_moves() {
    let mut setup = nothing_kept();
    setup.keyspace = setup.keyspace.partition_bytes(256 << 10);
    let (db, keyspace) = fresh(&setup, 1000);
    keyspace.convert().unwrap();
    let price = |keys: &mut dyn Iterator<Item = u32>| {
        keys.for_each(|n| keyspace.insert(name(n), [1; 1000]).unwrap());
        keyspace.flush().unwrap();
        keyspace.stats().unwrap().settling_price_requests
    };
    let partitions = keyspace.stats().unwrap().partitions;
    assert!(partitions >= 7, "{partitions}");
    let of_end = price(&mut (KEYS - 10..KEYS));
    let of_few = price(&mut (0..KEYS).step_by(100));
    let of_many = price(&mut (0..KEYS).step_by(2));
    let apart = 64 * (partitions - 1);
    assert!(of_end < 1024 + 64 + 10, "{of_end}");
    assert!((of_end + apart..of_end + apart + 10).contains(&of_few), "{of_few}");
    // Two megabytes more, three times each 64 KiB.
    assert!(of_many > of_few + 90, "{of_many} {of_few}");
    drop(db);
}
