//! What a walk reads beyond what it hands out, and what becomes of it where that cannot be read.

use std::path::{Path, PathBuf};

use learnedkv::disk::sim::SimDisk;
use learnedkv::disk::{Access, Disk};
use learnedkv::{Database, ErrorKind, Keyspace, KeyspaceOptions};

use crate::workload::Setup;

/// Blocks are read by requests, and kept nowhere; values of a KiB and more stay apart.
fn setup() -> Setup {
    Setup {
        memtable_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        memory_budget_bytes: 64 << 20,
        block_cache: false,
        mapped_reads: false,
        automatic_conversion: false,
        stream_at: 1 << 20,
        keyspace: KeyspaceOptions::default().separate_at(1000).inline_limit(1000),
        ..Setup::default()
    }
}

fn open(disk: &SimDisk) -> (Database, Keyspace) {
    let setup = setup();
    let db = setup.open(disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (db, keyspace)
}

fn key(number: usize) -> String {
    format!("key{number:06}")
}

/// To hand out a short value a walk read the next one too, however long.
#[test]
fn a_walk_does_not_read_a_very_long_value_before_somebody_comes_to_it() {
    let (db, keyspace) = open(&SimDisk::new(1));
    let lengths = [20_000, 20_000, 8 << 20, 20_000, 20_000];
    for (number, length) in lengths.iter().enumerate() {
        keyspace.insert(key(number), vec![number as u8; *length]).unwrap();
    }
    keyspace.flush().unwrap();
    let right =
        |number: usize, entry: Option<learnedkv::Result<(learnedkv::Slice, learnedkv::Slice)>>| {
            let (found, value) = entry.expect("an entry").unwrap();
            assert!(
                found == key(number).as_bytes() && value == vec![number as u8; lengths[number]]
            );
        };
    let read_by = |walk: &dyn Fn()| {
        let before = db.stats().value_read_bytes;
        walk();
        db.stats().value_read_bytes - before
    };
    let up = || {
        let mut iter = keyspace.iter();
        (0..2).for_each(|number| right(number, iter.next()));
    };
    let down = || {
        let mut iter = keyspace.iter();
        (3..5).rev().for_each(|number| right(number, iter.next_back()));
    };
    for walk in [&up as &dyn Fn(), &down] {
        let bytes = read_by(walk);
        assert!((40_000..100_000).contains(&bytes), "{bytes} bytes read for two values of 20,000");
    }
    // All come, in order, from either end; where the ends meet nobody gets it twice.
    let mut iter = keyspace.iter();
    (0..5).for_each(|number| right(number, iter.next()));
    assert!(iter.next().is_none());
    let mut iter = keyspace.iter();
    (0..5).rev().for_each(|number| right(number, iter.next_back()));
    assert!(iter.next_back().is_none());
    let meet = || {
        let mut iter = keyspace.iter();
        right(0, iter.next());
        right(1, iter.next());
        (2..5).rev().for_each(|number| right(number, iter.next_back()));
        assert!(iter.next().is_none() && iter.next_back().is_none());
    };
    let bytes = read_by(&meet);
    assert!(bytes < 9 << 20, "{bytes} bytes: the longest was read once");
}

/// The table that holds `value`, and where.
fn place_of(disk: &SimDisk, value: &[u8]) -> (PathBuf, u64) {
    for name in disk.list(Path::new("/db")).unwrap() {
        let path = Path::new("/db").join(&name);
        if !name.starts_with("table-") {
            continue;
        }
        let file = disk.open(&path, Access::Sequential).unwrap();
        let mut bytes = vec![0; file.length_bytes().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value) {
            return (path, at as u64);
        }
    }
    panic!("no table holds the value");
}

/// Blocks are read ahead, up to 64 of them: one that could not be read ended walks that would never have come to it,
/// and all others long before it.
#[test]
fn a_damaged_block_ends_only_walks_that_come_to_it() {
    const COUNT: usize = 4000;
    const BAD: usize = 2000;
    let disk = SimDisk::new(1);
    let value = |number: usize| format!("<{number:088}>").into_bytes();
    let (db, keyspace) = open(&disk);
    (0..COUNT).for_each(|number| keyspace.insert(key(number), value(number)).unwrap());
    keyspace.convert().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let (path, at) = place_of(&disk, &value(BAD));
    let file = disk.open(&path, Access::Random).unwrap();
    file.write_all_at(b"?", at).unwrap();
    let (_db, keyspace) = open(&disk);
    let bounded = keyspace.range(..key(BAD - 100)).map(|entry| entry.unwrap().0);
    assert_eq!(bounded.count(), BAD - 100);
    let bounded = keyspace.range(key(BAD + 100)..).rev().map(|entry| entry.unwrap().0);
    assert_eq!(bounded.count(), COUNT - BAD - 100);
    // A block has some 36 entries.
    let mut up = keyspace.iter();
    let before: Vec<_> = up.by_ref().map_while(Result::ok).collect();
    assert!(before.iter().zip(0..).all(|((found, _), n)| *found == key(n).as_bytes()));
    assert!((BAD - 45..=BAD).contains(&before.len()), "{} before {BAD}", before.len());
    let error = up.next().expect("it says so for ever").unwrap_err();
    assert!(error.kind() == ErrorKind::Corruption && error.path() == Some(&*path), "{error}");
    let down = keyspace.iter().rev().map_while(Result::ok).count();
    assert!((COUNT - BAD - 45..COUNT - BAD).contains(&down), "{down} behind {BAD}");
}

/// A walk went through all that was removed behind its end to find that nothing more comes.
#[test]
fn a_walk_does_not_go_through_what_was_removed_behind_its_end() {
    let (db, keyspace) = open(&SimDisk::new(1));
    let all = |prefix: &'static str, count| (0..count).map(move |n| format!("{prefix}{n:06}"));
    for key in all("a", 100).chain(all("b", 20_000)).chain(all("c", 100)) {
        keyspace.insert(key, "value").unwrap();
    }
    keyspace.convert().unwrap();
    all("b", 20_000).for_each(|key| keyspace.remove(key).unwrap());
    keyspace.flush().unwrap();
    let read_by = |walk: &dyn Fn() -> usize| {
        let before = db.stats().read_bytes;
        assert_eq!(walk(), 100);
        db.stats().read_bytes - before
    };
    let walks: [&dyn Fn() -> usize; 4] = [
        &|| keyspace.prefix("a").count(),
        &|| keyspace.range("c".."d").rev().count(),
        &|| keyspace.prefix("a").keys().count(),
        &|| keyspace.range("c".."d").sizes().rev().count(),
    ];
    for (number, walk) in walks.into_iter().enumerate() {
        let bytes = read_by(walk);
        assert!(bytes < 64 << 10, "walk {number}: {bytes} bytes read for 100 entries");
    }
    // It is gone through by whoever asks for what is there: 300 KB and more.
    let before = db.stats().read_bytes;
    assert_eq!(keyspace.prefix("b").count(), 0);
    assert!(db.stats().read_bytes - before > 300_000, "{}", db.stats().read_bytes - before);
}

/// Each walk that stood still held a quarter of a MiB of each table that it was in, however many walks there were.
#[test]
fn many_walks_that_stand_still_hold_little_more_than_the_budget() {
    const BUDGET: u64 = 8 << 20;
    const WALKS: usize = 100;
    for block_cache in [true, false] {
        let disk = SimDisk::new(1);
        let setup = Setup {
            memory_budget_bytes: BUDGET,
            block_cache,
            keyspace: KeyspaceOptions::default(),
            ..setup()
        };
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let entries = 30_000;
        (0..entries).for_each(|number| keyspace.insert(key(number), [7; 900]).unwrap());
        keyspace.convert().unwrap();
        let mut walks = Vec::new();
        for walk in 0..WALKS {
            let mut entries = keyspace.range(key(walk * (entries / 2 / WALKS))..);
            // As far as most is read ahead.
            assert_eq!(entries.by_ref().take(600).map(Result::unwrap).count(), 600);
            walks.push(entries);
        }
        let held = db.stats().cache_bytes;
        let most = BUDGET + WALKS as u64 * (32 << 10);
        assert!(held < most, "{held} bytes, of {most} at the most");
        // They go on where they stand.
        for (walk, entries) in walks.into_iter().enumerate() {
            let first = walk * (15_000 / WALKS) + 600;
            let next: Vec<_> = entries.take(300).map(|entry| entry.unwrap().0).collect();
            assert!(next.iter().enumerate().all(|(at, k)| **k == *key(first + at).as_bytes()));
        }
    }
}
