//! Where a table's index is: with the table, or in its file until somebody needs it.
//!
//! A table that is opened keeps its index if metadata then still takes at most half of the budget
//! ([`TableContext::reserve`]): it is **resident**. Else it is **paged**: its section is not even
//! read where there is no room for what such an index usually takes, and dropped again where it
//! turns out to take more. What the table keeps is its file, its smallest and largest key, its
//! properties and removed ranges, its filter. The page is the whole section: a partition has 64 MiB
//! at most, so `exact` has some 20 to 30 KiB, one request.
//!
//! 1. **Who needs the index borrows it** ([`Table::borrow`], a [`Loan`]) and keeps it as long as it
//!    works on the table: a get for one key, a `multi_get` for a round, a walk until it leaves the
//!    table. So nothing is decoded twice on the way, however little the cache holds, and none is
//!    taken away under a reader.
//! 2. **A loan comes from** the table, else from the walk over its blocks if there was one, else
//!    from the block cache, else from whoever else has it on loan, else from the file: one request,
//!    counted as such (`read_requests`) and as a load (`index_loads`).
//! 3. **What was loaded** becomes resident if there is room by now (the budget is shared: tables
//!    that went made some). Else the cache keeps it, at what it weighs in memory, so that cached
//!    indexes are the cache's bytes and the one budget bounds them. For a merge, which reads the
//!    table once and then makes it obsolete, neither is done; for a read that is to leave no trace
//!    the second, as each of its gets would load the index again. What the cache does not take (it
//!    has no room, or less than that) goes with the loan.
//! 4. **Resident indexes stay** until their table goes. What metadata takes more (an index that
//!    becomes resident, a filter, notes of mapped blocks) the cache gives up at once, and whenever
//!    tables or memtables change its capacity is set to what is left (`engine/memory.rs`). There
//!    the indexes in use stand, whoever they belong to. So what comes first has an advantage of
//!    half of the budget at most, and merges and sweeps, which replace tables, do away with it.
//! 5. **Two readers of one missing index** make one load: the second waits for the first and shares
//!    its loan. The lock is the table's own; under it there is only reading, and the locks of the
//!    walk and of the cache, which are leaves.
//! 6. **Damage** found at the load is treated as at the open: the section is of no use, and the
//!    table's blocks are walked by their headers. That walk's separators stay with the table. If
//!    the walk fails too, its error names file and offset; at the open it fails the open, here
//!    whoever asked. A read that *fails* says nothing about the section: it is the error of whoever
//!    asked, and the next one reads again.
//! 7. **Notes of mapped blocks** ([`super::mapped`]) of a paged table are only taken where there is
//!    room for them; without them its blocks are in our cache. A resident table's are two bits for
//!    each block, or three, which are asked for together with its index.
//!
//! Estimates ([`super::estimates`]) need the index only of a table that is cut by a range, and do
//! without it if it cannot be read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::{Caching, Reads, Table, TableContext};
use crate::cache::Weight;
use crate::disk::File;
use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::TableRecord;
use crate::format::table::{Properties, Section};
use crate::sstable::index::{self, Index, Makeup, fence::Fence};
use crate::sstable::opening::{read_section, walk};

/// An index in memory.
#[derive(Debug)]
pub struct Held {
    index: Box<dyn Index>,
    /// What it takes; asked often, and it may be costly to count.
    size_bytes: usize,
}

impl Held {
    /// That index.
    pub fn of(index: Box<dyn Index>) -> Held {
        Held { size_bytes: index.size_bytes(), index }
    }
}

impl Weight for Held {
    fn size_bytes(&self) -> usize {
        self.size_bytes + size_of::<Held>()
    }
}

/// A table's index, wherever it is. See the module page.
#[derive(Debug)]
pub(super) struct Home {
    resident: OnceLock<Held>,
    /// Where it is in the file, if it was not resident from the start.
    paged: Option<Box<Paged>>,
    /// The length of its section.
    section_bytes: u64,
}

#[derive(Debug)]
struct Paged {
    section: Section,
    /// What was loaded last, while somebody has it on loan. Locked while it is loaded.
    last: Mutex<Weak<Held>>,
    /// What the index consists of, once it was read; packed, since such tables are many.
    makeup: AtomicU64,
}

/// The bits of a packed [`Makeup`]: chunks, separated blocks, exceptions. What is more counts as the most.
const MAKEUP_BITS: [u32; 3] = [18, 24, 22];

fn pack(makeup: Makeup) -> u64 {
    let counts = [makeup.chunks, makeup.separated_blocks, makeup.exceptions];
    let add = |packed: u64, (count, bits): (u64, u32)| packed << bits | count.min((1 << bits) - 1);
    counts.into_iter().zip(MAKEUP_BITS).fold(0, add)
}

fn unpack(packed: u64) -> Makeup {
    let [_, separated, exceptions] = MAKEUP_BITS;
    let low = |shift: u32, bits: u32| packed >> shift & ((1 << bits) - 1);
    Makeup {
        chunks: packed >> (separated + exceptions),
        separated_blocks: low(exceptions, separated),
        exceptions: low(0, exceptions),
    }
}

impl Paged {
    fn of(section: Section) -> Box<Paged> {
        Box::new(Paged { section, last: Mutex::default(), makeup: AtomicU64::new(0) })
    }

    fn makeup(&self) -> Makeup {
        unpack(self.makeup.load(Relaxed))
    }

    /// Remembers what the index consists of, the first time it is read: it stays as it is.
    fn note(&self, index: &dyn Index) {
        if self.makeup.load(Relaxed) == 0 {
            self.makeup.store(pack(index.makeup()), Relaxed);
        }
    }
}

/// A table's index on loan from the table ([`Table::borrow`]); of use for that table alone.
#[derive(Debug, Clone)]
pub enum Loan {
    /// The table has it.
    Resident,
    /// The table has walked its blocks, and knows better.
    Walked,
    /// It was paged in.
    Paged(Arc<Held>),
}

impl Loan {
    /// What it holds in memory besides the table, bytes.
    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Loan::Paged(held) => held.size_bytes() as u64,
            Loan::Resident | Loan::Walked => 0,
        }
    }
}

/// A table with its index at hand: what it takes to find and read blocks.
#[derive(Clone, Copy)]
pub struct Indexed<'a> {
    pub(super) table: &'a Table,
    pub(super) index: &'a dyn Index,
}

/// Room for metadata, taken until it is dropped: by then who took it counts what there really is.
#[derive(Debug)]
pub(super) struct Reserved<'a> {
    context: &'a TableContext,
    bytes: u64,
}

impl Reserved<'_> {
    /// Takes room for `bytes` in all, if that is more; false if there is not so much.
    fn grow_to(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let has_room = more == 0 || self.context.take_room(more, self.context.max_metadata_bytes);
        self.bytes += if has_room { more } else { 0 };
        has_room
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.context.metrics.metadata_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

impl TableContext {
    /// Takes room for `bytes` more of metadata, if there is any.
    pub(super) fn reserve(&self, bytes: u64) -> Option<Reserved<'_>> {
        self.reserve_up_to(bytes, self.max_metadata_bytes)
    }

    /// Takes room for `bytes` more, if all metadata then takes at most `most_bytes`.
    pub(super) fn reserve_up_to(&self, bytes: u64, most_bytes: u64) -> Option<Reserved<'_>> {
        self.take_room(bytes, most_bytes).then(|| Reserved { context: self, bytes })
    }

    /// What metadata may take with all that it can be done without: filters over runs, and those that only misses pay for. The rest
    /// is left to indexes.
    pub fn most_with_filters(&self) -> u64 {
        self.max_metadata_bytes - self.max_metadata_bytes / 4
    }

    /// Whether there is room now for so many bytes of filters more; they are taken later, if there still is.
    pub fn has_room_for_filter(&self, bytes: u64) -> bool {
        let now = self.metrics.metadata_bytes.load(Relaxed);
        now.saturating_add(bytes) <= self.most_with_filters()
    }

    /// Counts `bytes` more of metadata, if all then takes at most `most_bytes`.
    pub(in crate::sstable) fn take_room(&self, bytes: u64, most_bytes: u64) -> bool {
        let grown = |now: u64| now.checked_add(bytes).filter(|grown| *grown <= most_bytes);
        self.metrics.metadata_bytes.fetch_update(Relaxed, Relaxed, grown).is_ok()
    }

    /// What the notes of a table's mapped blocks will take, if it will have some.
    fn notes_bytes(&self, properties: &Properties) -> u64 {
        if self.maps.is_some() { super::mapped::notes_bytes(properties) } else { 0 }
    }
}

impl Home {
    /// Where the index of a table that is opened is from now on, with the room taken for it.
    ///
    /// # Errors
    /// `Unsupported` if no build like this one wrote the section; if it is damaged or missing,
    /// those of walking the table's blocks.
    pub(super) fn open<'a>(
        context: &'a TableContext,
        file: &dyn File,
        record: &TableRecord,
        section: Option<Section>,
    ) -> Result<(Home, Option<Reserved<'a>>)> {
        let (blocks, section_bytes) =
            (record.properties.blocks, section.as_ref().map_or(0, |section| section.length));
        let resident = |index| {
            let resident = OnceLock::from(Held::of(index));
            Home { resident, paged: None, section_bytes }
        };
        let Some(section) = section else {
            let fence = match record.properties.entries {
                0 => Fence::default(),
                _ => rebuild(context, file, record)?,
            };
            return Ok((resident(Box::new(fence)), None));
        };
        if !index::is_known(&section.name) {
            // What it says of a name it does not know.
            index::decode(&section.name, Vec::new())?;
        }
        let paged = |paged| {
            let home = Home { resident: OnceLock::new(), paged: Some(paged), section_bytes };
            Ok((home, None))
        };
        let usual = index::usual_bytes(&section.name, section.length, blocks);
        let notes = context.notes_bytes(&record.properties);
        let Some(mut room) = context.reserve(usual.saturating_add(notes)) else {
            return paged(Paged::of(section));
        };
        let held = match read(file, record, &section) {
            Ok(index) => Held::of(index),
            Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
            Err(_) => return Ok((resident(Box::new(rebuild(context, file, record)?)), Some(room))),
        };
        if !room.grow_to((held.size_bytes as u64).saturating_add(notes)) {
            let without = Paged::of(section);
            without.note(&*held.index);
            return paged(without);
        }
        Ok((Home { resident: OnceLock::from(held), paged: None, section_bytes }, Some(room)))
    }

    /// That of a table that cannot be read.
    pub(super) fn nowhere() -> Home {
        Home { resident: OnceLock::new(), paged: None, section_bytes: 0 }
    }

    /// Whether the table does without its index until somebody needs it.
    fn is_paged(&self) -> bool {
        self.resident.get().is_none()
    }

    /// What of it the table keeps in memory, bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let paged = |paged: &Paged| size_of::<Paged>() + paged.section.name.len();
        self.resident.get().map_or(0, |held| held.size_bytes)
            + self.paged.as_deref().map_or(0, paged)
    }

    pub(super) fn section_bytes(&self) -> u64 {
        self.section_bytes
    }

    /// Puts another index in the place of a resident one.
    #[cfg(test)]
    pub(super) fn replace(&mut self, with: impl FnOnce(Box<dyn Index>) -> Box<dyn Index>) {
        let honest = self.resident.take().expect("a resident index").index;
        self.resident = OnceLock::from(Held::of(with(honest)));
    }
}

/// Reads an index's section. `Corruption` if it is not what a table of so many blocks has.
fn read(file: &dyn File, record: &TableRecord, section: &Section) -> Result<Box<dyn Index>> {
    let index = index::decode(&section.name, read_section(file, record, section)?)?;
    let (expected, found) = (record.properties.blocks, index.block_count());
    if found != expected {
        let message = format!("table index: expected {expected} blocks, found {found}");
        return Err(Error::corruption(message).at_offset(section.offset));
    }
    Ok(index)
}

/// The index damaged, missing, or of another table: the blocks know better.
fn rebuild(context: &TableContext, file: &dyn File, record: &TableRecord) -> Result<Fence> {
    context.metrics.rebuilt_indexes.fetch_add(1, Relaxed);
    walk(file, record)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// Whether its index is not with it.
    pub fn is_paged(&self) -> bool {
        self.index.is_paged()
    }

    /// What its index consists of, as far as that is known without reading it.
    pub fn index_makeup(&self) -> Makeup {
        let of_paged = || self.index.paged.as_ref().map_or(Makeup::default(), |p| p.makeup());
        self.resident().map_or_else(of_paged, |indexed| indexed.index.makeup())
    }

    /// The table with its index, if that is with it.
    #[inline]
    pub(super) fn resident(&self) -> Option<Indexed<'_>> {
        let held = self.index.resident.get()?;
        Some(Indexed { table: self, index: &*held.index })
    }

    /// Its index on loan, read from the file if need be.
    ///
    /// # Errors
    /// Any error of the disk; `Corruption` if both the index and a block are damaged, or the table
    /// is.
    pub fn borrow(&self, caching: Caching) -> Result<Loan> {
        self.borrow_for(caching, &Reads::default())
    }

    /// As [`Table::borrow`]; says in `reads` what it made the disk do.
    pub(super) fn borrow_for(&self, caching: Caching, reads: &Reads) -> Result<Loan> {
        if !self.index.is_paged() {
            return Ok(Loan::Resident);
        }
        self.at_hand_on_loan().map_or_else(|| self.load(caching, reads), Ok)
    }

    /// The table with an index that it lent.
    pub fn with<'a>(&'a self, loan: &'a Loan) -> Indexed<'a> {
        let index: &dyn Index = match loan {
            Loan::Paged(held) => &*held.index,
            Loan::Walked => self.walked_before().expect("a loan of this table"),
            Loan::Resident => &*self.index.resident.get().expect("a loan of this table").index,
        };
        Indexed { table: self, index }
    }

    /// The loan that costs nothing, if there is one.
    fn at_hand_on_loan(&self) -> Option<Loan> {
        if self.walked_before().is_some() {
            return Some(Loan::Walked);
        }
        self.context.cache.index(self.record.id).map(Loan::Paged)
    }

    #[cold]
    fn load(&self, caching: Caching, reads: &Reads) -> Result<Loan> {
        if let Some(damage) = self.damage() {
            return Err(damage.clone());
        }
        let Some(paged) = &self.index.paged else { return Ok(Loan::Resident) };
        let mut last = lock(&paged.last);
        // Whoever had the lock may have done it.
        if !self.index.is_paged() {
            return Ok(Loan::Resident);
        }
        if let Some(loan) = self.at_hand_on_loan() {
            return Ok(loan);
        }
        if let Some(held) = last.upgrade() {
            return Ok(Loan::Paged(held));
        }
        let held = match self.read_index(&paged.section, reads) {
            Ok(index) => {
                paged.note(&*index);
                Held::of(index)
            }
            Err(e) if e.is_corruption() => return self.walked().map(|_| Loan::Walked),
            Err(e) => return Err(e),
        };
        let room_bytes = held.size_bytes as u64 + self.context.notes_bytes(self.properties());
        if caching == Caching::Fill
            && let Some(_room) = self.context.reserve(room_bytes)
        {
            let _ = self.index.resident.set(held);
            self.count_metadata();
            return Ok(Loan::Resident);
        }
        let held = Arc::new(held);
        *last = Arc::downgrade(&held);
        if caching != Caching::Checked {
            self.context.cache.insert_index(self.record.id, &held);
        }
        Ok(Loan::Paged(held))
    }

    fn read_index(&self, section: &Section, reads: &Reads) -> Result<Box<dyn Index>> {
        let metrics = &self.context.metrics;
        metrics.request(section.length as usize, reads);
        metrics.index_loads.fetch_add(1, Relaxed);
        let read = self.file().and_then(|file| read(&*file, &self.record, section));
        read.map_err(|e| e.at_path(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_index_consists_of_is_packed_as_far_as_it_fits() {
        let of =
            |chunks, separated_blocks, exceptions| Makeup { chunks, separated_blocks, exceptions };
        for makeup in [of(0, 0, 0), of(1, 2, 3), of(262_143, 16_777_215, 4_194_303), of(0, 9, 0)] {
            assert_eq!(unpack(pack(makeup)), makeup);
        }
        assert_eq!(unpack(pack(of(1 << 40, 5, 1 << 30))), of(262_143, 5, 4_194_303));
    }
}
