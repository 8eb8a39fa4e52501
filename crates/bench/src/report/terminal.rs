//! The table at the end of a run.

use std::fmt::Write;

use super::{Report, show_us};
use crate::sizes::{show_bytes, show_count};

/// The whole report as text.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    let heads = [
        "workload",
        "operation",
        "count",
        "ops/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "cpu s",
        "memory",
        "written",
    ];
    let mut rows: Vec<Vec<String>> = vec![heads.iter().map(ToString::to_string).collect()];
    for phase in &report.phases {
        let rate = if phase.operations == 0 {
            format!("{:.1} s", phase.seconds)
        } else {
            show_count(phase.throughput_ops_per_s.round() as u64)
        };
        let costs = [
            format!("{:.1}", phase.cpu_seconds),
            show_bytes(phase.peak_memory_bytes),
            show_bytes(phase.written_bytes.max(0) as u64),
        ];
        if phase.latencies.is_empty() {
            let count = show_count(phase.operations);
            let mut row = vec![phase.name.clone(), String::new(), count, rate];
            row.extend(std::iter::repeat_n(String::new(), 4));
            row.extend(costs);
            rows.push(row);
            continue;
        }
        for (i, latency) in phase.latencies.iter().enumerate() {
            let first = |text: &String| if i == 0 { text.clone() } else { String::new() };
            let mut row = vec![
                first(&phase.name),
                latency.operation.clone(),
                show_count(latency.count),
                first(&rate),
                show_us(latency.latency_us_p50),
                show_us(latency.latency_us_p99),
                show_us(latency.latency_us_p999),
                show_us(latency.latency_us_max),
            ];
            row.extend(costs.iter().map(first));
            rows.push(row);
        }
    }
    align(&rows, &mut out);
    let checked: u64 = report.phases.iter().map(|phase| phase.checked).sum();
    let _ = write!(out, "\n{} reads checked, {} wrong", show_count(checked), report.failures());
    for phase in &report.phases {
        for sample in &phase.failure_samples {
            let _ = write!(out, "\n  {}: {sample}", phase.name);
        }
    }
    out.push('\n');
    out
}

/// Appends `rows` in columns as wide as they need, the first two to the left, numbers to the right.
pub(crate) fn align(rows: &[Vec<String>], out: &mut String) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                1 => write!(line, "  {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}
