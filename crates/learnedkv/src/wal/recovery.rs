//! Reading the log back after any kind of end.
//!
//! Records have consecutive sequence numbers. At the first place where the next number's record is
//! not (a bad checksum, zeros, a hole), the log ends, unless something says that the record was
//! durable once: any later valid record whose `synced` covers it, or the manifest. Then it is
//! damage, and an error; [`salvage`] goes without what is behind it. A segment that ended because the next one was begun shows the next number
//! at that one's start.
//!
//! What was read may be in the system's memory alone, as pages that it holds to be clean: so after a sync that
//! failed, in this process or one before it. A sync does nothing about those, and they go without a word. So what
//! nobody is known to have synced is written again, where it stands, before [`make_durable`] syncs it.

use std::path::Path;

use super::reading::Reading;
use super::{segment_id, segment_path};
use crate::disk::{Access, Disk, File};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::checksum;
use crate::format::entry::SequenceNumber;
use crate::format::log::{RecordHeader, SEGMENT_HEADER_BYTES};
use crate::format::manifest::LogState;

/// A segment of an earlier life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub segment: u64,
    /// Where its valid records end.
    pub end: u64,
    /// The sequence number of its first record.
    pub first: SequenceNumber,
    /// That of its last.
    pub last: SequenceNumber,
    /// All up to its end, in pieces of [`PIECE_BYTES`].
    pieces: Vec<Piece>,
}

/// A piece of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// The last operation of the last record that begins before its end.
    last: SequenceNumber,
    /// The checksum of its bytes.
    checksum: u64,
}

/// What recovery found.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    /// The last sequence number of the log.
    pub last: SequenceNumber,
    /// Up to here records are known to have been durable before.
    pub synced: SequenceNumber,
    /// Segments with records, now ended, their bytes durable after [`make_durable`].
    pub ended: Vec<Ended>,
    /// The number of the next segment.
    pub next_segment: u64,
    /// Operations read back.
    pub operations: u64,
    /// Valid records behind the end, never synced, that are dropped.
    pub dropped_records: u64,
    /// Where the log ended, if it ended in a segment: its number and the offset.
    pub end: Option<(u64, u64)>,
}

/// Takes a record and its payload.
pub type Apply<'a> = &'a mut dyn FnMut(&RecordHeader, &[u8]) -> Result<()>;

/// Reads the log and hands every record to `apply`, in order. Writes nothing: whoever goes on with the
/// log calls [`make_durable`].
///
/// # Errors
/// `Corruption` if records are missing that were durable once; `Unsupported` if a newer version wrote one; any error of
/// the disk or of `apply`.
pub fn recover(
    disk: &dyn Disk,
    dir: &Path,
    database: u64,
    state: &LogState,
    synced: SequenceNumber,
    apply: Apply<'_>,
) -> Result<Recovered> {
    let (recovered, damage) = salvage(disk, dir, database, state, synced, apply)?;
    match damage {
        None => Ok(recovered),
        Some(e) => Err(e.and_say("; what is left can be read in an open with `salvage`")),
    }
}

/// The same up to the first damage, and what that is: records that are missing, or that the disk does not give. Tables may hold
/// what was put behind it.
///
/// # Errors
/// `Unsupported` if a newer version wrote a record; those of listing the directory, and others of `apply`.
pub fn salvage(
    disk: &dyn Disk,
    dir: &Path,
    database: u64,
    state: &LogState,
    synced: SequenceNumber,
    apply: Apply<'_>,
) -> Result<(Recovered, Option<Error>)> {
    let names = disk.list(dir)?;
    let mut found: Vec<u64> = names.iter().filter_map(|name| segment_id(name)).collect();
    found.sort_unstable();
    let newest = found.last().copied().unwrap_or(0);
    let mut replay = Replay {
        disk,
        dir,
        database,
        open_from: state.open_from,
        next: state.first,
        synced: synced.max(state.first - 1),
        recovered: Recovered {
            next_segment: newest.max(state.open_from) + 1,
            ..Recovered::default()
        },
    };
    let open: Vec<u64> = found.into_iter().filter(|id| *id >= state.open_from).collect();
    let damage = match replay.all(&state.ended, &open, apply) {
        Ok(()) => None,
        Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io) => Some(e),
        Err(e) => return Err(e),
    };
    let Replay { next, synced, mut recovered, .. } = replay;
    (recovered.last, recovered.synced) = (next - 1, synced);
    Ok((recovered, damage))
}

/// Makes what was recovered durable, and cuts off what stands behind it.
///
/// # Errors
/// `Corruption` if a segment is not what was read of it any more; any error of the disk.
pub fn make_durable(disk: &dyn Disk, dir: &Path, recovered: &Recovered) -> Result<()> {
    let open = |ended: &Ended| disk.open(&segment_path(dir, ended.segment), Access::Sequential);
    // What stands behind the ends is dropped, and the space not used given back, before any is needed.
    recovered.ended.iter().try_for_each(|ended| open(ended)?.truncate(ended.end))?;
    for ended in &recovered.ended {
        let file = open(ended)?;
        let path = segment_path(dir, ended.segment);
        write_again(&*file, ended, recovered.synced).map_err(|e| e.at_path(&path))?;
        file.sync()?;
    }
    Ok(())
}

/// A segment is written again in pieces of so many bytes.
const PIECE_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 256 << 10 };

/// Writes what a segment holds of records beyond `synced` in its place, so that the system holds none of it to be
/// durable.
fn write_again(file: &dyn File, ended: &Ended, synced: SequenceNumber) -> Result<()> {
    let mut bytes = Vec::new();
    for (piece, at) in ended.pieces.iter().zip((0..).step_by(PIECE_BYTES as usize)) {
        if piece.last <= synced {
            continue;
        }
        bytes.resize(PIECE_BYTES.min(ended.end - at) as usize, 0);
        file.read_exact_at(&mut bytes, at)?;
        if checksum(0, at, &bytes) != piece.checksum {
            return Err(Error::corruption(format!(
                "expected the log's bytes, up to operation {}, as they were read just before, found others: an earlier \
                 sync failed, and the system has dropped what it held in memory; open the database again to go on \
                 with what the disk holds",
                piece.last
            ))
            .at_offset(at));
        }
        file.write_all_at(&bytes, at)?;
    }
    Ok(())
}

/// What stands from `start` to `end`, zeros where the file ends before that.
fn piece(file: &mut Reading, start: u64, end: u64, last: SequenceNumber) -> Result<Piece> {
    let length_bytes = (end - start) as usize;
    let bytes = file.bytes(start, start, length_bytes)?;
    let checksum = match bytes.get(..length_bytes) {
        Some(bytes) => checksum(0, start, bytes),
        None => {
            let mut bytes = bytes.to_vec();
            bytes.resize(length_bytes, 0);
            checksum(0, start, &bytes)
        }
    };
    Ok(Piece { last, checksum })
}

struct Replay<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    database: u64,
    /// The first segment that may have taken records since the manifest was written.
    open_from: u64,
    /// The sequence number that continues the log.
    next: SequenceNumber,
    /// The highest number that somebody says was durable.
    synced: SequenceNumber,
    recovered: Recovered,
}

impl Replay<'_> {
    /// Applies all records of the segments that `ended`, each up to a byte, and of those that may have taken records since.
    fn all(&mut self, ended: &[(u64, u64)], open: &[u64], apply: Apply<'_>) -> Result<()> {
        for &(segment, end) in ended {
            let stop = self.records(&mut self.read(segment)?, segment, end, apply)?;
            if stop != end {
                let path = segment_path(self.dir, segment);
                return Err(Error::corruption(format!(
                    "expected log records up to byte {end}, found none that continues the log"
                ))
                .at_path(&path)
                .at_offset(stop));
            }
        }
        let mut stopped: Option<(u64, u64)> = None;
        for &segment in open {
            let mut file = self.read(segment)?;
            let (before, limit) = (self.next, file.length_bytes());
            let stop = self.records(&mut file, segment, limit, apply)?;
            // A later segment continues the log only if the earlier ones are complete: the sequence
            // numbers show it. Empty segments in between continue nothing and stop nothing.
            if self.next > before || stopped.is_none() {
                stopped = Some((segment, stop));
            }
        }
        self.recovered.end = stopped;
        self.look_behind(open, stopped)?;
        self.check_synced(open, stopped)
    }

    fn read(&self, segment: u64) -> Result<Reading> {
        let path = segment_path(self.dir, segment);
        Reading::open(self.disk, &path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let message = format!(
                    "the manifest names this log segment, but it is not there: operations from {} on \
                     were in it; put it back, or restore the database from a backup",
                    self.next
                );
                Error::corruption(message).at_path(&path).at_offset(0)
            }
            _ => e,
        })
    }

    /// Applies the records that continue the log, up to byte `limit`. Returns where it stopped.
    fn records(
        &mut self,
        file: &mut Reading,
        segment: u64,
        limit: u64,
        apply: Apply<'_>,
    ) -> Result<u64> {
        let path = segment_path(self.dir, segment);
        // The header only tells the version. A damaged one stops nothing: each record is checked by
        // itself, and a segment whose making was cut short has none.
        match file.check_header(self.database, segment) {
            Err(e) if !e.is_corruption() => return Err(e.at_path(&path)),
            _ => {}
        }
        let mut offset = SEGMENT_HEADER_BYTES as u64;
        let first = self.next;
        // What stands in the file is looked at once: each piece that records have reached beyond, as they were read.
        let (mut pieces, mut whole) = (Vec::new(), 0);
        while offset < limit {
            let found = file.record(whole, (self.database, segment), offset);
            let Some(record) = found.map_err(|e| e.at_path(&path))? else { break };
            if record.header.first != self.next {
                break;
            }
            apply(&record.header, record.payload)
                .map_err(|e| e.at_path(&path).at_offset(offset))?;
            self.synced = self.synced.max(record.header.synced);
            self.next = record.header.last() + 1;
            self.recovered.operations += u64::from(record.header.count);
            offset += record.length_bytes as u64;
            while whole + PIECE_BYTES <= offset {
                pieces.push(piece(file, whole, whole + PIECE_BYTES, self.next - 1)?);
                whole += PIECE_BYTES;
            }
        }
        if self.next > first {
            let (end, last) = (offset, self.next - 1);
            if whole < end {
                pieces.push(piece(file, whole, end, last)?);
            }
            self.recovered.ended.push(Ended { segment, end, first, last, pieces });
        }
        Ok(offset)
    }

    /// Looks for valid records behind the end: what they say was synced, and how many are dropped.
    fn look_behind(&mut self, open: &[u64], stopped: Option<(u64, u64)>) -> Result<()> {
        let (last_segment, stop) = stopped.unwrap_or((0, 0));
        for &segment in open.iter().filter(|id| **id >= last_segment) {
            let mut file = self.read(segment)?;
            let mut offset =
                if segment == last_segment { stop } else { SEGMENT_HEADER_BYTES as u64 };
            while let Some(candidate) = file.candidate(segment, self.next, offset)? {
                offset = candidate + 8;
                let found = file.record(candidate, (self.database, segment), candidate);
                let at_path = |e: Error| e.at_path(&segment_path(self.dir, segment));
                if let Some(record) = found.map_err(at_path)? {
                    self.synced = self.synced.max(record.header.synced);
                    self.recovered.dropped_records += 1;
                    offset = candidate + record.length_bytes as u64;
                }
            }
        }
        Ok(())
    }

    /// Where the record that continues the log should be: at the stop, unless nothing was written
    /// there and the next segment does not begin with a record either.
    fn missing_at(&self, open: &[u64], stop: (u64, u64)) -> Result<(u64, u64)> {
        let Some(&next) = open.iter().find(|id| **id > stop.0) else { return Ok(stop) };
        let (mut file, start) = (self.read(next)?, SEGMENT_HEADER_BYTES as u64);
        let begins_otherwise = !file.is_unused(self.database, next)?
            && file.record(start, (self.database, next), start)?.is_none();
        // Behind the stop stand zeros, or what the file held before.
        if begins_otherwise && self.read(stop.0)?.candidate(stop.0, 0, stop.1)?.is_none() {
            return Ok((next, start));
        }
        Ok(stop)
    }

    fn check_synced(&self, open: &[u64], stopped: Option<(u64, u64)>) -> Result<()> {
        if self.synced < self.next {
            return Ok(());
        }
        let stop = stopped.unwrap_or((self.open_from, 0));
        let (segment, offset) = if stopped.is_some() { self.missing_at(open, stop)? } else { stop };
        // Segments are numbered one by one.
        let is_first = segment > self.open_from && open.first() == Some(&segment);
        let beside = if is_first { self.open_from } else { segment + 1 };
        let name = segment_path(Path::new(""), beside);
        let lost = match open.contains(&beside) {
            _ if stopped.is_none() => "this segment is not there".to_owned(),
            true => "the log is damaged here".to_owned(),
            false => format!("the log is damaged here, or {} was lost", name.display()),
        };
        Err(Error::corruption(format!(
            "expected the log record of operation {}, which was durable (up to {} were), found none: {lost}; \
             put back what is missing, or restore the database from a backup",
            self.next, self.synced
        ))
        .at_path(&segment_path(self.dir, segment))
        .at_offset(offset))
    }
}
