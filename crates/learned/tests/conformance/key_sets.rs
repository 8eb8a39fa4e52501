//! Key sets that have broken learned indexes: small ones, hard ones, real ones.

use std::path::PathBuf;

/// A named, sorted key set.
pub type KeySet = (&'static str, Vec<u64>);

/// SplitMix64 (Steele, Lea, Flood 2014): seeded, so every run asks the same.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

fn sorted(name: &'static str, mut keys: Vec<u64>) -> KeySet {
    keys.sort_unstable();
    (name, keys)
}

/// Sets of 0, 1 and 2 keys, and tiny ones with repeats, at both ends of the key space.
pub fn tiny() -> Vec<KeySet> {
    let max = u64::MAX;
    [
        ("no key", vec![]),
        ("zero", vec![0]),
        ("one", vec![1]),
        ("max", vec![max]),
        ("zero twice", vec![0, 0]),
        ("max twice", vec![max, max]),
        ("both ends", vec![0, max]),
        ("both ends, inner", vec![1, max - 1]),
        ("adjacent", vec![7, 8]),
        ("adjacent at max", vec![max - 1, max]),
        ("both ends repeated", [vec![0; 9], vec![max; 9]].concat()),
        ("runs of neighbours", [vec![4; 9], vec![5; 9], vec![6; 9]].concat()),
        ("runs of neighbours at max", [vec![max - 1; 9], vec![max; 9]].concat()),
    ]
    .into()
}

/// Every sorted multiset of up to five keys over six neighbouring values, placed at `base`.
pub fn exhaustive(base: u64) -> Vec<KeySet> {
    let mut sets = vec![vec![]];
    let mut all = sets.clone();
    for _ in 0..5 {
        sets = sets
            .iter()
            .flat_map(|set: &Vec<u64>| {
                let from = set.last().map_or(0, |last| last - base);
                (from..6).map(move |value| [set.clone(), vec![base + value]].concat())
            })
            .collect();
        all.extend(sets.iter().cloned());
    }
    all.into_iter().map(|keys| ("exhaustive", keys)).collect()
}

/// About two thousand keys each, one for every way a distribution is known to be hard.
pub fn hard() -> Vec<KeySet> {
    const N: u64 = 2_000;
    let mut random = Random(42);
    let mut draw = |f: &mut dyn FnMut(&mut Random, u64) -> u64| -> Vec<u64> {
        (0..N).map(|i| f(&mut random, i)).collect()
    };
    let mut walk = 0u64;
    let mut level = 0u64;
    let mut bases = Random(7);
    let bases: Vec<u64> = (0..20).map(|_| bases.next() >> 1).collect();
    vec![
        sorted("sequential", draw(&mut |_, i| i)),
        sorted("sequential, odd stride", draw(&mut |_, i| 1_000_003 * i + 17)),
        sorted("the whole range evenly", draw(&mut |_, i| i * (u64::MAX / (N - 1)))),
        sorted("uniform", draw(&mut |random, _| random.next())),
        sorted("uniform, dense", draw(&mut |random, _| random.below(2 * N))),
        sorted("lognormal", draw(&mut |random, _| (random.normal() * 2.0 + 20.0).exp() as u64)),
        sorted("clustered", draw(&mut |random, i| bases[i as usize % 20] + random.below(100_000))),
        sorted(
            "segmented",
            draw(&mut |_, i| {
                walk += if i / 100 % 2 == 0 { 1 } else { 1 << 20 };
                walk
            }),
        ),
        sorted(
            "huge jumps",
            draw(&mut |_, i| {
                level += if i % 37 == 0 { u64::MAX / 60 } else { 1 };
                level
            }),
        ),
        sorted("near max", draw(&mut |random, _| u64::MAX - random.below(5_000))),
        sorted("last keys before max", draw(&mut |_, i| u64::MAX - i)),
        sorted("exponential growth", draw(&mut |_, i| 1u64 << (i % 64))),
        sorted("exponential, both directions", {
            let up = (0..64).map(|i| 1u64 << i);
            let down = (0..64).map(|i| u64::MAX - (1u64 << i));
            up.chain(down).collect()
        }),
        sorted("quadratic", draw(&mut |_, i| i * i * 1_000)),
        sorted("long runs", draw(&mut |_, i| i / 500 * 1_000)),
        sorted("long runs of neighbours", draw(&mut |_, i| 900 + i / 300)),
        sorted("long runs among singles", {
            let runs = draw(&mut |_, i| if i % 3 == 0 { 40_000 } else { 30 * i });
            [runs, vec![u64::MAX; 300], vec![0; 300]].concat()
        }),
        sorted("run lengths growing", (1..60u64).flat_map(|i| vec![i * i; i as usize]).collect()),
    ]
}

/// Small sets whose gaps are drawn from every order of magnitude, with runs of equal keys: many shapes,
/// none of them anybody's idea of a distribution.
pub fn erratic() -> Vec<KeySet> {
    let mut random = Random(2_014);
    let mut set = |_| {
        let largest_gap_bits = 1 + random.below(62);
        let mut key = random.next() >> random.below(64);
        let mut keys = Vec::new();
        for _ in 0..random.below(80) {
            let run = if random.below(8) == 0 { random.below(30) } else { 1 };
            keys.extend((0..run).map(|_| key));
            let gap_bits = random.below(largest_gap_bits);
            key = key.saturating_add(1 + (random.next() >> (63 - gap_bits)));
        }
        ("erratic", keys)
    };
    (0..400).map(&mut set).collect()
}

/// The first `limit` keys of each real set, in SOSD format (a little-endian u64 count, then keys);
/// absent sets are named as skipped and left out.
///
/// They lie in `$LEARNEDKV_DATA`, else in `shared/data` beside the project's checkout.
pub fn real(limit: usize) -> Vec<KeySet> {
    let folder = std::env::var_os("LEARNEDKV_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let mut sets = Vec::new();
    for name in ["coast_hilbert_1m_uint64", "coast_longlat_1m_uint64"] {
        let path = folder.join(name);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let why = format!("{}: {error}; LEARNEDKV_DATA names its folder", path.display());
                learnedkv_skips::skip("data", &why);
                continue;
            }
        };
        let (words, []) = bytes.as_chunks::<8>() else { panic!("{name} is cut short") };
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        assert_eq!(words.next(), Some(words.len() as u64), "{name} begins with its count");
        let keys: Vec<u64> = words.take(limit).collect();
        assert!(keys.is_sorted(), "{name} is sorted");
        sets.push((name, keys));
    }
    sets
}
