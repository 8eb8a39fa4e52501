//! What the simulated disk hands out: files, log regions, locks.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::names::Node;
use super::random::Random;
use super::state::Held;
use super::{Operation, SimDisk};
use crate::disk::region::{self, Cursor};
use crate::disk::{File, Lock, LogRegion, Mapping, OperationKind, Reservation};
use crate::error::Result;

/// An open simulated file; keeps it alive without a name.
#[derive(Debug)]
pub(super) struct SimFile {
    disk: SimDisk,
    number: u64,
    path: PathBuf,
}

impl SimFile {
    /// Opens file `number`. The caller holds no lock.
    pub(super) fn open(disk: &SimDisk, number: u64, path: &Path) -> SimFile {
        SimFile { disk: disk.clone(), number, path: path.to_path_buf() }
    }

    fn operation(&self, kind: OperationKind) -> Operation<'_> {
        Operation::new(kind, &self.path)
    }

    /// Writes in two steps with the observer between them, `first` half first. A process killed
    /// in a write leaves part of it.
    fn write_halves(
        &self,
        operation: Operation<'_>,
        bytes: &[u8],
        offset_bytes: u64,
    ) -> Result<()> {
        let running = self.disk.begin(operation.at(offset_bytes, bytes.len() as u64));
        let write = |bytes: &[u8], offset_bytes| {
            self.disk
                .state()
                .write(self.number, bytes, offset_bytes)
                .map_err(|e| e.at_path(&self.path).at_offset(offset_bytes))
        };
        if !running.is_observed() {
            return write(bytes, offset_bytes);
        }
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let tail_offset_bytes = offset_bytes + head.len() as u64;
        // A log record's halves may land in any order; a system call's do not. Not by the index's
        // parity: reservations and publications tend to alternate.
        let tail_first = Random::new(running.index()).chance(8);
        if operation.kind == OperationKind::Publish && tail_first {
            write(tail, tail_offset_bytes)?;
            running.midway();
            return write(head, offset_bytes);
        }
        write(head, offset_bytes)?;
        running.midway();
        write(tail, tail_offset_bytes)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state().closed(self.number);
    }
}

impl File for SimFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
        let found_bytes = self.disk.state().inode(self.number).read(buffer, offset_bytes);
        if found_bytes < buffer.len() {
            return Err(region::short_read(&self.path, offset_bytes, buffer.len(), found_bytes));
        }
        Ok(())
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset_bytes: u64) -> bool {
        let is_cached = self.disk.state().is_cached_now();
        is_cached && self.read_exact_at(buffer, offset_bytes).is_ok()
    }

    fn is_in_memory(&self, _mapped: &[u8]) -> bool {
        self.disk.state().is_cached_now()
    }

    /// As it is now: nobody but a test that damages it writes to a file that is mapped.
    fn map(&self) -> Mapping {
        let Ok(length) = self.length_bytes() else { return Mapping::NotNow };
        let mut bytes = vec![0; length as usize];
        match self.read_exact_at(&mut bytes, 0) {
            Ok(()) => {
                let _held = self.disk.state().map(self.number);
                Mapping::Made(Bytes::from_owner(Mapped { bytes, _held }))
            }
            Err(_) => Mapping::NotNow,
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        self.write_halves(self.operation(OperationKind::Write), bytes, offset_bytes)
    }

    fn sync(&self) -> Result<()> {
        let _running = self.disk.begin(self.operation(OperationKind::Sync));
        self.disk.state().inode_mut(self.number).sync();
        Ok(())
    }

    fn truncate(&self, length_bytes: u64) -> Result<()> {
        let operation = self.operation(OperationKind::Truncate).at(length_bytes, 0);
        let _running = self.disk.begin(operation);
        self.disk.state().inode_mut(self.number).truncate(length_bytes);
        Ok(())
    }

    fn preallocate(&self, length_bytes: u64) -> Result<()> {
        let operation = self.operation(OperationKind::Preallocate).at(0, length_bytes);
        let _running = self.disk.begin(operation);
        let done = self.disk.state().preallocate(self.number, length_bytes);
        done.map_err(|e| e.at_path(&self.path))
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool> {
        let operation = self.operation(OperationKind::Discard).at(offset_bytes, length_bytes);
        let _running = self.disk.begin(operation);
        let end = offset_bytes.saturating_add(length_bytes);
        self.disk.state().inode_mut(self.number).clear(offset_bytes, end);
        Ok(true)
    }

    fn data_from(&self, offset_bytes: u64) -> u64 {
        self.disk.state().inode(self.number).data_from(offset_bytes)
    }

    fn has_one_name(&self) -> bool {
        self.disk.state().names.count(Node::File(self.number)) == 1
    }

    fn taken_bytes(&self) -> Option<u64> {
        Some(self.disk.state().inode(self.number).allocated_bytes())
    }

    fn length_bytes(&self) -> Result<u64> {
        Ok(self.disk.state().inode(self.number).length_bytes())
    }
}

/// What a file held when it was mapped.
struct Mapped {
    bytes: Vec<u8>,
    _held: Arc<()>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A simulated log region: a file, and a cursor that dies with the process.
#[derive(Debug)]
pub(super) struct SimRegion {
    file: SimFile,
    cursor: Cursor,
    /// Shown only: what it was made ready for.
    synced_often: AtomicBool,
    ended: AtomicBool,
}

impl SimRegion {
    pub(super) fn new(file: SimFile, length_bytes: u64) -> SimRegion {
        let [synced_often, ended] = [const { AtomicBool::new(false) }; 2];
        SimRegion { file, cursor: Cursor::new(length_bytes), synced_often, ended }
    }
}

impl LogRegion for SimRegion {
    fn capacity_bytes(&self) -> u64 {
        self.cursor.capacity_bytes()
    }

    fn expect_syncs(&self, synced_often: bool) {
        self.synced_often.store(synced_often, Ordering::Relaxed);
    }

    fn make_ready(&self, bytes: Range<u64>) {
        assert!(self.cursor.is_begun(), "a header's sync goes through all that was made ready");
        assert!(bytes.end <= self.cursor.capacity_bytes(), "{bytes:?}");
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn begin_again(&mut self, path: &Path) -> bool {
        self.file.path = path.to_path_buf();
        self.cursor = Cursor::new(self.cursor.capacity_bytes());
        self.ended.store(false, Ordering::Relaxed);
        true
    }

    fn reserve(&self, length_bytes: usize) -> Option<Reservation> {
        let operation = self.file.operation(OperationKind::Reserve).at(0, length_bytes as u64);
        let _running = self.file.disk.begin(operation);
        assert!(!self.ended.load(Ordering::Relaxed), "{}: it has ended", self.file.path.display());
        self.cursor.reserve(length_bytes)
    }

    fn publish(&self, reservation: Reservation, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.cursor.assert_own(&reservation);
        let mut record = vec![0; reservation.length_bytes()];
        fill(&mut record);
        let operation = self.file.operation(OperationKind::Publish);
        self.file.write_halves(operation, &record, reservation.offset_bytes())
    }

    fn sync(&self, up_to_bytes: u64) -> Result<()> {
        let operation = self.file.operation(OperationKind::SyncLog).at(0, up_to_bytes);
        let _running = self.file.disk.begin(operation);
        self.file.disk.state().inode_mut(self.file.number).sync_prefix(up_to_bytes);
        Ok(())
    }
}

/// A held simulated lock.
#[derive(Debug)]
pub(super) struct SimLock {
    pub(super) disk: SimDisk,
    pub(super) path: PathBuf,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        match state.locks.get_mut(&self.path) {
            Some(Held::Together(holders)) if *holders > 1 => *holders -= 1,
            _ => drop(state.locks.remove(&self.path)),
        }
    }
}
