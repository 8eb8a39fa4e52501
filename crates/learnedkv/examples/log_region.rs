//! How fast is a log region? Reserves and publishes records, then syncs a few small ones.
//!
//! `cargo run --release --example log_region -- [directory [MiB of a region [syncs]]]` (default: the
//! current one, 32, 200) prints a line per kind of region. One thread, 1 KiB records.

use std::path::Path;
use std::time::{Duration, Instant};

use learnedkv::Result;
use learnedkv::disk::Disk;
use learnedkv::disk::real::{LogRegionKind, RealDisk};

const RECORD_BYTES: usize = 1 << 10;
const REGIONS: usize = 8;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| ".".into());
    let mut number = |or| args.next().and_then(|arg| arg.parse().ok()).unwrap_or(or);
    let (region_bytes, syncs) = (number(32) << 20, number(200).max(1) as usize);
    for kind in [LogRegionKind::Mapped, LogRegionKind::Buffered] {
        measure(Path::new(&dir), kind, region_bytes, syncs)?;
    }
    Ok(())
}

fn measure(dir: &Path, kind: LogRegionKind, region_bytes: u64, syncs: usize) -> Result<()> {
    let disk = RealDisk::with_log_regions(kind);
    let path = dir.join("log_region_example.tmp");
    let record = [0xa5; RECORD_BYTES];
    let (mut creating, mut publishing, mut records) = (Duration::ZERO, Duration::ZERO, 0);
    let mut final_sync = Duration::ZERO;
    for _ in 0..REGIONS {
        let start = Instant::now();
        let region = disk.create_log_region(&path, region_bytes)?;
        region.expect_syncs(false);
        region.make_ready(0..region_bytes);
        creating += start.elapsed();
        let start = Instant::now();
        while let Some(place) = region.reserve(RECORD_BYTES) {
            region.publish(place, &mut |bytes| bytes.copy_from_slice(&record))?;
            records += 1;
        }
        publishing += start.elapsed();
        let start = Instant::now();
        region.sync(region_bytes)?;
        final_sync += start.elapsed();
        disk.remove(&path)?;
    }

    let region = disk.create_log_region(&path, region_bytes)?;
    region.expect_syncs(true);
    region.make_ready(0..region_bytes);
    let mut latencies = Vec::new();
    for _ in 0..syncs {
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
        latencies[latencies.len() / 2].as_micros(),
        latencies[latencies.len() * 99 / 100].as_micros(),
    );
    Ok(())
}
