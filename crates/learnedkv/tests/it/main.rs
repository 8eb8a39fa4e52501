//! The integration tests of the engine: one binary, so that it links once. A module per subject.

mod tidy;
