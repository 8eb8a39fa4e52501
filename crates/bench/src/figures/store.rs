//! The store that a figure measures, and the checks of what it returns.

use std::path::Path;
use std::sync::Arc;

use ::learnedkv::disk::real::{ManyReads, RealDisk, Waiting};
use ::learnedkv::{
    Compression, Database, IndexKind, Keyspace, KeyspaceOptions, KeyspaceStats, Stats,
};

use super::Scale;
use crate::engines::Reads;
use crate::keys::KeySet;
use crate::random::Rng;
use crate::values::{Compressibility, Values};
use crate::{Error, Result};

/// Memory budget of all figures.
const BUDGET_BYTES: u64 = 256 << 20;
/// Memtable of all figures.
pub const MEMTABLE_BYTES: u64 = 32 << 20;
/// Partitions, and what is settled at least, as by default.
pub const PARTITION_BYTES: u64 = 64 << 20;
pub const MIN_CONVERSION_BYTES: u64 = 512 << 20;
/// Garbage that is let lie, per cent of what is settled, as by default.
pub const OVER_PROVISION_PERCENT: u64 = 30;
/// Bytes of a value unless a figure says otherwise: with its key a KiB.
pub const VALUE_BYTES: u32 = 1016;
/// The block sizes that are looked at, the usual one first.
pub const BLOCK_BYTES: [u64; 3] = [4096, 8192, 16_384];

/// How a store is made and opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Largest data block, bytes.
    pub block_bytes: u64,
    /// The index of all its tables.
    pub index: IndexKind,
    /// How data blocks are compressed.
    pub compression: Compression,
    /// How blocks are read.
    pub reads: Reads,
    /// Whether there is a block cache.
    pub block_cache: bool,
    /// Whether sweeps begin by themselves.
    pub automatic_conversion: bool,
    /// How many reads at once are done.
    pub many_reads: ManyReads,
    /// How single ones around the system's cache are waited for.
    pub waiting: Waiting,
    /// What is settled at least, at full scale, bytes.
    pub min_conversion_bytes: u64,
    /// Whether filters at rest come into memory when misses have paid for that.
    pub attach_filters: bool,
    /// Whether runs of the LSM part have filters.
    pub lsm_filters: bool,
}

impl Shape {
    /// The disk it is opened on.
    pub fn disk(&self) -> RealDisk {
        RealDisk::new().with_many_reads(self.many_reads).with_waiting(self.waiting)
    }
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            block_bytes: BLOCK_BYTES[0],
            index: IndexKind::Exact,
            compression: Compression::None,
            reads: Reads::default(),
            block_cache: true,
            automatic_conversion: true,
            many_reads: ManyReads::default(),
            waiting: Waiting::default(),
            min_conversion_bytes: MIN_CONVERSION_BYTES,
            attach_filters: true,
            lsm_filters: true,
        }
    }
}

impl Shape {
    /// The shape of the runs with lz4.
    pub fn lz4() -> Shape {
        Shape { compression: Compression::Lz4, ..Shape::default() }
    }

    /// `values`, half of which compresses if the blocks are compressed.
    pub fn values(self, values: &Values) -> Values {
        match self.compression {
            Compression::None => values.clone(),
            _ => values.clone().compressible(Compressibility::HALF),
        }
    }
}

/// The memory budget at `scale`, bytes.
pub fn budget_bytes(scale: Scale) -> u64 {
    scale.of(BUDGET_BYTES)
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    /// The database.
    pub database: Database,
    /// Its only keyspace.
    pub keyspace: Keyspace,
}

impl Store {
    /// Opens the store in `dir`, making it if there is none.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open(dir: &Path, scale: Scale, shape: Shape) -> Result<Store> {
        let memtable_bytes = scale.of(MEMTABLE_BYTES);
        let database = Database::builder(dir)
            .memory_budget_bytes(budget_bytes(scale))
            .memtable_bytes(memtable_bytes as usize)
            .log_segment_bytes(memtable_bytes)
            .disk(Arc::new(shape.disk()))
            .direct_reads(shape.reads == Reads::Direct)
            .mapped_reads(shape.reads == Reads::Mapped)
            .block_cache(shape.block_cache)
            .automatic_conversion(shape.automatic_conversion)
            .open()
            .map_err(|e| Error::engine("opening", e))?;
        let options = match shape.lsm_filters {
            true => KeyspaceOptions::default(),
            false => KeyspaceOptions::default().lsm_filter(None),
        };
        let options = options
            .block_bytes(shape.block_bytes)
            .lsm_index(shape.index)
            .settled_index(shape.index)
            .compression(shape.compression)
            .over_provision_percent(OVER_PROVISION_PERCENT)
            .attach_filters(shape.attach_filters)
            .partition_bytes(scale.of(PARTITION_BYTES))
            .min_conversion_bytes(scale.of(shape.min_conversion_bytes));
        let keyspace =
            database.keyspace("figures", options).map_err(|e| Error::engine("opening", e))?;
        Ok(Store { database, keyspace })
    }

    /// Takes version 1 of all keys, settled at once.
    ///
    /// # Errors
    /// Those of the database, or if it did not settle them.
    pub fn ingest(&self, keys: &KeySet, values: &Values) -> Result<()> {
        let mut value = Vec::new();
        let entries = (0..keys.len()).map(|rank| {
            let key = keys.key(rank);
            values.fill(key.as_ref(), 1, &mut value);
            (key, value.clone())
        });
        let taken = self.keyspace.ingest(entries).map_err(|e| Error::engine("ingesting", e))?;
        if !taken.settled || taken.entries != keys.len() as u64 {
            return Err(Error::runtime(format!("expected all keys settled, found {taken:?}")));
        }
        Ok(())
    }

    /// Stores a value.
    ///
    /// # Errors
    /// Those of the database.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(|e| Error::engine("a put", e))
    }

    /// Waits until the last memtable's table is committed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn flush(&self) -> Result<()> {
        self.keyspace.flush().map_err(|e| Error::engine("flushing", e))
    }

    /// Flushes, settles everything and waits until nothing is left to do.
    ///
    /// # Errors
    /// Those of the database.
    pub fn settle(&self) -> Result<()> {
        let settled = self.keyspace.flush().and_then(|()| self.keyspace.convert());
        settled.and_then(|()| self.database.wait_idle()).map_err(|e| Error::engine("settling", e))
    }

    /// The database's figures.
    pub fn stats(&self) -> Stats {
        self.database.stats()
    }

    /// The keyspace's figures.
    ///
    /// # Errors
    /// Those of the database.
    pub fn keyspace_stats(&self) -> Result<KeyspaceStats> {
        self.keyspace.stats().map_err(|e| Error::engine("stats", e))
    }

    /// Closes it.
    ///
    /// # Errors
    /// Those of the database.
    pub fn close(self) -> Result<()> {
        drop(self.keyspace);
        self.database.close().map_err(|e| Error::engine("closing", e))
    }

    /// Gets `count` keys picked by `rng` and as many absent ones, and checks the answers; `version`
    /// says which version a rank must have.
    ///
    /// # Errors
    /// A wrong answer, or those of the database.
    pub fn check_some(
        &self,
        keys: &KeySet,
        values: &Values,
        version: impl Fn(usize) -> u32,
        count: u64,
        rng: &mut Rng,
    ) -> Result<()> {
        let (mut scratch, mut absent) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let rank = rng.below(keys.len() as u64) as usize;
            self.check(keys.key(rank).as_ref(), values, version(rank), &mut scratch)?;
            keys.absent_near(rank, rng, &mut absent);
            self.check_absent(&absent)?;
        }
        Ok(())
    }

    /// Gets all keys and checks them.
    ///
    /// # Errors
    /// A wrong answer, or those of the database.
    pub fn check_all(&self, keys: &KeySet, values: &Values, versions: &[u32]) -> Result<()> {
        let mut scratch = Vec::new();
        for (rank, version) in versions.iter().enumerate() {
            self.check(keys.key(rank).as_ref(), values, *version, &mut scratch)?;
        }
        Ok(())
    }

    /// Gets `key` and checks that it has `version`.
    ///
    /// # Errors
    /// A wrong answer, or those of the database.
    pub fn check(
        &self,
        key: &[u8],
        values: &Values,
        version: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let found = self.keyspace.get(key).map_err(|e| Error::engine("a get", e))?;
        let Some(found) = found else {
            return Err(Error::wrong_answer("a key that was put is not there"));
        };
        values
            .check(key, version..=version, &found, scratch)
            .map(|_| ())
            .map_err(|mismatch| Error::wrong_answer(mismatch.to_string()))
    }

    /// Gets `key`, which was never put.
    ///
    /// # Errors
    /// If it is there, or those of the database.
    pub fn check_absent(&self, key: &[u8]) -> Result<()> {
        match self.keyspace.get(key).map_err(|e| Error::engine("a get", e))? {
            None => Ok(()),
            Some(_) => Err(Error::wrong_answer("a key that was never put is there")),
        }
    }
}
