//! Chunks whose separators are byte strings, front-coded in characters of few bits.
//!
//! # Layout
//! ```text
//! strings   := unit_bits:u8, shared_bits:u8, units_bits:u8, offset_bits:u8, bits
//! bits      := (restarts - 1) offsets of offset_bits, then the entries; padded to a byte
//! entry     := shared:number(shared_bits), units:number(units_bits), units * unit_bits
//! number(n) := n bits; if all of them are ones, 32 bits more that are added to it
//! ```
//! Every sixteenth entry is a *restart*; an offset is the bit, counted from the first entry, where
//! one begins. An entry shares its first bytes with the entry before; a restart with the restart
//! before; the first with the chunk's head. The chunk's prefix is left out everywhere (also of the
//! head, which counts as empty where the prefix does not lie in it).
//!
//! A unit below `2^unit_bits - 1` is the byte at that place of the directory's alphabet; the greatest
//! says that the two units after it are a byte itself, low bits first. Units of 8 bits are bytes.
//!
//! The separators `orchard/b`, `orchard/c` and `q` above the head `orchard/apple`, in a directory
//! whose alphabet is `cq`, with flags and prefix:
//! ```text
//! 02 00                   strings; a prefix of no bytes
//! 04 04 03 00             units of 4 bits; 4 bits of shared bytes, 3 of units; no offsets
//! b8 17 c3 00 24 00       shares 8, 3 units: 15 and then 0x62, b; shares 8, 1 unit: 0; shares 0, 1: 1
//! ```

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::common_prefix;
use crate::bytes::Reader;
use crate::error::DecodeError;
use crate::monotone::bits::{mask, read};

/// Entries from one restart to the next.
pub(super) const RESTART: usize = 16;

/// A byte-separator chunk's body, read in place.
#[derive(Debug)]
pub(super) struct Strings<'a> {
    count: u64,
    unit_bits: u32,
    shared_bits: u32,
    units_bits: u32,
    offset_bits: u32,
    bits: &'a [u8],
    alphabet: &'a [u8],
}

/// One entry: its characters are the `units` units from bit `at` on.
#[derive(Clone, Copy)]
struct Entry {
    shared: usize,
    at: usize,
    units: usize,
}

impl<'a> Strings<'a> {
    /// Reads a body behind its prefix. `count` inner separators are expected.
    #[inline]
    pub fn read(
        reader: &mut Reader<'a>,
        count: u64,
        alphabet: &'a [u8],
    ) -> Result<Self, DecodeError> {
        let unit_bits = u32::from(reader.u8("bits of a unit")?).clamp(1, 8);
        let shared_bits = u32::from(reader.u8("bits of a shared length")?).min(32);
        let units_bits = u32::from(reader.u8("bits of a count of units")?).min(32);
        let offset_bits = u32::from(reader.u8("bits of an offset")?).min(64);
        let bits = reader.take(reader.remaining(), "entries")?;
        Ok(Self { count, unit_bits, shared_bits, units_bits, offset_bits, bits, alphabet })
    }

    /// Bytes of the restarts and entries.
    pub fn encoded_bytes(&self) -> usize {
        self.bits.len()
    }

    /// Where restart `index` begins.
    #[inline]
    fn restart(&self, index: u64) -> usize {
        let restarts = self.count.div_ceil(RESTART as u64);
        let width = u64::from(self.offset_bits);
        let entries = restarts.saturating_sub(1).wrapping_mul(width);
        let offset = match index.checked_sub(1) {
            None => 0,
            Some(index) => read(self.bits, index.wrapping_mul(width) as usize, self.offset_bits),
        };
        entries.wrapping_add(offset) as usize
    }

    /// The entry at bit `at`; none past the end.
    #[inline]
    fn entry(&self, mut at: usize) -> Option<Entry> {
        if at >> 3 >= self.bits.len() {
            return None;
        }
        let mut number = |width: u32| {
            let low = read(self.bits, at, width);
            at += width as usize;
            if low < mask(width) {
                return low as usize;
            }
            let more = read(self.bits, at, 32);
            at += 32;
            (low + more) as usize
        };
        let (shared, units) = (number(self.shared_bits), number(self.units_bits));
        Some(Entry { shared, at, units })
    }

    /// The bit behind an entry.
    #[inline]
    fn behind(&self, entry: Entry) -> usize {
        entry.at.saturating_add(entry.units.saturating_mul(self.unit_bits as usize))
    }

    /// The bytes of an entry, as many as there are bits for.
    fn characters(&self, entry: Entry) -> impl Iterator<Item = u8> + '_ {
        let escape = if self.unit_bits == 8 { u64::MAX } else { mask(self.unit_bits) };
        let step = self.unit_bits as usize;
        let (mut at, end) = (entry.at, self.behind(entry).min(8 * self.bits.len()));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let unit = read(self.bits, at, self.unit_bits);
            at += step;
            if unit == escape {
                let byte = read(self.bits, at, 2 * self.unit_bits);
                at += 2 * step;
                return Some(byte as u8);
            }
            if escape == u64::MAX {
                return Some(unit as u8);
            }
            Some(self.alphabet.get(unit as usize).copied().unwrap_or(0))
        })
    }

    /// How many inner separators are at most `key`. The key is not below the head; both are without
    /// the chunk's prefix.
    pub fn rank(&self, head: &[u8], key: &[u8]) -> u64 {
        // Invariant: every restart passed is at most `key`; `matched` is what the last one (the head
        // at first) shares with it.
        let mut matched = common_prefix(head, key);
        let mut passed = None;
        for index in 0..self.count.div_ceil(RESTART as u64) {
            let Some(entry) = self.entry(self.restart(index)) else { break };
            let Some(now_matched) = self.pass(entry, matched, key) else { break };
            matched = now_matched;
            passed = Some((index, self.behind(entry)));
        }
        let Some((restart, mut at)) = passed else { return 0 };
        let first = restart * RESTART as u64 + 1;
        let last = (first + RESTART as u64 - 1).min(self.count);
        for rank in first..last {
            let Some(entry) = self.entry(at) else { return rank };
            let Some(now_matched) = self.pass(entry, matched, key) else { return rank };
            matched = now_matched;
            at = self.behind(entry);
        }
        last
    }

    /// What `key` shares with an entry that is at most `key`; none if the entry is above it.
    ///
    /// `matched` is what `key` shares with the separator that the entry builds on, which is at most
    /// `key`. If the entry shares more with that separator, it relates to `key` in the same way; if
    /// less, it has parted upwards from both; if as much, its characters decide.
    #[inline]
    fn pass(&self, entry: Entry, matched: usize, key: &[u8]) -> Option<usize> {
        if entry.shared != matched {
            return (entry.shared > matched).then_some(matched);
        }
        let tail = key.get(matched..).unwrap_or_default();
        let mut equal = 0;
        for character in self.characters(entry) {
            match tail.get(equal) {
                Some(&byte) if byte == character => equal += 1,
                Some(&byte) if byte > character => break,
                _ => return None,
            }
        }
        Some(matched + equal)
    }

    /// Inner separator `i`, from 1, without the chunk's prefix.
    pub fn separator(&self, head: &[u8], i: u64) -> Vec<u8> {
        let index = i.saturating_sub(1).min(self.count);
        let mut separator = head.to_vec();
        let mut at = 0;
        let mut take = |from: usize| {
            let Some(entry) = self.entry(from) else { return from };
            separator.truncate(entry.shared);
            separator.extend(self.characters(entry));
            self.behind(entry)
        };
        for restart in 0..=index / RESTART as u64 {
            at = take(self.restart(restart));
        }
        for _ in 0..index % RESTART as u64 {
            at = take(at);
        }
        separator
    }
}
