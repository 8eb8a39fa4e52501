//! The payload of a log record: the operations of one batch.
//!
//! ```text
//! batch := op*                                       (their count stands in the record's header)
//! op    := kind u8 | keyspace varint | key length varint | value length varint, kind value only
//!        | key | value
//! ```
//! A memtable keeps the payload and points into it.
//! `put k1=v` in keyspace 2: `01 02 02 01 6b 31 76`.

use super::bytes::{Reader, put_varint};
use super::entry::{KeyspaceId, Kind, MAX_KEY_BYTES};
use crate::error::{Error, Result};

/// One operation of a batch, its key and value still in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    /// The keyspace it changes.
    pub keyspace: KeyspaceId,
    /// `Value` or `Tombstone`.
    pub kind: Kind,
    /// The key, directly followed by the value.
    pub key_and_value: &'a [u8],
    /// Where in the payload they stand.
    pub start: usize,
    /// Where in `key_and_value` the value begins.
    pub key_length: usize,
}

/// Appends an operation to a payload. A tombstone's `value` is empty.
pub fn put_op(out: &mut Vec<u8>, keyspace: KeyspaceId, kind: Kind, key: &[u8], value: &[u8]) {
    out.push(kind as u8);
    put_varint(out, keyspace);
    put_varint(out, key.len() as u64);
    if kind == Kind::Value {
        put_varint(out, value.len() as u64);
    }
    out.extend_from_slice(key);
    out.extend_from_slice(value);
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
        let kind = Kind::from_byte(self.reader.u8()?)?;
        let keyspace = self.reader.varint()?;
        let key_length = self.reader.length()?;
        if key_length > MAX_KEY_BYTES {
            return Err(Error::corruption(format!(
                "expected a key of at most {MAX_KEY_BYTES} bytes, found {key_length}"
            )));
        }
        let value_length = if kind == Kind::Value { self.reader.length()? } else { 0 };
        let start = self.reader.position();
        let key_and_value = self.reader.take(key_length.saturating_add(value_length))?;
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

    #[test]
    fn the_example_above_is_what_is_written() {
        let mut out = Vec::new();
        put_op(&mut out, 2, Kind::Value, b"k1", b"v");
        assert_eq!(out, [0x01, 0x02, 0x02, 0x01, 0x6b, 0x31, 0x76]);
        put_op(&mut out, 3, Kind::Tombstone, b"gone", b"");
        let ops: Vec<_> = Ops::new(&out).map(|op| op.unwrap()).collect();
        assert_eq!(ops.len(), 2);
        assert_eq!(ops[0].key_and_value, b"k1v");
        assert_eq!((ops[1].kind, ops[1].key_and_value), (Kind::Tombstone, &b"gone"[..]));
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
