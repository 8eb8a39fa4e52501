//! Writing a value segment: values in, pointers out, one file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment_path;
use crate::disk::{Disk, File};
use crate::error::{Error, Result};
use crate::format::compression::Codec;
use crate::format::value::{CHUNK_BYTES, ValuePointer, ValueWriter, encode_header, put_value};

/// How much is gathered before it is written.
const WRITE_BYTES: usize = 256 << 10;

/// Writes one segment. Drop it unfinished and the file is left behind for the next open to delete.
pub struct SegmentWriter {
    id: u64,
    tag: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    out: Vec<u8>,
    written_bytes: u64,
}

impl SegmentWriter {
    /// Begins segment `id` in `dir`.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn create(disk: &dyn Disk, dir: &Path, id: u64) -> Result<SegmentWriter> {
        let path = segment_path(dir, id);
        let file = disk.create(&path)?;
        let tag = disk.random_u64();
        let mut out = Vec::with_capacity(WRITE_BYTES + WRITE_BYTES / 8);
        out.extend_from_slice(&encode_header(tag));
        Ok(SegmentWriter { id, tag, path, file, out, written_bytes: 0 })
    }

    /// Its random tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// What it takes so far.
    pub fn file_bytes(&self) -> u64 {
        self.written_bytes + self.out.len() as u64
    }

    /// Adds the value of `key`, compressed by `codec` where that serves, and says where it stands.
    ///
    /// # Errors
    /// Any error of the disk; the segment is then lost.
    pub fn add(
        &mut self,
        key: &[u8],
        value: &[u8],
        codec: Option<&mut (dyn Codec + 'static)>,
    ) -> Result<ValuePointer> {
        let place = (self.id, self.file_bytes());
        let pointer = put_value(&mut self.out, self.tag, place, key, value, codec);
        if self.out.len() >= WRITE_BYTES {
            self.write_out()?;
        }
        Ok(pointer)
    }

    /// Adds the value of `key`, all that `reader` gives, compressed by `codec` where that serves, and says
    /// where it stands. Two chunks of it are in memory: whether one is the last is known when the next is
    /// read; and four bytes for each chunk, where they may be compressed.
    ///
    /// # Errors
    /// What the reader says if it fails ([`Error::reader`]); any error of the disk; the segment is then lost.
    pub fn add_reader(
        &mut self,
        key: &[u8],
        reader: &mut dyn Read,
        codec: Option<&mut (dyn Codec + 'static)>,
    ) -> Result<ValuePointer> {
        let mut writer = ValueWriter::begin(self.tag, self.file_bytes(), key, codec);
        let (mut chunk, mut next) = (Vec::new(), Vec::new());
        read_chunk(reader, &mut chunk)?;
        loop {
            read_chunk(reader, &mut next)?;
            writer.put(&mut self.out, &chunk, next.is_empty());
            if next.is_empty() {
                return Ok(writer.finish(&mut self.out, self.id));
            }
            if self.out.len() >= WRITE_BYTES {
                self.write_out()?;
            }
            std::mem::swap(&mut chunk, &mut next);
        }
    }

    fn write_out(&mut self) -> Result<()> {
        self.file.write_all_at(&self.out, self.written_bytes)?;
        self.written_bytes += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    /// Writes what is left and syncs the file. The name is not durable yet: sync the directory
    /// before the edit that names a table which points here.
    ///
    /// # Errors
    /// Any error of the disk; the segment is then lost.
    pub fn finish(mut self) -> Result<()> {
        self.write_out()?;
        self.file.sync().map_err(|e| e.at_path(&self.path))
    }
}

/// Fills `chunk` from `reader`: less than a whole one only at its end.
fn read_chunk(reader: &mut dyn Read, chunk: &mut Vec<u8>) -> Result<()> {
    chunk.clear();
    let read = reader.take(CHUNK_BYTES as u64).read_to_end(chunk);
    read.map(drop).map_err(|e| Error::reader(&e))
}
