//! Tables: immutable files of sorted entries, each user key at most once.
//!
//! [`writer`] makes them, [`reader`] finds keys in them, [`sought`] is what they are asked for, [`lookups`]
//! counts that, [`cursor`] walks them; [`index`] holds the
//! kinds of index, [`filter`] those of filters, [`generation`] is one over many tables,
//! [`partition`] decides where blocks end. The bytes are `format`'s.

pub mod cursor;
pub mod filter;
pub mod generation;
pub mod index;
pub mod lookups;
mod opening;
pub mod partition;
pub mod reader;
pub mod sought;
#[cfg(test)]
mod tests;
pub mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Mutex, PoisonError};

use self::lookups::Lookups;
use self::sought::Reads;
use crate::format::entry::TableId;
use crate::format::name::{file_name, file_number};

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
    /// Read requests to the disk for data blocks, and for indexes that are not kept in memory.
    pub requests: AtomicU64,
    /// Bytes they asked for.
    pub bytes: AtomicU64,
    /// Blocks found in the cache.
    pub cache_hits: AtomicU64,
    /// Blocks read in the page cache, where their table is mapped.
    pub mapped_reads: AtomicU64,
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
    pub mapped_values: AtomicU64,
    /// Separated values that might have been, and were read by requests.
    pub value_misses: AtomicU64,
    /// Tables whose index could not be used and was rebuilt from their blocks.
    pub rebuilt_indexes: AtomicU64,
    /// Indexes read because their tables do not keep them in memory.
    pub index_loads: AtomicU64,
    /// Lookups of a table that its filter ended, or that of its generation.
    pub filter_stops: AtomicU64,
    /// Lookups of a table that its filter let pass, though the key is not there.
    pub filter_false_positives: AtomicU64,
    /// Filters at rest that came into memory, because misses paid for that.
    pub attached_filters: AtomicU64,
    /// What open tables keep in memory to find blocks, bytes.
    pub metadata_bytes: AtomicU64,
    /// Bytes of tables and value segments that no View of now shows: snapshots and reads under way keep them.
    pub retired_bytes: AtomicU64,
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

/// A part of a file that no View uses any more.
pub trait Part: std::fmt::Debug + Send + Sync {
    /// Gives its space back; whether it did.
    fn give_back(&self) -> bool;
}

/// Files, and parts of files, that no View uses any more, to be removed by whoever looks.
pub struct Graveyard {
    files: Mutex<Vec<(PathBuf, u64)>>,
    /// What files take that were added and are not removed yet.
    bytes: AtomicU64,
    parts: Mutex<Vec<Box<dyn Part>>>,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Graveyard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Graveyard").field(&self.files).finish()
    }
}

impl Graveyard {
    /// An empty one. `tell` is called after each file that comes: the last reader of a file may be
    /// anybody, at any time.
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Graveyard {
        Graveyard {
            files: Mutex::default(),
            bytes: AtomicU64::new(0),
            parts: Mutex::default(),
            tell: Box::new(tell),
        }
    }

    /// Adds a file that takes so many bytes.
    pub fn add(&self, path: PathBuf, bytes: u64) {
        self.bytes.fetch_add(bytes, AcqRel);
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push((path, bytes));
        (self.tell)();
    }

    /// Adds a part of a file.
    pub fn add_part(&self, part: Box<dyn Part>) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        (self.tell)();
    }

    /// Takes all parts there are.
    pub fn take_parts(&self) -> Vec<Box<dyn Part>> {
        std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes all files there are, with what each takes. Whoever does says when they are [removed](Graveyard::removed).
    pub fn take(&self) -> Vec<(PathBuf, u64)> {
        std::mem::take(&mut *self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file was removed that took so many bytes.
    pub fn removed(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, AcqRel);
    }

    /// What files take that nobody uses any more and that are not removed yet.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Acquire)
    }
}
