//! Key generators: each a distribution of `u64` keys that is hard or easy in its own way.

use super::KeySet;
use crate::random::Rng;

/// A distribution of integer keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generator {
    /// Every `u64` alike.
    Uniform,
    /// 0, 1, 2 and so on, loaded in that order.
    Sequential,
    /// e to a normal number of deviation 2, times 2^40: dense at the left, a long tail.
    Lognormal,
    /// Runs of evenly spaced keys, each with its own spacing and length, and wide gaps between.
    Segmented,
    /// A bell around 2^63, with deviation 2^60.
    Normal,
    /// Clusters of very different sizes and widths around random centres.
    Clustered,
}

impl Generator {
    /// Every generator with its name on the command line.
    pub const ALL: [(&'static str, Generator); 6] = [
        ("uniform", Generator::Uniform),
        ("sequential", Generator::Sequential),
        ("lognormal", Generator::Lognormal),
        ("segmented", Generator::Segmented),
        ("normal", Generator::Normal),
        ("clustered", Generator::Clustered),
    ];

    /// `count` distinct keys of this distribution.
    #[must_use]
    pub fn generate(self, count: usize, seed: u64) -> KeySet {
        if self == Generator::Sequential {
            return KeySet::from_integers((0..count as u64).collect());
        }
        let mut rng = Rng::seeded(seed);
        let mut keys = Vec::with_capacity(count + count / 64);
        // Draws collide; draw again until enough are distinct, then thin out evenly so that the
        // surplus does not come from one end.
        while keys.len() < count {
            let missing = count - keys.len();
            self.draw(missing + missing / 64, &mut rng, &mut keys);
            keys.sort_unstable();
            keys.dedup();
        }
        let drawn = keys.len();
        let mut kept = 0;
        for slot in 0..count {
            keys[slot] = keys[(slot as u128 * drawn as u128 / count as u128) as usize];
            kept += 1;
        }
        keys.truncate(kept);
        KeySet::from_integers(keys)
    }

    /// Appends `count` draws.
    fn draw(self, count: usize, rng: &mut Rng, keys: &mut Vec<u64>) {
        let until = keys.len() + count;
        match self {
            Generator::Sequential => unreachable!("sequential keys are not drawn"),
            Generator::Uniform => keys.extend((0..count).map(|_| rng.next_u64())),
            Generator::Lognormal => keys.extend(
                (0..count).map(|_| ((2.0 * rng.normal()).exp() * (1_u64 << 40) as f64) as u64),
            ),
            Generator::Normal => keys.extend(
                (0..count)
                    .map(|_| (rng.normal() * (1_u64 << 60) as f64 + (1_u64 << 63) as f64) as u64),
            ),
            Generator::Segmented => {
                while keys.len() < until {
                    let start = rng.next_u64() >> 2;
                    let spacing = 1 << rng.below(16);
                    let length = (16 + rng.below(2048)).min((until - keys.len()) as u64);
                    keys.extend((0..length).map(|i| start + i * spacing));
                }
            }
            Generator::Clustered => {
                while keys.len() < until {
                    // Sizes 2^0..2^14 and widths 2^20..2^44 drawn apart: the densest cluster is
                    // a million times as dense as the thinnest.
                    let centre = rng.next_u64() >> 1;
                    let width = (1_u64 << (20 + rng.below(25))) as f64;
                    let length = (1 << rng.below(15)).min((until - keys.len()) as u64);
                    keys.extend(
                        (0..length)
                            .map(|_| centre.saturating_add_signed((rng.normal() * width) as i64)),
                    );
                }
            }
        }
    }
}

/// Shortest key of [`random_bytes`]: `2^32` of them are distinct.
pub(super) const MIN_KEY_BYTES: usize = 4;
/// Longest.
pub(super) const MAX_KEY_BYTES: usize = 4096;

/// `count` distinct keys of random bytes whose lengths are nearly normal, rounded, and cut at four
/// deviations, at 4 bytes and at 4,096.
#[must_use]
pub fn random_bytes(mean: f64, deviation: f64, count: usize, seed: u64) -> KeySet {
    let mut rng = Rng::seeded(seed);
    let (mut buffer, mut pieces) = (Vec::new(), Vec::new());
    loop {
        // Short keys collide: what is missing, and a little more, is drawn until it is enough.
        let missing = count.saturating_sub(pieces.len()).max(1);
        for _ in 0..missing + missing / 64 {
            let drawn = (mean + deviation * rng.normal().clamp(-4.0, 4.0)).round();
            let length = (drawn as usize).clamp(MIN_KEY_BYTES, MAX_KEY_BYTES);
            let start = buffer.len();
            while buffer.len() < start + length {
                buffer.extend_from_slice(&rng.next_u64().to_le_bytes());
            }
            buffer.truncate(start + length);
            pieces.push(start..start + length);
        }
        pieces.sort_unstable_by(|a, b| buffer[a.clone()].cmp(&buffer[b.clone()]));
        pieces.dedup_by(|a, b| buffer[a.clone()] == buffer[b.clone()]);
        if pieces.len() >= count {
            let drawn = pieces.len();
            let even = |slot: usize| (slot as u128 * drawn as u128 / count as u128) as usize;
            let kept = (0..count).map(|slot| pieces[even(slot)].clone()).collect();
            return KeySet::from_pieces(&buffer, kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generator_gives_the_asked_number_of_distinct_sorted_keys_repeatably() {
        for (name, generator) in Generator::ALL {
            for count in [1, 2, 1000, 20_011] {
                let set = generator.generate(count, 5);
                assert_eq!(set.len(), count, "{name}");
                for i in 1..count {
                    assert!(set.key(i - 1).as_ref() < set.key(i).as_ref(), "{name} at {i}");
                }
                assert_eq!(set, generator.generate(count, 5), "{name} is not repeatable");
            }
        }
        let bytes = |count, seed| random_bytes(10.45, 1.4, count, seed);
        for count in [1, 1000, 20_011] {
            let set = bytes(count, 5);
            assert_eq!((set.len(), &set), (count, &bytes(count, 5)));
        }
        // As short as they may be, and many of them.
        assert_eq!(random_bytes(1.0, 0.0, 300_000, 1).len(), 300_000);
        let uniform = |seed| Generator::Uniform.generate(100, seed);
        assert_ne!(uniform(1), uniform(2));
    }

    #[test]
    fn random_bytes_are_as_long_as_asked() {
        for (mean, deviation) in [(27.1, 2.6), (47.9, 3.7), (10.45, 1.4), (24.0, 0.0)] {
            let set = random_bytes(mean, deviation, 20_000, 3);
            let lengths = (0..set.len()).map(|i| set.key(i).as_ref().len() as f64);
            let found = lengths.clone().sum::<f64>() / set.len() as f64;
            let variance = lengths.map(|l| (l - found) * (l - found)).sum::<f64>();
            let spread = (variance / set.len() as f64).sqrt();
            assert!((found - mean).abs() < 0.06, "{mean}: {found}");
            // Rounding to whole bytes adds a twelfth to the variance.
            let expected =
                if deviation > 0.0 { (deviation * deviation + 1.0 / 12.0).sqrt() } else { 0.0 };
            assert!((spread - expected).abs() < 0.06, "{deviation}: {spread}");
        }
    }
}
