//! Reading a keyspace as one View shows it.

use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::slice::{Lookup, Slice};
use crate::sstable::cursor::{Clipped, RunCursor, Walk};
use crate::sstable::reader::Table;
use crate::view::{KeyspaceView, Partition, Run, Tables};

/// The value of `key`, from the newest data that holds it.
///
/// # Errors
/// `Corruption` if a block that must hold it is damaged; any error of the disk.
pub fn get(view: &KeyspaceView, key: &[u8], visible: SequenceNumber) -> Result<Option<Slice>> {
    let memtables = std::iter::once(&view.active).chain(view.sealed.iter().map(|s| &s.memtable));
    for memtable in memtables {
        match memtable.get(key, visible) {
            Lookup::Absent => {}
            found => return Ok(value(found)),
        }
    }
    match get_from_tables(&view.tables, key)? {
        Lookup::Absent => Ok(None),
        found => Ok(value(found)),
    }
}

fn value(lookup: Lookup) -> Option<Slice> {
    match lookup {
        Lookup::Value(value) => Some(value),
        Lookup::Removed | Lookup::Absent => None,
    }
}

fn get_from_tables(tables: &Tables, key: &[u8]) -> Result<Lookup> {
    let frozen =
        tables.frozen.iter().filter(|f| key >= f.watermark.as_slice()).flat_map(|f| &f.runs);
    for run in tables.runs.iter().chain(frozen) {
        match get_from_run(run, key)? {
            Lookup::Absent => {}
            found => return Ok(found),
        }
    }
    let Some(partition) = tables.partitions.get(tables.partition(key)) else {
        return Ok(Lookup::Absent);
    };
    for table in partition.delta.iter().chain(&partition.base) {
        match table.get(key)? {
            Lookup::Absent => {}
            found => return Ok(found),
        }
    }
    Ok(Lookup::Absent)
}

fn get_from_run(run: &Run, key: &[u8]) -> Result<Lookup> {
    let index = run.partition_point(|table| table.properties().largest.as_slice() < key);
    run.get(index).map_or(Ok(Lookup::Absent), |table| table.get(key))
}

/// Walks all of a keyspace: for each key the newest entry, tombstones included.
pub fn cursor(view: &KeyspaceView, visible: SequenceNumber) -> MergeCursor {
    let mut sources: Vec<Box<dyn Cursor>> = vec![Box::new(view.active.cursor(visible))];
    for sealed in &view.sealed {
        sources.push(Box::new(sealed.memtable.cursor(visible)));
    }
    let tables = &view.tables;
    for run in &tables.runs {
        sources.push(run_cursor(run, &[], None, Walk::Cached));
    }
    if let Some(frozen) = &tables.frozen {
        for run in &frozen.runs {
            sources.push(run_cursor(run, &frozen.watermark, None, Walk::Cached));
        }
    }
    for choose in [delta, base] {
        let clipped = settled(tables, choose);
        if !clipped.is_empty() {
            sources.push(Box::new(RunCursor::new(clipped, Walk::Cached)));
        }
    }
    MergeCursor::new(sources)
}

/// The keys of a run in `lower <= key < upper`.
pub fn run_cursor(run: &Run, lower: &[u8], upper: Option<&[u8]>, walk: Walk) -> Box<dyn Cursor> {
    let clipped = run.iter().map(|table| clip(table, lower, upper)).collect();
    Box::new(RunCursor::new(clipped, walk))
}

/// A table of which only the keys in `lower <= key < upper` count.
pub fn clip(table: &std::sync::Arc<Table>, lower: &[u8], upper: Option<&[u8]>) -> Clipped {
    Clipped { table: table.clone(), lower: lower.to_vec(), upper: upper.map(<[u8]>::to_vec) }
}

fn delta(partition: &Partition) -> Option<&std::sync::Arc<Table>> {
    partition.delta.as_ref()
}

fn base(partition: &Partition) -> Option<&std::sync::Arc<Table>> {
    partition.base.as_ref()
}

fn settled(
    tables: &Tables,
    choose: fn(&Partition) -> Option<&std::sync::Arc<Table>>,
) -> Vec<Clipped> {
    let partitions = tables.partitions.iter().enumerate();
    partitions.filter_map(|(i, p)| Some(clip(choose(p)?, &p.lower, tables.upper(i)))).collect()
}

/// Moves a cursor past tombstones.
///
/// # Errors
/// Those of the cursor.
pub fn skip_removed(cursor: &mut dyn Cursor) -> Result<()> {
    while cursor.key().is_some() && cursor.kind().0 != Kind::Value {
        cursor.advance()?;
    }
    Ok(())
}

/// Whether a keyspace shows any entry, tombstones included, in `first..=last`.
///
/// # Errors
/// Those of the cursor.
pub fn has_entries(
    view: &KeyspaceView,
    visible: SequenceNumber,
    first: &[u8],
    last: &[u8],
) -> Result<bool> {
    let mut cursor = cursor(view, visible);
    cursor.seek(Seek::AtOrAfter(first))?;
    Ok(cursor.key().is_some_and(|key| key <= last))
}
