//! What a cost becomes as data grows: two laws fitted to what was measured, and what they say beyond it.
//!
//! *a + b log2 n* is what a descent costs, or a constant (b about 0); *a n^k* is what grows with the data
//! (k about 1), or with a part of it. Both by least squares, the second on logarithms, so that each point
//! counts by its share. A law is told by how far it lies from the points; which fits better is said, and
//! what it gives far beyond them is a model and no measurement.

/// A law with its constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// `a + b log2 n`.
    Logarithm {
        /// Where n is 1.
        a: f64,
        /// For each doubling.
        b: f64,
    },
    /// `a n^k`.
    Power {
        /// Where n is 1.
        a: f64,
        /// 0: constant; 1: as the data.
        k: f64,
    },
}

/// A law, and how far it lies from the points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The law.
    pub law: Law,
    /// The root of the mean square of what it is off, per cent of the points' mean.
    pub off_percent: f64,
}

impl Law {
    /// What it gives for `n` keys.
    pub fn at(self, n: f64) -> f64 {
        match self {
            Law::Logarithm { a, b } => a + b * n.log2(),
            Law::Power { a, k } => a * n.powf(k),
        }
    }

    fn fitted(self, points: &[(f64, f64)]) -> Fit {
        let count = points.len() as f64;
        let mean = points.iter().map(|(_, y)| y.abs()).sum::<f64>() / count;
        let squares: f64 = points.iter().map(|(n, y)| (self.at(*n) - y).powi(2)).sum();
        let off_percent = match mean {
            nothing if nothing <= 0.0 => 0.0,
            mean => (squares / count).sqrt() / mean * 100.0,
        };
        Fit { law: self, off_percent }
    }
}

impl std::fmt::Display for Law {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Law::Logarithm { a, b } => {
                let sign = if *b < 0.0 { '-' } else { '+' };
                write!(f, "{a:.3} {sign} {:.4} log2 n", b.abs())
            }
            Law::Power { a, k } => write!(f, "{a:.3e} n^{k:.3}"),
        }
    }
}

/// `y = a + b x` by least squares; `b` is 0 where all x are the same.
fn line(points: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
    let count = points.clone().count().max(1) as f64;
    let (sum_x, sum_y) = points.clone().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
    let (x_mean, y_mean) = (sum_x / count, sum_y / count);
    let across: f64 = points.clone().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let along: f64 = points.map(|(x, _)| (x - x_mean).powi(2)).sum();
    let b = if along > 0.0 { across / along } else { 0.0 };
    (y_mean - b * x_mean, b)
}

/// `a + b log2 n` through `points` of (n, cost), n at least 1.
pub fn logarithm(points: &[(f64, f64)]) -> Fit {
    let (a, b) = line(points.iter().map(|(n, y)| (n.log2(), *y)));
    Law::Logarithm { a, b }.fitted(points)
}

/// `a n^k` through `points` of (n, cost), n at least 1; none where a cost is 0 or less.
pub fn power(points: &[(f64, f64)]) -> Option<Fit> {
    if points.iter().any(|(_, y)| *y <= 0.0) {
        return None;
    }
    let (a, k) = line(points.iter().map(|(n, y)| (n.ln(), y.ln())));
    Some(Law::Power { a: a.exp(), k }.fitted(points))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 4] = [1e6, 2e6, 5e6, 1e7];

    fn points(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        SIZES.iter().map(|&n| (n, of(n))).collect()
    }

    #[test]
    fn each_law_finds_its_own_constants_and_the_other_is_off() {
        let grown = points(|n| 0.5 + 0.25 * n.log2());
        let fit = logarithm(&grown);
        let Law::Logarithm { a, b } = fit.law else { panic!("{fit:?}") };
        assert!((a - 0.5).abs() < 1e-9 && (b - 0.25).abs() < 1e-9, "{fit:?}");
        assert!(fit.off_percent < 1e-9 && power(&grown).unwrap().off_percent > 0.05);
        assert!((fit.law.at(1e9) - (0.5 + 0.25 * 1e9_f64.log2())).abs() < 1e-6);

        let grown = points(|n| 3.0 * n.powf(0.5));
        let fit = power(&grown).unwrap();
        let Law::Power { a, k } = fit.law else { panic!("{fit:?}") };
        assert!((a - 3.0).abs() < 1e-6 && (k - 0.5).abs() < 1e-9, "{fit:?}");
        assert!(fit.off_percent < 1e-6 && logarithm(&grown).off_percent > 1.0);
    }

    #[test]
    fn noise_is_told_as_what_a_law_is_off() {
        // Two above and two below a constant of 10, by 1.
        let noisy: Vec<_> =
            SIZES.iter().zip([11.0, 9.0, 9.0, 11.0]).map(|(n, y)| (*n, y)).collect();
        let off = logarithm(&noisy).off_percent;
        assert!((8.0..10.5).contains(&off), "{off}");
    }

    #[test]
    fn what_costs_nothing_has_no_power_and_no_nan() {
        let nothing = points(|_| 0.0);
        let fit = logarithm(&nothing);
        assert_eq!((fit.off_percent, fit.law.at(1e9), power(&nothing)), (0.0, 0.0, None));
        // Sizes that scaling made the same.
        let same = [(5.0, 2.0), (5.0, 4.0)];
        assert_eq!(logarithm(&same).law.at(1e9), 3.0);
        assert!(power(&same).unwrap().off_percent.is_finite());
    }

    #[test]
    fn laws_are_written_as_they_are_read() {
        let fallen = Law::Logarithm { a: 2.0, b: -0.05 };
        assert_eq!(fallen.to_string(), "2.000 - 0.0500 log2 n");
        assert_eq!(Law::Power { a: 0.0012, k: 1.0 }.to_string(), "1.200e-3 n^1.000");
    }
}
