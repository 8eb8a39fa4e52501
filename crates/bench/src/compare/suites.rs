//! What is compared: suites of cases, as a table. A suite is data: new ones are rows, not code.
//!
//! | suite | what it asks |
//! |---|---|
//! | `ycsb` | the mixes, warm: 1 M keys of 1,016 bytes, zipfian, 256 MiB |
//! | `cold` | 4 GB with 384 MiB of memory in all, uniform; absent keys with filters; direct reads |
//! | `phases` | the LearnedKV paper's P0 to P3 at four ratios of reads to writes, collection inside |
//! | `memory` | the paper's 5:5 within 256 MiB to 2 GiB of memory in all |
//! | `size` | 1, 2, 4 and 8 M keys |
//! | `dist` | distributions of keys, and of requests |
//! | `sosd` | the real key sets of `../shared/data`; skipped, and said, where they are missing |
//! | `values` | sizes of values from 16 bytes to 64 KiB |
//! | `sizes` | keys and values as long as those of UDB, ZippyDB and UP2X |
//! | `scan` | scans by count, and by key range, at three value sizes |
//! | `absent` | keys that are not there, with filters in place from the start |
//! | `overprovision` | how much garbage is let lie: 10 to 100 %; engines that collect any |
//! | `threads` | one, two and four clients |
//! | `open` | open loops at rates that all can meet: latencies from when an operation was due |
//! | `durable` | each write synced, one and four clients; and 4 and 16 that come as they please |
//! | `redb` | the mixes that redb publishes, synced |
//!
//! *How much.* Each mix is so many operations, the same for every engine, since what one does is
//! where the next begins: updates are garbage to collect, inserts are keys to read, and reads warm
//! caches. The seconds only end a mix that does not get on, and then the tables say so. Scans, by
//! count or range, are a twentieth of them (`/20`; scans of 10 a half), calls for 32 keys a 32nd, commits of 1,000 a
//! hundredth: else most of a run would be those. In `ycsb` and `absent` what was over in less than half a
//! second, `C` and `absent`, is ten times them (`*10`), and so are absent keys in `cold`: their rates would
//! be of a pause or two. With 300,000 operations an engine of 80,000 gets a second is through with `ycsb` in
//! two minutes.
//!
//! *Between mixes* of the warm suites all settles, so that none pays for what the one before left,
//! but for `phases` and `memory`, which ask just that, and `redb`, whose writes follow each other.
//! Behind a settle caches that hold blocks of what was compacted away are cold: where reads alone
//! come next (`C`), they come twice, the first time to warm up (`~C`), and only the second is
//! reported; `scan` has ranges to warm up. `cold` has its filters to warm up, with absent keys, and nothing
//! else: hardly anything stays in its caches.
//! Every list ends with a settle: what the last mix left to be done is in what the run wrote. What a mix
//! leaves to the settle directly behind it is in a row of its own (`F + settle`).
//!
//! **`phases`** as the paper and its artifact have them: P0 loads 1 M keys (8 + 1,016 bytes), P1 to P3
//! are as many zipfian operations each, reads and updates in one ratio: 7:3 (`R7W3`), 5:5 (`A`), 3:7
//! (`R3W7`), 0:10 (`update`). Nothing waits between them, so that collection and conversion fall into
//! them; only the `C` behind them is of a settled store. The last case gives RocksDB, BlobDB and the
//! baseline what the artifact gives its RocksDB (memtables of 64 KiB, no filters, direct reads) and ours
//! nothing: the setting that the paper's headline is from, beside the ordinary ones. But the baseline keeps
//! its memtables: what flushes of 64 KiB cost ours, each with its syncs, is nothing of the paper's.
//!
//! **`memory`** asks how what the learned tier gives falls as memory grows: `phases` at 5:5, 1 GB of data, in
//! control groups of six sizes. Of each the budget is a third, as in `cold`; the rest is for the
//! pages of files, and for this program. Where the data is larger than the memory (to 768 MiB)
//! rivals are as their documentation advises for that, as in `cold`; from 1 GiB on they are as
//! ever.
//!
//! **`durable`**: what `ingest` hands over is in no log, and RocksDB takes an old log for a new one
//! only once it has an old one. So commits of 1,000 updates come first, which are not reported: for
//! all engines. Clients of a closed loop come back at once after each commit, so that whoever syncs for all
//! has them all together; those that come as they please (an open loop, the same rate in all for 4 and
//! for 16) meet by chance, and whoever waits for others then waits in vain.
//!
//! **`open`**: rates are at most half of what the slowest of the rivals did in a closed loop
//! (RocksDB and BlobDB on two cores: A 74, B 66, C 49 and E 2.4 thousand a second). Who still
//! misses one by more than a hundredth has a mark there.
//!
//! **`sizes`** has means and deviations of Cao et al., "Characterizing, Modeling, and Benchmarking
//! RocksDB Key-Value Workloads at Facebook" (FAST 2020), Table 2, as DobLIX's Table I takes them up. What
//! their keys' bytes are is not said there: ours are random. Values are cut at 4 bytes, which makes
//! ZippyDB's mean 43.7 instead of 42.9.
//!
//! **`redb`** has keys of 24 bytes and values of 150, each write synced: bulk load in random order
//! (commits of 1,000, there one commit), commits of one update, commits of 1,000, random reads,
//! random ranges of 10, reads by 1, 2, 4 and 8 clients (there to 32), removal of half (as loaded). *Left out*,
//! since [`crate::engines::Engine`] has no such call: `len()`, which B-trees know and LSM trees count
//! (`verify` is the full count). redb's own `compact()` is `settle` with `--settle compacted`. Writes are
//! updates here, of new keys there.

use super::case::{Case, Suite};
use crate::{Error, Result};

const MIB: u64 = 1 << 20;

/// When a mix is ended that does not get on, in seconds. Who comes to it did another amount of work
/// than the others, and every table says so.
pub(super) const SAFETY_SECONDS: u64 = 120;

/// What most cases are but for a field or two: warm, in the cache or in the system's.
pub(super) const WARM: Case = Case {
    name: "1016 B",
    keys: "uniform",
    file: "",
    count: 1_000_000,
    value_size: "1016",
    threads: 1,
    requests: "zipfian",
    workloads: "load,settle,A,settle,B,settle,F,settle,~C,C*10,~absent,absent*10,E/20,D,settle",
    operations: 300_000,
    seconds: SAFETY_SECONDS,
    memory_budget_bytes: 256 * MIB,
    memtable_bytes: 32 * MIB,
    durability: "buffered",
    reads: "mapped",
    block_bytes: 4 << 10,
    compression: "none",
    compressible: "0",
    settle: "at-rest",
    limit_bytes: 0,
    options: &[],
    collects: false,
};

const COLD: Case = Case {
    name: "4 M x 1016 B, 384 MiB",
    count: 4_000_000,
    requests: "uniform",
    workloads: "load,settle,C,multiget/32,E/20,A,settle",
    operations: 200_000,
    memory_budget_bytes: 128 * MIB,
    limit_bytes: 384 * MIB,
    options: BEYOND_MEMORY,
    ..WARM
};
/// What the rivals' documentation recommends for data beyond memory. LMDB: no read-ahead
/// (`MDB_NORDAHEAD`). fjall: memtables of 8 to 64 MiB "depending on how much memory is available", of which
/// it holds five, and a cache of 20 to 25 % of that: 96 of 384 MiB (the budget less two memtables). With
/// memtables of 32 MiB its separated kind was killed at the limit.
const BEYOND_MEMORY: &[(&str, &str)] = &[
    ("lmdb", "read_ahead=false"),
    ("fjall", "memtable=16MiB"),
    ("fjall-separated", "memtable=16MiB"),
];
/// The same, and filters.
const BEYOND_MEMORY_FILTERED: &[(&str, &str)] = &[
    ("learnedkv", "settled_filter=binary-fuse8"),
    ("learnedkv-lsm", "settled_filter=binary-fuse8"),
    ("lmdb", "read_ahead=false"),
    ("fjall", "memtable=16MiB"),
    ("fjall-separated", "memtable=16MiB"),
];
/// The setting (b) of figure F10: settled tables have a filter from the start, as all of the rivals'.
const FILTERED: &[(&str, &str)] = &[
    ("learnedkv", "settled_filter=binary-fuse8"),
    ("learnedkv-lsm", "settled_filter=binary-fuse8"),
];

/// What the LearnedKV paper's artifact gives its RocksDB: memtables of 64 KiB, no filters, direct
/// reads, while the learned side reads through the system's cache.
const ARTIFACT: &[(&str, &str)] = &[
    ("baseline", "reads=direct"),
    ("baseline", "lsm_filter=none"),
    ("baseline", "settled_filter=none"),
    ("rocksdb", "reads=direct"),
    ("rocksdb", "memtable=64KiB"),
    ("rocksdb", "filter_bits=0"),
    ("blobdb", "reads=direct"),
    ("blobdb", "memtable=64KiB"),
    ("blobdb", "filter_bits=0"),
];

const PHASES: Case = Case { operations: WARM.count, ..WARM };
/// Keys and values of `phases`: what it takes no less memory to hold.
const PHASES_DATA_BYTES: u64 = PHASES.count * (8 + 1016);
/// `phases` at 5:5 with so many MiB of memory in all; a memtable is a quarter of the budget, 32 MiB at most.
const fn within(name: &'static str, limit_mib: u64) -> Case {
    let budget_bytes = limit_mib * MIB / 3;
    let memtable_bytes = if budget_bytes / 4 < 32 * MIB { budget_bytes / 4 } else { 32 * MIB };
    Case {
        name,
        workloads: "load,A,A,A,settle,~C,C,settle",
        // A million operations, on what may lie on the disk.
        seconds: 5 * SAFETY_SECONDS,
        memory_budget_bytes: budget_bytes,
        memtable_bytes,
        limit_bytes: limit_mib * MIB,
        options: if limit_mib * MIB < PHASES_DATA_BYTES { BEYOND_MEMORY } else { &[] },
        ..PHASES
    }
}

const SIZE: Case = Case { workloads: "load,settle,A,settle,~C,C,E/20,settle", ..WARM };
const DIST: Case =
    Case { value_size: "100", workloads: "load,settle,A,settle,~C,C,E/20,settle", ..WARM };
pub(super) const SOSD: Case = Case {
    keys: "sosd",
    value_size: "100",
    workloads: "load,settle,A,settle,~C,C,~absent,absent,E/20,settle",
    ..WARM
};
const VALUES: Case = Case { workloads: "load,settle,A,settle,~C,C,E/20,settle", ..WARM };
const SIZES: Case = Case {
    count: 4_000_000,
    workloads: "load,settle,A,settle,B,settle,~C,C,~absent,absent,E/20,settle",
    ..WARM
};
const SCAN: Case = Case {
    workloads: "load,settle,~range100/20,E/20,range10/20,range100/20,range1000/20,settle",
    requests: "uniform",
    ..WARM
};
const ABSENT: Case =
    Case { workloads: "load,settle,~absent,absent*10,~C,C*10,settle", options: FILTERED, ..WARM };
const THREADS: Case = Case { workloads: "load,settle,A,settle,B,settle,~C,C,E/20,settle", ..WARM };
const DURABLE: Case = Case {
    count: 100_000,
    // What is ingested is in no log: 200 commits of about 0.8 MB fill some, which are then
    // used again.
    workloads: "ingest,settle,~batch/100,settle,update,A,settle",
    durability: "synced",
    operations: 20_000,
    ..WARM
};
/// Rates that RocksDB and fjall meet with 4 clients (LMDB, which syncs each commit by itself, not all of them). In each mix more is
/// written than a memtable holds: each engine flushes in it.
const PLEASED: Case = Case {
    workloads: "ingest,settle,~batch/100,settle,update=1k,update=2k,update=4k,settle",
    operations: 40_000,
    ..DURABLE
};
pub(super) const PROVISION: Case = Case {
    requests: "uniform",
    workloads: "load,settle,update,settle,A,settle,~C,C,settle",
    operations: 2_000_000,
    seconds: 2 * SAFETY_SECONDS,
    collects: true,
    ..WARM
};

/// So many per cent of garbage to what is alive, and what that is as a share of a file: how BlobDB and
/// fjall have it. BlobDB's holds for the oldest files, up to its cutoff of a quarter (its default), as a
/// whole; fjall's for each file that a compaction meets, of these the oldest quarter (its default).
macro_rules! provision {
    ($percent:literal, $of_a_file:literal) => {
        &[
            ("learnedkv", concat!("over_provision_percent=", $percent)),
            ("learnedkv-lsm", concat!("over_provision_percent=", $percent)),
            ("baseline", concat!("over_provision_percent=", $percent)),
            ("blobdb", concat!("blob_garbage_collection_force_threshold=", $of_a_file)),
            ("fjall-separated", concat!("staleness_threshold=", $of_a_file)),
        ]
    };
}

/// Every suite.
pub const SUITES: &[Suite] = &[
    Suite { name: "ycsb", about: "the mixes of YCSB, warm", cases: &[WARM] },
    Suite {
        name: "cold",
        about: "4 GB with 384 MiB of memory in all; around the system's cache",
        cases: &[
            COLD,
            Case {
                name: "absent keys with filters, 384 MiB",
                workloads: "load,settle,~absent,absent*10,C,settle",
                options: BEYOND_MEMORY_FILTERED,
                ..COLD
            },
            Case {
                name: "direct reads",
                workloads: "load,settle,C,absent,multiget/32,E/20,A,settle",
                options: BEYOND_MEMORY_FILTERED,
                reads: "direct",
                limit_bytes: 0,
                ..COLD
            },
        ],
    },
    Suite {
        name: "phases",
        about: "the LearnedKV paper's P0 (load) to P3",
        cases: &[
            Case { name: "7:3", workloads: "load,R7W3,R7W3,R7W3,settle,~C,C,settle", ..PHASES },
            Case { name: "5:5", workloads: "load,A,A,A,settle,~C,C,settle", ..PHASES },
            Case { name: "3:7", workloads: "load,R3W7,R3W7,R3W7,settle,~C,C,settle", ..PHASES },
            Case {
                name: "write-only",
                workloads: "load,update,update,update,settle,~C,C,settle",
                ..PHASES
            },
            Case {
                name: "5:5, the artifact's RocksDB",
                workloads: "load,A,A,A,settle,~C,C,settle",
                options: ARTIFACT,
                seconds: 5 * SAFETY_SECONDS,
                ..PHASES
            },
        ],
    },
    Suite {
        name: "memory",
        about: "the LearnedKV paper's P0 to P3 at 5:5 as memory grows",
        cases: &[
            within("256 MiB", 256),
            within("384 MiB", 384),
            within("512 MiB", 512),
            within("768 MiB", 768),
            within("1 GiB", 1024),
            within("2 GiB", 2048),
        ],
    },
    Suite {
        name: "size",
        about: "growing data",
        cases: &[
            Case { name: "1 M", ..SIZE },
            Case { name: "2 M", count: 2_000_000, ..SIZE },
            Case { name: "4 M", count: 4_000_000, ..SIZE },
            Case { name: "8 M", count: 8_000_000, ..SIZE },
        ],
    },
    Suite {
        name: "dist",
        about: "distributions of keys and of requests",
        cases: &[
            Case { name: "uniform", ..DIST },
            Case { name: "sequential", keys: "sequential", ..DIST },
            Case { name: "lognormal", keys: "lognormal", ..DIST },
            Case { name: "segmented", keys: "segmented", ..DIST },
            Case { name: "normal", keys: "normal", ..DIST },
            Case { name: "clustered", keys: "clustered", ..DIST },
            Case { name: "uniform, uniform requests", requests: "uniform", ..DIST },
            Case { name: "uniform, latest requests", requests: "latest", ..DIST },
            Case { name: "uniform, zipfian over keys", requests: "zipfian-keys", ..DIST },
        ],
    },
    Suite {
        name: "sosd",
        about: "real key sets",
        cases: &[
            Case { name: "coast, Hilbert", file: "coast_hilbert_1m_uint64", ..SOSD },
            Case { name: "coast, long-lat", file: "coast_longlat_1m_uint64", ..SOSD },
            Case { name: "paths", keys: "text", file: "paths_500k.txt", ..SOSD },
        ],
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
            Case {
                name: "16 KiB",
                value_size: "16384",
                count: 60_000,
                operations: 60_000,
                ..VALUES
            },
            Case {
                name: "64 KiB",
                value_size: "65536",
                count: 16_000,
                operations: 16_000,
                ..VALUES
            },
        ],
    },
    Suite {
        name: "sizes",
        about: "keys and values as long as Facebook's",
        cases: &[
            Case { name: "UDB", keys: "bytes:27.1:2.6", value_size: "normal:126.7:22.1", ..SIZES },
            Case {
                name: "ZippyDB",
                keys: "bytes:47.9:3.7",
                value_size: "normal:42.9:26.1",
                ..SIZES
            },
            Case { name: "UP2X", keys: "bytes:10.45:1.4", value_size: "normal:46.8:11.6", ..SIZES },
        ],
    },
    Suite {
        name: "scan",
        about: "by count, 1 to 100 entries; by key range, bounds 10, 100 and 1,000 keys apart",
        cases: &[
            Case { name: "100 B", value_size: "100", count: 4_000_000, ..SCAN },
            Case { name: "1016 B", ..SCAN },
            Case { name: "4 KiB", value_size: "4096", count: 250_000, ..SCAN },
            Case { name: "1016 B, zipfian", requests: "zipfian", ..SCAN },
        ],
    },
    Suite {
        name: "absent",
        about: "keys that are not there, filters in place",
        cases: &[
            Case { name: "1016 B", ..ABSENT },
            Case { name: "1016 B, uniform", requests: "uniform", ..ABSENT },
            Case { name: "100 B", value_size: "100", count: 4_000_000, ..ABSENT },
        ],
    },
    Suite {
        name: "overprovision",
        about: "garbage that is let lie, per cent of the data",
        cases: &[
            Case { name: "10 %", options: provision!(10, 0.09), ..PROVISION },
            Case { name: "20 %", options: provision!(20, 0.17), ..PROVISION },
            Case { name: "30 %", options: provision!(30, 0.23), ..PROVISION },
            Case { name: "50 %", options: provision!(50, 0.33), ..PROVISION },
            Case { name: "100 %", options: provision!(100, 0.5), ..PROVISION },
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
        name: "open",
        about: "Poisson arrivals, latencies from when an operation was due",
        cases: &[
            Case {
                workloads: "load,settle,A=35k,settle,B=30k,settle,~C,C=20k,E/20=1k,settle",
                ..WARM
            },
            Case {
                name: "1016 B, updates",
                workloads: "load,settle,update=5k,update=10k,update=20k,settle",
                operations: 200_000,
                requests: "uniform",
                ..WARM
            },
        ],
    },
    Suite {
        name: "durable",
        about: "each write synced",
        cases: &[
            Case { name: "1 client", ..DURABLE },
            Case { name: "4 clients", threads: 4, ..DURABLE },
            Case { name: "4 clients, open loop", threads: 4, ..PLEASED },
            Case { name: "16 clients, open loop", threads: 16, ..PLEASED },
        ],
    },
    Suite {
        name: "redb",
        about: "what redb publishes",
        cases: &[Case {
            name: "24 + 150 B",
            keys: "bytes:24:0",
            value_size: "150",
            requests: "uniform",
            durability: "synced",
            workloads: "bulk,update,batch/100,C,scan10/2,C@2,C@4,C@8,remove,verify,settle",
            operations: 100_000,
            ..WARM
        }],
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{Kind, known};
    use crate::keys::KeySpec;
    use crate::requests::Distribution;
    use crate::workloads::{Operation, Phase, parse_phases};

    #[test]
    fn every_case_can_be_read() {
        for case in SUITES.iter().flat_map(|suite| suite.cases) {
            for case in [*case, case.tiny()] {
                let requests: Distribution = case.requests.parse().unwrap();
                parse_phases(case.workloads, requests).unwrap();
                case.value_size.parse::<crate::values::ValueSize>().unwrap();
                case.durability.parse::<crate::engines::Durability>().unwrap();
                case.reads.parse::<crate::engines::Reads>().unwrap();
                case.settle.parse::<crate::workloads::Settling>().unwrap();
                let source = if case.file.is_empty() { "1000" } else { case.file };
                format!("{}:{source}", case.keys).parse::<KeySpec>().unwrap();
                assert!(2 * case.memtable_bytes < case.memory_budget_bytes);
                assert!(case.workloads.ends_with(",settle"), "{}: debt of the last mix", case.name);
                for (engine, _) in case.options {
                    let known = known(engine).unwrap_or_else(|| panic!("{engine}"));
                    let (case, options) = case.for_engine(engine, &[]).unwrap();
                    assert!(case.memtable_bytes <= WARM.memtable_bytes);
                    let mut ours = ::learnedkv::KeyspaceOptions::default();
                    let ask = matches!(known.kind, Kind::Ours | Kind::PaperBaseline);
                    for option in options.iter().filter(|_| ask) {
                        let (name, value) = option.split_once('=').unwrap();
                        ours.set(name, value).unwrap();
                    }
                }
            }
        }
        assert!(suite("nosuch").unwrap_err().to_string().contains("expected ycsb, cold, phases"));
    }

    #[test]
    fn scans_and_calls_for_many_are_a_part_of_the_operations_everywhere() {
        for case in SUITES.iter().flat_map(|suite| suite.cases) {
            let phases = parse_phases(case.workloads, case.requests.parse().unwrap()).unwrap();
            for phase in phases {
                let Phase::Mix(mix) = &phase.phase else { continue };
                let most = mix.shares.iter().map(|(operation, _)| match operation {
                    Operation::ReadMany => 32,
                    Operation::WriteMany => 100,
                    Operation::Scan => 20,
                    // Short ones; redb does half as many as gets.
                    Operation::ScanTen => 2,
                    other => other.span().map_or(1, |_| 20),
                });
                assert_eq!(phase.part, most.max().unwrap(), "{} of {}", phase.name, case.name);
                let rate = phase.rate_per_second.unwrap_or(f64::INFINITY);
                let seconds = case.operations as f64 / phase.part as f64 / rate;
                assert!(seconds < case.seconds as f64 / 2.0, "{} of {}", phase.name, case.name);
                // Longer are reads of one key alone, which else are over at once.
                let short = ["C", "absent"].contains(&phase.name.as_str());
                assert!(phase.times == 1 || (phase.times == 10 && short), "{}", phase.name);
            }
        }
    }

    #[test]
    fn settings_for_data_beyond_memory_are_where_it_is_beyond_memory() {
        for case in suite("memory").unwrap().cases {
            let data_bytes = case.count * (8 + 1016);
            let told = case.options.contains(&("lmdb", "read_ahead=false"));
            assert_eq!(told, case.limit_bytes < data_bytes, "{}", case.name);
            let fjall = case.for_engine("fjall", &[]).unwrap().0.memtable_bytes;
            assert_eq!(fjall == 16 * MIB, told, "{}", case.name);
        }
    }

    #[test]
    fn cases_of_a_suite_have_names_of_their_own() {
        for suite in SUITES {
            for (number, case) in suite.cases.iter().enumerate() {
                let same = suite.cases[..number].iter().any(|before| before.name == case.name);
                assert!(!same, "{}: {}", suite.name, case.name);
            }
        }
    }

    #[test]
    fn both_of_our_stores_have_filters_where_a_suite_says_so() {
        for case in SUITES.iter().flat_map(|suite| suite.cases) {
            let filtered = |of: &str| {
                let filter = |(engine, option): &&(&str, &str)| {
                    *engine == of && option.starts_with("settled_filter=binary")
                };
                case.options.iter().find(filter).is_some()
            };
            assert_eq!(filtered("learnedkv"), filtered("learnedkv-lsm"), "{}", case.name);
        }
    }
}
