//! Keys as long as a key may be, through all that a key goes through, under every kind of index.

use std::ops::Bound;

use learnedkv::disk::sim::{CrashKind, SimDisk};
use learnedkv::{Database, ErrorKind, IndexKind, Keyspace, Store};

use crate::keys::{Keys, MOST_BYTES};
use crate::workload::{Content, Setup, content};

/// Nine keys of [`MOST_BYTES`] that differ in the first byte or the last alone, or in both; what stands
/// right before the middle one and its neighbours; and short ones around them.
fn all_keys() -> Vec<Vec<u8>> {
    let long = |first: u8, last: u8| {
        let mut key = vec![b'm'; MOST_BYTES];
        (key[0], key[MOST_BYTES - 1]) = (first, last);
        key
    };
    let ends = [0, b'm', 0xff];
    let mut keys: Vec<_> = ends.iter().flat_map(|a| ends.map(|b| long(*a, b))).collect();
    keys.extend([Vec::new(), vec![b'm'], vec![b'm'; MOST_BYTES - 1], vec![b'n'], vec![0xff]]);
    keys.sort();
    keys
}

/// Everything, and what lies around each key.
fn check(keyspace: &Keyspace, expected: &Content, at: &str) {
    assert!(content(keyspace, Keys::Long).unwrap() == *expected, "{at}");
    for key in all_keys() {
        let shown = (key.first(), key.len(), key.last());
        let held = expected.get(&key).map(Vec::as_slice);
        assert_eq!(keyspace.get(&key).unwrap().as_deref(), held, "{at}: {shown:?}");
        let above = (Bound::Excluded(key.clone()), Bound::Unbounded);
        let next = keyspace.range(above.clone()).keys().next().transpose().unwrap();
        let model = expected.range(above).next().map(|(key, _)| key.as_slice());
        assert!(next.as_deref() == model, "{at}: above {shown:?}");
        let upto = keyspace.range(..=key.clone()).keys().next_back().transpose().unwrap();
        let model = expected.range(..=key.clone()).next_back().map(|(key, _)| key.as_slice());
        assert!(upto.as_deref() == model, "{at}: up to {shown:?}");
        // With a prefix of all of it there is no next prefix, or one of the same length.
        let found = keyspace.prefix(&key).keys().map(|key| key.unwrap().to_vec());
        let model = expected.range(key.clone()..).map(|(found, _)| found.clone());
        let model = model.take_while(|found| found.starts_with(&key));
        assert!(found.eq(model), "{at}: prefix {shown:?}");
    }
}

fn insert(keyspace: &Keyspace, model: &mut Content, keys: &[Vec<u8>], value: u8) {
    for (key, length) in keys.iter().zip([0, 20, 50, 150, 500].into_iter().cycle()) {
        keyspace.insert(key, vec![value; length]).unwrap();
        model.insert(key.clone(), vec![value; length]);
    }
}

/// Flushed, settled, hidden by what is newer and by removed ranges, settled again.
fn go_through(db: &Database, keyspace: &Keyspace, at: &str) -> Content {
    let (keys, mut model) = (all_keys(), Content::new());
    let step = |model: &Content, step: &str| check(keyspace, model, &format!("{at}, {step}"));
    let even: Vec<_> = keys.iter().step_by(2).cloned().collect();
    insert(keyspace, &mut model, &even, 1);
    step(&model, "in the memtable");
    keyspace.flush().unwrap();
    step(&model, "flushed");
    insert(keyspace, &mut model, &keys, 2);
    keyspace.convert().unwrap();
    step(&model, "settled");
    // Ingested beside what is there: the upper half of it.
    let upper = &keys[keys.len() / 2..];
    keyspace.ingest(upper.iter().map(|key| (key, [3; 40]))).unwrap();
    model.extend(upper.iter().map(|key| (key.clone(), vec![3; 40])));
    step(&model, "ingested");
    let long: Vec<_> = keys.iter().filter(|key| key.len() == MOST_BYTES).cloned().collect();
    for (from, to) in [(0, 1), (3, 6)] {
        let range = (Bound::Excluded(long[from].clone()), Bound::Included(long[to].clone()));
        keyspace.remove_range(range.clone()).unwrap();
        let gone: Vec<_> = model.range(range).map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| drop(model.remove(key)));
    }
    keyspace.remove_prefix(&long[7]).unwrap();
    model.remove(&long[7]);
    step(&model, "removed");
    keyspace.flush().unwrap();
    step(&model, "removed and flushed");
    insert(keyspace, &mut model, &long[4..6], 4);
    keyspace.convert().unwrap();
    db.wait_idle().unwrap();
    step(&model, "settled again");
    insert(keyspace, &mut model, &long[1..4], 5);
    model
}

#[test]
fn keys_of_64_kib_go_where_others_go() {
    for (store, &kind) in Store::ALL.iter().flat_map(|s| IndexKind::ALL.iter().map(move |k| (s, k)))
    {
        let at = format!("{}, {}", store.name(), kind.name());
        let setup = if *store == Store::Lsm { Setup::levels() } else { Setup::default() };
        let keyspace = setup.keyspace.clone().lsm_index(kind).settled_index(kind);
        let setup = Setup { keyspace, ..setup };
        let disk = SimDisk::new(1);
        let db = setup.open(&disk, 1).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        let model = go_through(&db, &keyspace, &at);
        let tables = |db: &Database| db.stats().keyspaces[0].clone();
        assert!(tables(&db).settled_entries + tables(&db).lsm_entries > 0, "{at}");
        db.checkpoint("/copy").unwrap();
        // Of the log's records, too, something is left.
        let crashed = disk.crash_clone(CrashKind::Process, 0);
        drop((db, keyspace));
        for (disk, path) in [(&disk, "/db"), (&disk, "/copy"), (&crashed, "/db")] {
            let db = setup.open_at(disk, path, 2).unwrap();
            assert_eq!(db.stats().index_fallbacks, 0, "{at}");
            let keyspace = db.find("k").unwrap();
            check(&keyspace, &model, &format!("{at}, {path} opened"));
            keyspace.convert().unwrap();
            check(&keyspace, &model, &format!("{at}, {path} converted"));
            assert_eq!(db.stats().index_fallbacks, 0, "{at}");
        }
    }
}

#[test]
fn a_key_of_a_byte_more_is_refused() {
    let setup = Setup::default();
    let db = setup.open(&SimDisk::new(1), 1).unwrap();
    let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
    let key = vec![b'm'; MOST_BYTES + 1];
    let errors = [
        keyspace.insert(&key, "v").unwrap_err(),
        keyspace.remove(&key).unwrap_err(),
        keyspace.ingest([(&key, "v")]).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("65536"), "{error}");
    }
    // It may be asked for, and bound what is asked for: it is not there.
    assert!(keyspace.get(&key).unwrap().is_none());
    assert_eq!(keyspace.range(key.clone()..).count(), 0);
    assert_eq!(keyspace.prefix(&key).count(), 0);
}
