//! [`Ends`]: moves and bounds what an iterator walks, and reads ahead, from both ends.
//!
//! An iterator keeps what it reads from, memtables too. Where memory is tight it becomes known to the engine, which may
//! then show it tables in their place ([`super::pin`]): from then on its cursors keep no memtable, and it looks at
//! each step whether they walk what it is shown. If not, both ends begin anew behind where they stood. Neither what was
//! handed out nor what was read ahead depends on it.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Weak};

use super::pin::{At, Pin};
use super::{Bounds, is_empty, successor};
use crate::cursor::{Cursor, MergeCursor, Seek};
use crate::db::database::Handle;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::value::ValuePointer;
use crate::lsm::paying::{self, Apart};
use crate::lsm::read::{self, Going};
use crate::lsm::unread::{self, Unread};
use crate::options::ReadOptions;
use crate::slice::Slice;
use crate::view::KeyspaceView;

/// One end of a range: where its cursor is, and what was read ahead of what was handed out.
#[derive(Default)]
struct End {
    cursor: Option<MergeCursor>,
    /// What the cursor walks, if it does not keep it.
    walks: Weak<KeyspaceView>,
    /// The key that a cursor stood on which was let go: the next one begins behind it.
    stood: Option<Vec<u8>>,
    /// Entries behind the one handed out last, up to the one the cursor stands on.
    ahead: VecDeque<(Slice, Slice)>,
    /// What came behind them: nothing more, or an error.
    behind: Option<Option<Error>>,
    /// What stands behind them and was walked over, its value too long to be read with theirs.
    left: Option<Found>,
    /// How many entries were handed out.
    handed: usize,
}

impl End {
    /// Lets go of its cursor. (One that stands on no entry is moved no more: what comes `behind` is known.)
    fn let_go(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            self.stood = cursor.key().map(<[u8]>::to_vec);
        }
    }
}

/// Both ends of what is left of a range, in one keyspace at one time.
pub(super) struct Ends {
    handle: Arc<Handle>,
    /// `None`: nothing more is read.
    pin: Option<Pin>,
    visible: SequenceNumber,
    options: ReadOptions,
    /// So many entries will be wanted, perhaps; `None`: one, and nothing is learned of it.
    expected: Option<usize>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: End,
    back: End,
    /// Of what was handed out.
    apart: Apart,
    /// Removed keys that were walked over, in data that keeps them.
    passed: usize,
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
    /// What `view` shows in `bounds`; an error is what it returns from the beginning.
    pub fn new(
        handle: Arc<Handle>,
        view: Result<Arc<KeyspaceView>>,
        visible: SequenceNumber,
        bounds: Bounds,
        options: ReadOptions,
    ) -> Ends {
        let empty = is_empty(&bounds);
        let (lower, upper) = bounds;
        let (view, error) = match view {
            Ok(view) => ((!empty).then_some(view), None),
            Err(error) => (None, Some(error)),
        };
        let (view, unread) = view
            .map(|view| unread::around(view, &lower, &upper))
            .map_or((None, None), |(v, u)| (Some(v), u));
        let expected = view.as_ref().map(|view| view.lengths.expected());
        let (pin, front, back) = (view.map(Pin::Own), End::default(), End::default());
        let mut ends = Ends {
            handle,
            pin,
            visible,
            options,
            expected,
            lower,
            upper,
            front,
            back,
            apart: Apart::default(),
            passed: 0,
            unread,
            error,
        };
        if ends.handle.engine.is_memory_tight() {
            ends.become_known();
        }
        ends
    }

    /// The same, of which one entry is wanted.
    pub fn one(mut self) -> Ends {
        self.expected = None;
        self
    }

    fn end(&mut self, front: bool) -> &mut End {
        if front { &mut self.front } else { &mut self.back }
    }

    /// Becomes known to the engine, if it is not yet: its memtables may be taken from now on. Its cursors keep none then.
    #[cold]
    fn become_known(&mut self) {
        if let Some(Pin::Own(view)) = &self.pin {
            let pinned = self.handle.engine.pin_keyspace(view, self.visible);
            self.front.let_go();
            self.back.let_go();
            self.pin = Some(Pin::Known(pinned));
        }
    }

    /// Moves the cursor of one end to the next entry inwards that is left.
    fn step(&mut self, front: bool) -> Result<Option<(At<'_>, &MergeCursor)>> {
        if self.handle.engine.is_memory_tight() {
            self.become_known();
        }
        let Some(pin) = &self.pin else { return Ok(None) };
        let (view, visible, walk) = (pin.view(), self.visible, self.options.walk());
        let (end, from, until) = match front {
            true => (&mut self.front, &self.lower, &self.upper),
            false => (&mut self.back, &self.upper, &self.lower),
        };
        let is_lent = matches!(view, At::Known(_));
        if is_lent && end.walks.as_ptr() != Arc::as_ptr(&view) {
            end.let_go();
        }
        let cursor = match &mut end.cursor {
            Some(cursor) => {
                cursor.advance()?;
                cursor
            }
            none => {
                let stood = end.stood.take().map(Bound::Excluded);
                let mut behind = Vec::new();
                let to = leads_to(stood.as_ref().unwrap_or(from), front, &mut behind);
                let until = until.as_ref().map(Vec::as_slice);
                let going = Going { walk, to, until, entries: self.expected.unwrap_or(1) };
                let cursor = match is_lent {
                    false => read::cursor(&view, visible, going),
                    true => {
                        end.walks = Arc::downgrade(&view);
                        read::lent_cursor(&view, visible, going)
                    }
                };
                let cursor = none.insert(cursor);
                cursor.seek(to)?;
                cursor
            }
        };
        let (lower, upper) = (&self.lower, &self.upper);
        let is_inside = |cursor: &MergeCursor| {
            cursor
                .key()
                .is_some_and(|key| if front { is_below(key, upper) } else { is_above(key, lower) })
        };
        let mut inside = is_inside(cursor);
        // What was removed behind the bound is not gone through.
        while inside && cursor.kind().0 == Kind::Tombstone {
            self.passed += 1;
            cursor.advance()?;
            inside = is_inside(cursor);
        }
        let stops = |unread: &Unread| unread.stops(cursor.key(), front).cloned();
        if let Some(error) = self.unread.as_deref().and_then(stops) {
            return Err(error);
        }
        Ok(inside.then_some((view, &*cursor)))
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
    pub fn next<T>(&mut self, front: bool, take: Take<T>) -> Option<Result<(Slice, T)>> {
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
    pub fn next_entry(&mut self, front: bool) -> Option<Result<(Slice, Slice)>> {
        if let Some(error) = &self.error {
            return Some(Err(error.clone()));
        }
        if self.end(front).ahead.is_empty() && self.end(front).behind.is_none() {
            let mut apart = Apart::default();
            let first = match self.end(front).left.take() {
                // The other end may have handed it out.
                Some(left) => Ok(self.is_left(&left.key).then_some(left)),
                None => match self.step(front) {
                    Ok(Some((view, cursor))) => {
                        match read::value_at_hand(&view, cursor, &mut apart) {
                            // What most walks meet most: a value that needs no read.
                            Ok(Some(value)) => {
                                let key = key_of(cursor);
                                self.hand_out(front, &key);
                                self.apart.join(apart);
                                return Some(Ok((key, value)));
                            }
                            Ok(None) => Found::of(cursor).map(Some),
                            Err(error) => Err(error),
                        }
                    }
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
    pub fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
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
            let mut apart = Apart::default();
            let first = match self.step(true) {
                Ok(None) => return Ok(()),
                Ok(Some((view, cursor))) => lend(view, cursor, &mut apart, &mut visit),
                Err(error) => Err(error),
            };
            self.apart.join(apart);
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
        let Some(pin) = &self.pin else { return };
        let loaded = load(&self.handle.engine, &pin.view(), &mut found);
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
    pub fn anew(mut self) -> Ends {
        (self.front, self.back) = (End::default(), End::default());
        self
    }

    fn met(&self, error: Error) -> Error {
        match &self.pin {
            Some(pin) => read::met_in(&pin.view(), error),
            None => error,
        }
    }

    /// How many removed keys were walked over so far.
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// Says how far the walk went, once, if it went anywhere (what was handed out before [`Ends::anew`] is not told of).
    fn tell_length(&mut self) {
        let passed = std::mem::take(&mut self.passed);
        if let (true, Some(pin)) = (passed > 0, &self.pin) {
            paying::owe_for_removed(&self.handle.engine, &pin.view(), passed);
        }
        let began = |end: &End| end.cursor.is_some() || end.stood.is_some();
        let began = began(&self.front) || began(&self.back);
        if began {
            self.handle.engine.context.metrics.walks.add(1);
        }
        if let (true, Some(_), Some(pin)) = (began, self.expected.take(), &self.pin) {
            let (view, entries) = (pin.view(), self.front.handed + self.back.handed);
            view.lengths.went(entries);
            let engine = &self.handle.engine;
            paying::owe_for_merging(engine, &view, entries);
            paying::owe_for_values(engine, &view, std::mem::take(&mut self.apart));
        }
    }

    /// Nothing more is read: lets go of what was held.
    fn finish(&mut self, error: Option<Error>) {
        self.tell_length();
        (self.front, self.back, self.pin) = (End::default(), End::default(), None);
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

/// Where the first entry within a bound is: upwards from a lower one, downwards from an upper one. The key that comes next
/// is put into `behind`, where it is needed.
fn leads_to<'a>(bound: &'a Bound<Vec<u8>>, front: bool, behind: &'a mut Vec<u8>) -> Seek<'a> {
    match (front, bound) {
        (true, Bound::Unbounded) => Seek::First,
        (true, Bound::Included(key)) => Seek::AtOrAfter(key),
        (true, Bound::Excluded(key)) => {
            *behind = successor(key);
            Seek::AtOrAfter(behind)
        }
        (false, Bound::Unbounded) => Seek::Last,
        (false, Bound::Included(key)) => {
            *behind = successor(key);
            Seek::Before(behind)
        }
        (false, Bound::Excluded(key)) => Seek::Before(key),
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
fn load(engine: &Arc<Engine>, view: &KeyspaceView, found: &mut [Found]) -> Result<()> {
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

/// Lends the entry that a cursor stands on to `visit`; of a value that must be read, says where it is. What is walked is
/// kept no longer than it takes to find it: `visit` may take as long as it likes.
fn lend(
    view: At<'_>,
    cursor: &MergeCursor,
    apart: &mut Apart,
    visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<std::result::Result<ControlFlow<()>, Found>> {
    let key = cursor.key().unwrap_or_default();
    if cursor.kind().0 != Kind::Pointer {
        drop(view);
        return Ok(Ok(visit(key, cursor.value())));
    }
    let at_hand = read::value_at_hand(&view, cursor, apart)?;
    drop(view);
    match at_hand {
        Some(value) => Ok(Ok(visit(key, &value))),
        None => Found::of(cursor).map(Err),
    }
}

/// What is handed out, beside its key, of the entry a cursor stands on.
pub(super) type Take<T> = fn(&dyn Cursor) -> Result<T>;

fn key_of(cursor: &dyn Cursor) -> Slice {
    Slice::copy_from(cursor.key().unwrap_or_default())
}
