//! Syncing the log some time after writes: [`Durability::SyncedEvery`](crate::Durability).
//!
//! `due` is when the next sync is to begin; none while all that asked for one is durable. A commit that is
//! visible sets it to its own time plus its period if that comes before what is there, and wakes the job
//! if it does. The job takes it back when the time has come, then syncs all that is visible.
//!
//! **No write is left out.** Writer: (1) its commit is visible, (2) fence, (3) reads `due`, lowers it if it
//! is later. Job: (4) takes `due`, (5) fence, (6) reads the visible number and syncs up to it. If (3) sees
//! what was there before (4), then (1) comes before (6), and the sync covers the write; if it sees what
//! (4) left, it sets a time of its own. An idle database has no time set, and the job waits for a
//! notification only.
//!
//! So a write that was acknowledged at time t is durable by t + period + what one step of other background
//! work and one sync take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use super::Engine;
use crate::executor::{Job, Priority, Step};

/// When the log is synced next. See the module page.
#[derive(Debug)]
pub struct Periodic {
    /// Nanoseconds of the executor's clock.
    due: AtomicU64,
}

const NONE: u64 = u64::MAX;

impl Default for Periodic {
    fn default() -> Periodic {
        Periodic { due: AtomicU64::new(NONE) }
    }
}

impl Periodic {
    /// Has what is visible synced at `time`, at the latest. True: earlier than was known.
    fn ask(&self, time: Duration) -> bool {
        let time = u64::try_from(time.as_nanos()).unwrap_or(NONE - 1);
        fence(Ordering::SeqCst);
        self.due.load(Ordering::SeqCst) > time && self.due.fetch_min(time, Ordering::SeqCst) > time
    }

    fn due(&self) -> Option<Duration> {
        let due = self.due.load(Ordering::SeqCst);
        (due != NONE).then_some(Duration::from_nanos(due))
    }

    fn take(&self) {
        self.due.store(NONE, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Engine {
    /// Has what is visible now synced within `period`.
    pub(super) fn sync_within(&self, period: Duration) {
        if self.periodic.ask(self.executor.now().saturating_add(period)) {
            self.executor.notify();
        }
    }
}

/// Syncs the log when it is due.
#[derive(Debug)]
pub struct SyncJob {
    engine: Arc<Engine>,
}

impl SyncJob {
    /// That of `engine`.
    pub fn new(engine: &Arc<Engine>) -> SyncJob {
        SyncJob { engine: engine.clone() }
    }
}

impl Job for SyncJob {
    fn name(&self) -> &'static str {
        "sync"
    }

    fn priority(&self) -> Priority {
        Priority::Urgent
    }

    fn step(&mut self) -> Step {
        let engine = &self.engine;
        let Some(due) = engine.periodic.due() else { return Step::Wait };
        if engine.health.check_writable().is_err() {
            return Step::Wait;
        }
        if engine.executor.now() < due {
            return Step::WaitUntil(due);
        }
        engine.periodic.take();
        if let Err(e) = engine.log.sync(engine.log.visible()) {
            engine.poison(&e);
        }
        match engine.periodic.due() {
            Some(due) => Step::WaitUntil(due),
            None => Step::Wait,
        }
    }
}
