//! The one error type of the engine.
//!
//! An error says which file and offset, what was expected and what was found, and what to do. It
//! is opaque: users branch on [`Error::kind`], people read its text. Broken invariants of our own
//! are not errors; they are assertions.

use std::fmt;
use std::path::{Path, PathBuf};

/// What to do on a full disk.
pub(crate) const MAKE_ROOM: &str = "remove other files, or remove entries and convert";

/// What went wrong, coarsely: the part of an [`Error`] that a program branches on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a file operation.
    Io,
    /// The disk (or a quota) is full. Nothing acknowledged is lost; free space and go on.
    DiskFull,
    /// Stored bytes are not what was written: a checksum, a length or an order is wrong.
    Corruption,
    /// Another process, or another handle of this one, has the database open.
    Locked,
    /// The file or directory, or the thing named, is not there.
    NotFound,
    /// The directory holds something that is not a learnedkv database.
    NotADatabase,
    /// Written by a newer version of learnedkv, or with a part this build does not have.
    Unsupported,
    /// An argument is outside what is allowed.
    InvalidArgument,
    /// A log or manifest sync failed earlier: writes are refused until the database is reopened. Of a write that was
    /// under way just then: it may be visible, and may be there after reopening.
    Poisoned,
    /// The database was closed.
    Closed,
    /// The database was opened for reading only.
    ReadOnly,
}

/// An error of the engine. See [`ErrorKind`] for what can be told apart.
#[derive(Clone)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    offset_bytes: Option<u64>,
    /// It says already whose data is concerned, and what to do.
    is_advised: bool,
}

/// The engine's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A new error of `kind`, saying `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            inner: Box::new(Inner {
                kind,
                message: message.into(),
                path: None,
                offset_bytes: None,
                is_advised: false,
            }),
        }
    }

    /// An operating-system error met while doing `action` on `path`.
    pub fn io(action: &str, path: &Path, error: &std::io::Error) -> Error {
        Error::io_of(action, error).at_path(path)
    }

    /// One met while doing `action`, on no file.
    pub(crate) fn io_of(action: &str, error: &std::io::Error) -> Error {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ErrorKind::DiskFull
            }
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("could not {action}: {error}"))
    }

    /// The reader that a user gave for a value failed. If what it says is an error of a store (a value is copied from another), that is
    /// kept: its kind, and where it happened.
    pub fn reader(error: &std::io::Error) -> Error {
        let message = |said: &str| format!("the value's reader failed: {said}");
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(own) => {
                let mut own = own.clone();
                own.inner.message = message(&own.inner.message);
                // Advice for who writes here would be about another database.
                own.inner.is_advised = true;
                own
            }
            None => Error::new(ErrorKind::Io, message(&error.to_string())),
        }
    }

    /// Bytes that are not what was written.
    pub fn corruption(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corruption, message)
    }

    /// An argument outside what is allowed.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// The same error, naming the file it happened in (kept if one is named already).
    #[must_use]
    pub fn at_path(mut self, path: &Path) -> Error {
        self.inner.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// The same error, naming the byte offset in its file (kept if one is named already).
    #[must_use]
    pub fn at_offset(mut self, offset_bytes: u64) -> Error {
        self.inner.offset_bytes.get_or_insert(offset_bytes);
        self
    }

    /// The same error, saying `more` behind what it says.
    #[must_use]
    pub fn and_say(mut self, more: &str) -> Error {
        self.inner.message.push_str(more);
        self
    }

    /// The same error, saying `advice` (whose data is concerned, and what to do) behind what it says; kept if there is some already.
    #[must_use]
    pub(crate) fn advise(mut self, advice: impl FnOnce() -> String) -> Error {
        if !std::mem::replace(&mut self.inner.is_advised, true) {
            self.inner.message.push_str(&advice());
        }
        self
    }

    /// The same error, of a sync: what was to be synced is written, visible, and may be durable. So it is not
    /// `DiskFull`, which says that nothing was written.
    #[must_use]
    pub(crate) fn in_doubt(mut self) -> Error {
        if self.inner.kind == ErrorKind::DiskFull {
            self.inner.kind = ErrorKind::Io;
        }
        self
    }

    /// What it says, without the file and the offset.
    pub(crate) fn message(&self) -> &str {
        &self.inner.message
    }

    /// What went wrong, coarsely.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether stored bytes are damaged.
    pub fn is_corruption(&self) -> bool {
        self.inner.kind == ErrorKind::Corruption
    }

    /// The file it happened in, where there is one.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The byte offset in [`Error::path`], where there is one.
    pub fn offset_bytes(&self) -> Option<u64> {
        self.inner.offset_bytes
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.inner.path {
            write!(f, "{}", path.display())?;
            if let Some(offset) = self.inner.offset_bytes {
                write!(f, " at byte {offset}")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.inner.kind)
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = match error.kind() {
            ErrorKind::Corruption => std::io::ErrorKind::InvalidData,
            ErrorKind::NotFound => std::io::ErrorKind::NotFound,
            ErrorKind::DiskFull => std::io::ErrorKind::StorageFull,
            _ => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, error)
    }
}
