//! A keyspace against a `BTreeMap`: random operations, the seeded executor, the simulated disk.

use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, KeyspaceOptions, Store};

use crate::keys::Keys;
use crate::workload::{Content as Model, Random};

fn open(disk: &SimDisk, seed: u64) -> Database {
    Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(Arc::new(SeededExecutor::new(seed)))
        .memtable_bytes(8 << 10)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(16 << 10)
        .open()
        .unwrap_or_else(|e| panic!("seed {seed}: {e}"))
}

fn small_tables(store: Store) -> KeyspaceOptions {
    KeyspaceOptions::default()
        .store(store)
        .level_base_bytes(4 << 10)
        .level_multiplier(3)
        .block_bytes(512)
        .partition_bytes(16 << 10)
        .min_conversion_bytes(32 << 10)
}

fn check(
    keyspace: &learnedkv::Keyspace,
    model: &Model,
    random: &mut Random,
    seed: u64,
    shape: Keys,
) {
    let pairs = |iter: learnedkv::Iter| -> Vec<(Vec<u8>, Vec<u8>)> {
        iter.map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
    };
    let all: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(pairs(keyspace.iter()), all, "seed {seed}: all, upwards");
    let mut down: Vec<_> =
        keyspace.iter().rev().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    down.reverse();
    assert_eq!(down, all, "seed {seed}: all, downwards");
    for _ in 0..10 {
        let (a, b) = (key(random, shape), key(random, shape));
        let (a, b) = (a.clone().min(b.clone()), a.max(b));
        let expected: Vec<_> =
            model.range(a.clone()..b.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(
            pairs(keyspace.range(a.clone()..b.clone())),
            expected,
            "seed {seed}: {a:?}..{b:?}"
        );
        check_lent(keyspace, model, random, seed, (a.clone(), b.clone()));
        // From both ends in turn.
        let mut iter = keyspace.range(a.clone()..=b.clone());
        let mut rest: std::collections::VecDeque<_> = model.range(a..=b).collect();
        loop {
            let front = random.below(2) == 0;
            let (found, expected) = if front {
                (iter.next(), rest.pop_front())
            } else {
                (iter.next_back(), rest.pop_back())
            };
            let found = found.transpose().unwrap();
            assert_eq!(
                found.as_ref().map(|(k, v)| (&**k, &**v)),
                expected.map(|(k, v)| (k.as_slice(), v.as_slice())),
                "seed {seed}"
            );
            if found.is_none() {
                break;
            }
        }
        let k = key(random, shape);
        assert_eq!(
            keyspace.get(&k).unwrap().as_deref(),
            model.get(&k).map(Vec::as_slice),
            "seed {seed}"
        );
    }
    check_other_reads(keyspace, model, random, seed, shape);
}

/// Some of a range from both ends, of the rest some lent.
fn check_lent(
    keyspace: &learnedkv::Keyspace,
    model: &Model,
    random: &mut Random,
    seed: u64,
    (a, b): (Vec<u8>, Vec<u8>),
) {
    let [taken, back, most] = [20, 20, 30].map(|below| random.below(below) as usize);
    let mut iter = keyspace.range(a.clone()..=b.clone());
    let mut rest: std::collections::VecDeque<_> = model.range(a.clone()..=b.clone()).collect();
    for entry in iter.by_ref().take(taken) {
        assert_eq!(Some(&*entry.unwrap().0), rest.pop_front().map(|(k, _)| k.as_slice()));
    }
    for entry in iter.by_ref().rev().take(back) {
        assert_eq!(Some(&*entry.unwrap().0), rest.pop_back().map(|(k, _)| k.as_slice()));
    }
    let mut lent = Vec::new();
    let visited = iter.visit(|key, value| {
        lent.push((key.to_vec(), value.to_vec()));
        if lent.len() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    visited.unwrap();
    let expected = rest.iter().take(most + 1).map(|(k, v)| ((*k).clone(), (*v).clone()));
    assert!(lent.into_iter().eq(expected), "seed {seed}: lent of {a:?}..={b:?}");
}

/// Any two bounds, inverted ones too; reads without values; estimates within what they promise.
fn check_other_reads(
    keyspace: &learnedkv::Keyspace,
    model: &Model,
    random: &mut Random,
    seed: u64,
    shape: Keys,
) {
    for _ in 0..10 {
        let mut bound = || match random.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key(random, shape)),
            _ => Bound::Excluded(key(random, shape)),
        };
        let range = (bound(), bound());
        let inside = |k: &&Vec<u8>| range.contains(*k);
        let expected: Vec<_> = model.keys().filter(inside).cloned().collect();
        let keys = keyspace.range(range.clone()).keys();
        let found: Vec<Vec<u8>> = keys.map(|k| k.unwrap().to_vec()).collect();
        assert_eq!(found, expected, "seed {seed}: {range:?}");
        let sizes = keyspace.range(range.clone()).sizes().rev().map(Result::unwrap);
        let sizes: Vec<_> = sizes.map(|(k, size)| (k.to_vec(), size)).collect();
        let expected = expected.into_iter().rev().map(|k| (k.clone(), model[&k].len() as u64));
        assert!(sizes.iter().cloned().eq(expected), "seed {seed}: {range:?}, sizes downwards");
        let whole = keyspace.approximate_size::<&[u8]>(..).unwrap();
        let part = keyspace.approximate_size(range.clone()).unwrap();
        // All its bytes are in blocks that were named, or in memtables.
        let least: u64 = sizes.iter().map(|(k, size)| k.len() as u64 + size).sum();
        assert!(part <= whole && part * 2 >= least, "seed {seed}: {range:?}: {part} of {least}");
        let k = key(random, shape);
        let size = model.get(&k).map(|value| value.len() as u64);
        assert_eq!(keyspace.size_of(&k).unwrap(), size, "seed {seed}: {k:?}");
        assert_eq!(keyspace.contains_key(&k).unwrap(), size.is_some(), "seed {seed}: {k:?}");
    }
    let first = keyspace.first_key_value().unwrap().map(|(k, v)| (k.to_vec(), v.to_vec()));
    assert_eq!(first, model.clone().pop_first(), "seed {seed}");
    let last = keyspace.last_key_value().unwrap().map(|(k, v)| (k.to_vec(), v.to_vec()));
    assert_eq!(last, model.clone().pop_last(), "seed {seed}");
    assert_eq!(keyspace.is_empty().unwrap(), model.is_empty(), "seed {seed}");
}

/// Few keys go, now and then many.
fn remove_range(
    keyspace: &learnedkv::Keyspace,
    model: &mut Model,
    random: &mut Random,
    shape: Keys,
) {
    let start = random.below(600);
    let count = [3, 3, 30, 300][random.below(4) as usize];
    let range = (Bound::Excluded(shape.key(start)), Bound::Included(shape.key(start + count)));
    keyspace.remove_range(range.clone()).unwrap();
    model.retain(|key, _| !range.contains(key));
}

/// A bulk load over part of the keys.
fn ingest(keyspace: &learnedkv::Keyspace, model: &mut Model, random: &mut Random, shape: Keys) {
    let start = random.below(500);
    let entries = (start..start + 50).map(|i| (shape.key(i), vec![7; i as usize % 90]));
    let entries: Vec<_> = entries.collect();
    keyspace.ingest(entries.iter().map(|(k, v)| (k, v))).unwrap();
    model.extend(entries);
}

fn key(random: &mut Random, shape: Keys) -> Vec<u8> {
    shape.key(random.below(600))
}

#[test]
fn any_mix_of_operations_answers_like_a_btree_map() {
    for (seed, store) in (0..30).flat_map(|seed| [(seed, Store::Tiered), (seed, Store::Lsm)]) {
        let (mut random, shape) = (Random::new(seed), Keys::of(seed));
        let disk = SimDisk::new(seed);
        let mut db = open(&disk, seed);
        let mut keyspace = db.keyspace("model", small_tables(store)).unwrap();
        let mut model = Model::new();
        for step in 0..1500u64 {
            match random.below(1000) {
                0..800 => {
                    let (k, length) = (key(&mut random, shape), random.below(200) as usize);
                    let value = vec![step as u8; length];
                    keyspace.insert(&k, &value).unwrap();
                    model.insert(k, value);
                }
                800..950 => {
                    let k = key(&mut random, shape);
                    keyspace.remove(&k).unwrap();
                    model.remove(&k);
                }
                950..955 => remove_range(&keyspace, &mut model, &mut random, shape),
                955..970 => {
                    let k = key(&mut random, shape);
                    assert_eq!(
                        keyspace.get(&k).unwrap().as_deref(),
                        model.get(&k).map(Vec::as_slice)
                    );
                }
                970..980 => keyspace.flush().unwrap(),
                980..984 => keyspace.convert().unwrap(),
                984..986 => keyspace.compact().unwrap(),
                986..990 => check(&keyspace, &model, &mut random, seed, shape),
                990..994 => ingest(&keyspace, &mut model, &mut random, shape),
                _ => {
                    drop((db, keyspace));
                    db = open(&disk, seed + step);
                    keyspace = db.keyspace("model", small_tables(store)).unwrap();
                }
            }
        }
        check(&keyspace, &model, &mut random, seed, shape);
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let stats = keyspace.stats().unwrap();
        match store {
            Store::Lsm => {
                // Each within its size, and those above the last a third and a ninth of it and so on.
                let levels = &stats.levels;
                assert!(levels.iter().all(|l| l.level > 0 && l.score_percent < 100), "{stats}");
                let last = levels.last().map_or(0, |l| l.bytes);
                assert!(stats.lsm_bytes <= last + last * 6 / 10 + 4096, "seed {seed}: {stats}");
            }
            _ => assert_eq!((stats.lsm_entries, stats.runs), (0, 0), "seed {seed}: {stats}"),
        }
        assert_eq!(db.stats().index_fallbacks, 0, "seed {seed}");
        check(&keyspace, &model, &mut random, seed, shape);
        // Off by the deltas (a quarter of their bases at most), and where ingests cut tables; by all that
        // the upper levels hold, which is half of the last.
        let (about, exactly) = (keyspace.approximate_len().unwrap(), model.len() as u64);
        let parts = if store == Store::Lsm { 1 } else { 4 };
        assert!(about.abs_diff(exactly) * parts <= exactly, "seed {seed}: {about} for {exactly}");
        keyspace.compact().unwrap();
        assert_eq!(keyspace.stats().unwrap().deltas, 0, "seed {seed}");
        check(&keyspace, &model, &mut random, seed, shape);
    }
}
