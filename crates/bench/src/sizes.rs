//! Counts and byte sizes as people write them.

use crate::{Error, Result};

/// Reads a count: `200000`, `200k`, `1m`, `1g` (decimal), underscores allowed.
///
/// # Errors
/// If it is not a count or does not fit in 64 bits.
pub fn parse_count(text: &str) -> Result<u64> {
    let bad = || {
        Error::usage(format!("`{text}` is not a count; write digits, optionally with k, m or g"))
    };
    let (digits, factor) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let number: u64 =
        digits.parse().map_err(|_| Error::usage(format!("the count `{text}` is too large")))?;
    number
        .checked_mul(factor)
        .ok_or_else(|| Error::usage(format!("the count `{text}` is too large")))
}

/// Reads a byte size: `4096`, `256MiB`, `64k`, `1g` (binary: k is 1,024).
///
/// # Errors
/// If it is not a size or does not fit in 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let lower = text.to_ascii_lowercase();
    let trimmed = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match trimmed.char_indices().next_back() {
        Some((at, 'k')) => (&trimmed[..at], 10),
        Some((at, 'm')) => (&trimmed[..at], 20),
        Some((at, 'g')) => (&trimmed[..at], 30),
        _ => (trimmed, 0),
    };
    let bad = || {
        Error::usage(format!(
            "`{text}` is not a size; write bytes, or a number with KiB, MiB or GiB"
        ))
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| Error::usage(format!("the size `{text}` is too large")))
}

/// A byte size in the largest unit that leaves at least one whole one.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.2} GiB", value / 1_073_741_824.0),
    }
}

/// A count with its thousands separated.
#[must_use]
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Bytes as a person can read them: text where it is text, `\x..` elsewhere, cut at 48 bytes.
#[must_use]
pub fn show_key(key: &[u8]) -> String {
    // Eight bytes that are not plain text are nearly always one of our integer keys.
    let plain = key.iter().all(|b| (b' '..=b'~').contains(b));
    if let (Ok(integer), false) = (<[u8; 8]>::try_from(key), plain) {
        return format!("{:#018x}", u64::from_be_bytes(integer));
    }
    let cut = &key[..key.len().min(48)];
    let dots = if cut.len() < key.len() { "..." } else { "" };
    format!("\"{}{dots}\"", cut.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_read_back() {
        assert_eq!(parse_count("200k").unwrap(), 200_000);
        assert_eq!(parse_count("1m").unwrap(), 1_000_000);
        assert_eq!(parse_count("1_000").unwrap(), 1_000);
        assert_eq!(parse_bytes("256MiB").unwrap(), 256 << 20);
        assert_eq!(parse_bytes("4096").unwrap(), 4096);
        assert_eq!(parse_bytes("64k").unwrap(), 65_536);
        for bad in ["", "k", "-1", "1.5m", "ten", "99999999999g", "0x10", "½k"] {
            assert!(parse_count(bad).is_err(), "{bad}");
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_and_keys_are_shown_for_people() {
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(12), "12");
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(3 << 29), "1.50 GiB");
        assert_eq!(show_key(b"a/b"), "\"a/b\"");
        assert_eq!(show_key(&7_u64.to_be_bytes()), "0x0000000000000007");
    }
}
