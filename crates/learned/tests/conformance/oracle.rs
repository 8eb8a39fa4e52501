//! The naive oracle: a sorted vector and a binary search; and the questions worth asking.

/// The number of keys below `key`.
pub fn lower_bound(keys: &[u64], key: u64) -> usize {
    keys.partition_point(|&k| k < key)
}

/// Every key, both its neighbours, and the extremes of `u64`, sorted, without repeats.
pub fn queries(keys: &[u64]) -> Vec<u64> {
    let mut queries = vec![0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for &key in keys {
        queries.extend([key.saturating_sub(1), key, key.saturating_add(1)]);
    }
    // In the middle of each gap as well: extrapolation is at its worst away from both keys.
    queries.extend(keys.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2));
    queries.sort_unstable();
    queries.dedup();
    queries
}

#[test]
fn the_oracle_counts() {
    let keys = [3, 5, 5, 9];
    let counted = |key| keys.iter().filter(|&&k| k < key).count();
    for key in queries(&keys) {
        assert_eq!(lower_bound(&keys, key), counted(key));
    }
    assert_eq!(queries(&[5]), [0, 1, 4, 5, 6, u64::MAX / 2, u64::MAX - 1, u64::MAX]);
}
