//! What the processor is told of a walk beforehand: a walk over blocks that are mapped comes next to what stands
//! behind (or before) where it is, and memory that nobody asked for takes longer than all else that a walk does.
//!
//! At each entry so much more is asked for as the entry is long, twice that until the walk is
//! [`DISTANCE_BYTES`] ahead. So a short walk asks for little that it does not come to, and a processor that has but so many
//! requests to memory under way is not stopped by a whole block's at once.

use std::ops::Range;

use bytes::Bytes;

use crate::memory::fetch_ahead;

/// How far ahead of a walk is asked for, bytes: what takes a walk longer to come to than memory to answer.
const DISTANCE_BYTES: usize = 4 << 10;
/// Requests begin on multiples of this, bytes: a cache line of most processors.
const LINE_BYTES: usize = 64;

/// How far the file in memory under a walk was asked for.
pub(super) struct Fetching {
    file: Bytes,
    forward: bool,
    /// In the file, on a multiple of a line: where what was asked for ends, in the direction of the walk; `None`: nothing
    /// was.
    reached: Option<usize>,
}

impl Fetching {
    /// A walk over a file whose bytes are these.
    pub fn new(file: Bytes) -> Fetching {
        Fetching { file, forward: true, reached: None }
    }

    /// The walk begins somewhere.
    pub fn begin(&mut self, forward: bool) {
        (self.forward, self.reached) = (forward, None);
    }

    /// The walk has come to `entry`. If that stands in the file, what comes next is asked for.
    #[inline]
    pub fn come_to(&mut self, entry: &[u8]) {
        let start = (entry.as_ptr() as usize).wrapping_sub(self.file.as_ptr() as usize);
        if start >= self.file.len() {
            return;
        }
        let wanted = self.wanted(start, entry.len());
        if !wanted.is_empty() {
            let to = wanted.end.min(self.file.len());
            fetch_ahead(self.file.get(wanted.start..to).unwrap_or_default());
        }
    }

    /// What of the file to ask for, whole lines, as the walk comes to what stands at `start` in it.
    #[inline]
    fn wanted(&mut self, start: usize, length: usize) -> Range<usize> {
        let more = 2 * (length + LINE_BYTES);
        let wanted = if self.forward {
            // What was left behind, between entries, is not asked for any more.
            let from = self.reached.unwrap_or(0).max(start / LINE_BYTES * LINE_BYTES);
            let to = (start + length + DISTANCE_BYTES).min(from + more);
            from..to / LINE_BYTES * LINE_BYTES
        } else {
            let to = self.reached.unwrap_or(usize::MAX).min(start + length);
            let to = to.next_multiple_of(LINE_BYTES);
            let from = start.saturating_sub(DISTANCE_BYTES).max(to.saturating_sub(more));
            from / LINE_BYTES * LINE_BYTES..to
        };
        if !wanted.is_empty() {
            self.reached = Some(if self.forward { wanted.end } else { wanted.start });
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk over entries of so many bytes, with as much between as a block's head takes, each 4 KiB: no line is asked for
    /// twice, none further ahead than said, and all of what the walk comes to but at its very beginning.
    #[test]
    fn a_walk_finds_all_asked_for_once_and_little_else() {
        for (length, forward) in
            [8, 100, 1016, 5000, 70_000].map(|l| [(l, true), (l, false)]).as_flattened()
        {
            let mut places = Vec::new();
            let mut at = 10_007;
            while at < 1 << 20 {
                places.push(at);
                at += length + if places.len() * length % 4096 < *length { 200 } else { 3 };
            }
            if !forward {
                places.reverse();
            }
            let mut fetching = Fetching::new(Bytes::new());
            fetching.begin(*forward);
            let mut lines = std::collections::BTreeSet::new();
            for (number, &start) in places.iter().enumerate() {
                let end = start + length;
                let missing = (start / LINE_BYTES..end.div_ceil(LINE_BYTES))
                    .filter(|line| !lines.contains(line));
                // It has come to be ahead after as many bytes as that is.
                if number * length > DISTANCE_BYTES && *length < DISTANCE_BYTES / 2 {
                    assert_eq!(missing.count(), 0, "{length} bytes, entry {number}");
                }
                let wanted = fetching.wanted(start, *length);
                assert!(
                    wanted.is_empty() || wanted.start % LINE_BYTES + wanted.end % LINE_BYTES == 0
                );
                assert!(wanted.len() <= 2 * (length + LINE_BYTES) + LINE_BYTES);
                let least = start.saturating_sub(DISTANCE_BYTES + LINE_BYTES);
                assert!(
                    wanted.is_empty()
                        || wanted.start >= least && wanted.end <= end + DISTANCE_BYTES + LINE_BYTES
                );
                for line in wanted.step_by(LINE_BYTES) {
                    assert!(lines.insert(line / LINE_BYTES), "{length} bytes: a line twice");
                }
            }
        }
    }
}
