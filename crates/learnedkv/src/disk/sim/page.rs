//! Pages with the states that a crash may find them in, shared between clones until written.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fate::Fates;
use super::random::Random;

/// The unit in which content is stored, shared and counted.
pub(super) const PAGE_BYTES: usize = 4096;

/// The unit in which a crash tears content.
pub(super) const SECTOR_BYTES: usize = 512;

/// Unsynced states kept of a page, beside the durable one. The oldest go first: a workload that
/// rewrites a page for ever without a sync must not eat the memory, and clones taken earlier have
/// seen the older ones.
const MAX_PENDING: usize = 4;

const GROUP_PAGES: u64 = 64;

/// The bytes of a page; none are zeros.
pub(super) type Content = Option<Arc<[u8; PAGE_BYTES]>>;

/// A page: what a crash certainly finds, and what it may find instead.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    durable: Content,
    /// The states since the last sync, oldest first; the last is what reads see.
    pending: Vec<Content>,
    /// Whether the page takes space: written or preallocated, and not discarded since.
    pub(super) allocated: bool,
}

impl Page {
    /// What reads see.
    pub(super) fn current(&self) -> &Content {
        self.pending.last().unwrap_or(&self.durable)
    }

    /// Reads see `content` from now on; a crash may find it or an earlier state.
    pub(super) fn push(&mut self, content: Content) {
        if self.pending.len() == MAX_PENDING {
            self.pending.remove(0);
        }
        self.pending.push(content);
    }

    /// Changes part of what reads see.
    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut [u8; PAGE_BYTES])) {
        let mut bytes = copy_of(self.current());
        edit(&mut bytes);
        self.push(Some(Arc::new(bytes)));
    }

    /// What reads see is durable from now on.
    pub(super) fn sync(&mut self) {
        if let Some(newest) = self.pending.pop() {
            self.durable = newest;
            self.pending.clear();
        }
    }

    /// The first `length` bytes of what reads see are durable from now on; the rest may be.
    pub(super) fn sync_prefix(&mut self, length: usize) {
        if let Some(newest) = self.pending.pop() {
            let mut bytes = copy_of(&self.durable);
            bytes[..length].copy_from_slice(&copy_of(&newest)[..length]);
            self.durable = Some(Arc::new(bytes));
            // Older states would bring back older bytes of the prefix.
            self.pending.clear();
            self.pending.push(newest);
        }
    }

    /// What a crash leaves.
    fn after_crash(&self, fates: &Fates, random: &mut Random) -> Content {
        let states = self.pending.len() + 1;
        let state = |i: usize| if i == 0 { &self.durable } else { &self.pending[i - 1] };
        if !fates.torn_pages {
            return state(fates.sectors.choose(states, random)).clone();
        }
        let chosen: [usize; PAGE_BYTES / SECTOR_BYTES] =
            std::array::from_fn(|_| fates.sectors.choose(states, random));
        if chosen.iter().all(|&c| c == chosen[0]) {
            return state(chosen[0]).clone();
        }
        let mut bytes = [0; PAGE_BYTES];
        for (sector, &choice) in chosen.iter().enumerate() {
            if let Some(content) = state(choice) {
                let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                bytes[range.clone()].copy_from_slice(&content[range]);
            }
        }
        Some(Arc::new(bytes))
    }
}

fn copy_of(content: &Content) -> [u8; PAGE_BYTES] {
    content.as_deref().copied().unwrap_or([0; PAGE_BYTES])
}

/// Pages that are shared and copied together.
#[derive(Debug, Clone)]
struct Group {
    pages: Vec<Page>,
    /// Spares the search, clone after clone, of what is settled.
    maybe_unsynced: bool,
}

/// The pages of a file by number. Cloning shares groups of them; writing copies one group.
#[derive(Debug, Clone, Default)]
pub(super) struct PageTable {
    groups: BTreeMap<u64, Arc<Group>>,
}

impl PageTable {
    pub(super) fn get(&self, number: u64) -> Option<&Page> {
        let group = self.groups.get(&(number / GROUP_PAGES))?;
        group.pages.get((number % GROUP_PAGES) as usize)
    }

    /// The page, made (zeros, taking no space) if it is not there.
    pub(super) fn get_mut(&mut self, number: u64) -> &mut Page {
        let group = self.groups.entry(number / GROUP_PAGES).or_insert_with(|| {
            let pages = vec![Page::default(); GROUP_PAGES as usize];
            Arc::new(Group { pages, maybe_unsynced: true })
        });
        let group = Arc::make_mut(group);
        group.maybe_unsynced = true;
        &mut group.pages[(number % GROUP_PAGES) as usize]
    }

    /// Whether the page takes space.
    pub(super) fn is_allocated(&self, number: u64) -> bool {
        self.get(number).is_some_and(|p| p.allocated)
    }

    /// The numbers of the pages of `from..to` for which `wanted` holds.
    pub(super) fn select(&self, from: u64, to: u64, wanted: impl Fn(&Page) -> bool) -> Vec<u64> {
        self.select_in(|_| true, from, to, wanted)
    }

    /// The unsynced pages of `from..to`.
    pub(super) fn unsynced(&self, from: u64, to: u64) -> Vec<u64> {
        self.select_in(|group| group.maybe_unsynced, from, to, |p| !p.pending.is_empty())
    }

    fn select_in(
        &self,
        in_group: impl Fn(&Group) -> bool,
        from: u64,
        to: u64,
        wanted: impl Fn(&Page) -> bool,
    ) -> Vec<u64> {
        let groups = self.groups.range(from / GROUP_PAGES..to.div_ceil(GROUP_PAGES));
        let mut numbers = Vec::new();
        for (index, group) in groups.filter(|(_, group)| in_group(group)) {
            let numbered = (index * GROUP_PAGES..).zip(&group.pages);
            let here = numbered.filter(|(n, page)| (from..to).contains(n) && wanted(page));
            numbers.extend(here.map(|(n, _)| n));
        }
        numbers
    }

    /// Whether a crash certainly finds what reads see.
    pub(super) fn is_synced(&self) -> bool {
        self.groups.values().all(|group| !group.maybe_unsynced)
    }

    /// What reads see of the pages below number `to` is durable from now on.
    pub(super) fn sync(&mut self, to: u64) {
        let groups = self.groups.range_mut(..to.div_ceil(GROUP_PAGES));
        for (index, group) in groups.filter(|(_, group)| group.maybe_unsynced) {
            let group = Arc::make_mut(group);
            let numbered = (index * GROUP_PAGES..).zip(&mut group.pages);
            numbered.filter(|(n, _)| *n < to).for_each(|(_, page)| page.sync());
            group.maybe_unsynced = group.pages.iter().any(|p| !p.pending.is_empty());
        }
    }

    /// Turns into what a crash leaves, every page in one state; returns how many pages take space
    /// again (discarded, and back).
    pub(super) fn crash(&mut self, fates: &Fates, random: &mut Random) -> u64 {
        let mut back = 0;
        for number in self.unsynced(0, u64::MAX) {
            let page = self.get_mut(number);
            let content = page.after_crash(fates, random);
            let allocated = page.allocated || content.is_some();
            back += u64::from(allocated && !page.allocated);
            *page = Page { durable: content, pending: Vec::new(), allocated };
        }
        back
    }
}
