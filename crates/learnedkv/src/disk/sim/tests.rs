//! What crashes may do, and what they may not.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::page::SECTOR_BYTES;
use super::random::Random;
use super::{CrashKind, SimDisk, Stage};
use crate::disk::{Access, Disk, File, OperationKind};
use crate::error::ErrorKind;

const SEEDS: std::ops::Range<u64> = 0..300;

/// A disk with a synced directory `/d`.
fn disk() -> SimDisk {
    let disk = SimDisk::new(11);
    disk.create_dir(Path::new("/d")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

/// A file whose content and name are synced.
fn synced_file(disk: &SimDisk, path: &str, content: &[u8]) -> Arc<dyn File> {
    let file = disk.create(Path::new(path)).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new(path).parent().unwrap()).unwrap();
    file
}

fn content(disk: &SimDisk, path: &str) -> Vec<u8> {
    let file = disk.open(Path::new(path), Access::Random).unwrap();
    let mut bytes = vec![0xee; file.length_bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Names and first bytes of the files in `/d`, as one text: "a1 b2".
fn summary(disk: &SimDisk) -> String {
    let Ok(names) = disk.list(Path::new("/d")) else { return "no directory".into() };
    let first = |name: &String| content(disk, &format!("/d/{name}")).first().copied();
    let texts = names.iter().map(|n| format!("{n}{}", first(n).map_or('-', char::from)));
    texts.collect::<Vec<_>>().join(" ")
}

/// What machine crashes make of a disk, over all seeds.
fn outcomes<T: Ord>(disk: &SimDisk, look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    SEEDS.map(|seed| look(&disk.crash_clone(CrashKind::Machine, seed))).collect()
}

fn summaries(disk: &SimDisk) -> Vec<String> {
    outcomes(disk, summary).into_iter().collect()
}

#[test]
fn synced_data_survives_every_crash() {
    let disk = disk();
    let file = synced_file(&disk, "/d/a", &[1; 20_000]);
    // Later unsynced writes elsewhere in the same page, and a later name, endanger nothing.
    file.write_all_at(&[2; 100], 8192).unwrap();
    disk.create(Path::new("/d/b")).unwrap();
    for seed in SEEDS {
        let left = disk.crash_clone(CrashKind::Machine, seed);
        let found = content(&left, "/d/a");
        assert_eq!(found.len(), 20_000);
        assert!(found[..8192].iter().chain(&found[8192 + 512..]).all(|&b| b == 1), "seed {seed}");
    }
    file.sync().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(summaries(&disk), ["a\u{1} b-"]);
    assert_eq!(outcomes(&disk, |d| content(d, "/d/a")[8192]), BTreeSet::from([2]));
}

#[test]
fn unsynced_data_vanishes_persists_and_tears() {
    let disk = disk();
    let file = synced_file(&disk, "/d/a", &[1; 8192]);
    file.write_all_at(&[2; 8192], 0).unwrap();
    file.write_all_at(&[3; 8192], 0).unwrap();
    let found = outcomes(&disk, |d| content(d, "/d/a"));
    for value in 1..=3 {
        assert!(found.contains(&vec![value; 8192]), "all of state {value} can be found");
    }
    let by_page = |c: &Vec<u8>| c[..4096].iter().all(|b| *b == c[0]) && c[0] != c[4096];
    assert!(found.iter().any(by_page), "one page persists without the other");
    let mut torn = 0;
    for bytes in &found {
        for sector in bytes.chunks(SECTOR_BYTES) {
            assert!(sector.iter().all(|b| *b == sector[0]), "sectors are whole");
        }
        torn += usize::from(bytes[..4096].iter().any(|b| *b != bytes[0]));
    }
    assert!(torn > 20, "pages tear");
}

#[test]
fn lengths_and_content_persist_apart() {
    let disk = disk();
    let file = synced_file(&disk, "/d/a", &[1; 100]);
    file.write_all_at(&[2; 9900], 100).unwrap();
    let found = outcomes(&disk, |d| content(d, "/d/a"));
    let mut kept = vec![1; 100];
    kept.resize(10_000, 2);
    let mut zeros = vec![1; 100];
    zeros.resize(10_000, 0);
    assert!(found.contains(&kept));
    assert!(found.contains(&zeros), "the length without the content");
    assert!(found.contains(&vec![1; 100]), "neither, or the content without the length");
    assert!(found.iter().all(|c| c.len() == 100 || c.len() == 10_000));
    // Bytes past a length that was found do not come back when the file grows again.
    let left = disk.crash_clone(CrashKind::Machine, 3);
    let again = left.open(Path::new("/d/a"), Access::Random).unwrap();
    assert_eq!(again.length_bytes().unwrap(), 100);
    again.truncate(10_000).unwrap();
    assert_eq!(content(&left, "/d/a"), zeros);

    file.sync().unwrap();
    file.truncate(50).unwrap();
    let lengths = outcomes(&disk, |d| content(d, "/d/a").len());
    assert_eq!(lengths, BTreeSet::from([50, 10_000]), "a cut may not persist either");
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, |d| content(d, "/d/a")), BTreeSet::from([vec![1; 50]]));
}

#[test]
fn the_first_seeds_are_the_extremes() {
    let disk = disk();
    synced_file(&disk, "/d/a", b"1");
    disk.open(Path::new("/d/a"), Access::Random).unwrap().write_all_at(b"22", 0).unwrap();
    disk.create(Path::new("/d/b")).unwrap().write_all_at(b"3", 0).unwrap();
    let look = |seed| {
        let left = disk.crash_clone(CrashKind::Machine, seed);
        (String::from_utf8(content(&left, "/d/a")).unwrap(), summary(&left))
    };
    let expected = [("1", "a1"), ("22", "a2 b3"), ("1\0", "a1 b\0"), ("2", "a2 b-"), ("22", "a2")];
    for (seed, (a, all)) in (0..).zip(expected) {
        assert_eq!(look(seed), (a.to_owned(), all.to_owned()), "seed {seed}");
    }
}

#[test]
fn names_need_a_directory_sync() {
    let disk = disk();
    let file = disk.create(Path::new("/d/a")).unwrap();
    file.write_all_at(b"1", 0).unwrap();
    file.sync().unwrap();
    disk.create(Path::new("/d/b")).unwrap().write_all_at(b"2", 0).unwrap();
    let found = summaries(&disk);
    for expected in ["", "a1", "b2", "a1 b2", "b-"] {
        assert!(found.contains(&expected.to_owned()), "{expected:?} is not in {found:?}");
    }
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(summaries(&disk), ["a1 b\0", "a1 b-", "a1 b2"]);
}

#[test]
fn a_new_directory_needs_a_sync_of_its_parent() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("/d/e")).unwrap();
    let path = "/d/e/a";
    synced_file(&disk, path, b"1");
    let there = |d: &SimDisk| d.open(Path::new(path), Access::Random).is_ok();
    assert_eq!(outcomes(&disk, there), BTreeSet::from([false, true]));
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(outcomes(&disk, there), BTreeSet::from([false, true]), "/d itself may be gone");
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(outcomes(&disk, there), BTreeSet::from([true]));
}

#[test]
fn renames_are_atomic() {
    let disk = disk();
    synced_file(&disk, "/d/current", b"1");
    synced_file(&disk, "/d/new", b"2");
    disk.rename(Path::new("/d/new"), Path::new("/d/current")).unwrap();
    assert_eq!(summaries(&disk), ["current1 new2", "current2"]);
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(summaries(&disk), ["current2"]);
}

#[test]
fn changes_of_one_name_persist_in_order() {
    let disk = disk();
    synced_file(&disk, "/d/a", b"1");
    disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
    let second = disk.create(Path::new("/d/a")).unwrap();
    second.write_all_at(b"2", 0).unwrap();
    second.sync().unwrap();
    // Never "a2" alone, with the rename undone: file 1 would be lost without having been removed.
    assert_eq!(summaries(&disk), ["a1", "a2 b1", "b1"]);
    disk.remove(Path::new("/d/b")).unwrap();
    assert_eq!(summaries(&disk), ["", "a1", "a2", "a2 b1", "b1"]);
}

#[test]
fn removed_names_do_not_come_back() {
    let disk = disk();
    synced_file(&disk, "/d/a", b"1");
    disk.remove(Path::new("/d/a")).unwrap();
    assert_eq!(summaries(&disk), ["", "a1"], "not before the directory sync");
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(summaries(&disk), [""]);
    let next = disk.create(Path::new("/d/a")).unwrap();
    next.write_all_at(b"2", 0).unwrap();
    next.sync().unwrap();
    assert_eq!(summaries(&disk), ["", "a2"], "nor with a new file of the name");
}

#[test]
fn renames_between_directories_need_both_syncs() {
    for order in [["/d", "/e"], ["/e", "/d"]] {
        let disk = disk();
        disk.create_dir(Path::new("/e")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        synced_file(&disk, "/d/a", b"1");
        disk.rename(Path::new("/d/a"), Path::new("/e/a")).unwrap();
        let look = |d: &SimDisk| ["/d", "/e"].map(|dir| d.list(Path::new(dir)).unwrap().len());
        let both = BTreeSet::from([[0, 1], [1, 0]]);
        disk.sync_dir(Path::new(order[0])).unwrap();
        assert_eq!(outcomes(&disk, look), both);
        disk.sync_dir(Path::new(order[1])).unwrap();
        assert_eq!(outcomes(&disk, look), BTreeSet::from([[0, 1]]));
    }
}

#[test]
fn a_process_crash_keeps_what_was_written_and_pending() {
    let disk = disk();
    let _lock = disk.lock(Path::new("/d/LOCK")).unwrap();
    disk.create(Path::new("/d/a")).unwrap().write_all_at(b"1", 0).unwrap();
    let region = disk.create_log_region(Path::new("/d/log"), 4096).unwrap();
    let place = region.reserve(10).unwrap();
    let published = region.reserve(10).unwrap();
    region.publish(published, &mut |b| b.fill(7)).unwrap();

    let left = disk.crash_clone(CrashKind::Process, 5);
    assert_eq!(content(&left, "/d/a"), b"1");
    let log = content(&left, "/d/log");
    assert_eq!((&log[..10], &log[10..20]), (&[0; 10][..], &[7; 10][..]));
    let _taken = left.lock(Path::new("/d/LOCK")).expect("locks do not outlive the process");
    assert_eq!(left.operation_count(), 0);
    // The dead process's publication does not reach the clone.
    region.publish(place, &mut |b| b.fill(6)).unwrap();
    assert_eq!(content(&left, "/d/log"), log);

    assert!(summaries(&left).len() > 3, "the machine may still crash");
    assert_eq!(summary(&left.crash_clone(CrashKind::Machine, 0)), "");
    left.open(Path::new("/d/a"), Access::Random).unwrap().sync().unwrap();
    left.sync_dir(Path::new("/d")).unwrap();
    let later = left.crash_clone(CrashKind::Machine, 0);
    assert_eq!(content(&later, "/d/a"), b"1", "a later process can sync it");
}

#[test]
fn log_records_persist_in_any_order_and_syncs_are_exact() {
    let disk = disk();
    let region = disk.create_log_region(Path::new("/d/log"), 3 * 4096).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    // The second page in three records, so that it has older unsynced states.
    for (value, length) in [(1, 4096), (2, 500), (2, 400), (2, 3196), (3, 4096)] {
        region.publish(region.reserve(length).unwrap(), &mut |b| b.fill(value)).unwrap();
    }
    let firsts = outcomes(&disk, |d| {
        let log = content(d, "/d/log");
        assert_eq!(log.len(), 3 * 4096, "the region's length is durable from the start");
        [log[0], log[4096], log[8192]]
    });
    assert_eq!(firsts.len(), 8, "each record vanishes or persists by itself: {firsts:?}");
    let torn = outcomes(&disk, |d| content(d, "/d/log")[..4096].to_vec());
    assert!(torn.iter().any(|page| page.contains(&0) && page.contains(&1)), "records tear");

    region.sync(4096 + 1000).unwrap();
    let mut rest = BTreeSet::new();
    for seed in SEEDS {
        let log = content(&disk.crash_clone(CrashKind::Machine, seed), "/d/log");
        assert!(log[..4096].iter().all(|&b| b == 1));
        assert!(log[4096..4096 + 1000].iter().all(|&b| b == 2));
        rest.insert((log[4096 + 1000], log[8191], log[8192]));
    }
    let all = [0, 2].into_iter().flat_map(|b| [(0, b, 0), (0, b, 3), (2, b, 0), (2, b, 3)]);
    assert_eq!(rest, all.collect(), "not a byte beyond the synced position is safe");
}

#[test]
fn crashes_repeat_by_their_seed_but_random_numbers_do_not() {
    let disk = disk();
    let file = synced_file(&disk, "/d/a", &[1; 50_000]);
    file.write_all_at(&[2; 60_000], 0).unwrap();
    disk.create(Path::new("/d/b")).unwrap();
    let crash = |seed| disk.crash_clone(CrashKind::Machine, seed);
    for seed in SEEDS {
        assert_eq!(summary(&crash(seed)), summary(&crash(seed)));
        assert!(content(&crash(seed), "/d/a") == content(&crash(seed), "/d/a"));
    }
    let (one, two) = (crash(8), crash(9));
    let numbers = [&disk, &one, &two].map(|d| d.random_u64());
    assert_eq!(BTreeSet::from(numbers).len(), 3, "no clone repeats another's file tags");
    assert_eq!(SimDisk::new(4).random_u64(), SimDisk::new(4).random_u64());
}

#[test]
fn clones_do_not_touch_each_other() {
    let disk = disk();
    let file = synced_file(&disk, "/d/a", &[1; 9000]);
    let clone = disk.crash_clone(CrashKind::Process, 0);
    let theirs = clone.open(Path::new("/d/a"), Access::Random).unwrap();
    theirs.write_all_at(&[2; 100], 5000).unwrap();
    file.write_all_at(&[3; 100], 0).unwrap();
    clone.remove(Path::new("/d/a")).unwrap();
    assert_eq!(content(&disk, "/d/a")[5000], 1);
    assert_eq!(content(&disk, "/d/a")[0], 3);
    let mut byte = [0];
    theirs.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [1]);
}

/// A random history of one file: after every step, a crash may find each sector, and the length,
/// in any state since the last sync and in no other.
#[test]
fn random_histories_crash_into_their_past() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let disk = disk();
        let file = synced_file(&disk, "/d/a", b"");
        let mut history: Vec<Vec<u8>> = vec![Vec::new()];
        for step in 0..60_u8 {
            let mut now = history.last().unwrap().clone();
            let (at, length) = (random.below(12_000), 1 + random.below(3000));
            match random.below(8) {
                0 => {
                    file.sync().unwrap();
                    history.clear();
                }
                1 => {
                    now.resize(at, 0);
                    file.truncate(at as u64).unwrap();
                }
                2 => {
                    let end = (at + length).min(now.len());
                    now[at.min(end)..end].fill(0);
                    file.discard(at as u64, length as u64).unwrap();
                }
                _ => {
                    now.resize(now.len().max(at + length), 0);
                    now[at..at + length].fill(step + 1);
                    file.write_all_at(&vec![step + 1; length], at as u64).unwrap();
                }
            }
            history.push(now);
            let killed = disk.crash_clone(CrashKind::Process, 0);
            assert!(content(&killed, "/d/a") == *history.last().unwrap(), "{seed} {step}");
            for crash in 0..8 {
                let left = killed.crash_clone(CrashKind::Machine, crash);
                assert_is_from_past(&content(&left, "/d/a"), &history);
            }
        }
    }
}

fn assert_is_from_past(found: &[u8], history: &[Vec<u8>]) {
    assert!(history.iter().any(|past| past.len() == found.len()), "no such length");
    for (sector, bytes) in found.chunks(SECTOR_BYTES).enumerate() {
        let start = sector * SECTOR_BYTES;
        // Past the end of a past state there were zeros.
        let matches = |past: &Vec<u8>| {
            let then = past.get(start..).unwrap_or_default();
            let (both, beyond) = bytes.split_at(bytes.len().min(then.len()));
            *both == then[..both.len()] && beyond == &[0; SECTOR_BYTES][..beyond.len()]
        };
        assert!(history.iter().any(matches), "sector {sector} was never so");
    }
}

#[test]
fn observers_see_every_change_in_its_stages() {
    type Seen = Vec<(u64, OperationKind, Stage, usize)>;
    let disk = SimDisk::new(1);
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let log = Arc::clone(&seen);
    disk.observe(move |operation, disk| {
        // What the clone holds of the file tells how far the operation is.
        let left = disk.crash_clone(CrashKind::Process, 0);
        let filled = left.open(Path::new("/a"), Access::Random).map_or(0, |file| {
            let mut bytes = vec![0; file.length_bytes().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes.iter().filter(|b| **b != 0).count()
        });
        // The observer may use the disk itself, too; that is not observed.
        disk.create_dir(Path::new("/observed")).unwrap();
        log.lock().unwrap().push((operation.index, operation.kind, operation.stage, filled));
    });
    let file = disk.create(Path::new("/a")).unwrap();
    file.write_all_at(&[1; 10], 0).unwrap();
    file.sync().unwrap();
    file.length_bytes().unwrap();
    disk.stop_observing();
    file.truncate(0).unwrap();
    use Stage::{After, Before, Midway};
    let stages: Vec<_> = seen.lock().unwrap().iter().map(|s| (s.1, s.2, s.3)).collect();
    assert_eq!(
        stages,
        [
            (OperationKind::Create, Before, 0),
            (OperationKind::Create, After, 0),
            (OperationKind::Write, Before, 0),
            (OperationKind::Write, Midway, 5),
            (OperationKind::Write, After, 10),
            (OperationKind::Sync, Before, 10),
            (OperationKind::Sync, After, 10),
        ]
    );
    let indexes: Vec<u64> = seen.lock().unwrap().iter().map(|s| s.0).collect();
    assert!(indexes.is_sorted() && indexes[0] == 0);
}

#[test]
fn observed_threads_do_not_deadlock() {
    let disk = disk();
    let region = disk.create_log_region(Path::new("/d/log"), 4 * 50 * 64).unwrap();
    let halves: Arc<Mutex<BTreeSet<(bool, bool)>>> = Arc::default();
    let found = Arc::clone(&halves);
    disk.observe(move |operation, disk| {
        let left = disk.crash_clone(CrashKind::Process, operation.index);
        if operation.stage == Stage::Midway {
            let (log, at) = (content(&left, "/d/log"), operation.offset_bytes as usize);
            found.lock().unwrap().insert((log[at] != 0, log[at + 63] != 0));
        }
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let region = &region;
            scope.spawn(move || {
                for _ in 0..50 {
                    let place = region.reserve(64).unwrap();
                    region.publish(place, &mut |b| b.fill(thread + 1)).unwrap();
                }
            });
        }
    });
    let halves = halves.lock().unwrap();
    assert_eq!(*halves, BTreeSet::from([(true, false), (false, true)]), "either half first");
}

#[test]
fn a_full_disk_refuses_growth_and_recovers() {
    let disk = disk();
    let path = Path::new("/d/a");
    let file = disk.create(path).unwrap();
    file.preallocate(3 * 4096).unwrap();
    assert_eq!(disk.used_bytes(), 3 * 4096);
    disk.set_space_limit_bytes(Some(4 * 4096));
    file.write_all_at(&[1; 3 * 4096], 0).unwrap();

    let error = file.write_all_at(&[2; 3 * 4096], 2 * 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull);
    assert!(error.to_string().starts_with("/d/a at byte"), "{error}");
    assert_eq!(file.length_bytes().unwrap(), 4 * 4096, "what had room was written");
    let kinds = [
        disk.create_log_region(Path::new("/d/log"), 1).err().map(|e| e.kind()),
        file.preallocate(5 * 4096).err().map(|e| e.kind()),
        disk.crash_clone(CrashKind::Process, 0)
            .create_log_region(Path::new("/d/log"), 1)
            .err()
            .map(|e| e.kind()),
    ];
    assert_eq!(kinds, [Some(ErrorKind::DiskFull); 3]);
    assert_eq!(disk.list(Path::new("/d")).unwrap(), ["a"]);
    file.write_all_at(&[3; 4096], 0).unwrap();

    file.discard(4096, 2 * 4096).unwrap();
    assert_eq!(disk.used_bytes(), 2 * 4096);
    let data = [0, 100, 4096, 5000, 3 * 4096, 5 * 4096].map(|from| file.data_from(from));
    assert_eq!(data, [0, 100, 3 * 4096, 3 * 4096, 3 * 4096, 5 * 4096]);
    assert_eq!(content(&disk, "/d/a")[4096..3 * 4096], [0; 2 * 4096]);
    disk.create_log_region(Path::new("/d/log"), 4097).unwrap();
    assert_eq!(disk.used_bytes(), 4 * 4096);
    disk.remove(Path::new("/d/log")).unwrap();
    disk.remove(path).unwrap();
    assert_eq!(disk.used_bytes(), 2 * 4096, "open files keep their space");
    drop(file);
    assert_eq!(disk.used_bytes(), 0);
    let left = disk.crash_clone(CrashKind::Machine, 0);
    assert_eq!(left.used_bytes(), 0, "the names were never durable");
}

/// What is mapped here is a copy: a file that was written over under somebody would not have been seen.
#[test]
#[should_panic(expected = "which somebody has in memory")]
fn a_file_that_somebody_has_mapped_is_not_renamed() {
    let disk = SimDisk::new(1);
    let (a, b) = (Path::new("/a"), Path::new("/b"));
    let file = disk.create(a).unwrap();
    file.write_all_at(&[1; 10], 0).unwrap();
    let map = file.map();
    let crate::disk::Mapping::Made(lent) = map else { panic!("it maps") };
    let part = lent.slice(1..2);
    drop(lent);
    let _ = disk.rename(a, b);
    drop(part);
}
