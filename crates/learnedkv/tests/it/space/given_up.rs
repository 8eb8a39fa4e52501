//! Conversions that a full disk stopped.

use learnedkv::disk::Disk;

use super::*;

/// Puts for keys all over until one is refused. Tables take a fifth of it all: more than is held back.
fn fill_all_over(keyspace: &Keyspace) {
    for number in 0..1_000_000 {
        if keyspace.insert(name(number * 7919 % 1_000_003), [number as u8; 70]).is_err() {
            return;
        }
    }
    panic!("the disk is never full");
}

/// A conversion of levels that found no room stayed under way, and one that was asked for later joined it: so what was
/// removed in between stayed in memory, and made no room, for ever.
#[test]
fn what_was_removed_after_a_conversion_gave_up_makes_room_for_the_next() {
    let mut given_up = 0;
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(12 * MIB));
        let (db, _) = open(&disk, seed);
        let keyspace = db.keyspace("k", options_of(Store::Lsm).separate_at(1)).unwrap();
        fill_all_over(&keyspace);
        // Others take most of what was held back.
        let free = disk.room(Path::new("/db")).unwrap().free_bytes;
        disk.set_space_limit_bytes(Some(12 * MIB + (180 << 10) - free));
        if let Err(e) = keyspace.convert() {
            assert_eq!(e.kind(), ErrorKind::DiskFull, "seed {seed}: {e}");
            given_up += 1;
        }
        keyspace.clear().unwrap();
        db.resume().unwrap();
        keyspace.convert().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        keyspace.insert("key", [1; 900]).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(keyspace.iter().count(), 1);
    }
    assert!(given_up >= 2, "{given_up} conversions gave up");
}

/// What asks a disk that tells of nothing free reserved for a moment, took that for room that others had made, and began again for
/// ever.
#[test]
fn a_conversion_that_finds_no_room_says_so() {
    for store in Store::ALL {
        let mut refused = 0;
        for seed in 0..6 {
            let disk = SimDisk::new(seed);
            disk.set_space_limit_bytes(Some(12 * MIB));
            let (db, executor) = open(&disk, seed);
            let keyspace = db.keyspace("k", options_of(*store)).unwrap();
            fill_all_over(&keyspace);
            // Next to nothing is told of, and a little more is there.
            disk.set_space_limit_bytes(Some(disk.used_bytes() + (90 << 10)));
            disk.set_unsaid_bytes(60 << 10);
            if let Err(e) = keyspace.convert() {
                assert_eq!(e.kind(), ErrorKind::DiskFull, "{store:?} {seed}: {e}");
                refused += 1;
            }
            assert!(executor.run_until_idle() < 1000, "{store:?} {seed}: it does not come to rest");
            disk.set_space_limit_bytes(None);
            db.resume().unwrap();
            keyspace.convert().unwrap();
        }
        assert!(refused > 1, "{store:?}: {refused} were refused");
    }
}

/// Removals were settled by what they take: one range over nearly everything, or a few long values, take nothing, and puts were
/// refused until somebody converted.
#[test]
fn a_range_that_was_removed_makes_room_for_puts_that_are_refused() {
    for (seed, store) in (0..6).flat_map(|seed| [(seed, Store::Tiered), (seed, Store::Lsm)]) {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(24 * MIB));
        let (db, executor) = open_with(Database::builder("/db"), &disk, seed);
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(store)).unwrap();
        let mut first = 0;
        for round in 0..3 {
            let put = |number: usize| keyspace.insert(name(number), [number as u8; 400]);
            let end = (first..).find(|number| put(*number).is_err()).unwrap();
            assert!(end - first > 15_000, "{store:?}, {seed}, {round}: {first} to {end}");
            keyspace.remove_range(name(first)..name(end - 100)).unwrap();
            let is_taken = (0..10).any(|_| {
                let taken = put(end).is_ok();
                executor.pause(Duration::from_secs(1));
                executor.run_until_idle();
                taken
            });
            assert!(is_taken, "{store:?}, {seed}, {round}: {:?}", put(end));
            first = end + 1;
        }
        assert_eq!(keyspace.iter().count(), 3 * 101, "{store:?}, {seed}");
    }
}

/// So much garbage as is not worth a sweep elsewhere was more than the disk has: what was overwritten filled it, and puts were refused.
#[test]
fn a_small_disk_takes_overwrites_for_ever() {
    for (seed, store) in (0..3).flat_map(|seed| [(seed, Store::Tiered), (seed, Store::Lsm)]) {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(40 * MIB));
        let (db, executor) = open_with(Database::builder("/db"), &disk, seed);
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(store)).unwrap();
        for round in 0..12_u8 {
            for number in 0..12_000 {
                let put = keyspace.insert(name(number), [round; 900]);
                put.unwrap_or_else(|e| panic!("seed {seed}, {store:?}, {round} {number}: {e}"));
                if number % 2000 == 0 {
                    executor.run_until_idle();
                }
            }
        }
        assert_eq!(keyspace.iter().count(), 12_000);
    }
}

/// As long as somebody removed something, in another keyspace too, what had been removed was never settled.
#[test]
fn removals_here_and_there_do_not_keep_what_was_removed_from_making_room() {
    for (seed, store) in (0..3).flat_map(|seed| [(seed, Store::Tiered), (seed, Store::Lsm)]) {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(24 * MIB));
        let (db, executor) = open_with(Database::builder("/db"), &disk, seed);
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(store)).unwrap();
        let put = |number: usize| keyspace.insert(name(number), [number as u8; 400]);
        let end = (0..).find(|number| put(*number).is_err()).unwrap();
        keyspace.remove_range(name(0)..name(end - 100)).unwrap();
        let is_taken = (0..40).any(|at| {
            other.remove(name(at)).unwrap();
            let taken = put(end).is_ok();
            executor.pause(Duration::from_millis(500));
            executor.run_until_idle();
            taken
        });
        assert!(is_taken, "{store:?}, {seed}: {:?}", put(end));
    }
}

/// A put for which no log segment was to be had was refused while the ballast was held: nobody settled what was removed, no flush
/// was due, and it was refused for good.
#[test]
fn what_finds_no_log_segment_waits_for_what_was_removed() {
    for (seed, store) in (0..3).flat_map(|seed| [(seed, Store::Tiered), (seed, Store::Lsm)]) {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(256 * MIB));
        let (db, executor) = open_with(Database::builder("/db"), &disk, seed);
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(store)).unwrap();
        (0..40_000).for_each(|number| keyspace.insert(name(number), [7; 900]).unwrap());
        keyspace.convert().unwrap();
        drop(keyspace);
        db.close().unwrap();
        let (db, executor_after) = open_with(Database::builder("/db"), &disk, seed);
        drop(executor);
        executor_after.run_until_idle();
        let keyspace = db.find("k").unwrap();
        // Others leave less than the larger ones of the growing segments take.
        let free = disk.room(Path::new("/db")).unwrap().free_bytes;
        disk.set_space_limit_bytes(Some(256 * MIB + 3 * MIB - free));
        let put = |number: usize| keyspace.insert(name(number), vec![number as u8; 20_000]);
        let refused = (50_000..).find(|number| put(*number).is_err()).unwrap();
        assert!(refused < 50_400, "{store:?}, {seed}: {refused} found room");
        keyspace.remove_range(name(0)..name(40_000)).unwrap();
        let is_taken = (0..10).any(|_| {
            let taken = put(refused).is_ok();
            executor_after.pause(Duration::from_secs(1));
            executor_after.run_until_idle();
            taken
        });
        assert!(is_taken, "{store:?}, {seed}: {:?}, {:?}", put(refused), db.health());
    }
}

/// What is worth a sweep on a small disk was said to have been asked for, and so was persisted by whoever made a keyspace
/// with the same options elsewhere.
#[test]
fn a_small_disk_has_no_say_in_the_options_that_are_shown() {
    let disk = SimDisk::new(1);
    disk.set_space_limit_bytes(Some(24 * MIB));
    let (db, _) = open_with(Database::builder("/db"), &disk, 1);
    let asked = KeyspaceOptions::default().store(Store::Tiered);
    assert_eq!(*db.keyspace("k", asked.clone()).unwrap().options(), asked);
    drop(db);
    let (db, _) = open_with(Database::builder("/db"), &disk, 1);
    assert_eq!(*db.find("k").unwrap().options(), asked);
}
