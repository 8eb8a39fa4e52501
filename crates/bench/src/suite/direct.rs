//! Whether reads that were to go around the operating system's cache did.
//!
//! A store falls back to buffered reads where its file system refuses direct ones, and some file systems
//! take the flag and read through the cache all the same (tmpfs). No store says so. The kernel does: it
//! counts what it fetched for the process. Where a store counts what it asked for, the two are held
//! against each other over all phases of reads alone; else a file of the same directory is tried.

use std::path::Path;

use crate::engines::{Engine, EngineStats};
use crate::run::resources::Usage;
use crate::sizes::show_bytes;
use crate::workloads::Phase;

/// The part of what was asked for that must have been fetched.
const FETCHED: f64 = 0.9;
/// What a store asked its files for.
const ASKED: [&str; 2] = ["read_bytes", "value_read_bytes"];

/// Both counts, over phases of reads alone.
#[derive(Debug, Default, Clone, Copy)]
pub struct Witness {
    asked_bytes: f64,
    fetched_bytes: f64,
}

/// What an engine says it has asked its files for, bytes; 0 if it does not say.
fn asked(stats: &EngineStats) -> f64 {
    let of = |name: &&str| stats.figures.iter().find(|(known, _)| known == name).map(|(_, n)| *n);
    ASKED.iter().filter_map(of).sum()
}

impl Witness {
    /// What both counts are before `phase`, if it is one of reads alone and so counts.
    #[must_use]
    pub fn before(engine: &dyn Engine, phase: &Phase) -> Option<(f64, u64)> {
        let counts = matches!(phase, Phase::Mix(mix) if mix.only_reads());
        counts.then(|| (asked(&engine.stats()), Usage::now().read_bytes))
    }

    /// Counts a phase, whose [`Witness::before`] is known.
    pub fn after(&mut self, engine: &dyn Engine, (asked_before, fetched_before): (f64, u64)) {
        self.fetched_bytes += (Usage::now().read_bytes - fetched_before) as f64;
        self.asked_bytes += asked(&engine.stats()) - asked_before;
    }

    /// Why the reads were none around the cache, if they were none. `dir` is on the store's file system.
    #[must_use]
    pub fn verdict(&self, dir: &Path) -> Option<String> {
        if self.asked_bytes > 0.0 {
            return (self.fetched_bytes < FETCHED * self.asked_bytes).then(|| {
                format!(
                    "reads were NOT direct: the store asked its files for {}, the kernel fetched {}",
                    show_bytes(self.asked_bytes as u64),
                    show_bytes(self.fetched_bytes as u64)
                )
            });
        }
        let why = match read_around(dir) {
            Ok(true) => return None,
            Ok(false) => "the file system reads through its cache".to_string(),
            Err(error) => error.to_string(),
        };
        Some(format!("reads were NOT direct, as far as can be told: {}: {why}", dir.display()))
    }
}

/// Whether the kernel fetches a page of a new file in `dir` that is read around its cache.
#[cfg(target_os = "linux")]
fn read_around(dir: &Path) -> std::io::Result<bool> {
    use std::fs;
    use std::io::{Read, Write};

    /// A page that a direct read may fill.
    #[repr(align(4096))]
    struct Page([u8; 4096]);

    let path = dir.join("learnedkv-bench-direct");
    let mut page = Page([7; 4096]);
    let mut read = || -> std::io::Result<bool> {
        let mut file = fs::File::create(&path)?;
        file.write_all(&page.0)?;
        file.sync_all()?;
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
        let mut file = fs::File::from(rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?);
        let before = Usage::now().read_bytes;
        file.read_exact(&mut page.0)?;
        Ok(Usage::now().read_bytes - before >= 4096)
    };
    let fetched = read();
    let _ = fs::remove_file(&path);
    fetched
}

#[cfg(not(target_os = "linux"))]
fn read_around(_dir: &Path) -> std::io::Result<bool> {
    Err(std::io::Error::other("this system does not say what it fetched"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_asked_for_more_than_was_fetched_read_through_a_cache() {
        let dir = Path::new("/nonexistent");
        let said = |asked_bytes, fetched_bytes| Witness { asked_bytes, fetched_bytes }.verdict(dir);
        assert_eq!(said(1e6, 1.5e6), None);
        assert_eq!(said(1e6, 0.95e6), None);
        let words = said(1e6, 0.0).unwrap();
        assert!(words.contains("asked its files for 976.6 KiB, the kernel fetched 0 B"), "{words}");
        assert!(said(1e6, 0.8e6).is_some());
        // Nothing was asked for: the file system itself is tried, and here there is none.
        assert!(said(0.0, 0.0).unwrap().contains("as far as can be told: /nonexistent"));
    }
}
