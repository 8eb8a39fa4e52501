//! How many lookups of single keys there were, and what they made the disk do.
//!
//! Every lookup counts, the shortest too, and a count that several threads add to goes from core to core
//! each time. So there are several counts of each thing, on lines of memory of their own; to which of them a
//! thread adds, the place of its stack says.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// More threads than that share lines.
const LINES: usize = 16;
/// Stacks are so far apart at least, as a power of two: 2 MiB.
const STACKS_APART: u32 = 21;

/// What the lookups of some threads came to.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line {
    fresh: AtomicU64,
    settled: AtomicU64,
    requests: AtomicU64,
}

/// See the module page.
#[derive(Debug, Default)]
pub struct Lookups {
    lines: [Line; LINES],
}

impl Lookups {
    /// Counts a lookup: whether it asked the settled run, and the requests it made.
    pub fn count(&self, is_settled: bool, requests: u64) {
        let on_stack = 0u8;
        let place = std::ptr::from_ref(&on_stack).addr() >> STACKS_APART;
        let line = &self.lines[place % LINES];
        let lookups = if is_settled { &line.settled } else { &line.fresh };
        lookups.fetch_add(1, Relaxed);
        if requests > 0 {
            line.requests.fetch_add(requests, Relaxed);
        }
    }

    fn sum(&self, of: impl Fn(&Line) -> &AtomicU64) -> u64 {
        self.lines.iter().map(|line| of(line).load(Relaxed)).sum()
    }

    /// How many there were.
    pub fn all(&self) -> u64 {
        self.sum(|line| &line.fresh) + self.settled()
    }

    /// How many of them asked the settled run.
    pub fn settled(&self) -> u64 {
        self.sum(|line| &line.settled)
    }

    /// How many requests they made.
    pub fn requests(&self) -> u64 {
        self.sum(|line| &line.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_of_many_threads_are_all_counted() {
        let lookups = Lookups::default();
        std::thread::scope(|scope| {
            for thread in 0..3 * LINES as u64 {
                let lookups = &lookups;
                scope.spawn(move || (0..1000).for_each(|n| lookups.count(n % 4 == 0, thread % 2)));
            }
        });
        let all = 3 * LINES as u64 * 1000;
        let counted = (lookups.all(), lookups.settled(), lookups.requests());
        assert_eq!(counted, (all, all / 4, all / 2));
    }
}
