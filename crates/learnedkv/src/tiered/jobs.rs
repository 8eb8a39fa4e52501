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

/// Starts the jobs of `engine`.
pub fn spawn(engine: &Arc<Engine>) {
    let executor = &engine.executor;
    executor.spawn(Box::new(LogJob { engine: engine.clone() }));
    executor.spawn(Box::new(SegmentsJob { engine: engine.clone(), made: (0, Duration::ZERO) }));
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
    /// How many segments were made when that last changed, and when it did.
    made: (u64, Duration),
}

/// Takes the page faults of the log's next segment, some at a time: all together they keep a processor busy for 40 ms,
/// which a flush and the program want.
struct ReadyJob {
    engine: Arc<Engine>,
    goes_on: bool,
}

/// Files of segments are kept to be used again until so long none was made.
const RECYCLED_FOR: Duration = Duration::from_secs(10);

impl LogJob {
    /// What is sealed, and visible, and whose flush depends on the log: up to where that is to be synced.
    fn needed_up_to(&self) -> Option<SequenceNumber> {
        let engine = &self.engine;
        // Held for the moment of this look: what is replaced while the log is synced is to go.
        let (view, visible) = (engine.view(), engine.log.visible());
        let sealed = view.keyspaces.with_sealed();
        let sealed = sealed.flat_map(|k| k.sealed.iter().map(|s| (k.id, s.up_to)));
        let sealed = sealed.filter(|(_, up_to)| *up_to <= visible);
        // What a keyspace has sealed before is flushed before.
        let needed = sealed.filter(|(keyspace, up_to)| {
            !engine.needs_no_log(*up_to, |other, _| other == *keyspace)
        });
        needed.map(|(_, up_to)| up_to).max()
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
    /// Gives back what is kept for segments to come where none come; when to look again.
    fn give_back(&mut self) -> Step {
        let (log, now) = (&self.engine.log, self.engine.executor.now());
        let (made, _) = log.segments_made();
        if made != self.made.0 {
            self.made = (made, now);
        }
        let due = self.made.1.saturating_add(RECYCLED_FOR);
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
        // If there is no room now, the commit that needs the segment tries again and says so.
        if engine.log.prepare_spare(engine.executor.now()).is_ok_and(|made| made) {
            engine.executor.notify();
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
        if self.goes_on {
            self.engine.log.make_some_ready();
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
