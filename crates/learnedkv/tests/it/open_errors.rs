//! What opening says when it cannot: a script of situations and the whole text of each error.
//!
//! The expected output is `open_errors.txt`; `LEARNEDKV_REWRITE=1` writes it anew.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{Builder, Compression, Database, ErrorKind, KeyspaceOptions};
use twox_hash::XxHash3_64;

use crate::files::last_file;
use crate::workload::Random;

const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/open_errors.txt");

fn builder(disk: &(impl Disk + Clone + 'static)) -> Builder {
    Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(4 << 10)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(4 << 10)
}

/// A disk with a closed database: a settled table, a log.
fn sample() -> SimDisk {
    let disk = SimDisk::new(1);
    let db = builder(&disk).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    keyspace.insert("key", "value").unwrap();
    keyspace.insert("old", "value").unwrap();
    keyspace.convert().unwrap();
    keyspace.insert("key", "newer").unwrap();
    disk
}

/// `sample`, with a byte of a file set.
fn with_byte(prefix: &str, offset_bytes: i64, byte: u8) -> SimDisk {
    let disk = sample();
    let file = disk.open(&last_file(&disk, prefix), Access::Random).unwrap();
    let length = file.length_bytes().unwrap() as i64;
    let at = if offset_bytes < 0 { length + offset_bytes } else { offset_bytes };
    file.write_all_at(&[byte], at as u64).unwrap();
    disk
}

/// `sample`, with the header of its log as a newer build may write it, its checksum right.
fn with_log_of_version(version: u8) -> SimDisk {
    let disk = sample();
    let file = disk.open(&last_file(&disk, "log"), Access::Random).unwrap();
    let mut bytes = [0; 32];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let (header, sum) = bytes.split_at_mut(24);
    // What it is of is in both sums alike.
    let before = XxHash3_64::oneshot(header);
    header[7] = version;
    let change = before ^ XxHash3_64::oneshot(header);
    sum.iter_mut().zip(change.to_le_bytes()).for_each(|(byte, change)| *byte ^= change);
    file.write_all_at(&bytes, 0).unwrap();
    disk
}

/// `sample` with something else in CURRENT.
fn with_current(bytes: &[u8]) -> SimDisk {
    let disk = sample();
    let file = disk.open(Path::new("/db/CURRENT"), Access::Random).unwrap();
    file.truncate(0).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    disk
}

/// Databases without a CURRENT that says anything.
fn tell_of_current(out: &mut String) {
    tell(out, "a garbage CURRENT", builder(&with_current(&[0xf7; 3000])));
    tell(out, "an empty CURRENT", builder(&with_current(b"")));
    let beheaded = with_current(b"");
    beheaded.remove(Path::new("/db/CURRENT")).unwrap();
    tell(out, "no CURRENT, one manifest", builder(&beheaded));
    let manifest = last_file(&beheaded, "manifest");
    beheaded.link(&manifest, Path::new("/db/manifest-00000099")).unwrap();
    tell(out, "no CURRENT, two manifests", builder(&beheaded));
    beheaded.remove(Path::new("/db/manifest-00000099")).unwrap();
    beheaded.remove(&manifest).unwrap();
    tell(out, "no CURRENT, no manifest", builder(&beheaded));
    // What the error of one manifest says to do helps.
    let mended = with_current(b"manifest-00000001\n");
    tell(out, "a CURRENT written by hand", builder(&mended));
}

/// What is asked of a database that is open.
fn tell_of_keyspaces(out: &mut String) {
    let db = builder(&SimDisk::new(1)).open().unwrap();
    let level = Compression::Zstd { level: 20 };
    let options = [
        ("block", KeyspaceOptions::default().block_bytes(1)),
        ("partition", KeyspaceOptions::default().partition_bytes(1)),
        ("delta", KeyspaceOptions::default().delta_limit_percent(101)),
        ("separate", KeyspaceOptions::default().separate_at(0)),
        ("inline", KeyspaceOptions::default().inline_limit(1 << 21)),
        ("conversion", KeyspaceOptions::default().min_conversion_bytes(u64::MAX)),
        ("compression", KeyspaceOptions::default().compression(level)),
    ];
    for (name, options) in options {
        let error = db.keyspace(name, options).unwrap_err();
        writeln!(out, "# keyspace options: {name}\n{:?}: {error}\n", error.kind()).unwrap();
    }
    for name in ["", &"n".repeat(256)] {
        let error = db.keyspace(name, KeyspaceOptions::default()).unwrap_err();
        writeln!(out, "# a name of {}\n{:?}: {error}\n", name.len(), error.kind()).unwrap();
    }
    let keyspace = db.keyspace("dropped", KeyspaceOptions::default()).unwrap();
    db.drop_keyspace("dropped").unwrap();
    let error = keyspace.insert("key", "value").unwrap_err();
    writeln!(out, "# a keyspace that was dropped\n{:?}: {error}\n", error.kind()).unwrap();
    let error = db.drop_keyspace("none").unwrap_err();
    writeln!(out, "# a keyspace to drop\n{:?}: {error}", error.kind()).unwrap();
}

/// Each segment of the log missing in turn, of a log of which all was synced: named by the
/// manifest, or not.
fn tell_of_logs(out: &mut String) {
    let disk = SimDisk::new(1);
    let db = builder(&disk).memtable_bytes(256 << 10).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (0..12).for_each(|n| keyspace.insert(format!("key {n}"), [7; 900]).unwrap());
    drop(keyspace);
    db.close().unwrap();
    let logs = |disk: &SimDisk| {
        let names = disk.list(Path::new("/db")).unwrap();
        names.into_iter().filter(|name| name.starts_with("log-")).collect::<Vec<_>>()
    };
    let mut missing = |disk: &SimDisk, what: &str| {
        for name in logs(disk) {
            let left = disk.crash_clone(CrashKind::Process, 0);
            left.remove(&Path::new("/db").join(&name)).unwrap();
            tell(out, &format!("{name} is missing, {what}"), builder(&left));
        }
    };
    missing(&disk, "written since the last open");
    drop(builder(&disk).memtable_bytes(256 << 10).open().unwrap());
    missing(&disk, "named by the manifest");
}

/// What the checksum of `bytes` at an offset of a file with that tag is: as `format/checksum.rs` has it, once more.
fn checksum(tag: u64, offset_bytes: u64, bytes: &[u8]) -> u64 {
    let mix = |value: u64| Random::new(value).next();
    XxHash3_64::oneshot(bytes) ^ mix(tag ^ mix(offset_bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// `sample`, the table's directory and footer as `change` leaves them, with checksums that are right.
fn with_table(change: impl FnOnce(&mut [u8], &mut [u8; 48])) -> SimDisk {
    let disk = sample();
    let file = disk.open(&last_file(&disk, "table"), Access::Random).unwrap();
    let footer_at = file.length_bytes().unwrap() - 48;
    let mut footer = [0; 48];
    file.read_exact_at(&mut footer, footer_at).unwrap();
    let (at, tag) = (u64_at(&footer, 16), u64_at(&footer, 24));
    let mut directory = vec![0; (footer_at - at) as usize];
    file.read_exact_at(&mut directory, at).unwrap();
    change(&mut directory, &mut footer);
    footer[32..40].copy_from_slice(&checksum(tag, at, &directory).to_le_bytes());
    let sum = checksum(tag, 0, &footer[..40]);
    footer[40..].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&directory, at).unwrap();
    file.write_all_at(&footer, footer_at).unwrap();
    disk
}

/// Gives the table's section `properties`, which nothing but its check needs, another name; required or not.
fn with_unknown_section(required: bool) -> SimDisk {
    with_table(|directory, _| {
        let name = b"properties";
        let at = directory.windows(name.len()).position(|bytes| bytes == name).unwrap();
        directory[at..at + name.len()].copy_from_slice(b"prophecies");
        // Behind the name the offset and the length, varints, and the checksum.
        let mut place = at + name.len();
        for _ in 0..2 {
            place += directory[place..].iter().position(|byte| *byte < 0x80).unwrap() + 1;
        }
        assert_eq!(std::mem::replace(&mut directory[place + 8], required.into()), 1);
    })
}

/// Tables that a later version may write: whole, and refused or read for what they say they need.
fn tell_of_newer_tables(out: &mut String) {
    tell(out, "a table written again as it was", builder(&with_table(|_, _| {})));
    tell(out, "a table of version 2", builder(&with_table(|_, footer| footer[8] = 2)));
    let (needed, unneeded) = (with_unknown_section(true), with_unknown_section(false));
    tell(out, "a table with an unknown section that is required", builder(&needed));
    tell(out, "a table with an unknown section that is not required", builder(&unneeded));
}

/// A newer table is no damage: it is refused, and not opened without.
#[test]
fn a_table_of_a_newer_version_is_refused() {
    let version = with_table(|_, footer| footer[8] = 2);
    for disk in [version, with_unknown_section(true)] {
        let error = builder(&disk).open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let said = error.to_string();
        for words in ["/db/table-0000", "expected ", "found ", "newer version", "open it with"] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
    }
    let db = builder(&with_unknown_section(false)).open().unwrap();
    assert!(db.open_report().damaged_tables.is_empty());
    let keyspace = db.find("k").unwrap();
    assert_eq!(keyspace.get("old").unwrap().as_deref(), Some(&b"value"[..]));
    let keys: Vec<_> = keyspace.keys().map(Result::unwrap).collect();
    assert_eq!(keys, ["key", "old"]);
}

fn with_file(path: &str) -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(path).parent().unwrap()).unwrap();
    disk.create(Path::new(path)).unwrap().write_all_at(b"hello", 0).unwrap();
    disk
}

/// Opens; a section of the script's output.
fn tell(out: &mut String, what: &str, builder: Builder) {
    writeln!(out, "# {what}").unwrap();
    match builder.open() {
        Ok(db) => {
            for table in &db.open_report().damaged_tables {
                writeln!(out, "damaged: {}", table.error).unwrap();
            }
            let read = |key| db.find("k").map(|k| k.get(key).map(|v| v.map(|v| v.len())));
            writeln!(out, "opened; {:?}; {:?}\n", read("key"), read("old").map(|v| v.is_ok()))
                .unwrap();
        }
        Err(e) => writeln!(out, "{:?}: {e}\n", e.kind()).unwrap(),
    }
}

fn script() -> String {
    let mut out = String::new();
    let empty = SimDisk::new(1);
    tell(&mut out, "no directory, none to be made", builder(&empty).create_if_missing(false));
    assert!(empty.list(Path::new("/db")).is_err(), "nothing was made");
    empty.create_dir(Path::new("/db")).unwrap();
    tell(&mut out, "an empty directory, none to be made", builder(&empty).create_if_missing(false));
    assert_eq!(empty.list(Path::new("/db")).unwrap(), Vec::<String>::new());

    let foreign = with_file("/db/photo.jpg");
    tell(&mut out, "somebody else's directory", builder(&foreign));
    assert_eq!(foreign.list(Path::new("/db")).unwrap(), ["photo.jpg"], "it was touched");
    tell(&mut out, "a file where the directory should be", builder(&with_file("/db")));
    tell(&mut out, "a table without the rest", builder(&with_file("/db/table-00000001")));
    tell(&mut out, "a CURRENT that is none", builder(&with_file("/db/CURRENT")));
    tell_of_current(&mut out);

    let disk = sample();
    let first = builder(&disk).open().unwrap();
    tell(&mut out, "open already", builder(&disk));
    drop(first);
    tell(&mut out, "closed since", builder(&disk));

    tell(&mut out, "a manifest of version 2", builder(&with_byte("manifest", 7, 2)));
    tell(&mut out, "a log of version 2", builder(&with_log_of_version(2)));
    tell(&mut out, "a damaged table footer", builder(&with_byte("table", -1, 2)));
    tell_of_newer_tables(&mut out);
    tell(&mut out, "a damaged table directory", builder(&with_byte("table", -40, 0xee)));
    let gone = sample();
    gone.remove(&last_file(&gone, "table")).unwrap();
    tell(&mut out, "a missing table", builder(&gone));
    let cut = sample();
    cut.open(&last_file(&cut, "table"), Access::Random).unwrap().truncate(0).unwrap();
    tell(&mut out, "an empty table", builder(&cut));
    tell_of_logs(&mut out);
    let gone = sample();
    gone.remove(&last_file(&gone, "manifest")).unwrap();
    tell(&mut out, "a missing manifest", builder(&gone));

    for part in ["CURRENT", "manifest", "table", "log"] {
        let faulty = FaultyDisk::new(Arc::new(sample()));
        faulty.fail(Fault::at(0).of(&[OperationKind::Open]).on_paths_with(part));
        tell(&mut out, &format!("{part} cannot be read"), builder(&faulty));
    }
    let full = sample();
    full.set_space_limit_bytes(Some(full.used_bytes()));
    tell(&mut out, "a full disk", builder(&full));

    tell(&mut out, "memtables too small", builder(&empty).memtable_bytes(1));
    tell(&mut out, "log segments too small", builder(&empty).log_segment_bytes(1));
    tell(&mut out, "a budget too small", builder(&empty).memory_budget_bytes(1));
    tell(&mut out, "a budget below four memtables", builder(&empty).memtable_bytes(1 << 20));
    tell_of_keyspaces(&mut out);
    out
}

#[test]
fn errors_of_opening_read_as_expected() {
    let found = script();
    if std::env::var_os("LEARNEDKV_REWRITE").is_some() {
        std::fs::write(EXPECTED, &found).unwrap();
    }
    let expected = std::fs::read_to_string(EXPECTED).unwrap_or_default();
    assert!(
        found == expected,
        "{EXPECTED} differs; found:\n{found}\nif it is right, set LEARNEDKV_REWRITE=1"
    );
}
