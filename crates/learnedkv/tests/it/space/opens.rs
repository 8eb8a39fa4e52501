//! Opens of a full disk that die.

use super::*;

/// A full disk, of which others have taken all that was free, but for what is held for an open; and how many keys are there.
fn filled(seed: u64) -> (SimDisk, usize) {
    let disk = SimDisk::new(seed);
    disk.set_space_limit_bytes(Some(96 * MIB));
    let (db, _) = open_with(Database::builder("/db"), &disk, seed);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let fill = |from: usize| {
        let put = |number: usize| keyspace.insert(name(number), vec![number as u8; 1000]);
        (from..).find(|number| put(*number).is_err()).unwrap()
    };
    (0..25_165).for_each(|number| keyspace.insert(name(number), vec![1; 1000]).unwrap());
    // As large as it is for all that, and full.
    disk.set_space_limit_bytes(Some(disk.used_bytes()));
    let end = fill(25_165);
    disk.set_space_limit_bytes(Some(disk.used_bytes()));
    let _ = keyspace.flush();
    let end = fill(end);
    disk.set_space_limit_bytes(Some(disk.used_bytes()));
    (disk.crash_clone(CrashKind::Process, 0), end)
}

/// Each left a manifest and a log segment behind, and had used what was held for the next: the third was refused for good.
#[test]
fn however_often_opens_of_a_full_disk_die_the_next_one_opens() {
    let (full, count) = filled(1);
    let mut random = Random::new(7);
    let mut died = 0;
    for round in 0..60 {
        let mut disk = full.crash_clone(CrashKind::Process, 0);
        for _ in 0..5 {
            let (at, left) = (random.below(28), Arc::new(Mutex::new((0, None))));
            let sink = left.clone();
            disk.observe(move |operation, disk| {
                let mut left = sink.lock().unwrap();
                if operation.stage == Stage::After {
                    left.0 += 1;
                }
                if left.0 > at && left.1.is_none() {
                    left.1 = Some(disk.crash_clone(CrashKind::Process, 0));
                }
            });
            let builder = Database::builder("/db").disk(Arc::new(disk.clone()));
            let opened = builder.executor(Arc::new(SeededExecutor::new(round))).open();
            let db = opened.unwrap_or_else(|e| panic!("{round}, after {died} died: {e}"));
            assert_eq!(db.find("k").unwrap().iter().count(), count, "{round}");
            drop(db);
            let Some(next) = left.lock().unwrap().1.take() else { break };
            disk = next;
            died += 1;
        }
    }
    assert!(died > 150, "{died} died");
}
