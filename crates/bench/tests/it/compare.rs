//! `compare` on every suite, tiny: what is measured is nothing, but that it works and what it
//! leaves.

use std::process::Command;

use learnedkv_bench::compare::{Comparison, suites::SUITES};

use crate::report::check_page;

/// Runs the command and returns what it printed, on both sides, and whether it succeeded.
fn compare(arguments: &[&str], dir: &std::path::Path) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_learnedkv-bench"))
        .arg("compare")
        .args(arguments)
        .arg("--dir")
        .arg(dir.join("store"))
        .arg("--out")
        .arg(dir.join("out"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn comparison(dir: &std::path::Path) -> Comparison {
    let json = std::fs::read_to_string(dir.join("out/compare.json")).unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn every_suite_runs_tiny_and_leaves_its_reports() {
    for suite in SUITES {
        let dir = tempfile::tempdir().unwrap();
        let engines = "learnedkv,learnedkv-lsm,btree-map";
        let rounds = if suite.name == "ycsb" { "2" } else { "1" };
        let arguments = ["--suite", suite.name, "--scale", "tiny", "--engines", engines];
        let (good, out, err) =
            compare(&[&arguments[..], &["--rounds", rounds]].concat(), dir.path());
        assert!(good, "{}: {err}\n{out}", suite.name);
        assert!(out.lines().last().unwrap().starts_with("report: "), "{out}");
        assert!(!dir.path().join("store").exists(), "the store is still there");

        let comparison = comparison(dir.path());
        assert_eq!(comparison.cases.len(), suite.cases.len());
        assert!(comparison.notes.is_empty(), "{:?}", comparison.notes);
        for case in suite.cases {
            let of = |metric: &str| {
                let all = comparison.rows.iter().filter(|row| row.case == case.name);
                all.filter(|row| row.metric == metric).collect::<Vec<_>>()
            };
            let measured = case.workloads.split(',').filter(|name| *name != "settle").count();
            let throughput = of("throughput");
            assert_eq!(throughput.len(), measured, "{}", case.name);
            for row in throughput {
                assert!(row.cells.iter().flatten().all(|rate| *rate > 0.0), "{row:?}");
                assert!(row.cells.iter().all(|cell| cell.len().to_string() == rounds), "{row:?}");
            }
            assert!(of("metadata")[0].median(0).is_some_and(|bits| bits > 0.0));
            assert!(of("written per byte put")[0].median(1).is_some());
        }
        let page = std::fs::read_to_string(dir.path().join("out/compare.html")).unwrap();
        check_page(&page);
        let markdown = std::fs::read_to_string(dir.path().join("out/compare.md")).unwrap();
        assert!(markdown.contains("| workload | learnedkv | learnedkv-lsm | btree-map |"));
    }
}

#[test]
fn an_engine_that_fails_is_said_and_the_others_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = [
        "--scale",
        "tiny",
        "--engines",
        "btree-map,learnedkv",
        "--rounds",
        "1",
        "--option",
        "learnedkv:nosuch=1",
    ];
    let (good, out, err) = compare(&arguments, dir.path());
    assert!(
        !good && err.contains("1 runs failed") && err.contains("option nosuch=1"),
        "{err}\n{out}"
    );
    let comparison = comparison(dir.path());
    assert!(comparison.notes[0].contains("learnedkv"), "{:?}", comparison.notes);
    let rates = comparison.rows.iter().find(|row| row.metric == "throughput").unwrap();
    assert!(rates.median(0).is_some() && rates.median(1).is_none());
}

#[test]
fn what_cannot_be_compared_is_refused_before_anything_is_run() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["--suite", "nosuch"][..], "unknown suite `nosuch`"),
        (&["--engines", "learnedkv,nosuch"], "unknown engine `nosuch`"),
        (&["--scale", "huge"], "--scale: expected tiny or full, found `huge`"),
        (&["--rounds", "0"], "--rounds: at least 1"),
        (&["--option", "learnedkv"], "--option: expected ENGINE:NAME=VALUE"),
        (&["--option", "rocksdb:a=b"], "--option: expected ENGINE:NAME=VALUE"),
    ] {
        let (good, _, err) = compare(arguments, dir.path());
        assert!(!good && err.contains(words), "{arguments:?}: {err}");
    }
    assert!(!dir.path().join("store").exists() && !dir.path().join("out").exists());
}
