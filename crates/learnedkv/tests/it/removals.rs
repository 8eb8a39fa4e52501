//! Removed ranges: what they hide and what they do not, how fast reads pass over them, and that the space
//! comes back.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, ErrorKind, Keyspace, KeyspaceOptions, Snapshot, Store};

use crate::workload::{Content, Random, Setup};

fn open(disk: &SimDisk, setup: &Setup) -> (Database, Keyspace) {
    let db = setup.open(disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (db, keyspace)
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn put(keyspace: &Keyspace, numbers: std::ops::Range<u64>, fill: u8) {
    numbers.for_each(|number| keyspace.insert(key(number), [fill; 100]).unwrap());
}

fn found(keyspace: &Keyspace) -> Content {
    let entries = keyspace.iter().map(Result::unwrap);
    let up: Vec<_> = entries.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let entries = keyspace.iter().rev().map(Result::unwrap);
    let mut down: Vec<_> = entries.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    down.reverse();
    assert_eq!(up, down);
    up.into_iter().collect()
}

fn tables(disk: &SimDisk) -> Vec<String> {
    let names = disk.list(Path::new("/db")).unwrap();
    names.into_iter().filter(|name| name.starts_with("table-")).collect()
}

/// A setup in which nothing is settled unless it is asked for.
fn unsettled() -> Setup {
    let setup = Setup { memtable_bytes: 16 << 10, automatic_conversion: false, ..Setup::default() };
    let keyspace = KeyspaceOptions::default().block_bytes(512).partition_bytes(16 << 10);
    Setup { log_segment_bytes: 64 << 10, keyspace, ..setup }
}

#[test]
fn bounds_of_every_sort_remove_what_a_btree_map_says() {
    let numbers = [None, Some(0), Some(3), Some(4), Some(9)];
    let bound = |kind: u64, number: Option<u64>| match (kind, number) {
        (_, None) => Bound::Unbounded,
        (0, Some(number)) => Bound::Included(key(number)),
        (_, Some(number)) => Bound::Excluded(key(number)),
    };
    for place in ["in memory", "flushed", "settled"] {
        let (_db, keyspace) = open(&SimDisk::new(1), &unsettled());
        for (from, to) in numbers.iter().flat_map(|from| numbers.map(|to| (*from, to))) {
            for kinds in 0..4 {
                let range = (bound(kinds % 2, from), bound(kinds / 2, to));
                let mut expected: Content = (0..10).map(|n| (key(n), vec![1; 100])).collect();
                put(&keyspace, 0..10, 1);
                match place {
                    "flushed" => keyspace.flush().unwrap(),
                    "settled" => keyspace.convert().unwrap(),
                    _ => {}
                }
                keyspace.remove_range(range.clone()).unwrap();
                expected.retain(|key, _| !range.contains(key));
                assert_eq!(found(&keyspace), expected, "{place}: {range:?}");
            }
        }
        keyspace.insert("", "the empty key").unwrap();
        keyspace.remove_range(..="").unwrap();
        assert!(keyspace.get("").unwrap().is_none());
    }
}

#[test]
fn prefixes_go_and_what_lies_beside_them_stays() {
    let (_db, keyspace) = open(&SimDisk::new(1), &unsettled());
    for prefix in [&b"b"[..], b"\xff", b"a\xff", b""] {
        let keys: [&[u8]; 7] = [b"a", b"a\xff", b"a\xff\xff", b"b", b"b\0", b"c", b"\xff\xff"];
        keys.iter().for_each(|key| keyspace.insert(key, "v").unwrap());
        keyspace.remove_prefix(prefix).unwrap();
        let left: Vec<_> = keyspace.keys().map(Result::unwrap).collect();
        let expected: Vec<_> = keys.iter().filter(|key| !key.starts_with(prefix)).collect();
        assert_eq!(left, expected, "{prefix:?}");
    }
}

#[test]
fn what_cannot_be_removed_is_refused_and_nothing_is_no_error() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &unsettled());
    keyspace.insert("a", "v").unwrap();
    let before = db.stats().last_sequence;
    keyspace.remove_range("c".."b").unwrap();
    keyspace.remove_range("b".."b").unwrap();
    keyspace.remove_range(.."").unwrap();
    assert_eq!(db.stats().last_sequence, before, "nothing was written");
    let long = vec![7; (64 << 10) + 1];
    let refused = keyspace.remove_range(long.clone()..).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    let mut batch = db.batch();
    batch.insert(&keyspace, "b", "v");
    batch.remove_range(&keyspace, ..=long.clone());
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::InvalidArgument);
    // The longest key is a bound as any other, and has a successor.
    keyspace.insert(&long[1..], "longest").unwrap();
    keyspace.remove_range(&long[1..]..=&long[1..]).unwrap();
    for place in ["in memory", "flushed"] {
        assert_eq!(found(&keyspace).len(), 1, "{place}");
        keyspace.flush().unwrap();
    }
    db.close().unwrap();
    assert_eq!(keyspace.clear().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(keyspace.remove_range("c".."b").unwrap_err().kind(), ErrorKind::Closed);
}

/// In a batch the order counts, across keyspaces all of it happens or nothing.
#[test]
fn a_batch_removes_what_came_before_in_it_and_keeps_what_comes_after() {
    let disk = SimDisk::new(1);
    let (db, one) = open(&disk, &unsettled());
    let two = db.keyspace("two", KeyspaceOptions::default()).unwrap();
    for keyspace in [&one, &two] {
        put(keyspace, 0..10, 1);
    }
    let before = db.snapshot();
    let mut batch = db.batch();
    batch.insert(&one, key(20), "goes");
    batch.insert(&two, key(20), "goes");
    batch.remove_range(&one, key(5)..);
    batch.clear(&two);
    batch.insert(&one, key(20), "stays");
    batch.insert(&two, key(3), "stays");
    assert_eq!(batch.len(), 6);
    batch.commit().unwrap();
    let check = |one: &Keyspace, two: &Keyspace| {
        let mut expected: Content = (0..5).map(|n| (key(n), vec![1; 100])).collect();
        expected.insert(key(20), b"stays".to_vec());
        assert_eq!(found(one), expected);
        assert_eq!(found(two), Content::from([(key(3), b"stays".to_vec())]));
    };
    check(&one, &two);
    assert_eq!(before.iter(&one).count() + before.iter(&two).count(), 20);
    drop((db, one, two, before));
    let left = disk.crash_clone(CrashKind::Process, 0);
    let (db, one) = open(&left, &unsettled());
    check(&one, &db.find("two").unwrap());
}

fn check_snapshot(snapshot: &Snapshot, keyspace: &Keyspace, content: &Content, at: &str) {
    let pairs = |(k, v): (learnedkv::Slice, learnedkv::Slice)| (k.to_vec(), v.to_vec());
    let up: Vec<_> = snapshot.iter(keyspace).map(|e| pairs(e.unwrap())).collect();
    assert!(up.iter().map(|(k, v)| (k, v)).eq(content), "{at}");
    let down: Vec<_> = snapshot.iter(keyspace).rev().map(|e| pairs(e.unwrap())).collect();
    assert!(down.iter().map(|(k, v)| (k, v)).eq(content.iter().rev()), "{at}, downwards");
    let keys: Vec<_> = (0..64).map(key).collect();
    let many = snapshot.multi_get(keyspace, &keys).unwrap();
    for (key, many) in keys.iter().zip(many) {
        let one = snapshot.get(keyspace, key).unwrap();
        assert_eq!(one.as_deref(), content.get(key).map(Vec::as_slice), "{at}: {key:?}");
        assert_eq!(one, many, "{at}: {key:?}");
    }
}

/// Nested and overlapping ranges in one memtable and over several, a snapshot between any two.
#[test]
fn snapshots_between_ranges_see_what_was_there() {
    for seed in 0..6 {
        let setup = Setup { memtable_bytes: 64 << 10, ..unsettled() };
        let (db, keyspace) = open(&SimDisk::new(seed), &setup);
        let mut random = Random::new(seed);
        let (mut content, mut seen) = (Content::new(), Vec::new());
        for step in 0..120u64 {
            if random.below(3) == 0 {
                let longest = 1 << random.below(7);
                let (from, count) = (random.below(64), 1 + random.below(longest));
                keyspace.remove_range(key(from)..key(from + count)).unwrap();
                content.retain(|k, _| *k < key(from) || *k >= key(from + count));
            } else {
                let (key, value) = (key(random.below(64)), vec![step as u8; 20]);
                keyspace.insert(&key, &value).unwrap();
                content.insert(key, value);
            }
            if step % 3 == 0 {
                seen.push((db.snapshot(), content.clone()));
            }
            match random.below(40) {
                0 => keyspace.flush().unwrap(),
                1 => keyspace.convert().unwrap(),
                _ => {}
            }
        }
        for when in ["at once", "flushed", "settled"] {
            for (number, (snapshot, content)) in seen.iter().enumerate() {
                check_snapshot(snapshot, &keyspace, content, &format!("{seed}, {when}, {number}"));
            }
            if when == "at once" { keyspace.flush().unwrap() } else { keyspace.convert().unwrap() }
        }
        assert_eq!(found(&keyspace), content);
    }
}

/// Everything cleared, most of it settled: the sweep that follows by itself gives all space back, and
/// reads no block to do so.
#[test]
fn a_cleared_store_gives_its_space_back_by_itself_and_unread() {
    let disk = SimDisk::new(1);
    let setup = unsettled();
    // So large that nothing but the range is a reason to sweep.
    let keyspace = setup.keyspace.clone().min_conversion_bytes(1 << 40).separate_at(1000);
    let executor = Arc::new(SeededExecutor::new(1));
    let db = Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor.clone())
        .memtable_bytes(setup.memtable_bytes)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(setup.log_segment_bytes)
        .open()
        .unwrap();
    let keyspace = db.keyspace("k", keyspace).unwrap();
    put(&keyspace, 0..4000, 1);
    (0..50).for_each(|n| keyspace.insert(key(n), [2; 20_000]).unwrap());
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let before = keyspace.stats().unwrap();
    assert!(before.partitions > 20 && before.settled_bytes > 300_000, "{before}");
    assert!(before.value_bytes > 900_000, "{before}");
    let requests = db.stats().read_requests;
    keyspace.clear().unwrap();
    keyspace.flush().unwrap();
    executor.run_until_idle();
    let after = keyspace.stats().unwrap();
    let empty = (after.partitions, after.settled_bytes, after.runs, after.removed_ranges);
    assert_eq!(empty, (1, 0, 0, 0), "{after}");
    assert_eq!((after.value_bytes, tables(&disk).len()), (0, 0), "{after}");
    assert_eq!(db.stats().read_requests, requests, "nothing was read");
    assert!(keyspace.is_empty().unwrap());
}

/// Partitions in the middle go unread, those at its ends lose their part, the others keep their files.
#[test]
fn covered_partitions_are_dropped_unread_and_others_stay_as_they_are() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &unsettled());
    put(&keyspace, 0..4000, 1);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let (before, files) = (keyspace.stats().unwrap(), tables(&disk));
    let (requests, swept) = (db.stats().read_bytes, db.stats().swept_bytes);
    keyspace.remove_range(key(1003)..key(3001)).unwrap();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let (after, left) = (keyspace.stats().unwrap(), tables(&disk));
    assert_eq!((after.runs, after.deltas, after.removed_ranges), (0, 0, 0), "{after}");
    assert_eq!(after.settled_entries, 4000 - 1998, "{after}");
    assert!(after.settled_bytes * 10 < before.settled_bytes * 6, "{before}, then {after}");
    let kept = left.iter().filter(|name| files.contains(name)).count();
    assert!(kept + 3 >= files.len() / 2 && left.len() <= kept + 3, "{files:?}, then {left:?}");
    let (read, swept) = (db.stats().read_bytes - requests, db.stats().swept_bytes - swept);
    // The two at the ends alone.
    assert!(read < 5 * (16 << 10) && swept < 4 * (16 << 10), "{read} read, {swept} written");
    assert_eq!(found(&keyspace).len(), 4000 - 1998);
}

/// What is covered by little stays in a delta, as any small change; more of it rewrites the base.
#[test]
fn a_small_range_becomes_part_of_a_delta() {
    let (db, keyspace) = open(&SimDisk::new(1), &unsettled());
    put(&keyspace, 0..1000, 1);
    keyspace.convert().unwrap();
    let (mut expected, mut deltas) = (found(&keyspace), 0);
    for round in 0..8u64 {
        let from = 400 + round * 20;
        keyspace.remove_range(key(from)..key(from + 15)).unwrap();
        expected.retain(|k, _| *k < key(from) || *k >= key(from + 15));
        keyspace.insert(key(from + 3), "again").unwrap();
        expected.insert(key(from + 3), b"again".to_vec());
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let stats = keyspace.stats().unwrap();
        deltas += stats.deltas.min(stats.removed_ranges);
        assert_eq!(found(&keyspace), expected, "round {round}");
        assert_eq!(stats.runs, 0, "{stats}");
    }
    assert!(deltas > 0, "no delta ever carried a range");
    assert!(keyspace.stats().unwrap().settled_entries < 1000, "no base was ever rewritten");
}

/// A keyspace all of which is settled, closed; and one of its tables.
fn settled() -> (SimDisk, PathBuf) {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &unsettled());
    put(&keyspace, 0..2000, 1);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let path = Path::new("/db").join(&tables(&disk)[2]);
    (disk, path)
}

/// A base that cannot be read, and that nobody needs any more.
#[test]
fn a_covered_base_that_cannot_be_read_is_dropped_all_the_same() {
    let (disk, damaged) = settled();
    let file = disk.open(&damaged, Access::Random).unwrap();
    file.write_all_at(&[0x55; 8], 700).unwrap();
    let (db, keyspace) = open(&disk, &unsettled());
    keyspace.remove_range(key(1)..).unwrap();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(found(&keyspace), Content::from([(key(0), vec![1; 100])]));
    assert!(disk.open(&damaged, Access::Random).is_err(), "it is gone");
}

/// What was left of the partition before it was little, and was to become one with it: whoever went on from that came to what cannot
/// be read, and no sweep of the keyspace came to its end any more.
#[test]
fn a_covered_base_that_cannot_be_read_is_joined_with_none() {
    let (disk, path) = settled();
    let mut keys = None;
    for is_footer in [true, false] {
        let disk = disk.crash_clone(CrashKind::Process, 0);
        let file = disk.open(&path, Access::Random).unwrap();
        let at = if is_footer { file.length_bytes().unwrap() - 20 } else { 100 };
        file.write_all_at(&[0x55; 8], at).unwrap();
        let (db, keyspace) = open(&disk, &unsettled());
        let report = db.open_report().damaged_tables.first();
        keys = report.map_or(keys, |damaged| damaged.keys.clone());
        let number = |key: &[u8]| (0..2000).find(|n| self::key(*n) == key).unwrap();
        let (first, last) = keys.as_ref().map(|(a, b)| (number(a), number(b))).unwrap();
        (1..first).for_each(|n| keyspace.remove(key(n)).unwrap());
        keyspace.remove_range([key(first - 1), vec![0]].concat()..key(last + 1)).unwrap();
        assert!(keyspace.convert().is_ok() || !is_footer, "a block may be told of, once");
        db.wait_idle().unwrap();
        assert!(disk.open(&path, Access::Random).is_err(), "it is gone");
        keyspace.convert().unwrap();
        let left: Vec<_> = keyspace.keys().map(|key| key.unwrap().to_vec()).collect();
        assert!(left == [0].into_iter().chain(last + 1..2000).map(key).collect::<Vec<_>>());
    }
}

/// Over much that is removed and not settled, reads go by a few requests.
#[test]
fn reads_pass_over_what_is_covered_by_seeking() {
    for settled in [true, false] {
        let (db, keyspace) = open(&SimDisk::new(1), &unsettled());
        put(&keyspace, 0..6000, 1);
        if settled {
            keyspace.convert().unwrap()
        } else {
            keyspace.flush().unwrap()
        }
        db.wait_idle().unwrap();
        keyspace.remove_range(key(1)..key(5999)).unwrap();
        for place in ["in memory", "flushed"] {
            let before = db.stats();
            let keys: Vec<_> = keyspace.keys().map(Result::unwrap).collect();
            assert_eq!(keys, [key(0), key(5999)]);
            let down: Vec<_> = keyspace.keys().rev().map(Result::unwrap).collect();
            assert_eq!(down, [key(5999), key(0)]);
            let first = keyspace.range(key(1)..).next().transpose().unwrap().unwrap().0;
            assert_eq!(first, key(5999));
            let read = db.stats().read_bytes - before.read_bytes;
            // Of 600 KiB and more, at both ends what is read ahead in each run.
            let runs = keyspace.stats().unwrap().runs + 2;
            assert!(read < runs * 4 * (16 << 10), "{place}, settled {settled}: {read} bytes read");
            keyspace.clear().unwrap();
            assert!(keyspace.is_empty().unwrap());
            keyspace.insert(key(0), "v").unwrap();
            keyspace.insert(key(5999), "v").unwrap();
            keyspace.flush().unwrap();
        }
    }
}

/// What is ingested is newer than every range, wherever the range is by then.
#[test]
fn an_ingest_over_a_removed_range_is_seen() {
    for place in ["in memory", "flushed", "in a delta", "settled"] {
        let (db, keyspace) = open(&SimDisk::new(1), &unsettled());
        put(&keyspace, 0..1000, 1);
        keyspace.convert().unwrap();
        keyspace
            .remove_range(key(500)..key(if place == "in a delta" { 520 } else { 900 }))
            .unwrap();
        match place {
            "flushed" => keyspace.flush().unwrap(),
            "in a delta" | "settled" => keyspace.convert().unwrap(),
            _ => {}
        }
        let mut expected = found(&keyspace);
        let entries: Vec<_> = (505..515).map(|n| (key(n), vec![9; 50])).collect();
        keyspace.ingest(entries.iter().map(|(k, v)| (k, v))).unwrap();
        expected.extend(entries);
        for when in ["at once", "flushed", "settled", "opened"] {
            assert_eq!(found(&keyspace), expected, "{place}, {when}");
            match when {
                "at once" => keyspace.flush().unwrap(),
                "flushed" => keyspace.convert().unwrap(),
                _ => db.wait_idle().unwrap(),
            }
        }
    }
}

/// A table of ranges alone has no entry, no block, no index and no filter.
#[test]
fn a_table_may_hold_nothing_but_ranges() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &unsettled());
    put(&keyspace, 0..300, 1);
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    let before = keyspace.stats().unwrap();
    keyspace.remove_range(key(10)..key(20)).unwrap();
    keyspace.remove_range(key(20)..key(40)).unwrap();
    keyspace.remove_range(key(290)..).unwrap();
    keyspace.flush().unwrap();
    let after = keyspace.stats().unwrap();
    assert_eq!(after.removed_ranges, 2, "touching ranges are one");
    assert_eq!((after.runs, after.lsm_entries), (before.runs + 1, before.lsm_entries));
    assert_eq!(after.filters, before.filters);
    db.close().unwrap();
    drop(keyspace);
    let (db, keyspace) = open(&disk, &unsettled());
    assert_eq!(db.stats().rebuilt_indexes, 0);
    assert_eq!(found(&keyspace).len(), 300 - 40);
    assert_eq!(keyspace.range(key(5)..key(45)).count(), 10);
    for number in 0..310 {
        let there = !(10..40).contains(&number) && number < 290;
        assert_eq!(keyspace.contains_key(key(number)).unwrap(), there, "{number}");
    }
    // Nothing lies below any more: such a range leaves no table at all.
    keyspace.clear().unwrap();
    keyspace.convert().unwrap();
    keyspace.clear().unwrap();
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(tables(&disk).len(), 0);
}

/// Many runs with ranges, merged into runs of several tables: each range is cut where tables meet.
#[test]
fn merges_of_runs_unite_ranges_and_keep_them_over_older_data() {
    for seed in 0..4 {
        let disk = SimDisk::new(seed);
        let (db, keyspace) = open(&disk, &unsettled());
        let (mut random, mut expected) = (Random::new(seed), Content::new());
        put(&keyspace, 0..2000, 1);
        keyspace.convert().unwrap();
        expected.extend((0..2000).map(|n| (key(n), vec![1; 100])));
        for round in 0..40u64 {
            for _ in 0..30 {
                let number = random.below(2000);
                keyspace.insert(key(number), [round as u8; 100]).unwrap();
                expected.insert(key(number), vec![round as u8; 100]);
            }
            let (from, count) = (random.below(2000), random.below(100));
            keyspace.remove_range(key(from)..key(from + count)).unwrap();
            expected.retain(|k, _| *k < key(from) || *k >= key(from + count));
            keyspace.flush().unwrap();
        }
        db.wait_idle().unwrap();
        let stats = keyspace.stats().unwrap();
        assert!(stats.runs <= 8 && db.stats().merged_bytes > 0, "{stats}");
        assert!(stats.removed_ranges > 5, "{stats}");
        assert_eq!(found(&keyspace), expected, "seed {seed}");
        let keys: Vec<_> = (0..2000).map(key).collect();
        let many = keyspace.multi_get(&keys).unwrap();
        for (key, found) in keys.iter().zip(many) {
            assert_eq!(found.as_deref(), expected.get(key).map(Vec::as_slice), "{key:?}");
        }
        keyspace.convert().unwrap();
        assert_eq!(found(&keyspace), expected, "seed {seed}, settled");
    }
}

/// Ranges sink through levels, beside ingests and over several lives.
#[test]
fn ranges_over_levels_remove_the_same() {
    for seed in 0..3 {
        let setup = unsettled();
        let levels = setup.keyspace.clone().store(Store::Lsm).level_base_bytes(16 << 10);
        let setup = Setup { keyspace: levels.level_multiplier(4), ..setup };
        let disk = SimDisk::new(seed);
        let (mut db, mut keyspace) = open(&disk, &setup);
        let (mut random, mut expected) = (Random::new(seed), Content::new());
        for round in 0..30u64 {
            for _ in 0..150 {
                let number = random.below(2000);
                keyspace.insert(key(number), [round as u8; 100]).unwrap();
                expected.insert(key(number), vec![round as u8; 100]);
            }
            let (from, count) = (random.below(2000), random.below(300));
            let range = key(from)..key(from + count);
            keyspace.remove_range(range.clone()).unwrap();
            expected.retain(|k, _| !range.contains(k));
            if round % 4 == 0 {
                let entries: Vec<_> = (from..from + 9).map(|n| (key(n), vec![9; 50])).collect();
                keyspace.ingest(entries.iter().map(|(k, v)| (k, v))).unwrap();
                expected.extend(entries);
            }
            assert_eq!(found(&keyspace), expected, "seed {seed}, round {round}");
            match round % 3 {
                0 => keyspace.flush().unwrap(),
                1 => db.wait_idle().unwrap(),
                _ => {
                    drop((db, keyspace));
                    (db, keyspace) = open(&disk, &setup);
                }
            }
            assert_eq!(found(&keyspace), expected, "seed {seed}, round {round}, then");
        }
        keyspace.clear().unwrap();
        for when in ["in memory", "flushed", "settled"] {
            assert!(keyspace.is_empty().unwrap(), "{when}");
            if when == "in memory" {
                keyspace.flush().unwrap()
            } else {
                keyspace.convert().unwrap()
            }
        }
        db.wait_idle().unwrap();
        assert_eq!(keyspace.stats().unwrap().removed_ranges, 0);
    }
}

/// Estimates know what is covered, wherever it is, and never less than there is.
#[test]
fn estimates_leave_out_what_is_covered() {
    for place in ["in memory", "flushed", "settled"] {
        let (db, keyspace) = open(&SimDisk::new(1), &unsettled());
        put(&keyspace, 0..3000, 1);
        match place {
            "flushed" => keyspace.flush().unwrap(),
            "settled" => keyspace.convert().unwrap(),
            _ => {}
        }
        db.wait_idle().unwrap();
        keyspace.remove_range(key(1000)..).unwrap();
        for when in ["removed", "flushed"] {
            let len = keyspace.approximate_len().unwrap();
            assert!((980..=1100).contains(&len), "{place}, {when}: {len}");
            let size = keyspace.approximate_size::<&[u8]>(..).unwrap();
            assert!((108_000..150_000).contains(&size), "{place}, {when}: {size}");
            let none = keyspace.approximate_size(key(1500)..key(2500)).unwrap();
            assert!(none < 2000, "{place}, {when}: {none} bytes where nothing is");
            keyspace.flush().unwrap();
        }
        keyspace.clear().unwrap();
        let len = keyspace.approximate_len().unwrap();
        let size = keyspace.approximate_size::<&[u8]>(..).unwrap();
        assert_eq!((len, size), (0, 0), "{place}, cleared");
    }
}

/// A hundred thousand ranges in memory, and the same by a look at each.
#[test]
fn very_many_ranges_stay_fast() {
    let db = Database::builder("/db")
        .disk(Arc::new(SimDisk::new(1)))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memory_budget_bytes(1 << 30)
        .memtable_bytes(128 << 20)
        .automatic_conversion(false)
        .open()
        .unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut random = Random::new(7);
    let mut expected = BTreeMap::new();
    for number in 0..5000 {
        keyspace.insert(key(number * 10), "v").unwrap();
        expected.insert(key(number * 10), ());
    }
    keyspace.flush().unwrap();
    for _ in 0..100_000 {
        let from = random.below(50_000);
        let to = from + 1 + random.below(4);
        keyspace.remove_range(key(from)..key(to)).unwrap();
        (from..to).for_each(|number| _ = expected.remove(&key(number)));
    }
    for place in ["in memory", "flushed"] {
        let keys: Vec<_> = keyspace.keys().map(|key| key.unwrap().to_vec()).collect();
        assert!(keys.iter().eq(expected.keys()), "{place}");
        for number in 0..5000 {
            let key = key(number * 10);
            let there = keyspace.contains_key(&key).unwrap();
            assert_eq!(there, expected.contains_key(&key), "{place}: {key:?}");
        }
        keyspace.flush().unwrap();
    }
}
