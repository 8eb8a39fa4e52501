//! Searching a block, wherever its bytes stand.

use std::cmp::Ordering;

use super::{BLOCK_HEADER_BYTES, Entry, Head, RAW, in_file, parse};
use crate::error::{Error, Result};
use crate::format::bytes::{Probe, Reader};
use crate::format::entry::Kind;

/// The entries of a block and the separators they lie between. They are decoded when looked at.
#[derive(Debug, Clone, Copy)]
pub struct Entries<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) head: Head,
    pub(super) count: u32,
}

impl<'a> Entries<'a> {
    /// Those of the block in `bytes`, which [`super::Stored::check`] found sound before: its checksum is not
    /// computed again. `None` if it is compressed.
    ///
    /// # Errors
    /// `Corruption` if they are no block any more.
    #[inline]
    pub fn lend(bytes: &'a [u8], offset_bytes: u64) -> Result<Option<Entries<'a>>> {
        let lent = parse(bytes).and_then(|head| {
            if head.compression != RAW {
                return Ok(None);
            }
            let bytes = bytes.get(..head.raw_end as usize).unwrap_or_default();
            Entries::new(bytes, head).map(Some)
        });
        lent.map_err(|e| in_file(e, offset_bytes))
    }

    /// Those of separators and content as they were before they were stored.
    #[inline]
    pub(super) fn new(bytes: &'a [u8], head: Head) -> Result<Entries<'a>> {
        let [_, _, content_start] = head.ends;
        let count = Reader::at(bytes, content_start as usize).u32()?;
        let places = (u64::from(count) * 2 + 1) * if head.wide { 4 } else { 2 };
        if places > bytes.len() as u64 {
            return Err(Error::corruption(format!("data block: {count} entries do not fit it")));
        }
        Ok(Entries { bytes, head, count })
    }

    /// The block's number in its table, from 0.
    pub fn ordinal(&self) -> u32 {
        self.head.ordinal
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    fn part(&self, start: u32, end: u32) -> &'a [u8] {
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    /// What every key of the block begins with.
    pub fn prefix(&self) -> &'a [u8] {
        self.part(self.head.prefix_start, self.head.ends[0])
    }

    /// The lower separator, without the prefix: no key of the block is below it.
    pub fn lower_suffix(&self) -> &'a [u8] {
        self.part(self.head.ends[0], self.head.ends[1])
    }

    /// The upper separator, without the prefix: every key of the block is below it.
    pub fn upper_suffix(&self) -> &'a [u8] {
        self.part(self.head.ends[1], self.head.ends[2])
    }

    /// Where `key` lies: `Less` if below the lower separator, `Equal` if between the separators,
    /// `Greater` if at or above the upper one.
    #[inline]
    pub fn place(&self, key: &[u8]) -> Ordering {
        match self.suffix(key) {
            Ok(suffix) => self.place_of(&suffix),
            Err(order) => order,
        }
    }

    /// What of `key` follows the prefix, or how it relates to all that begins with that.
    #[inline]
    fn suffix<'k>(&self, key: &'k [u8]) -> std::result::Result<Probe<'k>, Ordering> {
        let prefix = self.prefix();
        match key.strip_prefix(prefix) {
            Some(suffix) => Ok(Probe::new(suffix)),
            None => Err(key.cmp(prefix)),
        }
    }

    #[inline]
    fn place_of(&self, suffix: &Probe<'_>) -> Ordering {
        if suffix.compare(self.lower_suffix()).is_lt() {
            Ordering::Less
        } else if suffix.compare(self.upper_suffix()).is_lt() {
            Ordering::Equal
        } else {
            Ordering::Greater
        }
    }

    /// The entry at `index`.
    ///
    /// # Errors
    /// `Corruption` if it does not lie within the block (a writer's bug that the checksum sealed).
    #[inline]
    pub fn entry(&self, index: usize) -> Result<Entry<'a>> {
        if index >= self.count() {
            return Err(self.beyond(index));
        }
        let mut reader = Reader::new(self.between(index)?);
        let kind = Kind::from_byte(reader.u8()?)?;
        let sequence = reader.varint()?;
        let value = self.between(self.count() + index)?;
        Ok(Entry { kind, sequence, key_suffix: reader.rest(), value })
    }

    #[cold]
    fn beyond(&self, index: usize) -> Error {
        let (ordinal, count) = (self.head.ordinal, self.count);
        Error::corruption(format!(
            "expected entry {index}, found block {ordinal} of {count} entries"
        ))
    }

    /// Where in the block's bytes the value of an entry of it stands.
    pub fn value_range(&self, entry: &Entry<'_>) -> std::ops::Range<usize> {
        let start = entry.value.as_ptr() as usize - self.bytes.as_ptr() as usize;
        start..start + entry.value.len()
    }

    /// What stands from the place of number `at` to the next: `count` heads, and as many values.
    #[inline]
    fn between(&self, at: usize) -> Result<&'a [u8]> {
        let [_, _, content_start] = self.head.ends;
        let places = content_start as usize + 4;
        let (from, to) = if self.head.wide {
            let mut reader = Reader::at(self.bytes, places + 4 * at);
            (reader.u32()? as usize, reader.u32()? as usize)
        } else {
            let both = Reader::at(self.bytes, places + 2 * at).u32()?;
            ((both & 0xffff) as usize, (both >> 16) as usize)
        };
        let [start, end] = [from, to].map(|place| place.saturating_add(BLOCK_HEADER_BYTES));
        let found = self.bytes.get(start..end);
        found.ok_or_else(|| {
            Error::corruption(format!("data block: expected a place within it, found {from}..{to}"))
        })
    }

    #[inline]
    fn key_suffix(&self, index: usize) -> Result<&'a [u8]> {
        let mut reader = Reader::new(self.between(index)?);
        reader.u8()?;
        reader.varint()?;
        Ok(reader.rest())
    }

    /// The index of the first entry whose key is at or above `key` (`count` if there is none), and
    /// whether it is `key` itself.
    ///
    /// # Errors
    /// As [`Entries::entry`].
    pub fn lower_bound(&self, key: &[u8]) -> Result<(usize, bool)> {
        let (place, found) = self.search(key);
        match place {
            Ordering::Less => Ok((0, false)),
            Ordering::Greater => Ok((self.count(), false)),
            Ordering::Equal => found,
        }
    }

    /// The [`Entries::place`] of `key`; where that is `Equal`, its [`Entries::lower_bound`].
    #[inline]
    pub fn search(&self, key: &[u8]) -> (Ordering, Result<(usize, bool)>) {
        let nowhere = Ok((0, false));
        match self.suffix(key) {
            Err(order) => (order, nowhere),
            Ok(suffix) => match self.place_of(&suffix) {
                Ordering::Equal => (Ordering::Equal, self.lower_bound_of(&suffix)),
                order => (order, nowhere),
            },
        }
    }

    #[inline]
    fn lower_bound_of(&self, suffix: &Probe<'_>) -> Result<(usize, bool)> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match suffix.compare(self.key_suffix(middle)?) {
                Ordering::Greater => low = middle + 1,
                Ordering::Less => high = middle,
                Ordering::Equal => return Ok((middle, true)),
            }
        }
        Ok((low, false))
    }
}
