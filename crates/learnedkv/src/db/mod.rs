//! What users hold: databases, keyspaces, batches, snapshots, iterators.

mod atomic;
mod batch;
mod builder;
mod database;
mod iter;
mod keyspace;
mod operation;
mod reads;
mod salvage;
mod snapshot;
mod stats;
mod stream;

pub use atomic::CompareAndSwapError;
pub use batch::Batch;
pub use builder::Builder;
pub use database::{Database, MAX_NAME_BYTES};
pub use iter::{Iter, Keys, Sizes};
pub use keyspace::Keyspace;
pub use salvage::Salvage;
pub use snapshot::Snapshot;
pub use stats::{GetStats, KeyspaceStats, LevelStats, Stats};
pub use stream::ValueReader;
