//! Records of a mapped region that are written by calls all the same.
//!
//! A page that was synced is protected. The next store to it is a fault, which is taken beforehand by who syncs, and costs him as
//! much. A call that writes costs less than that fault, and more than a copy: so a record is written by a call where just one came
//! between the last two syncs, as where one client syncs each of his commits (decision 72 has the figures).
//!
//! Calls and stores write to the same pages of the system's cache, whichever of them comes to a page first: each is seen by
//! the other, by who reads the file, and by the sync.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use arc_swap::ArcSwapOption;

/// Longer records are copied: to put one together and write it is two copies more, and a fault is one of its first page.
const MOST_BYTES: usize = 16 << 10;

/// Whether the next record of a region is written by a call, and the file to do it with. Counts are imprecise among threads: no
/// record depends on them.
#[derive(Debug)]
pub(super) struct ByCalls {
    /// Kept while short syncs are expected: of a segment that has ended nothing is to be open.
    file: ArcSwapOption<fs::File>,
    synced_often: AtomicBool,
    /// How many were published since the last sync; a long one counts for two.
    published: AtomicU32,
    /// Whether just one was between the last two syncs.
    was_one: AtomicBool,
}

impl ByCalls {
    /// Of a region of `file`, of which nothing is expected yet.
    pub(super) fn new(file: fs::File) -> ByCalls {
        ByCalls {
            file: ArcSwapOption::from_pointee(file),
            synced_often: AtomicBool::new(false),
            published: AtomicU32::new(0),
            was_one: AtomicBool::new(false),
        }
    }

    /// The region's file, which is named `path`, is kept for short syncs, or no longer. Where it is to be opened again and
    /// cannot be, all is copied.
    pub(super) fn expect_syncs(&self, path: &Path, synced_often: bool) {
        if !synced_often {
            self.end();
        } else if self.file.load().is_none() {
            self.file.store(fs::OpenOptions::new().write(true).open(path).ok().map(Arc::new));
        }
        self.published.store(0, Relaxed);
        self.was_one.store(false, Relaxed);
        self.synced_often.store(synced_often && self.file.load().is_some(), Relaxed);
    }

    /// Nothing more is published, but for what was reserved before: no file is kept.
    pub(super) fn end(&self) {
        self.synced_often.store(false, Relaxed);
        self.was_one.store(false, Relaxed);
        self.file.store(None);
    }

    /// Counts a record of so many bytes: the file, if it is to be written by a call.
    pub(super) fn for_next(&self, length_bytes: usize) -> Option<Arc<fs::File>> {
        if !self.synced_often.load(Relaxed) {
            return None;
        }
        let is_short = length_bytes <= MOST_BYTES;
        let is_first = self.published.fetch_add(if is_short { 1 } else { 2 }, Relaxed) == 0;
        let is_by_call = is_first && is_short && self.was_one.load(Relaxed);
        is_by_call.then(|| self.file.load_full()).flatten()
    }

    /// A sync begins; whether the record that comes next is written by a call. Where none came since the last sync it is as it was.
    pub(super) fn begin_sync(&self) -> bool {
        let published = self.published.swap(0, Relaxed);
        if published > 0 {
            self.was_one.store(published == 1 && self.synced_often.load(Relaxed), Relaxed);
        }
        self.was_one.load(Relaxed)
    }
}
