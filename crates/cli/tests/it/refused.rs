//! What cannot be used is refused before anything is made.

use std::fs;
use std::process::Command;

use crate::{bad, good, learnedkv};

#[test]
fn bad_options_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("full")).unwrap();
    fs::write(dir.join("full/precious"), "x").unwrap();
    let cases = [
        ("--keys zebra:5", "--keys: unknown key set `zebra`"),
        ("--keys uniform:0", "--keys: `uniform:0` holds no keys"),
        ("--keys uniform:99999999999g", "too large"),
        ("--keys uniform:5g", "at most 4,000,000,000"),
        // 768 TiB: no disk this is tested on can start it, or the test would fill that disk.
        ("--keys uniform:1m --value-size 256m", "is free; ask for fewer keys or smaller values"),
        ("--keys sosd:missing", "missing: could not read the keys"),
        ("--value-size 0", "--value-size: a value size of 0 bytes"),
        ("--value-size big", "--value-size: `big` is not a value size"),
        ("--compression zip", "--compression: expected a compression (none, lz4, zstd"),
        (
            "--settled-compression zstd:99",
            "--settled-compression: compression zstd: expected a level",
        ),
        ("--value-compressibility 2", "--value-compressibility: `2` is not a share"),
        ("--operations 0", "--operations: at least 1"),
        ("--operations -1", "unexpected argument"),
        ("--seconds never", "--seconds: `never` is not a number"),
        ("--threads 0", "--threads: at least 1"),
        ("--threads 5000", "--threads: at most 1024"),
        ("--threads 3 --keys uniform:2", "3 clients cannot share 2 keys"),
        ("--workloads A", "starts with load, bulk or ingest"),
        ("--workloads load,Z", "--workloads: unknown workload `Z`"),
        ("--workloads load,C@0", "--workloads: C@0: at least 1"),
        ("--max-keys 0", "--max-keys: at least 1"),
        ("--requests often", "--requests: unknown request distribution"),
        ("--durability none", "--durability: unknown durability"),
        ("--memory-budget lots", "--memory-budget: `lots` is not a size"),
        ("--dir full", "found files that this program did not make"),
    ];
    for (options, words) in cases {
        // The complaints of the option parser itself may take more than a line.
        if words == "unexpected argument" {
            assert_eq!(learnedkv(dir, &format!("bench {options}")).status.code(), Some(2));
            continue;
        }
        let error = bad(dir, &format!("bench {options}"), 2);
        assert!(error.contains(words), "`{options}`: expected `{words}` in: {error}");
    }
    assert!(fs::read_to_string(dir.join("full/precious")).is_ok_and(|text| text == "x"));
    assert!(!dir.join("bench-out").exists(), "a refused run left something");
    // Before what takes long, not after it.
    let error = bad(dir, "bench --keys uniform:2k --operations 2k --out full/precious", 1);
    assert!(error.contains("full/precious: could not create the directory"), "{error}");
    assert!(learnedkv(dir, "bench --keys uniform:2k --out full/precious").stdout.is_empty());
}

/// A database was made for a key that it could not take, and for a keyspace without a name.
/// It was said that an argument is no UTF-8, and not what to do.
#[test]
#[cfg(unix)]
fn a_key_that_is_no_text_is_refused_with_advice() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let key = std::ffi::OsStr::from_bytes(b"k\xff");
    let mut put = Command::new(env!("CARGO_BIN_EXE_learnedkv"));
    let output = put.arg("put").arg(dir.path().join("db")).arg(key).arg("v").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("in hexadecimal, with --hex"), "{error}");
}

#[test]
fn what_cannot_be_put_makes_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let long = "k".repeat((64 << 10) + 1);
    let error = bad(dir, &format!("put db {long} v"), 2);
    assert!(error.contains("expected a key of at most 65536 bytes, found 65537"), "{error}");
    let unnamed = Command::new(env!("CARGO_BIN_EXE_learnedkv"))
        .args(["put", "db", "k", "v", "--keyspace", ""])
        .current_dir(dir)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&unnamed.stderr);
    assert!(unnamed.status.code() == Some(2) && error.contains("--keyspace"), "{error}");
    let error = bad(dir, &format!("put db k v --keyspace {}", "n".repeat(256)), 2);
    assert!(error.contains("expected a name of 1 to 255 bytes, found 256"), "{error}");
    assert!(!dir.join("db").exists());
    good(dir, "put db k v");
    let error = bad(dir, "scan db --limit x", 2);
    assert!(error.contains("--limit: `x` is not a count"), "{error}");
}

#[test]
fn what_is_not_a_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("full")).unwrap();
    fs::write(dir.join("full/precious"), "x").unwrap();
    for command in ["get full k", "scan full", "stats full", "delete full k", "put full k v"] {
        let error = bad(dir, command, 2);
        assert!(
            error.contains("full: expected an empty directory or a learnedkv database"),
            "{command}: {error}"
        );
    }
    assert_eq!(fs::read_dir(dir.join("full")).unwrap().count(), 1);
    for command in ["get none k", "scan none", "stats none", "delete none k", "clear none"] {
        assert!(bad(dir, command, 2).contains("none: there is no such directory"));
    }
    assert!(!dir.join("none").exists(), "a reading command made a directory");
}
