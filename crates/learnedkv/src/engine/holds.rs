//! Holding commits back: for a moment under their lock, or until a hold is dropped.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use super::{Engine, lock};

/// Holds commits back; see [`Engine::hold_commits`].
#[derive(Debug)]
pub struct Hold<'a> {
    engine: &'a Engine,
    _held: MutexGuard<'a, ()>,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.engine.holds.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Runs `work` while no commit can be ordered: what it sees of the memtables stays so. It may put
    /// entries into the View past the log, and counts that in the same change ([`KeyspaceView::ingests`]).
    ///
    /// [`KeyspaceView::ingests`]: crate::view::KeyspaceView::ingests
    pub fn with_commits_held<T>(&self, work: impl FnOnce() -> T) -> T {
        let _order = lock(&self.commit);
        work()
    }

    /// Has commits that come later wait until the hold is dropped, while background work goes on: a
    /// few may still be on their way. No job may commit.
    pub fn hold_commits(&self) -> Hold<'_> {
        self.holds.fetch_add(1, Ordering::Relaxed);
        Hold { engine: self, _held: lock(&self.held) }
    }
}
