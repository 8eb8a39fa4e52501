//! The keyspaces of a View. There may be very many, and most idle: a change copies the group that it
//! touches and shares the others, and what jobs look for is known of a group that did not change.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::KeyspaceView;
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

#[derive(Debug, Clone, Default)]
struct Group {
    all: BTreeMap<KeyspaceId, Arc<KeyspaceView>>,
    /// Found out when it is asked for; not any more once a keyspace of it may have changed.
    known: OnceLock<Known>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    sealed: Vec<KeyspaceId>,
    unsettled: Vec<KeyspaceId>,
    wasteful: Vec<KeyspaceId>,
    table_bytes: u64,
    partition_bytes: u64,
}

impl Group {
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
                } else if is_wasteful(keyspace) {
                    known.wasteful.push(*id);
                }
                let bytes =
                    |table: &Arc<Table>| table.file_bytes() + table.properties().separated_bytes();
                known.table_bytes += tables.all().map(bytes).sum::<u64>();
                known.partition_bytes = known.partition_bytes.max(keyspace.options.partition());
            }
            known
        })
    }
}

/// Whether more is dead in its value segments than may be for what lives there, and so much that it is worth a sweep.
fn is_wasteful(keyspace: &KeyspaceView) -> bool {
    let tables = &keyspace.tables;
    let values: u64 = tables.segments.iter().map(|segment| segment.value_bytes()).sum();
    let pointed: u64 = tables.all().map(|table| table.properties().separated_bytes()).sum();
    let (dead, options) = (values.saturating_sub(pointed), &keyspace.options);
    dead >= options.min_conversion()
        && u128::from(dead) * 100 > u128::from(pointed) * u128::from(options.over_provision())
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
        group.known = OnceLock::new();
        group.all.get_mut(id)
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
        group.known = OnceLock::new();
        group.all.insert(id, keyspace);
    }

    /// Removes a keyspace.
    pub fn remove(&mut self, id: &KeyspaceId) -> Option<Arc<KeyspaceView>> {
        let group = Arc::make_mut(self.groups.get_mut(&(id / GROUP))?);
        group.known = OnceLock::new();
        let keyspace = group.all.remove(id)?;
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

    /// Those that have tables in runs, levels too, or in a frozen part.
    pub fn unsettled(&self) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        self.named(|known| &known.unsettled)
    }

    /// Those that are settled, and in whose value segments more is dead than may be.
    pub fn wasteful(&self) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        self.named(|known| &known.wasteful)
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
