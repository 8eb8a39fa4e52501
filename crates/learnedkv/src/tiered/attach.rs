//! Filters that come later: a settled table, or one of the last level, whose misses have paid for a filter
//! gets one.
//!
//! The table is walked past the cache, a piece at a time; the filter is written and synced, then one
//! edit names it, then lookups ask it. A crash before the edit leaves an orphan. Whatever fails, the
//! table is as it was: it is counted, and misses have to pay once more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cursor::{Cursor, Seek};
use crate::engine::{Engine, Opened};
use crate::error::Result;
use crate::format::entry::KeyspaceId;
use crate::format::manifest::{Change, FilterRecord, LEVELS};
use crate::lsm::read::clip;
use crate::sstable::cursor::{RunCursor, Walk};
use crate::sstable::filter::file::{self, filter_path};
use crate::sstable::filter::{FilterBuilder, FilterKind};
use crate::sstable::reader::Table;
use crate::view::{KeyspaceView, View};

/// The most bytes of entries walked in one step.
const STEP_BYTES: usize = 1 << 20;
/// What a filter takes at most, bytes a key, for the question whether there is room.
const ROOM_BYTES_PER_KEY: u64 = 2;

/// Whether a settled table's misses have paid for a filter that it does not have yet.
pub fn is_due(engine: &Engine, view: &View) -> bool {
    due(engine, view).is_some()
}

fn due<'a>(
    engine: &Engine,
    view: &'a View,
) -> Option<(&'a KeyspaceView, &'a Arc<Table>, FilterKind)> {
    // On a full disk what room there is goes to flushes and sweeps.
    if engine.ballast.is_given_up() {
        return None;
    }
    view.keyspaces.values().find_map(|keyspace| {
        let kind = keyspace.options.attached_filter()?;
        let last_level = keyspace.tables.levels().get(LEVELS - 1).into_iter().flatten();
        let mut tables = keyspace.tables.settled().chain(last_level);
        let table = tables.find(|table| {
            let room_bytes = table.properties().entries * ROOM_BYTES_PER_KEY;
            table.filter_pays() && engine.has_room_for_metadata(room_bytes)
        })?;
        Some((&**keyspace, table, kind))
    })
}

/// A filter being made.
pub struct Attach {
    engine: Arc<Engine>,
    keyspace: KeyspaceId,
    table: Arc<Table>,
    cursor: RunCursor,
    begun: bool,
    /// Taken by the last step.
    builder: Option<FilterBuilder>,
}

impl Attach {
    /// The filter that pays, if one does and there is room for it.
    pub fn find(engine: &Arc<Engine>, view: &View) -> Option<Attach> {
        let (keyspace, table, kind) = due(engine, view)?;
        Some(Attach::begin(engine, keyspace.id, table, kind))
    }

    fn begin(
        engine: &Arc<Engine>,
        keyspace: KeyspaceId,
        table: &Arc<Table>,
        kind: FilterKind,
    ) -> Attach {
        // All of the table, whatever its partitions cut off: it is the table's filter.
        let all = vec![clip(table, &[], None)];
        Attach {
            engine: engine.clone(),
            keyspace,
            table: table.clone(),
            cursor: RunCursor::new(all, Walk::Bulk),
            begun: false,
            builder: Some(FilterBuilder::new(kind)),
        }
    }

    /// Goes on; true when it is over. An error of the edit has poisoned the writer; any other is only
    /// counted.
    pub fn step(&mut self) -> bool {
        let over = self.walk().and_then(|ended| if ended { self.install() } else { Ok(false) });
        over.unwrap_or_else(|_| {
            self.table.forget_misses();
            self.engine.context.metrics.dropped_filters.fetch_add(1, Ordering::Relaxed);
            true
        })
    }

    fn walk(&mut self) -> Result<bool> {
        if !std::mem::replace(&mut self.begun, true) {
            self.cursor.seek(Seek::First)?;
        }
        let (mut walked, Some(builder)) = (0, &mut self.builder) else { return Ok(true) };
        while walked < STEP_BYTES {
            let Some(key) = self.cursor.key() else { return Ok(true) };
            builder.add(key);
            walked += key.len() + self.cursor.value().len() + 16;
            self.cursor.advance()?;
        }
        Ok(false)
    }

    fn install(&mut self) -> Result<bool> {
        let record = self.table.record();
        let builder = self.builder.take();
        let Some(bytes) = builder.and_then(|builder| builder.finish(record.tag)) else {
            self.table.forget_misses();
            return Ok(true);
        };
        let filter = file::from_bytes(record.tag, record.properties.entries, &bytes)?;
        let id = self.engine.next_file();
        let named = self.name(id, &bytes);
        match named {
            Ok(Some(named)) => {
                self.table.attach(named, filter);
                self.engine.context.metrics.attached_filters.fetch_add(1, Ordering::Relaxed);
                self.engine.fit_cache();
            }
            // After a failed edit perhaps it is named on the disk. The next open knows.
            _ if self.engine.health.is_poisoned() => {}
            _ => _ = self.engine.disk().remove(&filter_path(self.engine.dir(), id)),
        }
        named.map(|_| true)
    }

    /// Writes the filter and makes an edit name it. `None`: the table is gone.
    fn name(&self, id: u64, bytes: &[u8]) -> Result<Option<FilterRecord>> {
        let (disk, dir) = (self.engine.disk(), self.engine.dir());
        let named = file::write(&**disk, dir, id, bytes)?;
        disk.sync_dir(dir)?;
        let (keyspace, table) = (self.keyspace, self.table.id());
        let plan = |state: &crate::manifest::State| {
            let mut tables = state.keyspaces.get(&keyspace)?.tables();
            tables.find(|t| t.id == table && t.filter.is_none())?;
            Some(vec![Change::SetFilter { keyspace, table, filter: Some(named) }])
        };
        Ok(self.engine.edit(0, &Opened::default(), plan, |_| {})?.then_some(named))
    }
}
