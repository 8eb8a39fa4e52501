//! What the figures are written on: Markdown.

use std::fmt::Write;
use std::path::Path;

use super::Scale;
use super::kernel::disk_of;
use crate::report::machine::Machine;
use crate::report::{median, version};
use crate::sizes::show_bytes;

/// Markdown that grows.
#[derive(Debug, Default)]
pub struct Sheet {
    text: String,
}

impl Sheet {
    /// All of it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The command, the machine, the scale.
    pub fn preamble(&mut self, scale: Scale, dir: &Path) {
        let command = crate::command::arguments();
        self.line(&format!(
            "Command: `cargo run --release -p learnedkv-bench -- {}`",
            command.get(1..).unwrap_or_default().join(" ")
        ));
        let machine = Machine::here();
        self.line(&format!(
            "Machine: {} cores ({}), {} of memory, {}, {}. Version {}.",
            machine.cores,
            machine.processor,
            show_bytes(machine.memory_bytes),
            machine.system,
            disk_of(dir),
            version()
        ));
        self.line(&match scale {
            Scale(1) => "Scale: full.".to_string(),
            Scale(divisor) => format!(
                "Scale: {} (keys, operations, memtable and budget divided by {divisor}); not to be \
                 held against the targets.",
                scale.name()
            ),
        });
    }

    /// The head of a figure.
    pub fn head(&mut self, title: &str) {
        let _ = writeln!(self.text, "\n## {title}");
    }

    /// A paragraph.
    pub fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "\n{text}");
    }

    /// A table: first the names of its columns, then rows of as many cells. Columns but the first
    /// are aligned to the right.
    pub fn table(&mut self, names: &[&str], rows: &[Vec<String>]) {
        let mut widths: Vec<usize> = names.iter().map(|name| name.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut put = |cells: &mut dyn Iterator<Item = &str>| {
            for (column, (cell, &width)) in cells.zip(&widths).enumerate() {
                let _ = match column {
                    0 => write!(self.text, "| {cell:<width$} |"),
                    _ => write!(self.text, " {cell:>width$} |"),
                };
            }
            self.text.push('\n');
        };
        put(&mut "".lines());
        put(&mut names.iter().copied());
        let rule = |column: usize| match column {
            0 => "-".repeat(widths[0]),
            _ => format!("{}:", "-".repeat(widths[column] - 1)),
        };
        let rules: Vec<String> = (0..names.len()).map(rule).collect();
        put(&mut rules.iter().map(String::as_str));
        for row in rows {
            put(&mut row.iter().map(String::as_str));
        }
    }
}

/// Which way a figure is good.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// At most `must`, better at most `aim`.
    AtMost {
        /// What it must reach.
        must: f64,
        /// What it should reach.
        aim: f64,
    },
    /// At least `must`, better at least `aim`.
    AtLeast {
        /// What it must reach.
        must: f64,
        /// What it should reach.
        aim: f64,
    },
}

impl Target {
    /// Where a measurement stands.
    pub fn judge(self, measured: f64) -> String {
        let (must, aim) = match self {
            Target::AtMost { must, aim } => (measured <= must, measured <= aim),
            Target::AtLeast { must, aim } => (measured >= must, measured >= aim),
        };
        match (must, aim) {
            (_, true) => "aim",
            (true, false) => "must",
            (false, false) => "**short**",
        }
        .to_string()
    }

    /// Where the median of `rounds`, divided by `unit`, stands.
    pub fn judge_rounds(self, rounds: &Rounds, unit: f64) -> String {
        self.judge_after(rounds.median() / unit, rounds.count())
    }

    /// Where the worst of `rounds`, divided by `unit`, stands: of a peak, or the longest of something, a median says nothing.
    pub fn judge_worst(self, rounds: &Rounds, unit: f64) -> String {
        let rounds_of = || rounds.0.iter().copied();
        let worst = match self {
            Target::AtMost { .. } => rounds_of().reduce(f64::max),
            Target::AtLeast { .. } => rounds_of().reduce(f64::min),
        };
        // With no round nothing is reached.
        self.judge_after(worst.unwrap_or(f64::NAN) / unit, rounds.count())
    }

    /// Where what was measured in so many rounds stands; of fewer than [`FEWEST_ROUNDS`] it is said.
    pub fn judge_after(self, measured: f64, rounds: usize) -> String {
        let judged = self.judge(measured);
        match rounds {
            1 => format!("{judged} (1 round)"),
            few if few < FEWEST_ROUNDS => format!("{judged} ({few} rounds)"),
            _ => judged,
        }
    }
}

/// So many rounds make a figure: a verdict over fewer is a hint.
const FEWEST_ROUNDS: usize = 3;

/// One quantity, measured several times.
#[derive(Debug, Clone, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Adds a round's result.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The one in the middle; of an even number the mean of the two there.
    pub fn median(&self) -> f64 {
        median(&self.0).unwrap_or(f64::NAN)
    }

    /// The median with the lowest and highest, divided by `unit`, with so many decimals.
    pub fn show(&self, unit: f64, decimals: usize) -> String {
        let low = self.0.iter().copied().fold(f64::INFINITY, f64::min) / unit;
        let high = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max) / unit;
        format!("{:.decimals$} ({low:.decimals$}-{high:.decimals$})", self.median() / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_markdown() {
        let mut sheet = Sheet::default();
        sheet.table(&["set", "n"], &[vec!["a".to_string(), "100".to_string()]]);
        assert_eq!(sheet.text(), "\n| set |   n |\n| --- | --: |\n| a   | 100 |\n");
    }

    #[test]
    fn judgement_follows_the_direction() {
        let bits = Target::AtMost { must: 32.0, aim: 24.0 };
        assert_eq!([33.0, 32.0, 24.0].map(|x| bits.judge(x)), ["**short**", "must", "aim"]);
        let puts = Target::AtLeast { must: 4.0, aim: 6.0 };
        assert_eq!([3.9, 4.0, 6.0].map(|x| puts.judge(x)), ["**short**", "must", "aim"]);
    }

    #[test]
    fn rounds_show_their_spread() {
        let mut rounds = Rounds::default();
        [3000.0, 1000.0, 2000.0].into_iter().for_each(|x| rounds.push(x));
        assert_eq!(rounds.show(1e3, 1), "2.0 (1.0-3.0)");
    }

    #[test]
    fn two_rounds_are_not_judged_by_the_better_one() {
        let mut times = Rounds::default();
        [0.40, 2.03].into_iter().for_each(|x| times.push(x));
        assert_eq!(times.show(1.0, 2), "1.21 (0.40-2.03)");
        let target = Target::AtMost { must: 1.3, aim: 0.8 };
        assert_eq!(target.judge_rounds(&times, 1.0), "must (2 rounds)");
        times.push(4.0);
        times.push(4.0);
        assert!((times.median() - 3.015).abs() < 1e-9 && times.count() == 4);
        assert_eq!(target.judge_rounds(&times, 1.0), "**short**");
        assert_eq!(target.judge_rounds(&times, 10.0), "aim");
        assert_eq!(target.judge_worst(&times, 1.0), "**short**");
        assert_eq!(target.judge_worst(&times, 4.0), "must");
        let speed = Target::AtLeast { must: 0.5, aim: 3.0 };
        assert_eq!(speed.judge_worst(&times, 1.0), "**short**");
        let none = [target, speed].map(|target| target.judge_worst(&Rounds::default(), 1.0));
        assert!(none.iter().all(|judged| judged.starts_with("**short**")), "{none:?}");
    }

    #[test]
    fn fewer_than_three_rounds_are_said_beside_the_verdict() {
        let target = Target::AtLeast { must: 1.0, aim: 2.0 };
        let judged = [1, 2, 3].map(|rounds| target.judge_after(1.5, rounds));
        assert_eq!(judged, ["must (1 round)", "must (2 rounds)", "must"]);
    }

    #[test]
    fn a_sheet_says_the_commit_it_is_built_from() {
        let mut sheet = Sheet::default();
        sheet.preamble(Scale(1), Path::new("."));
        let commit = env!("LEARNEDKV_COMMIT");
        assert!(sheet.text().contains(&format!(", commit {commit}.")), "{}", sheet.text());
        assert!(
            commit == "unknown" || commit.split(' ').next().is_some_and(|hash| hash.len() >= 10)
        );
    }
}
