//! Snapshots, and the memory that they alone keep.
//!
//! A snapshot is a View and a visible number. The View keeps its memtables, also when the database has
//! flushed them long since: each snapshot may so keep a few memtables that nobody else needs. That is
//! *pinned memory*; it counts in the budget. Where it is more than a part of that
//! ([`DatabaseOptions::pinned_bytes`]), [`lsm::spill`](crate::lsm::spill) writes what a snapshot sees of
//! such memtables to a table of its own, and puts a View that shows this run in their place into the
//! snapshot. No other View names the table, nor does the manifest: it goes with the snapshot, or at the
//! next open.
//!
//! [`DatabaseOptions::pinned_bytes`]: crate::options::DatabaseOptions::pinned_bytes

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;

use super::{Engine, lock};
use crate::format::entry::{KeyspaceId, SequenceNumber, TableId};
use crate::memtable::Memtable;
use crate::view::{KeyspaceView, View};

/// What a snapshot keeps.
#[derive(Debug)]
pub struct Pinned {
    /// What it shows. Only its memtables may turn into tables of the same content.
    pub view: ArcSwap<View>,
    /// Operations up to here are seen.
    pub visible: SequenceNumber,
}

/// The snapshots that are open, oldest first.
#[derive(Debug, Default)]
pub struct Pins(Mutex<Vec<Weak<Pinned>>>);

impl Pins {
    fn add(&self, pinned: &Arc<Pinned>) {
        let mut pins = lock(&self.0);
        if pins.len() == pins.capacity() {
            // Before it grows.
            pins.retain(|pin| pin.strong_count() > 0);
        }
        pins.push(Arc::downgrade(pinned));
    }

    fn all(&self) -> Vec<Arc<Pinned>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Engine {
    /// A snapshot of now.
    pub fn pin(&self) -> Arc<Pinned> {
        let (view, visible) = self.snapshot();
        let pinned = Arc::new(Pinned { view: ArcSwap::new(view), visible });
        self.pins.add(&pinned);
        pinned
    }

    /// The snapshots that are open, oldest first.
    pub fn pinned(&self) -> Vec<Arc<Pinned>> {
        self.pins.all()
    }

    /// The tables of a keyspace that snapshots keep, whatever becomes of them.
    pub fn kept_by_snapshots(&self, keyspace: KeyspaceId) -> BTreeSet<TableId> {
        let pinned = self.pinned();
        let views = pinned.iter().map(|pin| pin.view.load());
        let kept = views.filter_map(|view| Some(view.keyspaces.get(&keyspace)?.tables.clone()));
        kept.flat_map(|tables| tables.all().map(|table| table.id()).collect::<Vec<_>>()).collect()
    }

    /// How many bytes memtables take that only snapshots keep.
    pub fn pinned_memory_bytes(&self) -> u64 {
        let (now, mut pinned) = (self.view(), BTreeMap::new());
        let mut last: Option<Arc<View>> = None;
        for pin in self.pinned() {
            let view = pin.view.load_full();
            if Arc::ptr_eq(&view, &now) || last.as_ref().is_some_and(|l| Arc::ptr_eq(l, &view)) {
                continue;
            }
            for keyspace in view.keyspaces.unlike(&now.keyspaces) {
                let gone = keyspace.memtables().skip(still_shown(&now, keyspace));
                pinned.extend(gone.map(|m| (Arc::as_ptr(m) as usize, m.size_bytes() as u64)));
            }
            last = Some(view);
        }
        pinned.values().sum()
    }
}

/// How many of a snapshot's memtables of a keyspace, newest first, the View of now shows too. Those behind
/// them it shows no more: a keyspace's oldest is flushed first.
pub fn still_shown(now: &View, keyspace: &KeyspaceView) -> usize {
    let shown = |memtable: &Arc<Memtable>| {
        let now = now.keyspaces.get(&keyspace.id);
        now.is_some_and(|now| now.memtables().any(|shown| Arc::ptr_eq(shown, memtable)))
    };
    keyspace.memtables().take_while(|memtable| shown(memtable)).count()
}
