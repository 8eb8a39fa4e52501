//! A table's blocks where the system holds them: in its page cache, mapped into memory.
//!
//! A block that is mapped costs no call, no copy and no place in our cache. But a mapped page that the
//! system has dropped costs a page fault: up to one request to the device for each page that the
//! block touches, and nobody looks at what comes back. So a block is lent only where the page is surely,
//! or at least very probably, there and sound:
//! * **Noted** is a block that a read brought, so that its pages are in the page cache, and whose checksum
//!   was right then; and each of a table that was just written. One bit each. Others are read.
//! * When it is time to look ([`Residence`]), a lent block is read again, from the page cache alone. If
//!   it is not there, or damaged, all notes of the table are forgotten, and while its map rests
//!   no new ones are taken: our cache serves.
//!
//! What is not seen: a page that was dropped, has rotted on the device and comes back before anybody
//! looked. What is read of it is decoded as untrusted bytes, as always.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use super::Table;
use crate::disk::Residence;
use crate::format::block::Block;

/// See the module page.
#[derive(Default)]
pub struct Mapped {
    /// Made when the first block is noted; `None` where the disk does not map.
    map: OnceLock<Option<Map>>,
    residence: Residence,
}

struct Map {
    bytes: Bytes,
    /// A bit for each block.
    noted: Box<[AtomicU64]>,
}

impl Map {
    fn bit(&self, ordinal: u64) -> Option<(&AtomicU64, u64)> {
        Some((self.noted.get((ordinal / 64) as usize)?, 1 << (ordinal % 64)))
    }

    fn is_noted(&self, ordinal: u64) -> bool {
        self.bit(ordinal).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }
}

impl Mapped {
    /// What the notes take, bytes.
    pub fn size_bytes(&self) -> usize {
        self.map.get().and_then(Option::as_ref).map_or(0, |map| size_of_val(&*map.noted))
    }
}

impl Table {
    /// The block of that number, if it is in the page cache for all we know.
    pub(super) fn lent(&self, ordinal: u64) -> Option<Block> {
        let map = self.mapped.map.get()?.as_ref()?;
        if !map.is_noted(ordinal) {
            return None;
        }
        let (start, end) = self.extent(ordinal).ok()?;
        if self.mapped.residence.is_due() && !self.look(map, ordinal, (start, end)) {
            return None;
        }
        if end > map.bytes.len() as u64 {
            return None;
        }
        let bytes = map.bytes.slice(start as usize..end as usize);
        // What is no block any more is read again, which says what is wrong.
        let block = Block::lend(bytes, start).ok()??;
        (u64::from(block.ordinal()) == ordinal).then_some(block)
    }

    /// Whether a block is in the page cache and sound.
    #[cold]
    fn look(&self, map: &Map, ordinal: u64, (start, end): (u64, u64)) -> bool {
        let mut bytes = self.context.cache.buffer((end - start) as usize);
        let is_there = self.file.read_cached_at(&mut bytes, start)
            && self.check(&bytes, ordinal, start).is_ok();
        self.context.cache.give_back(bytes);
        self.mapped.residence.saw(is_there);
        if !is_there {
            self.context.metrics.lost_mappings.fetch_add(1, Relaxed);
            map.noted.iter().for_each(|word| word.store(0, Relaxed));
        }
        is_there
    }

    /// Notes a block that was just read by itself and found sound. False: it is to be kept elsewhere.
    pub(super) fn note(&self, ordinal: u64) -> bool {
        if !self.context.maps || self.mapped.residence.rests() {
            return false;
        }
        let Some((word, bit)) = self.map().and_then(|map| map.bit(ordinal)) else { return false };
        word.fetch_or(bit, Relaxed);
        true
    }

    /// Notes all blocks of a table that was just written: what was written is in the page cache, and its
    /// checksums were made a moment ago. So what is swept or merged is not read anew by its readers.
    pub fn note_all(&self) {
        let properties = &self.record.properties;
        if !self.context.maps || properties.data_bytes != properties.unpacked_bytes {
            return;
        }
        if let Some(map) = self.map() {
            map.noted.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        }
    }

    fn map(&self) -> Option<&Map> {
        let make = || {
            let words = self.block_count().div_ceil(64) as usize;
            let noted = (0..words).map(|_| AtomicU64::new(0)).collect();
            Some(Map { bytes: self.file.map()?, noted })
        };
        if self.mapped.map.get().is_none() {
            self.mapped.map.get_or_init(make);
            self.count_metadata();
        }
        self.mapped.map.get()?.as_ref()
    }
}
