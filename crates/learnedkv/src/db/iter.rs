//! Iterators: from both ends, holding what they read.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::database::Handle;
use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::error::{Error, Result};
use crate::format::entry::SequenceNumber;
use crate::slice::Slice;
use crate::tiered::read;
use crate::view::KeyspaceView;

/// The entries of a key range in ascending order, or from the back in descending order, as they
/// were when the iterator was made. It is `'static` and keeps what it reads from.
///
/// After an error it returns that error for ever.
pub struct Iter {
    _handle: Arc<Handle>,
    /// `None`: the keyspace is not there, so there are no entries.
    view: Option<Arc<KeyspaceView>>,
    visible: SequenceNumber,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: Option<MergeCursor>,
    back: Option<MergeCursor>,
    ended: bool,
    error: Option<Error>,
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("lower", &self.lower).field("upper", &self.upper).finish()
    }
}

/// From the least to the greatest: is there a key between?
fn is_empty(lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    match (lower, upper) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a >= b
        }
        _ => false,
    }
}

/// The first key after `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl Iter {
    pub(crate) fn new<K: AsRef<[u8]>>(
        handle: Arc<Handle>,
        view: Option<Arc<KeyspaceView>>,
        visible: SequenceNumber,
        range: &impl RangeBounds<K>,
    ) -> Iter {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (lower, upper) = (owned(range.start_bound()), owned(range.end_bound()));
        let ended = view.is_none() || is_empty(&lower, &upper);
        let (front, back, error) = (None, None, None);
        Iter { _handle: handle, view, visible, lower, upper, front, back, ended, error }
    }

    /// Moves the front cursor to the next entry, or says that there is none.
    fn step_front(&mut self) -> Result<Option<(Slice, Slice)>> {
        let Some(view) = &self.view else { return Ok(None) };
        match &mut self.front {
            Some(cursor) => cursor.advance()?,
            None => {
                let mut cursor = read::cursor(view, self.visible);
                match &self.lower {
                    Bound::Unbounded => cursor.seek(Seek::First)?,
                    Bound::Included(key) => cursor.seek(Seek::AtOrAfter(key))?,
                    Bound::Excluded(key) => cursor.seek(Seek::AtOrAfter(&successor(key)))?,
                }
                self.front = Some(cursor);
            }
        }
        let Some(cursor) = &mut self.front else { return Ok(None) };
        read::skip_removed(cursor)?;
        let inside = |key: &&[u8]| match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => *key <= upper.as_slice(),
            Bound::Excluded(upper) => *key < upper.as_slice(),
        };
        let Some(key) = cursor.key().filter(inside) else { return Ok(None) };
        // The other end stops before what was given out here.
        self.lower = Bound::Excluded(key.to_vec());
        Ok(Some((Slice::copy_from(key), cursor.value_slice())))
    }

    /// Moves the back cursor to the next entry downwards, or says that there is none.
    fn step_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        let Some(view) = &self.view else { return Ok(None) };
        match &mut self.back {
            Some(cursor) => cursor.advance()?,
            None => {
                let mut cursor = read::cursor(view, self.visible);
                match &self.upper {
                    Bound::Unbounded => cursor.seek(Seek::Last)?,
                    Bound::Included(key) => cursor.seek(Seek::Before(&successor(key)))?,
                    Bound::Excluded(key) => cursor.seek(Seek::Before(key))?,
                }
                self.back = Some(cursor);
            }
        }
        let Some(cursor) = &mut self.back else { return Ok(None) };
        read::skip_removed(cursor)?;
        let inside = |key: &&[u8]| match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(lower) => *key >= lower.as_slice(),
            Bound::Excluded(lower) => *key > lower.as_slice(),
        };
        let Some(key) = cursor.key().filter(inside) else { return Ok(None) };
        self.upper = Bound::Excluded(key.to_vec());
        Ok(Some((Slice::copy_from(key), cursor.value_slice())))
    }

    fn give(&mut self, step: Result<Option<(Slice, Slice)>>) -> Option<Result<(Slice, Slice)>> {
        match step {
            Ok(Some(entry)) => Some(Ok(entry)),
            Ok(None) => {
                self.ended = true;
                // Nothing more is read: let go of what was held.
                (self.front, self.back, self.view) = (None, None, None);
                None
            }
            Err(error) => {
                self.error = Some(error.clone());
                Some(Err(error))
            }
        }
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = &self.error {
            return Some(Err(error.clone()));
        }
        if self.ended {
            return None;
        }
        let step = self.step_front();
        self.give(step)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(error) = &self.error {
            return Some(Err(error.clone()));
        }
        if self.ended {
            return None;
        }
        let step = self.step_back();
        self.give(step)
    }
}

impl std::iter::FusedIterator for Iter {}
