//! Making segments: fresh, or in the file and the memory of one that is not needed any more.
//!
//! A segment that leaves the log is kept, instead of being removed, where all of this holds: it has the usual
//! size; its file is young ([`OLDEST_RECYCLED`]), or it was synced often and the next is to be, too; nobody holds it any more and it was
//! never unmapped, as one is that was synced as a whole and not made for short syncs ([`super::sync`]): so most of its
//! memory is ready, and what a sync let go is made so again; no copy
//! of the log is being written, which may read its file; the disk is not full. The next segment that is
//! made is its file renamed. Nothing is wiped: behind a segment's last record stand old ones, which say that
//! they are another segment's, and numbers are never reused. At most [`MOST_RECYCLED`] files are kept, for as
//! long as segments follow one another, or commits where they are synced ([`Log::usage`], [`Log::give_back`]).
//!
//! A fresh segment that nobody waits for yet, and whose records will be synced by ones and twos, is written full of zeros before it comes
//! into use: blocks that are only reserved are marked as written by the sync that first comes to each, which writes that down too.
//!
//! Crashes: a file that is kept still has its old name, which the manifest does not need any more (the edit
//! was durable before), so the next open removes it. The new name is durable before the first record is reserved
//! there, as a fresh one's is. The new header need not be: the old one says the same of the version, and recovery
//! believes no more of it (its sync would write the large folio of the page cache that it stands in now).
//! Only files of this life of the log are ever kept: what an earlier one has left, where a number may
//! have been given out without its name becoming durable, is never used again.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Kept, Log, lock};
use crate::disk::{Disk, LogRegion};
use crate::error::{Error, Result};
use crate::format::log::{SEGMENT_HEADER_BYTES, encode_segment_header};
use crate::format::name::{file_name, file_number};

/// The file of a segment.
pub fn segment_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(file_name("log", segment))
}

/// The segment whose file is named `name`.
pub fn segment_id(name: &str) -> Option<u64> {
    file_number("log", name)
}

/// How large a segment is made on a full disk, and the first of a life of the log, where usual ones have `segment_bytes`.
pub fn small_segment_bytes(segment_bytes: u64) -> u64 {
    (segment_bytes / 32).max(64 << 10).min(segment_bytes)
}

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) region: Arc<dyn LogRegion>,
    /// What its region expects ([`LogRegion::expect_syncs`]).
    pub(super) synced_often: bool,
    /// How often it was synced while it was active.
    pub(super) syncs: AtomicU64,
    /// When its file was made.
    pub(super) made: Duration,
    /// How much of its memory was made ready.
    pub(super) ready_bytes: AtomicU64,
    /// The next one is to be made once so much of it is reserved.
    pub(super) next_at_bytes: u64,
}

/// So much of a segment is written at a time before it comes into use: what commits sync meanwhile waits for no more.
const WRITTEN_BYTES: u64 = 256 << 10;
/// So much memory is made ready at a time (sixteen times as much took 2 to 7 ms), up to a multiple of it.
const READY_BYTES: u64 = 256 << 10;
/// Where records are synced every few, about so much is ready ahead of them, and no more: what is ready is dirty, and a sync that comes while the kernel writes
/// what has been so for half a minute waits for all of that (decision 75).
const READY_SYNCED_BYTES: u64 = 4 << 20;
/// Where pages are larger the system refuses the hint for a piece that begins within one.
const PAGE_BYTES: u64 = 4096;

/// Until segments have the usual size each is so many times as large as the one before.
const GROWTH: u64 = 4;
/// The one after it is made when one part in so many of it is used: of a database that is hardly written to there is one.
const USED_PART: u64 = 8;
/// Where each commit is synced: they are slower, and it is written.
const USED_PART_SYNCED: u64 = 2;

impl Segment {
    /// Whether it was synced while it was active, at least once for so much of it.
    fn was_synced(&self) -> bool {
        let often = self.region.capacity_bytes().div_ceil(SYNCED_BYTES);
        self.syncs.load(Ordering::Relaxed) >= often
    }

    /// The next piece of its memory that is to be made ready, behind what is reserved: pages below were let go if they were
    /// synced, and are not to be mapped again.
    fn unready(&self, reserved_bytes: u64) -> Option<Range<u64>> {
        let ready = self.ready_bytes.load(Ordering::Relaxed);
        let from = ready.max(reserved_bytes.next_multiple_of(PAGE_BYTES));
        if self.synced_often && from >= reserved_bytes + READY_SYNCED_BYTES {
            return None;
        }
        let to = (from / READY_BYTES + 1) * READY_BYTES;
        Some(from..to.min(self.region.capacity_bytes())).filter(|piece| !piece.is_empty())
    }

    /// Whether more of its memory is to be made ready once that is reserved.
    pub(super) fn asks_for_memory(&self, reserved: &Range<u64>) -> bool {
        let piece = |at_bytes: u64| at_bytes / READY_BYTES;
        self.synced_often && piece(reserved.start) != piece(reserved.end)
    }
}

/// What comes after the active segment. Numbers are given out under its lock, which is held until the
/// segment is made: none is given to a segment that comes into use before one of a smaller number.
#[derive(Debug)]
pub(super) struct Spare {
    /// The next segment, made ready so that no commit waits for it.
    pub(super) ready: Option<Arc<Segment>>,
    /// The number of the one after it.
    pub(super) next_number: u64,
    /// What time it was when one was made ready last.
    pub(super) time: Duration,
    /// How large the last one was made, bytes.
    pub(super) last_bytes: u64,
}

/// Where a segment was synced after so few bytes in the mean while it was active, the next that is made is made for
/// that: large folios would be written more than once.
const SHORT_SYNC_BYTES: u64 = 64 << 10;
/// And is written before it comes into use where these were so few: others fill segments faster than they are written.
const WRITTEN_FOR_BYTES: u64 = 8 << 10;
/// And its own file may be used again however old it is where it was synced after so few.
const SYNCED_BYTES: u64 = 1 << 20;
/// So many files of segments are kept to be used again: what one flush sets free, mostly.
pub(super) const MOST_RECYCLED: usize = 2;
/// Older files are not used again, but where records are synced every few. Linux writes what has been dirty for half a minute, and of a
/// file that stays all that is; of one that is removed before, nothing. Where records were synced, what is left is memory made ready and
/// not used, and a fresh file costs writing it once more; to remove one may hold up the device, and so each sync, for as long as 14 ms (decision 73).
pub(super) const OLDEST_RECYCLED: Duration = Duration::from_secs(20);

impl Log {
    /// Makes a segment with room for `wanted_bytes` (0: nobody waits for it), after one that was synced so often while it was active; in a file that is
    /// `oldest` at most, if one was kept.
    pub(super) fn create_segment(
        &self,
        spare: &mut Spare,
        wanted_bytes: u64,
        active_syncs: u64,
        oldest: Duration,
    ) -> Result<Arc<Segment>> {
        // A number whose segment could not be made is left out: recovery goes by sequence numbers.
        let id = spare.next_number;
        spare.next_number += 1;
        let before = spare.last_bytes;
        let is_frugal = self.frugal.load(Ordering::Relaxed);
        let usual = match is_frugal {
            true => small_segment_bytes(self.segment_bytes),
            false => before.saturating_mul(GROWTH).min(self.segment_bytes),
        };
        let bytes = usual.max(wanted_bytes);
        let synced_often = self.synced_often || active_syncs >= before.div_ceil(SHORT_SYNC_BYTES);
        let is_synced = self.synced_often || active_syncs >= before.div_ceil(WRITTEN_FOR_BYTES);
        let is_written = is_synced && wanted_bytes == 0;
        let purpose = Purpose { synced_often, is_written, made: spare.time };
        self.segments_made.fetch_add(1, Ordering::Relaxed);
        let again = self.begin_again(id, bytes, synced_often, spare.time.saturating_sub(oldest));
        let (made, again) = again.map_or((spare.time, None), |(made, region)| (made, Some(region)));
        let place = (&*self.disk, &*self.dir);
        let next_at_bytes =
            if is_frugal { 0 } else { next_at(bytes, self.segment_bytes, self.synced_often) };
        let sizes = (bytes, next_at_bytes);
        let segment =
            create_segment(place, self.database, (id, sizes), Purpose { made, ..purpose }, again)?;
        spare.last_bytes = usual;
        Ok(segment)
    }

    /// The region of a segment that was kept, its file renamed to that of segment `id`, and when that was made; `None` where
    /// none of that kind is there, or it cannot be used again.
    fn begin_again(
        &self,
        id: u64,
        bytes: u64,
        synced_often: bool,
        made_since: Duration,
    ) -> Option<(Duration, Arc<dyn LogRegion>)> {
        let (too_old, old) = {
            let mut recycled = lock(&self.recycled);
            let is_too_old = |old: &mut Segment| {
                let is_young = old.made >= made_since;
                !(is_young || synced_often && old.synced_often && old.was_synced())
            };
            let too_old: Vec<_> = recycled.extract_if(.., is_too_old).collect();
            let fits = |old: &Segment| {
                old.region.capacity_bytes() == bytes && old.synced_often == synced_often
            };
            // The one that came first: else it would stay until it is too old, and be written as it is.
            let old = recycled.iter().position(fits).map(|at| recycled.remove(at));
            (too_old, old)
        };
        self.remove_files_of(too_old);
        let old = old?;
        let (from, to) = (segment_path(&self.dir, old.id), segment_path(&self.dir, id));
        let (made, mut region) = (old.made, old.region);
        let is_ours = Arc::get_mut(&mut region).is_some_and(|r| r.begin_again(&to));
        if is_ours && self.disk.rename(&from, &to).is_ok() {
            self.segments_recycled.fetch_add(1, Ordering::Relaxed);
            return Some((made, region));
        }
        drop(region);
        let _ = self.disk.remove(&from);
        None
    }

    /// Keeps the file and the memory of a segment that left the log, for one to come. False: it is to be
    /// removed.
    pub(super) fn recycle(&self, kept: Kept) -> bool {
        let Some(mut segment) = kept.segment.and_then(Arc::into_inner) else { return false };
        let is_usual = segment.region.capacity_bytes() == self.segment_bytes;
        if !is_usual || Arc::strong_count(&self.copies) > 1 {
            return false;
        }
        // Asked here, not where the next one is waited for: some regions never are.
        let path = segment_path(&self.dir, segment.id);
        if !Arc::get_mut(&mut segment.region).is_some_and(|region| region.begin_again(&path)) {
            return false;
        }
        let mut recycled = lock(&self.recycled);
        // Under the lock: whoever makes the log frugal gives back what was kept before.
        let keeps = recycled.len() < MOST_RECYCLED && !self.frugal.load(Ordering::Relaxed);
        if keeps {
            recycled.push(segment);
        }
        keeps
    }

    /// Removes the files that were kept to be used again; how many.
    pub fn give_back(&self) -> usize {
        let recycled = std::mem::take(&mut *lock(&self.recycled));
        let count = recycled.len();
        self.remove_files_of(recycled);
        count
    }

    fn remove_files_of(&self, recycled: Vec<Segment>) {
        for segment in recycled {
            let path = segment_path(&self.dir, segment.id);
            drop(segment);
            // A file that cannot be removed now is an orphan that the next open removes.
            let _ = self.disk.remove(&path);
        }
    }

    /// What changes while those files are worth keeping: how many segments were made, or commits where they are synced, which may fill a
    /// segment in minutes.
    pub fn usage(&self) -> u64 {
        if self.synced_often { self.visible() } else { self.segments_made().0 }
    }

    /// How many files are kept to be used again.
    pub fn recyclable(&self) -> usize {
        lock(&self.recycled).len()
    }

    /// How many segments were made since the log was begun, and how many of them in files of others.
    pub fn segments_made(&self) -> (u64, u64) {
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.segments_made), of(&self.segments_recycled))
    }

    /// Has the segments to come made small and no files kept for them (true), for a disk that is full, or as usual.
    pub fn set_frugal(&self, frugal: bool) {
        self.frugal.store(frugal, Ordering::Relaxed);
        if frugal {
            self.give_back();
        }
    }

    /// Makes the next segment ready, if it is not and is to be, at the time `now`. Returns whether there was something to do.
    ///
    /// # Errors
    /// Any error of the disk. A commit that needs the segment will try again.
    pub fn prepare_spare(&self, now: Duration) -> Result<bool> {
        let is_due = {
            let order = lock(&self.order);
            order.active_bytes >= order.active.next_at_bytes
        };
        let mut spare = lock(&self.spare);
        spare.time = now;
        if spare.ready.is_some() || !is_due {
            return Ok(false);
        }
        let syncs = self.active_syncs.swap(0, Ordering::Relaxed);
        spare.ready = Some(self.create_segment(&mut spare, 0, syncs, OLDEST_RECYCLED)?);
        Ok(true)
    }

    /// Removes what is kept or made ready for segments to come: there will be none.
    pub fn keep_nothing(&self) {
        self.set_frugal(true);
        if let Some(segment) = lock(&self.spare).ready.take().and_then(Arc::into_inner) {
            self.remove_files_of(vec![segment]);
        }
    }

    /// What the segments have room for, with the one that was made ready, bytes.
    pub fn capacity_bytes(&self) -> u64 {
        let kept = lock(&self.order).kept.iter().map(|k| k.size_bytes).sum::<u64>();
        let spare = lock(&self.spare);
        kept + spare.ready.as_ref().map_or(0, |spare| spare.region.capacity_bytes())
    }

    /// The next piece of memory that is to be made ready for records to come: of the active segment (where a commit had to make
    /// that itself, or came before), then of the next.
    pub(super) fn unready(&self) -> Option<(Arc<Segment>, Range<u64>)> {
        let (active, reserved_bytes) = {
            let order = lock(&self.order);
            (order.active.clone(), order.active_bytes)
        };
        if let Some(piece) = active.unready(reserved_bytes) {
            return Some((active, piece));
        }
        // Whoever makes it says so afterwards.
        let next = self.spare.try_lock().ok()?.ready.clone()?;
        let piece = next.unready(0)?;
        Some((next, piece))
    }

    /// Whether all memory is ready that can be.
    pub fn is_ready(&self) -> bool {
        self.unready().is_none()
    }

    /// Makes the next piece of memory ready for records to come; false if there is none. Whoever comes before it has the page faults
    /// himself.
    pub fn make_some_ready(&self) -> bool {
        let Some((segment, piece)) = self.unready() else { return false };
        segment.ready_bytes.store(piece.end, Ordering::Relaxed);
        segment.region.make_ready(piece);
        true
    }
}

/// What a segment is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose {
    /// Its records will be synced every few.
    pub(super) synced_often: bool,
    /// It is written before it comes into use.
    pub(super) is_written: bool,
    /// What time it is, or was when its file was made.
    pub(super) made: Duration,
}

/// How much of a segment of `bytes` is used when the next one is to be made; see [`USED_PART`].
pub(super) fn next_at(bytes: u64, segment_bytes: u64, is_synced: bool) -> u64 {
    let part = if is_synced { USED_PART_SYNCED } else { USED_PART };
    if bytes < segment_bytes { bytes / part } else { 0 }
}

/// Makes a segment, in a fresh file, whose header is durable, or in `again`, which has its name already. The name is
/// durable.
pub(super) fn create_segment(
    (disk, dir): (&dyn Disk, &Path),
    database: u64,
    (id, (bytes, next_at_bytes)): (u64, (u64, u64)),
    Purpose { synced_often, is_written, made }: Purpose,
    again: Option<Arc<dyn LogRegion>>,
) -> Result<Arc<Segment>> {
    let path = segment_path(dir, id);
    let is_fresh = again.is_none();
    let is_written = is_written && is_fresh;
    let region = match again {
        Some(region) => region,
        // Fails if the file is there already; then it is not ours to remove.
        None => disk.create_log_region(&path, bytes)?,
    };
    let ready = || {
        let header = region.reserve(SEGMENT_HEADER_BYTES);
        let header =
            header.ok_or_else(|| Error::invalid("a log segment needs room for its header"))?;
        region.publish(header, &mut |out| {
            out.copy_from_slice(&encode_segment_header(id, database))
        })?;
        if is_written {
            region.expect_syncs(true);
            for from in (0..bytes).step_by(WRITTEN_BYTES as usize) {
                let to = (from + WRITTEN_BYTES).min(bytes);
                region.make_ready(from..to);
                region.sync(to)?;
            }
        } else if is_fresh {
            region.sync(SEGMENT_HEADER_BYTES as u64)?;
        }
        disk.sync_dir(dir)
    };
    ready().inspect_err(|_| {
        // What cannot be removed now is an orphan that the next open removes.
        let _ = disk.remove(&path);
    })?;
    if !is_written {
        region.expect_syncs(synced_often);
    }
    // None is, or not any more: a sync goes through it, and lets it go.
    let ready_bytes = AtomicU64::new(0);
    let syncs = AtomicU64::new(0);
    Ok(Arc::new(Segment { id, region, synced_often, syncs, made, ready_bytes, next_at_bytes }))
}
