//! One HTML file that needs nothing else: styles and drawings are inside, nothing is fetched.

use std::fmt::Write;

use super::{Report, show_us};
use crate::run::PhaseResult;
use crate::sizes::{show_bytes, show_count};

/// What pages look like.
pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --line: #e4e7ec; --page: #fbfbfc;
  --card: #ffffff; --bar: #2f6fde; --faint: #cfe0fb; --bad: #c0262d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #2b3240;
  --page: #12161d; --card: #191f29; --bar: #6ea0f5; --faint: #24406e; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 62rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.05rem; margin: 2.2rem 0 0.6rem; }
p { margin: 0.3rem 0; color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.9rem 1.1rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: var(--soft); font-size: 0.82rem; }
th, td { text-align: right; padding: 0.32rem 0.6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
td.name, th.name { text-align: left; }
pre { font: 12px/1.45 ui-monospace, monospace; margin: 0; white-space: pre-wrap; word-break: break-word; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
svg .soft { fill: var(--soft); } svg .bar { fill: var(--bar); } svg .back { fill: var(--faint); }
svg .line { fill: none; stroke: var(--bar); stroke-width: 1.5; }
.good { color: var(--bar); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
";

/// The report as a page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut out = String::with_capacity(64 << 10);
    let title = format!("{} benchmark", escape(&report.engine));
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    let setting = |name: &str| {
        report.settings.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    };
    let _ = writeln!(
        out,
        "<p>{} &#183; values of {} bytes &#183; {} &#183; learnedkv {}</p>",
        escape(setting("keys")),
        escape(setting("value size")),
        date(report.started_unix_s),
        escape(&report.version)
    );
    verdict(report, &mut out);
    bars(report, &mut out);
    latencies(report, &mut out);
    timelines(report, &mut out);
    costs(report, &mut out);
    facts(report, &mut out);
    let _ = writeln!(
        out,
        "<h2>The engine about itself</h2>\n<div class=\"card\"><pre>{}</pre></div>\n</body>\n</html>",
        escape(&report.engine_stats.text)
    );
    out
}

fn verdict(report: &Report, out: &mut String) {
    let checked: u64 = report.phases.iter().map(|phase| phase.checked).sum();
    let failures = report.failures();
    let (class, word) = if failures == 0 { ("good", "all right") } else { ("bad", "WRONG") };
    let _ = writeln!(
        out,
        "<p>Every read was checked: {} reads, {} wrong, <span class=\"{class}\">{word}</span></p>",
        show_count(checked),
        show_count(failures)
    );
    if failures > 0 {
        let samples: Vec<String> = report
            .phases
            .iter()
            .flat_map(|p| p.failure_samples.iter().map(move |s| format!("{}: {s}", p.name)))
            .collect();
        let _ = writeln!(
            out,
            "<div class=\"card bad\"><pre>{}</pre></div>",
            escape(&samples.join("\n"))
        );
    }
}

/// Throughput as horizontal bars.
fn bars(report: &Report, out: &mut String) {
    let phases: Vec<&PhaseResult> = report.phases.iter().filter(|p| p.operations > 0).collect();
    let best = phases.iter().map(|p| p.throughput_ops_per_s).fold(1.0, f64::max);
    let height = phases.len() * 34 + 6;
    let _ = writeln!(
        out,
        "<h2>Operations per second</h2>\n<div class=\"card\">\n<svg viewBox=\"0 0 900 {height}\" \
         width=\"100%\" role=\"img\" aria-label=\"operations per second\">"
    );
    for (i, phase) in phases.iter().enumerate() {
        let y = i * 34 + 6;
        let width = (phase.throughput_ops_per_s / best * 480.0).max(1.0);
        let _ = writeln!(
            out,
            "<text x=\"0\" y=\"{t}\">{name} <tspan class=\"soft\">{about}</tspan></text>\
             <rect class=\"bar\" x=\"290\" y=\"{y}\" width=\"{width:.1}\" height=\"22\" rx=\"3\"/>\
             <text x=\"{after:.1}\" y=\"{t}\">{rate}</text>",
            t = y + 16,
            name = escape(&phase.name),
            about = escape(&phase.about),
            after = 298.0 + width,
            rate = show_count(phase.throughput_ops_per_s.round() as u64)
        );
    }
    out.push_str("</svg>\n</div>\n");
}

fn latencies(report: &Report, out: &mut String) {
    out.push_str(
        "<h2>Latency</h2>\n<div class=\"card\">\n<table>\n<tr><th class=\"name\">workload</th>\
         <th class=\"name\">operation</th><th>count</th><th>mean</th><th>p50</th><th>p99</th>\
         <th>p99.9</th><th>max</th></tr>\n",
    );
    for phase in &report.phases {
        for latency in &phase.latencies {
            let _ = writeln!(
                out,
                "<tr><td class=\"name\">{}</td><td class=\"name\">{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&phase.name),
                escape(&latency.operation),
                show_count(latency.count),
                show_us(latency.latency_us_mean),
                show_us(latency.latency_us_p50),
                show_us(latency.latency_us_p99),
                show_us(latency.latency_us_p999),
                show_us(latency.latency_us_max)
            );
        }
    }
    out.push_str("</table>\n</div>\n");
}

/// Throughput over time, one small drawing per phase that lasted long enough to have one.
fn timelines(report: &Report, out: &mut String) {
    let phases: Vec<&PhaseResult> =
        report.phases.iter().filter(|p| p.timeline_ops_per_s.len() >= 4).collect();
    if phases.is_empty() {
        return;
    }
    out.push_str("<h2>Over time</h2>\n<div class=\"card\">\n");
    for phase in phases {
        let rates = &phase.timeline_ops_per_s;
        let best = rates.iter().copied().fold(1.0, f64::max);
        let step = 700.0 / (rates.len() - 1) as f64;
        let mut points = String::new();
        for (i, rate) in rates.iter().enumerate() {
            let _ =
                write!(points, "{:.1},{:.1} ", i as f64 * step + 90.0, 52.0 - rate / best * 46.0);
        }
        let _ = writeln!(
            out,
            "<svg viewBox=\"0 0 900 64\" width=\"100%\" role=\"img\" aria-label=\"{name} over \
             time\"><text x=\"0\" y=\"34\">{name}</text><polyline class=\"line\" points=\"{}\"/>\
             <text class=\"soft\" x=\"800\" y=\"18\">{}/s</text>\
             <text class=\"soft\" x=\"800\" y=\"52\">{:.1} s</text></svg>",
            points.trim_end(),
            show_count(best.round() as u64),
            phase.seconds,
            name = escape(&phase.name)
        );
    }
    out.push_str("</div>\n");
}

fn costs(report: &Report, out: &mut String) {
    out.push_str(
        "<h2>What it cost</h2>\n<div class=\"card\">\n<table>\n<tr><th class=\"name\">workload</th>\
         <th>seconds</th><th>in the engine</th><th>cpu seconds</th><th>peak memory</th>\
         <th>device read</th><th>device written</th><th>per byte put</th><th>on disk</th></tr>\n",
    );
    for phase in &report.phases {
        let per_byte = if phase.put_bytes == 0 {
            "&#8211;".to_string()
        } else {
            format!("{:.2}", phase.written_bytes as f64 / phase.put_bytes as f64)
        };
        let _ = writeln!(
            out,
            "<tr><td class=\"name\">{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{per_byte}</td><td>{}</td></tr>",
            escape(&phase.name),
            phase.seconds,
            phase.engine_seconds,
            phase.cpu_seconds,
            show_bytes(phase.peak_memory_bytes),
            show_bytes(phase.read_bytes),
            show_bytes(phase.written_bytes.max(0) as u64),
            show_bytes(phase.store_bytes)
        );
    }
    let _ = writeln!(
        out,
        "</table>\n<p>Peak memory is the whole process; {} of it were the benchmark's own before \
         the engine was opened.</p>\n</div>",
        show_bytes(report.idle_memory_bytes)
    );
}

fn facts(report: &Report, out: &mut String) {
    let machine = &report.machine;
    let _ = writeln!(
        out,
        "<h2>Machine and settings</h2>\n<div class=\"card\">\n<p>{}, {} cores, {} of memory, {}; {}</p>\
         \n<pre>{}</pre>\n<table>",
        escape(&machine.processor),
        machine.cores,
        show_bytes(machine.memory_bytes),
        escape(&machine.system),
        machine.clock(),
        escape(&report.command)
    );
    for (name, value) in &report.settings {
        let _ = writeln!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"name\">{}</td></tr>",
            escape(name),
            escape(value)
        );
    }
    out.push_str("</table>\n</div>\n");
}

/// Text that is safe inside elements and attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // Control characters are not allowed in a page, escaped or not.
            c if c.is_control() && c != '\n' && c != '\t' => safe.push('\u{FFFD}'),
            c => safe.push(c),
        }
    }
    safe
}

/// The date of a moment, in UTC (days to civil, after Howard Hinnant's `chrono` notes).
pub(crate) fn date(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let era_day = days % 146_097;
    let era_year = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let shifted_month = (5 * year_day + 2) / 153;
    let day = year_day - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era_year + days / 146_097 * 400 + u64::from(month <= 2);
    let (hour, minute) = (unix_s / 3600 % 24, unix_s / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
    }
}
