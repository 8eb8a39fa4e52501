//! What the process used, as the kernel counts it. Where the kernel does not say, it is zero.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Counters that only grow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Processor time of all threads, user and system, in seconds.
    pub cpu_seconds: f64,
    /// Bytes fetched from the block layer.
    pub read_bytes: u64,
    /// Bytes sent to the block layer: pages that were dirtied, less those that went dirty with their file and so never got
    /// there (a log that is removed once a flush has made it useless). Of a span in which more goes than is dirtied, negative.
    pub written_bytes: i64,
}

impl Usage {
    /// The counters now.
    #[must_use]
    pub fn now() -> Usage {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        Usage {
            cpu_seconds: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            read_bytes: field(&io, "read_bytes:").unwrap_or(0),
            written_bytes: written_bytes(&io),
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            read_bytes: self.read_bytes - earlier.read_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
        }
    }
}

/// What a process wrote, of its `/proc/*/io`.
fn written_bytes(io: &str) -> i64 {
    let of = |name| field(io, name).unwrap_or(0) as i64;
    of("write_bytes:") - of("cancelled_write_bytes:")
}

/// Requests that a device has completed, of whoever asked. They only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRequests {
    /// Reads, as the device was given them: what the kernel joined counts once.
    pub reads: u64,
    /// Writes, likewise.
    pub writes: u64,
}

impl DeviceRequests {
    /// Those of the device that holds `dir`, now. None where it cannot be found: the file system has
    /// no one device (overlay, tmpfs), or the system does not count.
    #[must_use]
    pub fn of(dir: &Path) -> Option<DeviceRequests> {
        let device = rustix::fs::stat(dir).ok()?.st_dev;
        let table = fs::read_to_string("/proc/diskstats").ok()?;
        DeviceRequests::in_table(&table, rustix::fs::major(device), rustix::fs::minor(device))
    }

    /// From the kernel's table: major and minor number, name, reads completed, reads merged, sectors
    /// read, ms; writes completed, and so on.
    fn in_table(table: &str, major: u32, minor: u32) -> Option<DeviceRequests> {
        let numbers = [major.to_string(), minor.to_string()];
        let line = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let words = line.into_iter().find(|words| words.get(..2).is_some_and(|w| w == numbers))?;
        let count = |at: usize| words.get(at)?.parse().ok();
        Some(DeviceRequests { reads: count(3)?, writes: count(7)? })
    }

    /// What was completed since `earlier`.
    #[must_use]
    pub fn since(self, earlier: DeviceRequests) -> DeviceRequests {
        DeviceRequests {
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
        }
    }
}

/// Starts a new high-water mark of resident memory, where the kernel allows it; otherwise the mark
/// stays that of the whole process.
pub fn reset_peak_memory() {
    // "5" is the kernel's word for it (proc_pid_clear_refs(5)). A refusal leaves a mark that is too
    // high, never too low.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The high-water mark of resident memory, in bytes.
#[must_use]
pub fn peak_memory_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// Resident memory now, in bytes.
#[must_use]
pub fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// Resident memory that the process has to itself now, bytes: without the pages of mapped files, which are
/// the page cache's.
#[must_use]
pub fn private_bytes() -> u64 {
    status_bytes("RssAnon:")
}

/// How often anonymous memory is looked at: the kernel keeps no high-water mark of it.
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// Looks at anonymous memory until it is dropped.
#[derive(Debug)]
pub struct MemoryWatch {
    stop: Arc<AtomicBool>,
    most_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Begins to look.
    #[must_use]
    pub fn begin() -> MemoryWatch {
        let stop = Arc::new(AtomicBool::new(false));
        let most_bytes = Arc::new(AtomicU64::new(private_bytes()));
        let (stopped, most) = (stop.clone(), most_bytes.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                most.fetch_max(private_bytes(), Ordering::Relaxed);
                std::thread::park_timeout(WATCH_EVERY);
            }
        });
        MemoryWatch { stop, most_bytes, thread: Some(thread) }
    }

    /// The most there was so far, now included, in bytes.
    #[must_use]
    pub fn most_anonymous_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed).max(private_bytes())
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn status_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, name).unwrap_or(0) * 1024
}

/// The number behind `name` in a `/proc` file of `name  number` lines.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes that the files below `dir` occupy on disk.
#[must_use]
pub fn occupied_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => occupied_bytes(&entry.path()),
            Ok(data) => data.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "   7       0 loop0 870 0 13960 92 210445 350324 4232056 154142 0 1 2 0 0 0 0 1 1
 254       0 vda 6604353 246267 645958938 9935567 4315793 227863 1042111936 4859288 0 1 2 4 6 1 1 1 5
 254       1 vda1 11 2 3 4 22 6 7 8 0 9 10";

    /// Logs of RocksDB's that were removed before they were written counted as written: a byte for each byte put.
    #[test]
    fn what_went_before_it_was_written_is_not_written() {
        let io =
            "wchar: 9\nsyscw: 8\nread_bytes: 3\nwrite_bytes: 4096\ncancelled_write_bytes: 1024\n";
        assert_eq!((written_bytes(io), written_bytes("")), (3072, 0));
        let Some(all) = fs::read_to_string("/proc/self/io").ok().filter(|io| !io.is_empty()) else {
            return learnedkv_skips::skip(
                "proc_io",
                "this system does not count what a process writes",
            );
        };
        assert!(field(&all, "cancelled_write_bytes:").is_some(), "{all}");
    }

    #[test]
    fn requests_are_those_of_the_device_and_no_other() {
        let of = |major, minor| DeviceRequests::in_table(TABLE, major, minor);
        assert_eq!(of(254, 0), Some(DeviceRequests { reads: 6_604_353, writes: 4_315_793 }));
        assert_eq!(of(254, 1), Some(DeviceRequests { reads: 11, writes: 22 }));
        // As an overlay's: no such line.
        assert_eq!((of(0, 52), of(25, 0)), (None, None));
        let (before, after) = (of(254, 1).unwrap(), DeviceRequests { reads: 15, writes: 22 });
        assert_eq!(after.since(before), DeviceRequests { reads: 4, writes: 0 });
        assert_eq!(DeviceRequests::of(Path::new("/nonexistent/dir")), None);
    }
}
