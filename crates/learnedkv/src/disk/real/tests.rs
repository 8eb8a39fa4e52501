//! What only the operating system's disk does; the battery checks the rest.

use learnedkv_skips::skip;

use super::{LogRegionKind, ManyReads, RealDisk, held, platform};
use crate::disk::Disk;
use crate::error::ErrorKind;

#[test]
fn log_regions_are_of_the_kind_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let make = |kind, name| {
        let disk = RealDisk::with_log_regions(kind);
        let region = disk.create_log_region(&dir.path().join(name), 4096).unwrap();
        format!("{region:?}")
    };
    assert!(make(LogRegionKind::Buffered, "b").starts_with("BufferedRegion"));
    let probe = super::create_new(&dir.path().join("probe")).unwrap();
    if !platform::mapping_keeps_promises(&probe) {
        let why = format!("{} reserves no blocks for certain", dir.path().display());
        skip("mapped_logs", &why);
        assert!(make(LogRegionKind::Mapped, "m").starts_with("BufferedRegion"));
        return;
    }
    // Else the battery would test one kind twice.
    assert!(make(LogRegionKind::Mapped, "m").starts_with("MappedRegion"));
}

/// Records that are synced one by one would each write a large folio of the page cache, where there are such.
#[cfg(target_os = "linux")]
#[test]
fn a_log_region_that_is_synced_often_asks_for_no_large_folios() {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::with_log_regions(LogRegionKind::Mapped);
    for synced_often in [false, true] {
        let path = dir.path().join(format!("region-{synced_often}"));
        let region = disk.create_log_region(&path, 1 << 20).unwrap();
        if !format!("{region:?}").starts_with("MappedRegion") {
            skip("mapped_logs", &format!("{} reserves no blocks for certain", path.display()));
            return;
        }
        region.expect_syncs(synced_often);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_region = maps.split_once(path.to_str().unwrap()).unwrap().1;
        let flags = of_region.lines().find_map(|line| line.strip_prefix("VmFlags: ")).unwrap();
        // `rr`: advised that it is used at random.
        assert_eq!(flags.split_whitespace().any(|flag| flag == "rr"), synced_often, "{flags}");
    }
}

/// How much of the mapped file is in the address space.
#[cfg(target_os = "linux")]
fn resident_kib(path: &std::path::Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let of_region = maps.split_once(path.to_str().unwrap()).unwrap().1;
    let rss = of_region.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    rss.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A segment is made ready a piece at a time, with syncs between: what was mapped after a sync stayed so.
#[cfg(target_os = "linux")]
#[test]
fn pages_made_ready_behind_a_sync_leave_the_address_space_at_the_next() {
    const LENGTH: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("region");
    let disk = RealDisk::with_log_regions(LogRegionKind::Mapped);
    let region = disk.create_log_region(&path, LENGTH).unwrap();
    region.make_ready(0..LENGTH);
    if !format!("{region:?}").starts_with("MappedRegion") || resident_kib(&path) < 1 << 10 {
        return skip("mapped_logs", &format!("{}: no memory is made ready", path.display()));
    }
    region.sync(LENGTH).unwrap();
    assert!(resident_kib(&path) <= 64, "{} KiB", resident_kib(&path));
    region.make_ready(LENGTH / 4..LENGTH / 2);
    assert!(resident_kib(&path) >= 256, "{} KiB", resident_kib(&path));
    region.sync(LENGTH).unwrap();
    assert!(resident_kib(&path) <= 64, "{} KiB", resident_kib(&path));
}

/// The system took them out one by one as it wrote them, and interrupted every thread's processor for each: 37 ms for 8 MB.
#[cfg(target_os = "linux")]
#[test]
fn pages_that_are_synced_leave_the_address_space_and_keep_what_was_written() {
    const LENGTH: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::with_log_regions(LogRegionKind::Mapped);
    let path = dir.path().join("region");
    let mut region = disk.create_log_region(&path, LENGTH as u64).unwrap();
    let resident_kib = || resident_kib(&path);
    for life in 1..=3 {
        region.expect_syncs(false);
        region.make_ready(0..LENGTH as u64);
        if !format!("{region:?}").starts_with("MappedRegion") || resident_kib() < LENGTH >> 10 {
            skip("mapped_logs", &format!("{}: no memory is made ready", path.display()));
            return;
        }
        let late = region.reserve(100).unwrap();
        let reserved = region.reserve(LENGTH / 8 * 5).unwrap();
        region.publish(reserved, &mut |bytes| bytes.fill(life)).unwrap();
        region.sync(LENGTH as u64 / 8 * 5).unwrap();
        assert!(resident_kib() < LENGTH >> 11, "{} KiB of {LENGTH} bytes", resident_kib());
        region.publish(late, &mut |bytes| bytes.fill(10 * life)).unwrap();
        let rest = region.reserve(LENGTH / 4).unwrap();
        region.publish(rest, &mut |bytes| bytes.fill(100 + life)).unwrap();
        region.sync(LENGTH as u64).unwrap();
        // The page of the late record, of whatever size.
        assert!(resident_kib() <= 64, "{} KiB", resident_kib());
        let read = std::fs::read(&path).unwrap();
        let places =
            [0, 99, 100, LENGTH / 2, LENGTH / 8 * 5 + 99, LENGTH / 8 * 5 + 100, LENGTH / 8 * 7];
        let expected = [10 * life, 10 * life, life, life, life, 100 + life, 100 + life];
        assert_eq!(places.map(|at| read[at]), expected);
        assert!(std::sync::Arc::get_mut(&mut region).unwrap().begin_again(&path));
    }
}

/// How many calls that write this thread has made; `None` where the system does not count them.
#[cfg(target_os = "linux")]
fn writing_calls() -> Option<u64> {
    let counted = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    counted.lines().find_map(|line| line.strip_prefix("syscw: "))?.parse().ok()
}

/// How often the process has a file open.
#[cfg(target_os = "linux")]
fn times_open(path: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.ok());
    open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|of| of == path)).count()
}

/// As where a process may open no more: records are copied to the map, as ever.
#[cfg(target_os = "linux")]
#[test]
fn a_region_whose_file_cannot_be_opened_again_stores_all_records() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("region"), dir.path().join("moved"));
    let disk = RealDisk::with_log_regions(LogRegionKind::Mapped);
    let region = disk.create_log_region(&path, 1 << 20).unwrap();
    if !format!("{region:?}").starts_with("MappedRegion") || writing_calls().is_none() {
        return skip("mapped_logs", &format!("{}: no map, or calls uncounted", path.display()));
    }
    region.end();
    std::fs::rename(&path, &moved).unwrap();
    region.expect_syncs(true);
    let before = writing_calls();
    for number in 1..=5 {
        let place = region.reserve(500).unwrap();
        let end = place.offset_bytes() + 500;
        region.publish(place, &mut |bytes| bytes.fill(number)).unwrap();
        region.sync(end).unwrap();
    }
    assert_eq!(writing_calls(), before);
    let expected: Vec<u8> = (1..=5).flat_map(|number| [number; 500]).collect();
    assert_eq!(std::fs::read(&moved).unwrap()[..2500], expected);
}

/// A store to a page that was synced is a fault, which costs more than a call; so does a call than a copy.
#[cfg(target_os = "linux")]
#[test]
fn records_that_are_synced_one_by_one_are_written_by_calls() {
    const LENGTH: u64 = 1 << 20;
    let temporary = tempfile::tempdir().unwrap();
    // As the system names open files.
    let dir = temporary.path().canonicalize().unwrap();
    let mut path = dir.join("region0");
    let disk = RealDisk::with_log_regions(LogRegionKind::Mapped);
    let mut region = disk.create_log_region(&path, LENGTH).unwrap();
    if !format!("{region:?}").starts_with("MappedRegion") || writing_calls().is_none() {
        return skip("mapped_logs", &format!("{}: no map, or calls uncounted", path.display()));
    }
    for (life, synced_often) in [(1, true), (2, true), (3, false)] {
        let calls_of = |records: usize, is_synced: bool| {
            let before = writing_calls().unwrap();
            let mut end = 0;
            for _ in 0..records {
                let place = region.reserve(500).unwrap();
                end = place.offset_bytes() + 500;
                region.publish(place, &mut |bytes| bytes.fill(1)).unwrap();
            }
            let calls = writing_calls().unwrap() - before;
            if is_synced {
                region.sync(end).unwrap();
            }
            calls
        };
        assert_eq!(calls_of(1, true), 0, "the header: nothing is expected of it");
        region.expect_syncs(synced_often);
        assert_eq!(times_open(&path), usize::from(synced_often));
        let by_calls = u64::from(synced_often);
        // The first shows that one comes.
        assert_eq!(calls_of(1, true), 0);
        assert_eq!([calls_of(1, true), calls_of(1, true)], [by_calls; 2]);
        // The first of many comes as if it were alone.
        assert_eq!([calls_of(40, true), calls_of(1, true)], [by_calls, 0]);
        assert_eq!([calls_of(2, true), calls_of(1, true)], [by_calls, 0]);
        // A long one would be put together in memory first.
        let long = region.reserve(100 << 10).unwrap();
        let (before, end) = (writing_calls(), long.offset_bytes() + long.length_bytes() as u64);
        region.publish(long, &mut |bytes| bytes.fill(2)).unwrap();
        assert_eq!(writing_calls(), before);
        region.sync(end).unwrap();
        assert_eq!([calls_of(1, true), calls_of(1, true)], [0, by_calls]);
        assert_eq!([calls_of(1, true), calls_of(1, false)], [by_calls, by_calls]);
        region.end();
        assert_eq!(
            (calls_of(1, true), times_open(&path)),
            (0, 0),
            "of one that has ended no file is open"
        );
        let name = dir.join(format!("region{life}"));
        assert!(std::sync::Arc::get_mut(&mut region).unwrap().begin_again(&name));
        std::fs::rename(&path, &name).unwrap();
        path = name;
    }
}

#[test]
fn many_reads_go_the_way_asked_for() {
    assert!(!RealDisk::new().with_many_reads(ManyReads::OneByOne).uses_io_uring());
    let disk = RealDisk::new();
    if !disk.uses_io_uring() {
        skip("io_uring", "the kernel gives none, so one way is tested twice");
    }
    // Clones share the rings, and so the one asking.
    assert_eq!(disk.clone().uses_io_uring(), disk.uses_io_uring());
}

/// A database that was closed could not be opened while another thread was starting a process: that
/// one has copies of all open files until it runs its program.
#[test]
fn a_lock_that_is_let_go_does_not_live_on_in_copies_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let file = std::fs::File::create(&path).unwrap();
    let copy = file.try_clone().unwrap();
    let taken = file.try_lock();
    let lock = held(&path, file, taken).unwrap();
    let disk = RealDisk::new();
    assert_eq!(disk.lock(&path).unwrap_err().kind(), ErrorKind::Locked);
    drop(lock);
    disk.lock(&path).unwrap();
    drop(copy);
}

#[test]
fn a_region_that_does_not_fit_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [LogRegionKind::Mapped, LogRegionKind::Buffered] {
        let disk = RealDisk::with_log_regions(kind);
        let path = dir.path().join("log");
        // More than any file system allows, so that it is refused without a block being written.
        let error = disk.create_log_region(&path, 1 << 62).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DiskFull | ErrorKind::Io), "{error}");
        assert_eq!(error.path(), Some(&*path));
        assert_eq!(disk.list(dir.path()).unwrap(), [""; 0]);
    }
}

/// Space that is only promised is a `SIGBUS` to come.
#[cfg(target_os = "linux")]
#[test]
fn reserved_space_is_taken_and_discarded_space_given_back() {
    use std::os::unix::fs::MetadataExt;
    const LENGTH: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let taken_bytes = || std::fs::metadata(&path).unwrap().blocks() * 512;

    let disk = RealDisk::new();
    let region = disk.create_log_region(&path, LENGTH).unwrap();
    assert!(taken_bytes() >= LENGTH);
    region.publish(region.reserve(10).unwrap(), &mut |b| b.fill(1)).unwrap();
    disk.remove(&path).unwrap();

    let file = disk.create(&path).unwrap();
    assert_eq!(taken_bytes(), 0);
    file.preallocate(LENGTH).unwrap();
    assert!(taken_bytes() >= LENGTH);
    file.write_all_at(&[1; LENGTH as usize], 0).unwrap();
    file.sync().unwrap();
    file.discard(0, LENGTH / 2).unwrap();
    assert!(taken_bytes() < LENGTH * 3 / 4, "ext4, XFS, btrfs and tmpfs all punch holes");
    let data = [0, LENGTH / 4, LENGTH / 2 + 5, LENGTH + 5].map(|from| file.data_from(from));
    assert_eq!(data, [LENGTH / 2, LENGTH / 2, LENGTH / 2 + 5, LENGTH + 5]);
    file.discard(0, LENGTH).unwrap();
    assert_eq!((file.data_from(7), file.length_bytes().unwrap()), (LENGTH, LENGTH));
}

/// One page that is not there is enough.
#[cfg(target_os = "linux")]
#[test]
fn a_part_of_a_map_is_in_memory_if_all_its_pages_are() {
    use crate::disk::Mapping;
    /// The system keeps files in large folios, too, and drops whole ones.
    const HALF: usize = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let disk = RealDisk::new();
    let file = disk.create(&path).unwrap();
    file.write_all_at(&vec![7; 2 * HALF], 0).unwrap();
    file.sync().unwrap();
    let Mapping::Made(map) = file.map() else {
        return skip("page_cache", &format!("{} is not mapped", dir.path().display()));
    };
    let there = |from: usize, to: usize| file.is_in_memory(&map[from..to]);
    assert!(there(0, 2 * HALF) && there(5, 6) && there(5, 5), "just written");
    let system = std::fs::File::open(&path).unwrap();
    let length = std::num::NonZeroU64::new(HALF as u64);
    rustix::fs::fadvise(&system, HALF as u64, length, rustix::fs::Advice::DontNeed).unwrap();
    if there(HALF, HALF + 1) {
        return skip("page_cache", "the system dropped nothing");
    }
    if !there(0, HALF) {
        return skip("page_cache", "the system dropped what it was not told to");
    }
    assert!(!there(0, HALF + 1) && !there(HALF - 1, HALF + 1), "one page");
    assert!(!there(2 * HALF - 1, 2 * HALF) && !there(HALF - 4096 * 127, HALF + 4096));
    file.read_exact_at(&mut [0; 4096], HALF as u64).unwrap();
    assert!(there(HALF - 4096 * 127, HALF + 4096), "read again");
}

/// Of a file that this process may not write to Linux says that all of it is in memory, whatever is.
#[cfg(target_os = "linux")]
#[test]
fn what_is_said_of_others_files_is_not_believed() {
    use std::os::unix::fs::PermissionsExt;

    use super::RealFile;
    use crate::disk::{Access, File, Mapping};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, [7; 10_000]).unwrap();
    let said = |file: &dyn File| match file.map() {
        Mapping::Made(map) => Some(file.is_in_memory(&map)),
        _ => None,
    };
    let with = |may_write: bool| {
        RealFile::new(&path, std::fs::File::open(&path).unwrap(), None, may_write, None)
    };
    let Some(of_ours) = said(&with(true)) else {
        return skip("page_cache", &format!("{} is not mapped", dir.path().display()));
    };
    if !of_ours {
        return skip("page_cache", "the system dropped what it was not told to");
    }
    assert_eq!(said(&with(false)), Some(false));
    assert!(super::open_existing(&path).unwrap().1);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    if std::fs::OpenOptions::new().write(true).open(&path).is_ok() {
        return skip("unprivileged", "whoever runs this may write to any file");
    }
    assert!(!super::open_existing(&path).unwrap().1);
    let file = RealDisk::new().open(&path, Access::Random).unwrap();
    assert_eq!(said(&*file), Some(false));
}

/// The way taken where `fallocate` is refused.
#[test]
fn growing_never_cuts_and_zeros_fill_whole_regions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let file = super::create_new(&path).unwrap();
    platform::grow(&file, 5000).unwrap();
    platform::grow(&file, 100).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5000);
    let length_bytes = (2 << 20) + 123;
    platform::write_zeros(&file, length_bytes).unwrap();
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len() as u64, length_bytes);
    assert!(content.iter().all(|&b| b == 0));
}

#[test]
fn regions_of_odd_lengths_can_be_filled_and_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    for (kind, length) in
        [(LogRegionKind::Mapped, 4097), (LogRegionKind::Buffered, 4097), (LogRegionKind::Mapped, 1)]
    {
        let disk = RealDisk::with_log_regions(kind);
        let region = disk.create_log_region(&path, length).unwrap();
        let place = region.reserve(length as usize).unwrap();
        region.publish(place, &mut |bytes| bytes.fill(9)).unwrap();
        for up_to in [0, 1, length, length + 1] {
            region.sync(up_to).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), vec![9; length as usize]);
        disk.remove(&path).unwrap();
    }
}

/// What ext4 keeps for the superuser was free room to the root of a container without privileges.
#[cfg(target_os = "linux")]
#[test]
fn the_root_of_a_user_namespace_is_not_the_superuser() {
    assert!(platform::maps_root("         0          0 4294967295\n"));
    assert!(platform::maps_root("0 0 1\n1 100000 65536\n"));
    assert!(!platform::maps_root(
        "         0       1000          1\n         1     100000      65536\n"
    ));
    assert!(!platform::maps_root(""));
}
