//! Keyspaces: an ordered map of byte strings each.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::database::Handle;
use super::{Iter, KeyspaceStats};
use crate::engine::{Commit, lock};
use crate::error::{Error, Result};
use crate::format::batch::put_op;
use crate::format::entry::{KeyspaceId, Kind, MAX_KEY_BYTES};
use crate::options::KeyspaceOptions;
use crate::slice::Slice;
use crate::tiered::ingest::{self, Ingest, Ingested};
use crate::tiered::read;
use crate::view::KeyspaceView;

/// The longest value, bytes.
pub(crate) const MAX_VALUE_BYTES: usize = 256 << 20;

/// What an encoded operation takes besides its key and value, at most.
const OP_OVERHEAD_BYTES: usize = 32;

/// An ordered map from byte strings to byte strings. Keys compare as unsigned bytes.
///
/// Cheap to clone; usable from any thread.
#[derive(Debug, Clone)]
pub struct Keyspace {
    handle: Arc<Handle>,
    id: KeyspaceId,
    name: Arc<str>,
    options: Arc<KeyspaceOptions>,
}

/// Checks the lengths of a key and a value.
pub(crate) fn check_lengths(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES {
        return Err(Error::invalid(format!(
            "expected a key of at most {MAX_KEY_BYTES} bytes, found {}",
            key.len()
        )));
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(Error::invalid(format!(
            "expected a value of at most {MAX_VALUE_BYTES} bytes, found {}",
            value.len()
        )));
    }
    Ok(())
}

impl Keyspace {
    pub(crate) fn new(handle: Arc<Handle>, view: &KeyspaceView) -> Keyspace {
        let (name, options) = (view.name.clone(), view.options.clone());
        Keyspace { handle, id: view.id, name, options }
    }

    pub(crate) fn is_of(&self, handle: &Arc<Handle>) -> bool {
        Arc::ptr_eq(&self.handle, handle)
    }

    pub(crate) fn id(&self) -> KeyspaceId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The options it was made with.
    pub fn options(&self) -> &KeyspaceOptions {
        &self.options
    }

    fn write(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        check_lengths(key, value)?;
        let mut payload = Vec::with_capacity(OP_OVERHEAD_BYTES + key.len() + value.len());
        put_op(&mut payload, self.id, kind, key, value);
        let payload = Arc::new(payload);
        let engine = &self.handle.engine;
        let commit = Commit { payload: &payload, count: 1, keyspaces: &[self.id] };
        engine.commit(commit, engine.options.durability)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// `InvalidArgument` for a key above 64 KiB or a value above 256 MiB; `DiskFull`, `Poisoned`,
    /// `Closed`: then nothing was written.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Value, key.as_ref(), value.as_ref())
    }

    /// Removes a key; no error if it is not there.
    ///
    /// # Errors
    /// As [`Keyspace::insert`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Tombstone, key.as_ref(), &[])
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `Corruption` if the data that must hold it is damaged; any error of the disk.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let engine = &self.handle.engine;
        let view = engine.view();
        let Some(keyspace) = view.keyspaces.get(&self.id) else {
            return engine.keyspace(self.id).map(|_| None);
        };
        read::get(keyspace, key.as_ref(), engine.log.visible())
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The entries with keys in `range`, in order from both ends, as they are now.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        let (view, visible) = self.handle.engine.snapshot();
        let view = view.keyspaces.get(&self.id).cloned();
        Iter::new(self.handle.clone(), view, visible, &range)
    }

    /// All entries, in order from both ends, as they are now.
    pub fn iter(&self) -> Iter {
        self.range::<&[u8]>(..)
    }

    /// The entries whose keys begin with `prefix`, in order from both ends, as they are now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        let prefix = prefix.as_ref();
        match prefix_end(prefix) {
            Some(end) => {
                self.range::<&[u8]>((Bound::Included(prefix), Bound::Excluded(end.as_slice())))
            }
            None => self.range::<&[u8]>((Bound::Included(prefix), Bound::Unbounded)),
        }
    }

    /// The first entry.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn first_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next().transpose()
    }

    /// The last entry.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn last_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next_back().transpose()
    }

    /// Takes entries in ascending key order in bulk, without log and memtable: all become durable
    /// and visible together. Where no other data lies in their range they are settled at once.
    ///
    /// # Errors
    /// `InvalidArgument` if a key is not above the one before; any error of the disk. Then nothing
    /// was taken.
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Ingested> {
        let mut ingest = Ingest::begin(&self.handle.engine, self.id)?;
        for (key, value) in entries {
            check_lengths(key.as_ref(), value.as_ref())?;
            ingest.push(key.as_ref(), value.as_ref())?;
        }
        ingest.finish()
    }

    /// Flushes all that is in memory now, and waits for it.
    ///
    /// # Errors
    /// The error that the flush met.
    pub fn flush(&self) -> Result<()> {
        self.handle.engine.health.check_writable()?;
        ingest::flush(&self.handle.engine, self.id)
    }

    /// Settles all that was written up to now, and waits for it.
    ///
    /// # Errors
    /// The error that background work met; `NotFound` if the keyspace was dropped.
    pub fn convert(&self) -> Result<()> {
        let engine = &self.handle.engine;
        engine.health.check_writable()?;
        let number = lock(&engine.conversions).ask(self.id);
        let dropped = || !engine.view().keyspaces.contains_key(&self.id);
        let done = || lock(&engine.conversions).is_done(self.id, number);
        engine.health.ask_again();
        engine.executor.notify();
        engine.executor.wait_until(&mut || done() || dropped() || !engine.health.is_well());
        if done() {
            return Ok(());
        }
        engine.keyspace(self.id)?;
        engine.health.check_background()
    }

    /// What the keyspace holds.
    ///
    /// # Errors
    /// `NotFound` if it was dropped.
    pub fn stats(&self) -> Result<KeyspaceStats> {
        Ok(KeyspaceStats::of(&*self.handle.engine.keyspace(self.id)?))
    }
}

/// The first key after all that begin with `prefix`; `None` if there is no such key.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn a_prefix_ends_after_its_last_key() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
