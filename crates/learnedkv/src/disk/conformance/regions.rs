//! The rules of log regions.

use std::sync::Arc;

use super::{Fixture, content};
use crate::disk::LogRegion;

/// Reserves and publishes `length` bytes of `value`; false if the region is full.
fn append(region: &dyn LogRegion, length: usize, value: u8) -> bool {
    let Some(place) = region.reserve(length) else { return false };
    assert_eq!(place.length_bytes(), length);
    region
        .publish(place, &mut |bytes| {
            assert_eq!(bytes.len(), length);
            assert!(bytes.iter().all(|&b| b == 0), "reserved bytes are zero before");
            bytes.fill(value);
        })
        .unwrap();
    true
}

pub(super) fn log_regions_hold_records_in_order(f: &Fixture) {
    let path = f.path("log");
    let region = f.disk.create_log_region(&path, 10_000).unwrap();
    assert_eq!(region.capacity_bytes(), 10_000);
    assert_eq!(content(&*f.disk, &path), [0; 10_000]);
    let (first, second) = (region.reserve(5000).unwrap(), region.reserve(3000).unwrap());
    assert_eq!((first.offset_bytes(), second.offset_bytes()), (0, 5000));
    region.publish(second, &mut |bytes| bytes.fill(2)).unwrap();
    let mut expected = vec![0; 10_000];
    expected[5000..8000].fill(2);
    assert_eq!(content(&*f.disk, &path), expected, "published out of order; the first is a hole");
    region.sync(10_000).unwrap();
    region.publish(first, &mut |bytes| bytes[10..].fill(1)).unwrap();
    expected[10..5000].fill(1);
    assert_eq!(content(&*f.disk, &path), expected, "what is not filled stays zero");

    assert!(region.reserve(2001).is_none(), "only 2000 are left");
    assert!(append(&*region, 1999, 3), "a refused reservation takes nothing");
    assert!(region.reserve(2).is_none());
    assert!(region.reserve(usize::MAX).is_none());
    assert!(append(&*region, 1, 4));
    assert!(region.reserve(1).is_none());
    assert!(append(&*region, 0, 5), "an empty record fits a full region");
    expected[8000..9999].fill(3);
    expected[9999] = 4;
    region.sync(u64::MAX).unwrap();
    assert_eq!(content(&*f.disk, &path), expected);
    drop(region);
    assert_eq!(content(&*f.disk, &path), expected, "the file outlives the region");
}

pub(super) fn threads_publish_to_one_region(f: &Fixture) {
    const THREADS: u8 = 4;
    const RECORDS: usize = 400;
    let (path, length) = (f.path("log"), usize::from(THREADS) * RECORDS * 37);
    let region = f.disk.create_log_region(&path, length as u64).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let region = &region;
            scope.spawn(move || {
                for record in 0..RECORDS {
                    assert!(append(&**region, 37, thread));
                    if record % 100 == 0 {
                        region.sync(region.capacity_bytes()).unwrap();
                    }
                }
            });
        }
    });
    assert!(region.reserve(1).is_none());
    let bytes = content(&*f.disk, &path);
    let mut counts = [0; THREADS as usize + 1];
    for record in bytes.chunks(37) {
        assert!(record.iter().all(|&b| b == record[0]), "records do not overlap");
        counts[usize::from(record[0])] += 1;
    }
    assert_eq!(counts[1..], [RECORDS; THREADS as usize]);
}

pub(super) fn regions_refuse_foreign_reservations(f: &Fixture) {
    let one = f.disk.create_log_region(&f.path("log1"), 4096).unwrap();
    let two = f.disk.create_log_region(&f.path("log2"), 4096).unwrap();
    let place = one.reserve(10).unwrap();
    let publishing = std::panic::AssertUnwindSafe(|| two.publish(place, &mut |b| b.fill(1)));
    assert!(std::panic::catch_unwind(publishing).is_err());
    assert_eq!(content(&*f.disk, &f.path("log2")), [0; 4096]);
}

/// The bytes of a region that is begun again stay what they are until others are published there, through its
/// new name too, and whoever reserved bytes of it before has none.
pub(super) fn regions_are_begun_again(f: &Fixture) {
    let (old, new) = (f.path("log1"), f.path("log2"));
    let mut region = f.disk.create_log_region(&old, 4096).unwrap();
    assert!(append(&*region, 3000, 1));
    region.expect_syncs(false);
    region.make_ready(0..4096);
    let late = region.reserve(500).unwrap();
    let held = region.clone();
    assert!(Arc::get_mut(&mut region).is_none(), "not while another has it");
    drop(held);
    if !Arc::get_mut(&mut region).unwrap().begin_again(&new) {
        // Then it is as it was.
        assert!(format!("{region:?}").contains("BufferedRegion"), "the others can");
        region.publish(late, &mut |bytes| bytes.fill(2)).unwrap();
        assert!(append(&*region, 596, 3) && region.reserve(1).is_none());
        return;
    }
    f.disk.rename(&old, &new).unwrap();
    assert_eq!(region.capacity_bytes(), 4096);
    let mut expected = vec![1; 3000];
    expected.resize(4096, 0);
    assert_eq!(content(&*f.disk, &new), expected);
    let publishing = std::panic::AssertUnwindSafe(|| region.publish(late, &mut |b| b.fill(2)));
    assert!(std::panic::catch_unwind(publishing).is_err(), "a place from before");

    let place = region.reserve(1000).unwrap();
    assert_eq!(place.offset_bytes(), 0);
    region.publish(place, &mut |bytes| bytes.fill(4)).unwrap();
    region.sync(1000).unwrap();
    region.expect_syncs(false);
    region.make_ready(0..4096);
    expected[..1000].fill(4);
    assert_eq!(content(&*f.disk, &new), expected);
    let rest = region.reserve(3096).unwrap();
    assert!(region.reserve(1).is_none(), "as large as it was made");
    region.publish(rest, &mut |bytes| bytes.fill(5)).unwrap();
    region.sync(4096).unwrap();
    expected[1000..].fill(5);
    assert_eq!(content(&*f.disk, &new), expected);
}

/// How many records come between two syncs is nothing to what is kept: none, one, few or many, before it ends and after, and
/// in the region that is begun again.
pub(super) fn records_are_kept_however_often_they_are_synced(f: &Fixture) {
    const RECORD: usize = 300;
    const BETWEEN: [usize; 15] = [1, 1, 1, 2, 2, 1, 0, 1, 3, 1, 1, 40, 1, 1, 0];
    let records: usize = BETWEEN.iter().sum();
    let (mut path, length) = (f.path("log0"), (records + 3) * RECORD);
    let mut region = f.disk.create_log_region(&path, length as u64).unwrap();
    let mut expected = vec![0; length];
    for life in 1..=3u8 {
        let mut next = 0;
        let mut publish = |count: usize, expected: &mut [u8]| {
            for _ in 0..count {
                let place = region.reserve(RECORD).unwrap();
                assert_eq!(place.offset_bytes() as usize, next * RECORD);
                let value = life.wrapping_mul(80).wrapping_add(next as u8);
                region.publish(place, &mut |bytes| bytes.fill(value)).unwrap();
                expected[next * RECORD..][..RECORD].fill(value);
                next += 1;
            }
            next * RECORD
        };
        let header = publish(1, &mut expected);
        region.expect_syncs(life != 2);
        region.make_ready(0..length as u64);
        region.sync(header as u64).unwrap();
        for count in BETWEEN {
            let end = publish(count, &mut expected);
            // Seen before it is synced, and after.
            assert_eq!(content(&*f.disk, &path), expected, "life {life}, {count} records");
            region.sync(end as u64).unwrap();
            assert_eq!(content(&*f.disk, &path), expected, "life {life}, {count} records, synced");
        }
        let [first, second] = [(); 2].map(|()| region.reserve(RECORD).unwrap());
        region.end();
        for (place, value) in [(second, 250), (first, 251)] {
            expected[place.offset_bytes() as usize..][..RECORD].fill(value);
            region.publish(place, &mut |bytes| bytes.fill(value)).unwrap();
            region.sync(length as u64).unwrap();
        }
        assert_eq!(content(&*f.disk, &path), expected, "life {life}, after its end");
        let name = f.path(&format!("log{life}"));
        if !Arc::get_mut(&mut region).unwrap().begin_again(&name) {
            return;
        }
        f.disk.rename(&path, &name).unwrap();
        path = name;
    }
}

/// One thread syncs each record, others none, so that some records go by other ways than their neighbours, within one page.
pub(super) fn threads_publish_and_sync_a_few_records_at_a_time(f: &Fixture) {
    const THREADS: u8 = 3;
    const RECORDS: usize = 400;
    const RECORD: usize = 37;
    let (path, length) = (f.path("log"), usize::from(THREADS) * RECORDS * RECORD);
    let region = f.disk.create_log_region(&path, length as u64).unwrap();
    region.expect_syncs(true);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let region = &region;
            scope.spawn(move || {
                for record in 0..RECORDS {
                    assert!(append(&**region, RECORD, thread));
                    // Alone for a while, then beside the others.
                    if thread == 1 && record % 3 < 2 {
                        region.sync(region.capacity_bytes()).unwrap();
                    }
                    if thread > 1 && record % 20 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let bytes = content(&*f.disk, &path);
    let mut counts = [0; THREADS as usize + 1];
    for record in bytes.chunks(RECORD) {
        assert!(record.iter().all(|&b| b == record[0]), "records do not overlap");
        counts[usize::from(record[0])] += 1;
    }
    assert_eq!(counts, [0, RECORDS, RECORDS, RECORDS]);
}
