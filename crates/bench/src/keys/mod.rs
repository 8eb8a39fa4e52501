//! Key sets: distinct keys in ascending byte order, held leanly.
//!
//! Integer keys are stored as `u64` and handed out as eight big-endian bytes, so that byte order is
//! numeric order. Byte keys lie in one flat buffer with their end offsets.

mod files;
mod generate;
mod spec;

use std::path::Path;

pub use files::{read_paths, read_sosd, read_text};
pub use generate::{Generator, random_bytes};
pub use spec::{KeySpec, MAX_KEYS};

use crate::random::{Permutation, Rng};

/// Distinct keys in ascending byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet {
    storage: Storage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Storage {
    Integers(Vec<u64>),
    Bytes { flat: Vec<u8>, ends: Vec<u64> },
}

/// One key of a [`KeySet`].
#[derive(Debug, Clone, Copy)]
pub enum KeyRef<'a> {
    /// An integer key, big-endian.
    Integer([u8; 8]),
    /// A byte key.
    Bytes(&'a [u8]),
}

impl AsRef<[u8]> for KeyRef<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            KeyRef::Integer(bytes) => bytes,
            KeyRef::Bytes(bytes) => bytes,
        }
    }
}

impl KeySet {
    /// A set of integers, which need be neither sorted nor distinct.
    #[must_use]
    pub fn from_integers(mut integers: Vec<u64>) -> KeySet {
        integers.sort_unstable();
        integers.dedup();
        KeySet { storage: Storage::Integers(integers) }
    }

    /// A set of byte keys, given as one buffer and the pieces of it that are keys; they need be
    /// neither sorted nor distinct. Empty pieces are left out.
    #[must_use]
    pub fn from_pieces(buffer: &[u8], mut pieces: Vec<std::ops::Range<usize>>) -> KeySet {
        pieces.retain(|piece| !piece.is_empty());
        pieces.sort_unstable_by(|a, b| buffer[a.clone()].cmp(&buffer[b.clone()]));
        pieces.dedup_by(|a, b| buffer[a.clone()] == buffer[b.clone()]);
        let mut flat = Vec::with_capacity(pieces.iter().map(ExactSizeIterator::len).sum());
        let mut ends = Vec::with_capacity(pieces.len());
        for piece in pieces {
            flat.extend_from_slice(&buffer[piece]);
            ends.push(flat.len() as u64);
        }
        KeySet { storage: Storage::Bytes { flat, ends } }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.storage {
            Storage::Integers(integers) => integers.len(),
            Storage::Bytes { ends, .. } => ends.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of rank `index` (below [`KeySet::len`]).
    #[inline]
    #[must_use]
    pub fn key(&self, index: usize) -> KeyRef<'_> {
        match &self.storage {
            Storage::Integers(integers) => KeyRef::Integer(integers[index].to_be_bytes()),
            Storage::Bytes { flat, ends } => {
                let start = if index == 0 { 0 } else { ends[index - 1] as usize };
                KeyRef::Bytes(&flat[start..ends[index] as usize])
            }
        }
    }

    /// The set of the first `count` keys, or of all if there are no more.
    #[must_use]
    pub fn first(mut self, count: usize) -> KeySet {
        match &mut self.storage {
            Storage::Integers(integers) => integers.truncate(count),
            Storage::Bytes { flat, ends } => {
                ends.truncate(count);
                flat.truncate(ends.last().map_or(0, |end| *end as usize));
            }
        }
        self
    }

    /// The rank of `key`, if it is in the set.
    #[must_use]
    pub fn rank(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).as_ref().cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// All keys together, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Integers(integers) => integers.len() as u64 * 8,
            Storage::Bytes { flat, .. } => flat.len() as u64,
        }
    }

    /// Puts a key that is *not* in the set into `out`, close to the key of rank `near`: an integer
    /// from the gap above it, or the key with a zero byte behind it (its direct successor). Where
    /// there is no gap the next one is taken, and beyond the last key everything is a gap.
    pub fn absent_near(&self, near: usize, rng: &mut Rng, out: &mut Vec<u8>) {
        out.clear();
        match &self.storage {
            Storage::Integers(integers) => {
                let mut index = near;
                // A dense run (sequential keys) can be as long as the set: look at 64, then leave.
                for _ in 0..64 {
                    let low = integers[index];
                    let next = integers.get(index + 1).copied().unwrap_or(u64::MAX);
                    if next - low > 1 {
                        let absent = low + 1 + rng.below(next - low - 1);
                        out.extend_from_slice(&absent.to_be_bytes());
                        return;
                    }
                    index = (index + 1) % integers.len();
                }
                // Nine bytes: no integer key is that long, and it sorts right behind its neighbour.
                out.extend_from_slice(&integers[near].to_be_bytes());
                out.push(0);
            }
            Storage::Bytes { ends, .. } => {
                let mut index = near;
                loop {
                    out.clear();
                    out.extend_from_slice(self.key(index).as_ref());
                    out.push(0);
                    if index + 1 >= ends.len() || self.key(index + 1).as_ref() != &out[..] {
                        return;
                    }
                    index += 1;
                }
            }
        }
    }
}

/// In which order keys are loaded.
#[derive(Debug, Clone)]
pub enum LoadOrder {
    /// Ascending.
    Sorted,
    /// Shuffled.
    Shuffled(Permutation),
}

impl LoadOrder {
    /// The rank of the key that is loaded at `position`.
    #[inline]
    #[must_use]
    pub fn index_at(&self, position: usize) -> usize {
        match self {
            LoadOrder::Sorted => position,
            LoadOrder::Shuffled(permutation) => permutation.at(position as u64) as usize,
        }
    }
}

/// A key set with where it came from.
#[derive(Debug)]
pub struct NamedKeys {
    /// What was asked for, as on the command line.
    pub name: String,
    /// The keys.
    pub set: KeySet,
    /// How many of them are loaded, the first of the load order; the others are there to be inserted
    /// later.
    pub loaded: usize,
    /// Whether they are loaded in ascending order (only `sequential` is).
    pub load_sorted: bool,
    /// What a person should know: duplicates dropped, directories skipped.
    pub notes: Vec<String>,
}

impl NamedKeys {
    /// The order in which the keys are loaded.
    #[must_use]
    pub fn load_order(&self, seed: u64) -> LoadOrder {
        if self.load_sorted {
            LoadOrder::Sorted
        } else {
            LoadOrder::Shuffled(Permutation::new(self.set.len() as u64, seed))
        }
    }
}

/// How a path is written in messages.
fn shown(path: &Path) -> std::path::Display<'_> {
    path.display()
}
