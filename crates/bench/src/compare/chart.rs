//! Drawings over all cases: how the throughput of each workload, and what a whole run cost, go with what
//! the cases vary.

use std::fmt::Write;

use super::summary::{Compared, Comparison, OVER_CASES, Row, THROUGHPUT, WHOLE_RUN};
use crate::report::html::escape;
use crate::sizes::show_count;

/// Fewer cases are seen from their bars.
const MIN_CASES: usize = 3;
/// From this ratio of the most to the least on, the scale is logarithmic.
const LOG_FROM: f64 = 30.0;
/// Where the plot lies in the drawing.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 720.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 214.0;
const HEIGHT: u32 = 305;

/// Colours of the engines, told apart on light and dark pages alike.
const COLOURS: [&str; 12] = [
    "#2f6fde", "#e07b00", "#2b9a66", "#c0262d", "#8e4ec6", "#977669", "#d6409f", "#7c8a00",
    "#0091a8", "#6f6f78", "#b08800", "#4e5bd6",
];

/// The colour of engine `number`.
fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// All drawings, for a page; nothing where there are few cases.
pub(super) fn over_cases(comparison: &Comparison) -> String {
    let mut out = String::new();
    let ran = |case: &str| comparison.of_case(case).next().is_some();
    let cases: Vec<&str> =
        comparison.cases.iter().map(|(case, _)| case.as_str()).filter(|case| ran(case)).collect();
    if cases.len() < MIN_CASES {
        return out;
    }
    out.push_str("<h2>Over the cases</h2>\n");
    let mut draw = |title: &str, workload: &str, metric: &str| {
        let row = |case: &&str| comparison.row(case, workload, metric);
        let rows: Vec<Option<&Row>> = cases.iter().map(row).collect();
        if rows.iter().flatten().count() >= MIN_CASES {
            lines(comparison, title, &cases, &rows, &mut out);
        }
    };
    for workload in workloads(comparison) {
        draw(&format!("{workload}, operations per second"), &workload, THROUGHPUT);
    }
    for metric in OVER_CASES {
        let row = comparison.rows.iter().find(|row| row.metric == metric);
        let unit = row.map_or("", |row| row.unit.as_str());
        let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
        draw(&format!("whole run, {metric}{unit}: less is better"), WHOLE_RUN, metric);
    }
    out
}

/// The workloads of all cases that have a throughput, each once, in order.
pub(super) fn workloads(comparison: &Comparison) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in comparison.rows.iter().filter(|row| row.metric == THROUGHPUT) {
        if !names.contains(&row.workload) {
            names.push(row.workload.clone());
        }
    }
    names
}

/// From a figure to a height in the drawing.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    fn of(rates: impl Iterator<Item = f64> + Clone) -> Scale {
        let high = rates.clone().fold(1e-9, f64::max);
        let low = rates.filter(|rate| *rate > 0.0).fold(high, f64::min);
        let logarithmic = high / low > LOG_FROM;
        // From a power of ten to a power of ten, or from nothing to a little more than the most.
        if logarithmic {
            let power = |rate: f64, to: fn(f64) -> f64| 10_f64.powf(to(rate.log10()));
            return Scale {
                low: power(low, f64::floor),
                high: power(high, f64::ceil),
                logarithmic,
            };
        }
        Scale { low: 0.0, high: high * 1.05, logarithmic }
    }

    fn y(&self, rate: f64) -> f64 {
        let share = if self.logarithmic {
            (rate.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            rate / self.high
        };
        BOTTOM - share * (BOTTOM - TOP)
    }

    /// Where lines are drawn across.
    fn marks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|decade| self.low * 10_f64.powi(decade)).collect();
        }
        // Steps of 1, 2 or 5 times a power of ten, four at least.
        let rough = self.high / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [5.0, 2.0, 1.0].map(|times| times * power);
        let step = step.into_iter().find(|step| *step <= rough).unwrap_or(power);
        (0..).map(|mark| f64::from(mark) * step).take_while(|mark| *mark <= self.high).collect()
    }
}

/// Where case `number` of `count` is drawn.
fn x(number: usize, count: usize) -> f64 {
    LEFT + (number as f64 + 0.5) * (RIGHT - LEFT) / count as f64
}

/// One metric: a line for each engine.
fn lines(
    comparison: &Comparison,
    title: &str,
    cases: &[&str],
    rows: &[Option<&Row>],
    out: &mut String,
) {
    let rates = rows.iter().flatten().flat_map(|row| row.cells.iter().flatten());
    let scale = Scale::of(rates.copied());
    let title = escape(title);
    let how = if scale.logarithmic { ", logarithmic" } else { "" };
    let _ = writeln!(
        out,
        "<div class=\"card\"><p>{title}{how}</p>\n<svg viewBox=\"0 0 900 \
         {HEIGHT}\" width=\"100%\" role=\"img\" aria-label=\"{title}, over the cases\">"
    );
    axes(&scale, cases, out);
    for (number, engine) in comparison.engines.iter().enumerate() {
        let median = |row: &Option<&Row>| row.and_then(|row| row.median(number));
        let points = rows.iter().enumerate().filter_map(|(case, row)| {
            median(row).map(|rate| (x(case, cases.len()), scale.y(rate)))
        });
        line(number, engine, &points.collect::<Vec<_>>(), out);
    }
    out.push_str("</svg>\n</div>\n");
}

/// Lines across at round figures, and the cases' names.
fn axes(scale: &Scale, cases: &[&str], out: &mut String) {
    for mark in scale.marks() {
        let y = scale.y(mark);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" style=\"stroke: var(--line)\"/><text class=\"soft\" \
             x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            if scale.high < 10.0 { format!("{mark:.1}") } else { show_count(mark.round() as u64) }
        );
    }
    for (case, name) in cases.iter().enumerate() {
        let (x, y) = (x(case, cases.len()), BOTTOM + 18.0);
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" \
             transform=\"rotate(-20 {x:.1} {y:.1})\" style=\"font-size: 11px\">{}</text>",
            escape(name)
        );
    }
}

/// An engine's line, a dot for each case, and its name beside the plot.
fn line(number: usize, engine: &Compared, points: &[(f64, f64)], out: &mut String) {
    let (colour, width) = (colour(number), if engine.ours { 2.5 } else { 1.5 });
    let at: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(
        out,
        "<polyline points=\"{}\" style=\"fill: none; stroke: {colour}; stroke-width: {width}\"/>",
        at.join(" ")
    );
    for (x, y) in points {
        let dot = format!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"");
        let _ = write!(out, "<circle {dot} style=\"fill: {colour}\"/>");
    }
    let y = TOP + 8.0 + number as f64 * 20.0;
    let _ = writeln!(
        out,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" style=\"fill: {colour}\"/><text \
         x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        RIGHT + 20.0,
        y - 2.0,
        RIGHT + 42.0,
        y + 4.0,
        escape(&engine.name)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_hold_all_and_are_logarithmic_where_the_range_is_wide() {
        let narrow = Scale::of([100.0, 700.0, 950.0].into_iter());
        assert!(!narrow.logarithmic);
        assert_eq!(narrow.marks(), [0.0, 200.0, 400.0, 600.0, 800.0]);
        let wide = Scale::of([3.0, 700.0, 12_000.0].into_iter());
        assert!(wide.logarithmic);
        assert_eq!(wide.marks().first(), Some(&1.0));
        assert_eq!(wide.marks().len(), 6);
        for (scale, rates) in [(narrow, [100.0, 950.0]), (wide, [3.0, 12_000.0])] {
            for rate in rates {
                assert!((TOP..=BOTTOM).contains(&scale.y(rate)), "{rate}");
            }
            assert!(scale.y(rates[0]) > scale.y(rates[1]));
        }
        // Nothing measured is no reason to divide by nothing.
        assert!(Scale::of(std::iter::empty()).y(0.0).is_finite());
    }
}
