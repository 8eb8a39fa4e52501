//! The beginning of a segment that nobody needs any more, given back while the rest is in use.
//!
//! Values stand in key order in a segment, and a sweep moves them from the lowest key on: so below its watermark the segments
//! of the frozen part, and those that it empties of the settled run, are dead long before their files go. Who may read
//! there all the same, and why nobody meets what was given back:
//! * **Older Views**, and whoever took a [`Segment`] from one. A step of a sweep makes a successor of the
//!   segment, the same file, for the Views to come. A segment holds its successor, so it is dropped
//!   only after all before it; then what the successor does without is given back.
//! * **Users with a value that was lent.** A segment and its successors share a map, but each says by itself whether
//!   anything is lent from it; nothing is given back while that is so of an earlier one. The next step tries again.
//! * **Another database, or an earlier life of this one.** Values may be lent from a file that this engine knows
//!   nothing of: by an engine that was closed, or through a checkpoint, which links files. So space is
//!   given back only of segments that this engine wrote, that no checkpoint linked, and that have one
//!   name.
//! * **The next process.** The edit that moved the watermark is durable before the successor is shown.
//!   What was given back it learns from the file itself ([`crate::disk::File::data_from`]), to
//!   count it.
//!
//! Each successor costs some hundred bytes while a snapshot holds the first of them, and each part a system
//! call: so there is none before a good part of the file has come together ([`Segment::is_worth`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;

use super::Segment;
use crate::disk::{File, PooledFile, Residence, Turn};
use crate::sstable::Part;
use crate::sstable::lenders::{Lender, Lenders};

/// The file's header stays, and file systems give back whole blocks.
const BLOCK_BYTES: u64 = 4096;
/// A part that is given back is as large at least, or so large a share of its file.
const PART_BYTES: u64 = 1 << 20;
const PART_SHARE: u64 = 16;

/// What a segment and its successors know together.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    /// The blocks behind the first one are given back up to here.
    given_back_to: AtomicU64,
    pub(super) residence: Residence,
    /// The same for longer values: each is looked at.
    pub(super) long: Residence,
    /// Before there is a map.
    pub(super) turn: Turn,
    /// Whether nobody beside this engine can have it mapped.
    is_ours: AtomicBool,
    /// Where the newest successor begins.
    begins: AtomicU64,
    /// Of those that were dropped: alive while anything is lent from them.
    lent: Mutex<Vec<Weak<()>>>,
}

impl Prefix {
    /// That of a file, of which an earlier life may have given something back.
    pub(super) fn of(file: &dyn File, file_bytes: u64) -> Prefix {
        let given_back_to = file.data_from(BLOCK_BYTES).min(file_bytes);
        Prefix { given_back_to: given_back_to.into(), ..Prefix::default() }
    }

    pub(super) fn given_back_bytes(&self) -> u64 {
        self.given_back_to.load(Relaxed).saturating_sub(BLOCK_BYTES)
    }
}

/// A file in memory, and whether anything is lent from it through this segment.
#[derive(Debug)]
pub(super) struct Map {
    bytes: Bytes,
    lenders: Lenders,
    lent: Weak<()>,
}

struct Owner {
    bytes: Bytes,
    _lent: Arc<()>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Map {
    pub(super) fn new(bytes: Bytes) -> Map {
        let alive = Arc::new(());
        let lent = Arc::downgrade(&alive);
        let owner = Owner { bytes: bytes.clone(), _lent: alive };
        Map { bytes, lenders: Lenders::of(Bytes::from_owner(owner)), lent }
    }

    /// The same for the segment's successor. To map the file anew would be up to whoever reads first, at each step of a
    /// sweep, for each segment: he would wait until nobody else changes the process's maps, and for each page again.
    fn again(&self) -> Map {
        Map::new(self.bytes.clone())
    }

    /// What this thread lends from.
    pub(super) fn lender(&self) -> &Lender {
        self.lenders.own(|_, make| make())
    }
}

/// What the successor of a dropped segment does without.
#[derive(Debug)]
struct Rest {
    file: PooledFile,
    prefix: Arc<Prefix>,
    end: u64,
}

impl Part for Rest {
    fn give_back(&self) -> bool {
        let mut lent = self.prefix.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.retain(|map| map.strong_count() > 0);
        // What others have read there they have read by now.
        fence(Acquire);
        let from = self.prefix.given_back_to.load(Relaxed).max(BLOCK_BYTES);
        let to = self.end / BLOCK_BYTES * BLOCK_BYTES;
        if !lent.is_empty() || from >= to {
            return false;
        }
        // One that is removed by now gives all of it back.
        let Ok(file) = self.file.get() else { return false };
        let may = self.prefix.is_ours.load(Relaxed) && file.has_one_name();
        let is_done = may && file.discard(from, to - from).is_ok_and(|done| done);
        if is_done {
            self.prefix.given_back_to.store(to, Relaxed);
        } else {
            // Nor will the rest be: it is left whole, and counted so.
            self.prefix.is_ours.store(false, Relaxed);
        }
        is_done
    }
}

impl Segment {
    /// Says that this engine wrote the segment.
    pub fn is_ours(&self) {
        self.prefix.is_ours.store(true, Relaxed);
    }

    /// Says that the file gets a second name, whose readers nobody here knows.
    pub fn is_shared(&self) {
        self.prefix.is_ours.store(false, Relaxed);
    }

    /// Whether it is worth a successor that nothing is read of below `end`.
    pub fn is_worth(&self, end: u64) -> bool {
        let part = PART_BYTES.min(self.file_bytes / PART_SHARE).max(BLOCK_BYTES);
        let prefix = &self.prefix;
        prefix.is_ours.load(Relaxed) && end >= prefix.begins.load(Relaxed).max(BLOCK_BYTES) + part
    }

    /// The same segment, for Views that read nothing of it below some place.
    pub fn successor(&self) -> Arc<Segment> {
        let context = &self.context;
        Arc::new(Segment {
            id: self.id,
            tag: self.tag,
            file_bytes: self.file_bytes,
            file: context.files.file(self.path(), context.access),
            map: self
                .map
                .get()
                .map_or_else(OnceLock::new, |map| map.as_ref().map(Map::again).into()),
            context: context.clone(),
            retired: OnceLock::new(),
            prefix: self.prefix.clone(),
            next: OnceLock::new(),
            damage: self.damage.clone(),
            unreadable: self.unreadable.load(Relaxed).into(),
        })
    }

    /// Says that `next` is shown in the place of this one, durably, and that nothing is read through
    /// it below `end`: that is given back once nobody has this one any more.
    pub fn give_way(&self, next: Arc<Segment>, end: u64) {
        // There is one sweep at a time, and each of its steps begins with what the last one showed.
        self.prefix.begins.store(end, Relaxed);
        let was_first = self.next.set((next, end)).is_ok();
        debug_assert!(was_first, "a segment has one successor");
    }

    /// What its file takes, bytes.
    pub fn occupied_bytes(&self) -> u64 {
        self.file_bytes.saturating_sub(self.prefix.given_back_bytes())
    }

    /// What of that older Views alone hold up, bytes: it is given back when the last of them goes.
    pub fn held_up_bytes(&self) -> u64 {
        if !self.prefix.is_ours.load(Relaxed) {
            return 0;
        }
        let begins = self.prefix.begins.load(Relaxed) / BLOCK_BYTES * BLOCK_BYTES;
        begins.saturating_sub(self.prefix.given_back_to.load(Relaxed).max(BLOCK_BYTES))
    }

    /// The successor, once; what it does without is given back from now on.
    pub(super) fn hand_over(&mut self) -> Option<Arc<Segment>> {
        let (next, end) = self.next.take()?;
        if let Some(map) = self.map.take().flatten() {
            self.prefix.lent.lock().unwrap_or_else(PoisonError::into_inner).push(map.lent);
        }
        let context = &self.context;
        let file = context.files.file(self.path(), context.access);
        context.graveyard.add_part(Box::new(Rest { file, prefix: self.prefix.clone(), end }));
        Some(next)
    }
}
