//! The chunks of a value: written one by one, compressed or not; found again, checked, put together.

use super::{CHUNK_BYTES, CHUNK_HEADER_BYTES, Packed, ValuePointer, chunks, table_bytes};
use crate::error::{Error, Result};
use crate::format::bytes::{Reader, put_u32, put_u64};
use crate::format::checksum::{checksum, mix};
use crate::format::compression::{Codec, Codecs, RAW};

/// A chunk is compressed if that makes it shorter by one part in so many,
const LEAST_GAIN: usize = 8;
/// and by so many bytes: the pointer gets some longer, and each read costs a decompression.
const LEAST_GAIN_BYTES: usize = 32;
/// In the place of a chunk's compression, what the table's checksum is bound to.
const TABLE: u8 = 0xff;

/// What a chunk's checksum is seeded with; `ends` is the value's length, given with its last chunk.
fn seed(tag: u64, key: &[u8], mark: u8, ends: Option<u64>) -> u64 {
    let ends = ends.map_or(0, |length| length.wrapping_add(1));
    tag ^ mix(checksum(0, ends, key) ^ u64::from(mark))
}

/// Writes one value, chunk by chunk, all full but the last.
pub struct ValueWriter<'a> {
    tag: u64,
    key: &'a [u8],
    codec: Option<&'a mut (dyn Codec + 'static)>,
    offset_bytes: u64,
    /// Where the next chunk will stand.
    at: u64,
    length: u64,
    /// What chunks are compressed with, once one is.
    mark: u8,
    /// How long each chunk is as stored, where one may be compressed.
    lengths: Vec<u32>,
}

impl<'a> ValueWriter<'a> {
    /// Begins the value of `key` at `offset_bytes` of the segment tagged `tag`, compressed by `codec` where
    /// that serves.
    pub fn begin(
        tag: u64,
        offset_bytes: u64,
        key: &'a [u8],
        codec: Option<&'a mut (dyn Codec + 'static)>,
    ) -> ValueWriter<'a> {
        let (at, length, mark, lengths) = (offset_bytes, 0, RAW, Vec::new());
        ValueWriter { tag, key, codec, offset_bytes, at, length, mark, lengths }
    }

    /// Appends the next chunk to `out`.
    pub fn put(&mut self, out: &mut Vec<u8>, chunk: &[u8], is_last: bool) {
        self.length += chunk.len() as u64;
        let start = out.len();
        put_u64(out, 0);
        let mark = self.put_bytes(out, chunk, is_last);
        let ends = is_last.then_some(self.length);
        self.seal(out, start, mark, ends);
    }

    /// Appends what is stored of the chunk; returns how it is compressed.
    fn put_bytes(&mut self, out: &mut Vec<u8>, chunk: &[u8], is_last: bool) -> u8 {
        let Some(codec) = &mut self.codec else {
            out.extend_from_slice(chunk);
            return RAW;
        };
        let start = out.len();
        let mut gain = LEAST_GAIN_BYTES.max(chunk.len().div_ceil(LEAST_GAIN));
        if is_last && self.mark == RAW {
            // It alone would make the table needed.
            gain += table_bytes(self.lengths.len() as u64 + 1) as usize;
        }
        let most_bytes = chunk.len().checked_sub(gain);
        let mark = match most_bytes.is_some_and(|most| codec.compress(chunk, most, out)) {
            true => codec.mark(),
            false => {
                out.extend_from_slice(chunk);
                RAW
            }
        };
        self.mark = self.mark.max(mark);
        self.lengths.push((out.len() - start) as u32);
        mark
    }

    /// Makes the checksum of what `out` holds from `start` on.
    fn seal(&mut self, out: &mut [u8], start: usize, mark: u8, ends: Option<u64>) {
        let stored = out.get_mut(start..).unwrap_or_default();
        seal_chunk(stored, seed(self.tag, self.key, mark, ends), self.at);
        self.at += stored.len() as u64;
    }

    /// Ends the value; it stands in `segment`, where the pointer leads.
    pub fn finish(mut self, out: &mut Vec<u8>, segment: u64) -> ValuePointer {
        let mut pointer = ValuePointer::raw(segment, self.offset_bytes, self.length);
        if self.mark != RAW {
            if self.lengths.len() > 1 {
                let start = out.len();
                put_u64(out, 0);
                self.lengths.iter().for_each(|length| put_u32(out, *length));
                self.seal(out, start, self.mark ^ TABLE, Some(self.length));
            }
            let stored_bytes = self.at - self.offset_bytes;
            pointer.packed = Some(Packed { mark: self.mark, stored_bytes });
        }
        pointer
    }
}

/// Puts the checksum of what follows it before a chunk at `place`.
fn seal_chunk(stored: &mut [u8], seed: u64, place: u64) {
    if let Some((sum, bytes)) = stored.split_first_chunk_mut::<CHUNK_HEADER_BYTES>() {
        *sum = checksum(seed, place, bytes).to_le_bytes();
    }
}

/// Appends `value`, which belongs to `key` and begins at `offset_bytes` of `segment`; the pointer to it.
pub fn put_value(
    out: &mut Vec<u8>,
    tag: u64,
    (segment, offset_bytes): (u64, u64),
    key: &[u8],
    value: &[u8],
    codec: Option<&mut (dyn Codec + 'static)>,
) -> ValuePointer {
    let mut writer = ValueWriter::begin(tag, offset_bytes, key, codec);
    let mut left = value;
    loop {
        let (chunk, rest) = left.split_at(left.len().min(CHUNK_BYTES));
        writer.put(out, chunk, rest.is_empty());
        left = rest;
        if left.is_empty() {
            return writer.finish(out, segment);
        }
    }
}

/// Where the chunks of a value stand, and how.
#[derive(Debug, Clone)]
pub struct Layout {
    pointer: ValuePointer,
    /// Where each ends in the segment, where a table says so.
    ends: Vec<u64>,
}

impl Layout {
    /// Of the value of `key` that `pointer` leads to in the segment tagged `tag`; `table` is what stands at
    /// [`ValuePointer::table`], nothing if that is nowhere.
    ///
    /// # Errors
    /// `Corruption` if the table is not what was written there.
    pub fn of(pointer: ValuePointer, table: &[u8], tag: u64, key: &[u8]) -> Result<Layout> {
        let mut layout = Layout { pointer, ends: Vec::new() };
        if let (Some(packed), Some(place)) = (pointer.packed, pointer.table()) {
            let seed = seed(tag, key, packed.mark ^ TABLE, Some(pointer.length));
            check(table, seed, place.start)?;
            layout.read(table, place.start)?;
        }
        Ok(layout)
    }

    /// Takes the places from a table that begins at `end` of the segment, where the last chunk ends.
    fn read(&mut self, table: &[u8], end: u64) -> Result<()> {
        let lies = |found: u64| {
            let message =
                format!("table of a value's chunks: expected their end at {end}, found {found}");
            Error::corruption(message).at_offset(end)
        };
        let mut reader = Reader::at(table, CHUNK_HEADER_BYTES);
        let mut at = self.pointer.offset;
        // No allocation from a count that the table does not fill.
        for index in 0..self.pointer.chunks() {
            let stored = u64::from(reader.u32()?);
            if stored == 0 || stored > self.raw_length(index) {
                return Err(lies(at));
            }
            at = at.saturating_add(CHUNK_HEADER_BYTES as u64 + stored);
            self.ends.push(at);
        }
        reader.finish("table of a value's chunks")?;
        if at == end { Ok(()) } else { Err(lies(at)) }
    }

    /// How long chunk `index` of the value is.
    pub fn raw_length(&self, index: u64) -> u64 {
        raw_length(&self.pointer, index)
    }

    /// Where chunk `index` stands in the segment, its checksum included, bytes.
    ///
    /// # Errors
    /// `Corruption` if the pointer leads beyond any file.
    pub fn chunk(&self, index: u64) -> Result<std::ops::Range<u64>> {
        let ValuePointer { offset, packed, .. } = self.pointer;
        let end = |index: u64| self.ends.get(index as usize).copied();
        let place = match packed {
            Some(packed) if self.ends.is_empty() => {
                offset.checked_add(packed.stored_bytes).map(|end| offset..end)
            }
            Some(_) => {
                let start = index.checked_sub(1).map_or(Some(offset), end);
                start.and_then(|start| Some(start..end(index)?))
            }
            None => raw_place(&self.pointer, index),
        };
        place.ok_or_else(|| beyond(&self.pointer))
    }

    /// How chunk `index`, of which so many bytes are `stored` with its checksum, is compressed.
    fn mark(&self, index: u64, stored: usize) -> u8 {
        let raw = self.raw_length(index) + CHUNK_HEADER_BYTES as u64 == stored as u64;
        self.pointer.packed.filter(|_| !raw).map_or(RAW, |packed| packed.mark)
    }

    /// Whether chunk `index` has to be decompressed.
    pub fn is_packed(&self, index: u64, stored: &[u8]) -> bool {
        self.mark(index, stored.len()) != RAW
    }

    /// Fills `raw`, as long as the chunk of the value, from what was `stored` of chunk `index`, and checked.
    ///
    /// # Errors
    /// `Unsupported` if this build cannot; `Corruption` if no codec made it (a writer's bug that the
    /// checksum sealed).
    pub fn unpack_chunk(
        &self,
        stored: &[u8],
        index: u64,
        codecs: &Codecs,
        raw: &mut [u8],
    ) -> Result<()> {
        let bytes = stored.get(CHUNK_HEADER_BYTES..).unwrap_or_default();
        let unpacked = match self.mark(index, stored.len()) {
            RAW if bytes.len() == raw.len() => {
                raw.copy_from_slice(bytes);
                Ok(())
            }
            RAW => Err(Error::corruption("separated value: a chunk is cut")),
            mark => codecs.decompress(mark, bytes, raw),
        };
        unpacked.map_err(|e| match self.chunk(index) {
            Ok(place) => {
                Error::new(e.kind(), format!("separated value: {e}")).at_offset(place.start)
            }
            Err(_) => e,
        })
    }

    /// Fills `raw`, as long as the value, from all that [`check_packed`] found sound.
    ///
    /// # Errors
    /// As [`Layout::unpack_chunk`].
    pub fn unpack(&self, stored: &[u8], codecs: &Codecs, raw: &mut [u8]) -> Result<()> {
        for (index, raw) in (0..self.pointer.chunks()).zip(raw.chunks_mut(CHUNK_BYTES)) {
            self.unpack_chunk(self.piece(stored, index)?, index, codecs, raw)?;
        }
        Ok(())
    }

    /// What of the whole value's `stored` bytes is chunk `index`.
    fn piece<'a>(&self, stored: &'a [u8], index: u64) -> Result<&'a [u8]> {
        let place = self.chunk(index)?;
        Ok(within(stored, self.pointer.offset, &place))
    }
}

/// How long chunk `index` of a value is.
fn raw_length(pointer: &ValuePointer, index: u64) -> u64 {
    let before = index.saturating_mul(CHUNK_BYTES as u64);
    pointer.length.saturating_sub(before).min(CHUNK_BYTES as u64)
}

/// Where chunk `index` stands of a value that is stored as it is.
fn raw_place(pointer: &ValuePointer, index: u64) -> Option<std::ops::Range<u64>> {
    let whole = (CHUNK_HEADER_BYTES + CHUNK_BYTES) as u64;
    let start = index.checked_mul(whole)?.checked_add(pointer.offset)?;
    let length = CHUNK_HEADER_BYTES as u64 + raw_length(pointer, index);
    Some(start..start.checked_add(length)?)
}

#[cold]
fn beyond(pointer: &ValuePointer) -> Error {
    Error::corruption(format!("{pointer:?} leads beyond any file"))
}

/// What of the bytes that were `stored` from `offset` on stands at `place`; nothing if they end before.
fn within<'a>(stored: &'a [u8], offset: u64, place: &std::ops::Range<u64>) -> &'a [u8] {
    let inside = |at: u64| at.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
    let range = inside(place.start).zip(inside(place.end));
    range.and_then(|(from, to)| stored.get(from..to)).unwrap_or_default()
}

/// Checks what begins with a checksum and stands at `place`.
fn check(stored: &[u8], seed: u64, place: u64) -> Result<()> {
    let expected = Reader::new(stored).u64().map_err(|e| e.at_offset(place))?;
    let bytes = stored.get(CHUNK_HEADER_BYTES..).unwrap_or_default();
    let found = checksum(seed, place, bytes);
    if found != expected {
        return Err(Error::corruption(format!(
            "separated value: expected checksum {expected:016x}, found {found:016x}"
        ))
        .at_offset(place));
    }
    Ok(())
}

/// Checks chunk `index` of `key`'s value, as it stands in the segment tagged `tag`: its bytes, compressed or
/// not, are `stored[8..]` then.
///
/// # Errors
/// `Corruption` if it is not what was written there for that key.
pub fn check_chunk(stored: &[u8], tag: u64, layout: &Layout, key: &[u8], index: u64) -> Result<()> {
    let (pointer, place) = (layout.pointer, layout.chunk(index)?.start);
    let ends = (index + 1 == pointer.chunks()).then_some(pointer.length);
    let mark = layout.mark(index, stored.len());
    check(stored, seed(tag, key, mark, ends), place)
}

/// Checks all of `key`'s value where it stands as it is, in one chunk: its bytes are `stored[8..]` then.
///
/// # Errors
/// As [`join_chunks`].
pub fn check_short(stored: &[u8], tag: u64, pointer: &ValuePointer, key: &[u8]) -> Result<()> {
    check(stored, seed(tag, key, RAW, Some(pointer.length)), pointer.offset)
}

/// Checks all of `key`'s value, read from where `pointer` says in the segment tagged `tag`: a compressed one.
/// How it is to be decompressed.
///
/// # Errors
/// `Corruption` if that is not what was written there for that key.
pub fn check_packed(stored: &[u8], tag: u64, pointer: ValuePointer, key: &[u8]) -> Result<Layout> {
    let table = pointer.table().map(|place| within(stored, pointer.offset, &place));
    let layout = Layout::of(pointer, table.unwrap_or_default(), tag, key)?;
    for index in 0..pointer.chunks() {
        check_chunk(layout.piece(stored, index)?, tag, &layout, key, index)?;
    }
    Ok(layout)
}

/// Checks the chunks of `key`'s value, read from where `pointer` says in the segment tagged `tag`, where it
/// stands as it is, and closes the gaps between them: the value is `stored[8..]` then.
///
/// # Errors
/// `Corruption` if they are not what was written there for that key.
pub fn join_chunks(
    stored: &mut Vec<u8>,
    tag: u64,
    pointer: ValuePointer,
    key: &[u8],
) -> Result<()> {
    debug_assert!(pointer.packed.is_none());
    let mut end = CHUNK_HEADER_BYTES;
    for index in 0..chunks(pointer.length) {
        let place = raw_place(&pointer, index).ok_or_else(|| beyond(&pointer))?;
        let (from, to) = (place.start - pointer.offset, place.end - pointer.offset);
        let (from, to) = (from as usize, to as usize);
        let ends = (index + 1 == chunks(pointer.length)).then_some(pointer.length);
        let piece = stored.get(from..to).unwrap_or_default();
        check(piece, seed(tag, key, RAW, ends), place.start)?;
        if from + CHUNK_HEADER_BYTES != end {
            stored.copy_within(from + CHUNK_HEADER_BYTES..to, end);
        }
        end += to - from - CHUNK_HEADER_BYTES;
    }
    stored.truncate(end);
    Ok(())
}

/// Makes the checksums of a value right, whatever it holds: for fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub fn mend(stored: &mut [u8], tag: u64, pointer: ValuePointer, key: &[u8]) {
    let range = |place: std::ops::Range<u64>| {
        let inside = |at: u64| at.saturating_sub(pointer.offset).min(stored.len() as u64) as usize;
        inside(place.start)..inside(place.end)
    };
    let mut pieces = Vec::new();
    let mut layout = Layout { pointer, ends: Vec::new() };
    if let (Some(packed), Some(place)) = (pointer.packed, pointer.table()) {
        let table = range(place.clone());
        let _ = layout.read(stored.get(table.clone()).unwrap_or_default(), place.start);
        pieces.push((
            table,
            seed(tag, key, packed.mark ^ TABLE, Some(pointer.length)),
            place.start,
        ));
    }
    for index in 0..pointer.chunks().min(stored.len() as u64) {
        let Ok(place) = layout.chunk(index) else { break };
        let ends = (index + 1 == pointer.chunks()).then_some(pointer.length);
        let piece = range(place.clone());
        let mark = layout.mark(index, piece.len());
        pieces.push((piece, seed(tag, key, mark, ends), place.start));
    }
    for (piece, seed, place) in pieces {
        seal_chunk(stored.get_mut(piece).unwrap_or_default(), seed, place);
    }
}
