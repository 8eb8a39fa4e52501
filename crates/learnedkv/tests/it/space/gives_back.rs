//! What a sweep gives back on a full disk, beyond what its steps replace.

use learnedkv::disk::OperationKind;

use super::*;

/// On a full disk no value was written anew, so that a segment of which one value in three lived stayed for ever, whatever was
/// removed, while conversions said that all was well.
#[test]
fn long_values_that_were_removed_give_their_space_back_on_a_full_disk() {
    for seed in 0..4 {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(12 * MIB));
        let (db, _) = open(&disk, seed);
        // Above the limit of what stands in blocks: they stay apart for good.
        let options = options().separate_at(512).inline_limit(1024);
        let keyspace = db.keyspace("k", options).unwrap();
        let value = |number: usize| vec![number as u8; 3000 + number % 7 * 100];
        let put = |number: usize| keyspace.insert(name(number), value(number));
        let end = (0..).find(|number| put(*number).is_err()).unwrap();
        db.wait_idle().unwrap();
        let stays = |number: &usize| number.is_multiple_of(3);
        (0..end).filter(|n| !stays(n)).for_each(|n| keyspace.remove(name(n)).unwrap());
        let before = keyspace.stats().unwrap().value_bytes;
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let after = keyspace.stats().unwrap().value_bytes;
        let lives: usize = (0..end).filter(stays).map(|number| value(number).len()).sum();
        assert!(
            after < before && after < lives as u64 / 8 * 9,
            "seed {seed}: {before} before, {after} after, {lives} of them alive"
        );
        for number in (0..end).filter(stays) {
            assert!(
                keyspace.get(name(number)).unwrap().is_some_and(|found| found == value(number))
            );
        }
        (end..end + 50).for_each(|n| put(n).unwrap_or_else(|e| panic!("seed {seed}, {n}: {e}")));
    }
}

/// Each removal takes room before it gives any back. They took all that was held back for what settles, and then nothing was given back any
/// more, nor a removal taken.
#[test]
fn removals_one_by_one_leave_room_for_what_settles() {
    let sizes = [(256 << 10, 512 << 10), (128 << 10, 64 << 10), (64 << 10, 64 << 10)];
    for (seed, (memtable_bytes, partition_bytes)) in (0..).zip(sizes) {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(24 * MIB));
        let builder = builder(Path::new("/db"))
            .memtable_bytes(memtable_bytes)
            .log_segment_bytes(memtable_bytes as u64);
        let (db, _) = open_with(builder, &disk, seed);
        let options = options().partition_bytes(partition_bytes).min_conversion_bytes(4 << 20);
        let keyspace = db.keyspace("k", options).unwrap();
        // All over: each flush is a run over all keys.
        let name = |number: usize| name(number * 7919 % 1_000_003);
        let put = |number: usize| keyspace.insert(name(number), [number as u8; 60]);
        let end = (0..).find(|number| put(*number).is_err()).unwrap();
        let stays = |number: usize| number.is_multiple_of(20);
        for number in (0..end).filter(|number| !stays(*number)) {
            keyspace
                .remove(name(number))
                .unwrap_or_else(|e| panic!("seed {seed}, {number} of {end}: {e}"));
        }
        keyspace.convert().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        db.wait_idle().unwrap();
        assert_eq!(keyspace.iter().count(), end.div_ceil(20));
        put(end).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

/// Fresh entries that are alive need room before their old place is given back, which the sweep makes by trimming what it
/// froze; where that is kept (here by a snapshot) it has to stop. It stopped in both cases, and for ever, for what it had frozen
/// stayed to be written when all of it was removed; and it had used up what removals need.
#[test]
fn a_sweep_that_a_full_disk_stopped_goes_on_once_what_it_froze_is_removed() {
    for (seed, is_kept) in (0..8).flat_map(|seed| [(seed, false), (seed, true)]) {
        let disk = SimDisk::new(seed);
        let (db, _) = open(&disk, seed);
        let options = options().min_conversion_bytes(1 << 40).partition_bytes(1 << 20);
        let keyspace = db.keyspace("k", options).unwrap();
        // Short values: they stand in the runs, and a sweep writes them anew. In no order, in runs of one
        // table: these give nothing back before the sweep's end.
        let put = |numbers: std::ops::Range<usize>| {
            let count = numbers.len();
            for number in 0..count {
                let name = name(numbers.start + number * 7919 % count);
                keyspace.insert(name, [7; 300]).unwrap();
            }
        };
        put(0..4000);
        if seed % 2 == 1 {
            keyspace.convert().unwrap();
            put(2000..12_000);
        } else {
            put(4000..12_000);
        }
        keyspace.flush().unwrap();
        db.wait_idle().unwrap();
        disk.set_space_limit_bytes(Some(disk.used_bytes() + (1 + seed) * (64 << 10)));
        let snapshot = is_kept.then(|| db.snapshot());
        match keyspace.convert() {
            Err(e) if is_kept => assert_eq!(e.kind(), ErrorKind::DiskFull, "seed {seed}"),
            converted => assert!(converted.is_ok() && !is_kept, "seed {seed}: {converted:?}"),
        }
        drop(snapshot);
        for number in 0..11_990 {
            keyspace.remove(name(number)).unwrap();
        }
        keyspace.convert().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        db.wait_idle().unwrap();
        assert_eq!(keyspace.iter().count(), 10);
        keyspace.insert("after", [0; 300]).unwrap();
    }
}

/// The disk had room for a ballast of an eighth of it, and that none for a partition of the usual size; and where fresh keys lay
/// behind all that was settled, the rest of the partition kept the old table, and so all its values, until they were settled too.
/// Nothing came back, and no put was taken any more.
#[test]
fn a_small_disk_gives_back_what_was_removed_with_partitions_of_the_usual_size() {
    const LONG: usize = 200 << 10;
    for seed in 0..4 {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(16 * MIB));
        let builder = builder(Path::new("/db")).stream_at(128 << 10);
        let (db, _) = open_with(builder, &disk, seed);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        // They stand in blocks.
        let put = |key: String| keyspace.insert(key, [7; 400]);
        (0..8000).for_each(|number| put(format!("a{}", name(number))).unwrap());
        let long = |number: usize| format!("a{}-long", name(number * 400));
        (0..20).for_each(|n| keyspace.insert(long(n), [n as u8; LONG]).unwrap());
        keyspace.convert().unwrap();
        let fill = |from: usize| (from..).find(|number| put(name(*number)).is_err()).unwrap();
        let end = fill(0);
        (0..20).for_each(|number| keyspace.remove(long(number)).unwrap());
        keyspace.convert().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let stats = keyspace.stats().unwrap();
        assert_eq!(stats.value_segments, 0, "seed {seed}: {stats:?}");
        let further = fill(end);
        let taken = (further - end) * 400;
        assert!(taken > 10 * LONG, "seed {seed}: {taken} bytes were taken after {end} puts");
        assert_eq!(keyspace.iter().count(), 8000 + further);
    }
}

/// Where a disk told of nothing free, though it had some, a step that gave nothing back at once was refused for ever: a conversion failed, whatever was
/// removed. And what no sweep had moved on the full disk came free only with the last of what one base pointed at: the
/// next puts were refused at three fifths of what the disk had taken before.
#[test]
fn a_disk_takes_as_much_again_after_each_conversion() {
    let mut verified = 0;
    let settings = (0..4).flat_map(|seed| [(seed, 0, false), (seed, 1200 << 10, false)]);
    for setting in settings.chain([(15, 0, true), (15, 1200 << 10, true), (88, 0, true)]) {
        let (seed, unsaid_bytes, is_scattered) = setting;
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(22 * MIB));
        disk.set_unsaid_bytes(unsaid_bytes);
        let (db, executor) = open(&disk, seed);
        let keyspace = db.keyspace("k", options()).unwrap();
        let key = |number: usize| match is_scattered {
            true => format!("{:08x}", (number as u32).wrapping_mul(0x9e37_79b1)),
            false => name(number),
        };
        let left = Arc::new(Mutex::new(Vec::new()));
        let sink = left.clone();
        disk.observe(move |operation, disk| {
            if operation.kind == OperationKind::Discard && operation.stage == Stage::After {
                let mut left = sink.lock().unwrap();
                // Some of many.
                if operation.index.is_multiple_of(97) && left.len() < 6 {
                    left.push(disk.crash_clone(CrashKind::Process, 0));
                }
            }
        });
        let (mut first, mut end) = (0, 0);
        for round in 0..3 {
            let begun = end;
            let put = |number: usize| keyspace.insert(key(number), [number as u8; 900]);
            let error = loop {
                match put(end) {
                    Ok(()) => end += 1,
                    Err(e) => break e,
                }
            };
            assert_eq!(error.kind(), ErrorKind::DiskFull, "{setting:?} {round}: {error}");
            let least = if round == 0 { 19_000 } else { 12_000 };
            assert!(end - begun > least, "{setting:?} {round}: {begun} to {end}");
            let keep = first + (end - first) * 2 / 3;
            for number in first..keep {
                let removed = keyspace.remove(key(number));
                removed.unwrap_or_else(|e| panic!("{setting:?} {round} {number}: {e}"));
            }
            first = keep;
            keyspace.convert().unwrap_or_else(|e| panic!("{setting:?} {round}: {e}"));
            db.wait_idle().unwrap();
            executor.pause(Duration::from_secs(2));
            // What was given back is not missing anywhere.
            for left in std::mem::take(&mut *left.lock().unwrap()) {
                let damage = crate::verify::verify(&left).into_iter().next();
                assert!(damage.is_none(), "{setting:?} {round}: {damage:?}");
                verified += 1;
            }
        }
        assert_eq!(keyspace.iter().count(), end - first, "{setting:?}");
        for number in first..end {
            let found = keyspace.get(key(number)).unwrap();
            assert!(
                found.is_some_and(|found| *found == [number as u8; 900]),
                "{setting:?} {number}"
            );
        }
    }
    assert!(verified > 20, "{verified}");
}

/// A memtable was as large as all that a full disk of less than a GiB has held back: what was flushed of it found no room, whatever was
/// removed, and no put was taken any more; and more room was waited for than the disk has.
#[test]
fn a_small_disk_is_emptied_with_memtables_of_the_usual_size() {
    for (seed, store) in [(1, Store::Tiered), (2, Store::Lsm)] {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(48 * MIB));
        let (db, executor) = open_with(Database::builder("/db"), &disk, seed);
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(store)).unwrap();
        let mut first = 0;
        for round in 0..2 {
            let put = |number: usize| keyspace.insert(name(number), vec![number as u8; 20_000]);
            let end = (first..).find(|number| put(*number).is_err()).unwrap();
            let full = put(end).unwrap_err();
            assert!(
                end - first > 1200,
                "{store:?} {round}: {first} to {end}: {full} {}",
                db.stats()
            );
            let stays = |number: &usize| number.is_multiple_of(25);
            for number in (first..end).filter(|number| !stays(number)) {
                let removed = keyspace.remove(name(number));
                removed.unwrap_or_else(|e| panic!("{store:?} {round} {number}: {e}"));
            }
            keyspace.convert().unwrap_or_else(|e| panic!("{store:?} {round}: {e}"));
            db.wait_idle().unwrap();
            executor.pause(Duration::from_secs(2));
            first = end;
        }
        put_again(&keyspace, first, store);
    }

    fn put_again(keyspace: &Keyspace, number: usize, store: Store) {
        let put = keyspace.insert(name(number), vec![7; 20_000]);
        put.unwrap_or_else(|e| panic!("{store:?}: {e}"));
        let alive = (0..number).filter(|number| number.is_multiple_of(25));
        for number in alive {
            let found = keyspace.get(name(number)).unwrap();
            assert_eq!(found.unwrap(), vec![number as u8; 20_000], "{store:?} {number}");
        }
    }
}

/// Settled partitions under a removed range came free when the sweep came there: with fresh entries that live before it, which
/// need room first, that was never.
#[test]
fn a_removed_range_over_settled_partitions_makes_room_for_what_is_settled_before_it() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        // One run of one table, which is larger than all that is held back: there is no room to trim it.
        let builder =
            builder(Path::new("/db")).memtable_bytes(4 << 20).memory_budget_bytes(16 << 20);
        let (db, _) = open_with(builder, &disk, seed);
        let options = options().min_conversion_bytes(1 << 40).partition_bytes(256 << 10);
        let keyspace = db.keyspace("k", options).unwrap();
        let put = |numbers: std::ops::Range<usize>| {
            let (first, count) = (numbers.start, numbers.len());
            for number in 0..count {
                keyspace.insert(name(first + number * 7919 % count), [seed as u8; 300]).unwrap();
            }
        };
        put(10_000..26_000);
        keyspace.convert().unwrap();
        put(0..8000);
        keyspace.flush().unwrap();
        db.wait_idle().unwrap();
        disk.set_space_limit_bytes(Some(disk.used_bytes() + (64 << 10)));
        keyspace.remove_range(name(10_500)..name(25_500)).unwrap();
        keyspace.convert().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        db.wait_idle().unwrap();
        let stats = keyspace.stats().unwrap();
        assert_eq!(stats.runs, 0, "seed {seed}");
        let left = (0..8000).chain(10_000..10_500).chain(25_500..26_000);
        assert!(keyspace.keys().map(Result::unwrap).eq(left.map(|n| name(n).into_bytes())));
        keyspace.insert("after", [0; 300]).unwrap();
    }
}

/// The base of levels and their tables were as large as on any disk: on a full one a compaction wanted more room than was held back,
/// of three quarters that were removed next to nothing came free, and puts were refused after a few thousand.
#[test]
fn a_small_disk_of_levels_takes_as_much_again() {
    for (seed, disk_bytes) in (0..3).flat_map(|seed| [(seed, 12 * MIB), (seed, 32 * MIB)]) {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some(disk_bytes));
        let (db, executor) = open_with(Database::builder("/db"), &disk, seed);
        let keyspace = db.keyspace("k", KeyspaceOptions::default().store(Store::Lsm)).unwrap();
        // All over: each run lies over all of the base.
        let key = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let put = |number: usize| keyspace.insert(key(number), [number as u8; 100]);
        let fill = |from: usize| {
            let mut end = from;
            // What was removed comes free in the background.
            for _ in 0..20 {
                while put(end).is_ok() {
                    end += 1;
                }
                executor.pause(Duration::from_secs(2));
            }
            end
        };
        let end = fill(0);
        assert!(end as u64 * 108 > disk_bytes / 2, "{disk_bytes}, seed {seed}: {end}");
        let stays = |number: &usize| number.is_multiple_of(4);
        for number in (0..end).filter(|number| !stays(number)) {
            let removed = keyspace.remove(key(number));
            removed.unwrap_or_else(|e| panic!("{disk_bytes}, seed {seed}, {number}: {e}"));
        }
        let further = fill(end);
        assert!(further - end > end / 2, "{disk_bytes}, seed {seed}: {end}, {further}");
        let alive = (0..end).filter(stays).chain(end..further);
        for number in alive.step_by(17) {
            let found = keyspace.get(key(number)).unwrap();
            assert_eq!(found.unwrap(), [number as u8; 100], "seed {seed}, {number}");
        }
        assert_eq!(keyspace.keys().count(), end.div_ceil(4) + further - end, "seed {seed}");
    }
}
