//! Keys and values as text: hexadecimal when asked for, else the bytes themselves going in and
//! escaped going out, so that one entry is always one line.

use learnedkv_bench::{Error, Result};

/// The bytes that `text` stands for.
pub fn decode(text: &str, hex: bool) -> Result<Vec<u8>> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    let bad = || {
        Error::usage(format!(
            "`{text}` is not hexadecimal; expected an even number of digits 0-9 a-f"
        ))
    };
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    if !digits.len().is_multiple_of(2) {
        return Err(bad());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|d| d as u8).ok_or_else(bad);
    digits.chunks_exact(2).map(|pair| Ok(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// `bytes` on one line, without tabs.
pub fn encode(bytes: &[u8], hex: bool) -> String {
    if hex {
        return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    // Text in any script stays readable; what is not text, and what would break lines, is escaped.
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if c.is_control() => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_both_ways() {
        assert_eq!(decode("0x00fFa1", true).unwrap(), [0, 255, 161]);
        assert_eq!(encode(&[0, 255, 161], true), "00ffa1");
        assert!(decode("abc", true).is_err() && decode("zz", true).is_err());
    }

    #[test]
    fn text_stays_on_one_line() {
        assert_eq!(encode("naïve\t\n\\".as_bytes(), false), "naïve\\t\\n\\\\");
        assert_eq!(encode(b"a\xFFb\0", false), "a\\xffb\\u{0}");
    }
}
