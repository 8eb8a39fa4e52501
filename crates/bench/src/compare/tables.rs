//! The tables of a comparison, once; as text for the terminal, as Markdown, and for the page.

use std::fmt::Write;

use super::chart::workloads;
use super::child::ChildResult;
use super::metrics::seconds_in_engine;
use super::summary::{
    BY_CLOCK, Compared, Comparison, KILLED, OVER_CASES, Row, THROUGHPUT, WHOLE_RUN, WITH,
};
use crate::engines::BASELINE;
use crate::report::terminal::align;
use crate::workloads::{Operation, Settling};

/// A table: the first row is its head, the first column its names.
pub(super) struct Table {
    pub title: String,
    pub rows: Vec<Vec<String>>,
    /// What is to be known of it, a sentence.
    pub note: String,
}

/// What is shown of one run as soon as it is done.
pub fn line(result: &ChildResult) -> String {
    let mut out = String::new();
    let phases = result.report.phases.iter();
    for phase in phases.filter(|phase| phase.operations > 0 && !phase.warms_up) {
        if let Some(rate) = phase.rate_per_second {
            let reached = phase.operations as f64 / phase.seconds.max(1e-9);
            let _ =
                write!(out, " {} reached {:.1}k of {:.1}k", phase.name, reached / 1e3, rate / 1e3);
            continue;
        }
        let seconds = seconds_in_engine(phase).unwrap_or(phase.seconds);
        let rate = phase.operations as f64 / seconds.max(1e-9);
        let _ = write!(out, " {} {:.1}k", phase.name, rate / 1e3);
    }
    let _ = writeln!(out, " (others kept {:.2} cores busy)", result.others_cores);
    out
}

/// Every table of `case`, in order; none where it did not run.
pub(super) fn of_case(comparison: &Comparison, case: &str) -> Vec<Table> {
    if comparison.of_case(case).next().is_none() {
        return Vec::new();
    }
    let rates = [THROUGHPUT, BY_CLOCK].map(|clock| throughput(comparison, case, clock));
    let by_rounds = super::rounds::of_case(comparison, case);
    let others = [latency(comparison, case), costs(comparison, case)];
    let all = rates.into_iter().chain(by_rounds).chain(others);
    all.filter(|table| table.rows.len() > 1).collect()
}

/// Throughput of every workload in every case, and what whole runs cost, if there are several cases.
pub(super) fn overview(comparison: &Comparison) -> Vec<Table> {
    if comparison.cases.len() < 2 {
        return Vec::new();
    }
    let table = |title: &str, first: &str, lines: &[(String, &str, &str, f64)]| {
        let mut rows = vec![head(comparison, first)];
        for (name, workload, metric, unit) in lines {
            for (case, _) in &comparison.cases {
                let Some(row) = comparison.row(case, workload, metric) else { continue };
                let mut cells = vec![format!("{name}: {case}")];
                let engines = 0..comparison.engines.len();
                cells.extend(engines.map(|number| match row.median(number) {
                    Some(median) => short(median / unit) + &comparison.mark(row, number),
                    None => comparison.nothing(case, number).to_string(),
                }));
                rows.push(cells);
            }
        }
        Table { title: title.to_string(), rows, note: String::new() }
    };
    let workloads = workloads(comparison);
    let throughput: Vec<_> = workloads
        .iter()
        .map(|workload| (workload.clone(), workload.as_str(), THROUGHPUT, 1e3))
        .collect();
    let unit = |metric: &str| {
        let row = comparison.rows.iter().find(|row| row.metric == metric && !row.unit.is_empty());
        row.map_or_else(String::new, |row| format!(", {}", row.unit))
    };
    let costs =
        OVER_CASES.map(|metric| (format!("{metric}{}", unit(metric)), WHOLE_RUN, metric, 1.0));
    vec![
        table(
            "all cases, thousands of operations per second, in the engine",
            "workload: case",
            &throughput,
        ),
        table("all cases, whole runs", "cost: case", &costs),
    ]
}

fn head(comparison: &Comparison, first: &str) -> Vec<String> {
    let names = comparison.engines.iter().map(|engine| engine.name.clone());
    std::iter::once(first.to_string()).chain(names).collect()
}

/// Thousands of operations per second by one of the clocks, and how ours stand against the best
/// rival. By the clock on the wall ratios are of what writes alone: reads of all engines wait for
/// the client alike, and what is handed over at once or verified has the client's work inside.
fn throughput(comparison: &Comparison, case: &str, clock: &str) -> Table {
    let engines = &comparison.engines;
    let ours: Vec<usize> = (0..engines.len()).filter(|&number| engines[number].ours).collect();
    let check = comparison.baseline_in(case);
    let stands = check.is_some_and(|check| check.stands);
    let mut first = head(comparison, "workload");
    for &number in &ours {
        first.push(format!("{} / best LSM rival", engines[number].name));
        first.push(format!("{} / best rival", engines[number].name));
        if check.is_some() {
            first.push(format!("{} / {BASELINE}", engines[number].name));
        }
    }
    let mut rows = vec![first];
    for row in comparison.of_case(case).filter(|row| row.metric == clock) {
        let compared = clock == THROUGHPUT || writes(comparison, row);
        let mut cells = vec![row.workload.clone()];
        cells.extend((0..engines.len()).map(|number| match row.median(number) {
            Some(median) => {
                let spread = row.spread(number).unwrap_or_default() * 100.0;
                let many = row.cells[number].len() > 1;
                let spread = if many { format!(" ±{spread:.0}%") } else { String::new() };
                format!("{}{spread}{}", short(median / 1e3), comparison.mark(row, number))
            }
            None => comparison.nothing(case, number).to_string(),
        }));
        for &number in &ours {
            let or_none = |ratio: String, shown: bool| if shown { ratio } else { "-".to_string() };
            let lsm = ratio(comparison, row, number, |engine| engine.lsm_rival);
            cells.push(or_none(lsm, compared));
            cells.push(or_none(ratio(comparison, row, number, |engine| engine.rival), compared));
            if check.is_some() {
                let shown = compared && stands;
                cells.push(or_none(over_baseline(comparison, row, number), shown));
            }
        }
        rows.push(cells);
    }
    let mut notes = Vec::new();
    let absent = comparison.absent_rivals(Some(case));
    if !absent.is_empty() && !ours.is_empty() {
        notes.push(format!(
            "the best rival is the best of those that ran; without {}",
            absent.join(", ")
        ));
    }
    notes.extend(check.map(|check| {
        let said = if check.stands { "are reported" } else { "are not reported" };
        format!("ratios over the {BASELINE} {said}: {}", check.words)
    }));
    if comparison.of_case(case).any(|row| row.workload.contains(WITH)) {
        notes.push(
            "behind + is what the engine did next, which is no operation: its time counts, too"
                .to_string(),
        );
    }
    let of = if clock == THROUGHPUT { "in the engine" } else { "by the clock, client included" };
    Table {
        title: format!("thousands of operations per second, {of}"),
        rows,
        note: notes.join("; "),
    }
}

/// Whether the clients of `row`'s workload write, and their time in the engine was told apart.
fn writes(comparison: &Comparison, row: &Row) -> bool {
    let is_there = |metric: &str| comparison.row(&row.case, &row.workload, metric).is_some();
    let writing = Operation::ALL.into_iter().filter(|operation| !operation.reads());
    let with_settling = row.workload.contains(WITH);
    is_there(THROUGHPUT)
        && (with_settling || writing.map(|of| format!("{} p50", of.name())).any(|of| is_there(&of)))
}

/// How an engine stands against the LearnedKV paper's baseline.
fn over_baseline(comparison: &Comparison, row: &Row, number: usize) -> String {
    let baseline = comparison.engines.iter().position(|engine| engine.name == BASELINE);
    match baseline.and_then(|baseline| over(comparison, row, number, baseline)) {
        Some((ratio, doubts)) => format!("{ratio}{doubts}"),
        None => "-".to_string(),
    }
}

/// How an engine stands against the best that `is` says yes to, and who of them was killed and is
/// in no ratio.
fn ratio(comparison: &Comparison, row: &Row, number: usize, is: fn(&Compared) -> bool) -> String {
    let engines = &comparison.engines;
    let best = row.best(engines, is).and_then(|(best, _)| {
        let (ratio, doubts) = over(comparison, row, number, best)?;
        Some(format!("{ratio} {}{doubts}", engines[best].name))
    });
    let killed = |(number, engine): &(usize, &Compared)| {
        is(engine)
            && row.median(*number).is_none()
            && comparison.nothing(&row.case, *number) == KILLED
    };
    let killed: Vec<_> = engines.iter().enumerate().filter(killed).collect();
    let words: String =
        killed.iter().map(|(_, engine)| format!(" ({} {KILLED})", engine.name)).collect();
    best.unwrap_or_else(|| "-".to_string()) + &words
}

/// The ratio of two engines' medians, and what there is to doubt about either.
fn over(
    comparison: &Comparison,
    row: &Row,
    ours: usize,
    theirs: usize,
) -> Option<(String, String)> {
    let (mine, other) = (row.median(ours)?, row.median(theirs).filter(|rate| *rate > 0.0)?);
    let of = |number: usize| match comparison.mark(row, number) {
        none if none.is_empty() => none,
        mark => format!(" ({}: {}", comparison.engines[number].name, mark.trim_start_matches(" (")),
    };
    Some((format!("{:.2}", mine / other), of(ours) + &of(theirs)))
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
                    let mark = comparison.mark(row, number);
                    format!("{} / {} / {}{mark}", short(a), short(b), short(c))
                }
                _ => comparison.nothing(case, number).to_string(),
            }
        }));
        rows.push(cells);
    }
    let open = comparison.of_case(case).any(|row| row.metric == "reached");
    let note = if open {
        "behind = is the rate of an open loop: what an operation took is counted from when it was due"
    } else {
        ""
    };
    let title = "latency in us, p50 / p99 / p99.9".to_string();
    Table { title, rows, note: note.to_string() }
}

/// Everything else, medians.
fn costs(comparison: &Comparison, case: &str) -> Table {
    let mut rows = vec![head(comparison, "cost")];
    let of_run = |row: &&Row| row.workload == WHOLE_RUN;
    let timed = |row: &&Row| {
        let rate = [THROUGHPUT, BY_CLOCK].contains(&row.metric.as_str());
        row.unit != "us" && !rate && row.workload != WHOLE_RUN
    };
    let workloads = comparison.of_case(case).filter(timed);
    for row in workloads.chain(comparison.of_case(case).filter(of_run)) {
        let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
        let mut cells = vec![format!("{}: {}{unit}", row.workload, row.metric)];
        let engines = 0..comparison.engines.len();
        cells.extend(engines.map(|number| match row.median(number) {
            Some(median) => short(median) + &comparison.mark(row, number),
            None => comparison.nothing(case, number).to_string(),
        }));
        rows.push(cells);
    }
    let note = "device requests are what the store's device completed meanwhile, of the whole machine \
                (`/proc/diskstats`), and writes reach it late; - where the device cannot be found. What was \
                written is counted when a page is dirtied: of B-trees, which dirty a page again before it is written, there is no sum";
    Table { title: "what it cost, medians".to_string(), rows, note: note.to_string() }
}

/// A number with about three digits.
pub(super) fn short(value: f64) -> String {
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
        "{}; version {}; {} rounds, {} on {} cores, {}",
        comparison.suite,
        comparison.version,
        comparison.rounds,
        machine.processor,
        machine.cores,
        machine.system
    )];
    lines.extend(settled(comparison));
    lines.extend([SAME_WORK.to_string(), machine.clock()]);
    lines.extend(comparison.cautions.iter().chain(&comparison.notes).cloned());
    lines
}

/// How much each engine does, for the head of a report.
pub(super) const SAME_WORK: &str = "each mix is as many operations for every engine as its case says; one with \
    /N does the N-th part (scans and ranges a twentieth, scans of 10 a half, calls for 32 keys a 32nd, commits of 1,000 a \
    hundredth), one with *N does N times as many; where the time limit ended one it is marked as cut short";

/// What settling was, for the head of a report.
pub(super) fn settled(comparison: &Comparison) -> Option<String> {
    let words = match comparison.settling.parse() {
        Ok(Settling::AtRest) => "each engine was left until its own work was done",
        Ok(Settling::Compacted) => "each engine compacted all it had, if it can",
        Err(_) => return None,
    };
    Some(format!("settled {}: {words}", comparison.settling))
}

/// A version, to stand before how an engine is tuned.
pub(super) fn version_of(engine: &Compared) -> String {
    let version = &engine.version;
    if version.is_empty() { String::new() } else { format!("{version}; ") }
}

/// The whole comparison as text.
pub fn text(comparison: &Comparison) -> String {
    let mut out = preface(comparison).join("\n");
    out.push('\n');
    let mut put = |head: &str, tables: &mut dyn Iterator<Item = Table>| {
        out.push_str(head);
        for table in tables {
            let _ = writeln!(out, "\n{}", table.title);
            align(&table.rows, &mut out);
            if !table.note.is_empty() {
                let _ = writeln!(out, "({})", table.note);
            }
        }
    };
    put("", &mut overview(comparison).into_iter());
    for (case, settings) in &comparison.cases {
        let tables = of_case(comparison, case);
        put(&format!("\n{case}: {settings}\n"), &mut tables.into_iter());
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
        let _ = writeln!(out, "* **{}**: {}{}", engine.name, version_of(engine), engine.tuned);
    }
    let mut put = |head: &str, tables: &mut dyn Iterator<Item = Table>| {
        out.push_str(head);
        for table in tables {
            let _ = writeln!(out, "\n{}:\n", table.title);
            for (number, row) in table.rows.iter().enumerate() {
                let _ = writeln!(out, "| {} |", row.join(" | "));
                if number == 0 {
                    let _ = writeln!(out, "|{}", "---|".repeat(row.len()));
                }
            }
            if !table.note.is_empty() {
                let _ = writeln!(out, "\n({}.)", table.note);
            }
        }
    };
    put("", &mut overview(comparison).into_iter());
    for (case, settings) in &comparison.cases {
        let tables = of_case(comparison, case);
        put(&format!("\n### {case}\n{settings}.\n"), &mut tables.into_iter());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_was_killed_has_that_in_the_place_of_its_figures() {
        let row = |case: &str, cells: [&[f64]; 3]| Row {
            case: case.to_string(),
            workload: "C".to_string(),
            metric: THROUGHPUT.to_string(),
            unit: "ops/s".to_string(),
            cells: cells.map(<[f64]>::to_vec).into(),
        };
        let engines = ["learnedkv", "fjall-separated", "lmdb"];
        let comparison = Comparison {
            settling: "compacted".to_string(),
            rows: vec![
                row("bounded", [&[2e3, 2e3], &[], &[]]),
                row("free", [&[3e3, 3e3], &[1e3, 1e3], &[4e3]]),
            ],
            killed: vec![("bounded".to_string(), 1), ("free".to_string(), 2)],
            ..Comparison::of_engines(&engines, 2, &["bounded", "free"])
        };
        let throughput = |case: &str| of_case(&comparison, case).remove(0).rows.remove(1);
        assert_eq!(throughput("bounded")[..4], ["C", "2.00 ±0%", KILLED, "-"]);
        // A ratio says who could not be its denominator.
        assert_eq!(throughput("bounded")[4], format!("- (fjall-separated {KILLED})"));
        // One that was killed in one of two rounds has the other's figure, and it says so, as does
        // the ratio.
        let doubt = format!("1 of 2 rounds, 1 {KILLED}");
        let once = format!("4.00 ({doubt})");
        assert_eq!(throughput("free")[..4], ["C", "3.00 ±0%", "1.00 ±0%", &once]);
        assert_eq!(throughput("free")[4], "3.00 fjall-separated");
        assert_eq!(throughput("free")[5], format!("0.75 lmdb (lmdb: {doubt})"));
        let over = overview(&comparison).remove(0).rows;
        assert_eq!(over[1][..], ["C: bounded", "2.00", KILLED, "-"]);
        assert_eq!(over[2][3], once);
        let text = text(&comparison);
        assert!(text.contains("settled compacted: each engine compacted all"), "{text}");
        assert!(markdown(&comparison).contains(&format!("| C | 2.00 ±0% | {KILLED} | - |")));
    }
}
