//! What was cached is cached again where a job wrote it anew.

use std::sync::Arc;

use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::SeededExecutor;
use learnedkv::{Compression, Database, Keyspace, KeyspaceOptions, Store};

const KEYS: u64 = 20_000;
/// One key in so many is asked for often.
const HOT: u64 = 40;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn open(mapped: bool) -> Database {
    Database::builder("/db")
        .disk(Arc::new(SimDisk::new(1)))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(64 << 10)
        .memory_budget_bytes(16 << 20)
        .mapped_reads(mapped)
        .open()
        .unwrap()
}

/// Asks for the hot keys; how many blocks were not cached: read, or decompressed from where the system holds them.
fn missed(db: &Database, keyspace: &Keyspace, round: u64) -> u64 {
    let missed = || db.stats().cache_misses + db.stats().mapped_reads;
    let before = missed();
    for number in (0..KEYS).step_by(HOT as usize) {
        assert_eq!(keyspace.get(key(number)).unwrap().unwrap()[..], value(number, round)[..]);
    }
    missed() - before
}

/// One value in eight changes each round, none of a hot key.
fn value(number: u64, round: u64) -> Vec<u8> {
    let version = if number % 8 == 3 { round } else { 0 };
    format!("{number} {version} ").repeat(8).into_bytes()
}

/// A sweep, or a compaction, left nothing in the cache of what it wrote: all that was asked for often was
/// read anew.
#[test]
fn what_was_cached_is_cached_again_after_it_was_written_anew() {
    for store in Store::ALL {
        for (mapped, compression) in [(false, Compression::None), (true, Compression::Lz4)] {
            let db = open(mapped);
            let options = KeyspaceOptions::default().store(*store).partition_bytes(256 << 10);
            let options = options.compression(compression).min_conversion_bytes(1 << 40);
            let keyspace = db.keyspace("k", options.level_base_bytes(256 << 10)).unwrap();
            for number in 0..KEYS {
                keyspace.insert(key(number), value(number, 0)).unwrap();
            }
            keyspace.convert().unwrap();
            let cold = missed(&db, &keyspace, 0);
            assert!(cold > 100, "{store:?} {mapped}: {cold}");
            assert_eq!(missed(&db, &keyspace, 0), 0, "all fits");
            for round in 1..4 {
                for number in (3..KEYS).step_by(8) {
                    keyspace.insert(key(number), value(number, round)).unwrap();
                }
                keyspace.convert().unwrap();
                let warm = missed(&db, &keyspace, round);
                assert!(warm * 10 < cold, "{store:?} {mapped}: {warm} of {cold}");
            }
        }
    }
}
