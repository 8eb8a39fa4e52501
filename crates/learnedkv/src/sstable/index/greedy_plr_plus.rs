//! Greedy-PLR+ over blocks ([`learned::GreedyPlrPlus`]).

use learned::{BlockBuilder, BlockModel, BuildError, GreedyPlrPlusBuilder, Persist};

use super::stretches::{Blocks, Kind};

/// The kind.
#[derive(Debug)]
pub struct GreedyPlrPlus;

impl Kind for GreedyPlrPlus {
    const NAME: &'static str = learned::GreedyPlrPlus::NAME;
    const POSITIONS: bool = false;
    type Model = learned::GreedyPlrPlus;
    type Builder = GreedyPlrPlusBuilder;

    fn builder(epsilon: u16) -> GreedyPlrPlusBuilder {
        GreedyPlrPlusBuilder::new(epsilon)
    }

    fn push(builder: &mut GreedyPlrPlusBuilder, key: u64, block: u32) -> Result<(), BuildError> {
        builder.push(key, block)
    }

    fn finish(builder: GreedyPlrPlusBuilder) -> learned::GreedyPlrPlus {
        builder.finish()
    }

    fn locate(model: &learned::GreedyPlrPlus, key: u64) -> (u64, u64) {
        let bound = model.blocks(key);
        (bound.first, bound.last)
    }

    fn may_span(epsilon: u16, between: Blocks) -> bool {
        // 2 epsilon + 1 blocks are named; two of these are not between.
        between.count < 2 * u64::from(epsilon)
    }
}
