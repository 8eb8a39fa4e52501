//! Blocked Bloom filter (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters",
//! WEA 2007): all probes of a key fall into one line of 512 bits, so a question costs one cache miss.
//!
//! ```text
//! payload := probes u8 | line*          line := 8 words u64
//! ```
//! A hash `h` belongs to line `h * lines >> 64`. Its probes are the nine-bit pieces, lowest first, of
//! `mix(h)` ([`mix`]), up to seven: of a piece the low six bits name the bit in the word that the upper
//! three name. A filter of one key, of hash 0 (`mix(0)` is `e220a8397b1dcdaf`), with two probes:
//!
//! ```text
//! 02                          2 probes: 0x1af is bit 47 of word 6, 0x0e6 bit 38 of word 3
//! 00 00 00 00 00 00 00 00     word 0
//! 00 00 00 00 00 00 00 00     word 1
//! 00 00 00 00 00 00 00 00     word 2
//! 00 00 00 00 40 00 00 00     word 3
//! 00 00 00 00 00 00 00 00     word 4
//! 00 00 00 00 00 00 00 00     word 5
//! 00 00 00 00 00 80 00 00     word 6
//! 00 00 00 00 00 00 00 00     word 7
//! ```
//! No keys: no lines, and every key is refused.

use std::slice;

use super::Filter;
use crate::error::{Error, Result};
use crate::format::bytes::{Reader, put_u64};
use crate::format::checksum::mix;
use crate::memory::fetch_ahead;

/// The kind's name in files.
pub const NAME: &str = "blocked-bloom";

/// Nine bits each: so many fit a hash.
const MAX_PROBES: u8 = 7;
const LINE_WORDS: usize = 8;
const LINE_BITS: usize = 512;

/// A cache line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Line([u64; LINE_WORDS]);

/// See the module page.
#[derive(Debug, PartialEq, Eq)]
pub struct BlockedBloom {
    probes: u8,
    lines: Vec<Line>,
}

/// The word and the bit in it of each probe.
fn probes(hash: u64, count: u8) -> impl Iterator<Item = (usize, u64)> {
    let mixed = mix(hash);
    (0..count).map(move |number| {
        let piece = mixed >> (9 * u32::from(number));
        ((piece >> 6) as usize % LINE_WORDS, 1 << (piece & 63))
    })
}

/// The payload of a filter of these hashes.
pub fn build(hashes: &[u64], bits_per_key: u8) -> Vec<u8> {
    // ln 2 bits a key for each probe fill half the bits; lines that fill unevenly want one less
    // rather than one more.
    let probes = (u32::from(bits_per_key) * 69 / 100).clamp(1, u32::from(MAX_PROBES)) as u8;
    let count = (hashes.len() * usize::from(bits_per_key)).div_ceil(LINE_BITS);
    let mut filter = BlockedBloom { probes, lines: vec![Line::default(); count] };
    for hash in hashes {
        filter.add(*hash);
    }
    filter.encode()
}

impl BlockedBloom {
    fn line(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize
    }

    fn add(&mut self, hash: u64) {
        let at = self.line(hash);
        for (word, bit) in probes(hash, self.probes) {
            self.lines[at].0[word] |= bit;
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.lines.len() * LINE_BITS / 8);
        out.push(self.probes);
        self.lines.iter().flat_map(|line| line.0).for_each(|word| put_u64(&mut out, word));
        out
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// `Corruption` if it is none.
    pub fn decode(payload: &[u8]) -> Result<BlockedBloom> {
        let mut reader = Reader::new(payload);
        let probes = reader.u8()?;
        if !(1..=MAX_PROBES).contains(&probes) {
            return Err(Error::corruption(format!(
                "{NAME}: expected 1 to {MAX_PROBES} probes, found {probes}"
            )));
        }
        let mut lines = Vec::with_capacity(payload.len() / (LINE_BITS / 8));
        while !reader.is_empty() {
            let mut line = Line::default();
            for word in &mut line.0 {
                *word = reader.u64()?;
            }
            lines.push(line);
        }
        Ok(BlockedBloom { probes, lines })
    }
}

impl Filter for BlockedBloom {
    fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines.get(self.line(hash)) else { return false };
        // All of them, whatever the first says: which of a key's bits is the first that is not set is a branch that no
        // processor foresees, and it would wait for the line there.
        probes(hash, self.probes).fold(true, |all, (word, bit)| all & (line.0[word] & bit != 0))
    }

    fn fetch_ahead(&self, hash: u64) {
        fetch_ahead(self.lines.get(self.line(hash)).map(slice::from_ref).unwrap_or_default());
    }

    fn size_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::example::assert_shown;

    #[test]
    fn the_example_of_the_module_page() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        let payload = build(&[0], 3);
        assert_shown(include_str!("mod.rs"), "A filter of one key, of hash 0", &payload);
    }
}
