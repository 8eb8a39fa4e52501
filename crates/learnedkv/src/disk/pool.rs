//! Files kept open, at most so many: what was not used lately is closed, and opened again when it is
//! read. A process may hold only so many files open, and a store may have very many.
//!
//! What else the process has open nobody here knows. So whoever is refused a file because too many are
//! open has the pools of the process close half of what they hold ([`close_some`]), and tries again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Access, Disk, File};
use crate::error::Result;

/// Those of this process: it is the process that may have only so many files open.
static POOLS: Mutex<Vec<Weak<OpenFiles>>> = Mutex::new(Vec::new());

/// Files of one disk, some of them open.
#[derive(Debug)]
pub struct OpenFiles {
    disk: Arc<dyn Disk>,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    most: usize,
    /// Those that are open, in the order of a clock hand: from the front on they are closed, unless they
    /// were used since it last passed.
    slots: VecDeque<Arc<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    used: AtomicBool,
    file: Mutex<Option<Arc<dyn File>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the pools of this process close half of what they have open, and keep no more than the rest from
/// now on. False: they had nothing open.
pub(super) fn close_some() -> bool {
    let pools: Vec<_> = lock(&POOLS).iter().filter_map(Weak::upgrade).collect();
    pools.iter().filter(|pool| pool.close_half()).count() > 0
}

impl Open {
    /// Closes until at most `most` are open. A slot's lock may be waited for under that of the queue: who
    /// has a slot's for long opens its file, and that one is not in the queue; who has it else
    /// waits for nothing.
    fn close_down_to(&mut self, most: usize) {
        while self.slots.len() > most {
            let Some(oldest) = self.slots.pop_front() else { break };
            if oldest.used.swap(false, Relaxed) {
                self.slots.push_back(oldest);
            } else {
                *lock(&oldest.file) = None;
            }
        }
    }
}

impl OpenFiles {
    /// Keeps at most `most` files of `disk` open, at least one.
    pub fn new(disk: Arc<dyn Disk>, most: usize) -> Arc<OpenFiles> {
        let open = Open { most: most.max(1), slots: VecDeque::new() };
        let files = Arc::new(OpenFiles { disk, open: Mutex::new(open) });
        let mut pools = lock(&POOLS);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&files));
        files
    }

    /// The file at `path`, which must stay there for as long as it is used.
    pub fn file(self: &Arc<OpenFiles>, path: &Path, access: Access) -> PooledFile {
        PooledFile { files: self.clone(), slot: Arc::default(), path: path.to_owned(), access }
    }

    /// Makes room for one that was just opened.
    fn admit(&self, slot: &Arc<Slot>) {
        let mut open = lock(&self.open);
        let others = open.most - 1;
        open.close_down_to(others);
        open.slots.push_back(slot.clone());
    }

    /// Closes half of those that are open, and keeps no more from now on. False: none is open.
    fn close_half(&self) -> bool {
        let mut open = lock(&self.open);
        let before = open.slots.len();
        open.close_down_to(before / 2);
        if before > 0 {
            open.most = open.slots.len().max(1);
        }
        before > 0
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        lock(&self.open).slots.iter().filter(|slot| lock(&slot.file).is_some()).count()
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

impl PooledFile {
    /// Closes the file, if it is open; reads under way go on.
    pub fn close(&mut self) {
        // Its place in the queue is taken by the next that needs one.
        let slot = std::mem::take(&mut self.slot);
        slot.used.store(false, Relaxed);
        *lock(&slot.file) = None;
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        self.close();
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
        let files = OpenFiles::new(disk.clone(), 3);
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

    /// Who may have no more open takes half of what there is, and the pool keeps to that.
    #[test]
    fn half_of_what_is_open_is_closed_where_the_process_may_open_no_more() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let files = OpenFiles::new(disk.clone(), 16);
        let pooled: Vec<_> = (0u8..20)
            .map(|i| {
                let path = PathBuf::from(format!("/f{i}"));
                disk.create(&path).unwrap().write_all_at(&[i], 0).unwrap();
                files.file(&path, Access::Random)
            })
            .collect();
        let read_all = || {
            for (i, file) in pooled.iter().enumerate() {
                let mut byte = [0];
                file.get().unwrap().read_exact_at(&mut byte, 0).unwrap();
                assert_eq!(byte, [i as u8]);
            }
            files.count()
        };
        let mut counts = vec![read_all()];
        while files.close_half() && counts.len() < 6 {
            counts.push(read_all());
        }
        assert_eq!(counts, [16, 8, 4, 2, 1, 1]);
        assert!(!files.close_half(), "nothing is open");
    }

    #[test]
    fn a_file_that_is_gone_is_an_error_each_time() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let files = OpenFiles::new(disk, 2);
        let gone = files.file(Path::new("/gone"), Access::Random);
        for _ in 0..3 {
            assert!(gone.get().is_err());
            assert_eq!(files.count(), 0);
        }
    }
}
