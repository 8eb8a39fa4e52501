//! Blocks that are read where the system holds them. The simulated disk says of every fourth look that
//! the block is not in its cache.

use super::*;
use crate::format::checksum::mix;

/// Compressed blocks are decompressed from there, each time where there is no cache.
const BOTH: [Compression; 2] = [Compression::None, Compression::Lz4];
/// More lookups of one block than go by before somebody looks whether it is there.
const LOOKS: u64 = 65;

struct Fixture {
    context: Arc<TableContext>,
    table: Table,
}

impl Fixture {
    fn new(compression: Compression) -> Fixture {
        Fixture::caching(0, compression)
    }

    fn caching(cache_bytes: u64, compression: Compression) -> Fixture {
        let context = context_on(Arc::new(SimDisk::new(1)), cache_bytes, true);
        let table = table(&context, IndexKind::Exact, compression);
        Fixture { context, table }
    }

    fn get(&self, number: u64) -> crate::error::Result<Lookup> {
        self.table.get(&Sought::new(&key(number * 2), Caching::Fill))
    }

    /// Looks an entry up so many times; how many requests that took, and how many mapped reads.
    fn cost(&self, number: u64, times: u64) -> (u64, u64) {
        let metrics = &self.context.metrics;
        let count = || (metrics.requests.load(Relaxed), metrics.mapped_reads.sum());
        let before = count();
        for _ in 0..times {
            match self.get(number).unwrap() {
                Lookup::Value(value) => assert_eq!(*value, [number as u8; 20]),
                other => panic!("{number}: {other:?}"),
            }
        }
        (count().0 - before.0, count().1 - before.1)
    }

    fn lost(&self) -> u64 {
        self.context.metrics.lost_mappings.load(Relaxed)
    }
}

#[test]
fn a_block_is_read_once_and_then_where_it_lies() {
    for compression in BOTH {
        let f = Fixture::new(compression);
        assert_eq!(f.cost(7, 1), (1, 0), "{compression}");
        assert_eq!(f.cost(7, 40), (0, 40), "{compression}");
        assert_eq!(f.cost(ENTRIES - 1, 1), (1, 0), "another block");
        assert_eq!((f.context.cache.used_bytes(), f.lost()), (0, 0));
        assert!(f.table.metadata_bytes() > 0);
    }
}

/// It is kept as it came, also where it was not read: to decompress costs more than to look it up.
#[test]
fn a_compressed_block_is_decompressed_once_where_there_is_a_cache() {
    for is_new in [true, false] {
        let f = Fixture::caching(1 << 20, Compression::Lz4);
        if is_new {
            f.table.note_all();
        }
        assert_eq!(f.cost(7, 1), if is_new { (0, 1) } else { (1, 0) });
        assert_eq!((f.cost(7, 40), f.context.metrics.cache_hits.sum()), ((0, 0), 40), "{is_new}");
        // Who is to leave no trace leaves none.
        let last = key((ENTRIES - 1) * 2);
        let sought = Sought::new(&last, Caching::Leave);
        f.table.get(&sought).unwrap();
        get_many(&[Probe { table: &f.table, sought: &sought }], Caching::Leave).unwrap();
        assert_eq!(f.cost(ENTRIES - 1, 1), if is_new { (0, 1) } else { (1, 0) });
    }
}

/// Without this a call over a compressed table that the system holds had one round, however many keys: what it decompresses was not
/// counted, or as it is stored.
#[test]
fn what_a_call_for_many_keys_decompresses_counts() {
    for compression in BOTH {
        let f = Fixture::new(compression);
        let keys: Vec<_> = (0..ENTRIES).map(|number| key(number * 2)).collect();
        let sought: Vec<_> = keys.iter().map(|key| Sought::new(key, Caching::Leave)).collect();
        let probes: Vec<_> =
            sought.iter().map(|sought| Probe { table: &f.table, sought }).collect();
        let all = f.table.properties().unpacked_bytes;
        for is_noted in [false, true] {
            if is_noted {
                f.table.note_all();
            }
            let bytes = first_round_bytes(&probes, Caching::Leave);
            // A block that lies raw in the map takes no memory; one look in some says that a block is not there.
            let is_lent = is_noted && compression == Compression::None;
            let is_right = if is_lent { bytes < all / 4 } else { bytes > all * 9 / 10 };
            assert!(is_right, "{compression}, noted {is_noted}: {bytes} of {all}");
        }
    }
}

/// Of a compressed table a block that did not become shorter is stored as it is, and lent like any other.
#[test]
fn what_was_not_worth_compressing_is_lent() {
    let context = context_on(Arc::new(SimDisk::new(1)), 1 << 20, true);
    // The first half is noise.
    let value = |number: u64| match number < ENTRIES / 2 {
        true => (0..64).map(|byte| mix(number * 64 + byte) as u8).collect(),
        false => vec![7; 64],
    };
    let table = table_of(&context, 1, IndexKind::Exact, Compression::Lz4, value);
    let f = Fixture { table, context };
    f.table.note_all();
    // A block has seven or so; more lookups, and one would be told that nothing is there.
    for number in (0..ENTRIES).step_by(5) {
        assert!(matches!(f.get(number).unwrap(), Lookup::Value(found) if *found == *value(number)));
    }
    let blocks = f.table.block_count();
    let cached: Vec<_> = (0..blocks).filter(|&at| f.context.cache.peek(1, at).is_some()).collect();
    let first = *cached.first().unwrap();
    assert!(first > blocks / 3 && first < blocks * 2 / 3, "{first} of {blocks}");
    assert!(cached == (first..blocks).collect::<Vec<_>>(), "{cached:?} of {blocks}");
    assert_eq!(f.context.metrics.requests.load(Relaxed), 0);
}

/// What is not in the system's cache is not to be looked for there: it is in ours.
#[test]
fn what_is_read_around_the_cache_of_the_system_is_kept_in_ours() {
    let context = context_on(Arc::new(SimDisk::new(1)), 1 << 20, true);
    let f = Fixture { table: table(&context, IndexKind::Exact, Compression::None), context };
    assert_eq!(f.cost(7, 1), (1, 0));
    (0..100).for_each(|_| f.context.lost_mapping());
    let metrics = &f.context.metrics;
    let seen = || (metrics.around_requests.load(Relaxed), metrics.cache_hits.sum());
    assert_eq!((f.cost(ENTRIES - 1, 1), seen()), ((1, 0), (1, 0)));
    assert_eq!((f.cost(ENTRIES - 1, 5), seen()), ((0, 0), (1, 5)));
    assert_eq!(f.cost(7, 5), (0, 5), "what was noted before is read where it lies");
}

#[test]
fn blocks_of_reads_that_leave_no_trace_are_not_mapped() {
    for compression in BOTH {
        let f = Fixture::new(compression);
        for _ in 0..3 {
            f.table.get(&Sought::new(&key(14), Caching::Leave)).unwrap();
        }
        assert_eq!(f.cost(7, 2), (1, 1), "{compression}");
    }
}

/// Rot between the writing and the first read is seen by the first read, as if it had been read by a call.
#[test]
fn damage_before_the_first_read_of_a_table_just_written_is_found_by_it() {
    for compression in BOTH {
        let f = Fixture::new(compression);
        let file = f.context.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
        file.write_all_at(&[0xaa; 8], 100).unwrap();
        f.table.note_all();
        let errors = (0..ENTRIES).filter(|number| f.get(*number).is_err()).count();
        assert!(errors > 0 && errors < 100, "{errors} of {ENTRIES}");
    }
}

/// Who wrote a table checks it, so that its readers need not; what is damaged by then is found all the same.
#[test]
fn a_table_just_written_is_checked_but_for_what_is_damaged() {
    let f = Fixture::new(Compression::None);
    f.table.note_all();
    assert_eq!(f.table.checked_blocks(), 0);
    f.table.check_written();
    assert_eq!(f.table.checked_blocks(), f.table.block_count());
    let f = Fixture::new(Compression::None);
    let file = f.context.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
    file.write_all_at(&[0xaa; 8], 100).unwrap();
    f.table.note_all();
    f.table.check_written();
    assert_eq!(f.table.checked_blocks(), f.table.block_count() - 1);
    assert!((0..ENTRIES).any(|number| f.get(number).is_err()));
}

/// What is copied into other tables is not taken from where its checksum was computed some time ago.
#[test]
fn merges_copy_nothing_that_is_lent() {
    for compression in BOTH {
        let f = Fixture::new(compression);
        f.table.note_all();
        let (table, metrics) = (Arc::new(f.table), &f.context.metrics);
        let clipped = Clipped { table: table.clone(), lower: Vec::new(), upper: None };
        let mut cursor = RunCursor::new(vec![clipped], Walk::Bulk);
        cursor.seek(Seek::AtOrAfter(&key(300))).unwrap();
        while cursor.key().is_some() {
            cursor.advance().unwrap();
        }
        assert_eq!(metrics.mapped_reads.sum(), 0);
        assert!(metrics.requests.load(Relaxed) > 0);
    }
}

#[test]
fn a_table_just_written_is_read_where_it_lies_from_the_first_read_on() {
    for compression in BOTH {
        let f = Fixture::new(compression);
        f.table.note_all();
        assert_eq!(f.cost(7, 5), (0, 5), "{compression}");
    }
}

#[test]
fn a_block_that_is_gone_is_read_and_nothing_is_mapped_for_twice_as_long_each_time() {
    for compression in BOTH {
        let f = Fixture::new(compression);
        let mut rests = Vec::new();
        for _ in 0..8 {
            while f.cost(7, 1).0 == 0 {}
            let mut rest = 1;
            while f.cost(7, 1).0 == 1 {
                rest += 1;
            }
            rests.push(rest);
        }
        assert_eq!(f.lost(), 7, "the first read was of a block nobody had read");
        let (first, later) = rests.split_first().unwrap();
        assert_eq!(*first, 1, "the first read notes the block");
        assert!(later[0] > 200, "{later:?}");
        // Three looks that find it there take less back than one that does not adds.
        assert!(later.windows(2).all(|two| two[1] > two[0] * 3 / 2), "{later:?}");
    }
}

/// The map keeps what was there when it was made; what is on the disk now is another thing.
#[test]
fn damage_that_comes_later_is_found_when_somebody_looks() {
    for compression in BOTH {
        let f = Fixture::new(compression);
        assert_eq!(f.cost(7, 2), (1, 1));
        let file = f.context.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
        let length = f.table.properties().data_bytes as usize;
        file.write_all_at(&vec![0xaa; length], 0).unwrap();
        let error = (0..LOOKS).find_map(|_| f.get(7).err()).expect("somebody looked");
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(f.lost(), 1);
    }
}

/// Of so many tables only a few are mapped; the others are read. One that goes makes room for another.
#[test]
fn no_more_tables_are_mapped_than_may_be() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let maps = Maps::new(3);
    let own = own_context(disk, 0, true, u64::MAX);
    let context = Arc::new(TableContext { maps: Some(maps.clone()), ..own });
    let one = |id| numbered_table(&context, id, IndexKind::Exact, Compression::None);
    let mut tables: Vec<_> = (1..=10).map(one).collect();
    tables.iter().for_each(Table::note_all);
    assert_eq!(maps.count(), 1, "most are left to what is read");
    let read = |table: &Table| {
        let before = context.metrics.mapped_reads.sum();
        // The first read is noted, the second may be served; the rest are for a look that finds nothing.
        for _ in 0..3 {
            match table.get(&Sought::new(&key(14), Caching::Fill)).unwrap() {
                Lookup::Value(value) => assert_eq!(*value, [7; 20]),
                other => panic!("{other:?}"),
            }
        }
        context.metrics.mapped_reads.sum() > before
    };
    let mapped: Vec<_> = tables.iter().map(read).collect();
    assert_eq!((maps.count(), mapped.iter().filter(|mapped| **mapped).count()), (3, 3));
    let gone = mapped.iter().position(|mapped| *mapped).unwrap();
    drop(tables.remove(gone));
    assert_eq!(maps.count(), 2);
    tables.iter().for_each(|table| _ = read(table));
    assert_eq!(maps.count(), 3, "one that could not be mapped before is now");
    drop(tables);
    assert_eq!(maps.count(), 0);
}

/// Threads have counts of their own of what is lent to them: those are known to take memory, and what is lent stays whoever
/// goes first.
#[test]
fn what_threads_lend_from_is_counted_and_what_is_lent_outlives_all() {
    let f = Fixture::new(Compression::None);
    assert_eq!(f.cost(7, 2), (1, 1));
    let of_one = f.table.metadata_bytes();
    let together = std::sync::Barrier::new(4);
    let lent: Vec<Lookup> = std::thread::scope(|scope| {
        let read = || {
            together.wait();
            // The first may find that it is not there, and have to read it.
            (0..3).for_each(|_| assert!(matches!(f.get(7), Ok(Lookup::Value(_)))));
            together.wait();
            f.get(7).unwrap()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(f.table.metadata_bytes() > of_one);
    let counted = f.context.metrics.metadata_bytes.load(Relaxed);
    assert_eq!(counted, f.table.metadata_bytes() as u64);
    let Fixture { context, table } = f;
    drop(table);
    assert_eq!(context.metrics.metadata_bytes.load(Relaxed), 0);
    for lookup in lent {
        assert!(matches!(lookup, Lookup::Value(value) if *value == [7; 20]));
    }
}
