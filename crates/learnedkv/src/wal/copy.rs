//! Copying the log as it is at one moment, for a database of its own.
//!
//! What is copied is chosen while nothing can be removed ([`Log::begin_copy`]); it is written later from
//! files that are open by then ([`LogCopy::write`]), while the log goes on. Only records that were
//! visible then are taken: those behind them may be half written, and may say that others were synced
//! which the copy does not have. Records say which database they belong to, so they are written
//! anew, at the same places of segments of the same numbers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reading::Reading;
use super::{Log, segment_path};
use crate::disk::{Access, Disk, File};
use crate::error::{Error, Result};
use crate::format::entry::SequenceNumber;
use crate::format::log::{SEGMENT_HEADER_BYTES, encode_segment_header, write_record};
use crate::format::manifest::LogState;

/// It is written so many bytes at a time, or a record.
const WRITE_BYTES: usize = 256 << 10;

/// What a copy of the log will hold.
#[derive(Debug)]
pub struct LogCopy {
    dir: PathBuf,
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
        let dir = self.dir.clone();
        Ok(LogCopy {
            dir,
            database: self.database,
            segments,
            next: state.first,
            up_to,
            _copies: copies,
        })
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
            let path = segment_path(dir, *id);
            let (mut from, mut offset) = (Reading::of(file.clone())?, SEGMENT_HEADER_BYTES as u64);
            // What is not written yet, and what it goes to.
            let mut out = encode_segment_header(*id, database).to_vec();
            let mut copy = None;
            while next <= self.up_to
                && let Some(record) = from
                    .record(offset, (self.database, *id), offset)
                    .map_err(|e| e.at_path(&segment_path(&self.dir, *id)))?
                && record.header.first == next
            {
                let start = out.len();
                out.resize(start + record.length_bytes, 0);
                let place = out.get_mut(start..).unwrap_or_default();
                write_record(place, database, offset, &record.header, record.payload);
                next = record.header.last() + 1;
                offset += record.length_bytes as u64;
                if out.len() >= WRITE_BYTES {
                    write(disk, &path, &mut copy, &mut out, offset)?;
                }
            }
            if offset > SEGMENT_HEADER_BYTES as u64 {
                write(disk, &path, &mut copy, &mut out, offset)?.sync()?;
                ended.push((*id, offset));
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

/// Writes `out`, which ends at `end`, to the copy, made if there is none yet.
fn write<'f>(
    disk: &dyn Disk,
    path: &Path,
    copy: &'f mut Option<Arc<dyn File>>,
    out: &mut Vec<u8>,
    end: u64,
) -> Result<&'f Arc<dyn File>> {
    let file = match copy.take() {
        Some(file) => file,
        None => disk.create(path)?,
    };
    file.write_all_at(out, end - out.len() as u64)?;
    out.clear();
    Ok(copy.insert(file))
}
