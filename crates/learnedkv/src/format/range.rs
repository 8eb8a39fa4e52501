//! Ranges of keys that were removed, and the table section that holds them.
//!
//! ```text
//! ranges := version u8 = 1 | count varint | range*
//! range  := start slice | end slice           (start belongs to it, end does not; slice: length varint | bytes)
//! ```
//! In key order, none empty, none touching the next. An end of no bytes stands for "no end" (as the end
//! of a range it could hold nothing), so only the last range has it.
//! The ranges from `a` to `c` and from `k` on:
//!
//! ```text
//! 01 | 02                     version 1; 2 ranges
//! 01 61 01 63 | 01 6b 00      a to c; from k on
//! ```

use super::bytes::{Reader, put_slice, put_varint};
use super::entry::MAX_KEY_BYTES;
use crate::error::{Error, ErrorKind, Result};

const VERSION: u8 = 1;

/// The longest bound of a range, bytes: the successor of the longest key.
pub const MAX_BOUND_BYTES: usize = MAX_KEY_BYTES + 1;

/// Keys from one on (inclusive) up to another (exclusive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key behind it; `None`: it has no end.
    pub end: Option<Vec<u8>>,
}

/// Whether `key` lies before an end that may be missing.
pub fn is_before(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// The smaller of two ends, of which none means that there is no end.
pub fn least_end<'a>(a: Option<&'a [u8]>, b: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl KeyRange {
    /// The range from `start` to `end` as they stand in bytes: an end of no bytes is none.
    ///
    /// # Errors
    /// As [`KeyRange::check`].
    pub fn decode(start: &[u8], end: &[u8]) -> Result<KeyRange> {
        KeyRange::check(start, end)?;
        let end = (!end.is_empty()).then(|| end.to_vec());
        Ok(KeyRange { start: start.to_vec(), end })
    }

    /// Checks bounds as they stand in bytes.
    ///
    /// # Errors
    /// `Corruption` if the range is empty, or a bound is too long.
    pub fn check(start: &[u8], end: &[u8]) -> Result<()> {
        let end = (!end.is_empty()).then_some(end);
        let length = start.len().max(end.map_or(0, <[u8]>::len));
        if length > MAX_BOUND_BYTES {
            return Err(Error::corruption(format!(
                "expected a range's bound of at most {MAX_BOUND_BYTES} bytes, found {length}"
            )));
        }
        if !is_before(start, end) {
            return Err(Error::corruption("expected a range that ends after its start"));
        }
        Ok(())
    }

    /// The end, if it has one.
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// Whether a key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && is_before(key, self.end())
    }

    /// Whether it ends at `key` or before.
    pub fn ends_by(&self, key: &[u8]) -> bool {
        self.end().is_some_and(|end| end <= key)
    }
}

/// Keys in a row that are all covered, or all not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// Where it lies.
    pub keys: KeyRange,
    /// Whether they are covered.
    pub is_covered: bool,
}

/// Ranges in key order that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<KeyRange>);

impl Ranges {
    /// The keys that any of `ranges` holds.
    pub fn union(mut ranges: Vec<KeyRange>) -> Ranges {
        ranges.retain(|range| is_before(&range.start, range.end()));
        ranges.sort_unstable_by(|a, b| a.start.cmp(&b.start));
        let mut union: Vec<KeyRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match union.last_mut() {
                Some(last) if last.end().is_none_or(|end| range.start.as_slice() <= end) => {
                    let goes_on = last.end().is_some_and(|end| is_before(end, range.end()));
                    if goes_on {
                        last.end = range.end;
                    }
                }
                _ => union.push(range),
            }
        }
        Ranges(union)
    }

    /// All keys.
    pub fn everything() -> Ranges {
        Ranges(vec![KeyRange { start: Vec::new(), end: None }])
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The ranges, in key order.
    pub fn iter(&self) -> std::slice::Iter<'_, KeyRange> {
        self.0.iter()
    }

    /// What they take in memory, bytes.
    pub fn size_bytes(&self) -> usize {
        let keys = |range: &KeyRange| range.start.len() + range.end().map_or(0, <[u8]>::len);
        self.0.iter().map(|range| keys(range) + size_of::<KeyRange>()).sum()
    }

    /// The first range that does not end by `key`.
    fn first_after(&self, key: &[u8]) -> usize {
        self.0.partition_point(|range| range.ends_by(key))
    }

    /// Whether all of them end at `key` or before.
    pub fn end_by(&self, key: &[u8]) -> bool {
        self.0.last().is_none_or(|last| last.ends_by(key))
    }

    /// Whether one of them holds `key`.
    pub fn covers(&self, key: &[u8]) -> bool {
        let found = self.0.get(self.first_after(key));
        found.is_some_and(|range| range.start.as_slice() <= key)
    }

    /// Whether all keys `from <= key < to` are in one of them.
    pub fn cover(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        let around = self.stretch(from);
        around.is_covered && around.keys.end().is_none_or(|end| to.is_some_and(|to| to <= end))
    }

    /// The stretch around `key`.
    pub fn stretch(&self, key: &[u8]) -> Stretch {
        let at = self.first_after(key);
        match self.0.get(at) {
            Some(range) if range.start.as_slice() <= key => {
                Stretch { keys: range.clone(), is_covered: true }
            }
            next => {
                let before = at.checked_sub(1).and_then(|before| self.0.get(before));
                let start = before.and_then(|range| range.end.clone()).unwrap_or_default();
                let keys = KeyRange { start, end: next.map(|range| range.start.clone()) };
                Stretch { keys, is_covered: false }
            }
        }
    }

    /// Those that hold any key of `from <= key < to`, whole.
    pub fn overlapping(&self, from: &[u8], to: Option<&[u8]>) -> &[KeyRange] {
        if !is_before(from, to) {
            return &[];
        }
        let first = self.first_after(from);
        let rest = self.0.get(first..).unwrap_or_default();
        let count = rest.partition_point(|range| is_before(&range.start, to));
        rest.get(..count).unwrap_or_default()
    }

    /// What of them lies in `lower <= key < upper`.
    pub fn within(&self, lower: &[u8], upper: Option<&[u8]>) -> impl Iterator<Item = KeyRange> {
        self.overlapping(lower, upper).iter().map(move |range| KeyRange {
            start: range.start.as_slice().max(lower).to_vec(),
            end: least_end(range.end(), upper).map(<[u8]>::to_vec),
        })
    }

    /// Leaves what lies below `key`, and gives back the rest.
    pub fn split_off(&mut self, key: &[u8]) -> Ranges {
        let above = Ranges(self.within(key, None).collect());
        self.0 = self.within(&[], Some(key)).collect();
        above
    }

    /// Appends the section.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_varint(out, self.0.len() as u64);
        for range in &self.0 {
            put_slice(out, &range.start);
            put_slice(out, range.end().unwrap_or_default());
        }
    }

    /// Reads what [`Ranges::encode`] wrote.
    ///
    /// # Errors
    /// `Corruption` if it is no such section; `Unsupported` if a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Ranges> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != VERSION {
            let message = format!("ranges of version {version}; this build reads {VERSION}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let count = reader.length()?;
        // No allocation from an untrusted count.
        let mut ranges: Vec<KeyRange> = Vec::new();
        for number in 0..count {
            let range = KeyRange::decode(reader.slice()?, reader.slice()?)?;
            let before = ranges.last().map(KeyRange::end);
            if before.is_some_and(|end| end.is_none_or(|end| range.start.as_slice() <= end)) {
                return Err(Error::corruption(format!(
                    "ranges: expected number {number} to begin after the end of the one before"
                )));
            }
            ranges.push(range);
        }
        reader.finish("ranges")?;
        Ok(Ranges(ranges))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::format::example::assert_shown;

    /// `"a-c k-"`: from `a` to `c`, and from `k` on.
    fn list(text: &str) -> Vec<KeyRange> {
        let range = |part: &str| {
            let (start, end) = part.split_once('-').unwrap();
            let end = (!end.is_empty()).then(|| end.as_bytes().to_vec());
            KeyRange { start: start.as_bytes().to_vec(), end }
        };
        text.split_whitespace().map(range).collect()
    }

    fn ranges(text: &str) -> Ranges {
        Ranges::union(list(text))
    }

    #[test]
    fn the_example_above_is_what_is_written() {
        let mut out = Vec::new();
        ranges("a-c k-").encode(&mut out);
        assert_shown(include_str!("range.rs"), "The ranges from `a` to `c`", &out);
        assert_eq!(Ranges::decode(&out).unwrap(), ranges("k- a-c"));
        for cut in 0..out.len() {
            assert!(Ranges::decode(&out[..cut]).unwrap_err().is_corruption(), "cut at {cut}");
        }
        out[0] = 2;
        assert_eq!(Ranges::decode(&out).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn keys_are_covered_where_one_range_holds_all_of_them() {
        let covers = |of: &str, from: &str, to: Option<&str>| {
            ranges(of).cover(from.as_bytes(), to.map(str::as_bytes))
        };
        assert!(covers("b-d f-", "b", Some("d")) && covers("b-d f-", "c", Some("d")));
        assert!(covers("b-d f-", "g", None) && covers("b-d f-", "g", Some("z")));
        assert!(!covers("b-d f-", "a", Some("c")) && !covers("b-d f-", "c", Some("e")));
        assert!(!covers("b-d", "c", None) && !covers("b-d f-", "c", Some("g")));
    }

    #[test]
    fn ranges_that_are_empty_touch_or_stand_in_another_order_are_refused() {
        let encoded = |text: &str| {
            let mut out = Vec::new();
            Ranges(list(text)).encode(&mut out);
            out
        };
        for bad in ["c-a", "a-a", "a-b b-c", "a-c b-d", "c-d a-b", "a- b-", "a- b-c"] {
            assert!(Ranges::decode(&encoded(bad)).unwrap_err().is_corruption(), "{bad}");
        }
        for long in [MAX_BOUND_BYTES, MAX_BOUND_BYTES + 1] {
            let range = KeyRange { start: vec![7; long], end: Some(vec![8; long]) };
            let mut out = Vec::new();
            Ranges(vec![range]).encode(&mut out);
            assert_eq!(Ranges::decode(&out).is_ok(), long == MAX_BOUND_BYTES);
        }
    }

    #[test]
    fn a_union_is_in_order_and_merged() {
        for (of, expected) in [
            ("", ""),
            ("c-d a-b", "a-b c-d"),
            ("a-c b-d", "a-d"),
            ("a-b b-c", "a-c"),
            ("a-z b-c", "a-z"),
            ("a- b-c", "a-"),
            ("b-c a- x-", "a-"),
            ("c-c d-b a-b", "a-b"),
            ("a-b c- ", "a-b c-"),
            ("a-c a-b a-d e-f", "a-d e-f"),
        ] {
            assert_eq!(ranges(of).0, list(expected), "{of}");
        }
    }

    /// Every question against a naive look at each key, for every set of up to three ranges.
    #[test]
    fn every_key_is_where_a_look_at_each_range_says() {
        let keys: Vec<Vec<u8>> = (b'a'..=b'g').map(|c| vec![c]).collect();
        let mut all = Vec::new();
        for (i, start) in keys.iter().enumerate().step_by(2) {
            all.push(KeyRange { start: start.clone(), end: None });
            for end in &keys[i + 1..] {
                all.push(KeyRange { start: start.clone(), end: Some(end.clone()) });
            }
        }
        for a in &all {
            for b in &all {
                check(&[a.clone(), b.clone()], &keys);
            }
        }
        check(&[], &keys);
        check(&list("a-b c-d e-f"), &keys);
    }

    fn check(of: &[KeyRange], keys: &[Vec<u8>]) {
        let union = Ranges::union(of.to_vec());
        let naive = |key: &[u8]| of.iter().any(|range| range.contains(key));
        for key in keys {
            assert_eq!(union.covers(key), naive(key), "{of:?} {key:?}");
            let stretch = union.stretch(key);
            assert_eq!(stretch.is_covered, naive(key));
            assert!(stretch.keys.contains(key));
            for other in keys.iter().filter(|other| stretch.keys.contains(other)) {
                assert_eq!(naive(other), naive(key), "{of:?}: {stretch:?}");
            }
            let mut below = union.clone();
            let above = below.split_off(key);
            for other in keys {
                assert_eq!(below.covers(other), naive(other) && other < key, "{of:?}");
                assert_eq!(above.covers(other), naive(other) && other >= key, "{of:?}");
            }
            for to in keys.iter().map(|to| Some(to.as_slice())).chain([None]) {
                let inside = |other: &&Vec<u8>| *other >= key && is_before(other, to);
                let any = keys.iter().filter(inside).any(|other| naive(other));
                assert_eq!(!union.overlapping(key, to).is_empty(), any, "{of:?} {key:?} {to:?}");
            }
        }
    }
}
