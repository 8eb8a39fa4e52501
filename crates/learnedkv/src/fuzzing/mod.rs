//! One function per decoder of untrusted bytes, for `fuzz/` and for the test below.
//!
//! Each takes any bytes, decodes them, and does with what was decoded what its users do. It never
//! panics and never takes memory out of proportion; its result says whether something was decoded.
//! Where a checksum stands before a decoder, the bytes are tried as they are and with the checksum
//! made right: else nothing behind it were ever reached.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use crate::cursor::{Cursor, Seek};
use crate::disk::Disk;
use crate::disk::sim::SimDisk;
use crate::error::Result;
use crate::format::batch::Ops;
use crate::format::block::{self, Block, Stored};
use crate::format::bytes::Reader;
use crate::format::checksum::HashedKey;
use crate::format::checksum::mix;
use crate::format::compression::{Codecs, MOST_EXPANSION};
use crate::format::entry::SequenceNumber;
use crate::format::filter::{decode_filter, mend_filter};
use crate::format::log::{SEGMENT_HEADER_BYTES, check_segment_header, mend_record};
use crate::format::manifest::{
    Edit, LogState, MANIFEST_HEADER_BYTES, decode_edit, decode_header, encode_edit, mend_edit,
};
use crate::format::range::Ranges;
use crate::format::table::{FOOTER_BYTES, Footer, Properties, mend_footer};
use crate::format::value::{
    self, CHUNK_BYTES, CHUNK_HEADER_BYTES, VALUES_HEADER_BYTES, ValuePointer, check_header,
    check_packed, join_chunks,
};
use crate::manifest::{self, CURRENT, State};
use crate::memory::{Buffer, Shared};
use crate::memtable::Memtable;
use crate::options::KeyspaceOptions;
use crate::sstable::filter;
use crate::sstable::index::{self, IndexKind, SECTION_PREFIX};
use crate::wal::{recovery, segment_path};

/// The tag, database and number that everything is read with.
const TAG: u64 = 7;
/// Where blocks and footers are read from.
const OFFSET: u64 = 64;
const DIR: &str = "/";

/// A data block: every entry, its separators, and searches.
pub fn block(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    block::mend(&mut mended, TAG, OFFSET);
    let decoded = [bytes.to_vec(), mended].map(decode_block);
    for block in decoded.iter().flatten() {
        let bounds = [block.entries().lower_suffix(), block.entries().upper_suffix()];
        let mut keys: Vec<Vec<u8>> = bounds.map(|s| [block.entries().prefix(), s].concat()).into();
        keys.extend([Vec::new(), vec![0xff; 20], bytes.to_vec()]);
        // The offsets of a block may all name one place: so much is enough.
        for number in (0..block.count()).take(100) {
            if let Ok(entry) = block.entries().entry(number) {
                assert_eq!(block.bytes()[block.entries().value_range(&entry)], *entry.value);
                keys.push([block.entries().prefix(), entry.key_suffix].concat());
            }
        }
        assert!(block.entries().entry(block.count()).is_err());
        for key in keys {
            if let Ok((number, found)) = block.entries().lower_bound(&key) {
                assert!(number + usize::from(found) <= block.count());
            }
        }
    }
    decoded.iter().any(Result::is_ok)
}

/// Both ways to a block in memory.
fn decode_block(bytes: Vec<u8>) -> Result<Block> {
    let stored = Stored::check(&bytes, TAG, OFFSET)?;
    // Memory in proportion, before anything is decompressed.
    assert!(stored.raw_bytes() <= 24 + MOST_EXPANSION * bytes.len());
    let memory = Buffer::of(&vec![0xee; stored.raw_bytes()]);
    let unpacked = stored.unpack(&Codecs::default(), memory);
    if stored.is_compressed() {
        return unpacked;
    }
    let head = stored.head();
    let kept = Block::keep(Buffer::of(&bytes), head, OFFSET);
    assert_eq!(unpacked.is_ok(), kept.is_ok());
    kept
}

/// What a codec is given. The first byte is its mark, the next two how long it was, per 16 bytes.
pub fn compressed(bytes: &[u8]) -> bool {
    let [mark, high, low, stored @ ..] = bytes else { return false };
    let raw_bytes = (usize::from(*high) * 256 + usize::from(*low)) * 16;
    let mut raw = vec![0; raw_bytes];
    let codecs = Codecs::default();
    let first = codecs.decompress(*mark, stored, &mut raw);
    // A context that has refused something is used again.
    let mut again = vec![0xff; raw_bytes];
    let second = codecs.decompress(*mark, stored, &mut again);
    assert_eq!(first.is_ok(), second.is_ok());
    assert!(first.is_err() || raw == again, "bytes that nothing was written to");
    first.is_ok()
}

/// A footer and the section directory behind it.
pub fn footer(bytes: &[u8]) -> bool {
    let Some((footer, directory)) = bytes.split_first_chunk::<FOOTER_BYTES>() else {
        return Footer::decode(bytes).is_ok();
    };
    let mut mended = *footer;
    mend_footer(&mut mended);
    let footers = [footer, &mended].map(|bytes| Footer::decode(bytes));
    // And one whose directory checksum is right, of a table as long as may be.
    let right = Footer::new(TAG, u64::MAX / 2, directory);
    for footer in footers.iter().flatten().chain([&right]) {
        for section in footer.decode_directory(directory).unwrap_or_default() {
            assert!(section.offset + section.length <= footer.directory_offset);
            let _ = section.check(footer.tag, bytes);
        }
    }
    footers.iter().all(Result::is_ok) || right.decode_directory(directory).is_ok()
}

/// A table's properties.
pub fn properties(bytes: &[u8]) -> bool {
    let Ok(properties) = Properties::decode(&mut Reader::new(bytes)) else { return false };
    let mut again = Vec::new();
    properties.encode(&mut again);
    assert_eq!(Properties::decode(&mut Reader::new(&again)).ok(), Some(properties));
    true
}

/// The removed ranges of a table, and a key to look for: the first byte says how long it is.
pub fn ranges(bytes: &[u8]) -> bool {
    let Some((&length, rest)) = bytes.split_first() else { return false };
    let (key, section) = rest.split_at(usize::from(length).min(rest.len()));
    let Ok(ranges) = Ranges::decode(section) else { return false };
    let mut again = Vec::new();
    ranges.encode(&mut again);
    assert_eq!(Ranges::decode(&again).as_ref().ok(), Some(&ranges));
    assert_eq!(Ranges::union(ranges.iter().cloned().collect()), ranges);
    let starts = ranges.iter().map(|range| range.start.as_slice());
    for key in starts.take(100).chain([key, &[], &[0xff; 9]]) {
        let stretch = ranges.stretch(key);
        assert!(stretch.keys.contains(key) && stretch.is_covered == ranges.covers(key));
        let mut below = ranges.clone();
        let above = below.split_off(key);
        assert_eq!(above.covers(key), stretch.is_covered);
        assert!(below.end_by(key) && above.overlapping(&[], Some(key)).is_empty());
    }
    // Memory in proportion.
    assert!(ranges.size_bytes() <= 64 * section.len());
    true
}

/// A value segment: its header, and behind it what a pointer says is one value. The input begins with the
/// pointer's length.
pub fn values(bytes: &[u8]) -> bool {
    let Some((&length, segment)) = bytes.split_first() else { return false };
    let Ok(pointer) = ValuePointer::decode(segment.get(..usize::from(length)).unwrap_or_default())
    else {
        return false;
    };
    let mut again = Vec::new();
    pointer.encode(&mut again);
    assert_eq!(ValuePointer::decode(&again).ok(), Some(pointer));
    assert!(pointer.end() >= pointer.stored_bytes());
    let mut logged = Vec::new();
    pointer.encode_logged(TAG, &mut logged);
    assert_eq!(ValuePointer::decode_logged(&logged).ok(), Some((pointer, TAG)));
    let _ = ValuePointer::decode_logged(segment);
    let rest = segment.get(usize::from(length)..).unwrap_or_default();
    let header = check_header(rest, TAG);
    let mut stored = rest.get(VALUES_HEADER_BYTES..).unwrap_or_default().to_vec();
    let value = decode_value(&stored, pointer);
    value::mend(&mut stored, TAG, pointer, b"key");
    let mended = decode_value(&stored, pointer);
    let is_ok = value.is_ok();
    assert!(!is_ok || value.ok() == mended.ok(), "what was sound was mended");
    header.is_ok() || is_ok
}

fn decode_value(stored: &[u8], pointer: ValuePointer) -> Result<Vec<u8>> {
    if pointer.packed.is_none() {
        let mut stored = stored.to_vec();
        join_chunks(&mut stored, TAG, pointer, b"key")?;
        return Ok(stored.split_off(CHUNK_HEADER_BYTES));
    }
    let layout = check_packed(stored, TAG, pointer, b"key")?;
    // Memory in proportion to what was found sound.
    assert!(pointer.length as usize <= MOST_EXPANSION * stored.len());
    let mut raw = vec![0; pointer.length as usize];
    layout.unpack(stored, &Codecs::default(), &mut raw)?;
    let chunks = raw.chunks(CHUNK_BYTES);
    assert_eq!(chunks.len() as u64, pointer.chunks());
    for (index, chunk) in (0..).zip(chunks) {
        assert_eq!(chunk.len() as u64, layout.raw_length(index));
    }
    Ok(raw)
}

/// A manifest: its header, then edits, applied one after another.
pub fn manifest(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    if let Some(header) = mended.get_mut(..MANIFEST_HEADER_BYTES) {
        let database = Reader::at(header, 16).u64().unwrap_or_default();
        crate::format::checksum::seal_end(database, header);
    }
    let _ = decode_header(bytes, TAG);
    let header = decode_header(&mended, TAG);
    let (mut state, mut offset, mut edits) = (State::default(), MANIFEST_HEADER_BYTES, 0);
    loop {
        mend_edit(&mut mended, TAG, TAG, offset);
        let Ok((edit, length)) = decode_edit(&mended, TAG, TAG, offset, edits) else { break };
        same_again(&edit);
        if state.apply(&edit).is_err() {
            break;
        }
        (offset, edits) = (offset + length, edits + 1);
    }
    // What was read is a state like any other: the first edit of the next manifest makes it again.
    let first = state.to_edit();
    same_again(&first);
    let mut rebuilt = State::default();
    if rebuilt.apply(&first).is_ok() {
        assert_eq!(rebuilt, state);
    }
    let _ = manifest::replay(bytes, TAG);
    // There a torn edit is the end, and one that does not fit is an error.
    if let Ok((_, replayed)) = manifest::replay(&mended, TAG) {
        assert_eq!(replayed, state);
    }
    header.is_ok() && edits > 0
}

fn same_again(edit: &Edit) {
    let bytes = encode_edit(edit, TAG, TAG, 0, 0);
    assert_eq!(decode_edit(&bytes, TAG, TAG, 0, 0).ok(), Some((edit.clone(), bytes.len())));
}

/// `CURRENT`, beside a manifest that says little.
pub fn current(bytes: &[u8]) -> bool {
    let mut manifest = crate::format::manifest::encode_header(TAG, TAG);
    let edit = encode_edit(&Edit::default(), TAG, TAG, manifest.len() as u64, 0);
    manifest.extend(edit);
    let disk = SimDisk::new(1);
    // As long as a manifest is.
    let contents = [(CURRENT, bytes, 0), ("manifest-00000007", &*manifest, 1 << 20)];
    for (name, bytes, length) in contents {
        let file = disk.create(&Path::new(DIR).join(name)).expect("a disk with room");
        file.write_all_at(bytes, 0).expect("a disk with room");
        file.preallocate(length).expect("a disk with room");
    }
    manifest::load(&disk, Path::new(DIR)).is_ok_and(|found| found.is_some())
}

/// A log segment: its header, then records, recovered as they are and with their checksums right.
pub fn log(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    let _ = check_segment_header(bytes, TAG, TAG);
    if let Some(header) = mended.get_mut(..32) {
        crate::format::checksum::seal_end(TAG, header);
    }
    let header = check_segment_header(&mended, TAG, TAG);
    let mut offset = SEGMENT_HEADER_BYTES;
    while let Some(next) = mend_record(&mut mended, TAG, TAG, offset) {
        offset = next;
    }
    let as_it_is = recovered(bytes);
    header.is_ok() && as_it_is.max(recovered(&mended)) > 0
}

/// How many operations are recovered from a segment of these bytes.
fn recovered(bytes: &[u8]) -> u64 {
    let disk = SimDisk::new(1);
    let path = segment_path(Path::new(DIR), TAG);
    let file = disk.create(&path).expect("a disk with room");
    file.write_all_at(bytes, 0).expect("a disk with room");
    let state = LogState { open_from: TAG, ..LogState::default() };
    let mut apply = |header: &crate::format::log::RecordHeader, payload: &[u8]| {
        apply_batch(payload, header.first)?;
        Ok(())
    };
    let found = recovery::recover(&disk, Path::new(DIR), TAG, &state, 0, &mut apply);
    found.map_or(0, |found| found.operations)
}

/// The payload of a log record, into a memtable and out of it.
pub fn batch(bytes: &[u8]) -> bool {
    apply_batch(bytes, 1).is_ok_and(|operations| operations > 0)
}

fn apply_batch(payload: &[u8], first: SequenceNumber) -> Result<usize> {
    let memtable = Arc::new(Memtable::default());
    let payload = Shared::from(payload.to_vec());
    let mut operations = 0;
    for (sequence, op) in (first..).zip(Ops::new(&payload)) {
        let op = op?;
        memtable.expect(sequence);
        memtable.insert(&payload, &op, sequence);
        operations += 1;
    }
    let mut cursor = memtable.cursor(SequenceNumber::MAX);
    cursor.seek(Seek::First)?;
    let mut entries = 0;
    while let Some(key) = cursor.key() {
        let (kind, _) = cursor.kind();
        assert!(
            memtable.get(&HashedKey::new(key), SequenceNumber::MAX) != crate::slice::Lookup::Absent,
            "{kind:?}"
        );
        entries += 1;
        cursor.advance()?;
    }
    assert!(entries <= operations);
    // What is removed is removed, but for what was put there later.
    for range in memtable.ranges(SequenceNumber::MAX).iter() {
        let found = memtable.get(&HashedKey::new(&range.start), SequenceNumber::MAX);
        assert!(found != crate::slice::Lookup::Absent, "{range:?}");
    }
    Ok(operations)
}

/// A filter file: as it is, with its checksums right, and as a payload of the kind that it names.
pub fn filter(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    mend_filter(&mut mended, TAG);
    let keys = |bytes: &[u8]| decode_filter(TAG, bytes).map_or(0, |file| file.keys);
    let filters = [bytes, &mended].map(|b| filter::file::from_bytes(TAG, keys(b), b));
    for filter in filters.iter().flatten() {
        for number in 0..64 {
            filter.may_contain(mix(number));
            filter.may_contain(u64::MAX << number);
        }
        // A shard of a fuse filter takes 14 bytes at least, and some words beside its slots.
        let size_bytes = filter.size_bytes();
        assert!(size_bytes <= 16 * bytes.len() + 4096, "{size_bytes} of {}", bytes.len());
    }
    filters.iter().any(Result::is_ok)
}

/// An index section. The first byte chooses the kind, the second how many bytes are a key to look for.
pub fn index(bytes: &[u8]) -> bool {
    let [kind, key_length, rest @ ..] = bytes else { return false };
    let kind = IndexKind::ALL[usize::from(*kind) % IndexKind::ALL.len()];
    let (key, section) = rest.split_at(usize::from(*key_length).min(rest.len()));
    let name = format!("{SECTION_PREFIX}{}", kind.name());
    let Ok(index) = index::decode(&name, section.to_vec()) else { return false };
    for key in [key, &[], &[0xff; 12]] {
        let (first, last) = index.locate(key);
        assert!(first <= last, "{kind}: {first}..={last}");
        // What lies beyond the table is refused by the reader, before it asks where it ends.
        for block in [first, last].into_iter().filter(|block| *block < index.block_count()) {
            index.extent(block);
        }
    }
    for block in [0, index.block_count() / 2, index.block_count().saturating_sub(1)] {
        if block < index.block_count() {
            index.extent(block);
        }
    }
    // Models of one segment may stand for many blocks; what a section takes is in proportion to it.
    assert!(index.size_bytes() <= 64 * section.len() + 4096, "{kind}: {}", index.size_bytes());
    true
}

/// The options of a keyspace, as lines of `name=value`: what is taken is written as it was, and checked.
pub fn options(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let pairs: Vec<_> = text.lines().filter_map(|line| line.split_once('=').map(pair)).collect();
    let Ok(options) = KeyspaceOptions::decode(&pairs) else { return false };
    assert!(options.check().is_ok());
    let again = KeyspaceOptions::decode(&options.encode());
    assert_eq!(again.map(|options| options.encode()).ok(), Some(options.encode()));
    true
}
