//! Which keyspaces hold operations that no table has: of many most are idle, and nobody looks at those.
//!
//! Those with sealed memtables the View knows. Those whose active memtable holds something are
//! [`Touched`]: a keyspace is added before its memtable gets its first operation, and taken out after the
//! View shows that memtable sealed, both under `commit`. So who reads what is touched first, and takes the View
//! then, misses none that held something when he began.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::{Engine, lock};
use crate::format::entry::{KeyspaceId, SequenceNumber};
use crate::memtable::Memtable;
use crate::view::{KeyspaceView, View};

/// The keyspaces whose active memtables hold something, or will in a moment.
#[derive(Debug, Default)]
pub struct Touched(Mutex<BTreeSet<KeyspaceId>>);

impl Touched {
    /// Those of a View that was just recovered.
    pub fn of(view: &View) -> Touched {
        let touched = view.keyspaces.values().filter(|k| !k.active.is_empty());
        Touched(Mutex::new(touched.map(|k| k.id).collect()))
    }

    /// `active` takes an operation next. Under `commit`.
    pub(super) fn touch(&self, id: KeyspaceId, active: &Memtable) {
        if active.is_empty() {
            lock(&self.0).insert(id);
        }
    }

    /// The View shows their memtables sealed, or them no more. Under `commit`, or once they were dropped.
    pub(super) fn forget(&self, ids: impl Iterator<Item = KeyspaceId>) {
        let mut touched = lock(&self.0);
        ids.for_each(|id| _ = touched.remove(&id));
    }
}

impl Engine {
    /// Looks at the keyspaces that hold operations which no table has. There may be thousands: none is copied, and
    /// who has seen enough stops.
    pub(super) fn look_at_unflushed<T>(
        &self,
        look: impl FnOnce(&mut dyn Iterator<Item = &Arc<KeyspaceView>>) -> T,
    ) -> T {
        // In this order: see the module page.
        let touched = lock(&self.touched.0);
        let view = self.view();
        let others = view.keyspaces.with_sealed().filter(|k| !touched.contains(&k.id));
        look(&mut touched.iter().filter_map(|id| view.keyspaces.get(id)).chain(others))
    }

    /// Whether an edit that flushes memtables up to `up_to`, all of which is visible, may become durable
    /// before the log is. It may if the log then needs no record up to there: every memtable that does not
    /// go, by this edit or before it, holds later ones alone, so no batch can tear, and no segment that stays has one, so
    /// recovery begins behind it. Once true it stays so: only later records are still to come.
    pub fn needs_no_log(
        &self,
        up_to: SequenceNumber,
        goes: impl Fn(KeyspaceId, &Arc<Memtable>) -> bool,
    ) -> bool {
        self.log.ends_at(up_to)
            && self.look_at_unflushed(|unflushed| {
                let all = unflushed.flat_map(|k| k.memtables().map(|memtable| (k.id, memtable)));
                let mut stay = all.filter(|(id, memtable)| !goes(*id, memtable));
                stay.all(|(_, m)| m.is_empty() || m.first_sequence() > up_to)
            })
    }

    /// What the log may forget once the View shows neither a memtable that was flushed nor a keyspace that was
    /// dropped, given that edits are held.
    pub fn oldest_needed(&self, without: Without<'_>) -> SequenceNumber {
        // Whatever is reserved later is above `reserved`, read before the View. Commits that are under way stay in the
        // log, also where nobody will need them: their keyspace may just have been dropped.
        let next = self.log.reserved().min(self.log.visible()) + 1;
        let counts = |keyspace: &&Arc<KeyspaceView>| match without {
            Without::Keyspace(id) => keyspace.id != id,
            Without::Memtables(_) => true,
        };
        self.look_at_unflushed(|unflushed| {
            let memtables = unflushed.filter(counts).flat_map(|keyspace| keyspace.memtables());
            memtables
                .filter(|m| !without.has(m))
                .map(|m| m.first_sequence())
                .filter(|first| *first > 0)
                .fold(next, SequenceNumber::min)
        })
    }
}

/// What goes with an edit.
#[derive(Debug, Clone, Copy)]
pub enum Without<'a> {
    /// Memtables: they are flushed.
    Memtables(&'a [Arc<Memtable>]),
    /// A keyspace: it is dropped.
    Keyspace(KeyspaceId),
}

impl Without<'_> {
    fn has(&self, memtable: &Arc<Memtable>) -> bool {
        match self {
            Without::Memtables(gone) => gone.iter().any(|gone| Arc::ptr_eq(gone, memtable)),
            Without::Keyspace(_) => false,
        }
    }
}
