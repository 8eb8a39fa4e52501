//! Values that know what they are: a value is a function of the run's seed, its key and its
//! version, so any reader can tell the right one from a stale, foreign or damaged one.
//!
//! ```text
//! more than 12 bytes:   key hash (8, LE)  version (4, LE)  body
//! 4 to 12 bytes:        the leading bytes of a hash of (seed, key, version)
//! body:                 pieces of at most 4 KiB of a random pool at a place that depends on the
//!                       value, XORed with a word that depends on the value
//! ```
//! The body is random enough that no compressor profits from it, and costs little more than a copy:
//! the measurement must see the engine, not the making of values. Where values are to be compressible,
//! the end of each 64 bytes of the body is text that all values share, as field names and the like.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::random::{Rng, mix};
use crate::sizes::show_key;
use crate::{Error, Result};

/// Bytes of a value's header.
const HEADER_BYTES: usize = 12;
/// Longest run taken from the pool in one piece.
const PIECE_BYTES: usize = 4096;
/// Places in the pool where a piece may start; the pool is this and one piece long.
const POOL_STARTS_BYTES: usize = 64 << 10;
/// Values below this could agree by chance.
const MIN_VALUE_BYTES: u32 = 4;
/// Values above this are not what this program measures.
const MAX_VALUE_BYTES: u32 = 256 << 20;

/// Random bytes and text take turns in pieces of this length.
const UNIT_BYTES: usize = 64;
/// What is compressible in a value.
const TEXT: &[u8; UNIT_BYTES] =
    b"\",\"created\":\"2024-\",\"status\":\"active\",\"country\":\"\",\"city\":\"    ,";

/// How long values are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueSize {
    /// All alike.
    Fixed(u32),
    /// Nearly normal, drawn per key and version, cut at four deviations and at 4 bytes.
    Normal {
        /// The mean, in bytes.
        mean: f64,
        /// The standard deviation, in bytes.
        deviation: f64,
    },
}

impl ValueSize {
    /// The size that belongs to the random word of a value.
    #[inline]
    fn draw(self, word: u64) -> usize {
        match self {
            ValueSize::Fixed(bytes) => bytes as usize,
            ValueSize::Normal { mean, deviation } => {
                // Eight 16-bit uniforms added up (Irwin-Hall): variance 8/12 in units of 2^16.
                let (a, b) = (mix(word ^ 0x51), mix(word ^ 0x52));
                let sum: u64 =
                    (0..4).map(|i| ((a >> (16 * i)) & 0xFFFF) + ((b >> (16 * i)) & 0xFFFF)).sum();
                let standard = (sum as f64 / 65_536.0 - 4.0) / (8.0_f64 / 12.0).sqrt();
                let bytes = mean + deviation * standard.clamp(-4.0, 4.0);
                bytes.round().max(f64::from(MIN_VALUE_BYTES)) as usize
            }
        }
    }

    /// The mean size in bytes, for estimates.
    #[must_use]
    pub fn mean_bytes(self) -> f64 {
        match self {
            ValueSize::Fixed(bytes) => f64::from(bytes),
            ValueSize::Normal { mean, .. } => mean,
        }
    }
}

impl FromStr for ValueSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<ValueSize> {
        let range = |bytes: f64| {
            if bytes >= f64::from(MIN_VALUE_BYTES) && bytes <= f64::from(MAX_VALUE_BYTES) {
                return Ok(());
            }
            Err(Error::usage(format!(
                "a value size of {bytes} bytes is outside {MIN_VALUE_BYTES}..={MAX_VALUE_BYTES} \
                 (values carry their key and version, so that reads can be checked)"
            )))
        };
        if let Some(rest) = text.strip_prefix("normal:") {
            let bad = || Error::usage(format!("`{text}` is not normal:MEAN:DEVIATION, in bytes"));
            let (mean, deviation) = rest.split_once(':').ok_or_else(bad)?;
            let mean: f64 = mean.parse().map_err(|_| bad())?;
            let deviation: f64 = deviation.parse().map_err(|_| bad())?;
            range(mean)?;
            if !deviation.is_finite() || deviation < 0.0 || deviation > mean {
                return Err(Error::usage(format!(
                    "the deviation in `{text}` must lie between 0 and the mean"
                )));
            }
            return Ok(ValueSize::Normal { mean, deviation });
        }
        let bytes = crate::sizes::parse_bytes(text).map_err(|_| {
            Error::usage(format!(
                "`{text}` is not a value size; write bytes (1016) or normal:MEAN:DEVIATION"
            ))
        })?;
        range(bytes as f64)?;
        Ok(ValueSize::Fixed(bytes as u32))
    }
}

impl fmt::Display for ValueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSize::Fixed(bytes) => write!(f, "{bytes}"),
            ValueSize::Normal { mean, deviation } => write!(f, "normal:{mean}:{deviation}"),
        }
    }
}

/// The values of one run.
#[derive(Debug, Clone)]
pub struct Values {
    size: ValueSize,
    seed: u64,
    pool: Vec<u8>,
    /// Of each [`UNIT_BYTES`] so many are text.
    text_bytes: usize,
}

/// The share of a value's bytes that are the same text in all values: 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Compressibility(f64);

impl Compressibility {
    /// Every other byte: what LZ4 halves, nearly.
    pub const HALF: Compressibility = Compressibility(0.5);
}

impl FromStr for Compressibility {
    type Err = Error;

    fn from_str(text: &str) -> Result<Compressibility> {
        match text.parse() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Compressibility(share)),
            _ => Err(Error::usage(format!("`{text}` is not a share of a value's bytes, 0 to 1"))),
        }
    }
}

impl fmt::Display for Compressibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Values {
    /// The values of `seed`, `size` long.
    #[must_use]
    pub fn new(size: ValueSize, seed: u64) -> Values {
        let mut rng = Rng::seeded(mix(seed ^ 0x76616C756573));
        let words = (POOL_STARTS_BYTES + PIECE_BYTES) / 8;
        let pool = (0..words).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        Values { size, seed, pool, text_bytes: 0 }
    }

    /// The same with `share` of their bytes compressible; to a 64th, and not in the first 12.
    #[must_use]
    pub fn compressible(mut self, share: Compressibility) -> Values {
        self.text_bytes = (share.0 * UNIT_BYTES as f64).round() as usize;
        self
    }

    /// How long the values are.
    #[must_use]
    pub fn size(&self) -> ValueSize {
        self.size
    }

    /// Makes `version` of `key`'s value in `out`, replacing what was there.
    pub fn fill(&self, key: &[u8], version: u32, out: &mut Vec<u8>) {
        out.clear();
        let hash = xxh3_64_with_seed(key, self.seed);
        let mut word = mix(hash ^ mix(u64::from(version) ^ self.seed));
        let size = self.size.draw(word);
        if size <= HEADER_BYTES {
            out.extend_from_slice(&mix(word).to_le_bytes());
            out.extend_from_slice(&mix(word ^ 1).to_le_bytes());
            out.truncate(size);
            return;
        }
        out.extend_from_slice(&hash.to_le_bytes());
        out.extend_from_slice(&version.to_le_bytes());
        while out.len() < size {
            let place = (word >> 40) as usize % (POOL_STARTS_BYTES / 8) * 8;
            let from = out.len();
            let length = PIECE_BYTES.min(size - from);
            out.extend_from_slice(&self.pool[place..place + length]);
            let mut words = out[from..].chunks_exact_mut(8);
            for eight in &mut words {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(eight);
                eight.copy_from_slice(&(u64::from_le_bytes(bytes) ^ word).to_le_bytes());
            }
            for (byte, mask) in words.into_remainder().iter_mut().zip(word.to_le_bytes()) {
                *byte ^= mask;
            }
            word = mix(word);
        }
        if self.text_bytes > 0 {
            let random_bytes = UNIT_BYTES - self.text_bytes;
            for unit in out[HEADER_BYTES..].chunks_mut(UNIT_BYTES) {
                let (start, end) = (random_bytes.min(unit.len()), unit.len());
                unit[start..].copy_from_slice(&TEXT[start..end]);
            }
        }
    }

    /// What `found` must be to be one of the `allowed` versions of `key`: returns which it is.
    /// `scratch` is overwritten.
    ///
    /// # Errors
    /// What was expected and what was found, if it is none of them.
    pub fn check(
        &self,
        key: &[u8],
        allowed: RangeInclusive<u32>,
        found: &[u8],
        scratch: &mut Vec<u8>,
    ) -> std::result::Result<u32, Mismatch> {
        if found.len() > HEADER_BYTES {
            let version = header_version(found);
            if allowed.contains(&version) {
                self.fill(key, version, scratch);
                if scratch == found {
                    return Ok(version);
                }
            }
        } else {
            for version in allowed.clone() {
                self.fill(key, version, scratch);
                if scratch == found {
                    return Ok(version);
                }
            }
        }
        Err(self.explain(key, allowed, found))
    }

    /// Says what is wrong with `found`, as closely as its bytes allow.
    #[cold]
    fn explain(&self, key: &[u8], allowed: RangeInclusive<u32>, found: &[u8]) -> Mismatch {
        let expected = match (allowed.start(), allowed.end()) {
            (low, high) if low == high => format!("version {low}"),
            (low, high) => format!("a version from {low} to {high}"),
        };
        let mut right = Vec::new();
        let found = if found.len() <= HEADER_BYTES {
            format!("{} bytes that are none of them: {}", found.len(), found.escape_ascii())
        } else if found[..8] != xxh3_64_with_seed(key, self.seed).to_le_bytes() {
            format!("{} bytes of another key's value, or damage in the first 8", found.len())
        } else {
            let version = header_version(found);
            self.fill(key, version, &mut right);
            match right.iter().zip(found).position(|(a, b)| a != b) {
                _ if right.len() != found.len() && allowed.contains(&version) => {
                    format!("version {version} with {} bytes, not {}", found.len(), right.len())
                }
                Some(at) => format!(
                    "version {version} with byte {at} of {} wrong: {:#04x}, not {:#04x}",
                    found.len(),
                    found[at],
                    right[at]
                ),
                None => format!("version {version}, whole"),
            }
        };
        Mismatch { key: key.to_vec(), expected, found }
    }
}

/// The version in the header of a value longer than [`HEADER_BYTES`].
fn header_version(value: &[u8]) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&value[8..HEADER_BYTES]);
    u32::from_le_bytes(bytes)
}

/// A read that was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The key that was read.
    pub key: Vec<u8>,
    /// What it had to be.
    pub expected: String,
    /// What it was.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "key {} (hash {:016x}): expected {}, found {}",
            show_key(&self.key),
            xxh3_64(&self.key),
            self.expected,
            self.found
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(values: &Values, key: &[u8], version: u32) -> Vec<u8> {
        let mut out = Vec::new();
        values.fill(key, version, &mut out);
        out
    }

    #[test]
    fn every_flipped_bit_and_every_other_version_is_caught() {
        for size in [4, 8, 12, 13, 20, 100, 1016] {
            let values = Values::new(ValueSize::Fixed(size), 1);
            let mut good = value(&values, b"key", 5);
            let mut scratch = Vec::new();
            assert_eq!(good.len(), size as usize);
            assert_eq!(values.check(b"key", 5..=5, &good, &mut scratch), Ok(5));
            assert_eq!(values.check(b"key", 3..=9, &good, &mut scratch), Ok(5));
            for allowed in [4..=4, 6..=6, 0..=4, 6..=10] {
                assert!(values.check(b"key", allowed, &good, &mut scratch).is_err());
            }
            assert!(values.check(b"kex", 5..=5, &good, &mut scratch).is_err());
            for bit in 0..good.len() * 8 {
                good[bit / 8] ^= 1 << (bit % 8);
                assert!(values.check(b"key", 5..=5, &good, &mut scratch).is_err(), "bit {bit}");
                good[bit / 8] ^= 1 << (bit % 8);
            }
            good.pop();
            assert!(values.check(b"key", 5..=5, &good, &mut scratch).is_err(), "cut");
        }
    }

    #[test]
    fn compressible_values_have_the_share_of_text_asked_for_and_are_checked_all_the_same() {
        for (share, expected) in [("0", 0.0), ("0.25", 0.25), ("0.5", 0.5), ("1", 1.0)] {
            let values = Values::new(ValueSize::Fixed(1036), 1);
            let values = values.compressible(share.parse().unwrap());
            let (a, b) = (value(&values, b"key", 5), value(&values, b"another", 6));
            let same = a[12..].iter().zip(&b[12..]).filter(|(a, b)| a == b).count();
            // Of the random bytes one in 256 is the same too.
            let found = same as f64 / 1024.0;
            assert!((found - expected).abs() < 0.02, "{share}: {found}");
            let mut scratch = Vec::new();
            assert_eq!(values.check(b"key", 5..=5, &a, &mut scratch), Ok(5));
            let mut bad = a.clone();
            bad[1035] ^= 1;
            assert!(values.check(b"key", 5..=5, &bad, &mut scratch).is_err(), "{share}");
        }
        for bad in ["", "-0.1", "1.1", "nan", "half"] {
            assert!(bad.parse::<Compressibility>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mismatch_says_what_it_found() {
        let values = Values::new(ValueSize::Fixed(100), 1);
        let mut scratch = Vec::new();
        let mut complain =
            |bytes: &[u8]| values.check(b"key", 5..=5, bytes, &mut scratch).unwrap_err().found;
        let mut flipped = value(&values, b"key", 5);
        flipped[50] ^= 1;
        assert!(complain(&flipped).starts_with("version 5 with byte 50 of 100 wrong: 0x"));
        assert_eq!(complain(&value(&values, b"key", 4)), "version 4, whole");
        assert!(complain(&value(&values, b"other", 5)).contains("another key's value"));
        assert_eq!(complain(&value(&values, b"key", 5)[..99]), "version 5 with 99 bytes, not 100");
    }

    #[test]
    fn drawn_sizes_have_the_mean_and_deviation_asked_for() {
        let size: ValueSize = "normal:126.7:22.1".parse().unwrap();
        let values = Values::new(size, 9);
        let sizes: Vec<f64> =
            (0..50_000_u64).map(|i| value(&values, &i.to_be_bytes(), 1).len() as f64).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let variance =
            sizes.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / sizes.len() as f64;
        assert!((mean - 126.7).abs() < 0.5, "mean {mean}");
        assert!((variance.sqrt() - 22.1).abs() < 0.5, "deviation {}", variance.sqrt());
    }

    #[test]
    fn sizes_that_cannot_be_used_are_refused() {
        for bad in [
            "",
            "0",
            "3",
            "1t",
            "-4",
            "1g",
            "normal:",
            "normal:5",
            "normal:100:200",
            "normal:nan:1",
        ] {
            assert!(bad.parse::<ValueSize>().is_err(), "{bad}");
        }
    }
}
