//! Tests of the workload library from outside: one binary, one file per subject.

mod baseline;
mod compare;
mod engines;
mod figures;
mod interrupt;
mod keys;
mod kill;
mod liars;
mod report;
mod requests;

use std::path::Path;

use learnedkv_bench::engines::OpenSettings;
use learnedkv_bench::requests::Distribution;
use learnedkv_bench::run::Limits;
use learnedkv_bench::suite::Plan;
use learnedkv_bench::workloads::{Settling, parse_phases};

/// A tiny run of `phases` on the baseline, below `dir`.
fn tiny_plan(dir: &Path, phases: &str, threads: usize) -> Plan {
    Plan {
        engine: "btree-map".to_string(),
        open: OpenSettings::at(&dir.join("store")),
        keys: "clustered:500".parse().unwrap(),
        max_keys: None,
        value_size: "normal:60:20".parse().unwrap(),
        compressibility: "0.5".parse().unwrap(),
        phases: parse_phases(phases, Distribution::Zipfian).unwrap(),
        distribution: Distribution::Zipfian,
        limits: Limits {
            threads,
            operations: 2000,
            seconds: Some(30.0),
            rate_per_second: None,
            seed: 1,
            settling: Settling::Compacted,
            quiet: true,
        },
        out: dir.join("out"),
        keep: false,
    }
}
