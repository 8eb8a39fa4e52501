//! How many lookups of single keys there were, and what they made the disk do.
//!
//! They are counted by what answered, since that says what a lookup may cost: a settled key takes one request,
//! a settled value that stands apart two, and what is not settled as many as the runs that must be asked.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::memory::lines::Lines;

/// What answered a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// A memtable or a run, also by saying that the key was removed.
    #[default]
    Fresh,
    /// A block of the settled run.
    Block,
    /// The same, by a pointer, and the value that it leads to was read.
    Apart,
    /// Nothing: the key is not there, or what should have answered failed.
    Nothing,
}

const ANSWERS: usize = 4;
/// Lookups that filters ended for fewer tables than that say so by where they are counted.
const STOPS: usize = 4;

/// How many lookups there were of one kind, and the requests they made together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How many.
    pub lookups: u64,
    /// Their requests.
    pub requests: u64,
}

/// What the lookups of some threads came to. One that is answered in memory adds to one count mostly: each more would take a
/// twentieth of what such a lookup takes (decision 22).
#[derive(Debug, Default)]
struct Line {
    /// By the answer: those that did not ask the settled run, and those that did; of each by the tables for which filters ended it,
    /// but for those in `more_stops`.
    lookups: [[[AtomicU64; STOPS]; 2]; ANSWERS],
    requests: [AtomicU64; ANSWERS],
    /// Tables for which filters ended lookups that are counted as of no such table.
    more_stops: AtomicU64,
}

/// See the module page.
#[derive(Debug, Default)]
pub struct Lookups {
    lines: Lines<Line>,
}

impl Lookups {
    /// Counts a lookup: what answered it, whether it asked the settled run, for how many tables filters ended it, and the requests
    /// it made.
    pub fn count(&self, answer: Answer, asks_settled: bool, stops: u64, requests: u64) {
        let line = self.lines.own();
        let by_stops = &line.lookups[answer as usize][usize::from(asks_settled)];
        match by_stops.get(stops as usize) {
            Some(lookups) => lookups.fetch_add(1, Relaxed),
            None => {
                by_stops[0].fetch_add(1, Relaxed);
                line.more_stops.fetch_add(stops, Relaxed)
            }
        };
        if requests > 0 {
            line.requests[answer as usize].fetch_add(requests, Relaxed);
        }
    }

    /// How many there were.
    pub fn all(&self) -> u64 {
        self.sum(|line| added(line.lookups.as_flattened().as_flattened()))
    }

    /// Tables for which filters ended them.
    pub fn stops(&self) -> u64 {
        let told = |by_stops: &[AtomicU64; STOPS]| -> u64 {
            by_stops.iter().zip(0..).map(|(lookups, stops)| lookups.load(Relaxed) * stops).sum()
        };
        self.sum(|line| {
            line.lookups.as_flattened().iter().map(told).sum::<u64>()
                + line.more_stops.load(Relaxed)
        })
    }

    fn sum(&self, of: impl Fn(&Line) -> u64) -> u64 {
        self.lines.iter().map(of).sum()
    }

    /// Those that settled data answered from a block, and with a value kept apart; that fresh data answered; that
    /// found nothing.
    pub fn by_answer(&self) -> [Count; ANSWERS] {
        [Answer::Block, Answer::Apart, Answer::Fresh, Answer::Nothing].map(|answer| self.of(answer))
    }

    fn of(&self, answer: Answer) -> Count {
        let at = answer as usize;
        Count {
            lookups: self.sum(|line| added(line.lookups[at].as_flattened())),
            requests: self.sum(|line| line.requests[at].load(Relaxed)),
        }
    }

    /// How many asked the settled run.
    pub fn settled(&self) -> u64 {
        self.sum(|line| line.lookups.iter().map(|[_, settled]| added(settled)).sum())
    }
}

fn added(counts: &[AtomicU64]) -> u64 {
    counts.iter().map(|count| count.load(Relaxed)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREADS: u64 = 48;

    #[test]
    fn lookups_of_many_threads_are_all_counted() {
        const KINDS: [Answer; ANSWERS] =
            [Answer::Fresh, Answer::Block, Answer::Apart, Answer::Nothing];
        let lookups = Lookups::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let lookups = &lookups;
                let count = move |n: usize| {
                    lookups.count(
                        KINDS[n % ANSWERS],
                        n.is_multiple_of(8),
                        n as u64 % 10,
                        thread % 2 + (n % ANSWERS) as u64,
                    )
                };
                scope.spawn(move || (0..1000).for_each(count));
            }
        });
        let each = THREADS * 1000 / 4;
        for (kind, answer) in KINDS.into_iter().enumerate() {
            let requests = each / 2 + each * kind as u64;
            assert_eq!(lookups.of(answer), Count { lookups: each, requests }, "{answer:?}");
        }
        assert_eq!((lookups.settled(), lookups.all()), (each / 2, 4 * each));
        // From 0 to 9, as often each.
        assert_eq!(lookups.stops(), THREADS * 100 * 45);
    }

    #[test]
    fn a_lookup_that_asks_no_device_adds_to_one_count() {
        for (asks_settled, stops) in [(false, 0), (true, 1), (true, STOPS as u64 - 1)] {
            let lookups = Lookups::default();
            lookups.count(Answer::Nothing, asks_settled, stops, 0);
            let line = lookups.lines.own();
            let counts = line.lookups.as_flattened().as_flattened();
            let others = line.requests.iter().chain([&line.more_stops]);
            assert_eq!(counts.iter().chain(others).filter(|n| n.load(Relaxed) > 0).count(), 1);
            assert_eq!((lookups.all(), lookups.stops()), (1, stops));
        }
    }
}
