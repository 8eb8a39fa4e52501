//! The LearnedKV paper's baseline in our code: that it is what it says.

use std::path::Path;

use learnedkv::{Database, KeyspaceStats, Store};
use learnedkv_bench::engines::{BASELINE, Engine, EngineStats, OpenSettings, opener};
use learnedkv_bench::run::resources::Usage;

const KEYS: u64 = 4_000;
const LONG_BYTES: usize = 700;

/// Fills a store of `engine` with long and short values, overwrites a part, settles, reads all; what
/// the engine then says of itself.
fn filled(engine: &str, dir: &Path) -> EngineStats {
    let settings = OpenSettings {
        memory_budget_bytes: Some(16 << 20),
        memtable_bytes: Some(1 << 20),
        ..OpenSettings::at(dir)
    };
    let mut store: Box<dyn Engine> = opener(engine).unwrap()(&settings).unwrap();
    let value =
        |key: u64, round: u8| vec![round; if key.is_multiple_of(4) { 100 } else { LONG_BYTES }];
    for round in 1..=3 {
        for key in (0..KEYS).filter(|key| round == 1 || key.is_multiple_of(3)) {
            store.insert(&key.to_be_bytes(), &value(key, round)).unwrap();
        }
        store.compact().unwrap();
    }
    for key in 0..KEYS {
        let round = if key.is_multiple_of(3) { 3 } else { 1 };
        let mut found = Vec::new();
        assert!(store.get(&key.to_be_bytes(), &mut |value| found = value.to_vec()).unwrap());
        assert!(found == value(key, round), "key {key}");
    }
    let stats = store.stats();
    store.close().unwrap();
    stats
}

fn figure(stats: &EngineStats, name: &str) -> f64 {
    stats.figures.iter().find(|(known, _)| known == name).unwrap().1
}

/// What the database of `dir` says of its keyspace when it is opened as any other.
fn keyspace(dir: &Path) -> KeyspaceStats {
    let database = Database::open(dir).unwrap();
    let stats = database.stats().keyspaces.remove(0);
    database.close().unwrap();
    stats
}

#[test]
fn the_baseline_has_levels_fences_filters_and_values_apart_and_reads_no_maps() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (ours, baseline) = (filled("learnedkv", dirs[0].path()), filled(BASELINE, dirs[1].path()));
    assert!(figure(&baseline, "read_requests") > 0.0);
    assert_eq!(figure(&baseline, "mapped_reads"), 0.0);
    #[cfg(target_os = "linux")]
    assert!(figure(&ours, "mapped_reads") > 0.0, "the other store has none to differ by");

    let (ours, baseline) = (keyspace(dirs[0].path()), keyspace(dirs[1].path()));
    assert_eq!(baseline.store, Store::Lsm);
    // Every long value is apart for good, and ours has moved them in.
    let long = KEYS - KEYS.div_ceil(4);
    assert!(baseline.value_live_bytes >= long * LONG_BYTES as u64, "{baseline:?}");
    assert_eq!(ours.value_live_bytes, 0, "{ours:?}");
    // Every entry is behind a filter of about ten bits a key, none of ours is.
    let entries = baseline.lsm_entries + baseline.settled_entries;
    assert_eq!(baseline.filtered_entries, entries);
    let bits = baseline.filter_bytes as f64 * 8.0 / entries as f64;
    assert!((9.5..12.0).contains(&bits), "{bits}");
    assert_eq!(ours.filtered_entries, 0);
    // Fences hold each block's key in full; what is learned is smaller, a block for a block.
    let per_block = |stats: &KeyspaceStats| stats.index_bytes as f64 / stats.blocks as f64;
    assert!(per_block(&baseline) > per_block(&ours), "{baseline:?} {ours:?}");
}

#[test]
fn its_options_can_be_changed_and_direct_reads_are_done() {
    // On the disk that things are built on: not every /tmp has direct reads.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut settings = OpenSettings::at(dir.path());
    settings.options = vec![("separate_at".to_string(), "5000".to_string())];
    settings.reads = learnedkv_bench::engines::Reads::Direct;
    let store = opener(BASELINE).unwrap()(&settings).unwrap();
    for key in 0..500_u64 {
        store.insert(&key.to_be_bytes(), &[7; 1_000]).unwrap();
    }
    store.settle().unwrap();
    let (requests, used) = (figure(&store.stats(), "read_requests"), Usage::now());
    for key in 0..500_u64 {
        let mut found = 0;
        assert!(store.get(&key.to_be_bytes(), &mut |value| found = value.len()).unwrap());
        assert_eq!(found, 1_000);
    }
    // The system holds all that was just written: what the device is asked for goes around that.
    let requests = figure(&store.stats(), "read_requests") - requests;
    let read_bytes = Usage::now().since(used).read_bytes as f64;
    if !Path::new("/proc/self/io").exists() {
        learnedkv_skips::skip("proc_io", "the kernel does not say what this process has read");
        return;
    }
    assert!(requests >= 50.0 && read_bytes >= requests * 4096.0 * 0.9, "{requests}: {read_bytes}");
    store.close().unwrap();
    assert_eq!(keyspace(dir.path()).value_segments, 0);
}
