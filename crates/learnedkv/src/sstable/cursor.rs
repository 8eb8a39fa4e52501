//! Walking tables that do not overlap, each clipped to a key range, as one sorted run.
//!
//! Blocks come from the cache where they are there; else they are read, more of them at once the
//! longer the walk goes on (readahead). A bulk walk (merge, sweep) reads large pieces from the start
//! and puts nothing into the cache; its blocks' memory counts with the cache's, which has so much less
//! meanwhile. [`source`] adds what the tables say is gone from older data.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::reader::{Caching, Indexed, Loan, Table};
use crate::cursor::{Cursor, Seek};
use crate::error::Result;
use crate::format::block::Block;
use crate::format::entry::{Kind, SequenceNumber};
use crate::slice::Slice;

mod clipped;
mod fetching;
mod together;
mod wanted;

pub use clipped::{Clipped, cover, source};
use fetching::Fetching;
use together::Given;
pub use together::read_first;
pub use wanted::Wanted;

/// What a user's walk reads ahead first, unless it is expected to go further; twice as much each time after. Against one
/// block, then four, this takes a fifth of the requests from scans of up to 10 and of up to 100 entries of a KiB
/// (docs/decisions/0012).
const FIRST_READAHEAD_BYTES: u64 = 16 << 10;
/// The most bytes one readahead asks for.
const READAHEAD_BYTES: u64 = 256 << 10;

/// How a walk reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// For a user: through the cache, reading ahead little by little.
    Cached,
    /// For a user who asked for it: as `Cached`, but what is read does not go into the cache.
    Uncached,
    /// For a merge: in large pieces, past the cache.
    Bulk,
}

impl Walk {
    /// What its searches do with blocks they had to fetch.
    fn caching(self) -> Caching {
        match self {
            Walk::Cached => Caching::Fill,
            Walk::Uncached => Caching::Leave,
            // A merge enters each table by one search: its block is worth keeping.
            Walk::Bulk => Caching::Checked,
        }
    }
}

/// Places side by side in key order, of tables that do not overlap once clipped. There may be very many:
/// a walk asks only for those it comes to.
pub trait Row: Send {
    /// How many places there are.
    fn count(&self) -> usize;

    /// The table at a place, with the keys of it that count; `None` if there is no table.
    fn clipped(&self, at: usize) -> Option<Clipped>;

    /// The first place where `key` or a later one may be.
    fn at_or_after(&self, key: &[u8]) -> usize;

    /// The place behind the last where a key before `key` may be.
    fn before(&self, key: &[u8]) -> usize;

    /// About how many of so many entries come from the table at a place, where a walk goes along other rows too, of which
    /// that many will be wanted; as many, if this is the row that most of them come from.
    fn share(&self, _at: usize, entries: usize) -> usize {
        entries
    }
}

/// All of them inhabited.
impl Row for Vec<Clipped> {
    fn count(&self) -> usize {
        self.len()
    }

    fn clipped(&self, at: usize) -> Option<Clipped> {
        self.get(at).cloned()
    }

    fn at_or_after(&self, key: &[u8]) -> usize {
        self.partition_point(|t| {
            t.upper.as_ref().is_some_and(|upper| upper.as_slice() <= key)
                || t.table.properties().largest.as_slice() < key
        })
    }

    fn before(&self, key: &[u8]) -> usize {
        self.partition_point(|t| {
            t.lower.as_slice() < key && t.table.properties().smallest.as_slice() < key
        })
    }
}

/// A table that is walked, with its index on loan until it is left.
struct Here {
    clip: Clipped,
    index: Loan,
    /// Whether all of its keys count.
    whole: bool,
}

impl Here {
    fn of(clip: Clipped, index: Loan) -> Arc<Here> {
        let properties = clip.table.properties();
        let below = clip.upper.as_ref().is_none_or(|upper| properties.largest < *upper);
        let whole = below && (clip.lower.is_empty() || properties.smallest >= clip.lower);
        Arc::new(Here { clip, index, whole })
    }

    fn table(&self) -> Indexed<'_> {
        self.clip.table.with(&self.index)
    }
}

/// Walks a row of tables.
pub struct RunCursor {
    row: Box<dyn Row>,
    walk: Walk,
    forward: bool,
    /// The place walked.
    at: usize,
    block: Option<(u64, Arc<Block>)>,
    /// Blocks read ahead, in the order of the walk.
    ahead: VecDeque<(u64, Arc<Block>)>,
    /// What was read beforehand for where it is sought next.
    given: Option<Given>,
    /// What the processor was told, where the table's file is in memory.
    fetching: Option<Fetching>,
    /// The table there. It goes after what was lent of it: who is the last to let go of it gives its file back.
    here: Option<Arc<Here>>,
    /// What will be wanted from where it is sought next.
    wanted: Wanted,
    readahead_bytes: u64,
    index: usize,
    key: Vec<u8>,
    /// What the entry is, and where in its block its value stands.
    kind: (Kind, SequenceNumber),
    value: std::ops::Range<usize>,
}

impl RunCursor {
    /// Walks `tables`, which are in key order and do not overlap once clipped.
    pub fn new(mut tables: Vec<Clipped>, walk: Walk) -> RunCursor {
        tables.retain(Clipped::is_inhabited);
        RunCursor::along(Box::new(tables), walk)
    }

    /// Walks the tables of `row`.
    pub fn along(row: Box<dyn Row>, walk: Walk) -> RunCursor {
        RunCursor {
            row,
            walk,
            forward: true,
            at: 0,
            here: None,
            block: None,
            ahead: VecDeque::new(),
            wanted: Wanted::ONE,
            given: None,
            readahead_bytes: 0,
            index: 0,
            fetching: None,
            key: Vec::new(),
            kind: (Kind::Tombstone, 0),
            value: 0..0,
        }
    }

    /// The same cursor, of which this will be wanted from where it is sought first: if it has to be
    /// read, then by one request, as far as it stands in one table and takes no more than a lookup may read.
    pub fn expecting(mut self, wanted: Wanted) -> RunCursor {
        self.wanted = wanted;
        self
    }

    /// Goes to the block that holds the place of `key`, and reads what is expected to be wanted beyond it, if it has to
    /// be read.
    fn go_to(&mut self, here: &Here, key: &[u8]) -> Result<(u64, Arc<Block>)> {
        let table = &here.clip.table;
        // Once: whoever skips from place to place wants little at each.
        let few = self.wanted.few();
        let mut wanted = std::mem::replace(&mut self.wanted, few);
        wanted.entries = self.row.share(self.at, wanted.entries);
        let beyond = wanted.beyond(table, self.walk);
        let given = self.given.take();
        let given = given.and_then(|given| given.found(here, key, self.walk, self.forward));
        let (block, ahead) = match given {
            Some(found) => found,
            None if beyond.blocks == 0 => {
                return here.table().find_block(key, self.walk.caching());
            }
            None => here.table().find_blocks(key, self.walk.caching(), beyond, self.forward)?,
        };
        let read_bytes: usize = ahead.iter().map(|(_, block)| block.bytes().len()).sum();
        self.readahead_bytes = (read_bytes as u64).clamp(FIRST_READAHEAD_BYTES, READAHEAD_BYTES);
        self.ahead = ahead;
        Ok(block)
    }

    /// A walk of its own kind over the table's file, if that is in memory and blocks are lent from it.
    fn fetching(&self, table: &Table) -> Option<Fetching> {
        if self.walk == Walk::Bulk { None } else { table.mapped_bytes().map(Fetching::new) }
    }

    /// The block of the entry that the cursor stands on.
    fn block(&self) -> &Arc<Block> {
        let (_, block) = self.block.as_ref().expect("a cursor past its end has no entry");
        block
    }

    fn clear(&mut self) {
        self.block = None;
        self.ahead.clear();
        self.readahead_bytes =
            if self.walk == Walk::Bulk { READAHEAD_BYTES } else { FIRST_READAHEAD_BYTES };
    }

    /// Past the end, for good: what comes next after an error is not what comes next.
    fn give_up(&mut self) {
        self.clear();
        self.at = usize::MAX;
    }

    /// Goes to the table that `to` leads to, and to the entry in it; then on to the next tables
    /// while there is none.
    fn find(&mut self, to: Seek<'_>) -> Result<()> {
        self.clear();
        self.forward = to.is_forward();
        self.at = self.place(to);
        let entered = self.enter(to);
        self.given = None;
        entered
    }

    /// The place in the row that `to` leads to; past all of them if there is none.
    fn place(&self, to: Seek<'_>) -> usize {
        match to {
            Seek::First => self.row.at_or_after(&[]),
            Seek::AtOrAfter(key) => self.row.at_or_after(key),
            // One past the table wanted; the wrapped index is past all of them.
            Seek::Last => self.row.count().wrapping_sub(1),
            Seek::Before(key) => self.row.before(key).wrapping_sub(1),
        }
    }

    /// Enters the table `at` (and those after it while there is nothing) where `to` leads.
    fn enter(&mut self, to: Seek<'_>) -> Result<()> {
        let mut to = to;
        while self.at < self.row.count() {
            if let Some(clip) = self.row.clipped(self.at).filter(Clipped::is_inhabited) {
                if self.wanted.ends_before(&clip, self.forward) {
                    break;
                }
                let index = match &self.here {
                    Some(before) if Arc::ptr_eq(&before.clip.table, &clip.table) => {
                        before.index.clone()
                    }
                    _ => {
                        self.fetching = self.fetching(&clip.table);
                        clip.table.borrow(self.walk.caching())?
                    }
                };
                if let Some(fetching) = &mut self.fetching {
                    fetching.begin(self.forward);
                }
                let here = Here::of(clip, index);
                self.here = Some(here.clone());
                if self.search(&here, to)? {
                    return Ok(());
                }
            }
            self.next_table();
            to = if self.forward { Seek::First } else { Seek::Last };
        }
        self.clear();
        Ok(())
    }

    /// Looks for where `to` leads in a table.
    fn search(&mut self, here: &Here, to: Seek<'_>) -> Result<bool> {
        let clip = &here.clip;
        match to {
            Seek::First => self.seek_up(here, &clip.lower),
            Seek::AtOrAfter(key) => self.seek_up(here, key.max(clip.lower.as_slice())),
            Seek::Last => self.seek_down(here, clip.upper.as_deref()),
            Seek::Before(key) => {
                let upper = clip.upper.as_deref().map_or(key, |upper| upper.min(key));
                self.seek_down(here, Some(upper))
            }
        }
    }

    fn next_table(&mut self) {
        self.clear();
        self.at = if self.forward { self.at.saturating_add(1) } else { self.at.wrapping_sub(1) };
    }

    fn seek_up(&mut self, here: &Here, key: &[u8]) -> Result<bool> {
        let clip = &here.clip;
        if key > clip.table.properties().largest.as_slice() {
            return Ok(false);
        }
        let (ordinal, block) = self.go_to(here, key)?;
        self.index = block.entries().lower_bound(key).map_err(|e| e.at_path(clip.table.path()))?.0;
        self.block = Some((ordinal, block));
        self.settle()
    }

    fn seek_down(&mut self, here: &Here, before: Option<&[u8]>) -> Result<bool> {
        let clip = &here.clip;
        let key = match before {
            Some(key) if key <= clip.table.properties().smallest.as_slice() => return Ok(false),
            Some(key) if key <= clip.table.properties().largest.as_slice() => key,
            _ => {
                let beyond = self.wanted.beyond(&clip.table, self.walk);
                let (ordinal, block) = match beyond.blocks {
                    0 if self.given.is_none() => {
                        self.wanted.entries = 1;
                        let last = clip.table.block_count() - 1;
                        (last, here.table().block(last, self.walk.caching())?)
                    }
                    _ => self.go_to(here, &clip.table.properties().largest)?,
                };
                self.index = block.count().wrapping_sub(1);
                self.block = Some((ordinal, block));
                return self.settle();
            }
        };
        let (ordinal, block) = self.go_to(here, key)?;
        let index = block.entries().lower_bound(key).map_err(|e| e.at_path(clip.table.path()))?.0;
        self.index = index.wrapping_sub(1);
        self.block = Some((ordinal, block));
        self.settle()
    }

    /// Makes `index` stand on an entry, going on to the next block if it ran out of this one, and
    /// reads its key. False: the table has no more entries that count.
    fn settle(&mut self) -> Result<bool> {
        loop {
            let (Some((ordinal, block)), Some(here)) = (&self.block, &self.here) else {
                return Ok(false);
            };
            if self.index < block.count() {
                let table = &here.clip.table;
                let entry =
                    block.entries().entry(self.index).map_err(|e| e.at_path(table.path()))?;
                self.key.clear();
                self.key.extend_from_slice(block.entries().prefix());
                self.key.extend_from_slice(entry.key_suffix);
                self.kind = (entry.kind, entry.sequence);
                self.value = block.entries().value_range(&entry);
                if let Some(fetching) = &mut self.fetching {
                    fetching.come_to(entry.value);
                }
                if here.whole || here.clip.holds(&self.key) {
                    return Ok(true);
                }
                self.block = None;
                return Ok(false);
            }
            let ordinal = *ordinal;
            let is_last = self.wanted.ends_in(block, self.forward);
            self.block = if is_last { None } else { self.next_block(ordinal)? };
            if let Some((_, block)) = &self.block {
                self.index = if self.forward { 0 } else { block.count().wrapping_sub(1) };
            }
        }
    }

    /// The block after `ordinal` in the direction of the walk.
    fn next_block(&mut self, ordinal: u64) -> Result<Option<(u64, Arc<Block>)>> {
        if let Some(block) = self.ahead.pop_front() {
            return Ok(Some(block));
        }
        let Some(here) = self.here.clone() else { return Ok(None) };
        let table = &here.clip.table;
        let next = if self.forward { ordinal + 1 } else { ordinal.wrapping_sub(1) };
        if next >= table.block_count() {
            return Ok(None);
        }
        if self.walk != Walk::Bulk
            && let Some(block) = here.table().at_hand(next, self.walk.caching())
        {
            return Ok(Some((next, block)));
        }
        // Else walks that stand still would hold a quarter of a MiB of each table, however many they are.
        let is_over = self.walk != Walk::Bulk && table.context().do_readers_hold_much();
        let most_bytes = if is_over { FIRST_READAHEAD_BYTES } else { READAHEAD_BYTES };
        let ahead_bytes = self.readahead_bytes.min(most_bytes);
        // By what blocks take in memory: compressed ones may be many times that.
        let blocks = (ahead_bytes * table.block_count())
            .checked_div(table.properties().unpacked_bytes)
            .unwrap_or(0);
        self.readahead_bytes = (ahead_bytes * 2).min(most_bytes);
        if blocks <= 1 {
            return Ok(Some((next, here.table().block(next, self.walk.caching())?)));
        }
        let end = here.table().last_until(self.wanted.until(), self.forward);
        let (first, last) = if self.forward {
            (next, (next + blocks - 1).min(end.max(next)))
        } else {
            (next.saturating_sub(blocks - 1).max(end.min(next)), next)
        };
        let read = match self.walk {
            Walk::Bulk => Ok(here.table().read_range(first, last)?),
            walk => here.table().read_ahead(first, last, walk.caching()),
        };
        let blocks = match read {
            Ok(blocks) => blocks,
            // Perhaps not that which comes next, and the walk may end before that which cannot be read.
            Err(_) => {
                self.readahead_bytes = FIRST_READAHEAD_BYTES;
                return Ok(Some((next, here.table().block(next, self.walk.caching())?)));
            }
        };
        self.ahead = blocks.into();
        if !self.forward {
            self.ahead.make_contiguous().reverse();
        }
        Ok(self.ahead.pop_front())
    }
}

impl RunCursor {
    /// Goes on upwards to `key` within what was read ahead. False: it does not lie there.
    fn skip_ahead(&mut self, key: &[u8]) -> Result<bool> {
        while let Some((_, block)) = &self.block {
            match block.entries().place(key) {
                Ordering::Greater => self.block = self.ahead.pop_front(),
                Ordering::Equal => {
                    let found = block.entries().lower_bound(key);
                    let path = self.here.as_ref().map(|here| here.clip.table.path());
                    let found =
                        found.map_err(|e| e.at_path(path.unwrap_or(Path::new("")))).map(|f| f.0);
                    // Never back.
                    self.index = found?.max(self.index);
                    return self.settle();
                }
                Ordering::Less => break,
            }
            self.index = 0;
        }
        Ok(false)
    }
}

impl Cursor for RunCursor {
    fn seek(&mut self, to: Seek<'_>) -> Result<()> {
        self.find(to).inspect_err(|_| self.give_up())
    }

    fn advance(&mut self) -> Result<()> {
        self.index = if self.forward { self.index + 1 } else { self.index.wrapping_sub(1) };
        let more = self.settle().inspect_err(|_| self.give_up())?;
        if more {
            return Ok(());
        }
        self.next_table();
        let to = if self.forward { Seek::First } else { Seek::Last };
        self.enter(to).inspect_err(|_| self.give_up())
    }

    fn skip(&mut self, to: Seek<'_>) -> Result<()> {
        if let (true, Seek::AtOrAfter(key)) = (self.forward, to)
            && self.skip_ahead(key).inspect_err(|_| self.give_up())?
        {
            return Ok(());
        }
        self.seek(to)
    }

    fn key(&self) -> Option<&[u8]> {
        self.block.as_ref().map(|_| self.key.as_slice())
    }

    fn kind(&self) -> (Kind, SequenceNumber) {
        self.kind
    }

    fn value(&self) -> &[u8] {
        &self.block().bytes()[self.value.clone()]
    }

    fn value_slice(&self) -> Slice {
        Slice::of_block(self.block().clone(), self.value.clone())
    }
}
