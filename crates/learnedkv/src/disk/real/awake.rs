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
//! 4. Where it is worth a processor ([`Worth`]): of a few reads half are waited for asleep, and the times are compared. What
//!    awake is not a seventh quicker is waited for asleep from then on, until it is tried again: how much is won is the machine's.
//!
//! How many are waited for asleep before it is tried again grows fourfold each time that it was in vain, and begins anew
//! once it was not: at few after an answer that was late, which cost but a little of a processor; at many where somebody wanted that, who may have had
//! it for a slice of some milliseconds (as the rival RocksDB has its writers wait: `enable_write_thread_adaptive_yield`).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
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

/// So many reads of each kind are compared.
const PAIRS: u32 = 32;
/// 2^32 by the golden ratio: multiples of it lie evenly below and above the half, whichever are taken.
const GOLDEN: u32 = 0x9E37_79B9;
/// So many reads go by what was found: at least, and at most, where it is found again and again.
const LEAST_FOUND: u32 = 1 << 10;
const MOST_FOUND: u32 = 1 << 16;

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
    worth: Worth,
}

impl Default for Awake {
    fn default() -> Awake {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Awake::of(processors / 2, &NOW, Worth::default())
    }
}

impl Awake {
    /// Where at most so many read at a time, of those that `now` counts.
    fn of(most: usize, now: &'static AtomicUsize, worth: Worth) -> Awake {
        Awake { most, now, left: AtomicU32::new(0), next: AtomicU32::new(0), worth }
    }

    /// One with readers of its own, that it was found to be worth it for.
    #[cfg(test)]
    pub(super) fn alone(most: usize) -> Awake {
        let worth = Worth { left: AtomicU32::new(u32::MAX), ..Worth::default() };
        Awake::of(most, Box::leak(Box::default()), worth)
    }

    /// A small read begins.
    pub(super) fn begin(&self) -> Reading<'_> {
        Reading { awake: self, before: self.now.fetch_add(1, Relaxed), compared: Cell::new(None) }
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
    /// Since when, where its time is compared with another's.
    compared: Cell<Option<(Kind, Instant)>>,
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
        let (kind, is_compared) = self.awake.worth.next();
        if kind == Kind::Asleep && !is_compared {
            return None;
        }
        let begun = Instant::now();
        self.compared.set(is_compared.then_some((kind, begun)));
        (kind == Kind::Awake).then(|| Turn {
            awake: self.awake,
            is_on: Cell::new(true),
            begun,
            offered: Cell::new(begun),
        })
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.awake.now.fetch_sub(1, Relaxed);
        if let Some((kind, begun)) = self.compared.get() {
            self.awake.worth.took(kind, begun.elapsed());
        }
    }
}

/// How a read is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Awake,
    Asleep,
}

/// Whether waiting awake is worth a processor here: found by [`PAIRS`] reads asleep, each compared with the last one awake
/// before it, and looked into again fourfold as many reads later each time that the same was found. More than half of the pairs
/// must have it a seventh quicker: so one that took long by chance says as much as any.
#[derive(Debug)]
struct Worth {
    is_found: AtomicBool,
    /// So many more reads go by that.
    left: AtomicU32,
    /// So many will if it is found once more.
    next: AtomicU32,
    /// Reads that were compared so far. Half of them are awake, in no order that a program's own reads may have: where each
    /// second one is of a value, say.
    turn: AtomicU32,
    /// What the last one awake took, ns.
    awake_ns: AtomicU64,
    /// Pairs so far, and those in which it was quicker.
    pairs: AtomicU32,
    won: AtomicU32,
}

impl Default for Worth {
    fn default() -> Worth {
        Worth {
            is_found: AtomicBool::new(true),
            left: AtomicU32::new(0),
            next: AtomicU32::new(LEAST_FOUND),
            turn: AtomicU32::new(0),
            awake_ns: AtomicU64::new(0),
            pairs: AtomicU32::new(0),
            won: AtomicU32::new(0),
        }
    }
}

impl Worth {
    /// How the next read is waited for, and whether its time is to be told.
    fn next(&self) -> (Kind, bool) {
        let left = self.left.load(Relaxed);
        let is_compared = left == 0;
        let is_awake = if is_compared {
            self.turn.fetch_add(1, Relaxed).wrapping_mul(GOLDEN) < 1 << 31
        } else {
            self.left.store(left - 1, Relaxed);
            self.is_found.load(Relaxed)
        };
        (if is_awake { Kind::Awake } else { Kind::Asleep }, is_compared)
    }

    /// What a read took that is compared.
    fn took(&self, kind: Kind, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if kind == Kind::Awake {
            return self.awake_ns.store(ns, Relaxed);
        }
        if ns / 8 > self.awake_ns.load(Relaxed) / 7 {
            self.won.fetch_add(1, Relaxed);
        }
        // Where several read at once a pair may be of other two: it is one of many. Of those that end together one is the last.
        if self.pairs.fetch_add(1, Relaxed) + 1 != PAIRS {
            return;
        }
        self.pairs.store(0, Relaxed);
        let is_found = 2 * self.won.swap(0, Relaxed) > PAIRS;
        let is_again = self.is_found.swap(is_found, Relaxed) == is_found;
        let now = if is_again { self.next.load(Relaxed) } else { LEAST_FOUND };
        self.next.store((now * 4).min(MOST_FOUND), Relaxed);
        self.left.store(now, Relaxed);
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

    #[test]
    fn where_more_read_than_may_wait_awake_all_sleep_for_a_while() {
        let awake = Awake::alone(2);
        let reads = [awake.begin(), awake.begin(), awake.begin()];
        assert_eq!(reads.each_ref().map(|read| read.turn().is_some()), [true, true, false]);
        drop(reads);
        assert_eq!(asleep(&awake), AFTER_OTHERS);
        assert!(Awake::alone(0).begin().turn().is_none(), "one processor");
    }

    /// A second reader had the first wait awake for nothing: together they were no faster, for thrice the processor time.
    #[test]
    fn a_read_that_sleeps_counts_until_it_is_over() {
        let awake = Awake::alone(1);
        let (one, other) = (awake.begin(), awake.begin());
        assert!(one.turn().is_some() && other.turn().is_none());
        drop(one);
        (0..2 * AFTER_OTHERS).for_each(|_| assert!(awake.begin().turn().is_none()));
        drop(other);
        assert_eq!(asleep(&awake), AFTER_OTHERS);
    }

    #[test]
    fn disks_of_one_process_share_its_processors() {
        let awake = Awake::alone(2);
        let other = Awake { now: awake.now, ..Awake::alone(2) };
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
        let (awake, mut before) = (Awake::alone(1), 0);
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

    /// Gives `worth` as many reads as it compares, each of which takes as long as `ns` says.
    fn compare(worth: &Worth, mut ns: impl FnMut(Kind) -> u64) {
        while worth.left.load(Relaxed) == 0 {
            let (kind, is_compared) = worth.next();
            assert!(is_compared);
            worth.took(kind, Duration::from_nanos(ns(kind)));
        }
    }

    /// How many reads go by what was found, and how.
    fn found(worth: &Worth) -> (u32, Kind) {
        let count = worth.left.load(Relaxed);
        let kinds: Vec<_> = (0..count).map(|_| worth.next()).collect();
        assert!(kinds.iter().all(|kind| *kind == (kinds[0].0, false)));
        (count, kinds[0].0)
    }

    fn by_kind(awake_ns: u64, asleep_ns: u64) -> impl FnMut(Kind) -> u64 {
        move |kind| if kind == Kind::Awake { awake_ns } else { asleep_ns }
    }

    /// On one machine a get takes 39 us for 55, on another 27 for 30: there a processor was kept busy for a tenth.
    #[test]
    fn who_gains_little_by_it_sleeps_and_tries_again_more_and_more_seldom() {
        let worth = Worth::default();
        let mut expected = LEAST_FOUND;
        for _ in 0..8 {
            compare(&worth, by_kind(27_000, 30_000));
            assert_eq!(found(&worth), (expected, Kind::Asleep));
            expected = (expected * 4).min(MOST_FOUND);
        }
        assert_eq!(expected, MOST_FOUND);
        compare(&worth, by_kind(39_000, 55_000));
        assert_eq!(found(&worth), (LEAST_FOUND, Kind::Awake), "the machine became another one");
    }

    /// Of pairs in which now one, now the other took long, more than half must be won.
    #[test]
    fn a_read_that_took_long_by_chance_is_one_of_many() {
        for (of_five, expected) in [(1, Kind::Asleep), (4, Kind::Awake)] {
            let (worth, mut read) = (Worth::default(), 0);
            compare(&worth, |kind| {
                read += 1;
                match kind {
                    Kind::Asleep => 55_000,
                    Kind::Awake if read % 5 < of_five => 39_000,
                    Kind::Awake => 9_000_000_000,
                }
            });
            assert_eq!(found(&worth).1, expected, "{of_five} of five");
        }
    }

    /// Each get made a short read and a long one: were every other read awake, these would be compared with those.
    #[test]
    fn reads_of_two_kinds_in_turn_say_what_reads_of_one_say() {
        for (gain, expected) in [(0.7, Kind::Awake), (0.95, Kind::Asleep)] {
            for first in 0..2 {
                let (worth, mut read) = (Worth::default(), first);
                compare(&worth, |kind| {
                    read += 1;
                    let asleep_ns = if read % 2 == 0 { 40_000.0 } else { 90_000.0 };
                    (asleep_ns * if kind == Kind::Awake { gain } else { 1.0 }) as u64
                });
                assert_eq!(found(&worth).1, expected, "{gain} {first}");
            }
        }
    }

    /// The times are those of whole reads, and only where they are compared.
    #[test]
    fn reads_of_a_disk_are_compared_before_they_are_believed() {
        let awake = Awake { worth: Worth::default(), ..Awake::alone(1) };
        let mut reads = [0, 0];
        while awake.worth.left.load(Relaxed) == 0 {
            let reading = awake.begin();
            let is_awake = reading.turn().is_some();
            drop(reading);
            reads[usize::from(is_awake)] += 1;
            // Each of those awake is noted to have taken for ever.
            assert_eq!(awake.worth.awake_ns.swap(u64::MAX, Relaxed) < u64::MAX, is_awake);
        }
        assert!(reads[0] == PAIRS && reads[1] >= PAIRS / 2, "{reads:?}");
        assert!(asleep(&awake) >= LEAST_FOUND);
    }
}
