//! Reading a keyspace as one View shows it.

use std::array;
use std::ops::Bound;
use std::sync::Arc;

use super::paying::{Apart, Payer};
use super::{many, paying, restore, rows};
use crate::cursor::{Cursor, MergeCursor, Seek, Source};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::checksum::HashedKey;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::range::KeyRange;
use crate::format::value::ValuePointer;
use crate::options::ReadOptions;
use crate::slice::{Lookup, Slice};
use crate::sstable::cursor::{self, Clipped, Walk, Wanted};
use crate::sstable::reader::{Caching, Table};
use crate::sstable::sought::{Asking, Reads, Sought};
use crate::value_log::{self, LookedUp, Segment};
use crate::view::{Group, KeyspaceView, Partition, Run, Tables};

/// So many runs' filters are fetched from memory together.
const TOGETHER: usize = 8;

/// The value of `key`, from the newest data that holds it.
///
/// # Errors
/// `Corruption` if a block that must hold it is damaged; any error of the disk.
pub fn get(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    key: &[u8],
    visible: SequenceNumber,
    asking: Asking,
) -> Result<Option<Slice>> {
    find(engine, view, key, visible, asking, |found, sought| match found {
        Lookup::Value(value) => Ok(Some(value)),
        Lookup::Pointer(pointer) => load_pointer(engine, view, &pointer, sought).map(Some),
        Lookup::Removed | Lookup::Absent => Ok(None),
    })
}

/// A value that was found, and where, if it is kept apart.
#[derive(Debug, Clone)]
pub struct Found {
    /// The value.
    pub value: Slice,
    apart: Option<ValuePointer>,
}

impl Found {
    /// Whether both are the same value, or nothing.
    pub fn is_same(one: Option<&Found>, other: Option<&Found>) -> bool {
        match (one, other) {
            // A segment's number is never given again, and what is written stays.
            (Some(one), Some(other)) => {
                one.apart.is_some() && one.apart == other.apart || *one.value == *other.value
            }
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// As [`get`], with where the value is. One that is kept apart where `known` was is not read again.
///
/// # Errors
/// As [`get`].
pub fn get_again(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    key: &[u8],
    visible: SequenceNumber,
    known: Option<&Found>,
) -> Result<Option<Found>> {
    let asking = ReadOptions::default().asking();
    find(engine, view, key, visible, asking, |found, sought| match found {
        Lookup::Value(value) => Ok(Some(Found { value, apart: None })),
        Lookup::Pointer(payload) => {
            let apart = Some(ValuePointer::decode(&payload)?);
            if let Some(known) = known.filter(|known| known.apart == apart) {
                return Ok(Some(known.clone()));
            }
            let value = load_pointer(engine, view, &payload, sought)?;
            Ok(Some(Found { value, apart }))
        }
        Lookup::Removed | Lookup::Absent => Ok(None),
    })
}

/// Where a value is.
pub enum Place {
    /// Read already.
    Here(Slice),
    /// In a value segment.
    Apart(Arc<Segment>, ValuePointer),
}

/// Where the value of `key` is; one kept apart is not read.
///
/// # Errors
/// As [`get`].
pub fn place(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    key: &[u8],
    visible: SequenceNumber,
    asking: Asking,
) -> Result<Option<Place>> {
    find(engine, view, key, visible, asking, |found, _| match found {
        Lookup::Value(value) => Ok(Some(Place::Here(value))),
        Lookup::Pointer(payload) => {
            let pointer = ValuePointer::decode(&payload)?;
            Ok(Some(Place::Apart(view.segment(pointer.segment)?, pointer)))
        }
        Lookup::Removed | Lookup::Absent => Ok(None),
    })
}

/// The value that a pointer entry of `key` names.
fn load_pointer(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    payload: &[u8],
    sought: &Sought<'_>,
) -> Result<Slice> {
    let pointer = ValuePointer::decode(payload)?;
    let before = sought.reads.requests();
    sought.load_apart();
    let value =
        view.in_segment(pointer.segment, |of| of.load(sought.key(), pointer, &sought.reads))?;
    let requests = sought.reads.requests();
    // In its block it would have taken one.
    let more = (requests - before).min(requests.saturating_sub(1));
    if more > 0 {
        Payer::of(engine, view).filter(|by| by.moves(&pointer)).inspect(|by| by.pay(more));
    } else if requests == before {
        paying::owe_for_values(engine, view, Apart::of([pointer]));
    }
    Ok(value)
}

/// How long the value of `key` is, bytes. The value itself is not read.
///
/// # Errors
/// As [`get`].
pub fn size_of(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    key: &[u8],
    visible: SequenceNumber,
    asking: Asking,
) -> Result<Option<u64>> {
    find(engine, view, key, visible, asking, |found, _| length(&found))
}

/// How long the value found is, bytes.
///
/// # Errors
/// `Corruption` if it is kept apart and its pointer is none.
pub fn length(found: &Lookup) -> Result<Option<u64>> {
    match found {
        Lookup::Value(value) => Ok(Some(value.len() as u64)),
        Lookup::Pointer(pointer) => Ok(Some(ValuePointer::decode(pointer)?.length)),
        Lookup::Removed | Lookup::Absent => Ok(None),
    }
}

/// Whether `key` has a value. The value itself is not read.
///
/// # Errors
/// As [`get`].
pub fn contains(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    key: &[u8],
    visible: SequenceNumber,
    asking: Asking,
) -> Result<bool> {
    find(engine, view, key, visible, asking, |found, _| {
        Ok(!matches!(found, Lookup::Removed | Lookup::Absent))
    })
}

/// What `take` makes of the newest version of `key`. The lookup is counted, with what `take` reads for it.
#[inline]
fn find<T>(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    key: &[u8],
    visible: SequenceNumber,
    asking: Asking,
    take: impl FnOnce(Lookup, &Sought<'_>) -> Result<T>,
) -> Result<T> {
    let sought = Sought::new(key, asking.caching);
    let found = match find_in_memtables(view, sought.hashed(), visible) {
        Lookup::Absent if asking.at_once => find_at_once(&view.tables, &sought, asking.caching),
        Lookup::Absent => find_in_tables(&view.tables, &sought),
        found => Ok(found),
    };
    sought.end(found.as_ref());
    let taken = found.and_then(|found| take(found, &sought));
    account(engine, view, &sought);
    taken.map_err(|error| met_in(view, error))
}

/// What a read of a keyspace met, with what its user may want to know.
pub fn met_in(view: &KeyspaceView, error: Error) -> Error {
    if !error.is_corruption() {
        return error;
    }
    error.advise(|| {
        format!(
            " (read for keyspace {:?}; what else there is can be read: restore the database from a checkpoint, or copy what \
             can be read to another keyspace)",
            view.name
        )
    })
}

/// Counts `sought`, a lookup in `view`; the cache makes way for a filter that came into memory.
pub(super) fn account(engine: &Arc<Engine>, view: &KeyspaceView, sought: &Sought<'_>) {
    sought.count(&engine.context.metrics);
    paying::owe_for_runs(engine, view, sought);
    restore::pay(engine, view, sought);
    if sought.has_woken() {
        engine.fit_cache();
    }
}

/// What the memtables hold of `key`.
pub(super) fn find_in_memtables(
    view: &KeyspaceView,
    key: &HashedKey<'_>,
    visible: SequenceNumber,
) -> Lookup {
    for memtable in view.memtables() {
        match memtable.get(key, visible) {
            Lookup::Absent => {}
            found => return found,
        }
    }
    Lookup::Absent
}

/// The values kept apart that `wanted` names by key and pointer, in that order, read together. They are neighbours: if they
/// were settled, those that are short would have come with the blocks of their keys.
///
/// # Errors
/// `Corruption` if one is not where its pointer says; any error of the disk.
pub fn load_all(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    wanted: &[(&[u8], ValuePointer)],
) -> Result<Vec<Slice>> {
    let reads = Reads::default();
    let LookedUp { values, read } = value_log::look_up_all(wanted, |id| view.segment(id), &reads)?;
    if reads.requests() > 0 {
        let payer = Payer::of(engine, view);
        let pointers = || read.iter().map(|at| wanted[*at].1);
        payer.inspect(|by| by.pay_for_walk(reads.requests(), pointers()));
    } else {
        paying::owe_for_values(engine, view, Apart::of(wanted.iter().map(|(_, pointer)| *pointer)));
    }
    Ok(values)
}

/// The value of the entry that a cursor stands on, if it needs no read; `apart` has it if it stands apart.
///
/// # Errors
/// `Corruption` if it is kept apart and its pointer is none, or nothing is known to be where that leads.
pub fn value_at_hand(
    view: &KeyspaceView,
    cursor: &dyn Cursor,
    apart: &mut Apart,
) -> Result<Option<Slice>> {
    let (Kind::Pointer, Some(key)) = (cursor.kind().0, cursor.key()) else {
        return Ok(Some(cursor.value_slice()));
    };
    let pointer = ValuePointer::decode(cursor.value())?;
    let value = view.in_segment(pointer.segment, |of| Ok(of.at_hand(key, pointer)))?;
    if value.is_some() {
        apart.add(pointer);
    }
    Ok(value)
}

/// What tables say of a key, all that may hold it being asked at once.
fn find_at_once(tables: &Tables, sought: &Sought<'_>, caching: Caching) -> Result<Lookup> {
    match many::find_at_once(tables, &[sought], caching) {
        Ok(found) => Ok(found.into_iter().next().unwrap_or(Lookup::Absent)),
        // An older table than the one that holds it, perhaps.
        Err(_) => {
            sought.answer_fresh();
            find_in_tables(tables, sought)
        }
    }
}

fn find_in_tables(tables: &Tables, sought: &Sought<'_>) -> Result<Lookup> {
    // Most keys are settled, or nowhere: the filters asked last come from memory while the runs' are asked.
    let settled = partition_of(tables, sought);
    if let Some(Partition { base, delta, .. }) = settled {
        base.iter().chain(delta).for_each(|table| table.expect(sought));
    }
    match find_in_groups(&tables.groups, &tables.runs, sought)? {
        Lookup::Absent => {
            sought.pass(tables.spares());
            find_below(tables, settled, sought)
        }
        found => Ok(found),
    }
}

/// What `runs`, which stand in these groups, hold of a key.
fn find_in_groups(groups: &[Group], runs: &[Run], sought: &Sought<'_>) -> Result<Lookup> {
    for group in groups {
        if group.refuses(sought.hashed()) {
            sought.stop(group.runs.len());
            continue;
        }
        let found = match &runs[group.runs.clone()] {
            [run] => find_in_run(run, sought)?,
            several => find_in_several(several, sought)?,
        };
        match found {
            Lookup::Absent => {}
            found => return Ok(found),
        }
    }
    Ok(Lookup::Absent)
}

/// What runs hold of a key, the first that has it.
#[inline(never)]
fn find_in_several(runs: &[Run], sought: &Sought<'_>) -> Result<Lookup> {
    for some in runs.chunks(TOGETHER) {
        let tables: [_; TOGETHER] =
            array::from_fn(|at| some.get(at).and_then(|run| table_of(run, sought.key())));
        // Each one's filter is elsewhere in memory: so they come at the same time.
        tables.iter().flatten().for_each(|table| table.expect(sought));
        for table in tables.into_iter().flatten() {
            match table.get(sought)? {
                Lookup::Absent => {}
                found => return Ok(found),
            }
        }
    }
    Ok(Lookup::Absent)
}

/// The newest version of a key in the frozen part and the settled run.
///
/// # Errors
/// As [`get`].
pub fn find_below_runs(tables: &Tables, sought: &Sought<'_>) -> Result<Lookup> {
    find_below(tables, partition_of(tables, sought), sought)
}

/// The partition of a key, if anything is settled.
fn partition_of<'a>(tables: &'a Tables, sought: &Sought<'_>) -> Option<&'a Partition> {
    tables.partitions.get(tables.partition(sought.key()))
}

/// As [`find_below_runs`], of a key that lies in this partition.
fn find_below(tables: &Tables, settled: Option<&Partition>, sought: &Sought<'_>) -> Result<Lookup> {
    let frozen = tables.frozen.as_ref().filter(|f| sought.key() >= f.watermark.as_slice());
    if let Some(frozen) = frozen {
        match find_in_groups(&frozen.groups, &frozen.runs, sought)? {
            Lookup::Absent => {}
            found => return Ok(found),
        }
    }
    let Some(partition) = settled else { return Ok(Lookup::Absent) };
    for table in partition.delta.iter().chain(&partition.base) {
        sought.reach_settled();
        match table.get(sought)? {
            Lookup::Absent => {}
            found => return Ok(found),
        }
    }
    Ok(Lookup::Absent)
}

/// What a run holds of a key.
///
/// # Errors
/// As [`get`].
pub fn find_in_run(run: &Run, sought: &Sought<'_>) -> Result<Lookup> {
    table_of(run, sought.key()).map_or(Ok(Lookup::Absent), |table| table.get(sought))
}

/// The table of a run that may hold `key`.
pub(super) fn table_of<'a>(run: &'a Run, key: &[u8]) -> Option<&'a std::sync::Arc<Table>> {
    run.get(run.partition_point(|table| table.ends_by(key)))
}

/// How long the value is that a cursor stands on, bytes. The value itself is not read.
///
/// # Errors
/// `Corruption` if it is kept apart and its pointer is none.
pub fn size_at(cursor: &dyn Cursor) -> Result<u64> {
    match cursor.kind().0 {
        Kind::Pointer => Ok(ValuePointer::decode(cursor.value())?.length),
        _ => Ok(cursor.value().len() as u64),
    }
}

/// A walk that is about to begin.
#[derive(Debug, Clone, Copy)]
pub struct Going<'a> {
    /// How it reads.
    pub walk: Walk,
    /// Where it is sought first.
    pub to: Seek<'a>,
    /// None beyond this is wanted, nor given.
    pub until: Bound<&'a [u8]>,
    /// So many entries are, perhaps.
    pub entries: usize,
}

/// Walks all of a keyspace: for each key the newest entry, tombstones included. It is to be sought where it is going.
pub fn cursor(view: &KeyspaceView, visible: SequenceNumber, going: Going<'_>) -> MergeCursor {
    over(memtable_sources(view, visible).collect(), view, going)
}

/// As [`cursor`], which does not keep the memtables: whoever moves it keeps `view`, as long as that takes.
pub fn lent_cursor(view: &KeyspaceView, visible: SequenceNumber, going: Going<'_>) -> MergeCursor {
    let used = view.memtables().filter(|memtable| !memtable.is_empty());
    let sources = used.map(|memtable| memtable.lent_source(visible));
    over(sources.collect(), view, going)
}

/// Merges `sources`, and behind them the tables of a keyspace.
fn over(mut sources: Vec<Source>, view: &KeyspaceView, going: Going<'_>) -> MergeCursor {
    // Where it may be that a part of a table is not walked, nothing of it is read beforehand.
    let to = sources.iter().all(|source| !source.covers()).then_some(going.to);
    let wanted = Wanted { entries: going.entries, until: going.until.map(Arc::from) };
    sources.extend(rows::sources(&view.tables, going.walk, &wanted, to));
    MergeCursor::new(sources)
}

/// The memtables of a keyspace, newest first.
pub(super) fn memtable_sources(
    view: &KeyspaceView,
    visible: SequenceNumber,
) -> impl Iterator<Item = Source> {
    let used = view.memtables().filter(|memtable| !memtable.is_empty());
    used.map(move |memtable| memtable.source(visible))
}

/// What a run says of `lower <= key < upper`.
pub fn run_source(run: &Run, lower: &[u8], upper: Option<&[u8]>, walk: Walk) -> Source {
    cursor::source(run.iter().map(|table| clip(table, lower, upper)).collect(), walk)
}

/// A table of which only the keys in `lower <= key < upper` count.
pub fn clip(table: &std::sync::Arc<Table>, lower: &[u8], upper: Option<&[u8]>) -> Clipped {
    Clipped { table: table.clone(), lower: lower.to_vec(), upper: upper.map(<[u8]>::to_vec) }
}

pub(super) fn delta(partition: &Partition) -> Option<&std::sync::Arc<Table>> {
    partition.delta.as_ref()
}

pub(super) fn base(partition: &Partition) -> Option<&std::sync::Arc<Table>> {
    partition.base.as_ref()
}

fn settled(
    tables: &Tables,
    choose: fn(&Partition) -> Option<&std::sync::Arc<Table>>,
) -> Vec<Clipped> {
    let partitions = tables.partitions.iter().enumerate();
    partitions.filter_map(|(i, p)| Some(clip(choose(p)?, &p.lower, tables.upper(i)))).collect()
}

/// All tables, each with the keys of it that count.
pub fn tables(view: &KeyspaceView) -> impl Iterator<Item = Clipped> {
    let tables = &view.tables;
    let runs = tables.runs.iter().flatten().map(|table| clip(table, &[], None));
    let frozen = tables.frozen.iter().flat_map(|frozen| {
        frozen.runs.iter().flatten().map(|table| clip(table, &frozen.watermark, None))
    });
    runs.chain(frozen).chain(settled_tables(tables))
}

/// The tables of the settled run, each with the keys of it that count.
pub fn settled_tables(tables: &Tables) -> impl Iterator<Item = Clipped> {
    settled(tables, delta).into_iter().chain(settled(tables, base))
}

/// Whether a keyspace says anything of keys in `first..=last`: shows an entry, tombstones included, or
/// holds a removed range, under which there may be entries that do not show.
///
/// # Errors
/// Those of the cursor.
pub fn has_entries(
    view: &KeyspaceView,
    visible: SequenceNumber,
    first: &[u8],
    last: &[u8],
) -> Result<bool> {
    if has_ranges(view, visible, first, last) {
        return Ok(true);
    }
    let to = Seek::AtOrAfter(first);
    let going = Going { walk: Walk::Cached, to, until: Bound::Included(last), entries: 1 };
    let mut cursor = cursor(view, visible, going);
    cursor.seek(to)?;
    Ok(cursor.key().is_some_and(|key| key <= last))
}

/// Whether a keyspace holds any removed range in `first..=last`.
fn has_ranges(view: &KeyspaceView, visible: SequenceNumber, first: &[u8], last: &[u8]) -> bool {
    let inside = |range: &KeyRange| range.start.as_slice() <= last;
    let in_tables = view.tables.has_ranges
        && tables(view).any(|clipped| {
            let ranges = clipped.table.ranges();
            !ranges.is_empty()
                && clipped.ranges().any(|range| inside(&range) && !range.ends_by(first))
        });
    in_tables
        || view.memtables().filter(|memtable| memtable.has_ranges()).any(|memtable| {
            memtable.ranges(visible).overlapping(first, None).first().is_some_and(inside)
        })
}
