//! Opening for reading only, closing, health and resuming: what is refused, when, and in which words.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk, Stage};
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{
    Builder, Compression, Database, DatabaseHealth, Durability, ErrorKind, KeyspaceOptions, Store,
};

use crate::workload::{Model, Random, Setup, contents, draw};

fn builder(disk: &(impl Disk + Clone + 'static)) -> Builder {
    Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(4 << 10)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(4 << 10)
}

/// Every write, by its name.
fn writes(db: &Database) -> Vec<(&'static str, ErrorKind)> {
    let name = db.keyspace_names().remove(0);
    let keyspace = db.find(&name).unwrap();
    let mut batch = db.batch();
    batch.insert(&keyspace, "k", "v");
    let tried: Vec<(&str, learnedkv::Result<()>)> = vec![
        ("insert", keyspace.insert("k", "v")),
        ("insert_with", keyspace.insert_with("k", "v", Durability::Synced)),
        ("remove", keyspace.remove("k")),
        ("batch", batch.commit()),
        ("compare_and_swap", keyspace.compare_and_swap("absent", None, Some(b"v")).map(drop)),
        (
            "compare_and_swap, nothing to do",
            keyspace.compare_and_swap("absent", None, None).map(drop),
        ),
        ("update", keyspace.update("k", |_| Some("v")).map(drop)),
        ("pop_first", keyspace.pop_first().map(drop)),
        ("ingest", keyspace.ingest([("k", "v")]).map(drop)),
        ("flush", keyspace.flush()),
        ("convert", keyspace.convert()),
        ("sync", db.sync()),
        ("resume", db.resume()),
        ("keyspace", db.keyspace("new", KeyspaceOptions::default()).map(drop)),
        ("drop_keyspace", db.drop_keyspace(&name)),
    ];
    tried.into_iter().map(|(name, done)| (name, done.expect_err(name).kind())).collect()
}

/// After any workload, closed or crashed, a reader sees what a writer would, and touches nothing.
#[test]
fn reading_only_shows_the_same_and_changes_nothing() {
    let setup = Setup::default();
    for seed in 0..12 {
        let disk = SimDisk::new(seed);
        let db = setup.open(&disk, seed).unwrap();
        let mut model = Model::new();
        for op in draw(&mut Random::new(seed), setup.keys, 150, 200) {
            op.apply(&db, &setup).unwrap();
            op.change(&mut model);
        }
        let left = match seed % 3 {
            0 => disk.crash_clone(CrashKind::Process, 0),
            1 => disk.crash_clone(CrashKind::Machine, seed),
            _ => {
                drop(db);
                disk
            }
        };
        let used = left.used_bytes();
        // Whatever would change something fails: nothing tries to.
        let faulty = FaultyDisk::new(Arc::new(left.clone()));
        let tries = faulty.fail(Fault::at(0).of(CHANGES).from_then_on());
        let open = || builder(&faulty).read_only(true).open();
        let readers = [open().unwrap(), open().unwrap()];
        let found = readers.each_ref().map(|db| contents(db, setup.keys).unwrap());
        assert_eq!(found[0], found[1]);
        let writer = setup.open(&left, seed).unwrap_err();
        assert_eq!(writer.kind(), ErrorKind::Locked, "{writer}");
        assert!(matches!(readers[0].health(), DatabaseHealth::ReadOnly));
        assert!(readers[0].open_report().removed_files.is_empty());
        for (name, kind) in writes(&readers[0]) {
            assert_eq!(kind, ErrorKind::ReadOnly, "{name}");
        }
        readers[0].wait_idle().unwrap();
        assert_eq!(
            contents(&readers[0], setup.keys).unwrap(),
            found[0],
            "refused writes changed something"
        );
        let [one, two] = readers;
        one.close().unwrap();
        drop(two);
        assert_eq!(tries.matched(), 0, "seed {seed}");
        assert_eq!(left.used_bytes(), used, "seed {seed}");
        // A writer finds what they saw, and keeps readers out.
        let db = setup.open(&left, seed).unwrap();
        assert_eq!(contents(&db, setup.keys).unwrap(), found[0], "seed {seed}");
        if seed % 3 != 1 {
            assert_eq!(found[0], model, "seed {seed}");
        }
        assert_eq!(builder(&left).read_only(true).open().unwrap_err().kind(), ErrorKind::Locked);
    }
}

const CHANGES: &[OperationKind] = &[
    OperationKind::Create,
    OperationKind::Remove,
    OperationKind::Rename,
    OperationKind::Link,
    OperationKind::CreateDir,
    OperationKind::SyncDir,
    OperationKind::CreateLogRegion,
    OperationKind::Write,
    OperationKind::Sync,
    OperationKind::Truncate,
    OperationKind::Preallocate,
    OperationKind::Discard,
    OperationKind::Publish,
    OperationKind::SyncLog,
];

#[test]
fn what_is_not_there_is_not_made_for_reading() {
    let disk = SimDisk::new(1);
    let open = |disk: &SimDisk| builder(disk).read_only(true).open().unwrap_err();
    assert_eq!(open(&disk).kind(), ErrorKind::NotFound);
    disk.create_dir(Path::new("/db")).unwrap();
    assert_eq!(open(&disk).kind(), ErrorKind::NotFound);
    assert_eq!(disk.list(Path::new("/db")).unwrap(), [""; 0]);
    drop(builder(&disk).open().unwrap());
    disk.remove(Path::new("/db/LOCK")).unwrap();
    let error = open(&disk);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("lock file"), "{error}");
}

/// On the system's disk, with its permissions taken away: bytes, names and times stay.
#[test]
fn reading_only_leaves_a_real_directory_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("db");
    let small = || Database::builder(&dir).memtable_bytes(16 << 10).memory_budget_bytes(1 << 20);
    let db = small().open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for number in 0..1000u32 {
        keyspace.insert(number.to_be_bytes(), [7; 50]).unwrap();
    }
    drop((db, keyspace));
    let set_writable = |writable: bool| {
        for entry in std::fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            permit(&entry.path(), writable);
        }
        permit(&dir, writable);
    };
    set_writable(false);
    let before = picture(&dir);
    let db = small().read_only(true).open().unwrap();
    let other = small().read_only(true).open().unwrap();
    for db in [&db, &other] {
        let keyspace = db.find("k").unwrap();
        assert_eq!(keyspace.keys().map(Result::unwrap).count(), 1000);
        assert_eq!(keyspace.get(999u32.to_be_bytes()).unwrap().unwrap(), [7; 50]);
    }
    drop((db, other));
    assert_eq!(picture(&dir), before);
    set_writable(true);
    small().open().unwrap();
}

fn permit(path: &Path, writable: bool) {
    let mut permissions = std::fs::metadata(path).unwrap().permissions();
    permissions.set_readonly(!writable);
    std::fs::set_permissions(path, permissions).unwrap();
}

/// All of a directory: names, content, times.
fn picture(dir: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let (path, changed) = (entry.path(), entry.metadata().unwrap().modified().unwrap());
            (entry.file_name().to_string_lossy().into(), (std::fs::read(path).unwrap(), changed))
        })
        .collect()
}

#[test]
fn after_closing_writes_are_refused_and_reads_go_on() {
    let setup = Setup::default();
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    for number in 0..100u32 {
        keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    assert!(matches!(db.health(), DatabaseHealth::Well));
    let (again, snapshot) = (db.clone(), db.snapshot());
    db.close().unwrap();
    // Durable though nobody synced.
    let left = disk.crash_clone(CrashKind::Machine, 0);
    assert_eq!(contents(&setup.open(&left, 1).unwrap(), setup.keys).unwrap()["a"].len(), 100);
    assert!(matches!(again.health(), DatabaseHealth::Closed));
    for (name, kind) in writes(&again) {
        assert_eq!(kind, ErrorKind::Closed, "{name}");
    }
    let error = again.clone().close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(keyspace.keys().count(), 100);
    assert_eq!(snapshot.keys(&keyspace).count(), 100);
    // The lock goes with the last handle.
    drop((again, keyspace));
    assert_eq!(setup.open(&disk, 1).unwrap_err().kind(), ErrorKind::Locked);
    let iter = snapshot.iter(&setup.open(&left, 1).unwrap().find("a").unwrap());
    drop((snapshot, iter));
    assert!(setup.open(&disk, 1).is_ok());
}

#[test]
fn closing_tells_of_a_sync_that_failed() {
    let setup = Setup::default();
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let db = setup.open(&faulty, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.insert("k", "v").unwrap();
    faulty.fail(Fault::at(0).of(&[OperationKind::SyncLog]));
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Io);
    drop(keyspace);
    assert!(setup.open(&faulty, 1).is_ok(), "dropped handles leave the lock");
}

/// Puts said what to do, whoever waited for work was told where there was no room alone.
#[test]
fn work_that_a_full_disk_stopped_says_what_to_do_once() {
    const TO_DO: &str = "remove other files, or remove entries and convert";
    let setup = Setup::default();
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let db = setup.open(&faulty, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.insert("k", "v").unwrap();
    let create = Fault::at(0).of(&[OperationKind::Create]).with(ErrorKind::DiskFull);
    faulty.fail(create.from_then_on());
    let convert = || keyspace.convert().unwrap_err();
    let ingest = || keyspace.ingest([("l", "v")]).unwrap_err();
    for error in [keyspace.flush().unwrap_err(), convert(), ingest()] {
        assert_eq!(error.kind(), ErrorKind::DiskFull);
        assert_eq!(error.to_string().matches(TO_DO).count(), 1, "{error}");
    }
}

/// A flush that cannot write its table: told, tried again when asked, and then over.
#[test]
fn failed_background_work_is_told_and_resumed() {
    let setup = Setup::default();
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let db = setup.open(&faulty, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    keyspace.insert("k", "v").unwrap();
    faulty.fail(Fault::at(0).of(&[OperationKind::Create]).from_then_on());
    assert_eq!(keyspace.flush().unwrap_err().kind(), ErrorKind::Io);
    let DatabaseHealth::Failing(cause) = db.health() else { panic!("{:?}", db.health()) };
    assert_eq!(cause.to_string(), db.background_error().unwrap().to_string());
    keyspace.insert("more", "v").unwrap();
    // Not yet better: it fails again, and says so.
    db.resume().unwrap();
    assert_eq!(db.wait_idle().unwrap_err().kind(), ErrorKind::Io);
    faulty.clear_faults();
    db.resume().unwrap();
    db.wait_idle().unwrap();
    assert!(matches!(db.health(), DatabaseHealth::Well), "{:?}", db.health());
    assert!(db.stats().flushes > 0);
    // What poisons cannot be resumed.
    faulty.fail(Fault::at(0).of(&[OperationKind::SyncLog]));
    assert_eq!(
        keyspace.insert_with("k", "w", Durability::Synced).unwrap_err().kind(),
        ErrorKind::Io
    );
    assert!(matches!(db.health(), DatabaseHealth::Poisoned(_)));
    assert_eq!(db.resume().unwrap_err().kind(), ErrorKind::Poisoned);
}

/// A commit let in before the closing is closed with the others: durable once both have returned.
#[test]
fn closing_waits_for_commits_that_were_let_in() {
    let setup = Setup::default();
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("a", setup.keyspace.clone()).unwrap();
    // The closing begins while the commit's record is about to be written, on another thread.
    let closing = Arc::new(std::sync::Mutex::new(None));
    let (begun, mut closer) = (closing.clone(), Some(db.clone()));
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::Publish
            && operation.stage == Stage::Before
            && operation.offset_bytes > 0 // not a new segment's header
            && let Some(db) = closer.take()
        {
            let watched = db.clone();
            *begun.lock().unwrap() = Some(std::thread::spawn(move || db.close()));
            while !matches!(watched.health(), DatabaseHealth::Closed) {
                std::thread::yield_now();
            }
        }
    });
    keyspace.insert("k", "v").unwrap();
    let closing = closing.lock().unwrap().take().unwrap();
    closing.join().unwrap().unwrap();
    disk.stop_observing();
    let left = disk.crash_clone(CrashKind::Machine, 0);
    assert_eq!(contents(&setup.open(&left, 1).unwrap(), setup.keys).unwrap()["a"].len(), 1);
}

#[test]
fn stats_say_how_fast_a_store_may_be_written_to() {
    const LIMIT: u64 = 16 << 20;
    let stores = [Store::Tiered, Store::Lsm].into_iter();
    for (store, limit) in
        stores.flat_map(|store| [(store, 1 << 50), (store, LIMIT), (store, LIMIT / 16)])
    {
        let dir = tempfile::tempdir().unwrap();
        let builder = Database::builder(dir.path()).memtable_bytes(64 << 10);
        let db = builder.background_bytes_per_s(limit).log_segment_bytes(64 << 10).open().unwrap();
        let options = KeyspaceOptions::default().store(store).level_base_bytes(128 << 10);
        let keyspace = db.keyspace("k", options).unwrap();
        let stats = db.stats();
        assert_eq!((stats.burst_bytes_per_s, stats.sustainable_bytes_per_s), (0, 0), "not known");
        for key in 0..2000u32 {
            keyspace.insert(key.wrapping_mul(0x9E37_79B9).to_be_bytes(), [1; 400]).unwrap();
        }
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let stats = db.stats();
        assert!(stats.burst_bytes_per_s > 0 && stats.sustainable_bytes_per_s > 0, "{stats}");
        let written = stats.merged_bytes + stats.swept_bytes + stats.compacted_bytes;
        let most = limit as f64 * stats.put_bytes as f64 / written as f64;
        assert!(stats.sustainable_bytes_per_s as f64 <= most + 1.0, "{store:?}: {stats}");
        let shown = stats.sustainable_bytes_per_s as f64 / f64::from(1 << 20);
        assert!(stats.to_string().contains(&format!("{shown:.1} for ever at most")), "{stats}");
    }
}

/// The clock moves with each operation of the disk, so what work takes is known. Several flushes are looked back on.
#[test]
fn rates_are_those_of_late() {
    for (store, first_ms, then_ms) in
        [(Store::Tiered, 4, 40), (Store::Tiered, 40, 4), (Store::Lsm, 4, 40), (Store::Lsm, 40, 4)]
    {
        let (disk, executor) = (SimDisk::new(1), Arc::new(SeededExecutor::new(1)));
        let takes_ms = Arc::new(AtomicU64::new(first_ms));
        let (clock, takes) = (executor.clone(), takes_ms.clone());
        disk.observe(move |_, _| clock.advance(Duration::from_millis(takes.load(Relaxed))));
        let builder = Database::builder("/db").disk(Arc::new(disk.clone())).executor(executor);
        let builder = builder.memtable_bytes(16 << 10).memory_budget_bytes(1 << 20);
        let db = builder.log_segment_bytes(64 << 10).open().unwrap();
        let options = KeyspaceOptions::default().store(store).level_base_bytes(64 << 10);
        let options = options.min_conversion_bytes(64 << 10).partition_bytes(16 << 10);
        let keyspace = db.keyspace("k", options).unwrap();
        let mut key = 0u32;
        let mut rates = |puts: u32| {
            for _ in 0..puts {
                key = key.wrapping_add(0x9E37_79B9);
                keyspace.insert((key % 5000).to_be_bytes(), [1; 400]).unwrap();
            }
            db.wait_idle().unwrap();
            let stats = db.stats();
            let rates = [stats.burst_bytes_per_s, stats.sustainable_bytes_per_s];
            assert!(rates[0] > 0 && rates[1] > 0, "{store:?}, {rates:?}: {stats}");
            rates.map(|rate| rate as f64)
        };
        let before = rates(20_000);
        takes_ms.store(then_ms, Relaxed);
        // Far less than there was before: an average of all would be another one.
        let after = rates(6000);
        let expected = first_ms as f64 / then_ms as f64;
        for (before, after) in before.into_iter().zip(after) {
            let came_to = after / before / expected;
            assert!((0.5..2.0).contains(&came_to), "{store:?}: {before} and then {after} B/s");
        }
        disk.stop_observing();
    }
}

/// Not a test by itself: the process that opens databases by relative paths, and moves on.
#[test]
fn moves_on() {
    let Ok(dir) = std::env::var(MOVED_IN) else { return };
    let open_in = |name: &str| {
        std::env::set_current_dir(Path::new(&dir).join(name)).unwrap();
        Database::builder("db").memtable_bytes(64 << 10).open().unwrap()
    };
    let (first, second) = (open_in("a"), open_in("b"));
    for (db, value) in [(&first, "first"), (&second, "second")] {
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        for number in 0..2000u64 {
            keyspace.insert(number.to_be_bytes(), value.repeat(20)).unwrap();
        }
        keyspace.convert().unwrap();
    }
    first.close().unwrap();
    second.close().unwrap();
    println!("it moved on");
}

/// Says to a process of the test where it moves about.
const MOVED_IN: &str = "LEARNEDKV_TEST_MOVES_IN";

/// The path was kept as it was given: a process that changed its working directory had the database write its
/// files elsewhere, and remove those of another one there.
#[test]
fn a_relative_path_means_the_same_after_the_process_has_moved() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let moved = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifecycle::moves_on", "--nocapture"])
        .env(MOVED_IN, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&moved.stdout);
    let failed = String::from_utf8_lossy(&moved.stderr);
    assert!(moved.status.success() && said.contains("it moved on"), "{said}{failed}");
    for (name, value) in [("a", "first"), ("b", "second")] {
        let db = Database::open(dir.path().join(name).join("db")).unwrap();
        let keyspace = db.find("k").unwrap();
        let found = crate::workload::content(&keyspace, crate::keys::Keys::Integers).unwrap();
        let put = |n: u64| (n.to_be_bytes().to_vec(), value.repeat(20).into_bytes());
        assert!(found.into_iter().eq((0..2000).map(put)), "{name}");
    }
}

/// A directory under the name of a file that nothing names kept the database from being opened; a filter's name with a number
/// that was never given out had the open panic.
#[test]
fn strangers_with_names_of_ours_keep_no_database_from_being_opened() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("db");
    let small = || Database::builder(&dir).memtable_bytes(16 << 10).memory_budget_bytes(1 << 20);
    let db = small().open().unwrap();
    db.keyspace("k", KeyspaceOptions::default()).unwrap().insert("key", "value").unwrap();
    drop(db);
    let directories = ["values-00009999", "table-00000777", "filter-00000778"];
    directories.iter().for_each(|name| std::fs::create_dir(dir.join(name)).unwrap());
    let never = format!("filter-{}", u64::MAX);
    std::fs::write(dir.join(&never), "not ours").unwrap();
    for _ in 0..2 {
        let db = small().open().unwrap();
        let left = &db.open_report().left_files;
        let is_told = |name: &&str| left.iter().any(|e| e.path() == Some(&dir.join(name)));
        assert!(left.len() == 3 && directories.iter().all(is_told), "{left:?}");
        let keyspace = db.find("k").unwrap();
        assert_eq!(keyspace.get("key").unwrap().unwrap(), "value");
        keyspace.insert("other", [1; 20_000]).unwrap();
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
    }
    assert!(dir.join(never).exists(), "a stranger's");
}

/// It said that all was done.
#[test]
fn a_closed_database_has_nothing_to_wait_for() {
    let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1))).open().unwrap();
    db.wait_idle().unwrap();
    db.clone().close().unwrap();
    assert_eq!(db.wait_idle().unwrap_err().kind(), ErrorKind::Closed);
}

/// The process was aborted in the midst of starting them.
#[test]
fn more_background_threads_than_a_machine_has_use_for_are_refused() {
    for threads in [1025, usize::MAX] {
        let builder = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let error = builder.background_threads(threads).open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("background_threads: expected 2 to 1024"), "{error}");
    }
}

/// Nothing would ever have been flushed: who filled a memtable waited for ever.
#[test]
fn an_executor_that_stopped_with_another_database_is_refused() {
    let executor = Arc::new(SeededExecutor::new(1));
    let open = || {
        let builder = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        builder.executor(executor.clone()).open()
    };
    open().unwrap().close().unwrap();
    let error = open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().starts_with("executor: expected one that runs"), "{error}");
}

/// They differed by a store that was named or taken as the default.
#[test]
fn options_compare_by_what_comes_of_them() {
    let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1))).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert_eq!(*keyspace.options(), KeyspaceOptions::default());
    assert_eq!(KeyspaceOptions::default().store(Store::Tiered), KeyspaceOptions::default());
    assert_ne!(KeyspaceOptions::default().store(Store::Lsm), KeyspaceOptions::default());
    assert_ne!(*keyspace.options(), KeyspaceOptions::default().block_bytes(8192));
    let packed = KeyspaceOptions::default().settled_compression(Compression::Zstd { level: 77 });
    let error = db.keyspace("packed", packed).unwrap_err().to_string();
    assert!(error.contains("settled_compression: "), "which one is said: {error}");
}

#[test]
fn an_empty_path_is_said_to_be_empty() {
    let error = Database::open("").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("found an empty path"), "{error}");
}

#[test]
fn a_path_that_is_a_file_is_said_to_be_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "not a directory").unwrap();
    for path in [path.clone(), path.join("below")] {
        let error = Database::open(&path).unwrap_err().to_string();
        assert!(error.contains("it is a file, or below one"), "{error}");
    }
}

/// Three keys took 100 MB of disk, and as much memory of the system's was touched at each open: two segments of the log, and a ballast for
/// a memtable that nobody had filled.
#[test]
fn a_database_of_three_keys_takes_little_room() {
    let disk = SimDisk::new(1);
    let open = || {
        let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
        builder.executor(Arc::new(SeededExecutor::new(1))).open().unwrap()
    };
    for life in 0..3_u8 {
        let db = open();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        assert_eq!(keyspace.iter().count(), 3 * usize::from(life));
        (0..3).for_each(|n| keyspace.insert([life, n], [n; 100]).unwrap());
        db.wait_idle().unwrap();
        assert!(disk.used_bytes() < (6 + u64::from(life)) << 20, "{}", disk.used_bytes());
        // A crash, and a close.
        drop(keyspace);
        if life == 1 {
            drop(db);
        } else {
            db.close().unwrap();
        }
        assert!(disk.used_bytes() < (6 + u64::from(life)) << 20, "{}", disk.used_bytes());
    }
}

/// What was made ready for records to come stayed behind a close.
#[test]
fn a_close_leaves_no_segment_that_nobody_has_used() {
    let disk = SimDisk::new(1);
    let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
    let db = builder.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (0..200_u8).for_each(|n| keyspace.insert([n], [n; 1000]).unwrap());
    db.wait_idle().unwrap();
    let logs = || crate::files::files(&disk, "log-").len();
    assert_eq!(logs(), 2);
    db.close().unwrap();
    drop(keyspace);
    assert_eq!(logs(), 1);
    let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
    let db = builder.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
    assert_eq!(db.find("k").unwrap().iter().count(), 200);
}
