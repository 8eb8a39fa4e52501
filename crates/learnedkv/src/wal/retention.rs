//! Which segments the log still needs.

use std::sync::atomic::Ordering;

use super::{Kept, Log, lock, segment_path};
use crate::format::entry::SequenceNumber;
use crate::format::manifest::Change;

/// Which segments to keep, and which to remove once the edit with `change` is durable.
#[derive(Debug)]
pub struct Retention {
    /// What the manifest has to say.
    pub change: Change,
    keep_from: u64,
}

impl Log {
    /// Whether a segment ends with the record of `sequence`: none holds records on both sides of it.
    pub fn ends_at(&self, sequence: SequenceNumber) -> bool {
        let order = lock(&self.order);
        let is_beside =
            |k: &Kept| k.first > sequence || k.last.is_some_and(|last| last <= sequence);
        order.kept.iter().all(is_beside)
    }

    /// Where its segments take more than `max_bytes`: the last operation of those that have to go so that
    /// the others take three quarters of it. `None`: they do not, or none of them has ended.
    pub fn excess(&self, max_bytes: u64) -> Option<SequenceNumber> {
        let order = lock(&self.order);
        let mut left: u64 = order.kept.iter().map(|k| k.size_bytes).sum();
        if left <= max_bytes {
            return None;
        }
        let going = order.kept.iter().take_while(|kept| {
            let goes = left > max_bytes / 4 * 3;
            left = left.saturating_sub(kept.size_bytes);
            goes
        });
        going.filter_map(|kept| kept.last).last()
    }

    /// What may go if only records from `needed` on are still needed.
    pub fn retention(&self, needed: SequenceNumber) -> Retention {
        let order = lock(&self.order);
        // A segment of an earlier life whose records are not needed, and the empty ones, go too.
        let kept: Vec<_> =
            order.kept.iter().skip_while(|k| k.last.is_some_and(|last| last < needed)).collect();
        let ended = kept.iter().filter_map(|k| Some((k.id, k.ended?))).collect();
        let open_from = kept.iter().find(|k| k.ended.is_none()).map_or(order.active.id, |k| k.id);
        let first = kept.first().map_or(order.next, |k| k.first);
        let keep_from = kept.first().map_or(order.active.id, |k| k.id);
        Retention { change: Change::Log { ended, open_from, first }, keep_from }
    }

    /// Removes what `retention` does not keep, or keeps its files for segments to come. The edit with its change is durable, so what the removed
    /// segments hold is durable without them, synced or not.
    pub fn remove(&self, retention: &Retention) {
        let gone: Vec<_> = {
            let mut order = lock(&self.order);
            let keep = order.kept.iter().take_while(|k| k.id < retention.keep_from).count();
            let gone: Vec<_> = order.kept.drain(..keep).collect();
            // Under the lock: whoever misses a segment is to see that it need not be synced.
            if let Some(last) = gone.last().and_then(|kept| kept.last) {
                self.synced.fetch_max(last, Ordering::AcqRel);
            }
            gone
        };
        for kept in gone {
            let path = segment_path(&self.dir, kept.id);
            if !self.recycle(kept) {
                // A file that cannot be removed now is an orphan that the next open removes.
                let _ = self.disk.remove(&path);
            }
        }
    }
}
