//! Tables: data blocks, then named sections, then their directory, then the footer.
//!
//! ```text
//! table     := block* (each on a 64-byte multiple) section* directory footer
//! directory := count varint | (name slice | offset varint | length varint | checksum u64 | required u8)*
//! footer    := magic "LKVTABLE" | version u32 | directory length u32 | directory offset u64 | tag u64
//!            | directory checksum u64 | checksum u64 of the 40 bytes before           (48 bytes)
//! slice     := length varint | bytes
//! ```
//! `tag` is random per file; every checksum is bound to it and to the place of what it covers. A
//! section that is unknown and required makes a reader refuse the table.
//!
//! Sections so far: `properties` ([`Properties`]); `index:KIND`, whose bytes belong to the kind; and, where
//! ranges of keys were removed, `ranges` ([`super::range`]).
//!
//! ```text
//! properties := entries | tombstones | raw bytes | blocks | data bytes | unpacked bytes | last sequence
//!             | shadowed bytes | overwritten bytes | ranges | covered bytes     (all of them varints)
//!             | smallest slice | largest slice | count varint | segment*
//! segment    := number varint | tag u64 | entries varint | bytes varint | value bytes varint | end varint
//! ```
//! The directory of a table tagged 5 that has one section, `index:fence`, the five bytes `bytes` behind
//! 128 bytes of blocks; and the footer behind it:
//! ```text
//! 01 | 0b 69 6e 64 65 78 3a 66 65 6e 63 65          one section: index:fence
//! 80 01 | 05 | bc f3 8a b9 32 93 ff 8e | 01         at 128, 5 bytes; their checksum; required
//! 4c 4b 56 54 41 42 4c 45 | 01 00 00 00             LKVTABLE; version 1
//! 19 00 00 00 | 85 00 00 00 00 00 00 00             the directory has 25 bytes at 133
//! 05 00 00 00 00 00 00 00                           tag 5
//! bb 9a 72 e8 fc 8a 27 4b | 90 9e 4a cd 24 c1 b4 b8   the directory's checksum, the footer's
//! ```
//! The properties of a table with three entries in one block, `a` to `c`, the newest of them operation
//! 300, one a tombstone; one value of 92 bytes stands in segment 7, tagged 9, right behind the header:
//! ```text
//! 03 | 01 | 64 | 01               3 entries, 1 tombstone, 100 bytes as they are, 1 block
//! 80 01 | c0 01 | ac 02           blocks end at 128, unpacked at 192; sequence 300
//! 14 | 00 | 00 | 00               20 bytes shadowed; nothing overwritten; no ranges, nothing covered
//! 01 61 | 01 63                   a to c
//! 01 | 07 | 09 00 00 00 00 00 00 00   one segment: 7, tagged 9
//! 01 | 64 | 5c | 84 01            1 value, 100 bytes with its checksum, 92 without, up to 132
//! ```

use super::bytes::{Reader, put_slice, put_u32, put_u64, put_varint};
use super::checksum::checksum;
use super::entry::SequenceNumber;
use super::value::ValuePointer;
use crate::error::{Error, ErrorKind, Result};

/// What stands at the end of every table.
pub const FOOTER_BYTES: usize = 48;

pub(super) const MAGIC: &[u8; 8] = b"LKVTABLE";
const VERSION: u32 = 1;

/// The footer of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The file's random tag.
    pub tag: u64,
    /// Where the section directory stands.
    pub directory_offset: u64,
    /// How long it is.
    pub directory_bytes: u32,
    /// Its checksum.
    pub directory_checksum: u64,
}

impl Footer {
    /// The footer of `directory`, which stands at `directory_offset`.
    pub fn new(tag: u64, directory_offset: u64, directory: &[u8]) -> Footer {
        Footer {
            tag,
            directory_offset,
            directory_bytes: directory.len() as u32,
            directory_checksum: checksum(tag, directory_offset, directory),
        }
    }

    /// Appends the footer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = Vec::with_capacity(FOOTER_BYTES);
        bytes.extend_from_slice(MAGIC);
        put_u32(&mut bytes, VERSION);
        put_u32(&mut bytes, self.directory_bytes);
        put_u64(&mut bytes, self.directory_offset);
        put_u64(&mut bytes, self.tag);
        put_u64(&mut bytes, self.directory_checksum);
        let sum = checksum(self.tag, 0, &bytes);
        put_u64(&mut bytes, sum);
        out.extend_from_slice(&bytes);
    }

    /// Reads the last [`FOOTER_BYTES`] of a table.
    ///
    /// # Errors
    /// `Corruption` if it is none; `Unsupported` if a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Footer> {
        let mut reader = Reader::new(bytes);
        let magic = reader.take(MAGIC.len())?;
        if magic != MAGIC {
            return Err(Error::corruption(format!(
                "expected a table's footer, found {magic:02x?}"
            )));
        }
        let version = reader.u32()?;
        let directory_bytes = reader.u32()?;
        let directory_offset = reader.u64()?;
        let tag = reader.u64()?;
        let directory_checksum = reader.u64()?;
        let found = checksum(tag, 0, bytes.get(..reader.position()).unwrap_or_default());
        let expected = reader.u64()?;
        if found != expected {
            return Err(Error::corruption(format!(
                "table footer: expected checksum {expected:016x}, found {found:016x}"
            )));
        }
        if version != VERSION {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "table footer: expected version {VERSION}, found {version}: a newer version of learnedkv wrote \
                     it: open it with that one"
                ),
            ));
        }
        Ok(Footer { tag, directory_offset, directory_bytes, directory_checksum })
    }

    /// Checks and reads the section directory.
    ///
    /// # Errors
    /// `Corruption` if `bytes` are not the directory this footer tells of.
    pub fn decode_directory(&self, bytes: &[u8]) -> Result<Vec<Section>> {
        let found = checksum(self.tag, self.directory_offset, bytes);
        if found != self.directory_checksum {
            return Err(Error::corruption(format!(
                "section directory: expected checksum {:016x}, found {found:016x}",
                self.directory_checksum
            )));
        }
        let mut reader = Reader::new(bytes);
        let count = reader.length()?;
        let mut sections = Vec::new();
        for _ in 0..count {
            let name = String::from_utf8_lossy(reader.slice()?).into_owned();
            let (offset, length) = (reader.varint()?, reader.varint()?);
            let checksum = reader.u64()?;
            let required = reader.u8()? != 0;
            if offset.checked_add(length).is_none_or(|end| end > self.directory_offset) {
                return Err(Error::corruption(format!("section {name:?} lies outside the table")));
            }
            sections.push(Section { name, offset, length, checksum, required });
        }
        reader.finish("section directory")?;
        Ok(sections)
    }
}

/// Makes a footer's checksum right, whatever it holds: for fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub fn mend_footer(footer: &mut [u8; FOOTER_BYTES]) {
    let tag = Reader::at(footer, 24).u64().unwrap_or_default();
    super::checksum::seal_end(tag, footer);
}

/// A named run of bytes of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name: exactly what affects decoding it.
    pub name: String,
    /// Where it stands in the file.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u64,
    /// The checksum of its bytes.
    pub checksum: u64,
    /// Whether a reader that does not know it must refuse the table.
    pub required: bool,
}

impl Section {
    /// The entry of a section of `bytes`, written at `offset` of the file tagged `tag`.
    pub fn new(name: &str, tag: u64, offset: u64, bytes: &[u8]) -> Section {
        let checksum = checksum(tag, offset, bytes);
        let length = bytes.len() as u64;
        Section { name: name.to_owned(), offset, length, checksum, required: true }
    }

    /// Checks bytes read from where the section stands.
    ///
    /// # Errors
    /// `Corruption` if they are not what was written.
    pub fn check(&self, tag: u64, bytes: &[u8]) -> Result<()> {
        let found = checksum(tag, self.offset, bytes);
        if found == self.checksum {
            return Ok(());
        }
        Err(Error::corruption(format!(
            "section {:?}: expected checksum {:016x}, found {found:016x}",
            self.name, self.checksum
        ))
        .at_offset(self.offset))
    }
}

/// Encodes a section directory.
pub fn encode_directory(sections: &[Section]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, sections.len() as u64);
    for section in sections {
        put_slice(&mut out, section.name.as_bytes());
        put_varint(&mut out, section.offset);
        put_varint(&mut out, section.length);
        put_u64(&mut out, section.checksum);
        out.push(u8::from(section.required));
    }
    out
}

/// What a table says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// How many entries it holds.
    pub entries: u64,
    /// How many of them are tombstones.
    pub tombstones: u64,
    /// The sum of key and value lengths.
    pub raw_bytes: u64,
    /// How many data blocks it has.
    pub blocks: u64,
    /// Where the data blocks end.
    pub data_bytes: u64,
    /// Where they would end if none were compressed.
    pub unpacked_bytes: u64,
    /// The largest sequence number in it.
    pub last_sequence: SequenceNumber,
    /// Bytes of settled entries that its entries overwrote when it was written, estimated; of a delta: of its base.
    pub shadowed_bytes: u64,
    /// Bytes of older entries of the LSM part that its entries overwrote when it was written, estimated.
    pub overwritten_bytes: u64,
    /// How many ranges of keys it says are gone from all older data; they stand in a section.
    pub ranges: u64,
    /// Bytes of settled entries that these covered when it was written, estimated; of a delta: of its base.
    pub covered_bytes: u64,
    /// The smallest key of an entry; ranges may go beyond. One byte 0 if there is no entry.
    pub smallest: Vec<u8>,
    /// The largest key of an entry. Empty if there is none: no key lies between.
    pub largest: Vec<u8>,
    /// The value segments that its pointers lead into, by number.
    pub segments: Vec<SegmentUse>,
}

/// What the pointers of one table refer to in one value segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentUse {
    /// The segment's number, which names the file.
    pub segment: u64,
    /// The random tag in its header.
    pub tag: u64,
    /// How many pointers lead there.
    pub entries: u64,
    /// What the values take there, with their checksums, bytes.
    pub bytes: u64,
    /// How long the values are, bytes: together, uncompressed.
    pub value_bytes: u64,
    /// Where the last of these values ends.
    pub end: u64,
}

impl SegmentUse {
    /// What one pointer into the segment tagged `tag` refers to.
    pub fn of(pointer: &ValuePointer, tag: u64) -> SegmentUse {
        let (segment, entries) = (pointer.segment, 1);
        let (bytes, value_bytes, end) = (pointer.stored_bytes(), pointer.length, pointer.end());
        SegmentUse { segment, tag, entries, bytes, value_bytes, end }
    }

    /// How long a value is, bytes: on average.
    pub fn mean_length(&self) -> u64 {
        self.value_bytes / self.entries.max(1)
    }
}

impl Properties {
    /// Whether some of its blocks are compressed.
    pub fn is_compressed(&self) -> bool {
        self.data_bytes != self.unpacked_bytes
    }

    /// Appends the properties.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in self.numbers() {
            put_varint(out, number);
        }
        put_slice(out, &self.smallest);
        put_slice(out, &self.largest);
        put_varint(out, self.segments.len() as u64);
        for used in &self.segments {
            put_varint(out, used.segment);
            put_u64(out, used.tag);
            for number in [used.entries, used.bytes, used.value_bytes, used.end] {
                put_varint(out, number);
            }
        }
    }

    /// Bytes of separated values that the table points at, with their checksums.
    pub fn separated_bytes(&self) -> u64 {
        self.segments.iter().map(|used| used.bytes).fold(0, u64::saturating_add)
    }

    /// How long these values are, bytes: uncompressed.
    pub fn separated_value_bytes(&self) -> u64 {
        self.segments.iter().map(|used| used.value_bytes).fold(0, u64::saturating_add)
    }

    /// Whether the table holds nothing at or above `key`. Removed ranges may go beyond a table's entries, and stand in its file alone.
    pub fn is_all_below(&self, key: &[u8]) -> bool {
        self.ranges == 0 && self.largest.as_slice() < key
    }

    /// Counts one pointer into the segment tagged `tag`.
    pub fn refer(&mut self, pointer: &ValuePointer, tag: u64) {
        let segment = pointer.segment;
        let at = match self.segments.binary_search_by_key(&segment, |used| used.segment) {
            Ok(at) => at,
            Err(at) => {
                self.segments.insert(at, SegmentUse { segment, tag, ..SegmentUse::default() });
                at
            }
        };
        if let Some(used) = self.segments.get_mut(at) {
            used.entries += 1;
            used.bytes = used.bytes.saturating_add(pointer.stored_bytes());
            used.value_bytes = used.value_bytes.saturating_add(pointer.length);
            used.end = used.end.max(pointer.end());
        }
    }

    fn numbers(&self) -> [u64; 11] {
        [
            self.entries,
            self.tombstones,
            self.raw_bytes,
            self.blocks,
            self.data_bytes,
            self.unpacked_bytes,
            self.last_sequence,
            self.shadowed_bytes,
            self.overwritten_bytes,
            self.ranges,
            self.covered_bytes,
        ]
    }

    /// Reads what [`Properties::encode`] wrote.
    ///
    /// # Errors
    /// `Corruption` if it ends early.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Properties> {
        Ok(Properties {
            entries: reader.varint()?,
            tombstones: reader.varint()?,
            raw_bytes: reader.varint()?,
            blocks: reader.varint()?,
            data_bytes: reader.varint()?,
            unpacked_bytes: reader.varint()?,
            last_sequence: reader.varint()?,
            shadowed_bytes: reader.varint()?,
            overwritten_bytes: reader.varint()?,
            ranges: reader.varint()?,
            covered_bytes: reader.varint()?,
            smallest: reader.slice()?.to_vec(),
            largest: reader.slice()?.to_vec(),
            segments: take_segments(reader)?,
        })
    }
}

fn take_segments(reader: &mut Reader<'_>) -> Result<Vec<SegmentUse>> {
    let count = reader.length()?;
    // No allocation from an untrusted count.
    let mut segments = Vec::new();
    for _ in 0..count {
        segments.push(SegmentUse {
            segment: reader.varint()?,
            tag: reader.u64()?,
            entries: reader.varint()?,
            bytes: reader.varint()?,
            value_bytes: reader.varint()?,
            end: reader.varint()?,
        });
    }
    Ok(segments)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::format::example::assert_shown;
    use crate::format::value::Packed;

    #[test]
    fn the_examples_above_are_what_is_written() {
        let page = include_str!("table.rs");
        let mut bytes = encode_directory(&[Section::new("index:fence", 5, 128, b"bytes")]);
        let footer = Footer::new(5, 133, &bytes);
        footer.encode(&mut bytes);
        assert_shown(page, "The directory of a table tagged 5", &bytes);
        let mut properties = Properties {
            entries: 3,
            tombstones: 1,
            raw_bytes: 100,
            blocks: 1,
            data_bytes: 128,
            unpacked_bytes: 192,
            last_sequence: 300,
            shadowed_bytes: 20,
            smallest: b"a".to_vec(),
            largest: b"c".to_vec(),
            ..Properties::default()
        };
        properties.refer(&ValuePointer::raw(7, 32, 92), 9);
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        assert_shown(page, "The properties of a table", &bytes);
    }

    #[test]
    fn footer_directory_and_sections_round_trip() {
        let section = Section::new("index:fence", 5, 128, b"bytes");
        section.check(5, b"bytes").unwrap();
        assert!(section.check(5, b"bytez").unwrap_err().is_corruption());
        let directory = encode_directory(std::slice::from_ref(&section));
        let footer = Footer::new(5, 133, &directory);
        let mut bytes = Vec::new();
        footer.encode(&mut bytes);
        assert_eq!(bytes.len(), FOOTER_BYTES);
        assert_eq!(Footer::decode(&bytes).unwrap(), footer);
        assert_eq!(footer.decode_directory(&directory).unwrap(), [section]);
        for i in 0..FOOTER_BYTES {
            let mut bad = bytes.clone();
            bad[i] ^= 4;
            assert!(Footer::decode(&bad).is_err(), "byte {i}");
        }
        for i in 0..directory.len() {
            let mut bad = directory.clone();
            bad[i] ^= 4;
            assert!(footer.decode_directory(&bad).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn a_newer_table_says_so() {
        let mut bytes = Vec::new();
        Footer::new(5, 0, b"").encode(&mut bytes);
        bytes[8] = 2;
        let sum = checksum(5, 0, &bytes[..40]);
        bytes[40..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Footer::decode(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn properties_round_trip() {
        let mut properties = Properties {
            entries: 1000,
            tombstones: 3,
            raw_bytes: 1 << 40,
            blocks: 77,
            data_bytes: 99_968,
            unpacked_bytes: 299_968,
            last_sequence: 1 << 55,
            shadowed_bytes: 1 << 20,
            overwritten_bytes: 1 << 21,
            ranges: 5,
            covered_bytes: 1 << 30,
            smallest: b"a".to_vec(),
            largest: b"zz".to_vec(),
            segments: Vec::new(),
        };
        for (segment, end) in [(7, 900), (3, 50), (7, 1000), (7, 400)] {
            let packed = Some(Packed { mark: 1, stored_bytes: 10 });
            let pointer = ValuePointer { packed, ..ValuePointer::raw(segment, end - 10, 200) };
            properties.refer(&pointer, 1 << 63 | segment);
        }
        let used = |u: &SegmentUse| (u.segment, u.entries, u.bytes, u.value_bytes, u.end);
        let used: Vec<_> = properties.segments.iter().map(used).collect();
        assert_eq!(used, [(3, 1, 10, 200, 50), (7, 3, 30, 600, 1000)]);
        assert_eq!((properties.separated_bytes(), properties.separated_value_bytes()), (40, 800));
        assert_eq!(properties.segments[1].mean_length(), 200);
        let mut out = Vec::new();
        properties.encode(&mut out);
        assert_eq!(Properties::decode(&mut Reader::new(&out)).unwrap(), properties);
        for cut in 0..out.len() {
            assert!(Properties::decode(&mut Reader::new(&out[..cut])).is_err());
        }
    }
}
