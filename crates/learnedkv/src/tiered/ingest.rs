//! Bulk load: sorted entries become tables at once, without log and memtable.
//!
//! The tables are written first, whatever else goes on. Then, with commits held, they are put where
//! recency asks: no memtable may hold a key of their range, or a removed range there (else they are flushed
//! and we look again), and if no table does either, they become settled partitions; else they are the newest run. A keyspace
//! that keeps levels takes them into the deepest level that has nothing in their range, nor have those
//! above it; its compactions look again whether what they bring still fits. Where
//! writers put keys into the range all the time, they are made to wait for the second flush.

use std::sync::Arc;

use crate::engine::{Engine, Opened, lock};
use crate::error::{Error, Result};
use crate::format::entry::{KeyspaceId, Kind, MAX_KEY_BYTES, SequenceNumber};
use crate::format::manifest::{Change, LEVELS, PartitionRecord, TableRecord, Watermark};
use crate::lsm::flush::flush;
use crate::lsm::levels;
use crate::lsm::output::{Output, Written};
use crate::lsm::read;
use crate::options::Store;
use crate::value_log::Segments;
use crate::view::{Extent, KeyspaceView, View};

/// What an ingest did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Ingested {
    /// Entries taken.
    pub entries: u64,
    /// Bytes of the files written.
    pub table_bytes: u64,
    /// Whether they became settled partitions, or tables of the last level (no older data lay in their
    /// range).
    pub settled: bool,
}

/// An ingest under way: entries are pushed in key order, then it is finished.
pub struct Ingest {
    engine: Arc<Engine>,
    keyspace: KeyspaceId,
    output: Output,
    table_bytes: u64,
    sequence: SequenceNumber,
    entries: u64,
    last_key: Vec<u8>,
}

impl Ingest {
    /// Begins an ingest into a keyspace.
    ///
    /// # Errors
    /// `NotFound` if it was dropped; `DiskFull`; the writer's state of health.
    pub fn begin(engine: &Arc<Engine>, keyspace: KeyspaceId) -> Result<Ingest> {
        engine.health.check_writable()?;
        engine.check_room()?;
        let view = engine.keyspace(keyspace)?;
        Ok(Ingest {
            engine: engine.clone(),
            keyspace,
            output: Output::new(
                engine,
                view.options.settled_table(),
                view.options.settled_apart(),
                &Segments::default(),
            ),
            table_bytes: engine.sizes(&view.options).table_bytes,
            sequence: engine.log.visible(),
            entries: 0,
            last_key: Vec::new(),
        })
    }

    /// Takes the next entry.
    ///
    /// # Errors
    /// `InvalidArgument` if its key is not above the one before, or too long; any error of the disk.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.entries > 0 && key <= self.last_key.as_slice() {
            return Err(Error::invalid(format!(
                "ingest takes keys in ascending order: entry {} is b\"{}\", after b\"{}\"; sort them first",
                self.entries,
                key.escape_ascii(),
                self.last_key.escape_ascii()
            )));
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::invalid(format!(
                "expected a key of at most {MAX_KEY_BYTES} bytes, found {}",
                key.len()
            )));
        }
        if self.output.data_bytes() >= self.table_bytes || self.output.is_full() {
            self.output.end_table()?;
        }
        self.output.add(key, Kind::Value, self.sequence, value)?;
        self.entries += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Makes all entries durable and visible, together.
    ///
    /// # Errors
    /// Any error of the disk; then nothing was taken, unless the manifest could not be synced: after reopening all may be
    /// there, or nothing.
    pub fn finish(mut self) -> Result<Ingested> {
        let Written { tables: records, mut opened, bytes: table_bytes } = self.output.finish()?;
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(Ingested::default());
        };
        // Not where commits wait for it.
        self.engine.disk().sync_dir(self.engine.dir())?;
        opened.are_named = true;
        let smallest = first.properties.smallest.clone();
        let largest = last.properties.largest.clone();
        let (mut flushed, mut hold) = (false, None);
        let settled = loop {
            let placed = self
                .engine
                .with_commits_held(|| self.place(&records, &opened, &smallest, &largest));
            if let Some(settled) = placed? {
                break settled;
            }
            if flushed {
                // Somebody wrote into the range meanwhile, and may go on doing so for ever.
                hold.get_or_insert_with(|| self.engine.hold_commits());
            }
            self.flush_memtables()?;
            flushed = true;
        };
        self.output.keep();
        Ok(Ingested { entries: self.entries, table_bytes, settled })
    }

    /// Puts the tables in place if no memtable is in the way.
    fn place(
        &self,
        records: &[TableRecord],
        opened: &Opened,
        smallest: &[u8],
        largest: &[u8],
    ) -> Result<Option<bool>> {
        self.engine.log.await_reserved()?;
        let view = self.engine.keyspace(self.keyspace)?;
        if in_memtables(&view, smallest, largest) {
            return Ok(None);
        }
        // What a table that could not be opened says of the range nobody knows.
        let occupied = !view.tables.damaged.is_empty()
            || read::has_entries(&view, SequenceNumber::MAX, smallest, largest)?;
        let keyspace = self.keyspace;
        let mut settled = false;
        let plan = |state: &crate::manifest::State| {
            let state = state.keyspaces.get(&keyspace)?;
            let change = if view.options.chosen_store() == Store::Lsm {
                // Edits are held: the View shows what the state says.
                let tables = self.engine.keyspace(keyspace).ok()?.tables.clone();
                let extent = Extent::between(smallest, largest);
                let busy = lock(&self.engine.claims).first_level(keyspace, &extent);
                let free = levels::deepest_free(&tables, &extent, busy);
                settled = free.is_some_and(|(level, _)| level == LEVELS);
                free.map(|place| sink(keyspace, place, records))
            } else {
                // A sweep may have moved partitions meanwhile, never entries into the range.
                let change = if occupied { None } else { settle(keyspace, state, records) };
                settled = change.is_some();
                change
            };
            Some(vec![change.unwrap_or(Change::AddRun { keyspace, tables: records.to_vec() })])
        };
        // Whoever sees these entries after a crash sees every commit before them.
        let before = self.engine.log.reserved();
        let count = |view: &mut View| {
            if let Some(shown) = view.keyspaces.get_mut(&keyspace) {
                Arc::make_mut(shown).ingests += 1;
            }
        };
        if !self.engine.edit(before, opened, plan, count)? {
            return self.engine.keyspace(keyspace).map(|_| Some(false)); // dropped meanwhile
        }
        Ok(Some(settled))
    }

    fn flush_memtables(&self) -> Result<()> {
        flush(&self.engine, &[self.keyspace])
    }
}

/// Whether a memtable says anything of `smallest..=largest`: has an entry there, or a removed range.
fn in_memtables(view: &KeyspaceView, smallest: &[u8], largest: &[u8]) -> bool {
    view.memtables().any(|memtable| memtable.changed_within(smallest, Some(largest), 0))
}

/// The change that makes `records` tables of a level.
fn sink(keyspace: KeyspaceId, place: (usize, usize), records: &[TableRecord]) -> Change {
    let (level, at, tables) = (place.0 as u64, place.1 as u64, records.to_vec());
    Change::ReplaceTables { keyspace, removed: Vec::new(), level, at, tables }
}

/// The change that makes `records` partitions, if they all fall into one partition, none of whose
/// entries lie in their range.
fn settle(
    keyspace: KeyspaceId,
    state: &crate::manifest::KeyspaceState,
    records: &[TableRecord],
) -> Option<Change> {
    let smallest = records.first()?.properties.smallest.as_slice();
    let largest = records.last()?.properties.largest.as_slice();
    let at = state.partitions.partition_point(|p| p.lower.as_slice() <= smallest).checked_sub(1)?;
    let old = &state.partitions[at];
    if state.partitions.get(at + 1).is_some_and(|next| next.lower.as_slice() <= largest) {
        return None;
    }
    let old_tables = || old.base.iter().chain(&old.delta);
    // Tables may have keys that the partition cut off.
    let before = old.lower.as_slice() < smallest
        && old_tables().any(|t| t.properties.smallest.as_slice() < smallest);
    let after = old_tables().any(|t| t.properties.largest.as_slice() > largest);
    let mut partitions = Vec::new();
    if before {
        partitions.push(old.clone());
    }
    for record in records {
        // The first partition of all begins where the old one began.
        let lower = if partitions.is_empty() { &old.lower } else { &record.properties.smallest };
        partitions.push(PartitionRecord {
            lower: lower.clone(),
            base: Some(record.clone()),
            delta: None,
        });
    }
    if after {
        let lower = [largest, &[0]].concat();
        partitions.push(PartitionRecord { lower, ..old.clone() });
    }
    let from = old.lower.clone();
    Some(Change::ReplacePartitions {
        keyspace,
        from,
        count: 1,
        partitions,
        watermark: Watermark::Keep,
    })
}
