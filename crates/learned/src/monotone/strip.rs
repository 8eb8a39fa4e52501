//! The line that a sequence of points deviates from least.

/// The slope, in `y` per step, of the narrowest strip (measured vertically) that holds the points
/// `(x, y)`, `x` strictly ascending. 0 for fewer than two points.
///
/// For a slope `m` the strip's height is `max(y - m x) - min(y - m x)`, a convex function of `m`
/// whose minimum lies at the slope of an edge of the points' convex hull (the strip touches an edge
/// on one side and a corner on the other). O(n) after the points are sorted: Andrew's monotone
/// chain, then one walk with two calipers.
///
/// Planning only: what is stored are integers, and residuals are computed from those. Addition,
/// multiplication and division of `f64` are exactly specified, so that plans repeat everywhere.
pub(crate) fn narrowest_slope(points: &[(f64, f64)], scratch: &mut Scratch) -> f64 {
    if points.len() < 2 {
        return 0.0;
    }
    hull(points, 1.0, &mut scratch.lower);
    hull(points, -1.0, &mut scratch.upper);
    let (lower, upper) = (&scratch.lower, &scratch.upper);
    // Slopes ascend along the lower hull and descend along the upper one. Walking both in order of
    // ascending slope, the corner opposite to an edge only moves on.
    let (mut best, mut best_height) = (slope(lower[0], lower[1]), f64::INFINITY);
    let mut at = upper.len() - 1;
    for edge in lower.windows(2) {
        let m = slope(edge[0], edge[1]);
        while at > 0 && slope(upper[at - 1], upper[at]) < m {
            at -= 1;
        }
        let height = (upper[at].1 - edge[0].1) - m * (upper[at].0 - edge[0].0);
        if height < best_height {
            (best, best_height) = (m, height);
        }
    }
    let mut at = 0;
    for edge in upper.windows(2).rev() {
        let m = slope(edge[0], edge[1]);
        while at + 1 < lower.len() && slope(lower[at], lower[at + 1]) < m {
            at += 1;
        }
        let height = (edge[0].1 - lower[at].1) - m * (edge[0].0 - lower[at].0);
        if height < best_height {
            (best, best_height) = (m, height);
        }
    }
    best
}

/// Room for the two hulls, kept between calls.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    lower: Vec<(f64, f64)>,
    upper: Vec<(f64, f64)>,
}

fn slope(a: (f64, f64), b: (f64, f64)) -> f64 {
    (b.1 - a.1) / (b.0 - a.0)
}

/// The lower hull from left to right for `side` 1, the upper one for `side` -1.
fn hull(points: &[(f64, f64)], side: f64, out: &mut Vec<(f64, f64)>) {
    out.clear();
    for &p in points {
        while let [.., a, b] = out[..] {
            let turn = (b.0 - a.0) * (p.1 - a.1) - (b.1 - a.1) * (p.0 - a.0);
            if turn * side > 0.0 {
                break;
            }
            out.pop();
        }
        out.push(p);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn height(points: &[(f64, f64)], m: f64) -> f64 {
        let above = |p: &(f64, f64)| p.1 - m * p.0;
        let top = points.iter().map(above).fold(f64::NEG_INFINITY, f64::max);
        top - points.iter().map(above).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_slope_through_two_points_is_narrower() {
        let mut state = 7u64;
        for round in 0..200 {
            let mut points = Vec::new();
            for x in 0..2 + round % 17 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                points.push((f64::from(x), (state >> 50) as f64));
            }
            let found = height(&points, narrowest_slope(&points, &mut Scratch::default()));
            for (i, &a) in points.iter().enumerate() {
                for &b in &points[i + 1..] {
                    assert!(found <= height(&points, slope(a, b)) * 1.000_001 + 1e-6, "{points:?}");
                }
            }
        }
    }
}
