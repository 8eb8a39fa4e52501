//! What lookups cost over runs that an open found, before and after they have paid for a filter over them, and what
//! reading the keys for it takes.
//!
//! ```sh
//! cargo run --release -p learnedkv --example reopened -- DIR 1000000 100
//! ```
//! The directory, how many settled keys, value bytes. Eight runs of a sixteenth of the keys each stand over them. Asked
//! are keys that runs do not hold, settled or nowhere, in pieces of 5,000, each kind in turn: told is the median of
//! the nanoseconds a get takes. First before the database is closed; then, opened again, until the filter is there (the
//! share of what it costs that was paid by then is in the pieces); then with it. So as to see what reading the keys
//! takes alone, the database is opened a third time and waited for right when enough was paid.

use std::path::Path;
use std::time::Instant;

use learnedkv::{Database, Keyspace, KeyspaceOptions, Result};

const RUNS: u64 = 8;
const SHARES: u64 = 16;
const PIECE: u64 = 5_000;
const PIECES: u64 = 40;

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

fn open(dir: &Path) -> Result<Database> {
    Database::builder(dir).memory_budget_bytes(2 << 30).memtable_bytes(256 << 20).open()
}

fn fill(db: &Database, keys: u64, value_bytes: usize) -> Result<()> {
    // It stays as it is.
    let keyspace = db.keyspace(
        "k",
        KeyspaceOptions::default().min_conversion_bytes(1 << 50).settle_for_reads(false),
    )?;
    let mut settled: Vec<[u8; 8]> = (0..keys).map(key).collect();
    settled.sort_unstable();
    settled.dedup();
    let value = vec![7; value_bytes];
    keyspace.ingest(settled.into_iter().map(|key| (key, value.clone())))?;
    for run in 0..RUNS {
        for number in (0..keys).filter(|number| number % SHARES == run) {
            keyspace.insert(key(number), &value)?;
        }
        keyspace.flush()?;
    }
    Ok(())
}

/// Nanoseconds a get takes of keys that no run holds, in one piece: settled ones, and absent ones.
fn piece(keyspace: &Keyspace, keys: u64, number: u64) -> Result<[f64; 2]> {
    let mut ns = [0.0; 2];
    for (absent, ns) in [0, 1].into_iter().zip(&mut ns) {
        let begun = Instant::now();
        for at in number * PIECE..(number + 1) * PIECE {
            let settled = mix(at) % (keys / SHARES).max(1) * SHARES + SHARES - 1;
            let there = u64::from_be_bytes(key(settled.min(keys - 1)));
            let found = keyspace.get((there ^ absent).to_be_bytes())?;
            assert_eq!(found.is_some(), absent == 0, "what is there is found, and nothing else");
        }
        *ns = begun.elapsed().as_nanos() as f64 / PIECE as f64;
    }
    Ok(ns)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}

/// Says what pieces take while `goes_on` says so; how many there were.
fn tell(
    words: &str,
    keyspace: &Keyspace,
    keys: u64,
    mut goes_on: impl FnMut(u64) -> Result<bool>,
) -> Result<u64> {
    let (mut settled, mut absent, mut number) = (Vec::new(), Vec::new(), 0);
    while goes_on(number)? {
        let [one, other] = piece(keyspace, keys, number)?;
        settled.push(one);
        absent.push(other);
        number += 1;
    }
    println!(
        "{words}: settled {:.0} ns, absent {:.0} ns, {} gets",
        median(settled),
        median(absent),
        number * 2 * PIECE
    );
    Ok(number)
}

fn run(dir: &Path, keys: u64, value_bytes: usize) -> Result<()> {
    let db = open(dir)?;
    fill(&db, keys, value_bytes)?;
    let keyspace = db.find("k").expect("it was made");
    db.wait_idle()?;
    // The first pieces wake what rests and fill the cache.
    tell("first", &keyspace, keys, |n| Ok(n < PIECES))?;
    tell("flushed here", &keyspace, keys, |n| Ok(n < PIECES))?;
    drop(keyspace);
    db.close()?;

    let db = open(dir)?;
    let keyspace = db.find("k").expect("it was made");
    let is_there = || Ok::<_, learnedkv::Error>(keyspace.stats()?.generations > 0);
    let paid = tell("opened again", &keyspace, keys, |n| Ok(!is_there()? && n < 10_000))?;
    tell("and paid for", &keyspace, keys, |n| Ok(n < PIECES))?;
    let stats = keyspace.stats()?;
    println!(
        "{} runs, {} entries, {:.2} bits an entry over them",
        stats.runs,
        stats.lsm_entries,
        stats.generation_bytes as f64 * 8.0 / stats.lsm_entries.max(1) as f64
    );
    drop(keyspace);
    db.close()?;

    let db = open(dir)?;
    let keyspace = db.find("k").expect("it was made");
    let mut took = 0.0;
    for number in 0..2 * paid {
        piece(&keyspace, keys, number)?;
        let begun = Instant::now();
        db.wait_idle()?;
        if keyspace.stats()?.generations > 0 {
            took = begun.elapsed().as_nanos() as f64;
            break;
        }
    }
    let entries = keyspace.stats()?.lsm_entries.max(1);
    println!("its keys are read in {:.1} ms, {:.0} ns a key", took / 1e6, took / entries as f64);
    drop(keyspace);
    db.close()
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let parent = args.next().unwrap_or_else(|| ".".to_string());
    let numbers: Vec<u64> = args.filter_map(|text| text.parse().ok()).collect();
    let keys = numbers.first().copied().unwrap_or(1_000_000).max(SHARES * 100);
    let value_bytes = numbers.get(1).copied().unwrap_or(100) as usize;
    let dir = Path::new(&parent).join(format!("reopened-{}", std::process::id()));
    let done = run(&dir, keys, value_bytes);
    std::fs::remove_dir_all(&dir).ok();
    done
}
