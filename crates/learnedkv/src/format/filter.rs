//! Filter files: a header, then what the filter's kind wrote.
//!
//! ```text
//! filter file := header payload
//! header      := magic "LKVFILT" 01 | tag u64 | kind 16 bytes | keys u64
//!              | payload length u64 | payload checksum u64 | checksum u64 of those 56 bytes   (64 bytes)
//! ```
//! * `tag` is that of the table the filter belongs to; both checksums are bound to it and to the
//!   place of what they cover. A filter of another table fails, and so does a stale one.
//! * `kind` is the name of the filter's kind, zeros behind it; the payload belongs to the kind.
//! * `keys` is how many keys were added.
//!
//! The file of a table tagged 7 with 3 keys, a filter of the kind `kind` and the payload `01 02`:
//!
//! ```text
//!  0  4c 4b 56 46 49 4c 54 01  07 00 00 00 00 00 00 00   LKVFILT, version 1; tag 7
//! 16  6b 69 6e 64 00 00 00 00  00 00 00 00 00 00 00 00   kind
//! 32  03 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00   3 keys; 2 bytes of payload,
//! 48  44 3c 17 7d 26 0a bb ec  7d 9a 1c ef 89 83 9c eb   their checksum; the header's
//! 64  01 02
//! ```

use super::bytes::{Reader, put_u64, zeros_from};
use super::checksum::checksum;
use crate::error::{Error, ErrorKind, Result};

/// What stands before the payload.
pub const FILTER_HEADER_BYTES: usize = 64;
/// The longest name of a kind.
pub const KIND_NAME_BYTES: usize = 16;

pub(super) const MAGIC: &[u8; 8] = b"LKVFILT\x01";

/// What a filter file says, its payload checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterFile<'a> {
    /// The name of its kind.
    pub kind: &'a str,
    /// How many keys were added.
    pub keys: u64,
    /// What the kind wrote.
    pub payload: &'a [u8],
}

/// Encodes the filter file of the table tagged `tag`.
///
/// # Panics
/// If the kind's name is longer than [`KIND_NAME_BYTES`] or not ASCII: names are ours.
pub fn encode_filter(tag: u64, file: &FilterFile<'_>) -> Vec<u8> {
    assert!(file.kind.len() <= KIND_NAME_BYTES && file.kind.is_ascii(), "{:?}", file.kind);
    let mut out = Vec::with_capacity(FILTER_HEADER_BYTES + file.payload.len());
    out.extend_from_slice(MAGIC);
    put_u64(&mut out, tag);
    out.extend_from_slice(file.kind.as_bytes());
    out.resize(out.len() + KIND_NAME_BYTES - file.kind.len(), 0);
    put_u64(&mut out, file.keys);
    put_u64(&mut out, file.payload.len() as u64);
    put_u64(&mut out, checksum(tag, FILTER_HEADER_BYTES as u64, file.payload));
    let sum = checksum(tag, 0, &out);
    put_u64(&mut out, sum);
    out.extend_from_slice(file.payload);
    out
}

/// The tag that a filter file says its table has, unchecked.
pub fn peek_tag(bytes: &[u8]) -> Option<u64> {
    Reader::at(bytes, MAGIC.len()).u64().ok()
}

/// Reads a filter file of the table tagged `tag`.
///
/// # Errors
/// `Corruption` if it is none, damaged, cut, or another table's; `Unsupported` if a newer version
/// wrote it.
pub fn decode_filter(tag: u64, bytes: &[u8]) -> Result<FilterFile<'_>> {
    let mut reader = Reader::new(bytes);
    let magic = reader.take(MAGIC.len())?;
    if magic != MAGIC {
        let newer = magic.starts_with(b"LKVFILT");
        let kind = if newer { ErrorKind::Unsupported } else { ErrorKind::Corruption };
        return Err(Error::new(kind, format!("expected {MAGIC:02x?}, found {magic:02x?}")));
    }
    let found_tag = reader.u64()?;
    let name = reader.take(KIND_NAME_BYTES)?;
    let (keys, length, payload_sum) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let found = checksum(tag, 0, bytes.get(..reader.position()).unwrap_or_default());
    let expected = reader.u64()?;
    if found_tag != tag || found != expected {
        return Err(Error::corruption(format!(
            "filter header: expected tag {tag:016x} and checksum {expected:016x}, \
             found tag {found_tag:016x} and checksum {found:016x}"
        )));
    }
    let payload = bytes.get(FILTER_HEADER_BYTES..).unwrap_or_default();
    let found = checksum(tag, FILTER_HEADER_BYTES as u64, payload);
    if payload.len() as u64 != length || found != payload_sum {
        return Err(Error::corruption(format!(
            "filter: expected {length} bytes with checksum {payload_sum:016x}, \
             found {} with {found:016x}",
            payload.len()
        ))
        .at_offset(FILTER_HEADER_BYTES as u64));
    }
    let end = zeros_from(name);
    let kind = name.get(..end).and_then(|name| std::str::from_utf8(name).ok());
    let kind = kind.ok_or_else(|| Error::corruption("filter: its kind has no name in UTF-8"))?;
    Ok(FilterFile { kind, keys, payload })
}

/// Makes length and checksums of a filter file right, whatever it holds: for fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub fn mend_filter(bytes: &mut [u8], tag: u64) {
    let Some((header, payload)) = bytes.split_first_chunk_mut::<FILTER_HEADER_BYTES>() else {
        return;
    };
    let mut right = MAGIC.to_vec();
    put_u64(&mut right, tag);
    right.extend_from_slice(header.get(16..40).unwrap_or_default());
    put_u64(&mut right, payload.len() as u64);
    put_u64(&mut right, checksum(tag, FILTER_HEADER_BYTES as u64, payload));
    let sum = checksum(tag, 0, &right);
    put_u64(&mut right, sum);
    header.copy_from_slice(&right);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    const SAMPLE: FilterFile<'static> = FilterFile { kind: "kind", keys: 3, payload: &[1, 2] };

    #[test]
    fn the_example_of_the_module_page_is_what_is_written() {
        let bytes = encode_filter(7, &SAMPLE);
        let page = include_str!("filter.rs");
        let lines: Vec<&str> = page.lines().filter(|l| l.starts_with("//! ")).collect();
        for (number, row) in bytes.chunks(16).enumerate() {
            let hex: Vec<String> = row
                .chunks(8)
                .map(|half| half.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "))
                .collect();
            let line = format!("//! {:>2}  {}", number * 16, hex.join("  "));
            println!("{line}");
            assert!(lines.iter().any(|l| l.starts_with(&line)), "the page lacks {line:?}");
        }
    }

    #[test]
    fn filter_files_round_trip_and_belong_to_one_table() {
        let bytes = encode_filter(7, &SAMPLE);
        assert_eq!(decode_filter(7, &bytes).unwrap(), SAMPLE);
        assert!(decode_filter(8, &bytes).unwrap_err().is_corruption());
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x20;
            assert!(decode_filter(7, &bad).is_err(), "byte {at}");
            assert!(decode_filter(7, &bytes[..at]).is_err(), "cut at {at}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(decode_filter(7, &longer).unwrap_err().is_corruption());
        let mut newer = bytes.clone();
        newer[7] = 2;
        assert_eq!(decode_filter(7, &newer).unwrap_err().kind(), ErrorKind::Unsupported);
        let mut mended = bytes.clone();
        mended[45] = 9;
        mended[60] = 9;
        mend_filter(&mut mended, 7);
        assert_eq!(mended, bytes);
    }
}
