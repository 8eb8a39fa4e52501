//! Blocks as they are written, read and damaged.

use super::*;
use crate::format::compression::Compression;
use crate::format::example::assert_shown;
use crate::format::value::ValuePointer;
use crate::memory::Buffer;
use std::cmp::Ordering;

type Entries<'a> = &'a [(&'a [u8], &'a [u8])];

fn build_as(how: Compression, lower: &[u8], upper: &[u8], entries: Entries) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    let mut codec = how.codec();
    let place = BlockPlace { tag: 1, offset_bytes: 0, ordinal: 3 };
    let mut out = b"what stands before".to_vec();
    let before = out.len();
    // The second time, everything is used again.
    for _ in 0..3 {
        out.truncate(before);
        let entries = entries.iter().map(|(key, value)| {
            let (kind, sequence) = (Kind::Value, 7);
            NewEntry { key, kind, sequence, value }
        });
        builder.write(&mut out, place, (lower, upper), entries, codec.as_deref_mut());
    }
    assert_eq!(&out[..before], b"what stands before");
    out.split_off(before)
}

fn build(lower: &[u8], upper: &[u8], entries: Entries) -> Vec<u8> {
    build_as(Compression::None, lower, upper, entries)
}

fn decode(bytes: Vec<u8>, tag: u64, offset_bytes: u64) -> Result<Block> {
    let stored = Stored::check(&bytes, tag, offset_bytes)?;
    if stored.is_compressed() {
        return stored.unpack(&Codecs::default(), Buffer::of(&vec![0xee; stored.raw_bytes()]));
    }
    let head = stored.head();
    Block::keep(Buffer::of(&bytes), head, offset_bytes)
}

/// Bytes that nothing compresses.
fn noise(length: usize) -> Vec<u8> {
    let words = (0..length as u64 / 8 + 1).map(crate::format::checksum::mix);
    words.flat_map(u64::to_le_bytes).take(length).collect()
}

#[test]
fn the_examples_are_what_is_written() {
    let page = include_str!("../block.rs");
    assert_shown(page, "at offset 0:", &build(b"aa", b"ac", &[(b"ab", b"v")]));
    for (name, how) in [
        ("80 times, as lz4:", Compression::Lz4),
        ("80 times, as zstd:", Compression::Zstd { level: 3 }),
    ] {
        assert_shown(page, name, &build_as(how, b"aa", b"ac", &[(b"ab", &[b'v'; 80])]));
    }
    let mut wide = build(b"aa", b"ac", &[(b"ab", &[b'v'; 1 << 16])]);
    let value = decode(wide.clone(), 1, 0).unwrap();
    let entry = value.entries().entry(0).unwrap();
    wide.truncate(value.entries().value_range(&entry).start + 1);
    assert_shown(page, "up to the first of these:", &wide);
    let mut apart = Vec::new();
    ValuePointer { segment: 3, offset: 32, length: 1, packed: None }.encode(&mut apart);
    let entries = [(&b"ab"[..], Kind::Pointer, &apart[..]), (b"ad", Kind::Tombstone, b"")];
    let entries = entries.map(|(key, kind, value)| NewEntry { key, kind, sequence: 300, value });
    let (mut out, place) = (Vec::new(), BlockPlace { tag: 1, offset_bytes: 0, ordinal: 3 });
    let separators = (&b"aa"[..], &b"ae"[..]);
    BlockBuilder::default().write(&mut out, place, separators, entries.into_iter(), None);
    assert_shown(page, "`ad`, which is removed:", &out);
}

#[test]
fn entries_are_found_and_strangers_are_not() {
    let bytes = build(b"ka", b"kz", &[(b"kb", b"1"), (b"kd", b"2"), (b"kdd", b"")]);
    let block = decode(bytes, 1, 0).unwrap();
    assert_eq!(
        (block.entries().ordinal(), block.count(), block.entries().prefix()),
        (3, 3, &b"k"[..])
    );
    assert_eq!(block.entries().lower_bound(b"kd").unwrap(), (1, true));
    assert_eq!(block.entries().lower_bound(b"kc").unwrap(), (1, false));
    assert_eq!(block.entries().lower_bound(b"ky").unwrap(), (3, false));
    assert_eq!(block.entries().lower_bound(b"z").unwrap(), (3, false));
    assert_eq!(block.entries().lower_bound(b"").unwrap(), (0, false));
    for (key, place) in [
        (&b"k"[..], Ordering::Less),
        (b"ka", Ordering::Equal),
        (b"kz", Ordering::Greater),
        (b"j", Ordering::Less),
        (b"l", Ordering::Greater),
    ] {
        assert_eq!(block.entries().place(key), place, "{key:?}");
    }
    let entry = block.entries().entry(1).unwrap();
    assert_eq!(&block.bytes()[block.entries().value_range(&entry)], b"2");
}

/// Evenly, ever farther apart, in heaps at either end, or the same in their first eight bytes.
#[test]
fn keys_are_found_among_many_however_they_are_spread() {
    let number = |n: u64| n.to_be_bytes().to_vec();
    let spreads: [fn(u64) -> u64; 5] = [
        |n| n << 40,
        |n| crate::format::checksum::mix(n) >> 1,
        |n| n * n * n * n,
        |n| if n < 150 { n * 2 } else { u64::MAX / 2 + n * 2 },
        |n| if n < 3 { n * 2 } else { u64::MAX - 1000 + n * 2 },
    ];
    let long = |n: u64| [&b"the same bytes "[..], &number(n * 3), &b"."[..]].concat();
    let mut sets: Vec<Vec<Vec<u8>>> =
        spreads.map(|spread| (0..180).map(|n| number(spread(n))).collect()).into();
    sets.push((0..180).map(long).collect());
    sets.push((0..16).map(|n| number(n * 7)).collect());
    sets.push((0..40usize).map(|length| vec![b'a'; length]).collect());
    for (set, mut keys) in sets.into_iter().enumerate() {
        keys.sort();
        keys.dedup();
        // Separators as tables have them, near the first key and the last, and as far off as may be.
        let beyond = [&keys[keys.len() - 1][..], &b"a"[..]].concat();
        for (lower, upper) in [(keys[0].clone(), beyond), (Vec::new(), vec![0xff; 9])] {
            let entries: Vec<_> = keys.iter().map(|key| (key.as_slice(), &b"v"[..])).collect();
            let block = decode(build(&lower, &upper, &entries), 1, 0).unwrap();
            let around = keys.iter().flat_map(|key| {
                let before =
                    key.split_last().map(|(last, front)| [front, &[last.wrapping_sub(1)]].concat());
                [Some(key.clone()), Some([&key[..], &[0]].concat()), before]
            });
            for key in around.flatten().filter(|key| (&lower..&upper).contains(&key)) {
                let at = keys.partition_point(|other| *other < key);
                let expected = (at, keys.get(at) == Some(&key));
                assert_eq!(
                    block.entries().lower_bound(&key).unwrap(),
                    expected,
                    "set {set}, {key:?}"
                );
            }
        }
    }
}

#[test]
fn wide_blocks_hold_large_values() {
    let large = vec![9; 100_000];
    let bytes = build(b"", b"z", &[(b"a", &large), (b"b", b"x")]);
    let block = decode(bytes, 1, 0).unwrap();
    assert_eq!(block.entries().entry(0).unwrap().value, large);
    assert_eq!(block.entries().entry(1).unwrap().value, b"x");
}

/// Bytes that were checked before are lent unchecked: damage gives an error or other values, no panic.
#[test]
fn lent_blocks_are_the_same_and_damaged_ones_panic_nowhere() {
    let bytes = build(b"ka", b"kz", &[(b"kb", b"1"), (b"kd", b"22")]);
    let lend = |bytes: Vec<u8>| {
        let lent = super::entries::Entries::lend(&bytes, 0)?;
        Ok::<_, Error>(lent.map(|entries| Block::lent(Bytes::from(bytes.clone()), &entries)))
    };
    // Bytes behind the block are its padding.
    let block = lend([&bytes[..], &[0; 9]].concat()).unwrap().unwrap();
    let kept = decode(bytes.clone(), 1, 0).unwrap();
    assert!(matches!(block.bytes, Memory::Lent(_)) && matches!(kept.bytes, Memory::Own(_)));
    for index in 0..2 {
        assert_eq!(block.entries().entry(index).unwrap(), kept.entries().entry(index).unwrap());
    }
    assert_eq!((block.bytes(), block.entries().ordinal()), (kept.bytes(), 3));
    let packed = build_as(Compression::Lz4, b"ka", b"kz", &[(b"kb", &[1; 300])]);
    assert!(lend(packed).unwrap().is_none());
    for i in 0..bytes.len() {
        assert!(lend(bytes[..i].to_vec()).is_err(), "cut {i}");
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[i] ^= 1 << bit;
            if let Ok(Some(block)) = lend(bad) {
                let _ = (block.entries().lower_bound(b"kd"), block.entries().lower_bound(b"kb"));
                (0..block.count().min(9)).for_each(|index| _ = block.entries().entry(index));
            }
        }
    }
}

#[test]
fn damage_anywhere_is_refused() {
    let bytes = build(b"ka", b"kz", &[(b"kb", b"1"), (b"kd", b"2")]);
    for i in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[i] ^= 1;
        assert!(decode(bad, 1, 0).is_err(), "byte {i}");
        assert!(decode(bytes[..i].to_vec(), 1, 0).is_err(), "cut {i}");
    }
    assert!(decode(bytes.clone(), 2, 0).is_err(), "another file");
    assert!(decode(bytes, 1, 64).is_err(), "another place");
}

#[test]
fn compressed_blocks_are_what_raw_ones_are() {
    let wide = vec![b'w'; 100_000];
    let half: Vec<u8> = [noise(500), vec![0; 500]].concat();
    let samples: [&[(&[u8], &[u8])]; 4] = [
        &[(b"kb", &[1; 300]), (b"kd", b"2"), (b"kdd", b"")],
        &[(b"kb", &wide), (b"kc", &noise(100))],
        &[(b"kb", &half), (b"kc", &half)],
        &[(b"kb", &[0; 5000])],
    ];
    for how in Compression::ALL.iter().filter(|how| **how != Compression::None) {
        for entries in samples {
            let raw = build(b"ka", b"kz", entries);
            let packed = build_as(*how, b"ka", b"kz", entries);
            let stored = Stored::check(&packed, 1, 0).unwrap();
            assert!(stored.is_compressed(), "{how}");
            assert_eq!(stored.lower(), b"ka", "{how}");
            assert_eq!(stored.raw_bytes(), raw.len(), "{how}");
            assert!(packed.len() <= raw.len() - (raw.len() - 24).div_ceil(8), "{how}");
            let block = stored.unpack(&Codecs::default(), Buffer::of(&vec![9; raw.len()])).unwrap();
            assert_eq!(block.bytes()[24..], raw[24..], "{how}");
            let short = Buffer::of(&vec![9; raw.len() - 1]);
            assert!(stored.unpack(&Codecs::default(), short).is_err(), "{how}");
            let expected = decode(raw, 1, 0).unwrap();
            assert_eq!((block.entries().ordinal(), block.count()), (3, entries.len()));
            for index in 0..entries.len() {
                assert_eq!(
                    block.entries().entry(index).unwrap(),
                    expected.entries().entry(index).unwrap(),
                    "{how}"
                );
            }
            assert_eq!(block.entries().place(b"kb"), Ordering::Equal);
        }
    }
}

#[test]
fn what_hardly_shrinks_is_stored_raw() {
    for how in Compression::ALL {
        for (zeros, noisy) in [(0, 1000), (40, 1000), (90, 1000), (50, 90), (0, 0), (0, 1)] {
            let value = [vec![0; zeros], noise(noisy)].concat();
            let block = build_as(*how, b"ka", b"kz", &[(b"kb", &value)]);
            assert_eq!(block, build(b"ka", b"kz", &[(b"kb", &value)]), "{how}: {zeros}, {noisy}");
        }
        // An eighth is enough.
        let value = [vec![0; 200], noise(1000)].concat();
        let block = build_as(*how, b"ka", b"kz", &[(b"kb", &value)]);
        let stored = Stored::check(&block, 1, 0).unwrap();
        assert_eq!(stored.is_compressed(), *how != Compression::None, "{how}");
    }
}

#[test]
fn damage_of_a_compressed_block_is_refused() {
    for how in Compression::ALL {
        let bytes = build_as(*how, b"ka", b"kz", &[(b"kb", &[1; 400]), (b"kd", b"2")]);
        for i in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[i] ^= 1;
            assert!(decode(bad, 1, 0).unwrap_err().is_corruption(), "{how}: byte {i}");
            assert!(decode(bytes[..i].to_vec(), 1, 0).is_err(), "{how}: cut {i}");
        }
    }
}

/// A header that lies under a right checksum: refused before memory is asked for.
#[test]
fn raw_lengths_are_believed_in_proportion() {
    for how in Compression::ALL.iter().filter(|how| **how != Compression::None) {
        let bytes = build_as(*how, b"ka", b"kz", &[(b"kb", &[1; 4000])]);
        let raw_bytes = Reader::at(&bytes, 12).u32().unwrap();
        // Before the content stand the separators: three lengths, `k`, `a`, `z`.
        let content_bytes = (bytes.len() - BLOCK_HEADER_BYTES - 6) as u32;
        for (lie, why) in [
            (u32::MAX, "expected at most"),
            (255 * content_bytes + 6 + 1, "expected at most"),
            (255 * content_bytes + 6, "once decompressed"),
            (0, "expected at most"),
            (5, "expected at most"),
            (raw_bytes - 1, ""),
            (raw_bytes + 1, ""),
        ] {
            let mut bad = bytes.clone();
            bad[12..16].copy_from_slice(&lie.to_le_bytes());
            seal(1, 640, &mut bad);
            let error = decode(bad, 1, 640).unwrap_err();
            assert!(error.is_corruption() && error.to_string().contains(why), "{lie}: {error}");
            assert_eq!(error.offset_bytes(), Some(640), "{how}, {lie}: {error:?}");
        }
    }
}

#[test]
fn unknown_compressions_and_layouts_are_unsupported() {
    for (at, value) in [(20, 3), (20, 0xff), (21, 2)] {
        let mut bytes = build(b"ka", b"kz", &[(b"kb", b"1")]);
        bytes[at] = value;
        seal(1, 64, &mut bytes);
        let error = decode(bytes, 1, 64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(error.offset_bytes(), Some(64), "{error}");
        assert!(error.to_string().contains("newer version"), "{error}");
    }
}
