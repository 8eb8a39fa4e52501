//! How much walks read ahead, as they learn how far walks go.

use std::sync::Arc;

use learnedkv::disk::OperationKind;
use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::SimDisk;
use learnedkv::{Keyspace, ReadOptions, Slice, Store};

use crate::plain::{self, name, open};
use crate::workload::Setup;

/// Nor does anything settle by itself.
fn nothing_kept() -> Setup {
    Setup { automatic_conversion: false, ..plain::nothing_kept() }
}

/// Walks of one length are soon known: each is one request, from either end and of a snapshot too. Who looks for one entry
/// reads no more for it, and changes nothing.
#[test]
fn walks_as_long_as_those_before_are_one_request() {
    let (db, keyspace) = open(&nothing_kept());
    (0..3000).for_each(|number| keyspace.insert(name(number), [7; 300]).unwrap());
    keyspace.convert().unwrap();
    let requests = |read: &dyn Fn()| {
        let before = db.stats().read_requests;
        read();
        db.stats().read_requests - before
    };
    let snapshot = db.snapshot();
    let up = || assert_eq!(keyspace.range(name(1000)..).take(150).count(), 150);
    let down = || assert_eq!(keyspace.range(..name(1000)).rev().take(150).count(), 150);
    let before = || assert_eq!(snapshot.range(&keyspace, name(1000)..).take(150).count(), 150);
    assert!(requests(&up) > 2);
    (0..40).for_each(|_| up());
    for _ in 0..10 {
        assert_eq!([requests(&up), requests(&down), requests(&before)], [1, 1, 1]);
        let first = || _ = keyspace.first_key_value().unwrap().unwrap();
        let last = || _ = snapshot.last_key_value(&keyspace).unwrap().unwrap();
        let any = || assert!(!keyspace.is_empty().unwrap());
        let bytes = db.stats().read_bytes;
        assert_eq!([requests(&first), requests(&last), requests(&any)], [1, 1, 1]);
        assert!(db.stats().read_bytes - bytes <= 3 * 4096, "{}", db.stats());
    }
    // And others are known as soon.
    (0..100).for_each(|number| _ = keyspace.range(name(number)..).next().unwrap().unwrap());
    let bytes = db.stats().read_bytes;
    keyspace.range(name(1000)..).next().unwrap().unwrap();
    assert!(db.stats().read_bytes - bytes <= 4096, "{}", db.stats());
}

/// Where most entries are is what is read ahead: runs that nobody settled, levels, the bases where the first of them is empty, and
/// not the few that are newer; of deltas as much as they have of it.
#[test]
fn what_is_read_ahead_of_a_walk_is_where_most_entries_are() {
    type Prepare = fn(&Keyspace);
    let flushed: Prepare = |keyspace| keyspace.flush().unwrap();
    let newer: Prepare = |keyspace| {
        keyspace.convert().unwrap();
        (0..3000).step_by(100).for_each(|n| keyspace.insert(name(n), [8; 300]).unwrap());
        keyspace.flush().unwrap();
    };
    let emptied: Prepare = |keyspace| {
        keyspace.convert().unwrap();
        (0..700).for_each(|n| keyspace.remove(name(n)).unwrap());
        keyspace.convert().unwrap();
        keyspace.insert(name(5), [8; 300]).unwrap();
        keyspace.flush().unwrap();
    };
    let settled: Prepare = |keyspace| keyspace.convert().unwrap();
    let over: Prepare = |keyspace| {
        keyspace.convert().unwrap();
        (0..3000).step_by(7).for_each(|n| keyspace.insert(name(n), [8; 300]).unwrap());
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        assert!(stats.deltas + 1 >= stats.partitions, "{stats}");
    };
    let ways = [
        ("flushed", Store::Tiered, flushed, 80, 1),
        ("over", Store::Tiered, over, 150, 2),
        ("newer", Store::Tiered, newer, 80, 2),
        ("emptied", Store::Tiered, emptied, 80, 2),
        ("levels", Store::Lsm, settled, 80, 1),
    ];
    for (way, store, prepare, length, most) in ways {
        let mut setup = nothing_kept();
        let options = setup.keyspace.store(store).partition_bytes(200 << 10);
        setup.keyspace = options.over_provision_percent(100);
        let (db, keyspace) = open(&setup);
        (0..3000).for_each(|number| keyspace.insert(name(number), [7; 300]).unwrap());
        prepare(&keyspace);
        let walk = |from: u32| {
            let before = db.stats().read_requests;
            assert_eq!(keyspace.range(name(from)..).take(length).count(), length, "{way}");
            db.stats().read_requests - before
        };
        (0..60).for_each(|_| _ = walk(1100));
        // But for walks over the end of a table.
        let mut costs: Vec<_> = (800..2400).step_by(50).map(walk).collect();
        costs.sort_unstable();
        assert!(costs[costs.len() / 2] <= most, "{way}: {costs:?}, {}", keyspace.stats().unwrap());
    }
}

/// A walk begins in each row: what it has to read there first comes by one call to the disk, from either end. What fails there is
/// read again by itself; and where all of it is at hand nothing is read.
#[test]
fn a_walk_begins_in_all_rows_at_once() {
    let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    for (is_kept, rows) in [(false, 4), (true, 0)] {
        let mut setup = Setup { block_cache: is_kept, ..nothing_kept() };
        setup.keyspace = setup.keyspace.partition_bytes(200 << 10).over_provision_percent(100);
        let db = setup.open_at(&disk, &format!("/db{rows}"), 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let put = |step, fill: u8| {
            (0..3000).step_by(step).for_each(|n| keyspace.insert(name(n), [fill; 300]).unwrap());
            keyspace.flush().unwrap();
        };
        put(1, 7);
        keyspace.convert().unwrap();
        put(7, 8);
        keyspace.convert().unwrap();
        [(20, 9), (30, 10)].iter().for_each(|(step, fill)| put(*step, *fill));
        let stats = keyspace.stats().unwrap();
        assert!(stats.deltas + 1 >= stats.partitions && stats.runs == 2, "{stats}");
        let is_right = |from: u32, (key, value): (Slice, Slice)| {
            let fills = [(30, 10), (20, 9), (7, 8), (1, 7)];
            let (_, fill) = fills.into_iter().find(|(step, _)| from.is_multiple_of(*step)).unwrap();
            assert_eq!((&*key, &*value), (name(from).as_bytes(), &[fill; 300][..]));
        };
        let up = |from: u32| {
            let walk = keyspace.range(name(from)..).take(40).map(Result::unwrap);
            (from..).zip(walk).for_each(|(at, entry)| is_right(at, entry));
        };
        let down = |from: u32| {
            let walk = keyspace.range(..=name(from)).rev().take(40).map(Result::unwrap);
            (0..=from).rev().zip(walk).for_each(|(at, entry)| is_right(at, entry));
        };
        for walk in [&up as &dyn Fn(u32), &down] {
            (0..30).for_each(|_| walk(1510));
            disk.take_most_together();
            let before = db.stats().read_requests;
            walk(1510);
            assert_eq!(disk.take_most_together(), rows);
            // Each once. (The walk may end behind what was read first.)
            let requests = db.stats().read_requests - before;
            assert!((rows as u64..=rows as u64 + 1).contains(&requests), "{requests}");
            // Once, and again by whoever needs it.
            let reads = disk.fail(Fault::never().of(&[OperationKind::Read]));
            walk(1510);
            for at in 0..reads.matched().min(rows as u64) {
                disk.clear_faults();
                disk.fail(Fault::at(at).of(&[OperationKind::Read]));
                walk(1510);
            }
            disk.clear_faults();
        }
        let no_fill = ReadOptions::default().fill_cache(false);
        let ends: [&dyn Fn() -> bool; 4] = [
            &|| keyspace.first_key_value().unwrap().is_some(),
            &|| keyspace.last_key_value().unwrap().is_some(),
            &|| keyspace.last_key_value_with(&no_fill).unwrap().is_some(),
            &|| keyspace.iter().next_back().is_some(),
        ];
        for (at, end) in ends.into_iter().enumerate().filter(|_| !is_kept) {
            let before = db.stats().read_requests;
            assert!(end());
            let requests = db.stats().read_requests - before;
            assert!(requests <= rows as u64, "{at}: {requests}");
        }
    }
}

/// Values kept apart are read together for as many entries as walks usually go over, from the first on.
#[test]
fn values_of_walks_as_long_as_those_before_are_read_together() {
    let mut setup = nothing_kept();
    setup.keyspace = setup.keyspace.separate_at(100);
    let (db, keyspace) = open(&setup);
    (0..1000).for_each(|number| keyspace.insert(name(number), [7; 300]).unwrap());
    keyspace.flush().unwrap();
    let read = |entries: usize| {
        let before = db.stats().value_read_bytes;
        assert_eq!(keyspace.range(name(300)..).take(entries).count(), entries);
        db.stats().value_read_bytes - before
    };
    let first = read(1);
    assert!((300..400).contains(&first), "{first}");
    (0..60).for_each(|_| _ = read(12));
    // No more are read than walks go over, and an eighth.
    assert!((12 * first..=14 * first).contains(&read(12)));
    assert!((12 * first..=14 * first).contains(&read(1)), "they were expected");
    (0..60).for_each(|_| _ = read(60));
    assert_eq!(read(1), 16 * first, "there is a bound");
}
