//! What the figures are written on: Markdown.

use std::fmt::Write;
use std::path::Path;

use super::Scale;
use super::kernel::disk_of;
use crate::report::machine::Machine;
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
        let command: Vec<String> = std::env::args().skip(1).collect();
        self.line(&format!(
            "Command: `cargo run --release -p learnedkv-bench -- {}`",
            command.join(" ")
        ));
        let machine = Machine::here();
        self.line(&format!(
            "Machine: {} cores ({}), {} of memory, {}, {}. Version {}.",
            machine.cores,
            machine.processor,
            show_bytes(machine.memory_bytes),
            machine.system,
            disk_of(dir),
            env!("CARGO_PKG_VERSION")
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
}

/// One quantity, measured several times.
#[derive(Debug, Clone, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Adds a round's result.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The one in the middle (of two the lower).
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
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
}
