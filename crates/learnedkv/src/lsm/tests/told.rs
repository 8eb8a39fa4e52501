//! Damage that compactions meet: they go round it, and it is told of.

use super::*;
use crate::DatabaseHealth;
use crate::engine::Work;

/// What a compaction could not read was forgotten with the next memtable that was full: the database said that it was well, and left the
/// file alone.
#[test]
fn damage_that_a_compaction_has_met_is_told_of_for_as_long_as_the_file_is_needed() {
    let bench = Bench::new(1, options().separate_at(100));
    bench.put(spread(0..200), 400, 1);
    bench.keyspace.convert().unwrap();
    let engine = bench.engine();
    let segment = bench.view().tables.segments.iter().next().unwrap().id();
    let damaged = Error::corruption("damaged");
    let (health, asked) = (&engine.health, engine.health.asked());
    lock(&engine.claims).avoid(segment, &damaged, asked, health);
    health.note(Work::Settle(1), &Err(damaged), asked);
    assert!(matches!(bench.db.health(), DatabaseHealth::Failing(_)));
    bench.put(spread(200..210), 400, 1);
    bench.keyspace.flush().unwrap();
    assert!(matches!(bench.db.health(), DatabaseHealth::Damaged(_)), "{:?}", bench.db.health());
    assert!(bench.db.background_error().is_some());
    // Not by `convert`, for which everything is read again.
    let convert = || {
        let number = lock(&engine.conversions).ask(1);
        bench.executor.notify();
        bench.executor.run_until_idle();
        lock(&engine.conversions).outcome(1, number).unwrap()
    };
    assert!(convert().unwrap_err().is_corruption());
    bench.keyspace.remove_range::<&[u8]>(..).unwrap();
    convert().unwrap();
    assert!(bench.view().tables.segments.get(segment).is_none());
    assert!(matches!(bench.db.health(), DatabaseHealth::Well), "nobody needs it any more");
}

/// A table of the base cannot be read: runs go to the level above it, each attempt is one, and whoever
/// waits is told.
#[test]
fn a_damaged_base_table_does_not_keep_runs_from_sinking() {
    let bench = Bench::new(1, options());
    bench.put(spread(0..100), 100, 1);
    bench.keyspace.convert().unwrap();
    let base = shape(&bench.view()).base();
    assert_eq!(base, LEVELS);
    let table = bench.view().tables.levels()[base - 1][0].clone();
    damage(&bench, table.path());
    let is_of_it = |e: &Error| e.is_corruption() && e.path() == Some(table.path());
    let held = bench.hold_all();
    bench.put(spread(100..400), 100, 2);
    bench.keyspace.flush().unwrap();
    drop(held);
    let error = bench.db.wait_idle().expect_err("the runs lie over it");
    assert!(is_of_it(&error), "{error}");
    bench.executor.run_until_idle();
    let error = bench.db.background_error();
    assert!(error.is_some_and(|e| is_of_it(&e)), "it is not forgotten for what else goes well");
    for round in 3..8 {
        bench.put(spread(100 + round * 100..200 + round * 100), 100, 2);
        bench.keyspace.flush().unwrap();
        while bench.executor.step_one() {
            check_levels(&bench.view());
        }
        assert_eq!(
            bench.engine().health.background_error().map(|e| e.to_string()),
            None,
            "{round}"
        );
        assert!(bench.db.background_error().is_some_and(|e| is_of_it(&e)), "it is told of");
    }
    let view = bench.view();
    assert!(view.tables.fresh().len() < 4 && !view.tables.levels()[base - 2].is_empty());
    assert!(view.tables.all().any(|t| t.id() == table.id()), "what it holds is not given up");
    let error = bench.keyspace.convert().expect_err("it is in the way of its level");
    assert!(is_of_it(&error), "{error}");
    let error = bench.db.wait_idle().expect_err("and still is");
    assert!(is_of_it(&error), "{error}");
    for number in spread(100..900) {
        assert_eq!(bench.keyspace.get(key(number)).unwrap().unwrap(), vec![2; 100], "{number}");
    }
    // Mended, all goes on.
    damage(&bench, table.path());
    bench.keyspace.convert().unwrap();
    bench.db.wait_idle().unwrap();
    assert_eq!(bench.keyspace.iter().count(), 900);
}
