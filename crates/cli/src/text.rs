//! Keys and values as text: hexadecimal when asked for; else, on the command line, the bytes
//! themselves; and in lines (what `scan` and `get` print and `load` reads) escaped, so that one
//! entry is always one line.
//!
//! ```text
//! line  := key TAB value [CR] LF     all bytes of a key or value stand for themselves but
//! \\                                 a backslash
//! \t \n \r                           tab, line feed, carriage return
//! \u{HEX}                            another control character
//! \xHH                               a byte that is no part of UTF-8 text
//! ```
//! [`encode`] writes these where it must, [`unescape`] takes them wherever they stand: what was
//! encoded comes back byte for byte, and text without backslashes and tabs is written as it is.

use std::borrow::Cow;

use learnedkv_bench::{Error, Result};

/// The bytes that a key or value of a line stands for; or what is wrong with it.
pub fn unescape(text: &[u8]) -> std::result::Result<Cow<'_, [u8]>, String> {
    let Some(first) = text.iter().position(|byte| *byte == b'\\') else {
        return Ok(Cow::Borrowed(text));
    };
    let (plain, mut rest) = text.split_at(first);
    let mut out = plain.to_vec();
    while let [byte, after @ ..] = rest {
        if *byte != b'\\' {
            out.push(*byte);
            rest = after;
            continue;
        }
        rest = take_escape(after, &mut out).ok_or_else(|| {
            let shown = String::from_utf8_lossy(&rest[..rest.len().min(6)]).into_owned();
            format!(
                "expected \\\\, \\t, \\n, \\r, \\xHH or \\u{{HEX}}, found `{shown}`; write a backslash as \\\\, or \
                 load with --raw if nothing is escaped"
            )
        })?;
    }
    Ok(Cow::Owned(out))
}

/// Puts what an escape stands for into `out`; `text` begins behind its backslash. Returns what
/// follows it.
fn take_escape<'a>(text: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (kind, text) = text.split_first()?;
    let hex = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let simple = match kind {
        b'\\' => b'\\',
        b't' => b'\t',
        b'n' => b'\n',
        b'r' => b'\r',
        b'x' => {
            let (digits, rest) = text.split_at_checked(2)?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            out.push(u8::try_from(hex(digits)?).ok()?);
            return Some(rest);
        }
        b'u' => {
            let text = text.strip_prefix(b"{")?;
            let end = text.iter().take(7).position(|byte| *byte == b'}')?;
            if !text[..end].iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            let char = char::from_u32(hex(&text[..end])?)?;
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(&text[end + 1..]);
        }
        _ => return None,
    };
    out.push(simple);
    Some(text)
}

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

    /// What `encode` writes `unescape` takes back, whatever the bytes.
    #[test]
    fn every_byte_string_comes_back() {
        // What is special, alone and side by side, and halves of characters.
        let pieces: [&[u8]; 14] = [
            b"\\",
            b"\t",
            b"\n",
            b"\r",
            b"\r\n",
            b"\0",
            b"x41",
            b"u{41}",
            b"a",
            b"\x7f",
            "\u{85}\u{feff}\u{2028}é😀".as_bytes(),
            b"\xc3",
            b"\xa9",
            b"\xf0\x9f",
        ];
        let mut seed = 1u64;
        let mut draw = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..draw(6) {
                bytes.extend_from_slice(pieces[draw(pieces.len())]);
                bytes.push(draw(256) as u8);
            }
            let text = encode(&bytes, false);
            assert!(!text.contains(['\t', '\n', '\r']), "{text}");
            assert_eq!(unescape(text.as_bytes()).as_deref(), Ok(bytes.as_slice()), "{text}");
            assert_eq!(decode(&encode(&bytes, true), true).unwrap(), bytes);
        }
        for byte in 0..=255 {
            assert_eq!(unescape(encode(&[byte], false).as_bytes()).as_deref(), Ok(&[byte][..]));
        }
    }

    #[test]
    fn what_is_no_escape_is_refused_and_text_stands_for_itself() {
        for bad in [
            "\\",
            "a\\",
            "\\q",
            "\\x4",
            "\\x+1",
            "\\xg0",
            "\\u41",
            "\\u{}",
            "\\u{d800}",
            "\\u{1234567}",
        ] {
            let error = unescape(bad.as_bytes()).unwrap_err();
            assert!(error.contains("--raw") && error.contains('\\'), "{bad}: {error}");
        }
        let text = "C:/ä \t\r \u{1} \"'{}".as_bytes();
        assert!(matches!(unescape(text), Ok(Cow::Borrowed(found)) if found == text));
        assert_eq!(unescape(b"\\x4A\\u{1F600}").as_deref(), Ok("J😀".as_bytes()));
    }

    #[test]
    fn text_stays_on_one_line() {
        assert_eq!(encode("naïve\t\n\\".as_bytes(), false), "naïve\\t\\n\\\\");
        assert_eq!(encode(b"a\xFFb\0", false), "a\\xffb\\u{0}");
    }
}
