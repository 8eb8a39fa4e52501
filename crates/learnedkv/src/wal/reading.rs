//! A segment's file, read piece by piece: it may be much longer than what is in it, or than memory.

use std::path::Path;
use std::sync::Arc;

use crate::disk::{Access, Disk, File};
use crate::error::{ErrorKind, Result};
use crate::format::bytes::zeros_from;
use crate::format::entry::SequenceNumber;
use crate::format::log::{
    CANDIDATE_BYTES, RECORD_FILL_BYTES, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES,
    check_segment_header, next_candidate, peek_record_bytes, peek_segment, read_record_from,
};

/// So much is read at once, bytes.
const WINDOW_BYTES: u64 = if cfg!(test) { 4 << 10 } else { 1 << 20 };

/// And so much where a piece of that could not be read: a sector of most devices, and a page of the system's.
const PAGE_BYTES: u64 = if cfg!(test) { 512 } else { 4 << 10 };

/// A segment's file, and that part of it which is in memory: a window, or a record if that is longer.
pub(super) struct Reading {
    file: Arc<dyn File>,
    length_bytes: u64,
    /// So much is read at once from here on, bytes: less once the disk refused that.
    ahead_bytes: u64,
    /// Where the window begins in the file.
    start: u64,
    window: Vec<u8>,
}

impl Reading {
    /// The file at `path`; nothing is read.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Reading> {
        Reading::of(disk.open(path, Access::Sequential)?)
    }

    /// The same of a file that is open.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn of(file: Arc<dyn File>) -> Result<Reading> {
        let length_bytes = file.length_bytes()?;
        Ok(Reading { file, length_bytes, ahead_bytes: WINDOW_BYTES, start: 0, window: Vec::new() })
    }

    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// What stands from `offset` on: `least` bytes of it, or all that there are, and what else is in memory. What
    /// stands before `keep` may be let go of.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn bytes(&mut self, keep: u64, offset: u64, least: usize) -> Result<&[u8]> {
        let keep = keep.min(offset);
        let end = offset.saturating_add(least as u64).min(self.length_bytes);
        let window_end = self.start + self.window.len() as u64;
        if offset < self.start || (end > window_end && keep >= window_end) {
            self.window.clear();
            self.start = keep;
        }
        if end > self.start + self.window.len() as u64 {
            self.window.drain(..(keep - self.start.min(keep)) as usize);
            self.start = self.start.max(keep);
            let read = self.window.len();
            loop {
                let until = end.max(self.start + self.ahead_bytes).min(self.length_bytes);
                self.window.resize((until - self.start) as usize, 0);
                let fresh = self.window.get_mut(read..).unwrap_or_default();
                let done = self.file.read_exact_at(fresh, self.start + read as u64);
                let Err(e) = done else {
                    // Behind what it refuses it gives more.
                    self.ahead_bytes = self.ahead_bytes.max(PAGE_BYTES);
                    break;
                };
                self.window.truncate(read);
                if until == end {
                    return Err(e);
                }
                // Perhaps it refuses what nobody asked for.
                self.ahead_bytes = if self.ahead_bytes > PAGE_BYTES { PAGE_BYTES } else { 0 };
            }
        }
        let at = offset.saturating_sub(self.start);
        Ok(self.window.get(at as usize..).unwrap_or_default())
    }

    /// The record of a database and a segment that stands at `offset`; `None`: there stands none that is whole.
    ///
    /// # Errors
    /// `Unsupported` if one stands there, whole, that a newer version wrote; any error of the disk.
    pub fn record(
        &mut self,
        keep: u64,
        (database, segment): (u64, u64),
        offset: u64,
    ) -> Result<Option<Record<'_>>> {
        let head = self.bytes(keep, offset, RECORD_HEADER_BYTES)?;
        let Some(length_bytes) = peek_record_bytes(head, segment) else { return Ok(None) };
        // Of what fills it up some may be cut off.
        let least_end = offset.saturating_add((length_bytes - RECORD_FILL_BYTES) as u64);
        if least_end > self.length_bytes {
            return Ok(None);
        }
        let bytes = self.bytes(keep, offset, length_bytes)?;
        match read_record_from(bytes, database, segment, offset) {
            Ok(record) => Ok(Some(record)),
            // Its checksum is right: the log does not end here.
            Err(e) if e.kind() == ErrorKind::Unsupported => Err(e),
            Err(_) => Ok(None),
        }
    }

    /// The first place from `from` on where a record may stand that begins with operation `first` or a later one.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn candidate(
        &mut self,
        segment: u64,
        first: SequenceNumber,
        from: u64,
    ) -> Result<Option<u64>> {
        let mut from = from.next_multiple_of(8);
        loop {
            let bytes = self.bytes(from, from, CANDIDATE_BYTES)?;
            if let Some(at) = next_candidate(bytes, segment, first, 0) {
                return Ok(Some(from + at as u64));
            }
            let Some(looked_at) = bytes.len().checked_sub(CANDIDATE_BYTES) else { return Ok(None) };
            from += looked_at as u64 / 8 * 8 + 8;
        }
    }

    /// Whether no record was written to it yet: it holds zeros, or those of an earlier one whose file it was.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn is_unused(&mut self, database: u64, segment: u64) -> Result<bool> {
        let start = SEGMENT_HEADER_BYTES as u64;
        let of_record = peek_segment(self.bytes(start, start, 16)?, 0);
        if let Some(old) = of_record.filter(|found| *found < segment)
            && self.record(start, (database, old), start)?.is_some()
        {
            return Ok(true);
        }
        let mut at = start;
        while at < self.length_bytes {
            let bytes = self.bytes(at, at, 1)?;
            if zeros_from(bytes) > 0 {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Checks that it begins with its header.
    ///
    /// # Errors
    /// As [`check_segment_header`]; any error of the disk.
    pub fn check_header(&mut self, database: u64, segment: u64) -> Result<()> {
        check_segment_header(self.bytes(0, 0, SEGMENT_HEADER_BYTES)?, segment, database)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::error::Error;
    use crate::format::log::{RecordHeader, record_bytes, write_record};

    /// Records of all lengths, some longer than the window, and zeros for a hundred windows behind them: each is found,
    /// by its place and by looking for it, and never much more than a window and a record is in memory.
    #[test]
    fn what_is_in_memory_of_a_segment_is_a_window_or_a_record() {
        let window = WINDOW_BYTES as usize;
        let lengths = [0, 5, 1000, window - 40, window, 3 * window + 1, 1, 900, 4000, 77];
        let (mut bytes, mut places) = (vec![0; SEGMENT_HEADER_BYTES], Vec::new());
        for (first, length) in (1..).zip(lengths) {
            let offset = bytes.len();
            let header =
                RecordHeader { segment: 9, first, count: 1, synced: 0, external_position: None };
            bytes.resize(offset + record_bytes(length, false), 0);
            write_record(&mut bytes[offset..], 7, offset as u64, &header, &vec![9; length]);
            places.push(offset as u64);
        }
        let end = bytes.len() as u64;
        bytes.resize(bytes.len() + 100 * window, 0);
        let disk = SimDisk::new(1);
        let path = Path::new("/log");
        disk.create(path).unwrap().write_all_at(&bytes, 0).unwrap();

        let mut reading = Reading::open(&disk, path).unwrap();
        for keep_bytes in [0, 1 << 10] {
            for (&place, length) in places.iter().zip(lengths) {
                let keep = place.saturating_sub(keep_bytes);
                let record = reading.record(keep, (7, 9), place).unwrap().unwrap();
                assert_eq!(record.payload, vec![9; length]);
                assert!(reading.window.len() <= 2 * window.max(length) + 2048);
                assert_eq!(reading.bytes(keep, keep, 8).unwrap()[..8], bytes[keep as usize..][..8]);
            }
            assert!(reading.record(end, (7, 9), end).unwrap().is_none());
            assert!(reading.record(0, (7, 8), places[0]).unwrap().is_none(), "another segment's");
        }
        // One that would reach beyond the file's end is none, and is not read.
        let file = disk.open(path, Access::Random).unwrap();
        let lying =
            RecordHeader { segment: 9, first: 11, count: 1, synced: 0, external_position: None };
        let mut head = vec![0; record_bytes(0, false)];
        write_record(&mut head, 7, end, &lying, &[]);
        head[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        file.write_all_at(&head, end).unwrap();
        assert!(reading.record(places[9], (7, 9), end).unwrap().is_none());
        assert!(reading.window.len() <= 2 * window);
        file.write_all_at(&vec![0; head.len()], end).unwrap();
        for from in [0, places[3] + 1, places[4] - 16] {
            let mut found = Vec::new();
            let mut at = from;
            while let Some(place) = reading.candidate(9, 1, at).unwrap() {
                found.push(place);
                at = place + 8;
                assert!(reading.window.len() <= 2 * window);
            }
            let behind: Vec<_> = places.iter().copied().filter(|place| *place >= from).collect();
            assert_eq!(found, behind, "from {from}");
        }
        assert_eq!(reading.candidate(9, 11, 0).unwrap(), None);
        assert!(!reading.is_unused(7, 9).unwrap());
        assert!(reading.is_unused(7, 10).unwrap(), "the file was another segment's before");
    }

    /// A file of which some bytes cannot be read.
    #[derive(Debug)]
    struct Torn(Arc<dyn File>, std::ops::Range<u64>);

    impl File for Torn {
        fn read_exact_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
            let end = offset_bytes + buffer.len() as u64;
            if offset_bytes < self.1.end && self.1.start < end {
                return Err(Error::new(ErrorKind::Io, "a sector that cannot be read"));
            }
            self.0.read_exact_at(buffer, offset_bytes)
        }

        fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
            self.0.write_all_at(bytes, offset_bytes)
        }

        fn sync(&self) -> Result<()> {
            self.0.sync()
        }

        fn truncate(&self, length_bytes: u64) -> Result<()> {
            self.0.truncate(length_bytes)
        }

        fn preallocate(&self, length_bytes: u64) -> Result<()> {
            self.0.preallocate(length_bytes)
        }

        fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool> {
            self.0.discard(offset_bytes, length_bytes)
        }

        fn length_bytes(&self) -> Result<u64> {
            self.0.length_bytes()
        }
    }

    /// A sector that nobody asked for, up to a MiB behind, hid all whole records of a segment from salvage.
    #[test]
    fn what_lies_before_a_sector_that_cannot_be_read_is_read() {
        let (mut bytes, mut places) = (vec![0; SEGMENT_HEADER_BYTES], Vec::new());
        for first in 1..=3 * WINDOW_BYTES / 100 {
            let offset = bytes.len();
            let header =
                RecordHeader { segment: 9, first, count: 1, synced: 0, external_position: None };
            bytes.resize(offset + record_bytes(50, false), 0);
            write_record(&mut bytes[offset..], 7, offset as u64, &header, &[9; 50]);
            places.push(offset as u64..bytes.len() as u64);
        }
        let disk = SimDisk::new(1);
        let path = Path::new("/log");
        disk.create(path).unwrap().write_all_at(&bytes, 0).unwrap();
        for bad in [1000, WINDOW_BYTES - 512, WINDOW_BYTES + 700, bytes.len() as u64 - 1] {
            let file = disk.open(path, Access::Random).unwrap();
            let torn = Torn(file, bad..bad + 512);
            let mut reading = Reading::of(Arc::new(torn)).unwrap();
            let mut whole = places.iter().take_while(|place| {
                reading.record(place.start, (7, 9), place.start).is_ok_and(|found| found.is_some())
            });
            let read = whole.by_ref().count();
            let before = places.iter().filter(|place| place.end <= bad).count();
            // Its header, and what fills it up.
            assert!(read == before || read + 1 == before, "{read} of {before} before {bad}");
        }
    }
}
