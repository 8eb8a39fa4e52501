//! An embedded, ordered, durable key-value store whose indexes are learned.

mod cache;
mod cursor;
pub mod disk;
pub mod error;
pub mod executor;
mod format;
mod memtable;
mod slice;
mod sstable;
