//! A queue: an entry is put at the end, and one is taken from the front, in turn.
//!
//! ```sh
//! queue DIR 1000000 100 1000     # operations, value bytes, entries in the queue
//! ```
//! Tells the time of a `pop_first`, median and the longest, for each tenth of the operations: it is to stay as it
//! was. Then how long `is_empty` takes, before and after a flush. See docs/decisions/0052.

use std::path::Path;
use std::time::{Duration, Instant};

use learnedkv::{Database, Keyspace, KeyspaceOptions, Result};

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median_us(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |median| us(*median))
}

fn look(keyspace: &Keyspace, when: &str) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..100 {
        let begun = Instant::now();
        keyspace.is_empty()?;
        times.push(begun.elapsed());
    }
    println!("is_empty {when}: {:.2} us", median_us(&mut times));
    Ok(())
}

fn run(dir: &Path, operations: u64, value_bytes: usize, entries: u64) -> Result<()> {
    let db = Database::open(dir)?;
    let queue = db.keyspace("queue", KeyspaceOptions::default())?;
    let value = vec![7; value_bytes];
    let push = |number: u64| queue.insert(number.to_be_bytes(), &value);
    (0..entries).try_for_each(push)?;
    let begun = Instant::now();
    for tenth in 0..10 {
        let (from, to) = (operations * tenth / 10, operations * (tenth + 1) / 10);
        let mut times = Vec::new();
        for number in from..to {
            push(entries + number)?;
            let begun = Instant::now();
            let popped = queue.pop_first()?;
            times.push(begun.elapsed());
            assert_eq!(popped.map(|(key, _)| key.to_vec()), Some(number.to_be_bytes().to_vec()));
        }
        let longest = times.iter().max().copied().unwrap_or_default();
        let median = median_us(&mut times);
        println!("pop_first, tenth {tenth}: median {median:.2} us, longest {:.0} us", us(longest));
    }
    let rate = operations as f64 / begun.elapsed().as_secs_f64() / 1e3;
    println!("{operations} put and taken, {rate:.1} thousand a second");
    look(&queue, "as it is")?;
    queue.flush()?;
    look(&queue, "flushed")?;
    let stats = queue.stats()?;
    println!(
        "{} entries of {entries} in runs and settled",
        stats.lsm_entries + stats.settled_entries
    );
    drop(queue);
    db.close()
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let dir = args.get(1).expect("usage: queue DIR [OPERATIONS] [VALUE_BYTES] [ENTRIES]");
    let number = |at: usize, default: u64| {
        args.get(at).map_or(default, |arg| arg.parse().expect("a number"))
    };
    let dir = Path::new(dir).join("queue");
    let done = run(&dir, number(2, 1_000_000), number(3, 100) as usize, number(4, 1000));
    std::fs::remove_dir_all(&dir).ok();
    done
}
