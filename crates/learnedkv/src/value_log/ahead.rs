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

/// What was read of segments and is still to be asked for.
pub struct ReadAhead {
    /// By the segments' numbers: what follows what was asked for last.
    held: BTreeMap<u64, Held>,
    /// All of it takes so much at most, with what was asked for together with it twice as much.
    most_bytes: u64,
    /// Whether the device was asked when it was looked last.
    is_cold: bool,
    loads: u32,
}

struct Held {
    start: u64,
    bytes: Bytes,
}

impl ReadAhead {
    /// Nothing yet, and never more than so much.
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
        self.held.retain(|_, held| !held.bytes.is_empty());
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
        held.start = pointer.end();
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
        let pieces = many::pieces(wanted, find)?;
        let held_bytes: u64 = self.held.values().map(|held| held.bytes.len() as u64).sum();
        let mut left_bytes = self.most_bytes.saturating_sub(held_bytes);
        let share_bytes = self.most_bytes / pieces.len().max(self.held.len()).max(1) as u64;
        let mut values: Vec<Option<Slice>> = vec![None; wanted.len()];
        let mut alone = Vec::new();
        for piece in pieces {
            let beyond = piece.bytes().saturating_mul(times).min(share_bytes).min(left_bytes);
            let end = piece.end_with(beyond, REQUEST_BYTES);
            let is_worth_it = end > piece.end && piece.is_dense(wanted);
            let Some(bytes) = is_worth_it.then(|| piece.read_to(end, reads)).flatten() else {
                alone.push(piece);
                continue;
            };
            for &at in &piece.values {
                let (key, pointer) = wanted[at];
                let inside = (pointer.offset - piece.start) as usize;
                let stored = bytes.slice(inside..inside + pointer.stored_bytes() as usize);
                values[at] = Some(piece.segment.shared(key, pointer, stored)?);
            }
            left_bytes = left_bytes.saturating_sub(end - piece.end);
            let rest = bytes.slice((piece.end - piece.start) as usize..);
            self.held.insert(piece.segment.id(), Held { start: piece.end, bytes: rest });
        }
        many::read_for_now(&alone, wanted, &mut values, reads)?;
        Ok(values.into_iter().map(|value| value.expect("each place was read")).collect())
    }
}

impl Piece {
    /// Where it ends with so much `beyond` it, as far as the segment goes and one request asks for.
    fn end_with(&self, beyond: u64, request_bytes: u64) -> u64 {
        let most = self.start.saturating_add(request_bytes).min(self.segment.file_bytes());
        let end = self.end.saturating_add(beyond).min(most).max(self.end);
        if self.segment.lacks(end).is_some() { self.end } else { end }
    }

    /// What stands from its start to `end`; `None`: it could not be read, perhaps for what is behind the piece.
    fn read_to(&self, end: u64, reads: &Reads) -> Option<Bytes> {
        self.segment.read_into_pool(self.start, end, reads).ok()
    }
}
