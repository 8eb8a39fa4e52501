//! Iterators that are held for long while writes go on: what they keep is counted and given back, and they
//! go on as if nothing had happened, from both ends. Snapshots: [`super::snapshots`].

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use learnedkv::disk::faulty::{Fault, FaultyDisk};
use learnedkv::disk::sim::SimDisk;
use learnedkv::disk::{Disk, OperationKind};
use learnedkv::executor::{Executor, SeededExecutor, ThreadExecutor};
use learnedkv::{Database, Iter, Keyspace, KeyspaceOptions, Result, Store};

use crate::workload::{Model, Random, Setup, contents, draw, key};

/// Memtables that readers alone keep may take an eighth of it: two of them.
const BUDGET_BYTES: u64 = 64 << 10;
/// What all memtables of a View may take, a writer being ahead of the bound by a quarter at most.
const ALL_MEMTABLES_BYTES: u64 = 20 << 10;

fn open(
    disk: &(impl Disk + Clone + 'static),
    setup: &Setup,
    seed: u64,
) -> (Database, Arc<SeededExecutor>) {
    let executor = Arc::new(SeededExecutor::new(seed));
    let db = Database::builder("/db")
        .disk(Arc::new(disk.clone()))
        .executor(executor.clone())
        .memtable_bytes(setup.memtable_bytes)
        .memory_budget_bytes(BUDGET_BYTES)
        .log_segment_bytes(setup.log_segment_bytes)
        .stream_at(setup.stream_at)
        .mapped_reads(setup.mapped_reads)
        .open()
        .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    (db, executor)
}

type Entry = (Vec<u8>, Vec<u8>);

/// An iterator under way, and what is left of what it ought to show.
struct Walk {
    iter: Box<dyn DoubleEndedIterator<Item = Result<Entry>>>,
    left: VecDeque<Entry>,
    /// Bytes of the longest entry it was to show.
    longest: u64,
    at: String,
}

impl Walk {
    /// Entries, keys, or keys and lengths; of now, or of a snapshot that is dropped at once.
    fn begin(db: &Database, keyspace: &Keyspace, content: Vec<Entry>, number: u64) -> Walk {
        let iter = match number % 4 {
            0 => db.snapshot().iter(keyspace),
            _ => keyspace.iter(),
        };
        Walk::over(iter, content, number)
    }

    fn over(iter: Iter, content: Vec<Entry>, number: u64) -> Walk {
        let bytes = |(key, value): &Entry| (key.len() + value.len()) as u64;
        let longest = content.iter().map(bytes).max().unwrap_or(0);
        let content = content.into_iter();
        let (iter, left): (Box<dyn DoubleEndedIterator<Item = _>>, _) = match number % 3 {
            0 => {
                let owned = |e: Result<(learnedkv::Slice, _)>| e.map(|(k, _)| (k.to_vec(), vec![]));
                let keys = iter.keys().map(move |key| owned(key.map(|key| (key, ()))));
                (Box::new(keys), content.map(|(k, _)| (k, vec![])).collect())
            }
            1 => {
                let length = |length: u64| length.to_be_bytes().to_vec();
                let sizes = iter.sizes().map(move |e| e.map(|(k, l)| (k.to_vec(), length(l))));
                (Box::new(sizes), content.map(|(k, v)| (k, length(v.len() as u64))).collect())
            }
            _ => {
                let owned = |e: Result<(learnedkv::Slice, learnedkv::Slice)>| {
                    e.map(|(k, v)| (k.to_vec(), v.to_vec()))
                };
                (Box::new(iter.map(owned)), content.collect())
            }
        };
        Walk { iter, left, longest, at: format!("walk {number}") }
    }

    fn step(&mut self, front: bool) {
        let (found, expected) = match front {
            true => (self.iter.next(), self.left.pop_front()),
            false => (self.iter.next_back(), self.left.pop_back()),
        };
        let found = found.transpose().unwrap_or_else(|e| panic!("{}: {e}", self.at));
        assert_eq!(found, expected, "{}, front: {front}", self.at);
    }

    fn end(mut self, random: &mut Random) {
        while !self.left.is_empty() {
            self.step(random.below(3) > 0);
        }
        self.step(true);
        self.step(false);
    }
}

/// A workload under which iterators stay open and go a few steps now and then.
fn run(db: &Database, setup: &Setup, seed: u64) -> (Model, Vec<Walk>) {
    let mut random = Random::new(seed);
    let (mut model, mut walks) = (Model::new(), Vec::<Walk>::new());
    for (number, op) in draw(&mut random, setup.keys, 700, 300).into_iter().enumerate() {
        if !op.fits(&model) {
            continue;
        }
        op.apply(db, setup).unwrap_or_else(|e| panic!("seed {seed}, {number} {op:?}: {e}"));
        op.change(&mut model);
        if number % 25 == 0 {
            for (name, content) in &model {
                let (keyspace, content) = (db.find(name).unwrap(), content.clone());
                let number = walks.len() as u64;
                walks.push(Walk::begin(db, &keyspace, content.into_iter().collect(), number));
            }
        }
        if !walks.is_empty() {
            let walk = random.below(walks.len() as u64) as usize;
            (0..random.below(6)).for_each(|_| walks[walk].step(random.below(2) == 0));
        }
    }
    (model, walks)
}

#[test]
fn iterators_held_for_long_take_little_memory_and_go_on_where_they_stood() {
    for seed in 0..8 {
        let store = if seed % 2 == 0 { Store::Tiered } else { Store::Lsm };
        let setup = Setup::of(store, seed);
        let (db, executor) = open(&SimDisk::new(seed), &setup, seed);
        let (model, mut walks) = run(&db, &setup, seed);
        model.keys().for_each(|name| db.find(name).unwrap().flush().unwrap());
        executor.run_until_idle();
        // Those that rest since before memory was tight.
        let pinned = db.stats().pinned_memory_bytes;
        // A memtable is full once it is past its bound: by one entry, which may be longer than all others are together.
        let longest = walks.iter().map(|walk| walk.longest).max().unwrap();
        let bound = BUDGET_BYTES / 8 + ALL_MEMTABLES_BYTES + longest;
        assert!(pinned <= bound, "seed {seed}: {pinned} of {bound}");
        // One step at either end, and none keeps anything.
        walks.iter_mut().for_each(|walk| walk.step(walk.left.len() % 2 == 0));
        executor.run_until_idle();
        let stats = db.stats();
        assert!(stats.spills > 5, "seed {seed}: {} spills", stats.spills);
        assert!(stats.pinned_memory_bytes <= BUDGET_BYTES / 8, "seed {seed}: {stats}");
        let mut random = Random::new(seed);
        walks.into_iter().for_each(|walk| walk.end(&mut random));
        assert!(contents(&db, setup.keys).unwrap() == model, "seed {seed}");
        executor.run_until_idle();
        let stats = db.stats();
        assert_eq!((stats.pinned_memory_bytes, stats.pinned_disk_bytes), (0, 0), "seed {seed}");
    }
}

/// A keyspace whose entries all have the same value.
struct Rounds {
    db: Database,
    executor: Arc<SeededExecutor>,
    keyspace: Keyspace,
}

/// So many keys with values of 30 bytes: a memtable and more.
const KEYS: u64 = 40;

impl Rounds {
    fn on(disk: &(impl Disk + Clone + 'static)) -> Rounds {
        Rounds::with(disk, 4 << 10)
    }

    fn with(disk: &(impl Disk + Clone + 'static), memtable_bytes: usize) -> Rounds {
        // Each block is read where it is asked for, so that a failure is met.
        let setup = Setup { memtable_bytes, mapped_reads: false, ..Setup::default() };
        let (db, executor) = open(disk, &setup, 1);
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        Rounds { db, executor, keyspace }
    }

    fn put(&self, round: u8) {
        (0..KEYS).for_each(|n| self.keyspace.insert(key(n), [round; 30]).unwrap());
    }

    fn flush(&self) {
        self.keyspace.flush().unwrap();
        self.executor.run_until_idle();
    }

    fn pinned(&self) -> u64 {
        self.db.stats().pinned_memory_bytes
    }
}

fn check(entry: Option<Result<(learnedkv::Slice, learnedkv::Slice)>>, number: u64, round: u8) {
    let (found, value) = entry.expect("an entry").unwrap();
    assert_eq!((&*found, &*value), (&key(number)[..], &[round; 30][..]));
}

#[test]
fn what_an_iterator_keeps_is_counted_and_the_cache_has_less() {
    let rounds = Rounds::on(&SimDisk::new(1));
    rounds.put(1);
    rounds.flush();
    let capacity = || rounds.db.stats().cache_capacity_bytes;
    let without = capacity();
    (2..4).for_each(|number| rounds.keyspace.insert(key(number), [0; 30]).unwrap());
    // Its memtable is still the View's.
    let iter = rounds.keyspace.iter();
    assert_eq!(rounds.pinned(), 0);
    rounds.flush();
    let (pinned, with) = (rounds.pinned(), capacity());
    assert!((200..BUDGET_BYTES / 16).contains(&pinned), "{pinned}");
    assert!(with + pinned <= without, "{with} and {pinned} of {without}");
    drop(iter);
    assert_eq!(rounds.pinned(), 0);
    // It is shared out anew whenever tables or memtables change.
    rounds.db.keyspace("other", KeyspaceOptions::default()).unwrap();
    assert!(capacity() >= with + pinned, "it comes back");
}

/// A lent key or value needs no memtable; and of those it was lent from none stays for it.
#[test]
fn slices_outlive_the_memtables_they_were_lent_from() {
    let rounds = Rounds::on(&SimDisk::new(1));
    rounds.put(1);
    let mut iter = rounds.keyspace.iter();
    let lent: Vec<_> = iter.by_ref().take(5).map(Result::unwrap).collect();
    drop(iter);
    (2..9).for_each(|round| rounds.put(round));
    rounds.flush();
    assert_eq!(rounds.pinned(), 0);
    for (number, (found, value)) in lent.iter().enumerate() {
        assert_eq!((&**found, &**value), (&key(number as u64)[..], &[1; 30][..]));
    }
}

/// Nobody asks those that rest for anything: they let go all the same, but for the first.
#[test]
fn iterators_that_rest_keep_a_bounded_amount_of_memory() {
    let rounds = Rounds::on(&SimDisk::new(1));
    let mut iters = Vec::new();
    for round in 0..60 {
        rounds.put(round);
        iters.push(rounds.keyspace.iter());
    }
    rounds.flush();
    let stats = rounds.db.stats();
    assert!(stats.put_bytes > BUDGET_BYTES, "a test that could not fail: {stats}");
    let most = BUDGET_BYTES / 8 + ALL_MEMTABLES_BYTES;
    assert!(stats.pinned_memory_bytes <= most, "{} of {most}", stats.pinned_memory_bytes);
    assert!(stats.spills > 10, "{}", stats.spills);
    for (round, iter) in iters.into_iter().enumerate() {
        let mut count = 0;
        for (number, entry) in iter.enumerate() {
            check(Some(entry), number as u64, round as u8);
            count += 1;
        }
        assert_eq!(count, KEYS, "{round}");
    }
}

/// An end that is moved no more keeps nothing for the other's sake.
#[test]
fn both_ends_let_go_at_a_step_of_one() {
    // One memtable is more than may be pinned, and its iterator is made before anybody knows.
    let rounds = Rounds::with(&SimDisk::new(1), 16 << 10);
    (1..3).for_each(|round| rounds.put(round));
    let mut iter = rounds.keyspace.iter();
    check(iter.next_back(), KEYS - 1, 2);
    check(iter.next(), 0, 2);
    rounds.flush();
    let spills = || rounds.db.stats().spills;
    assert!(rounds.pinned() > BUDGET_BYTES / 8 && spills() == 0, "{}", rounds.pinned());
    check(iter.next(), 1, 2);
    rounds.executor.run_until_idle();
    assert_eq!((rounds.pinned(), spills()), (0, 1));
    check(iter.next_back(), KEYS - 2, 2);
    check(iter.next(), 2, 2);
    assert_eq!(iter.count() as u64, KEYS - 5);
}

/// Whoever is visited may write as much as he likes: what is walked is what was there.
#[test]
fn a_visit_goes_on_over_what_its_visitor_has_had_flushed() {
    let rounds = Rounds::on(&SimDisk::new(1));
    let mut resting = Vec::new();
    for round in 1..5 {
        rounds.put(round);
        resting.push(rounds.keyspace.iter());
    }
    let mut number = 0;
    let visited = rounds.keyspace.iter().visit(|found, value| {
        assert_eq!((found, value), (&key(number)[..], &[4; 30][..]));
        number += 1;
        rounds.put(100 + number as u8);
        rounds.flush();
        assert!(rounds.pinned() <= BUDGET_BYTES / 8 + ALL_MEMTABLES_BYTES);
        ControlFlow::Continue(())
    });
    visited.unwrap();
    assert_eq!(number, KEYS);
    assert!(rounds.db.stats().spills > 0);
}

/// Where the table of its own cannot be read an iterator says so, for ever; others go on.
#[test]
fn an_iterator_whose_table_cannot_be_read_fails_alone_and_for_ever() {
    let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let rounds = Rounds::on(&disk);
    let mut iters = Vec::new();
    for round in 0..30 {
        rounds.put(round);
        let mut iter = rounds.keyspace.iter();
        check(iter.next(), 0, round);
        check(iter.next_back(), KEYS - 1, round);
        iters.push(iter);
    }
    rounds.flush();
    assert!(rounds.db.stats().spills > 10, "{}", rounds.db.stats());
    disk.fail(Fault::at(0).of(&[OperationKind::Read]).on_paths_with("table").from_then_on());
    let (last, first) = (iters.split_off(15), iters);
    let mut failed = 0;
    for mut iter in first {
        // What was fetched ahead is still shown.
        let met = iter.by_ref().find_map(Result::err);
        if let Some(error) = met {
            failed += 1;
            for again in [iter.next(), iter.next_back(), iter.next()] {
                let again = again.expect("an error").expect_err("it failed before");
                assert_eq!(again.to_string(), error.to_string());
            }
        }
    }
    assert!(failed > 5, "{failed}");
    disk.clear_faults();
    for (round, mut iter) in (15..30).zip(last) {
        check(iter.next(), 1, round);
        check(iter.next_back(), KEYS - 2, round);
        assert_eq!(iter.count() as u64, KEYS - 4, "{round}");
    }
}

/// Real threads: memtables are taken from iterators while these go on.
#[test]
fn iterators_show_one_moment_while_their_memtables_are_taken() {
    // Of each walker; more while nothing is taken.
    const STEPS: u64 = 6000;
    let executor = Arc::new(ThreadExecutor::new(3).unwrap());
    let db = Database::builder("/db")
        .disk(Arc::new(SimDisk::new(1)))
        .executor(executor.clone())
        .memtable_bytes(4 << 10)
        .memory_budget_bytes(BUDGET_BYTES)
        .log_segment_bytes(4 << 10)
        .open()
        .unwrap();
    let options = KeyspaceOptions::default().block_bytes(512).partition_bytes(8 << 10);
    let keyspace = db.keyspace("k", options).unwrap();
    let put = |round: u64| {
        let mut batch = db.batch();
        (0..KEYS).for_each(|n| batch.insert(&keyspace, key(n), round.to_be_bytes()));
        batch.commit().unwrap();
    };
    put(0);
    let walking = AtomicUsize::new(2);
    thread::scope(|scope| {
        for walker in 0..2 {
            let (db, keyspace, walking) = (&db, &keyspace, &walking);
            scope.spawn(move || {
                let mut random = Random::new(walker);
                let mut under_way: Vec<(Iter, Option<Vec<u8>>, u64)> = Vec::new();
                for step in 0..100 * STEPS {
                    if step >= STEPS && step % 100 == 0 && db.stats().spills > 20 {
                        break;
                    }
                    if under_way.len() < 30 {
                        under_way.push((keyspace.iter(), None, 0));
                    }
                    let at = random.below(under_way.len() as u64) as usize;
                    let (iter, round, count) = &mut under_way[at];
                    let entry = if random.below(2) == 0 { iter.next() } else { iter.next_back() };
                    match entry {
                        Some(entry) => {
                            let value = entry.unwrap().1.to_vec();
                            assert_eq!(*round.get_or_insert_with(|| value.clone()), value);
                            *count += 1;
                        }
                        None => {
                            assert_eq!(*count, KEYS);
                            under_way.swap_remove(at);
                        }
                    }
                }
                walking.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // Not for ever, if one of them fails.
        (1..100_000).take_while(|_| walking.load(Ordering::Relaxed) > 0).for_each(put);
    });
    db.wait_idle().unwrap();
    assert!(db.stats().spills > 0, "{}", db.stats());
    // The last flush may hold what it flushed for a moment more.
    executor.wait_until(&mut || db.stats().pinned_memory_bytes == 0);
}

/// Writers filled memtables faster than what snapshots keep of them was spilled, and nobody held them back: 50 MiB were pinned
/// of a budget of 16.
#[test]
fn writers_wait_while_much_more_is_pinned_than_may_be() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path()).memory_budget_bytes(16 << 20).memtable_bytes(1 << 20);
    let db = db.open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let (mut snapshots, mut most) = (Vec::new(), 0);
    for number in 0..160_000u64 {
        keyspace.insert(number.to_be_bytes(), [number as u8; 100]).unwrap();
        if number % 2000 == 0 {
            snapshots.push((number, db.snapshot()));
            most = most.max(db.stats().pinned_memory_bytes);
        }
    }
    // Half of the budget and a memtable, and those that are full meanwhile.
    assert!(most < 13 * MIB, "{most} bytes pinned, {}", db.stats());
    assert!(most > 2 * MIB && db.stats().spills > 5, "too little happened: {}", db.stats());
    for (number, snapshot) in &snapshots {
        let last = snapshot.last_key_value(&keyspace).unwrap().unwrap();
        assert_eq!(*last.0, number.to_be_bytes());
    }
}
