//! External positions: which commit's a keyspace says, whatever was flushed, and whatever crashed. Random
//! workloads carry them too (`workload.rs`), so that the batteries look at them everywhere.

use std::sync::{Arc, Mutex};

use learnedkv::disk::sim::{CrashKind, SimDisk, Stage};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Database, ErrorKind, Keyspace, KeyspaceOptions, Store};

use crate::workload::Setup;

/// A position that a number makes, and the other way round.
fn position(number: u64) -> [u8; 16] {
    u128::from(number).to_be_bytes()
}

fn number_of(position: Option<[u8; 16]>) -> u64 {
    position.map_or(0, |bytes| u128::from_be_bytes(bytes) as u64)
}

fn newest(keyspace: &Keyspace) -> u64 {
    number_of(keyspace.external_position().unwrap())
}

fn flushed(keyspace: &Keyspace) -> u64 {
    number_of(keyspace.flushed_external_position().unwrap())
}

fn put(db: &Database, keyspaces: &[&Keyspace], key: &str, number: Option<u64>) {
    let mut batch = db.batch();
    keyspaces.iter().for_each(|keyspace| batch.insert(keyspace, key, "value"));
    number.into_iter().for_each(|number| batch.set_external_position(position(number)));
    batch.commit().unwrap();
}

fn open(disk: &SimDisk) -> Database {
    Setup::default().open(disk, 1).unwrap()
}

fn stores() -> [KeyspaceOptions; 2] {
    [Setup::default(), Setup::levels()].map(|setup| setup.keyspace)
}

#[test]
fn a_keyspace_says_the_position_of_its_newest_commit_that_carried_one() {
    for options in stores() {
        let disk = SimDisk::new(1);
        let db = open(&disk);
        let keyspace = db.keyspace("k", options).unwrap();
        assert_eq!((newest(&keyspace), flushed(&keyspace)), (0, 0));
        put(&db, &[&keyspace], "a", Some(7));
        assert_eq!((newest(&keyspace), flushed(&keyspace)), (7, 0));
        // Commits without one, and bulk loads, leave it.
        put(&db, &[&keyspace], "b", None);
        keyspace.insert("c", "value").unwrap();
        keyspace.clear().unwrap();
        keyspace.ingest([("z", "value")]).unwrap();
        keyspace.compare_and_swap("d", None, Some(b"value")).unwrap().unwrap();
        assert_eq!(newest(&keyspace), 7);
        drop((keyspace, db));
        let db = open(&disk);
        let keyspace = db.find("k").unwrap();
        assert_eq!(newest(&keyspace), 7, "reopened");
        keyspace.flush().unwrap();
        assert_eq!((newest(&keyspace), flushed(&keyspace)), (7, 7));
        // The newest counts, not the highest.
        put(&db, &[&keyspace], "a", Some(3));
        assert_eq!((newest(&keyspace), flushed(&keyspace)), (3, 7));
        keyspace.flush().unwrap();
        assert_eq!((newest(&keyspace), flushed(&keyspace)), (3, 3));
        // A memtable in which nobody put one leaves what was flushed before.
        put(&db, &[&keyspace], "b", None);
        keyspace.convert().unwrap();
        assert_eq!((newest(&keyspace), flushed(&keyspace)), (3, 3));
        drop((keyspace, db));
        // Each open writes the state anew.
        for _ in 0..2 {
            let keyspace = open(&disk).find("k").unwrap();
            assert_eq!((newest(&keyspace), flushed(&keyspace)), (3, 3), "reopened");
        }
    }
}

/// Of a batch that only removes it is kept too, though nothing is left to flush.
#[test]
fn the_position_of_removals_is_flushed_with_them() {
    for options in stores() {
        let disk = SimDisk::new(1);
        let db = open(&disk);
        let keyspace = db.keyspace("k", options).unwrap();
        let removals: [fn(&mut learnedkv::Batch, &Keyspace); 2] = [
            |batch, keyspace| batch.clear(keyspace),
            |batch, keyspace| batch.remove(keyspace, "a"),
        ];
        for (number, remove) in (1..).zip(removals) {
            let mut batch = db.batch();
            remove(&mut batch, &keyspace);
            batch.set_external_position(position(99));
            batch.set_external_position(position(number));
            batch.commit().unwrap();
            keyspace.flush().unwrap();
            assert_eq!((newest(&keyspace), flushed(&keyspace)), (number, number));
        }
        drop((keyspace, db));
        assert_eq!(flushed(&open(&disk).find("k").unwrap()), 2);
    }
}

#[test]
fn a_position_that_no_keyspace_would_keep_is_refused() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut batch = db.batch();
    batch.set_external_position(position(1));
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::InvalidArgument);
    // A range of no keys is no operation either.
    let mut batch = db.batch();
    batch.remove_range(&keyspace, "b".."a");
    batch.set_external_position(position(1));
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.batch().commit().unwrap();
    assert_eq!(newest(&keyspace), 0);
    // With the keyspace its position goes, and does not come back with its name.
    put(&db, &[&keyspace], "a", Some(5));
    keyspace.flush().unwrap();
    db.drop_keyspace("k").unwrap();
    assert_eq!(keyspace.external_position().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(keyspace.flushed_external_position().unwrap_err().kind(), ErrorKind::NotFound);
    let again = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert_eq!((newest(&again), flushed(&again)), (0, 0));
}

#[test]
fn a_batch_over_two_keyspaces_is_the_position_of_both_also_where_one_is_flushed() {
    for kind in [CrashKind::Process, CrashKind::Machine] {
        let disk = SimDisk::new(1);
        let db = open(&disk);
        let [a, b] = ["a", "b"].map(|name| db.keyspace(name, Setup::default().keyspace).unwrap());
        put(&db, &[&a, &b], "both", Some(1));
        put(&db, &[&b], "one", Some(2));
        put(&db, &[&a, &b], "both", Some(3));
        a.flush().unwrap();
        let told = |db: &Database| {
            let [a, b] = ["a", "b"].map(|name| db.find(name).unwrap());
            [newest(&a), flushed(&a), newest(&b), flushed(&b)]
        };
        assert_eq!(told(&db), [3, 3, 3, 0]);
        // The flush depends on the batch, so the batch is durable in the log.
        let left = disk.crash_clone(kind, 0);
        let reader = Database::builder("/db").disk(Arc::new(left.clone())).read_only(true);
        let reader = reader.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
        assert_eq!(told(&reader), [3, 3, 3, 0], "read only, {kind:?}");
        drop(reader);
        let db = open(&left);
        assert_eq!(told(&db), [3, 3, 3, 0], "{kind:?}");
        // What is copied has both: those in the manifest and those in the log.
        put(&db, &[&db.find("a").unwrap()], "one", Some(4));
        db.checkpoint("/copy").unwrap();
        put(&db, &[&db.find("b").unwrap()], "one", Some(5));
        let copy = Setup::default().open_at(&left, "/copy", 1).unwrap();
        assert_eq!(told(&copy), [4, 3, 3, 0], "copied, {kind:?}");
        assert_eq!(told(&db), [4, 3, 5, 0]);
    }
}

/// Threads commit at once, through rotations and flushes: the newest commit is the one whose value stands.
#[test]
fn of_commits_by_several_threads_the_newest_counts() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Database::builder(dir.path()).memtable_bytes(8 << 10).open().unwrap();
    let db = open();
    let keyspace = db.keyspace("k", Setup::default().keyspace).unwrap();
    let put = |number: u64| {
        let mut batch = db.batch();
        batch.insert(&keyspace, "newest", number.to_be_bytes());
        batch.insert(&keyspace, number.to_be_bytes(), [7; 60]);
        batch.set_external_position(position(number));
        batch.commit().unwrap();
    };
    let stands = |keyspace: &Keyspace| {
        let value = keyspace.get("newest").unwrap().unwrap();
        u64::from_be_bytes(value[..].try_into().unwrap())
    };
    for round in 0..20 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let put = &put;
                scope.spawn(move || {
                    (1..50).for_each(|number| put(round * 1000 + thread * 100 + number));
                });
            }
            // Whoever asks meanwhile finds what is there to be read.
            for _ in 0..50 {
                let found = newest(&keyspace);
                assert!(
                    found == 0 || keyspace.contains_key(found.to_be_bytes()).unwrap(),
                    "{found}"
                );
            }
        });
        assert_eq!(newest(&keyspace), stands(&keyspace), "round {round}");
    }
    keyspace.flush().unwrap();
    assert_eq!(flushed(&keyspace), newest(&keyspace));
    assert!(db.stats().flushes > 5, "{} flushes", db.stats().flushes);
    let before = newest(&keyspace);
    drop((keyspace, db));
    let keyspace = open().find("k").unwrap();
    assert_eq!((newest(&keyspace), stands(&keyspace)), (before, before));
}

/// The commits of a keyspace in their order: the position each carried, or 0.
type Commits = Vec<u64>;

/// Of the first `count` commits the newest position that one carried.
fn newest_of(commits: &[u64], count: usize) -> u64 {
    commits[..count].iter().rev().copied().find(|number| *number > 0).unwrap_or(0)
}

/// What a crash left of a keyspace whose commits each wrote a key of their own, and one that is the same for all.
fn check(keyspace: &Keyspace, commits: &Commits, at: &str) -> bool {
    let there = keyspace.keys().count().saturating_sub(1);
    assert_eq!(newest(keyspace), newest_of(commits, there), "{at}: {there} commits");
    let stats = keyspace.stats().unwrap();
    // Nothing is settled, and each run has one entry of the key that all write.
    let in_tables = (stats.lsm_entries - stats.runs) as usize;
    let found = flushed(keyspace);
    assert_eq!(
        found,
        newest_of(commits, in_tables),
        "{at}: {in_tables} flushed commits of {there}"
    );
    found > 0 && found < newest(keyspace)
}

/// Before and amid each operation process and machine die: nowhere is a position newer than its data, nor older
/// than a commit of them that carried one, in memory or in tables.
#[test]
fn a_crash_anywhere_leaves_no_position_without_its_data() {
    for seed in 0..2 {
        let disk = SimDisk::new(seed);
        let setup = Setup { automatic_conversion: false, ..Setup::default() };
        let db = setup.open(&disk, seed).unwrap();
        let [a, b] = ["a", "b"].map(|name| db.keyspace(name, setup.keyspace.clone()).unwrap());
        let clones = Arc::new(Mutex::new(Vec::new()));
        let taken = clones.clone();
        disk.observe(move |operation, disk| {
            if operation.stage != Stage::After {
                let at = format!(
                    "{:?} {} {}",
                    operation.stage,
                    operation.kind,
                    operation.path.display()
                );
                let seeds = [operation.index % 6, 6 + operation.index];
                let machines = seeds.map(|seed| disk.crash_clone(CrashKind::Machine, seed));
                let mut taken = taken.lock().unwrap();
                for left in [disk.crash_clone(CrashKind::Process, 0)].into_iter().chain(machines) {
                    taken.push((at.clone(), left));
                }
            }
        });
        let (mut of_a, mut of_b) = (Commits::new(), Commits::new());
        for number in 1..200u64 {
            let (is_both, carries) = (number % 3 == 0, !number.is_multiple_of(4));
            let mut batch = db.batch();
            for (keyspace, commits, writes) in [(&a, &mut of_a, true), (&b, &mut of_b, is_both)] {
                if writes {
                    batch.insert(keyspace, format!("{number:04}"), vec![number as u8; 30]);
                    batch.insert(keyspace, "same", number.to_be_bytes());
                    commits.push(if carries { number } else { 0 });
                }
            }
            if carries {
                batch.set_external_position(position(number));
            }
            batch.commit().unwrap();
            if number % 70 == 50 {
                b.flush().unwrap();
            }
        }
        disk.stop_observing();
        assert!(db.stats().flushes > 4 && db.stats().unlogged_flushes < db.stats().flushes);
        let clones = std::mem::take(&mut *clones.lock().unwrap());
        assert!(clones.len() > 500, "{} crashes", clones.len());
        let mut between = 0;
        for (at, left) in &clones {
            let at = format!("seed {seed}: {at}");
            let db = setup.open(left, seed).unwrap_or_else(|e| panic!("{at}: {e}"));
            for (name, commits) in [("a", &of_a), ("b", &of_b)] {
                between += u64::from(check(&db.find(name).unwrap(), commits, &at));
            }
        }
        assert!(between > 100, "hardly ever was something flushed and something not: {between}");
    }
}

#[test]
fn positions_of_both_stores_are_found_in_one_database() {
    let disk = SimDisk::new(3);
    let db = open(&disk);
    let [settled, levels] = stores();
    assert_eq!(levels.chosen_store(), Store::Lsm);
    let (a, b) = (db.keyspace("a", settled).unwrap(), db.keyspace("b", levels).unwrap());
    for number in 1..300 {
        put(&db, &[&a, &b], &format!("{number:090}"), Some(number));
    }
    db.wait_idle().unwrap();
    for keyspace in [&a, &b] {
        assert!(newest(keyspace) == 299 && flushed(keyspace) > 0);
        keyspace.convert().unwrap();
        assert_eq!(flushed(keyspace), 299);
    }
}
