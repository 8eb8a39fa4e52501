//! Whether writes can go on, and if not, why.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::lock;
use crate::error::{Error, ErrorKind, Result};

/// The state of health of an engine.
#[derive(Debug, Default)]
pub struct Health {
    unwell: AtomicBool,
    closed: AtomicBool,
    /// A sync of the log or the manifest failed: nothing is written any more.
    poisoned: Mutex<Option<Error>>,
    /// Background work failed and will be tried again (a full disk, say).
    background: Mutex<Option<Error>>,
}

impl Health {
    /// Whether nothing is wrong.
    pub fn is_well(&self) -> bool {
        !self.unwell.load(Ordering::Acquire)
    }

    /// Whether [`Health::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses writes from now on; true the first time.
    pub fn close(&self) -> bool {
        self.unwell.store(true, Ordering::Release);
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Refuses writes from now on because of `error`.
    pub fn poison(&self, error: &Error) {
        lock(&self.poisoned).get_or_insert_with(|| error.clone());
        self.unwell.store(true, Ordering::Release);
    }

    /// Notes how background work went.
    pub fn note_background(&self, result: &Result<()>) {
        let mut background = lock(&self.background);
        *background = result.as_ref().err().cloned();
        let poisoned = lock(&self.poisoned).is_some();
        let unwell = background.is_some() || poisoned || self.is_closed();
        self.unwell.store(unwell, Ordering::Release);
    }

    /// The error that background work met last, if it has not succeeded since.
    pub fn background_error(&self) -> Option<Error> {
        lock(&self.poisoned).clone().or_else(|| lock(&self.background).clone())
    }

    /// # Errors
    /// `Closed` or `Poisoned` if nothing can be written any more.
    pub fn check_writable(&self) -> Result<()> {
        if self.is_well() {
            return Ok(());
        }
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        match &*lock(&self.poisoned) {
            Some(cause) => Err(Error::new(
                ErrorKind::Poisoned,
                format!(
                    "an earlier write or sync of the log or the manifest failed ({cause}); reads go \
                     on, writes do not: reopen the database to recover what is on the disk"
                ),
            )),
            None => Ok(()),
        }
    }

    /// # Errors
    /// As [`Health::check_writable`], or the error that background work met.
    pub fn check_background(&self) -> Result<()> {
        self.check_writable()?;
        match &*lock(&self.background) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
