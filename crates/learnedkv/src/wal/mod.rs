//! The write-ahead log: one for the database, in segments.
//!
//! A commit goes through four calls, the first under the engine's commit lock:
//! 1. [`Log::reserve`] gives it sequence numbers and a place, in the same order.
//! 2. [`Log::publish`] writes the record there. Published bytes survive the death of the process.
//! 3. The memtables take it.
//! 4. [`Log::complete`] waits for every earlier commit and makes this one visible.
//!
//! [`Log::sync`] makes them durable, for all who wait at once (group commit).
//!
//! Invariants:
//! 1. Sequence numbers and places in the log have the same order, without gaps.
//! 2. `synced <= visible <` the next number to be given out.
//! 3. A segment's name is durable before its first record is reserved.
//! 4. Segment numbers are never reused, and grow in the order the segments are used in.
//! 5. A segment is removed, or its file used again ([`segments`]), only after an edit that no longer names it
//!    is durable.
//!
//! The log never knows a memtable or a table. Reading it back is [`recovery`].

mod copy;
mod reading;
pub mod recovery;
mod retention;
mod segments;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use self::segments::{Purpose, Segment, Spare, create_segment, next_at};
pub use self::segments::{segment_id, segment_path, small_segment_bytes};

use crate::disk::{Disk, LogRegion, Reservation};
use crate::error::{Error, ErrorKind, Result};
use crate::format::entry::{ExternalPosition, MAX_SEQUENCE, SequenceNumber};
use crate::format::log::{
    MAX_BATCH_COUNT, RecordHeader, SEGMENT_HEADER_BYTES, record_bytes, write_record,
};

/// The region of a log that takes nothing.
#[derive(Debug)]
struct NoRegion;

impl LogRegion for NoRegion {
    fn capacity_bytes(&self) -> u64 {
        0
    }

    fn reserve(&self, _length_bytes: usize) -> Option<Reservation> {
        None
    }

    fn publish(&self, _: Reservation, _fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        Err(broken(None))
    }

    fn sync(&self, _up_to_bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// A segment that may still be needed.
#[derive(Debug, Clone)]
struct Kept {
    id: u64,
    /// The sequence number of its first record.
    first: SequenceNumber,
    /// That of its last; `None` while it is the active one.
    last: Option<SequenceNumber>,
    /// Where it ended, if in an earlier life of the database.
    ended: Option<u64>,
    /// How much of it was reserved, once it has ended. What lies behind that nobody has written to: its memory was made ready at
    /// most, and a sync is not to write it.
    reserved_bytes: u64,
    /// What its file takes.
    size_bytes: u64,
    /// Its bytes, until it is synced as a whole; of one that was made for short syncs, as long as it may be used again.
    segment: Option<Arc<Segment>>,
}

#[derive(Debug)]
struct Order {
    active: Arc<Segment>,
    /// How much of it is reserved.
    active_bytes: u64,
    next: SequenceNumber,
    /// Segments in the order of their numbers, the active one last.
    kept: Vec<Kept>,
}

/// How often a commit looks whether the one before it is done before it sleeps.
const SPINS: usize = 128;

impl Order {
    fn go_on_in(&mut self, segment: Arc<Segment>) {
        let (last, first) = (self.next - 1, self.next);
        if let Some(kept) = self.kept.last_mut() {
            (kept.last, kept.reserved_bytes) = (Some(last), self.active_bytes);
        }
        let size_bytes = segment.region.capacity_bytes();
        self.kept.push(Kept {
            id: segment.id,
            first,
            last: None,
            ended: None,
            reserved_bytes: 0,
            size_bytes,
            segment: Some(segment.clone()),
        });
        self.active.region.end();
        self.active = segment;
        self.active_bytes = 0;
    }
}

/// A commit's place in the log.
#[derive(Debug)]
#[must_use = "a reserved place that is not published holds up every later commit"]
pub struct Ticket {
    segment: Arc<Segment>,
    reservation: Reservation,
    length_bytes: u64,
    header: RecordHeader,
}

impl Ticket {
    /// The sequence number of the commit's first operation.
    pub fn first(&self) -> SequenceNumber {
        self.header.first
    }

    /// The sequence number of its last operation.
    pub fn last(&self) -> SequenceNumber {
        self.header.last()
    }

    /// Whether it is the one with which the next segment is to be made: the first of its own, or that with which enough of it is
    /// used. Or with which more of the memory of this one is to be made ready.
    pub fn asks_for_more(&self) -> bool {
        let offset = self.reservation.offset_bytes();
        let reserved = offset..offset + self.length_bytes;
        let at = self.segment.next_at_bytes.max(SEGMENT_HEADER_BYTES as u64 + 1);
        reserved.start < at && at <= reserved.end || self.segment.asks_for_memory(&reserved)
    }
}

/// The log. See the module page.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    database: u64,
    segment_bytes: u64,
    /// The disk is full: segments are made small.
    frugal: AtomicBool,
    /// Each commit is synced, if nothing else is asked for.
    synced_often: bool,
    /// How often an active segment was synced since the last one was made.
    active_syncs: AtomicU64,
    order: Mutex<Order>,
    spare: Mutex<Spare>,
    /// Segments whose files and memory are kept to be used again.
    recycled: Mutex<Vec<Segment>>,
    segments_made: AtomicU64,
    segments_recycled: AtomicU64,
    /// Held by each copy that is written: it may read files of segments that left the log.
    copies: Arc<()>,
    visible: AtomicU64,
    synced: AtomicU64,
    turns: sync::Turns,
    /// How often something was synced.
    syncs: AtomicU64,
    /// Why a record could not be written or synced: nothing more is reserved or synced.
    broken: OnceLock<Error>,
    /// The first record that could not be written, if any: it and nothing later can ever become visible.
    hole: AtomicU64,
    /// Commits that are complete but for earlier ones: first and last number.
    complete: Mutex<BTreeMap<SequenceNumber, SequenceNumber>>,
    /// Commits that wait for earlier ones longer than a short spin.
    waiting: AtomicUsize,
    gate: Mutex<()>,
    moved: Condvar,
}

impl Log {
    /// Begins a life of the log: a fresh segment, numbered `next_segment`, its name durable. It is a small one; those that follow
    /// are larger, up to `segment_bytes`.
    /// Sequence numbers go on after `last`; `ended` are the segments of earlier lives. On a full disk
    /// begin it `frugal`; see [`Log::set_frugal`]. `synced_often`: each commit is synced, mostly.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn begin(
        disk: Arc<dyn Disk>,
        dir: &Path,
        database: u64,
        segment_bytes: u64,
        recovered: &recovery::Recovered,
        frugal: bool,
        synced_often: bool,
    ) -> Result<Log> {
        let id = recovered.next_segment;
        let bytes = small_segment_bytes(segment_bytes);
        let sizes = (bytes, if frugal { 0 } else { next_at(bytes, segment_bytes, synced_often) });
        // Whoever opens waits for it.
        let made_for = Purpose { synced_often, is_written: false, made: Duration::ZERO };
        let active = create_segment((&*disk, dir), database, (id, sizes), made_for, None)?;
        let mut log = Log::after(disk, dir, database, segment_bytes, recovered, active.clone());
        log.set_frugal(frugal);
        log.synced_often = synced_often;
        lock(&log.order).kept.push(Kept {
            id,
            first: recovered.last + 1,
            last: None,
            ended: None,
            reserved_bytes: 0,
            size_bytes: active.region.capacity_bytes(),
            segment: Some(active),
        });
        Ok(log)
    }

    /// A log that was only read: all that was recovered is visible, and nothing can be added.
    pub fn read_only(
        disk: Arc<dyn Disk>,
        dir: &Path,
        database: u64,
        recovered: &recovery::Recovered,
    ) -> Log {
        let nowhere = Arc::new(Segment {
            id: recovered.next_segment,
            region: Arc::new(NoRegion),
            synced_often: false,
            made: Duration::ZERO,
            syncs: AtomicU64::new(0),
            ready_bytes: AtomicU64::new(0),
            next_at_bytes: 0,
        });
        let log = Log::after(disk, dir, database, 0, recovered, nowhere);
        log.break_log(&broken(None));
        log
    }

    fn after(
        disk: Arc<dyn Disk>,
        dir: &Path,
        database: u64,
        segment_bytes: u64,
        recovered: &recovery::Recovered,
        active: Arc<Segment>,
    ) -> Log {
        let ended = recovered.ended.iter().map(|e| Kept {
            id: e.segment,
            first: e.first,
            last: Some(e.last),
            ended: Some(e.end),
            reserved_bytes: e.end,
            size_bytes: e.end,
            segment: None,
        });
        let (next, next_number) = (recovered.last + 1, active.id + 1);
        let last_bytes = active.region.capacity_bytes();
        Log {
            disk,
            dir: dir.to_owned(),
            database,
            segment_bytes,
            frugal: AtomicBool::new(false),
            synced_often: false,
            active_syncs: AtomicU64::new(0),
            order: Mutex::new(Order { active, active_bytes: 0, next, kept: ended.collect() }),
            spare: Mutex::new(Spare { ready: None, next_number, time: Duration::ZERO, last_bytes }),
            recycled: Mutex::default(),
            segments_made: AtomicU64::new(0),
            segments_recycled: AtomicU64::new(0),
            copies: Arc::default(),
            visible: AtomicU64::new(recovered.last),
            synced: AtomicU64::new(recovered.last),
            turns: sync::Turns::default(),
            syncs: AtomicU64::new(0),
            broken: OnceLock::new(),
            hole: AtomicU64::new(SequenceNumber::MAX),
            complete: Mutex::default(),
            waiting: AtomicUsize::new(0),
            gate: Mutex::new(()),
            moved: Condvar::new(),
        }
    }

    /// The highest sequence number that readers see, with all before it.
    pub fn visible(&self) -> SequenceNumber {
        self.visible.load(Ordering::Acquire)
    }

    /// The highest sequence number known to be durable, in the log or in tables, with all before it.
    pub fn synced(&self) -> SequenceNumber {
        self.synced.load(Ordering::Acquire)
    }

    /// The last sequence number given out.
    pub fn reserved(&self) -> SequenceNumber {
        lock(&self.order).next - 1
    }

    /// How often it was synced, for one commit or many.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// What the segments take on disk, with those that are kept to be used again.
    pub fn size_bytes(&self) -> u64 {
        let again = self.recyclable() as u64 * self.segment_bytes;
        again + lock(&self.order).kept.iter().map(|k| k.size_bytes).sum::<u64>()
    }

    /// The numbers of the segments it keeps.
    pub fn segments(&self) -> Vec<u64> {
        lock(&self.order).kept.iter().map(|k| k.id).collect()
    }

    /// Gives a commit of `count` operations, `payload_bytes` long, its numbers and its place.
    ///
    /// # Errors
    /// `DiskFull` or `Io` if a new segment is needed and cannot be had; nothing is given out then.
    /// `InvalidArgument` if the batch is too large for a record.
    pub fn reserve(
        &self,
        payload_bytes: usize,
        count: u32,
        external_position: Option<ExternalPosition>,
    ) -> Result<Ticket> {
        if count == 0 || count > MAX_BATCH_COUNT || u32::try_from(payload_bytes).is_err() {
            return Err(Error::invalid(format!(
                "a batch may hold 1 to {MAX_BATCH_COUNT} operations and {} bytes, \
                 found {count} and {payload_bytes}",
                u32::MAX
            )));
        }
        let length = record_bytes(payload_bytes, external_position.is_some());
        let mut order = lock(&self.order);
        if order.next + u64::from(count) > MAX_SEQUENCE {
            return Err(Error::invalid("the database has used up its 2^56 sequence numbers"));
        }
        let reservation = match order.active.region.reserve(length) {
            Some(reservation) => reservation,
            None => {
                self.next_segment(&mut order, length as u64)?;
                let reservation = order.active.region.reserve(length);
                reservation.expect("a fresh segment has room for the record it was made for")
            }
        };
        order.active_bytes = reservation.offset_bytes() + length as u64;
        let header = RecordHeader {
            segment: order.active.id,
            first: order.next,
            count,
            synced: self.synced(),
            external_position,
        };
        order.next += u64::from(count);
        let (segment, length_bytes) = (order.active.clone(), length as u64);
        Ok(Ticket { segment, reservation, length_bytes, header })
    }

    /// Ends the active segment and goes on in a fresh one with room for `length_bytes`.
    fn next_segment(&self, order: &mut Order, length_bytes: u64) -> Result<()> {
        let wanted = length_bytes + SEGMENT_HEADER_BYTES as u64;
        // Segments follow one another in the order of their numbers, so a spare that is too small
        // is used all the same, empty, and the next is made large enough.
        let mut spare = lock(&self.spare);
        loop {
            let segment = match spare.ready.take() {
                Some(segment) => segment,
                None => {
                    let syncs = self.active_syncs.load(Ordering::Relaxed);
                    // Also in an old file: a commit is not to remove that.
                    self.create_segment(&mut spare, wanted, syncs, Duration::MAX)?
                }
            };
            let enough = segment.region.capacity_bytes() >= wanted;
            order.go_on_in(segment);
            if enough {
                return Ok(());
            }
        }
    }

    /// Ends the active segment if it is half full and the next is ready. Done where a memtable is
    /// sealed: its flush then syncs whole segments, which nobody writes to any more. Where the log holds nothing else
    /// that is needed, the flush syncs nothing if a segment ends here: an eighth is enough. (Segments are about as long as what fills a
    /// memtable. One that was begun in the midst of that would be left so by each memtable after it.)
    pub fn end_segment(&self, holds_only_this: bool) {
        let mut order = lock(&self.order);
        let share = if holds_only_this { 8 } else { 2 };
        if order.active_bytes * share < order.active.region.capacity_bytes() {
            return;
        }
        // Not waited for: a rotation is in the way of commits.
        let spare = self.spare.try_lock().ok().and_then(|mut spare| spare.ready.take());
        if let Some(segment) = spare {
            order.go_on_in(segment);
        }
    }

    /// Writes the record of `payload` to its place.
    ///
    /// # Errors
    /// Any error of the disk: then nothing later can become visible, and the log is broken.
    pub fn publish(&self, ticket: Ticket, payload: &[u8]) -> Result<()> {
        let Ticket { segment, reservation, header, .. } = ticket;
        let (database, offset) = (self.database, reservation.offset_bytes());
        let written = segment.region.publish(reservation, &mut |buffer| {
            write_record(buffer, database, offset, &header, payload);
        });
        written.inspect_err(|e| {
            // First that nothing can be synced any more: whoever stops waiting for the hole leaves unsynced what
            // he had taken to sync.
            self.break_log(e);
            self.hole.fetch_min(header.first, Ordering::SeqCst);
            self.wake();
        })
    }

    /// Makes a published commit visible, after all before it; with it those after it that are
    /// complete and waited for it.
    ///
    /// # Errors
    /// `Poisoned` if an earlier commit's record could not be written.
    pub fn complete(&self, first: SequenceNumber, last: SequenceNumber) -> Result<()> {
        {
            let mut complete = lock(&self.complete);
            if self.visible() + 1 != first {
                complete.insert(first, last);
                drop(complete);
                return self.await_visible(last);
            }
            let mut visible = last;
            while let Some(last) = complete.remove(&(visible + 1)) {
                visible = last;
            }
            // In one order with `waiting`: either a waiter sees this, or we see the waiter.
            self.visible.store(visible, Ordering::SeqCst);
        }
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _gate = lock(&self.gate);
            self.moved.notify_all();
        }
    }

    /// Why nothing can be synced any more, if so.
    fn check_whole(&self) -> Result<()> {
        self.broken.get().map_or(Ok(()), |cause| Err(broken(Some(cause))))
    }

    /// Nothing can be synced any more.
    fn break_log(&self, cause: &Error) {
        let _ = self.broken.set(cause.clone());
        self.wake();
    }

    /// Waits for commits that other threads are publishing: a copy and an insert each. Also where a sync has failed, or a
    /// later record: they become visible all the same.
    fn await_visible(&self, sequence: SequenceNumber) -> Result<()> {
        let pending = || self.visible.load(Ordering::SeqCst) < sequence;
        for _ in 0..SPINS {
            if !pending() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        // The thread we wait for may not be running.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut gate = lock(&self.gate);
        while pending() && sequence < self.hole.load(Ordering::SeqCst) {
            gate = self.moved.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        drop(gate);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if pending() { Err(broken(self.broken.get())) } else { Ok(()) }
    }

    /// Waits until all that was reserved is visible. Nobody may reserve meanwhile.
    ///
    /// # Errors
    /// `Poisoned` if a record could not be written.
    pub fn await_reserved(&self) -> Result<()> {
        self.await_visible(self.reserved())
    }
}

fn broken(cause: Option<&Error>) -> Error {
    let why = cause.map_or(String::new(), |cause| format!(" ({cause})"));
    Error::new(
        ErrorKind::Poisoned,
        format!(
            "a log record could not be written or synced earlier{why}; reads go on, writes do not: \
             reopen the database to recover what is on the disk"
        ),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
