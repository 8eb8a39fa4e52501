//! Every decoder on pseudo-random mutations of what its encoder writes: the fuzz targets' share of a
//! plain test run.

use super::*;
use crate::format::batch::put_op;
use crate::format::block::{BlockBuilder, BlockPlace, NewEntry};
use crate::format::compression::Compression;
use crate::format::entry::{CarriedPosition, Kind};
use crate::format::log::{RecordHeader, encode_segment_header, record_bytes, write_record};
use crate::format::manifest::{
    Change, FilterRecord, PartitionRecord, TableRecord, Watermark, encode_header,
};
use crate::format::range::KeyRange;
use crate::format::table::{Section, SegmentUse, encode_directory};
use crate::format::value::{self, CHUNK_BYTES, put_value};
use crate::options::Store;
use crate::sstable::filter::{FilterBuilder, FilterKind};
use crate::sstable::partition::Limits;

const MUTANTS: u64 = 4000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (crate::format::checksum::mix(self.0) % n.max(1) as u64) as usize
    }
}

/// One to four changes: a bit, a byte at an edge, a byte more or less, a huge number, a piece copied
/// elsewhere, a cut.
fn mutate(sample: &[u8], random: &mut Random) -> Vec<u8> {
    const EDGES: [u8; 8] = [0, 1, 2, 0x40, 0x7f, 0x80, 0xfe, 0xff];
    /// `u64::MAX` as a varint.
    const LARGEST: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let mut bytes = sample.to_vec();
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(8) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 | 3 => bytes[at] = EDGES[random.below(EDGES.len())],
            4 => bytes.insert(at, EDGES[random.below(EDGES.len())]),
            5 => _ = bytes.remove(at),
            6 => _ = bytes.splice(at..=at, LARGEST),
            _ if random.below(4) == 0 => bytes.truncate(at),
            _ => {
                let from = random.below(bytes.len());
                let length = random.below(16).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + length, at);
            }
        }
    }
    bytes
}

/// Runs `decode` on a sample, which it must take, and on mutants, of which it must take some and refuse
/// some.
fn try_mutants(name: &str, decode: fn(&[u8]) -> bool, sample: &[u8]) {
    try_some_mutants(name, decode, sample, MUTANTS);
}

fn try_some_mutants(name: &str, decode: fn(&[u8]) -> bool, sample: &[u8], mutants: u64) {
    assert!(decode(sample), "{name}: the sample is refused");
    let mut random = Random(sample.len() as u64);
    let mut taken = 0;
    for number in 0..mutants {
        let mutant = mutate(sample, &mut random);
        let decoded = std::panic::catch_unwind(|| decode(&mutant));
        let decoded = decoded.unwrap_or_else(|_| panic!("{name}: mutant {number}: {mutant:02x?}"));
        taken += u64::from(decoded);
    }
    assert!(taken > 0 && taken < mutants, "{name}: {taken} of {mutants} were taken");
}

fn key(number: u64) -> Vec<u8> {
    format!("key{:06}", number * number).into_bytes()
}

fn table_record(id: u64) -> TableRecord {
    let (smallest, largest) = (key(0), key(9));
    let used = SegmentUse { bytes: 4000, value_bytes: 9000, end: 5000, ..SegmentUse::default() };
    let used = SegmentUse { segment: 9, tag: TAG, entries: 3, ..used };
    let properties = Properties {
        entries: 1000,
        blocks: 7,
        smallest,
        largest,
        segments: vec![used],
        ..Properties::default()
    };
    let filter = Some(FilterRecord { id, file_bytes: 100, rests: id.is_multiple_of(2) });
    TableRecord { id, tag: TAG, file_bytes: 1 << 20, properties: properties.into(), filter }
}

#[test]
fn blocks() {
    for how in Compression::ALL {
        let (mut builder, mut codec) = (BlockBuilder::default(), how.codec());
        let keys: Vec<_> = (0..12).map(key).collect();
        let (kind, value) = (Kind::Value, &b"a value, and a value, and a value"[..]);
        let entry = |(key, sequence)| NewEntry { key, kind, sequence, value };
        let entries = keys.iter().map(Vec::as_slice).zip(0..).map(entry);
        let place = BlockPlace { tag: TAG, offset_bytes: OFFSET, ordinal: 3 };
        let mut bytes = Vec::new();
        let separators = (&b"key"[..], &b"kez"[..]);
        let unpacked = builder.write(&mut bytes, place, separators, entries, codec.as_deref_mut());
        assert_eq!((bytes.len() as u64) < unpacked - 64, *how != Compression::None, "{how}");
        try_mutants(&format!("block, {how}"), block, &bytes);
    }
}

#[test]
fn compressed_bytes() {
    let raw: Vec<u8> = (0..60).flat_map(|n| key(n % 7)).chain([0; 60]).take(37 * 16).collect();
    for mut codec in Compression::ALL.iter().filter_map(|how| how.codec()) {
        let mut sample = vec![codec.mark(), 0, 37];
        assert!(codec.compress(&raw, raw.len(), &mut sample));
        try_mutants(&format!("compression {}", codec.mark()), compressed, &sample);
    }
}

#[test]
fn footers_directories_and_properties() {
    let sections = ["properties", "index:exact"].map(|name| Section::new(name, TAG, 64, b"bytes"));
    let directory = encode_directory(&sections);
    let mut bytes = Vec::new();
    Footer::new(TAG, 1000, &directory).encode(&mut bytes);
    bytes.extend(directory);
    try_mutants("footer", footer, &bytes);
    let mut bytes = Vec::new();
    table_record(1).properties.encode(&mut bytes);
    try_mutants("properties", properties, &bytes);
}

#[test]
fn removed_ranges() {
    let range = |n: u64| KeyRange { start: key(n), end: (n < 9).then(|| key(n + 1)) };
    let mut bytes = vec![9];
    bytes.extend(key(4));
    Ranges::union((0..10).step_by(3).map(range).collect()).encode(&mut bytes);
    try_mutants("ranges", ranges, &bytes);
}

#[test]
fn keyspace_options() {
    let filter = Some(FilterKind::BinaryFuse8);
    let made = KeyspaceOptions::default().store(Store::Lsm).block_bytes(8192).move_values(false);
    let made = made.settled_filter(filter).lsm_filter(None).settled_index(IndexKind::Fence);
    let pairs = made.encode();
    assert_eq!(KeyspaceOptions::decode(&pairs).unwrap(), made);
    let lines: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    try_mutants("options", options, lines.join("\n").as_bytes());
    // A value that no keyspace can be made with: zero bytes a block.
    assert!(!options(b"block_bytes=0"));
}

#[test]
fn value_segments() {
    // As it is; compressed; of several chunks, which a table tells.
    let long = [vec![7; CHUNK_BYTES], vec![8; 100]].concat();
    let short: &[u8] = b"the value";
    for how in Compression::ALL {
        for (value, mutants) in [(short, MUTANTS), (&[1; 90], MUTANTS), (&long, MUTANTS / 8)] {
            if *how == Compression::None && value.len() > CHUNK_BYTES {
                continue; // Its header would hardly ever be met.
            }
            let (mut stored, mut codec) = (value::encode_header(TAG), how.codec());
            let place = (300, VALUES_HEADER_BYTES as u64);
            let pointer = put_value(&mut stored, TAG, place, b"key", value, codec.as_deref_mut());
            assert_eq!(pointer.packed.is_some(), codec.is_some() && value.len() > 9);
            let mut bytes = vec![0];
            pointer.encode(&mut bytes);
            bytes[0] = (bytes.len() - 1) as u8;
            bytes.extend(stored);
            try_some_mutants("values", values, &bytes, mutants);
        }
    }
}

#[test]
fn manifests() {
    let (keyspace, empty) = (1, PartitionRecord { lower: Vec::new(), base: None, delta: None });
    let options = vec![("partition-bytes".to_owned(), "4096".to_owned())].into();
    let partitions = vec![
        PartitionRecord { base: Some(table_record(3)), ..empty.clone() },
        PartitionRecord { lower: key(5), delta: Some(table_record(4)), ..empty },
    ];
    let edits: [Vec<Change>; 4] = [
        vec![Change::CreateKeyspace { keyspace, name: "name".into(), options }],
        vec![
            Change::Flushed { keyspace, up_to: 10 },
            Change::ExternalPosition {
                keyspace,
                carried: CarriedPosition { sequence: 9, position: [7; 16] },
            },
            Change::AddRun { keyspace, tables: vec![table_record(1), table_record(2)] },
            Change::Log { ended: vec![(1, 4096)], open_from: 2, first: 1 },
        ],
        vec![Change::Freeze { keyspace }],
        vec![Change::ReplacePartitions {
            keyspace,
            from: Vec::new(),
            count: 1,
            partitions,
            watermark: Watermark::Raise(key(5)),
        }],
    ];
    let mut bytes = encode_header(TAG, TAG);
    for (ordinal, changes) in (0..).zip(edits) {
        let edit = Edit { synced: 10, next_file: 5, next_keyspace: 2, changes };
        bytes.extend(encode_edit(&edit, TAG, TAG, bytes.len() as u64, ordinal));
    }
    try_mutants("manifest", manifest, &bytes);
    try_mutants("CURRENT", current, b"manifest-00000007\n");
}

#[test]
fn logs_and_batches() {
    let mut payload = Vec::new();
    for number in 0..6u64 {
        let kind = if number % 3 == 0 { Kind::Tombstone } else { Kind::Value };
        let value: &[u8] = if number % 3 == 0 { b"" } else { b"value" };
        put_op(&mut payload, number % 2, kind, &key(number % 4), value);
        if number % 3 == 1 {
            put_op(&mut payload, 1, Kind::RangeTombstone, &key(number - 1), &key(number + 1));
        }
    }
    try_mutants("batch", batch, &payload);
    let mut bytes = encode_segment_header(TAG, TAG).to_vec();
    for number in 0..3u32 {
        let external_position = (number == 1).then_some([9; 16]);
        let first = u64::from(number) * 8 + 1;
        let header =
            RecordHeader { segment: TAG, first, count: 8, synced: first - 1, external_position };
        let offset = bytes.len();
        bytes.resize(offset + record_bytes(payload.len(), number == 1), 0);
        write_record(&mut bytes[offset..], TAG, offset as u64, &header, &payload);
    }
    try_mutants("log", log, &bytes);
}

#[test]
fn filters() {
    for kind in FilterKind::ALL {
        let mut builder = FilterBuilder::new(*kind);
        (0..40).for_each(|number| builder.add(&key(number)));
        try_mutants(kind.name(), filter, &builder.finish(TAG).unwrap());
    }
}

#[test]
fn indexes() {
    let mut keys: Vec<Vec<u8>> = (0..400).map(key).collect();
    keys.sort();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for (number, kind) in IndexKind::ALL.iter().enumerate() {
        let mut builder = kind.builder(Limits { block_bytes: 256 }, &keys[0]);
        let (mut start, mut blocks) = (0, 0);
        while start < keys.len() {
            let cuts = builder.cut(&slices[start..], &vec![60; keys.len() - start], true);
            (1..=cuts.len() as u64).for_each(|block| builder.push_end((blocks + block) * 256));
            blocks += cuts.len() as u64;
            start += cuts.last().unwrap().end;
        }
        assert!(blocks > 50);
        let section = builder.finish().unwrap();
        let sample = [&[number as u8, 9], &*key(77), &section].concat();
        try_mutants(&kind.to_string(), index, &sample);
    }
}
