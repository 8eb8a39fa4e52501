//! Learned indexes over sorted keys.

#![forbid(unsafe_code)]

pub mod bytes;
mod error;
pub mod exact;
pub mod monotone;

pub use error::{BuildError, DecodeError, Found};
