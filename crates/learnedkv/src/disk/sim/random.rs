//! Seeded random numbers for the simulated disk: SplitMix64 (Steele, Lea and Flood, "Fast
//! splittable pseudorandom number generators", OOPSLA 2014).

/// A seeded generator.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A generator of its own for part number `part` of what this one decides, so that a decision
    /// about one file does not shift those about the others.
    pub(super) fn for_part(&self, part: u64) -> Random {
        Random { state: Random::new(self.state ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93)).next() }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True in `of_16` of 16 cases.
    pub(super) fn chance(&mut self, of_16: u8) -> bool {
        self.below(16) < usize::from(of_16)
    }
}
