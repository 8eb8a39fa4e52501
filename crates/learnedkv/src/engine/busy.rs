//! How long background work was busy: from it follows how fast a store can be written to ([`super::rates`]); and how
//! long writers were kept back.
//!
//! Work of a kind is done by several jobs at once, so what is counted is the time in which at least one of them
//! was in a step.

use std::sync::Mutex;
use std::time::Duration;

use super::{Engine, lock};

/// The time in which work of one kind was under way.
#[derive(Debug, Default)]
pub struct Busy(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    steps: u32,
    since: Duration,
    total: Duration,
}

impl Busy {
    fn begin(&self, now: Duration) {
        let mut state = lock(&self.0);
        if state.steps == 0 {
            state.since = now;
        }
        state.steps += 1;
    }

    fn end(&self, now: Duration) {
        let mut state = lock(&self.0);
        state.steps = state.steps.saturating_sub(1);
        if state.steps == 0 {
            let spent = now.saturating_sub(state.since);
            state.total += spent;
        }
    }

    /// How long at least one was under way until `now`, with what still is.
    pub fn until(&self, now: Duration) -> Duration {
        let state = lock(&self.0);
        let since = (state.steps > 0).then(|| now.saturating_sub(state.since));
        state.total + since.unwrap_or_default()
    }

    /// How long at least one was under way, so far as none is any more.
    pub fn total(&self) -> Duration {
        lock(&self.0).total
    }
}

impl Engine {
    /// Does something of a kind, and counts the time.
    pub fn timed<T>(&self, busy: &Busy, work: impl FnOnce() -> T) -> T {
        busy.begin(self.executor.now());
        let done = work();
        busy.end(self.executor.now());
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_do_at_once_takes_time_once() {
        let busy = Busy::default();
        let at = Duration::from_millis;
        busy.begin(at(100));
        busy.begin(at(150));
        busy.end(at(200));
        busy.end(at(300));
        busy.begin(at(1000));
        assert_eq!(busy.total(), at(200), "what is under way is not counted yet");
        assert_eq!(busy.until(at(1030)), at(230), "or is, where that is asked for");
        busy.end(at(1050));
        assert_eq!(busy.total(), at(250));
        assert_eq!(busy.until(at(2000)), at(250));
    }
}
