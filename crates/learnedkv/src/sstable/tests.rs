//! Indexes that lie: valid bytes, wrong answers. A table built on one answers right and counts it.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use super::cursor::{Clipped, RunCursor, Walk, Wanted};
use super::index::{Index, IndexKind};
use super::partition::Limits;
use super::reader::many::{Probe, first_round_bytes, get_many};
use super::reader::{Caching, Table, TableContext};
use super::sought::Sought;
use super::writer::{TableOptions, TableWriter};
use super::{Graveyard, ReadMetrics, table_path};
use crate::cache::BlockCache;
use crate::cursor::{Cursor, Seek};
use crate::disk::faulty::{Fault, FaultyDisk};
use crate::disk::sim::SimDisk;
use crate::disk::{Access, Around, Disk, Maps, OpenFiles, OperationKind};
use crate::error::ErrorKind;
use crate::format::compression::{Codecs, Compression};
use crate::format::entry::{Kind, TableId};
use crate::format::range::{KeyRange, Ranges};
use crate::slice::Lookup;
use crate::sstable::filter::FilterKind;

mod bounded;
mod check;
mod expected;
mod generation;
mod mapped;
mod over;
mod paged;

const ENTRIES: u64 = 500;
const BLOCK_BYTES: usize = 512;

/// An index whose answers are distorted.
#[derive(Debug)]
struct Liar {
    honest: Box<dyn Index>,
    locate: fn((u64, u64), u64) -> (u64, u64),
    extent: fn((u64, u64), u64) -> (u64, u64),
}

impl Index for Liar {
    fn block_count(&self) -> u64 {
        self.honest.block_count()
    }

    fn locate(&self, key: &[u8]) -> (u64, u64) {
        (self.locate)(self.honest.locate(key), self.block_count())
    }

    fn extent(&self, block: u64) -> (u64, u64) {
        if block >= self.block_count() {
            return (u64::MAX, 0);
        }
        (self.extent)(self.honest.extent(block), block)
    }

    fn size_bytes(&self) -> usize {
        self.honest.size_bytes()
    }
}

/// Blocks that were read serve again from the cache alone, so that reads can be counted.
fn context(cache_bytes: u64) -> Arc<TableContext> {
    context_on(Arc::new(SimDisk::new(1)), cache_bytes, false)
}

fn context_on(disk: Arc<dyn Disk>, cache_bytes: u64, maps: bool) -> Arc<TableContext> {
    context_with(disk, cache_bytes, maps, u64::MAX)
}

fn context_with(
    disk: Arc<dyn Disk>,
    cache_bytes: u64,
    maps: bool,
    max_metadata_bytes: u64,
) -> Arc<TableContext> {
    Arc::new(own_context(disk, cache_bytes, maps, max_metadata_bytes))
}

fn own_context(
    disk: Arc<dyn Disk>,
    cache_bytes: u64,
    maps: bool,
    max_metadata_bytes: u64,
) -> TableContext {
    TableContext {
        files: OpenFiles::new(disk.clone(), 2),
        disk,
        dir: PathBuf::from("/"),
        access: Access::Random,
        maps: maps.then(Maps::of_process),
        cache: BlockCache::new(cache_bytes),
        max_metadata_bytes,
        max_filtered_bytes: max_metadata_bytes,
        codecs: Codecs::default(),
        metrics: ReadMetrics::default(),
        around: Around::default(),
        graveyard: Graveyard::new(|| {}),
        missed: Default::default(),
        salvages: false,
    }
}

/// Only even keys are there.
fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn table(context: &Arc<TableContext>, index: IndexKind, compression: Compression) -> Table {
    numbered_table(context, 1, index, compression)
}

fn numbered_table(
    context: &Arc<TableContext>,
    id: TableId,
    index: IndexKind,
    compression: Compression,
) -> Table {
    table_of(context, id, index, compression, |number| vec![number as u8; 20])
}

fn table_of(
    context: &Arc<TableContext>,
    id: TableId,
    index: IndexKind,
    compression: Compression,
    value: impl Fn(u64) -> Vec<u8>,
) -> Table {
    let options = TableOptions {
        limits: Limits { block_bytes: BLOCK_BYTES },
        index,
        compression,
        filter: None,
        filter_rests: false,
        is_scratch: false,
    };
    let mut writer = TableWriter::create(&context.disk, Path::new("/"), id, options).unwrap();
    for number in 0..ENTRIES {
        writer.add(&key(number * 2), Kind::Value, number, &value(number)).unwrap();
    }
    Table::open(context, writer.finish().unwrap()).unwrap()
}

/// Reads everything in every way.
fn check(table: Table, name: &str) {
    for number in 0..ENTRIES * 2 {
        let found = table.get(&Sought::new(&key(number), Caching::Fill));
        let found = found.unwrap_or_else(|e| panic!("{name}, {number}: {e:?}"));
        match found {
            Lookup::Value(value) if number % 2 == 0 => {
                assert_eq!(&*value, [(number / 2) as u8; 20], "{name}, {number}");
            }
            Lookup::Absent if number % 2 == 1 => {}
            other => panic!("{name}, {number}: {other:?}"),
        }
    }
    check_many(&table, name);
    let table = Arc::new(table);
    let walks = [Walk::Cached, Walk::Uncached, Walk::Bulk];
    for (walk, wanted) in walks.iter().flat_map(|&walk| [(walk, 1), (walk, 40)]) {
        for (seek, expected) in [
            (Seek::First, (0..ENTRIES).map(|n| key(n * 2)).collect::<Vec<_>>()),
            (Seek::AtOrAfter(&key(301)), (151..ENTRIES).map(|n| key(n * 2)).collect()),
            (Seek::Last, (0..ENTRIES).rev().map(|n| key(n * 2)).collect()),
            (Seek::Before(&key(301)), (0..151).rev().map(|n| key(n * 2)).collect()),
        ] {
            let clipped = Clipped { table: table.clone(), lower: Vec::new(), upper: None };
            let mut cursor = RunCursor::new(vec![clipped], walk)
                .expecting(Wanted { entries: wanted, until: Bound::Unbounded });
            let mut found = Vec::new();
            cursor.seek(seek).unwrap_or_else(|e| panic!("{name}, {seek:?}: {e:?}"));
            while let Some(key) = cursor.key() {
                found.push(key.to_vec());
                cursor.advance().unwrap_or_else(|e| panic!("{name}, {seek:?}: {e:?}"));
            }
            assert_eq!(found, expected, "{name}, {seek:?}");
        }
    }
}

/// Many keys at once: all of them in order, all against it, few far apart, one, none.
fn check_many(table: &Table, name: &str) {
    let numbers = || (0..ENTRIES * 2 + 10).map(|n| n.saturating_sub(5));
    let lists: [Vec<u64>; 5] = [
        numbers().collect(),
        numbers().rev().collect(),
        numbers().map(|n| n * 37 % (ENTRIES * 2)).take(40).collect(),
        vec![ENTRIES],
        vec![],
    ];
    for numbers in lists {
        let keys: Vec<_> = numbers.iter().map(|&n| key(n)).collect();
        let sought: Vec<_> = keys.iter().map(|key| Sought::new(key, Caching::Fill)).collect();
        let probes: Vec<_> = sought.iter().map(|sought| Probe { table, sought }).collect();
        let found = get_many(&probes, Caching::Fill).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert_eq!(found.len(), numbers.len());
        for (number, found) in numbers.into_iter().zip(found) {
            match found {
                Lookup::Value(value) if number % 2 == 0 => {
                    assert_eq!(&*value, [(number / 2) as u8; 20], "{name}, {number}, of many");
                }
                Lookup::Absent if number % 2 == 1 || number >= ENTRIES * 2 => {}
                other => panic!("{name}, {number}, of many: {other:?}"),
            }
        }
    }
}

/// How long values are where much is read.
const VALUE_BYTES: u64 = 1000;

/// Blocks as they are by default, and no filter.
fn options(index: IndexKind, compression: Compression) -> TableOptions {
    let limits = Limits { block_bytes: 4096 };
    TableOptions {
        limits,
        index,
        compression,
        filter: None,
        filter_rests: false,
        is_scratch: false,
    }
}

/// A filter may say that a key is no entry, and yet it is in a range that the table removes from older ones: they came back.
#[test]
fn what_a_table_removes_is_removed_though_its_place_is_lost() {
    let context = context(1 << 20);
    let filter = Some(FilterKind::BlockedBloom { bits_per_key: 10 });
    let options =
        TableOptions { filter, filter_rests: true, ..options(IndexKind::Exact, Compression::None) };
    let mut writer = TableWriter::create(&context.disk, Path::new("/"), 1, options).unwrap();
    for number in 0..300 {
        writer.add(&key(number * 2), Kind::Value, number, &[7; 20]).unwrap();
    }
    let range = KeyRange { start: key(101), end: Some(key(200)) };
    writer.set_ranges(Ranges::union(vec![range]), 0);
    let record = writer.finish().unwrap();
    let path = table_path(Path::new("/"), 1);
    let file = context.disk.open(&path, Access::Random).unwrap();
    let mut byte = [0];
    for at in (20..record.properties.data_bytes).step_by(200) {
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
    let table = Table::open(&context, record).unwrap();
    let get = |number| table.get(&Sought::new(&key(number), Caching::Fill));
    assert!(get(100).is_err(), "it may be there");
    assert!(table.filter_bytes().is_some(), "it was asked");
    let says = |odd: &[u64], answer: Lookup| {
        odd.iter().filter(|n| get(**n).is_ok_and(|found| found == answer)).count()
    };
    let odd: Vec<u64> = (0..300).map(|n| n * 2 + 1).collect();
    let (within, beside) = odd.iter().partition::<Vec<u64>, _>(|n| (101..200).contains(*n));
    assert!(says(&within, Lookup::Removed) >= 45 && says(&beside, Lookup::Absent) >= 240);
    assert_eq!((says(&within, Lookup::Absent), says(&beside, Lookup::Removed)), (0, 0));
}

/// A table of 3000 such entries.
fn long_table(context: &Arc<TableContext>) -> Table {
    let options = options(IndexKind::Exact, Compression::None);
    let mut writer = TableWriter::create(&context.disk, Path::new("/"), 1, options).unwrap();
    for number in 0..3000 {
        writer.add(&key(number), Kind::Value, number, &[7; VALUE_BYTES as usize]).unwrap();
    }
    Table::open(context, writer.finish().unwrap()).unwrap()
}

/// Requests to the disk, and bytes they asked for.
fn asked(context: &TableContext) -> (u64, u64) {
    (context.metrics.requests.load(Relaxed), context.metrics.bytes.load(Relaxed))
}

/// Of an index that named all blocks each get read the whole table.
#[test]
fn no_lookup_reads_more_at_once_than_it_may_whatever_its_index_names() {
    let context = context(0);
    let (locate, extent): (Locate, Extent) = (|_, count| (0, count - 1), |extent, _| extent);
    let lying = |honest| -> Box<dyn Index> { Box::new(Liar { honest, locate, extent }) };
    let table = long_table(&context).with_index(lying);
    let numbers = (0..3000).step_by(97).chain([2999]);
    for (looked_up, number) in (1..).zip(numbers) {
        let before = asked(&context);
        let key = key(number);
        let sought = Sought::new(&key, Caching::Fill);
        let found = match looked_up % 2 {
            0 => table.get(&sought).unwrap(),
            _ => get_many(&[Probe { table: &table, sought: &sought }], Caching::Fill)
                .unwrap()
                .remove(0),
        };
        assert!(matches!(found, Lookup::Value(_)), "{number}");
        let (requests, bytes) = (asked(&context).0 - before.0, asked(&context).1 - before.1);
        // Halved: of 1000 blocks ten are looked at.
        assert!(requests <= 10 && bytes <= requests * 4096, "{requests} requests, {bytes} bytes");
        assert_eq!(context.metrics.wide_bounds.load(Relaxed), looked_up);
    }
    assert_eq!(context.metrics.fallbacks.load(Relaxed), 0);
}

/// Long walks take few requests, and short ones do not pay for it.
#[test]
fn walks_read_ahead_more_the_longer_they_go() {
    let context = context(0);
    let table = Arc::new(long_table(&context));
    let counts = || asked(&context);
    for seek in [Seek::AtOrAfter(&key(700)), Seek::Before(&key(2300))] {
        // Entries walked, and the most requests they may take.
        for (entries, most_requests) in [(1, 1), (5, 2), (17, 3), (50, 4), (100, 5), (2000, 14)] {
            let clipped = Clipped { table: table.clone(), lower: Vec::new(), upper: None };
            let mut cursor = RunCursor::new(vec![clipped], Walk::Cached);
            let before = counts();
            cursor.seek(seek).unwrap();
            for _ in 1..entries {
                cursor.advance().unwrap();
            }
            assert!(cursor.key().is_some());
            let (requests, bytes) = (counts().0 - before.0, counts().1 - before.1);
            assert!(requests <= most_requests, "{seek:?} {entries}: {requests} requests");
            let most_bytes = 2 * entries * VALUE_BYTES + (24 << 10);
            assert!(bytes <= most_bytes, "{seek:?} {entries}: {bytes} bytes");
        }
    }
}

/// Looks up the keys of these numbers together; what it cost in requests.
fn cost_of_many(context: &TableContext, tables: &[&Table], numbers: &[u64]) -> u64 {
    let before = context.metrics.requests.load(Relaxed);
    let keys: Vec<_> = numbers.iter().map(|&n| key(n * 2)).collect();
    let sought = keys
        .iter()
        .flat_map(|key| tables.iter().map(move |&table| (table, Sought::new(key, Caching::Fill))));
    let sought: Vec<_> = sought.collect();
    let probes: Vec<_> =
        sought.iter().map(|&(table, ref sought)| Probe { table, sought }).collect();
    let found = get_many(&probes, Caching::Fill).unwrap();
    assert!(found.iter().all(|found| matches!(found, Lookup::Value(_))));
    context.metrics.requests.load(Relaxed) - before
}

#[test]
fn many_keys_read_each_block_once_and_neighbours_together() {
    let in_block = |table: &Table, number: u64| table.index_names(&key(number * 2));
    for cache_bytes in [0, 1 << 20] {
        let context = context(cache_bytes);
        let table = table(&context, IndexKind::Exact, Compression::None);
        let first_of = |block| (0..ENTRIES).find(|&n| in_block(&table, n) == block).unwrap();
        let [a, b, c, d] = [3, 10, 11, 12].map(first_of);
        assert_eq!(cost_of_many(&context, &[&table], &[a]), 1);
        let kept = cache_bytes > 0;
        let cost = cost_of_many(&context, &[&table], &[a]);
        assert_eq!(cost, u64::from(!kept), "the cache is asked and filled");
        // The same key, keys of one block, and blocks side by side.
        let cost = cost_of_many(&context, &[&table], &[a, b, b, b + 1, c, d]);
        assert_eq!(cost, if kept { 1 } else { 2 });
        let cost = cost_of_many(&context, &[&table], &(0..ENTRIES).collect::<Vec<_>>());
        assert!(cost <= 3 && cost > 0, "all blocks but three are a few pieces: {cost}");
    }
}

#[test]
fn of_many_keys_one_that_cannot_be_read_fails_all_and_leaves_no_trace() {
    let context = context(1 << 20);
    let honest = table(&context, IndexKind::Exact, Compression::None);
    let faulty = FaultyDisk::new(context.disk.clone());
    let over_faulty = context_on(Arc::new(faulty.clone()), 1 << 20, false);
    let table = Table::open(&over_faulty, honest.record()).unwrap();
    let keys: Vec<_> = (0..ENTRIES).step_by(50).map(|n| key(n * 2)).collect();
    let sought: Vec<_> = keys.iter().map(|key| Sought::new(key, Caching::Fill)).collect();
    let probes: Vec<_> = sought.iter().map(|sought| Probe { table: &table, sought }).collect();
    for failing in 0..probes.len() as u64 {
        over_faulty.cache.set_capacity_bytes(0);
        over_faulty.cache.set_capacity_bytes(1 << 20);
        let counts = faulty.fail(Fault::at(failing).of(&[OperationKind::Read]));
        let error = get_many(&probes, Caching::Fill).expect_err("a read failed");
        assert_eq!((error.kind(), counts.fired()), (ErrorKind::Io, 1), "{failing}: {error}");
        assert_eq!(counts.matched(), probes.len() as u64, "nothing is tried again");
        faulty.clear_faults();
        let found = get_many(&probes, Caching::Fill).unwrap();
        assert!(found.iter().all(|found| matches!(found, Lookup::Value(_))));
    }
    assert_eq!(over_faulty.metrics.fallbacks.load(Relaxed), 0, "a failed read is no lie");
}

/// It went on with the next table, as if the rest of that which failed had never been.
#[test]
fn a_walk_is_past_its_end_for_good_after_a_read_failed() {
    let context = context(0);
    let honest = table(&context, IndexKind::Exact, Compression::None);
    let faulty = FaultyDisk::new(context.disk.clone());
    let over_faulty = context_on(Arc::new(faulty.clone()), 0, false);
    let table = Arc::new(Table::open(&over_faulty, honest.record()).unwrap());
    let middle = key(ENTRIES);
    let below = Clipped { table: table.clone(), lower: Vec::new(), upper: Some(middle.clone()) };
    let above = Clipped { table, lower: middle, upper: None };
    for to in [Seek::First, Seek::Last] {
        let mut failed = 0;
        for failing in 0.. {
            let mut cursor = RunCursor::new(vec![below.clone(), above.clone()], Walk::Cached);
            // One alone would be tried once more, by a block.
            let fault = Fault::at(failing).from_then_on().of(&[OperationKind::Read]);
            let counts = faulty.fail(fault);
            let mut moved = cursor.seek(to);
            while moved.is_ok() && cursor.key().is_some() {
                moved = cursor.advance();
            }
            faulty.clear_faults();
            if counts.fired() == 0 {
                break;
            }
            moved.expect_err("a read failed");
            failed += 1;
            for _ in 0..3 {
                assert!(cursor.key().is_none(), "read {failing} failed");
                cursor.advance().unwrap();
            }
        }
        assert!(failed >= 2, "{failed} walks failed");
    }
}

type Locate = fn((u64, u64), u64) -> (u64, u64);
type Extent = fn((u64, u64), u64) -> (u64, u64);

#[test]
fn a_lying_index_costs_time_and_no_answer() {
    let places: &[(&str, Locate)] = &[
        ("the first block", |_, _| (0, 0)),
        ("the last block", |_, count| (count - 1, count - 1)),
        ("far behind", |(_, last), _| (last + 9, last + 9)),
        ("far before", |(first, _), _| (first.saturating_sub(9), first.saturating_sub(9))),
        ("beyond the end", |_, count| (count, count + 5)),
        ("the end of numbers", |_, _| (u64::MAX, u64::MAX)),
        ("up to the end of numbers", |(first, _), _| (first, u64::MAX)),
        ("the wrong way round", |(first, last), _| (last + 1, first)),
    ];
    let extents: &[(&str, Extent)] = &[
        ("64 bytes late", |(start, end), _| (start + 64, end + 64)),
        ("too long", |(start, end), _| (start, end + 64)),
        ("too short", |(start, end), _| (start, end - 64)),
        ("empty", |(start, _), _| (start, start)),
        ("one block wrong", |(start, end), block| if block == 7 { (0, end) } else { (start, end) }),
        ("beyond the file", |(start, end), _| (start + (1 << 40), end + (1 << 40))),
    ];
    let honest_place: Locate = |place, _| place;
    let honest_extent: Extent = |extent, _| extent;
    let lies = places.iter().map(|(name, lie)| (*name, *lie, honest_extent));
    let lies = lies.chain(extents.iter().map(|(name, lie)| (*name, honest_place, *lie)));
    for (name, locate, extent) in lies {
        let both = |&kind| [(0, kind), (1 << 20, kind)];
        let kinds = IndexKind::ALL.iter().flat_map(both);
        for (number, (cache_bytes, kind)) in kinds.enumerate() {
            let maps = cache_bytes == 0;
            let context = context_on(Arc::new(SimDisk::new(1)), cache_bytes, maps);
            // Each kind with each compression, over all lies.
            let compression = Compression::ALL[(number + name.len()) % Compression::ALL.len()];
            let honest = table(&context, kind, compression);
            let lying = honest.with_index(|honest| Box::new(Liar { honest, locate, extent }));
            check(lying, name);
            // A neighbour of the named blocks is looked at first: that is no fallback.
            let near = name.starts_with("one too");
            let fallbacks = context.metrics.fallbacks.load(Relaxed);
            assert!(near || fallbacks > 0, "{name}, {kind}: it was never noticed");
        }
    }
}

#[test]
fn an_honest_index_never_falls_back() {
    for (&kind, &compression) in
        IndexKind::ALL.iter().flat_map(|kind| Compression::ALL.iter().map(move |how| (kind, how)))
    {
        let context = context_on(Arc::new(SimDisk::new(1)), 1 << 20, true);
        let table = table(&context, kind, compression);
        let properties = table.properties();
        let (stored, raw) = (properties.data_bytes, properties.unpacked_bytes);
        match compression {
            Compression::None => assert_eq!(stored, raw, "{kind}"),
            _ => assert!(stored < raw * 2 / 3, "{kind}, {compression}: {stored} of {raw}"),
        }
        check(table, &format!("{kind}, {compression}"));
        assert_eq!(context.metrics.fallbacks.load(Relaxed), 0, "{kind:?}");
        assert!(context.disk.open(&table_path(Path::new("/"), 1), Access::Random).is_ok());
    }
}

/// Blocks are cut by what they take uncompressed, so that every compression gives the same ones.
#[test]
fn compression_changes_where_blocks_end_and_not_what_is_in_them() {
    let of = |kind, compression| {
        let context = context(0);
        let table = table(&context, kind, compression);
        let loan = table.borrow(Caching::Fill).unwrap();
        let block = |ordinal| table.with(&loan).block(ordinal, Caching::Fill).unwrap();
        let blocks = (0..table.block_count()).map(block);
        blocks.map(|block| block.bytes()[24..].to_vec()).collect::<Vec<_>>()
    };
    for &kind in IndexKind::ALL {
        let raw = of(kind, Compression::None);
        assert!(raw.len() > 20 && raw.iter().all(|block| block.len() <= BLOCK_BYTES), "{kind}");
        for &compression in Compression::ALL {
            assert!(raw == of(kind, compression), "{kind}, {compression}");
        }
    }
}

/// A table of compressed blocks whose index section is damaged is walked without decompressing.
#[test]
fn compressed_tables_are_walked_by_their_separators() {
    for &compression in Compression::ALL {
        let context = context(0);
        let record = table(&context, IndexKind::Exact, compression).record().clone();
        let file = context.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
        // The index is the first section.
        file.write_all_at(&[0xff; 4], record.properties.data_bytes).unwrap();
        let reopened = Table::open(&context, record).unwrap();
        assert_eq!(context.metrics.rebuilt_indexes.load(Relaxed), 1, "{compression}");
        check(reopened, &compression.to_string());
    }
}

/// Who buries as a file comes found it open, and who looked whether anything was left to bury did not know of it.
#[test]
fn a_retired_table_counts_until_its_file_is_closed_and_can_be_removed() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let context = Arc::new_cyclic(|context: &Weak<TableContext>| {
        let context = context.clone();
        let tell = move || {
            let context = context.upgrade().unwrap();
            let retired = context.metrics.retired_bytes.load(Relaxed);
            let maps = context.maps.as_ref().unwrap().count();
            sink.lock().unwrap().push((retired, context.files.count(), maps));
        };
        let own = own_context(Arc::new(SimDisk::new(1)), 0, true, u64::MAX);
        TableContext { maps: Some(Maps::new(9)), graveyard: Graveyard::new(tell), ..own }
    });
    let table = table(&context, IndexKind::Exact, Compression::None);
    table.note_all();
    let (maps, bytes) = (context.maps.as_ref().unwrap(), table.file_bytes());
    assert_eq!((context.files.count(), maps.count()), (1, 1));
    table.retire(None, 0);
    drop(table);
    assert_eq!(*seen.lock().unwrap(), [(bytes, 0, 0)]);
    assert_eq!(context.metrics.retired_bytes.load(Relaxed), 0);
}
