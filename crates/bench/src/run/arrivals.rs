//! An open loop: operations are due when they are due, whether or not the last one is done, and what
//! one took is counted from then. A stall so counts for all that arrive during it.
//!
//! Arrivals are a Poisson process: the gaps between them are exponential and know nothing of each
//! other. Several clients that each take their share of a rate are together one of the whole rate.
//!
//! How a client waits is in the processor time of the process, which an open loop so says nothing of; and
//! where others take the processor from it, its own lateness is in its latencies: measure on a quiet
//! machine.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use crate::random::Rng;

/// When operations are due.
#[derive(Debug)]
pub struct Arrivals {
    begun: Instant,
    due: Duration,
    rate_per_second: f64,
}

/// How to pass the time until the next is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Sleep until shortly before, then give way to others: a core for each client is not at hand.
    Sleeping,
    /// Look at the clock: the client has a core to itself, and its own lateness is no part of what
    /// is measured.
    Spinning,
}

impl Waiting {
    /// How `clients` wait that leave a core to the engine if they can.
    #[must_use]
    pub fn of(clients: usize) -> Waiting {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if clients < cores { Waiting::Spinning } else { Waiting::Sleeping }
    }
}

impl Arrivals {
    /// `rate_per_second` arrivals a second (above 0) from now on.
    #[must_use]
    pub fn begin(rate_per_second: f64) -> Arrivals {
        Arrivals { begun: Instant::now(), due: Duration::ZERO, rate_per_second }
    }

    /// When the next operation is due, from the beginning on; it need not be over.
    pub fn next(&mut self, rng: &mut Rng) -> Duration {
        self.due += Duration::from_secs_f64(-(1.0 - rng.unit()).ln() / self.rate_per_second);
        self.due
    }

    /// Waits for the operation that is due next, if it is not late already; returns when it was due.
    pub fn wait(&self, waiting: Waiting) -> Instant {
        let due = self.begun + self.due;
        match waiting {
            Waiting::Sleeping => sleep_until(due),
            Waiting::Spinning => {
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
            }
        }
        due
    }
}

/// Sleeps until shortly before `due`, then yields. Many clients that yield for long would take the processors from what is
/// measured.
fn sleep_until(due: Instant) {
    const EARLY: Duration = Duration::from_micros(50);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > EARLY {
            sleep_on_time(left - EARLY);
        } else {
            std::thread::yield_now();
        }
    }
}

/// Sleeps for so long, and some 15 us more (half of the times; 65 with the slack of 50 that the kernel's timers have otherwise).
fn sleep_on_time(time: Duration) {
    /// What the store waits for in this thread is as it is in any other.
    fn slack(ns: Option<NonZeroU64>) {
        // Where it is refused, or unknown, the sleep is later.
        #[cfg(target_os = "linux")]
        let _ = rustix::thread::set_current_timer_slack(ns);
        #[cfg(not(target_os = "linux"))]
        let _ = ns;
    }
    slack(NonZeroU64::new(1));
    std::thread::sleep(time);
    slack(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_exponential_and_come_at_the_rate() {
        let (mut arrivals, mut rng) = (Arrivals::begin(1e4), Rng::seeded(1));
        let (mut before, mut gaps) = (0.0, Vec::new());
        for _ in 0..100_000 {
            let due = arrivals.next(&mut rng).as_secs_f64();
            gaps.push(due - before);
            before = due;
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean * 1e4 - 1.0).abs() < 0.02, "{mean}");
        // Of an exponential, e^-2 are more than twice the mean, and the deviation is the mean.
        let long = gaps.iter().filter(|gap| **gap > 2.0 * mean).count() as f64 / gaps.len() as f64;
        assert!((long - (-2.0_f64).exp()).abs() < 0.01, "{long}");
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn what_is_due_is_waited_for_and_what_is_late_is_not() {
        for waiting in [Waiting::Sleeping, Waiting::Spinning] {
            let (mut arrivals, mut rng) = (Arrivals::begin(1e3), Rng::seeded(2));
            for _ in 0..20 {
                arrivals.next(&mut rng);
                let due = arrivals.wait(waiting);
                assert!(Instant::now() >= due);
            }
            let late =
                Arrivals { begun: Instant::now(), due: Duration::ZERO, rate_per_second: 1.0 };
            std::thread::sleep(Duration::from_millis(2));
            let due = late.wait(waiting);
            assert!(due.elapsed() >= Duration::from_millis(2));
        }
    }
}
