//! `compact`: a conversion that leaves each partition one table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::executor::{Executor, SeededExecutor, ThreadExecutor};
use learnedkv::{Database, DatabaseHealth, ErrorKind, Keyspace, KeyspaceStats};

use crate::deltas::{KEYS, key, put, settled, setup};
use crate::files::files;
use crate::workload::Setup;

/// Many partitions.
fn in_parts(over_provision_percent: u64, partition_bytes: u64) -> Setup {
    let mut setup = setup(over_provision_percent);
    setup.keyspace = setup.keyspace.partition_bytes(partition_bytes);
    setup
}

/// A database at `/db` whose background work is at hand.
fn open(disk: &SimDisk, setup: &Setup, executor: Arc<dyn Executor>) -> (Database, Keyspace) {
    let db = Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor)
        .memtable_bytes(setup.memtable_bytes)
        .memory_budget_bytes(setup.memory_budget_bytes)
        .log_segment_bytes(setup.log_segment_bytes)
        .automatic_conversion(setup.automatic_conversion)
        .sweeps_ahead(setup.sweeps_ahead)
        .stream_at(setup.stream_at)
        .open()
        .unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (db, keyspace)
}

fn contents(keyspace: &Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = keyspace.iter().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Of new keys, which replace nothing, and of others, in one partition and in many; with nothing fresh, and with something. A walk
/// read two tables in each partition after a load that was compacted, half as long again.
#[test]
fn a_compaction_leaves_no_deltas() {
    for (partition_bytes, is_fresh) in [(64 << 20, false), (128 << 10, false), (128 << 10, true)] {
        let mut setup = setup(100);
        setup.keyspace = setup.keyspace.partition_bytes(partition_bytes);
        let (db, keyspace, _) = settled(&setup);
        let new = |keyspace: &Keyspace| {
            for number in (0..KEYS).step_by(10) {
                keyspace.insert([&key(number)[..], b"+"].concat(), [4; 30]).unwrap();
            }
        };
        new(&keyspace);
        keyspace.convert().unwrap();
        let stats = keyspace.stats().unwrap();
        assert!(stats.deltas > stats.partitions / 2, "{stats}");
        if is_fresh {
            put(&keyspace, 20, 5);
            // Less than a block: it covers none whole.
            keyspace.remove_range(key(501)..key(503)).unwrap();
            (501..503).for_each(|number| keyspace.insert(key(number), [1; 30]).unwrap());
        }
        keyspace.compact().unwrap();
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.deltas, stats.runs, stats.unsettled_bytes), (0, 0, 0), "{stats}");
        keyspace.remove_range(key(701)..key(702)).unwrap();
        keyspace.compact().unwrap();
        assert_eq!(keyspace.stats().unwrap().deltas, 0, "a small range");
        keyspace.insert(key(701), [1; 30]).unwrap();
        keyspace.compact().unwrap();
        // There is nothing left to do.
        let swept = db.stats().swept_bytes;
        keyspace.compact().unwrap();
        assert_eq!(db.stats().swept_bytes, swept);
        // And who only converts next leaves deltas as before.
        put(&keyspace, 20, 6);
        keyspace.convert().unwrap();
        assert!(keyspace.stats().unwrap().deltas > 0);
        let mut expected = Vec::new();
        for number in 0..KEYS {
            let value = if number % 20 == 0 { 6 } else { 1 };
            expected.push((key(number).to_vec(), vec![value; 30]));
            if number % 10 == 0 {
                expected.push(([&key(number)[..], b"+"].concat(), vec![4; 30]));
            }
        }
        let found: Vec<_> = keyspace.iter().map(|entry| entry.unwrap()).collect();
        let found = found.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert!(found.eq(expected));
    }
}

/// A base that is not given for a while, and a table that is not made once: it says so, ends all the same, and stands in nobody's
/// way. (A sweep went on to want what had failed, whoever asked next for less.)
#[test]
fn a_compaction_goes_round_what_fails_and_says_so() {
    type Fails = fn(&[String]) -> Fault;
    let is_not_given: Fails = |bases| {
        let fault = Fault::at(0).of(&[OperationKind::Read]).on_paths_with(&bases[2]);
        fault.from_then_on()
    };
    let is_not_made: Fails = |_| Fault::at(2).of(&[OperationKind::Create]).on_paths_with("table-");
    // With deltas nearly everywhere, and with one, elsewhere.
    let (all, one) = (10, KEYS as usize);
    for (fails, every) in [(is_not_given, all), (is_not_made, all), (is_not_given, one)] {
        let mut setup = setup(100);
        setup.mapped_reads = false;
        setup.keyspace = setup.keyspace.partition_bytes(128 << 10);
        let disk = SimDisk::new(1);
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        let db = setup.open(&faulty, 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        put(&keyspace, 1, 1);
        keyspace.convert().unwrap();
        let names = || disk.list(Path::new("/db")).unwrap();
        let mut bases: Vec<_> = names().into_iter().filter(|n| n.starts_with("table-")).collect();
        put(&keyspace, every, 2);
        keyspace.convert().unwrap();
        let before = keyspace.stats().unwrap().deltas;
        assert!(before > 4 || every == one, "{before}");
        put(&keyspace, 20, 3);
        // What a sweep wrote is in the cache.
        drop((keyspace, db));
        let db = setup.open(&faulty, 2).unwrap();
        let keyspace = db.find("k").unwrap();
        bases.retain(|name| names().contains(name));
        let counts = faulty.fail(fails(&bases));
        let outcome = keyspace.compact();
        assert!(counts.fired() > 0, "{outcome:?}, of {}", counts.matched());
        outcome.expect_err("what failed is said");
        // It goes on, and says so as often as something failed.
        let reports = (0..10).take_while(|_| db.wait_idle().is_err()).count();
        assert!(reports < 5, "{reports}");
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.runs, stats.watermark.clone()), (0, None), "it ended: {stats}");
        assert!(stats.deltas > 0 && stats.deltas < before.max(2), "{before}: {stats}");
        keyspace.insert(key(7), [4; 30]).unwrap();
        let _ = keyspace.convert();
        assert_eq!(keyspace.stats().unwrap().runs, 0, "a conversion is not held up");
        faulty.clear_faults();
        keyspace.compact().unwrap();
        assert_eq!(keyspace.stats().unwrap().deltas, 0);
        let tenth = if every == all { 2 } else { 1 };
        for (number, fill) in [(7, 4), (20, 3), (10, tenth), (1, 1), (KEYS - 1, 1)] {
            assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), [fill; 30], "{number}");
        }
    }
}

/// Who converted next was told of it too, though nothing was wrong any more, until something was to be settled.
#[test]
fn what_failed_once_is_told_to_who_compacted_alone() {
    let mut setup = in_parts(100, 128 << 10);
    setup.mapped_reads = false;
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &setup, Arc::new(SeededExecutor::new(1)));
    put(&keyspace, 1, 1);
    keyspace.convert().unwrap();
    put(&keyspace, 10, 2);
    keyspace.convert().unwrap();
    drop((keyspace, db));
    let mut told = 0;
    for at in 0..10 {
        let faulty = FaultyDisk::new(Arc::new(disk.crash_clone(CrashKind::Process, 0)));
        let db = setup.open(&faulty, 2).unwrap();
        let keyspace = db.find("k").unwrap();
        let fault = Fault::at(at * 7).of(&[OperationKind::Read]).on_paths_with("table-");
        let counts = faulty.fail(fault);
        let outcome = keyspace.compact();
        assert_eq!(counts.fired(), 1, "{at}");
        // It may have met one whose work was begun again, or a filter.
        let stats = keyspace.stats().unwrap();
        assert_eq!(stats.deltas > 0, outcome.is_err(), "{at}: {outcome:?}, {stats}");
        told += u32::from(outcome.is_err_and(|e| e.kind() == ErrorKind::Io));
        keyspace.convert().unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(db.wait_idle().err().map(|e| e.to_string()), None, "{at}");
        keyspace.compact().unwrap();
        assert_eq!(keyspace.stats().unwrap().deltas, 0, "{at}");
    }
    assert!(told > 0, "{told}");
}

/// Partitions that became small are joined; of some that were to be one base could not be read. The first of them kept its delta too, though
/// there was nothing wrong with it.
#[test]
fn a_damaged_base_is_joined_with_no_other_and_keeps_its_delta_alone() {
    const FEW: u32 = 8_000;
    let mut setup = in_parts(100, 16 << 10);
    setup.keyspace = setup.keyspace.block_bytes(512);
    setup.mapped_reads = false;
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &setup, Arc::new(SeededExecutor::new(1)));
    let mut expected: BTreeMap<_, _> = (0..FEW).map(|n| (n, 1)).collect();
    let store = |expected: &BTreeMap<u32, u8>, chosen: &dyn Fn(u32) -> bool| {
        for n in (0..FEW).filter(|n| chosen(*n)) {
            match expected.get(&n) {
                Some(fill) => keyspace.insert(key(n), [*fill; 30]).unwrap(),
                None => keyspace.remove(key(n)).unwrap(),
            }
        }
    };
    store(&expected, &|_| true);
    keyspace.convert().unwrap();
    // A third is left of each: no two have room in half of one.
    expected.retain(|n, _| n % 3 == 0);
    store(&expected, &|n| n % 3 > 0);
    keyspace.compact().unwrap();
    db.wait_idle().unwrap();
    let bases = files(&disk, "table-");
    // A delta over each; and of every second next to nothing is left, once that is settled.
    expected.iter_mut().filter(|(n, _)| *n % 60 == 0).for_each(|(_, fill)| *fill = 2);
    store(&expected, &|n| n % 60 == 0);
    keyspace.convert().unwrap();
    let KeyspaceStats { deltas, partitions, .. } = keyspace.stats().unwrap();
    assert_eq!((deltas, bases.len() as u64), (partitions, partitions));
    let width = FEW / partitions as u32;
    let goes = |n: u32| n / width % 2 == 1 && !n.is_multiple_of(21);
    expected.retain(|n, _| !goes(*n));
    store(&expected, &|n| n % 3 == 0 && goes(n));
    drop((keyspace, db));
    let mut joined = 0;
    for base in &bases {
        let disk = disk.crash_clone(CrashKind::Process, 0);
        disk.open(base, Access::Random).unwrap().write_all_at(&[0x55; 8], 100).unwrap();
        let (db, keyspace) = open(&disk, &setup, Arc::new(SeededExecutor::new(2)));
        assert!(keyspace.compact().unwrap_err().is_corruption());
        let _ = db.wait_idle();
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.deltas, stats.runs, &stats.watermark), (1, 0, &None), "{stats}");
        joined += u64::from(stats.partitions < partitions);
        let answers = (0..FEW).filter_map(|n| Some((n, keyspace.get(key(n)).ok()?)));
        let right = |(n, found): (u32, Option<_>)| {
            let fill: Option<u8> = found.map(|value: learnedkv::Slice| value[0]);
            assert_eq!(fill.as_ref(), expected.get(&n), "{n}");
        };
        assert!(answers.map(right).count() > FEW as usize * 9 / 10);
    }
    assert!(joined > partitions / 2, "{joined} of {partitions}");
}

/// At each of its operations the process dies, and the machine: all is there, and the next compaction ends what this one began.
#[test]
fn a_crash_amid_a_compaction_loses_nothing() {
    const FEW: u32 = 4_000;
    let mut setup = setup(100);
    setup.keyspace = setup.keyspace.partition_bytes(16 << 10).block_bytes(512);
    let disk = SimDisk::new(1);
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    for (every, fill) in [(1, 1), (15, 2)] {
        (0..FEW).step_by(every).for_each(|n| keyspace.insert(key(n), [fill; 30]).unwrap());
        keyspace.convert().unwrap();
    }
    let KeyspaceStats { partitions, deltas: before, .. } = keyspace.stats().unwrap();
    assert!(before > 4, "{before} of {partitions}");
    let taken = Arc::new(Mutex::new(Vec::new()));
    let sink = taken.clone();
    disk.observe(move |operation, disk| {
        let kinds = [(CrashKind::Process, 0), (CrashKind::Machine, operation.index)];
        let clones = kinds.map(|(kind, seed)| disk.crash_clone(kind, seed));
        sink.lock().unwrap().extend(clones);
    });
    keyspace.compact().unwrap();
    disk.stop_observing();
    let taken = std::mem::take(&mut *taken.lock().unwrap());
    assert!(taken.len() > 20 * partitions as usize, "{} of {partitions}", taken.len());
    let expected = (0..FEW).map(|n| (key(n).to_vec(), vec![if n % 15 == 0 { 2 } else { 1 }; 30]));
    let expected: Vec<_> = expected.collect();
    let mut amid = 0;
    for (number, left) in taken.into_iter().enumerate() {
        let db = setup.open(&left, 1).unwrap();
        let keyspace = db.find("k").unwrap();
        let check = |when: &str| {
            let found = keyspace.iter().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec()));
            assert!(found.eq(expected.iter().cloned()), "{number}, {when}");
        };
        check("opened");
        let deltas = keyspace.stats().unwrap().deltas;
        amid += u64::from(deltas > 0 && deltas < before);
        if number % 15 == 0 {
            keyspace.compact().unwrap();
            assert_eq!(keyspace.stats().unwrap().deltas, 0, "{number}");
            check("compacted");
        }
    }
    assert!(amid > 20, "{amid}");
}

/// The sweep under way leaves deltas to its end; the one that was asked for meanwhile leaves none, wherever that was.
#[test]
fn a_compaction_asked_amid_a_sweep_leaves_no_deltas_either() {
    let mut amid = 0;
    for seed in 0..12 {
        let mut setup = in_parts(25, 128 << 10);
        setup.automatic_conversion = true;
        let executor = Arc::new(SeededExecutor::new(seed));
        let (db, keyspace) = open(&SimDisk::new(seed), &setup, executor.clone());
        put(&keyspace, 1, 1);
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        // Until one that came by itself is amid its work.
        let (mut sweeps, mut fill) = (0, 1);
        let place = || keyspace.stats().unwrap().watermark.filter(|place| !place.is_empty());
        while place().is_none() {
            assert!(fill < 50, "none was seen amid its work");
            fill += 1;
            put(&keyspace, 20, fill);
            sweeps = db.stats().sweeps;
            while place().is_none() && executor.step_one() {}
        }
        (0..seed).for_each(|_| _ = executor.step_one());
        amid += usize::from(place().is_some());
        put(&keyspace, 40, 100);
        keyspace.compact().unwrap();
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.deltas, stats.runs, &stats.watermark), (0, 0, &None), "seed {seed}");
        assert!(db.stats().sweeps >= sweeps + 2, "seed {seed}");
        let fill = |n: u32| {
            if n.is_multiple_of(40) {
                100
            } else if n.is_multiple_of(20) {
                fill
            } else {
                1
            }
        };
        let expected = (0..KEYS).map(|n| (key(n).to_vec(), vec![fill(n); 30]));
        assert!(contents(&keyspace).into_iter().eq(expected), "seed {seed}");
    }
    assert!(amid > 6, "{amid}");
}

/// It is one sweep, and another for the value segments that this one made mostly dead: neither leaves a delta.
#[test]
fn sweeps_that_follow_a_compaction_leave_no_deltas() {
    const LENGTH: usize = 300;
    for seed in 0..4 {
        let mut setup = in_parts(25, 64 << 10);
        setup.keyspace = setup.keyspace.separate_at(100).inline_limit(200);
        setup.memtable_bytes = 64 << 10;
        let (db, keyspace) = open(&SimDisk::new(seed), &setup, Arc::new(SeededExecutor::new(seed)));
        let number = |n: u32| key(n.wrapping_mul(2_654_435_761));
        let store = |numbers: &mut dyn Iterator<Item = u32>, fill: u8| {
            numbers.for_each(|n| keyspace.insert(number(n), [fill; LENGTH]).unwrap());
        };
        store(&mut (0..3000), 1);
        keyspace.convert().unwrap();
        // Deltas; and so much that segments are to be emptied once it is settled.
        store(&mut (0..3000).filter(|n| n % 12 == 0), 2);
        keyspace.convert().unwrap();
        assert!(keyspace.stats().unwrap().deltas > 0, "seed {seed}");
        store(&mut (0..3000).filter(|n| n % 4 > 0), 3);
        keyspace.flush().unwrap();
        let sweeps = db.stats().sweeps;
        keyspace.compact().unwrap();
        assert!(db.stats().sweeps >= sweeps + 2, "seed {seed}: none followed");
        let stats = keyspace.stats().unwrap();
        assert_eq!((stats.deltas, stats.runs), (0, 0), "seed {seed}: {stats}");
        assert!(stats.value_bytes <= stats.value_live_bytes * 133 / 100, "seed {seed}: {stats}");
        for n in 0..3000 {
            let fill = if n % 4 > 0 {
                3
            } else if n % 12 == 0 {
                2
            } else {
                1
            };
            assert_eq!(keyspace.get(number(n)).unwrap().unwrap(), [fill; LENGTH], "{n}");
        }
    }
}

/// Threads that write all the while: each compaction ends, and once nobody writes the next leaves
/// one table in each partition, and every last value.
#[test]
fn compactions_beside_writers_end_and_lose_nothing() {
    const WRITERS: u32 = 2;
    const ROUNDS: u8 = 12;
    let mut setup = in_parts(25, 64 << 10);
    setup.automatic_conversion = true;
    let (db, keyspace) = open(&SimDisk::new(1), &setup, Arc::new(ThreadExecutor::new(4).unwrap()));
    put(&keyspace, 1, 1);
    let writing = AtomicUsize::new(WRITERS as usize);
    let mut compactions = 0;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (keyspace, writing) = (keyspace.clone(), &writing);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for n in
                        (0..KEYS).filter(|n| n % WRITERS == writer && n % 7 == u32::from(round % 7))
                    {
                        keyspace.insert(key(n), [2 + round; 30]).unwrap();
                    }
                }
                writing.fetch_sub(1, Ordering::Release);
            });
        }
        while writing.load(Ordering::Acquire) > 0 {
            keyspace.compact().unwrap();
            compactions += 1;
        }
    });
    assert!(compactions > 1, "{compactions}");
    keyspace.compact().unwrap();
    db.wait_idle().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.deltas, stats.runs), (0, 0), "{stats}");
    // Of rounds of one remainder the last counts.
    let last = |n: u32| (0..ROUNDS).rfind(|round| u32::from(round % 7) == n % 7);
    let expected = (0..KEYS).map(|n| (key(n).to_vec(), vec![2 + last(n).unwrap(); 30]));
    assert!(contents(&keyspace).into_iter().eq(expected));
}

/// It rewrites no more than a conversion does there, says that the disk is full if it could not settle all, and does the rest
/// when it is asked once there is room.
#[test]
fn on_a_full_disk_a_compaction_is_a_conversion() {
    let setup = in_parts(100, 128 << 10);
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk, &setup, Arc::new(SeededExecutor::new(1)));
    put(&keyspace, 1, 1);
    keyspace.convert().unwrap();
    // Deltas that replace nothing: there is nothing to be had by rewriting what lies below them.
    for n in (0..KEYS).step_by(10) {
        keyspace.insert([&key(n)[..], b"+"].concat(), [2; 30]).unwrap();
    }
    keyspace.convert().unwrap();
    let before = keyspace.stats().unwrap().deltas;
    assert!(before > 4, "{before}");
    disk.set_space_limit_bytes(Some(disk.used_bytes() + (64 << 10)));
    // In one partition, over and over.
    let (mut expected, mut writes) = (contents(&keyspace), (0..1000).cycle().zip(0u32..200_000));
    let refused = writes.find_map(|(n, round)| {
        let (key, value) = (expected[n].0.clone(), [round.to_be_bytes(); 8].concat());
        let refused = keyspace.insert(key, &value).err();
        if refused.is_none() {
            expected[n].1 = value;
        }
        refused
    });
    assert_eq!(refused.map(|e| e.kind()), Some(ErrorKind::DiskFull));
    assert!(matches!(db.health(), DatabaseHealth::Full { .. }), "{:?}", db.health());
    let swept = db.stats().swept_bytes;
    let outcome = keyspace.compact();
    let written = db.stats().swept_bytes - swept;
    let stats = keyspace.stats().unwrap();
    match outcome {
        Ok(()) => assert_eq!((stats.runs, stats.watermark.clone()), (0, None), "{stats}"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::DiskFull, "{e}"),
    }
    // Where nothing is fresh deltas stay.
    assert!(stats.deltas > before / 2, "{before} before: {stats}");
    assert!(written < stats.settled_bytes / 2, "{written}: {stats}");
    assert!(contents(&keyspace) == expected, "full");
    disk.set_space_limit_bytes(None);
    db.resume().unwrap();
    keyspace.compact().unwrap();
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.deltas, stats.runs), (0, 0), "{stats}");
    assert!(contents(&keyspace) == expected, "with room");
}
