//! What settling the LSM part now would cost, in requests of reads: what these must have paid for it ([`crate::view::Rent`]).
//!
//! Data that is not settled costs reads more, and settling costs the device and its life. Whoever settles when the first
//! has come to the second has spent no more than twice what was best in hindsight, whatever follows; and a store that nobody
//! reads from the device is settled as late as if there were no such rule. The price is an estimate, and rather too high.

use super::debt::{self, share};
use super::rewrite::moved;
use crate::options::KeyspaceOptions;
use crate::view::{KeyspaceView, Partition, Tables};

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
    let [mut partitions, mut bases, mut deltas] = [0; 3];
    for partition in touched(tables) {
        partitions += 1;
        bases += partition.base.as_ref().map_or(0, debt::bytes);
        deltas += partition.delta.as_ref().map_or(0, debt::bytes);
    }
    let newer = moved(tables, options) + deltas;
    let moved = if newer <= share(bases, options.delta_limit()) { newer } else { newer + bases };
    LEAST + REQUESTS_A_STEP * partitions + TIMES_MOVED * moved / REQUEST_BYTES
}

/// The partitions in which fresh tables begin or end, or over which they reach.
fn touched(tables: &Tables) -> impl Iterator<Item = &Partition> {
    // How many more tables lie over a partition than over the one before.
    let mut more = vec![0i64; tables.partitions.len() + 1];
    for table in tables.runs.iter().flatten() {
        let ends = [&table.properties().smallest, &table.properties().largest];
        let [first, last] = ends.map(|key| tables.partition(key));
        for (at, by) in [(first, 1), (last + 1, -1)] {
            more.get_mut(at).into_iter().for_each(|more| *more += by);
        }
    }
    let over = more.into_iter().scan(0, |over, more| {
        *over += more;
        Some(*over)
    });
    tables.partitions.iter().zip(over).filter(|(_, over)| *over > 0).map(|(partition, _)| partition)
}

/// Whether reads have paid for settling a keyspace's LSM part.
pub fn is_paid(keyspace: &KeyspaceView) -> bool {
    let paid = keyspace.rent.paid();
    paid >= LEAST && of(keyspace).is_some_and(|price| paid >= price)
}
