//! Memory for the payloads of small commits: cut from large pieces, so that a put allocates nothing
//! and a flushed memtable gives back large pieces, not holes between cached blocks.
//!
//! A payload keeps its whole piece in memory for as long as a memtable, or a reader, holds it, and nobody counts more than
//! the payload. So a piece is one keyspace's: else one that is seldom written, and seldom flushed, would hold what was
//! written to others meanwhile. And pieces grow with what a keyspace writes, from nothing.

use std::sync::Mutex;

use bytes::{Bytes, BytesMut};

use super::lock;
use crate::format::entry::KeyspaceId;

/// How large pieces become.
const PIECE_BYTES: usize = 256 << 10;
/// How large a keyspace's first one is.
const FIRST_BYTES: usize = 1 << 10;
/// Of so many keyspaces, or their writers, pieces are kept.
const MOST_PIECES: usize = 64;

/// A piece that is partly used.
#[derive(Debug)]
struct Piece {
    keyspace: KeyspaceId,
    bytes: BytesMut,
    /// How large the next one is.
    next_bytes: usize,
}

/// Pieces that are partly used, one for each keyspace, and writer to it at a time; that used last stands last.
#[derive(Debug, Default)]
pub struct Payloads {
    pieces: Mutex<Vec<Piece>>,
}

impl Payloads {
    /// What `encode` writes for a keyspace, which is at most `most_bytes`.
    pub fn encode(
        &self,
        keyspace: KeyspaceId,
        most_bytes: usize,
        encode: impl FnOnce(&mut BytesMut),
    ) -> Bytes {
        let known = {
            let mut pieces = lock(&self.pieces);
            let at = pieces.iter().rposition(|piece| piece.keyspace == keyspace);
            at.map(|at| pieces.remove(at))
        };
        let (piece, payload) = match known {
            Some(mut piece) => {
                // What is left of the old one lives on in the payloads cut from it.
                if piece.bytes.capacity() < most_bytes {
                    piece.bytes = BytesMut::with_capacity(piece.next_bytes.max(most_bytes));
                    piece.next_bytes = PIECE_BYTES.min(piece.next_bytes * 2);
                }
                encode(&mut piece.bytes);
                let payload = piece.bytes.split().freeze();
                (piece, payload)
            }
            None => {
                let mut alone = BytesMut::with_capacity(most_bytes);
                encode(&mut alone);
                let bytes = BytesMut::new();
                (Piece { keyspace, bytes, next_bytes: FIRST_BYTES }, alone.freeze())
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
    use super::*;

    const A: KeyspaceId = 1;
    const B: KeyspaceId = 2;

    fn put(payloads: &Payloads, keyspace: KeyspaceId, length: usize) -> Bytes {
        payloads.encode(keyspace, length, |out| out.extend_from_slice(&vec![7; length]))
    }

    #[test]
    fn payloads_share_a_piece_and_large_ones_have_their_own() {
        let payloads = Payloads::default();
        assert_eq!(put(&payloads, A, 3), [7; 3][..], "the first stands alone");
        let (a, b) = (put(&payloads, A, 3), put(&payloads, A, 1));
        let large = put(&payloads, A, PIECE_BYTES + 1);
        assert_eq!((a.len(), b.len(), large.len()), (3, 1, PIECE_BYTES + 1));
        assert_eq!(a.as_ptr() as usize + 3, b.as_ptr() as usize, "one piece");
    }

    /// What is seldom written held pieces full of what was written to other keyspaces meanwhile.
    #[test]
    fn a_keyspace_that_is_seldom_written_holds_nothing_of_others() {
        let payloads = Payloads::default();
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
        let payloads = Payloads::default();
        for round in 0..3 {
            for keyspace in 0..1000 {
                assert!(put(&payloads, keyspace, 50).is_unique(), "{keyspace} in round {round}");
            }
        }
        assert_eq!(lock(&payloads.pieces).len(), MOST_PIECES);
        let kept: usize = lock(&payloads.pieces).iter().map(|p| p.bytes.capacity()).sum();
        assert_eq!(kept, 0, "none of them wrote twice while it was known");
    }
}
