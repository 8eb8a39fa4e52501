//! Memory from the system, in pieces that are owned one by one.
//!
//! With [`tail`](super::tail) the one place of this room with `unsafe`. A piece is a range of a map that it shares with others; ranges do not
//! overlap, and the map is there for as long as any piece of it.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapMut;

/// A range of bytes that nobody else has.
pub struct Piece {
    start: NonNull<u8>,
    bytes: usize,
    number: u32,
    _whole: Arc<Whole>,
}

/// What pieces are cut from: it is only held.
enum Whole {
    Map(#[expect(dead_code, reason = "held for its pieces")] MmapMut),
    /// Where the system gives no map: too many, say.
    Heap(#[expect(dead_code, reason = "held for its pieces")] Vec<u8>),
}

// SAFETY: a piece is the only way to its bytes, as a `Box<[u8]>` is; what it shares is never looked at.
#[allow(unsafe_code)]
unsafe impl Send for Piece {}
// SAFETY: as above; a shared piece lends its bytes to be read alone.
#[allow(unsafe_code)]
unsafe impl Sync for Piece {}

/// `count` pieces of `bytes` each, one after another in memory of their own, all zeros, numbered from 0. Memory is taken
/// as pages are written to.
pub fn cut(count: usize, bytes: usize) -> Vec<Piece> {
    let all = count.saturating_mul(bytes).max(1);
    let (start, whole) = match MmapMut::map_anon(all) {
        Ok(mut map) => (NonNull::from(&mut *map).cast(), Whole::Map(map)),
        Err(_) => {
            let mut heap = vec![0; all];
            (NonNull::from(&mut *heap).cast(), Whole::Heap(heap))
        }
    };
    let whole = Arc::new(whole);
    let piece = |number: usize| {
        // SAFETY: `number < count`, so the range ends within the `all` bytes of the map.
        #[allow(unsafe_code)]
        let start = unsafe { start.add(number * bytes) };
        Piece { start, bytes, number: number as u32, _whole: whole.clone() }
    };
    (0..count).map(piece).collect()
}

impl Piece {
    /// Which it is of those that were cut together.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Deref for Piece {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `cut` made the range: it lies in a map that `_whole` holds, its bytes were zeros from the start, and
        // no other piece has any of them.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.bytes)
        }
    }
}

impl DerefMut for Piece {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` says that nobody reads them meanwhile.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_zeros_and_do_not_overlap() {
        for (count, bytes) in [(1, 1), (1, 100_000), (3, 64), (64, 4096), (5, 4160)] {
            let mut pieces = cut(count, bytes);
            assert_eq!(pieces.len(), count);
            assert!(
                pieces.iter().all(|piece| piece.len() == bytes && piece.iter().all(|b| *b == 0))
            );
            for piece in &mut pieces {
                let mark = piece.number() as u8 + 1;
                piece.fill(mark);
            }
            let marks = pieces.iter().map(|piece| piece.number() as u8 + 1);
            assert!(pieces.iter().zip(marks).all(|(piece, mark)| piece.iter().all(|b| *b == mark)));
        }
    }

    #[test]
    fn the_last_piece_keeps_the_map() {
        let mut pieces = cut(4, 1 << 16);
        let mut last = pieces.pop().unwrap();
        drop(pieces);
        let last = std::thread::spawn(move || {
            last.fill(7);
            last
        });
        assert!(last.join().unwrap().iter().all(|byte| *byte == 7));
    }
}
