//! One open file of the operating system.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Readers, direct, platform};
use crate::disk::{File, Mapping, region};
use crate::error::{Error, Result};

/// An open file. Writes go through `file`; reads too, unless `direct` is there.
#[derive(Debug)]
pub(super) struct RealFile {
    path: PathBuf,
    file: fs::File,
    /// A second handle with `O_DIRECT`, for reads only: it would demand alignment of writes, too.
    /// The kernel writes dirty cached pages back before a direct read, so both see the same bytes.
    direct: Option<fs::File>,
    /// Such a handle of a file that is read through the cache otherwise; made when it is first wanted.
    around: OnceLock<Option<fs::File>>,
    /// Whether this process may write to it. Of a file that is not its own to change Linux tells it that all is in memory.
    may_write: bool,
    /// Up to here the system was told to begin writing.
    handed_bytes: AtomicU64,
    /// For reads around the cache that are waited for awake.
    awake: Option<Arc<Readers>>,
}

/// What is written in order is handed to the device in pieces of so many bytes, whole ones: so it is written beside
/// what comes next, and the sync at the end is short. A commit that is synced meanwhile comes behind two of them; of 4 MiB
/// these took 2 ms (decision 74).
const HANDED_BYTES: u64 = 1 << 20;

impl RealFile {
    pub(super) fn new(
        path: &Path,
        file: fs::File,
        direct: Option<fs::File>,
        may_write: bool,
        awake: Option<Arc<Readers>>,
    ) -> RealFile {
        RealFile {
            path: path.to_path_buf(),
            file,
            direct,
            around: OnceLock::new(),
            may_write,
            handed_bytes: AtomicU64::new(0),
            awake,
        }
    }

    /// The handle that reads go through, and whether it is one with `O_DIRECT`; if it can be had, for
    /// those that are to go `around` the cache.
    pub(super) fn for_reads(&self, around: bool) -> (&fs::File, bool) {
        let lazy = || if around { self.open_around() } else { None };
        match self.direct.as_ref().or_else(lazy) {
            Some(direct) => (direct, true),
            None => (&self.file, false),
        }
    }

    /// Where too many files are open there is none this time.
    fn open_around(&self) -> Option<&fs::File> {
        if self.around.get().is_none() {
            let _ = self.around.set(platform::open_direct(&self.path).ok()?);
        }
        self.around.get()?.as_ref()
    }

    fn read(&self, buffer: &mut [u8], offset_bytes: u64, around: bool) -> Result<()> {
        let (file, is_direct) = self.for_reads(around);
        let readers = self.awake.as_deref().filter(|_| is_direct && direct::is_small(buffer.len()));
        // Until it is over.
        let reading = readers.map(|readers| (readers, readers.awake.begin()));
        if let Some((readers, reading)) = &reading
            && let Some(turn) = reading.turn()
            && direct::read_awake(readers, &turn, file, buffer, offset_bytes)
        {
            return Ok(());
        }
        let failed = |e| Error::io("read", &self.path, &e).at_offset(offset_bytes);
        let found_bytes = match is_direct {
            true => match direct::read_up_to(file, buffer, offset_bytes) {
                // Some file systems accept the flag and refuse the reads.
                Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => {
                    platform::read_up_to(&self.file, buffer, offset_bytes)
                }
                other => other,
            },
            false => platform::read_up_to(file, buffer, offset_bytes),
        }
        .map_err(failed)?;
        if found_bytes < buffer.len() {
            return Err(region::short_read(&self.path, offset_bytes, buffer.len(), found_bytes));
        }
        Ok(())
    }

    /// After a write that ended there.
    fn hand_over(&self, end_bytes: u64) -> std::io::Result<()> {
        let handed = self.handed_bytes.load(Ordering::Relaxed);
        let end_bytes = end_bytes - end_bytes % HANDED_BYTES;
        if end_bytes <= handed {
            return Ok(());
        }
        self.handed_bytes.store(end_bytes, Ordering::Relaxed);
        platform::begin_writing(&self.file, handed, end_bytes - handed)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn failed<'a>(&'a self, action: &'a str) -> impl Fn(std::io::Error) -> Error + 'a {
        move |e| Error::io(action, &self.path, &e)
    }
}

impl File for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
        self.read(buffer, offset_bytes, false)
    }

    fn read_around_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
        self.read(buffer, offset_bytes, true)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset_bytes: u64) -> bool {
        let (file, is_direct) = self.for_reads(false);
        !is_direct && platform::read_cached(file, buffer, offset_bytes)
    }

    fn map(&self) -> Mapping {
        if self.direct.is_some() { Mapping::Never } else { platform::map(&self.file) }
    }

    fn is_in_memory(&self, mapped: &[u8]) -> bool {
        self.may_write && platform::is_in_memory(mapped)
    }

    fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        platform::write_all_at(&self.file, bytes, offset_bytes)
            .and_then(|()| self.hand_over(offset_bytes + bytes.len() as u64))
            .map_err(|e| Error::io("write", &self.path, &e).at_offset(offset_bytes))
    }

    fn sync(&self) -> Result<()> {
        // Data, and the metadata needed to read it back: the length is part of that.
        self.file.sync_data().map_err(self.failed("sync the file"))
    }

    fn truncate(&self, length_bytes: u64) -> Result<()> {
        self.file.set_len(length_bytes).map_err(self.failed("set the file's length"))
    }

    fn preallocate(&self, length_bytes: u64) -> Result<()> {
        platform::preallocate(&self.file, length_bytes).map_err(self.failed("reserve space"))
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool> {
        if length_bytes == 0 {
            return Ok(true);
        }
        platform::punch(&self.file, offset_bytes, length_bytes)
            .map_err(|e| Error::io("give space back", &self.path, &e).at_offset(offset_bytes))
    }

    fn data_from(&self, offset_bytes: u64) -> u64 {
        platform::data_from(&self.file, offset_bytes).unwrap_or(offset_bytes)
    }

    fn has_one_name(&self) -> bool {
        platform::name_count(&self.file) == Some(1)
    }

    fn taken_bytes(&self) -> Option<u64> {
        platform::taken_bytes(&self.file)
    }

    fn length_bytes(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(self.failed("read the file's length"))?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_order_is_handed_over_in_whole_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let options = fs::File::options().read(true).write(true).create_new(true).open(&path);
        let file = RealFile::new(&path, options.unwrap(), None, true, None);
        let (piece, part) = (HANDED_BYTES as usize, HANDED_BYTES as usize * 3 / 8);
        let written: Vec<u8> = (0..5 * part).map(|at| (at / 1000) as u8).collect();
        for (number, handed_pieces) in [0, 0, 1, 1, 1].into_iter().enumerate() {
            let from = number * part;
            file.write_all_at(&written[from..from + part], from as u64).unwrap();
            assert_eq!(file.handed_bytes.load(Ordering::Relaxed), handed_pieces * HANDED_BYTES);
        }
        file.write_all_at(&written[..10], 0).unwrap();
        assert_eq!(file.handed_bytes.load(Ordering::Relaxed), HANDED_BYTES);
        file.write_all_at(&vec![7; 3 * piece], piece as u64).unwrap();
        assert_eq!(file.handed_bytes.load(Ordering::Relaxed), 4 * HANDED_BYTES);
        // Beyond the end, and where the system cannot say it: nothing comes of it.
        platform::begin_writing(&file.file, 1 << 50, 1 << 20).unwrap();
        platform::begin_writing(&fs::File::open("/dev/null").unwrap(), 0, 1).unwrap();
        file.sync().unwrap();
        let mut read = vec![0; piece + 1];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read[..piece] == written[..piece] && read[piece] == 7);
    }
}
