//! Bytes to structs and back: the only place that knows offsets.
//!
//! Each layout is written down once, at the file that owns it, with its grammar and an example
//! whose bytes a test holds against what is written. All integers are little-endian. Nothing here does I/O, and nothing
//! here trusts a byte: every decoder returns an error for input it did not write.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod batch;
pub mod block;
pub mod bytes;
pub mod checksum;
pub mod compression;
pub mod entry;
#[cfg(test)]
pub mod example;
pub mod filter;
pub mod kind;
pub mod log;
pub mod manifest;
pub mod name;
pub mod range;
pub mod table;
pub mod value;
