//! The integration tests of the engine: one binary, so that it links once. A module per subject.

mod crash;
mod faults;
mod metamorphic;
mod model;
mod regressions;
mod tidy;
mod workload;
