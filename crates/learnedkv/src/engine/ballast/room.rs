//! How much room there is for what goes on while the ballast is given up.
//!
//! The disk says how much is free, and some say less than there is: what is kept for the superuser, or for the file system's own
//! trees, may be had all the same. What is said was believed: a disk that had been filled up to what it does not say told
//! of nothing free, every step of a sweep that wrote more than it gave back was refused for that, and whatever was removed nothing came
//! free again. So where a disk tells of next to nothing it is asked for it: as much is reserved for a moment
//! as is to be known of ([`Held::can_reserve`]). Where it tells the truth nobody else could have written there meanwhile; who
//! of this database meets a full disk for that begins again, a few times ([`Engine::may_have_room`]): not more often, as who asks would begin
//! again for his own asking for ever. (Another database on that disk knows nothing of it: what it does may be refused then.)

use std::sync::atomic::Ordering;

use super::super::{Engine, lock};
use super::{Ballast, Held, TRIES};
use crate::error::Result;
use crate::manifest::KeyspaceState;
use crate::options::{KeyspaceOptions, Sizes};

/// Behind the bytes that are free where they would do: there is more that a file system can lack.
pub(super) const BY_NOW: &str = " by now (if no puts are taken in a second or two, the file system has no room for another file, whatever \
    its bytes: an inode)";
/// Less is next to nothing: what a disk says that has so much may be true, and others may be writing there.
const NEXT_TO_NOTHING: u64 = 64 << 10;
/// It is known to so large a part of what was given up.
const PARTS: u64 = 8;

impl Held {
    /// Whether so many bytes can be reserved beside what is; they are given back at once. No where the system does not
    /// reserve, or does not say whether it did.
    fn can_reserve(&self, bytes: u64) -> bool {
        let Some(file) = &self.file else { return false };
        let length = self.bytes + bytes;
        let is_reserved = file.preallocate(length).is_ok()
            && file.taken_bytes().is_some_and(|taken| taken >= length);
        // A file that cannot be cut holds more than is wanted, until it is given up again.
        let _ = file.truncate(self.bytes);
        is_reserved
    }
}

/// Where room may come from, as work saw it that begins; see [`Engine::give_up_ballast`] and [`Engine::may_have_room`].
#[derive(Debug, Clone, Copy, Default)]
pub struct RoomSeen {
    /// How often the ballast had been given up.
    pub(super) given_up: u64,
    /// How many files that nobody uses any more had been removed.
    pub(super) buried: u64,
    /// How often room had been reserved for a moment.
    probes: u64,
    /// How often the work began again for that, since it went well or failed.
    tries: usize,
}

impl RoomSeen {
    /// The work is over, whatever came of it.
    pub fn is_over(&mut self) {
        self.tries = 0;
    }
}

impl Ballast {
    /// How much can be reserved though nothing is said to be free, bytes: no more than was given up.
    fn reservable_bytes(&self) -> u64 {
        let held = lock(&self.held);
        if !self.is_given_up() {
            return 0;
        }
        // Whoever meets a disk that is full for that begins again: he saw less when he began, or sees more by the end.
        self.probed.fetch_add(1, Ordering::AcqRel);
        let mut tries = (1..=PARTS).rev().map(|parts| held.given_bytes() * parts / PARTS);
        let found = tries.find(|bytes| *bytes > 0 && held.can_reserve(*bytes));
        self.probed.fetch_add(1, Ordering::AcqRel);
        found.unwrap_or(0)
    }

    /// What flushes and removals live on while it is given up, bytes; none while it is held.
    pub fn half_bytes(&self) -> u64 {
        if self.is_given_up() { lock(&self.held).given_bytes() / 2 } else { 0 }
    }

    /// Differs where room was reserved for a moment in between.
    fn probes(&self) -> u64 {
        self.probed.load(Ordering::Acquire)
    }
}

impl Engine {
    /// For work that begins and may meet a full disk.
    pub fn room_seen(&self) -> RoomSeen {
        let (given_up, buried) = (self.ballast.times(), self.burials.count());
        RoomSeen { given_up, buried, probes: self.ballast.probes(), tries: 0 }
    }

    /// The same for work that may be begun again.
    pub fn see_room(&self, seen: &mut RoomSeen) {
        *seen = RoomSeen { tries: seen.tries, ..self.room_seen() };
    }

    /// The work has asked how much room there is.
    pub fn see_probes(&self, seen: &mut RoomSeen) {
        seen.probes = self.ballast.probes();
    }

    /// Whether the ballast was given up since.
    pub fn is_given_up_since(&self, seen: RoomSeen) -> bool {
        self.ballast.times() != seen.given_up
    }

    /// Whether work that met a full disk is to begin again: there may be room by now ([`Engine::give_up_ballast`]), or room was
    /// reserved for a moment meanwhile, and it has not begun again for that a few times.
    pub fn may_have_room(&self, seen: &mut RoomSeen) -> bool {
        self.give_up_ballast(*seen) || {
            seen.tries += 1;
            seen.tries < TRIES && self.ballast.probes() != seen.probes
        }
    }

    /// How large the disk is that sizes go by, bytes; `None` where it does not say, or the options do what is held back.
    pub fn disk_bytes(&self) -> Option<u64> {
        let asks = self.options.ballast_bytes.is_none();
        asks.then(|| self.disk().room(self.dir())).flatten().map(|room| room.total_bytes)
    }

    /// The options of a keyspace, on this disk.
    ///
    /// # Errors
    /// Those of [`KeyspaceOptions::decode`].
    pub(in crate::engine) fn options_of(
        &self,
        keyspace: &KeyspaceState,
    ) -> Result<KeyspaceOptions> {
        Ok(KeyspaceOptions::decode(&keyspace.options)?.on_disk_of(self.disk_bytes()))
    }

    /// How large new tables of a keyspace with these options get here.
    pub fn sizes(&self, options: &KeyspaceOptions) -> Sizes {
        Sizes::of(options, self.disk_bytes())
    }

    /// How much is free, bytes, as far as the disk says or lets be known; `None` where it says nothing. While the ballast is held
    /// what it says is believed.
    pub fn free_bytes(&self) -> Option<u64> {
        let said = self.disk().room(self.dir())?.free_bytes;
        let is_in_doubt = said < NEXT_TO_NOTHING && self.ballast.is_given_up();
        Some(if is_in_doubt { said.max(self.ballast.reservable_bytes()) } else { said })
    }

    /// Refuses work that wrote `written_bytes`, more than the `freed_bytes` it gives back, if that would leave
    /// less than half of the given up ballast: the half that flushes and removals live on. What gives as
    /// much as it takes may go on whatever is left: or a disk that others fill would stop what empties it.
    /// What was to come free since the disk was full, and has not, is taken off what is to come free now.
    ///
    /// # Errors
    /// `DiskFull`, as [`Engine::check_room`].
    pub fn check_left(&self, written_bytes: u64, freed_bytes: u64) -> Result<()> {
        let before = self.ballast.retired_before.load(Ordering::Relaxed);
        let freed_bytes = freed_bytes.saturating_sub(self.retired_bytes().saturating_sub(before));
        if !self.ballast.is_given_up() || written_bytes <= freed_bytes {
            return Ok(());
        }
        let half = self.ballast.half_bytes();
        match self.free_bytes() {
            Some(free) if free.saturating_add(freed_bytes) < half => Err(self.full()),
            _ => Ok(()),
        }
    }

    /// What settling may take while the ballast is given up and give back only later, bytes: what is free beyond the half that
    /// flushes and removals live on ([`Engine::check_left`]); `None` where the disk says nothing.
    pub fn room_to_settle(&self) -> Option<u64> {
        self.bury();
        let half = self.ballast.half_bytes();
        Some(self.free_bytes()?.saturating_sub(half))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::Database;
    use crate::disk::OperationKind;
    use crate::disk::sim::SimDisk;
    use crate::executor::SeededExecutor;

    /// For ever, if it began again each time that it met its own asking.
    #[test]
    fn what_meets_room_being_reserved_begins_again_a_few_times() {
        let disk = SimDisk::new(1);
        disk.set_space_limit_bytes(Some(1 << 30));
        let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
        let db = builder.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
        let engine = db.engine();
        let mut seen = engine.room_seen();
        while engine.give_up_ballast(seen) {
            seen = engine.room_seen();
        }
        assert!(engine.ballast.is_given_up());
        let said = engine.free_bytes().unwrap();
        assert!(!engine.may_have_room(&mut seen), "it told of {said}, and nobody reserved any");
        // It tells of nothing from now on.
        disk.set_unsaid_bytes(1 << 30);
        for _ in 0..2 {
            seen.is_over();
            for again in 1..TRIES {
                engine.see_room(&mut seen);
                assert!(engine.free_bytes().unwrap() > 0);
                assert!(engine.may_have_room(&mut seen), "{again}");
            }
            engine.see_room(&mut seen);
            assert!(engine.free_bytes().unwrap() > 0);
            assert!(!engine.may_have_room(&mut seen), "that was often enough");
        }
        seen.is_over();
        engine.see_room(&mut seen);
        assert!(engine.free_bytes().unwrap() > 0);
        engine.see_probes(&mut seen);
        assert!(!engine.may_have_room(&mut seen), "it was itself that asked");
    }

    /// It was known to be given up before its room was there: of who met a full disk in that moment nobody knew that there
    /// would be some, and a flush failed for it.
    #[test]
    fn who_knows_that_it_is_given_up_finds_its_room() {
        let disk = SimDisk::new(1);
        disk.set_space_limit_bytes(Some(1 << 30));
        let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
        let db = builder.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
        let engine = db.engine();
        let amid = Arc::new(Mutex::new(Vec::new()));
        let (looks, seen) = (Arc::downgrade(engine), amid.clone());
        disk.observe(move |operation, _| {
            let gives = operation.kind == OperationKind::Truncate;
            let engine = looks.upgrade().filter(|_| gives);
            lock(&seen).extend(engine.map(|engine| engine.room_seen()));
        });
        while engine.give_up_ballast(engine.room_seen()) {}
        assert!(engine.ballast.is_given_up());
        let amid: Vec<_> = lock(&amid).drain(..).collect();
        assert!(!amid.is_empty());
        assert!(amid.into_iter().all(|seen| engine.give_up_ballast(seen)), "it begins again");
    }

    /// A file system without inodes has bytes: it said that there was no room, and how much there was, which was more than it said
    /// was needed.
    #[test]
    fn who_has_bytes_enough_is_told_what_else_may_be_lacking() {
        let disk = SimDisk::new(1);
        disk.set_space_limit_bytes(Some(1 << 30));
        let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
        let db = builder.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
        let engine = db.engine();
        while engine.give_up_ballast(engine.room_seen()) {}
        assert!(engine.full().to_string().contains(BY_NOW), "{}", engine.full());
        disk.set_space_limit_bytes(Some(disk.used_bytes()));
        let text = engine.full().to_string();
        assert!(text.contains("the disk is full: 0 bytes are free here, "), "{text}");
    }
}
