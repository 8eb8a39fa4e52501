//! The external positions that a memtable's commits carry: the newest that is visible, and those that are
//! not visible yet.
//!
//! Commits come in any order, and each before it is visible. Which one is newest their sequence numbers say.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::format::entry::{CarriedPosition, SequenceNumber};

/// In the order of their commits. At most one of them is visible, once the next is noted.
#[derive(Debug, Default)]
pub struct Positions(Mutex<Vec<CarriedPosition>>);

impl Positions {
    fn all(&self) -> MutexGuard<'_, Vec<CarriedPosition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a commit carries that comes here, before it is visible. Of those up to `visible` all but
    /// the newest are forgotten.
    pub fn note(&self, carried: CarriedPosition, visible: SequenceNumber) {
        let mut all = self.all();
        let at = all.partition_point(|other| other.sequence < carried.sequence);
        // One commit notes it once for each of its operations, when it is recovered.
        if all.get(at) != Some(&carried) {
            all.insert(at, carried);
        }
        let seen = all.partition_point(|other| other.sequence <= visible);
        all.drain(..seen.saturating_sub(1));
    }

    /// The newest up to what is `visible`, which is asked while nobody forgets any: what was visible
    /// before is not enough, for all up to there but the newest may be forgotten by now.
    pub fn newest(&self, visible: impl FnOnce() -> SequenceNumber) -> Option<CarriedPosition> {
        let all = self.all();
        if all.is_empty() {
            return None;
        }
        let visible = visible();
        all.iter().rev().find(|carried| carried.sequence <= visible).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sequence: SequenceNumber) -> CarriedPosition {
        CarriedPosition { sequence, position: [sequence as u8; 16] }
    }

    /// It would be that of the commit that came last.
    #[test]
    fn the_newest_is_that_of_the_highest_number_whichever_comes_last() {
        for order in [[3, 5, 9], [9, 5, 3], [5, 9, 3]] {
            let positions = Positions::default();
            order.into_iter().for_each(|sequence| positions.note(at(sequence), 0));
            for (visible, newest) in [(2, None), (3, Some(3)), (8, Some(5)), (20, Some(9))] {
                assert_eq!(positions.newest(|| visible), newest.map(at), "{order:?}, {visible}");
            }
        }
    }

    #[test]
    fn what_nobody_can_ask_for_any_more_is_forgotten() {
        let positions = Positions::default();
        for sequence in 1..1000 {
            positions.note(at(sequence), sequence.saturating_sub(5));
            positions.note(at(sequence), sequence.saturating_sub(5));
            assert!(positions.all().len() <= 6, "{positions:?}");
        }
        assert_eq!(positions.newest(|| 994), Some(at(994)), "the newest that was visible");
        assert_eq!(positions.newest(|| 2000), Some(at(999)));
    }
}
