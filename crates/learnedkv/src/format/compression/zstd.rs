//! Zstandard frames, without a checksum: the block has one.
//!
//! A frame that is shorter than the raw bytes allow (see [`MOST_EXPANSION`]) is followed by a skippable
//! frame (RFC 8878, 3.1.2) of zeros: every reader of the format passes over it.

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::compress_bound;

use super::{Codec, MOST_EXPANSION, refused, wrong_length};
use crate::error::Result;
use crate::format::bytes::put_u32;

/// What marks a block so compressed.
pub const MARK: u8 = 2;

const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;
/// Magic and length of a skippable frame.
const SKIPPABLE_BYTES: usize = 8;

/// Zstandard at a level. Each side's context is made when it is first needed.
pub struct Zstd {
    level: u8,
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
}

impl Zstd {
    /// Compresses at `level`, and decompresses whatever the level was.
    pub fn new(level: u8) -> Zstd {
        Zstd { level, compressor: None, decompressor: None }
    }

    fn compressor(&mut self) -> std::io::Result<&mut Compressor<'static>> {
        match &mut self.compressor {
            Some(compressor) => Ok(compressor),
            empty => {
                let mut compressor = Compressor::new(i32::from(self.level))?;
                compressor.include_checksum(false)?;
                // The block's header has the length.
                compressor.include_contentsize(false)?;
                Ok(empty.insert(compressor))
            }
        }
    }
}

impl Codec for Zstd {
    fn mark(&self) -> u8 {
        MARK
    }

    fn compress(&mut self, raw: &[u8], most_bytes: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        // With less room than it may need, what it makes, and whether, depends on the room.
        out.resize(start + compress_bound(raw.len()), 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let length = self.compressor().and_then(|c| c.compress_to_buffer(raw, room));
        let Ok(length) = length else {
            out.truncate(start);
            return false;
        };
        out.truncate(start + length);
        let least = raw.len().div_ceil(MOST_EXPANSION);
        if length < least {
            let filler = (least - length).saturating_sub(SKIPPABLE_BYTES);
            put_u32(out, SKIPPABLE_MAGIC);
            put_u32(out, filler as u32);
            out.resize(out.len() + filler, 0);
        }
        let fits = out.len() - start <= most_bytes;
        if !fits {
            out.truncate(start);
        }
        fits
    }

    fn decompress(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<()> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            empty => empty.insert(Decompressor::new().map_err(|e| refused("zstd", &e))?),
        };
        match decompressor.decompress_to_buffer(stored, raw) {
            Ok(length) if length == raw.len() => Ok(()),
            Ok(length) => Err(wrong_length("zstd", raw.len(), length)),
            Err(e) => Err(refused("zstd", &e)),
        }
    }
}
