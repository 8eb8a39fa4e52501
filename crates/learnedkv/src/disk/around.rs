//! Whether reads go around the system's cache.
//!
//! A read through the system's cache needs a page to put it in. Where memory is short the system first has to take
//! one from somebody: that costs a sixth of the read's processor time (decision 28), and brings nothing where
//! the page is gone again before anybody asks for it. Then it is better to leave the system's cache to what it
//! still serves, and to keep what was read in our own.
//!
//! Memory is short where what was read, or written, is found gone ([`Around::lost`]) *and* fewer reads were served by
//! the system's cache than went to the device. A cache that is only being filled loses nothing, however
//! few it serves: nothing goes around it. After so many reads around it, the cache is tried again; each time that
//! memory is still short, for twice as many.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// So many losses must be seen before a judgement.
const LOSSES: u32 = 16;
/// So many reads go around: at least, and at most.
const LEAST: u64 = 1 << 16;
const MOST: u64 = 1 << 21;

/// How many reads were served so far, by whom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// By the system's cache.
    pub by_cache: u64,
    /// By the device, for all we know.
    pub by_device: u64,
}

/// What is known of the system's cache. Counts are imprecise among threads: no answer depends on them.
#[derive(Debug, Default)]
pub struct Around {
    /// So many more reads go around.
    left: AtomicU64,
    /// How many will next time.
    next: AtomicU64,
    /// Losses since the judgement before, and what was served then.
    losses: AtomicU32,
    by_cache: AtomicU64,
    by_device: AtomicU64,
}

impl Around {
    /// Whether one more read goes around. Counts it. `served` says what was up to now.
    pub fn goes(&self, served: impl FnOnce() -> Served) -> bool {
        let left = self.left.load(Relaxed);
        if left == 0 {
            return false;
        }
        self.left.store(left - 1, Relaxed);
        if left == 1 {
            self.begin(served());
        }
        true
    }

    /// Something that was in the system's cache is there no more.
    pub fn lost(&self, served: Served) {
        if self.left.load(Relaxed) > 0 || self.losses.fetch_add(1, Relaxed) + 1 < LOSSES {
            return;
        }
        let by_cache = served.by_cache.saturating_sub(self.by_cache.load(Relaxed));
        let by_device = served.by_device.saturating_sub(self.by_device.load(Relaxed));
        let next = self.next.load(Relaxed).max(LEAST);
        if by_cache < by_device {
            self.left.store(next, Relaxed);
            self.next.store((next * 2).min(MOST), Relaxed);
        } else {
            self.next.store(next / 2, Relaxed);
        }
        self.begin(served);
    }

    /// Counts from now on.
    fn begin(&self, served: Served) {
        self.losses.store(0, Relaxed);
        self.by_cache.store(served.by_cache, Relaxed);
        self.by_device.store(served.by_device, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a cache that served so many and left so many to the device.
    fn served(by_cache: u64, by_device: u64) -> Served {
        Served { by_cache, by_device }
    }

    fn lose(around: &Around, times: u32, served: Served) {
        (0..times).for_each(|_| around.lost(served));
    }

    #[test]
    fn reads_go_around_a_cache_that_loses_much_and_serves_little() {
        let around = Around::default();
        assert!(!around.goes(Served::default));
        lose(&around, LOSSES - 1, served(10, 100));
        assert!(!around.goes(Served::default), "a few may be chance");
        lose(&around, 1, served(10, 100));
        assert!((0..LEAST).all(|_| around.goes(Served::default)));
        assert!(!around.goes(Served::default), "it is tried again");
    }

    #[test]
    fn they_do_not_where_it_serves_more_than_the_device() {
        let around = Around::default();
        lose(&around, 10 * LOSSES, served(100, 100));
        assert!(!around.goes(Served::default));
    }

    /// Only what was served since the judgement before counts.
    #[test]
    fn what_was_long_ago_does_not_count() {
        let around = Around::default();
        lose(&around, LOSSES, served(10_000, 100));
        assert!(!around.goes(Served::default));
        lose(&around, LOSSES, served(10_010, 200));
        for read in 0..LEAST {
            assert!(around.goes(|| served(10_010, 200 + LEAST)), "read {read}");
        }
        lose(&around, LOSSES, served(10_510, 200 + LEAST + 100));
        assert!(!around.goes(Served::default), "what went around says nothing of the cache");
    }

    #[test]
    fn each_time_in_vain_it_is_tried_later() {
        let (around, mut before, mut read) = (Around::default(), 0, 0);
        for _ in 0..8 {
            read += 100;
            lose(&around, LOSSES, served(0, read));
            let mut count = 0;
            while around.goes(|| served(0, read)) {
                (count, read) = (count + 1, read + 1);
            }
            assert!(count == (2 * before).clamp(LEAST, MOST), "{count} after {before}");
            before = count;
        }
        assert_eq!(before, MOST);
    }
}
