//! What is read off a run: the metrics of each of its workloads, and of the whole.

use super::child::ChildResult;
use crate::report::Report;
use crate::run::PhaseResult;

type OfPhase = fn(&Report, &PhaseResult) -> Option<f64>;
type OfRun = fn(&ChildResult) -> Option<f64>;

/// The metric that engines are ranked by.
pub const THROUGHPUT: &str = "throughput";

/// The same by the clock, with the client's own time in it: what is written to the disk meanwhile
/// costs, too.
pub const BY_CLOCK: &str = "throughput by the clock, client included";
/// How busy others kept the machine during a run.
pub const OTHERS_BUSY: &str = "others kept busy";
/// What is written to the block layer for what was put.
pub(super) const WRITTEN: &str = "written per byte put";
/// What the kernel counts when pages are dirtied. A B-tree dirties a page again and again before it is written,
/// and that counts once: such sums of its are of nothing.
pub(super) const DIRTIED: [&str; 3] = [WRITTEN, "device written", "device written in all"];

/// What the store's device completed, of the whole machine. Rows of every workload: where the device
/// cannot be found their cells are empty.
pub const DEVICE_REQUESTS: [&str; 2] = ["device read requests", "device write requests"];

/// Their unit.
const PER_OPERATION: &str = "per operation";

fn per_operation(phase: &PhaseResult, count: Option<u64>) -> Option<f64> {
    (phase.operations > 0).then_some(count? as f64 / phase.operations as f64)
}

/// Of a settling: what it took in all.
fn in_all(phase: &PhaseResult, what: f64) -> Option<f64> {
    (phase.name == SETTLE).then_some(what)
}

/// Whether operations followed each other as fast as they went.
pub(super) fn is_closed(phase: &PhaseResult) -> bool {
    phase.name != SETTLE && phase.rate_per_second.is_none()
}

/// Seconds that the clients of `phase` spent in the engine, each; none where that is not told
/// apart. A mix that did nothing at all was in the engine all the time.
pub(super) fn seconds_in_engine(phase: &PhaseResult) -> Option<f64> {
    let stalled = phase.operations == 0 && phase.asked_operations > 0;
    let each = phase.engine_seconds / phase.threads.max(1) as f64;
    if each > 0.0 { Some(each) } else { stalled.then_some(phase.seconds) }
}

/// What settling is called in a run.
pub(super) const SETTLE: &str = "settle";

/// Metrics of a workload: name, unit, how it is read off.
pub(super) const OF_PHASE: &[(&str, &str, OfPhase)] = &[
    // While the engine works: making requests and checking answers is the same for all, and left
    // out.
    (THROUGHPUT, "ops/s", |_, phase| {
        // In an open loop it is no more than what was asked for.
        let seconds = seconds_in_engine(phase).filter(|_| is_closed(phase))?;
        Some(phase.operations as f64 / seconds.max(1e-9))
    }),
    (BY_CLOCK, "ops/s", |_, phase| {
        is_closed(phase).then(|| phase.operations as f64 / phase.seconds.max(1e-9))
    }),
    ("reached", "ops/s", |_, phase| {
        phase.rate_per_second.map(|_| phase.operations as f64 / phase.seconds.max(1e-9))
    }),
    ("time", "s", |_, phase| in_all(phase, phase.seconds)),
    ("processor in all", "s", |_, phase| in_all(phase, phase.cpu_seconds)),
    ("device read in all", "MiB", |_, phase| in_all(phase, mib(phase.read_bytes))),
    ("device written in all", "MiB", |_, phase| in_all(phase, signed_mib(phase.written_bytes))),
    ("device read requests in all", "", |_, phase| in_all(phase, phase.device_reads? as f64)),
    ("device write requests in all", "", |_, phase| in_all(phase, phase.device_writes? as f64)),
    ("processor", "s per million operations", |_, phase| {
        // In an open loop a client's waiting is in it.
        let closed = phase.operations > 0 && phase.rate_per_second.is_none();
        closed.then(|| phase.cpu_seconds * 1e6 / phase.operations as f64)
    }),
    ("device read", "bytes per operation", |_, phase| {
        (phase.operations > 0).then(|| phase.read_bytes as f64 / phase.operations as f64)
    }),
    ("device written", "bytes per operation", |_, phase| {
        (phase.operations > 0).then(|| phase.written_bytes as f64 / phase.operations as f64)
    }),
    (DEVICE_REQUESTS[0], PER_OPERATION, |_, phase| per_operation(phase, phase.device_reads)),
    (DEVICE_REQUESTS[1], PER_OPERATION, |_, phase| per_operation(phase, phase.device_writes)),
    // RocksDB's, with `--option rocksdb:statistics=true`.
    ("found in the cache", "%", |_, phase| phase.cache?.percent()),
    ("peak memory", "MiB", |_, phase| Some(mib(phase.peak_memory_bytes))),
    ("peak anonymous memory", "MiB", |report, phase| {
        Some(mib(phase.peak_anonymous_bytes.saturating_sub(report.idle_anonymous_bytes)))
    }),
];

/// Those metrics of a whole run that are looked at over all cases.
pub const OVER_CASES: [&str; 3] = [WRITTEN, "most space after a workload", "metadata"];

/// Metrics of a whole run.
pub(super) const OF_RUN: &[(&str, &str, OfRun)] = &[
    // The last phase of every suite's list is a settle: what the mixes left to be done is in it.
    (WRITTEN, "", |result| {
        let phases = result.report.phases.iter();
        let put = phases.clone().map(|phase| phase.put_bytes).sum::<u64>() as f64;
        let written = phases.map(|phase| phase.written_bytes).sum::<i64>() as f64;
        (put > 0.0).then(|| written / put)
    }),
    ("space at the end", "MiB", |result| {
        result.report.phases.last().map(|phase| mib(phase.store_bytes))
    }),
    ("most space after a workload", "MiB", |result| {
        result.report.phases.iter().map(|phase| mib(phase.store_bytes)).reduce(f64::max)
    }),
    ("metadata", "bits per key", |result| {
        let figures = &result.report.engine_stats.figures;
        figures.iter().find(|(name, _)| name == "metadata_bits_per_entry").map(|(_, bits)| *bits)
    }),
    (OTHERS_BUSY, "cores", |result| Some(result.others_cores)),
];

fn signed_mib(bytes: i64) -> f64 {
    bytes as f64 / 1_048_576.0
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
