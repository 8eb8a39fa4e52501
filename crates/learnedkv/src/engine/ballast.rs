//! Room held back on the disk, so that a full one stops puts cleanly, and nothing else.
//!
//! The file [`BALLAST`] holds space and no content. Two states:
//! * **Held**: the space is reserved. Puts are taken.
//! * **Given up**: all of it but [`kept_bytes`] went back to the disk. Puts are refused with `DiskFull`
//!   before anything is written for them; so are ingests and new keyspaces. Removals, flushes, sweeps,
//!   dropped keyspaces and conversions go on with that space; log segments are made small.
//!
//! Held becomes given up only in [`Engine::give_up_ballast`]: one of those that may go on met a full disk,
//! and tries once more. Given up becomes held only in [`Engine::retake_ballast`]: the whole ballast could
//! be reserved again, and the disk said before that it has room for a log segment and a memtable
//! besides. Both happen under one lock. It is tried at each put, and every [`RETRY`] by a job:
//! nobody tells us when others make room.
//!
//! **Why what goes on finds room.** While the ballast is given up no put reaches the log or a memtable, so
//! what is to be written is bounded: the memtables there are, and tombstones. Half of what was given up is
//! for flushes and removals, half for settling ([`Engine::check_left`]):
//! * A flush writes no more than its memtable's bytes, and then lets the log segments of these go. A removal
//!   is a record in a small log segment, and then part of a memtable.
//! * One job settles, alone; what others had begun for a disk with room they drop, and their output is
//!   removed. It waits for flushes. A step of a sweep writes a partition's bytes at most, by measure (what
//!   tombstones leave of a partition is only guessed when it is planned), and only what is alive: nothing
//!   that was removed or overwritten since, though that is not settled yet. Then it lets go of what it
//!   replaced. So a step takes more than it gives only for fresh entries that are alive, whose old place
//!   goes when the sweep is over, or with the table that it stood in. Such a one after which less than the half would be left
//!   is dropped, and a table of the frozen part is trimmed ([`crate::tiered`]): of what is settled and what newer tables
//!   hide, which needs room for the rest of it alone. If nothing comes of that either, the sweep stops with `DiskFull`. Once
//!   more is removed it goes on: removals have the other half, and are converted each time that they have taken an eighth of
//!   what was given up: all who remove then wait for that.
//! * Values in segments are written anew only where their segment is mostly dead, and what lives in it finds room in half of what
//!   settling may take; that segment then goes. While a conversion is waited for, sweeps follow one another as long as each
//!   gives segments back.
//! * What a snapshot shows does not come free, and is not counted so. Who else has an old View for long (an
//!   iterator) nobody knows, but that what was replaced since the disk was full has not come free: as much
//!   less counts of what is replaced next. So of the other half an iterator costs a step at most.
//! * A merge of runs frees space only at its end: it waits for sweeps, and begins only where its output has
//!   room. Filters that would only rest in their files are not written; what is rewritten later has
//!   them again.
//!
//! So a conversion ends if what is fresh and alive finds room in half of the ballast: always, where all was
//! removed. Files that were replaced go when nobody reads them any more, and another job removes them: work
//! that meets a full disk removes them first, and is begun again if that gave room ([`RoomSeen`]).
//!
//! **Opening.** An open writes a manifest and a log segment before it removes the old ones. That much
//! stays held while the database is open, and only an open that meets a full disk uses it: so a database
//! that ran into a full disk can be opened, whenever it died. What an open takes it reserves again
//! once the old manifest is gone.
//!
//! Nothing here is synced. A crash may leave the file shorter, but then the disk has the space.
//! Where it cannot be reserved for another reason than a full disk, the database does without.

mod refused;
mod room;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Engine, Work, lock};
use crate::disk::{Access, Disk, File};
use crate::error::{Error, ErrorKind, MAKE_ROOM, Result};
use crate::executor::{Job, Step};
use crate::format::batch::{Op, Ops};
use crate::format::entry::{KeyspaceId, Kind};
use crate::format::log::record_bytes;
use crate::manifest::{LEAST_RESERVE_BYTES, Manifest};
use crate::options::DatabaseOptions;
use crate::view::View;
use crate::wal::{Log, small_segment_bytes};

pub use self::room::RoomSeen;
use self::{refused::Removals, room::BY_NOW};

/// The file that holds the space.
pub const BALLAST: &str = "BALLAST";

/// The largest part of the disk that it is.
const LARGEST_SHARE: u64 = 8;
/// How often a full disk is looked at again.
pub const RETRY: Duration = Duration::from_secs(1);
/// `CURRENT`, directory entries and the like.
const SMALL_FILES_BYTES: u64 = 64 << 10;

/// Below this the smallest tables and segments, in whole blocks of the file system, take too large a share.
const LEAST_BYTES: u64 = 512 << 10;

/// Each removal is a record, and an entry of a table, before it gives anything back: they might take all that is held back,
/// and then nothing could be settled. So it is settled when they have taken a part of it, of so many.
const SETTLED_SHARES: u64 = 8;

/// What an open needs before it can remove anything, bytes: a manifest of the whole state, and a small
/// log segment.
pub fn kept_bytes(manifest: &Manifest, options: &DatabaseOptions) -> u64 {
    let manifest = (2 * manifest.state_bytes()).next_multiple_of(LEAST_RESERVE_BYTES);
    manifest + small_segment_bytes(options.log_segment_bytes) + SMALL_FILES_BYTES
}

/// How large the ballast is, bytes: two partitions, but no more than tables and a memtable take (of which no more is filled than
/// the log has room for), and than a [part](LARGEST_SHARE) of the disk; besides what is kept for an open.
fn wanted_bytes(
    disk: &dyn Disk,
    dir: &Path,
    options: &DatabaseOptions,
    view: &View,
    log: &Log,
) -> u64 {
    if let Some(bytes) = options.ballast_bytes {
        return bytes;
    }
    let unflushed = (options.memtable_bytes as u64).min(log.capacity_bytes());
    let (partition, tables) = (view.keyspaces.partition_bytes(), view.keyspaces.table_bytes());
    let wanted = (2 * partition).min(tables + unflushed).max(LEAST_BYTES);
    match disk.room(dir) {
        Some(room) => wanted.min(room.total_bytes / LARGEST_SHARE),
        None => wanted,
    }
}

/// See the module page.
#[derive(Debug)]
pub struct Ballast {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    held: Mutex<Held>,
    given_up: AtomicBool,
    /// How often it was given up.
    times: AtomicU64,
    /// How often room was reserved for a moment, begun and ended.
    probed: AtomicU64,
    /// What was retired by then and had not come free, bytes.
    retired_before: AtomicU64,
    /// What removals took of the log and of tables since then, bytes.
    removals: AtomicU64,
    /// Whether what was removed is to be settled before anything else is.
    settles_next: AtomicBool,
    /// Held while what was removed is settled. No job takes it.
    settling: Mutex<()>,
    /// Whether a put was refused since that was looked at.
    has_refused: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    file: Option<Arc<dyn File>>,
    /// What is reserved now.
    bytes: u64,
    /// What is reserved while it is held.
    wanted: u64,
    /// What is left when it is given up.
    kept: u64,
}

impl Ballast {
    /// One that holds nothing, of a database in `dir`.
    pub fn none(disk: &Arc<dyn Disk>, dir: &Path) -> Ballast {
        Ballast {
            disk: disk.clone(),
            path: dir.join(BALLAST),
            held: Mutex::default(),
            given_up: AtomicBool::new(false),
            times: AtomicU64::new(0),
            probed: AtomicU64::new(0),
            retired_before: AtomicU64::new(0),
            removals: AtomicU64::new(0),
            settles_next: AtomicBool::new(false),
            settling: Mutex::default(),
            has_refused: AtomicBool::new(false),
        }
    }

    /// Gives all up that an earlier life held, for an open that met a full disk. False: there was nothing.
    pub fn spend(disk: &dyn Disk, dir: &Path) -> bool {
        let Ok(file) = disk.open(&dir.join(BALLAST), Access::Random) else { return false };
        file.length_bytes().is_ok_and(|bytes| bytes > 0) && file.truncate(0).is_ok()
    }

    /// Reserves the ballast of a database that was just opened; given up where there is no room for it.
    pub fn begin(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        options: &DatabaseOptions,
        manifest: &Manifest,
        view: &View,
        log: &Log,
    ) -> Ballast {
        let ballast = Ballast::none(disk, dir);
        let wanted = wanted_bytes(&**disk, dir, options, view, log);
        if wanted == 0 && options.ballast_bytes.is_some() {
            // What cannot be removed holds nothing worth a word.
            let _ = disk.remove(&ballast.path);
            return ballast;
        }
        let kept = kept_bytes(manifest, options);
        let file = match disk.open(&ballast.path, Access::Random) {
            Err(e) if e.kind() == ErrorKind::NotFound => disk.create(&ballast.path),
            opened => opened,
        };
        let is_full = match file {
            Ok(file) => {
                let mut held = lock(&ballast.held);
                *held = Held { file: Some(file), bytes: 0, wanted: kept + wanted, kept };
                // First what the next open needs.
                held.reserve(kept)
                    .and_then(|()| held.reserve(kept + wanted))
                    .and_then(|()| held.cut())
            }
            Err(e) => Err(e),
        };
        ballast.given_up.store(is_disk_full(&is_full), Ordering::Release);
        ballast
    }

    /// Whether puts are refused.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// How often it was given up so far.
    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }

    /// What is reserved now.
    pub fn held_bytes(&self) -> u64 {
        lock(&self.held).bytes
    }

    /// Gives it up, unless it was since it had been so `seen` times. False: there was nothing to give.
    fn give_up(&self, seen: u64, retired_bytes: u64) -> bool {
        let mut held = lock(&self.held);
        if self.times() != seen {
            return true;
        }
        if self.is_given_up() || held.bytes <= held.kept {
            return false;
        }
        self.retired_before.store(retired_bytes, Ordering::Relaxed);
        self.removals.store(0, Ordering::Relaxed);
        self.settles_next.store(false, Ordering::Relaxed);
        // First, so that no put takes what comes free.
        self.given_up.store(true, Ordering::Release);
        held.shrink();
        // Last: whoever knows of it before there is room meets a full disk, and would not begin again.
        self.times.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Counts a removal of so many bytes. Whether what was removed is to be settled before it goes on: once for each of
    /// [`SETTLED_SHARES`] that removals take of what was given up.
    fn counts_removal(&self, bytes: u64) -> bool {
        let share = lock(&self.held).given_bytes() / SETTLED_SHARES;
        let before = self.removals.fetch_add(bytes, Ordering::Relaxed);
        share > 0 && before / share != (before + bytes) / share
    }

    /// Reserves it again, if there is room for it and for `margin_bytes` besides.
    fn retake(&self, margin_bytes: u64) -> bool {
        let mut held = lock(&self.held);
        if !self.is_given_up() {
            return true;
        }
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let needed = held.wanted.saturating_sub(held.bytes) + margin_bytes;
        if self.disk.room(dir).is_some_and(|room| room.free_bytes < needed) {
            return false;
        }
        let wanted = held.wanted;
        if is_disk_full(&held.reserve(wanted)) {
            return false;
        }
        self.given_up.store(false, Ordering::Release);
        true
    }

    /// Reserves more, where the database has grown.
    fn grow(&self, kept: u64, wanted: u64) {
        let mut held = lock(&self.held);
        let kept = kept.max(held.kept);
        let total = kept + wanted.max(held.given_bytes());
        // Where there is no room for more, it stays as it is.
        if held.file.is_some()
            && !self.is_given_up()
            && total > held.wanted
            && held.reserve(total).is_ok()
        {
            (held.kept, held.wanted) = (kept, total);
        }
    }
}

/// Work that must go on is tried so often again while there may be room: files that are kept for later may come
/// again meanwhile.
const TRIES: usize = 4;

fn is_disk_full(result: &Result<()>) -> bool {
    matches!(result, Err(e) if e.kind() == ErrorKind::DiskFull)
}

impl Held {
    /// Has `bytes` reserved; where that fails, as many as before.
    fn reserve(&mut self, bytes: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let before = self.bytes;
        if let Err(e) = file.preallocate(bytes) {
            // Part of it may be taken.
            let _ = file.truncate(before);
            return Err(e);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Gives back what an earlier life held beyond what is wanted now.
    fn cut(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if file.length_bytes()? > self.bytes { file.truncate(self.bytes) } else { Ok(()) }
    }

    /// What comes free when it is given up.
    fn given_bytes(&self) -> u64 {
        self.wanted.saturating_sub(self.kept)
    }

    fn shrink(&mut self) {
        if let Some(file) = &self.file {
            // A file that cannot be cut gives nothing; whoever needs it meets the full disk again.
            let _ = file.truncate(self.kept);
        }
        self.bytes = self.kept;
    }
}

/// Whether the operations of a payload only remove.
fn only_removes(payload: &[u8]) -> bool {
    let removes = |op: Op<'_>| matches!(op.kind, Kind::Tombstone | Kind::RangeTombstone);
    Ops::new(payload).all(|op| op.is_ok_and(removes))
}

impl Engine {
    /// Does `work` that is to go on when the disk is full: if it met that, again, once there may be room, by
    /// what is only kept for later and then by the ballast.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_ballast<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            let mut seen = self.room_seen();
            match work() {
                Err(e) if e.kind() == ErrorKind::DiskFull && self.may_have_room(&mut seen) => {}
                done => return done,
            }
        }
        work()
    }

    /// Gives the ballast up for work that met a full disk, and knew of `seen` when it began. True: there
    /// may be room now. False: nothing was given up, and no file removed, since it began.
    pub fn give_up_ballast(&self, seen: RoomSeen) -> bool {
        // What is only kept for later comes first.
        let given = self.log.give_back();
        if given > 0 {
            self.burials.note(given as u64);
            return true;
        }
        if self.remove_spare() {
            return true;
        }
        let given = self.ballast.give_up(seen.given_up, self.retired_bytes());
        self.log.set_frugal(self.ballast.is_given_up());
        self.executor.notify();
        // What was retired takes space until it is removed, and the job that does that may be behind.
        self.bury();
        given || self.burials.count() != seen.buried
    }

    /// Whether puts are taken, perhaps by now.
    pub fn retake_ballast(&self) -> bool {
        let margin = self.options.log_segment_bytes + self.options.memtable_bytes as u64;
        if !self.ballast.is_given_up() {
            return true;
        }
        // What was replaced takes space until it is removed, and the job that does that may be behind.
        self.bury();
        let retaken = self.ballast.retake(margin);
        if retaken {
            self.log.set_frugal(false);
            self.health.ask_again();
            self.executor.notify();
        }
        retaken
    }

    /// Refuses what needs more space while the disk is full.
    ///
    /// # Errors
    /// `DiskFull`, saying where, how much is free, and what to do; the state of health before that.
    pub fn check_room(&self) -> Result<()> {
        self.health.check_writable()?;
        if self.retake_ballast() {
            return Ok(());
        }
        self.ballast.has_refused.store(true, Ordering::Relaxed);
        Err(self.full())
    }

    /// The same for a commit: those that only remove go on.
    pub(super) fn check_room_for(&self, payload: &[u8]) -> Result<()> {
        let is_refused = self.ballast.is_given_up() && !only_removes(payload);
        if is_refused { self.check_room() } else { Ok(()) }
    }

    /// The same right before it gets its place in the log. Each removal waits while what was removed is settled: else they would
    /// take the room for that meanwhile.
    pub(super) fn admit(&self, payload: &[u8]) -> Result<()> {
        self.check_room_for(payload)?;
        if self.ballast.is_given_up() {
            let turn = lock(&self.ballast.settling);
            if self.ballast.settles_next.swap(false, Ordering::Relaxed) {
                // What it replaced may have come free only when it had given up: somebody was still reading there.
                let may_go_further = || {
                    let before = self.burials.count();
                    !self.settle_removals(payload) && {
                        self.bury();
                        self.ballast.is_given_up() && self.burials.count() != before
                    }
                };
                (0..TRIES).all(|_| may_go_further());
            }
            drop(turn);
        }
        Ok(())
    }

    /// Counts what was removed while the ballast is given up: whether what was removed is to be settled before the next goes on.
    pub(super) fn count_removal(&self, payload: &[u8]) {
        if !self.ballast.is_given_up() {
            return;
        }
        // In the log, and then in a table.
        let bytes = record_bytes(payload.len(), false) + payload.len();
        if self.ballast.counts_removal(bytes as u64) {
            self.ballast.settles_next.store(true, Ordering::Relaxed);
        }
    }

    /// Has the keyspaces that a payload removes from be converted, and waits for it. False: something stopped that.
    fn settle_removals(&self, payload: &[u8]) -> bool {
        let ids: BTreeSet<_> = Ops::new(payload).flatten().map(|op| op.keyspace).collect();
        let ask = |id| (id, lock(&self.conversions).ask(id));
        let asked: Vec<_> = ids.into_iter().map(ask).collect();
        let since = self.health.ask_again();
        self.executor.notify();
        let is_done = |(id, number): &(KeyspaceId, u64)| {
            lock(&self.conversions).outcome(*id, *number).is_some() || self.keyspace(*id).is_err()
        };
        let is_over = |asked: &(KeyspaceId, u64)| {
            let works = [Work::Flush(asked.0), Work::Settle(asked.0)];
            is_done(asked) || self.health.check_work(&works, since).is_err()
        };
        self.executor.wait_until(&mut || asked.iter().all(is_over));
        asked.iter().all(is_done)
    }

    /// The same where a put that was let in may have been overtaken. Under `commit`.
    pub(super) fn recheck_room_for(&self, payload: &[u8]) -> Result<()> {
        let refused = self.ballast.is_given_up() && !only_removes(payload);
        if refused { Err(self.full()) } else { Ok(()) }
    }

    /// Gives a commit its place in the log. Removals find room on a full disk. A put for which not even a segment of the usual
    /// size finds any gives the ballast up: it is refused, and what settles the keyspaces goes on.
    pub(super) fn with_ballast_if_removing<T>(
        &self,
        payload: &[u8],
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let is_full = |done: &Result<T>| matches!(done, Err(e) if e.kind() == ErrorKind::DiskFull);
        let is_usual = record_bytes(payload.len(), false) as u64 <= self.options.log_segment_bytes;
        for _ in 0..TRIES {
            match work() {
                done if !is_full(&done) => return done,
                _ if only_removes(payload) => return self.with_ballast(work),
                _ if self.remove_spare() => continue,
                _ if !is_usual => break,
                _ => {}
            }
            if !self.give_up_ballast(self.room_seen()) || self.ballast.is_given_up() {
                break;
            }
        }
        if self.ballast.is_given_up() {
            self.ballast.has_refused.store(true, Ordering::Relaxed);
        }
        Err(self.full())
    }

    /// What is refused while the ballast is given up; `None` while it is held.
    pub fn full_error(&self) -> Option<Error> {
        self.ballast.is_given_up().then(|| self.full())
    }

    /// That there is no room, how much there is, and what to do.
    pub fn full(&self) -> Error {
        let held = lock(&self.ballast.held);
        let needed = held.wanted.saturating_sub(held.bytes)
            + self.options.log_segment_bytes
            + self.options.memtable_bytes as u64;
        let room = self.disk().room(self.dir()).map(|room| room.free_bytes);
        let free =
            room.map_or("an unknown number of bytes".to_owned(), |free| format!("{free} bytes"));
        let message = if self.ballast.is_given_up() {
            let since = if room.is_some_and(|free| free >= needed) { BY_NOW } else { "" };
            format!(
                "the disk is full: {free} are free here{since}, {needed} are needed before puts are taken again; \
                 {MAKE_ROOM}. Reads, removals, flushes and conversions go on"
            )
        } else {
            format!(
                "the disk is full: {free} are free here, too few for this write; {} more are held back for \
                 removals, flushes and conversions; {MAKE_ROOM}",
                held.bytes
            )
        };
        Error::new(ErrorKind::DiskFull, message).at_path(self.dir()).advise(String::new)
    }

    /// Has the ballast grow with the database.
    fn fit_ballast(&self) {
        if self.options.ballast_bytes != Some(0) {
            let guard = lock(&self.manifest);
            let Some(manifest) = &*guard else { return };
            let kept = kept_bytes(manifest, &self.options);
            drop(guard);
            let (disk, view) = (&**self.disk(), self.view());
            let wanted = wanted_bytes(disk, self.dir(), &self.options, &view, &self.log);
            self.ballast.grow(kept, wanted);
        }
    }
}

/// Has the ballast grow; while it is given up, looks for room every [`RETRY`].
#[derive(Debug)]
pub struct BallastJob {
    engine: Arc<Engine>,
    /// When it looks next, and how much was free when it looked last.
    next: Duration,
    free_bytes: u64,
    /// What was removed by then.
    removed: Removals,
}

impl BallastJob {
    /// That of `engine`.
    pub fn new(engine: &Arc<Engine>) -> BallastJob {
        BallastJob {
            engine: engine.clone(),
            next: Duration::ZERO,
            free_bytes: 0,
            removed: Removals::default(),
        }
    }
}

impl Job for BallastJob {
    fn name(&self) -> &'static str {
        "ballast"
    }

    fn step(&mut self) -> Step {
        let engine = &self.engine;
        if engine.health.check_writable().is_err() {
            return Step::Wait;
        }
        if !engine.ballast.is_given_up() {
            engine.fit_ballast();
            (self.removed, self.free_bytes) = (Removals::default(), 0);
            return Step::Wait;
        }
        let now = engine.executor.now();
        if now < self.next {
            return Step::WaitUntil(self.next);
        }
        self.next = now + RETRY;
        if engine.retake_ballast() {
            return Step::Wait;
        }
        engine.settle_for_refused(&mut self.removed);
        // There may be enough for what failed, or found no room to begin.
        let free_bytes = engine.disk().room(engine.dir()).map_or(u64::MAX, |room| room.free_bytes);
        if free_bytes > self.free_bytes {
            engine.health.ask_again();
            engine.executor.notify();
        }
        self.free_bytes = free_bytes;
        Step::WaitUntil(self.next)
    }
}
