//! Greedy-PLR over positions: the kind Bourbon uses.

use crate::plr::{Fitter, Segments};
use crate::{Bound, BuildError, Builder, DecodeError, Model, Persist};

/// A piecewise linear model of key to position, at most epsilon positions wrong.
///
/// Source: the greedy method of Xie et al., "Maximum error-bounded piecewise linear representation for
/// online stream approximation", VLDB Journal 23 (2014), as used by Bourbon (Dai et al., "From WiscKey
/// to Bourbon", OSDI 2020). Here it computes in integers only, so that epsilon is kept without a
/// tolerance.
///
/// A bound names at most `2 * epsilon + 2` positions: epsilon to either side of the prediction, and one
/// more because between two adjacent keys the prediction may be as low as the left key's while the
/// lower bound is the right key. A lookup is a binary search over the segments' first keys and one
/// multiplication. A segment takes 24 bytes of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreedyPlr {
    segments: Segments,
}

impl GreedyPlr {
    /// The largest error of a prediction, in positions.
    pub fn epsilon(&self) -> u16 {
        self.segments.epsilon()
    }

    /// How many lines the model is made of.
    pub fn segment_count(&self) -> usize {
        self.segments.count()
    }
}

impl Persist for GreedyPlr {
    const NAME: &'static str = "greedy-plr";

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

impl Model for GreedyPlr {
    fn bound(&self, key: u64) -> Bound {
        self.segments.around(key, 1)
    }

    fn len(&self) -> u64 {
        self.segments.end()
    }
}

/// Builds a [`GreedyPlr`] in one pass; holds the finished segments and one in progress.
#[derive(Clone, Debug)]
pub struct GreedyPlrBuilder {
    fitter: Fitter,
    len: u64,
}

impl GreedyPlrBuilder {
    /// A builder of models that are at most `epsilon` positions wrong.
    ///
    /// Halving epsilon halves what a lookup has to search, and on real keys makes 1.5 to 4 times as many
    /// segments (`examples/build_cost.rs` prints them). Zero is legal and pays only for keys on lines.
    pub fn new(epsilon: u16) -> Self {
        Self { fitter: Fitter::new(epsilon), len: 0 }
    }
}

impl Builder for GreedyPlrBuilder {
    type Model = GreedyPlr;

    fn push(&mut self, key: u64) -> Result<(), BuildError> {
        self.push_all([key])
    }

    #[inline]
    fn push_all(&mut self, keys: impl IntoIterator<Item = u64>) -> Result<(), BuildError> {
        let (taken, refused) = self.fitter.push_rising(keys, self.len);
        self.len += taken;
        match refused.zip(self.fitter.last_key()) {
            Some((found, previous)) => {
                Err(BuildError::UnsortedKey { position: self.len, previous, found })
            }
            None => Ok(()),
        }
    }

    fn finish(self) -> GreedyPlr {
        GreedyPlr { segments: self.fitter.finish(self.len) }
    }
}
