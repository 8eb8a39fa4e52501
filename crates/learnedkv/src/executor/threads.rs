//! The executor of production: named threads of the operating system.
//!
//! **Threads.** One thread serves only [`Priority::Urgent`] jobs, so that a flush never queues
//! behind a compaction. The others serve the rest, each in turn; and in between urgent jobs that the first
//! thread cannot come to. While it is idle they leave urgent jobs to it: one that always has more to do
//! would else take a thread from all the rest, for as long as it has. A job's step, its `Drop` and
//! a caller's `ready` run with no lock held, so all of them may call back.
//!
//! **Processors.** Whoever embeds a store has threads of its own, and where ours are as many as there are processors
//! the system takes turns of some milliseconds, so that a reader stands still for as long. So a patient step
//! ([`Step::Patiently`]) begins only where, with the patient ones that run and those of urgent jobs that have more to do,
//! a processor is left over (on one processor: where none of them runs); or where 64 such urgent steps
//! were begun before it, and no other patient one runs. While somebody is in a hurry ([`Executor::hurry`]) they run on all threads.
//!
//! **Rest.** What settles takes about half of a processor that is left over where the program is at work beside it: a step that says so
//! ([`Step::Leisurely`]) counts as running for as long again as it took by the clock, 20 ms at most. So no thread sleeps for it, and what is not patient goes
//! on; where there are processors enough, so does its own job. A hurry ends all rests.
//!
//! **Giving way.** A client that slept wakes up on a processor of ours, and is not let in before the system's time slice ends, 1 to 4 ms
//! later ([decision 74]). So long steps give way between small pieces ([`Executor::give_way`]). What others make of that is worked off before the
//! next time, and is no time that a step rests for: beside programs that always compute a step has about what it would have without.
//!
//! [decision 74]: ../../../../../docs/decisions/0074-long-steps-give-way.md
//!
//! **Time.** A waiting job may have a time at which it is due. Idle threads sleep no longer than until
//! the first such time of the jobs they serve; a thread that goes off to work wakes another idle
//! one, which then minds the time in its place. If none is idle, each looks when its step ends.
//!
//! **Failure.** A job that panics has broken an invariant of ours: no further step begins, and
//! [`ThreadExecutor::wait_until`] panics with the job's name unless what it waits for has happened
//! already. Whoever cleans up after that calls [`ThreadExecutor::shutdown`], which never panics
//! for it.
//!
//! # Why no notification is lost, though most of them take no lock
//! `epoch` (under the lock) counts notifications that were acted upon. `attention` says that
//! somebody has looked, or is about to look, since the last of them. A looker is a job's step or a
//! caller's `ready`; a change is whatever a notifier wrote before it called `notify`.
//!
//! ```text
//! looker, under the lock          notifier
//!   L1  seen = epoch                N1  (makes the change)
//!   L2  attention = true            N2  fence
//!   L3  fence                       N3  attention is false? return
//! looker, without the lock          N4  swap attention to false; was it false? return
//!   L4  looks                       N5  under the lock: epoch += 1, wake everybody
//! looker, under the lock
//!   L5  sleeps only if epoch == seen
//! ```
//!
//! Claim: if L4 misses the change, then L5 or the sleep after it sees a larger epoch. Both fences
//! are sequentially consistent, so one comes first. Were N2 first, L4 would see the change;
//! therefore L3 is first, and N3 and N4 read L2's `true` or something newer.
//! * N4 reads `true`: this notifier reaches N5.
//! * N3 or N4 reads `false`: some notifier's N4 swapped it away after L2. That notifier goes on to
//!   N5, and its N5 comes after L2's critical section (were it before, its N4 would have happened
//!   before L2, not after).
//!
//! Either way an epoch is added after L1. When the looker looks again it goes through L1 to L4
//! anew, so the same holds of its newest look.
//!
//! **Price.** With nobody looking, or once somebody has been told, `notify` is a fence and a load.
//! A waiting job counts as somebody: the first notification after each step wakes it. So notify
//! when a state changed that a job or a caller waits for, not after every key written.

pub(super) mod queues;

use std::cell::Cell;
use std::fmt;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::queues::{Lane, Next, State, Task};
use super::{Executor, Job, Priority, Step, drop_caught, step_caught};
use crate::error::{Error, Result};

/// No step's place stays empty for longer, however long it took.
const LONGEST_REST: Duration = Duration::from_millis(20);

/// Runs jobs on threads of its own. See the module page.
///
/// Dropping it shuts it down.
pub struct ThreadExecutor {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    started: Instant,
    /// Whether the next notification has somebody to tell. See the proof above.
    attention: AtomicBool,
    /// Whether anybody is in a hurry.
    in_hurry: AtomicBool,
    state: Mutex<State>,
    /// Idle threads that serve every job wait here.
    any_work: Condvar,
    /// The idle thread that serves urgent jobs alone waits here.
    urgent_work: Condvar,
    /// Callers wait here: for an epoch, for a failure, for the last step before a shutdown.
    changed: Condvar,
}

thread_local! {
    /// The executor this thread works for, as the address of its `Shared`; 0 for other threads.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
    /// Whether the step that runs on this thread has called `shutdown` of its own executor.
    static STOPPING: Cell<bool> = const { Cell::new(false) };
    /// This thread gives way no sooner ([`Executor::give_way`]), by its executor's clock.
    pub(super) static GIVES_WAY_FROM: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// What the step that runs on this thread left to others when it gave way.
    static LEFT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// More than any machine has use for.
const MOST_THREADS: usize = 1024;

impl ThreadExecutor {
    /// Starts an executor with `threads` threads (at least 2: one is kept for urgent jobs), for as many processors as
    /// the system gives the process.
    ///
    /// # Errors
    /// `InvalidArgument` for more than 1,024; `Io` if the operating system gives no more threads.
    pub fn new(threads: usize) -> Result<ThreadExecutor> {
        ThreadExecutor::and_more(threads, 0)
    }

    /// As [`ThreadExecutor::new`], with so many more that nobody asked for.
    ///
    /// # Errors
    /// As [`ThreadExecutor::new`].
    pub(crate) fn and_more(threads: usize, more: usize) -> Result<ThreadExecutor> {
        // Where a process may have no more, the system may end it in the midst of starting one.
        if threads > MOST_THREADS {
            let message =
                format!("background_threads: expected 2 to {MOST_THREADS}, found {threads}");
            return Err(Error::invalid(message));
        }
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        ThreadExecutor::on_processors(processors, threads.max(2) + more)
    }

    /// As [`ThreadExecutor::new`], for so many processors.
    ///
    /// # Errors
    /// `Io` if the operating system gives no more threads.
    pub fn on_processors(processors: usize, threads: usize) -> Result<ThreadExecutor> {
        let shared = Arc::new(Shared {
            started: Instant::now(),
            attention: AtomicBool::new(false),
            in_hurry: AtomicBool::new(false),
            state: Mutex::new(State::on_processors(processors)),
            any_work: Condvar::new(),
            urgent_work: Condvar::new(),
            changed: Condvar::new(),
        });
        // Made first, so that the threads already started are stopped if a later one cannot be.
        let executor = ThreadExecutor { shared, threads: Mutex::default() };
        for number in 0..threads.max(2) {
            let (lane, name) = match number {
                0 => (Lane::Urgent, "learnedkv-urgent".to_string()),
                _ => (Lane::Any, format!("learnedkv-{number}")),
            };
            let shared = Arc::clone(&executor.shared);
            let handle = std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || shared.work(lane))
                .map_err(|e| Error::io_of(&format!("start the background thread {name}"), &e))?;
            lock(&executor.threads).push(handle);
        }
        Ok(executor)
    }

    #[cfg(test)]
    pub(super) fn thread_count(&self) -> usize {
        lock(&self.threads).len()
    }

    /// What a job that panicked said, with the job's name; `None` while all is well.
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().failed.clone()
    }
}

impl Executor for ThreadExecutor {
    fn spawn(&self, job: Box<dyn Job>) {
        let task = Task { priority: job.priority(), job, next: Next::Look, due: None };
        let mut state = self.shared.lock();
        if state.stopped {
            drop(state);
            drop(task);
        } else {
            self.shared.enqueue(&mut state, task);
        }
    }

    fn notify(&self) {
        self.shared.notify();
    }

    fn wait_until(&self, ready: &mut dyn FnMut() -> bool) {
        if ready() {
            return;
        }
        loop {
            let seen = {
                let state = self.shared.lock();
                self.shared.arm();
                state.epoch
            };
            if ready() {
                return;
            }
            let mut state = self.shared.lock();
            while state.epoch == seen && state.failed.is_none() {
                state = wait(&self.shared.changed, state);
            }
            if let Some(failure) = state.failed.clone() {
                drop(state);
                if ready() {
                    return;
                }
                panic!("{failure}");
            }
        }
    }

    fn hurry(&self, begins: bool) {
        let mut state = self.shared.lock();
        state.hurried += if begins { 1 } else { -1 };
        self.shared.in_hurry.store(state.hurried > 0, Ordering::Relaxed);
        if state.hurried > 0 {
            state.end_rests(Duration::MAX);
            if !state.normal.is_empty() {
                self.shared.any_work.notify_all();
            }
        }
    }

    fn give_way(&self) -> bool {
        let before = self.shared.elapsed();
        if self.shared.in_hurry.load(Ordering::Relaxed) || before < GIVES_WAY_FROM.get() {
            return false;
        }
        std::thread::yield_now();
        let after = self.shared.elapsed();
        let left = after.saturating_sub(before);
        GIVES_WAY_FROM.set(after + left);
        LEFT.set(LEFT.get() + left);
        true
    }

    fn pause(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn now(&self) -> Duration {
        self.shared.elapsed()
    }

    fn is_stopped(&self) -> bool {
        self.shared.lock().stopped
    }

    /// As the trait says. Called from inside a job's step or drop, it returns when no *other* step
    /// runs any more; the step that calls it is the last, and its thread ends after it.
    fn shutdown(&self) {
        let own_step = WORKS_FOR.get() == self.shared.id();
        self.shared.stop(own_step);
        if !own_step {
            // A thread of ours cannot join itself, nor two of ours each other; they end by
            // themselves. A second caller finds nothing to join, and no step runs.
            let threads = std::mem::take(&mut *lock(&self.threads));
            for thread in threads {
                // A worker catches every panic of a job; its own would be reported by its thread.
                let _ended = thread.join();
            }
        }
    }
}

impl Drop for ThreadExecutor {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for ThreadExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("ThreadExecutor")
            .field("runnable", &(state.urgent.len() + state.normal.len()))
            .field("waiting", &state.waiting.len())
            .field("running", &state.running)
            .field("stopped", &state.stopped)
            .field("failed", &state.failed)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// L2 and L3 of the proof; the caller holds the lock.
    fn arm(&self) {
        self.attention.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn notify(&self) {
        fence(Ordering::SeqCst);
        if !self.attention.load(Ordering::Relaxed) || !self.attention.swap(false, Ordering::SeqCst)
        {
            return;
        }
        let mut state = self.lock();
        state.epoch += 1;
        for task in std::mem::take(&mut state.waiting) {
            self.enqueue(&mut state, task);
        }
        self.changed.notify_all();
    }

    /// Makes a job runnable and wakes a thread for it.
    fn enqueue(&self, state: &mut State, task: Task) {
        if task.priority == Priority::Urgent {
            self.urgent_work.notify_one();
        }
        self.any_work.notify_one();
        state.push(task);
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Makes the jobs runnable whose time has come; when the next of the others is due. Of those that
    /// `lane` serves.
    fn enqueue_due(&self, state: &mut State, lane: Lane) -> Option<Duration> {
        if state.waiting.iter().all(|task| task.due.is_none()) {
            return None;
        }
        let now = self.elapsed();
        let is_due =
            |task: &mut Task| task.is_served_by(lane) && task.due.is_some_and(|due| due <= now);
        let due: Vec<_> = state.waiting.extract_if(.., is_due).collect();
        due.into_iter().for_each(|task| self.enqueue(state, task));
        let others = state.waiting.iter().filter(|task| task.is_served_by(lane));
        others.filter_map(|task| task.due).min()
    }

    /// The life of one thread.
    fn work(self: Arc<Self>, lane: Lane) {
        WORKS_FOR.set(self.id());
        // What steps are to work off still before they give way: between them nothing is.
        let mut owed = Duration::ZERO;
        let mut state = self.lock();
        while !state.stopped {
            let next_due = self.enqueue_due(&mut state, lane);
            if state.is_resting() {
                state.end_rests(self.elapsed());
            }
            let next = state.pop(lane);
            // What is left may wait for another's rest. Those threads mind it that may begin it.
            let rest = if lane == Lane::Any { state.next_rest() } else { None };
            let next_due = next_due.into_iter().chain(rest).min();
            if state.may_begin_patiently() {
                // There is room for one more, or it is its turn.
                self.any_work.notify_one();
            }
            let Some(task) = next else {
                let idle = if lane == Lane::Urgent { &self.urgent_work } else { &self.any_work };
                state = match next_due {
                    Some(due) => wait_at_most(idle, state, due.saturating_sub(self.elapsed())),
                    None => wait(idle, state),
                };
                continue;
            };
            if next_due.is_some() {
                // Somebody else minds the time meanwhile.
                self.any_work.notify_one();
            }
            let (computes, is_patient) = (task.computes(), task.is_patient());
            let may_rest = is_patient && task.priority == Priority::Normal;
            state.urgent_is_busy |= lane == Lane::Urgent;
            if state.urgent_is_busy && !state.urgent.is_empty() {
                // Another one may help.
                self.any_work.notify_one();
            }
            let seen = state.epoch;
            self.arm();
            let gives_way = is_patient && state.hurried <= 0;
            drop(state);
            if gives_way {
                // Also in the midst of its work: whoever shares the processor with it goes first.
                std::thread::yield_now();
            }
            let begun = self.elapsed();
            GIVES_WAY_FROM.set(begun + owed);
            let is_leisurely = self.run(task, seen, lane);
            let now = self.elapsed();
            owed = GIVES_WAY_FROM.get().saturating_sub(now);
            let rest = rest_after(now.saturating_sub(begun), LEFT.take());
            state = self.lock();
            state.running -= 1;
            if computes {
                let rests = may_rest && is_leisurely;
                state.end_computing(is_patient, rests.then(|| now + rest));
            }
            state.stopping_steps -= usize::from(STOPPING.take());
            if state.stopped {
                self.changed.notify_all();
            }
        }
    }

    /// One step of a job, and where the job goes after it; whether it went at its leisure. `seen` is the epoch the step
    /// began in.
    fn run(&self, mut task: Task, seen: u64, lane: Lane) -> bool {
        let outcome = step_caught(&mut task.job);
        let mut state = self.lock();
        if lane == Lane::Urgent {
            state.urgent_is_busy = false;
        }
        task.next = match outcome {
            Ok(Step::Again) => Next::GoOn,
            Ok(Step::Patiently | Step::Leisurely) => Next::GoOnPatiently,
            _ => Next::Look,
        };
        task.due = match outcome {
            Ok(Step::WaitUntil(due)) => Some(due),
            _ => None,
        };
        let failure = match outcome {
            Ok(Step::Wait | Step::WaitUntil(_)) if !state.stopped && state.epoch == seen => {
                state.waiting.push(task);
                return false;
            }
            // Notified while it ran, or not finished. This thread looks for work next, so no other
            // need be woken, but for the one that urgent jobs are left to.
            Ok(step) if step != Step::Done && !state.stopped => {
                if task.priority == Priority::Urgent && !state.urgent_is_busy {
                    self.urgent_work.notify_one();
                }
                state.push(task);
                return step == Step::Leisurely;
            }
            Ok(_) => None,
            Err(words) => Some(words),
        };
        drop(state);
        let failure = failure.or(drop_caught(task.job).err());
        if let Some(words) = failure {
            self.lock().failed.get_or_insert(words);
            self.changed.notify_all();
        }
        false
    }

    /// Stops the threads, drops the jobs and waits for the steps that still run.
    fn stop(&self, own_step: bool) {
        let mut state = self.lock();
        state.stopped = true;
        // Callers look again: what they wait for will not come from a job.
        state.epoch += 1;
        let tasks = state.drain();
        self.any_work.notify_all();
        self.urgent_work.notify_all();
        // Counted until the step ends, however often it calls.
        state.stopping_steps += usize::from(own_step && !STOPPING.replace(true));
        self.changed.notify_all();
        drop(state);
        drop(tasks);
        let mut state = self.lock();
        // Steps that are in here themselves do not wait for each other: none would end.
        while state.running > if own_step { state.stopping_steps } else { 0 } {
            state = wait(&self.changed, state);
        }
    }
}

/// How long the place of a step stays empty that took so long, and `left` so much of that to others.
pub(super) fn rest_after(took: Duration, left: Duration) -> Duration {
    took.saturating_sub(left).min(LONGEST_REST)
}

/// No code of others runs under these locks, so a poisoned one is still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_at_most<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner).0
}

fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
