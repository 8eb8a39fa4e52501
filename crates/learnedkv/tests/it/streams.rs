//! Very long values: in files of their own from the moment they are put, read whole or in pieces.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::LazyLock;

use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::disk::{Access, Disk};
use learnedkv::{Compression, Database, ErrorKind, Keyspace};

use crate::workload::Setup;

const STREAM_AT: usize = 1000;
/// What one checksum covers, and a bit: lengths around it take one chunk or several.
const CHUNK: usize = 256 << 10;
const LENGTHS: [usize; 7] =
    [0, STREAM_AT - 1, STREAM_AT, 5000, CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1];

fn setup() -> Setup {
    Setup {
        memtable_bytes: 64 << 10,
        log_segment_bytes: 64 << 10,
        automatic_conversion: false,
        stream_at: STREAM_AT as u64,
        ..Setup::default()
    }
}

fn open(disk: &SimDisk) -> (Database, Keyspace) {
    open_packed(disk, Compression::None)
}

fn open_packed(disk: &SimDisk, how: Compression) -> (Database, Keyspace) {
    let db = setup().open(disk, 1).unwrap();
    let keyspace = db.keyspace("k", setup().keyspace.compression(how)).unwrap();
    (db, keyspace)
}

/// Bytes that differ from place to place; every second chunk can be compressed.
fn value(length: usize, salt: usize) -> Vec<u8> {
    let byte = |i: usize| match i / CHUNK % 2 {
        0 => i / 37 + salt,
        _ => i / 7 + i * i / 1000 + salt,
    };
    (0..length).map(|i| (byte(i) % 251) as u8).collect()
}

fn files(disk: &SimDisk) -> usize {
    let names = disk.list(Path::new("/db")).unwrap();
    names.iter().filter(|name| name.starts_with("values-")).count()
}

/// Every way of reading gives the values of `LENGTHS`, with that salt.
fn check(db: &Database, keyspace: &Keyspace, salt: usize) {
    let snapshot = db.snapshot();
    let names: Vec<_> = LENGTHS.map(|length| format!("{length:07}")).to_vec();
    let many = keyspace.multi_get(&names).unwrap();
    for ((length, name), found) in LENGTHS.iter().zip(&names).zip(many) {
        let expected = value(*length, salt);
        assert!(keyspace.get(name).unwrap().unwrap() == expected, "get {name}");
        assert!(found.unwrap() == expected, "multi_get {name}");
        assert_eq!(keyspace.size_of(name).unwrap(), Some(*length as u64));
        let mut reader = keyspace.get_reader(name).unwrap().unwrap();
        assert_eq!((reader.len(), reader.is_empty()), (*length as u64, *length == 0));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == expected, "reader {name}");
        let mut reader = snapshot.get_reader(keyspace, name).unwrap().unwrap();
        // In pieces from the end to the beginning, each over the chunk's edges at times.
        let piece = 100_001;
        for start in (0..*length).step_by(piece).collect::<Vec<_>>().into_iter().rev() {
            let end = (start + piece).min(*length);
            reader.seek(SeekFrom::End(start as i64 - *length as i64)).unwrap();
            let mut bytes = vec![0; end - start];
            reader.read_exact(&mut bytes).unwrap();
            assert!(bytes == expected[start..end], "{name} from {start}");
            assert_eq!(reader.stream_position().unwrap(), end as u64);
        }
        assert_eq!(reader.seek(SeekFrom::End(10)).unwrap(), *length as u64 + 10);
        assert_eq!(reader.read(&mut [0; 4]).unwrap(), 0, "behind the end");
        let beyond = reader.seek(SeekFrom::Current(-(*length as i64) - 11)).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::InvalidInput);
    }
    let walked: Vec<_> = keyspace.iter().map(|e| e.unwrap().1).collect();
    assert!(walked.iter().zip(LENGTHS).all(|(v, length)| *v == value(length, salt)));
    assert_eq!(walked.len(), LENGTHS.len());
    assert!(keyspace.get_reader("absent").unwrap().is_none());
}

#[test]
fn long_values_come_back_however_they_are_put_and_wherever_they_are() {
    for how in Compression::ALL {
        come_back(*how);
    }
}

fn come_back(how: Compression) {
    let disk = SimDisk::new(1);
    for salt in 0..5 {
        let (db, keyspace) = open_packed(&disk, how);
        let name = |length: usize| format!("{length:07}");
        let mut batch = db.batch();
        for length in LENGTHS {
            let value = value(length, salt);
            match salt {
                0 => keyspace.insert(name(length), &value).unwrap(),
                1 => {
                    let read = keyspace.insert_reader(name(length), value.as_slice()).unwrap();
                    assert_eq!(read, length as u64);
                }
                2 => batch.insert(&keyspace, name(length), &value),
                3 => {
                    let new = keyspace.update(name(length), |_| Some(value.clone())).unwrap();
                    assert!(new.unwrap() == value);
                }
                _ => {
                    let old = self::value(length, salt - 1);
                    let swapped = keyspace.compare_and_swap(name(length), Some(&old), Some(&value));
                    swapped.unwrap().unwrap();
                }
            }
        }
        batch.commit().unwrap();
        check(&db, &keyspace, salt);
        drop(keyspace);
        db.close().unwrap();
        let (db, keyspace) = open_packed(&disk, how);
        check(&db, &keyspace, salt);
        keyspace.flush().unwrap();
        check(&db, &keyspace, salt);
        let stats = keyspace.stats().unwrap();
        let (stored, long) = (stats.value_live_bytes, stats.unpacked_value_bytes);
        // One of four chunks and a half cannot be compressed.
        let is_packed = stored < long / 2;
        assert_eq!(is_packed, how != Compression::None, "{how}: {stored} of {long}");
        keyspace.convert().unwrap();
        check(&db, &keyspace, salt);
        let before = (keyspace.get_reader(name(CHUNK * 2)).unwrap(), value(CHUNK * 2, salt));
        keyspace.remove(name(CHUNK * 2)).unwrap();
        keyspace.convert().unwrap();
        let (Some(mut reader), expected) = before else { panic!("it was there") };
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == expected, "a reader keeps what it reads");
        keyspace.insert(name(CHUNK * 2), &expected).unwrap();
    }
    let (db, keyspace) = open_packed(&disk, how);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let streamed = LENGTHS.iter().filter(|length| **length >= STREAM_AT).count();
    // And one of the value that is only long.
    assert_eq!(files(&disk), streamed + 1, "a file each, and none of a value that is gone");
}

/// Until they were flushed they stood in no figure.
#[test]
fn streamed_values_that_are_not_flushed_are_told_of() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    keyspace.insert_reader("k", &value(5000, 0)[..]).unwrap();
    keyspace.insert("l", value(3000, 0)).unwrap();
    let told = |keyspace: &Keyspace| {
        let stats = keyspace.stats().unwrap();
        assert!(stats.unsettled_bytes >= stats.streamed_bytes, "{stats}");
        (stats.streamed_bytes, stats.value_bytes)
    };
    let (streamed, _) = told(&keyspace);
    assert!((8000..8500).contains(&streamed), "{streamed}");
    assert_eq!(told(&keyspace), (streamed, 0));
    drop((db, keyspace));
    let (db, keyspace) = open(&disk);
    assert_eq!(told(&keyspace), (streamed, 0), "opened again");
    keyspace.flush().unwrap();
    assert_eq!(told(&keyspace), (0, streamed));
    drop(db);
}

/// 100 MiB of streamed values had counted as 130 bytes.
#[test]
fn streamed_values_count_as_put() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    keyspace.insert_reader("k", &value(5000, 0)[..]).unwrap();
    keyspace.insert("l", value(3000, 0)).unwrap();
    let put = db.stats().put_bytes;
    assert!((8000..8200).contains(&put), "{put}");
}

#[test]
fn a_value_overwritten_before_the_flush_leaves_no_file_after_it() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    for salt in 0..6 {
        keyspace.insert("key", value(2000, salt)).unwrap();
    }
    keyspace.insert("gone", value(2000, 9)).unwrap();
    keyspace.remove("gone").unwrap();
    assert_eq!(files(&disk), 7, "the log still points at each");
    let snapshot = db.snapshot();
    keyspace.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(files(&disk), 7, "a snapshot shows the memtable");
    assert!(snapshot.get(&keyspace, "key").unwrap().unwrap() == value(2000, 5));
    drop(snapshot);
    db.wait_idle().unwrap();
    assert_eq!(files(&disk), 1);
    db.drop_keyspace("k").unwrap();
    drop(keyspace);
    db.wait_idle().unwrap();
    assert_eq!(files(&disk), 0);
}

#[test]
fn what_was_never_committed_leaves_no_file() {
    struct Fails(usize);
    impl Read for Fails {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.min(buffer.len());
            self.0 -= length;
            if length == 0 { Err(io::Error::other("the line is dead")) } else { Ok(length) }
        }
    }
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    keyspace.insert("key", "old").unwrap();
    for length in [0, 10, STREAM_AT, 3 * CHUNK] {
        let error = keyspace.insert_reader("key", Fails(length)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("the line is dead"), "{error}");
    }
    let mut batch = db.batch();
    batch.insert(&keyspace, "key", value(5000, 1));
    assert_eq!(files(&disk), 1);
    drop(batch);
    let long_key = vec![0; 70_000];
    assert!(keyspace.insert(&long_key, value(5000, 1)).is_err());
    assert!(keyspace.compare_and_swap("key", None, Some(&value(5000, 1))).unwrap().is_err());
    db.wait_idle().unwrap();
    assert_eq!(files(&disk), 0);
    assert!(keyspace.get("key").unwrap().unwrap() == b"old");
}

#[test]
fn a_piece_that_is_damaged_is_said_when_it_is_read_and_the_others_are_read() {
    let disk = SimDisk::new(1);
    let (_db, keyspace) = open(&disk);
    let expected = value(3 * CHUNK, 1);
    keyspace.insert("key", &expected).unwrap();
    let names = disk.list(Path::new("/db")).unwrap();
    let name = names.iter().find(|name| name.starts_with("values-")).unwrap();
    let path = Path::new("/db").join(name);
    let second = 32 + (8 + CHUNK) as u64;
    disk.open(&path, Access::Random).unwrap().write_all_at(b"?", second + 5000).unwrap();
    let mut reader = keyspace.get_reader("key").unwrap().unwrap();
    let mut first = vec![0; CHUNK];
    reader.read_exact(&mut first).unwrap();
    assert!(first == expected[..CHUNK]);
    for _ in 0..2 {
        let error = reader.read(&mut first).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let said = error.to_string();
        assert!(said.contains(name) && said.contains(&format!("byte {second}")), "{said}");
    }
    reader.seek(SeekFrom::Start(2 * CHUNK as u64)).unwrap();
    reader.read_exact(&mut first).unwrap();
    assert!(first == expected[2 * CHUNK..]);
    let error = keyspace.get("key").unwrap_err();
    assert_eq!((error.path(), error.offset_bytes()), (Some(path.as_path()), Some(second)));
    // Whoever copies it elsewhere is told the same.
    let (_other, to) = open(&SimDisk::new(2));
    let error = to.insert_reader("copy", keyspace.get_reader("key").unwrap().unwrap()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("the value's reader failed"));
    assert_eq!((error.path(), error.offset_bytes()), (Some(path.as_path()), Some(second)));
    assert!(!to.contains_key("copy").unwrap());
}

/// It was all written first.
#[test]
fn a_keyspace_that_is_gone_reads_nothing_of_what_is_to_be_put() {
    let (db, keyspace) = open(&SimDisk::new(1));
    db.drop_keyspace("k").unwrap();
    let mut left = io::repeat(1).take(1 << 20);
    let error = keyspace.insert_reader("key", &mut left).unwrap_err();
    assert_eq!((error.kind(), left.limit()), (ErrorKind::NotFound, 1 << 20));
}

/// The same of a compressed value, whose pieces a table finds.
#[test]
fn a_damaged_piece_or_table_of_a_compressed_value_is_said_when_it_is_read() {
    let disk = SimDisk::new(1);
    let (_db, keyspace) = open_packed(&disk, Compression::Lz4);
    let expected = value(3 * CHUNK, 1);
    keyspace.insert("key", &expected).unwrap();
    let names = disk.list(Path::new("/db")).unwrap();
    let name = names.iter().find(|name| name.starts_with("values-")).unwrap();
    let path = Path::new("/db").join(name);
    let file = disk.open(&path, Access::Random).unwrap();
    let end = file.length_bytes().unwrap();
    assert!(end < 2 * CHUNK as u64, "{end}: the first and the third were not compressed");
    let mut table = [0; 8 + 3 * 4];
    file.read_exact_at(&mut table, end - 20).unwrap();
    let length = |at: usize| u64::from(u32::from_le_bytes(table[at..at + 4].try_into().unwrap()));
    assert_eq!(
        (length(12), 32 + 24 + length(8) + length(12) + length(16) + 20),
        (CHUNK as u64, end)
    );
    let third = end - 20 - length(16) - 8;
    let damage = |at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    damage(third + 100);
    let mut reader = keyspace.get_reader("key").unwrap().unwrap();
    let mut read = vec![0; CHUNK];
    for index in [1, 0, 2, 1, 2] {
        reader.seek(SeekFrom::Start((index * CHUNK) as u64)).unwrap();
        let found = reader.read_exact(&mut read);
        assert_eq!(found.is_err(), index == 2);
        match found {
            Ok(()) => assert!(read == expected[index * CHUNK..][..CHUNK], "{index}"),
            Err(e) => {
                let said = e.to_string();
                assert!(said.contains(name) && said.contains(&format!("byte {third}")), "{said}");
            }
        }
    }
    let error = keyspace.get("key").unwrap_err();
    assert_eq!((error.path(), error.offset_bytes()), (Some(path.as_path()), Some(third)));
    damage(third + 100);
    for at in end - 20..end {
        damage(at);
        let error = keyspace.get("key").unwrap_err();
        assert_eq!((error.path(), error.offset_bytes()), (Some(path.as_path()), Some(end - 20)));
        let said = keyspace.get_reader("key").unwrap().unwrap().read(&mut read).unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::InvalidData);
        damage(at);
    }
    assert!(keyspace.get("key").unwrap().unwrap() == expected);
}

#[test]
fn a_file_that_the_log_points_at_and_is_gone_is_named_by_the_open_and_by_reads() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    keyspace.insert("key", value(5000, 1)).unwrap();
    drop((keyspace, db));
    let names = disk.list(Path::new("/db")).unwrap();
    let name = names.iter().find(|name| name.starts_with("values-")).unwrap();
    let path = Path::new("/db").join(name);
    disk.remove(&path).unwrap();
    let (db, keyspace) = open(&disk);
    let [damaged] = &db.open_report().damaged_segments[..] else { panic!("one is to be told of") };
    assert_eq!(damaged.keyspace, "k");
    for error in [damaged.error.clone(), keyspace.get("key").unwrap_err()] {
        assert!(error.is_corruption() && error.path() == Some(&path), "{error:?}");
    }
}

#[test]
fn a_copy_has_the_long_values_that_only_the_log_points_at() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    keyspace.insert("flushed", value(5000, 1)).unwrap();
    keyspace.flush().unwrap();
    keyspace.insert("fresh", value(6000, 2)).unwrap();
    db.checkpoint("/copy").unwrap();
    keyspace.remove("fresh").unwrap();
    keyspace.convert().unwrap();
    drop((keyspace, db));
    let db = Database::builder("/copy").disk(std::sync::Arc::new(disk.clone())).open().unwrap();
    let keyspace = db.find("k").unwrap();
    assert!(keyspace.get("flushed").unwrap().unwrap() == value(5000, 1));
    assert!(keyspace.get("fresh").unwrap().unwrap() == value(6000, 2));
}

#[test]
fn many_long_values_need_few_open_files() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    for number in 0..600usize {
        keyspace.insert(format!("{number}"), value(1000, number)).unwrap();
    }
    keyspace.convert().unwrap();
    for number in 0..600usize {
        assert!(keyspace.get(format!("{number}")).unwrap().unwrap() == value(1000, number));
    }
    db.close().unwrap();
}

/// Longer than any buffer, and not a multiple of anything: so many MiB (64 unless [`HUGE_MIB`] says otherwise), and a little.
static HUGE_BYTES: LazyLock<u64> = LazyLock::new(|| {
    let said = std::env::var(HUGE_MIB).map(|mib| mib.parse::<u64>().expect(HUGE_MIB));
    (said.unwrap_or(64) << 20) + 3
});
const HUGE_MIB: &str = "LEARNEDKV_HUGE_MIB";
/// What may be in memory of it at a time, with all else that the database takes.
const HUGE_MEMORY_BYTES: u64 = 8 << 20;
const HUGE: &str = "LEARNEDKV_TEST_HUGE_VALUE";

/// Memory of the process's own, bytes; 0 where the system does not tell.
fn own_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// A value of [`HUGE_BYTES`] that nobody holds, made as it is read; how much memory there was meanwhile.
struct Made {
    position: u64,
    most_bytes: u64,
}

impl Read for Made {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.most_bytes = self.most_bytes.max(own_bytes());
        // As a pipe gives it: never all that is asked for.
        let length = (out.len() as u64).min(100_000).min(*HUGE_BYTES - self.position) as usize;
        for (byte, at) in out[..length].iter_mut().zip(self.position..) {
            // Every second chunk is of runs of one word, which can be compressed.
            let word = if (at / CHUNK as u64).is_multiple_of(2) { at / 8 } else { at / 800 };
            *byte = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[at as usize % 8];
        }
        self.position += length as u64;
        Ok(length)
    }
}

/// Reads it all, or a piece here and there; the most memory there was meanwhile.
fn check_huge(keyspace: &Keyspace, all: bool) -> u64 {
    let mut reader = keyspace.get_reader("huge").unwrap().unwrap();
    assert_eq!(reader.len(), *HUGE_BYTES);
    let (mut most_bytes, mut piece) = (0, vec![0; 1 << 20]);
    let step = if all { piece.len() as u64 } else { 9_999_991 };
    for start in (0..*HUGE_BYTES).step_by(step as usize) {
        let length = (*HUGE_BYTES - start).min(piece.len() as u64) as usize;
        reader.seek(SeekFrom::Start(start)).unwrap();
        reader.read_exact(&mut piece[..length]).unwrap();
        let mut expected = vec![0; length];
        Made { position: start, most_bytes: 0 }.read_exact(&mut expected).unwrap();
        assert!(piece[..length] == expected, "from {start}");
        most_bytes = most_bytes.max(own_bytes());
    }
    most_bytes
}

/// Not a test by itself: the process whose memory is looked at.
#[test]
fn writes_and_reads_a_huge_value() {
    let Ok(path) = std::env::var(HUGE) else { return };
    let before = own_bytes();
    let open = || {
        let builder =
            Database::builder(&path).memtable_bytes(64 << 10).memory_budget_bytes(1 << 20);
        builder.log_segment_bytes(64 << 10).ballast_bytes(0).open().unwrap()
    };
    let db = open();
    let keyspace = db.keyspace("k", setup().keyspace.compression(Compression::Lz4)).unwrap();
    let mut made = Made { position: 0, most_bytes: 0 };
    assert_eq!(keyspace.insert_reader("huge", &mut made).unwrap(), *HUGE_BYTES);
    let mut most_bytes = made.most_bytes.max(check_huge(&keyspace, true));
    keyspace.insert("beside", "it").unwrap();
    keyspace.convert().unwrap();
    most_bytes = most_bytes.max(check_huge(&keyspace, false));
    let stored = keyspace.stats().unwrap().value_live_bytes;
    assert!((*HUGE_BYTES / 2..*HUGE_BYTES * 6 / 10).contains(&stored), "{stored}");
    drop(keyspace);
    db.close().unwrap();
    let db = open();
    let keyspace = db.find("k").unwrap();
    most_bytes = most_bytes.max(check_huge(&keyspace, false));
    let taken = most_bytes.saturating_sub(before);
    assert!(taken < HUGE_MEMORY_BYTES, "{taken} bytes of memory for a value of {}", *HUGE_BYTES);
    keyspace.remove("huge").unwrap();
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    let left: u64 =
        std::fs::read_dir(&path).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    assert!(left < *HUGE_BYTES / 8, "{left} bytes are left of it");
    println!("it took {taken} bytes");
}

#[test]
fn a_huge_value_passes_through_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let worked = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "streams::writes_and_reads_a_huge_value", "--nocapture"])
        .env(HUGE, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&worked.stdout);
    let failed = String::from_utf8_lossy(&worked.stderr);
    assert!(worked.status.success() && said.contains("it took"), "{said}{failed}");
}

/// A database that streamed shorter values than it does now had its flush move them, and one damaged file stopped all flushes.
#[test]
fn a_flush_leaves_streamed_values_where_they_are() {
    let disk = SimDisk::new(1);
    let options = learnedkv::KeyspaceOptions::default().separate_at(1 << 20);
    let db = setup().open(&disk, 1).unwrap();
    let keyspace = db.keyspace("k", options).unwrap();
    keyspace.insert("damaged", value(5000, 1)).unwrap();
    keyspace.insert("whole", value(5000, 2)).unwrap();
    let disk = disk.crash_clone(CrashKind::Process, 0);
    drop((keyspace, db));
    let names = disk.list(Path::new("/db")).unwrap();
    let first = names.iter().filter(|name| name.starts_with("values-")).min().unwrap();
    let file = disk.open(&Path::new("/db").join(first), Access::Random).unwrap();
    file.write_all_at(b"another", 2000).unwrap();
    let db = Setup { stream_at: 1 << 20, ..setup() }.open(&disk, 2).unwrap();
    let keyspace = db.find("k").unwrap();
    keyspace.insert("short", "value").unwrap();
    keyspace.flush().unwrap();
    assert!(keyspace.get("damaged").unwrap_err().is_corruption());
    assert!(*keyspace.get("whole").unwrap().unwrap() == value(5000, 2));
    assert_eq!(*keyspace.get("short").unwrap().unwrap(), *b"value");
}

/// It told which write had failed, and not, as a put of a short value does, what to do.
#[test]
fn a_full_disk_says_what_to_do_to_who_puts_a_long_value() {
    let disk = SimDisk::new(1);
    let (db, keyspace) = open(&disk);
    disk.set_space_limit_bytes(Some(disk.used_bytes() + 1000));
    let long = value(3 * CHUNK, 1);
    let mut batch = db.batch();
    batch.insert(&keyspace, "batched", &long);
    let refused = [
        keyspace.insert("long", &long),
        keyspace.insert_reader("read", &long[..]).map(drop),
        batch.commit(),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::DiskFull);
        let text = error.to_string();
        for part in ["/db/values-", "bytes are free here", "remove other files", "convert"] {
            assert_eq!(text.matches(part).count(), 1, "{part:?} is to be said once: {text}");
        }
    }
    assert!(keyspace.is_empty().unwrap());
}
