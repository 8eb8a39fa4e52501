//! Numbers of any width up to 64 bits in a byte string, least significant bit first: bit `n` of the
//! string is bit `n % 8` of byte `n / 8`.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

/// The lowest `width` bits, all of them from 64 on.
#[inline]
pub(crate) fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// How many bits `value` needs; 0 for 0.
#[inline]
pub(crate) fn bits_of(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// The number of `width` bits (at most 64) at bit `offset`. Bits past the end read as zero, so that
/// a length that lies costs an answer and no more.
#[inline]
pub(crate) fn read(bytes: &[u8], offset: usize, width: u32) -> u64 {
    let at = offset >> 3;
    let skip = (offset & 7) as u32;
    let mut value = word(bytes, at) >> skip;
    if skip + width > 64 {
        let ninth = at.checked_add(8).and_then(|at| bytes.get(at)).copied().unwrap_or(0);
        value |= u64::from(ninth) << (64 - skip);
    }
    value & mask(width)
}

/// Eight little-endian bytes at `at`, zeros past the end.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let Some(rest) = bytes.get(at..) else { return 0 };
    if let Some(eight) = rest.first_chunk::<8>() {
        return u64::from_le_bytes(*eight);
    }
    match bytes.last_chunk::<8>() {
        // The last eight bytes, without those before `at`.
        Some(eight) if !rest.is_empty() => {
            u64::from_le_bytes(*eight) >> (64 - 8 * rest.len() as u32)
        }
        _ => rest.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    }
}

/// Appends numbers to a bit string.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    /// Whole words of eight bytes, behind `start` others.
    bytes: Vec<u8>,
    start: usize,
    /// The bits of the last, unfinished word, and how many they are (below 64).
    open: u64,
    open_bits: u32,
}

impl BitWriter {
    /// A string that begins behind bytes that are there.
    pub(crate) fn behind(bytes: Vec<u8>) -> Self {
        Self { start: bytes.len(), bytes, ..Self::default() }
    }

    /// Appends the lowest `width` bits of `value`, at most 64.
    #[inline]
    pub(crate) fn push(&mut self, value: u64, width: u32) {
        debug_assert!(width <= 64 && value & !mask(width) == 0, "{value} in {width} bits");
        let value = value & mask(width);
        self.open |= value << self.open_bits;
        let total = self.open_bits + width;
        if total < 64 {
            self.open_bits = total;
            return;
        }
        self.bytes.extend_from_slice(&self.open.to_le_bytes());
        self.open = value.checked_shr(64 - self.open_bits).unwrap_or(0);
        self.open_bits = total - 64;
    }

    /// Appends all bits of another string.
    pub(crate) fn append(&mut self, other: BitWriter) {
        for &word in other.bytes.get(other.start..).unwrap_or_default().as_chunks::<8>().0 {
            self.push(u64::from_le_bytes(word), 64);
        }
        self.push(other.open, other.open_bits);
    }

    /// Bits written so far.
    pub(crate) fn len(&self) -> usize {
        (self.bytes.len() - self.start) * 8 + self.open_bits as usize
    }

    /// The bits as bytes, the last one filled up with zeros; before them what was there.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let open = self.open.to_le_bytes();
        self.bytes.extend(open.iter().take(self.open_bits.div_ceil(8) as usize));
        self.bytes
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn every_width_at_every_offset_comes_back() {
        for skip in 0..=64 {
            for width in 0..=64 {
                let mut writer = BitWriter::default();
                writer.push(mask(skip), skip);
                let value = 0x9e37_79b9_7f4a_7c15 & mask(width);
                writer.push(value, width);
                writer.push(5, 3);
                assert_eq!(writer.len(), (skip + width + 3) as usize);
                let bytes = writer.finish();
                assert_eq!(bytes.len(), (skip + width + 3).div_ceil(8) as usize);
                assert_eq!(read(&bytes, skip as usize, width), value, "{width} bits at {skip}");
                assert_eq!(read(&bytes, (skip + width) as usize, 3), 5);
                let mut behind = BitWriter::behind(vec![7; 3]);
                for (number, bits) in [(mask(skip), skip), (value, width), (5, 3)] {
                    behind.push(number, bits);
                }
                assert_eq!(behind.len(), (skip + width + 3) as usize);
                assert_eq!(behind.finish(), [&[7; 3], bytes.as_slice()].concat());
            }
        }
    }

    #[test]
    fn words_near_the_end_are_those_of_longer_strings() {
        let bytes: Vec<u8> = (1..=20).collect();
        for length in 0..=bytes.len() {
            let padded = [&bytes[..length], &[0; 16]].concat();
            for offset in 0..=8 * length + 8 {
                for width in [1, 7, 8, 31, 57, 64] {
                    let expected = read(&padded, offset, width);
                    assert_eq!(
                        read(&bytes[..length], offset, width),
                        expected,
                        "{length} {offset}"
                    );
                }
            }
        }
    }

    #[test]
    fn past_the_end_are_zeros() {
        assert_eq!(read(&[0xff, 0xff], 12, 64), 0xf);
        assert_eq!(read(&[0xff], 8, 64), 0);
        assert_eq!(read(&[], usize::MAX, 64), 0);
        assert_eq!(read(&[0xff; 9], 4, 64), u64::MAX);
    }
}
