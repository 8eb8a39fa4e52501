//! What all stores share: the commit path, edits of the manifest, the View, the state of health.
//!
//! Locks, in the order they may be taken:
//! 1. `commit`: the order of commits; held for the reservation of a place, and for rotations.
//! 2. `manifest`: the order of edits; held while an edit is written and synced.
//! 3. `view_change`: held while a new View is put in the place of the old one; never during I/O.
//!
//! Rules:
//! * A rotation happens under `commit`: earlier batches are in the old memtable, later ones in the
//!   new, which is in the View before its first write.
//! * An edit becomes durable, then the View shows it, then files it no longer names may go.
//! * No edit becomes durable before the log is synced up to all that it depends on.
//! * A failed sync of the log or the manifest poisons the writer: reads go on, writes are refused.

mod allowance;
mod ballast;
mod burials;
mod busy;
mod checkpoint;
pub mod claims;
mod commit;
mod conditional;
mod conversions;
mod gone;
mod health;
mod holds;
mod memory;
mod metrics;
mod open;
pub mod pace;
mod paid;
mod payloads;
mod periodic;
mod pins;
mod rates;
mod report;
mod spares;
mod streams;
mod unflushed;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

pub use self::ballast::{Ballast, BallastJob, RoomSeen};
pub use self::burials::Burials;
pub use self::commit::Commit;
pub use self::conditional::{Seen, Tried, Watched};
pub use self::conversions::Conversions;
pub use self::metrics::EngineMetrics;
pub use self::open::{look_in, open};
pub use self::pins::{Pinned, still_shown};
pub use self::report::{DamagedSegment, DamagedTable, OpenReport};
use crate::disk::{Disk, Lock};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::format::entry::{KeyspaceId, SequenceNumber, TableId};
use crate::format::manifest::{Change, Edit, TableRecord};
use crate::format::table::SegmentUse;
use crate::manifest::{Manifest, State, next_keyspace, touched_keyspaces};
use crate::memtable::Memtable;
use crate::options::{DatabaseOptions, Durability, KeyspaceOptions, MAX_SEALED};
use crate::sstable::reader::{Table, TableContext};
use crate::value_log::{Segment, Segments};
use crate::view::{KeyspaceView, Rent, Sealed, Tables, View};
use crate::wal::Log;
use allowance::Allowance;
pub use health::{DatabaseHealth, Health, Work};
use payloads::Payloads;
use periodic::Periodic;
pub use periodic::SyncJob;
pub use spares::Successor;
pub use streams::Streamed;
pub use unflushed::Without;
pub use wanted::Wanted;

/// The shared part of a database. See the module page.
#[derive(Debug)]
pub struct Engine {
    /// The options of this open.
    pub options: DatabaseOptions,
    /// Runs the background work.
    pub executor: Arc<dyn Executor>,
    /// What all tables share.
    pub context: Arc<TableContext>,
    /// The write-ahead log.
    pub log: Log,
    /// What was done.
    pub metrics: EngineMetrics,
    /// Which conversions were asked for and done.
    pub conversions: Mutex<Conversions>,
    /// What jobs work at.
    pub claims: Mutex<claims::Claims>,
    touched: unflushed::Touched,
    wanted: wanted::AllWanted,
    paid: paid::AllPaid,
    /// Commits up to here are in memtables that are sealed.
    sealed_up_to: AtomicU64,
    /// How fast writers may go.
    pub pace: pace::Pace,
    /// Whether the jobs of levels were started.
    pub compacts: AtomicBool,
    gone: gone::Gone,
    /// Whether writes can go on.
    pub health: Health,
    /// Room held back on the disk.
    pub ballast: Ballast,
    /// The files that were removed.
    burials: Burials,
    periodic: Periodic,
    allowance: Allowance,
    /// The snapshots that are open.
    pins: pins::Pins,
    memory: memory::Memory,
    /// `None` where the database was opened for reading only.
    manifest: Mutex<Option<Manifest>>,
    view: ArcSwap<View>,
    view_change: Mutex<()>,
    commit: Mutex<()>,
    /// How many hold commits back, or wait to.
    holds: AtomicUsize,
    held: Mutex<()>,
    /// Where single operations are encoded.
    pub payloads: Payloads,
    next_file: AtomicU64,
    _lock: Box<dyn Lock>,
}

/// Files that an edit adds, open.
#[derive(Debug, Default)]
pub struct Opened {
    /// Its tables.
    pub tables: Vec<Arc<Table>>,
    /// The value segments written with them.
    pub segments: Vec<Arc<Segment>>,
    /// Whether the names of all are durable already.
    pub are_named: bool,
}

impl Engine {
    /// The View of now.
    pub fn view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// A View and a visible sequence number that belong together.
    pub fn snapshot(&self) -> (Arc<View>, SequenceNumber) {
        let (view, visible) = while_unchanged(|| self.view.load(), || self.log.visible());
        (arc_swap::Guard::into_inner(view), visible)
    }

    /// The disk.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.context.disk
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.context.dir
    }

    /// A number for a table or a value segment that was never used.
    pub fn next_file(&self) -> TableId {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Commits operations: all of them are visible and as durable as asked for, or none.
    ///
    /// # Errors
    /// `DiskFull` or another error of the disk: nothing was written. `Closed`, `NotFound` (a keyspace was
    /// dropped) likewise. An error of a sync, own or another's (`Poisoned`): the commit is visible and
    /// may or may not be durable, and the writer is poisoned. `Poisoned` where an earlier record could not be
    /// written: it is not visible, and may be there after reopening.
    pub fn commit(&self, commit: Commit<'_>, durability: Durability) -> Result<()> {
        self.check_room_for(commit.payload)?;
        self.keep_pace(commit.keyspaces, commit.bytes())?;
        self.commit_if(commit, durability, || Ok(true)).map(drop)
    }

    /// Waits as long as whoever commits so many bytes has to, where background work lags behind.
    fn keep_pace(&self, keyspaces: &[KeyspaceId], bytes: u64) -> Result<()> {
        let Some(mut bill) = self.pace.charge(keyspaces, bytes) else { return Ok(()) };
        while let Some(delay) = bill.pay() {
            self.timed(&self.metrics.held_back, || self.executor.pause(delay));
            self.health.check_writable()?;
        }
        Ok(())
    }

    /// Commits operations if `holds` says so under the commit lock. False: nothing was written.
    fn commit_if(
        &self,
        commit: Commit<'_>,
        durability: Durability,
        holds: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        self.executor.yield_now();
        if self.holds.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.held));
        }
        self.admit(commit.payload)?;
        self.make_room(commit.keyspaces)?;
        let (ticket, memtables) = {
            let _order = lock(&self.commit);
            self.health.check_writable()?;
            self.recheck_room_for(commit.payload)?;
            if !holds()? {
                return Ok(false);
            }
            let memtables = self.memtables_for(commit.keyspaces)?;
            // Said before the numbers are given out: whoever sees them given out, and asks what the
            // log must keep, sees this too.
            let first = self.log.reserved() + 1;
            memtables.iter().for_each(|(_, m)| m.expect(first));
            let position = commit.external_position;
            let reserve = || self.log.reserve(commit.payload.len(), commit.count, position);
            (self.with_ballast_if_removing(commit.payload, reserve)?, memtables)
        };
        let (first, last) = (ticket.first(), ticket.last());
        let asks_for_more = ticket.asks_for_more();
        self.log.publish(ticket, commit.payload).inspect_err(|e| self.poison(e))?;
        self.apply(&commit, &memtables, first, last)?;
        self.count_removal(commit.payload);
        let put_bytes = commit.bytes();
        let before = self.metrics.put_bytes.fetch_add(put_bytes, Ordering::Relaxed);
        self.log.complete(first, last)?;
        if asks_for_more || first <= self.sealed_up_to.load(Ordering::SeqCst) {
            // The next segment, or memory of this one, is made. Or its memtable was sealed meanwhile, and the flush may wait for this commit alone.
            self.executor.notify();
        }
        self.look_at_memtables(before, before + put_bytes);
        match durability {
            Durability::Buffered => {}
            Durability::SyncedEvery(period) => self.sync_within(period),
            Durability::Synced => self.log.sync(last).inspect_err(|e| self.poison(e))?,
        }
        Ok(true)
    }

    /// Refuses writes from now on because of `error`, and wakes whoever waits for them.
    pub fn poison(&self, error: &Error) {
        self.health.poison(error);
        self.executor.notify();
    }

    /// Waits while too many memtables of a keyspace wait to be flushed, or those of all take too much.
    fn make_room(&self, keyspaces: &[KeyspaceId]) -> Result<()> {
        let full = || {
            if self.are_memtables_over() || self.are_pins_over() {
                return true;
            }
            let view = self.view();
            keyspaces.iter().any(|id| {
                view.keyspaces.get(id).is_some_and(|k| {
                    k.sealed.len() >= MAX_SEALED && k.active.is_full(self.options.memtable_bytes)
                })
            })
        };
        if full() {
            let since = self.health.ask_again();
            self.executor.notify();
            let works: Vec<_> = keyspaces.iter().map(|id| Work::Flush(*id)).collect();
            let given_up = || {
                self.health.check_work(&works, since)?;
                self.flush_error_if_over(since).map_or(Ok(()), Err)
            };
            self.timed(&self.metrics.held_back, || self.wait_until_done(&|| !full(), &given_up))?;
        }
        Ok(())
    }

    /// The memtables that take the next commit; full ones are rotated. Under `commit`.
    fn memtables_for(&self, keyspaces: &[KeyspaceId]) -> Result<Vec<(KeyspaceId, Arc<Memtable>)>> {
        let mut memtables = Vec::with_capacity(keyspaces.len());
        for &id in keyspaces {
            let mut active = self.keyspace(id)?.active.clone();
            if active.is_full(self.options.memtable_bytes) {
                active = self.rotate_locked(id)?;
            }
            self.touched.touch(id, &active, self.log.visible());
            memtables.push((id, active));
        }
        Ok(memtables)
    }

    /// The keyspace of that number, as the View of now shows it.
    ///
    /// # Errors
    /// `NotFound` if it was dropped.
    pub fn keyspace(&self, id: KeyspaceId) -> Result<Arc<KeyspaceView>> {
        let view = self.view();
        view.keyspaces.get(&id).cloned().ok_or_else(|| self.gone.error(id))
    }

    /// Seals the active memtable of a keyspace, if anything is in it. Returns the sequence number
    /// that all its operations up to now lie at or below.
    ///
    /// # Errors
    /// `NotFound` if the keyspace was dropped.
    pub fn rotate(&self, id: KeyspaceId) -> Result<SequenceNumber> {
        self.keyspace(id)?;
        Ok(self.rotate_all(&[id]))
    }

    fn rotate_locked(&self, id: KeyspaceId) -> Result<Arc<Memtable>> {
        self.keyspace(id)?;
        self.rotate_all_locked(&[id]);
        Ok(self.keyspace(id)?.active.clone())
    }

    /// Seals the active memtables of several keyspaces, of those that hold anything; one that was
    /// dropped has none. Returns the sequence number that all their operations up to now lie at or below.
    pub fn rotate_all(&self, ids: &[KeyspaceId]) -> SequenceNumber {
        let _order = lock(&self.commit);
        self.rotate_all_locked(ids);
        self.log.reserved()
    }

    fn rotate_all_locked(&self, ids: &[KeyspaceId]) {
        let view = self.view();
        let active = |id| view.keyspaces.get(&id).map(|k| k.active.clone());
        let is_full = |id: &KeyspaceId| active(*id).is_some_and(|active| !active.is_empty());
        let ids: BTreeSet<_> = ids.iter().copied().filter(is_full).collect();
        if ids.is_empty() {
            return;
        }
        let up_to = self.log.reserved();
        self.change_view(|view| {
            for id in &ids {
                if let Some(keyspace) = view.keyspaces.get_mut(id) {
                    let keyspace = Arc::make_mut(keyspace);
                    let memtable = std::mem::take(&mut keyspace.active);
                    self.note_moved_memory(memtable.size_bytes());
                    keyspace.sealed.insert(0, Sealed { memtable, up_to });
                }
            }
        });
        let holds_others = self.view().keyspaces.with_sealed().any(|k| !ids.contains(&k.id));
        self.touched.forget(ids.into_iter());
        self.health.ask_again();
        self.log.end_segment(self.touched.is_none() && !holds_others);
        // Before the flush looks: it sees that all is visible, or the last commit sees this.
        self.sealed_up_to.fetch_max(up_to, Ordering::SeqCst);
        self.executor.notify();
    }

    fn change_view(&self, change: impl FnOnce(&mut View)) {
        let _one_at_a_time = lock(&self.view_change);
        let mut view = View::clone(&self.view.load());
        change(&mut view);
        self.view.store(Arc::new(view));
    }

    /// What of the program's doings is counted, so that who asks again sees whether it is at work: lookups, walks that are
    /// over (not their steps), operations in commits.
    pub fn operations(&self) -> u64 {
        let metrics = &self.context.metrics;
        metrics.lookups.all() + metrics.walks.sum() + self.log.visible()
    }

    /// Opens a table that was just written.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub fn open_table(&self, record: &TableRecord) -> Result<Arc<Table>> {
        Ok(Arc::new(Table::open(&self.context, record.clone())?))
    }

    /// Opens a value segment that was just written.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn open_segment(&self, used: &SegmentUse) -> Result<Arc<Segment>> {
        Ok(Arc::new(Segment::open(&self.context, used)?))
    }

    /// Makes changes durable, then visible. `plan` sees the manifest's state and says what changes;
    /// `None` means that the changes do not apply any more, and nothing happens. `opened` are the
    /// files that the changes add: synced; their names are made durable here, all at once.
    /// `memtables` adjusts the View's memtables in the same moment.
    ///
    /// # Errors
    /// `DiskFull` if there is no room for the edit; any other error of the disk that meets the manifest or the log: the writer is then
    /// poisoned, for it is unknown whether the edit is durable. One that meets the directory before is an error like others.
    pub fn edit(
        &self,
        depends_on: SequenceNumber,
        opened: &Opened,
        plan: impl FnOnce(&State) -> Option<Vec<Change>>,
        memtables: impl FnOnce(&mut View),
    ) -> Result<bool> {
        self.log.sync(depends_on).inspect_err(|e| self.poison(e))?;
        if !opened.tables.is_empty() && !opened.are_named {
            self.disk().sync_dir(self.dir())?;
        }
        let mut guard = lock(&self.manifest);
        self.health.check_writable()?;
        let manifest = writable(&mut guard)?;
        let Some(changes) = plan(manifest.state()) else { return Ok(false) };
        let touched = touched_keyspaces(&changes);
        let edit = Edit {
            synced: self.log.synced(),
            next_file: self.next_file.load(Ordering::Relaxed),
            next_keyspace: next_keyspace(manifest.state(), &changes),
            changes,
        };
        // Keyspaces are not made with the space held back.
        let grows = edit.changes.iter().any(|c| matches!(c, Change::CreateKeyspace { .. }));
        let committed = match manifest.commit(&edit) {
            Err(_) if !grows && !manifest.is_in_doubt() => {
                self.with_ballast(|| manifest.commit(&edit))
            }
            done => done,
        };
        if let Err(e) = committed {
            // An edit that does not fit, or has no room, was not written.
            if manifest.is_in_doubt() {
                self.poison(&e);
            }
            return Err(e);
        }
        // What is durable and not shown must not be taken for what did not happen.
        let shown = self.show(manifest.state(), &touched, opened, memtables);
        shown.inspect_err(|e| self.poison(e))?;
        drop(guard);
        self.executor.notify();
        Ok(true)
    }

    /// Puts the state of `touched` keyspaces into a new View, and retires tables that left it.
    fn show(
        &self,
        state: &State,
        touched: &BTreeSet<KeyspaceId>,
        opened: &Opened,
        memtables: impl FnOnce(&mut View),
    ) -> Result<()> {
        let before = self.view.load_full();
        let mut known: BTreeMap<_, _> = opened.tables.iter().map(|t| (t.id(), t.clone())).collect();
        let mut segments = Segments::default();
        for keyspace in touched.iter().filter_map(|id| before.keyspaces.get(id)) {
            known.extend(keyspace.tables.all().map(|t| (t.id(), t.clone())));
            keyspace.tables.segments.iter().for_each(|segment| segments.insert(segment.clone()));
        }
        // Among them successors of those.
        opened.segments.iter().for_each(|segment| segments.insert(segment.clone()));
        let mut shown = Vec::new();
        for id in touched {
            let Some(keyspace) = state.keyspaces.get(id) else { continue };
            let open = |record: &TableRecord| match known.get(&record.id) {
                Some(table) => Ok(table.clone()),
                None => self.open_table(record),
            };
            let tables = Tables::of(keyspace, open, |used| match segments.get(used.segment) {
                Some(segment) => Ok(segment.clone()),
                None => self.open_segment(used),
            })?;
            let options = match before.keyspaces.get(id) {
                Some(shown) => shown.options.clone(),
                None => before.keyspaces.sharing(self.options_of(keyspace)?),
            };
            shown.push((*id, keyspace, options, Arc::new(tables)));
        }
        let mut kept: BTreeSet<TableId> = BTreeSet::new();
        for (_, _, _, tables) in &shown {
            // Tables and segments take their numbers from one sequence.
            kept.extend(tables.all().map(|t| t.id()));
            kept.extend(tables.segments.iter().map(|s| s.id()));
        }
        let gone = touched.iter().filter(|id| !state.keyspaces.contains_key(id));
        for keyspace in gone.filter_map(|id| before.keyspaces.get(id)) {
            self.gone.note(keyspace.id, &keyspace.name);
        }
        let mut dropped = Vec::new();
        self.change_view(|view| {
            let gone = touched.iter().filter(|id| !state.keyspaces.contains_key(id));
            dropped.extend(gone.filter_map(|id| view.keyspaces.remove(id)));
            for (id, keyspace, options, tables) in shown {
                match view.keyspaces.get_mut(&id) {
                    Some(shown) => Arc::make_mut(shown).tables = tables,
                    None => {
                        let made = new_keyspace(id, &keyspace.name, options, tables);
                        view.keyspaces.insert(id, made);
                    }
                }
            }
            memtables(view);
        });
        self.let_go(&dropped);
        // Of several nobody knows which replaced what; a keyspace that is gone waits for nothing.
        let owner = touched.first().copied().filter(|_| touched.len() == 1 && dropped.is_empty());
        let number = self.context.graveyard.next_view();
        known.values().filter(|t| !kept.contains(&t.id())).for_each(|t| t.retire(owner, number));
        segments.iter().filter(|s| !kept.contains(&s.id())).for_each(|s| s.retire(owner, number));
        self.fit_cache();
        self.note_left(&before, touched);
        Ok(())
    }

    /// Forgets what keyspaces held that the View does not show any more.
    fn let_go(&self, dropped: &[Arc<KeyspaceView>]) {
        self.touched.forget(dropped.iter().map(|keyspace| keyspace.id));
        for keyspace in dropped {
            // Whoever notes what it met later looks whether it is there.
            self.health.forget(keyspace.id);
            streams::retire_streamed(keyspace);
            self.note_moved_memory(keyspace.memtables().map(|m| m.size_bytes()).sum());
        }
    }

    /// Stops background work and makes all that was written durable.
    ///
    /// # Errors
    /// `Closed` if it was closed before; those of the last sync.
    pub fn close(&self) -> Result<()> {
        if !self.health.close() {
            return Err(Error::new(ErrorKind::Closed, "the database was closed before"));
        }
        self.executor.notify();
        self.executor.shutdown();
        // What the jobs looked at last nobody uses any more.
        self.bury();
        self.log.keep_nothing();
        // Commits that were let in before are closed with the others.
        drop(lock(&self.commit));
        self.log.await_reserved()?;
        self.log.sync(self.log.visible())?;
        let mut manifest = lock(&self.manifest);
        let Some(manifest) = &mut *manifest else { return Ok(()) };
        let synced = self.log.synced();
        if self.health.is_poisoned() || manifest.state().synced == synced {
            return Ok(());
        }
        // From now on a damaged end of the log is known not to be a torn one.
        let State { next_file, next_keyspace, .. } = *manifest.state();
        manifest.commit(&Edit { synced, next_file, next_keyspace, changes: Vec::new() })
    }
}

/// The manifest of a database that is written.
fn writable(manifest: &mut Option<Manifest>) -> Result<&mut Manifest> {
    let refused = || Error::new(ErrorKind::ReadOnly, "the database was opened for reading only");
    manifest.as_mut().ok_or_else(refused)
}

/// What `look` and `read` say, `look` saying the same before and after `read`. Else a commit that is
/// visible by the number read could stand, in part, in a memtable that the View looked at lacks.
fn while_unchanged<P: Deref<Target = Arc<V>>, V, T>(
    look: impl Fn() -> P,
    read: impl Fn() -> T,
) -> (P, T) {
    loop {
        let (seen, value) = (look(), read());
        if Arc::ptr_eq(&seen, &look()) {
            return (seen, value);
        }
    }
}

/// A keyspace that was just made or opened, with nothing in memory.
fn new_keyspace(
    id: KeyspaceId,
    name: &str,
    options: Arc<KeyspaceOptions>,
    tables: Arc<Tables>,
) -> Arc<KeyspaceView> {
    Arc::new(KeyspaceView {
        id,
        name: name.into(),
        options,
        active: Arc::default(),
        sealed: Vec::new(),
        tables,
        ingests: 0,
        lengths: Arc::default(),
        rent: Arc::default(),
        merging: Arc::new(Rent::for_merging()),
        asked_in_vain: Arc::default(),
    })
}

/// Locks a mutex; a panic while it was held left nothing half-done that its users could see.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
