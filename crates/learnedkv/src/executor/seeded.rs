//! The executor of tests: nothing runs by itself, and one seed gives one interleaving.
//!
//! A job is stepped only where the program gives way ([`Executor::wait_until`],
//! [`Executor::yield_now`]) or a test asks ([`SeededExecutor::step_one`],
//! [`SeededExecutor::run_until_idle`]). Which runnable job steps is drawn from the seed; priorities
//! are ignored, since any order is a legal one. The clock is virtual: it moves with every step, and
//! where a caller waits and no job can step, to the time at which the first waiting job is due.
//!
//! Rules:
//! 1. Driven from one thread, a run is a function of the seed. Several threads are safe, but then
//!    the system's scheduler has its say too.
//! 2. A job is taken off the list while it is stepped, and no lock is held: a step may spawn,
//!    notify, give way (other jobs then step inside it, [`MAX_DEPTH`] deep at most) or shut down.
//! 3. Whoever gives way holds no lock that a job needs: the job would run on the same thread.
//! 4. A wait that nothing can end is a deadlock and panics, naming the jobs; so does one that
//!    [`MAX_STEPS_PER_WAIT`] steps do not end.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use super::{Executor, Job, Step, drop_caught, step_caught};

/// How deep steps nest when a step itself gives way.
pub const MAX_DEPTH: usize = 4;

/// How many steps one wait may take before it counts as endless.
pub const MAX_STEPS_PER_WAIT: u64 = 10_000_000;

/// How often the clock may be moved on to let one wait go on, before it counts as endless.
const MAX_LEAPS_PER_WAIT: u64 = 100_000;

/// At most this many steps where the program merely may be interrupted.
const MAX_STEPS_PER_YIELD: u64 = 3;

/// The most that the clock moves in one step.
const MAX_STEP_DURATION_NS: u64 = 100_000;

/// Steps jobs in an order drawn from a seed. See the module page.
pub struct SeededExecutor {
    state: Mutex<State>,
    /// For a caller whose only hope is a step on another thread.
    changed: Condvar,
}

struct State {
    random: u64,
    clock_ns: u64,
    epoch: u64,
    /// How often a step offered to give way.
    ways_offered: u64,
    tasks: Vec<Task>,
    /// The steps that run now: the thread, and the job's name.
    stepping: Vec<(ThreadId, &'static str)>,
    stopped: bool,
    failed: Option<String>,
}

struct Task {
    job: Box<dyn Job>,
    /// The epoch in which the step began that said `Wait`; `None` if the job wants to step.
    waits_since: Option<u64>,
    /// When it wants to step all the same.
    due_ns: Option<u64>,
}

impl Task {
    fn waits(&self, epoch: u64, clock_ns: u64) -> bool {
        self.waits_since == Some(epoch) && self.due_ns.is_none_or(|due| due > clock_ns)
    }
}

impl SeededExecutor {
    /// An executor whose every choice follows from `seed`.
    pub fn new(seed: u64) -> SeededExecutor {
        let state = State {
            random: seed,
            clock_ns: 0,
            epoch: 0,
            ways_offered: 0,
            tasks: Vec::new(),
            stepping: Vec::new(),
            stopped: false,
            failed: None,
        };
        SeededExecutor { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// How often steps have offered to give way ([`Executor::give_way`]).
    pub fn ways_offered(&self) -> u64 {
        self.lock().ways_offered
    }

    /// How many jobs could step now.
    pub fn runnable(&self) -> usize {
        self.lock().runnable().len()
    }

    /// Steps one randomly chosen runnable job; `false` if there is none.
    ///
    /// # Panics
    /// If the job panics, with its name; from then on no job is stepped.
    pub fn step_one(&self) -> bool {
        let thread = std::thread::current().id();
        let mut state = self.lock();
        let runnable = state.runnable();
        if runnable.is_empty() {
            return false;
        }
        let chosen = runnable[state.draw(runnable.len() as u64) as usize];
        state.clock_ns += 1 + state.draw(MAX_STEP_DURATION_NS);
        // Order of the list matters to later draws, so it must not depend on anything but them.
        let mut task = state.tasks.remove(chosen);
        let seen = state.epoch;
        state.stepping.push((thread, task.job.name()));
        drop(state);

        let outcome = step_caught(&mut task.job);

        let mut state = self.lock();
        let failure = match outcome {
            Ok(step) if step != Step::Done && !state.stopped => {
                task.waits_since = matches!(step, Step::Wait | Step::WaitUntil(_)).then_some(seen);
                task.due_ns = match step {
                    Step::WaitUntil(due) => Some(nanoseconds(due)),
                    _ => None,
                };
                state.tasks.push(task);
                None
            }
            outcome => {
                drop(state);
                let failure = outcome.err().or(drop_caught(task.job).err());
                state = self.lock();
                failure
            }
        };
        // The innermost step of this thread is the one that ends.
        if let Some(own) = state.stepping.iter().rposition(|(stepping, _)| *stepping == thread) {
            state.stepping.remove(own);
        }
        if let Some(words) = &failure {
            state.failed.get_or_insert_with(|| words.clone());
        }
        drop(state);
        self.changed.notify_all();
        if let Some(words) = failure {
            panic!("{words}");
        }
        true
    }

    /// Steps jobs until none is runnable; returns how many steps that took.
    ///
    /// # Panics
    /// If that takes more than [`MAX_STEPS_PER_WAIT`] steps, or a job panics.
    pub fn run_until_idle(&self) -> u64 {
        let mut steps = 0;
        while self.step_one() {
            steps += 1;
            assert!(steps < MAX_STEPS_PER_WAIT, "jobs never come to rest: {}", self.describe());
        }
        steps
    }

    /// Moves the clock on by `duration`, as if nothing had happened meanwhile, and notifies.
    pub fn advance(&self, duration: Duration) {
        self.lock().clock_ns += nanoseconds(duration);
        self.notify();
    }

    /// When the first of the jobs that wait is due by itself; `None`: they all wait for a notification.
    pub fn next_due(&self) -> Option<Duration> {
        let state = self.lock();
        let waiting = state.tasks.iter().filter(|task| task.waits_since.is_some());
        waiting.filter_map(|task| task.due_ns).min().map(Duration::from_nanos)
    }

    /// The jobs there are and what they are at, for people.
    pub fn describe(&self) -> String {
        self.lock().describe()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is runnable and the caller needs something: waits for a step on another thread, moves
    /// the clock on to when a job is due, or finds that there is neither. `seen` is the epoch in which
    /// the caller last looked. Returns whether the clock was moved.
    fn wait_for_others(&self, seen: u64) -> bool {
        let thread = std::thread::current().id();
        let mut state = self.lock();
        // Something may have changed between the caller's look and now.
        if state.epoch != seen || !state.runnable().is_empty() {
            return false;
        }
        if let Some(words) = state.failed.clone() {
            drop(state);
            panic!("{words}");
        }
        if state.stepping.iter().all(|(stepping, _)| *stepping == thread) {
            if let Some(due) = state.tasks.iter().filter_map(|task| task.due_ns).min() {
                state.clock_ns = state.clock_ns.max(due);
                return true;
            }
            let jobs = state.describe();
            drop(state);
            panic!("deadlock: no job can make true what is waited for; {jobs}");
        }
        drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
        false
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

impl Executor for SeededExecutor {
    fn spawn(&self, job: Box<dyn Job>) {
        let mut state = self.lock();
        if state.stopped {
            drop(state);
            drop(job);
        } else {
            state.tasks.push(Task { job, waits_since: None, due_ns: None });
        }
    }

    fn notify(&self) {
        self.lock().epoch += 1;
        self.changed.notify_all();
    }

    fn hurry(&self, _begins: bool) {}

    fn wait_until(&self, ready: &mut dyn FnMut() -> bool) {
        let (mut steps, mut leaps) = (0, 0);
        loop {
            let seen = self.lock().epoch;
            if ready() {
                return;
            }
            if !self.step_one() {
                leaps += u64::from(self.wait_for_others(seen));
            }
            steps += 1;
            let is_endless = steps >= MAX_STEPS_PER_WAIT || leaps >= MAX_LEAPS_PER_WAIT;
            assert!(!is_endless, "an endless wait: {}", self.describe());
        }
    }

    fn yield_now(&self) {
        let thread = std::thread::current().id();
        let steps = {
            let mut state = self.lock();
            let depth = state.stepping.iter().filter(|(stepping, _)| *stepping == thread).count();
            if depth >= MAX_DEPTH { 0 } else { state.draw(MAX_STEPS_PER_YIELD + 1) }
        };
        for _ in 0..steps {
            if !self.step_one() {
                break;
            }
        }
    }

    /// One step runs at a time: there is nobody to give way to.
    fn give_way(&self) -> bool {
        self.lock().ways_offered += 1;
        false
    }

    fn pause(&self, duration: Duration) {
        self.lock().clock_ns += u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
        self.yield_now();
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.lock().clock_ns)
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// As the trait says. Called from inside a step, it does not wait for the steps it is inside of.
    fn shutdown(&self) {
        let thread = std::thread::current().id();
        let mut state = self.lock();
        state.stopped = true;
        state.epoch += 1;
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        self.changed.notify_all();
        drop(tasks);
        let mut state = self.lock();
        while state.stepping.iter().any(|(stepping, _)| *stepping != thread) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl fmt::Debug for SeededExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeededExecutor").field("jobs", &self.describe()).finish_non_exhaustive()
    }
}

impl State {
    /// The places of the jobs that could step now; none once a job has failed.
    fn runnable(&self) -> Vec<usize> {
        if self.failed.is_some() {
            return Vec::new();
        }
        let waits = |task: &Task| task.waits(self.epoch, self.clock_ns);
        (0..self.tasks.len()).filter(|&place| !waits(&self.tasks[place])).collect()
    }

    /// A number below `limit`, from the seed (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
    fn draw(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The upper half of the product: no modulo, and as even as these tests need.
        ((u128::from(mixed) * u128::from(limit)) >> 64) as u64
    }

    fn describe(&self) -> String {
        let names = |wanted: bool| -> Vec<&str> {
            self.tasks
                .iter()
                .filter(|task| task.waits(self.epoch, self.clock_ns) == wanted)
                .map(|task| task.job.name())
                .collect()
        };
        let stepping: Vec<_> = self.stepping.iter().map(|(_, name)| *name).collect();
        let (runnable, waiting) = (names(false), names(true));
        format!("runnable {runnable:?}, waiting {waiting:?}, stepping {stepping:?}")
    }
}
