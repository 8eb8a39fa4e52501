//! The one seam between workloads and stores: the [`Engine`] trait, one file per engine.
//!
//! An engine is opened by name through [`opener`]; nothing outside this folder asks which one it
//! is. Rivals are behind cargo features, none of them on by default: [`NAMES`] knows them all the
//! same.

pub mod btree_map;
#[cfg(feature = "fjall")]
pub mod fjall;
pub mod learnedkv;
#[cfg(feature = "lmdb")]
pub mod lmdb;
mod names;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::names::{BASELINE, BLOBDB, Kind, NAMES, Name, known};
use ::learnedkv::Compression;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// An ordered key-value store under test. Shared by all client threads.
pub trait Engine: Send + Sync {
    /// Stores `value` under `key`, replacing what was there. When it returns, the write is
    /// acknowledged at the durability that was opened with.
    ///
    /// # Errors
    /// If the store could not.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Stores every value of `entries` under its key, and removes the keys without one, by one commit
    /// where the engine has such (else one by one). Keys are distinct; acknowledged as one write is.
    ///
    /// # Errors
    /// If the store could not.
    fn write_many(&self, entries: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        entries.iter().try_for_each(|(key, value)| match value {
            Some(value) => self.insert(key, value),
            None => self.remove(key),
        })
    }

    /// Calls `found` with the value of `key`, once, if there is one; returns whether there was. A
    /// callback, so that an engine that can lend its bytes need not copy them.
    ///
    /// # Errors
    /// If the store could not.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Looks `keys` up by one call, where the engine has one; calls `found` with the number of each
    /// key that is there, and its value.
    ///
    /// # Errors
    /// If the store could not.
    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (number, key) in keys.iter().enumerate() {
            self.get(key, &mut |value| found(number, value))?;
        }
        Ok(())
    }

    /// Removes `key` if it is there.
    ///
    /// # Errors
    /// If the store could not.
    fn remove(&self, key: &[u8]) -> Result<()>;

    /// Calls `visit` with every entry from `start` (inclusive) on, ascending, until it returns
    /// `false` or there are no more. Everything is seen as of one moment.
    ///
    /// # Errors
    /// If the store could not.
    fn scan(&self, start: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;

    /// Calls `visit` with every entry from `from` (inclusive) to `to` (exclusive), ascending, until it
    /// returns `false`. Nothing where both are the same; `from` is never above `to`. The engine is told
    /// where it ends, and need not look beyond. Everything is seen as of one moment.
    ///
    /// # Errors
    /// If the store could not.
    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    /// Takes in entries that come in strictly ascending key order.
    ///
    /// # Errors
    /// If the store could not.
    fn ingest(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        for (key, value) in entries {
            self.insert(&key, &value)?;
        }
        Ok(())
    }

    /// Brings everything acknowledged into the store's lasting form, and waits for it.
    ///
    /// # Errors
    /// If the store could not.
    fn flush(&self) -> Result<()>;

    /// Flushes and waits until the store has no maintenance of its own left to do. Nothing is asked of it
    /// that it would not do by itself: its users find it so.
    ///
    /// # Errors
    /// If the store could not.
    fn settle(&self) -> Result<()>;

    /// Compacts all there is by the store's own full compaction, if it has one, and settles. It has the
    /// store to itself.
    ///
    /// # Errors
    /// If the store could not.
    fn compact(&mut self) -> Result<()> {
        self.settle()
    }

    /// Of the last [`Engine::settle`] or [`Engine::compact`], how long this program only looked on, to be sure
    /// that nothing followed: no time of the store's.
    fn looked_on(&self) -> Duration {
        Duration::ZERO
    }

    /// Which version of the store this is; nothing if it is of this program.
    fn version(&self) -> String {
        String::new()
    }

    /// What was found in the store's cache so far, where it counts that and was asked to.
    fn cache_counts(&self) -> Option<CacheCounts> {
        None
    }

    /// What the store says about itself.
    fn stats(&self) -> EngineStats;

    /// Ends it in good order.
    ///
    /// # Errors
    /// If the store could not; what was acknowledged is still safe at its durability.
    fn close(self: Box<Self>) -> Result<()>;
}

/// How often a block (or blob) was found in an engine's cache, and how often not, since it was
/// opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCounts {
    /// Found.
    pub hits: u64,
    /// Not found.
    pub misses: u64,
}

impl CacheCounts {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: CacheCounts) -> CacheCounts {
        CacheCounts {
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
        }
    }

    /// The share that was found, per cent, if anything was looked for.
    #[must_use]
    pub fn percent(self) -> Option<f64> {
        let all = (self.hits + self.misses) as f64;
        (all > 0.0).then(|| self.hits as f64 * 100.0 / all)
    }
}

/// What an engine says about itself, for reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineStats {
    /// For people: printed as it is.
    pub text: String,
    /// For programs: names that end in their unit.
    pub figures: Vec<(String, f64)>,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the operating system has it: survives the death of the process, not of the machine.
    Buffered,
    /// When the operating system has it; the disk has it at most so many milliseconds later.
    SyncedEvery(u64),
    /// When the disk has it.
    Synced,
}

impl std::str::FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Durability> {
        match text {
            "buffered" => Ok(Durability::Buffered),
            "synced" => Ok(Durability::Synced),
            _ => {
                let period = text.strip_prefix("every-").and_then(|t| t.strip_suffix("ms"));
                period.and_then(|ms| ms.parse().ok()).map(Durability::SyncedEvery).ok_or_else(|| {
                    Error::usage(format!(
                        "unknown durability `{text}`; expected buffered (survives the death of the \
                         process), synced (survives the death of the machine), or between them \
                         every-100ms (synced so long after the write at most)"
                    ))
                })
            }
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Durability::Buffered => f.write_str("buffered"),
            Durability::SyncedEvery(period_ms) => write!(f, "every-{period_ms}ms"),
            Durability::Synced => f.write_str("synced"),
        }
    }
}

/// How blocks that lie on the disk are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// Where the operating system holds them, if the engine can; else as [`Reads::Buffered`].
    #[default]
    Mapped,
    /// By calls, through the operating system's cache.
    Buffered,
    /// By calls, around the operating system's cache.
    Direct,
}

impl std::str::FromStr for Reads {
    type Err = Error;

    fn from_str(text: &str) -> Result<Reads> {
        match text {
            "mapped" => Ok(Reads::Mapped),
            "buffered" => Ok(Reads::Buffered),
            "direct" => Ok(Reads::Direct),
            _ => Err(Error::usage(format!(
                "unknown way to read `{text}`; expected mapped, buffered or direct"
            ))),
        }
    }
}

impl Reads {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reads::Mapped => "mapped",
            Reads::Buffered => "buffered",
            Reads::Direct => "direct",
        }
    }
}

impl std::fmt::Display for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How to open an engine. `None` leaves the engine's own default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSettings {
    /// The directory it lives in; created if missing.
    pub dir: PathBuf,
    /// All memory the engine may hold, in bytes.
    pub memory_budget_bytes: Option<u64>,
    /// When a memtable is flushed, in bytes.
    pub memtable_bytes: Option<u64>,
    /// The most a data block holds, in bytes.
    pub block_size_bytes: Option<u64>,
    /// How data blocks are compressed.
    pub compression: Option<Compression>,
    /// The same for what has come to rest, where an engine makes a difference.
    pub settled_compression: Option<Compression>,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// How blocks are read.
    pub reads: Reads,
    /// Options of the engine's own, by name, set when the store is made.
    pub options: Vec<(String, String)>,
}

impl OpenSettings {
    /// The defaults, at `dir`.
    #[must_use]
    pub fn at(dir: &Path) -> OpenSettings {
        OpenSettings {
            dir: dir.to_path_buf(),
            memory_budget_bytes: None,
            memtable_bytes: None,
            block_size_bytes: None,
            compression: None,
            settled_compression: None,
            durability: Durability::Buffered,
            reads: Reads::default(),
            options: Vec::new(),
        }
    }
}

/// Opens an engine.
pub type Opener = fn(&OpenSettings) -> Result<Box<dyn Engine>>;

/// Every engine of this build: its name on the command line and how to open it. The first is the
/// default.
pub const ENGINES: &[(&str, Opener)] = &[
    ("learnedkv", learnedkv::open),
    ("learnedkv-lsm", learnedkv::open_lsm),
    (BASELINE, learnedkv::open_baseline),
    ("btree-map", btree_map::open),
    #[cfg(feature = "fjall")]
    ("fjall", fjall::open),
    #[cfg(feature = "fjall")]
    ("fjall-separated", fjall::open_separated),
    #[cfg(feature = "lmdb")]
    ("lmdb", lmdb::open),
    #[cfg(feature = "lmdb")]
    ("lmdb-write-map", lmdb::open_write_map),
    #[cfg(feature = "redb")]
    ("redb", redb::open),
    #[cfg(feature = "rocksdb")]
    ("rocksdb", rocksdb::open),
    #[cfg(feature = "rocksdb")]
    ("rocksdb-mapped", rocksdb::open_mapped),
    #[cfg(feature = "rocksdb")]
    (BLOBDB, rocksdb::open_blob),
];

/// The opener of the engine called `name`.
///
/// # Errors
/// If this build has no such engine; if there is one, the error says what to build.
pub fn opener(name: &str) -> Result<Opener> {
    if let Some((_, opener)) = ENGINES.iter().find(|(known, _)| *known == name) {
        return Ok(*opener);
    }
    if let Some(known) = NAMES.iter().find(|known| known.name == name) {
        return Err(Error::usage(format!(
            "this build has no engine `{name}`; build learnedkv-bench with `--features {}`",
            known.feature
        )));
    }
    let known: Vec<&str> = ENGINES.iter().map(|(known, _)| *known).collect();
    Err(Error::usage(format!("unknown engine `{name}`; this build has {}", known.join(", "))))
}

/// Whether writes are to be synced one by one, for an engine that has no clock of its own.
///
/// # Errors
/// If what is asked for lies between: a rival that syncs more often than asked is not measured.
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb", feature = "rocksdb"))]
fn synced(settings: &OpenSettings, engine: &str) -> Result<bool> {
    match settings.durability {
        Durability::Buffered => Ok(false),
        Durability::Synced => Ok(true),
        Durability::SyncedEvery(_) => Err(Error::usage(format!(
            "{engine} has no durability `{}`; expected buffered or synced",
            settings.durability
        ))),
    }
}

/// The error for an option that `engine` does not have.
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb"))]
fn unknown_option(engine: &str, name: &str, has: &str) -> Error {
    Error::usage(format!("option {name}: {engine} has {has}"))
}

/// What is left of a memory budget for a cache when two memtables are taken off: the one that is
/// written and the one that is being flushed. At least an eighth of the budget.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn cache_bytes(budget_bytes: u64, memtable_bytes: u64) -> u64 {
    budget_bytes.saturating_sub(2 * memtable_bytes).max(budget_bytes / 8)
}

/// The memtable of an engine that is given only a budget: an eighth of it.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn memtable_bytes(settings: &OpenSettings) -> Option<u64> {
    let of_budget = |budget: u64| (budget / 8).clamp(1 << 20, 64 << 20);
    settings.memtable_bytes.or(settings.memory_budget_bytes.map(of_budget))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_known_and_a_missing_one_says_how_to_build_it() {
        for (name, _) in ENGINES {
            assert!(known(name).is_some(), "{name} is not in NAMES");
        }
        for name in NAMES {
            let built = ENGINES.iter().any(|(built, _)| *built == name.name);
            match opener(name.name) {
                Ok(_) => assert!(built, "{}", name.name),
                Err(error) => {
                    let words = format!("--features {}", name.feature);
                    assert!(!built && error.to_string().contains(&words), "{error}");
                }
            }
        }
        assert!(opener("nosuch").unwrap_err().to_string().starts_with("unknown engine `nosuch`"));
    }
}
