//! Log segments: a header, then records on 8-byte multiples.
//!
//! ```text
//! segment := header record*
//! header  := magic "LKVLOG" 00 01 | segment u64 | database u64 | checksum u64 of those 24 bytes   (64 bytes, rest 0)
//! record  := checksum u64 | segment u64 | first sequence u64 | synced sequence u64
//!          | payload length u32 | count u24, flags u8 | [external position 16 bytes] | payload | 0* to 8 bytes
//! ```
//! * `checksum` covers all that follows it in the record up to the payload's end, bound to the
//!   database's tag and the record's place: `segment` is never reused, so stale records fail.
//! * The record's operations have the sequence numbers `first .. first + count`, in log order: the
//!   next record's `first` is this one's `first + count`.
//! * `synced` is the highest sequence number known to be durable when the record was written.
//!   Recovery uses it to tell a torn end from damage.
//! * Flag 1: a 16-byte external log position stands before the payload. It is that of the whole batch, and
//!   so of each keyspace that the batch writes to.
//! * Behind the last record stand zeros, or what another segment's records left there whose file this was
//!   before ([`crate::wal`]).
//!
//! Segment 3 of the database 4, and its first records: `put k1=v` in keyspace 2 ([`super::batch`]) as
//! operation 7, when all up to 5 was durable.
//! ```text
//! 4c 4b 56 4c 4f 47 00 01 | 03 00 00 00 00 00 00 00   LKVLOG, version 1; segment 3
//! 04 00 00 00 00 00 00 00 | 54 09 d8 52 04 20 d4 34   database 4; checksum
//! 00 00 00 00 00 00 00 00 | 00 00 00 00 00 00 00 00
//! 00 00 00 00 00 00 00 00 | 00 00 00 00 00 00 00 00
//! d9 e8 f5 f8 23 71 69 65 | 03 00 00 00 00 00 00 00   checksum; segment 3
//! 07 00 00 00 00 00 00 00 | 05 00 00 00 00 00 00 00   first 7; synced 5
//! 07 00 00 00 | 01 00 00 | 00                         7 bytes of payload; 1 operation; no flag
//! 01 02 02 01 6b 31 76 | 00                           payload, filled up to 48 bytes
//! 6b 48 1d a4 75 2c 82 bd | 03 00 00 00 00 00 00 00   the same again as operation 8, from the external
//! 08 00 00 00 00 00 00 00 | 05 00 00 00 00 00 00 00   position "primary/00000042"
//! 07 00 00 00 | 01 00 00 | 01                         flag 1
//! 70 72 69 6d 61 72 79 2f | 30 30 30 30 30 30 34 32   the position
//! 01 02 02 01 6b 31 76 | 00
//! ```

use super::bytes::{Reader, put_u64};
use super::checksum::{checksum, mix, seal};
use super::entry::{ExternalPosition, MAX_SEQUENCE, SequenceNumber};
use crate::error::{Error, ErrorKind, Result};

/// Where the first record stands.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// By so many bytes [`next_candidate`] tells a record.
pub const CANDIDATE_BYTES: usize = 24;
/// So many bytes at most fill a record up.
pub const RECORD_FILL_BYTES: usize = ALIGNMENT - 1;
/// What stands before a record's payload (without the external position).
pub const RECORD_HEADER_BYTES: usize = 40;
/// The most operations in one batch.
pub const MAX_BATCH_COUNT: u32 = (1 << 24) - 1;

pub(super) const MAGIC: [u8; 8] = *b"LKVLOG\0\x01";
const ALIGNMENT: usize = 8;
const EXTERNAL_POSITION: u8 = 1;
const EXTERNAL_POSITION_BYTES: usize = size_of::<ExternalPosition>();

/// What a record says besides its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The segment it was written to.
    pub segment: u64,
    /// The sequence number of its first operation.
    pub first: SequenceNumber,
    /// How many operations it holds; at least 1.
    pub count: u32,
    /// The highest sequence number known to be durable when it was written.
    pub synced: SequenceNumber,
    /// Where its batch stands in somebody else's log, if it says so.
    pub external_position: Option<ExternalPosition>,
}

impl RecordHeader {
    /// The sequence number of its last operation.
    pub fn last(&self) -> SequenceNumber {
        self.first + u64::from(self.count) - 1
    }
}

/// How many bytes a record takes in its segment.
pub fn record_bytes(payload_bytes: usize, external_position: bool) -> usize {
    let external = if external_position { EXTERNAL_POSITION_BYTES } else { 0 };
    (RECORD_HEADER_BYTES + external + payload_bytes).next_multiple_of(ALIGNMENT)
}

/// Writes a record into `out`, which is exactly [`record_bytes`] long and stands at
/// `offset_bytes` of its segment. The checksum is written last.
#[allow(clippy::indexing_slicing)] // our own buffer, of the length asserted
pub fn write_record(
    out: &mut [u8],
    database: u64,
    offset_bytes: u64,
    header: &RecordHeader,
    payload: &[u8],
) {
    assert_eq!(out.len(), record_bytes(payload.len(), header.external_position.is_some()));
    assert!(header.count > 0 && header.count <= MAX_BATCH_COUNT);
    let flags = if header.external_position.is_some() { EXTERNAL_POSITION } else { 0 };
    out[8..16].copy_from_slice(&header.segment.to_le_bytes());
    out[16..24].copy_from_slice(&header.first.to_le_bytes());
    out[24..32].copy_from_slice(&header.synced.to_le_bytes());
    out[32..36].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let count_and_flags = header.count | u32::from(flags) << 24;
    out[36..40].copy_from_slice(&count_and_flags.to_le_bytes());
    let mut start = RECORD_HEADER_BYTES;
    if let Some(external) = &header.external_position {
        out[start..start + EXTERNAL_POSITION_BYTES].copy_from_slice(external);
        start += EXTERNAL_POSITION_BYTES;
    }
    let (body, padding) = out[start..].split_at_mut(payload.len());
    body.copy_from_slice(payload);
    padding.fill(0);
    seal(place(database, header.segment), offset_bytes, &mut out[..start + payload.len()]);
}

fn place(database: u64, segment: u64) -> u64 {
    database ^ mix(segment)
}

/// A record read back.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// Its operations; see [`super::batch`].
    pub payload: &'a [u8],
    /// How many bytes it takes, to the next record.
    pub length_bytes: usize,
}

/// Reads the record at `offset_bytes` of a segment whose bytes are `bytes`.
///
/// # Errors
/// `Corruption` saying what is wrong; zeros (nothing was written there) are one such error.
pub fn read_record(
    bytes: &[u8],
    database: u64,
    segment: u64,
    offset_bytes: usize,
) -> Result<Record<'_>> {
    read_record_from(
        bytes.get(offset_bytes..).unwrap_or_default(),
        database,
        segment,
        offset_bytes as u64,
    )
}

/// The same, of bytes that begin with the record.
///
/// # Errors
/// As [`read_record`].
pub fn read_record_from(
    bytes: &[u8],
    database: u64,
    segment: u64,
    offset_bytes: u64,
) -> Result<Record<'_>> {
    let mut reader = Reader::new(bytes);
    let expected = reader.u64()?;
    let found_segment = reader.u64()?;
    let first = reader.u64()?;
    let synced = reader.u64()?;
    let payload_length = reader.u32()? as usize;
    let count_and_flags = reader.u32()?;
    let at = |e: Error| e.at_offset(offset_bytes);
    if found_segment != segment {
        return Err(at(Error::corruption(format!(
            "expected a record of log segment {segment}, found {found_segment}"
        ))));
    }
    let count = count_and_flags & MAX_BATCH_COUNT;
    let flags = (count_and_flags >> 24) as u8;
    let external_position = if flags & EXTERNAL_POSITION != 0 {
        let mut position = [0; EXTERNAL_POSITION_BYTES];
        position.copy_from_slice(reader.take(EXTERNAL_POSITION_BYTES)?);
        Some(position)
    } else {
        None
    };
    let payload = reader.take(payload_length)?;
    let covered = bytes.get(8..reader.position()).unwrap_or_default();
    let found = checksum(place(database, segment), offset_bytes, covered);
    if found != expected {
        return Err(at(Error::corruption(format!(
            "log record: expected checksum {expected:016x}, found {found:016x}"
        ))));
    }
    if count == 0 || flags & !EXTERNAL_POSITION != 0 {
        return Err(at(Error::new(
            ErrorKind::Unsupported,
            format!(
                "expected a log record with operations and no flags but {EXTERNAL_POSITION:#04x}, found {count} and flags \
                 {flags:#04x}: a newer version of learnedkv wrote it; open the database with that"
            ),
        )));
    }
    Ok(Record {
        header: RecordHeader { segment, first, count, synced, external_position },
        payload,
        length_bytes: record_bytes(payload_length, external_position.is_some()),
    })
}

/// Makes the checksum of the record at `offset_bytes` right, whatever it holds: for fuzzing. Returns
/// where the next one stands.
#[cfg(any(test, feature = "fuzzing"))]
pub fn mend_record(
    bytes: &mut [u8],
    database: u64,
    segment: u64,
    offset_bytes: usize,
) -> Option<usize> {
    let payload_bytes = Reader::at(bytes, offset_bytes + 32).u32().ok()? as usize;
    let flags = Reader::at(bytes, offset_bytes + 39).u8().ok()?;
    let external = if flags & EXTERNAL_POSITION != 0 { EXTERNAL_POSITION_BYTES } else { 0 };
    let end = offset_bytes + RECORD_HEADER_BYTES + external + payload_bytes;
    let record = bytes.get_mut(offset_bytes..end)?;
    seal(place(database, segment), offset_bytes as u64, record);
    Some(offset_bytes + record_bytes(payload_bytes, external > 0))
}

/// The segment and the database that a segment's header tells of, unchecked.
pub fn peek_header(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut reader = Reader::at(bytes, MAGIC.len());
    Some((reader.u64().ok()?, reader.u64().ok()?))
}

/// The segment that the record at `offset_bytes` says it is of, unchecked.
pub fn peek_segment(bytes: &[u8], offset_bytes: usize) -> Option<u64> {
    Reader::at(bytes, offset_bytes + 8).u64().ok()
}

/// How many bytes a record takes that begins with `bytes`, going by its header, unchecked; `None` if it is not of `segment`.
pub fn peek_record_bytes(bytes: &[u8], segment: u64) -> Option<usize> {
    let mut reader = Reader::at(bytes, 32);
    let (payload_length, count_and_flags) = (reader.u32().ok()?, reader.u32().ok()?);
    let flags = (count_and_flags >> 24) as u8;
    // Where lengths have 32 bits, none is so long.
    let payload_bytes =
        Some(payload_length as usize).filter(|&bytes| bytes <= isize::MAX as usize)?;
    let length_bytes = record_bytes(payload_bytes, flags & EXTERNAL_POSITION != 0);
    (peek_segment(bytes, 0) == Some(segment)).then_some(length_bytes)
}

/// The first offset at or after `from_bytes` where a record may stand that begins with operation `first`
/// or a later one: a multiple of 8 where the segment's number is right and that of the operation may be.
/// `None` when there is none: of the last [`CANDIDATE_BYTES`] only their beginning is one. A cheap filter for [`read_record`].
pub fn next_candidate(
    bytes: &[u8],
    segment: u64,
    first: SequenceNumber,
    from_bytes: usize,
) -> Option<usize> {
    let start = from_bytes.next_multiple_of(ALIGNMENT);
    let segments = bytes.get(start + 8..)?.chunks_exact(8);
    let firsts = bytes.get(start + 16..)?.chunks_exact(8);
    let wanted = segment.to_le_bytes();
    let as_number = |word: &[u8]| word.try_into().map_or(0, u64::from_le_bytes);
    let index = segments.zip(firsts).position(|(word, next)| {
        word == wanted && (first..=MAX_SEQUENCE).contains(&as_number(next))
    })?;
    Some(start + index * ALIGNMENT)
}

/// The header of a segment.
pub fn encode_segment_header(segment: u64, database: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
    out.extend_from_slice(&MAGIC);
    put_u64(&mut out, segment);
    put_u64(&mut out, database);
    let sum = checksum(database, 0, &out);
    put_u64(&mut out, sum);
    let mut header = [0; SEGMENT_HEADER_BYTES];
    for (to, from) in header.iter_mut().zip(out) {
        *to = from;
    }
    header
}

/// Checks that `bytes` begin with the header of `segment` of `database`.
///
/// # Errors
/// `Corruption` if they do not; `Unsupported` if a newer version wrote it.
pub fn check_segment_header(bytes: &[u8], segment: u64, database: u64) -> Result<()> {
    let mut reader = Reader::new(bytes);
    let magic = reader.take(MAGIC.len())?;
    if magic != MAGIC {
        // One of this version, but for the version, is damaged there: its checksum is right of none but this.
        let ours = [&MAGIC, bytes.get(MAGIC.len()..).unwrap_or_default()].concat();
        let is_ours = || check_segment_header(&ours, segment, database).is_ok();
        let newer = magic.starts_with(b"LKVLOG") && !is_ours();
        let kind = if newer { ErrorKind::Unsupported } else { ErrorKind::Corruption };
        return Err(Error::new(
            kind,
            format!("expected a log segment of version 1, found {magic:02x?}"),
        ));
    }
    let (found_segment, found_database) = (reader.u64()?, reader.u64()?);
    if (found_segment, found_database) != (segment, database) {
        return Err(Error::corruption(format!(
            "expected log segment {segment} of database {database:016x}, \
             found {found_segment} of {found_database:016x}"
        )));
    }
    let covered = bytes.get(..reader.position()).unwrap_or_default();
    let (found, expected) = (checksum(database, 0, covered), reader.u64()?);
    if found != expected {
        return Err(Error::corruption(format!(
            "log segment header: expected checksum {expected:016x}, found {found:016x}"
        )));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::format::example::assert_shown;

    fn sample(external_position: Option<ExternalPosition>) -> (Vec<u8>, RecordHeader) {
        let header =
            RecordHeader { segment: 9, first: 100, count: 2, synced: 90, external_position };
        let mut bytes = vec![0; 64 + record_bytes(5, external_position.is_some())];
        write_record(&mut bytes[64..], 77, 64, &header, b"hello");
        (bytes, header)
    }

    #[test]
    fn the_example_above_is_what_is_written() {
        let payload = [0x01, 0x02, 0x02, 0x01, 0x6b, 0x31, 0x76];
        let header = RecordHeader { segment: 3, first: 7, count: 1, synced: 5, ..sample(None).1 };
        let external =
            RecordHeader { first: 8, external_position: Some(*b"primary/00000042"), ..header };
        let mut segment = encode_segment_header(3, 4).to_vec();
        for header in [header, external] {
            let (offset, external) = (segment.len(), header.external_position.is_some());
            segment.resize(offset + record_bytes(payload.len(), external), 0);
            write_record(&mut segment[offset..], 4, offset as u64, &header, &payload);
        }
        assert_shown(include_str!("log.rs"), "Segment 3 of the database 4", &segment);
    }

    #[test]
    fn records_round_trip() {
        for external in [None, Some([7; 16])] {
            let (bytes, header) = sample(external);
            let record = read_record(&bytes, 77, 9, 64).unwrap();
            assert_eq!((record.header, record.payload), (header, &b"hello"[..]));
            assert_eq!(record.length_bytes + 64, bytes.len());
            assert_eq!(record.header.last(), 101);
            for (first, found) in [(0, Some(64)), (100, Some(64)), (101, None)] {
                assert_eq!(next_candidate(&bytes, 9, first, 0), found, "from operation {first}");
            }
            assert_eq!(next_candidate(&bytes, 8, 0, 0), None, "another segment's");
        }
    }

    /// Where it is written there may stand another's.
    #[test]
    fn a_record_does_not_depend_on_what_stood_there_before() {
        let mut bytes = vec![0xa5; record_bytes(5, false)];
        write_record(&mut bytes, 77, 64, &sample(None).1, b"hello");
        assert_eq!(bytes, sample(None).0[64..]);
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_refused() {
        let (bytes, _) = sample(Some([7; 16]));
        for i in 64..64 + RECORD_HEADER_BYTES + 16 + 5 {
            let mut bad = bytes.clone();
            bad[i] ^= 0x10;
            assert!(read_record(&bad, 77, 9, 64).is_err(), "byte {i}");
        }
        for cut in 64..64 + RECORD_HEADER_BYTES + 16 + 5 {
            assert!(read_record(&bytes[..cut], 77, 9, 64).unwrap_err().is_corruption());
        }
        assert!(read_record(&bytes, 78, 9, 64).is_err(), "another database");
        for other in [8, 10] {
            assert!(
                read_record(&bytes, 77, other, 64).unwrap_err().is_corruption(),
                "segment {other}"
            );
        }
    }

    #[test]
    fn a_segment_header_names_its_segment() {
        let header = encode_segment_header(3, 4);
        check_segment_header(&header, 3, 4).unwrap();
        assert!(check_segment_header(&header, 2, 4).unwrap_err().is_corruption());
        assert!(check_segment_header(&header, 3, 5).unwrap_err().is_corruption());
        let mut newer = header;
        newer[7] = 2;
        assert!(check_segment_header(&newer, 3, 4).unwrap_err().is_corruption(), "a flipped bit");
        let sum = checksum(4, 0, &newer[..24]);
        newer[24..32].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(check_segment_header(&newer, 3, 4).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
