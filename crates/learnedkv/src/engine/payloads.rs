//! Memory for the payloads of small commits: cut from large pieces, so that a put allocates nothing
//! and a flushed memtable gives back large pieces, not holes between cached blocks.
//!
//! A payload keeps its whole piece in memory for as long as a memtable, or a reader, holds it, and nobody counts more than
//! the payload. So a piece is one keyspace's: else one that is seldom written, and seldom flushed, would hold what was
//! written to others meanwhile. And pieces grow with what a keyspace writes, from nothing. What is long has a piece of its own:
//! what it would leave of a shared one, and nobody could use, might be as long as itself.

use std::sync::Mutex;

use super::lock;
use crate::format::entry::KeyspaceId;
use crate::memory::{Pool, Shared, Tail};

/// How large pieces become.
const PIECE_BYTES: usize = 256 << 10;
/// What is longer stands alone.
const SHARING_BYTES: usize = PIECE_BYTES / 3;
/// How large a keyspace's first one is.
const FIRST_BYTES: usize = 1 << 10;
/// Of so many keyspaces, or their writers, pieces are kept.
const MOST_PIECES: usize = 64;

/// A piece that is partly used.
#[derive(Debug)]
struct Piece {
    keyspace: KeyspaceId,
    /// None before the second payload.
    left: Option<Tail>,
    /// How large the next one is.
    next_bytes: usize,
}

/// Pieces that are partly used, one for each keyspace, and writer to it at a time; that used last stands last.
#[derive(Debug)]
pub struct Payloads {
    pool: Pool,
    pieces: Mutex<Vec<Piece>>,
}

impl Payloads {
    /// None yet; their memory comes from `pool`, beside its bound.
    pub fn new(pool: &Pool) -> Payloads {
        Payloads { pool: pool.clone(), pieces: Mutex::default() }
    }

    /// What `encode` writes for a keyspace, which is at most `most_bytes`.
    pub fn encode(
        &self,
        keyspace: KeyspaceId,
        most_bytes: usize,
        encode: impl FnOnce(&mut &mut [u8]),
    ) -> Shared {
        if most_bytes > SHARING_BYTES {
            return Tail::of(self.pool.take_to_last(most_bytes)).cut(encode);
        }
        let known = {
            let mut pieces = lock(&self.pieces);
            let at = pieces.iter().rposition(|piece| piece.keyspace == keyspace);
            at.map(|at| pieces.remove(at))
        };
        let (piece, payload) = match known {
            Some(mut piece) => {
                let mut left = match piece.left.take() {
                    Some(left) if left.left_bytes() >= most_bytes => left,
                    // What is left of the old one lives on in the payloads cut from it.
                    _ => {
                        let bytes = piece.next_bytes.max(most_bytes);
                        piece.next_bytes = PIECE_BYTES.min(piece.next_bytes * 2);
                        Tail::of(self.pool.take_to_last(bytes))
                    }
                };
                let payload = left.cut(encode);
                piece.left = Some(left);
                (piece, payload)
            }
            None => {
                let mut alone = vec![0; most_bytes];
                let mut left = alone.as_mut_slice();
                encode(&mut left);
                let unwritten = left.len();
                alone.truncate(most_bytes - unwritten.min(most_bytes));
                let piece = Piece { keyspace, left: None, next_bytes: FIRST_BYTES };
                (piece, Shared::from(alone))
            }
        };
        let mut pieces = lock(&self.pieces);
        if pieces.len() >= MOST_PIECES {
            pieces.remove(0);
        }
        pieces.push(piece);
        payload
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    const A: KeyspaceId = 1;
    const B: KeyspaceId = 2;

    fn payloads() -> Payloads {
        Payloads::new(&Pool::new(1 << 20))
    }

    fn put(payloads: &Payloads, keyspace: KeyspaceId, length: usize) -> Shared {
        payloads.encode(keyspace, length, |out| out.put_slice(&vec![7; length]))
    }

    #[test]
    fn payloads_share_a_piece_and_large_ones_have_their_own() {
        let payloads = payloads();
        assert_eq!(put(&payloads, A, 3), [7; 3], "the first stands alone");
        let (a, b) = (put(&payloads, A, 3), put(&payloads, A, 1));
        let large = put(&payloads, A, PIECE_BYTES + 1);
        assert_eq!((a.len(), b.len(), large.len()), (3, 1, PIECE_BYTES + 1));
        assert_eq!(a.as_ptr() as usize + 3, b.as_ptr() as usize, "one piece");
    }

    /// Each took a piece of 256 KiB, and left nearly half of it to nobody: twice what memtables counted.
    #[test]
    fn long_ones_leave_little_to_nobody() {
        for length in [SHARING_BYTES + 1, 100_000, 140_000, 200_000] {
            let payloads = payloads();
            let small: Vec<_> = (0..4).map(|_| put(&payloads, A, 10)).collect();
            let long: Vec<_> = (0..16).map(|_| put(&payloads, A, length)).collect();
            let held = payloads.pool.held_bytes();
            assert!(held <= (16 * length + (64 << 10)) as u64 * 9 / 8, "{length}: {held}");
            let next = put(&payloads, A, 10);
            assert_eq!(next.as_ptr() as usize, small[3].as_ptr() as usize + 10, "{length}");
            drop((long, small));
        }
    }

    /// What is seldom written held pieces full of what was written to other keyspaces meanwhile.
    #[test]
    fn a_keyspace_that_is_seldom_written_holds_nothing_of_others() {
        let payloads = payloads();
        let mut seldom = Vec::new();
        for round in 0..20_000 {
            if round % 200 == 0 {
                seldom.push(put(&payloads, A, 20));
            }
            put(&payloads, B, 1000);
        }
        let places = seldom.iter().map(|payload| payload.as_ptr() as usize).collect::<Vec<_>>();
        let behind = places.windows(2).filter(|pair| pair[1] == pair[0] + 20).count();
        // But for the first two, and where one of 1 KiB was full.
        assert!(behind >= 96, "{behind} of {} stand behind the one before", places.len());
    }

    #[test]
    fn of_keyspaces_that_are_written_in_turn_few_pieces_are_kept() {
        let payloads = payloads();
        for round in 0..3 {
            for keyspace in 0..1000 {
                assert_eq!(put(&payloads, keyspace, 50), [7; 50], "{keyspace} in {round}");
            }
        }
        assert_eq!(lock(&payloads.pieces).len(), MOST_PIECES);
        assert!(
            lock(&payloads.pieces).iter().all(|piece| piece.left.is_none()),
            "none wrote twice while known"
        );
        assert_eq!(payloads.pool.held_bytes(), 0);
    }
}
