//! What a machine crash does to what was not synced.

use super::random::Random;

/// How unsynced things of one sort fare in one crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// None persists.
    Lost,
    /// All persist, in their newest state.
    Kept,
    /// Each fares by itself: its newest state in so many of 16 cases, else any earlier one.
    Mixed(u8),
}

impl Fate {
    /// Which of `states` successive states (0: the durable one) is found after the crash.
    pub(super) fn choose(self, states: usize, random: &mut Random) -> usize {
        match self {
            Fate::Lost => 0,
            Fate::Kept => states - 1,
            Fate::Mixed(newest_of_16) if random.chance(newest_of_16) => states - 1,
            Fate::Mixed(_) => random.below(states),
        }
    }

    fn random(random: &mut Random) -> Fate {
        match random.below(8) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            _ => Fate::Mixed([1, 4, 8, 12, 15][random.below(5)]),
        }
    }
}

/// The fates of all sorts of things in one crash, drawn from its seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fates {
    pub(super) names: Fate,
    pub(super) lengths: Fate,
    pub(super) sectors: Fate,
    /// Whether the sectors of a page fare apart, or each page as a whole.
    pub(super) torn_pages: bool,
}

impl Fates {
    /// The extremes have the first seeds, so that a test of few seeds has them.
    pub(super) fn of_seed(seed: u64, random: &mut Random) -> Fates {
        let (names, lengths, sectors) = match seed {
            0 => (Fate::Lost, Fate::Lost, Fate::Lost),
            1 => (Fate::Kept, Fate::Kept, Fate::Kept),
            // Files that are there and long enough, without content; and the reverse.
            2 => (Fate::Kept, Fate::Kept, Fate::Lost),
            3 => (Fate::Kept, Fate::Lost, Fate::Kept),
            4 => (Fate::Lost, Fate::Kept, Fate::Kept),
            5 => (Fate::Kept, Fate::Kept, Fate::Mixed(8)),
            _ => (Fate::random(random), Fate::random(random), Fate::random(random)),
        };
        Fates { names, lengths, sectors, torn_pages: random.chance(8) || seed == 5 }
    }
}
