//! Walks that say where they end.

use super::*;

/// So many tables, whose keys are these each: with gaps in between.
const TABLES: u64 = 3;
const KEYS: std::ops::Range<u64> = 300..600;

/// The tables of a run, in a directory of their own.
fn tables(context: &Arc<TableContext>) -> Vec<Arc<Table>> {
    let table = |at: u64| {
        let options = options(IndexKind::Exact, Compression::None);
        let id = at + 1;
        let mut writer = TableWriter::create(&context.disk, Path::new("/"), id, options).unwrap();
        for number in KEYS {
            let key = key(at * 1000 + number);
            writer.add(&key, Kind::Value, number, &[7; VALUE_BYTES as usize]).unwrap();
        }
        Arc::new(Table::open(context, writer.finish().unwrap()).unwrap())
    };
    (0..TABLES).map(table).collect()
}

fn cursor(tables: &[Arc<Table>], until: Bound<Arc<[u8]>>) -> RunCursor {
    let clip =
        |table: &Arc<Table>| Clipped { table: table.clone(), lower: Vec::new(), upper: None };
    let wanted = Wanted { entries: 1, until };
    RunCursor::new(tables.iter().map(clip).collect(), Walk::Cached).expecting(wanted)
}

/// Whether `number`'s key lies within a bound that a walk ends at.
fn is_within(number: u64, until: &Bound<u64>, upwards: bool) -> bool {
    match until {
        Bound::Unbounded => true,
        Bound::Included(until) => number == *until || (number < *until) == upwards,
        Bound::Excluded(until) => number != *until && (number < *until) == upwards,
    }
}

/// From and to wherever, upwards and downwards, with the bound and without: all that is wanted is found.
#[test]
fn a_bounded_walk_gives_all_that_lies_within() {
    let context = context(4 << 20);
    let tables = tables(&context);
    let all = || (0..TABLES).flat_map(|at| KEYS.map(move |number| at * 1000 + number));
    let places: Vec<u64> = (0..TABLES)
        .flat_map(|at| {
            [0, 299, 300, 301, 302, 303, 304, 305, 306, 307, 450, 598, 599, 600, 700]
                .map(|number| at * 1000 + number)
        })
        .collect();
    let bound = |of: &Bound<u64>| of.as_ref().map(|number| Arc::from(key(*number)));
    for &from in &places {
        for until in places.iter().flat_map(|to| [Bound::Included(*to), Bound::Excluded(*to)]) {
            for upwards in [true, false] {
                let mut expected: Vec<u64> = all()
                    .filter(|n| if upwards { *n >= from } else { *n < from })
                    .filter(|n| is_within(*n, &until, upwards))
                    .collect();
                if !upwards {
                    expected.reverse();
                }
                let place = key(from);
                let mut cursor = cursor(&tables, bound(&until));
                cursor
                    .seek(if upwards { Seek::AtOrAfter(&place) } else { Seek::Before(&place) })
                    .unwrap();
                let mut found = Vec::new();
                while let Some(key) = cursor.key() {
                    found.push(key.to_vec());
                    cursor.advance().unwrap();
                }
                // A few behind the bound may come, of the block that it lies in.
                assert!(found.len() < expected.len() + 16, "{from} {until:?}: {}", found.len());
                found.truncate(expected.len());
                let expected: Vec<_> = expected.into_iter().map(key).collect();
                assert_eq!(found, expected, "{from} {until:?} {upwards}");
            }
        }
    }
}

/// Each run's first block was read, wherever the run begins: a walk of few keys read one of every run behind its end, and
/// failed where that was damaged.
#[test]
fn a_bounded_walk_reads_nothing_of_tables_beyond() {
    let context = context(0);
    let tables = tables(&context);
    let cost = |from: Seek<'_>, until: Bound<u64>| {
        let before = asked(&context).0;
        let mut cursor = cursor(&tables, until.map(|number| Arc::from(key(number))));
        cursor.seek(from).unwrap();
        while cursor.key().is_some() {
            cursor.advance().unwrap();
        }
        asked(&context).0 - before
    };
    let (up, down) = (key(700), key(1000));
    assert_eq!(cost(Seek::AtOrAfter(&up), Bound::Excluded(1300)), 0);
    assert_eq!(cost(Seek::AtOrAfter(&up), Bound::Included(1299)), 0);
    assert_eq!(cost(Seek::AtOrAfter(&up), Bound::Included(1300)), 1);
    assert_eq!(cost(Seek::Before(&down), Bound::Excluded(599)), 0);
    assert_eq!(cost(Seek::Before(&down), Bound::Included(600)), 0);
    assert_eq!(cost(Seek::Before(&down), Bound::Included(599)), 1);
    // The last key of a block: what comes next stands in the next.
    let lengths: Vec<u64> =
        (400..420).map(|to| cost(Seek::AtOrAfter(&key(400)), Bound::Included(to))).collect();
    let steps = lengths.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(lengths[0] == 1 && steps >= 1, "{lengths:?}");
    let blocks = |to: u64| {
        let table = &tables[0];
        let index = table.borrow(Caching::Leave).unwrap();
        let of = |number| table.with(&index).find_block(&key(number), Caching::Leave).unwrap().0;
        of(to) - of(400) + 1
    };
    for (to, requests) in (400..420).zip(lengths) {
        assert!(requests <= blocks(to), "to {to}: {requests} requests, {} blocks", blocks(to));
    }
}
