//! Background work: state machines with [`Job::step`], run by an [`Executor`].
//!
//! Variants: [`threads`] (production) and [`seeded`] (tests: nothing runs by itself, a seeded
//! scheduler picks which job steps next, so that every interleaving can be had again).
//!
//! Rules:
//! 1. A job is stepped by one thread at a time. A step does a bounded piece of work.
//! 2. A job that returns [`Step::Wait`] is stepped again after the next [`Executor::notify`]; a
//!    notification between its look at the state and its return is not lost.
//! 3. Whoever waits for background work does so in [`Executor::wait_until`], never on a lock that
//!    a job needs.
//! 4. The engine reads no other clock than [`Executor::now`].
//! 5. A job that returns [`Step::WaitUntil`] is stepped again after the next notification, or once
//!    the clock has come so far, whichever is first. With no such job, nothing wakes by itself.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod patience;
pub mod seeded;
pub mod threads;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub use seeded::SeededExecutor;
pub use threads::ThreadExecutor;

/// What a job wants after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Step me again: there is more to do.
    Again,
    /// The same, but it computes for long and nobody waits for it (merges, sweeps, page faults of the log): the next step is to leave the program
    /// a processor, unless there is a [hurry](Executor::hurry).
    Patiently,
    /// The same, beside a program that is at work: until as much time has passed again as the step took (20 ms at most), its
    /// place among the patient ones stays empty, unless there is a hurry. An urgent job does not rest.
    Leisurely,
    /// Nothing to do until the next notification.
    Wait,
    /// Nothing to do until the next notification, or until [`Executor::now`] says so much.
    WaitUntil(Duration),
    /// Finished: drop me.
    Done,
}

/// Which jobs go first when threads are scarce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Writers wait for it (flush): one thread is always kept for these.
    Urgent,
    /// Everything else.
    Normal,
}

/// A state machine that does background work in bounded steps.
pub trait Job: Send {
    /// What the job is, for people.
    fn name(&self) -> &'static str;
    /// How urgent it is.
    fn priority(&self) -> Priority {
        Priority::Normal
    }
    /// Does one bounded piece of work.
    fn step(&mut self) -> Step;
}

/// Runs jobs. See the module page for the rules.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Hands a job over. It is stepped for the first time without a notification.
    fn spawn(&self, job: Box<dyn Job>);
    /// Something changed: waiting jobs and waiting callers look again.
    ///
    /// Cheap while nobody waits. A waiting job is stepped for it, so call this when something
    /// changed that a job may wait for (a memtable filled, a debt fell), not for every key written.
    fn notify(&self);
    /// Returns when `ready` says true, looking again after every notification.
    ///
    /// The seeded scheduler steps jobs in between.
    ///
    /// # Panics
    /// If a job has panicked, with its name, unless `ready` says true all the same. The seeded
    /// scheduler also if no job can make `ready` true: a deadlock.
    fn wait_until(&self, ready: &mut dyn FnMut() -> bool);
    /// Somebody begins to be in a hurry, or no longer is: while anybody is, patient steps run beside others also where
    /// that leaves the program no processor. The seeded scheduler, on which one step runs at a time, knows no hurry.
    fn hurry(&self, begins: bool);
    /// A place where the seeded scheduler may step jobs; threads do nothing here.
    fn yield_now(&self) {}
    /// In the midst of a step that computes for long: whoever else wants this processor has it now, and not at the end of the
    /// system's time slice, some milliseconds later. Not while anybody is in a hurry, nor before as much time is over as the last one took.
    /// Returns whether it did.
    fn give_way(&self) -> bool;
    /// Keeps the caller back for about `duration`; the seeded scheduler moves its clock, and may step jobs.
    fn pause(&self, duration: Duration);
    /// Time since the executor was made; never goes back.
    fn now(&self) -> Duration;
    /// Drops all jobs; returns when no step runs any more. Later jobs are dropped at once.
    fn shutdown(&self);
    /// Whether it was: nothing that is handed to it runs any more.
    fn is_stopped(&self) -> bool;
}

/// Steps a job; a panic in it comes back as the words to fail the executor with.
fn step_caught(job: &mut Box<dyn Job>) -> Result<Step, String> {
    let name = job.name();
    catch_unwind(AssertUnwindSafe(|| job.step())).map_err(|panic| words(name, panic.as_ref()))
}

/// Drops a job; a panic in its `Drop` comes back as the words to fail the executor with.
fn drop_caught(job: Box<dyn Job>) -> Result<(), String> {
    let name = job.name();
    catch_unwind(AssertUnwindSafe(|| drop(job))).map_err(|panic| words(name, panic.as_ref()))
}

fn words(job: &str, panic: &(dyn Any + Send)) -> String {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("background job `{job}` panicked: {said}")
}
