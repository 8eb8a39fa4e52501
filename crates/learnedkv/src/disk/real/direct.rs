//! Reads around the page cache: aligned in file offset, length and memory.

use std::cell::RefCell;
use std::fs::File;
use std::io::Result;

use super::platform;

/// Alignment that every common device and file system accepts.
pub(super) const ALIGNMENT_BYTES: usize = 4096;

/// Most bytes of one request, so that the scratch of a thread stays small.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 20;

thread_local! {
    /// Aligned reads land here, unless the caller's buffer is aligned itself.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Fills `buffer` from `offset_bytes` as far as the file goes; returns the bytes filled.
///
/// `file` must be open with `O_DIRECT`.
pub(super) fn read_up_to(file: &File, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
    if is_aligned(buffer, offset_bytes) {
        return read_aligned(file, buffer, offset_bytes);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let mut filled_bytes = 0;
        while filled_bytes < buffer.len() {
            let start = offset_bytes + filled_bytes as u64;
            let lead = (start % ALIGNMENT_BYTES as u64) as usize;
            let wanted = (buffer.len() - filled_bytes).min(MAX_REQUEST_BYTES - lead);
            let request = aligned_slice(scratch, (lead + wanted).next_multiple_of(ALIGNMENT_BYTES));
            let found = read_aligned(file, request, start - lead as u64)?;
            let usable = found.saturating_sub(lead).min(wanted);
            buffer[filled_bytes..filled_bytes + usable]
                .copy_from_slice(&request[lead..lead + usable]);
            filled_bytes += usable;
            if usable < wanted {
                break;
            }
        }
        Ok(filled_bytes)
    })
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
mod tests {
    use super::*;

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
}
