//! What a reader of a comparison must know beside its figures: where engines did not do the same,
//! where there are fewer rounds than asked for, who was not there, and whether the machine had
//! other work.

use serde::{Deserialize, Serialize};

use super::metrics::DIRTIED;
use super::summary::{Comparison, KILLED, OTHERS_BUSY, Row, WHOLE_RUN, WITH};
use crate::engines::{Kind, NAMES};
use crate::run::PhaseResult;
use crate::sizes::show_count;

/// From so many cores of others on a round is not of a quiet machine.
const BUSY_CORES: f64 = 0.1;
/// With fewer rounds nobody knows what the machine did by itself.
const FEWEST_ROUNDS: usize = 3;
/// The share of a rate that an engine must reach.
const REACHED: f64 = 0.99;

/// Why a figure does not stand for what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doubt {
    /// The time limit ended the mix: the engine did less than others, here and before what follows.
    CutShort,
    /// An earlier mix of the engine was cut short: this one began elsewhere than others'.
    AfterCut,
    /// The rate of an open loop was not reached.
    BelowRate,
}

impl Doubt {
    fn words(self) -> &'static str {
        match self {
            Doubt::CutShort => "cut short",
            Doubt::AfterCut => "after a cut",
            Doubt::BelowRate => "below the rate",
        }
    }

    /// What there is to doubt about a phase.
    fn of(phase: &PhaseResult) -> impl Iterator<Item = Doubt> {
        let below = phase.share_of_rate.is_some_and(|share| share < REACHED);
        let below = below.then_some(Doubt::BelowRate);
        phase.is_cut_short().then_some(Doubt::CutShort).into_iter().chain(below)
    }
}

/// A doubt about one engine's figures of one workload in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The case.
    pub case: String,
    /// The workload.
    pub workload: String,
    /// The engine, by number.
    pub engine: usize,
    /// What it is.
    pub doubt: Doubt,
    /// What was done, of what was asked for.
    pub words: String,
}

impl Comparison {
    /// Marks what `engine` did of `workload`, where there is a doubt about it; `cut`: one of its mixes before was cut
    /// short, from here on this one too.
    pub(super) fn doubt(
        &mut self,
        case: &str,
        workload: &str,
        engine: usize,
        phase: &PhaseResult,
        cut: &mut bool,
    ) {
        let after = (*cut && !phase.is_cut_short()).then_some(Doubt::AfterCut);
        for doubt in Doubt::of(phase).chain(after) {
            self.doubt_that(doubt, case, workload, engine, phase);
            *cut |= doubt == Doubt::CutShort;
        }
    }

    fn doubt_that(
        &mut self,
        doubt: Doubt,
        case: &str,
        workload: &str,
        engine: usize,
        phase: &PhaseResult,
    ) {
        let words = match (doubt, phase.share_of_rate) {
            (Doubt::BelowRate, Some(share)) => format!("{share:.2} of its rate"),
            _ => format!(
                "{} of {} operations in {:.0} s",
                show_count(phase.operations),
                show_count(phase.asked_operations),
                phase.seconds
            ),
        };
        let (case, workload) = (case.to_string(), workload.to_string());
        self.marks.push(Mark { case, workload, engine, doubt, words });
    }

    /// What stands behind a figure of `engine` in `row` that is not of all rounds, or is doubted.
    #[must_use]
    pub fn mark(&self, row: &Row, engine: usize) -> String {
        let mut words = Vec::new();
        let has = row.cells.get(engine).map_or(0, Vec::len);
        if has < self.rounds {
            words.push(format!("{has} of {} rounds", self.rounds));
        }
        let is = |(of, number): &&(String, usize)| *of == row.case && *number == engine;
        match self.killed.iter().filter(is).count() {
            0 => {}
            rounds => words.push(format!("{rounds} {KILLED}")),
        }
        // What there is to doubt about a workload there is about its sum with the settle, too.
        let of = row.workload.split(WITH).next();
        for doubt in [Doubt::CutShort, Doubt::AfterCut, Doubt::BelowRate] {
            let whole = row.workload == WHOLE_RUN && doubt == Doubt::CutShort;
            let of_row = |mark: &&Mark| {
                let here = mark.case == row.case && mark.engine == engine && mark.doubt == doubt;
                here && (whole || Some(mark.workload.as_str()) == of)
            };
            if self.marks.iter().any(|mark| of_row(&mark)) {
                words.push(doubt.words().to_string());
            }
        }
        if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
    }

    /// The rivals that are known and have no figure here, or none in `case`.
    #[must_use]
    pub fn absent_rivals(&self, case: Option<&str>) -> Vec<&'static str> {
        let ran = |name: &str| {
            let number = self.engines.iter().position(|engine| engine.name == name);
            let rows = || self.rows.iter().filter(|row| case.is_none_or(|case| row.case == case));
            number.is_some_and(|number| rows().any(|row| !row.cells[number].is_empty()))
        };
        let rivals =
            NAMES.iter().filter(|name| matches!(name.kind, Kind::LsmRival | Kind::BTreeRival));
        rivals.map(|name| name.name).filter(|name| !ran(name)).collect()
    }

    /// Puts into words all that is to be known beside the figures.
    pub fn caution(&mut self) {
        let mut words = Vec::new();
        if self.rounds < FEWEST_ROUNDS {
            let rounds = match self.rounds {
                1 => "1 round".to_string(),
                rounds => format!("{rounds} rounds"),
            };
            words.push(format!(
                "only {rounds}: with fewer than {FEWEST_ROUNDS} nobody knows how far the machine moves figures"
            ));
        }
        let absent = self.absent_rivals(None);
        if !absent.is_empty() {
            words.push(format!(
                "did not run here: {}; \"best rival\" is the best of those that did",
                absent.join(", ")
            ));
        }
        words.extend(self.cases.iter().filter_map(|(case, _)| self.busy(case)));
        let below_zero = |row: &Row| {
            DIRTIED.contains(&row.metric.as_str()) && row.cells.iter().flatten().any(|n| *n < 0.0)
        };
        if self.rows.iter().any(below_zero) {
            words.push(
                "bytes written below zero: the kernel counts what is written when memory gets it, and takes back what was \
                 removed before the device had it, perhaps of a workload before; the whole run has both"
                    .to_string(),
            );
        }
        words.extend(self.devices.iter().map(ToString::to_string));
        // What came after a cut is said with the cut.
        let told = self.marks.iter().filter(|mark| mark.doubt != Doubt::AfterCut);
        words.extend(told.map(|mark| {
            let engine = &self.engines[mark.engine].name;
            let so = match mark.doubt {
                Doubt::CutShort => ": engines' operations differ, here and before what follows",
                Doubt::AfterCut | Doubt::BelowRate => "",
            };
            let (case, workload, what) = (&mark.case, &mark.workload, mark.doubt.words());
            format!("{case}: {engine}: {workload} {what} ({}){so}", mark.words)
        }));
        self.cautions = words;
    }

    /// Who ran in `case` while others kept the machine busy, and how much, round by round.
    fn busy(&self, case: &str) -> Option<String> {
        let row = self.row(case, WHOLE_RUN, OTHERS_BUSY)?;
        let of = |(number, cores): (usize, &Vec<f64>)| {
            let busy: Vec<String> = cores
                .iter()
                .filter(|cores| **cores > BUSY_CORES)
                .map(|cores| format!("{cores:.2}"))
                .collect();
            let name = &self.engines[number].name;
            (!busy.is_empty()).then(|| format!("{name} ({})", busy.join(", ")))
        };
        let engines: Vec<String> = row.cells.iter().enumerate().filter_map(of).collect();
        (!engines.is_empty()).then(|| {
            let who = engines.join(", ");
            format!(
                "{case}: others, or the system's own threads, kept more than {BUSY_CORES} cores busy \
                 in rounds of {who}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::THROUGHPUT;
    use super::*;

    fn row(workload: &str, metric: &str, cells: [&[f64]; 2]) -> Row {
        Row {
            case: "case".to_string(),
            workload: workload.to_string(),
            metric: metric.to_string(),
            unit: String::new(),
            cells: cells.map(<[f64]>::to_vec).into(),
        }
    }

    #[test]
    fn a_figure_of_fewer_rounds_than_were_run_is_marked_whoever_is_to_blame() {
        let mut comparison = Comparison::of_engines(&["learnedkv", "rocksdb"], 3, &["case"]);
        let row = row("A", THROUGHPUT, [&[1.0, 2.0, 3.0], &[1.0, 2.0]]);
        assert_eq!(comparison.mark(&row, 0), "");
        assert_eq!(comparison.mark(&row, 1), " (2 of 3 rounds)");
        comparison.killed.push(("case".to_string(), 1));
        assert_eq!(comparison.mark(&row, 1), format!(" (2 of 3 rounds, 1 {KILLED})"));
    }

    #[test]
    fn a_busy_machine_few_rounds_and_who_was_not_there_are_said() {
        let mut comparison = Comparison::of_engines(&["learnedkv", "rocksdb"], 2, &["case"]);
        comparison.rows.push(row(WHOLE_RUN, OTHERS_BUSY, [&[0.02, 0.1], &[0.09, 0.534]]));
        comparison.caution();
        let said = |comparison: &Comparison, words: &str| {
            comparison.cautions.iter().any(|caution| caution.contains(words))
        };
        assert!(said(&comparison, "only 2 rounds"), "{:?}", comparison.cautions);
        let busy = "threads, kept more than 0.1 cores busy in rounds of rocksdb (0.53)";
        assert!(said(&comparison, busy), "{:?}", comparison.cautions);
        let absent = "did not run here: fjall, fjall-separated, lmdb, lmdb-write-map, redb, rocksdb-mapped, blobdb; \"best rival\"";
        assert!(said(&comparison, absent), "{:?}", comparison.cautions);
        assert!(!said(&comparison, "below zero"));
        comparison.rows.push(row("settle", DIRTIED[2], [&[4.0, -44.8], &[1.0, 1.0]]));
        comparison.caution();
        assert!(said(&comparison, "bytes written below zero"), "{:?}", comparison.cautions);
        comparison.rows.pop();
        // It was asked for, and has no figure.
        comparison.rows[0].cells[1].clear();
        assert!(comparison.absent_rivals(None).contains(&"rocksdb"));
        assert!(comparison.absent_rivals(Some("other")).contains(&"rocksdb"));
        comparison.rounds = 3;
        comparison.caution();
        assert!(!said(&comparison, "rounds: with") && !said(&comparison, "busy"));
    }
}
