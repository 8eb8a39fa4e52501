//! One client thread: asks, takes the time, checks the answer.
//!
//! The clock runs only while the engine works and a found value is copied (what a user of any
//! engine does with it); making values and checking them happens outside.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::arrivals::{Arrivals, Waiting};
use super::result::Tally;
use super::{Limits, Stage};
use crate::random::Rng;
use crate::requests::Chooser;
use crate::sizes::{show_count, show_key};
use crate::workloads::{Mix, Operation, READ_MANY_KEYS, WRITE_MANY_KEYS};
use crate::{Error, Result};

/// Longest scan, in entries; lengths are uniform from 1 (YCSB's default).
pub const MAX_SCAN_ENTRIES: u64 = 100;
/// Entries of a short scan.
const SHORT_SCAN_ENTRIES: u64 = 10;
/// How often a key that is there is drawn for: of all keys at least a part is.
const MOST_DRAWS: usize = 100_000;
/// Operations between two reports of progress.
const PROGRESS_EVERY: u64 = 64;

/// What a client shares with the thread that watches it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Operations done by all clients, roughly.
    pub done: AtomicU64,
    /// Set when a client failed: the others stop too.
    pub stop: AtomicBool,
}

/// One client thread's state.
pub struct Client<'a, 's> {
    stage: &'a Stage<'s>,
    limits: &'a Limits,
    progress: &'a Progress,
    thread: usize,
    rng: Rng,
    tally: Tally,
    /// The value being written.
    value: Vec<u8>,
    /// The value that was read.
    found: Vec<u8>,
    /// The value that should have been read.
    scratch: Vec<u8>,
    scan: ScanLog,
    /// Where in the load order this client looks for the next key to insert.
    next_insert: usize,
    /// When the operation that is done now was due, if operations come at a given rate.
    due: Option<Instant>,
}

/// What a scan returned, to be checked when the clock has stopped.
#[derive(Default)]
struct ScanLog {
    bytes: Vec<u8>,
    /// Key length and value length, per entry.
    entries: Vec<(u32, u32)>,
    /// The oldest version allowed, by rank from the scan's first on: 0 where a key was not there when it
    /// began.
    floors: Vec<u32>,
}

impl ScanLog {
    /// Forgets the last scan; the next is to return the keys of `ranks` that are there, `most` of them at
    /// most. Returns how many that are.
    fn begin(&mut self, stage: &Stage<'_>, ranks: Range<usize>, most: usize) -> usize {
        self.bytes.clear();
        self.entries.clear();
        self.floors.clear();
        let mut there = 0;
        for rank in ranks {
            if there == most {
                break;
            }
            let floor = stage.versions.floor(rank);
            there += usize::from(floor > 0);
            self.floors.push(floor);
        }
        there
    }

    /// Notes an entry.
    fn note(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push((key.len() as u32, value.len() as u32));
    }
}

impl<'a, 's> Client<'a, 's> {
    /// Client number `thread` (from 0) of a phase.
    pub fn new(
        stage: &'a Stage<'s>,
        limits: &'a Limits,
        progress: &'a Progress,
        thread: usize,
        seed: u64,
    ) -> Client<'a, 's> {
        let threads = limits.threads;
        Client {
            stage,
            limits,
            progress,
            thread,
            rng: Rng::seeded(seed ^ ((thread as u64 + 1) << 48)),
            tally: Tally::default(),
            value: Vec::new(),
            found: Vec::new(),
            scratch: Vec::new(),
            scan: ScanLog::default(),
            // Of the positions behind the load those are its own that are its number modulo all clients.
            next_insert: stage.loaded + (thread + threads - stage.loaded % threads) % threads,
            due: None,
        }
    }

    /// Inserts this client's part of all keys, in load order, `at_once` by one commit.
    ///
    /// # Errors
    /// If the engine failed.
    pub fn load(mut self, at_once: usize) -> Result<Tally> {
        let mut position = self.thread;
        let mut ranks = Vec::with_capacity(at_once);
        while position < self.stage.loaded && !self.progress.stop.load(Ordering::Relaxed) {
            ranks.clear();
            while ranks.len() < at_once && position < self.stage.loaded {
                ranks.push(self.stage.order.index_at(position));
                position += self.limits.threads;
            }
            if let [index] = ranks[..] {
                let time = self.write(index)?;
                self.record(Operation::Insert, time);
            } else {
                let time = self.write_many(&ranks)?;
                self.record(Operation::WriteMany, time);
            }
        }
        Ok(self.tally)
    }

    /// Removes this client's part of every other key of the load order, [`WRITE_MANY_KEYS`] by one
    /// commit.
    ///
    /// # Errors
    /// If the engine failed.
    pub fn remove(mut self) -> Result<Tally> {
        let stage = self.stage;
        let mut position = 2 * self.thread;
        while position < stage.keys.len() && !self.progress.stop.load(Ordering::Relaxed) {
            let mut ranks = Vec::with_capacity(WRITE_MANY_KEYS);
            while ranks.len() < WRITE_MANY_KEYS && position < stage.keys.len() {
                let rank = stage.order.index_at(position);
                ranks.extend(stage.versions.is_there(rank).then_some(rank));
                position += 2 * self.limits.threads;
            }
            let keys: Vec<_> = ranks.iter().map(|&rank| stage.keys.key(rank)).collect();
            let entries: Vec<_> = keys.iter().map(|key| (key.as_ref(), None)).collect();
            let start = Instant::now();
            stage.engine.write_many(&entries)?;
            let time = Span::since(start);
            ranks.iter().for_each(|&rank| stage.versions.remove(rank));
            self.record(Operation::RemoveMany, time);
        }
        Ok(self.tally)
    }

    /// Does `operations` operations of `mix`, or fewer if the time is over.
    ///
    /// # Errors
    /// If the engine failed.
    pub fn run(mut self, mix: &Mix, mut chooser: Chooser<'_>, operations: u64) -> Result<Tally> {
        let start = Instant::now();
        // Of those that were begun.
        let mut last_due = start;
        let deadline = self.limits.seconds.map(|s| start + Duration::from_secs_f64(s));
        let share = |rate: f64| rate / self.limits.threads as f64;
        let waiting = Waiting::of(self.limits.threads);
        let mut arrivals = self.limits.rate_per_second.map(share).map(Arrivals::begin);
        for done in 0..operations {
            if done.is_multiple_of(PROGRESS_EVERY) && self.progress.stop.load(Ordering::Relaxed) {
                break;
            }
            if let Some(arrivals) = &mut arrivals {
                let due = start + arrivals.next(&mut self.rng);
                // One that is late already is not begun when the time is over: the rate was not met.
                if deadline.is_some_and(|deadline| due.max(Instant::now()) >= deadline) {
                    break;
                }
                last_due = due;
                self.due = Some(arrivals.wait(waiting));
            } else if done.is_multiple_of(PROGRESS_EVERY)
                && deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                break;
            }
            let operation = mix.operation(self.rng.below(100));
            let time = self.operate(operation, &mut chooser)?;
            self.record(operation, time);
        }
        let share = (last_due - start).as_secs_f64() / start.elapsed().as_secs_f64().max(1e-9);
        self.tally.share_of_rate = arrivals.map(|_| share);
        Ok(self.tally)
    }

    /// One operation.
    fn operate(&mut self, operation: Operation, chooser: &mut Chooser<'_>) -> Result<Span> {
        if operation == Operation::Insert {
            return self.insert();
        }
        let index = self.choose(chooser, !operation.reads())?;
        match operation {
            Operation::Read => self.read(index),
            Operation::Update => self.write(index),
            Operation::ReadModifyWrite => {
                let read = self.read(index)?;
                Ok(read.then(self.write(index)?))
            }
            Operation::Scan => {
                let wanted = 1 + self.rng.below(MAX_SCAN_ENTRIES);
                self.scan(index, wanted)
            }
            Operation::ScanTen => self.scan(index, SHORT_SCAN_ENTRIES),
            Operation::RangeTen | Operation::RangeHundred | Operation::RangeThousand => {
                self.range(index, operation.span().unwrap_or_default())
            }
            Operation::ReadAbsent => self.read_absent(index),
            Operation::ReadMany => self.read_many(index, chooser),
            Operation::WriteMany => {
                let mut ranks = vec![index];
                for _ in 1..WRITE_MANY_KEYS {
                    ranks.push(self.choose(chooser, true)?);
                }
                // A version is one write's: a key that was drawn twice is written once.
                ranks.sort_unstable();
                ranks.dedup();
                self.write_many(&ranks)
            }
            Operation::Insert | Operation::RemoveMany => {
                unreachable!(
                    "inserts were done above, and no mix removes: reads would not know of it"
                )
            }
        }
    }

    /// Counts one operation.
    fn record(&mut self, operation: Operation, time: Span) {
        let service_ns = time.service.as_nanos() as u64;
        let latency_ns = match self.due {
            Some(due) => time.end.saturating_duration_since(due).as_nanos() as u64,
            None => service_ns,
        };
        self.tally.record(operation, service_ns, latency_ns);
        if self.tally.operations.is_multiple_of(PROGRESS_EVERY) {
            self.progress.done.fetch_add(PROGRESS_EVERY, Ordering::Relaxed);
        }
    }

    /// The rank next to `index` that this client may write.
    fn own(&self, index: usize) -> usize {
        let threads = self.limits.threads;
        let own = index - index % threads + self.thread;
        if own < self.stage.keys.len() { own } else { own - threads }
    }

    /// The rank of a key that is there, and this client's to write if it is to be its `own`. As YCSB has it,
    /// what is not there is drawn again.
    fn choose(&mut self, chooser: &mut Chooser<'_>, own: bool) -> Result<usize> {
        let versions = self.stage.versions;
        chooser.grow(versions.reached());
        for _ in 0..MOST_DRAWS {
            let drawn = chooser.next(&mut self.rng);
            let rank = if own { self.own(drawn) } else { drawn };
            if versions.is_there(rank) {
                return Ok(rank);
            }
        }
        Err(Error::usage(format!(
            "of {} keys a client found none in {MOST_DRAWS} draws that is there for it; ask for more keys or \
             fewer clients",
            show_count(self.stage.keys.len() as u64)
        )))
    }

    /// Inserts the next of this client's keys that are not there.
    fn insert(&mut self) -> Result<Span> {
        let stage = self.stage;
        while self.next_insert < stage.keys.len() {
            let position = self.next_insert;
            self.next_insert += self.limits.threads;
            let rank = stage.order.index_at(position);
            if !stage.versions.is_there(rank) {
                let span = self.write(rank)?;
                stage.versions.reach(position as u64 + 1);
                return Ok(span);
            }
        }
        Err(Error::usage(format!(
            "all {} keys are inserted; ask for more keys or fewer operations",
            show_count(stage.keys.len() as u64)
        )))
    }

    fn write(&mut self, index: usize) -> Result<Span> {
        let key = self.stage.keys.key(index);
        let key = key.as_ref();
        let version = self.stage.versions.begin(index);
        self.stage.values.fill(key, version, &mut self.value);
        let start = Instant::now();
        self.stage.engine.insert(key, &self.value)?;
        let span = Span::since(start);
        self.stage.versions.finish(index, version);
        self.tally.put_bytes += (key.len() + self.value.len()) as u64;
        Ok(span)
    }

    /// Writes the keys of `ranks`, which are distinct and this client's, by one commit.
    fn write_many(&mut self, ranks: &[usize]) -> Result<Span> {
        let stage = self.stage;
        let mut entries = Vec::with_capacity(ranks.len());
        let mut versions = Vec::with_capacity(ranks.len());
        for &index in ranks {
            let (key, version) = (stage.keys.key(index), stage.versions.begin(index));
            stage.values.fill(key.as_ref(), version, &mut self.value);
            self.tally.put_bytes += (key.as_ref().len() + self.value.len()) as u64;
            entries.push((key, self.value.clone()));
            versions.push(version);
        }
        let entries: Vec<_> =
            entries.iter().map(|(key, value)| (key.as_ref(), Some(&value[..]))).collect();
        let start = Instant::now();
        stage.engine.write_many(&entries)?;
        let span = Span::since(start);
        for (&index, version) in ranks.iter().zip(versions) {
            stage.versions.finish(index, version);
        }
        Ok(span)
    }

    fn read(&mut self, index: usize) -> Result<Span> {
        let key = self.stage.keys.key(index);
        let key = key.as_ref();
        let floor = self.stage.versions.floor(index);
        let found = &mut self.found;
        found.clear();
        let start = Instant::now();
        let present = self.stage.engine.get(key, &mut |value| found.extend_from_slice(value))?;
        let span = Span::since(start);
        let ceiling = self.stage.versions.ceiling(index);
        self.tally.checked += 1;
        if !present {
            self.tally.failures.add(|| {
                format!("key {}: expected version {floor} or newer, found nothing", show_key(key))
            });
        } else if let Err(mismatch) =
            self.stage.values.check(key, floor..=ceiling, &self.found, &mut self.scratch)
        {
            self.tally.failures.add(|| mismatch.to_string());
        }
        Ok(span)
    }

    /// Reads `first` and more keys as `chooser` says by one call.
    fn read_many(&mut self, first: usize, chooser: &mut Chooser<'_>) -> Result<Span> {
        let stage = self.stage;
        let mut ranks = vec![first];
        for _ in 1..READ_MANY_KEYS {
            ranks.push(self.choose(chooser, false)?);
        }
        let floors: Vec<_> = ranks.iter().map(|&rank| stage.versions.floor(rank)).collect();
        let keys: Vec<_> = ranks.iter().map(|&rank| stage.keys.key(rank)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut found: Vec<Option<Vec<u8>>> = vec![None; ranks.len()];
        let start = Instant::now();
        stage.engine.multi_get(&keys, &mut |i, value| found[i] = Some(value.to_vec()))?;
        let span = Span::since(start);
        for (((&rank, floor), key), found) in ranks.iter().zip(floors).zip(keys).zip(found) {
            let allowed = floor..=stage.versions.ceiling(rank);
            self.tally.checked += 1;
            match found.map(|found| stage.values.check(key, allowed, &found, &mut self.scratch)) {
                Some(Ok(_)) => {}
                Some(Err(mismatch)) => self.tally.failures.add(|| mismatch.to_string()),
                None => self.tally.failures.add(|| {
                    let key = show_key(key);
                    format!("key {key}, of many: expected version {floor} or newer, found nothing")
                }),
            }
        }
        Ok(span)
    }

    fn read_absent(&mut self, near: usize) -> Result<Span> {
        self.stage.keys.absent_near(near, &mut self.rng, &mut self.value);
        let start = Instant::now();
        let present = self.stage.engine.get(&self.value, &mut |_| {})?;
        let span = Span::since(start);
        self.tally.checked += 1;
        if present {
            let key = &self.value;
            self.tally.failures.add(|| {
                format!("key {}: expected nothing (never written), found a value", show_key(key))
            });
        }
        Ok(span)
    }

    fn scan(&mut self, first: usize, entries: u64) -> Result<Span> {
        let stage = self.stage;
        let wanted = self.scan.begin(stage, first..stage.keys.len(), entries as usize);
        let (start_key, log) = (stage.keys.key(first), &mut self.scan);
        let start = Instant::now();
        stage.engine.scan(start_key.as_ref(), &mut |key, value| {
            log.note(key, value);
            log.entries.len() < wanted
        })?;
        let span = Span::since(start);
        // Keys that came meanwhile may stand in the place of the last.
        let whole = self.scan.entries.len() < wanted;
        self.check_scan(first, wanted, whole);
        Ok(span)
    }

    /// Reads all from a key up to the one `apart` further on, which is not to be among them; less far
    /// where there are fewer keys.
    fn range(&mut self, near: usize, apart: usize) -> Result<Span> {
        let stage = self.stage;
        let last = stage.keys.len() - 1;
        let first = near.min(last.saturating_sub(apart));
        let end = first + apart.min(last - first);
        let wanted = self.scan.begin(stage, first..end, usize::MAX);
        let (from, to) = (stage.keys.key(first), stage.keys.key(end));
        let log = &mut self.scan;
        let start = Instant::now();
        stage.engine.range(from.as_ref(), to.as_ref(), &mut |key, value| {
            log.note(key, value);
            // The engine knows where it ends. One that does not is stopped.
            log.entries.len() <= end - first
        })?;
        let span = Span::since(start);
        self.check_scan(first, wanted, true);
        Ok(span)
    }

    /// Checks that the scan returned the keys from rank `first` on, in order, each with a value it may have:
    /// the `wanted` that were there when it began, to the last of them if it is to be `whole`; and no others
    /// but such as have come since.
    fn check_scan(&mut self, first: usize, wanted: usize, whole: bool) {
        let (keys, floors) = (self.stage.keys, &self.scan.floors);
        let (mut at, mut rank) = (0, first);
        for (i, &(key_length, value_length)) in self.scan.entries.iter().enumerate() {
            let value_at = at + key_length as usize;
            let end = value_at + value_length as usize;
            let (key, value) = (&self.scan.bytes[at..value_at], &self.scan.bytes[value_at..end]);
            at = end;
            self.tally.checked += 1;
            while floors.get(rank - first) == Some(&0) && keys.key(rank).as_ref() != key {
                rank += 1;
            }
            let Some(&floor) = floors.get(rank - first) else {
                self.tally
                    .failures
                    .add(|| format!("a scan of {wanted} entries went on after them"));
                return;
            };
            let expected = keys.key(rank);
            if key != expected.as_ref() {
                self.tally.failures.add(|| {
                    format!(
                        "scan entry {i}: expected key {}, found key {}",
                        show_key(expected.as_ref()),
                        show_key(key)
                    )
                });
                return;
            }
            let allowed = floor.max(1)..=self.stage.versions.ceiling(rank);
            if let Err(mismatch) = self.stage.values.check(key, allowed, value, &mut self.scratch) {
                self.tally.failures.add(|| format!("scan entry {i}: {mismatch}"));
            }
            rank += 1;
        }
        let mut left = rank..first + floors.len();
        if whole && let Some(lost) = left.find(|rank| floors[rank - first] > 0) {
            let (next, returned) = (keys.key(lost), self.scan.entries.len());
            self.tally.failures.add(|| {
                format!(
                    "a scan ended after {returned} of {wanted} entries; expected key {} next",
                    show_key(next.as_ref())
                )
            });
        }
    }
}

/// How long an operation took and when it ended.
#[derive(Clone, Copy)]
struct Span {
    service: Duration,
    end: Instant,
}

impl Span {
    fn since(start: Instant) -> Span {
        let end = Instant::now();
        Span { service: end - start, end }
    }

    /// This operation and then another, as one.
    fn then(self, next: Span) -> Span {
        Span { service: self.service + next.service, end: next.end }
    }
}
