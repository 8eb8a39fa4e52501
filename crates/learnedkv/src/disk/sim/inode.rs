//! A simulated file without its name: content and length, each with its unsynced states.

use super::fate::Fates;
use super::page::{PAGE_BYTES, Page, PageTable};
use super::random::Random;

const PAGE: u64 = PAGE_BYTES as u64;

/// Unsynced lengths kept, beside the durable one (see `MAX_PENDING` of pages).
const MAX_PENDING_LENGTHS: usize = 8;

/// Content and length of a file.
///
/// Invariants: what reads see beyond the length is zeros; `allocated_pages` counts the pages that
/// take space; `pending_lengths` ends with the length that reads see, if it is not empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    pages: PageTable,
    durable_length: u64,
    pending_lengths: Vec<u64>,
    allocated_pages: u64,
}

impl Inode {
    /// A file of `length_bytes` preallocated zeros whose length is durable.
    pub(super) fn preallocated(length_bytes: u64) -> Inode {
        let mut inode = Inode::default();
        inode.preallocate(length_bytes);
        inode.sync();
        inode
    }

    pub(super) fn length_bytes(&self) -> u64 {
        self.pending_lengths.last().copied().unwrap_or(self.durable_length)
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_pages * PAGE
    }

    /// Fills `buffer` as far as the file goes; returns the bytes filled.
    pub(super) fn read(&self, buffer: &mut [u8], offset_bytes: u64) -> usize {
        let found = self.length_bytes().saturating_sub(offset_bytes).min(buffer.len() as u64);
        let mut rest = &mut buffer[..found as usize];
        let mut at = offset_bytes;
        while !rest.is_empty() {
            let start = (at % PAGE) as usize;
            let (piece, others) = rest.split_at_mut(rest.len().min(PAGE_BYTES - start));
            match self.pages.get(at / PAGE).and_then(|p| p.current().as_ref()) {
                Some(content) => piece.copy_from_slice(&content[start..start + piece.len()]),
                None => piece.fill(0),
            }
            at += piece.len() as u64;
            rest = others;
        }
        found as usize
    }

    /// How many of `length` bytes from `offset_bytes` can be written when only `room_pages` more
    /// pages may take space.
    pub(super) fn writable(&self, offset_bytes: u64, length: usize, mut room_pages: u64) -> usize {
        let end = offset_bytes + length as u64;
        for number in offset_bytes / PAGE..end.div_ceil(PAGE) {
            if !self.pages.is_allocated(number) {
                if room_pages == 0 {
                    return (number * PAGE).saturating_sub(offset_bytes) as usize;
                }
                room_pages -= 1;
            }
        }
        length
    }

    /// How many pages below `length_bytes` do not take space yet.
    pub(super) fn missing_pages(&self, length_bytes: u64) -> u64 {
        let pages = length_bytes.div_ceil(PAGE);
        pages - self.pages.select(0, pages, |p| p.allocated).len() as u64
    }

    /// Writes, growing the file if needed.
    pub(super) fn write(&mut self, mut bytes: &[u8], offset_bytes: u64) {
        let end = offset_bytes + bytes.len() as u64;
        let mut at = offset_bytes;
        while !bytes.is_empty() {
            let start = (at % PAGE) as usize;
            let (piece, others) = bytes.split_at(bytes.len().min(PAGE_BYTES - start));
            self.allocated_page(at / PAGE)
                .edit(|page| page[start..start + piece.len()].copy_from_slice(piece));
            at += piece.len() as u64;
            bytes = others;
        }
        if end > self.length_bytes() {
            self.set_length(end);
        }
    }

    /// Cuts, or grows with zeros.
    pub(super) fn truncate(&mut self, length_bytes: u64) {
        if length_bytes < self.length_bytes() {
            self.clear(length_bytes, u64::MAX);
        }
        if length_bytes != self.length_bytes() {
            self.set_length(length_bytes);
        }
    }

    /// Takes the space below `length_bytes`, growing the file to it if it is shorter.
    pub(super) fn preallocate(&mut self, length_bytes: u64) {
        for number in 0..length_bytes.div_ceil(PAGE) {
            if !self.pages.is_allocated(number) {
                self.allocated_page(number);
            }
        }
        if length_bytes > self.length_bytes() {
            self.set_length(length_bytes);
        }
    }

    /// Makes `from..to` zeros, and gives back the space of the pages wholly inside.
    pub(super) fn clear(&mut self, from: u64, to: u64) {
        let touched = |p: &Page| p.allocated || p.current().is_some();
        for number in self.pages.select(from / PAGE, to.div_ceil(PAGE), touched) {
            let page = self.pages.get_mut(number);
            let start = from.saturating_sub(number * PAGE).min(PAGE) as usize;
            let end = to.saturating_sub(number * PAGE).min(PAGE) as usize;
            if start == 0 && end == PAGE_BYTES {
                if page.current().is_some() {
                    page.push(None);
                }
                self.allocated_pages -= u64::from(page.allocated);
                page.allocated = false;
            } else if page.current().is_some() {
                page.edit(|bytes| bytes[start..end].fill(0));
            }
        }
    }

    /// Where from `offset_bytes` on the first page stands that takes space, or the end.
    pub(super) fn data_from(&self, offset_bytes: u64) -> u64 {
        let end = self.length_bytes();
        let pages = self.pages.select(offset_bytes / PAGE, end.div_ceil(PAGE), |p| p.allocated);
        pages.first().map_or(end, |number| number * PAGE).max(offset_bytes)
    }

    /// Content and length are durable from now on.
    pub(super) fn sync(&mut self) {
        self.pages.sync(u64::MAX);
        self.durable_length = self.length_bytes();
        self.pending_lengths.clear();
    }

    /// The content below `up_to_bytes` is durable from now on, and not a byte more: who
    /// acknowledges beyond what was synced shall be found out.
    pub(super) fn sync_prefix(&mut self, up_to_bytes: u64) {
        self.pages.sync(up_to_bytes / PAGE);
        for number in self.pages.unsynced(up_to_bytes / PAGE, up_to_bytes.div_ceil(PAGE)) {
            self.pages.get_mut(number).sync_prefix((up_to_bytes % PAGE) as usize);
        }
        self.durable_length = self.length_bytes();
        self.pending_lengths.clear();
    }

    pub(super) fn is_synced(&self) -> bool {
        self.pending_lengths.is_empty() && self.pages.is_synced()
    }

    /// What a crash leaves, all of it durable. Bytes past the length found are gone.
    pub(super) fn after_crash(&self, fates: &Fates, random: &mut Random) -> Inode {
        let length = match fates.lengths.choose(self.pending_lengths.len() + 1, random) {
            0 => self.durable_length,
            i => self.pending_lengths[i - 1],
        };
        let mut left = self.clone();
        left.allocated_pages += left.pages.crash(fates, random);
        left.durable_length = length;
        left.pending_lengths.clear();
        left.clear(length, u64::MAX);
        left.sync();
        left
    }

    fn allocated_page(&mut self, number: u64) -> &mut Page {
        let page = self.pages.get_mut(number);
        self.allocated_pages += u64::from(!page.allocated);
        page.allocated = true;
        page
    }

    fn set_length(&mut self, length_bytes: u64) {
        if self.pending_lengths.len() == MAX_PENDING_LENGTHS {
            self.pending_lengths.remove(0);
        }
        self.pending_lengths.push(length_bytes);
    }
}
