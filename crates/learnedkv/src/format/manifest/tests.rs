//! The manifest's bytes: examples, round trips, damage.

use super::super::example::assert_shown;
use super::super::table::Properties;
use super::*;

fn table(id: u64) -> TableRecord {
    TableRecord {
        id,
        tag: 1 << 63,
        file_bytes: 1 << 33,
        properties: Properties { smallest: b"a".to_vec(), ..Properties::default() }.into(),
        filter: id.is_multiple_of(2).then_some(FilterRecord {
            id: id + 7,
            file_bytes: 1 << 20,
            rests: id.is_multiple_of(4),
        }),
    }
}

fn carried() -> CarriedPosition {
    CarriedPosition { sequence: 8, position: *b"primary/00000042" }
}

fn sample() -> Edit {
    let keyspace = 3;
    let partition = PartitionRecord { lower: b"m".to_vec(), base: Some(table(4)), delta: None };
    Edit {
        synced: 9,
        next_file: 10,
        next_keyspace: 11,
        changes: vec![
            Change::CreateKeyspace {
                keyspace,
                name: "naïve".into(),
                options: vec![("store".into(), "tiered".into())].into(),
            },
            Change::DropKeyspace { keyspace },
            Change::Flushed { keyspace, up_to: 8 },
            Change::AddRun { keyspace, tables: vec![table(1), table(2)] },
            Change::ReplaceRuns { keyspace, first: 0, count: 2, tables: vec![] },
            Change::Freeze { keyspace },
            Change::ReplacePartitions {
                keyspace,
                from: b"m".to_vec(),
                count: 1,
                partitions: vec![partition],
                watermark: Watermark::Raise(b"q".to_vec()),
            },
            Change::Frozen { keyspace, runs: vec![vec![table(5)]], watermark: vec![] },
            Change::ReplaceTables {
                keyspace,
                removed: vec![1, 300],
                level: 6,
                at: 2,
                tables: vec![table(8)],
            },
            Change::ExternalPosition { keyspace, carried: carried() },
            Change::Log { ended: vec![(1, 4096)], open_from: 2, first: 1 },
        ],
    }
}

/// Every change, its lists of tables empty: what a table looks like is shown with it.
fn example() -> Edit {
    let keyspace = 2;
    Edit {
        synced: 9,
        next_file: 300,
        next_keyspace: 3,
        changes: vec![
            Change::CreateKeyspace {
                keyspace,
                name: "k".into(),
                options: vec![("store".into(), "lsm".into())].into(),
            },
            Change::DropKeyspace { keyspace },
            Change::Flushed { keyspace, up_to: 8 },
            Change::AddRun { keyspace, tables: vec![] },
            Change::ReplaceRuns { keyspace, first: 1, count: 2, tables: vec![] },
            Change::Freeze { keyspace },
            Change::ReplacePartitions {
                keyspace,
                from: b"m".to_vec(),
                count: 1,
                partitions: vec![PartitionRecord { lower: b"m".to_vec(), base: None, delta: None }],
                watermark: Watermark::Raise(b"q".to_vec()),
            },
            Change::Frozen { keyspace, runs: vec![vec![]], watermark: b"q".to_vec() },
            Change::ReplaceTables {
                keyspace,
                removed: vec![1, 300],
                level: 6,
                at: 2,
                tables: vec![],
            },
            Change::ExternalPosition { keyspace, carried: carried() },
            Change::Log { ended: vec![(1, 4096)], open_from: 2, first: 1 },
        ],
    }
}

#[test]
fn the_example_of_the_module_page_is_what_is_written() {
    let mut bytes = encode_header(6, 77);
    let start = bytes.len() as u64;
    bytes.extend(encode_edit(&example(), 77, 6, start, 0));
    assert_shown(include_str!("../manifest.rs"), "Manifest 6 of the database 77", &bytes);
}

#[test]
fn every_change_round_trips() {
    let edit = sample();
    let mut bytes = encode_header(6, 77);
    assert_eq!(decode_header(&bytes, 6).unwrap(), 77);
    let start = bytes.len();
    bytes.extend(encode_edit(&edit, 77, 6, start as u64, 0));
    let (found, length) = decode_edit(&bytes, 77, 6, start, 0).unwrap();
    assert_eq!((found, start + length), (edit, bytes.len()));
    assert!(decode_edit(&bytes, 77, 6, start, 1).unwrap_err().is_corruption());
    assert!(decode_edit(&bytes, 77, 5, start, 0).unwrap_err().is_corruption());
}

#[test]
fn damage_anywhere_is_refused() {
    let bytes = encode_edit(&sample(), 77, 6, 0, 0);
    for i in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[i] ^= 1;
        assert!(decode_edit(&bad, 77, 6, 0, 0).is_err(), "byte {i}");
        assert!(decode_edit(&bytes[..i], 77, 6, 0, 0).is_err(), "cut {i}");
    }
    let header = encode_header(6, 77);
    for i in 0..header.len() {
        let mut bad = header.clone();
        bad[i] ^= 1;
        assert!(decode_header(&bad, 6).is_err(), "byte {i}");
    }
}

#[test]
fn an_unknown_change_is_unsupported_not_guessed() {
    let mut payload = vec![0, 0, 0];
    payload.push(200);
    assert_eq!(decode_payload(&payload).unwrap_err().kind(), ErrorKind::Unsupported);
}
