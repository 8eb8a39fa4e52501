//! Writing a table: sorted entries in, bounded memory, one file out.
//!
//! Entries gather until the index wants them cut into blocks (a block or a chunk of about 64); then
//! each block is encoded between its separators, compressed and appended. Nothing is read back. Blocks
//! are cut by what they take uncompressed; where they end in the file is known once they are written,
//! and only then told to the index. The table's filter,
//! if it gets one, is a second file, written when the table is finished.

mod gathered;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::gathered::{Gathered, Head};
use super::filter::{FilterBuilder, FilterKind, file};
use super::index::{IndexBuilder, IndexKind, SECTION_PREFIX};
use super::partition::{Cut, Limits, Separator, entry_size, entry_weight};
use super::{scale, table_path};
use crate::disk::{Access, Disk, File};
use crate::error::Result;
use crate::format::block::{BLOCK_ALIGNMENT, BlockBuilder, BlockPlace};
use crate::format::compression::{Codec, Compression};
use crate::format::entry::{Kind, SequenceNumber, TableId};
use crate::format::manifest::TableRecord;
use crate::format::range::Ranges;
use crate::format::table::{Footer, Properties, Section, encode_directory};
use crate::format::value::ValuePointer;

/// How much is gathered before it is written.
const WRITE_BYTES: usize = 256 << 10;

/// How a table is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// How large its blocks may get.
    pub limits: Limits,
    /// Which index it gets.
    pub index: IndexKind,
    /// How its blocks are compressed.
    pub compression: Compression,
    /// Which filter is written beside it.
    pub filter: Option<FilterKind>,
    /// Whether that stays in its file until misses have paid for its place in memory.
    pub filter_rests: bool,
    /// Nothing will name it after a crash: it is not synced.
    pub is_scratch: bool,
}

/// Writes one table. Drop it unfinished and its files are left behind for the next open to delete.
pub struct TableWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: TableOptions,
    id: TableId,
    path: PathBuf,
    file: Arc<dyn File>,
    /// So long it was when it was begun.
    over_bytes: u64,
    tag: u64,
    index: Option<Box<dyn IndexBuilder>>,
    filter: Option<FilterBuilder>,
    properties: Properties,
    ranges: Ranges,
    /// Entries not yet in a block.
    gathered: Gathered,
    /// The lower separator of the next block.
    lower: Separator,
    block: BlockBuilder,
    codec: Option<Box<dyn Codec>>,
    /// Bytes not yet written to the file, and where they go.
    out: Vec<u8>,
    written_bytes: u64,
}

/// The file `old`, named `path` by now, and how long it is; `None`, and no file of either name, where it has another name too or
/// does not do what it is asked for.
fn renamed(disk: &dyn Disk, old: &Path, path: &Path) -> Option<(Arc<dyn File>, u64)> {
    if disk.rename(old, path).is_err() {
        let _ = disk.remove(old);
        return None;
    }
    let file = disk.open(path, Access::Sequential).ok().filter(|file| file.has_one_name());
    let found = file.and_then(|file| Some((file.length_bytes().ok()?, file)));
    if found.is_none() {
        let _ = disk.remove(path);
    }
    found.map(|(bytes, file)| (file, bytes))
}

impl TableWriter {
    /// Begins table `id` in `dir`.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn create(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        id: TableId,
        options: TableOptions,
    ) -> Result<TableWriter> {
        let file = disk.create(&table_path(dir, id))?;
        Ok(TableWriter::to(file, disk, dir, id, options))
    }

    /// The same in the place of a file that nobody has any more, and which is gone whatever comes of it: over its bytes, or where
    /// that cannot be in a new one. Whether it was over its bytes.
    ///
    /// # Errors
    /// As [`TableWriter::create`].
    pub fn over(
        old: &Path,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        id: TableId,
        options: TableOptions,
    ) -> Result<(TableWriter, bool)> {
        let Some((file, over_bytes)) = renamed(&**disk, old, &table_path(dir, id)) else {
            return Ok((TableWriter::create(disk, dir, id, options)?, false));
        };
        let writer = TableWriter::to(file, disk, dir, id, options);
        Ok((TableWriter { over_bytes, ..writer }, true))
    }

    fn to(
        file: Arc<dyn File>,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        id: TableId,
        options: TableOptions,
    ) -> TableWriter {
        TableWriter {
            disk: disk.clone(),
            dir: dir.to_owned(),
            options,
            id,
            path: table_path(dir, id),
            file,
            over_bytes: 0,
            tag: disk.random_u64(),
            index: None,
            filter: options.filter.map(FilterBuilder::new),
            properties: Properties::default(),
            ranges: Ranges::default(),
            gathered: Gathered::default(),
            lower: Separator::default(),
            block: BlockBuilder::default(),
            codec: options.compression.codec(),
            out: Vec::with_capacity(WRITE_BYTES + WRITE_BYTES / 8),
            written_bytes: 0,
        }
    }

    /// The table's number.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The number of its filter, if it gets one.
    pub fn filter_id(&self) -> Option<u64> {
        self.filter.as_ref().map(|_| self.id)
    }

    /// What the data takes so far, about: what is pending is taken to shrink as what was written did.
    pub fn data_bytes(&self) -> u64 {
        let stored = self.written_bytes + self.out.len() as u64;
        let pending = self.gathered.bytes() as u64;
        match self.properties.unpacked_bytes {
            unpacked if unpacked > stored => stored + scale(pending, stored, unpacked),
            _ => stored + pending,
        }
    }

    /// Whether a further entry would leave the table without the filter it is to get.
    pub fn is_full(&self) -> bool {
        self.filter.as_ref().is_some_and(FilterBuilder::is_full)
    }

    /// Adds an entry; its key is above all before.
    ///
    /// # Errors
    /// Any error of the disk; the table is then lost.
    pub fn add(
        &mut self,
        key: &[u8],
        kind: Kind,
        sequence: SequenceNumber,
        value: &[u8],
    ) -> Result<()> {
        let properties = &mut self.properties;
        assert!(
            properties.entries == 0 || key > properties.largest.as_slice(),
            "entries of a table out of order"
        );
        if properties.entries == 0 {
            properties.smallest = key.to_vec();
            self.lower = key.into();
            self.index = Some(self.options.index.builder(self.options.limits, key));
        }
        properties.largest.clear();
        properties.largest.extend_from_slice(key);
        properties.entries += 1;
        properties.tombstones += u64::from(kind == Kind::Tombstone);
        properties.raw_bytes += (key.len() + value.len()) as u64;
        properties.last_sequence = properties.last_sequence.max(sequence);
        if let Some(filter) = &mut self.filter {
            filter.add(key);
        }
        let size = entry_size(key, value.len(), sequence);
        let weight = match (&self.codec, self.options.index) {
            (None, IndexKind::Exact) => entry_weight(self.options.limits, kind, size),
            _ => size,
        };
        self.gathered.add(key, value, Head { kind, sequence, size, weight });
        let weight = self.gathered.weight();
        if self.index.as_ref().is_some_and(|index| weight >= index.wanted_bytes()) {
            self.cut(false)?;
        }
        Ok(())
    }

    /// Adds an entry whose value stands in the segment tagged `tag`; its key is above all before.
    ///
    /// # Errors
    /// As [`TableWriter::add`].
    pub fn add_pointer(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        pointer: ValuePointer,
        tag: u64,
    ) -> Result<()> {
        self.properties.refer(&pointer, tag);
        let mut payload = Vec::with_capacity(4 * 10 + 1);
        pointer.encode(&mut payload);
        self.add(key, Kind::Pointer, sequence, &payload)
    }

    /// Says how many bytes of older entries the table's overwrite, settled ones and others, for its properties.
    pub fn set_overwritten(&mut self, settled_bytes: u64, fresh_bytes: u64) {
        self.properties.shadowed_bytes = settled_bytes;
        self.properties.overwritten_bytes = fresh_bytes;
    }

    /// Says which keys are gone from all older data, and how many bytes of it are covered so.
    pub fn set_ranges(&mut self, ranges: Ranges, covered_bytes: u64) {
        self.properties.ranges = ranges.len() as u64;
        self.properties.covered_bytes = covered_bytes;
        self.ranges = ranges;
    }

    /// The first key that lies behind all entries, if there are entries.
    pub fn end(&self) -> Option<Vec<u8>> {
        (self.properties.entries > 0).then(|| [self.properties.largest.as_slice(), &[0]].concat())
    }

    fn cut(&mut self, end_of_table: bool) -> Result<()> {
        let Some(mut index) = self.index.take() else { return Ok(()) };
        let mut start = 0;
        while start < self.gathered.len() {
            let keys = self.gathered.keys(start);
            let cuts = index.cut(&keys, &self.gathered.weights()[start..], end_of_table);
            let Some(last) = cuts.last() else { break };
            let consumed = last.end;
            for (cut, block_start) in
                cuts.iter().zip(std::iter::once(0).chain(cuts.iter().map(|c| c.end)))
            {
                let last_block = end_of_table && start + cut.end == self.gathered.len();
                self.write_block(start + block_start..start + cut.end, cut, last_block)?;
                index.push_end(self.written_bytes + self.out.len() as u64);
            }
            start += consumed;
            if !end_of_table {
                break;
            }
        }
        self.index = Some(index);
        self.gathered.forget(start);
        Ok(())
    }

    fn write_block(
        &mut self,
        entries: std::ops::Range<usize>,
        cut: &Cut,
        last: bool,
    ) -> Result<()> {
        let upper = if last {
            // The successor of the largest key: nothing lies between.
            Separator::of(&self.properties.largest, &[0])
        } else {
            cut.separator.clone()
        };
        let place = BlockPlace {
            tag: self.tag,
            offset_bytes: self.written_bytes + self.out.len() as u64,
            ordinal: self.properties.blocks as u32,
        };
        let (entries, codec) = (self.gathered.entries(entries), self.codec.as_deref_mut());
        let unpacked_bytes =
            self.block.write(&mut self.out, place, (&self.lower, &upper), entries, codec);
        let padded = (self.out.len() as u64).next_multiple_of(BLOCK_ALIGNMENT);
        self.out.resize(padded as usize, 0);
        self.properties.blocks += 1;
        self.properties.unpacked_bytes += unpacked_bytes;
        self.lower = upper;
        if self.out.len() >= WRITE_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<()> {
        self.file.write_all_at(&self.out, self.written_bytes)?;
        self.written_bytes += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    /// Writes what is left and the filter, syncs the files (but of scratch), and says what the manifest has to know. The
    /// names are not durable yet: sync the directory before the edit.
    ///
    /// # Errors
    /// Any error of the disk; the table is then lost.
    pub fn finish(mut self) -> Result<TableRecord> {
        self.cut(true)?;
        self.properties.data_bytes = self.written_bytes + self.out.len() as u64;
        if self.properties.entries == 0 {
            // No key is at once above the largest and below the smallest.
            self.properties.smallest = vec![0];
        }
        let mut sections = Vec::new();
        if let Some(index) = self.index.take() {
            let name = format!("{SECTION_PREFIX}{}", self.options.index.name());
            sections.push(self.section(&name, &index.finish()?));
        }
        if !self.ranges.is_empty() {
            let mut ranges = Vec::new();
            self.ranges.encode(&mut ranges);
            sections.push(self.section(super::reader::RANGES, &ranges));
        }
        let mut properties = Vec::new();
        self.properties.encode(&mut properties);
        sections.push(self.section(super::reader::PROPERTIES, &properties));
        let directory = encode_directory(&sections);
        let directory_offset = self.written_bytes + self.out.len() as u64;
        self.out.extend_from_slice(&directory);
        Footer::new(self.tag, directory_offset, &directory).encode(&mut self.out);
        self.write_out()?;
        if self.written_bytes < self.over_bytes {
            self.file.truncate(self.written_bytes)?;
        }
        if !self.options.is_scratch {
            self.file.sync().map_err(|e| e.at_path(&self.path))?;
        }
        // Numbered as the table is: both are never used again.
        let filter = self.filter.take().filter(|_| self.properties.entries > 0);
        let filter = filter.and_then(|filter| filter.finish(self.tag));
        let rests = self.options.filter_rests;
        // It has grown with the longest key.
        self.properties.largest.shrink_to_fit();
        let filter =
            filter.map(|bytes| file::write(&*self.disk, &self.dir, self.id, &bytes, rests));
        Ok(TableRecord {
            id: self.id,
            tag: self.tag,
            file_bytes: self.written_bytes,
            properties: Arc::new(self.properties),
            filter: filter.transpose()?,
        })
    }

    fn section(&mut self, name: &str, bytes: &[u8]) -> Section {
        let offset = self.written_bytes + self.out.len() as u64;
        self.out.extend_from_slice(bytes);
        Section::new(name, self.tag, offset, bytes)
    }
}
