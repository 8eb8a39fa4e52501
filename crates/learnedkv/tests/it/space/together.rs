//! Several at once on a full disk.

use std::thread;

use learnedkv::executor::ThreadExecutor;

use super::*;

fn open_on_threads(disk: &SimDisk, ballast_bytes: u64) -> Database {
    let executor = Arc::new(ThreadExecutor::new(2).unwrap());
    let builder = builder(Path::new("/db")).ballast_bytes(ballast_bytes);
    builder.disk(Arc::new(disk.clone())).executor(executor).open().unwrap()
}

/// The one whose removal was due to be settled waited for that; the others went on removing, each flush gave the sweep
/// something to wait for again, and together they took all that was held back.
#[test]
fn many_who_remove_wait_for_what_was_removed_to_be_settled() {
    const THREADS: usize = 8;
    let disk = SimDisk::new(1);
    disk.set_space_limit_bytes(Some(16 * MIB));
    // What is fresh and alive finds room in half of what is held back: more than that may stop a sweep (decision 48).
    let db = open_on_threads(&disk, 4 * MIB);
    let keyspace = db.keyspace("k", options().lsm_ratio_percent(20)).unwrap();
    let name = |number: usize| name(number * 7919 % 1_000_003);
    let put = |number: usize| keyspace.insert(name(number), [number as u8; 60]);
    let end = (0..).find(|number| put(*number).is_err()).unwrap();
    let stays = |number: usize| number.is_multiple_of(20);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let mine = (thread..end).step_by(THREADS).filter(|number| !stays(*number));
                for number in mine {
                    goes_on(PATIENCE, || keyspace.remove(name(number)));
                }
            });
        }
    });
    goes_on(PATIENCE, || keyspace.convert());
    goes_on(PATIENCE, || db.wait_idle());
    assert_eq!(keyspace.iter().count(), end.div_ceil(20));
    goes_on(PATIENCE, || put(end));
}

/// Each chose what it would empty by the same room, none found enough of it, and each chose the same again.
#[test]
fn sweeps_of_several_keyspaces_do_not_count_on_the_same_room() {
    let disk = SimDisk::new(2);
    disk.set_space_limit_bytes(Some(16 * MIB));
    let db = open_on_threads(&disk, MIB);
    let options = options().separate_at(512).inline_limit(1024);
    let keyspaces = ["a", "b", "c"].map(|name| db.keyspace(name, options.clone()).unwrap());
    let value = |number: usize| vec![number as u8; 3000 + number % 7 * 100];
    let put = |number: usize| keyspaces[number % 3].insert(name(number), value(number));
    let end = (0..).find(|number| put(*number).is_err()).unwrap();
    db.wait_idle().unwrap();
    let stays = |number: &usize| (number / 3).is_multiple_of(3);
    for number in (0..end).filter(|number| !stays(number)) {
        goes_on(PATIENCE, || keyspaces[number % 3].remove(name(number)));
    }
    thread::scope(|scope| {
        for keyspace in &keyspaces {
            scope.spawn(|| goes_on(PATIENCE, || keyspace.convert()));
        }
    });
    (end..end + 50).for_each(|number| goes_on(PATIENCE, || put(number)));
    for number in (0..end).filter(stays) {
        let found = keyspaces[number % 3].get(name(number)).unwrap();
        assert!(found.is_some_and(|found| found == value(number)), "{number}");
    }
}
