//! What the two Greedy-PLR kinds share: fitting lines to a rising staircase, and evaluating them.
//!
//! Both kinds index a *staircase*: a function `y` of the key that never falls, known at the keys that
//! were pushed. For [`GreedyPlr`](crate::GreedyPlr) `y` is the lower-bound position, for
//! [`GreedyPlrPlus`](crate::GreedyPlrPlus) the block of the lower bound. What is wanted is an integer
//! function `f`, made of few lines, such that
//!
//! 1. at every pushed key, `y - epsilon <= f <= y + epsilon`, and
//! 2. between two pushed keys, where `y` already has the value of the right one,
//!    `y - 1 - epsilon <= f <= y + epsilon`.
//!
//! The lines never fall, so (2) follows from (1) wherever `y` rises by at most one, and only the
//! corners of the staircase need fitting:
//!
//! ```text
//!   y                        points offered to the cone
//!   7 |              o---    o  the first and the last key of each step (1)
//!   6 |           x          x  the key after a jump of more than one, one below where the
//!     |                         jump leads: without it, (2) could fail (a run of equal keys
//!   3 |     o---o               longer than epsilon is such a jump)
//!   2 | o-o
//!     +------------------- key
//! ```
//!
//! A line holds from the first key of its segment up to the first key of the next. Past its last
//! point it is only extrapolated, and so [`segments`] clips it to the next segment's first `y`.

mod cone;
mod segments;

use cone::Cone;
pub(crate) use segments::Segments;

/// Turns pushed `(key, y)` pairs into [`Segments`], keeping only the segment being grown in memory
/// besides the finished ones.
#[derive(Clone, Debug)]
pub(crate) struct Fitter {
    epsilon: u16,
    cone: Option<Cone>,
    segments: Segments,
    step: Option<Step>,
}

/// The step of the staircase that is being walked.
#[derive(Clone, Copy, Debug)]
struct Step {
    y: u64,
    first_key: u64,
    last_key: u64,
}

impl Step {
    /// One of a single key so far.
    fn new(key: u64, y: u64) -> Step {
        Step { y, first_key: key, last_key: key }
    }
}

impl Fitter {
    pub(crate) fn new(epsilon: u16) -> Self {
        Self { epsilon, cone: None, segments: Segments::new(epsilon), step: None }
    }

    /// Takes the next pair. The caller has checked that neither `key` nor `y` falls; of pairs with
    /// equal keys the first counts, since that is where the lower bound lies.
    #[inline]
    pub(crate) fn push(&mut self, key: u64, y: u64) {
        match &mut self.step {
            Some(step) if step.last_key == key => return,
            Some(step) if step.y == y => {
                step.last_key = key;
                return;
            }
            _ => {}
        }
        self.rise(key, y);
    }

    /// [`Self::push`] of one key after the other where `y` has risen by one with each pair so far, and goes on so from `y`: no step is
    /// longer than its key. Stops at a key below the one before it. Returns how many were taken, and that key.
    ///
    /// What most keys take is held in the processor's registers from one to the next; in memory, each would wait for what the one before
    /// it has stored (decision 30).
    #[inline]
    pub(crate) fn push_rising(
        &mut self,
        keys: impl IntoIterator<Item = u64>,
        from: u64,
    ) -> (u64, Option<u64>) {
        let mut keys = keys.into_iter();
        let mut y = from;
        let (mut cone, last) = match (self.cone, self.step) {
            (Some(cone), Some(step)) => (cone, step),
            _ => {
                let Some(key) = keys.next() else { return (0, None) };
                let begun = (Cone::new(self.epsilon, key, y), Step::new(key, y));
                y += 1;
                begun
            }
        };
        debug_assert_eq!(last.first_key, last.last_key);
        let (mut last_key, mut last_y, mut refused) = (last.last_key, last.y, None);
        for key in keys {
            if key <= last_key {
                if key < last_key {
                    refused = Some(key);
                    break;
                }
            } else {
                // See `jump`.
                if y - last_y > 1 && key - last_key > 1 && !cone.admit(last_key + 1, y - 1) {
                    cone = self.end_segment(cone, last_key + 1, y - 1);
                }
                if !cone.admit(key, y) {
                    cone = self.end_segment(cone, key, y);
                }
                (last_key, last_y) = (key, y);
            }
            y += 1;
        }
        (self.cone, self.step) = (Some(cone), Some(Step::new(last_key, last_y)));
        (y - from, refused)
    }

    /// The last key that was taken.
    pub(crate) fn last_key(&self) -> Option<u64> {
        self.step.map(|step| step.last_key)
    }

    /// Takes a pair that ends a step. Apart from [`Self::push`], where most pairs end none: they are walked twice as fast without it
    /// beside them.
    #[inline(never)]
    fn rise(&mut self, key: u64, y: u64) {
        if let Some(step) = self.step {
            self.leave(step);
            if key - step.last_key > 1 {
                self.jump(step, y);
            }
        }
        self.point(key, y);
        self.step = Some(Step::new(key, y));
    }

    /// Ends the staircase: keys above the last one pushed have the value `end`.
    pub(crate) fn finish(mut self, end: u64) -> Segments {
        if let Some(step) = self.step {
            self.leave(step);
            if step.last_key < u64::MAX {
                self.jump(step, end);
            }
        }
        if let Some(cone) = self.cone {
            self.segments.push(cone.first_key(), cone.line());
        }
        self.segments.finish(end)
    }

    /// Pins the right end of a step. The keys inside need no point: in the segment of the step's first
    /// key the line never falls below its value there, and it is held down by the right end, which is
    /// either a point of the same segment or the first `y` of the next.
    fn leave(&mut self, step: Step) {
        if step.last_key > step.first_key {
            self.point(step.last_key, step.y);
        }
    }

    /// Pins the gap after `step` where the staircase goes on at `y`.
    fn jump(&mut self, step: Step, y: u64) {
        if y - step.y > 1 {
            self.point(step.last_key + 1, y - 1);
        }
    }

    #[inline(always)]
    fn point(&mut self, key: u64, y: u64) {
        if !self.cone.as_mut().is_some_and(|cone| cone.admit(key, y)) {
            self.begin_segment(key, y);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_segment(&mut self, key: u64, y: u64) {
        if let Some(cone) = self.cone.replace(Cone::new(self.epsilon, key, y)) {
            self.segments.push(cone.first_key(), cone.line());
        }
    }

    /// Keeps a segment, and begins the next at `(key, y)`. Apart, so that what most points take saves no registers for what few take.
    #[cold]
    #[inline(never)]
    fn end_segment(&mut self, cone: Cone, key: u64, y: u64) -> Cone {
        self.segments.push(cone.first_key(), cone.line());
        Cone::new(self.epsilon, key, y)
    }
}
