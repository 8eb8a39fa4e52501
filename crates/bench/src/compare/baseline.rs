//! Whether the LearnedKV paper's baseline in our code is a fair one, case by case.
//!
//! A ratio over a baseline of one's own says nothing if that baseline is slow. So it is held against
//! the engine that it stands for, RocksDB's BlobDB, in the same run: where it reads within
//! [`WITHIN`] of BlobDB, on every workload of reads alone, ratios over it are reported. Anywhere else
//! they are not, and the reason is: also where it reads *faster*, for then it is another store than
//! the paper's. Nothing is judged on mixes, whose reads wait for what writes cause.

use serde::{Deserialize, Serialize};

use super::summary::{Comparison, Row, THROUGHPUT};
use crate::engines::{BASELINE, BLOBDB};

/// How far the baseline may read from BlobDB, as a share of BlobDB's throughput.
pub const WITHIN: f64 = 0.15;
/// The workload of reads alone.
const READS: &str = "C";

/// What is made of the baseline in a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineCheck {
    /// The case.
    pub case: String,
    /// Whether ratios over the baseline are reported.
    pub stands: bool,
    /// The figures, or what is missing.
    pub words: String,
}

impl Comparison {
    /// Judges the baseline in every case that it ran in, if it is among the engines.
    pub fn judge_baseline(&mut self) {
        let checks = self.cases.iter().filter_map(|(case, _)| self.check(case));
        self.baseline = checks.collect();
    }

    /// The verdict for `case`, where the baseline ran.
    #[must_use]
    pub fn baseline_in(&self, case: &str) -> Option<&BaselineCheck> {
        self.baseline.iter().find(|check| check.case == case)
    }

    fn check(&self, case: &str) -> Option<BaselineCheck> {
        let number = |name: &str| self.engines.iter().position(|engine| engine.name == name);
        let ours = number(BASELINE)?;
        if self.of_case(case).all(|row| row.cells[ours].is_empty()) {
            return None;
        }
        let verdict = match number(BLOBDB) {
            None => Err(format!("{BLOBDB} is not among the engines, and nothing vouches for it")),
            Some(theirs) => self.judge(case, ours, theirs),
        };
        let (stands, words) = match verdict {
            Ok(words) => (true, words),
            Err(words) => (false, words),
        };
        Some(BaselineCheck { case: case.to_string(), stands, words })
    }

    /// What it reads of what `theirs` does, worst first.
    fn judge(&self, case: &str, ours: usize, theirs: usize) -> Result<String, String> {
        let of_reads = |row: &&Row| {
            let base = row.workload.split(['@', ' ']).next();
            row.metric == THROUGHPUT && base == Some(READS)
        };
        let mut ratios = Vec::new();
        for row in self.of_case(case).filter(of_reads) {
            match (row.median(ours), row.median(theirs)) {
                (Some(ours), Some(theirs)) if theirs > 0.0 => {
                    ratios.push((ours / theirs, &row.workload));
                }
                _ => return Err(format!("{BLOBDB} has no figure for {}", row.workload)),
            }
        }
        ratios.sort_by(|(a, _), (b, _)| (b - 1.0).abs().total_cmp(&(a - 1.0).abs()));
        let Some((worst, workload)) = ratios.first() else {
            return Err(format!("there is no workload of reads alone ({READS}) to judge it by"));
        };
        let words = format!("it reads {workload} at {worst:.2} of {BLOBDB}'s");
        let within = (worst - 1.0).abs() <= WITHIN;
        if within { Ok(words) } else { Err(format!("{words}, and within {WITHIN} is asked for")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comparison of one case with these engines and their rounds of one workload.
    fn comparison(workload: &str, engines: &[(&str, &[f64])]) -> Comparison {
        let row = Row {
            case: "case".to_string(),
            workload: workload.to_string(),
            metric: THROUGHPUT.to_string(),
            unit: "ops/s".to_string(),
            cells: engines.iter().map(|(_, rounds)| rounds.to_vec()).collect(),
        };
        let names: Vec<&str> = engines.iter().map(|(name, _)| *name).collect();
        let mut comparison = Comparison::of_engines(&names, 1, &["case"]);
        comparison.rows.push(row);
        comparison.judge_baseline();
        comparison
    }

    #[test]
    fn it_stands_where_it_reads_as_blobdb_does_and_nowhere_else() {
        let judged = |workload: &str, ours: &[f64], theirs: &[f64]| {
            let engines = [("learnedkv", &[9.0][..]), (BASELINE, ours), (BLOBDB, theirs)];
            let check = comparison(workload, &engines).baseline_in("case").cloned().unwrap();
            (check.stands, check.words)
        };
        for (ours, stands) in [(86.0, true), (84.0, false), (114.0, true), (116.0, false)] {
            let (found, words) = judged("C", &[ours], &[100.0]);
            assert_eq!(found, stands, "{ours}: {words}");
            assert!(
                words.starts_with(&format!("it reads C at {:.2} of blobdb's", ours / 100.0)),
                "{words}"
            );
        }
        // Medians of the rounds, also of several clients.
        assert!(judged("C@4", &[1.0, 100.0, 110.0], &[90.0, 104.0, 400.0]).0);
        assert!(judged("C", &[100.0], &[]).1.contains("blobdb has no figure for C"));
        assert!(judged("A", &[100.0], &[100.0]).1.contains("no workload of reads alone"));
    }

    #[test]
    fn without_blobdb_nothing_vouches_and_without_it_nothing_is_said() {
        let alone = comparison("C", &[(BASELINE, &[1.0])]);
        let check = alone.baseline_in("case").unwrap();
        assert!(!check.stands && check.words.contains("not among the engines"), "{check:?}");
        assert_eq!(comparison("C", &[("learnedkv", &[1.0])]).baseline_in("case"), None);
        // It was left out of the case.
        assert_eq!(comparison("C", &[(BASELINE, &[]), (BLOBDB, &[1.0])]).baseline_in("case"), None);
    }
}
