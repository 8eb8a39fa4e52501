//! Which key is asked for next: the request distributions of YCSB.

use std::fmt;
use std::str::FromStr;

use crate::keys::LoadOrder;
use crate::random::{Permutation, Rng, fnv_scramble};
use crate::{Error, Result};

/// YCSB's skew.
pub const ZIPFIAN_THETA: f64 = 0.99;
/// YCSB's `ScrambledZipfianGenerator` draws from this many items whatever the store's size, and
/// folds them onto the keys by a hash.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// zeta of [`SCRAMBLED_ITEMS`] at 0.99, precomputed as YCSB has it.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;
/// One key in so many is hot; of as many requests all but one go to hot keys (`hotspotdatafraction` 0.2 and
/// `hotspotopnfraction` 0.8, YCSB's defaults; the other requests go to all keys alike).
const HOTSPOT: u64 = 5;

/// A distribution of requests over keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// A few keys, spread over the whole key space, are asked for most of the time. As YCSB has it: of
    /// 10^10 items, folded onto the keys, so that all keys have a part of the tail.
    Zipfian,
    /// The same over the keys themselves: the hottest key, the second, and so on, spread over the key space.
    ZipfianKeys,
    /// Every key alike.
    Uniform,
    /// Keys loaded last are asked for most.
    Latest,
    /// One key in five, spread evenly over the key space, gets four requests of five: YCSB's hotspot.
    Hotspot,
}

impl FromStr for Distribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Distribution> {
        match text {
            "zipfian" => Ok(Distribution::Zipfian),
            "zipfian-keys" => Ok(Distribution::ZipfianKeys),
            "uniform" => Ok(Distribution::Uniform),
            "latest" => Ok(Distribution::Latest),
            "hotspot" => Ok(Distribution::Hotspot),
            _ => Err(Error::usage(format!(
                "unknown request distribution `{text}`; expected zipfian, zipfian-keys, uniform, \
                 latest or hotspot"
            ))),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distribution::Zipfian => "zipfian",
            Distribution::ZipfianKeys => "zipfian-keys",
            Distribution::Uniform => "uniform",
            Distribution::Latest => "latest",
            Distribution::Hotspot => "hotspot",
        })
    }
}

/// Zipfian ranks, 0 the most frequent (Gray et al., "Quickly Generating Billion-Record Synthetic
/// Databases", SIGMOD 1994, as in YCSB).
#[derive(Debug, Clone)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// Ranks below `items` (at least 1).
    #[must_use]
    pub fn new(items: u64, theta: f64) -> Zipfian {
        Zipfian::with_zeta(items, theta, zeta_from(0, items, theta, 0.0))
    }

    fn with_zeta(items: u64, theta: f64, zeta: f64) -> Zipfian {
        let zeta_two = 1.0 + 0.5_f64.powf(theta);
        Zipfian {
            items,
            theta,
            zeta,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta),
        }
    }

    /// Makes room for more items; costs as much as there are new ones.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            let zeta = zeta_from(self.items, items, self.theta, self.zeta);
            *self = Zipfian::with_zeta(items, self.theta, zeta);
        }
    }

    /// The next rank.
    #[inline]
    pub fn next(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// Adds the terms `from + 1 ..= to` of zeta to `sum`.
fn zeta_from(from: u64, to: u64, theta: f64, sum: f64) -> f64 {
    (from..to).fold(sum, |sum, i| sum + 1.0 / ((i + 1) as f64).powf(theta))
}

/// Draws key ranks; one per client thread (cheap to clone).
#[derive(Debug, Clone)]
pub struct Chooser<'a> {
    keys: u64,
    kind: Kind<'a>,
}

/// Which keys are hot, of [`Distribution::ZipfianKeys`]: the same in all runs.
const HOT_SEED: u64 = 99;

#[derive(Debug, Clone)]
enum Kind<'a> {
    Uniform,
    Scrambled(Zipfian),
    OfKeys(Zipfian, Permutation),
    Latest(Zipfian, &'a LoadOrder),
    Hotspot,
}

impl<'a> Chooser<'a> {
    /// Requests over `keys` keys (at least 1) that were loaded in `order`.
    #[must_use]
    pub fn new(distribution: Distribution, keys: u64, order: &'a LoadOrder) -> Chooser<'a> {
        Chooser::growing(distribution, keys, keys, order)
    }

    /// Requests over `keys` keys, of which the first `reached` (at least 1) of `order` are there: what is
    /// drawn may be a key that is not.
    #[must_use]
    pub fn growing(
        distribution: Distribution,
        keys: u64,
        reached: u64,
        order: &'a LoadOrder,
    ) -> Chooser<'a> {
        let kind = match distribution {
            Distribution::Uniform => Kind::Uniform,
            Distribution::Zipfian => {
                Kind::Scrambled(Zipfian::with_zeta(SCRAMBLED_ITEMS, ZIPFIAN_THETA, SCRAMBLED_ZETA))
            }
            Distribution::ZipfianKeys => {
                Kind::OfKeys(Zipfian::new(keys, ZIPFIAN_THETA), Permutation::new(keys, HOT_SEED))
            }
            Distribution::Latest => Kind::Latest(Zipfian::new(reached, ZIPFIAN_THETA), order),
            Distribution::Hotspot => Kind::Hotspot,
        };
        Chooser { keys, kind }
    }

    /// Keys are there up to `reached` of the load order now: the newest are the last before it.
    #[inline]
    pub fn grow(&mut self, reached: u64) {
        if let Kind::Latest(zipfian, _) = &mut self.kind {
            zipfian.grow(reached);
        }
    }

    /// The rank of the next key, in key order.
    #[inline]
    pub fn next(&self, rng: &mut Rng) -> usize {
        match &self.kind {
            Kind::Uniform => rng.below(self.keys) as usize,
            Kind::Scrambled(zipfian) => (fnv_scramble(zipfian.next(rng)) % self.keys) as usize,
            Kind::OfKeys(zipfian, places) => places.at(zipfian.next(rng)) as usize,
            Kind::Latest(zipfian, order) => {
                order.index_at((zipfian.items - 1 - zipfian.next(rng)) as usize)
            }
            Kind::Hotspot => {
                let is_hot = rng.below(HOTSPOT) > 0;
                let hot = rng.below(self.keys.div_ceil(HOTSPOT)) * HOTSPOT;
                (if is_hot { hot } else { rng.below(self.keys) }) as usize
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipfian_frequencies_follow_the_law() {
        let zipfian = Zipfian::new(1000, ZIPFIAN_THETA);
        let mut rng = Rng::seeded(1);
        let draws = 1_000_000;
        let mut counts = vec![0_u32; 1000];
        for _ in 0..draws {
            counts[zipfian.next(&mut rng) as usize] += 1;
        }
        let zeta = zeta_from(0, 1000, ZIPFIAN_THETA, 0.0);
        // Gray's method is exact for ranks 0 and 1 and an approximation beyond.
        for (rank, tolerance) in [(0_usize, 0.02), (1, 0.02), (9, 0.15), (99, 0.15)] {
            let expected = f64::from(draws) / ((rank + 1) as f64).powf(ZIPFIAN_THETA) / zeta;
            let off = (f64::from(counts[rank]) - expected).abs() / expected;
            assert!(off < tolerance, "rank {rank}: {} against {expected}", counts[rank]);
        }
        assert!(counts[999] > 0, "the last rank is never drawn");
    }

    #[test]
    fn growing_is_the_same_as_starting_large() {
        let mut grown = Zipfian::new(10, ZIPFIAN_THETA);
        grown.grow(5000);
        let large = Zipfian::new(5000, ZIPFIAN_THETA);
        assert!((grown.zeta - large.zeta).abs() < 1e-9 && (grown.eta - large.eta).abs() < 1e-12);
    }

    #[test]
    fn scrambled_requests_are_skewed_and_spread() {
        let order = LoadOrder::Sorted;
        let chooser = Chooser::new(Distribution::Zipfian, 10_000, &order);
        let mut rng = Rng::seeded(2);
        let mut counts = vec![0_u32; 10_000];
        for _ in 0..1_000_000 {
            counts[chooser.next(&mut rng)] += 1;
        }
        // The hottest key is where YCSB's hash puts rank 0, and has a share of 1/zeta.
        let hottest = (0..counts.len()).max_by_key(|&i| counts[i]).unwrap();
        assert_eq!(hottest as u64, fnv_scramble(0) % 10_000);
        let share = f64::from(counts[hottest]) / 1e6;
        assert!((share - 1.0 / SCRAMBLED_ZETA).abs() < 0.003, "share {share}");
        let halves = counts[..5000].iter().filter(|&&c| c > 100).count() as i64
            - counts[5000..].iter().filter(|&&c| c > 100).count() as i64;
        assert!(halves.abs() < 150, "hot keys lean to one side: {halves}");
        assert!(counts.iter().all(|&c| c > 0), "keys that are never asked for");
    }

    #[test]
    fn latest_asks_for_the_keys_loaded_last() {
        let order = LoadOrder::Sorted;
        let chooser = Chooser::new(Distribution::Latest, 1000, &order);
        let mut rng = Rng::seeded(3);
        let recent = (0..10_000).filter(|_| chooser.next(&mut rng) >= 900).count();
        assert!((5500..8000).contains(&recent), "{recent} of 10,000 in the newest tenth");
    }

    #[test]
    fn latest_goes_with_the_keys_that_come() {
        let order = LoadOrder::Sorted;
        let mut chooser = Chooser::growing(Distribution::Latest, 2000, 1000, &order);
        let mut rng = Rng::seeded(3);
        for reached in [1000, 1001, 1500] {
            chooser.grow(reached);
            let drawn: Vec<usize> = (0..10_000).map(|_| chooser.next(&mut rng)).collect();
            let newest = reached as usize - 1;
            assert!(drawn.iter().all(|&rank| rank <= newest), "beyond {reached}");
            let share = drawn.iter().filter(|&&rank| rank == newest).count() as f64 / 1e4;
            let expected = 1.0 / zeta_from(0, reached, ZIPFIAN_THETA, 0.0);
            assert!((share - expected).abs() < 0.015, "{share} of the newest, {expected} expected");
        }
    }

    #[test]
    fn zipfian_keys_are_themselves_the_items() {
        let order = LoadOrder::Sorted;
        let (keys, draws) = (1000, 1_000_000);
        let chooser = Chooser::new(Distribution::ZipfianKeys, keys, &order);
        let mut rng = Rng::seeded(2);
        let mut counts = vec![0_u32; keys as usize];
        for _ in 0..draws {
            counts[chooser.next(&mut rng)] += 1;
        }
        let half = counts[..500].iter().filter(|&&count| count > 1000).count();
        let hot = counts.iter().filter(|&&count| count > 1000).count();
        assert!(
            (hot / 3..hot - hot / 3).contains(&half),
            "{half} of {hot} hot keys below the middle"
        );
        assert!(counts.iter().all(|&count| count > 0), "keys that are never asked for");
        // The n-th of the keys has the n-th share: no two of the hot ones are one key.
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let zeta = zeta_from(0, keys, ZIPFIAN_THETA, 0.0);
        for (rank, tolerance) in [(0_usize, 0.02), (1, 0.02), (9, 0.15), (99, 0.15)] {
            let expected = f64::from(draws) / ((rank + 1) as f64).powf(ZIPFIAN_THETA) / zeta;
            let off = (f64::from(counts[rank]) - expected).abs() / expected;
            assert!(off < tolerance, "rank {rank}: {} against {expected}", counts[rank]);
        }
    }

    #[test]
    fn a_hotspot_is_a_fifth_of_the_keys() {
        let order = LoadOrder::Sorted;
        let chooser = Chooser::new(Distribution::Hotspot, 1001, &order);
        let mut rng = Rng::seeded(4);
        let mut counts = vec![0_u32; 1001];
        for _ in 0..1_000_000 {
            counts[chooser.next(&mut rng)] += 1;
        }
        // 201 hot keys share four fifths, and have their part of the last fifth.
        let hot = counts.iter().filter(|&&count| (3500..5000).contains(&count)).count();
        let cold = counts.iter().filter(|&&count| (100..400).contains(&count)).count();
        assert_eq!((hot, cold, counts[1000] > 3500), (201, 800, true));
    }

    #[test]
    fn one_key_is_enough() {
        let order = LoadOrder::Sorted;
        let all = ["zipfian", "zipfian-keys", "uniform", "latest", "hotspot"];
        for distribution in all.map(|name| name.parse().unwrap()) {
            let chooser = Chooser::new(distribution, 1, &order);
            assert_eq!(chooser.next(&mut Rng::seeded(1)), 0);
        }
    }
}
