//! Walking sorted entries: one trait for memtables, runs of tables and their merge.
//!
//! A cursor is positioned by [`Cursor::seek`] and then moved in the direction it was sought in:
//! [`Seek::First`] and [`Seek::AtOrAfter`] are followed by [`Cursor::advance`] upwards,
//! [`Seek::Last`] and [`Seek::Before`] downwards. A double-ended iterator uses two cursors. Each
//! cursor shows at most one entry per user key: the newest it may see.

use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::slice::Slice;

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

    /// The key here, or `None` past the end.
    fn key(&self) -> Option<&[u8]>;

    /// The kind and sequence number here. Only to be asked where there is a key.
    fn kind(&self) -> (Kind, SequenceNumber);

    /// The value here. Only to be asked where there is a key.
    fn value(&self) -> &[u8];

    /// The value here, to keep. Only to be asked where there is a key.
    fn value_slice(&self) -> Slice;
}

/// Several cursors as one, the earlier in the list the newer: of equal keys the newest is shown.
pub struct MergeCursor {
    sources: Vec<Box<dyn Cursor>>,
    forward: bool,
    /// The source that holds the current entry.
    current: Option<usize>,
}

impl MergeCursor {
    /// Merges `sources`, newest first.
    pub fn new(sources: Vec<Box<dyn Cursor>>) -> MergeCursor {
        MergeCursor { sources, forward: true, current: None }
    }

    /// Finds the source to show: the extreme key, from the newest source that has it.
    fn choose(&mut self) {
        let mut best: Option<(usize, &[u8])> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(key) = source.key() else { continue };
            let better = match best {
                None => true,
                Some((_, found)) if self.forward => key < found,
                Some((_, found)) => key > found,
            };
            if better {
                best = Some((index, key));
            }
        }
        self.current = best.map(|(index, _)| index);
    }

    /// Moves every older source that stands on the current key off it.
    fn skip_shadowed(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        let (newer, older) = self.sources.split_at_mut(current + 1);
        let key = newer[current].key();
        for source in older {
            if source.key() == key {
                source.advance()?;
            }
        }
        Ok(())
    }

    fn source(&self) -> &dyn Cursor {
        &*self.sources[self.current.expect("a cursor past its end has no entry")]
    }
}

impl Cursor for MergeCursor {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        self.current = None;
        self.forward = to.is_forward();
        for source in &mut self.sources {
            source.seek(to)?;
        }
        self.choose();
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        self.skip_shadowed().inspect_err(|_| self.current = None)?;
        let Some(current) = self.current.take() else { return Ok(()) };
        self.sources[current].advance()?;
        self.choose();
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        self.current.and_then(|current| self.sources[current].key())
    }

    fn kind(&self) -> (Kind, SequenceNumber) {
        self.source().kind()
    }

    fn value(&self) -> &[u8] {
        self.source().value()
    }

    fn value_slice(&self) -> Slice {
        self.source().value_slice()
    }
}
