//! Values read ahead of who reads them in key order: a sweep takes a megabyte of entries at a time, whose values stand in as many
//! places as there are segments. Each of these goes on where it ended; where the device has to be asked, it is asked for
//! several steps' worth of a segment at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Segment;
use super::many::{self, Piece, load_all_for_now};
use crate::error::Result;
use crate::format::value::ValuePointer;
use crate::slice::Slice;
use crate::sstable::sought::Reads;

/// After so many loads it is looked again whether the system holds what is read.
const LOADS_A_LOOK: u32 = 8;
/// In so many places,
const LOOKS: usize = 4;
/// of so many bytes.
pub(super) const LOOK_BYTES: usize = 512;
/// What one request asks for at most, unless what is wanted now is more.
const REQUEST_BYTES: u64 = 256 << 10;
/// So many are given to the disk together: each may hold a file open.
const TOGETHER: usize = 64;
/// Never is more than so many times as much read ahead as is wanted: what will be wanted is a guess.
const MOST_TIMES: u64 = 16;

/// What was read of segments and is still to be asked for.
pub struct ReadAhead {
    /// By the segments' numbers: what follows what was asked for last.
    held: BTreeMap<u64, Held>,
    /// All of it takes so much at most, with what was asked for together with it; and as much again while values that used all of it up are
    /// kept by whoever asked for them.
    most_bytes: u64,
    /// Whether the device was asked when it was looked last.
    is_cold: bool,
    loads: u32,
}

struct Held {
    start: u64,
    bytes: Bytes,
    /// What it keeps in memory, with what was taken of it.
    kept_bytes: u64,
    /// When something was taken of it last.
    load: u32,
}

/// A piece with what follows it.
struct Extended {
    piece: Piece,
    end: u64,
}

impl ReadAhead {
    /// Nothing yet, and never more than so much; twice that with what was handed out last.
    pub fn new(most_bytes: u64) -> ReadAhead {
        ReadAhead { held: BTreeMap::new(), most_bytes, is_cold: false, loads: 0 }
    }

    /// As [`load_all_for_now`]. `times` as much as is wanted will be wanted yet, of the same segments from where it ends; what is
    /// read of that is held until then.
    ///
    /// # Errors
    /// As [`load_all_for_now`]; none of what is not wanted yet.
    pub fn load(
        &mut self,
        wanted: &[(&[u8], ValuePointer)],
        find: impl Fn(u64) -> Result<Arc<Segment>>,
        times: u64,
        reads: &Reads,
    ) -> Result<Vec<Slice>> {
        if self.held.is_empty() {
            return self.load_rest(wanted, find, times, reads);
        }
        let mut values: Vec<Option<Slice>> = vec![None; wanted.len()];
        let mut left = Vec::new();
        for (at, &(key, pointer)) in wanted.iter().enumerate() {
            match self.take(&pointer) {
                Some(stored) => {
                    values[at] = Some(find(pointer.segment)?.shared(key, pointer, stored)?);
                }
                None => left.push(at),
            }
        }
        // What is used up goes, and what nobody has come for of late.
        let is_old = |held: &Held| self.loads.wrapping_sub(held.load) > LOADS_A_LOOK;
        self.held.retain(|_, held| !held.bytes.is_empty() && !is_old(held));
        let rest: Vec<_> = left.iter().map(|&at| wanted[at]).collect();
        let read = self.load_rest(&rest, find, times, reads)?;
        left.into_iter().zip(read).for_each(|(at, value)| values[at] = Some(value));
        Ok(values.into_iter().map(|value| value.expect("held, or read")).collect())
    }

    /// The values of which nothing is held.
    fn load_rest(
        &mut self,
        wanted: &[(&[u8], ValuePointer)],
        find: impl Fn(u64) -> Result<Arc<Segment>>,
        times: u64,
        reads: &Reads,
    ) -> Result<Vec<Slice>> {
        match self.looks_cold(wanted, &find) {
            true => self.read(wanted, find, times, reads),
            false => load_all_for_now(wanted, find, reads),
        }
    }

    /// What is stored of a value, if it is held. What stands before it will not be asked for any more.
    fn take(&mut self, pointer: &ValuePointer) -> Option<Bytes> {
        let held = self.held.get_mut(&pointer.segment)?;
        let from = pointer.offset.checked_sub(held.start)? as usize;
        let to = pointer.end().saturating_sub(held.start) as usize;
        if to > held.bytes.len() {
            // It goes on where this ends, or further on.
            held.bytes.clear();
            return None;
        }
        let stored = held.bytes.slice(from..to);
        held.bytes = held.bytes.slice(to..);
        (held.start, held.load) = (pointer.end(), self.loads);
        Some(stored)
    }

    /// Whether the system does not hold what is wanted, as far as was looked.
    fn looks_cold(
        &mut self,
        wanted: &[(&[u8], ValuePointer)],
        find: &impl Fn(u64) -> Result<Arc<Segment>>,
    ) -> bool {
        if wanted.is_empty() || self.most_bytes == 0 {
            return false;
        }
        if self.loads.is_multiple_of(LOADS_A_LOOK) {
            let places = wanted.iter().step_by(wanted.len().div_ceil(LOOKS));
            let there = |(_, pointer): &(&[u8], ValuePointer)| {
                find(pointer.segment).is_ok_and(|segment| segment.is_cached(*pointer))
            };
            let (there, looked) = (places.clone().filter(|at| there(at)).count(), places.len());
            self.is_cold = 2 * there < looked;
        }
        self.loads = self.loads.wrapping_add(1);
        self.is_cold
    }

    /// Reads what is wanted, and holds what follows it.
    fn read(
        &mut self,
        wanted: &[(&[u8], ValuePointer)],
        find: impl Fn(u64) -> Result<Arc<Segment>>,
        times: u64,
        reads: &Reads,
    ) -> Result<Vec<Slice>> {
        let mut values: Vec<Option<Slice>> = vec![None; wanted.len()];
        let (mut alone, extended) = self.extend(many::pieces(wanted, find)?, wanted, times);
        let mut extended = extended.into_iter().peekable();
        while extended.peek().is_some() {
            let some: Vec<Extended> = extended.by_ref().take(TOGETHER).collect();
            let requests = some
                .iter()
                .map(|Extended { piece, end }| piece.segment.request(piece.start, *end, reads));
            // What cannot be asked for, or read, with what follows is asked for alone.
            let Ok(requests) = requests.collect::<Result<Vec<_>>>() else {
                alone.extend(some.into_iter().map(|extended| extended.piece));
                continue;
            };
            let Some(disk) = some.first().map(|first| first.piece.segment.context.disk.clone())
            else {
                break;
            };
            for (extended, read) in some.into_iter().zip(disk.read_all(requests)) {
                match read {
                    Ok(bytes) => self.keep(extended, Bytes::from(bytes), wanted, &mut values)?,
                    Err(_) => alone.push(extended.piece),
                }
            }
        }
        many::read_for_now(&alone, wanted, &mut values, reads)?;
        Ok(values.into_iter().map(|value| value.expect("each place was read")).collect())
    }

    /// Those of `pieces` that are to be read alone, and those with what follows them: the last of each segment, if what is wanted of
    /// the segment takes three quarters of where it stands and more.
    fn extend(
        &self,
        pieces: Vec<Piece>,
        wanted: &[(&[u8], ValuePointer)],
        times: u64,
    ) -> (Vec<Piece>, Vec<Extended>) {
        let of_segments = || pieces.chunk_by(|a, b| a.segment.id() == b.segment.id());
        let mut segments: Vec<bool> = Vec::with_capacity(pieces.len());
        for of_segment in of_segments() {
            let stored: u64 = of_segment.iter().map(|piece| piece.stored_bytes(wanted)).sum();
            let from = of_segment.first().map_or(0, |first| first.start);
            let to = of_segment.last().map_or(0, |last| last.end);
            let ends = (1..=of_segment.len()).map(|at| at == of_segment.len());
            segments.extend(ends.map(|is_last| is_last && stored >= (to - from) / 4 * 3));
        }
        let kept_bytes: u64 = self.held.values().map(|held| held.kept_bytes).sum();
        let mut left_bytes = self.most_bytes.saturating_sub(kept_bytes);
        let count = of_segments().count().max(self.held.len()).max(1) as u64;
        let share_bytes = self.most_bytes / count;
        let (mut alone, mut extended) = (Vec::new(), Vec::new());
        for (piece, may_go_on) in pieces.into_iter().zip(segments) {
            let room = share_bytes.min(left_bytes).saturating_sub(piece.bytes());
            let beyond = piece.bytes().saturating_mul(times.min(MOST_TIMES)).min(room);
            let end = piece.end_with(beyond, REQUEST_BYTES);
            match may_go_on && end > piece.end {
                true => {
                    left_bytes = left_bytes.saturating_sub(end - piece.start);
                    extended.push(Extended { piece, end });
                }
                false => alone.push(piece),
            }
        }
        (alone, extended)
    }

    /// Takes what is wanted from what was read, and holds the rest.
    fn keep(
        &mut self,
        Extended { piece, end }: Extended,
        bytes: Bytes,
        wanted: &[(&[u8], ValuePointer)],
        values: &mut [Option<Slice>],
    ) -> Result<()> {
        for &at in &piece.values {
            let (key, pointer) = wanted[at];
            let inside = (pointer.offset - piece.start) as usize;
            let stored = bytes.slice(inside..inside + pointer.stored_bytes() as usize);
            values[at] = Some(piece.segment.shared(key, pointer, stored)?);
        }
        let rest = bytes.slice((piece.end - piece.start) as usize..);
        let kept_bytes = end - piece.start;
        let held = Held { start: piece.end, bytes: rest, kept_bytes, load: self.loads };
        self.held.insert(piece.segment.id(), held);
        Ok(())
    }
}

impl Piece {
    /// Where it ends with so much `beyond` it, as far as the segment goes and one request asks for.
    fn end_with(&self, beyond: u64, request_bytes: u64) -> u64 {
        let most = self.start.saturating_add(request_bytes).min(self.segment.file_bytes());
        let end = self.end.saturating_add(beyond).min(most).max(self.end);
        if self.segment.lacks(end).is_some() { self.end } else { end }
    }
}
