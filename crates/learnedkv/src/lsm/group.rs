//! Flushes that are written, and wait for the edit that installs them: small ones together, so that thousands of idle
//! keyspaces, each with little in memory, cost few syncs of the log and the manifest.
//!
//! A flush in a group is synced and named by nobody: its memtable stays in the View, and in the log, until the edit.
//! A crash before it leaves orphans, as that of one flush does. The edit depends on the log up to the last
//! operation of all, and takes all at once, so it is synced once, and before it the directory. Of a keyspace only one is in a group: what the
//! next writes, it decides by the tables that the View shows.
//!
//! Nobody waits longer for it than for one memtable: a group is installed before it holds a quarter of one, or
//! [`MOST`], and as soon as nothing else is to be flushed. A flush that failed before is tried alone: what it
//! fails of must not keep others back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::output::{Output, Written};
use crate::engine::{Engine, Opened, Without};
use crate::error::Result;
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::format::manifest::Change;
use crate::manifest::State;
use crate::memtable::Memtable;
use crate::view::{Sealed, View};

/// How many flushes an edit installs at most.
const MOST: usize = 128;

/// A flush whose files are synced.
pub struct Finished {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// What it flushed.
    pub sealed: Sealed,
    /// Removes the files if they are not installed.
    pub output: Output,
    /// The files.
    pub written: Written,
}

impl Finished {
    fn changes(&self) -> impl Iterator<Item = Change> {
        let (keyspace, up_to) = (self.keyspace, self.sealed.up_to);
        // Where none of its commits carried one, the former stays.
        let carried = self.sealed.memtable.positions.newest(|| up_to);
        let carried = carried.map(|carried| Change::ExternalPosition { keyspace, carried });
        let tables = self.written.tables.clone();
        let run = (!tables.is_empty()).then_some(Change::AddRun { keyspace, tables });
        [Change::Flushed { keyspace, up_to }].into_iter().chain(carried).chain(run)
    }
}

/// Flushes that one edit is to install. Dropped, their files go.
#[derive(Default)]
pub struct Group {
    flushes: Vec<Finished>,
    /// Their keyspaces: each is asked for at every look.
    held: BTreeSet<KeyspaceId>,
    memtable_bytes: usize,
}

impl Group {
    /// Adds a flush.
    pub fn push(&mut self, finished: Finished) {
        self.memtable_bytes += finished.sealed.memtable.size_bytes();
        self.held.insert(finished.keyspace);
        self.flushes.push(finished);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.flushes.is_empty()
    }

    /// Whether one is of that keyspace.
    pub fn holds(&self, keyspace: KeyspaceId) -> bool {
        self.held.contains(&keyspace)
    }

    /// The keyspaces.
    pub fn keyspaces(&self) -> Vec<KeyspaceId> {
        self.flushes.iter().map(|finished| finished.keyspace).collect()
    }

    /// Whether it may wait until `more` bytes of memtables are flushed, where one may take `memtable_bytes`.
    pub fn has_room_for(&self, more: usize, memtable_bytes: usize) -> bool {
        self.flushes.len() < MOST && self.memtable_bytes + more < memtable_bytes / 4
    }

    /// Makes all of them runs, but those whose keyspaces are gone.
    ///
    /// # Errors
    /// As [`Engine::edit`]: then none is installed.
    pub fn install(mut self, engine: &Engine) -> Result<()> {
        loop {
            let view = engine.view();
            self.flushes.retain(|finished| view.keyspaces.contains_key(&finished.keyspace));
            drop(view);
            // Refused only where one was dropped meanwhile: the View is without it then.
            if self.flushes.is_empty() || self.install_all(engine)? {
                return Ok(());
            }
        }
    }

    fn opened(&self) -> Opened {
        let mut all = Opened::default();
        for Finished { sealed, written, .. } in &self.flushes {
            all.tables.extend(written.opened.tables.iter().cloned());
            all.segments.extend(written.opened.segments.iter().cloned());
            // Those that the tables do not point at are retired with the edit.
            all.segments.extend(sealed.memtable.streamed.all().iter().cloned());
        }
        all
    }

    fn install_all(&mut self, engine: &Engine) -> Result<bool> {
        let memtables = self.flushes.iter().map(|finished| &finished.sealed.memtable);
        let memtables: Vec<Arc<Memtable>> = memtables.cloned().collect();
        let goes = |memtable: &Arc<Memtable>| memtables.iter().any(|m| Arc::ptr_eq(m, memtable));
        let mut retention = None;
        let plan = |state: &State| {
            if !self.flushes.iter().all(|f| state.keyspaces.contains_key(&f.keyspace)) {
                return None;
            }
            let keep = engine.log.retention(engine.oldest_needed(Without::Memtables(&memtables)));
            let mut changes: Vec<_> = self.flushes.iter().flat_map(Finished::changes).collect();
            changes.push(keep.change.clone());
            retention = Some(keep);
            Some(changes)
        };
        let forget = |view: &mut View| {
            engine.note_moved_memory(self.memtable_bytes);
            for Finished { keyspace, .. } in &self.flushes {
                if let Some(shown) = view.keyspaces.get_mut(keyspace) {
                    Arc::make_mut(shown).sealed.retain(|sealed| !goes(&sealed.memtable));
                }
            }
        };
        let up_to = self.flushes.iter().map(|f| f.sealed.up_to).fold(0, SequenceNumber::max);
        let needs_no_log = engine.needs_no_log(up_to, |_, memtable| goes(memtable));
        let depends_on = if needs_no_log { 0 } else { up_to };
        if !engine.edit(depends_on, &self.opened(), plan, forget)? {
            return Ok(false);
        }
        let count = self.flushes.len() as u64;
        let bytes = self.flushes.iter().map(|finished| finished.written.bytes).sum();
        self.flushes.iter_mut().for_each(|finished| finished.output.keep());
        let unlogged = if needs_no_log { count } else { 0 };
        engine.metrics.unlogged_flushes.fetch_add(unlogged, Ordering::Relaxed);
        memtables.iter().for_each(|memtable| engine.note_flush(memtable.put_bytes()));
        engine.metrics.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(retention) = retention {
            engine.log.remove(&retention);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    use crate::memory::Shared;

    use super::super::flush::FlushJob;
    use super::*;
    use crate::disk::faulty::{Fault, FaultyDisk};
    use crate::disk::sim::{SimDisk, Stage};
    use crate::disk::{Disk, OperationKind};
    use crate::engine::{Commit, open};
    use crate::executor::{Job, SeededExecutor, Step};
    use crate::format::batch::put_op;
    use crate::format::entry::Kind;
    use crate::options::{DatabaseOptions, Durability, KeyspaceOptions};

    /// Keyspaces 1 to 8 with an entry each, sealed. No job runs.
    fn engine(disk: impl Disk + 'static) -> Arc<Engine> {
        let executor = Arc::new(SeededExecutor::new(1));
        let options = DatabaseOptions::default();
        let (engine, _) = open(Arc::new(disk), executor, Path::new("/db"), options).unwrap();
        let create = |keyspace| Change::CreateKeyspace {
            keyspace,
            name: format!("k{keyspace}"),
            options: KeyspaceOptions::default().encode(),
        };
        let changes = (1..=8).map(create).collect();
        engine.edit(0, &Opened::default(), |_| Some(changes), |_| {}).unwrap();
        put_all(&engine);
        engine
    }

    fn put_all(engine: &Engine) {
        for keyspace in 1..=8 {
            let mut payload = Vec::new();
            put_op(&mut payload, keyspace, Kind::Value, b"key", b"value");
            let commit = Commit {
                payload: &Shared::from(payload),
                count: 1,
                keyspaces: &[keyspace],
                streamed: &[],
                external_position: None,
            };
            engine.commit(commit, Durability::Buffered).unwrap();
        }
        engine.rotate_all(&(1..=8).collect::<Vec<_>>());
    }

    /// The keyspaces that wait for a flush, and the tables of all.
    fn told(engine: &Engine) -> (Vec<KeyspaceId>, usize) {
        let view = engine.view();
        let waiting = view.keyspaces.with_sealed().map(|k| k.id).collect();
        (waiting, view.keyspaces.values().map(|k| k.tables.all().count()).sum())
    }

    fn table_files(disk: &SimDisk) -> usize {
        let names = disk.list(Path::new("/db")).unwrap();
        names.iter().filter(|name| name.starts_with("table-")).count()
    }

    /// Of the manifest, and of the directory.
    fn syncs(disk: &SimDisk) -> impl Fn() -> [u64; 2] {
        let counts: Arc<[AtomicU64; 2]> = Arc::default();
        let counted = counts.clone();
        disk.observe(move |operation, _| {
            let name = operation.path.file_name().unwrap_or_default().to_string_lossy();
            let of = match operation.kind {
                OperationKind::Sync if name.starts_with("manifest") => 0,
                OperationKind::SyncDir => 1,
                _ => return,
            };
            let counts = u64::from(operation.stage == Stage::Before);
            counted[of].fetch_add(counts, Ordering::Relaxed);
        });
        move || [0, 1].map(|of| counts[of].load(Ordering::Relaxed))
    }

    #[test]
    fn small_flushes_are_installed_by_one_edit() {
        let disk = SimDisk::new(1);
        let engine = engine(disk.clone());
        let syncs = syncs(&disk);
        let mut job = FlushJob::new(&engine);
        for _ in 0..7 {
            assert_eq!((job.step(), told(&engine).0.len()), (Step::Again, 8));
        }
        assert_eq!(syncs(), [0, 0]);
        while job.step() == Step::Again {}
        assert_eq!(told(&engine), (vec![], 8));
        assert_eq!(syncs(), [1, 1], "edits, and the names of all tables");
        assert_eq!(engine.metrics.flushes.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn what_is_dropped_meanwhile_is_not_installed_and_leaves_nothing() {
        let disk = SimDisk::new(1);
        let engine = engine(disk.clone());
        let mut job = FlushJob::new(&engine);
        (0..7).for_each(|_| assert_eq!(job.step(), Step::Again));
        assert_eq!(table_files(&disk), 7);
        for keyspace in [1, 5] {
            let changes = vec![Change::DropKeyspace { keyspace }];
            assert!(engine.edit(0, &Opened::default(), |_| Some(changes), |_| {}).unwrap());
        }
        while job.step() == Step::Again {}
        assert_eq!(told(&engine), (vec![], 6));
        assert_eq!(table_files(&disk), 6);
    }

    /// One whose table cannot be made waits until somebody asks.
    #[test]
    fn a_flush_that_fails_keeps_none_of_the_others_back() {
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
        let engine = engine(disk.clone());
        let mut job = FlushJob::new(&engine);
        disk.fail(Fault::at(3).of(&[OperationKind::Create]).on_paths_with("table-"));
        while job.step() == Step::Again {}
        assert_eq!(told(&engine), (vec![4], 7));
        assert!(!engine.health.is_well());
        engine.health.ask_again();
        while job.step() == Step::Again {}
        assert_eq!(told(&engine), (vec![], 8));
        assert!(engine.health.is_well());
    }

    #[test]
    fn a_job_that_is_dropped_amid_a_group_leaves_nothing() {
        let disk = SimDisk::new(1);
        let engine = engine(disk.clone());
        let mut job = FlushJob::new(&engine);
        (0..5).for_each(|_| assert_eq!(job.step(), Step::Again));
        assert_eq!(table_files(&disk), 5);
        drop(job);
        assert_eq!((table_files(&disk), told(&engine).0.len()), (0, 8));
    }
}
