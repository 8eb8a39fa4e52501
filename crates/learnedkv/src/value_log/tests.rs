//! Segments as tables point into them.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use super::many::load_all;
use super::writer::SegmentWriter;
use super::*;
use crate::cache::BlockCache;
use crate::disk::sim::SimDisk;
use crate::disk::{Access, Around, Disk, Maps, OpenFiles};
use crate::format::compression::{Codecs, Compression};
use crate::format::value::CHUNK_BYTES;
use crate::sstable::{Graveyard, ReadMetrics};

mod ahead;
mod lent;

fn context() -> Arc<TableContext> {
    context_that(false)
}

fn context_that(maps: bool) -> Arc<TableContext> {
    context_on(Arc::new(SimDisk::new(1)), maps)
}

fn context_on(disk: Arc<dyn Disk>, maps: bool) -> Arc<TableContext> {
    Arc::new(TableContext {
        files: OpenFiles::new(disk.clone(), 2),
        disk,
        dir: PathBuf::from("/"),
        access: Access::Random,
        maps: maps.then(Maps::of_process),
        cache: BlockCache::new(0),
        max_metadata_bytes: u64::MAX,
        max_filtered_bytes: u64::MAX,
        codecs: Codecs::default(),
        metrics: ReadMetrics::default(),
        around: Around::default(),
        graveyard: Graveyard::new(|| {}),
        missed: Default::default(),
        salvages: false,
    })
}

fn key(number: usize) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    let length = match number % 40 {
        0 => 0,
        1 => 50_000,
        2 => CHUNK_BYTES + number,
        _ => number * 37 % 3000,
    };
    vec![number as u8; length]
}

fn load(segments: &Segments, key: &[u8], payload: &[u8]) -> Result<Slice> {
    let pointer = ValuePointer::decode(payload)?;
    segments.find(pointer.segment)?.load(key, pointer, &Reads::default())
}

/// Segment `id` of `numbers`' values, as a table would name it, and the pointers.
fn write(
    context: &Arc<TableContext>,
    id: u64,
    numbers: impl Iterator<Item = usize>,
) -> (SegmentUse, Vec<(Vec<u8>, ValuePointer)>) {
    write_packed(context, id, numbers, Compression::None)
}

fn write_packed(
    context: &Arc<TableContext>,
    id: u64,
    numbers: impl Iterator<Item = usize>,
    how: Compression,
) -> (SegmentUse, Vec<(Vec<u8>, ValuePointer)>) {
    write_values(context, id, numbers.map(|number| (key(number), value(number))), how)
}

fn write_values(
    context: &Arc<TableContext>,
    id: u64,
    entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    how: Compression,
) -> (SegmentUse, Vec<(Vec<u8>, ValuePointer)>) {
    let mut codec = how.codec();
    let mut writer = SegmentWriter::create(&*context.disk, &context.dir, id).unwrap();
    let mut pointers = Vec::new();
    for (key, value) in entries {
        let added = writer.add(&key, &value, codec.as_deref_mut());
        pointers.push((key, added.unwrap()));
    }
    let (tag, end) = (writer.tag(), writer.file_bytes());
    writer.finish().unwrap();
    let (entries, bytes) = (pointers.len() as u64, end - VALUES_HEADER_BYTES as u64);
    assert_eq!(bytes, pointers.iter().map(|(_, pointer)| pointer.stored_bytes()).sum::<u64>());
    let value_bytes = pointers.iter().map(|(_, pointer)| pointer.length).sum();
    (SegmentUse { segment: id, tag, entries, bytes, value_bytes, end }, pointers)
}

#[test]
fn values_come_back_alone_and_together() {
    for how in Compression::ALL {
        come_back(*how);
    }
}

fn come_back(how: Compression) {
    let context = context();
    let mut segments = Segments::default();
    let mut all = Vec::new();
    for id in 0..3 {
        let (used, pointers) = write_packed(&context, id, (id as usize..400).step_by(3), how);
        let is_packed = used.bytes < used.value_bytes / 2;
        assert_eq!(is_packed, how != Compression::None, "{how}");
        segments.insert(Arc::new(Segment::open(&context, &used).unwrap()));
        let numbers = (id as usize..400).step_by(3);
        all.extend(pointers.into_iter().zip(numbers).map(|((k, p), n)| (k, p, n)));
    }
    // In no order of places, some twice.
    all.sort_by_key(|(_, _, number)| number * 7919 % 400);
    let mut wanted: Vec<_> = all.iter().map(|(k, p, _)| (k.as_slice(), *p)).collect();
    wanted.extend_from_within(..20);
    for (key, pointer, number) in &all {
        let mut payload = Vec::new();
        pointer.encode(&mut payload);
        assert!(load(&segments, key, &payload).unwrap() == value(*number), "{number}");
    }
    let alone = context.metrics.value_requests.swap(0, Relaxed);
    let found = load_all(&wanted, |id| segments.find(id), &Reads::default()).unwrap();
    for ((_, _, number), found) in all.iter().chain(&all[..20]).zip(found) {
        assert!(found == value(*number), "{number}");
    }
    let together = context.metrics.value_requests.load(Relaxed);
    let found = load_all_for_now(&wanted, |id| segments.find(id), &Reads::default()).unwrap();
    for ((_, _, number), found) in all.iter().chain(&all[..20]).zip(found) {
        assert!(found == value(*number), "{number}, in shared memory");
    }
    assert_eq!(alone, 400);
    assert!(together < 40, "{together} requests for neighbours");
    assert!(load_all(&[], |id| segments.find(id), &Reads::default()).unwrap().is_empty());
}

/// The simulated disk says of every fourth look that the value is not in its cache; then it is read. What
/// has come to be damaged is seen at once: a value is checked whenever it is read.
#[test]
fn values_are_read_where_they_lie_until_they_are_not_there_and_damage_is_seen() {
    let context = context_that(true);
    let (used, pointers) = write(&context, 1, 0..400);
    let segment = Segment::open(&context, &used).unwrap();
    for _ in 0..3 {
        for (number, (key, pointer)) in pointers.iter().enumerate() {
            assert!(
                segment.load(key, *pointer, &Reads::default()).unwrap() == value(number),
                "{number}"
            );
        }
    }
    let metrics = &context.metrics;
    let long = 3 * 10; // Those of two chunks are never lent.
    let (mapped, asked) = (metrics.mapped_values.sum(), metrics.asked_values.sum());
    let read = metrics.value_requests.load(Relaxed);
    assert_eq!(mapped + asked + read, 3 * 400);
    assert!(
        asked > 0 && mapped > 200 && read > 256 + long,
        "{mapped} where they lie, {read} by requests"
    );
    assert!(metrics.lost_mappings.load(Relaxed) > 0);
    // A segment whose first read comes after the damage.
    let segment = Segment::open(&context, &used).unwrap();
    let (key, pointer) = &pointers[7];
    let file = context.disk.open(&segment_path(Path::new("/"), 1), Access::Random).unwrap();
    file.write_all_at(&[0xaa; 3], pointer.offset + 20).unwrap();
    let error = segment.load(key, *pointer, &Reads::default()).unwrap_err();
    assert!(error.is_corruption() && error.path().is_some(), "{error:?}");
}

/// Some where they lie, some by requests, as the simulated disk has it: each comes back in its place.
#[test]
fn many_values_are_looked_up_where_they_lie_and_read_where_not() {
    let context = context_that(true);
    let (used, pointers) = write(&context, 1, 0..400);
    let mut segments = Segments::default();
    segments.insert(Arc::new(Segment::open(&context, &used).unwrap()));
    let look_up = |numbers: &[usize]| {
        let wanted: Vec<_> = numbers.iter().map(|n| (&*pointers[*n].0, pointers[*n].1)).collect();
        look_up_all(&wanted, |id| segments.find(id), &Reads::default())
    };
    let (mut mapped, mut read, mut both) = (0, 0, 0);
    let metrics = &context.metrics;
    let counts = || {
        let mapped = metrics.mapped_values.sum() + metrics.asked_values.sum();
        (mapped, metrics.value_requests.load(Relaxed))
    };
    for round in 0..200 {
        let before = counts();
        let numbers: Vec<_> = (0..7).map(|at| (round * 31 + at * 57) % 400).collect();
        let LookedUp { values, read: missed } = look_up(&numbers).unwrap();
        assert!(missed.is_sorted() && missed.iter().all(|at| *at < 7), "{missed:?}");
        for (number, found) in numbers.iter().zip(values) {
            assert!(found == value(*number), "{number}");
        }
        let (of_map, requests) = (counts().0 - before.0, counts().1 - before.1);
        assert_eq!(of_map, 7 - missed.len() as u64);
        (mapped, read) = (mapped + of_map, read + requests);
        both += usize::from(of_map > 0 && requests > 0);
    }
    assert!(mapped > 200 && read > 200 && both > 0, "{mapped} where they lie, {read} read, {both}");
    assert!(metrics.value_misses.load(Relaxed) > 200, "they count for the page cache's service");
    assert!(look_up(&[]).unwrap().values.is_empty());
    let file = context.disk.open(&segment_path(Path::new("/"), 1), Access::Random).unwrap();
    file.write_all_at(&[0xaa; 3], pointers[7].1.offset + 20).unwrap();
    // A segment whose first read comes after the damage: the simulated disk's maps stay as they were made.
    let anew = Arc::new(Segment::open(&context, &used).unwrap());
    let wanted: Vec<_> = pointers[6..9].iter().map(|(key, pointer)| (&**key, *pointer)).collect();
    let found = look_up_all(&wanted, |_| Ok(anew.clone()), &Reads::default());
    assert!(found.unwrap_err().is_corruption());
}

/// Compressed ones are decompressed where they lie: what is lent is the value, never what is stored.
#[test]
fn compressed_values_are_read_where_they_lie_but_not_lent() {
    for how in Compression::ALL.iter().filter(|how| **how != Compression::None) {
        let context = context_that(true);
        let (used, pointers) = write_packed(&context, 1, 0..400, *how);
        let segment = Segment::open(&context, &used).unwrap();
        for round in 0..3 {
            for (number, (key, pointer)) in pointers.iter().enumerate() {
                let found = segment.load(key, *pointer, &Reads::default()).unwrap();
                assert!(found == value(number), "{how} {round} {number}");
            }
        }
        let metrics = &context.metrics;
        let read = metrics.value_requests.load(Relaxed);
        let mapped = metrics.mapped_values.sum();
        assert!(mapped > 200 && mapped + read == 3 * 400, "{how}: {mapped} and {read}");
        // Damage in the map, which is then read, and refused by name.
        let (key, pointer) = &pointers[2];
        assert_eq!(pointer.chunks(), 2);
        let file = context.disk.open(&segment_path(Path::new("/"), 1), Access::Random).unwrap();
        let segment = Segment::open(&context, &used).unwrap();
        for at in [0, 8, pointer.stored_bytes() - 1] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, pointer.offset + at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], pointer.offset + at).unwrap();
            let error = segment.load(key, *pointer, &Reads::default()).unwrap_err();
            let place = error.offset_bytes();
            assert!(
                error.is_corruption() && error.path().is_some() && place.is_some(),
                "{error:?}"
            );
            let wanted = [(key.as_slice(), *pointer)];
            let find = |_| Ok(Arc::new(Segment::open(&context, &used).unwrap()));
            assert!(load_all(&wanted, find, &Reads::default()).unwrap_err().is_corruption());
            let error = load_all_for_now(&[wanted[0]; 2], find, &Reads::default()).unwrap_err();
            assert!(error.is_corruption() && error.path().is_some(), "{error:?}");
            file.write_all_at(&byte, pointer.offset + at).unwrap();
        }
        assert!(segment.load(key, *pointer, &Reads::default()).unwrap() == value(2));
    }
}

/// The first value that was read of a segment was taken to be gone from the page cache, where it had never been:
/// a store that was just opened thought that memory was short, and left the page cache alone for long.
#[test]
fn what_was_never_there_is_not_lost() {
    let context = context_that(true);
    context.metrics.cache_misses.store(1, Relaxed);
    for number in 0..80 {
        let (used, pointers) = write(&context, number, 0..1);
        let segment = Segment::open(&context, &used).unwrap();
        let (key, pointer) = &pointers[0];
        assert!(segment.load(key, *pointer, &Reads::default()).unwrap() == value(0));
    }
    let metrics = &context.metrics;
    assert!(metrics.value_requests.load(Relaxed) >= 16, "the disk has all in its cache");
    assert_eq!(metrics.lost_mappings.load(Relaxed), 0);
    assert!(!context.go_around(1));
}

/// Only blocks were counted: where these are compressed, and so never mapped, a few values lost had all be read
/// around a page cache that served most.
#[test]
fn values_that_the_page_cache_serves_count_for_it() {
    let context = context_that(true);
    let metrics = &context.metrics;
    metrics.mapped_values.add(1000);
    metrics.cache_misses.store(100, Relaxed);
    (0..16).for_each(|_| context.lost_mapping());
    assert!(!context.go_around(1));
    metrics.value_misses.store(2000, Relaxed);
    (0..16).for_each(|_| context.lost_mapping());
    assert!(context.go_around(1));
}

#[test]
fn far_apart_values_are_not_read_with_what_lies_between() {
    let context = context();
    let (used, pointers) = write(&context, 1, 0..400);
    let mut segments = Segments::default();
    segments.insert(Arc::new(Segment::open(&context, &used).unwrap()));
    let ends = [&pointers[3], &pointers[399]].map(|(k, p)| (k.as_slice(), *p));
    load_all(&ends, |id| segments.find(id), &Reads::default()).unwrap();
    assert_eq!(context.metrics.value_requests.load(Relaxed), 2);
    assert_eq!(
        context.metrics.value_bytes.load(Relaxed),
        ends.map(|e| e.1.stored_bytes()).iter().sum()
    );
}

/// The disk hands values out as they come.
#[test]
fn of_several_damaged_values_the_first_is_told_whichever_comes_first() {
    let context = context();
    let (used, pointers) = write(&context, 1, 0..400);
    let mut segments = Segments::default();
    segments.insert(Arc::new(Segment::open(&context, &used).unwrap()));
    let file = context.disk.open(&segment_path(Path::new("/"), 1), Access::Random).unwrap();
    // Each by a request of its own: longer ones lie between.
    let wanted: Vec<_> = (3..400).step_by(40).map(|at| &pointers[at]).collect();
    let wanted: Vec<_> = wanted.iter().map(|(k, p)| (k.as_slice(), *p)).collect();
    for damaged in (0..wanted.len()).rev() {
        let at = wanted[damaged].1.offset;
        file.write_all_at(&[0xff; 8], at).unwrap();
        let error = load_all(&wanted, |id| segments.find(id), &Reads::default()).unwrap_err();
        assert!(error.is_corruption());
        assert_eq!(error.offset_bytes(), Some(at));
    }
}

#[test]
fn a_segment_that_is_missing_cut_or_another_is_refused_by_name() {
    let context = context();
    let (used, _) = write(&context, 1, 0..10);
    let (other, _) = write(&context, 2, 0..10);
    let refused = |used: &SegmentUse| {
        let error = Segment::open(&context, used).unwrap_err();
        assert!(
            error.is_corruption()
                && error.path() == Some(&segment_path(Path::new("/"), used.segment)),
            "{error:?}"
        );
        error.to_string()
    };
    assert!(refused(&SegmentUse { segment: 3, ..used.clone() }).contains("found no file"));
    assert!(refused(&SegmentUse { tag: other.tag, ..used.clone() }).contains("another segment"));
    assert!(refused(&SegmentUse { end: used.end + 1, ..used.clone() }).contains("it was cut"));
}

#[test]
fn pointers_that_lie_are_refused_before_memory_is_taken() {
    let context = context();
    let (used, pointers) = write(&context, 1, 3..10);
    let mut segments = Segments::default();
    segments.insert(Arc::new(Segment::open(&context, &used).unwrap()));
    let (key, good) = &pointers[2];
    let lies = [
        ValuePointer { segment: 2, ..*good },
        ValuePointer { offset: 0, ..*good },
        ValuePointer { offset: good.offset + 1, ..*good },
        ValuePointer { length: good.length + 1, ..*good },
        ValuePointer { length: good.length - 1, ..*good },
        ValuePointer { length: u64::MAX, ..*good },
        ValuePointer { offset: u64::MAX, ..*good },
        ValuePointer { offset: u64::MAX - 5, length: 1 << 40, ..*good },
        pointers[3].1,
    ];
    for lie in lies {
        let mut payload = Vec::new();
        lie.encode(&mut payload);
        assert!(load(&segments, key, &payload).unwrap_err().is_corruption(), "{lie:?}");
        assert!(
            load_all(&[(key, lie)], |id| segments.find(id), &Reads::default())
                .unwrap_err()
                .is_corruption(),
            "{lie:?}"
        );
    }
    assert!(load(&segments, key, b"").unwrap_err().is_corruption());
}

#[test]
fn a_retired_segment_is_buried_when_its_last_user_is_gone() {
    let context = context();
    let (used, _) = write(&context, 1, 0..10);
    let segment = Arc::new(Segment::open(&context, &used).unwrap());
    let user = segment.clone();
    segment.retire(Some(7), 0);
    drop(segment);
    assert!(context.graveyard.take().is_none());
    drop(user);
    let retired = Retired { bytes: used.end, owner: Some(7), views: 0, is_alone: false };
    assert_eq!(context.graveyard.take(), Some((segment_path(Path::new("/"), 1), retired)));
    assert_eq!(context.graveyard.bytes_of(7), used.end, "not removed yet");
    context.graveyard.removed(retired);
    assert_eq!((context.graveyard.bytes_of(7), context.graveyard.take()), (0, None));
    assert!(Segment::open(&context, &used).is_ok(), "burying is the engine's");
}

/// Three hold a segment: a View, a snapshot, and the next View, which does without the first half.
#[test]
fn what_a_successor_does_without_is_given_back_when_nobody_has_an_earlier_one() {
    let context = context();
    let (used, pointers) = write(&context, 1, 0..400);
    let segment = Arc::new(Segment::open(&context, &used).unwrap());
    let (key, pointer) = &pointers[200];
    assert!(!segment.is_worth(pointer.offset), "who wrote it is not known");
    segment.is_ours();
    assert!(segment.is_worth(pointer.offset) && !segment.is_worth(4096));
    let next = segment.successor();
    let snapshot = segment.clone();
    segment.give_way(next.clone(), pointer.offset);
    drop(segment);
    let half = pointer.offset / 4096 * 4096 - 4096;
    let seen = |segment: &Segment| (segment.occupied_bytes(), segment.held_up_bytes());
    assert_eq!((context.graveyard.take_parts().len(), seen(&next)), (0, (used.end, half)));
    assert!(!next.is_worth(pointer.end()), "it would be too little");
    drop(snapshot);
    let parts = context.graveyard.take_parts();
    assert!(parts.len() == 1 && parts[0].give_back() && !parts[0].give_back());
    assert_eq!(seen(&next), (used.end - half, 0));
    // It counted as garbage for ever: the next sweep was due early, and freed nothing.
    assert_eq!(next.value_bytes(), used.end - half - VALUES_HEADER_BYTES as u64);
    assert_eq!(
        seen(&Segment::open(&context, &used).unwrap()),
        (used.end - half, 0),
        "opened again"
    );
    assert!(*next.load(key, *pointer, &Reads::default()).unwrap() == value(200));
    let (key, pointer) = &pointers[100];
    assert!(next.load(key, *pointer, &Reads::default()).unwrap_err().is_corruption(), "it is gone");
    next.retire(None, 0);
    assert_eq!(context.metrics.retired_bytes.load(Relaxed), used.end - half);
    drop(next);
    assert_eq!(context.metrics.retired_bytes.load(Relaxed), 0);
}

/// Each successor was mapped anew by whoever read it first: at each step of a sweep, for each segment, and page by page. What is
/// lent from it holds back only what its own successor does without.
#[test]
fn a_successor_lends_from_the_map_that_there_is() {
    let own = Arc::into_inner(context_that(true)).unwrap();
    let maps = Maps::new(9);
    let context = Arc::new(TableContext { maps: Some(maps.clone()), ..own });
    let (used, pointers) = write(&context, 1, 0..400);
    let segment = Arc::new(Segment::open(&context, &used).unwrap());
    segment.is_ours();
    let load = |from: &Segment, at: usize| {
        let (key, pointer) = &pointers[at];
        from.load(key, *pointer, &Reads::default()).unwrap()
    };
    let next = {
        // Both at a time: so they are one place in a map.
        let (lent, again) = (load(&segment, 300), load(&segment, 300));
        assert_eq!((lent.as_ptr(), maps.count()), (again.as_ptr(), 1));
        let next = segment.successor();
        assert_eq!((load(&next, 300).as_ptr(), maps.count()), (lent.as_ptr(), 1));
        next
    };
    let (first, second) = (load(&segment, 10), load(&next, 300));
    segment.give_way(next.clone(), pointers[200].1.offset);
    drop(segment);
    let parts = context.graveyard.take_parts();
    assert!(!parts[0].give_back(), "the first is lent");
    assert!(*first == value(10));
    drop(first);
    assert!(parts[0].give_back(), "the second lies in what stays");
    assert!(*second == value(300) && *load(&next, 399) == value(399));
    drop((second, next));
    assert_eq!(maps.count(), 0);
}

/// Of two segments one is mapped; when it goes the other may be.
#[test]
fn no_more_segments_are_mapped_than_may_be() {
    let maps = Maps::new(1);
    let own = Arc::into_inner(context_that(true)).unwrap();
    let context = Arc::new(TableContext { maps: Some(maps.clone()), ..own });
    let mut segments = Vec::new();
    for id in 1..=2 {
        let (used, pointers) = write(&context, id, 0..40);
        segments.push((Segment::open(&context, &used).unwrap(), pointers));
    }
    let mapped = |(segment, pointers): &(Segment, Vec<(Vec<u8>, ValuePointer)>)| {
        let lent = || context.metrics.mapped_values.sum() + context.metrics.asked_values.sum();
        let before = lent();
        // As often as a map rests that is not found to be in memory at first.
        for (number, (key, pointer)) in pointers.iter().enumerate().cycle().take(40 * 40) {
            assert!(*segment.load(key, *pointer, &Reads::default()).unwrap() == value(number));
        }
        lent() > before
    };
    assert_eq!((mapped(&segments[0]), mapped(&segments[1]), maps.count()), (true, false, 1));
    drop(segments.remove(0));
    assert_eq!(maps.count(), 0);
    assert!(mapped(&segments[0]) && maps.count() == 1, "that there was no room is forgotten");
}

/// As of a table's file: see there.
#[test]
fn a_retired_segment_counts_until_its_file_is_closed_and_can_be_removed() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let context = Arc::new_cyclic(|context: &Weak<TableContext>| {
        let context = context.clone();
        let tell = move || {
            let context = context.upgrade().unwrap();
            let retired = context.metrics.retired_bytes.load(Relaxed);
            let maps = context.maps.as_ref().unwrap().count();
            sink.lock().unwrap().push((retired, context.files.count(), maps));
        };
        let own = Arc::into_inner(context_that(true)).unwrap();
        TableContext { maps: Some(Maps::new(9)), graveyard: Graveyard::new(tell), ..own }
    });
    let (used, pointers) = write(&context, 1, 0..40);
    let segment = Segment::open(&context, &used).unwrap();
    segment.load(&pointers[5].0, pointers[5].1, &Reads::default()).unwrap();
    let maps = context.maps.as_ref().unwrap();
    assert_eq!((context.files.count(), maps.count()), (1, 1));
    segment.retire(None, 0);
    drop(segment);
    assert_eq!(*seen.lock().unwrap(), [(used.end, 0, 0)]);
    assert_eq!(context.metrics.retired_bytes.load(Relaxed), 0);
}

/// A stand-in reads what its file still has: each value has a checksum of its own.
#[test]
fn a_stand_in_reads_what_is_left_and_blames_what_the_open_found() {
    let context = context();
    let (used, pointers) = write(&context, 1, 0..10);
    let (other, _) = write(&context, 2, 0..10);
    let load = |segment: &Segment, at: usize| {
        let (key, pointer) = &pointers[at];
        segment.load(key, *pointer, &Reads::default()).map(drop)
    };
    let stand_in = |used: &SegmentUse| {
        let segment = Segment::open_or_stand_in(&context, used, "k").unwrap();
        assert!(!segment.is_readable() && segment.damage().is_some());
        segment
    };
    // As if the file had been longer, and was cut.
    let cut = stand_in(&SegmentUse { end: used.end + 1, ..used.clone() });
    (0..10).for_each(|at| load(&cut, at).unwrap());
    assert!(cut.lacks(used.end).is_none() && cut.lacks(used.end + 1).is_some());
    for wrong in
        [SegmentUse { tag: other.tag, ..used.clone() }, SegmentUse { segment: 3, ..used.clone() }]
    {
        let segment = stand_in(&wrong);
        let damage = segment.damage().unwrap().to_string();
        assert!(damage.contains("keyspace \"k\"") && damage.contains("backup"), "{damage}");
        (0..10).for_each(|at| assert_eq!(load(&segment, at).unwrap_err().to_string(), damage));
    }
    let sound = Segment::open_or_stand_in(&context, &used, "k").unwrap();
    assert!(sound.is_readable() && sound.lacks(u64::MAX).is_none());
    sound.note_unreadable();
    assert!(!sound.is_readable() && load(&sound, 0).is_ok());
}
