//! The programs in `examples/`, run tiny, so that they do not rot. They measure nothing here.

use std::process::Command;

use learnedkv_skips::skip;

/// Runs an example with the directory and these arguments, and finds these words in what it says.
fn run(name: &str, args: &[&str], words: &[&str]) {
    // Cargo puts them beside the directory of the tests.
    let me = std::env::current_exe().unwrap();
    let path = me.ancestors().nth(2).unwrap().join("examples").join(name);
    let path = path.with_extension(std::env::consts::EXE_EXTENSION);
    if !path.exists() {
        return skip(
            "examples",
            &format!("{} is not built: cargo build --examples", path.display()),
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let ran = Command::new(path).arg(dir.path()).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let failed = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{name}: {said}{failed}");
    for word in words {
        assert!(said.contains(word), "{name} does not say {word:?}: {said}");
    }
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "{name} leaves files behind");
}

#[test]
fn the_examples_run() {
    run("idle_keyspaces", &["0", "20", "puts=2000"], &["0 idle keyspaces", "20 idle keyspaces"]);
    run("log_region", &["1", "5"], &["Mapped: ", "Buffered: "]);
    let rows =
        ["20000 keys, a budget of 1 MiB, 200 gets", "| 100 % | 100 % |", "|   0 % |   3 % |"];
    run("paged_indexes", &["20000", "1", "200"], &rows);
    run("queue", &["3000", "100", "100"], &["pop_first, tenth 9: ", "is_empty flushed: "]);
    run("reads", &["4000", "1"], &["settled 0: ", "scan 0: ", "fresh 0: ", "absent 0: "]);
    let rows = ["opened again: settled ", "8 runs, 2504 entries", " ns a key"];
    run("reopened", &["5000", "100"], &rows);
    let rows = ["absent 0 runs: ", "settled 8 runs: ", "oldest 4 runs: "];
    run("runs", &["5000", "100", "1"], &rows);
}
