//! A segment of the log: its header, its records and the operations in them.

use super::{Depth, Told, shown};
use crate::error::{Error, Result};
use crate::format::batch::{Op, Ops};
use crate::format::entry::Kind;
use crate::format::log::{
    Record, SEGMENT_HEADER_BYTES, check_segment_header, peek_header, peek_segment, read_record,
};
use crate::format::value::ValuePointer;

pub(super) fn look(bytes: &[u8], depth: Depth, told: &mut Told<'_>) -> Result<()> {
    let (mut segment, database) = peek_header(bytes).unwrap_or_default();
    check_segment_header(bytes, segment, database)?;
    // Where a file is used again its header may be that of the segment before it: the first record knows.
    let of_record = peek_segment(bytes, SEGMENT_HEADER_BYTES).unwrap_or_default();
    if read_record(bytes, database, of_record, SEGMENT_HEADER_BYTES).is_ok() {
        segment = of_record;
    }
    let (mut offset, mut records, mut last) = (SEGMENT_HEADER_BYTES, 0u64, None);
    while let Ok(record) = read_record(bytes, database, segment, offset) {
        (records, last) = (records + 1, Some(record.header.last()));
        offset += record.length_bytes;
    }
    told.line(format!(
        "log segment {segment} of {} bytes, of database {database:016x}: {records} records to byte {offset}{}",
        bytes.len(),
        last.map_or(String::new(), |last| format!(", the last operation {last}"))
    ));
    if depth.lists {
        let mut offset = SEGMENT_HEADER_BYTES;
        while let Ok(record) = read_record(bytes, database, segment, offset) {
            tell_record(&record, offset, told);
            offset += record.length_bytes;
        }
        tell_rest(bytes, (database, segment), offset, told);
    }
    Ok(())
}

fn tell_record(record: &Record<'_>, offset: usize, told: &mut Told<'_>) {
    let header = &record.header;
    let operations = match header.count {
        1 => format!("operation {}", header.first),
        _ => format!("operations {} to {}", header.first, header.last()),
    };
    let position = header.external_position.map_or(String::new(), |position| {
        format!(", external position \"{}\"", position.escape_ascii())
    });
    told.line(format!(
        "record at {offset}: {} bytes, {operations}, when {} were synced{position}",
        record.length_bytes, header.synced
    ));
    for op in Ops::new(record.payload) {
        match op.and_then(|op| describe(&op)) {
            Ok(line) => told.line(line),
            Err(e) => told.damage(Error::new(e.kind(), e.message()).at_offset(offset as u64)),
        }
    }
}

fn describe(op: &Op<'_>) -> Result<String> {
    let (key, value) = op.key_and_value.split_at_checked(op.key_length).unwrap_or_default();
    let what = match op.kind {
        Kind::Value => format!("put {}, {} bytes", shown(key), value.len()),
        Kind::Pointer => {
            let (pointer, tag) = ValuePointer::decode_logged(value)?;
            format!(
                "put {}, {} bytes in value segment {} tagged {tag:016x} at {}",
                shown(key),
                pointer.length,
                pointer.segment,
                pointer.offset
            )
        }
        Kind::Tombstone => format!("remove {}", shown(key)),
        _ if value.is_empty() => format!("remove all from {}", shown(key)),
        _ => format!("remove from {} to {}", shown(key), shown(value)),
    };
    Ok(format!("  keyspace {}: {what}", op.keyspace))
}

/// What stands behind the last record. Whether anything is missing there the manifest and later segments know.
fn tell_rest(bytes: &[u8], (database, segment): (u64, u64), offset: usize, told: &mut Told<'_>) {
    let rest = bytes.get(offset..).unwrap_or_default();
    let Some(first) = rest.iter().position(|byte| *byte != 0) else {
        told.line(format!("zeros from byte {offset} on"));
        return;
    };
    let old = peek_segment(bytes, offset).filter(|found| *found < segment);
    match old {
        Some(old) => told.line(format!(
            "from byte {offset} on what segment {old} left there, whose file it was, or a torn record"
        )),
        None => {
            let reason = read_record(bytes, database, segment, offset).err();
            let reason = reason.map_or(String::new(), |e| format!(": {}", e.message()));
            told.line(format!(
                "no record from byte {offset} on, and not only zeros (byte {}){reason}",
                offset + first
            ));
        }
    }
}
