//! The figures run whole, tiny, so that they cannot rot.

use std::fs;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_learnedkv-bench");

#[test]
fn every_figure_runs_and_leaves_only_its_tables() {
    let outer = tempfile::tempdir().unwrap();
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
    ] {
        assert!(written.contains(&format!("\n## {head}")), "no {head}");
    }
    // Both have the run with lz4.
    assert!(written.contains(" exact, lz4 |"), "{written}");
    let with_lz4 = |line: &str| line.starts_with("| zipfian ") && line.contains(" lz4 |");
    assert!(written.lines().any(with_lz4), "{written}");
    assert!(written.contains("paths: left out, no such file"));
    assert!(!stores.exists(), "the stores are still there");
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
