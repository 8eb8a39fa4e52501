//! The tables of a comparison, once; as text for the terminal, as Markdown, and for the page.

use std::fmt::Write;

use super::child::ChildResult;
use super::summary::{Compared, Comparison, Row, THROUGHPUT, WHOLE_RUN};
use crate::report::terminal::align;

/// A table: the first row is its head, the first column its names.
pub(super) struct Table {
    pub title: String,
    pub rows: Vec<Vec<String>>,
}

/// What is shown of one run as soon as it is done.
pub fn line(result: &ChildResult) -> String {
    let mut out = String::new();
    for phase in result.report.phases.iter().filter(|phase| phase.operations > 0) {
        let seconds = match phase.engine_seconds {
            none if none <= 0.0 => phase.seconds,
            some => some / phase.threads as f64,
        };
        let _ = write!(out, " {} {:.1}k", phase.name, phase.operations as f64 / seconds / 1e3);
    }
    let _ = writeln!(out, " (others kept {:.2} cores busy)", result.others_cores);
    out
}

/// Every table of `case`, in order.
pub(super) fn of_case(comparison: &Comparison, case: &str) -> Vec<Table> {
    vec![throughput(comparison, case), latency(comparison, case), costs(comparison, case)]
}

fn head(comparison: &Comparison, first: &str) -> Vec<String> {
    let names = comparison.engines.iter().map(|engine| engine.name.clone());
    std::iter::once(first.to_string()).chain(names).collect()
}

/// Thousands of operations per second, and how ours stand against the best rival.
fn throughput(comparison: &Comparison, case: &str) -> Table {
    let engines = &comparison.engines;
    let ours: Vec<usize> = (0..engines.len()).filter(|&number| engines[number].ours).collect();
    let mut first = head(comparison, "workload");
    for &number in &ours {
        first.push(format!("{} / best LSM rival", engines[number].name));
        first.push(format!("{} / best rival", engines[number].name));
    }
    let mut rows = vec![first];
    for row in comparison.of_case(case).filter(|row| row.metric == THROUGHPUT) {
        let mut cells = vec![row.workload.clone()];
        cells.extend((0..engines.len()).map(|number| match row.median(number) {
            Some(median) => {
                let spread = row.spread(number).unwrap_or_default() * 100.0;
                let many = row.cells[number].len() > 1;
                let spread = if many { format!(" ±{spread:.0}%") } else { String::new() };
                format!("{}{spread}", short(median / 1e3))
            }
            None => "-".to_string(),
        }));
        for &number in &ours {
            cells.push(ratio(row, engines, number, |engine| engine.lsm_rival));
            cells.push(ratio(row, engines, number, |engine| engine.rival));
        }
        rows.push(cells);
    }
    Table { title: "thousands of operations per second, in the engine".to_string(), rows }
}

fn ratio(row: &Row, engines: &[Compared], number: usize, is: fn(&Compared) -> bool) -> String {
    match (row.median(number), row.best(engines, is)) {
        (Some(ours), Some((best, theirs))) if theirs > 0.0 => {
            format!("{:.2} {}", ours / theirs, engines[best].name)
        }
        _ => "-".to_string(),
    }
}

/// Percentiles of each operation of each workload.
fn latency(comparison: &Comparison, case: &str) -> Table {
    let mut rows = vec![head(comparison, "workload: operation")];
    let medians = comparison.of_case(case).filter(|row| row.metric.ends_with(" p50"));
    for row in medians {
        let operation = row.metric.trim_end_matches(" p50");
        let of = |percentile: &str, number: usize| {
            let metric = format!("{operation} {percentile}");
            let is = |other: &&Row| other.workload == row.workload && other.metric == metric;
            comparison.of_case(case).find(is).and_then(|found| found.median(number))
        };
        let mut cells = vec![format!("{}: {operation}", row.workload)];
        cells.extend((0..comparison.engines.len()).map(|number| {
            match (of("p50", number), of("p99", number), of("p99.9", number)) {
                (Some(a), Some(b), Some(c)) => {
                    format!("{} / {} / {}", short(a), short(b), short(c))
                }
                _ => "-".to_string(),
            }
        }));
        rows.push(cells);
    }
    Table { title: "latency in us, p50 / p99 / p99.9".to_string(), rows }
}

/// Everything else, medians.
fn costs(comparison: &Comparison, case: &str) -> Table {
    let mut rows = vec![head(comparison, "cost")];
    let of_run = |row: &&Row| row.workload == WHOLE_RUN;
    let timed =
        |row: &&Row| row.unit != "us" && row.metric != THROUGHPUT && row.workload != WHOLE_RUN;
    let workloads = comparison.of_case(case).filter(timed);
    for row in workloads.chain(comparison.of_case(case).filter(of_run)) {
        let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
        let mut cells = vec![format!("{}: {}{unit}", row.workload, row.metric)];
        let engines = 0..comparison.engines.len();
        cells.extend(engines.map(|n| row.median(n).map_or_else(|| "-".to_string(), short)));
        rows.push(cells);
    }
    Table { title: "what it cost, medians".to_string(), rows }
}

/// A number with about three digits.
fn short(value: f64) -> String {
    match value.abs() {
        below if below < 1e-9 => "0".to_string(),
        below if below < 1.0 => format!("{value:.3}"),
        below if below < 10.0 => format!("{value:.2}"),
        below if below < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// What is said before the tables.
fn preface(comparison: &Comparison) -> Vec<String> {
    let machine = &comparison.machine;
    let mut lines = vec![format!(
        "{}; {} rounds, {} on {} cores, {}",
        comparison.suite, comparison.rounds, machine.processor, machine.cores, machine.system
    )];
    lines.extend(comparison.notes.iter().cloned());
    lines
}

/// The whole comparison as text.
pub fn text(comparison: &Comparison) -> String {
    let mut out = preface(comparison).join("\n");
    out.push('\n');
    for (case, settings) in &comparison.cases {
        let _ = writeln!(out, "\n{case}: {settings}");
        for table in of_case(comparison, case) {
            let _ = writeln!(out, "\n{}", table.title);
            align(&table.rows, &mut out);
        }
    }
    out
}

/// The whole comparison as Markdown.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out = format!("Command: `{}`\n\n", comparison.command);
    for line in preface(comparison) {
        let _ = writeln!(out, "* {line}");
    }
    for engine in &comparison.engines {
        let _ = writeln!(out, "* **{}**: {}", engine.name, engine.tuned);
    }
    for (case, settings) in &comparison.cases {
        let _ = writeln!(out, "\n### {case}\n{settings}.");
        for table in of_case(comparison, case) {
            let _ = writeln!(out, "\n{}:\n", table.title);
            for (number, row) in table.rows.iter().enumerate() {
                let _ = writeln!(out, "| {} |", row.join(" | "));
                if number == 0 {
                    let _ = writeln!(out, "|{}", "---|".repeat(row.len()));
                }
            }
        }
    }
    out
}
