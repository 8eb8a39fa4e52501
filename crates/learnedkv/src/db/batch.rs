//! Batches: operations that become visible and durable together.

use std::ops::RangeBounds;
use std::sync::Arc;

use super::Keyspace;
use super::database::Handle;
use super::iter;
use super::operation::Operation;
use crate::engine::{Commit, Streamed};
use crate::error::{Error, Result};
use crate::format::batch::put_op;
use crate::format::entry::{ExternalPosition, KeyspaceId};
use crate::format::log::MAX_BATCH_COUNT;
use crate::memory::Shared;
use crate::options::WriteOptions;

/// Operations on any keyspaces of one database, committed together or not at all. Of several on the
/// same key the last counts. At most 16,777,215 operations and 4 GiB of them (keys, values, and some bytes for each;
/// of values that are streamed only where they stand): else the commit is an error, `InvalidArgument`.
#[derive(Debug)]
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    handle: Arc<Handle>,
    payload: Vec<u8>,
    count: u32,
    keyspaces: Vec<KeyspaceId>,
    streamed: Vec<Streamed>,
    external_position: Option<ExternalPosition>,
    error: Option<Error>,
}

impl Batch {
    pub(crate) fn new(handle: Arc<Handle>) -> Batch {
        let (payload, keyspaces, streamed) = (Vec::new(), Vec::new(), Vec::new());
        let (external_position, error) = (None, None);
        Batch { handle, payload, count: 0, keyspaces, streamed, external_position, error }
    }

    /// Sets the value of a key. A key or value that is too long makes the commit an error. A value as long
    /// as [`Builder::stream_at`](crate::Builder::stream_at) says is written to a file of its own at once;
    /// the file goes if the batch is dropped.
    pub fn insert(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(keyspace, key.as_ref(), Some(value.as_ref()));
    }

    /// Removes a key.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, key.as_ref(), None);
    }

    /// Removes all keys in `range`, among them those that the batch has inserted so far; see
    /// [`Keyspace::remove_range`].
    pub fn remove_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) {
        self.remove_bounds(keyspace, iter::bounds(&range));
    }

    /// Removes all keys that begin with `prefix`, among them those that the batch has inserted so far; see
    /// [`Keyspace::remove_prefix`].
    pub fn remove_prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) {
        self.remove_bounds(keyspace, iter::prefix_bounds(prefix.as_ref()));
    }

    fn remove_bounds(&mut self, keyspace: &Keyspace, bounds: iter::Bounds) {
        match Operation::remove_range(bounds) {
            Ok(Some((from, operation))) => self.push_operation(keyspace, &from, Ok(operation)),
            Ok(None) => {}
            Err(e) => _ = self.error.get_or_insert(e),
        }
    }

    /// Removes all keys, among them those that the batch has inserted so far.
    pub fn clear(&mut self, keyspace: &Keyspace) {
        self.remove_range::<&[u8]>(keyspace, ..);
    }

    /// Says where in somebody else's log the batch comes from: a primary's, say, that is replayed here. It is
    /// kept with the batch, in one piece, for each keyspace that the batch writes to, and is
    /// [`Keyspace::external_position`] until a later commit to that keyspace carries another. Set twice, the
    /// last counts.
    ///
    /// The 16 bytes mean nothing to the database: positions are never compared, and that of the newest
    /// commit counts, even if it is lower. Whoever replays a log commits it in order, from one thread. Commits
    /// survive a crash in their order, without gaps over all keyspaces: so after an open the log is
    /// replayed from behind the highest position (by its own order) that any of the keyspaces says, and nothing
    /// before it is missing in any.
    ///
    /// Without an operation there is no keyspace to keep it: then the commit is an error.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-position-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// let copy = db.keyspace("copy", KeyspaceOptions::default())?;
    /// let mut batch = db.batch();
    /// batch.insert(&copy, "key", "value");
    /// batch.set_external_position(*b"primary/00000042");
    /// batch.commit()?;
    /// assert_eq!(copy.external_position()?, Some(*b"primary/00000042"));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_external_position(&mut self, position: [u8; 16]) {
        self.external_position = Some(position);
    }

    fn push(&mut self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) {
        let checked = self.check(keyspace);
        let operation = checked.and_then(|()| Operation::new(keyspace, key, value));
        self.push_operation(keyspace, key, operation);
    }

    fn push_operation(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        operation: Result<Operation<'_>>,
    ) {
        match self.check(keyspace).and(operation) {
            Ok(operation) => {
                put_op(&mut self.payload, keyspace.id(), operation.kind, key, &operation.value);
                self.streamed.extend(operation.streamed);
            }
            Err(e) => {
                self.error.get_or_insert(e);
                return;
            }
        }
        self.count += 1;
        if !self.keyspaces.contains(&keyspace.id()) {
            self.keyspaces.push(keyspace.id());
        }
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        if !keyspace.is_of(&self.handle) {
            return Err(Error::invalid(format!(
                "keyspace {:?} belongs to another database than the batch",
                keyspace.name()
            )));
        }
        if self.count == MAX_BATCH_COUNT {
            return Err(Error::invalid(format!(
                "a batch holds at most {MAX_BATCH_COUNT} operations"
            )));
        }
        Ok(())
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Commits it with the database's durability.
    ///
    /// # Errors
    /// As [`Keyspace::insert`], of all of it; `InvalidArgument` if it has an external position and no operation.
    pub fn commit(self) -> Result<()> {
        self.commit_with(WriteOptions::default())
    }

    /// As [`Batch::commit`], done as `options` say: `commit_with(Durability::Synced)`.
    ///
    /// # Errors
    /// As [`Keyspace::insert_with`] and [`Batch::commit`], of all of it.
    pub fn commit_with(mut self, options: impl Into<WriteOptions>) -> Result<()> {
        let durability = options.into().durability_or(self.handle.engine.options.durability);
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.count == 0 {
            return match self.external_position {
                None => Ok(()),
                Some(_) => Err(Error::invalid(
                    "a batch with an external position and no operation writes to no keyspace that would \
                     keep the position: put what is to be written into it, or leave the position to the next",
                )),
            };
        }
        let payload = Shared::from(self.payload);
        let commit = Commit {
            payload: &payload,
            count: self.count,
            keyspaces: &self.keyspaces,
            streamed: &self.streamed,
            external_position: self.external_position,
        };
        let engine = &self.handle.engine;
        let committed = engine.commit(commit, durability).map(|()| true);
        engine.settle_streams(&mut self.streamed, &committed);
        committed.map(drop)
    }
}
