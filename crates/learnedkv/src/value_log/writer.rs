//! Writing a value segment: values in, pointers out, one file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment_path;
use crate::disk::{Disk, File};
use crate::error::{Error, Result};
use crate::format::value::{CHUNK_BYTES, ValuePointer, encode_header, put_chunk, put_value};

/// How much is gathered before it is written.
const WRITE_BYTES: usize = 1 << 20;

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
        Ok(SegmentWriter { id, tag, path, file, out: encode_header(tag), written_bytes: 0 })
    }

    /// Its random tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// What it takes so far.
    pub fn file_bytes(&self) -> u64 {
        self.written_bytes + self.out.len() as u64
    }

    /// Adds the value of `key`, and says where it stands.
    ///
    /// # Errors
    /// Any error of the disk; the segment is then lost.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<ValuePointer> {
        let offset = self.file_bytes();
        put_value(&mut self.out, self.tag, offset, key, value);
        if self.out.len() >= WRITE_BYTES {
            self.write_out()?;
        }
        Ok(ValuePointer { segment: self.id, offset, length: value.len() as u64 })
    }

    /// Adds the value of `key`, all that `reader` gives, and says where it stands. Two chunks of it are
    /// in memory: whether one is the last is known when the next is read.
    ///
    /// # Errors
    /// `Io` if the reader fails; any error of the disk; the segment is then lost.
    pub fn add_reader(&mut self, key: &[u8], reader: &mut dyn Read) -> Result<ValuePointer> {
        let offset = self.file_bytes();
        let mut length = 0;
        let (mut chunk, mut next) = (Vec::new(), Vec::new());
        read_chunk(reader, &mut chunk)?;
        loop {
            read_chunk(reader, &mut next)?;
            length += chunk.len() as u64;
            let ends = next.is_empty().then_some(length);
            let at = self.file_bytes();
            put_chunk(&mut self.out, self.tag, at, key, &chunk, ends);
            if self.out.len() >= WRITE_BYTES {
                self.write_out()?;
            }
            if ends.is_some() {
                return Ok(ValuePointer { segment: self.id, offset, length });
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
