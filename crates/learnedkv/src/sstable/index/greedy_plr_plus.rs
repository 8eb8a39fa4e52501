//! Greedy-PLR+ over blocks ([`learned::GreedyPlrPlus`]).

use learned::{BlockBuilder, BlockModel, BuildError, GreedyPlrPlusBuilder, Persist};

use super::stretches::Kind;

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
}
