//! Greedy-PLR: growing one segment inside a cone of slopes.
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
//! epsilon around `y + 1/2`. An eighth of a position is kept back for rounding, the rest is given to the
//! cone: `epsilon + 3/8`. The bars of the first two points are equal, so the apex is midway between the two.
//! Of the eighth the stored intercept takes at most 1/16 and the stored slope less than 1/32 at the far end.
//! Slopes are `f64` while the segment grows: each has been rounded four times, to one part in `2^53`, and rises
//! by less than [`MAX_RISE`] positions, so that what is kept of the eighth is a million times what they
//! are wrong by. What is stored and evaluated are integers. (Cross products in `u128` were exact, and
//! slower: decision 30.)
//!
//! **Units.** Heights are eighths of a position, distances from the apex half keys; a slope `rise/run`
//! in these units is `rise / (4 run)` positions per key. [`MAX_KEY_SPAN`] and [`MAX_RISE`] bound a
//! segment so that a stored slope fits `u32`.

use super::segments::{Line, ONE};

/// A segment ends before its keys span this much.
const MAX_KEY_SPAN: u64 = 1 << 62;
/// A segment ends before its positions rise this much.
const MAX_RISE: u64 = 1 << 24;

/// A segment in progress: its first point and, from the second point on, apex and slopes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cone {
    first_key: u64,
    first_y: u64,
    /// Half the length of an error bar, in eighths of a position.
    bar: f64,
    /// Distance from the first key to the last point's; 0 while there is one point.
    key_span: u64,
    /// From the first point to the second: the apex is half of it away from either.
    second_key: u64,
    second_y: u64,
    /// The flattest and the steepest line that serve all points. Never falling, since a falling one would
    /// break the staircase argument.
    low: f64,
    high: f64,
}

impl Cone {
    /// A segment that begins at `(key, y)`.
    pub(crate) fn new(epsilon: u16, key: u64, y: u64) -> Self {
        Self {
            first_key: key,
            first_y: y,
            bar: f64::from(epsilon) * f64::from(ONE) + 3.0,
            key_span: 0,
            second_key: 0,
            second_y: 0,
            low: 0.0,
            high: f64::INFINITY,
        }
    }

    /// The first key of the segment.
    pub(crate) fn first_key(&self) -> u64 {
        self.first_key
    }

    /// Takes the next point if some line can still serve it and all before; says whether it did.
    /// Its key is above the last one's, its `y` not below the last one's.
    #[inline(always)]
    pub(crate) fn admit(&mut self, key: u64, y: u64) -> bool {
        let (dx, dy) = (key - self.first_key, y - self.first_y);
        if dx >= MAX_KEY_SPAN || dy >= MAX_RISE {
            return false;
        }
        if self.key_span == 0 {
            // The apex is midway: seen from it the second point is as far as from the first, in half keys.
            (self.second_key, self.second_y) = (dx, dy);
        }
        // Below 2^63, as signed numbers are turned into floats by one instruction.
        let run = (2 * dx - self.second_key) as i64 as f64;
        let rise = (4 * (2 * dy - self.second_y)) as i64 as f64;
        let (low, high) = ((rise - self.bar) / run, (rise + self.bar) / run);
        if low > self.high || high < self.low {
            return false;
        }
        // Whether a point narrows the cone cannot be predicted; these are the processor's own `max` and `min`.
        self.low = if low > self.low { low } else { self.low };
        self.high = if high < self.high { high } else { self.high };
        self.key_span = dx;
        true
    }

    /// The line of the segment as it stands, in the fixed point it is stored and evaluated in.
    pub(crate) fn line(&self) -> Line {
        if self.key_span == 0 {
            return Line::new(self.first_y, 0, 0, ONE / 2);
        }
        // From this shift on the slope's last bit is worth less than 1/32 of a position at the far end.
        let max_shift = (u64::BITS - self.key_span.leading_zeros()) as i32 + 5;
        // From this one on, an interval as wide as the cone is sure to hold an integer. A wide cone thus
        // gets a short slope.
        let gap = self.high - self.low;
        let sure_shift = if gap > 0.0 { 2 - exponent(gap) } else { max_shift };
        let shift = sure_shift.clamp(0, max_shift) as u8;

        // Exact: a power of two.
        let scale = (1u128 << shift) as f64 / 4.0;
        let at_least = (self.low * scale).ceil() as u64;
        let at_most = (self.high * scale).floor() as u64;
        let slope = at_least + at_most.saturating_sub(at_least) / 2;

        // Back from the apex to the first key, where evaluation starts; round to the nearest eighth.
        let half = (1u128 << shift) / 2;
        let fall = (4 * u128::from(slope) * u128::from(self.second_key) + half) >> shift;
        let intercept = 4 * self.second_y as i64 + i64::from(ONE / 2) - fall as i64;
        debug_assert!(slope <= u32::MAX.into() && intercept.abs() as f64 <= self.bar + 5.0);
        Line::new(self.first_y, slope as u32, shift, intercept as i32)
    }
}

/// `e` where `2^e <= value < 2^(e+1)`; `value` is positive and no subnormal.
fn exponent(value: f64) -> i32 {
    (value.to_bits() >> 52) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slopes are rounded while a segment grows, so the bounds that keep epsilon are tried where they are tightest: keys that span
    /// up to all that a segment may, positions that rise by as much, and bars that are next to nothing beside them.
    #[test]
    fn rounded_slopes_keep_epsilon_over_any_span_and_rise() {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 11
        };
        let (mut widest, mut highest, mut longest) = (0, 0, 0);
        for round in 0..20_000 {
            let epsilon = [0, 1, 4, 256, u16::MAX][random() as usize % 5];
            let (key_bits, rise_bits) = (random() % 62, random() % 24);
            let jitter = random() % (2 * u64::from(epsilon) + 2);
            let (first_key, first_y) = (random() >> 40, random() >> 20);
            let mut cone = Cone::new(epsilon, first_key, first_y);
            let mut points = vec![(first_key, first_y)];
            // Points near a line, so that many are admitted.
            let (step, rise) = ((1 << key_bits) / 40 + 1, (1 << rise_bits) / 40 + 1);
            for at in 1..=40 {
                let key = first_key + at * step + random() % step / 2;
                let y = first_y + at * rise + random() % (jitter + 1);
                let &(last_key, last_y) = points.last().unwrap();
                if key <= last_key || y < last_y {
                    continue;
                }
                if !cone.admit(key, y) {
                    break;
                }
                points.push((key, y));
            }
            let line = cone.line();
            for &(key, y) in &points {
                let off = line.at(key - first_key) - i128::from(y);
                let epsilon = i128::from(epsilon);
                assert!(
                    (-epsilon..=epsilon).contains(&off),
                    "round {round}: {off} of {epsilon} at {key}, {y}: {line:?} {points:?}"
                );
            }
            let &(last_key, last_y) = points.last().unwrap();
            widest = widest.max(last_key - first_key);
            highest = highest.max(last_y - first_y);
            longest = longest.max(points.len());
        }
        assert!(
            widest > MAX_KEY_SPAN / 4 && highest > MAX_RISE / 4 && longest == 41,
            "{widest} {highest} {longest}"
        );
    }

    #[test]
    fn a_segment_ends_where_its_keys_or_positions_would_not_fit_a_line() {
        let mut cone = Cone::new(4, 5, 6);
        assert!(!cone.admit(5 + MAX_KEY_SPAN, 7) && !cone.admit(6, 6 + MAX_RISE));
        assert!(cone.admit(6, 6 + MAX_RISE - 1));
        let steep = cone.line();
        assert!((steep.at(1) - i128::from(6 + MAX_RISE - 1)).abs() <= 4);
        let mut cone = Cone::new(0, 5, 6);
        assert!(cone.admit(5 + MAX_KEY_SPAN - 1, 6 + MAX_RISE - 1));
        let long = cone.line();
        assert_eq!((long.at(0), long.at(MAX_KEY_SPAN - 1)), (6, i128::from(6 + MAX_RISE - 1)));
    }
}
