//! How fast is a log region? Reserves and publishes records, then syncs a few small ones.
//!
//! `cargo run --release --example log_region -- [directory]` (default: the current one) prints a
//! line per kind of region. One thread, 1 KiB records, 32 MiB regions.

use std::path::Path;
use std::time::{Duration, Instant};

use learnedkv::Result;
use learnedkv::disk::Disk;
use learnedkv::disk::real::{LogRegionKind, RealDisk};

const RECORD_BYTES: usize = 1 << 10;
const REGION_BYTES: u64 = 32 << 20;
const REGIONS: usize = 8;
const SYNCS: usize = 200;

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    for kind in [LogRegionKind::Mapped, LogRegionKind::Buffered] {
        measure(Path::new(&dir), kind)?;
    }
    Ok(())
}

fn measure(dir: &Path, kind: LogRegionKind) -> Result<()> {
    let disk = RealDisk::with_log_regions(kind);
    let path = dir.join("log_region_example.tmp");
    let record = [0xa5; RECORD_BYTES];
    let (mut creating, mut publishing, mut records) = (Duration::ZERO, Duration::ZERO, 0);
    let mut final_sync = Duration::ZERO;
    for _ in 0..REGIONS {
        let start = Instant::now();
        let region = disk.create_log_region(&path, REGION_BYTES)?;
        creating += start.elapsed();
        let start = Instant::now();
        while let Some(place) = region.reserve(RECORD_BYTES) {
            region.publish(place, &mut |bytes| bytes.copy_from_slice(&record))?;
            records += 1;
        }
        publishing += start.elapsed();
        let start = Instant::now();
        region.sync(REGION_BYTES)?;
        final_sync += start.elapsed();
        disk.remove(&path)?;
    }

    let region = disk.create_log_region(&path, REGION_BYTES)?;
    let mut latencies = Vec::new();
    for _ in 0..SYNCS {
        if let Some(place) = region.reserve(RECORD_BYTES) {
            let up_to_bytes = place.offset_bytes() + RECORD_BYTES as u64;
            region.publish(place, &mut |bytes| bytes.copy_from_slice(&record))?;
            let start = Instant::now();
            region.sync(up_to_bytes)?;
            latencies.push(start.elapsed());
        }
    }
    disk.remove(&path)?;
    latencies.sort_unstable();

    println!(
        "{kind:?}: {:.2} M records/s; create {} us a region; sync of a full region {} us; sync of \
         one record {} us (median), {} us (p99)",
        f64::from(records) / publishing.as_secs_f64() / 1e6,
        creating.as_micros() / REGIONS as u128,
        final_sync.as_micros() / REGIONS as u128,
        latencies[SYNCS / 2].as_micros(),
        latencies[SYNCS * 99 / 100].as_micros(),
    );
    Ok(())
}
