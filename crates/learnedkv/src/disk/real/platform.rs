//! Where operating systems differ: the only file of this room with `cfg` for them.

#[cfg(target_os = "linux")]
mod uring;

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::path::Path;

use crate::disk::{Access, Mapping};

/// One positional read: as many bytes as the system gives, 0 at the end of the file.
pub(super) fn read_once(file: &File, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
    loop {
        #[cfg(unix)]
        let found = std::os::unix::fs::FileExt::read_at(file, buffer, offset_bytes);
        #[cfg(windows)]
        let found = match std::os::windows::fs::FileExt::seek_read(file, buffer, offset_bytes) {
            // ERROR_HANDLE_EOF: Windows makes an error of what Unix calls 0 bytes.
            Err(e) if e.raw_os_error() == Some(38) => Ok(0),
            other => other,
        };
        match found {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// How many names a file has, where the system tells.
pub(super) fn name_count(_file: &File) -> Option<u64> {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::nlink(&_file.metadata().ok()?).into();
    #[cfg(not(unix))]
    None
}

/// How much of the disk a file takes, bytes, where the system tells.
pub(super) fn taken_bytes(_file: &File) -> Option<u64> {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::blocks(&_file.metadata().ok()?).checked_mul(512);
    #[cfg(not(unix))]
    None
}

/// How many files this process may have open at once.
pub(super) fn max_open_files() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    None
}

/// Whether `error` says that this process, or the system, has as many files open as it may.
pub(super) fn says_too_many_open(_error: &std::io::Error) -> bool {
    #[cfg(unix)]
    return matches!(
        rustix::io::Errno::from_io_error(_error),
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
    );
    #[cfg(not(unix))]
    false
}

/// Fills `buffer` as far as the file goes; returns the bytes filled.
pub(super) fn read_up_to(file: &File, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
    let mut filled_bytes = 0;
    while filled_bytes < buffer.len() {
        let rest = &mut buffer[filled_bytes..];
        match read_once(file, rest, offset_bytes + filled_bytes as u64)? {
            0 => break,
            found => filled_bytes += found,
        }
    }
    Ok(filled_bytes)
}

/// Fills `buffer` from the system's cache; false if not all of it is there, or the system cannot tell.
#[cfg(target_os = "linux")]
pub(super) fn read_cached(file: &File, buffer: &mut [u8], offset_bytes: u64) -> bool {
    let (length, flags) = (buffer.len(), rustix::io::ReadWriteFlags::NOWAIT);
    let mut buffers = [std::io::IoSliceMut::new(buffer)];
    let found =
        rustix::io::retry_on_intr(|| rustix::io::preadv2(file, &mut buffers, offset_bytes, flags));
    found == Ok(length)
}

/// Outside Linux nobody can tell.
#[cfg(not(target_os = "linux"))]
pub(super) fn read_cached(_file: &File, _buffer: &mut [u8], _offset_bytes: u64) -> bool {
    false
}

/// The whole file in memory; never where the file system does not keep promises, or the system cannot
/// say what is in its cache: then nobody would know when reading the map is slow.
#[cfg(target_os = "linux")]
pub(super) fn map(file: &File) -> Mapping {
    if !mapping_keeps_promises(file) || file.metadata().map_or(0, |metadata| metadata.len()) == 0 {
        return Mapping::Never;
    }
    // tmpfs says no to the question what is cached.
    let flags = rustix::io::ReadWriteFlags::NOWAIT;
    let mut byte = [0];
    let asked = rustix::io::preadv2(file, &mut [std::io::IoSliceMut::new(&mut byte)], 0, flags);
    // Others say that they do not know the call, or forbid it.
    let is_told = |error| matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR);
    if asked.is_err_and(|error| !is_told(error)) {
        return Mapping::Never;
    }
    // SAFETY: the map is for reading. The files that are mapped are finished: this process writes to
    // them no more nor cuts them while any part of the map is held (`File::map` asks for that; decision 65), and the database's lock keeps other
    // databases out. Whoever changes them all the same changes bytes that are decoded as untrusted.
    #[allow(unsafe_code)]
    let map = match unsafe { memmap2::Mmap::map(file) } {
        Ok(map) => map,
        // Of memory, or of maps.
        Err(e) if e.kind() == ErrorKind::OutOfMemory => return Mapping::NotNow,
        Err(_) => return Mapping::Never,
    };
    // What lies around a block is not wanted.
    let _ = map.advise(memmap2::Advice::Random);
    Mapping::Made(bytes::Bytes::from_owner(map))
}

/// Not done outside Linux: see [`read_cached`].
#[cfg(not(target_os = "linux"))]
pub(super) fn map(_file: &File) -> Mapping {
    Mapping::Never
}

/// So many pages the system is asked for at once.
#[cfg(target_os = "linux")]
const ASKED_PAGES: usize = 128;

/// Whether the system's cache holds all of `mapped`, a part of a map of a file that this process may write to: of others
/// the system says yes (`mincore(2)`, since Linux 5.2).
#[cfg(target_os = "linux")]
pub(super) fn is_in_memory(mapped: &[u8]) -> bool {
    let page = rustix::param::page_size();
    let before = mapped.as_ptr().addr() % page;
    let (mut from, mut left) = (mapped.as_ptr().wrapping_sub(before), before + mapped.len());
    let mut there = [0; ASKED_PAGES];
    while left > 0 {
        let asked = left.min(ASKED_PAGES * page);
        let said = &mut there[..asked.div_ceil(page)];
        // SAFETY: the kernel only looks at what is mapped from `from` on, whatever it is, and writes a byte for each
        // page of `asked` bytes: as many as `said` has.
        #[allow(unsafe_code)]
        let failed = unsafe { libc::mincore(from.cast_mut().cast(), asked, said.as_mut_ptr()) };
        if failed != 0 || said.iter().any(|of_page| of_page & 1 == 0) {
            return false;
        }
        from = from.wrapping_add(asked);
        left -= asked;
    }
    true
}

/// Nothing is mapped outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_in_memory(_mapped: &[u8]) -> bool {
    false
}

/// How many maps this process may have.
#[cfg(target_os = "linux")]
pub(super) fn max_maps() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
}

/// Nothing is mapped outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn max_maps() -> Option<u64> {
    None
}

/// Writes all of `bytes` at `offset_bytes`.
#[cfg(unix)]
pub(super) fn write_all_at(file: &File, bytes: &[u8], offset_bytes: u64) -> Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset_bytes)
}

/// Writes all of `bytes` at `offset_bytes`.
#[cfg(windows)]
pub(super) fn write_all_at(file: &File, mut bytes: &[u8], mut offset_bytes: u64) -> Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset_bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset_bytes += written as u64;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Makes the names in `dir` durable.
#[cfg(unix)]
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)?.sync_all()
}

/// Windows cannot sync a directory: NTFS journals names by itself. Only checks that it is there.
#[cfg(windows)]
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    std::fs::read_dir(dir).map(drop)
}

/// Tells the system how the file will be read. A hint: failures change nothing.
#[cfg(target_os = "linux")]
pub(super) fn advise(file: &File, access: Access) {
    let advice = match access {
        Access::Random | Access::Direct => rustix::fs::Advice::Random,
        Access::Sequential => rustix::fs::Advice::Sequential,
    };
    let _ = rustix::fs::fadvise(file, 0, None, advice);
}

/// No advice outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn advise(_file: &File, _access: Access) {}

/// Has the system begin to read a range into its cache, without waiting for it. A hint.
#[cfg(target_os = "linux")]
pub(super) fn will_need(file: &File, offset_bytes: u64, length_bytes: usize) {
    let length = std::num::NonZeroU64::new(length_bytes as u64);
    let _ = rustix::fs::fadvise(file, offset_bytes, length, rustix::fs::Advice::WillNeed);
}

/// No advice outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn will_need(_file: &File, _offset_bytes: u64, _length_bytes: usize) {}

/// A read that is to be done beside others.
#[derive(Debug)]
pub(super) struct RawRead<'a> {
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // only a ring reads it
    pub(super) file: &'a File,
    pub(super) offset_bytes: u64,
    /// What is filled from its byte `start` to its end, and nothing before that.
    pub(super) buffer: Vec<u8>,
    pub(super) start: usize,
}

/// Who makes reads, each when it is about to be done.
pub(super) type MakeRaw<'m, 'a> = dyn Iterator<Item = RawRead<'a>> + 'm;

/// Who takes reads that were done, by their numbers, and how many bytes each found.
pub(super) type TakeRaw<'t, 'a> = dyn FnMut(usize, RawRead<'a>, Result<usize>) + 't;

/// Whether the kernel gave a read up before it was done.
#[cfg(target_os = "linux")]
pub(super) fn is_cancelled(error: &std::io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::CANCELED)
}

/// Nothing is given up outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_cancelled(_error: &std::io::Error) -> bool {
    false
}

#[cfg(target_os = "linux")]
pub(super) use uring::Rings;

/// Outside Linux there are no rings: every read is left undone.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Default)]
pub(super) struct Rings;

#[cfg(not(target_os = "linux"))]
impl Rings {
    pub(super) fn are_allowed(&self) -> bool {
        false
    }

    pub(super) fn read<'a>(&self, _reads: &mut MakeRaw<'_, 'a>, _take: &mut TakeRaw<'_, 'a>) {}

    pub(super) fn read_awake<'a>(
        &self,
        _read: RawRead<'a>,
        _take: &mut TakeRaw<'_, 'a>,
        _turn: &super::awake::Turn<'_>,
    ) {
    }
}

/// A handle for reads around the page cache, or `None` where the file system refuses. An error only
/// where too many files are open.
#[cfg(target_os = "linux")]
pub(super) fn open_direct(path: &Path) -> Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    // Without NONBLOCK it would wait for who writes to a pipe that stands in the place of a file.
    let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::NONBLOCK;
    let Ok(flags) = i32::try_from(flags.bits()) else { return Ok(None) };
    match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(e) if says_too_many_open(&e) => Err(e),
        opened => Ok(opened.ok()),
    }
}

/// No reads around the cache outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn open_direct(_path: &Path) -> Result<Option<File>> {
    Ok(None)
}

/// Reserves blocks below `length_bytes` and grows the length to it.
#[cfg(target_os = "linux")]
pub(super) fn preallocate(file: &File, length_bytes: u64) -> Result<()> {
    match allocate(file, length_bytes) {
        Err(e) if unsupported(&e) => grow(file, length_bytes),
        other => other,
    }
}

/// Grows the length: there is no portable way to reserve blocks.
#[cfg(not(target_os = "linux"))]
pub(super) fn preallocate(file: &File, length_bytes: u64) -> Result<()> {
    grow(file, length_bytes)
}

pub(super) fn grow(file: &File, length_bytes: u64) -> Result<()> {
    if file.metadata()?.len() < length_bytes { file.set_len(length_bytes) } else { Ok(()) }
}

/// Reserves blocks for certain, for a new file: where the system cannot promise them, by writing
/// zeros. A mapped page without a block behind it is a `SIGBUS` when the disk is full.
pub(super) fn reserve_blocks(file: &File, length_bytes: u64) -> Result<()> {
    #[cfg(target_os = "linux")]
    match allocate(file, length_bytes) {
        Err(e) if unsupported(&e) => {}
        other => return other,
    }
    write_zeros(file, length_bytes)
}

pub(super) fn write_zeros(file: &File, length_bytes: u64) -> Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut offset_bytes = 0;
    while offset_bytes < length_bytes {
        let piece = (length_bytes - offset_bytes).min(zeros.len() as u64);
        write_all_at(file, &zeros[..piece as usize], offset_bytes)?;
        offset_bytes += piece;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, length_bytes: u64) -> Result<()> {
    if length_bytes == 0 {
        return Ok(());
    }
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, 0, length_bytes))?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn unsupported(error: &std::io::Error) -> bool {
    // EOPNOTSUPP is the file system's answer, ENOSYS an old kernel's or a sandbox's.
    let code = error.raw_os_error();
    code == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
        || code == Some(rustix::io::Errno::NOSYS.raw_os_error())
}

/// Gives the blocks of a range back; nothing happens where the file system cannot.
#[cfg(target_os = "linux")]
pub(super) fn punch(file: &File, offset_bytes: u64, length_bytes: u64) -> Result<bool> {
    use rustix::fs::FallocateFlags;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let done = rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(file, flags, offset_bytes, length_bytes)
    });
    match done.map_err(std::io::Error::from) {
        Err(e) if unsupported(&e) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Has the system begin to write what was written to this range; no write is waited for. What the system refuses is
/// not done; what goes wrong as it begins is an error, which a later sync may not report.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(super) fn begin_writing(file: &File, offset_bytes: u64, length_bytes: u64) -> Result<()> {
    use std::os::fd::AsRawFd;
    let (Ok(offset), Ok(length)) = (offset_bytes.try_into(), length_bytes.try_into()) else {
        return Ok(());
    };
    loop {
        // SAFETY: it takes no pointer; the descriptor is that of `file`, which is open.
        let done = unsafe {
            libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE)
        };
        if done == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        // The answers of file systems and sandboxes that do not do it, and of a system that has no memory for it now:
        // what was written is written by the sync.
        let refusals = [
            libc::ENOSYS,
            libc::EOPNOTSUPP,
            libc::EINVAL,
            libc::ESPIPE,
            libc::EPERM,
            libc::EACCES,
            libc::ENOMEM,
            libc::EAGAIN,
        ];
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(code) if refusals.contains(&code) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// A sync writes all at once.
#[cfg(not(target_os = "linux"))]
pub(super) fn begin_writing(_file: &File, _offset_bytes: u64, _length_bytes: u64) -> Result<()> {
    Ok(())
}

/// Where data begins from `offset_bytes` on, or the file ends; `None` where the system cannot tell.
#[cfg(target_os = "linux")]
pub(super) fn data_from(file: &File, offset_bytes: u64) -> Option<u64> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset_bytes)) {
        Ok(found) => Some(found),
        // There is none.
        Err(rustix::io::Errno::NXIO) => Some(file.metadata().ok()?.len().max(offset_bytes)),
        Err(_) => None,
    }
}

/// Nothing is given back outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn data_from(_file: &File, _offset_bytes: u64) -> Option<u64> {
    None
}

/// Nothing is given back outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn punch(_file: &File, _offset_bytes: u64, _length_bytes: u64) -> Result<bool> {
    Ok(false)
}

/// The magic number of ext2 to ext4. (32 bits wide; the field's width and sign depend on the architecture.)
#[cfg(target_os = "linux")]
const EXT: u32 = 0xef53;

/// Whether blocks once reserved stay reserved, and a mapping fails only with its device.
///
/// Said only of file systems known to do so: ext2 to ext4, XFS, tmpfs. A store to a mapped page without
/// a block is a `SIGBUS` on a full disk: it ends the user's process, where a system call returns an
/// error. Copy-on-write file systems (btrfs, ZFS, bcachefs) may take a new block for what was reserved;
/// servers (NFS, SMB, FUSE) may run out of space, or go away; an overlay does not say what lies below.
#[cfg(target_os = "linux")]
pub(super) fn mapping_keeps_promises(file: &File) -> bool {
    const XFS: u32 = 0x5846_5342;
    const TMPFS: u32 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|s| [EXT, XFS, TMPFS].contains(&(s.f_type as u32)))
}

/// Whether this process may take what ext2 to ext4 keep for the superuser: he is the machine's own, not the
/// root of a user namespace (a container that runs without privileges).
#[cfg(target_os = "linux")]
fn is_superuser() -> bool {
    // No such file: a kernel without user namespaces.
    let map = std::fs::read_to_string("/proc/self/uid_map");
    rustix::process::geteuid().is_root() && map.map_or(true, |map| maps_root(&map))
}

/// Whether user 0 of a namespace is user 0 outside, by its `uid_map`: lines of first user inside, first
/// outside, and how many. (user_namespaces(7))
#[cfg(target_os = "linux")]
pub(super) fn maps_root(uid_map: &str) -> bool {
    uid_map.lines().any(|line| {
        let mut numbers = line.split_whitespace();
        numbers.next() == Some("0") && numbers.next() == Some("0")
    })
}

/// How much room there is: what this process may take, and all. ext2 to ext4 keep a twentieth for the
/// superuser: files of his fill that too, so for him it is free, but for what ext4 keeps for itself. (Another file
/// system's `f_bfree` may be what nobody can take.)
#[cfg(target_os = "linux")]
pub(super) fn room(dir: &Path) -> Option<crate::disk::Room> {
    // Some file systems of user space say that they have no block at all: they do not know.
    let found = rustix::fs::statvfs(dir).ok().filter(|found| found.f_blocks > 0)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let is_ext = || rustix::fs::statfs(dir).is_ok_and(|s| s.f_type as u32 == EXT);
    let free = if is_ext() && is_superuser() {
        // ext4 has a fiftieth of its clusters in reserve, 4096 of them at most, for its own trees; `f_bavail` is without.
        let reserved = (found.f_blocks / 50).min(4096);
        found.f_bfree.saturating_sub(reserved).max(found.f_bavail)
    } else {
        found.f_bavail
    };
    Some(crate::disk::Room { free_bytes: bytes(free), total_bytes: bytes(found.f_blocks) })
}

/// Not asked outside Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn room(_dir: &Path) -> Option<crate::disk::Room> {
    None
}

/// Outside Linux there is nothing to ask; the blocks were written.
#[cfg(not(target_os = "linux"))]
pub(super) fn mapping_keeps_promises(_file: &File) -> bool {
    true
}
