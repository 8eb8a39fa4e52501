//! What the kinds made of models over `u64` share: keys are embedded, stretch by stretch.
//!
//! A key is embedded as the eight bytes behind a prefix, big-endian, zeros behind its end. A *stretch*
//! is a run of blocks whose keys share a prefix and whose embeddings differ at every block boundary:
//! one model serves it. Where embeddings do not tell neighbouring blocks apart (long common parts in
//! byte-string keys), or the model may name more than is to be read at once ([`MAX_READ_BYTES`]: long
//! entries, or a large epsilon), the stretch has byte separators instead.
//!
//! ```text
//! section := block ends slice (a `learned::monotone` of 64-byte units) | positions slice | stretch count varint | stretch*
//! stretch := first block varint | lower separator slice | 00 prefix slice, model slice
//!                                                       | 01 count varint (separator slice)*, one for each later block of it
//! ```
//! `positions` is a monotone sequence of the entries before each block for kinds that predict
//! positions, and empty for those that predict blocks.
//!
//! Of the kind `greedy-plr` a stretch with a model over the keys `a` and `b`, then one over three that
//! their embeddings do not tell apart; each key alone in a block of 64 bytes:
//! ```text
//! 11 | 01 05 01 00 00 00 00 00 00 00 80 02 00 00 00 00 00   ends 1 to 5 (see learned::monotone)
//! 11 | 01 05 00 00 00 00 00 00 00 00 80 02 00 00 00 00 00   positions 0 to 4
//! 02                           two stretches
//! 00 | 01 61 | 00 | 00         from block 0 and a on, a model, no prefix:
//! 12 | 01 04 00 02 01 80 80 80 80 80 80 80 80 61 00 00 35 10   see learned::GreedyPlr
//! 02 | 01 63 | 01              from block 2 and c on, separators:
//! 02 | 02 63 00 | 03 63 00 00   of the two later blocks
//! ```

use std::collections::VecDeque;

use learned::Persist;
use learned::bytes::first_eight;
use learned::monotone::{Monotone, MonotoneBuilder};

use super::{Index, IndexBuilder, MAX_READ_BYTES, Makeup, between, refused};
use crate::error::{Error, Result};
use crate::format::block::{BLOCK_ALIGNMENT, block_overhead_bytes};
use crate::format::bytes::{Reader, common_prefix_length, put_slice, put_varint};
use crate::sstable::partition::{Cut, Limits, by_size};

/// How many bytes of a key are embedded.
const EMBEDDED_BYTES: usize = 8;
/// How many blocks are looked at together.
const CHUNK_BLOCKS: usize = 64;

/// What a block usually takes in memory besides the section, bytes; see [`super::usual_bytes`].
pub const BLOCK_BYTES: u64 = 32;

/// A kind of model over embedded keys.
pub trait Kind: Send + Sync + std::fmt::Debug + 'static {
    /// The kind's name.
    const NAME: &'static str;
    /// Whether it predicts positions, so that the section says which block a position is in.
    const POSITIONS: bool;
    /// What is built.
    type Model: Persist + Send + Sync + std::fmt::Debug;
    /// What builds it.
    type Builder: Send + std::fmt::Debug;

    /// A builder of models that are at most `epsilon` wrong.
    fn builder(epsilon: u16) -> Self::Builder;
    /// Takes the keys of the next block, which is number `block` of its stretch. Its first key is above the last one before it.
    ///
    /// # Errors
    /// A key is below the one before it.
    fn push(
        builder: &mut Self::Builder,
        keys: impl DoubleEndedIterator<Item = u64>,
        block: u32,
    ) -> std::result::Result<(), learned::BuildError>;
    /// The model.
    fn finish(builder: Self::Builder) -> Self::Model;
    /// The first and last position (or block) that the model names.
    fn locate(model: &Self::Model, key: u64) -> (u64, u64);
    /// Whether it may name two blocks together that have `between` them.
    fn may_span(epsilon: u16, between: Blocks) -> bool;
}

/// Neighbouring blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blocks {
    /// How many.
    pub count: u64,
    /// Their entries.
    pub entries: u64,
    /// What they take at most, bytes.
    bytes: u64,
}

impl Blocks {
    fn add(&mut self, other: Blocks) {
        self.count += other.count;
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

/// The eight bytes of `key` behind a prefix of `prefix` bytes.
#[inline]
fn embed(key: &[u8], prefix: usize) -> u64 {
    first_eight(key.get(prefix..).unwrap_or_default())
}

#[derive(Debug)]
enum Content<M> {
    Model { prefix: Vec<u8>, model: M },
    Separators(Vec<Vec<u8>>),
}

#[derive(Debug)]
struct Stretch<M> {
    first_block: u64,
    lower: Vec<u8>,
    content: Content<M>,
}

/// Builds the index of kind `K`.
#[derive(Debug)]
pub struct StretchesBuilder<K: Kind> {
    limits: Limits,
    epsilon: u16,
    stretches: Vec<Stretch<K::Builder>>,
    ends: MonotoneBuilder,
    positions: MonotoneBuilder,
    entries: u64,
    blocks: u64,
    /// Blocks cut that are not yet written.
    pending: VecDeque<u64>,
    /// The last blocks of the stretch under way, where it has a model.
    recent: Vec<Blocks>,
    /// The lower separator of the next block, and the last key before it.
    lower: Vec<u8>,
    last_key: Option<Vec<u8>>,
}

impl<K: Kind> StretchesBuilder<K> {
    /// A builder for a table whose smallest key is `smallest`, its models at most `epsilon` wrong.
    pub fn new(limits: Limits, smallest: &[u8], epsilon: u16) -> StretchesBuilder<K> {
        StretchesBuilder {
            limits,
            epsilon,
            stretches: Vec::new(),
            ends: MonotoneBuilder::new(),
            positions: MonotoneBuilder::new(),
            entries: 0,
            blocks: 0,
            pending: VecDeque::new(),
            recent: Vec::new(),
            lower: smallest.to_vec(),
            last_key: None,
        }
    }

    /// The length of the prefix under which the embeddings of `keys` differ at every cut, if there
    /// is one: that of the stretch under way, if it serves, else what the keys have in common.
    fn prefix(&self, keys: &[&[u8]], cuts: &[Cut]) -> Option<(usize, bool)> {
        let (first, last) = (keys.first()?, keys.last()?);
        let differ = |prefix: usize, before: Option<&[u8]>| {
            let apart = |a: &[u8], b: &[u8]| embed(a, prefix) < embed(b, prefix);
            let inside = cuts.iter().filter(|cut| cut.end < keys.len());
            inside.into_iter().all(|cut| apart(keys[cut.end - 1], keys[cut.end]))
                && before.is_none_or(|before| apart(before, first))
        };
        if let Some(Stretch { content: Content::Model { prefix, .. }, .. }) = self.stretches.last()
            && first.starts_with(prefix)
            && last.starts_with(prefix)
            && differ(prefix.len(), self.last_key.as_deref())
        {
            return Some((prefix.len(), true));
        }
        let whole = keys.iter().all(|key| key.len() <= EMBEDDED_BYTES);
        let prefix = if whole { 0 } else { common_prefix_length(first, last) };
        differ(prefix, None).then_some((prefix, false))
    }

    /// The blocks of `cuts`, each by itself.
    fn blocks(&self, sizes: &[u32], cuts: &[Cut]) -> Vec<Blocks> {
        let (mut start, mut lower) = (0, self.lower.len());
        let block = |cut: &Cut| {
            let entries: u64 = sizes[start..cut.end].iter().map(|size| u64::from(*size)).sum();
            let separator = lower.max(cut.separator.len());
            let bytes = entries + block_overhead_bytes(separator) as u64;
            let count = (cut.end - start) as u64;
            (start, lower) = (cut.end, cut.separator.len());
            Blocks { count: 1, entries: count, bytes: bytes.next_multiple_of(BLOCK_ALIGNMENT) }
        };
        cuts.iter().map(block).collect()
    }

    /// Whether a model that goes on from `before` over `blocks` may name more than may be read at once.
    fn is_wide(&self, before: &[Blocks], blocks: &[Blocks]) -> bool {
        let all: Vec<Blocks> = before.iter().chain(blocks).copied().collect();
        (before.len()..all.len()).any(|last| self.reaches_far(&all[..=last]))
    }

    /// The same of a bound that ends in the last of `blocks`.
    fn reaches_far(&self, blocks: &[Blocks]) -> bool {
        let Some((last, others)) = blocks.split_last() else { return false };
        let (mut between, mut bytes) = (Blocks::default(), last.bytes);
        for first in others.iter().rev() {
            if !K::may_span(self.epsilon, between) {
                return false;
            }
            bytes += first.bytes;
            if bytes > MAX_READ_BYTES {
                return true;
            }
            between.add(*first);
        }
        false
    }

    /// Keeps of the last blocks those that a bound may reach back to: what takes more than may be read at once ends it.
    fn forget(&mut self) {
        let mut bytes = 0;
        let reached = |block: &&Blocks| {
            let is_reached = bytes <= MAX_READ_BYTES;
            bytes += block.bytes;
            is_reached
        };
        let kept = self.recent.iter().rev().take_while(reached).count();
        self.recent.drain(..self.recent.len() - kept);
    }

    fn begin(&mut self, content: Content<K::Builder>) {
        let (first_block, lower) = (self.blocks, self.lower.clone());
        self.stretches.push(Stretch { first_block, lower, content });
    }

    /// Takes the blocks of `cuts` into the model of the last stretch.
    fn model(&mut self, keys: &[&[u8]], cuts: &[Cut], prefix: usize) {
        let Some(Stretch { first_block, content: Content::Model { model, .. }, .. }) =
            self.stretches.last_mut()
        else {
            unreachable!("a stretch with a model was just begun")
        };
        let mut start = 0;
        for (block, cut) in (self.blocks..).zip(cuts) {
            let embedded = keys[start..cut.end].iter().map(|key| embed(key, prefix));
            let pushed = K::push(model, embedded, (block - *first_block) as u32);
            pushed.expect("keys of a table are in order, and so are their embeddings");
            start = cut.end;
        }
    }

    fn separators(&mut self, cuts: &[Cut]) {
        let fresh =
            !matches!(self.stretches.last(), Some(Stretch { content: Content::Separators(_), .. }));
        if fresh {
            self.begin(Content::Separators(Vec::new()));
        }
        let lower = std::iter::once(self.lower.clone());
        let lowers = lower.chain(cuts.iter().map(|cut| cut.separator.to_vec())).take(cuts.len());
        if let Some(Stretch { content: Content::Separators(list), .. }) = self.stretches.last_mut()
        {
            list.extend(lowers.skip(usize::from(fresh)));
        }
    }
}

impl<K: Kind> IndexBuilder for StretchesBuilder<K> {
    fn wanted_bytes(&self) -> usize {
        self.limits.block_bytes * CHUNK_BLOCKS
    }

    fn cut(&mut self, keys: &[&[u8]], sizes: &[u32], end_of_table: bool) -> Vec<Cut> {
        let cuts = by_size(self.limits, keys, sizes, end_of_table);
        let Some(last) = cuts.last() else { return cuts };
        let blocks = self.blocks(sizes, &cuts);
        let before = |goes_on| if goes_on { self.recent.as_slice() } else { &[] };
        let found = self.prefix(keys, &cuts);
        match found.filter(|(_, goes_on)| !self.is_wide(before(*goes_on), &blocks)) {
            Some((prefix, goes_on)) => {
                if !goes_on {
                    let model = K::builder(self.epsilon);
                    self.begin(Content::Model { prefix: keys[0][..prefix].to_vec(), model });
                    self.recent.clear();
                }
                self.model(keys, &cuts, prefix);
                self.recent.extend(blocks);
                self.forget();
            }
            None => self.separators(&cuts),
        }
        let mut start = 0;
        for cut in &cuts {
            self.pending.push_back(self.entries);
            self.entries += (cut.end - start) as u64;
            start = cut.end;
        }
        self.blocks += cuts.len() as u64;
        self.lower = last.separator.to_vec();
        self.last_key = Some(keys[last.end - 1].to_vec());
        cuts
    }

    fn push_end(&mut self, end_bytes: u64) {
        let before = self.pending.pop_front().expect("a block was written that was not cut");
        let sorted = self.ends.push(end_bytes / BLOCK_ALIGNMENT);
        sorted.and_then(|()| self.positions.push(before)).expect("blocks follow one another");
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        put_slice(&mut out, &self.ends.finish());
        let positions = if K::POSITIONS { self.positions } else { MonotoneBuilder::new() };
        put_slice(&mut out, &positions.finish());
        put_varint(&mut out, self.stretches.len() as u64);
        for stretch in self.stretches {
            put_varint(&mut out, stretch.first_block);
            put_slice(&mut out, &stretch.lower);
            match stretch.content {
                Content::Model { prefix, model } => {
                    out.push(0);
                    put_slice(&mut out, &prefix);
                    let mut bytes = Vec::new();
                    K::finish(model).encode(&mut bytes);
                    put_slice(&mut out, &bytes);
                }
                Content::Separators(separators) => {
                    out.push(1);
                    put_varint(&mut out, separators.len() as u64);
                    separators.iter().for_each(|separator| put_slice(&mut out, separator));
                }
            }
        }
        Ok(out)
    }
}

/// An index of kind `K` in memory.
#[derive(Debug)]
pub struct Stretches<K: Kind> {
    ends: Monotone,
    positions: Monotone,
    stretches: Vec<Stretch<K::Model>>,
}

impl<K: Kind> Stretches<K> {
    /// Reads a section.
    ///
    /// # Errors
    /// `Corruption` if it is not one.
    pub fn decode(bytes: &[u8]) -> Result<Stretches<K>> {
        let mut reader = Reader::new(bytes);
        let monotone = |bytes: &[u8]| Monotone::decode(bytes).map_err(|e| refused(K::NAME, &e));
        let ends = monotone(reader.slice()?)?;
        let positions = monotone(reader.slice()?)?;
        if K::POSITIONS && positions.len() != ends.len() {
            return Err(Error::corruption(format!(
                "index {}: expected a position for each of {} blocks, found {}",
                K::NAME,
                ends.len(),
                positions.len()
            )));
        }
        let mut stretches: Vec<Stretch<K::Model>> = Vec::new();
        for _ in 0..reader.length()? {
            let (first_block, lower) = (reader.varint()?, reader.slice()?.to_vec());
            let content = match reader.u8()? {
                0 => {
                    let prefix = reader.slice()?.to_vec();
                    let model = K::Model::decode(reader.slice()?);
                    Content::Model { prefix, model: model.map_err(|e| refused(K::NAME, &e))? }
                }
                1 => {
                    let count = reader.length()?;
                    let list: Result<_> =
                        (0..count).map(|_| Ok(reader.slice()?.to_vec())).collect();
                    Content::Separators(list?)
                }
                other => {
                    return Err(Error::corruption(format!(
                        "index {}: expected a stretch of kind 0 or 1, found {other}",
                        K::NAME
                    )));
                }
            };
            stretches.push(Stretch { first_block, lower, content });
        }
        reader.finish("index")?;
        let ordered = stretches
            .iter()
            .zip(stretches.iter().skip(1))
            .all(|(a, b)| a.first_block < b.first_block && a.lower < b.lower);
        let begins = stretches.first().is_none_or(|s| s.first_block == 0);
        let inside = stretches.last().is_none_or(|s| s.first_block < ends.len());
        if !ordered || !begins || !inside || (stretches.is_empty() && !ends.is_empty()) {
            return Err(Error::corruption(format!(
                "index {}: its stretches are out of order",
                K::NAME
            )));
        }
        Ok(Stretches { ends, positions, stretches })
    }

    fn end_of(&self, stretch: usize) -> u64 {
        self.stretches.get(stretch + 1).map_or(self.ends.len(), |next| next.first_block)
    }
}

impl<K: Kind> Index for Stretches<K> {
    fn block_count(&self) -> u64 {
        self.ends.len()
    }

    fn locate(&self, key: &[u8]) -> (u64, u64) {
        let at = self.stretches.partition_point(|s| s.lower.as_slice() <= key).saturating_sub(1);
        let Some(stretch) = self.stretches.get(at) else { return (0, 0) };
        let (first, last) = (stretch.first_block, self.end_of(at).saturating_sub(1));
        let inside = |block: u64| block.clamp(first, last);
        let (low, high) = match &stretch.content {
            Content::Separators(list) => {
                let block = first + list.partition_point(|s| s.as_slice() <= key) as u64;
                (block, block)
            }
            Content::Model { prefix, .. } if !key.starts_with(prefix) => {
                // Below or above all keys of the stretch, yet between its separators.
                let block = if key < prefix.as_slice() { first } else { last };
                (block, block)
            }
            Content::Model { prefix, model } => {
                let (low, high) = K::locate(model, embed(key, prefix.len()));
                if K::POSITIONS {
                    // The entry before the lower bound may be the last of the block that holds an
                    // absent key's place.
                    let before = self.positions.get(first);
                    let block = |position: u64| {
                        self.positions.rank(before.saturating_add(position)).saturating_sub(1)
                    };
                    (block(low.saturating_sub(1)), block(high))
                } else {
                    (first.saturating_add(low), first.saturating_add(high))
                }
            }
        };
        (inside(low), inside(high))
    }

    fn extent(&self, block: u64) -> (u64, u64) {
        let start = block.checked_sub(1).map_or(0, |before| self.ends.get(before));
        let end = self.ends.get(block);
        (start.saturating_mul(BLOCK_ALIGNMENT), end.saturating_mul(BLOCK_ALIGNMENT))
    }

    fn extents(&self) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        Box::new(between(self.ends.iter().map(|end| end.saturating_mul(BLOCK_ALIGNMENT))))
    }

    fn makeup(&self) -> Makeup {
        let separated = |(at, stretch): (usize, &Stretch<K::Model>)| match stretch.content {
            Content::Separators(_) => self.end_of(at).saturating_sub(stretch.first_block),
            Content::Model { .. } => 0,
        };
        Makeup {
            chunks: self.stretches.len() as u64,
            separated_blocks: self.stretches.iter().enumerate().map(separated).sum(),
            exceptions: 0,
        }
    }

    fn size_bytes(&self) -> usize {
        let stretch = |s: &Stretch<K::Model>| {
            size_of::<Stretch<K::Model>>()
                + s.lower.capacity()
                + match &s.content {
                    Content::Model { prefix, model } => prefix.capacity() + model.size_bytes(),
                    Content::Separators(list) => {
                        list.iter().map(|s| s.capacity() + size_of::<Vec<u8>>()).sum()
                    }
                }
        };
        let models: usize = self.stretches.iter().map(stretch).sum();
        self.ends.size_bytes() + self.positions.size_bytes() + models
    }

    fn describe(&self) -> String {
        let is_model =
            |stretch: &&Stretch<K::Model>| matches!(stretch.content, Content::Model { .. });
        let models = self.stretches.iter().filter(is_model).count();
        format!("{} stretches, {models} of them models", self.stretches.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::greedy_plr::GreedyPlr;
    use super::*;
    use crate::format::example::assert_shown;

    #[test]
    fn the_example_above_is_what_is_written() {
        // So small that each entry is alone in its block.
        let mut builder = StretchesBuilder::<GreedyPlr>::new(Limits { block_bytes: 1 }, b"a", 4);
        let alike: [&[u8]; 3] = [b"c", b"c\0", b"c\0\0"];
        assert_eq!(builder.cut(&[b"a", b"b", b"c"], &[10; 3], false).len(), 2);
        assert_eq!(builder.cut(&alike, &[10; 3], true).len(), 3);
        (1..=5).for_each(|end| builder.push_end(end * 64));
        let bytes = Box::new(builder).finish().unwrap();
        assert_shown(include_str!("stretches.rs"), "Of the kind `greedy-plr`", &bytes);
        let index = Stretches::<GreedyPlr>::decode(&bytes).unwrap();
        assert_eq!((index.block_count(), index.stretches.len()), (5, 2));
    }

    /// A thousand blocks used to be kept, and copied at each cut: more than the model itself cost where blocks are large.
    #[test]
    fn blocks_that_no_bound_reaches_back_to_are_forgotten() {
        let block = |entries: u64, bytes: u64| Blocks { count: 1, entries, bytes };
        // Which wide bounds there are depends on how many entries stand in so many bytes.
        for epsilon in [0, 1, 4, 16, 64, 256] {
            let new =
                || StretchesBuilder::<GreedyPlr>::new(Limits { block_bytes: 1 }, b"a", epsilon);
            let (mut builder, mut all) = (new(), Vec::new());
            let (mut wide, mut narrow) = (0, 0);
            for at in 0..3000_u64 {
                let next = block(1 + at * 7919 % 5, 64 * (1 + at * at / 50 % 97));
                all.push(next);
                builder.recent.push(next);
                let is_wide = builder.reaches_far(&builder.recent);
                assert_eq!(is_wide, builder.reaches_far(&all), "{epsilon} {at}");
                (wide, narrow) = (wide + u64::from(is_wide), narrow + u64::from(!is_wide));
                builder.forget();
                let (first, others) = builder.recent.split_first().unwrap();
                let held: u64 = others.iter().map(|block| block.bytes).sum();
                assert!(held <= MAX_READ_BYTES && first.bytes > 0);
            }
            assert!(narrow > 0 && (wide > 0 || epsilon < 16), "{epsilon}: {wide} {narrow}");
            assert!(builder.recent.len() < all.len() / 10);
        }
    }
}
