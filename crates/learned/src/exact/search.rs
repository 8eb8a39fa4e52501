//! Searching sorted numbers: by halves, or outwards from where a line says that it will be.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::monotone::bits::bits_of;

/// How many of the first `count` numbers a predicate holds for that holds for a beginning of them: by halves. The
/// predicate is called in one place, so that it is compiled into the loop.
#[inline]
pub(super) fn count_while(count: u64, holds: impl Fn(u64) -> bool) -> u64 {
    count_from(None, count, holds)
}

/// The same from a guess outwards, in steps that double until the end lies between two of them, then by halves
/// (exponential search: Bentley and Yao, 1976). It asks [`most_looks`] times at most, by how far off the guess is. Fewer looks are
/// what counts: each waits for the one before, or for a branch that no processor foresees. Without a guess it halves.
#[inline]
pub(super) fn count_from(guess: Option<u64>, count: u64, holds: impl Fn(u64) -> bool) -> u64 {
    // It holds below `low`, and from `high` on for none.
    let (mut low, mut high) = (0, count);
    let mut at = guess.unwrap_or(count / 2).min(count.saturating_sub(1));
    let mut step = 1_u64;
    while low < high {
        if holds(at) {
            low = at + 1;
        } else {
            high = at;
        }
        at = if guess.is_some() && high == count {
            at.saturating_add(step).min(count - 1)
        } else if guess.is_some() && low == 0 {
            high.saturating_sub(step)
        } else {
            low + (high - low) / 2
        };
        step = step.saturating_mul(2);
    }
    low
}

/// How often [`count_from`] asks at most where the guess is so many numbers off.
fn most_looks(off: u64) -> u64 {
    2 * u64::from(bits_of(off)) + 2
}

/// Says about where among sorted numbers another one stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    first: u64,
    slope: f64,
}

impl Line {
    /// The line through the first and the last of `numbers`; `None` if searching from where it leads is no shorter than halving,
    /// for all of them together.
    pub fn through(numbers: &[u64]) -> Option<Line> {
        let (first, last) = (*numbers.first()?, *numbers.last()?);
        let slope = (numbers.len() - 1) as f64 / last.saturating_sub(first) as f64;
        let line = Line { first, slope };
        let looks = (0..).zip(numbers).map(|(at, n)| most_looks(line.place(*n).abs_diff(at)));
        let by_halves = u64::from(bits_of(numbers.len() as u64));
        (looks.sum::<u64>() < numbers.len() as u64 * by_halves).then_some(line)
    }

    /// About how many of the numbers are below `number`.
    #[inline]
    pub fn place(&self, number: u64) -> u64 {
        (number.saturating_sub(self.first) as f64 * self.slope) as u64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn both_searches_find_what_a_walk_finds_from_any_guess() {
        for count in 0..70 {
            for end in 0..=count {
                assert_eq!(count_while(count, |at| at < end), end, "of {count}");
                for guess in (0..count + 3).chain([u64::MAX]) {
                    let looks = Cell::new(0);
                    let found = count_from(Some(guess), count, |at| {
                        assert!(at < count);
                        looks.set(looks.get() + 1);
                        at < end
                    });
                    assert_eq!(found, end, "of {count} from {guess}");
                    let most = most_looks(guess.min(count).abs_diff(end));
                    assert!(looks.get() <= most, "{} looks for {end} from {guess}", looks.get());
                }
            }
        }
    }

    #[test]
    fn a_search_of_numbers_that_are_not_sorted_ends() {
        for pattern in 0..1 << 12_u64 {
            for guess in (0..13).map(Some).chain([None]) {
                let looks = Cell::new(0);
                let found = count_from(guess, 12, |at| {
                    looks.set(looks.get() + 1);
                    pattern & (1 << at) != 0
                });
                assert!(found <= 12 && looks.get() <= 12, "{} looks", looks.get());
            }
        }
    }

    #[test]
    fn a_line_is_taken_where_it_leads_near_and_not_where_it_does_not() {
        let even: Vec<u64> =
            (0..300).map(|i| (1 << 60) + i * 1_000_003 + i % 7 * 100_000).collect();
        let line = Line::through(&even).unwrap();
        for (at, number) in (0..).zip(&even) {
            assert!(line.place(*number).abs_diff(at) <= 1, "{at}");
        }
        assert_eq!(line.place(0), 0);
        assert!(line.place(u64::MAX) > 300);
        let steep: Vec<u64> = (0..300).map(|i| 1 << (i / 5)).collect();
        let outlier: Vec<u64> = (0..300).chain([u64::MAX]).collect();
        for numbers in [&steep[..], &outlier, &[3, 2, 1], &[5; 40], &[7], &[]] {
            assert!(Line::through(numbers).is_none(), "{numbers:?}");
        }
    }
}
