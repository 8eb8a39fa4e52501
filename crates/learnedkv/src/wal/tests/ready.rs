//! What memory is made ready for records to come.

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LENGTH: u64 = 10 * MIB;
/// The most that is made ready at a time.
const PIECE: u64 = 256 * KIB;

/// Makes ready what is left; how many pieces.
fn pieces(log: &Log) -> usize {
    let count = (0..1000).take_while(|_| log.make_some_ready()).count();
    assert!(log.is_ready());
    count
}

/// All at once it kept a processor for 40 ms, beside a flush.
#[test]
fn memory_is_made_ready_in_pieces_behind_what_is_reserved() {
    let log = grown(log_with(&SimDisk::new(1), LENGTH));
    let before = log.segments().len();
    assert_eq!(pieces(&log), 40, "of the first, which no job has made");
    assert!(log.prepare_spare(Duration::ZERO).unwrap());
    assert_eq!(pieces(&log), 40);
    commit(&log, LENGTH as usize - 16384);
    assert_eq!(pieces(&log), 0);
    // The spare one, and another, which is not ready.
    commit(&log, LENGTH as usize - 4096);
    commit(&log, 5 << 20);
    assert_eq!(log.segments().len(), before + 2);
    // What was synced had left the address space, and was mapped again and written again.
    let (_, piece) = log.unready().unwrap();
    let reserved = lock(&log.order).active_bytes;
    assert!(
        (reserved..reserved + 4096).contains(&piece.start) && piece.end == 5 * MIB + PIECE,
        "{piece:?}"
    );
    assert_eq!(pieces(&log), 20);
}

/// All of a segment was made dirty when it came into use. One that was half a minute old was written by the kernel meanwhile, and a
/// sync of it waited for 28 ms.
#[test]
fn where_records_are_synced_every_few_memory_is_made_ready_a_little_ahead() {
    let mut log = log_with(&SimDisk::new(1), LENGTH);
    log.synced_often = true;
    let log = grown(log);
    assert!(lock(&log.order).active.synced_often);
    pieces(&log);
    let ready_to = || lock(&log.order).active.ready_bytes.load(Ordering::Relaxed);
    let reserved = || lock(&log.order).active_bytes;
    let (first, mut asked) = (lock(&log.order).active.id, Vec::new());
    loop {
        let ticket = log.reserve(60_000, 1, None).unwrap();
        let (asks, last) = (ticket.asks_for_more(), ticket.last());
        publish(&log, ticket, 60_000);
        log.complete(last, last).unwrap();
        if lock(&log.order).active.id != first {
            break;
        }
        let behind = reserved();
        let finds = pieces(&log);
        let ahead = ready_to() - behind;
        let is_over = ready_to() == LENGTH;
        assert!(ahead < 4 * MIB + PIECE && (ahead >= 4 * MIB - PIECE || is_over), "{ahead}");
        // Who makes it is told where there is something to do, unless it is the first.
        assert!(finds <= usize::from(asks), "{behind}: {finds}");
        if asks {
            asked.push(behind / PIECE);
        }
    }
    assert_eq!(asked, (1..40).collect::<Vec<_>>());
    // Of the next one as much.
    assert!(log.prepare_spare(Duration::ZERO).unwrap());
    pieces(&log);
    let next = lock(&log.spare).ready.clone().unwrap();
    assert_eq!(next.ready_bytes.load(Ordering::Relaxed), 4 * MIB);
}
