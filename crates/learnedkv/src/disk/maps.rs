//! Files mapped into memory, at most so many. A process may have only so many maps (Linux:
//! `vm.max_map_count`, 65,530 by default), those of its allocator among them: one that has them all
//! cannot even allocate. So each map of a file is counted from before it is made until it is unmapped,
//! and there are at most a quarter of what the process may have, whatever databases it has open. Who
//! gets none reads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use super::{File, real};
use crate::error::Result;

/// So many where the system does not say how many a process may have.
const USUAL: usize = 16_384;

/// What became of the wish to have a file in memory.
#[derive(Debug)]
pub enum Mapping {
    /// Its bytes; mapped for as long as anybody has some of them.
    Made(Bytes),
    /// It is never mapped: the system does not do that, or not where the file lies.
    Never,
    /// Not now: there are as many maps as there may be, or the system has no room for another.
    NotNow,
}

/// What a map is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody reads there.
    Read,
    /// Somebody may read there soon: of these there are no more than half of what there may be, so that
    /// what is written takes none from what is read.
    Expected,
}

/// The maps there are. See the module page.
#[derive(Debug)]
pub struct Maps {
    most: usize,
    count: AtomicUsize,
}

impl Maps {
    /// None yet, and `most` at most.
    pub fn new(most: usize) -> Arc<Maps> {
        Arc::new(Maps { most, count: AtomicUsize::new(0) })
    }

    /// Those of this process.
    pub fn of_process() -> Arc<Maps> {
        static OF_PROCESS: LazyLock<Arc<Maps>> =
            LazyLock::new(|| Maps::new(real::max_maps().map_or(USUAL, |most| most as usize / 4)));
        OF_PROCESS.clone()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Maps a file, if there may be one more map. A file that cannot be opened now is not mapped now.
    pub fn map(
        self: &Arc<Maps>,
        purpose: Purpose,
        file: impl FnOnce() -> Result<Arc<dyn File>>,
    ) -> Mapping {
        let most = if purpose == Purpose::Read { self.most } else { self.most / 2 };
        let one_more = |count| (count < most).then_some(count + 1);
        if self.count.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            return Mapping::NotNow;
        }
        let counted = Counted(self.clone());
        match file().map_or(Mapping::NotNow, |file| file.map()) {
            Mapping::Made(bytes) => {
                Mapping::Made(Bytes::from_owner(Owner { bytes, _counted: counted }))
            }
            other => other,
        }
    }
}

/// One map.
struct Counted(Arc<Maps>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}

/// A file in memory. It is unmapped before it is no longer counted.
struct Owner {
    bytes: Bytes,
    _counted: Counted,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::disk::{Access, Disk};
    use crate::error::{Error, ErrorKind};

    #[test]
    fn there_are_no_more_maps_than_may_be_and_half_of_them_for_what_is_expected() {
        let disk = SimDisk::new(1);
        disk.create(Path::new("/f")).unwrap().write_all_at(b"abc", 0).unwrap();
        let maps = Maps::new(4);
        let map = |purpose| maps.map(purpose, || disk.open(Path::new("/f"), Access::Random));
        let made = |purpose| match map(purpose) {
            Mapping::Made(bytes) => Some(bytes),
            Mapping::NotNow => None,
            Mapping::Never => panic!("it maps"),
        };
        let mut held: Vec<_> = (0..3).filter_map(|_| made(Purpose::Expected)).collect();
        assert_eq!((held.len(), maps.count()), (2, 2));
        held.extend((0..9).filter_map(|_| made(Purpose::Read)));
        assert_eq!((held.len(), maps.count()), (4, 4));
        let lent = held[0].slice(1..2);
        drop(held.remove(0));
        assert!(made(Purpose::Read).is_none(), "somebody reads there still");
        assert_eq!(&lent[..], b"b");
        drop(lent);
        assert!(made(Purpose::Read).is_some() && made(Purpose::Expected).is_none());
        drop(held);
        assert_eq!(maps.count(), 0);
    }

    #[test]
    fn a_file_that_is_not_mapped_takes_no_place() {
        let maps = Maps::new(1);
        let refused = || Err(Error::new(ErrorKind::Io, "too many are open"));
        assert!(matches!(maps.map(Purpose::Read, refused), Mapping::NotNow));
        assert_eq!(maps.count(), 0);
    }

    /// A test process has few maps of files; the bound is that of the system.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_bound_is_a_quarter_of_what_the_process_may_have() {
        let told = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        assert_eq!(Maps::of_process().most, told.trim().parse::<usize>().unwrap() / 4);
    }
}
