//! What settling the LSM part now would cost, in requests of reads: what these must have paid for it ([`crate::view::Rent`]).
//!
//! Data that is not settled costs reads more, and settling costs the device and its life. Whoever settles when the first
//! has come to the second has spent no more than twice what was best in hindsight, whatever follows; and a store that nobody
//! reads from the device is settled as late as if there were no such rule.

use super::plan::Moves;
use crate::engine::Engine;
use crate::view::{KeyspaceView, LEAST_RENT};

/// What a device moves in large pieces while it answers a request for a block.
const REQUEST_BYTES: u64 = 128 << 10;
/// What is written was read too, and counts twice: it wears the device.
const TIMES_MOVED: u64 = 3;
/// What a step of a sweep takes whatever it writes: files, their syncs and an edit.
const REQUESTS_A_STEP: u64 = 64;

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
    keyspace.rent.covers(|| {
        let moves = Moves::of(keyspace);
        let needed = moves.bytes.saturating_add(2 * keyspace.options.partition());
        let room = engine.disk().room(engine.dir());
        room.is_none_or(|room| room.free_bytes >= needed).then(|| price(moves))
    })
}
