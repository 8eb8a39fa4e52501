//! The first segments of a life of the log are small.

use super::*;

const MIB: u64 = 1 << 20;

/// Two segments of the usual size were made at each open, and all their memory touched: 64 MiB for a database of three keys.
#[test]
fn segments_grow_and_the_next_is_made_once_some_of_one_is_used() {
    let disk = SimDisk::new(1);
    let log = log_with(&disk, 32 * MIB);
    let active = || {
        let order = lock(&log.order);
        (order.active.id, order.active.region.capacity_bytes())
    };
    assert_eq!((log.segments(), active(), log.capacity_bytes()), (vec![1], (1, MIB), MIB));
    assert!(!log.prepare_spare(Duration::ZERO).unwrap(), "nothing is used yet");
    let (mut sizes, mut places) = (vec![active().1], Vec::new());
    while sizes.len() < 6 {
        let before = active();
        let ticket = log.reserve(60_000, 1, None).unwrap();
        let (asks, last) = (ticket.asks_for_more(), ticket.last());
        publish(&log, ticket, 60_000);
        log.complete(last, last).unwrap();
        // Who makes it is told then, and finds something to do.
        assert_eq!(log.prepare_spare(Duration::ZERO).unwrap(), asks, "{last}");
        if active().0 != before.0 {
            sizes.push(active().1);
        }
        if asks {
            let used = lock(&log.order).active_bytes;
            places.push(used * 8 / active().1);
        }
    }
    assert_eq!(sizes, [1, 4, 16, 32, 32, 32].map(|size| size * MIB));
    // Once an eighth of a small one is used; of a usual one with its first record.
    assert_eq!(places, [1, 1, 1, 0, 0, 0]);
    // All is found.
    let last = log.reserved();
    log.sync(last).unwrap();
    assert_eq!(last_after_crash_from(&disk, 1, 1, last), last);
}

/// A segment that could not be made is not the larger for that when it is tried again.
#[test]
fn a_segment_that_was_not_made_has_the_same_size_at_the_next_try() {
    let disk = SimDisk::new(1);
    let log = log_with(&disk, 32 * MIB);
    commit(&log, MIB as usize / 4);
    disk.set_space_limit_bytes(Some(2 * MIB));
    (0..3).for_each(|_| assert!(log.prepare_spare(Duration::ZERO).is_err()));
    disk.set_space_limit_bytes(None);
    assert!(log.prepare_spare(Duration::ZERO).unwrap());
    assert_eq!(log.capacity_bytes(), 5 * MIB);
    log.keep_nothing();
    assert_eq!((log.capacity_bytes(), disk.list(Path::new("/")).unwrap().len()), (MIB, 1));
}

/// The first syncs of each block of a file had to write down that it was written: half of a young log's rate.
#[test]
fn a_segment_that_nobody_waits_for_is_written_before_short_syncs_come_to_it() {
    for synced_often in [true, false] {
        let disk = SimDisk::new(1);
        let synced: Arc<Mutex<Vec<u64>>> = Arc::default();
        let seen = synced.clone();
        disk.observe(move |operation, _| {
            if operation.kind == OperationKind::SyncLog && operation.stage == Stage::Before {
                lock(&seen).push(operation.length_bytes);
            }
        });
        let recovered = recovery::Recovered { next_segment: 1, ..Default::default() };
        let (disk, dir) = (Arc::new(disk.clone()), Path::new("/"));
        let log = Log::begin(disk, dir, DATABASE, 32 * MIB, &recovered, false, synced_often);
        let log = log.unwrap();
        commit(&log, MIB as usize / 4);
        assert_eq!(log.prepare_spare(Duration::ZERO).unwrap(), !synced_often);
        commit(&log, MIB as usize / 4);
        assert_eq!(log.prepare_spare(Duration::ZERO).unwrap(), synced_often);
        // A commit that needs one, and finds none made, does not wait for that.
        commit(&log, MIB as usize - 1000);
        commit(&log, 5 * MIB as usize);
        assert_eq!(lock(&log.order).active.region.capacity_bytes(), 16 * MIB);
        let header = SEGMENT_HEADER_BYTES as u64;
        // Not by the open; in pieces, which others may come between.
        let pieces = (1..=16).map(|piece| piece * MIB / 4);
        let of_the_spare: Vec<u64> = if synced_often { pieces.collect() } else { vec![header] };
        let expected = [&[header], &of_the_spare[..], &[header]].concat();
        assert_eq!(*lock(&synced), expected, "{synced_often}");
    }
}
