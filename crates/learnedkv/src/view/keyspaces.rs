//! The keyspaces of a View. There may be very many, and most idle: a change copies the part that it touches and shares the others
//! ([`super::part`]).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::part::{Asked, FAN, Known, Part, Question};
use super::{KeyspaceView, Sealed};
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::options::KeyspaceOptions;

type Leaf = Part<Arc<KeyspaceView>>;
type Branch = Part<Arc<Leaf>>;
/// Those of a name, by the hash of it.
type Names = [Arc<BTreeMap<Arc<str>, KeyspaceId>>; LISTS];

/// Names are kept in so many lists.
const LISTS: usize = 64;

/// Keyspaces by number, and by name.
#[derive(Debug, Clone)]
pub struct Keyspaces {
    branches: BTreeMap<u64, Arc<Branch>>,
    names: Arc<Names>,
}

impl Default for Keyspaces {
    fn default() -> Keyspaces {
        let names = Arc::new(std::array::from_fn(|_| Arc::default()));
        Keyspaces { branches: BTreeMap::new(), names }
    }
}

/// The list of a name: by FNV-1a.
fn list(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash % LISTS as u64) as usize
}

/// Where a number stands: its branch, the leaf there, the place in that.
fn place(id: KeyspaceId) -> (u64, usize, usize) {
    let (leaf, at) = (id / FAN as u64, id % FAN as u64);
    (leaf / FAN as u64, (leaf % FAN as u64) as usize, at as usize)
}

impl Keyspaces {
    /// The keyspace of that number.
    pub fn get(&self, id: &KeyspaceId) -> Option<&Arc<KeyspaceView>> {
        let (branch, leaf, at) = place(*id);
        self.branches.get(&branch)?.get(leaf)?.get(at)
    }

    /// Whether there is one.
    pub fn contains_key(&self, id: &KeyspaceId) -> bool {
        self.get(id).is_some()
    }

    /// The same, to be changed; its name and number stay.
    pub fn get_mut(&mut self, id: &KeyspaceId) -> Option<&mut Arc<KeyspaceView>> {
        let (branch, leaf, at) = place(*id);
        let branch = Arc::make_mut(self.branches.get_mut(&branch)?);
        Arc::make_mut(branch.changing(leaf).as_mut()?).changing(at).as_mut()
    }

    /// The keyspace of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<KeyspaceView>> {
        self.get(self.names[list(name)].get(name)?)
    }

    /// Such options: those of its newest keyspace, if they are the same, as they are of most where there are many.
    pub fn sharing(&self, options: KeyspaceOptions) -> Arc<KeyspaceOptions> {
        let branch = self.branches.values().next_back();
        let leaf = branch.and_then(|branch| branch.members().next_back());
        match leaf.and_then(|leaf| leaf.members().next_back()) {
            Some(newest) if *newest.options == options => newest.options.clone(),
            _ => Arc::new(options),
        }
    }

    /// Adds a keyspace, or puts it in the place of what has its number.
    pub fn insert(&mut self, id: KeyspaceId, keyspace: Arc<KeyspaceView>) {
        let names = &mut Arc::make_mut(&mut self.names)[list(&keyspace.name)];
        if names.get(&keyspace.name) != Some(&id) {
            Arc::make_mut(names).insert(keyspace.name.clone(), id);
        }
        let (branch, leaf, at) = place(id);
        let branch = Arc::make_mut(self.branches.entry(branch).or_default());
        let leaf = branch.changing(leaf).get_or_insert_default();
        *Arc::make_mut(leaf).changing(at) = Some(keyspace);
    }

    /// Removes a keyspace.
    pub fn remove(&mut self, id: &KeyspaceId) -> Option<Arc<KeyspaceView>> {
        let (number, at_leaf, at) = place(*id);
        let branch = Arc::make_mut(self.branches.get_mut(&number)?);
        let leaf = branch.changing(at_leaf);
        let keyspace = Arc::make_mut(leaf.as_mut()?).changing(at).take()?;
        if leaf.as_ref().is_some_and(|leaf| leaf.is_empty()) {
            *leaf = None;
        }
        if branch.is_empty() {
            self.branches.remove(&number);
        }
        let names = &mut Arc::make_mut(&mut self.names)[list(&keyspace.name)];
        Arc::make_mut(names).remove(&keyspace.name);
        Some(keyspace)
    }

    fn leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> + Clone {
        self.branches.values().flat_map(|branch| branch.members())
    }

    /// All of them, by number.
    pub fn values(&self) -> impl Iterator<Item = &Arc<KeyspaceView>> + Clone {
        self.leaves().flat_map(|leaf| leaf.members())
    }

    /// Those that are not the same in `other`; parts that both share are passed over.
    pub fn unlike<'a>(
        &'a self,
        other: &'a Keyspaces,
    ) -> impl Iterator<Item = &'a Arc<KeyspaceView>> {
        let branches = self.branches.iter().filter(|(number, branch)| {
            other.branches.get(number).is_none_or(|there| !Arc::ptr_eq(there, branch))
        });
        let leaves = branches.flat_map(|(number, branch)| {
            let there = other.branches.get(number);
            (0..FAN).filter_map(move |at| {
                let leaf = branch.get(at)?;
                let there = there.and_then(|there| there.get(at));
                there.is_none_or(|there| !Arc::ptr_eq(there, leaf)).then_some(leaf)
            })
        });
        let is_other = |keyspace: &&Arc<KeyspaceView>| {
            other.get(&keyspace.id).is_none_or(|there| !Arc::ptr_eq(there, keyspace))
        };
        leaves.flat_map(|leaf| leaf.members()).filter(is_other)
    }

    /// All of the parts that `may_hold` what is looked for, which is asked as they come.
    fn those(
        &self,
        may_hold: impl Fn(&Known) -> bool + Clone,
    ) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        let of_leaf = may_hold.clone();
        let branches = self.branches.values().filter(move |branch| may_hold(branch.known()));
        let leaves = branches.flat_map(|branch| branch.members());
        leaves.filter(move |leaf| of_leaf(leaf.known())).flat_map(|leaf| leaf.members())
    }

    fn known(&self) -> impl Iterator<Item = &Known> {
        self.branches.values().map(|branch| branch.known())
    }

    /// Those that have memtables to be flushed.
    pub fn with_sealed(&self) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        self.those(|known| known.most_sealed > 0).filter(|keyspace| !keyspace.sealed.is_empty())
    }

    /// Of each keyspace that has memtables to be flushed `of` says which of them counts, if any; of these the one with the oldest records.
    pub fn oldest_sealed<'a>(
        &'a self,
        of: impl Fn(&'a KeyspaceView) -> Option<&'a Sealed>,
    ) -> Option<(&'a Arc<KeyspaceView>, &'a Sealed)> {
        let (least, mut oldest) = (Cell::new(SequenceNumber::MAX), None);
        for keyspace in self.those(|known| known.oldest_sealed < least.get()) {
            let found = of(keyspace).filter(|sealed| sealed.first_sequence() < least.get());
            if let Some(sealed) = found {
                least.set(sealed.first_sequence());
                oldest = Some((keyspace, sealed));
            }
        }
        oldest
    }

    /// Of the memtables to be flushed of which `counts` says so the one that goes up to the highest number: that.
    pub fn sealed_up_to(
        &self,
        counts: impl Fn(&KeyspaceView, &Sealed) -> bool,
    ) -> Option<SequenceNumber> {
        let most = Cell::new(0);
        for keyspace in self.those(|known| known.sealed_up_to > most.get()) {
            let mut newer = keyspace.sealed.iter().take_while(|sealed| sealed.up_to > most.get());
            let up_to = newer.find(|sealed| counts(keyspace, sealed)).map(|sealed| sealed.up_to);
            most.set(up_to.unwrap_or(most.get()));
        }
        Some(most.get()).filter(|most| *most > 0)
    }

    /// The memtables to be flushed that have records up to `up_to`, each with its keyspace.
    pub fn sealed_begun_by(
        &self,
        up_to: SequenceNumber,
    ) -> impl Iterator<Item = (&Arc<KeyspaceView>, &Sealed)> {
        let all = self.those(move |known| known.oldest_sealed <= up_to);
        let all = all.flat_map(|keyspace| keyspace.sealed.iter().map(move |s| (keyspace, s)));
        all.filter(move |(_, sealed)| sealed.first_sequence() <= up_to)
    }

    /// The most memtables that one of them has to be flushed.
    pub fn most_sealed(&self) -> usize {
        self.known().map(|known| known.most_sealed).max().unwrap_or(0)
    }

    /// Those that have tables in runs, levels too, or in a frozen part.
    pub fn unsettled(&self) -> impl Iterator<Item = &Arc<KeyspaceView>> {
        self.those(|known| known.is_unsettled).filter(|keyspace| keyspace.is_unsettled())
    }

    /// Those of which `is_so`, which goes by their options, memtables that wait and tables, and by `by`. The answer to a `question` is kept
    /// for as long as these stay: it is to be the same function each time.
    pub fn answering(
        &self,
        question: Question,
        by: u64,
        is_so: impl Fn(&KeyspaceView) -> bool,
    ) -> Vec<&Arc<KeyspaceView>> {
        let asked = Asked { question, by, is_so: &is_so };
        let leaves = self.branches.values().flat_map(|branch| branch.answering(&asked));
        leaves.flat_map(|leaf| leaf.answering(&asked)).collect()
    }

    /// What of the tiered store is not settled, bytes.
    pub fn fresh_bytes(&self) -> u64 {
        self.known().map(|known| known.fresh_bytes).sum()
    }

    /// Whether one of those that keep levels has any tables.
    pub fn have_levels(&self) -> bool {
        self.known().any(|known| known.has_levels)
    }

    /// What all tables take, with the values they point at, bytes.
    pub fn table_bytes(&self) -> u64 {
        self.known().map(|known| known.table_bytes).sum()
    }

    /// The largest size of partitions, bytes.
    pub fn partition_bytes(&self) -> u64 {
        self.known().map(|known| known.partition_bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::format::checksum::mix;
    use crate::memtable::Memtable;
    use crate::tiered::testing::Without;
    use crate::{Database, KeyspaceOptions};

    /// Numbers of several leaves and branches, and far ones.
    const NUMBERS: [u64; 14] =
        [0, 1, 30, 31, 32, 33, 1000, 1023, 1024, 1025, 2047, 2048, 1 << 40, u64::MAX];

    fn random(state: &mut u64, n: usize) -> usize {
        *state += 1;
        (mix(*state) % n as u64) as usize
    }

    /// Each third step a new one is made of what stands, as changes of a View make one; the old ones stay as they were.
    #[test]
    fn keyspaces_are_what_a_map_of_them_is() {
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        let db = db.executor(Arc::new(crate::executor::SeededExecutor::new(1))).open().unwrap();
        let made = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let first = KeyspaceView::clone(&db.engine().keyspace(made.id()).unwrap());
        let (mut state, mut sequence) = (7, 0);
        let mut all: BTreeMap<u64, Arc<KeyspaceView>> = BTreeMap::new();
        let (mut keyspaces, mut lives) = (Keyspaces::default(), Vec::new());
        for step in 0..600 {
            // What is not shared since is changed in its place.
            if step % 3 == 0 {
                lives.push((keyspaces.clone(), all.clone()));
            }
            let id = NUMBERS[random(&mut state, NUMBERS.len())];
            match random(&mut state, 5) {
                0 => {
                    let gone = keyspaces.remove(&id).map(|k| k.id);
                    assert_eq!(gone, all.remove(&id).map(|k| k.id));
                }
                1 | 2 if !all.contains_key(&id) => {
                    let name = format!("k{id}").into();
                    let new = Arc::new(KeyspaceView { id, name, ..first.clone() });
                    keyspaces.insert(id, new.clone());
                    all.insert(id, new);
                }
                kind => {
                    let shown = keyspaces.get_mut(&id);
                    assert_eq!(shown.is_some(), all.contains_key(&id));
                    let Some(shown) = shown else { continue };
                    let shown = Arc::make_mut(shown);
                    if kind == 3 {
                        shown.sealed.pop();
                    } else {
                        let memtable = Arc::new(Memtable::default());
                        sequence += 1;
                        // Those of a group are sealed up to the same number.
                        memtable.expect(sequence);
                        shown.sealed.insert(0, Sealed { memtable, up_to: sequence / 3 * 3 + 3 });
                    }
                    all.insert(id, keyspaces.get(&id).unwrap().clone());
                }
            }
            check(&keyspaces, &all, &mut state, step);
            let (before, had) = &lives[random(&mut state, lives.len())];
            check(before, had, &mut state, step);
            let unlike: Vec<_> = keyspaces.unlike(before).map(|k| k.id).collect();
            let is_unlike =
                |k: &&Arc<KeyspaceView>| had.get(&k.id).is_none_or(|b| !Arc::ptr_eq(b, k));
            let expected: Vec<_> = all.values().filter(is_unlike).map(|k| k.id).collect();
            assert_eq!(unlike, expected, "{step}");
        }
        assert!(all.len() > 3 && sequence > 50);
    }

    fn check(
        keyspaces: &Keyspaces,
        all: &BTreeMap<u64, Arc<KeyspaceView>>,
        state: &mut u64,
        step: u32,
    ) {
        let same = |a: &Arc<KeyspaceView>, b: &Arc<KeyspaceView>| Arc::ptr_eq(a, b);
        assert!(keyspaces.values().map(Arc::as_ptr).eq(all.values().map(Arc::as_ptr)), "{step}");
        for id in NUMBERS {
            assert_eq!(keyspaces.contains_key(&id), all.contains_key(&id), "{step}: {id}");
            let found = keyspaces.find(&format!("k{id}")).zip(keyspaces.get(&id));
            assert_eq!(
                found.is_some_and(|(a, b)| same(a, b)),
                all.contains_key(&id),
                "{step}: {id}"
            );
        }
        let sealed: Vec<_> =
            all.values().flat_map(|k| k.sealed.iter().map(move |s| (k, s))).collect();
        let waiting: Vec<_> = keyspaces.with_sealed().map(|k| k.id).collect();
        assert!(all.values().filter(|k| !k.sealed.is_empty()).map(|k| k.id).eq(waiting), "{step}");
        let most = all.values().map(|k| k.sealed.len()).max().unwrap_or(0);
        assert_eq!(keyspaces.most_sealed(), most, "{step}");
        // Some do not count, as those that are flushed already.
        let counts = random(state, 3) as u64;
        let counts = |s: &Sealed| s.first_sequence() % 3 != counts;
        let oldest = keyspaces.oldest_sealed(|k| k.sealed.iter().rev().find(|s| counts(s)));
        let oldest = oldest.map(|(k, s)| (k.id, s.first_sequence()));
        let counting = || sealed.iter().filter(|(_, s)| counts(s));
        let expected = counting().min_by_key(|(_, s)| s.first_sequence());
        assert_eq!(oldest, expected.map(|(k, s)| (k.id, s.first_sequence())), "{step}");
        let up_to = keyspaces.sealed_up_to(|_, s| counts(s));
        assert_eq!(up_to, counting().map(|(_, s)| s.up_to).max(), "{step}");
        let bound =
            sealed.get(random(state, sealed.len().max(1))).map_or(5, |(_, s)| s.first_sequence());
        let since = keyspaces.sealed_begun_by(bound).map(|(k, s)| (k.id, s.up_to));
        let expected = sealed.iter().filter(|(_, s)| s.first_sequence() <= bound);
        assert!(since.eq(expected.map(|(k, s)| (k.id, s.up_to))), "{step}");
        // Always the same two questions, so that what is kept is used; the answer to one goes by more than what is there.
        let by = random(state, 2) as u64;
        for (question, by) in [(Question::Settles, 0), (Question::Compacts, by)] {
            let is_so = |k: &KeyspaceView| k.sealed.len() as u64 > by;
            let answer = keyspaces.answering(question, by, is_so).into_iter().map(|k| k.id);
            assert!(answer.eq(all.values().filter(|k| is_so(k)).map(|k| k.id)), "{step}: {by}");
        }
    }

    /// Over parts, by what is oldest, of those that may be.
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
        assert!(view().keyspaces.oldest_sealed(|k| k.sealed.last()).is_none());
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
            let oldest = view.keyspaces.oldest_sealed(|k| k.sealed.last().filter(|_| may_be(k.id)));
            found.push(oldest.unwrap().0.id);
        }
        let expected: Vec<_> = in_turn.iter().map(|n| keyspaces[*n].id()).collect();
        assert_eq!(found, expected);
        keyspaces[7].insert("key", "other").unwrap();
        db.engine().rotate(keyspaces[7].id()).unwrap();
        assert_eq!(view().keyspaces.most_sealed(), 2);
        let view = view();
        let (keyspace, sealed) = view
            .keyspaces
            .oldest_sealed(|k| k.sealed.last().filter(|_| k.id == keyspaces[7].id()))
            .unwrap();
        assert!(Arc::ptr_eq(&sealed.memtable, &keyspace.sealed[1].memtable), "its oldest");
    }
}
