//! Crashes at every operation of small workloads, and at every operation of the recoveries.
//!
//! A workload runs on the simulated disk. Before each operation that changes the disk, and amid each
//! write, clones are taken as a death of the process and of the machine would leave the disk. Each is
//! opened and must hold the state after exactly k commits, in all keyspaces together, where
//! * k is at least the last acknowledged commit, if the process died;
//! * k is at least the last commit acknowledged as durable, if the machine died;
//! * k is at most the commit under way.
//!
//! Then the clone is used: writes, flushes and conversions go well, nothing comes back, and no file
//! is left over. Some openings are crashed again, at each of their operations.
//!
//! What is covered: every crash point of every workload, with the process and [`MACHINES`] crashes of
//! the machine each (the extremes in turn, and random ones); one opening in [`NESTED_EVERY`] is
//! crashed again at all its points. `LEARNEDKV_CRASH_SEEDS=n` (or `from..to`) runs these workloads instead of
//! [`SEEDS`] of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use learnedkv::disk::sim::{CrashKind, Operation, SimDisk, Stage};
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::{Database, KeyspaceStats, Store};

use crate::keys::Keys;
use crate::workload::{
    KEYS, Model, Op, Random, Removal, Setup, Swap, contents, contents_in_turn, difference, draw,
    guarded,
};

/// Workloads of a plain run.
const SEEDS: u64 = 6;
/// Crashes of the machine at each point.
const MACHINES: u64 = 2;
/// One in so many openings is crashed again.
const NESTED_EVERY: u64 = 40;
/// One in so many recovered databases is used further.
const USED_EVERY: u64 = 8;
/// Every so many is read in all ways; the others upwards, in one way more, and each key in one.
const ALL_WAYS_EVERY: u64 = 4;
/// Operations of a workload.
const LENGTH: usize = 70;
/// The same where keys are very long: each fills a memtable, so that there is as much to crash.
const LONG_LENGTH: usize = 45;
/// How many crashed disks of a plain run have to be amid a sweep: half of what they were when this was
/// written (1465), so that another draw does not fail and a workload without sweeps of several steps does.
const LEAST_SWEEPS: u64 = 600;
/// The crash seeds with a meaning; see `CrashKind::Machine`.
const EXTREMES: u64 = 6;

/// What a crash may leave: the states after `least..=most` commits.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    durable: usize,
    acknowledged: usize,
    attempted: usize,
}

impl Progress {
    fn allowed(self, kind: CrashKind) -> std::ops::RangeInclusive<usize> {
        let least = if kind == CrashKind::Process { self.acknowledged } else { self.durable };
        least..=self.attempted
    }
}

/// A disk as a crash left it.
struct Crash {
    disk: SimDisk,
    kind: CrashKind,
    seed: u64,
    allowed: std::ops::RangeInclusive<usize>,
    /// When, for people.
    at: String,
}

/// Takes clones at an operation.
fn clones(operation: &Operation<'_>, disk: &SimDisk, progress: Progress) -> Vec<Crash> {
    // What is there after an operation is there before the next.
    let is_new = match operation.stage {
        Stage::Before => operation.kind != OperationKind::Reserve,
        Stage::Midway => true,
        Stage::After => false,
    };
    if !is_new {
        return Vec::new();
    }
    let random = Random::new(operation.index).next();
    let machine = |n| {
        let turn = operation.index * MACHINES + n;
        let seed = if n == 0 { turn % EXTREMES } else { EXTREMES + (random % 1000) + turn };
        (CrashKind::Machine, seed)
    };
    let crashes = std::iter::once((CrashKind::Process, 0)).chain((0..MACHINES).map(machine));
    crashes.map(|(kind, seed)| clone_of(disk, kind, seed, progress, operation)).collect()
}

fn clone_of(
    disk: &SimDisk,
    kind: CrashKind,
    seed: u64,
    progress: Progress,
    operation: &Operation<'_>,
) -> Crash {
    let Operation { kind: what, path, offset_bytes, length_bytes, index, stage, .. } = operation;
    let at = format!(
        "{kind:?} crash (seed {seed}) {stage:?} operation {index}: {what} {} {offset_bytes}+{length_bytes}",
        path.display()
    );
    Crash { disk: disk.crash_clone(kind, seed), kind, seed, allowed: progress.allowed(kind), at }
}

/// Opens what a crash left and finds which commit it is the state after. Read in all ways, or by `turn` in a few of them:
/// unless seeds were asked for, which is done where time is at hand.
fn recover(
    setup: &Setup,
    crash: &Crash,
    states: &[Model],
    turn: Option<u64>,
    sum: &mut Crashed,
) -> Result<(Database, usize), String> {
    let db = setup.open(&crash.disk, crash.seed).map_err(|e| format!("open: {e:?}"))?;
    sum.openings += 1;
    // Behind its first step: below the watermark it has settled, above it not.
    let is_amid = |k: &KeyspaceStats| k.watermark.as_ref().is_some_and(|key| !key.is_empty());
    sum.sweeps += u64::from(db.stats().keyspaces.iter().any(is_amid));
    let found = match turn.filter(|_| asked_seeds().is_none()) {
        None => contents(&db, setup.keys),
        Some(turn) => contents_in_turn(&db, setup.keys, turn),
    };
    let found = found.map_err(|e| format!("reading: {e:?}"))?;
    // A filter is synced before an edit names it.
    let dropped = db.stats().dropped_filters;
    if dropped > 0 {
        return Err(format!("{dropped} filters that were named could not be read"));
    }
    let mut allowed = crash.allowed.clone();
    match allowed.find(|k| states[*k] == found) {
        Some(k) => Ok((db, k)),
        None => {
            let elsewhere = states.iter().position(|state| *state == found);
            let differences: Vec<_> = crash
                .allowed
                .clone()
                .map(|k| format!("  {k}: {}", difference(&found, &states[k])))
                .collect();
            Err(format!(
                "expected the state after {:?} commits, found that after {elsewhere:?}:\n{}",
                crash.allowed,
                differences.join("\n")
            ))
        }
    }
}

/// Opens what a crash left, checks it, crashes the opening, and uses the database.
fn check(
    setup: &Setup,
    crash: &Crash,
    states: &[Model],
    number: u64,
    sum: &mut Crashed,
) -> Result<(), String> {
    let again = crash.disk.crash_clone(CrashKind::Process, 0);
    let (db, k) = recover(setup, crash, states, turn(number), sum)?;
    // What was recovered is durable.
    let left = crash.disk.crash_clone(CrashKind::Machine, crash.seed % EXTREMES);
    if number.is_multiple_of(NESTED_EVERY) {
        check_nested(setup, crash, again, states, (k, number), sum)?;
    }
    if number % USED_EVERY == 1 {
        let at = "after the opening".to_owned();
        let allowed = k..=k;
        let second = Crash { disk: left, kind: CrashKind::Machine, seed: 0, allowed, at };
        recover(setup, &second, states, None, sum).map_err(|e| format!("{}: {e}", second.at))?;
        use_on(setup, db, crash, states[k].clone()).map_err(|e| format!("used further: {e}"))?;
    }
    Ok(())
}

/// In which ways the `number`th opening is read.
fn turn(number: u64) -> Option<u64> {
    (!number.is_multiple_of(ALL_WAYS_EVERY)).then_some(number / ALL_WAYS_EVERY)
}

/// Crashes the opening of `disk`, the `number`th, whose first opening found the state after `k` commits.
fn check_nested(
    setup: &Setup,
    crash: &Crash,
    disk: SimDisk,
    states: &[Model],
    (k, number): (usize, u64),
    sum: &mut Crashed,
) -> Result<(), String> {
    // After the process died the machine may still lose what was not durable.
    let durable = if crash.kind == CrashKind::Process { 0 } else { k };
    let progress = Progress { durable, acknowledged: k, attempted: k };
    let taken = Arc::new(Mutex::new(Vec::new()));
    let sink = taken.clone();
    disk.observe(move |operation, disk| {
        sink.lock().unwrap().extend(clones(operation, disk, progress));
    });
    let opened = setup.open(&disk, crash.seed + 1).map_err(|e| format!("the same again: {e:?}"))?;
    disk.stop_observing();
    drop(opened);
    let taken = std::mem::take(&mut *taken.lock().unwrap());
    // Each that is crashed again begins one further, so that the same operation is met in another way.
    for (inner, number) in taken.iter().zip(number / NESTED_EVERY..) {
        guarded(|| recover(setup, inner, states, turn(number), sum))
            .map_err(|e| format!("then {}: {e}", inner.at))?;
    }
    Ok(())
}

/// Goes on with a recovered database whose content is `model`.
fn use_on(setup: &Setup, db: Database, crash: &Crash, mut model: Model) -> Result<(), String> {
    let mut random = Random::new(crash.seed ^ 0x5eed);
    let ops = draw(&mut random, setup.keys, 30, 60);
    let changes_no_names = |op: &&Op| !matches!(op, Op::Create(_) | Op::Drop(_));
    for op in ops.iter().filter(changes_no_names) {
        if !op.fits(&model) {
            continue;
        }
        op.apply(&db, setup).map_err(|e| format!("{op:?}: {e:?}"))?;
        op.change(&mut model);
    }
    let compare = |db: &Database, when: &str| {
        let found = contents(db, setup.keys).map_err(|e| format!("{when}: {e:?}"))?;
        if found == model { Ok(()) } else { Err(format!("{when}: {}", difference(&found, &model))) }
    };
    compare(&db, "written on")?;
    for name in db.keyspace_names() {
        let converted = db.find(&name).map_or(Ok(()), |keyspace| keyspace.convert());
        converted.map_err(|e| format!("converting: {e:?}"))?;
    }
    db.wait_idle().map_err(|e| format!("coming to rest: {e:?}"))?;
    compare(&db, "converted")?;
    drop(db);
    let db = setup.open(&crash.disk, 1).map_err(|e| format!("open after converting: {e:?}"))?;
    compare(&db, "converted and opened")?;
    for name in db.keyspace_names() {
        db.drop_keyspace(&name).map_err(|e| format!("dropping: {e:?}"))?;
    }
    drop(db);
    let db = setup.open(&crash.disk, 2).map_err(|e| format!("open emptied: {e:?}"))?;
    // Of an empty database nothing is left but these.
    let names = crash.disk.list("/db".as_ref()).map_err(|e| format!("{e:?}"))?;
    let known = |name: &String| {
        ["LOCK", "CURRENT", "BALLAST"].contains(&name.as_str()) || name.starts_with("log-")
    };
    let rest: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    drop(db);
    match rest.as_slice() {
        [manifest] if manifest.starts_with("manifest-") => Ok(()),
        _ => Err(format!("expected a manifest to be left, found {rest:?}")),
    }
}

/// Which keyspaces a workload writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// All of them, often in one batch.
    Even,
    /// Mostly one: its flushes need not wait for the log, unless the other was written to as well.
    MostlyOne,
    /// One, and nothing but full memtables is flushed or synced: log segments that were never synced are
    /// used again.
    Unsynced,
    /// Over the partitions of one, which is converted often.
    Wide,
}

/// Some of a workload, and more: all keys with long values, and again some of them, converted.
fn widely(ops: Vec<Op>, keys: Keys) -> Vec<Op> {
    let some = |number: usize, step: usize| {
        let values = (number % step..KEYS as usize).step_by(step);
        let one = |n| ("a".to_owned(), keys.key(n as u64), Some(vec![number as u8; 650 - n]));
        [
            Op::Commit(values.map(one).collect(), number.is_multiple_of(3)),
            Op::Convert("a".to_owned()),
        ]
    };
    let ops = ops.into_iter().take(LENGTH / 2).enumerate();
    ops.flat_map(|(number, op)| match number {
        1 => [op].into_iter().chain(some(number, 1)).collect::<Vec<_>>(),
        _ if number.is_multiple_of(8) => [op].into_iter().chain(some(number, 3)).collect(),
        _ => vec![op],
    })
    .collect()
}

/// The workload of `seed`.
fn workload(seed: u64, keys: Keys, spread: Spread) -> Vec<Op> {
    let mut random = Random::new(seed);
    let length = if keys == Keys::Long { LONG_LENGTH } else { LENGTH };
    // Much of it is left out.
    let length = if spread == Spread::Unsynced { 2 * length } else { length };
    let ops = draw(&mut random, keys, length, [40, 250, 700][seed as usize % 3]);
    let one = |name: &str| name == "a" || name == "b";
    let rarely = |(number, op): (usize, Op)| match op {
        Op::Commit(changes, synced) => {
            let named = |(name, key, value): (String, _, _)| {
                let stays = number % 9 == 0 && name == "b";
                (if stays { name } else { "a".to_owned() }, key, value)
            };
            Some(Op::Commit(changes.into_iter().map(named).collect(), synced))
        }
        Op::Remove(Removal { name, .. }) if !one(&name) => None,
        Op::Remove(mut removal) => {
            removal.before.clear();
            removal.after.clear();
            Some(Op::Remove(removal))
        }
        Op::Create(name) | Op::Drop(name) if !one(&name) => None,
        Op::Drop(_) => None,
        Op::Update(name, ..) | Op::Pop(name, _) if !one(&name) => None,
        Op::Read(name, _) if !one(&name) => None,
        // As much passes the log as without these: they are to have flushes go ahead of it.
        Op::Stream(_, key, value, synced) => {
            Some(Op::Commit(vec![("a".to_owned(), key, Some(value))], synced))
        }
        Op::Swap(Swap { key, new, synced, .. }) => {
            Some(Op::Commit(vec![("a".to_owned(), key, new)], synced))
        }
        Op::Ingest(name, _) | Op::Flush(name) if !one(&name) => None,
        Op::Convert(name) | Op::Compact(name) if !one(&name) => None,
        Op::Create(_) if number > 1 => None,
        op => Some(op),
    };
    let unsynced = |op: Op| match op {
        Op::Commit(changes, _) => {
            let of_one = changes.into_iter().map(|(_, key, value)| ("a".to_owned(), key, value));
            Some(Op::Commit(of_one.collect(), false))
        }
        Op::Update(name, key, _) if name == "a" => Some(Op::Update(name, key, false)),
        Op::Create(name) if name == "a" => Some(Op::Create(name)),
        Op::Remove(removal) if removal.name == "a" && removal.before.is_empty() => {
            Some(Op::Remove(removal))
        }
        _ => None,
    };
    match spread {
        Spread::Even => ops,
        Spread::Unsynced => ops.into_iter().filter_map(unsynced).collect(),
        Spread::MostlyOne => ops.into_iter().enumerate().filter_map(rarely).collect(),
        Spread::Wide => widely(ops.into_iter().enumerate().filter_map(rarely).collect(), keys),
    }
}

/// What workloads and their crashes came to.
#[derive(Debug, Default)]
struct Crashed {
    /// Crashed disks that were opened.
    openings: u64,
    /// Those of them that were found amid a sweep, at a watermark inside the keys.
    sweeps: u64,
    /// Steps of sweeps that were begun ahead of others.
    steps_ahead: u64,
    /// Flushes that did not wait for the log.
    unlogged_flushes: u64,
    /// Segments of the log whose files were used again.
    recycled: u64,
    /// Tables of sweeps that were written over the files of others.
    recycled_tables: u64,
    /// Compactions of levels, tables that moved among them.
    compactions: u64,
}

impl Crashed {
    fn add(&mut self, other: &Crashed) {
        self.openings += other.openings;
        self.sweeps += other.sweeps;
        self.steps_ahead += other.steps_ahead;
        self.unlogged_flushes += other.unlogged_flushes;
        self.recycled += other.recycled;
        self.recycled_tables += other.recycled_tables;
        self.compactions += other.compactions;
    }
}

/// Takes clones of the disk wherever it may crash. Counts the segments of the log whose files are used again.
fn take_clones(
    disk: &SimDisk,
    progress: &Arc<Mutex<Progress>>,
    taken: &Arc<Mutex<Vec<Crash>>>,
) -> Arc<AtomicU64> {
    let (now, sink) = (progress.clone(), taken.clone());
    let recycled = Arc::new(AtomicU64::new(0));
    let count = recycled.clone();
    disk.observe(move |operation, disk| {
        let now = *now.lock().unwrap();
        let is_log = operation.path.to_string_lossy().contains("log-");
        if operation.kind == OperationKind::Rename && is_log && operation.stage == Stage::After {
            count.fetch_add(1, Ordering::Relaxed);
        }
        sink.lock().unwrap().extend(clones(operation, disk, now));
    });
    recycled
}

/// Runs the workload of `seed` and checks all its crashes.
fn crash_everywhere(store: Store, seed: u64, spread: Spread) -> Result<Crashed, String> {
    let mut setup = Setup::of(store, seed);
    if seed % 3 == 2 {
        // The longest values, settled in the blocks: a sweep goes over several partitions, in steps. Else
        // all that is settled is one partition of keys and pointers, and no crash finds a sweep amid.
        setup.keyspace = setup.keyspace.inline_limit(1000);
    }
    if spread == Spread::Wide {
        let plain = Setup::default();
        let options = plain.keyspace.clone().inline_limit(1000);
        let options = if seed.is_multiple_of(2) { options } else { options.delta_limit_percent(0) };
        setup = Setup { keyspace: options, ..plain };
    }
    if spread != Spread::Even {
        // Values that do not pass the log leave it nothing to flush ahead of, and are in no partition.
        setup.stream_at = 1 << 20;
    }
    let ops = workload(seed, setup.keys, spread);
    let disk = SimDisk::new(seed);
    let progress = Arc::new(Mutex::new(Progress::default()));
    let taken = Arc::new(Mutex::new(Vec::new()));
    let recycled = take_clones(&disk, &progress, &taken);
    let (mut states, mut sum, mut number) = (vec![Model::new()], Crashed::default(), 0u64);
    let mut check_taken = |states: &[Model]| -> Result<(), String> {
        for crash in std::mem::take(&mut *taken.lock().unwrap()) {
            number += 1;
            guarded(|| check(&setup, &crash, states, number + seed, &mut sum))
                .map_err(|e| format!("{}: {e}", crash.at))?;
        }
        Ok(())
    };
    let db = setup.open(&disk, seed).map_err(|e| format!("{e:?}"))?;
    check_taken(&states)?;
    for (number, op) in ops.iter().enumerate() {
        let durable = op.makes_durable(&states[number]);
        let mut next = states[number].clone();
        op.change(&mut next);
        states.push(next);
        progress.lock().unwrap().attempted = number + 1;
        op.apply(&db, &setup).map_err(|e| format!("operation {number} {op:?}: {e:?}"))?;
        {
            let mut progress = progress.lock().unwrap();
            progress.acknowledged = number + 1;
            if durable {
                progress.durable = number + 1;
            }
        }
        check_taken(&states).map_err(|e| format!("in operation {number} {op:?}: {e}"))?;
    }
    let found = contents(&db, setup.keys).map_err(|e| format!("{e:?}"))?;
    assert_eq!(found, *states.last().unwrap(), "seed {seed}: nothing crashed");
    let stats = db.stats();
    drop(db); // which syncs
    check_taken(&states)?;
    progress.lock().unwrap().durable = ops.len();
    drop(setup.open(&disk, seed).map_err(|e| format!("{e:?}"))?);
    check_taken(&states)?;
    let compactions = stats.compactions + stats.moved_tables;
    let (steps_ahead, unlogged_flushes) = (stats.steps_ahead, stats.unlogged_flushes);
    let (recycled, recycled_tables) = (recycled.load(Ordering::Relaxed), stats.recycled_tables);
    Ok(Crashed { steps_ahead, unlogged_flushes, recycled, recycled_tables, compactions, ..sum })
}

fn asked_seeds() -> Option<String> {
    std::env::var("LEARNEDKV_CRASH_SEEDS").ok()
}

/// The seeds asked for: `n` (the first n) or `from..to`.
fn seeds() -> std::ops::Range<u64> {
    let Some(asked) = asked_seeds() else { return 0..SEEDS };
    let (from, to) = asked.split_once("..").unwrap_or(("0", &asked));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("seeds: found {asked:?}"));
    number(from)..number(to)
}

#[test]
fn a_crash_anywhere_leaves_the_state_after_some_commit() {
    let mut sum = Crashed::default();
    for seed in seeds() {
        let crashed = crash_everywhere(Store::Tiered, seed, Spread::Even);
        sum.add(&crashed.unwrap_or_else(|e| panic!("seed {seed}: {e}")));
    }
    println!("{sum:?}");
    let sweeps = if asked_seeds().is_none() { LEAST_SWEEPS } else { 0 };
    assert!(sum.openings > 1000 && sum.sweeps >= sweeps, "hardly anything was crashed: {sum:?}");
}

#[test]
fn a_crash_anywhere_of_a_store_of_levels_leaves_the_state_after_some_commit() {
    let mut sum = Crashed::default();
    // A third of them, if nobody asked for more: of all that is not the store's the others know.
    let some = |seed: &u64| asked_seeds().is_some() || seed % 3 == 1;
    for seed in seeds().filter(some) {
        let crashed = crash_everywhere(Store::Lsm, seed, Spread::Even);
        sum.add(&crashed.unwrap_or_else(|e| panic!("seed {seed}: {e}")));
    }
    println!("{sum:?}");
    assert!(sum.openings > 1000 && sum.compactions > 20, "hardly anything was crashed: {sum:?}");
}

/// Half of a step is written and in no edit, beside another that is: what is found is one of the two, or neither.
#[test]
fn a_crash_anywhere_is_no_worse_where_steps_of_sweeps_go_ahead_of_each_other() {
    let mut sum = Crashed::default();
    let some = |seed: &u64| asked_seeds().is_some() || *seed < 3;
    for seed in seeds().filter(some) {
        let crashed = crash_everywhere(Store::Tiered, seed, Spread::Wide);
        sum.add(&crashed.unwrap_or_else(|e| panic!("seed {seed}: {e}")));
    }
    println!("{sum:?}");
    let is_enough = sum.openings > 1000 && sum.steps_ahead > 20 && sum.sweeps > 1000;
    // Over the files of tables that a crash may bring back, were their successors not named by then.
    let is_enough = is_enough && sum.recycled_tables > 20;
    assert!(asked_seeds().is_some() || is_enough, "{sum:?}");
}

/// A flush whose edit is durable before the log is: what the log loses then, the table has.
#[test]
fn a_crash_anywhere_is_no_worse_where_flushes_do_not_wait_for_the_log() {
    let mut sum = Crashed::default();
    for seed in seeds() {
        let crashed = crash_everywhere(Store::Tiered, seed, Spread::MostlyOne);
        sum.add(&crashed.unwrap_or_else(|e| panic!("seed {seed}: {e}")));
    }
    println!("{sum:?}");
    assert!(sum.openings > 1000 && sum.unlogged_flushes > 5, "{sum:?}");
}

/// Behind the last record of a segment stand those of another, which must not come back.
#[test]
fn a_crash_anywhere_is_no_worse_where_files_of_log_segments_are_used_again() {
    let mut sum = Crashed::default();
    let some = |seed: &u64| asked_seeds().is_some() || *seed < 3;
    for seed in seeds().filter(some) {
        let crashed = crash_everywhere(Store::Tiered, seed, Spread::Unsynced);
        sum.add(&crashed.unwrap_or_else(|e| panic!("seed {seed}: {e}")));
    }
    println!("{sum:?}");
    assert!(sum.openings > 1000 && sum.recycled > 5, "{sum:?}");
}
