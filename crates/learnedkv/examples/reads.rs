//! What reads cost: of settled data, of data that is partly fresh, of absent keys, and scans.
//!
//! ```sh
//! cargo build --release -p learnedkv --example reads
//! target/release/examples/reads DIR 1000000                 # ns a read, each kind: keys, rounds
//! valgrind --tool=callgrind --toggle-collect='*reads*work*' target/release/examples/reads DIR 100000 1 settled
//! ```
//! Values of 1,016 bytes, copied out; requests as YCSB's scrambled zipfian. What is told is the mean of the
//! middle half of pieces of 2,000 reads (of 100 scans), so that what else a machine does tells little.
//! Instructions a read: what callgrind counts by how often it says that `work` was called.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use learnedkv::{Database, Keyspace, KeyspaceOptions, Result};

const VALUE_BYTES: usize = 1016;
const SCAN_ENTRIES: u64 = 100;

/// SplitMix64.
struct Random(u64);

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// Ranks as YCSB draws them: of 10^10 items by Gray's method, folded onto `count`.
    fn zipfian(&mut self, count: u64) -> u64 {
        const ITEMS: f64 = 1e10;
        const THETA: f64 = 0.99;
        const ZETA: f64 = 26.469_028_201_783_02;
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = unit * ZETA;
        let second = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / ITEMS).powf(1.0 - THETA)) / (1.0 - second / ZETA);
        let rank = match scaled {
            scaled if scaled < 1.0 => 0.0,
            scaled if scaled < second => 1.0,
            _ => ITEMS * (eta * unit - eta + 1.0).powf(1.0 / (1.0 - THETA)),
        };
        mix(rank as u64) % count
    }
}

struct Run {
    keyspace: Keyspace,
    keys: Vec<[u8; 8]>,
    random: Random,
    rounds: u64,
}

/// One read, whose instructions are counted.
#[inline(never)]
fn work(keyspace: &Keyspace, key: [u8; 8], entries: u64, memory: &mut Vec<u8>) -> Result<u64> {
    memory.clear();
    if entries == 0 {
        let found = keyspace.get(key)?;
        let length = found.map(|value| memory.extend_from_slice(&value)).map_or(0, |()| 1);
        return Ok(length);
    }
    let mut read = 0;
    for entry in keyspace.range(key..).take(entries as usize) {
        let (key, value) = entry?;
        memory.extend_from_slice(&key);
        memory.extend_from_slice(&value);
        read += 1;
    }
    Ok(read)
}

impl Run {
    /// Reads `each` keys of `pieces` pieces, and tells what one costs.
    fn measure(
        &mut self,
        name: &str,
        (pieces, each): (u64, u64),
        mut ask: impl FnMut(&mut Random, &[[u8; 8]]) -> ([u8; 8], u64),
    ) -> Result<()> {
        let mut memory = Vec::new();
        for round in 0..self.rounds {
            let (mut times, mut found) = (Vec::new(), 0);
            for _ in 0..pieces {
                let asked: Vec<_> = (0..each).map(|_| ask(&mut self.random, &self.keys)).collect();
                let clock = Instant::now();
                for (key, entries) in asked {
                    found += work(&self.keyspace, key, entries, &mut memory)?;
                    black_box(&memory);
                }
                times.push(clock.elapsed().as_nanos() as f64 / each as f64);
            }
            times.sort_by(f64::total_cmp);
            let middle = &times[times.len() / 4..(times.len() * 3).div_ceil(4)];
            let mean = middle.iter().sum::<f64>() / middle.len() as f64;
            println!("{name} {round}: {mean:.0} ns, {found} entries of {} reads", pieces * each);
        }
        Ok(())
    }

    /// Updates one key in twenty of as many requests as there are keys.
    fn freshen(&mut self) -> Result<()> {
        let value = vec![7; VALUE_BYTES];
        for _ in 0..self.keys.len() / 20 {
            let at = self.random.zipfian(self.keys.len() as u64);
            self.keyspace.insert(self.keys[at as usize], &value)?;
        }
        Ok(())
    }
}

fn run(dir: &Path, count: u64, rounds: u64, only: Option<&str>) -> Result<()> {
    let db =
        Database::builder(dir).memory_budget_bytes(256 << 20).memtable_bytes(32 << 20).open()?;
    let keyspace = db.keyspace("reads", KeyspaceOptions::default())?;
    let mut keys: Vec<[u8; 8]> = (0..count).map(|i| (mix(i) | 1).to_be_bytes()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut value = Random(1);
    let entries = keys.iter().map(|key| {
        let value: Vec<u8> =
            (0..VALUE_BYTES / 8).flat_map(|_| value.next().to_le_bytes()).collect();
        (*key, value)
    });
    keyspace.ingest(entries)?;
    let mut run = Run { keyspace, keys, random: Random(1 << 32), rounds };
    let wanted = |name| only.is_none_or(|only| only == name);
    let pieces = (count / 2000, 2000);
    let zipfian = |random: &mut Random, keys: &[[u8; 8]]| {
        (keys[random.zipfian(keys.len() as u64) as usize], 0)
    };
    if wanted("settled") {
        run.measure("settled", pieces, zipfian)?;
    }
    if wanted("scan") {
        run.measure("scan", (count / 2000, 100), |random, keys| {
            let at = random.zipfian(keys.len() as u64);
            (keys[at as usize], 1 + random.next() % SCAN_ENTRIES)
        })?;
    }
    if wanted("fresh") {
        run.freshen()?;
        run.keyspace.flush()?;
        for _ in 0..8 {
            run.freshen()?;
        }
        run.measure("fresh", pieces, zipfian)?;
    }
    if wanted("absent") {
        run.measure("absent", pieces, |random, keys| {
            let near = keys[random.zipfian(keys.len() as u64) as usize];
            // Keys are odd.
            ((u64::from_be_bytes(near) ^ 1).to_be_bytes(), 0)
        })?;
    }
    db.close()
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let parent = args.next().unwrap_or_else(|| ".".to_string());
    let mut number = |or| args.next().and_then(|text| text.parse().ok()).unwrap_or(or);
    let (count, rounds) = (number(1_000_000), number(3));
    let dir = Path::new(&parent).join(format!("reads-{}", std::process::id()));
    let done = run(&dir, count, rounds, args.next().as_deref());
    std::fs::remove_dir_all(&dir).ok();
    done
}
