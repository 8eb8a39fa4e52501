//! Walks of which so many entries are expected to be wanted.

use super::*;

/// A cursor over all of a table, of which so many will be wanted.
fn cursor(table: &Arc<Table>, walk: Walk, expected: usize) -> RunCursor {
    let clipped = Clipped { table: table.clone(), lower: Vec::new(), upper: None };
    RunCursor::new(vec![clipped], walk)
        .expecting(Wanted { entries: expected, until: Bound::Unbounded })
}

/// The same, which says that it will not go beyond a key.
fn bounded(table: &Arc<Table>, expected: usize, until: &[u8]) -> RunCursor {
    let clipped = Clipped { table: table.clone(), lower: Vec::new(), upper: None };
    let wanted = Wanted { entries: expected, until: Bound::Included(until.into()) };
    RunCursor::new(vec![clipped], Walk::Cached).expecting(wanted)
}

/// Walks so many entries from a place on; what that cost in requests and bytes.
fn cost(
    context: &TableContext,
    cursor: &mut RunCursor,
    seek: Seek<'_>,
    entries: u64,
) -> (u64, u64) {
    let before = asked(context);
    cursor.seek(seek).unwrap();
    for at in 1..entries {
        assert!(cursor.key().is_some(), "{seek:?}: the end before entry {at}");
        cursor.advance().unwrap();
    }
    assert!(cursor.key().is_some());
    (asked(context).0 - before.0, asked(context).1 - before.1)
}

/// Upwards and downwards, from the middle of a block and from its first and its last entry.
#[test]
fn what_is_expected_to_be_wanted_is_read_at_once() {
    let context = context(0);
    let table = Arc::new(long_table(&context));
    for from in 700..706 {
        for seek in [Seek::AtOrAfter(&key(from)), Seek::Before(&key(from))] {
            for entries in [2, 10, 50] {
                let mut cursor = cursor(&table, Walk::Cached, entries as usize);
                let (requests, bytes) = cost(&context, &mut cursor, seek, entries);
                assert_eq!(requests, 1, "{seek:?}, {entries}");
                // Both ends may stand in a block's middle.
                assert!(bytes <= entries * (VALUE_BYTES + 400) + (10 << 10), "{entries}: {bytes}");
            }
            // A longer walk takes one more, a walk that nobody expects reads no more than it did.
            let mut longer = cursor(&table, Walk::Cached, 50);
            let (requests, bytes) = cost(&context, &mut longer, seek, 90);
            assert!(requests == 2 && bytes < 150 << 10, "{requests} requests, {bytes} bytes");
            let mut one = cursor(&table, Walk::Cached, 1);
            let (requests, bytes) = cost(&context, &mut one, seek, 1);
            let most = if matches!(seek, Seek::AtOrAfter(_)) { (1, 4096) } else { (2, 20 << 10) };
            assert!(requests <= most.0 && bytes <= most.1, "{requests} requests, {bytes} bytes");
        }
    }
}

/// A walk read up to 256 KiB behind the end of its range, at its beginning and where it read ahead.
#[test]
fn nothing_is_read_behind_where_a_walk_says_that_it_ends() {
    let context = context(0);
    let table = Arc::new(long_table(&context));
    for entries in [3, 20, 150] {
        for expected in [1, 200] {
            for (seek, until) in [
                (Seek::AtOrAfter(&key(700)), key(700 + entries)),
                (Seek::Before(&key(700)), key(700 - entries)),
            ] {
                let mut cursor = bounded(&table, expected, &until);
                let (_, bytes) = cost(&context, &mut cursor, seek, entries);
                // A block at each end may be read for a part of it, and the block of the bound.
                let most = entries * (VALUE_BYTES + 100) + 3 * 4096;
                assert!(bytes <= most, "{seek:?}, {entries}, {expected}: {bytes} of {most}");
            }
        }
    }
}

/// However far walks go, no more is read at first than a lookup may read, and then as ever.
#[test]
fn no_more_is_read_at_once_than_may_be() {
    let context = context(0);
    let table = Arc::new(long_table(&context));
    for seek in [Seek::AtOrAfter(&key(700)), Seek::Before(&key(700))] {
        let mut cursor = cursor(&table, Walk::Cached, 5000);
        let (requests, bytes) = cost(&context, &mut cursor, seek, 1);
        assert!(requests == 1 && (48 << 10..=64 << 10).contains(&bytes), "{requests}, {bytes}");
    }
    // Once: a cursor that is sought again, as where much was removed, is that of a lookup.
    let mut cursor = cursor(&table, Walk::Cached, 50);
    cost(&context, &mut cursor, Seek::AtOrAfter(&key(700)), 1);
    let (requests, bytes) = cost(&context, &mut cursor, Seek::AtOrAfter(&key(1700)), 1);
    assert!(requests == 1 && bytes <= 4096, "{requests}, {bytes}");
}

/// Most blocks are short, but those that come next are not.
#[test]
fn long_values_among_short_ones_are_not_read_by_the_dozen() {
    let context = context(0);
    let options = options(IndexKind::Exact, Compression::None);
    let mut writer = TableWriter::create(&context.disk, Path::new("/"), 1, options).unwrap();
    for number in 0..3000 {
        let length = if (1000..1030).contains(&number) { 100_000 } else { 1000 };
        writer.add(&key(number), Kind::Value, number, &vec![7; length]).unwrap();
    }
    let table = Arc::new(Table::open(&context, writer.finish().unwrap()).unwrap());
    let mut cursor = cursor(&table, Walk::Cached, 30);
    let (_, bytes) = cost(&context, &mut cursor, Seek::AtOrAfter(&key(1000)), 1);
    assert!(bytes < 110_000, "{bytes}");
}

/// Of an index that lies, with nothing at hand and nothing walked before: the same entries all the same.
#[test]
fn walks_that_expect_much_are_right_whatever_the_index_names() {
    let lies: [(Locate, Extent); 5] = [
        (|named, _| named, |extent, _| extent),
        (|(first, _), count| ((first + 3) % count, (first + 3) % count), |extent, _| extent),
        (|_, count| (count - 1, count - 1), |extent, _| extent),
        (|_, count| (count + 7, count + 7), |extent, _| extent),
        (|named, _| named, |(start, end), block| (start + block % 3 * 64, end)),
    ];
    for ((number, (locate, extent)), kind) in lies
        .into_iter()
        .enumerate()
        .flat_map(|lie| IndexKind::ALL.iter().map(move |kind| (lie, *kind)))
    {
        for from in [0, 1, 301, 998] {
            let (place, downwards) = (key(from), from % 2 == 0);
            let context = context(0);
            let honest = super::table(&context, kind, Compression::None);
            let lying = honest.with_index(|honest| Box::new(Liar { honest, locate, extent }));
            let table = Arc::new(lying);
            let until = key(400);
            let is_bounded = from == 1 || from == 998;
            let is_wanted = |key: &Vec<u8>| {
                !is_bounded || if downwards { *key >= until } else { *key <= until }
            };
            let mut cursor = match is_bounded {
                true => bounded(&table, 60, &until),
                false => cursor(&table, Walk::Cached, 60),
            };
            let (seek, mut expected): (_, Vec<_>) = match downwards {
                true => (Seek::Before(&place), (0..from / 2).rev().map(|n| key(n * 2)).collect()),
                false => {
                    let all = from.div_ceil(2)..ENTRIES;
                    (Seek::AtOrAfter(&place), all.map(|n| key(n * 2)).collect())
                }
            };
            expected.retain(is_wanted);
            let mut found = Vec::new();
            cursor.seek(seek).unwrap();
            while let Some(key) = cursor.key() {
                found.push(key.to_vec());
                cursor.advance().unwrap();
            }
            // Beyond its bound it may go on, or not.
            found.retain(is_wanted);
            assert_eq!(found, expected, "{kind}, lie {number}, {seek:?}");
        }
    }
}

/// What was read so is kept for others, unless they asked for it not to be.
#[test]
fn what_was_read_ahead_of_a_walk_is_kept() {
    for (walk, again) in [(Walk::Cached, 0), (Walk::Uncached, 1)] {
        let context = context(1 << 20);
        let table = Arc::new(long_table(&context));
        let seek = Seek::AtOrAfter(&key(1000));
        assert_eq!(cost(&context, &mut cursor(&table, walk, 50), seek, 50).0, 1);
        let same = cost(&context, &mut cursor(&table, walk, 50), seek, 50).0;
        assert_eq!(same, again, "{walk:?}");
    }
}

/// A block that is damaged stops who comes to it, and nobody else; so it is where it was read together with others.
#[test]
fn damage_beyond_where_a_walk_ends_does_not_stop_it() {
    let context = context(0);
    let table = Arc::new(long_table(&context));
    let file = context.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
    file.write_all_at(&[0xaa; 8], 1020 * table.properties().data_bytes / 3000).unwrap();
    let is_damaged = |number: &u64| {
        let key = key(*number);
        table.get(&Sought::new(&key, Caching::Leave)).is_err()
    };
    let damaged: Vec<u64> = (900..1100).filter(is_damaged).collect();
    let (first, last) = (damaged[0], damaged[damaged.len() - 1]);
    assert!(damaged.len() < 5 && first > 1001 && last < 1038, "{damaged:?}");
    let ways =
        [(Seek::AtOrAfter(&key(1000)), first - 1000), (Seek::Before(&key(1040)), 1039 - last)];
    for (seek, sound) in ways {
        let mut cursor = cursor(&table, Walk::Cached, 60);
        cost(&context, &mut cursor, seek, sound);
        let error = cursor.advance().unwrap_err();
        assert!(error.is_corruption() && cursor.key().is_none(), "{seek:?}: {error:?}");
    }
}

/// Blocks of what holds no values are small, where an index pays little for them and they are not compressed; and a walk
/// begins with a page of them all the same.
#[test]
fn blocks_of_what_holds_no_values_are_small_where_that_costs_little() {
    let entries = |kind, index, compression| {
        let context = context(0);
        let options = options(index, compression);
        let mut writer = TableWriter::create(&context.disk, Path::new("/"), 1, options).unwrap();
        for number in 0..3000 {
            writer.add(&key(number), kind, number, &[7; 12]).unwrap();
        }
        let table = Arc::new(Table::open(&context, writer.finish().unwrap()).unwrap());
        for seek in [Seek::AtOrAfter(&key(700)), Seek::Before(&key(700))] {
            let mut walk = cursor(&table, Walk::Cached, 1);
            let (requests, bytes) = cost(&context, &mut walk, seek, 15);
            assert!(requests <= 2 && bytes <= 24 << 10, "{kind:?}, {index}: {requests}, {bytes}");
        }
        let mut walk = cursor(&table, Walk::Cached, 1);
        let (requests, bytes) = cost(&context, &mut walk, Seek::AtOrAfter(&key(700)), 10);
        assert!(requests == 1 && bytes <= 2 * 4096, "{kind:?}, {index}: {requests}, {bytes}");
        3000 / table.block_count()
    };
    let none = Compression::None;
    for kind in [Kind::Pointer, Kind::Tombstone] {
        assert!((15..=20).contains(&entries(kind, IndexKind::Exact, none)));
        assert!(entries(kind, IndexKind::Fence, none) > 100);
        assert!(entries(kind, IndexKind::Exact, Compression::Lz4) > 100);
    }
    assert!(entries(Kind::Value, IndexKind::Exact, none) > 100);
}

/// Blocks are small on the whole, but those that come next hold values: no more than a page or two is read for one entry.
#[test]
fn values_among_what_holds_none_are_not_read_by_the_page() {
    let context = context(0);
    let options = options(IndexKind::Exact, Compression::None);
    let mut writer = TableWriter::create(&context.disk, Path::new("/"), 1, options).unwrap();
    for number in 0..9000 {
        let is_value = (4000..4100).contains(&number);
        let (kind, length) = if is_value { (Kind::Value, 3000) } else { (Kind::Tombstone, 0) };
        writer.add(&key(number), kind, number, &vec![7; length]).unwrap();
    }
    let table = Arc::new(Table::open(&context, writer.finish().unwrap()).unwrap());
    for number in 4001..4080 {
        let mut walk = cursor(&table, Walk::Cached, 1);
        let (requests, bytes) = cost(&context, &mut walk, Seek::AtOrAfter(&key(number)), 1);
        assert!(requests == 1 && bytes <= 2 * 4096, "{requests}, {bytes}");
    }
}
