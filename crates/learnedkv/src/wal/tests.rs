//! What the log promises, shown on the simulated disk: order, and what is found after a crash.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use super::*;
use crate::disk::faulty::{Fault, FaultyDisk};
use crate::disk::sim::{CrashKind, SimDisk, Stage};
use crate::disk::{Access, OperationKind};
use crate::format::log::mend_record;
use crate::format::manifest::LogState;

mod growing;
mod ready;
mod recycled;

const DATABASE: u64 = 7;
const SEGMENT_BYTES: u64 = 4096;
/// A record of so many bytes leaves no room for another in its segment.
const FILLS_A_SEGMENT: usize = 3990;
/// The crash of a machine that loses all that was not synced.
const ALL_LOST: u64 = 0;

fn log_on(disk: &SimDisk) -> Log {
    log_with(disk, SEGMENT_BYTES)
}

fn log_with(disk: &(impl Disk + Clone + 'static), segment_bytes: u64) -> Log {
    let recovered = recovery::Recovered { next_segment: 1, ..Default::default() };
    Log::begin(
        Arc::new(disk.clone()),
        Path::new("/"),
        DATABASE,
        segment_bytes,
        &recovered,
        false,
        false,
    )
    .unwrap()
}

/// The same, its active segment of the usual size: the first are smaller.
fn grown(log: Log) -> Log {
    while lock(&log.order).active.region.capacity_bytes() < log.segment_bytes {
        commit(&log, 4096);
    }
    log
}

fn payload(first: SequenceNumber, bytes: usize) -> Vec<u8> {
    vec![first as u8; bytes]
}

fn publish(log: &Log, ticket: Ticket, bytes: usize) {
    let payload = payload(ticket.first(), bytes);
    log.publish(ticket, &payload).unwrap();
}

/// Commits one operation and returns its number.
fn commit(log: &Log, bytes: usize) -> SequenceNumber {
    let ticket = log.reserve(bytes, 1, None).unwrap();
    let sequence = ticket.last();
    publish(log, ticket, bytes);
    log.complete(sequence, sequence).unwrap();
    sequence
}

/// The last operation that is found after the machine crashed and lost all that was not synced.
/// `synced` is what is known to have been durable.
fn last_after_crash(disk: &SimDisk, synced: SequenceNumber) -> Result<SequenceNumber> {
    let left = disk.crash_clone(CrashKind::Machine, ALL_LOST);
    let (dir, state) = (Path::new("/"), LogState::default());
    let mut check = |header: &RecordHeader, found: &[u8]| {
        assert_eq!(found, payload(header.first, found.len()), "record {}", header.first);
        Ok(())
    };
    recovery::recover(&left, dir, DATABASE, &state, synced, &mut check).map(|found| found.last)
}

/// Runs `work` on another thread until it waits for earlier commits, then `meanwhile`, then ends it.
/// Fails if `work` ends without having waited.
fn while_waiting<'a>(log: &'a Log, work: impl FnOnce() + Send + 'a, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(work);
        while log.waiting.load(Ordering::SeqCst) == 0 {
            assert!(!thread.is_finished(), "it waited for nothing");
            std::thread::yield_now();
        }
        let done = catch_unwind(AssertUnwindSafe(meanwhile));
        // A failure is to be seen, not to be waited for.
        done.inspect_err(|_| log.hole.store(0, Ordering::SeqCst))
            .inspect_err(|_| log.wake())
            .unwrap_or_else(|panic| resume_unwind(panic));
    });
}

#[test]
fn a_commit_becomes_visible_after_all_before_it() {
    let log = log_on(&SimDisk::new(1));
    let a = log.reserve(10, 3, None).unwrap();
    let b = log.reserve(10, 2, None).unwrap();
    let ((a_first, a_last), (b_first, b_last)) = ((a.first(), a.last()), (b.first(), b.last()));
    publish(&log, b, 10);
    let complete_b = || {
        log.complete(b_first, b_last).unwrap();
        assert_eq!(log.visible(), b_last);
    };
    while_waiting(&log, complete_b, || {
        assert_eq!(log.visible(), 0);
        publish(&log, a, 10);
        assert_eq!(log.visible(), 0);
        log.complete(a_first, a_last).unwrap();
    });
    assert_eq!(log.visible(), 5);
}

/// Recovery reads segments by number, so they must come into use in that order: while one is made,
/// nobody else gets a number.
#[test]
fn no_number_is_given_out_while_a_segment_is_made() {
    let disk = SimDisk::new(1);
    let log = Arc::new(log_on(&disk));
    let (seen, made) = mpsc::channel();
    let watched = log.clone();
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::CreateLogRegion {
            seen.send(watched.spare.try_lock().is_err()).unwrap();
        }
    });
    assert!(log.prepare_spare(Duration::ZERO).unwrap());
    assert!(!log.prepare_spare(Duration::ZERO).unwrap(), "one spare is enough");
    (0..3).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    disk.stop_observing();
    let held: Vec<bool> = made.try_iter().collect();
    // Two segments, each before and after: the spare, and one that a commit made for itself.
    assert_eq!(held, [true; 4]);
    assert_eq!(log.segments(), [1, 2, 3]);
}

#[test]
fn a_segment_ends_where_a_flush_then_needs_no_log_if_it_is_worth_one() {
    for (share, holds_only_this, ends) in
        [(16, true, false), (7, true, true), (7, false, false), (4, false, false)]
    {
        let log = log_on(&SimDisk::new(1));
        commit(&log, SEGMENT_BYTES as usize / share);
        log.end_segment(holds_only_this);
        commit(&log, 10);
        assert_eq!(log.segments(), [1], "none is ready");
        log.prepare_spare(Duration::ZERO).unwrap();
        log.end_segment(holds_only_this);
        commit(&log, 10);
        assert_eq!(log.segments().len() > 1, ends, "{share}");
        assert_eq!(log.ends_at(2), ends);
    }
}

/// A commit that makes its own segment and the job that makes a spare run at the same time.
#[test]
fn segments_come_into_use_in_the_order_of_their_numbers() {
    let log = log_on(&SimDisk::new(1));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                log.prepare_spare(Duration::ZERO).unwrap();
            }
        });
        (0..1000).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
        over.store(true, Ordering::Release);
    });
    assert!(log.segments().is_sorted(), "{:?}", log.segments());
    assert!(log.segments().len() >= 1000);
}

#[test]
fn what_was_synced_is_found_after_a_crash_and_the_rest_is_not() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    commit(&log, 10);
    assert_eq!(last_after_crash(&disk, 0).unwrap(), 0, "nothing was synced");
    // In the active segment.
    log.sync(1).unwrap();
    assert_eq!((log.synced(), last_after_crash(&disk, 1).unwrap()), (1, 1));
    // In two that ended, and the active one.
    (0..2).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    assert_eq!(log.segments(), [1, 2, 3]);
    log.sync(3).unwrap();
    assert_eq!((log.synced(), last_after_crash(&disk, 3).unwrap()), (3, 3));
    // Only what was asked for, where it ended: the active segment is left alone.
    (0..2).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    log.sync(4).unwrap();
    assert_eq!((log.synced(), last_after_crash(&disk, 4).unwrap()), (4, 4));
}

/// All memory of a segment is made ready, and was written for the eighth that had records.
#[test]
fn a_segment_that_ended_is_synced_as_far_as_it_was_reserved() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    log.prepare_spare(Duration::ZERO).unwrap();
    commit(&log, SEGMENT_BYTES as usize / 6);
    let reserved_bytes = lock(&log.order).active_bytes;
    assert!(reserved_bytes < SEGMENT_BYTES / 5);
    log.end_segment(true);
    commit(&log, 10);
    assert_eq!(log.segments(), [1, 2]);
    let (seen, synced) = mpsc::channel();
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::SyncLog && operation.stage == Stage::Before {
            seen.send(operation.length_bytes).unwrap();
        }
    });
    log.sync(1).unwrap();
    disk.stop_observing();
    assert_eq!(synced.try_iter().collect::<Vec<_>>(), [reserved_bytes]);
    assert_eq!(last_after_crash(&disk, 1).unwrap(), 1);
}

/// While a sync was under way, a commit went on in the next segment; it was taken to be durable,
/// though only the segments before were synced.
#[test]
fn a_sync_does_not_vouch_for_a_segment_begun_meanwhile() {
    let disk = SimDisk::new(1);
    let log = Arc::new(log_on(&disk));
    assert_eq!((commit(&log, FILLS_A_SEGMENT), commit(&log, FILLS_A_SEGMENT)), (1, 2));
    let (during, mut left) = (log.clone(), Some(()));
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::SyncLog
            && operation.stage == Stage::Before
            && left.take().is_some()
        {
            assert_eq!(commit(&during, FILLS_A_SEGMENT), 3);
        }
    });
    log.sync(2).unwrap();
    disk.stop_observing();
    assert_eq!((log.visible(), log.segments()), (3, vec![1, 2, 3]), "it met no commit");
    assert_eq!((log.synced(), last_after_crash(&disk, 2).unwrap()), (2, 2));
    log.sync(3).unwrap();
    assert_eq!((log.synced(), last_after_crash(&disk, 3).unwrap()), (3, 3));
}

/// The first operation that a log whose segments before that of `first` were removed is recovered from, and the
/// last that is found, after a crash that loses all that was not synced.
fn last_after_crash_from(disk: &SimDisk, first: SequenceNumber, segment: u64, synced: u64) -> u64 {
    let left = disk.crash_clone(CrashKind::Machine, ALL_LOST);
    let state = LogState { first, open_from: segment, ..LogState::default() };
    let found =
        recovery::recover(&left, Path::new("/"), DATABASE, &state, synced, &mut |_, _| Ok(()));
    found.unwrap().last
}

/// A flush removed the segment of an operation whose sync was about to begin: the active segment was synced in its
/// stead, and with it all before that counted as synced, a segment between them too.
#[test]
fn a_sync_of_what_was_removed_does_not_vouch_for_what_came_after_it() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    (0..3).for_each(|_| _ = commit(&log, FILLS_A_SEGMENT));
    log.remove(&log.retention(2));
    assert_eq!((log.segments(), log.synced()), (vec![2, 3], 1));
    log.sync_in_turn(1).unwrap();
    log.sync(3).unwrap();
    assert_eq!((log.synced(), last_after_crash_from(&disk, 2, 2, log.synced())), (3, 3));
}

/// The same of the segment that was active when a sync began, and ended and was removed meanwhile.
#[test]
fn a_sync_does_not_vouch_for_what_follows_a_segment_removed_meanwhile() {
    let disk = SimDisk::new(1);
    let log = Arc::new(log_on(&disk));
    assert_eq!((commit(&log, FILLS_A_SEGMENT), commit(&log, 10)), (1, 2));
    let (during, mut left) = (log.clone(), Some(()));
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::SyncLog
            && operation.stage == Stage::Before
            && left.take().is_some()
        {
            (3..5).for_each(|n| assert_eq!(commit(&during, FILLS_A_SEGMENT), n));
            during.remove(&during.retention(3));
        }
    });
    log.sync(2).unwrap();
    disk.stop_observing();
    assert_eq!((log.segments(), log.synced()), (vec![3, 4], 2), "it met no removal");
    log.sync(4).unwrap();
    assert_eq!((log.synced(), last_after_crash_from(&disk, 3, 3, log.synced())), (4, 4));
}

/// A segment is made for short syncs where the last that ended before had many; large ones do not count. The
/// next is always made already.
#[test]
fn segments_are_made_for_how_those_before_them_were_synced() {
    const COMMITS: usize = 200;
    for (bytes, is_often) in [(1000, true), (100_000, false)] {
        let log = grown(log_with(&SimDisk::new(1), (COMMITS * bytes) as u64));
        let active = || format!("{:?}", lock(&log.order).active.region);
        let made_for = || active().contains("synced_often: true");
        let mut made = vec![made_for()];
        while made.len() < 4 {
            let before = lock(&log.order).active.id;
            log.prepare_spare(Duration::ZERO).unwrap();
            while lock(&log.order).active.id == before {
                let sequence = commit(&log, bytes);
                log.sync(sequence).unwrap();
                log.sync(sequence).unwrap();
            }
            made.push(made_for());
        }
        assert_eq!(made, [false, false, is_often, is_often], "{bytes}");
    }
}

/// A segment is synced once it has ended, whatever was asked for: all in it must have been written.
#[test]
fn a_sync_of_a_segment_waits_for_its_last_record() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    commit(&log, 10);
    let late = log.reserve(10, 1, None).unwrap();
    let next = log.reserve(FILLS_A_SEGMENT, 1, None).unwrap();
    assert_eq!(log.segments(), [1, 2]);
    let sync = || log.sync(1).unwrap();
    while_waiting(&log, sync, || {
        assert_eq!(log.synced(), 0);
        publish(&log, late, 10);
        log.complete(2, 2).unwrap();
    });
    assert_eq!((log.synced(), last_after_crash(&disk, 2).unwrap()), (2, 2));
    publish(&log, next, FILLS_A_SEGMENT);
    log.complete(3, 3).unwrap();
}

/// Whoever was told that a commit is durable finds it after a crash at that moment, whoever synced it.
#[test]
fn commits_of_several_threads_are_durable_when_their_sync_returns() {
    const THREADS: u64 = 4;
    const COMMITS: u64 = 60;
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, disk) = (&log, &disk);
            scope.spawn(move || {
                for n in 0..COMMITS {
                    let sequence = commit(log, 300 + 100 * thread as usize);
                    if (n + thread) % 7 == 0 {
                        // As a rotation does, and the job that follows it.
                        log.prepare_spare(Duration::ZERO).unwrap();
                        log.end_segment(false);
                    }
                    log.sync(sequence).unwrap();
                    assert!(log.synced() >= sequence);
                    let found = last_after_crash(disk, sequence);
                    assert!(found.unwrap() >= sequence, "operation {sequence} was lost");
                }
            });
        }
    });
    assert_eq!((log.visible(), log.synced()), (THREADS * COMMITS, THREADS * COMMITS));
    assert!(log.segments().len() > 10, "{:?}", log.segments());
}

/// Who came while a sync went on is covered by the one after it, whoever makes that.
#[test]
fn one_more_sync_covers_all_who_came_during_one() {
    const LATE: usize = 3;
    let disk = SimDisk::new(1);
    let log = Arc::new(log_on(&disk));
    let first = commit(&log, 10);
    let (during, syncs) = (log.clone(), Arc::new(AtomicUsize::new(0)));
    let (counted, (late, comes)) = (syncs.clone(), mpsc::channel());
    disk.observe(move |operation, _| {
        let begins = operation.kind == OperationKind::SyncLog && operation.stage == Stage::Before;
        // The first lasts until all who come late wait for its end.
        if begins && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            (0..LATE).for_each(|_| late.send(commit(&during, 10)).unwrap());
            while during.turns.waiting() < LATE {
                std::thread::yield_now();
            }
        }
    });
    let comes = Mutex::new(comes);
    std::thread::scope(|scope| {
        for _ in 0..LATE {
            scope.spawn(|| {
                let late = lock(&comes).recv().unwrap();
                log.sync(late).unwrap();
                assert!(last_after_crash(&disk, late).unwrap() >= late);
            });
        }
        log.sync(first).unwrap();
    });
    disk.stop_observing();
    assert_eq!((syncs.load(Ordering::SeqCst), log.synced()), (2, 1 + LATE as u64));
}

/// A sync wrote the whole segment: all of the pages that were made ready for records to come.
#[test]
fn a_sync_asks_for_no_more_than_was_reserved() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    disk.observe(move |operation, _| {
        if operation.kind == OperationKind::SyncLog && operation.stage == Stage::Before {
            lock(&seen).push(operation.length_bytes);
        }
    });
    let one = record_bytes(10, false) as u64;
    for n in 1..=2 {
        let last = commit(&log, 10);
        log.sync(last).unwrap();
        assert_eq!(last_after_crash(&disk, last).unwrap(), n);
    }
    disk.stop_observing();
    let header = SEGMENT_HEADER_BYTES as u64;
    assert_eq!(*lock(&asked), [header + one, header + 2 * one]);
}

/// It failed as if it were never to be seen, and was seen all the same as soon as those before it were.
#[test]
fn a_commit_behind_a_sync_that_failed_becomes_visible_and_is_not_refused() {
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let log = log_with(&faulty, SEGMENT_BYTES);
    commit(&log, 10);
    let [second, third] = [(); 2].map(|()| log.reserve(10, 1, None).unwrap());
    publish(&log, third, 10);
    faulty.fail(Fault::at(0).of(&[OperationKind::SyncLog]).with(ErrorKind::DiskFull));
    let complete_third = || {
        log.complete(3, 3).unwrap();
        assert_eq!(log.visible(), 3);
    };
    while_waiting(&log, complete_third, || {
        let error = log.sync(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "not that nothing was written: {error}");
        // Time for whoever waits to think otherwise.
        (0..20_000).for_each(|_| std::thread::yield_now());
        publish(&log, second, 10);
        log.complete(2, 2).unwrap();
    });
    assert_eq!(log.visible(), 3);
    let error = log.sync(3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.to_string().contains("scripted failure"), "it says why: {error}");
}

/// Here a record is missing, for ever.
#[test]
fn a_commit_behind_a_record_that_could_not_be_written_is_refused() {
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let log = log_with(&faulty, SEGMENT_BYTES);
    let [first, second] = [(); 2].map(|()| log.reserve(10, 1, None).unwrap());
    publish(&log, second, 10);
    faulty.fail(Fault::at(0).of(&[OperationKind::Publish]));
    let refused = || {
        let error = log.complete(2, 2).unwrap_err();
        assert_eq!((error.kind(), log.visible()), (ErrorKind::Poisoned, 0));
    };
    while_waiting(&log, refused, || assert!(log.publish(first, &payload(1, 10)).is_err()));
}

/// And one before it is not.
#[test]
fn a_commit_ahead_of_a_record_that_could_not_be_written_becomes_visible() {
    let faulty = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let log = log_with(&faulty, SEGMENT_BYTES);
    let [first, second, third] = [(); 3].map(|()| log.reserve(10, 1, None).unwrap());
    publish(&log, second, 10);
    faulty.fail(Fault::at(0).of(&[OperationKind::Publish]));
    while_waiting(
        &log,
        || log.complete(2, 2).unwrap(),
        || {
            assert!(log.publish(third, &payload(3, 10)).is_err());
            (0..20_000).for_each(|_| std::thread::yield_now());
            publish(&log, first, 10);
            log.complete(1, 1).unwrap();
        },
    );
    assert_eq!(log.visible(), 2);
}

/// Twelve records, of which six were synced, the others not: their sync failed. What is read of them.
fn half_synced(sim: &SimDisk) -> (FaultyDisk, recovery::Recovered) {
    let faulty = FaultyDisk::new(Arc::new(sim.clone()));
    let log = log_with(&faulty, 16 << 10);
    (0..6).for_each(|_| _ = commit(&log, 900));
    log.sync(6).unwrap();
    (0..6).for_each(|_| _ = commit(&log, 900));
    faulty.fail(Fault::at(0).of(&[OperationKind::SyncLog]));
    assert!(log.sync(12).is_err());
    faulty.clear_faults();
    drop(log);
    let state = LogState { ended: Vec::new(), open_from: 1, first: 1 };
    let found = recovery::recover(&faulty, Path::new("/"), DATABASE, &state, 0, &mut |_, _| Ok(()))
        .unwrap();
    assert_eq!((found.last, found.synced), (12, 6));
    (faulty, found)
}

/// The system holds it to be clean, and a sync does nothing for it.
#[test]
fn what_nobody_has_synced_is_written_again_and_what_somebody_has_is_not() {
    let sim = SimDisk::new(1);
    let (faulty, found) = half_synced(&sim);
    let writes = faulty.fail(Fault::never().of(&[OperationKind::Write]));
    recovery::make_durable(&faulty, Path::new("/"), &found).unwrap();
    // Twelve pieces of a KiB, of which five hold nothing but what was synced.
    assert_eq!(writes.matched(), 7);
    assert_eq!(last_after_crash(&sim, 12).unwrap(), 12);
    // What is known to be durable is left alone.
    let all = recovery::Recovered { synced: 12, ..found };
    recovery::make_durable(&faulty, Path::new("/"), &all).unwrap();
    assert_eq!(writes.matched(), 7);
}

#[test]
fn a_log_that_is_another_than_was_read_is_not_written_again() {
    let sim = SimDisk::new(1);
    let (faulty, found) = half_synced(&sim);
    let end = found.end.unwrap().1;
    let path = segment_path(Path::new("/"), 1);
    sim.open(&path, Access::Random).unwrap().write_all_at(&[0; 500], end - 500).unwrap();
    let error = recovery::make_durable(&faulty, Path::new("/"), &found).unwrap_err();
    assert!(error.is_corruption() && error.path() == Some(&*path), "{error}");
}

/// It was taken for a torn end: what followed was dropped, and the segment cut there.
#[test]
fn a_record_of_a_newer_version_is_refused_not_cut_off() {
    let disk = SimDisk::new(1);
    let log = log_on(&disk);
    let commits: Vec<_> = [10, 20, 30].map(|bytes| commit(&log, bytes)).into();
    drop(log);
    let path = segment_path(Path::new("/"), 1);
    let file = disk.open(&path, Access::Random).unwrap();
    let mut bytes = vec![0; file.length_bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let places = [0, 1].map(|before| {
        let earlier = [10, 20].iter().take(before).map(|bytes| record_bytes(*bytes, false));
        SEGMENT_HEADER_BYTES + earlier.sum::<usize>()
    });
    let (dir, state) = (Path::new("/"), LogState::default());
    let recovered =
        || recovery::recover(&disk, dir, DATABASE, &state, 0, &mut |_, _| Ok(())).map(|r| r.last);
    for place in places {
        let mut newer = bytes.clone();
        newer[place + 39] |= 2;
        mend_record(&mut newer, DATABASE, 1, place).unwrap();
        // Where the log goes on; and, of the second, behind where it seems to end.
        for is_behind in [false, true] {
            if is_behind && place == places[0] {
                continue;
            }
            let mut bytes = newer.clone();
            bytes[SEGMENT_HEADER_BYTES] ^= u8::from(is_behind);
            file.write_all_at(&bytes, 0).unwrap();
            let error = recovered().expect_err("a record of a newer version");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!((error.path(), error.offset_bytes()), (Some(&*path), Some(place as u64)));
        }
    }
    file.write_all_at(&bytes, 0).unwrap();
    assert_eq!(recovered().unwrap(), commits[2]);
}
