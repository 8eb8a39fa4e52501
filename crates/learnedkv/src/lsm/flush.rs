//! Flush: a sealed memtable becomes the newest run.
//!
//! Steps: write the newest version of each key that no newer range covers, a piece at a time, long values
//! to a segment, the rest to a table; and the removed ranges, united; finish and sync both; one
//! edit that adds the run, raises the keyspace's flushed position and says what the log still keeps, of several
//! small flushes at once ([`super::group`]).
//! The oldest sealed memtable of a keyspace goes first, and only once all of it is visible. One that cannot
//! be flushed (over what cannot be read, say) keeps those of other keyspaces from nothing: it waits until
//! somebody asks, and comes last then. The log keeps its records meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::generation;
use super::group::{Finished, Group};
use super::output::{Moving, Output};
use super::shadow::Shadow;
use crate::cursor::{Cursor, MergeCursor, Seek, Source};
use crate::engine::{Engine, RoomSeen, Work};
use crate::error::{ErrorKind, Result};
use crate::executor::{Job, Priority, Step};
use crate::format::entry::KeyspaceId;
use crate::format::range::Ranges;
use crate::view::{KeyspaceView, Sealed, View};

/// Flushes whatever is sealed.
pub struct FlushJob {
    engine: Arc<Engine>,
    work: Option<Flush>,
    /// What is written, and not installed yet.
    group: Group,
    /// The keyspaces where it failed, and when; see `Health::asked`. They are tried again when somebody has
    /// asked since.
    failed: BTreeMap<KeyspaceId, u64>,
    /// What was begun last is one of these.
    was_again: bool,
    /// What was seen of the room there is when its work began.
    room_seen: RoomSeen,
}

struct Flush {
    keyspace: KeyspaceId,
    sealed: Sealed,
    cursor: MergeCursor,
    begun: bool,
    /// Between steps it holds no table of the View.
    output: Output,
}

impl FlushJob {
    /// A job that flushes what `engine` seals.
    pub fn new(engine: &Arc<Engine>) -> FlushJob {
        FlushJob {
            engine: engine.clone(),
            work: None,
            group: Group::default(),
            failed: BTreeMap::new(),
            was_again: false,
            room_seen: RoomSeen::default(),
        }
    }

    fn find(&mut self) -> Option<Flush> {
        let view = self.engine.view();
        let health = &self.engine.health;
        self.failed.retain(|id, _| {
            let stands = view.keyspaces.contains_key(id);
            if !stands {
                // Dropped: nobody misses it.
                health.forget(*id);
            }
            stands
        });
        let (keyspace, sealed) = self.next(&view)?;
        self.was_again = self.failed.contains_key(&keyspace.id);
        // Nothing of the View is held until the end: what is replaced meanwhile is to go.
        let sources = sealed.memtable.streamed.all();
        let (cursor, ranges) = entries(keyspace, sealed);
        let (options, apart) = (keyspace.options.lsm_table(), keyspace.options.fresh_apart());
        let output = Output::new(&self.engine, options, apart, &sources)
            .moving(Moving::Nothing)
            .with_shadow(Shadow::over_nothing())
            .with_ranges(ranges);
        let (versions, _) = sealed.memtable.counts();
        let output = match generation::of_flush(&self.engine, keyspace, versions) {
            Some(generation) => output.in_generation(generation, false),
            None => output,
        };
        let sealed = sealed.clone();
        Some(Flush { keyspace: keyspace.id, sealed, cursor, begun: false, output })
    }

    /// What is to be flushed next, and may be installed with what is written.
    fn next<'a>(&self, view: &'a View) -> Option<(&'a Arc<KeyspaceView>, &'a Sealed)> {
        let (visible, asked) = (self.engine.log.visible(), self.engine.health.asked());
        let of = |keyspace: &'a KeyspaceView| {
            let oldest = keyspace.sealed.last()?;
            (oldest.up_to <= visible && !self.group.holds(keyspace.id)).then_some(oldest)
        };
        let failed = |keyspace: &KeyspaceView| self.failed.get(&keyspace.id);
        // Of all keyspaces, the memtable with the oldest records: the log waits for it.
        let next = view.keyspaces.oldest_sealed(|k| of(k).filter(|_| failed(k).is_none()));
        // Of those that failed the one whose turn it is longest, though others fail each time, and are asked for, too.
        let again = self.failed.iter().filter(|(_, before)| **before != asked);
        let again = again.filter_map(|(id, before)| {
            let keyspace = view.keyspaces.get(id)?;
            Some((*before, keyspace, of(keyspace)?))
        });
        let again = again.min_by_key(|(before, _, sealed)| (*before, sealed.first_sequence()));
        let again = again.map(|(_, keyspace, sealed)| (keyspace, sealed));
        // In turn: neither waits until nothing is left of the others.
        let next = if self.was_again { next.or(again) } else { again.or(next) };
        next.filter(|(keyspace, sealed)| self.group.is_empty() || self.joins(keyspace.id, sealed))
    }

    /// Whether what is written may wait until this is too. Not where the disk is full: what is installed gives room.
    fn joins(&self, keyspace: KeyspaceId, sealed: &Sealed) -> bool {
        let most_bytes = self.engine.options.memtable_bytes;
        let is_alone = self.failed.contains_key(&keyspace) || self.engine.ballast.is_given_up();
        !is_alone && self.group.has_room_for(sealed.memtable.size_bytes(), most_bytes)
    }

    /// Writes on. Once all is written it is in the group.
    fn write(&mut self, mut flush: Flush) -> Result<()> {
        let view = self.engine.view();
        // Of another keyspace, too: it has to wait for this one.
        flush.output.be_quick(self.engine.awaits_flushes(&view));
        let now = view.keyspaces.get(&flush.keyspace);
        flush.output.look_at(now.map(|keyspace| keyspace.tables.clone()));
        drop(view);
        if !std::mem::replace(&mut flush.begun, true) {
            flush.cursor.seek(Seek::First)?;
        }
        if flush.output.copy(&mut flush.cursor, true, Some(u64::MAX))? {
            if flush.cursor.key().is_none() {
                let written = flush.output.finish()?;
                let Flush { keyspace, sealed, output, .. } = flush;
                self.group.push(Finished { keyspace, sealed, output, written });
                return Ok(());
            }
            flush.output.end_table()?;
        }
        flush.output.look_at(None);
        self.work = Some(flush);
        Ok(())
    }

    /// One step of its work.
    fn go_on(&mut self) -> Step {
        if self.engine.health.check_writable().is_err() {
            (self.work, self.group) = (None, Group::default());
            return Step::Wait;
        }
        let asked = self.engine.health.asked();
        if self.work.is_none() {
            self.engine.see_room(&mut self.room_seen);
        }
        let Some(flush) = self.work.take().or_else(|| self.find()) else {
            return if self.group.is_empty() { Step::Wait } else { self.install(asked) };
        };
        let keyspace = flush.keyspace;
        // What is large, or failed before, is installed at once.
        let may_wait = self.joins(keyspace, &flush.sealed);
        let written = self.write(flush);
        if written.is_err() {
            // Those in the group are well, and stay there.
            return self.note(&[keyspace], &written, asked);
        }
        if self.work.is_none() && !(may_wait && self.next(&self.engine.view()).is_some()) {
            return self.install(asked);
        }
        // Also after an error: others are flushed.
        Step::Again
    }

    /// Installs what is written.
    fn install(&mut self, asked: u64) -> Step {
        let group = std::mem::take(&mut self.group);
        let keyspaces = group.keyspaces();
        let installed = group.install(&self.engine);
        self.note(&keyspaces, &installed, asked)
    }

    /// Notes what became of a step of the flushes of `keyspaces`, begun when so much had been `asked`.
    fn note(&mut self, keyspaces: &[KeyspaceId], result: &Result<()>, asked: u64) -> Step {
        let is_full = matches!(result, Err(e) if e.kind() == ErrorKind::DiskFull);
        if is_full && self.engine.may_have_room(&mut self.room_seen) {
            // Begun again, with more room.
            return Step::Again;
        }
        self.room_seen.is_over();
        for &keyspace in keyspaces {
            match result {
                Ok(()) => self.failed.remove(&keyspace),
                Err(_) => self.failed.insert(keyspace, asked),
            };
            self.engine.note_work(Work::Flush(keyspace), result, asked);
        }
        self.engine.executor.notify();
        // Also after an error: others are flushed.
        Step::Again
    }
}

/// Flushes all that memtables of some keyspaces hold now, and waits for it. One that is dropped has none.
///
/// # Errors
/// The error that one of the flushes met.
pub fn flush(engine: &Engine, keyspaces: &[KeyspaceId]) -> Result<()> {
    let up_to = engine.rotate_all(keyspaces);
    let asked: BTreeSet<_> = keyspaces.iter().copied().collect();
    let works: Vec<_> = keyspaces.iter().copied().map(Work::Flush).collect();
    let pending = || {
        let view = engine.view();
        let mut sealed = view.keyspaces.with_sealed().filter(|k| asked.contains(&k.id));
        sealed.any(|k| k.sealed.iter().any(|s| s.up_to <= up_to))
    };
    let since = engine.health.ask_again();
    engine.executor.notify();
    let given_up = || engine.health.check_work(&works, since);
    engine.wait_until_done(&|| !pending(), &given_up)
}

/// What a flush writes: entries, and the ranges that its tables are to carry.
fn entries(keyspace: &KeyspaceView, sealed: &Sealed) -> (MergeCursor, Ranges) {
    let (memtable, up_to) = (&sealed.memtable, sealed.up_to);
    let sources = vec![Source::new(Box::new(memtable.cursor(up_to)), None)];
    // Over nothing ranges remove nothing.
    let is_first = keyspace.tables.all().next().is_none();
    let ranges = if is_first { Ranges::default() } else { memtable.ranges(up_to) };
    (MergeCursor::new(sources), ranges)
}

impl Job for FlushJob {
    fn name(&self) -> &'static str {
        "flush"
    }

    fn priority(&self) -> Priority {
        Priority::Urgent
    }

    fn step(&mut self) -> Step {
        let engine = self.engine.clone();
        engine.flushing(|| self.go_on())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::disk::faulty::{Fault, FaultyDisk};
    use crate::disk::sim::SimDisk;
    use crate::disk::{Disk, OperationKind};
    use crate::executor::SeededExecutor;
    use crate::format::entry::Kind;
    use crate::options::MAX_SEALED;
    use crate::tiered::testing::Without;
    use crate::value_log::Segments;
    use crate::{Database, KeyspaceOptions};

    fn open(disk: impl Disk + 'static) -> Database {
        Database::builder("/db")
            .disk(Arc::new(disk))
            .executor(Arc::new(SeededExecutor::new(1)))
            .memtable_bytes(16 << 10)
            .memory_budget_bytes(4 << 20)
            .log_segment_bytes(256 << 10)
            .open()
            .unwrap()
    }

    fn files(disk: &SimDisk) -> BTreeSet<String> {
        let names = disk.list(Path::new("/db")).unwrap().into_iter();
        names.filter(|name| name.starts_with("table-") || name.starts_with("values-")).collect()
    }

    /// A flush held all files of the View that it began with until its end.
    #[test]
    fn what_a_sweep_replaces_goes_while_a_flush_is_under_way() {
        let disk = SimDisk::new(1);
        let db = open(disk.clone());
        let options = KeyspaceOptions::default().separate_at(100).inline_limit(100);
        let keyspace = db.keyspace("k", options.partition_bytes(8 << 10)).unwrap();
        // One batch is in one memtable, however large: flushing it takes many steps.
        let put_all = |fill: u8| {
            let mut batch = db.batch();
            for number in 0..400u32 {
                batch.insert(&keyspace, number.to_be_bytes(), [fill; 50]);
                batch.insert(&keyspace, (1000 + number).to_be_bytes(), [fill; 150]);
            }
            batch.commit().unwrap();
        };
        put_all(1);
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let before = files(&disk);
        for kind in ["table-", "values-"] {
            assert!(before.iter().any(|name| name.starts_with(kind)), "{before:?}");
        }
        put_all(2);
        db.engine().rotate(1).unwrap();
        let mut job = FlushJob::new(db.engine());
        assert_eq!(job.step(), Step::Again);
        assert!(job.work.is_some(), "it is to be under way");
        // Beside it the same is flushed by the database's own job, and swept.
        keyspace.convert().unwrap();
        db.wait_idle().unwrap();
        let left: Vec<_> = before.intersection(&files(&disk)).cloned().collect();
        assert!(left.is_empty() && job.work.is_some(), "{left:?} of {before:?}");
        // It goes on by what stands now.
        assert_eq!(job.step(), Step::Again);
        assert!(job.work.is_some());
        drop(job);
        assert_eq!(keyspace.iter().filter(|entry| entry.as_ref().unwrap().1[0] == 2).count(), 800);
    }

    /// What a synced commit waited for longest was a flush on its processor, which let it in after 4 ms. A flush that writers wait for is
    /// another matter, also where those put into another keyspace: it did not look at that.
    #[test]
    fn a_flush_gives_way_unless_the_next_memtable_of_some_keyspace_waits_for_it() {
        let executor = Arc::new(Without(SeededExecutor::new(1), &["flush"]));
        let builder = Database::builder("/db").disk(Arc::new(SimDisk::new(1)));
        // Two are too much for one edit.
        let builder = builder.executor(executor.clone()).memtable_bytes(3 << 19);
        let db = builder.open().unwrap();
        let [other, keyspace] =
            ["j", "k"].map(|name| db.keyspace(name, KeyspaceOptions::default()).unwrap());
        for of in [&other, &keyspace, &keyspace] {
            for key in 0..1000u32 {
                of.insert(key.to_be_bytes(), [1; 1000]).unwrap();
            }
            db.engine().rotate(if of.name() == "j" { 1 } else { 2 }).unwrap();
        }
        let mut job = FlushJob::new(db.engine());
        let sealed = |of| db.engine().keyspace(of).unwrap().sealed.len();
        assert_eq!((sealed(1), sealed(2)), (1, MAX_SEALED));
        let mut offered = || {
            let (before, left) = (executor.0.ways_offered(), sealed(1) + sealed(2));
            while sealed(1) + sealed(2) == left {
                assert_eq!(job.step(), Step::Again);
            }
            executor.0.ways_offered() - before
        };
        assert_eq!((offered(), sealed(1)), (0, 0));
        assert_eq!(offered(), 0);
        // Of 1,020,000 bytes each 65,536.
        assert_eq!((offered(), sealed(2)), (15, 0));
    }

    /// It held them until its files were synced and its edit was durable: a base that a sweep had replaced took its space
    /// 150 ms longer, beside 64 MB that the flush wrote.
    #[test]
    fn a_flush_that_syncs_holds_no_tables() {
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
        let db = open(disk.clone());
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        keyspace.insert("key", "old").unwrap();
        keyspace.convert().unwrap();
        let view = db.engine().keyspace(1).unwrap();
        let (tables, options) = (&view.tables, view.options.lsm_table());
        let apart = view.options.fresh_apart();
        let output = Output::new(db.engine(), options, apart, &Segments::default());
        let mut output = output.with_shadow(Shadow::over_nothing());
        output.look_at(Some(tables.clone()));
        output.add(b"key", Kind::Value, 10, b"new").unwrap();
        let held = Arc::strong_count(tables);
        let faults = disk.fail(Fault::at(0).of(&[OperationKind::Sync]).from_then_on());
        assert!(output.finish().is_err() && faults.fired() == 1);
        assert_eq!(Arc::strong_count(tables), held - 1);
        disk.clear_faults();
    }

    /// It was by the share of keys that should be looked up, where a few more or less were: by a tenth for a flush of 30,000.
    #[test]
    fn what_updates_overwrite_is_known_though_few_are_looked_up() {
        let disk = SimDisk::new(1);
        let db = open(disk);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let put = |numbers: std::ops::Range<u32>| {
            let mut batch = db.batch();
            numbers.for_each(|n| batch.insert(&keyspace, n.to_be_bytes(), [n as u8; 40]));
            batch.commit().unwrap();
        };
        put(0..20_000);
        keyspace.convert().unwrap();
        let view = db.engine().keyspace(1).unwrap();
        let base = view.tables.partitions[0].base.as_ref().unwrap().properties();
        let each = base.data_bytes as f64 / base.entries as f64;
        for (keys, share) in [(0..20_000, 1.0), (15_000..25_000, 0.5)] {
            let all = keys.len() as f64;
            put(keys);
            db.engine().rotate(1).unwrap();
            let mut job = FlushJob::new(db.engine());
            while job.step() == Step::Again {}
            let view = db.engine().keyspace(1).unwrap();
            let found = view.tables.runs[0][0].properties();
            let entries = (found.shadowed_bytes + found.overwritten_bytes) as f64 / each;
            assert!(
                (entries / all - share).abs() < 0.3 * (1.0 - share) + 0.005,
                "{entries} of {all}"
            );
        }
    }
}
