//! The oracle of monotone sequences: plain lists.

use super::*;

fn encode(values: &[u64]) -> Vec<u8> {
    let mut builder = MonotoneBuilder::new();
    for &value in values {
        builder.push(value).unwrap();
    }
    builder.finish()
}

fn check(values: &[u64]) {
    let sequence = Monotone::decode(encode(values)).unwrap();
    assert_eq!(sequence.len(), values.len() as u64);
    assert!(sequence.iter().eq(values.iter().copied()));
    for (i, &value) in values.iter().enumerate() {
        let next = values.get(i + 1).copied().unwrap_or(0);
        assert_eq!(sequence.get(i as u64), value, "value {i} of {}", values.len());
        assert_eq!(sequence.pair(i as u64), (value, next));
        for x in [value.saturating_sub(1), value, value.saturating_add(1)] {
            assert_eq!(sequence.rank(x), values.partition_point(|&v| v <= x) as u64, "rank {x}");
        }
    }
    for x in [0, 1 << 63, u64::MAX] {
        assert_eq!(sequence.rank(x), values.partition_point(|&v| v <= x) as u64, "rank {x}");
    }
    assert_eq!(sequence.get(values.len() as u64), 0);
    assert_eq!(sequence.get(u64::MAX), 0);
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let x = *state ^ (*state >> 29);
    x.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (x >> 32)
}

fn shapes() -> Vec<Vec<u64>> {
    let mut state = 3;
    let mut shapes = vec![
        vec![],
        vec![0],
        vec![u64::MAX],
        vec![0, u64::MAX],
        vec![0; 200],
        vec![u64::MAX; 65],
        (0..129).collect(),
        (0..64).map(|i| 1 << i).collect(),
        (0..300).map(|i| i * i * i).collect(),
        [vec![0; 63], vec![u64::MAX; 70]].concat(),
    ];
    for bits in [3, 12, 40, 57] {
        let mut sum = 0u64;
        let mut step = || {
            sum = sum.saturating_add(random(&mut state) >> (64 - bits));
            sum
        };
        shapes.push((0..1000).map(|_| step()).collect());
    }
    let mut uniform: Vec<u64> = (0..700).map(|_| random(&mut state)).collect();
    uniform.sort_unstable();
    shapes.push(uniform);
    shapes
}

#[test]
fn values_and_ranks_come_back() {
    for values in shapes() {
        check(&values);
    }
}

#[test]
fn the_bytes_of_the_module_page() {
    let bytes = encode(&[0, 10, 21, 30]);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let (header, rest) = hex.split_at(4);
    let (origin, rest) = rest.split_at(16);
    let (slope, rest) = rest.split_at(4);
    let (bits, rest) = rest.split_at(8);
    let (length, rest) = rest.split_at(2);
    let shown = format!("{header} {origin} {slope} {bits} {length} {rest}");
    assert!(include_str!("mod.rs").contains(&shown), "the page should show: {shown}");
    check(&[0, 10, 21, 30]);
}

#[test]
fn unsorted_values_are_refused() {
    let mut builder = MonotoneBuilder::new();
    builder.push(5).unwrap();
    assert!(builder.push(4).is_err());
    builder.push(5).unwrap();
    assert_eq!(Monotone::decode(builder.finish()).unwrap().len(), 2);
}

#[test]
fn block_ends_take_few_bits() {
    let mut state = 1;
    let mut end = 0;
    let ends: Vec<u64> = (0..16_384)
        .map(|_| {
            end += 57 + random(&mut state) % 8;
            end
        })
        .collect();
    let bits = 8.0 * encode(&ends).len() as f64 / ends.len() as f64;
    assert!(bits < 6.5, "{bits} bits a value");
}

/// Whatever the bytes are, decoding and reading end without a panic.
#[test]
fn mutated_bytes_do_no_harm() {
    let mut state = 11;
    for values in shapes() {
        let good = encode(&values);
        for _ in 0..400 {
            let mut bad = good.clone();
            for _ in 0..=random(&mut state) % 3 {
                let at = random(&mut state) as usize % bad.len();
                bad[at] = random(&mut state) as u8;
            }
            if random(&mut state).is_multiple_of(4) {
                bad.truncate(random(&mut state) as usize % bad.len());
            }
            let Ok(sequence) = Monotone::decode(bad) else { continue };
            for _ in 0..20 {
                let x = random(&mut state);
                sequence.get(x % sequence.len().max(1));
                sequence.pair(x);
                sequence.rank(x);
            }
        }
        for cut in 0..good.len() {
            assert!(Monotone::decode(&good[..cut]).is_err(), "cut to {cut} of {}", good.len());
        }
    }
}
