//! Values kept apart from their keys: where they stand, what reading them costs, when they go.

use std::path::Path;

use learnedkv::disk::sim::SimDisk;
use learnedkv::disk::{Access, Disk};
use learnedkv::{Compression, Database, Keyspace, KeyspaceOptions, Stats};

use crate::files::files;
use crate::workload::Setup;

const NONE: Compression = Compression::None;

/// Values of 100 bytes are kept apart till they settle, of 1000 always; shorter ones never.
fn setup() -> Setup {
    Setup {
        memtable_bytes: 64 << 10,
        log_segment_bytes: 64 << 10,
        block_cache: false,
        automatic_conversion: false,
        stream_at: 1 << 20,
        keyspace: KeyspaceOptions::default()
            .separate_at(100)
            .inline_limit(500)
            .delta_limit_percent(0),
        ..Setup::default()
    }
}

fn open(disk: &SimDisk) -> (Database, Keyspace) {
    open_as(&setup(), disk)
}

/// Nothing is read where the system holds it.
fn open_unmapped(disk: &SimDisk) -> (Database, Keyspace) {
    open_as(&Setup { mapped_reads: false, ..setup() }, disk)
}

fn open_as(setup: &Setup, disk: &SimDisk) -> (Database, Keyspace) {
    let db = setup.open(disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    (db, keyspace)
}

fn key(number: u32) -> String {
    format!("key{number:04}")
}

fn put(keyspace: &Keyspace, numbers: impl Iterator<Item = u32>, length: usize, fill: u8) {
    for number in numbers {
        keyspace.insert(key(number), vec![fill; length]).unwrap();
    }
}

fn segments(disk: &SimDisk) -> Vec<String> {
    let names = disk.list(Path::new("/db")).unwrap();
    names.into_iter().filter(|name| name.starts_with("values-")).collect()
}

/// Read requests for blocks and for values that `work` took.
fn requests<T>(db: &Database, work: impl FnOnce() -> T) -> (u64, u64) {
    let before = db.stats();
    work();
    let after = db.stats();
    let blocks = |s: &Stats| s.read_requests + s.mapped_reads;
    let values = |s: &Stats| s.value_requests + s.mapped_values;
    (blocks(&after) - blocks(&before), values(&after) - values(&before))
}

#[test]
fn a_fresh_long_value_takes_two_requests_a_settled_one_one_and_a_very_long_one_two() {
    let (db, keyspace) = open(&SimDisk::new(1));
    for (length, fresh, settled) in
        [(50, (1, 0), (1, 0)), (100, (1, 1), (1, 0)), (1000, (1, 1), (1, 1))]
    {
        put(&keyspace, 0..50, length, 1);
        keyspace.flush().unwrap();
        let get = || assert!(keyspace.get(key(7)).unwrap().unwrap() == vec![1; length]);
        assert_eq!(requests(&db, get), fresh, "{length} B, fresh");
        keyspace.convert().unwrap();
        assert_eq!(requests(&db, get), settled, "{length} B, settled");
    }
}

/// Whatever the order in which they were put: merges and sweeps then read a segment from its beginning to its end.
#[test]
fn a_flush_writes_values_in_the_order_of_their_keys() {
    let disk = SimDisk::new(1);
    let (_db, keyspace) = open(&disk);
    let value = |number| key(number).repeat(60).into_bytes();
    (0..40).for_each(|n| keyspace.insert(key(n * 27 % 40), value(n * 27 % 40)).unwrap());
    keyspace.flush().unwrap();
    let [segment] = &segments(&disk)[..] else { panic!("a flush makes one") };
    let file = disk.open(&Path::new("/db").join(segment), Access::Random).unwrap();
    let mut bytes = vec![0; file.length_bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let place = |n| bytes.windows(value(n).len()).position(|piece| piece == value(n));
    let places: Vec<_> = (0..40).map(place).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
}

#[test]
fn segments_go_when_nothing_points_into_them_and_not_before() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    put(&keyspace, 0..50, 200, 1);
    keyspace.flush().unwrap();
    put(&keyspace, 50..60, 1000, 2);
    keyspace.flush().unwrap();
    let stats = db.stats().keyspaces.remove(0);
    assert_eq!((segments(&disk).len(), stats.value_segments), (2, 2));
    assert_eq!(stats.value_live_bytes, 50 * 208 + 10 * 1008);
    assert_eq!(stats.value_bytes, stats.value_live_bytes + 2 * 32, "and their headers");
    let snapshot = db.snapshot();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(segments(&disk).len(), 2, "the snapshot reads the first");
    assert!(snapshot.get(&keyspace, key(3)).unwrap().unwrap() == vec![1; 200]);
    drop(snapshot);
    db.wait_idle().unwrap();
    assert_eq!(segments(&disk).len(), 1, "the short values moved into blocks");
    assert!(keyspace.get(key(3)).unwrap().unwrap() == vec![1; 200]);
    assert!(keyspace.get(key(55)).unwrap().unwrap() == vec![2; 1000]);
    // All long values removed: nothing points there any more.
    (50..60).for_each(|number| keyspace.remove(key(number)).unwrap());
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert!(segments(&disk).is_empty(), "{:?}", segments(&disk));
}

/// Those that a sweep will move are compressed as fresh tables are, those that stay as settled ones; what a
/// segment holds is counted as it is stored, and how long a value is known without reading it.
#[test]
fn compressed_values_are_counted_as_they_are_stored() {
    for (fresh, settled) in [(Compression::Lz4, NONE), (NONE, Compression::Lz4)] {
        let disk = SimDisk::new(1);
        let keyspace = setup().keyspace.lsm_compression(fresh).settled_compression(settled);
        let db = Setup { keyspace: keyspace.clone(), ..setup() }.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("k", keyspace).unwrap();
        let stored = || {
            let stats = keyspace.stats().unwrap();
            let all: u64 = segments(&disk).iter().map(|name| length(&disk, name)).sum();
            assert_eq!(stats.value_bytes, all, "what the files take");
            let headers = 32 * stats.value_segments;
            (stats.value_bytes - headers, stats.value_live_bytes, stats.unpacked_value_bytes)
        };
        put(&keyspace, 0..50, 400, 1);
        keyspace.flush().unwrap();
        let (used, live, long) = stored();
        assert_eq!((used, long), (live, 50 * 400));
        assert_eq!(used < long / 4, settled == NONE, "{used} of {long}: those that will move");
        put(&keyspace, 50..100, 5000, 2);
        keyspace.flush().unwrap();
        let staying = stored();
        assert_eq!((staying.0, staying.2), (staying.1, long + 50 * 5000));
        assert_eq!(staying.0 - used < 50 * 1000, fresh == NONE, "those that will stay");
        let sizes = || {
            assert_eq!(keyspace.size_of(key(7)).unwrap(), Some(400));
            assert_eq!(keyspace.size_of(key(70)).unwrap(), Some(5000));
            let sizes: Vec<_> = keyspace.iter().sizes().map(|size| size.unwrap().1).collect();
            assert!(sizes[..50] == [400; 50] && sizes[50..] == [5000; 50]);
            assert!(keyspace.keys().map(Result::unwrap).eq((0..100).map(key)));
            assert!(keyspace.keys().rev().map(Result::unwrap).eq((0..100).rev().map(key)));
        };
        assert_eq!(requests(&db, sizes).1, 0, "values were read");
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let settled = stored();
        assert_eq!(
            (settled.0, settled.2),
            (settled.1, 50 * 5000),
            "the short ones stand in blocks"
        );
        assert_eq!(settled.0, staying.0 - used, "and the others where they stood");
        assert_eq!(requests(&db, sizes).1, 0, "values were read");
        for number in 0..100 {
            let expected = if number < 50 { vec![1; 400] } else { vec![2; 5000] };
            assert!(keyspace.get(key(number)).unwrap().unwrap() == expected, "{number}");
        }
        // Half of them are overwritten: so much is garbage.
        put(&keyspace, 50..75, 5000, 3);
        keyspace.flush().unwrap();
        let fresh = stored();
        assert_eq!((fresh.0, fresh.2), (fresh.1, 75 * 5000));
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let (used, live, long) = stored();
        assert_eq!(long, 50 * 5000);
        assert_eq!(live, settled.1, "as many, as long");
        assert!((live..=live * 13 / 10).contains(&used), "{used}: what is dead goes");
    }
}

/// They stood in one segment: once the short ones had gone into blocks it was half dead, and the next sweep wrote the
/// long ones again, and all tables that point at them.
#[test]
fn values_that_stay_apart_do_not_stand_among_those_that_pass() {
    for compression in [Compression::None, Compression::Lz4] {
        let keyspace = setup().keyspace.settled_compression(compression);
        let setup = Setup { keyspace, ..setup() };
        let db = setup.open(&SimDisk::new(1), 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        for number in 0..40 {
            keyspace.insert(key(number), vec![1; [400, 5000][number as usize % 2]]).unwrap();
        }
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let stats = keyspace.stats().unwrap();
        assert!(stats.value_live_bytes > 0, "{stats:?}");
        let headers = 32 * stats.value_segments;
        assert_eq!(stats.value_bytes - headers, stats.value_live_bytes, "{stats:?}");
    }
}

fn length(disk: &SimDisk, name: &str) -> u64 {
    let file = disk.open(&Path::new("/db").join(name), Access::Random).unwrap();
    file.length_bytes().unwrap()
}

#[test]
fn merges_of_runs_move_no_values() {
    let (db, keyspace) = open(&SimDisk::new(1));
    for round in 0..30 {
        put(&keyspace, (round % 3..300).step_by(3), 400, round as u8);
        keyspace.flush().unwrap();
    }
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert!(stats.merged_bytes > 0, "nothing was merged");
    assert_eq!(stats.value_requests, 0);
    assert!(stats.merged_bytes < stats.flushed_bytes / 10, "{stats}");
    for number in 0..300 {
        let fill = 27 + (number % 3) as u8;
        assert!(keyspace.get(key(number)).unwrap().unwrap() == vec![fill; 400], "{number}");
    }
}

#[test]
fn a_sweep_reads_values_in_large_requests() {
    let (db, keyspace) = open(&SimDisk::new(1));
    for round in 0..4 {
        put(&keyspace, (round..400).step_by(4), 300, round as u8);
        keyspace.flush().unwrap();
    }
    let (_, values) = requests(&db, || keyspace.convert().unwrap());
    assert!(values < 60, "{values} requests for 400 values in 4 segments");
    assert_eq!(db.stats().keyspaces[0].value_segments, 0);
}

#[test]
fn a_walk_reads_values_kept_apart_together_and_not_far_ahead_of_what_is_asked() {
    let (db, keyspace) = open_unmapped(&SimDisk::new(1));
    // In four segments: neighbours by key are far apart.
    for round in 0..4 {
        put(&keyspace, (round..400).step_by(4), 300, round as u8);
        keyspace.flush().unwrap();
    }
    let right = |number: u32, entry: (learnedkv::Slice, learnedkv::Slice)| {
        assert!(entry.0 == key(number).as_bytes() && entry.1 == vec![(number % 4) as u8; 300]);
    };
    let up = || keyspace.iter().enumerate().for_each(|(n, e)| right(n as u32, e.unwrap()));
    let (_, values) = requests(&db, up);
    assert!(values < 60, "{values} requests for 400 values");
    let down = || keyspace.iter().rev().zip(0..).for_each(|(e, n)| right(399 - n, e.unwrap()));
    let (_, values) = requests(&db, down);
    assert!(values < 60, "{values} requests for 400 values");
    let bytes = db.stats().value_read_bytes;
    let (_, values) = requests(&db, || keyspace.iter().next().unwrap().unwrap());
    assert_eq!((values, db.stats().value_read_bytes - bytes), (1, 308), "one is read for one");
    // Both ends read ahead past each other; each entry is handed out once.
    for turns in [vec![true, false], vec![true, true, true, false], vec![false, false, true]] {
        let mut iter = keyspace.range(key(100)..key(200));
        let (mut from, mut to) = (100, 200);
        for front in turns.iter().cycle() {
            let entry = if *front { iter.next() } else { iter.next_back() };
            let Some(entry) = entry else { break };
            if *front {
                right(from, entry.unwrap());
                from += 1;
            } else {
                to -= 1;
                right(to, entry.unwrap());
            }
        }
        assert_eq!(from, to);
    }
}

/// Since blocks of pointers are small, each took a request of its own before it was in the cache.
#[test]
fn pointers_come_into_the_cache_with_those_of_neighbours() {
    let disk = SimDisk::new(1);
    for (block_cache, most) in [(true, 4), (false, 20)] {
        let setup = Setup { block_cache, mapped_reads: false, ..setup() };
        let (db, keyspace) = open_as(&setup, &disk);
        put(&keyspace, 0..400, 300, 7);
        keyspace.flush().unwrap();
        drop((db, keyspace));
        let (db, keyspace) = open_as(&setup, &disk);
        let get = |number: u32| assert_eq!(*keyspace.get(key(number)).unwrap().unwrap(), [7; 300]);
        // One of each block.
        let (blocks, values) = requests(&db, || (0..400).step_by(20).for_each(get));
        assert_eq!(values, 20);
        assert!(blocks <= most, "{blocks}");
        let bytes = db.stats().read_bytes;
        get(20);
        assert!(db.stats().read_bytes - bytes < 1000, "no more than one");
    }
}

/// Each get beside a damaged block of pointers asked for it once more, with its own and all of its neighbours, and then for its own.
#[test]
fn a_damaged_block_of_pointers_is_not_asked_for_with_its_neighbours_again_and_again() {
    let disk = SimDisk::new(1);
    let (memtable_bytes, log_segment_bytes) = (256 << 10, 256 << 10);
    let sizes = Setup { memtable_bytes, log_segment_bytes, ..setup() };
    let setup = Setup { block_cache: true, mapped_reads: false, ..sizes };
    let (db, keyspace) = open_as(&setup, &disk);
    put(&keyspace, 0..400, 300, 7);
    keyspace.flush().unwrap();
    drop((db, keyspace));
    let tables = files(&disk, "table-");
    let [table] = &tables[..] else { panic!("{tables:?}") };
    // In the midst of them.
    disk.open(table, Access::Random).unwrap().write_all_at(&[0x55; 4], 3000).unwrap();
    let (db, keyspace) = open_as(&setup, &disk);
    let mut found = 0;
    let (blocks, _) = requests(&db, || {
        for number in (0..400).step_by(5) {
            match keyspace.get(key(number)) {
                Ok(value) => found += usize::from(value.unwrap() == [7; 300]),
                Err(e) => assert!(e.is_corruption() && e.path() == Some(table), "{e:?}"),
            }
        }
    });
    assert!((60..80).contains(&found), "{found}");
    // Some twenty blocks, the damaged one for each of its keys, and once with its neighbours.
    let of_damaged = 80 - found as u64;
    assert!(blocks <= 22 + of_damaged, "{blocks} for {of_damaged}");
}

/// They were read by requests, with all that lies between neighbours, though a get finds each where it lies.
#[test]
fn a_walk_takes_values_kept_apart_where_the_system_holds_them() {
    let (db, keyspace) = open(&SimDisk::new(1));
    for round in 0..4 {
        put(&keyspace, (round..400).step_by(4), 300, round as u8);
        keyspace.flush().unwrap();
    }
    for _ in 0..3 {
        for (number, entry) in keyspace.iter().enumerate() {
            let (found, value) = entry.unwrap();
            assert!(
                found == key(number as u32).as_bytes() && value == vec![(number % 4) as u8; 300]
            );
        }
    }
    // The simulated disk says of every fourth look that the value is not there; then the map rests.
    let stats = db.stats();
    assert!((400..1200).contains(&stats.mapped_values), "{stats}");
    assert!(stats.value_read_bytes >= 308 * (1200 - stats.mapped_values), "the others: {stats}");
}

/// A value in a block that came behind what was read together began anew with one at a time: of three entries, one of
/// them apart, no two values were ever read together.
#[test]
fn values_in_blocks_do_not_shorten_what_a_walk_reads_together() {
    let (db, keyspace) = open_unmapped(&SimDisk::new(1));
    for number in 0..60 {
        let length = if number % 3 == 0 { 20_000 } else { 10 };
        put(&keyspace, [number].into_iter(), length, 1);
    }
    keyspace.flush().unwrap();
    let mut iter = keyspace.iter();
    let mut read_for = |entries: usize| {
        let before = db.stats().value_read_bytes;
        iter.by_ref().take(entries).for_each(|entry| drop(entry.unwrap()));
        (db.stats().value_read_bytes - before) / 20_000
    };
    assert_eq!(read_for(1), 1, "one is read for one");
    // Of the 30 that come 10 are apart, and some of those behind them were read with these.
    let read = read_for(30);
    assert!((12..=16).contains(&read), "{read}");
}

/// What had been read ahead was lost to whoever went on with the keys alone.
#[test]
fn keys_and_sizes_of_a_walk_under_way_begin_where_it_is() {
    let (_db, keyspace) = open(&SimDisk::new(1));
    put(&keyspace, 0..100, 300, 1);
    keyspace.flush().unwrap();
    for (front, back) in [(1, 0), (2, 1), (5, 7), (50, 50), (3, 40)] {
        let under_way = || {
            let mut iter = keyspace.iter();
            (0..front).for_each(|_| drop(iter.next().unwrap().unwrap()));
            (0..back).for_each(|_| drop(iter.next_back().unwrap().unwrap()));
            iter
        };
        let expected: Vec<_> = (front..100 - back).map(key).collect();
        let keys = under_way().keys().map(|key| key.unwrap().to_vec());
        assert!(keys.eq(expected.iter().map(|key| key.clone().into_bytes())), "{front}, {back}");
        let sizes: Vec<_> = under_way().sizes().map(|size| size.unwrap().1).collect();
        assert_eq!(sizes, vec![300; expected.len()]);
    }
}

#[test]
fn values_that_do_not_move_stay_in_their_segments() {
    let disk = SimDisk::new(1);
    let setup = Setup { keyspace: setup().keyspace.move_values(false), ..setup() };
    let db = setup.open(&disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace).unwrap();
    put(&keyspace, 0..50, 200, 1);
    keyspace.convert().unwrap();
    assert_eq!(segments(&disk).len(), 1);
    let (blocks, values) = requests(&db, || keyspace.get(key(7)).unwrap().unwrap());
    assert_eq!((blocks, values), (1, 1));
}

#[test]
fn a_damaged_value_is_an_error_that_says_where_and_harms_no_other() {
    let disk = SimDisk::new(1);
    let (_db, keyspace) = open(&disk);
    put(&keyspace, 0..20, 200, 1);
    keyspace.flush().unwrap();
    let path = Path::new("/db").join(&segments(&disk)[0]);
    // Header 32, then 208 bytes a value: in the middle of the eighth.
    let file = disk.open(&path, Access::Random).unwrap();
    file.write_all_at(b"x", 32 + 7 * 208 + 100).unwrap();
    let error = keyspace.get(key(7)).unwrap_err();
    assert!(error.is_corruption());
    assert_eq!((error.path(), error.offset_bytes()), (Some(path.as_path()), Some(32 + 7 * 208)));
    assert!(keyspace.get(key(6)).unwrap().is_some() && keyspace.get(key(8)).unwrap().is_some());
    let mut iter = keyspace.iter();
    assert_eq!(iter.by_ref().take_while(Result::is_ok).count(), 7);
    assert!(iter.next().unwrap().unwrap_err().is_corruption(), "and goes on saying so");
}
