//! Conformance against a naive oracle: a plain list of separators, searched from the front.

use super::*;

/// A table as a writer would build it, and what it knows about its blocks.
struct Table {
    bytes: Vec<u8>,
    directory: Directory,
    /// One past each block's last entry.
    ends: Vec<usize>,
    /// Below each block.
    separators: Vec<Vec<u8>>,
    end_units: Vec<u64>,
}

/// Buffers entries as the builder wants them, cuts, and checks every promise about cuts on the way.
fn build(keys: &[&[u8]], sizes: &[u32], limits: Limits) -> Table {
    let mut builder = DirectoryBuilder::new(limits, keys[0]);
    let (mut ends, mut separators) = (Vec::new(), vec![keys[0].to_vec()]);
    let (mut end_units, mut buffered) = (Vec::new(), 0);
    let mut start = 0;
    while start < keys.len() {
        let wanted = builder.wanted_bytes();
        let sum = |end: usize| sizes[start..end].iter().map(|&s| u64::from(s)).sum::<u64>();
        buffered = buffered.max(start);
        while buffered < keys.len() && sum(buffered) < wanted {
            buffered += 1;
        }
        let whole = buffered == keys.len();
        let cuts = builder.cut(&keys[start..buffered], &sizes[start..buffered], whole);
        assert!(!cuts.is_empty() || buffered - start == 1, "no progress");
        assert!(cuts.len() <= limits.blocks_per_chunk);
        if cuts.is_empty() {
            buffered += 1;
            continue;
        }
        let mut from = start;
        for cut in &cuts {
            let end = start + cut.end;
            assert!(from < end && end <= buffered);
            let bytes: u64 = sizes[from..end].iter().map(|&s| u64::from(s)).sum();
            assert!(bytes <= limits.max_block_bytes || end == from + 1, "{bytes} bytes in a block");
            if end < keys.len() {
                assert!(end < buffered, "nothing left over to separate from");
                let s = &*cut.separator;
                assert!(keys[end - 1] < s && s <= keys[end], "{:?} {s:?}", &keys[end - 1..=end]);
                separators.push(s.to_vec());
            } else {
                assert!(cut.separator.is_empty());
            }
            let units = end_units.last().copied().unwrap_or(0) + bytes.div_ceil(64);
            builder.push_end(units);
            end_units.push(units);
            ends.push(end);
            from = end;
        }
        start = from;
    }
    let bytes = builder.finish();
    let directory = Directory::decode(bytes.clone()).unwrap();
    Table { bytes, directory, ends, separators, end_units }
}

impl Table {
    fn check_key(&self, key: &[u8]) {
        let below = self.separators.iter().take_while(|s| s.as_slice() <= key).count();
        let expected = below.saturating_sub(1) as u64;
        assert_eq!(self.directory.locate(key), expected, "{key:02x?}");
    }

    fn check(&self, keys: &[&[u8]], every: usize) {
        let directory = &self.directory;
        assert_eq!(directory.block_count(), self.ends.len() as u64);
        assert!(directory.ends().eq(self.end_units.iter().copied()));
        let mut begin = (0, 0);
        for (block, &end) in self.ends.iter().enumerate() {
            assert_eq!(directory.separator(block as u64), self.separators[block], "block {block}");
            assert_eq!(directory.extent(block as u64), (begin.1, self.end_units[block]));
            for i in (begin.0..end).step_by(every).chain([end - 1]) {
                assert_eq!(directory.locate(keys[i]), block as u64, "{:02x?}", keys[i]);
            }
            begin = (end, self.end_units[block]);
        }
        let blocks = self.ends.len() as u64;
        for past in [blocks, blocks + 1, u64::MAX] {
            assert_eq!((directory.separator(past), directory.extent(past)), (Vec::new(), (0, 0)));
        }
        assert_eq!(directory.statistics().blocks, blocks);
        assert_eq!(directory.statistics().total_bits(), 8 * self.bytes.len() as u64);
    }

    /// Absent keys around each of some keys, against the list of separators.
    fn check_absent(&self, keys: &[&[u8]], every: usize) {
        for around in keys.iter().step_by(every).copied().chain([b"".as_slice(), &[0xff; 40]]) {
            for key in neighbours(around) {
                self.check_key(&key);
            }
        }
        let separators = self.separators.iter().step_by(every);
        for key in separators.flat_map(|s| neighbours(s)) {
            self.check_key(&key);
        }
    }
}

/// The key, its immediate neighbours in byte order, and keys that share parts of it.
fn neighbours(key: &[u8]) -> Vec<Vec<u8>> {
    let mut found = vec![key.to_vec(), [key, &[0]].concat(), [key, &[0xff; 9]].concat()];
    if let Some((&last, most)) = key.split_last() {
        found.push(most.to_vec());
        found.push([most, &[last.wrapping_sub(1)], &[0xff; 20]].concat());
        found.push([most, &[last.wrapping_add(1)]].concat());
        found.push(key[..key.len() / 2].to_vec());
        found.push([&key[..key.len() / 2], &[0x7f]].concat());
    }
    found
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn sorted(mut keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn integers(values: impl IntoIterator<Item = u64>) -> Vec<Vec<u8>> {
    sorted(values.into_iter().map(|v| v.to_be_bytes().to_vec()).collect())
}

/// Named key sets, from the plain to the malicious.
fn key_sets() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut r = Random(1);
    let text = |r: &mut Random, letters: &[u8], most: u64| -> Vec<u8> {
        let length = r.below(most + 1);
        (0..length).map(|_| letters[r.below(letters.len() as u64) as usize]).collect()
    };
    let mut sets = vec![
        ("one empty key", vec![vec![]]),
        ("one key", vec![b"k".to_vec()]),
        ("two extremes", integers([0, u64::MAX])),
        ("sequential", integers(0..5000)),
        ("sequential, high", integers((0..5000).map(|i| u64::MAX - i))),
        ("powers", integers((0..64).flat_map(|b| [1 << b, (1 << b) + 1, (1u64 << b) - 1]))),
        ("cubes", integers((0..6000).map(|i: u64| i * i * i))),
        ("uniform", integers((0..6000).map(|_| r.next()))),
    ];
    let mut value = 0u64;
    let heavy = (0..6000).map(|_| {
        value = value.saturating_add(1 + (r.next() >> (12 + r.below(52))));
        value
    });
    sets.push(("heavy-tailed gaps", integers(heavy.collect::<Vec<_>>())));
    let clustered = (0..6000).map(|_| (r.below(7) << 60 | r.below(3) << 33) + r.below(4000));
    sets.push(("clustered", integers(clustered.collect::<Vec<_>>())));
    let zeros = (0..300).map(|i| [&b"a"[..], &vec![0; i]].concat());
    sets.push(("trailing zeros", sorted(zeros.collect())));
    let nested = (0..400).map(|i| vec![b'x'; i]);
    sets.push(("each a prefix of the next", sorted(nested.collect())));
    let prefix = |i: u64| [&[b'p'; 30][..], &(i * 977).to_be_bytes(), b"tail"].concat();
    sets.push(("long shared prefix", sorted((0..4000).map(prefix).collect())));
    let same = |i: u32| [&b"same8byt"[..], &i.to_be_bytes()].concat();
    sets.push(("equal embeddings at the front", {
        let all = (0..1000).map(same).chain([b"different".to_vec(), b"zz".to_vec()]);
        sorted(all.collect())
    }));
    for (name, letters, most) in [
        ("random bytes", (0..=255).collect::<Vec<u8>>(), 12),
        ("zeros and ones", vec![0, 1], 14),
        ("extremes", vec![0, 0xff], 30),
        ("letters", b"abcdefgh/".to_vec(), 40),
        ("few letters, long", b"ab".to_vec(), 90),
    ] {
        sets.push((name, sorted((0..4000).map(|_| text(&mut r, &letters, most)).collect())));
    }
    sets
}

fn as_slices(keys: &[Vec<u8>]) -> Vec<&[u8]> {
    keys.iter().map(Vec::as_slice).collect()
}

const LIMITS: Limits = Limits { max_block_bytes: 4096, blocks_per_chunk: 64 };

#[test]
fn every_key_lies_in_the_block_named() {
    let mut r = Random(2);
    for (name, keys) in key_sets() {
        let keys = as_slices(&keys);
        for (size, blocks_per_chunk) in [(30, 64), (130, 64), (130, 7), (1030, 64), (5000, 3)] {
            println!("{name}, entries of {size} bytes, {blocks_per_chunk} blocks a chunk");
            let sizes: Vec<u32> = vec![size; keys.len()];
            let table = build(&keys, &sizes, Limits { blocks_per_chunk, ..LIMITS });
            table.check(&keys, 3);
            table.check_absent(&keys, 97);
        }
        let sizes: Vec<u32> = keys.iter().map(|_| 1 + r.below(600) as u32).collect();
        build(&keys, &sizes, LIMITS).check(&keys, 1);
        let giants: Vec<u32> = keys.iter().map(|_| 1 << r.below(15)).collect();
        build(&keys, &giants, Limits { max_block_bytes: 1000, ..LIMITS }).check(&keys, 1);
    }
}

/// Many small tables of every texture: all keys, their neighbours and those of all separators.
#[test]
fn small_random_tables() {
    for seed in 0..if cfg!(debug_assertions) { 600 } else { 6000 } {
        let mut r = Random(seed);
        let letters: Vec<u8> = (0..1 + r.below(5)).map(|_| r.next() as u8).collect();
        let letters = if r.below(3) == 0 { vec![0, 1, 0xff] } else { letters };
        let (start, most) = (vec![b'p'; r.below(12) as usize], 1 + r.below(20));
        let text = |r: &mut Random| {
            let tail = (0..r.below(most)).map(|_| letters[r.below(letters.len() as u64) as usize]);
            start.iter().copied().chain(tail.collect::<Vec<_>>()).collect::<Vec<u8>>()
        };
        let wide = r.below(2) == 0;
        let key = |r: &mut Random| match wide {
            true => (r.next() >> r.below(64)).to_be_bytes().to_vec(),
            false => text(r),
        };
        let keys = sorted((0..1 + r.below(250)).map(|_| key(&mut r)).collect());
        let keys = as_slices(&keys);
        let size = 1 + r.below(300);
        let sizes: Vec<u32> = keys.iter().map(|_| 1 + r.below(size) as u32).collect();
        let limits = Limits {
            max_block_bytes: 1 + r.below(1200),
            blocks_per_chunk: 1 + r.below(MOST_BLOCKS as u64) as usize,
        };
        let table = build(&keys, &sizes, limits);
        table.check(&keys, 1);
        table.check_absent(&keys, 7);
    }
}

#[test]
fn a_writer_that_buffers_little_gets_blocks_all_the_same() {
    let keys = integers((0..500).map(|i| i * 7919));
    let keys = as_slices(&keys);
    let mut builder = DirectoryBuilder::new(LIMITS, keys[0]);
    assert!(builder.cut(&keys[..1], &[100], false).is_empty());
    let (mut start, mut blocks) = (0, 0);
    while start < keys.len() {
        let end = (start + 5).min(keys.len());
        for cut in builder.cut(&keys[start..end], &vec![100; end - start], end == keys.len()) {
            start += cut.end;
            blocks += 1;
            builder.push_end(blocks);
        }
    }
    let directory = Directory::decode(builder.finish()).unwrap();
    assert_eq!(directory.block_count(), blocks);
    assert!(keys.windows(2).all(|pair| directory.locate(pair[0]) <= directory.locate(pair[1])));
    assert_eq!((directory.locate(keys[0]), directory.locate(keys[499])), (0, blocks - 1));
}

#[test]
fn a_table_without_blocks() {
    let directory = Directory::decode(DirectoryBuilder::new(LIMITS, b"k").finish()).unwrap();
    assert_eq!((directory.block_count(), directory.locate(b"x")), (0, 0));
    assert_eq!(directory.extent(0), (0, 0));
}

/// Whatever the bytes are, decoding and reading end without a panic.
#[test]
fn mutated_bytes_do_no_harm() {
    let mut r = Random(5);
    let mutants = if cfg!(debug_assertions) { 300 } else { 20_000 };
    let mut survived = 0;
    for (_, keys) in key_sets() {
        let keys = as_slices(&keys);
        let good = build(&keys, &vec![300; keys.len()], Limits { blocks_per_chunk: 20, ..LIMITS });
        for _ in 0..mutants {
            let mut bad = good.bytes.clone();
            for _ in 0..=r.below(3) {
                // The beginning decides most; so it is hit half of the time.
                let bound = if r.below(2) == 0 { bad.len().min(60) } else { bad.len() };
                let at = r.below(bound as u64) as usize;
                bad[at] = r.next() as u8;
            }
            let Ok(directory) = Directory::decode(bad) else { continue };
            survived += 1;
            for _ in 0..10 {
                let key = keys[r.below(keys.len() as u64) as usize];
                assert!(directory.locate(key) < directory.block_count().max(1));
                let block = r.below(directory.block_count().max(1));
                directory.separator(block);
                directory.extent(block);
                let mut other = key.to_vec();
                other.push(r.next() as u8);
                let turn = r.below(other.len() as u64) as usize;
                other.rotate_right(turn);
                directory.locate(&other);
            }
            directory.statistics();
        }
        for cut in (0..good.bytes.len()).step_by(1 + good.bytes.len() / 200) {
            assert!(Directory::decode(&good.bytes[..cut]).is_err(), "cut to {cut}");
        }
    }
    assert!(survived > 500, "only {survived} mutants were evaluated");
}

/// A small directory as the module pages show it: its bytes, and those of its only body.
fn example(keys: &[Vec<u8>], blocks_per_chunk: usize) -> (String, String) {
    let keys = as_slices(keys);
    let limits = Limits { max_block_bytes: 2000, blocks_per_chunk };
    let table = build(&keys, &vec![1000; keys.len()], limits);
    table.check(&keys, 1);
    for separator in &table.separators {
        println!("separator {:?}", String::from_utf8_lossy(separator));
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    (hex(&table.bytes), hex(&table.bytes[table.directory.bodies()..]))
}

/// Fails where a page shows other bytes.
fn check_page(page: &'static str, bytes: &str) {
    // On the page, three spaces set the bytes of a line off from what it says about them.
    let bytes_of = |line: &'static str| line.trim_start_matches("//! ").split("   ").next();
    let page: String = page.lines().filter_map(bytes_of).collect();
    assert!(page.replace(' ', "").contains(bytes), "the page should show {bytes}");
}

#[test]
fn the_bytes_of_the_module_pages() {
    let numbers = (0..8).map(|i: u64| (i * 1000).to_be_bytes().to_vec());
    check_page(include_str!("mod.rs"), &example(&numbers.collect::<Vec<_>>(), 64).0);
    let numbers = (0..16).map(|i: u64| if i == 8 { 7001 } else { i * 1000 });
    let numbers: Vec<_> = numbers.map(|number| number.to_be_bytes().to_vec()).collect();
    check_page(include_str!("numeric.rs"), &example(&numbers, 64).1);
    let fruit = ["apple", "apricot", "banana", "blueberry", "cherry", "citron"];
    let mut words: Vec<String> = fruit.map(|word| format!("orchard/{word}")).to_vec();
    words.extend(["quince".into(), "raisin".into()]);
    let words: Vec<Vec<u8>> = words.into_iter().map(String::into_bytes).collect();
    check_page(include_str!("strings.rs"), &example(&words, 64).1);
    check_page(include_str!("heads.rs"), &example(&words, 2).0);
}

fn data() -> std::path::PathBuf {
    match std::env::var_os("LEARNEDKV_DATA") {
        Some(path) => path.into(),
        None => concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into(),
    }
}

/// A stretch of a real set, or none and why.
fn real(name: &str, take: usize) -> Option<Vec<Vec<u8>>> {
    let path = data().join(name);
    let Ok(bytes) = std::fs::read(&path) else {
        learnedkv_skips::skip("data", &format!("there is no {}", path.display()));
        return None;
    };
    if name.ends_with(".txt") {
        let lines = bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        let mut keys = sorted(lines.map(<[u8]>::to_vec).collect());
        keys.truncate(take);
        return Some(keys);
    }
    let numbers = bytes.chunks_exact(8).skip(1).take(take);
    Some(integers(numbers.map(|b| u64::from_le_bytes(b.try_into().unwrap()))))
}

/// Real keys, and the bits that figure F1 allows them, on a stretch short enough for debug builds.
#[test]
fn real_keys_are_located_within_their_bits() {
    for (name, take, most) in [
        ("coast_hilbert_1m_uint64", 60_000, 32.0),
        ("coast_longlat_1m_uint64", 60_000, 32.0),
        ("paths_500k.txt", 30_000, 96.0),
    ] {
        let Some(keys) = real(name, take) else { continue };
        let keys = as_slices(&keys);
        for value_bytes in [100, 1016] {
            let sizes: Vec<u32> = keys.iter().map(|k| (k.len() + value_bytes) as u32).collect();
            let stored: u64 = sizes.iter().map(|&s| u64::from(s)).sum();
            let table = build(&keys, &sizes, LIMITS);
            table.check(&keys, 5);
            table.check_absent(&keys, 2003);
            let bits = table.directory.statistics().total_bits() as f64 * 4096.0 / stored as f64;
            println!("{name}, {value_bytes} B values: {bits:.2} bits per 4,096 bytes");
            assert!(bits <= most, "{bits:.2} bits per 4,096 bytes of {name}");
        }
    }
}

/// The claim of `numeric.rs`: comparing numbers is comparing byte strings.
#[test]
fn numbers_compare_as_the_strings_they_stand_for() {
    let mut r = Random(8);
    let letters = [0, 0, 1, 0x7f, 0x80, 0xff];
    for _ in 0..200_000 {
        let length = r.below(11);
        let key: Vec<u8> = (0..length).map(|_| letters[r.below(6) as usize]).collect();
        let separator = (0..8).fold(0, |s, _| s << 8 | u64::from(letters[r.below(6) as usize]));
        let separator = separator >> (8 * r.below(8)) << (8 * r.below(8));
        let bytes = separator.to_be_bytes();
        assert_eq!(
            embed(&key) >= separator,
            key.as_slice() >= trimmed(&bytes),
            "{key:?} {bytes:?}"
        );
    }
}

/// SplitMix64's finalizer over a counter.
fn random(i: u64) -> u64 {
    let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

#[test]
fn residuals_are_sorted_near_and_far() {
    for round in 0..2000u64 {
        let spread = 1u64 << (round % 64);
        let origin = [0, i64::MIN, i64::MAX, random(round) as i64][round as usize % 4];
        let residual = |i| origin.wrapping_add((random(round << 8 | i) % spread) as i64);
        let mut residuals: Vec<i64> = (0..round % 64).map(residual).collect();
        let mut expected = residuals.clone();
        expected.sort_unstable();
        fit::sort(&mut residuals);
        assert_eq!(residuals, expected, "round {round}");
    }
}

#[test]
fn up_to_eight_bytes_are_a_number() {
    let key: Vec<u8> = (1..=12).map(|i| i * 21).collect();
    for from in 0..=key.len() {
        for to in from..=key.len() {
            let bytes = &key[from..to];
            let padded = bytes.iter().copied().chain([0; 8]).take(8);
            let expected = padded.fold(0, |number, byte| number << 8 | u64::from(byte));
            assert_eq!(embed(bytes), expected, "{bytes:?}");
        }
    }
}

#[test]
fn where_blocks_may_end_depends_on_no_guess() {
    let keys = vec![b"".as_slice(); 60];
    for max in [1, 99, 100, 1000, 5000] {
        // Sizes of 0 to 299, now and then a giant.
        let sizes: Vec<u32> =
            (0..60).map(|i| random(i) as u32 % 300 + (i % 17 / 16) as u32 * 9000).collect();
        let limits = Limits { max_block_bytes: max, blocks_per_chunk: 64 };
        let mut sums = Vec::new();
        let buffered = Buffered::new(&keys, &sizes, &mut sums, true, b"", limits);
        let bytes = |start: usize, end: usize| buffered.sums[end] - buffered.sums[start];
        for start in 0..keys.len() {
            let fits = |end: &usize| bytes(start, *end) <= max;
            let last = (start + 1..=60).rfind(fits).unwrap_or(start + 1);
            let full = |end: &usize| bytes(start, *end) >= max - max / 10;
            let first = (start + 1..=last).find(full).unwrap_or(last);
            for guess in [0, start, start + 1, start + 7, 60, 100] {
                assert_eq!(buffered.last(start, guess), last, "{max} from {start}, guess {guess}");
            }
            assert_eq!(buffered.first(start, last, 10), first, "{max} from {start}");
            assert_eq!(buffered.is_open(start), last == 60, "{max} from {start}");
            assert_eq!(start >= buffered.open_from(), last == 60, "{max} from {start}");
        }
    }
}

/// A round's best walk took the place of an older one that had ended more blocks; the next round's
/// estimate looked at windows that the last walk had not met, and panicked.
#[test]
fn an_estimate_looks_at_the_windows_of_the_last_walk() {
    for seed in 0..if cfg!(debug_assertions) { 1500 } else { 20_000 } {
        let mut r = Random(seed);
        let digits = 10u64.pow(3 + r.below(4) as u32);
        let count = 20 + r.below(900);
        let keys = (0..count).map(|_| format!("key{:06}", r.below(digits)).into_bytes());
        let keys = sorted(keys.collect());
        let keys = as_slices(&keys);
        let (least, more) = (12 + r.below(30) as u32, 1 + r.below(12));
        let sizes: Vec<u32> = keys.iter().map(|_| least + r.below(more) as u32).collect();
        let max_block_bytes = 256 << r.below(5);
        let limits = Limits { max_block_bytes, blocks_per_chunk: MOST_BLOCKS };
        build(&keys, &sizes, limits).check(&keys, 1);
    }
}
