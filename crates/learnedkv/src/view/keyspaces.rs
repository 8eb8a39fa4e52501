//! The keyspaces of a View. There may be very many, and most idle: a change copies the group that it
//! touches and shares the others, and what jobs look for is known of a group that did not change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{KeyspaceView, Sealed};
use crate::format::entry::KeyspaceId;
use crate::options::{KeyspaceOptions, Store};
use crate::sstable::reader::Table;

/// Keyspaces whose numbers are alike but for the rest by this are a group.
const GROUP: u64 = 64;
/// Names are kept in so many lists.
const LISTS: usize = 64;

/// Keyspaces by number, and by name.
#[derive(Debug, Clone)]
pub struct Keyspaces {
    groups: BTreeMap<u64, Arc<Group>>,
    names: Vec<Arc<BTreeMap<Arc<str>, KeyspaceId>>>,
}

/// What a job asks of each keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Whether something of the tiered store may be to be settled or merged.
    Settles,
    /// Whether that may press writers.
    Presses,
    /// Whether something of levels may be to be compacted.
    Compacts,
    /// Whether that may press writers.
    CompactsPressed,
}

/// So many questions there are.
const QUESTIONS: usize = 4;

#[derive(Debug, Default)]
struct Group {
    all: BTreeMap<KeyspaceId, Arc<KeyspaceView>>,
    /// Found out when it is asked for; not any more once a keyspace of it may have changed.
    known: OnceLock<Known>,
    /// By [`Question`], likewise.
    answers: [Mutex<Option<Answer>>; QUESTIONS],
}

/// The keyspaces of a group of which something is so.
#[derive(Debug)]
struct Answer {
    ids: Arc<[KeyspaceId]>,
    /// What else it went by.
    by: u64,
}

impl Clone for Group {
    /// To be changed: nothing is known of it.
    fn clone(&self) -> Group {
        Group { all: self.all.clone(), ..Group::default() }
    }
}

#[derive(Debug, Clone, Default)]
struct Known {
    /// Those that have memtables to be flushed, that with the oldest records first.
    sealed: Vec<KeyspaceId>,
    /// The most that one of them has.
    most_sealed: usize,
    unsettled: Vec<KeyspaceId>,
    /// What of the tiered store is not settled, bytes.
    fresh_bytes: u64,
    table_bytes: u64,
    partition_bytes: u64,
}

impl Group {
    /// Its keyspaces, of which some are about to change.
    fn changing(&mut self) -> &mut BTreeMap<KeyspaceId, Arc<KeyspaceView>> {
        self.known = OnceLock::new();
        self.answers = Default::default();
        &mut self.all
    }

    fn known(&self) -> &Known {
        self.known.get_or_init(|| {
            let mut known = Known::default();
            for (id, keyspace) in &self.all {
                if !keyspace.sealed.is_empty() {
                    known.sealed.push(*id);
                }
                let tables = &keyspace.tables;
                if tables.frozen.is_some() || tables.runs.iter().any(|run| !run.is_empty()) {
                    known.unsettled.push(*id);
                    if keyspace.options.chosen_store() == Store::Tiered {
                        known.fresh_bytes += tables.fresh_bytes();
                    }
                }
                let bytes =
                    |table: &Arc<Table>| table.file_bytes() + table.properties().separated_bytes();
                known.table_bytes += tables.all().map(bytes).sum::<u64>();
                known.partition_bytes = known.partition_bytes.max(keyspace.options.partition());
                known.most_sealed = known.most_sealed.max(keyspace.sealed.len());
            }
            known.sealed.sort_by_cached_key(|id| {
                let keyspace = self.all.get(id);
                keyspace.and_then(|keyspace| keyspace.sealed.last()).map(Sealed::first_sequence)
            });
            known
        })
    }
}

impl Default for Keyspaces {
    fn default() -> Keyspaces {
        Keyspaces { groups: BTreeMap::new(), names: vec![Arc::default(); LISTS] }
    }
}

/// The list of a name: by FNV-1a.
fn list(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash % LISTS as u64) as usize
}

impl Keyspaces {
    /// The keyspace of that number.
    pub fn get(&self, id: &KeyspaceId) -> Option<&Arc<KeyspaceView>> {
        self.groups.get(&(id / GROUP))?.all.get(id)
    }

    /// Whether there is one.
    pub fn contains_key(&self, id: &KeyspaceId) -> bool {
        self.get(id).is_some()
    }

    /// The same, to be changed; its name and number stay.
    pub fn get_mut(&mut self, id: &KeyspaceId) -> Option<&mut Arc<KeyspaceView>> {
        let group = Arc::make_mut(self.groups.get_mut(&(id / GROUP))?);
        group.changing().get_mut(id)
    }

    /// The keyspace of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<KeyspaceView>> {
        self.get(self.names[list(name)].get(name)?)
    }

    /// Such options: those of its newest keyspace, if they are the same, as they are of most where there are many.
    pub fn sharing(&self, options: KeyspaceOptions) -> Arc<KeyspaceOptions> {
        let newest =
            self.groups.values().next_back().and_then(|group| group.all.values().next_back());
        match newest {
            Some(newest) if *newest.options == options => newest.options.clone(),
            _ => Arc::new(options),
        }
    }

    /// Adds a keyspace, or puts it in the place of what has its number.
    pub fn insert(&mut self, id: KeyspaceId, keyspace: Arc<KeyspaceView>) {
        let names = Arc::make_mut(&mut self.names[list(&keyspace.name)]);
        names.insert(keyspace.name.clone(), id);
        let group = Arc::make_mut(self.groups.entry(id / GROUP).or_default());
        group.changing().insert(id, keyspace);
    }

    /// Removes a keyspace.
    pub fn remove(&mut self, id: &KeyspaceId) -> Option<Arc<KeyspaceView>> {
        let group = Arc::make_mut(self.groups.get_mut(&(id / GROUP))?);
        let keyspace = group.changing().remove(id)?;
        Arc::make_mut(&mut self.names[list(&keyspace.name)]).remove(&keyspace.name);
        if group.all.is_empty() {
            self.groups.remove(&(id / GROUP));
        }
        Some(keyspace)
    }

    /// All of them, by number.
    pub fn values(&self) -> impl Iterator<Item = &Arc<KeyspaceView>> + Clone {
        self.groups.values().flat_map(|group| group.all.values())
    }

    /// Those that are not the same in `other`; groups that both share are passed over.
    pub fn unlike<'a>(
        &'a self,
        other: &'a Keyspaces,
    ) -> impl Iterator<Item = &'a Arc<KeyspaceView>> {
        let groups = self.groups.iter().filter(|(number, group)| {
            other.groups.get(number).is_none_or(|there| !Arc::ptr_eq(there, group))
        });
        let is_other = |keyspace: &&Arc<KeyspaceView>| {
            other.get(&keyspace.id).is_none_or(|there| !Arc::ptr_eq(there, keyspace))
        };
        groups.flat_map(|(_, group)| group.all.values()).filter(is_other)
    }

    fn named(
        &self,
        of: fn(&Known) -> &Vec<KeyspaceId>,
    ) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        let groups = self.groups.values();
        groups.flat_map(move |group| of(group.known()).iter().filter_map(|id| group.all.get(id)))
    }

    /// Those that have memtables to be flushed.
    pub fn with_sealed(&self) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        self.named(|known| &known.sealed)
    }

    /// Of those that `may_be` the one of which the oldest of these memtables has the oldest records, and that memtable.
    pub fn oldest_sealed(
        &self,
        may_be: impl Fn(&KeyspaceView, &Sealed) -> bool,
    ) -> Option<(&Arc<KeyspaceView>, &Sealed)> {
        let oldest = self.groups.values().filter_map(|group| {
            let all = group.known().sealed.iter().filter_map(|id| group.all.get(id));
            let mut all = all.filter_map(|keyspace| Some((keyspace, keyspace.sealed.last()?)));
            all.find(|(keyspace, sealed)| may_be(keyspace, sealed))
        });
        oldest.min_by_key(|(_, sealed)| sealed.first_sequence())
    }

    /// The most memtables that one of them has to be flushed.
    pub fn most_sealed(&self) -> usize {
        self.groups.values().map(|group| group.known().most_sealed).max().unwrap_or(0)
    }

    /// Those that have tables in runs, levels too, or in a frozen part.
    pub fn unsettled(&self) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        self.named(|known| &known.unsettled)
    }

    /// Those of which `is_so`, which goes by their options, memtables that wait and tables, and by `by`. The answer to a `question` is kept
    /// for as long as these stay: it is to be the same function each time.
    pub fn answering(
        &self,
        question: Question,
        by: u64,
        is_so: impl Fn(&KeyspaceView) -> bool,
    ) -> Vec<&Arc<KeyspaceView>> {
        let mut found = Vec::new();
        for group in self.groups.values() {
            let answer = &group.answers[question as usize];
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            if answer.as_ref().is_none_or(|answer| answer.by != by) {
                let ids = group.all.iter().filter(|(_, keyspace)| is_so(keyspace));
                *answer = Some(Answer { ids: ids.map(|(id, _)| *id).collect(), by });
            }
            let ids = answer.as_ref().map(|answer| answer.ids.clone());
            drop(answer);
            let ids = ids.iter().flat_map(|ids| ids.iter());
            found.extend(ids.filter_map(|id| group.all.get(id)));
        }
        found
    }

    /// What of the tiered store is not settled, bytes.
    pub fn fresh_bytes(&self) -> u64 {
        self.groups.values().map(|group| group.known().fresh_bytes).sum()
    }

    /// Those of `store` that are not settled.
    pub fn unsettled_of(&self, store: Store) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        self.unsettled().filter(move |keyspace| keyspace.options.chosen_store() == store)
    }

    /// What all tables take, with the values they point at, bytes.
    pub fn table_bytes(&self) -> u64 {
        self.groups.values().map(|group| group.known().table_bytes).sum()
    }

    /// The largest size of partitions, bytes.
    pub fn partition_bytes(&self) -> u64 {
        self.groups.values().map(|group| group.known().partition_bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::disk::sim::SimDisk;
    use crate::tiered::testing::Without;
    use crate::{Database, KeyspaceOptions};

    /// Over groups, by what is oldest, of those that may be.
    #[test]
    fn the_oldest_sealed_memtable_is_found() {
        let executor = Without(crate::executor::SeededExecutor::new(1), &["flush"]);
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = db.executor(Arc::new(executor)).open().unwrap();
        let make = |n: u32| db.keyspace(&format!("{n}"), KeyspaceOptions::default()).unwrap();
        let keyspaces: Vec<_> = (0..200).map(make).collect();
        let in_turn: Vec<_> = (0..200usize).map(|n| n * 77 % 200).collect();
        for n in &in_turn {
            keyspaces[*n].insert("key", "value").unwrap();
        }
        let view = || db.engine().view();
        assert!(view().keyspaces.oldest_sealed(|_, _| true).is_none());
        assert_eq!(view().keyspaces.most_sealed(), 0);
        // The last first: the oldest is another.
        for n in in_turn.iter().rev() {
            db.engine().rotate(keyspaces[*n].id()).unwrap();
        }
        assert_eq!(view().keyspaces.most_sealed(), 1);
        let mut found = Vec::new();
        for _ in 0..200 {
            let view = view();
            let may_be = |id| !found.contains(&id);
            let oldest = view.keyspaces.oldest_sealed(|keyspace, _| may_be(keyspace.id));
            found.push(oldest.unwrap().0.id);
        }
        let expected: Vec<_> = in_turn.iter().map(|n| keyspaces[*n].id()).collect();
        assert_eq!(found, expected);
        keyspaces[7].insert("key", "other").unwrap();
        db.engine().rotate(keyspaces[7].id()).unwrap();
        assert_eq!(view().keyspaces.most_sealed(), 2);
        let view = view();
        let (keyspace, sealed) =
            view.keyspaces.oldest_sealed(|k, _| k.id == keyspaces[7].id()).unwrap();
        assert!(Arc::ptr_eq(&sealed.memtable, &keyspace.sealed[1].memtable), "its oldest");
    }
}
