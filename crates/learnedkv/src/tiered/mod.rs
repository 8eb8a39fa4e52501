//! The default store: fresh writes in an LSM part ([`crate::lsm`]), settled data in partitions with
//! learned indexes.
//!
//! Recency is structural: memtables, runs, frozen part, delta, base. The first that holds a key
//! holds its newest version, and no job ever places older data above newer.
//!
//! [`sweep`] settles ([`plan`] what and where), [`settle`] says when ([`debt`]: for the space; [`price`]: for reads), [`rewrite`] what is
//! cheaper than that, [`press`] slows writers where it cannot keep up, [`ingest`] takes sorted data in bulk.
//! This room knows the engine and its parts; it never knows the API above it.

mod covered;
mod debt;
pub mod ingest;
mod jobs;
mod plan;
mod press;
pub mod price;
mod rewrite;
mod settle;
mod sweep;
#[cfg(test)]
pub(crate) mod testing;
mod trim;

pub use debt::{Debt, Space};
pub use jobs::spawn;
pub use settle::is_busy;
