//! The battery every kind of index passes, on every key set, against plain lists.

use super::*;
use crate::sstable::partition::entry_size;

const SEQUENCE: u64 = 1 << 20;

/// A table's blocks as the index cut them: the naive oracle.
struct Cutting {
    /// One past each block's last key.
    ends: Vec<usize>,
    lowers: Vec<Vec<u8>>,
    index: Box<dyn Index>,
    section: Vec<u8>,
}

/// Feeds keys to a builder as the table writer does, so many at a time as it wants.
fn build(kind: IndexKind, keys: &[Vec<u8>], value_length: usize, limits: Limits) -> Cutting {
    let sizes: Vec<u32> = keys.iter().map(|k| entry_size(k, value_length, SEQUENCE)).collect();
    let mut builder = kind.builder(limits, &keys[0]);
    let (mut ends, mut lowers) = (Vec::new(), vec![keys[0].clone()]);
    let (mut start, mut offered, mut offset) = (0, 0, 0u64);
    while start < keys.len() {
        let mut bytes = 0;
        while offered < keys.len() && bytes < builder.wanted_bytes() {
            bytes += sizes[offered] as usize;
            offered += 1;
        }
        let all = offered == keys.len();
        let slices: Vec<&[u8]> = keys[start..offered].iter().map(Vec::as_slice).collect();
        let cuts = builder.cut(&slices, &sizes[start..offered], all);
        assert!(!cuts.is_empty(), "{kind}: no cut of {bytes} bytes");
        let base = start;
        for cut in &cuts {
            let end = base + cut.end;
            let block: usize = sizes[start..end].iter().map(|s| *s as usize).sum();
            assert!(block <= limits.block_bytes || end - start == 1, "{kind}: a block of {block}");
            if end < keys.len() {
                let (before, separator, after) =
                    (&keys[end - 1], cut.separator.to_vec(), &keys[end]);
                assert!(
                    *before < separator && separator <= *after,
                    "{kind}: {before:?} {separator:?} {after:?}"
                );
                lowers.push(separator);
            }
            offset += (block as u64).next_multiple_of(64);
            builder.push_end(offset);
            ends.push(end);
            start = end;
        }
    }
    let section = builder.finish().unwrap();
    let name = format!("{SECTION_PREFIX}{}", kind.name());
    let index = decode(&name, section.clone()).unwrap();
    assert_eq!(index.block_count(), ends.len() as u64, "{kind}");
    assert_eq!(index.extent(ends.len() as u64 - 1).1, offset, "{kind}");
    let extents = (0..index.block_count()).map(|block| index.extent(block));
    assert!(index.extents().eq(extents), "{kind}");
    assert!(is_known(&name), "{kind}");
    let usual = usual_bytes(&name, section.len() as u64, index.block_count());
    let size_bytes = index.size_bytes() as u64;
    assert!(size_bytes <= usual, "{kind}: {size_bytes} of {usual}, {} blocks", ends.len());
    Cutting { ends, lowers, index, section }
}

fn check(kind: IndexKind, keys: &[Vec<u8>], value_length: usize, limits: Limits) {
    let cutting = build(kind, keys, value_length, limits);
    let block_of = |position: usize| cutting.ends.partition_point(|end| *end <= position) as u64;
    for (position, key) in keys.iter().enumerate() {
        let (first, last) = cutting.index.locate(key);
        let block = block_of(position);
        assert!(
            (first..=last).contains(&block),
            "{kind}: {key:?} in {block}, named {first}..={last}"
        );
        check_width(kind, &cutting, (first, last));
        for absent in [[key.as_slice(), &[0]].concat(), key[..key.len().saturating_sub(1)].to_vec()]
        {
            check_absent(kind, &cutting, keys, &absent);
        }
    }
    for absent in [vec![], vec![0; 3], vec![0xff; 12]] {
        check_absent(kind, &cutting, keys, &absent);
    }
    // What stands at the ends of blocks is what was pushed, and they tile the table.
    for block in 1..cutting.index.block_count() {
        assert_eq!(cutting.index.extent(block - 1).1, cutting.index.extent(block).0, "{kind}");
    }
}

/// What is named together may be read at once.
fn check_width(kind: IndexKind, cutting: &Cutting, (first, last): (u64, u64)) {
    let bytes = cutting.index.extent(last).1 - cutting.index.extent(first).0;
    assert!(first == last || bytes <= MAX_READ_BYTES, "{kind}: {bytes} bytes, {first}..={last}");
}

fn check_absent(kind: IndexKind, cutting: &Cutting, keys: &[Vec<u8>], key: &[u8]) {
    let position = keys.partition_point(|k| k.as_slice() < key);
    if keys.get(position).is_some_and(|k| k == key) {
        return;
    }
    let (first, last) = cutting.index.locate(key);
    check_width(kind, cutting, (first, last));
    let holds = (cutting.lowers.partition_point(|l| l.as_slice() <= key) as u64).saturating_sub(1);
    // The block whose separators hold the key is named, or is a neighbour of those named.
    let near = first.saturating_sub(1)..=last + 1;
    assert!(
        near.contains(&holds),
        "{kind}: {key:?} between separators of {holds}, named {first}..={last}"
    );
    if kind == IndexKind::Exact || kind == IndexKind::Fence {
        assert_eq!((first, last), (holds, holds), "{kind}: {key:?}");
    }
}

fn numbers(numbers: impl IntoIterator<Item = u64>) -> Vec<Vec<u8>> {
    let set: std::collections::BTreeSet<u64> = numbers.into_iter().collect();
    set.into_iter().map(|n| n.to_be_bytes().to_vec()).collect()
}

fn key_sets() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mix = crate::format::checksum::mix;
    let strings: std::collections::BTreeSet<Vec<u8>> = (0..3000u64)
        .map(|i| {
            format!("usr/share/doc/package-{}/file-{}", mix(i) % 40, mix(i) % 9999).into_bytes()
        })
        .collect();
    let nested: Vec<Vec<u8>> = (0..300).map(|n| vec![b'a'; n]).collect();
    vec![
        ("one", numbers([7])),
        ("two", numbers([0, u64::MAX])),
        ("sequential", numbers(0..3000)),
        ("uniform", numbers((0..3000).map(mix))),
        ("clustered", numbers((0..3000u64).map(|i| (mix(i / 100) & !0xffff) + mix(i) % 500))),
        ("exponential", numbers((0..64).map(|shift| 1u64 << shift))),
        ("paths", strings.into_iter().collect()),
        ("prefixes of one another", nested),
        (
            "with zero bytes",
            (0..200).flat_map(|i: u8| [vec![i], vec![i, 0], vec![i, 0, 0]]).collect(),
        ),
    ]
}

#[test]
fn every_kind_keeps_the_contract_on_every_key_set() {
    for kind in IndexKind::ALL.iter().copied().chain([
        IndexKind::GreedyPlr { epsilon: 0 },
        IndexKind::GreedyPlr { epsilon: 64 },
        IndexKind::GreedyPlr { epsilon: 60_000 },
        IndexKind::GreedyPlrPlus { epsilon: 2 },
        IndexKind::GreedyPlrPlus { epsilon: 60_000 },
    ]) {
        for (name, keys) in key_sets() {
            println!("{kind} on {name}");
            let shapes = [(100, 4096), (1016, 4096), (10, 512), (300, 256), (900, 40_000)];
            for (value_length, block_bytes) in shapes {
                check(kind, &keys, value_length, Limits { block_bytes });
            }
        }
    }
}

/// Each model where it may serve: what it may name is known before it is made.
#[test]
fn separators_stand_in_for_models_only_where_these_might_name_too_much() {
    let keys = numbers((0..3000).map(crate::format::checksum::mix));
    let separated = |kind, value_length| {
        let Cutting { index, .. } = build(kind, &keys, value_length, Limits { block_bytes: 4096 });
        (index.makeup().separated_blocks, index.block_count())
    };
    let plr = |epsilon| IndexKind::GreedyPlr { epsilon };
    let plus = |epsilon| IndexKind::GreedyPlrPlus { epsilon };
    // Three entries a block: 2 epsilon + 1 of them, and a block at each end, are 15 blocks at most.
    for (kind, value_length) in
        [(plr(4), 1016), (plr(19), 1016), (plus(0), 20_000), (plus(7), 1016)]
    {
        assert_eq!(separated(kind, value_length).0, 0, "{kind}, {value_length}");
    }
    for (kind, value_length) in
        [(plr(4), 20_000), (plr(35), 1016), (plus(12), 1016), (plus(2), 20_000)]
    {
        let (separated, blocks) = separated(kind, value_length);
        assert_eq!(separated, blocks, "{kind}, {value_length}");
    }
    assert_eq!(separated(IndexKind::Exact, 1016).0, 0);
}

#[test]
fn damaged_sections_are_refused_or_answer_without_a_panic() {
    // Some hundred keys of each sort: more than one chunk of blocks, and each place is decoded anew.
    let paths: Vec<_> = key_sets().swap_remove(6).1.into_iter().step_by(8).collect();
    let uniform = numbers((0..400).map(crate::format::checksum::mix));
    for kind in IndexKind::ALL.iter().copied() {
        for keys in [&uniform, &paths] {
            let cutting = build(kind, keys, 100, Limits { block_bytes: 512 });
            assert!(cutting.ends.len() > 80, "{kind}: {} blocks", cutting.ends.len());
            let name = format!("{SECTION_PREFIX}{}", kind.name());
            for at in (0..cutting.section.len()).filter(|at| at % 5 == 0 || *at < 64) {
                let cut = decode(&name, cutting.section[..at].to_vec());
                assert!(cut.is_err(), "{kind}: cut at {at}");
                for flip in [1, 0x80, 0xff] {
                    let mut bad = cutting.section.clone();
                    bad[at] ^= flip;
                    let Ok(index) = decode(&name, bad) else { continue };
                    for key in keys.iter().step_by(97) {
                        let (first, last) = index.locate(key);
                        assert!(first <= last, "{kind}: {first}..={last}");
                        index.extent(first);
                    }
                }
            }
        }
    }
}

#[test]
fn names_and_epsilons_round_trip() {
    for kind in IndexKind::ALL {
        assert_eq!(IndexKind::from_text(&kind.to_string()).unwrap(), *kind);
    }
    let plr = IndexKind::from_text("greedy-plr:32").unwrap();
    assert_eq!(plr, IndexKind::GreedyPlr { epsilon: 32 });
    for bad in ["", "btree", "exact:4", "greedy-plr:x", "greedy-plr:70000"] {
        let error = IndexKind::from_text(bad).unwrap_err();
        assert!(error.to_string().contains("exact, fence, greedy-plr:4"), "{error}");
    }
    assert_eq!(decode("index:unknown", vec![]).unwrap_err().kind(), ErrorKind::Unsupported);
}
