//! What makes room for puts that are refused: what was removed and is not settled.
//!
//! Removals are settled each time that they have taken an eighth of what was given up, by their own length: a range of all keys, or some long
//! values, are much less. So once a put was refused and nobody removes any more, the keyspaces are converted
//! that have removals in memtables or fresh tables, in the background; again if there were more removals since, and not more often than
//! the disk is looked at. Where somebody goes on removing, a little here and there, they are after a few looks too: what is
//! removed so slowly would come to an eighth in hours.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::super::{Engine, lock};
use crate::format::entry::{KeyspaceId, SequenceNumber, TableId};
use crate::view::KeyspaceView;

/// What a keyspace has of removals that are not settled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsettled {
    /// So many in memtables,
    in_memtables: u64,
    /// of which the one that is written to began here.
    active_from: SequenceNumber,
    /// The newest fresh table with some.
    newest_table: Option<TableId>,
}

/// What was looked at last.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// What removals had taken by then, bytes.
    taken_bytes: Option<u64>,
    /// How often somebody had removed something between two looks while puts were refused, since nobody waits any more.
    put_off: u32,
    /// What each keyspace had when it was converted for that.
    settled: BTreeMap<KeyspaceId, Unsettled>,
}

/// Whoever removes is let alone for so many looks.
const MOST_PUT_OFF: u32 = 4;

fn unsettled(keyspace: &KeyspaceView) -> Unsettled {
    let in_memtables = keyspace.memtables().map(|memtable| memtable.removed()).sum();
    let fresh = keyspace.tables.fresh().iter().flatten();
    let removes = fresh.filter(|table| {
        let properties = table.properties();
        properties.tombstones > 0 || properties.ranges > 0
    });
    Unsettled {
        in_memtables,
        active_from: keyspace.active.first_sequence(),
        newest_table: removes.map(|table| table.id()).max(),
    }
}

impl Engine {
    /// Has what was removed be settled where a put was refused since the last time, and nobody has removed anything since the last
    /// look (who is at it settles by himself, and needs the room), or for [`MOST_PUT_OFF`] looks. What was there `before` is not
    /// settled again.
    pub(super) fn settle_for_refused(&self, before: &mut Removals) {
        let taken_bytes = Some(self.ballast.removals.load(Ordering::Relaxed));
        let is_quiet = before.taken_bytes == taken_bytes;
        before.taken_bytes = taken_bytes;
        if !self.ballast.has_refused.load(Ordering::Relaxed) {
            return;
        }
        if !is_quiet && before.put_off < MOST_PUT_OFF {
            before.put_off += 1;
            return;
        }
        before.put_off = 0;
        self.ballast.has_refused.store(false, Ordering::Relaxed);
        let view = self.view();
        let now = view.keyspaces.values().map(|keyspace| (keyspace.id, unsettled(keyspace)));
        let has_some = |of: &Unsettled| of.in_memtables > 0 || of.newest_table.is_some();
        let now: BTreeMap<_, _> = now.filter(|(_, unsettled)| has_some(unsettled)).collect();
        let mut asks = false;
        for (id, _) in now.iter().filter(|(id, now)| before.settled.get(id) != Some(now)) {
            lock(&self.conversions).ask(*id);
            asks = true;
        }
        before.settled = now;
        if asks {
            // Who removes something now waits for that.
            self.ballast.settles_next.store(true, Ordering::Relaxed);
            self.health.ask_again();
            self.executor.notify();
        }
    }
}
