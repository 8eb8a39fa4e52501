//! The integration tests of the engine: one binary, so that it links once. A module per subject.

mod atomic;
mod checkpoint;
mod concurrency;
mod corruption;
mod crash;
mod durability;
mod faults;
mod filters;
mod giving_back;
mod golden;
mod lifecycle;
mod many_keyspaces;
mod metamorphic;
mod model;
mod open_errors;
mod reads;
mod regressions;
mod removals;
mod resting;
mod settling;
mod snapshots;
mod space;
mod streams;
mod tidy;
mod values;
mod workload;
