//! The whole of a simulated disk, behind one lock; a clone of it is what a crash leaves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::CrashKind;
use super::fate::Fates;
use super::inode::Inode;
use super::names::{Names, Node};
use super::page::PAGE_BYTES;
use super::random::Random;
use crate::error::{Error, ErrorKind, Result};

/// A file, with or without a name.
#[derive(Debug, Clone)]
struct Slot {
    inode: Arc<Inode>,
    open_handles: usize,
    /// Held by who has it in memory.
    maps: Weak<()>,
}

/// How a lock is held.
#[derive(Debug, Clone, Copy)]
pub(super) enum Held {
    /// By one who shares it with nobody.
    Alone,
    /// By so many together.
    Together(usize),
}

/// Names, files, locks.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) names: Names,
    files: BTreeMap<u64, Slot>,
    next_file: u64,
    pub(super) locks: BTreeMap<PathBuf, Held>,
    pub(super) random: Random,
    pub(super) space_limit_bytes: Option<u64>,
    pub(super) unsaid_bytes: u64,
    looks_at_cache: u64,
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            names: Names::default(),
            files: BTreeMap::new(),
            next_file: 0,
            locks: BTreeMap::new(),
            random: Random::new(seed),
            space_limit_bytes: None,
            unsaid_bytes: 0,
            looks_at_cache: 0,
        }
    }

    /// Whether the cache has what is looked for there now: now and then not, by the number of looks, as a replay has it
    /// again.
    pub(super) fn is_cached_now(&mut self) -> bool {
        self.looks_at_cache += 1;
        !self.looks_at_cache.is_multiple_of(4)
    }

    /// Makes a file of this content under a new name.
    pub(super) fn create(&mut self, path: &Path, inode: Inode) -> Result<u64> {
        if self.names.get(path).is_some() || self.names.is_dir(path) {
            let exists = std::io::ErrorKind::AlreadyExists.into();
            return Err(Error::io("create the file", path, &exists));
        }
        if !self.names.parent_is_dir(path) {
            return Err(not_found("create the file", path));
        }
        let number = self.next_file;
        self.next_file += 1;
        self.files
            .insert(number, Slot { inode: Arc::new(inode), open_handles: 0, maps: Weak::new() });
        self.names.link(path, Node::File(number));
        Ok(number)
    }

    /// The number of the file with this name.
    pub(super) fn find(&self, action: &str, path: &Path) -> Result<u64> {
        match self.names.get(path) {
            Some(Node::File(number)) => Ok(number),
            Some(Node::Dir) => {
                let is_dir = std::io::ErrorKind::IsADirectory.into();
                Err(Error::io(action, path, &is_dir))
            }
            None => Err(not_found(action, path)),
        }
    }

    /// Makes a directory and its missing parents.
    pub(super) fn create_dir(&mut self, dir: &Path) -> Result<()> {
        let mut missing: Vec<&Path> = dir.ancestors().filter(|d| !self.names.is_dir(d)).collect();
        missing.reverse();
        for dir in missing {
            if self.names.get(dir).is_some() {
                let is_file = std::io::ErrorKind::NotADirectory.into();
                return Err(Error::io("create the directory", dir, &is_file));
            }
            self.names.link(dir, Node::Dir);
        }
        Ok(())
    }

    pub(super) fn opened(&mut self, number: u64) {
        self.slot_mut(number).open_handles += 1;
    }

    pub(super) fn closed(&mut self, number: u64) {
        self.slot_mut(number).open_handles -= 1;
    }

    /// Somebody has a file in memory, for as long as what it gets is held.
    pub(super) fn map(&mut self, number: u64) -> Arc<()> {
        let maps = &mut self.slot_mut(number).maps;
        let held = maps.upgrade().unwrap_or_default();
        *maps = Arc::downgrade(&held);
        held
    }

    /// Whether nobody has a file in memory: else what it is written to would change under him.
    pub(super) fn is_unmapped(&self, number: u64) -> bool {
        self.slot(number).maps.strong_count() == 0
    }

    pub(super) fn inode(&self, number: u64) -> &Inode {
        &self.slot(number).inode
    }

    pub(super) fn inode_mut(&mut self, number: u64) -> &mut Inode {
        Arc::make_mut(&mut self.slot_mut(number).inode)
    }

    fn slot(&self, number: u64) -> &Slot {
        self.files.get(&number).expect("a file lives while it has a handle or a name")
    }

    fn slot_mut(&mut self, number: u64) -> &mut Slot {
        self.files.get_mut(&number).expect("a file lives while it has a handle or a name")
    }

    /// The space taken: by files that have a name or an open handle.
    pub(super) fn used_bytes(&self) -> u64 {
        let linked = self.names.linked();
        let counts =
            |(number, slot): &(&u64, &Slot)| slot.open_handles > 0 || linked.contains(number);
        self.files.iter().filter(counts).map(|(_, slot)| slot.inode.allocated_bytes()).sum()
    }

    /// How many more pages may take space.
    fn room_pages(&self) -> u64 {
        self.space_limit_bytes
            .map_or(u64::MAX, |limit| limit.saturating_sub(self.used_bytes()) / PAGE_BYTES as u64)
    }

    /// Writes to a file; on a full disk, the part that has room.
    pub(super) fn write(&mut self, number: u64, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        if offset_bytes.checked_add(bytes.len() as u64).is_none() {
            return Err(Error::invalid(format!(
                "a write of {} bytes at {offset_bytes} ends past the largest file",
                bytes.len()
            )));
        }
        let room_pages = self.room_pages();
        let length = match room_pages {
            u64::MAX => bytes.len(),
            _ => self.inode(number).writable(offset_bytes, bytes.len(), room_pages),
        };
        self.inode_mut(number).write(&bytes[..length], offset_bytes);
        if length < bytes.len() {
            return Err(self.full("write"));
        }
        Ok(())
    }

    /// Takes the space of a file's first bytes; where there is too little, as much as there is, as
    /// ext4 does, and fails.
    pub(super) fn preallocate(&mut self, number: u64, length_bytes: u64) -> Result<()> {
        let inode = self.inode(number);
        let room = self.check_room(inode.missing_pages(length_bytes));
        let mut taken_bytes = length_bytes;
        if room.is_err() {
            let fits =
                |pages: u64| inode.missing_pages(pages * PAGE_BYTES as u64) <= self.room_pages();
            taken_bytes =
                (0..).take_while(|pages| fits(*pages)).last().unwrap_or(0) * PAGE_BYTES as u64;
        }
        self.inode_mut(number).preallocate(taken_bytes);
        room
    }

    /// Makes a file of `length_bytes` preallocated zeros, its length durable, under a new name.
    pub(super) fn create_preallocated(&mut self, path: &Path, length_bytes: u64) -> Result<u64> {
        self.check_room(Inode::default().missing_pages(length_bytes))?;
        self.create(path, Inode::preallocated(length_bytes))
    }

    /// An error unless so many more pages may take space.
    fn check_room(&self, pages: u64) -> Result<()> {
        if pages > self.room_pages() { Err(self.full("reserve space")) } else { Ok(()) }
    }

    fn full(&self, action: &str) -> Error {
        Error::new(
            ErrorKind::DiskFull,
            format!(
                "could not {action}: the simulated disk is full, {} of {} bytes are used",
                self.used_bytes(),
                self.space_limit_bytes.unwrap_or(u64::MAX)
            ),
        )
    }

    /// Forgets files that no handle, no name and no crash can reach.
    pub(super) fn forget_unreachable(&mut self) {
        let reachable = self.names.reachable();
        self.files.retain(|number, slot| slot.open_handles > 0 || reachable.contains(number));
    }

    /// What a crash leaves of this disk.
    pub(super) fn after_crash(&self, kind: CrashKind, seed: u64) -> State {
        let mut left = self.clone();
        left.locks.clear();
        // File tags and the like must not repeat after a crash, whatever its seed.
        left.random = Random::new(self.random.for_part(seed).next());
        for slot in left.files.values_mut() {
            (slot.open_handles, slot.maps) = (0, Weak::new());
        }
        if kind == CrashKind::Machine {
            let mut random = Random::new(seed);
            let fates = Fates::of_seed(seed, &mut random);
            left.names = self.names.after_crash(fates.names, &mut random);
            left.forget_unreachable();
            for (&number, slot) in &mut left.files {
                if !slot.inode.is_synced() {
                    let mut random = random.for_part(number);
                    slot.inode = Arc::new(slot.inode.after_crash(&fates, &mut random));
                }
            }
        } else {
            left.forget_unreachable();
        }
        left
    }
}

/// The error of a name that is not there.
pub(super) fn not_found(action: &str, path: &Path) -> Error {
    Error::io(action, path, &std::io::ErrorKind::NotFound.into())
}
