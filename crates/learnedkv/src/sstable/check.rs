//! Checking a table's file, all of it: is everything what was written, and does it lead to itself?
//!
//! 1. The footer, the directory, every section by its checksum; properties and ranges as the manifest says.
//! 2. The blocks, one after another by large reads: the checksum, the ordinal, that the separators continue
//!    those of the block before, that keys ascend and lie between the separators.
//! 3. Of every key: the index names its block, and the filter does not refuse it.
//! 4. Of all together: their count, and all else that the properties say.
//!
//! After damage it goes on where that can be told: at the next block that the index names, or where the
//! damaged block's own header says that it ends. Memory: the index, the filter, and what is read at once.
//! Nothing is cached, and nothing that is found is believed in place of what the manifest says.

use std::path::PathBuf;
use std::sync::Arc;

use super::filter::file::filter_path;
use super::filter::{self, Filter};
use super::index::{self, Index, SECTION_PREFIX};
use super::opening::{Window, check_properties, read_directory, read_section};
use super::reader::{PROPERTIES, RANGES, TableContext};
use super::table_path;
use crate::disk::{Access, File};
use crate::error::{Error, ErrorKind, Result};
use crate::format::block::{self, BLOCK_ALIGNMENT, BLOCK_HEADER_BYTES, Block, Entries, Stored};
use crate::format::checksum::key_hash;
use crate::format::entry::Kind;
use crate::format::manifest::TableRecord;
use crate::format::range::Ranges;
use crate::format::table::{FOOTER_BYTES, Footer, Properties, Section};
use crate::format::value::ValuePointer;

/// Who is told what a check finds, as it finds it.
pub trait Witness {
    /// Something is not what was written, or could not be read.
    fn damage(&mut self, error: Error);

    /// So many bytes more were read.
    fn read(&mut self, bytes: u64);

    /// The value of a key stands apart.
    fn pointer(&mut self, key: &[u8], pointer: ValuePointer);
}

/// What of a table could be read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checked {
    /// Its sound blocks.
    pub blocks: u64,
    /// The entries in them.
    pub entries: u64,
}

/// Checks the table that `record` tells of, and its filter.
pub fn check_table(
    context: &TableContext,
    record: &TableRecord,
    witness: &mut dyn Witness,
) -> Checked {
    let path = table_path(&context.dir, record.id);
    let opened = context.disk.open(&path, Access::Sequential).and_then(|file| {
        let length = file.length_bytes()?;
        Ok((file, length))
    });
    let (file, length) = match opened {
        Ok(opened) => opened,
        Err(e) => {
            let is_missing = e.kind() == ErrorKind::NotFound;
            let message = format!("table: expected {} bytes, found no file", record.file_bytes);
            let missing = || Error::corruption(message).at_path(&path);
            witness.damage(if is_missing { missing() } else { e.at_path(&path) });
            return Checked::default();
        }
    };
    let mut check = Check {
        context,
        record,
        path,
        file,
        length,
        witness,
        index: None,
        filter: None,
        found: Properties::default(),
        key: Vec::new(),
        bound: (record.properties.entries > 0).then(|| record.properties.smallest.clone()),
        refused: 0,
        is_whole: true,
    };
    if check.sections() {
        check.open_filter();
        check.blocks();
        check.sums();
    }
    Checked { blocks: check.found.blocks, entries: check.found.entries }
}

struct Check<'a> {
    context: &'a TableContext,
    record: &'a TableRecord,
    path: PathBuf,
    file: Arc<dyn File>,
    length: u64,
    witness: &'a mut dyn Witness,
    index: Option<Box<dyn Index>>,
    filter: Option<Box<dyn Filter>>,
    /// What the entries add up to.
    found: Properties,
    /// The key looked at last.
    key: Vec<u8>,
    /// The upper separator of the block before; `None`: it could not be read.
    bound: Option<Vec<u8>>,
    /// How many keys the filter refused.
    refused: u64,
    /// All blocks could be read.
    is_whole: bool,
}

impl Check<'_> {
    fn damage(&mut self, error: Error) {
        self.witness.damage(error.at_path(&self.path));
    }

    fn wrong(&mut self, offset: u64, message: String) {
        self.damage(Error::corruption(message).at_offset(offset));
    }

    /// Looks at all but the blocks. False: another table stands here, of which nothing more is to be said.
    fn sections(&mut self) -> bool {
        let sections = match read_directory(&*self.file, self.record) {
            Ok(sections) => sections,
            Err(e) => {
                let is_another = self.is_another();
                self.damage(e);
                return !is_another;
            }
        };
        let mut properties = false;
        let mut ranges = 0;
        for section in sections {
            self.witness.read(section.length);
            let bytes = read_section(&*self.file, self.record, &section);
            let checked = bytes.and_then(|bytes| {
                if section.name == PROPERTIES {
                    properties = true;
                    return check_properties(&bytes, self.record);
                }
                if section.name == RANGES {
                    ranges = Ranges::decode(&bytes)?.len() as u64;
                    return Ok(());
                }
                self.take_section(&section, bytes)
            });
            if let Err(e) = checked {
                self.damage(e.at_offset(section.offset));
            }
        }
        let expected = &self.record.properties;
        let lacks_index = expected.entries > 0 && self.index.is_none();
        let (expected_ranges, data_bytes) = (expected.ranges, expected.data_bytes);
        if !properties {
            self.wrong(data_bytes, "table: expected a section of properties, found none".into());
        }
        if ranges != expected_ranges {
            let message =
                format!("table: expected {expected_ranges} removed ranges, found {ranges}");
            self.wrong(data_bytes, message);
        }
        if lacks_index {
            let message = "table: expected an index that can be used, found none; keys are found by its blocks";
            self.wrong(data_bytes, message.into());
        }
        true
    }

    /// An index, or a section that this build does not know.
    fn take_section(&mut self, section: &Section, bytes: Vec<u8>) -> Result<()> {
        if !section.name.starts_with(SECTION_PREFIX) {
            if !section.required {
                return Ok(());
            }
            let message = format!(
                "table: expected sections that this build knows, found {:?}, which is required: a newer version of \
                 learnedkv wrote it",
                section.name
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let index = index::decode(&section.name, bytes)?;
        let (expected, found) = (self.record.properties.blocks, index.block_count());
        if found != expected {
            let message = format!("table index: expected {expected} blocks, found {found}");
            return Err(Error::corruption(message));
        }
        self.index = Some(index);
        Ok(())
    }

    /// Whether the file ends as a table with another tag does.
    fn is_another(&self) -> bool {
        let mut footer = [0; FOOTER_BYTES];
        let Some(at) = self.length.checked_sub(FOOTER_BYTES as u64) else { return false };
        let read = self.file.read_exact_at(&mut footer, at);
        let footer = read.and_then(|()| Footer::decode(&footer));
        footer.is_ok_and(|footer| footer.tag != self.record.tag)
    }

    fn open_filter(&mut self) {
        let Some(filter) = self.record.filter else { return };
        let (disk, dir) = (&*self.context.disk, &self.context.dir);
        let keys = self.record.properties.entries;
        match filter::file::read(disk, dir, filter, self.record.tag, keys) {
            Ok(filter) => self.filter = Some(filter),
            Err(e) => {
                let told = e.at_path(&filter_path(dir, filter.id));
                self.witness.damage(told.and_say("; its table is read without it"));
            }
        }
        self.witness.read(filter.file_bytes);
    }

    /// Looks at all blocks, as far as they can be found.
    fn blocks(&mut self) {
        let data_bytes = self.record.properties.data_bytes;
        let mut window = Window::new(self.file.clone(), data_bytes.min(self.length));
        let (mut offset, mut ordinal) = (0, 0);
        while offset < data_bytes {
            let by_index = self.index_end(ordinal, offset);
            let taken = window.get(offset, BLOCK_HEADER_BYTES as u64).and_then(|head| {
                let length = block::peek(head).map_or(0, |(_, length)| length as u64);
                let end = offset.saturating_add(length).next_multiple_of(BLOCK_ALIGNMENT);
                if end > data_bytes {
                    let message = format!(
                        "data block: expected an end within {data_bytes} bytes, found {end}"
                    );
                    return Err(Error::corruption(message));
                }
                Ok(end)
            });
            let by_header = taken.as_ref().ok().copied();
            let block = taken.and_then(|end| {
                let bytes = window.get(offset, end - offset)?;
                let stored = Stored::check(bytes, self.record.tag, offset)?;
                let memory = self.context.cache.buffer(stored.raw_bytes());
                stored.unpack(&self.context.codecs, memory)
            });
            self.witness.read(window.take_read_bytes());
            let next = match block {
                Ok(block) => {
                    self.check_block(ordinal, offset, by_index.zip(by_header), &block);
                    by_header
                }
                Err(e) => {
                    (self.is_whole, self.bound) = (false, None);
                    self.damage(e.at_offset(offset));
                    by_index.or(by_header)
                }
            };
            let Some(next) = next.filter(|next| *next > offset) else {
                let left = data_bytes - offset;
                let message = format!(
                    "table: where the next block begins is not known: {left} bytes were not looked at"
                );
                self.wrong(offset, message);
                return;
            };
            (offset, ordinal) = (next, ordinal + 1);
        }
    }

    /// Where block `ordinal`, which begins at `offset`, ends by the index. One that says otherwise of its beginning is
    /// of no use any more.
    fn index_end(&mut self, ordinal: u64, offset: u64) -> Option<u64> {
        let index = self.index.as_ref().filter(|index| ordinal < index.block_count())?;
        let (start, end) = index.extent(ordinal);
        if start == offset {
            return Some(end.min(self.record.properties.data_bytes));
        }
        let message = format!("table index: expected block {ordinal} at {offset}, found {start}");
        self.index = None;
        self.wrong(offset, message);
        None
    }

    fn check_block(&mut self, ordinal: u64, offset: u64, ends: Option<(u64, u64)>, block: &Block) {
        let entries = block.entries();
        if u64::from(entries.ordinal()) != ordinal {
            let found = entries.ordinal();
            self.wrong(offset, format!("data block: expected block {ordinal}, found {found}"));
        }
        if let Some((by_index, by_header)) = ends.filter(|(index, header)| index != header) {
            let message = format!(
                "table index: expected an end of block {ordinal} at {by_header}, found {by_index}"
            );
            self.index = None;
            self.wrong(offset, message);
        }
        let separator = |suffix: &[u8]| [entries.prefix(), suffix].concat();
        let (lower, upper) = (separator(entries.lower_suffix()), separator(entries.upper_suffix()));
        if let Some(bound) = self.bound.take().filter(|bound| *bound != lower) {
            let message = format!(
                "data block: expected the lower separator \"{}\", where the block before ends, found \"{}\"",
                bound.escape_ascii(),
                lower.escape_ascii()
            );
            self.wrong(offset, message);
        }
        self.check_entries(ordinal, offset, &entries);
        self.bound = Some(upper);
        self.found.blocks += 1;
        let raw = block.bytes().len() as u64;
        self.found.unpacked_bytes += raw.next_multiple_of(BLOCK_ALIGNMENT);
    }

    fn check_entries(&mut self, ordinal: u64, offset: u64, entries: &Entries<'_>) {
        let mut is_misled = false;
        for at in 0..entries.count() {
            let entry = match entries.entry(at) {
                Ok(entry) => entry,
                Err(e) => {
                    self.is_whole = false;
                    self.damage(e.at_offset(offset));
                    return;
                }
            };
            let key = [entries.prefix(), entry.key_suffix].concat();
            let shown = || format!("\"{}\"", key.escape_ascii());
            if self.found.entries > 0 && key <= self.key {
                let (found, before) = (shown(), self.key.escape_ascii().to_string());
                let message = format!("table: expected a key above \"{before}\", found {found}");
                self.wrong(offset, message);
            }
            if entries.place(&key).is_ne() {
                let message =
                    format!("data block: expected keys between its separators, found {}", shown());
                self.wrong(offset, message);
            }
            let named = self.index.as_ref().map(|index| index.locate(&key));
            let misled = named.filter(|(first, last)| !(*first..=*last).contains(&ordinal));
            if let Some((first, last)) = misled.filter(|_| !std::mem::replace(&mut is_misled, true))
            {
                let message = format!(
                    "table index: expected block {ordinal} for key {}, found blocks {first} to {last}",
                    shown()
                );
                self.wrong(offset, message);
            }
            self.ask_filter(&key);
            self.add(&key, offset, (entry.kind, entry.sequence), entry.value);
            self.key = key;
        }
    }

    fn ask_filter(&mut self, key: &[u8]) {
        let filter = self.filter.as_ref().filter(|filter| !filter.may_contain(key_hash(key)));
        if filter.is_none() {
            return;
        }
        self.refused += 1;
        if let (1, Some(filter)) = (self.refused, self.record.filter) {
            let message = format!(
                "filter: expected that it lets the keys of its table pass, found that it refuses \"{}\"",
                key.escape_ascii()
            );
            let path = filter_path(&self.context.dir, filter.id);
            self.witness.damage(Error::corruption(message).at_path(&path));
        }
    }

    fn add(&mut self, key: &[u8], offset: u64, (kind, sequence): (Kind, u64), value: &[u8]) {
        let found = &mut self.found;
        if found.entries == 0 {
            found.smallest = key.to_vec();
        }
        found.entries += 1;
        found.tombstones += u64::from(kind == Kind::Tombstone);
        found.raw_bytes += (key.len() + value.len()) as u64;
        found.last_sequence = found.last_sequence.max(sequence);
        if kind == Kind::Pointer {
            match ValuePointer::decode(value) {
                Ok(pointer) => {
                    let uses = &self.record.properties.segments;
                    let tag = uses.iter().find(|used| used.segment == pointer.segment);
                    found.refer(&pointer, tag.map_or(0, |used| used.tag));
                    self.witness.pointer(key, pointer);
                }
                Err(e) => self.damage(e.at_offset(offset)),
            }
        }
    }

    /// Holds what was found against what the properties say of it, where all could be read.
    fn sums(&mut self) {
        if self.refused > 1 {
            let message = format!("filter: it refuses {} keys of its table", self.refused);
            let filter = self.record.filter.map_or(0, |filter| filter.id);
            let path = filter_path(&self.context.dir, filter);
            self.witness.damage(Error::corruption(message).at_path(&path));
        }
        if !self.is_whole {
            return;
        }
        let (expected, found) = (&self.record.properties, &self.found);
        let numbers = [
            ("entries", expected.entries, found.entries),
            ("tombstones", expected.tombstones, found.tombstones),
            ("bytes of keys and values", expected.raw_bytes, found.raw_bytes),
            ("blocks", expected.blocks, found.blocks),
            ("bytes of blocks uncompressed", expected.unpacked_bytes, found.unpacked_bytes),
            ("as the last sequence number", expected.last_sequence, found.last_sequence),
        ];
        let mut wrong: Vec<String> = numbers
            .iter()
            .filter(|(_, expected, found)| expected != found)
            .map(|(what, expected, found)| format!("{expected} {what}, found {found}"))
            .collect();
        let behind = [expected.largest.as_slice(), &[0]].concat();
        if expected.entries > 0 && found.entries > 0 {
            let keys = [
                ("smallest key", &expected.smallest, &found.smallest),
                ("largest key", &expected.largest, &self.key),
                ("end of the last block", &behind, self.bound.as_ref().unwrap_or(&behind)),
            ];
            let shown = |key: &[u8]| key.escape_ascii().to_string();
            let differ = keys.into_iter().filter(|(_, expected, found)| expected != found);
            wrong.extend(differ.map(|(what, expected, found)| {
                format!("\"{}\" as the {what}, found \"{}\"", shown(expected), shown(found))
            }));
        }
        if expected.segments != found.segments {
            let (expected, found) = (&expected.segments, &found.segments);
            wrong.push(format!("pointers into value segments {expected:?}, found {found:?}"));
        }
        for what in wrong {
            self.wrong(0, format!("table: its properties say to expect {what}"));
        }
    }
}
