//! Tables: immutable files of sorted entries, each user key at most once.
//!
//! [`writer`] makes them, [`reader`] finds keys in them, [`sought`] is what they are asked for, [`lookups`]
//! counts that, [`cursor`] walks them, how far is what [`lengths`] knows; [`index`] holds the
//! kinds of index, [`filter`] those of filters, [`generation`] is one over many tables,
//! [`partition`] decides where blocks end; [`check`] looks at all of a file. The bytes are `format`'s.

pub mod check;
pub mod cursor;
pub mod filter;
pub mod generation;
mod graveyard;
pub mod index;
pub mod lenders;
pub mod lengths;
pub mod lookups;
pub mod opening;
pub mod partition;
pub mod reader;
pub mod sought;
#[cfg(test)]
mod tests;
pub mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use self::graveyard::{Graveyard, Part, Retired};
use self::lookups::Lookups;
use self::sought::Reads;
use crate::format::entry::TableId;
use crate::format::name::{file_name, file_number};
use crate::memory::lines::Tally;

/// The file of a table.
pub fn table_path(dir: &Path, id: TableId) -> PathBuf {
    dir.join(file_name("table", id))
}

/// The table whose file is named `name`.
pub fn table_id(name: &str) -> Option<TableId> {
    file_number("table", name)
}

/// `bytes * numerator / denominator`, which is not zero: for sizes by a ratio.
pub fn scale(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    (u128::from(bytes) * u128::from(numerator) / u128::from(denominator)) as u64
}

/// What reading tables costs, counted as it happens.
#[derive(Debug, Default)]
pub struct ReadMetrics {
    /// Lookups of single keys.
    pub lookups: Lookups,
    /// Walks over entries, counted when they are over or begin anew.
    pub walks: Tally,
    /// Read requests to the disk for data blocks, and for indexes that are not kept in memory.
    pub requests: AtomicU64,
    /// Bytes they asked for.
    pub bytes: AtomicU64,
    /// Blocks found in the cache.
    pub cache_hits: Tally,
    /// Blocks read in the page cache, or decompressed from there, where their table is mapped.
    pub mapped_reads: Tally,
    /// How often a mapped block or value turned out not to be in the page cache any more.
    pub lost_mappings: AtomicU64,
    /// Requests that went around the system's cache because memory was short.
    pub around_requests: AtomicU64,
    /// Blocks found neither in the cache nor mapped.
    pub cache_misses: AtomicU64,
    /// Lookups whose index named blocks that do not hold the key's place, so that the blocks' own
    /// separators were searched.
    pub fallbacks: AtomicU64,
    /// Lookups whose index named more than is read at once, so that blocks were read one by one.
    pub wide_bounds: AtomicU64,
    /// Read requests to the disk for separated values.
    pub value_requests: AtomicU64,
    /// Bytes they asked for.
    pub value_bytes: AtomicU64,
    /// Separated values read in the page cache, where their segment is mapped.
    pub mapped_values: Tally,
    /// Longer ones read there, of which the system was asked whether it holds all of them.
    pub asked_values: Tally,
    /// Separated values that might have been, and were read by requests; of those longer ones none: no loss of theirs is
    /// noticed, so they say nothing of the page cache.
    pub value_misses: AtomicU64,
    /// Tables whose index could not be used and was rebuilt from their blocks.
    pub rebuilt_indexes: AtomicU64,
    /// Indexes read because their tables do not keep them in memory.
    pub index_loads: AtomicU64,
    /// Lookups of a table that its filter let pass, though the key is not there.
    pub filter_false_positives: AtomicU64,
    /// Filters that came into memory because misses paid for that: they were at rest, or made anew.
    pub attached_filters: AtomicU64,
    /// What open tables keep in memory to find blocks, bytes.
    pub metadata_bytes: AtomicU64,
    /// Bytes of tables and value segments that no View of now shows: snapshots and reads under way keep them.
    pub retired_bytes: AtomicU64,
    /// What reads in memory took longer than of settled data, in shares of a request (`lsm/paying.rs`).
    pub owed: Tally,
    /// Filters that could not be read and are done without.
    pub dropped_filters: AtomicU64,
}

impl ReadMetrics {
    /// Counts one read request of `bytes`, in `reads` too.
    pub fn request(&self, bytes: usize, reads: &Reads) {
        reads.add(1);
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts one read request of `bytes` for separated values, in `reads` too.
    pub fn value_request(&self, bytes: usize, reads: &Reads) {
        reads.add(1);
        self.value_requests.fetch_add(1, Relaxed);
        self.value_bytes.fetch_add(bytes as u64, Relaxed);
    }
}
