//! Memory for blocks: of sizes that are near to each other, taken by whoever reads and given back by whoever
//! looked last.
//!
//! An allocator keeps what a thread frees for that thread, and a hole that nothing fits in for ever: blocks that one
//! thread reads and another evicts took up to three times what they hold (docs/decisions/0053). So they stand in *slabs* from
//! the system, each cut into pieces of one size ([`pool`]): what is free serves whoever reads next, and a slab
//! that is empty goes back. How much all slabs take is known, and bounded.
//!
//! *Never knows:* what stands in a buffer, nor why it is wanted. A *label* says what to ask whoever holds it for.

mod hint;
pub mod lines;
mod pieces;
mod pool;
mod tail;

pub use hint::fetch_ahead;
pub use pool::{Buffer, Pool, Room};
pub use tail::{Shared, Tail};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
