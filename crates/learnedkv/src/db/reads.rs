//! Reading a keyspace, now ([`Keyspace`]) or as it was ([`Snapshot`]): the same methods on both.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;

use super::iter::{self, Bounds};
use super::{Iter, Keys, Keyspace, Snapshot};
use crate::engine::{Engine, Seen};
use crate::error::Result;
use crate::format::entry::SequenceNumber;
use crate::lsm::{estimate, many, read};
use crate::options::ReadOptions;
use crate::slice::Slice;
use crate::view::KeyspaceView;

/// What an end of an iterator gives, alone.
type Entry = Option<(Slice, Slice)>;

impl Keyspace {
    /// Reads what the View of now shows, without keeping it.
    pub(super) fn look<T>(
        &self,
        read: impl FnOnce(&Arc<Engine>, &KeyspaceView, SequenceNumber) -> Result<T>,
    ) -> Result<T> {
        let engine = &self.handle().engine;
        let view = engine.view();
        match view.keyspaces.get(&self.id()) {
            Some(keyspace) => read(engine, keyspace, engine.log.visible()),
            None => read(engine, &*engine.keyspace(self.id())?, engine.log.visible()),
        }
    }

    fn walk(&self, bounds: Bounds, options: ReadOptions) -> Iter {
        let engine = &self.handle().engine;
        let (view, visible) = engine.snapshot();
        let keyspace = match view.keyspaces.get(&self.id()) {
            Some(keyspace) => Ok(keyspace.clone()),
            None => engine.keyspace(self.id()),
        };
        Iter::new(self.handle().clone(), keyspace, visible, bounds, options)
    }

    /// Keys in `bounds` of which some table says something that is not among those of the files `lost`, nor was damaged from the start: the
    /// keyspace may have others, or not these.
    pub(super) fn keys_without(&self, lost: &BTreeSet<PathBuf>, bounds: Bounds) -> Keys {
        let engine = &self.handle().engine;
        let (view, visible) = engine.snapshot();
        let without = |keyspace: &Arc<KeyspaceView>| {
            let tables = keyspace.tables.without(|table| lost.contains(table.path()));
            Arc::new(KeyspaceView { tables: Arc::new(tables), ..KeyspaceView::clone(keyspace) })
        };
        let keyspace = match view.keyspaces.get(&self.id()) {
            Some(keyspace) => Ok(without(keyspace)),
            None => engine.keyspace(self.id()),
        };
        let options = ReadOptions::default();
        Iter::new(self.handle().clone(), keyspace, visible, bounds, options).keys()
    }

    /// All entries of what a conditional commit has seen.
    pub(crate) fn walk_seen(&self, seen: &Seen) -> Iter {
        let Some(view) = seen.keyspace(self.id()) else {
            return self.iter(); // dropped: it says so
        };
        let (handle, all) = (self.handle().clone(), (Bound::Unbounded, Bound::Unbounded));
        Iter::new(handle, Ok(view.clone()), seen.visible, all, ReadOptions::default())
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `Corruption` if the data that must hold it is damaged; `NotFound` if the keyspace was
    /// dropped; any error of the disk.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_with(key, &ReadOptions::default())
    }

    /// As [`Keyspace::get`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Slice>> {
        self.look(|engine, view, visible| {
            read::get(engine, view, key.as_ref(), visible, options.asking())
        })
    }

    /// The values of many keys, in their order, all as of one moment. Keys may come in any order and
    /// more than once. What must be read from the disk is read together: for keys that are not in
    /// memory this is several times faster than a [`Keyspace::get`] of each.
    ///
    /// The values share the blocks they stand in, and keep them in memory while they are held.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-many-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// let fruit = db.keyspace("fruit", KeyspaceOptions::default())?;
    /// fruit.insert("apple", "red")?;
    /// fruit.insert("lemon", "yellow")?;
    /// let colours = fruit.multi_get(["lemon", "stone", "apple"])?;
    /// let colours: Vec<_> = colours.iter().map(|colour| colour.as_deref()).collect();
    /// assert_eq!(colours, [Some(&b"yellow"[..]), None, Some(&b"red"[..])]);
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`], if one of the keys cannot be answered; the others are not answered then.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Slice>>> {
        self.multi_get_with(keys, &ReadOptions::default())
    }

    /// As [`Keyspace::multi_get`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::multi_get`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        // A View and a number that were taken apart may show a commit without an earlier ingest.
        let engine = &self.handle().engine;
        let (view, visible) = engine.snapshot();
        let asking = options.asking();
        match view.keyspaces.get(&self.id()) {
            Some(view) => many::get(engine, view, &keys, visible, asking),
            None => many::get(engine, &*engine.keyspace(self.id())?, &keys, visible, asking),
        }
    }

    /// Whether a key is there. Its value is not read, wherever it is kept.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.contains_key_with(key, &ReadOptions::default())
    }

    /// As [`Keyspace::contains_key`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains_key_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<bool> {
        self.look(|engine, view, visible| {
            read::contains(engine, view, key.as_ref(), visible, options.asking())
        })
    }

    /// How long the value of a key is, bytes. The value is not read, wherever it is kept.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn size_of(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        self.size_of_with(key, &ReadOptions::default())
    }

    /// As [`Keyspace::size_of`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn size_of_with(
        &self,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<u64>> {
        self.look(|engine, view, visible| {
            read::size_of(engine, view, key.as_ref(), visible, options.asking())
        })
    }

    /// The entries with keys in `range`, in order from both ends, as they are now. A range that ends
    /// before it begins is empty (where a `BTreeMap` panics).
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-range-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// let fruit = db.keyspace("fruit", KeyspaceOptions::default())?;
    /// for name in ["apple", "banana", "cherry", "date"] {
    ///     fruit.insert(name, "")?;
    /// }
    /// let between: Vec<_> = fruit.range("b".."d").keys().collect::<Result<_, _>>()?;
    /// assert_eq!(between, ["banana", "cherry"]);
    /// let last = fruit.range(.."date").next_back().transpose()?;
    /// assert_eq!(last.map(|(key, _)| key).as_deref(), Some(&b"cherry"[..]));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.range_with(range, &ReadOptions::default())
    }

    /// As [`Keyspace::range`], done as `options` say.
    pub fn range_with<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        options: &ReadOptions,
    ) -> Iter {
        self.walk(iter::bounds(&range), *options)
    }

    /// All entries, in order from both ends, as they are now.
    pub fn iter(&self) -> Iter {
        self.range::<&[u8]>(..)
    }

    /// All keys, in order from both ends, as they are now. Values kept apart from their keys are not read; those
    /// that stand in blocks beside them are read with these, and not copied. For a part of the
    /// keys: `range(..).keys()`, `prefix(..).keys()`.
    pub fn keys(&self) -> Keys {
        self.iter().keys()
    }

    /// The entries whose keys begin with `prefix`, in order from both ends, as they are now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.prefix_with(prefix, &ReadOptions::default())
    }

    /// As [`Keyspace::prefix`], done as `options` say.
    pub fn prefix_with(&self, prefix: impl AsRef<[u8]>, options: &ReadOptions) -> Iter {
        self.walk(iter::prefix_bounds(prefix.as_ref()), *options)
    }

    /// The first entry.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn first_key_value(&self) -> Result<Entry> {
        self.first_key_value_with(&ReadOptions::default())
    }

    /// As [`Keyspace::first_key_value`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn first_key_value_with(&self, options: &ReadOptions) -> Result<Entry> {
        self.range_with::<&[u8]>(.., options).one().next().transpose()
    }

    /// The last entry.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn last_key_value(&self) -> Result<Entry> {
        self.last_key_value_with(&ReadOptions::default())
    }

    /// As [`Keyspace::last_key_value`], done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn last_key_value_with(&self, options: &ReadOptions) -> Result<Entry> {
        self.range_with::<&[u8]>(.., options).one().next_back().transpose()
    }

    /// Whether there is no entry. Looks for the first, past all that was removed before it.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.iter().one().keys().next().transpose()?.is_none())
    }

    /// How many entries there are, about, at once: from the tables' properties, no data is read. Where
    /// ranges were removed and not flushed yet, what is in memory is walked.
    ///
    /// It is off by at most the number of entries that are in memtables, runs and deltas (see
    /// [`crate::KeyspaceStats`]), for of these it is not known which hit the same key: where
    /// everything is settled and no partition has a delta, it is exact. Of a table that a sweep or an
    /// ingest cut in two, the parts are reckoned by their bytes, and so is what removed ranges cover.
    /// For the exact number walk the keys: `keys().count()`.
    ///
    /// # Errors
    /// `NotFound` if the keyspace was dropped.
    pub fn approximate_len(&self) -> Result<u64> {
        self.look(|_, view, visible| estimate::len(view, visible))
    }

    /// How many bytes the entries with keys in `range` take, about: of tables the blocks that may
    /// hold them, by the indexes; of memtables the keys and values. No data block is read, the
    /// memtables' part of the range is walked.
    ///
    /// At either end of the range each table is off by at most the blocks its index names for a key
    /// (one with `exact`). Versions that were overwritten and not yet merged away count too.
    ///
    /// Of values kept apart a table knows how many bytes they take in all, and not whose they are: they count as if they were
    /// spread evenly over its blocks. Where a range within a table has much longer ones than the rest, or much shorter, it is off by
    /// the difference: by orders of magnitude, if a few long values lie among many short entries.
    ///
    /// # Errors
    /// `NotFound` if the keyspace was dropped.
    pub fn approximate_size<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        let bounds = iter::bounds(&range);
        self.look(|_, view, visible| size_within(view, visible, bounds))
    }
}

fn size_within(view: &KeyspaceView, visible: SequenceNumber, bounds: Bounds) -> Result<u64> {
    let Some((from, to)) = iter::half_open(bounds) else { return Ok(0) };
    estimate::bytes_between(view, visible, &from, to.as_deref())
}

impl Snapshot {
    fn walk(&self, keyspace: &Keyspace, bounds: Bounds, options: ReadOptions) -> Iter {
        let view = self.keyspace(keyspace);
        Iter::new(self.handle().clone(), view, self.visible(), bounds, options)
    }

    /// The value a key had.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `NotFound` if the keyspace was made later.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_with(keyspace, key, &ReadOptions::default())
    }

    /// As [`Snapshot::get`], done as `options` say.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_with(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<Slice>> {
        let (engine, view) = (&self.handle().engine, self.keyspace(keyspace)?);
        read::get(engine, &view, key.as_ref(), self.visible(), options.asking())
    }

    /// The values that many keys had, in their order; see [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As [`Snapshot::get`], if one of the keys cannot be answered; the others are not answered then.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Slice>>> {
        self.multi_get_with(keyspace, keys, &ReadOptions::default())
    }

    /// As [`Snapshot::multi_get`], done as `options` say.
    ///
    /// # Errors
    /// As [`Snapshot::multi_get`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let (engine, view) = (&self.handle().engine, self.keyspace(keyspace)?);
        many::get(engine, &view, &keys, self.visible(), options.asking())
    }

    /// Whether a key was there. Its value is not read, wherever it is kept.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.contains_key_with(keyspace, key, &ReadOptions::default())
    }

    /// As [`Snapshot::contains_key`], done as `options` say.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains_key_with(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<bool> {
        let asking = options.asking();
        let (engine, view) = (&self.handle().engine, self.keyspace(keyspace)?);
        read::contains(engine, &view, key.as_ref(), self.visible(), asking)
    }

    /// How long the value of a key was, bytes. The value is not read, wherever it is kept.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn size_of(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        self.size_of_with(keyspace, key, &ReadOptions::default())
    }

    /// As [`Snapshot::size_of`], done as `options` say.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn size_of_with(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<u64>> {
        let asking = options.asking();
        let (engine, view) = (&self.handle().engine, self.keyspace(keyspace)?);
        read::size_of(engine, &view, key.as_ref(), self.visible(), asking)
    }

    /// The entries in `range` as they were; see [`Keyspace::range`].
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Iter {
        self.range_with(keyspace, range, &ReadOptions::default())
    }

    /// As [`Snapshot::range`], done as `options` say.
    pub fn range_with<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
        options: &ReadOptions,
    ) -> Iter {
        self.walk(keyspace, iter::bounds(&range), *options)
    }

    /// All entries as they were.
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// All keys as they were; values as [`Keyspace::keys`] says.
    pub fn keys(&self, keyspace: &Keyspace) -> Keys {
        self.iter(keyspace).keys()
    }

    /// The entries whose keys begin with `prefix`, as they were.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        self.prefix_with(keyspace, prefix, &ReadOptions::default())
    }

    /// As [`Snapshot::prefix`], done as `options` say.
    pub fn prefix_with(
        &self,
        keyspace: &Keyspace,
        prefix: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Iter {
        self.walk(keyspace, iter::prefix_bounds(prefix.as_ref()), *options)
    }

    /// The first entry as it was.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn first_key_value(&self, keyspace: &Keyspace) -> Result<Entry> {
        self.first_key_value_with(keyspace, &ReadOptions::default())
    }

    /// As [`Snapshot::first_key_value`], done as `options` say.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn first_key_value_with(
        &self,
        keyspace: &Keyspace,
        options: &ReadOptions,
    ) -> Result<Entry> {
        self.range_with::<&[u8]>(keyspace, .., options).one().next().transpose()
    }

    /// The last entry as it was.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn last_key_value(&self, keyspace: &Keyspace) -> Result<Entry> {
        self.last_key_value_with(keyspace, &ReadOptions::default())
    }

    /// As [`Snapshot::last_key_value`], done as `options` say.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn last_key_value_with(&self, keyspace: &Keyspace, options: &ReadOptions) -> Result<Entry> {
        self.range_with::<&[u8]>(keyspace, .., options).one().next_back().transpose()
    }

    /// How many entries there were, about; see [`Keyspace::approximate_len`]. What came since may count, as far as it
    /// is in the memtable of then.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn approximate_len(&self, keyspace: &Keyspace) -> Result<u64> {
        estimate::len(&*self.keyspace(keyspace)?, self.visible())
    }

    /// How many bytes the entries with keys in `range` took, about; see [`Keyspace::approximate_size`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn approximate_size<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<u64> {
        size_within(&*self.keyspace(keyspace)?, self.visible(), iter::bounds(&range))
    }

    /// Whether there was no entry.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn is_empty(&self, keyspace: &Keyspace) -> Result<bool> {
        Ok(self.iter(keyspace).one().keys().next().transpose()?.is_none())
    }
}
