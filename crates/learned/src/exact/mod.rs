//! `exact`: a directory of blocks that always names one block.
//!
//! A table's entries, in key order, are cut into blocks. Between the last key `a` of a block and the
//! first key `b` of the next, every string `s` with `a < s <= b` serves as their *separator*. So the
//! directory is free to choose strings that cost it few bits, and, since a block may end anywhere in
//! the last part of its size, to choose the block ends so that there are such strings. The plan is
//! made for up to 64 blocks, a *chunk*, at a time; a chunk's separators are numbers near a line
//! (`numeric.rs`, planned by `fit.rs`) or short byte strings (`strings.rs`, `shorten.rs`), whichever is
//! smaller. The blocks' end offsets are a second sequence, a [`Monotone`](crate::monotone::Monotone).
//!
//! [`Directory::locate`] reads the encoded bytes; besides them, memory holds where each chunk lies, its
//! head and, decoded, its line (`places.rs`): 40 bytes for up to 64 blocks. Invariants:
//! 1. Every key at or above a block's lower separator and below the next block's is located there,
//!    present or not; keys below all separators are located in block 0.
//! 2. A block holds at most [`Limits::max_block_bytes`] of entries, or one entry.
//! 3. Plans depend on keys, sizes and limits alone: the same table gives the same bytes everywhere.
//! 4. Whatever bytes are decoded, no call panics, and each lookup ends after work
//!    bounded by a chunk's.
//!
//! # Layout
//! ```text
//! directory  := version:u8 = 1, blocks:varint, chunks:varint, first_bytes:varint, first,
//!               shared:varint, alphabet, head_kind:u8, heads, first_blocks:monotone, body_ends:monotone,
//!               ends:monotone, bodies
//! alphabet   := bytes:u8, bytes
//! heads      := head_shift:u8, head_bits:u8, (chunks - 1) * head_bits, padded to a byte   kind 0
//!             | string_ends:monotone, strings                                             kind 1
//! bodies     := one body for each chunk, to the end of the bytes
//! body       := flags:u8, of_head:varint, [rest_bytes:varint, rest, [base:u64]], inner
//! ```
//! `first` is the separator below block 0. The first `shared` bytes of it begin all heads (the
//! separator below a chunk's first block is its *head*; chunk 0's is `first`) and all chunks'
//! prefixes. A head of kind 0 is `shared` bytes and a number: its bits shifted left by `head_shift`,
//! big-endian in eight bytes, without the zero bytes at the end. One of kind 1 is `shared` bytes and
//! its string. `first_blocks` holds each chunk's first block, `body_ends` where its body ends in the
//! bodies, `ends` each block's end in 64-byte units.
//!
//! A chunk has 1 to 64 blocks. A body's flags are its kind in bits 0 and 1 (0: one block, nothing follows; 1: numeric; 2:
//! strings), bit 2 for a `rest` and bit 3 for exceptions. The chunk's prefix, which all its inner
//! separators begin with, is `of_head` bytes of its head followed by `rest`. The base of a numeric
//! chunk is written out behind a rest, and else what its head has behind the prefix, as a number.
//! What is inside a chunk is written at its kind: `numeric.rs`, `strings.rs`.
//!
//! Eight keys, 0, 1000 to 7000 as big-endian `u64`s, two to a block:
//! ```text
//! 01 04 01 08 0000000000000000 06     version, 4 blocks, 1 chunk, first; all share 6 bytes of it
//! 00                                  no alphabet
//! 00 00 00                            heads are numbers; there are none besides the first
//! 01 01 0000000000000000 00 00000000 00                 first blocks: 0 (see `monotone`)
//! 01 01 0700000000000000 00 00000000 00                 body ends: 7
//! 01 04 2000000000000000 8040 00000000 00               ends: 32, 64, 96, 128 units
//! 01 06 3a 00 f403 00               numeric, prefix: 6 bytes of the head; shift 58, width 0,
//! ```
//! slope 500 / 256, start 0. With six bytes cut off, key 2000 is the number `2000 << 48`. Separator
//! 1 is `(500 * 1 >> 8) << 58` = `0x400 << 48`: the bytes `000000000000` and `04`, above 1000
//! (`0x3e8`) and not above 2000 (`0x7d0`); the others are `0xc00` and `0x1400`, and cost nothing.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[allow(clippy::indexing_slicing, clippy::expect_used)] // plans only: never sees encoded bytes
mod builder;
mod directory;
#[allow(clippy::indexing_slicing)] // plans only
mod fit;
mod heads;
mod numeric;
mod places;
mod search;
mod separator;
#[allow(clippy::indexing_slicing)] // plans only
mod shorten;
mod strings;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
#[allow(clippy::indexing_slicing)] // plans only
mod windows;

pub use builder::DirectoryBuilder;
pub use directory::{Directory, Statistics};
pub use separator::Separator;

use crate::bytes::{Writer, first_eight as embed};
use windows::Buffered;

/// What a plan must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What the entries of one block may sum to, in bytes. A larger entry gets a block of its own.
    pub max_block_bytes: u64,
    /// The most blocks that are planned together, 1 to 64. Fewer make planning need less buffered
    /// data and find a nearer line; each chunk costs some 10 to 20 bytes besides. 64 unless memory is
    /// short.
    pub blocks_per_chunk: usize,
}

/// The end of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// One past the block's last entry, counted in the entries that were offered.
    pub end: usize,
    /// The separator above the block: above its last key, at most the next one. Empty for the
    /// table's last block.
    pub separator: Separator,
}

/// A planned chunk.
#[derive(Debug)]
struct Chunk {
    cuts: Vec<Cut>,
    inner: Inner,
}

/// The separators between a planned chunk's blocks.
#[derive(Debug)]
enum Inner {
    /// A body that is final.
    Body(Vec<u8>),
    /// Byte strings, which are encoded when the table's alphabet is known.
    Strings(Vec<Vec<u8>>),
}

/// What a chunk's inner separators are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Single = 0,
    Numeric = 1,
    Strings = 2,
}

/// The most blocks in a chunk. A decoder refuses more: it bounds the work of every call.
const MOST_BLOCKS: usize = 64;
const KIND_MASK: u8 = 3;
const HAS_REST: u8 = 4;
const HAS_EXCEPTIONS: u8 = 8;

impl Chunk {
    /// Writes the beginning of a body and returns the length of its rest.
    fn begin(
        body: &mut Vec<u8>,
        kind: Kind,
        head: &[u8],
        prefix: &[u8],
        exceptions: bool,
    ) -> usize {
        let of_head = common_prefix(head, prefix);
        let rest = prefix.get(of_head..).unwrap_or_default();
        let mut writer = Writer::new(body);
        let rest_flag = if rest.is_empty() { 0 } else { HAS_REST };
        writer.u8(kind as u8 | rest_flag | if exceptions { HAS_EXCEPTIONS } else { 0 });
        writer.varint(of_head as u64);
        if !rest.is_empty() {
            writer.varint(rest.len() as u64);
            body.extend_from_slice(rest);
        }
        rest.len()
    }

    /// A chunk with these inner cuts: adds the last one.
    fn finish(buffered: &Buffered<'_>, mut cuts: Vec<Cut>, slack: u64, body: Vec<u8>) -> Self {
        let start = cuts.last().map_or(0, |cut| cut.end);
        cuts.push(buffered.last_cut(start, slack));
        Self { cuts, inner: Inner::Body(body) }
    }
}

/// The length of the longest common beginning.
#[inline]
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut equal = 0;
    // Eight bytes at a time; read little-endian, the first that differ are the lowest.
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        let (Ok(a), Ok(b)) = (a.try_into(), b.try_into()) else { break };
        let differing = u64::from_le_bytes(a) ^ u64::from_le_bytes(b);
        if differing != 0 {
            return equal + differing.trailing_zeros() as usize / 8;
        }
        equal += 8;
    }
    let (a, b) = (a.get(equal..).unwrap_or_default(), b.get(equal..).unwrap_or_default());
    equal + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Without the zero bytes at the end.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or_default()
}
