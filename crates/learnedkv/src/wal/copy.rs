//! Copying the log as it is at one moment, for a database of its own.
//!
//! What is copied is chosen while nothing can be removed ([`Log::begin_copy`]); it is written later from
//! files that are open by then ([`LogCopy::write`]), while the log goes on. Only records that were
//! visible then are taken: those behind them may be half written, and may say that others were synced
//! which the copy does not have. Records say which database they belong to, so they are written
//! anew, at the same places of segments of the same numbers.

use std::path::Path;
use std::sync::Arc;

use super::{Log, segment_path};
use crate::disk::{Access, Disk, File};
use crate::error::{Error, Result};
use crate::format::entry::SequenceNumber;
use crate::format::log::{SEGMENT_HEADER_BYTES, encode_segment_header, read_record, write_record};
use crate::format::manifest::LogState;

/// What a copy of the log will hold.
#[derive(Debug)]
pub struct LogCopy {
    database: u64,
    /// Numbers and open files, in the order of the log.
    segments: Vec<(u64, Arc<dyn File>)>,
    next: SequenceNumber,
    up_to: SequenceNumber,
    /// For as long as it is there, files that leave the log are not written to.
    _copies: Arc<()>,
}

impl Log {
    /// Chooses what is visible now, from the first record that the manifest says is needed. While edits
    /// are held: the segments that `state` names stay until the next one.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn begin_copy(&self, state: &LogState) -> Result<LogCopy> {
        // Before the files are chosen.
        let copies = self.copies.clone();
        // Read before the segments are: those hold all that is visible.
        let up_to = self.visible();
        let ended = state.ended.iter().map(|(id, _)| *id);
        let later = self.segments().into_iter().filter(|id| *id >= state.open_from);
        let open = |id| Ok((id, self.disk.open(&segment_path(&self.dir, id), Access::Sequential)?));
        let segments = ended.chain(later).map(open).collect::<Result<_>>()?;
        Ok(LogCopy { database: self.database, segments, next: state.first, up_to, _copies: copies })
    }
}

impl LogCopy {
    /// All operations up to this one will be in the copy.
    pub fn up_to(&self) -> SequenceNumber {
        self.up_to
    }

    /// Writes the copy into `dir`, for the database of that identity, and makes its content durable, not
    /// its names. Returns what a manifest has to say of it.
    ///
    /// # Errors
    /// `Corruption` if a record is not there that was visible; any error of the disk.
    pub fn write(self, disk: &dyn Disk, dir: &Path, database: u64) -> Result<LogState> {
        let (mut next, first) = (self.next, self.next);
        let mut ended = Vec::new();
        let open_from = self.segments.last().map_or(1, |(id, _)| id + 1);
        for (id, file) in &self.segments {
            let mut bytes = vec![0; file.length_bytes()? as usize];
            file.read_exact_at(&mut bytes, 0)?;
            let mut out = encode_segment_header(*id, database).to_vec();
            while next <= self.up_to
                && let Ok(record) = read_record(&bytes, self.database, *id, out.len())
                && record.header.first == next
            {
                let offset = out.len();
                out.resize(offset + record.length_bytes, 0);
                let place = out.get_mut(offset..).unwrap_or_default();
                write_record(place, database, offset as u64, &record.header, record.payload);
                next = record.header.last() + 1;
            }
            if out.len() > SEGMENT_HEADER_BYTES {
                let copy = disk.create(&segment_path(dir, *id))?;
                copy.write_all_at(&out, 0)?;
                copy.sync()?;
                ended.push((*id, out.len() as u64));
            }
        }
        if next != self.up_to + 1 {
            return Err(Error::corruption(format!(
                "expected the log records up to operation {}, found none of {next}: the log is \
                 damaged",
                self.up_to
            )));
        }
        let first = if ended.is_empty() { next } else { first };
        Ok(LogState { ended, open_from, first })
    }
}
