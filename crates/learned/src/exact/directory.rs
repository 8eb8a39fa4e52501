//! Encoded bytes in, blocks out.

use std::cmp::Ordering;
use std::sync::Arc;

use super::builder::VERSION;
use super::heads::{Head, Heads, behind};
use super::numeric::Numeric;
use super::places::{NOWHERE, Place, Plain};
use super::strings::Strings;
use super::{HAS_EXCEPTIONS, HAS_REST, KIND_MASK, Kind, MOST_BLOCKS, embed, trimmed};
use crate::bytes::Reader;
use crate::error::{DecodeError, Found};
use crate::monotone::Monotone;

/// Names the one block of a table that can hold a key, and where it lies. See the
/// [module page](super).
///
/// Reads its encoded bytes in place. Whatever these bytes are, no call panics; bytes that lie name
/// wrong blocks, which the separators inside the blocks show.
#[derive(Clone, Debug)]
pub struct Directory {
    bytes: Arc<[u8]>,
    blocks: u64,
    chunks: u64,
    /// Where in `bytes` the first separator lies.
    first: (usize, usize),
    /// How many of its bytes begin all heads.
    shared: usize,
    /// Where in `bytes` the string chunks' alphabet lies.
    alphabet: (usize, usize),
    heads: Heads,
    ends: Monotone,
    bodies: usize,
    /// The first separator behind what all share, as a number.
    first_number: u64,
    /// Where each chunk lies.
    places: Box<[Place]>,
}

/// What a directory consists of. Bits are those of the encoded form, which is what memory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Blocks.
    pub blocks: u64,
    /// Chunks whose separators are numbers.
    pub numeric_chunks: u64,
    /// Chunks whose separators are byte strings.
    pub string_chunks: u64,
    /// Blocks in these.
    pub string_blocks: u64,
    /// Chunks of one block, which need no separators inside.
    pub single_chunks: u64,
    /// Separators that lie off their chunk's line and are stored by themselves.
    pub exceptions: u64,
    /// Bits of the separators inside numeric chunks, without exceptions and headers.
    pub numeric_bits: u64,
    /// Bits of the separators inside string chunks, without their headers.
    pub string_bits: u64,
    /// Bits of exceptions.
    pub exception_bits: u64,
    /// Bits of the separators below chunks.
    pub head_bits: u64,
    /// Bits of the blocks' end offsets.
    pub offset_bits: u64,
    /// All other bits: chunks' headers, where chunks begin.
    pub header_bits: u64,
    /// Bytes the directory takes in memory, its struct included.
    pub size_bytes: usize,
}

impl Statistics {
    /// All bits of the encoded form.
    pub fn total_bits(&self) -> u64 {
        let separators = self.numeric_bits + self.string_bits + self.exception_bits;
        separators + self.head_bits + self.offset_bits + self.header_bits
    }
}

/// A chunk's body, behind its prefix.
enum Inner<'a> {
    Single,
    Numeric(Numeric<'a>),
    Strings(Strings<'a>),
}

/// A chunk, ready to be searched.
struct Chunk<'a> {
    first_block: u64,
    /// Inner separators: one fewer than blocks.
    count: u64,
    head: Head<'a>,
    of_head: usize,
    rest: &'a [u8],
    inner: Inner<'a>,
}

impl Directory {
    /// Takes encoded bytes over.
    ///
    /// # Errors
    /// The bytes are cut short, have another version, or some field points outside them.
    pub fn decode(bytes: impl Into<Arc<[u8]>>) -> Result<Self, DecodeError> {
        let bytes: Arc<[u8]> = bytes.into();
        let mut reader = Reader::new(&bytes);
        let version = reader.u8("version 1 of an exact directory")?;
        if version != VERSION {
            let found = Found::Number(version.into());
            return Err(reader.refuse(0, "version 1 of an exact directory", found));
        }
        let blocks = reader.varint("a count of blocks")?;
        let chunks = reader.varint("a count of chunks")?;
        let first_bytes = reader.varint("a length")?;
        let start = reader.offset();
        reader.take(usize::try_from(first_bytes).unwrap_or(usize::MAX), "a first separator")?;
        let first = (start, reader.offset());
        let at = reader.offset();
        let shared = reader.varint("a shared part of the first separator")?;
        if shared > first_bytes {
            let found = Found::Number(shared);
            return Err(reader.refuse(at, "a shared part of the first separator", found));
        }
        let at = reader.offset();
        let alphabet_bytes = usize::from(reader.u8("a length")?);
        reader.take(alphabet_bytes, "an alphabet")?;
        let alphabet = (at + 1, reader.offset());
        let heads = Heads::read(&bytes, &mut reader, chunks.saturating_sub(1))?;
        let mut sequence = |count: u64| {
            let at = reader.offset();
            let sequence = Monotone::decode_at(bytes.clone(), at)?;
            reader.take(sequence.end() - at, "a sequence")?;
            match sequence.len() {
                len if len == count => Ok(sequence),
                len => Err(reader.refuse(at, "a sequence as long as counted", Found::Number(len))),
            }
        };
        let first_blocks = sequence(chunks)?;
        let body_ends = sequence(chunks)?;
        let ends = sequence(blocks)?;
        let bodies = reader.offset();
        let shared = shared as usize;
        let mut directory = Self {
            bytes: bytes.clone(),
            blocks,
            chunks,
            first,
            shared,
            alphabet,
            heads,
            ends,
            bodies,
            first_number: 0,
            places: Box::default(),
        };
        directory.first_number = directory.head(0).number_behind(0);
        directory.places = directory.find_chunks(&first_blocks, &body_ends)?;
        for index in 0..chunks {
            let plain = directory.plain(index)?;
            if let Some(place) = directory.places.get_mut(index as usize) {
                place.plain = plain;
            }
        }
        Ok(directory)
    }

    /// What is kept of a chunk, decoded. Refuses one that is none.
    fn plain(&self, index: u64) -> Result<Option<Plain>, DecodeError> {
        let chunk = self.chunk(index)?;
        let Inner::Numeric(numeric) = &chunk.inner else { return Ok(None) };
        let numbers = index == 0 || matches!(self.heads, Heads::Numbers { .. });
        if !numbers || !chunk.rest.is_empty() {
            return Ok(None);
        }
        Ok(Plain::of(numeric, self.head_number(index), chunk.of_head))
    }

    /// Where the chunks lie. Refuses those that are not there.
    fn find_chunks(
        &self,
        first_blocks: &Monotone,
        body_ends: &Monotone,
    ) -> Result<Box<[Place]>, DecodeError> {
        let body_bytes = (self.bytes.len() - self.bodies) as u64;
        let refuse = |offset: u64, expected, number| DecodeError {
            offset: self.bodies.saturating_add(offset as usize),
            expected,
            found: Found::Number(number),
        };
        // A body has two bytes at least: that bounds the loop below, and what it allocates.
        if self.chunks > body_bytes / 2 || (self.chunks == 0) != (self.blocks == 0) {
            return Err(refuse(0, "a body for every chunk", body_bytes));
        }
        let mut places = Vec::with_capacity(self.chunks as usize);
        let (mut begin, mut first_block) = (0, first_blocks.get(0));
        for chunk in 0..self.chunks {
            let end = body_ends.get(chunk);
            let end_block = match chunk + 1 {
                next if next < self.chunks => first_blocks.get(next),
                _ => self.blocks,
            };
            let blocks = end_block.saturating_sub(first_block);
            let ordered = (1..=MOST_BLOCKS as u64).contains(&blocks) && begin < end;
            let whole = (chunk > 0 || first_block == 0) && end <= body_bytes;
            let fits = |number: u64| u32::try_from(number).ok();
            let place = || {
                let blocks = u8::try_from(blocks).ok()?;
                let (end_block, body_end) = (fits(end_block)?, fits(end)?);
                Some(Place { end_block, body_end, blocks, plain: None })
            };
            match place().filter(|_| ordered && whole) {
                Some(place) => places.push(place),
                None => return Err(refuse(begin, "chunks one after another", chunk)),
            }
            (begin, first_block) = (end, end_block);
        }
        match body_bytes - begin {
            0 => Ok(places.into()),
            more => Err(DecodeError {
                offset: self.bodies.saturating_add(begin as usize),
                expected: "the end",
                found: Found::Trailing(more as usize),
            }),
        }
    }

    /// How many blocks the table has.
    pub fn block_count(&self) -> u64 {
        self.blocks
    }

    /// The block whose separators hold `key` between them: lower <= key < upper. A key below all
    /// separators belongs to block 0. 0 for a table without blocks.
    pub fn locate(&self, key: &[u8]) -> u64 {
        let tail = match self.shared {
            0 => key,
            shared => match behind(key, self.first().get(..shared).unwrap_or_default()) {
                Ok(tail) => tail,
                Err(Ordering::Less) => return 0,
                Err(_) => return self.blocks.saturating_sub(1),
            },
        };
        let index = self.heads.rank(&self.bytes, tail, self.chunks.saturating_sub(1));
        if index == 0 && tail < self.first().get(self.shared..).unwrap_or_default() {
            return 0; // chunks rank keys that are not below their heads
        }
        let Some(place) = self.places.get(index as usize) else { return 0 };
        let head = self.head_number(index);
        let bodies = self.bytes.get(self.bodies..).unwrap_or_default();
        if let Some(rank) = place.rank(head, tail, bodies) {
            return place.first_block() + rank;
        }
        let Ok(chunk) = self.chunk(index) else { return 0 };
        chunk.first_block + chunk.rank(tail)
    }

    /// Where `block` begins and ends in the table, in units of 64 bytes. (0, 0) from
    /// [`block_count`](Self::block_count) on.
    pub fn extent(&self, block: u64) -> (u64, u64) {
        match block.checked_sub(1) {
            None => (0, self.ends.get(0)),
            Some(before) if block < self.blocks => self.ends.pair(before),
            Some(_) => (0, 0),
        }
    }

    /// Where the blocks end in the table, in units of 64 bytes, in order: for less than asking for the
    /// extent of each.
    pub fn ends(&self) -> impl Iterator<Item = u64> {
        self.ends.iter()
    }

    /// The lower separator of `block`, as [`DirectoryBuilder::cut`](super::DirectoryBuilder::cut)
    /// said it; of block 0 what the builder was made with. Empty from
    /// [`block_count`](Self::block_count) on.
    pub fn separator(&self, block: u64) -> Vec<u8> {
        if block == 0 {
            return self.first().to_vec();
        }
        let index = self.places.partition_point(|place| u64::from(place.end_block) <= block);
        let Some(place) = self.places.get(index) else { return Vec::new() };
        let (index, first) = (index as u64, place.first_block());
        let shared = self.first().get(..self.shared).unwrap_or_default();
        if block == first {
            return [shared, self.head(index).bytes(&mut [0; 8])].concat();
        }
        match self.chunk(index) {
            Ok(chunk) => [shared, &chunk.separator(block - first)].concat(),
            Err(_) => Vec::new(),
        }
    }

    /// Bytes the directory takes in memory, its struct included.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
            + size_of_val(&*self.places)
            + self.heads.unpacked_bytes()
            + size_of::<Self>()
    }

    /// What the directory consists of. Visits every chunk.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics {
            blocks: self.blocks,
            head_bits: 8 * self.heads.encoded_bytes() as u64,
            offset_bits: 8 * self.ends.encoded_bytes() as u64,
            size_bytes: self.size_bytes(),
            ..Statistics::default()
        };
        for index in 0..self.chunks {
            let Ok(chunk) = self.chunk(index) else { continue };
            match &chunk.inner {
                Inner::Single => statistics.single_chunks += 1,
                Inner::Numeric(numeric) => {
                    statistics.numeric_chunks += 1;
                    statistics.exceptions += numeric.exceptions;
                    statistics.numeric_bits += chunk.count * u64::from(numeric.width);
                    statistics.exception_bits +=
                        numeric.exceptions * u64::from(numeric.exception_width);
                }
                Inner::Strings(strings) => {
                    statistics.string_chunks += 1;
                    statistics.string_blocks += chunk.count + 1;
                    statistics.string_bits += 8 * strings.encoded_bytes() as u64;
                }
            }
        }
        let known = statistics.total_bits();
        statistics.header_bits = (8 * self.bytes.len() as u64).saturating_sub(known);
        statistics
    }

    /// How many bytes all share, and the chunks, with the numbers of their heads.
    #[cfg(test)]
    pub(super) fn places(&self) -> (usize, impl Iterator<Item = (u64, &Place)>) {
        let heads = (0..self.chunks).map(|index| self.head_number(index));
        (self.shared, heads.zip(&*self.places))
    }

    /// Where the bodies begin in the encoded bytes.
    #[cfg(test)]
    pub(super) fn bodies(&self) -> usize {
        self.bodies
    }

    fn first(&self) -> &[u8] {
        self.bytes.get(self.first.0..self.first.1).unwrap_or_default()
    }

    #[inline]
    fn head(&self, chunk: u64) -> Head<'_> {
        match chunk.checked_sub(1) {
            None => Head::String(self.first().get(self.shared..).unwrap_or_default()),
            Some(index) => self.heads.get(&self.bytes, index),
        }
    }

    /// The head of a chunk as a number, if it is one.
    #[inline]
    fn head_number(&self, chunk: u64) -> u64 {
        chunk.checked_sub(1).map_or(self.first_number, |index| self.heads.number(index))
    }

    #[inline]
    fn chunk(&self, index: u64) -> Result<Chunk<'_>, DecodeError> {
        let place = self.places.get(index as usize).copied().unwrap_or(NOWHERE);
        let before = index.checked_sub(1).and_then(|before| self.places.get(before as usize));
        let begin = before.map_or(0, |before| before.body_end as usize);
        let count = place.count();
        let bodies = self.bytes.get(self.bodies..).unwrap_or_default();
        let body = bodies.get(begin..place.body_end as usize).unwrap_or_default();
        let mut reader = Reader::new(body);
        let at = reader.offset();
        let flags = reader.u8("flags")?;
        let head = self.head(index);
        let of_head = (reader.varint("a part of the head")? as usize).saturating_sub(self.shared);
        let of_head = of_head.min(match head {
            Head::Number(_) => 8,
            Head::String(bytes) => bytes.len(),
        });
        let rest = match flags & HAS_REST {
            0 => [].as_slice(),
            _ => {
                let length = reader.varint("a length")?;
                reader.take(usize::try_from(length).unwrap_or(usize::MAX), "a prefix")?
            }
        };
        let inner = match flags & KIND_MASK {
            kind if kind == Kind::Numeric as u8 => {
                let base = match rest {
                    [] => head.number_behind(of_head),
                    _ => reader.u64("a base")?,
                };
                let has_exceptions = flags & HAS_EXCEPTIONS != 0;
                Inner::Numeric(Numeric::read(&mut reader, base, count, has_exceptions)?)
            }
            kind if kind == Kind::Strings as u8 => {
                let alphabet = self.bytes.get(self.alphabet.0..self.alphabet.1);
                let alphabet = alphabet.unwrap_or_default();
                Inner::Strings(Strings::read(&mut reader, count, alphabet)?)
            }
            kind if kind == Kind::Single as u8 => Inner::Single,
            other => {
                let found = Found::Number(other.into());
                return Err(reader.refuse(self.bodies + begin + at, "a kind of chunk", found));
            }
        };
        Ok(Chunk { first_block: place.first_block(), count, head, of_head, rest, inner })
    }
}

impl Chunk<'_> {
    /// What of the head follows the prefix; nothing if the prefix does not lie in it.
    fn head_rest<'a>(&'a self, room: &'a mut [u8; 8]) -> &'a [u8] {
        match self.rest {
            [] => self.head.bytes(room).get(self.of_head..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// How many inner separators are at most `key`, which is not below the head. Both without what
    /// the table shares.
    #[inline]
    fn rank(&self, key: &[u8]) -> u64 {
        let tail = self.head.behind(key, self.of_head);
        match tail
            .and_then(|key| if self.rest.is_empty() { Ok(key) } else { behind(key, self.rest) })
        {
            // All separators begin with the prefix: they relate to the key as it does.
            Err(Ordering::Less) => 0,
            Err(_) => self.count,
            Ok(tail) => match &self.inner {
                Inner::Single => 0,
                Inner::Numeric(numeric) => numeric.rank(embed(tail)),
                Inner::Strings(strings) => strings.rank(self.head_rest(&mut [0; 8]), tail),
            },
        }
    }

    /// Inner separator `i`, from 1, without what the table shares.
    fn separator(&self, i: u64) -> Vec<u8> {
        let mut room = [0; 8];
        let of_head = self.head.bytes(&mut room);
        let of_head = of_head.get(..self.of_head).unwrap_or(of_head);
        match &self.inner {
            Inner::Single => Vec::new(),
            Inner::Numeric(numeric) => {
                [of_head, self.rest, trimmed(&numeric.separator(i).to_be_bytes())].concat()
            }
            Inner::Strings(strings) => {
                [of_head, self.rest, &strings.separator(self.head_rest(&mut [0; 8]), i)].concat()
            }
        }
    }
}
