//! Iterators: from both ends, holding what they read.
//!
//! [`Ends`] moves, bounds and reads ahead; [`Iter`], [`Keys`] and [`Sizes`] say what of an entry is handed
//! out.

mod ends;
mod pin;

use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

use self::ends::Ends;
use super::database::Handle;
use crate::error::Result;
use crate::format::entry::SequenceNumber;
use crate::format::range::is_before;
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

/// The first key of a range and the first behind it (`None`: there is none); `None` if no key lies in it.
pub(crate) fn half_open(bounds: Bounds) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let from = match bounds.0 {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key,
        Bound::Excluded(key) => successor(&key),
    };
    let to = match bounds.1 {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(successor(&key)),
        Bound::Excluded(key) => Some(key),
    };
    is_before(&from, to.as_deref()).then_some((from, to))
}

/// The entries of a key range in ascending order, or from the back in descending order, as they
/// were when the iterator was made. It is `'static` and keeps what it reads from: files, and memtables, which count in the
/// memory budget; where memory is tight they are written to a file in their place, as a snapshot's are.
///
/// Values kept apart from their keys are read together: for as many entries as walks of the keyspace usually go over (16
/// values at most), then for more and more (64 or
/// 256 KiB at most); they are held until they are handed out. A reader that wants a few keys' values only
/// does better with [`Iter::keys`] and `get`.
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
        Iter(Ends::new(handle, view, visible, bounds, options))
    }

    /// How many removed keys it has walked over.
    pub(crate) fn passed(&self) -> usize {
        self.0.passed()
    }

    /// The same, of which one entry is wanted: no more is read, and nothing is learned of how far walks go.
    pub(crate) fn one(self) -> Iter {
        Iter(self.0.one())
    }

    /// Goes over what is left in ascending order and lends each key and value to `visit`, until that breaks or nothing is
    /// left. It is what a `for` loop does, and faster (docs/decisions/0047): no key is copied, and of values nothing is
    /// shared.
    ///
    /// # Errors
    /// As the iterator returns them; what came before was visited.
    pub fn visit(mut self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        self.0.visit(visit)
    }

    /// The keys alone, of what is left. Values kept apart from their keys are not read; those beside them are,
    /// with the blocks, and not copied.
    pub fn keys(self) -> Keys {
        Keys(self.0.anew())
    }

    /// The keys and the lengths of their values, bytes, of what is left; values as in [`Iter::keys`].
    pub fn sizes(self) -> Sizes {
        Sizes(self.0.anew())
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
    ($($name:ident, $item:ty, $next:expr;)*) => {$(
        impl Iterator for $name {
            type Item = Result<$item>;

            fn next(&mut self) -> Option<Self::Item> {
                $next(&mut self.0, true)
            }
        }

        impl DoubleEndedIterator for $name {
            fn next_back(&mut self) -> Option<Self::Item> {
                $next(&mut self.0, false)
            }
        }

        impl std::iter::FusedIterator for $name {}
    )*};
}

double_ended! {
    Iter, (Slice, Slice), Ends::next_entry;
    Keys, Slice, next_key;
    Sizes, (Slice, u64), next_size;
}

fn next_key(ends: &mut Ends, front: bool) -> Option<Result<Slice>> {
    Some(ends.next(front, |_| Ok(()))?.map(|(key, ())| key))
}

fn next_size(ends: &mut Ends, front: bool) -> Option<Result<(Slice, u64)>> {
    ends.next(front, read::size_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_has_its_place_between_keys() {
        use Bound::{Excluded, Included, Unbounded};
        let key = |text: &str| text.as_bytes().to_vec();
        let half = |from: &str, to: Option<&str>| Some((key(from), to.map(key)));
        let of = |from, to| half_open((from, to));
        assert_eq!(of(Unbounded, Unbounded), half("", None));
        assert_eq!(of(Included(key("a")), Excluded(key("c"))), half("a", Some("c")));
        assert_eq!(of(Excluded(key("a")), Included(key("c"))), half("a\0", Some("c\0")));
        assert_eq!(of(Included(key("a")), Included(key("a"))), half("a", Some("a\0")));
        assert_eq!(of(Unbounded, Included(key(""))), half("", Some("\0")));
        // Nothing lies before the empty key, or between a key and its successor.
        assert_eq!(of(Unbounded, Excluded(key(""))), None);
        assert_eq!(of(Excluded(key("a")), Excluded(key("a\0"))), None);
        assert_eq!(of(Excluded(key("a")), Included(key("a"))), None);
        assert_eq!(of(Included(key("c")), Excluded(key("a"))), None);
    }

    #[test]
    fn a_prefix_ends_after_its_last_key() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
