//! Bugs that were found, each in the smallest test that shows it, named by what went wrong.

use std::sync::Arc;

use learnedkv::Database;
use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::SeededExecutor;

use crate::workload::Setup;

/// Opens `/db`, its executor at hand.
fn open(disk: &SimDisk, setup: &Setup, seed: u64) -> (Database, Arc<SeededExecutor>) {
    let executor = Arc::new(SeededExecutor::new(seed));
    let db = Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor.clone())
        .memtable_bytes(setup.memtable_bytes)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(setup.log_segment_bytes)
        .automatic_conversion(setup.automatic_conversion)
        .open()
        .unwrap();
    (db, executor)
}

/// A step of the sweep that was begun before an ingest split its partition replaced the ingested
/// part, or raised the watermark over entries that were not merged.
#[test]
fn an_ingest_amid_a_sweep_step_is_kept() {
    let mut setup = Setup::default();
    setup.keyspace = setup.keyspace.min_conversion_bytes(0);
    for (seed, steps) in (0..6).flat_map(|seed| (0..50).map(move |steps| (seed, steps))) {
        let (db, executor) = open(&SimDisk::new(seed), &setup, seed);
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let keys = |letter: char| (0..40).map(move |n| format!("{letter}{n:02}"));
        let mut expected: Vec<String> = Vec::new();
        for key in keys('b').chain(keys('y')) {
            keyspace.insert(&key, [b'v'; 100]).unwrap();
            expected.push(key);
        }
        if seed % 2 == 0 {
            // The swept partition has a base already, and more comes on both sides.
            keyspace.convert().unwrap();
            for key in keys('a').chain(keys('z')) {
                keyspace.insert(&key, [b'v'; 100]).unwrap();
                expected.push(key);
            }
        }
        keyspace.flush().unwrap();
        for _ in 0..steps {
            executor.step_one();
        }
        keyspace.ingest(keys('m').map(|key| (key, [b'i'; 50]))).unwrap();
        expected.extend(keys('m'));
        expected.sort();
        for when in ["at once", "at rest", "converted"] {
            let found: Vec<_> = keyspace
                .iter()
                .map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap())
                .collect();
            assert_eq!(found, expected, "seed {seed}, {steps} steps, {when}");
            db.wait_idle().unwrap();
            if when == "at rest" {
                keyspace.convert().unwrap();
            }
        }
    }
}
