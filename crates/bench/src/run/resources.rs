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
    /// Bytes sent to the block layer (counted when a page is dirtied).
    pub written_bytes: u64,
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
            written_bytes: field(&io, "write_bytes:").unwrap_or(0),
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
