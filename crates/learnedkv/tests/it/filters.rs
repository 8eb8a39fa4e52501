//! What filters save, what they cost, and that they come and go with their tables. Those that rest in their
//! files: [`super::resting`].

use learnedkv::disk::Disk;
use learnedkv::disk::sim::SimDisk;
use learnedkv::{Database, FilterKind, Keyspace, KeyspaceOptions, Stats};

use crate::workload::Setup;

pub const KEYS: u32 = 4000;
pub const RUNS: u32 = 8;

pub fn setup(keyspace: KeyspaceOptions) -> Setup {
    let keyspace = keyspace.block_bytes(512);
    Setup {
        // Each block that is asked for is read, and nothing happens unasked.
        block_cache: false,
        automatic_conversion: false,
        memtable_bytes: 200 << 10,
        keyspace,
        ..Setup::default()
    }
}

pub fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Every second number is a key: the first part settled, then run upon run, each over all the range.
fn fill(setup: &Setup, disk: &SimDisk) -> (Database, Keyspace) {
    let db = setup.open(disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    for part in 0..=RUNS {
        for number in (0..KEYS).filter(|number| number % (RUNS + 1) == part) {
            keyspace.insert(key(number * 2), [7; 20]).unwrap();
        }
        if part == 0 {
            keyspace.convert().unwrap();
        } else {
            keyspace.flush().unwrap();
        }
    }
    assert_eq!(db.stats().keyspaces[0].runs, u64::from(RUNS));
    (db, keyspace)
}

pub fn names(disk: &SimDisk, prefix: &str) -> usize {
    let names = disk.list("/db".as_ref()).unwrap();
    names.iter().filter(|name| name.starts_with(prefix)).count()
}

/// What the reads cost: (blocks that were not in our cache, stops, false positives).
pub fn cost(db: &Database, read: impl FnOnce()) -> (u64, u64, u64) {
    let blocks = |s: &Stats| s.read_requests + s.mapped_reads;
    let figures = |s: Stats| (blocks(&s), s.filter_stops, s.filter_false_positives);
    let before = figures(db.stats());
    read();
    let after = figures(db.stats());
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

pub fn read_all(keyspace: &Keyspace, parity: u32) {
    for number in 0..KEYS {
        let found = keyspace.get(key(number * 2 + parity)).unwrap();
        assert_eq!(found.is_some(), parity == 0, "{number}");
    }
}

/// As [`read_all`], so many keys a call.
pub fn read_together(keyspace: &Keyspace, parity: u32, call: usize) {
    let keys: Vec<_> = (0..KEYS).map(|number| key(number * 2 + parity)).collect();
    for keys in keys.chunks(call) {
        let found = keyspace.multi_get(keys).unwrap();
        assert_eq!(found.len(), keys.len());
        assert!(found.iter().all(|found| found.is_some() == (parity == 0)), "{keys:?}");
    }
}

/// Of all KEYS lookups; half of the runs are asked before a key's own, on average.
#[test]
fn filters_save_the_reads_of_runs_that_lack_a_key() {
    let keys = u64::from(KEYS);
    let disk = SimDisk::new(1);
    let unfiltered = setup(KeyspaceOptions::default().attach_filters(false));
    let (db, keyspace) = fill(&unfiltered, &disk);
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 0));
    assert_eq!(requests, keys + wrong, "one read a key, and those of the false positives");
    assert!(wrong < keys * 4 * 2 / 100, "{wrong} false positives");
    assert!(stops > keys * 7 / 2, "{stops} stops");
    // The settled run has no filter: an absent key's block is read there.
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests <= keys + wrong && wrong < keys * 8 * 2 / 100, "{requests}, {wrong}");
    assert!(stops > keys * 7, "{stops} stops");
    let none = setup(KeyspaceOptions::default().lsm_filter(None).attach_filters(false));
    let (db, keyspace) = fill(&none, &SimDisk::new(1));
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests > keys * 8 && (stops, wrong) == (0, 0), "{requests}: is nothing saved?");
    // A snapshot's lookups are counted as well.
    let (db, keyspace) = fill(&setup(KeyspaceOptions::default()), &SimDisk::new(1));
    let snapshot = db.snapshot();
    let (_, stops, _) =
        cost(&db, || assert!(snapshot.get(&keyspace, key(KEYS + 1)).unwrap().is_none()));
    assert!(stops > 5, "{stops}");
}

#[test]
fn filters_of_settled_tables_save_the_last_read_of_absent_keys() {
    for (kind, percent) in
        [(FilterKind::BinaryFuse8, 1), (FilterKind::BlockedBloom { bits_per_key: 10 }, 2)]
    {
        let options = KeyspaceOptions::default().settled_filter(Some(kind));
        let (db, keyspace) = fill(&setup(options), &SimDisk::new(1));
        keyspace.convert().unwrap();
        let (requests, _, wrong) = cost(&db, || read_all(&keyspace, 1));
        assert_eq!(requests, wrong, "{kind}");
        assert!(wrong <= u64::from(KEYS) * percent / 100, "{kind}: {wrong} false positives");
        let (requests, stops, _) = cost(&db, || read_all(&keyspace, 0));
        assert_eq!((requests, stops), (u64::from(KEYS), 0), "{kind}");
        let stats = &db.stats().keyspaces[0];
        assert_eq!((stats.lsm_entries, stats.filtered_entries), (0, u64::from(KEYS)));
    }
}

#[test]
fn a_bulk_load_writes_the_filter_of_settled_tables() {
    let options = KeyspaceOptions::default().settled_filter(Some(FilterKind::BinaryFuse8));
    let (setup, disk) = (setup(options), SimDisk::new(1));
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.ingest((0..KEYS).map(|n| (key(n * 2), [7; 20]))).unwrap();
    let (requests, stops, wrong) = cost(&db, || read_all(&keyspace, 1));
    assert!(requests == wrong && stops > u64::from(KEYS) * 98 / 100, "{requests}, {stops}");
}

#[test]
fn filters_are_in_the_figures_and_go_with_their_tables() {
    let (setup, disk) = (setup(KeyspaceOptions::default()), SimDisk::new(1));
    let (db, keyspace) = fill(&setup, &disk);
    let stats = db.stats().keyspaces[0].clone();
    let resting = stats.resting_filters as usize;
    assert_eq!((stats.filters, resting as u64), (u64::from(RUNS), stats.partitions));
    assert_eq!(names(&disk, "filter-"), RUNS as usize + resting);
    assert_eq!(stats.filtered_entries, stats.lsm_entries);
    // Nine to ten bits a key at rest, and a file's head.
    let expected = stats.filter_bytes + (stats.settled_entries * 9 / 8);
    assert!(stats.filter_file_bytes.abs_diff(expected) < 2000, "{stats}");
    // Lines of 64 bytes for some hundred keys, and what a filter takes besides.
    assert!((10.0..13.0).contains(&stats.filter_bits_per_key()), "{}", stats.filter_bits_per_key());
    assert!(stats.metadata_bytes > stats.filter_bytes && stats.filter_bytes > 0);
    drop((db, keyspace));
    let db = setup.open(&disk, 2).unwrap();
    assert_eq!(
        db.stats().keyspaces[0].filters,
        u64::from(RUNS),
        "they are there when opened again"
    );
    let keyspace = db.find("a").unwrap();
    let snapshot = db.snapshot();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().keyspaces[0].filters, 0);
    let settled = db.stats().keyspaces[0].resting_filters as usize;
    assert_eq!(
        names(&disk, "filter-"),
        RUNS as usize + resting + settled,
        "the snapshot uses them"
    );
    drop(snapshot);
    keyspace.insert(key(0), [8; 20]).unwrap();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    // The last that left the View may not be buried yet; the next open does that.
    assert!(names(&disk, "filter-") <= settled + 2, "their tables are gone");
    drop((db, keyspace));
    let _db = setup.open(&disk, 3).unwrap();
    assert_eq!((names(&disk, "filter-"), names(&disk, "table-")), (2, 2));
}

#[test]
fn many_keys_ask_filters_as_each_alone_does() {
    let (db, keyspace) = fill(&setup(KeyspaceOptions::default()), &SimDisk::new(1));
    // From here on none comes into memory.
    read_all(&keyspace, 1);
    for parity in [0, 1] {
        let (single, stops, wrong) = cost(&db, || read_all(&keyspace, parity));
        for call in [1, 100, KEYS as usize] {
            let together = cost(&db, || read_together(&keyspace, parity, call));
            assert_eq!((together.1, together.2), (stops, wrong), "{parity}, {call}");
            assert!(together.0 <= single, "{parity}, {call}: {} requests", together.0);
        }
    }
}
