//! Where a table can be read again behind what cannot: for who salvages what is left.
//!
//! The index says where blocks lie, but not what a lost one held; the next one's lower separator does: all keys before it are
//! below that. Its own bytes say that it is one: their checksum is of the table's tag and of where they lie.

use super::Table;
use crate::disk::File;
use crate::format::block::{BLOCK_ALIGNMENT, Stored, peek};

/// So much is read at a time, bytes.
const WINDOW_BYTES: u64 = 16 << 10;
/// Of a file that cannot be read so much is passed over, bytes.
const PAGE_BYTES: u64 = 4 << 10;
/// No block is taken to be longer, bytes: a length may be garbage.
const LONGEST_BYTES: u64 = 4 << 20;

impl Table {
    /// The least key above `from` from which on it can be read again, behind what cannot be at byte `offset_bytes` of its file. Where
    /// no block of it can, that is behind its last key. `None`: nobody knows which keys it says are gone.
    pub fn readable_behind(&self, offset_bytes: Option<u64>, from: &[u8]) -> Option<Vec<u8>> {
        let properties = &self.record.properties;
        if self.damage.is_some() && properties.ranges > 0 {
            return None;
        }
        let found = match (&self.damage, self.file()) {
            (None, Ok(file)) => self.next_block(&*file, offset_bytes.unwrap_or(0), from),
            _ => None,
        };
        let end = || [properties.largest.as_slice().max(from), &[0]].concat();
        Some(found.unwrap_or_else(end))
    }

    /// The lower separator of the first block from `offset_bytes` on that can be read and has one above `from`.
    fn next_block(&self, file: &dyn File, offset_bytes: u64, from: &[u8]) -> Option<Vec<u8>> {
        let end = self.record.properties.data_bytes;
        let alignment = BLOCK_ALIGNMENT;
        let mut at = offset_bytes / alignment * alignment;
        while at < end {
            let mut window = vec![0; WINDOW_BYTES.min(end - at) as usize];
            // A read that fails once may not twice; what is passed over is lost.
            let mut read = || file.read_exact_at(&mut window, at);
            if read().or_else(|_| read()).is_err() {
                at = (at + 1).next_multiple_of(PAGE_BYTES);
                continue;
            }
            let mut inside = 0;
            while let Some((_, length)) = window.get(inside..).and_then(peek) {
                let start = at + inside as u64;
                let alone;
                let bytes = match window.get(inside..inside.saturating_add(length)) {
                    Some(bytes) => bytes,
                    None if length as u64 > LONGEST_BYTES.min(end - start) => &[],
                    None => {
                        let mut bytes = vec![0; length];
                        let is_read = file.read_exact_at(&mut bytes, start).is_ok();
                        alone = bytes;
                        if is_read { &alone[..] } else { &[] }
                    }
                };
                let found = Stored::check(bytes, self.record.tag, start).ok();
                let lower = found.as_ref().map(Stored::lower);
                if lower.as_ref().is_some_and(|lower| lower.as_slice() > from) {
                    return lower;
                }
                inside += match found {
                    Some(_) => length.next_multiple_of(alignment as usize),
                    None => alignment as usize,
                };
            }
            at += inside.max(alignment as usize) as u64;
        }
        None
    }
}
