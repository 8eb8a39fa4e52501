//! How many lookups of single keys there were, and what they made the disk do.
//!
//! Every lookup counts, the shortest too, and a count that several threads add to goes from core to core
//! each time. So there are several counts of each thing, on lines of memory of their own; to which of them a
//! thread adds, the place of its stack says.
//!
//! They are counted by what answered, since that says what a lookup may cost: a settled key takes one request,
//! a settled value that stands apart two, and what is not settled as many as the runs that must be asked.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// More threads than that share lines.
const LINES: usize = 16;
/// Stacks are so far apart at least, as a power of two: 2 MiB.
const STACKS_APART: u32 = 21;

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

/// How many lookups there were of one kind, and the requests they made together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How many.
    pub lookups: u64,
    /// Their requests.
    pub requests: u64,
}

/// What the lookups of some threads came to.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line {
    /// By the answer: those that did not ask the settled run, and those that did.
    lookups: [[AtomicU64; 2]; ANSWERS],
    requests: [AtomicU64; ANSWERS],
}

/// See the module page.
#[derive(Debug, Default)]
pub struct Lookups {
    lines: [Line; LINES],
}

impl Lookups {
    /// Counts a lookup: what answered it, whether it asked the settled run, and the requests it made.
    pub fn count(&self, answer: Answer, asks_settled: bool, requests: u64) {
        let on_stack = 0u8;
        let place = std::ptr::from_ref(&on_stack).addr() >> STACKS_APART;
        let line = &self.lines[place % LINES];
        line.lookups[answer as usize][usize::from(asks_settled)].fetch_add(1, Relaxed);
        if requests > 0 {
            line.requests[answer as usize].fetch_add(requests, Relaxed);
        }
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
            lookups: self.sum(|line| line.lookups[at].iter().map(|n| n.load(Relaxed)).sum()),
            requests: self.sum(|line| line.requests[at].load(Relaxed)),
        }
    }

    /// How many asked the settled run.
    pub fn settled(&self) -> u64 {
        self.sum(|line| line.lookups.iter().map(|[_, settled]| settled.load(Relaxed)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_of_many_threads_are_all_counted() {
        const KINDS: [Answer; ANSWERS] =
            [Answer::Fresh, Answer::Block, Answer::Apart, Answer::Nothing];
        let lookups = Lookups::default();
        std::thread::scope(|scope| {
            for thread in 0..3 * LINES as u64 {
                let lookups = &lookups;
                let count = move |n: usize| {
                    lookups.count(
                        KINDS[n % ANSWERS],
                        n.is_multiple_of(8),
                        thread % 2 + (n % ANSWERS) as u64,
                    )
                };
                scope.spawn(move || (0..1000).for_each(count));
            }
        });
        let each = 3 * LINES as u64 * 1000 / 4;
        for (kind, answer) in KINDS.into_iter().enumerate() {
            let requests = each / 2 + each * kind as u64;
            assert_eq!(lookups.of(answer), Count { lookups: each, requests }, "{answer:?}");
        }
        assert_eq!(lookups.settled(), each / 2);
    }

    #[test]
    fn a_line_is_no_longer_than_what_goes_from_core_to_core() {
        assert_eq!(size_of::<Line>(), 128);
    }
}
