//! Where a walk must stop because tables could not be opened ([`Table::damage`]): it goes over all
//! others, up to the first key that may be in one of these, and fails there.
//!
//! [`Table::damage`]: crate::sstable::reader::Table::damage

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use super::read;
use crate::error::Error;
use crate::format::range::least_end;
use crate::sstable::cursor::Clipped;
use crate::view::KeyspaceView;

/// The part of a range of keys that tables which could not be opened may have entries in.
#[derive(Debug)]
pub struct Unread {
    /// Its first key, and why that cannot be read.
    first: (Vec<u8>, Error),
    /// The first key behind it (`None`: there is none), and why the last one before cannot be read.
    end: (Option<Vec<u8>>, Error),
}

impl Unread {
    /// Of a keyspace between two bounds; `None` if nothing there is concerned.
    pub fn between(
        view: &KeyspaceView,
        lower: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
    ) -> Option<Unread> {
        let damaged = read::tables(view).filter_map(|clipped| {
            let damage = clipped.table.damage()?.clone();
            let (first, end) = extent(&clipped)?;
            let ends_above = match lower {
                Bound::Unbounded => true,
                Bound::Included(lower) => end.as_ref().is_none_or(|end| end > lower),
                Bound::Excluded(lower) => {
                    end.as_ref().is_none_or(|end| *end > [lower.as_slice(), &[0]].concat())
                }
            };
            let begins_below = match upper {
                Bound::Unbounded => true,
                Bound::Included(upper) => first <= *upper,
                Bound::Excluded(upper) => first < *upper,
            };
            let unread = Unread { first: (first, damage.clone()), end: (end, damage) };
            (ends_above && begins_below).then_some(unread)
        });
        damaged.reduce(Unread::with)
    }

    fn with(self, other: Unread) -> Unread {
        let first = if other.first.0 < self.first.0 { other.first } else { self.first };
        let is_last = match (&self.end.0, &other.end.0) {
            (Some(one), Some(other)) => one >= other,
            (one, _) => one.is_none(),
        };
        Unread { first, end: if is_last { self.end } else { other.end } }
    }

    /// Why a walk that comes to `key` next, upwards or downwards, must stop, if it must. `None` is
    /// the end of the range.
    pub fn stops(&self, key: Option<&[u8]>, upwards: bool) -> Option<&Error> {
        let (first, end) = (self.first.0.as_slice(), self.end.0.as_deref());
        let is_reached = key.is_none_or(|key| match upwards {
            true => key >= first,
            false => end.is_none_or(|end| key < end),
        });
        is_reached.then_some(if upwards { &self.first.1 } else { &self.end.1 })
    }
}

/// The first key from `from` on that may be in the table of which this is the file, if that is opened.
pub fn first_of(view: &KeyspaceView, path: &Path, from: &[u8]) -> Option<Vec<u8>> {
    let parts = read::tables(view).filter(|part| part.table.path() == path);
    let opened = parts.filter(|part| part.table.damage().is_none());
    let extents = opened.filter_map(|part| extent(&part));
    let mut left = extents.filter(|(_, end)| end.as_deref().is_none_or(|end| end > from));
    left.next().map(|(first, _)| first)
}

/// The first key that may be in a table, and the first behind all that may; `None` if there is
/// none.
fn extent(clipped: &Clipped) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    if clipped.table.has_unknown_ranges() {
        return Some((clipped.lower.clone(), clipped.upper.clone()));
    }
    let properties = clipped.table.properties();
    let behind = [properties.largest.as_slice(), &[0]].concat();
    let end = least_end(Some(&behind), clipped.upper.as_deref()).map(<[u8]>::to_vec);
    let first = properties.smallest.clone().max(clipped.lower.clone());
    clipped.is_inhabited().then_some((first, end))
}

/// What a walk between two bounds goes over: the keyspace without the tables that could not be
/// opened, and where it must stop.
pub fn around(
    view: Arc<KeyspaceView>,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
) -> (Arc<KeyspaceView>, Option<Box<Unread>>) {
    if view.tables.damaged.is_empty() {
        return (view, None);
    }
    let unread = Unread::between(&view, lower, upper);
    let tables = view.tables.readable().clone();
    (Arc::new(KeyspaceView { tables, ..KeyspaceView::clone(&view) }), unread.map(Box::new))
}
