//! What a damaged end of a manifest means; what `CURRENT` says.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::disk::OperationKind;
use crate::disk::faulty::{Fault, FaultyDisk};
use crate::disk::sim::{CrashKind, SimDisk, Stage};
use crate::format::entry::{CarriedPosition, SequenceNumber};
use crate::format::example::assert_shown;
use crate::format::manifest::{Change, OptionList};

/// A manifest with `edits` edits after the first, and where the last of them begins and ends.
fn manifest_on(disk: &SimDisk, edits: u64) -> (Manifest, u64, u64) {
    let (disk, dir) = (Arc::new(disk.clone()), Path::new("/"));
    let mut manifest = Manifest::begin(disk, dir, 7, 1, State::default()).unwrap();
    let mut start = 0;
    for synced in 1..=edits {
        start = manifest.offset_bytes;
        manifest.commit(&Edit { synced, ..Edit::default() }).unwrap();
    }
    let end = manifest.offset_bytes;
    (manifest, start, end)
}

fn synced(disk: &SimDisk) -> Result<SequenceNumber> {
    load(disk, Path::new("/")).map(|loaded| loaded.expect("there is one").state.synced)
}

/// It said that the disk was full, and so the edit was written again, behind itself: what came after it was not found any more.
#[test]
fn an_edit_whose_sync_failed_is_no_edit_that_found_no_room() {
    let disk = SimDisk::new(1);
    let faulty = FaultyDisk::new(Arc::new(disk.clone()));
    let dir = Path::new("/");
    let mut manifest =
        Manifest::begin(Arc::new(faulty.clone()), dir, 7, 1, State::default()).unwrap();
    faulty.fail(Fault::at(0).of(&[OperationKind::Sync]).with(ErrorKind::DiskFull));
    let failed = manifest.commit(&Edit { synced: 1, ..Edit::default() }).unwrap_err();
    assert_eq!((failed.kind(), manifest.is_in_doubt()), (ErrorKind::Io, true));
    // Nothing counts yet of one that is begun: it may be begun once more.
    faulty.fail(Fault::at(0).of(&[OperationKind::Sync]).with(ErrorKind::DiskFull));
    let begun = Manifest::begin(Arc::new(faulty.clone()), dir, 7, 2, State::default());
    assert_eq!(begun.unwrap_err().kind(), ErrorKind::DiskFull);
    // As soon as it may count it is in doubt.
    faulty.fail(Fault::at(1).of(&[OperationKind::SyncDir]).with(ErrorKind::DiskFull));
    let begun = Manifest::begin(Arc::new(faulty), dir, 7, 3, State::default());
    assert_eq!(begun.unwrap_err().kind(), ErrorKind::Io);
}

/// The process died, nothing was closed: the last edit was durable, so its damage is no torn end.
#[test]
fn damage_of_the_last_edit_is_an_error_whether_or_not_the_database_was_closed() {
    for edits in [1, 2, 5] {
        let disk = SimDisk::new(1);
        let (manifest, start, end) = manifest_on(&disk, edits);
        let died = || disk.crash_clone(CrashKind::Process, 0);
        assert_eq!(synced(&died()).unwrap(), edits);
        for at in start..end {
            let left = died();
            let file = left.open(&manifest.path, Access::Random).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
            let error = synced(&left).unwrap_err();
            assert!(error.is_corruption(), "byte {at} of {start}..{end}: {error}");
            assert_eq!(error.offset_bytes(), Some(start));
        }
        // All of its sector that was written last is lost.
        let left = died();
        let file = left.open(&manifest.path, Access::Random).unwrap();
        let sector_end = end.next_multiple_of(SECTOR_BYTES);
        file.write_all_at(&vec![0; (sector_end - start) as usize], start).unwrap();
        assert!(synced(&left).unwrap_err().is_corruption(), "the seal went with its edit");
    }
}

/// The seal is not synced: a machine that crashes may lose it, and loses nothing else.
#[test]
fn a_lost_seal_loses_no_edit_and_the_next_edit_takes_its_place() {
    let disk = SimDisk::new(1);
    let (mut manifest, ..) = manifest_on(&disk, 3);
    for seed in 0..20 {
        assert_eq!(synced(&disk.crash_clone(CrashKind::Machine, seed)).unwrap(), 3);
    }
    // Longer than the distance of the seal: it stands across the place.
    let changes = vec![Change::CreateKeyspace {
        keyspace: 1,
        name: "k".repeat(3000),
        options: OptionList::default(),
    }];
    manifest.commit(&Edit { synced: 4, changes, ..Edit::default() }).unwrap();
    for seed in 0..20 {
        assert_eq!(synced(&disk.crash_clone(CrashKind::Machine, seed)).unwrap(), 4);
    }
}

/// The state was cloned for each edit; now it is changed in place, and back.
#[test]
fn an_edit_that_is_refused_leaves_the_state_as_it_was() {
    let disk = SimDisk::new(1);
    let (mut manifest, ..) = manifest_on(&disk, 3);
    let create = |keyspace| Change::CreateKeyspace {
        keyspace,
        name: format!("k{keyspace}"),
        options: OptionList::default(),
    };
    let position = |keyspace, sequence| Change::ExternalPosition {
        keyspace,
        carried: CarriedPosition { sequence, position: [5; 16] },
    };
    let edit = |changes| Edit { synced: 9, next_file: 7, next_keyspace: 9, changes };
    manifest.commit(&edit(vec![create(1), create(2)])).unwrap();
    let before = manifest.state().clone();
    let misfits = [
        // Newer than what is flushed.
        vec![Change::Flushed { keyspace: 1, up_to: 8 }, position(1, 9)],
        // Older than one before it.
        vec![Change::Flushed { keyspace: 1, up_to: 8 }, position(1, 7), position(1, 6)],
        // What comes before the misfit is undone: made, dropped, changed.
        vec![create(3), create(1)],
        vec![Change::DropKeyspace { keyspace: 1 }, Change::Freeze { keyspace: 5 }],
        vec![
            Change::Flushed { keyspace: 2, up_to: 8 },
            Change::Log { ended: vec![(1, 2)], open_from: 3, first: 4 },
            Change::Freeze { keyspace: 2 },
            Change::Freeze { keyspace: 2 },
        ],
    ];
    for changes in misfits {
        let edit = Edit { synced: 99, next_file: 99, next_keyspace: 99, changes };
        assert!(manifest.commit(&edit).unwrap_err().is_corruption());
        assert_eq!(*manifest.state(), before);
        assert!(!manifest.is_in_doubt());
    }
    // No room for it, and then some.
    disk.set_space_limit_bytes(Some(disk.used_bytes()));
    let large = Change::CreateKeyspace {
        keyspace: 4,
        name: "k".repeat(2 << 20),
        options: OptionList::default(),
    };
    let refused = manifest.commit(&edit(vec![large])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DiskFull);
    assert_eq!(*manifest.state(), before);
    let flushed = vec![create(4), Change::Flushed { keyspace: 4, up_to: 8 }, position(4, 8)];
    manifest.commit(&edit(flushed)).unwrap();
    assert_eq!(load(&disk, Path::new("/")).unwrap().unwrap().state, *manifest.state());
}

#[test]
fn the_example_of_current_is_what_is_written() {
    let disk = SimDisk::new(1);
    let (written_on, dir) = (Arc::new(disk.clone()), Path::new("/"));
    drop(Manifest::begin(written_on, dir, 7, 12, State::default()).unwrap());
    let written = read_file(&disk, &dir.join(CURRENT)).unwrap();
    assert_shown(include_str!("../manifest.rs"), "Of manifest 12", &written);
}

/// All of it came into memory.
#[test]
fn a_manifest_that_a_hole_lengthened_is_read_without_the_hole() {
    const LENGTH: u64 = 64 << 20;
    let disk = SimDisk::new(1);
    let (manifest, ..) = manifest_on(&disk, 3);
    let read = || read_file(&disk, &manifest.path).unwrap();
    let before = read();
    let file = disk.open(&manifest.path, Access::Random).unwrap();
    file.write_all_at(&[0], LENGTH - 1).unwrap();
    let lengthened = read();
    assert!(lengthened.starts_with(&before) && lengthened[before.len()..].iter().all(|b| *b == 0));
    assert!(lengthened.len() as u64 <= 3 * WINDOW_BYTES, "{}", lengthened.len());
    assert_eq!(synced(&disk).unwrap(), 3);
    // What stands behind it is not dropped.
    file.write_all_at(&[1], LENGTH - 1).unwrap();
    let behind = read();
    assert_eq!((behind.len() as u64, behind.last()), (LENGTH, Some(&1)));
    assert!(behind.starts_with(&lengthened));
}

/// An edit that found its place full reserved a MiB, all that was held back for a full disk; and past edits took up to 16 MiB
/// of a small one. Wherever it is begun anew it crashes with all that was committed.
#[test]
fn a_manifest_takes_little_of_a_disk_that_has_little_room() {
    const ROOM: u64 = 8 << 20;
    let disk = SimDisk::new(1);
    disk.set_space_limit_bytes(Some(ROOM));
    let (mut manifest, ..) = manifest_on(&disk, 1);
    let committed = Arc::new(AtomicU64::new(1));
    let (seen, crashes) = (committed.clone(), Arc::new(AtomicU64::new(0)));
    let counted = crashes.clone();
    disk.observe(move |operation, disk| {
        for kind in [CrashKind::Process, CrashKind::Machine] {
            let left = synced(&disk.crash_clone(kind, operation.index)).unwrap();
            let committed = seen.load(Relaxed);
            assert!((committed..=committed + 1).contains(&left), "{operation:?}: {left}");
            counted.fetch_add(1, Relaxed);
        }
    });
    let share = ROOM / ROLL_OVER_SHARE;
    let (mut most_bytes, mut numbers) = (0, BTreeSet::new());
    for number in 2..=600 {
        let (keyspace, name) = (number / 2, "k".repeat(2000));
        let change = match number % 2 {
            0 => Change::CreateKeyspace { keyspace, name, options: OptionList::default() },
            _ => Change::DropKeyspace { keyspace },
        };
        manifest
            .commit(&Edit { synced: number, changes: vec![change], ..Edit::default() })
            .unwrap();
        committed.store(number, Relaxed);
        let taken = manifest.file.taken_bytes().unwrap();
        most_bytes = most_bytes.max(taken);
        numbers.insert(manifest.number());
    }
    disk.stop_observing();
    assert!(numbers.len() > 3 && most_bytes <= 2 * share, "{numbers:?}: {most_bytes}");
    assert!(disk.used_bytes() <= 2 * share, "the old ones are gone");
    assert!(crashes.load(Relaxed) > 2000);
}

/// Space was reserved up to where the manifest would be begun anew, or to the end of a long first edit, to the byte: what stood behind
/// the last whole step looked like the end of a manifest that was cut, and the database could not be opened.
#[test]
fn a_manifest_ends_in_whole_steps_however_long_its_first_edit_is() {
    let create = |keyspace, length| Change::CreateKeyspace {
        keyspace,
        name: "k".repeat(length),
        options: OptionList::default(),
    };
    // One that all stands in the last, broken step; one with edits there.
    for (room, first_bytes, edits) in [
        (1 << 30, 20 << 20, 0),
        (40 << 20, 40_000, 400),
        (23 << 20, 1, 400),
        (41 << 20, 900_000, 1),
    ] {
        let disk = SimDisk::new(1);
        disk.set_space_limit_bytes(Some(room));
        let (shared, dir) = (Arc::new(disk.clone()), Path::new("/"));
        let mut state = State::default();
        let first =
            Edit { next_keyspace: 2, changes: vec![create(1, first_bytes)], ..Edit::default() };
        state.apply(&first).unwrap();
        let mut manifest = Manifest::begin(shared, dir, 7, 1, state).unwrap();
        let loaded = || load(&disk, dir).unwrap().expect("there is one").state;
        assert_eq!(loaded(), *manifest.state(), "{room}, {first_bytes}");
        for number in 1..=edits {
            let keyspace = 2 + number / 2;
            let change = match number % 2 {
                1 => create(keyspace, 30_000),
                _ => Change::DropKeyspace { keyspace: keyspace - 1 },
            };
            let edit = Edit {
                synced: number,
                next_keyspace: 1000,
                changes: vec![change],
                ..Edit::default()
            };
            manifest.commit(&edit).unwrap();
            assert_eq!(loaded(), *manifest.state(), "{room}, {first_bytes}, {number}");
            assert!(manifest.allocated_bytes.is_multiple_of(LEAST_RESERVE_BYTES));
        }
    }
}

/// It was begun anew, in vain, at each edit on a full disk: a file written and removed for each.
#[test]
fn a_manifest_that_finds_no_room_to_be_begun_anew_does_not_try_at_each_edit() {
    let disk = SimDisk::new(1);
    disk.set_space_limit_bytes(Some(8 << 20));
    let (mut manifest, ..) = manifest_on(&disk, 1);
    let mut synced = 1;
    let mut commit = |manifest: &mut Manifest| {
        synced += 1;
        let (keyspace, name) = (synced / 2, "k".repeat(2000));
        let change = match synced % 2 {
            0 => Change::CreateKeyspace { keyspace, name, options: OptionList::default() },
            _ => Change::DropKeyspace { keyspace },
        };
        manifest.commit(&Edit { synced, changes: vec![change], ..Edit::default() }).unwrap();
    };
    while !manifest.is_mostly_past() {
        commit(&mut manifest);
    }
    let begun = Arc::new(AtomicU64::new(0));
    let counted = begun.clone();
    disk.observe(move |operation, _| {
        let name = operation.path.file_name().unwrap_or_default().to_string_lossy();
        let begins = operation.kind == OperationKind::Create && manifest_number(&name).is_some();
        counted.fetch_add(u64::from(begins && operation.stage == Stage::Before), Relaxed);
    });
    disk.set_space_limit_bytes(Some(disk.used_bytes()));
    let (number, from) = (manifest.number(), manifest.offset_bytes);
    (0..20).for_each(|_| commit(&mut manifest));
    assert_eq!((manifest.number(), begun.load(Relaxed)), (number, 1));
    disk.set_space_limit_bytes(Some(8 << 20));
    while manifest.number() == number {
        commit(&mut manifest);
        assert!(manifest.offset_bytes < from + 2 * LEAST_RESERVE_BYTES, "it tries again");
    }
    disk.stop_observing();
    assert_eq!(begun.load(Relaxed), 2);
    assert_eq!(load(&disk, Path::new("/")).unwrap().unwrap().state, *manifest.state());
}

/// Past edits came to four times what the state took: a manifest of 136 MB beside 96 MB of data.
#[test]
fn a_manifest_of_much_state_is_begun_anew_at_twice_what_it_takes() {
    let disk = SimDisk::new(1);
    disk.set_space_limit_bytes(Some(8 << 20));
    let create = |keyspace, length| Change::CreateKeyspace {
        keyspace,
        name: "k".repeat(length),
        options: OptionList::default(),
    };
    let edit = |changes, synced| Edit { synced, next_keyspace: 1000, changes, ..Edit::default() };
    let mut state = State::default();
    state.apply(&edit(vec![create(1, 400_000)], 0)).unwrap();
    let shared = Arc::new(disk.clone());
    let mut manifest = Manifest::begin(shared, Path::new("/"), 7, 1, state).unwrap();
    let (number, mut most_bytes) = (manifest.number(), 0);
    for synced in 1.. {
        let change = match synced % 2 {
            1 => create(2 + synced, 10_000),
            _ => Change::DropKeyspace { keyspace: 1 + synced },
        };
        manifest.commit(&edit(vec![change], synced)).unwrap();
        if manifest.number() != number {
            break;
        }
        most_bytes = manifest.offset_bytes;
    }
    assert!((800_000..830_000).contains(&most_bytes), "{most_bytes}");
}
