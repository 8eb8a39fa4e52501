//! The figures run whole, tiny, so that they cannot rot.

use std::fs;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_learnedkv-bench");

#[test]
fn every_figure_runs_and_leaves_only_its_tables() {
    // On the disk that things are built on: F2 needs direct reads, which not every /tmp has.
    let outer = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (out, stores) = (outer.path().join("measured.md"), outer.path().join("stores"));
    let output = Command::new(PROGRAM)
        .args(["figures", "--scale", "tiny", "--rounds", "1", "--data"])
        .arg(outer.path().join("none"))
        .arg("--out")
        .arg(&out)
        .arg("--dir")
        .arg(&stores)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = fs::read_to_string(&out).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), written);
    for head in [
        "F1:",
        "F10 (a):",
        "F2:",
        "F3:",
        "F8:",
        "F4:",
        "F3: sustained",
        "Ten minutes",
        "F5:",
        "F7:",
        "F9:",
        "F11:",
        "F12:",
        "Multi-get:",
        "Probing:",
        "Growth:",
    ] {
        assert!(written.contains(&format!("\n## {head}")), "no {head}");
    }
    for refused in ["NaN", "**wrong", "inf "] {
        assert!(!written.contains(refused), "{refused} in a table:\n{written}");
    }
    // One round is no figure, and says so.
    assert!(
        written.contains(" (1 round) |") && !written.contains(" aim |\n| zipfian"),
        "{written}"
    );
    check_growth(&written);
    check_memory(&written);
    // Both have the run with lz4.
    assert!(written.contains(" exact, lz4 |"), "{written}");
    let with_lz4 = |line: &str| line.starts_with("| zipfian ") && line.contains(" lz4 |");
    assert!(written.lines().any(with_lz4), "{written}");
    assert!(written.contains("paths: left out, no such file"));
    assert!(!stores.exists(), "the stores are still there");
}

/// The cells of each row of the table under `head` that begins with `first`.
fn rows<'a>(sheet: &'a str, head: &str, first: &str) -> Vec<Vec<&'a str>> {
    let section = sheet.split("\n## ").find(|section| section.starts_with(head)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with(&format!("| {first}")));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Every phase at every size, and laws that say something beyond.
fn check_growth(sheet: &str) {
    for phase in ["load ", "uniform updates ", "gets, warm ", "gets, cold ", "scans of 50 entries "]
    {
        let rows = rows(sheet, "Growth:", phase);
        let sizes: Vec<&str> = rows.iter().map(|row| row[1]).collect();
        assert_eq!(sizes, ["5,000", "10,000", "25,000", "50,000"], "{phase}");
        for row in rows {
            assert!(row[2].parse::<f64>().unwrap() > 0.0, "{row:?}");
            let writes = phase.starts_with("load") || phase.starts_with("uniform");
            assert_eq!(row[4].parse::<f64>().is_ok_and(|written| written > 1.0), writes, "{row:?}");
            assert!(row[8].parse::<f64>().unwrap() >= 0.9, "{row:?}");
        }
    }
    let cold = rows(sheet, "Growth:", "gets, cold: requests");
    let [beyond, far] = [cold[0][6], cold[0][7]].map(|model| model.parse::<f64>().unwrap());
    assert!((0.8..3.0).contains(&beyond) && (0.8..3.0).contains(&far), "{cold:?}");
    assert_eq!(rows(sheet, "Growth:", "load: ").len(), 6);
}

/// What a case of F7 took is its own: as much, whatever ran before it.
fn check_memory(sheet: &str) {
    let rows = [rows(sheet, "F7:", "mapped"), rows(sheet, "F7:", "buffered")].concat();
    let keys: Vec<&str> = rows.iter().map(|row| row[1]).collect();
    assert_eq!(keys, ["5,000", "5,000", "50,000", "50,000"].repeat(2));
    assert!(rows.iter().all(|row| !row[3].is_empty()), "{rows:?}");
}

/// A rate that is given is the one that is asked for; what nobody could keep up with is refused, and so is nothing at all.
#[test]
fn f5_asks_for_the_rate_it_is_given() {
    let outer = tempfile::tempdir().unwrap();
    let run = |rate: &str| {
        let output = Command::new(PROGRAM)
            .args(["figures", "f5", "--scale", "tiny", "--rounds", "1", "--rate", rate, "--dir"])
            .arg(outer.path().join("stores"))
            .output()
            .unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
        (output.status.code(), out, err)
    };
    let (code, sheet, error) = run("1k");
    assert_eq!(code, Some(0), "{error}");
    assert!(sheet.contains("Poisson arrivals at 1,000 a second (a closed loop reached"), "{sheet}");
    for (rate, says) in [("0", "at least 1"), ("x", "not a count"), ("1g", "less than what")] {
        let (code, _, error) = run(rate);
        assert!(code == Some(2) && error.contains(says), "{rate}: {code:?}: {error}");
    }
}

/// Another shape reaches the stores, those of processes that are started too; figures that would not heed it refuse it.
#[test]
fn figures_of_one_shape_take_another() {
    let outer = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |figures: &[&str], shape: &[&str]| {
        let output = Command::new(PROGRAM)
            .args(["figures", "--scale", "tiny", "--rounds", "1", "--dir"])
            .arg(outer.path().join("stores"))
            .args([figures, shape].concat())
            .output()
            .unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
        (output.status.code(), out, err)
    };
    let written = |figures: &[&str], shape: &[&str]| {
        let (code, sheet, error) = run(figures, shape);
        assert_eq!(code, Some(0), "{error}");
        // By the store's counters, without the log, which is as much as was put.
        let burst = rows(&sheet, "F8:", "uniform")[0][1].split(' ').next().unwrap().parse::<f64>();
        (burst.unwrap() - 1.0, sheet)
    };
    let all = ["f3", "sustained", "f7", "f9"];
    let (usual, plain) = written(&all, &[]);
    assert!(!plain.contains("Stores as asked for"), "{plain}");
    let (less, sheet) = written(&all, &["--block-size", "8k", "--compression=lz4"]);
    let told = "Stores as asked for: blocks of at most 8.0 KiB, lz4 (half of each value's bytes compress).";
    assert!(sheet.contains(told) && less < 0.9 * usual, "{less} for {usual}: {sheet}");
    let (more, sheet) = written(&["f3"], &["--min-conversion=32m"]);
    let told = "Stores as asked for: sweeps from 32.0 MiB of fresh data on at full scale.";
    assert!(sheet.contains(told) && more > usual, "{more} for {usual}: {sheet}");
    for (figures, shape, says) in [
        (&["f3", "f4"][..], "--compression=lz4", "figure f4 has stores of its own shapes"),
        (&[], "--block-size=8k", "figure f1 has stores of its own shapes"),
        (&["f3"], "--block-size=0", "--block-size: at least 1"),
        (&["f9"], "--compression=lz5", "--compression: "),
    ] {
        let (code, _, error) = run(figures, &[shape]);
        assert!(code == Some(2) && error.contains(says), "{figures:?} {shape}: {code:?}: {error}");
    }
}

#[test]
fn an_unknown_figure_is_refused() {
    let outer = tempfile::tempdir().unwrap();
    let output =
        Command::new(PROGRAM).args(["figures", "f99", "--dir"]).arg(outer.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("`f99` is not a figure; expected f1, f2"), "{text}");
}
