//! What a program that is interrupted leaves behind, tried by real signals.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_learnedkv-bench");

fn start(arguments: &[&str], dir: &Path, out: &Path) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--dir").arg(dir).arg("--out").arg(out);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends `signal` once a store is being filled, and waits for the end.
fn interrupt(mut child: Child, dir: &Path, signal: &str) -> Output {
    let give_up = Instant::now() + Duration::from_secs(60);
    // Each engine of a comparison has a place of its own in that of the whole.
    let stores = [dir.join("db"), dir.join("db/db")];
    let has_tables = || {
        let files = stores.iter().flat_map(|store| std::fs::read_dir(store).into_iter().flatten());
        let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("table-")).count() > 2
    };
    while !has_tables() {
        assert!(Instant::now() < give_up, "no store in {}", dir.display());
        assert_eq!(child.try_wait().unwrap(), None, "it has ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    child.wait_with_output().unwrap()
}

/// A gigabyte stayed, and not a word was said.
#[test]
fn an_interrupted_program_removes_its_store_and_says_so() {
    let fill = ["--keys", "uniform:5m", "--value-size", "100", "--workloads", "load"];
    let fill = [&fill[..], &["--memory-budget", "128MiB", "--quiet"]].concat();
    let run = [&["run"][..], &fill].concat();
    let compare = ["compare", "--engines", "learnedkv", "--keys", "5m", "--rounds", "1"];
    let compare = [&compare[..], &["--memory-budget", "128MiB", "--case"]].concat();
    let compare = [&compare[..], &["1016 B"]].concat();
    for (arguments, signal, code) in
        [(&run, "INT", 130), (&run, "TERM", 143), (&compare, "INT", 130)]
    {
        let outer = tempfile::tempdir().unwrap();
        let (dir, out) = (outer.path().join("store"), outer.path().join("out"));
        let ended = interrupt(start(arguments, &dir, &out), &dir, signal);
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {words}");
        let said = format!("interrupted: the store in {} is removed", dir.display());
        assert!(words.contains(&said), "{arguments:?}: {words}");
        assert!(!dir.exists(), "{arguments:?}: it is still there");
    }
}

#[test]
fn what_is_to_be_kept_stays_at_an_interrupt() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, out) = (outer.path().join("store"), outer.path().join("out"));
    let arguments = ["run", "--keys", "uniform:5m", "--value-size", "100", "--workloads", "load"];
    let arguments = [&arguments[..], &["--memory-budget", "128MiB", "--quiet", "--keep"]].concat();
    let ended = interrupt(start(&arguments, &dir, &out), &dir, "INT");
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(words.contains(&format!("{} is kept as it is", dir.display())), "{words}");
    assert!(dir.join("db").exists());
}
