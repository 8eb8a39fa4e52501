//! Sweeps write tables over the files of those that they replaced, and nobody sees it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use learnedkv::disk::Disk;
use learnedkv::disk::real::RealDisk;
use learnedkv::disk::sim::SimDisk;
use learnedkv::{Database, Keyspace, KeyspaceOptions, Slice, Verifying};
use learnedkv_skips::skip;

use crate::workload::Setup;

const KEYS: u64 = 4000;
const LENGTH: usize = 200;

/// Values stand beside their keys; 20 partitions and more.
fn options() -> KeyspaceOptions {
    KeyspaceOptions::default().min_conversion_bytes(1 << 30).partition_bytes(40 << 10)
}

fn key(number: u64) -> [u8; 8] {
    (number * 7919 % KEYS).to_be_bytes()
}

/// Every key gets a value of `fill`, and all is settled.
fn settle(keyspace: &Keyspace, fill: u8) {
    (0..KEYS).for_each(|number| keyspace.insert(key(number), [fill; LENGTH]).unwrap());
    keyspace.convert().unwrap();
}

fn check(keyspace: &Keyspace, fill: u8) {
    (0..KEYS).for_each(|number| {
        assert!(*keyspace.get(key(number)).unwrap().unwrap() == [fill; LENGTH], "{number}");
    });
    assert_eq!(keyspace.iter().count() as u64, KEYS);
}

fn on_sim(disk: &SimDisk, sweeps_ahead: bool) -> Database {
    let setup = Setup { memtable_bytes: 256 << 10, sweeps_ahead, ..Setup::default() };
    setup.open(disk, 1).unwrap()
}

fn on_real(dir: &Path) -> Database {
    let builder = Database::builder(dir).disk(Arc::new(RealDisk::new())).sweeps_ahead(true);
    builder.memtable_bytes(256 << 10).memory_budget_bytes(8 << 20).open().unwrap()
}

/// Whether files on this machine tell how many names they have: else none is written over.
fn tells_names(dir: &Path) -> bool {
    let tells = RealDisk::new().create(&dir.join("probe")).unwrap().has_one_name();
    std::fs::remove_file(dir.join("probe")).unwrap();
    tells
}

/// The bytes of all tables in `dir`.
fn tables(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let tables = names.filter(|name| name.starts_with("table-"));
    tables.map(|name| (name.clone(), std::fs::read(dir.join(&name)).unwrap())).collect()
}

#[test]
fn sweeps_write_over_what_they_replaced_and_nothing_is_left_of_it() {
    for sweeps_ahead in [false, true] {
        let disk = SimDisk::new(1);
        let db = on_sim(&disk, sweeps_ahead);
        let keyspace = db.keyspace("k", options()).unwrap();
        settle(&keyspace, 0);
        let first = db.stats().recycled_tables;
        for fill in 1..4 {
            settle(&keyspace, fill);
            check(&keyspace, fill);
        }
        db.wait_idle().unwrap();
        let (stats, settled) = (db.stats(), keyspace.stats().unwrap());
        assert_eq!(first, 0, "there was nothing to replace");
        assert!(stats.recycled_tables > settled.partitions / 2, "{stats}");
        assert_eq!(stats.unremoved_bytes, 0);
        let files = disk.list(Path::new("/db")).unwrap();
        let files = files.iter().filter(|name| name.starts_with("table-")).count() as u64;
        assert_eq!(files, settled.partitions, "one is kept while there is a sweep");
        drop((keyspace, db));
        let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
        let verified = builder.verify(None, &mut |told| {
            assert!(!matches!(told, Verifying::Damage(_)), "{told:?}");
        });
        assert_eq!(verified.unwrap().damages, 0);
        check(&on_sim(&disk, sweeps_ahead).find("k").unwrap(), 3);
    }
}

/// A value that is lent from a map is the file's own bytes.
#[test]
fn what_is_lent_of_a_table_stays_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    if !tells_names(dir.path()) {
        return skip("names", "files here do not tell how many names they have");
    }
    let db = on_real(&dir.path().join("db"));
    let keyspace = db.keyspace("k", options()).unwrap();
    let mut lent: Vec<(u8, Slice)> = Vec::new();
    for fill in 0..8 {
        settle(&keyspace, fill);
        // Of a part of the tables: the others are written over.
        let some = (0..KEYS).filter(|number| number % 1000 < 50 + u64::from(fill));
        lent.extend(
            some.map(|number| (fill, keyspace.get(number.to_be_bytes()).unwrap().unwrap())),
        );
        for (fill, value) in &lent {
            assert!(**value == [*fill; LENGTH], "a value of round {fill} has changed: {value:?}");
        }
    }
    let stats = db.stats();
    if stats.mapped_reads == 0 {
        return skip("page_cache", "files here are not mapped");
    }
    assert!(stats.recycled_tables > 20 && stats.mapped_reads > 1000, "{stats}");
    drop(lent);
    check(&keyspace, 7);
}

/// The engine that lent it is gone, and its successor knows nothing of that.
#[test]
fn what_an_earlier_life_of_the_database_lent_stays_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    if !tells_names(dir.path()) {
        return skip("names", "files here do not tell how many names they have");
    }
    let lend = |keyspace: &Keyspace| -> Vec<Slice> {
        (0..KEYS).map(|number| keyspace.get(key(number)).unwrap().unwrap()).collect()
    };
    let db = on_real(&dir.path().join("db"));
    let keyspace = db.keyspace("k", options()).unwrap();
    settle(&keyspace, 0);
    let lent = lend(&keyspace);
    drop((keyspace, db));
    let db = on_real(&dir.path().join("db"));
    let keyspace = db.find("k").unwrap();
    (1..4).for_each(|fill| settle(&keyspace, fill));
    assert!(db.stats().recycled_tables > 0, "those that it wrote itself");
    assert!(lent.iter().all(|value| **value == [0; LENGTH]), "a value has changed");
}

/// Its files have one name again, and somebody reads there still.
#[test]
fn what_a_checkpoint_has_open_stays_what_it_is_when_its_directory_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = dir.path().join("checkpoint");
    if !tells_names(dir.path()) {
        return skip("names", "files here do not tell how many names they have");
    }
    let db = on_real(&dir.path().join("db"));
    let keyspace = db.keyspace("k", options()).unwrap();
    settle(&keyspace, 0);
    db.checkpoint(&checkpoint).unwrap();
    let copy = Database::builder(&checkpoint).read_only(true).open().unwrap();
    check(&copy.find("k").unwrap(), 0);
    std::fs::remove_dir_all(&checkpoint).unwrap();
    (1..4).for_each(|fill| settle(&keyspace, fill));
    assert!(db.stats().recycled_tables > 0, "those after it");
    check(&copy.find("k").unwrap(), 0);
}

/// Whoever copies a directory by hard links has the same files.
#[test]
fn a_file_that_has_another_name_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let [own, links] = ["db", "links"].map(|name| dir.path().join(name));
    if !tells_names(dir.path()) {
        return skip("names", "files here do not tell how many names they have");
    }
    let db = on_real(&own);
    let keyspace = db.keyspace("k", options()).unwrap();
    settle(&keyspace, 0);
    db.checkpoint(dir.path().join("checkpoint")).unwrap();
    settle(&keyspace, 1);
    db.wait_idle().unwrap();
    std::fs::create_dir(&links).unwrap();
    let before = tables(&own);
    before.keys().for_each(|name| std::fs::hard_link(own.join(name), links.join(name)).unwrap());
    let recycled = db.stats().recycled_tables;
    for fill in 2..4 {
        settle(&keyspace, fill);
    }
    assert!(db.stats().recycled_tables > recycled, "those of the round between");
    assert!(tables(&links) == before);
    check(&keyspace, 3);
    let copy = Database::open(dir.path().join("checkpoint")).unwrap();
    check(&copy.find("k").unwrap(), 0);
}

/// What is kept takes room that a full disk has not.
#[test]
fn nothing_is_kept_where_the_disk_has_little_room() {
    let disk = SimDisk::new(1);
    let db = on_sim(&disk, true);
    let keyspace = db.keyspace("k", options()).unwrap();
    settle(&keyspace, 0);
    let room = |bytes: u64| disk.set_space_limit_bytes(Some(disk.used_bytes() + bytes));
    // Enough for all that is fresh, and a partition or two.
    room(4 * KEYS * LENGTH as u64);
    settle(&keyspace, 1);
    let some = db.stats().recycled_tables;
    assert!(some > 0);
    (0..KEYS).for_each(|number| keyspace.insert(key(number), [2; LENGTH]).unwrap());
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    room(3 * (40 << 10));
    keyspace.convert().unwrap();
    let stats = db.stats();
    check(&keyspace, 2);
    assert!(stats.recycled_tables - some < 5, "{some}, then {stats}");
}
