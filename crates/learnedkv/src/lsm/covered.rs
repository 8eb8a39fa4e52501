//! Removed ranges where tables cannot carry them: a tombstone for each key that they cover.
//!
//! Levels are taken apart and put together by the keys of their tables' entries; a range that reaches
//! beyond these would have to hold its neighbours together. So a flush to levels walks what lies below its
//! ranges and writes tombstones. All that is older than the memtable is in tables by then, and what an
//! ingest adds meanwhile is not covered: it waits for memtables that cover it.

use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::Ranges;
use crate::slice::Slice;

/// Walks tombstones for the entries of a cursor that lie in ranges; upwards only.
pub struct Covered {
    entries: MergeCursor,
    ranges: Ranges,
    sequence: SequenceNumber,
    /// No range lies behind.
    over: bool,
}

impl Covered {
    /// Tombstones of that number for those of `entries` that `ranges` cover.
    pub fn new(entries: MergeCursor, ranges: Ranges, sequence: SequenceNumber) -> Covered {
        Covered { entries, ranges, sequence, over: false }
    }

    /// Goes on to a covered value.
    fn settle(&mut self) -> Result<()> {
        while let Some(key) = self.entries.key() {
            let stretch = self.ranges.stretch(key);
            if stretch.is_covered && self.entries.kind().0 != Kind::Tombstone {
                return Ok(());
            }
            match &stretch.keys.end {
                _ if stretch.is_covered => self.entries.advance()?,
                Some(next) => self.entries.seek(Seek::AtOrAfter(next))?,
                None => {
                    self.over = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Cursor for Covered {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        assert!(to.is_forward(), "tombstones for a flush are walked upwards");
        self.over = false;
        self.entries.seek(to)?;
        self.settle()
    }

    fn advance(&mut self) -> Result<()> {
        self.entries.advance()?;
        self.settle()
    }

    fn key(&self) -> Option<&[u8]> {
        if self.over { None } else { self.entries.key() }
    }

    fn kind(&self) -> (Kind, SequenceNumber) {
        (Kind::Tombstone, self.sequence)
    }

    fn value(&self) -> &[u8] {
        &[]
    }

    fn value_slice(&self) -> Slice {
        Slice::copy_from(&[])
    }
}
