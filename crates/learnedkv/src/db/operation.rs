//! One write as the log takes it: its value in the record, or, if it is very long, in a segment of its own
//! that the record points at.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Bound;

use super::Keyspace;
use super::iter::{self, Bounds};
use crate::engine::{Commit, Engine, Streamed};
use crate::error::{Error, Result};
use crate::format::batch::{OP_OVERHEAD_BYTES, put_op};
use crate::format::entry::{KeyspaceId, Kind, MAX_KEY_BYTES};

/// The longest value, bytes.
pub(crate) const MAX_VALUE_BYTES: u64 = 64 << 30;

/// Checks the lengths of a key and a value.
pub(crate) fn check_lengths(key: &[u8], value_bytes: u64) -> Result<()> {
    if key.len() > MAX_KEY_BYTES {
        return Err(Error::invalid(format!(
            "expected a key of at most {MAX_KEY_BYTES} bytes, found {}",
            key.len()
        )));
    }
    if value_bytes > MAX_VALUE_BYTES {
        return Err(Error::invalid(format!(
            "expected a value of at most {MAX_VALUE_BYTES} bytes, found {value_bytes}"
        )));
    }
    Ok(())
}

/// What is written of a key.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub kind: Kind,
    /// What the record holds.
    pub value: Cow<'a, [u8]>,
    pub streamed: Option<Streamed>,
}

impl<'a> Operation<'a> {
    /// Sets the value of `key`, or removes it. A very long value is on the disk by then.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that are not allowed; those of [`Engine::stream`].
    pub fn new(keyspace: &Keyspace, key: &[u8], value: Option<&'a [u8]>) -> Result<Operation<'a>> {
        let Some(value) = value else {
            check_lengths(key, 0)?;
            return Ok(Operation { kind: Kind::Tombstone, value: Cow::default(), streamed: None });
        };
        check_lengths(key, value.len() as u64)?;
        if value.len() as u64 >= keyspace.handle().engine.options.stream_at {
            return Operation::stream(keyspace, key, &mut { value });
        }
        Ok(Operation { kind: Kind::Value, value: Cow::Borrowed(value), streamed: None })
    }

    /// Removes all keys within bounds, and the first of these; `None` if there can be none. What the record
    /// holds beside that is the first key behind them, or no bytes if they have no end.
    ///
    /// # Errors
    /// `InvalidArgument` if a bound is too long for a key.
    pub fn remove_range(bounds: Bounds) -> Result<Option<(Vec<u8>, Operation<'static>)>> {
        for bound in [&bounds.0, &bounds.1] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                check_lengths(key, 0)?;
            }
        }
        let operation = |to: Option<Vec<u8>>| Operation {
            kind: Kind::RangeTombstone,
            value: Cow::Owned(to.unwrap_or_default()),
            streamed: None,
        };
        Ok(iter::half_open(bounds).map(|(from, to)| (from, operation(to))))
    }

    /// Sets the value of `key` to all that `reader` gives. Memory: as much of it as makes a value very long,
    /// then as [`Engine::stream`].
    ///
    /// # Errors
    /// As [`Operation::new`].
    pub fn read_from(
        keyspace: &Keyspace,
        key: &[u8],
        reader: &mut dyn Read,
    ) -> Result<Operation<'static>> {
        check_lengths(key, 0)?;
        let engine = &keyspace.handle().engine;
        // Told before all of it is written.
        engine.keyspace(keyspace.id())?;
        let stream_at = engine.options.stream_at;
        let mut start = Vec::new();
        let read = reader.take(stream_at).read_to_end(&mut start);
        read.map_err(|e| Error::reader(&e))?;
        if (start.len() as u64) < stream_at {
            let value = Cow::Owned(start);
            return Ok(Operation { kind: Kind::Value, value, streamed: None });
        }
        Operation::stream(keyspace, key, &mut start.as_slice().chain(reader))
    }

    fn stream(
        keyspace: &Keyspace,
        key: &[u8],
        reader: &mut dyn Read,
    ) -> Result<Operation<'static>> {
        let (engine, how) = (&keyspace.handle().engine, keyspace.options().staying_compression());
        let streamed = engine.stream(key, reader, MAX_VALUE_BYTES, how);
        let streamed = streamed.map_err(|e| keyspace.handle().engine.advised(e))?;
        let value = Cow::Owned(streamed.logged());
        Ok(Operation { kind: Kind::Pointer, value, streamed: Some(streamed) })
    }

    /// Commits it alone, as `commit` does. False: something it was made from had changed.
    ///
    /// # Errors
    /// Those of `commit`.
    pub fn commit(
        mut self,
        engine: &Engine,
        keyspace: KeyspaceId,
        key: &[u8],
        commit: impl FnOnce(Commit<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let most_bytes = OP_OVERHEAD_BYTES + key.len() + self.value.len();
        let encode = |out: &mut &mut [u8]| put_op(out, keyspace, self.kind, key, &self.value);
        let payload = engine.payloads.encode(keyspace, most_bytes, encode);
        let committed = commit(Commit {
            payload: &payload,
            count: 1,
            keyspaces: &[keyspace],
            streamed: self.streamed.as_slice(),
            external_position: None,
        });
        engine.settle_streams(self.streamed.as_mut_slice(), &committed);
        committed
    }
}
