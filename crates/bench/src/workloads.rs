//! Workloads: mixes of operations, named as YCSB names them.
//!
//! Key sets are fixed, so where YCSB inserts new keys (E) existing ones are updated instead.

use crate::requests::Distribution;
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
}

impl Operation {
    /// Every operation, in the order of their reports.
    pub const ALL: [Operation; 7] = [
        Operation::Insert,
        Operation::Read,
        Operation::Update,
        Operation::ReadModifyWrite,
        Operation::Scan,
        Operation::ReadAbsent,
        Operation::ReadMany,
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
}

/// One step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Insert every key once, one by one, in load order.
    Load,
    /// Hand over every key at once, sorted.
    Ingest,
    /// Wait until flushes, compactions and sweeps are done.
    Settle,
    /// A mix of operations.
    Mix(Mix),
    /// Read the whole store in order and check every entry.
    Verify,
}

/// A phase with its name on the command line and a word of explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPhase {
    /// As on the command line.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// What it does.
    pub phase: Phase,
}

/// Operations with their shares in percent.
pub type Shares = &'static [(Operation, u32)];

/// Every mix: name, explanation, shares.
const MIXES: [(&str, &str, Shares); 8] = [
    ("A", "half reads, half updates", &[(Operation::Read, 50), (Operation::Update, 50)]),
    ("B", "95 % reads, 5 % updates", &[(Operation::Read, 95), (Operation::Update, 5)]),
    ("C", "reads", &[(Operation::Read, 100)]),
    ("E", "95 % scans, 5 % updates", &[(Operation::Scan, 95), (Operation::Update, 5)]),
    (
        "F",
        "half reads, half read-modify-writes",
        &[(Operation::Read, 50), (Operation::ReadModifyWrite, 50)],
    ),
    ("absent", "reads of absent keys", &[(Operation::ReadAbsent, 100)]),
    ("multiget", "calls for 32 keys each", &[(Operation::ReadMany, 100)]),
    ("update", "updates", &[(Operation::Update, 100)]),
];

/// Reads a list of phases: `load,settle,A,B,C,F`. Letters may be small.
///
/// # Errors
/// If a name is unknown, the list is empty, or something is measured before anything is loaded.
pub fn parse_phases(list: &str, distribution: Distribution) -> Result<Vec<NamedPhase>> {
    let mut phases: Vec<NamedPhase> = Vec::new();
    for name in list.split(',').map(str::trim) {
        let phase = named_phase(name, distribution)?;
        let fills = matches!(phase.phase, Phase::Load | Phase::Ingest);
        if phases.is_empty() != fills {
            let found = if fills { "a second time" } else { "before anything is loaded" };
            return Err(Error::usage(format!(
                "`{name}` comes {found}; a list of workloads starts with load or ingest, once"
            )));
        }
        phases.push(phase);
    }
    Ok(phases)
}

fn named_phase(name: &str, distribution: Distribution) -> Result<NamedPhase> {
    let plain = [
        ("load", "insert every key", Phase::Load),
        ("ingest", "hand over every key, sorted", Phase::Ingest),
        ("settle", "finish flushes, compactions and sweeps", Phase::Settle),
        ("verify", "read everything in order", Phase::Verify),
    ];
    for (known, about, phase) in plain {
        if known.eq_ignore_ascii_case(name) {
            return Ok(NamedPhase { name: known, about, phase });
        }
    }
    for (known, about, shares) in MIXES {
        if known.eq_ignore_ascii_case(name) {
            let phase = Phase::Mix(Mix { shares, distribution });
            return Ok(NamedPhase { name: known, about, phase });
        }
    }
    Err(Error::usage(format!(
        "unknown workload `{name}`; expected load, ingest, settle, A, B, C, E, F, absent, multiget, \
         update or verify, separated by commas"
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
    fn lists_are_read_and_nonsense_is_refused() {
        let names = |list| {
            parse_phases(list, Distribution::Uniform)
                .map(|phases| phases.iter().map(|p| p.name).collect::<Vec<_>>().join(" "))
                .map_err(|e| e.to_string())
        };
        assert_eq!(names("load,settle,a,B, absent").unwrap(), "load settle A B absent");
        assert!(names("").unwrap_err().starts_with("unknown workload ``"));
        assert!(names("load,Z").unwrap_err().starts_with("unknown workload `Z`"));
        assert!(names("A").unwrap_err().starts_with("`A` comes before anything is loaded"));
        assert!(names("load,load").unwrap_err().starts_with("`load` comes a second time"));
    }
}
