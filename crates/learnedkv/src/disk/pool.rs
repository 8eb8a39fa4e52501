//! Files kept open, at most so many: what was not used lately is closed, and opened again when it is
//! read. A process may hold only so many files open, and a store may have very many.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Access, Disk, File};
use crate::error::Result;

/// Files of one disk, some of them open.
#[derive(Debug)]
pub struct OpenFiles {
    disk: Arc<dyn Disk>,
    most: usize,
    /// Those that are open, in the order of a clock hand: from the front on they are closed, unless they
    /// were used since it last passed.
    open: Mutex<VecDeque<Arc<Slot>>>,
}

#[derive(Debug, Default)]
struct Slot {
    used: AtomicBool,
    file: Mutex<Option<Arc<dyn File>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenFiles {
    /// Keeps at most `most` files of `disk` open, at least one.
    pub fn new(disk: Arc<dyn Disk>, most: usize) -> OpenFiles {
        OpenFiles { disk, most: most.max(1), open: Mutex::default() }
    }

    /// The file at `path`, which must stay there for as long as it is used.
    pub fn file(self: &Arc<OpenFiles>, path: &Path, access: Access) -> PooledFile {
        PooledFile { files: self.clone(), slot: Arc::default(), path: path.to_owned(), access }
    }

    /// Makes room for one that was just opened. Called with no slot locked: a slot's lock may be waited
    /// for under `open`, never the other way round.
    fn admit(&self, slot: &Arc<Slot>) {
        let mut open = lock(&self.open);
        while open.len() >= self.most {
            let Some(oldest) = open.pop_front() else { break };
            if oldest.used.swap(false, Relaxed) {
                open.push_back(oldest);
            } else {
                *lock(&oldest.file) = None;
            }
        }
        open.push_back(slot.clone());
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        lock(&self.open).iter().filter(|slot| lock(&slot.file).is_some()).count()
    }
}

/// A file that is opened when it is needed. See [`OpenFiles`].
#[derive(Debug)]
pub struct PooledFile {
    files: Arc<OpenFiles>,
    slot: Arc<Slot>,
    path: PathBuf,
    access: Access,
}

impl PooledFile {
    /// The file, open for as long as the handle returned is held.
    ///
    /// # Errors
    /// Those of [`Disk::open`].
    pub fn get(&self) -> Result<Arc<dyn File>> {
        self.slot.used.store(true, Relaxed);
        let opened = {
            let mut file = lock(&self.slot.file);
            if let Some(file) = &*file {
                return Ok(file.clone());
            }
            file.insert(self.files.disk.open(&self.path, self.access)?).clone()
        };
        self.files.admit(&self.slot);
        Ok(opened)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        // Its place in the queue is taken by the next that needs one.
        self.slot.used.store(false, Relaxed);
        *lock(&self.slot.file) = None;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;

    #[test]
    fn any_number_of_files_is_read_with_few_open() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let files = Arc::new(OpenFiles::new(disk.clone(), 3));
        let pooled: Vec<_> = (0u8..20)
            .map(|i| {
                let path = PathBuf::from(format!("/f{i}"));
                disk.create(&path).unwrap().write_all_at(&[i], 0).unwrap();
                files.file(&path, Access::Random)
            })
            .collect();
        let read = |i: usize| {
            let mut byte = [0];
            pooled[i].get().unwrap().read_exact_at(&mut byte, 0).unwrap();
            byte[0]
        };
        for round in 0..4 {
            for i in 0..pooled.len() {
                assert_eq!(read(i), i as u8, "round {round}");
                assert_eq!(read(0), 0, "one in use stays");
                assert!(files.count() <= 3);
            }
        }
        let held = pooled[5].get().unwrap();
        (0..20).for_each(|i| assert_eq!(read(i), i as u8));
        let mut byte = [0];
        held.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [5], "a handle outlives its place");
        drop(pooled);
        assert_eq!(files.count(), 0);
    }

    #[test]
    fn a_file_that_is_gone_is_an_error_each_time() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let files = Arc::new(OpenFiles::new(disk, 2));
        let gone = files.file(Path::new("/gone"), Access::Random);
        for _ in 0..3 {
            assert!(gone.get().is_err());
            assert_eq!(files.count(), 0);
        }
    }
}
