//! Iterators: from both ends, holding what they read.
//!
//! [`Ends`] moves and bounds; [`Iter`], [`Keys`] and [`Sizes`] say what of an entry is handed out.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::database::Handle;
use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::error::{Error, Result};
use crate::format::entry::SequenceNumber;
use crate::lsm::read;
use crate::options::ReadOptions;
use crate::slice::Slice;
use crate::view::KeyspaceView;

/// The bounds of a range of keys, owned.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The bounds of `range`.
pub(crate) fn bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Bounds {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (owned(range.start_bound()), owned(range.end_bound()))
}

/// The bounds of all keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> Bounds {
    let upper = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), upper)
}

/// The first key after all that begin with `prefix`; `None` if there is no such key.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// From the least to the greatest: can there be no key between?
pub(crate) fn is_empty((lower, upper): &Bounds) -> bool {
    match (lower, upper) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a >= b
        }
        _ => false,
    }
}

/// The first key after `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Both ends of what is left of a range, in one keyspace at one time.
struct Ends {
    _handle: Arc<Handle>,
    /// `None`: nothing more is read.
    view: Option<Arc<KeyspaceView>>,
    visible: SequenceNumber,
    options: ReadOptions,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: Option<MergeCursor>,
    back: Option<MergeCursor>,
    error: Option<Error>,
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("lower", &self.lower).field("upper", &self.upper).finish()
    }
}

impl Ends {
    /// Moves the front cursor to the next entry; false: there is none.
    fn step_front(&mut self) -> Result<bool> {
        let Some(view) = &self.view else { return Ok(false) };
        let cursor = match &mut self.front {
            Some(cursor) => {
                cursor.advance()?;
                cursor
            }
            None => {
                let cursor =
                    self.front.insert(read::cursor(view, self.visible, self.options.walk()));
                match &self.lower {
                    Bound::Unbounded => cursor.seek(Seek::First)?,
                    Bound::Included(key) => cursor.seek(Seek::AtOrAfter(key))?,
                    Bound::Excluded(key) => cursor.seek(Seek::AtOrAfter(&successor(key)))?,
                }
                cursor
            }
        };
        read::skip_removed(cursor)?;
        let inside = |key: &&[u8]| match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => *key <= upper.as_slice(),
            Bound::Excluded(upper) => *key < upper.as_slice(),
        };
        let Some(key) = cursor.key().filter(inside) else { return Ok(false) };
        // The other end stops before what is given out here.
        self.lower = Bound::Excluded(key.to_vec());
        Ok(true)
    }

    /// Moves the back cursor to the next entry downwards; false: there is none.
    fn step_back(&mut self) -> Result<bool> {
        let Some(view) = &self.view else { return Ok(false) };
        let cursor = match &mut self.back {
            Some(cursor) => {
                cursor.advance()?;
                cursor
            }
            None => {
                let cursor =
                    self.back.insert(read::cursor(view, self.visible, self.options.walk()));
                match &self.upper {
                    Bound::Unbounded => cursor.seek(Seek::Last)?,
                    Bound::Included(key) => cursor.seek(Seek::Before(&successor(key)))?,
                    Bound::Excluded(key) => cursor.seek(Seek::Before(key))?,
                }
                cursor
            }
        };
        read::skip_removed(cursor)?;
        let inside = |key: &&[u8]| match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(lower) => *key >= lower.as_slice(),
            Bound::Excluded(lower) => *key > lower.as_slice(),
        };
        let Some(key) = cursor.key().filter(inside) else { return Ok(false) };
        self.upper = Bound::Excluded(key.to_vec());
        Ok(true)
    }

    /// Goes on at one end, and hands out what `take` takes of the entry there.
    fn next<T>(&mut self, front: bool, take: Take<T>) -> Option<Result<T>> {
        if let Some(error) = &self.error {
            return Some(Err(error.clone()));
        }
        let step = if front { self.step_front() } else { self.step_back() };
        let cursor = if front { &self.front } else { &self.back };
        let taken = step.and_then(|found| match (cursor, &self.view) {
            (Some(cursor), Some(view)) if found => take(view, cursor).map(Some),
            _ => Ok(None),
        });
        if !matches!(taken, Ok(Some(_))) {
            // Nothing more is read: let go of what was held.
            (self.front, self.back, self.view) = (None, None, None);
        }
        self.error = taken.as_ref().err().cloned();
        taken.transpose()
    }
}

/// What is handed out of the entry a cursor stands on.
type Take<T> = fn(&KeyspaceView, &dyn Cursor) -> Result<T>;

fn key_of(cursor: &dyn Cursor) -> Slice {
    Slice::copy_from(cursor.key().unwrap_or_default())
}

fn entry(view: &KeyspaceView, cursor: &dyn Cursor) -> Result<(Slice, Slice)> {
    Ok((key_of(cursor), read::load(view, cursor)?))
}

fn key(_: &KeyspaceView, cursor: &dyn Cursor) -> Result<Slice> {
    Ok(key_of(cursor))
}

fn size(_: &KeyspaceView, cursor: &dyn Cursor) -> Result<(Slice, u64)> {
    Ok((key_of(cursor), read::size_at(cursor)?))
}

/// The entries of a key range in ascending order, or from the back in descending order, as they
/// were when the iterator was made. It is `'static` and keeps what it reads from.
///
/// After an error it returns that error for ever: stop at the first (as `collect` into a `Result`
/// does), and do not `count` without looking.
#[derive(Debug)]
pub struct Iter(Ends);

impl Iter {
    /// What `view` shows in `bounds`; an error is what the iterator returns from the beginning.
    pub(crate) fn new(
        handle: Arc<Handle>,
        view: Result<Arc<KeyspaceView>>,
        visible: SequenceNumber,
        bounds: Bounds,
        options: ReadOptions,
    ) -> Iter {
        let empty = is_empty(&bounds);
        let (lower, upper) = bounds;
        let (view, error) = match view {
            Ok(view) => ((!empty).then_some(view), None),
            Err(error) => (None, Some(error)),
        };
        let (front, back) = (None, None);
        Iter(Ends { _handle: handle, view, visible, options, lower, upper, front, back, error })
    }

    /// The keys alone, of what is left: values are not read, wherever they are kept.
    pub fn keys(self) -> Keys {
        Keys(self.0)
    }

    /// The keys and the lengths of their values, bytes, of what is left: values are not read,
    /// wherever they are kept.
    pub fn sizes(self) -> Sizes {
        Sizes(self.0)
    }
}

/// The keys of a range, without their values; otherwise as [`Iter`]. Made by [`Iter::keys`].
#[derive(Debug)]
pub struct Keys(Ends);

/// The keys of a range and the lengths of their values, bytes; otherwise as [`Iter`]. Made by
/// [`Iter::sizes`].
#[derive(Debug)]
pub struct Sizes(Ends);

/// An iterator over [`Ends`], from both of them.
macro_rules! double_ended {
    ($($name:ident, $item:ty, $take:ident;)*) => {$(
        impl Iterator for $name {
            type Item = Result<$item>;

            fn next(&mut self) -> Option<Self::Item> {
                self.0.next(true, $take)
            }
        }

        impl DoubleEndedIterator for $name {
            fn next_back(&mut self) -> Option<Self::Item> {
                self.0.next(false, $take)
            }
        }

        impl std::iter::FusedIterator for $name {}
    )*};
}

double_ended! {
    Iter, (Slice, Slice), entry;
    Keys, Slice, key;
    Sizes, (Slice, u64), size;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_after_its_last_key() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
