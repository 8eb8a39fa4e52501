//! Options of a single write or read.

use super::Durability;
use crate::sstable::cursor::Walk;
use crate::sstable::reader::Caching;
use crate::sstable::sought::Asking;

/// How one write is done; [`Durability`] alone serves too, wherever these are asked for.
///
/// ```
/// # use learnedkv::{Database, Durability, KeyspaceOptions, WriteOptions};
/// # fn main() -> learnedkv::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("learnedkv-write-options-{}", std::process::id()));
/// # let db = Database::open(&dir)?;
/// let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
/// accounts.insert_with("alice", "100", Durability::Synced)?;
/// accounts.insert_with("bob", "7", WriteOptions::default())?; // as the database was opened
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct WriteOptions {
    durability: Option<Durability>,
}

impl WriteOptions {
    /// When the write is durable; by default as the database was opened ([`crate::Builder::durability`]).
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    pub(crate) fn durability_or(&self, default: Durability) -> Durability {
        self.durability.unwrap_or(default)
    }
}

impl From<Durability> for WriteOptions {
    fn from(durability: Durability) -> WriteOptions {
        WriteOptions::default().durability(durability)
    }
}

/// How one read is done. Checksums are always verified: there is no option to trust the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct ReadOptions {
    fill_cache: bool,
    at_once: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { fill_cache: true, at_once: false }
    }
}

impl ReadOptions {
    /// Whether blocks that were read go into the cache; on by default. Off for a scan of much that
    /// is read once (a backup, an export): it then leaves the cache to those who come back. Blocks
    /// that are in the cache serve it all the same.
    pub fn fill_cache(mut self, fill: bool) -> Self {
        self.fill_cache = fill;
        self
    }

    /// Whether a lookup asks all tables that may hold its key at once, instead of one after the other, newest
    /// first; off by default. (The concurrent probing of LearnedKV.)
    /// Several cold reads then take little longer than one, but those of older tables are for nothing
    /// where a newer one answers. It pays where nothing else says which tables hold a key: those of the LSM part
    /// without filters (`lsm_filter(None)`), of data that is not in memory. Indexes that are paged are still read one
    /// after the other; where a table cannot be read, all are asked again in turn: so a damaged one fails nobody whom
    /// a newer one answers. Scans always look at all tables.
    pub fn at_once(mut self, at_once: bool) -> Self {
        self.at_once = at_once;
        self
    }

    pub(crate) fn asking(&self) -> Asking {
        let caching = if self.fill_cache { Caching::Fill } else { Caching::Leave };
        Asking { caching, at_once: self.at_once }
    }

    pub(crate) fn walk(&self) -> Walk {
        if self.fill_cache { Walk::Cached } else { Walk::Uncached }
    }
}
