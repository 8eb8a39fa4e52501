//! What the device leaves: how many reads a second it answers to one thread with no store in the way, measured after
//! each round of a case whose reads go to the device. A client that asks an engine which needs a read a key, from memory nothing, gets
//! no more answers.
//!
//! The file is as large as the case's keys and values and lies where the stores lie; reads are at random
//! places of it, around the system's cache, of one page and of two (what a block of 4 KiB takes that begins
//! anywhere), one by one and 32 at once.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use ::learnedkv::disk::real::RealDisk;
use ::learnedkv::disk::{Access, Disk, File, ReadRequest};
use serde::{Deserialize, Serialize};

use crate::random::Rng;
use crate::report::median;
use crate::run::resources::Usage;
use crate::suite::place::Place;
use crate::{Error, Result};

const PAGE_BYTES: u64 = 4096;
/// Pages of a read.
const PAGES: [u64; 2] = [1, 2];
/// Reads of a call: as many keys as the mix `multiget` asks for.
const TOGETHER: [usize; 2] = [1, 32];
/// The part of what was asked for that the kernel must have fetched.
const FETCHED: f64 = 0.9;
const WRITTEN_AT_ONCE: u64 = 1 << 20;

/// Reads a second of a round: of one page and of two, each one by one and 32 at once.
pub type Speeds = [[f64; 2]; 2];

/// What the device did in the rounds of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The case.
    pub case: String,
    /// One of each round.
    pub rounds: Vec<Speeds>,
}

impl Device {
    /// Adds a round of `case`.
    pub(super) fn add(devices: &mut Vec<Device>, case: &str, speeds: Speeds) {
        match devices.iter_mut().find(|device| device.case == case) {
            Some(device) => device.rounds.push(speeds),
            None => devices.push(Device { case: case.to_string(), rounds: vec![speeds] }),
        }
    }
}

/// Tries the device that `dir` is on with a file of `bytes`, each way of reading for so long.
///
/// # Errors
/// If `dir` or the file cannot be made; and in words, as the inner one, why reads there are of no device.
pub(super) fn speeds(
    dir: &Path,
    bytes: u64,
    tried: Duration,
    seed: u64,
) -> Result<std::result::Result<Speeds, String>> {
    let place = Place::prepare(dir, false)?;
    let file = place.store().join("device");
    let disk = RealDisk::new();
    let failed = |e| Error::engine("trying the device", e);
    disk.create_dir(&place.store()).map_err(failed)?;
    let pages = (bytes / PAGE_BYTES).max(4);
    write(&*disk.create(&file).map_err(failed)?, pages, seed).map_err(failed)?;
    let opened = disk.open(&file, Access::Direct).map_err(failed)?;
    let (before, mut asked_bytes) = (Usage::now().read_bytes, 0);
    let mut speeds = Speeds::default();
    let mut rng = Rng::seeded(seed);
    for (of_read, speeds) in PAGES.into_iter().zip(&mut speeds) {
        for (together, speed) in TOGETHER.into_iter().zip(speeds) {
            let (mut reads, clock) = (0u64, Instant::now());
            while clock.elapsed() < tried {
                let requests = (0..together).map(|_| ReadRequest {
                    file: opened.clone(),
                    offset_bytes: rng.below(pages - of_read + 1) * PAGE_BYTES,
                    buffer: vec![0; (of_read * PAGE_BYTES) as usize],
                    around: false,
                });
                let answers = disk.read_all(requests.collect());
                answers.into_iter().try_for_each(|answer| answer.map(drop)).map_err(failed)?;
                reads += together as u64;
            }
            *speed = reads as f64 / clock.elapsed().as_secs_f64();
            asked_bytes += reads * of_read * PAGE_BYTES;
        }
    }
    let fetched_bytes = Usage::now().read_bytes - before;
    drop(opened);
    place.leave()?;
    if (fetched_bytes as f64) < FETCHED * asked_bytes as f64 {
        return Ok(Err(format!(
            "reads of the device alone were none: asked for {asked_bytes} bytes around the system's cache, \
             the kernel fetched {fetched_bytes}"
        )));
    }
    Ok(Ok(speeds))
}

/// Fills `file` with so many pages that nothing compresses, and syncs it.
fn write(file: &dyn File, pages: u64, seed: u64) -> ::learnedkv::Result<()> {
    let mut rng = Rng::seeded(seed);
    let mut offset_bytes = 0;
    while offset_bytes < pages * PAGE_BYTES {
        let bytes = WRITTEN_AT_ONCE.min(pages * PAGE_BYTES - offset_bytes);
        let words = (0..bytes / 8).flat_map(|_| rng.next_u64().to_le_bytes());
        file.write_all_at(&words.collect::<Vec<u8>>(), offset_bytes)?;
        offset_bytes += bytes;
    }
    file.sync()
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |pages: usize, together: usize| {
            let mut rounds: Vec<f64> =
                self.rounds.iter().map(|speeds| speeds[pages][together] / 1e3).collect();
            rounds.sort_by(f64::total_cmp);
            let (first, last) = (rounds.first().unwrap_or(&0.0), rounds.last().unwrap_or(&0.0));
            format!("{:.1} ({first:.1}-{last:.1})", median(&rounds).unwrap_or(0.0))
        };
        write!(
            f,
            "{}: the device alone, after each round, thousands of reads a second of one thread at random places of a file as \
             large, around the system's cache: of 4 KiB {} one by one, {} by calls of {}; of 8 KiB {} and {}",
            self.case,
            of(0, 0),
            of(0, 1),
            TOGETHER[1],
            of(1, 0),
            of(1, 1)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::suites::suite;
    use super::*;

    #[test]
    fn the_device_is_tried_where_data_is_beyond_memory() {
        let beyond = |of: &str| -> Vec<&str> {
            let cases = suite(of).unwrap().cases.iter();
            let beyond = cases.filter(|case| case.bytes_beyond_memory().is_some());
            beyond.map(|case| case.name).collect()
        };
        assert_eq!(beyond("cold").len(), suite("cold").unwrap().cases.len());
        assert_eq!(beyond("ycsb"), Vec::<&str>::new());
        let of_memory = beyond("memory");
        assert!(of_memory.iter().any(|case| case.contains("256 MiB")), "{of_memory:?}");
        assert!(!of_memory.iter().any(|case| case.contains("2 GiB")), "{of_memory:?}");
    }

    #[test]
    fn it_leaves_nothing_behind_and_tells_how_far_rounds_differ() {
        let dir = tempfile::tempdir().unwrap();
        let tried = Duration::from_millis(20);
        let of_one = speeds(&dir.path().join("d"), 1 << 20, tried, 1).unwrap();
        assert!(!dir.path().join("d").exists());
        match of_one {
            Err(why) => assert!(why.contains("the kernel fetched"), "{why}"),
            Ok(speeds) => assert!(speeds.iter().flatten().all(|speed| *speed > 0.0), "{speeds:?}"),
        }
        let rounds = [1e4, 1.2e4, 1.4e4].map(|single| [[single, 4e4], [9e3, 3.5e4]]);
        let device = Device { case: "c".to_string(), rounds: rounds.to_vec() };
        let words = device.to_string();
        let found = "of 4 KiB 12.0 (10.0-14.0) one by one, 40.0 (40.0-40.0) by calls of 32; of 8 KiB 9.0 (9.0-9.0)";
        assert!(words.contains(found), "{words}");
    }
}
