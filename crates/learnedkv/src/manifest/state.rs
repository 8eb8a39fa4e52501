//! What a manifest's edits add up to, and how each change changes it.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::format::entry::{CarriedPosition, KeyspaceId, SequenceNumber, TableId};
use crate::format::manifest::{
    Change, Edit, LEVELS, LogState, OptionList, PartitionRecord, TableRecord, Watermark,
    shared_options,
};

/// A frozen part: runs that a sweep is merging into the settled run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenState {
    /// Its runs, oldest first.
    pub runs: Vec<Vec<TableRecord>>,
    /// Keys below it are settled.
    pub watermark: Vec<u8>,
}

/// The state of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceState {
    /// Its name.
    pub name: String,
    /// Its options, by name.
    pub options: OptionList,
    /// Operations up to here are in its tables.
    pub flushed: SequenceNumber,
    /// The newest external position that came with any of these.
    pub external_position: Option<CarriedPosition>,
    /// The runs of its LSM part, oldest first.
    pub runs: Vec<Vec<TableRecord>>,
    /// Below its runs, level 1 first: each of tables in key order that do not overlap, older than all
    /// above. Those of a keyspace that is settled into partitions are empty.
    pub levels: Vec<Vec<TableRecord>>,
    /// Its frozen part, while a sweep is under way.
    pub frozen: Option<FrozenState>,
    /// Its settled run: partitions that tile the key space, in order; the first begins at the
    /// empty key.
    pub partitions: Vec<PartitionRecord>,
}

impl KeyspaceState {
    /// All its tables.
    pub fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        let frozen = self.frozen.iter().flat_map(|f| &f.runs);
        let runs = self.runs.iter().chain(&self.levels).chain(frozen).flatten();
        runs.chain(self.partitions.iter().flat_map(|p| p.base.iter().chain(&p.delta)))
    }

    /// The same, to change what is said of them. A table may be listed more than once.
    pub fn tables_mut(&mut self) -> impl Iterator<Item = &mut TableRecord> {
        let frozen = self.frozen.iter_mut().flat_map(|f| &mut f.runs);
        let runs = self.runs.iter_mut().chain(&mut self.levels).chain(frozen).flatten();
        runs.chain(self.partitions.iter_mut().flat_map(|p| p.base.iter_mut().chain(&mut p.delta)))
    }
}

/// The state of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// The highest sequence number known to be durable in the log.
    pub synced: SequenceNumber,
    /// Files of this number and above do not exist.
    pub next_file: u64,
    /// Keyspaces of this number and above do not exist.
    pub next_keyspace: KeyspaceId,
    /// The keyspaces.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceState>,
    /// The log.
    pub log: LogState,
}

/// What of a [`State`] an edit may change, as it was before.
pub struct Touched {
    /// `None`: it was not there.
    keyspaces: Vec<(KeyspaceId, Option<KeyspaceState>)>,
    rest: (SequenceNumber, u64, KeyspaceId, LogState),
}

impl State {
    /// What of the state an edit may change: a copy of the keyspaces it names, and of no others.
    pub fn touched_by(&self, edit: &Edit) -> Touched {
        let ids = touched_keyspaces(&edit.changes).into_iter();
        let keyspaces = ids.map(|id| (id, self.keyspaces.get(&id).cloned())).collect();
        let rest = (self.synced, self.next_file, self.next_keyspace, self.log.clone());
        Touched { keyspaces, rest }
    }

    /// Makes the state what it was before an edit.
    pub fn restore(&mut self, before: Touched) {
        for (id, keyspace) in before.keyspaces {
            match keyspace {
                Some(keyspace) => drop(self.keyspaces.insert(id, keyspace)),
                None => drop(self.keyspaces.remove(&id)),
            }
        }
        (self.synced, self.next_file, self.next_keyspace, self.log) = before.rest;
    }

    /// Applies an edit.
    ///
    /// # Errors
    /// `Corruption` if it does not fit the state.
    pub fn apply(&mut self, edit: &Edit) -> Result<()> {
        self.synced = self.synced.max(edit.synced);
        self.next_file = self.next_file.max(edit.next_file);
        self.next_keyspace = self.next_keyspace.max(edit.next_keyspace);
        for change in &edit.changes {
            self.apply_change(change)?;
        }
        Ok(())
    }

    fn keyspace(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceState> {
        self.keyspaces.get_mut(&id).ok_or_else(|| misfit(format!("there is no keyspace {id}")))
    }

    fn apply_change(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::CreateKeyspace { keyspace, name, options } => {
                let empty = PartitionRecord { lower: Vec::new(), base: None, delta: None };
                let last = self.keyspaces.values().next_back().map(|last| &last.options);
                let state = KeyspaceState {
                    name: name.clone(),
                    options: shared_options(options.clone(), last),
                    flushed: 0,
                    external_position: None,
                    runs: Vec::new(),
                    levels: Vec::new(),
                    frozen: None,
                    partitions: vec![empty],
                };
                if self.keyspaces.insert(*keyspace, state).is_some() {
                    return Err(misfit(format!("keyspace {keyspace} is there already")));
                }
            }
            Change::DropKeyspace { keyspace } => {
                self.keyspace(*keyspace)?;
                self.keyspaces.remove(keyspace);
            }
            Change::Flushed { keyspace, up_to } => {
                let state = self.keyspace(*keyspace)?;
                state.flushed = state.flushed.max(*up_to);
            }
            Change::ExternalPosition { keyspace, carried } => {
                self.keyspace(*keyspace)?.take_position(*carried)?;
            }
            Change::AddRun { keyspace, tables } => {
                self.keyspace(*keyspace)?.runs.push(tables.clone());
            }
            Change::ReplaceRuns { keyspace, first, count, tables } => {
                let runs = &mut self.keyspace(*keyspace)?.runs;
                let range = replaced(*first, *count, runs.len())?;
                let run = (!tables.is_empty()).then(|| tables.clone());
                runs.splice(range, run);
            }
            Change::Freeze { keyspace } => {
                let state = self.keyspace(*keyspace)?;
                if state.frozen.is_some() {
                    return Err(misfit(format!("keyspace {keyspace} has a frozen part already")));
                }
                let runs = std::mem::take(&mut state.runs);
                state.frozen = Some(FrozenState { runs, watermark: Vec::new() });
            }
            Change::ReplacePartitions { keyspace, from, count, partitions, watermark } => {
                let state = self.keyspace(*keyspace)?;
                state.replace_partitions(from, *count, partitions)?;
                state.move_watermark(watermark)?;
            }
            Change::Frozen { keyspace, runs, watermark } => {
                let frozen = FrozenState { runs: runs.clone(), watermark: watermark.clone() };
                self.keyspace(*keyspace)?.frozen = Some(frozen);
            }
            Change::ReplaceTables { keyspace, removed, level, at, tables } => {
                self.keyspace(*keyspace)?.replace_tables(removed, *level, *at, tables)?;
            }
            Change::Log { ended, open_from, first } => {
                self.log = LogState { ended: ended.clone(), open_from: *open_from, first: *first };
            }
        }
        Ok(())
    }

    /// The edit that makes this state out of nothing.
    pub fn to_edit(&self) -> Edit {
        let mut changes = Vec::new();
        for (&keyspace, state) in &self.keyspaces {
            let (name, options) = (state.name.clone(), state.options.clone());
            changes.push(Change::CreateKeyspace { keyspace, name, options });
            changes.push(Change::Flushed { keyspace, up_to: state.flushed });
            let carried = state.external_position;
            changes.extend(carried.map(|carried| Change::ExternalPosition { keyspace, carried }));
            let runs = state.runs.iter().cloned();
            changes.extend(runs.map(|tables| Change::AddRun { keyspace, tables }));
            let levels = (1..).zip(state.levels.iter().cloned()).filter(|(_, t)| !t.is_empty());
            changes.extend(levels.map(|(level, tables)| Change::ReplaceTables {
                keyspace,
                removed: Vec::new(),
                level,
                at: 0,
                tables,
            }));
            changes.push(Change::ReplacePartitions {
                keyspace,
                from: Vec::new(),
                count: 1,
                partitions: state.partitions.clone(),
                watermark: Watermark::Keep,
            });
            if let Some(FrozenState { runs, watermark }) = state.frozen.clone() {
                changes.push(Change::Frozen { keyspace, runs, watermark });
            }
        }
        let LogState { ended, open_from, first } = self.log.clone();
        changes.push(Change::Log { ended, open_from, first });
        Edit {
            synced: self.synced,
            next_file: self.next_file,
            next_keyspace: self.next_keyspace,
            changes,
        }
    }
}

impl KeyspaceState {
    /// A position is never newer than the data: whoever goes on behind it would miss what lies between.
    fn take_position(&mut self, carried: CarriedPosition) -> Result<()> {
        let (found, flushed) = (carried.sequence, self.flushed);
        let before = self.external_position.map_or(0, |before| before.sequence);
        if found > flushed || found < before {
            return Err(misfit(format!(
                "expected the external position of an operation from {before} to {flushed}, found {found}"
            )));
        }
        self.external_position = Some(carried);
        Ok(())
    }

    fn replace_partitions(
        &mut self,
        from: &[u8],
        count: u64,
        partitions: &[PartitionRecord],
    ) -> Result<()> {
        let first = self.partitions.binary_search_by(|p| p.lower.as_slice().cmp(from));
        let first = first.map_err(|_| misfit("no partition begins where one is replaced"))?;
        let range = replaced(first as u64, count, self.partitions.len())?;
        let end = self.partitions.get(range.end).map(|p| p.lower.as_slice());
        let lowers = partitions.iter().map(|p| p.lower.as_slice());
        let in_order = lowers.clone().zip(lowers.clone().skip(1)).all(|(a, b)| a < b);
        let last = partitions.last().map(|p| p.lower.as_slice());
        if lowers.clone().next() != Some(from)
            || !in_order
            || end.is_some_and(|end| last.is_some_and(|last| last >= end))
        {
            return Err(misfit("the new partitions do not tile the place of the old ones"));
        }
        self.partitions.splice(range, partitions.iter().cloned());
        Ok(())
    }

    /// See [`Change::ReplaceTables`].
    ///
    /// # Errors
    /// `Corruption` if a table that goes is not there, or entries of the level would not be in order.
    fn replace_tables(
        &mut self,
        removed: &[TableId],
        level: u64,
        at: u64,
        tables: &[TableRecord],
    ) -> Result<()> {
        if !(1..=LEVELS as u64).contains(&level) {
            return Err(misfit(format!("expected a level from 1 to {LEVELS}, found {level}")));
        }
        let gone: BTreeSet<_> = removed.iter().copied().collect();
        let mut found = 0;
        for run in self.runs.iter_mut().chain(&mut self.levels) {
            let before = run.len();
            run.retain(|table| !gone.contains(&table.id));
            found += before - run.len();
        }
        if found != gone.len() {
            let count = gone.len();
            return Err(misfit(format!("{count} tables are replaced, of which {found} are there")));
        }
        self.runs.retain(|run| !run.is_empty());
        let level = level as usize;
        if self.levels.len() < level {
            self.levels.resize(level, Vec::new());
        }
        let run = &mut self.levels[level - 1];
        let at = replaced(at, 0, run.len())?;
        run.splice(at, tables.iter().cloned());
        let overlap = |pair: &[&TableRecord]| match pair {
            [a, b] => a.properties.largest >= b.properties.smallest,
            _ => false,
        };
        // The ranges of a table are in its file alone: of one without entries nothing is known here.
        let with_entries: Vec<_> = run.iter().filter(|t| t.properties.entries > 0).collect();
        if with_entries.windows(2).any(overlap) {
            return Err(misfit(format!("the tables of level {level} are not in order")));
        }
        Ok(())
    }

    /// The level of a table: 0 if it is in a run; `None` if it is in neither.
    pub fn level_of(&self, table: TableId) -> Option<usize> {
        let holds = |run: &Vec<TableRecord>| run.iter().any(|t| t.id == table);
        let in_runs = self.runs.iter().any(holds).then_some(0);
        in_runs.or_else(|| self.levels.iter().position(holds).map(|at| at + 1))
    }

    fn move_watermark(&mut self, watermark: &Watermark) -> Result<()> {
        match (watermark, &mut self.frozen) {
            (Watermark::Keep, _) => Ok(()),
            (Watermark::Raise(key), Some(frozen)) if *key > frozen.watermark => {
                frozen.watermark.clone_from(key);
                let stays = |table: &TableRecord| !table.properties.is_all_below(key);
                frozen.runs.iter_mut().for_each(|run| run.retain(stays));
                frozen.runs.retain(|run| !run.is_empty());
                Ok(())
            }
            (Watermark::End, Some(_)) => {
                self.frozen = None;
                Ok(())
            }
            _ => Err(misfit("the watermark of a sweep only rises, and only while there is one")),
        }
    }
}

fn replaced(first: u64, count: u64, length: usize) -> Result<std::ops::Range<usize>> {
    match first.checked_add(count) {
        Some(end) if end <= length as u64 => Ok(first as usize..end as usize),
        _ => Err(misfit(format!("{count} from number {first} are replaced, of {length}"))),
    }
}

fn misfit(message: impl std::fmt::Display) -> Error {
    Error::corruption(format!("the edit does not fit the manifest's state: {message}"))
}

/// The keyspaces that changes change.
pub fn touched_keyspaces(changes: &[Change]) -> BTreeSet<KeyspaceId> {
    let keyspaces = changes.iter().filter_map(|change| match change {
        Change::CreateKeyspace { keyspace, .. }
        | Change::DropKeyspace { keyspace }
        | Change::Flushed { keyspace, .. }
        | Change::AddRun { keyspace, .. }
        | Change::ReplaceRuns { keyspace, .. }
        | Change::Freeze { keyspace }
        | Change::ReplacePartitions { keyspace, .. }
        | Change::Frozen { keyspace, .. }
        | Change::ReplaceTables { keyspace, .. }
        | Change::ExternalPosition { keyspace, .. } => Some(*keyspace),
        Change::Log { .. } => None,
    });
    keyspaces.collect()
}

/// Behind the highest number of a keyspace, once `changes` are made.
pub fn next_keyspace(state: &State, changes: &[Change]) -> KeyspaceId {
    let created = changes.iter().filter_map(|change| match change {
        Change::CreateKeyspace { keyspace, .. } => Some(keyspace + 1),
        _ => None,
    });
    created.fold(state.next_keyspace, KeyspaceId::max)
}
