//! The integration tests of the engine: one binary, so that it links once. A module per subject.

mod crash;
mod model;
mod tidy;
mod workload;
