//! Who may use whom inside `learnedkv/src`: the arrows of docs/ARCHITECTURE.md, read from the code.
//!
//! Every path that begins at the crate's root (`crate::x`, `crate::{x, y}`, and `super::` where it
//! leads there) is an arrow from the file's room to room `x`. Tests may reach anywhere.

use super::scan::{Source, closing, is_name, line_of, words};

/// Where the engine's rooms are.
const ENGINE: &str = "crates/learnedkv/src/";

/// Each room and what it may use, from the ground up: a room uses only rooms above it in this
/// list, so there is no cycle. `learned` is the crate.
pub const ROOMS: &[(&str, &[&str])] = &[
    // Ground.
    ("learned", &[]),
    ("error", &[]),
    ("memory", &[]),
    ("format", &["learned", "error", "memory"]),
    ("disk", &["error"]),
    ("executor", &["error"]),
    // Parts.
    ("slice", &["format", "memory"]),
    ("cursor", &["error", "format", "slice"]),
    ("cache", &["error", "format", "memory"]),
    ("wal", &["error", "format", "disk"]),
    ("manifest", &["error", "format", "disk"]),
    ("sstable", &["learned", "error", "format", "memory", "disk", "slice", "cursor", "cache"]),
    ("value_log", &["error", "format", "disk", "slice", "sstable"]),
    ("memtable", &["error", "format", "memory", "slice", "cursor", "value_log"]),
    ("options", &["error", "format", "sstable"]),
    ("view", &["error", "format", "manifest", "memtable", "options", "sstable", "value_log"]),
    // What the stores share, and the stores.
    ("engine", ENGINE_USES),
    ("lsm", RUNS),
    ("tiered", STORE),
    // Whole databases, looked at from outside.
    ("verify", VERIFY),
    ("inspect", INSPECT),
    // For `fuzz/` and the tests alone: every decoder, whichever room it is in.
    ("fuzzing", FUZZING),
    // The top: the database, its keyspaces, batches, snapshots and iterators.
    ("db", TOP),
    ("lib", CRATE),
];

const ENGINE_USES: &[&str] = &[
    "error",
    "format",
    "memory",
    "disk",
    "executor",
    "cache",
    "memtable",
    "wal",
    "manifest",
    "sstable",
    "value_log",
    "options",
    "view",
];
const RUNS: &[&str] = &[
    "error",
    "format",
    "memory",
    "executor",
    "slice",
    "cursor",
    "memtable",
    "manifest",
    "sstable",
    "value_log",
    "view",
    "engine",
    "options",
];
const STORE: &[&str] = &[
    "error",
    "format",
    "executor",
    "slice",
    "cursor",
    "memtable",
    "manifest",
    "sstable",
    "value_log",
    "view",
    "engine",
    "options",
    "lsm",
];
const VERIFY: &[&str] =
    &["error", "format", "disk", "executor", "wal", "manifest", "sstable", "value_log", "engine"];
const INSPECT: &[&str] =
    &["error", "format", "memory", "disk", "wal", "manifest", "sstable", "value_log"];
const FUZZING: &[&str] = &[
    "error", "format", "memory", "disk", "slice", "cursor", "memtable", "wal", "manifest",
    "options", "sstable",
];
/// `manifest` only for the state that a plan of an edit sees.
const TOP: &[&str] = &[
    "error",
    "format",
    "memory",
    "disk",
    "executor",
    "slice",
    "cursor",
    "manifest",
    "options",
    "value_log",
    "view",
    "engine",
    "lsm",
    "tiered",
    "verify",
];
const CRATE: &[&str] = &[
    "error", "format", "disk", "executor", "slice", "sstable", "options", "engine", "tiered",
    "verify", "inspect", "db",
];

/// The room a file belongs to; `None` outside the engine.
fn room_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix(ENGINE)?;
    below.split('/').next().map(|first| first.trim_end_matches(".rs"))
}

/// How many `super::` lead from the file to the crate's root.
fn depth_of(path: &str) -> usize {
    let below = path.trim_start_matches(ENGINE).trim_end_matches(".rs").trim_end_matches("/mod");
    if matches!(below, "lib" | "main") { 0 } else { below.split('/').count() }
}

/// The modules of the crate's root that a file names, each with the byte it is named at.
fn uses(source: &Source) -> Vec<(String, usize)> {
    let code = &source.shipped;
    let mut found = Vec::new();
    for at in words(code, "crate::") {
        names_at(code, at + "crate::".len(), &mut found);
    }
    let climb = "super::".repeat(depth_of(&source.path));
    for at in words(code, &climb).filter(|_| !climb.is_empty()) {
        let goes_on = code[at + climb.len()..].starts_with("super::");
        if !code[..at].ends_with("super::") && !goes_on {
            names_at(code, at + climb.len(), &mut found);
        }
    }
    for at in words(code, "learned::") {
        found.push(("learned".into(), at));
    }
    // A function or type at the root is not a room; by the habit of the language, modules are the
    // lower-case names that a path goes on from, or that a `use` brings in.
    found.retain(|(name, _)| name.starts_with(|c: char| c.is_lowercase()));
    found
}

/// The name at byte `at`, or the first name of each item of the `{...}` there.
fn names_at(code: &str, at: usize, found: &mut Vec<(String, usize)>) {
    let name_from = |at: usize| code[at..].chars().take_while(|&c| is_name(c)).collect::<String>();
    if !code[at..].starts_with('{') {
        found.push((name_from(at), at));
        return;
    }
    let (mut depth, mut expects) = (0, false);
    for (offset, c) in code[at..closing(code, at)].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 1 && matches!(c, '{' | ',') {
            expects = true;
        } else if expects && is_name(c) {
            found.push((name_from(at + offset), at + offset));
            expects = false;
        }
    }
}

/// The arrows that point the wrong way.
pub fn check(source: &Source) -> Vec<String> {
    let Some(room) = room_of(&source.path) else { return Vec::new() };
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return vec![format!(
            "{}:1: unknown room `{room}`; instead: give it its place and arrows in ROOMS \
             (tests/it/tidy/arrows.rs) and a section in docs/ARCHITECTURE.md",
            source.path
        )];
    };
    let wrong = |name: &str| name != room && !allowed.contains(&name);
    uses(source)
        .into_iter()
        .filter(|(name, _)| wrong(name))
        .map(|(name, at)| {
            let line = line_of(&source.shipped, at);
            format!(
                "{}:{line}: `{room}` must not use `{name}`; instead: use only {allowed:?}, or move \
                 what both need down",
                source.path
            )
        })
        .collect()
}

/// The rooms of the engine that have files, each once.
pub fn rooms_in_use(sources: &[Source]) -> Vec<&str> {
    let mut rooms: Vec<_> = sources.iter().filter_map(|source| room_of(&source.path)).collect();
    rooms.dedup();
    rooms
}

#[test]
fn arrows_point_down() {
    for (place, (room, allowed)) in ROOMS.iter().enumerate() {
        for used in *allowed {
            let below = ROOMS[..place].iter().any(|(name, _)| name == used);
            assert!(below, "`{room}` may use `{used}`, which is not below it");
        }
    }
}

#[test]
fn a_wrong_arrow_is_found() {
    let sample = |path: &str, text: &str| {
        let found = check(&Source::new(&format!("{ENGINE}{path}"), text));
        found.iter().map(|line| line.split(';').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    let file = "crates/learnedkv/src/format/block.rs";
    let wrong = format!("{file}:2: `format` must not use `disk`");
    for text in [
        "//! x\nuse crate::disk::File;",
        "//! x\nuse crate::{error::{Error, Result}, disk};",
        "//! x\nuse super::super::disk::File;",
        "//! x\nfn a() { crate::disk::open() }",
    ] {
        assert_eq!(sample("format/block.rs", text), [wrong.as_str()], "{text}");
    }
    for text in [
        "use crate::{error::{disk, Result}, format::Block};",
        "use super::disk::File;",
        "// crate::disk\n#[cfg(test)]\nmod tests { use crate::disk::File; }",
        "use crate::Error;",
    ] {
        assert!(sample("format/block.rs", text).is_empty(), "{text}");
    }
    assert_eq!(sample("disk/mod.rs", "use learned::Model;").len(), 1);
    assert_eq!(sample("wal/mod.rs", "use super::db::Database;").len(), 1);
    assert_eq!(sample("engine/mod.rs", "use crate::tiered::Sweep;").len(), 1);
    assert_eq!(sample("attic/mod.rs", "").len(), 1);
    assert!(sample("tiered/sweep.rs", "use crate::engine::Engine;").is_empty());
    assert!(sample("lib.rs", "pub use crate::db::Database;").is_empty());
}
