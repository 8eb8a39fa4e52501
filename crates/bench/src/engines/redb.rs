//! redb 4, a copy-on-write B-tree in Rust.
//!
//! *Tuned*: one transaction per write, as its users have it; its cache gets the memory budget,
//! which is all it holds. Pages are of 4 KiB and never compressed.
//!
//! *Compacted* is its `compact`, which moves pages to the beginning of the file and cuts it.
//!
//! *Durability*: synced is `Durability::Immediate`, its default. Buffered is `Durability::None`:
//! such a commit stays in the memory of the process, in part or whole, and is kept only if a commit
//! that is `Immediate` follows, or the database is closed in good order. If the process dies it is
//! gone, back to the last `Immediate` commit: **less than "buffered" promises elsewhere**. What
//! promises the same is the option `commits=written`: `Immediate` commits on a file whose syncs are
//! left out, so that each commit reaches the operating system before it returns, and the file is
//! whole if the process dies.

use std::fs;
use std::ops::RangeBounds;

use ::redb::backends::FileBackend;
use ::redb::{
    BackendError, Builder, Database, Durability, ReadableDatabase, ReadableTableMetadata,
    StorageBackend, TableDefinition, TableError, WriteTransaction,
};

use super::{Engine, EngineStats, OpenSettings, Reads, synced};
use crate::{Error, Result};

/// The one table.
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");
/// The database's name in its directory.
const FILE_NAME: &str = "redb";
/// Entries of an ingest that go into one transaction.
const INGEST_BATCH: usize = 10_000;

/// An open redb database.
struct Redb {
    database: Database,
    durability: Durability,
}

/// A file whose syncs do nothing: what was written is the operating system's to keep.
#[derive(Debug)]
struct Unsynced(FileBackend);

impl StorageBackend for Unsynced {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> std::io::Result<()> {
        self.0.sync_data()?;
        self.0.close()
    }

    fn try_lock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.0.try_lock_range(start, end)
    }

    fn unlock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> std::result::Result<(), BackendError> {
        self.0.unlock_range(start, end)
    }
}

/// Opens a database, making one where there is none.
///
/// # Errors
/// Those of the database, and settings it has no counterpart for.
pub fn open(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    let synced = synced(settings, "redb")?;
    if settings.compression.is_some_and(|asked| asked != ::learnedkv::Compression::None) {
        return Err(Error::usage("redb has no compression"));
    }
    if settings.reads == Reads::Direct {
        return Err(Error::usage("redb cannot read around the operating system's cache"));
    }
    let mut written = false;
    for (name, value) in &settings.options {
        match (name.as_str(), value.as_str()) {
            ("commits", "none") => written = false,
            ("commits", "written") => written = true,
            _ => {
                return Err(super::unknown_option(
                    "redb",
                    name,
                    "commits=none and commits=written",
                ));
            }
        }
    }
    let dir = &settings.dir;
    fs::create_dir_all(dir).map_err(|e| Error::io("create it", dir, &e))?;
    let mut builder = Builder::new();
    if let Some(budget) = settings.memory_budget_bytes {
        let bytes = usize::try_from(budget).map_err(|_| Error::usage("a budget that large"))?;
        builder.set_cache_size(bytes);
    }
    let path = dir.join(FILE_NAME);
    let database = if written && !synced {
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(|e| Error::io("open it", &path, &e))?;
        let backend = FileBackend::new(file).map_err(|e| told("opening", e))?;
        builder.create_with_backend(Unsynced(backend))
    } else {
        builder.create(&path)
    };
    let database = database.map_err(|e| told("opening", e))?;
    let durability = if synced || written { Durability::Immediate } else { Durability::None };
    let engine = Redb { database, durability };
    // So that every reader finds the table.
    engine.write("opening", |_| Ok(()))?;
    Ok(Box::new(engine))
}

fn told(action: &str, error: impl Into<::redb::Error>) -> Error {
    Error::engine(&format!("redb: {action}"), error.into())
}

impl Redb {
    /// One transaction of `work` on the table.
    fn write(
        &self,
        action: &str,
        work: impl FnOnce(&mut ::redb::Table<'_, &[u8], &[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction: WriteTransaction =
            self.database.begin_write().map_err(|e| told(action, e))?;
        transaction.set_durability(self.durability).map_err(|e| Error::engine("redb", e))?;
        let mut table = transaction.open_table(TABLE).map_err(|e| told(action, e))?;
        work(&mut table)?;
        drop(table);
        transaction.commit().map_err(|e| told(action, e))
    }

    /// `work` on the table as of now.
    fn read<T>(
        &self,
        action: &str,
        work: impl FnOnce(&::redb::ReadOnlyTable<&'static [u8], &'static [u8]>) -> Result<T>,
    ) -> Result<T> {
        let transaction = self.database.begin_read().map_err(|e| told(action, e))?;
        let table = transaction.open_table(TABLE).map_err(|e: TableError| told(action, e))?;
        work(&table)
    }

    /// Visits the entries of `range`.
    fn walk<'a>(
        &self,
        range: impl RangeBounds<&'a [u8]> + 'a,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.read("a scan", |table| {
            for entry in table.range(range).map_err(|e| told("a scan", e))? {
                let (key, value) = entry.map_err(|e| told("a scan", e))?;
                if !visit(key.value(), value.value()) {
                    break;
                }
            }
            Ok(())
        })
    }
}

impl Engine for Redb {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let action = "an insert";
        self.write(action, |table| {
            table.insert(key, value).map_err(|e| told(action, e))?;
            Ok(())
        })
    }

    fn write_many(&self, entries: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        let action = "a batch";
        self.write(action, |table| {
            for (key, value) in entries {
                let done = match value {
                    Some(value) => table.insert(*key, *value),
                    None => table.remove(*key),
                };
                done.map_err(|e| told(action, e))?;
            }
            Ok(())
        })
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.read("a get", |table| {
            let value = table.get(key).map_err(|e| told("a get", e))?;
            Ok(value.map(|value| found(value.value())).is_some())
        })
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        self.read("a get of many", |table| {
            for (number, key) in keys.iter().enumerate() {
                if let Some(value) = table.get(key).map_err(|e| told("a get of many", e))? {
                    found(number, value.value());
                }
            }
            Ok(())
        })
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        let action = "a removal";
        self.write(action, |table| {
            table.remove(key).map_err(|e| told(action, e))?;
            Ok(())
        })
    }

    fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.walk(start.., visit)
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.walk(from..to, visit)
    }

    fn ingest(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        let mut more = true;
        while more {
            self.write("an ingest", |table| {
                for _ in 0..INGEST_BATCH {
                    let Some((key, value)) = entries.next() else {
                        more = false;
                        break;
                    };
                    table
                        .insert(key.as_slice(), value.as_slice())
                        .map_err(|e| told("an ingest", e))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        // A commit that is durable makes durable all that came before it.
        let mut transaction = self.database.begin_write().map_err(|e| told("a flush", e))?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(|e| Error::engine("redb: a flush", e))?;
        transaction.commit().map_err(|e| told("a flush", e))
    }

    fn settle(&self) -> Result<()> {
        // Nothing is done in the background.
        self.flush()
    }

    fn compact(&mut self) -> Result<()> {
        self.flush()?;
        self.database.compact().map_err(|e| told("compacting", e))?;
        Ok(())
    }

    fn version(&self) -> String {
        env!("LEARNEDKV_VERSION_OF_REDB").to_string()
    }

    fn stats(&self) -> EngineStats {
        let told = self.read("statistics", |table| {
            let stats = table.stats().map_err(|e| told("statistics", e))?;
            let entries = table.len().map_err(|e| told("statistics", e))?;
            // Keys and pointers of inner pages; what leaves waste is `fragmented_bytes`.
            let metadata = stats.metadata_bytes();
            Ok([
                ("entries", entries as f64),
                ("tree_height", f64::from(stats.tree_height())),
                ("leaf_pages", stats.leaf_pages() as f64),
                ("branch_pages", stats.branch_pages() as f64),
                ("stored_bytes", stats.stored_bytes() as f64),
                ("fragmented_bytes", stats.fragmented_bytes() as f64),
                ("metadata_bits_per_entry", metadata as f64 * 8.0 / entries.max(1) as f64),
            ])
        });
        let figures = told.map_or(Vec::new(), |figures| {
            figures.iter().map(|(name, value)| ((*name).to_string(), *value)).collect()
        });
        let lines =
            figures.iter().map(|(name, value): &(String, f64)| format!("{name} {value:.1}\n"));
        EngineStats { text: lines.collect(), figures }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()?;
        self.database.close().map_err(|e| told("closing", e))
    }
}
