//! A whole run: keys, directory, engine, phases, report.

mod direct;
pub(crate) mod place;

use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use ::learnedkv::Compression;
use direct::Witness;
use place::Place;

use crate::engines::{Durability, Engine, OpenSettings, Reads, opener};
use crate::keys::{KeySpec, NamedKeys};
use crate::report::machine::Machine;
use crate::report::{self, Report, terminal, version};
use crate::requests::Distribution;
use crate::run::resources::{self, DeviceRequests};
use crate::run::{Limits, PhaseResult, Stage, Versions, inserts_at_most, run_phase};
use crate::sizes::{show_bytes, show_count};
use crate::values::{Compressibility, ValueSize, Values};
use crate::workloads::{NamedPhase, Phase};
use crate::{Error, Result};

/// Everything a run needs to know.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The engine's name.
    pub engine: String,
    /// How to open it; the directory is the run's, which puts the store into a folder of it.
    pub open: OpenSettings,
    /// Which keys.
    pub keys: KeySpec,
    /// How many of them at most, the smallest.
    pub max_keys: Option<u64>,
    /// How long values are.
    pub value_size: ValueSize,
    /// How much of them compresses.
    pub compressibility: Compressibility,
    /// What to do, in order.
    pub phases: Vec<NamedPhase>,
    /// Which keys are asked for.
    pub distribution: Distribution,
    /// How much, by how many.
    pub limits: Limits,
    /// Where the report goes.
    pub out: PathBuf,
    /// Whether the store stays.
    pub keep: bool,
}

/// Runs `plan`, telling `out` what happens; writes the report, and prints its path last.
///
/// # Errors
/// If something cannot be used or fails, and at the end if any read was wrong (the report is
/// written all the same).
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<Report> {
    let open = opener(&plan.engine)?;
    let inserts = inserts_at_most(&plan.phases, &plan.limits);
    let keys = plan.keys.make_to_grow(plan.limits.seed, plan.max_keys, inserts)?;
    let clients = plan.phases.iter().filter_map(|phase| phase.clients).max();
    let clients = clients.unwrap_or(0).max(plan.limits.threads);
    if clients > keys.loaded {
        return Err(Error::usage(format!(
            "--threads: {clients} clients cannot share {} keys; ask for fewer clients",
            keys.loaded
        )));
    }
    let size = Size::of(plan, &keys);
    place::check_room(&plan.open.dir, size.data_bytes)?;
    let place = Place::prepare(&plan.open.dir, plan.keep)?;
    report::check_writable(&plan.out)?;
    say(plan, out, &announce(plan, &keys, &size))?;

    let versions = Versions::new(keys.set.len());
    let values = Values::new(plan.value_size, plan.limits.seed).compressible(plan.compressibility);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut report = Report {
        version: version(),
        engine: plan.engine.clone(),
        engine_version: String::new(),
        command: crate::command::arguments().join(" "),
        started_unix_s: started.as_secs(),
        machine: Machine::here(),
        settings: settings(plan, &keys),
        idle_memory_bytes: resources::resident_bytes(),
        idle_anonymous_bytes: resources::private_bytes(),
        phases: Vec::new(),
        engine_stats: Default::default(),
        notes: Vec::new(),
    };
    let mut engine = open(&OpenSettings { dir: place.store(), ..plan.open.clone() })?;
    report.engine_version = engine.version();
    let (phases, witness) = run_phases(plan, &keys, &values, &versions, engine.as_mut(), &place)?;
    report.phases = phases;
    report.engine_stats = engine.stats();
    engine.close()?;
    if plan.open.reads == Reads::Direct {
        report.notes.extend(witness.verdict(&plan.open.dir));
    }
    place.leave()?;

    let path = report.write(&plan.out)?;
    say(plan, out, &format!("\n{}\n", terminal::table(&report)))?;
    for note in &report.notes {
        say(plan, out, &format!("{note}\n"))?;
    }
    if !plan.quiet_or_empty(&report.engine_stats.text) {
        say(plan, out, &format!("{}\n\n", report.engine_stats.text.trim_end()))?;
    }
    writeln!(out, "report: {}", path.display()).map_err(|e| Error::output(&e))?;
    match report.failures() {
        0 => Ok(report),
        failures => {
            let sample = report.phases.iter().flat_map(|p| &p.failure_samples).next();
            Err(Error::wrong_answer(format!(
                "{} reads were wrong; the first: {}",
                show_count(failures),
                sample.map_or("", String::as_str)
            )))
        }
    }
}

/// Opens the plan's engine with its settings on a store of its own in the plan's directory, closes
/// it, and removes it.
///
/// # Errors
/// If the engine cannot be opened so.
pub fn try_to_open(plan: &Plan) -> Result<()> {
    let place = Place::prepare(&plan.open.dir, false)?;
    opener(&plan.engine)?(&OpenSettings { dir: place.store(), ..plan.open.clone() })?.close()?;
    place.leave()
}

impl Plan {
    fn quiet_or_empty(&self, text: &str) -> bool {
        self.limits.quiet || text.trim().is_empty()
    }
}

fn run_phases(
    plan: &Plan,
    keys: &NamedKeys,
    values: &Values,
    versions: &Versions,
    engine: &mut dyn Engine,
    place: &Place,
) -> Result<(Vec<PhaseResult>, Witness)> {
    let order = keys.load_order(plan.limits.seed);
    let (set, loaded) = (&keys.set, keys.loaded);
    let mut stage = Stage { engine, keys: set, order: &order, loaded, values, versions };
    let (mut results, mut witness) = (Vec::new(), Witness::default());
    let direct = plan.open.reads == Reads::Direct;
    for phase in &plan.phases {
        let before = DeviceRequests::of(&place.store());
        let witnessed = if direct { Witness::before(stage.engine, &phase.phase) } else { None };
        let result = run_phase(&mut stage, phase, &plan.limits);
        let mut result =
            result.map_err(|error| error.within(&format!("workload {}", phase.name)))?;
        if let Some(before) = witnessed {
            witness.after(stage.engine, before);
        }
        let after = DeviceRequests::of(&place.store());
        let completed = before.zip(after).map(|(before, after)| after.since(before));
        result.device_reads = completed.map(|requests| requests.reads);
        result.device_writes = completed.map(|requests| requests.writes);
        result.store_bytes = resources::occupied_bytes(&place.store());
        results.push(result);
    }
    Ok((results, witness))
}

/// How big a run is.
struct Size {
    data_bytes: u64,
    seconds: f64,
}

impl Size {
    /// An estimate from rates that any machine of the last years reaches with room to spare.
    fn of(plan: &Plan, keys: &NamedKeys) -> Size {
        let count = keys.set.len() as f64;
        let data = keys.set.total_bytes() as f64 + count * plan.value_size.mean_bytes();
        let moved = data / 150e6;
        let seconds = plan.phases.iter().map(|phase| match phase.phase {
            Phase::Load | Phase::Bulk => moved + count / 300e3,
            Phase::Remove => count / 600e3,
            Phase::Ingest | Phase::Settle | Phase::Verify => moved,
            Phase::Mix(_) => {
                let limits = plan.limits.of(phase);
                let rate = limits.rate_per_second.unwrap_or(200e3 / phase.part as f64);
                (limits.operations as f64 / rate).min(limits.seconds.unwrap_or(f64::INFINITY))
            }
        });
        Size { data_bytes: data as u64, seconds: seconds.sum() }
    }
}

fn announce(plan: &Plan, keys: &NamedKeys, size: &Size) -> String {
    let names: Vec<&str> = plan.phases.iter().map(|p| p.name.as_str()).collect();
    let inserted = match keys.set.len() - keys.loaded {
        0 => String::new(),
        most => format!(" and up to {} to insert", show_count(most as u64)),
    };
    let notes: String = keys.notes.iter().map(|note| format!(" ({note})")).collect();
    let time = match size.seconds {
        s if s < 60.0 => format!("{:.0} s", s.max(1.0)),
        s => format!("{:.0} min", (s / 60.0).ceil()),
    };
    format!(
        "{}: {} keys ({}){inserted}{notes}, values of {} bytes, {} in all; {}\n\
         store in {}, durability {}; about {time}\n",
        plan.engine,
        show_count(keys.loaded as u64),
        keys.name,
        plan.value_size,
        show_bytes(size.data_bytes),
        names.join(" "),
        plan.open.dir.display(),
        match plan.open.durability {
            Durability::Buffered => "buffered (survives the death of the process)".to_owned(),
            Durability::SyncedEvery(_) =>
                format!("{} (of the machine, but for so long)", plan.open.durability),
            Durability::Synced => "synced (survives the death of the machine)".to_owned(),
        }
    )
}

/// Every setting by name, for the report.
fn settings(plan: &Plan, keys: &NamedKeys) -> Vec<(String, String)> {
    let bytes = |asked: Option<u64>| asked.map_or("the store's own".to_string(), show_bytes);
    let how = |asked: Option<Compression>| {
        asked.map_or("the store's own".to_string(), |asked| asked.to_string())
    };
    let limits = &plan.limits;
    let options = plan.open.options.iter().map(|(name, value)| format!("{name}={value}"));
    let options = match options.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "the store's own".to_string(),
        some => some,
    };
    [
        ("keys", format!("{}, {} distinct", keys.name, show_count(keys.loaded as u64))),
        ("keys to insert at most", show_count((keys.set.len() - keys.loaded) as u64)),
        ("value size", plan.value_size.to_string()),
        ("compressible share of values", plan.compressibility.to_string()),
        ("requests", plan.distribution.to_string()),
        ("operations per workload", show_count(limits.operations)),
        ("seconds per workload at most", limits.seconds.map_or("none".into(), |s| s.to_string())),
        (
            "rate",
            limits
                .rate_per_second
                .map_or("closed loop, but for what a workload says".into(), |r| {
                    format!("{r}/s, Poisson arrivals")
                }),
        ),
        ("client threads", limits.threads.to_string()),
        ("memory budget", bytes(plan.open.memory_budget_bytes)),
        ("memtable", bytes(plan.open.memtable_bytes)),
        ("block size", bytes(plan.open.block_size_bytes)),
        ("compression", how(plan.open.compression)),
        ("of settled data", how(plan.open.settled_compression.or(plan.open.compression))),
        ("durability", plan.open.durability.to_string()),
        ("reads", plan.open.reads.to_string()),
        ("settled", limits.settling.name().to_string()),
        ("options", options),
        ("seed", limits.seed.to_string()),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into()
}

fn say(plan: &Plan, out: &mut dyn Write, text: &str) -> Result<()> {
    if plan.limits.quiet {
        return Ok(());
    }
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|e| Error::output(&e))
}
