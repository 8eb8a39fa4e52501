//! A table that could not be opened because its file is damaged or missing: a stand-in for it, so
//! that all else can be read.
//!
//! It stands in the View where the manifest says that the table stands, and knows what the manifest
//! says of it: the keys between which its entries lie, how many they are, the segments it points
//! into, its filter. What is in the file it does not know, and nobody may act as if there were
//! nothing:
//! * A lookup of a key that may be there fails with [`Table::damage`]. Keys outside the table, and
//!   those that its filter refuses, are not there. If it says that ranges are gone, nobody knows
//!   which: then every lookup that comes to it fails.
//! * It has no index, and none can be borrowed: so a cursor that enters it fails too.
//! * It has no [`Table::ranges`], where the table may have some. Whoever goes by them asks for
//!   damage first.
//!
//! Only bytes that are not what was written make a stand-in. A disk that refuses to read says
//! nothing about the table: that is an error of the open, as it always was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, OnceLock};

use super::{Home, Mapped, Table, TableContext, TableFilter};
use crate::error::{Error, Result};
use crate::format::manifest::TableRecord;
use crate::sstable::table_path;

/// The most bytes of a key that an error shows.
const SHOWN_BYTES: usize = 60;

fn shown(key: &[u8]) -> String {
    match key.get(..SHOWN_BYTES) {
        Some(start) if key.len() > SHOWN_BYTES => format!("b\"{}\"...", start.escape_ascii()),
        _ => format!("b\"{}\"", key.escape_ascii()),
    }
}

/// What to do about a table of a keyspace that could not be opened.
fn advice(keyspace: &str, record: &TableRecord) -> String {
    let properties = &record.properties;
    let keys = match properties.ranges {
        0 => format!("keys {} to {}", shown(&properties.smallest), shown(&properties.largest)),
        _ => "removed ranges, of which nothing is known".to_owned(),
    };
    format!(
        "; this table of keyspace {keyspace:?} has {keys}; what else there is can be read; put the file of \
         a backup or checkpoint in its place and reopen, or copy what can be read to another keyspace and \
         drop this one"
    )
}

impl Table {
    /// As [`Table::open`]; a table of `keyspace` whose file is damaged or missing gets a stand-in.
    ///
    /// # Errors
    /// `Unsupported`, and any error of the disk that says nothing about the file, unless what is left is to be read.
    pub fn open_or_stand_in(
        context: &Arc<TableContext>,
        record: TableRecord,
        keyspace: &str,
    ) -> Result<Table> {
        match Table::open(context, record.clone()) {
            Err(e) if context.stands_in_for(&e) => {
                let damage = e.advise(|| advice(keyspace, &record));
                Ok(Table::stand_in(context, record, damage))
            }
            opened => opened,
        }
    }

    fn stand_in(context: &Arc<TableContext>, mut record: TableRecord, damage: Error) -> Table {
        let (filter, _filter_room) = TableFilter::open(context, &mut record);
        let path = table_path(&context.dir, record.id);
        let table = Table {
            file: context.files.file(&path, context.access),
            path,
            record,
            index: Home::nowhere(),
            ranges: Arc::default(),
            walked: OnceLock::new(),
            walking: Mutex::new(()),
            mapped: Mapped::default(),
            filter,
            context: context.clone(),
            generation: OnceLock::new(),
            damage: Some(damage),
            unreadable: AtomicBool::new(false),
            reads_alone: AtomicBool::new(false),
            is_ours: AtomicBool::new(false),
            retired: OnceLock::new(),
            counted_bytes: AtomicU64::new(0),
        };
        table.count_metadata();
        table
    }

    /// Why it could not be opened, if this is a stand-in.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Whether it says that ranges are gone from older data, and nobody knows which.
    #[inline]
    pub fn has_unknown_ranges(&self) -> bool {
        self.damage.is_some() && self.record.properties.ranges > 0
    }
}
