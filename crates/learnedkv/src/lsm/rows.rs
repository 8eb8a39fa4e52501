//! The tables of a View as rows that a walk goes along. A keyspace may have thousands of them, and a short
//! walk meets one or two: nothing here looks at the others.

use std::sync::Arc;

use super::read::{base, clip, delta};
use crate::cursor::{Cover, Seek, Source};
use crate::sstable::cursor::{self, Clipped, Row, RunCursor, Walk, Wanted};
use crate::sstable::reader::Table;
use crate::view::{Partition, Tables};

/// Which tables of a keyspace a row is of.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// One of the runs, by its number.
    Run(usize),
    /// One of the frozen runs, from the watermark on.
    Frozen(usize),
    /// The partitions' deltas.
    Deltas,
    /// The partitions' bases.
    Bases,
}

/// The rows of a keyspace that have tables, newest first.
fn of(tables: &Tables) -> Vec<Place> {
    let runs = (0..tables.runs.len()).filter(|at| !tables.runs[*at].is_empty()).map(Place::Run);
    let frozen = tables.frozen.iter().flat_map(|f| (0..f.runs.len()).map(Place::Frozen));
    let deltas = (!tables.deltas.is_empty()).then_some(Place::Deltas);
    runs.chain(frozen).chain(deltas).chain([Place::Bases]).collect()
}

/// The rows of a keyspace, newest first, to be walked and merged. What is `wanted` is said of all together: most of it comes from
/// the row that has most entries, which are the bases, or the oldest run where nothing is settled; of deltas as many as they have of
/// their partitions' entries, of the others a few.
/// What they hold first where the walk is sought is read together, if that is known beforehand.
pub fn sources(
    tables: &Arc<Tables>,
    walk: Walk,
    wanted: &Wanted,
    to: Option<Seek<'_>>,
) -> Vec<Source> {
    let places = of(tables);
    // Before anything settles there is one partition, without a base.
    let first = tables.partitions.first();
    let is_settled = tables.partitions.len() > 1 || first.is_some_and(|p| p.base.is_some());
    let largest = places.len().saturating_sub(if is_settled { 1 } else { 2 });
    let of_row = |at, place| match place {
        Place::Deltas => wanted.clone(),
        _ if at == largest => wanted.clone(),
        _ => wanted.few(),
    };
    let rows = places.into_iter().enumerate();
    let mut rows: Vec<_> =
        rows.map(|(at, place)| row(tables, place, walk, of_row(at, place))).collect();
    let is_whole = rows.iter().all(|(_, cover)| cover.is_none());
    if let (Some(to), Some(table), true) = (to, tables.all().next(), is_whole && rows.len() > 1)
        && table.context().has_missed()
    {
        cursor::read_first(table.context(), rows.iter_mut().map(|(cursor, _)| cursor), to);
    }
    rows.into_iter().map(|(cursor, cover)| Source::new(Box::new(cursor), cover)).collect()
}

/// A row of `tables`, of which this will be wanted, and what it says is gone from older data.
fn row(
    tables: &Arc<Tables>,
    place: Place,
    walk: Walk,
    wanted: Wanted,
) -> (RunCursor, Option<Box<dyn Cover>>) {
    let shared = tables.clone();
    let row: Box<dyn Row> = match place {
        Place::Run(_) | Place::Frozen(_) => Box::new(RunRow { tables: shared, place }),
        Place::Deltas => Box::new(DeltaRow(shared)),
        Place::Bases => Box::new(BaseRow(shared)),
    };
    let ranged = match place {
        _ if !tables.has_ranges => false,
        Place::Deltas => {
            // Some may stay for long. Only these are listed: where they lie the partitions say.
            let ranged = tables.ranged.deltas.iter();
            let ranged: Vec<_> = ranged.filter_map(|at| of_partition(tables, *at, delta)).collect();
            return (RunCursor::along(row, walk).expecting(wanted), cursor::cover(ranged.iter()));
        }
        Place::Bases => tables.ranged.bases,
        Place::Run(_) | Place::Frozen(_) => {
            run(tables, place).0.iter().any(|table| table.properties().ranges > 0)
        }
    };
    if !ranged {
        return (RunCursor::along(row, walk).expecting(wanted), None);
    }
    // Seldom, and for a while: all are listed, and those without entries, where no run can be searched, left out.
    let tables: Vec<_> = (0..row.count()).filter_map(|at| row.clipped(at)).collect();
    let cover = cursor::cover(tables.iter());
    (RunCursor::new(tables, walk).expecting(wanted), cover)
}

/// The tables of a run, and the first key that counts.
fn run(tables: &Tables, place: Place) -> (&[Arc<Table>], &[u8]) {
    match (place, &tables.frozen) {
        (Place::Run(at), _) => (&tables.runs[at], &[]),
        (Place::Frozen(at), Some(frozen)) => (&frozen.runs[at], &frozen.watermark),
        _ => (&[], &[]),
    }
}

/// A run; each of its tables has entries.
struct RunRow {
    tables: Arc<Tables>,
    place: Place,
}

impl RunRow {
    /// Its tables, and the first key that counts.
    fn run(&self) -> (&[Arc<Table>], &[u8]) {
        run(&self.tables, self.place)
    }
}

impl Row for RunRow {
    fn count(&self) -> usize {
        self.run().0.len()
    }

    fn clipped(&self, at: usize) -> Option<Clipped> {
        let (run, lower) = self.run();
        Some(clip(run.get(at)?, lower, None))
    }

    fn at_or_after(&self, key: &[u8]) -> usize {
        let (run, lower) = self.run();
        let key = key.max(lower);
        run.partition_point(|table| table.properties().largest.as_slice() < key)
    }

    fn before(&self, key: &[u8]) -> usize {
        let (run, lower) = self.run();
        if key <= lower {
            return 0;
        }
        run.partition_point(|table| table.properties().smallest.as_slice() < key)
    }
}

fn of_partition(
    tables: &Tables,
    at: usize,
    choose: fn(&Partition) -> Option<&Arc<Table>>,
) -> Option<Clipped> {
    let partition = tables.partitions.get(at)?;
    Some(clip(choose(partition)?, &partition.lower, tables.upper(at)))
}

/// The bases: a place for each partition.
struct BaseRow(Arc<Tables>);

impl Row for BaseRow {
    fn count(&self) -> usize {
        self.0.partitions.len()
    }

    fn clipped(&self, at: usize) -> Option<Clipped> {
        of_partition(&self.0, at, base)
    }

    fn at_or_after(&self, key: &[u8]) -> usize {
        self.0.partition(key)
    }

    fn before(&self, key: &[u8]) -> usize {
        self.0.partitions.partition_point(|p| p.lower.as_slice() < key)
    }
}

/// The deltas: a place for each partition that has one.
struct DeltaRow(Arc<Tables>);

impl Row for DeltaRow {
    fn count(&self) -> usize {
        self.0.deltas.len()
    }

    fn clipped(&self, at: usize) -> Option<Clipped> {
        of_partition(&self.0, *self.0.deltas.get(at)?, delta)
    }

    fn at_or_after(&self, key: &[u8]) -> usize {
        let first = self.0.partition(key);
        self.0.deltas.partition_point(|at| *at < first)
    }

    fn before(&self, key: &[u8]) -> usize {
        self.0.deltas.partition_point(|at| self.0.partitions[*at].lower.as_slice() < key)
    }

    /// As if a delta's keys were all in the base, which takes as many of them as there can be.
    fn share(&self, at: usize, entries: usize) -> usize {
        let partition = self.0.deltas.get(at).and_then(|at| self.0.partitions.get(*at));
        let of = |table: Option<&Arc<Table>>| table.map_or(0, |table| table.properties().entries);
        let (delta, base) =
            partition.map_or((0, 0), |p| (of(p.delta.as_ref()), of(p.base.as_ref())));
        if base <= delta {
            return entries;
        }
        (entries as u64 * delta).div_ceil(base) as usize
    }
}
