//! The battery for kinds that name blocks ([`learned::BlockModel`]).

use learned::{BlockBuilder, BlockModel, BuildError, Persist};

use crate::EPSILONS;
use crate::damage::{assert_in_range, damage, probes};
use crate::key_sets::{self, Random};
use crate::oracle::{lower_bound, queries};

/// What the battery must know of a kind.
pub trait Kind {
    type Builder: BlockBuilder<Model: PartialEq + std::fmt::Debug> + Clone;

    fn builder(epsilon: u16) -> Self::Builder;

    /// How many blocks the kind's documentation lets an answer name.
    fn max_width(epsilon: u16) -> u64;
}

type ModelOf<K> = <<K as Kind>::Builder as BlockBuilder>::Model;

fn build<K: Kind>(keys: &[u64], blocks: &[u32], epsilon: u16) -> ModelOf<K> {
    let mut builder = K::builder(epsilon);
    for (&key, &block) in keys.iter().zip(blocks) {
        builder.push(key, block).unwrap();
    }
    builder.finish()
}

/// Ways to cut `count` entries into blocks: a name, and the block ordinal of each entry.
fn layouts(count: usize) -> Vec<(&'static str, Vec<u32>)> {
    let mut random = Random(count as u64);
    let mut walk = |from: u32, step: &mut dyn FnMut(&mut Random) -> u32| {
        let mut block = from;
        let mut blocks = Vec::with_capacity(count);
        for _ in 0..count {
            blocks.push(block);
            block = block.saturating_add(step(&mut random));
        }
        blocks
    };
    let fixed = |entries: usize| (0..count).map(|i| (i / entries) as u32).collect();
    vec![
        ("one entry a block", fixed(1)),
        ("3 entries a block", fixed(3)),
        ("40 entries a block", fixed(40)),
        ("one block", fixed(usize::MAX)),
        ("uneven blocks", walk(0, &mut |random| u32::from(random.below(25) == 0))),
        ("entries of several blocks", walk(3, &mut |random| random.below(4) as u32)),
        ("rare huge entries", {
            walk(0, &mut |random| if random.below(50) == 0 { 100_000 } else { 0 })
        }),
        ("the last ordinals", walk(u32::MAX - 20, &mut |random| random.below(2) as u32)),
        ("ordinals far apart", walk(0, &mut |_| 1 << 28)),
    ]
}

/// The contract, on `asked` queries; then again on the model that its bytes give back.
fn check<K: Kind>(name: &str, keys: &[u64], blocks: &[u32], asked: &[u64], epsilon: u16) {
    let model = build::<K>(keys, blocks, epsilon);
    let block_count = blocks.last().map_or(0, |&last| u64::from(last) + 1);
    assert_eq!(model.block_count(), block_count);

    let mut bytes = Vec::new();
    model.encode(&mut bytes);
    let decoded = ModelOf::<K>::decode(&bytes).unwrap();
    assert_eq!(decoded, model);

    for &query in asked {
        let named = model.blocks(query);
        let position = lower_bound(keys, query);
        let truth = blocks.get(position).map_or(block_count, |&block| block.into());
        let case = || format!("{name}, epsilon {epsilon}, query {query}: {named}, truly {truth}");
        if keys.get(position) == Some(&query) {
            assert!(named.contains(truth), "{}", case());
        } else {
            assert!(
                named.contains(truth) || named.last + 1 == truth || keys.is_empty(),
                "{}",
                case()
            );
        }
        assert!(named.last <= block_count.saturating_sub(1), "{}", case());
        assert!(named.width() <= K::max_width(epsilon), "{}", case());
        assert_eq!(decoded.blocks(query), named, "{}", case());
    }
}

pub fn small_worlds<K: Kind>() {
    for base in [0, u64::MAX - 5] {
        for (_, keys) in key_sets::exhaustive(base) {
            let asked = queries(&keys);
            for (name, blocks) in layouts(keys.len()) {
                for epsilon in [0, 1] {
                    check::<K>(name, &keys, &blocks, &asked, epsilon);
                }
            }
        }
    }
}

pub fn erratic<K: Kind>() {
    for (index, (_, keys)) in key_sets::erratic().into_iter().enumerate() {
        let asked = queries(&keys);
        for (layout, blocks) in layouts(keys.len()) {
            for epsilon in [0, 1, 4] {
                check::<K>(
                    &format!("erratic set {index}, {layout}"),
                    &keys,
                    &blocks,
                    &asked,
                    epsilon,
                );
            }
        }
    }
}

pub fn contract<K: Kind>() {
    for (set, keys) in key_sets::tiny().into_iter().chain(key_sets::hard()) {
        // Nine layouts to the positions' one: a fifth of the queries, every epsilon.
        let asked = queries(&keys);
        let asked: Vec<u64> = asked.iter().copied().step_by(asked.len() / 1_500 + 1).collect();
        for (layout, blocks) in layouts(keys.len()) {
            for epsilon in EPSILONS {
                check::<K>(&format!("{set}, {layout}"), &keys, &blocks, &asked, epsilon);
            }
        }
    }
}

pub fn real_keys<K: Kind>() {
    for (name, keys) in key_sets::real(200_000) {
        let blocks: Vec<u32> = (0..keys.len()).map(|i| (i / 4) as u32).collect();
        let (few_keys, few_blocks) = (&keys[..20_000], &blocks[..20_000]);
        let asked = queries(few_keys);
        for epsilon in [0, 1, 8] {
            check::<K>(name, &keys, &blocks, &keys, epsilon);
            check::<K>(name, few_keys, few_blocks, &asked, epsilon);
        }
    }
}

pub fn unsorted<K: Kind>() {
    let mut builder = K::builder(1);
    for (key, block) in [(10, 0), (20, 2), (20, 2)] {
        builder.push(key, block).unwrap();
    }
    let error = BuildError::UnsortedKey { position: 3, previous: 20, found: 19 };
    assert_eq!(builder.push(19, 2), Err(error));
    let error = BuildError::UnsortedBlock { position: 3, previous: 2, found: 1 };
    assert_eq!(builder.push(21, 1), Err(error));
    // The refused entries left no trace.
    builder.push(30, 3).unwrap();
    assert_eq!(builder.finish(), build::<K>(&[10, 20, 20, 30], &[0, 2, 2, 3], 1));
}

pub fn damaged<K: Kind>() {
    let mut decoded = 0;
    for (_, keys) in key_sets::tiny().into_iter().chain(key_sets::hard()) {
        let keys = &keys[..keys.len().min(60)];
        let probes = probes(keys);
        for (_, blocks) in layouts(keys.len()).into_iter().take(2) {
            let mut bytes = Vec::new();
            build::<K>(keys, &blocks, 1).encode(&mut bytes);
            let counts = damage::<ModelOf<K>>(&bytes, |model| {
                for &key in &probes {
                    assert_in_range(model.blocks(key), model.block_count().saturating_sub(1));
                }
            });
            decoded += counts.0;
            assert!(counts.1 > 0, "something must be refused");
        }
    }
    assert!(decoded > 10_000, "only {decoded} damaged models were evaluated");
}

macro_rules! battery {
    ($kind:ty) => {
        crate::blocks::battery!($kind; small_worlds erratic contract real_keys unsorted damaged);
    };
    ($kind:ty; $($check:ident)*) => {
        $(#[test]
        fn $check() {
            crate::blocks::$check::<$kind>();
        })*
    };
}
pub(crate) use battery;
