//! What readers keep on a full disk.

use super::*;

/// A walk that began while there was room keeps what is replaced meanwhile. It comes free as the
/// walk ends, and not when somebody looks next.
#[test]
fn what_a_walk_from_before_the_disk_was_full_kept_comes_free_when_it_ends() {
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        disk.set_space_limit_bytes(Some((5 + seed % 3) * MIB));
        let (db, executor) = open(&disk, seed);
        let keyspace = db.keyspace("k", options()).unwrap();
        for number in 0..1500 {
            keyspace.insert(name(number), [number as u8; 900]).unwrap();
        }
        keyspace.flush().unwrap();
        let mut walk = keyspace.iter();
        assert_eq!(*walk.next().unwrap().unwrap().0, *name(0).as_bytes());
        let (end, _) = fill(&keyspace, 1500);
        (0..end).for_each(|number| keyspace.remove(name(number)).unwrap());
        // It may find no room.
        let converted = keyspace.convert();
        let full = converted.err().map_or(ErrorKind::DiskFull, |e| e.kind());
        assert_eq!(full, ErrorKind::DiskFull, "seed {seed}");
        executor.run_until_idle();
        let (kept, used) = (db.stats().pinned_disk_bytes, disk.used_bytes());
        assert!(kept > MIB, "seed {seed}: the walk keeps {kept} bytes");
        assert_eq!(walk.by_ref().map(Result::unwrap).count(), 1499, "seed {seed}");
        let begun = executor.now();
        drop(walk);
        executor.run_until_idle();
        assert!(executor.now() - begun < Duration::from_millis(500), "nobody looked again");
        let freed = used.saturating_sub(disk.used_bytes());
        assert!(freed >= kept, "seed {seed}: {freed} of {kept} bytes came free");
        keyspace.convert().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        keyspace.insert("after", [0; 900]).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}
