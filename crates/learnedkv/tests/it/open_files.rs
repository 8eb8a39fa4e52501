//! A database of many files in a process that may have few open.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::SimDisk;
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::{Builder, Database, Keyspace, KeyspaceOptions, Store};

use crate::files::{is_about, last_file, read, restore};
use crate::keys::Keys;
use crate::workload::{Content, Random, Setup};

const KEYS: u64 = 6000;

/// Tables of a few KiB: of so many keys hundreds.
fn options(store: Store) -> KeyspaceOptions {
    let options = KeyspaceOptions::default().store(store).partition_bytes(4 << 10);
    options.separate_at(200).level_base_bytes(64 << 10).min_conversion_bytes(64 << 10)
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(10) { 300 } else { 90 }]
}

/// Puts all keys, in no order, and settles most of them.
fn fill(keyspace: &Keyspace) -> Content {
    let mut content = Content::new();
    for number in (0..KEYS).map(|number| number * 7919 % KEYS) {
        content.insert(number.to_be_bytes().to_vec(), value(number));
        keyspace.insert(number.to_be_bytes(), value(number)).unwrap();
        if number == KEYS / 2 {
            keyspace.convert().unwrap();
        }
    }
    keyspace.convert().unwrap();
    content
}

/// Reads everything in every way.
fn check(keyspace: &Keyspace, content: &Content) {
    assert!(crate::workload::content(keyspace, Keys::Text).unwrap() == *content);
    let keys: Vec<_> = content.keys().collect();
    let found = keyspace.multi_get(&keys).unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_deref(), content.get(*key).map(Vec::as_slice), "{key:?}");
    }
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let key = random.below(KEYS).to_be_bytes();
        let found = keyspace.get(key).unwrap();
        assert_eq!(found.as_deref(), content.get(key.as_slice()).map(Vec::as_slice));
    }
}

#[test]
fn any_number_of_tables_is_read_with_few_files_open() {
    for store in Store::ALL {
        let setup = Setup { max_open_files: 4, keyspace: options(*store), ..Setup::default() };
        let disk = SimDisk::new(1);
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let content = fill(&keyspace);
        let names = disk.list(Path::new("/db")).unwrap();
        let tables = names.iter().filter(|name| name.starts_with("table-")).count();
        assert!(tables > 60, "{tables}");
        check(&keyspace, &content);
        assert_eq!(db.stats().open_files, 4, "{store:?}");
        drop((db, keyspace));
        let db = setup.open(&disk, 2).unwrap();
        check(&db.find("k").unwrap(), &content);
        assert_eq!(db.stats().open_files, 4, "{store:?}");
    }
}

/// A lookup of many keys has up to 64 files open at once, where the database may have so many, and failed where the process could
/// not open them. What it could open is read, and then the next tried again.
#[test]
fn many_keys_are_looked_up_though_not_all_files_can_be_open_at_once() {
    for (store, files) in
        [(Store::Tiered, "table-"), (Store::Lsm, "table-"), (Store::Lsm, "values-")]
    {
        let setup = Setup { max_open_files: 64, block_cache: false, ..Setup::default() };
        let setup = Setup { mapped_reads: false, keyspace: options(store), ..setup };
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let content = fill(&keyspace);
        let keys: Vec<_> = content.keys().collect();
        for number in [2, 5, 11] {
            let refused = Fault::at(number).of(&[OperationKind::Open]).on_paths_with(files);
            let refused = disk.fail(refused);
            let found = keyspace.multi_get(&keys);
            let found = found.unwrap_or_else(|e| panic!("{store:?} {files} {number}: {e}"));
            assert!(found.iter().map(Option::as_deref).eq(content.values().map(|v| Some(&v[..]))));
            assert_eq!(refused.fired(), 1, "{store:?} {files} {number}");
            disk.clear_faults();
        }
    }
}

/// Say to a process of the test which database to work with, and how.
const WORKED_WITH: &str = "LEARNEDKV_TEST_FEW_FILES";
const WORKED_HOW: &str = "LEARNEDKV_TEST_FEW_FILES_HOW";
const DIRECT: &str = "direct";
const GREEDY: &str = "greedy";
const SHORT_SEGMENTS: &str = "short segments";
const READER: &str = "a reader of many";

fn builder(path: &Path) -> Builder {
    let builder = Database::builder(path).memtable_bytes(64 << 10).log_segment_bytes(64 << 10);
    builder.memory_budget_bytes(4 << 20)
}

/// Not a test by itself: the process that may have few files open.
#[test]
fn works_with_few_files() {
    let Ok(path) = std::env::var(WORKED_WITH) else { return };
    let builder = builder(Path::new(&path));
    if std::env::var(WORKED_HOW).as_deref() == Ok(READER) {
        reads_many_beside_a_writer(builder.stream_at(16 << 10));
        return println!("it worked");
    }
    let (builder, most, stores) = match std::env::var(WORKED_HOW).as_deref() {
        Ok(DIRECT) => (builder.direct_reads(true), 16, &[Store::Tiered][..]),
        // More than there is room for: the log, and what is written, take some.
        Ok(GREEDY) => (builder.max_open_files(60), 60, &[Store::Tiered][..]),
        // Many of them have ended, and none is synced, before the first memtable is full.
        Ok(SHORT_SEGMENTS) => {
            let builder = builder.log_segment_bytes(4 << 10).memtable_bytes(1 << 20);
            (builder, 16, &[Store::Tiered][..])
        }
        _ => (builder, 16, Store::ALL),
    };
    let db = builder.open().unwrap();
    let limit = db.stats().open_files;
    assert!(limit <= most, "{limit} are open");
    for store in stores {
        let keyspace = db.find(store.name()).unwrap();
        check(&keyspace, &fill(&keyspace));
    }
    db.wait_idle().unwrap();
    assert!(db.background_error().is_none());
    println!("it worked");
}

/// Each value has a file of its own; the writer makes one, and syncs their directory, for each that he puts.
fn reads_many_beside_a_writer(builder: Builder) {
    let db = builder.open().unwrap();
    let keyspace = db.keyspace("long values", KeyspaceOptions::default()).unwrap();
    let value = |n: u8| vec![n; 20_000];
    let put = |from: u8, to: u8| (from..to).try_for_each(|n| keyspace.insert([n], value(n)));
    put(0, 150).unwrap();
    keyspace.flush().unwrap();
    let is_written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_written.load(Ordering::Relaxed) {
                for (n, found) in
                    keyspace.multi_get((0..150u8).map(|n| [n])).unwrap().iter().enumerate()
                {
                    assert_eq!(found.as_deref(), Some(&value(n as u8)[..]));
                }
            }
        });
        let written = (0..3).try_for_each(|_| put(150, 250));
        is_written.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        written.unwrap();
    });
}

/// A call for many values had up to 64 files open, whatever the database may keep: whoever needed one meanwhile, to sync a directory for
/// a commit, had none.
#[cfg(unix)]
#[test]
fn a_reader_of_many_values_leaves_files_to_others() {
    let dir = tempfile::tempdir().unwrap();
    works_with_64(dir.path(), READER);
}

/// Each table had its file open for as long as it was there: a database of more tables than `ulimit -n` could not
/// be opened. Then two descriptors of a file that is read around the page cache were counted as one; and
/// where there were too many all the same, none was closed. And each segment of the log that had ended and was
/// not synced kept one that nobody used.
#[cfg(unix)]
#[test]
fn a_database_of_more_tables_than_the_process_may_open_works() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path()).open().unwrap();
    for store in Store::ALL {
        let keyspace = db.keyspace(store.name(), options(*store)).unwrap();
        fill(&keyspace);
    }
    db.close().unwrap();
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let tables = names.filter(|name| name.to_string_lossy().starts_with("table-")).count();
    assert!(tables > 200, "{tables}");
    for how in ["usual", DIRECT, GREEDY, SHORT_SEGMENTS] {
        works_with_64(dir.path(), how);
    }
}

/// Has a process that may have so many files open work with the database at `path`.
#[cfg(unix)]
fn works_with_64(path: &Path, how: &str) {
    let worked = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "open_files::works_with_few_files", "--nocapture"])
        .env(WORKED_WITH, path)
        .env(WORKED_HOW, how)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&worked.stdout);
    let failed = String::from_utf8_lossy(&worked.stderr);
    assert!(worked.status.success() && said.contains("it worked"), "{how}: {said}{failed}");
}

/// It was a file not found, and no damage: so each sweep stopped there, for ever, and writers were slowed to a hundred puts a second.
#[test]
fn a_file_that_goes_while_its_database_is_open_is_damage() {
    for prefix in ["values-", "table-"] {
        let disk = SimDisk::new(1);
        let setup = Setup {
            max_open_files: 1,
            automatic_conversion: false,
            block_cache: false,
            mapped_reads: false,
            memtable_bytes: 64 << 10,
            stream_at: 1 << 20,
            ..Setup::default()
        };
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        (0..40u8).for_each(|n| keyspace.insert([n], [n; 700]).unwrap());
        keyspace.flush().unwrap();
        let path = last_file(&disk, prefix);
        let bytes = read(&disk, &path);
        (40..80u8).for_each(|n| keyspace.insert([n], [n; 700]).unwrap());
        keyspace.flush().unwrap();
        disk.remove(&path).unwrap();
        // Those of the other run are there, and its files take the only place.
        let missing = (0..80u8).filter(|n| match keyspace.get([*n]) {
            Ok(value) => {
                assert!(value.unwrap() == [*n; 700]);
                false
            }
            Err(error) => {
                assert!(is_about(&error, &path), "{prefix}: {error}");
                assert!(error.to_string().contains("while the database was open"), "{error}");
                true
            }
        });
        assert_eq!(missing.count(), 40, "{prefix}");
        assert!(is_about(&keyspace.convert().unwrap_err(), &path));
        if prefix == "values-" {
            assert_eq!(keyspace.stats().unwrap().runs, 0, "the sweep goes round it");
        }
        drop(keyspace);
        drop(db);
        restore(&disk, &path, &bytes);
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.find("k").unwrap();
        (0..80u8).for_each(|n| assert!(keyspace.get([n]).unwrap().unwrap() == [n; 700]));
        keyspace.convert().unwrap();
        assert_eq!(keyspace.iter().map(Result::unwrap).count(), 80);
    }
}
