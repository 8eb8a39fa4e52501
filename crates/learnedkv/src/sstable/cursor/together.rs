//! The first blocks of several rows by one call to the disk. A walk begins in every row: where their blocks are not at hand
//! it would wait for the device in one after the other, and a device answers several at once as soon as one.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use super::{Clipped, RunCursor, Walk};
use crate::cursor::Seek;
use crate::disk::ReadRequest;
use crate::error::Result;
use crate::format::entry::TableId;
use crate::sstable::reader::{Blocks, Caching, Loan, Numbered, Span, TableContext};
use crate::sstable::sought::Reads;

/// So many rows are read together at most: each may hold a file open.
const AT_ONCE: usize = 64;

/// Blocks that were read for a cursor before it was sought.
pub(super) struct Given {
    table: TableId,
    named: u64,
    blocks: Blocks,
}

/// What a cursor would read first.
struct First<'a> {
    cursor: &'a mut RunCursor,
    clip: Clipped,
    index: Loan,
    span: Span,
}

/// Reads together what `cursors` would read first on their way to `to`, if that is not at hand in more than one of them. What
/// cannot be read here they read themselves, and say why.
pub fn read_first<'a>(
    context: &TableContext,
    cursors: impl Iterator<Item = &'a mut RunCursor>,
    to: Seek<'_>,
) {
    let firsts = cursors.filter_map(|cursor| First::of(cursor, to));
    let firsts = firsts.take(AT_ONCE.min(context.files.at_once()));
    let firsts: Vec<First<'_>> = firsts.collect();
    if firsts.len() < 2 {
        return;
    }
    let around = context.go_around(firsts.len() as u64);
    let requests = firsts.into_iter().filter_map(|first| {
        let request = first.request(around).ok()?;
        Some((Some(first), request))
    });
    let (mut firsts, requests): (Vec<_>, Vec<_>) = requests.unzip();
    context.disk.read_many(requests, &mut |at, read| {
        if let (Some(first), Ok(bytes)) = (firsts[at].take(), read) {
            first.give(&bytes, around);
        }
    });
}

impl<'a> First<'a> {
    /// `None`: it is at hand, or the first table has nothing there.
    fn of(cursor: &'a mut RunCursor, to: Seek<'_>) -> Option<First<'a>> {
        let at = cursor.place(to);
        let clip = cursor.row.clipped(at).filter(Clipped::is_inhabited)?;
        if cursor.wanted.ends_before(&clip, to.is_forward()) {
            return None;
        }
        let key = clip.first_sought(to)?;
        if clip.table.is_paged() {
            // Its index may have to be read before.
            return None;
        }
        let (walk, forward) = (cursor.walk, to.is_forward());
        let index = clip.table.borrow(walk.caching()).ok()?;
        let mut wanted = cursor.wanted.clone();
        wanted.entries = cursor.row.share(at, wanted.entries);
        let beyond = wanted.beyond(&clip.table, walk);
        let span = clip.table.with(&index).unread(key, walk.caching(), beyond, forward)?;
        Some(First { cursor, clip, index, span })
    }

    fn request(&self, around: bool) -> Result<ReadRequest> {
        let indexed = self.clip.table.with(&self.index);
        indexed.request(self.span, around, &Reads::default())
    }

    /// Gives its cursor the blocks in what was read.
    fn give(self, bytes: &[u8], around: bool) {
        let First { cursor, clip, index, span } = self;
        let Ok(blocks) = clip.table.with(&index).blocks_in(bytes, span) else { return };
        clip.table.context().metrics.cache_misses.fetch_add(1, Relaxed);
        if cursor.walk.caching() == Caching::Fill {
            blocks.iter().for_each(|(ordinal, block)| clip.table.keep(*ordinal, block, around));
        }
        cursor.given = Some(Given { table: clip.table.id(), named: span.named, blocks });
    }
}

impl Clipped {
    /// The key whose block a walk to `to` comes to first, if it begins in this table.
    fn first_sought<'a>(&'a self, to: Seek<'a>) -> Option<&'a [u8]> {
        let properties = self.table.properties();
        let (smallest, largest) = (properties.smallest.as_slice(), properties.largest.as_slice());
        let lower = self.lower.as_slice();
        let until = |key: Option<&'a [u8]>| match key {
            Some(key) if key <= smallest => None,
            key => Some(key.map_or(largest, |key| key.min(largest))),
        };
        match to {
            Seek::First => (lower <= largest).then_some(lower),
            Seek::AtOrAfter(key) => Some(key.max(lower)).filter(|key| *key <= largest),
            Seek::Last => until(self.upper.as_deref()),
            Seek::Before(key) => {
                until(Some(self.upper.as_deref().map_or(key, |upper| upper.min(key))))
            }
        }
    }
}

impl Given {
    /// The block that holds the place of `key`, and those beyond it, if it is among these.
    pub(super) fn found(
        self,
        here: &super::Here,
        key: &[u8],
        walk: Walk,
        forward: bool,
    ) -> Option<(Numbered, VecDeque<Numbered>)> {
        let is_of = self.table == here.clip.table.id();
        let found = || here.table().found(self.blocks, self.named, key, walk.caching(), forward);
        is_of.then(found).flatten()
    }
}
