//! Files kept open, at most so many: what was not used lately is closed, and opened again when it is
//! read. A process may hold only so many files open, and a store may have very many.
//!
//! What else the process has open nobody here knows. So whoever is refused a file because too many are
//! open has the pools of the process close half of what they hold ([`close_some`]), and tries again.
//! From then on a pool holds no more than that half. What took the rest may be gone later, and only
//! trying tells: so it may hold one more each time it has opened [`OPENINGS_PER_RAISE`] times as
//! many as it may hold, up to what it was made for. Where the process has no more, that is refused
//! again after some thousands of files opened, and costs to open as many again as were closed: a
//! small part of them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Access, Disk, File};
use crate::error::{Error, ErrorKind, Result};

/// Those of this process: it is the process that may have only so many files open.
static POOLS: Mutex<Vec<Weak<OpenFiles>>> = Mutex::new(Vec::new());

/// A pool that was refused files may hold one more when it has opened so many times as many as it
/// may hold.
const OPENINGS_PER_RAISE: usize = 8;

/// Files of one disk, some of them open.
#[derive(Debug)]
pub struct OpenFiles {
    disk: Arc<dyn Disk>,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    /// How many may be open now: at most `asked_for`, fewer after the process was refused a file.
    most: usize,
    asked_for: usize,
    /// Files opened since `most` changed, while it is below `asked_for`.
    opened: usize,
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

/// The first of `pieces` that lie in at most so many files, one file at least. Pieces of one file stand together.
pub fn up_to_files<P, F: PartialEq>(pieces: &[P], most: usize, file_of: impl Fn(&P) -> F) -> &[P] {
    let files = pieces.chunk_by(|one, next| file_of(one) == file_of(next));
    let count: usize = files.take(most.max(1)).map(<[P]>::len).sum();
    &pieces[..count]
}

/// Has the pools of this process close half of what they have open, and keep no more than the rest
/// for a while. False: they had nothing open.
pub(super) fn close_some() -> bool {
    let pools: Vec<_> = lock(&POOLS).iter().filter_map(Weak::upgrade).collect();
    pools.iter().filter(|pool| pool.close_half()).count() > 0
}

impl Open {
    /// After a file was opened: lets one more be open, if it is time for that.
    fn recover(&mut self) {
        if self.most == self.asked_for {
            return;
        }
        self.opened += 1;
        if self.opened >= OPENINGS_PER_RAISE * self.most {
            self.most += 1;
            self.opened = 0;
        }
    }

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
        let most = most.max(1);
        let open = Open { most, asked_for: most, opened: 0, slots: VecDeque::new() };
        let files = Arc::new(OpenFiles { disk, open: Mutex::new(open) });
        let mut pools = lock(&POOLS);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&files));
        files
    }

    /// The file at `path`, which must stay there for as long as it is used.
    pub fn file(self: &Arc<OpenFiles>, path: &Path, access: Access) -> PooledFile {
        PooledFile {
            files: self.clone(),
            slot: Arc::default(),
            path: path.to_owned(),
            access,
            was_open: AtomicBool::new(false),
        }
    }

    /// Makes room for one that was just opened.
    fn admit(&self, slot: &Arc<Slot>) {
        let mut open = lock(&self.open);
        open.recover();
        let others = open.most - 1;
        open.close_down_to(others);
        open.slots.push_back(slot.clone());
    }

    /// Closes half of those that are open, and keeps no more for a while. False: none is open.
    fn close_half(&self) -> bool {
        let mut open = lock(&self.open);
        let before = open.slots.len();
        open.close_down_to(before / 2);
        if before > 0 {
            open.most = open.slots.len().max(1);
            open.opened = 0;
        }
        before > 0
    }

    /// How many one call may have open for what it reads together: as many as may be open now, since others close none of them
    /// meanwhile.
    pub fn at_once(&self) -> usize {
        lock(&self.open).most
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
    was_open: AtomicBool,
}

impl PooledFile {
    /// The file, open for as long as the handle returned is held.
    ///
    /// # Errors
    /// Those of [`Disk::open`]; `Corruption` if it was there before, and is not any more.
    pub fn get(&self) -> Result<Arc<dyn File>> {
        self.slot.used.store(true, Relaxed);
        let opened = {
            let mut file = lock(&self.slot.file);
            if let Some(file) = &*file {
                return Ok(file.clone());
            }
            let opened = self.files.disk.open(&self.path, self.access);
            file.insert(opened.map_err(|error| self.missed(error))?).clone()
        };
        self.was_open.store(true, Relaxed);
        self.files.admit(&self.slot);
        Ok(opened)
    }

    /// That nobody finds a file which was there once is damage, as where it ends too soon.
    fn missed(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::NotFound || !self.was_open.load(Relaxed) {
            return error;
        }
        let message = "expected the file that was here, found none: it was removed while the database was open; put it \
                       back, or that of a backup or checkpoint, and reopen";
        Error::corruption(message).at_path(&self.path)
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

    /// A pool of 16 over 20 files, and how many are open after all were read once.
    fn pool_of_sixteen() -> (Arc<OpenFiles>, impl Fn() -> usize) {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let files = OpenFiles::new(disk.clone(), 16);
        let pooled: Vec<_> = (0u8..20)
            .map(|i| {
                let path = PathBuf::from(format!("/f{i}"));
                disk.create(&path).unwrap().write_all_at(&[i], 0).unwrap();
                files.file(&path, Access::Random)
            })
            .collect();
        let pool = files.clone();
        let read_all = move || {
            for (i, file) in pooled.iter().enumerate() {
                let mut byte = [0];
                file.get().unwrap().read_exact_at(&mut byte, 0).unwrap();
                assert_eq!(byte, [i as u8]);
            }
            pool.count()
        };
        (files, read_all)
    }

    /// Who may have no more open takes half of what there is, and the pool keeps to that for a while.
    #[test]
    fn half_of_what_is_open_is_closed_where_the_process_may_open_no_more() {
        let (files, read_all) = pool_of_sixteen();
        let mut counts = vec![read_all()];
        for _ in 0..2 {
            assert!(files.close_half());
            counts.push(read_all());
        }
        assert_eq!(counts, [16, 8, 4]);
        while files.close_half() {}
        assert_eq!(files.count(), 0, "nothing is open");
    }

    /// It never held more than that half again, however few files others had by then.
    #[test]
    fn a_pool_that_was_refused_files_comes_back_slowly_to_what_it_was_made_for() {
        let (files, read_all) = pool_of_sixteen();
        assert_eq!(read_all(), 16);
        assert!(files.close_half());
        let (mut counts, mut reads) = (vec![8], 0);
        while counts.last() != Some(&16) && reads < 1000 {
            let count = read_all();
            reads += 1;
            if counts.last() != Some(&count) {
                counts.push(count);
            }
        }
        assert_eq!(counts, (8..=16).collect::<Vec<_>>(), "after {reads} reads of all");
        // 8 times as many are opened as may be open, eight times; a read of all opens 20 at most.
        assert!(reads >= 8 * (8..16).sum::<usize>() / 20, "after {reads} reads of all");
        (0..100).for_each(|_| assert_eq!(read_all(), 16, "no more than it was made for"));
    }

    /// A call for many keys had 64 open, whatever the pool may have.
    #[test]
    fn what_is_read_together_is_in_no_more_files_than_may_be_open() {
        let pieces = [1, 1, 2, 3, 3, 3, 4];
        let up_to = |most| up_to_files(&pieces, most, |file| *file);
        assert_eq!([0, 1, 2, 3, 9].map(|most| up_to(most).len()), [2, 2, 3, 6, 7]);
        assert!(up_to_files(&pieces[..0], 3, |file| *file).is_empty());
        let (files, read_all) = pool_of_sixteen();
        assert_eq!((read_all(), files.at_once()), (16, 16));
        assert!(files.close_half());
        assert_eq!(files.at_once(), 8, "of what the process has left");
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
