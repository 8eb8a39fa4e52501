//! What is compared: suites of cases, as a table. A suite is data: new ones are rows, not code.
//!
//! | suite | what it asks |
//! |---|---|
//! | `ycsb` | the mixes, warm: 1 M keys of 1,016 bytes, zipfian, 256 MiB |
//! | `cold` | the same over 4 GB with 384 MiB of memory in all, uniform |
//! | `values` | sizes of values from 16 bytes to 64 KiB |
//! | `scan` | ranges at three value sizes |
//! | `threads` | one, two and four clients |
//! | `durable` | each write synced, one and four clients |

use crate::{Error, Result};

/// Cases that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// On the command line.
    pub name: &'static str,
    /// What it asks, in a few words.
    pub about: &'static str,
    /// What is run, in order, each on a store of its own.
    pub cases: &'static [Case],
}

/// One store that is filled and worked on.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// In reports.
    pub name: &'static str,
    /// The kind of keys, as `--keys` has it, without the count.
    pub keys: &'static str,
    /// How many keys.
    pub count: u64,
    /// As `--value-size` has it.
    pub value_size: &'static str,
    /// Client threads.
    pub threads: u64,
    /// As `--requests` has it.
    pub requests: &'static str,
    /// As `--workloads` has it.
    pub workloads: &'static str,
    /// Operations of each mix.
    pub operations: u64,
    /// Seconds after which a mix stops.
    pub seconds: u64,
    /// Memtables and cache of each engine together, in bytes.
    pub memory_budget_bytes: u64,
    /// A memtable, in bytes.
    pub memtable_bytes: u64,
    /// As `--durability` has it.
    pub durability: &'static str,
    /// All memory of the process and of its files' cached pages, in bytes; 0 is no limit.
    pub limit_bytes: u64,
}

const MIB: u64 = 1 << 20;

/// What most cases are but for a field or two: warm, in the cache or in the system's.
const WARM: Case = Case {
    name: "1016 B",
    keys: "uniform",
    count: 1_000_000,
    value_size: "1016",
    threads: 1,
    requests: "zipfian",
    workloads: "load,settle,A,B,F,settle,C,absent,E",
    operations: 1_000_000,
    seconds: 8,
    memory_budget_bytes: 256 * MIB,
    memtable_bytes: 32 * MIB,
    durability: "buffered",
    limit_bytes: 0,
};

const VALUES: Case = Case { workloads: "load,settle,A,settle,C,E", ..WARM };
const SCAN: Case = Case { workloads: "load,settle,E", requests: "uniform", ..WARM };
const THREADS: Case = Case { workloads: "load,settle,A,B,settle,C,E", ..WARM };
const DURABLE: Case = Case {
    count: 100_000,
    workloads: "ingest,settle,update,A",
    durability: "synced",
    operations: 200_000,
    ..WARM
};

/// Every suite.
pub const SUITES: &[Suite] = &[
    Suite { name: "ycsb", about: "the mixes of YCSB, warm", cases: &[WARM] },
    Suite {
        name: "cold",
        about: "4 GB with 384 MiB of memory in all",
        cases: &[Case {
            name: "4 M x 1016 B, 384 MiB",
            count: 4_000_000,
            requests: "uniform",
            workloads: "load,settle,C,absent,multiget,E,A",
            operations: 400_000,
            seconds: 20,
            memory_budget_bytes: 128 * MIB,
            limit_bytes: 384 * MIB,
            ..WARM
        }],
    },
    Suite {
        name: "values",
        about: "sizes of values",
        cases: &[
            Case { name: "16 B", value_size: "16", count: 5_000_000, ..VALUES },
            Case { name: "100 B", value_size: "100", count: 4_000_000, ..VALUES },
            Case { name: "400 B", value_size: "400", count: 2_000_000, ..VALUES },
            Case { name: "1016 B", ..VALUES },
            Case { name: "4 KiB", value_size: "4096", count: 250_000, ..VALUES },
            Case { name: "16 KiB", value_size: "16384", count: 60_000, ..VALUES },
            Case { name: "64 KiB", value_size: "65536", count: 16_000, ..VALUES },
        ],
    },
    Suite {
        name: "scan",
        about: "ranges of 1 to 100 entries",
        cases: &[
            Case { name: "100 B", value_size: "100", count: 4_000_000, ..SCAN },
            Case { name: "1016 B", ..SCAN },
            Case { name: "4 KiB", value_size: "4096", count: 250_000, ..SCAN },
            Case { name: "1016 B, zipfian", requests: "zipfian", ..SCAN },
        ],
    },
    Suite {
        name: "threads",
        about: "clients at once",
        cases: &[
            Case { name: "1 client", ..THREADS },
            Case { name: "2 clients", threads: 2, ..THREADS },
            Case { name: "4 clients", threads: 4, ..THREADS },
        ],
    },
    Suite {
        name: "durable",
        about: "each write synced",
        cases: &[
            Case { name: "1 client", ..DURABLE },
            Case { name: "4 clients", threads: 4, ..DURABLE },
        ],
    },
];

/// The suite called `name`.
///
/// # Errors
/// If there is none.
pub fn suite(name: &str) -> Result<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| {
        let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        Error::usage(format!("unknown suite `{name}`; expected {}", known.join(", ")))
    })
}

impl Case {
    /// The same case so small that it shows only that it works.
    #[must_use]
    pub fn tiny(self) -> Case {
        let value_bytes: u64 = self.value_size.parse().unwrap_or(128);
        let synced = self.durability == "synced";
        Case {
            count: (2 * MIB / value_bytes.max(1)).clamp(50, 2_000),
            operations: if synced { 40 } else { 400 },
            seconds: 10,
            memory_budget_bytes: 16 * MIB,
            memtable_bytes: MIB,
            limit_bytes: 0,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Distribution;
    use crate::workloads::parse_phases;

    #[test]
    fn every_case_can_be_read() {
        for case in SUITES.iter().flat_map(|suite| suite.cases) {
            for case in [*case, case.tiny()] {
                let requests: Distribution = case.requests.parse().unwrap();
                parse_phases(case.workloads, requests).unwrap();
                case.value_size.parse::<crate::values::ValueSize>().unwrap();
                case.durability.parse::<crate::engines::Durability>().unwrap();
                assert!(2 * case.memtable_bytes < case.memory_budget_bytes);
            }
        }
        assert!(suite("nosuch").unwrap_err().to_string().contains("expected ycsb, cold, values"));
    }
}
