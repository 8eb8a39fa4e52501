//! A filter for a table that has none, though its keyspace wants one: its file was lost, or none was written while the
//! disk was full.
//!
//! Misses pay for it as for one at rest, and more, since all keys of the table are read for it
//! ([`Table::lacks_filter`]). It is in memory alone, as that of a generation: no edit names it, and after the next open
//! misses pay anew, as they do for filters at rest. What a sweep or a merge writes in the table's place has a file again.

use std::sync::Arc;

use super::read_piece;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::entry::{KeyspaceId, TableId};
use crate::format::manifest::LEVELS;
use crate::sstable::filter::{FilterBuilder, FilterKind};
use crate::sstable::reader::Table;
use crate::view::{KeyspaceView, Partition};

/// The keys of a table being read.
pub(super) struct Attach {
    pub(super) keyspace: KeyspaceId,
    pub(super) table: TableId,
    builder: FilterBuilder,
    /// Where it goes on.
    from: Vec<u8>,
}

/// A table of a keyspace, and which filter one there is to have. None of those that are being settled.
fn find(view: &KeyspaceView, id: TableId) -> Option<(&Arc<Table>, Option<FilterKind>)> {
    let (tables, options) = (&view.tables, &view.options);
    let is_it = |table: &&Arc<Table>| table.id() == id;
    let last = tables.levels().get(LEVELS - 1).into_iter().flatten();
    let mut settled = tables.partitions.iter().flat_map(Partition::tables).chain(last);
    if let Some(table) = settled.find(is_it) {
        return Some((table, options.settled_table().filter));
    }
    let fresh = tables.runs.iter().flatten().find(is_it);
    fresh.map(|table| (table, options.lsm_table().filter))
}

/// Whether a table that has no filter is to have one. If not, misses pay for none any more.
pub(super) fn is_wanted(view: &KeyspaceView, id: TableId) -> bool {
    let Some((table, kind)) = find(view, id) else { return false };
    if kind.is_none() {
        table.do_without_filter();
    }
    kind.is_some()
}

impl Attach {
    /// That of a table of a keyspace, if one is wanted there and has room.
    pub(super) fn begin(engine: &Engine, keyspace: KeyspaceId, id: TableId) -> Option<Attach> {
        let view = engine.keyspace(keyspace).ok()?;
        let (table, kind) = find(&view, id).filter(|(table, _)| table.lacks_filter())?;
        let Some(kind) = kind else {
            table.do_without_filter();
            return None;
        };
        table.pay_anew();
        let bytes = kind.about_bytes(table.properties().entries);
        let has_room = engine.context.has_room_for_filter(bytes);
        let builder = FilterBuilder::new(kind);
        has_room.then(|| Attach { keyspace, table: id, builder, from: Vec::new() })
    }

    /// Reads on; true when it is over.
    pub(super) fn step(&mut self, engine: &Engine) -> Result<bool> {
        let Ok(view) = engine.keyspace(self.keyspace) else { return Ok(true) };
        let Some((table, _)) = find(&view, self.table) else { return Ok(true) };
        let hashes = read_piece(engine, table, &mut self.from)?;
        hashes.into_iter().for_each(|hash| self.builder.add_hash(hash));
        if !self.from.is_empty() {
            return Ok(false);
        }
        table.attach_filter(self.builder.take());
        engine.fit_cache();
        Ok(true)
    }
}
