//! What is picked where there is little room.

use super::*;
use crate::lsm::levels::run_bytes;
use crate::lsm::pick::{Found, Outlook, Pick, Picker, Space};

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
    let room = Some(Space { free_bytes, is_full });
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
