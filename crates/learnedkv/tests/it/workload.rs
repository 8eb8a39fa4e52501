//! Random workloads, the model they are checked against, and how a database is opened for them.
//!
//! A workload is a list of [`Op`]s drawn from a seed. The model is a map per keyspace; an operation
//! is applied to it and to a database, and [`contents`] says what the database holds, read in every way.

use std::ops::{Bound, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use learnedkv::disk::Disk;
use learnedkv::executor::SeededExecutor;
use learnedkv::{
    Batch, Compression, Database, Durability, Keyspace, KeyspaceOptions, ReadOptions, Result, Store,
};

use crate::contents::read_in_all_ways;
pub use crate::contents::{
    Content, Model, content, contents, contents_by, contents_in_turn, difference,
};
use crate::keys::Keys;

/// SplitMix64: a test's own random numbers, from its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// One change in a batch: keyspace, key, and the new value or none.
pub type Change = (String, Vec<u8>, Option<Vec<u8>>);

/// What [`Op::Update`] makes of a value: a byte longer; too long a one goes.
fn longer(old: Option<&[u8]>) -> Option<Vec<u8>> {
    let old = old.unwrap_or_default();
    (old.len() < 500).then(|| [old, b"+"].concat())
}

/// A range of keys that is removed.
#[derive(Debug, Clone)]
pub struct Removal {
    pub before: Vec<Change>,
    pub name: String,
    pub range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    pub after: Vec<Change>,
    pub synced: bool,
}

impl Removal {
    fn changes(&self) -> impl Iterator<Item = &Change> {
        self.before.iter().chain(&self.after)
    }

    fn change(&self, model: &mut Model) {
        change(model, &self.before);
        let content = model.get_mut(&self.name).expect("a workload knows its keyspaces");
        content.retain(|key, _| !self.range.contains(key));
        change(model, &self.after);
        let itself = (!self.is_of_no_key()).then_some(&self.name);
        note_position(model, self.position(), self.names().chain(itself));
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.changes().map(|(name, _, _)| name)
    }

    /// A range that ends before it begins is no operation.
    fn is_of_no_key(&self) -> bool {
        let behind = |key: &Vec<u8>| [key.as_slice(), &[0]].concat();
        let from = match &self.range.0 {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => behind(key),
        };
        match &self.range.1 {
            Bound::Unbounded => false,
            Bound::Included(key) => behind(key) <= from,
            Bound::Excluded(key) => *key <= from,
        }
    }

    /// Of a batch only.
    fn position(&self) -> Option<[u8; 16]> {
        self.changes().next().and_then(|_| position_of(self.changes()))
    }

    /// As the API has it: alone where there is nothing else, `clear` where the range is all.
    fn apply(&self, db: &Database, find: impl Fn(&String) -> Keyspace) -> Result<()> {
        let keyspace = find(&self.name);
        let is_all = self.range == (Bound::Unbounded, Bound::Unbounded);
        if self.changes().next().is_none() {
            return match is_all && !self.synced {
                true => keyspace.clear(),
                false => keyspace.remove_range_with(self.range.clone(), durability(self.synced)),
            };
        }
        let mut batch = db.batch();
        push(&mut batch, &self.before, &find);
        match is_all {
            true => batch.clear(&keyspace),
            false => batch.remove_range(&keyspace, self.range.clone()),
        }
        push(&mut batch, &self.after, &find);
        self.position().into_iter().for_each(|position| batch.set_external_position(position));
        batch.commit_with(durability(self.synced))
    }

    /// Mostly few keys, now and then many, or all.
    fn draw(
        random: &mut Random,
        keys: Keys,
        name: String,
        mut changes: impl FnMut(&mut Random) -> Vec<Change>,
    ) -> Removal {
        let from = random.below(KEYS);
        let count = match random.below(20) {
            0..=10 => 1 + random.below(3),
            11..=16 => 4 + random.below(20),
            _ => KEYS,
        };
        let range = match random.below(8) {
            0 => (Bound::Unbounded, Bound::Excluded(keys.key(count))),
            1 if count == KEYS => (Bound::Unbounded, Bound::Unbounded),
            2 => (Bound::Excluded(keys.key(from)), Bound::Included(keys.key(from + count))),
            // Right behind a key; now and then nothing at all.
            3 => (Bound::Included(keys.key(from)), Bound::Excluded(keys.behind(from))),
            4 if count == KEYS => (Bound::Included(keys.key(from)), Bound::Unbounded),
            _ => (Bound::Included(keys.key(from)), Bound::Excluded(keys.key(from + count))),
        };
        let several = random.below(3) == 0;
        let before = if several { changes(random) } else { Vec::new() };
        let after = if several { changes(random) } else { Vec::new() };
        Removal { before, name, range, after, synced: random.below(5) == 0 }
    }
}

/// A value is swapped for another, or for none.
#[derive(Debug, Clone)]
pub struct Swap {
    pub name: String,
    pub key: Vec<u8>,
    /// What is expected is the value there is; else none that a workload has, and nothing is swapped.
    pub expects_it: bool,
    pub new: Option<Vec<u8>>,
    pub synced: bool,
}

impl Swap {
    fn apply(&self, keyspace: &Keyspace) -> Result<()> {
        let current = keyspace.get(&self.key)?;
        let expected = if self.expects_it { current.as_deref() } else { Some(&b"another"[..]) };
        let (key, new) = (&self.key, self.new.as_deref());
        match keyspace.compare_and_swap_with(key, expected, new, durability(self.synced))? {
            Ok(()) => assert!(self.expects_it, "{self:?}: swapped"),
            Err(error) => {
                assert!(!self.expects_it && error.current == current, "{self:?}: {error}");
            }
        }
        Ok(())
    }

    /// Whether it writes anything.
    fn writes(&self, model: &Model) -> bool {
        let is_there = || model.get(&self.name).is_some_and(|c| c.contains_key(&self.key));
        self.expects_it && (self.new.is_some() || is_there())
    }
}

fn durability(synced: bool) -> Durability {
    if synced { Durability::Synced } else { Durability::Buffered }
}

fn change(model: &mut Model, changes: &[Change]) {
    for (name, key, value) in changes {
        let content = model.get_mut(name).expect("a workload knows its keyspaces");
        match value {
            Some(value) => content.insert(key.clone(), value.clone()),
            None => content.remove(key),
        };
    }
}

/// The external position that a batch with these changes carries: most do, each its own.
fn position_of<'a>(changes: impl Iterator<Item = &'a Change>) -> Option<[u8; 16]> {
    let mut random = Random::new(0);
    for (name, key, value) in changes {
        let value =
            value.iter().flat_map(|value| [value.len() as u8, value.first().map_or(0, |v| *v)]);
        let bytes = name.bytes().chain(key.iter().copied()).chain(value);
        bytes.for_each(|byte| random = Random::new(random.next() ^ u64::from(byte)));
    }
    let (first, second) = (random.next(), random.next());
    (first % 3 > 0).then(|| (u128::from(first) << 64 | u128::from(second)).to_be_bytes())
}

fn note_position<'a>(
    model: &mut Model,
    position: Option<[u8; 16]>,
    names: impl Iterator<Item = &'a String>,
) {
    let Some(position) = position else { return };
    for name in names {
        let content = model.get_mut(name).expect("a workload knows its keyspaces");
        content.position = Some(position);
    }
}

fn push(batch: &mut Batch, changes: &[Change], find: impl Fn(&String) -> Keyspace) {
    for (name, key, value) in changes {
        match value {
            Some(value) => batch.insert(&find(name), key, value),
            None => batch.remove(&find(name), key),
        }
    }
}

/// An operation on a database.
#[derive(Debug, Clone)]
pub enum Op {
    Create(String),
    Drop(String),
    /// A commit; the flag: synced.
    Commit(Vec<Change>, bool),
    /// A range of keys goes, in one commit with changes before it and after it.
    Remove(Removal),
    /// A key's value gets a byte longer, to a limit; the flag: synced.
    Update(String, Vec<u8>, bool),
    Swap(Swap),
    /// A key's value comes from a reader; the flag: synced.
    Stream(String, Vec<u8>, Vec<u8>, bool),
    /// All ways to read a key give the same.
    Read(String, Vec<u8>),
    /// The first entry goes, or the last.
    Pop(String, bool),
    Ingest(String, Vec<(Vec<u8>, Vec<u8>)>),
    Flush(String),
    Convert(String),
    Compact(String),
    Sync,
}

impl Op {
    /// Applies it to the model.
    pub fn change(&self, model: &mut Model) {
        match self {
            Op::Create(name) => {
                model.entry(name.clone()).or_default();
            }
            Op::Drop(name) => {
                model.remove(name);
            }
            Op::Commit(changes, _) => {
                change(model, changes);
                let names = changes.iter().map(|(name, _, _)| name);
                note_position(model, position_of(changes.iter()), names);
            }
            Op::Remove(removal) => removal.change(model),
            Op::Update(name, key, _) => {
                let content = model.get_mut(name).expect("a workload knows its keyspaces");
                match longer(content.get(key).map(Vec::as_slice)) {
                    Some(value) => content.insert(key.clone(), value),
                    None => content.remove(key),
                };
            }
            Op::Swap(swap) if swap.expects_it => {
                change(model, &[(swap.name.clone(), swap.key.clone(), swap.new.clone())]);
            }
            Op::Stream(name, key, value, _) => {
                change(model, &[(name.clone(), key.clone(), Some(value.clone()))]);
            }
            Op::Pop(name, first) => {
                let content = model.get_mut(name).expect("a workload knows its keyspaces");
                let _ = if *first { content.pop_first() } else { content.pop_last() };
            }
            Op::Ingest(name, entries) => {
                let content = model.get_mut(name).expect("a workload knows its keyspaces");
                content.extend(entries.iter().cloned());
            }
            Op::Swap(_) | Op::Read(..) | Op::Sync => {}
            Op::Flush(_) | Op::Convert(_) | Op::Compact(_) => {}
        }
    }

    /// Whether the keyspaces it needs are there (and the one it makes is not).
    pub fn fits(&self, model: &Model) -> bool {
        match self {
            Op::Create(name) => !model.contains_key(name),
            Op::Commit(changes, _) => changes.iter().all(|(name, _, _)| model.contains_key(name)),
            Op::Remove(removal) => {
                model.contains_key(&removal.name)
                    && removal.changes().all(|(name, _, _)| model.contains_key(name))
            }
            Op::Drop(name)
            | Op::Swap(Swap { name, .. })
            | Op::Stream(name, ..)
            | Op::Read(name, _)
            | Op::Update(name, ..)
            | Op::Pop(name, _)
            | Op::Ingest(name, _)
            | Op::Flush(name)
            | Op::Convert(name)
            | Op::Compact(name) => model.contains_key(name),
            Op::Sync => true,
        }
    }

    /// Applies it to a database.
    pub fn apply(&self, db: &Database, setup: &Setup) -> Result<()> {
        let find = |name: &String| db.find(name).expect("the keyspace of an operation");
        match self {
            Op::Create(name) => db.keyspace(name, setup.keyspace.clone()).map(drop),
            Op::Drop(name) => db.drop_keyspace(name),
            Op::Commit(changes, synced) => {
                let mut batch = db.batch();
                push(&mut batch, changes, find);
                let position = position_of(changes.iter());
                position.into_iter().for_each(|position| batch.set_external_position(position));
                batch.commit_with(durability(*synced))
            }
            Op::Remove(removal) => removal.apply(db, find),
            Op::Update(name, key, synced) => {
                find(name).update_with(key, longer, durability(*synced)).map(drop)
            }
            Op::Swap(swap) => swap.apply(&find(&swap.name)),
            Op::Stream(name, key, value, synced) => {
                let keyspace = find(name);
                keyspace.insert_reader_with(key, &**value, durability(*synced)).map(drop)
            }
            Op::Read(name, key) => read_in_all_ways(&find(name), key),
            Op::Pop(name, true) => find(name).pop_first().map(drop),
            Op::Pop(name, false) => find(name).pop_last().map(drop),
            Op::Ingest(name, entries) => {
                find(name).ingest(entries.iter().map(|(k, v)| (k, v))).map(drop)
            }
            Op::Flush(name) => find(name).flush(),
            Op::Convert(name) => find(name).convert(),
            Op::Compact(name) => find(name).compact(),
            Op::Sync => db.sync(),
        }
    }

    /// Whether all that was acknowledged before, and this, survives a crash of the machine once
    /// this is acknowledged.
    pub fn makes_durable(&self, model: &Model) -> bool {
        match self {
            Op::Commit(_, synced)
            | Op::Update(_, _, synced)
            | Op::Stream(_, _, _, synced)
            | Op::Remove(Removal { synced, .. }) => *synced,
            Op::Swap(swap) => swap.synced && swap.writes(model),
            Op::Read(..) => false,
            // Of an empty keyspace there is nothing to pop; it asks for no durability anyway.
            Op::Pop(..) => false,
            // Of a keyspace without entries there may be nothing to flush.
            Op::Flush(_) | Op::Convert(_) | Op::Compact(_) => false,
            Op::Ingest(_, entries) => !entries.is_empty(),
            Op::Create(name) => !model.contains_key(name),
            Op::Drop(_) | Op::Sync => true,
        }
    }
}

/// How a database is opened, and its keyspaces made.
#[derive(Debug, Clone)]
pub struct Setup {
    pub memtable_bytes: usize,
    pub log_segment_bytes: u64,
    pub block_cache: bool,
    pub mapped_reads: bool,
    pub memory_budget_bytes: u64,
    pub metadata_percent: u64,
    pub automatic_conversion: bool,
    pub sweeps_ahead: bool,
    pub background_bytes_per_s: Option<u64>,
    pub stream_at: u64,
    pub max_open_files: usize,
    /// How what it holds is read, beside all other ways.
    pub reads: ReadOptions,
    pub keyspace: KeyspaceOptions,
    /// Which keys are written and asked for.
    pub keys: Keys,
}

impl Default for Setup {
    /// As small as may be, so that few operations meet everything.
    fn default() -> Setup {
        Setup {
            memtable_bytes: 4 << 10,
            log_segment_bytes: 4 << 10,
            block_cache: true,
            mapped_reads: true,
            memory_budget_bytes: 1 << 20,
            metadata_percent: 50,
            automatic_conversion: true,
            sweeps_ahead: true,
            background_bytes_per_s: None,
            stream_at: 400,
            max_open_files: 512,
            reads: ReadOptions::default(),
            keyspace: KeyspaceOptions::default()
                .block_bytes(256)
                .partition_bytes(4 << 10)
                .min_conversion_bytes(8 << 10)
                .separate_at(32)
                .inline_limit(100),
            keys: Keys::Text,
        }
    }
}

impl Setup {
    /// The default, with levels so small that few operations fill three of them and more.
    pub fn levels() -> Setup {
        let setup = Setup::default();
        let keyspace = setup.keyspace.clone().store(Store::Lsm).separate_at(200);
        Setup { keyspace: keyspace.level_base_bytes(512).level_multiplier(2), ..setup }
    }

    /// The smallest of a store, with fresh and settled tables compressed as the seed says: each way with
    /// each; their indexes in memory or not; few files open, or all; steps of sweeps
    /// ahead of one another or not; and keys of any shape.
    pub fn of(store: Store, seed: u64) -> Setup {
        let setup = if store == Store::Lsm { Setup::levels() } else { Setup::default() };
        let [fresh, settled] = Setup::compressions(seed);
        let keyspace = setup.keyspace.clone();
        let keyspace = keyspace.lsm_compression(fresh).settled_compression(settled);
        let max_open_files = [512, 1, 5][seed as usize % 3];
        // Not of one shape wherever indexes are in memory, or where the system's files are few.
        let keys = Keys::of(seed * 3 + seed / 4);
        let sweeps_ahead = seed % 5 != 1;
        let setup = Setup { keyspace, max_open_files, keys, sweeps_ahead, ..setup };
        match seed % 4 {
            1 => setup.tight(),
            2 => setup.paged(true),
            3 => setup.paged(false),
            _ => setup,
        }
    }

    /// The same where no table keeps its index. The cache is large enough for all of them, or holds
    /// none.
    pub fn paged(self, block_cache: bool) -> Setup {
        Setup { metadata_percent: 0, block_cache, ..self }
    }

    /// The same where there is room for some indexes, while tables come and go.
    pub fn tight(self) -> Setup {
        Setup { metadata_percent: 1, ..self }
    }

    fn compressions(seed: u64) -> [Compression; 2] {
        let all = Compression::ALL;
        let at = |n: u64| all[(n % all.len() as u64) as usize];
        [at(seed), at(seed / 3 + seed)]
    }

    /// Opens `/db` on `disk`; the executor steps as `seed` says.
    pub fn open(&self, disk: &(impl Disk + Clone + 'static), seed: u64) -> Result<Database> {
        self.open_at(disk, "/db", seed)
    }

    /// The same at `path`.
    pub fn open_at(
        &self,
        disk: &(impl Disk + Clone + 'static),
        path: &str,
        seed: u64,
    ) -> Result<Database> {
        let builder = Database::builder(path);
        let builder = match self.background_bytes_per_s {
            Some(bytes) => builder.background_bytes_per_s(bytes),
            None => builder,
        };
        builder
            .disk(Arc::new(disk.clone()))
            .executor(Arc::new(SeededExecutor::new(seed)))
            .memtable_bytes(self.memtable_bytes)
            .memory_budget_bytes(self.memory_budget_bytes)
            .metadata_percent(self.metadata_percent)
            .log_segment_bytes(self.log_segment_bytes)
            .block_cache(self.block_cache)
            .mapped_reads(self.mapped_reads)
            .automatic_conversion(self.automatic_conversion)
            .sweeps_ahead(self.sweeps_ahead)
            .stream_at(self.stream_at)
            .max_open_files(self.max_open_files)
            .open()
    }
}

/// How many different keys there are.
pub const KEYS: u64 = 80;

/// The text of that number: a key where their shape does not matter.
pub fn key(number: u64) -> Vec<u8> {
    Keys::Text.key(number)
}

/// Draws `length` operations; the first make the keyspaces `a` and `b`. Longer values: more to flush.
pub fn draw(random: &mut Random, keys: Keys, length: usize, max_value_bytes: u64) -> Vec<Op> {
    let mut ops = vec![Op::Create("a".into()), Op::Create("b".into())];
    let mut names = vec!["a".to_owned(), "b".to_owned()];
    let mut made = 0;
    while ops.len() < length {
        let name = names[random.below(names.len() as u64) as usize].clone();
        let value = |random: &mut Random| {
            let length = random.below(max_value_bytes) as usize;
            vec![ops.len() as u8; length]
        };
        let changes = |random: &mut Random| -> Vec<Change> {
            let several = random.below(3) == 0;
            let count = if several { 2 + random.below(6) } else { 1 };
            let one = |_| {
                let name = names[random.below(names.len() as u64) as usize].clone();
                let value = value(random);
                (name, keys.key(random.below(KEYS)), (random.below(4) > 0).then_some(value))
            };
            (0..count).map(one).collect()
        };
        let op = match random.below(100) {
            0..=50 => {
                let changes = changes(random);
                Op::Commit(changes, random.below(5) == 0)
            }
            51..=53 => {
                let (key, expects_it) = (keys.key(random.below(KEYS)), random.below(4) > 0);
                let new = (random.below(4) > 0).then(|| value(random));
                Op::Swap(Swap { name, key, expects_it, new, synced: random.below(5) == 0 })
            }
            54..=56 => {
                let (key, value) = (keys.key(random.below(KEYS)), value(random));
                Op::Stream(name, key, value, random.below(5) == 0)
            }
            57..=58 => Op::Read(name, keys.key(random.below(KEYS))),
            59..=64 => Op::Remove(Removal::draw(random, keys, name, changes)),
            65..=70 => Op::Update(name, keys.key(random.below(KEYS)), random.below(5) == 0),
            71..=74 => Op::Pop(name, random.below(2) == 0),
            75..=80 => Op::Flush(name),
            81..=84 => Op::Convert(name),
            85..=86 => Op::Compact(name),
            87..=91 => {
                let first = random.below(KEYS - 10);
                let step = 1 + random.below(3);
                let numbers = (first..KEYS).step_by(step as usize).take(12);
                let value = |n| vec![n as u8; random.clone().below(max_value_bytes) as usize];
                Op::Ingest(name, numbers.map(|n| (keys.key(n), value(n))).collect())
            }
            92..=93 if names.len() < 4 => {
                made += 1;
                names.push(format!("c{made}"));
                Op::Create(format!("c{made}"))
            }
            94..=95 if names.len() > 2 => {
                names.retain(|n| *n != name);
                Op::Drop(name)
            }
            96 => {
                // Gone and made again: what it held must not come back.
                ops.push(Op::Drop(name.clone()));
                Op::Create(name)
            }
            _ => Op::Sync,
        };
        ops.push(op);
    }
    ops
}

/// Runs `work`; a panic in it comes back as its words, so that the caller can say where it was.
pub fn guarded<T>(
    work: impl FnOnce() -> std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("panicked: {}", said.unwrap_or_default()))
    })
}
