//! The one file of the command that touches a store.

use std::path::Path;

use learnedkv_bench::engines::learnedkv::open_database;
use learnedkv_bench::engines::{Engine, EngineStats, OpenSettings};
use learnedkv_bench::{Error, Result};

/// The engine that `learnedkv bench` measures.
pub const ENGINE: &str = "learnedkv";

/// An open database.
pub struct Store {
    engine: Box<dyn Engine>,
}

impl Store {
    /// Opens the database at `dir`, which must be one.
    pub fn open(dir: &Path) -> Result<Store> {
        if !dir.exists() {
            return Err(Error::usage(format!("{}: there is no such directory", dir.display())));
        }
        Ok(Store { engine: open_database(&OpenSettings::at(dir), false)? })
    }

    /// Opens the database at `dir`, or makes one if the directory is missing or empty.
    pub fn open_or_create(dir: &Path) -> Result<Store> {
        Ok(Store { engine: open_database(&OpenSettings::at(dir), true)? })
    }

    /// Stores `value` under `key`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.engine.insert(key, value)
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.engine.get(key, &mut |value| found = Some(value.to_vec()))?;
        Ok(found)
    }

    /// Removes `key`.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.engine.remove(key)
    }

    /// Shows `visit` every entry from `start` on until it returns `false`.
    pub fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.engine.scan(start, visit)
    }

    /// Takes in entries in ascending key order.
    pub fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        self.engine.ingest(entries)
    }

    /// What the store says about itself.
    pub fn stats(&self) -> EngineStats {
        self.engine.stats()
    }

    /// Closes it in good order: an error here means that something may not have reached the disk.
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }
}
