//! What a store takes on the disk and in memory, watched while it works.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::run::resources::private_bytes;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(20);
/// So many looks at memory for one at the directory.
const MEMORY_LOOKS: u32 = 10;

#[derive(Debug, Default)]
struct Seen {
    stop: AtomicBool,
    most_data_bytes: AtomicU64,
    committed_bytes: AtomicU64,
    most_log_bytes: AtomicU64,
    most_memory_bytes: AtomicU64,
}

/// Looks at a directory until it is dropped.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to look at `dir`.
    pub fn begin(dir: &Path) -> Watch {
        Watch::beside(dir, || 0)
    }

    /// The same, of a store that says what its committed files take, bytes.
    pub fn beside(dir: &Path, committed: impl Fn() -> u64 + Send + 'static) -> Watch {
        let seen = Arc::new(Seen::default());
        let (dir, shared) = (dir.to_path_buf(), seen.clone());
        let thread = std::thread::spawn(move || {
            while !shared.stop.load(Relaxed) {
                let (data, log) = occupied(&dir);
                if data > shared.most_data_bytes.fetch_max(data, Relaxed) {
                    shared.committed_bytes.store(committed(), Relaxed);
                }
                shared.most_log_bytes.fetch_max(log, Relaxed);
                for _ in 0..MEMORY_LOOKS {
                    shared.most_memory_bytes.fetch_max(private_bytes(), Relaxed);
                    std::thread::sleep(EVERY / MEMORY_LOOKS);
                }
            }
        });
        Watch { seen, thread: Some(thread) }
    }

    /// The most that tables, filters and value segments took together, bytes.
    pub fn most_data_bytes(&self) -> u64 {
        self.seen.most_data_bytes.load(Relaxed)
    }

    /// What the store said when it was the most, bytes.
    pub fn committed_bytes(&self) -> u64 {
        self.seen.committed_bytes.load(Relaxed)
    }

    /// The most memory that the process had to itself, bytes. What lasts less than 2 ms may be missed.
    pub fn most_memory_bytes(&self) -> u64 {
        self.seen.most_memory_bytes.load(Relaxed)
    }

    /// The most that the log took, bytes.
    pub fn most_log_bytes(&self) -> u64 {
        self.seen.most_log_bytes.load(Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.seen.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What tables, filters and value segments in `dir` occupy now, bytes.
pub fn data_bytes(dir: &Path) -> u64 {
    occupied(dir).0
}

/// What the files in `dir` occupy: tables, filters and values; and the log. A file that goes meanwhile is
/// not counted.
fn occupied(dir: &Path) -> (u64, u64) {
    let (mut data, mut log) = (0, 0);
    let Ok(entries) = fs::read_dir(dir) else { return (0, 0) };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let bytes = metadata.blocks() * 512;
        let name: PathBuf = entry.file_name().into();
        let name = name.to_string_lossy();
        if ["table-", "filter-", "values-"].iter().any(|kind| name.starts_with(kind)) {
            data += bytes;
        } else if name.starts_with("log-") {
            log += bytes;
        }
    }
    (data, log)
}
