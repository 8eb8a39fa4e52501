//! The `learnedkv` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(learnedkv_cli::main())
}
