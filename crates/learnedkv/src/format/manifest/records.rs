//! What the changes of a manifest say of tables, their filters and partitions, and lists of these.
//!
//! ```text
//! table     := id varint | tag u64 | file length varint | properties | filter
//! filter    := 0: none; or 1, or 2: one at rest; then id varint | file length varint
//! partition := lower slice | 0, or 1 and its base table | 0, or 1 and its delta table
//! list      := count varint | item*
//! ```
//! The table 3 of 256 bytes, tagged 9, whose properties say nothing but the key `a` twice, with filter
//! 3 of 77 bytes at rest:
//!
//! ```text
//!  0  03 09 00 00 00 00 00 00
//!  8  00 80 02 00 00 00 00 00
//! 16  00 00 00 00 00 00 01 61
//! 24  01 61 00 02 03 4d
//! ```

use std::sync::Arc;

use super::super::bytes::{Reader, put_slice, put_u64, put_varint};
use super::super::entry::TableId;
use super::super::table::Properties;
use crate::error::{Error, Result};

/// What the manifest says of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRecord {
    /// Its number, which names the file.
    pub id: TableId,
    /// The random tag in its footer.
    pub tag: u64,
    /// The file's length.
    pub file_bytes: u64,
    /// What the table says of itself: its keys may be long, and the state and the View share them.
    pub properties: Arc<Properties>,
    /// Its filter, if it has one.
    pub filter: Option<FilterRecord>,
}

/// What the manifest says of a table's filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterRecord {
    /// Its number, which names the file.
    pub id: u64,
    /// The file's length.
    pub file_bytes: u64,
    /// Whether it stays in its file until misses have paid for its place in memory.
    pub rests: bool,
}

/// How a filter is recorded that is in memory with its table, and one at rest.
const FILTER: u8 = 1;
const RESTING_FILTER: u8 = 2;

/// A part of the settled run: all keys from `lower` up to the next partition's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRecord {
    /// Its first possible key. Entries of its tables below that are cut off.
    pub lower: Vec<u8>,
    /// The settled data.
    pub base: Option<TableRecord>,
    /// A smaller, newer table over it.
    pub delta: Option<TableRecord>,
}

pub(super) fn put_table(out: &mut Vec<u8>, table: &TableRecord) {
    put_varint(out, table.id);
    put_u64(out, table.tag);
    put_varint(out, table.file_bytes);
    table.properties.encode(out);
    put_filter(out, table.filter);
}

fn put_filter(out: &mut Vec<u8>, filter: Option<FilterRecord>) {
    let Some(FilterRecord { id, file_bytes, rests }) = filter else { return out.push(0) };
    out.push(if rests { RESTING_FILTER } else { FILTER });
    put_varint(out, id);
    put_varint(out, file_bytes);
}

fn take_filter(reader: &mut Reader<'_>) -> Result<Option<FilterRecord>> {
    let rests = match reader.u8()? {
        0 => return Ok(None),
        FILTER => false,
        RESTING_FILTER => true,
        other => return Err(Error::corruption(format!("expected 0, 1 or 2, found {other}"))),
    };
    Ok(Some(FilterRecord { id: reader.varint()?, file_bytes: reader.varint()?, rests }))
}

fn take_optional<'a, T>(
    reader: &mut Reader<'a>,
    take: impl FnOnce(&mut Reader<'a>) -> Result<T>,
) -> Result<Option<T>> {
    match reader.u8()? {
        0 => Ok(None),
        1 => take(reader).map(Some),
        other => Err(Error::corruption(format!("expected 0 or 1, found {other}"))),
    }
}

pub(super) fn take_table(reader: &mut Reader<'_>) -> Result<TableRecord> {
    Ok(TableRecord {
        id: reader.varint()?,
        tag: reader.u64()?,
        file_bytes: reader.varint()?,
        properties: Arc::new(Properties::decode(reader)?),
        filter: take_filter(reader)?,
    })
}

pub(super) fn put_partition(out: &mut Vec<u8>, partition: &PartitionRecord) {
    put_slice(out, &partition.lower);
    for table in [&partition.base, &partition.delta] {
        out.push(u8::from(table.is_some()));
        if let Some(table) = table {
            put_table(out, table);
        }
    }
}

pub(super) fn take_partition(reader: &mut Reader<'_>) -> Result<PartitionRecord> {
    let lower = reader.slice()?.to_vec();
    let mut optional = || take_optional(reader, take_table);
    Ok(PartitionRecord { lower, base: optional()?, delta: optional()? })
}

pub(super) fn put_list<T>(out: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_varint(out, list.len() as u64);
    for item in list {
        put(out, item);
    }
}

pub(super) fn take_list<'a, T>(
    reader: &mut Reader<'a>,
    take: impl Fn(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = reader.length()?;
    // No allocation from an untrusted count: each item takes at least a byte, or the reader ends.
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(take(reader)?);
    }
    Ok(list)
}

pub(super) fn take_text(reader: &mut Reader<'_>) -> Result<String> {
    String::from_utf8(reader.slice()?.to_vec())
        .map_err(|e| Error::corruption(format!("expected a name in UTF-8: {e}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_module_page() {
        let (smallest, largest) = (b"a".to_vec(), b"a".to_vec());
        let properties = Properties { smallest, largest, ..Properties::default() }.into();
        let filter = Some(FilterRecord { id: 3, file_bytes: 77, rests: true });
        let table = TableRecord { id: 3, tag: 9, file_bytes: 256, properties, filter };
        let mut bytes = Vec::new();
        put_table(&mut bytes, &table);
        for (number, row) in bytes.chunks(8).enumerate() {
            let hex: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            let line = format!("//! {:>2}  {}\n", number * 8, hex.join(" "));
            print!("{line}");
            assert!(include_str!("records.rs").contains(&line), "the page lacks {line:?}");
        }
        let mut reader = Reader::new(&bytes);
        assert_eq!(take_table(&mut reader).unwrap(), table);
        assert!(reader.is_empty());
        bytes[26] = 3;
        assert!(take_table(&mut Reader::new(&bytes)).unwrap_err().is_corruption());
    }
}
