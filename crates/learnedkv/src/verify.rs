//! Checking a database: every file that its manifest names, the manifest itself and the log.
//!
//! 1. The lock, as readers take it: nobody writes meanwhile. `CURRENT`, the manifest and its edits.
//! 2. The log: its records as an open reads them, and the operations in them.
//! 3. Of each keyspace: that the tables of a run do not overlap; each table and its filter, by
//!    [`crate::sstable::check`]; and each value that an entry of these, or an operation of the log, points at.
//!
//! Damage is told as it is found, and nothing is skipped for it that can be found without what is damaged.
//! Not a byte is changed. Memory: the manifest's state, a segment of the log, and of one table at a
//! time its index and filter, and so many values as are read together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::disk::Disk;
use crate::engine::look_in;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::format::batch::{Op, Ops};
use crate::format::entry::{KeyspaceId, Kind, TableId};
use crate::format::log::RecordHeader;
use crate::format::manifest::TableRecord;
use crate::format::table::SegmentUse;
use crate::format::value::ValuePointer;
use crate::manifest::{self, KeyspaceState, Loaded, State};
use crate::sstable::check::{Witness, check_table};
use crate::sstable::reader::TableContext;
use crate::sstable::sought::Reads;
use crate::sstable::table_path;
use crate::value_log::{Segment, Segments, load_all_for_now};
use crate::wal::recovery;

/// Values are read together once they take so many bytes, or are so many.
const TOGETHER_BYTES: u64 = 8 << 20;
const TOGETHER: usize = 16 << 10;
/// A longer value is read a chunk at a time.
const LONG_BYTES: u64 = 1 << 20;

/// What a check tells while it goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Verifying<'a> {
    /// Something is not what was written, or could not be read: which file, where in it, what was expected and
    /// found.
    Damage(&'a Error),
    /// How far it is, bytes.
    Progress {
        /// What was read so far, about.
        done_bytes: u64,
        /// What there is to be read, about.
        total_bytes: u64,
    },
}

/// What a check looked at.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Tables, each once.
    pub tables: u64,
    /// Their blocks that are sound.
    pub blocks: u64,
    /// The entries in these.
    pub entries: u64,
    /// Filters of the tables.
    pub filters: u64,
    /// Value segments.
    pub segments: u64,
    /// Values in them that are sound, each as often as something points at it.
    pub values: u64,
    /// Records of the log.
    pub log_records: u64,
    /// Operations in these.
    pub log_operations: u64,
    /// Records behind the end of the log that nobody is known to have synced: an open drops them
    /// ([`crate::OpenReport::dropped_records`]). A crash of the machine leaves some; damage of the last records looks the same.
    pub dropped_records: u64,
    /// Damages that were told.
    pub damages: u64,
}

/// Checks the database in `dir`; of its keyspaces the one of that name, if one is named. Tells `watch`.
///
/// # Errors
/// `Locked` if it is open for writing; `NotFound` if there is no database, or no such keyspace in it;
/// `NotADatabase`; any error of the disk before the manifest was read.
pub fn verify(
    disk: &Arc<dyn Disk>,
    executor: &Arc<dyn Executor>,
    dir: &Path,
    keyspace: Option<&str>,
    watch: &mut dyn FnMut(Verifying<'_>),
) -> Result<Verified> {
    let (_lock, context) = look_in(disk, executor, dir)?;
    let mut check = Check::new(&context, watch);
    let loaded = match manifest::load(&**disk, &context.dir) {
        Ok(Some(loaded)) => loaded,
        Ok(None) => {
            return Err(Error::new(ErrorKind::NotFound, "there is no database here").at_path(dir));
        }
        Err(e) if e.is_corruption() || e.kind() == ErrorKind::NotADatabase => {
            // Without it nobody knows of any other file whether it counts.
            check.damage(&e);
            return Ok(check.verified);
        }
        Err(e) => return Err(e),
    };
    let state = &loaded.state;
    let is_wanted = |of: &KeyspaceState| keyspace.is_none_or(|name| name == of.name);
    let wanted: Vec<_> = state.keyspaces.iter().filter(|(_, of)| is_wanted(of)).collect();
    if let (Some(name), true) = (keyspace, wanted.is_empty()) {
        let names: Vec<_> = state.keyspaces.values().map(|of| of.name.as_str()).collect();
        let message = format!("there is no keyspace {name:?}; there are: {}", names.join(", "));
        return Err(Error::new(ErrorKind::NotFound, message).at_path(dir));
    }
    check.total_bytes = wanted.iter().map(|(_, of)| bytes_of(of)).fold(0, u64::saturating_add);
    let logged = check.log(&loaded);
    for (id, keyspace) in wanted {
        check.keyspace(keyspace, logged.get(id).map_or(&[], Vec::as_slice));
    }
    Ok(check.verified)
}

/// What is to be read of a keyspace, bytes.
fn bytes_of(keyspace: &KeyspaceState) -> u64 {
    let tables: BTreeMap<_, _> = keyspace.tables().map(|table| (table.id, table)).collect();
    let bytes = |table: &&TableRecord| {
        let filter = table.filter.map_or(0, |filter| filter.file_bytes);
        table.file_bytes.saturating_add(filter).saturating_add(table.properties.separated_bytes())
    };
    tables.values().map(bytes).fold(0, u64::saturating_add)
}

/// From which keys on the values that tables point at count. Of a frozen one those below the watermark are settled, of a settled
/// one those below its partitions are settled anew: they stand elsewhere, and their places were given back.
fn first_keys(keyspace: &KeyspaceState) -> BTreeMap<TableId, &[u8]> {
    let mut first = BTreeMap::new();
    // The first of the partitions counts that have it.
    for partition in keyspace.partitions.iter().rev() {
        let tables = partition.base.iter().chain(&partition.delta);
        tables.for_each(|table| _ = first.insert(table.id, partition.lower.as_slice()));
    }
    if let Some(frozen) = &keyspace.frozen {
        let tables = frozen.runs.iter().flatten();
        tables.for_each(|table| _ = first.insert(table.id, frozen.watermark.as_slice()));
    }
    first
}

/// A pointer of the log that no flush has taken to a table yet.
struct Logged {
    key: Vec<u8>,
    pointer: ValuePointer,
    tag: u64,
}

struct Check<'a> {
    context: &'a Arc<TableContext>,
    watch: &'a mut dyn FnMut(Verifying<'_>),
    verified: Verified,
    done_bytes: u64,
    total_bytes: u64,
}

impl<'a> Check<'a> {
    fn new(context: &'a Arc<TableContext>, watch: &'a mut dyn FnMut(Verifying<'_>)) -> Check<'a> {
        Check { context, watch, verified: Verified::default(), done_bytes: 0, total_bytes: 0 }
    }

    fn damage(&mut self, error: &Error) {
        self.verified.damages += 1;
        (self.watch)(Verifying::Damage(error));
    }

    fn read(&mut self, bytes: u64) {
        self.done_bytes = self.done_bytes.saturating_add(bytes);
        let (done_bytes, total_bytes) = (self.done_bytes, self.total_bytes.max(self.done_bytes));
        (self.watch)(Verifying::Progress { done_bytes, total_bytes });
    }

    /// Reads the log; what it points at, by keyspace.
    fn log(&mut self, loaded: &Loaded) -> BTreeMap<KeyspaceId, Vec<Logged>> {
        let (state, mut pointers) = (&loaded.state, BTreeMap::new());
        let (mut records, mut operations) = (0, 0);
        let recovered = recovery::recover(
            &*self.context.disk,
            &self.context.dir,
            loaded.database,
            &state.log,
            state.synced,
            &mut |header, payload| {
                records += 1;
                operations += u64::from(header.count);
                note_operations(state, header, payload, &mut pointers)
            },
        );
        self.verified.log_records = records;
        self.verified.log_operations = operations;
        match recovered {
            Ok(recovered) => self.verified.dropped_records = recovered.dropped_records,
            Err(e) => self.damage(&e),
        }
        pointers
    }

    /// Checks all of a keyspace.
    fn keyspace(&mut self, keyspace: &KeyspaceState, logged: &[Logged]) {
        let frozen = keyspace.frozen.iter().flat_map(|frozen| &frozen.runs);
        for run in keyspace.runs.iter().chain(&keyspace.levels).chain(frozen) {
            self.order(run);
        }
        let (segments, refused) = self.segments(keyspace, logged);
        let mut values = Values {
            check: self,
            name: &keyspace.name,
            segments,
            refused,
            from: Vec::new(),
            wanted: Vec::new(),
            bytes: 0,
        };
        for of_log in logged {
            values.pointer(&of_log.key, of_log.pointer);
        }
        values.look();
        let mut seen = BTreeSet::new();
        let first = first_keys(keyspace);
        for table in keyspace.tables().filter(|table| seen.insert(table.id)) {
            values.from = first.get(&table.id).map_or_else(Vec::new, |key| key.to_vec());
            let checked = check_table(values.check.context, table, &mut values);
            values.look();
            let verified = &mut values.check.verified;
            verified.tables += 1;
            verified.blocks += checked.blocks;
            verified.entries += checked.entries;
            verified.filters += u64::from(table.filter.is_some());
        }
    }

    /// Checks that the tables of a run do not overlap, by what is said of them.
    fn order(&mut self, run: &[TableRecord]) {
        // Of one without entries nothing is known here.
        let tables: Vec<_> = run.iter().filter(|table| table.properties.entries > 0).collect();
        for pair in tables.windows(2) {
            let [before, table] = pair else { continue };
            let (end, start) = (&before.properties.largest, &table.properties.smallest);
            if end >= start {
                let message = format!(
                    "run: expected keys above \"{}\", the last of table {}, found \"{}\"",
                    end.escape_ascii(),
                    before.id,
                    start.escape_ascii()
                );
                let path = table_path(&self.context.dir, table.id);
                self.damage(&Error::corruption(message).at_path(&path));
            }
        }
    }

    /// Opens the value segments of a keyspace; beside them why the others could not be.
    fn segments(
        &mut self,
        keyspace: &KeyspaceState,
        logged: &[Logged],
    ) -> (Segments, BTreeMap<u64, Error>) {
        let mut furthest: BTreeMap<u64, SegmentUse> = BTreeMap::new();
        let of_tables = keyspace.tables().flat_map(|table| &table.properties.segments).cloned();
        let of_log = logged.iter().map(|of_log| SegmentUse::of(&of_log.pointer, of_log.tag));
        for used in of_tables.chain(of_log) {
            let known = furthest.entry(used.segment).or_insert_with(|| used.clone());
            known.end = known.end.max(used.end);
        }
        let (mut segments, mut refused) = (Segments::default(), BTreeMap::new());
        for used in furthest.values() {
            match Segment::open_or_stand_in(self.context, used, &keyspace.name) {
                Ok(segment) => {
                    segment.damage().inspect(|damage| self.damage(damage));
                    segments.insert(Arc::new(segment));
                }
                Err(e) => {
                    self.damage(&e);
                    refused.insert(used.segment, e);
                }
            }
        }
        self.verified.segments += furthest.len() as u64;
        (segments, refused)
    }
}

/// Checks the operations of a record; keeps those that point at values and are in no table yet.
fn note_operations(
    state: &State,
    header: &RecordHeader,
    payload: &[u8],
    pointers: &mut BTreeMap<KeyspaceId, Vec<Logged>>,
) -> Result<()> {
    for (sequence, op) in (header.first..).zip(Ops::new(payload)) {
        let op: Op<'_> = op?;
        match state.keyspaces.get(&op.keyspace) {
            Some(keyspace) if sequence > keyspace.flushed && op.kind == Kind::Pointer => {
                let (key, logged) =
                    op.key_and_value.split_at_checked(op.key_length).unwrap_or_default();
                let (pointer, tag) = ValuePointer::decode_logged(logged)?;
                let logged = Logged { key: key.to_vec(), pointer, tag };
                pointers.entry(op.keyspace).or_default().push(logged);
            }
            None if op.keyspace >= state.next_keyspace => {
                return Err(Error::corruption(format!(
                    "expected an operation of a keyspace below {}, found one of {}",
                    state.next_keyspace, op.keyspace
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Values that are pointed at, to be read together.
struct Values<'c, 'a> {
    check: &'c mut Check<'a>,
    name: &'c str,
    segments: Segments,
    /// Why others could not be opened, by number: a newer version, a disk that refused.
    refused: BTreeMap<u64, Error>,
    /// What keys below it point at counts no more.
    from: Vec<u8>,
    wanted: Vec<(Vec<u8>, ValuePointer)>,
    bytes: u64,
}

impl Witness for Values<'_, '_> {
    fn damage(&mut self, error: Error) {
        let name = self.name;
        self.check.damage(&error.and_say(&format!(" (keyspace {name:?})")));
    }

    fn read(&mut self, bytes: u64) {
        self.check.read(bytes);
    }

    fn pointer(&mut self, key: &[u8], pointer: ValuePointer) {
        if *key < *self.from {
            return;
        }
        self.bytes += key.len() as u64 + pointer.length.min(LONG_BYTES);
        self.wanted.push((key.to_vec(), pointer));
        if self.bytes >= TOGETHER_BYTES || self.wanted.len() >= TOGETHER {
            self.look();
        }
    }
}

impl Values<'_, '_> {
    fn find(&self, id: u64) -> Result<Arc<Segment>> {
        match self.refused.get(&id) {
            Some(error) => Err(error.clone()),
            None => self.segments.find(id),
        }
    }

    /// Reads what was gathered.
    fn look(&mut self) {
        self.bytes = 0;
        let wanted = std::mem::take(&mut self.wanted);
        let (long, mut short): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(_, pointer)| pointer.length > LONG_BYTES);
        short.retain(|(key, pointer)| !self.is_lost(key, pointer));
        let borrowed: Vec<_> =
            short.iter().map(|(key, pointer)| (key.as_slice(), *pointer)).collect();
        let reads = Reads::default();
        let together = load_all_for_now(&borrowed, |id| self.find(id), &reads).is_ok();
        for (key, pointer) in borrowed {
            self.check.read(pointer.stored_bytes());
            let read = match together {
                true => Ok(()),
                false => self
                    .find(pointer.segment)
                    .and_then(|segment| segment.load(key, pointer, &reads).map(drop)),
            };
            self.note(key, &pointer, read);
        }
        for (key, pointer) in long {
            if !self.is_lost(&key, &pointer) {
                let read = self.read_long(&key, pointer);
                self.note(&key, &pointer, read);
            }
        }
    }

    /// Tells of a value that is known to be lost without a look; whether it is.
    fn is_lost(&mut self, key: &[u8], pointer: &ValuePointer) -> bool {
        let segment = self.segments.get(pointer.segment).cloned();
        let damage = segment.as_ref().and_then(|segment| segment.lacks(pointer.end()));
        damage.map(|damage| self.note(key, pointer, Err(damage.clone()))).is_some()
    }

    fn read_long(&mut self, key: &[u8], pointer: ValuePointer) -> Result<()> {
        let segment = self.find(pointer.segment)?;
        let layout = segment.layout(key, pointer)?;
        for chunk in 0..pointer.chunks() {
            let read = segment.load_chunk(key, &layout, chunk)?;
            self.check.read(read.len() as u64);
        }
        Ok(())
    }

    /// What came of a read of a value.
    fn note(&mut self, key: &[u8], pointer: &ValuePointer, read: Result<()>) {
        let Err(e) = read else {
            self.check.verified.values += 1;
            return;
        };
        let whose =
            format!("the value of key \"{}\" of keyspace {:?}", key.escape_ascii(), self.name);
        let segment = self.segments.get(pointer.segment);
        let error = match segment.and_then(|segment| segment.damage()).and_then(|e| e.path()) {
            // Of the segment it was told what is wrong.
            Some(path) => {
                let (offset, length) = (pointer.offset, pointer.stored_bytes());
                let message = format!(
                    "{whose}: expected {length} bytes of a value segment, found none that can be read"
                );
                Error::corruption(message).at_path(path).at_offset(offset)
            }
            None => e.and_say(&format!(" ({whose})")),
        };
        self.check.damage(&error);
    }
}
