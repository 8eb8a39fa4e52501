//! Tables that do not keep their index: what is read, what is kept where, and what becomes of
//! damage.

use std::sync::Barrier;

use super::*;
use crate::cache::ENTRY_BYTES;
use crate::cache::Weight;
use crate::format::manifest::TableRecord;
use crate::sstable::index::fence::Fence;
use crate::sstable::reader::Held;

struct Fixture {
    disk: SimDisk,
    faulty: FaultyDisk,
    context: Arc<TableContext>,
    record: TableRecord,
    table: Table,
}

impl Fixture {
    /// A table in a context that has no room for any metadata.
    fn new(kind: IndexKind, compression: Compression, cache_bytes: u64) -> Fixture {
        let disk = SimDisk::new(1);
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        let context = context_with(Arc::new(faulty.clone()), cache_bytes, false, 0);
        let table = table(&context, kind, compression);
        let record = table.record();
        assert!(table.is_paged(), "{kind}");
        Fixture { disk, faulty, context, record, table }
    }

    fn get(&self, number: u64) -> crate::error::Result<Lookup> {
        self.table.get(&Sought::new(&key(number * 2), Caching::Fill))
    }

    fn requests(&self) -> u64 {
        self.context.metrics.requests.load(Relaxed)
    }

    fn loads(&self) -> u64 {
        self.context.metrics.index_loads.load(Relaxed)
    }

    /// What a lookup cost: read requests, and how many of them were for the index.
    fn cost(&self, number: u64) -> (u64, u64) {
        let before = (self.requests(), self.loads());
        match self.get(number).unwrap() {
            Lookup::Value(value) => assert_eq!(*value, [number as u8; 20]),
            other => panic!("{number}: {other:?}"),
        }
        (self.requests() - before.0, self.loads() - before.1)
    }

    /// Where the index stands in the file, about: it is the first section.
    fn damage_index(&self) {
        let file = self.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
        file.write_all_at(&[0xff; 4], self.record.properties.data_bytes).unwrap();
    }

    fn rebuilt(&self) -> u64 {
        self.context.metrics.rebuilt_indexes.load(Relaxed)
    }
}

#[test]
fn every_kind_answers_alike_whatever_the_cache_holds() {
    for (number, &kind) in IndexKind::ALL.iter().enumerate() {
        // None, less than an index, enough.
        for cache_bytes in [0, 100, 1 << 20] {
            let compression = Compression::ALL[number % Compression::ALL.len()];
            let f = Fixture::new(kind, compression, cache_bytes);
            let context = f.context.clone();
            check(f.table, &format!("{kind}, {cache_bytes}"));
            let metrics = &context.metrics;
            assert_eq!(metrics.fallbacks.load(Relaxed), 0, "{kind}");
            let loads = metrics.index_loads.load(Relaxed);
            // With room for it: once by the first get, and by no walk.
            assert_eq!(loads == 1, cache_bytes == 1 << 20, "{kind}, {cache_bytes}: {loads} loads");
        }
    }
}

#[test]
fn a_get_that_loads_the_index_is_two_requests() {
    for (cache_bytes, again, other) in [(1 << 20, (0, 0), (1, 0)), (0, (2, 1), (2, 1))] {
        let f = Fixture::new(IndexKind::Exact, Compression::None, cache_bytes);
        assert_eq!(f.requests(), 0, "nothing was read of it when it was opened");
        assert_eq!(f.cost(7), (2, 1));
        assert_eq!(f.cost(7), again);
        assert_eq!(f.cost(ENTRIES - 1), other);
    }
}

/// A round of a `multi_get`, and a walk, load it once also where nothing keeps it.
#[test]
fn what_works_on_a_table_keeps_its_index_on_loan() {
    let f = Fixture::new(IndexKind::Exact, Compression::None, 0);
    let keys: Vec<_> = (0..ENTRIES).map(|n| key(n * 2)).collect();
    let sought: Vec<_> = keys.iter().map(|key| Sought::new(key, Caching::Fill)).collect();
    let probes: Vec<_> = sought.iter().map(|sought| Probe { table: &f.table, sought }).collect();
    get_many(&probes, Caching::Fill).unwrap();
    assert_eq!((f.requests(), f.loads()), (2, 1), "the index, and all blocks as one");
    let table = Arc::new(f.table);
    for (round, walk) in (2..).zip([Walk::Cached, Walk::Uncached, Walk::Bulk]) {
        let clipped = Clipped { table: table.clone(), lower: Vec::new(), upper: None };
        let mut cursor = RunCursor::new(vec![clipped], walk);
        for seek in [Seek::First, Seek::AtOrAfter(&key(300)), Seek::Before(&key(200))] {
            cursor.seek(seek).unwrap();
            while cursor.key().is_some() {
                cursor.advance().unwrap();
            }
        }
        assert_eq!(f.context.metrics.index_loads.load(Relaxed), round, "{walk:?}");
    }
}

#[test]
fn cached_indexes_are_the_caches_bytes_and_go_with_their_table() {
    let f = Fixture::new(IndexKind::Fence, Compression::None, 1 << 20);
    let metadata = || f.context.metrics.metadata_bytes.load(Relaxed);
    let without = f.table.metadata_bytes() as u64;
    assert_eq!((metadata(), f.context.cache.used_bytes()), (without, 0));
    let loan = f.table.borrow(Caching::Checked).unwrap();
    assert_eq!(f.context.cache.used_bytes(), 0, "a merge leaves nothing behind");
    drop(loan);
    f.table.borrow(Caching::Leave).unwrap();
    let held = f.context.cache.index(1).expect("in the cache");
    let (used, section) = (f.context.cache.used_bytes(), f.table.index_bytes());
    assert!(held.size_bytes() as u64 >= section, "{} of {section}", held.size_bytes());
    assert_eq!(used, held.size_bytes() as u64 + ENTRY_BYTES);
    assert_eq!((metadata(), f.loads()), (without, 2));
    drop(held);
    let context = f.context.clone();
    drop(f.table);
    assert_eq!((context.cache.used_bytes(), context.metrics.metadata_bytes.load(Relaxed)), (0, 0));
}

/// A table that was opened when there was no room keeps its index from the first load on that finds
/// some; its metadata never passes what it may take.
#[test]
fn room_that_came_is_taken() {
    let roomy = context(0);
    let resident_bytes = table(&roomy, IndexKind::Fence, Compression::None).metadata_bytes() as u64;
    let disk = || -> Arc<dyn Disk> { Arc::new(SimDisk::new(1)) };
    let tight = context_with(disk(), 1 << 20, false, 0);
    let paged_bytes = table(&tight, IndexKind::Fence, Compression::None).metadata_bytes() as u64;
    // Room for the indexes of two tables and a half, and for what there is of three in any case.
    let room = 2 * resident_bytes + paged_bytes + (resident_bytes - paged_bytes) / 2;
    let context = context_with(disk(), 1 << 20, false, room);
    let first = table(&context, IndexKind::Fence, Compression::None);
    let again = || Table::open(&context, first.record()).unwrap();
    let (second, third) = (again(), again());
    let paged = || [&first, &second, &third].map(Table::is_paged);
    assert_eq!(paged(), [false, false, true]);
    let get = |table: &Table| table.get(&Sought::new(&key(14), Caching::Fill)).unwrap();
    let metadata = || context.metrics.metadata_bytes.load(Relaxed);
    get(&third);
    assert!(third.is_paged() && metadata() <= room, "{} of {room}", metadata());
    assert!(context.cache.index(1).is_some());
    drop(second);
    get(&third);
    assert!(third.is_paged(), "it is in the cache, and there it may stay");
    context.cache.remove_index(1);
    let (capacity, before) = (context.cache.capacity_bytes(), metadata());
    get(&third);
    assert!(!third.is_paged() && context.cache.index(1).is_none());
    // What it takes the cache has not any more: nobody else may look for long.
    assert_eq!(context.cache.capacity_bytes(), capacity - (metadata() - before));
    assert_eq!(metadata(), (first.metadata_bytes() + third.metadata_bytes()) as u64);
    assert!(metadata() <= room, "{} of {room}", metadata());
}

#[test]
fn readers_of_one_missing_index_share_one_load() {
    const READERS: usize = 8;
    let f = Fixture::new(IndexKind::Exact, Compression::None, 0);
    let (begin, end) = (Barrier::new(READERS), Barrier::new(READERS));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                begin.wait();
                let loan = f.table.borrow(Caching::Fill).unwrap();
                end.wait();
                drop(loan);
            });
        }
    });
    assert_eq!((f.requests(), f.loads()), (1, 1));
}

/// As at the open: the blocks know better. From then on they are asked.
#[test]
fn a_damaged_index_is_found_when_it_is_loaded_and_rebuilt_from_the_blocks() {
    for &kind in IndexKind::ALL {
        for cache_bytes in [0, 1 << 20] {
            let f = Fixture::new(kind, Compression::None, cache_bytes);
            f.damage_index();
            assert_eq!(f.rebuilt(), 0);
            let before = f.table.metadata_bytes();
            assert_eq!(f.cost(7).1, 1, "{kind}");
            assert_eq!((f.rebuilt(), f.cost(7).1), (1, 0), "{kind}");
            assert!(f.table.metadata_bytes() > before, "{kind}: what the walk found is counted");
            let context = f.context.clone();
            check(f.table, &kind.to_string());
            let metrics = &context.metrics;
            assert_eq!(metrics.rebuilt_indexes.load(Relaxed), 1, "{kind}");
            assert_eq!(metrics.index_loads.load(Relaxed), 1, "{kind}");
        }
    }
}

#[test]
fn where_a_block_is_damaged_too_the_error_names_file_and_offset() {
    let f = Fixture::new(IndexKind::Exact, Compression::None, 1 << 20);
    f.damage_index();
    let file = f.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
    file.write_all_at(&[0xaa; 8], 100).unwrap();
    for _ in 0..2 {
        let error = f.get(7).expect_err("damaged");
        assert!(error.is_corruption(), "{error:?}");
        assert_eq!(error.path(), Some(table_path(Path::new("/"), 1).as_path()), "{error:?}");
        assert_eq!(error.offset_bytes(), Some(0), "{error:?}");
    }
    // With its index whole, the damaged block is the only one that is lost.
    let f = Fixture::new(IndexKind::Exact, Compression::None, 0);
    let file = f.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
    file.write_all_at(&[0xaa; 8], 100).unwrap();
    let errors = (0..ENTRIES).filter(|number| f.get(*number).is_err()).count();
    assert!(errors > 0 && errors < 100, "{errors} of {ENTRIES}");
}

#[test]
fn a_read_that_fails_while_an_index_is_loaded_is_the_error_of_that_lookup_alone() {
    let f = Fixture::new(IndexKind::Exact, Compression::None, 1 << 20);
    let fail_once = || f.faulty.fail(Fault::at(0).of(&[OperationKind::Read]));
    let counts = fail_once();
    let error = f.get(7).expect_err("the read of the index fails");
    assert_eq!((error.kind(), counts.fired(), f.loads()), (ErrorKind::Io, 1, 1), "{error}");
    assert_eq!(error.path(), Some(table_path(Path::new("/"), 1).as_path()), "{error:?}");
    assert_eq!(f.cost(7), (2, 1), "the next one reads again");
    f.context.cache.remove_index(1);
    fail_once();
    let table = Arc::new(f.table);
    let clipped = Clipped { table: table.clone(), lower: Vec::new(), upper: None };
    let mut cursor = RunCursor::new(vec![clipped], Walk::Cached);
    assert_eq!(cursor.seek(Seek::First).expect_err("a walk").kind(), ErrorKind::Io);
    assert!(cursor.key().is_none());
    cursor.seek(Seek::First).unwrap();
    assert_eq!(cursor.key(), Some(key(0).as_slice()));
    let metrics = &f.context.metrics;
    let trace = (metrics.fallbacks.load(Relaxed), metrics.rebuilt_indexes.load(Relaxed));
    assert_eq!(trace, (0, 0), "a failed read says nothing about the index");
}

/// Of many keys the first whose index cannot be read fails all, after what was asked before it.
#[test]
fn of_many_keys_an_index_that_cannot_be_read_fails_all() {
    let f = Fixture::new(IndexKind::Exact, Compression::None, 0);
    let keys: Vec<_> = (0..5).map(|n| key(n * 100)).collect();
    let sought: Vec<_> = keys.iter().map(|key| Sought::new(key, Caching::Fill)).collect();
    let probes: Vec<_> = sought.iter().map(|sought| Probe { table: &f.table, sought }).collect();
    f.faulty.fail(Fault::at(0).of(&[OperationKind::Read]));
    assert_eq!(get_many(&probes, Caching::Fill).expect_err("a read").kind(), ErrorKind::Io);
    let found = get_many(&probes, Caching::Fill).unwrap();
    assert!(found.iter().all(|found| matches!(found, Lookup::Value(_))));
}

/// One that was walked in vain because a read failed is walked again.
#[test]
fn a_walk_that_fails_is_walked_again() {
    let f = Fixture::new(IndexKind::Exact, Compression::None, 0);
    f.damage_index();
    f.faulty.fail(Fault::at(1).of(&[OperationKind::Read]));
    assert_eq!(f.get(7).expect_err("the walk's read fails").kind(), ErrorKind::Io);
    f.cost(7);
    assert_eq!(f.rebuilt(), 2);
}

#[test]
fn a_lying_index_in_the_cache_costs_time_and_no_answer() {
    for (name, locate) in [
        ("the first block", (|_, _| (0, 0)) as Locate),
        ("the end of numbers", |_, _| (u64::MAX, u64::MAX)),
    ] {
        let f = Fixture::new(IndexKind::Exact, Compression::None, 1 << 20);
        let mut honest = None;
        table(&context(0), IndexKind::Exact, Compression::None).with_index(|index| {
            honest = Some(index);
            Box::new(Fence::default())
        });
        let liar = Liar { honest: honest.unwrap(), locate, extent: |extent, _| extent };
        f.context.cache.insert_index(1, &Arc::new(Held::of(Box::new(liar))));
        let context = f.context.clone();
        check(f.table, name);
        assert!(context.metrics.fallbacks.load(Relaxed) > 0, "{name}");
    }
}

/// What lies where is said as with the index at hand; for a table as a whole without it.
#[test]
fn estimates_load_the_index_only_of_a_table_that_is_cut() {
    let resident = table(&context(0), IndexKind::Exact, Compression::None);
    let f = Fixture::new(IndexKind::Exact, Compression::None, 1 << 20);
    let bytes = |table: &Table, from: &[u8], to: Option<&[u8]>| table.bytes_between(from, to);
    let whole = [(vec![], None), (key(0), Some(key(5000))), (b"z".to_vec(), None)];
    let cut = [(key(100), None), (key(100), Some(key(300))), (vec![], Some(key(900)))];
    for (number, (from, to)) in whole.into_iter().chain(cut).enumerate() {
        let expected = bytes(&resident, &from, to.as_deref());
        assert_eq!(bytes(&f.table, &from, to.as_deref()), expected, "{number}");
        assert_eq!(f.loads() > 0, number >= 3, "{number}");
    }
    // Without the index all of it may be touched.
    f.context.cache.remove_index(1);
    f.faulty.fail(Fault::at(0).of(&[OperationKind::Read]));
    let all = f.record.properties.data_bytes;
    assert_eq!(bytes(&f.table, &key(100), Some(&key(300))), all);
    assert!(bytes(&f.table, &key(100), Some(&key(300))) < all);
}

/// A paged table's blocks are mapped only where there is room for the notes.
#[test]
fn notes_of_mapped_blocks_need_room() {
    let f = Fixture::new(IndexKind::Fence, Compression::None, 0);
    let without = f.table.metadata_bytes() as u64;
    for (room, mapped) in [(without, 0), (without + 200, 39)] {
        let disk: Arc<dyn Disk> = Arc::new(f.disk.clone());
        let context = context_with(disk, 1 << 20, true, room);
        let table = Table::open(&context, f.record.clone()).unwrap();
        assert!(table.is_paged());
        for _ in 0..40 {
            table.get(&Sought::new(&key(14), Caching::Fill)).unwrap();
        }
        let metrics = &context.metrics;
        assert_eq!(metrics.mapped_reads.sum(), mapped);
        assert_eq!(metrics.requests.load(Relaxed), 2, "the index and the block");
        assert!(metrics.metadata_bytes.load(Relaxed) <= room);
    }
}

/// Keys and value lengths of tables whose entries are longer than blocks (of 256 bytes), or badly
/// described.
fn odd_shapes() -> Vec<(&'static str, Vec<Vec<u8>>, usize)> {
    let mix = crate::format::checksum::mix;
    let sorted = |keys: Vec<Vec<u8>>| {
        let set: std::collections::BTreeSet<Vec<u8>> = keys.into_iter().collect();
        set.into_iter().collect::<Vec<_>>()
    };
    let random = |n: u64, most: u64| {
        let bytes = |at: u64| (0..mix(at) % most).map(move |i| mix(at * 99 + i) as u8).collect();
        sorted((0..n).map(bytes).collect())
    };
    let long = |n: u64, differ_at: usize| {
        let mut key = vec![b'k'; 64 << 10];
        key[differ_at..differ_at + 8].copy_from_slice(&mix(n).to_be_bytes());
        key
    };
    vec![
        (
            "numbers, an entry in ten blocks",
            sorted((0..2000).map(|n| mix(n).to_be_bytes().to_vec()).collect()),
            2500,
        ),
        (
            "numbers in order, an entry in ten blocks",
            (0..2000u64).map(|n| n.to_be_bytes().to_vec()).collect(),
            2500,
        ),
        ("random, an entry in ten blocks", random(2000, 40), 2500),
        ("random", random(2000, 40), 0),
        ("short", sorted((0..2000).map(|n| mix(n).to_be_bytes()[..2].to_vec()).collect()), 10),
        ("short, an entry in twenty blocks", random(300, 3), 5000),
        ("the empty key alone", vec![vec![]], 10),
        ("prefixes of one another", (0..300).map(|n| vec![b'a'; n]).collect(), 10),
        ("64 KiB that differ early", sorted((0..40).map(|n| long(n, 1)).collect()), 10),
        ("64 KiB that differ late", sorted((0..40).map(|n| long(n, 65_000)).collect()), 10),
    ]
}

/// A table of single entries of 20 KB was let in where there was room for two thirds of its index.
#[test]
fn an_index_is_kept_only_where_there_is_room_for_what_it_takes() {
    for (shape, keys, value_length) in odd_shapes() {
        for &kind in IndexKind::ALL {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
            let options = TableOptions {
                limits: Limits { block_bytes: 256 },
                index: kind,
                compression: Compression::None,
                filter: None,
                filter_rests: false,
                is_scratch: false,
            };
            let mut writer = TableWriter::create(&disk, Path::new("/"), 1, options).unwrap();
            for key in &keys {
                writer.add(key, Kind::Value, 1, &vec![7; value_length]).unwrap();
            }
            let record = writer.finish().unwrap();
            // What it takes, and how much of that its index is.
            let open = |room| {
                let context = context_with(disk.clone(), 0, false, room);
                let table = Table::open(&context, record.clone()).unwrap();
                let bytes = table.metadata_bytes() as u64;
                assert_eq!(context.metrics.metadata_bytes.load(Relaxed), bytes, "{kind}, {shape}");
                (table.is_paged(), bytes)
            };
            let (resident, without) = (open(u64::MAX), open(0));
            assert!(!resident.0 && without.0, "{kind}, {shape}");
            let takes = resident.1.saturating_sub(without.1);
            for percent in 0..100 {
                let room = takes * percent / 100;
                assert!(
                    open(room).0,
                    "{kind}, {shape}: kept with room for {room} of {takes} bytes"
                );
            }
        }
    }
}
