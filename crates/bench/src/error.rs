//! The error of the workload library: one line for a person, and a kind that becomes an exit code.

use std::fmt;
use std::path::Path;

/// Whose doing an [`Error`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked for makes no sense or is not available; nothing was done. Exit code 2.
    Usage,
    /// It went wrong underway: a file, the engine, the disk. Exit code 1.
    Runtime,
    /// The engine returned something that was never written, or lost something that was. Exit code 1.
    WrongAnswer,
    /// What was asked for is not there, and nothing is wrong. Exit code 3.
    NotThere,
    /// Whoever read our output went away: not worth a word. Exit code 0.
    BrokenPipe,
}

/// An error that says which file or option, what was expected, what was found, and what to do.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The library's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An option, or what it names, cannot be used.
    pub fn usage(message: impl Into<String>) -> Error {
        Error { kind: ErrorKind::Usage, message: message.into() }
    }

    /// Something went wrong underway.
    pub fn runtime(message: impl Into<String>) -> Error {
        Error { kind: ErrorKind::Runtime, message: message.into() }
    }

    /// What was asked for is not there.
    pub fn not_there(message: impl Into<String>) -> Error {
        Error { kind: ErrorKind::NotThere, message: message.into() }
    }

    /// Reads were wrong.
    pub fn wrong_answer(message: impl Into<String>) -> Error {
        Error { kind: ErrorKind::WrongAnswer, message: message.into() }
    }

    /// The operating system refused `action` on `path`.
    pub fn io(action: &str, path: &Path, error: &std::io::Error) -> Error {
        Error::runtime(format!("{}: could not {action}: {error}", path.display()))
    }

    /// Writing to standard output failed.
    pub fn output(error: &std::io::Error) -> Error {
        let kind = match error.kind() {
            std::io::ErrorKind::BrokenPipe => ErrorKind::BrokenPipe,
            _ => ErrorKind::Runtime,
        };
        Error { kind, message: format!("could not write to standard output: {error}") }
    }

    /// The engine failed at `action`.
    pub fn engine(action: &str, error: impl fmt::Display) -> Error {
        Error::runtime(format!("{action} failed: {error}"))
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Usage => 2,
            ErrorKind::Runtime | ErrorKind::WrongAnswer => 1,
            ErrorKind::NotThere => 3,
            ErrorKind::BrokenPipe => 0,
        }
    }

    /// The same error with `context` in front.
    #[must_use]
    pub fn within(mut self, context: &str) -> Error {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
