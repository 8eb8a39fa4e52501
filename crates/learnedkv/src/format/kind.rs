//! What a file is, by its bytes alone: each kind has a mark at its beginning, tables have theirs in the footer.

use super::{filter, log, manifest, table, value};

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A table.
    Table,
    /// The filter of one.
    Filter,
    /// A value segment.
    Values,
    /// A log segment.
    Log,
    /// A manifest.
    Manifest,
}

/// How much of a mark is the same in every version.
const MARK_BYTES: usize = 6;

/// What a file is that begins so, and whose last [`table::FOOTER_BYTES`] are `end`.
pub fn kind_of(beginning: &[u8], end: &[u8]) -> Option<FileKind> {
    let marks: [(&[u8], FileKind); 4] = [
        (filter::MAGIC, FileKind::Filter),
        (value::MAGIC, FileKind::Values),
        (&log::MAGIC, FileKind::Log),
        (manifest::MAGIC, FileKind::Manifest),
    ];
    let has = |bytes: &[u8], mark: &[u8]| bytes.starts_with(mark.get(..MARK_BYTES).unwrap_or(mark));
    let by_beginning = marks.iter().find(|(mark, _)| has(beginning, mark));
    let by_end = || has(end, table::MAGIC).then_some(FileKind::Table);
    by_beginning.map(|(_, kind)| *kind).or_else(by_end)
}
