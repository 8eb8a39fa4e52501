//! Plans in, encoded bytes out.

use super::fit::{Fitter, Room};
use super::shorten::Alphabet;
use super::windows::Buffered;
use super::{Chunk, Cut, Inner, Kind, Limits, MOST_BLOCKS, common_prefix, embed, shorten, trimmed};
use crate::bytes::Writer;
use crate::monotone::MonotoneBuilder;
use crate::monotone::bits::{BitWriter, bits_of};

pub(super) const VERSION: u8 = 1;
pub(super) const NUMERIC_HEADS: u8 = 0;
pub(super) const STRING_HEADS: u8 = 1;

/// What a chunk costs outside its body, in bits: its head and where things begin.
const CHUNK_BITS: f64 = 64.0;
/// What a block costs outside its chunk, in bits: its end offset.
const BLOCK_BITS: f64 = 6.0;
/// Numeric chunks with fewer bits a block than this are not compared with byte strings, which need
/// a head byte and a byte of suffix at least.
const STRINGS_BITS: f64 = 18.0;

/// Decides where a table's blocks end, and encodes their [`Directory`](super::Directory).
///
/// Works on a stretch of buffered entries at a time: [`cut`](Self::cut), write the blocks,
/// [`push_end`](Self::push_end) for each, and again until the table ends. Holds the chunks so far:
/// numeric ones encoded, of others the separators, which are encoded when it is known what
/// characters they consist of.
///
/// ```
/// use learned::exact::{Directory, DirectoryBuilder, Limits};
///
/// let keys: Vec<[u8; 8]> = (0..1000u64).map(|i| (i * i).to_be_bytes()).collect();
/// let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
/// let sizes = vec![100; keys.len()];
///
/// let limits = Limits { max_block_bytes: 4096, blocks_per_chunk: 64 };
/// let mut builder = DirectoryBuilder::new(limits, keys[0]);
/// let mut ends = Vec::new(); // of the blocks, in entries
/// while ends.last() != Some(&keys.len()) {
///     let start = ends.last().copied().unwrap_or(0);
///     for cut in builder.cut(&keys[start..], &sizes[start..], true) {
///         ends.push(start + cut.end);
///         builder.push_end(64 * ends.len() as u64); // as if each block took 4,096 bytes
///     }
/// }
///
/// let directory = Directory::decode(builder.finish())?;
/// assert_eq!(directory.block_count(), ends.len() as u64);
/// let block = directory.locate(keys[500]) as usize;
/// assert!(ends[block - 1] <= 500 && 500 < ends[block]);
/// # Ok::<(), learned::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct DirectoryBuilder {
    limits: Limits,
    /// Each chunk's head one after another, and where each ends.
    heads: Vec<u8>,
    head_ends: Vec<usize>,
    inner: Vec<Inner>,
    first_blocks: MonotoneBuilder,
    blocks: u64,
    ends: MonotoneBuilder,
    /// The head of the next chunk.
    head: Vec<u8>,
    /// What the table's first separator and the last key offered have in common.
    shared: usize,
    ended: bool,
    /// For the bytes before each entry, and for a plan.
    sums: Vec<u64>,
    room: Room,
}

impl DirectoryBuilder {
    /// A builder for a table whose block 0 lies above `first_separator`: its smallest key, or
    /// anything below that.
    ///
    /// # Panics
    /// `limits` allow no block of a byte or no block in a chunk.
    pub fn new(limits: Limits, first_separator: &[u8]) -> Self {
        assert!(limits.max_block_bytes > 0, "a block must hold something");
        assert!((1..=MOST_BLOCKS).contains(&limits.blocks_per_chunk), "chunks have 1 to 64 blocks");
        Self {
            limits,
            heads: Vec::new(),
            head_ends: Vec::new(),
            inner: Vec::new(),
            first_blocks: MonotoneBuilder::new(),
            blocks: 0,
            ends: MonotoneBuilder::new(),
            head: first_separator.to_vec(),
            shared: first_separator.len(),
            ended: false,
            sums: Vec::new(),
            room: Room::default(),
        }
    }

    /// How many bytes of entries to buffer for [`cut`](Self::cut), unless the table ends before:
    /// two blocks more than a chunk has. With fewer, chunks become shorter and cost more.
    pub fn wanted_bytes(&self) -> u64 {
        (self.limits.blocks_per_chunk as u64 + 2).saturating_mul(self.limits.max_block_bytes)
    }

    /// Decides the ends of the next chunk's blocks.
    ///
    /// `keys[i]`, ascending without duplicates, and `sizes[i]`, the bytes the entry takes in a block,
    /// are the entries not yet in a block; `end_of_table` says that nothing follows them. What the
    /// cuts leave over is to be offered again together with more. Unless the table ends, at least
    /// one entry is left over; given a single entry then, there are no cuts.
    ///
    /// # Panics
    /// `keys` and `sizes` differ in length, or there are cuts that ended the table. Keys that
    /// do not ascend, or that lie below the separator of the cut before, panic in debug builds; in
    /// others they may, or give a directory that names wrong blocks.
    pub fn cut(&mut self, keys: &[&[u8]], sizes: &[u32], end_of_table: bool) -> Vec<Cut> {
        assert_eq!(keys.len(), sizes.len(), "every key has a size");
        assert!(!self.ended, "the table has ended");
        debug_assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "keys ascend");
        debug_assert!(keys.first().is_none_or(|key| *key >= self.head.as_slice()));
        if keys.is_empty() {
            return Vec::new();
        }
        // No sensible writer buffers 4 billion entries for one chunk; what is too much waits.
        let most = keys.len().min(u32::MAX as usize - 1);
        let end_of_table = end_of_table && most == keys.len();
        let head = std::mem::take(&mut self.head);
        let (keys, sizes) = (&keys[..most], &sizes[..most]);
        let buffered = Buffered::new(keys, sizes, &mut self.sums, end_of_table, &head, self.limits);
        let Some(chunk) = cheapest(&buffered, &mut self.room) else {
            self.head = head;
            return Vec::new();
        };
        let last = chunk.cuts.last().expect("a chunk has a block");
        self.ended = end_of_table && last.end == keys.len();
        // Whatever lies between the first separator and the last key begins as both do: all keys,
        // all separators, all chunks' prefixes.
        self.shared = common_prefix(self.first_head(&head), keys[keys.len() - 1]);
        self.heads.extend_from_slice(&head);
        self.head_ends.push(self.heads.len());
        self.inner.push(chunk.inner);
        self.first_blocks.push(self.blocks).expect("blocks are counted up");
        self.blocks += chunk.cuts.len() as u64;
        self.head = last.separator.to_vec();
        chunk.cuts
    }

    fn first_head<'a>(&'a self, only: &'a [u8]) -> &'a [u8] {
        self.head_ends.first().map_or(only, |&end| &self.heads[..end])
    }

    /// Takes the end offset of the next block, in units of 64 bytes from the table's start.
    ///
    /// # Panics
    /// It is below that of the block before.
    pub fn push_end(&mut self, end_units: u64) {
        self.ends.push(end_units).expect("blocks lie one after another");
    }

    /// The encoded directory.
    ///
    /// # Panics
    /// There was not one end offset for each block, or entries were cut and the table did not end.
    pub fn finish(self) -> Vec<u8> {
        assert_eq!(self.blocks, self.ends.len(), "every block has an end");
        assert!(self.ended || self.blocks == 0, "the last entries are in no block");
        let chunks = self.head_ends.len();
        let first = self.first_head(&self.head);
        let shared = if chunks == 0 { 0 } else { self.shared };
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.u8(VERSION);
        writer.varint(self.blocks);
        writer.varint(chunks as u64);
        writer.varint(first.len() as u64);
        out.extend_from_slice(first);
        Writer::new(&mut out).varint(shared as u64);
        let (alphabet, bodies, body_ends) = self.bodies();
        out.push(alphabet.bytes.len() as u8);
        out.extend(alphabet.bytes);
        let later = self.head_ends.windows(2).map(|ends| &self.heads[ends[0] + shared..ends[1]]);
        encode_heads(&mut out, &later.collect::<Vec<_>>());
        out.extend(self.first_blocks.finish());
        out.extend(body_ends);
        out.extend(self.ends.finish());
        out.extend(bodies);
        out
    }

    /// All bodies and where they end.
    fn bodies(&self) -> (Alphabet, Vec<u8>, Vec<u8>) {
        let strings = self.inner.iter().filter_map(|inner| match inner {
            Inner::Strings(separators) => Some(separators.as_slice()),
            Inner::Body(_) => None,
        });
        let alphabet = Alphabet::of(strings);
        let (mut bodies, mut ends) = (Vec::new(), MonotoneBuilder::new());
        let mut head_start = 0;
        for (inner, &head_end) in self.inner.iter().zip(&self.head_ends) {
            let head = &self.heads[head_start..head_end];
            match inner {
                Inner::Body(body) => bodies.extend_from_slice(body),
                Inner::Strings(strings) => bodies.extend(shorten::encode(head, strings, &alphabet)),
            }
            ends.push(bodies.len() as u64).expect("lengths are added up");
            head_start = head_end;
        }
        (alphabet, bodies, ends.finish())
    }
}

/// The heads of all chunks but the first, without what the table shares.
fn encode_heads(out: &mut Vec<u8>, heads: &[&[u8]]) {
    if heads.iter().all(|head| head.len() <= 8 && trimmed(head).len() == head.len()) {
        let numbers: Vec<u64> = heads.iter().map(|head| embed(head)).collect();
        let shift = numbers.iter().map(|n| n.trailing_zeros()).min().unwrap_or(0).min(63);
        let width = numbers.iter().map(|n| bits_of(n >> shift)).max().unwrap_or(0);
        let mut bits = BitWriter::default();
        for number in numbers {
            bits.push(number >> shift, width);
        }
        out.extend([NUMERIC_HEADS, shift as u8, width as u8]);
        out.extend(bits.finish());
    } else {
        let mut ends = MonotoneBuilder::new();
        let mut end = 0;
        for head in heads {
            end += head.len() as u64;
            ends.push(end).expect("lengths are added up");
        }
        out.push(STRING_HEADS);
        out.extend(ends.finish());
        out.extend(heads.concat());
    }
}

/// The plan with the fewest bits for each byte of entries; none if a single entry is not the end.
fn cheapest(buffered: &Buffered<'_>, room: &mut Room) -> Option<Chunk> {
    if buffered.is_open(0) {
        return single(buffered);
    }
    let size = |chunk: &Chunk| match &chunk.inner {
        Inner::Body(body) => 8.0 * body.len() as f64,
        Inner::Strings(strings) => {
            let alphabet = Alphabet::of([strings.as_slice()].into_iter());
            8.0 * shorten::encode(buffered.head, strings, &alphabet).len() as f64
        }
    };
    let numeric = Fitter::new(buffered, room).plan();
    if numeric.as_ref().is_some_and(|n| size(n) / (n.cuts.len() as f64) < STRINGS_BITS) {
        return numeric;
    }
    let strings = shorten::plan(buffered);
    let cost = |chunk: &Chunk| {
        let (end, blocks) = (chunk.cuts.last().map_or(0, |cut| cut.end), chunk.cuts.len() as f64);
        (size(chunk) + CHUNK_BITS + BLOCK_BITS * blocks) / buffered.sums[end].max(1) as f64
    };
    let cheapest = match (numeric, strings) {
        (Some(a), Some(b)) => Some(if cost(&a) <= cost(&b) { a } else { b }),
        (a, b) => a.or(b),
    };
    cheapest.or_else(|| single(buffered))
}

/// A chunk of one block.
fn single(buffered: &Buffered<'_>) -> Option<Chunk> {
    let mut body = Vec::new();
    Chunk::begin(&mut body, Kind::Single, &[], &[], false);
    if buffered.is_open(0) && !buffered.end_of_table {
        // The writer has buffered less than a block: one of all entries but the last.
        let end = buffered.keys.len() - 1;
        if end == 0 {
            return None;
        }
        return Some(Chunk { cuts: vec![buffered.shortest(end, end)], inner: Inner::Body(body) });
    }
    Some(Chunk::finish(buffered, Vec::new(), 10, body))
}
