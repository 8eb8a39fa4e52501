//! A log region mapped into memory: publishing is a copy, without a system call.
//!
//! The pages belong to the page cache, so published bytes survive the process. What could make a
//! store to a mapped page fault for good is ruled out or named in docs/TESTING.md: blocks are
//! reserved before mapping, and the database's lock keeps others from cutting the file.
//!
//! **Sync** is `msync(MS_SYNC)` over `[0, up_to)`. On Linux that is `fdatasync` limited to a range
//! (`vfs_fsync_range`, data only): it writes the dirty pages, commits the metadata needed to read
//! them, and flushes the device. Always from 0, because a record published late may lie below
//! an earlier sync; pages that are clean cost nothing. Full pages leave the address space before. Elsewhere `msync` stops at the system's
//! cache, and a sync of the file follows.
//!
//! Where each record is synced by itself it is written by a call, on Linux ([`by_calls`](super::by_calls)).

use std::fs;
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use memmap2::{MmapOptions, MmapRaw};

#[cfg(target_os = "linux")]
use super::by_calls::ByCalls;
#[cfg(target_os = "linux")]
use super::region_buffered::publish_by_call;
use crate::disk::region::Cursor;
use crate::disk::{LogRegion, Reservation};
use crate::error::{Error, Result};

/// A log region mapped into memory.
#[derive(Debug)]
pub(super) struct MappedRegion {
    path: PathBuf,
    /// Linux syncs through the mapping: of a segment that has ended, which may still be needed, nothing but that is open.
    #[cfg(not(target_os = "linux"))]
    file: fs::File,
    map: MmapRaw,
    cursor: Cursor,
    /// Pages below it were taken out of the address space, since it was made ready.
    #[cfg(target_os = "linux")]
    let_go_to: AtomicUsize,
    #[cfg(target_os = "linux")]
    by_calls: ByCalls,
}

/// So many bytes are populated at a time.
#[cfg(target_os = "linux")]
const POPULATED_BYTES: usize = 1 << 20;
/// No page is smaller.
#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 4096;

/// Fewer pages than that are left to the system.
#[cfg(target_os = "linux")]
const FEWEST_LET_GO: usize = 4;

/// Takes the page faults of `from..to` now, so that writers do not. In pieces: while one is populated, whoever wants another
/// mapping in this process waits (a writer that needs memory, say). A hint: old kernels refuse it.
#[cfg(target_os = "linux")]
fn populate(map: &MmapRaw, from: usize, to: usize) {
    for start in (from..to).step_by(POPULATED_BYTES) {
        let length = POPULATED_BYTES.min(to - start);
        if map.advise_range(memmap2::Advice::PopulateWrite, start, length).is_err() {
            return;
        }
    }
}

impl MappedRegion {
    /// Maps `file`, which holds `length_bytes` reserved zero bytes; gives the file back if the
    /// system refuses.
    pub(super) fn new(
        path: &Path,
        file: fs::File,
        length_bytes: u64,
    ) -> std::result::Result<MappedRegion, fs::File> {
        let Ok(map) = MmapOptions::new().len(length_bytes as usize).map_raw(&file) else {
            return Err(file);
        };
        // Until it is made ready: the page of the header, which is synced at once, is to be a small one.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::Random);
        Ok(MappedRegion {
            path: path.to_path_buf(),
            #[cfg(not(target_os = "linux"))]
            file,
            map,
            cursor: Cursor::new(length_bytes),
            #[cfg(target_os = "linux")]
            let_go_to: AtomicUsize::new(0),
            #[cfg(target_os = "linux")]
            by_calls: ByCalls::new(file),
        })
    }

    /// Takes the pages that are full by now out of the address space, all at once. Else the system does that when it writes
    /// them, one by one, and interrupts every processor that runs a thread of ours for each (18 us a page, measured: decision 57).
    /// Nobody writes there again but whoever reserved before and publishes late: he has a fault.
    #[cfg(target_os = "linux")]
    #[allow(unsafe_code)]
    fn let_go(&self, to: usize) {
        let from = self.let_go_to.load(Relaxed);
        if to < from + FEWEST_LET_GO * PAGE_BYTES {
            return;
        }
        self.let_go_to.store(to, Relaxed);
        // SAFETY: the range is within the map, which is shared and of a file: what was written there is the file's, in the page
        // cache, before and after. References into the range stay valid: whoever comes there has the page mapped again.
        // A hint: where it is refused, nothing is lost.
        let _ = unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, to - from)
        };
    }

    /// The reserved bytes. Takes the reservation, so that it is used once.
    #[allow(unsafe_code)]
    #[allow(clippy::mut_from_ref)] // Exclusive by the reservation, see below.
    fn reserved_bytes(&self, reservation: Reservation) -> &mut [u8] {
        self.cursor.assert_own(&reservation);
        // In bounds: `Cursor::reserve` never goes past the capacity, which is the map's length.
        let offset = reservation.offset_bytes() as usize;
        debug_assert!(offset + reservation.length_bytes() <= self.map.len());
        // SAFETY: the range is in bounds of a live, writable mapping that `self` keeps. This
        // cursor made the reservation (asserted), never makes two that overlap, and reservations
        // can be neither copied nor used twice; nothing else here reads or writes the mapping. So
        // the reference is exclusive. Other readers of the file go through system calls, and the
        // bytes have no invalid values. `begin_again` makes another cursor, but has the region for itself:
        // no such reference is left, and reservations of the cursor before are refused above.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.map.as_mut_ptr().add(offset),
                reservation.length_bytes(),
            )
        }
    }
}

impl LogRegion for MappedRegion {
    fn capacity_bytes(&self) -> u64 {
        self.cursor.capacity_bytes()
    }

    /// Where the system reads ahead it makes large folios of its cache, which are written as a whole: 16 KiB and
    /// more for each record that is synced by itself, where a page would do. They cost fewer faults.
    #[cfg(target_os = "linux")]
    fn expect_syncs(&self, synced_often: bool) {
        if !synced_often {
            let _ = self.map.advise(memmap2::Advice::Normal);
        }
        self.by_calls.expect_syncs(&self.path, synced_often);
    }

    #[cfg(target_os = "linux")]
    fn make_ready(&self, bytes: Range<u64>) {
        let end = (bytes.end as usize).min(self.map.len());
        self.let_go_to.fetch_min(bytes.start as usize, Relaxed);
        populate(&self.map, bytes.start as usize, end);
    }

    #[cfg(target_os = "linux")]
    fn end(&self) {
        self.by_calls.end();
    }

    /// What of its memory was not let go is ready already. Whoever has the region for himself holds no reserved bytes of it, and
    /// reservations made before are refused: the new cursor has an id of its own.
    fn begin_again(&mut self, path: &Path) -> bool {
        self.path = path.to_path_buf();
        self.cursor = Cursor::new(self.cursor.capacity_bytes());
        #[cfg(target_os = "linux")]
        self.let_go_to.store(0, Relaxed);
        true
    }

    fn reserve(&self, length_bytes: usize) -> Option<Reservation> {
        self.cursor.reserve(length_bytes)
    }

    fn publish(&self, reservation: Reservation, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(file) = self.by_calls.for_next(reservation.length_bytes()) {
            self.cursor.assert_own(&reservation);
            return publish_by_call(&file, &self.path, reservation, fill);
        }
        fill(self.reserved_bytes(reservation));
        Ok(())
    }

    fn sync(&self, up_to_bytes: u64) -> Result<()> {
        let length = up_to_bytes.min(self.capacity_bytes()) as usize;
        #[cfg(target_os = "linux")]
        let is_next_by_call = self.by_calls.begin_sync();
        #[cfg(target_os = "linux")]
        self.let_go(length - length % PAGE_BYTES);
        let synced = self.map.flush_range(0, length);
        #[cfg(not(target_os = "linux"))]
        let synced = synced.and_then(|()| self.file.sync_data());
        synced.map_err(|e| Error::io("sync the log", &self.path, &e))?;
        // The page that the next record begins in was written, and is protected: writing to it is a fault
        // again, which may wait for the file system's journal. Not by the writer.
        #[cfg(target_os = "linux")]
        if !is_next_by_call {
            let page = length - length % PAGE_BYTES;
            populate(&self.map, page, (page + PAGE_BYTES).min(self.map.len()));
        }
        Ok(())
    }
}
