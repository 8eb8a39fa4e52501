//! The house rules that can be read off the text: names that do not belong somewhere, sizes, files.

use super::scan::{Source, closing, head_end, line_of, words};

/// Names that do not belong in some places.
struct Banned {
    /// Any of these, each as a whole word.
    words: &'static [&'static str],
    /// Where the rule holds: paths that begin so.
    within: &'static [&'static str],
    /// Where it does not: paths below those that begin so.
    except: &'static [&'static str],
    /// Whether it holds for tests too.
    in_tests: bool,
    /// What to do about it.
    instead: &'static str,
    /// A line that breaks the rule, at the first path of `within`.
    sample: &'static str,
}

const LIBRARIES: &[&str] = &["crates/learnedkv/src/", "crates/learned/src/"];
const DISK: &str = "crates/learnedkv/src/disk/";
const EXECUTOR: &str = "crates/learnedkv/src/executor/";
/// Where `unsafe` may be, each use with its reason.
const UNSAFE_ROOMS: &[&str] = &[
    "crates/learnedkv/src/disk/real/",
    "crates/learnedkv/src/disk/real.rs",
    "crates/learnedkv/src/memory/hint.rs",
    "crates/learnedkv/src/memory/pieces.rs",
    "crates/learnedkv/src/memory/tail.rs",
    // Rivals in other languages: C APIs, one of them loaded at run time, the other of a memory map.
    "crates/bench/src/engines/rocksdb/ffi.rs",
    "crates/bench/src/engines/lmdb/ffi.rs",
];

const BANNED: &[Banned] = &[
    Banned {
        words: &["unsafe"],
        within: &["crates/"],
        except: UNSAFE_ROOMS,
        in_tests: true,
        instead: "keep `unsafe` in disk/real and memory, or name a new room in docs/ARCHITECTURE.md and here",
        sample: "unsafe { go() }",
    },
    Banned {
        words: &["Instant", "SystemTime", "UNIX_EPOCH"],
        within: LIBRARIES,
        except: &[DISK, EXECUTOR],
        in_tests: false,
        instead: "take the time from Executor::now, so that a seed decides it in tests",
        sample: "let now = Instant::now();",
    },
    Banned {
        words: &["rand", "getrandom", "fastrand", "thread_rng", "RandomState"],
        within: LIBRARIES,
        except: &[DISK, EXECUTOR],
        in_tests: false,
        instead: "take randomness through the disk or the executor, so that a seed decides it",
        sample: "let tag: u64 = rand::random();",
    },
    Banned {
        words: &["std::thread", "thread::sleep", "thread::spawn", "thread_local!"],
        within: LIBRARIES,
        except: &[DISK, EXECUTOR],
        in_tests: false,
        instead: "spawn a Job on the Executor; wait in Executor::wait_until",
        sample: "std::thread::sleep(delay);",
    },
    Banned {
        words: &["std::fs", "std::net", "std::process", "std::env", "rustix", "libc", "io_uring"],
        within: LIBRARIES,
        except: &[DISK],
        in_tests: false,
        instead: "every byte goes through the Disk trait",
        sample: "let file = std::fs::File::open(path)?;",
    },
    Banned {
        words: &["memmap2"],
        within: LIBRARIES,
        except: &[DISK, "crates/learnedkv/src/memory/pieces.rs"],
        in_tests: false,
        instead: "every byte goes through the Disk trait, and memory through room `memory`",
        sample: "let map = memmap2::MmapMut::map_anon(1)?;",
    },
    Banned {
        words: &[
            "to_le_bytes",
            "from_le_bytes",
            "to_be_bytes",
            "from_be_bytes",
            "to_ne_bytes",
            "from_ne_bytes",
        ],
        within: &["crates/learnedkv/src/"],
        except: &["crates/learnedkv/src/format/", "crates/learnedkv/src/format.rs"],
        in_tests: false,
        instead: "`format` alone knows how integers become bytes: add what is missing there",
        sample: "out.extend(count.to_le_bytes());",
    },
    Banned {
        words: &["to_ne_bytes", "from_ne_bytes"],
        within: &["crates/"],
        except: &[],
        in_tests: true,
        instead: "little-endian: what is written on one machine is read on another",
        sample: "let x = u64::from_ne_bytes(bytes);",
    },
    Banned {
        words: &["HashMap", "HashSet"],
        within: LIBRARIES,
        except: &[],
        in_tests: false,
        instead: "BTreeMap or BTreeSet: the order of a HashMap differs from run to run, and a seed \
                  must decide everything",
        sample: "use std::collections::{BTreeMap, HashMap};",
    },
    Banned {
        words: &["println!", "eprintln!", "print!", "eprint!", "dbg!"],
        within: LIBRARIES,
        except: &[],
        in_tests: false,
        instead: "a library does not print: return it, or count it in stats",
        sample: "eprintln!(\"slow\");",
    },
    Banned {
        words: &["todo!", "unimplemented!"],
        within: &["crates/"],
        except: &[],
        in_tests: true,
        instead: "write it, or return an Unsupported error that says what is missing",
        sample: "fn later() { todo!() }",
    },
];

/// Names of files and directories that say nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "shared"];

/// Where a link may lead from a comment: to the papers.
const PAPER_HOSTS: &[&str] = &[
    "doi.org/",
    "arxiv.org/",
    "dl.acm.org/",
    "www.usenix.org/",
    "www.vldb.org/",
    "www.cidrdb.org/",
];

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;

/// Longer than a rule allows, with the length they have. A ratchet: entries only shrink and go.
/// Files by path, functions as `path::name`.
pub const TOO_LONG: &[(&str, usize)] = &[];

/// Every rule of this page, on one file.
pub fn check(source: &Source) -> Vec<String> {
    let mut found = banned(source);
    found.extend(reasons_for_unsafe(source));
    found.extend(hosts(source));
    found.extend(names(&source.path));
    if !source.text.starts_with("//!") && !source.text.starts_with("#!") {
        found.push(format!(
            "{}:1: no contract; instead: open with `//!`: what this file is",
            source.path
        ));
    }
    found.extend(lengths(source, TOO_LONG));
    found
}

fn banned(source: &Source) -> Vec<String> {
    let begins = |paths: &[&str]| paths.iter().any(|path| source.path.starts_with(path));
    let mut found = Vec::new();
    for rule in BANNED.iter().filter(|rule| begins(rule.within) && !begins(rule.except)) {
        let code = if rule.in_tests { &source.code } else { &source.shipped };
        for word in rule.words {
            found.extend(words(code, word).map(|at| {
                let line = line_of(code, at);
                format!("{}:{line}: `{word}`; instead: {}", source.path, rule.instead)
            }));
        }
    }
    found
}

/// Each `unsafe` has its reason in the comment above it.
fn reasons_for_unsafe(source: &Source) -> Vec<String> {
    let lines: Vec<_> = source.text.lines().collect();
    words(&source.code, "unsafe")
        .map(|at| line_of(&source.code, at))
        .filter(|&line| {
            let above = &lines[line.saturating_sub(8)..line];
            !above.iter().any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
        })
        .map(|line| {
            format!(
                "{}:{line}: `unsafe` without a reason; instead: say `// SAFETY: ...`",
                source.path
            )
        })
        .collect()
}

/// No address but a paper's, and that in a comment.
fn hosts(source: &Source) -> Vec<String> {
    let scheme = "://";
    source
        .text
        .match_indices(scheme)
        .filter(|&(at, _)| {
            source.text[..at].ends_with("http") || source.text[..at].ends_with("https")
        })
        .filter(|&(at, _)| {
            let line = source.text[..at].rsplit('\n').next().unwrap_or("").trim_start();
            let to = &source.text[at + scheme.len()..];
            !(line.starts_with("//") && PAPER_HOSTS.iter().any(|host| to.starts_with(host)))
        })
        .map(|(at, _)| {
            let line = line_of(&source.text, at);
            format!(
                "{}:{line}: a network address; instead: none in code, and only papers in comments",
                source.path
            )
        })
        .collect()
}

fn names(path: &str) -> Vec<String> {
    let empty = |part: &str| EMPTY_NAMES.contains(&part);
    let versioned = |part: &str| {
        let tail = part.rsplit(['_', '-']).next().unwrap_or("");
        let number = tail.strip_prefix('v').is_some_and(|n| n.parse::<u32>().is_ok());
        tail != part && (number || matches!(tail, "new" | "old" | "legacy"))
    };
    path.trim_end_matches(".rs")
        .split('/')
        .filter(|part| empty(part) || versioned(part))
        .map(|part| {
            format!("{path}:1: the name `{part}`; instead: say what is in it, not when or for whom")
        })
        .collect()
}

/// The lengths of the file and of its functions, as (what, line, length, limit).
fn measured(source: &Source) -> Vec<(String, usize, usize, usize)> {
    let code = &source.code;
    let mut found = vec![(source.path.clone(), 1, source.text.lines().count(), MAX_FILE_LINES)];
    for at in words(code, "fn ") {
        let body = head_end(code, at);
        let name = code[at + 3..].split(['(', '<']).next().unwrap_or("").trim();
        if code[body..].starts_with('{') && !name.is_empty() {
            let first = line_of(code, at);
            let last = line_of(code, closing(code, body) - 1);
            found.push((
                format!("{}::{name}", source.path),
                first,
                last - first + 1,
                MAX_FUNCTION_LINES,
            ));
        }
    }
    found
}

fn lengths(source: &Source, exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut found = Vec::new();
    for (what, line, length, limit) in measured(source) {
        let place = format!("{}:{line}: `{what}` has {length} lines", source.path);
        match exceptions.iter().find(|(name, _)| *name == what) {
            None if length > limit => {
                found
                    .push(format!("{place}, more than {limit}; instead: split it by what it does"));
            }
            Some((_, allowed)) if length > *allowed => {
                found
                    .push(format!("{place}, more than its exception {allowed}; instead: split it"));
            }
            Some((_, allowed)) if length < *allowed => {
                found.push(format!(
                    "{place}; instead of {allowed} write that in TOO_LONG, or drop the entry"
                ));
            }
            _ => {}
        }
    }
    found
}

/// Exceptions that name nothing any more.
pub fn stale_exceptions(sources: &[Source], exceptions: &[(&str, usize)]) -> Vec<String> {
    let all: Vec<_> = sources.iter().flat_map(measured).map(|(what, ..)| what).collect();
    exceptions
        .iter()
        .filter(|(name, _)| !all.iter().any(|what| what == name))
        .map(|(name, _)| {
            format!("{name}: an exception for nothing; instead: drop it from TOO_LONG")
        })
        .collect()
}

#[test]
fn every_banned_word_can_be_found() {
    for rule in BANNED {
        let path = format!("{}x/sample.rs", rule.within[0]);
        let breaks = |path: &str, text: &str| {
            banned(&Source::new(path, text)).iter().any(|line| line.contains(rule.instead))
        };
        assert!(breaks(&path, rule.sample), "{}", rule.sample);
        for word in rule.words {
            assert!(breaks(&path, &format!("a\n{word} b")), "{word}");
        }
        assert!(!breaks(&path, &format!("// {}", rule.sample)));
        assert_eq!(
            breaks(&path, &format!("#[cfg(test)] mod t {{ {} }}", rule.sample)),
            rule.in_tests
        );
        for except in rule.except {
            let path =
                if except.ends_with('/') { format!("{except}mod.rs") } else { except.to_string() };
            assert!(!breaks(&path, rule.sample), "{path}");
        }
    }
}

#[test]
fn every_other_rule_can_fail() {
    let file = |text: &str| Source::new("crates/x/src/a.rs", text);
    assert_eq!(reasons_for_unsafe(&file("//! a\n\nunsafe { b() }")).len(), 1);
    assert_eq!(reasons_for_unsafe(&file("// SAFETY: b asks nothing\nunsafe { b() }")).len(), 0);
    // Written apart: this file keeps the rule too.
    let link = ["https", "://"].concat();
    for (text, wrong) in [
        ("//! See <@doi.org/10.1/2>.", 0),
        ("let host = \"@doi.org/10.1/2\";", 1),
        ("// @example.org/", 1),
        ("// http and ://", 0),
    ] {
        assert_eq!(hosts(&file(&text.replace('@', &link))).len(), wrong, "{text}");
    }
    for (path, wrong) in [
        ("crates/x/src/utils.rs", 1),
        ("crates/x/src/common/mod.rs", 1),
        ("crates/x/src/block_v2.rs", 1),
        ("crates/x-old/src/block.rs", 1),
        ("crates/x/src/view.rs", 0),
    ] {
        assert_eq!(names(path).len(), wrong, "{path}");
    }
    assert!(check(&file("use a;"))[0].contains("open with `//!`"));
    assert!(check(&file("//! A file.\nuse a;")).is_empty());
}

#[test]
fn lengths_are_a_ratchet() {
    let function = |lines: usize| format!("//! a\nfn long<T>() {{{}}}\n", "\n".repeat(lines - 1));
    let of = |text: &str, exceptions: &[(&str, usize)]| {
        lengths(&Source::new("crates/x/src/a.rs", text), exceptions).len()
    };
    let name = "crates/x/src/a.rs::long";
    assert_eq!(of(&function(70), &[]), 0);
    assert_eq!(of(&function(71), &[]), 1);
    assert_eq!(of(&function(71), &[(name, 71)]), 0);
    assert_eq!(of(&function(72), &[(name, 71)]), 1);
    assert_eq!(of(&function(71), &[(name, 72)]), 1);
    let array = function(71).replace("()", "() -> [u8; 4]");
    assert_eq!(of(&array, &[]), 1);
    assert_eq!(of(&"//! a\n".repeat(600), &[]), 0);
    assert_eq!(of(&"//! a\n".repeat(601), &[]), 1);
    let sources = [Source::new("crates/x/src/a.rs", &function(71))];
    assert_eq!(stale_exceptions(&sources, &[(name, 71), ("crates/x/src/gone.rs", 700)]).len(), 1);
}
