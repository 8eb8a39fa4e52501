//! What an open says: what it found and did.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::value_log::Segments;
use crate::view::{KeyspaceView, View};
use crate::wal::recovery::Recovered;

/// What opening a database found and did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct OpenReport {
    /// Whether the database was made by this open.
    pub created: bool,
    /// Operations read back from the log.
    pub recovered_operations: u64,
    /// Records behind the log's end that were never synced and are dropped.
    pub dropped_records: u64,
    /// Where the log ended: segment and byte.
    pub log_end: Option<(u64, u64)>,
    /// What of the log is damaged, where the database was opened to be [salvaged](crate::Builder::salvage): what was
    /// put behind that place is there only as far as it stood in tables.
    pub log_damage: Option<Error>,
    /// Files that nothing named and that were removed.
    pub removed_files: Vec<String>,
    /// Why others, named as tables, filters and value segments are, could not be removed. Nothing reads them, no new file gets
    /// their numbers, and the next open tries again.
    pub left_files: Vec<Error>,
    /// Tables whose files are damaged or missing. All else can be read and written; see
    /// [`DamagedTable`].
    pub damaged_tables: Vec<DamagedTable>,
    /// Value segments whose files are damaged or missing. All else can be read and written; see
    /// [`DamagedSegment`].
    pub damaged_segments: Vec<DamagedSegment>,
}

impl OpenReport {
    /// What was found in the log, and of files that are damaged.
    pub(super) fn of(recovered: &Recovered, view: &View) -> OpenReport {
        OpenReport {
            recovered_operations: recovered.operations,
            dropped_records: recovered.dropped_records,
            log_end: recovered.end,
            damaged_tables: DamagedTable::all_of(view),
            damaged_segments: DamagedSegment::all_of(view),
            ..OpenReport::default()
        }
    }
}

/// A table whose file was found damaged or missing when the database was opened.
///
/// Lookups of keys that may be in it and walks that come to them fail with `error`; nothing older
/// is shown in its place. Nothing that it may hold is overwritten or removed either: where that
/// would be needed, a keyspace is not settled any more, and `convert` and `health()` say why. The
/// database goes on naming the file: once that is put back, from a backup or a checkpoint, and the
/// database is reopened, all is as it was.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DamagedTable {
    /// The keyspace it belongs to.
    pub keyspace: String,
    /// The first and the last key that may be in it. `None`: it says that ranges of keys were
    /// removed, and nobody knows which, so that any key may be concerned.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// Which file, where in it, what was expected and found, and what to do.
    pub error: Error,
}

impl DamagedTable {
    pub(super) fn all_of(view: &View) -> Vec<DamagedTable> {
        let of_keyspace = |keyspace: &KeyspaceView| {
            // Neighbouring partitions may share one.
            let tables: BTreeMap<_, _> =
                keyspace.tables.damaged.iter().map(|table| (table.id(), table.clone())).collect();
            let keyspace = keyspace.name.to_string();
            tables.into_values().filter_map(move |table| {
                let properties = table.properties();
                let keys = (properties.smallest.clone(), properties.largest.clone());
                Some(DamagedTable {
                    keyspace: keyspace.clone(),
                    keys: (!table.has_unknown_ranges()).then_some(keys),
                    error: table.damage()?.clone(),
                })
            })
        };
        view.keyspaces.values().flat_map(|keyspace| of_keyspace(keyspace)).collect()
    }
}

/// A file of values kept apart from their keys that was found damaged or missing when the database was opened.
///
/// Reads of a value that lies in it, and cannot be read any more, fail with `error`; nothing older is shown in
/// its place. All else goes on: keys are found and walked over, also those of such values, and can be written
/// and removed. Where a sweep would move such a value it leaves it, and `convert` and `health()` say so. The
/// database goes on naming the file for as long as anything points into it: once it is put back, from a backup or
/// a checkpoint, and the database is reopened, all is as it was.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DamagedSegment {
    /// The keyspace whose values are in it.
    pub keyspace: String,
    /// Which file, what was expected and found, and what to do.
    pub error: Error,
}

impl DamagedSegment {
    pub(super) fn all_of(view: &View) -> Vec<DamagedSegment> {
        let of_keyspace = |keyspace: &KeyspaceView| {
            let mut damaged = BTreeMap::new();
            let mut note = |segments: &Segments| {
                let stand_ins = segments.iter().filter_map(|s| Some((s.id(), s.damage()?.clone())));
                damaged.extend(stand_ins);
            };
            note(&keyspace.tables.segments);
            keyspace.memtables().for_each(|memtable| note(&memtable.streamed.all()));
            let keyspace = keyspace.name.to_string();
            damaged
                .into_values()
                .map(move |error| DamagedSegment { keyspace: keyspace.clone(), error })
        };
        view.keyspaces.values().flat_map(|keyspace| of_keyspace(keyspace)).collect()
    }
}
