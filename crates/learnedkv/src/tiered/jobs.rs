//! The jobs of the tiered store beside those that settle: the log, removals, how hard pressed writers
//! are.

use std::sync::Arc;
use std::time::Duration;

use super::press::PressJob;
use super::settle;
use crate::engine::{BallastJob, Engine, SyncJob};
use crate::executor::{Job, Priority, Step};
use crate::format::entry::SequenceNumber;
use crate::lsm::flush::FlushJob;
use crate::lsm::spill::SpillJob;
use crate::memtable::Memtable;
use crate::view::Sealed;

/// Starts the jobs of `engine`.
pub fn spawn(engine: &Arc<Engine>) {
    let executor = &engine.executor;
    executor.spawn(Box::new(LogJob { engine: engine.clone() }));
    executor.spawn(Box::new(SegmentsJob::new(engine)));
    executor.spawn(Box::new(ReadyJob { engine: engine.clone(), goes_on: false }));
    executor.spawn(Box::new(FlushJob::new(engine)));
    executor.spawn(Box::new(BuryJob { engine: engine.clone() }));
    executor.spawn(Box::new(BallastJob::new(engine)));
    executor.spawn(Box::new(SyncJob::new(engine)));
    executor.spawn(Box::new(PressJob::new(engine)));
    executor.spawn(Box::new(SpillJob::new(engine)));
    settle::spawn(engine);
}

/// What a rotation asks for: the cache gives way to the sealed memtable, and the log is synced ahead of a flush that depends
/// on it, which meanwhile writes its table (see [`Engine::needs_no_log`]).
struct LogJob {
    engine: Arc<Engine>,
}

/// Makes the next segment of the log, before a commit has to. What is kept of the log for later is given back where nobody writes.
struct SegmentsJob {
    engine: Arc<Engine>,
    /// What the log's usage was when that last changed, and when it did.
    used: (u64, Duration),
    /// After an error: none is tried before.
    again_at: Duration,
}

/// Takes the page faults of the log's next segment, some at a time: all together they keep a processor busy for 40 ms,
/// which a flush and the program want.
struct ReadyJob {
    engine: Arc<Engine>,
    goes_on: bool,
}

/// So many pieces of memory are made ready at a time.
const PIECES_A_STEP: usize = 16;
/// A segment that could not be made, for want of room mostly, is not tried at each notification: each try takes a file and
/// a number.
const TRIED_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Files of segments are kept to be used again until so long none was made; where commits are synced, until none came.
const RECYCLED_FOR: Duration = Duration::from_secs(10);

impl LogJob {
    /// What is sealed, and visible, and whose flush depends on the log: up to where that is to be synced.
    fn needed_up_to(&self) -> Option<SequenceNumber> {
        let engine = &self.engine;
        // Held for the moment of this look: what is replaced while the log is synced is to go.
        let (view, visible) = (engine.view(), engine.log.visible());
        view.keyspaces.sealed_up_to(|keyspace, Sealed { up_to, .. }| {
            // What a keyspace has sealed before is flushed before.
            let goes = |other, _: &Arc<Memtable>| other == keyspace.id;
            *up_to <= visible && !engine.needs_no_log(*up_to, goes)
        })
    }
}

impl Job for LogJob {
    fn name(&self) -> &'static str {
        "log"
    }

    fn step(&mut self) -> Step {
        let engine = &self.engine;
        if engine.health.check_writable().is_err() {
            return Step::Wait;
        }
        engine.fit_cache();
        if let Some(up_to) = self.needed_up_to()
            && let Err(e) = engine.log.sync(up_to)
        {
            engine.poison(&e);
            return Step::Wait;
        }
        engine.bound_log();
        Step::Wait
    }
}

impl SegmentsJob {
    fn new(engine: &Arc<Engine>) -> SegmentsJob {
        SegmentsJob { engine: engine.clone(), used: (0, Duration::ZERO), again_at: Duration::ZERO }
    }

    /// Gives back what is kept for segments to come where none come; when to look again.
    fn give_back(&mut self) -> Step {
        let (log, now) = (&self.engine.log, self.engine.executor.now());
        let usage = log.usage();
        if usage != self.used.0 {
            self.used = (usage, now);
        }
        let due = self.used.1.saturating_add(RECYCLED_FOR);
        if log.recyclable() == 0 {
            return Step::Wait;
        }
        if now < due {
            return Step::WaitUntil(due);
        }
        log.give_back();
        Step::Wait
    }
}

impl Job for SegmentsJob {
    fn name(&self) -> &'static str {
        "log segments"
    }

    /// Commits come to wait for it, and whatever is not urgent may be kept by the syncs of sweeps.
    fn priority(&self) -> Priority {
        Priority::Urgent
    }

    fn step(&mut self) -> Step {
        let engine = &self.engine;
        if engine.health.check_writable().is_err() {
            engine.log.give_back();
            return Step::Wait;
        }
        let now = engine.executor.now();
        if now >= self.again_at {
            match engine.log.prepare_spare(now) {
                Ok(true) => engine.executor.notify(),
                Ok(false) => {}
                // If there is no room now, the commit that needs the segment tries again and says so.
                Err(_) => self.again_at = now.saturating_add(TRIED_AGAIN_AFTER),
            }
        }
        self.give_back()
    }
}

impl Job for ReadyJob {
    fn name(&self) -> &'static str {
        "log memory"
    }

    fn step(&mut self) -> Step {
        // After a wait it only looks: for the executor that step has no patience.
        let mut pieces = if self.goes_on { PIECES_A_STEP } else { 0 };
        while pieces > 0 && self.engine.log.make_some_ready() {
            self.engine.executor.give_way();
            pieces -= 1;
        }
        self.goes_on = !self.engine.log.is_ready();
        if self.goes_on { Step::Patiently } else { Step::Wait }
    }
}

/// Removes files that no View uses any more.
struct BuryJob {
    engine: Arc<Engine>,
}

impl Job for BuryJob {
    fn name(&self) -> &'static str {
        "remove files"
    }

    fn step(&mut self) -> Step {
        if self.engine.bury_some() { Step::Again } else { Step::Wait }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::disk::OperationKind;
    use crate::disk::sim::{SimDisk, Stage};
    use crate::executor::{Executor, SeededExecutor};
    use crate::tiered::testing::Without;
    use crate::{Database, Keyspace, KeyspaceOptions};

    /// Forty pieces of memory that is made ready.
    const SEGMENT_BYTES: u64 = 10 << 20;

    /// A database on which what makes the log's segments is stepped by the test alone, and nothing is flushed.
    struct ByHand {
        disk: SimDisk,
        executor: Arc<Without>,
        db: Database,
        keyspace: Keyspace,
        segments: SegmentsJob,
        ready: ReadyJob,
    }

    fn by_hand() -> ByHand {
        let disk = SimDisk::new(1);
        let ours = &["log segments", "log memory", "flush"];
        let executor = Arc::new(Without(SeededExecutor::new(1), ours));
        let db = Database::builder("/db")
            .disk(Arc::new(disk.clone()))
            .executor(executor.clone())
            .log_segment_bytes(SEGMENT_BYTES)
            .open()
            .unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        executor.0.run_until_idle();
        let mut segments = SegmentsJob::new(db.engine());
        // The first segments are small.
        let log = &db.engine().log;
        loop {
            segments.step();
            let before = log.size_bytes();
            put_some(&keyspace);
            executor.0.run_until_idle();
            if log.size_bytes() == before + SEGMENT_BYTES {
                break;
            }
        }
        let ready = ReadyJob { engine: db.engine().clone(), goes_on: false };
        ByHand { disk, executor, db, keyspace, segments, ready }
    }

    /// A twentieth of a segment, with its headers a little more.
    fn put_some(keyspace: &Keyspace) {
        keyspace.insert("key", vec![0; SEGMENT_BYTES as usize / 20]).unwrap();
    }

    /// One job did both, and synced the log before it: a commit that needed the segment made it itself, with all its page faults.
    #[test]
    fn the_next_segment_is_made_urgently_and_its_memory_ready_with_patience() {
        let ByHand { db, mut segments, mut ready, .. } = by_hand();
        let log = &db.engine().log;
        let priorities = [segments.priority(), ready.priority()];
        assert_eq!(priorities, [Priority::Urgent, Priority::Normal]);
        let (made, _) = log.segments_made();
        assert_eq!([segments.step(), segments.step()], [Step::Wait; 2]);
        assert_eq!(log.segments_made().0, made + 1, "one is enough");
        // The first step after a wait only looks; then 16 pieces at a time, of the active one (which holds a record, two pieces long), and
        // of the next.
        assert_eq!([(); 5].map(|()| ready.step()), [Step::Patiently; 5]);
        assert!(!log.is_ready());
        assert_eq!([ready.step(), ready.step()], [Step::Wait; 2]);
        assert!(log.is_ready());
    }

    #[test]
    fn a_commit_that_begins_a_segment_says_so() {
        let ByHand { executor, keyspace, mut segments, db: _db, .. } = by_hand();
        segments.step();
        let says_so = |_: &i32| {
            executor.0.run_until_idle();
            put_some(&keyspace);
            executor.0.runnable() > 0
        };
        // One stands in the first already.
        assert_eq!((1..=40).filter(says_so).collect::<Vec<_>>(), [19, 38]);
    }

    /// Behind a memtable of another keyspace that could not be flushed each seal ended a segment, seven eighths empty.
    #[test]
    fn a_seal_ends_a_segment_early_only_where_the_log_holds_nothing_else() {
        for holds_others in [false, true] {
            let ByHand { db, keyspace, mut segments, .. } = by_hand();
            let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
            if holds_others {
                other.insert("key", "value").unwrap();
                db.engine().rotate(2).unwrap();
            }
            segments.step();
            (0..4).for_each(|_| put_some(&keyspace));
            let up_to = db.engine().rotate(1).unwrap();
            assert_eq!(db.engine().log.ends_at(up_to), !holds_others);
        }
    }

    /// At each notification a file was taken, and a number, and given back, for as long as there was no room.
    #[test]
    fn a_segment_that_cannot_be_made_is_not_tried_at_each_notification() {
        let ByHand { disk, executor, db, mut segments, .. } = by_hand();
        let tries = Arc::new(AtomicU64::new(0));
        let sink = tries.clone();
        disk.observe(move |operation, _| {
            let tries = operation.kind == OperationKind::CreateLogRegion
                && operation.stage == Stage::Before;
            sink.fetch_add(tries.into(), Ordering::Relaxed);
        });
        let mut steps = || {
            (0..10).for_each(|_| assert_eq!(segments.step(), Step::Wait));
            executor.pause(TRIED_AGAIN_AFTER);
            tries.load(Ordering::Relaxed)
        };
        disk.set_space_limit_bytes(Some(0));
        assert_eq!([steps(), steps()], [1, 2]);
        let (made, _) = db.engine().log.segments_made();
        disk.set_space_limit_bytes(None);
        assert_eq!([steps(), steps()], [3, 3]);
        assert_eq!(db.engine().log.segments_made().0, made + 1);
        disk.stop_observing();
    }
}
