//! The battery for kinds that bound positions ([`learned::Model`]).

use learned::{BuildError, Builder, Model, Persist};

use crate::damage::{assert_in_range, damage, probes};
use crate::oracle::{lower_bound, queries};
use crate::{EPSILONS, key_sets};

/// What the battery must know of a kind.
pub trait Kind {
    type Builder: Builder<Model: PartialEq + std::fmt::Debug> + Clone;

    fn builder(epsilon: u16) -> Self::Builder;

    /// How many positions the kind's documentation lets a bound name.
    fn max_width(epsilon: u16) -> u64;
}

type ModelOf<K> = <<K as Kind>::Builder as Builder>::Model;

fn build<K: Kind>(keys: &[u64], epsilon: u16) -> ModelOf<K> {
    let mut builder = K::builder(epsilon);
    for &key in keys {
        builder.push(key).unwrap();
    }
    builder.finish()
}

/// The contract, on `asked` queries; then again on the model that its bytes give back.
fn check<K: Kind>(name: &str, keys: &[u64], asked: &[u64], epsilon: u16) {
    let model = build::<K>(keys, epsilon);
    assert_eq!(model.len(), keys.len() as u64);
    assert_eq!(model.is_empty(), keys.is_empty());

    let mut bytes = b"before".to_vec();
    model.encode(&mut bytes);
    let bytes = bytes.strip_prefix(b"before").expect("encode appends");
    let decoded = ModelOf::<K>::decode(bytes).unwrap();
    assert_eq!(decoded, model);

    for &query in asked {
        let bound = model.bound(query);
        let truth = lower_bound(keys, query) as u64;
        let case = || format!("{name}, epsilon {epsilon}, query {query}: {bound}, truly {truth}");
        assert!(bound.contains(truth), "{}", case());
        assert!(bound.last <= model.len(), "{}", case());
        assert!(bound.width() <= K::max_width(epsilon), "{}", case());
        assert_eq!(decoded.bound(query), bound, "{}", case());
    }
}

pub fn small_worlds<K: Kind>() {
    for base in [0, 1 << 40, u64::MAX - 5] {
        for (name, keys) in key_sets::exhaustive(base) {
            for epsilon in [0, 1, 2] {
                check::<K>(name, &keys, &queries(&keys), epsilon);
            }
        }
    }
}

pub fn erratic<K: Kind>() {
    for (index, (_, keys)) in key_sets::erratic().into_iter().enumerate() {
        let asked = queries(&keys);
        for epsilon in EPSILONS {
            check::<K>(&format!("erratic set {index}"), &keys, &asked, epsilon);
        }
    }
}

pub fn contract<K: Kind>() {
    for (name, keys) in key_sets::tiny().into_iter().chain(key_sets::hard()) {
        let asked = queries(&keys);
        for epsilon in EPSILONS {
            check::<K>(name, &keys, &asked, epsilon);
        }
    }
}

pub fn real_keys<K: Kind>() {
    for (name, keys) in key_sets::real(200_000) {
        for epsilon in [0, 8, 64] {
            check::<K>(name, &keys, &keys, epsilon);
        }
        let asked = queries(&keys[..20_000]);
        for epsilon in EPSILONS {
            check::<K>(name, &keys[..20_000], &asked, epsilon);
        }
    }
}

pub fn unsorted<K: Kind>() {
    let mut builder = K::builder(4);
    for key in [10, 20, 20] {
        builder.push(key).unwrap();
    }
    let error = BuildError::UnsortedKey { position: 3, previous: 20, found: 19 };
    assert_eq!(builder.push(19), Err(error));
    // The refused key left no trace.
    builder.push(30).unwrap();
    assert_eq!(builder.finish(), build::<K>(&[10, 20, 20, 30], 4));
}

pub fn many_at_once<K: Kind>() {
    for (name, keys) in key_sets::tiny().into_iter().chain(key_sets::hard()) {
        for epsilon in EPSILONS {
            let expected = build::<K>(&keys, epsilon);
            for piece in [1, 2, 7, 36, usize::MAX] {
                let mut builder = K::builder(epsilon);
                for keys in keys.chunks(piece) {
                    builder.push_all(keys.iter().copied()).unwrap();
                }
                assert!(builder.finish() == expected, "{name}, epsilon {epsilon}, by {piece}");
            }
        }
    }
    let mut builder = K::builder(4);
    let error = BuildError::UnsortedKey { position: 3, previous: 20, found: 19 };
    assert_eq!(builder.push_all([10, 20, 20, 19, 40]), Err(error));
    // What came before the refused key is taken, and nothing from it on.
    builder.push_all([30]).unwrap();
    assert_eq!(builder.finish(), build::<K>(&[10, 20, 20, 30], 4));
}

pub fn damaged<K: Kind>() {
    let mut decoded = 0;
    for (_, keys) in key_sets::tiny().into_iter().chain(key_sets::hard()) {
        let keys = &keys[..keys.len().min(60)];
        let probes = probes(keys);
        for epsilon in [1, 256] {
            let mut bytes = Vec::new();
            build::<K>(keys, epsilon).encode(&mut bytes);
            let counts = damage::<ModelOf<K>>(&bytes, |model| {
                for &key in &probes {
                    assert_in_range(model.bound(key), model.len());
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
        crate::positions::battery!($kind; small_worlds erratic contract real_keys unsorted many_at_once damaged);
    };
    ($kind:ty; $($check:ident)*) => {
        $(#[test]
        fn $check() {
            crate::positions::$check::<$kind>();
        })*
    };
}
pub(crate) use battery;
