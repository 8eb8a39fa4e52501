//! How much there is in a keyspace, about, without reading a data block: from the tables'
//! properties, their indexes, and the memtables.

use crate::cursor::{Cursor, Seek};
use crate::error::Result;
use crate::format::entry::SequenceNumber;
use crate::sstable::cursor::Clipped;
use crate::view::KeyspaceView;

use super::read;

/// How many keys there are, about: each value counts one, each tombstone takes one off.
///
/// With B entries in the settled bases, and V values and T tombstones in all that is newer, a key of
/// the newer data adds at most one for each of its values and takes at most one for each of its
/// tombstones: the true number, like the one returned, lies between B - T and B + V. It is off by at
/// most V + T. Where there are levels the last one stands for the bases. Of a table that is cut (by a watermark, or in two by an ingest) the share of its bytes
/// stands for that of its entries.
pub fn len(view: &KeyspaceView) -> u64 {
    let (mut values, mut tombstones) = (0, 0);
    for memtable in view.memtables() {
        let (versions, removed) = memtable.counts();
        values += versions.saturating_sub(removed);
        tombstones += removed;
    }
    for clipped in read::tables(view) {
        let properties = clipped.table.properties();
        let bytes = clipped.table.bytes_between(&clipped.lower, clipped.upper.as_deref());
        let share = |entries: u64| -> u64 {
            let part = u128::from(entries) * u128::from(bytes.min(properties.data_bytes));
            part.checked_div(u128::from(properties.data_bytes)).unwrap_or(0) as u64
        };
        let removed = share(properties.tombstones);
        values += share(properties.entries).saturating_sub(removed);
        tombstones += removed;
    }
    values.saturating_sub(tombstones)
}

/// How many bytes the keys `from <= key < to` take, about: the blocks of tables that may hold them and
/// the separated values these point at, and the keys and values of memtables.
///
/// # Errors
/// `Corruption` if a memtable holds a pointer that is none.
pub fn bytes_between(
    view: &KeyspaceView,
    visible: SequenceNumber,
    from: &[u8],
    to: Option<&[u8]>,
) -> Result<u64> {
    let mut bytes = 0;
    for Clipped { table, lower, upper } in read::tables(view) {
        let from = from.max(lower.as_slice());
        let to = match (to, upper.as_deref()) {
            (Some(to), Some(upper)) => Some(to.min(upper)),
            (to, upper) => to.or(upper),
        };
        if to.is_none_or(|to| from < to) {
            bytes += table.weight_between(from, to, |_| true);
        }
    }
    for memtable in view.memtables() {
        let mut cursor = memtable.cursor(visible);
        cursor.seek(Seek::AtOrAfter(from))?;
        while let Some(key) = cursor.key().filter(|key| to.is_none_or(|to| *key < to)) {
            bytes += key.len() as u64 + read::size_at(&cursor)?;
            cursor.advance()?;
        }
    }
    Ok(bytes)
}
