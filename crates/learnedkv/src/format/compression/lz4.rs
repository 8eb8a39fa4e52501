//! LZ4's block format, without its frame: the block's header says all that a frame would.

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use super::{Codec, refused, wrong_length};
use crate::error::Result;

/// What marks a block so compressed.
pub const MARK: u8 = 1;

/// LZ4. Decompressing needs nothing; compressing a table of 8 KiB, made when it is first needed.
#[derive(Default)]
pub struct Lz4 {
    table: Option<CompressTable>,
}

impl Codec for Lz4 {
    fn mark(&self) -> u8 {
        MARK
    }

    fn compress(&mut self, raw: &[u8], most_bytes: usize, out: &mut Vec<u8>) -> bool {
        let table = self.table.get_or_insert_default();
        let start = out.len();
        out.resize(start + get_maximum_output_size(raw.len()), 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let length = match compress_into_with_table(raw, room, table) {
            Ok(length) if length <= most_bytes => length,
            _ => {
                out.truncate(start);
                return false;
            }
        };
        out.truncate(start + length);
        true
    }

    fn decompress(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<()> {
        match decompress_into(stored, raw) {
            Ok(length) if length == raw.len() => Ok(()),
            Ok(length) => Err(wrong_length("lz4", raw.len(), length)),
            Err(e) => Err(refused("lz4", &e)),
        }
    }
}
