//! Damaged encodings: whatever decodes must answer in range, whatever it is asked.

use learned::{Bound, Persist};

/// Cuts `bytes` at every length, which must not decode, and sets every byte to every other value, which
/// may; runs `probe` on each model that decodes. Says how many did and how many did not.
pub fn damage<M: Persist>(bytes: &[u8], probe: impl Fn(&M)) -> (usize, usize) {
    for cut in 0..bytes.len() {
        let error = M::decode(&bytes[..cut]).err().expect("a cut encoding is refused");
        assert!(error.offset <= cut, "{error}");
    }
    assert!(M::decode(&[bytes, &[0]].concat()).is_err(), "a byte too many is refused");

    let (mut decoded, mut refused) = (0, 0);
    let mut attempt = |bytes: &[u8]| match M::decode(bytes) {
        Ok(model) => {
            assert!(model.size_bytes() <= 8 * bytes.len(), "memory out of proportion");
            probe(&model);
            decoded += 1;
        }
        Err(error) => {
            assert!(error.offset <= bytes.len(), "{error}");
            refused += 1;
        }
    };
    let mut mutant = bytes.to_vec();
    for index in 0..bytes.len() {
        for change in 1..=u8::MAX {
            mutant[index] = bytes[index] ^ change;
            attempt(&mutant);
        }
        mutant[index] = bytes[index];
    }
    (decoded, refused)
}

/// Keys that reach every segment and both ends.
pub fn probes(keys: &[u64]) -> Vec<u64> {
    let mut probes = vec![0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    probes.extend(keys.iter().step_by(keys.len() / 8 + 1));
    probes
}

/// Asserts what even a lying model owes.
pub fn assert_in_range(bound: Bound, largest: u64) {
    assert!(bound.first <= bound.last && bound.last <= largest, "{bound} beyond {largest}");
}
