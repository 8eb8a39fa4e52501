//! Greedy-PLR+ over blocks: LearnedKV's model of the page distance.

use crate::plr::{Fitter, Segments};
use crate::{BlockBuilder, BlockModel, Bound, BuildError, DecodeError, Persist};

/// A piecewise linear model of key to block ordinal, at most epsilon blocks wrong.
///
/// Source: Greedy-PLR+ of LearnedKV (Wang and Du, arXiv 2406.18892): since storage is read in pages, the
/// error that matters is the distance in pages, so that is what the greedy method of
/// [`GreedyPlr`](crate::GreedyPlr) is made to bound. Only the first and the last key of each block
/// constrain the lines, so a model over `m` blocks is fitted to `2m` points however many keys there are.
///
/// An answer names at most `2 * epsilon + 1` blocks; with epsilon 0, the very block for every key that
/// is present. What is promised for absent keys is [`BlockModel::blocks`]'s contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreedyPlrPlus {
    segments: Segments,
}

impl GreedyPlrPlus {
    /// The largest error of a prediction, in blocks.
    pub fn epsilon(&self) -> u16 {
        self.segments.epsilon()
    }

    /// How many lines the model is made of.
    pub fn segment_count(&self) -> usize {
        self.segments.count()
    }
}

impl Persist for GreedyPlrPlus {
    const NAME: &'static str = "greedy-plr-plus";

    fn encode(&self, out: &mut Vec<u8>) {
        self.segments.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { segments: Segments::decode(bytes)? })
    }

    fn size_bytes(&self) -> usize {
        self.segments.size_bytes()
    }
}

impl BlockModel for GreedyPlrPlus {
    fn blocks(&self, key: u64) -> Bound {
        // No extra block above: between two keys the prediction is at worst the left key's, and its
        // block is where the entry before the lower bound lies.
        self.segments.around(key, 0).clipped(self.block_count().saturating_sub(1))
    }

    fn block_count(&self) -> u64 {
        self.segments.end()
    }
}

/// Builds a [`GreedyPlrPlus`] in one pass; holds the finished segments and one in progress.
#[derive(Clone, Debug)]
pub struct GreedyPlrPlusBuilder {
    fitter: Fitter,
    len: u64,
    previous: Option<(u64, u32)>,
}

impl GreedyPlrPlusBuilder {
    /// A builder of models that are at most `epsilon` blocks wrong. Zero makes each lookup of a present
    /// key read one block, at the price of more segments; from one on, a lookup reads neighbours too.
    pub fn new(epsilon: u16) -> Self {
        Self { fitter: Fitter::new(epsilon), len: 0, previous: None }
    }
}

impl BlockBuilder for GreedyPlrPlusBuilder {
    type Model = GreedyPlrPlus;

    fn push(&mut self, key: u64, block: u32) -> Result<(), BuildError> {
        let position = self.len;
        if let Some((previous, previous_block)) = self.previous {
            if key < previous {
                return Err(BuildError::UnsortedKey { position, previous, found: key });
            }
            if block < previous_block {
                let (previous, found) = (previous_block, block);
                return Err(BuildError::UnsortedBlock { position, previous, found });
            }
        }
        self.fitter.push(key, block.into());
        self.previous = Some((key, block));
        self.len += 1;
        Ok(())
    }

    fn finish(self) -> GreedyPlrPlus {
        let end = self.previous.map_or(0, |(_, block)| u64::from(block) + 1);
        GreedyPlrPlus { segments: self.fitter.finish(end) }
    }
}
