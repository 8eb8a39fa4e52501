//! The same operations under every configuration give the same answers: those of the model.
//!
//! Each configuration changes one thing that must not matter (block and memtable sizes, index and filter
//! kinds, compression, the cache, the log's regions, when settling starts, the order in which background
//! work steps).

use std::sync::Arc;

use learnedkv::disk::real::{LogRegionKind, ManyReads, RealDisk};
use learnedkv::disk::sim::SimDisk;
use learnedkv::executor::ThreadExecutor;
use learnedkv::{Compression, Database, FilterKind, IndexKind, KeyspaceOptions, ReadOptions};

use crate::keys::Keys;
use crate::workload::{Model, Op, Random, Setup, contents_by, difference, draw, guarded};

/// Workloads per configuration.
const SEEDS: u64 = 6;
/// Operations of a workload.
const LENGTH: usize = 400;

/// Configurations by name.
fn setups() -> Vec<(String, Setup)> {
    let small = Setup::default;
    let keyspace = || small().keyspace;
    let mut setups = vec![
        ("small".to_owned(), small()),
        ("no cache".to_owned(), Setup { block_cache: false, ..small() }),
        ("no maps".to_owned(), Setup { mapped_reads: false, ..small() }),
        ("no automatic conversion".to_owned(), Setup { automatic_conversion: false, ..small() }),
        ("large memtables".to_owned(), Setup { memtable_bytes: 64 << 10, ..small() }),
        (
            "little background work a second".to_owned(),
            Setup { background_bytes_per_s: Some(64 << 10), ..small() },
        ),
        ("large log segments".to_owned(), Setup { log_segment_bytes: 1 << 20, ..small() }),
        ("large blocks".to_owned(), with(keyspace().block_bytes(4096))),
        ("large partitions".to_owned(), with(keyspace().partition_bytes(1 << 20))),
        ("always settling".to_owned(), with(keyspace().min_conversion_bytes(0))),
        ("no deltas".to_owned(), with(keyspace().delta_limit_percent(0))),
        (
            "nothing separated".to_owned(),
            with(keyspace().separate_at(1 << 20).inline_limit(1 << 20)),
        ),
        ("all separated".to_owned(), with(keyspace().separate_at(1).inline_limit(0))),
        (
            "separated till settled".to_owned(),
            with(keyspace().separate_at(1).inline_limit(1 << 20)),
        ),
        (
            "separated once settled".to_owned(),
            with(keyspace().separate_at(1 << 20).inline_limit(0)),
        ),
        ("values never move".to_owned(), with(keyspace().separate_at(20).move_values(false))),
        ("all deltas".to_owned(), with(keyspace().delta_limit_percent(100))),
    ];
    setups.extend(ways_of_reading());
    setups.extend(levels());
    setups.extend(paged());
    for &kind in IndexKind::ALL {
        setups.push((format!("lsm index {}", kind.name()), with(keyspace().lsm_index(kind))));
        let settled = with(keyspace().settled_index(kind));
        setups.push((format!("settled index {}", kind.name()), settled));
    }
    for &how in Compression::ALL.iter().filter(|how| **how != Compression::None) {
        setups.push((format!("lsm compression {how}"), with(keyspace().lsm_compression(how))));
        let settled = with(keyspace().settled_compression(how).block_bytes(1024));
        setups.push((format!("settled compression {how}"), settled));
        let apart = keyspace().separate_at(1).inline_limit(0).compression(how);
        setups.push((format!("all separated, {how}"), with(apart)));
        // What a sweep moves is decompressed, and moved raw.
        let passing = keyspace().separate_at(1).inline_limit(150).lsm_compression(how);
        setups.push((format!("separated, {how} till settled"), with(passing)));
        let levels = Setup::levels().keyspace.separate_at(64).compression(how);
        setups.push((format!("levels, {how}"), Setup { keyspace: levels, ..Setup::levels() }));
    }
    let kinds = FilterKind::ALL.iter().map(|kind| Some(*kind));
    for kind in kinds.chain([None]) {
        let name = kind.map_or("none".to_owned(), |kind| kind.to_string());
        let filtered = with(keyspace().lsm_filter(kind).settled_filter(kind));
        setups.push((format!("filters {name}"), filtered));
    }
    setups.push(("no filters at rest".to_owned(), with(keyspace().attach_filters(false))));
    // So few bits that most absent keys pass.
    let poor = Some(FilterKind::BlockedBloom { bits_per_key: 1 });
    setups.push(("poor filters".to_owned(), with(keyspace().lsm_filter(poor))));
    setups
}

fn with(keyspace: KeyspaceOptions) -> Setup {
    Setup { keyspace, ..Setup::default() }
}

/// Those that are read in another way.
fn ways_of_reading() -> Vec<(String, Setup)> {
    let (at_once, leave) =
        (ReadOptions::default().at_once(true), ReadOptions::default().fill_cache(false));
    let unfiltered = with(Setup::default().keyspace.lsm_filter(None).settled_filter(None));
    let uncached = Setup { mapped_reads: false, ..Setup::default() };
    vec![
        ("all tables at once".to_owned(), Setup { reads: at_once, ..unfiltered }),
        ("all tables at once, levels".to_owned(), Setup { reads: at_once, ..Setup::levels() }),
        ("nothing left in the cache".to_owned(), Setup { reads: leave, ..uncached }),
        (
            "nothing left in the cache, paged".to_owned(),
            Setup { reads: leave, ..Setup::default().paged(true) },
        ),
    ]
}

/// Those whose tables do not keep their index, or not all of them.
fn paged() -> Vec<(String, Setup)> {
    let mut setups = vec![
        ("paged, no cache".to_owned(), Setup::default().paged(false)),
        ("tight".to_owned(), Setup::default().tight()),
        ("levels, paged, no cache".to_owned(), Setup::levels().paged(false)),
        ("levels, tight".to_owned(), Setup::levels().tight()),
    ];
    for &kind in IndexKind::ALL {
        let of = |setup: Setup| {
            let keyspace = setup.keyspace.clone().lsm_index(kind).settled_index(kind);
            Setup { keyspace, ..setup }.paged(true)
        };
        setups.push((format!("paged, index {}", kind.name()), of(Setup::default())));
        setups.push((format!("levels, paged, index {}", kind.name()), of(Setup::levels())));
    }
    setups
}

/// Whether tables keep their indexes as the setup says.
fn check_residence(db: &Database, setup: &Setup) -> Result<(), String> {
    let stats = db.stats();
    let all: u64 = stats.keyspaces.iter().map(|k| k.index_bytes).sum();
    let (paged, loads) = (stats.paged_index_bytes, stats.index_loads);
    // The first and last keys of tables stay in memory, and a model may need separators in full: long ones may leave
    // indexes no room.
    let is_long = setup.keys == Keys::Long;
    let holds = match setup.metadata_percent {
        0 => paged == all && loads > 0,
        50 => paged == 0 && (is_long || loads == 0),
        _ => paged < all || (is_long && loads > 0),
    };
    if holds {
        Ok(())
    } else {
        Err(format!("{paged} of {all} bytes of indexes paged; {loads} loads"))
    }
}

/// Runs `ops`, opening anew now and then, and compares with the model as often.
fn run(ops: &[Op], setup: &Setup, mut open: impl FnMut(u64) -> Database) -> Result<(), String> {
    let mut db = open(0);
    let mut model = Model::new();
    let compare = |db: &Database, model: &Model, number: usize| {
        let found = contents_by(db, setup.keys, &setup.reads)
            .map_err(|e| format!("reading after {number}: {e:?}"))?;
        if found == *model {
            return Ok(());
        }
        Err(format!("after operation {number}: {}", difference(&found, model)))
    };
    for (number, op) in ops.iter().enumerate() {
        op.apply(&db, setup).map_err(|e| format!("operation {number} {op:?}: {e:?}"))?;
        op.change(&mut model);
        if number % 40 == 39 {
            compare(&db, &model, number)?;
        }
        if number % 130 == 129 {
            drop(db);
            db = open(number as u64);
            compare(&db, &model, number)?;
        }
    }
    db.wait_idle().map_err(|e| format!("coming to rest: {e:?}"))?;
    compare(&db, &model, ops.len())?;
    check_residence(&db, setup)?;
    let fallbacks = db.stats().index_fallbacks;
    if fallbacks > 0 { Err(format!("{fallbacks} fallbacks of honest indexes")) } else { Ok(()) }
}

#[test]
fn configurations_do_not_change_answers() {
    for (name, setup) in setups() {
        for seed in 0..SEEDS {
            let setup = Setup { keys: Keys::of(seed), ..setup.clone() };
            let length = [40, 250, 700][seed as usize % 3];
            let ops = draw(&mut Random::new(seed), setup.keys, LENGTH, length);
            let disk = SimDisk::new(seed);
            let open = |n| setup.open(&disk, seed + n).unwrap_or_else(|e| panic!("open: {e:?}"));
            let ran = guarded(|| run(&ops, &setup, open));
            ran.unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
        }
    }
}

/// Those of keyspaces that keep levels.
fn levels() -> Vec<(String, Setup)> {
    let keyspace = || Setup::levels().keyspace;
    let with = |keyspace| Setup { keyspace, ..Setup::levels() };
    let few = keyspace().level_base_bytes(1 << 20).level_multiplier(10);
    let mut setups = vec![
        ("levels".to_owned(), Setup::levels()),
        ("levels, no cache".to_owned(), Setup { block_cache: false, ..Setup::levels() }),
        ("levels, no maps".to_owned(), Setup { mapped_reads: false, ..Setup::levels() }),
        ("levels, few".to_owned(), with(few)),
        ("levels, wide".to_owned(), with(keyspace().level_multiplier(5))),
        ("levels, nothing separated".to_owned(), with(keyspace().separate_at(1 << 20))),
        (
            "levels, all separated, no garbage".to_owned(),
            with(keyspace().separate_at(1).over_provision_percent(1).min_conversion_bytes(0)),
        ),
        (
            "levels, compressed".to_owned(),
            with(keyspace().settled_compression(Compression::Lz4).block_bytes(1024)),
        ),
        (
            "levels, filters".to_owned(),
            with(keyspace().settled_filter(Some(FilterKind::BinaryFuse8))),
        ),
    ];
    for &kind in IndexKind::ALL {
        let indexed = keyspace().lsm_index(kind).settled_index(kind);
        setups.push((format!("levels, index {}", kind.name()), with(indexed)));
    }
    setups
}

#[test]
fn the_systems_disk_and_threads_give_the_same_answers() {
    let ways = [
        (0, LogRegionKind::Buffered, ManyReads::IoUring, false),
        (1, LogRegionKind::Mapped, ManyReads::OneByOne, false),
        (0, LogRegionKind::Mapped, ManyReads::IoUring, true),
        (0, LogRegionKind::Mapped, ManyReads::OneByOne, true),
    ];
    for ((seed, kind, many_reads, direct), keys) in ways.into_iter().zip(Keys::ALL) {
        let setup = Setup { keys, ..Setup::default() };
        let ops = draw(&mut Random::new(seed), keys, LENGTH, 250);
        let dir = tempfile::tempdir().unwrap();
        let open = |_| {
            Database::builder(dir.path().join("db"))
                .disk(Arc::new(RealDisk::with_log_regions(kind).with_many_reads(many_reads)))
                // Without a cache every block is read, in all ways.
                .direct_reads(direct)
                .block_cache(!direct)
                .executor(Arc::new(ThreadExecutor::new(2).unwrap()))
                .memtable_bytes(setup.memtable_bytes)
                .memory_budget_bytes(1 << 20)
                .log_segment_bytes(setup.log_segment_bytes)
                .open()
                .unwrap_or_else(|e| panic!("open: {e:?}"))
        };
        guarded(|| run(&ops, &setup, open)).unwrap_or_else(|e| {
            panic!("{kind:?}, {many_reads:?}, direct {direct}: {e}");
        });
    }
}
