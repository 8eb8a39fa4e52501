//! Runs that reads have paid to have merged, and when they are not.

use std::sync::Arc;

use learnedkv::disk::OperationKind;
use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::SimDisk;
use learnedkv::{Database, DatabaseHealth, ErrorKind, Keyspace, KeyspaceOptions};

use crate::files::{flip, last_file, read};
use crate::plain::{name, nothing_kept, open_on};
use crate::settle_for_reads::{KEYS, fill, idle};
use crate::workload::Setup;

/// Three runs of all keys, in memory.
fn three_runs(disk: &SimDisk, setup: &Setup) -> (Database, Keyspace) {
    let (db, keyspace) = open_on(disk, setup);
    (0..3).for_each(|_| fill(&keyspace, 100));
    assert_eq!(idle(&db, &keyspace).0.runs, 3);
    (db, keyspace)
}

/// What walks have done that would have paid for a merge twice: so many runs are left.
fn runs_after_walks(db: &Database, keyspace: &Keyspace) -> u64 {
    (0..130).for_each(|_| assert_eq!(keyspace.iter().count(), KEYS as usize));
    idle(db, keyspace).0.runs
}

#[test]
fn runs_are_not_merged_for_reads_where_nothing_is_settled_for_them() {
    let cached = || Setup { block_cache: true, ..nothing_kept() };
    let without = cached().keyspace.settle_for_reads(false);
    let cases = [
        (cached(), 1),
        (Setup { keyspace: without, ..cached() }, 3),
        (Setup { automatic_conversion: false, ..cached() }, 3),
    ];
    for (setup, runs) in cases {
        let (db, keyspace) = three_runs(&SimDisk::new(1), &setup);
        assert_eq!(runs_after_walks(&db, &keyspace), runs);
        assert_eq!(db.stats().merges_for_reads, u64::from(runs == 1));
    }
}

/// It takes space before it gives back what it replaced, and nobody needs it.
#[test]
fn a_merge_for_reads_waits_for_room() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = three_runs(&disk, &Setup { block_cache: true, ..nothing_kept() });
    // Less than what is put meanwhile may take.
    disk.set_space_limit_bytes(Some(disk.used_bytes() + (1 << 20)));
    // However much was paid by then, it is looked for again soon.
    (0..8).for_each(|_| assert_eq!(runs_after_walks(&db, &keyspace), 3));
    disk.set_space_limit_bytes(None);
    assert_eq!(runs_after_walks(&db, &keyspace), 1);
    keyspace.insert("more", [1; 1000]).unwrap();
}

/// It was begun again at each flush of any keyspace, from the first key, and the database said that it was failing. What is damaged
/// those are told who read it, and whoever asks for a sweep.
#[test]
fn a_merge_for_reads_that_meets_damage_is_no_failure_and_is_not_begun_at_each_flush() {
    let disk = SimDisk::new(1);
    let setup = Setup { block_cache: true, ..nothing_kept() };
    drop(three_runs(&disk, &setup));
    let table = last_file(&disk, "table-");
    let length = read(&disk, &table).len() as i64;
    flip(&disk, &table, length * 6 / 10, 1);
    let (db, keyspace) = open_on(&disk, &setup);
    let walk = || assert_eq!(keyspace.range(..name(KEYS / 4)).count(), KEYS as usize / 4);
    (0..600).for_each(|_| walk());
    db.wait_idle().unwrap();
    let merged = db.stats().merged_bytes;
    assert!(merged > 0 && db.stats().merges_for_reads == 0, "it was tried");
    let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
    for n in 0..5u8 {
        other.insert([n], [1]).unwrap();
        other.flush().unwrap();
        (0..50).for_each(|_| walk());
        db.wait_idle().unwrap();
    }
    assert_eq!(db.stats().merged_bytes, merged);
    assert!(matches!(db.health(), DatabaseHealth::Well), "{:?}", db.health());
    assert!(keyspace.range(..name(KEYS - 1)).any(|entry| entry.is_err()));
    assert!(keyspace.convert().is_err());
}

/// Nobody needs it: that the disk refused it is told of by nothing, and it is not tried again soon.
#[test]
fn a_merge_for_reads_that_the_disk_refuses_is_no_failure() {
    let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let setup = Setup { block_cache: true, ..nothing_kept() };
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (0..3).for_each(|_| fill(&keyspace, 100));
    let creates = Fault::at(0).of(&[OperationKind::Create]).on_paths_with("table-");
    let refused = disk.fail(creates.from_then_on().with(ErrorKind::DiskFull));
    for _ in 0..2 {
        assert_eq!(runs_after_walks(&db, &keyspace), 3);
        assert!((1..=3).contains(&refused.fired()), "{}: not at each look", refused.fired());
    }
    assert!(matches!(db.health(), DatabaseHealth::Well), "{:?}", db.health());
    keyspace.insert("more", [1; 1000]).unwrap();
    keyspace.remove("more").unwrap();
    disk.clear_faults();
    // It is put off for so long that the sweep is paid for first.
    let rounds = (1..=10).find(|_| runs_after_walks(&db, &keyspace) == 0);
    assert!(rounds.is_some() && db.stats().merges_for_reads == 0, "{rounds:?}");
}

/// Nor is one tried again and again where a run cannot be read.
#[test]
fn runs_beside_one_that_cannot_be_opened_are_not_merged_for_reads() {
    let disk = SimDisk::new(1);
    let setup = Setup { block_cache: true, ..nothing_kept() };
    let (db, keyspace) = three_runs(&disk, &setup);
    keyspace.insert("zz", [1; 100]).unwrap();
    keyspace.flush().unwrap();
    drop((db, keyspace));
    flip(&disk, &last_file(&disk, "table-"), -20, 1);
    let (db, keyspace) = open_on(&disk, &setup);
    for _ in 0..130 {
        assert_eq!(keyspace.range(.."zz").count(), KEYS as usize);
    }
    let stats = keyspace.stats().unwrap();
    assert!(stats.unsettled_requests > 200, "{stats}");
    assert!(db.wait_idle().is_ok());
    assert_eq!((stats.damaged_tables, db.stats().merges_for_reads), (1, 0));
}
