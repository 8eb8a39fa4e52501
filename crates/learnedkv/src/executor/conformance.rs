//! What every executor keeps, checked on both; then what each adds.
//!
//! Scripted jobs only; whatever is awaited is awaited through [`Executor::wait_until`], so that the
//! same text runs on threads and on a seed.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::{Executor, Job, Priority, SeededExecutor, Step, ThreadExecutor};

/// A job made of a closure; counts its drops.
pub(super) struct Act<F> {
    pub(super) act: F,
    pub(super) priority: Priority,
    pub(super) dropped: Arc<AtomicUsize>,
}

impl<F: FnMut() -> Step + Send> Job for Act<F> {
    fn name(&self) -> &'static str {
        "act"
    }
    fn priority(&self) -> Priority {
        self.priority
    }
    fn step(&mut self) -> Step {
        (self.act)()
    }
}

impl<F> Drop for Act<F> {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, SeqCst);
    }
}

pub(super) fn job(act: impl FnMut() -> Step + Send + 'static) -> Box<dyn Job> {
    counted(&Arc::default(), act)
}

fn counted(dropped: &Arc<AtomicUsize>, act: impl FnMut() -> Step + Send + 'static) -> Box<dyn Job> {
    Box::new(Act { act, priority: Priority::Normal, dropped: Arc::clone(dropped) })
}

pub(super) fn wait_for(executor: &dyn Executor, counter: &AtomicUsize, at_least: usize) {
    executor.wait_until(&mut || counter.load(SeqCst) >= at_least);
}

type Shared = Arc<dyn Executor>;

/// A job follows its script: `Again`, `Patiently` and `Leisurely` by itself, `Wait` after a notification, `Done` never again.
fn follows_the_script(executor: Shared) {
    let (steps, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let mut script = VecDeque::from([Step::Again, Step::Patiently, Step::Wait, Step::Leisurely]);
    let (count, caller) = (Arc::clone(&steps), Arc::downgrade(&executor));
    executor.spawn(counted(&dropped, move || {
        count.fetch_add(1, SeqCst);
        if let Some(executor) = caller.upgrade() {
            // Tells the waiting caller, and, in the step that says `Wait`, itself.
            executor.notify();
        }
        script.pop_front().unwrap_or(Step::Done)
    }));
    wait_for(&*executor, &steps, 5);
    executor.shutdown();
    assert_eq!((steps.load(SeqCst), dropped.load(SeqCst)), (5, 1));
}

/// Each change made before a notification is seen by a job that waits, and no job is stepped twice
/// at once.
fn wakes_for_every_change(executor: Shared) {
    const CHANGES: usize = 300;
    let (given, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let overlaps = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let (given, taken) = (Arc::clone(&given), Arc::clone(&taken));
        let (inside, overlaps) = (AtomicBool::new(false), Arc::clone(&overlaps));
        let (caller, mut own) = (Arc::downgrade(&executor), 0);
        executor.spawn(job(move || {
            overlaps.fetch_add(usize::from(inside.swap(true, SeqCst)), SeqCst);
            let news = given.load(SeqCst) - own;
            own += news;
            taken.fetch_add(news, SeqCst);
            inside.store(false, SeqCst);
            if let (1.., Some(executor)) = (news, caller.upgrade()) {
                executor.notify();
            }
            Step::Wait
        }));
    }
    for change in 1..=CHANGES {
        given.store(change, SeqCst);
        executor.notify();
        wait_for(&*executor, &taken, 3 * change);
    }
    assert_eq!((taken.load(SeqCst), overlaps.load(SeqCst)), (3 * CHANGES, 0));
    executor.shutdown();
}

/// A step may spawn; jobs of both priorities run.
fn spawns_from_a_step(executor: Shared) {
    let done = Arc::new(AtomicUsize::new(0));
    for priority in [Priority::Urgent, Priority::Normal] {
        let (done, caller) = (Arc::clone(&done), Arc::downgrade(&executor));
        let act = move || {
            let Some(executor) = caller.upgrade() else { return Step::Done };
            let (done, inner) = (Arc::clone(&done), Arc::downgrade(&executor));
            executor.spawn(job(move || {
                done.fetch_add(1, SeqCst);
                inner.upgrade().inspect(|executor| executor.notify());
                Step::Done
            }));
            Step::Done
        };
        executor.spawn(Box::new(Act { act, priority, dropped: Arc::default() }));
    }
    wait_for(&*executor, &done, 2);
}

/// Shutdown drops what waits and what comes later, and is safe to repeat.
fn shutdown_drops_jobs(executor: Shared) {
    let dropped = Arc::new(AtomicUsize::new(0));
    executor.spawn(counted(&dropped, || Step::Wait));
    executor.spawn(counted(&dropped, || Step::Again));
    executor.yield_now();
    executor.shutdown();
    assert_eq!(dropped.load(SeqCst), 2);
    let stepped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&stepped);
    executor.spawn(counted(&dropped, move || {
        count.fetch_add(1, SeqCst);
        Step::Done
    }));
    assert_eq!((dropped.load(SeqCst), stepped.load(SeqCst)), (3, 0));
    executor.notify();
    executor.shutdown();
    executor.wait_until(&mut || true);
}

/// A step may shut its own executor down, and two may at once.
fn shutdown_from_a_step(executor: Shared) {
    let (ended, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    for _ in 0..2 {
        let (ended, caller) = (Arc::clone(&ended), Arc::downgrade(&executor));
        executor.spawn(counted(&dropped, move || {
            let executor = caller.upgrade();
            executor.iter().for_each(|executor| executor.shutdown());
            ended.fetch_add(1, SeqCst);
            executor.iter().for_each(|executor| executor.notify());
            Step::Again
        }));
    }
    wait_for(&*executor, &ended, 1);
    executor.shutdown();
    assert_eq!(dropped.load(SeqCst), 2);
}

/// A job may hold the last handle to whatever owns the executor.
fn owner_dies_in_a_job(executor: Shared) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let owner: Arc<OnceLock<Shared>> = Arc::default();
    let (held, may_go) = (Arc::clone(&owner), Arc::new(AtomicBool::new(false)));
    let go = Arc::clone(&may_go);
    executor.spawn(counted(&dropped, move || {
        if held.get().is_some() && go.load(SeqCst) { Step::Done } else { Step::Wait }
    }));
    assert!(owner.set(Arc::clone(&executor)).is_ok());
    drop(owner);
    may_go.store(true, SeqCst);
    executor.notify();
    let left = Arc::downgrade(&executor);
    executor.wait_until(&mut || {
        // The drop notifies nobody, so the caller asks for looks itself.
        executor.notify();
        dropped.load(SeqCst) == 1
    });
    drop(executor);
    // A job's drop is counted before the handle in it goes.
    while left.upgrade().is_some() {
        std::thread::yield_now();
    }
}

/// A job that panics is named to everybody who waits; shutting down still works.
fn panics_reach_the_waiter(executor: Shared) {
    let dropped = Arc::new(AtomicUsize::new(0));
    executor.spawn(counted(&dropped, || panic!("the invariant {} broke", 7)));
    for _ in 0..2 {
        let caught =
            catch_unwind(AssertUnwindSafe(|| executor.wait_until(&mut || false))).unwrap_err();
        let words = caught.downcast_ref::<String>().unwrap();
        assert_eq!(words, "background job `act` panicked: the invariant 7 broke");
    }
    executor.wait_until(&mut || true);
    executor.shutdown();
    assert_eq!(dropped.load(SeqCst), 1);
}

fn clock_never_goes_back(executor: Shared) {
    let steps = Arc::new(AtomicUsize::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (count, caller, times) = (Arc::clone(&steps), Arc::downgrade(&executor), Arc::clone(&seen));
    executor.spawn(job(move || {
        let Some(executor) = caller.upgrade() else { return Step::Done };
        times.lock().unwrap().push(executor.now());
        count.fetch_add(1, SeqCst);
        executor.notify();
        Step::Again
    }));
    wait_for(&*executor, &steps, 50);
    executor.shutdown();
    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen.first() < seen.last());
}

/// A job is stepped when its time has come, not before, though nobody notifies.
fn steps_when_a_time_has_come(executor: Shared) {
    const PAUSE: Duration = Duration::from_millis(2);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(AtomicUsize::new(0));
    for priority in [Priority::Urgent, Priority::Normal] {
        let (caller, times, done) =
            (Arc::downgrade(&executor), Arc::clone(&seen), Arc::clone(&done));
        let (mut due, mut left) = (Duration::ZERO, 4);
        let act = move || {
            let Some(executor) = caller.upgrade() else { return Step::Done };
            let now = executor.now();
            times.lock().unwrap().push((due, now));
            left -= 1;
            if left == 0 {
                done.fetch_add(1, SeqCst);
                executor.notify();
                return Step::Done;
            }
            due = now + PAUSE;
            Step::WaitUntil(due)
        };
        executor.spawn(Box::new(Act { act, priority, dropped: Arc::default() }));
    }
    // Waits for ever, beside them.
    executor.spawn(job(|| Step::Wait));
    wait_for(&*executor, &done, 2);
    executor.shutdown();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 8);
    // The end of one may have woken the other, once.
    let early = seen.iter().filter(|(due, now)| now < due).count();
    assert!(early <= 1, "{seen:?}");
}

/// A notification comes before the time has.
fn a_notification_comes_before_the_time(executor: Shared) {
    let steps = Arc::new(AtomicUsize::new(0));
    let (count, caller) = (Arc::clone(&steps), Arc::downgrade(&executor));
    executor.spawn(job(move || {
        count.fetch_add(1, SeqCst);
        let Some(executor) = caller.upgrade() else { return Step::Done };
        Step::WaitUntil(executor.now() + Duration::from_secs(3600))
    }));
    executor.wait_until(&mut || {
        executor.notify();
        std::thread::yield_now();
        steps.load(SeqCst) >= 3
    });
    assert!(executor.now() < Duration::from_secs(3600));
    executor.shutdown();
}

fn battery(make: impl Fn() -> Shared) {
    for check in [
        follows_the_script,
        wakes_for_every_change,
        pauses,
        spawns_from_a_step,
        shutdown_drops_jobs,
        shutdown_from_a_step,
        owner_dies_in_a_job,
        panics_reach_the_waiter,
        clock_never_goes_back,
        steps_when_a_time_has_come,
        a_notification_comes_before_the_time,
    ] {
        check(make());
    }
}

#[test]
fn threads_conform() {
    for threads in [0, 2, 5] {
        battery(|| Arc::new(ThreadExecutor::new(threads).unwrap()));
    }
}

#[test]
fn seeded_conforms() {
    for seed in 0..50 {
        battery(|| Arc::new(SeededExecutor::new(seed)));
    }
}

/// Two callers hand a turn back and forth: each waits for the other's change, so one lost
/// notification hangs the test. Jobs wait and wake alongside.
#[test]
fn threads_lose_no_notification() {
    const TURNS: usize = 20_000;
    let executor = ThreadExecutor::new(2).unwrap();
    let (turn, echoed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (watched, echo) = (Arc::clone(&turn), Arc::clone(&echoed));
    executor.spawn(job(move || {
        echo.store(watched.load(SeqCst), SeqCst);
        Step::Wait
    }));
    std::thread::scope(|scope| {
        for parity in 0..2 {
            let (executor, turn) = (&executor, &turn);
            scope.spawn(move || {
                while turn.load(SeqCst) < TURNS {
                    executor.wait_until(&mut || turn.load(SeqCst) % 2 == parity);
                    turn.fetch_add(1, SeqCst);
                    executor.notify();
                }
            });
        }
    });
    // The job's last look came after the last change; nothing notifies for it, so look again.
    let last = turn.load(SeqCst);
    executor.wait_until(&mut || {
        std::thread::yield_now();
        echoed.load(SeqCst) == last || {
            executor.notify();
            false
        }
    });
}

/// A flush that always had more to do kept the only other thread for itself, while the urgent one slept: for
/// many seconds nothing was settled, and nobody was slowed for it.
#[test]
fn urgent_jobs_take_no_thread_from_others_while_theirs_is_idle() {
    const STEPS: usize = 500;
    let executor = ThreadExecutor::new(2).unwrap();
    let (elsewhere, steps) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (wrong, counted) = (Arc::clone(&elsewhere), Arc::clone(&steps));
    let act = move || {
        let name = std::thread::current().name().map(str::to_string);
        wrong.fetch_add(usize::from(name.as_deref() != Some("learnedkv-urgent")), SeqCst);
        counted.fetch_add(1, SeqCst);
        Step::Wait
    };
    executor.spawn(Box::new(Act { act, priority: Priority::Urgent, dropped: Arc::default() }));
    while steps.load(SeqCst) < STEPS {
        executor.notify();
        std::thread::yield_now();
    }
    assert_eq!(elsewhere.load(SeqCst), 0, "steps of an urgent job beside its own thread");
}

/// The urgent thread is there for urgent jobs while the other one is stuck in a step.
#[test]
fn an_urgent_job_never_queues_behind_others() {
    let executor = Arc::new(ThreadExecutor::new(2).unwrap());
    let released = Arc::new(AtomicBool::new(false));
    let (gate, caller) = (Arc::clone(&released), Arc::downgrade(&executor));
    executor.spawn(job(move || {
        if let Some(executor) = caller.upgrade() {
            executor.wait_until(&mut || gate.load(SeqCst));
        }
        Step::Done
    }));
    let (gate, caller) = (Arc::clone(&released), Arc::downgrade(&executor));
    let act = move || {
        gate.store(true, SeqCst);
        caller.upgrade().inspect(|executor| executor.notify());
        Step::Done
    };
    executor.spawn(Box::new(Act { act, priority: Priority::Urgent, dropped: Arc::default() }));
    executor.wait_until(&mut || released.load(SeqCst));
}

/// A pause takes its time, and no job need end it.
fn pauses(executor: Shared) {
    let before = executor.now();
    executor.pause(Duration::from_millis(3));
    assert!(executor.now() - before >= Duration::from_millis(3));
}

/// One seed, one run; and seeds differ.
#[test]
fn a_seed_decides_everything() {
    let run = |seed| {
        let executor = SeededExecutor::new(seed);
        let trace = Arc::new(Mutex::new(Vec::new()));
        for id in 0..4 {
            let (trace, mut left) = (Arc::clone(&trace), 10);
            executor.spawn(job(move || {
                trace.lock().unwrap().push(id);
                left -= 1;
                if left == 0 { Step::Done } else { Step::Again }
            }));
        }
        assert_eq!(executor.runnable(), 4);
        executor.yield_now();
        executor.run_until_idle();
        assert_eq!(executor.runnable(), 0);
        let trace = trace.lock().unwrap().clone();
        assert_eq!(trace.len(), 40);
        (trace, executor.now())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
#[should_panic(expected = "deadlock: no job can make true what is waited for; runnable [], \
                           waiting [\"act\"], stepping []")]
fn seeded_finds_a_deadlock() {
    let executor = SeededExecutor::new(0);
    executor.spawn(job(|| Step::Wait));
    executor.wait_until(&mut || false);
}

/// The thread that minds the time goes off to a long step: another takes over.
#[test]
fn time_is_minded_while_a_thread_works() {
    let executor = Arc::new(ThreadExecutor::new(3).unwrap());
    let (ticks, released) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, caller) = (Arc::clone(&ticks), Arc::downgrade(&executor));
    executor.spawn(job(move || {
        let Some(executor) = caller.upgrade() else { return Step::Done };
        count.fetch_add(1, SeqCst);
        Step::WaitUntil(executor.now() + Duration::from_millis(1))
    }));
    for _ in 0..20 {
        // A step that ends only when the other job was stepped twice more.
        let (ticks, ended) = (Arc::clone(&ticks), Arc::clone(&released));
        let caller = Arc::downgrade(&executor);
        executor.spawn(job(move || {
            let wanted = ticks.load(SeqCst) + 2;
            while ticks.load(SeqCst) < wanted {
                std::thread::sleep(Duration::from_micros(100));
            }
            ended.store(true, SeqCst);
            caller.upgrade().inspect(|executor| executor.notify());
            Step::Done
        }));
        executor.wait_until(&mut || released.swap(false, SeqCst));
    }
    executor.shutdown();
}

/// Idle jobs do not move the clock; a time that comes makes them runnable.
#[test]
fn seeded_time_comes_when_it_is_advanced() {
    let executor = SeededExecutor::new(1);
    let (mut first, due) = (true, Duration::from_secs(1));
    executor.spawn(job(move || match std::mem::replace(&mut first, false) {
        true => Step::WaitUntil(due),
        false => Step::Done,
    }));
    assert_eq!(executor.run_until_idle(), 1);
    assert!(executor.now() < due);
    executor.advance(due);
    assert_eq!(executor.run_until_idle(), 1);
}

/// Steps nest where a step gives way, but not without end.
#[test]
fn seeded_steps_nest_within_bounds() {
    let executor = Arc::new(SeededExecutor::new(3));
    let (depth, deepest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..20 {
        let (depth, deepest) = (Arc::clone(&depth), Arc::clone(&deepest));
        let (caller, mut left) = (Arc::downgrade(&executor), 50);
        executor.spawn(job(move || {
            deepest.fetch_max(depth.fetch_add(1, SeqCst) + 1, SeqCst);
            caller.upgrade().inspect(|executor| executor.yield_now());
            depth.fetch_sub(1, SeqCst);
            left -= 1;
            if left == 0 { Step::Done } else { Step::Again }
        }));
    }
    executor.run_until_idle();
    assert_eq!(deepest.load(SeqCst), super::seeded::MAX_DEPTH);
    executor.advance(Duration::from_secs(1));
    assert!(executor.now() > Duration::from_secs(1));
}
