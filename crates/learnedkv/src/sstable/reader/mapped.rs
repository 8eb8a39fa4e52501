//! A table's blocks where the system holds them: in its page cache, mapped into memory.
//!
//! A block that is mapped costs no call, no copy and no place in our cache. But a mapped page that the
//! system has dropped costs a page fault: up to one request to the device for each page that the
//! block touches, and nobody looks at what comes back. So a block is lent only where the page is surely,
//! or at least very probably, there and sound:
//! * **Noted** is a block whose pages are in the page cache: one that a read brought, and each of a table that
//!   was just written. Others are read.
//! * **Checked** is a block whose checksum was right since it was noted: when it was read, or else when it is
//!   lent first; of a table that was just written by whoever wrote it ([`Table::check_written`]). So no block is
//!   believed that was not computed once from what the device, or the page cache that a write went to, gave. One
//!   bit each for both.
//! * **Packed** is a block that is noted and compressed: it is decompressed from there into our cache. Another bit.
//! * When it is time to look ([`Residence`]), a lent block is read again, from the page cache alone. If
//!   it is not there, or damaged, all notes of the table are forgotten, and while its map rests
//!   no new ones are taken: our cache serves.
//!
//! What is not seen: a page that was dropped, has rotted on the device and comes back before anybody
//! looked. What is read of it is decoded as untrusted bytes, as always.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;

use super::{Caching, Indexed, Table, TableContext};
use crate::disk::{Mapping, Purpose, Residence, Served};
use crate::format::block::{Block, Entries};
use crate::format::table::Properties;
use crate::memory::fetch_ahead;
use crate::slice::Slice;
use crate::sstable::lenders::{Lender, Lenders};

/// A table just written is checked so many bytes at a time, or a block.
const CHECK_BYTES: u64 = 256 << 10;
/// So much of a block the processor is asked for at once, bytes: most blocks as a whole. Otherwise each place says where the next is, and each
/// is waited for, the value last, whose page may be another one (docs/decisions/0022, 0054).
const FETCHED_AHEAD_BYTES: usize = 4 << 10;

/// See the module page.
#[derive(Default)]
pub struct Mapped {
    /// Made when the first block is noted, or a later one if there could be none then; `None` where the
    /// disk does not map.
    map: OnceLock<Option<Box<Map>>>,
    residence: Residence,
}

struct Map {
    lenders: Lenders,
    /// Gone once the file is not mapped any more: whoever was lent a part of it has let go of that.
    in_use: Weak<()>,
    noted: Bits,
    checked: Bits,
    /// As `noted`, of blocks that are compressed.
    packed: Bits,
}

/// A file in memory. It is unmapped before it counts as not in use.
struct InUse {
    bytes: Bytes,
    _counted: Arc<()>,
}

impl AsRef<[u8]> for InUse {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A bit for each block.
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn none(count: u64) -> Bits {
        Bits((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn has(&self, ordinal: u64) -> bool {
        let word = self.0.get((ordinal / 64) as usize);
        word.is_some_and(|word| word.load(Relaxed) & (1 << (ordinal % 64)) != 0)
    }

    fn add(&self, ordinal: u64) {
        if let Some(word) = self.0.get((ordinal / 64) as usize) {
            word.fetch_or(1 << (ordinal % 64), Relaxed);
        }
    }

    fn set_all(&self, word: u64) {
        self.0.iter().for_each(|words| words.store(word, Relaxed));
    }
}

/// What a map and the notes of a table take that says such things of itself, bytes.
pub fn notes_bytes(properties: &Properties) -> u64 {
    let bits = if properties.is_compressed() { 3 } else { 2 };
    size_of::<Map>() as u64 + bits * size_of::<AtomicU64>() as u64 * properties.blocks.div_ceil(64)
}

/// A block in the page cache.
pub(super) struct Lent<'a> {
    lender: &'a Lender,
    /// Where it begins and ends in the file.
    start: u64,
    end: u64,
    pub entries: Entries<'a>,
}

impl Lent<'_> {
    /// A part of the block's bytes, to keep.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Slice {
        let start = self.start as usize;
        Slice::of_bytes(self.lender.bytes.clone(), start + range.start..start + range.end)
    }

    fn slice_of_file(&self) -> Bytes {
        self.lender.bytes.slice(self.start as usize..self.end as usize)
    }
}

impl Map {
    fn size_bytes(&self) -> usize {
        let notes = [&self.noted, &self.checked, &self.packed].map(|bits| size_of_val(&*bits.0));
        size_of::<Map>() + notes.iter().sum::<usize>() + self.lenders.size_bytes()
    }
}

impl Mapped {
    /// Lets the map go. Whether the file is not mapped any more, or never was: nobody has a part of it.
    pub fn unmap(self) -> bool {
        let Some(map) = self.map.into_inner().flatten() else { return true };
        let in_use = map.in_use.clone();
        drop(map);
        let is_gone = in_use.strong_count() == 0;
        // What others have read there they have read by now.
        fence(Acquire);
        is_gone
    }

    /// What the notes take, bytes.
    pub fn size_bytes(&self) -> usize {
        self.map.get().and_then(Option::as_ref).map_or(0, |map| map.size_bytes())
    }
}

impl<'a> Indexed<'a> {
    /// The block of that number, if it is in the page cache for all we know.
    pub(super) fn lent_block(self, ordinal: u64) -> Option<Block> {
        let lent = self.lent(ordinal)?;
        Some(Block::lent(lent.slice_of_file(), &lent.entries))
    }

    /// The entries of the block of that number, if it is in the page cache for all we know.
    #[inline]
    pub(super) fn lent(self, ordinal: u64) -> Option<Lent<'a>> {
        let map = self.table.mapped.map.get()?.as_ref()?;
        if !map.noted.has(ordinal) {
            return None;
        }
        let (lender, (start, end), bytes) = self.held(map, ordinal)?;
        fetch_ahead(&bytes[..bytes.len().min(FETCHED_AHEAD_BYTES)]);
        if !map.checked.has(ordinal) {
            self.table.check(bytes, ordinal, start).ok()?;
            map.checked.add(ordinal);
        }
        // What is no block any more is read again, which says what is wrong.
        let entries = Entries::lend(bytes, start).ok()??;
        (u64::from(entries.ordinal()) == ordinal).then_some(Lent { lender, start, end, entries })
    }

    /// The block of that number, if it is compressed and in the page cache for all we know: decompressed from there. Its checksum is
    /// computed each time: that costs little beside decompressing it, and what is decompressed stays in our cache for long.
    pub(super) fn unpacked(self, ordinal: u64) -> Option<Block> {
        let map = self.table.mapped.map.get()?.as_ref()?;
        if !map.packed.has(ordinal) {
            return None;
        }
        let (_, (start, _), bytes) = self.held(map, ordinal)?;
        let stored = self.table.check(bytes, ordinal, start).ok()?;
        if stored.is_compressed() {
            return self.table.unpack(&stored).ok();
        }
        // It was to become shorter, and did not: from now on it is lent.
        map.checked.add(ordinal);
        map.noted.add(ordinal);
        self.lent_block(ordinal)
    }

    /// Whether the system holds the block of that number, as far as is noted.
    pub(super) fn is_noted(self, ordinal: u64) -> bool {
        let map = self.table.mapped.map.get().and_then(Option::as_ref);
        map.is_some_and(|map| map.noted.has(ordinal) || map.packed.has(ordinal))
    }

    /// The bytes of a noted block where the system holds them, who lends them to this thread, and where they stand.
    #[inline]
    fn held(self, map: &'a Map, ordinal: u64) -> Option<(&'a Lender, (u64, u64), &'a [u8])> {
        let (start, end) = self.extent(ordinal).ok()?;
        let lender = self.table.lender(map);
        let is_due = self.table.mapped.residence.is_due(&lender.turn);
        if is_due && !self.look(map, ordinal, (start, end)) {
            return None;
        }
        let bytes = map.lenders.bytes().get(start as usize..end as usize)?;
        Some((lender, (start, end), bytes))
    }

    /// Whether a block is in the page cache and sound.
    #[cold]
    fn look(self, map: &Map, ordinal: u64, (start, end): (u64, u64)) -> bool {
        let mut bytes = self.table.context.cache.buffer((end - start) as usize);
        let file = self.table.file();
        let is_there = file.is_ok_and(|file| file.read_cached_at(&mut bytes, start))
            && self.table.check(&bytes, ordinal, start).is_ok();
        drop(bytes);
        self.table.mapped.residence.saw(is_there);
        if !is_there {
            self.table.context.lost_mapping();
            [&map.noted, &map.checked, &map.packed].iter().for_each(|bits| bits.set_all(0));
        }
        is_there
    }
}

impl TableContext {
    /// Something turned out not to be in the page cache any more.
    pub fn lost_mapping(&self) {
        self.metrics.lost_mappings.fetch_add(1, Relaxed);
        self.around.lost(self.served());
    }

    /// Whether blocks or values are read around the page cache by so many requests, memory being short. Counts
    /// them.
    pub fn go_around(&self, requests: u64) -> bool {
        let around = self.around.goes(|| self.served());
        if around {
            self.metrics.around_requests.fetch_add(requests, Relaxed);
        }
        around
    }

    fn served(&self) -> Served {
        let metrics = &self.metrics;
        Served {
            by_cache: metrics.mapped_reads.sum() + metrics.mapped_values.sum(),
            by_device: metrics.cache_misses.load(Relaxed) + metrics.value_misses.load(Relaxed),
        }
    }
}

impl Table {
    /// Notes a block that was just read by itself and found sound. False: it is to be kept elsewhere.
    pub(super) fn note(&self, ordinal: u64, block: &Block) -> bool {
        if self.context.maps.is_none() || self.mapped.residence.rests() {
            return false;
        }
        let Some(map) = self.map(Purpose::Read) else { return false };
        if !block.is_as_stored() {
            map.packed.add(ordinal);
            return false;
        }
        map.checked.add(ordinal);
        map.noted.add(ordinal);
        true
    }

    /// Notes all blocks of a table that was just written: what was written is in the page cache. So what is
    /// swept or merged is not read anew by its readers.
    pub fn note_all(&self) {
        if let Some(map) = self.map(Purpose::Expected) {
            let noted = if self.properties().is_compressed() { &map.packed } else { &map.noted };
            noted.set_all(u64::MAX);
        }
    }

    /// The bytes of its file, if its blocks may be lent from there.
    pub fn mapped_bytes(&self) -> Option<Bytes> {
        let map = self.mapped.map.get()?.as_ref().filter(|_| !self.properties().is_compressed())?;
        Some(self.lender(map).bytes.clone())
    }

    /// Whether all blocks of it are lent where the system holds them: none needs a place in our cache.
    pub(super) fn is_lent(&self) -> bool {
        !self.properties().is_compressed() && self.mapped.map.get().is_some_and(Option::is_some)
    }

    /// Checks the noted blocks of a table that was just written, so that no reader has to: those that are in
    /// the page cache. One that is not sound is left to whoever reads it. They are checked where they lie, so
    /// that no reader has to take the faults either by which their pages come into our address space. (Compressed ones are checked
    /// by each who decompresses them.)
    pub fn check_written(&self) {
        if self.properties().is_compressed() {
            return;
        }
        let Some(map) = self.mapped.map.get().and_then(Option::as_ref) else { return };
        let (Ok(loan), Ok(file)) = (self.borrow(Caching::Checked), self.file()) else { return };
        let indexed = self.with(&loan);
        let is_there = |at| file.read_cached_at(&mut [0], at);
        let mut places = (0..).zip(indexed.extents().map_while(Result::ok)).peekable();
        let mut together: Vec<(u64, (u64, u64))> = Vec::new();
        while let Some(first) = places.next() {
            let (_, (start, mut end)) = first;
            together.clear();
            together.push(first);
            let adjoins = |end, from, to| from == end && to - start <= CHECK_BYTES;
            while let Some(next) = places.next_if(|(_, (from, to))| adjoins(end, *from, *to)) {
                (_, (_, end)) = next;
                together.push(next);
            }
            // Memory is short where its ends are gone: what else is gone is not to be waited for.
            if !is_there(start) || !is_there(end - 1) {
                return;
            }
            for &(ordinal, (from, to)) in &together {
                let block = map.lenders.bytes().get(from as usize..to as usize);
                if block.is_some_and(|block| self.check(block, ordinal, from).is_ok()) {
                    map.checked.add(ordinal);
                }
            }
        }
    }

    /// How many blocks need no check any more.
    #[cfg(test)]
    pub fn checked_blocks(&self) -> u64 {
        let map = self.mapped.map.get().and_then(Option::as_ref);
        let words = map.map_or(&[][..], |map| &map.checked.0);
        words.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }

    /// What this thread lends from.
    #[inline]
    fn lender<'m>(&self, map: &'m Map) -> &'m Lender {
        map.lenders.own(|size_bytes, make| {
            if let Some(_room) = self.context.reserve(size_bytes as u64) {
                make();
                self.count_metadata();
            }
        })
    }

    /// The map, made if there is none and there may be one.
    fn map(&self, purpose: Purpose) -> Option<&Map> {
        if let Some(map) = self.mapped.map.get() {
            return map.as_deref();
        }
        let _room = match self.is_paged() {
            true => Some(self.context.reserve(notes_bytes(self.properties()))?),
            false => None,
        };
        let blocks = self.block_count();
        let packed = if self.properties().is_compressed() { blocks } else { 0 };
        let map = match self.context.maps.as_ref()?.map(purpose, || self.file()) {
            Mapping::Made(bytes) => {
                let counted = Arc::new(());
                let in_use = Arc::downgrade(&counted);
                let lenders = Lenders::of(Bytes::from_owner(InUse { bytes, _counted: counted }));
                let [noted, checked, packed] = [blocks, blocks, packed].map(Bits::none);
                Some(Box::new(Map { lenders, in_use, noted, checked, packed }))
            }
            Mapping::Never => None,
            Mapping::NotNow => return None,
        };
        // Or that of somebody who made one meanwhile.
        let map = self.mapped.map.get_or_init(|| map).as_deref();
        self.count_metadata();
        map
    }
}
