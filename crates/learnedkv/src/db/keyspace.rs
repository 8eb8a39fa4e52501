//! Keyspaces: an ordered map of byte strings each. Reading them is [`super::reads`].

use std::ops::RangeBounds;
use std::sync::Arc;

use super::database::Handle;
use super::iter::{self, Bounds};
use super::operation::{Operation, check_lengths};
use super::{KeyspaceStats, Salvage};
use crate::engine::{Conversions, Work, lock};
use crate::error::{Error, Result};
use crate::format::entry::KeyspaceId;
use crate::lsm::flush::flush;
use crate::lsm::unread;
use crate::options::{KeyspaceOptions, WriteOptions};
use crate::tiered::ingest::{Ingest, Ingested};
use crate::view::KeyspaceView;

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

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, options: WriteOptions) -> Result<()> {
        let engine = &self.handle.engine;
        let durability = options.durability_or(engine.options.durability);
        let operation = Operation::new(self, key, value)?;
        let committed = operation.commit(engine, self.id, key, |commit| {
            engine.commit(commit, durability).map(|()| true)
        });
        committed.map(drop)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// `InvalidArgument` for a key above 64 KiB or a value above 64 GiB; `DiskFull`, `ReadOnly`, `Closed`: then
    /// nothing was written. `Poisoned` as well if the database was poisoned before the call. An error that it became
    /// poisoned by, or meanwhile: the value may be visible, and may be there or not after reopening.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.insert_with(key, value, WriteOptions::default())
    }

    /// As [`Keyspace::insert`], done as `options` say: `insert_with(key, value, Durability::Synced)`.
    ///
    /// # Errors
    /// As [`Keyspace::insert`]. If the sync itself fails, the value is visible, may or may not be
    /// durable, and the writer is poisoned.
    pub fn insert_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: impl Into<WriteOptions>,
    ) -> Result<()> {
        self.write(key.as_ref(), Some(value.as_ref()), options.into())
    }

    /// Removes a key; no error if it is not there.
    ///
    /// # Errors
    /// As [`Keyspace::insert`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.remove_with(key, WriteOptions::default())
    }

    /// As [`Keyspace::remove`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::insert_with`].
    pub fn remove_with(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<WriteOptions>,
    ) -> Result<()> {
        self.write(key.as_ref(), None, options.into())
    }

    /// Removes all keys in `range`, those that others write meanwhile before it or after it, but none in
    /// between. It takes the same short time however many there are: one record says so, reads pass over
    /// what it covers, and the space comes back when it is settled, of partitions that are covered whole
    /// without reading them. A range that ends before it begins is empty.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-remove-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// let log = db.keyspace("log", KeyspaceOptions::default())?;
    /// for day in ["2026-01-30", "2026-01-31", "2026-02-01"] {
    ///     log.insert(day, "much")?;
    /// }
    /// log.remove_range(.."2026-02")?;
    /// assert_eq!(log.keys().collect::<Result<Vec<_>, _>>()?, ["2026-02-01"]);
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::insert`].
    pub fn remove_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.remove_range_with(range, WriteOptions::default())
    }

    /// As [`Keyspace::remove_range`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::insert_with`].
    pub fn remove_range_with<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        options: impl Into<WriteOptions>,
    ) -> Result<()> {
        self.remove_bounds(iter::bounds(&range), options.into())
    }

    /// Removes all keys that begin with `prefix`; otherwise as [`Keyspace::remove_range`].
    ///
    /// # Errors
    /// As [`Keyspace::insert`].
    pub fn remove_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.remove_prefix_with(prefix, WriteOptions::default())
    }

    /// As [`Keyspace::remove_prefix`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::insert_with`].
    pub fn remove_prefix_with(
        &self,
        prefix: impl AsRef<[u8]>,
        options: impl Into<WriteOptions>,
    ) -> Result<()> {
        self.remove_bounds(iter::prefix_bounds(prefix.as_ref()), options.into())
    }

    /// Removes all keys; otherwise as [`Keyspace::remove_range`]. With options: [`Keyspace::remove_range_with`] of `..`.
    ///
    /// # Errors
    /// As [`Keyspace::insert`].
    pub fn clear(&self) -> Result<()> {
        self.remove_range::<&[u8]>(..)
    }

    fn remove_bounds(&self, bounds: Bounds, options: WriteOptions) -> Result<()> {
        let engine = &self.handle.engine;
        let Some((from, operation)) = Operation::remove_range(bounds)? else {
            return engine.health.check_writable();
        };
        let durability = options.durability_or(engine.options.durability);
        let committed = operation.commit(engine, self.id, &from, |commit| {
            engine.commit(commit, durability).map(|()| true)
        });
        committed.map(drop)
    }

    /// Takes entries in ascending key order in bulk, without log and memtable: all become durable
    /// and visible together. Where no other data lies in their range they are settled at once.
    ///
    /// # Errors
    /// `InvalidArgument` if a key is not above the one before; any error of the disk. Then nothing
    /// was taken, unless the database is poisoned by it: then all may be there after reopening, or nothing.
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Ingested> {
        let mut ingest = Ingest::begin(&self.handle.engine, self.id)?;
        for (key, value) in entries {
            check_lengths(key.as_ref(), value.as_ref().len() as u64)?;
            ingest.push(key.as_ref(), value.as_ref()).map_err(|e| self.handle.engine.advised(e))?;
        }
        ingest.finish().map_err(|e| self.handle.engine.advised(e))
    }

    /// Flushes all that is in memory now, and waits for it.
    ///
    /// # Errors
    /// The error that the flush met.
    pub fn flush(&self) -> Result<()> {
        let engine = &self.handle.engine;
        engine.health.check_writable()?;
        engine.keyspace(self.id)?;
        flush(engine, &[self.id]).map_err(|e| self.handle.engine.advised(e))
    }

    /// Settles all that was written up to now, and waits for it. It leaves other threads a processor (on one or two it goes
    /// on slowly beside flushes; see [`crate::Builder::background_threads`]). Value segments of which that leaves more dead than
    /// [`over_provision_percent`](crate::KeyspaceOptions::over_provision_percent) of what lives in them are emptied, too: so it also
    /// gives space back where nothing was written since the last one. What others make dead meanwhile is for the next. On a disk that
    /// is full ([`DatabaseHealth::Full`](crate::DatabaseHealth::Full)) it empties as many as there is room for.
    ///
    /// # Errors
    /// The error that background work met; `NotFound` if the keyspace was dropped. `Corruption` also where
    /// all was settled but a table or a value segment that could not be read, which stays where it is; `DiskFull` also where all was
    /// settled, puts go on, and value segments stay that are mostly dead, since there is no room to empty one of them.
    pub fn convert(&self) -> Result<()> {
        self.settled_by(Conversions::ask)
    }

    /// Settles all that was written up to now, as [`convert`](Keyspace::convert) does, and leaves each partition of the settled run one
    /// table: a conversion leaves deltas, tables of up to a quarter of what they lie over, and a walk reads both. For
    /// data that is walked much and hardly written to from now on. Once a sweep is over that is under way (which leaves deltas),
    /// it rewrites the partitions that have deltas or get something new, all of them at most, a partition at a time. Who converts
    /// meanwhile waits for it. On a full disk it is a conversion, as it is in a keyspace of levels.
    ///
    /// # Errors
    /// Those of [`convert`](Keyspace::convert); what kept a partition from being rewritten, which keeps its delta.
    pub fn compact(&self) -> Result<()> {
        self.settled_by(Conversions::ask_whole)
    }

    /// Waits for the conversion that `ask` asks for.
    fn settled_by(&self, ask: fn(&mut Conversions, KeyspaceId) -> u64) -> Result<()> {
        let engine = &self.handle.engine;
        engine.health.check_writable()?;
        // There may be room by now: then it is no conversion of a full disk.
        engine.retake_ballast();
        let number = ask(&mut lock(&engine.conversions), self.id);
        let dropped = || !engine.view().keyspaces.contains_key(&self.id);
        let outcome = || lock(&engine.conversions).outcome(self.id, number);
        let since = engine.health.insist();
        engine.executor.notify();
        let works = [Work::Flush(self.id), Work::Settle(self.id)];
        let given_up = || engine.health.check_work(&works, since);
        let met = engine.wait_until_done(&|| outcome().is_some() || dropped(), &given_up);
        if let Some(outcome) = outcome() {
            return outcome.map_err(|e| self.handle.engine.advised(e));
        }
        engine.keyspace(self.id)?;
        met.map_err(|e| self.handle.engine.advised(e))
    }

    /// The keys of a range that can be read, behind blocks and tables that cannot; in between the errors of these. For who reads what is
    /// left of a damaged database ([`Builder::salvage`](crate::Builder::salvage)). Values are to be got one by one: each may be damaged.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-left-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// # let fruit = db.keyspace("fruit", KeyspaceOptions::default())?;
    /// # fruit.insert("apple", "red")?;
    /// for key in fruit.salvage::<&str>(..) {
    ///     match key.and_then(|key| Ok((fruit.get(&key)?, key))) {
    ///         Ok((value, key)) => println!("{key:?} {value:?}"),
    ///         Err(error) => eprintln!("{error}"),
    ///     }
    /// }
    /// # assert_eq!(fruit.salvage("a".."b").count(), 1);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn salvage<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Salvage {
        Salvage::new(self.clone(), range)
    }

    /// Where a walk that had still to give what is from `from` on goes on behind what `error` says cannot be read of a table: at a key
    /// above `from`. `None`: it is of no table of this keyspace, or nobody knows what it hides.
    pub(super) fn readable_behind(&self, error: &Error, from: &[u8]) -> Option<Vec<u8>> {
        let view = self.handle.engine.keyspace(self.id).ok()?;
        let table = view.tables.all().find(|table| Some(table.path()) == error.path())?;
        table.readable_behind(error.offset_bytes(), from)
    }

    /// The first key from `from` on that may stand in the table of which `error` is, if that is opened: what comes before it can be
    /// walked. `None`: it is of no such table.
    pub(super) fn first_behind(&self, error: &Error, from: &[u8]) -> Option<Vec<u8>> {
        let view = self.handle.engine.keyspace(self.id).ok()?;
        unread::first_of(&view, error.path()?, from)
    }

    /// Whether an error is of a table that could not be opened: what is said of it is known, and no device is asked for it.
    pub(super) fn could_not_open(&self, error: &Error) -> bool {
        let Ok(view) = self.handle.engine.keyspace(self.id) else { return false };
        view.tables.damaged.iter().any(|table| Some(table.path()) == error.path())
    }

    /// The external log position of the newest commit that wrote to the keyspace and carried one, durable or
    /// not; see [`Batch::set_external_position`](crate::Batch::set_external_position). All that this commit and those before it wrote
    /// is there to be read. After an open it is that of the newest such commit that survived. Bulk loads
    /// and commits without a position leave it as it is. `None`: no commit carried one.
    ///
    /// # Errors
    /// `NotFound` if the keyspace was dropped.
    pub fn external_position(&self) -> Result<Option<[u8; 16]>> {
        let engine = &self.handle.engine;
        let view = engine.keyspace(self.id)?;
        let carried = view.external_position(|| engine.log.visible());
        Ok(carried.map(|carried| carried.position))
    }

    /// The same of the newest such commit that was flushed: what it and those before it wrote to this keyspace is in
    /// its tables, durable whatever the durability of commits is. [`Keyspace::flush`] brings it up to
    /// [`Keyspace::external_position`].
    ///
    /// # Errors
    /// As [`Keyspace::external_position`].
    pub fn flushed_external_position(&self) -> Result<Option<[u8; 16]>> {
        let view = self.handle.engine.keyspace(self.id)?;
        Ok(view.tables.external_position.map(|carried| carried.position))
    }

    /// What the keyspace holds.
    ///
    /// # Errors
    /// `NotFound` if it was dropped.
    pub fn stats(&self) -> Result<KeyspaceStats> {
        let engine = &self.handle.engine;
        Ok(KeyspaceStats::of(&*engine.keyspace(self.id)?, engine))
    }
}
