//! A log region of positional writes: one system call a record. It is not begun again: there is no memory that
//! would be ready, and a sync of one record would write all that is left of what the file held.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use super::platform;
use crate::disk::region::Cursor;
use crate::disk::{LogRegion, Reservation};
use crate::error::{Error, Result};

/// A thread keeps so much at most for its next record.
const KEPT_BYTES: usize = 1 << 20;

thread_local! {
    /// Records are put together here before they are written.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A log region whose records are written by system calls.
#[derive(Debug)]
pub(super) struct BufferedRegion {
    path: PathBuf,
    file: fs::File,
    cursor: Cursor,
}

impl BufferedRegion {
    /// `file` holds `length_bytes` reserved zero bytes.
    pub(super) fn new(path: &Path, file: fs::File, length_bytes: u64) -> BufferedRegion {
        BufferedRegion { path: path.to_path_buf(), file, cursor: Cursor::new(length_bytes) }
    }
}

/// Has `fill` write a record, and writes that at its place in `file`, the region `path`.
///
/// # Errors
/// `Io` or `DiskFull`.
pub(super) fn publish_by_call(
    file: &fs::File,
    path: &Path,
    reservation: Reservation,
    fill: &mut dyn FnMut(&mut [u8]),
) -> Result<()> {
    let offset_bytes = reservation.offset_bytes();
    // Taken out, not borrowed: `fill` may publish in another region.
    // Where the thread ends, it may be gone by now.
    let mut record = RECORD.try_with(RefCell::take).unwrap_or_default();
    record.clear();
    record.resize(reservation.length_bytes(), 0);
    fill(&mut record);
    let written = platform::write_all_at(file, &record, offset_bytes);
    if record.capacity() <= KEPT_BYTES {
        let _ = RECORD.try_with(|kept| kept.replace(record));
    }
    written.map_err(|e| Error::io("write a log record", path, &e).at_offset(offset_bytes))
}

impl LogRegion for BufferedRegion {
    fn capacity_bytes(&self) -> u64 {
        self.cursor.capacity_bytes()
    }

    fn reserve(&self, length_bytes: usize) -> Option<Reservation> {
        self.cursor.reserve(length_bytes)
    }

    fn publish(&self, reservation: Reservation, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.cursor.assert_own(&reservation);
        publish_by_call(&self.file, &self.path, reservation, fill)
    }

    fn sync(&self, _up_to_bytes: u64) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync the log", &self.path, &e))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// It ended the process: by then the thread's record is gone. (As reads did.)
    #[test]
    fn what_a_thread_leaves_behind_may_write_as_it_goes() {
        struct Writes(BufferedRegion);
        impl Writes {
            fn write(&self) {
                let reservation = self.0.reserve(8).unwrap();
                self.0.publish(reservation, &mut |out| out.copy_from_slice(b"learned ")).unwrap();
            }
        }
        impl Drop for Writes {
            fn drop(&mut self) {
                self.write();
            }
        }
        thread_local!(static LAST: Cell<Option<Writes>> = const { Cell::new(None) });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = fs::File::create(&path).unwrap();
        let writes = Writes(BufferedRegion::new(&path, file, 64));
        let thread = std::thread::spawn(|| {
            // Made before this thread's record is, so it goes after it.
            LAST.set(Some(writes));
            LAST.with(|last| {
                let writes = last.take().unwrap();
                writes.write();
                last.set(Some(writes));
            });
        });
        thread.join().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"learned learned ");
    }
}
