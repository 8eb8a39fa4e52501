//! The answer of an index: an inclusive range of positions.

use std::fmt;

/// An inclusive range of positions, `first <= last`, both in `0..=n` for an index over `n` entries.
///
/// Positions count entries (or blocks, for a [`BlockModel`](crate::BlockModel)) from zero. `n` itself
/// is a legal position: it is the lower bound of every key above the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    /// The smallest position the answer can have.
    pub first: u64,
    /// The largest position the answer can have.
    pub last: u64,
}

impl Bound {
    /// The bound that names one position.
    pub const fn exact(position: u64) -> Self {
        Self { first: position, last: position }
    }

    /// Whether `position` lies within the bound.
    pub const fn contains(&self, position: u64) -> bool {
        self.first <= position && position <= self.last
    }

    /// How many positions the bound names, at least one. (All `u64::MAX + 1` of them, a bound no
    /// builder makes, count as `u64::MAX`.)
    pub const fn width(&self) -> u64 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }

    /// The bound with both ends brought down to at most `end`.
    #[must_use]
    pub fn clipped(self, end: u64) -> Self {
        Self { first: self.first.min(end), last: self.last.min(end) }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::Bound;

    #[test]
    fn width_counts_both_ends() {
        assert_eq!(Bound::exact(7).width(), 1);
        assert_eq!(Bound { first: 3, last: 5 }.width(), 3);
        assert_eq!(Bound { first: 0, last: u64::MAX }.width(), u64::MAX);
    }

    #[test]
    fn clipping_keeps_the_order_of_the_ends() {
        let bound = Bound { first: 3, last: 9 };
        assert_eq!(bound.clipped(5), Bound { first: 3, last: 5 });
        assert_eq!(bound.clipped(2), Bound::exact(2));
        assert!(
            bound.contains(3) && bound.contains(9) && !bound.contains(10) && !bound.contains(2)
        );
    }
}
