//! Greedy-PLR: growing one segment inside a cone of slopes, in exact integers.
//!
//! Source: Xie, Pang, Zhou, Zhang, Deng: "Maximum error-bounded piecewise linear representation for
//! online stream approximation", The VLDB Journal 23 (2014), the greedy method; used as learned index
//! by Bourbon (Dai et al., OSDI 2020). The steepest and the flattest line through the error bars of
//! the first two points cross at an *apex*. Every line considered passes through it, so a segment in
//! progress is the apex and a range of slopes, and each further point narrows the range. When it would
//! become empty the segment ends, and the point begins the next.
//!
//! **Why epsilon is truly kept.** The evaluated line is `f(x) = floor(F(x))` with rational `F`. So
//! `|f - y| <= epsilon` is `y - epsilon <= F < y + epsilon + 1`: bars of half a position more than
//! epsilon around `y + 1/2`. An eighth of a position is kept back for the rounding of the stored line
//! (intercept at most 1/16, slope less than 1/16 at the far end), the rest is given to the cone:
//! `epsilon + 3/8`. The bars of the first two points are equal, so the apex is midway between the two.
//!
//! **Units.** Heights are eighths of a position, distances from the apex half keys; a slope `rise/run`
//! in these units is `rise / (4 run)` positions per key. [`MAX_KEY_SPAN`] and [`MAX_RISE`] bound a
//! segment so that rise and run fit `u64`, their cross products `u128`, and a stored slope `u32`.

use std::hint::select_unpredictable;

use super::segments::{Line, ONE};

/// A segment ends before its keys span this much.
const MAX_KEY_SPAN: u64 = 1 << 63;
/// A segment ends before its positions rise this much.
const MAX_RISE: u64 = 1 << 25;

/// A segment in progress: its first point and, from the second point on, apex and slopes.
#[derive(Clone, Debug)]
pub(crate) struct Cone {
    first_key: u64,
    first_y: u64,
    /// Half the length of an error bar, in eighths of a position.
    bar: u64,
    /// Distance from the first key to the last point's.
    key_span: u64,
    slopes: Option<Slopes>,
}

/// The lines a segment can still become.
#[derive(Clone, Copy, Debug)]
struct Slopes {
    /// From the first point to the second: the apex is half of it away from either.
    second_key: u64,
    second_y: u64,
    low: Slope,
    high: Slope,
}

/// `rise / run`, never negative; `run > 0`.
#[derive(Clone, Copy, Debug)]
struct Slope {
    rise: u64,
    run: u64,
}

impl Slope {
    /// Whether `self < other`.
    fn is_below(self, other: Slope) -> bool {
        u128::from(self.rise) * u128::from(other.run)
            < u128::from(other.rise) * u128::from(self.run)
    }

    /// `other` if `is_other`, without a branch.
    fn or_if(self, is_other: bool, other: Slope) -> Slope {
        Slope {
            rise: select_unpredictable(is_other, other.rise, self.rise),
            run: select_unpredictable(is_other, other.run, self.run),
        }
    }
}

impl Cone {
    /// A segment that begins at `(key, y)`.
    pub(crate) fn new(epsilon: u16, key: u64, y: u64) -> Self {
        let bar = u64::from(epsilon) * ONE as u64 + 3;
        Self { first_key: key, first_y: y, bar, key_span: 0, slopes: None }
    }

    /// The first key of the segment.
    pub(crate) fn first_key(&self) -> u64 {
        self.first_key
    }

    /// Takes the next point if some line can still serve it and all before; says whether it did.
    /// Its key is above the last one's, its `y` not below the last one's.
    #[inline]
    pub(crate) fn admit(&mut self, key: u64, y: u64) -> bool {
        let (dx, dy) = (key - self.first_key, y - self.first_y);
        if dx >= MAX_KEY_SPAN || dy >= MAX_RISE {
            return false;
        }
        let Some(slopes) = &mut self.slopes else {
            let (rise, run) = (4 * dy, dx);
            // A falling line would break the staircase argument: the flattest is level.
            let low = Slope { rise: rise.saturating_sub(self.bar), run };
            let high = Slope { rise: rise + self.bar, run };
            self.slopes = Some(Slopes { second_key: dx, second_y: dy, low, high });
            self.key_span = dx;
            return true;
        };
        let (rise, run) = (4 * (2 * dy - slopes.second_y), 2 * dx - slopes.second_key);
        let low = Slope { rise: rise.saturating_sub(self.bar), run };
        let high = Slope { rise: rise + self.bar, run };
        if slopes.high.is_below(low) | high.is_below(slopes.low) {
            return false;
        }
        // Whether a point narrows the cone cannot be predicted.
        slopes.low = slopes.low.or_if(slopes.low.is_below(low), low);
        slopes.high = slopes.high.or_if(high.is_below(slopes.high), high);
        self.key_span = dx;
        true
    }

    /// The line of the segment as it stands, in the fixed point it is stored and evaluated in.
    pub(crate) fn line(&self) -> Line {
        let Some(Slopes { second_key, second_y, low, high }) = self.slopes else {
            return Line::new(self.first_y, 0, 0, ONE / 2);
        };
        // Beyond this shift the slope's last bit is worth less than 1/16 of a position at the far end.
        let max_shift = bits(self.key_span.into()) + 4;
        // From this one on, an interval as wide as the cone is sure to hold an integer. A wide cone thus
        // gets a short slope.
        let gap = u128::from(high.rise) * u128::from(low.run)
            - u128::from(low.rise) * u128::from(high.run);
        let sure_shift =
            (bits(high.run.into()) + bits(low.run.into()) + 3).saturating_sub(bits(gap));
        let shift = if gap == 0 { max_shift } else { sure_shift.min(max_shift) };

        let at_least = (u128::from(low.rise) << shift).div_ceil(4 * u128::from(low.run));
        let at_most = (u128::from(high.rise) << shift) / (4 * u128::from(high.run));
        let slope = at_least + at_most.saturating_sub(at_least) / 2;

        // Back from the apex to the first key, where evaluation starts; round to the nearest eighth.
        let half = (1u128 << shift) / 2;
        let fall = (4 * slope * u128::from(second_key) + half) >> shift;
        let intercept = 4 * second_y as i64 + i64::from(ONE / 2) - fall as i64;
        debug_assert!(slope <= u32::MAX.into() && intercept.unsigned_abs() <= self.bar + 5);
        Line::new(self.first_y, slope as u32, shift as u8, intercept as i32)
    }
}

/// The bits `value` takes: `2^(bits-1) <= value < 2^bits`.
fn bits(value: u128) -> u32 {
    u128::BITS - value.leading_zeros()
}
