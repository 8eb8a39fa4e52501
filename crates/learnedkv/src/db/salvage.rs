//! Walks over what can be read of a keyspace, behind what cannot.

use std::collections::BTreeSet;
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
/// is lost may have replaced or removed them. An error of which nobody knows what it hides ends the walk.
#[derive(Debug)]
#[must_use]
pub struct Salvage {
    keyspace: Keyspace,
    /// What is left begins here; `None`: nothing is.
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    /// At first it ends here: what cannot be read begins no earlier.
    before: Option<Vec<u8>>,
    /// The walk over that, once it is begun.
    keys: Option<Keys>,
    /// What cannot be read and comes before `from`, of which keys are still to be given.
    gap: Option<Gap>,
    /// What was said: the files, and where in them.
    told: BTreeSet<(PathBuf, Option<u64>)>,
}

/// The keys of a range in which something cannot be read.
#[derive(Debug)]
struct Gap {
    /// What is left of it begins here.
    from: Vec<u8>,
    /// The first key behind it; `None`: there is none.
    to: Option<Vec<u8>>,
    /// The tables that cannot be read there.
    lost: BTreeSet<PathBuf>,
    /// The walk over the others.
    keys: Option<Keys>,
    is_over: bool,
}

impl Gap {
    /// The next key that a get finds; or an error of another table.
    fn next(&mut self, keyspace: &Keyspace) -> Option<Result<Slice>> {
        while !self.is_over {
            let (from, to) = (&mut self.from, &self.to);
            let keys = self.keys.get_or_insert_with(|| {
                let to = to.clone().map_or(Bound::Unbounded, Bound::Excluded);
                keyspace.keys_without(&self.lost, (Bound::Included(from.clone()), to))
            });
            match keys.next()? {
                Ok(key) => {
                    go_behind(from, &key);
                    match keyspace.contains_key(&key) {
                        Ok(true) => return Some(Ok(key)),
                        Ok(false) => {}
                        Err(error) if error.is_corruption() => {}
                        // A device may try for seconds each time that it is asked for a place that it cannot read.
                        Err(_) => self.is_over = true,
                    }
                }
                Err(error) => {
                    self.keys = None;
                    // Without its table it goes on, or it would meet it again.
                    self.is_over =
                        error.path().is_none_or(|path| !self.lost.insert(path.to_owned()));
                    return Some(Err(error));
                }
            }
        }
        None
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
        let (from, told) = (Some(from), BTreeSet::new());
        Salvage { keyspace, from, to, before: None, keys: None, gap: None, told }
    }

    /// Whether it is the first time that this is met.
    fn is_news(&mut self, error: &Error) -> bool {
        let place = (error.path().map(Path::to_owned).unwrap_or_default(), error.offset_bytes());
        self.told.insert(place)
    }
}

impl Iterator for Salvage {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Result<Slice>> {
        loop {
            match self.gap.as_mut().and_then(|gap| gap.next(&self.keyspace)) {
                Some(Err(error)) if !self.is_news(&error) => continue,
                Some(next) => return Some(next),
                None => self.gap = None,
            }
            let from = self.from.as_mut()?;
            let end = self.before.as_ref().or(self.to.as_ref());
            let keys = self.keys.get_or_insert_with(|| {
                let to = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_slice()));
                self.keyspace.range::<&[u8]>((Bound::Included(&from[..]), to)).keys()
            });
            match keys.next() {
                Some(Ok(key)) => {
                    go_behind(from, &key);
                    return Some(Ok(key));
                }
                Some(Err(error)) => {
                    self.keys = None;
                    // A walk looks at what a table has first before it comes there.
                    let first = self.keyspace.first_behind(&error, from);
                    let is_ahead =
                        |first: &Vec<u8>| first > from && end.is_none_or(|end| first < end);
                    if let Some(first) = first.filter(is_ahead) {
                        self.before = Some(first);
                        continue;
                    }
                    self.before = None;
                    let behind = self.keyspace.readable_behind(&error, from);
                    if let (Some(behind), Some(path)) = (&behind, error.path()) {
                        let to = least_end(Some(behind), self.to.as_deref()).map(<[u8]>::to_vec);
                        let lost = BTreeSet::from([path.to_owned()]);
                        self.gap =
                            Some(Gap { from: from.clone(), to, lost, keys: None, is_over: false });
                    }
                    self.from = behind;
                    if self.is_news(&error) {
                        return Some(Err(error));
                    }
                }
                None => {
                    self.keys = None;
                    self.from = self.before.take();
                }
            }
        }
    }
}
