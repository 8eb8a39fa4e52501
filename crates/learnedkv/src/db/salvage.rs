//! Walks over what can be read of a keyspace, behind what cannot.

use std::collections::BTreeSet;
use std::mem;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};

use super::{Keys, Keyspace};
use crate::Slice;
use crate::error::{Error, Result};
use crate::format::range::least_end;

/// The keys that can be read, in order; in between, once each, the errors of what cannot. Made by [`Keyspace::salvage`].
///
/// Where a block or a table cannot be read, it goes on behind that. Of the keys in between those are given that a get finds: of newer tables,
/// and of older ones where the filter of what is lost says that it had nothing to say of them. Others are left out: what
/// is lost may have replaced or removed them.
#[derive(Debug)]
#[must_use]
pub struct Salvage {
    keyspace: Keyspace,
    /// What is left, the last first.
    stretches: Vec<Stretch>,
    /// What was said: the files, and where in them.
    told: BTreeSet<(PathBuf, Option<u64>)>,
}

/// What is left of a range of keys.
#[derive(Debug)]
struct Stretch {
    /// It begins here.
    from: Vec<u8>,
    /// The first key behind it; `None`: there is none.
    to: Option<Vec<u8>>,
    /// At first it ends here: what cannot be read begins no earlier.
    before: Option<Vec<u8>>,
    /// The tables that cannot be read anywhere in it. Where there are some, the others say which keys there may be, and gets which there are.
    lost: BTreeSet<PathBuf>,
    /// The walk over it, once it is begun.
    keys: Option<Keys>,
    /// How often the disk refused a read of one of the lost tables.
    refused: u32,
}

/// So often it is asked again: a device may try for seconds each time that it cannot read a place.
const MOST_REFUSED: u32 = 3;

impl Stretch {
    fn new(from: Vec<u8>, to: Option<Vec<u8>>, lost: BTreeSet<PathBuf>) -> Stretch {
        Stretch { from, to, before: None, lost, keys: None, refused: 0 }
    }

    /// The next key of its walk, or what that meets.
    fn next(&mut self, keyspace: &Keyspace) -> Option<Result<Slice>> {
        loop {
            let Stretch { from, to, before, lost, keys, .. } = self;
            let keys = keys.get_or_insert_with(|| {
                let end = before.as_ref().or(to.as_ref()).cloned();
                let end = end.map_or(Bound::Unbounded, Bound::Excluded);
                let bounds = (Bound::Included(from.clone()), end);
                match lost.is_empty() {
                    true => keyspace.range::<Vec<u8>>(bounds).keys(),
                    false => keyspace.keys_without(lost, bounds),
                }
            });
            let next = keys.next();
            if next.is_none() {
                self.keys = None;
                self.from = self.before.take()?;
                continue;
            }
            return next;
        }
    }

    /// Its walk has met what cannot be read, and goes on before that if that comes later: a walk looks at what a table has first
    /// before it comes there. False: there is nothing before it.
    fn ends_before(&mut self, keyspace: &Keyspace, error: &Error) -> bool {
        self.keys = None;
        let end = self.before.as_ref().or(self.to.as_ref());
        let first = keyspace.first_behind(error, &self.from);
        let is_ahead = |first: &Vec<u8>| *first > self.from && end.is_none_or(|end| first < end);
        self.before = first.filter(is_ahead);
        self.before.is_some()
    }

    /// Whether a get goes on beside what another has met: of what is known to be lost, or refused for once.
    fn goes_on_beside(&mut self, keyspace: &Keyspace, error: &Error) -> bool {
        if error.is_corruption() || keyspace.could_not_open(error) {
            return true;
        }
        let is_lost = error.path().is_some_and(|path| self.lost.contains(path));
        self.refused += u32::from(is_lost);
        is_lost && self.refused <= MOST_REFUSED
    }

    /// What is left where its walk, or a get, has met what cannot be read: what lies behind that, and, first, what lies over it,
    /// without its table, unless it is without that already. Nothing where the error is of no table.
    fn round(mut self, keyspace: &Keyspace, error: &Error) -> [Option<Stretch>; 2] {
        let Some(path) = error.path().map(Path::to_owned) else { return [None, None] };
        // Where nobody knows what it hides, that may be all.
        let behind = keyspace.readable_behind(error, &self.from).filter(|key| *key > self.from);
        let to = least_end(behind.as_deref(), self.to.as_deref()).map(<[u8]>::to_vec);
        let mut lost = self.lost.clone();
        let from = mem::take(&mut self.from);
        let over = lost.insert(path).then(|| Stretch::new(from, to, lost));
        let is_left = |behind: &Vec<u8>| self.to.as_ref().is_none_or(|to| behind < to);
        let behind = behind.filter(is_left);
        [behind.map(|from| Stretch { from, before: None, keys: None, ..self }), over]
    }
}

/// Has `from` be the first key behind `key`.
fn go_behind(from: &mut Vec<u8>, key: &[u8]) {
    from.clear();
    from.extend_from_slice(key);
    from.push(0);
}

impl Salvage {
    pub(super) fn new<K: AsRef<[u8]>>(keyspace: Keyspace, range: impl RangeBounds<K>) -> Salvage {
        let behind = |key: &K| [key.as_ref(), &[0]].concat();
        let from = match range.start_bound() {
            Bound::Included(key) => key.as_ref().to_vec(),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let to = match range.end_bound() {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        let all = Stretch::new(from, to, BTreeSet::new());
        Salvage { keyspace, stretches: vec![all], told: BTreeSet::new() }
    }

    /// Goes on behind what cannot be read, and over it. The error, if it is the first time that this is met.
    fn go_round(&mut self, error: Error) -> Option<Error> {
        let left = self.stretches.pop()?.round(&self.keyspace, &error);
        self.stretches.extend(left.into_iter().flatten());
        self.news(error)
    }

    /// The error, if it is the first time that this is met.
    fn news(&mut self, error: Error) -> Option<Error> {
        let place = (error.path().map(Path::to_owned).unwrap_or_default(), error.offset_bytes());
        self.told.insert(place).then_some(error)
    }
}

impl Iterator for Salvage {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Result<Slice>> {
        loop {
            let stretch = self.stretches.last_mut()?;
            match stretch.next(&self.keyspace) {
                Some(Ok(key)) => {
                    go_behind(&mut stretch.from, &key);
                    if stretch.lost.is_empty() {
                        return Some(Ok(key));
                    }
                    match self.keyspace.contains_key(&key) {
                        Ok(true) => return Some(Ok(key)),
                        Ok(false) => {}
                        Err(error) => {
                            let goes_on = stretch.goes_on_beside(&self.keyspace, &error);
                            let news =
                                if goes_on { self.news(error) } else { self.go_round(error) };
                            if let Some(error) = news {
                                return Some(Err(error));
                            }
                        }
                    }
                }
                Some(Err(error)) => {
                    if stretch.ends_before(&self.keyspace, &error) {
                        continue;
                    }
                    if let Some(error) = self.go_round(error) {
                        return Some(Err(error));
                    }
                }
                None => drop(self.stretches.pop()),
            }
        }
    }
}
