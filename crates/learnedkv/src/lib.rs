//! An embedded, ordered, durable key-value store whose indexes are learned.

pub mod disk;
pub mod error;
pub mod executor;
