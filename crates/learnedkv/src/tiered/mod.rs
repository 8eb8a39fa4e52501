//! The default store: fresh writes in an LSM part, settled data in partitions with learned indexes.
//!
//! Recency is structural: memtables, runs, frozen part, delta, base. The first that holds a key
//! holds its newest version, and no job ever places older data above newer.
//!
//! [`read`] looks up and walks, [`many`] looks many keys up at once, [`flush`] writes memtables to
//! runs, [`merge`] keeps runs few, [`sweep`] settles, [`attach`] gives settled tables filters,
//! [`ingest`] takes sorted data in bulk, [`estimate`] reckons without reading. This room knows the
//! engine and its parts; it never knows the API above it.

mod attach;
mod debt;
pub mod estimate;
pub mod flush;
pub mod ingest;
mod jobs;
pub mod many;
mod merge;
mod output;
pub mod read;
mod sweep;

pub use attach::is_due as filter_is_due;
pub use jobs::spawn;
pub use merge::MAX_RUNS;
