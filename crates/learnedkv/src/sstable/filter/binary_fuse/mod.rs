//! Binary fuse filter with 8-bit fingerprints (Graf, Lemire, "Binary Fuse Filters: Fast and Smaller
//! Than Xor Filters", JEA 2022): a key's fingerprint is the exclusive or of three slots, so one absent
//! key in 256 passes, at about nine bits a key.
//!
//! ```text
//! payload := shards varint | shard*
//! shard   := seed u64 | segment length exponent u8 | segments varint | slot u8 * slots
//! ```
//! A shard has at most [`SHARD_KEYS`] keys, so that building one takes a few megabytes whatever the
//! number of keys; a hash `h` belongs to shard `h * shards >> 64`. A shard of `s` segments of length
//! `l = 2^exponent` has `(s + 2) l` slots. With `m = mix(h + seed)`, `a = m * (s l) >> 64`:
//!
//! ```text
//! slots        a,  (a + l) ^ (m >> 18 & (l - 1)),  (a + 2 l) ^ (m & (l - 1))
//! fingerprint  the low 8 bits of m ^ m >> 32
//! ```
//! Three neighbouring segments hold a key's slots. A filter of no keys is `00`. Of the one hash 5:
//!
//! ```text
//! 01                                      1 shard
//! af cd 1d 7b 39 a8 20 e2                 its seed
//! 02 01                                   segments of 4 slots; keys begin in one of them
//! 00 00 00 00 00 00 00 00 00 00 00 f3     (1 + 2) 4 slots; the key's three say f3
//! ```

mod construct;

use super::Filter;
use crate::error::{Error, Result};
use crate::format::bytes::{Reader, put_u64, put_varint};
use crate::format::checksum::mix;

/// The kind's name in files.
pub const NAME: &str = "binary-fuse8";

/// The most keys of a shard.
pub const SHARD_KEYS: usize = 256 << 10;
/// How many keys shards get on average: so many fewer that no shard by chance gets too many.
const MEAN_SHARD_KEYS: usize = SHARD_KEYS / 8 * 7;
/// The largest exponent of a segment's length; the paper's bound.
const MAX_EXPONENT: u8 = 18;

/// Where a shard's keys fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    seed: u64,
    exponent: u8,
    segments: u64,
}

impl Layout {
    fn length(self) -> u64 {
        1 << self.exponent
    }

    fn slots(self) -> u64 {
        (self.segments + 2) << self.exponent
    }

    /// The slots and the fingerprint of a key.
    fn place(self, hash: u64) -> ([usize; 3], u8) {
        let mixed = mix(hash.wrapping_add(self.seed));
        let mask = self.length() - 1;
        let starts = u128::from(self.segments << self.exponent);
        let first = ((u128::from(mixed) * starts) >> 64) as u64;
        let second = (first + self.length()) ^ ((mixed >> 18) & mask);
        let third = (first + 2 * self.length()) ^ (mixed & mask);
        ([first, second, third].map(|slot| slot as usize), (mixed ^ (mixed >> 32)) as u8)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Shard {
    layout: Layout,
    /// As many as the layout says.
    slots: Vec<u8>,
}

/// See the module page.
#[derive(Debug, PartialEq, Eq)]
pub struct BinaryFuse {
    shards: Vec<Shard>,
}

fn shard_of(hash: u64, shards: usize) -> usize {
    ((u128::from(hash) * shards as u128) >> 64) as usize
}

/// The payload of a filter of these hashes, which are sorted by it. `None`: no seed fits.
pub fn build(hashes: &mut Vec<u64>) -> Option<Vec<u8>> {
    hashes.sort_unstable();
    hashes.dedup();
    let count = hashes.len().div_ceil(MEAN_SHARD_KEYS);
    let mut shards = Vec::with_capacity(count);
    let mut rest = hashes.as_slice();
    for number in 0..count {
        let end = rest.partition_point(|hash| shard_of(*hash, count) <= number);
        let (keys, later) = rest.split_at(end);
        shards.push(construct::shard(keys)?);
        rest = later;
    }
    Some(BinaryFuse { shards }.encode())
}

impl BinaryFuse {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.shards.len() as u64);
        for shard in &self.shards {
            put_u64(&mut out, shard.layout.seed);
            out.push(shard.layout.exponent);
            put_varint(&mut out, shard.layout.segments);
            out.extend_from_slice(&shard.slots);
        }
        out
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// `Corruption` if it is none.
    pub fn decode(payload: &[u8]) -> Result<BinaryFuse> {
        let mut reader = Reader::new(payload);
        let count = reader.length()?;
        // No allocation from an untrusted count: each shard takes bytes, or the reader ends.
        let mut shards = Vec::new();
        for number in 0..count {
            let (seed, exponent, segments) = (reader.u64()?, reader.u8()?, reader.varint()?);
            if exponent > MAX_EXPONENT || segments == 0 || segments > payload.len() as u64 {
                return Err(Error::corruption(format!(
                    "{NAME}: shard {number}: expected segments of length 2^{MAX_EXPONENT} at most, \
                     found {segments} of 2^{exponent}"
                )));
            }
            let layout = Layout { seed, exponent, segments };
            let slots = reader.take(layout.slots() as usize)?.to_vec();
            shards.push(Shard { layout, slots });
        }
        reader.finish("filter")?;
        Ok(BinaryFuse { shards })
    }
}

impl Filter for BinaryFuse {
    fn may_contain(&self, hash: u64) -> bool {
        let Some(shard) = self.shards.get(shard_of(hash, self.shards.len())) else { return false };
        let ([a, b, c], fingerprint) = shard.layout.place(hash);
        shard.slots[a] ^ shard.slots[b] ^ shard.slots[c] == fingerprint
    }

    fn size_bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| shard.slots.capacity()).sum();
        slots + self.shards.capacity() * size_of::<Shard>() + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::example::assert_shown;

    #[test]
    fn the_example_of_the_module_page() {
        assert_eq!(build(&mut Vec::new()).unwrap(), [0]);
        let payload = build(&mut vec![5]).unwrap();
        assert_shown(include_str!("mod.rs"), "Of the one hash 5", &payload);
    }

    #[test]
    fn no_shard_gets_more_keys_than_it_may() {
        let mut hashes: Vec<u64> = (0..600_000).map(mix).collect();
        let filter = BinaryFuse::decode(&build(&mut hashes).unwrap()).unwrap();
        assert_eq!(filter.shards.len(), 3);
        for shard in 0..3 {
            let keys = hashes.iter().filter(|hash| shard_of(**hash, 3) == shard).count();
            assert!((190_000..SHARD_KEYS).contains(&keys), "shard {shard}: {keys} keys");
        }
    }
}
