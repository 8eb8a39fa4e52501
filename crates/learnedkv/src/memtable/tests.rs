//! Memtables against what a look at each version says.

use std::sync::Arc;

use super::cursor::{MAX_AHEAD, MAX_AHEAD_LENT, Walked};
use super::*;
use crate::cursor::{Cursor, Seek};
use crate::format::batch::{Ops, put_op};

fn put(memtable: &Memtable, key: &str, value: Option<&str>, sequence: u64) {
    let kind = if value.is_some() { Kind::Value } else { Kind::Tombstone };
    let mut payload = Vec::new();
    put_op(&mut payload, 1, kind, key.as_bytes(), value.unwrap_or_default().as_bytes());
    let payload = Shared::from(payload);
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

/// An operation of the tests on emptied ends.
#[derive(Clone)]
enum Written {
    Version(String, bool),
    Range(String, Option<String>),
}

fn apply(memtable: &Memtable, written: &Written, sequence: u64) {
    let (kind, key, rest) = match written {
        Written::Version(key, true) => (Kind::Value, key, "v"),
        Written::Version(key, false) => (Kind::Tombstone, key, ""),
        Written::Range(from, to) => (Kind::RangeTombstone, from, to.as_deref().unwrap_or("")),
    };
    let mut payload = Vec::new();
    put_op(&mut payload, 1, kind, key.as_bytes(), rest.as_bytes());
    let payload = Shared::from(payload);
    for op in Ops::new(&payload) {
        memtable.insert(&payload, &op.unwrap(), sequence);
    }
}

/// What a walk upwards shows of all that was written, operation by operation.
fn naive(written: &[(u64, Written)], visible: u64) -> Vec<String> {
    let mut newest = std::collections::BTreeMap::new();
    let mut of_time: Vec<_> = written.iter().filter(|(sequence, _)| *sequence <= visible).collect();
    of_time.sort_by_key(|(sequence, _)| *sequence);
    for (sequence, written) in of_time {
        match written {
            Written::Version(key, is_value) => {
                let shown = if *is_value {
                    format!("{key}=v@{sequence}")
                } else {
                    format!("{key}-@{sequence}")
                };
                newest.insert(key.clone(), shown);
            }
            Written::Range(from, to) => {
                newest.retain(|key, _| key < from || to.as_ref().is_some_and(|to| key >= to));
            }
        }
    }
    newest.into_values().collect()
}

fn check_walks(memtable: &Arc<Memtable>, written: &[(u64, Written)], visible: u64, at: &str) {
    let mut shown = naive(written, visible);
    assert_eq!(walk(memtable, visible, Seek::First), shown.join(" "), "up at {visible}, {at}");
    shown.reverse();
    assert_eq!(walk(memtable, visible, Seek::Last), shown.join(" "), "down at {visible}, {at}");
}

/// Ranges open at an end, mostly, among versions that come in between, and later than their number says.
#[test]
fn what_was_emptied_at_an_end_is_not_walked_over_and_what_came_since_is() {
    let mut random = 1u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % n
    };
    let mut emptied = [0, 0];
    for round in 0..300 {
        let memtable = Arc::new(Memtable::default());
        let key = |n: u64| format!("{n:02}");
        let mut written: Vec<(u64, Written)> = (1..=40)
            .map(|sequence| {
                let (one, other) = (below(30), below(30));
                let (from, to) = (one.min(other), one.max(other) + 1);
                let op = match below(12) {
                    0 | 1 => Written::Range(String::new(), Some(key(1 + below(12)))),
                    2 => Written::Range(key(18 + below(12)), None),
                    3 => Written::Range(key(from), Some(key(to))),
                    n => Written::Version(key(one), n % 3 > 0),
                };
                (sequence, op)
            })
            .collect();
        // Some change places with their neighbours.
        for at in 1..written.len() {
            if below(4) == 0 {
                written.swap(at - 1, at);
            }
        }
        memtable.expect(1);
        memtable.emptied.arm(1);
        for (count, (sequence, op)) in written.iter().enumerate() {
            apply(&memtable, op, *sequence);
            // All that is written so far and below what is not.
            let missing = written[count + 1..].iter().map(|(sequence, _)| *sequence).min();
            let visible = missing.map_or(40, |missing| missing - 1);
            let so_far = &written[..=count];
            let at = format!("round {round}, {count}");
            for visible in [visible, visible / 2] {
                check_walks(&memtable, so_far, visible, &at);
                let middle = key(below(30));
                let from: Vec<_> =
                    naive(so_far, visible).into_iter().filter(|v| *v >= middle).collect();
                let seek = Seek::AtOrAfter(middle.as_bytes());
                assert_eq!(walk(&memtable, visible, seek), from.join(" "), "{middle} at {at}");
            }
            for (number, end) in [End::Front, End::Back].into_iter().enumerate() {
                emptied[number] += usize::from(memtable.emptied.bound(end, visible).is_some());
            }
            let (first, last) = (key(below(30)), key(below(30)));
            let changed = so_far.iter().any(|(sequence, op)| {
                *sequence > visible
                    && match op {
                        Written::Version(key, _) => *key >= first && *key <= last,
                        Written::Range(from, to) => {
                            *from <= last && to.as_ref().is_none_or(|to| *to > first)
                        }
                    }
            });
            let found = memtable.changed_within(first.as_bytes(), Some(last.as_bytes()), visible);
            // An empty stretch has no change; of ranges a part is told.
            assert!(found == changed || first > last, "{first} to {last} above {visible}, {at}");
        }
    }
    assert!(emptied.iter().all(|times| *times > 2000), "{emptied:?}");
}

/// Versions come into what is being emptied, by other threads: each is seen once it is there.
#[test]
fn what_comes_into_an_emptied_end_meanwhile_is_seen() {
    for round in 0..50u64 {
        let memtable = Arc::new(Memtable::default());
        memtable.expect(1);
        memtable.emptied.arm(1);
        let next = AtomicU64::new(1);
        let log = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (memtable, next, log) = (&memtable, &next, &log);
                scope.spawn(move || {
                    for step in 0..60u64 {
                        let number = (step * 7 + thread * 31 + round) % 50;
                        let op = match thread {
                            0 if step % 3 > 0 => Written::Version(format!("{number:02}"), true),
                            0 => Written::Range(String::new(), Some(format!("{:02}", step / 2))),
                            _ => Written::Version(format!("{number:02}"), step % 5 > 0),
                        };
                        let sequence = next.fetch_add(1, Relaxed);
                        apply(memtable, &op, sequence);
                        log.lock().unwrap().push((sequence, op));
                    }
                });
            }
        });
        let written = log.into_inner().unwrap();
        check_walks(&memtable, &written, 180, &format!("round {round}"));
    }
}
