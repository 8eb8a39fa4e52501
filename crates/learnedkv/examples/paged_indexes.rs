//! What a store costs whose indexes are more than memory has room for: memory against the budget,
//! and read requests per get, where tables keep their indexes whatever they take and where they are
//! paged.
//!
//! ```sh
//! cargo run --release -p learnedkv --example paged_indexes -- DIR [KEYS] [BUDGET_MIB] [GETS]
//! ```
//! Keys of 24 bytes, values of 8, partitions of 8 MiB, blocks of 512 bytes and fence pointers, so
//! that there is much index for little data; blocks are read by calls, so that each read is counted.
//! Memory is what the process has to itself (`RssAnon`) at its highest from the open on, less what
//! it had before.

use std::path::Path;

use learnedkv::{Database, IndexKind, KeyspaceOptions, Result};

const MIB: f64 = (1 << 20) as f64;

/// Memory of the process's own, bytes.
fn own_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn key(number: u64) -> String {
    format!("user/{number:019}")
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn fill(dir: &Path, keys: u64) -> Result<()> {
    let db = Database::open(dir)?;
    let options = KeyspaceOptions::default().block_bytes(512).partition_bytes(8 << 20);
    let options = options.settled_index(IndexKind::Fence);
    let keyspace = db.keyspace("k", options)?;
    keyspace.ingest((0..keys).map(|number| (key(number), number.to_le_bytes())))?;
    db.close()
}

/// How large a run is.
#[derive(Clone, Copy)]
struct Load {
    keys: u64,
    budget_mib: u64,
    gets: u64,
}

fn measure(dir: &Path, load: Load, percent: u64, hot: u64) -> Result<()> {
    let Load { keys, budget_mib, gets } = load;
    let budget_bytes = budget_mib << 20;
    let before = own_bytes();
    let db = Database::builder(dir)
        .memtable_bytes((budget_bytes / 16) as usize)
        .memory_budget_bytes(budget_bytes)
        .metadata_percent(percent)
        .mapped_reads(false)
        .open()?;
    let keyspace = db.find("k").expect("it was filled");
    let mut highest = own_bytes();
    let mut state = 1;
    let mut look_up = |gets: u64| -> Result<()> {
        for number in 0..gets {
            let wanted = random(&mut state) % keys * hot / 100;
            let found = keyspace.get(key(wanted))?;
            assert_eq!(found.as_deref(), Some(&wanted.to_le_bytes()[..]), "{wanted}");
            if number % 100 == 0 {
                highest = highest.max(own_bytes());
            }
        }
        Ok(())
    };
    look_up(gets / 4)?;
    let warm = db.stats();
    look_up(gets)?;
    let stats = db.stats();
    let per_get = |after: u64, before: u64| (after - before) as f64 / gets as f64;
    println!(
        "| {percent:>3} % | {hot:>3} % | {:>5.1} | {:>6.1} | {:>6.1} | {:>5.1} | {:>4} of {} | {:.3} | {:.3} |",
        highest.saturating_sub(before) as f64 / MIB,
        (highest.saturating_sub(before) as f64 / budget_bytes as f64 - 1.0) * 100.0,
        stats.keyspaces.iter().map(|k| k.metadata_bytes).sum::<u64>() as f64 / MIB,
        stats.cache_bytes as f64 / MIB,
        stats.paged_tables,
        stats.keyspaces.iter().map(|k| k.partitions).sum::<u64>(),
        per_get(stats.read_requests, warm.read_requests),
        per_get(stats.index_loads, warm.index_loads),
    );
    db.close()
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| ".".to_owned());
    let mut number = |default| args.next().and_then(|arg| arg.parse().ok()).unwrap_or(default);
    let (keys, budget_mib, gets) = (number(10_000_000), number(16), number(100_000).max(1));
    let load = Load { keys, budget_mib, gets };
    let dir = Path::new(&dir).join(format!("paged-indexes-{}", std::process::id()));
    // In a process of its own each, or memory that one gave back were the next one's.
    if let Ok(case) = std::env::var("PAGED_INDEXES_CASE") {
        let mut case = case.split(' ');
        let dir = case.next().map(Path::new).unwrap_or(Path::new("."));
        let mut number = || case.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        return measure(dir, load, number(), number());
    }
    fill(&dir, keys)?;
    println!("{keys} keys, a budget of {budget_mib} MiB, {gets} gets of a uniform choice");
    println!(
        "| metadata may have | of keys asked | memory, MiB | above the budget, % | metadata, MiB | cache, MiB | tables paged | requests a get | of them indexes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let me = std::env::current_exe().expect("a program has a name");
    for (percent, hot) in [(100, 100), (50, 100), (0, 100), (100, 3), (50, 3), (0, 3)] {
        let case = format!("{} {percent} {hot}", dir.display());
        let mut command = std::process::Command::new(&me);
        let command = command.arg(".").args([keys, budget_mib, gets].map(|n| n.to_string()));
        let done = command.env("PAGED_INDEXES_CASE", case).status().expect("it runs again");
        assert!(done.success(), "{percent} % failed");
    }
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}
