//! Every engine of this build through its trait, against a `BTreeMap`: an adapter that lies would
//! make the comparison a lie.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use learnedkv_bench::engines::{
    Durability, ENGINES, Engine, EngineStats, Kind, OpenSettings, Opener, known,
};
use learnedkv_bench::random::Rng;
use learnedkv_bench::run::resources::DeviceRequests;

/// Random operations on each engine, and between two reopenings.
const OPERATIONS: usize = 3_000;
const REOPEN_EVERY: usize = 1_300;
/// Distinct keys: few, so that they are overwritten and removed.
const KEYS: u64 = 900;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Small memtables and a small budget, so that flushes and compactions take part.
fn settings(dir: &Path, durability: Durability) -> OpenSettings {
    OpenSettings {
        memory_budget_bytes: Some(16 << 20),
        memtable_bytes: Some(1 << 20),
        durability,
        ..OpenSettings::at(dir)
    }
}

/// Runs `test` on every engine that can be opened here; says which cannot, and why.
fn on_each(durability: Durability, test: impl Fn(&str, Opener, &OpenSettings)) {
    for &(name, opener) in ENGINES {
        let needs_library = known(name).unwrap().feature == "rocksdb";
        if needs_library && std::env::var_os("LEARNEDKV_ROCKSDB").is_none() {
            learnedkv_skips::skip("rocksdb", &format!("{name}: LEARNEDKV_ROCKSDB is not set"));
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        test(name, opener, &settings(dir.path(), durability));
    }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    // Big-endian integers and text of several lengths; never empty.
    match rng.below(3) {
        0 => rng.below(KEYS / 3).to_be_bytes().to_vec(),
        1 => format!("k{}", rng.below(KEYS / 3)).into_bytes(),
        _ => format!("path/of/some/length/{:05}", rng.below(KEYS / 3)).into_bytes(),
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    // Below and above what is separated from its key.
    let length = [0, 1, 40, 511, 512, 1016, 5000][rng.below(7) as usize];
    (0..length).map(|_| rng.next_u64() as u8).collect()
}

fn scanned(engine: &dyn Engine, start: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    if limit > 0 {
        engine
            .scan(start, &mut |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                seen.len() < limit
            })
            .unwrap();
    }
    seen
}

fn found(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    let present = engine.get(key, &mut |value| found = Some(value.to_vec())).unwrap();
    assert_eq!(present, found.is_some(), "get says one thing and shows another");
    found
}

/// Everything that `engine` has is what `model` has.
fn check_all(name: &str, engine: &dyn Engine, model: &Model) {
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(scanned(engine, b"", usize::MAX) == expected, "{name}: the whole scan differs");
    for (key, value) in model {
        assert!(found(engine, key).as_ref() == Some(value), "{name}: get {key:?}");
    }
}

/// One random operation on both.
fn step(name: &str, engine: &dyn Engine, model: &mut Model, rng: &mut Rng) {
    let at = key(rng);
    match rng.below(100) {
        0..43 => {
            let value = value(rng);
            engine.insert(&at, &value).unwrap();
            model.insert(at, value);
        }
        43..45 => {
            let mut many = Model::new();
            many.extend((0..rng.below(40)).map(|_| (key(rng), value(rng))));
            let removed = |value: &[u8]| value.len() == 40;
            let entries: Vec<(&[u8], Option<&[u8]>)> = many
                .iter()
                .map(|(key, value)| (&key[..], Some(&value[..]).filter(|v| !removed(v))))
                .collect();
            engine.write_many(&entries).unwrap();
            for (key, value) in many {
                match removed(&value) {
                    true => model.remove(&key),
                    false => model.insert(key, value),
                };
            }
        }
        45..60 => {
            engine.remove(&at).unwrap();
            model.remove(&at);
        }
        60..80 => assert!(found(engine, &at).as_ref() == model.get(&at), "{name}: get {at:?}"),
        80..88 => {
            let keys: Vec<_> = (0..rng.below(40)).map(|_| key(rng)).collect();
            let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut seen = vec![None; keys.len()];
            engine
                .multi_get(&lent, &mut |number, value| {
                    assert!(seen[number].replace(value.to_vec()).is_none(), "{name}: told twice");
                })
                .unwrap();
            for (key, seen) in keys.iter().zip(&seen) {
                assert!(seen.as_ref() == model.get(key), "{name}: multi_get {key:?}");
            }
        }
        88..93 => {
            let (from, to) = (at.clone().min(key(rng)), at);
            let mut seen = Vec::new();
            engine
                .range(&from, &to, &mut |key, value| {
                    seen.push((key.to_vec(), value.to_vec()));
                    true
                })
                .unwrap();
            let range = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
            let expected: Vec<_> =
                model.range(range).map(|(k, v)| (k.clone(), v.clone())).collect();
            assert!(seen == expected, "{name}: range from {from:?} to {to:?}");
        }
        93..98 => {
            let limit = rng.below(30) as usize;
            let range = (Bound::Included(at.clone()), Bound::Unbounded);
            let expected: Vec<_> =
                model.range(range).take(limit).map(|(k, v)| (k.clone(), v.clone())).collect();
            assert!(scanned(engine, &at, limit) == expected, "{name}: scan from {at:?}");
        }
        98 if rng.below(3) == 0 => engine.flush().unwrap(),
        99 if rng.below(8) == 0 => engine.settle().unwrap(),
        _ => {}
    }
}

#[test]
fn every_engine_does_what_a_map_does() {
    on_each(Durability::Buffered, |name, opener, settings| {
        let mut model = Model::new();
        let mut rng = Rng::seeded(11);
        let mut engine = opener(settings).unwrap();
        for operation in 1..=OPERATIONS {
            step(name, engine.as_ref(), &mut model, &mut rng);
            if operation % REOPEN_EVERY == 0 {
                engine.close().unwrap();
                engine = opener(settings).unwrap();
                check_all(name, engine.as_ref(), &model);
            }
        }
        engine.settle().unwrap();
        check_all(name, engine.as_ref(), &model);
        let stats = engine.stats();
        assert!(!stats.figures.is_empty(), "{name} says nothing about itself");
        engine.close().unwrap();
    });
}

#[test]
fn every_engine_takes_sorted_entries_in_and_keeps_them_beside_others() {
    on_each(Durability::Buffered, |name, opener, settings| {
        let engine = opener(settings).unwrap();
        let entry = |i: u32| (format!("key-{i:06}").into_bytes(), vec![i as u8; 700]);
        let mut model: Model = (0..12_000).map(entry).collect();
        engine.ingest(&mut model.clone().into_iter()).unwrap();
        let (key, _) = entry(77);
        engine.insert(&key, b"newer").unwrap();
        model.insert(key, b"newer".to_vec());
        let (key, _) = entry(11_999);
        engine.remove(&key).unwrap();
        model.remove(&key);
        engine.settle().unwrap();
        check_all(name, engine.as_ref(), &model);
        engine.close().unwrap();
        let engine = opener(settings).unwrap();
        check_all(name, engine.as_ref(), &model);
        engine.ingest(&mut std::iter::empty()).unwrap();
        engine.close().unwrap();
    });
}

/// That all of an engine is compacted, where it says so: all is settled, or one table is left.
fn check_compacted(name: &str, stats: &EngineStats) {
    let figure =
        |name: &str| stats.figures.iter().find(|(known, _)| known == name).map(|(_, n)| *n);
    match name {
        "learnedkv" => assert_eq!(figure("settled_share"), Some(1.0), "{stats:?}"),
        "learnedkv-lsm" | "baseline" => {
            let level = |line: &str| {
                line.trim_start().strip_prefix("level ")?.split(' ').next()?.parse::<u64>().ok()
            };
            let levels: Vec<u64> = stats.text.lines().filter_map(level).collect();
            assert!(levels.len() == 1 && levels[0] > 0, "{}", stats.text);
        }
        "fjall" | "fjall-separated" => assert_eq!(figure("tables"), Some(1.0), "{stats:?}"),
        "rocksdb" | "rocksdb-mapped" | "blobdb" => {
            // Flushes leave tables in level 0, the first number of a line; the second is how many.
            let of = |line: &str, at: usize| line.split_whitespace().nth(at)?.parse::<u64>().ok();
            let held = |line: &&str| of(line, 1) > Some(0);
            let levels = stats.text.lines().filter(held).filter_map(|line| of(line, 0));
            let levels: Vec<u64> = levels.collect();
            assert!(levels.len() == 1 && levels[0] > 0, "{}", stats.text);
        }
        // A tree that is changed in its place has nothing to be compacted but its file; a map nothing.
        "lmdb" | "lmdb-write-map" | "redb" | "btree-map" => {}
        _ => panic!("how is it told that {name} is compacted?"),
    }
}

#[test]
fn every_engine_compacts_all_it_has_and_keeps_it() {
    on_each(Durability::Buffered, |name, opener, settings| {
        let (mut model, mut rng) = (Model::new(), Rng::seeded(23));
        let mut engine = opener(settings).unwrap();
        for _ in 0..2 {
            for _ in 0..1_500 {
                step(name, engine.as_ref(), &mut model, &mut rng);
            }
            engine.compact().unwrap();
            check_all(name, engine.as_ref(), &model);
        }
        // One small flush after another: nothing of theirs is due by itself.
        for round in 0..3_u8 {
            engine.insert(b"last", &[round; 40]).unwrap();
            model.insert(b"last".to_vec(), vec![round; 40]);
            engine.compact().unwrap();
            check_compacted(name, &engine.stats());
        }
        engine.close().unwrap();
        check_all(name, opener(settings).unwrap().as_ref(), &model);
    });
}

#[test]
fn learnedkv_at_rest_was_not_made_to_convert() {
    let opener = learnedkv_bench::engines::opener("learnedkv").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut engine = opener(&settings(dir.path(), Durability::Buffered)).unwrap();
    for key in 0..2_000_u64 {
        engine.insert(&key.to_be_bytes(), &[7; 100]).unwrap();
    }
    let settled = |engine: &dyn Engine| {
        engine.stats().figures.iter().find(|(name, _)| name == "settled_share").unwrap().1
    };
    engine.settle().unwrap();
    // Far less than a first conversion begins with.
    assert_eq!(settled(engine.as_ref()), 0.0);
    engine.compact().unwrap();
    assert_eq!(settled(engine.as_ref()), 1.0);
}

#[test]
fn rivals_say_their_versions() {
    on_each(Durability::Buffered, |name, opener, settings| {
        let version = opener(settings).unwrap().version();
        let rival = !known(name).unwrap().feature.is_empty();
        let number = version.split('.').next().is_some_and(|major| major.parse::<u32>().is_ok());
        assert_eq!(number, rival, "{name}: {version:?}");
    });
}

#[cfg(feature = "fjall")]
#[test]
fn fjalls_settling_says_how_long_it_only_looked_on() {
    let opener = learnedkv_bench::engines::opener("fjall").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let engine = opener(&settings(dir.path(), Durability::Buffered)).unwrap();
    engine.insert(b"key", b"value").unwrap();
    let start = std::time::Instant::now();
    engine.settle().unwrap();
    let all = start.elapsed();
    // So long must nothing have happened, and that was not all of it.
    let quiet = std::time::Duration::from_millis(500);
    assert!((quiet..all).contains(&engine.looked_on()), "{:?} of {all:?}", engine.looked_on());
}

#[cfg(feature = "lmdb")]
#[test]
fn lmdb_has_reader_slots_for_the_clients_of_many_phases() {
    let opener = learnedkv_bench::engines::opener("lmdb").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let engine = opener(&settings(dir.path(), Durability::Buffered)).unwrap();
    engine.insert(b"key", b"value").unwrap();
    // More threads, one after another, than there are slots: each gives its own back.
    for _ in 0..2_500 {
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(found(engine.as_ref(), b"key").is_some()));
        });
    }
}

#[cfg(feature = "lmdb")]
#[test]
fn lmdb_keeps_its_read_transactions_and_each_sees_what_was_committed_last() {
    let opener = learnedkv_bench::engines::opener("lmdb").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let engine = opener(&settings(dir.path(), Durability::Buffered)).unwrap();
    // More clients at once than places for what is kept: some share one.
    let clients = 100_u8;
    let barrier = std::sync::Barrier::new(usize::from(clients));
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (engine, barrier) = (engine.as_ref(), &barrier);
            scope.spawn(move || {
                for round in 0..10_u8 {
                    engine.insert(&[client], &[round; 20]).unwrap();
                    assert_eq!(found(engine, &[client]), Some(vec![round; 20]));
                    barrier.wait();
                    let next = (client + 1) % clients;
                    assert_eq!(found(engine, &[next]), Some(vec![round; 20]));
                    barrier.wait();
                }
            });
        }
    });
    // A thread has one at a time. What was lent to a get is still there when another was refused.
    let mut inside = Ok(false);
    let outer = engine.get(&[1], &mut |value| {
        inside = engine.get(&[2], &mut |_| {});
        assert_eq!(value, [9; 20]);
    });
    assert!(outer.unwrap() && inside.unwrap_err().to_string().contains("MDB_BAD_RSLOT"));
    assert_eq!(found(engine.as_ref(), &[3]), Some(vec![9; 20]));
    engine.close().unwrap();
    let engine = opener(&settings(dir.path(), Durability::Buffered)).unwrap();
    assert_eq!(found(engine.as_ref(), &[99]), Some(vec![9; 20]));
}

/// RocksDB's opener, if its library is there.
#[cfg(feature = "rocksdb")]
fn rocksdb() -> Option<Opener> {
    if std::env::var_os("LEARNEDKV_ROCKSDB").is_none() {
        learnedkv_skips::skip("rocksdb", "LEARNEDKV_ROCKSDB is not set");
        return None;
    }
    Some(learnedkv_bench::engines::opener("rocksdb").unwrap())
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_counts_what_it_found_in_its_cache_when_asked() {
    let Some(opener) = rocksdb() else { return };
    for counting in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path(), Durability::Buffered);
        settings.options = vec![("statistics".to_string(), counting.to_string())];
        let engine = opener(&settings).unwrap();
        engine.insert(b"key", b"value").unwrap();
        engine.flush().unwrap();
        for _ in 0..10 {
            assert!(found(engine.as_ref(), b"key").is_some());
        }
        let figures = engine.stats().figures;
        let hits = figures.iter().find(|(name, _)| name == "cache_hits").map(|(_, hits)| *hits);
        assert_eq!(hits.map(|hits| hits >= 9.0), counting.then_some(true), "{figures:?}");
        let Some(before) = engine.cache_counts() else {
            assert!(!counting);
            continue;
        };
        assert!(counting && before.hits >= 9);
        assert!(found(engine.as_ref(), b"key").is_some());
        let since = engine.cache_counts().unwrap().since(before);
        assert_eq!((since.percent(), since.misses), (Some(100.0), 0), "{since:?}");
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_reads_and_compresses_as_asked_and_says_so_itself() {
    use learnedkv_bench::engines::Reads;
    let Some(opener) = rocksdb() else { return };
    let cases = [
        (Reads::Mapped, false, "reads by calls"),
        (Reads::Mapped, true, "reads from maps"),
        (Reads::Buffered, false, "reads by calls"),
        (Reads::Direct, false, "reads direct"),
    ];
    for (reads, mapped, words) in cases {
        // On the disk that things are built on: not every /tmp has direct reads.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut settings = settings(dir.path(), Durability::Buffered);
        settings.reads = reads;
        settings.compression = Some(learnedkv::Compression::from_text("zstd:7").unwrap());
        if mapped {
            settings.options = vec![("allow_mmap_reads".to_string(), "true".to_string())];
        }
        let engine = opener(&settings).unwrap();
        assert!(engine.version().ends_with(words), "{reads}, {mapped}: {}", engine.version());
        let log = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
        let line = log.lines().find(|line| line.contains("Options.compression_opts.level:"));
        assert!(line.is_some_and(|line| line.trim_end().ends_with(": 7")), "{line:?}");
        for key in 0..100_u64 {
            engine.insert(&key.to_be_bytes(), &[7; 500]).unwrap();
        }
        engine.settle().unwrap();
        assert_eq!(found(engine.as_ref(), &7_u64.to_be_bytes()), Some(vec![7; 500]));
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_uses_its_logs_again_once_some_were_filled() {
    let Some(opener) = rocksdb() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path(), Durability::Synced);
    settings.memtable_bytes = Some(64 << 10);
    let engine = opener(&settings).unwrap();
    let again = || {
        let log = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
        log.lines().filter(|line| line.contains("from recycle list")).count()
    };
    engine.insert(b"key", b"value").unwrap();
    engine.settle().unwrap();
    assert_eq!(again(), 0, "there was none to use again");
    let values = vec![vec![7; 1000]; 400];
    let keys: Vec<_> = (0..400_u64).map(u64::to_be_bytes).collect();
    let entries: Vec<(&[u8], Option<&[u8]>)> =
        keys.iter().zip(&values).map(|(key, value)| (&key[..], Some(&value[..]))).collect();
    for batch in entries.chunks(20) {
        engine.write_many(batch).unwrap();
    }
    engine.settle().unwrap();
    assert!(again() > 0, "no log was used again");
}

/// What `verify_checksums=false` is measured for: nobody computes the checksum of what is read.
#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_that_verifies_nothing_does_not_see_a_flipped_bit() {
    let Some(opener) = rocksdb() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path(), Durability::Buffered);
    let engine = opener(&settings).unwrap();
    let value = [7; 1000];
    (0..100_u32).for_each(|key| engine.insert(&key.to_be_bytes(), &value).unwrap());
    engine.settle().unwrap();
    engine.close().unwrap();
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let tables: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "sst")).collect();
    for table in &tables {
        let mut bytes = std::fs::read(table).unwrap();
        // Amid some value.
        let at = bytes.windows(500).position(|piece| piece == &value[..500]).unwrap() + 250;
        bytes[at] ^= 1;
        std::fs::write(table, bytes).unwrap();
    }
    assert!(!tables.is_empty());
    for (verifies, is_seen) in [("true", true), ("false", false)] {
        settings.options = vec![("verify_checksums".to_string(), verifies.to_string())];
        let engine = opener(&settings).unwrap();
        let (mut refused, mut wrong) = (0, 0);
        for key in 0..100_u32 {
            match engine.get(&key.to_be_bytes(), &mut |found| wrong += u32::from(found != value)) {
                Ok(is_there) => assert!(is_there, "{key}"),
                Err(_) => refused += 1,
            }
        }
        assert_eq!(
            (refused > 0, wrong > 0),
            (is_seen, !is_seen),
            "{refused} refused, {wrong} wrong"
        );
    }
}

#[cfg(feature = "lmdb")]
#[test]
fn lmdb_in_a_writable_map_is_a_map_too() {
    for (name, write_map) in [("lmdb-write-map", true), ("lmdb", false)] {
        let opener = learnedkv_bench::engines::opener(name).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), Durability::Buffered);
        let (mut model, mut rng) = (Model::new(), Rng::seeded(7));
        let engine = opener(&settings).unwrap();
        for _ in 0..1_000 {
            step(name, engine.as_ref(), &mut model, &mut rng);
        }
        engine.close().unwrap();
        // Of such a map the file is as long as the map.
        let bytes = std::fs::metadata(dir.path().join("data.mdb")).unwrap().len();
        assert_eq!(bytes > 1 << 30, write_map, "{bytes} bytes");
        check_all(name, opener(&settings).unwrap().as_ref(), &model);
    }
}

#[test]
fn every_engine_can_sync_each_write() {
    on_each(Durability::Synced, |name, opener, settings| {
        let engine = opener(settings).unwrap();
        let writers = 3;
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let engine = engine.as_ref();
                scope.spawn(move || {
                    for i in 0..10 {
                        engine.insert(format!("{writer}-{i}").as_bytes(), b"value").unwrap();
                    }
                });
            }
        });
        assert_eq!(scanned(engine.as_ref(), b"", usize::MAX).len(), writers * 10, "{name}");
        engine.close().unwrap();
    });
}

/// Each write of one client that is to be synced makes the device write at least once. (The device is everybody's: what others write meanwhile
/// can hide an engine that syncs nothing, and never accuses one that does.)
#[test]
fn writes_that_are_synced_reach_the_device() {
    let outer = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let writes = || DeviceRequests::of(outer.path()).map(|requests| requests.writes);
    if writes().is_none() {
        learnedkv_skips::skip("device", "the device that things are built on is not found");
        return;
    }
    on_each(Durability::Synced, |name, opener, settings| {
        if known(name).unwrap().kind == Kind::Floor {
            return;
        }
        let dir = outer.path().join(name);
        let engine = opener(&OpenSettings { dir, ..settings.clone() }).unwrap();
        let insert = |i: u32| engine.insert(&i.to_be_bytes(), b"value").unwrap();
        (0..5).for_each(insert);
        let before = writes().unwrap();
        (5..45).for_each(insert);
        let made = writes().unwrap() - before;
        assert!(made >= 40, "{name}: {made} writes of the device for 40 that were to be synced");
        engine.close().unwrap();
    });
}

#[test]
fn what_an_engine_does_not_have_is_refused_in_words() {
    for &(name, opener) in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let mut wrong = settings(dir.path(), Durability::Buffered);
        if name == "btree-map" {
            continue;
        }
        wrong.options = vec![("nosuch_option".to_string(), "1".to_string())];
        let error = opener(&wrong).err().unwrap_or_else(|| panic!("{name} took nosuch_option"));
        let words = error.to_string();
        let library = words.contains("LEARNEDKV_ROCKSDB: expected the path of a shared library");
        assert!(library || words.contains("nosuch_option"), "{name}: {words}");
        assert!(!words.contains('\n'), "{name}: {words}");
    }
}

#[cfg(feature = "redb")]
#[test]
fn redb_on_a_file_without_syncs_is_a_map_too() {
    let opener = learnedkv_bench::engines::opener("redb").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path(), Durability::Buffered);
    settings.options = vec![("commits".to_string(), "written".to_string())];
    let (mut model, mut rng) = (Model::new(), Rng::seeded(5));
    let engine = opener(&settings).unwrap();
    for _ in 0..1_000 {
        step("redb", engine.as_ref(), &mut model, &mut rng);
    }
    // As if the process had died: nothing is closed, and a copy of what was written is opened.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(dir.path().join("redb"), copy.path().join("redb")).unwrap();
    settings.dir = copy.path().to_path_buf();
    check_all("redb", opener(&settings).unwrap().as_ref(), &model);
    engine.close().unwrap();
}
