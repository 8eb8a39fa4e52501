//! What readers see: for each keyspace its memtables, runs, frozen part and partitions, immutable.
//!
//! Every read uses one View. A change makes a new one; files and memtables live for as long as a
//! View that lists them. A View never reads or writes anything.

mod groups;
mod keyspaces;
mod part;
mod rent;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

pub use self::groups::{Group, ungrouped};
pub use self::keyspaces::Keyspaces;
pub use self::part::Question;
pub use self::rent::{LEAST as LEAST_RENT, Rent, SHARES};

use crate::error;
use crate::format::bytes::Probe;
use crate::format::entry::{CarriedPosition, KeyspaceId, SequenceNumber};
use crate::format::manifest::TableRecord;
use crate::format::table::SegmentUse;
use crate::manifest::KeyspaceState;
use crate::memtable::Memtable;
use crate::options::KeyspaceOptions;
use crate::sstable::generation::Generation;
use crate::sstable::lengths::Lengths;
use crate::sstable::reader::Table;
use crate::value_log::{self, Segment, Segments};

/// Tables in key order that do not overlap.
pub type Run = Vec<Arc<Table>>;

/// The keys that a table, or several, say anything of: from `start` on and before `end`, or to the last
/// where there is no end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key behind them; `None`: there is none.
    pub end: Option<Vec<u8>>,
}

impl Extent {
    /// That of a table: its entries, and the ranges it says are gone.
    pub fn of(table: &Table) -> Extent {
        let properties = table.properties();
        let entries = || Extent::between(&properties.smallest, &properties.largest);
        let ranges = table.ranges();
        match ranges.iter().next().zip(ranges.iter().last()) {
            None => entries(),
            Some((first, last)) => {
                let ranges = Extent { start: first.start.clone(), end: last.end.clone() };
                if properties.entries > 0 { entries().with(ranges) } else { ranges }
            }
        }
    }

    /// The least that holds both.
    fn with(self, other: Extent) -> Extent {
        let end = self.end.zip(other.end).map(|(a, b)| a.max(b));
        Extent { start: self.start.min(other.start), end }
    }

    /// That of all keys from `smallest` to `largest`, both included.
    pub fn between(smallest: &[u8], largest: &[u8]) -> Extent {
        Extent { start: smallest.to_vec(), end: Some([largest, &[0]].concat()) }
    }

    /// The least that holds those of all `tables`; `None` if there are none.
    pub fn hull<'a>(tables: impl Iterator<Item = &'a Arc<Table>>) -> Option<Extent> {
        tables.map(|table| Extent::of(table)).reduce(Extent::with)
    }

    /// Whether both have a key.
    pub fn meets(&self, other: &Extent) -> bool {
        let begins_before =
            |one: &Extent, end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| one.start < *end);
        begins_before(self, &other.end) && begins_before(other, &self.end)
    }

    /// The tables of a run that say anything of keys of it.
    pub fn of_run<'a>(&self, run: &'a Run) -> &'a [Arc<Table>] {
        let start = self.behind(run);
        let begins_before =
            |table: &Arc<Table>| self.end.as_ref().is_none_or(|end| Extent::of(table).start < *end);
        let end = run.partition_point(begins_before);
        &run[start..end.max(start)]
    }

    /// How many tables of a run lie before it.
    pub fn behind(&self, run: &Run) -> usize {
        run.partition_point(|table| {
            Extent::of(table).end.is_some_and(|end| end.as_slice() <= self.start.as_slice())
        })
    }
}

/// A memtable that takes no more writes.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// The memtable.
    pub memtable: Arc<Memtable>,
    /// All its keyspace's operations up to here, and not in earlier memtables, are in it.
    pub up_to: SequenceNumber,
}

impl Sealed {
    /// The number of its oldest record.
    pub fn first_sequence(&self) -> SequenceNumber {
        self.memtable.first_sequence()
    }
}

/// What a sweep is merging into the settled run.
#[derive(Debug, Clone)]
pub struct Frozen {
    /// Its runs, newest first.
    pub runs: Vec<Run>,
    /// The same in groups.
    pub groups: Vec<Group>,
    /// Keys below it are settled: they count no more here.
    pub watermark: Vec<u8>,
}

impl Frozen {
    /// Its tables whose entries are not all outside of `lower <= key < upper`, newest first.
    pub fn between<'a>(
        &'a self,
        lower: &'a [u8],
        upper: Option<&'a [u8]>,
    ) -> impl Iterator<Item = &'a Arc<Table>> {
        let tables = self.runs.iter().flatten();
        tables.filter(move |table| {
            let of = table.properties();
            of.largest.as_slice() >= lower
                && upper.is_none_or(|upper| of.smallest.as_slice() < upper)
        })
    }
}

/// A part of the settled run.
#[derive(Debug, Clone)]
pub struct Partition {
    /// Its first possible key; the next partition's is its end.
    pub lower: Vec<u8>,
    /// The [number](Probe::number) of `lower`: a search among many partitions looks at it alone.
    number: u64,
    /// The settled data.
    pub base: Option<Arc<Table>>,
    /// A smaller, newer table over it.
    pub delta: Option<Arc<Table>>,
}

impl Partition {
    fn new(lower: Vec<u8>, base: Option<Arc<Table>>, delta: Option<Arc<Table>>) -> Partition {
        Partition { number: Probe::new(&lower).number(), lower, base, delta }
    }

    /// Its tables. Partitions that an ingest or a sweep cut one into have the same: whoever adds up
    /// what tables of several take sees to it that [`each_once`] counts.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.base.iter().chain(&self.delta)
    }
}

/// The last of the partitions that does not begin behind `key`.
fn partition_of(partitions: &[Partition], key: &[u8]) -> usize {
    let probe = Probe::new(key);
    let (mut at, mut count) = (0, partitions.len());
    // By the numbers alone, without a branch on what they are: no processor would foresee it.
    while count > 1 {
        let half = count / 2;
        let next = partitions.get(at + half).map_or(u64::MAX, |partition| partition.number);
        at = std::hint::select_unpredictable(next <= probe.number(), at + half, at);
        count -= half;
    }
    if partitions.get(at).is_some_and(|partition| partition.number != probe.number()) {
        return at;
    }
    let reached = |p: &Partition| probe.compare_numbered(p.number, &p.lower).is_ge();
    partitions.partition_point(reached).saturating_sub(1)
}

/// Each of `tables` where it comes first.
pub fn each_once<'a>(
    tables: impl Iterator<Item = &'a Arc<Table>>,
) -> impl Iterator<Item = &'a Arc<Table>> {
    let mut seen = BTreeSet::new();
    tables.filter(move |table| seen.insert(table.id()))
}

/// The tables of a keyspace.
#[derive(Debug, Clone)]
pub struct Tables {
    /// The runs of the LSM part, newest first; the last [`Tables::level_count`] of them are levels,
    /// each of which may be empty.
    pub runs: Vec<Run>,
    /// The same in groups.
    pub groups: Vec<Group>,
    /// How many of the runs are levels.
    pub level_count: usize,
    /// The frozen part, while a sweep is under way.
    pub frozen: Option<Frozen>,
    /// The settled run.
    pub partitions: Vec<Partition>,
    /// The numbers of the partitions that have a delta.
    pub deltas: Vec<usize>,
    /// Whether any of the tables says that ranges are gone.
    pub has_ranges: bool,
    /// Which tables of partitions do.
    pub ranged: Ranged,
    /// The value segments that any of the tables points into.
    pub segments: Segments,
    /// The newest external position that a commit carried which the tables hold.
    pub external_position: Option<CarriedPosition>,
    /// Those of them that runs point into, once somebody asked.
    pub fresh_segments: OnceLock<BTreeSet<u64>>,
    /// The tables that could not be opened ([`Table::damage`]).
    pub damaged: Vec<Arc<Table>>,
    /// The same without these, once somebody wanted that.
    pub readable: OnceLock<Arc<Tables>>,
}

/// Why the first of `tables` that could not be opened could not be; `None` if all could.
pub fn damage_of<'a>(tables: impl IntoIterator<Item = &'a Arc<Table>>) -> Option<error::Error> {
    tables.into_iter().find_map(|table| table.damage().cloned())
}

/// Which tables of partitions say that ranges are gone.
#[derive(Debug, Clone, Default)]
pub struct Ranged {
    /// The numbers of the partitions whose deltas do.
    pub deltas: Vec<usize>,
    /// Whether any of the bases does. (None that is written does.)
    pub bases: bool,
}

impl Ranged {
    fn of(partitions: &[Partition]) -> Ranged {
        let has = |table: &Option<Arc<Table>>| {
            table.as_ref().is_some_and(|table| table.properties().ranges > 0)
        };
        Ranged {
            deltas: (0..partitions.len()).filter(|at| has(&partitions[*at].delta)).collect(),
            bases: partitions.iter().any(|partition| has(&partition.base)),
        }
    }
}

impl Tables {
    /// What the runs take that are not frozen, with the values they point at, bytes.
    pub fn fresh_bytes(&self) -> u64 {
        let tables = self.runs.iter().flatten();
        tables.map(|table| table.file_bytes() + table.properties().separated_bytes()).sum()
    }

    /// The tables that `state` tells of, opened by `open`, and the segments they point into, opened
    /// by `open_segment`.
    ///
    /// # Errors
    /// Those of `open` and `open_segment`.
    pub fn of<E>(
        state: &KeyspaceState,
        mut open: impl FnMut(&TableRecord) -> Result<Arc<Table>, E>,
        mut open_segment: impl FnMut(&SegmentUse) -> Result<Arc<Segment>, E>,
    ) -> Result<Tables, E> {
        let mut segments = Segments::default();
        let used = state.tables().flat_map(|record| &record.properties.segments);
        // Of several tables' uses the one that reaches furthest checks the file's length.
        let mut furthest: BTreeMap<u64, &SegmentUse> = BTreeMap::new();
        for used in used {
            let known = furthest.entry(used.segment).or_insert(used);
            if known.end < used.end {
                *known = used;
            }
        }
        for used in furthest.values() {
            segments.insert(open_segment(used)?);
        }
        let mut newest_first = |runs: &[Vec<_>]| -> Result<Vec<Run>, E> {
            runs.iter().rev().map(|run| run.iter().map(&mut open).collect()).collect()
        };
        let mut runs = newest_first(&state.runs)?;
        for level in &state.levels {
            runs.extend(newest_first(std::slice::from_ref(level))?);
        }
        let frozen = match &state.frozen {
            Some(frozen) => {
                let (runs, watermark) = (newest_first(&frozen.runs)?, frozen.watermark.clone());
                Some(Frozen { groups: Group::all(&runs), runs, watermark })
            }
            None => None,
        };
        let mut partitions = Vec::with_capacity(state.partitions.len());
        for record in &state.partitions {
            let base = record.base.as_ref().map(&mut open).transpose()?;
            let delta = record.delta.as_ref().map(&mut open).transpose()?;
            partitions.push(Partition::new(record.lower.clone(), base, delta));
        }
        let level_count = state.levels.len();
        let deltas = (0..partitions.len()).filter(|at| partitions[*at].delta.is_some()).collect();
        let has_ranges = state.tables().any(|record| record.properties.ranges > 0);
        let (groups, damaged) = (Group::all(&runs), Vec::new());
        let mut tables = Tables {
            runs,
            groups,
            level_count,
            frozen,
            ranged: Ranged::of(&partitions),
            partitions,
            deltas,
            has_ranges,
            segments,
            external_position: state.external_position,
            fresh_segments: OnceLock::new(),
            damaged,
            readable: OnceLock::new(),
        };
        tables.damaged = tables.all().filter(|table| table.damage().is_some()).cloned().collect();
        Ok(tables)
    }

    /// Why the first of them, or of their value segments, that could not be opened could not be.
    pub fn damage(&self) -> Option<error::Error> {
        damage_of(&self.damaged).or_else(|| self.segments.damage().cloned())
    }

    /// The same without the tables that could not be opened: made once.
    pub fn readable(&self) -> &Arc<Tables> {
        self.readable.get_or_init(|| Arc::new(self.without(|_| false)))
    }

    /// The same without those, and without others.
    pub fn without(&self, leaves_out: impl Fn(&Table) -> bool) -> Tables {
        let stays = |table: &&Arc<Table>| table.damage().is_none() && !leaves_out(table);
        let run = |run: &Run| run.iter().filter(stays).cloned().collect();
        let runs = |runs: &[Run]| runs.iter().map(run).collect::<Vec<Run>>();
        let frozen = self.frozen.as_ref().map(|frozen| {
            let (runs, watermark) = (runs(&frozen.runs), frozen.watermark.clone());
            Frozen { groups: Group::all(&runs), runs, watermark }
        });
        let of = |table: &Option<Arc<Table>>| table.as_ref().filter(stays).cloned();
        let partitions = self
            .partitions
            .iter()
            .map(|p| Partition::new(p.lower.clone(), of(&p.base), of(&p.delta)));
        let partitions: Vec<_> = partitions.collect();
        let deltas = (0..partitions.len()).filter(|at| partitions[*at].delta.is_some()).collect();
        let runs = runs(&self.runs);
        Tables {
            groups: Group::all(&runs),
            runs,
            level_count: self.level_count,
            frozen,
            ranged: Ranged::of(&partitions),
            partitions,
            deltas,
            has_ranges: self.has_ranges,
            segments: self.segments.clone(),
            external_position: self.external_position,
            fresh_segments: OnceLock::new(),
            damaged: Vec::new(),
            readable: OnceLock::new(),
        }
    }

    /// The same, with the runs in groups as the tables' generations are now.
    pub fn regrouped(&self) -> Tables {
        let mut tables = self.clone();
        tables.groups = Group::all(&tables.runs);
        if let Some(frozen) = &mut tables.frozen {
            frozen.groups = Group::all(&frozen.runs);
        }
        tables.readable = OnceLock::new();
        tables
    }

    /// How many runs a lookup that finds nothing in them would not have had to ask, if all belonged to a generation
    /// that could.
    pub fn spares(&self) -> u64 {
        self.groups.iter().map(|group| group.spares).sum()
    }

    /// Whether a run points into a value segment.
    pub fn is_fresh(&self, segment: u64) -> bool {
        let used = || self.runs.iter().flatten().flat_map(|table| &table.properties().segments);
        let fresh = self.fresh_segments.get_or_init(|| used().map(|used| used.segment).collect());
        fresh.contains(&segment)
    }

    /// The runs above the levels, newest first.
    pub fn fresh(&self) -> &[Run] {
        &self.runs[..self.runs.len() - self.level_count]
    }

    /// The levels, level 1 first.
    pub fn levels(&self) -> &[Run] {
        &self.runs[self.runs.len() - self.level_count..]
    }

    /// The partition that holds `key`'s place.
    pub fn partition(&self, key: &[u8]) -> usize {
        partition_of(&self.partitions, key)
    }

    /// The end of a partition: the next one's first key.
    pub fn upper(&self, partition: usize) -> Option<&[u8]> {
        self.partitions.get(partition + 1).map(|p| p.lower.as_slice())
    }

    /// The tables of the settled run, each once.
    pub fn settled(&self) -> impl Iterator<Item = &Arc<Table>> {
        each_once(self.partitions.iter().flat_map(Partition::tables))
    }

    /// The generations that tables belong to, each once.
    pub fn generations(&self) -> Vec<&Arc<Generation>> {
        let mut found: Vec<&Arc<Generation>> = Vec::new();
        for generation in self.all().filter_map(|table| table.generation()) {
            if !found.iter().any(|other| Arc::ptr_eq(other, generation)) {
                found.push(generation);
            }
        }
        found
    }

    /// All tables, each once.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Table>> {
        let frozen = self.frozen.iter().flat_map(|f| &f.runs);
        let runs = self.runs.iter().chain(frozen).flatten();
        runs.chain(self.settled())
    }
}

/// A keyspace as a View shows it.
#[derive(Debug, Clone)]
pub struct KeyspaceView {
    /// Its number.
    pub id: KeyspaceId,
    /// Its name.
    pub name: Arc<str>,
    /// Its options.
    pub options: Arc<KeyspaceOptions>,
    /// The memtable that takes writes.
    pub active: Arc<Memtable>,
    /// Memtables to be flushed, newest first.
    pub sealed: Vec<Sealed>,
    /// Its tables.
    pub tables: Arc<Tables>,
    /// How often entries were put into its tables past the log, since the database was opened.
    pub ingests: u64,
    /// How far walks over it go.
    pub lengths: Arc<Lengths>,
    /// What reads of it have paid for what is not settled, in requests.
    pub rent: Arc<Rent>,
    /// What they have paid for one run instead of several, in shares of a request ([`crate::lsm::paying`]).
    pub merging: Arc<Rent>,
    /// What lookups in it have paid for a filter over its runs, in runs asked in vain.
    pub asked_in_vain: Arc<Rent>,
}

impl KeyspaceView {
    /// Its memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.sealed.iter().map(|s| &s.memtable))
    }

    /// Why the first of its tables and value segments that could not be opened could not be; `None` if all could.
    pub fn damage(&self) -> Option<error::Error> {
        self.tables
            .damage()
            .or_else(|| self.memtables().find_map(|memtable| memtable.streamed.damage()))
    }

    /// What `read` makes of the value segment of that number.
    ///
    /// # Errors
    /// As [`KeyspaceView::segment`], and those of `read`.
    pub fn in_segment<T>(
        &self,
        id: u64,
        read: impl FnOnce(&Segment) -> error::Result<T>,
    ) -> error::Result<T> {
        match self.tables.segments.get(id) {
            Some(segment) => read(segment),
            None => read(&*self.segment(id)?),
        }
    }

    /// The value segment of that number, which one of its tables or memtables points into.
    ///
    /// # Errors
    /// `Corruption` if none is known to.
    pub fn segment(&self, id: u64) -> error::Result<Arc<Segment>> {
        if let Some(segment) = self.tables.segments.get(id) {
            return Ok(segment.clone());
        }
        let streamed = self.memtables().find_map(|memtable| memtable.streamed.get(id));
        streamed.ok_or_else(|| value_log::unnamed(id))
    }

    /// The external position of the newest commit that carried one, of those up to what is `visible`, which
    /// is asked for each memtable: what is found is no older than what was the newest when the View was taken.
    pub fn external_position(
        &self,
        visible: impl Fn() -> SequenceNumber,
    ) -> Option<CarriedPosition> {
        let in_memory = self.memtables().find_map(|m| m.positions.newest(&visible));
        in_memory.or(self.tables.external_position)
    }

    /// Whether it has tables in runs, levels too, or in a frozen part.
    pub fn is_unsettled(&self) -> bool {
        self.tables.frozen.is_some() || self.tables.runs.iter().any(|run| !run.is_empty())
    }

    /// The smallest sequence number that only the log and memtables hold.
    pub fn oldest_unflushed(&self) -> Option<SequenceNumber> {
        let memtables = self.sealed.iter().map(|s| &s.memtable).chain([&self.active]);
        memtables.map(|m| m.first_sequence()).filter(|first| *first > 0).min()
    }
}

/// The whole database at one time.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Its keyspaces.
    pub keyspaces: Keyspaces,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum::mix;

    /// Keys that begin with the same eight bytes have the same number, as have short ones that end in zeros.
    #[test]
    fn a_key_lies_in_the_last_partition_that_begins_by_it() {
        let heads: [&[u8]; 4] =
            [b"", b"/usr/lib", b"/usr/share/doc", b"\xff\xff\xff\xff\xff\xff\xff\xff"];
        let key = |random: u64| {
            let mut key = heads[random as usize % 4].to_vec();
            key.extend_from_slice(&[[0, 1], [0, 255]][(random >> 2) as usize % 2]);
            key.truncate(key.len() - (random >> 3) as usize % 2);
            key.push((random >> 4) as u8 % 8);
            key
        };
        for count in 0..40u64 {
            let lowers: BTreeSet<Vec<u8>> =
                (1..count).map(|at| key(mix(count * 64 + at))).collect();
            let lowers = (count > 0).then(Vec::new).into_iter().chain(lowers);
            let partitions: Vec<_> =
                lowers.map(|lower| Partition::new(lower, None, None)).collect();
            let others = (0..500).map(|at| key(mix(at << 32)));
            let sought = others.chain(partitions.iter().map(|p| p.lower.clone()));
            for key in sought.chain([vec![], vec![0], vec![255; 9]]) {
                let begun = partitions.iter().filter(|p| p.lower <= key).count();
                assert_eq!(
                    partition_of(&partitions, &key),
                    begun.saturating_sub(1),
                    "{count} {key:?}"
                );
            }
        }
    }
}
