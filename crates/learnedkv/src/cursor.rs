//! Walking sorted entries: one trait for memtables, runs of tables and their merge.
//!
//! A cursor is positioned by [`Cursor::seek`] and then moved in the direction it was sought in:
//! [`Seek::First`] and [`Seek::AtOrAfter`] are followed by [`Cursor::advance`] upwards,
//! [`Seek::Last`] and [`Seek::Before`] downwards. A double-ended iterator uses two cursors. Each
//! cursor shows at most one entry per user key: the newest it may see.
//!
//! A source may also say that whole ranges of keys are gone from all older sources: its [`Cover`]. The
//! merge hides what is covered, and goes past the end of a covered stretch by one seek of the older
//! source. Reads, merges of runs and sweeps all walk so, and see the same.

use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::Stretch;
use crate::slice::Slice;

mod merge;

pub use merge::MergeCursor;

/// Where to go, and in which direction to walk from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek<'a> {
    /// The first entry; then upwards.
    First,
    /// The first entry at or after a key; then upwards.
    AtOrAfter(&'a [u8]),
    /// The last entry; then downwards.
    Last,
    /// The last entry before a key; then downwards.
    Before(&'a [u8]),
}

impl Seek<'_> {
    /// Whether the walk goes upwards from here.
    pub fn is_forward(&self) -> bool {
        matches!(self, Seek::First | Seek::AtOrAfter(_))
    }
}

/// A position among sorted entries.
pub trait Cursor: Send {
    /// Goes to an entry, or past the end if there is none.
    ///
    /// # Errors
    /// Any error of the disk; the cursor is then past the end.
    fn seek(&mut self, to: Seek<'_>) -> Result<()>;

    /// Goes to the next entry in the direction of the last seek.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    fn advance(&mut self) -> Result<()>;

    /// Goes on to a place that lies ahead in the direction of the last seek: as a seek, perhaps cheaper.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    fn skip(&mut self, to: Seek<'_>) -> Result<()> {
        self.seek(to)
    }

    /// The key here, or `None` past the end.
    fn key(&self) -> Option<&[u8]>;

    /// The kind and sequence number here. Only to be asked where there is a key.
    fn kind(&self) -> (Kind, SequenceNumber);

    /// The value here. Only to be asked where there is a key.
    fn value(&self) -> &[u8];

    /// The value here, to keep. Only to be asked where there is a key.
    fn value_slice(&self) -> Slice;
}

/// Which keys a source says are gone from all older sources.
pub trait Cover: Send {
    /// A stretch around `key` of keys that are all gone, or all not. It may be a part of a longer one.
    fn stretch(&mut self, key: &[u8]) -> Stretch;
}

/// What a merge takes entries from.
pub struct Source {
    cursor: Box<dyn Cursor>,
    cover: Option<Box<dyn Cover>>,
}

impl Source {
    /// The entries of `cursor`; what `cover` says is gone from older sources.
    pub fn new(cursor: Box<dyn Cursor>, cover: Option<Box<dyn Cover>>) -> Source {
        Source { cursor, cover }
    }

    /// Whether it may say that older sources' keys are gone.
    pub fn covers(&self) -> bool {
        self.cover.is_some()
    }

    /// The same keys and ranges, all of them removed: it hides what is older, and has no values.
    pub fn into_removed(self) -> Source {
        Source { cursor: Box::new(Removed(self.cursor)), cover: self.cover }
    }
}

/// Each entry of a cursor as a tombstone.
struct Removed(Box<dyn Cursor>);

impl Cursor for Removed {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        self.0.seek(to)
    }

    fn advance(&mut self) -> Result<()> {
        self.0.advance()
    }

    fn skip(&mut self, to: Seek<'_>) -> Result<()> {
        self.0.skip(to)
    }

    fn key(&self) -> Option<&[u8]> {
        self.0.key()
    }

    fn kind(&self) -> (Kind, SequenceNumber) {
        (Kind::Tombstone, self.0.kind().1)
    }

    fn value(&self) -> &[u8] {
        &[]
    }

    fn value_slice(&self) -> Slice {
        Slice::copy_from(&[])
    }
}
