//! The value segments that a memtable's pointers lead into: each a very long value of its own, written
//! before the commit that names it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::value_log::{Segment, Segments};

/// A memtable of so many bytes is also full when that many times as much was streamed past it: what is
/// overwritten stays on the disk until a flush finds that nothing points at it.
const BYTES_TO_ONE: u64 = 8;

/// Segments held for as long as the memtable lives.
#[derive(Debug, Default)]
pub struct Streamed {
    segments: Mutex<Segments>,
    bytes: AtomicU64,
}

impl Streamed {
    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a segment that an operation which comes here next points into.
    pub fn hold(&self, segment: Arc<Segment>) {
        // One that is missing counts too: by this is known whether there is any.
        self.bytes.fetch_add(segment.file_bytes().max(1), Relaxed);
        self.segments().insert(segment);
    }

    /// The segment of that number.
    pub fn get(&self, id: u64) -> Option<Arc<Segment>> {
        if self.bytes.load(Relaxed) == 0 {
            return None;
        }
        self.segments().get(id).cloned()
    }

    /// Why the first of them that could not be opened could not be; `None` if all could.
    pub fn damage(&self) -> Option<Error> {
        if self.bytes.load(Relaxed) == 0 {
            return None;
        }
        self.segments().damage().cloned()
    }

    /// All of them.
    pub fn all(&self) -> Segments {
        self.segments().clone()
    }

    /// What their files take, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Whether so much was streamed that a memtable of `memtable_bytes` is to be flushed for it.
    pub fn is_much(&self, memtable_bytes: usize) -> bool {
        self.bytes() >= memtable_bytes as u64 * BYTES_TO_ONE
    }
}
