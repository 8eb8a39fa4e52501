//! Files of log segments are used again while somebody writes, and given back when nobody does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use learnedkv::disk::sim::{SimDisk, Stage};
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, Durability, Keyspace, KeyspaceOptions};

const SEGMENT_BYTES: u64 = 16 << 10;

struct Bench {
    disk: SimDisk,
    executor: Arc<SeededExecutor>,
    db: Database,
    keyspace: Keyspace,
    recycled: Arc<AtomicU64>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Durability::default())
    }

    fn with(durability: Durability) -> Bench {
        let (disk, executor) = (SimDisk::new(1), Arc::new(SeededExecutor::new(1)));
        let recycled = Arc::new(AtomicU64::new(0));
        let count = recycled.clone();
        disk.observe(move |operation, _| {
            let is_log = operation.path.to_string_lossy().contains("log-");
            if operation.kind == OperationKind::Rename && is_log && operation.stage == Stage::After
            {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let db = Database::builder("/db")
            .disk(Arc::new(disk.clone()))
            .executor(executor.clone())
            .memtable_bytes(SEGMENT_BYTES as usize)
            .memory_budget_bytes(1 << 20)
            .log_segment_bytes(SEGMENT_BYTES)
            .durability(durability)
            .open()
            .unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        Bench { disk, executor, db, keyspace, recycled }
    }

    fn put(&self, round: u8) {
        for key in 0..300_u32 {
            self.keyspace.insert(key.to_be_bytes(), [round; 500]).unwrap();
        }
    }

    /// Flushes all but what the active memtable holds, until files stand there for later.
    fn put_until_some_are_kept(&self) {
        for key in 0..1000_u32 {
            self.keyspace.insert(key.to_be_bytes(), [1; 500]).unwrap();
            self.executor.run_until_idle();
            if self.recycled.load(Ordering::Relaxed) > 0 && self.segments() > 2 {
                return;
            }
        }
        panic!("none are kept");
    }

    fn segments(&self) -> usize {
        let names = self.disk.list(Path::new("/db")).unwrap();
        names.iter().filter(|name| name.starts_with("log-")).count()
    }
}

#[test]
fn whoever_goes_on_writing_makes_few_files() {
    let bench = Bench::new();
    (1..6).for_each(|round| bench.put(round));
    let recycled = bench.recycled.load(Ordering::Relaxed);
    assert!(recycled > 20, "{recycled}");
    // All but the one that is ready to be the next.
    assert_eq!(bench.db.stats().log_bytes, (bench.segments() as u64 - 1) * SEGMENT_BYTES);
    for key in 0..300_u32 {
        let value = bench.keyspace.get(key.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&[5; 500][..]));
    }
}

/// The active segment and the one after it are all that is left: ten seconds after the last was made, or at once
/// where somebody waits for all that is to be done.
#[test]
fn whoever_has_stopped_writing_keeps_no_files_for_later() {
    for waits in [false, true] {
        let bench = Bench::new();
        bench.put_until_some_are_kept();
        let before = bench.segments();
        assert!(before > 2, "{before}");
        if waits {
            bench.db.wait_idle().unwrap();
        } else {
            bench.executor.advance(Duration::from_secs(9));
            bench.executor.run_until_idle();
            assert_eq!(bench.segments(), before, "one may come yet");
            bench.executor.advance(Duration::from_secs(1));
            bench.executor.run_until_idle();
        }
        assert_eq!(bench.segments(), 2, "waits: {waits}");
        bench.put(2);
        let used = bench.recycled.load(Ordering::Relaxed);
        assert!(used > 5, "and they are used again later: {used}");
    }
}

/// It takes him minutes to fill a segment: those that were kept went after ten seconds, and each was made and written anew.
#[test]
fn whoever_syncs_each_commit_keeps_files_while_any_come() {
    let bench = Bench::with(Durability::Synced);
    bench.put_until_some_are_kept();
    let before = bench.segments();
    for key in 0..10_u32 {
        bench.executor.advance(Duration::from_secs(9));
        bench.keyspace.insert(key.to_be_bytes(), b"seldom").unwrap();
        bench.executor.run_until_idle();
        assert_eq!(bench.segments(), before, "commit {key}");
    }
    // What came since is seen after ten seconds, and that nothing did, after ten more.
    for _ in 0..2 {
        bench.executor.advance(Duration::from_secs(10));
        bench.executor.run_until_idle();
    }
    assert_eq!(bench.segments(), 2);
}

#[test]
fn a_database_that_is_closed_keeps_no_files_for_later() {
    let bench = Bench::new();
    bench.put_until_some_are_kept();
    let (disk, segments) = (bench.disk.clone(), |disk: &SimDisk| {
        let names = disk.list(Path::new("/db")).unwrap();
        names.iter().filter(|name| name.starts_with("log-")).count()
    });
    bench.db.close().unwrap();
    // Nor the next one, which was made ready.
    assert_eq!(segments(&disk), 1);
}

/// Else puts would be refused until there is room for more than what lay there all the time.
#[test]
fn what_is_kept_for_later_goes_before_the_ballast() {
    let bench = Bench::new();
    bench.put_until_some_are_kept();
    let (kept, held) = (bench.segments(), bench.db.stats().ballast_bytes);
    assert!(held > 0);
    bench.disk.set_space_limit_bytes(Some(bench.disk.used_bytes()));
    bench.keyspace.insert("one more", [1; 500]).unwrap();
    bench.keyspace.flush().unwrap();
    assert!(bench.segments() < kept, "a flush took their room");
    assert_eq!(bench.db.stats().ballast_bytes, held);
    bench.keyspace.insert("another", [1; 500]).expect("nothing was given up");
}
