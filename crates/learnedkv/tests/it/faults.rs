//! A failure at operation N of a workload, for every N, and what must hold then.
//!
//! * Never a panic, never a hang (the seeded executor panics on a deadlock).
//! * An operation that failed says so with the kind of the failure, or `Poisoned`, and has happened
//!   or not; what was acknowledged before is there, at once and after opening again.
//! * Once a write is refused as `Poisoned`, all are, and reads go on. Opening again recovers; so
//!   does opening what a crash of the machine leaves, from the last synced commit on.
//! * Otherwise background work goes on once the failures are over.
//!
//! What is covered: each of [`PLANS`] at every [`Plan::stride`]-th operation it matches, for
//! [`SEEDS`] workloads; `LEARNEDKV_FAULT_STRIDE=1` tries every operation.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use learnedkv::disk::OperationKind::{self as Kind};
use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::{Database, ErrorKind, Store};

use crate::keys::Keys;
use crate::workload::{Model, Op, Random, Setup, contents, difference, draw, guarded};

const SEEDS: u64 = 3;
const LENGTH: usize = 60;

/// Which operations fail, and how.
struct Plan {
    name: &'static str,
    kinds: Option<&'static [Kind]>,
    error: ErrorKind,
    from_then_on: bool,
    writing_part: bool,
    stride: u64,
}

const ANY: Plan = Plan {
    name: "any, once",
    kinds: None,
    error: ErrorKind::Io,
    from_then_on: false,
    writing_part: false,
    stride: 3,
};

const PLANS: &[Plan] = &[
    ANY,
    Plan { name: "all from then on", from_then_on: true, stride: 11, ..ANY },
    Plan {
        name: "full, once",
        kinds: Some(&[Kind::Create, Kind::CreateLogRegion, Kind::Write, Kind::Preallocate]),
        error: ErrorKind::DiskFull,
        writing_part: true,
        ..ANY
    },
    Plan {
        name: "full from then on",
        kinds: Some(&[Kind::Create, Kind::CreateLogRegion, Kind::Write, Kind::Preallocate]),
        error: ErrorKind::DiskFull,
        from_then_on: true,
        writing_part: true,
        stride: 5,
    },
    Plan {
        name: "syncs",
        kinds: Some(&[Kind::Sync, Kind::SyncLog, Kind::SyncDir]),
        stride: 1,
        ..ANY
    },
    Plan { name: "reads", kinds: Some(&[Kind::Read]), stride: 5, ..ANY },
    Plan {
        name: "records by half",
        kinds: Some(&[Kind::Publish]),
        writing_part: true,
        stride: 3,
        ..ANY
    },
];

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    NotOpened,
    Poisoned,
    WentOn,
}

/// A run of a workload on a failing disk.
struct Run<'a> {
    /// What stands under the failing disk.
    disk: &'a SimDisk,
    faulty: &'a FaultyDisk,
    setup: &'a Setup,
    plan: &'a Plan,
    /// The states after the commits that happened.
    states: Vec<Model>,
    /// The first of them that a crash of the machine may leave.
    durable: usize,
    /// The state if the operation that poisoned the writer has happened after all.
    perhaps: Option<Model>,
}

impl Run<'_> {
    fn now(&self) -> &Model {
        self.states.last().expect("there is a first state")
    }

    fn check_kind(&self, error: &learnedkv::Error) -> Result<(), String> {
        let allowed = [self.plan.error, ErrorKind::Poisoned].contains(&error.kind());
        if allowed { Ok(()) } else { Err(format!("an unexpected kind: {error:?}")) }
    }

    /// Does `op`; true if the writer is poisoned by now.
    fn step(&mut self, db: &Database, op: &Op) -> Result<bool, String> {
        let durable = op.makes_durable(self.now());
        let mut next = self.now().clone();
        op.change(&mut next);
        match op.apply(db, self.setup) {
            Ok(()) => {
                self.states.push(next);
                if durable {
                    self.durable = self.states.len() - 1;
                }
                Ok(false)
            }
            Err(e) => {
                self.check_kind(&e)?;
                let poisoned = is_poisoned(db);
                match contents(db, self.setup.keys) {
                    Ok(found) if found == *self.now() => self.perhaps = Some(next),
                    Ok(found) if found == next => {
                        self.perhaps = Some(self.now().clone());
                        self.states.push(next);
                    }
                    Ok(found) => {
                        return Err(format!("after {e:?}: {}", difference(&found, self.now())));
                    }
                    Err(e) => {
                        // If writes go on, it has not happened.
                        self.check_kind(&e)?;
                        self.perhaps = Some(next);
                    }
                }
                if !poisoned {
                    self.perhaps = None;
                }
                Ok(poisoned)
            }
        }
    }

    fn poisoned(&self, db: &Database) -> Result<(), String> {
        for name in self.now().keys() {
            let keyspace = db.find(name).ok_or("a keyspace is gone")?;
            match keyspace.insert(self.setup.keys.key(0), "refused") {
                Err(e) if e.kind() == ErrorKind::Poisoned => {}
                other => return Err(format!("expected a refusal, found {other:?}")),
            }
        }
        match contents(db, self.setup.keys) {
            Ok(found) if found == *self.now() || Some(&found) == self.perhaps.as_ref() => Ok(()),
            Ok(found) => Err(format!("reads when poisoned: {}", difference(&found, self.now()))),
            Err(e) => self.check_kind(&e),
        }
    }

    /// Background work goes on, and nothing was lost.
    fn went_on(&self, db: &Database) -> Result<(), String> {
        for name in self.now().keys() {
            let keyspace = db.find(name).ok_or("a keyspace is gone")?;
            keyspace.flush().map_err(|e| format!("a later flush of {name}: {e:?}"))?;
            keyspace.convert().map_err(|e| format!("a later conversion of {name}: {e:?}"))?;
        }
        db.wait_idle().map_err(|e| format!("coming to rest: {e:?}"))?;
        let found = contents(db, self.setup.keys).map_err(|e| format!("reading: {e:?}"))?;
        if found == *self.now() { Ok(()) } else { Err(difference(&found, self.now())) }
    }

    /// Opens again, on a disk whose failed syncs may be lied about since, and what crashes of the machine leave. What an
    /// open has shown is durable.
    fn reopen(&self) -> Result<(), String> {
        let crashed: Vec<_> =
            (0..6).map(|seed| self.disk.crash_clone(CrashKind::Machine, seed)).collect();
        let read = |db: Result<Database, learnedkv::Error>| -> Result<Model, String> {
            let db = db.map_err(|e| format!("opening again: {e:?}"))?;
            contents(&db, self.setup.keys).map_err(|e| format!("reading again: {e:?}"))
        };
        let open = |disk: &SimDisk| read(self.setup.open(disk, 7));
        self.faulty.clear_faults();
        let found = read(self.setup.open(self.faulty, 7))?;
        for seed in 0..3 {
            let left = open(&self.disk.crash_clone(CrashKind::Machine, seed))?;
            if left != found {
                let difference = difference(&left, &found);
                return Err(format!("opened again, then machine crash {seed}: {difference}"));
            }
        }
        if found != *self.now() && Some(&found) != self.perhaps.as_ref() {
            return Err(format!("opened again: {}", difference(&found, self.now())));
        }
        for (seed, disk) in crashed.iter().enumerate() {
            let found = open(disk).map_err(|e| format!("after machine crash {seed}: {e}"))?;
            let allowed = self.states[self.durable..].iter().chain(&self.perhaps);
            if !allowed.into_iter().any(|state| *state == found) {
                let difference = difference(&found, self.now());
                return Err(format!("after machine crash {seed}: {difference}"));
            }
        }
        Ok(())
    }
}

/// Runs `ops` with a failure at the `index`-th operation that matches; how it ended, and how many
/// operations matched.
fn run(
    ops: &[Op],
    setup: &Setup,
    seed: u64,
    plan: &Plan,
    index: u64,
) -> Result<(Outcome, u64), String> {
    let disk = SimDisk::new(seed);
    let faulty = FaultyDisk::new(Arc::new(disk.clone()));
    let mut fault = Fault::at(index).with(plan.error);
    if let Some(kinds) = plan.kinds {
        fault = fault.of(kinds);
    }
    if plan.from_then_on {
        fault = fault.from_then_on();
    }
    if plan.writing_part {
        fault = fault.writing_part();
    }
    let counts = faulty.fail(fault);
    let states = vec![Model::new()];
    let mut run =
        Run { disk: &disk, faulty: &faulty, setup, plan, states, durable: 0, perhaps: None };
    let db = match setup.open(&faulty, seed) {
        Ok(db) => db,
        Err(e) => {
            run.check_kind(&e)?;
            run.reopen()?;
            return Ok((Outcome::NotOpened, counts.matched()));
        }
    };
    let mut poisoned = false;
    for op in ops {
        if !op.fits(run.now()) {
            continue;
        }
        poisoned = run.step(&db, op).map_err(|e| format!("{op:?}: {e}"))?;
        if poisoned {
            break;
        }
    }
    let matched = counts.matched();
    // Background work may have met it after the last operation.
    poisoned |= is_poisoned(&db);
    if poisoned {
        run.poisoned(&db)?;
        faulty.clear_faults();
        run.poisoned(&db)?;
    } else {
        faulty.clear_faults();
        run.went_on(&db)?;
    }
    drop(db);
    run.reopen()?;
    Ok((if poisoned { Outcome::Poisoned } else { Outcome::WentOn }, matched))
}

/// An open that was told of a full disk after it had turned to a new manifest removed that as left over, to have room for another; if
/// there was none for that either, nothing could be opened any more.
#[test]
fn an_open_that_does_not_know_which_manifest_counts_keeps_both() {
    let (setup, base) = (Setup::default(), SimDisk::new(1));
    let db = setup.open(&base, 1).unwrap();
    db.keyspace("k", setup.keyspace.clone()).unwrap().insert("a", "b").unwrap();
    db.close().unwrap();
    let mut failed = 0;
    for (directory, file) in (0..6).flat_map(|at| (0..8).map(move |then| (at, then))) {
        let disk = base.crash_clone(CrashKind::Process, 0);
        let faulty = FaultyDisk::new(Arc::new(disk.clone()));
        faulty.fail(Fault::at(directory).of(&[Kind::SyncDir]).with(ErrorKind::DiskFull));
        faulty.fail(Fault::at(file).of(&[Kind::Create]).with(ErrorKind::Io).from_then_on());
        failed += u64::from(setup.open(&faulty, 1).is_err());
        for disk in [disk.clone(), disk.crash_clone(CrashKind::Machine, directory)] {
            let db = setup.open(&disk, 1).unwrap_or_else(|e| panic!("{directory} {file}: {e}"));
            let found = db.keyspace("k", setup.keyspace.clone()).unwrap().get("a").unwrap();
            assert_eq!(found.as_deref(), Some(&b"b"[..]), "{directory} {file}");
        }
    }
    assert!(failed > 10, "{failed}");
}

/// Whether writes are refused. The first sync may be what meets the failure.
fn is_poisoned(db: &Database) -> bool {
    let _ = db.sync();
    db.sync().is_err_and(|e| e.kind() == ErrorKind::Poisoned)
}

fn stride(plan: &Plan) -> u64 {
    let asked = std::env::var("LEARNEDKV_FAULT_STRIDE").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(plan.stride)
}

/// Fails everywhere that the strides say; how often a run of each plan ended how.
fn fail_everywhere(store: Store, seeds: Range<u64>) -> BTreeMap<(&'static str, Outcome), u64> {
    let mut outcomes = BTreeMap::new();
    let plans = PLANS.iter().zip(0..);
    for (seed, (plan, number)) in plans.flat_map(|plan| seeds.clone().map(move |seed| (seed, plan)))
    {
        // Each plan meets other shapes of keys, each seed all of them.
        let setup = Setup { keys: Keys::of(seed + number), ..Setup::of(store, seed) };
        let length = [40, 250, 700][seed as usize % 3];
        let ops = draw(&mut Random::new(seed), setup.keys, LENGTH, length);
        let (ended, count) =
            run(&ops, &setup, seed, plan, u64::MAX).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(ended, Outcome::WentOn);
        for index in (seed % stride(plan)..count).step_by(stride(plan) as usize) {
            let outcome = guarded(|| run(&ops, &setup, seed, plan, index));
            let (outcome, _) = outcome.unwrap_or_else(|e| {
                panic!("{}, seed {seed}, at {index} of {count}: {e}", plan.name)
            });
            *outcomes.entry((plan.name, outcome)).or_insert(0) += 1;
        }
    }
    outcomes
}

#[test]
fn a_failure_anywhere_is_reported_and_recovered_from() {
    let outcomes = fail_everywhere(Store::Tiered, 0..SEEDS);
    println!("{outcomes:#?}");
    for wanted in [Outcome::NotOpened, Outcome::Poisoned, Outcome::WentOn] {
        assert!(outcomes.contains_key(&(ANY.name, wanted)), "no run ended {wanted:?}");
    }
}

#[test]
fn a_failure_anywhere_of_a_store_of_levels_is_reported_and_recovered_from() {
    let outcomes = fail_everywhere(Store::Lsm, 1..2);
    println!("{outcomes:#?}");
    for wanted in [Outcome::NotOpened, Outcome::Poisoned, Outcome::WentOn] {
        assert!(outcomes.contains_key(&(ANY.name, wanted)), "no run ended {wanted:?}");
    }
}
