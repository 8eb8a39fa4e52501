//! Separators in short: planning makes one for each block, and an allocation for each was a quarter of the
//! plan.

use std::fmt;
use std::ops::Deref;

/// How many bytes stand in place.
const HERE: usize = 22;

/// A byte string that mostly stands in place: only one of more than 22 bytes has memory of its own.
#[derive(Clone)]
pub struct Separator(Bytes);

#[derive(Clone)]
enum Bytes {
    Here(u8, [u8; HERE]),
    Apart(Box<[u8]>),
}

impl Separator {
    /// Two strings, one behind the other.
    pub fn of(first: &[u8], second: &[u8]) -> Self {
        let length = first.len() + second.len();
        let mut bytes = [0; HERE];
        let Some(place) = bytes.get_mut(..length) else {
            return Self(Bytes::Apart([first, second].concat().into()));
        };
        let (begin, end) = place.split_at_mut(first.len());
        begin.copy_from_slice(first);
        end.copy_from_slice(second);
        Self(Bytes::Here(length as u8, bytes))
    }
}

impl From<&[u8]> for Separator {
    fn from(bytes: &[u8]) -> Self {
        Self::of(bytes, &[])
    }
}

impl Default for Separator {
    fn default() -> Self {
        Self::of(&[], &[])
    }
}

impl Deref for Separator {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Here(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Bytes::Apart(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl PartialEq for Separator {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Separator {}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn separators_of_every_length_are_their_bytes() {
        let bytes: Vec<u8> = (1..=60).collect();
        for length in 0..=bytes.len() {
            for first in 0..=length {
                let separator = Separator::of(&bytes[..first], &bytes[first..length]);
                assert_eq!(&*separator, &bytes[..length]);
                assert_eq!(separator, Separator::from(&bytes[..length]));
            }
        }
        assert_ne!(Separator::of(b"a", b""), Separator::default());
        assert_eq!(format!("{:?}", Separator::of(b"a", b"\0")), "b\"a\\x00\"");
    }
}
