//! What files say when they are looked at: a script whose output stands in `inspect.txt`; and any bytes at all.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk, OperationKind};
use learnedkv::executor::SeededExecutor;
use learnedkv::{
    Compression, Database, ErrorKind, FilterKind, IndexKind, Inspect, KeyspaceOptions, Store,
};

use crate::files::{files, flip, last_file};
use crate::workload::Random;

const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/inspect.txt");

fn look(disk: &SimDisk, path: &Path, blocks: bool) -> (String, learnedkv::Result<()>) {
    let mut text = String::new();
    let looked = Inspect::file(path).blocks(blocks).disk(Arc::new(disk.clone())).run(&mut |line| {
        assert!(!line.contains('\n'), "{line:?}");
        writeln!(text, "{line}").unwrap();
    });
    (text, looked)
}

/// A section of the script's output.
fn tell(out: &mut String, what: &str, disk: &SimDisk, path: &Path, blocks: bool) {
    let (text, looked) = look(disk, path, blocks);
    write!(out, "# {what}\n{text}").unwrap();
    if let Err(e) = looked {
        writeln!(out, "{:?}: {e}", e.kind()).unwrap();
    }
    out.push('\n');
}

fn open(disk: &SimDisk) -> Database {
    Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(64 << 10)
        .memory_budget_bytes(1 << 20)
        .log_segment_bytes(64 << 10)
        .stream_at(1000)
        .automatic_conversion(false)
        .open()
        .unwrap()
}

/// A closed database with a base, a delta with a removed range, a run with values apart, and a log.
fn sample(options: KeyspaceOptions) -> SimDisk {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let fruit = db.keyspace("fruit", options.block_bytes(256).separate_at(200)).unwrap();
    for number in 0..40 {
        let value = format!("{number:03}").repeat(15);
        fruit.insert(format!("apple {number:03}"), value).unwrap();
    }
    fruit.convert().unwrap();
    fruit.insert("apple 007", "new").unwrap();
    fruit.remove("apple 011").unwrap();
    fruit.remove_range("apple 020".."apple 022").unwrap();
    fruit.convert().unwrap();
    fruit.insert("banana", "yellow ".repeat(40)).unwrap();
    fruit.insert("cherry", b"\x00\xff\n").unwrap();
    fruit.flush().unwrap();
    let mut batch = db.batch();
    batch.insert(&fruit, "date", "brown");
    batch.remove(&fruit, "cherry");
    batch.remove_range(&fruit, "apple 030"..);
    batch.set_external_position(*b"primary/00000042");
    batch.commit().unwrap();
    fruit.insert("fig", vec![7; 2000]).unwrap();
    drop(fruit);
    db.close().unwrap();
    disk
}

fn script() -> String {
    let mut out = String::new();
    let disk = sample(KeyspaceOptions::default());
    tell(&mut out, "a directory", &disk, Path::new("/db"), false);
    tell(&mut out, "CURRENT", &disk, Path::new("/db/CURRENT"), false);
    let tables = files(&disk, "table-");
    for (number, path) in tables.iter().enumerate() {
        tell(&mut out, &format!("table {number}"), &disk, path, false);
        tell(&mut out, &format!("the blocks of table {number}"), &disk, path, true);
    }
    tell(&mut out, "a filter", &disk, &last_file(&disk, "filter-"), false);
    tell(&mut out, "a value segment", &disk, &last_file(&disk, "values-"), false);
    for path in files(&disk, "log-") {
        tell(&mut out, "a segment of the log", &disk, &path, false);
    }
    tell(&mut out, "the manifest", &disk, &last_file(&disk, "manifest-"), false);
    // Known by what stands in them, whatever they are called.
    for prefix in ["table-", "filter-", "values-", "log-", "manifest-"] {
        let (other, name) = (disk.crash_clone(CrashKind::Process, 0), Path::new("/db/other"));
        other.rename(&last_file(&disk, prefix), name).unwrap();
        let (text, looked) = look(&other, name, false);
        let told = (look(&disk, &last_file(&disk, prefix), false).0, looked.is_ok());
        assert_eq!((text, true), told, "{prefix} by another name");
    }
    let kinds = [
        IndexKind::Fence,
        IndexKind::GreedyPlr { epsilon: 4 },
        IndexKind::GreedyPlrPlus { epsilon: 0 },
    ];
    for kind in kinds {
        let options = KeyspaceOptions::default().settled_index(kind);
        let options = options.settled_filter(Some(FilterKind::BlockedBloom { bits_per_key: 10 }));
        let disk = sample(options.settled_compression(Compression::Lz4).store(Store::Tiered));
        let (text, looked) = look(&disk, &files(&disk, "table-")[0], true);
        looked.unwrap();
        let lines = text.lines().filter(|l| !l.contains("when written") && !l.contains("memory"));
        writeln!(out, "# an index of kind {kind}\n{}\n", lines.collect::<Vec<_>>().join("\n"))
            .unwrap();
    }
    damages(&mut out, &disk, &tables[0]);
    out
}

fn damages(out: &mut String, disk: &SimDisk, table: &Path) {
    let damaged = |path: &Path, at: i64| {
        let left = disk.crash_clone(CrashKind::Process, 0);
        flip(&left, path, at, 1);
        left
    };
    let path = table;
    tell(out, "a damaged block", &damaged(path, 300), path, true);
    tell(out, "a damaged length of a block", &damaged(path, 11), path, true);
    tell(out, "a damaged section", &damaged(path, 3500), path, false);
    tell(out, "a damaged directory", &damaged(path, -60), path, false);
    tell(out, "a damaged footer", &damaged(path, -20), path, false);
    let path = &last_file(disk, "filter-");
    tell(out, "a damaged filter", &damaged(path, -5), path, false);
    let path = &last_file(disk, "values-");
    tell(out, "a damaged value segment's header", &damaged(path, 20), path, false);
    let path = &last_file(disk, "log-");
    tell(out, "a damaged header of the log", &damaged(path, 20), path, false);
    let path = &last_file(disk, "manifest-");
    tell(out, "a damaged header of the manifest", &damaged(path, 20), path, false);
    tell(out, "a damaged first edit", &damaged(path, 40), path, false);
    tell(out, "a damaged second edit", &damaged(path, 60), path, false);
    let left = disk.crash_clone(CrashKind::Process, 0);
    flip(&left, table, -20, 1);
    left.remove(path).unwrap();
    tell(out, "a directory with damage", &left, Path::new("/db"), false);
    tell(out, "a file that is not there", &left, path, false);
    left.create(Path::new("/db/photo.jpg"))
        .unwrap()
        .write_all_at(b"\xff\xd8\xff\xe0 photo", 0)
        .unwrap();
    tell(out, "no file of a database", &left, Path::new("/db/photo.jpg"), false);
    for prefix in ["table-", "filter-", "values-", "log-", "manifest-", "CURRENT"] {
        let path = Path::new("/empty")
            .join(format!("{prefix}{}", if prefix == "CURRENT" { "" } else { "00000001" }));
        left.create_dir(Path::new("/empty")).unwrap();
        left.create(&path).unwrap();
        tell(out, &format!("an empty {}", prefix.trim_end_matches('-')), &left, &path, true);
    }
}

#[test]
fn files_say_what_is_expected() {
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

/// Garbage, cuts and flips of every file: lines or an error that names the file, and never a panic.
#[test]
fn any_bytes_give_lines_or_an_error() {
    let disk = sample(KeyspaceOptions::default());
    let mut random = Random::new(1);
    let (mut errors, mut looks) = (0, 0);
    let mut try_it = |disk: &SimDisk, path: &Path| {
        let (_, looked) = look(disk, path, true);
        looks += 1;
        if let Err(e) = looked {
            errors += 1;
            assert_eq!(e.path(), Some(path), "{e}");
            let kinds = [ErrorKind::Corruption, ErrorKind::Unsupported, ErrorKind::NotADatabase];
            assert!(kinds.contains(&e.kind()), "{e:?}");
        }
    };
    for prefix in ["table-", "filter-", "values-", "log-", "manifest-", "CURRENT"] {
        let path = last_file(&disk, prefix);
        let file = disk.open(&path, Access::Sequential).unwrap();
        let mut bytes = vec![0; file.length_bytes().unwrap().min(8 << 10) as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let length = bytes.len();
        let replaced = |bytes: &[u8]| {
            let left = disk.crash_clone(CrashKind::Process, 0);
            left.remove(&path).unwrap();
            left.create(&path).unwrap().write_all_at(bytes, 0).unwrap();
            left
        };
        for step in (0..length).step_by(1 + length / 150) {
            let mut other = bytes.clone();
            other[step] ^= 1 << random.below(8);
            try_it(&replaced(&other), &path);
            try_it(&replaced(&bytes[..step]), &path);
            // Of any length, with the right beginning or without.
            let kept = [0, 8, 48][random.below(3) as usize].min(length);
            other.truncate(kept);
            other.extend((0..random.below(600)).map(|_| random.next() as u8));
            try_it(&replaced(&other), &path);
        }
    }
    assert!(errors > looks / 3, "{errors} of {looks}");
}

#[test]
fn what_the_disk_refuses_is_its_error() {
    let disk = sample(KeyspaceOptions::default());
    for kind in [OperationKind::Open, OperationKind::Read] {
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        faulty.fail(Fault::at(0).of(&[kind]).on_paths_with("table-"));
        let path = last_file(&disk, "table-");
        let error = Inspect::file(&path).disk(Arc::new(faulty)).run(&mut |_| {}).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(path.as_path())), "{error}");
    }
}
