//! Greedy-PLR over entry positions ([`learned::GreedyPlr`]).

use learned::{BuildError, Builder, GreedyPlrBuilder, Model, Persist};

use super::stretches::{Blocks, Kind};

/// The kind.
#[derive(Debug)]
pub struct GreedyPlr;

impl Kind for GreedyPlr {
    const NAME: &'static str = learned::GreedyPlr::NAME;
    const POSITIONS: bool = true;
    type Model = learned::GreedyPlr;
    type Builder = GreedyPlrBuilder;

    fn builder(epsilon: u16) -> GreedyPlrBuilder {
        GreedyPlrBuilder::new(epsilon)
    }

    fn push(
        builder: &mut GreedyPlrBuilder,
        keys: impl DoubleEndedIterator<Item = u64>,
        _block: u32,
    ) -> Result<(), BuildError> {
        builder.push_all(keys)
    }

    fn finish(builder: GreedyPlrBuilder) -> learned::GreedyPlr {
        builder.finish()
    }

    fn locate(model: &learned::GreedyPlr, key: u64) -> (u64, u64) {
        let bound = model.bound(key);
        (bound.first, bound.last)
    }

    fn may_span(epsilon: u16, between: Blocks) -> bool {
        // 2 epsilon + 2 positions are named, and the one before them; two of these are not between.
        between.entries <= 2 * u64::from(epsilon) + 1
    }
}
