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

    /// Those between the first and the last of a block say nothing more of it: the line does not fall.
    fn push(
        builder: &mut GreedyPlrPlusBuilder,
        mut keys: impl DoubleEndedIterator<Item = u64>,
        block: u32,
    ) -> Result<(), BuildError> {
        let (first, last) = (keys.next(), keys.next_back());
        first.into_iter().chain(last).try_for_each(|key| builder.push(key, block))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_blocks_make_the_model_of_all_keys() {
        // Steps of no pattern, blocks of 1 to 9 keys, some of one number again and again.
        let steps = (0..3_000_u64).map(|n| n * n * 2_654_435_761 % 97);
        let keys: Vec<u64> =
            steps.scan(0, |key, step| Some(std::mem::replace(key, *key + step))).collect();
        for epsilon in [0, 1, 4] {
            let mut all = GreedyPlrPlusBuilder::new(epsilon);
            let mut ends = GreedyPlrPlusBuilder::new(epsilon);
            let (mut rest, mut block) = (keys.as_slice(), 0);
            while !rest.is_empty() {
                let mut end = (1 + block as usize * 5 % 9).min(rest.len());
                // As in tables: the next block begins above the last key of this one.
                while rest.get(end) == Some(&rest[end - 1]) {
                    end += 1;
                }
                let (keys, left) = rest.split_at(end);
                keys.iter().for_each(|key| all.push(*key, block).unwrap());
                GreedyPlrPlus::push(&mut ends, keys.iter().copied(), block).unwrap();
                (rest, block) = (left, block + 1);
            }
            assert_eq!(ends.finish(), all.finish(), "{epsilon}");
        }
    }
}
