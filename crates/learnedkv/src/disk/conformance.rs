//! The battery that every disk passes: the rules of the module page, and what the methods promise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::faulty::FaultyDisk;
use super::real::{LogRegionKind, ManyReads, RealDisk, Waiting};
use super::sim::SimDisk;
use super::{Access, Disk, File, Mapping, ReadRequest};
use crate::error::{Error, ErrorKind};

mod regions;

use regions::*;

/// A disk with an empty directory to work in.
struct Fixture {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl Fixture {
    fn real(kind: LogRegionKind, many_reads: ManyReads, waiting: Waiting) -> Fixture {
        let temporary = tempfile::tempdir().unwrap();
        let disk = RealDisk::with_log_regions(kind).with_many_reads(many_reads);
        Fixture {
            disk: Arc::new(disk.with_waiting(waiting)),
            dir: temporary.path().to_path_buf(),
            temporary: Some(temporary),
        }
    }

    fn sim() -> Fixture {
        let disk = Arc::new(SimDisk::new(7));
        let dir = PathBuf::from("/work");
        disk.create_dir(&dir).unwrap();
        Fixture { disk, dir, temporary: None }
    }

    /// A simulated disk that is observed takes other ways through writes.
    fn observed_sim() -> Fixture {
        let sim = SimDisk::new(7);
        sim.observe(|operation, disk| assert!(operation.index < disk.operation_count()));
        let dir = PathBuf::from("/work");
        sim.create_dir(&dir).unwrap();
        Fixture { disk: Arc::new(sim), dir, temporary: None }
    }

    fn faulty() -> Fixture {
        let sim = Fixture::sim();
        Fixture { disk: Arc::new(FaultyDisk::new(sim.disk)), ..sim }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn file(&self, name: &str, content: &[u8]) -> Arc<dyn File> {
        let file = self.disk.create(&self.path(name)).unwrap();
        file.write_all_at(content, 0).unwrap();
        file
    }
}

/// The whole content of a file.
fn content(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Access::Sequential).unwrap();
    let mut bytes = vec![0xee; file.length_bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Checks that an error is of `kind` and tells where it happened.
#[track_caller]
fn assert_error<T>(result: Result<T, Error>, kind: ErrorKind, path: &Path) {
    let error = result.err().expect("should fail");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}

/// Bytes in which every position is told from its neighbours.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 256) as u8).collect()
}

fn writes_are_visible_and_overwrite(f: &Fixture) {
    let file = f.file("a", &pattern(10_000));
    let again = f.disk.open(&f.path("a"), Access::Random).unwrap();
    file.write_all_at(&[0xff; 5000], 4000).unwrap();
    again.write_all_at(b"end", 9_998).unwrap();
    let mut expected = pattern(10_001);
    expected[4000..9000].fill(0xff);
    expected[9_998..].copy_from_slice(b"end");
    assert_eq!(content(&*f.disk, &f.path("a")), expected);
    assert_eq!(file.length_bytes().unwrap(), 10_001);
    file.sync().unwrap();
    assert_eq!(content(&*f.disk, &f.path("a")), expected);
}

fn gaps_and_growth_read_as_zeros(f: &Fixture) {
    let file = f.file("a", b"abc");
    file.write_all_at(b"xyz", 20_000).unwrap();
    let mut expected = vec![0; 20_003];
    expected[..3].copy_from_slice(b"abc");
    expected[20_000..].copy_from_slice(b"xyz");
    assert_eq!(content(&*f.disk, &f.path("a")), expected);

    file.truncate(2).unwrap();
    assert_eq!(content(&*f.disk, &f.path("a")), b"ab");
    file.truncate(5).unwrap();
    assert_eq!(content(&*f.disk, &f.path("a")), b"ab\0\0\0", "cut bytes do not come back");
    file.preallocate(6000).unwrap();
    assert_eq!(file.length_bytes().unwrap(), 6000);
    assert_eq!(content(&*f.disk, &f.path("a"))[..5], *b"ab\0\0\0");
    assert!(content(&*f.disk, &f.path("a"))[5..].iter().all(|&b| b == 0));
    file.preallocate(10).unwrap();
    assert_eq!(file.length_bytes().unwrap(), 6000, "preallocating never cuts");
}

fn reads_past_the_end_are_errors(f: &Fixture) {
    let file = f.file("a", &pattern(5000));
    for access in [Access::Random, Access::Sequential, Access::Direct] {
        let file = f.disk.open(&f.path("a"), access).unwrap();
        for (offset, length) in [(4999, 2), (5000, 1), (0, 5001), (9000, 1), (4096, 4096)] {
            let read = file.read_exact_at(&mut vec![0; length], offset);
            let error = read.expect_err("past the end");
            assert!(error.is_corruption(), "{error}");
            assert_eq!(error.offset_bytes(), Some(offset));
            let found = 5000_u64.saturating_sub(offset).min(length as u64);
            let text = format!("expected {length} bytes, found {found}");
            assert!(error.to_string().contains(&text), "{error}");
            assert!(error.to_string().contains(&f.path("a").display().to_string()), "{error}");
        }
        file.read_exact_at(&mut [], 5000).unwrap();
    }
    drop(file);
}

fn every_access_reads_every_alignment(f: &Fixture) {
    let expected = pattern((2 << 20) + 4097);
    let writer = f.file("a", &expected);
    let longest = expected.len();
    for access in [Access::Random, Access::Sequential, Access::Direct] {
        let file = f.disk.open(&f.path("a"), access).unwrap();
        for offset in [0, 1, 511, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20] {
            for length in [1, 2, 4095, 4096, 4097, 8192, 1 << 20, longest - offset] {
                let mut found = vec![0xee; length];
                file.read_exact_at(&mut found, offset as u64).unwrap();
                assert!(found == expected[offset..offset + length], "{offset} {length} {access:?}");
            }
        }
        // Unsynced writes are seen by all, and a file open for direct reads can be written.
        writer.write_all_at(b"fresh", 77).unwrap();
        let mut found = [0; 5];
        file.read_exact_at(&mut found, 77).unwrap();
        assert_eq!(&found, b"fresh");
        file.write_all_at(&expected[77..82], 77).unwrap();
        writer.read_exact_at(&mut found, 77).unwrap();
        assert_eq!(found, expected[77..82]);
    }
}

/// Whether the real disk maps files there: on Linux, ext4 and XFS.
fn is_known_to_map(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let at = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (target, kind) = (words.next()?, words.next()?);
        dir.starts_with(target).then_some((target.len(), kind))
    });
    dir.exists() && at.max().is_some_and(|(_, kind)| ["ext4", "xfs"].contains(&kind))
}

/// What is in memory is what reads find; a read of what is cached alone says whether it was done.
fn maps_and_cached_reads_show_what_reads_find(f: &Fixture) {
    let bytes = pattern(150_000);
    f.file("a", &bytes).sync().unwrap();
    for access in [Access::Random, Access::Sequential, Access::Direct] {
        let file = f.disk.open(&f.path("a"), access).unwrap();
        if let Mapping::Made(map) = file.map() {
            assert!(map == bytes, "{access:?}");
        }
        for (offset, length) in [(0, 1), (4095, 4097), (100_000, 50_000)] {
            let mut found = vec![0xee; length];
            if file.read_cached_at(&mut found, offset as u64) {
                assert!(found == bytes[offset..offset + length], "{access:?} {offset}");
            }
        }
        assert!(!file.read_cached_at(&mut [0; 10], 149_995), "past the end");
    }
    if f.temporary.is_some() && is_known_to_map(&f.dir) {
        let file = f.disk.open(&f.path("a"), Access::Random).unwrap();
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(file.read_cached_at(&mut found, 0), "just read");
        let Mapping::Made(map) = file.map() else { panic!("it is known to map") };
        for part in [0..1, 4095..4097, 4096..8192, 0..150_000, 149_999..150_000] {
            assert!(file.is_in_memory(&map[part.clone()]), "just read: {part:?}");
        }
    }
    let map = f.disk.open(&f.path("a"), Access::Random).unwrap().map();
    f.disk.remove(&f.path("a")).unwrap();
    if let Mapping::Made(map) = map {
        assert!(map == bytes, "it outlives its file and its name");
    }
    if let Mapping::Made(map) = f.file("empty", b"").map() {
        assert!(map.is_empty());
    }
}

/// Rule 5: many reads are the same reads, one by one.
fn many_reads_are_the_reads_one_by_one(f: &Fixture) {
    let bytes = pattern(150_000);
    f.file("a", &bytes);
    f.file("b", &bytes[7..]);
    let accesses = [Access::Random, Access::Sequential, Access::Direct];
    let open = |name: &str| accesses.map(|access| f.disk.open(&f.path(name), access).unwrap());
    let files = [open("a"), open("b")].concat();
    let offsets = [0, 1, 511, 4095, 4096, 4097, 100_000, 149_990, 149_999, 150_000, 1 << 40];
    let lengths = [0, 1, 10, 4095, 4096, 4097, 8192, 60_000];
    let mut wanted = Vec::new();
    for file in &files {
        for offset_bytes in offsets {
            wanted.extend(lengths.map(|length| (file.clone(), offset_bytes, length)));
        }
    }
    // None, one, few, and more than go together.
    for count in [0, 1, 2, 3, 64, 65, wanted.len()] {
        for chosen in [&wanted[..count], &wanted[wanted.len() - count..]] {
            let request = |(file, offset_bytes, length): &(Arc<dyn File>, u64, usize)| {
                let (file, offset_bytes) = (file.clone(), *offset_bytes);
                let around = length % 2 == 1;
                ReadRequest { file, offset_bytes, buffer: vec![0xee; *length], around }
            };
            let mut taken = vec![0; count];
            f.disk.read_many(chosen.iter().map(request).collect(), &mut |at, _| taken[at] += 1);
            assert_eq!(taken, vec![1; count]);
            let answers = f.disk.read_all(chosen.iter().map(request).collect());
            for ((file, offset_bytes, length), answer) in chosen.iter().zip(answers) {
                let (mut alone, mut around) = (vec![0; *length], vec![0; *length]);
                let read = file.read_exact_at(&mut alone, *offset_bytes);
                let read_around = file.read_around_at(&mut around, *offset_bytes);
                let said = read_around.err().map(|e| e.to_string());
                assert_eq!(said, read.as_ref().err().map(ToString::to_string));
                assert!(said.is_some() || around == alone, "{offset_bytes} {length}");
                match (read, answer) {
                    (Ok(()), Ok(found)) => assert!(found == alone, "{offset_bytes} {length}"),
                    (Err(expected), Err(found)) => {
                        assert_eq!(found.to_string(), expected.to_string());
                        assert_eq!(found.kind(), ErrorKind::Corruption);
                        assert_eq!(found.offset_bytes(), Some(*offset_bytes));
                    }
                    (read, answer) => panic!("{offset_bytes} {length}: {read:?}, {answer:?}"),
                }
            }
        }
    }
}

fn many_reads_see_unsynced_writes(f: &Fixture) {
    let writer = f.file("a", &pattern(20_000));
    for access in [Access::Random, Access::Sequential, Access::Direct] {
        let file = f.disk.open(&f.path("a"), access).unwrap();
        for round in 0..20 {
            writer.write_all_at(&[round; 5000], 3000).unwrap();
            let request = |offset_bytes| ReadRequest {
                file: file.clone(),
                offset_bytes,
                buffer: vec![0xee; 4000],
                around: offset_bytes == 3500,
            };
            for answer in f.disk.read_all(vec![request(3000), request(3500), request(4000)]) {
                assert_eq!(answer.unwrap(), [round; 4000]);
            }
        }
    }
}

fn many_threads_read_many(f: &Fixture) {
    let bytes = pattern(200_000);
    f.file("a", &bytes);
    let file = f.disk.open(&f.path("a"), Access::Direct).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..20_usize {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                for round in 0..20 {
                    let places = (0..40).map(|i| (i * 4801 + thread * 97 + round * 13) % 199_000);
                    let places: Vec<_> = places.collect();
                    let request = |&at: &usize| ReadRequest {
                        file: file.clone(),
                        offset_bytes: at as u64,
                        buffer: vec![0; 1000],
                        around: at % 2 == 0,
                    };
                    let answers = f.disk.read_all(places.iter().map(request).collect());
                    for (at, answer) in places.into_iter().zip(answers) {
                        assert!(answer.unwrap() == bytes[at..at + 1000], "thread {thread}, {at}");
                    }
                }
            });
        }
    });
}

fn disjoint_writes_run_concurrently(f: &Fixture) {
    let file = f.file("a", b"");
    let expected = pattern(64 * 1000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (file, expected) = (&file, &expected);
            scope.spawn(move || {
                for chunk in (thread..64).step_by(4) {
                    let range = chunk * 1000..(chunk + 1) * 1000;
                    file.write_all_at(&expected[range.clone()], range.start as u64).unwrap();
                }
            });
        }
    });
    assert!(content(&*f.disk, &f.path("a")) == expected);
}

fn a_second_name_is_seen(f: &Fixture) {
    let file = f.disk.create(&f.path("a")).unwrap();
    let alone = file.has_one_name();
    f.disk.link(&f.path("a"), &f.path("b")).unwrap();
    assert!(!file.has_one_name());
    f.disk.remove(&f.path("a")).unwrap();
    assert_eq!(f.disk.open(&f.path("b"), Access::Random).unwrap().has_one_name(), alone);
    assert!(alone || !cfg!(unix), "where the system tells");
}

fn what_a_file_takes_is_told_where_the_system_tells(f: &Fixture) {
    let file = f.file("a", &pattern(100_000));
    file.sync().unwrap();
    let taken = file.taken_bytes();
    assert!(taken.is_some() || !cfg!(unix));
    let Some(taken) = taken else { return };
    // Less where the file system compresses.
    assert!((1..200_000).contains(&taken), "{taken}");
    file.truncate(0).unwrap();
    assert!(file.taken_bytes().unwrap() < taken);
    // Where it is reserved, that is told: else nothing would be known of room that the disk does not tell of.
    file.preallocate(1 << 20).unwrap();
    let reserved = file.taken_bytes().unwrap();
    assert!(!cfg!(target_os = "linux") || reserved >= 1 << 20, "{reserved}");
}

fn discard_reads_as_zeros_or_as_before(f: &Fixture) {
    let file = f.file("a", &pattern(40_000));
    file.sync().unwrap();
    file.discard(5000, 20_000).unwrap();
    file.discard(7, 0).unwrap();
    file.discard(39_000, 100_000).unwrap();
    assert!(file.data_from(8192) <= 25_000 && file.data_from(30_000) == 30_000, "data is passed");
    let (before, after) = (pattern(40_000), content(&*f.disk, &f.path("a")));
    assert_eq!(after.len(), before.len(), "the length stays");
    for (i, (&b, &a)) in before.iter().zip(&after).enumerate() {
        let discarded = (5000..25_000).contains(&i) || i >= 39_000;
        assert!(a == b || (discarded && a == 0), "byte {i}: {a}");
    }
    file.write_all_at(&pattern(40_000), 0).unwrap();
    assert!(content(&*f.disk, &f.path("a")) == before, "discarded space can be written again");
}

fn names_are_found_listed_and_sorted(f: &Fixture) {
    f.disk.create_dir(&f.path("sub/deep")).unwrap();
    f.disk.create_dir(&f.path("sub/deep")).unwrap();
    for name in ["c", "a", "b10", "b9", "sub/inner"] {
        f.file(name, name.as_bytes());
    }
    assert_eq!(f.disk.list(&f.dir).unwrap(), ["a", "b10", "b9", "c", "sub"]);
    assert_eq!(f.disk.list(&f.path("sub")).unwrap(), ["deep", "inner"]);
    assert_eq!(f.disk.list(&f.path("sub/deep")).unwrap(), [""; 0]);
    assert_eq!(content(&*f.disk, &f.path("sub/inner")), b"sub/inner");
    f.disk.sync_dir(&f.dir).unwrap();
    f.disk.remove(&f.path("b10")).unwrap();
    assert_eq!(f.disk.list(&f.dir).unwrap(), ["a", "b9", "c", "sub"]);
}

fn errors_name_kind_and_path(f: &Fixture) {
    let (d, a, no) = (&f.disk, f.path("a"), f.path("missing"));
    f.file("a", b"old");
    assert_error(d.create(&a), ErrorKind::Io, &a);
    assert_error(d.create_log_region(&a, 4096), ErrorKind::Io, &a);
    assert_error(d.create_log_region(&no, 0), ErrorKind::InvalidArgument, &no);
    assert_error(d.create_dir(&a), ErrorKind::Io, &a);
    assert_eq!(content(&**d, &a), b"old", "a failed create leaves the file alone");
    for access in [Access::Random, Access::Sequential, Access::Direct] {
        assert_error(d.open(&no, access), ErrorKind::NotFound, &no);
    }
    assert_error(d.remove(&no), ErrorKind::NotFound, &no);
    assert_error(d.rename(&no, &a), ErrorKind::NotFound, &no);
    assert_error(d.list(&no), ErrorKind::NotFound, &no);
    assert_error(d.sync_dir(&no), ErrorKind::NotFound, &no);
    let under = no.join("file");
    assert_error(d.create(&under), ErrorKind::NotFound, &under);
    assert_error(d.create_log_region(&under, 4096), ErrorKind::NotFound, &under);
    assert_error(d.lock(&under), ErrorKind::NotFound, &under);
    assert_error(d.rename(&a, &under), ErrorKind::NotFound, &a);
    assert_eq!(d.list(&f.dir).unwrap(), ["a"], "failures leave nothing behind");
}

fn rename_replaces_and_keeps_handles(f: &Fixture) {
    let (new, old) = (f.file("a", b"new"), f.file("b", b"older"));
    f.disk.rename(&f.path("a"), &f.path("b")).unwrap();
    assert_eq!(f.disk.list(&f.dir).unwrap(), ["b"]);
    assert_eq!(content(&*f.disk, &f.path("b")), b"new");
    assert_eq!(old.length_bytes().unwrap(), 5, "the replaced file lives while it is open");
    new.write_all_at(b"NEW", 0).unwrap();
    assert_eq!(content(&*f.disk, &f.path("b")), b"NEW");
    f.disk.rename(&f.path("b"), &f.path("b")).unwrap();
    f.disk.create_dir(&f.path("sub")).unwrap();
    f.disk.rename(&f.path("b"), &f.path("sub/c")).unwrap();
    assert_eq!(content(&*f.disk, &f.path("sub/c")), b"NEW");
    assert_eq!(f.disk.list(&f.dir).unwrap(), ["sub"]);
}

fn removed_files_work_while_open(f: &Fixture) {
    let file = f.file("a", b"abc");
    f.disk.remove(&f.path("a")).unwrap();
    f.disk.sync_dir(&f.dir).unwrap();
    assert_eq!(f.disk.list(&f.dir).unwrap(), [""; 0]);
    file.write_all_at(b"def", 3).unwrap();
    file.sync().unwrap();
    f.file("a", b"another");
    let mut found = [0; 6];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"abcdef");
}

fn a_lock_excludes_until_dropped(f: &Fixture) {
    let path = f.path("LOCK");
    for _ in 0..2 {
        let held = f.disk.lock(&path).unwrap();
        for _ in 0..2 {
            assert_error(f.disk.lock(&path), ErrorKind::Locked, &path);
        }
        let _other = f.disk.lock(&f.path("OTHER")).unwrap();
        drop(held);
    }
    assert_eq!(f.disk.list(&f.dir).unwrap(), ["LOCK", "OTHER"]);
}

fn shared_locks_exclude_only_others(f: &Fixture) {
    let path = f.path("LOCK");
    assert_error(f.disk.lock_shared(&path), ErrorKind::NotFound, &path);
    assert_eq!(f.disk.list(&f.dir).unwrap(), [""; 0], "a shared lock makes no file");
    let alone = f.disk.lock(&path).unwrap();
    assert_error(f.disk.lock_shared(&path), ErrorKind::Locked, &path);
    drop(alone);
    for _ in 0..2 {
        let (one, two) = (f.disk.lock_shared(&path).unwrap(), f.disk.lock_shared(&path).unwrap());
        assert_error(f.disk.lock(&path), ErrorKind::Locked, &path);
        drop(one);
        assert_error(f.disk.lock(&path), ErrorKind::Locked, &path);
        let three = f.disk.lock_shared(&path).unwrap();
        drop((two, three));
        drop(f.disk.lock(&path).unwrap());
    }
}

fn links_are_the_same_file(f: &Fixture) {
    let (a, b) = (f.path("a"), f.path("sub/b"));
    let file = f.file("a", b"abc");
    assert_error(f.disk.link(&a, &b), ErrorKind::NotFound, &a);
    f.disk.create_dir(&f.path("sub")).unwrap();
    f.disk.link(&a, &b).unwrap();
    f.disk.sync_dir(&f.path("sub")).unwrap();
    file.write_all_at(b"X", 1).unwrap();
    assert_eq!(content(&*f.disk, &b), b"aXc", "written under one name, read under the other");
    // No name is replaced, of a file or of a directory; the names are listed.
    let other = f.file("other", b"other");
    assert_error(f.disk.link(&a, &f.path("other")), ErrorKind::Io, &a);
    assert_error(f.disk.link(&a, &b), ErrorKind::Io, &a);
    assert_error(f.disk.link(&a, &f.path("sub")), ErrorKind::Io, &a);
    let missing = f.path("missing");
    assert_error(f.disk.link(&missing, &f.path("c")), ErrorKind::NotFound, &missing);
    assert_eq!(content(&*f.disk, &f.path("other")), b"other");
    assert_eq!(f.disk.list(&f.dir).unwrap(), ["a", "other", "sub"]);
    drop((file, other));
    // Each name goes by itself, and the file with the last.
    f.disk.remove(&a).unwrap();
    f.disk.sync_dir(&f.dir).unwrap();
    assert_eq!(content(&*f.disk, &b), b"aXc");
    f.disk.rename(&b, &a).unwrap();
    assert_eq!(content(&*f.disk, &a), b"aXc");
}

fn random_numbers_differ(f: &Fixture) {
    let numbers: std::collections::BTreeSet<u64> = (0..1000).map(|_| f.disk.random_u64()).collect();
    assert_eq!(numbers.len(), 1000);
    let ones: u32 = numbers.iter().map(|n| n.count_ones()).sum();
    assert!((31_000..33_000).contains(&ones), "{ones} of 64000 bits: not random");
}

/// A module of tests per variant, each test being one rule.
macro_rules! battery {
    ($($variant:ident: $fixture:expr;)* => $rules:tt) => {
        $(battery!(@variant $variant, $fixture, $rules);)*
    };
    (@variant $variant:ident, $fixture:expr, { $($rule:ident,)* }) => {
        mod $variant {
            use super::*;
            $(#[test]
            fn $rule() {
                super::$rule(&$fixture);
            })*
        }
    };
}

battery! {
    real_mapped: Fixture::real(LogRegionKind::Mapped, ManyReads::IoUring, Waiting::Awake);
    real_buffered: Fixture::real(LogRegionKind::Buffered, ManyReads::OneByOne, Waiting::Asleep);
    sim: Fixture::sim();
    observed_sim: Fixture::observed_sim();
    faulty: Fixture::faulty();
    => {
        writes_are_visible_and_overwrite,
        gaps_and_growth_read_as_zeros,
        reads_past_the_end_are_errors,
        every_access_reads_every_alignment,
        many_reads_are_the_reads_one_by_one,
        maps_and_cached_reads_show_what_reads_find,
        many_reads_see_unsynced_writes,
        many_threads_read_many,
        disjoint_writes_run_concurrently,
        discard_reads_as_zeros_or_as_before,
        a_second_name_is_seen,
        what_a_file_takes_is_told_where_the_system_tells,
        names_are_found_listed_and_sorted,
        errors_name_kind_and_path,
        rename_replaces_and_keeps_handles,
        removed_files_work_while_open,
        a_lock_excludes_until_dropped,
        shared_locks_exclude_only_others,
        links_are_the_same_file,
        log_regions_hold_records_in_order,
        threads_publish_to_one_region,
        regions_refuse_foreign_reservations,
        regions_are_begun_again,
        records_are_kept_however_often_they_are_synced,
        threads_publish_and_sync_a_few_records_at_a_time,
        random_numbers_differ,
    }
}
