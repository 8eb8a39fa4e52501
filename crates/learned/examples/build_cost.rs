//! What building, keeping and asking the Greedy-PLR kinds costs on a real key set.
//!
//! `cargo run --release -p learned --example build_cost -- <keys in SOSD format>`
//!
//! Per epsilon: build time in ns per key and lookup time in ns over shuffled keys (median of the rounds,
//! with the fastest and the slowest in brackets; the rounds go through all epsilons in turn), segments,
//! encoded and heap bits per key, and the mean number of positions (or blocks) an answer names.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use learned::{BlockBuilder, BlockModel, Bound, Builder, Model, Persist};
use learned::{GreedyPlrBuilder, GreedyPlrPlusBuilder};

const ROUNDS: usize = 5;
const EPSILONS: [u16; 8] = [0, 1, 2, 4, 8, 16, 64, 256];
/// Entries a 4 KiB block holds at values of 1016 and of 100 bytes.
const ENTRIES_PER_BLOCK: [usize; 2] = [4, 36];

/// One configuration: how to build it, and its timings so far.
struct Row<'a> {
    name: String,
    build: Box<dyn Fn() -> Built + 'a>,
    built: Option<Built>,
    build_ns: Vec<f64>,
    lookup_ns: Vec<f64>,
}

/// Asks a model for every key and sums the widths of its answers.
type Ask = Box<dyn Fn(&[u64]) -> u64>;

struct Built {
    segments: usize,
    encoded_bytes: usize,
    heap_bytes: usize,
    ask: Ask,
}

/// Sums the widths of the answers, so that no lookup can be optimised away.
fn total_width(queries: &[u64], ask: impl Fn(u64) -> Bound) -> u64 {
    queries.iter().map(|&query| ask(query).width()).sum()
}

fn positions(keys: &[u64], epsilon: u16) -> Built {
    let mut builder = GreedyPlrBuilder::new(epsilon);
    // As a table does, a block of keys at a time.
    for block in keys.chunks(ENTRIES_PER_BLOCK[1]) {
        builder.push_all(block.iter().copied()).expect("the keys are sorted");
    }
    let model = builder.finish();
    let mut bytes = Vec::new();
    model.encode(&mut bytes);
    Built {
        segments: model.segment_count(),
        encoded_bytes: bytes.len(),
        heap_bytes: model.size_bytes(),
        ask: Box::new(move |queries| total_width(queries, |key| model.bound(key))),
    }
}

fn blocks(keys: &[u64], entries_per_block: usize, epsilon: u16) -> Built {
    let mut builder = GreedyPlrPlusBuilder::new(epsilon);
    for (block, keys) in (0..).zip(keys.chunks(entries_per_block)) {
        for &key in keys {
            builder.push(key, block).expect("the keys are sorted");
        }
    }
    let model = builder.finish();
    let mut bytes = Vec::new();
    model.encode(&mut bytes);
    Built {
        segments: model.segment_count(),
        encoded_bytes: bytes.len(),
        heap_bytes: model.size_bytes(),
        ask: Box::new(move |queries| total_width(queries, |key| model.blocks(key))),
    }
}

fn rows(keys: &[u64]) -> Vec<Row<'_>> {
    let row = |name, build| Row { name, build, built: None, build_ns: vec![], lookup_ns: vec![] };
    let mut rows = Vec::new();
    for epsilon in EPSILONS {
        let build = Box::new(move || positions(keys, epsilon));
        rows.push(row(format!("greedy-plr, epsilon {epsilon}"), build as Box<_>));
    }
    for entries in ENTRIES_PER_BLOCK {
        for epsilon in [0, 1, 2, 4, 8] {
            let build = Box::new(move || blocks(keys, entries, epsilon));
            let name = format!("greedy-plr-plus, {entries} a block, epsilon {epsilon}");
            rows.push(row(name, build as Box<_>));
        }
    }
    rows
}

/// The middle of the timings, with their range.
fn spread(timings: &mut [f64]) -> String {
    timings.sort_by(f64::total_cmp);
    let (fastest, slowest) = (timings[0], timings[timings.len() - 1]);
    format!("{:.1} [{fastest:.1}, {slowest:.1}]", timings[timings.len() / 2])
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("name a key file in SOSD format")?;
    let bytes = std::fs::read(&path)?;
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let keys: Vec<u64> = words.skip(1).collect();
    let shuffled = shuffled(&keys);

    let mut rows = rows(&keys);
    let mut widths = vec![0; rows.len()];
    for _ in 0..ROUNDS {
        for (row, width) in rows.iter_mut().zip(&mut widths) {
            let start = Instant::now();
            let built = (row.build)();
            row.build_ns.push(start.elapsed().as_nanos() as f64 / keys.len() as f64);
            let start = Instant::now();
            *width = black_box((built.ask)(&shuffled));
            row.lookup_ns.push(start.elapsed().as_nanos() as f64 / keys.len() as f64);
            row.built = Some(built);
        }
    }

    println!("{path}: {} keys, {ROUNDS} rounds\n", keys.len());
    println!(
        "| index | build ns/key | lookup ns | segments | encoded bits/key | heap bits/key | mean width |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (row, width) in rows.iter_mut().zip(widths) {
        let built = row.built.take().ok_or("every row was built")?;
        let per_key = |bytes: usize| bytes as f64 * 8.0 / keys.len() as f64;
        println!(
            "| {} | {} | {} | {} | {:.2} | {:.2} | {:.2} |",
            row.name,
            spread(&mut row.build_ns),
            spread(&mut row.lookup_ns),
            built.segments,
            per_key(built.encoded_bytes),
            per_key(built.heap_bytes),
            width as f64 / keys.len() as f64,
        );
    }
    Ok(())
}

/// The keys in random order, so that lookups meet the cache misses they would meet in earnest.
fn shuffled(keys: &[u64]) -> Vec<u64> {
    let mut keys = keys.to_vec();
    let mut state = 1u64;
    for left in (1..keys.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high half of a linear congruential generator (Knuth's MMIX) is its good half.
        keys.swap(left, (state >> 32) as usize % (left + 1));
    }
    keys
}
