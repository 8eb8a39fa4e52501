//! The payload of a log record: the operations of one batch.
//!
//! ```text
//! batch := op*                                       (their count stands in the record's header)
//! op    := kind u8 | keyspace varint | key length varint
//!        | value length varint, not of a tombstone | key | value
//! ```
//! The value of a pointer is where a very long value stands: [`super::value`], "in the log". The key of a
//! range tombstone is the first that it removes, its value the first behind these; a value of no bytes says
//! that there is none. A memtable keeps the payload and points into it.
//! In keyspace 2 `put k1=v`, then remove all from `a` to `c`:
//!
//! ```text
//! 01 | 02 | 02 01 | 6b 31 | 76   a value; keyspace 2; 2 bytes of key, 1 of value; k1 = v
//! 04 | 02 | 01 01 | 61 | 63      a range tombstone; keyspace 2; 1 byte each; from a to c
//! ```

use bytes::BufMut;

use super::bytes::Reader;
use super::entry::{KeyspaceId, Kind, MAX_KEY_BYTES};
use super::range::{KeyRange, MAX_BOUND_BYTES};
use crate::error::{Error, Result};

/// One operation of a batch, its key and value still in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    /// The keyspace it changes.
    pub keyspace: KeyspaceId,
    /// `Value`, `Pointer`, `Tombstone` or `RangeTombstone`.
    pub kind: Kind,
    /// The key, directly followed by the value.
    pub key_and_value: &'a [u8],
    /// Where in the payload they stand.
    pub start: usize,
    /// Where in `key_and_value` the value begins.
    pub key_length: usize,
}

/// An upper bound of what an operation takes besides its key and value.
pub const OP_OVERHEAD_BYTES: usize = 1 + 10 + 10 + 10;

/// Appends an operation to a payload. A tombstone's `value` is empty.
pub fn put_op(out: &mut impl BufMut, keyspace: KeyspaceId, kind: Kind, key: &[u8], value: &[u8]) {
    out.put_u8(kind as u8);
    put_varint(out, keyspace);
    put_varint(out, key.len() as u64);
    if has_value(kind) {
        put_varint(out, value.len() as u64);
    }
    out.put_slice(key);
    out.put_slice(value);
}

fn has_value(kind: Kind) -> bool {
    matches!(kind, Kind::Value | Kind::Pointer | Kind::RangeTombstone)
}

fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// The operations of a payload, in order. After an error it ends.
#[derive(Debug)]
pub struct Ops<'a> {
    reader: Reader<'a>,
}

impl<'a> Ops<'a> {
    /// Reads `payload`.
    pub fn new(payload: &'a [u8]) -> Ops<'a> {
        Ops { reader: Reader::new(payload) }
    }

    fn read(&mut self) -> Result<Op<'a>> {
        let byte = self.reader.u8()?;
        let is_range = byte == Kind::RangeTombstone as u8;
        let kind = if is_range { Kind::RangeTombstone } else { Kind::from_byte(byte)? };
        let keyspace = self.reader.varint()?;
        let key_length = self.reader.length()?;
        let most_bytes = if is_range { MAX_BOUND_BYTES } else { MAX_KEY_BYTES };
        if key_length > most_bytes {
            return Err(Error::corruption(format!(
                "expected a key of at most {most_bytes} bytes, found {key_length}"
            )));
        }
        let value_length = if has_value(kind) { self.reader.length()? } else { 0 };
        let start = self.reader.position();
        let key_and_value = self.reader.take(key_length.saturating_add(value_length))?;
        if is_range {
            let (from, to) = key_and_value.split_at(key_length);
            KeyRange::check(from, to)?;
        }
        Ok(Op { keyspace, kind, key_and_value, start, key_length })
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>>;

    fn next(&mut self) -> Option<Result<Op<'a>>> {
        if self.reader.is_empty() {
            return None;
        }
        let op = self.read();
        if op.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(op)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::format::example::assert_shown;

    #[test]
    fn the_example_above_is_what_is_written() {
        let mut out = Vec::new();
        put_op(&mut out, 2, Kind::Value, b"k1", b"v");
        let of_value = out.len();
        put_op(&mut out, 2, Kind::RangeTombstone, b"a", b"c");
        assert_shown(include_str!("batch.rs"), "In keyspace 2 `put k1=v`", &out);
        out.truncate(of_value);
        put_op(&mut out, 3, Kind::Tombstone, b"gone", b"");
        let ops: Vec<_> = Ops::new(&out).map(|op| op.unwrap()).collect();
        assert_eq!(ops.len(), 2);
        assert_eq!(ops[0].key_and_value, b"k1v");
        assert_eq!((ops[1].kind, ops[1].key_and_value), (Kind::Tombstone, &b"gone"[..]));
    }

    #[test]
    fn ranges_have_two_bounds_or_one_and_are_not_empty() {
        let range = |from: &[u8], to: &[u8]| {
            let mut out = Vec::new();
            put_op(&mut out, 2, Kind::RangeTombstone, from, to);
            out
        };
        assert_eq!(range(b"a", b"c"), [0x04, 0x02, 0x01, 0x01, 0x61, 0x63]);
        for (from, to) in [(&b"a"[..], &b"c"[..]), (b"", b""), (b"z", b""), (b"", b"\0")] {
            let payload = range(from, to);
            let op = Ops::new(&payload).next().unwrap().unwrap();
            assert_eq!(op.kind, Kind::RangeTombstone);
            assert_eq!(op.key_and_value.split_at(op.key_length), (from, to));
        }
        for (from, to) in [(&b"c"[..], &b"a"[..]), (b"a", b"a"), (b"b", b"\0")] {
            assert!(Ops::new(&range(from, to)).next().unwrap().unwrap_err().is_corruption());
        }
        let longest = vec![7; MAX_BOUND_BYTES + 1];
        assert!(Ops::new(&range(&longest[1..], b"")).next().unwrap().is_ok());
        assert!(Ops::new(&range(&longest, b"")).next().unwrap().unwrap_err().is_corruption());
    }

    #[test]
    fn a_cut_payload_is_an_error_and_then_the_end() {
        let mut out = Vec::new();
        put_op(&mut out, 2, Kind::Value, b"key", b"value");
        for cut in 1..out.len() {
            let mut ops = Ops::new(&out[..cut]);
            assert!(ops.next().unwrap().unwrap_err().is_corruption());
            assert!(ops.next().is_none());
        }
    }
}
