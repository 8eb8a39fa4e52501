//! F3 (burst) and F8: updates, timed until the last flush is committed, and what they write.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use super::kernel::{Account, Losses};
use super::sheet::{Rounds, Target};
use super::store::{MEMTABLE_BYTES, Shape, Store, VALUE_BYTES};
use super::{Run, remove};
use crate::keys::{Generator, KeySet, LoadOrder};
use crate::random::{Rng, mix};
use crate::requests::{Chooser, Distribution};
use crate::run::resources::Usage;
use crate::sizes::show_count;
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

const BURST: Target = Target::AtLeast { must: 400e3, aim: 600e3 };
/// Bytes written per byte put: uniform, zipfian.
const WRITTEN: [Target; 2] =
    [Target::AtMost { must: 6.5, aim: 5.6 }, Target::AtMost { must: 4.0, aim: 3.3 }];
const KEYS: u64 = 1_000_000;
const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Uniform, Distribution::Zipfian];
/// So many memtables are 256 MiB.
const FLUSHES_OF: f64 = (256 << 20) as f64 / MEMTABLE_BYTES as f64;
/// How much is written to see what the disk takes.
const SEQUENTIAL_BYTES: u64 = 1 << 30;
const LEAST_FLUSHES: f64 = 6.0;

/// The rounds of one distribution.
#[derive(Default)]
struct Measured {
    puts: Rounds,
    client: Rounds,
    flushes: Rounds,
    cpu_us: Rounds,
    own_written: Rounds,
    kernel_written: Rounds,
    swept: Rounds,
    written_per_s: Rounds,
    /// Of the client, until the last put.
    lost: Losses,
    /// What of that was the pace of writers, or a flush that they waited for, by the store's counter.
    held_back: Rounds,
}

struct Updates<'a> {
    store: &'a Store,
    keys: &'a KeySet,
    values: &'a Values,
    versions: Vec<u32>,
    memtable_bytes: f64,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let count = run.scale.of(KEYS);
    let keys = Generator::Uniform.generate(count as usize, run.seed);
    let values = Values::new(ValueSize::Fixed(VALUE_BYTES), run.seed);
    let shape = run.usual.or(Shape::default())?;
    let values = shape.values(&values);
    let store = Store::open(&run.dir, run.scale, shape)?;
    store.ingest(&keys, &values)?;
    let mut updates = Updates {
        store: &store,
        keys: &keys,
        values: &values,
        versions: vec![1; keys.len()],
        memtable_bytes: run.scale.of(MEMTABLE_BYTES) as f64,
    };
    let making_ns = updates.making_ns();
    let disk = sequential_write(&run.dir, run.scale.of(SEQUENTIAL_BYTES))?;
    let mut measured = [Measured::default(), Measured::default()];
    for round in 0..run.rounds {
        for (distribution, measured) in DISTRIBUTIONS.into_iter().zip(&mut measured) {
            updates.round(distribution, mix(run.seed ^ u64::from(round)), measured)?;
        }
    }
    store.check_all(&keys, &values, &updates.versions)?;
    drop(updates);
    store.close()?;
    remove(&run.dir)?;
    tables(run, count, making_ns, &measured);
    run.sheet.line(&format!(
        "The disk alone, one file written in order and synced: {:.0} MB/s.",
        disk / 1e6
    ));
    Ok(())
}

/// What the disk of `dir` takes, bytes a second: a file of `bytes` written in order, then synced.
fn sequential_write(dir: &Path, bytes: u64) -> Result<f64> {
    let path = dir.join("sequential-write");
    let piece: Vec<u8> = (0..1 << 17).flat_map(|i: u64| mix(i).to_le_bytes()).collect();
    let write = || -> std::io::Result<f64> {
        let clock = Instant::now();
        let mut file = File::create(&path)?;
        let mut written_bytes = 0;
        while written_bytes < bytes {
            file.write_all(&piece)?;
            written_bytes += piece.len() as u64;
        }
        file.sync_data()?;
        Ok(written_bytes as f64 / clock.elapsed().as_secs_f64())
    };
    let rate = write();
    let removed = fs::remove_file(&path);
    rate.and_then(|rate| removed.map(|()| rate)).map_err(|e| Error::io("write", &path, &e))
}

impl Updates<'_> {
    /// What making a key and a value costs the client, ns.
    fn making_ns(&self) -> f64 {
        let (mut value, mut rng) = (Vec::new(), Rng::seeded(1));
        let (clock, count) = (Instant::now(), self.keys.len().min(200_000));
        for _ in 0..count {
            let key = self.keys.key(rng.below(self.keys.len() as u64) as usize);
            self.values.fill(key.as_ref(), 1, &mut value);
            std::hint::black_box(&value);
        }
        clock.elapsed().as_nanos() as f64 / count as f64
    }

    /// As many updates as there are keys, from a settled store to a settled store.
    fn round(&mut self, kind: Distribution, seed: u64, measured: &mut Measured) -> Result<()> {
        self.store.settle()?;
        let (count, order) = (self.keys.len(), LoadOrder::Sorted);
        let chooser = Chooser::new(kind, count as u64, &order);
        let mut rng = Rng::seeded(seed);
        let ranks: Vec<u32> = (0..count).map(|_| chooser.next(&mut rng) as u32).collect();
        let mut value = Vec::new();
        let (before, used, account) = (self.store.stats(), Usage::now(), Account::begin());
        let clock = Instant::now();
        for rank in ranks {
            let rank = rank as usize;
            self.versions[rank] += 1;
            let key = self.keys.key(rank);
            self.values.fill(key.as_ref(), self.versions[rank], &mut value);
            self.store.insert(key.as_ref(), &value)?;
        }
        let client_s = clock.elapsed().as_secs_f64();
        measured.lost.push(account.lost());
        let held_ms = self.store.stats().held_back_ms - before.held_back_ms;
        measured.held_back.push(held_ms as f64 / 1e3 / client_s);
        self.store.flush()?;
        let seconds = clock.elapsed().as_secs_f64();
        let (after, burst) = (self.store.stats(), Usage::now().since(used));
        self.store.settle()?;
        let (settled, all) = (self.store.stats(), Usage::now().since(used));
        let count = count as f64;
        measured.puts.push(count / seconds);
        measured.client.push(count / client_s);
        measured.written_per_s.push(burst.written_bytes as f64 / seconds);
        measured.cpu_us.push(burst.cpu_seconds * 1e6 / count);
        let put_bytes = (after.put_bytes - before.put_bytes) as f64;
        let flushes = (after.flushes - before.flushes) as f64;
        measured.flushes.push(flushes * FLUSHES_OF * self.memtable_bytes / put_bytes);
        let tables = |s: &::learnedkv::Stats| s.flushed_bytes + s.merged_bytes + s.swept_bytes;
        let own = (tables(&settled) - tables(&before)) as f64;
        measured.own_written.push(1.0 + own / put_bytes);
        measured.kernel_written.push(all.written_bytes as f64 / put_bytes);
        let moved = after.swept_bytes + after.merged_bytes;
        measured.swept.push((moved - before.swept_bytes - before.merged_bytes) as f64 / put_bytes);
        if settled.keyspaces.iter().any(|k| k.settled_share() < 1.0) {
            return Err(Error::runtime("the store is not settled after a conversion"));
        }
        Ok(())
    }
}

fn tables(run: &mut Run, count: u64, making_ns: f64, measured: &[Measured; 2]) {
    run.sheet.head("F3: burst of updates");
    run.sheet.line(&format!(
        "{} updates of as many settled keys, {VALUE_BYTES} B, buffered, one client; the clock stops \
         when the last flush is committed, and making keys and values ({making_ns:.0} ns) is in it. \
         k puts/s as median (lowest-highest) of {} rounds, from settled to settled; must 400, aim \
         600, and at least {LEAST_FLUSHES} flushes per 256 MiB put. Of the client's time, by the kernel: it wanted to run and had \
         no processor, or slept (what the host took of the machine's processors, added up, of which some may have been the client's, is beside it); by the store's counter: it was held back, mostly asleep (for its pace, or a flush). Sustained puts: the figure `sustained`.",
        show_count(count),
        run.rounds,
    ));
    let mut rows = Vec::new();
    for (distribution, m) in DISTRIBUTIONS.iter().zip(measured) {
        let [queued, asleep, stolen] = m.lost.show();
        let enough = m.flushes.median() >= LEAST_FLUSHES;
        rows.push(vec![
            distribution.to_string(),
            m.puts.show(1e3, 0),
            m.client.show(1e3, 0),
            m.flushes.show(1.0, 1),
            m.swept.show(1.0, 2),
            m.cpu_us.show(1.0, 2),
            queued,
            asleep,
            stolen,
            m.held_back.show(0.01, 1),
            m.written_per_s.show(1e6, 0),
            match enough {
                true => BURST.judge_rounds(&m.puts, 1.0),
                false => format!("**too few flushes**, {}", BURST.judge_rounds(&m.puts, 1.0)),
            },
        ]);
    }
    let names = [
        "updates",
        "k puts/s",
        "as the client sees it",
        "flushes per 256 MiB",
        "merged and swept meanwhile, bytes a byte",
        "CPU us a put",
        "no processor, %",
        "asleep, %",
        "taken by the host, %",
        "held back, %",
        "written MB/s",
        "stands",
    ];
    run.sheet.table(&names, &rows);
    run.sheet.head("F8: bytes written per byte put");
    run.sheet.line(
        "The same rounds, each up to the end of its conversion, which is asked for: log, flushes, \
         merges and sweeps by the store's counters, and what the kernel counts for the process. \
         Must 6.5 uniform, 4 zipfian; aim 5.6, 3.3.",
    );
    let row = |((distribution, m), target): ((&Distribution, &Measured), Target)| {
        let judged = target.judge_rounds(&m.kernel_written, 1.0);
        let cells = [m.own_written.show(1.0, 2), m.kernel_written.show(1.0, 2), judged];
        std::iter::once(distribution.to_string()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = DISTRIBUTIONS.iter().zip(measured).zip(WRITTEN).map(row).collect();
    run.sheet.table(&["updates", "store's counters", "kernel", "stands"], &rows);
}
