//! Keyspaces that keep levels, looked at from inside: the View after every step of background work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::levels::{DUE, Shape};
use crate::disk::sim::SimDisk;
use crate::disk::{Access, Disk};
use crate::engine::claims::{Claim, Claimed};
use crate::engine::{Engine, lock};
use crate::error::Error;
use crate::executor::{Executor, SeededExecutor};
use crate::format::manifest::LEVELS;
use crate::options::{KeyspaceOptions, Sizes, Store};
use crate::sstable::reader::Table;
use crate::view::{Extent, KeyspaceView};
use crate::{Database, ErrorKind, Keyspace};

mod room;
mod told;

struct Bench {
    disk: SimDisk,
    executor: Arc<SeededExecutor>,
    db: Database,
    keyspace: Keyspace,
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .store(Store::Lsm)
        .block_bytes(512)
        .partition_bytes(8 << 10)
        .level_base_bytes(16 << 10)
        .level_multiplier(4)
}

impl Bench {
    fn new(seed: u64, options: KeyspaceOptions) -> Bench {
        let (disk, executor) = (SimDisk::new(seed), Arc::new(SeededExecutor::new(seed)));
        let db = Database::builder("/db")
            .disk(Arc::new(disk.clone()))
            .executor(executor.clone())
            .memtable_bytes(8 << 10)
            .memory_budget_bytes(1 << 20)
            .log_segment_bytes(16 << 10)
            .open()
            .unwrap();
        let keyspace = db.keyspace("k", options).unwrap();
        Bench { disk, executor, db, keyspace }
    }

    fn engine(&self) -> &Arc<Engine> {
        self.db.engine()
    }

    /// No compaction begins until what is returned is dropped.
    fn hold_all(&self) -> Claimed {
        let extent = Extent { start: Vec::new(), end: None };
        let all = Claim { keyspace: 1, levels: 0..=LEVELS, extent };
        lock(&self.engine().claims).hold(self.engine(), all, 0)
    }

    fn view(&self) -> Arc<KeyspaceView> {
        self.engine().keyspace(1).unwrap()
    }

    fn put(&self, numbers: impl Iterator<Item = u64>, length: usize, fill: u8) {
        for number in numbers {
            self.keyspace.insert(key(number), vec![fill; length]).unwrap();
        }
    }

    /// Steps until something is claimed; false if all work ends before.
    fn until_claimed(&self) -> bool {
        while lock(&self.engine().claims).is_empty() {
            if !self.executor.step_one() {
                return false;
            }
        }
        true
    }
}

fn key(number: u64) -> String {
    format!("key{number:06}")
}

/// Spread over the keys there are, each once.
fn spread(numbers: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    numbers.map(|number| number * 7919 % 100_000)
}

/// The levels on a disk without an end.
fn shape(view: &KeyspaceView) -> Shape {
    Shape::of(&view.tables, &view.options, Sizes::of(&view.options, None))
}

/// The tables of each level are in order and apart, and each stands in one place; and nothing is above the
/// base.
fn check_levels(view: &KeyspaceView) {
    let shape = shape(view);
    let mut found = BTreeSet::new();
    assert!(view.tables.all().all(|table| found.insert(table.id())), "{:?}", view.tables);
    for (level, run) in (1..).zip(view.tables.levels()) {
        assert!(level >= shape.base() || run.is_empty(), "{shape:?}");
        let apart = |pair: &[Arc<Table>]| {
            let (left, right) = (Extent::of(&pair[0]), Extent::of(&pair[1]));
            left.end.is_some_and(|end| end <= right.start)
        };
        assert!(run.windows(2).all(apart), "level {level}: {run:?}");
    }
    assert!(view.tables.frozen.is_none() && view.tables.settled().next().is_none());
}

#[test]
fn levels_keep_their_order_and_come_to_their_sizes() {
    let mut deepest = 0;
    for seed in 0..4 {
        let bench = Bench::new(seed, options());
        for round in 0..4 {
            bench.put(spread(round * 500..round * 500 + 1500), 100, round as u8);
            while bench.executor.step_one() {
                check_levels(&bench.view());
            }
        }
        bench.db.wait_idle().unwrap();
        let view = bench.view();
        let shape = shape(&view);
        for level in 0..LEVELS {
            assert!(shape.score(level, 0) < DUE, "seed {seed}: {shape:?}");
        }
        let used = view.tables.levels().iter().filter(|run| !run.is_empty()).count();
        deepest = deepest.max(used);
        bench.keyspace.convert().unwrap();
        assert!(bench.view().tables.fresh().is_empty(), "seed {seed}: converted");
        for number in 0..3000u64 {
            let round = (0..4).rev().find(|r| (r * 500..r * 500 + 1500).contains(&number)).unwrap();
            let value = bench.keyspace.get(key(number * 7919 % 100_000)).unwrap();
            assert_eq!(value.unwrap(), vec![round as u8; 100], "seed {seed}, {number}");
        }
        let stats = bench.db.stats();
        assert!(stats.compactions > 10 && stats.compacted_bytes > stats.flushed_bytes, "{stats}");
    }
    assert!(deepest >= 3, "{deepest} levels are too few to show anything");
}

#[test]
fn what_overlaps_nothing_below_moves_without_being_written() {
    let bench = Bench::new(1, options());
    bench.put(0..5000, 100, 1);
    bench.keyspace.convert().unwrap();
    let stats = bench.db.stats();
    assert!(stats.moved_tables > 50, "{stats}");
    assert!(stats.compacted_bytes * 5 < stats.flushed_bytes, "{stats}");
    assert_eq!(bench.keyspace.iter().count(), 5000);
}

#[test]
fn compactions_of_different_keys_or_levels_go_on_at_once() {
    let mut most = 0;
    for seed in 0..8 {
        let (bench, mut seen) = (Bench::new(seed, options()), BTreeMap::new());
        for round in 0..4 {
            bench.put(spread(round * 1000..round * 1000 + 1000), 100, 1);
            while bench.executor.step_one() {
                most = most.max(lock(&bench.engine().claims).count());
                let view = bench.view();
                check_levels(&view);
                seen.extend(view.tables.all().map(|table| (table.id(), Arc::downgrade(table))));
                // It was: a compaction held the level below its target, which others replace, until its end.
                let shown: BTreeSet<_> = view.tables.all().map(|table| table.id()).collect();
                let mut held = seen.iter().filter(|(_, table)| table.strong_count() > 0);
                assert!(held.all(|(id, _)| shown.contains(id)), "replaced, and held still");
            }
        }
        assert_eq!(bench.keyspace.iter().count(), 4000);
    }
    assert!(most >= 2, "{most} compactions at once");
}

/// While compactions stand still flushes go on, and writers are kept back without being stopped.
#[test]
fn writers_slow_down_while_runs_pile_up_and_never_stop() {
    let bench = Bench::new(3, options());
    bench.put(spread(0..1500), 100, 1);
    bench.db.wait_idle().unwrap();
    assert_eq!(bench.db.stats().held_back_ms, 0);
    let claimed = bench.hold_all();
    let mut waited = Vec::new();
    for round in 0..12 {
        bench.put(spread(round * 300..round * 300 + 300), 100, 2);
        bench.keyspace.flush().unwrap();
        bench.executor.run_until_idle();
        waited.push(bench.db.stats().held_back_ms);
    }
    let steps: Vec<_> = waited.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (first, last) = (steps[0], steps[10]);
    assert!(last > first && last > 5, "{waited:?}");
    assert!(bench.view().tables.fresh().len() > 20);
    drop(claimed);
    bench.executor.run_until_idle();
    let before = bench.db.stats().held_back_ms;
    bench.put(spread(0..300), 100, 3);
    assert_eq!(bench.db.stats().held_back_ms, before, "the debt is paid");
}

#[test]
fn a_keyspace_dropped_amid_a_compaction_leaves_no_file() {
    let mut amid = 0;
    for seed in 0..10 {
        let bench = Bench::new(seed, options());
        let mut batches = (0..).map(|n| n * 100..n * 100 + 100);
        let mut batch = || bench.put(spread(batches.next().unwrap()), 100, 1);
        (0..8).for_each(|_| batch());
        // What was due may be over before the next is.
        while !bench.until_claimed() {
            batch();
        }
        (0..seed).for_each(|_| _ = bench.executor.step_one());
        amid += usize::from(!lock(&bench.engine().claims).is_empty());
        bench.db.drop_keyspace("k").unwrap();
        bench.executor.run_until_idle();
        bench.db.wait_idle().unwrap();
        assert!(lock(&bench.engine().claims).is_empty());
        let names = bench.disk.list(Path::new("/db")).unwrap();
        let left: Vec<_> = names.iter().filter(|n| !is_of_an_empty_database(n)).collect();
        assert!(left.is_empty(), "seed {seed}: {left:?}");
    }
    assert!(amid > 5, "{amid} of 10 amid a compaction");
}

fn is_of_an_empty_database(name: &str) -> bool {
    ["LOCK", "CURRENT", "BALLAST", "log-", "manifest-"].iter().any(|known| name.starts_with(known))
}

/// An ingest goes as deep as nothing is in its way.
#[test]
fn an_ingest_sinks_to_the_deepest_level_that_is_free() {
    let bench = Bench::new(1, options());
    let ingest = |numbers: std::ops::Range<u64>, fill: u8| {
        let entries = numbers.map(|number| (key(number), vec![fill; 100]));
        bench.keyspace.ingest(entries).unwrap()
    };
    assert!(ingest(100..200, 1).settled);
    assert!(ingest(300..400, 1).settled);
    let sizes = || {
        let levels = bench.keyspace.stats().unwrap().levels;
        levels.iter().map(|level| (level.level, level.tables > 0)).collect::<Vec<_>>()
    };
    assert_eq!(sizes(), [(6, true)]);
    assert!(!ingest(150..350, 2).settled, "over the others");
    assert_eq!(sizes(), [(5, true), (6, true)]);
    bench.put(160..161, 100, 3);
    assert!(!ingest(155..340, 4).settled);
    assert_eq!(sizes()[0], (0, true), "the newest run: what was written before was flushed");
    let fills: BTreeMap<u64, u8> =
        (100..400).filter_map(|n| Some((n, bench.keyspace.get(key(n)).unwrap()?[0]))).collect();
    bench.keyspace.convert().unwrap();
    for (number, fill) in fills {
        let expected = match number {
            155..340 => 4,
            150..350 => 2,
            _ => 1,
        };
        assert_eq!(fill, expected, "{number}");
        assert_eq!(bench.keyspace.get(key(number)).unwrap().unwrap()[0], expected, "{number}");
    }
}

/// A compaction that is about to write a table across a gap in its level.
fn compacting_over_a_gap() -> Bench {
    let bench = Bench::new(5, options());
    for round in 0..4 {
        let first = if round % 2 == 0 { 0 } else { 90_000 };
        bench.put(first..first + 2, 50, round as u8);
        bench.keyspace.flush().unwrap();
    }
    assert!(bench.until_claimed());
    bench
}

fn ingest_into_the_gap(bench: &Bench, at: u64) -> bool {
    let entries = (at..at + 50).map(|number| (key(number), vec![2; 50]));
    bench.keyspace.ingest(entries).unwrap().settled
}

/// An ingest and a compaction that do not know of each other.
#[test]
fn a_compaction_that_does_not_fit_any_more_is_given_up_and_done_again() {
    let bench = compacting_over_a_gap();
    let before = bench.db.stats().compactions;
    let claimed = lock(&bench.engine().claims).swap(BTreeMap::new());
    assert!(ingest_into_the_gap(&bench, 40_000));
    lock(&bench.engine().claims).swap(claimed);
    bench.executor.run_until_idle();
    check_levels(&bench.view());
    assert!(bench.db.stats().compactions > before);
    assert!(bench.view().tables.fresh().is_empty());
    assert_eq!(bench.keyspace.iter().count(), 4 + 50);
    assert_eq!(bench.db.background_error().map(|e| e.to_string()), None);
}

/// Whoever ingested into gaps more often than a compaction takes kept all of them from coming to an end.
#[test]
fn an_ingest_leaves_its_place_to_a_compaction_that_is_under_way() {
    let bench = compacting_over_a_gap();
    let before = bench.db.stats().compactions;
    assert!(!ingest_into_the_gap(&bench, 40_000), "it waits above, as a run");
    while bench.db.stats().compactions == before {
        assert!(bench.executor.step_one());
    }
    assert!(bench.view().tables.fresh().len() <= 1, "what was compacted fits");
    check_levels(&bench.view());
    bench.executor.run_until_idle();
    assert_eq!(bench.keyspace.iter().count(), 4 + 50);
}

/// A writer that never lets the levels come to rest: nothing that is newer than the request counts.
#[test]
fn a_conversion_ends_while_writers_go_on() {
    for seed in 0..4 {
        let bench = Bench::new(seed, options());
        bench.put(spread(0..4000), 100, 1);
        let before = bench.engine().next_file();
        let number = lock(&bench.engine().conversions).ask(1);
        bench.executor.notify();
        let (mut round, mut busy) = (0, 0);
        while lock(&bench.engine().conversions).outcome(1, number).is_none() {
            bench.put(spread(4000 + round * 10..4010 + round * 10), 100, 2);
            let view = bench.view();
            busy += u64::from(super::is_busy(bench.engine(), &bench.engine().view()));
            check_levels(&view);
            round += 1;
            assert!(round < 1000, "seed {seed}: {:?}", shape(&view));
        }
        assert!(round > 10 && busy * 3 > round * 2, "seed {seed}: at rest, {busy} of {round} busy");
        let view = bench.view();
        let shape = shape(&view);
        assert!(view.tables.fresh().iter().flatten().all(|table| table.id() >= before));
        for (level, run) in (1..LEVELS).zip(view.tables.levels()) {
            let old = run.iter().filter(|table| table.id() < before);
            let share = shape.share(level, old.map(|table| table.file_bytes()).sum());
            assert!(share < DUE, "seed {seed}, level {level}: {shape:?}");
        }
    }
}

/// Flips bytes amid a table's blocks.
fn damage(bench: &Bench, path: &Path) {
    let file = bench.disk.open(path, Access::Random).unwrap();
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 700).unwrap();
    file.write_all_at(&bytes.map(|byte| !byte), 700).unwrap();
}

/// Segments that are mostly dead are emptied, though nobody asks.
#[test]
fn dead_values_are_given_back() {
    let options = options().separate_at(200).min_conversion_bytes(0).over_provision_percent(30);
    let bench = Bench::new(2, options);
    for round in 0..12u64 {
        bench.put((0..300).filter(|n| (n + round) % 3 > 0), 1000, round as u8);
        bench.db.wait_idle().unwrap();
    }
    bench.keyspace.convert().unwrap();
    let stats = bench.keyspace.stats().unwrap();
    assert!(stats.value_live_bytes >= 300 * 1000, "{stats}");
    assert!(stats.value_bytes * 10 <= stats.value_live_bytes * 16, "{stats}");
    for number in 0..300 {
        let round = (0..12).rev().find(|round| (number + round) % 3 > 0).unwrap();
        assert_eq!(bench.keyspace.get(key(number)).unwrap().unwrap(), vec![round as u8; 1000]);
    }
}

/// A few keys over all of a dense level become several tables, none of which lies over much of it.
#[test]
fn no_table_lies_over_too_much_of_the_level_below() {
    let options = options().partition_bytes(32 << 10).level_base_bytes(8 << 10);
    let bench = Bench::new(4, options);
    bench.put(0..30_000, 100, 1);
    bench.keyspace.convert().unwrap();
    bench.put((0..30_000).step_by(60), 100, 2);
    bench.keyspace.convert().unwrap();
    let view = bench.view();
    let levels = view.tables.levels();
    let mut most = 0;
    for (level, below) in levels.iter().zip(&levels[1..]) {
        for table in level {
            let over = Extent::of(table).of_run(below).to_vec();
            most = most.max(super::levels::run_bytes(&over));
        }
    }
    // Ten times a table, and what a step of 4 KiB may add; the level below is of 860 KiB.
    assert!((1..450 << 10).contains(&most), "{most} bytes below one table\n{}", bench.db.stats());
    let fills = bench.keyspace.iter().map(|entry| entry.unwrap().1[0]);
    assert!(fills.enumerate().all(|(n, fill)| fill == 1 + u8::from(n % 60 == 0)));
}

/// A flush reads nothing of what its ranges cover, and a compaction drops unread what is covered whole: here
/// a table that nobody can read.
#[test]
fn removed_ranges_take_what_they_cover_unread() {
    let bench = Bench::new(1, options());
    bench.put(spread(0..3000), 100, 1);
    bench.keyspace.convert().unwrap();
    let range = key(10_000)..key(90_000);
    let covers = |table: &&Arc<Table>| {
        let Extent { start, end } = Extent::of(table);
        start.as_slice() > range.start.as_bytes()
            && end.is_some_and(|end| end.as_slice() < range.end.as_bytes())
    };
    let damaged = bench.view().tables.levels()[LEVELS - 1].iter().find(covers).cloned().unwrap();
    damage(&bench, damaged.path());
    let (held, before) = (bench.hold_all(), bench.db.stats());
    bench.keyspace.remove_range(range.clone()).unwrap();
    bench.keyspace.insert(key(50_000), "new").unwrap();
    bench.keyspace.flush().unwrap();
    let run = bench.view().tables.fresh()[0].clone();
    assert_eq!((run[0].properties().entries, run[0].properties().ranges), (1, 1));
    assert_eq!(Extent::of(&run[0]).end.as_deref(), Some(range.end.as_bytes()));
    drop(held);
    bench.keyspace.convert().unwrap();
    bench.db.wait_idle().unwrap();
    check_levels(&bench.view());
    assert!(bench.view().tables.all().all(|table| table.id() != damaged.id()));
    let stats = bench.db.stats();
    let written = stats.compacted_bytes - before.compacted_bytes;
    let held: u64 = bench.view().tables.all().map(|table| table.file_bytes()).sum();
    assert!(held < 100_000 && written < 2 * held, "{written} written, {held} left: {stats}");
    let left: Vec<_> = bench.keyspace.keys().map(|key| key.unwrap().to_vec()).collect();
    let outside = |n: &u64| !(10_000..90_000).contains(n);
    let numbers: BTreeSet<u64> = spread(0..3000).filter(outside).chain([50_000]).collect();
    assert!(
        left.iter().eq(numbers.iter().map(|n| key(*n).into_bytes()).collect::<Vec<_>>().iter())
    );
}

/// Each of several ranges stands above, between and below entries of the same keys, at every step of what brings
/// them down.
#[test]
fn removed_ranges_hide_what_is_older_and_nothing_else_at_every_step() {
    for seed in 0..4 {
        let bench = Bench::new(seed, options());
        let mut model: BTreeMap<String, u8> = BTreeMap::new();
        for round in 0..12u64 {
            for number in spread(round * 150..round * 150 + 300) {
                bench.put([number].into_iter(), 100, round as u8);
                model.insert(key(number), round as u8);
            }
            let from = (round * 37_123 + seed * 1000) % 90_000;
            let range = key(from)..key(from + [500, 8_000, 40_000][(round % 3) as usize]);
            bench.keyspace.remove_range(range.clone()).unwrap();
            model.retain(|key, _| !range.contains(key));
            if round % 2 == 0 {
                bench.keyspace.flush().unwrap();
            }
            let mut steps = 0;
            while bench.executor.step_one() {
                check_levels(&bench.view());
                steps += 1;
                if steps % 8 == 0 {
                    let found = bench.keyspace.iter().map(Result::unwrap);
                    let found = found.map(|(k, v)| (String::from_utf8(k.to_vec()).unwrap(), v[0]));
                    assert!(found.eq(model.clone()), "seed {seed}, round {round}, step {steps}");
                }
            }
        }
        for number in spread(0..2000) {
            let found = bench.keyspace.get(key(number)).unwrap().map(|value| value[0]);
            assert_eq!(found, model.get(&key(number)).copied(), "seed {seed}: {number}");
        }
        bench.keyspace.clear().unwrap();
        bench.keyspace.convert().unwrap();
        assert_eq!(bench.view().tables.all().count(), 0, "seed {seed}: {:?}", bench.view().tables);
    }
}

#[test]
fn tombstones_end_at_the_last_level() {
    let bench = Bench::new(2, options());
    bench.put(spread(0..2000), 100, 1);
    bench.keyspace.convert().unwrap();
    for number in spread(0..2000) {
        bench.keyspace.remove(key(number)).unwrap();
    }
    // What lies in the upper levels sinks only as they fill.
    bench.put(spread(2000..8000), 100, 2);
    bench.keyspace.convert().unwrap();
    let view = bench.view();
    let last = view.tables.levels().last().unwrap();
    assert!(last.iter().all(|table| table.properties().tombstones == 0));
    assert_eq!(bench.keyspace.iter().count(), 6000);
    assert!(Extent::between(b"", b"").of_run(last).is_empty());
    assert_eq!(Extent { start: b"k".to_vec(), end: None }.of_run(last).len(), last.len());
}

#[test]
fn a_store_is_chosen_once() {
    let bench = Bench::new(2, options());
    let again = |options| bench.db.keyspace("k", options);
    assert_eq!(again(KeyspaceOptions::default()).unwrap().options().chosen_store(), Store::Lsm);
    assert!(again(options()).is_ok());
    let error = again(KeyspaceOptions::default().store(Store::Tiered)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("the store lsm that the keyspace was made with"), "{error}");
    let unknown = KeyspaceOptions::decode(&[("store".to_owned(), "heap".to_owned())]).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unsupported);
    assert!(unknown.to_string().contains("expected a store, tiered or lsm"), "{unknown}");
}

/// Its compaction was begun again without end: leaving the segment alone did not help, for a value as short as this one is
/// moved whatever its segment.
#[test]
fn a_streamed_value_that_cannot_be_read_does_not_keep_a_compaction_busy_for_ever() {
    let disk = SimDisk::new(1);
    let open = |stream_at| {
        let executor = Arc::new(SeededExecutor::new(1));
        let builder = Database::builder("/db").disk(Arc::new(disk.clone())).stream_at(stream_at);
        let builder = builder.executor(executor.clone()).memtable_bytes(8 << 10);
        let db = builder.memory_budget_bytes(1 << 20).log_segment_bytes(16 << 10).open().unwrap();
        let keyspace = db.keyspace("k", options().separate_at(4 << 10)).unwrap();
        (db, keyspace, executor)
    };
    let (db, keyspace, _) = open(1 << 10);
    keyspace.insert(key(50), vec![1; 2 << 10]).unwrap();
    keyspace.flush().unwrap();
    let segment =
        disk.list(Path::new("/db")).unwrap().into_iter().find(|n| n.starts_with("values-"));
    let path = Path::new("/db").join(segment.expect("it was streamed"));
    let file = disk.open(&path, Access::Random).unwrap();
    let mut sound = [0; 100];
    file.read_exact_at(&mut sound, 500).unwrap();
    file.write_all_at(&[0; 100], 500).unwrap();
    drop(keyspace);
    db.close().unwrap();
    let (db, keyspace, executor) = open(1 << 20);
    for round in 0..6 {
        for number in spread(0..60) {
            keyspace.insert(key(number + 100), vec![round; 100]).unwrap();
        }
        db.engine().rotate(1).unwrap();
    }
    let steps = (0..100_000).take_while(|_| executor.step_one()).count();
    assert!(steps < 100_000, "it does not come to rest");
    let error = db.background_error().expect("it could not be read");
    assert!(error.is_corruption() && error.path() == Some(&*path), "{error}");
    // Mended, all goes on.
    file.write_all_at(&sound, 500).unwrap();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(keyspace.iter().count(), 61);
}
