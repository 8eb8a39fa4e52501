//! What a job writes: tables, begun when the first entry comes, and a value segment for what is kept
//! apart from its keys; all removed if the job fails.

mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use self::waiting::Waiting;
use super::shadow::Shadow;

use crate::cursor::Cursor;
use crate::engine::{Engine, Opened, Successor};
use crate::error::{Error, Result};
use crate::format::checksum::key_hash;
use crate::format::compression::{Codec, Compression};
use crate::format::entry::{KeyspaceId, Kind, SequenceNumber};
use crate::format::manifest::TableRecord;
use crate::format::range::Ranges;
use crate::format::table::SegmentUse;
use crate::format::value::ValuePointer;
use crate::options::Apart;
use crate::sstable::filter::file::filter_path;
use crate::sstable::generation::Generation;
use crate::sstable::reader::Table;
use crate::sstable::reader::warm::MOST_WARMED;
use crate::sstable::table_path;
use crate::sstable::writer::{TableOptions, TableWriter};
use crate::value_log::writer::SegmentWriter;
use crate::value_log::{ReadAhead, Segments, segment_path};
use crate::view::Tables;

/// The most bytes of entries that a job writes in one step; less where memtables are small.
const STEP_BYTES: u64 = 1 << 20;
/// After so much of it a step gives way: about each 0.1 ms where values have a KiB.
const GIVES_WAY_AFTER_BYTES: u64 = 64 << 10;
/// So much of values is read ahead at most, where the device has to be asked for them; less where memtables are small.
const AHEAD_BYTES: u64 = 4 << 20;
/// So many keys are added to a generation at once.
const HASHES: usize = 1024;
/// A value segment larger than this is ended and another begun.
const SEGMENT_BYTES: u64 = 256 << 20;

/// Values that go the same way. Each sort has segments of its own: what stays is not written again because what stood
/// beside it went.
struct ValuesApart {
    codec: Option<Box<dyn Codec>>,
    segment: Option<SegmentWriter>,
}

impl ValuesApart {
    fn new(compression: Compression) -> ValuesApart {
        ValuesApart { codec: compression.codec(), segment: None }
    }
}

/// Which values that stand in segments are written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moving {
    /// Those that are to stand beside their keys, and those in [victims](Output::with_victims).
    All,
    /// Those in victims.
    Victims,
    /// None: all pointers are copied.
    Nothing,
}

/// Finished tables in key order and their value segments, and those being written.
pub struct Output {
    engine: Arc<Engine>,
    options: TableOptions,
    /// Values of this length and longer are kept apart, at most those that are streamed; shorter ones stand beside their keys, also
    /// those that come as pointers.
    separate_at: u64,
    /// Values of this length and longer stay apart for good.
    stays_at: u64,
    /// The segments that the pointers to be copied lead into.
    sources: Segments,
    writer: Option<TableWriter>,
    records: Vec<TableRecord>,
    /// Those that do not, and those that do.
    values: [ValuesApart; 2],
    /// The segments written, unfinished ones too.
    segments: Vec<u64>,
    segment_bytes: u64,
    waiting: Waiting,
    /// Values that entries to come will wait for.
    ahead: ReadAhead,
    /// See [`Output::replacing_of`].
    expected_bytes: u64,
    /// See [`Output::replacing_of`].
    replaces_of: Option<KeyspaceId>,
    /// The table being written, of such an output.
    successor: Option<Successor>,
    /// Values in these segments are written anew, whatever their length.
    victims: Arc<BTreeSet<u64>>,
    shadow: Option<Shadow>,
    /// What the tables belong to, and whether their keys are still to be added there.
    generation: Option<(Arc<Generation>, bool)>,
    /// Hashes of keys to be added there.
    hashes: Vec<u64>,
    /// See [`Output::moving`].
    moving: Moving,
    /// Of each segment that values were read from to stand beside their keys, where the last one ends;
    /// `None` where other pointers into it were copied.
    emptied: BTreeMap<u64, Option<u64>>,
    /// Removed ranges for the table being written and those after it.
    ranges: Ranges,
    /// See [`Output::waking_filters`].
    woken: Ranges,
    /// See [`Output::replacing`].
    replaced: Vec<Arc<Table>>,
    /// See [`Output::in_background`].
    is_in_background: bool,
    /// See [`Output::be_quick`].
    is_quick: bool,
    /// See [`Output::leaving_unread`].
    leaves_unread: bool,
    /// Why the first of the values that were to be moved, and were left, cannot be read.
    unread: Option<Error>,
}

/// What a job wrote, as an edit and its View need it.
pub struct Written {
    /// The tables, in key order.
    pub tables: Vec<TableRecord>,
    /// The same, and their segments, open.
    pub opened: Opened,
    /// Bytes of all these files.
    pub bytes: u64,
}

impl Output {
    /// No tables yet. While the disk is full they get no filters that would only rest.
    pub fn new(
        engine: &Arc<Engine>,
        mut options: TableOptions,
        apart: Apart,
        sources: &Segments,
    ) -> Output {
        if options.filter_rests && engine.ballast.is_given_up() {
            options.filter = None;
        }
        Output {
            engine: engine.clone(),
            options,
            separate_at: apart.at.min(engine.options.stream_at),
            stays_at: apart.stays_at.min(engine.options.stream_at),
            sources: sources.clone(),
            writer: None,
            records: Vec::new(),
            values: [apart.passing, apart.staying].map(ValuesApart::new),
            segments: Vec::new(),
            segment_bytes: 0,
            waiting: Waiting::default(),
            ahead: ReadAhead::new(AHEAD_BYTES.min(engine.options.memtable_bytes as u64 / 8)),
            expected_bytes: 0,
            replaces_of: None,
            successor: None,
            victims: Arc::default(),
            shadow: None,
            generation: None,
            hashes: Vec::new(),
            moving: Moving::All,
            emptied: BTreeMap::new(),
            ranges: Ranges::default(),
            woken: Ranges::default(),
            replaced: Vec::new(),
            is_in_background: false,
            is_quick: false,
            leaves_unread: false,
            unread: None,
        }
    }

    /// Counts what it copies against what background work may write ([`crate::engine::Engine::wait_for_allowance`]).
    pub fn in_background(mut self) -> Output {
        self.is_in_background = true;
        self
    }

    /// Steps give way to the program ([`crate::executor::Executor::give_way`]) unless it waits for them, or soon will.
    pub fn be_quick(&mut self, is_quick: bool) {
        self.is_quick = is_quick;
    }

    /// Says that the table being written will take so much, about, and replace others of a keyspace: values are read ahead as far as
    /// that, and it may be written over the file of one that was replaced.
    pub fn replacing_of(mut self, keyspace: KeyspaceId, data_bytes: u64) -> Output {
        (self.replaces_of, self.expected_bytes) = (Some(keyspace), data_bytes);
        self
    }

    /// Has a value that is to be moved and turns out to be damaged stay where it is: its pointer is copied. (Where it is
    /// known that a value is not there, that is always so.)
    pub fn leaving_unread(mut self) -> Output {
        self.leaves_unread = true;
        self
    }

    /// Why a value that was to be moved, and was left, cannot be read; `None`: there was none.
    pub fn unread(&self) -> Option<&Error> {
        self.unread.as_ref()
    }

    /// Has filters at rest of tables that begin in `ranges` come into memory at once: misses there paid for
    /// them, and would only come back.
    pub fn waking_filters(mut self, ranges: Ranges) -> Output {
        self.woken = ranges;
        self
    }

    /// Says whose entries it gets: what is cached of these tables will be cached of the new ones.
    pub fn replacing<'a>(mut self, tables: impl Iterator<Item = &'a Arc<Table>>) -> Output {
        self.replaced = tables.cloned().collect();
        self
    }

    /// Keeps every value beside its key, however long: no segment is written.
    pub fn separating_nothing(mut self) -> Output {
        self.separate_at = u64::MAX;
        self
    }

    /// Has each table say what it overwrites.
    pub fn with_shadow(mut self, shadow: Shadow) -> Output {
        self.shadow = Some(shadow);
        self
    }

    /// What its tables overwrite is looked up in these from now on; see [`Output::with_shadow`].
    pub fn look_at(&mut self, tables: Option<Arc<Tables>>) {
        if let Some(shadow) = &mut self.shadow {
            shadow.look_at(tables);
        }
    }

    /// Has the tables belong to a generation. Their keys are added to it, unless they were before.
    pub fn in_generation(mut self, generation: Arc<Generation>, has_keys: bool) -> Output {
        self.generation = Some((generation, !has_keys));
        self
    }

    /// Has the tables say that these keys are gone from all older data. Where one table ends and
    /// another begins they are cut: tables of a run say nothing of each other's keys.
    pub fn with_ranges(mut self, ranges: Ranges) -> Output {
        self.ranges = ranges;
        self
    }

    /// Has values in these segments written anew.
    pub fn with_victims(mut self, victims: Arc<BTreeSet<u64>>) -> Output {
        self.victims = victims;
        self
    }

    /// Which values that stand in segments are written anew; all that may be, unless something else is said.
    pub fn moving(mut self, moving: Moving) -> Output {
        self.moving = moving;
        self
    }

    /// Adds an entry to the table being written; its value to the segment, if it is long.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn add(
        &mut self,
        key: &[u8],
        kind: Kind,
        sequence: SequenceNumber,
        payload: &[u8],
    ) -> Result<()> {
        let pointer = match kind {
            Kind::Value if payload.len() as u64 >= self.separate_at => {
                Some(self.separate(key, payload)?)
            }
            Kind::Pointer => {
                let pointer = ValuePointer::decode(payload)?;
                Some((pointer, self.sources.find(pointer.segment)?.tag()))
            }
            _ => None,
        };
        self.begin_table()?;
        let value_bytes = pointer.map_or(payload.len() as u64, |(pointer, _)| pointer.length);
        self.note(key, (kind != Kind::Tombstone).then_some(value_bytes));
        match (&mut self.writer, pointer) {
            (Some(writer), Some((pointer, tag))) => writer.add_pointer(key, sequence, pointer, tag),
            (Some(writer), None) => writer.add(key, kind, sequence, payload),
            (None, _) => unreachable!("a writer was just made"),
        }
    }

    /// Tells those who want to know of each key.
    fn note(&mut self, key: &[u8], value_bytes: Option<u64>) {
        let adds = self.generation.as_ref().is_some_and(|(_, adds)| *adds);
        if self.shadow.is_none() && !adds {
            return;
        }
        let hash = key_hash(key);
        if let Some(shadow) = &mut self.shadow {
            shadow.add(key, hash, value_bytes);
        }
        if adds {
            self.hashes.push(hash);
            if self.hashes.len() >= HASHES {
                self.add_hashes();
            }
        }
    }

    /// Adds keys to the generation. Where it does not take them, none of the tables belongs to it.
    fn add_hashes(&mut self) {
        self.generation.take_if(|(generation, _)| !generation.add_all(&self.hashes));
        self.hashes.clear();
    }

    /// Has a table be written.
    fn begin_table(&mut self) -> Result<()> {
        if self.writer.is_some() {
            return Ok(());
        }
        let id = self.engine.next_file();
        let (disk, dir) = (self.engine.disk(), self.engine.dir());
        let spare = self.replaces_of.and_then(|keyspace| {
            let (successor, spare) = self.engine.begin_successor(keyspace, self.expected_bytes);
            self.successor = Some(successor);
            spare
        });
        let writer = match spare {
            Some(old) => {
                let (writer, is_over) = TableWriter::over(&old, disk, dir, id, self.options)?;
                self.engine.metrics.recycled_tables.fetch_add(is_over.into(), Relaxed);
                writer
            }
            None => TableWriter::create(disk, dir, id, self.options)?,
        };
        self.writer = Some(writer);
        Ok(())
    }

    /// Adds a value to the segment being written: its place, and the segment's tag.
    fn separate(&mut self, key: &[u8], value: &[u8]) -> Result<(ValuePointer, u64)> {
        let [passing, staying] = &mut self.values;
        let apart = if value.len() as u64 >= self.stays_at { staying } else { passing };
        if let Some(full) = apart.segment.take_if(|segment| segment.file_bytes() >= SEGMENT_BYTES) {
            self.segment_bytes += full.file_bytes();
            full.finish()?;
        }
        let segment = match &mut apart.segment {
            Some(segment) => segment,
            None => {
                let id = self.engine.next_file();
                let (disk, dir) = (self.engine.disk(), self.engine.dir());
                let writer = SegmentWriter::create(&**disk, dir, id)?;
                self.segments.push(id);
                apart.segment.insert(writer)
            }
        };
        Ok((segment.add(key, value, apart.codec.as_deref_mut())?, segment.tag()))
    }

    fn end_values(&mut self) -> Result<()> {
        for apart in &mut self.values {
            if let Some(segment) = apart.segment.take() {
                self.segment_bytes += segment.file_bytes();
                segment.finish()?;
            }
        }
        Ok(())
    }

    /// The segments that no pointer was copied of: all that was read of them now stands elsewhere. And where
    /// the last of that ends.
    pub fn emptied(&self) -> impl Iterator<Item = (u64, u64)> {
        self.emptied.iter().filter_map(|(segment, end)| Some((*segment, (*end)?)))
    }

    /// What the blocks of the table being written take so far, about.
    pub fn data_bytes(&self) -> u64 {
        self.waiting.data_bytes + self.writer.as_ref().map_or(0, TableWriter::data_bytes)
    }

    /// What was written so far of the table being written, with all values kept apart, about.
    pub fn written_bytes(&self) -> u64 {
        let open = self.values.iter().filter_map(|values| values.segment.as_ref());
        self.data_bytes() + self.segment_bytes + open.map(SegmentWriter::file_bytes).sum::<u64>()
    }

    /// The same with all tables.
    pub fn all_bytes(&self) -> u64 {
        self.records.iter().map(|table| table.file_bytes).sum::<u64>() + self.written_bytes()
    }

    /// Has values be read through these segments from now on, successors of those it had.
    pub fn read_through(&mut self, sources: &Segments) {
        self.sources = sources.clone();
    }

    /// Whether the table being written can take no more entries without losing its filter.
    pub fn is_full(&self) -> bool {
        self.writer.as_ref().is_some_and(TableWriter::is_full)
    }

    /// Finishes the table being written, if there is one; the next entry begins another.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn end_table(&mut self) -> Result<()> {
        let end = self.writer.as_ref().and_then(TableWriter::end);
        let rest = end.map_or_else(Ranges::default, |end| self.ranges.split_off(&end));
        self.end_table_with(rest)
    }

    /// Finishes the table being written, which takes all ranges but the `rest`.
    fn end_table_with(&mut self, rest: Ranges) -> Result<()> {
        if let Some(mut writer) = self.writer.take() {
            let (id, filter) = (writer.id(), writer.filter_id());
            let ranges = std::mem::replace(&mut self.ranges, rest);
            if let Some(shadow) = &mut self.shadow {
                let (settled, fresh) = shadow.take();
                writer.set_overwritten(settled, fresh);
            }
            let covered_bytes = self.shadow.as_ref().map_or(0, |shadow| shadow.covered(&ranges));
            writer.set_ranges(ranges, covered_bytes);
            match writer.finish() {
                Ok(record) => {
                    if self.is_in_background {
                        let filter = record.filter.map_or(0, |filter| filter.file_bytes);
                        let index = record.file_bytes.saturating_sub(record.properties.data_bytes);
                        self.engine.spend_allowance(index + filter);
                    }
                    self.records.push(record);
                }
                Err(e) => {
                    self.remove_table(id, filter);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Copies a step's bytes of entries from `cursor`, until the table being written takes `end_at`
    /// bytes, or could take no more without losing its filter; `None`: all go into one table. Returns whether it came so far, or to the cursor's end.
    ///
    /// Pointers to values that are to stand beside their keys gather, with the entries behind them,
    /// until the step ends: then the values are read together, in the order of their places.
    ///
    /// # Errors
    /// Those of the cursor and of the disk.
    pub fn copy(
        &mut self,
        cursor: &mut dyn Cursor,
        keep_tombstones: bool,
        end_at: Option<u64>,
    ) -> Result<bool> {
        let (mut copied, before) = (0u64, self.written_bytes());
        let step_bytes = STEP_BYTES.min(self.engine.options.memtable_bytes as u64 / 2);
        let mut ended = false;
        while copied < step_bytes {
            let ends = end_at.is_some_and(|end| self.data_bytes() >= end || self.is_full());
            let key = cursor.key().filter(|_| !ends);
            let Some(key) = key else {
                ended = true;
                break;
            };
            let ((kind, sequence), payload) = (cursor.kind(), cursor.value());
            let mut length = payload.len() as u64;
            let mut load = None;
            if kind == Kind::Pointer {
                let pointer = ValuePointer::decode(payload)?;
                let is_victim = || self.victims.contains(&pointer.segment);
                let moves = match self.moving {
                    Moving::All => pointer.length < self.separate_at || is_victim(),
                    Moving::Victims => is_victim(),
                    Moving::Nothing => false,
                };
                let moves = moves && !self.lacks(&pointer);
                load = moves.then_some(pointer);
                let emptied = self.emptied.entry(pointer.segment).or_insert(Some(0));
                *emptied = emptied.filter(|_| moves).map(|end| end.max(pointer.end()));
                length = load.map_or(length, |pointer| pointer.length);
            }
            if load.is_some() || !self.waiting.is_empty() {
                if keep_tombstones || kind != Kind::Tombstone {
                    self.waiting.push(key, (kind, sequence), payload, load, self.separate_at);
                }
            } else if keep_tombstones || kind != Kind::Tombstone {
                self.add(key, kind, sequence, payload)?;
            }
            let pieces = copied / GIVES_WAY_AFTER_BYTES;
            copied += key.len() as u64 + length + 16;
            if copied / GIVES_WAY_AFTER_BYTES != pieces && !self.is_quick {
                self.engine.executor.give_way();
            }
            cursor.advance()?;
        }
        self.load_waiting()?;
        if self.is_in_background {
            self.engine.spend_allowance(self.written_bytes().saturating_sub(before));
        }
        Ok(ended)
    }

    /// Ends the last table and segment, makes all names durable and opens the files.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn finish(&mut self) -> Result<Written> {
        // To write and sync takes long: what others replace meanwhile is to go.
        if let Some(shadow) = &mut self.shadow {
            shadow.close(&self.ranges);
        }
        self.end_values()?;
        if !self.ranges.is_empty() {
            self.begin_table()?;
        }
        self.end_table_with(Ranges::default())?;
        self.add_hashes();
        let (mut opened, mut left) = (Opened::default(), MOST_WARMED);
        for record in &self.records {
            let table = self.engine.open_table(record)?;
            if let Some((generation, _)) = &self.generation {
                table.join(generation.clone());
            }
            table.is_ours();
            table.note_all();
            table.check_written();
            self.replaced.iter().for_each(|replaced| table.warm_from(replaced, &mut left));
            if self.woken.covers(&record.properties.smallest) {
                table.wake_filter();
            }
            opened.tables.push(table);
        }
        for id in &self.segments {
            let uses = self.records.iter().flat_map(|record| &record.properties.segments);
            let used: Option<&SegmentUse> =
                uses.filter(|used| used.segment == *id).max_by_key(|used| used.end);
            if let Some(used) = used {
                let segment = self.engine.open_segment(used)?;
                segment.is_ours();
                opened.segments.push(segment);
            }
        }
        // The edit names no filter that the open tables do without.
        let tables: Vec<_> = opened.tables.iter().map(|table| table.record()).collect();
        for (written, record) in self.records.iter().zip(&tables) {
            if let Some(lost) = written.filter.filter(|_| record.filter.is_none()) {
                let _ = self.engine.disk().remove(&filter_path(self.engine.dir(), lost.id));
            }
        }
        let bytes = tables.iter().map(|t| t.file_bytes).sum::<u64>() + self.segment_bytes;
        self.successor = None;
        Ok(Written { tables, opened, bytes })
    }

    /// The files are named by a durable edit: they stay.
    pub fn keep(&mut self) {
        self.records.clear();
        self.segments.clear();
    }

    fn remove_table(&self, id: u64, filter: Option<u64>) {
        // What cannot be removed is an orphan that the next open removes.
        let (disk, dir) = (self.engine.disk(), self.engine.dir());
        let _ = disk.remove(&table_path(dir, id));
        if let Some(filter) = filter {
            let _ = disk.remove(&filter_path(dir, filter));
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.engine.health.is_poisoned() {
            // Perhaps the edit that names them is on the disk. The next open knows.
            return;
        }
        if let Some(writer) = self.writer.take() {
            self.remove_table(writer.id(), writer.filter_id());
        }
        for record in std::mem::take(&mut self.records) {
            self.remove_table(record.id, record.filter.map(|filter| filter.id));
        }
        for id in std::mem::take(&mut self.segments) {
            let _ = self.engine.disk().remove(&segment_path(self.engine.dir(), id));
        }
    }
}
