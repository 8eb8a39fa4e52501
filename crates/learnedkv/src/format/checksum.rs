//! The checksum of everything on disk: XXH3-64 of the payload, bound to where the payload stands.
//!
//! `place` is a random tag of the file (or the database) mixed with the offset, so that stale,
//! misplaced and misdirected bytes fail, yet files can be renamed, linked and ingested.

/// The checksum of `payload` standing at `offset_bytes` of the file tagged `tag`.
pub fn checksum(tag: u64, offset_bytes: u64, payload: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(payload) ^ mix(tag ^ mix(offset_bytes))
}

/// Puts the checksum of what follows the first eight bytes into them.
pub fn seal(tag: u64, offset_bytes: u64, bytes: &mut [u8]) {
    if let Some((sum, payload)) = bytes.split_first_chunk_mut::<8>() {
        *sum = checksum(tag, offset_bytes, payload).to_le_bytes();
    }
}

/// Puts the checksum of what stands before the last eight bytes, at offset 0, into them.
#[cfg(any(test, feature = "fuzzing"))]
pub fn seal_end(tag: u64, bytes: &mut [u8]) {
    if let Some((payload, sum)) = bytes.split_last_chunk_mut::<8>() {
        *sum = checksum(tag, 0, payload).to_le_bytes();
    }
}

/// A bijection of `u64` that spreads every bit (the finalizer of SplitMix64, Steele et al. 2014).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn place_and_payload_both_count() {
        let here = checksum(7, 4096, b"payload");
        assert_ne!(here, checksum(8, 4096, b"payload"));
        assert_ne!(here, checksum(7, 8192, b"payload"));
        assert_ne!(here, checksum(7, 4096, b"paxload"));
        assert_eq!(here, checksum(7, 4096, b"payload"));
    }
}
