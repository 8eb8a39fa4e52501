//! Filters of a table: which keys it surely does not hold, asked before its index and its blocks.
//!
//! A folder per kind. A kind's name stands in the file's header, so it contains exactly what affects
//! decoding. Whoever asks a filter never knows which kind it is.
//!
//! Contract: **a key that was added is never refused.** A key that was not is refused but for a share
//! that the kind states. Filters know 64-bit hashes of keys ([`key_hash`]), never keys: a lookup hashes
//! its key once, for all tables.
//!
//! A filter is a file of its own ([`file`]): it may be missing, and may come later than its table. A
//! filter that cannot be read costs time, never an answer.

mod binary_fuse;
mod blocked_bloom;
#[cfg(test)]
mod conformance;
pub mod file;

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::key_hash;

use binary_fuse::BinaryFuse;
use blocked_bloom::BlockedBloom;

/// The most keys one filter is made of: while a table is written, 8 bytes are held for each. Tables
/// that get a filter end there; of one that cannot end there (a delta) the filter is left out.
pub const MAX_KEYS: usize = 4 << 20;

/// The most bits a key of a blocked Bloom filter: more are wasted, for cache lines fill unevenly.
const MAX_BITS_PER_KEY: u8 = 16;

/// Which filter a table gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilterKind {
    /// Bloom filter whose probes fall into one cache line: about 1 % of absent keys pass at 10 bits
    /// a key. Quick to build and to ask; the default of fresh tables.
    BlockedBloom {
        /// Bits per key, 1 to 16.
        bits_per_key: u8,
    },
    /// Binary fuse filter with 8-bit fingerprints: 0.4 % of absent keys pass at about 9.2 bits a key.
    /// Costlier to build, and three cache lines a question; for settled tables.
    BinaryFuse8,
}

impl FilterKind {
    /// All kinds, each with its usual options.
    pub const ALL: &[FilterKind] =
        &[FilterKind::BlockedBloom { bits_per_key: 10 }, FilterKind::BinaryFuse8];

    /// The kind's name, as it stands in files.
    pub fn name(self) -> &'static str {
        match self {
            FilterKind::BlockedBloom { .. } => blocked_bloom::NAME,
            FilterKind::BinaryFuse8 => binary_fuse::NAME,
        }
    }

    /// The kind written as `text`: its name, or `blocked-bloom:` and bits per key.
    ///
    /// # Errors
    /// `InvalidArgument` saying what is allowed, if it is none such.
    pub fn from_text(text: &str) -> Result<FilterKind> {
        let (name, bits) = match text.split_once(':') {
            Some((name, bits)) => (name, Some(bits)),
            None => (text, None),
        };
        let kind = FilterKind::ALL.iter().copied().find(|kind| kind.name() == name);
        match (kind, bits, bits.and_then(|bits| bits.parse().ok())) {
            (Some(kind), None, _) => Ok(kind),
            (Some(FilterKind::BlockedBloom { .. }), _, Some(bits_per_key))
                if (1..=MAX_BITS_PER_KEY).contains(&bits_per_key) =>
            {
                Ok(FilterKind::BlockedBloom { bits_per_key })
            }
            _ => Err(Error::invalid(format!(
                "expected a filter kind ({}:10 with 1 to {MAX_BITS_PER_KEY} bits per key, {}), found {text:?}",
                blocked_bloom::NAME,
                binary_fuse::NAME
            ))),
        }
    }

    /// Checks its options.
    ///
    /// # Errors
    /// `InvalidArgument` as [`FilterKind::from_text`].
    pub fn check(self) -> Result<()> {
        FilterKind::from_text(&self.to_string()).map(|_| ())
    }

    /// What one of so many keys takes in memory, about, bytes.
    pub fn about_bytes(self, keys: u64) -> u64 {
        let bits_per_key = match self {
            FilterKind::BlockedBloom { bits_per_key } => bits_per_key.into(),
            FilterKind::BinaryFuse8 => 10,
        };
        keys.saturating_mul(bits_per_key) / 8
    }

    /// The payload of a filter of these hashes, which it may reorder; they may repeat. `None` if none
    /// could be made (of a fuse filter: after many seeds, which does not happen).
    fn build(self, hashes: &mut Vec<u64>) -> Option<Vec<u8>> {
        match self {
            FilterKind::BlockedBloom { bits_per_key } => {
                Some(blocked_bloom::build(hashes, bits_per_key))
            }
            FilterKind::BinaryFuse8 => binary_fuse::build(hashes),
        }
    }
}

impl fmt::Display for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterKind::BlockedBloom { bits_per_key } => {
                write!(f, "{}:{bits_per_key}", self.name())
            }
            FilterKind::BinaryFuse8 => f.write_str(self.name()),
        }
    }
}

/// A filter in memory. See the module page for the contract.
pub trait Filter: Send + Sync + fmt::Debug {
    /// False: no key of this hash was added.
    fn may_contain(&self, hash: u64) -> bool;

    /// Has the processor fetch what it takes to answer, for somebody who asks other filters first.
    fn fetch_ahead(&self, _hash: u64) {}

    /// What it takes in memory, bytes.
    fn size_bytes(&self) -> usize;
}

/// The filter of the kind of that name.
///
/// # Errors
/// `Unsupported` for an unknown name; `Corruption` if the bytes are no such filter.
pub fn decode(kind: &str, payload: &[u8]) -> Result<Box<dyn Filter>> {
    match kind {
        blocked_bloom::NAME => Ok(Box::new(BlockedBloom::decode(payload)?)),
        binary_fuse::NAME => Ok(Box::new(BinaryFuse::decode(payload)?)),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("filter kind {kind:?} is unknown: a newer version of learnedkv wrote it"),
        )),
    }
}

/// Gathers the keys of a table while it is written. Only adds; 8 bytes a key, [`MAX_KEYS`] at most.
#[derive(Debug)]
pub struct FilterBuilder {
    kind: FilterKind,
    hashes: Vec<u64>,
    keys: u64,
}

impl FilterBuilder {
    /// A builder without keys.
    pub fn new(kind: FilterKind) -> FilterBuilder {
        FilterBuilder { kind, hashes: Vec::new(), keys: 0 }
    }

    /// All that it has gathered; none is left.
    pub fn take(&mut self) -> FilterBuilder {
        std::mem::replace(self, FilterBuilder::new(self.kind))
    }

    /// Adds a key.
    pub fn add(&mut self, key: &[u8]) {
        self.add_hash(key_hash(key));
    }

    /// Adds the key of this hash.
    pub fn add_hash(&mut self, hash: u64) {
        self.keys += 1;
        if self.keys <= MAX_KEYS as u64 {
            self.hashes.push(hash);
        } else {
            self.hashes = Vec::new();
        }
    }

    /// Whether a further key would be one too many.
    pub fn is_full(&self) -> bool {
        self.keys >= MAX_KEYS as u64
    }

    /// The bytes of the filter file of the table tagged `tag`; `None` if there were too many keys.
    pub fn finish(mut self, tag: u64) -> Option<Vec<u8>> {
        if self.keys > MAX_KEYS as u64 {
            return None;
        }
        let payload = self.kind.build(&mut self.hashes)?;
        Some(file::encode(tag, self.kind, self.keys, &payload))
    }
}
