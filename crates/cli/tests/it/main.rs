//! The command from outside: what it prints, how it fails, what it leaves alone.

mod check;
mod refused;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn learnedkv(dir: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_learnedkv"))
        .args(line.split_whitespace())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Standard output of a command that must succeed.
#[track_caller]
fn good(dir: &Path, line: &str) -> String {
    let output = learnedkv(dir, line);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a command that must fail with `code`, in one line.
#[track_caller]
fn bad(dir: &Path, line: &str, code: i32) -> String {
    let output = learnedkv(dir, line);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "`{line}`: {error}");
    assert_eq!(error.lines().count(), 1, "`{line}` says more than a line: {error}");
    assert!(error.starts_with("error: "), "{error}");
    error
}

#[test]
fn ranges_of_keys_are_deleted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for key in ["a1", "a2", "b1", "b2", "c1", "d1"] {
        good(dir, &format!("put db {key} v"));
    }
    good(dir, "put db kept v --keyspace other");
    let keys = || good(dir, "scan db --keys-only").split_whitespace().collect::<Vec<_>>().join(" ");
    good(dir, "delete db --from a2 --to b2");
    assert_eq!(keys(), "a1 b2 c1 d1");
    good(dir, "delete db --prefix 63 --hex");
    assert_eq!(keys(), "a1 b2 d1");
    good(dir, "delete db --from d");
    good(dir, "delete db --to a2");
    assert_eq!(keys(), "b2");
    good(dir, "delete db --from z --to a");
    assert_eq!(keys(), "b2", "no key lies in between");
    good(dir, "clear db");
    assert_eq!(keys(), "");
    assert_eq!(good(dir, "scan db --keys-only --keyspace other"), "kept\n");
    for line in ["delete db", "delete db b2 --from a", "delete db --prefix b --to c"] {
        assert_eq!(learnedkv(dir, line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn entries_go_in_and_come_out() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    good(dir, "put db apple red");
    good(dir, "put db banana yellow");
    good(dir, "put db --hex 6100 ff");
    assert_eq!(good(dir, "get db apple"), "red\n");
    assert_eq!(good(dir, "get db apple --raw"), "red");
    assert_eq!(good(dir, "get db --hex 6100"), "ff\n");
    assert_eq!(good(dir, "scan db"), "a\\u{0}\t\\xff\napple\tred\nbanana\tyellow\n");
    assert_eq!(good(dir, "scan db --prefix b"), "banana\tyellow\n");
    assert_eq!(good(dir, "scan db --from ab --to b --keys-only"), "apple\n");
    assert_eq!(good(dir, "scan db --limit 1 --hex"), "6100\tff\n");
    assert_eq!(good(dir, "scan db --limit 0"), "");
    good(dir, "delete db apple");
    assert!(bad(dir, "get db apple", 3).contains("key apple is not there"));
    assert!(bad(dir, "delete db apple", 3).contains("key apple is not there"));
    assert!(!good(dir, "stats db").trim().is_empty());
}

#[test]
fn commands_that_read_change_nothing() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path();
    good(dir, "put db apple red");
    let files = || {
        let entries = fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> =
            entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect();
        files.sort();
        files
    };
    let before = files();
    good(dir, "get db apple");
    good(dir, "get db apple --raw");
    good(dir, "scan db");
    good(dir, "stats db");
    bad(dir, "get db banana", 3);
    assert!(files() == before, "a file was changed");
    fs::write(dir.join("file"), "no database").unwrap();
    for command in ["get file key", "scan file", "stats file", "put file key value"] {
        assert!(bad(dir, command, 2).contains("expected the directory of a database"), "{command}");
    }
}

/// Puts a value from a file, as key `key` of database `db` in `dir`.
fn put_from_file(dir: &Path, value: &[u8]) {
    fs::write(dir.join("value"), value).unwrap();
    let put = Command::new(env!("CARGO_BIN_EXE_learnedkv"))
        .args(["put", "db", "key"])
        .current_dir(dir)
        .stdin(fs::File::open(dir.join("value")).unwrap())
        .status()
        .unwrap();
    assert!(put.success());
}

#[test]
fn long_values_pass_through_the_command() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path();
    let value: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7 % 251) as u8).collect();
    put_from_file(dir, &value);
    let got = learnedkv(dir, "get db key --raw");
    assert!(got.status.success() && got.stdout == value);
}

/// It read the value first: one that was damaged stayed for ever, and a long one took twice its length in memory.
#[test]
fn a_key_is_deleted_without_its_value_being_read() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path();
    let value: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(i) / 7) as u8).collect();
    put_from_file(dir, &value);
    let paths = fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let is_values = |path: &std::path::PathBuf| path.to_string_lossy().contains("values-");
    let values: Vec<_> = paths.filter(is_values).collect();
    let [values] = &values[..] else { panic!("expected one file of values: {values:?}") };
    let mut bytes = fs::read(values).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(values, bytes).unwrap();
    bad(dir, "get db key", 1);
    good(dir, "delete db key");
    assert!(bad(dir, "get db key", 3).contains("key key is not there"));
}

#[test]
fn keyspaces_are_apart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    good(dir, "put db key here");
    good(dir, "put db key there --keyspace other");
    fs::write(dir.join("entries"), "fig\tgreen\n").unwrap();
    good(dir, "load db entries --keyspace fruit");
    assert_eq!(good(dir, "get db key"), "here\n");
    assert_eq!(good(dir, "get db key --keyspace other"), "there\n");
    assert_eq!(good(dir, "scan db --keyspace fruit"), "fig\tgreen\n");
    good(dir, "delete db key --keyspace other");
    assert_eq!(good(dir, "scan db --keyspace other"), "");
    assert_eq!(good(dir, "get db key"), "here\n");
    let all = good(dir, "stats db");
    for name in ["default", "other", "fruit"] {
        let own = good(dir, &format!("stats db --keyspace {name}"));
        assert!(all.contains(&format!("keyspace {name:?}")), "{all}");
        assert_eq!(own.matches("keyspace ").count(), 1, "{own}");
        assert!(own.starts_with(&format!("keyspace {name:?}")), "{own}");
    }
    for command in ["get db key", "scan db", "delete db key", "stats db"] {
        let error = bad(dir, &format!("{command} --keyspace none"), 2);
        assert!(
            error.contains("db: there is no keyspace `none`; there are: default, other, fruit")
        );
    }
    assert!(!good(dir, "stats db").contains("none"), "a reading command made a keyspace");
}

#[test]
fn a_keyspace_gets_the_store_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    good(dir, "put db key here --keyspace levels --store lsm");
    good(dir, "put db other there --keyspace levels");
    assert_eq!(good(dir, "scan db --keyspace levels --keys-only"), "key\nother\n");
    let error = bad(dir, "put db key x --keyspace levels --store tiered", 2);
    assert!(
        error.contains("the store lsm that the keyspace was made with, found tiered"),
        "{error}"
    );
    let error = bad(dir, "put db key x --store heap", 2);
    assert!(error.contains("expected a store, tiered or lsm; found \"heap\""), "{error}");
}

/// The machine died, and of the records that were not synced the second was torn: the log ends there,
/// and whoever opens next is told of the third.
#[test]
fn what_an_opening_drops_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let db = learnedkv::Database::builder(dir.join("db")).open().unwrap();
    let keyspace = db.keyspace("default", learnedkv::KeyspaceOptions::default()).unwrap();
    db.sync().unwrap();
    for key in ["a", "b", "c"] {
        keyspace.insert(key, "value").unwrap();
    }
    // What a killed process leaves.
    fs::create_dir(dir.join("left")).unwrap();
    let mut torn = 0;
    for entry in fs::read_dir(dir.join("db")).unwrap() {
        let name = entry.unwrap().file_name();
        let mut bytes = fs::read(dir.join("db").join(&name)).unwrap();
        if name.to_string_lossy().starts_with("log-") {
            let values = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"value"));
            let places: Vec<usize> = values.collect();
            if let [_, second, _] = places[..] {
                bytes[second] ^= 1;
                torn += 1;
            }
        }
        fs::write(dir.join("left").join(&name), bytes).unwrap();
    }
    assert_eq!(torn, 1);
    let output = learnedkv(dir, "scan left --keys-only");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.starts_with("note: left: 1 operations were recovered from the log; 1 records"),
        "{said}"
    );
    assert!(said.contains("byte ") && said.lines().count() == 1, "{said}");
    // Reading changes nothing: it is told again, until the end is committed.
    assert_eq!(learnedkv(dir, "scan left").stderr, output.stderr);
    assert_eq!(learnedkv(dir, "put left d value").stderr, output.stderr);
    assert!(learnedkv(dir, "scan left").stderr.is_empty());
    drop(db);
}

#[test]
fn files_and_key_sets_are_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("entries"), "pear\tgreen\nfig\npear\tbrown\n").unwrap();
    assert_eq!(good(dir, "load db entries"), "2 entries loaded\n");
    assert_eq!(good(dir, "scan db"), "fig\t\npear\tbrown\n");
    assert_eq!(
        good(dir, "load numbers --keys uniform:1k --value-size 20"),
        "1,000 entries loaded\n"
    );
    assert_eq!(good(dir, "scan numbers --keys-only --hex").lines().count(), 1000);
    bad(dir, "load db missing", 2);
    // Without a source it named the file alone, as if there were no other.
    let none = learnedkv(dir, "load db");
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("<FILE|--keys <SET>>"));
    bad(dir, "load db --keys uniform:0", 2);
    fs::write(dir.join("windows"), "C:\\dir\tx\r\n").unwrap();
    let error = bad(dir, "load db windows", 2);
    assert!(
        error.contains("windows line 1: expected \\\\, ") && error.contains("--raw"),
        "{error}"
    );
    good(dir, "load raw windows --raw");
    assert_eq!(good(dir, "scan raw"), "C:\\\\dir\tx\\r\n");
    assert!(good(dir, "load --help").contains("\\xHH"), "the form of lines is not told");
}

/// Whatever the bytes: what `scan` prints `load` takes back.
#[test]
fn what_is_scanned_loads_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut seed = 7u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let special: [&[u8]; 8] =
        [b"\\", b"\t", b"\r", b"\n", b"\r\n", b"\\x41", b"\xc3", "é\u{85}\u{feff}".as_bytes()];
    let mut bytes = || {
        let count = draw(5);
        let piece = |_| match draw(3) {
            0 => special[draw(8) as usize].to_vec(),
            1 => vec![draw(256) as u8],
            _ => b"text".to_vec(),
        };
        (0..count).map(piece).collect::<Vec<_>>().concat()
    };
    let mut entries: std::collections::BTreeMap<_, _> =
        (0..800).map(|_| (bytes(), bytes())).collect();
    entries.insert(Vec::new(), Vec::new());
    entries.insert(b"empty value".to_vec(), Vec::new());
    let db = learnedkv::Database::builder(dir.join("db")).open().unwrap();
    let keyspace = db.keyspace("default", learnedkv::KeyspaceOptions::default()).unwrap();
    entries.iter().for_each(|(key, value)| keyspace.insert(key, value).unwrap());
    drop(keyspace);
    db.close().unwrap();
    for (number, hex) in ["", " --hex"].into_iter().enumerate() {
        let printed = good(dir, &format!("scan db{hex}"));
        assert_eq!(printed.lines().count(), entries.len());
        fs::write(dir.join("printed"), &printed).unwrap();
        good(dir, &format!("load file{number} printed{hex}"));
        let mut load = Command::new(env!("CARGO_BIN_EXE_learnedkv"))
            .args(format!("load pipe{number} -{hex}").split_whitespace())
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // As a system that ends lines otherwise would have it.
        let printed = printed.replace('\n', "\r\n");
        load.stdin.take().unwrap().write_all(printed.as_bytes()).unwrap();
        assert!(load.wait().unwrap().success());
        for name in [format!("file{number}"), format!("pipe{number}")] {
            let db = learnedkv::Database::builder(dir.join(&name)).read_only(true).open().unwrap();
            let loaded = db.find("default").unwrap().iter().map(|entry| {
                let (key, value) = entry.unwrap();
                (key.to_vec(), value.to_vec())
            });
            assert!(loaded.eq(entries.clone()), "{name}");
        }
    }
}

/// A table is gone: the rest is printed, and what to do is said.
#[test]
fn what_is_not_damaged_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("entries"), "b\t1\nc\t2\n").unwrap();
    good(dir, "load db entries");
    good(dir, "put db a 0");
    good(dir, "put db d 3");
    good(dir, "put db x y --keyspace other");
    let tables: Vec<_> = fs::read_dir(dir.join("db")).unwrap().map(|e| e.unwrap().path()).collect();
    let is_table = |path: &&std::path::PathBuf| path.to_string_lossy().contains("table-");
    let table = tables.iter().find(is_table).unwrap();
    fs::rename(table, dir.join("kept")).unwrap();
    let output = learnedkv(dir, "scan db");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\t0\n");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("warning: /")
            && said.contains("/db/table-")
            && said.contains("b\"b\" to b\"c\""),
        "{said}"
    );
    let rest = learnedkv(dir, "scan db --from d");
    assert!(rest.status.success() && rest.stdout == b"d\t3\n");
    assert!(learnedkv(dir, "scan db --keyspace other").status.success());
    fs::rename(dir.join("kept"), table).unwrap();
    assert_eq!(good(dir, "scan db --keys-only"), "a\nb\nc\nd\n");
}

/// A value kept apart that nobody asked for is not read: one that is damaged fails nobody.
#[test]
fn a_scan_reads_no_more_than_it_prints() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("entries"), format!("a\t1\nb\t{}\nc\t3\n", "v".repeat(40_000))).unwrap();
    good(dir, "load db entries");
    let files = fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let mut values = files.filter(|path| path.to_string_lossy().contains("values-"));
    let segment = values.next().unwrap();
    let whole = fs::read(&segment).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xee);
    fs::write(&segment, damaged).unwrap();
    assert_eq!(good(dir, "scan db --keys-only"), "a\nb\nc\n");
    assert_eq!(good(dir, "scan db --keys-only --limit 2"), "a\nb\n");
    assert_eq!(good(dir, "scan db --to b"), "a\t1\n");
    assert_eq!(good(dir, "scan db --prefix a"), "a\t1\n");
    assert_eq!(good(dir, "scan db --from c"), "c\t3\n");
    assert_eq!(good(dir, "scan db --from c --to a"), "");
    assert_eq!(learnedkv(dir, "scan db --from b").status.code(), Some(1));
    fs::write(&segment, whole).unwrap();
    assert_eq!(good(dir, "scan db --prefix b").len(), 40_003);
}

/// Where there may be too few, the error says how many, and what to do. Tables take few of them.
#[cfg(unix)]
#[test]
fn too_many_open_files_are_an_error_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for number in 0..30 {
        fs::write(dir.join("entries"), format!("{number:03}\tx\n")).unwrap();
        good(dir, "load db entries");
    }
    let scan = |most: u32| {
        let line = format!("ulimit -n {most} && exec \"$0\" scan db");
        let sh = ["-c", &line, env!("CARGO_BIN_EXE_learnedkv")];
        Command::new("sh").args(sh).current_dir(dir).output().unwrap()
    };
    let output = scan(4);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("may have 4 files open at once") && said.contains("ulimit -n"), "{said}");
    let output = scan(24);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 30);
    assert_eq!(good(dir, "scan db").lines().count(), 30);
}

#[test]
fn a_value_comes_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let mut put = Command::new(env!("CARGO_BIN_EXE_learnedkv"))
        .args(["put", "db", "key"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    put.stdin.take().unwrap().write_all(b"two\nlines").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(good(dir.path(), "get db key --raw"), "two\nlines");
}

#[test]
fn a_benchmark_reports_and_leaves_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let out = good(dir, "bench --keys uniform:2k --operations 2k --value-size 100");
    assert_eq!(out.lines().last(), Some("report: ./bench-out/report.html"), "{out}");
    for workload in ["load", "settle", "A ", "B ", "C ", "F ", "verify"] {
        assert!(out.lines().any(|line| line.starts_with(workload)), "no {workload}: {out}");
    }
    let mut left: Vec<_> = fs::read_dir(dir.join("bench-out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["report.html", "report.json"]);
    let packed = good(
        dir,
        "bench --keys uniform:2k --operations 2k --compression lz4 --settled-compression zstd:1 \
         --value-compressibility 0.5 --workloads load,settle,C,verify",
    );
    let blocks = packed.lines().find(|line| line.trim_start().starts_with("blocks")).unwrap();
    let times = blocks.rsplit('(').next().and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(times.parse::<f64>().unwrap() > 1.5, "hardly compressed: {blocks}");
    let quiet = good(dir, "bench --keys uniform:100 --operations 100 --quiet");
    assert_eq!(quiet, "report: ./bench-out/report.html\n");
}

#[test]
fn a_checkpoint_is_a_copy_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    good(dir, "put db apple red");
    assert_eq!(good(dir, "checkpoint db copies/one"), "");
    good(dir, "put db apple brown");
    assert_eq!(good(dir, "get copies/one apple"), "red\n");
    assert_eq!(good(dir, "get db apple"), "brown\n");
    assert!(bad(dir, "checkpoint db copies/one", 2).contains("empty directory"));
    bad(dir, "checkpoint none copies/two", 2);
    assert!(!dir.join("none").exists() && !dir.join("copies/two").exists());
}

/// Who read its first line alone was told that all was well; and who did not read what else was said, that the program had panicked.
#[test]
fn damage_is_said_by_the_exit_code_though_nobody_reads_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    good(dir.path(), "load db --keys uniform:20k");
    let files = fs::read_dir(dir.path().join("db")).unwrap().map(|file| file.unwrap().path());
    let is_table = |path: &std::path::PathBuf| path.to_string_lossy().contains("/table-");
    let table = files.filter(is_table).min().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[100] ^= 0xff;
    fs::write(&table, bytes).unwrap();
    for (arguments, closes_output) in [("verify db", true), ("scan db --salvage", false)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_learnedkv"))
            .args(arguments.split(' '))
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if closes_output {
            drop(child.stdout.take());
        } else {
            drop(child.stderr.take());
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let dir = tempfile::tempdir().unwrap();
    good(dir.path(), "load db --keys uniform:20k");
    let mut scan = Command::new(env!("CARGO_BIN_EXE_learnedkv"))
        .args(["scan", "db"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(scan.stdout.take());
    let output = scan.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}
