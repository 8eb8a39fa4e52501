//! Workloads: mixes of operations, named as YCSB names them.
//!
//! Where YCSB inserts new keys (D, E) so do these: a key set then has more keys than are loaded
//! ([`crate::keys::KeySpec::make_to_grow`]), which lie among the others. D reads the keys that came last,
//! whatever the run's distribution.
//!
//! A list of workloads may say for each mix how many clients do it and at which rate operations
//! arrive: `C@4` is C by four clients, `A=50k` is A in an open loop of 50,000 operations a second,
//! `A@2=50k` both. `E/20` is E with a twentieth of the operations: a scan is as much work as many
//! gets, and a run that gives each mix the same number would spend itself on scans. `absent*10` is absent
//! with ten times the operations, and ten times the time limit: some are over before their rate means
//! anything. `~C` is a C that warms up: done and checked, and in no comparison.

use crate::requests::Distribution;
use crate::sizes::parse_count;
use crate::{Error, Result};

/// What a client does to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Store a key that is not there yet.
    Insert,
    /// Get a key that is there.
    Read,
    /// Overwrite a key.
    Update,
    /// Get a key, then overwrite it.
    ReadModifyWrite,
    /// Read up to 100 entries in order, from a key on (lengths uniform from 1).
    Scan,
    /// Get a key that is not there.
    ReadAbsent,
    /// Get several keys by one call.
    ReadMany,
    /// Read ten entries in order, from a key on.
    ScanTen,
    /// Overwrite [`WRITE_MANY_KEYS`] keys by one commit.
    WriteMany,
    /// Remove [`WRITE_MANY_KEYS`] keys by one commit.
    RemoveMany,
    /// Read the entries between two keys that have about ten between them.
    RangeTen,
    /// The same with a hundred.
    RangeHundred,
    /// The same with a thousand.
    RangeThousand,
}

/// Writes of one commit, where there are several.
pub const WRITE_MANY_KEYS: usize = 1_000;
/// Keys that are read by one call.
pub const READ_MANY_KEYS: usize = 32;

impl Operation {
    /// Every operation, in the order of their reports.
    pub const ALL: [Operation; 13] = [
        Operation::Insert,
        Operation::Read,
        Operation::Update,
        Operation::ReadModifyWrite,
        Operation::Scan,
        Operation::ReadAbsent,
        Operation::ReadMany,
        Operation::ScanTen,
        Operation::WriteMany,
        Operation::RemoveMany,
        Operation::RangeTen,
        Operation::RangeHundred,
        Operation::RangeThousand,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Insert => "insert",
            Operation::Read => "read",
            Operation::Update => "update",
            Operation::ReadModifyWrite => "read-modify-write",
            Operation::Scan => "scan",
            Operation::ReadAbsent => "read absent",
            Operation::ReadMany => "read many",
            Operation::ScanTen => "scan of 10",
            Operation::WriteMany => "write many",
            Operation::RemoveMany => "remove many",
            Operation::RangeTen => "range of 10",
            Operation::RangeHundred => "range of 100",
            Operation::RangeThousand => "range of 1000",
        }
    }

    /// Whether it writes nothing.
    #[must_use]
    pub fn reads(self) -> bool {
        match self {
            Operation::Read
            | Operation::Scan
            | Operation::ReadAbsent
            | Operation::ReadMany
            | Operation::ScanTen
            | Operation::RangeTen
            | Operation::RangeHundred
            | Operation::RangeThousand => true,
            Operation::Insert
            | Operation::Update
            | Operation::ReadModifyWrite
            | Operation::WriteMany
            | Operation::RemoveMany => false,
        }
    }

    /// Of a range: how many keys its bounds are apart.
    #[must_use]
    pub fn span(self) -> Option<usize> {
        match self {
            Operation::RangeTen => Some(10),
            Operation::RangeHundred => Some(100),
            Operation::RangeThousand => Some(1000),
            _ => None,
        }
    }
}

/// A mix of operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    /// Shares in percent; they add up to 100.
    pub shares: Shares,
    /// Which keys are asked for.
    pub distribution: Distribution,
}

impl Mix {
    /// The operation for a number below 100.
    #[inline]
    #[must_use]
    pub fn operation(&self, percent: u64) -> Operation {
        let mut below = 0;
        for &(operation, share) in self.shares {
            below += u64::from(share);
            if percent < below {
                return operation;
            }
        }
        self.shares[self.shares.len() - 1].0
    }

    /// How much of it inserts new keys, per cent.
    #[must_use]
    pub fn inserts(&self) -> u32 {
        let inserts = self.shares.iter().filter(|(operation, _)| *operation == Operation::Insert);
        inserts.map(|(_, share)| share).sum()
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.shares.iter().all(|(operation, _)| operation.reads())
    }
}

/// One step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Insert every key once, one by one, in load order.
    Load,
    /// Insert every key once, in load order, so many by one commit.
    Bulk,
    /// Hand over every key at once, sorted.
    Ingest,
    /// Wait until flushes, compactions and sweeps are done, or have all compacted: see [`Settling`].
    Settle,
    /// A mix of operations.
    Mix(Mix),
    /// Remove every other key of the load order, so many by one commit.
    Remove,
    /// Read the whole store in order and check every entry.
    Verify,
}

/// What `settle` has an engine do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    /// Flush, and be left alone until it has no work of its own to do: where its users find it.
    AtRest,
    /// Flush, compact all there is by the engine's own full compaction, and then the same.
    Compacted,
}

impl Settling {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Settling::AtRest => "at-rest",
            Settling::Compacted => "compacted",
        }
    }
}

impl std::str::FromStr for Settling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Settling> {
        [Settling::AtRest, Settling::Compacted]
            .into_iter()
            .find(|known| known.name() == text)
            .ok_or_else(|| {
                Error::usage(format!(
                    "unknown way to settle `{text}`; expected at-rest (until the engine's own work is \
                     done) or compacted (by its full compaction)"
                ))
            })
    }
}

/// A phase with its name on the command line and a word of explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedPhase {
    /// As on the command line, clients and rate included.
    pub name: String,
    /// What it does, in a few words.
    pub about: &'static str,
    /// What it does.
    pub phase: Phase,
    /// How many clients do it, where that is not the run's number.
    pub clients: Option<usize>,
    /// Operations a second of all clients together, where that is not the run's rate.
    pub rate_per_second: Option<f64>,
    /// Its place in the list, from 0.
    pub position: usize,
    /// It does so many times fewer operations than the run gives each mix.
    pub part: u64,
    /// It does so many times more of them, and may take so many times longer.
    pub times: u64,
    /// Whether it only makes the store ready for what follows.
    pub warms_up: bool,
}

/// Operations with their shares in percent.
pub type Shares = &'static [(Operation, u32)];

/// What stands before a mix that only warms up.
const WARMS_UP: &str = "~";

/// The mix that reads the newest keys.
const READ_LATEST: &str = "D";

/// Every mix: name, explanation, shares.
const MIXES: [(&str, &str, Shares); 16] = [
    ("A", "half reads, half updates", &[(Operation::Read, 50), (Operation::Update, 50)]),
    ("B", "95 % reads, 5 % updates", &[(Operation::Read, 95), (Operation::Update, 5)]),
    ("C", "reads", &[(Operation::Read, 100)]),
    (
        READ_LATEST,
        "95 % reads, of the newest keys most, 5 % inserts",
        &[(Operation::Read, 95), (Operation::Insert, 5)],
    ),
    ("E", "95 % scans, 5 % inserts", &[(Operation::Scan, 95), (Operation::Insert, 5)]),
    (
        "F",
        "half reads, half read-modify-writes",
        &[(Operation::Read, 50), (Operation::ReadModifyWrite, 50)],
    ),
    ("R7W3", "70 % reads, 30 % updates", &[(Operation::Read, 70), (Operation::Update, 30)]),
    ("R3W7", "30 % reads, 70 % updates", &[(Operation::Read, 30), (Operation::Update, 70)]),
    ("absent", "reads of absent keys", &[(Operation::ReadAbsent, 100)]),
    ("multiget", "calls for 32 keys each", &[(Operation::ReadMany, 100)]),
    ("update", "updates", &[(Operation::Update, 100)]),
    ("batch", "commits of 1,000 updates each", &[(Operation::WriteMany, 100)]),
    ("scan10", "scans of 10 entries", &[(Operation::ScanTen, 100)]),
    ("range10", "ranges between keys 10 apart", &[(Operation::RangeTen, 100)]),
    ("range100", "ranges between keys 100 apart", &[(Operation::RangeHundred, 100)]),
    ("range1000", "ranges between keys 1,000 apart", &[(Operation::RangeThousand, 100)]),
];

/// Every phase that is no mix.
const PLAIN: [(&str, &str, Phase); 6] = [
    ("load", "insert every key", Phase::Load),
    ("bulk", "insert every key, 1,000 by one commit", Phase::Bulk),
    ("ingest", "hand over every key, sorted", Phase::Ingest),
    ("settle", "finish flushes, compactions and sweeps", Phase::Settle),
    ("remove", "remove every other key, 1,000 by one commit", Phase::Remove),
    ("verify", "read everything in order", Phase::Verify),
];

/// Reads a list of phases: `load,settle,A,B,C@4,F=50k`. Letters may be small.
///
/// # Errors
/// If a name is unknown, the list is empty, something is measured before anything is loaded, or
/// asks for keys that were removed.
pub fn parse_phases(list: &str, distribution: Distribution) -> Result<Vec<NamedPhase>> {
    let mut phases: Vec<NamedPhase> = Vec::new();
    for name in list.split(',').map(str::trim) {
        let phase = named_phase(name, distribution, phases.len())?;
        let fills = matches!(phase.phase, Phase::Load | Phase::Bulk | Phase::Ingest);
        if phases.is_empty() != fills {
            let found = if fills { "a second time" } else { "before anything is loaded" };
            return Err(Error::usage(format!(
                "`{name}` comes {found}; a list of workloads starts with load, bulk or ingest, once"
            )));
        }
        let removed = phases.iter().any(|phase| phase.phase == Phase::Remove);
        if removed && !matches!(phase.phase, Phase::Settle | Phase::Verify) {
            return Err(Error::usage(format!(
                "`{name}` comes after remove, which takes keys away that it would ask for; only \
                 settle and verify may"
            )));
        }
        phases.push(phase);
    }
    Ok(phases)
}

/// The list with the rate that `rates` gives each of its mixes that has none yet: `50k` for all, or
/// `A=50k,C=100k` by name.
///
/// # Errors
/// If a rate is none, or is for a mix that is not in the list.
pub fn with_rates(list: &str, rates: &str) -> Result<String> {
    let mut given: Vec<(&str, &str, bool)> = rates
        .split(',')
        .map(|rate| rate.trim().split_once('=').map_or(("", rate.trim()), |(of, rate)| (of, rate)))
        .map(|(of, rate)| (of, rate, false))
        .collect();
    for (_, rate, _) in &given {
        if parse_count(rate).map_err(|e| e.within(rate))? == 0 {
            return Err(Error::usage(format!("{rate}: at least 1, found 0")));
        }
    }
    let mut rated = Vec::new();
    for name in list.split(',').map(str::trim) {
        let Parts { name: base, rate, .. } = parts(name)?;
        let mix = MIXES.iter().any(|(known, _, _)| known.eq_ignore_ascii_case(base));
        let of = given.iter_mut().find(|(of, _, _)| of.is_empty() || of.eq_ignore_ascii_case(base));
        rated.push(match of {
            Some((_, rate_given, used)) if mix && rate.is_none() => {
                *used = true;
                format!("{name}={rate_given}")
            }
            _ => name.to_string(),
        });
    }
    if let Some((of, rate, _)) = given.iter().find(|(_, _, used)| !used) {
        return Err(Error::usage(format!(
            "`{of}={rate}` is for no workload of {list}; expected the name of a mix there that has \
             no rate yet, or a rate alone"
        )));
    }
    Ok(rated.join(","))
}

/// Whether the workload called `name`, as a report has it, writes, and leaves something to be done
/// later: what fills or empties the store, and mixes that do not only read.
#[must_use]
pub fn writes(name: &str) -> bool {
    let base = name.split(['@', '=']).next().unwrap_or_default();
    let reads = |shares: Shares| shares.iter().all(|(operation, _)| operation.reads());
    let mix = MIXES.iter().find(|(known, ..)| *known == base);
    let plain = PLAIN.iter().find(|(known, ..)| *known == base);
    let changes = |phase: &Phase| !matches!(phase, Phase::Settle | Phase::Verify);
    mix.is_some_and(|(_, _, shares)| !reads(shares))
        || plain.is_some_and(|(_, _, phase)| changes(phase))
}

/// What `NAME/PART*TIMES@CLIENTS=RATE` says.
struct Parts<'a> {
    name: &'a str,
    part: Option<u64>,
    times: Option<u64>,
    clients: Option<usize>,
    rate: Option<f64>,
}

fn parts(text: &str) -> Result<Parts<'_>> {
    let (rest, rate) = split(text, '=');
    let (rest, clients) = split(rest, '@');
    let (rest, times) = split(rest, '*');
    let (name, part) = split(rest, '/');
    let count = |part: Option<&str>| {
        let count = part.map(parse_count).transpose().map_err(|e| e.within(text))?;
        if count == Some(0) {
            return Err(Error::usage(format!("{text}: at least 1, found 0")));
        }
        Ok(count)
    };
    let clients = count(clients)?;
    if clients.is_some_and(|clients| clients > MAX_CLIENTS as u64) {
        return Err(Error::usage(format!("{text}: at most {MAX_CLIENTS} clients")));
    }
    let rate = count(rate)?.map(|rate| rate as f64);
    let clients = clients.map(|clients| clients as usize);
    Ok(Parts { name, part: count(part)?, times: count(times)?, clients, rate })
}

/// What stands before `at`, and behind it if it is there.
fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

/// Most clients at once.
pub const MAX_CLIENTS: usize = 1024;

fn named_phase(text: &str, distribution: Distribution, position: usize) -> Result<NamedPhase> {
    let (bare, warms_up) = text.strip_prefix(WARMS_UP).map_or((text, false), |bare| (bare, true));
    let Parts { name, part, times, clients, rate } = parts(bare)?;
    let made = |name: String, about: &'static str, phase: Phase| NamedPhase {
        name,
        about,
        phase,
        clients,
        rate_per_second: rate,
        position,
        part: part.unwrap_or(1),
        times: times.unwrap_or(1),
        warms_up,
    };
    for (known, about, phase) in PLAIN {
        if known.eq_ignore_ascii_case(name) {
            if bare.len() > name.len() || warms_up {
                return Err(Error::usage(format!(
                    "`{text}`: {known} takes neither clients (@), nor a rate (=), nor a part (/), nor \
                     a multiple (*), and warms nothing up (~); only mixes do"
                )));
            }
            return Ok(made(known.to_string(), about, phase));
        }
    }
    for (known, about, shares) in MIXES {
        if known.eq_ignore_ascii_case(name) {
            let latest = known == READ_LATEST;
            let distribution = if latest { Distribution::Latest } else { distribution };
            let behind = bare.find(['@', '=']).map_or("", |at| &bare[at..]);
            let name = format!("{}{known}{behind}", if warms_up { WARMS_UP } else { "" });
            return Ok(made(name, about, Phase::Mix(Mix { shares, distribution })));
        }
    }
    let known = PLAIN.iter().map(|(name, ..)| *name).chain(MIXES.iter().map(|(name, ..)| *name));
    let known: Vec<&str> = known.collect();
    Err(Error::usage(format!(
        "unknown workload `{name}`; expected {}, separated by commas",
        known.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_are_met() {
        for (name, _, shares) in MIXES {
            assert_eq!(shares.iter().map(|(_, s)| s).sum::<u32>(), 100, "{name}");
            let mix = Mix { shares, distribution: Distribution::Uniform };
            for &(operation, share) in shares {
                let met = (0..100).filter(|&p| mix.operation(p) == operation).count();
                assert_eq!(met, share as usize, "{name}");
            }
        }
    }

    #[test]
    fn what_leaves_something_to_be_done_is_known_by_its_name() {
        for name in ["load", "ingest", "remove", "A", "D", "E@2", "update=5k", "R7W3", "batch"] {
            assert!(writes(name), "{name}");
        }
        for name in ["settle", "verify", "C", "C@4=5k", "absent", "multiget", "range10", "~A", ""] {
            assert!(!writes(name), "{name}");
        }
    }

    #[test]
    fn lists_are_read_and_nonsense_is_refused() {
        let names = |list| {
            parse_phases(list, Distribution::Uniform)
                .map(|phases| phases.iter().map(|p| p.name.clone()).collect::<Vec<_>>().join(" "))
                .map_err(|e| e.to_string())
        };
        assert_eq!(names("load,settle,a,B, absent").unwrap(), "load settle A B absent");
        let of = |name: &str| match &parse_phases(name, Distribution::Uniform).unwrap()[1].phase {
            Phase::Mix(mix) => (mix.distribution, mix.inserts()),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("load,D"), (Distribution::Latest, 5));
        assert_eq!(of("load,E"), (Distribution::Uniform, 5));
        assert_eq!(of("load,A"), (Distribution::Uniform, 0));
        assert!(names("").unwrap_err().starts_with("unknown workload ``"));
        assert!(names("load,Z").unwrap_err().starts_with("unknown workload `Z`"));
        assert!(names("A").unwrap_err().starts_with("`A` comes before anything is loaded"));
        assert!(names("load,load").unwrap_err().starts_with("`load` comes a second time"));
        assert_eq!(names("bulk,remove,settle,verify").unwrap(), "bulk remove settle verify");
        assert!(names("bulk,remove,C").unwrap_err().starts_with("`C` comes after remove"));
    }

    #[test]
    fn clients_and_rates_stand_behind_a_name() {
        let of = |list| parse_phases(list, Distribution::Uniform).map_err(|e| e.to_string());
        let phases = of("load,c@4,A=50k,b@2=1k").unwrap();
        let told = |phase: &NamedPhase| (phase.name.clone(), phase.clients, phase.rate_per_second);
        assert_eq!(told(&phases[0]), ("load".to_string(), None, None));
        assert_eq!(told(&phases[1]), ("C@4".to_string(), Some(4), None));
        assert_eq!(told(&phases[2]), ("A=50k".to_string(), None, Some(50e3)));
        assert_eq!(told(&phases[3]), ("B@2=1k".to_string(), Some(2), Some(1e3)));
        for (list, words) in [
            ("load,C@0", "at least 1"),
            ("load,C@x", "not a count"),
            ("load,C=0", "at least 1"),
            ("load,C@2000", "at most 1024 clients"),
            ("load@2", "only mixes"),
        ] {
            let error = of(list).unwrap_err();
            assert!(error.contains(words), "{list}: {error}");
        }
    }

    #[test]
    fn a_part_of_the_operations_and_warming_up_are_said_in_the_list() {
        let of = |list| parse_phases(list, Distribution::Uniform).map_err(|e| e.to_string());
        let phases = of("load,e/20@2=1k,~c,C*10,~batch/100,absent*3@2,E/20*2").unwrap();
        let told =
            |phase: &NamedPhase| (phase.name.clone(), phase.part, phase.times, phase.warms_up);
        let told: Vec<_> = phases.iter().map(told).collect();
        let expected = [
            ("load", 1, 1, false),
            ("E@2=1k", 20, 1, false),
            ("~C", 1, 1, true),
            ("C", 1, 10, false),
            ("~batch", 100, 1, true),
            ("absent@2", 1, 3, false),
            ("E", 20, 2, false),
        ];
        let expected = expected.map(|(name, part, times, warms)| {
            let name = name.to_string();
            (name, part, times, warms)
        });
        assert_eq!(told, expected);
        assert_eq!((phases[1].clients, phases[1].rate_per_second), (Some(2), Some(1e3)));
        for (list, words) in [
            ("load,E/0", "at least 1"),
            ("load,E/x", "not a count"),
            ("load,C*0", "at least 1"),
            ("load,C*2/3", "not a count"),
            ("load,settle*2", "only mixes"),
            ("load,settle/2", "only mixes"),
            ("load,~settle", "only mixes"),
            ("~load", "only mixes"),
            ("load,~", "unknown workload ``"),
        ] {
            let error = of(list).unwrap_err();
            assert!(error.contains(words), "{list}: {error}");
        }
    }

    #[test]
    fn rates_go_to_the_mixes_that_have_none() {
        let rated = |list, rates| with_rates(list, rates).map_err(|e| e.to_string());
        assert_eq!(rated("load,A,C@2,settle", "5k").unwrap(), "load,A=5k,C@2=5k,settle");
        assert_eq!(rated("load,A,C=1k,E", "a=5k,E=2").unwrap(), "load,A=5k,C=1k,E=2");
        // What warms up is no open loop.
        assert_eq!(rated("load,~C,C,E/20", "5k").unwrap(), "load,~C,C=5k,E/20=5k");
        assert_eq!(rated("load,C*10@2", "5k").unwrap(), "load,C*10@2=5k");
        assert!(rated("load,A", "C=5k").unwrap_err().starts_with("`C=5k` is for no workload"));
    }
}
