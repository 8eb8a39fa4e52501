//! A filter over runs that were there when the database was opened.
//!
//! Such runs belong to no generation ([`Generation`]): to read all keys of the LSM part, which may be as large as the
//! settled run, at each open would cost more than most opens ask. So lookups pay for it. One that finds nothing in runs
//! side by side pays 1 for each that one filter would have spared it. Once that is what reading their keys costs
//! ([`price`]), no more is spent than twice the best in hindsight (rent or buy: Karlin et al., "Competitive Snoopy
//! Caching", 1988), and [`RestoreJob`] begins. Lookups that are to leave nothing in memory pay nothing.
//!
//! 1. It reads the keys of the runs, a piece a step, and adds them to a generation that no table of theirs belongs to yet: so
//!    nobody is refused anything. Between steps it holds no table.
//! 2. What is merged or frozen meanwhile it leaves out; flushes that come have a generation already. What they do to each
//!    other is nothing: generations only grow, and tables say where they belong.
//! 3. When all are read, the tables that still stand side by side join, and a View is shown that asks them so.
//!
//! Tables that have no filter, though their keyspace wants one, the same job gives one ([`attach`]).
//!
//! Nothing but memory changes: so a database that was opened for reading only, whose runs nobody merges, gains too. What
//! cannot be read, or has no room, is given up, and paid for anew. No answer depends on any of this.

mod attach;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::attach::Attach;
use super::generation;
use super::read::clip;
use crate::cursor::{Cursor, Seek};
use crate::engine::{Engine, Wanted};
use crate::error::Result;
use crate::executor::{Job, Step};
use crate::format::checksum::key_hash;
use crate::format::entry::{KeyspaceId, TableId};
use crate::options::Store;
use crate::sstable::cursor::{RunCursor, Walk};
use crate::sstable::generation::Generation;
use crate::sstable::reader::{Caching, Table};
use crate::sstable::sought::Sought;
use crate::view::{KeyspaceView, Run, Tables, ungrouped};

/// To read so many bytes costs as much as asking a run in vain, about; and so does a key, which is walked over, hashed, and
/// added (docs/decisions/0025).
const READ_BYTES: u64 = 128;
/// The most bytes of entries that a step reads; less where memtables are small.
const STEP_BYTES: u64 = 1 << 20;
/// So many keys are added at once: flushes may wait for that.
const HASHES: usize = 1024;

/// Says that a filter may be wanted. The job starts with the first: few databases need it. It has something to do where one is
/// opened for reading only too.
fn want(engine: &Arc<Engine>, wanted: Wanted) {
    if engine.want_filter(wanted) {
        engine.executor.spawn(Box::new(RestoreJob { engine: engine.clone(), work: None }));
    }
}

/// Counts what a lookup has paid for filters that are not there, as one View shows them.
pub(super) fn pay(engine: &Arc<Engine>, view: &KeyspaceView, sought: &Sought<'_>) {
    let spared = sought.spared();
    let pays = spared > 0 && sought.caching() != Caching::Leave && could_belong(view);
    if pays && view.asked_in_vain.pay(spared) {
        want(engine, Wanted::Runs(view.id));
    }
    if let Some(table) = sought.unfiltered().filter(|table| attach::is_wanted(view, *table)) {
        want(engine, Wanted::Table(view.id, table));
    }
}

/// Whether runs of a keyspace may belong to a generation.
fn could_belong(view: &KeyspaceView) -> bool {
    let options = &view.options;
    options.chosen_store() == Store::Tiered && options.lsm_table().filter.is_some()
}

/// What reading the keys of a table costs.
fn price(table: &Table) -> u64 {
    let properties = table.properties();
    properties.entries.saturating_add(properties.data_bytes / READ_BYTES)
}

/// The tables of the runs that could belong to a generation, and belong to none.
fn outside(view: &KeyspaceView) -> Vec<&Arc<Table>> {
    let runs = if could_belong(view) { view.tables.fresh() } else { &[] };
    ungrouped(runs).flat_map(|stretch| runs[stretch].iter().flatten()).collect()
}

/// The hashes of a piece's keys of a table, from the key `from` on, which is then the first behind them; there is none
/// where it is empty.
fn read_piece(engine: &Engine, table: &Arc<Table>, from: &mut Vec<u8>) -> Result<Vec<u64>> {
    let most_bytes = STEP_BYTES.min(engine.options.memtable_bytes as u64 / 2).max(1);
    let mut cursor = RunCursor::new(vec![clip(table, from, None)], Walk::Uncached);
    cursor.seek(Seek::First)?;
    let (mut hashes, mut bytes) = (Vec::new(), 0);
    while let Some(key) = cursor.key().filter(|_| bytes < most_bytes) {
        hashes.push(key_hash(key));
        bytes += (key.len() + cursor.value().len() + 16) as u64;
        cursor.advance()?;
    }
    from.clear();
    from.extend_from_slice(cursor.key().unwrap_or_default());
    Ok(hashes)
}

/// Reads the keys of runs and tables where lookups have paid for that. See the module page.
struct RestoreJob {
    engine: Arc<Engine>,
    work: Option<Work>,
}

enum Work {
    Runs(Restore),
    Table(Attach),
}

impl Work {
    /// What is to be done, if lookups have paid for it and there is room.
    fn begin(engine: &Arc<Engine>, wanted: Wanted) -> Option<Work> {
        match wanted {
            Wanted::Runs(keyspace) => Restore::begin(engine, keyspace).map(Work::Runs),
            Wanted::Table(keyspace, table) => {
                Attach::begin(engine, keyspace, table).map(Work::Table)
            }
        }
    }

    fn wanted(&self) -> Wanted {
        match self {
            Work::Runs(runs) => Wanted::Runs(runs.keyspace),
            Work::Table(one) => Wanted::Table(one.keyspace, one.table),
        }
    }

    /// Reads on; true when it is over.
    fn step(&mut self, engine: &Engine) -> Result<bool> {
        match self {
            Work::Runs(runs) => runs.step(engine),
            Work::Table(one) => one.step(engine),
        }
    }
}

/// The keys of a keyspace's runs being read.
struct Restore {
    keyspace: KeyspaceId,
    generation: Arc<Generation>,
    /// The tables to be read; the last of them is being read.
    left: Vec<TableId>,
    /// Where that one goes on.
    from: Vec<u8>,
    /// The tables all of whose keys were added.
    read: BTreeSet<TableId>,
}

impl Restore {
    /// That of a keyspace, if lookups have paid for it and there is room.
    fn begin(engine: &Arc<Engine>, id: KeyspaceId) -> Option<Restore> {
        let view = engine.keyspace(id).ok()?;
        let tables = outside(&view);
        let keys: u64 = tables.iter().map(|table| table.properties().entries).sum();
        let has_room = keys > 0 && Generation::would_fit(&engine.context, keys);
        let rent = &view.asked_in_vain;
        let price = || match has_room {
            true => tables.iter().map(|table| price(table)).sum(),
            // Looked at again once a quarter more was paid.
            false => rent.paid().saturating_mul(2),
        };
        if !rent.covers(|_| Some(price())) {
            return None;
        }
        rent.begin_anew();
        let generation = generation::of_merge(engine, &view, keys)?;
        let left = tables.iter().map(|table| table.id()).collect();
        Some(Restore { keyspace: id, generation, left, from: Vec::new(), read: BTreeSet::new() })
    }

    /// Reads on; true when it is over.
    fn step(&mut self, engine: &Engine) -> Result<bool> {
        let Ok(view) = engine.keyspace(self.keyspace) else { return Ok(true) };
        while let Some(&id) = self.left.last() {
            let stands = view.tables.fresh().iter().flatten().find(|table| table.id() == id);
            if let Some(table) = stands {
                return Ok(!self.read_on(engine, table)?);
            }
            self.left.pop();
            self.from.clear();
        }
        drop(view);
        engine.regroup(self.keyspace, |tables| self.join(tables));
        Ok(true)
    }

    /// Adds a piece's keys of the table that is being read. False: they were not taken, nor will others be.
    fn read_on(&mut self, engine: &Engine, table: &Arc<Table>) -> Result<bool> {
        let hashes = read_piece(engine, table, &mut self.from)?;
        if self.from.is_empty() {
            self.left.pop();
            self.read.insert(table.id());
        }
        Ok(hashes.chunks(HASHES).all(|some| self.generation.add_all(some)))
    }

    /// Has the tables that were read belong to the generation, where two of their runs still stand side by side.
    fn join(&self, tables: &Tables) {
        let runs = tables.fresh();
        let is_read = |run: &Run| run.iter().all(|table| self.read.contains(&table.id()));
        for stretch in ungrouped(runs) {
            let parts = runs[stretch].chunk_by(|a, b| is_read(a) == is_read(b));
            for part in parts.filter(|part| part.len() > 1 && is_read(&part[0])) {
                part.iter().flatten().for_each(|table| table.join(self.generation.clone()));
            }
        }
    }
}

impl Job for RestoreJob {
    fn name(&self) -> &'static str {
        "restore filters"
    }

    fn step(&mut self) -> Step {
        let engine = &self.engine;
        if engine.health.is_closed() {
            self.work = None;
            return Step::Wait;
        }
        let begin = || engine.find_wanted_filter(|wanted| Work::begin(engine, wanted));
        let Some(mut work) = self.work.take().or_else(begin) else { return Step::Wait };
        if let Ok(false) = work.step(engine) {
            self.work = Some(work);
            return Step::Patiently;
        }
        // What could not be read those are told who look for it.
        engine.end_filter(work.wanted());
        Step::Again
    }
}

#[cfg(test)]
mod tests;
