//! Runs phases on an engine: client threads in a closed loop (or at a given rate), every answer
//! checked against the expected versions, latencies, throughput over time, and what it cost.

pub(crate) mod arrivals;
mod client;
pub mod resources;
mod result;
mod versions;

use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

pub use client::MAX_SCAN_ENTRIES;
use client::{Client, Progress};
pub use result::{Failures, Latency, PhaseResult, Tally};
pub use versions::Versions;

use crate::Result;
use crate::engines::Engine;
use crate::keys::{KeySet, LoadOrder};
use crate::random::mix;
use crate::requests::Chooser;
use crate::sizes::show_key;
use crate::values::Values;
use crate::workloads::{NamedPhase, Phase, Settling, WRITE_MANY_KEYS};

/// How often the watching thread looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(10);
/// The longest that a mix may be asked to take, in seconds: a year.
pub const MOST_SECONDS: f64 = 31_536_000.0;
/// Most points in a timeline; beyond it, neighbours are joined.
const TIMELINE_POINTS: usize = 240;

/// What phases run on: an engine, what goes into it, and what is known to be in it.
pub struct Stage<'a> {
    /// The engine; a full compaction has it to itself.
    pub engine: &'a mut dyn Engine,
    /// The keys.
    pub keys: &'a KeySet,
    /// The order they are loaded in, and then inserted.
    pub order: &'a LoadOrder,
    /// How many of them are loaded.
    pub loaded: usize,
    /// The values.
    pub values: &'a Values,
    /// What must be in the engine.
    pub versions: &'a Versions,
}

/// How much is done, by how many.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Client threads (at least 1, at most one per key).
    pub threads: usize,
    /// Operations of a mix, all clients together.
    pub operations: u64,
    /// When a mix stops at the latest, in seconds.
    pub seconds: Option<f64>,
    /// Operations per second of a mix, all clients together: an open loop of Poisson arrivals, whose
    /// latencies count from when an operation was due. `None` is a closed loop, as fast as it goes.
    pub rate_per_second: Option<f64>,
    /// Where the randomness of requests starts.
    pub seed: u64,
    /// What settling is.
    pub settling: Settling,
    /// Whether to show no progress.
    pub quiet: bool,
}

/// Runs one phase. `store_bytes` of the result is left at 0, and the device's requests are left out: the
/// caller knows the directory.
///
/// # Errors
/// If the engine failed. Wrong answers are no error here: they are counted in the result.
pub fn run_phase(
    stage: &mut Stage<'_>,
    named: &NamedPhase,
    limits: &Limits,
) -> Result<PhaseResult> {
    let limits = &limits.of(named);
    // What it costs to make is nothing of the engine's, nor of the phase's.
    let chooser = match &named.phase {
        Phase::Mix(mix) => {
            let (keys, reached) = (stage.keys.len() as u64, stage.versions.reached().max(1));
            Some(Chooser::growing(mix.distribution, keys, reached, stage.order))
        }
        _ => None,
    };
    let cache_before = stage.engine.cache_counts();
    resources::reset_peak_memory();
    let before = resources::Usage::now();
    let memory = resources::MemoryWatch::begin();
    let measured = match &named.phase {
        Phase::Load | Phase::Bulk | Phase::Remove | Phase::Mix(_) => {
            run_clients(stage, named, limits, chooser.as_ref())?
        }
        Phase::Ingest => alone(named, limits, |bar| ingest(stage, bar))?,
        Phase::Settle => alone(named, limits, |_| {
            let settled = match limits.settling {
                Settling::AtRest => stage.engine.settle(),
                Settling::Compacted => stage.engine.compact(),
            };
            settled.map(|()| Tally::default())
        })?
        .without(stage.engine.looked_on()),
        Phase::Verify => alone(named, limits, |bar| verify(stage, bar))?,
    };
    let used = resources::Usage::now().since(before);
    let Measured { tally, threads, seconds, timeline } = measured;
    Ok(PhaseResult {
        name: named.name.to_string(),
        about: named.about.to_string(),
        threads,
        rate_per_second: limits.rate_per_second,
        share_of_rate: tally.share_of_rate,
        operations: tally.operations,
        asked_operations: chooser.map_or(0, |_| limits.operations),
        warms_up: named.warms_up,
        seconds,
        throughput_ops_per_s: tally.operations as f64 / seconds.max(1e-9),
        engine_seconds: tally.engine_ns as f64 / 1e9,
        latencies: tally.latencies(),
        checked: tally.checked,
        failures: tally.failures.count,
        failure_samples: tally.failures.samples,
        cpu_seconds: used.cpu_seconds,
        peak_memory_bytes: resources::peak_memory_bytes(),
        peak_anonymous_bytes: memory.most_anonymous_bytes(),
        read_bytes: used.read_bytes,
        written_bytes: used.written_bytes,
        device_reads: None,
        device_writes: None,
        cache: cache_before.zip(stage.engine.cache_counts()).map(|(before, now)| now.since(before)),
        put_bytes: tally.put_bytes,
        store_bytes: 0,
        timeline_interval_s: timeline.interval.as_secs_f64(),
        timeline_ops_per_s: timeline.rates(),
    })
}

impl Limits {
    /// These, but for what `named` says of itself.
    pub(crate) fn of(&self, named: &NamedPhase) -> Limits {
        let mix = matches!(named.phase, Phase::Mix(_));
        Limits {
            operations: (self.operations / named.part).max(1).saturating_mul(named.times),
            seconds: self.seconds.map(|each| (each * named.times as f64).min(MOST_SECONDS)),
            threads: named.clients.unwrap_or(self.threads),
            rate_per_second: named.rate_per_second.or(self.rate_per_second).filter(|_| mix),
            ..self.clone()
        }
    }
}

/// How many keys `phases` insert at most, beside those that are loaded: what is likely, and six deviations
/// of each client more. A client inserts keys of its own, so that no two meet and each run has the same.
#[must_use]
pub fn inserts_at_most(phases: &[NamedPhase], limits: &Limits) -> usize {
    let of_phase = |named: &NamedPhase| {
        let Phase::Mix(mix) = &named.phase else { return 0 };
        let limits = limits.of(named);
        let clients = limits.threads as u64;
        let operations = limits.operations.div_ceil(clients);
        let likely = operations as f64 * f64::from(mix.inserts()) / 100.0;
        let most = (likely + 6.0 * likely.sqrt()).ceil() as u64;
        most.min(operations).saturating_mul(clients)
    };
    let all = phases.iter().map(of_phase).fold(0, u64::saturating_add);
    usize::try_from(all).unwrap_or(usize::MAX)
}

/// What was measured in a phase, before it is put into words.
struct Measured {
    tally: Tally,
    threads: usize,
    seconds: f64,
    timeline: Timeline,
}

/// Where the randomness of a phase's requests starts: by the run's seed, the phase's name and its place,
/// so that a phase that comes again asks for other keys, and every engine is asked the same.
fn requests_seed(seed: u64, named: &NamedPhase) -> u64 {
    let named_seed = named.name.bytes().fold(seed, |seed, b| mix(seed ^ u64::from(b)));
    mix(named_seed ^ named.position as u64)
}

impl Measured {
    /// The same without so much of its time.
    fn without(self, wasted: Duration) -> Measured {
        let seconds = (self.seconds - wasted.as_secs_f64()).max(0.0);
        Measured { seconds, ..self }
    }
}

/// Runs `work` in this thread.
fn alone(
    named: &NamedPhase,
    limits: &Limits,
    work: impl FnOnce(&ProgressBar) -> Result<Tally>,
) -> Result<Measured> {
    let bar = progress_bar(&named.name, 0, limits.quiet);
    let start = Instant::now();
    let tally = work(&bar);
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let timeline = Timeline::new(start);
    Ok(Measured { tally: tally?, threads: 1, seconds, timeline })
}

/// Runs the clients of a load, a removal or a mix (which has a chooser), and watches them.
fn run_clients(
    stage: &Stage<'_>,
    named: &NamedPhase,
    limits: &Limits,
    chooser: Option<&Chooser<'_>>,
) -> Result<Measured> {
    let threads = limits.threads;
    let total = chooser.map_or(stage.loaded as u64, |_| limits.operations);
    let seed = requests_seed(limits.seed, named);
    let progress = Progress::default();
    let bar = progress_bar(&named.name, total, limits.quiet);
    let barrier = Barrier::new(threads + 1);
    let (outcomes, timeline) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let (progress, barrier) = (&progress, &barrier);
                scope.spawn(move || {
                    let client = Client::new(stage, limits, progress, thread, seed);
                    barrier.wait();
                    let begun = Instant::now();
                    let outcome = match (&named.phase, chooser) {
                        (Phase::Mix(mix), Some(chooser)) => {
                            let share = total / threads as u64
                                + u64::from((thread as u64) < total % threads as u64);
                            client.run(mix, chooser.clone(), share)
                        }
                        (Phase::Remove, _) => client.remove(),
                        (Phase::Bulk, _) => client.load(WRITE_MANY_KEYS),
                        _ => client.load(1),
                    };
                    if outcome.is_err() {
                        progress.stop.store(true, Ordering::Relaxed);
                    }
                    (outcome, begun, Instant::now())
                })
            })
            .collect();
        barrier.wait();
        let mut timeline = Timeline::new(Instant::now());
        while !clients.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(WATCH_INTERVAL);
            let done = progress.done.load(Ordering::Relaxed);
            timeline.look(done);
            bar.set_position(done);
        }
        let outcomes: Vec<_> = clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        (outcomes, timeline)
    });
    bar.finish_and_clear();
    stage.versions.reach(stage.loaded as u64);
    // By the clients' own clocks: this thread may wake when they are done.
    let begun = outcomes.iter().map(|(_, begun, _)| *begun).min();
    let ended = outcomes.iter().map(|(_, _, ended)| *ended).max();
    let mut tally = Tally::default();
    for (outcome, ..) in outcomes {
        tally.absorb(outcome?);
    }
    let seconds = begun.zip(ended).map_or(0.0, |(begun, ended)| (ended - begun).as_secs_f64());
    Ok(Measured { tally, threads, seconds, timeline })
}

/// Hands every key to the engine, sorted.
fn ingest(stage: &Stage<'_>, bar: &ProgressBar) -> Result<Tally> {
    let mut tally = Tally::default();
    bar.set_length(stage.loaded as u64);
    let mut loaded = vec![stage.loaded == stage.keys.len(); stage.keys.len()];
    (0..stage.loaded).for_each(|position| loaded[stage.order.index_at(position)] = true);
    let ranks = || (0..stage.keys.len()).filter(|&index| loaded[index]);
    let mut entries = ranks().map(|index| {
        let key = stage.keys.key(index).as_ref().to_vec();
        let version = stage.versions.begin(index);
        let mut value = Vec::new();
        stage.values.fill(&key, version, &mut value);
        tally.operations += 1;
        tally.put_bytes += (key.len() + value.len()) as u64;
        if index.is_multiple_of(1024) {
            bar.set_position(index as u64);
        }
        (key, value)
    });
    stage.engine.ingest(&mut entries)?;
    drop(entries);
    ranks().for_each(|index| stage.versions.finish(index, 1));
    stage.versions.reach(stage.loaded as u64);
    Ok(tally)
}

/// Reads the whole store in order: exactly the keys of the set that were written and not removed, each
/// with its last version.
fn verify(stage: &Stage<'_>, bar: &ProgressBar) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut next = 0;
    let mut scratch = Vec::new();
    bar.set_length(stage.keys.len() as u64);
    let missing = |ranks: std::ops::Range<usize>, tally: &mut Tally| {
        for lost in ranks.filter(|&rank| stage.versions.is_there(rank)) {
            tally.failures.add(|| lost_key(stage.keys.key(lost).as_ref()));
        }
    };
    stage.engine.scan(b"", &mut |key, value| {
        tally.operations += 1;
        tally.checked += 1;
        while next < stage.keys.len() && !stage.versions.is_there(next) {
            next += 1;
        }
        if next == stage.keys.len() || key != stage.keys.key(next).as_ref() {
            // Find our place again, so that one missing key is one failure and not thousands.
            match stage.keys.rank(key) {
                Some(rank) if stage.versions.is_removed(rank) => {
                    let failures = &mut tally.failures;
                    failures.add(|| format!("key {} was removed, and is there", show_key(key)));
                    return true;
                }
                Some(rank) if !stage.versions.is_there(rank) => {
                    let failures = &mut tally.failures;
                    failures.add(|| format!("key {} was never written", show_key(key)));
                    return true;
                }
                Some(rank) if rank > next => {
                    missing(next..rank, &mut tally);
                    next = rank;
                }
                Some(_) => {
                    tally.failures.add(|| format!("key {} comes out of order", show_key(key)));
                    return true;
                }
                None => {
                    tally.failures.add(|| format!("key {} was never written", show_key(key)));
                    return true;
                }
            }
        }
        let version = stage.versions.floor(next);
        if let Err(mismatch) = stage.values.check(key, version..=version, value, &mut scratch) {
            tally.failures.add(|| mismatch.to_string());
        }
        next += 1;
        if next.is_multiple_of(1024) {
            bar.set_position(next as u64);
        }
        true
    })?;
    missing(next..stage.keys.len(), &mut tally);
    Ok(tally)
}

fn lost_key(key: &[u8]) -> String {
    format!("key {}: expected in the full scan, found nothing", show_key(key))
}

/// A bar on standard error; hidden where that is not a terminal. Without a known length, a spinner.
fn progress_bar(name: &str, length: u64, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let template = if length == 0 {
        "{prefix:>10} {spinner} {elapsed}"
    } else {
        "{prefix:>10} [{bar:32}] {human_pos}/{human_len} {per_sec} {eta}"
    };
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    let bar = ProgressBar::new(length).with_style(style).with_prefix(name.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Operations over time, in at most [`TIMELINE_POINTS`] intervals of equal length.
struct Timeline {
    interval: Duration,
    next: Instant,
    /// Operations done at the end of each interval.
    done: Vec<u64>,
}

impl Timeline {
    fn new(start: Instant) -> Timeline {
        let interval = Duration::from_millis(100);
        Timeline { interval, next: start + interval, done: Vec::new() }
    }

    /// Notes how many operations are done now.
    fn look(&mut self, done: u64) {
        let now = Instant::now();
        while self.next <= now {
            self.done.push(done);
            self.next += self.interval;
        }
        if self.done.len() > TIMELINE_POINTS {
            // Keep every second end; an odd one out waits for its partner.
            if !self.done.len().is_multiple_of(2) {
                self.done.pop();
                self.next -= self.interval;
            }
            self.done = self.done.chunks_exact(2).map(|pair| pair[1]).collect();
            self.interval *= 2;
            self.next += self.interval / 2;
        }
    }

    /// Operations per second in each interval.
    fn rates(&self) -> Vec<f64> {
        let mut before = 0;
        let per_interval = |&done: &u64| {
            let rate = (done - before) as f64 / self.interval.as_secs_f64();
            before = done;
            rate.round()
        };
        self.done.iter().map(per_interval).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Distribution;
    use crate::workloads::parse_phases;

    #[test]
    fn a_multiple_of_the_operations_has_a_multiple_of_the_time_and_a_part_has_all_of_it() {
        let limits = Limits {
            threads: 1,
            operations: 300,
            seconds: Some(120.0),
            rate_per_second: None,
            seed: 1,
            settling: Settling::AtRest,
            quiet: true,
        };
        let list = "load,A,C*10,E/20,E/20*2,E/1000,C*100m";
        let phases = parse_phases(list, Distribution::Uniform).unwrap();
        let of: Vec<_> = phases.iter().map(|named| limits.of(named)).collect();
        let operations: Vec<u64> = of.iter().map(|limits| limits.operations).collect();
        assert_eq!(operations[1..], [300, 3_000, 15, 30, 1, 30_000_000_000]);
        let seconds: Vec<f64> = of.iter().filter_map(|limits| limits.seconds).collect();
        assert_eq!(seconds[1..], [120.0, 1_200.0, 120.0, 240.0, 120.0, MOST_SECONDS]);
    }
}
