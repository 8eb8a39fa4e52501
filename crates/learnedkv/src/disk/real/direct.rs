//! Reads around the page cache: aligned in file offset, length and memory.

use std::cell::Cell;
use std::fs::File;
use std::io::Result;
use std::thread::LocalKey;

use super::Readers;
use super::awake::Turn;
use super::platform::{self, RawRead};

/// Alignment that every common device and file system accepts.
pub(super) const ALIGNMENT_BYTES: usize = 4096;

/// Most bytes of one request, so that the scratch of a thread stays small.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Larger reads are not waited for awake: the device takes its time for them.
const MOST_AWAKE_BYTES: usize = 32 << 10;

thread_local! {
    /// Aligned reads land here, unless the caller's buffer is aligned itself.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// And those that are waited for awake here; the kernel has it meanwhile.
    static LENT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Fills `buffer` from `offset_bytes` as far as the file goes; returns the bytes filled.
///
/// `file` must be open with `O_DIRECT`.
pub(super) fn read_up_to(file: &File, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
    if is_aligned(buffer, offset_bytes) {
        return read_aligned(file, buffer, offset_bytes);
    }
    let mut scratch = take(&SCRATCH);
    let mut filled_bytes = 0;
    while filled_bytes < buffer.len() {
        let start = offset_bytes + filled_bytes as u64;
        let lead = (start % ALIGNMENT_BYTES as u64) as usize;
        let wanted = (buffer.len() - filled_bytes).min(MAX_REQUEST_BYTES - lead);
        let length = (lead + wanted).next_multiple_of(ALIGNMENT_BYTES);
        let request = aligned_slice(&mut scratch, length);
        let found = read_aligned(file, request, start - lead as u64)?;
        let usable = found.saturating_sub(lead).min(wanted);
        buffer[filled_bytes..filled_bytes + usable].copy_from_slice(&request[lead..lead + usable]);
        filled_bytes += usable;
        if usable < wanted {
            break;
        }
    }
    give_back(&SCRATCH, scratch);
    Ok(filled_bytes)
}

/// This thread's; an empty one where the thread ends, and what it had is gone.
fn take(buffer: &'static LocalKey<Cell<Vec<u8>>>) -> Vec<u8> {
    buffer.try_with(Cell::take).unwrap_or_default()
}

fn give_back(place: &'static LocalKey<Cell<Vec<u8>>>, buffer: Vec<u8>) {
    // Where the thread ends there is nobody to keep it for.
    let _ = place.try_with(|place| place.set(buffer));
}

/// Whether a read of so many bytes may be waited for awake.
pub(super) fn is_small(length_bytes: usize) -> bool {
    (1..=MOST_AWAKE_BYTES).contains(&length_bytes)
}

/// Fills `buffer` from `offset_bytes` by a read that [`is_small`], and is waited for awake as long as it is the `turn` for that.
/// False: it is to be read as if this had not been tried.
pub(super) fn read_awake(
    readers: &Readers,
    turn: &Turn<'_>,
    file: &File,
    buffer: &mut [u8],
    offset_bytes: u64,
) -> bool {
    let lead = (offset_bytes % ALIGNMENT_BYTES as u64) as usize;
    let length = (lead + buffer.len()).next_multiple_of(ALIGNMENT_BYTES);
    let mut scratch = take(&LENT);
    scratch.resize(length + ALIGNMENT_BYTES, 0);
    let start = scratch.as_ptr().align_offset(ALIGNMENT_BYTES);
    scratch.truncate(start + length);
    let offset_bytes = offset_bytes - lead as u64;
    let read = RawRead { file, offset_bytes, buffer: scratch, start };
    let mut is_filled = false;
    let mut fill = |_, RawRead { buffer: scratch, .. }: RawRead<'_>, found: Result<usize>| {
        if found.is_ok_and(|found| found >= lead + buffer.len()) {
            buffer.copy_from_slice(&scratch[start + lead..][..buffer.len()]);
            is_filled = true;
        }
        give_back(&LENT, scratch);
    };
    readers.rings.read_awake(read, &mut fill, turn);
    if !is_filled {
        readers.awake.fail();
    }
    is_filled
}

fn is_aligned(buffer: &[u8], offset_bytes: u64) -> bool {
    offset_bytes.is_multiple_of(ALIGNMENT_BYTES as u64)
        && buffer.len().is_multiple_of(ALIGNMENT_BYTES)
        && buffer.as_ptr().align_offset(ALIGNMENT_BYTES) == 0
}

/// Like [`platform::read_up_to`], but never asks again at an unaligned offset: a direct read stops
/// short only at the end of the file.
fn read_aligned(file: &File, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
    let mut filled_bytes = 0;
    while filled_bytes < buffer.len() {
        let found = platform::read_once(
            file,
            &mut buffer[filled_bytes..],
            offset_bytes + filled_bytes as u64,
        )?;
        filled_bytes += found;
        if found == 0 || !found.is_multiple_of(ALIGNMENT_BYTES) {
            break;
        }
    }
    Ok(filled_bytes)
}

/// The first aligned `length_bytes` of `scratch`, grown as needed.
fn aligned_slice(scratch: &mut Vec<u8>, length_bytes: usize) -> &mut [u8] {
    let needed = length_bytes + ALIGNMENT_BYTES;
    if scratch.len() < needed {
        scratch.resize(needed, 0);
    }
    let start = scratch.as_ptr().align_offset(ALIGNMENT_BYTES);
    &mut scratch[start..start + length_bytes]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use learnedkv_skips::skip;

    use super::*;
    use crate::disk::real::awake::Awake;

    #[test]
    fn scratch_slices_are_aligned_at_every_size() {
        let mut scratch = Vec::new();
        for blocks in [1, 2, 7, 256, 3] {
            let slice = aligned_slice(&mut scratch, blocks * ALIGNMENT_BYTES);
            assert!(is_aligned(slice, 0));
            assert_eq!(slice.len(), blocks * ALIGNMENT_BYTES);
            assert!(!is_aligned(&slice[1..], 0));
        }
    }

    /// Wherever it begins, however long it is; and what goes beyond the file's end is left to who says so.
    #[test]
    fn what_is_waited_for_awake_is_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let written: Vec<u8> = (0..100_000u32).map(|at| (at * 7 / 5) as u8).collect();
        std::fs::write(&path, &written).unwrap();
        let file = platform::open_direct(&path).unwrap().unwrap_or(File::open(&path).unwrap());
        // One that has not waited in vain yet.
        let readers = || Readers { awake: Awake::alone(1), ..Readers::default() };
        if !readers().rings.are_allowed() {
            return skip("io_uring", "the kernel gives none, so that nobody waits awake");
        }
        let reads = |readers: &Readers, read: &mut [u8], offset: u64| {
            let turn = readers.awake.begin().turn().unwrap();
            read_awake(readers, &turn, &file, read, offset)
        };
        for (offset, length) in
            [(0, 1), (0, 4096), (1, 4096), (4095, 2), (8192, 32 << 10), (99_990, 10)]
        {
            let mut read = vec![0; length];
            assert!(is_small(length));
            assert!(reads(&readers(), &mut read, offset as u64), "{offset} {length}");
            assert!(read == written[offset..offset + length], "{offset} {length}");
        }
        assert!(!is_small(0) && !is_small((32 << 10) + 1));
        for (offset, length) in [(99_990, 11), (200_000, 1)] {
            let in_vain = readers();
            assert!(!reads(&in_vain, &mut vec![0; length], offset), "{offset} {length}");
            assert!(in_vain.awake.begin().turn().is_none(), "it is not tried in vain each time");
        }
    }

    /// It ended the process: by then the thread's buffers are gone.
    #[test]
    fn what_a_thread_leaves_behind_may_read_as_it_goes() {
        struct Reads(File, Readers);
        impl Drop for Reads {
            fn drop(&mut self) {
                let mut read = [0; 5];
                assert_eq!(read_up_to(&self.0, &mut read, 1).unwrap(), 5);
                if let Some(turn) = self.1.awake.begin().turn() {
                    read_awake(&self.1, &turn, &self.0, &mut read, 1);
                }
                assert_eq!(read, *b"earne");
            }
        }
        thread_local!(static LAST: Cell<Option<Reads>> = const { Cell::new(None) });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "learned").unwrap();
        let reads = Reads(File::open(&path).unwrap(), Readers::default());
        let thread = std::thread::spawn(|| {
            // Made before this thread's buffers are, so it goes after them.
            LAST.set(Some(reads));
            let is_read = LAST.with(|last| {
                let reads = last.take().unwrap();
                let found = read_up_to(&reads.0, &mut [0; 5], 1).unwrap();
                last.set(Some(reads));
                found
            });
            assert_eq!(is_read, 5);
        });
        thread.join().unwrap();
    }
}
