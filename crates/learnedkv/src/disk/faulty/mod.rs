//! A disk that fails on script, around any other disk.
//!
//! "Fail at operation N, for every N" is: run once with [`Fault::never`] and read
//! [`FaultCounts::matched`], then run again for every N with [`Fault::at`] N.
//!
//! **Failed syncs lie afterwards.** A file (or log region) whose sync failed is not synced any more:
//! later syncs of it return success and do nothing, until its name is created or replaced, or all of its bytes were
//! written again, in order (of a log region, those that no sync had covered before).
//! So do systems that mark pages clean after a failed write-back; over a
//! [simulated disk](super::sim), a crash then shows who retried.
//!
//! [`LogRegion::reserve`] cannot fail, and is not counted; all else is.

mod script;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use self::script::{Failure, Script};
pub use self::script::{Fault, FaultCounts};
use crate::disk::{
    Access, Disk, File, Lock, LogRegion, OperationKind, ReadRequest, Reservation, Room, Take,
};
use crate::error::Result;

/// A disk that fails on script. Clones share the disk and the script.
#[derive(Debug, Clone)]
pub struct FaultyDisk {
    inner: Arc<dyn Disk>,
    script: Arc<Script>,
    together: Arc<AtomicUsize>,
}

impl FaultyDisk {
    /// `inner`, with no faults yet.
    pub fn new(inner: Arc<dyn Disk>) -> FaultyDisk {
        FaultyDisk { inner, script: Arc::default(), together: Arc::default() }
    }

    /// How many requests came together at most ([`Disk::read_many`]), since this was asked last.
    pub fn take_most_together(&self) -> usize {
        self.together.swap(0, Relaxed)
    }

    /// Adds a fault. When several would fail the same operation, the one added first does.
    pub fn fail(&self, fault: Fault) -> Arc<FaultCounts> {
        self.script.add(fault)
    }

    /// Removes all faults. Files whose sync failed go on lying.
    pub fn clear_faults(&self) {
        self.script.clear();
    }

    /// How many operations there were, of all kinds.
    pub fn operation_count(&self) -> u64 {
        self.script.operation_count()
    }

    fn meet(&self, kind: OperationKind, path: &Path) -> Result<()> {
        self.script.meet(kind, path).map_err(|failure| failure.error)
    }

    fn file(&self, path: &Path, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultyFile { inner, script: Arc::clone(&self.script), path: path.to_path_buf() })
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.meet(OperationKind::Create, path)?;
        let file = self.inner.create(path)?;
        self.script.tells_truth(path);
        Ok(self.file(path, file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.meet(OperationKind::Open, path)?;
        Ok(self.file(path, self.inner.open(path, access)?))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.meet(OperationKind::Remove, path)?;
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.meet(OperationKind::Rename, from)?;
        self.inner.rename(from, to)?;
        self.script.renamed(from, to);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.meet(OperationKind::Link, from)?;
        self.inner.link(from, to)?;
        self.script.linked(from, to);
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.meet(OperationKind::List, dir)?;
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.meet(OperationKind::CreateDir, dir)?;
        self.inner.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.meet(OperationKind::SyncDir, dir)?;
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.meet(OperationKind::Lock, path)?;
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.meet(OperationKind::Lock, path)?;
        self.inner.lock_shared(path)
    }

    fn create_log_region(&self, path: &Path, length_bytes: u64) -> Result<Arc<dyn LogRegion>> {
        self.meet(OperationKind::CreateLogRegion, path)?;
        let inner = self.inner.create_log_region(path, length_bytes)?;
        self.script.tells_truth(path);
        let (script, path) = (Arc::clone(&self.script), path.to_path_buf());
        Ok(Arc::new(FaultyRegion { inner, script, path }))
    }

    /// Each request is an operation of its own, in their order, and fails by itself.
    fn read_many(&self, requests: Vec<ReadRequest>, take: &mut Take<'_>) {
        self.together.fetch_max(requests.len(), Relaxed);
        let (mut passed, mut numbers) = (Vec::new(), Vec::new());
        for (number, request) in requests.into_iter().enumerate() {
            let inner = match (&*request.file as &dyn Any).downcast_ref::<FaultyFile>() {
                Some(file) => match file.meet(OperationKind::Read) {
                    Ok(()) => file.inner.clone(),
                    Err(e) => {
                        take(number, Err(e.at_offset(request.offset_bytes)));
                        continue;
                    }
                },
                None => request.file,
            };
            passed.push(ReadRequest { file: inner, ..request });
            numbers.push(number);
        }
        self.inner.read_many(passed, &mut |at, read| take(numbers[at], read));
    }

    fn room(&self, dir: &Path) -> Option<Room> {
        self.inner.room(dir)
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn max_open_files(&self) -> Option<u64> {
        self.inner.max_open_files()
    }

    fn random_u64(&self) -> u64 {
        self.inner.random_u64()
    }
}

/// Does `sync` unless it is to fail, or lies.
fn sync_or_lie(
    script: &Script,
    kind: OperationKind,
    path: &Path,
    sync: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if let Err(failure) = script.meet(kind, path) {
        script.lies(path);
        return Err(failure.error);
    }
    if script.is_lying(path) { Ok(()) } else { sync() }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    script: Arc<Script>,
    path: PathBuf,
}

impl FaultyFile {
    fn meet(&self, kind: OperationKind) -> Result<()> {
        self.script.meet(kind, &self.path).map_err(|failure| failure.error)
    }
}

impl File for FaultyFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
        self.meet(OperationKind::Read).map_err(|e| e.at_offset(offset_bytes))?;
        self.inner.read_exact_at(buffer, offset_bytes)
    }

    fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let Err(Failure { error, writes_part }) =
            self.script.meet(OperationKind::Write, &self.path)
        else {
            self.inner.write_all_at(bytes, offset_bytes)?;
            self.script.written(&self.path, offset_bytes, offset_bytes + bytes.len() as u64);
            return Ok(());
        };
        if writes_part {
            self.inner.write_all_at(&bytes[..bytes.len() / 2], offset_bytes)?;
        }
        Err(error.at_offset(offset_bytes))
    }

    fn sync(&self) -> Result<()> {
        self.script.has_length(&self.path, self.inner.length_bytes()?);
        sync_or_lie(&self.script, OperationKind::Sync, &self.path, || self.inner.sync())
    }

    fn truncate(&self, length_bytes: u64) -> Result<()> {
        self.meet(OperationKind::Truncate)?;
        self.inner.truncate(length_bytes)
    }

    fn preallocate(&self, length_bytes: u64) -> Result<()> {
        self.meet(OperationKind::Preallocate)?;
        self.inner.preallocate(length_bytes)
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool> {
        self.meet(OperationKind::Discard)?;
        self.inner.discard(offset_bytes, length_bytes)
    }

    fn data_from(&self, offset_bytes: u64) -> u64 {
        self.inner.data_from(offset_bytes)
    }

    fn has_one_name(&self) -> bool {
        self.inner.has_one_name()
    }

    fn taken_bytes(&self) -> Option<u64> {
        self.inner.taken_bytes()
    }

    fn length_bytes(&self) -> Result<u64> {
        self.meet(OperationKind::Length)?;
        self.inner.length_bytes()
    }
}

#[derive(Debug)]
struct FaultyRegion {
    inner: Arc<dyn LogRegion>,
    script: Arc<Script>,
    path: PathBuf,
}

impl LogRegion for FaultyRegion {
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn expect_syncs(&self, synced_often: bool) {
        self.inner.expect_syncs(synced_often);
    }

    fn make_ready(&self, bytes: Range<u64>) {
        self.inner.make_ready(bytes);
    }

    fn end(&self) {
        self.inner.end();
    }

    fn begin_again(&mut self, path: &Path) -> bool {
        let begun = Arc::get_mut(&mut self.inner).is_some_and(|inner| inner.begin_again(path));
        if begun {
            self.path = path.to_path_buf();
        }
        begun
    }

    fn reserve(&self, length_bytes: usize) -> Option<Reservation> {
        self.inner.reserve(length_bytes)
    }

    fn publish(&self, reservation: Reservation, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let Err(Failure { error, writes_part }) =
            self.script.meet(OperationKind::Publish, &self.path)
        else {
            return self.inner.publish(reservation, fill);
        };
        let offset_bytes = reservation.offset_bytes();
        if writes_part {
            let mut record = vec![0; reservation.length_bytes()];
            fill(&mut record);
            let half = record.len() / 2;
            self.inner.publish(reservation, &mut |bytes| {
                bytes[..half].copy_from_slice(&record[..half]);
            })?;
        }
        Err(error.at_offset(offset_bytes))
    }

    fn sync(&self, up_to_bytes: u64) -> Result<()> {
        sync_or_lie(&self.script, OperationKind::SyncLog, &self.path, || {
            self.inner.sync(up_to_bytes)?;
            self.script.has_synced(&self.path, up_to_bytes);
            Ok(())
        })
    }
}
