//! Faults fire where the script says, and nowhere else.

use std::path::Path;
use std::sync::Arc;

use super::{Fault, FaultyDisk};
use crate::disk::sim::{CrashKind, SimDisk};
use crate::disk::{Access, Disk, OperationKind, ReadRequest};
use crate::error::{ErrorKind, Result};

/// A small workload of every kind of operation that can fail.
fn workload(disk: &dyn Disk) -> Result<()> {
    let dir = Path::new("/db");
    disk.create_dir(dir)?;
    let _lock = disk.lock(&dir.join("LOCK"))?;
    let file = disk.create(&dir.join("a.tmp"))?;
    file.preallocate(8192)?;
    file.write_all_at(&[1; 5000], 0)?;
    file.discard(0, 4096)?;
    file.truncate(5000)?;
    file.sync()?;
    disk.rename(&dir.join("a.tmp"), &dir.join("a"))?;
    disk.sync_dir(dir)?;
    let region = disk.create_log_region(&dir.join("log"), 4096)?;
    if let Some(place) = region.reserve(100) {
        region.publish(place, &mut |bytes| bytes.fill(7))?;
    }
    region.sync(100)?;
    let file = disk.open(&dir.join("a"), Access::Random)?;
    file.read_exact_at(&mut [0; 10], file.length_bytes()? - 10)?;
    assert_eq!(disk.list(dir)?, ["LOCK", "a", "log"]);
    disk.remove(&dir.join("a"))
}

#[test]
fn every_operation_can_fail_once() {
    let counting = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let all = counting.fail(Fault::never());
    workload(&counting).unwrap();
    assert_eq!(all.matched(), counting.operation_count());
    assert_eq!(all.matched(), 18, "every kind but reserve is met");
    for n in 0..all.matched() {
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
        let counts = disk.fail(Fault::at(n));
        let error = workload(&disk).expect_err("the failure is passed on");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.path().is_some_and(|p| p.starts_with("/db")), "{error}");
        assert!(error.to_string().ends_with(&format!("(operation {n})")), "{error}");
        assert_eq!((counts.matched(), counts.fired()), (n + 1, 1), "it stopped there");
    }
}

#[test]
fn kinds_paths_and_persistence_are_respected() {
    let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let (a, b) = (disk.create(Path::new("/a")).unwrap(), disk.create(Path::new("/b")).unwrap());
    let writes = [OperationKind::Write];
    let once = disk.fail(Fault::at(1).of(&writes).on_paths_with("a"));
    let outcomes: Vec<bool> = (0..4).map(|_| a.write_all_at(b"x", 0).is_ok()).collect();
    assert_eq!(outcomes, [true, false, true, true]);
    b.write_all_at(b"x", 0).unwrap();
    a.sync().unwrap();
    assert_eq!((once.matched(), once.fired()), (4, 1));

    let full = disk.fail(Fault::at(1).of(&writes).with(ErrorKind::DiskFull).from_then_on());
    let kinds: Vec<_> = (0..4).map(|_| b.write_all_at(b"x", 0).err().map(|e| e.kind())).collect();
    let failed = Some(ErrorKind::DiskFull);
    assert_eq!(kinds, [None, failed, failed, failed]);
    assert_eq!(full.fired(), 3);
    disk.clear_faults();
    b.write_all_at(b"x", 0).unwrap();
}

#[test]
fn a_failing_write_may_write_a_part() {
    let disk = FaultyDisk::new(Arc::new(SimDisk::new(1)));
    let file = disk.create(Path::new("/a")).unwrap();
    let region = disk.create_log_region(Path::new("/log"), 4096).unwrap();
    let parts = [OperationKind::Write, OperationKind::Publish];
    disk.fail(Fault::at(0).of(&parts).writing_part().from_then_on());
    assert!(file.write_all_at(b"abcdef", 0).is_err());
    assert_eq!(file.length_bytes().unwrap(), 3);
    let place = region.reserve(6).unwrap();
    assert!(region.publish(place, &mut |b| b.copy_from_slice(b"abcdef")).is_err());
    let mut found = [9; 6];
    disk.open(Path::new("/log"), Access::Random).unwrap().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"abc\0\0\0");

    disk.clear_faults();
    disk.fail(Fault::at(0).of(&parts).from_then_on());
    assert!(file.write_all_at(b"abcdef", 3).is_err());
    assert_eq!(file.length_bytes().unwrap(), 3, "without `writing_part` nothing is written");
}

#[test]
fn a_sync_after_a_failed_one_lies() {
    let sim = SimDisk::new(1);
    let disk = FaultyDisk::new(Arc::new(sim.clone()));
    let path = Path::new("/a");
    let file = disk.create(path).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let failing = Fault::at(0).of(&[OperationKind::Sync]);
    disk.fail(failing.clone());
    file.write_all_at(b"abc", 0).unwrap();
    assert!(file.sync().is_err());
    file.sync().unwrap();
    let lost = sim.crash_clone(CrashKind::Machine, 0);
    assert_eq!(lost.open(path, Access::Random).unwrap().length_bytes().unwrap(), 0);

    // A new file in its place is synced again.
    disk.remove(path).unwrap();
    let file = disk.create(path).unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let kept = sim.crash_clone(CrashKind::Machine, 0);
    assert_eq!(kept.open(path, Access::Random).unwrap().length_bytes().unwrap(), 3);

    // Log regions lie alike, and the lie follows a rename.
    let region = disk.create_log_region(Path::new("/log"), 4096).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk.fail(Fault::at(0).of(&[OperationKind::SyncLog]));
    region.publish(region.reserve(1).unwrap(), &mut |b| b.fill(1)).unwrap();
    assert!(region.sync(1).is_err());
    region.sync(1).unwrap();
    let lost = sim.crash_clone(CrashKind::Machine, 0);
    let mut byte = [9];
    lost.open(Path::new("/log"), Access::Random).unwrap().read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [0]);
    disk.fail(failing);
    assert!(file.sync().is_err());
    disk.rename(path, Path::new("/b")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let renamed = disk.open(Path::new("/b"), Access::Random).unwrap();
    renamed.write_all_at(b"d", 3).unwrap();
    renamed.sync().unwrap();
    let left = || {
        let left = sim.crash_clone(CrashKind::Machine, 0);
        left.open(Path::new("/b"), Access::Random).unwrap().length_bytes().unwrap()
    };
    assert_eq!(left(), 3);

    // What was written again, all of it, is dirty again.
    renamed.write_all_at(b"ab", 0).unwrap();
    renamed.sync().unwrap();
    assert_eq!(left(), 3);
    renamed.write_all_at(b"cd", 2).unwrap();
    renamed.sync().unwrap();
    assert_eq!(left(), 4);
}

#[test]
fn of_many_reads_each_fails_by_itself() {
    let sim = SimDisk::new(1);
    let disk = FaultyDisk::new(Arc::new(sim.clone()));
    let names = ["/a", "/b"].map(Path::new);
    for (content, name) in names.iter().enumerate() {
        disk.create(name).unwrap().write_all_at(&[content as u8 + 1; 100], 0).unwrap();
    }
    let read = |disk: &FaultyDisk| {
        let files = names.map(|name| disk.open(name, Access::Random).unwrap());
        // The last file is of the disk below, which a script does not know.
        let stranger = sim.open(names[0], Access::Random).unwrap();
        let files = [&files[0], &files[1], &files[0], &files[1], &stranger];
        let requests = files.iter().enumerate().map(|(i, file)| ReadRequest {
            file: Arc::clone(file),
            offset_bytes: 10 * i as u64,
            buffer: vec![0; 50 + i],
            around: false,
        });
        disk.read_all(requests.collect())
    };
    let contents = [1, 2, 1, 2, 1];
    for failing in 0..4 {
        let counts = disk.fail(Fault::at(failing).of(&[OperationKind::Read]));
        for (i, answer) in read(&disk).into_iter().enumerate() {
            match answer {
                Ok(found) => assert_eq!(found, vec![contents[i]; 50 + i]),
                Err(e) => {
                    assert_eq!((i as u64, e.kind()), (failing, ErrorKind::Io));
                    assert_eq!(e.path(), Some(names[i % 2]));
                    assert_eq!(e.offset_bytes(), Some(10 * failing));
                }
            }
        }
        assert_eq!((counts.matched(), counts.fired()), (4, 1), "each request is an operation");
        disk.clear_faults();
    }
    disk.fail(Fault::at(0).on_paths_with("b").from_then_on().of(&[OperationKind::Read]));
    let failed: Vec<_> = read(&disk).iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, true, false]);
}
