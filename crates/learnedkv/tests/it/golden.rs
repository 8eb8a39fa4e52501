//! Databases that earlier builds wrote: this one opens them, finds all of it, and goes on with them.
//!
//! `golden/<version>` and `golden/<version>-<what else>` hold them as their writer's death left them (never
//! closed, the log not flushed), and `EXPECTED` what is in each. `LEARNEDKV_REWRITE=1` writes the newest anew, or one
//! of them (`LEARNEDKV_REWRITE=1-kinds`): only while no release has that format. Until the first one there is one
//! version, and a change of format rewrites it; where there is none, what stands there is kept, for an earlier
//! build wrote it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use learnedkv::disk::OperationKind;
use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::real::RealDisk;
use learnedkv::executor::SeededExecutor;
use learnedkv::{
    Builder, Compression, Database, FilterKind, IndexKind, Keyspace, KeyspaceOptions, Store,
};

/// What this build writes: the stores, and what else their files may hold.
const NEWEST: &str = "1";
const KINDS: &str = "1-kinds";
/// Commits that carry external positions, flushed and not.
const POSITIONS: &str = "1-positions";
/// What is only where something is large: values of several chunks, compressed; blocks beyond 64 KiB; indexes of several
/// chunks, whose heads are strings; separators off their line.
const LARGE: &str = "1-large";
const EXPECTED: &str = "EXPECTED";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

/// FNV-1a: short, and nobody's business but this file's.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Every entry of every keyspace, a line each, and its external position, if it has one.
fn told(db: &Database) -> String {
    let mut text = String::new();
    for name in db.keyspace_names() {
        let keyspace = db.find(&name).unwrap();
        let mut last = None;
        for entry in keyspace.iter() {
            let (key, value) = entry.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(keyspace.get(&key).unwrap().as_deref(), Some(&*value), "{name} {key:?}");
            let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "{name} {hex} {} {:016x}", value.len(), hash(&value)).unwrap();
            last = Some(key);
        }
        assert_eq!(keyspace.last_key_value().unwrap().map(|(key, _)| key), last, "{name}");
        if let Some(position) = keyspace.external_position().unwrap() {
            writeln!(text, "{name} stands at {}", position.escape_ascii()).unwrap();
        }
    }
    text
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != EXPECTED {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn builder(path: &Path) -> Builder {
    let builder = Database::builder(path).memtable_bytes(8 << 10).log_segment_bytes(4 << 10);
    builder.memory_budget_bytes(1 << 20).ballast_bytes(0).stream_at(6000)
}

fn open(path: &Path) -> Database {
    builder(path).open().unwrap_or_else(|e| panic!("{e}"))
}

/// The keyspaces of a database: each what another choice writes.
fn keyspaces(database: &str) -> Vec<(&'static str, KeyspaceOptions)> {
    let small = KeyspaceOptions::default().block_bytes(512).partition_bytes(8 << 10);
    let small = small.separate_at(600).inline_limit(1000).level_base_bytes(4 << 10);
    let packed = small.clone().lsm_compression(Compression::Lz4);
    let packed = packed.settled_filter(Some(FilterKind::BinaryFuse8));
    let levels = small.clone().store(Store::Lsm);
    if database == POSITIONS {
        return vec![("flushed", small.clone()), ("levels", levels), ("logged", small)];
    }
    if database == LARGE {
        let large = KeyspaceOptions::default().partition_bytes(1 << 20).block_bytes(512);
        let wide = large.clone().block_bytes(128 << 10).separate_at(1 << 20);
        let chunks = large.clone().compression(Compression::Lz4);
        return vec![("chunks", chunks), ("heads", large.clone()), ("off", large), ("wide", wide)];
    }
    let index = |kind| small.clone().lsm_index(kind).settled_index(kind);
    if database == NEWEST {
        return vec![("levels", levels), ("packed", packed), ("plain", small)];
    }
    vec![
        ("fence", index(IndexKind::Fence)),
        ("greedy-plr", index(IndexKind::GreedyPlr { epsilon: 4 })),
        ("greedy-plr-plus", index(IndexKind::GreedyPlrPlus { epsilon: 4 })),
        ("values-stay", small.clone().move_values(false)),
        ("zstd", small.clone().compression(Compression::Zstd { level: 3 })),
        (SWEPT, small),
    ]
}

/// The keyspace that a sweep is stuck in.
const SWEPT: &str = "swept";

/// The key that a sweep of it has come to, if one is under way.
fn watermark(db: &Database) -> Option<Vec<u8>> {
    let stats = db.stats().keyspaces.into_iter().find(|keyspace| keyspace.name == SWEPT);
    stats.and_then(|keyspace| keyspace.watermark)
}

/// Begins a sweep, whose third table cannot be made, nor any later.
fn begin_sweep(disk: &FaultyDisk, db: &Database) {
    let keyspace = db.find(SWEPT).unwrap();
    put(&keyspace, 0..150, 4);
    keyspace.flush().unwrap();
    let create = Fault::at(2).of(&[OperationKind::Create]).on_paths_with("table-");
    disk.fail(create.from_then_on());
    keyspace.convert().unwrap_err();
    assert!(watermark(db).is_some_and(|key| key.starts_with(b"key/")), "no sweep is under way");
}

/// A value that compresses a little.
fn value(number: u64, length: usize) -> Vec<u8> {
    let words = (0..length as u64 / 16 + 1).map(|word| (number * 7919 + word, word % 3));
    let bytes = words.flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat());
    bytes.take(length).collect()
}

fn put(keyspace: &Keyspace, numbers: std::ops::Range<u64>, salt: u64) {
    for number in numbers {
        let length = [0, 3, 30, 90, 200, 700, 1500][(number % 7) as usize];
        keyspace.insert(format!("key/{number:04}"), value(number + salt, length)).unwrap();
    }
}

/// Settled data with deltas, runs over it, removed keys and ranges in all of them, separated and streamed
/// values, and a log that nobody flushed.
fn fill(keyspace: &Keyspace) {
    put(keyspace, 0..120, 0);
    keyspace.remove_range("key/0030".."key/0040").unwrap();
    keyspace.insert("streamed", value(1, 9000)).unwrap();
    keyspace.convert().unwrap();
    put(keyspace, 50..54, 1);
    keyspace.remove("key/0003").unwrap();
    keyspace.convert().unwrap();
    put(keyspace, 100..150, 2);
    keyspace.remove_prefix("key/011").unwrap();
    keyspace.flush().unwrap();
    put(keyspace, 10..20, 3);
    keyspace.remove_range("key/0060".."key/0063").unwrap();
    keyspace.insert("", "the empty key").unwrap();
    keyspace.insert("streamed too", value(2, 7000)).unwrap();
}

/// See [`LARGE`].
fn fill_large(keyspace: &Keyspace) {
    let value = |fill, length| (0..length).map(|at| (fill + at / 5000) as u8).collect::<Vec<_>>();
    let put = |key: &[u8], fill: u64, length: u64| keyspace.insert(key, value(fill, length));
    match keyspace.name() {
        "chunks" => {
            // The last chunk compresses; it does not; it is a byte.
            for (key, length) in [("a", 600_000), ("b", (256 << 10) + 40), ("c", (256 << 10) + 1)] {
                put(key.as_bytes(), 1, length).unwrap();
            }
        }
        "heads" => (0..360).for_each(|n| {
            let side = if n < 40 { "left" } else { "right" };
            let key = format!("{side}/the same for all of them/{n:03}");
            put(key.as_bytes(), n, 200).unwrap();
        }),
        // Most lie evenly, and some hardly apart from the one before.
        "off" => (0..240u64).for_each(|n| {
            let number = if n % 7 == 1 { (n - 1) * 1000 + 1 } else { n * 1000 };
            put(&number.to_be_bytes(), n, 200).unwrap();
        }),
        _ => (0..240).for_each(|n| put(format!("{n:03}").as_bytes(), n, 700).unwrap()),
    }
    keyspace.convert().unwrap();
}

/// Whether what [`LARGE`] is for is in its files.
fn is_large(db: &Database) -> bool {
    let stats = db.stats();
    let [chunks, heads, off, wide] = ["chunks", "heads", "off", "wide"]
        .map(|name| stats.keyspaces.iter().find(|keyspace| keyspace.name == name).unwrap());
    chunks.value_live_bytes < chunks.unpacked_value_bytes / 10
        && heads.index_chunks > heads.partitions
        && off.separator_exceptions > 0
        && wide.block_bytes / wide.blocks > 64 << 10
}

/// One that is flushed, and a later one that the log alone has.
fn put_positions(db: &Database) {
    let all: Vec<_> = db.keyspace_names().iter().filter_map(|name| db.find(name)).collect();
    let put = |keyspaces: &[Keyspace], position: &[u8; 16]| {
        let mut batch = db.batch();
        keyspaces.iter().for_each(|keyspace| batch.insert(keyspace, "replayed", position));
        batch.set_external_position(*position);
        batch.commit().unwrap();
    };
    put(&all, b"primary/00000001");
    all.iter().for_each(|keyspace| keyspace.flush().unwrap());
    put(&[db.find("levels").unwrap(), db.find("logged").unwrap()], b"primary/00000002");
}

fn write(database: &str) {
    let to = &golden().join(database);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
    let builder = builder(&path).disk(Arc::new(disk.clone()));
    let db = builder.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
    for (name, options) in keyspaces(database) {
        let fill = if database == LARGE { fill_large } else { fill };
        fill(&db.keyspace(name, options).unwrap());
    }
    db.keyspace("empty", KeyspaceOptions::default()).unwrap();
    if database == POSITIONS {
        put_positions(&db);
    }
    if database == KINDS {
        begin_sweep(&disk, &db);
    }
    // As the death of the process leaves it.
    let _ = std::fs::remove_dir_all(to);
    copy(&path, to);
    // What is reserved and not written yet need not be kept in a repository.
    for name in std::fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path()) {
        if name.file_name().is_some_and(|name| name.to_string_lossy().starts_with("manifest")) {
            let bytes = std::fs::read(&name).unwrap();
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            // As it is reserved where room is short.
            std::fs::write(&name, &bytes[..end.next_multiple_of(64 << 10)]).unwrap();
        }
    }
    let text = told(&db);
    assert!(text.lines().count() > 300, "{text}");
    std::fs::write(to.join(EXPECTED), text).unwrap();
}

#[test]
fn databases_of_every_format_are_opened_read_and_gone_on_with() {
    if let Ok(asked) = std::env::var("LEARNEDKV_REWRITE") {
        let all = [NEWEST, KINDS, POSITIONS, LARGE];
        let one = all.into_iter().skip(1).filter(|database| asked == *database);
        let chosen: Vec<_> = if asked == "1" { all.into() } else { one.collect() };
        chosen.into_iter().for_each(write);
    }
    let (mut versions, mut sweeps, mut positions) = (0, 0, 0);
    for version in std::fs::read_dir(golden()).unwrap() {
        let version = version.unwrap().path();
        let expected = std::fs::read_to_string(version.join(EXPECTED)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        copy(&version, &path);
        let reader = Database::builder(&path).read_only(true).open().unwrap();
        assert!(told(&reader) == expected, "{version:?}, read only");
        // Amid the keys: some are settled, some are not.
        if let Some(key) = watermark(&reader) {
            assert!(key.starts_with(b"key/"), "{version:?}: {}", key.escape_ascii());
            sweeps += 1;
        }
        let keyspaces = reader.keyspace_names().into_iter().filter_map(|name| reader.find(&name));
        let flushed = keyspaces.filter_map(|k| k.flushed_external_position().unwrap());
        positions += flushed.inspect(|found| assert_eq!(found, b"primary/00000001")).count();
        if version.ends_with(LARGE) {
            assert!(is_large(&reader), "nothing large in {version:?}");
        }
        drop(reader);
        let db = open(&path);
        assert!(told(&db) == expected, "{version:?}");
        for name in db.keyspace_names() {
            db.find(&name).unwrap().convert().unwrap();
        }
        db.wait_idle().unwrap();
        assert!(told(&db) == expected, "{version:?}, all written anew");
        db.close().unwrap();
        assert!(told(&open(&path)) == expected, "{version:?}, opened again");
        versions += 1;
    }
    assert!(versions > 1 && sweeps > 0, "{versions} databases, {sweeps} of them amid a sweep");
    assert_eq!(positions, 4, "keyspaces with flushed positions");
    assert!(golden().join(NEWEST).join(EXPECTED).exists(), "nothing of the newest format");
}
