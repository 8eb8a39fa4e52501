//! What is counted.

use std::sync::atomic::AtomicU64;

use super::busy::Busy;
use super::rates::Ends;

/// What the engine did since it was opened, counted as it happens.
#[derive(Debug, Default)]
pub struct EngineMetrics {
    /// Memtables flushed.
    pub flushes: AtomicU64,
    /// Flushes that were committed before the log was synced so far: it holds nothing else.
    pub unlogged_flushes: AtomicU64,
    /// Bytes of tables written by flushes.
    pub flushed_bytes: AtomicU64,
    /// Steps of sweeps committed.
    pub sweep_steps: AtomicU64,
    /// Of them those that were begun ahead.
    pub steps_ahead: AtomicU64,
    /// Sweeps that reached the end.
    pub sweeps: AtomicU64,
    /// Bytes of tables written by sweeps.
    pub swept_bytes: AtomicU64,
    /// Tables that were written over files of others.
    pub recycled_tables: AtomicU64,
    /// Bytes of tables and values written by merges of runs.
    pub merged_bytes: AtomicU64,
    /// Merges of runs that wrote values anew, instead of a sweep.
    pub rewrites: AtomicU64,
    /// Merges of runs that reads had paid for.
    pub merges_for_reads: AtomicU64,
    /// Compactions of levels committed that wrote tables.
    pub compactions: AtomicU64,
    /// Bytes of the tables and values they wrote.
    pub compacted_bytes: AtomicU64,
    /// Tables that went down a level without being written.
    pub moved_tables: AtomicU64,
    /// Times that a snapshot's memtables were written to a table of its own.
    pub spills: AtomicU64,
    /// Bytes of keys and values that users put.
    pub put_bytes: AtomicU64,
    /// When memtables were flushed.
    pub flushing: Busy,
    /// When runs were merged, data was settled, and levels compacted.
    pub settling: Busy,
    /// When any of these was under way.
    pub background: Busy,
    /// Where flushes ended.
    pub flush_ends: Ends,
    /// Bytes of keys and values put that were flushed: of what is put meanwhile a flush says nothing.
    pub flushed_put_bytes: AtomicU64,
    /// Where sweeps, compactions and rewritings ended.
    pub settle_ends: Ends,
    /// When writers waited: for their pace, or for a flush.
    pub held_back: Busy,
}
