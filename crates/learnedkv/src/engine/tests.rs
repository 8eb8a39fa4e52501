//! What the engine promises between its parts, each shown without chance.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicIsize, AtomicUsize};
use std::sync::mpsc;
use std::time::Duration;

use crate::memory::Shared;

use super::*;
use crate::Database;
use crate::disk::sim::{SimDisk, Stage};
use crate::disk::{Access, OperationKind};
use crate::executor::{SeededExecutor, ThreadExecutor};
use crate::format::batch::put_op;
use crate::format::compression::Compression;
use crate::format::entry::Kind;
use crate::value_log::segment_path;

fn engine(disk: &SimDisk, executor: Arc<dyn Executor>) -> Arc<Engine> {
    let options = DatabaseOptions::default();
    open(Arc::new(disk.clone()), executor, Path::new("/db"), options).unwrap().0
}

/// A commit of one operation on keyspace 1.
fn commit_of<'a>(payload: &'a Shared, streamed: &'a [Streamed]) -> Commit<'a> {
    Commit { payload, count: 1, keyspaces: &[1], streamed, external_position: None }
}

/// A rotation between the two looks: the number belongs to the View after it, not to the one before.
#[test]
fn a_view_that_changed_while_the_number_was_read_is_looked_at_again() {
    let (before, after) = (Arc::new("before"), Arc::new("after"));
    let (rotated, reads) = (Cell::new(false), Cell::new(0));
    let look = || Box::new(if rotated.get() { after.clone() } else { before.clone() });
    let read = || {
        rotated.set(true);
        reads.set(reads.get() + 1);
        reads.get()
    };
    let (seen, value) = while_unchanged(look, read);
    assert_eq!((**seen, value), ("after", 2));
}

/// Between the two, a flush asked what the log must keep, and a record that only a memtable was
/// about to hold was forgotten.
#[test]
fn a_memtable_expects_numbers_before_they_are_given_out() {
    let disk = SimDisk::new(1);
    let engine = engine(&disk, Arc::new(SeededExecutor::new(1)));
    let (name, options) = ("k".to_owned(), KeyspaceOptions::default().encode());
    let create = |_: &State| Some(vec![Change::CreateKeyspace { keyspace: 1, name, options }]);
    assert!(engine.edit(0, &Opened::default(), create, |_| {}).unwrap());
    let reserved = Arc::new(AtomicUsize::new(0));
    let (seen, watched) = (reserved.clone(), engine.clone());
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::Reserve && operation.stage == Stage::Before {
            let first = watched.view().keyspaces.get(&1).unwrap().active.first_sequence();
            assert_eq!(first, 1, "a place in the log is given out that nobody keeps");
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    let payload =
        engine.payloads.encode(1, 64, |out| put_op(out, 1, Kind::Value, b"key", b"value"));
    let commit = commit_of(&payload, &[]);
    engine.commit(commit, Durability::Buffered).unwrap();
    disk.stop_observing();
    assert_eq!(reserved.load(Ordering::Relaxed), 1, "no place was given out");
}

/// A keyspace was dropped between a commit's look at its memtable and its pointer: the value's segment was in
/// nobody's keeping, and stayed until the next open.
#[test]
fn a_streamed_value_goes_with_a_keyspace_dropped_amid_its_commit() {
    let disk = SimDisk::new(1);
    let engine = engine(&disk, Arc::new(SeededExecutor::new(1)));
    let (name, options) = ("k".to_owned(), KeyspaceOptions::default().encode());
    let create = |_: &State| Some(vec![Change::CreateKeyspace { keyspace: 1, name, options }]);
    assert!(engine.edit(0, &Opened::default(), create, |_| {}).unwrap());
    let mut streamed =
        [engine.stream(b"key", &mut &[7; 5000][..], 1 << 20, Compression::None).unwrap()];
    let path = segment_path(engine.dir(), streamed[0].segment().id());
    let logged = streamed[0].logged();
    let payload =
        engine.payloads.encode(1, 64, |out| put_op(out, 1, Kind::Pointer, b"key", &logged));
    let watched = engine.clone();
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::Reserve && operation.stage == Stage::Before {
            let change = |_: &State| Some(vec![Change::DropKeyspace { keyspace: 1 }]);
            assert!(watched.edit(0, &Opened::default(), change, |_| {}).unwrap());
        }
    });
    let commit = commit_of(&payload, &streamed);
    let committed = engine.commit(commit, Durability::Buffered);
    disk.stop_observing();
    engine.settle_streams(&mut streamed, &committed.map(|()| true));
    drop(streamed);
    assert!(disk.open(&path, Access::Random).is_ok());
    engine.bury();
    assert!(disk.open(&path, Access::Random).is_err(), "the value is still there");
}

/// Whoever waited for a flush or a sweep slept for ever when another thread's sync failed.
#[test]
fn poisoning_wakes_whoever_waits() {
    let engine = engine(&SimDisk::new(1), Arc::new(ThreadExecutor::new(2).unwrap()));
    let (looked, has_looked) = mpsc::channel();
    let (woke, has_woken) = mpsc::channel();
    let waiting = engine.clone();
    std::thread::spawn(move || {
        waiting.executor.wait_until(&mut || {
            looked.send(()).unwrap();
            !waiting.health.is_well()
        });
        woke.send(()).unwrap();
    });
    has_looked.recv().unwrap();
    engine.poison(&Error::new(ErrorKind::Io, "a sync failed"));
    has_woken.recv_timeout(Duration::from_secs(60)).expect("the waiter sleeps on");
    assert_eq!(engine.health.check_writable().unwrap_err().kind(), ErrorKind::Poisoned);
    engine.executor.shutdown();
}

/// A seeded executor that tells of each wait before it begins.
struct Waits {
    inner: SeededExecutor,
    told: Mutex<Box<dyn FnMut() + Send>>,
    /// How many are in a hurry, and were while somebody waited for jobs.
    hurried: AtomicIsize,
    hurried_waiting: AtomicIsize,
}

impl Waits {
    fn new() -> Arc<Waits> {
        let told: Box<dyn FnMut() + Send> = Box::new(|| {});
        let (inner, told) = (SeededExecutor::new(1), Mutex::new(told));
        let (hurried, hurried_waiting) = (AtomicIsize::new(0), AtomicIsize::new(0));
        Arc::new(Waits { inner, told, hurried, hurried_waiting })
    }
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Executor for Waits {
    fn spawn(&self, job: Box<dyn crate::executor::Job>) {
        self.inner.spawn(job);
    }

    fn notify(&self) {
        self.inner.notify();
    }

    fn hurry(&self, begins: bool) {
        self.hurried.fetch_add(if begins { 1 } else { -1 }, Ordering::Relaxed);
    }

    fn wait_until(&self, ready: &mut dyn FnMut() -> bool) {
        self.hurried_waiting.store(self.hurried.load(Ordering::Relaxed), Ordering::Relaxed);
        self.inner.wait_until(ready);
    }

    fn give_way(&self) -> bool {
        self.inner.give_way()
    }

    fn pause(&self, duration: Duration) {
        lock(&self.told)();
        self.inner.pause(duration);
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn shutdown(&self) {
        self.inner.shutdown();
    }

    fn is_stopped(&self) -> bool {
        self.inner.is_stopped()
    }
}

/// It paid before it was committed, while others changed what it had seen; then afterwards, but holding all
/// that it had read from: files that were to be given back.
#[test]
fn a_conditional_commit_pays_when_it_is_done_and_has_let_go_of_what_it_saw() {
    let waits = Waits::new();
    let engine = engine(&SimDisk::new(1), waits.clone());
    let (name, options) = ("k".to_owned(), KeyspaceOptions::default().encode());
    let create = |_: &State| Some(vec![Change::CreateKeyspace { keyspace: 1, name, options }]);
    assert!(engine.edit(0, &Opened::default(), create, |_| {}).unwrap());
    let put = |key: &[u8]| {
        engine.payloads.encode(1, 8192, |out| put_op(out, 1, Kind::Value, key, &[7; 5000]))
    };
    let payload = put(b"another");
    let commit = commit_of(&payload, &[]);
    engine.commit(commit, Durability::Buffered).unwrap();
    engine.press(1, pace::FULL);

    let seen = engine.look();
    let view = Arc::downgrade(seen.keyspace(1).unwrap());
    let active = seen.keyspace(1).unwrap().active.clone();
    let held = Arc::strong_count(&active);
    let was_read = seen.read(1);
    assert!(Arc::strong_count(&active) <= held, "nor is its memtable");
    drop(active);
    assert!(view.upgrade().is_some(), "it is the View of now");
    engine.rotate(1).unwrap();
    assert!(view.upgrade().is_none(), "what was read is held, though the commit may wait for room");
    let waited = Arc::new(AtomicUsize::new(0));
    let (count, watching) = (waited.clone(), engine.clone());
    *lock(&waits.told) = Box::new(move || {
        assert_eq!(watching.log.visible(), 2, "not committed yet");
        assert!(view.upgrade().is_none(), "what it saw is held");
        count.fetch_add(1, Ordering::Relaxed);
    });
    let payload = put(b"key");
    let commit = commit_of(&payload, &[]);
    let watched = Watched { keyspace: 1, first: b"key", last: Some(b"key") };
    let durability = Durability::Buffered;
    let tried = engine.commit_unless_changed(commit, durability, &was_read, watched);
    assert_eq!(tried.unwrap(), Tried::Done);
    assert!(waited.load(Ordering::Relaxed) > 0, "it paid nothing");
}

/// What settles leaves the program a processor, but not while writers pay, or somebody waits for all of it.
#[test]
fn there_is_a_hurry_while_a_keyspace_is_pressed_or_somebody_waits_for_all() {
    let waits = Waits::new();
    let engine = engine(&SimDisk::new(1), waits.clone());
    let hurried = || waits.hurried.load(Ordering::Relaxed);
    let mut seen = vec![hurried()];
    for (keyspace, pressure) in [(1, 1), (2, pace::FULL), (1, 0), (2, 0), (3, 7)] {
        engine.press(keyspace, pressure);
        seen.push(hurried());
    }
    engine.press_none_but(|keyspace| keyspace == 3);
    seen.push(hurried());
    engine.press_none_but(|_| false);
    seen.push(hurried());
    assert_eq!(seen, [0, 1, 1, 1, 0, 1, 1, 0]);

    for (ahead, always) in [(false, 0), (true, 1)] {
        let waits = Waits::new();
        let db = Database::builder("/db").disk(Arc::new(SimDisk::new(1))).executor(waits.clone());
        let db = db.sweeps_ahead(ahead).open().unwrap();
        db.wait_idle().unwrap();
        let of = |count: &AtomicIsize| count.load(Ordering::Relaxed);
        assert_eq!((of(&waits.hurried_waiting), of(&waits.hurried)), (always + 1, always));
    }
}

/// What the manifest's state and the View say alike was held twice: of keys of 60 kB as much as the data.
#[test]
fn state_and_view_share_what_tables_and_keyspaces_say() {
    let disk = SimDisk::new(1);
    for life in 0..2 {
        let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
        let db = builder.executor(Arc::new(SeededExecutor::new(1))).open().unwrap();
        let usual = KeyspaceOptions::default().partition_bytes(64 << 10);
        let others = usual.clone().block_bytes(8 << 10);
        for (name, options) in [("a", &usual), ("b", &usual), ("c", &others)] {
            let keyspace = db.keyspace(name, options.clone()).unwrap();
            keyspace.insert(format!("key{life}"), "value").unwrap();
            keyspace.flush().unwrap();
        }
        if life == 0 {
            db.find("a").unwrap().convert().unwrap();
        }
        let engine = db.engine();
        let view = engine.view();
        let mut tables = 0;
        let compare = |state: &State| {
            for (id, keyspace) in &state.keyspaces {
                let shown = view.keyspaces.get(id).unwrap();
                let settled = keyspace.partitions.iter().flat_map(|p| &p.base);
                for record in keyspace.runs.iter().flatten().chain(settled) {
                    let table = shown.tables.all().find(|table| table.id() == record.id).unwrap();
                    assert!(Arc::ptr_eq(&table.record().properties, &record.properties));
                    tables += 1;
                }
            }
            let options: Vec<_> = state.keyspaces.values().map(|k| k.options.clone()).collect();
            assert!(Arc::ptr_eq(&options[0], &options[1]) && options[1] != options[2]);
            None
        };
        assert!(!engine.edit(0, &Opened::default(), compare, |_| {}).unwrap());
        assert_eq!(tables, 3 * (life + 1));
        let options: Vec<_> = view.keyspaces.values().map(|k| k.options.clone()).collect();
        assert!(Arc::ptr_eq(&options[0], &options[1]) && options[1] != options[2]);
    }
}
