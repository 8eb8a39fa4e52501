//! A manifest: its header, and its edits with their changes.

use super::{Depth, Told, shown};
use crate::error::{Error, Result};
use crate::format::bytes::zeros_from;
use crate::format::manifest::{
    Change, Edit, MANIFEST_HEADER_BYTES, PartitionRecord, TableRecord, Watermark, decode_edit,
    decode_header, later_edit, peek_number,
};

pub(super) fn look(bytes: &[u8], depth: Depth, told: &mut Told<'_>) -> Result<()> {
    let number = peek_number(bytes).unwrap_or_default();
    let database = decode_header(bytes, number)?;
    let edit = |at, ordinal| decode_edit(bytes, database, number, at, ordinal);
    let (mut offset, mut ordinal) = (MANIFEST_HEADER_BYTES, 0);
    while let Ok((_, length)) = edit(offset, ordinal) {
        (offset, ordinal) = (offset + length, ordinal + 1);
    }
    let (edits, end) = (ordinal, offset);
    told.line(format!(
        "manifest {number} of {} bytes, of database {database:016x}: {edits} edits to byte {end}",
        bytes.len()
    ));
    if edits == 0 {
        // It begins with the whole state.
        edit(end, 0)?;
    }
    if !depth.lists {
        return Ok(());
    }
    let (mut offset, mut ordinal) = (MANIFEST_HEADER_BYTES, 0);
    while let Ok((edit, length)) = edit(offset, ordinal) {
        tell_edit(&edit, ordinal, (offset, length), told);
        (offset, ordinal) = (offset + length, ordinal + 1);
    }
    let before = edits.saturating_sub(1);
    let behind = later_edit(bytes, end + 1, before, |at, later| edit(at, later).is_ok());
    let found = behind.and_then(|at| {
        let (later, _) = edit(at, edits).ok()?;
        Some((at, later.changes.is_empty()))
    });
    match (behind, found) {
        (_, Some((at, true))) => told.line(format!("the seal of edit {before} at {at}")),
        (Some(at), _) => {
            told.damage(
                Error::corruption(format!("expected edit {edits}, found a later one at byte {at}"))
                    .at_offset(end as u64),
            );
        }
        (None, None) if zeros_from(bytes) > end => {
            told.line(format!(
                "no edit from byte {end} on, and not only zeros: the last one may be torn"
            ));
        }
        _ => told.line(format!("zeros from byte {end} on")),
    }
    Ok(())
}

fn tell_edit(edit: &Edit, ordinal: u32, (offset, length): (usize, usize), told: &mut Told<'_>) {
    told.line(format!(
        "edit {ordinal} at {offset}: {length} bytes, synced up to {}, next file {}, next keyspace {}",
        edit.synced, edit.next_file, edit.next_keyspace
    ));
    edit.changes.iter().for_each(|change| tell_change(change, told));
}

fn tell_change(change: &Change, told: &mut Told<'_>) {
    match change {
        Change::CreateKeyspace { keyspace, name, options } => {
            let options: Vec<_> =
                options.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            let options = options.join(", ");
            told.line(format!("  keyspace {keyspace}: made as {name:?}: {options}"));
        }
        Change::DropKeyspace { keyspace } => told.line(format!("  keyspace {keyspace}: dropped")),
        Change::Flushed { keyspace, up_to } => {
            told.line(format!("  keyspace {keyspace}: flushed up to operation {up_to}"));
        }
        Change::AddRun { keyspace, tables } => {
            told.line(format!("  keyspace {keyspace}: the newest run:"));
            tell_tables(tables, told);
        }
        Change::ReplaceRuns { keyspace, first, count, tables } => {
            told.line(format!("  keyspace {keyspace}: {count} runs from run {first} on become one:"));
            tell_tables(tables, told);
        }
        Change::Freeze { keyspace } => told.line(format!("  keyspace {keyspace}: its runs are frozen")),
        Change::ReplacePartitions { keyspace, from, count, partitions, watermark } => {
            let from = shown(from);
            told.line(format!("  keyspace {keyspace}: {count} partitions from {from} on become:"));
            partitions.iter().for_each(|partition| tell_partition(partition, told));
            match watermark {
                Watermark::Keep => {}
                Watermark::Raise(key) => told.line(format!("    settled below {}", shown(key))),
                Watermark::End => told.line("    the sweep is over"),
            }
        }
        Change::Frozen { keyspace, runs, watermark } => {
            let below = shown(watermark);
            told.line(format!("  keyspace {keyspace}: frozen runs, settled below {below}:"));
            for run in runs {
                told.line("    a run");
                tell_tables(run, told);
            }
        }
        Change::ReplaceTables { keyspace, removed, level, at, tables } => {
            told.line(format!(
                "  keyspace {keyspace}: tables {removed:?} go, these come to level {level} behind {at}:"
            ));
            tell_tables(tables, told);
        }
        Change::ExternalPosition { keyspace, carried } => told.line(format!(
            "  keyspace {keyspace}: external position \"{}\" of operation {}",
            carried.position.escape_ascii(),
            carried.sequence
        )),
        Change::Log { ended, open_from, first } => told.line(format!(
            "  log: ended segments and their ends {ended:?}, open from segment {open_from}, first operation {first}"
        )),
    }
}

fn tell_partition(partition: &PartitionRecord, told: &mut Told<'_>) {
    told.line(format!("    partition from {}", shown(&partition.lower)));
    for (what, table) in [("base", &partition.base), ("delta", &partition.delta)] {
        if let Some(table) = table {
            told.line(format!("      {what}: {}", describe(table)));
        }
    }
}

fn tell_tables(tables: &[TableRecord], told: &mut Told<'_>) {
    tables.iter().for_each(|table| told.line(format!("    {}", describe(table))));
}

fn describe(table: &TableRecord) -> String {
    let of = &table.properties;
    let filter = table.filter.map_or(String::new(), |filter| {
        let rests = if filter.rests { ", at rest" } else { "" };
        format!(", filter {} of {} bytes{rests}", filter.id, filter.file_bytes)
    });
    let segments: Vec<_> = of.segments.iter().map(|used| used.segment.to_string()).collect();
    let segments = match &segments[..] {
        [] => String::new(),
        _ => format!(", values in segments {}", segments.join(", ")),
    };
    format!(
        "table {} of {} bytes, tagged {:016x}: {} entries, {} removed ranges, keys {} to {}{filter}{segments}",
        table.id,
        table.file_bytes,
        table.tag,
        of.entries,
        of.ranges,
        shown(&of.smallest),
        shown(&of.largest)
    )
}
