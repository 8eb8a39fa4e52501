//! Bytes lent by the store: cheap to clone, alive for as long as somebody holds them; and what a
//! lookup finds.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::format::block::Block;
use crate::memory::Shared;

/// A key or a value that the store handed out.
///
/// It derefs to `[u8]`. It shares the block or the memtable entry it stands in, so that a clone
/// copies nothing; holding it keeps those bytes in memory, or, where they were read in a mapped file
/// (`Builder::mapped_reads`), that file on the disk. What is to be kept for long is better copied.
#[derive(Clone)]
pub struct Slice {
    owner: Owner,
    start: usize,
    end: usize,
}

#[derive(Clone)]
enum Owner {
    Block(Arc<Block>),
    Bytes(Bytes),
    Payload(Shared),
    /// A copy of its own, short.
    Short([u8; SHORT_BYTES]),
}

/// Copies of so many bytes at most stand in the slice itself.
const SHORT_BYTES: usize = 32;

impl Slice {
    pub(crate) fn of_block(block: Arc<Block>, range: std::ops::Range<usize>) -> Slice {
        Slice { owner: Owner::Block(block), start: range.start, end: range.end }
    }

    pub(crate) fn of_bytes(bytes: Bytes, range: std::ops::Range<usize>) -> Slice {
        Slice { owner: Owner::Bytes(bytes), start: range.start, end: range.end }
    }

    pub(crate) fn of_shared(bytes: Shared, range: std::ops::Range<usize>) -> Slice {
        Slice { owner: Owner::Payload(bytes), start: range.start, end: range.end }
    }

    /// A slice with bytes of its own.
    pub fn copy_from(bytes: &[u8]) -> Slice {
        let mut short = [0; SHORT_BYTES];
        let owner = match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Owner::Short(short)
            }
            None => Owner::Bytes(Bytes::copy_from_slice(bytes)),
        };
        Slice { owner, start: 0, end: bytes.len() }
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = match &self.owner {
            Owner::Block(block) => block.bytes(),
            Owner::Bytes(bytes) => bytes,
            Owner::Payload(bytes) => bytes,
            Owner::Short(bytes) => bytes,
        };
        &bytes[self.start..self.end]
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A map by slices is asked by bytes.
impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Slice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Vec<u8> {
        slice.to_vec()
    }
}

/// What a lookup found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The newest version is this value.
    Value(Slice),
    /// The newest version is a value kept apart; this is the pointer's payload.
    Pointer(Slice),
    /// The newest version says that the key was removed.
    Removed,
    /// Nothing here: look at older data.
    Absent,
}
