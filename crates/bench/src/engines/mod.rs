//! The one seam between workloads and stores: the [`Engine`] trait, one file per engine.
//!
//! An engine is opened by name through [`opener`]; nothing outside this folder asks which one it is.

pub mod btree_map;
pub mod learnedkv;

use std::path::{Path, PathBuf};

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

    /// Flushes and waits until no maintenance is left to do: the state that reads are measured in.
    ///
    /// # Errors
    /// If the store could not.
    fn settle(&self) -> Result<()>;

    /// What the store says about itself.
    fn stats(&self) -> EngineStats;

    /// Ends it in good order.
    ///
    /// # Errors
    /// If the store could not; what was acknowledged is still safe at its durability.
    fn close(self: Box<Self>) -> Result<()>;
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

impl std::fmt::Display for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reads::Mapped => "mapped",
            Reads::Buffered => "buffered",
            Reads::Direct => "direct",
        })
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
pub const ENGINES: &[(&str, Opener)] =
    &[("learnedkv", learnedkv::open), ("btree-map", btree_map::open)];

/// The opener of the engine called `name`.
///
/// # Errors
/// If this build has no such engine.
pub fn opener(name: &str) -> Result<Opener> {
    ENGINES.iter().find(|(known, _)| *known == name).map(|(_, opener)| *opener).ok_or_else(|| {
        let known: Vec<&str> = ENGINES.iter().map(|(known, _)| *known).collect();
        Error::usage(format!("unknown engine `{name}`; this build has {}", known.join(", ")))
    })
}
