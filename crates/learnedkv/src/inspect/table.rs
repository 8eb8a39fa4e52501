//! A table: its footer and sections, what they say, and its blocks.

use std::sync::Arc;

use super::{Depth, Told, read, shown};
use crate::disk::File;
use crate::error::{Error, Result};
use crate::format::block::{self, BLOCK_ALIGNMENT, BLOCK_HEADER_BYTES, Stored};
use crate::format::bytes::Reader;
use crate::format::compression::Codecs;
use crate::format::manifest::TableRecord;
use crate::format::range::Ranges;
use crate::format::table::{FOOTER_BYTES, Footer, Properties, Section};
use crate::memory::Pool;
use crate::sstable::index::{self, SECTION_PREFIX};
use crate::sstable::opening::{Window, read_directory, read_section};
use crate::sstable::reader::{PROPERTIES, RANGES};

pub(super) fn look(
    file: Arc<dyn File>,
    length: u64,
    depth: Depth,
    told: &mut Told<'_>,
) -> Result<()> {
    let footer_at = length.saturating_sub(FOOTER_BYTES as u64);
    let footer = read(&*file, footer_at, length - footer_at)?;
    let footer = Footer::decode(&footer).map_err(|e| e.at_offset(footer_at))?;
    // What the footer says stands in the place of what a manifest would say.
    let tag = footer.tag;
    let record =
        TableRecord { id: 0, tag, file_bytes: length, properties: Arc::default(), filter: None };
    let sections = read_directory(&*file, &record)?;
    let names: Vec<_> = sections.iter().map(|section| section.name.as_str()).collect();
    told.line(format!("table of {length} bytes, tagged {tag:016x}: {}", names.join(", ")));
    let mut properties = None;
    for section in &sections {
        if depth.lists {
            let required = if section.required { "required" } else { "may be unknown" };
            let (name, bytes, at) = (&section.name, section.length, section.offset);
            told.line(format!("section {name:?}: {bytes} bytes at {at}, {required}"));
        }
        let looked = read_section(&*file, &record, section)
            .and_then(|bytes| look_at_section(section, bytes, depth, told));
        match looked {
            Ok(found) => properties = properties.or(found),
            Err(e) => told.damage(e.at_offset(section.offset)),
        }
    }
    if depth.blocks {
        match properties {
            Some(properties) => blocks(file, tag, &properties, told),
            None => told.damage(Error::corruption(
                "expected properties, which say where blocks end, found none",
            )),
        }
    }
    Ok(())
}

/// What a section says; what it says as the table's properties, if it is these.
fn look_at_section(
    section: &Section,
    bytes: Vec<u8>,
    depth: Depth,
    told: &mut Told<'_>,
) -> Result<Option<Properties>> {
    if section.name == PROPERTIES {
        let properties = Properties::decode(&mut Reader::new(&bytes))?;
        if depth.lists {
            tell_properties(&properties, told);
        }
        return Ok(Some(properties));
    }
    if section.name == RANGES {
        let ranges = Ranges::decode(&bytes)?;
        for range in ranges.iter().filter(|_| depth.lists) {
            let end = range.end().map_or("the end".to_owned(), shown);
            told.line(format!("  removed from {} to {end}", shown(&range.start)));
        }
    } else if section.name.starts_with(SECTION_PREFIX) {
        let index = index::decode(&section.name, bytes)?;
        if depth.lists {
            told.line(format!("  {} blocks: {}", index.block_count(), index.describe()));
            told.line(format!("  {} bytes in memory", index.size_bytes()));
        }
    }
    Ok(None)
}

fn tell_properties(of: &Properties, told: &mut Told<'_>) {
    told.line(format!(
        "  {} entries, {} of them tombstones, {} bytes of keys and values, the last operation {}",
        of.entries, of.tombstones, of.raw_bytes, of.last_sequence
    ));
    told.line(format!(
        "  {} blocks of {} bytes, {} uncompressed",
        of.blocks, of.data_bytes, of.unpacked_bytes
    ));
    if of.entries > 0 {
        told.line(format!("  keys {} to {}", shown(&of.smallest), shown(&of.largest)));
    }
    told.line(format!(
        "  when written: {} bytes shadowed, {} overwritten; {} removed ranges, {} bytes covered",
        of.shadowed_bytes, of.overwritten_bytes, of.ranges, of.covered_bytes
    ));
    for used in &of.segments {
        told.line(format!(
            "  value segment {} tagged {:016x}: {} values of {} bytes, stored {}, up to byte {}",
            used.segment, used.tag, used.entries, used.value_bytes, used.bytes, used.end
        ));
    }
}

/// Tells of each block; ends where the next one cannot be found.
fn blocks(file: Arc<dyn File>, tag: u64, properties: &Properties, told: &mut Told<'_>) {
    let (codecs, end, pool) = (Codecs::default(), properties.data_bytes, Pool::new(0));
    // What a damaged file says of its length is not believed.
    let there = file.length_bytes().map_or(0, |length| length.min(end));
    let (mut window, mut offset) = (Window::new(file, there), 0);
    while offset < end {
        let length = window
            .get(offset, BLOCK_HEADER_BYTES as u64)
            .map(|head| block::peek(head).map_or(0, |(_, length)| length as u64));
        let block = length.and_then(|length| {
            let stored = Stored::check(window.get(offset, length)?, tag, offset)?;
            let memory = pool.take(stored.raw_bytes());
            Ok((length, stored.is_compressed(), stored.unpack(&codecs, memory)?))
        });
        match block {
            Ok((length, is_compressed, block)) => {
                let entries = block.entries();
                let separator = |suffix| shown(&[entries.prefix(), suffix].concat());
                told.line(format!(
                    "block {} at {offset}: {length} bytes{}, {} entries, from {} to before {}",
                    entries.ordinal(),
                    if is_compressed { " compressed" } else { "" },
                    entries.count(),
                    separator(entries.lower_suffix()),
                    separator(entries.upper_suffix())
                ));
                offset = (offset + length).next_multiple_of(BLOCK_ALIGNMENT);
            }
            Err(e) => {
                told.damage(e.at_offset(offset));
                let length = window
                    .get(offset, BLOCK_HEADER_BYTES as u64)
                    .map_or(0, |head| block::peek(head).map_or(0, |(_, length)| length as u64));
                let next = offset.saturating_add(length).next_multiple_of(BLOCK_ALIGNMENT);
                if length <= BLOCK_HEADER_BYTES as u64 || next > end {
                    told.line(format!("the {} bytes behind it are not known", end - offset));
                    return;
                }
                offset = next;
            }
        }
    }
}
