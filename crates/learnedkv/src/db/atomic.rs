//! Reading and writing in one step: compare and swap, update, pop.
//!
//! Each reads without a lock, decides, and commits only if what it read has not changed meanwhile; else it
//! begins again. Some caller always gets on, for one is only sent back by another's commit. Why nothing is
//! lost is written down at the engine's conditional commits.

use std::fmt;

use super::Keyspace;
use super::operation::Operation;
use crate::engine::{Seen, WasRead, Watched};
use crate::error::Result;
use crate::lsm::read;
use crate::options::{ReadOptions, WriteOptions};
use crate::slice::Slice;

/// Why [`Keyspace::compare_and_swap`] did not swap: the key's value was not the one expected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompareAndSwapError {
    /// The value it had; `None`: it was not there.
    pub current: Option<Slice>,
}

impl fmt::Display for CompareAndSwapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.current {
            Some(value) => write!(f, "expected another value, found one of {} bytes", value.len()),
            None => f.write_str("expected a value, found that the key is not there"),
        }
    }
}

impl std::error::Error for CompareAndSwapError {}

impl Keyspace {
    /// Sets the value of a key to `new`, if it is `expected`; `None` stands for "not there" in both. Nobody
    /// writes the key in between, on whichever thread, in a batch or alone.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-cas-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// let locks = db.keyspace("locks", KeyspaceOptions::default())?;
    /// assert!(locks.compare_and_swap("door", None, Some(b"alice"))?.is_ok());
    /// let taken = locks.compare_and_swap("door", None, Some(b"bob"))?.unwrap_err();
    /// assert_eq!(taken.current.as_deref(), Some(&b"alice"[..]));
    /// assert!(locks.compare_and_swap("door", Some(b"alice"), None)?.is_ok());
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::insert`]. The inner error: the value was another one.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<std::result::Result<(), CompareAndSwapError>> {
        self.compare_and_swap_with(key, expected, new, WriteOptions::default())
    }

    /// As [`Keyspace::compare_and_swap`], the write done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::compare_and_swap`] and [`Keyspace::insert_with`].
    pub fn compare_and_swap_with(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: impl Into<WriteOptions>,
    ) -> Result<std::result::Result<(), CompareAndSwapError>> {
        let (key, options) = (key.as_ref(), options.into());
        loop {
            let (seen, current) = self.see(key)?;
            if current.as_deref() != expected {
                return Ok(Err(CompareAndSwapError { current }));
            }
            if self.replace(seen, key, &current, new, options)? {
                return Ok(Ok(()));
            }
        }
    }

    /// Sets the value of a key to what `change` makes of it, and returns that; `None` stands for "not
    /// there" both ways. Nobody writes the key in between.
    ///
    /// `change` is called again, with the newer value, whenever somebody else wrote the key first. It may
    /// use the database, but not update the same key: that would send it back for ever.
    ///
    /// ```
    /// # use learnedkv::{Database, KeyspaceOptions};
    /// # fn main() -> learnedkv::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("learnedkv-update-{}", std::process::id()));
    /// # let db = Database::open(&dir)?;
    /// let visits = db.keyspace("visits", KeyspaceOptions::default())?;
    /// let count = |old: Option<&[u8]>| {
    ///     let old = old.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
    ///     Some((old + 1).to_be_bytes())
    /// };
    /// visits.update("home", count)?;
    /// assert_eq!(visits.update("home", count)?.as_deref(), Some(&2u64.to_be_bytes()[..]));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::insert`].
    pub fn update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Slice>> {
        self.update_with(key, change, WriteOptions::default())
    }

    /// As [`Keyspace::update`], the write done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::update`] and [`Keyspace::insert_with`].
    pub fn update_with<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<V>,
        options: impl Into<WriteOptions>,
    ) -> Result<Option<Slice>> {
        let (_, new) = self.change(key.as_ref(), change, options.into())?;
        Ok(new.map(|new| Slice::copy_from(new.as_ref())))
    }

    /// As [`Keyspace::update`], but returns the value the key had before.
    ///
    /// # Errors
    /// As [`Keyspace::update`].
    pub fn fetch_update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Slice>> {
        self.fetch_update_with(key, change, WriteOptions::default())
    }

    /// As [`Keyspace::fetch_update`], the write done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::update_with`].
    pub fn fetch_update_with<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<V>,
        options: impl Into<WriteOptions>,
    ) -> Result<Option<Slice>> {
        Ok(self.change(key.as_ref(), change, options.into())?.0)
    }

    /// Removes the first entry and returns it. Nobody gets the same entry, and none that was before it is
    /// passed over.
    ///
    /// It looks past all that was removed before that entry and not yet merged away, twice if others write
    /// meanwhile, the second time with commits held: as a queue it does best where flushes keep up.
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::insert`].
    pub fn pop_first(&self) -> Result<Option<(Slice, Slice)>> {
        self.pop(true)
    }

    /// Removes the last entry and returns it; otherwise as [`Keyspace::pop_first`].
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Slice, Slice)>> {
        self.pop(false)
    }

    fn pop(&self, first: bool) -> Result<Option<(Slice, Slice)>> {
        loop {
            let seen = self.handle().engine.look();
            let mut iter = self.walk_seen(&seen).one();
            let found = if first { iter.next() } else { iter.next_back() };
            drop(iter);
            let Some((key, value)) = found.transpose()? else { return Ok(None) };
            let id = self.id();
            let watched = match first {
                true => Watched { keyspace: id, first: &[], last: Some(&key) },
                false => Watched { keyspace: id, first: &key, last: None },
            };
            if self.write_if(&seen.read(id), watched, &key, None, WriteOptions::default())? {
                return Ok(Some((key, value)));
            }
        }
    }

    /// The value of `key`, and what it was read from.
    fn see(&self, key: &[u8]) -> Result<(Seen, Option<Slice>)> {
        let engine = &self.handle().engine;
        let seen = engine.look();
        let asking = ReadOptions::default().asking();
        let current = match seen.keyspace(self.id()) {
            Some(view) => read::get(engine, view, key, seen.visible, asking)?,
            None => read::get(engine, &*engine.keyspace(self.id())?, key, seen.visible, asking)?,
        };
        Ok((seen, current))
    }

    /// Changes a value; returns the old one and the new one.
    fn change<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
        options: WriteOptions,
    ) -> Result<(Option<Slice>, Option<V>)> {
        loop {
            let (seen, current) = self.see(key)?;
            let new = change(current.as_deref());
            let written = new.as_ref().map(AsRef::as_ref);
            if self.replace(seen, key, &current, written, options)? {
                return Ok((current, new));
            }
        }
    }

    /// Writes `new` in the place of `current` if the key has not changed since it was seen.
    fn replace(
        &self,
        seen: Seen,
        key: &[u8],
        current: &Option<Slice>,
        new: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<bool> {
        if current.is_none() && new.is_none() {
            // There is nothing to write: it was so when it was seen.
            self.handle().engine.health.check_writable()?;
            return Ok(true);
        }
        let watched = Watched { keyspace: self.id(), first: key, last: Some(key) };
        self.write_if(&seen.read(self.id()), watched, key, new, options)
    }

    fn write_if(
        &self,
        was_read: &WasRead,
        watched: Watched<'_>,
        key: &[u8],
        value: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<bool> {
        let engine = &self.handle().engine;
        let durability = options.durability_or(engine.options.durability);
        let operation = Operation::new(self, key, value)?;
        operation.commit(engine, self.id(), key, |commit| {
            engine.commit_unless_changed(commit, durability, was_read, watched)
        })
    }
}
