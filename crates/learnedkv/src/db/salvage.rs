//! Walks over what can be read of a keyspace, behind what cannot.

use std::ops::{Bound, RangeBounds};

use super::{Keys, Keyspace};
use crate::Slice;
use crate::error::Result;

/// The keys that can be read, in order; in between, once each, the errors of what cannot. Made by [`Keyspace::salvage`].
///
/// Where a block or a table cannot be read, it goes on behind that. All keys in between are left out, of other tables too: what is lost may
/// have replaced or removed these. An error of which nobody knows what it hides ends the walk.
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
        Salvage { keyspace, from: Some(from), to, before: None, keys: None }
    }
}

impl Iterator for Salvage {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Result<Slice>> {
        loop {
            let from = self.from.as_mut()?;
            let end = self.before.as_ref().or(self.to.as_ref());
            let keys = self.keys.get_or_insert_with(|| {
                let to = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_slice()));
                self.keyspace.range::<&[u8]>((Bound::Included(&from[..]), to)).keys()
            });
            match keys.next() {
                Some(Ok(key)) => {
                    from.clear();
                    from.extend_from_slice(&key);
                    from.push(0);
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
                    self.from = self.keyspace.readable_behind(&error, from);
                    return Some(Err(error));
                }
                None => {
                    self.keys = None;
                    self.from = self.before.take();
                }
            }
        }
    }
}
