//! How much room there is for what goes on while the ballast is given up.
//!
//! The disk says how much is free, and some say less than there is: what is kept for the superuser, or for the file system's own
//! trees, may be had all the same. What is said was believed: a disk that had been filled up to what it does not say told
//! of nothing free, every step of a sweep that wrote more than it gave back was refused for that, and whatever was removed nothing came
//! free again. So where a disk tells of next to nothing it is asked for it: as much is reserved for a moment
//! as is to be known of ([`Ballast::can_reserve`]). Where it tells the truth nobody else could have written there meanwhile; who else
//! of this database meets a full disk for that, a flush or a removal, begins again, a few times: not who asks, who would begin
//! again for ever.

use std::sync::atomic::Ordering;

use super::super::{Engine, lock};
use super::{Ballast, Held};
use crate::error::Result;

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

    /// Differs where room was reserved for a moment in between.
    pub fn probes(&self) -> u64 {
        self.probed.load(Ordering::Acquire)
    }
}

impl Engine {
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
        let half = lock(&self.ballast.held).given_bytes() / 2;
        match self.free_bytes() {
            Some(free) if free.saturating_add(freed_bytes) < half => Err(self.full()),
            _ => Ok(()),
        }
    }

    /// What settling may take while the ballast is given up and give back only later, bytes: what is free beyond the half that
    /// flushes and removals live on ([`Engine::check_left`]).
    pub fn room_to_settle(&self) -> u64 {
        self.bury();
        let half = lock(&self.ballast.held).given_bytes() / 2;
        self.free_bytes().map_or(0, |free| free.saturating_sub(half))
    }
}
