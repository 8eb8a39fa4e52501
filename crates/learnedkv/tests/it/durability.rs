//! Writes that are synced some time after they are acknowledged: never too late, never without need.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use learnedkv::disk::OperationKind;
use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk, Stage};
use learnedkv::executor::{Executor, SeededExecutor};
use learnedkv::{Builder, Database, Durability, ErrorKind, Keyspace, KeyspaceOptions};

use crate::workload::{Random, Setup};

const PERIOD: Duration = Duration::from_millis(20);

fn builder() -> Builder {
    let setup = Setup::default();
    Database::builder("/db")
        .memtable_bytes(setup.memtable_bytes)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(setup.log_segment_bytes)
        .durability(Durability::SyncedEvery(PERIOD))
}

fn open(disk: &SimDisk, seed: u64) -> (Database, Keyspace, Arc<SeededExecutor>) {
    let executor = Arc::new(SeededExecutor::new(seed));
    let db = builder().disk(Arc::new(disk.clone())).executor(executor.clone()).open().unwrap();
    let keyspace = db.keyspace("k", Setup::default().keyspace).unwrap();
    (db, keyspace, executor)
}

/// How long background work took at most between two moments at which jobs could step: the virtual
/// clock moves with each step.
#[derive(Default)]
struct Clock {
    acknowledged: Vec<Duration>,
    longest: Duration,
}

/// Whenever the machine dies: all that was acknowledged longer ago than the period, and a sync and the
/// work beside it took, is there; and what is there is a prefix.
#[test]
fn a_crash_loses_no_more_than_the_period() {
    let (mut checked, mut lost) = (0, 0);
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        let (db, keyspace, executor) = open(&disk, seed);
        db.sync().unwrap();
        executor.run_until_idle();
        let clock = Arc::new(Mutex::new(Clock::default()));
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (now, sink, shared) = (executor.clone(), taken.clone(), clock.clone());
        disk.observe(move |operation, disk| {
            if operation.stage == Stage::Before && operation.index % 5 == seed % 5 {
                let left = disk.crash_clone(CrashKind::Machine, operation.index % 8);
                let acknowledged = shared.lock().unwrap().acknowledged.len();
                sink.lock().unwrap().push((left, now.now(), acknowledged));
            }
        });
        let mut random = Random::new(seed);
        for number in 0..300u32 {
            let begun = executor.now();
            keyspace.insert(number.to_be_bytes(), [7; 60]).unwrap();
            clock.lock().unwrap().acknowledged.push(executor.now());
            // What wants to step does, as it would on threads.
            executor.run_until_idle();
            let mut clock = clock.lock().unwrap();
            clock.longest = clock.longest.max(executor.now() - begun);
            drop(clock);
            executor.advance(Duration::from_micros(random.below(6000)));
            executor.run_until_idle();
        }
        disk.stop_observing();
        let clock = clock.lock().unwrap();
        // One more: the clock is moved past the time, not to it.
        let slack = clock.longest + Duration::from_millis(6);
        for (left, at, acknowledged) in std::mem::take(&mut *taken.lock().unwrap()) {
            let (_db, keyspace, _) = open(&left, 1);
            let found = keyspace.iter().count();
            let keys =
                keyspace.keys().map(|key| u32::from_be_bytes(key.unwrap()[..].try_into().unwrap()));
            assert!(keys.eq(0..found as u32), "seed {seed}: not a prefix");
            let due = |time: &&Duration| **time + PERIOD + slack <= at;
            let least = clock.acknowledged[..acknowledged].iter().filter(due).count();
            assert!(found >= least, "seed {seed}, at {at:?}: {found} of {least} are there");
            checked += 1;
            lost += usize::from(found < acknowledged);
        }
    }
    println!("{checked} crashes, {lost} lost something");
    // Else nothing was shown: a log that is synced at once passes too.
    assert!(checked > 200 && lost > 50, "{checked} crashes, {lost} lost something");
}

#[test]
fn an_idle_database_does_not_wake_up() {
    let disk = SimDisk::new(1);
    let (db, keyspace, executor) = open(&disk, 1);
    keyspace.insert("a", "b").unwrap();
    executor.run_until_idle();
    assert_eq!(executor.next_due().map(|due| due <= executor.now() + PERIOD), Some(true));
    assert!(db.stats().synced_sequence < db.stats().last_sequence);
    executor.advance(PERIOD);
    executor.run_until_idle();
    assert_eq!(db.stats().synced_sequence, db.stats().last_sequence);
    assert_eq!(executor.next_due(), None, "something waits for a time though nothing is to do");
    let before = disk.operation_count();
    (0..100).for_each(|_| {
        executor.advance(Duration::from_secs(60));
        executor.run_until_idle();
    });
    assert_eq!(disk.operation_count(), before);
}

/// All writes of a period share a sync; a write by itself may ask for less.
#[test]
fn writes_of_a_period_share_a_sync_and_one_may_ask_for_its_own() {
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let executor = Arc::new(SeededExecutor::new(1));
    let db = Database::builder("/db").disk(Arc::new(faulty.clone())).executor(executor.clone());
    let db = db.open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    executor.run_until_idle();
    let syncs = faulty.fail(Fault::never().of(&[OperationKind::SyncLog]));
    for number in 0..100u32 {
        let period = Duration::from_secs(1 + u64::from(number));
        keyspace.insert_with(number.to_be_bytes(), "v", Durability::SyncedEvery(period)).unwrap();
    }
    executor.run_until_idle();
    assert_eq!(syncs.matched(), 0);
    executor.advance(Duration::from_secs(1));
    executor.run_until_idle();
    assert_eq!(syncs.matched(), 1);
    assert_eq!(db.stats().synced_sequence, db.stats().last_sequence);
    // A later write that wants to be durable sooner moves the sync, the other way round it does not.
    keyspace.insert_with("slow", "v", Durability::SyncedEvery(Duration::from_secs(60))).unwrap();
    keyspace.insert_with("fast", "v", Durability::SyncedEvery(PERIOD)).unwrap();
    keyspace.insert_with("slow", "v", Durability::SyncedEvery(Duration::from_secs(60))).unwrap();
    executor.advance(PERIOD);
    executor.run_until_idle();
    assert_eq!((syncs.matched(), executor.next_due()), (2, None));
}

#[test]
fn a_failed_sync_now_and_then_poisons_as_any_other() {
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let executor = Arc::new(SeededExecutor::new(1));
    let db = builder().disk(Arc::new(faulty.clone())).executor(executor.clone()).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    executor.run_until_idle();
    faulty.fail(Fault::at(0).of(&[OperationKind::SyncLog]));
    keyspace.insert("a", "b").unwrap();
    executor.advance(PERIOD);
    executor.run_until_idle();
    assert_eq!(keyspace.insert("c", "d").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"b"[..]));
    assert_eq!(executor.next_due(), None);
}

/// On threads and a real disk, by the real clock.
#[test]
fn a_write_is_synced_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let db =
        Database::builder(dir.path()).durability(Durability::SyncedEvery(PERIOD)).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for round in 0..3u32 {
        keyspace.insert(round.to_be_bytes(), "v").unwrap();
        let begun = std::time::Instant::now();
        while db.stats().synced_sequence < db.stats().last_sequence {
            assert!(begun.elapsed() < Duration::from_secs(30), "it is never synced");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
