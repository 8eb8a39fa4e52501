//! The kill oracle, tried on the baseline with real kills, and on stores that were tampered with.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use learnedkv_bench::engines::{OpenSettings, opener};
use learnedkv_bench::keys::KeySpec;
use learnedkv_bench::oracle::{AckLog, Setup, WriterPlan, verify, write};

const PROGRAM: &str = env!("CARGO_BIN_EXE_learnedkv-bench");
const ENGINE: &str = "btree-map";

fn verify_command(engine: &str, dir: &Path, acks: &Path) -> Output {
    Command::new(PROGRAM)
        .args(["verify", "--engine", engine, "--seal", "--dir"])
        .arg(dir)
        .arg("--acks")
        .arg(acks)
        .output()
        .unwrap()
}

/// Waits until the file at `path` has grown beyond `bytes`.
fn wait_for(path: &Path, bytes: u64) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while fs::metadata(path).map_or(0, |data| data.len()) <= bytes {
        assert!(Instant::now() < give_up, "{} does not grow", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_killed_writer_lost_nothing_round_after_round() {
    kill_rounds(ENGINE, "buffered");
}

#[test]
fn a_killed_learnedkv_lost_nothing_round_after_round() {
    kill_rounds("learnedkv", "buffered");
}

#[test]
fn a_killed_learnedkv_that_syncs_now_and_then_lost_nothing() {
    kill_rounds("learnedkv", "every-3ms");
}

fn kill_rounds(engine: &str, durability: &str) {
    let outer = tempfile::tempdir().unwrap();
    let (dir, acks) = (outer.path().join("store"), outer.path().join("acks"));
    for round in 0..4_u64 {
        let before = fs::metadata(&acks).map_or(0, |data| data.len());
        let mut writer = Command::new(PROGRAM)
            .args(["writer", "--engine", engine, "--keys", "uniform:200", "--threads", "2"])
            .args(["--durability", durability])
            .arg("--acks")
            .arg(&acks)
            .arg("--dir")
            .arg(&dir)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(&acks, before + 500 + round * 1777);
        writer.kill().unwrap();
        writer.wait().unwrap();
        let output = verify_command(engine, &dir, &acks);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "round {round}: {text}");
        assert!(AckLog::read(&acks).unwrap().sealed);
    }
}

/// A finished writer's store, acknowledgements and setup.
fn written(outer: &Path, operations: u64) -> (PathBuf, PathBuf, Setup) {
    let (dir, acks) = (outer.join("store"), outer.join("acks"));
    let setup: Setup = "learnedkv-acks 1 value-size=30 seed=5 threads=2 batch=4 \
                        durability=buffered keys=uniform:50"
        .parse()
        .unwrap();
    let plan = WriterPlan {
        engine: ENGINE.to_string(),
        open: OpenSettings::at(&dir),
        setup: setup.clone(),
        acks: Some(acks.clone()),
        operations,
    };
    write(&plan).unwrap();
    (dir, acks, setup)
}

fn failures(dir: &Path, acks: &Path) -> Vec<String> {
    verify(ENGINE, &OpenSettings::at(dir), acks, false).unwrap().failures.samples
}

#[test]
fn an_untouched_store_is_right_and_a_lost_tail_is_not() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, acks, _) = written(outer.path(), 300);
    assert_eq!(failures(&dir, &acks), [] as [String; 0]);
    // Cut the newest operations off the baseline's log, twelve more than may have been under way.
    let log = dir.join("btree-map.log");
    let length = fs::metadata(&log).unwrap().len();
    OpenOptions::new().write(true).open(&log).unwrap().set_len(length - 20 * 54).unwrap();
    assert!(!failures(&dir, &acks).is_empty(), "lost operations were not noticed");
    let output = verify_command(ENGINE, &dir, &acks);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("acknowledged operations"));
}

#[test]
fn lost_invented_and_foreign_entries_are_noticed() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, acks, setup) = written(outer.path(), 300);
    let keys = setup.keys.make(setup.seed).unwrap().set;
    let tamper = |change: &dyn Fn(&dyn learnedkv_bench::engines::Engine)| {
        let log = dir.join("btree-map.log");
        let saved = fs::read(&log).unwrap();
        let engine = opener(ENGINE).unwrap()(&OpenSettings::at(&dir)).unwrap();
        change(engine.as_ref());
        engine.close().unwrap();
        let found = failures(&dir, &acks);
        fs::write(&log, saved).unwrap();
        found.join("\n")
    };
    let present = (0..keys.len())
        .map(|rank| keys.key(rank).as_ref().to_vec())
        .find(|key| {
            let engine = opener(ENGINE).unwrap()(&OpenSettings::at(&dir)).unwrap();
            engine.get(key, &mut |_| {}).unwrap()
        })
        .unwrap();
    assert!(tamper(&|e| e.remove(&present).unwrap()).contains("found nothing"));
    assert!(tamper(&|e| e.insert(b"ghost", b"x").unwrap()).contains("was never written"));
    assert!(tamper(&|e| e.insert(&present, &[7; 30]).unwrap()).contains("another key's value"));
    assert_eq!(tamper(&|_| {}), "");
}

#[test]
fn a_write_that_survives_an_earlier_lost_one_is_noticed() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, acks, setup) = written(outer.path(), 300);
    // Pretend that fewer were acknowledged, so that the tail counts as under way: then any prefix of
    // it is fine, but not its last operation without those before.
    let text = fs::read_to_string(&acks).unwrap();
    let header = text.lines().next().unwrap();
    let shortened = format!("{header}\n0 296\n1 300\n");
    fs::write(&acks, shortened).unwrap();
    assert_eq!(failures(&dir, &acks), [] as [String; 0]);

    let keys: KeySpec = setup.keys.clone();
    let keys = keys.make(setup.seed).unwrap().set;
    let mut stream = learnedkv_bench::oracle::Stream::new(setup.seed, keys.len(), 0, setup.threads);
    let steps: Vec<_> = stream.by_ref().take(300).collect();
    // Undo operation 297 (the first under way) if no later one touches its key.
    let undone = steps[296];
    assert!(steps[297..].iter().all(|s| s.index != undone.index), "choose another seed");
    let before = steps[..296].iter().rev().find(|s| s.index == undone.index);
    let engine = opener(ENGINE).unwrap()(&OpenSettings::at(&dir)).unwrap();
    let key = keys.key(undone.index);
    match before {
        Some(step) if !step.removes => {
            let values = learnedkv_bench::values::Values::new(setup.value_size, setup.seed);
            let mut value = Vec::new();
            values.fill(key.as_ref(), step.version, &mut value);
            engine.insert(key.as_ref(), &value).unwrap();
        }
        _ => engine.remove(key.as_ref()).unwrap(),
    }
    engine.close().unwrap();
    let found = failures(&dir, &acks).join("\n");
    assert!(found.contains("an earlier write is lost though a later one is there"), "{found}");
}

#[test]
fn an_unsealed_file_is_not_continued_and_a_witness_inside_the_store_is_refused() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, acks, _) = written(outer.path(), 20);
    let run = |acks: &Path| {
        let output = Command::new(PROGRAM)
            .args(["writer", "--engine", ENGINE, "--keys", "uniform:50", "--value-size", "30"])
            .args(["--seed", "5", "--threads", "2", "--batch", "4", "--operations", "10", "--acks"])
            .arg(acks)
            .arg("--dir")
            .arg(&dir)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run(&acks);
    assert!(code == Some(2) && text.contains("run verify --seal first"), "{text}");
    assert!(verify_command(ENGINE, &dir, &acks).status.success());
    assert_eq!(run(&acks).0, Some(0));
    let (code, text) = run(&dir.join("acks"));
    assert!(code == Some(2) && text.contains("lies inside the store"), "{text}");
}

/// It was taken for sealed, so that the operations under way when it was killed were "lost" or
/// "later versions".
#[test]
fn a_writer_killed_before_its_first_acknowledgement_had_operations_under_way() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, acks, _) = written(outer.path(), 0);
    assert!(!AckLog::read(&acks).unwrap().sealed);
    assert!(verify_command(ENGINE, &dir, &acks).status.success());
    assert!(AckLog::read(&acks).unwrap().sealed);
    written(outer.path(), 0);
    assert!(!AckLog::read(&acks).unwrap().sealed);
}
