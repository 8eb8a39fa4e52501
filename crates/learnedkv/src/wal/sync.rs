//! Making commits durable: one sync at a time, for all who wait (group commit).
//!
//! A sync covers what it was asked for, and where that stands in the active segment all that was visible when
//! it began. Who comes while one goes on waits for its end and looks whether it covered him; if not, he or
//! another who waits makes the next, for all. So where everybody asks for what is visible, nobody waits for
//! more than the sync he came into and the one after it.
//!
//! Those whom one sync covered come back with their next commits soon after it, but not at once: a sync
//! that began at its end would cover one or two of them, and the rest would need another. So whoever
//! makes the next first waits for as many as wanted the one before, 100 us at most. Asleep: those he waits
//! for may need his processor. Who come as they please, and met by chance, are waited for in vain: where that
//! is so of one turn in four or more it is tried now and then only ([`Trust`]).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::segments::MOST_RECYCLED;
use super::{Log, Segment, lock};
use crate::error::{Error, Result};
use crate::format::entry::SequenceNumber;

/// A segment that has ended, and how much of it was reserved, bytes.
type Reserved = (Arc<Segment>, u64);

/// Whoever has the turn waits so long at most for others: about as long as a fast device takes for a sync.
const MOST: Duration = Duration::from_micros(100);

/// Whether somebody syncs, and who waits for his end. Not a mutex held meanwhile: who had it just now
/// takes that again before those who wait have woken, time after time.
#[derive(Debug)]
pub(super) struct Turns {
    now: Mutex<Now>,
    ended: Condvar,
    /// As many wait as whoever has the turn waits for.
    gathered: Condvar,
    most: Duration,
}

/// Whether it was worth it to wait for others, of late. One who came too late weighs as much as three who came.
#[derive(Debug, Clone, Copy)]
struct Trust {
    level: u32,
    /// So many turns more do not wait.
    resting: u32,
}

impl Trust {
    const MOST: u32 = 16;
    /// From here on turns wait; below, one of so many.
    const ENOUGH: u32 = 8;
    const ONE_OF: u32 = 16;

    /// Whether this turn waits.
    fn waits(&mut self) -> bool {
        if self.level >= Trust::ENOUGH {
            return true;
        }
        let is_tried = self.resting == 0;
        self.resting = if is_tried { Trust::ONE_OF - 1 } else { self.resting - 1 };
        is_tried
    }

    /// It was worth it, or in vain.
    fn note(&mut self, all_came: bool) {
        self.level = match all_came {
            true => (self.level + 1).min(Trust::MOST),
            false => self.level.saturating_sub(3),
        };
    }
}

impl Default for Trust {
    fn default() -> Trust {
        Trust { level: Trust::ENOUGH, resting: 0 }
    }
}

#[derive(Debug, Default)]
struct Now {
    taken: bool,
    /// How many came since the last turn ended, and wait; for so many whoever has the turn waits.
    waiting: usize,
    awaited: usize,
    /// How many turns have ended, and how many wanted the last one.
    ended: u64,
    crowd: usize,
    trust: Trust,
}

impl Default for Turns {
    fn default() -> Turns {
        let (ended, gathered) = (Condvar::new(), Condvar::new());
        Turns { now: Mutex::default(), ended, gathered, most: MOST }
    }
}

/// The turn to sync. Dropped, it is another's.
#[derive(Debug)]
struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut now = lock(&self.0.now);
        let (ended, waiting) = (now.ended + 1, now.waiting);
        *now = Now { ended, crowd: waiting + 1, trust: now.trust, ..Now::default() };
        drop(now);
        if waiting > 0 {
            self.0.ended.notify_all();
        }
    }
}

impl Turns {
    /// The turn, once nobody else has it; `None` once `is_covered`.
    fn take(&self, is_covered: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut now = lock(&self.now);
        let mut counted = None;
        while !is_covered() {
            if !now.taken {
                now.taken = true;
                drop(self.gather(now));
                return Some(Turn(self));
            }
            if counted != Some(now.ended) {
                now.waiting += 1;
                counted = Some(now.ended);
                if now.waiting == now.awaited {
                    self.gathered.notify_one();
                }
            }
            now = self.ended.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Waits a little until as many want the turn just taken as wanted the last one.
    fn gather<'a>(&self, mut now: MutexGuard<'a, Now>) -> MutexGuard<'a, Now> {
        let awaited = now.crowd.saturating_sub(1);
        if now.waiting >= awaited || !now.trust.waits() {
            return now;
        }
        now.awaited = awaited;
        let waits = |now: &mut Now| now.waiting < awaited;
        let waited = self.gathered.wait_timeout_while(now, self.most, waits);
        now = waited.unwrap_or_else(PoisonError::into_inner).0;
        now.awaited = 0;
        let all_came = now.waiting >= awaited;
        now.trust.note(all_came);
        now
    }

    /// How many wait for the turn that is taken to end.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.now).waiting
    }
}

impl Log {
    /// Makes every commit up to `up_to` durable, and with it all that is visible in the segment where it
    /// stands.
    ///
    /// # Errors
    /// Any error of the disk: the log is then broken, for what was not durable may be lost while
    /// the system thinks it clean.
    pub fn sync(&self, up_to: SequenceNumber) -> Result<()> {
        if self.synced() >= up_to {
            return Ok(());
        }
        let Some(_turn) = self.turns.take(|| self.synced() >= up_to) else {
            return Ok(()); // somebody else's sync covered it
        };
        self.check_whole()?;
        self.sync_in_turn(up_to)
    }

    /// [`Log::sync`] for whoever has the turn. What he found not to be synced may be in tables by now, and its
    /// segments gone.
    pub(super) fn sync_in_turn(&self, up_to: SequenceNumber) -> Result<()> {
        let (ended, last_ended, active) = self.take_ended(up_to);
        self.await_visible(up_to.max(last_ended))?;
        let mut target = last_ended;
        let synced = ended
            .into_iter()
            .try_for_each(|(segment, reserved_bytes)| segment.region.sync(reserved_bytes))
            .and_then(|()| {
                let Some(active) = active.filter(|_| target < up_to) else { return Ok(()) };
                let (last, end_bytes) = self.visible_within(&active);
                target = last;
                if end_bytes == 0 {
                    return Ok(()); // all of it is in tables
                }
                self.active_syncs.fetch_add(1, Ordering::Relaxed);
                active.syncs.fetch_add(1, Ordering::Relaxed);
                active.region.sync(end_bytes)
            });
        synced.map_err(Error::in_doubt).inspect_err(|e| self.break_log(e))?;
        if target > 0 {
            self.synced.fetch_max(target, Ordering::AcqRel);
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What is visible and stands in `segment` or before it, and where in it that ends at most. What
    /// was never reserved is not synced: its pages were made ready in memory, and would be written.
    fn visible_within(&self, segment: &Segment) -> (SequenceNumber, u64) {
        let visible = self.visible();
        let order = lock(&self.order);
        match order.kept.iter().find(|k| k.id == segment.id).map(|k| (k.last, k.reserved_bytes)) {
            Some((Some(last), reserved_bytes)) => (last.min(visible), reserved_bytes),
            Some((None, _)) => (visible, order.active_bytes),
            // It ended and was removed meanwhile: all of it is in tables.
            None => (self.synced(), 0),
        }
    }

    /// The segments, ended and not synced, that hold numbers up to `up_to`, each with how much of it was reserved, the last number in
    /// them, and the segment that is active now, if it begins by `up_to`: else other ended ones may stand
    /// before it, and syncing it would vouch for them. The ended ones count as synced from now on: if their
    /// sync fails, the log is broken.
    fn take_ended(
        &self,
        up_to: SequenceNumber,
    ) -> (Vec<Reserved>, SequenceNumber, Option<Arc<Segment>>) {
        let synced = self.synced();
        // Given up after the lock is.
        let mut unneeded = Vec::new();
        let mut order = lock(&self.order);
        let (mut last_ended, mut left) = (0, MOST_RECYCLED);
        let mut ended = Vec::new();
        for kept in &mut order.kept {
            // What was synced while it was the active one may leave the log at any time. Those that leave it
            // next are used again; the memory of the others is not needed.
            if kept.last.is_some_and(|last| last <= synced) {
                unneeded.extend(kept.segment.take_if(|_| left == 0));
                left = left.saturating_sub(1);
            }
            if let Some(last) = kept.last.filter(|last| *last > synced)
                && kept.first <= up_to
                && let Some(segment) = kept.segment.take()
            {
                if segment.synced_often {
                    // Where clients commit at once each ends so; it is used again as those that one client fills.
                    kept.segment = Some(segment.clone());
                }
                last_ended = last;
                ended.push((segment, kept.reserved_bytes));
            }
        }
        let begins_by = order.kept.last().is_some_and(|active| active.first <= up_to);
        (ended, last_ended, begins_by.then(|| order.active.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    /// Of whom two wanted the last turn, and the next waits so long.
    fn after_two(most: Duration) -> Turns {
        let turns = Turns { most, ..Turns::default() };
        *lock(&turns.now) = Now { crowd: 2, ..Now::default() };
        turns
    }

    /// Whoever came first had the turn at once, and whoever had wanted the last one too came too late for it.
    #[test]
    fn a_turn_waits_for_as_many_as_wanted_the_last() {
        let (turns, covered) = (after_two(Duration::from_secs(3600)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let turn = turns.take(|| false).unwrap();
                let waiting = turns.waiting();
                covered.store(true, Ordering::SeqCst);
                drop(turn);
                waiting
            });
            while !lock(&turns.now).taken {
                std::thread::yield_now();
            }
            scope.spawn(|| assert!(turns.take(|| covered.load(Ordering::SeqCst)).is_none()));
            assert_eq!(first.join().unwrap(), 1);
        });
    }

    #[test]
    fn a_turn_does_not_wait_long_for_those_who_stay_away() {
        for most in [Duration::ZERO, Duration::from_millis(1)] {
            let turns = after_two(most);
            drop(turns.take(|| false).unwrap());
            assert_eq!(lock(&turns.now).crowd, 1, "and not at all the next time");
            assert!(turns.take(|| true).is_none());
        }
    }

    /// Two who came as they pleased, and had met once, waited for each other for ever after: both took a third longer.
    #[test]
    fn whoever_waits_in_vain_waits_seldom_until_others_come_again() {
        let turns = after_two(Duration::from_micros(1));
        drop(turns.take(|| false).unwrap());
        assert!(lock(&turns.now).trust.level < Trust::ENOUGH, "the other did not come");
        let turns = after_two(Duration::from_secs(3600));
        lock(&turns.now).trust = Trust { level: 0, resting: 1 };
        drop(turns.take(|| false).unwrap()); // or the test lasts an hour
        let waits = |trust: &mut Trust| (0..160).filter(|_| trust.waits()).count();
        let mut trust = Trust { level: 0, resting: 0 };
        assert_eq!(waits(&mut trust), 10);
        (0..8).for_each(|_| trust.note(true));
        assert_eq!(waits(&mut trust), 160);
        trust.note(false);
        assert_eq!(waits(&mut trust), 10);
        (0..100).for_each(|_| trust.note(true));
        (0..2).for_each(|_| trust.note(false));
        assert_eq!(waits(&mut trust), 160, "now and then somebody is late");
    }

    /// Whoever waits is told, though a turn that nobody else wanted tells nobody: several threads take turns, each waiting
    /// for the others.
    #[test]
    fn nobody_waits_for_ever() {
        let (turns, left) = (Turns::default(), AtomicUsize::new(4000));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let seen = left.load(Ordering::SeqCst);
                        if seen == 0 {
                            break;
                        }
                        let Some(_turn) = turns.take(|| left.load(Ordering::SeqCst) < seen) else {
                            continue;
                        };
                        left.fetch_sub(1, Ordering::SeqCst);
                        // Others come while this one has the turn.
                        std::thread::yield_now();
                    }
                });
            }
        });
        let now = lock(&turns.now);
        assert!(!now.taken && now.ended >= 4000, "{now:?}");
    }
}
