//! The `learnedkv` command.
fn main() {}
