//! The operating system's files.
//!
//! Rules 1-4 of [`disk`](super) come down to: positional reads and writes on shared handles
//! (they neither lock nor move a cursor), `fdatasync` for [`File::sync`], `fsync` of the directory
//! for [`Disk::sync_dir`], and an advisory lock of the open file for [`Disk::lock`] (it excludes
//! other handles of this process too, and ends with the process). [`Disk::read_many`] is `many`.

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only a ring is waited for awake"))]
mod awake;
#[cfg(target_os = "linux")]
mod by_calls;
mod direct;
mod file;
mod many;
mod platform;
mod region_buffered;
mod region_mapped;
#[cfg(test)]
mod tests;

use std::collections::hash_map::RandomState;
use std::fs::{OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::awake::Awake;
use self::file::RealFile;
use self::region_buffered::BufferedRegion;
use self::region_mapped::MappedRegion;
use crate::disk::{Access, Disk, File, Lock, LogRegion, ReadRequest, Room, Take, pool, region};
use crate::error::{Error, Result};

/// How many maps this process may have, of files and of memory; `None` where the system does not say.
pub(super) fn max_maps() -> Option<u64> {
    platform::max_maps()
}

/// How [`RealDisk`] makes its log regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogRegionKind {
    /// Mapped into memory: publishing is a copy, without a system call. Only where the file system is
    /// known to keep what it reserved (ext2 to ext4, XFS, tmpfs); elsewhere, or where a mapping is
    /// refused, buffered instead. The default.
    #[default]
    Mapped,
    /// Positional writes through the page cache: one system call a record. For systems where
    /// mapped files misbehave.
    Buffered,
}

/// How [`RealDisk`] does many reads at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManyReads {
    /// Through an io_uring, all under way together, where the kernel has it and allows it (many
    /// containers do not); one by one elsewhere. The default.
    #[default]
    IoUring,
    /// One by one; what goes through the page cache is asked for beforehand. For systems that look
    /// askance at io_uring.
    OneByOne,
}

/// How [`RealDisk`] waits for a small read that goes around the system's cache: one of data that memory is too short for, or any
/// where reads are direct. All else that waits for a device (the log, writes, many reads at once, reads through the system's cache)
/// sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waiting {
    /// Awake, where that costs nobody else anything: where no more read at a time than half as many as the process may use
    /// processors, not for longer than a fast device takes, and not while others want the processor; and where reads are a
    /// seventh quicker by it, which is found out as they are made and looked into again now and then. A cold get that took
    /// 55 us on a virtual machine's disk takes 39 then, and 12 us more of a processor (`figures multiget`); on another it was a
    /// tenth quicker for twice the processor time, and there it sleeps. The default. It takes an io_uring
    /// ([`ManyReads::IoUring`]); where there is none it is as asleep.
    #[default]
    Awake,
    /// Asleep. For programs that pay for the processor by the time that they use it, run on a battery, or have a quota of it that they
    /// come near.
    Asleep,
}

/// The operating system's disk. Clones share what they borrow from the kernel.
#[derive(Debug, Clone, Default)]
pub struct RealDisk {
    log_region_kind: LogRegionKind,
    many_reads: ManyReads,
    waiting: Waiting,
    readers: Arc<Readers>,
}

/// What all who read from a disk share.
#[derive(Debug, Default)]
struct Readers {
    rings: platform::Rings,
    awake: Awake,
}

impl RealDisk {
    /// The operating system's disk, with mapped log regions.
    pub fn new() -> RealDisk {
        RealDisk::default()
    }

    /// The operating system's disk, with log regions of `kind`.
    pub fn with_log_regions(kind: LogRegionKind) -> RealDisk {
        RealDisk { log_region_kind: kind, ..RealDisk::default() }
    }

    /// The same disk, but that it does many reads at once as `kind` says.
    #[must_use]
    pub fn with_many_reads(self, kind: ManyReads) -> RealDisk {
        RealDisk { many_reads: kind, ..self }
    }

    /// The same disk, but that it waits for reads around the system's cache as `waiting` says.
    #[must_use]
    pub fn with_waiting(self, waiting: Waiting) -> RealDisk {
        RealDisk { waiting, ..self }
    }

    /// For files whose reads may be waited for awake.
    fn awake(&self) -> Option<Arc<Readers>> {
        let is_awake = self.waiting == Waiting::Awake && self.many_reads == ManyReads::IoUring;
        is_awake.then(|| self.readers.clone())
    }

    /// Whether many reads at once go through an io_uring here: it was asked for, and the kernel
    /// allows it.
    pub fn uses_io_uring(&self) -> bool {
        self.many_reads == ManyReads::IoUring && self.readers.rings.are_allowed()
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = create_new(path)?;
        Ok(Arc::new(RealFile::new(path, file, None, true, self.awake())))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let ((file, may_write), direct) = with_handles(|| {
            let direct = match access {
                Access::Direct => platform::open_direct(path)?,
                Access::Random | Access::Sequential => None,
            };
            Ok((open_existing(path)?, direct))
        })
        .map_err(|e| no_handle("open the file", path, &e))?;
        if direct.is_none() {
            platform::advise(&file, access);
        }
        Ok(Arc::new(RealFile::new(path, file, direct, may_write, self.awake())))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|e| Error::io("remove the file", path, &e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to)
            .map_err(|e| Error::io(&format!("rename the file to {}", to.display()), from, &e))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::hard_link(from, to)
            .map_err(|e| Error::io(&format!("link the file to {}", to.display()), from, &e))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let fail = |e: &std::io::Error| no_handle("list the directory", dir, e);
        let mut names = Vec::new();
        for entry in with_handles(|| std::fs::read_dir(dir)).map_err(|e| fail(&e))? {
            // We write no names that are not UTF-8; a stranger's is shown, not refused.
            names.push(entry.map_err(|e| fail(&e))?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, &e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        with_handles(|| platform::sync_dir(dir))
            .map_err(|e| no_handle("sync the directory", dir, &e))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = with_handles(|| options.open(path))
            .map_err(|e| no_handle("open the lock file", path, &e))?;
        let taken = file.try_lock();
        held(path, file, taken)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let file = with_handles(|| std::fs::File::open(path))
            .map_err(|e| no_handle("open the lock file", path, &e))?;
        let taken = file.try_lock_shared();
        held(path, file, taken)
    }

    fn create_log_region(&self, path: &Path, length_bytes: u64) -> Result<Arc<dyn LogRegion>> {
        region::check_length(path, length_bytes)?;
        let file = create_new(path)?;
        let made = self.log_region_in(path, file, length_bytes);
        if made.is_err() {
            // Do not leave a half-made region behind, least of all on a full disk. If removing
            // fails too, the first error says more.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn read_many(&self, requests: Vec<ReadRequest>, take: &mut Take<'_>) {
        let rings = (self.many_reads == ManyReads::IoUring).then_some(&self.readers.rings);
        many::read(requests, rings, take);
    }

    fn room(&self, dir: &Path) -> Option<Room> {
        platform::room(dir)
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        std::path::absolute(path).map_err(|e| Error::io("make the path absolute", path, &e))
    }

    fn max_open_files(&self) -> Option<u64> {
        platform::max_open_files()
    }

    fn random_u64(&self) -> u64 {
        // Every `RandomState` has keys of its own, seeded by the system's generator.
        RandomState::new().build_hasher().finish()
    }
}

impl RealDisk {
    fn log_region_in(
        &self,
        path: &Path,
        file: std::fs::File,
        length_bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        platform::reserve_blocks(&file, length_bytes)
            .map_err(|e| Error::io("reserve the log region's space", path, &e))?;
        file.sync_all().map_err(|e| Error::io("sync the new log region", path, &e))?;
        if self.log_region_kind == LogRegionKind::Mapped && platform::mapping_keeps_promises(&file)
        {
            match MappedRegion::new(path, file, length_bytes) {
                Ok(region) => return Ok(Arc::new(region)),
                Err(file) => return Ok(Arc::new(BufferedRegion::new(path, file, length_bytes))),
            }
        }
        Ok(Arc::new(BufferedRegion::new(path, file, length_bytes)))
    }
}

fn create_new(path: &Path) -> Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    with_handles(|| options.open(path)).map_err(|e| no_handle("create the file", path, &e))
}

/// The file, and whether this process may write to it.
fn open_existing(path: &Path) -> std::io::Result<(std::fs::File, bool)> {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match OpenOptions::new().read(true).write(true).open(path) {
        // A read-only file or file system still serves reads.
        Err(e) if matches!(e.kind(), PermissionDenied | ReadOnlyFilesystem) => {
            Ok((OpenOptions::new().read(true).open(path)?, false))
        }
        other => Ok((other?, true)),
    }
}

/// Does `work` that opens files; again, where too many are open, once some that databases of this
/// process keep open only to read them again were closed. Others may be quicker to take their place.
fn with_handles<T>(mut work: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    const TRIES: usize = 8;
    for _ in 0..TRIES {
        match work() {
            Err(e) if platform::says_too_many_open(&e) && pool::close_some() => {}
            done => return done,
        }
    }
    work()
}

/// The error of a file that could not be opened or made; it says what to do where too many are
/// open.
fn no_handle(action: &str, path: &Path, error: &std::io::Error) -> Error {
    let told = Error::io(action, path, error);
    if error.kind() == std::io::ErrorKind::NotADirectory {
        return told.and_say("; it is a file, or below one: give the path of a directory");
    }
    match platform::max_open_files().filter(|_| platform::says_too_many_open(error)) {
        Some(most) => told.and_say(&format!(
            "; this process may have {most} files open at once: raise that (`ulimit -n`, or the limit of the \
             service), or have the database keep fewer open (`max_open_files`)"
        )),
        None => told,
    }
}

fn held(
    path: &Path,
    file: std::fs::File,
    taken: std::result::Result<(), TryLockError>,
) -> Result<Box<dyn Lock>> {
    match taken {
        Ok(()) => Ok(Box::new(RealLock { path: path.to_path_buf(), file })),
        Err(TryLockError::WouldBlock) => Err(region::locked(path)),
        Err(TryLockError::Error(e)) => Err(Error::io("lock the file", path, &e)),
    }
}

/// The lock lives as long as the open file, or until it is let go: a process that another thread is
/// starting holds a copy of the open file until it runs its program, and the lock with it.
#[derive(Debug)]
#[allow(dead_code)] // The path is for people who print the lock.
struct RealLock {
    path: PathBuf,
    file: std::fs::File,
}

impl Lock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // If that fails, the lock goes with the last copy of the file.
        let _ = self.file.unlock();
    }
}
