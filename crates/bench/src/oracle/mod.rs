//! Kill tests: a writer whose every acknowledged operation can be checked after it was killed.
//!
//! A writer's thread `t` of `T` does an endless stream of operations that follows from the seed
//! alone ([`Stream`]): puts and removes of the keys whose rank is `t` modulo `T`. So an
//! acknowledgement need say no more than *how many*. The acknowledgement file (which must lie outside
//! the store) is text:
//!
//! ```text
//! learnedkv-acks 1 keys=uniform:10000 value-size=100 seed=42 threads=2 batch=1 durability=buffered
//! 0 17          thread 0: its first 17 operations are acknowledged
//! 1 12
//! sealed 18 12  after a verification: what each thread's operations are known to amount to
//! 0 18          a later writer begins: from here on operations may be under way
//! 0 19          it went on from there
//! ```
//!
//! [`verify`] demands *prefix consistency*: what is found must be exactly the state after the first
//! `m` operations of each thread, with `m` from the acknowledged count to that plus one batch (the
//! operations that may have been under way). A lost, invented, reordered or torn write has no such
//! `m`. Operations of different threads may be interleaved in any way.

mod acks;
mod verify;
mod writer;

pub use acks::{AckLog, Setup};
pub use verify::{Verdict, verify};
pub use writer::{WriterPlan, write};

use crate::random::{Rng, mix};

/// One operation of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The key's rank.
    pub index: usize,
    /// The key's version after it: how many operations it has seen.
    pub version: u32,
    /// Whether the key is removed, rather than put.
    pub removes: bool,
}

/// The operations of one writer thread, in order, without end.
#[derive(Debug)]
pub struct Stream {
    rng: Rng,
    thread: usize,
    threads: usize,
    /// Keys that belong to this thread.
    own: u64,
    versions: Vec<u32>,
}

impl Stream {
    /// The stream of thread `thread` of `threads` over `keys` keys (at least one per thread).
    #[must_use]
    pub fn new(seed: u64, keys: usize, thread: usize, threads: usize) -> Stream {
        let own = (keys - thread).div_ceil(threads);
        Stream {
            rng: Rng::seeded(mix(seed ^ ((thread as u64) << 32))),
            thread,
            threads,
            own: own as u64,
            versions: vec![0; own],
        }
    }
}

impl Iterator for Stream {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let slot = self.rng.below(self.own) as usize;
        self.versions[slot] += 1;
        Some(Step {
            index: slot * self.threads + self.thread,
            version: self.versions[slot],
            // One in eight: enough for tombstones to meet every job, few enough that keys live.
            removes: self.rng.below(8) == 0,
        })
    }
}
