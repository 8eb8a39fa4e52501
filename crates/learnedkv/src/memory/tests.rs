//! Pools whose buffers come and go, against whoever keeps them.

use std::collections::BTreeMap;

use super::pool::Label;
use super::*;
use crate::format::checksum::mix;

/// Whoever keeps buffers by their label, the oldest of them no longer than he may.
struct Keeper {
    pool: Pool,
    kept: BTreeMap<Label, Buffer>,
    next: u64,
}

impl Keeper {
    fn new(limit_bytes: u64) -> Keeper {
        Keeper { pool: Pool::new(limit_bytes), kept: BTreeMap::new(), next: 0 }
    }

    /// Takes a buffer as the cache does. Whether it was within the bound.
    fn take(&mut self, length: usize) -> (Buffer, bool) {
        for _ in 0..64 {
            if let Some(buffer) = self.pool.take_within(length) {
                return (buffer, true);
            }
            match self.pool.reclaim() {
                Room::Made => {}
                Room::Asks(labels) => labels.iter().for_each(|label| _ = self.kept.remove(label)),
                Room::None => break,
            }
        }
        (self.pool.take(length), false)
    }

    /// Keeps one more buffer, marked; whether it was within the bound.
    fn keep(&mut self, length: usize) -> bool {
        let label = (1, self.next);
        self.next += 1;
        let (mut buffer, within) = self.take(length);
        assert_eq!(buffer.len(), length);
        buffer.fill(label.1 as u8);
        buffer.label(label);
        self.kept.insert(label, buffer);
        within
    }

    fn check(&self) {
        for ((_, number), buffer) in &self.kept {
            assert!(buffer.iter().all(|byte| *byte == *number as u8), "{number}");
        }
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn a_buffer_takes_at_most_a_fourth_more_than_it_holds() {
    for limit_bytes in [0, 64 * MIB, 1 << 30, 1 << 40] {
        let pool = Pool::new(limit_bytes);
        for length in (0..=20_000).step_by(61).chain([100_000, 1 << 20, 5_000_000]) {
            let buffer = pool.take(length);
            assert_eq!(buffer.len(), length);
            let capacity = buffer.capacity_bytes();
            // And what lines round up.
            let most = (length + length / if limit_bytes > 0 { 4 } else { 2 } + 64).max(576);
            assert!((length..=most).contains(&capacity), "{limit_bytes}: {length} in {capacity}");
        }
    }
}

#[test]
fn what_is_kept_is_untouched_whatever_comes_and_goes() {
    let mut keeper = Keeper::new(2 * MIB);
    for round in 0..20_000u64 {
        let length = match mix(round) % 20 {
            0 => mix(round + 1) % 200_000,
            1..5 => mix(round + 1) % 500,
            _ => 3500 + mix(round + 1) % 2000,
        };
        keeper.keep(length as usize);
        // Some go by themselves, in any order.
        let gone = mix(round + 2) % (round + 1);
        keeper.kept.remove(&(1, gone));
        if keeper.kept.len() > 400 {
            keeper.kept.pop_first();
        }
        if round % 1000 == 0 {
            keeper.check();
        }
    }
    keeper.check();
    keeper.kept.clear();
    assert_eq!(keeper.pool.used_bytes(), 0);
    assert!(keeper.pool.held_bytes() <= 2 * MIB, "{}", keeper.pool.held_bytes());
}

/// The allocator kept a hole for each block of the old size, and took memory for the new ones.
#[test]
fn blocks_of_another_size_take_the_room_of_those_that_were_there() {
    let mut keeper = Keeper::new(4 * MIB);
    for length in [4200, 700, 16_000, 1100, 40_000, 9000] {
        for _ in 0..3 * 4 * MIB as usize / length {
            assert!(keeper.keep(length), "{length}");
            assert!(keeper.pool.held_bytes() <= 4 * MIB);
        }
        let kept: usize = keeper.kept.values().map(|buffer| buffer.len()).sum();
        assert!(kept as u64 > 4 * MIB * 3 / 4, "{length}: {kept} kept");
        keeper.check();
    }
}

#[test]
fn a_lower_bound_gives_memory_back() {
    let mut keeper = Keeper::new(8 * MIB);
    (0..3000).for_each(|_| _ = keeper.keep(4000));
    assert!(keeper.pool.held_bytes() > 7 * MIB);
    keeper.pool.set_limit_bytes(MIB);
    while keeper.pool.is_over() {
        match keeper.pool.reclaim() {
            Room::Made => {}
            Room::Asks(labels) => labels.iter().for_each(|label| _ = keeper.kept.remove(label)),
            Room::None => panic!("all is labelled"),
        }
    }
    assert!(keeper.pool.held_bytes() <= MIB);
    assert!(keeper.kept.len() > 150, "{} kept", keeper.kept.len());
    keeper.check();
}

/// What nobody can let go of is not asked for again and again, and whoever reads gets his buffer.
#[test]
fn buffers_that_readers_hold_do_not_keep_others_from_reading() {
    let mut keeper = Keeper::new(MIB);
    let held: Vec<_> = (0..500).map(|_| keeper.take(5000).0).collect();
    held.iter().zip(0..).for_each(|(buffer, number)| buffer.label((2, number)));
    let beyond = keeper.pool.held_bytes();
    assert!(beyond > 2 * MIB && keeper.pool.is_over());
    let (unlabelled, within) = keeper.take(5000);
    assert!(!within || keeper.pool.held_bytes() == beyond);
    let mut asked = 0;
    while let Room::Asks(labels) = keeper.pool.reclaim() {
        asked += labels.len();
    }
    // But for those that stand beside the one nobody can let go of.
    assert!((490..=500).contains(&asked), "each is asked for once: {asked}");
    drop((held, unlabelled));
    assert!(!keeper.pool.is_over() && keeper.pool.held_bytes() <= MIB);
}

/// Slabs of a large pool are large: a sixteenth of what had been lent to last kept all of it.
#[test]
fn what_is_lent_to_last_keeps_little_else_however_large_the_pool() {
    let pool = Pool::new(8 << 30);
    let mut all: Vec<_> = (0..512).map(|_| pool.take_to_last(256 << 10)).collect();
    let mut number = 0;
    all.retain(|_| {
        number += 1;
        number % 16 == 0
    });
    pool.set_limit_bytes(0);
    while pool.reclaim() == Room::Made {}
    assert_eq!(pool.held_bytes(), 8 << 20, "what 32 buffers take");
}

#[test]
fn threads_give_back_what_others_took() {
    let pool = Pool::new(256 * MIB);
    std::thread::scope(|scope| {
        let (to, from) = std::sync::mpsc::sync_channel::<(u8, Buffer)>(64);
        for mark in 0..4u8 {
            let (pool, to) = (pool.clone(), to.clone());
            scope.spawn(move || {
                for round in 0..5000u64 {
                    let mut buffer = pool.take(2000 + (mix(round) % 5000) as usize);
                    buffer.fill(mark);
                    to.send((mark, buffer)).unwrap();
                }
            });
        }
        drop(to);
        scope.spawn(move || {
            let mut late = Vec::new();
            for (mark, buffer) in from {
                assert!(buffer.iter().all(|byte| *byte == mark));
                late.push(buffer);
                late.drain(..late.len().saturating_sub(100));
            }
        });
    });
    assert_eq!(pool.used_bytes(), 0);
    // No more than all had at once, of a few sizes in each part: empty slabs were used again.
    assert!(pool.held_bytes() <= 16 * MIB, "{}", pool.held_bytes());
}

/// Memtables are counted by others, as the cache's bound is set; and what they leave serves the next ones.
#[test]
fn what_is_lent_to_last_is_beside_the_bound() {
    let mut keeper = Keeper::new(2 * MIB);
    (0..1000).for_each(|_| _ = keeper.keep(4000));
    let lasting: Vec<_> = (0..16).map(|_| keeper.pool.take_to_last(256 << 10)).collect();
    assert!(!keeper.pool.is_over() && keeper.pool.held_bytes() > 5 * MIB);
    assert!(keeper.keep(4000) && keeper.kept.len() > 400, "{} kept", keeper.kept.len());
    drop(lasting);
    assert!(keeper.pool.held_bytes() <= 2 * MIB, "what the bound has no room for goes back");
    keeper.kept.clear();
    // Now there is room for what is empty, and no other is made.
    drop(keeper.pool.take_to_last(256 << 10));
    let held = keeper.pool.held_bytes();
    for _ in 0..100 {
        drop(keeper.pool.take_to_last(256 << 10));
    }
    assert_eq!(keeper.pool.held_bytes(), held);
    assert_eq!(keeper.pool.used_bytes(), 0);
}
