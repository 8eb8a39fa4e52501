//! A disk that becomes full: puts are refused cleanly, what makes room goes on, and whoever dies there can
//! be opened again. On the simulated disk with a limit, crashed anywhere; and on a real small tmpfs.

mod given_up;
mod gives_back;
mod opens;
mod readers;
mod real;
mod together;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use learnedkv::disk::sim::{CrashKind, SimDisk, Stage};
use learnedkv::executor::{Executor, SeededExecutor};
use learnedkv::{
    Builder, Database, DatabaseHealth, Durability, ErrorKind, Keyspace, KeyspaceOptions, Store,
};

use crate::keys::Keys;
use crate::workload::{Content, Random, Setup, content, guarded, key};

const MIB: u64 = 1 << 20;

fn builder(path: &Path) -> Builder {
    Database::builder(path)
        .memtable_bytes(64 << 10)
        .memory_budget_bytes(4 << 20)
        .log_segment_bytes(128 << 10)
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::default().partition_bytes(256 << 10).min_conversion_bytes(1 << 20)
}

fn options_of(store: Store) -> KeyspaceOptions {
    options().store(store).level_base_bytes(512 << 10).level_multiplier(4)
}

fn open(disk: &SimDisk, seed: u64) -> (Database, Arc<SeededExecutor>) {
    open_with(builder(Path::new("/db")), disk, seed)
}

fn open_with(builder: Builder, disk: &SimDisk, seed: u64) -> (Database, Arc<SeededExecutor>) {
    let executor = Arc::new(SeededExecutor::new(seed));
    let disk = Arc::new(disk.clone());
    (builder.disk(disk).executor(executor.clone()).open().unwrap(), executor)
}

fn name(number: usize) -> String {
    format!("key{number:06}")
}

/// Puts until one is refused; returns the number of the first key that is not there.
fn fill(keyspace: &Keyspace, mut number: usize) -> (usize, learnedkv::Error) {
    loop {
        match keyspace.insert(name(number), [number as u8; 900]) {
            Ok(()) => number += 1,
            Err(e) => return (number, e),
        }
        assert!(number < 1_000_000, "the disk is never full");
    }
}

/// All of `range` is there, and nothing else.
fn check(keyspace: &Keyspace, range: std::ops::Range<usize>) {
    let mut entries = keyspace.iter().map(Result::unwrap);
    for number in range {
        let (key, value) = entries.next().unwrap_or_else(|| panic!("{number} is missing"));
        assert_eq!((&*key, &*value), (name(number).as_bytes(), &[number as u8; 900][..]));
    }
    assert!(entries.next().is_none(), "more than was put");
}

/// What goes on when the disk is full. On threads a flush and a sweep may be in each other's way for a
/// moment: then it is done again, for `patience` at most.
fn goes_on<T>(patience: Duration, mut work: impl FnMut() -> learnedkv::Result<T>) -> T {
    let begun = Instant::now();
    loop {
        match work() {
            Err(e) if e.kind() == ErrorKind::DiskFull && begun.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(50));
            }
            done => return done.unwrap_or_else(|e| panic!("{e}")),
        }
    }
}

/// On threads; on a seed nothing may be refused even once.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fills, removes, converts, and fills again, `rounds` times. Returns how far the keys got.
fn go_round(
    db: &Database,
    keyspace: &Keyspace,
    rounds: usize,
    patience: Duration,
) -> std::ops::Range<usize> {
    let (mut first, mut end) = (0, 0);
    for round in 0..rounds {
        let (reached, error) = fill(keyspace, end);
        assert_eq!(error.kind(), ErrorKind::DiskFull, "round {round}: {error}");
        assert!(
            reached > end + 300,
            "round {round}: {end} to {reached}, hardly anything was taken"
        );
        end = reached;
        check(keyspace, first..end);
        // More than half of it goes.
        let keep = first + (end - first) * 2 / 3;
        for number in first..keep {
            goes_on(patience, || keyspace.remove(name(number)));
        }
        first = keep;
        goes_on(patience, || keyspace.flush());
        goes_on(patience, || keyspace.convert());
        goes_on(patience, || db.wait_idle());
        check(keyspace, first..end);
    }
    first..end
}

#[test]
fn a_full_disk_refuses_puts_and_takes_removals_and_conversions() {
    fill_and_empty(Store::Tiered);
}

#[test]
fn a_full_disk_of_levels_refuses_puts_and_takes_removals_and_conversions() {
    fill_and_empty(Store::Lsm);
}

fn fill_and_empty(store: Store) {
    for seed in 0..10 {
        let mib = 6 + seed % 7;
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(mib * MIB));
        let (db, executor) = open(&disk, seed);
        let keyspace = db.keyspace("k", options_of(store)).unwrap();
        let left = go_round(&db, &keyspace, 4, Duration::ZERO);
        fill(&keyspace, left.end);
        // At full: what it says, and that it comes to rest.
        while !matches!(db.health(), DatabaseHealth::Full(_)) {
            // The log's last segment is not used up yet: a flush finds that there is no room.
            let number = left.end + 1_000_000;
            keyspace.remove(name(number)).unwrap();
            keyspace.flush().unwrap();
        }
        let DatabaseHealth::Full(error) = db.health() else { unreachable!("asked a moment ago") };
        // What background work may still free is not room enough.
        disk.set_space_limit_bytes(Some(disk.used_bytes() - 2 * MIB));
        let text = error.to_string();
        for part in ["/db", "bytes are free here", "are needed", "remove"] {
            assert!(text.contains(part), "{part:?} is not said: {text}");
        }
        let refused = [
            keyspace.insert("x", [0; 900]),
            keyspace.ingest([("zzz", "v")]).map(drop),
            db.keyspace("another", options()).map(drop),
        ];
        for done in refused {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::DiskFull);
        }
        assert!(executor.run_until_idle() < 1000, "seed {seed}: it does not come to rest");
        // Opened as it is.
        disk.set_space_limit_bytes(Some(mib * MIB));
        drop((db, keyspace));
        let (db, _) = open(&disk, seed);
        let keyspace = db.find("k").unwrap();
        keyspace.remove(name(left.start)).unwrap();
        db.drop_keyspace("k").unwrap();
        db.wait_idle().unwrap();
        db.keyspace("another", options()).unwrap().insert("x", [0; 900]).unwrap();
    }
}

/// A disk that does not say all of its room is filled and emptied.
struct Unsaid {
    limit_bytes: u64,
    unsaid_bytes: u64,
    ballast_bytes: Option<u64>,
    /// Each key of so many stays; 0: they are cleared at once.
    stays: usize,
    /// Whether what was removed is flushed before a conversion is asked for.
    flushes: bool,
}

impl Unsaid {
    fn empty(&self, store: Store, seed: u64) {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(self.limit_bytes));
        disk.set_unsaid_bytes(self.unsaid_bytes);
        let mut builder = builder(Path::new("/db"));
        if let Some(bytes) = self.ballast_bytes {
            builder = builder.ballast_bytes(bytes);
        }
        let (db, executor) = open_with(builder, &disk, seed);
        let keyspace = db.keyspace("k", options_of(store)).unwrap();
        let mut most = 0;
        for round in 0..3 {
            let (end, error) = fill(&keyspace, 0);
            assert_eq!(error.kind(), ErrorKind::DiskFull, "{seed} {round}: {error}");
            assert!(end > 300, "{seed} {round}: {end}");
            most = end.max(most);
            match self.stays {
                0 => keyspace.clear().unwrap(),
                stays => (0..end)
                    .filter(|number| number % stays > 0)
                    .for_each(|number| keyspace.remove(name(number)).unwrap()),
            }
            if self.flushes {
                keyspace.flush().unwrap();
            }
            keyspace.convert().unwrap_or_else(|e| panic!("{store:?} {seed} {round}: {e}"));
            db.wait_idle().unwrap();
            let left = if self.stays == 0 { 0 } else { most.div_ceil(self.stays) };
            assert_eq!(keyspace.iter().count(), left, "{seed} {round}");
            executor.pause(Duration::from_secs(2));
            db.wait_idle().unwrap();
        }
    }
}

/// ext4 keeps a twentieth for the superuser and does not say so: a store that he runs filled that too. Then steps of
/// a sweep that wrote nothing were refused for ever, for the room that the disk told of was none; work that a full
/// disk stopped was not begun again though files had gone since; and levels that leave nothing were not compacted.
#[test]
fn a_disk_with_more_room_than_it_says_is_emptied() {
    let [half, whole] = [MIB / 2, MIB];
    let odd = |seed: u64| seed % 2 == 1;
    for seed in 0..12 {
        let settings = [
            (8 + seed % 7, 1 + seed % 3, None, true),
            (7 + seed % 9, 1 + seed % 5, odd(seed).then_some(whole), odd(seed / 2)),
            (11 + seed % 7, 1 + seed % 3, odd(seed).then_some(2 * whole), odd(seed / 2)),
        ];
        for (at, (limit, unsaid, ballast_bytes, flushes)) in settings.into_iter().enumerate() {
            let unsaid_bytes = unsaid * if at == 1 { half } else { whole };
            let (limit_bytes, stays) = (limit * MIB, 0);
            let unsaid = Unsaid { limit_bytes, unsaid_bytes, ballast_bytes, stays, flushes };
            Store::ALL.iter().for_each(|store| unsaid.empty(*store, seed));
        }
    }
}

/// The same where single keys are removed, so that a sweep writes what stays.
#[test]
fn a_disk_with_more_room_than_it_says_is_swept() {
    for seed in 0..12 {
        let unsaid = Unsaid {
            limit_bytes: (8 + seed % 7) * MIB,
            unsaid_bytes: (2 + seed % 3) * MIB / 2,
            ballast_bytes: None,
            stays: 8,
            flushes: seed % 2 == 0,
        };
        unsaid.empty(Store::Tiered, seed);
    }
}

/// What was held for the next open was as much as the state took when this one began.
#[test]
fn what_is_held_for_an_open_grows_with_the_state() {
    let disk = SimDisk::new(1);
    let (db, _) = open(&disk, 1);
    let keyspace = db.keyspace("k", options().partition_bytes(64 << 10)).unwrap();
    let name = |number: usize| format!("{number:06}{}", "k".repeat(2000));
    (0..12_000).for_each(|number| keyspace.insert(name(number), "v").unwrap());
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert!(keyspace.stats().unwrap().partitions > 300);
    // Not a byte is free, but what is held.
    disk.set_space_limit_bytes(Some(disk.used_bytes()));
    let refused = (12_000..20_000).find_map(|number| keyspace.insert(name(number), "v").err());
    assert_eq!(refused.unwrap().kind(), ErrorKind::DiskFull);
    disk.set_space_limit_bytes(Some(disk.used_bytes()));
    drop((db, keyspace));
    let (db, _) = open(&disk, 2);
    assert!(db.find("k").unwrap().iter().count() >= 12_000);
}

/// Runs over all the keys, so that a compaction of them takes all there is: more than a full disk has room
/// for, whatever was removed.
#[test]
fn a_full_disk_of_levels_that_overlap_gives_back_what_was_removed() {
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(6 * MIB));
        let (db, _) = open(&disk, seed);
        // Values in segments, and in the tables.
        let separate_at = if seed % 2 == 0 { 512 } else { 4096 };
        let options = options_of(Store::Lsm).separate_at(separate_at);
        let keyspace = db.keyspace("k", options).unwrap();
        let (mut random, mut content) = (Random::new(seed), Content::new());
        for round in 0..4u64 {
            let mut taken = 0;
            let error = loop {
                let key = name(random.below(20_000) as usize).into_bytes();
                let value = vec![random.next() as u8; 900];
                match keyspace.insert(&key, &value) {
                    Ok(()) => _ = content.insert(key, value),
                    Err(e) => break e,
                }
                taken += 1;
            };
            assert_eq!(error.kind(), ErrorKind::DiskFull, "seed {seed}, round {round}: {error}");
            assert!(
                taken > 300,
                "seed {seed}, round {round}: {taken} were taken; {error}\n{}\n{}",
                db.stats(),
                keyspace.stats().unwrap()
            );
            let gone: Vec<_> = content.keys().filter(|_| random.below(5) < 3).cloned().collect();
            for key in gone {
                keyspace.remove(&key).unwrap();
                content.remove(&key);
            }
            keyspace.convert().unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
            db.wait_idle().unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
            assert!(
                crate::workload::content(&keyspace, Keys::Text).unwrap() == content,
                "seed {seed}"
            );
        }
    }
}

/// Nobody tells the database that others made room: it looks.
#[test]
fn room_that_others_make_is_found_without_a_put() {
    let disk = SimDisk::new(1);
    disk.set_space_limit_bytes(Some(6 * MIB));
    let (db, executor) = open(&disk, 1);
    let keyspace = db.keyspace("k", options()).unwrap();
    let (end, _) = fill(&keyspace, 0);
    disk.set_space_limit_bytes(Some(disk.used_bytes()));
    (0..end).for_each(|number| _ = keyspace.remove(name(number)));
    executor.run_until_idle();
    assert!(matches!(db.health(), DatabaseHealth::Full(_)), "{:?}", db.health());
    let held = db.stats().ballast_bytes;
    disk.set_space_limit_bytes(Some(64 * MIB));
    executor.run_until_idle();
    executor.advance(Duration::from_secs(2));
    executor.run_until_idle();
    assert!(matches!(db.health(), DatabaseHealth::Well), "{:?}", db.health());
    assert!(db.stats().ballast_bytes > held);
    assert!(db.background_error().is_none());
}

/// Its size was added to.
#[test]
fn a_ballast_beyond_all_disks_is_refused() {
    let disk = Arc::new(SimDisk::new(1));
    let refused = builder(Path::new("/db")).disk(disk).ballast_bytes(u64::MAX).open();
    let error = refused.expect_err("larger than any disk");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("ballast_bytes"), "{error}");
}

/// Without a ballast a full disk is met where it is met; nothing is lost.
#[test]
fn without_a_ballast_nothing_is_held_and_nothing_is_lost() {
    let disk = SimDisk::new(1);
    disk.set_space_limit_bytes(Some(6 * MIB));
    let executor = Arc::new(SeededExecutor::new(1));
    let db = builder(Path::new("/db")).disk(Arc::new(disk.clone())).executor(executor);
    let db = db.ballast_bytes(0).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    let (end, error) = fill(&keyspace, 0);
    assert_eq!((error.kind(), db.stats().ballast_bytes), (ErrorKind::DiskFull, 0));
    drop((db, keyspace));
    disk.set_space_limit_bytes(None);
    check(&open(&disk, 1).0.find("k").unwrap(), 0..end);
}

/// What a snapshot shows does not come free when it is replaced. It was counted so: a sweep went on until removals
/// found no room.
#[test]
fn removals_find_room_beside_a_snapshot_that_keeps_what_a_sweep_replaces() {
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some((5 + seed % 3) * MIB));
        let (db, _) = open(&disk, seed);
        let keyspace = db.keyspace("k", options()).unwrap();
        let (end, _) = fill(&keyspace, 0);
        let snapshot = db.snapshot();
        let remove = |numbers: &mut dyn Iterator<Item = usize>| {
            numbers.for_each(|number| keyspace.remove(name(number)).unwrap());
        };
        remove(&mut (0..end).filter(|number| number % 2 == 0));
        // It may find no room.
        let converted = keyspace.convert();
        let full = converted.err().map_or(ErrorKind::DiskFull, |e| e.kind());
        assert_eq!(full, ErrorKind::DiskFull, "seed {seed}");
        remove(&mut (0..end).filter(|number| number % 2 == 1));
        keyspace.flush().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(keyspace.iter().count(), 0);
        assert_eq!(snapshot.iter(&keyspace).count(), end);
        drop(snapshot);
        keyspace.convert().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        keyspace.insert("after", [0; 900]).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

/// An operation of the workload on a full disk.
#[derive(Debug, Clone)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Flush,
    Convert,
    Compact,
    Sync,
}

fn draw(random: &mut Random) -> Op {
    let key = key(random.below(crate::workload::KEYS));
    match random.below(100) {
        0..=59 => Op::Put(key, vec![random.next() as u8; 500 + random.below(9000) as usize]),
        60..=84 => Op::Remove(key),
        85..=91 => Op::Flush,
        92..=95 => Op::Convert,
        96 => Op::Compact,
        _ => Op::Sync,
    }
}

impl Op {
    /// Does it; whether all before it is durable then.
    fn apply(&self, db: &Database, keyspace: &Keyspace) -> learnedkv::Result<bool> {
        match self {
            Op::Put(key, value) => keyspace.insert(key, value).map(|()| false),
            Op::Remove(key) => keyspace.remove_with(key, Durability::Synced).map(|()| true),
            Op::Flush => keyspace.flush().map(|()| false),
            Op::Convert => keyspace.convert().map(|()| false),
            Op::Compact => keyspace.compact().map(|()| false),
            Op::Sync => db.sync().map(|()| true),
        }
    }

    fn change(&self, content: &mut Content) {
        match self {
            Op::Put(key, value) => _ = content.insert(key.clone(), value.clone()),
            Op::Remove(key) => _ = content.remove(key),
            Op::Flush | Op::Convert | Op::Compact | Op::Sync => {}
        }
    }
}

struct Crash {
    disk: SimDisk,
    least: usize,
    most: usize,
    at: String,
}

/// Opens what a crash left on the disk that is as full as it was.
fn reopen(setup: &Setup, crash: &Crash, states: &[Content], seed: u64) -> Result<(), String> {
    let db = setup.open(&crash.disk, seed).map_err(|e| format!("open: {e:?}"))?;
    let keyspace = db.find("k").ok_or("the keyspace is gone")?;
    let found = content(&keyspace, Keys::Text).map_err(|e| format!("reading: {e:?}"))?;
    if !states[crash.least..=crash.most].contains(&found) {
        return Err(format!("expected a state of {}..={}", crash.least, crash.most));
    }
    if seed.is_multiple_of(4) {
        // Emptied, it takes puts again.
        for number in 0..crate::workload::KEYS {
            keyspace.remove(key(number)).map_err(|e| format!("removing {number}: {e:?}"))?;
        }
        keyspace.convert().map_err(|e| format!("converting: {e:?}"))?;
        db.wait_idle().map_err(|e| format!("coming to rest: {e:?}"))?;
        keyspace.insert("after", "v").map_err(|e| format!("a put: {e:?}"))?;
    }
    Ok(())
}

/// Runs a workload on a disk that it fills, crashed anywhere. Returns how many puts were refused, and how
/// many crashed disks were opened.
fn crash_at_full(store: Store, seed: u64) -> (usize, usize) {
    let setup = if store == Store::Lsm { Setup::levels() } else { Setup::default() };
    let disk = SimDisk::new(seed);
    let db = setup.open(&disk, seed).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    db.wait_idle().unwrap();
    disk.set_space_limit_bytes(Some(disk.used_bytes() + (120 << 10)));
    let progress = Arc::new(Mutex::new((0, 0, 0)));
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (now, sink) = (progress.clone(), taken.clone());
    disk.observe(move |operation, disk| {
        if operation.stage == Stage::After || !operation.index.is_multiple_of(7) {
            return;
        }
        let (durable, acknowledged, attempted) = *now.lock().unwrap();
        for (kind, least) in [(CrashKind::Process, acknowledged), (CrashKind::Machine, durable)] {
            let disk = disk.crash_clone(kind, operation.index);
            let at = format!("{kind:?} crash {:?} {:?}", operation.stage, operation);
            sink.lock().unwrap().push(Crash { disk, least, most: attempted, at });
        }
    });
    let mut random = Random::new(seed);
    let (mut states, mut refused, mut opened) = (vec![Content::new()], 0, 0);
    for number in 0..250 {
        let op = draw(&mut random);
        let mut next = states.last().unwrap().clone();
        op.change(&mut next);
        states.push(next);
        progress.lock().unwrap().2 = states.len() - 1;
        let done = op.apply(&db, &keyspace);
        match &done {
            Ok(durable) => {
                let mut progress = progress.lock().unwrap();
                progress.1 = states.len() - 1;
                if *durable {
                    progress.0 = progress.1;
                }
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::DiskFull, "seed {seed}, {number}: {e}");
                refused += usize::from(matches!(op, Op::Put(..)));
                // It has not happened.
                states.pop();
                progress.lock().unwrap().2 = states.len() - 1;
            }
        }
        for crash in std::mem::take(&mut *taken.lock().unwrap()) {
            // What was attempted and refused is no state.
            let crash = Crash { most: crash.most.min(states.len() - 1), ..crash };
            opened += 1;
            let reopened = guarded(|| reopen(&setup, &crash, &states, opened as u64));
            reopened.unwrap_or_else(|e| {
                panic!(
                    "{store:?}, seed {seed}, operation {number} {op:?} ({done:?}), {}: {e}",
                    crash.at
                )
            });
        }
    }
    (refused, opened)
}

#[test]
fn a_crash_anywhere_on_a_full_disk_leaves_a_database_that_opens() {
    let (mut refused, mut opened) = (0, 0);
    let levels = (4..6).map(|seed| (Store::Lsm, seed));
    for (store, seed) in (0..4).map(|seed| (Store::Tiered, seed)).chain(levels) {
        let (puts, disks) = crash_at_full(store, seed);
        refused += puts;
        opened += disks;
    }
    println!("{refused} puts refused, {opened} crashed disks opened");
    assert!(refused > 30 && opened > 500, "{refused} puts refused, {opened} disks opened");
}
