//! What tests of the jobs share.

use std::time::Duration;

use crate::executor::{Executor, Job, SeededExecutor};

/// A seeded executor on which nothing is settled.
#[derive(Debug)]
pub struct Unsettled(pub SeededExecutor);

impl Executor for Unsettled {
    fn spawn(&self, job: Box<dyn Job>) {
        if job.name() != "settle" {
            self.0.spawn(job);
        }
    }

    fn notify(&self) {
        self.0.notify();
    }

    fn hurry(&self, begins: bool) {
        self.0.hurry(begins);
    }

    fn wait_until(&self, ready: &mut dyn FnMut() -> bool) {
        self.0.wait_until(ready);
    }

    fn pause(&self, duration: Duration) {
        self.0.pause(duration);
    }

    fn now(&self) -> Duration {
        self.0.now()
    }

    fn shutdown(&self) {
        self.0.shutdown();
    }
}
