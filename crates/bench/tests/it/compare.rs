//! `compare` on every suite, tiny: what is measured is nothing, but that it works and what it
//! leaves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use learnedkv_bench::compare::suites::SUITES;
use learnedkv_bench::compare::{Case, Comparison, DEVICE_REQUESTS, Doubt, Row};
use learnedkv_bench::run::resources::DeviceRequests;
use learnedkv_bench::workloads::writes;

use crate::report::check_page;

/// Runs the command and returns what it printed, on both sides, and whether it succeeded.
fn compare(arguments: &[&str], dir: &Path) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_learnedkv-bench"))
        .arg("compare")
        .args(arguments)
        .arg("--dir")
        .arg(dir.join("store"))
        .arg("--out")
        .arg(dir.join("out"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn comparison(dir: &Path) -> Comparison {
    let json = std::fs::read_to_string(dir.join("out/compare.json")).unwrap();
    serde_json::from_str(&json).unwrap()
}

/// Our engines, the floor, and the rivals that this build has and that can be opened here.
fn engines() -> Vec<&'static str> {
    let rivals: [(&[&str], bool); 4] = [
        (&["fjall", "fjall-separated"], cfg!(feature = "fjall")),
        (&["lmdb"], cfg!(feature = "lmdb")),
        (&["redb"], cfg!(feature = "redb")),
        (
            &["rocksdb", "blobdb"],
            cfg!(feature = "rocksdb") && std::env::var_os("LEARNEDKV_ROCKSDB").is_some(),
        ),
    ];
    let mut engines = vec!["learnedkv", "learnedkv-lsm", "baseline", "btree-map"];
    engines.extend(rivals.iter().filter(|(_, there)| *there).flat_map(|(names, _)| *names));
    engines
}

/// Small files with the names of the real key sets.
fn key_sets(dir: &Path) -> PathBuf {
    let data = dir.join("data");
    std::fs::create_dir(&data).unwrap();
    for (number, name) in ["coast_hilbert_1m_uint64", "coast_longlat_1m_uint64"].iter().enumerate()
    {
        let keys = (0..3_000_u64).map(|key| (key * key) << (8 * number));
        let bytes: Vec<u8> =
            std::iter::once(3_000).chain(keys).flat_map(u64::to_le_bytes).collect();
        std::fs::write(data.join(name), bytes).unwrap();
    }
    let paths: Vec<String> = (0..3_000).map(|key| format!("/usr/share/{key:05}/file")).collect();
    std::fs::write(data.join("paths_500k.txt"), paths.join("\n")).unwrap();
    data
}

/// Runs the suite called `name` tiny, and looks at all that it leaves.
fn runs_tiny(name: &str) {
    let suite = SUITES.iter().find(|suite| suite.name == name).unwrap();
    // On the disk that things are built on: not every /tmp has direct reads.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (engines, data) = (engines(), key_sets(dir.path()));
    let rounds = if name == "ycsb" { "2" } else { "1" };
    let (data, listed) = (data.to_str().unwrap(), engines.join(","));
    let (good, out, err) = compare(
        &[
            &["--suite", name, "--scale", "tiny", "--engines", &listed][..],
            &["--rounds", rounds, "--data", data],
        ]
        .concat(),
        dir.path(),
    );
    assert!(good, "{name}: {err}\n{out}");
    assert!(out.lines().last().unwrap().starts_with("report: "), "{out}");
    assert!(!dir.path().join("store").exists(), "the store is still there");

    let comparison = comparison(dir.path());
    assert_eq!(comparison.cases.len(), suite.cases.len());
    let left_out =
        |case: &Case| engines.iter().filter_map(|e| case.leaves_out(e)).collect::<Vec<_>>();
    let notes: BTreeSet<String> = suite.cases.iter().flat_map(left_out).collect();
    assert_eq!(comparison.notes.iter().cloned().collect::<BTreeSet<_>>(), notes);
    // So short an open loop misses its rate by any pause of the machine's; nothing may be cut
    // short.
    let cut = comparison.marks.iter().find(|mark| mark.doubt == Doubt::CutShort);
    assert_eq!(cut, None);
    let few = format!("only {rounds} round");
    assert!(comparison.cautions[0].starts_with(&few) && out.contains(&few), "{out}");
    for case in suite.cases {
        check_case(case, &engines, rounds, &comparison);
        check_device_requests(case, &engines, &comparison, DeviceRequests::of(dir.path()));
    }
    let page = std::fs::read_to_string(dir.path().join("out/compare.html")).unwrap();
    check_page(&page);
    assert_eq!(page.contains("<h2>Over the cases</h2>"), suite.cases.len() > 2);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{name}: a drawing went wrong");
    let markdown = std::fs::read_to_string(dir.path().join("out/compare.md")).unwrap();
    assert!(markdown.contains("| workload | learnedkv | learnedkv-lsm | baseline | btree-map |"));
    for report in [&page, &markdown, &out] {
        assert!(
            report.contains("thousands of operations per second, by the clock, client included")
        );
        assert!(report.contains("whole run: others kept busy, cores") && report.contains(&few));
        assert!(report.contains("scans and ranges a twentieth"));
    }
    assert_eq!(markdown.contains("| workload: case |"), suite.cases.len() > 1);
    assert_eq!(markdown.contains("| cost: case |"), suite.cases.len() > 1);
    assert_eq!(page.contains("whole run, written per byte put"), suite.cases.len() > 2);
}

/// Every workload of `case` has its figures of every engine that was not left out.
fn check_case(case: &Case, engines: &[&str], rounds: &str, comparison: &Comparison) {
    let of = |metric: &str| {
        let all = comparison.rows.iter().filter(|row| row.case == case.name);
        all.filter(|row| row.metric == metric).collect::<Vec<_>>()
    };
    let workloads: Vec<&str> = case.workloads.split(',').collect();
    let count = |is: &dyn Fn(&str) -> bool| workloads.iter().filter(|name| is(name)).count();
    let open = count(&|name| name.contains('='));
    // And what writes with what it left to be done, where that is done next.
    let leaves = |name: &str| {
        let base = name.split(['/', '*', '@']).next().unwrap();
        writes(base) && !name.contains('=') && !name.starts_with('~')
    };
    let pairs = workloads.windows(2).filter(|pair| leaves(pair[0]) && pair[1] == "settle");
    let with_rest: BTreeSet<&str> = pairs.map(|pair| pair[0]).collect();
    let rows = comparison.rows.iter().filter(|row| row.case == case.name);
    let sums: BTreeSet<&str> =
        rows.filter_map(|row| Some(row.workload.split_once(" + ")?.0)).collect();
    assert_eq!(sums.len(), with_rest.len(), "{sums:?} of {}", case.name);
    let by_clock =
        count(&|name| name != "settle" && !name.starts_with('~')) - open + with_rest.len();
    // What is handed over at once, or verified, has no time of its own in the engine.
    let alone = count(&|name| name == "verify")
        + count(&|name| name == "ingest") * (1 + usize::from(with_rest.contains("ingest")));
    let measured = by_clock - alone;
    let (throughput, reached) = (of("throughput"), of("reached"));
    assert_eq!((throughput.len(), reached.len()), (measured, open), "{}", case.name);
    assert!(comparison.rows.iter().all(|row| !row.workload.starts_with('~')));
    for row in throughput.into_iter().chain(reached) {
        assert!(row.cells.iter().flatten().all(|rate| *rate > 0.0), "{row:?}");
        for (engine, cell) in engines.iter().zip(&row.cells) {
            let left_out = case.leaves_out(engine).is_some();
            let expected = if left_out { 0 } else { rounds.parse().unwrap() };
            assert_eq!(cell.len(), expected, "{engine}: {row:?}");
        }
    }
    let clock = of("throughput by the clock, client included");
    assert_eq!(clock.len(), by_clock, "{}", case.name);
    let settles = count(&|name| name == "settle");
    for metric in ["time", "processor in all", "device read in all", "device written in all"] {
        assert_eq!(of(metric).len(), settles, "{metric} of {}", case.name);
        assert!(of(metric).iter().all(|row| row.median(0).is_some()), "{metric}");
    }
    assert!(of("metadata")[0].median(0).is_some_and(|bits| bits > 0.0));
    let written = of("written per byte put")[0];
    for (number, engine) in engines.iter().enumerate().filter(|(_, e)| case.leaves_out(e).is_none())
    {
        let is_btree = ["lmdb", "redb"].contains(engine);
        assert_eq!(written.median(number).is_none(), is_btree, "{engine}: {written:?}");
    }
    let check = comparison.baseline_in(case.name).unwrap();
    let judged = engines.contains(&"blobdb");
    assert_eq!(check.words.contains("not among the engines"), !judged, "{check:?}");
}

/// Every workload says what the device completed, or for every engine that nobody knows.
fn check_device_requests(
    case: &Case,
    engines: &[&str],
    comparison: &Comparison,
    known: Option<DeviceRequests>,
) {
    let of = |workload: &str, metric: &str| comparison.row(case.name, workload, metric);
    for row in comparison.rows.iter().filter(|row| row.case == case.name) {
        let counted = ["throughput", "reached"].contains(&row.metric.as_str());
        if !counted || row.workload.contains(" + ") {
            continue;
        }
        for metric in DEVICE_REQUESTS {
            let requests = of(&row.workload, metric).unwrap();
            assert_eq!(requests.cells.len(), engines.len());
            for (figures, requests) in row.cells.iter().zip(&requests.cells) {
                let expected = known.map_or(0, |_| figures.len());
                assert_eq!(requests.len(), expected, "{metric} of {}", row.workload);
            }
        }
    }
}

macro_rules! suites {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                runs_tiny($name);
            }
        )*

        #[test]
        fn every_suite_has_a_test_of_its_own() {
            let named: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            assert_eq!(named, [$($name),*]);
        }
    };
}

// One test each, so that they run at once.
suites! {
    ycsb_runs_tiny: "ycsb",
    cold_runs_tiny: "cold",
    phases_runs_tiny: "phases",
    memory_runs_tiny: "memory",
    size_runs_tiny: "size",
    dist_runs_tiny: "dist",
    sosd_runs_tiny: "sosd",
    values_runs_tiny: "values",
    sizes_runs_tiny: "sizes",
    scan_runs_tiny: "scan",
    absent_runs_tiny: "absent",
    overprovision_runs_tiny: "overprovision",
    threads_runs_tiny: "threads",
    open_runs_tiny: "open",
    durable_runs_tiny: "durable",
    redb_runs_tiny: "redb",
}

#[test]
fn missing_key_sets_are_skipped_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    let arguments = ["--suite", "sosd", "--scale", "tiny", "--data", none.to_str().unwrap()];
    let (good, out, err) = compare(&arguments, dir.path());
    assert!(!good && err.contains("no case ran"), "{err}\n{out}");
    let said = format!("paths: skipped: there is no file {}/paths_500k.txt", none.display());
    assert!(out.contains(&said), "{out}");
    let comparison = comparison(dir.path());
    assert_eq!((comparison.notes.len(), comparison.rows.len()), (3, 0));
    check_page(&std::fs::read_to_string(dir.path().join("out/compare.html")).unwrap());
}

#[test]
fn a_rate_makes_an_open_loop_of_any_suite() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--scale", "tiny", "--engines", "btree-map", "--rounds", "1"];
    let (good, out, err) =
        compare(&[&arguments[..], &["--rate", "A=2k,C=4k"]].concat(), dir.path());
    assert!(good, "{err}\n{out}");
    let comparison = comparison(dir.path());
    let of = |workload: &str, metric: &str| {
        let is = |row: &&Row| row.workload == workload && row.metric == metric;
        comparison.rows.iter().find(is).and_then(|row| row.median(0))
    };
    for (workload, rate) in [("A=2k", 2e3), ("C=4k", 4e3)] {
        assert_eq!(of(workload, "throughput"), None);
        // 400 Poisson arrivals: a twentieth is one deviation.
        let reached = of(workload, "reached").unwrap();
        assert!(reached < rate * 1.3, "{workload}: {reached}");
        assert!(of(workload, "read p99.9").is_some());
    }
    assert!(of("B", "throughput").is_some() && of("B", "reached").is_none());
}

#[test]
fn a_load_counts_with_what_it_leaves_and_reports_say_how_all_were_settled() {
    for (how, name) in [("at-rest", "settle"), ("compacted", "compact")] {
        let dir = tempfile::tempdir().unwrap();
        let arguments =
            ["--suite", "absent", "--case", "1016 B", "--scale", "tiny", "--settle", how];
        let engines = ["--engines", "learnedkv,btree-map", "--rounds", "2"];
        let (good, out, err) = compare(&[&arguments[..], &engines].concat(), dir.path());
        assert!(good, "{err}\n{out}");
        // Each round begins with another engine.
        let at = |words: &str| out.find(words).unwrap();
        let first = ["round 1: learnedkv", "round 2: learnedkv"].map(at);
        // Of two rounds, over no rival.
        assert!(!out.contains("by rounds"), "{out}");
        let other = ["round 1: btree-map", "round 2: btree-map"].map(at);
        assert_ne!(first[0] < other[0], first[1] < other[1], "{out}");

        let comparison = comparison(dir.path());
        assert_eq!(comparison.settling, how);
        let said = format!("settled {how}: each engine");
        let page = std::fs::read_to_string(dir.path().join("out/compare.html")).unwrap();
        let markdown = std::fs::read_to_string(dir.path().join("out/compare.md")).unwrap();
        assert!(out.contains(&said) && page.contains(&said) && markdown.contains(&said));
        let case = "1016 B";
        let reports = [1, 2].map(|round| {
            let path = format!("out/runs/1016-B-learnedkv-{round}/report.json");
            let json = std::fs::read_to_string(dir.path().join(path)).unwrap();
            serde_json::from_str::<learnedkv_bench::report::Report>(&json).unwrap()
        });
        let of = |workload: &str, metric: &str| comparison.row(case, workload, metric).unwrap();
        let with_rest = of(&format!("load + {name}"), "throughput");
        for (round, report) in reports.iter().enumerate() {
            let [load, settle, absent] = [0, 1, 3].map(|number| &report.phases[number]);
            assert_eq!(absent.asked_operations, 4_000, "ten times what a tiny mix is");
            let operations = load.operations as f64;
            let all = load.engine_seconds + settle.seconds;
            // The last bit of a number may go on its way through JSON.
            let same = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-9;
            assert!(same(with_rest.cells[0][round], operations / all), "{with_rest:?}");
            assert!(same(of(name, "time").cells[0][round], settle.seconds));
            assert!(same(of(name, "processor in all").cells[0][round], settle.cpu_seconds));
            let by_clock = of("absent", "throughput by the clock, client included").cells[0][round];
            assert!(same(by_clock, absent.operations as f64 / absent.seconds));
            assert!(by_clock < of("absent", "throughput").cells[0][round]);
        }
        let converted = reports.iter().flat_map(|report| &report.engine_stats.figures);
        let shares = converted.filter(|(name, _)| name == "settled_share").map(|(_, share)| *share);
        let expected = f64::from(u8::from(how == "compacted"));
        assert_eq!(shares.collect::<Vec<_>>(), [expected, expected], "{how}");
    }
}

#[test]
fn blocks_compression_and_requests_are_as_asked_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let asked = ["--block-size", "16KiB", "--compression", "lz4", "--requests", "uniform"];
    let asked = [&asked[..], &["--value-compressibility", "0.5"]].concat();
    let engines = ["--scale", "tiny", "--engines", "learnedkv,btree-map", "--rounds", "1"];
    let (good, out, err) = compare(&[&asked[..], &engines].concat(), dir.path());
    assert!(good, "{err}\n{out}");
    let comparison = comparison(dir.path());
    let words = &comparison.cases[0].1;
    assert!(words.contains("values of 1016 bytes (0.5 of them compressible)"), "{words}");
    assert!(words.contains("uniform requests") && words.contains("blocks of 16.0 KiB"), "{words}");
    assert_eq!(comparison.notes, ["1016 B: btree-map has no compression lz4: it ran without"]);
    let json = dir.path().join("out/runs/1016-B-learnedkv-1/report.json");
    let json = std::fs::read_to_string(json).unwrap();
    let report: learnedkv_bench::report::Report = serde_json::from_str(&json).unwrap();
    let of = |name: &str| &report.settings.iter().find(|(known, _)| known == name).unwrap().1;
    let settings = ["block size", "compression", "of settled data", "requests", "settled"].map(of);
    assert_eq!(settings, ["16.0 KiB", "lz4", "lz4", "uniform", "at-rest"]);
    assert_eq!(of("compressible share of values"), "0.5");
}

#[test]
fn of_a_suite_only_the_cases_asked_for_are_run() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--suite", "threads", "--case", "1 client", "--case", "4", "--scale", "tiny"];
    let engine = ["--engines", "btree-map", "--rounds", "1"];
    let (good, out, err) = compare(&[&arguments[..], &engine].concat(), dir.path());
    assert!(good, "{err}\n{out}");
    let cases = comparison(dir.path()).cases.into_iter().map(|(name, _)| name);
    assert_eq!(cases.collect::<Vec<_>>(), ["1 client", "4 clients"]);
}

#[test]
fn direct_reads_that_are_none_are_said() {
    // A file system that takes the flag and reads through its cache, or refuses the flag.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        learnedkv_skips::skip("shm", "there is no /dev/shm");
        return;
    };
    let engines = "learnedkv,learnedkv-lsm";
    let arguments = ["--suite", "cold", "--scale", "tiny", "--engines", engines, "--rounds", "1"];
    let (good, out, err) = compare(&arguments, dir.path());
    assert!(good, "{err}\n{out}");
    let notes = comparison(dir.path()).notes;
    for engine in engines.split(',') {
        let said =
            format!("direct reads: {engine}: reads were NOT direct: the store asked its files");
        assert!(notes.iter().any(|note| note.starts_with(&said)), "{notes:?}");
    }
    let device = "direct reads: reads of the device alone were none: ";
    assert!(notes.iter().any(|note| note.starts_with(device)), "{notes:?}");
    // In the case of that name alone: the others ask for none.
    assert_eq!(notes.len(), 3, "{notes:?}");
}

#[test]
fn an_engine_that_fails_is_said_and_the_others_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    // There is no room for its report.
    std::fs::create_dir_all(dir.path().join("out/runs")).unwrap();
    std::fs::write(dir.path().join("out/runs/1016-B-learnedkv-1"), "").unwrap();
    let arguments = ["--scale", "tiny", "--engines", "btree-map,learnedkv", "--rounds", "1"];
    let (good, out, err) = compare(&arguments, dir.path());
    assert!(
        !good && err.contains("1 runs failed") && err.contains("1016-B-learnedkv-1"),
        "{err}\n{out}"
    );
    let comparison = comparison(dir.path());
    assert!(comparison.notes[0].contains("learnedkv"), "{:?}", comparison.notes);
    let rates = comparison.rows.iter().find(|row| row.metric == "throughput").unwrap();
    assert!(rates.median(0).is_some() && rates.median(1).is_none());
}

/// The process whose parent is `id`, if there is one.
fn child_of(id: u32) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes.find(|process| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        behind.split_whitespace().nth(1) == Some(&id.to_string())
    })
}

#[test]
fn the_store_of_an_engine_that_was_killed_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let compare = Command::new(env!("CARGO_BIN_EXE_learnedkv-bench"))
        .args(["compare", "--suite", "absent", "--case", "1016 B", "--engines", "btree-map"])
        .args(["--rounds", "1", "--scale", "tiny", "--operations", "1g"])
        .args(["--dir".as_ref(), store.as_os_str()])
        .args(["--out".as_ref(), dir.path().join("out").as_os_str()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let child = loop {
        assert!(std::time::Instant::now() < deadline, "no engine was started");
        // A parent that only tries to open has no child.
        if let Some(child) = child_of(compare.id()).filter(|_| store.join("db").exists()) {
            break child;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(Command::new("kill").args(["-9", &child.to_string()]).status().unwrap().success());
    let output = compare.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && err.contains("signal: 9"), "{err}");
    assert!(!store.exists(), "the store is still there");
}

#[test]
fn a_mix_that_the_time_limit_ends_is_said_to_differ() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--suite", "size", "--case", "1 M", "--scale", "tiny", "--rounds", "1"];
    let limits = ["--engines", "btree-map", "--operations", "100m", "--seconds", "1"];
    let (good, out, err) = compare(&[&arguments[..], &limits].concat(), dir.path());
    assert!(good, "{err}\n{out}");
    let comparison = comparison(dir.path());
    let marked: Vec<_> = comparison.marks.iter().map(|mark| mark.workload.as_str()).collect();
    // What comes after is told from it, the last settle too.
    assert_eq!(marked, ["A", "settle (2)", "~C", "C", "E", "settle (3)"]);
    for row in ["A  ", "A + settle  ", "E + settle  "] {
        let cut = |line: &str| line.starts_with(row) && line.contains(" (cut short)");
        assert_eq!(out.lines().filter(|line| cut(line)).count(), 2, "{row} by two clocks: {out}");
    }
    // In the drawing, too.
    let page = std::fs::read_to_string(dir.path().join("out/compare.html")).unwrap();
    assert!(page.contains(" (cut short)</text>"), "{page}");
    let said = "1 M: btree-map: A cut short (";
    assert!(comparison.cautions.iter().any(|caution| caution.starts_with(said)), "{out}");
}

#[test]
fn what_cannot_be_compared_is_refused_before_anything_is_run() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["--suite", "nosuch"][..], "unknown suite `nosuch`"),
        (
            &["--suite", "threads", "--case", "4 cl"],
            "no case of the suite threads is called \"4 cl\" or has these words in its name; \
             there are \"1 client\", \"2 clients\", \"4 clients\"",
        ),
        (&["--engines", "learnedkv,nosuch"], "unknown engine `nosuch`"),
        (&["--engines", "learnedkv,learnedkv"], "`learnedkv` is there twice"),
        (&["--scale", "huge"], "--scale: expected tiny or full, found `huge`"),
        (&["--rounds", "0"], "--rounds: at least 1"),
        (&["--option", "learnedkv"], "--option: expected ENGINE:NAME=VALUE"),
        (&["--option", "learnedkv:reads=hard"], "unknown way to read `hard`"),
        (&["--option", "learnedkv:memtable=some"], "option learnedkv:memtable=some: `some` is not"),
        (&["--rate", "Z=5k"], "--rate: `Z=5k` is for no workload of load"),
        (&["--rate", "A=0"], "at least 1, found 0"),
        (&["--settle", "never"], "--settle: unknown way to settle `never`"),
        (&["--requests", "some"], "--requests: unknown request distribution `some`"),
        (&["--compression", "some"], "--compression: "),
        (&["--value-compressibility", "2"], "--value-compressibility: "),
        (&["--block-size", "some"], "--block-size: `some` is not"),
        (&["--reads", "hard"], "--reads: unknown way to read `hard`"),
        (&["--option", "rocksdb:a=b"], "--option: expected ENGINE:NAME=VALUE"),
        (&["--keys", "0"], "1016 B: learnedkv: --keys: `uniform:0` holds no keys"),
        (&["--value-size", "nosuch"], "1016 B: learnedkv: --value-size: "),
        (&["--operations", "0"], "1016 B: learnedkv: --operations: at least 1"),
        (&["--option", "learnedkv-lsm:nosuch=1"], "1016 B: learnedkv-lsm: option nosuch=1"),
    ] {
        let (good, _, err) = compare(arguments, dir.path());
        assert!(!good && err.contains(words), "{arguments:?}: {err}");
    }
    assert!(!dir.path().join("store").exists() && !dir.path().join("out").exists());
}
