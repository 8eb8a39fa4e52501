//! What settling the LSM part now would cost, or merging its runs, in requests of reads: what these must have paid for it
//! ([`crate::view::Rent`]).
//!
//! Data that is not settled costs reads more, and settling costs the device and its life. Whoever settles when the first
//! has come to the second has spent no more than twice what was best in hindsight, whatever follows; and a store that nobody
//! reads from the device is settled as late as if there were no such rule.

use super::plan::Moves;
use crate::engine::Engine;
use crate::lsm::merge::{self, Merge};
use crate::view::{KeyspaceView, LEAST_RENT, SHARES, damage_of};

/// What a device moves in large pieces while it answers a request for a block.
const REQUEST_BYTES: u64 = 128 << 10;
/// What is written was read too, and counts twice: it wears the device.
const TIMES_MOVED: u64 = 3;
/// What a step of a sweep takes whatever it writes: files, their syncs and an edit.
const REQUESTS_A_STEP: u64 = 64;

/// So many entries are merged while a device answers a request (of pointers: some 160 ns each).
const MERGED_PER_REQUEST: u64 = 512;
/// Runs are merged for reads only where that costs one in so many of what a sweep does, which takes them all: where they hold
/// pointers, or are small. Reads go on paying for the sweep.
const TIMES_CHEAPER: u64 = 4;

/// What settling a keyspace's LSM part would cost, requests.
pub fn of(keyspace: &KeyspaceView) -> u64 {
    price(Moves::of(keyspace))
}

fn price(Moves { steps, bytes }: Moves) -> u64 {
    LEAST_RENT + REQUESTS_A_STEP * steps + bytes.saturating_mul(TIMES_MOVED) / REQUEST_BYTES
}

/// Whether reads have paid for settling a keyspace's LSM part, and the disk has room for it: what it writes takes space before
/// what that replaces is given back.
pub fn is_due(engine: &Engine, keyspace: &KeyspaceView) -> bool {
    if keyspace.tables.runs.is_empty() || engine.ballast.is_given_up() {
        return false;
    }
    keyspace.rent.covers(|_| {
        let moves = Moves::of(keyspace);
        let needed = moves.bytes.saturating_add(2 * keyspace.options.partition());
        let room = engine.disk().room(engine.dir());
        room.is_none_or(|room| room.free_bytes >= needed).then(|| price(moves))
    })
}

/// What making one run of all would cost, requests.
pub fn of_merge(keyspace: &KeyspaceView) -> u64 {
    let runs = || keyspace.tables.runs.iter();
    let bytes: u64 = runs().map(merge::bytes).sum();
    let entries: u64 = runs().flatten().map(|table| table.properties().entries).sum();
    REQUESTS_A_STEP
        + bytes.saturating_mul(TIMES_MOVED) / REQUEST_BYTES
        + entries / MERGED_PER_REQUEST
}

/// Whether reads have paid for making one run of all that a keyspace has, which takes next to nothing beside a sweep, and the
/// disk has room for it. While runs are being settled it is not asked: newer ones are few.
pub fn is_merge_due(engine: &Engine, keyspace: &KeyspaceView) -> bool {
    let tables = &keyspace.tables;
    if tables.runs.len() < 2 || tables.frozen.is_some() || engine.ballast.is_given_up() {
        return false;
    }
    keyspace.merging.covers(|paid| {
        let runs = || tables.runs.iter();
        let requests = of_merge(keyspace);
        let price = requests.saturating_mul(SHARES);
        if price > paid {
            return Some(price);
        }
        // What may be different soon.
        let can_be = damage_of(runs().flatten()).is_none()
            && Merge::finds_room(engine, runs().map(merge::bytes).sum());
        if !can_be {
            return None;
        }
        // What will not be is looked at again once a quarter more was paid: it takes a look at many tables.
        let is_cheap = requests.saturating_mul(TIMES_CHEAPER) <= of(keyspace);
        Some(if is_cheap { price } else { paid.saturating_mul(2) })
    })
}
