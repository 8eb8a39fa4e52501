//! What settling the LSM part now would cost, in requests of reads: what these must have paid for it ([`crate::view::Rent`]).
//!
//! Data that is not settled costs reads more, and settling costs the device and its life. Whoever settles when the first
//! has come to the second has spent no more than twice what was best in hindsight, whatever follows; and a store that nobody
//! reads from the device is settled as late as if there were no such rule. The price is an estimate, and rather too high.

use std::collections::BTreeSet;

use super::debt::{self, share};
use super::rewrite::moved;
use crate::options::KeyspaceOptions;
use crate::view::{KeyspaceView, Tables};

/// Reading or writing so much in large pieces takes about as long as a read of a block.
const REQUEST_BYTES: u64 = 64 << 10;
/// What is read costs once, what is written twice: it wears the device.
const TIMES_MOVED: u64 = 3;
/// What a step of a sweep takes whatever it writes: files, their syncs and an edit.
const REQUESTS_A_STEP: u64 = 64;
/// A few reads say little.
const LEAST: u64 = 1024;

/// What settling a keyspace's LSM part would cost, requests; `None` where there is nothing to settle, or reads are not to pay.
pub fn of(keyspace: &KeyspaceView) -> Option<u64> {
    let (tables, options) = (&keyspace.tables, &keyspace.options);
    let asked = options.settles_for_reads() && !tables.runs.is_empty();
    asked.then(|| price(tables, options))
}

fn price(tables: &Tables, options: &KeyspaceOptions) -> u64 {
    let fresh = tables.runs.iter().flatten();
    let places = fresh.flat_map(|table| {
        let ends = [&table.properties().smallest, &table.properties().largest];
        let [first, last] = ends.map(|key| tables.partition(key));
        first..=last
    });
    let partitions: BTreeSet<usize> = places.collect();
    let touched = || partitions.iter().filter_map(|at| tables.partitions.get(*at));
    let bases: u64 = touched().filter_map(|p| p.base.as_ref()).map(debt::bytes).sum();
    let deltas: u64 = touched().filter_map(|p| p.delta.as_ref()).map(debt::bytes).sum();
    let newer = moved(tables, options) + deltas;
    let moved = if newer <= share(bases, options.delta_limit()) { newer } else { newer + bases };
    let steps = REQUESTS_A_STEP * partitions.len() as u64;
    LEAST + steps + TIMES_MOVED * moved / REQUEST_BYTES
}

/// Whether reads have paid for settling a keyspace's LSM part.
pub fn is_paid(keyspace: &KeyspaceView) -> bool {
    let paid = keyspace.rent.paid();
    paid >= LEAST && of(keyspace).is_some_and(|price| paid >= price)
}
