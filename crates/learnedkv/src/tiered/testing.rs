//! What tests of the jobs share.

use std::time::Duration;

use crate::executor::{Executor, Job, SeededExecutor};

/// A seeded executor on which jobs of some names are never stepped: a test has its own.
#[derive(Debug)]
pub struct Without(pub SeededExecutor, pub &'static [&'static str]);

impl Without {
    /// One on which nothing is settled.
    pub fn settling() -> Without {
        Without(SeededExecutor::new(1), &["settle"])
    }
}

impl Executor for Without {
    fn spawn(&self, job: Box<dyn Job>) {
        if !self.1.contains(&job.name()) {
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

    fn give_way(&self) -> bool {
        self.0.give_way()
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

    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}
