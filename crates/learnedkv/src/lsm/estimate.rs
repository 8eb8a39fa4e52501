//! How much there is in a keyspace, about, without reading a data block: from the tables'
//! properties, their indexes, and the memtables.

use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::{Ranges, is_before};
use crate::sstable::cursor::Clipped;
use crate::sstable::scale;
use crate::view::KeyspaceView;

use super::read;

/// How many keys there are, about: each value counts one, each tombstone takes one off.
///
/// With B entries in the settled bases, and V values and T tombstones in all that is newer, a key of
/// the newer data adds at most one for each of its values and takes at most one for each of its
/// tombstones: the true number, like the one returned, lies between B - T and B + V. It is off by at
/// most V + T. Where there are levels the last one stands for the bases. Of a table that is cut (by a
/// watermark, or in two by an ingest) the share of its bytes stands for that of its entries; of one that
/// newer ranges cover in part, the share of the blocks that they do not cover whole.
///
/// # Errors
/// Those of walking memtables, which is done where ranges were removed in them.
pub fn len(view: &KeyspaceView, visible: SequenceNumber) -> Result<u64> {
    let (mut values, mut tombstones) = (0, 0);
    if view.memtables().any(|memtable| memtable.has_ranges()) {
        let mut cursor = MergeCursor::new(read::memtable_sources(view, visible).collect());
        cursor.seek(Seek::First)?;
        while cursor.key().is_some() {
            let removed = cursor.kind().0 == Kind::Tombstone;
            values += u64::from(!removed);
            tombstones += u64::from(removed);
            cursor.advance()?;
        }
    } else {
        for memtable in view.memtables() {
            let (versions, removed) = memtable.counts();
            values += versions.saturating_sub(removed);
            tombstones += removed;
        }
    }
    for_each_table(view, visible, |clipped, removed| {
        let properties = clipped.table.properties();
        let bytes = clipped.alive_bytes(&[], None, removed).min(properties.data_bytes);
        let share = |entries: u64| scale(entries, bytes, properties.data_bytes.max(1));
        let removed = share(properties.tombstones);
        values += share(properties.entries).saturating_sub(removed);
        tombstones += removed;
    });
    Ok(values.saturating_sub(tombstones))
}

/// Calls `tell` with each table and the ranges that newer data removes.
fn for_each_table(
    view: &KeyspaceView,
    visible: SequenceNumber,
    mut tell: impl FnMut(&Clipped, &Ranges),
) {
    let memtables = view.memtables().filter(|memtable| memtable.has_ranges());
    let mut removed = Ranges::union(
        memtables.flat_map(|m| m.ranges(visible).iter().cloned().collect::<Vec<_>>()).collect(),
    );
    for clipped in read::tables(view) {
        tell(&clipped, &removed);
        // Tables of one run say nothing of each other's keys: it does not matter that they come in turn.
        if !clipped.table.ranges().is_empty() {
            removed = Ranges::union(removed.iter().cloned().chain(clipped.ranges()).collect());
        }
    }
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
    for_each_table(view, visible, |clipped, removed| {
        let blocks = clipped.alive_bytes(from, to, removed);
        bytes += clipped.table.weight(blocks, |_| true);
    });
    let ranges = view.memtables().any(|memtable| memtable.has_ranges());
    let mut sources = read::memtable_sources(view, visible).peekable();
    while sources.peek().is_some() {
        // One by one, or together if one may cover what is in another.
        let count = if ranges { usize::MAX } else { 1 };
        let mut cursor = MergeCursor::new(sources.by_ref().take(count).collect());
        cursor.seek(Seek::AtOrAfter(from))?;
        while let Some(key) = cursor.key().filter(|key| is_before(key, to)) {
            bytes += key.len() as u64 + read::size_at(&cursor)?;
            cursor.advance()?;
        }
    }
    Ok(bytes)
}
