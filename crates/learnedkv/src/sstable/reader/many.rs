//! Looking many keys up at once, in any tables of a database.
//!
//! 1. Each key's index names blocks (keys that their table excludes need none). An index that is
//!    paged in stays on loan for the round; its load is a read of its own.
//! 2. Those that are not in the cache are read together, each once however many keys want it,
//!    neighbours as one read.
//! 3. Each key is then looked up as [`Table::get`] does it, with these blocks at hand. What is not at
//!    hand (a block that came damaged, an index that lies) that way reads by itself, and counts.
//!
//! Each request counts as one of some key that it is for.
//!
//! A round reads about [`ROUND_BYTES`] at most, whatever the number of keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Blocks, Caching, Loan, Reads, Sought, Table, TableContext};
use crate::disk::{ReadRequest, up_to_files};
use crate::error::{Error, Result};
use crate::format::block::Block;
use crate::format::entry::TableId;
use crate::slice::Lookup;

/// How much is read before the first keys are answered.
const ROUND_BYTES: u64 = 4 << 20;
/// Neighbours are one read up to this.
const READ_BYTES: u64 = 256 << 10;
/// So many pieces are read at once: each may hold a file open.
const AT_ONCE: usize = 64;

/// A key and the table to look in.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    /// The table.
    pub table: &'a Table,
    /// The key; of one probe alone.
    pub sought: &'a Sought<'a>,
}

/// What [`Table::get`] says to each of `probes`, in their order. Faster where keys that are near to
/// each other are near in `probes`.
///
/// # Errors
/// As [`Table::get`]: the error of the first that fails, and no answers.
pub fn get_many(probes: &[Probe<'_>], caching: Caching) -> Result<Vec<Lookup>> {
    let mut answers = Vec::with_capacity(probes.len());
    while answers.len() < probes.len() {
        let mut round = Round::of(&probes[answers.len()..], caching);
        round.read(caching);
        let places = std::mem::take(&mut round.places);
        for (probe, place) in probes[answers.len()..].iter().zip(places) {
            answers.push(match place? {
                Some(named) => round.answer(probe, named, caching)?,
                None => probe.table.without_entry(probe.sought.key()),
            });
        }
    }
    Ok(answers)
}

/// What the first round of such a call will take, bytes.
#[cfg(test)]
pub fn first_round_bytes(probes: &[Probe<'_>], caching: Caching) -> u64 {
    Round::of(probes, caching).missing_bytes
}

/// What names a block.
type Name = (TableId, u64);

/// Some keys and the blocks they need.
#[derive(Default)]
struct Round<'a> {
    /// The blocks that are named for each key; `None`: it is not there. An error: the index could
    /// not be read.
    places: Vec<Result<Option<(u64, u64)>>>,
    /// The indexes that name them.
    loans: BTreeMap<TableId, Loan>,
    at_hand: BTreeMap<Name, Arc<Block>>,
    /// Blocks to be read, with their places, and the probe that named them first.
    missing: BTreeMap<Name, (Probe<'a>, (u64, u64))>,
    /// What they will take, decompressed, and what is taken by indexes on loan, and by blocks that were
    /// decompressed from where the system holds them; bytes.
    missing_bytes: u64,
    /// Blocks that the disk failed to read.
    failed: BTreeMap<Name, Error>,
}

/// Neighbours that are read as one.
struct Piece<'a> {
    table: &'a Table,
    reads: &'a Reads,
    /// Each with its number and its place.
    blocks: Vec<(u64, (u64, u64))>,
}

impl Piece<'_> {
    fn start(&self) -> u64 {
        self.blocks.first().map_or(0, |(_, (start, _))| *start)
    }

    fn end(&self) -> u64 {
        self.blocks.last().map_or(0, |(_, (_, end))| *end)
    }
}

impl<'a> Round<'a> {
    /// As many of the first of these as one round may take, one at least.
    fn of(probes: &[Probe<'a>], caching: Caching) -> Round<'a> {
        let mut round = Round::default();
        for probe in probes {
            if round.missing_bytes >= ROUND_BYTES {
                break;
            }
            round.add(probe, caching);
        }
        round
    }

    /// The table's index, borrowed once for the round.
    fn borrow(&mut self, table: &Table, caching: Caching, reads: &Reads) -> Result<Loan> {
        if !table.is_paged() {
            return Ok(Loan::Resident);
        }
        if let Some(loan) = self.loans.get(&table.record.id) {
            return Ok(loan.clone());
        }
        let loan = table.borrow_for(caching, reads)?;
        // It takes memory until the end of the round.
        self.missing_bytes += loan.size_bytes();
        self.loans.insert(table.record.id, loan.clone());
        Ok(loan)
    }

    fn add(&mut self, probe: &Probe<'a>, caching: Caching) {
        let Probe { table, sought } = *probe;
        if table.excludes(sought) {
            return self.places.push(Ok(None));
        }
        sought.reads.in_table.set(false);
        let loan = match self.borrow(table, caching, &sought.reads) {
            Ok(loan) => loan,
            Err(e) => return self.places.push(Err(e)),
        };
        let indexed = table.with(&loan);
        let (first, last) = indexed.index.locate(sought.key());
        self.places.push(Ok(Some((first, last))));
        if last >= table.block_count() || indexed.is_wide((first, last)) {
            // The lookup of a single key knows what to do.
            return;
        }
        for ordinal in first..=last {
            let name = (table.record.id, ordinal);
            if self.at_hand.contains_key(&name) || self.missing.contains_key(&name) {
                continue;
            }
            if let Some(block) = indexed.at_hand(ordinal, caching) {
                // One that was decompressed takes memory until the end of the round.
                self.missing_bytes +=
                    if block.is_as_stored() { 0 } else { block.size_bytes() as u64 };
                self.at_hand.insert(name, block);
            } else if let Ok((start, end)) = indexed.extent(ordinal) {
                table.context.metrics.cache_misses.fetch_add(1, Relaxed);
                // The read is this key's, whoever else wants the block: it counts once.
                sought.reads.in_table.set(true);
                self.missing.insert(name, (*probe, (start, end)));
                self.missing_bytes += table.unpacked_bytes(end - start);
            }
        }
    }

    /// The missing blocks, those that lie side by side together.
    fn pieces(&mut self) -> Vec<Piece<'a>> {
        let mut pieces: Vec<Piece<'a>> = Vec::new();
        for ((id, ordinal), (probe, place)) in std::mem::take(&mut self.missing) {
            let (table, reads) = (probe.table, &probe.sought.reads);
            match pieces.last_mut() {
                Some(piece)
                    if piece.table.record.id == id
                        && piece.end() == place.0
                        && place.1 - piece.start() <= READ_BYTES =>
                {
                    piece.blocks.push((ordinal, place));
                }
                _ => pieces.push(Piece { table, reads, blocks: vec![(ordinal, place)] }),
            }
        }
        pieces
    }

    /// Reads the missing blocks, at most [`AT_ONCE`] by one request to the disk.
    fn read(&mut self, caching: Caching) {
        let pieces = self.pieces();
        let mut left = &pieces[..];
        while let Some(first) = left.first() {
            let read = self.read_pieces(&first.table.context, left, caching);
            left = &left[read..];
        }
    }

    /// Reads the first of these pieces together, one at least; returns how many.
    fn read_pieces(
        &mut self,
        context: &TableContext,
        pieces: &[Piece<'a>],
        caching: Caching,
    ) -> usize {
        let (mut asked, mut requests) = (Vec::new(), Vec::new());
        let pieces = &pieces[..pieces.len().min(AT_ONCE)];
        let pieces = up_to_files(pieces, context.files.at_once(), |piece| piece.table.record.id);
        let around = context.go_around(pieces.len() as u64);
        for piece in pieces {
            match piece.table.file() {
                Ok(file) => {
                    let length = (piece.end() - piece.start()) as usize;
                    context.metrics.request(length, piece.reads);
                    let buffer = vec![0; length];
                    let offset_bytes = piece.start();
                    requests.push(ReadRequest { file, offset_bytes, buffer, around });
                    asked.push(piece);
                }
                // Perhaps the process may have no more open than these.
                Err(_) if !asked.is_empty() => break,
                Err(e) => {
                    self.fail(piece, e);
                    return 1;
                }
            }
        }
        let count = asked.len();
        context.disk.read_many(requests, &mut |at, read| match read {
            Ok(bytes) => self.decode(asked[at], &bytes, caching, around),
            // The lookup of a single key knows what to do when the file ends too early.
            Err(e) if e.is_corruption() => {}
            Err(e) => self.fail(asked[at], e),
        });
        count
    }

    /// Nothing is known of the blocks of a piece.
    fn fail(&mut self, piece: &Piece<'_>, error: Error) {
        let error = error.at_path(&piece.table.path);
        let names = piece.blocks.iter().map(|(o, _)| (piece.table.record.id, *o));
        self.failed.extend(names.map(|name| (name, error.clone())));
    }

    /// Puts the blocks of a piece at hand; damaged ones are left out.
    fn decode(&mut self, piece: &Piece<'_>, bytes: &[u8], caching: Caching, around: bool) {
        let table = piece.table;
        let mut keep = |ordinal, block| {
            let block = Arc::new(block);
            if caching != Caching::Leave {
                table.keep(ordinal, &block, around);
            }
            self.at_hand.insert((table.record.id, ordinal), block);
        };
        for &(ordinal, (start, end)) in &piece.blocks {
            let within = (start - piece.start()) as usize..(end - piece.start()) as usize;
            let stored = table.check(&bytes[within], ordinal, start);
            if let Ok(block) = stored.and_then(|stored| table.unpack(&stored)) {
                keep(ordinal, block);
            }
        }
    }

    fn answer(&self, probe: &Probe<'_>, named: (u64, u64), caching: Caching) -> Result<Lookup> {
        let Probe { table, sought } = *probe;
        let (from, to) = ((table.record.id, named.0), (table.record.id, named.1));
        let mut at_hand = Blocks::new();
        if from <= to {
            if let Some((_, e)) = self.failed.range(from..=to).next() {
                return Err(e.clone());
            }
            let blocks = self.at_hand.range(from..=to);
            at_hand.extend(blocks.map(|((_, ordinal), block)| (*ordinal, block.clone())));
        }
        // Where nothing is at hand, a range of blocks is read as one.
        let at_hand = (!at_hand.is_empty()).then_some(at_hand);
        let borrow = || table.borrow_for(caching, &sought.reads);
        let loan = self.loans.get(&table.record.id).cloned().map_or_else(borrow, Ok)?;
        let indexed = table.with(&loan);
        let (_, block) =
            indexed.find_block_among(sought.key(), named, at_hand, caching, &sought.reads)?;
        table.look_in(block, sought)
    }
}
