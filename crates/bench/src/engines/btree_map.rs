//! The naive baseline: a `BTreeMap` behind a lock, all in memory, and (if it has a directory) a log
//! of every operation that is replayed at opening. It is the oracle that the workloads are tested
//! against, and the floor that shows what the measuring itself costs.
//!
//! ```text
//! log record:  key length (4, LE)  value length (4, LE; u32::MAX: removed)  key  value
//!              XXH3-64 of all that (8, LE)
//! ```
//! Replay stops at the first record that is cut or damaged and cuts the log there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use xxhash_rust::xxh3::xxh3_64;

use super::{Durability, Engine, EngineStats, OpenSettings};
use crate::{Error, Result};

/// Stands for "removed" in a log record's value length.
const REMOVED: u32 = u32::MAX;
/// The log's name in its directory.
const LOG_NAME: &str = "btree-map.log";

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// See the module.
#[derive(Debug, Default)]
pub struct BTreeMapEngine {
    map: RwLock<Map>,
    log: Option<Log>,
}

#[derive(Debug)]
struct Log {
    file: Mutex<File>,
    path: PathBuf,
    synced: bool,
}

/// Opens the baseline with a log in the directory of `settings`.
///
/// # Errors
/// If the log cannot be read or written.
pub fn open(settings: &OpenSettings) -> Result<Box<dyn Engine>> {
    let path = settings.dir.join(LOG_NAME);
    fs::create_dir_all(&settings.dir).map_err(|e| Error::io("create it", &settings.dir, &e))?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|e| Error::io("open the log", &path, &e))?;
    let bytes = fs::read(&path).map_err(|e| Error::io("read the log", &path, &e))?;
    let mut map = Map::new();
    let whole = replay(&bytes, &mut map) as u64;
    file.set_len(whole)
        .and_then(|()| file.seek(SeekFrom::Start(whole)))
        .map_err(|e| Error::io("cut the log", &path, &e))?;
    // It has no clock of its own: at least as durable as was asked for.
    let synced = settings.durability != Durability::Buffered;
    let log = Log { file: Mutex::new(file), path, synced };
    Ok(Box::new(BTreeMapEngine { map: RwLock::new(map), log: Some(log) }))
}

/// Applies the whole records of `bytes` to `map`; returns where they end.
fn replay(bytes: &[u8], map: &mut Map) -> usize {
    let word = |at: usize| {
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(four))
    };
    let mut at = 0;
    loop {
        let (Some(key_length), Some(value_length)) = (word(at), word(at + 4)) else { return at };
        let value_bytes = if value_length == REMOVED { 0 } else { value_length as usize };
        let key_end = at + 8 + key_length as usize;
        let end = key_end + value_bytes;
        let Some(sum) = bytes.get(end..end + 8) else { return at };
        if sum != xxh3_64(&bytes[at..end]).to_le_bytes() {
            return at;
        }
        let key = bytes[at + 8..key_end].to_vec();
        if value_length == REMOVED {
            map.remove(&key);
        } else {
            map.insert(key, bytes[key_end..end].to_vec());
        }
        at = end + 8;
    }
}

impl BTreeMapEngine {
    /// One that forgets everything.
    #[must_use]
    pub fn in_memory() -> BTreeMapEngine {
        BTreeMapEngine::default()
    }

    /// Logs an operation, then applies it: both under the map's lock, so that their orders agree.
    fn write(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = &self.log {
            log.append(key, value)?;
        }
        match value {
            Some(value) => map.insert(key.to_vec(), value.to_vec()),
            None => map.remove(key),
        };
        Ok(())
    }
}

impl BTreeMapEngine {
    /// Visits the entries between `bounds`.
    fn walk(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in map.range::<[u8], _>(bounds) {
            if !visit(key, value) {
                break;
            }
        }
    }
}

impl Log {
    fn append(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let length = |bytes: usize| {
            u32::try_from(bytes).ok().filter(|&l| l != REMOVED).ok_or_else(|| {
                Error::runtime(format!(
                    "a key or value of {bytes} bytes is too long for this engine"
                ))
            })
        };
        let value_length = value.map_or(Ok(REMOVED), |v| length(v.len()))?;
        let mut record = Vec::with_capacity(16 + key.len() + value.map_or(0, <[u8]>::len));
        record.extend_from_slice(&length(key.len())?.to_le_bytes());
        record.extend_from_slice(&value_length.to_le_bytes());
        record.extend_from_slice(key);
        record.extend_from_slice(value.unwrap_or_default());
        record.extend_from_slice(&xxh3_64(&record).to_le_bytes());
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&record)
            .and_then(|()| if self.synced { file.sync_data() } else { Ok(()) })
            .map_err(|e| Error::io("append to the log", &self.path, &e))
    }
}

impl Engine for BTreeMapEngine {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(key, Some(value))
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        Ok(map.get(key).map(|value| found(value)).is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        self.write(key, None)
    }

    fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.walk((Bound::Included(start), Bound::Unbounded), visit);
        Ok(())
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.walk((Bound::Included(from), Bound::Excluded(to)), visit);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let file = log.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.sync_data().map_err(|e| Error::io("sync the log", &log.path, &e))
    }

    fn settle(&self) -> Result<()> {
        self.flush()
    }

    fn stats(&self) -> EngineStats {
        let entries = self.map.read().unwrap_or_else(PoisonError::into_inner).len();
        EngineStats {
            text: format!("entries {entries}, all in memory"),
            figures: vec![("entries".to_string(), entries as f64)],
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

/// Whether `dir` holds a store of this engine.
#[must_use]
pub fn is_store(dir: &Path) -> bool {
    dir.join(LOG_NAME).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reopened_store_has_everything_up_to_the_first_damaged_record() {
        let dir = tempfile::tempdir().unwrap();
        let settings = OpenSettings::at(dir.path());
        let engine = open(&settings).unwrap();
        engine.insert(b"a", b"1").unwrap();
        engine.insert(b"b", b"2").unwrap();
        engine.remove(b"a").unwrap();
        let path = dir.path().join(LOG_NAME);
        let whole = fs::metadata(&path).unwrap().len();
        engine.insert(b"c", b"3").unwrap();
        engine.close().unwrap();
        let entries = || {
            let mut seen = Vec::new();
            let engine = open(&settings).unwrap();
            engine
                .scan(b"", &mut |k, v| {
                    seen.push([k, v].concat());
                    true
                })
                .unwrap();
            seen
        };
        assert_eq!(entries(), [b"b2".to_vec(), b"c3".to_vec()]);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(fs::metadata(&path).unwrap().len() - 1).unwrap();
        assert_eq!(entries(), [b"b2".to_vec()]);
        assert_eq!(fs::metadata(&path).unwrap().len(), whole, "the cut record is gone");
    }
}
