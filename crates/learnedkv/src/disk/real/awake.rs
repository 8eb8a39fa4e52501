//! Waiting for the device awake.
//!
//! A device that answers in 40 us is waited for by going to sleep and being woken, which takes as long as a third of that where the
//! processor itself falls asleep meanwhile (a virtual one most of all). Whoever looks for the answer all the while has it sooner, and
//! keeps a processor busy that would have rested. So it is done only where that costs nobody else anything:
//!
//! 1. Where at most half as many read at a time as the process may use processors, whatever databases it has; by none where it has
//!    one. Where more read, those that come sleep: one of two on two processors was waited for awake for nothing (decision 69).
//! 2. Every [`YIELD_EVERY`] the processor is offered to others. Was it taken, somebody wants it: the read is waited for
//!    asleep, and so are the next ones.
//! 3. Not for longer than [`MOST`]: then the device is slow, and the next few reads are waited for asleep too.
//!
//! How many are waited for asleep before it is tried again grows fourfold each time that it was in vain, and begins anew
//! once it was not: at few after an answer that was late, which cost but a little of a processor; at many where somebody wanted that, who may have had
//! it for a slice of some milliseconds (as the rival RocksDB has its writers wait: `enable_write_thread_adaptive_yield`).

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The processor is offered to others so often.
const YIELD_EVERY: Duration = Duration::from_micros(25);
/// Who is away for longer after such an offer was not alone: the kernel's own work between two instructions is shorter.
const TAKEN: Duration = Duration::from_micros(100);
/// A wait is so long at most.
const MOST: Duration = Duration::from_micros(150);
/// So many reads are waited for asleep after one that was in vain: at least, since the device was late, or somebody wanted
/// the processor, and at most.
const LEAST_LATE: u32 = 1 << 4;
const LEAST_TAKEN: u32 = 1 << 8;
const MOST_ASLEEP: u32 = 1 << 16;
/// And so many after one that went on beside too many others: these come again, if not at the same time.
const AFTER_OTHERS: u32 = 1 << 5;

/// How many small reads of the process go on.
static NOW: AtomicUsize = AtomicUsize::new(0);

/// Who waits awake, of all readers of a disk. Counts are imprecise among threads: no answer depends on them.
#[derive(Debug)]
pub(super) struct Awake {
    /// Where no more than so many read at a time.
    most: usize,
    now: &'static AtomicUsize,
    /// So many more reads are waited for asleep.
    left: AtomicU32,
    /// How many will be at least after the next that is in vain.
    next: AtomicU32,
}

impl Default for Awake {
    fn default() -> Awake {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Awake::of(processors / 2, &NOW)
    }
}

impl Awake {
    /// Where at most so many read at a time, of those that `now` counts.
    pub(super) fn of(most: usize, now: &'static AtomicUsize) -> Awake {
        Awake { most, now, left: AtomicU32::new(0), next: AtomicU32::new(0) }
    }

    /// A small read begins.
    pub(super) fn begin(&self) -> Reading<'_> {
        Reading { awake: self, before: self.now.fetch_add(1, Relaxed) }
    }

    /// It was in vain: so many at least are waited for asleep.
    fn rest(&self, least: u32) {
        let next = self.next.load(Relaxed).max(least);
        self.left.store(next, Relaxed);
        self.next.store((next * 4).min(MOST_ASLEEP), Relaxed);
    }

    /// Nothing came of a read, or not enough: it is done once more in another way, which is not to be so each time.
    pub(super) fn fail(&self) {
        self.rest(LEAST_LATE);
    }
}

/// A small read, counted until it is over, however it is waited for.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    awake: &'a Awake,
    /// So many went on when it began.
    before: usize,
}

impl<'a> Reading<'a> {
    /// A turn to wait awake for it, if there is one.
    pub(super) fn turn(&self) -> Option<Turn<'a>> {
        let left = self.awake.left.load(Relaxed);
        if self.before >= self.awake.most {
            if left < AFTER_OTHERS {
                self.awake.left.store(AFTER_OTHERS, Relaxed);
            }
            return None;
        }
        if left > 0 {
            self.awake.left.store(left - 1, Relaxed);
            return None;
        }
        let begun = Instant::now();
        Some(Turn { awake: self.awake, is_on: Cell::new(true), begun, offered: Cell::new(begun) })
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.awake.now.fetch_sub(1, Relaxed);
    }
}

/// One who waits awake, for one read.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    awake: &'a Awake,
    is_on: Cell<bool>,
    begun: Instant,
    /// When the processor was offered to others.
    offered: Cell<Instant>,
}

impl Turn<'_> {
    /// Whether it is waited awake still.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Whether the wait goes on awake. Offers the processor to others now and then.
    pub(super) fn goes_on(&self) -> bool {
        if !self.is_on() {
            return false;
        }
        let mut now = Instant::now();
        let mut is_taken = false;
        if now - self.offered.get() >= YIELD_EVERY {
            std::thread::yield_now();
            let back = Instant::now();
            is_taken = back - now > TAKEN;
            now = back;
            self.offered.set(now);
        }
        if is_taken || now - self.begun > MOST {
            self.is_on.set(false);
            self.awake.rest(if is_taken { LEAST_TAKEN } else { LEAST_LATE });
        }
        self.is_on.get()
    }

    /// What was waited for came.
    pub(super) fn end(&self) {
        self.awake.next.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(most: usize) -> Awake {
        Awake::of(most, Box::leak(Box::default()))
    }

    #[test]
    fn where_more_read_than_may_wait_awake_all_sleep_for_a_while() {
        let awake = fresh(2);
        let reads = [awake.begin(), awake.begin(), awake.begin()];
        assert_eq!(reads.each_ref().map(|read| read.turn().is_some()), [true, true, false]);
        drop(reads);
        assert_eq!(asleep(&awake), AFTER_OTHERS);
        assert!(fresh(0).begin().turn().is_none(), "one processor");
    }

    /// A second reader had the first wait awake for nothing: together they were no faster, for thrice the processor time.
    #[test]
    fn a_read_that_sleeps_counts_until_it_is_over() {
        let awake = fresh(1);
        let (one, other) = (awake.begin(), awake.begin());
        assert!(one.turn().is_some() && other.turn().is_none());
        drop(one);
        (0..2 * AFTER_OTHERS).for_each(|_| assert!(awake.begin().turn().is_none()));
        drop(other);
        assert_eq!(asleep(&awake), AFTER_OTHERS);
    }

    #[test]
    fn disks_of_one_process_share_its_processors() {
        let awake = fresh(2);
        let other = Awake::of(2, awake.now);
        let _reads = (awake.begin(), other.begin());
        assert!(awake.begin().turn().is_none() && other.begin().turn().is_none());
    }

    /// How many are waited for asleep now.
    fn asleep(awake: &Awake) -> u32 {
        (0..).take_while(|_| awake.begin().turn().is_none()).count() as u32
    }

    /// It is tried again, later each time; and soon once it was not in vain.
    #[test]
    fn who_waited_in_vain_sleeps_the_next_times() {
        let (awake, mut before) = (fresh(1), 0);
        for _ in 0..16 {
            let turn = awake.begin().turn().unwrap();
            assert!(turn.is_on());
            assert!(std::iter::repeat_with(|| turn.goes_on()).any(|goes_on| !goes_on), "for ever");
            assert!(!turn.is_on() && !turn.goes_on());
            let now = asleep(&awake);
            // Where others had the processor meanwhile it is more.
            assert!(now >= (4 * before).clamp(LEAST_LATE, MOST_ASLEEP), "{now} after {before}");
            before = now;
        }
        assert_eq!(before, MOST_ASLEEP);
        for least in [LEAST_LATE, LEAST_TAKEN] {
            awake.begin().turn().unwrap().end();
            awake.rest(least);
            assert_eq!(asleep(&awake), least);
        }
    }
}
