//! Reads that ask the device for more than they would of settled data pay for settling it, and so do those that take longer
//! in memory.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use learnedkv::disk::sim::SimDisk;
use learnedkv::{
    Compression, Database, Keyspace, KeyspaceOptions, KeyspaceStats, ReadOptions, Store,
};

use crate::plain::{name, nothing_kept, open, open_on};
use crate::workload::Setup;

pub const KEYS: u32 = 2000;
/// What a sweep of all in one partition costs at the least: a few reads say little, and a step has its price.
const LEAST: u64 = 1024 + 64;

/// Keys with values of so many bytes, flushed.
fn fresh(setup: &Setup, value_bytes: usize) -> (Database, Keyspace) {
    let (db, keyspace) = open(setup);
    fill(&keyspace, value_bytes);
    (db, keyspace)
}

pub fn fill(keyspace: &Keyspace, value_bytes: usize) {
    (0..KEYS).for_each(|n| keyspace.insert(name(n), vec![n as u8; value_bytes]).unwrap());
    keyspace.flush().unwrap();
}

fn get(keyspace: &Keyspace, gets: u32) {
    for n in 0..gets {
        assert!(keyspace.get(name(n * 7 % KEYS)).unwrap().is_some());
    }
}

/// Some keys far from one another, in one call.
fn get_some(keyspace: &Keyspace, options: &ReadOptions) {
    let some: Vec<String> = (0..KEYS).step_by(100).map(name).collect();
    assert!(keyspace.multi_get_with(&some, options).unwrap().iter().all(Option::is_some));
}

/// Level by level, and all levels at once.
fn get_some_both_ways(keyspace: &Keyspace) {
    let both = [false, true].map(|at_once| ReadOptions::default().at_once(at_once));
    both.iter().for_each(|options| get_some(keyspace, options));
}

fn walk(keyspace: &Keyspace) {
    assert_eq!(keyspace.range(name(100)..).take(60).count(), 60);
}

/// After all that is due is done: what it says of itself, and how many sweeps there were.
pub fn idle(db: &Database, keyspace: &Keyspace) -> (KeyspaceStats, u64) {
    db.wait_idle().unwrap();
    (keyspace.stats().unwrap(), db.stats().sweeps)
}

/// What `read` paid, and how many requests it made for values.
fn paid(db: &Database, keyspace: &Keyspace, read: impl FnOnce()) -> (u64, u64) {
    let (before, of_values) = (keyspace.stats().unwrap(), db.stats().value_requests);
    read();
    let paid = keyspace.stats().unwrap().unsettled_requests - before.unsettled_requests;
    (paid, db.stats().value_requests - of_values)
}

/// However little there is to settle, and nothing else asks for it: each of these gets takes two requests, until that has cost
/// as much as settling.
#[test]
fn gets_of_values_apart_pay_for_a_sweep() {
    let (db, keyspace) = fresh(&nothing_kept(), 1000);
    let (before, sweeps) = idle(&db, &keyspace);
    assert_eq!((before.unsettled_requests, before.settling_price_requests, sweeps), (0, 0, 0));
    get(&keyspace, 1);
    let price = keyspace.stats().unwrap().settling_price_requests;
    // Two megabytes, three times each 128 KiB.
    assert!((LEAST + 45..LEAST + 60).contains(&price), "{price}");
    get(&keyspace, price as u32 - 2);
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.unsettled_requests, sweeps), (price - 1, 0), "one a get");
    // Nobody looks again before a quarter more of what was missing is paid.
    get(&keyspace, price as u32 / 20);
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
    fill(&keyspace, 1000);
    let begun = Instant::now();
    while db.stats().sweeps == 0 {
        get(&keyspace, 100);
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", keyspace.stats().unwrap());
    }
    assert_eq!(keyspace.stats().unwrap().settled_entries, u64::from(KEYS));
}

/// What settled data would take too is not paid for: a value that stays apart, a block that is read in the place of another,
/// what is in memory. Nor is anything where no sweep would begin.
#[test]
fn reads_that_bring_no_sweep_pay_nothing() {
    let with = |keyspace: KeyspaceOptions| Setup { keyspace, ..nothing_kept() };
    let options = KeyspaceOptions::default;
    let cases = [
        ("values that stay apart", with(options().inline_limit(600)), 1000),
        ("values that never move", with(options().move_values(false)), 1000),
        ("streamed values", Setup { stream_at: 900, ..nothing_kept() }, 1000),
        ("values beside their keys", nothing_kept(), 100),
        ("pointers in the cache", Setup { block_cache: true, ..nothing_kept() }, 1000),
        ("without the rule", with(options().settle_for_reads(false)), 1000),
        ("settled when asked", Setup { automatic_conversion: false, ..nothing_kept() }, 1000),
        ("levels", with(options().store(Store::Lsm)), 1000),
    ];
    for (case, setup, value_bytes) in cases {
        let (db, keyspace) = fresh(&setup, value_bytes);
        // Into the cache, where there is one.
        (0..KEYS).for_each(|n| assert!(keyspace.contains_key(name(n)).unwrap()));
        let before = db.stats().get_requests;
        get(&keyspace, 3000);
        assert!(db.stats().get_requests - before >= 3000, "{case}");
        get_some_both_ways(&keyspace);
        if !setup.block_cache {
            walk(&keyspace);
        }
        let (stats, sweeps) = idle(&db, &keyspace);
        assert_eq!((stats.unsettled_requests, sweeps), (0, 0), "{case}");
    }
}

/// Two fifths as much as was settled, by gets alone: where the keys are new they become a delta, as cheap as can be, where they
/// are not it would replace too much. A sweep that somebody asks for writes the base anew.
#[test]
fn a_sweep_that_reads_paid_for_writes_little() {
    const SETTLED: u32 = 24_000;
    let number = |n: u32| format!("key{n:08}");
    let new = |n: u32| number(n / 2 * 5 + 1 + n % 2);
    let old = |n: u32| number(n * 10);
    type Key<'a> = &'a dyn Fn(u32) -> String;
    let cases: [(Key, bool, bool, u64); 4] = [
        (&new, false, false, 1),
        (&old, false, false, 0),
        (&new, true, false, 0),
        // What is overwritten is not known where values stay apart.
        (&old, false, true, 0),
    ];
    let mut prices = Vec::new();
    for (at, (key, is_asked, is_one_long, deltas)) in cases.into_iter().enumerate() {
        let mut setup = nothing_kept();
        setup.keyspace = setup.keyspace.separate_at(16).over_provision_percent(100);
        let (db, keyspace) = open(&setup);
        (0..SETTLED).for_each(|n| keyspace.insert(number(n * 5), [1; 40]).unwrap());
        keyspace.convert().unwrap();
        (0..SETTLED / 5 * 2).for_each(|n| keyspace.insert(key(n), [2; 40]).unwrap());
        if is_one_long {
            keyspace.insert(number(7), [3; 20_000]).unwrap();
        }
        keyspace.flush().unwrap();
        let (stats, sweeps) = idle(&db, &keyspace);
        assert_eq!((sweeps, stats.deltas), (1, 0), "{at}");
        let read = |n: u32| assert_eq!(*keyspace.get(key(n)).unwrap().unwrap(), [2; 40]);
        read(0);
        let price = keyspace.stats().unwrap().settling_price_requests;
        prices.push(price);
        match is_asked {
            true => keyspace.convert().unwrap(),
            false => (0..3000).for_each(read),
        }
        let (stats, sweeps) = idle(&db, &keyspace);
        assert_eq!((sweeps, stats.deltas, stats.runs), (2, deltas, 0), "{at}, {price}: {stats}");
        (0..SETTLED / 5 * 2).step_by(7).for_each(read);
    }
    // It is the price of what is written.
    let [delta, base, _, beside_a_long_one] = prices[..] else { panic!("{prices:?}") };
    assert!(delta + 10 < base && base <= beside_a_long_one, "{prices:?}");
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

/// Walks and calls for many keys paid for short values that stand apart in settled tables (a full disk leaves such): no sweep
/// moves them, so one followed the other while anything was fresh.
#[test]
fn short_values_apart_in_settled_tables_are_not_paid_for() {
    let disk = SimDisk::new(1);
    let streamed = Setup { stream_at: 900, ..nothing_kept() };
    let (db, keyspace) = open_on(&disk, &streamed);
    fill(&keyspace, 1000);
    keyspace.convert().unwrap();
    drop((db, keyspace));
    let (db, keyspace) = open_on(&disk, &nothing_kept());
    keyspace.insert(name(KEYS), [1; 1000]).unwrap();
    keyspace.flush().unwrap();
    let reads = || {
        walk(&keyspace);
        get(&keyspace, 20);
        get_some_both_ways(&keyspace);
    };
    let (paid_for_settled, of_values) = paid(&db, &keyspace, reads);
    assert!(paid_for_settled == 0 && of_values >= 120, "{paid_for_settled} of {of_values}");
    assert_eq!(paid(&db, &keyspace, || _ = keyspace.get(name(KEYS)).unwrap()), (1, 1));
}

/// By so many requests as they make for values, which would have come with the blocks.
#[test]
fn walks_and_calls_for_many_keys_pay_too() {
    let (db, keyspace) = fresh(&nothing_kept(), 1000);
    let (of_walk, requests) = paid(&db, &keyspace, || walk(&keyspace));
    assert!(of_walk == requests && requests > 0, "{of_walk} of {requests}");
    for at_once in [false, true] {
        let options = ReadOptions::default().at_once(at_once);
        let (of_call, requests) = paid(&db, &keyspace, || get_some(&keyspace, &options));
        // Twenty values, and blocks of pointers: of each key one is what it would take anyway.
        assert!(of_call > 0 && of_call <= requests && requests == 20, "{of_call} of {requests}");
        let one = || assert!(keyspace.get_with(name(5), &options).unwrap().is_some());
        assert_eq!(paid(&db, &keyspace, one), (1, 1));
    }
    assert_eq!(paid(&db, &keyspace, || get(&keyspace, 10)), (10, 10));
    // A long walk takes requests for blocks as well.
    let whole = || assert_eq!(keyspace.iter().count(), KEYS as usize);
    let (of_walk, requests) = paid(&db, &keyspace, whole);
    assert!(of_walk < requests.max(2) / 2, "{of_walk} of {requests}");
}

/// Half of its values stay apart, and are read in settled tables too.
#[test]
fn of_mixed_values_those_that_move_are_paid_for() {
    let options = KeyspaceOptions::default().inline_limit(1500);
    let (db, keyspace) = open(&Setup { keyspace: options, ..nothing_kept() });
    for n in 0..KEYS {
        keyspace.insert(name(n), vec![n as u8; [1000, 2000][n as usize / 100 % 2]]).unwrap();
    }
    keyspace.flush().unwrap();
    let (of_call, requests) = paid(&db, &keyspace, || get_some(&keyspace, &ReadOptions::default()));
    assert_eq!((of_call, requests), (10, 20));
}

/// A delta takes what is fresh; more than a delta may take costs the whole partition; and only what lies where something is
/// fresh.
#[test]
fn the_price_is_of_what_a_sweep_moves() {
    let mut setup = nothing_kept();
    setup.keyspace = setup.keyspace.partition_bytes(256 << 10);
    let (_db, keyspace) = fresh(&setup, 1000);
    keyspace.convert().unwrap();
    let price = |keys: &mut dyn Iterator<Item = u32>| {
        let last = keys.inspect(|n| keyspace.insert(name(*n), [1; 1000]).unwrap()).last();
        keyspace.flush().unwrap();
        assert!(keyspace.get(name(last.unwrap())).unwrap().is_some());
        keyspace.stats().unwrap().settling_price_requests
    };
    let partitions = keyspace.stats().unwrap().partitions;
    assert!(partitions >= 7, "{partitions}");
    let of_end = price(&mut (KEYS - 10..KEYS));
    let of_few = price(&mut (0..KEYS).step_by(100));
    let of_many = price(&mut (0..KEYS).step_by(2));
    let apart = 64 * (partitions - 1);
    assert!((LEAST..LEAST + 10).contains(&of_end), "{of_end}");
    assert!((of_end + apart..of_end + apart + 10).contains(&of_few), "{of_few}");
    // Two or three megabytes more (what is overwritten is known of many keys only), three times each 128 KiB.
    assert!((of_few + 40..of_few + 80).contains(&of_many), "{of_many} {of_few}");
}

/// What lies in blocks compressed and fresh uncompressed is priced as it will be written.
#[test]
fn the_price_is_of_compressed_bytes() {
    let options = KeyspaceOptions::default().settled_compression(Compression::Lz4);
    let (_db, keyspace) = fresh(&Setup { keyspace: options, ..nothing_kept() }, 1000);
    keyspace.convert().unwrap();
    fill(&keyspace, 1000);
    get(&keyspace, 1);
    let price = keyspace.stats().unwrap().settling_price_requests;
    assert!((LEAST..LEAST + 20).contains(&price), "{price}");
}

/// A sweep takes space before it gives back what it replaced: with little room, one that only reads asked for would fill the disk,
/// and puts would be refused.
#[test]
fn a_sweep_for_reads_waits_for_room() {
    let disk = SimDisk::new(1);
    let mut setup = nothing_kept();
    setup.keyspace = setup.keyspace.partition_bytes(256 << 10);
    let (db, keyspace) = open_on(&disk, &setup);
    fill(&keyspace, 1000);
    db.wait_idle().unwrap();
    disk.set_space_limit_bytes(Some(disk.used_bytes() + (2 << 20)));
    get(&keyspace, 5000);
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.unsettled_requests, sweeps), (5000, 0));
    disk.set_space_limit_bytes(Some(disk.used_bytes() + (4 << 20)));
    get(&keyspace, 1024);
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.settled_entries, sweeps), (u64::from(KEYS), 1));
    keyspace.insert("more", [1; 1000]).unwrap();
}

/// Walks over several runs took more than twice as long as over one, for ever: nothing else settles a small store. That they are
/// several is mended by a merge, which costs a small part of a sweep.
#[test]
fn walks_over_many_runs_in_memory_pay_for_a_merge_and_then_for_a_sweep() {
    let (db, keyspace) = open(&Setup { block_cache: true, ..nothing_kept() });
    let walk = || assert_eq!(keyspace.iter().count(), KEYS as usize);
    fill(&keyspace, 100);
    (0..300).for_each(|_| walk());
    let (stats, _) = idle(&db, &keyspace);
    assert_eq!((stats.runs, stats.unsettled_requests), (1, 0), "one run is no more than a base");
    while keyspace.stats().unwrap().runs < 3 {
        fill(&keyspace, 100);
    }
    let requests = db.stats().read_requests;
    // Each looks at two more for each of 2,000 entries: two requests of 2,048 shares. It is asked for once 128 are paid.
    let merged = (1..=100).find(|_| {
        walk();
        idle(&db, &keyspace);
        db.stats().merges_for_reads > 0
    });
    assert!(merged.is_some_and(|walks| (60..70).contains(&walks)), "{merged:?}");
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.runs, stats.lsm_entries, sweeps), (1, u64::from(KEYS), 0));
    assert!(stats.unsettled_requests > 100, "it is no less for a sweep");
    (0..300).for_each(|_| walk());
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.runs, stats.unsettled_requests / 10, sweeps), (1, 12, 0));
    // Beside what is settled the last of them is one more: a request a walk. The price is 1,088 and what is written, and is
    // asked for again and again.
    keyspace.convert().unwrap();
    fill(&keyspace, 100);
    let swept = (1..=2000).find(|_| {
        walk();
        idle(&db, &keyspace).1 > 1
    });
    assert!(swept.is_some_and(|walks| (1000..1500).contains(&walks)), "{swept:?}");
    let (stats, _) = idle(&db, &keyspace);
    assert_eq!((stats.runs, stats.settled_entries), (0, u64::from(KEYS)));
    // What was in no cache yet, and what the sweeps read.
    assert!(db.stats().read_requests - requests < 500);
    (0..300).for_each(|_| walk());
    assert_eq!(idle(&db, &keyspace).0.unsettled_requests, 0);
    assert_eq!(db.stats().merges_for_reads, 1);
}

/// A get looks in one run after another for its key, also where all are in memory.
#[test]
fn gets_that_ask_runs_in_vain_pay_for_a_merge_and_then_for_a_sweep() {
    let keyspace = KeyspaceOptions::default().lsm_filter(None);
    let (db, keyspace) = open(&Setup { block_cache: true, keyspace, ..nothing_kept() });
    for part in 0..3 {
        (part..KEYS).step_by(3).for_each(|n| keyspace.insert(name(n), [n as u8; 100]).unwrap());
        keyspace.flush().unwrap();
    }
    assert_eq!(idle(&db, &keyspace).0.runs, 3);
    (0..KEYS).for_each(|n| assert!(keyspace.contains_key(name(n)).unwrap()));
    let newest =
        || (0..3000).for_each(|n| assert!(keyspace.get(name(n * 3 % 1998 + 2)).unwrap().is_some()));
    assert!((0..3).all(|_| paid(&db, &keyspace, newest).0 == 0), "the first run has it");
    // Two runs in vain, of twelve shares each; less than one request is not seen.
    let (owed, _) = paid(&db, &keyspace, || {
        (0..3000).for_each(|n| assert!(keyspace.get(name(n * 3 % 1998)).unwrap().is_some()))
    });
    assert!(owed.abs_diff(3000 * 24 / 2048) <= 1, "{owed}");
    // One in vain on average: 117 requests a round, of which two in three would not be made of one run; 128 are asked for.
    let rounds = |until: &dyn Fn() -> bool| {
        (1..=30).find(|_| {
            get(&keyspace, 20_000);
            idle(&db, &keyspace);
            until()
        })
    };
    assert_eq!(rounds(&|| db.stats().merges_for_reads == 1), Some(2));
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.runs, sweeps), (1, 0));
    assert_eq!(paid(&db, &keyspace, || get(&keyspace, 20_000)).0, 0);
    // One run of other keys beside what is settled, each asked in vain: 117 a round of 1,088 and what is written, asked for again
    // and again.
    keyspace.convert().unwrap();
    [0, KEYS].iter().for_each(|n| keyspace.insert(name(*n) + "!", [1; 100]).unwrap());
    keyspace.flush().unwrap();
    let swept = rounds(&|| db.stats().sweeps > 1);
    assert!(swept.is_some_and(|rounds| (9..17).contains(&rounds)), "{swept:?}");
    get(&keyspace, 20_000);
    assert_eq!(idle(&db, &keyspace).0.unsettled_requests, 0);
    assert_eq!(db.stats().merges_for_reads, 1);
}

/// Data that is written once and read for ever stays in several runs where it is too little for a sweep: each get asks their
/// filters, and took 1.4 times as long. Where merging runs would cost no less, it is a sweep that they pay for.
#[test]
fn gets_that_ask_the_filters_of_several_runs_pay_for_a_merge_or_a_sweep() {
    gets_ask_filters(100, true);
    gets_ask_filters(7000, false);
}

fn gets_ask_filters(value_bytes: usize, merges: bool) {
    const RUNS: u32 = 4;
    let keyspace = KeyspaceOptions::default().separate_at(8000);
    let (db, keyspace) = open(&Setup { block_cache: true, keyspace, ..nothing_kept() });
    for part in 0..RUNS {
        (part..KEYS)
            .step_by(RUNS as usize)
            .for_each(|n| keyspace.insert(name(n), vec![n as u8; value_bytes]).unwrap());
        keyspace.flush().unwrap();
    }
    assert_eq!(idle(&db, &keyspace).0.runs, u64::from(RUNS));
    let of_part = |part: u32, end: &'static str| {
        let keyspace = &keyspace;
        move || {
            for n in 0..4000 {
                let key = name((n * RUNS) % KEYS + part) + end;
                assert_eq!(keyspace.get(key).unwrap().is_some(), end.is_empty());
            }
        }
    };
    of_part(0, "")();
    // A filter passes a key in a hundred in vain, which costs twelve.
    let in_vain = 4000 * 3 * 12 * 2 / 100;
    for (part, shares) in [(3, 0), (2, 0), (1, 3), (0, 6)] {
        let (owed, _) = paid(&db, &keyspace, of_part(part, ""));
        let least = 4000 * shares * 95 / 100 / 2048;
        assert!((least..=(4000 * shares + in_vain) / 2048 + 1).contains(&owed), "{part}: {owed}");
    }
    let (owed, _) = paid(&db, &keyspace, of_part(0, "!"));
    assert!(owed <= in_vain / 2048 + 1, "settled data would not answer these sooner: {owed}");
    for round in 0.. {
        (0..25).for_each(|_| of_part(0, "")());
        let (stats, sweeps) = idle(&db, &keyspace);
        let is_merged = db.stats().merges_for_reads > 0;
        if is_merged || sweeps > 0 {
            // 293 requests a round, of which 128 are enough to ask whether to merge; of 1,088 and what is written, asked for
            // again and again.
            let rounds = if merges { 0..1 } else { 2..8 };
            assert!(rounds.contains(&round), "{round}");
            assert_eq!((is_merged, sweeps > 0, stats.runs), (merges, !merges, merges.into()));
            break;
        }
        assert!(round < 20, "{}", keyspace.stats().unwrap());
    }
    assert_eq!(paid(&db, &keyspace, of_part(0, "")).0, 0);
}

/// A value apart takes longer in memory too. On the system's disk, in whose cache what was just written is.
#[test]
fn values_apart_in_memory_are_paid_for_as_a_share() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path()).memtable_bytes(4 << 20).memory_budget_bytes(32 << 20);
    let db = db.open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 1000);
    let one_by_one = || get(&keyspace, 20_000);
    let together = || (0..1000).for_each(|_| get_some_both_ways(&keyspace));
    let walked = || (0..500).for_each(|_| walk(&keyspace));
    let visited = || {
        for _ in 0..500 {
            let mut left = 60;
            let visit = |_: &[u8], _: &[u8]| {
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            keyspace.range(name(100)..).visit(visit).unwrap();
        }
    };
    for read in [&one_by_one as &dyn Fn(), &together, &walked, &visited] {
        let before = db.stats().mapped_values;
        let (paid, requests) = paid(&db, &keyspace, read);
        let mapped = db.stats().mapped_values - before;
        if mapped == 0 {
            println!("skipped: this file system does not say what of a file is in its cache");
            return;
        }
        let owed = paid.checked_sub(requests).expect("what was read is paid for as requests");
        assert!(mapped >= 19_000 && owed.abs_diff(mapped * 4 / 2048) <= 1, "{owed} of {mapped}");
    }
}

/// Whoever asked for the first key went over all that was removed before it, for ever.
#[test]
fn walks_over_removed_keys_pay_for_a_sweep() {
    let (db, keyspace) = fresh(&Setup { block_cache: true, ..nothing_kept() }, 100);
    (0..1500).for_each(|n| keyspace.remove(name(n)).unwrap());
    keyspace.flush().unwrap();
    let first =
        || assert_eq!(*keyspace.first_key_value().unwrap().unwrap().0, *name(1500).as_bytes());
    let (owed, _) = paid(&db, &keyspace, || (0..100).for_each(|_| first()));
    assert!(owed.abs_diff(100 * 1500 * 3 / 2048) <= 1, "{owed}");
    (0..700).for_each(|_| first());
    let (stats, sweeps) = idle(&db, &keyspace);
    assert_eq!((stats.settled_entries, stats.lsm_entries, sweeps), (500, 0, 1));
    let (owed, _) = paid(&db, &keyspace, || (0..100).for_each(|_| first()));
    assert_eq!(owed, 0);
}
