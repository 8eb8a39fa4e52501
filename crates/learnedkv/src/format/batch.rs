//! The payload of a log record: the operations of one batch.
//!
//! ```text
//! batch := op*                                       (their count stands in the record's header)
//! op    := kind u8 | keyspace varint | key length varint
//!        | value length varint, kinds value and pointer only | key | value
//! ```
//! The value of a pointer is where a very long value stands: [`super::value`], "in the log".
//! A memtable keeps the payload and points into it.
//! `put k1=v` in keyspace 2: `01 02 02 01 6b 31 76`.

use bytes::BufMut;

use super::bytes::Reader;
use super::entry::{KeyspaceId, Kind, MAX_KEY_BYTES};
use crate::error::{Error, Result};

/// One operation of a batch, its key and value still in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    /// The keyspace it changes.
    pub keyspace: KeyspaceId,
    /// `Value`, `Pointer` or `Tombstone`.
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
    matches!(kind, Kind::Value | Kind::Pointer)
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
        let kind = Kind::from_byte(self.reader.u8()?)?;
        let keyspace = self.reader.varint()?;
        let key_length = self.reader.length()?;
        if key_length > MAX_KEY_BYTES {
            return Err(Error::corruption(format!(
                "expected a key of at most {MAX_KEY_BYTES} bytes, found {key_length}"
            )));
        }
        let value_length = if has_value(kind) { self.reader.length()? } else { 0 };
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
