//! What the `exact` directory costs, on generated and real keys.
//!
//! `cargo run --release -p learned --example exact_bits [filter [value [block]]]` prints, for each key set, value
//! size and block size: bits a block, bits per 4,096 bytes of stored entries (figure F1) and what
//! they are in memory, the bits a block split by part, exceptions in percent of blocks, string chunks
//! in percent of chunks, and the nanoseconds of planning a key and of locating a random present one.
//! A filter keeps the sets whose name contains it; a value size and a block size behind it keep
//! those alone (for a profile). An entry takes its key, its value and `OVERHEAD`.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use learned::exact::{Directory, DirectoryBuilder, Limits};

/// What an entry needs besides key and value, in bytes. 0 compares with keys and values alone; with
/// any more, blocks of 4,096 bytes hold three entries with 1,016-byte values and not four.
const OVERHEAD: usize = 0;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let only = |nth| std::env::args().nth(nth).map(|text| text.parse::<u64>().expect("a number"));
    let (only_value, only_block) = (only(2), only(3));
    let wanted = |only: Option<u64>, size: u64| only.is_none_or(|only| only == size);
    println!(
        "{:<11}{:>6}{:>6}{:>7}{:>6} | {:>6}{:>8}{:>6} |{:>6}{:>6}{:>6}{:>6}{:>6}{:>6} | {:>7}{:>6}{:>6}{:>7}",
        "keys",
        "value",
        "block",
        "blocks",
        "fill%",
        "bits/b",
        "per4096",
        "heap",
        "num",
        "str",
        "exc",
        "head",
        "offs",
        "hdr",
        "exc%",
        "str%",
        "plan",
        "locate"
    );
    for (name, make) in sets() {
        if !name.contains(&filter) {
            continue;
        }
        let Some(keys) = make() else {
            println!("{name:<11} skipped: no such file under {}", data().display());
            continue;
        };
        for value in [100, 126, 1016] {
            for block in [4096, 8192, 16_384] {
                if wanted(only_value, value as u64) && wanted(only_block, block) {
                    measure(name, &keys, value, block);
                }
            }
        }
    }
}

fn measure(name: &str, keys: &[Vec<u8>], value: usize, block: u64) {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let sizes: Vec<u32> = keys.iter().map(|k| (k.len() + value + OVERHEAD) as u32).collect();
    let stored: u64 = sizes.iter().map(|&s| u64::from(s)).sum();
    let mut builder =
        DirectoryBuilder::new(Limits { max_block_bytes: block, blocks_per_chunk: 64 }, keys[0]);
    let (mut start, mut buffered, mut buffered_bytes, mut units) = (0, 0, 0u64, 0u64);
    let mut planning = Duration::ZERO;
    while start < keys.len() {
        while buffered < keys.len() && buffered_bytes < builder.wanted_bytes() {
            buffered_bytes += u64::from(sizes[buffered]);
            // A writer has just copied the key: it is in the processor's cache.
            black_box(keys[buffered].iter().fold(0, |sum, &byte| sum ^ byte));
            buffered += 1;
        }
        let range = start..buffered;
        let clock = Instant::now();
        let cuts = builder.cut(&keys[range.clone()], &sizes[range], buffered == keys.len());
        let mut from = start;
        for cut in cuts {
            let end = start + cut.end;
            let bytes: u64 = sizes[from..end].iter().map(|&s| u64::from(s)).sum();
            buffered_bytes -= bytes;
            units += bytes.div_ceil(64);
            builder.push_end(units);
            from = end;
        }
        planning += clock.elapsed();
        start = from;
    }
    let clock = Instant::now();
    let bytes = builder.finish();
    planning += clock.elapsed();
    let plan_ns = planning.as_nanos() as f64 / keys.len() as f64;
    let directory = Directory::decode(bytes).expect("own bytes");
    let locate_ns = locate(&directory, &keys);
    let s = directory.statistics();
    let per_block = |bits: u64| bits as f64 / s.blocks as f64;
    println!(
        "{:<11}{:>6}{:>6}{:>7}{:>6.1} | {:>6.2}{:>8.2}{:>6.2} |{:>6.2}{:>6.2}{:>6.2}{:>6.2}{:>6.2}{:>6.2} | {:>7.3}{:>6.1}{:>6.1}{:>7.1}",
        name,
        value,
        block,
        s.blocks,
        100.0 * stored as f64 / (s.blocks * block) as f64,
        per_block(s.total_bits()),
        s.total_bits() as f64 * 4096.0 / stored as f64,
        8.0 * s.size_bytes as f64 * 4096.0 / stored as f64,
        per_block(s.numeric_bits),
        per_block(s.string_bits),
        per_block(s.exception_bits),
        per_block(s.head_bits),
        per_block(s.offset_bits),
        per_block(s.header_bits),
        100.0 * s.exceptions as f64 / s.blocks as f64,
        100.0 * s.string_chunks as f64 / (s.string_chunks + s.numeric_chunks).max(1) as f64,
        plan_ns,
        locate_ns,
    );
}

fn locate(directory: &Directory, keys: &[&[u8]]) -> f64 {
    let mut r = Random(9);
    // Copies one after another, so that fetching keys is not what is measured.
    let (mut copies, mut ends) = (Vec::new(), vec![0]);
    for _ in 0..200_000 {
        copies.extend_from_slice(keys[(r.next() % keys.len() as u64) as usize]);
        ends.push(copies.len());
    }
    let clock = Instant::now();
    for range in ends.windows(2) {
        black_box(directory.locate(black_box(&copies[range[0]..range[1]])));
    }
    clock.elapsed().as_nanos() as f64 / 200_000.0
}

type Make = Box<dyn Fn() -> Option<Vec<Vec<u8>>>>;

fn sets() -> Vec<(&'static str, Make)> {
    let generated = |make: fn(&mut Random, u64) -> u64| -> Make {
        Box::new(move || {
            let mut r = Random(1);
            Some(encode((0..1_000_000).map(|i| make(&mut r, i)).collect()))
        })
    };
    let file = |name: &'static str| -> Make { Box::new(move || integers(name)) };
    vec![
        ("uniform", generated(|r, _| r.next())),
        ("sequential", generated(|_, i| i)),
        ("lognormal", generated(|r, _| ((2.0 * r.normal()).exp() * 1e9) as u64)),
        // A million keys around 1,000 centres.
        (
            "clustered",
            generated(|r, _| {
                let centre = Random(r.next() % 1000).next() >> 1;
                centre.saturating_add_signed((r.normal() * 1e12) as i64)
            }),
        ),
        ("hilbert", file("coast_hilbert_1m_uint64")),
        ("longlat", file("coast_longlat_1m_uint64")),
        ("paths", Box::new(paths)),
    ]
}

fn data() -> PathBuf {
    match std::env::var_os("LEARNEDKV_DATA") {
        Some(path) => path.into(),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
    }
}

fn integers(name: &str) -> Option<Vec<Vec<u8>>> {
    let bytes = std::fs::read(data().join(name)).ok()?;
    let numbers = bytes.chunks_exact(8).skip(1);
    Some(encode(numbers.map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()))
}

fn paths() -> Option<Vec<Vec<u8>>> {
    let bytes = std::fs::read(data().join("paths_500k.txt")).ok()?;
    let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut keys: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    keys.sort_unstable();
    keys.dedup();
    Some(keys)
}

fn encode(mut numbers: Vec<u64>) -> Vec<Vec<u8>> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| number.to_be_bytes().to_vec()).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}
