//! Long values that are lent where the system says that it holds them.

use super::*;

/// Of a long value in a map each page that is not in memory is a wait of its own: so each is asked for. What the answers are
/// says when long ones are asked for again, and nothing of others.
#[test]
fn whether_a_long_value_is_read_where_it_lies_is_asked_each_time() {
    let context = context_that(true);
    let (used, pointers) = write(&context, 1, 0..400);
    let segment = Segment::open(&context, &used).unwrap();
    let metrics = &context.metrics;
    let counts = |at: usize| {
        let (key, pointer) = &pointers[at];
        assert!(segment.load(key, *pointer, &Reads::default()).unwrap() == value(at));
        (metrics.asked_values.sum(), metrics.value_requests.load(Relaxed))
    };
    // Of the simulated disk's looks every fourth finds nothing; then long ones are read for a while.
    let found: Vec<_> = (0..6).map(|at| counts(40 * at + 1)).collect();
    assert_eq!(found, [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3)]);
    assert!((0..4).all(|at| counts(40 * at + 2) == (3, 4 + at as u64)), "never of two chunks");
    assert_eq!((counts(7), metrics.mapped_values.sum()), ((3, 7), 1), "short ones are not");
    assert_eq!(metrics.value_misses.load(Relaxed), 0, "they say nothing of the page cache");
    assert_eq!(metrics.lost_mappings.load(Relaxed), 0);
    let rested = (0..1000).find(|_| counts(41).0 > 3);
    assert_eq!(rested, Some(256 / 64 - 2), "four reads, two of which were above");
    // Nor do they rest with short ones.
    assert!((0..10_000).any(|_| {
        counts(7);
        segment.prefix.residence.rests()
    }));
    let before = metrics.asked_values.sum();
    assert!((0..1000).any(|_| counts(41).0 > before) && segment.prefix.residence.rests());
}

/// Whether the system is asked for a value of such a length, and believed.
fn is_asked_for(length: usize, how: Compression, make: impl Fn(usize) -> Vec<u8>) -> bool {
    let context = context_that(true);
    let entries = [(key(1), make(length)), (key(2), Vec::new())].into_iter();
    let (used, pointers) = write_values(&context, 1, entries, how);
    let segment = Segment::open(&context, &used).unwrap();
    for _ in 0..4 {
        let found = segment.load(&pointers[0].0, pointers[0].1, &Reads::default()).unwrap();
        assert!(*found == make(length), "{how} {length}");
    }
    let asked = context.metrics.asked_values.sum();
    assert!(asked == 0 || asked == 3, "{asked} of four of {length}");
    asked == 3
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Up to 16 KiB a look now and then is enough; what is of several chunks is put together in memory of its own.
#[test]
fn the_system_is_asked_for_values_of_more_than_16_kib_in_one_chunk() {
    let expected =
        [(16 << 10, false), ((16 << 10) + 1, true), (CHUNK_BYTES, true), (CHUNK_BYTES + 1, false)];
    for (length, is_asked) in expected {
        assert_eq!(is_asked_for(length, Compression::None, noise), is_asked, "{length}");
    }
    for how in Compression::ALL.iter().filter(|how| **how != Compression::None) {
        // Stored in some 20 KiB, in one chunk and in several; and in little.
        let half = |length: usize| [noise(20 << 10), vec![1; length - (20 << 10)]].concat();
        assert!(is_asked_for(100_000, *how, half) && !is_asked_for(2 * CHUNK_BYTES, *how, half));
        assert!(!is_asked_for(100_000, *how, |length| vec![1; length]), "{how}");
    }
}

/// There may be as many of them as there are maps in a process: such take none, however cold.
#[test]
fn a_long_value_that_is_alone_in_its_file_takes_no_map() {
    let own = Arc::into_inner(context_that(true)).unwrap();
    let maps = Maps::new(9);
    let context = Arc::new(TableContext { maps: Some(maps.clone()), ..own });
    let entry = [(key(1), noise(100_000))].into_iter();
    let (used, pointers) = write_values(&context, 1, entry, Compression::None);
    let segment = Segment::open(&context, &used).unwrap();
    let (key, pointer) = &pointers[0];
    assert!(*segment.load(key, *pointer, &Reads::default()).unwrap() == noise(100_000));
    assert_eq!(maps.count(), 0);
}

/// The whole of it is asked for, and of the file that it is in.
#[cfg(target_os = "linux")]
#[test]
fn a_value_of_which_the_system_dropped_a_part_is_read_by_a_request() {
    use learnedkv_skips::skip;

    use crate::disk::Mapping;
    use crate::disk::real::RealDisk;
    const LONG: usize = 200 << 10;
    let dir = tempfile::tempdir().unwrap();
    let own = Arc::into_inner(context_on(Arc::new(RealDisk::new()), true)).unwrap();
    let context = Arc::new(TableContext { dir: dir.path().to_owned(), ..own });
    let entries = (0..64).map(|number| (key(number), noise(LONG)));
    let (used, pointers) = write_values(&context, 1, entries, Compression::None);
    let path = segment_path(dir.path(), 1);
    let file = context.disk.open(&path, Access::Random).unwrap();
    let Mapping::Made(map) = file.map() else {
        return skip("page_cache", &format!("{} is not mapped", dir.path().display()));
    };
    let is_there = |at: usize| {
        let pointer = pointers[at].1;
        file.is_in_memory(&map[pointer.offset as usize..pointer.end() as usize])
    };
    let requests = |at: usize| {
        let segment = Segment::open(&context, &used).unwrap();
        let before = context.metrics.value_requests.load(Relaxed);
        let (key, pointer) = &pointers[at];
        assert!(*segment.load(key, *pointer, &Reads::default()).unwrap() == noise(LONG));
        context.metrics.value_requests.load(Relaxed) - before
    };
    // From a huge page's beginning on: the value there loses its end alone.
    let cut = 6 << 20;
    let system = std::fs::File::open(&path).unwrap();
    let at = pointers.iter().position(|(_, pointer)| pointer.end() > cut).unwrap();
    assert!(pointers[at].1.offset + 8192 < cut);
    rustix::fs::fadvise(&system, cut, None, rustix::fs::Advice::DontNeed).unwrap();
    if is_there(at) || is_there(at + 2) || !is_there(at - 1) {
        return skip("page_cache", "the system dropped nothing, or what it was not told to");
    }
    assert_eq!((requests(at - 1), requests(at), requests(at + 2)), (0, 1, 1));
}
