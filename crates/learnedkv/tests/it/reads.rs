//! Reads beside those the model compares: edges of prefixes, errors in iterators, options per call,
//! estimates, keyspaces that are gone.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::SimDisk;
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::{
    Database, Durability, ErrorKind, IndexKind, Keyspace, KeyspaceOptions, ReadOptions, Slice,
    WriteOptions,
};

use crate::plain::{name, nothing_kept, open};
use crate::workload::Setup;

/// A prefix of 0xff bytes has no end of the same length; the empty one has none at all.
#[test]
fn prefixes_end_where_their_keys_do() {
    let (db, keyspace) = open(&Setup::default());
    let keys: [&[u8]; 9] = [
        b"",
        b"a",
        b"a\xff",
        b"a\xff\xff",
        b"a\xff\xff\0",
        b"b",
        b"\xfe\xff",
        b"\xff",
        b"\xff\xff\xff",
    ];
    for settled in [false, true] {
        for key in keys {
            keyspace.insert(key, "v").unwrap();
        }
        if settled {
            keyspace.convert().unwrap();
        }
        let snapshot = db.snapshot();
        let prefixes: [&[u8]; 8] =
            [b"", b"a", b"a\xff", b"a\xff\xff", b"\xfe", b"\xff", b"\xff\xff", b"c"];
        for prefix in prefixes {
            let expected: Vec<_> = keys.iter().filter(|k| k.starts_with(prefix)).collect();
            let up: Vec<_> = keyspace.prefix(prefix).keys().map(Result::unwrap).collect();
            assert_eq!(up, expected, "{prefix:?}");
            let mut down: Vec<_> =
                snapshot.prefix(&keyspace, prefix).rev().map(|e| e.unwrap().0).collect();
            down.reverse();
            assert_eq!(down, expected, "{prefix:?}, downwards");
        }
    }
}

/// A `BTreeMap` panics at the first two; here they are empty.
#[test]
fn ranges_that_end_before_they_begin_are_empty() {
    use std::ops::Bound::{Excluded, Included};
    let (db, keyspace) = open(&Setup::default());
    for key in ["a", "b", "c"] {
        keyspace.insert(key, "v").unwrap();
    }
    let ranges = [
        (Included("c"), Included("a")),
        (Excluded("b"), Excluded("b")),
        (Included("b"), Excluded("b")),
        (Excluded("b"), Included("b")),
        (Excluded("b"), Excluded("b\0")),
        (Included("d"), Excluded("a")),
    ];
    for range in ranges {
        let mut iter = keyspace.range::<&str>(range);
        assert!(iter.next().is_none() && iter.next_back().is_none(), "{range:?}");
        assert!(iter.next().is_none(), "{range:?}: once more");
        assert_eq!(db.snapshot().range::<&str>(&keyspace, range).count(), 0, "{range:?}");
        assert_eq!(keyspace.approximate_size::<&str>(range).unwrap(), 0, "{range:?}");
    }
}

/// Whoever counts on the end after an error would take the rest for missing.
#[test]
fn after_an_error_iterators_go_on_with_it_at_both_ends() {
    let setup = Setup { block_cache: false, ..Setup::default() };
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let db = setup.open(&faulty, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    for number in 0..200 {
        keyspace.insert(name(number), [7; 50]).unwrap();
    }
    keyspace.convert().unwrap();
    for front in [true, false] {
        // What cannot be read with others is read alone.
        let counts = faulty.fail(Fault::at(1).of(&[OperationKind::Read]).from_then_on());
        let mut iter = keyspace.iter();
        let mut step = || if front { iter.next() } else { iter.next_back() };
        let mut given = 0;
        let error = loop {
            match step().expect("an error, not the end") {
                Ok(_) => given += 1,
                Err(error) => break error,
            }
        };
        assert!(given < 200 && counts.fired() >= 1, "front {front}: {given} given");
        assert_eq!(error.kind(), ErrorKind::Io);
        let mut keys = iter.keys();
        for _ in 0..3 {
            assert_eq!(keys.next().unwrap().unwrap_err().to_string(), error.to_string());
            assert_eq!(keys.next_back().unwrap().unwrap_err().to_string(), error.to_string());
        }
        faulty.clear_faults();
        assert_eq!(keyspace.keys().count(), 200, "a new one reads on");
    }
}

/// A dropped keyspace must not look like an empty one.
#[test]
fn reads_of_a_keyspace_that_is_gone_say_so() {
    let setup = Setup::default();
    let (db, keyspace) = open(&setup);
    keyspace.insert("a", "v").unwrap();
    let before = db.snapshot();
    db.drop_keyspace("k").unwrap();
    let is_gone =
        |error: learnedkv::Error| assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    is_gone(keyspace.get("a").unwrap_err());
    is_gone(keyspace.contains_key("a").unwrap_err());
    is_gone(keyspace.size_of("a").unwrap_err());
    is_gone(keyspace.is_empty().unwrap_err());
    is_gone(keyspace.first_key_value().unwrap_err());
    is_gone(keyspace.iter().next().unwrap().unwrap_err());
    is_gone(keyspace.approximate_len().unwrap_err());
    is_gone(keyspace.approximate_size::<&str>(..).unwrap_err());
    assert_eq!(before.get(&keyspace, "a").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(before.size_of(&keyspace, "a").unwrap(), Some(1));
    assert!(before.contains_key(&keyspace, "a").unwrap() && !before.is_empty(&keyspace).unwrap());
    assert_eq!(before.last_key_value(&keyspace).unwrap().unwrap().0, "a");
    // One made later is not in the snapshot, nor one of another database.
    let again = db.keyspace("k", setup.keyspace.clone()).unwrap();
    is_gone(before.get(&again, "a").unwrap_err());
    is_gone(before.iter(&again).next().unwrap().unwrap_err());
    let (_other, elsewhere) = open(&setup);
    assert_eq!(before.get(&elsewhere, "a").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn reads_that_leave_the_cache_alone_do() {
    for mapped_reads in [false, true] {
        leave_the_cache_alone(&Setup {
            automatic_conversion: false,
            mapped_reads,
            ..Setup::default()
        });
    }
}

fn leave_the_cache_alone(setup: &Setup) {
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    for number in 0..300 {
        keyspace.insert(name(number), [7; 50]).unwrap();
    }
    keyspace.convert().unwrap();
    drop((db, keyspace));
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.find("k").unwrap();
    let leave = ReadOptions::default().fill_cache(false);
    assert_eq!(keyspace.range_with::<&str>(.., &leave).count(), 300);
    assert_eq!(keyspace.range_with::<&str>(.., &leave).rev().count(), 300);
    assert_eq!(db.snapshot().range_with::<&str>(&keyspace, .., &leave).count(), 300);
    let middle = keyspace.get_with(name(150), &leave).unwrap();
    assert_eq!(middle.as_deref(), Some(&[7; 50][..]));
    assert_eq!(db.snapshot().get_with(&keyspace, name(150), &leave).unwrap(), middle);
    assert!(db.stats().cache_bytes > 0, "a slice keeps its block, which counts");
    drop(middle);
    let (snapshot, one) = (db.snapshot(), name(151));
    assert_eq!(keyspace.prefix_with(&one, &leave).count(), 1);
    assert_eq!(snapshot.prefix_with(&keyspace, &one, &leave).count(), 1);
    assert!(keyspace.contains_key_with(&one, &leave).unwrap());
    assert!(snapshot.contains_key_with(&keyspace, &one, &leave).unwrap());
    assert_eq!(keyspace.size_of_with(&one, &leave).unwrap(), Some(50));
    assert_eq!(snapshot.size_of_with(&keyspace, &one, &leave).unwrap(), Some(50));
    let ends = [keyspace.first_key_value_with(&leave), keyspace.last_key_value_with(&leave)];
    let snapshots = [
        snapshot.first_key_value_with(&keyspace, &leave),
        snapshot.last_key_value_with(&keyspace, &leave),
    ];
    for (number, found) in [0, 299].into_iter().cycle().zip(ends.into_iter().chain(snapshots)) {
        assert_eq!(*found.unwrap().unwrap().0, *name(number).as_bytes());
    }
    for reader in [
        keyspace.get_reader_with(&one, &leave).unwrap(),
        snapshot.get_reader_with(&keyspace, &one, &leave).unwrap(),
    ] {
        assert_eq!(reader.unwrap().len(), 50);
    }
    let stats = db.stats();
    assert!(stats.cache_bytes == 0 && stats.read_requests > 0, "{stats}");
    assert_eq!(stats.mapped_reads, 0, "{stats}");
    // What is there serves them.
    assert_eq!(keyspace.iter().count(), 300);
    let stats = db.stats();
    if setup.mapped_reads {
        assert_eq!(keyspace.iter().count(), 300);
        assert!(db.stats().mapped_reads > stats.mapped_reads, "{stats}");
    } else {
        assert!(stats.cache_bytes > 0, "{stats}");
    }
    let stats = db.stats();
    assert_eq!(keyspace.get_with(name(150), &leave).unwrap().as_deref(), Some(&[7; 50][..]));
    assert_eq!(db.stats().read_requests, stats.read_requests, "read though it was cached");
}

/// Of one write, a batch, and by the plain durability: what was synced survives the machine.
#[test]
fn a_write_can_ask_for_a_durability_of_its_own() {
    let disk = SimDisk::new(1);
    let setup = Setup::default();
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    let after_crash = |key: &str| {
        let left = disk.crash_clone(learnedkv::disk::sim::CrashKind::Machine, 0);
        let db = setup.open(&left, 1).unwrap();
        db.find("k").unwrap().contains_key(key).unwrap()
    };
    keyspace.insert_with("a", "v", WriteOptions::default()).unwrap();
    assert!(!after_crash("a"), "nobody asked");
    keyspace.insert_with("b", "v", Durability::Synced).unwrap();
    assert!(after_crash("a") && after_crash("b"));
    let lines = |text: &'static str| text.as_bytes();
    keyspace.insert_reader_with("c", lines("v"), Durability::Buffered).unwrap();
    assert!(!after_crash("c"));
    keyspace.insert_reader_with("d", lines("v"), Durability::Synced).unwrap();
    assert!(after_crash("c") && after_crash("d"));
    // Long enough for a file of its own: what is durable is that the key leads to it.
    let long = vec![7; setup.stream_at as usize];
    assert_eq!(keyspace.insert_reader_with("e", &*long, Durability::Synced).unwrap(), 400);
    assert!(after_crash("e"));
    keyspace.pop_last_with(Durability::Buffered).unwrap().unwrap();
    assert!(after_crash("e"));
    keyspace.pop_last_with(Durability::Synced).unwrap().unwrap();
    assert!(!after_crash("e") && !after_crash("d"));
    keyspace.insert_with("0", "v", Durability::Synced).unwrap();
    keyspace.pop_first_with(Durability::Buffered).unwrap().unwrap();
    assert!(after_crash("0"));
    keyspace.insert_with("1", "v", Durability::Synced).unwrap();
    assert_eq!(*keyspace.pop_first_with(Durability::Synced).unwrap().unwrap().0, *b"1");
    assert!(!after_crash("1"));
    keyspace.remove_with("a", Durability::Buffered).unwrap();
    assert!(after_crash("a"));
    keyspace.remove_with("b", WriteOptions::default().durability(Durability::Synced)).unwrap();
    assert!(!after_crash("a") && !after_crash("b"));
    let mut batch = db.batch();
    batch.insert(&keyspace, "c", "v");
    batch.commit_with(WriteOptions::default().durability(Durability::Synced)).unwrap();
    assert!(after_crash("c"));
    keyspace.fetch_update_with("d", |_| Some("v"), Durability::Synced).unwrap();
    assert!(after_crash("d"));
    keyspace.remove_prefix("d").unwrap();
    assert!(after_crash("d"), "nobody asked");
    keyspace.remove_prefix_with("c", Durability::Synced).unwrap();
    assert!(!after_crash("c") && !after_crash("d"));
}

// What a slice looks like does not change; what it is of counts who else has it.
#[allow(clippy::mutable_key_type)]
#[test]
fn a_batch_removes_what_begins_so_and_what_it_has_put_there_itself() {
    let (db, keyspace) = open(&Setup::default());
    for key in ["a", "b", "b1", "b2", "c"] {
        keyspace.insert(key, "old").unwrap();
    }
    let mut batch = db.batch();
    batch.insert(&keyspace, "b3", "new");
    batch.remove_prefix(&keyspace, "b");
    batch.insert(&keyspace, "b1", "new");
    batch.commit().unwrap();
    let left = keyspace.iter().map(Result::unwrap);
    let left: HashMap<Slice, Slice> = left.collect();
    // A map by slices is asked by bytes.
    let found = |key: &[u8]| left.get(key).map(|value| value.to_vec());
    assert_eq!(left.len(), 3);
    assert_eq!((found(b"a"), found(b"b1")), (Some(b"old".to_vec()), Some(b"new".to_vec())));
    assert_eq!((found(b"b"), found(b"c")), (None, Some(b"old".to_vec())));
}

/// The error stated: at most the operations that are not settled. And no block is read for it.
#[test]
fn estimates_keep_what_they_promise() {
    let setup = Setup { automatic_conversion: false, ..Setup::default() };
    let (db, keyspace) = open(&setup);
    let (mut settled, mut random) = (0u64, crate::workload::Random::new(1));
    for round in 0..6u32 {
        for step in 0..400 {
            let key = name(random.below(500) as u32);
            if random.below(4) == 0 {
                keyspace.remove(key).unwrap();
            } else {
                keyspace.insert(key, vec![round as u8; 20 + step % 50]).unwrap();
            }
        }
        let requests = db.stats().read_requests;
        let (len, whole) = (keyspace.approximate_len().unwrap(), total(&keyspace));
        let snapshot = db.snapshot();
        assert_eq!(snapshot.approximate_len(&keyspace).unwrap(), len);
        assert_eq!(snapshot.approximate_size::<&[u8]>(&keyspace, ..).unwrap(), whole);
        let half = keyspace.approximate_size(..name(250)).unwrap();
        assert_eq!(db.stats().read_requests, requests, "estimates read blocks");
        let truth = keyspace.keys().count() as u64;
        let unsettled = 400 + keyspace.stats().unwrap().lsm_entries;
        assert!(len.abs_diff(truth) <= unsettled, "{len} for {truth}, {unsettled} unsettled");
        assert!((whole * 3 / 10..whole * 7 / 10).contains(&half), "{half} of {whole}");
        keyspace.convert().unwrap();
        let truth = keyspace.keys().count() as u64;
        settled = keyspace.approximate_len().unwrap();
        assert_eq!(settled, truth, "all settled");
        let bytes: u64 =
            keyspace.iter().map(|e| e.unwrap()).map(|(k, v)| k.len() + v.len()).sum::<usize>()
                as u64;
        let whole = total(&keyspace);
        assert!((bytes..bytes * 3).contains(&whole), "{whole} for {bytes} of entries");
        // A range within a block is reckoned as the blocks it may touch.
        let one = keyspace.approximate_size(name(100)..=name(100)).unwrap();
        assert!(one <= 2 * 320, "{one} for one key");
    }
    assert!(settled > 200);
}

/// All requests have those of sweeps, merges and flushes among them: what a get took could not be told.
#[test]
fn a_cold_get_of_a_settled_key_is_one_request_whatever_goes_on_beside_it() {
    let cold = Setup { block_cache: false, mapped_reads: false, ..Setup::default() };
    let (db, keyspace) = open(&Setup { automatic_conversion: false, ..cold });
    (0..2000).for_each(|number| keyspace.insert(name(number), [7; 50]).unwrap());
    keyspace.convert().unwrap();
    for fill in 0..3 {
        (1000..2000).step_by(3).for_each(|n| keyspace.insert(name(n), [fill; 50]).unwrap());
        keyspace.flush().unwrap();
    }
    let before = db.stats();
    let gets = std::thread::scope(|scope| {
        let sweep = scope.spawn(|| keyspace.convert().unwrap());
        let mut gets = 0;
        while gets < 1000 || !sweep.is_finished() {
            // Below all that is fresh: no filter is asked, which might be wrong.
            let found = keyspace.get(name(gets as u32 % 1000)).unwrap();
            assert_eq!(found.as_deref(), Some(&[7; 50][..]));
            gets += 1;
        }
        gets
    });
    let after = db.stats();
    assert_eq!(after.gets - before.gets, gets);
    assert_eq!(after.settled_gets - before.settled_gets, gets);
    assert_eq!(after.get_requests - before.get_requests, gets, "1.00 requests a get");
    assert_eq!(after.sweeps - before.sweeps, 1);
    assert!(after.read_requests - before.read_requests > gets + 10, "the sweep read too: {after}");
}

/// Of each sort of lookup: how many it counts as, how many ask settled data, and its requests.
#[test]
fn what_lookups_take_is_told_apart() {
    let cold = Setup { block_cache: false, mapped_reads: false, ..Setup::default() };
    let (db, keyspace) = open(&Setup { automatic_conversion: false, ..cold });
    // Of every two values one stays apart when it is settled, and none fits the memtable's blocks.
    let value = |number: u32| vec![7; 50 + 200 * (number as usize % 2)];
    (0..200).for_each(|number| keyspace.insert(name(number), value(number)).unwrap());
    keyspace.convert().unwrap();
    keyspace.insert(name(900), "fresh").unwrap();
    let told = |look: &dyn Fn()| {
        let before = db.stats();
        look();
        let after = db.stats();
        let [gets, settled] = [after.gets - before.gets, after.settled_gets - before.settled_gets];
        (gets, settled, after.get_requests - before.get_requests)
    };
    let get = |number: u32| assert_eq!(keyspace.get(name(number)).unwrap().unwrap(), value(number));
    assert_eq!(told(&|| get(100)), (1, 1, 1), "in a block");
    assert_eq!(told(&|| get(101)), (1, 1, 2), "apart");
    let is_there = |number: u32| assert!(keyspace.contains_key(name(number)).unwrap());
    assert_eq!(told(&|| is_there(101)), (1, 1, 1), "no value is read");
    assert_eq!(told(&|| assert_eq!(keyspace.size_of(name(101)).unwrap(), Some(250))), (1, 1, 1));
    assert_eq!(told(&|| is_there(900)), (1, 0, 0), "in memory");
    let keys = [name(100), name(900), name(100), name(0), name(101)];
    let (gets, settled, requests) = told(&|| drop(keyspace.multi_get(&keys).unwrap()));
    // 100 and 101 may share a block, and a value is apart.
    assert_eq!((gets, settled), (4, 3), "each key once");
    assert!((3..=4).contains(&requests), "{requests}");
    let all = told(&|| drop(keyspace.multi_get((0..200).map(name)).unwrap()));
    let blocks = keyspace.stats().unwrap().blocks;
    assert!(all.2 >= 2 && all.2 < blocks, "neighbours are one request: {all:?}, {blocks} blocks");
    assert_eq!(told(&|| assert_eq!(keyspace.iter().count(), 201)), (0, 0, 0), "a walk is no get");
}

/// A model that may be 60,000 entries wrong named the whole table for each key.
#[test]
fn a_model_that_would_name_much_gives_way_to_separators() {
    let cold = Setup { block_cache: false, mapped_reads: false, ..Setup::default() };
    for kind in ["greedy-plr:60000", "greedy-plr-plus:60000"].map(IndexKind::from_text) {
        let kind = kind.unwrap();
        let options = KeyspaceOptions::default().settled_index(kind).separate_at(1 << 10);
        let setup = Setup { memory_budget_bytes: 8 << 20, keyspace: options, ..cold.clone() };
        let (db, keyspace) = open(&setup);
        // Far from each other and side by side, so that lines fit badly.
        let key = |number: u64| (number * number * number + number % 7).to_be_bytes();
        keyspace.ingest((0..20_000).map(|number| (key(number), [7; 100]))).unwrap();
        for number in (0..20_000).step_by(199) {
            let before = db.stats();
            assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), [7; 100]);
            assert_eq!(keyspace.get(key(number + 20_000)).unwrap(), None);
            let after = db.stats();
            let bytes = after.read_bytes - before.read_bytes;
            assert_eq!(after.get_requests - before.get_requests, 1, "{kind}");
            assert!(bytes <= 4096, "{kind}: {bytes} bytes");
        }
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.separated_blocks, db.stats().wide_bounds), (stats.blocks, 0), "{kind}");
        assert!(stats.blocks > 100, "{stats:?}");
    }
}

fn total(keyspace: &Keyspace) -> u64 {
    keyspace.approximate_size::<&str>(..).unwrap()
}

/// Every read of a lookup of many keys fails once: the call fails, and the next one is right.
#[test]
fn many_keys_are_answered_all_or_not_at_all() {
    let sim = SimDisk::new(1);
    let faulty = FaultyDisk::new(Arc::new(sim.clone()));
    let setup = Setup { block_cache: false, automatic_conversion: false, ..Setup::default() };
    let db = setup.open(&faulty, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    // Settled, in runs above it, and in the memtable; some overwritten, some removed.
    for (round, step) in [(0, 1), (1, 3), (2, 5), (3, 7)] {
        for number in (0..200).step_by(step) {
            let key = name(number);
            match (number + round) % 4 {
                0 => keyspace.remove(key).unwrap(),
                _ => keyspace.insert(key, format!("{round} of {number}")).unwrap(),
            }
        }
        match round {
            0 => keyspace.convert().unwrap(),
            3 => {}
            _ => keyspace.flush().unwrap(),
        }
    }
    let keys: Vec<_> = (0..210).rev().step_by(3).map(name).collect();
    let expected: Vec<_> = keys.iter().map(|key| keyspace.get(key).unwrap()).collect();
    assert!(expected.iter().any(Option::is_some) && expected.iter().any(Option::is_none));
    let counts = faulty.fail(Fault::never().of(&[OperationKind::Read]));
    assert_eq!(keyspace.multi_get(&keys).unwrap(), expected);
    let reads = counts.matched();
    assert!(reads > 3, "there is little to fail: {reads}");
    for failing in 0..reads {
        faulty.clear_faults();
        faulty.fail(Fault::at(failing).of(&[OperationKind::Read]));
        let error = keyspace.multi_get(&keys).expect_err("a read failed");
        assert_eq!(error.kind(), ErrorKind::Io, "{failing} of {reads}: {error}");
        assert_eq!(keyspace.multi_get(&keys).unwrap(), expected, "{failing} of {reads}: later");
    }
    assert_eq!(db.stats().index_fallbacks, 0);
    db.drop_keyspace("k").unwrap();
    assert_eq!(keyspace.multi_get(&keys).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(keyspace.multi_get(&keys[..0]).unwrap_err().kind(), ErrorKind::NotFound);
}

/// The blocks of keys that lie far from one another, and then the values that are kept apart, come by one request to the disk each.
#[test]
fn many_keys_are_read_together() {
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let setup = nothing_kept();
    let db = setup.open(&faulty, 1).unwrap();
    let far: Vec<_> = (0..3200).step_by(100).map(name).collect();
    for (kept, options, together) in [
        ("beside", KeyspaceOptions::default(), (32, 32)),
        ("apart", KeyspaceOptions::default().separate_at(200).inline_limit(200), (32, 64)),
    ] {
        let keyspace = db.keyspace(kept, options.attach_filters(false)).unwrap();
        (0..3200).for_each(|n| keyspace.insert(name(n), [n as u8; 500]).unwrap());
        keyspace.convert().unwrap();
        let reads = faulty.fail(Fault::never().of(&[OperationKind::Read]));
        faulty.take_most_together();
        let found = keyspace.multi_get(&far).unwrap();
        let (at_most, all) = together;
        assert_eq!(faulty.take_most_together(), at_most, "{kept}");
        assert_eq!(reads.matched(), all, "{kept}");
        let expected = (0..3200).step_by(100).map(|n| [n as u8; 500]);
        assert!(
            found.iter().zip(expected).all(|(v, fill)| v.as_deref() == Some(&fill[..])),
            "{kept}"
        );
        // One by one they are not.
        far.iter().for_each(|key| drop(keyspace.get(key).unwrap()));
        assert_eq!(faulty.take_most_together(), 0, "{kept}");
    }
}

/// Four runs without filters above settled data: each overwrites or removes some of it.
fn four_runs(faulty: &FaultyDisk) -> (Database, Keyspace) {
    let setup = Setup {
        memtable_bytes: 64 << 10,
        block_cache: false,
        mapped_reads: false,
        automatic_conversion: false,
        ..Setup::default()
    };
    let db = setup.open(faulty, 1).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default().lsm_filter(None)).unwrap();
    // Round 0 is settled; of each later one every fifth key is overwritten, or removed.
    for round in 0..5 {
        for number in (0..400).filter(|number| round == 0 || number % 5 == round) {
            match number % 7 {
                0 if round > 0 => keyspace.remove(name(number)).unwrap(),
                _ => keyspace.insert(name(number), format!("{round} of {number}")).unwrap(),
            }
        }
        if round == 4 {
            keyspace.remove_range(name(300)..name(310)).unwrap();
        }
        if round == 0 { keyspace.convert().unwrap() } else { keyspace.flush().unwrap() }
    }
    (db, keyspace)
}

/// All of them are asked, or the newest that answers.
#[test]
fn a_lookup_at_once_asks_all_tables_and_the_newest_answers() {
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let (db, keyspace) = four_runs(&faulty);
    let in_order = ReadOptions::default().fill_cache(false);
    let at_once = in_order.at_once(true);
    let requests = |number: u32, options: &ReadOptions| {
        let before = db.stats();
        let found = keyspace.get_with(name(number), options).unwrap();
        let after = db.stats();
        assert_eq!(after.gets - before.gets, 1, "one lookup, however many tables");
        (found, after.get_requests - before.get_requests)
    };
    let mut newest_first = 0;
    for number in 0..420 {
        let (expected, one_by_one) = requests(number, &in_order);
        faulty.take_most_together();
        let (found, together) = requests(number, &at_once);
        let at_most = faulty.take_most_together();
        assert!(!(4..300).contains(&number) || at_most == 5, "{number}: {at_most} at once");
        assert_eq!(found, expected, "{number}");
        let there = keyspace.contains_key_with(name(number), &at_once).unwrap();
        assert_eq!(there, expected.is_some(), "{number}");
        let size = keyspace.size_of_with(name(number), &at_once).unwrap();
        assert_eq!(size, expected.map(|value| value.len() as u64), "{number}");
        assert!(together >= one_by_one, "{number}: {together} for {one_by_one}");
        assert!(!(4..300).contains(&number) || together == 5, "{number}: {together} of 5 tables");
        newest_first += u32::from(one_by_one == 1);
    }
    assert!(newest_first >= 70, "the newest run answers by itself: {newest_first}");

    // Of the tables that hold the key the newest decides: one that is older may fail, for good too.
    let key = name(4);
    let expected = keyspace.get(&key).unwrap();
    assert!(expected.is_some());
    let names = faulty.list(Path::new("/db")).unwrap();
    let mut tables: Vec<_> = names.into_iter().filter(|n| n.starts_with("table-")).collect();
    tables.sort();
    assert_eq!(tables.len(), 5);
    let newest = tables.pop().unwrap();
    let fail = |name: &str| {
        faulty.clear_faults();
        faulty.fail(Fault::at(0).of(&[OperationKind::Read]).on_paths_with(name).from_then_on());
    };
    for older in &tables {
        fail(older);
        assert_eq!(keyspace.get_with(&key, &at_once).unwrap(), expected, "{older} fails");
        let many = keyspace.multi_get_with([&key], &at_once).unwrap();
        assert_eq!(many, std::slice::from_ref(&expected), "{older} fails");
    }
    fail(&newest);
    for key in [&key, &name(5)] {
        for options in [&at_once, &in_order] {
            let error = keyspace.get_with(key, options).expect_err("the newest fails");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            keyspace.multi_get_with([key], options).expect_err("the newest fails");
        }
    }
}
