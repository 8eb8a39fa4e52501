//! Deterministic randomness: the same seed gives the same stream on every machine.

/// The output function of splitmix64 (Steele, Lea, Flood, 2014): a bijection that spreads every
/// input bit over all output bits.
#[inline]
#[must_use]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// YCSB's `Utils.fnvhash64`: FNV-1a over the eight little-endian bytes, made non-negative as Java's
/// `Math.abs` does.
#[inline]
#[must_use]
pub fn fnv_scramble(mut x: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for _ in 0..8 {
        hash ^= x & 0xFF;
        hash = hash.wrapping_mul(1_099_511_628_211);
        x >>= 8;
    }
    hash.cast_signed().unsigned_abs()
}

/// xoshiro256++ (Blackman, Vigna, 2019), seeded through splitmix64.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The stream of `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Rng {
        let mut state = [0; 4];
        for (i, word) in state.iter_mut().enumerate() {
            *word = mix(seed.wrapping_add((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        }
        Rng { state }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound` (which is at least 1), by Lemire's multiplication; the bias is below
    /// `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A standard normal number (Box and Muller, 1958; the cosine half).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A seeded permutation of `0..len` that needs no memory: a four-round Feistel network over the
/// next even number of bits, walked along its cycle until it lands below `len` (at most four steps
/// on average).
#[derive(Debug, Clone)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    round_keys: [u64; 4],
}

impl Permutation {
    /// The permutation of `0..len` that belongs to `seed`.
    #[must_use]
    pub fn new(len: u64, seed: u64) -> Permutation {
        let bits = 64 - len.saturating_sub(1).leading_zeros();
        let mut rng = Rng::seeded(seed);
        Permutation {
            len,
            half_bits: bits.div_ceil(2).max(1),
            round_keys: std::array::from_fn(|_| rng.next_u64()),
        }
    }

    /// Where `position` (below `len`) goes.
    #[inline]
    #[must_use]
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.len);
        let mask = (1_u64 << self.half_bits) - 1;
        let mut x = position;
        loop {
            let (mut left, mut right) = (x >> self.half_bits, x & mask);
            for key in self.round_keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            x = (left << self.half_bits) | right;
            if x < self.len {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_reaches_every_position_once() {
        for len in [1_u64, 2, 3, 5, 16, 17, 1000, 4097] {
            let permutation = Permutation::new(len, 7);
            let mut images: Vec<u64> = (0..len).map(|i| permutation.at(i)).collect();
            images.sort_unstable();
            assert!(images.iter().copied().eq(0..len), "not a permutation of 0..{len}");
        }
    }

    #[test]
    fn streams_repeat_and_differ_by_seed() {
        let draw = |seed| {
            let mut rng = Rng::seeded(seed);
            [rng.next_u64(), rng.next_u64(), rng.below(1 << 40)]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_deviation_one() {
        let mut rng = Rng::seeded(3);
        let draws: Vec<f64> = (0..100_000).map(|_| rng.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
