//! Which job is next: the queues of [`super::ThreadExecutor`], under its lock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::executor::{Job, Priority};

/// So many steps of urgent jobs go before a patient one that waits for a processor: none waits for ever. A flush of 32 MiB takes some
/// 32: what has patience goes on between flushes, and not beside them, unless one follows the other.
pub(in crate::executor) const MOST_PASSED_OVER: usize = 64;

#[derive(Default)]
pub(super) struct State {
    pub(super) epoch: u64,
    pub(super) urgent: VecDeque<Task>,
    pub(super) normal: VecDeque<Task>,
    pub(super) waiting: Vec<Task>,
    /// Whether the thread that serves urgent jobs alone runs a step.
    pub(super) urgent_is_busy: bool,
    /// Whether what a thread of the others was given last was urgent.
    urgent_was_helped: bool,
    /// Steps that run now, each with the drop of its job.
    pub(super) running: usize,
    /// Those of them that [compute](Task::computes).
    pub(super) computing: usize,
    /// So many of those leave a processor over.
    most_computing: usize,
    /// Those that compute and are patient.
    pub(super) patient: usize,
    /// Until when the places of patient steps that have ended stay empty: both counts have these still.
    resting: Vec<Duration>,
    /// Steps of urgent jobs that were begun while a patient one waited.
    passed_over: usize,
    /// How many are in a hurry. Who begins may come to the lock behind who ends.
    pub(super) hurried: isize,
    /// Steps that run inside a call of `shutdown`.
    pub(super) stopping_steps: usize,
    pub(super) stopped: bool,
    pub(super) failed: Option<String>,
}

/// A job, and its priority, asked once: no code of others runs under the lock.
pub(super) struct Task {
    pub(super) job: Box<dyn Job>,
    pub(super) priority: Priority,
    pub(super) next: Next,
    /// While it waits: when it is stepped again without a notification.
    pub(super) due: Option<Duration>,
}

impl Task {
    pub(super) fn is_served_by(&self, lane: Lane) -> bool {
        lane == Lane::Any || self.priority == Priority::Urgent
    }

    pub(super) fn is_patient(&self) -> bool {
        self.next == Next::GoOnPatiently
    }

    /// Whether its next step takes a processor that the program may miss.
    pub(super) fn computes(&self) -> bool {
        self.is_patient() || self.next == Next::GoOn && self.priority == Priority::Urgent
    }
}

/// What a job's next step does, by what its last one said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It looks for work, or waits for the device (a sync).
    Look,
    GoOn,
    GoOnPatiently,
}

/// Which jobs a thread serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Urgent,
    Any,
}

impl State {
    /// Nothing to do yet, on so many processors.
    pub(super) fn on_processors(processors: usize) -> State {
        State { most_computing: processors.saturating_sub(1).max(1), ..State::default() }
    }

    pub(super) fn push(&mut self, task: Task) {
        match task.priority {
            Priority::Urgent => self.urgent.push_back(task),
            Priority::Normal => self.normal.push_back(task),
        }
    }

    /// The next job for a thread of `lane`, which begins; none once a job has failed.
    pub(super) fn pop(&mut self, lane: Lane) -> Option<Task> {
        if self.failed.is_some() {
            return None;
        }
        let task = match lane {
            Lane::Urgent => self.urgent.pop_front(),
            Lane::Any => self.pop_any(),
        }?;
        self.running += 1;
        if task.is_patient() {
            (self.passed_over, self.patient) = (0, self.patient + 1);
        } else if task.computes() && self.normal.iter().any(Task::is_patient) {
            self.passed_over += 1;
        }
        self.computing += usize::from(task.computes());
        Some(task)
    }

    fn pop_any(&mut self) -> Option<Task> {
        let patiently = self.leaves_a_processor();
        let next = self.normal.iter().position(|task| patiently || !task.is_patient());
        let in_turn = !self.urgent_was_helped || next.is_none();
        let helps = self.urgent_is_busy && in_turn;
        let urgent = if helps { self.urgent.pop_front() } else { None };
        self.urgent_was_helped = urgent.is_some();
        urgent.or_else(|| self.normal.remove(next?))
    }

    /// Whether a patient step may begin.
    fn leaves_a_processor(&self) -> bool {
        self.hurried > 0
            || self.computing < self.most_computing
            || self.passed_over >= MOST_PASSED_OVER && self.patient == 0
    }

    /// A step has ended that took a processor; where it rests, its place stays empty so long.
    pub(super) fn end_computing(&mut self, is_patient: bool, rest: Option<Duration>) {
        match rest {
            Some(until) if self.hurried <= 0 => self.resting.push(until),
            _ => self.leave_places(1, usize::from(is_patient)),
        }
    }

    fn leave_places(&mut self, computing: usize, patient: usize) {
        (self.computing, self.patient) = (self.computing - computing, self.patient - patient);
    }

    pub(super) fn is_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Ends the rests that are over by `now`.
    pub(super) fn end_rests(&mut self, now: Duration) {
        let ended = self.resting.extract_if(.., |until| *until <= now).count();
        self.leave_places(ended, ended);
    }

    /// When the next rest ends, if a step waits for that.
    pub(super) fn next_rest(&self) -> Option<Duration> {
        let next = self.resting.iter().min().copied();
        next.filter(|_| !self.leaves_a_processor() && self.normal.iter().any(Task::is_patient))
    }

    pub(super) fn may_begin_patiently(&self) -> bool {
        self.failed.is_none()
            && self.leaves_a_processor()
            && self.normal.iter().any(Task::is_patient)
    }

    pub(super) fn drain(&mut self) -> Vec<Task> {
        let mut tasks: Vec<_> = self.urgent.drain(..).collect();
        tasks.extend(self.normal.drain(..));
        tasks.append(&mut self.waiting);
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Step;

    struct Nothing;

    impl Job for Nothing {
        fn name(&self) -> &'static str {
            "nothing"
        }

        fn step(&mut self) -> Step {
            Step::Done
        }
    }

    fn task(priority: Priority, next: Next) -> Task {
        Task { job: Box::new(Nothing), priority, next, due: None }
    }

    /// Of two processors, with that many patient tasks that wait.
    fn waiting(patient: usize) -> State {
        let mut state = State::on_processors(2);
        (0..patient).for_each(|_| state.push(task(Priority::Normal, Next::GoOnPatiently)));
        state
    }

    fn begin_urgent(state: &mut State, next: Next) {
        state.push(task(Priority::Urgent, next));
        assert!(state.pop(Lane::Urgent).is_some());
    }

    #[test]
    fn after_very_many_urgent_steps_one_patient_one_begins_and_no_second() {
        let mut state = waiting(2);
        begin_urgent(&mut state, Next::GoOn);
        for _ in 1..MOST_PASSED_OVER {
            assert!(!state.may_begin_patiently() && state.pop(Lane::Any).is_none());
            begin_urgent(&mut state, Next::GoOn);
        }
        assert!(state.may_begin_patiently() && state.pop(Lane::Any).is_some());
        for _ in 0..3 * MOST_PASSED_OVER {
            assert!(!state.may_begin_patiently() && state.pop(Lane::Any).is_none());
            begin_urgent(&mut state, Next::GoOn);
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// Of so many processors, where a patient step has ended and rests until [`SECOND`]; its job goes on.
    fn resting(processors: usize) -> State {
        let mut state = State::on_processors(processors);
        state.push(task(Priority::Normal, Next::GoOnPatiently));
        let task = state.pop(Lane::Any);
        state.push(task.unwrap());
        state.end_computing(true, Some(SECOND));
        assert!(state.is_resting());
        state
    }

    #[test]
    fn the_place_of_what_rests_stays_empty_until_then() {
        let mut state = resting(2);
        state.end_rests(SECOND / 2);
        assert_eq!(state.next_rest(), Some(SECOND), "somebody minds it");
        assert!(!state.may_begin_patiently() && state.pop(Lane::Any).is_none());
        // What has no patience goes on, and nobody is woken for the end where nothing waits for it.
        state.push(task(Priority::Normal, Next::GoOn));
        assert!(state.pop(Lane::Any).is_some_and(|task| !task.is_patient()));
        let job = state.normal.pop_front();
        assert_eq!(state.next_rest(), None);
        state.push(job.unwrap());
        state.end_rests(SECOND);
        assert_eq!(state.next_rest(), None);
        assert!(!state.is_resting() && state.may_begin_patiently());
        assert!(state.pop(Lane::Any).is_some() && (state.computing, state.patient) == (1, 1));
        state.end_computing(true, None);
        assert_eq!((state.computing, state.patient), (0, 0));
    }

    /// However many steps of flushes go by.
    #[test]
    fn a_rest_is_no_shorter_for_what_it_lets_pass() {
        let mut state = resting(2);
        for _ in 0..3 * MOST_PASSED_OVER {
            begin_urgent(&mut state, Next::GoOn);
            state.end_computing(false, None);
        }
        state.end_rests(SECOND / 2);
        assert!(state.next_rest() == Some(SECOND) && state.pop(Lane::Any).is_none());
        state.end_rests(SECOND);
        assert!(state.next_rest().is_none() && state.pop(Lane::Any).is_some());
    }

    #[test]
    fn where_processors_are_left_over_what_rested_goes_on() {
        let mut state = resting(3);
        state.push(task(Priority::Normal, Next::GoOnPatiently));
        assert_eq!(state.next_rest(), None, "nobody waits for it");
        assert!(state.may_begin_patiently() && state.pop(Lane::Any).is_some());
        assert_eq!(state.next_rest(), Some(SECOND), "no third one");
    }

    #[test]
    fn a_hurry_knows_no_rest() {
        let mut state = resting(2);
        state.hurried = 1;
        assert!(state.may_begin_patiently() && state.pop(Lane::Any).is_some());
        state.end_computing(true, Some(2 * SECOND));
        state.end_rests(Duration::MAX);
        assert_eq!((state.computing, state.patient, state.is_resting()), (0, 0, false));
    }

    /// Nobody waits: then nobody is passed over.
    #[test]
    fn steps_count_only_where_a_patient_one_waits_and_looks_do_not() {
        let mut state = waiting(0);
        (0..2 * MOST_PASSED_OVER).for_each(|_| begin_urgent(&mut state, Next::GoOn));
        state.push(task(Priority::Normal, Next::GoOnPatiently));
        assert!(state.pop(Lane::Any).is_none());
        // A sync, say.
        let mut state = waiting(1);
        begin_urgent(&mut state, Next::Look);
        assert!(state.pop(Lane::Any).is_some());
    }

    /// A thread went to sleep: it was not the urgent one's turn, and the patient one might not begin.
    #[test]
    fn urgent_jobs_are_helped_where_nothing_else_may_begin() {
        let mut state = waiting(1);
        (state.urgent_is_busy, state.urgent_was_helped, state.computing) = (true, true, 1);
        state.push(task(Priority::Urgent, Next::GoOn));
        assert!(state.pop(Lane::Any).is_some_and(|task| task.priority == Priority::Urgent));
    }

    /// Idle threads woke each other for ever.
    #[test]
    fn once_a_job_has_failed_nobody_is_woken_for_what_waits() {
        let mut state = waiting(1);
        assert!(state.may_begin_patiently());
        state.failed = Some("it broke".into());
        assert!(!state.may_begin_patiently() && state.pop(Lane::Any).is_none());
    }
}
