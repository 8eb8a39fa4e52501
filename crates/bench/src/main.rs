//! The `learnedkv-bench` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(learnedkv_bench::command::main())
}
