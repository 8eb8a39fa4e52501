//! The checksum of everything on disk: XXH3-64 of the payload, bound to where the payload stands.
//!
//! `place` is a random tag of the file (or the database) mixed with the offset, so that stale,
//! misplaced and misdirected bytes fail, yet files can be renamed, linked and ingested.

use std::cell::OnceCell;

use twox_hash::XxHash3_64;

/// The checksum of `payload` standing at `offset_bytes` of the file tagged `tag`.
pub fn checksum(tag: u64, offset_bytes: u64, payload: &[u8]) -> u64 {
    XxHash3_64::oneshot(payload) ^ mix(tag ^ mix(offset_bytes))
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

/// The hash of a key, as filters know it: XXH3-64, unseeded. It stands in files; it never changes.
pub fn key_hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

/// A key, and its hash once somebody asked for it.
#[derive(Debug, Clone)]
pub struct HashedKey<'a> {
    key: &'a [u8],
    hash: OnceCell<u64>,
}

impl<'a> HashedKey<'a> {
    /// `key`, not hashed yet.
    pub fn new(key: &'a [u8]) -> HashedKey<'a> {
        HashedKey { key, hash: OnceCell::new() }
    }

    /// The key.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Its [`key_hash`].
    pub fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| key_hash(self.key))
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
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::checksum;

    /// What stands on disk is XXH3-64 as published (xxHash 0.8, seed 0), whoever computes it and on
    /// whatever processor: the vectors are of another implementation, and of every path through it.
    #[test]
    fn the_payload_is_hashed_as_published() {
        let place = super::mix(1 ^ super::mix(2));
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for (length, expected) in VECTORS {
            let found = checksum(1, 2, &bytes[..length]) ^ place;
            assert_eq!(found, expected, "{length} bytes: {found:#018x}");
        }
    }

    const VECTORS: [(usize, u64); 20] = [
        (0, 0x2d06_8005_38d3_94c2),
        (1, 0xc44b_dff4_074e_ecdb),
        (3, 0xc348_9259_e968_ad9e),
        (4, 0xd3d6_0c15_1901_4e89),
        (8, 0xb88d_ee77_f6bf_6980),
        (9, 0x0368_8dca_d730_d826),
        (16, 0x9da2_3836_adf2_be1e),
        (17, 0xf34c_3c9c_f5a1_12d1),
        (100, 0x6dbb_812c_f19d_012e),
        (128, 0x65f3_c2c0_0fa9_3185),
        (129, 0x2806_5c6e_c25f_5b25),
        (200, 0x7c64_f3b1_7285_e96a),
        (240, 0x4917_a75c_0ef8_eed7),
        (241, 0x541b_1922_6f00_52e8),
        (512, 0xe041_0eb3_88a9_c9fa),
        (1024, 0x71be_e625_238a_ddb4),
        (1025, 0xd9b4_14f4_e1bb_f7ad),
        (4072, 0x6b6c_0e9e_cbaf_bc90),
        (4096, 0x5c72_2d9c_eb6f_9064),
        (20000, 0xd5ae_2a17_2888_000b),
    ];

    #[test]
    fn place_and_payload_both_count() {
        let here = checksum(7, 4096, b"payload");
        assert_ne!(here, checksum(8, 4096, b"payload"));
        assert_ne!(here, checksum(7, 8192, b"payload"));
        assert_ne!(here, checksum(7, 4096, b"paxload"));
        assert_eq!(here, checksum(7, 4096, b"payload"));
    }
}
