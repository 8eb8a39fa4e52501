//! What every log region shares: handing out places, and errors worded alike.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::Reservation;
use crate::error::{Error, Result};

/// Hands out the bytes of one region, in order, without locks.
///
/// Invariant: no two reservations of one cursor overlap, and none reaches past the capacity. The
/// mapped region's `unsafe` code rests on it.
#[derive(Debug)]
pub(in crate::disk) struct Cursor {
    region: u64,
    capacity_bytes: u64,
    next_bytes: AtomicU64,
}

impl Cursor {
    /// A cursor at the start of a new region, with an id that no other region of this process has.
    pub(in crate::disk) fn new(capacity_bytes: u64) -> Cursor {
        static NEXT_REGION: AtomicU64 = AtomicU64::new(0);
        Cursor {
            region: NEXT_REGION.fetch_add(1, Ordering::Relaxed),
            capacity_bytes,
            next_bytes: AtomicU64::new(0),
        }
    }

    pub(in crate::disk) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Whether anything was reserved.
    pub(in crate::disk) fn is_begun(&self) -> bool {
        self.next_bytes.load(Ordering::Relaxed) > 0
    }

    /// The next `length_bytes` bytes, or `None` if so many are not left.
    pub(in crate::disk) fn reserve(&self, length_bytes: usize) -> Option<Reservation> {
        let offset_bytes = self
            .next_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                let end = next.checked_add(length_bytes as u64)?;
                (end <= self.capacity_bytes).then_some(end)
            })
            .ok()?;
        Some(Reservation::new(self.region, offset_bytes, length_bytes))
    }

    /// Panics unless this cursor made the reservation.
    pub(in crate::disk) fn assert_own(&self, reservation: &Reservation) {
        assert_eq!(reservation.region, self.region, "published in another region than reserved in");
    }
}

/// Refuses lengths that no region can have.
pub(in crate::disk) fn check_length(path: &Path, length_bytes: u64) -> Result<()> {
    if length_bytes == 0 || usize::try_from(length_bytes).is_err() {
        return Err(Error::invalid(format!(
            "a log region cannot have {length_bytes} bytes; give it at least one, and no more than \
             the address space holds"
        ))
        .at_path(path));
    }
    Ok(())
}

/// The error of a read past the end of a file.
pub(in crate::disk) fn short_read(
    path: &Path,
    offset_bytes: u64,
    expected_bytes: usize,
    found_bytes: usize,
) -> Error {
    Error::corruption(format!(
        "expected {expected_bytes} bytes, found {found_bytes} before the end of the file; it was cut \
         or never wholly written: restore it from a copy"
    ))
    .at_path(path)
    .at_offset(offset_bytes)
}

/// The error of a lock that is held.
pub(in crate::disk) fn locked(path: &Path) -> Error {
    Error::new(
        crate::error::ErrorKind::Locked,
        "another process, or another handle of this one, holds this lock; close the database there \
         (the lock goes with its process) and open it again",
    )
    .at_path(path)
}
