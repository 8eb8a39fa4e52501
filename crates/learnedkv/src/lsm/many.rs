//! Looking many keys up at once: level by level, newest first, and at each level the keys that no
//! newer one answered, by one request to the disk; or all levels at once, where that is asked for.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
use crate::format::entry::SequenceNumber;
use crate::format::value::ValuePointer;
use crate::slice::{Lookup, Slice};
use crate::sstable::reader::many::{self, Probe};
use crate::sstable::reader::{Caching, Table};
use crate::sstable::sought::{Asking, Reads, Sought};
use crate::value_log::{self, LookedUp};
use crate::view::{Group, KeyspaceView, Run, Tables};

use super::paying::{self, Apart, Payer};
use super::read;

/// So many keys are looked for in all tables at once: each answer holds a block.
const KEYS_AT_ONCE: usize = 256;

/// The values of `keys`, which may come in any order and more than once, in that order.
///
/// # Errors
/// As [`read::get`], of one of the keys; then there are no answers.
pub fn get(
    engine: &Arc<Engine>,
    view: &KeyspaceView,
    keys: &[impl AsRef<[u8]>],
    visible: SequenceNumber,
    asking: Asking,
) -> Result<Vec<Option<Slice>>> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_unstable_by_key(|&i| keys[i].as_ref());
    // Each key once, in key order: neighbours share blocks.
    let mut sought: Vec<(Sought<'_>, Lookup)> = Vec::with_capacity(keys.len());
    let mut place = vec![0; keys.len()];
    for i in order {
        let key = keys[i].as_ref();
        if sought.last().is_none_or(|(last, _)| last.key() != key) {
            sought.push((Sought::new(key, asking.caching), Lookup::Absent));
        }
        place[i] = sought.len() - 1;
    }
    for (sought, found) in &mut sought {
        *found = read::find_in_memtables(view, sought.hashed(), visible);
    }
    let looked_up = find_in_tables(&view.tables, &mut sought, asking);
    sought.iter().for_each(|(sought, found)| sought.end(looked_up.as_ref().map(|()| found)));
    let loaded = looked_up.and_then(|()| load(engine, view, &mut sought));
    if let Ok(Some((payer, of_moving))) = &loaded {
        // Of all that are found each would have taken one.
        let requests: u64 = sought.iter().map(|(sought, _)| sought.reads.requests()).sum();
        let found = sought.iter().filter(|(_, found)| matches!(found, Lookup::Value(_))).count();
        payer.pay(requests.saturating_sub(found as u64).min(*of_moving));
    }
    for (sought, _) in &sought {
        read::account(engine, view, sought);
    }
    loaded.map_err(|error| read::met_in(view, error))?;
    let value = |i: usize| match &sought[i].1 {
        Lookup::Value(value) => Some(value.clone()),
        Lookup::Pointer(_) | Lookup::Removed | Lookup::Absent => None,
    };
    Ok(place.into_iter().map(value).collect())
}

/// Looks up, level by level, the keys of which nothing was found yet.
fn find_in_tables(
    tables: &Tables,
    sought: &mut [(Sought<'_>, Lookup)],
    Asking { caching, at_once }: Asking,
) -> Result<()> {
    if at_once {
        return sought.chunks_mut(KEYS_AT_ONCE).try_for_each(|some| {
            let open = some.iter_mut().filter(|(_, found)| *found == Lookup::Absent);
            let (open, places): (Vec<_>, Vec<_>) = open.map(|(key, found)| (&*key, found)).unzip();
            let Ok(found) = find_at_once(tables, &open, caching) else {
                // Perhaps what failed is older than what holds the key.
                some.iter().for_each(|(sought, _)| sought.answer_fresh());
                return find_in_tables(tables, some, Asking { caching, at_once: false });
            };
            places.into_iter().zip(found).for_each(|(place, found)| *place = found);
            Ok(())
        });
    }
    for level in levels(tables) {
        let open = sought.iter_mut().filter(|(_, found)| *found == Lookup::Absent);
        // They have passed all runs by now.
        let spares = if matches!(level, Level::Deltas(_)) { tables.spares() } else { 0 };
        let open = open.inspect(|(sought, _)| sought.pass(spares));
        let (probes, open): (Vec<_>, Vec<_>) = open
            .filter_map(|(sought, found)| {
                Some((Probe { table: level.table(sought)?, sought }, found))
            })
            .unzip();
        let each = || probes.iter().map(|probe| probe.table.get(probe.sought)).collect();
        let looked_up: Vec<_> = many::get_many(&probes, caching).or_else(|error| {
            // Each is asked alone where something is lost: of what is not there a filter may say so.
            let is_lost = error.is_corruption() || !tables.damaged.is_empty();
            if is_lost { each() } else { Err(error) }
        })?;
        for (found, looked_up) in open.into_iter().zip(looked_up) {
            *found = looked_up;
        }
    }
    Ok(())
}

/// What tables say of each of `sought`: all that may hold a key are asked at once, and the newest that holds
/// it answers.
///
/// # Errors
/// As [`read::get`], of any key in any table, also where a newer one answers.
pub(super) fn find_at_once(
    tables: &Tables,
    sought: &[&Sought<'_>],
    caching: Caching,
) -> Result<Vec<Lookup>> {
    let mut asked = Vec::new();
    for level in levels(tables) {
        let tables = sought.iter().enumerate().filter_map(|(key, sought)| {
            let table = level.table(sought)?;
            Some((key, table, sought.again(), level.is_settled()))
        });
        asked.extend(tables);
    }
    let probes = asked.iter().map(|(_, table, sought, _)| Probe { table, sought });
    let answers = many::get_many(&probes.collect::<Vec<_>>(), caching);
    asked.iter().for_each(|(key, _, own, _)| sought[*key].absorb(own));
    let mut found = vec![Lookup::Absent; sought.len()];
    for ((key, .., is_settled), answer) in asked.iter().zip(answers?) {
        if found[*key] == Lookup::Absent {
            if answer != Lookup::Absent && !is_settled {
                sought[*key].answer_fresh();
            }
            found[*key] = answer;
        }
    }
    Ok(found)
}

/// Puts the values that are kept apart in the place of their pointers. If that took requests: at most so many of them were for
/// values that will stand in blocks once they are settled, and who pays for those.
fn load<'a>(
    engine: &'a Engine,
    view: &KeyspaceView,
    sought: &mut [(Sought<'_>, Lookup)],
) -> Result<Option<(Payer<'a>, u64)>> {
    let mut wanted = Vec::new();
    let mut places = Vec::new();
    // The requests are theirs together: one of them counts them.
    let (nobody, mut reads) = (Reads::default(), None);
    for (sought, found) in sought {
        if let Lookup::Pointer(pointer) = found {
            wanted.push((sought.key(), ValuePointer::decode(pointer)?));
            sought.load_apart();
            places.push(found);
            reads.get_or_insert(&sought.reads);
        }
    }
    let reads = reads.unwrap_or(&nobody);
    let before = reads.requests();
    let LookedUp { values, read } = value_log::look_up_all(&wanted, |id| view.segment(id), reads)?;
    for (found, value) in places.into_iter().zip(values) {
        *found = Lookup::Value(value);
    }
    let requests = reads.requests() - before;
    if requests == 0 {
        paying::owe_for_values(engine, view, Apart::of(wanted.iter().map(|(_, pointer)| *pointer)));
    }
    let payer = if requests > 0 { Payer::of(engine, view) } else { None };
    Ok(payer.map(|payer| {
        let moving = read.iter().filter(|at| payer.moves(&wanted[**at].1)).count();
        (payer, requests.min(moving as u64))
    }))
}

/// Tables that do not overlap.
enum Level<'a> {
    /// A run of this group, of which only keys from here on count.
    Run(&'a Group, &'a Run, &'a [u8]),
    Deltas(&'a Tables),
    Bases(&'a Tables),
}

impl<'a> Level<'a> {
    fn is_settled(&self) -> bool {
        matches!(self, Level::Deltas(_) | Level::Bases(_))
    }

    /// The table that may hold the key.
    fn table(&self, sought: &Sought<'_>) -> Option<&'a Table> {
        let key = sought.key();
        let partition = |tables: &'a Tables| tables.partitions.get(tables.partition(key));
        let table = match self {
            Level::Run(_, _, from) if key < *from => None,
            Level::Run(group, ..) if group.refuses(sought.hashed()) => {
                sought.stop(1);
                None
            }
            Level::Run(_, run, _) => read::table_of(run, key),
            Level::Deltas(tables) => partition(tables)?.delta.as_ref(),
            Level::Bases(tables) => partition(tables)?.base.as_ref(),
        };
        if self.is_settled() && table.is_some() {
            sought.reach_settled();
        }
        table.map(Arc::as_ref)
    }
}

/// Runs, of which only keys from `from` on count.
fn of_runs<'a>(
    groups: &'a [Group],
    runs: &'a [Run],
    from: &'a [u8],
) -> impl Iterator<Item = Level<'a>> {
    groups.iter().flat_map(move |group| {
        runs[group.runs.clone()].iter().map(move |run| Level::Run(group, run, from))
    })
}

/// Newest first.
fn levels(tables: &Tables) -> impl Iterator<Item = Level<'_>> {
    let runs = of_runs(&tables.groups, &tables.runs, &[]);
    let frozen = tables.frozen.iter();
    let frozen = frozen.flat_map(|f| of_runs(&f.groups, &f.runs, &f.watermark));
    runs.chain(frozen).chain([Level::Deltas(tables), Level::Bases(tables)])
}
