//! Slabs, the buffers in them, and how they are emptied.
//!
//! * A slab is cut into pieces of one size, of which there are eight between a power of two and the next: a piece is at most
//!   an eighth longer than what stands in it, or a fourth where fewer than eight make a slab (a half in the small slabs of a very
//!   small pool). What is longer than a quarter of a slab has one for itself, of whole pages.
//! * What is free is taken from the slab that is oldest by number: younger ones become empty.
//! * **A bound.** All slabs together take no more than [`Pool::set_limit_bytes`] says, or [`FLOOR_SLABS`] slabs. Where another
//!   would be too many, an empty one of any size goes back; if there is none, [`Pool::reclaim`] names what stands in one, of its
//!   part that which has most free, and its caller lets go of it where he can. What cannot be let go of (a reader looks at it) stays, and
//!   such a slab is not named again. Whoever must read gets his buffer in any case, beyond the bound if need be.
//! * Beside the bound stands what is *lent to last* ([`Pool::take_to_last`]): others count that. Its slabs are small, since one
//!   piece keeps all of its slab.
//! * An empty slab is kept for as long as the bound allows: pages that are there already cost a writer nothing.
//! * There are several *parts*, each with its lock; a thread takes from its own, a buffer returns where it is
//!   from. The bound is that of all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lines::place;
use super::pieces::{Piece, cut};

/// What a buffer is kept under: whoever gave it knows what to let go of.
pub type Label = (u64, u64);

/// Slabs: a 2,048th of what all may take, within these; but a 32nd where that is less than the first, and no less than
/// the last.
const USUAL_SLAB_BYTES: u64 = 64 << 10;
const MOST_SLAB_BYTES: u64 = 4 << 20;
const LEAST_SLAB_BYTES: u64 = 16 << 10;
/// The most a slab has of what is lent to last, if it is not one buffer.
const MOST_LASTING_BYTES: usize = 256 << 10;
/// However low the bound, so many slabs may be: reads need some, of a few sizes.
const FLOOR_SLABS: u64 = 2;
/// Shorter pieces there are not, and all are multiples of [`ALIGNMENT_BYTES`].
const LEAST_PIECE_BYTES: usize = 512;
const ALIGNMENT_BYTES: usize = 64;
/// A slab has so many pieces at least; or fewer if that wastes less than whole pages do; or one.
const USUAL_PIECES: usize = 4;
const PAGE_BYTES: usize = 4096;
/// For each so many bytes of the bound there is one part, and no more than so many.
const PART_BYTES: u64 = 64 << 20;
const MOST_PARTS: u64 = 16;

/// Slabs, and who has what of them. Clones are the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Slabs>);

struct Slabs {
    slab_bytes: usize,
    limit_bytes: AtomicU64,
    /// However low that is, so many may be.
    floor_bytes: AtomicU64,
    held_bytes: AtomicU64,
    /// Of those, slabs that nothing stands in.
    empty_bytes: AtomicU64,
    /// Of those, slabs of buffers that are lent to last.
    lasting_bytes: AtomicU64,
    parts: Box<[Mutex<Part>]>,
}

/// The slabs of some threads.
#[derive(Default)]
struct Part {
    /// By number; a number that no slab has is in `unused`.
    slabs: Vec<Option<Slab>>,
    unused: BTreeSet<u32>,
    /// Which have free pieces, by their length.
    with_free: BTreeMap<Kind, BTreeSet<u32>>,
    /// From where the next slab to be emptied is looked for, among equals.
    hand: usize,
}

/// What a slab is cut into: how long its pieces are, and whether they are lent to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    piece_bytes: usize,
    lasts: bool,
}

struct Slab {
    kind: Kind,
    free: Vec<Piece>,
    /// For each piece, what to ask for it; none if it is free, or was asked for, or is nobody's who could let go of it.
    labels: Box<[Option<Label>]>,
    labelled: usize,
}

impl Slab {
    fn new(pieces: Vec<Piece>, kind: Kind) -> Slab {
        let labels = vec![None; pieces.len()].into();
        Slab { kind, free: pieces, labels, labelled: 0 }
    }

    fn bytes(&self) -> u64 {
        (self.labels.len() * self.kind.piece_bytes) as u64
    }

    fn live(&self) -> usize {
        self.labels.len() - self.free.len()
    }

    fn label(&mut self, number: u32, label: Option<Label>) {
        let Some(place) = self.labels.get_mut(number as usize) else { return };
        let before = std::mem::replace(place, label);
        self.labelled += usize::from(label.is_some());
        self.labelled -= usize::from(before.is_some());
    }

    /// Whether all that stands here can be asked for.
    fn can_be_emptied(&self) -> bool {
        self.live() > 0 && self.labelled == self.live()
    }
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A buffer, if the bound allows it;
    Within,
    /// in any case;
    InAnyCase,
    /// or one that is beside the bound.
    ToLast,
}

/// What could be done to have room for another slab.
#[derive(Debug, PartialEq, Eq)]
pub enum Room {
    /// A slab went back.
    Made,
    /// One goes back once all this is let go of.
    Asks(Vec<Label>),
    /// Nothing: what there is somebody looks at.
    None,
}

impl Pool {
    /// A pool whose slabs are of a size for `limit_bytes`, which is its bound until another is set.
    pub fn new(limit_bytes: u64) -> Pool {
        let share = |of: u64| (limit_bytes / of).next_power_of_two();
        let least = share(32).clamp(LEAST_SLAB_BYTES, USUAL_SLAB_BYTES);
        let slab_bytes = share(2048).clamp(least, MOST_SLAB_BYTES);
        let parts = (limit_bytes / PART_BYTES).next_power_of_two().clamp(1, MOST_PARTS);
        Pool(Arc::new(Slabs {
            slab_bytes: slab_bytes as usize,
            limit_bytes: AtomicU64::new(limit_bytes),
            floor_bytes: AtomicU64::new(FLOOR_SLABS * slab_bytes),
            held_bytes: AtomicU64::new(0),
            empty_bytes: AtomicU64::new(0),
            lasting_bytes: AtomicU64::new(0),
            parts: (0..parts).map(|_| Mutex::default()).collect(),
        }))
    }

    /// Sets the bound. It is the caller's to [reclaim](Pool::reclaim) what is beyond.
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.0.limit_bytes.store(limit_bytes, Relaxed);
    }

    /// No slab stays that nothing stands in, from now on: somebody's buffers may be here for much longer than whoever
    /// would take others.
    pub fn let_go(&self) {
        self.0.floor_bytes.store(0, Relaxed);
        self.0.limit_bytes.store(0, Relaxed);
        while self.give_back_empty() {}
    }

    /// What all slabs take, bytes.
    #[cfg(test)]
    pub fn held_bytes(&self) -> u64 {
        self.0.held_bytes.load(Relaxed)
    }

    /// What those take that anything stands in which is not lent to last.
    pub fn used_bytes(&self) -> u64 {
        self.0.bounded_bytes().saturating_sub(self.0.empty_bytes.load(Relaxed))
    }

    /// Whether slabs take more than the bound.
    pub fn is_over(&self) -> bool {
        self.0.bounded_bytes() > self.0.bound_bytes()
    }

    /// A buffer of `length` bytes that is beside the bound: whoever asks for it counts it, and for how long he has it
    /// nothing here says.
    pub fn take_to_last(&self, length: usize) -> Buffer {
        self.take_of(length, Asked::ToLast).unwrap_or_else(|| Buffer::empty(self))
    }

    /// A buffer of `length` bytes, its content any; `None` if that took a slab more than there may be.
    pub fn take_within(&self, length: usize) -> Option<Buffer> {
        self.take_of(length, Asked::Within)
    }

    /// A buffer of `length` bytes, its content any.
    pub fn take(&self, length: usize) -> Buffer {
        // Only the bound can say no.
        self.take_of(length, Asked::InAnyCase).unwrap_or_else(|| Buffer::empty(self))
    }

    fn take_of(&self, length: usize, asked: Asked) -> Option<Buffer> {
        let lasts = asked == Asked::ToLast;
        let (count, piece_bytes) = self.0.pieces_for(length, lasts);
        let kind = Kind { piece_bytes, lasts };
        let at = self.own_part();
        let mut part = self.0.part(at);
        let taken = part.take(kind, &self.0);
        let (slab, piece) = match taken {
            Some(taken) => taken,
            None => {
                drop(part);
                self.0.grow(count * piece_bytes, asked)?;
                let slab = Slab::new(cut(count, piece_bytes), kind);
                part = self.0.part(at);
                self.0.empty_bytes.fetch_add(slab.bytes(), Relaxed);
                part.add(slab);
                part.take(kind, &self.0)?
            }
        };
        drop(part);
        let (piece, part, pool) = (Some(piece), at as u32, self.0.clone());
        Some(Buffer { piece, length, slab, part, pool })
    }

    /// Gives an empty slab back, or names all that stands in one: of the first part, this thread's own before the others,
    /// that has such a slab, the one which has most free.
    pub fn reclaim(&self) -> Room {
        if self.give_back_empty() {
            return Room::Made;
        }
        let mut asks = self.parts().filter_map(|at| self.0.part(at).name_one());
        asks.next().map_or(Room::None, Room::Asks)
    }

    /// Gives an empty slab back; whether there was one.
    fn give_back_empty(&self) -> bool {
        if self.0.empty_bytes.load(Relaxed) == 0 {
            return false;
        }
        let slab = self.parts().find_map(|at| self.0.part(at).remove_empty());
        let found = slab.is_some();
        slab.into_iter().for_each(|slab| self.0.forget(slab));
        found
    }

    /// All parts, this thread's own first.
    fn parts(&self) -> impl Iterator<Item = usize> {
        let (own, count) = (self.own_part(), self.0.parts.len());
        (0..count).map(move |step| (own + step) % count)
    }

    fn own_part(&self) -> usize {
        match self.0.parts.len() {
            1 => 0,
            count => place(count),
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} of {} bytes)", self.used_bytes(), self.0.bound_bytes())
    }
}

impl Slabs {
    fn part(&self, at: usize) -> MutexGuard<'_, Part> {
        // There is one at least, and numbers are below their count.
        #[allow(clippy::indexing_slicing)]
        self.parts[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pieces of how many bytes a slab has, one of which takes `length`.
    fn pieces_for(&self, length: usize, lasts: bool) -> (usize, usize) {
        let most = if lasts { MOST_LASTING_BYTES } else { self.slab_bytes };
        let slab_bytes = self.slab_bytes.min(most);
        let least = length.max(LEAST_PIECE_BYTES).next_multiple_of(ALIGNMENT_BYTES);
        let alone = least.next_multiple_of((least.next_power_of_two() / 16).max(PAGE_BYTES));
        let count = slab_bytes / least;
        // The four highest bits of the count say the size.
        let low = count.checked_ilog2().unwrap_or_default().saturating_sub(3);
        let count = (count >> low << low).max(1);
        let piece_bytes = slab_bytes / count / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        match count >= USUAL_PIECES || count > 1 && piece_bytes < alone {
            true => (count, piece_bytes),
            false => (1, alone),
        }
    }

    fn bound_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed).max(self.floor_bytes.load(Relaxed))
    }

    /// What slabs take beside buffers that are lent to last.
    fn bounded_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed).saturating_sub(self.lasting_bytes.load(Relaxed))
    }

    /// Counts a slab more, if there may be one.
    fn grow(&self, bytes: usize, asked: Asked) -> Option<()> {
        let (more, within) = (bytes as u64, asked == Asked::Within);
        let bound = self.bound_bytes() + self.lasting_bytes.load(Relaxed);
        let grown = |held: u64| Some(held + more).filter(|held| !within || *held <= bound);
        self.held_bytes.fetch_update(Relaxed, Relaxed, grown).ok().map(drop)
    }

    /// A slab that was empty goes back to the system. Under no lock.
    fn forget(&self, slab: Slab) {
        self.held_bytes.fetch_sub(slab.bytes(), Relaxed);
        self.empty_bytes.fetch_sub(slab.bytes(), Relaxed);
    }

    fn give_back(&self, at: u32, slab: u32, piece: Piece) {
        let mut part = self.part(at as usize);
        if part.give_back(slab, piece, self) && self.bounded_bytes() > self.bound_bytes() {
            let removed = part.remove(slab);
            drop(part);
            removed.into_iter().for_each(|slab| self.forget(slab));
        }
    }
}

impl Part {
    fn slab(&mut self, number: u32) -> Option<&mut Slab> {
        self.slabs.get_mut(number as usize)?.as_mut()
    }

    fn add(&mut self, slab: Slab) {
        let kind = slab.kind;
        let number = self.unused.pop_first().unwrap_or(self.slabs.len() as u32);
        match self.slabs.get_mut(number as usize) {
            Some(place) => *place = Some(slab),
            None => self.slabs.push(Some(slab)),
        }
        self.with_free.entry(kind).or_default().insert(number);
    }

    fn take(&mut self, kind: Kind, all: &Slabs) -> Option<(u32, Piece)> {
        let with_free = self.with_free.get_mut(&kind)?;
        let number = *with_free.first()?;
        let slab = self.slabs.get_mut(number as usize)?.as_mut()?;
        if slab.live() == 0 {
            all.empty_bytes.fetch_sub(slab.bytes(), Relaxed);
            if kind.lasts {
                all.lasting_bytes.fetch_add(slab.bytes(), Relaxed);
            }
        }
        let piece = slab.free.pop()?;
        if slab.free.is_empty() {
            with_free.remove(&number);
        }
        Some((number, piece))
    }

    /// Takes back what [`Part::take`] gave. Whether the slab is empty now.
    fn give_back(&mut self, number: u32, piece: Piece, all: &Slabs) -> bool {
        let Some(slab) = self.slab(number) else { return false };
        slab.label(piece.number(), None);
        slab.free.push(piece);
        let (kind, is_empty, bytes) = (slab.kind, slab.live() == 0, slab.bytes());
        if slab.free.len() == 1 {
            self.with_free.entry(kind).or_default().insert(number);
        }
        if is_empty {
            all.empty_bytes.fetch_add(bytes, Relaxed);
            if kind.lasts {
                all.lasting_bytes.fetch_sub(bytes, Relaxed);
            }
        }
        is_empty
    }

    /// Removes a slab, which is empty.
    fn remove(&mut self, number: u32) -> Option<Slab> {
        let slab = self.slabs.get_mut(number as usize)?.take()?;
        self.unused.insert(number);
        if let Some(with_free) = self.with_free.get_mut(&slab.kind) {
            with_free.remove(&number);
            if with_free.is_empty() {
                self.with_free.remove(&slab.kind);
            }
        }
        Some(slab)
    }

    fn remove_empty(&mut self) -> Option<Slab> {
        let is_empty = |slab: &Option<Slab>| slab.as_ref().is_some_and(|slab| slab.live() == 0);
        let number = self.slabs.iter().rposition(is_empty)?;
        self.remove(number as u32)
    }

    /// Names all that stands in the slab with most free, and forgets what it is for: it is named once.
    fn name_one(&mut self) -> Option<Vec<Label>> {
        let count = self.slabs.len();
        let numbers = (0..count).map(|step| (self.hand + step) % count);
        let candidates = numbers.filter_map(|number| {
            let slab = self.slabs.get(number)?.as_ref()?;
            slab.can_be_emptied().then(|| (slab.free.len() * slab.kind.piece_bytes, number))
        });
        // The first of equals.
        let (_, number) = candidates.reduce(|a, b| if b.0 > a.0 { b } else { a })?;
        self.hand = number + 1;
        let slab = self.slab(number as u32)?;
        slab.labelled = 0;
        Some(slab.labels.iter_mut().filter_map(Option::take).collect())
    }
}

/// Bytes in a slab; they return to it when dropped.
pub struct Buffer {
    /// There until it is dropped.
    piece: Option<Piece>,
    length: usize,
    slab: u32,
    part: u32,
    pool: Arc<Slabs>,
}

impl Buffer {
    /// These bytes in a slab of their own.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn of(bytes: &[u8]) -> Buffer {
        let mut buffer = Pool::new(0).take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn empty(pool: &Pool) -> Buffer {
        Buffer { piece: None, length: 0, slab: 0, part: 0, pool: pool.0.clone() }
    }

    /// Says under what it is kept from now on: by that it may be [asked for](Pool::reclaim), once.
    pub fn label(&self, label: Label) {
        if let Some(piece) = &self.piece
            && let Some(slab) = self.pool.part(self.part as usize).slab(self.slab)
        {
            slab.label(piece.number(), Some(label));
        }
    }

    /// What it takes of its slab, bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.piece.as_ref().map_or(0, |piece| piece.len())
    }

    /// Leaves the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.piece.as_ref().and_then(|piece| piece.get(..self.length)).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        self.piece.as_mut().and_then(|piece| piece.get_mut(..length)).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.pool.give_back(self.part, self.slab, piece);
        }
    }
}
