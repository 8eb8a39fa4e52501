//! Thinning: a table is written anew where it stands without what newer data hides.
//!
//! Compactions bring newer data down, and need room for all that lives under it: on a full disk there
//! may be none, though most of it was removed. Thinning needs room for one table at most and gives
//! the rest of its old place back; what is newer stays where it is. It is right at any time: a key
//! that newer data has an entry of, or covers, is answered there, and newer data goes away only into what
//! it hides, which claims and the edit's plan keep from moving meanwhile. Of a table that is
//! covered whole nothing is read.

use std::sync::Arc;

use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber, TableId};
use crate::slice::Slice;
use crate::sstable::reader::Table;
use crate::sstable::scale;
use crate::view::{Extent, Run, Tables};

/// Shares are in parts of this.
pub const WHOLE: u64 = 1000;

/// The entries of the oldest source of a merge that no other hides; upwards only.
pub struct Oldest(pub MergeCursor);

impl Oldest {
    fn settle(&mut self) -> Result<()> {
        while self.0.key().is_some() && !self.0.shows_oldest() {
            self.0.advance()?;
        }
        Ok(())
    }
}

impl Cursor for Oldest {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        assert!(to.is_forward(), "tables are written upwards");
        self.0.seek(to)?;
        self.settle()
    }

    fn advance(&mut self) -> Result<()> {
        self.0.advance()?;
        self.settle()
    }

    fn key(&self) -> Option<&[u8]> {
        self.0.key()
    }

    fn kind(&self) -> (Kind, SequenceNumber) {
        self.0.kind()
    }

    fn value(&self) -> &[u8] {
        self.0.value()
    }

    fn value_slice(&self) -> Slice {
        self.0.value_slice()
    }
}

/// What of the data above `level` lies over a table of it, newest first.
pub fn above(tables: &Tables, level: usize, table: &Table) -> Vec<Run> {
    let extent = Extent::of(table);
    let upper = tables.levels().iter().take(level.saturating_sub(1));
    let runs = tables.fresh().iter().chain(upper);
    runs.map(|run| extent.of_run(run).to_vec()).filter(|run| !run.is_empty()).collect()
}

/// The number of the newest table of `runs`.
pub fn newest(runs: &[Run]) -> TableId {
    runs.iter().flatten().map(|table| table.id()).max().unwrap_or(0)
}

/// How much of a table the data `above` hides, about, in parts of [`WHOLE`]: each entry there one here, or
/// each that `counts` says, if that is less than all of them; and what its ranges cover.
pub fn hidden(table: &Table, above: &[Run], counts: impl Fn(&Arc<Table>) -> u64) -> u64 {
    let Extent { start, end } = Extent::of(table);
    let share = |newer: &Arc<Table>| {
        let over = newer.bytes_between(&start, end.as_deref());
        scale(counts(newer), over, newer.properties().data_bytes.max(1))
    };
    let entries: u64 = above.iter().flatten().map(share).sum();
    let entries = scale(entries, WHOLE, table.properties().entries.max(1));
    let newer = above.iter().flatten();
    let covered = newer.map(|newer| table.covered_between(&[], None, newer.ranges())).max();
    let covered = scale(covered.unwrap_or(0), WHOLE, table.properties().data_bytes.max(1));
    entries.saturating_add(covered).min(WHOLE)
}
