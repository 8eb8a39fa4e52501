//! Looking many keys up at once: level by level, newest first, and at each level the keys that no
//! newer one answered, by one request to the disk.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
use crate::format::entry::SequenceNumber;
use crate::format::value::ValuePointer;
use crate::slice::{Lookup, Slice};
use crate::sstable::reader::many::{self, Probe};
use crate::sstable::reader::{Caching, Table};
use crate::sstable::sought::Sought;
use crate::view::{KeyspaceView, Run, Tables};

use super::read;

/// The values of `keys`, which may come in any order and more than once, in that order.
///
/// # Errors
/// As [`read::get`], of one of the keys; then there are no answers.
pub fn get(
    engine: &Engine,
    view: &KeyspaceView,
    keys: &[impl AsRef<[u8]>],
    visible: SequenceNumber,
    caching: Caching,
) -> Result<Vec<Option<Slice>>> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_unstable_by_key(|&i| keys[i].as_ref());
    // Each key once, in key order: neighbours share blocks.
    let mut sought: Vec<(Sought<'_>, Lookup)> = Vec::with_capacity(keys.len());
    let mut place = vec![0; keys.len()];
    for i in order {
        let key = keys[i].as_ref();
        if sought.last().is_none_or(|(last, _)| last.key() != key) {
            sought.push((Sought::new(key, caching), Lookup::Absent));
        }
        place[i] = sought.len() - 1;
    }
    for (sought, found) in &mut sought {
        *found = read::find_in_memtables(view, sought.hashed(), visible);
    }
    let looked_up = find_in_tables(&view.tables, &mut sought, caching);
    for (sought, _) in &sought {
        read::account(engine, sought);
    }
    looked_up?;
    load(view, &mut sought)?;
    let value = |i: usize| match &sought[i].1 {
        Lookup::Value(value) => Some(value.clone()),
        Lookup::Pointer(_) | Lookup::Removed | Lookup::Absent => None,
    };
    Ok(place.into_iter().map(value).collect())
}

/// Looks up, level by level, the keys of which nothing was found yet.
fn find_in_tables(
    tables: &Tables,
    sought: &mut [(Sought<'_>, Lookup)],
    caching: Caching,
) -> Result<()> {
    for level in levels(tables) {
        let open = sought.iter_mut().filter(|(_, found)| *found == Lookup::Absent);
        let (probes, open): (Vec<_>, Vec<_>) = open
            .filter_map(|(sought, found)| {
                Some((Probe { table: level.table(sought.key())?, sought }, found))
            })
            .unzip();
        for (found, looked_up) in open.into_iter().zip(many::get_many(&probes, caching)?) {
            *found = looked_up;
        }
    }
    Ok(())
}

/// Puts the values that are kept apart in the place of their pointers.
fn load(view: &KeyspaceView, sought: &mut [(Sought<'_>, Lookup)]) -> Result<()> {
    let mut wanted = Vec::new();
    let mut places = Vec::new();
    for (sought, found) in sought {
        if let Lookup::Pointer(pointer) = found {
            wanted.push((sought.key(), ValuePointer::decode(pointer)?));
            places.push(found);
        }
    }
    let values = read::load_all(view, &wanted)?;
    for (found, value) in places.into_iter().zip(values) {
        *found = Lookup::Value(value);
    }
    Ok(())
}

/// Tables that do not overlap.
enum Level<'a> {
    /// A run, of which only keys from here on count.
    Run(&'a Run, &'a [u8]),
    Deltas(&'a Tables),
    Bases(&'a Tables),
}

impl<'a> Level<'a> {
    /// The table that may hold `key`.
    fn table(&self, key: &[u8]) -> Option<&'a Table> {
        let partition = |tables: &'a Tables| tables.partitions.get(tables.partition(key));
        let table = match self {
            Level::Run(_, from) if key < *from => None,
            Level::Run(run, _) => read::table_of(run, key),
            Level::Deltas(tables) => partition(tables)?.delta.as_ref(),
            Level::Bases(tables) => partition(tables)?.base.as_ref(),
        };
        table.map(Arc::as_ref)
    }
}

/// Newest first.
fn levels(tables: &Tables) -> impl Iterator<Item = Level<'_>> {
    let runs = tables.runs.iter().map(|run| Level::Run(run, &[]));
    let frozen = tables
        .frozen
        .iter()
        .flat_map(|frozen| frozen.runs.iter().map(|run| Level::Run(run, &frozen.watermark)));
    runs.chain(frozen).chain([Level::Deltas(tables), Level::Bases(tables)])
}
