//! What patient steps leave the program, checked on threads.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use super::conformance::{Act, job, wait_for};
use super::threads::queues::MOST_PASSED_OVER;
use super::threads::{GIVES_WAY_FROM, rest_after};
use super::{Executor, Priority, Step, ThreadExecutor};

const STEPS: usize = 200;

/// Two jobs of [`STEPS`] patient steps each: the most that one of them ran beside another.
fn beside_each_other(executor: &Arc<ThreadExecutor>) -> usize {
    let [running, beside, done] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    for _ in 0..2 {
        let [running, beside, counted] = [&running, &beside, &done].map(Arc::clone);
        let (caller, mut steps) = (Arc::downgrade(executor), 0);
        executor.spawn(job(move || {
            // The first is a look, and beside all others.
            if steps > 0 {
                beside.fetch_max(running.fetch_add(1, SeqCst), SeqCst);
                (0..20).for_each(|_| std::thread::yield_now());
                running.fetch_sub(1, SeqCst);
            }
            steps += 1;
            if steps <= STEPS {
                return Step::Patiently;
            }
            counted.fetch_add(1, SeqCst);
            caller.upgrade().inspect(|executor| executor.notify());
            Step::Done
        }));
    }
    wait_for(&**executor, &done, 2);
    beside.load(SeqCst)
}

/// Two jobs, each patient step of one waiting for one of the other: it hangs where one may not run beside another.
fn together(executor: &Arc<ThreadExecutor>) {
    let (both, done) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..2 {
        let (both, counted) = (Arc::clone(&both), Arc::clone(&done));
        let (caller, mut steps) = (Arc::downgrade(executor), 0);
        executor.spawn(job(move || {
            if steps > 0 {
                both.wait();
            }
            steps += 1;
            if steps <= STEPS {
                return Step::Patiently;
            }
            counted.fetch_add(1, SeqCst);
            caller.upgrade().inspect(|executor| executor.notify());
            Step::Done
        }));
    }
    wait_for(&**executor, &done, 2);
}

/// A client stood still for 4 to 12 ms at a time, several times in a row, while a flush, a sweep and it had two processors.
#[test]
fn patient_steps_leave_the_program_a_processor() {
    for processors in [0, 1, 2] {
        let executor = Arc::new(ThreadExecutor::on_processors(processors, 4).unwrap());
        assert_eq!(beside_each_other(&executor), 0, "{processors}");
    }
    together(&Arc::new(ThreadExecutor::on_processors(3, 4).unwrap()));
}

#[test]
fn patient_steps_run_on_all_threads_while_anybody_is_in_a_hurry() {
    let executor = Arc::new(ThreadExecutor::on_processors(2, 4).unwrap());
    executor.hurry(true);
    executor.hurry(true);
    together(&executor);
    executor.hurry(false);
    together(&executor);
    executor.hurry(false);
    assert_eq!(beside_each_other(&executor), 0);
    // One that began while the other end was late.
    executor.hurry(false);
    executor.hurry(true);
    assert_eq!(beside_each_other(&executor), 0);
    executor.hurry(true);
    together(&executor);
}

/// A client that woke up on the processor of a flush was let in when its time slice was over, 4 ms later.
#[test]
fn a_step_gives_way_unless_there_is_a_hurry_or_it_has_given_much() {
    let executor = ThreadExecutor::new(2).unwrap();
    assert!(executor.give_way());
    GIVES_WAY_FROM.set(Duration::ZERO);
    executor.hurry(true);
    assert!(!executor.give_way());
    executor.hurry(false);
    assert!(executor.give_way());
    // As long again as it took is worked off first; each thread's own.
    let (now, from) = (executor.now(), GIVES_WAY_FROM.get());
    assert!(from > Duration::ZERO && from <= 2 * now, "{from:?} {now:?}");
    GIVES_WAY_FROM.set(now + Duration::from_secs(3600));
    assert!(!executor.give_way());
    std::thread::scope(|scope| scope.spawn(|| assert!(executor.give_way())).join().unwrap());
}

/// What a step gave away was worked off by lying idle until the next one, and rested for besides: beside programs that always compute
/// it was paid for twice.
#[test]
fn what_was_given_away_is_worked_off_by_steps_alone_and_not_rested_for() {
    let executor = Arc::new(ThreadExecutor::new(2).unwrap());
    let calls = Arc::downgrade(&executor);
    let [done, later] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (counted, is_later, mut owed) = (Arc::clone(&done), Arc::clone(&later), None);
    executor.spawn(job(move || {
        let Some(executor) = calls.upgrade() else { return Step::Done };
        let Some(before) = owed else {
            let from = executor.now() + Duration::from_secs(3600);
            GIVES_WAY_FROM.set(from);
            owed = Some(from);
            return Step::WaitUntil(executor.now() + Duration::from_millis(5));
        };
        // What was not worked is owed still, however short it was.
        is_later.store(usize::from(GIVES_WAY_FROM.get() > before), SeqCst);
        counted.store(1, SeqCst);
        executor.notify();
        Step::Done
    }));
    wait_for(&*executor, &done, 1);
    assert_eq!(later.load(SeqCst), 1);
    let millis = Duration::from_millis;
    assert_eq!(rest_after(millis(10), millis(4)), millis(6));
    assert_eq!(rest_after(millis(100), millis(4)), millis(20));
}

/// While flushes always had more to do, a merge that would have taken 30 ms stood still for half a second, and would have for
/// as long as the load lasted.
#[test]
fn patient_steps_are_few_beside_an_urgent_job_that_never_rests_but_not_none() {
    let executor = Arc::new(ThreadExecutor::on_processors(2, 3).unwrap());
    let [urgent, over] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (steps, until) = (Arc::clone(&urgent), Arc::clone(&over));
    let act = move || {
        steps.fetch_add(1, SeqCst);
        std::thread::yield_now();
        if until.load(SeqCst) > 0 { Step::Done } else { Step::Again }
    };
    executor.spawn(Box::new(Act { act, priority: Priority::Urgent, dropped: Arc::default() }));
    while urgent.load(SeqCst) < 2 {
        std::thread::yield_now();
    }
    let (caller, count, end) = (Arc::downgrade(&executor), Arc::clone(&urgent), Arc::clone(&over));
    let (mut begun, mut least, mut seen) = (0, usize::MAX, 0);
    executor.spawn(job(move || {
        let before = std::mem::replace(&mut seen, count.load(SeqCst));
        begun += 1;
        // From one patient step to the next; the look comes when it comes.
        if begun > 2 {
            least = least.min(seen - before);
        }
        if begun < 30 {
            return Step::Patiently;
        }
        end.store(1 + least, SeqCst);
        caller.upgrade().inspect(|executor| executor.notify());
        Step::Done
    }));
    wait_for(&*executor, &over, 1);
    // Of those that were begun one may not have been counted yet.
    let least = over.load(SeqCst) - 1;
    assert!(least >= MOST_PASSED_OVER - 1, "{least} urgent steps between");
}

/// An urgent step that runs until `may_end`, on two processors, and a patient one that waits for it, looked at in vain.
struct Behind {
    may_end: Arc<AtomicUsize>,
    /// How often the patient job was stepped: its look is the first.
    stepped: Arc<AtomicUsize>,
}

impl Behind {
    fn new(executor: &ThreadExecutor) -> Behind {
        let [begun, may_end, stepped] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let (running, go) = (Arc::clone(&begun), Arc::clone(&may_end));
        let act = move || {
            if running.fetch_add(1, SeqCst) == 0 {
                return Step::Again;
            }
            while go.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            Step::Done
        };
        executor.spawn(Box::new(Act { act, priority: Priority::Urgent, dropped: Arc::default() }));
        while begun.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        let count = Arc::clone(&stepped);
        executor.spawn(job(move || match count.fetch_add(1, SeqCst) {
            0 => Step::Patiently,
            _ => Step::Done,
        }));
        // It is queued, and the thread that looked at it has found that it may not begin, and sleeps.
        let waits = || {
            let state = format!("{executor:?}");
            stepped.load(SeqCst) == 1
                && state.contains("runnable: 1,")
                && state.contains("running: 1,")
        };
        while !waits() {
            assert!(stepped.load(SeqCst) < 2, "the urgent one runs");
            std::thread::yield_now();
        }
        Behind { may_end, stepped }
    }

    /// Hangs where the patient step is not begun.
    fn await_patient(&self) {
        while self.stepped.load(SeqCst) == 1 {
            std::thread::yield_now();
        }
    }
}

/// What waits for a processor is begun when the urgent step ends that has it, though nobody notifies.
#[test]
fn a_patient_step_begins_when_an_urgent_one_ends() {
    let executor = ThreadExecutor::on_processors(2, 3).unwrap();
    for _ in 0..50 {
        let behind = Behind::new(&executor);
        behind.may_end.store(1, SeqCst);
        behind.await_patient();
        // Both are gone.
        while !format!("{executor:?}").contains("running: 0,") {
            std::thread::yield_now();
        }
    }
}

/// A hurry that begins while a patient step waits for a processor.
#[test]
fn a_hurry_wakes_whoever_waits() {
    let executor = ThreadExecutor::on_processors(2, 3).unwrap();
    let behind = Behind::new(&executor);
    executor.hurry(true);
    behind.await_patient();
    behind.may_end.store(1, SeqCst);
}

/// What settled went on at once beside a program at work, and took from it what a third thread on two processors does.
#[test]
fn a_leisurely_step_is_followed_by_a_rest_as_long_as_it_took() {
    for (hurried, beside) in [(false, 1), (true, 1), (false, 2)] {
        let executor = Arc::new(ThreadExecutor::on_processors(2, 4).unwrap());
        if hurried {
            executor.hurry(true);
        }
        let (ends, done) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        for _ in 0..beside {
            let (ends, counted) = (Arc::clone(&ends), Arc::clone(&done));
            let (caller, mut steps) = (Arc::downgrade(&executor), 0);
            executor.spawn(job(move || {
                steps += 1;
                if steps == 1 {
                    // A look.
                    return Step::Patiently;
                }
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(3) {
                    std::thread::yield_now();
                }
                ends.lock().unwrap().push((begun, Instant::now()));
                if steps <= 10 {
                    return Step::Leisurely;
                }
                counted.fetch_add(1, SeqCst);
                caller.upgrade().inspect(|executor| executor.notify());
                Step::Done
            }));
        }
        wait_for(&*executor, &done, beside);
        let ends = std::mem::take(&mut *ends.lock().unwrap());
        assert_eq!(ends.len(), 10 * beside);
        let rests = ends.windows(2).map(|two| two[1].0.saturating_duration_since(two[0].1));
        // The last one of a job is followed by none.
        let is_short = |rest: &Duration| *rest < Duration::from_millis(3);
        let short = rests.filter(is_short).count();
        match hurried {
            true => assert!(short > 0, "none began at once"),
            false => assert!(short < beside, "{short} of {}: {ends:?}", ends.len()),
        }
    }
}

/// What was a look again (a job that waited, and was woken) is begun at once, beside others.
#[test]
fn whoever_has_waited_is_patient_no_more() {
    let executor = Arc::new(ThreadExecutor::on_processors(2, 4).unwrap());
    let [looked, released] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (count, mut steps) = (Arc::clone(&looked), 0);
    executor.spawn(job(move || {
        count.fetch_add(1, SeqCst);
        steps += 1;
        if steps == 1 { Step::Patiently } else { Step::Wait }
    }));
    while looked.load(SeqCst) < 2 {
        std::thread::yield_now();
    }
    let (go, caller, mut steps) = (Arc::clone(&released), Arc::downgrade(&executor), 0);
    let (begun, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let is_running = Arc::clone(&running);
    executor.spawn(job(move || {
        steps += 1;
        if steps == 1 {
            return Step::Patiently;
        }
        is_running.store(1, SeqCst);
        while go.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        begun.fetch_add(1, SeqCst);
        caller.upgrade().inspect(|executor| executor.notify());
        Step::Done
    }));
    while running.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    let before = looked.load(SeqCst);
    executor.notify();
    // Else it hangs: the other one runs until it was released.
    while looked.load(SeqCst) == before {
        std::thread::yield_now();
    }
    released.store(1, SeqCst);
}

#[test]
fn threads_that_nobody_asked_for_are_beside_those_that_somebody_did() {
    // At least two of these, whatever is asked for.
    for (threads, more, expected) in [(0, 1, 3), (1, 0, 2), (2, 1, 3), (4, 0, 4)] {
        let executor = ThreadExecutor::and_more(threads, more).unwrap();
        assert_eq!(executor.thread_count(), expected, "{threads} and {more}");
        assert!(!executor.is_stopped());
        executor.shutdown();
        assert!(executor.is_stopped());
    }
    assert!(ThreadExecutor::and_more(1025, 1).is_err());
}
