//! One keyspace, numbered keys and nothing kept in memory: for tests of what reads ask the disk for.

use learnedkv::disk::sim::SimDisk;
use learnedkv::{Database, Keyspace, KeyspaceOptions};

use crate::workload::Setup;

/// A new database with a keyspace.
pub fn open(setup: &Setup) -> (Database, Keyspace) {
    open_on(&SimDisk::new(1), setup)
}

/// The one on `disk`.
pub fn open_on(disk: &SimDisk, setup: &Setup) -> (Database, Keyspace) {
    let db = setup.open(disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (db, keyspace)
}

/// The key of that number; they are in order of their numbers.
pub fn name(number: u32) -> String {
    format!("key{number:05}")
}

/// Blocks are neither cached nor mapped, and a memtable holds all that a test puts.
pub fn nothing_kept() -> Setup {
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
