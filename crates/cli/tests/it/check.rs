//! `verify` and `inspect` from outside.

use std::fs;
use std::path::{Path, PathBuf};

use super::{bad, good, learnedkv};

/// A database `db` with two keyspaces, one of them settled; the values of the other stand apart.
fn sample(dir: &Path) {
    let lines: String = (0..200).map(|n| format!("key {n:03}\tvalue {n}\n")).collect();
    fs::write(dir.join("entries"), lines).unwrap();
    good(dir, "load db entries");
    let db = learnedkv::Database::open(dir.join("db")).unwrap();
    let other = db.keyspace("other", learnedkv::KeyspaceOptions::default()).unwrap();
    (0..20u8).for_each(|n| other.insert([n], [n; 1000]).unwrap());
    other.flush().unwrap();
    db.close().unwrap();
}

fn files(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let is_wanted =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(prefix);
    let mut paths: Vec<_> = paths.filter(is_wanted).collect();
    paths.sort();
    paths
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_sound_database_is_verified() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path();
    sample(dir);
    let said = good(dir, "verify db");
    for words in ["2 tables", "220 entries", "1 value segments, 20 values: no damage\n"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(good(dir, "verify db other").contains("1 tables"));
    assert!(bad(dir, "verify db none", 2).contains("no keyspace \"none\""));
    assert!(bad(dir, "verify nowhere", 2).contains("there is no such directory"));
    assert!(bad(dir, "verify entries", 2).contains("expected the directory of a database"));
    fs::create_dir(dir.join("empty")).unwrap();
    bad(dir, "verify empty", 2);
    let db = learnedkv::Database::open(dir.join("db")).unwrap();
    bad(dir, "verify db", 2);
    db.close().unwrap();
}

#[test]
fn each_damage_is_a_line_and_the_exit_code_says_so() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path();
    sample(dir);
    let (tables, values) = (files(dir, "table-"), files(dir, "values-"));
    change(&tables[0], |bytes| bytes[100] ^= 1);
    change(&values[0], |bytes| bytes.truncate(bytes.len() / 2));
    let output = learnedkv(dir, "verify db");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let (last, damages) = lines.split_last().unwrap();
    assert!(last.ends_with(&format!(": {} damages", damages.len())), "{said}");
    let of = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_of = |line: &&&str| line.starts_with("damage: ") && line.contains(&name);
        damages.iter().filter(is_of).count()
    };
    let (of_table, of_values) = (of(&tables[0]), of(&values[0]));
    assert!(of_table == 1 && of_values > 5, "{said}");
    assert_eq!(of_table + of_values, damages.len(), "{said}");
    assert!(
        said.contains("expected checksum") && said.contains("the value of key \"\\x13\""),
        "{said}"
    );
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, format!("error: db: there are {} damages\n", damages.len()));
    // All else is read, and what is lost is warned of.
    let output = learnedkv(dir, "scan db --keys-only --keyspace other");
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 20);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("warning: "));
    let db = learnedkv::Database::open(dir.join("db")).unwrap();
    assert_eq!(db.open_report().damaged_segments.len(), 1);
}

#[test]
fn files_are_inspected() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path();
    sample(dir);
    let said = good(dir, "inspect db");
    assert_eq!(said.lines().count(), fs::read_dir(dir.join("db")).unwrap().count());
    for prefix in ["table-", "values-", "log-", "manifest-", "CURRENT"] {
        for path in files(dir, prefix) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!good(dir, &format!("inspect db/{name}")).is_empty());
        }
    }
    let table = &files(dir, "table-")[0];
    let line = format!("inspect {} --blocks", table.display());
    assert!(good(dir, &line).lines().any(|line| line.starts_with("block 0 at 0: ")));
    change(table, |bytes| bytes[100] ^= 1);
    let output = learnedkv(dir, &line);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("damage at byte 0: data block"));
    change(table, |bytes| bytes.clear());
    assert!(bad(dir, &line, 1).contains(": expected "));
    for other in ["entries", "nowhere"] {
        assert!(bad(dir, &format!("inspect {other}"), 2).contains(other));
    }
}

/// A segment of the log is lost: what tables hold, and the log before it, goes into a new database.
#[test]
fn what_is_left_of_a_damaged_log_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("entries"), "b\t1\nc\t2\n").unwrap();
    good(dir, "load db entries");
    // Each has a segment of its own.
    good(dir, "put db a 0");
    good(dir, "put db b lost");
    let before = files(dir, "log-");
    good(dir, "put db d lost");
    let newest = files(dir, "log-").into_iter().rfind(|path| before.contains(path)).unwrap();
    fs::remove_file(newest).unwrap();
    for line in ["get db a", "scan db", "stats db", "put db x y"] {
        let error = bad(dir, line, 1);
        assert!(error.contains("it is not there") && error.contains("`salvage`"), "{error}");
    }
    let output = learnedkv(dir, "scan db --salvage");
    let (printed, said) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert_eq!(String::from_utf8_lossy(&printed), "a\t0\nb\t1\nc\t2\n", "{said}");
    // A script is to know that it is not all.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("warning: ") && said.ends_with("as the warnings say\n"), "{said}");
    assert_eq!(good(dir, "get db b --salvage"), "1\n");
    // Nobody knows that it is not there.
    let output = learnedkv(dir, "get db d --salvage");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not in what is left"), "{said}");
    let keys = learnedkv(dir, "scan db --salvage --keys-only");
    assert_eq!((keys.status.code(), &keys.stdout[..]), (Some(1), &b"a\nb\nc\n"[..]));
    assert!(good(dir, "stats db --salvage").contains("default"));
    fs::write(dir.join("left"), printed).unwrap();
    good(dir, "load new left");
    assert_eq!(good(dir, "scan new"), "a\t0\nb\t1\nc\t2\n");
}

/// One flipped bit of a block ended the scan there.
#[test]
fn what_is_behind_a_damaged_block_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let entries: String = (0..5000).map(|n| format!("key{n:05}\tvalue{n:040}\n")).collect();
    fs::write(dir.join("entries"), &entries).unwrap();
    good(dir, "load db entries");
    let table = files(dir, "table-").pop().unwrap();
    let whole = fs::read(&table).unwrap();
    for at in [100, whole.len() / 3, whole.len() / 2] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&table, bytes).unwrap();
        for keys_only in ["", " --keys-only"] {
            let output = learnedkv(dir, &format!("scan db --salvage{keys_only}"));
            assert_eq!(output.status.code(), Some(1), "{at}");
            let printed = String::from_utf8(output.stdout).unwrap();
            let mut printed: Vec<&str> = printed.lines().collect();
            let end = if keys_only.is_empty() { usize::MAX } else { "key00000".len() };
            let all: Vec<&str> = entries.lines().map(|line| &line[..line.len().min(end)]).collect();
            assert!((4800..5000).contains(&printed.len()), "{at}: {}", printed.len());
            printed.retain(|line| !all.contains(line));
            assert!(printed.is_empty(), "{at}: {printed:?}");
        }
    }
}

/// A scan ended at the first value that could not be read, and what was printed passed for all.
#[test]
fn what_can_be_read_behind_what_is_damaged_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    sample(dir);
    let db = learnedkv::Database::open(dir.join("db")).unwrap();
    db.find("other").unwrap().insert([200], "fresh").unwrap();
    db.find("default").unwrap().insert("zebra", "fresh").unwrap();
    db.close().unwrap();
    assert_eq!(good(dir, "scan db --salvage").lines().count(), 201);
    let salvage = |line: &str| {
        let output = learnedkv(dir, line);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stdout).unwrap()
    };
    fs::remove_file(files(dir, "values-").pop().unwrap()).unwrap();
    assert_eq!(salvage("scan db --keyspace other --hex --salvage"), "c8\t6672657368\n");
    fs::remove_file(&files(dir, "table-")[0]).unwrap();
    assert_eq!(salvage("scan db --salvage"), "zebra\tfresh\n");
    assert_eq!(salvage("scan db --salvage --prefix k"), "");
    assert_eq!(good(dir, "scan db --salvage --prefix z"), "zebra\tfresh\n");
}
