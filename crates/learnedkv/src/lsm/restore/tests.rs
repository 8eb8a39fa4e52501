//! Filters over runs that an open found: the job by itself, step by step.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::disk::faulty::{Fault, FaultyDisk};
use crate::disk::sim::{CrashKind, SimDisk};
use crate::disk::{Access, Disk, OperationKind};
use crate::executor::SeededExecutor;
use crate::lsm::merge::Merge;
use crate::{Database, Keyspace, KeyspaceOptions, ReadOptions};

/// A run has so many, which more than one step reads.
const RUN_KEYS: u64 = 60;
const RUNS: u64 = 4;
const KEYS: u64 = RUNS * RUN_KEYS;

fn open(disk: impl Disk + 'static) -> (Database, Keyspace) {
    open_with(disk, true)
}

fn open_with(disk: impl Disk + 'static, block_cache: bool) -> (Database, Keyspace) {
    let db = Database::builder("/db")
        .block_cache(block_cache)
        .disk(Arc::new(disk))
        .executor(Arc::new(SeededExecutor::new(1)))
        .memtable_bytes(48 << 10)
        .memory_budget_bytes(4 << 20)
        .log_segment_bytes(64 << 10)
        .automatic_conversion(false)
        .open()
        .unwrap();
    let options = KeyspaceOptions::default().block_bytes(512).partition_bytes(16 << 10);
    let keyspace = db.keyspace("k", options).unwrap();
    (db, keyspace)
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn put(keyspace: &Keyspace, numbers: impl Iterator<Item = u64>) {
    numbers.for_each(|number| keyspace.insert(key(number), [7; 500]).unwrap());
    keyspace.flush().unwrap();
}

fn of_run(run: u64) -> impl Iterator<Item = u64> {
    (0..KEYS).filter(move |number| number % RUNS == run)
}

/// A database with so many runs, opened anew.
fn with_runs(runs: u64) -> (SimDisk, Database, Keyspace) {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(disk.clone());
    (0..runs).for_each(|run| put(&keyspace, of_run(run)));
    drop((db, keyspace));
    let (db, keyspace) = open(disk.clone());
    let stats = keyspace.stats().unwrap();
    assert_eq!((stats.runs, stats.generations), (runs, 0));
    (disk, db, keyspace)
}

/// A key that is nowhere, between others.
fn absent_key(number: u64) -> Vec<u8> {
    [&key(number % (KEYS - 1))[..], &(number / (KEYS - 1)).to_be_bytes()[..]].concat()
}

fn absent(keyspace: &Keyspace, lookups: u64) {
    for number in 0..lookups {
        assert!(keyspace.get(absent_key(number)).unwrap().is_none());
    }
}

/// Pays what a job asks for of the runs there are now. Of jobs nobody steps any.
fn pay(keyspace: &Keyspace) {
    absent(keyspace, 8000);
}

fn job(db: &Database) -> RestoreJob {
    RestoreJob { engine: db.engine().clone(), work: None }
}

fn read_tables(job: &RestoreJob) -> usize {
    match &job.work {
        Some(Work::Runs(runs)) => runs.read.len(),
        _ => 0,
    }
}

/// Steps until it is over; how many steps went on.
fn finish(job: &mut RestoreJob) -> usize {
    let steps = (0..1000).take_while(|_| job.step() == Step::Patiently).count();
    assert!(steps < 1000 && job.work.is_none());
    steps
}

fn groups(db: &Database) -> Vec<(Range<usize>, bool)> {
    let view = db.engine().keyspace(1).unwrap();
    let tables = &view.tables;
    let is_one =
        |runs: &Range<usize>| Generation::of_all(tables.runs[runs.clone()].iter().flatten());
    let groups = tables.groups.iter().map(|group| group.runs.clone());
    groups.map(|runs| (runs.clone(), is_one(&runs).is_some())).collect()
}

fn check(keyspace: &Keyspace) {
    for number in 0..KEYS + 5 {
        assert_eq!(keyspace.get(key(number)).unwrap().is_some(), number < KEYS, "{number}");
    }
}

/// So many runs are asked in vain that no filter refuses.
fn wrong(db: &Database, keyspace: &Keyspace) -> u64 {
    let before = db.stats().filter_false_positives;
    absent(keyspace, 5000);
    db.stats().filter_false_positives - before
}

#[test]
fn runs_that_an_open_found_are_asked_together_once_lookups_have_paid() {
    let (_disk, db, keyspace) = with_runs(RUNS);
    let mut job = job(&db);
    let keyspace_now = || db.engine().keyspace(1).unwrap();
    let price: u64 = outside(&keyspace_now()).iter().map(|table| price(table)).sum();
    assert!(price > 1100, "{price}");
    // Of four questions three are spared.
    absent(&keyspace, (price - 1) / 3);
    assert_eq!((job.step(), groups(&db)), (Step::Wait, vec![(0..4, false)]));
    assert!(!db.engine().wants_filters(), "looked at, and not enough");
    absent(&keyspace, price / 8);
    assert_eq!(job.step(), Step::Patiently);
    assert!(db.engine().wants_filters() && groups(&db) == [(0..4, false)]);
    let before = wrong(&db, &keyspace);
    assert!(finish(&mut job) > 4, "a piece a step");
    assert!(!db.engine().wants_filters() && groups(&db) == [(0..4, true)]);
    check(&keyspace);
    let bytes = keyspace.stats().unwrap().generation_bytes;
    assert!((KEYS..1024).contains(&bytes), "{bytes}");
    let after = wrong(&db, &keyspace);
    assert!(before > 10 && after < before / 4, "{after} of {before}");
    // Nobody pays any more.
    let paid = keyspace_now().asked_in_vain.paid();
    pay(&keyspace);
    assert_eq!((keyspace_now().tables.spares(), keyspace_now().asked_in_vain.paid()), (0, paid));
}

#[test]
fn keys_that_runs_hold_and_lookups_that_leave_nothing_behind_pay_nothing() {
    let (_disk, db, keyspace) = with_runs(RUNS);
    let paid = || db.engine().keyspace(1).unwrap().asked_in_vain.paid();
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    keys.iter().for_each(|key| assert!(keyspace.contains_key(key).unwrap()));
    assert!(keyspace.multi_get(&keys).unwrap().iter().all(Option::is_some));
    let leaving = ReadOptions::default().fill_cache(false);
    for number in 0..KEYS {
        assert!(keyspace.get_with(absent_key(number), &leaving).unwrap().is_none());
    }
    assert_eq!(paid(), 0);
    let keys: Vec<_> = (0..KEYS).map(absent_key).collect();
    assert!(keyspace.multi_get(&keys).unwrap().iter().all(Option::is_none));
    assert_eq!(paid(), 3 * KEYS);
}

/// Lookups would only cost more.
#[test]
fn where_runs_have_no_filters_or_are_levels_nobody_pays() {
    for options in [small().lsm_filter(None), small().store(Store::Lsm)] {
        let disk = SimDisk::new(1);
        let (db, _) = open(disk.clone());
        let keyspace = db.keyspace("j", options).unwrap();
        (0..RUNS - 1).for_each(|run| put(&keyspace, of_run(run)));
        assert_eq!(db.engine().keyspace(2).unwrap().tables.spares(), 2);
        absent(&keyspace, 5000);
        assert_eq!(db.engine().keyspace(2).unwrap().asked_in_vain.paid(), 0);
    }
}

#[test]
fn one_run_is_left_as_it_is() {
    let (_disk, db, keyspace) = with_runs(1);
    pay(&keyspace);
    assert_eq!(db.engine().keyspace(1).unwrap().asked_in_vain.paid(), 0);
    assert_eq!(job(&db).step(), Step::Wait);
}

#[test]
fn what_is_flushed_meanwhile_belongs_to_a_generation_of_its_own() {
    let (_disk, db, keyspace) = with_runs(RUNS);
    pay(&keyspace);
    let mut job = job(&db);
    assert_eq!([job.step(), job.step()], [Step::Patiently; 2]);
    (0..2).for_each(|_| put(&keyspace, of_run(1).take(20)));
    finish(&mut job);
    assert_eq!(groups(&db), [(0..2, true), (2..6, true)]);
    check(&keyspace);
}

/// Nothing of what is being read is held between steps: what a sweep replaces goes.
#[test]
fn what_is_settled_meanwhile_is_left_out_and_goes() {
    let (disk, db, keyspace) = with_runs(RUNS);
    pay(&keyspace);
    let mut job = job(&db);
    assert_eq!([job.step(), job.step()], [Step::Patiently; 2]);
    let tables = |disk: &SimDisk| {
        let names = disk.list(Path::new("/db")).unwrap();
        names.into_iter().filter(|name| name.starts_with("table-")).collect::<BTreeSet<_>>()
    };
    let before = tables(&disk);
    keyspace.convert().unwrap();
    db.engine().bury_all();
    let left: Vec<_> = before.intersection(&tables(&disk)).cloned().collect();
    assert!(left.is_empty() && job.work.is_some(), "{left:?}");
    assert_eq!(job.step(), Step::Again);
    assert_eq!(keyspace.stats().unwrap().generations, 0);
    check(&keyspace);
}

#[test]
fn what_is_merged_meanwhile_is_left_out_and_others_join() {
    for (merged, expected) in [
        (0..2, vec![(0..1, true), (1..3, true)]),
        // One is left beside it: for it alone none is kept.
        (1..4, vec![(0..1, false), (1..2, true)]),
    ] {
        let (_disk, db, keyspace) = with_runs(RUNS);
        pay(&keyspace);
        let mut job = job(&db);
        // The oldest is read, and a part of another.
        while read_tables(&job) == 0 {
            assert_eq!(job.step(), Step::Patiently);
        }
        assert_eq!(job.step(), Step::Patiently);
        let engine = db.engine();
        let mut merge = Merge::of(engine, &engine.keyspace(1).unwrap(), merged.clone()).unwrap();
        while !merge.step().unwrap() {}
        finish(&mut job);
        assert_eq!(groups(&db), expected, "{merged:?}");
        check(&keyspace);
    }
}

/// It belongs to no generation either, and stands beside the others: but nobody has read it.
#[test]
fn what_is_ingested_meanwhile_stays_outside() {
    let (_disk, db, keyspace) = with_runs(RUNS);
    pay(&keyspace);
    let mut job = job(&db);
    assert_eq!([job.step(), job.step()], [Step::Patiently; 2]);
    let fresh = |number: u64| [&key(number)[..], b"+"].concat();
    assert!(!keyspace.ingest((0..100).map(|number| (fresh(number), [8; 9]))).unwrap().settled);
    finish(&mut job);
    assert_eq!(groups(&db), [(0..1, false), (1..5, true)]);
    check(&keyspace);
    (0..100).for_each(|number| assert!(keyspace.get(fresh(number)).unwrap().is_some()));
    // Beside it one alone that was read: none is kept for that.
    let (_disk, db, keyspace) = with_runs(RUNS);
    pay(&keyspace);
    let mut job = super::tests::job(&db);
    assert_eq!(job.step(), Step::Patiently);
    assert!(!keyspace.ingest((0..100).map(|number| (fresh(number), [8; 9]))).unwrap().settled);
    let engine = db.engine();
    let mut merge = Merge::of(engine, &engine.keyspace(1).unwrap(), 2..5).unwrap();
    while !merge.step().unwrap() {}
    finish(&mut job);
    assert_eq!(groups(&db), [(0..2, false), (2..3, true)]);
    assert_eq!(keyspace.stats().unwrap().generations, 1);
    check(&keyspace);
}

#[test]
fn runs_that_remove_ranges_stay_outside() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(disk.clone());
    (0..RUNS).for_each(|run| put(&keyspace, of_run(run)));
    keyspace.remove_range(key(10)..key(20)).unwrap();
    put(&keyspace, 20..21);
    put(&keyspace, 21..22);
    drop((db, keyspace));
    let (db, keyspace) = open(disk);
    assert_eq!(groups(&db), [(0..6, false)]);
    absent(&keyspace, 100);
    let paid = db.engine().keyspace(1).unwrap().asked_in_vain.paid();
    assert_eq!(paid, 3 * 90, "but for what the range covers");
    pay(&keyspace);
    finish(&mut job(&db));
    assert_eq!(groups(&db), [(0..2, false), (2..6, true)]);
    for number in 0..KEYS {
        let found = keyspace.get(key(number)).unwrap().is_some();
        assert_eq!(found, !(10..20).contains(&number), "{number}");
    }
}

#[test]
fn it_ends_where_its_keyspace_goes_and_where_the_database_is_closed() {
    let (_disk, db, keyspace) = with_runs(RUNS);
    pay(&keyspace);
    let mut other = job(&db);
    assert_eq!(other.step(), Step::Patiently);
    db.drop_keyspace("k").unwrap();
    assert_eq!((other.step(), other.step()), (Step::Again, Step::Wait));
    assert!(other.work.is_none() && !db.engine().wants_filters());
    let (_disk, db, keyspace) = with_runs(RUNS);
    pay(&keyspace);
    let mut job = job(&db);
    assert_eq!(job.step(), Step::Patiently);
    db.close().unwrap();
    assert!(job.step() == Step::Wait && job.work.is_none());
}

/// It is looked for before anything is read; if others take it meanwhile, what was read is for nothing.
#[test]
fn where_memory_has_no_room_runs_stay_outside() {
    for early in [true, false] {
        let (_disk, db, keyspace) = with_runs(RUNS);
        let context = &db.engine().context;
        let all = context.max_metadata_bytes;
        let take = || context.metrics.metadata_bytes.fetch_add(all, Relaxed);
        let requests = || db.stats().read_requests;
        pay(&keyspace);
        let mut job = job(&db);
        if early {
            take();
            let before = requests();
            assert_eq!((job.step(), requests()), (Step::Wait, before));
        } else {
            // Begun, and nothing read.
            job.work = db.engine().find_wanted_filter(|wanted| Work::begin(db.engine(), wanted));
            assert!(job.work.is_some());
            take();
            assert_eq!(job.step(), Step::Again);
        }
        assert!(job.work.is_none() && !db.engine().wants_filters());
        assert_eq!(groups(&db), [(0..4, false)]);
        context.metrics.metadata_bytes.fetch_sub(all, Relaxed);
        // Once there is room, and more was paid.
        pay(&keyspace);
        finish(&mut job);
        assert_eq!(groups(&db), [(0..4, true)]);
        check(&keyspace);
    }
}

#[test]
fn what_cannot_be_read_is_given_up_and_paid_for_anew() {
    let (disk, db, keyspace) = with_runs(RUNS);
    drop((db, keyspace));
    let mut fired = 0;
    for number in 0.. {
        let faulty = FaultyDisk::new(Arc::new(disk.crash_clone(CrashKind::Process, 0)));
        let (db, keyspace) = open(faulty.clone());
        pay(&keyspace);
        let mut job = job(&db);
        let reads = Fault::at(number).of(&[OperationKind::Read]).on_paths_with("table-");
        let counts = faulty.fail(reads.from_then_on());
        finish(&mut job);
        assert_eq!(groups(&db), [(0..4, counts.fired() == 0)], "{number}");
        assert!(!db.engine().wants_filters() && db.background_error().is_none());
        if counts.fired() == 0 {
            break;
        }
        fired += 1;
        faulty.clear_faults();
        pay(&keyspace);
        finish(&mut job);
        assert_eq!(groups(&db), [(0..4, true)], "{number}");
        check(&keyspace);
    }
    assert!(fired > 4, "{fired} reads");
}

/// Snapshots show runs as they were asked when they were taken, and pay to the keyspace as it is.
#[test]
fn a_snapshot_of_before_answers_as_ever() {
    let (_disk, db, keyspace) = with_runs(RUNS);
    let snapshot = db.snapshot();
    pay(&keyspace);
    let mut job = job(&db);
    finish(&mut job);
    for _ in 0..20 {
        for number in 0..KEYS {
            assert!(snapshot.get(&keyspace, key(number)).unwrap().is_some());
            assert!(snapshot.get(&keyspace, absent_key(number)).unwrap().is_none());
        }
    }
    assert_eq!(job.step(), Step::Wait);
    assert_eq!(groups(&db), [(0..4, true)]);
}

/// A database with a settled table, or one of a run, whose filter is lost, and without a cache.
fn without_filter(options: KeyspaceOptions, settled: bool) -> (SimDisk, Database, Keyspace) {
    let disk = SimDisk::new(1);
    let (db, _) = open_with(disk.clone(), false);
    let keyspace = db.keyspace("j", options).unwrap();
    // What is settled more than one step reads; one memtable holds the others.
    let length = if settled { 200 } else { 50 };
    let entries = (0..KEYS).map(|number| (key(number), vec![7; length]));
    if settled {
        keyspace.ingest(entries).unwrap();
    } else {
        entries.for_each(|(key, value)| keyspace.insert(key, value).unwrap());
        keyspace.flush().unwrap();
    }
    drop((db, keyspace));
    let names = disk.list(Path::new("/db")).unwrap().into_iter();
    let lost: Vec<_> = names.filter(|name| name.starts_with("filter-")).collect();
    lost.iter().for_each(|name| disk.remove(&Path::new("/db").join(name)).unwrap());
    let (db, _) = open_with(disk.clone(), false);
    assert_eq!(db.stats().dropped_filters, lost.len() as u64);
    let keyspace = db.find("j").unwrap();
    assert_eq!(filters(&keyspace), (0, 0));
    (disk, db, keyspace)
}

/// Those in memory and those at rest.
fn filters(keyspace: &Keyspace) -> (u64, u64) {
    let stats = keyspace.stats().unwrap();
    (stats.filters, stats.resting_filters)
}

fn small() -> KeyspaceOptions {
    KeyspaceOptions::default().block_bytes(512).partition_bytes(64 << 10)
}

/// Misses until a table's filter is wanted.
fn miss_until_wanted(db: &Database, keyspace: &Keyspace) -> u64 {
    let mut misses = 0;
    while !db.engine().wants_filters() {
        assert!(keyspace.get(absent_key(misses)).unwrap().is_none());
        misses += 1;
        assert!(misses < 10_000, "nobody pays");
    }
    misses
}

#[test]
fn a_table_whose_filter_was_lost_gets_another_once_misses_have_paid() {
    for settled in [true, false] {
        let (_disk, db, keyspace) = without_filter(small(), settled);
        let misses = miss_until_wanted(&db, &keyspace);
        assert!((3..100).contains(&misses), "{misses} misses that read");
        let (mut job, before) = (job(&db), db.stats().read_requests);
        assert!(finish(&mut job) >= usize::from(settled), "a piece a step");
        assert!(db.stats().read_requests - before < KEYS / 8, "in large pieces");
        assert_eq!((filters(&keyspace), db.stats().attached_filters), ((1, 0), 1), "{settled}");
        assert!(keyspace.stats().unwrap().filter_bytes > KEYS);
        check(&keyspace);
        let before = db.stats();
        absent(&keyspace, 1000);
        let after = db.stats();
        assert!(after.filter_stops - before.filter_stops > 960);
        assert!(!db.engine().wants_filters());
        // Misses would only come back to what takes its place.
        (0..KEYS).for_each(|number| keyspace.insert(key(number), [8; 100]).unwrap());
        keyspace.convert().unwrap();
        let expected = if settled { (1, 0) } else { (0, 1) };
        assert_eq!(filters(&keyspace), expected);
        check(&keyspace);
    }
}

#[test]
fn no_filter_is_made_where_none_is_wanted() {
    let unwanted = || small().attach_filters(false).lsm_filter(None);
    for settled in [true, false] {
        let (_disk, db, keyspace) = without_filter(unwanted(), settled);
        // It is not asked for either, which would wake all jobs, whatever was paid.
        absent(&keyspace, 1000);
        assert_eq!((job(&db).step(), db.engine().wants_filters()), (Step::Wait, false));
        db.engine().keyspace(2).unwrap().tables.all().for_each(|table| table.pay_anew());
        absent(&keyspace, 1000);
        assert!(!db.engine().wants_filters() && filters(&keyspace) == (0, 0));
    }
}

#[test]
fn a_filter_is_not_made_of_a_table_that_was_replaced_or_could_not_be_read_or_without_room() {
    let begun = || {
        let (disk, db, keyspace) = without_filter(small(), true);
        miss_until_wanted(&db, &keyspace);
        let mut job = job(&db);
        assert_eq!(job.step(), Step::Patiently);
        // The database's own job, which others step, is to leave it alone.
        db.engine().end_filter(job.work.as_ref().unwrap().wanted());
        (disk, db, keyspace, job)
    };
    let (_disk, db, keyspace, mut job) = begun();
    (0..KEYS).for_each(|number| keyspace.insert(key(number), [8; 100]).unwrap());
    keyspace.convert().unwrap();
    assert_eq!((job.step(), filters(&keyspace)), (Step::Again, (0, 1)));
    assert!(job.work.is_none() && !db.engine().wants_filters());

    let (disk, db, keyspace, mut job) = begun();
    let path = db.engine().keyspace(2).unwrap().tables.settled().next().unwrap().path().to_owned();
    let file = disk.open(&path, Access::Random).unwrap();
    let length = file.length_bytes().unwrap();
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    file.truncate(0).unwrap();
    assert_eq!((job.step(), filters(&keyspace)), (Step::Again, (0, 0)));
    assert!(job.work.is_none() && !db.engine().wants_filters());
    file.write_all_at(&bytes, 0).unwrap();
    // Paid for anew. Others have the memory.
    miss_until_wanted(&db, &keyspace);
    let context = &db.engine().context;
    context.metrics.metadata_bytes.fetch_add(context.max_metadata_bytes, Relaxed);
    assert_eq!((job.step(), db.engine().wants_filters()), (Step::Wait, false));
    context.metrics.metadata_bytes.fetch_sub(context.max_metadata_bytes, Relaxed);
    miss_until_wanted(&db, &keyspace);
    finish(&mut job);
    assert_eq!(filters(&keyspace), (1, 0));
    check(&keyspace);
}
