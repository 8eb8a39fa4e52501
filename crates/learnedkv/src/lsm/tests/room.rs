//! What is picked where there is little room.

use super::*;
use crate::format::entry::TableId;
use crate::lsm::goals::Goal;
use crate::lsm::levels::run_bytes;
use crate::lsm::outlook::{Found, Outlook, Pick, Space};
use crate::lsm::pick::Picker;

fn with_large_memtables(options: KeyspaceOptions) -> Bench {
    let (disk, executor) = (SimDisk::new(1), Arc::new(SeededExecutor::new(1)));
    let builder = Database::builder("/db").disk(Arc::new(disk.clone())).executor(executor.clone());
    let db = builder.memtable_bytes(256 << 10).open().unwrap();
    let keyspace = db.keyspace("k", options).unwrap();
    Bench { disk, executor, db, keyspace }
}

/// Runs that lie over all of the base, and nobody at work.
fn runs_over_a_base() -> Bench {
    let bench = Bench::new(1, options().level_base_bytes(1 << 20));
    // All of it is the base.
    bench.put(spread(0..400), 500, 1);
    bench.keyspace.convert().unwrap();
    let held = bench.hold_all();
    for run in 0..5 {
        // Over all of it, and no more than a memtable takes.
        bench.put(
            [run, 60 + run, 120 + run, 200 + run].map(|at| at * 7919 % 100_000).into_iter(),
            500,
            2,
        );
        bench.keyspace.flush().unwrap();
    }
    drop(held);
    bench
}

fn pick(bench: &Bench, free_bytes: u64, is_full: bool) -> Option<Box<Pick>> {
    let claims = lock(&bench.engine().claims);
    let room = Some(Space { free_bytes, promised_bytes: 0, moving_bytes: 0, is_full });
    let outlook = Outlook { room, ..Outlook::default() };
    match Picker::new(&bench.view(), &claims, outlook).pick() {
        Found::Work(pick) => Some(pick),
        _ => None,
    }
}

/// All runs or none went to the base: where there was no room for all that had piled up none ever went, and more came.
#[test]
fn where_there_is_no_room_for_all_runs_the_oldest_goes_alone() {
    let bench = runs_over_a_base();
    let view = bench.view();
    let fresh = view.tables.fresh();
    assert_eq!(fresh.len(), 5);
    for is_full in [false, true] {
        let picked = pick(&bench, u64::MAX, is_full).unwrap();
        assert_eq!((picked.from, picked.runs.len()), (0, 6), "all, and what lies under them");
        let bytes: u64 = picked.runs.iter().map(run_bytes).sum();
        assert!(pick(&bench, bytes, is_full).is_some_and(|pick| pick.runs.len() == 6));
        let picked = pick(&bench, bytes - 1, is_full).unwrap();
        assert_eq!((picked.from, picked.runs.len()), (0, 2));
        let ids = |run: &[Arc<Table>]| run.iter().map(|table| table.id()).collect::<Vec<_>>();
        assert_eq!(ids(&picked.runs[0]), ids(fresh.last().unwrap()));
        let bytes: u64 = picked.runs.iter().map(run_bytes).sum();
        // (A table of which newer data hides much is written anew then, without that.)
        let picked = pick(&bench, bytes - 1, is_full);
        assert!(picked.is_none_or(|pick| pick.from > 0), "the oldest takes some, too");
    }
}

/// Values that went to another segment counted as if they stood in blocks: tables crumbled, down to a dozen entries each.
#[test]
fn tables_whose_values_are_moved_are_as_large_as_others() {
    // A step takes more of values than a table takes.
    let bench = with_large_memtables(options().separate_at(100));
    bench.put(spread(0..2000), 400, 1);
    bench.keyspace.convert().unwrap();
    let tables = || bench.view().tables.all().count();
    let before = tables();
    for fill in 2..6 {
        bench.put(
            spread(0..2000).filter(|number| (number / 7) % 2 == u64::from(fill % 2)),
            400,
            fill,
        );
        bench.keyspace.convert().unwrap();
        assert!(tables() < 3 * before, "{fill}: {} tables of {before}", tables());
    }
    let moved = bench.engine().metrics.compacted_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert!(moved > 600_000, "{moved} bytes were written, no values among them");
}

/// Mostly dead segments were emptied all at once, if what lives in them found room or not; on a full disk none, where what is
/// free was for flushes.
#[test]
fn as_many_segments_are_emptied_as_find_room() {
    let bench = Bench::new(1, options().separate_at(100));
    bench.put(spread(0..400), 400, 1);
    bench.keyspace.convert().unwrap();
    for fill in 2..5 {
        bench.put(spread(0..400).filter(|number| number % 3 > 0), 400, fill);
        bench.keyspace.flush().unwrap();
        bench.executor.run_until_idle();
    }
    let victims = |moving_bytes: u64, is_full: bool| {
        let free_bytes = 64 << 10;
        let room = Some(Space { free_bytes, promised_bytes: 0, moving_bytes, is_full });
        let goal = (!is_full).then_some(Goal { level: LEVELS, before: TableId::MAX });
        let claims = lock(&bench.engine().claims);
        let outlook = Outlook { room, goal, ..Outlook::default() };
        let view = bench.view();
        let picker = Picker::new(&view, &claims, outlook);
        // Who asks for all to go is not told that it went.
        assert!(goal.is_none_or(|goal| !picker.is_reached(goal)));
        match picker.pick() {
            Found::Work(pick) => pick.victims,
            _ => Arc::default(),
        }
    };
    for is_full in [false, true] {
        let all = victims(u64::MAX, is_full);
        assert!(all.len() > 3, "{all:?}");
        let few = victims(40 << 10, is_full);
        assert!(!few.is_empty() && few.is_subset(&all) && few.len() < all.len(), "{few:?}");
        assert!(victims(100, is_full).is_empty());
    }
}

/// Less than a quarter of each table, and a full disk gave nothing of it back while nothing else was due.
#[test]
fn removals_spread_over_all_are_thinned_out_of_a_full_disk() {
    let options = options().level_base_bytes(4 << 20).partition_bytes(2 << 20);
    // (In small blocks: what of a run hides a table is known by blocks.)
    let bench = with_large_memtables(options.separate_at(1 << 20).block_bytes(256));
    bench.put(0..8000, 100, 1);
    bench.keyspace.convert().unwrap();
    let held = bench.hold_all();
    (0..8000).step_by(16).for_each(|number| bench.keyspace.remove(key(number)).unwrap());
    bench.keyspace.flush().unwrap();
    drop(held);
    assert!(pick(&bench, u64::MAX, false).is_none(), "nothing is due");
    let picked = pick(&bench, u64::MAX, true).unwrap();
    assert_eq!((picked.from, picked.to), (LEVELS, LEVELS));
    assert!(!picked.above.is_empty());
    // Only where there is room for what is left of it, fifteen sixteenths; there always is for a little.
    let (bytes, little) = (run_bytes(&picked.runs[0]), 64 << 10);
    assert!(bytes > little * 10 / 9, "{bytes}");
    assert!(pick(&bench, bytes, true).is_some());
    let small = pick(&bench, 0, true).map_or(0, |pick| run_bytes(&pick.runs[0]));
    assert!(small < bytes && small <= little * 10 / 9, "{small} {bytes}");
}
