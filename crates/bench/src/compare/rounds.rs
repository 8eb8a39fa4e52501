//! How our engines stand against each rival round by round: two medians may be of different rounds, and of different hours.

use super::summary::{Comparison, Row, THROUGHPUT};
use super::tables::{Table, short};

/// For each of our engines a table of `case`: for each workload its throughput over that of each rival, and of the best of them, in each
/// round. None where there was one round only.
pub(super) fn of_case(comparison: &Comparison, case: &str) -> Vec<Table> {
    let ours = comparison.engines.iter().enumerate().filter(|(_, engine)| engine.ours);
    let ours = ours.filter(|_| comparison.rounds > 1);
    ours.map(|(number, engine)| Table {
        title: format!("throughput of {} over that of each rival, by rounds", engine.name),
        rows: rows(comparison, case, number),
        note: "the best is the best of that round, of those that did it at all; - where one has not as many figures as there were rounds".to_string(),
    })
    .collect()
}

fn rows(comparison: &Comparison, case: &str, ours: usize) -> Vec<Vec<String>> {
    let engines = &comparison.engines;
    let rivals: Vec<usize> = (0..engines.len()).filter(|&number| engines[number].rival).collect();
    if rivals.is_empty() {
        return Vec::new();
    }
    let lsm: Vec<usize> = rivals.iter().copied().filter(|&n| engines[n].lsm_rival).collect();
    let names = rivals.iter().map(|&number| engines[number].name.as_str());
    let names =
        ["workload"].into_iter().chain(names).chain(["the best LSM rival", "the best rival"]);
    let head = names.map(str::to_string).collect();
    let of_workload = |row: &Row| {
        let single = rivals.iter().map(std::slice::from_ref);
        let against = single.chain([lsm.as_slice(), rivals.as_slice()]);
        let ratios = against.map(|rivals| ratios(row, ours, rivals, comparison.rounds));
        std::iter::once(row.workload.clone()).chain(ratios).collect()
    };
    let rates = comparison.of_case(case).filter(|row| row.metric == THROUGHPUT);
    std::iter::once(head).chain(rates.map(of_workload)).collect()
}

/// In each of so many rounds the rate of `ours` over the best of those of `rivals` that did it at all. None where one of these has
/// not one of each round: nobody knows of which.
fn ratios(row: &Row, ours: usize, rivals: &[usize], rounds: usize) -> String {
    let rates = |number: &usize| row.cells.get(*number).filter(|rates| !rates.is_empty());
    let rivals: Vec<&Vec<f64>> = rivals.iter().filter_map(rates).collect();
    let mine = rates(&ours).filter(|_| !rivals.is_empty());
    let is_whole = |rates: &&Vec<f64>| rates.len() == rounds;
    let Some(mine) = mine.filter(is_whole).filter(|_| rivals.iter().all(is_whole)) else {
        return "-".to_string();
    };
    let best = |round: usize| rivals.iter().map(|rates| rates[round]).fold(0.0, f64::max);
    let ratios = mine.iter().enumerate().map(|(round, rate)| match best(round) {
        best if best > 0.0 => short(rate / best),
        _ => "-".to_string(),
    });
    ratios.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_a_best_of_its_own() {
        let row = |workload: &str, cells: [&[f64]; 4]| Row {
            case: "free".to_string(),
            workload: workload.to_string(),
            metric: THROUGHPUT.to_string(),
            unit: "ops/s".to_string(),
            cells: cells.map(<[f64]>::to_vec).into(),
        };
        let engines = ["learnedkv", "rocksdb", "fjall", "lmdb"];
        let comparison = |rounds| Comparison {
            rows: vec![
                row("A", [&[4e3, 6e3], &[1e3, 2e3], &[2e3, 1e3], &[8e3, 3e3]]),
                // One was killed in a round: nobody knows in which. One did not do it.
                row("C", [&[4e3, 6e3], &[1e3], &[2e3, 0.0], &[]]),
                row("E", [&[4e3, 6e3], &[], &[2e3, 0.0], &[8e3, 3e3]]),
                Row { metric: "read p50".to_string(), ..row("A", [&[1.0]; 4]) },
            ],
            ..Comparison::of_engines(&engines, rounds, &["free"])
        };
        let tables = of_case(&comparison(2), "free");
        let [table] = &tables[..] else { panic!("{} tables", tables.len()) };
        let expected = [
            vec!["workload", "rocksdb", "fjall", "lmdb", "the best LSM rival", "the best rival"],
            vec!["A", "4.00 3.00", "2.00 6.00", "0.500 2.00", "2.00 3.00", "0.500 2.00"],
            vec!["C", "-", "2.00 -", "-", "-", "-"],
            vec!["E", "-", "2.00 -", "0.500 2.00", "2.00 -", "0.500 2.00"],
        ];
        assert_eq!(table.rows, expected);
        assert!(table.title.contains("learnedkv"));
        assert!(of_case(&comparison(1), "free").is_empty());
    }
}
