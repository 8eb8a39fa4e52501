//! Chunks whose separators are byte strings, front-coded.
//!
//! # Layout
//! ```text
//! strings := offset_width:u8, entry_bytes:varint, offsets, entries
//! offsets := offset_width bits for each restart but the first, padded to a byte: where its entry
//!            begins in the entries
//! entry   := head:u8, [shared - 31:varint], [suffix_bytes - 8:varint], suffix
//! head    := min(shared, 31) << 3 | min(suffix_bytes - 1, 7)
//! ```
//! `shared` bytes are those of the separator before; the chunk's prefix is left out everywhere. Every
//! sixteenth entry is a restart and shares none. The optional fields stand where a part of the head
//! is at its greatest.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::common_prefix;
use crate::bytes::Reader;
use crate::error::DecodeError;
use crate::monotone::bits::read;

/// Entries from one restart to the next.
pub(super) const RESTART: usize = 16;

/// A byte-separator chunk's body, read in place.
#[derive(Debug)]
pub(super) struct Strings<'a> {
    count: u64,
    offset_width: u32,
    offsets: &'a [u8],
    entries: &'a [u8],
}

/// One entry.
struct Entry<'a> {
    shared: usize,
    suffix: &'a [u8],
}

impl<'a> Strings<'a> {
    /// Reads a body behind its prefix. `count` inner separators are expected.
    pub fn read(reader: &mut Reader<'a>, count: u64) -> Result<Self, DecodeError> {
        let offset_width = u32::from(reader.u8("a width")?).min(64);
        let entry_bytes = reader.varint("a length of entries")?;
        let offsets = reader.remaining().saturating_sub(entry_bytes as usize);
        let offsets = reader.take(offsets, "restarts")?;
        let entries = reader.take(reader.remaining(), "entries")?;
        Ok(Self { count, offset_width, offsets, entries })
    }

    /// Bytes of the restarts and entries.
    pub fn encoded_bytes(&self) -> usize {
        self.offsets.len() + self.entries.len()
    }

    /// The entries from restart `restart` on; none if there is no such place.
    fn from_restart(&self, restart: u64) -> &'a [u8] {
        let Some(index) = restart.checked_sub(1) else { return self.entries };
        let at = index.wrapping_mul(self.offset_width.into());
        let offset = read(self.offsets, at as usize, self.offset_width);
        self.entries.get(offset as usize..).unwrap_or_default()
    }

    /// How many inner separators are at most `key`, both without the chunk's prefix.
    pub fn rank(&self, key: &[u8]) -> u64 {
        // Invariant: every restart below `low` is at most `key`, none from `high` on is.
        let (mut low, mut high) = (0, self.count.div_ceil(RESTART as u64));
        while low < high {
            let middle = low + (high - low) / 2;
            let at_most =
                next(&mut self.from_restart(middle)).is_some_and(|entry| entry.suffix <= key);
            if at_most { low = middle + 1 } else { high = middle }
        }
        let Some(restart) = low.checked_sub(1) else { return 0 };
        let first = restart * RESTART as u64;
        first + self.rank_from(restart, (self.count - first).min(RESTART as u64), key)
    }

    /// How many of the `count` separators from a restart on are at most `key`.
    ///
    /// `matched` is what `key` shares with the last separator that was. If the next one shares more
    /// with that separator, it relates to `key` in the same way; if less, it has parted upwards from
    /// both; if as much, the suffix decides.
    fn rank_from(&self, restart: u64, count: u64, key: &[u8]) -> u64 {
        let mut rest = self.from_restart(restart);
        let mut matched = 0;
        for rank in 0..count {
            let Some(entry) = next(&mut rest) else { return rank };
            if entry.shared > matched {
                continue;
            }
            let tail = key.get(matched..).unwrap_or_default();
            if entry.shared < matched || entry.suffix > tail {
                return rank;
            }
            matched += common_prefix(entry.suffix, tail);
        }
        count
    }

    /// Inner separator `i`, from 1, without the chunk's prefix.
    pub fn separator(&self, i: u64) -> Vec<u8> {
        let index = i.saturating_sub(1);
        let mut rest = self.from_restart(index / RESTART as u64);
        let mut separator = Vec::new();
        for _ in 0..=index % RESTART as u64 {
            let Some(entry) = next(&mut rest) else { break };
            separator.truncate(entry.shared);
            separator.extend_from_slice(entry.suffix);
        }
        separator
    }
}

/// Takes the next entry off `rest`.
#[inline]
fn next<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (&head, mut after) = rest.split_first()?;
    let (mut shared, mut length) = (usize::from(head >> 3), usize::from(head & 7) + 1);
    if head >> 3 == 31 || head & 7 == 7 {
        let mut reader = Reader::new(after);
        if head >> 3 == 31 {
            shared = shared.saturating_add(reader.varint("shared bytes").ok()? as usize);
        }
        if head & 7 == 7 {
            length = length.saturating_add(reader.varint("suffix bytes").ok()? as usize);
        }
        after = after.get(reader.offset()..)?;
    }
    let (suffix, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(Entry { shared, suffix })
}
