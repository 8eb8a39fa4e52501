//! Making commits durable: one sync at a time, for all who wait (group commit).
//!
//! A sync covers every commit that was visible when it began. Who comes while one goes on waits for
//! its end and looks whether it covered him; if not, he or another who waits makes the next, for all.
//! So nobody waits for more than the sync he came into and the one after it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::{Log, Segment, broken, lock, segment_path};
use crate::disk::{Access, Disk};
use crate::error::Result;
use crate::format::entry::SequenceNumber;

/// Whether somebody syncs, and who waits for his end. Not a mutex held meanwhile: who had it just now
/// takes that again before those who wait have woken, time after time.
#[derive(Debug, Default)]
pub(super) struct Turns {
    now: Mutex<Now>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    taken: bool,
    waiting: usize,
}

#[cfg(test)]
impl Turns {
    /// How many wait for a turn or for what another's brings.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.now).waiting
    }
}

/// The turn to sync. Dropped, it is another's.
#[derive(Debug)]
struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.0.now).taken = false;
        self.0.ended.notify_all();
    }
}

impl Log {
    /// Makes every commit up to `up_to` durable, and with it all that is visible.
    ///
    /// # Errors
    /// Any error of the disk: the log is then broken, for what was not durable may be lost while
    /// the system thinks it clean.
    pub fn sync(&self, up_to: SequenceNumber) -> Result<()> {
        if self.synced() >= up_to {
            return Ok(());
        }
        let Some(_turn) = self.turn(up_to) else {
            return Ok(()); // somebody else's sync covered it
        };
        if self.is_broken() {
            return Err(broken());
        }
        let (ended, last_ended, active) = self.take_ended(up_to);
        self.await_visible(up_to.max(last_ended))?;
        let mut target = last_ended;
        let synced = ended
            .into_iter()
            .try_for_each(|segment| sync_ended(&*self.disk, &self.dir, segment))
            .and_then(|()| {
                if target < up_to {
                    let end_bytes;
                    (target, end_bytes) = self.visible_within(&active);
                    active.region.sync(end_bytes)?;
                }
                Ok(())
            });
        synced.inspect_err(|_| self.break_log())?;
        self.synced.fetch_max(target, std::sync::atomic::Ordering::AcqRel);
        Ok(())
    }

    /// The turn to sync, once nobody else has it; `None` once `up_to` is durable.
    fn turn(&self, up_to: SequenceNumber) -> Option<Turn<'_>> {
        let mut now = lock(&self.turns.now);
        while self.synced() < up_to {
            if !now.taken {
                now.taken = true;
                return Some(Turn(&self.turns));
            }
            now.waiting += 1;
            now = self.turns.ended.wait(now).unwrap_or_else(PoisonError::into_inner);
            now.waiting -= 1;
        }
        None
    }

    /// What is visible and stands in `segment` or before it, and where in it that ends at most. What
    /// was never reserved is not synced: its pages were made ready in memory, and would be written.
    fn visible_within(&self, segment: &Segment) -> (SequenceNumber, u64) {
        let visible = self.visible();
        let order = lock(&self.order);
        let last = order.kept.iter().find(|k| k.id == segment.id).and_then(|k| k.last);
        match last {
            Some(last) => (last.min(visible), segment.region.capacity_bytes()),
            None => (visible, order.active_bytes),
        }
    }

    /// The segments, ended and not synced, that hold numbers up to `up_to`, the last number in
    /// them, and the segment that is active now. The ended ones count as synced from now on: if their
    /// sync fails, the log is broken.
    fn take_ended(
        &self,
        up_to: SequenceNumber,
    ) -> (Vec<Arc<Segment>>, SequenceNumber, Arc<Segment>) {
        let synced = self.synced();
        let mut order = lock(&self.order);
        let mut last_ended = 0;
        let mut ended = Vec::new();
        for kept in &mut order.kept {
            if let Some(last) = kept.last
                && kept.first <= up_to
                && let Some(segment) = kept.unsynced.take()
                // Synced while it was the active one: it may be removed at any time.
                && last > synced
            {
                last_ended = last;
                ended.push(segment);
            }
        }
        (ended, last_ended, order.active.clone())
    }
}

/// Syncs a segment all of whose records are written. Unmapped before it is synced: the system need not
/// take each page from the other threads' address space first (30 % of a flush's time, measured).
fn sync_ended(disk: &dyn Disk, dir: &Path, segment: Arc<Segment>) -> Result<()> {
    match disk.open(&segment_path(dir, segment.id), Access::Random) {
        Ok(file) => {
            drop(segment);
            file.sync()
        }
        Err(_) => segment.region.sync(segment.region.capacity_bytes()),
    }
}
