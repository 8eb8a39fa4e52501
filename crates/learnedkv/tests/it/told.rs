//! What `stats()` says of reads, and of what is not settled yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use learnedkv::disk::OperationKind;
use learnedkv::disk::sim::{SimDisk, Stage};
use learnedkv::{KeyspaceOptions, ReadOptions, Stats, Store};

use crate::plain::{name, nothing_kept, open, open_on};
use crate::workload::Setup;

/// What is in memory is not settled, and a keyspace that never settles is in no share.
#[test]
fn what_is_not_settled_is_said() {
    let (db, keyspace) = open(&Setup { automatic_conversion: false, ..nothing_kept() });
    let levels = db.keyspace("levels", KeyspaceOptions::default().store(Store::Lsm)).unwrap();
    levels.insert("key", [0; 5000]).unwrap();
    let shares = || {
        let (stats, whole) = (keyspace.stats().unwrap(), db.stats());
        let share = [stats.settled_share(), stats.settled_share_of_bytes()];
        let others = [whole.unsettled_share(), whole.unsettled_share_of_bytes()];
        assert!(share.iter().zip(others).all(|(a, b)| (a + b - 1.0).abs() < 1e-9), "{whole}");
        (stats, share)
    };
    assert_eq!(shares().1, [1.0, 1.0], "there is nothing");
    // Every second value will stay apart, settled or not.
    let value = |number: u32| vec![7; 200 + 40_000 * (number as usize % 2)];
    (0..20).for_each(|number| keyspace.insert(name(number), value(number)).unwrap());
    let (stats, share) = shares();
    assert_eq!((share, stats.memtable_entries), ([0.0, 0.0], 20), "all is in memory");
    let bytes = 20 * (8 + 200) + 10 * 40_000;
    assert_eq!(stats.unsettled_bytes, bytes);
    keyspace.flush().unwrap();
    let (stats, share) = shares();
    assert_eq!((share, stats.memtable_entries, stats.lsm_entries), ([0.0, 0.0], 0, 20));
    assert!((bytes..bytes + 5000).contains(&stats.unsettled_bytes), "{stats}");
    keyspace.convert().unwrap();
    let (stats, share) = shares();
    assert_eq!((share, stats.unsettled_bytes), ([1.0, 1.0], 0));
    assert!(stats.settled_value_bytes >= 10 * 40_000, "{stats}");
    (20..40).for_each(|number| keyspace.insert(name(number), value(0)).unwrap());
    let (_, [entries, bytes]) = shares();
    assert!(entries == 0.5 && (0.98..1.0).contains(&bytes), "{entries}, {bytes}");
    let text = db.stats().to_string();
    assert!(text.contains("settled are 50.0 % of the entries"), "{text}");
    assert!(text.contains("  50.0 %    of the entries"), "{text}");
    levels.flush().unwrap();
    assert_eq!(levels.stats().unwrap().settled_share(), 0.0);
}

/// The two figures that the promise of a cold read is made of, and what they leave out.
#[test]
fn requests_are_told_by_what_answered() {
    let cold = Setup { block_cache: false, mapped_reads: false, ..Setup::default() };
    let (db, keyspace) = open(&Setup { automatic_conversion: false, ..cold });
    let value = |number: u32| vec![7; 50 + 200 * (number as usize % 2)];
    (0..100).for_each(|number| keyspace.insert(name(number), value(number)).unwrap());
    keyspace.remove(name(50)).unwrap();
    keyspace.convert().unwrap();
    // A run beside the settled data: of two short values and two long ones, and a key that is removed.
    for number in [0, 1, 200, 201] {
        keyspace.insert(name(number), value(number)).unwrap();
    }
    keyspace.remove(name(2)).unwrap();
    keyspace.flush().unwrap();
    keyspace.insert(name(300), value(300)).unwrap();
    keyspace.remove(name(4)).unwrap();
    // (gets, requests) in blocks, apart, not settled, of nothing.
    let kinds = |stats: &Stats| {
        [stats.block_gets, stats.apart_gets, stats.unsettled_gets, stats.missed_gets]
            .map(|kind| [kind.gets, kind.requests])
    };
    let told = |look: &dyn Fn()| {
        let before = kinds(&db.stats());
        look();
        let after = kinds(&db.stats());
        [0, 1, 2, 3].map(|kind| [0, 1].map(|i| after[kind][i] - before[kind][i]))
    };
    [10, 11].iter().for_each(|number| assert!(keyspace.get(name(*number)).unwrap().is_some()));
    let stats = db.stats();
    let each = [stats.block_gets, stats.apart_gets].map(|kind| kind.requests_per_get());
    assert_eq!(each, [1.0, 2.0]);
    let at_once = ReadOptions::default().at_once(true);
    for (options, more) in [(ReadOptions::default(), 0), (at_once, 3)] {
        let get = |number: u32| keyspace.get_with(name(number), &options).unwrap();
        let found = |number: u32| assert_eq!(get(number).unwrap(), value(number));
        assert_eq!(told(&|| found(10)), [[1, 1], [0, 0], [0, 0], [0, 0]]);
        assert_eq!(told(&|| found(11)), [[0, 0], [1, 2], [0, 0], [0, 0]]);
        assert_eq!(told(&|| found(300)), [[0, 0], [0, 0], [1, 0], [0, 0]]);
        assert_eq!(told(&|| assert_eq!(get(4), None)), [[0, 0], [0, 0], [1, 0], [0, 0]]);
        let length = || assert_eq!(keyspace.size_of_with(name(11), &options).unwrap(), Some(250));
        assert_eq!(told(&length), [[1, 1], [0, 0], [0, 0], [0, 0]], "no value is read");
        let [settled, apart, fresh, nothing] = told(&|| (0..3).for_each(|n| drop(get(n))));
        // 0, 1 and 2 stand in the run, both values apart; all at once asks the settled run too.
        assert_eq!((settled, apart, nothing), ([0, 0], [0, 0], [0, 0]));
        assert_eq!(fresh, [3, 5 + more]);
        // A filter may be wrong: of runs, and of what is settled.
        let [.., fresh, [gets, requests]] = told(&|| assert_eq!(get(50), None));
        assert!(fresh == [0, 0] && gets == 1 && requests <= 2, "{requests}");
        let keys = [name(10), name(11), name(1), name(300), name(50)];
        let many = told(&|| drop(keyspace.multi_get_with(keys.clone(), &options).unwrap()));
        assert_eq!(many.map(|[gets, _]| gets), [1, 1, 2, 1]);
    }
    let stats = db.stats();
    let [gets, requests] = [0, 1].map(|i| kinds(&stats).iter().map(|kind| kind[i]).sum::<u64>());
    assert_eq!((gets, requests), (stats.gets, stats.get_requests));
    assert_eq!(Stats::default().apart_gets.requests_per_get(), 0.0);
}

/// What the promise of few bits is told by: learned indexes take several times fewer than the fence pointers that they replace.
#[test]
fn metadata_is_told_in_bits_a_key() {
    let told = |index: &str| {
        let mut options = KeyspaceOptions::default();
        options.set("settled_index", index).unwrap();
        let (db, keyspace) = open(&Setup { keyspace: options, ..nothing_kept() });
        assert_eq!(keyspace.stats().unwrap().metadata_bits_per_entry(), 0.0, "there is nothing");
        (0..40_000).for_each(|number| keyspace.insert(name(number), [7; 200]).unwrap());
        keyspace.convert().unwrap();
        let (stats, whole) = (keyspace.stats().unwrap(), db.stats());
        assert_eq!((stats.settled_entries, stats.lsm_entries), (40_000, 0));
        assert_eq!(stats.metadata_bits_per_entry(), stats.metadata_bytes as f64 / 5000.0);
        let others = stats.memtable_bytes + whole.cache_bytes + whole.pinned_memory_bytes;
        assert_eq!(whole.memory_bytes(), stats.metadata_bytes + others, "nobody else has any");
        stats.metadata_bits_per_entry()
    };
    let [learned, fence] = ["exact", "fence"].map(told);
    // Some 2,000 blocks: of them a fence keeps the separators and where they end, ten bytes and more.
    assert!(learned > 0.1 && fence > 4.0 && learned * 3.0 < fence, "{learned} and {fence} bits");
}

/// Tables and log: what they say that they wrote is what the disk was asked to.
#[test]
fn what_a_byte_put_costs_is_what_the_disk_writes_for_it() {
    let disk = SimDisk::new(1);
    let setup = Setup { memtable_bytes: 256 << 10, ..nothing_kept() };
    let (db, keyspace) = open_on(&disk, &setup);
    assert_eq!(db.stats().write_amplification(), 0.0, "nothing was put");
    let written = Arc::new(AtomicU64::new(0));
    let seen = written.clone();
    disk.observe(move |operation, _| {
        let path = operation.path.to_string_lossy();
        let counts = match operation.kind {
            OperationKind::Write => path.contains("/table-") || path.contains("/values-"),
            OperationKind::Publish => true,
            _ => false,
        };
        if counts && operation.stage == Stage::Before {
            seen.fetch_add(operation.length_bytes, Ordering::Relaxed);
        }
    });
    let mut before = 0.0;
    for round in 0..4_u8 {
        (0..2_000).for_each(|number| keyspace.insert(name(number), [round; 1000]).unwrap());
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let stats = db.stats();
        let by_disk = written.load(Ordering::Relaxed) as f64 / stats.put_bytes as f64;
        let told = stats.write_amplification();
        assert!(
            (0.98..1.1).contains(&(by_disk / told)),
            "round {round}: {told}, {by_disk} written"
        );
        assert!(told > 2.0 && told > before, "round {round}: {told} after {before}");
        before = told;
    }
}
