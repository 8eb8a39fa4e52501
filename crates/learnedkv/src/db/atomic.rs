//! Reading and writing in one step: compare and swap, update, pop.
//!
//! Each reads without a lock, decides, and commits only if what it read has not changed meanwhile; else it
//! begins again. Whether it has cannot always be told: then it is read again, in the end with commits held, and if it is
//! the same what was decided stands, and what was written for it. So one is only sent back by another's commit to the same
//! keys, and some caller always gets on. Why nothing is lost, and why it ends, is written down at the engine's
//! conditional commits.

use std::fmt;
use std::ops::Bound;

use super::Keyspace;
use super::iter::Bounds;
use super::operation::Operation;
use crate::engine::{Commit, Seen, Tried, Watched};
use crate::error::Result;
use crate::lsm::read::{self, Found};
use crate::options::{Durability, WriteOptions};
use crate::slice::Slice;

/// Whoever takes an entry from an end, and has gone over so many removed keys there, removes what lies before it as a range.
const PASSED: usize = 32;

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
    /// It reads the key, and once or twice more if others write meanwhile, the last time with commits held. A very long `new`
    /// is written to the disk once.
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
        let (seen, mut current) = self.see(key)?;
        let is_expected = current.as_ref().map(|found| &*found.value) == expected;
        if is_expected && self.replace(seen, key, &mut current, new, options, Rewritten::Unseen)? {
            return Ok(Ok(()));
        }
        Ok(Err(CompareAndSwapError { current: current.map(|found| found.value) }))
    }

    /// Sets the value of a key to what `change` makes of it, and returns that; `None` stands for "not
    /// there" both ways. Nobody writes the key in between.
    ///
    /// `change` is called again, with the newer value, whenever somebody else wrote the key first; if that was the same
    /// value anew, perhaps. Whatever others do to other keys, however long it takes, does not send it back. It may use
    /// the database, but not update the same key: that would send it back for ever.
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
    /// It looks past all that was removed before that entry and not yet merged away, twice if others' writes are
    /// flushed meanwhile, the second time with commits held, and again only if somebody else wrote there first: that
    /// entry or one before it. As a queue it does best where flushes keep up.
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::insert`].
    pub fn pop_first(&self) -> Result<Option<(Slice, Slice)>> {
        self.pop_first_with(WriteOptions::default())
    }

    /// As [`Keyspace::pop_first`], the removal done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`] and [`Keyspace::insert_with`].
    pub fn pop_first_with(
        &self,
        options: impl Into<WriteOptions>,
    ) -> Result<Option<(Slice, Slice)>> {
        self.pop(true, options.into())
    }

    /// Removes the last entry and returns it; otherwise as [`Keyspace::pop_first`].
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Slice, Slice)>> {
        self.pop_last_with(WriteOptions::default())
    }

    /// As [`Keyspace::pop_last`], the removal done as `options` say.
    ///
    /// # Errors
    /// As [`Keyspace::pop_first_with`].
    pub fn pop_last_with(
        &self,
        options: impl Into<WriteOptions>,
    ) -> Result<Option<(Slice, Slice)>> {
        self.pop(false, options.into())
    }

    fn pop(&self, first: bool, options: WriteOptions) -> Result<Option<(Slice, Slice)>> {
        let (engine, id) = (&self.handle().engine, self.id());
        loop {
            let seen = engine.look();
            let mut iter = self.walk_seen(&seen).one();
            let found = if first { iter.next() } else { iter.next_back() };
            let passed = iter.passed();
            drop(iter);
            let Some((key, mut value)) = found.transpose()? else { return Ok(None) };
            let watched = match first {
                true => Watched { keyspace: id, first: &[], last: Some(&key) },
                false => Watched { keyspace: id, first: &key, last: None },
            };
            let was_read = seen.read(id);
            // A queue would leave one removed key after the other, and whoever pops next would go over them all.
            let rest = match first {
                _ if passed < PASSED => None,
                true => Some((Bound::Unbounded, Bound::Included(key.to_vec()))),
                false => Some((Bound::Included(key.to_vec()), Bound::Unbounded)),
            };
            let popped = self.remove_if(&key, rest, options, |commit, how| {
                match engine.commit_unless_changed(commit, how, &was_read, watched)? {
                    Tried::Unknown => {}
                    tried => return Ok(tried == Tried::Done),
                }
                // So that it is found at hand while commits are held.
                let (_, mut known) = self.see(&key)?;
                let is_done = engine.commit_where(commit, how, |seen| {
                    let mut keys = self.walk_seen(seen).one().keys();
                    let end = if first { keys.next() } else { keys.next_back() };
                    if end.transpose()?.as_deref() != Some(&*key) {
                        return Ok(false);
                    }
                    known = self.find(seen, &key, known.as_ref())?;
                    Ok(known.is_some())
                })?;
                if let Some(found) = known {
                    value = found.value;
                }
                Ok(is_done)
            })?;
            if popped {
                return Ok(Some((key, value)));
            }
        }
    }

    /// What there is of `key`, and what it was read from.
    fn see(&self, key: &[u8]) -> Result<(Seen, Option<Found>)> {
        let seen = self.handle().engine.look();
        let found = self.find(&seen, key, None)?;
        Ok((seen, found))
    }

    /// What there is of `key`. A value that is `known`, and still where it was, is not read again.
    fn find(&self, seen: &Seen, key: &[u8], known: Option<&Found>) -> Result<Option<Found>> {
        let engine = &self.handle().engine;
        match seen.keyspace(self.id()) {
            Some(view) => read::get_again(engine, view, key, seen.visible, known),
            None => {
                let view = engine.keyspace(self.id())?;
                read::get_again(engine, &view, key, seen.visible, known)
            }
        }
    }

    /// Changes a value; returns the old one and the new one.
    fn change<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
        options: WriteOptions,
    ) -> Result<(Option<Slice>, Option<V>)> {
        loop {
            let (seen, mut current) = self.see(key)?;
            let new = change(current.as_ref().map(|found| &*found.value));
            let written = new.as_ref().map(AsRef::as_ref);
            if self.replace(seen, key, &mut current, written, options, Rewritten::Seen)? {
                return Ok((current.map(|found| found.value), new));
            }
        }
    }

    /// Writes `new` in the place of `current` if the key has not changed since it was seen. Else false; `current` is then
    /// what it was found to be, unless it was [`Rewritten`].
    fn replace(
        &self,
        seen: Seen,
        key: &[u8],
        current: &mut Option<Found>,
        new: Option<&[u8]>,
        options: WriteOptions,
        rewritten: Rewritten,
    ) -> Result<bool> {
        let (engine, id) = (&self.handle().engine, self.id());
        if current.is_none() && new.is_none() {
            // There is nothing to write: it was so when it was seen.
            engine.health.check_writable()?;
            if options.durability_or(engine.options.durability) == Durability::Synced {
                // Who removed the key may be waiting for the disk still.
                engine.log.sync(seen.visible).inspect_err(|e| engine.poison(e))?;
            }
            return Ok(true);
        }
        let watched = Watched { keyspace: id, first: key, last: Some(key) };
        let was_read = seen.read(id);
        let mut is_same = |seen: &Seen| {
            let now = self.find(seen, key, current.as_ref())?;
            let is_same = Found::is_same(now.as_ref(), current.as_ref());
            *current = now;
            Ok(is_same)
        };
        self.commit_if(key, new, options, |commit, how| {
            let ends = |tried| match tried {
                Tried::Changed => rewritten == Rewritten::Seen,
                tried => tried == Tried::Done,
            };
            let tried = engine.commit_unless_changed(commit, how, &was_read, watched)?;
            if ends(tried) {
                return Ok(tried == Tried::Done);
            }
            // What others did to other keys may be all that happened.
            let seen = engine.look();
            if !is_same(&seen)? {
                return Ok(false);
            }
            let tried = engine.commit_unless_changed(commit, how, &seen.read(id), watched)?;
            if ends(tried) {
                return Ok(tried == Tried::Done);
            }
            engine.commit_where(commit, how, is_same)
        })
    }

    /// Removes `key`, or all keys within bounds, if `commit` finds that it may, which may try more than once.
    fn remove_if(
        &self,
        key: &[u8],
        bounds: Option<Bounds>,
        options: WriteOptions,
        commit: impl FnOnce(Commit<'_>, Durability) -> Result<bool>,
    ) -> Result<bool> {
        let Some((from, removal)) = bounds.map(Operation::remove_range).transpose()?.flatten()
        else {
            return self.commit_if(key, None, options, commit);
        };
        let engine = &self.handle().engine;
        let durability = options.durability_or(engine.options.durability);
        removal.commit(engine, self.id(), &from, |ops| commit(ops, durability))
    }

    /// Writes `value` if `commit` finds that it may, which may try more than once: a very long one is on the disk by then.
    fn commit_if(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        options: WriteOptions,
        commit: impl FnOnce(Commit<'_>, Durability) -> Result<bool>,
    ) -> Result<bool> {
        let engine = &self.handle().engine;
        let durability = options.durability_or(engine.options.durability);
        let operation = Operation::new(self, key, value)?;
        operation.commit(engine, self.id(), key, |ops| commit(ops, durability))
    }
}

/// Whether a key that others wrote meanwhile counts as changed if its value is the same all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rewritten {
    /// It does: who made something of the value is asked anew.
    Seen,
    /// The value is all that matters.
    Unseen,
}
