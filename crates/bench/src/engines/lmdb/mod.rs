//! LMDB: a copy-on-write B-tree in a memory map.
//!
//! *Tuned* as its users have it: one write transaction per write, readers with thread-local slots
//! (its default: a thread takes the mutex of the reader table once, and not at each get), one
//! transaction for each read, of what was committed last, kept when it is over and renewed for the
//! next (`mdb_txn_reset`, `mdb_txn_renew`, as its documentation advises), the unnamed database, a map of 256 GiB (address space, not memory). It has no cache
//! of its own: what it holds is the operating system's cache of its file, which a memory budget
//! does not bound; a cgroup does. It reads ahead, as is its default, unless `read_ahead=false`
//! (`MDB_NORDAHEAD`, which it recommends for random reads of data larger than memory).
//! `lmdb-write-map` is it with `MDB_WRITEMAP`: commits write into the map and not by calls; off by default,
//! as in LMDB, and then the file is as long as the map at once, though sparse.
//!
//! *Durability*: without `MDB_WRITEMAP` a commit writes its pages and then its root by `pwrite`, so
//! that `MDB_NOSYNC` is exactly "the operating system has it": it survives the death of the
//! process, and if the *machine* dies the file may be torn, for nothing orders the root after the
//! pages. With `MDB_WRITEMAP` the same holds, since a map's pages are the system's. Synced is
//! LMDB's default: the pages are synced before the root is, at each commit. (`MDB_NOMETASYNC` would
//! sync the pages and not the root: neither of the two.)

mod ffi;

use std::fs;

use ffi::{Environment, LmdbError, Opening, Writing};

use super::{Engine, EngineStats, OpenSettings, Reads, synced};
use crate::{Error, Result};

/// Room for the map: more than any store here. Only what is written takes space.
const MAP_BYTES: usize = 256 << 30;
/// Reader slots: more than client threads.
const READERS: u32 = 2048;
/// Entries of an ingest that go into one transaction.
const INGEST_BATCH: usize = 10_000;

/// An open environment.
struct Lmdb {
    environment: Environment,
}

/// Opens an environment, making one where there is none.
///
/// # Errors
/// Those of LMDB, and settings it has no counterpart for.
pub fn open(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    open_as(settings, false)
}

/// The same with `MDB_WRITEMAP`.
///
/// # Errors
/// As [`open`].
pub fn open_write_map(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    open_as(settings, true)
}

fn open_as(settings: &OpenSettings, write_map: bool) -> Result<Box<dyn Engine>> {
    let synced = synced(settings, "lmdb")?;
    if settings.compression.is_some_and(|asked| asked != ::learnedkv::Compression::None) {
        return Err(Error::usage("lmdb has no compression"));
    }
    if settings.reads == Reads::Direct {
        return Err(Error::usage("lmdb reads through the operating system's cache alone"));
    }
    let mut asked =
        Opening { map_bytes: MAP_BYTES, readers: READERS, synced, read_ahead: true, write_map };
    for (name, value) in &settings.options {
        match (name.as_str(), value.parse()) {
            ("read_ahead", Ok(value)) => asked.read_ahead = value,
            _ => {
                let has = "read_ahead, true or false";
                return Err(super::unknown_option("lmdb", name, has));
            }
        }
    }
    let dir = &settings.dir;
    fs::create_dir_all(dir).map_err(|e| Error::io("create it", dir, &e))?;
    let environment = Environment::open(dir, &asked).map_err(|e| told("opening", e))?;
    Ok(Box::new(Lmdb { environment }))
}

fn told(action: &str, error: LmdbError) -> Error {
    Error::engine(&format!("lmdb: {action}"), error)
}

impl Lmdb {
    /// One transaction of `work`.
    fn write(
        &self,
        action: &str,
        work: impl FnOnce(&mut Writing<'_>) -> ffi::Result<()>,
    ) -> Result<()> {
        let told = |e| told(action, e);
        let mut transaction = self.environment.write().map_err(told)?;
        work(&mut transaction).map_err(told)?;
        transaction.commit().map_err(told)
    }

    /// Visits the entries from `start` on, and before `end` if there is one.
    fn walk(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let told = |e| told("a scan", e);
        let transaction = self.environment.read().map_err(told)?;
        for entry in transaction.entries_from(start).map_err(told)? {
            let (key, value) = entry.map_err(told)?;
            if end.is_some_and(|end| key >= end) || !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl Engine for Lmdb {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write("an insert", |transaction| transaction.put(key, value))
    }

    fn write_many(&self, entries: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        self.write("a batch", |transaction| {
            entries.iter().try_for_each(|(key, value)| match value {
                Some(value) => transaction.put(key, value),
                None => transaction.delete(key),
            })
        })
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.environment.read().map_err(|e| told("a get", e))?;
        let value = transaction.get(key).map_err(|e| told("a get", e))?;
        Ok(value.map(found).is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let told = |e| told("a get of many", e);
        let transaction = self.environment.read().map_err(told)?;
        for (number, key) in keys.iter().enumerate() {
            if let Some(value) = transaction.get(key).map_err(told)? {
                found(number, value);
            }
        }
        Ok(())
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.write("a removal", |transaction| transaction.delete(key))
    }

    fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.walk(start, None, visit)
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.walk(from, Some(to), visit)
    }

    fn ingest(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        let mut more = true;
        while more {
            self.write("an ingest", |transaction| {
                for _ in 0..INGEST_BATCH {
                    let Some((key, value)) = entries.next() else {
                        more = false;
                        break;
                    };
                    transaction.put(&key, &value)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.environment.sync().map_err(|e| told("a sync", e))
    }

    fn settle(&self) -> Result<()> {
        // Nothing is done in the background; what the system still has to write back is waited for.
        self.flush()
    }

    fn version(&self) -> String {
        let [major, minor, patch] = ffi::version();
        let built = env!("LEARNEDKV_VERSION_OF_LMDB_MASTER_SYS");
        format!("{major}.{minor}.{patch} (lmdb-master-sys {built})")
    }

    fn stats(&self) -> EngineStats {
        let stat = self.environment.read().and_then(|transaction| transaction.stat());
        let Ok(stat) = stat else { return EngineStats::default() };
        let branch_bytes = stat.ms_branch_pages * stat.ms_psize as usize;
        let figures: Vec<(String, f64)> = [
            ("entries", stat.ms_entries as f64),
            ("depth", f64::from(stat.ms_depth)),
            ("branch_pages", stat.ms_branch_pages as f64),
            ("leaf_pages", stat.ms_leaf_pages as f64),
            ("overflow_pages", stat.ms_overflow_pages as f64),
            ("metadata_bits_per_entry", branch_bytes as f64 * 8.0 / stat.ms_entries.max(1) as f64),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into();
        let lines = figures.iter().map(|(name, value)| format!("{name} {value:.1}\n"));
        EngineStats { text: lines.collect(), figures }
    }

    fn close(self: Box<Self>) -> Result<()> {
        // The environment is closed when it is dropped.
        self.flush()
    }
}
