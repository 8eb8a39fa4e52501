//! What an interrupt (`SIGINT`, `SIGTERM`, `SIGHUP`) leaves behind: nothing but what was to be kept, and a line that says so.
//!
//! Whoever makes something that outlives a process [holds](hold) what undoes it. At an interrupt all that is held is undone,
//! the latest first, and the process ends as one that the signal ended. Whoever would make or undo something meanwhile waits
//! for that end. A second signal ends it at once.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Undoes something; in words, what became of it, if that is worth a line.
type Undo = Box<dyn Fn() -> Option<String> + Send>;

/// What a shell calls a process that a signal ended: this and the signal's number.
const ENDED_BY: i32 = 128;
/// What is written to all the while is not gone at the first attempt.
const ATTEMPTS: u32 = 40;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

static HELD: Mutex<Vec<(u64, Undo)>> = Mutex::new(Vec::new());
static WATCH: Once = Once::new();

/// Undone at an interrupt until it is dropped.
#[derive(Debug)]
pub struct Held(u64);

/// Holds what undoes something that the caller is about to make, or has just made.
pub fn hold(undo: impl Fn() -> Option<String> + Send + 'static) -> Held {
    WATCH.call_once(|| {
        // Where signals cannot be had, an interrupt ends the process as ever.
        let _ = watch();
    });
    let mut held = lock();
    let number = held.last().map_or(0, |(last, _)| last + 1);
    held.push((number, Box::new(undo)));
    Held(number)
}

/// Until `undone` says that it is, or for two seconds.
pub fn attempt(undone: impl Fn() -> bool) -> bool {
    (0..ATTEMPTS).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
        undone()
    })
}

impl Drop for Held {
    fn drop(&mut self) {
        lock().retain(|(number, _)| *number != self.0);
    }
}

/// A panic elsewhere is no reason to leave things behind.
fn lock() -> MutexGuard<'static, Vec<(u64, Undo)>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() -> std::io::Result<()> {
    let signals = [SIGINT, SIGTERM, SIGHUP];
    let again = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register_conditional_shutdown(signal, ENDED_BY + signal, again.clone())?;
    }
    let mut caught = signal_hook::iterator::Signals::new(signals)?;
    std::thread::Builder::new().name("interrupt".to_string()).spawn(move || {
        let Some(signal) = caught.forever().next() else { return };
        again.store(true, Ordering::SeqCst);
        // Held to the end: nobody makes anything any more.
        let held = lock();
        let words: Vec<_> = held.iter().rev().filter_map(|(_, undo)| undo()).collect();
        let what = if words.is_empty() { String::new() } else { format!(": {}", words.join("; ")) };
        let _ = writeln!(std::io::stderr(), "\ninterrupted{what}");
        // Not by `exit`: engines are at work, and some would be taken down around their own threads.
        signal_hook::low_level::exit(ENDED_BY + signal);
    })?;
    Ok(())
}
