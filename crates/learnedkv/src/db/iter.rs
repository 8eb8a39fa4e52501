//! Iterators: from both ends, holding what they read.
//!
//! [`Ends`] moves, bounds and reads ahead; [`Iter`], [`Keys`] and [`Sizes`] say what of an entry is handed
//! out.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

use super::database::Handle;
use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::is_before;
use crate::format::value::ValuePointer;
use crate::lsm::read;
use crate::lsm::unread::{self, Unread};
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

/// One end of a range: where its cursor is, and what was read ahead of what was handed out.
#[derive(Default)]
struct End {
    cursor: Option<MergeCursor>,
    /// Entries behind the one handed out last, up to the one the cursor stands on.
    ahead: VecDeque<(Slice, Slice)>,
    /// What came behind them: nothing more, or an error.
    behind: Option<Option<Error>>,
    /// What stands behind them and was walked over, its value too long to be read with theirs.
    left: Option<Found>,
    /// How many entries were handed out.
    handed: usize,
}

/// Both ends of what is left of a range, in one keyspace at one time.
struct Ends {
    handle: Arc<Handle>,
    /// `None`: nothing more is read.
    view: Option<Arc<KeyspaceView>>,
    visible: SequenceNumber,
    options: ReadOptions,
    /// So many entries will be wanted, perhaps; `None`: one, and nothing is learned of it.
    expected: Option<usize>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: End,
    back: End,
    /// Where both ends must stop, if they must.
    unread: Option<Box<Unread>>,
    error: Option<Error>,
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("lower", &self.lower).field("upper", &self.upper).finish()
    }
}

/// Values kept apart are read together for so many entries at most, at each end,
const AHEAD_ENTRIES: usize = 64;
/// so many at first, however far walks go,
const AHEAD_EXPECTED: usize = 16;
/// the values of all these, if they are more than one, so long at most, bytes.
const AHEAD_BYTES: u64 = 256 << 10;

impl Ends {
    fn end(&mut self, front: bool) -> &mut End {
        if front { &mut self.front } else { &mut self.back }
    }

    /// Moves the cursor of one end to the next entry inwards that is left.
    fn step(&mut self, front: bool) -> Result<Option<(&KeyspaceView, &MergeCursor)>> {
        let (Some(view), visible, walk) = (&self.view, self.visible, self.options.walk()) else {
            return Ok(None);
        };
        let (end, until) = match front {
            true => (&mut self.front, &self.upper),
            false => (&mut self.back, &self.lower),
        };
        let is_new = end.cursor.is_none();
        let entries = self.expected.unwrap_or(1);
        let cursor = end.cursor.get_or_insert_with(|| {
            let until = match until {
                Bound::Included(key) | Bound::Excluded(key) => Some(key.as_slice()),
                Bound::Unbounded => None,
            };
            read::cursor(view, visible, walk, entries, until)
        });
        if is_new {
            seek(cursor, if front { &self.lower } else { &self.upper }, front)?;
        } else {
            cursor.advance()?;
        }
        let (lower, upper) = (&self.lower, &self.upper);
        let is_inside = |cursor: &MergeCursor| {
            cursor
                .key()
                .is_some_and(|key| if front { is_below(key, upper) } else { is_above(key, lower) })
        };
        let mut inside = is_inside(cursor);
        // What was removed behind the bound is not gone through.
        while inside && cursor.kind().0 == Kind::Tombstone {
            cursor.advance()?;
            inside = is_inside(cursor);
        }
        let stops = |unread: &Unread| unread.stops(cursor.key(), front).cloned();
        if let Some(error) = self.unread.as_deref().and_then(stops) {
            return Err(error);
        }
        Ok(inside.then_some((&**view, &*cursor)))
    }

    /// Whether neither end has come to a key yet.
    fn is_left(&self, key: &[u8]) -> bool {
        is_above(key, &self.lower) && is_below(key, &self.upper)
    }

    /// The other end stops before what is handed out here.
    fn hand_out(&mut self, front: bool, key: &[u8]) {
        let end = self.end(front);
        end.handed += 1;
        let bound = if front { &mut self.lower } else { &mut self.upper };
        let mut memory = match std::mem::replace(bound, Bound::Unbounded) {
            Bound::Included(memory) | Bound::Excluded(memory) => memory,
            Bound::Unbounded => Vec::new(),
        };
        memory.clear();
        memory.extend_from_slice(key);
        *bound = Bound::Excluded(memory);
    }

    /// Goes on at one end, and hands out what `take` takes of the entry there, which is not its value.
    fn next<T>(&mut self, front: bool, take: Take<T>) -> Option<Result<(Slice, T)>> {
        if let Some(error) = &self.error {
            return Some(Err(error.clone()));
        }
        let taken = self.step(front).and_then(|cursor| match cursor {
            Some((_, cursor)) => Ok(Some((key_of(cursor), take(cursor)?))),
            None => Ok(None),
        });
        let taken = taken.map_err(|error| self.met(error));
        match &taken {
            Ok(Some((key, _))) => self.hand_out(front, &key.clone()),
            Ok(None) => self.finish(None),
            Err(error) => self.finish(Some(error.clone())),
        }
        taken.transpose()
    }

    /// Goes on at one end, and hands out the entry there.
    fn next_entry(&mut self, front: bool) -> Option<Result<(Slice, Slice)>> {
        if let Some(error) = &self.error {
            return Some(Err(error.clone()));
        }
        if self.end(front).ahead.is_empty() && self.end(front).behind.is_none() {
            let first = match self.end(front).left.take() {
                // The other end may have handed it out.
                Some(left) => Ok(self.is_left(&left.key).then_some(left)),
                None => match self.step(front) {
                    Ok(Some((view, cursor))) => match read::value_at_hand(view, cursor) {
                        // What most walks meet most: a value that needs no read.
                        Ok(Some(value)) => {
                            let key = key_of(cursor);
                            self.hand_out(front, &key);
                            return Some(Ok((key, value)));
                        }
                        Ok(None) => Found::of(cursor).map(Some),
                        Err(error) => Err(error),
                    },
                    Ok(None) => Ok(None),
                    Err(error) => Err(error),
                },
            };
            self.read_ahead(front, first);
        }
        let entry = match self.end(front).ahead.pop_front() {
            Some(entry) => entry,
            None => {
                let error = self.end(front).behind.take().flatten().map(|error| self.met(error));
                self.finish(error.clone());
                return error.map(Err);
            }
        };
        // The other end may have handed it out since it was read.
        if !self.is_left(&entry.0) {
            self.finish(None);
            return None;
        }
        self.hand_out(front, &entry.0);
        Some(Ok(entry))
    }

    /// Lends all that is left to `visit`, from the front, until it breaks.
    fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        loop {
            let end = &self.front;
            let is_read = !end.ahead.is_empty() || end.behind.is_some() || end.left.is_some();
            if is_read || self.error.is_some() {
                // Values that were read together.
                let Some(entry) = self.next_entry(true).transpose()? else { return Ok(()) };
                if visit(&entry.0, &entry.1).is_break() {
                    return Ok(());
                }
                continue;
            }
            let lend =
                |view: &_, cursor: &MergeCursor, visit: &mut dyn FnMut(&[u8], &[u8]) -> _| {
                    let key = cursor.key().unwrap_or_default();
                    if cursor.kind().0 != Kind::Pointer {
                        return Ok(Ok(visit(key, cursor.value())));
                    }
                    match read::value_at_hand(view, cursor)? {
                        Some(value) => Ok(Ok(visit(key, &value))),
                        None => Found::of(cursor).map(Err),
                    }
                };
            let first = match self.step(true) {
                Ok(None) => return Ok(()),
                Ok(Some((view, cursor))) => lend(view, cursor, &mut visit),
                Err(error) => Err(error),
            };
            match first {
                Ok(Ok(flow)) => {
                    self.front.handed += 1;
                    if flow.is_break() {
                        return Ok(());
                    }
                }
                Ok(Err(found)) => self.read_ahead(true, Ok(Some(found))),
                Err(error) => self.read_ahead(true, Err(error)),
            }
        }
    }

    /// Behind the entry that comes `first` at one end, whose value must be read, walks over others, as many as are still
    /// expected to be wanted, or as were handed out so far, and reads their values together.
    fn read_ahead(&mut self, front: bool, first: Result<Option<Found>>) {
        let handed = self.end(front).handed;
        let expected = self.expected.unwrap_or(1).saturating_sub(handed);
        let most = AHEAD_ENTRIES.min(expected.max(handed + 1));
        let mut found: Vec<Found> = Vec::new();
        // Each of these may be a request of its own: no more of them for what is but expected.
        let most_apart = AHEAD_EXPECTED.max(handed + 1);
        let (mut bytes, mut apart, mut next, mut left) = (0, 0, first, None);
        let behind = loop {
            match next {
                Ok(Some(next)) => {
                    let length = next.value_bytes();
                    if !found.is_empty() && bytes + length > AHEAD_BYTES {
                        left = Some(next);
                        break None;
                    }
                    bytes += length;
                    apart += usize::from(next.apart.is_some());
                    found.push(next);
                }
                Ok(None) => break Some(None),
                Err(error) => break Some(Some(error)),
            }
            if found.len() >= most || apart >= most_apart || bytes >= AHEAD_BYTES {
                break None;
            }
            next = self.step(front).and_then(|at| at.map(|(_, at)| Found::of(at)).transpose());
        };
        let Some(view) = self.view.clone() else { return };
        let loaded = load(&self.handle.engine, &view, &mut found);
        let end = self.end(front);
        (end.behind, end.left) = (behind, left);
        if let Err(error) = loaded {
            // The entries before the one that cannot be read are handed out.
            (end.behind, end.left) = (Some(Some(error)), None);
        }
        let read = found.into_iter().map_while(|found| Some((found.key, found.value?)));
        end.ahead.extend(read);
    }

    /// The same of what is left, nothing of it read yet: what was read ahead is not handed out.
    fn anew(mut self) -> Ends {
        (self.front, self.back) = (End::default(), End::default());
        self
    }

    fn met(&self, error: Error) -> Error {
        match &self.view {
            Some(view) => read::met_in(view, error),
            None => error,
        }
    }

    /// Says how far the walk went, once, if it went anywhere (what was handed out before [`Ends::anew`] is not told of).
    fn tell_length(&mut self) {
        let began = self.front.cursor.is_some() || self.back.cursor.is_some();
        if let (true, Some(_), Some(view)) = (began, self.expected.take(), &self.view) {
            view.lengths.went(self.front.handed + self.back.handed);
        }
    }

    /// Nothing more is read: lets go of what was held.
    fn finish(&mut self, error: Option<Error>) {
        self.tell_length();
        (self.front, self.back, self.view) = (End::default(), End::default(), None);
        self.error = error;
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.tell_length();
    }
}

fn is_above(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(lower) => key >= lower.as_slice(),
        Bound::Excluded(lower) => key > lower.as_slice(),
    }
}

fn is_below(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => key <= upper.as_slice(),
        Bound::Excluded(upper) => key < upper.as_slice(),
    }
}

/// Goes to the first entry within a bound: upwards from a lower one, downwards from an upper one.
fn seek(cursor: &mut MergeCursor, bound: &Bound<Vec<u8>>, front: bool) -> Result<()> {
    match (front, bound) {
        (true, Bound::Unbounded) => cursor.seek(Seek::First),
        (true, Bound::Included(key)) => cursor.seek(Seek::AtOrAfter(key)),
        (true, Bound::Excluded(key)) => cursor.seek(Seek::AtOrAfter(&successor(key))),
        (false, Bound::Unbounded) => cursor.seek(Seek::Last),
        (false, Bound::Included(key)) => cursor.seek(Seek::Before(&successor(key))),
        (false, Bound::Excluded(key)) => cursor.seek(Seek::Before(key)),
    }
}

/// An entry that was walked over: its value, or where it is.
struct Found {
    key: Slice,
    value: Option<Slice>,
    apart: Option<ValuePointer>,
}

impl Found {
    /// How long its value is.
    fn value_bytes(&self) -> u64 {
        let here = self.value.as_ref().map_or(0, |value| value.len() as u64);
        self.apart.map_or(here, |pointer| pointer.length)
    }

    fn of(cursor: &MergeCursor) -> Result<Found> {
        let key = key_of(cursor);
        match cursor.kind().0 {
            Kind::Pointer => {
                let apart = Some(ValuePointer::decode(cursor.value())?);
                Ok(Found { key, value: None, apart })
            }
            _ => Ok(Found { key, value: Some(cursor.value_slice()), apart: None }),
        }
    }
}

/// Reads the values that are kept apart, together; if one of them cannot be read, those before it.
fn load(engine: &Engine, view: &KeyspaceView, found: &mut [Found]) -> Result<()> {
    let wanted = found.iter().filter_map(|found| Some((&*found.key, found.apart?)));
    if let Ok(values) = read::load_all(engine, view, &wanted.collect::<Vec<_>>()) {
        let apart = found.iter_mut().filter(|found| found.apart.is_some());
        apart.zip(values).for_each(|(found, value)| found.value = Some(value));
        return Ok(());
    }
    for found in found {
        if let Some(pointer) = found.apart {
            let value = read::load_all(engine, view, &[(&*found.key, pointer)])?.pop();
            found.value = value;
        }
    }
    Ok(())
}

/// What is handed out, beside its key, of the entry a cursor stands on.
type Take<T> = fn(&dyn Cursor) -> Result<T>;

fn key_of(cursor: &dyn Cursor) -> Slice {
    Slice::copy_from(cursor.key().unwrap_or_default())
}

/// The entries of a key range in ascending order, or from the back in descending order, as they
/// were when the iterator was made. It is `'static` and keeps what it reads from.
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
        let empty = is_empty(&bounds);
        let (lower, upper) = bounds;
        let (view, error) = match view {
            Ok(view) => ((!empty).then_some(view), None),
            Err(error) => (None, Some(error)),
        };
        let (view, unread) = view
            .map(|view| unread::around(view, &lower, &upper))
            .map_or((None, None), |(v, u)| (Some(v), u));
        let (front, back) = (End::default(), End::default());
        let expected = view.as_ref().map(|view| view.lengths.expected());
        Iter(Ends {
            handle,
            view,
            visible,
            options,
            expected,
            lower,
            upper,
            front,
            back,
            unread,
            error,
        })
    }

    /// The same, of which one entry is wanted: no more is read, and nothing is learned of how far walks go.
    pub(crate) fn one(mut self) -> Iter {
        self.0.expected = None;
        self
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
