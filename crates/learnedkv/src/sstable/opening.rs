//! What is read of a table when it is opened: its directory and sections; and, where its index is of no
//! use, all of its blocks.

use std::sync::Arc;

use super::index::{Index, fence::Fence};
use crate::disk::File;
use crate::error::{Error, Result};
use crate::format::block::{self, BLOCK_ALIGNMENT, Stored};
use crate::format::bytes::Reader;
use crate::format::manifest::TableRecord;
use crate::format::table::{FOOTER_BYTES, Footer, Properties, Section};

/// How much a walk over damaged tables reads at once.
const WALK_BYTES: usize = 1 << 20;
/// How much is read at once where all of a table is, bytes; a longer block alone.
const READ_BYTES: u64 = 4 << 20;

/// Reads a table's footer and section directory.
///
/// # Errors
/// `Corruption` if the file is not the table that `record` tells of; any error of the disk.
pub fn read_directory(file: &dyn File, record: &TableRecord) -> Result<Vec<Section>> {
    let length = file.length_bytes()?;
    if length != record.file_bytes || length < FOOTER_BYTES as u64 {
        return Err(Error::corruption(format!(
            "table: expected a file of {} bytes, found {length}",
            record.file_bytes
        ))
        .at_offset(length.min(record.file_bytes)));
    }
    let footer_offset = length - FOOTER_BYTES as u64;
    let mut footer = [0; FOOTER_BYTES];
    file.read_exact_at(&mut footer, footer_offset)?;
    let footer = Footer::decode(&footer).map_err(|e| e.at_offset(footer_offset))?;
    let end = footer.directory_offset.checked_add(u64::from(footer.directory_bytes));
    if footer.tag != record.tag || end != Some(footer_offset) {
        return Err(Error::corruption(format!(
            "table: expected the file tagged {:016x}, found {:016x}: another table took its place",
            record.tag, footer.tag
        )));
    }
    let mut directory = vec![0; footer.directory_bytes as usize];
    file.read_exact_at(&mut directory, footer.directory_offset)?;
    footer.decode_directory(&directory).map_err(|e| e.at_offset(footer.directory_offset))
}

/// Reads a section and checks it.
///
/// # Errors
/// `Corruption` if it is damaged; any error of the disk.
pub fn read_section(file: &dyn File, record: &TableRecord, section: &Section) -> Result<Vec<u8>> {
    let mut bytes = vec![0; section.length as usize];
    file.read_exact_at(&mut bytes, section.offset)?;
    section.check(record.tag, &bytes)?;
    Ok(bytes)
}

/// Checks that a table says of itself what the manifest says of it.
///
/// # Errors
/// `Corruption` if it does not.
pub fn check_properties(bytes: &[u8], record: &TableRecord) -> Result<()> {
    let found = Properties::decode(&mut Reader::new(bytes))?;
    if found == *record.properties {
        return Ok(());
    }
    Err(Error::corruption("table: its properties are not those the manifest says"))
}

/// Finds the blocks of a table without its index, by their headers, one after another.
///
/// # Errors
/// `Corruption` if they do not tile the table; any error of the disk.
pub fn walk(file: &dyn File, record: &TableRecord) -> Result<Fence> {
    let data_bytes = record.properties.data_bytes;
    let mut fence = Fence::default();
    let mut offset = 0u64;
    while offset < data_bytes {
        // A window; a block longer than that is read alone.
        let mut window = vec![0; WALK_BYTES.min((data_bytes - offset) as usize)];
        file.read_exact_at(&mut window, offset)?;
        let mut inside = 0usize;
        while let Some((_, length)) = window.get(inside..).and_then(block::peek) {
            let start = offset + inside as u64;
            let end = (start + length as u64).next_multiple_of(BLOCK_ALIGNMENT);
            if end > data_bytes {
                return Err(Error::corruption(format!(
                    "data block: expected an end within {data_bytes} bytes, found {end}"
                ))
                .at_offset(start));
            }
            let alone;
            let bytes = match window.get(inside..(end - offset) as usize) {
                Some(bytes) => bytes,
                None if inside > 0 => break,
                None => {
                    let mut bytes = vec![0; (end - start) as usize];
                    file.read_exact_at(&mut bytes, start)?;
                    alone = bytes;
                    &alone
                }
            };
            // The separators are not compressed.
            fence.push(&Stored::check(bytes, record.tag, start)?.lower(), end);
            inside = (end - offset) as usize;
        }
        if inside == 0 {
            return Err(
                Error::corruption("data block: expected a header, found the end").at_offset(offset)
            );
        }
        offset += inside as u64;
    }
    if fence.block_count() != record.properties.blocks {
        return Err(Error::corruption(format!(
            "table: expected {} blocks, found {}",
            record.properties.blocks,
            fence.block_count()
        )));
    }
    Ok(fence)
}

/// A part of a file in memory, read in large pieces.
pub struct Window {
    file: Arc<dyn File>,
    bytes: Vec<u8>,
    start: u64,
    /// Where what may be read ends.
    end: u64,
    read_bytes: u64,
}

impl Window {
    /// That of `file`, of which what stands before `end` may be read.
    pub fn new(file: Arc<dyn File>, end: u64) -> Window {
        Window { file, bytes: Vec::new(), start: 0, end, read_bytes: 0 }
    }

    /// What stands at `offset`, so many bytes.
    ///
    /// # Errors
    /// `Corruption` if that is behind the end; any error of the disk.
    pub fn get(&mut self, offset: u64, length: u64) -> Result<&[u8]> {
        let end = offset.saturating_add(length);
        if end > self.end {
            let message =
                format!("expected {length} bytes, found the end of the file at {}", self.end);
            return Err(Error::corruption(message));
        }
        let held = self.start..self.start + self.bytes.len() as u64;
        if offset < held.start || end > held.end {
            self.start = offset;
            let most = length.max(READ_BYTES).min(self.end - offset);
            // Where a sector cannot be read, what lies before it can.
            self.fill(most).or_else(|_| self.fill(length))?;
        }
        let at = (offset - self.start) as usize;
        Ok(self.bytes.get(at..at + length as usize).unwrap_or_default())
    }

    fn fill(&mut self, length: u64) -> Result<()> {
        self.bytes.resize(length as usize, 0);
        let read = self.file.read_exact_at(&mut self.bytes, self.start);
        if read.is_err() {
            self.bytes.clear();
        }
        self.read_bytes += self.bytes.len() as u64;
        read
    }

    /// How much was read since this was asked last.
    pub fn take_read_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.read_bytes)
    }
}
