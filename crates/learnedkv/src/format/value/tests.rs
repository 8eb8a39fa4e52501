//! Pointers, headers and chunks, raw and compressed.

use super::*;
use crate::format::checksum::mix;
use crate::format::compression::{Codecs, Compression};
use crate::format::example::assert_shown;

fn stored(tag: u64, offset: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
    let (out, pointer) = written(tag, offset, key, value, Compression::None);
    assert_eq!(out.len() as u64, stored_bytes(value.len() as u64));
    assert_eq!(pointer, at(offset, value.len()));
    out
}

fn at(offset: u64, length: usize) -> ValuePointer {
    ValuePointer::raw(0, offset, length as u64)
}

fn written(
    tag: u64,
    offset: u64,
    key: &[u8],
    value: &[u8],
    how: Compression,
) -> (Vec<u8>, ValuePointer) {
    let (mut out, mut codec) = (Vec::new(), how.codec());
    let pointer = put_value(&mut out, tag, (0, offset), key, value, codec.as_deref_mut());
    assert_eq!(pointer.stored_bytes(), out.len() as u64);
    assert_eq!(pointer.end(), offset + out.len() as u64);
    (out, pointer)
}

/// What compresses.
fn kinds() -> impl Iterator<Item = Compression> {
    Compression::ALL.iter().copied().filter(|how| *how != Compression::None)
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).flat_map(|i| mix(i).to_le_bytes());
    words.take(length).collect()
}

fn unpacked(stored: &[u8], tag: u64, pointer: ValuePointer, key: &[u8]) -> Result<Vec<u8>> {
    let layout = check_packed(stored, tag, pointer, key)?;
    let mut raw = vec![0xee; pointer.length as usize];
    layout.unpack(stored, &Codecs::default(), &mut raw)?;
    Ok(raw)
}

#[test]
fn the_examples_are_what_is_written() {
    let mut segment = encode_header(1);
    let mut codec = Compression::Lz4.codec();
    let pointer = put_value(&mut segment, 1, (3, 32), b"k", b"v", codec.as_deref_mut());
    let mut payload = Vec::new();
    pointer.encode(&mut payload);
    assert_shown(include_str!("../value.rs"), "The value `v` of key `k`", &segment);
    assert_eq!(payload, [0x03, 0x20, 0x01]);
    let start = segment.len();
    assert_eq!(pointer.end(), start as u64);
    let place = (3, start as u64);
    let pointer = put_value(&mut segment, 1, place, b"l", &[b'v'; 80], codec.as_deref_mut());
    assert_shown(include_str!("../value.rs"), "Behind it the value of key `l`", &segment[start..]);
    payload.clear();
    pointer.encode(&mut payload);
    assert_eq!(payload, [0x03, 0x29, 0x50, 0x01, 0x14]);
    assert_eq!(pointer.end(), segment.len() as u64);
}

/// What the page shows last: of a value of two chunks what stands behind the first one's bytes.
#[test]
fn the_example_of_a_table_is_what_is_written() {
    let value = vec![b'v'; CHUNK_BYTES + 1];
    let (mut stored, mut codec) = (Vec::new(), Compression::Lz4.codec());
    let pointer = put_value(&mut stored, 1, (3, 61), b"m", &value, codec.as_deref_mut());
    let table = pointer.table().unwrap().start as usize - 61;
    let last = table - CHUNK_HEADER_BYTES - 1;
    let page = include_str!("../value.rs");
    assert_shown(page, "takes 1039 bytes as lz4", &stored[last..]);
    assert_eq!(last, CHUNK_HEADER_BYTES + 1039);
    let mut payload = Vec::new();
    pointer.encode(&mut payload);
    assert_eq!(payload, [0x03, 0x3d, 0x81, 0x80, 0x10, 0x01, 0xb0, 0x08]);
    assert!(unpacked(&stored, 1, ValuePointer { segment: 0, ..pointer }, b"m").unwrap() == value);
}

#[test]
fn values_of_every_number_of_chunks_come_back() {
    let full = CHUNK_BYTES;
    for length in [0, 1, full - 1, full, full + 1, 2 * full, 3 * full + 7] {
        let value: Vec<u8> = (0..length).map(|i| (i * 31 % 251) as u8).collect();
        let mut bytes = stored(9, 100, b"key", &value);
        join_chunks(&mut bytes, 9, at(100, value.len()), b"key").unwrap();
        assert_eq!(bytes[CHUNK_HEADER_BYTES..], value);
    }
}

#[test]
fn another_keys_value_another_place_or_damage_is_refused() {
    let length = CHUNK_BYTES + 5;
    let good = stored(9, 100, b"key", &vec![7; length]);
    let refused = |mut bytes: Vec<u8>, tag, offset, key: &[u8]| {
        join_chunks(&mut bytes, tag, at(offset, length), key).unwrap_err().is_corruption()
    };
    assert!(refused(good.clone(), 8, 100, b"key"));
    assert!(refused(good.clone(), 9, 108, b"key"));
    assert!(refused(good.clone(), 9, 100, b"kez"));
    for i in [0, 7, 8, 1000, CHUNK_BYTES + 7, CHUNK_BYTES + 8, good.len() - 1] {
        let mut bad = good.clone();
        bad[i] ^= 1;
        assert!(refused(bad, 9, 100, b"key"), "byte {i}");
    }
    // A pointer to the first chunk alone.
    let mut part = good[..CHUNK_HEADER_BYTES + CHUNK_BYTES].to_vec();
    let error = join_chunks(&mut part, 9, at(100, CHUNK_BYTES), b"key").unwrap_err();
    assert!(error.is_corruption());
    for cut in [0, 4, 8, 100, CHUNK_BYTES + 7, good.len() - 1] {
        assert!(refused(good[..cut].to_vec(), 9, 100, b"key"), "cut at {cut}");
    }
}

#[test]
fn headers_are_checked() {
    let good = encode_header(77);
    check_header(&good, 77).unwrap();
    assert!(check_header(&good, 78).unwrap_err().is_corruption());
    for i in 0..good.len() {
        let mut bad = good.clone();
        bad[i] ^= 1;
        assert!(check_header(&bad, 77).is_err(), "byte {i}");
        assert!(check_header(&good[..i], 77).is_err(), "cut at {i}");
    }
    let mut newer = good.clone();
    newer[8] = 3;
    let sum = checksum(77, 0, &newer[..24]);
    newer[24..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(check_header(&newer, 77).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn compressed_values_of_every_number_of_chunks_come_back() {
    let full = CHUNK_BYTES;
    for how in kinds() {
        for length in [90, full - 1, full, full + 1, 2 * full, 3 * full + 7] {
            // The second chunk, if there is one, does not compress.
            let mut value: Vec<u8> = (0..length).map(|i| (i / 50 % 7) as u8).collect();
            let second = length.min(full)..length.min(2 * full);
            value.splice(second.clone(), noise(second.len()));
            let (bytes, pointer) = written(9, 100, b"key", &value, how);
            assert!(bytes.len() < value.len() * 9 / 10 || length > full, "{how} {length}");
            let mut payload = Vec::new();
            pointer.encode(&mut payload);
            assert_eq!(ValuePointer::decode(&payload).unwrap(), pointer);
            assert!(unpacked(&bytes, 9, pointer, b"key").unwrap() == value, "{how} {length}");
            // Chunk by chunk, the last one first.
            let table = pointer.table().map(|at| &bytes[at.start as usize - 100..]);
            let layout = Layout::of(pointer, table.unwrap_or_default(), 9, b"key").unwrap();
            for (index, chunk) in (0..).zip(value.chunks(full)).collect::<Vec<_>>().iter().rev() {
                let place = layout.chunk(*index).unwrap();
                let piece = &bytes[place.start as usize - 100..place.end as usize - 100];
                check_chunk(piece, 9, &layout, b"key", *index).unwrap();
                assert_eq!(layout.is_packed(*index, piece), *index != 1 && chunk.len() > 50);
                let mut raw = vec![0; layout.raw_length(*index) as usize];
                layout.unpack_chunk(piece, *index, &Codecs::default(), &mut raw).unwrap();
                assert!(raw == *chunk, "{how} {length}: {index}");
            }
        }
    }
}

#[test]
fn what_does_not_become_shorter_stands_as_it_is() {
    let stretch = |zeros: usize, length: usize| [noise(length - zeros), vec![0; zeros]].concat();
    // Less than an eighth; less than 32 bytes; a last chunk that saves less than a table takes.
    let values = [stretch(100, 1000), stretch(39, 39), stretch(55, CHUNK_BYTES + 55), Vec::new()];
    for how in kinds() {
        for value in &values {
            let (bytes, pointer) = written(9, 100, b"key", value, how);
            assert_eq!(pointer, at(100, value.len()), "{how}");
            assert!(bytes == stored(9, 100, b"key", value), "{how}");
        }
        for value in [stretch(200, 1000), stretch(80, 80), stretch(100, CHUNK_BYTES + 100)] {
            let (bytes, pointer) = written(9, 100, b"key", &value, how);
            assert!(pointer.packed.is_some() && bytes.len() + 32 < value.len() + 16, "{how}");
        }
    }
}

#[test]
fn damage_of_any_byte_of_a_compressed_value_is_refused_and_so_is_another_place() {
    for (how, length) in kinds().flat_map(|how| [(how, 500), (how, CHUNK_BYTES + 90)]) {
        let (good, pointer) = written(9, 100, b"key", &vec![7; length], how);
        assert!(good.len() < 3000, "{} bytes", good.len());
        let refused = |bytes: &[u8], tag, pointer, key: &[u8]| {
            check_packed(bytes, tag, pointer, key).unwrap_err().is_corruption()
        };
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 1;
            assert!(refused(&bad, 9, pointer, b"key"), "{how}: byte {i}");
            assert!(refused(&good[..i], 9, pointer, b"key"), "{how}: cut at {i}");
        }
        assert!(refused(&good, 8, pointer, b"key"));
        assert!(refused(&good, 9, pointer, b"kez"));
        assert!(refused(&good, 9, ValuePointer { offset: 101, ..pointer }, b"key"));
        for length in [pointer.length - 1, pointer.length + 1] {
            assert!(
                refused(&good, 9, ValuePointer { length, ..pointer }, b"key"),
                "{how} {length}"
            );
        }
        let Packed { mark, stored_bytes } = pointer.packed.unwrap();
        let lies = [(mark + 1, stored_bytes), (mark, stored_bytes - 1), (mark, stored_bytes + 1)];
        for (mark, stored_bytes) in lies {
            let packed = Some(Packed { mark, stored_bytes });
            assert!(
                refused(&good, 9, ValuePointer { packed, ..pointer }, b"key"),
                "{how} {packed:?}"
            );
        }
        // As if it stood as it is: a value of what is stored.
        let short = good.len() - CHUNK_HEADER_BYTES;
        let error = join_chunks(&mut good.clone(), 9, at(100, short), b"key").unwrap_err();
        assert!(error.is_corruption());
    }
}

/// A writer's bug, or an enemy's work: all checksums are right.
#[test]
fn tables_and_chunks_that_lie_are_refused() {
    let (good, pointer) = written(9, 100, b"key", &vec![7; CHUNK_BYTES + 90], Compression::Lz4);
    let lengths = good.len() - 8;
    let number = |bytes: &[u8], at: usize| Reader::at(bytes, at).u32().unwrap();
    let [first, second] = [lengths, lengths + 4].map(|at| number(&good, at));
    for (first, second) in [
        (0, first + second),
        (first + second, 0),
        (first, second + 1),
        (first, u32::MAX),
        (u32::MAX, second),
        (first - 1, second + 1),
    ] {
        let mut bad = good.clone();
        bad.truncate(lengths);
        put_u32(&mut bad, first);
        put_u32(&mut bad, second);
        mend(&mut bad, 9, pointer, b"key");
        let error = unpacked(&bad, 9, pointer, b"key").unwrap_err();
        assert!(error.is_corruption() && error.offset_bytes().is_some(), "{error:?}");
    }
    // Something between the last chunk and the table.
    let (chunks, table) = good.split_at(lengths - CHUNK_HEADER_BYTES);
    let mut bad = [chunks, &[0], table].concat();
    let packed = pointer.packed.map(|p| Packed { stored_bytes: p.stored_bytes + 1, ..p });
    let pointer = ValuePointer { packed, ..pointer };
    mend(&mut bad, 9, pointer, b"key");
    assert!(unpacked(&bad, 9, pointer, b"key").unwrap_err().is_corruption());
    // Fewer bytes than there were, once decompressed; and what nobody here decompresses.
    let (mut good, pointer) = written(9, 100, b"key", &[7; 500], Compression::Lz4);
    let longer = ValuePointer { length: 501, ..pointer };
    mend(&mut good, 9, longer, b"key");
    let error = unpacked(&good, 9, longer, b"key").unwrap_err();
    assert!(error.to_string().contains("expected 501 bytes"), "{error}");
    let marks = if cfg!(feature = "zstd") { &[3, 200][..] } else { &[2, 3, 200] };
    for &mark in marks {
        let packed = pointer.packed.map(|packed| Packed { mark, ..packed });
        let pointer = ValuePointer { packed, ..pointer };
        mend(&mut good, 9, pointer, b"key");
        let error = unpacked(&good, 9, pointer, b"key").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let why = if mark == 2 { "feature `zstd`" } else { "a newer version" };
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn pointers_round_trip() {
    let raw = ValuePointer::raw(1 << 40, 1 << 33, 1 << 30);
    let packed = Some(Packed { mark: 1, stored_bytes: 1 << 25 });
    let mut raw_payload = Vec::new();
    raw.encode(&mut raw_payload);
    for pointer in [raw, ValuePointer { packed, ..raw }] {
        let mut payload = Vec::new();
        pointer.encode(&mut payload);
        assert_eq!(ValuePointer::decode(&payload).unwrap(), pointer);
        for cut in (0..payload.len()).filter(|cut| payload[..*cut] != raw_payload) {
            assert!(ValuePointer::decode(&payload[..cut]).unwrap_err().is_corruption());
        }
        let mut logged = Vec::new();
        pointer.encode_logged(7, &mut logged);
        assert_eq!(ValuePointer::decode_logged(&logged).unwrap(), (pointer, 7));
        payload.push(0);
        assert!(ValuePointer::decode(&payload).unwrap_err().is_corruption());
    }
}

#[test]
fn pointers_that_no_codec_makes_are_refused() {
    let refused = |length: u64, mark: u8, stored_bytes: u64| {
        let packed = Some(Packed { mark, stored_bytes });
        let mut payload = Vec::new();
        ValuePointer { packed, ..ValuePointer::raw(1, 32, length) }.encode(&mut payload);
        ValuePointer::decode(&payload).is_err_and(|e| e.is_corruption())
    };
    // 8 bytes of checksum, and what 255 times as much can come of.
    assert!(!refused(1000, 1, 12) && !refused(1000, 1, 1007));
    assert!(refused(1000, 1, 11) && refused(1000, 1, 1008) && refused(1000, 0, 500));
    assert!(refused(0, 1, 8) && refused(0, 1, 9) && refused(1, 1, 8) && refused(1, 1, 9));
    assert!(refused(u64::MAX, 1, 1 << 40) && refused(1 << 40, 1, u64::MAX));
    // Two chunks, and a table of 16 bytes.
    let length = 256 * 1024 + 1;
    assert!(!refused(length, 1, 32 + 1029) && refused(length, 1, 32 + 1028));
    assert!(!refused(length, 1, 32 + length - 1) && refused(length, 1, 32 + length));
}

/// A record such as programs keep: names that repeat, words, numbers, identifiers that do not compress.
fn json(number: u64, length: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "pending", "shipped", "blue", "large", "returned", "cotton", "Berlin", "Lisbon", "express",
        "gift", "standard", "invoice", "steel", "Oslo", "refund", "small",
    ];
    let mut state = number;
    let mut next = || {
        state = mix(state);
        state
    };
    let word = |of: u64| WORDS[(of % 16) as usize];
    let mut text = format!(
        r#"{{"id":"{:016x}","customer":{{"id":{},"city":"{}","email":"{}{}@example.com"}},"items":["#,
        next(),
        next() % 1_000_000,
        word(next()),
        word(next()),
        next() % 10_000,
    );
    while text.len() < length {
        let (sku, price) = (next() % 100_000_000, next() % 100_000);
        text += &format!(
            r#"{{"sku":"{sku:08}","name":"{} {} {}","quantity":{},"price":{}.{:02},"status":"{}"}},"#,
            word(next()),
            word(next()),
            word(next()),
            1 + next() % 9,
            price / 100,
            price % 100,
            word(next()),
        );
    }
    text.truncate(length);
    text.into_bytes()
}

/// The table of decision 32: run with `--nocapture`.
#[test]
fn json_compresses_the_better_the_longer_a_value_is() {
    const LENGTHS: [usize; 8] = [64, 256, 512, 1024, 4096, 16 << 10, 64 << 10, 256 << 10];
    println!(
        "percent of {LENGTHS:?} bytes that are stored, and of blocks of 4 and 16 KiB of 1 KiB values"
    );
    for how in kinds() {
        let (mut codec, codecs) = (how.codec().unwrap(), Codecs::default());
        let share = |length: usize, pack: &mut dyn FnMut(u64) -> u64| {
            let count = ((1 << 20) / length as u64).max(2);
            (0..count).map(pack).sum::<u64>() * 1000 / (count * length as u64)
        };
        let singly = LENGTHS.map(|length| {
            share(length, &mut |number| {
                let value = json(number, length);
                let mut bytes = Vec::new();
                let pointer = put_value(&mut bytes, 9, (0, 100), b"key", &value, Some(&mut *codec));
                if pointer.packed.is_some() {
                    let layout = check_packed(&bytes, 9, pointer, b"key").unwrap();
                    let mut raw = vec![0; length];
                    layout.unpack(&bytes, &codecs, &mut raw).unwrap();
                    assert!(raw == value);
                }
                pointer.stored_bytes()
            })
        });
        let blocks = [4096, 16 << 10].map(|length| {
            share(length, &mut |number| {
                let values = (0..length as u64 / 1024).flat_map(|n| json(number * 100 + n, 1024));
                let mut out = Vec::new();
                assert!(codec.compress(&values.collect::<Vec<_>>(), length, &mut out));
                out.len() as u64
            })
        });
        println!(
            "{how}: {:?}, {:?}",
            singly.map(|s| s as f64 / 10.0),
            blocks.map(|s| s as f64 / 10.0)
        );
        assert!(singly[..7].is_sorted_by(|shorter, longer| shorter > longer), "{singly:?}");
        assert!(singly[0] > 1000 && singly[2] < 875 && singly[5] < 500, "{singly:?}");
        assert!(blocks[0] < singly[3] && blocks[1] < blocks[0], "{singly:?} {blocks:?}");
    }
}
