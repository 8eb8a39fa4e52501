//! The manifest: a header, then edits. The state of a database is what its edits say, in order; the
//! first edit of every manifest file is the whole state at that time.
//!
//! ```text
//! manifest := header edit*
//! header   := magic "LKVMANI" 01 | manifest number u64 | database u64 | checksum u64 of those 24 bytes
//! edit     := checksum u64 | payload length u32 | ordinal u32 | payload
//! payload  := synced varint | next file varint | next keyspace varint | change*
//! change   := code u8, then the fields of the [`Change`] in the order of its declaration;
//!             numbers are varints, keys and names slices, an external position its 16 bytes; tables, filters, partitions and lists
//!             as in `manifest/records.rs`
//! ```
//! An edit's checksum is bound to the database, the manifest's number and the edit's offset;
//! ordinals count from 0. `synced` is the highest sequence number known to be durable in the log when
//! the edit was written: all that the edit depends on lies at or below it.
//!
//! Manifest 6 of the database 77, and an edit that holds each change once. Its lists of tables are
//! empty: a table is shown in `manifest/records.rs`.
//! ```text
//! 4c 4b 56 4d 41 4e 49 01 | 06 00 00 00 00 00 00 00   LKVMANI, version 1; number 6
//! 4d 00 00 00 00 00 00 00 | b6 d6 ac 97 23 96 a5 df   database 77; checksum
//! 6f 72 ec d6 04 d0 42 36 | 58 00 00 00 | 00 00 00 00   checksum; 88 bytes; edit 0
//! 09 | ac 02 | 03                          synced up to 9; next file 300, next keyspace 3
//! 01 02 | 01 6b | 01 | 05 73 74 6f 72 65 | 03 6c 73 6d   CreateKeyspace 2, k: store = lsm
//! 02 02                                    DropKeyspace
//! 03 02 | 08                               Flushed up to 8
//! 04 02 | 00                               AddRun of no tables
//! 05 02 | 01 | 02 | 00                     ReplaceRuns: 2 from run 1 on, by no tables
//! 06 02                                    Freeze
//! 07 02 | 01 6d | 01 | 01 | 01 6d | 00 00   ReplacePartitions: 1 from m on, by 1 from m on, no tables;
//! 01 | 01 71                               the watermark is q (0: as it was, 2: the sweep is over)
//! 08 02 | 01 00 | 01 71                    Frozen: one run of no tables, watermark q
//! 0a 02 | 02 01 ac 02 | 06 | 02 | 00       ReplaceTables 1 and 300: in level 6, behind 2, by none
//! 0b 02 | 08 | 70 72 69 6d 61 72 79 2f   ExternalPosition, of the commit that ends with operation 8:
//! 30 30 30 30 30 30 34 32                  "primary/00000042"
//! 09 | 01 01 80 20 | 02 | 01               Log: segment 1 ends at 4096; open from 2; first operation 1
//! ```

mod records;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests;

use std::sync::Arc;

use super::bytes::{Reader, put_slice, put_u32, put_u64, put_varint, zeros_from};
use super::checksum::{checksum, mix, seal};
use super::entry::{CarriedPosition, ExternalPosition, KeyspaceId, SequenceNumber, TableId};
use crate::error::{Error, ErrorKind, Result};
pub use records::{FilterRecord, PartitionRecord, TableRecord};
use records::{
    put_list, put_partition, put_table, take_list, take_partition, take_table, take_text,
};

/// What stands before the first edit.
pub const MANIFEST_HEADER_BYTES: usize = 32;
/// What stands before an edit's payload.
pub const EDIT_HEADER_BYTES: usize = 16;

/// How many levels a keyspace has below its runs; the last is the oldest.
pub const LEVELS: usize = 6;

pub(super) const MAGIC: &[u8; 8] = b"LKVMANI\x01";

/// What the manifest says of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogState {
    /// Segments of earlier lives still needed, and where they end.
    pub ended: Vec<(u64, u64)>,
    /// The first segment of the last life.
    pub open_from: u64,
    /// The sequence number of the first record in the first of these segments.
    pub first: SequenceNumber,
}

impl Default for LogState {
    fn default() -> LogState {
        LogState { ended: Vec::new(), open_from: 1, first: 1 }
    }
}

/// Options of a keyspace by name, with their values. Of many keyspaces most have the same: these share one list.
pub type OptionList = Arc<Vec<(String, String)>>;

/// `options`, or `other` where that is the same.
pub fn shared_options(options: OptionList, other: Option<&OptionList>) -> OptionList {
    other.filter(|other| **other == options).cloned().unwrap_or(options)
}

/// One change of the state of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A keyspace exists from now on, with one empty partition.
    CreateKeyspace {
        /// Its number.
        keyspace: KeyspaceId,
        /// Its name.
        name: String,
        /// Its options, by name.
        options: OptionList,
    },
    /// A keyspace is gone, with all its data.
    DropKeyspace {
        /// Its number.
        keyspace: KeyspaceId,
    },
    /// All operations of a keyspace up to a sequence number are in its tables.
    Flushed {
        /// Its number.
        keyspace: KeyspaceId,
        /// The last sequence number that the log need not keep for it.
        up_to: SequenceNumber,
    },
    /// The newest run of the LSM part: tables that do not overlap, in key order.
    AddRun {
        /// Its keyspace.
        keyspace: KeyspaceId,
        /// Its tables.
        tables: Vec<TableRecord>,
    },
    /// Neighbouring runs of the LSM part became one.
    ReplaceRuns {
        /// Their keyspace.
        keyspace: KeyspaceId,
        /// The oldest of them, counted from the oldest run of the part.
        first: u64,
        /// How many they are.
        count: u64,
        /// The tables of the run that takes their place; none if nothing is left.
        tables: Vec<TableRecord>,
    },
    /// All runs become the frozen part; the watermark is the lowest key.
    Freeze {
        /// Their keyspace.
        keyspace: KeyspaceId,
    },
    /// The partitions of a key range are replaced; the watermark moves, or the sweep ends.
    ReplacePartitions {
        /// Their keyspace.
        keyspace: KeyspaceId,
        /// The lower key of the first partition that is replaced.
        from: Vec<u8>,
        /// How many are replaced.
        count: u64,
        /// What takes their place, the first with `lower == from`.
        partitions: Vec<PartitionRecord>,
        /// What becomes of the frozen part.
        watermark: Watermark,
    },
    /// A frozen part as it stands: in the first edit of a manifest, and where one of its tables was trimmed.
    Frozen {
        /// Its keyspace.
        keyspace: KeyspaceId,
        /// Its runs, oldest first.
        runs: Vec<Vec<TableRecord>>,
        /// Keys below it are settled.
        watermark: Vec<u8>,
    },
    /// Tables of runs and levels are replaced by tables of one level.
    ReplaceTables {
        /// Their keyspace.
        keyspace: KeyspaceId,
        /// What goes, wherever in the runs and levels it is.
        removed: Vec<TableId>,
        /// The level of what comes, from 1 to [`LEVELS`].
        level: u64,
        /// How many of the tables that stay in the level lie before what comes.
        at: u64,
        /// What comes, in key order. A table that goes and comes moves.
        tables: Vec<TableRecord>,
    },
    /// The newest external position that a flushed commit of a keyspace carried.
    ExternalPosition {
        /// Its number.
        keyspace: KeyspaceId,
        /// The position and its commit, at or below what is flushed by then.
        carried: CarriedPosition,
    },
    /// Which log segments hold what is not flushed.
    Log {
        /// Segments that ended in an earlier life of the database, and the offset they ended at.
        ended: Vec<(u64, u64)>,
        /// The first segment of this life; later ones follow it.
        open_from: u64,
        /// The sequence number of the first record in the first of all these segments.
        first: SequenceNumber,
    },
}

/// What an edit does to the watermark of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watermark {
    /// Nothing: there is no sweep, or it is not touched.
    Keep,
    /// It moves up to this key.
    Raise(Vec<u8>),
    /// The sweep is over; the frozen part is gone.
    End,
}

/// Changes that become durable together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edit {
    /// The highest sequence number known to be durable in the log.
    pub synced: SequenceNumber,
    /// Files of this number and above do not exist yet.
    pub next_file: u64,
    /// Keyspaces of this number and above do not exist yet.
    pub next_keyspace: KeyspaceId,
    /// What changes, in order.
    pub changes: Vec<Change>,
}

/// The header of manifest `number` of `database`.
pub fn encode_header(number: u64, database: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(MANIFEST_HEADER_BYTES);
    out.extend_from_slice(MAGIC);
    put_u64(&mut out, number);
    put_u64(&mut out, database);
    let sum = checksum(database, 0, &out);
    put_u64(&mut out, sum);
    out
}

/// The number that a manifest's header tells of, unchecked.
pub fn peek_number(bytes: &[u8]) -> Option<u64> {
    Reader::at(bytes, MAGIC.len()).u64().ok()
}

/// Reads a manifest's header: the database's random identity.
///
/// # Errors
/// `NotADatabase` if it is something else, `Corruption` if it is damaged or another number's,
/// `Unsupported` if a newer version wrote it.
pub fn decode_header(bytes: &[u8], number: u64) -> Result<u64> {
    let mut reader = Reader::new(bytes);
    let magic = reader.take(MAGIC.len())?;
    if magic != MAGIC {
        let (kind, what) = if magic.starts_with(b"LKVMANI") {
            (ErrorKind::Unsupported, "a newer version of learnedkv wrote it: open it with that one")
        } else {
            (ErrorKind::NotADatabase, "this is not a learnedkv manifest")
        };
        return Err(Error::new(kind, format!("expected {MAGIC:02x?}, found {magic:02x?}: {what}")));
    }
    let (found_number, database) = (reader.u64()?, reader.u64()?);
    let found = checksum(database, 0, bytes.get(..reader.position()).unwrap_or_default());
    let expected = reader.u64()?;
    if found != expected || found_number != number {
        return Err(Error::corruption(format!(
            "manifest header: expected number {number} and checksum {expected:016x}, \
             found number {found_number} and checksum {found:016x}"
        )));
    }
    Ok(database)
}

/// Encodes an edit as it stands at `offset_bytes` of manifest `number`.
#[allow(clippy::indexing_slicing)] // our own buffer, which begins with the header
pub fn encode_edit(
    edit: &Edit,
    database: u64,
    number: u64,
    offset_bytes: u64,
    ordinal: u32,
) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, 0);
    put_u32(&mut out, 0);
    put_u32(&mut out, ordinal);
    for head in [edit.synced, edit.next_file, edit.next_keyspace] {
        put_varint(&mut out, head);
    }
    for change in &edit.changes {
        put_change(&mut out, change);
    }
    let length = (out.len() - EDIT_HEADER_BYTES) as u32;
    out[8..12].copy_from_slice(&length.to_le_bytes());
    seal(database ^ mix(number), offset_bytes, &mut out);
    out
}

/// Reads the edit at `offset_bytes` of the bytes of manifest `number`, and says how long it is.
///
/// # Errors
/// `Corruption` if none stands there; `Unsupported` if it holds a change this build does not know.
pub fn decode_edit(
    bytes: &[u8],
    database: u64,
    number: u64,
    offset_bytes: usize,
    ordinal: u32,
) -> Result<(Edit, usize)> {
    let mut reader = Reader::at(bytes, offset_bytes);
    let expected = reader.u64()?;
    let length = reader.u32()? as usize;
    let found_ordinal = reader.u32()?;
    let payload = reader.take(length)?;
    let covered = bytes.get(offset_bytes + 8..reader.position()).unwrap_or_default();
    let found = checksum(database ^ mix(number), offset_bytes as u64, covered);
    if found != expected || found_ordinal != ordinal {
        return Err(Error::corruption(format!(
            "expected edit {ordinal} with checksum {expected:016x}, \
             found edit {found_ordinal} with {found:016x}"
        ))
        .at_offset(offset_bytes as u64));
    }
    let edit = decode_payload(payload).map_err(|e| {
        Error::new(e.kind(), format!("edit {ordinal}: {e}")).at_offset(offset_bytes as u64)
    })?;
    Ok((edit, EDIT_HEADER_BYTES + length))
}

/// Makes the checksum of the edit at `offset_bytes` right, whatever it holds: for fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub fn mend_edit(bytes: &mut [u8], database: u64, number: u64, offset_bytes: usize) {
    let length = Reader::at(bytes, offset_bytes + 8).u32().unwrap_or_default() as usize;
    let end = offset_bytes + EDIT_HEADER_BYTES + length;
    if let Some(edit) = bytes.get_mut(offset_bytes..end) {
        seal(database ^ mix(number), offset_bytes as u64, edit);
    }
}

/// How many edits in a row may be damaged for a later one to be found.
const MAX_DAMAGED_EDITS: u32 = 64;

/// The first offset at or after `from_bytes` where an edit later than number `ordinal` stands, as
/// `is_edit` confirms from the offset and the number read there. Only places whose number and
/// length are possible are asked about: the rest of a manifest is a megabyte of zeros.
pub fn later_edit(
    bytes: &[u8],
    from_bytes: usize,
    ordinal: u32,
    is_edit: impl Fn(usize, u32) -> bool,
) -> Option<usize> {
    let end = zeros_from(bytes);
    let latest = ordinal.saturating_add(MAX_DAMAGED_EDITS);
    (from_bytes..end).find(|&at| {
        let mut reader = Reader::at(bytes, at);
        let head = reader.u64().and_then(|_| Ok((reader.u32()?, reader.u32()?)));
        let Ok((length, found)) = head else { return false };
        found > ordinal
            && found <= latest
            && length as usize <= bytes.len() - at
            && is_edit(at, found)
    })
}

fn decode_payload(payload: &[u8]) -> Result<Edit> {
    let mut reader = Reader::new(payload);
    let mut edit = Edit {
        synced: reader.varint()?,
        next_file: reader.varint()?,
        next_keyspace: reader.varint()?,
        changes: Vec::new(),
    };
    let mut last = None;
    while !reader.is_empty() {
        let mut change = take_change(&mut reader)?;
        if let Change::CreateKeyspace { options, .. } = &mut change {
            *options = shared_options(options.clone(), last.as_ref());
            last = Some(options.clone());
        }
        edit.changes.push(change);
    }
    Ok(edit)
}

mod code {
    pub const CREATE_KEYSPACE: u8 = 1;
    pub const DROP_KEYSPACE: u8 = 2;
    pub const FLUSHED: u8 = 3;
    pub const ADD_RUN: u8 = 4;
    pub const REPLACE_RUNS: u8 = 5;
    pub const FREEZE: u8 = 6;
    pub const REPLACE_PARTITIONS: u8 = 7;
    pub const FROZEN: u8 = 8;
    pub const LOG: u8 = 9;
    pub const REPLACE_TABLES: u8 = 10;
    pub const EXTERNAL_POSITION: u8 = 11;
}

fn put_numbers(out: &mut Vec<u8>, change: u8, numbers: &[u64]) {
    out.push(change);
    for number in numbers {
        put_varint(out, *number);
    }
}

fn put_change(out: &mut Vec<u8>, change: &Change) {
    match change {
        Change::CreateKeyspace { keyspace, name, options } => {
            put_numbers(out, code::CREATE_KEYSPACE, &[*keyspace]);
            put_slice(out, name.as_bytes());
            put_list(out, options, |out, (name, value)| {
                put_slice(out, name.as_bytes());
                put_slice(out, value.as_bytes());
            });
        }
        Change::DropKeyspace { keyspace } => put_numbers(out, code::DROP_KEYSPACE, &[*keyspace]),
        Change::Flushed { keyspace, up_to } => {
            put_numbers(out, code::FLUSHED, &[*keyspace, *up_to])
        }
        Change::AddRun { keyspace, tables } => {
            put_numbers(out, code::ADD_RUN, &[*keyspace]);
            put_list(out, tables, put_table);
        }
        Change::ReplaceRuns { keyspace, first, count, tables } => {
            put_numbers(out, code::REPLACE_RUNS, &[*keyspace, *first, *count]);
            put_list(out, tables, put_table);
        }
        Change::Freeze { keyspace } => put_numbers(out, code::FREEZE, &[*keyspace]),
        Change::ReplacePartitions { keyspace, from, count, partitions, watermark } => {
            put_numbers(out, code::REPLACE_PARTITIONS, &[*keyspace]);
            put_slice(out, from);
            put_varint(out, *count);
            put_list(out, partitions, put_partition);
            match watermark {
                Watermark::Keep => out.push(0),
                Watermark::Raise(key) => {
                    out.push(1);
                    put_slice(out, key);
                }
                Watermark::End => out.push(2),
            }
        }
        Change::Frozen { keyspace, runs, watermark } => {
            put_numbers(out, code::FROZEN, &[*keyspace]);
            put_list(out, runs, |out, run| put_list(out, run, put_table));
            put_slice(out, watermark);
        }
        Change::ReplaceTables { keyspace, removed, level, at, tables } => {
            put_numbers(out, code::REPLACE_TABLES, &[*keyspace]);
            put_list(out, removed, |out, table| put_varint(out, *table));
            put_varint(out, *level);
            put_varint(out, *at);
            put_list(out, tables, put_table);
        }
        Change::ExternalPosition { keyspace, carried } => {
            put_numbers(out, code::EXTERNAL_POSITION, &[*keyspace, carried.sequence]);
            out.extend_from_slice(&carried.position);
        }
        Change::Log { ended, open_from, first } => {
            out.push(code::LOG);
            put_list(out, ended, |out, (segment, end)| {
                put_varint(out, *segment);
                put_varint(out, *end);
            });
            put_varint(out, *open_from);
            put_varint(out, *first);
        }
    }
}

fn take_change(reader: &mut Reader<'_>) -> Result<Change> {
    let change = reader.u8()?;
    if change == code::LOG {
        let ended = take_list(reader, |r| Ok((r.varint()?, r.varint()?)))?;
        return Ok(Change::Log { ended, open_from: reader.varint()?, first: reader.varint()? });
    }
    if !(code::CREATE_KEYSPACE..=code::EXTERNAL_POSITION).contains(&change) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("change {change} is unknown: a newer version of learnedkv wrote it"),
        ));
    }
    let keyspace = reader.varint()?;
    Ok(match change {
        code::CREATE_KEYSPACE => Change::CreateKeyspace {
            keyspace,
            name: take_text(reader)?,
            options: take_list(reader, |r| Ok((take_text(r)?, take_text(r)?)))?.into(),
        },
        code::DROP_KEYSPACE => Change::DropKeyspace { keyspace },
        code::FLUSHED => Change::Flushed { keyspace, up_to: reader.varint()? },
        code::ADD_RUN => Change::AddRun { keyspace, tables: take_list(reader, take_table)? },
        code::REPLACE_RUNS => Change::ReplaceRuns {
            keyspace,
            first: reader.varint()?,
            count: reader.varint()?,
            tables: take_list(reader, take_table)?,
        },
        code::FREEZE => Change::Freeze { keyspace },
        code::REPLACE_PARTITIONS => Change::ReplacePartitions {
            keyspace,
            from: reader.slice()?.to_vec(),
            count: reader.varint()?,
            partitions: take_list(reader, take_partition)?,
            watermark: take_watermark(reader)?,
        },
        code::REPLACE_TABLES => Change::ReplaceTables {
            keyspace,
            removed: take_list(reader, |r| r.varint())?,
            level: reader.varint()?,
            at: reader.varint()?,
            tables: take_list(reader, take_table)?,
        },
        code::EXTERNAL_POSITION => {
            Change::ExternalPosition { keyspace, carried: take_position(reader)? }
        }
        _ => Change::Frozen {
            keyspace,
            runs: take_list(reader, |r| take_list(r, take_table))?,
            watermark: reader.slice()?.to_vec(),
        },
    })
}

fn take_position(reader: &mut Reader<'_>) -> Result<CarriedPosition> {
    let sequence = reader.varint()?;
    let mut position = ExternalPosition::default();
    position.copy_from_slice(reader.take(size_of::<ExternalPosition>())?);
    Ok(CarriedPosition { sequence, position })
}

fn take_watermark(reader: &mut Reader<'_>) -> Result<Watermark> {
    match reader.u8()? {
        0 => Ok(Watermark::Keep),
        1 => Ok(Watermark::Raise(reader.slice()?.to_vec())),
        2 => Ok(Watermark::End),
        other => Err(Error::corruption(format!("expected a watermark (0 to 2), found {other}"))),
    }
}
