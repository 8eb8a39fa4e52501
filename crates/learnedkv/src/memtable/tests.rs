//! Memtables against what a look at each version says.

use super::*;
use crate::format::batch::{Ops, put_op};

fn put(memtable: &Memtable, key: &str, value: Option<&str>, sequence: u64) {
    let kind = if value.is_some() { Kind::Value } else { Kind::Tombstone };
    let mut payload = Vec::new();
    put_op(&mut payload, 1, kind, key.as_bytes(), value.unwrap_or_default().as_bytes());
    let payload = Bytes::from(payload);
    memtable.expect(sequence);
    for op in Ops::new(&payload) {
        memtable.insert(&payload, &op.unwrap(), sequence);
    }
}

fn walk(memtable: &Arc<Memtable>, visible: u64, seek: Seek<'_>) -> String {
    let mut cursor = memtable.cursor(visible);
    cursor.seek(seek).unwrap();
    let mut out = Vec::new();
    while let Some(key) = cursor.key() {
        let (kind, sequence) = cursor.kind();
        let mark = if kind == Kind::Value { "=" } else { "-" };
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(cursor.value()));
        out.push(format!("{key}{mark}{value}@{sequence}"));
        cursor.advance().unwrap();
    }
    out.join(" ")
}

#[test]
fn readers_see_the_newest_version_they_may_see() {
    let memtable = Arc::new(Memtable::default());
    put(&memtable, "b", Some("1"), 1);
    put(&memtable, "a", Some("2"), 2);
    put(&memtable, "b", None, 3);
    put(&memtable, "b", Some("4"), 4);
    put(&memtable, "", Some("empty"), 5);
    put(&memtable, "c", Some("6"), 6);
    assert_eq!(memtable.get(&HashedKey::new(b"b"), 2), Lookup::Value(Slice::copy_from(b"1")));
    assert_eq!(memtable.get(&HashedKey::new(b"b"), 3), Lookup::Removed);
    assert_eq!(memtable.get(&HashedKey::new(b"b"), 9), Lookup::Value(Slice::copy_from(b"4")));
    assert_eq!(memtable.get(&HashedKey::new(b"a"), 1), Lookup::Absent);
    assert_eq!(memtable.first_sequence(), 1);
    assert_eq!(walk(&memtable, 9, Seek::First), "=empty@5 a=2@2 b=4@4 c=6@6");
    assert_eq!(walk(&memtable, 3, Seek::First), "a=2@2 b-@3");
    assert_eq!(walk(&memtable, 3, Seek::Last), "b-@3 a=2@2");
    assert_eq!(walk(&memtable, 9, Seek::Before(b"b")), "a=2@2 =empty@5");
    assert_eq!(walk(&memtable, 9, Seek::AtOrAfter(b"aa")), "b=4@4 c=6@6");
    assert_eq!(walk(&memtable, 1, Seek::AtOrAfter(b"b")), "b=1@1");
    assert_eq!(walk(&memtable, 0, Seek::Last), "");
}

#[test]
fn changes_are_found_in_their_range_and_above_their_number() {
    let memtable = Arc::new(Memtable::default());
    for (key, sequence) in [("b", 1), ("d", 2), ("b", 3), ("c", 4), ("d", 5), ("b", 6)] {
        put(&memtable, key, (sequence != 4).then_some("v"), sequence);
    }
    assert_eq!(memtable.latest_commit(), 6);
    let newest = [("b", 6), ("c", 4), ("d", 5)];
    for first in ["", "a", "b", "b\0", "c", "d", "e"] {
        for last in [None, Some("a"), Some("b"), Some("bb"), Some("c"), Some("d"), Some("z")] {
            for sequence in 0..8 {
                let inside = |key: &str| key >= first && last.is_none_or(|last| key <= last);
                let expected = newest.iter().any(|(key, s)| inside(key) && *s > sequence);
                let last = last.map(str::as_bytes);
                let found = memtable.changed_within(first.as_bytes(), last, sequence);
                assert_eq!(found, expected, "{first:?} to {last:?} above {sequence}");
            }
        }
    }
}

#[test]
fn long_walks_both_ways_miss_nothing() {
    let memtable = Arc::new(Memtable::default());
    for i in 0..1000u64 {
        put(&memtable, &format!("{:04}", i * 7 % 1000), Some("x"), i + 1);
    }
    let up = walk(&memtable, 1000, Seek::First);
    let mut down: Vec<_> = walk(&memtable, 1000, Seek::Last).split(' ').map(String::from).collect();
    down.reverse();
    assert_eq!(up.split(' ').count(), 1000);
    assert_eq!(up, down.join(" "));
}

/// Several versions of each key, more keys than are fetched at once, at every number, both ways.
#[test]
fn walks_at_every_number_find_of_each_key_the_newest_version_below_it() {
    let memtable = Arc::new(Memtable::default());
    let mut written: Vec<(String, u64)> = Vec::new();
    for sequence in 1..=90u64 {
        // Each key three times, its versions far apart; every seventh operation removes.
        let key = format!("{:02}", sequence * 7 % 30);
        let value = (sequence % 7 > 0).then(|| format!("v{sequence}"));
        put(&memtable, &key, value.as_deref(), sequence);
        written.push((key, sequence));
    }
    for visible in 0..=90 {
        let newest: std::collections::BTreeMap<_, _> =
            written.iter().filter(|(_, sequence)| *sequence <= visible).cloned().collect();
        let shown = |(key, sequence): (&String, &u64)| match sequence % 7 {
            0 => format!("{key}-@{sequence}"),
            _ => format!("{key}=v{sequence}@{sequence}"),
        };
        let up: Vec<_> = newest.iter().map(shown).collect();
        let down: Vec<_> = newest.iter().rev().map(shown).collect();
        assert_eq!(walk(&memtable, visible, Seek::First), up.join(" "), "up at {visible}");
        assert_eq!(walk(&memtable, visible, Seek::Last), down.join(" "), "down at {visible}");
    }
}

/// Memory and what a flush writes of it are two things: a thousand short removals of ranges take 750 KB, and a flush writes a few.
#[test]
fn what_a_flush_writes_is_told_from_the_memory_it_frees() {
    let memtable = Memtable::default();
    put(&memtable, "key", Some("value"), 1);
    put(&memtable, "gone", None, 2);
    assert_eq!(memtable.put_bytes(), 12);
    for sequence in 3..1003 {
        let (kind, key_and_value) = (Kind::RangeTombstone, &b"fromto"[..]);
        let op = Op { keyspace: 1, kind, key_and_value, key_length: 4, start: 0 };
        memtable.insert_copy(&op, sequence);
    }
    assert_eq!(memtable.put_bytes(), 12 + 6 * 1000);
    assert!(memtable.size_bytes() > 700_000);
}

/// What is fetched keeps its payloads, and each the piece that it was cut from, when the memtable was taken from a reader.
#[test]
fn of_a_lent_memtable_few_versions_are_fetched_ahead() {
    let memtable = Arc::new(Memtable::default());
    (0..1000).for_each(|n| put(&memtable, &format!("{n:04}"), Some("v"), n + 1));
    for (kept, expected) in [(true, MAX_AHEAD), (false, MAX_AHEAD_LENT)] {
        let lent = Walked::Lent(Arc::downgrade(&memtable));
        let walked = if kept { Walked::Kept(memtable.clone()) } else { lent };
        let mut cursor = memtable.cursor_of(walked, 1000);
        cursor.seek(Seek::First).unwrap();
        let (mut most, mut count) = (0, 0);
        while cursor.key().is_some() {
            (most, count) = (cursor.ahead.len().max(most), count + 1);
            cursor.advance().unwrap();
        }
        assert_eq!((most, count), (expected, 1000));
    }
}
