//! Segments whose files are used again: when they are, and that no crash takes old records for new ones.

use std::sync::atomic::AtomicU64;

use super::super::retention::Retention;
use super::*;
use crate::format::checksum::mix;
use crate::format::manifest::Change;
use crate::wal::segments::OLDEST_RECYCLED;

/// The names on the disk.
fn files(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new("/")).unwrap()
}

fn names(segments: &[u64]) -> Vec<String> {
    segments.iter().map(|id| file_name_of(*id)).collect()
}

fn file_name_of(segment: u64) -> String {
    segment_path(Path::new(""), segment).display().to_string()
}

/// What a manifest says after the edit of `retention`.
fn state_of(retention: &Retention) -> LogState {
    match retention.change.clone() {
        Change::Log { ended, open_from, first } => LogState { ended, open_from, first },
        other => panic!("{other:?}"),
    }
}

/// A log of so many full segments, of which all but the last have left it.
fn log_that_has_left(segments: u64) -> (SimDisk, Log) {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    (0..segments).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    log.remove(&log.retention(segments));
    (disk, log)
}

#[test]
fn segments_that_left_the_log_are_used_again() {
    let (disk, log) = log_that_has_left(3);
    assert_eq!((log.segments(), log.recyclable()), (vec![3], 2));
    assert_eq!(files(&disk), names(&[1, 2, 3]));
    assert_eq!(log.size_bytes(), 3 * SEGMENT_BYTES);
    log.prepare_spare(Duration::ZERO).unwrap();
    assert_eq!(files(&disk), names(&[2, 3, 4]), "the oldest file is the next one's");
    (0..2).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    assert_eq!((log.segments(), log.recyclable()), (vec![3, 4, 5], 0));
    assert_eq!(files(&disk), names(&[3, 4, 5]));
    assert_eq!(commit(&log, FILLS_A_SEGMENT), 6);
    assert_eq!(log.segments_made(), (5, 2), "the first is the log's beginning");
    log.sync(6).unwrap();
    assert_eq!(last_after_crash_from(&disk, 3, 3, 6), 6);
}

/// Of those all that was ever written is written to the device once they are half a minute old.
#[test]
fn a_file_is_not_used_again_once_it_is_old() {
    let young = OLDEST_RECYCLED;
    let old = young + Duration::from_nanos(1);
    let (disk, log) = log_that_has_left(3);
    log.prepare_spare(young).unwrap();
    assert_eq!((files(&disk), log.segments_made().1), (names(&[2, 3, 4]), 1));
    assert_eq!(commit(&log, FILLS_A_SEGMENT), 4);
    log.prepare_spare(old).unwrap();
    assert_eq!((files(&disk), log.segments_made().1), (names(&[3, 4, 5]), 1), "it is gone");
    assert_eq!(commit(&log, FILLS_A_SEGMENT), 5);
    log.remove(&log.retention(5));
    assert_eq!((log.segments(), log.recyclable()), (vec![5], 2));
    // A file is as old in its second life: the fourth is the first's. None stays once it is old.
    log.prepare_spare(old).unwrap();
    assert_eq!((files(&disk), log.segments_made().1), (names(&[5, 6]), 1));
    assert_eq!(commit(&log, FILLS_A_SEGMENT), 6);
    log.give_back();
    log.remove(&log.retention(6));
    log.prepare_spare(old + young).unwrap();
    assert_eq!((files(&disk), log.segments_made().1), (names(&[6, 7]), 2), "the fifth is young");
    log.sync(6).unwrap();
    assert_eq!(last_after_crash_from(&disk, 6, 6, 6), 6);
}

/// Each segment of a log whose commits are synced one by one was removed and written anew where it took more than 20 s to fill it: one
/// removal held up the device, and so the commits, for 14 ms.
#[test]
fn a_file_whose_records_were_synced_is_used_again_however_old_it_is() {
    let disk = SimDisk::new(1);
    let mut log = log_on(&disk);
    log.synced_often = true;
    let synced = |log: &Log| log.sync(commit(log, FILLS_A_SEGMENT)).unwrap();
    (0..2).for_each(|_| synced(&log));
    // The first was made before it was known.
    log.remove(&log.retention(2));
    log.give_back();
    (0..2).for_each(|_| synced(&log));
    log.remove(&log.retention(4));
    assert_eq!((log.segments(), log.recyclable()), (vec![4], 2));
    let made = |log: &Log, now: Duration| {
        log.prepare_spare(now).unwrap();
        commit(log, FILLS_A_SEGMENT);
        log.segments_made().1
    };
    let old = OLDEST_RECYCLED + Duration::from_secs(1000);
    assert_eq!((made(&log, old), files(&disk)), (1, names(&[3, 4, 5])), "the second's file");
    // None stays for ever that is of no use to those that come.
    log.synced_often = false;
    assert_eq!((made(&log, old), files(&disk)), (1, names(&[4, 5, 6])), "the third's is gone");
}

/// Where nobody has synced what it was made to have synced, all of it may be dirty, as in others.
#[test]
fn a_file_that_was_hardly_synced_is_not_used_again_once_it_is_old() {
    let disk = SimDisk::new(1);
    let mut log = log_on(&disk);
    log.synced_often = true;
    (0..3).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    log.remove(&log.retention(2));
    log.give_back();
    log.remove(&log.retention(3));
    assert_eq!((log.segments(), log.recyclable()), (vec![3], 1));
    log.prepare_spare(OLDEST_RECYCLED + Duration::from_nanos(1)).unwrap();
    assert_eq!((log.segments_made().1, files(&disk)), (0, names(&[3, 4])));
}

/// With several clients the last records of a segment are synced with the first of the next: it was let go by that, removed, and the
/// next made anew.
#[test]
fn a_segment_whose_last_record_is_synced_with_the_next_ones_first_is_used_again() {
    for synced_often in [false, true] {
        let disk = SimDisk::new(1);
        let mut log = log_on(&disk);
        log.synced_often = synced_often;
        commit(&log, FILLS_A_SEGMENT);
        log.sync(commit(&log, 1000)).unwrap();
        commit(&log, 1000);
        log.sync(commit(&log, FILLS_A_SEGMENT)).unwrap();
        // The first was made for what nobody expected.
        log.remove(&log.retention(2));
        log.give_back();
        log.remove(&log.retention(4));
        let expected = usize::from(synced_often);
        assert_eq!((log.segments(), log.recyclable()), (vec![3], expected), "{synced_often}");
        log.prepare_spare(Duration::ZERO).unwrap();
        commit(&log, FILLS_A_SEGMENT);
        assert_eq!(log.segments_made().1, expected as u64);
        log.sync(5).unwrap();
        assert_eq!(last_after_crash_from(&disk, 4, 3, 5), 5);
    }
}

/// No more than two are kept, and they go where no others come.
#[test]
fn files_that_nobody_uses_again_are_given_back() {
    let (disk, log) = log_that_has_left(5);
    assert_eq!((log.recyclable(), files(&disk).len()), (2, 3));
    log.give_back();
    assert_eq!((log.recyclable(), files(&disk)), (0, names(&[5])));
    log.give_back();
    commit(&log, FILLS_A_SEGMENT);
    assert_eq!(log.segments_made().1, 0);
}

#[test]
fn a_full_disk_keeps_no_files_for_later() {
    let (disk, log) = log_that_has_left(3);
    log.set_frugal(true);
    assert_eq!((log.recyclable(), files(&disk)), (0, names(&[3])));
    commit(&log, 10);
    let visible = log.visible();
    (0..3).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    log.remove(&log.retention(visible + 2));
    assert_eq!(log.recyclable(), 0, "nor are any kept anew");
    log.set_frugal(false);
    let next = log.visible() + 1;
    (0..2).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    log.remove(&log.retention(next));
    assert!(log.recyclable() > 0);
}

/// A copy reads files of segments that may leave the log meanwhile.
#[test]
fn no_file_is_used_again_while_a_copy_may_read_it() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    (0..3).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    let copy = log.begin_copy(&LogState { first: 1, open_from: 1, ..LogState::default() }).unwrap();
    log.remove(&log.retention(3));
    assert_eq!((log.recyclable(), files(&disk)), (0, names(&[3])));
    (0..3).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    disk.create_dir(Path::new("/copy")).unwrap();
    let state = copy.write(&disk, Path::new("/copy"), 8).unwrap();
    let mut found = Vec::new();
    let mut keep = |header: &RecordHeader, payload: &[u8]| {
        found.push((header.first, payload.len()));
        Ok(())
    };
    recovery::recover(&disk, Path::new("/copy"), 8, &state, 0, &mut keep).unwrap();
    assert_eq!(found, [1, 2, 3].map(|first| (first, FILLS_A_SEGMENT)));
    log.remove(&log.retention(6));
    assert_eq!(log.recyclable(), 2, "it was written");
}

/// Somebody who syncs a segment while it leaves the log still has it.
#[test]
fn a_segment_that_somebody_holds_is_not_used_again() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    commit(&log, FILLS_A_SEGMENT);
    let held = lock(&log.order).active.clone();
    (0..2).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    log.remove(&log.retention(3));
    assert_eq!((held.id, log.recyclable(), files(&disk)), (1, 1, names(&[2, 3])));
}

/// Its memory was made ready for large parts; or it was of another size.
#[test]
fn a_segment_of_another_kind_is_not_used_again() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    commit(&log, 2 * SEGMENT_BYTES as usize);
    commit(&log, FILLS_A_SEGMENT);
    log.remove(&log.retention(2));
    assert_eq!((log.segments(), log.recyclable()), (vec![3], 1));
    assert_eq!(files(&disk), names(&[1, 3]), "the first, empty, is kept, the large one is not");
    commit(&log, 2 * SEGMENT_BYTES as usize);
    let of_its_kind = "it stays for one of its kind";
    assert_eq!((log.segments_made().1, files(&disk)), (0, names(&[1, 3, 4])), "{of_its_kind}");
    log.prepare_spare(Duration::ZERO).unwrap();
    assert_eq!((log.segments_made().1, files(&disk)), (1, names(&[3, 4, 5])));

    let (disk, log) = log_that_has_left(2);
    log.active_syncs.store(SEGMENT_BYTES, Ordering::Relaxed);
    log.prepare_spare(Duration::ZERO).unwrap();
    assert_eq!((log.segments_made().1, files(&disk)), (0, names(&[1, 2, 3])), "{of_its_kind}");
    commit(&log, FILLS_A_SEGMENT);
    log.prepare_spare(OLDEST_RECYCLED + Duration::from_nanos(1)).unwrap();
    assert_eq!((log.segments_made().1, files(&disk)), (0, names(&[2, 3, 4])), "nor for ever");
}

#[test]
fn a_file_that_cannot_be_renamed_or_synced_is_not_used_again() {
    for kind in [OperationKind::Rename, OperationKind::Publish, OperationKind::SyncDir] {
        let sim = SimDisk::new(1);
        let disk = FaultyDisk::new(Arc::new(sim.clone()));
        let log = log_with(&disk, SEGMENT_BYTES);
        (0..2).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
        log.remove(&log.retention(2));
        let counts = disk.fail(Fault::at(0).of(&[kind]));
        let prepared = log.prepare_spare(Duration::ZERO);
        assert_eq!(prepared.is_ok(), kind == OperationKind::Rename, "{kind}");
        assert_eq!((counts.fired(), log.recyclable()), (1, 0), "{kind}");
        (0..2).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
        let used = log.segments();
        assert_eq!(files(&sim), names(&used), "{kind}: nothing else is left");
        log.sync(4).unwrap();
        assert_eq!(last_after_crash_from(&sim, 2, 2, 4), 4, "{kind}");
    }
}

/// Where the log is damaged is said of the right segment though the one after it, not used yet, is full of old
/// records, and so is what stands behind the last one.
#[test]
fn damage_is_told_of_the_segment_it_is_in() {
    let header = SEGMENT_HEADER_BYTES as u64;
    // In the payload; in the number of the segment, by which the record is known to be this one's. Behind another
    // segment, and as the first that is needed.
    for (at, first) in [(header + 200, 3), (header + 8, 3), (header + 200, 4), (header + 8, 4)] {
        let (disk, log) = log_that_has_left(3);
        commit(&log, FILLS_A_SEGMENT);
        assert_eq!((log.segments(), log.segments_made().1), (vec![3, 4], 1));
        log.prepare_spare(Duration::ZERO).unwrap();
        assert_eq!((files(&disk), log.segments_made().1), (names(&[3, 4, 5]), 2));
        log.sync(4).unwrap();
        let path = |segment| segment_path(Path::new("/"), segment);
        let file = disk.open(&path(4), Access::Random).unwrap();
        file.write_all_at(&[0; 4], at).unwrap();
        let state = LogState { first, open_from: first, ..LogState::default() };
        let recover =
            || recovery::recover(&disk, Path::new("/"), DATABASE, &state, 4, &mut |_, _| Ok(()));
        let error = recover().unwrap_err();
        let found = (error.path().map(Path::to_owned), error.offset_bytes());
        assert_eq!(found, (Some(path(4)), Some(header)), "{error}");
    }
}

/// The payload of a record, from which it can be told whose it is.
fn payload_of(seed: u64, first: SequenceNumber) -> Vec<u8> {
    let mut payload: Vec<u8> = first.to_le_bytes().to_vec();
    let bytes = mix(seed ^ mix(first)) % 700;
    payload.extend((0..bytes).map(|i| mix(first + i) as u8));
    payload
}

/// What the outside knows of a log while it is used.
#[derive(Debug, Default)]
struct Known {
    /// What the manifest says.
    state: Mutex<LogState>,
    /// Up to where whoever asked was told that it is durable, in the log or in tables.
    synced: AtomicU64,
    /// Up to where a process that dies loses nothing.
    visible: AtomicU64,
}

impl Known {
    fn check(&self, seed: u64, left: &SimDisk, at_least: u64, what: &str) {
        let state = lock(&self.state).clone();
        let (dir, mut next) = (Path::new("/"), state.first);
        let mut check = |header: &RecordHeader, found: &[u8]| {
            assert_eq!(header.first, next, "{what}");
            assert_eq!(found, payload_of(seed, header.first), "{what}: record {next}");
            next += 1;
            Ok(())
        };
        let synced = self.synced.load(Ordering::SeqCst);
        let found =
            recovery::recover(left, dir, DATABASE, &state, synced.min(at_least), &mut check)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(found.last >= at_least, "{what}: {} of {at_least}", found.last);
    }
}

/// Commits, syncs and edits in random order, with a crash before, amid and after each operation of the disk.
#[test]
fn no_crash_takes_old_records_for_new_ones() {
    let mut recycled = 0;
    for seed in 0..12 {
        let disk = SimDisk::new(seed);
        let log = log_on(&disk);
        let known = Arc::new(Known::default());
        *lock(&known.state) = LogState { ended: Vec::new(), open_from: 1, first: 1 };
        let seen = known.clone();
        disk.observe(move |operation, disk| {
            let what = format!("seed {seed}, {:?} {}", operation.stage, operation.kind);
            let visible = seen.visible.load(Ordering::SeqCst);
            seen.check(seed, &disk.crash_clone(CrashKind::Process, 0), visible, &what);
            let crash = operation.index % 9;
            let left = disk.crash_clone(CrashKind::Machine, crash);
            let synced = seen.synced.load(Ordering::SeqCst);
            seen.check(seed, &left, synced, &format!("{what}, machine {crash}"));
        });
        for step in 0..800 {
            match mix(seed << 32 | step) % 10 {
                0 if step % 4 == 0 => {
                    let up_to = log.visible();
                    log.sync(up_to).unwrap();
                    known.synced.fetch_max(up_to, Ordering::SeqCst);
                }
                // As a flush does that need not wait for the log, where no segment holds records of both sides.
                1 | 2 => {
                    log.end_segment(false);
                    let visible = log.visible();
                    let up_to = if log.ends_at(visible) { visible } else { log.synced() };
                    let retention = log.retention(up_to + 1);
                    *lock(&known.state) = state_of(&retention);
                    known.synced.fetch_max(up_to, Ordering::SeqCst);
                    log.remove(&retention);
                }
                3 => _ = log.prepare_spare(Duration::ZERO).unwrap(),
                4 if step % 16 == 0 => _ = log.give_back(),
                _ => {
                    let ticket = log.reserve(payload_of(seed, log.reserved() + 1).len(), 1, None);
                    let ticket = ticket.unwrap();
                    let sequence = ticket.last();
                    log.publish(ticket, &payload_of(seed, sequence)).unwrap();
                    log.complete(sequence, sequence).unwrap();
                    known.visible.store(sequence, Ordering::SeqCst);
                }
            }
        }
        disk.stop_observing();
        recycled += log.segments_made().1;
    }
    assert!(recycled > 50, "only {recycled} were used again");
}
