//! F11: memory while a value of 1 GiB is written, settled and read.

use std::io::{BufRead, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use super::sheet::{Rounds, Target};
use super::store::{Shape, Store};
use super::watch::Watch;
use super::{Run, remove};
use crate::random::mix;
use crate::run::resources::{peak_memory_bytes, private_bytes, reset_peak_memory, resident_bytes};
use crate::sizes::show_bytes;
use crate::{Error, Result};

/// Peak memory above idle, bytes.
const MEMORY: Target = Target::AtMost { must: (16 << 20) as f64, aim: (4 << 20) as f64 };
/// The value, bytes.
const VALUE_BYTES: u64 = 1 << 30;
/// The store is idle once as much is resident in so many looks one after the other; it is waited for so many at most.
const LOOKS: u32 = 10;
const MOST_LOOKS: u32 = 500;
/// How long it is between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes that differ everywhere, of a seed, without holding them: eight at a time, by place.
struct Noise {
    seed: u64,
    at: u64,
    left: u64,
}

impl Noise {
    fn byte(&self) -> u8 {
        mix(self.seed ^ (self.at >> 3)).to_le_bytes()[(self.at & 7) as usize]
    }
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = (buffer.len() as u64).min(self.left) as usize;
        for byte in &mut buffer[..length] {
            *byte = self.byte();
            self.at += 1;
        }
        self.left -= length as u64;
        Ok(length)
    }
}

/// The rounds of one thing done to the value.
#[derive(Default)]
struct Measured {
    own: Rounds,
    resident: Rounds,
    bytes_per_second: Rounds,
}

impl Measured {
    /// Does `work`, which handles the value once.
    fn round(&mut self, dir: &Path, bytes: u64, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let (idle, idle_own) = (resident_bytes(), private_bytes());
        let watch = Watch::begin(dir);
        reset_peak_memory();
        let clock = Instant::now();
        work()?;
        self.bytes_per_second.push(bytes as f64 / clock.elapsed().as_secs_f64());
        self.own.push(watch.most_memory_bytes().saturating_sub(idle_own) as f64);
        self.resident.push(peak_memory_bytes().saturating_sub(idle) as f64);
        Ok(())
    }
}

/// Waits until what is made ready after the first commit is ready: until so much is resident as was a moment ago. False: that
/// never was so. (The memory of
/// two segments of the log counted as the first value's where that had begun before they were.)
fn await_idle() -> bool {
    let mut before = resident_bytes();
    let mut unchanged = 0;
    for _ in 0..MOST_LOOKS {
        std::thread::sleep(LOOK);
        let now = resident_bytes();
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
        if unchanged == LOOKS {
            return true;
        }
    }
    false
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let bytes = run.scale.of(VALUE_BYTES).max(2 << 20);
    run.sheet.head("F11: memory for a value of 1 GiB");
    run.sheet.line(&format!(
        "A value of {} is put from a reader, flushed and settled, and read from a reader and checked \
         byte by byte. Memory above what it was before, at its highest: what the process has to itself \
         (`RssAnon`, looked at every 2 ms); and all that is resident (`VmHWM`, reset each time), with the pages \
         of the log that are mapped, which are the page cache's. Before the first round a key is put and settled, and it is waited until what is resident stands still. Must {} of both, in the worst round. Median (lowest-highest) of {} rounds, each overwriting the value of the last. The speeds \
         include making and checking the bytes.",
        show_bytes(bytes),
        show_bytes(16 << 20),
        run.rounds,
    ));
    let store = Store::open(&run.dir, run.scale, Shape::default())?;
    store.insert(b"a key", b"a value")?;
    store.settle()?;
    if !await_idle() {
        run.sheet.line("What is resident never stood still before the first round: it counts what moved there too.");
    }
    let [mut put, mut settled, mut read] = <[Measured; 3]>::default();
    for round in 0..run.rounds {
        let seed = mix(run.seed ^ u64::from(round));
        put.round(&run.dir, bytes, || {
            let noise = Noise { seed, at: 0, left: bytes };
            let written = store.keyspace.insert_reader("value", noise);
            written.map(drop).map_err(|e| Error::engine("a put from a reader", e))
        })?;
        settled.round(&run.dir, bytes, || store.settle())?;
        read.round(&run.dir, bytes, || check(&store, Noise { seed, at: 0, left: bytes }))?;
    }
    store.close()?;
    remove(&run.dir)?;
    let row = |name: &str, measured: &Measured| {
        vec![
            name.to_string(),
            measured.own.show((1 << 20) as f64, 1),
            MEMORY.judge_worst(&measured.own, 1.0),
            measured.resident.show((1 << 20) as f64, 1),
            MEMORY.judge_worst(&measured.resident, 1.0),
            measured.bytes_per_second.show(1e6, 0),
        ]
    };
    let rows = [row("put", &put), row("flushed and settled", &settled), row("read", &read)];
    let names = ["the value is", "MiB above idle", "stands", "resident, MiB", "stands", "MB/s"];
    run.sheet.table(&names, &rows);
    Ok(())
}

fn check(store: &Store, mut expected: Noise) -> Result<()> {
    let reader = store.keyspace.get_reader("value").map_err(|e| Error::engine("get_reader", e))?;
    let Some(mut reader) = reader else {
        return Err(Error::wrong_answer("the value is not there"));
    };
    loop {
        let bytes = reader.fill_buf().map_err(|e| Error::engine("reading", e))?;
        let length = bytes.len();
        for byte in bytes {
            if expected.left == 0 || *byte != expected.byte() {
                let place = expected.at;
                return Err(Error::wrong_answer(format!("byte {place} of the value is another")));
            }
            (expected.at, expected.left) = (expected.at + 1, expected.left - 1);
        }
        reader.consume(length);
        if length == 0 {
            break;
        }
    }
    match expected.left {
        0 => Ok(()),
        left => Err(Error::wrong_answer(format!("the value ends {left} bytes early"))),
    }
}
