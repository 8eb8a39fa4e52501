//! Many values at once, wherever they are: neighbours by one request, and the requests together.

use std::sync::Arc;

use bytes::Bytes;

use super::Segment;
use crate::disk::up_to_files;
use crate::error::{Error, Result};
use crate::format::value::ValuePointer;
use crate::slice::Slice;
use crate::sstable::sought::Reads;

/// Values whose places are no further apart than this are read by one request.
const GAP_BYTES: u64 = 16 << 10;
/// The most bytes one request for several values asks for.
const REQUEST_BYTES: u64 = 1 << 20;
/// Requests given to the disk together take at most so many bytes, or are one.
const TOGETHER_BYTES: u64 = 8 << 20;
/// and are so many: each may hold a file open.
const TOGETHER: usize = 64;
/// So many segments are kept at hand while values are looked up one by one.
const KNOWN: usize = 16;

/// Values that are read by one request.
pub(super) struct Piece {
    pub segment: Arc<Segment>,
    /// Where the request begins and ends in the segment.
    pub start: u64,
    pub end: u64,
    /// Which values, in the order of their places.
    pub values: Vec<usize>,
}

/// Values that were looked up.
#[derive(Debug)]
pub struct LookedUp {
    /// In the order they were wanted.
    pub values: Vec<Slice>,
    /// Which of them were not at hand, ascending.
    pub read: Vec<usize>,
}

/// The values that `wanted` names by key and pointer: those that are at hand from where they are, the
/// others as [`load_all`] reads them.
///
/// # Errors
/// As [`load_all`].
pub fn look_up_all(
    wanted: &[(&[u8], ValuePointer)],
    find: impl Fn(u64) -> Result<Arc<Segment>>,
    reads: &Reads,
) -> Result<LookedUp> {
    let mut values = Vec::with_capacity(wanted.len());
    let (mut read, mut missing) = (Vec::new(), Vec::new());
    // Neighbours stand in few segments; each that is found anew is counted, in memory that others write to.
    let mut known: Vec<Arc<Segment>> = Vec::new();
    for &(key, pointer) in wanted {
        let at = match known.iter().position(|segment| segment.id() == pointer.segment) {
            Some(at) => at,
            None => {
                if known.len() == KNOWN {
                    known.clear();
                }
                known.push(find(pointer.segment)?);
                known.len() - 1
            }
        };
        let segment = &known[at];
        let value = segment.at_hand(key, pointer);
        if value.is_none() {
            segment.miss(pointer);
            read.push(values.len());
            missing.push((key, pointer));
        }
        values.push(value);
    }
    let mut loaded = match missing.is_empty() {
        true => Vec::new(),
        false => load_all(&missing, find, reads)?,
    }
    .into_iter();
    let whole = values.into_iter().map(|value| value.or_else(|| loaded.next()));
    let values = whole.map(|value| value.expect("each that was missing was read")).collect();
    Ok(LookedUp { values, read })
}

/// The values that `wanted` names by key and pointer, in that order. They are read in the order of their
/// places, in large requests; `find` knows the segments. Memory: the values, and at most
/// [`TOGETHER_BYTES`] or the longest of them on top. Says in `reads` what that made the disk do.
///
/// # Errors
/// As [`Segment::load`], and those of `find`.
pub fn load_all(
    wanted: &[(&[u8], ValuePointer)],
    find: impl Fn(u64) -> Result<Arc<Segment>>,
    reads: &Reads,
) -> Result<Vec<Slice>> {
    load(wanted, find, reads, Memory::Own)
}

/// As [`load_all`], for whoever drops all of them soon: what one request read stays in memory while any value of
/// it is held, and is not copied, where values are half of it and more. Memory: twice the values, and as there.
///
/// # Errors
/// As [`load_all`].
pub fn load_all_for_now(
    wanted: &[(&[u8], ValuePointer)],
    find: impl Fn(u64) -> Result<Arc<Segment>>,
    reads: &Reads,
) -> Result<Vec<Slice>> {
    load(wanted, find, reads, Memory::Shared)
}

/// Whose memory values stand in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// Each in its own.
    Own,
    /// All of one request together.
    Shared,
}

fn load(
    wanted: &[(&[u8], ValuePointer)],
    find: impl Fn(u64) -> Result<Arc<Segment>>,
    reads: &Reads,
    memory: Memory,
) -> Result<Vec<Slice>> {
    let mut values: Vec<Option<Slice>> = vec![None; wanted.len()];
    read_all(&pieces(wanted, find)?, wanted, &mut values, reads, memory)?;
    Ok(values.into_iter().map(|value| value.expect("each place was read")).collect())
}

/// Reads these pieces as [`load_all_for_now`] does.
pub(super) fn read_for_now(
    pieces: &[Piece],
    wanted: &[(&[u8], ValuePointer)],
    values: &mut [Option<Slice>],
    reads: &Reads,
) -> Result<()> {
    read_all(pieces, wanted, values, reads, Memory::Shared)
}

fn read_all(
    pieces: &[Piece],
    wanted: &[(&[u8], ValuePointer)],
    values: &mut [Option<Slice>],
    reads: &Reads,
    memory: Memory,
) -> Result<()> {
    let mut from = 0;
    while let Some(first) = pieces.get(from) {
        let (mut to, mut bytes) = (from + 1, first.bytes());
        while let Some(next) = pieces.get(to)
            && to - from < TOGETHER
            && next.bytes().saturating_add(bytes) <= TOGETHER_BYTES
        {
            bytes += next.bytes();
            to += 1;
        }
        from += read(&pieces[from..to], wanted, values, reads, memory)?;
    }
    Ok(())
}

/// What is wanted by requests, in the order of places.
pub(super) fn pieces(
    wanted: &[(&[u8], ValuePointer)],
    find: impl Fn(u64) -> Result<Arc<Segment>>,
) -> Result<Vec<Piece>> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| wanted[*at].1);
    let mut pieces: Vec<Piece> = Vec::new();
    for at in order {
        let pointer = wanted[at].1;
        let end = pointer.end();
        match pieces.last_mut() {
            Some(piece)
                if piece.segment.id() == pointer.segment
                    && pointer.offset.saturating_sub(piece.end) <= GAP_BYTES
                    && end.max(piece.end) - piece.start <= REQUEST_BYTES =>
            {
                piece.end = piece.end.max(end);
                piece.values.push(at);
            }
            _ => {
                let segment = find(pointer.segment)?;
                pieces.push(Piece { segment, start: pointer.offset, end, values: vec![at] });
            }
        }
    }
    Ok(pieces)
}

/// Reads the first of these pieces together, one at least; returns how many.
fn read(
    pieces: &[Piece],
    wanted: &[(&[u8], ValuePointer)],
    values: &mut [Option<Slice>],
    reads: &Reads,
    memory: Memory,
) -> Result<usize> {
    let Some(context) = pieces.first().map(|piece| &piece.segment.context) else { return Ok(0) };
    let mut requests = Vec::with_capacity(pieces.len());
    let most = context.files.at_once();
    for piece in up_to_files(pieces, most, |piece| piece.segment.id()) {
        match piece.segment.request(piece.start, piece.end, reads) {
            Ok(request) => requests.push(request),
            // Perhaps the process may have no more open than these.
            Err(_) if !requests.is_empty() => break,
            Err(e) => return Err(e),
        }
    }
    let count = requests.len();
    // Of several that fail the first one's error is told, whichever came first.
    let mut failed: Option<(usize, Error)> = None;
    context.disk.read_many(requests, &mut |at, read| {
        let piece = &pieces[at];
        let taken = read
            .map_err(|e| e.at_path(piece.segment.path()))
            .and_then(|bytes| piece.take(bytes, wanted, values, memory));
        if let Err(e) = taken
            && failed.as_ref().is_none_or(|(earlier, _)| at < *earlier)
        {
            failed = Some((at, e));
        }
    });
    match failed {
        Some((_, e)) => Err(e),
        None => Ok(count),
    }
}

impl Piece {
    /// Takes its values from what was read.
    fn take(
        &self,
        mut bytes: Vec<u8>,
        wanted: &[(&[u8], ValuePointer)],
        values: &mut [Option<Slice>],
        memory: Memory,
    ) -> Result<()> {
        let segment = &self.segment;
        let place = |pointer: ValuePointer| {
            let inside = (pointer.offset - self.start) as usize;
            inside..inside + pointer.stored_bytes() as usize
        };
        if memory == Memory::Shared && self.is_shared_well(wanted) {
            let bytes = Bytes::from(bytes);
            for &at in &self.values {
                let (key, pointer) = wanted[at];
                values[at] = Some(segment.shared(key, pointer, bytes.slice(place(pointer)))?);
            }
            return Ok(());
        }
        for &at in &self.values {
            let (key, pointer) = wanted[at];
            let value = match (self.values.len(), pointer.packed) {
                (1, _) => segment.value(key, pointer, std::mem::take(&mut bytes)),
                (_, Some(_)) => segment.unpacked(key, pointer, &bytes[place(pointer)]),
                (_, None) => segment.value(key, pointer, bytes[place(pointer)].to_vec()),
            };
            values[at] = Some(value?);
        }
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// What its values take.
    pub fn stored_bytes(&self, wanted: &[(&[u8], ValuePointer)]) -> u64 {
        self.values.iter().map(|&at| wanted[at].1.stored_bytes()).sum()
    }

    /// Whether several values take half of its bytes and more: what lies between them stays in memory with them.
    fn is_shared_well(&self, wanted: &[(&[u8], ValuePointer)]) -> bool {
        self.values.len() > 1 && self.stored_bytes(wanted) >= self.bytes() / 2
    }
}
