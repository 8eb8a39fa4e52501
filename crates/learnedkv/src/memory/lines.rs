//! What many threads write to all the time, on lines of memory of their own.
//!
//! A line of memory that several threads write to goes from core to core each time: that takes longer than all
//! else that a lookup in memory does. So of such things there are several; which of them is a thread's, the place of
//! its stack says. Threads may share one: what stands there is made for that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// More threads than that share lines.
const LINES: usize = 16;
/// Stacks are so far apart at least, as a power of two: 2 MiB.
const STACKS_APART: u32 = 21;
/// The golden ratio, as a fraction of 2^64: multiples of it are spread evenly, and so are multiples of these.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One for each thread, or a few threads.
#[derive(Debug, Default)]
pub struct Lines<T>([Line<T>; LINES]);

/// Two lines of 64 bytes: processors fetch them together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

/// A number below `of`, a power of two beyond one, by where this thread's stack is: mostly the same for one thread (a
/// deep call may have another), and mostly another for another.
pub fn place(of: usize) -> usize {
    let on_stack = 0u8;
    let stack = (std::ptr::from_ref(&on_stack).addr() >> STACKS_APART) as u64;
    (stack.wrapping_mul(GOLDEN) >> (64 - of.trailing_zeros())) as usize % of
}

impl<T> Lines<T> {
    /// That of this thread.
    pub fn own(&self) -> &T {
        &self.0[place(LINES)].0
    }

    /// Those of all.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|line| &line.0)
    }
}

/// A count that many threads add to.
pub type Tally = Lines<AtomicU64>;

impl Tally {
    /// Adds so many.
    pub fn add(&self, count: u64) {
        self.own().fetch_add(count, Relaxed);
    }

    /// Adds so many; how often this thread's count came to a multiple of `each` by that.
    pub fn passes(&self, count: u64, each: u64) -> u64 {
        let before = self.own().fetch_add(count, Relaxed);
        before.wrapping_add(count) / each - before / each
    }

    /// How many there are in all.
    pub fn sum(&self) -> u64 {
        self.iter().map(|count| count.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::{Barrier, Mutex};

    #[test]
    fn what_many_threads_add_is_all_counted() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..3 * LINES {
                scope.spawn(|| (0..1000).for_each(|_| tally.add(2)));
            }
        });
        assert_eq!(tally.sum(), 6000 * LINES as u64);
    }

    #[test]
    fn what_is_added_piece_by_piece_passes_as_many_multiples_as_all_of_it() {
        let tally = Tally::default();
        let passed: u64 = (0..1000).map(|piece| tally.passes(piece % 7, 64)).sum();
        assert_eq!((tally.passes(0, 64), passed), (0, tally.sum() / 64));
        assert_eq!(tally.passes(6400, 64), 100);
    }

    /// Whatever their stacks take: some programs give each thread 8 MiB, and these all had a fourth of the lines.
    #[test]
    fn threads_that_run_together_have_lines_of_their_own_mostly() {
        for stack_bytes in [2 << 20, 8 << 20] {
            let (barrier, places) = (Barrier::new(LINES), Mutex::new(BTreeSet::new()));
            std::thread::scope(|scope| {
                for _ in 0..LINES {
                    let thread = std::thread::Builder::new().stack_size(stack_bytes);
                    let noted = || {
                        assert_eq!(place(LINES), place(LINES));
                        places.lock().unwrap().insert(place(LINES));
                        barrier.wait();
                    };
                    thread.spawn_scoped(scope, noted).unwrap();
                }
            });
            let places = places.into_inner().unwrap();
            // By chance alone ten, and less than seven once in thousands of times.
            assert!(places.len() >= 7, "stacks of {stack_bytes} bytes: {places:?}");
        }
    }

    #[test]
    fn a_line_is_as_long_as_what_goes_from_core_to_core() {
        assert_eq!(size_of::<Tally>(), LINES * 128);
    }
}
