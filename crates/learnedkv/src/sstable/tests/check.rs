//! Tables that lie under right checksums, as a writer's bug would leave them: a check of all there is finds them out.

use super::super::check::{Witness, check_table};
use super::super::filter::FilterBuilder;
use super::super::filter::FilterKind;
use super::super::filter::file::{filter_path, write};
use super::*;
use crate::error::Error;
use crate::format::block;
use crate::format::manifest::TableRecord;
use crate::format::table::{FOOTER_BYTES, Footer, Properties, Section, encode_directory};
use crate::format::value::ValuePointer;
use crate::sstable::opening::{read_directory, read_section};

#[derive(Default)]
struct Told {
    damages: Vec<Error>,
    read_bytes: u64,
}

impl Witness for Told {
    fn damage(&mut self, error: Error) {
        self.damages.push(error);
    }

    fn read(&mut self, bytes: u64) {
        self.read_bytes += bytes;
    }

    fn pointer(&mut self, _: &[u8], _: ValuePointer) {}
}

/// What is told of a table, line by line.
fn told(context: &TableContext, record: &TableRecord) -> Vec<String> {
    let mut told = Told::default();
    let checked = check_table(context, record, &mut told);
    assert!(told.read_bytes >= record.properties.data_bytes, "{} bytes read", told.read_bytes);
    assert_eq!(checked.blocks, record.properties.blocks, "blocks are sound, and lie");
    told.damages.iter().map(ToString::to_string).collect()
}

/// Table 1, of an index kind; its record.
fn written(context: &Arc<TableContext>, kind: IndexKind) -> TableRecord {
    table(context, kind, Compression::None).record()
}

/// The bytes of a table's file.
fn bytes_of(context: &TableContext, record: &TableRecord) -> Vec<u8> {
    let path = table_path(Path::new("/"), record.id);
    let file = context.disk.open(&path, Access::Sequential).unwrap();
    let mut bytes = vec![0; record.file_bytes as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Writes the table again with its blocks changed, and the section of its index in another's place.
fn write_again(
    context: &TableContext,
    record: &mut TableRecord,
    change: impl FnOnce(&mut Vec<u8>),
    index: Option<Vec<u8>>,
) {
    let path = table_path(Path::new("/"), record.id);
    let file = context.disk.open(&path, Access::Random).unwrap();
    let sections = read_directory(&*file, record).unwrap();
    let mut out = bytes_of(context, record);
    out.truncate(record.properties.data_bytes as usize);
    change(&mut out);
    let mut directory = Vec::new();
    for section in &sections {
        let is_index = section.name.starts_with("index:");
        let bytes = match index.clone().filter(|_| is_index) {
            Some(bytes) => bytes,
            None if section.name == "properties" => {
                let mut bytes = Vec::new();
                record.properties.encode(&mut bytes);
                bytes
            }
            None => read_section(&*file, record, section).unwrap(),
        };
        directory.push(Section::new(&section.name, record.tag, out.len() as u64, &bytes));
        out.extend(bytes);
    }
    let (at, directory) = (out.len() as u64, encode_directory(&directory));
    out.extend(&directory);
    Footer::new(record.tag, at, &directory).encode(&mut out);
    file.truncate(0).unwrap();
    file.write_all_at(&out, 0).unwrap();
    record.file_bytes = out.len() as u64;
    assert!(out.len() > FOOTER_BYTES);
}

const KINDS: [IndexKind; 4] = [
    IndexKind::Exact,
    IndexKind::Fence,
    IndexKind::GreedyPlr { epsilon: 4 },
    IndexKind::GreedyPlrPlus { epsilon: 0 },
];

#[test]
fn nothing_is_told_of_a_sound_table_of_any_kind() {
    for kind in KINDS {
        for compression in Compression::ALL {
            let context = context(0);
            let record = table(&context, kind, *compression).record();
            assert_eq!(told(&context, &record), Vec::<String>::new(), "{kind}");
        }
    }
}

/// One of the same number of blocks over other keys.
#[test]
fn an_index_that_does_not_lead_to_its_keys_is_told() {
    for kind in KINDS {
        let context = context(0);
        let mut record = written(&context, kind);
        let other = {
            let limits = Limits { block_bytes: BLOCK_BYTES };
            let options = TableOptions { limits, ..options(kind, Compression::None) };
            let mut writer =
                TableWriter::create(&context.disk, Path::new("/"), 2, options).unwrap();
            for number in 0..ENTRIES {
                writer.add(&key(number * 2 + 501), Kind::Value, number, &[1; 20]).unwrap();
            }
            writer.finish().unwrap()
        };
        let path = table_path(Path::new("/"), 2);
        let file = context.disk.open(&path, Access::Random).unwrap();
        let sections = read_directory(&*file, &other).unwrap();
        let index = sections.iter().find(|section| section.name.starts_with("index:")).unwrap();
        let index = read_section(&*file, &other, index).unwrap();
        write_again(&context, &mut record, |_| {}, Some(index));
        let told = told(&context, &record);
        assert!(told.iter().any(|line| line.contains("table index: expected")), "{kind}: {told:?}");
        assert!(told.iter().all(|line| line.contains("table")), "{kind}: {told:?}");
    }
}

#[test]
fn a_filter_that_refuses_keys_of_its_table_is_told() {
    for kind in FilterKind::ALL {
        let context = context(0);
        let mut record = written(&context, IndexKind::Exact);
        let mut filter = FilterBuilder::new(*kind);
        (0..ENTRIES).for_each(|number| filter.add(&key(number * 2 + 1)));
        let bytes = filter.finish(record.tag).unwrap();
        record.filter = Some(write(&*context.disk, Path::new("/"), 1, &bytes, false).unwrap());
        let lines = told(&context, &record);
        assert_eq!(lines.len(), 2, "{lines:?}");
        let path = filter_path(Path::new("/"), 1).display().to_string();
        assert!(lines.iter().all(|line| line.starts_with(&path) && line.contains("refuses")));
        let mut filter = FilterBuilder::new(*kind);
        (0..ENTRIES).for_each(|number| filter.add(&key(number * 2)));
        let bytes = filter.finish(record.tag).unwrap();
        record.filter = Some(write(&*context.disk, Path::new("/"), 2, &bytes, false).unwrap());
        assert_eq!(told(&context, &record), Vec::<String>::new());
    }
}

/// The properties of file and manifest agree, and both lie.
#[test]
fn properties_that_entries_do_not_bear_out_are_told() {
    type Lie = fn(&mut Properties);
    let lies: [(&str, Lie); 8] = [
        ("501 entries, found 500", |of| of.entries += 1),
        ("1 tombstones, found 0", |of| of.tombstones += 1),
        ("bytes of keys and values", |of| of.raw_bytes += 1),
        ("bytes of blocks uncompressed", |of| of.unpacked_bytes += 64),
        ("as the last sequence number", |of| of.last_sequence += 1),
        ("the smallest key", |of| of.smallest = b"a".to_vec()),
        ("the largest key", |of| of.largest = b"z".to_vec()),
        ("pointers into value segments", |of| {
            of.refer(&ValuePointer::raw(7, 32, 100), 9);
        }),
    ];
    for (expected, lie) in lies {
        let context = context(0);
        let mut record = written(&context, IndexKind::Exact);
        lie(Arc::make_mut(&mut record.properties));
        write_again(&context, &mut record, |_| {}, None);
        let lines = told(&context, &record);
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:?}");
    }
}

/// A block stands in the place of the next, for which its checksum was made right.
#[test]
fn a_block_in_the_place_of_another_is_told() {
    let context = context(0);
    let mut record = written(&context, IndexKind::Fence);
    let tag = record.tag;
    let mut moved = false;
    let change = |bytes: &mut Vec<u8>| {
        let (_, length) = block::peek(bytes).unwrap();
        let at = length.next_multiple_of(64);
        let (_, next) = block::peek(&bytes[at..]).unwrap();
        moved = next.next_multiple_of(64) == at;
        let first = bytes[..at].to_vec();
        bytes[at..2 * at].copy_from_slice(&first);
        block::mend(&mut bytes[at..], tag, at as u64);
    };
    write_again(&context, &mut record, change, None);
    assert!(moved, "blocks are of one length");
    let lines = told(&context, &record);
    for words in [
        "expected block 1, found 0",
        "expected the lower separator",
        "expected a key above",
        "table index: expected block 1 for key",
        "the largest key",
    ] {
        let is_there = lines.iter().any(|line| line.contains(words));
        assert_eq!(is_there, words != "the largest key", "{words}: {lines:?}");
    }
}

/// A flip anywhere is told, or lies between blocks.
#[test]
fn every_flipped_byte_is_told_but_those_that_fill_blocks_up() {
    for kind in KINDS {
        let context = context(0);
        let record = written(&context, kind);
        let bytes = bytes_of(&context, &record);
        let file = context.disk.open(&table_path(Path::new("/"), 1), Access::Random).unwrap();
        for at in (0..bytes.len()).step_by(7) {
            file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
            let mut told = Told::default();
            check_table(&context, &record, &mut told);
            file.write_all_at(&[bytes[at]], at as u64).unwrap();
            let is_filling = bytes[at] == 0 && (at as u64) < record.properties.data_bytes;
            assert!(!told.damages.is_empty() || is_filling, "{kind}: byte {at}");
        }
    }
}
