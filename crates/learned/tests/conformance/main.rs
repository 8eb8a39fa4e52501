//! One battery for every index kind, against one naive oracle.
//!
//! A kind joins by implementing [`positions::Kind`] or [`blocks::Kind`] and calling the battery's macro;
//! it never writes contract tests of its own.

mod blocks;
mod damage;
mod key_sets;
mod oracle;
mod positions;

/// Every epsilon the battery runs at.
const EPSILONS: [u16; 9] = [0, 1, 2, 4, 8, 16, 64, 256, u16::MAX];

mod greedy_plr {
    use learned::GreedyPlrBuilder;

    struct GreedyPlr;

    impl crate::positions::Kind for GreedyPlr {
        type Builder = GreedyPlrBuilder;

        fn builder(epsilon: u16) -> GreedyPlrBuilder {
            GreedyPlrBuilder::new(epsilon)
        }

        fn max_width(epsilon: u16) -> u64 {
            2 * u64::from(epsilon) + 2
        }
    }

    crate::positions::battery!(GreedyPlr);
}

mod greedy_plr_plus {
    use learned::GreedyPlrPlusBuilder;

    struct GreedyPlrPlus;

    impl crate::blocks::Kind for GreedyPlrPlus {
        type Builder = GreedyPlrPlusBuilder;

        fn builder(epsilon: u16) -> GreedyPlrPlusBuilder {
            GreedyPlrPlusBuilder::new(epsilon)
        }

        fn max_width(epsilon: u16) -> u64 {
            2 * u64::from(epsilon) + 1
        }
    }

    crate::blocks::battery!(GreedyPlrPlus);
}
