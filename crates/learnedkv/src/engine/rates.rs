//! How fast a store can be written to, as background work went of late.
//!
//! A rate is what was put between two moments, over the time in which such work was under way between them
//! ([`super::busy`]): that is how fast it would go if the work had no rest. Moments are where a piece of work ended: a flush,
//! for bursts; a sweep, a compaction or a rewriting, for what can be put for ever, since what a sweep settles is paid for only at
//! its end. What is not settled yet counts as not put.
//!
//! It looks back on [`FLUSHING`] and [`SETTLING`] of such time, to the end of the piece before that; on all since the open
//! while there was less. It is the work's own time: a rest makes nothing old, and where the clock is simulated a run replays.
//! A sweep that goes worse than those before it is seen before it ends: with all that it took from older data as settled,
//! which is the best that can be said of it, the rate is lower already.
//!
//! Of levels nobody says which bytes have come to rest: what is put goes down level by level for long after. So where a
//! keyspace has levels, and where nothing was put in the time looked back on, what counts as put is what work has written
//! in that time, at as many bytes written for one put as it took since the open.
//!
//! What settles shares processors and device with flushes. So the time in which either was under way is what settling
//! takes: where both go on at once it is no longer than for one of them, where they take turns it is the sum. What writers
//! take themselves nobody measures.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Engine, lock};

/// So much time of flushes is looked back on at least.
const FLUSHING: Duration = Duration::from_secs(5);
/// So much time of settling and flushes.
const SETTLING: Duration = Duration::from_secs(30);
/// Ends nearer to one another than such a part of that are one.
const PARTS: u32 = 16;

/// What had been done by a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Moment {
    busy: Duration,
    put: u64,
    written: u64,
}

impl Moment {
    /// What was done from `before` on.
    fn since(self, before: Moment) -> Moment {
        Moment {
            busy: self.busy.saturating_sub(before.busy),
            put: self.put.saturating_sub(before.put),
            written: self.written.saturating_sub(before.written),
        }
    }

    /// The same work, if a byte put took as much of it as in `all`.
    fn at_the_price_of(self, all: Moment) -> Moment {
        let put = (u128::from(self.written) * u128::from(all.put)).checked_div(all.written.into());
        Moment { put: put.map_or(0, |put| u64::try_from(put).unwrap_or(u64::MAX)), ..self }
    }

    /// Bytes a second, if anything was put.
    fn rate(self) -> Option<u64> {
        let rate = (u128::from(self.put) * 1_000_000_000).checked_div(self.busy.as_nanos())?;
        (rate > 0).then(|| u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// Where pieces of work of a kind ended, of late: the first and the last of them, and some between. At most
/// [`PARTS`] and a few.
#[derive(Debug, Default)]
pub struct Ends(Mutex<VecDeque<Moment>>);

impl Ends {
    /// A piece of work ended now; so much of its time is looked back on.
    fn note(&self, now: Moment, window: Duration) {
        let mut ends = lock(&self.0);
        if ends.is_empty() {
            // The open.
            ends.push_back(Moment::default());
        }
        // The open, and the end before the last, stay: the last one alone is replaced.
        let before = ends.len().checked_sub(2).and_then(|at| ends.get(at));
        if before.is_some_and(|before| now.since(*before).busy < window / PARTS) {
            ends.pop_back();
        }
        ends.push_back(now);
        while ends.get(1).is_some_and(|next| now.since(*next).busy >= window) {
            ends.pop_front();
        }
    }

    /// What was done in the time looked back on: up to the last end, if there was one; and up to now.
    fn spans(&self, now: Moment) -> [Option<Moment>; 2] {
        let ends = lock(&self.0);
        let first = ends.front().copied().unwrap_or_default();
        let last = ends.back().filter(|_| ends.len() > 1);
        [last.map(|last| last.since(first)), Some(now.since(first))]
    }
}

impl Engine {
    /// Does a part of a flush.
    pub fn flushing<T>(&self, work: impl FnOnce() -> T) -> T {
        self.timed(&self.metrics.background, || self.timed(&self.metrics.flushing, work))
    }

    /// Does a part of what merges, settles and compacts.
    pub fn settling<T>(&self, work: impl FnOnce() -> T) -> T {
        self.timed(&self.metrics.background, || self.timed(&self.metrics.settling, work))
    }

    /// Counts a flush that has ended, of so many bytes of keys and values put.
    pub fn note_flush(&self, put_bytes: u64) {
        self.metrics.flushes.fetch_add(1, Relaxed);
        self.metrics.flushed_put_bytes.fetch_add(put_bytes, Relaxed);
        self.metrics.flush_ends.note(self.flushed(), FLUSHING);
    }

    /// Counts a sweep that has ended.
    pub fn note_sweep(&self) {
        self.metrics.sweeps.fetch_add(1, Relaxed);
        self.note_settled();
    }

    /// What merges, settles and compacts has come to an end of something.
    pub fn note_settled(&self) {
        self.metrics.settle_ends.note(self.settled(), SETTLING);
    }

    fn flushed(&self) -> Moment {
        let busy = self.metrics.flushing.until(self.executor.now());
        Moment { busy, put: self.metrics.flushed_put_bytes.load(Relaxed), written: 0 }
    }

    fn settled(&self) -> Moment {
        let (metrics, view) = (&self.metrics, self.view());
        let unsettled = view.keyspaces.fresh_bytes();
        let written = [&metrics.merged_bytes, &metrics.swept_bytes, &metrics.compacted_bytes];
        Moment {
            busy: metrics.background.until(self.executor.now()),
            put: metrics.put_bytes.load(Relaxed).saturating_sub(unsettled),
            written: written.iter().map(|bytes| bytes.load(Relaxed)).sum(),
        }
    }

    /// How many bytes a second can be put for a short time: as fast as flushes were. 0 before there was one.
    pub fn burst(&self) -> u64 {
        let [to_last_end, _] = self.metrics.flush_ends.spans(self.flushed());
        to_last_end.and_then(Moment::rate).unwrap_or(0)
    }

    /// How many bytes a second can be put for ever, at most: as fast as what merges, sweeps and compacts was, or may be.
    /// 0 before there was such work.
    pub fn sustainable(&self) -> u64 {
        if self.metrics.settling.total().is_zero() {
            return 0;
        }
        let has_levels = self.view().keyspaces.have_levels();
        let now = self.settled();
        let spans =
            self.metrics.settle_ends.spans(now).into_iter().flatten().map(|span| {
                if has_levels || span.put == 0 { span.at_the_price_of(now) } else { span }
            });
        let rates = spans
            .filter_map(|span| Some(span.rate()?.min(self.allowance.most(span.put, span.written))));
        rates.min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(16);

    fn at(seconds: u64, put: u64) -> Moment {
        Moment { busy: Duration::from_secs(seconds), put, written: 2 * put }
    }

    fn rates(ends: &Ends, now: Moment) -> [Option<u64>; 2] {
        ends.spans(now).map(|span| span.and_then(Moment::rate))
    }

    #[test]
    fn all_counts_while_there_is_little_and_then_what_is_late() {
        let ends = Ends::default();
        assert_eq!(rates(&ends, at(0, 0)), [None, None], "nothing was done");
        assert_eq!(rates(&ends, at(2, 20)), [None, Some(10)]);
        ends.note(at(10, 1000), WINDOW);
        assert_eq!(rates(&ends, at(20, 1000)), [Some(100), Some(50)]);
        // The open is no older than that yet, counted from the last end.
        ends.note(at(15, 1005), WINDOW);
        assert_eq!(rates(&ends, at(15, 1005))[0], Some(67));
        ends.note(at(26, 1016), WINDOW);
        assert_eq!(rates(&ends, at(26, 1016)), [Some(1), Some(1)], "slow since the first end");
        ends.note(at(100, 75_016), WINDOW);
        assert_eq!(
            rates(&ends, at(100, 75_016))[0],
            Some(1000),
            "one that is longer than all that"
        );
    }

    #[test]
    fn however_many_ends_there_are_few_are_kept_and_span_the_time() {
        let ends = Ends::default();
        for ms in 1..100_000u64 {
            let busy = Duration::from_millis(ms);
            ends.note(Moment { busy, put: ms, written: 0 }, WINDOW);
            assert!(lock(&ends.0).len() <= PARTS as usize + 3);
        }
        let now = Moment { busy: Duration::from_secs(100), put: 100_000, written: 0 };
        let [span, _] = ends.spans(now);
        let busy = span.unwrap().busy;
        assert!(busy >= WINDOW && busy <= WINDOW + WINDOW / PARTS * 2, "{busy:?}");
    }

    #[test]
    fn work_for_what_was_put_before_is_worth_what_it_took_since_the_open() {
        let of = |busy, put, written| Moment { busy: Duration::from_secs(busy), put, written };
        let (span, all) = (of(10, 0, 500), of(100, 1000, 5000));
        assert_eq!(span.at_the_price_of(all).rate(), Some(10));
        assert_eq!(span.at_the_price_of(of(100, 1000, 0)).rate(), None, "nothing was written");
        let most = of(1, 0, u64::MAX).at_the_price_of(of(1, u64::MAX, 1));
        assert_eq!(most.put, u64::MAX);
    }

    #[test]
    fn what_is_less_than_before_is_nothing() {
        let ends = Ends::default();
        ends.note(at(20, 1000), WINDOW);
        ends.note(at(40, 1000), WINDOW);
        assert_eq!(rates(&ends, at(50, 900)), [None, None], "more is unsettled again");
    }
}
