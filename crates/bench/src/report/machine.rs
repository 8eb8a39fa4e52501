//! The machine a run was made on, as far as it matters to the figures. No names, no addresses.

use std::fs;
use std::time::Instant;

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
    /// What a reading of the clock takes, ns; 0 in reports that do not say.
    #[serde(default)]
    pub clock_ns: f64,
}

/// So many readings one after the other say what one takes.
const READINGS: u32 = 100_000;

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
            clock_ns: clock_ns(),
        }
    }

    /// What is to be known of the shortest times.
    #[must_use]
    pub fn clock(&self) -> String {
        let takes = match self.clock_ns {
            0.0 => "an unknown time".to_string(),
            ns => format!("{ns:.0} ns"),
        };
        format!("a reading of the clock takes {takes} here, and is in each operation's time")
    }
}

fn clock_ns() -> f64 {
    let start = Instant::now();
    let last = (0..READINGS).fold(start, |_, _| Instant::now());
    last.duration_since(start).as_nanos() as f64 / f64::from(READINGS)
}

/// Memory that could be used now without swapping, in bytes, where the system says so.
#[must_use]
pub fn available_memory_bytes() -> Option<u64> {
    memory("MemAvailable:")
}

fn memory(name: &str) -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, name).map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_of_the_clock_takes_time() {
        let machine = Machine { clock_ns: 21.7, ..Machine::here() };
        assert!(Machine::here().clock_ns > 0.0 && machine.clock().contains(" 22 ns "));
        // Of a report from before that was asked.
        let mut old = serde_json::to_value(&machine).unwrap();
        old.as_object_mut().unwrap().remove("clock_ns");
        let old: Machine = serde_json::from_value(old).unwrap();
        assert!(old.clock().contains("an unknown time"));
    }
}
