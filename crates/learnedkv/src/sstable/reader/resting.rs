//! A table's filter: in memory since the table was opened, or at rest in its file until lookups that found
//! nothing have paid for its place in memory; or made anew, where it has none, once they have paid for that too.
//!
//! * **Rent** is what each such lookup paid that a filter would have saved, in units of one whose block was
//!   in memory: [`READ`], where it was read from the disk. Lookups that are to leave no blocks in memory pay none:
//!   they are no reason for filters there either.
//! * **The price** is reading the filter, and of the blocks whose place in memory it takes each once again.
//!   Whoever pays then never pays more than twice what was best in hindsight (rent or buy: Karlin et al.,
//!   "Competitive Snoopy Caching", 1988). While half of the cache is empty (blocks that are read where
//!   the system holds them are not in it) it takes nobody's place: then reading it is what it costs, and
//!   [`LEAST`].
//!
//! The lookup that pays the last of it has its answer, and loads the filter; others go on without meanwhile.
//! So does one that meets what cannot be read, whatever was paid: where the filter says that the key is not there, that is the answer.
//! Where there is no file the price is reading the whole table; whoever pays the last of it says so
//! ([`Sought::unfiltered`]), and somebody else makes the filter, if one is wanted.
//!
//! Nothing but memory changes: the next open finds the filter at rest. Where metadata may not grow, or the
//! read fails, rent is paid anew; a filter that is no filter is left alone until the table is opened again. No
//! answer depends on any of this, so older Views gain too.
//!
//! **Room.** A filter comes into memory only while metadata then leaves a part of its share to others
//! ([`reserve`]): room is taken before it is read. One that was to be there from the open on, and finds none, rests
//! like any other ([`Table::lacks_room_for_filter`]): it is not read, and misses bring it back once they have paid
//! and tables that went have made room. To look for room costs one load, once for each price that was paid.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::paged::Reserved;
use super::{Caching, Sought, Table, TableContext};
use crate::error::{Error, ErrorKind};
use crate::format::manifest::{FilterRecord, TableRecord};
use crate::format::table::Properties;
use crate::sstable::filter::{Filter, FilterBuilder, MAX_KEYS, file};

/// So many lookups that find their block in memory cost as much as one that reads it from the disk, about.
const READ: u64 = 64;
/// What is paid at least for a filter whose place nobody else needs: a few misses say little.
const LEAST: u64 = 4 * READ;
/// Reading so much of it costs about as much as reading a block.
const READ_BYTES: u64 = 64 << 10;
/// A block that is read, about.
const BLOCK_BYTES: u64 = 4 << 10;

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct TableFilter {
    /// Asked by lookups from when it is there.
    resident: OnceLock<Resident>,
    /// Paid since the table was opened, or since the filter could not come.
    rent: AtomicU64,
    /// Somebody loads it, or nobody is to.
    is_taken: AtomicBool,
    /// When it was to come last, there was no room.
    lacks_room: AtomicBool,
}

#[derive(Debug)]
struct Resident {
    filter: Box<dyn Filter>,
    size_bytes: usize,
}

impl Resident {
    fn of(filter: Box<dyn Filter>) -> Resident {
        Resident { size_bytes: filter.size_bytes(), filter }
    }
}

/// Whether a filter that could not be read never can be: it is not what was written. Else it was the disk
/// that refused, or the process that had too much open, and both may be different next time.
fn is_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Unsupported)
}

/// To walk over so many keys and hash them costs about as much as a lookup that finds its block in memory.
const WALKED_KEYS: u64 = 4;

/// What a filter costs in rent that is made of a table's keys.
fn price_of_making(of: &Properties) -> u64 {
    let place = of.entries.saturating_mul(5) / 4;
    let reads = 1 + of.data_bytes / READ_BYTES + place.div_ceil(BLOCK_BYTES);
    reads.saturating_mul(READ).saturating_add(of.entries / WALKED_KEYS)
}

/// Room for a filter, taken until it is counted; `None` if there is none. Filters leave some to indexes, which are a tenth
/// as large and serve every lookup; those that rest leave more than those that were asked for, which are those of runs:
/// without one each lookup reads a block of its run, not only a lookup of an absent key.
fn reserve(context: &TableContext, filter: FilterRecord) -> Option<Reserved<'_>> {
    let most_bytes = match filter.rests {
        true => context.most_with_filters(),
        false => context.max_filtered_bytes,
    };
    context.reserve_up_to(filter.file_bytes, most_bytes)
}

/// What the filter costs in rent.
fn price(filter: FilterRecord) -> u64 {
    READ * (1 + filter.file_bytes.div_ceil(BLOCK_BYTES))
}

impl TableFilter {
    /// The filter that `record` names, with the room taken for it; of one that is to rest, or that there is no room for, only
    /// the length is looked at. One that cannot be read is counted. It is left out of the record if it is lost; else it
    /// rests: misses, or the next open, try again.
    pub fn open<'a>(
        context: &'a TableContext,
        record: &mut TableRecord,
    ) -> (TableFilter, Option<Reserved<'a>>) {
        let Some(named) = record.filter else { return (TableFilter::default(), None) };
        let (disk, dir) = (&*context.disk, &*context.dir);
        let room = if named.rests { None } else { reserve(context, named) };
        let opened = if room.is_none() {
            file::check(disk, dir, named).map(|()| OnceLock::new())
        } else {
            let read = file::read(disk, dir, named, record.tag, record.properties.entries);
            read.map(|filter| Resident::of(filter).into())
        };
        let resident = opened.unwrap_or_else(|e| {
            context.metrics.dropped_filters.fetch_add(1, Ordering::Relaxed);
            if is_lost(&e) {
                record.filter = None;
            }
            OnceLock::new()
        });
        let lacks_room = AtomicBool::new(room.is_none() && !named.rests);
        (TableFilter { resident, lacks_room, ..TableFilter::default() }, room)
    }

    /// Whether it is in memory, and refuses the hash.
    #[inline]
    pub fn refuses(&self, sought: &Sought<'_>) -> bool {
        self.resident.get().is_some_and(|r| !r.filter.may_contain(sought.hash()))
    }

    /// If it is in memory, the processor is told what the next question needs of it.
    #[inline]
    pub fn fetch_ahead(&self, sought: &Sought<'_>) {
        if let Some(resident) = self.resident.get() {
            resident.filter.fetch_ahead(sought.hash());
        }
    }

    /// Whether it is in memory.
    pub fn is_resident(&self) -> bool {
        self.resident.get().is_some()
    }

    /// What it takes in memory, bytes.
    pub fn size_bytes(&self) -> Option<usize> {
        self.resident.get().map(|resident| resident.size_bytes)
    }
}

impl Table {
    /// What its filter takes in memory, bytes; `None` if it is not there.
    pub fn filter_bytes(&self) -> Option<usize> {
        self.filter.size_bytes()
    }

    /// The length of its filter's file; 0 if it has none.
    pub fn filter_file_bytes(&self) -> u64 {
        self.record.filter.map_or(0, |filter| filter.file_bytes)
    }

    /// Whether it has a filter that is in its file only.
    pub fn has_resting_filter(&self) -> bool {
        self.record.filter.is_some() && !self.filter.is_resident()
    }

    /// Whether its filter would be in memory, if there had been room when it was to come.
    pub fn lacks_room_for_filter(&self) -> bool {
        self.has_resting_filter() && self.filter.lacks_room.load(Ordering::Relaxed)
    }

    /// Whether misses brought its filter into memory, or that of a table it came from.
    pub fn has_woken_filter(&self) -> bool {
        self.record.filter.is_none_or(|named| named.rests) && self.filter.is_resident()
    }

    /// Whether it has no filter, in memory or in a file, and one could be made.
    pub fn lacks_filter(&self) -> bool {
        let keys = self.record.properties.entries;
        let could = (1..=MAX_KEYS as u64).contains(&keys) && self.is_readable();
        self.record.filter.is_none() && !self.filter.is_resident() && could
    }

    /// None is wanted: misses pay for none any more.
    pub fn do_without_filter(&self) {
        self.filter.is_taken.store(true, Ordering::Release);
    }

    /// What misses have paid so far is spent.
    pub fn pay_anew(&self) {
        self.filter.rent.store(0, Ordering::Relaxed);
    }

    /// Takes a filter of all its keys; one of more or fewer is none.
    pub fn attach_filter(&self, made: FilterBuilder) {
        let (tag, keys) = (self.record.tag, self.record.properties.entries);
        let filter = made.finish(tag).and_then(|bytes| file::from_bytes(tag, keys, &bytes).ok());
        let taken = filter.map(|filter| self.filter.resident.set(Resident::of(filter)));
        if let Some(Ok(())) = taken {
            self.count_metadata();
            self.context.metrics.attached_filters.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a lookup that found no entry here. If that pays for the filter at rest, it is loaded.
    pub(super) fn miss(&self, sought: &Sought<'_>) {
        if self.filter.is_resident() {
            sought.false_positives.update(|count| count + 1);
            return;
        }
        if sought.caching == Caching::Leave {
            return;
        }
        let rent = if sought.reads.in_table.get() { READ } else { 1 };
        let Some(named) = self.record.filter else {
            return self.miss_without(rent, sought);
        };
        let before = self.filter.rent.fetch_add(rent, Ordering::Relaxed);
        if self.is_paid(named, before, before + rent) {
            self.wake_for(sought);
        }
    }

    /// Counts `rent` for a filter that is still to be made.
    fn miss_without(&self, rent: u64, sought: &Sought<'_>) {
        if self.filter.is_taken.load(Ordering::Relaxed) {
            return;
        }
        let before = self.filter.rent.fetch_add(rent, Ordering::Relaxed);
        let (now, price) = (before + rent, price_of_making(&self.record.properties));
        // Said now and then while nobody makes it: of several tables that one lookup pays for it tells of one.
        if now >= price && (before < price || now / READ > before / READ) {
            sought.unfiltered.set(Some(self.record.id));
        }
    }

    /// Whether rent that went from `before` to `now` pays for the filter. The cache is looked at once for
    /// each [`READ`] of it.
    fn is_paid(&self, named: FilterRecord, before: u64, now: u64) -> bool {
        let least = LEAST + READ * (named.file_bytes / READ_BYTES);
        let is_looked_at = now >= least && now / READ > before / READ;
        now >= price(named) || (is_looked_at && self.context.cache.is_half_empty(named.file_bytes))
    }

    /// As [`Table::wake_filter`], for a lookup.
    fn wake_for(&self, sought: &Sought<'_>) {
        if self.wake_filter() {
            self.context.metrics.attached_filters.fetch_add(1, Ordering::Relaxed);
            sought.has_woken.set(true);
        }
    }

    /// Whether the filter refuses the key of a lookup that could not be answered: it comes into memory for that. Where it does not, for
    /// want of room or since somebody else is loading it, it is read for this answer alone, which is to be the same each time.
    pub(super) fn refuses_at_rest(&self, sought: &Sought<'_>) -> bool {
        self.wake_for(sought);
        if self.filter.is_resident() {
            return self.filter.refuses(sought);
        }
        let (context, record) = (&*self.context, &self.record);
        let (tag, keys) = (record.tag, record.properties.entries);
        let read = |named| file::read(&*context.disk, &context.dir, named, tag, keys);
        let filter = record.filter.and_then(|named| read(named).ok());
        filter.is_some_and(|filter| !filter.may_contain(sought.hash()))
    }

    /// Brings the filter into memory, if it is at rest and there is room. True: it did.
    #[cold]
    pub fn wake_filter(&self) -> bool {
        let Some(named) = self.record.filter else { return false };
        if self.filter.is_resident() || self.filter.is_taken.swap(true, Ordering::Acquire) {
            return false;
        }
        let (context, record) = (&*self.context, &self.record);
        self.filter.rent.store(0, Ordering::Relaxed);
        let mut is_over = false;
        let room = reserve(context, named);
        self.filter.lacks_room.store(room.is_none(), Ordering::Relaxed);
        if room.is_some() {
            let (tag, keys) = (record.tag, record.properties.entries);
            match file::read(&*context.disk, &context.dir, named, tag, keys) {
                Ok(filter) => {
                    is_over = self.filter.resident.set(Resident::of(filter)).is_ok();
                    self.count_metadata();
                }
                Err(e) => {
                    is_over = is_lost(&e);
                    context.metrics.dropped_filters.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.filter.is_taken.store(is_over, Ordering::Release);
        self.filter.is_resident()
    }
}
