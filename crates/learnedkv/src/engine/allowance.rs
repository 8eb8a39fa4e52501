//! How fast merges, sweeps and compactions may write: [`crate::Builder::background_bytes_per_s`].
//!
//! A bucket of tokens that may be overdrawn by a step: what a job writes in one is paid for afterwards, by all of them, in time
//! in which none begins another. So what they write together is what was allowed and a step of each at most (a
//! MiB, or the longest value that passes the log), over any time. Tokens that nobody took are not kept: after a rest they
//! write no faster.
//!
//! Nothing lifts it but the ballast's being given up ([`super::ballast`]), when they are what makes room; what they write then
//! is not paid for later either. Writers who are faster than that wait for space, at the price of the moment
//! ([`super::pace`]), down to 100 kB a second each, mostly: where that is more than what is allowed settles, debt grows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Engine;
use crate::executor::Step;

const NS_PER_S: u128 = 1_000_000_000;

/// What background work may write. See the module page.
#[derive(Debug)]
pub struct Allowance {
    bytes_per_s: Option<u64>,
    /// When what was written is paid for: nanoseconds of the executor's clock.
    paid_at: AtomicU64,
}

impl Allowance {
    /// So many bytes a second; `None`: as fast as may be.
    pub fn new(bytes_per_s: Option<u64>) -> Allowance {
        Allowance { bytes_per_s, paid_at: AtomicU64::new(0) }
    }

    /// Bytes were written at `now`.
    fn spend(&self, now: Duration, bytes: u64) {
        let Some(rate) = self.bytes_per_s else { return };
        let cost = u128::from(bytes) * NS_PER_S / u128::from(rate.max(1));
        let (cost, now) = (u64::try_from(cost).unwrap_or(u64::MAX), nanoseconds(now));
        let later = |paid_at: u64| Some(paid_at.max(now).saturating_add(cost));
        let _ = self.paid_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// How many bytes a second it lets be put, where it took `written` ones to settle `put` that were put.
    pub(super) fn most(&self, put: u64, written: u64) -> u64 {
        let most = |rate: u64| (u128::from(rate) * u128::from(put)).checked_div(written.into());
        let most = self.bytes_per_s.and_then(most).unwrap_or(u128::MAX);
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// When the next step may begin, if not `now`.
    fn due(&self, now: Duration) -> Option<Duration> {
        let paid_at = Duration::from_nanos(self.paid_at.load(Ordering::Relaxed));
        (paid_at > now).then_some(paid_at)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Engine {
    /// Counts what a merge, a sweep or a compaction wrote.
    pub fn spend_allowance(&self, bytes: u64) {
        if !self.ballast.is_given_up() {
            self.allowance.spend(self.executor.now(), bytes);
        }
    }

    /// What a job that is to write says instead, where others of its kind or itself have written too much for now.
    pub fn wait_for_allowance(&self) -> Option<Step> {
        let due = self.allowance.due(self.executor.now())?;
        (!self.ballast.is_given_up()).then_some(Step::WaitUntil(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_was_written_is_paid_for_in_time() {
        let allowance = Allowance::new(Some(1_000_000));
        assert_eq!(allowance.due(Duration::ZERO), None);
        allowance.spend(5 * MS, 2_000);
        assert_eq!(allowance.due(5 * MS), Some(7 * MS));
        allowance.spend(5 * MS, 1_000);
        assert_eq!(allowance.due(6 * MS), Some(8 * MS), "for both");
        assert_eq!(allowance.due(8 * MS), None);
        allowance.spend(100 * MS, 1_000);
        assert_eq!(allowance.due(100 * MS), Some(101 * MS), "a rest is no credit");
    }

    #[test]
    fn the_slowest_rate_and_the_most_bytes_are_no_overflow() {
        let allowance = Allowance::new(Some(1));
        allowance.spend(Duration::MAX, u64::MAX);
        allowance.spend(MS, u64::MAX);
        assert!(allowance.due(MS).is_some_and(|due| due > 1000 * MS));
        assert_eq!(allowance.most(u64::MAX, 0), u64::MAX, "not known");
        assert_eq!(Allowance::new(Some(300)).most(1_000_000, 3_000_000), 100);
        let unlimited = Allowance::new(None);
        assert_eq!(unlimited.most(1, 1), u64::MAX);
        unlimited.spend(MS, u64::MAX);
        assert_eq!(unlimited.due(MS), None);
    }
}
