//! The comparison as one HTML file that needs nothing else: where there are many cases a drawing of
//! each workload over them, then for each case bars for each workload and every table.

use std::fmt::Write;

use super::chart::over_cases;
use super::summary::{Comparison, Row, THROUGHPUT};
use super::tables::{SAME_WORK, Table, of_case, overview, settled, version_of};
use crate::report::html::{STYLE, date, escape};
use crate::sizes::show_count;

/// Height of a bar with its gap, in the drawing's units.
const BAR: usize = 22;

/// The comparison as a page.
pub fn page(comparison: &Comparison) -> String {
    let mut out = String::with_capacity(64 << 10);
    let title = escape(&comparison.suite);
    let machine = &comparison.machine;
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>{STYLE}body {{ max-width: 78rem; }}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n<p>{} &#183; {} rounds &#183; learnedkv {}</p>\n\
         <p>{}, {} cores, {}</p>\n<div class=\"card\"><pre>{}</pre></div>\n",
        date(comparison.started_unix_s),
        comparison.rounds,
        escape(&comparison.version),
        escape(&machine.processor),
        machine.cores,
        escape(&machine.system),
        escape(&comparison.command)
    );
    if let Some(settled) = settled(comparison) {
        let _ = writeln!(out, "<p>{}</p>", escape(&settled));
    }
    let _ = writeln!(out, "<p>{SAME_WORK}; {}</p>", machine.clock());
    for note in comparison.cautions.iter().chain(&comparison.notes) {
        let _ = writeln!(out, "<p class=\"bad\">{}</p>", escape(note));
    }
    out.push_str(&over_cases(comparison));
    for table in overview(comparison) {
        cells(&table, &mut out);
    }
    for (case, settings) in &comparison.cases {
        let _ = writeln!(out, "<h2>{}</h2>\n<p>{}</p>", escape(case), escape(settings));
        for row in comparison.of_case(case) {
            match row.metric.strip_suffix(" p99.9") {
                _ if row.metric == THROUGHPUT => {
                    bars(comparison, row, "operations per second", &mut out)
                }
                // What an open loop shows.
                Some(operation) if row.workload.contains('=') => {
                    let what = format!("99.9th percentile of {operation}, us: less is better");
                    bars(comparison, row, &what, &mut out);
                }
                _ => {}
            }
        }
        for table in of_case(comparison, case) {
            cells(&table, &mut out);
        }
    }
    out.push_str("<h2>How each is tuned</h2>\n<div class=\"card\">\n<table>\n");
    for engine in &comparison.engines {
        let tuned = version_of(engine) + &engine.tuned;
        let (name, tuned) = (escape(&engine.name), escape(&tuned));
        let _ = writeln!(
            out,
            "<tr><td class=\"name\">{name}</td><td class=\"name\" style=\"white-space: normal\">\
             {tuned}</td></tr>"
        );
    }
    out.push_str("</table>\n</div>\n</body>\n</html>\n");
    out
}

/// One workload: a bar per engine, ours in full colour, a line from its lowest to its highest
/// round where there are several.
fn bars(comparison: &Comparison, row: &Row, what: &str, out: &mut String) {
    let most = row.cells.iter().flatten().copied().fold(1.0, f64::max);
    let height = comparison.engines.len() * BAR + 8;
    let (name, what) = (escape(&row.workload), escape(what));
    let _ = writeln!(
        out,
        "<div class=\"card\"><p>{name}, {what}</p>\n<svg viewBox=\"0 0 900 {height}\" \
         width=\"100%\" role=\"img\" aria-label=\"{name}\">"
    );
    for (number, engine) in comparison.engines.iter().enumerate() {
        let (top, text) = (number * BAR + 4, number * BAR + 18);
        let _ = write!(out, "<text x=\"0\" y=\"{text}\">{}</text>", escape(&engine.name));
        let Some(median) = row.median(number) else {
            let _ = writeln!(out, "<text class=\"soft\" x=\"150\" y=\"{text}\">none</text>");
            continue;
        };
        let x = |rate: f64| 150.0 + rate / most * 620.0;
        let low = row.cells[number].iter().copied().fold(f64::INFINITY, f64::min);
        let high = row.cells[number].iter().copied().fold(0.0, f64::max);
        let class = if engine.ours { "bar" } else { "back" };
        let line = format!(
            "<polyline class=\"line\" points=\"{:.1},{y} {:.1},{y}\"/>",
            x(low),
            x(high),
            y = top + 8
        );
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"150\" y=\"{top}\" width=\"{width:.1}\" height=\"16\" \
             rx=\"2\"/>{line}<text x=\"{after:.1}\" y=\"{text}\">{rate}</text>",
            line = if row.cells[number].len() > 1 { &line } else { "" },
            width = (x(median) - 150.0).max(1.0),
            after = x(high) + 8.0,
            rate = show_count(median.round() as u64) + &escape(&comparison.mark(row, number))
        );
    }
    out.push_str("</svg>\n</div>\n");
}

fn cells(table: &Table, out: &mut String) {
    let _ = writeln!(out, "<h2>{}</h2>\n<div class=\"card\">\n<table>", escape(&table.title));
    for (number, row) in table.rows.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = if column == 0 { " class=\"name\"" } else { "" };
            let _ = write!(out, "<{tag}{class}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n</div>\n");
    if !table.note.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(&table.note));
    }
}
