//! The seams: what every index kind promises, and what builds one.

use crate::{Bound, BuildError, DecodeError};

/// A model that can be stored.
///
/// Encodings begin with a version, are little-endian, and evaluate after decoding exactly as before:
/// models compute in integers only. What [`decode`](Persist::decode) accepts can still be a lie (bytes
/// are not a proof); such a model answers wrongly, but it never panics, and its answers stay in range.
pub trait Persist: Sized {
    /// The name stored beside the bytes. It contains exactly what decoding depends on, so parameters
    /// that travel in the bytes (epsilon, version) are not part of it.
    const NAME: &'static str;

    /// Appends the encoding to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads what [`encode`](Persist::encode) wrote; all of `bytes` must be the encoding.
    ///
    /// Safe on untrusted bytes: no panic, and no allocation beyond a small multiple of their length.
    ///
    /// # Errors
    /// The bytes are cut short, have trailing bytes, an unknown version, or a field that no encoder
    /// writes.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Heap memory held, in bytes (the value itself not counted).
    fn size_bytes(&self) -> usize;
}

/// An index over sorted keys, duplicates allowed.
pub trait Model: Persist {
    /// Positions among which the lower bound of `key` lies.
    ///
    /// **Contract**: the number of indexed keys below `key`, which is the first position whose key is
    /// at least `key`, lies within the returned bound. It holds for every `u64`, whether indexed or
    /// not, without tolerance. The bound lies within `0..=len()`.
    fn bound(&self, key: u64) -> Bound;

    /// The number of indexed keys, duplicates included.
    fn len(&self) -> u64;

    /// Whether no key is indexed.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Builds a [`Model`] from keys pushed in order, one at a time.
pub trait Builder {
    /// What is built.
    type Model: Model;

    /// Takes the next key, which may equal the previous one.
    ///
    /// # Errors
    /// The key is below the previous one. It is not taken, and the builder is as before.
    fn push(&mut self, key: u64) -> Result<(), BuildError>;

    /// Takes one key after the other, as [`Builder::push`] does, and faster.
    ///
    /// # Errors
    /// A key is below the previous one. Those before it are taken, it and those after it are not.
    fn push_all(&mut self, keys: impl IntoIterator<Item = u64>) -> Result<(), BuildError>;

    /// The model over the keys pushed.
    fn finish(self) -> Self::Model;
}

/// An index over entries that are packed into consecutive blocks: it names blocks, not positions.
pub trait BlockModel: Persist {
    /// Blocks to search for `key`.
    ///
    /// The *lower bound* of `key` is the first entry whose key is at least `key`; its block is the one
    /// that entry was pushed with, or `block_count()` where there is no such entry.
    ///
    /// **Contract**, for every `u64`, without tolerance:
    /// - `key` present: the block of its lower bound (its first entry) is named.
    /// - `key` absent: the block of its lower bound is named, or the last named block is the one just
    ///   before it. So the lower bound lies in the named blocks or is the first entry after them.
    ///
    /// Named blocks lie in `0..block_count()`. Without any entry the answer is `0..=0`, which names no
    /// block that exists.
    fn blocks(&self, key: u64) -> Bound;

    /// One more than the largest block ordinal pushed; zero without entries.
    fn block_count(&self) -> u64;
}

/// Builds a [`BlockModel`] from entries pushed in order, one at a time.
pub trait BlockBuilder {
    /// What is built.
    type Model: BlockModel;

    /// Takes the next entry: its key, and the ordinal of the block that holds it. Both may equal the
    /// previous entry's; ordinals may be skipped (an entry or a run of equal keys that fills several
    /// blocks).
    ///
    /// # Errors
    /// The key or the block is below the previous one. The entry is not taken, and the builder is as
    /// before.
    fn push(&mut self, key: u64, block: u32) -> Result<(), BuildError>;

    /// The model over the entries pushed.
    fn finish(self) -> Self::Model;
}
