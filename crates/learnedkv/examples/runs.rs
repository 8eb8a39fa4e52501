//! What runs cost those who look for what is not in them: gets of settled and of absent keys
//! beneath 0, 1, 4 and 8 runs.
//!
//! ```sh
//! runs DIR 1000000 100 8            # ns a get: keys, value bytes, rounds
//! runs DIR 1000000 100 8 10000      # the same, of 10,000 keys alone
//! valgrind --tool=callgrind --toggle-collect='*runs*work*' runs DIR 100000 100 1 0 8
//! ```
//! A keyspace for each number of runs, all over the same settled keys. A run is one flush of a
//! sixteenth of the keys; asked are keys that are in none, keys that are nowhere, and keys of the
//! oldest run. Each tells the median of its pieces of 5,000 gets, which come in turn, and how many
//! times that of no runs this is. A last argument asks of one keyspace alone, for callgrind:
//! instructions a get are what it counts by how often it says `work` was called.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use learnedkv::{Database, Keyspace, KeyspaceOptions, Result};

const RUNS: [u64; 4] = [0, 1, 4, 8];
/// A run has one key in so many; keys beyond those of the runs are settled only.
const SHARES: u64 = 16;
const PIECE: usize = 5_000;

/// SplitMix64.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Odd: even ones are absent.
fn key(number: u64) -> [u8; 8] {
    (mix(number) | 1).to_be_bytes()
}

/// One get, whose instructions are counted.
#[inline(never)]
fn work(keyspace: &Keyspace, key: [u8; 8], memory: &mut Vec<u8>) -> Result<u64> {
    memory.clear();
    let found = keyspace.get(key)?;
    Ok(found.map(|value| memory.extend_from_slice(&value)).map_or(0, |()| 1))
}

fn fill(db: &Database, runs: u64, (keys, value_bytes): (u64, usize)) -> Result<Keyspace> {
    // It stays as it is.
    let options = KeyspaceOptions::default().min_conversion_bytes(1 << 50).settle_for_reads(false);
    let keyspace = db.keyspace(&format!("below-{runs}"), options)?;
    let mut settled: Vec<[u8; 8]> = (0..keys).map(key).collect();
    settled.sort_unstable();
    settled.dedup();
    let mut value = vec![7; value_bytes];
    let mut number = 0;
    keyspace.ingest(settled.into_iter().map(|key| {
        number += 1;
        value[..8].copy_from_slice(&mix(number).to_le_bytes());
        (key, value.clone())
    }))?;
    let fresh = vec![9; value_bytes];
    for run in 0..runs {
        for number in (0..keys).filter(|number| number % SHARES == run) {
            keyspace.insert(key(number), &fresh)?;
        }
        keyspace.flush()?;
    }
    Ok(keyspace)
}

/// Nanoseconds a get of `piece` takes.
fn ask(keyspace: &Keyspace, piece: &[[u8; 8]], expected: u64) -> Result<f64> {
    let (mut memory, mut found) = (Vec::new(), 0);
    let clock = Instant::now();
    for key in piece {
        found += work(keyspace, *key, &mut memory)?;
        black_box(&memory);
    }
    let ns = clock.elapsed().as_nanos() as f64 / piece.len() as f64;
    assert_eq!(found, expected * piece.len() as u64, "keys found");
    Ok(ns)
}

struct Load {
    keys: u64,
    value_bytes: usize,
    rounds: usize,
    /// How many keys are asked for; 0: all.
    hot: u64,
    only: Option<u64>,
}

fn measure(load: &Load, keyspaces: &[(u64, Keyspace)], name: &str) -> Result<()> {
    let present = name != "absent";
    let mut times = vec![Vec::new(); keyspaces.len()];
    let mut state = 1 << 40;
    let beyond = (load.keys / SHARES).max(1);
    let hot = if load.hot == 0 { u64::MAX } else { load.hot };
    for _ in 0..load.rounds * (load.keys as usize / PIECE).max(1) {
        let piece: Vec<[u8; 8]> = std::iter::repeat_with(|| {
            state += 1;
            let at = mix(mix(state) % hot);
            let oldest = at % beyond * SHARES;
            let settled_only = oldest + SHARES / 2 + (at >> 40) % (SHARES / 2);
            let number = if name == "oldest" { oldest } else { settled_only };
            let there = u64::from_be_bytes(key(number.min(load.keys - 1)));
            if present { there } else { there ^ 1 }.to_be_bytes()
        })
        .take(PIECE)
        .collect();
        for ((_, keyspace), times) in keyspaces.iter().zip(&mut times) {
            times.push(ask(keyspace, &piece, present.into())?);
        }
    }
    let mut without = None;
    for ((runs, _), times) in keyspaces.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let times = median / *without.get_or_insert(median);
        println!("{name} {runs} runs: {median:.0} ns, {times:.3} times");
    }
    Ok(())
}

fn run(dir: &Path, load: &Load) -> Result<()> {
    let db =
        Database::builder(dir).memory_budget_bytes(2 << 30).memtable_bytes(256 << 20).open()?;
    let mut keyspaces = Vec::new();
    for runs in RUNS.into_iter().filter(|runs| load.only.is_none_or(|only| only == *runs)) {
        keyspaces.push((runs, fill(&db, runs, (load.keys, load.value_bytes))?));
    }
    db.wait_idle()?;
    for (keyspace, stats) in keyspaces.iter().zip(db.stats().keyspaces) {
        assert_eq!((keyspace.0, stats.deltas), (stats.runs, 0), "{stats:?}");
        println!(
            "{} runs: {} bytes of filters in memory, {} over runs, {:.2} bits an entry of metadata",
            stats.runs,
            stats.filter_bytes,
            stats.generation_bytes,
            stats.metadata_bits_per_entry()
        );
    }
    // The first time wakes the filters that rest.
    for name in ["absent", "settled", "absent", "oldest"] {
        measure(load, &keyspaces, name)?;
    }
    db.close()
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let parent = args.next().unwrap_or_else(|| ".".to_string());
    let numbers: Vec<u64> = args.filter_map(|text| text.parse().ok()).collect();
    let number = |at: usize, or| numbers.get(at).copied().unwrap_or(or);
    let load = Load {
        keys: number(0, 1_000_000).max(SHARES),
        value_bytes: number(1, 100).max(8) as usize,
        rounds: number(2, 8) as usize,
        hot: number(3, 0),
        only: numbers.get(4).copied(),
    };
    let dir = Path::new(&parent).join(format!("runs-{}", std::process::id()));
    let done = run(&dir, &load);
    std::fs::remove_dir_all(&dir).ok();
    done
}
