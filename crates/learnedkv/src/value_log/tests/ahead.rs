//! What is read of segments before it is asked for.

use super::*;
use crate::disk::OperationKind;
use crate::disk::faulty::{Fault, FaultyDisk};

/// Values of several segments in key order, a few at a time: where the disk has to be asked, several times as much of a segment is
/// asked for at once, and nothing twice; where it says that it holds them, what is wanted now.
#[test]
fn what_is_wanted_in_order_is_read_ahead() {
    for how in Compression::ALL {
        // It never says that it holds anything.
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
        let context = context_on(Arc::new(disk.clone()), false);
        let mut segments = Segments::default();
        let mut all = Vec::new();
        for id in 0..3 {
            let numbers = || (id as usize..2000).step_by(3).filter(|number| number % 40 > 2);
            let (used, pointers) = write_packed(&context, id, numbers(), *how);
            segments.insert(Arc::new(Segment::open(&context, &used).unwrap()));
            all.extend(pointers.into_iter().zip(numbers()).map(|((k, p), n)| (k, p, n)));
        }
        all.sort_by_key(|(_, _, number)| *number);
        let requests = |ahead: &mut ReadAhead, times: u64| {
            context.metrics.value_requests.store(0, Relaxed);
            context.metrics.value_bytes.store(0, Relaxed);
            for some in all.chunks(40) {
                let wanted: Vec<_> = some.iter().map(|(k, p, _)| (k.as_slice(), *p)).collect();
                let find = |id| segments.find(id);
                let found = ahead.load(&wanted, find, times, &Reads::default()).unwrap();
                for ((_, _, number), found) in some.iter().zip(found) {
                    assert!(found == value(*number), "{how}: {number}");
                }
            }
            let bytes = context.metrics.value_bytes.load(Relaxed);
            (context.metrics.value_requests.load(Relaxed), bytes)
        };
        let (alone, bytes) = requests(&mut ReadAhead::new(0), 8);
        assert_eq!(alone, 3 * all.len().div_ceil(40) as u64);
        let (together, read) = requests(&mut ReadAhead::new(8 << 20), 8);
        assert!(together <= alone / 4, "{how}: {together} for {alone}");
        assert!(read <= bytes + bytes / 4, "{how}: {read} for {bytes}");
        // No more than is to be held, and nothing where nothing will be wanted.
        let (some, _) = requests(&mut ReadAhead::new(bytes / 64), 8);
        assert!((together + 1..=alone).contains(&some), "{how}: {some}");
        assert_eq!(requests(&mut ReadAhead::new(8 << 20), 0), (alone, bytes), "{how}");
        // What cannot be read with what follows it is read without, and that later.
        disk.fail(Fault::at(0).of(&[OperationKind::Read]));
        let (again, _) = requests(&mut ReadAhead::new(8 << 20), 8);
        assert!((together + 1..=together + 4).contains(&again), "{how}: {again}");
    }
}

/// Each piece of a segment was read with what follows it, which the next one threw away: up to nine times as much as was wanted.
#[test]
fn what_is_far_apart_is_not_read_ahead() {
    let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let context = context_on(Arc::new(disk), false);
    let mut writer = SegmentWriter::create(&*context.disk, Path::new("/"), 1).unwrap();
    let place = |n: usize| writer.add(&key(n), &vec![n as u8; 20_000], None).unwrap();
    let all: Vec<_> = (0..400).map(place).collect();
    let (tag, end) = (writer.tag(), writer.file_bytes());
    writer.finish().unwrap();
    let used = SegmentUse { segment: 1, tag, end, ..SegmentUse::default() };
    let segment = Arc::new(Segment::open(&context, &used).unwrap());
    for (every, most_percent) in [(1, 120), (2, 101), (3, 101)] {
        context.metrics.value_bytes.store(0, Relaxed);
        let mut ahead = ReadAhead::new(8 << 20);
        let alive: Vec<_> = (0..400).step_by(every).map(|n| (key(n), all[n])).collect();
        for some in alive.chunks(10) {
            let wanted: Vec<_> = some.iter().map(|(key, at)| (key.as_slice(), *at)).collect();
            let found = ahead.load(&wanted, |_| Ok(segment.clone()), 8, &Reads::default());
            assert!(found.unwrap().iter().all(|value| value.len() == 20_000));
        }
        let read = context.metrics.value_bytes.load(Relaxed);
        let wanted = alive.len() as u64 * 20_008;
        assert!(read <= wanted * most_percent / 100, "{every}: {read} for {wanted}");
    }
}

/// It fails the load that asks for it, as it would unread, and none before or after.
#[test]
fn a_damaged_value_that_was_read_ahead_fails_whoever_asks_for_it() {
    let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let context = context_on(Arc::new(disk), false);
    let (used, pointers) = write(&context, 0, (0..1000).filter(|number| number % 40 > 2));
    let damaged = 333;
    let file = context.disk.open(&segment_path(Path::new("/"), 0), Access::Random).unwrap();
    file.write_all_at(&[0xaa; 3], pointers[damaged].1.offset + 20).unwrap();
    let segment = Arc::new(Segment::open(&context, &used).unwrap());
    let mut ahead = ReadAhead::new(8 << 20);
    let mut unread = 0;
    for (at, some) in pointers.chunks(10).enumerate() {
        let wanted: Vec<_> = some.iter().map(|(key, at)| (key.as_slice(), *at)).collect();
        let before = context.metrics.value_requests.load(Relaxed);
        let found = ahead.load(&wanted, |_| Ok(segment.clone()), 8, &Reads::default());
        let is_held = context.metrics.value_requests.load(Relaxed) == before;
        if at == damaged / 10 {
            assert!(is_held, "it was read ahead");
            assert!(found.unwrap_err().is_corruption());
            unread += 1;
            continue;
        }
        let lengths: Vec<_> = found.unwrap().iter().map(|value| value.len() as u64).collect();
        assert!(lengths.into_iter().eq(some.iter().map(|(_, pointer)| pointer.length)), "{at}");
    }
    assert_eq!(unread, 1);
}
