//! Opening a database: create or recover it, in an order that a crash at any point leaves openable.
//!
//! 1. Lock; read `CURRENT` and the manifest it names.
//! 2. Read the log into fresh memtables, skipping what each keyspace has flushed; sync what was read.
//! 3. Open the tables, and the value segments that these and the log point into; one whose file is damaged or
//!    missing gets a stand-in (docs/decisions/0027).
//! 4. Write a fresh manifest: the whole state with the log's end and the number of a fresh segment.
//!    Turning `CURRENT` over to it is the moment the recovery counts.
//! 5. Begin the fresh segment, remove what nothing names. The caller starts the jobs.
//!
//! Where the disk is full, steps 4 and 5 use what the ballast holds for them, and remove first what the last manifest that counts does
//! not need: opens that died amid them have left such files.
//!
//! For reading only, the lock is shared, step 2 syncs nothing, and steps 4 and 5 are left out. To salvage, step 2 ends where the log
//! is damaged: what stands behind that is there as far as it is in tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;

use super::allowance::Allowance;
use super::ballast::{BALLAST, Ballast};
use super::burials::Burials;
use super::gone::Gone;
use super::health::Health;
use super::memory::Memory;
use super::pace::Pace;
use super::paid::AllPaid;
use super::payloads::Payloads;
use super::periodic::Periodic;
use super::pins::Pins;
use super::report::OpenReport;
use super::unflushed::Touched;
use super::wanted::AllWanted;
use super::{Engine, EngineMetrics, new_keyspace};
use crate::cache::BlockCache;
use crate::disk::{Access, Around, Disk, Lock, Maps, OpenFiles};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::format::batch::{Op, Ops};
use crate::format::compression::Codecs;
use crate::format::entry::{CarriedPosition, KeyspaceId, Kind, SequenceNumber};
use crate::format::log::RecordHeader;
use crate::format::manifest::{LogState, TableRecord};
use crate::format::table::SegmentUse;
use crate::format::value::ValuePointer;
use crate::manifest::{self, CURRENT, Loaded, Manifest, State, manifest_number};
use crate::memtable::Memtable;
use crate::options::{DatabaseOptions, Durability, KeyspaceOptions};
use crate::sstable::filter::file::{filter_id, filter_path};
use crate::sstable::reader::{Table, TableContext};
use crate::sstable::{Graveyard, ReadMetrics, table_id, table_path};
use crate::value_log::{self, Segment};
use crate::view::{Sealed, Tables, View};
use crate::wal::recovery::{self, Recovered};
use crate::wal::{Log, segment_id};

/// More segments of earlier lives than this are flushed at open.
const MAX_ENDED_SEGMENTS: usize = 8;

/// The lock file.
pub(super) const LOCK: &str = "LOCK";

/// Opens the database in `dir`. See the module page.
///
/// # Errors
/// `Locked`, `NotFound`, `NotADatabase`, `Unsupported`, `Corruption`, each saying which file; any
/// error of the disk.
pub fn open(
    disk: Arc<dyn Disk>,
    executor: Arc<dyn Executor>,
    dir: &Path,
    options: DatabaseOptions,
) -> Result<(Arc<Engine>, OpenReport)> {
    options.check()?;
    let read_only = options.read_only || options.salvage;
    let options = DatabaseOptions { read_only, ..options };
    let dir = &*disk.absolute(dir)?;
    let (guard, is_database) = enter(&*disk, dir, &options)?;
    let room = disk.room(dir).filter(|_| options.ballast_bytes.is_none());
    let disk_bytes = room.map(|room| room.total_bytes);
    let options = options.on_disk_of(disk_bytes);
    let loaded = manifest::load(&*disk, dir)?.unwrap_or_else(|| nothing_yet(&*disk));
    let context = context(&disk, &executor, dir, &options);
    let mut view = view_of(&context, &loaded.state, disk_bytes)?;
    let (recovered, memtables, log_damage) = recover(&context, &loaded, &options)?;
    memtables.show(&mut view, &recovered);
    let next_file = loaded.state.next_file;
    let (manifest, log, (removed_files, left_files), ballast) = if options.read_only {
        let log = Log::read_only(disk.clone(), dir, loaded.database, &recovered);
        (None, log, Default::default(), Ballast::none(&disk, dir))
    } else {
        make_durable(&*disk, dir, &recovered)?;
        let loaded = Loaded { state: without_dropped_filters(loaded.state, &view), ..loaded };
        let (manifest, log, removed) = begin(&disk, dir, &options, loaded, &recovered, &view)?;
        let ballast = Ballast::begin(&disk, dir, &options, &manifest, &view, &log);
        log.set_frugal(ballast.is_given_up());
        (Some(manifest), log, removed, ballast)
    };
    let found = OpenReport::of(&recovered, &view);
    let report =
        OpenReport { created: !is_database, removed_files, left_files, log_damage, ..found };
    let next_file = manifest.as_ref().map_or(next_file, |m| m.state().next_file);
    let engine = Arc::new(Engine {
        allowance: Allowance::new(options.background_bytes_per_s),
        health: Health::new(options.read_only),
        options,
        executor,
        payloads: Payloads::new(context.cache.pool()),
        context,
        log,
        metrics: EngineMetrics::default(),
        conversions: Mutex::default(),
        claims: Mutex::default(),
        touched: Touched::of(&view),
        wanted: AllWanted::default(),
        paid: AllPaid::default(),
        sealed_up_to: AtomicU64::new(0),
        pace: Pace::default(),
        compacts: AtomicBool::new(false),
        gone: Gone::default(),
        ballast,
        burials: Burials::default(),
        periodic: Periodic::default(),
        pins: Pins::default(),
        memory: Memory::default(),
        manifest: Mutex::new(manifest),
        view: ArcSwap::from_pointee(view),
        view_change: Mutex::default(),
        commit: Mutex::default(),
        holds: AtomicUsize::new(0),
        held: Mutex::default(),
        next_file: AtomicU64::new(next_file),
        _lock: guard,
    });
    engine.fit_cache();
    Ok((engine, report))
}

/// Locks the database in `dir` as a reader does, for looking at its files; and what its tables share there, which
/// keeps nothing in memory.
///
/// # Errors
/// `Locked` if it is open for writing; `NotFound`, `NotADatabase`; any error of the disk.
pub fn look_in(
    disk: &Arc<dyn Disk>,
    executor: &Arc<dyn Executor>,
    dir: &Path,
) -> Result<(Box<dyn Lock>, Arc<TableContext>)> {
    let options = DatabaseOptions {
        read_only: true,
        create_if_missing: false,
        mapped_reads: false,
        block_cache: false,
        ..DatabaseOptions::default()
    };
    let dir = &*disk.absolute(dir)?;
    let (guard, _) = enter(&**disk, dir, &options)?;
    Ok((guard, context(disk, executor, dir, &options)))
}

/// Makes what was read of the log durable, with the room held back if need be: what is written in its place takes some where
/// the file system copies it.
fn make_durable(disk: &dyn Disk, dir: &Path, recovered: &Recovered) -> Result<()> {
    match recovery::make_durable(disk, dir, recovered) {
        Err(e) if e.kind() == ErrorKind::DiskFull && Ballast::spend(disk, dir) => {
            recovery::make_durable(disk, dir, recovered)
        }
        done => done,
    }
}

/// A new database.
fn nothing_yet(disk: &dyn Disk) -> Loaded {
    let state = State { next_file: 1, next_keyspace: 1, ..State::default() };
    Loaded { database: disk.random_u64(), state, number: 0 }
}

/// Locks the directory, made if need be. Returns whether there is a database in it.
fn enter(disk: &dyn Disk, dir: &Path, options: &DatabaseOptions) -> Result<(Box<dyn Lock>, bool)> {
    let creates = options.create_if_missing && !options.read_only;
    if creates {
        create_dir(disk, dir)?;
    }
    let names = match disk.list(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(no_database(dir)),
        names => names?,
    };
    let is_database = names.iter().any(|name| name == CURRENT);
    if !is_database {
        check_empty(dir, &names, creates)?;
    }
    let lock = dir.join(LOCK);
    let guard = if options.read_only { share(disk, &lock)? } else { own(disk, &lock)? };
    Ok((guard, is_database))
}

/// Takes the lock alone.
fn own(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Lock>> {
    let advice = "; whoever opens a database writes there, unless it is opened with `read_only`";
    disk.lock(path).map_err(|e| if e.kind() == ErrorKind::Io { e.and_say(advice) } else { e })
}

/// Takes the lock together with other readers.
fn share(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Lock>> {
    disk.lock_shared(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            let message = "opening for reading only needs the lock file, and must not make it: put an \
                           empty file there, or open the database once for writing";
            Error::new(ErrorKind::NotFound, message).at_path(path)
        }
        _ => e,
    })
}

/// Makes the database's directory and its missing parents, their names durable. Also where the
/// directory is there without a database in it: whoever made it may have crashed before its name was
/// durable.
pub(super) fn create_dir(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let mut unsynced = Vec::new();
    for ancestor in dir.ancestors() {
        match disk.list(ancestor) {
            Err(e) if e.kind() == ErrorKind::NotFound => unsynced.push(ancestor),
            Ok(names) if ancestor == dir && !names.iter().any(|n| n == CURRENT) => {
                unsynced.push(ancestor);
                break;
            }
            Ok(_) => break,
            Err(e) => return Err(e),
        }
    }
    disk.create_dir(dir)?;
    for dir in unsynced.into_iter().rev() {
        match dir.parent() {
            Some(parent) if parent.as_os_str().is_empty() => disk.sync_dir(Path::new("."))?,
            Some(parent) => disk.sync_dir(parent)?,
            None => {}
        }
    }
    Ok(())
}

/// A directory without `CURRENT` may hold what a crash while creating a database left, nothing else.
fn check_empty(dir: &Path, names: &[String], create: bool) -> Result<()> {
    let leftover = |name: &String| {
        name == LOCK || name.starts_with(CURRENT) || manifest_number(name).is_some()
    };
    if let Some(name) = names.iter().find(|name| !leftover(name)) {
        let numbers =
            [segment_id(name), table_id(name), filter_id(name), value_log::segment_id(name)];
        let ours = name == BALLAST || numbers.iter().any(Option::is_some);
        let message = if ours {
            format!(
                "found {name:?} but no {CURRENT}: a part of a database without its head; {}",
                manifest::what_current_should_say(names)
            )
        } else {
            format!("expected an empty directory or a learnedkv database, found {name:?}")
        };
        return Err(Error::new(ErrorKind::NotADatabase, message).at_path(dir));
    }
    if !create {
        return Err(no_database(dir));
    }
    Ok(())
}

fn no_database(dir: &Path) -> Error {
    Error::new(ErrorKind::NotFound, "there is no learnedkv database here").at_path(dir)
}

fn context(
    disk: &Arc<dyn Disk>,
    executor: &Arc<dyn Executor>,
    dir: &Path,
    options: &DatabaseOptions,
) -> Arc<TableContext> {
    let executor = executor.clone();
    Arc::new(TableContext {
        disk: disk.clone(),
        files: OpenFiles::new(disk.clone(), options.max_open_files(disk.max_open_files())),
        dir: dir.to_owned(),
        access: if options.direct_reads { Access::Direct } else { Access::Random },
        maps: (options.mapped_reads && !options.direct_reads).then(Maps::of_process),
        cache: BlockCache::new(options.cache_bytes(0, 0)),
        max_metadata_bytes: options.max_metadata_bytes(),
        max_filtered_bytes: options.max_filtered_bytes(),
        codecs: Codecs::default(),
        metrics: ReadMetrics::default(),
        around: Around::default(),
        graveyard: Graveyard::new(move || executor.notify()),
        missed: AtomicU64::new(0),
        salvages: options.salvage,
    })
}

fn view_of(context: &Arc<TableContext>, state: &State, disk_bytes: Option<u64>) -> Result<View> {
    let mut view = View::default();
    for (&id, keyspace) in &state.keyspaces {
        let options = KeyspaceOptions::decode(&keyspace.options)?.on_disk_of(disk_bytes);
        let options = view.keyspaces.sharing(options);
        // Neighbouring partitions may share a table: it is opened once.
        let mut opened = BTreeMap::new();
        let open = |record: &TableRecord| -> Result<Arc<Table>> {
            if let Some(table) = opened.get(&record.id) {
                return Ok(Arc::clone(table));
            }
            let name = &keyspace.name;
            let table = Arc::new(Table::open_or_stand_in(context, record.clone(), name)?);
            opened.insert(record.id, table.clone());
            Ok(table)
        };
        let open_segment = |used: &SegmentUse| {
            Segment::open_or_stand_in(context, used, &keyspace.name).map(Arc::new)
        };
        let tables = Tables::of(keyspace, open, open_segment)?;
        view.keyspaces.insert(id, new_keyspace(id, &keyspace.name, options, Arc::new(tables)));
    }
    Ok(view)
}

/// The state without the filters that could not be read: the next manifest does not name them, so that
/// their files are orphans, and the tables are as if they never had one.
fn without_dropped_filters(mut state: State, view: &View) -> State {
    for (id, keyspace) in &mut state.keyspaces {
        let tables = view.keyspaces.get(id).into_iter().flat_map(|k| k.tables.all());
        let filtered = tables.filter(|table| table.filter_file_bytes() > 0);
        let filtered: BTreeSet<_> = filtered.map(|table| table.id()).collect();
        for table in keyspace.tables_mut().filter(|table| !filtered.contains(&table.id)) {
            table.filter = None;
        }
    }
    state
}

/// Memtables filled from the log.
struct Recovering<'a> {
    context: &'a Arc<TableContext>,
    state: &'a State,
    memtable_bytes: usize,
    active: BTreeMap<KeyspaceId, Arc<Memtable>>,
    sealed: BTreeMap<KeyspaceId, Vec<Sealed>>,
}

impl Recovering<'_> {
    fn show(self, view: &mut View, recovered: &Recovered) {
        for (id, sealed) in self.sealed {
            if let Some(keyspace) = view.keyspaces.get_mut(&id) {
                Arc::make_mut(keyspace).sealed = sealed;
            }
        }
        for (id, memtable) in self.active {
            if let Some(keyspace) = view.keyspaces.get_mut(&id) {
                let keyspace = Arc::make_mut(keyspace);
                if recovered.ended.len() > MAX_ENDED_SEGMENTS {
                    // Many short lives: flushed now, so that their segments can go.
                    keyspace.sealed.insert(0, Sealed { memtable, up_to: recovered.last });
                } else {
                    keyspace.active = memtable;
                }
            }
        }
    }

    fn take(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<()> {
        let state = self.state;
        // There may be very many keyspaces, and records.
        let mut written = BTreeSet::new();
        for (sequence, op) in (header.first..).zip(Ops::new(payload)) {
            let op = op?;
            match state.keyspaces.get(&op.keyspace) {
                Some(keyspace) if sequence > keyspace.flushed => {
                    written.insert(op.keyspace);
                    let memtable = self.active.entry(op.keyspace).or_default();
                    memtable.expect(sequence);
                    if op.kind == Kind::Pointer {
                        hold_segment(self.context, memtable, &op, &keyspace.name)?;
                    }
                    memtable.insert_copy(&op, sequence);
                    if let Some(position) = header.external_position {
                        let carried = CarriedPosition { sequence: header.last(), position };
                        memtable.positions.note(carried, SequenceNumber::MAX);
                    }
                }
                Some(_) => {}
                None if op.keyspace < state.next_keyspace => {} // dropped since
                None => {
                    return Err(Error::corruption(format!(
                        "expected an operation of a keyspace below {}, found one of {}",
                        state.next_keyspace, op.keyspace
                    )));
                }
            }
        }
        for id in written {
            let is_full = |memtable: &Arc<Memtable>| memtable.is_full(self.memtable_bytes);
            if self.active.get(&id).is_some_and(is_full)
                && let Some(memtable) = self.active.remove(&id)
            {
                let sealed = Sealed { memtable, up_to: header.last() };
                self.sealed.entry(id).or_default().insert(0, sealed);
            }
        }
        Ok(())
    }
}

/// Reads the log; what of it is damaged, where that is to be salvaged.
fn recover<'a>(
    context: &'a Arc<TableContext>,
    loaded: &'a Loaded,
    options: &DatabaseOptions,
) -> Result<(Recovered, Recovering<'a>, Option<Error>)> {
    let state = &loaded.state;
    let mut memtables = Recovering {
        context,
        state,
        memtable_bytes: options.memtable_bytes,
        active: BTreeMap::new(),
        sealed: BTreeMap::new(),
    };
    let mut apply =
        |header: &RecordHeader, payload: &[u8]| -> Result<()> { memtables.take(header, payload) };
    let (disk, dir, log) = (&*context.disk, &context.dir, &state.log);
    let (recovered, damage) = if options.salvage {
        recovery::salvage(disk, dir, loaded.database, log, state.synced, &mut apply)?
    } else {
        (recovery::recover(disk, dir, loaded.database, log, state.synced, &mut apply)?, None)
    };
    Ok((recovered, memtables, damage))
}

/// Opens the segment that a pointer in the log leads into, and has the memtable hold it that the pointer
/// is about to be put into.
fn hold_segment(
    context: &Arc<TableContext>,
    memtable: &Memtable,
    op: &Op<'_>,
    keyspace: &str,
) -> Result<()> {
    let logged = op.key_and_value.get(op.key_length..).unwrap_or_default();
    let (pointer, tag) = ValuePointer::decode_logged(logged)?;
    let used = SegmentUse::of(&pointer, tag);
    memtable.streamed.hold(Arc::new(Segment::open_or_stand_in(context, &used, keyspace)?));
    Ok(())
}

/// Commits the recovery, begins the fresh segment and removes what nothing names. What was removed, and what could not be.
fn begin(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: &DatabaseOptions,
    loaded: Loaded,
    recovered: &Recovered,
    view: &View,
) -> Result<(Manifest, Log, Removed)> {
    let Loaded { database, mut state, number: counts } = loaded;
    let mut removed = Vec::new();
    // Opens that died amid this may have used what was held for it: what they left is not needed either.
    let mut make_room = |counts: (u64, &State, &BTreeSet<u64>)| -> Result<bool> {
        let spent = Ballast::spend(&**disk, dir);
        let (names, _) = remove_orphans(&**disk, dir, counts, view)?;
        let made = spent || !names.is_empty();
        removed.extend(names);
        Ok(made)
    };
    let segments = recovered.ended.iter().map(|ended| ended.segment);
    let segments = segments.chain(state.log.ended.iter().map(|(segment, _)| *segment)).collect();
    let names = disk.list(dir)?;
    let number = names.iter().filter_map(|n| manifest_number(n)).max().unwrap_or(0) + 1;
    let of_file =
        |n: &String| table_id(n).or_else(|| filter_id(n)).or_else(|| value_log::segment_id(n));
    let files = names.iter().filter_map(of_file);
    // The log may point into files that are missing: their numbers are not given out again.
    let memtables = view.keyspaces.values().flat_map(|keyspace| keyspace.memtables());
    let held: Vec<_> = memtables.map(|memtable| memtable.streamed.all()).collect();
    let held = held.iter().flat_map(|held| held.iter().map(|segment| segment.id()));
    state.next_file = state.next_file.max(files.chain(held).max().map_or(1, |id| id + 1));
    state.synced = recovered.last;
    let oldest = view.keyspaces.values().filter_map(|k| k.oldest_unflushed()).min();
    let needed = oldest.unwrap_or(recovered.last + 1);
    let mut recovered = recovered.clone();
    recovered.ended.retain(|ended| ended.last >= needed);
    state.log = LogState {
        ended: recovered.ended.iter().map(|e| (e.segment, e.end)).collect(),
        open_from: recovered.next_segment,
        first: recovered.ended.first().map_or(recovered.last + 1, |e| e.first),
    };
    let is_full = |e: &Error| e.kind() == ErrorKind::DiskFull;
    let manifest = match Manifest::begin(disk.clone(), dir, database, number, state.clone()) {
        Err(e) if is_full(&e) && make_room((counts, &state, &segments))? => {
            Manifest::begin(disk.clone(), dir, database, number + 1, state)?
        }
        begun => begun?,
    };
    let begin_log = |frugal| {
        let bytes = options.log_segment_bytes;
        let synced_often = options.durability == Durability::Synced;
        Log::begin(disk.clone(), dir, database, bytes, &recovered, frugal, synced_often)
    };
    let log = match begin_log(false) {
        Err(e) if is_full(&e) => {
            let segments = recovered.ended.iter().map(|ended| ended.segment).collect();
            make_room((manifest.number(), manifest.state(), &segments))?;
            begin_log(true)?
        }
        begun => begun?,
    };
    let segments = log.segments().into_iter().collect();
    let counts = (manifest.number(), manifest.state(), &segments);
    let (names, left) = remove_orphans(&**disk, dir, counts, view)?;
    removed.extend(names);
    Ok((manifest, log, (removed, left)))
}

/// The names of the files that were removed, and why others could not be.
type Removed = (Vec<String>, Vec<Error>);

/// The finished files that a state and the log it names need, in `dir`: all but the log and the manifest
/// themselves. An open removes the others, a checkpoint copies these. `view` shows the memtables that
/// the log fills.
pub(super) fn named_files(dir: &Path, state: &State, view: &View) -> BTreeSet<PathBuf> {
    let memtables = view.keyspaces.values().flat_map(|keyspace| keyspace.memtables());
    let streamed: Vec<_> = memtables.map(|memtable| memtable.streamed.all()).collect();
    let streamed = streamed.iter().flat_map(|held| held.iter());
    let streamed = streamed.map(|segment| value_log::segment_path(dir, segment.id()));
    let tables = || state.keyspaces.values().flat_map(|k| k.tables());
    let values = tables().flat_map(|t| &t.properties.segments);
    let values = values.map(|used| value_log::segment_path(dir, used.segment));
    let filters = tables().filter_map(|t| t.filter.as_ref()).map(|f| filter_path(dir, f.id));
    tables().map(|t| table_path(dir, t.id)).chain(values).chain(filters).chain(streamed).collect()
}

/// Removes files of ours that are not the manifest of that number, which counts, nor named by its state, nor one of those segments of
/// the log. What was removed, and what could not be.
fn remove_orphans(
    disk: &dyn Disk,
    dir: &Path,
    (manifest, state, segments): (u64, &State, &BTreeSet<u64>),
    view: &View,
) -> Result<Removed> {
    let finished = named_files(dir, state, view);
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    for name in disk.list(dir)? {
        let path = dir.join(&name);
        let kinds = [table_id(&name), filter_id(&name), value_log::segment_id(&name)];
        let is_finished = kinds.iter().any(Option::is_some);
        let orphan = (is_finished && !finished.contains(&path))
            || segment_id(&name).is_some_and(|id| !segments.contains(&id))
            || manifest_number(&name).is_some_and(|number| number != manifest);
        if !orphan {
            continue;
        }
        match disk.remove(&path) {
            Ok(()) => removed.push(name),
            // A directory of that name, say: nothing will ever ask for it.
            Err(error) if is_finished => left.push(error.at_path(&path)),
            Err(error) => return Err(error),
        }
    }
    Ok((removed, left))
}
