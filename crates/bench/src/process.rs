//! Work in a process of its own, so that its memory, processor time and traffic are its own.
//!
//! A parent starts this program again with a hidden command. The child waits for a line on its standard
//! input (by then its parent has put it where its memory is bounded, or has looked at what it must),
//! works, and prints its result as one line of JSON. It ends when its parent does.

use std::io::{BufRead, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::interrupt::{Held, hold};
use crate::{Error, Result};

/// A child that has been started and waits to begin.
#[derive(Debug)]
pub struct Waiting {
    child: Child,
    /// Closed at an interrupt: then it ends.
    input: Arc<Mutex<Option<ChildStdin>>>,
    _held: Held,
}

/// How a child ended that did not do its work.
#[derive(Debug)]
pub struct Failed {
    /// As the system says.
    pub status: ExitStatus,
    /// What it said itself.
    pub words: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = if self.words.is_empty() { "without a word" } else { &self.words };
        write!(f, "{}: {words}", self.status)
    }
}

impl Failed {
    /// Whether it was killed from outside, by `SIGKILL`.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        self.status.signal() == Some(9)
    }
}

impl Waiting {
    /// Starts this program with `arguments`, of which the first is a hidden command.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(arguments: &[String]) -> Result<Waiting> {
        let failed = |e| Error::runtime(format!("could not start a process: {e}"));
        let program = std::env::current_exe().map_err(failed)?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(failed)?;
        let input = Arc::new(Mutex::new(child.stdin.take()));
        let closed = input.clone();
        let held = hold(move || {
            drop(closed.lock().unwrap_or_else(PoisonError::into_inner).take());
            None
        });
        Ok(Waiting { child, input, _held: held })
    }

    /// The process's number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it before it has begun.
    pub fn give_up(mut self) {
        // Ours, not yet at work, and by its own handle.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Has it begin, waits for its end, and takes its result.
    ///
    /// # Errors
    /// If it is lost, or what it prints is no result. How it failed, if it did, is the inner error.
    pub fn finish<T: DeserializeOwned>(self) -> Result<std::result::Result<T, Failed>> {
        let Waiting { child, input, _held } = self;
        // Its input stays open while we live; one that is gone already says why below.
        if let Some(input) = &mut *input.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(input);
        }
        let output = child.wait_with_output();
        let output = output.map_err(|e| Error::runtime(format!("lost a process: {e}")))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let words = words.trim().trim_start_matches("error: ").to_string();
            return Ok(Err(Failed { status: output.status, words }));
        }
        let told = serde_json::from_slice(&output.stdout);
        told.map(Ok).map_err(|e| Error::runtime(format!("a process's result is not JSON: {e}")))
    }
}

/// In the child: waits until it may begin; from then on it ends when its parent does, since nobody
/// would read the result, or keep its memory within bounds.
///
/// # Errors
/// If standard input cannot be read.
pub fn wait_to_begin() -> Result<()> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| Error::runtime(format!("could not wait for the parent: {e}")))?;
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
        std::process::exit(1);
    });
    Ok(())
}

/// In the child: prints the result.
///
/// # Errors
/// If it cannot be printed.
pub fn answer<T: Serialize>(result: &T) -> Result<()> {
    let json = serde_json::to_string(result)
        .map_err(|e| Error::runtime(format!("could not put the result into JSON: {e}")))?;
    writeln!(std::io::stdout(), "{json}").map_err(|e| Error::output(&e))
}
