//! Writing a value segment: values in, pointers out, one file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment_path;
use crate::disk::{Disk, File};
use crate::error::Result;
use crate::format::value::{ValuePointer, encode_header, put_value};

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
