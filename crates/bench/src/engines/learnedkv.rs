//! learnedkv itself: one database with one keyspace, called `default`. And the LearnedKV paper's
//! baseline, built of our parts.
//!
//! **The baseline** isolates what the learned tier gives: the same memtables, log, tables, merges,
//! separation of values and garbage collection, and nothing settled. It is the `lsm` store, in which
//! no value that was separated ever comes back beside its key (`move_values` and `inline_limit` mean
//! nothing there, as the paper has it), with what every LSM tree has in the place of what ours
//! learned: `fence` pointers, and blocked Bloom filters of 10 bits a key in all levels, from the
//! start and never added later.
//!
//! *Reads* are by calls even where maps are asked for. Reading blocks where the operating system
//! holds them is a gift of ours to every store (decision 21), one that the paper's baseline, a
//! RocksDB, does not have; with maps the baseline would be a second learnedkv rather than a stand-in
//! for BlobDB, against which it is held (`compare::baseline`). Direct reads are done as asked.

use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use ::learnedkv::{Database, ErrorKind, Keyspace, KeyspaceOptions};

use super::{Durability, Engine, EngineStats, OpenSettings, Reads};
use crate::{Error, Result};

/// The keyspace that is measured.
const KEYSPACE: &str = "default";

/// An open learnedkv database.
#[derive(Debug)]
pub struct LearnedKv {
    database: Database,
    keyspace: Keyspace,
}

/// Opens a database, making one where there is none.
///
/// # Errors
/// Those of the database.
pub fn open(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    let mut builder = Database::builder(&settings.dir)
        .durability(match settings.durability {
            Durability::Buffered => ::learnedkv::Durability::Buffered,
            Durability::SyncedEvery(period_ms) => {
                ::learnedkv::Durability::SyncedEvery(Duration::from_millis(period_ms))
            }
            Durability::Synced => ::learnedkv::Durability::Synced,
        })
        .direct_reads(settings.reads == Reads::Direct)
        .mapped_reads(settings.reads == Reads::Mapped);
    if let Some(bytes) = settings.memory_budget_bytes {
        builder = builder.memory_budget_bytes(bytes);
    }
    if let Some(bytes) = settings.memtable_bytes {
        let bytes = usize::try_from(bytes)
            .map_err(|_| Error::usage(format!("a memtable of {bytes} bytes is too large")))?;
        builder = builder.memtable_bytes(bytes);
    }
    let mut options = KeyspaceOptions::default();
    if let Some(bytes) = settings.block_size_bytes {
        options = options.block_bytes(bytes);
    }
    for (name, value) in &settings.options {
        // Of the database; the others are the keyspace's.
        if name == "background_bytes_per_s" {
            let bytes = value.parse().map_err(|e| Error::usage(format!("option {name}: {e}")))?;
            builder = builder.background_bytes_per_s(bytes);
            continue;
        }
        let set = options.set(name, value);
        set.map_err(|e| Error::usage(format!("option {name}={value}: {e}")))?;
    }
    if let Some(compression) = settings.compression {
        options = options.compression(compression);
    }
    if let Some(compression) = settings.settled_compression {
        options = options.settled_compression(compression);
    }
    let database = builder.open().map_err(told)?;
    let keyspace = database.keyspace(KEYSPACE, options).map_err(told)?;
    Ok(Box::new(LearnedKv { database, keyspace }))
}

/// Opens a database whose keyspace is of the `lsm` store.
///
/// # Errors
/// Those of the database.
pub fn open_lsm(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    let mut settings = settings.clone();
    settings.options.insert(0, ("store".to_string(), "lsm".to_string()));
    open(&settings)
}

/// What makes the `lsm` store the paper's baseline; options that are given come after these.
const BASELINE_OPTIONS: [(&str, &str); 7] = [
    ("store", "lsm"),
    ("separate_at", "512"),
    ("lsm_index", "fence"),
    ("settled_index", "fence"),
    ("lsm_filter", "blocked-bloom:10"),
    ("settled_filter", "blocked-bloom:10"),
    ("attach_filters", "false"),
];

/// Opens a database that is the LearnedKV paper's baseline.
///
/// # Errors
/// Those of the database.
pub fn open_baseline(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    let mut settings = settings.clone();
    let own = BASELINE_OPTIONS.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    settings.options.splice(0..0, own);
    if settings.reads == Reads::Mapped {
        settings.reads = Reads::Buffered;
    }
    open(&settings)
}

/// The store's error as ours: what the caller can put right himself is a matter of usage.
#[must_use]
pub fn told(error: ::learnedkv::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADatabase
        | ErrorKind::InvalidArgument
        | ErrorKind::Locked => Error::usage(error.to_string()),
        _ => Error::runtime(error.to_string()),
    }
}

impl LearnedKv {
    /// Visits the entries between `bounds`.
    fn walk(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let flow =
            |goes_on| if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let entries = self.keyspace.range::<&[u8]>(bounds);
        entries.visit(|key, value| flow(visit(key, value))).map_err(told)
    }
}

impl Engine for LearnedKv {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(told)
    }

    fn write_many(&self, entries: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in entries {
            match value {
                Some(value) => batch.insert(&self.keyspace, key, value),
                None => batch.remove(&self.keyspace, key),
            }
        }
        batch.commit().map_err(told)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key).map_err(told)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let values = self.keyspace.multi_get(keys).map_err(told)?;
        for (number, value) in values.iter().enumerate() {
            if let Some(value) = value {
                found(number, value);
            }
        }
        Ok(())
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(told)
    }

    fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.walk((Bound::Included(start), Bound::Unbounded), visit)
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.walk((Bound::Included(from), Bound::Excluded(to)), visit)
    }

    fn ingest(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        self.keyspace.ingest(entries).map(|_| ()).map_err(told)
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.flush().map_err(told)
    }

    fn settle(&self) -> Result<()> {
        self.flush()?;
        self.database.wait_idle().map_err(told)
    }

    fn compact(&mut self) -> Result<()> {
        self.flush()?;
        self.keyspace.compact().map_err(told)?;
        self.database.wait_idle().map_err(told)
    }

    fn stats(&self) -> EngineStats {
        let stats = self.database.stats();
        let whole: [(&str, u64); 18] = [
            ("cache_bytes", stats.cache_bytes),
            ("read_requests", stats.read_requests),
            ("read_bytes", stats.read_bytes),
            ("value_requests", stats.value_requests),
            ("value_read_bytes", stats.value_read_bytes),
            ("mapped_reads", stats.mapped_reads),
            ("put_bytes", stats.put_bytes),
            ("flushed_bytes", stats.flushed_bytes),
            ("merged_bytes", stats.merged_bytes),
            ("swept_bytes", stats.swept_bytes),
            ("compacted_bytes", stats.compacted_bytes),
            ("moved_tables", stats.moved_tables),
            ("held_back_ms", stats.held_back_ms),
            ("index_fallbacks", stats.index_fallbacks),
            ("filter_stops", stats.filter_stops),
            ("filter_false_positives", stats.filter_false_positives),
            ("attached_filters", stats.attached_filters),
            ("dropped_filters", stats.dropped_filters),
        ];
        let mut figures: Vec<(String, f64)> =
            whole.iter().map(|(name, value)| ((*name).to_string(), *value as f64)).collect();
        if let Some(keyspace) = stats.keyspaces.iter().find(|k| k.name == KEYSPACE) {
            let bits = keyspace.metadata_bits_per_entry();
            figures.push(("metadata_bits_per_entry".to_string(), bits));
            let bits = keyspace.filter_bits_per_key();
            figures.push(("filter_bits_per_key".to_string(), bits));
            figures.push(("compression_ratio".to_string(), keyspace.compression_ratio()));
            figures.push(("settled_share".to_string(), keyspace.settled_share()));
        }
        EngineStats { text: stats.to_string(), figures }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.close().map_err(told)
    }
}
