//! Tells the program which commit it is built from, so that no figure stands without one: the
//! environment variable `LEARNEDKV_COMMIT` of the build, shown by `report::version`. And which versions of
//! rivals: `LEARNEDKV_VERSION_OF_FJALL` and so on.
//!
//! Where there is no git, or the sources are no checkout of their own, it is `unknown`. It runs again when
//! a commit is made or checked out, or when a source changes, and at no other time.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program is built from, below the workspace.
const SOURCES: [&str; 9] = [
    "Cargo.toml",
    "Cargo.lock",
    "crates/learned/Cargo.toml",
    "crates/learned/src",
    "crates/learnedkv/Cargo.toml",
    "crates/learnedkv/src",
    "crates/bench/Cargo.toml",
    "crates/bench/build.rs",
    "crates/bench/src",
];
/// The crates of rivals, whose versions are told beside their figures.
const RIVALS: [&str; 3] = ["fjall", "lmdb-master-sys", "redb"];
/// How git is asked for changes: without writing its index.
const STATUS: [&str; 4] = ["--no-optional-locks", "status", "--porcelain", "--"];
/// What of git's own changes with a commit. Its index is not among it: `git status` writes that.
const OF_GIT: [&str; 3] = ["HEAD", "logs/HEAD", "packed-refs"];

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = here.ancestors().nth(2).unwrap_or(&here).to_path_buf();
    for source in SOURCES {
        watch(&root.join(source));
    }
    for file in OF_GIT {
        watch_git(&root, file);
    }
    if let Some(branch) = git(&root, &["symbolic-ref", "-q", "HEAD"]) {
        watch_git(&root, &branch);
    }
    let commit = commit(&root).unwrap_or_else(|| "unknown".to_string());
    println!("cargo::rustc-env=LEARNEDKV_COMMIT={commit}");
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    for rival in RIVALS {
        let version = locked(&lock, rival).unwrap_or("unknown");
        let name = rival.to_uppercase().replace('-', "_");
        println!("cargo::rustc-env=LEARNEDKV_VERSION_OF_{name}={version}");
    }
}

/// The version of the package `name` in a lock file.
fn locked<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let of = lock.split("[[package]]").find(|of| of.contains(&format!("name = \"{name}\"\n")))?;
    of.split_once("version = \"")?.1.split('"').next()
}

/// The commit that is checked out in `root`, and whether the sources are as it has them.
fn commit(root: &Path) -> Option<String> {
    // A copy of the sources within another project's checkout is not of that project's commit.
    let checkout = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if checkout.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let commit = git(root, &["rev-parse", "--short=10", "HEAD"])?;
    let changed = git(root, &[&STATUS[..], &SOURCES].concat())?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

/// What git says, if it is there and succeeds.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

fn watch_git(root: &Path, file: &str) {
    if let Some(path) = git(root, &["rev-parse", "--git-path", file]) {
        watch(&root.join(path));
    }
}

/// Has cargo run this again when `path` changes. One that is not there would do so at each build.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
