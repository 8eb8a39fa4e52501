//! What one phase of a run measured.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::engines::CacheCounts;
use crate::workloads::Operation;

/// Latencies above this are counted as this, in nanoseconds.
const LONGEST_NS: u64 = 600_000_000_000;
/// How many wrong answers are kept with their words; all are counted.
const KEPT_FAILURES: usize = 10;

/// What one phase measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// The phase's name.
    pub name: String,
    /// What it does.
    pub about: String,
    /// Client threads.
    pub threads: usize,
    /// The operations a second that were asked for, of an open loop; none of a closed one.
    pub rate_per_second: Option<f64>,
    /// Of an open loop: the share of its rate that the client reached who reached the least. Arrivals are random, so
    /// it is the time until his last operation was due, of the time until he had done all.
    #[serde(default)]
    pub share_of_rate: Option<f64>,
    /// Operations done.
    pub operations: u64,
    /// Of a mix: the operations it was to do. Fewer are done where the time limit ends it.
    #[serde(default)]
    pub asked_operations: u64,
    /// Whether it only made the store ready for what followed.
    #[serde(default)]
    pub warms_up: bool,
    /// From the first operation to the last, in seconds.
    pub seconds: f64,
    /// Operations per second over that time, checking and all.
    pub throughput_ops_per_s: f64,
    /// Time spent inside the engine, summed over threads, in seconds: the rest is making requests
    /// and values, and checking.
    pub engine_seconds: f64,
    /// Latencies by operation.
    pub latencies: Vec<Latency>,
    /// Reads and scanned entries that were checked (every one that was made).
    pub checked: u64,
    /// Checks that failed.
    pub failures: u64,
    /// The first few failures, in words.
    pub failure_samples: Vec<String>,
    /// Processor time of the process, in seconds.
    pub cpu_seconds: f64,
    /// Peak resident memory during the phase, in bytes.
    pub peak_memory_bytes: u64,
    /// Peak of the part of it that is no file's, in bytes: looked at every few milliseconds.
    pub peak_anonymous_bytes: u64,
    /// Bytes fetched from the device.
    pub read_bytes: u64,
    /// Bytes written to the device; see [`Usage`](super::resources::Usage).
    pub written_bytes: i64,
    /// Read requests that the store's device completed meanwhile, whoever asked; none where the device
    /// cannot be found.
    pub device_reads: Option<u64>,
    /// Write requests, likewise.
    pub device_writes: Option<u64>,
    /// What the store found in its cache and what not, if it counts that.
    #[serde(default)]
    pub cache: Option<CacheCounts>,
    /// Key and value bytes given to the engine to store.
    pub put_bytes: u64,
    /// Bytes the store occupies on disk at the end.
    pub store_bytes: u64,
    /// Length of one interval of [`PhaseResult::timeline_ops_per_s`], in seconds.
    pub timeline_interval_s: f64,
    /// Operations per second over time.
    pub timeline_ops_per_s: Vec<f64>,
}

impl PhaseResult {
    /// Whether the time limit ended it.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.operations < self.asked_operations
    }
}

/// Latencies of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Which operation.
    pub operation: String,
    /// How many.
    pub count: u64,
    /// Mean, in microseconds.
    pub latency_us_mean: f64,
    /// Median, in microseconds.
    pub latency_us_p50: f64,
    /// 99th percentile, in microseconds.
    pub latency_us_p99: f64,
    /// 99.9th percentile, in microseconds.
    pub latency_us_p999: f64,
    /// Longest, in microseconds.
    pub latency_us_max: f64,
}

/// Wrong answers: all counted, the first few kept.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    /// How many.
    pub count: u64,
    /// The first few, in words.
    pub samples: Vec<String>,
}

impl Failures {
    /// Counts one, told by `words` if it is among the first.
    #[cold]
    pub fn add(&mut self, words: impl FnOnce() -> String) {
        self.count += 1;
        if self.samples.len() < KEPT_FAILURES {
            self.samples.push(words());
        }
    }

    fn absorb(&mut self, other: Failures) {
        self.count += other.count;
        self.samples.extend(other.samples);
        self.samples.truncate(KEPT_FAILURES);
    }
}

/// What one client counted; clients' tallies add up.
#[derive(Debug, Default)]
pub struct Tally {
    /// Operations done.
    pub operations: u64,
    /// Reads and scanned entries checked.
    pub checked: u64,
    /// Wrong answers.
    pub failures: Failures,
    /// Key and value bytes stored.
    pub put_bytes: u64,
    /// Time inside the engine, in nanoseconds.
    pub engine_ns: u64,
    /// See [`PhaseResult::share_of_rate`].
    pub share_of_rate: Option<f64>,
    histograms: [Option<Histogram<u64>>; Operation::ALL.len()],
}

impl Tally {
    /// Records one operation of `service_ns` inside the engine and `latency_ns` as the client saw
    /// it (the same unless the client was behind its schedule).
    #[inline]
    pub fn record(&mut self, operation: Operation, service_ns: u64, latency_ns: u64) {
        self.operations += 1;
        self.engine_ns += service_ns;
        let histogram = self.histograms[operation as usize].get_or_insert_with(|| {
            Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid")
        });
        histogram.saturating_record(latency_ns);
    }

    /// Adds another client's tally.
    pub fn absorb(&mut self, other: Tally) {
        self.operations += other.operations;
        self.checked += other.checked;
        self.failures.absorb(other.failures);
        self.put_bytes += other.put_bytes;
        self.engine_ns += other.engine_ns;
        let shares = self.share_of_rate.into_iter().chain(other.share_of_rate);
        self.share_of_rate = shares.reduce(f64::min);
        for (mine, theirs) in self.histograms.iter_mut().zip(other.histograms) {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => {
                    mine.add(theirs).expect("histograms share their bounds");
                }
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
    }

    /// The latencies of every operation that happened.
    #[must_use]
    pub fn latencies(&self) -> Vec<Latency> {
        let us = |ns: u64| ns as f64 / 1e3;
        Operation::ALL
            .into_iter()
            .filter_map(|operation| {
                let histogram = self.histograms[operation as usize].as_ref()?;
                Some(Latency {
                    operation: operation.name().to_string(),
                    count: histogram.len(),
                    latency_us_mean: histogram.mean() / 1e3,
                    latency_us_p50: us(histogram.value_at_quantile(0.5)),
                    latency_us_p99: us(histogram.value_at_quantile(0.99)),
                    latency_us_p999: us(histogram.value_at_quantile(0.999)),
                    latency_us_max: us(histogram.max()),
                })
            })
            .collect()
    }
}
