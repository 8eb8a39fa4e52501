//! An embedded, ordered, durable key-value store whose indexes are learned.
//!
//! ```
//! use learnedkv::{Database, KeyspaceOptions};
//!
//! # fn main() -> learnedkv::Result<()> {
//! # let dir = std::env::temp_dir().join(format!("learnedkv-doc-{}", std::process::id()));
//! let db = Database::open(&dir)?;
//! let fruit = db.keyspace("fruit", KeyspaceOptions::default())?;
//! fruit.insert("apple", "red")?;
//! fruit.insert("banana", "yellow")?;
//! assert_eq!(fruit.get("apple")?.as_deref(), Some(&b"red"[..]));
//!
//! // A batch becomes visible and durable as one, across keyspaces.
//! let mut batch = db.batch();
//! batch.remove(&fruit, "apple");
//! batch.insert(&fruit, "cherry", "dark red");
//! batch.commit()?;
//!
//! // Read, think, write: nobody writes the key in between.
//! fruit.update("date", |old| old.is_none().then_some("brown"))?;
//! assert!(fruit.compare_and_swap("date", None, Some(b"black"))?.is_err());
//! fruit.remove("date")?;
//!
//! let names: Vec<_> = fruit.iter().map(|entry| Ok(entry?.0)).collect::<learnedkv::Result<_>>()?;
//! assert_eq!(names, ["banana", "cherry"]);
//! let c = fruit.prefix("c").keys().next().transpose()?; // values are not read
//! assert_eq!(c.as_deref(), Some(&b"cherry"[..]));
//! assert_eq!(fruit.size_of("cherry")?, Some(8));
//! db.close()?;
//! # std::fs::remove_dir_all(&dir).ok();
//! # Ok(())
//! # }
//! ```
//!
//! **Durability**: by default an acknowledged write survives the death of the process, not that of
//! the machine; see [`Durability`].

mod cache;
mod cursor;
mod db;
pub mod disk;
mod engine;
mod error;
pub mod executor;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(all(test, not(feature = "fuzzing")))]
mod fuzzing;
mod inspect;
mod lsm;
mod manifest;
mod memory;
mod memtable;
mod options;
mod slice;
mod sstable;
mod tiered;
mod value_log;
mod verify;
mod view;
mod wal;

pub use db::{
    Batch, Builder, CompareAndSwapError, Database, GetStats, Iter, Keys, Keyspace, KeyspaceStats,
    LevelStats, MAX_NAME_BYTES, Salvage, Sizes, Snapshot, Stats, ValueReader,
};
pub use engine::{DamagedSegment, DamagedTable, DatabaseHealth, OpenReport};
pub use error::{Error, ErrorKind, Result};
pub use format::compression::Compression;
pub use format::entry::MAX_KEY_BYTES;
pub use inspect::Inspect;
pub use options::{Durability, KeyspaceOptions, ReadOptions, Store, WriteOptions};
pub use slice::Slice;
pub use sstable::filter::FilterKind;
pub use sstable::index::IndexKind;
pub use tiered::ingest::Ingested;
pub use verify::{Verified, Verifying};
