//! The disk: every byte the engine reads or writes passes this trait.
//!
//! Variants, one folder each: [`real`] (the operating system), [`sim`] (in memory, crashes),
//! [`faulty`] (a wrapper that fails on script). What we assume of a disk is written in
//! docs/TESTING.md. A disk never knows a format: it moves bytes, names and sizes.
//!
//! Rules for every variant, checked by `conformance`:
//! 1. Bytes written are visible to later reads at once; they are durable only after [`File::sync`].
//! 2. A created, renamed or removed name is visible at once; it is durable only after
//!    [`Disk::sync_dir`] of its directory.
//! 3. Writes to disjoint ranges may run concurrently. All methods take `&self`.
//! 4. A read past the end is an error (`Corruption`: expected and found lengths), never short.
//! 5. Many reads at once ([`Disk::read_many`]) give what the same reads give one by one, each once, in
//!    whatever order; none is under way any more when the call ends, however it ends.

mod around;
#[cfg(test)]
mod conformance;
pub mod faulty;
mod maps;
mod operation;
mod pool;
pub mod real;
mod region;
mod residence;
pub mod sim;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;

pub use around::{Around, Served};
pub use maps::{Mapping, Maps, Purpose};
pub use operation::OperationKind;
pub use pool::{OpenFiles, PooledFile, up_to_files};
pub use residence::{Residence, Turn};

/// How a file that is opened will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Small reads at unrelated offsets, through the page cache.
    Random,
    /// Large reads in order, through the page cache.
    Sequential,
    /// Around the page cache where the system can (Linux: `O_DIRECT`); otherwise as `Random`.
    Direct,
}

/// A disk. See the module page for the rules.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates `path`, empty, for reading and writing.
    ///
    /// # Errors
    /// `Io` if it exists already or cannot be made.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// Opens an existing file for reading (and, if the permissions allow it, writing).
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `Io` otherwise.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;

    /// Removes a file's name. Open handles go on working.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Renames a file, replacing `to` in one step if it exists. Between directories it is durable
    /// only after [`Disk::sync_dir`] of both.
    ///
    /// # Errors
    /// `NotFound` if `from` does not exist.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Gives a file a second name, in the same directory or another: a hard link. Both are the same file
    /// from then on; the new name is durable only after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `NotFound` if `from` does not exist; `Io` if `to` does, or where the system makes no such link
    /// (between file systems, say). Then nothing has changed.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// The names in a directory (files and directories), sorted.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// Creates a directory and its missing parents; no error if it is there. Each is a name in its
    /// parent, durable only after [`Disk::sync_dir`] of that.
    ///
    /// # Errors
    /// `Io` if it cannot be made, or if a file stands there.
    fn create_dir(&self, dir: &Path) -> Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// `Io` if the system could not.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Takes the lock file at `path` exclusively, until the guard drops. Makes the file if it is not
    /// there.
    ///
    /// # Errors
    /// `Locked` if somebody else (or this process) holds it, in whichever way.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;

    /// Takes the lock file at `path` together with others that take it so, until the guard drops.
    /// Changes nothing on the disk.
    ///
    /// # Errors
    /// `Locked` if somebody holds it exclusively; `NotFound` if it is not there.
    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>>;

    /// Creates `path` as a region of `length_bytes` zero bytes for log records: preallocated, its
    /// size durable, its name not (that takes [`Disk::sync_dir`]).
    ///
    /// # Errors
    /// `DiskFull` if the space is not there; `Io` otherwise.
    fn create_log_region(&self, path: &Path, length_bytes: u64) -> Result<Arc<dyn LogRegion>>;

    /// Does all `requests`, of any files of this disk, as concurrently as it can, and waits for all.
    /// Each is handed to `take` as it comes, in whatever order, by its number among them: its buffer,
    /// filled; or its own error, as [`File::read_exact_at`] would give it. What `take` does with one, it
    /// does while the device is at the others.
    fn read_many(&self, requests: Vec<ReadRequest>, take: &mut Take<'_>) {
        let numbered = requests.into_iter().enumerate();
        numbered.for_each(|(number, request)| take(number, request.read_alone()));
    }

    /// As [`Disk::read_many`]: what came of each, in their order.
    fn read_all(&self, requests: Vec<ReadRequest>) -> Vec<Result<Vec<u8>>> {
        let mut came: Vec<_> = requests.iter().map(|_| None).collect();
        self.read_many(requests, &mut |number, read| came[number] = Some(read));
        came.into_iter().map(|read| read.expect("an answer to each request")).collect()
    }

    /// How much room there is where `dir` lies; `None` where the disk cannot tell. Others may take it at
    /// any time: what must be there is reserved ([`File::preallocate`]), not asked for.
    fn room(&self, _dir: &Path) -> Option<Room> {
        None
    }

    /// `path` so that it means the same whatever becomes of the process's working directory.
    ///
    /// # Errors
    /// `Io` if there is no working directory that it could be relative to.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// How many files this process may have open at once; `None` where the disk cannot tell.
    fn max_open_files(&self) -> Option<u64> {
        None
    }

    /// A random number (the simulated disk: from its seed).
    fn random_u64(&self) -> u64;
}

/// What a disk says of its space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What may still be taken, bytes.
    pub free_bytes: u64,
    /// What it holds altogether, bytes.
    pub total_bytes: u64,
}

/// Who takes what came of the requests of [`Disk::read_many`].
pub type Take<'a> = dyn FnMut(usize, Result<Vec<u8>>) + 'a;

/// One read of [`Disk::read_many`]: fill `buffer` from `offset_bytes` of `file`. It owns its buffer:
/// nobody else may touch it while a kernel writes to it.
#[derive(Debug)]
pub struct ReadRequest {
    /// The file to read.
    pub file: Arc<dyn File>,
    /// Where in it.
    pub offset_bytes: u64,
    /// What to fill, wholly: its length says how much.
    pub buffer: Vec<u8>,
    /// Whether as [`File::read_around_at`].
    pub around: bool,
}

impl ReadRequest {
    /// Does it by itself: its buffer, filled.
    ///
    /// # Errors
    /// As [`File::read_exact_at`].
    pub fn read_alone(mut self) -> Result<Vec<u8>> {
        match self.around {
            true => self.file.read_around_at(&mut self.buffer, self.offset_bytes)?,
            false => self.file.read_exact_at(&mut self.buffer, self.offset_bytes)?,
        }
        Ok(self.buffer)
    }
}

/// An open file. A disk knows its own kind again ([`Any`]) when files come back in
/// [`Disk::read_many`].
pub trait File: Any + Send + Sync + fmt::Debug {
    /// Fills `buffer` from `offset_bytes`.
    ///
    /// # Errors
    /// `Corruption` if the file ends before; `Io` otherwise.
    fn read_exact_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()>;

    /// As [`File::read_exact_at`], but around the system's cache where that can be had: what is read leaves
    /// no trace there.
    ///
    /// # Errors
    /// As [`File::read_exact_at`].
    fn read_around_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
        self.read_exact_at(buffer, offset_bytes)
    }

    /// Fills `buffer` from `offset_bytes` if no device has to be asked for it; whether it did. Where the
    /// system cannot tell, never.
    fn read_cached_at(&self, _buffer: &mut [u8], _offset_bytes: u64) -> bool {
        false
    }

    /// The whole file in memory, paged in by the system as it is read. For files that nobody writes any
    /// more. Never where reading it could fail otherwise than by the device. Such a read has no error
    /// to return: a device that fails ends the process.
    fn map(&self) -> Mapping {
        Mapping::Never
    }

    /// Whether the system holds all of `mapped`, a part of a map of this file ([`File::map`]): to read it then waits for no
    /// device, unless the system needs the memory at that very moment. Where it cannot tell, or would not tell us, no.
    fn is_in_memory(&self, _mapped: &[u8]) -> bool {
        false
    }

    /// Writes `bytes` at `offset_bytes`, growing the file if needed (a gap reads as zeros).
    ///
    /// # Errors
    /// `DiskFull` or `Io`; then any part of `bytes` may have been written.
    fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<()>;

    /// Makes all bytes written so far, and the file's length, durable.
    ///
    /// # Errors
    /// `Io`: then any part of what was not durable may be lost, and a retry may lie.
    fn sync(&self) -> Result<()>;

    /// Sets the length: cuts, or grows with zeros.
    ///
    /// # Errors
    /// `Io` or `DiskFull`.
    fn truncate(&self, length_bytes: u64) -> Result<()>;

    /// Reserves space so that writes below `length_bytes` do not meet a full disk, growing the
    /// length to it (zeros). On systems without reservation it only sets the length.
    ///
    /// # Errors
    /// `DiskFull` or `Io`; then part of the space may have been taken, and the file have grown.
    fn preallocate(&self, length_bytes: u64) -> Result<()>;

    /// Gives back the space of a range; it reads as zeros, or as before, from then on. False where the
    /// file system cannot: then nothing happens.
    ///
    /// # Errors
    /// `Io`.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool>;

    /// Where from `offset_bytes` on the first byte stands whose space was not given back
    /// ([`File::discard`]): the file's end at most. `offset_bytes` where the system cannot tell.
    fn data_from(&self, offset_bytes: u64) -> u64 {
        offset_bytes
    }

    /// Whether the file surely has no other name than the one it was opened by: what is done to it is
    /// seen by nobody else. Where the system cannot tell, no.
    fn has_one_name(&self) -> bool {
        false
    }

    /// How much of the disk the file takes, written or reserved, bytes; `None` where the system does not tell.
    fn taken_bytes(&self) -> Option<u64> {
        None
    }

    /// The file's length.
    ///
    /// # Errors
    /// `Io`.
    fn length_bytes(&self) -> Result<u64>;
}

/// Holds a lock file until dropped.
pub trait Lock: Send + Sync + fmt::Debug {}

/// A preallocated run of bytes that many threads append records to.
///
/// A record is [reserved](LogRegion::reserve), which fixes its place, then
/// [published](LogRegion::publish), which writes it: published bytes survive the death of the
/// process. [Synced](LogRegion::sync) bytes survive the death of the machine.
pub trait LogRegion: Send + Sync + fmt::Debug {
    /// The region's size.
    fn capacity_bytes(&self) -> u64;

    /// What will be published is to be synced after every few records (`synced_often`), or in large parts. A hint, given
    /// once after its making and after each [`LogRegion::begin_again`], when nothing but a header was published yet.
    fn expect_syncs(&self, _synced_often: bool) {}

    /// Makes memory ready for what will be published in these bytes. A hint, given at any time after
    /// [`LogRegion::expect_syncs`], also while others publish.
    fn make_ready(&self, _bytes: Range<u64>) {}

    /// No more is reserved until it is begun again: what serves records to come alone, an open file, is let go. What was reserved
    /// may still be published, and synced.
    fn end(&self) {}

    /// Makes it as it was made, but for its bytes, which stay what they are: reservations begin at its start
    /// again. Its file has the name `path` by now, or gets it next ([`Disk::rename`]), which errors
    /// name from then on. False where that cannot be done or gains nothing: then the region is as it was.
    fn begin_again(&mut self, _path: &Path) -> bool {
        false
    }

    /// The next `length_bytes` bytes, or `None` if so many are not left. Reservations are handed
    /// out in order, each beginning where the one before ended.
    fn reserve(&self, length_bytes: usize) -> Option<Reservation>;

    /// Lets `fill` write the reserved bytes and publishes them. Before, they are zero, or what was published
    /// there before the region was [begun again](LogRegion::begin_again): `fill` writes all of them.
    ///
    /// # Errors
    /// `Io` or `DiskFull` where the region writes through system calls.
    ///
    /// # Panics
    /// If the reservation is another region's.
    fn publish(&self, reservation: Reservation, fill: &mut dyn FnMut(&mut [u8])) -> Result<()>;

    /// Makes everything published below `up_to_bytes` durable.
    ///
    /// # Errors
    /// `Io`: then nothing may be assumed of what was not durable before.
    fn sync(&self, up_to_bytes: u64) -> Result<()>;
}

/// A place in a [`LogRegion`], given out once and used up by publishing.
#[derive(Debug)]
#[must_use = "a reserved place that is not published is a hole in the log"]
pub struct Reservation {
    region: u64,
    offset_bytes: u64,
    length_bytes: usize,
}

impl Reservation {
    /// A place in the region `region`. Only a [`LogRegion`] may make one, and no two that overlap:
    /// the mapped region writes through it without further checks.
    pub(in crate::disk) fn new(region: u64, offset_bytes: u64, length_bytes: usize) -> Reservation {
        Reservation { region, offset_bytes, length_bytes }
    }

    /// Where the reserved bytes begin in the region.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// How many were reserved.
    pub fn length_bytes(&self) -> usize {
        self.length_bytes
    }
}
