//! How a test says that it was skipped, or a part of it, for want of something the machine does not have.
//!
//! A test that passes shows nothing of what it prints, so a skip that is only printed is seen by nobody.
//! [`skip`] writes past the test harness to standard error, and appends a line to the file that
//! `LEARNEDKV_SKIPS` names; `.ci/run` sets that and shows the lines at its end. Where a machine is known
//! to have what tests ask for, `LEARNEDKV_REQUIRE` names it (`mount,io_uring`): then they fail instead.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// Says that the test on this thread is skipped, or a part of it: `what` it needs (a word that
/// `LEARNEDKV_REQUIRE` may name) is not there, and `why`.
///
/// # Panics
/// If `LEARNEDKV_REQUIRE` names it, or the file of `LEARNEDKV_SKIPS` cannot be written.
pub fn skip(what: &str, why: &str) {
    let thread = std::thread::current();
    let line = line(thread.name().unwrap_or("a test"), what, why);
    // Not `eprint!`, which the harness catches.
    io::stderr().write_all(line.as_bytes()).ok();
    if let Some(path) = std::env::var_os("LEARNEDKV_SKIPS") {
        append(&path, &line).unwrap_or_else(|e| panic!("LEARNEDKV_SKIPS={path:?}: {e}"));
    }
    let required = std::env::var("LEARNEDKV_REQUIRE").unwrap_or_default();
    assert!(!is_required(&required, what), "LEARNEDKV_REQUIRE={required}, but {line}");
}

fn line(test: &str, what: &str, why: &str) -> String {
    // One line, whatever a system said.
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("skipped {test}: {what}: {why}\n")
}

/// One write, so that lines of processes and threads do not mix.
fn append(path: &OsStr, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

fn is_required(required: &str, what: &str) -> bool {
    required.split(',').any(|word| word.trim() == what)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Not a test by itself: what the one below looks at from outside.
    #[test]
    fn skips_itself() {
        if std::env::var_os("LEARNEDKV_TEST_SKIP").is_some() {
            skip("nothing", "it only\n  shows how");
        }
    }

    fn run(skips: &OsStr, required: &str) -> (bool, String) {
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::skips_itself"])
            .env("LEARNEDKV_TEST_SKIP", "1")
            .env("LEARNEDKV_SKIPS", skips)
            .env("LEARNEDKV_REQUIRE", required)
            .output()
            .unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    }

    #[test]
    fn a_skip_is_seen_though_the_test_passes_and_fails_where_it_must_not_be() {
        let path = std::env::temp_dir().join(format!("learnedkv-skips-{}", std::process::id()));
        let line = "skipped tests::skips_itself: nothing: it only shows how\n";
        let (passed, said) = run(path.as_os_str(), "mount,all");
        assert!(passed && said.contains(line), "{said}");
        let (passed, said) = run(path.as_os_str(), "mount, nothing");
        assert!(!passed && said.contains(line), "{said}");
        let told = std::fs::read_to_string(&path);
        std::fs::remove_file(&path).ok();
        assert_eq!(told.unwrap(), line.repeat(2));
    }

    #[test]
    fn only_what_is_named_is_required() {
        for (required, expected) in [("", false), ("a", true), ("b,a", true), ("ab, b", false)] {
            assert_eq!(is_required(required, "a"), expected, "{required:?}");
        }
    }
}
