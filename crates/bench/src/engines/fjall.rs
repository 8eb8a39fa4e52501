//! fjall 3, a log-structured merge tree in Rust; plain, and with values separated from keys.
//!
//! *Tuned* as its documentation recommends, which is its defaults: 4 KiB blocks, Bloom filters
//! (0.01 % false positives in level 0, 10 bits a key below), leveled compaction, a worker per core.
//! Compression is off unless asked for. Of the memory budget two memtables are taken off for the
//! one that is written and the one that is flushed (it allows four sealed ones before it stops
//! writers), the rest is its cache.
//!
//! `staleness_threshold=SHARE` (of the separated kind): how much of a blob file must be garbage for it to be
//! collected, where its default (a quarter) is not meant.
//!
//! *Compacted* is its `major_compact`, which is public and not in its documentation.
//!
//! *Durability*: each write reaches the operating system before it returns (its default); synced is
//! `persist(SyncData)` after each write, as its documentation has it. It has no group commit.

use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::fjall::config::{BlockSizePolicy, CompressionPolicy};
use ::fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions,
    PersistMode, Readable,
};
use ::learnedkv::Compression;

use super::{Engine, EngineStats, OpenSettings, Reads, cache_bytes, memtable_bytes, synced};
use crate::{Error, Result};

/// The keyspace that is measured.
const KEYSPACE: &str = "default";
/// Values from this length on are separated, in bytes: the same as for the other rival that does.
const SEPARATED_BYTES: u32 = 512;
/// How long nothing may have happened for the store to be settled, and how often one looks.
const QUIET: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(20);
/// Longest wait for that.
const PATIENCE: Duration = Duration::from_secs(1800);

/// An open fjall database.
struct Fjall {
    database: Database,
    keyspace: Keyspace,
    synced: bool,
    /// How long the last settling looked on, in nanoseconds.
    looked_on_ns: AtomicU64,
}

/// Opens it with values beside their keys.
///
/// # Errors
/// Those of the database, and settings it has no counterpart for.
pub fn open(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    open_as(settings, false)
}

/// Opens it with long values in files of their own.
///
/// # Errors
/// Those of the database, and settings it has no counterpart for.
pub fn open_separated(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    open_as(settings, true)
}

fn open_as(settings: &OpenSettings, separated: bool) -> Result<Box<dyn Engine>> {
    let synced = synced(settings, "fjall")?;
    if settings.reads == Reads::Direct {
        return Err(Error::usage("fjall cannot read around the operating system's cache"));
    }
    let staleness = staleness_threshold(settings, separated)?;
    let compression = match settings.compression {
        None | Some(Compression::None) => CompressionType::None,
        Some(Compression::Lz4) => CompressionType::Lz4,
        Some(other) => return Err(Error::usage(format!("fjall has no compression {other}"))),
    };
    let memtable = memtable_bytes(settings);
    let mut builder = Database::builder(&settings.dir).journal_compression(CompressionType::None);
    if let Some(budget) = settings.memory_budget_bytes {
        builder = builder.cache_size(cache_bytes(budget, memtable.unwrap_or_default()));
    }
    let mut options = KeyspaceCreateOptions::default()
        .data_block_compression_policy(CompressionPolicy::all(compression));
    if let Some(bytes) = memtable {
        options = options.max_memtable_size(bytes);
    }
    if let Some(bytes) = settings.block_size_bytes {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| (1024..=1 << 20).contains(bytes));
        let bytes = bytes.ok_or_else(|| Error::usage("fjall's blocks are of 1 KiB to 1 MiB"))?;
        options = options.data_block_size_policy(BlockSizePolicy::all(bytes));
    }
    if separated {
        let separation = KvSeparationOptions::default()
            .separation_threshold(SEPARATED_BYTES)
            .compression(compression);
        let separation = match staleness {
            Some(threshold) => separation.staleness_threshold(threshold),
            None => separation,
        };
        options = options.with_kv_separation(Some(separation));
    }
    let database = builder.open().map_err(|e| told("opening", e))?;
    let keyspace = database.keyspace(KEYSPACE, || options).map_err(|e| told("opening", e))?;
    Ok(Box::new(Fjall { database, keyspace, synced, looked_on_ns: AtomicU64::new(0) }))
}

/// The part of a blob file that must be garbage for it to be collected, if `settings` say so.
fn staleness_threshold(settings: &OpenSettings, separated: bool) -> Result<Option<f32>> {
    let mut threshold = None;
    for (name, value) in &settings.options {
        let share = value.parse().ok().filter(|share: &f32| (0.0..=1.0).contains(share));
        match (name.as_str(), separated) {
            ("staleness_threshold", true) => {
                let bad =
                    || Error::usage(format!("option {name}={value}: expected a share, 0 to 1"));
                threshold = Some(share.ok_or_else(bad)?);
            }
            (_, true) => {
                let has = "staleness_threshold=SHARE";
                return Err(super::unknown_option("fjall-separated", name, has));
            }
            _ => return Err(super::unknown_option("fjall", name, "none that this program sets")),
        }
    }
    Ok(threshold)
}

fn told(action: &str, error: impl Into<::fjall::Error>) -> Error {
    Error::engine(&format!("fjall: {action}"), error.into())
}

impl Fjall {
    fn acknowledge(&self) -> Result<()> {
        if self.synced {
            self.database.persist(PersistMode::SyncData).map_err(|e| told("syncing", e))?;
        }
        Ok(())
    }

    /// Visits the entries of `range`.
    fn walk<'a>(
        &self,
        range: impl RangeBounds<&'a [u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let snapshot = self.database.snapshot();
        for entry in snapshot.range(&self.keyspace, range) {
            let (key, value) = entry.into_inner().map_err(|e| told("a scan", e))?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// Whether nothing is flushed or compacted now, and how much has been so far.
    fn idle(&self) -> (bool, usize) {
        let idle = self.database.active_compactions() == 0
            && self.database.outstanding_flushes() == 0
            && self.keyspace.sealed_memtable_count() == 0;
        (idle, self.database.compactions_completed())
    }
}

impl Engine for Fjall {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(|e| told("an insert", e))?;
        self.acknowledge()
    }

    fn write_many(&self, entries: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        // What a single insert does by itself a batch is told: to reach the operating system.
        let mode = if self.synced { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut batch = self.database.batch().durability(Some(mode));
        for (key, value) in entries {
            match value {
                Some(value) => batch.insert(&self.keyspace, *key, *value),
                None => batch.remove(&self.keyspace, *key),
            }
        }
        batch.commit().map_err(|e| told("a batch", e))
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key).map_err(|e| told("a get", e))?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(|e| told("a removal", e))?;
        self.acknowledge()
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
        let mut ingestion = self.keyspace.start_ingestion().map_err(|e| told("an ingest", e))?;
        for (key, value) in entries {
            ingestion.write(key, value).map_err(|e| told("an ingest", e))?;
        }
        ingestion.finish().map_err(|e| told("an ingest", e))
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait().map_err(|e| told("a flush", e))
    }

    fn settle(&self) -> Result<()> {
        self.flush()?;
        let start = Instant::now();
        let (mut quiet_since, mut done) = (start, self.idle().1);
        while quiet_since.elapsed() < QUIET {
            std::thread::sleep(LOOK);
            let (idle, done_now) = self.idle();
            if !idle || done_now != done {
                (quiet_since, done) = (Instant::now(), done_now);
            }
            if start.elapsed() > PATIENCE {
                return Err(Error::runtime(format!(
                    "fjall: settling: still compacting after {} s",
                    PATIENCE.as_secs()
                )));
            }
        }
        self.looked_on_ns.store(quiet_since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn looked_on(&self) -> Duration {
        Duration::from_nanos(self.looked_on_ns.load(Ordering::Relaxed))
    }

    fn compact(&mut self) -> Result<()> {
        self.flush()?;
        self.keyspace.major_compact().map_err(|e| told("compacting", e))?;
        self.settle()
    }

    fn version(&self) -> String {
        env!("LEARNEDKV_VERSION_OF_FJALL").to_string()
    }

    fn stats(&self) -> EngineStats {
        let tree = &self.keyspace.tree;
        let entries = self.keyspace.approximate_len();
        let whole: [(&str, u64); 9] = [
            ("entries", entries as u64),
            ("cache_bytes", self.database.cache_size()),
            ("filter_bytes", tree.filter_size()),
            ("pinned_filter_bytes", tree.pinned_filter_size() as u64),
            ("pinned_index_bytes", tree.pinned_block_index_size() as u64),
            ("tables", self.keyspace.table_count() as u64),
            ("blob_files", self.keyspace.blob_file_count() as u64),
            ("compactions", self.database.compactions_completed() as u64),
            ("compaction_ms", self.database.time_compacting().as_millis() as u64),
        ];
        let mut figures: Vec<(String, f64)> =
            whole.iter().map(|(name, value)| ((*name).to_string(), *value as f64)).collect();
        // It does not tell the size of its index blocks: filters alone are no metadata figure.
        let bits = tree.filter_size() as f64 * 8.0 / entries.max(1) as f64;
        figures.push(("filter_bits_per_key".to_string(), bits));
        let lines = figures.iter().map(|(name, value)| format!("{name} {value:.1}\n"));
        EngineStats { text: lines.collect(), figures }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(|e| told("closing", e))
    }
}
