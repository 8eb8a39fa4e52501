//! Memory for the payloads of small commits: cut from large pieces, so that a put allocates nothing
//! and a flushed memtable gives back large pieces, not holes between cached blocks.

use std::sync::Mutex;

use bytes::{Bytes, BytesMut};

use super::lock;

/// How large a piece is.
const PIECE_BYTES: usize = 256 << 10;

/// Pieces that are partly used, one for each writer at a time.
#[derive(Debug, Default)]
pub struct Payloads {
    pieces: Mutex<Vec<BytesMut>>,
}

impl Payloads {
    /// What `encode` writes, which is at most `most_bytes`.
    pub fn encode(&self, most_bytes: usize, encode: impl FnOnce(&mut BytesMut)) -> Bytes {
        let mut piece = lock(&self.pieces).pop().unwrap_or_default();
        // What is left of the old piece lives on in the payloads cut from it.
        if piece.capacity() < most_bytes {
            piece = BytesMut::with_capacity(PIECE_BYTES.max(most_bytes));
        }
        encode(&mut piece);
        let payload = piece.split().freeze();
        lock(&self.pieces).push(piece);
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_share_a_piece_and_large_ones_have_their_own() {
        let payloads = Payloads::default();
        let a = payloads.encode(3, |out| out.extend_from_slice(b"abc"));
        let b = payloads.encode(10, |out| out.extend_from_slice(b"d"));
        let large = payloads.encode(PIECE_BYTES + 1, |out| out.extend_from_slice(&[7; 400_000]));
        assert_eq!((&*a, &*b, large.len()), (&b"abc"[..], &b"d"[..], 400_000));
        assert_eq!(a.as_ptr() as usize + 3, b.as_ptr() as usize, "one piece");
    }
}
