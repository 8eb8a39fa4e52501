//! The machine a run was made on, as far as it matters to the figures. No names, no addresses.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::run::resources::field;

/// What the figures depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Operating system and its version.
    pub system: String,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Machine {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown", |(_, model)| model.trim());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: model.to_string(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: memory("MemTotal:").unwrap_or(0),
            system: format!("{} {}", std::env::consts::OS, kernel.trim()),
        }
    }
}

/// Memory that could be used now without swapping, in bytes, where the system says so.
#[must_use]
pub fn available_memory_bytes() -> Option<u64> {
    memory("MemAvailable:")
}

fn memory(name: &str) -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, name).map(|kib| kib * 1024)
}
