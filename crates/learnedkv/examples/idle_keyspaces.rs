//! What many idle keyspaces cost beside one that is used: opening, memory, puts, gets, edits,
//! `stats()`.
//!
//! ```sh
//! cargo run --release -p learnedkv --example idle_keyspaces -- /dev/shm 0 10000
//! ```
//! The directory, then how many keyspaces there are, for each run. Each holds one entry: read from the log by the
//! open, until all are flushed, once a few were put to the busy one. `store=lsm`: all keep levels. So many go
//! there as `puts=2000000` says, and half as many gets. First, while nothing is flushed, 200 more keyspaces are made and dropped again;
//! in the end, where it is, 500. Memory is told
//! apart best with one count a run: what is left of an earlier one would serve the next.

use std::path::Path;
use std::time::Instant;

use learnedkv::{Database, KeyspaceOptions, Result, Store};

/// So many flushes of almost nothing, and keyspaces made in the end.
const FLUSHES: u32 = 500;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Microseconds that one more keyspace takes to be made, and to be dropped.
fn one_more(db: &Database, options: &KeyspaceOptions) -> Result<(f64, f64)> {
    let names: Vec<String> = (0..200).map(|number| format!("early{number}")).collect();
    let begun = Instant::now();
    names.iter().try_for_each(|name| db.keyspace(name, options.clone()).map(drop))?;
    let made = begun.elapsed().as_secs_f64() * 1e6 / names.len() as f64;
    let begun = Instant::now();
    names.iter().try_for_each(|name| db.drop_keyspace(name))?;
    Ok((made, begun.elapsed().as_secs_f64() * 1e6 / names.len() as f64))
}

fn measure(parent: &Path, count: u32, puts: u32, store: Store) -> Result<()> {
    let dir = parent.join(format!("idle-keyspaces-{}", std::process::id()));
    let options = KeyspaceOptions::default().store(store);
    let begun = Instant::now();
    let db = Database::open(&dir)?;
    let mut batch = db.batch();
    for number in 0..count {
        let keyspace = db.keyspace(&format!("idle{number}"), options.clone())?;
        batch.insert(&keyspace, "key", "value");
    }
    batch.commit()?;
    let made = begun.elapsed();
    db.close()?;

    let before = resident_bytes();
    let begun = Instant::now();
    let db = Database::open(&dir)?;
    let opened = begun.elapsed();
    let resident = resident_bytes().saturating_sub(before);
    let begun = Instant::now();
    let stats = db.stats();
    let stats_took = begun.elapsed();
    drop(stats);

    let (early, dropped) = one_more(&db, &options)?;
    let busy = db.keyspace("busy", options)?;
    let put = |from: u32, to: u32| -> Result<f64> {
        let begun = Instant::now();
        (from..to).try_for_each(|number| busy.insert(number.to_be_bytes(), [7; 100]))?;
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(to - from))
    };
    let few = put(0, puts / 40)?;
    let begun = Instant::now();
    db.flush()?;
    let flushed = begun.elapsed().as_secs_f64() * 1e3;
    let many = put(puts / 40, puts)?;
    db.wait_idle()?;
    let gets = puts / 2;
    let begun = Instant::now();
    for number in 0..gets {
        // Far from one another.
        let found = busy.get((number.wrapping_mul(7919) % puts).to_be_bytes())?;
        assert!(found.is_some_and(|value| *value == [7; 100]), "what was put is there");
    }
    let get = begun.elapsed().as_nanos() as f64 / f64::from(gets.max(1));
    // An edit and a flush of almost nothing.
    let begun = Instant::now();
    for number in 0..FLUSHES {
        busy.insert(number.to_be_bytes(), "v")?;
        busy.flush()?;
    }
    let flush = begun.elapsed().as_secs_f64() * 1e6 / f64::from(FLUSHES);
    let begun = Instant::now();
    for number in 0..FLUSHES {
        db.keyspace(&format!("new{number}"), busy.options().clone())?;
    }
    let edit = begun.elapsed().as_secs_f64() * 1e6 / f64::from(FLUSHES);
    println!(
        "{count} idle keyspaces: made in {:.2} s; opened in {:.1} ms, {:.1} MiB resident; one more {early:.0} us, \
         dropped {dropped:.0} us; put {few:.0} ns; all flushed in {flushed:.0} ms; put {many:.0} ns with flushes; get {get:.0} ns; small flush {flush:.0} us; edit {edit:.0} us; stats {:.2} ms",
        made.as_secs_f64(),
        opened.as_secs_f64() * 1e3,
        resident as f64 / f64::from(1 << 20),
        stats_took.as_secs_f64() * 1e3,
    );
    drop((db, busy));
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "/dev/shm".to_owned());
    let (mut counts, mut puts, mut store) = (Vec::new(), 2_000_000, Store::Tiered);
    for arg in args {
        match arg.split_once('=') {
            Some(("puts", number)) => puts = number.parse().unwrap_or(puts).max(40),
            Some(("store", "lsm")) => store = Store::Lsm,
            _ => counts.extend(arg.parse::<u32>()),
        }
    }
    for count in if counts.is_empty() { vec![0, 10_000] } else { counts } {
        measure(Path::new(&dir), count, puts, store)?;
    }
    Ok(())
}
