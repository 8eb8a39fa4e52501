//! Who keeps memtables that the database has flushed, and how much memory that is.
//!
//! Whoever reads a View keeps its memtables, also when no newer View shows them: snapshots, iterators, whoever thinks in
//! `update`. What they so keep is *pinned memory*; it counts in the budget, whoever it is: the memtables that left the View
//! are on a list, and those of them count that somebody still holds. So counting costs a reader nothing.
//!
//! Where pinned memory is more than a part of the budget ([`DatabaseOptions::pinned_bytes`]),
//! [`lsm::spill`](crate::lsm::spill) writes what one of its holders sees of such memtables to a table of its own, and has
//! him show this run in their place. No View names the table, nor does the manifest: it goes with its holder, or
//! at the next open. For that it has to know him, and he must let go of a memtable while he rests: he is a [`Pinned`].
//!
//! * **A snapshot** is one from the beginning.
//! * **An iterator** becomes one when memory is *tight*, which it looks at as it is made and at each step, one load: half
//!   of what may be pinned is. Before that to note it would cost a short walk more than it could save.
//!   So who was made before, and rests since, keeps his memtables to his next step. All of these keep together no more
//!   than what was pinned when memory became tight, and what the View showed then, which is bounded too
//!   ([`DatabaseOptions::all_memtables_bytes`]); and all that counts.
//!
//! [`DatabaseOptions::pinned_bytes`]: crate::options::DatabaseOptions::pinned_bytes
//! [`DatabaseOptions::all_memtables_bytes`]: crate::options::DatabaseOptions::all_memtables_bytes

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, Weak};

use arc_swap::{ArcSwap, Guard};

use super::{Engine, lock};
use crate::format::entry::{KeyspaceId, SequenceNumber, TableId};
use crate::memtable::Memtable;
use crate::view::{KeyspaceView, View};

/// Of so many iterators that are noted one looks whether memory is tight still.
const NOTED_A_LOOK: u64 = 64;

/// What a snapshot or an iterator keeps.
#[derive(Debug)]
pub struct Pinned {
    shown: Shown,
    /// Operations up to here are seen.
    pub visible: SequenceNumber,
}

/// What it shows. Only its memtables may turn into tables of the same content.
#[derive(Debug)]
enum Shown {
    /// To a snapshot: all keyspaces.
    All(ArcSwap<View>),
    /// To an iterator: its own.
    One(ArcSwap<KeyspaceView>),
}

impl Pinned {
    /// A keyspace as it is shown.
    pub fn keyspace(&self, id: KeyspaceId) -> Option<Arc<KeyspaceView>> {
        match &self.shown {
            Shown::All(view) => view.load().keyspaces.get(&id).cloned(),
            Shown::One(keyspace) => Some(keyspace.load_full()).filter(|keyspace| keyspace.id == id),
        }
    }

    /// The keyspace that an iterator is shown; kept until the guard is dropped.
    pub fn only(&self) -> Guard<Arc<KeyspaceView>> {
        match &self.shown {
            Shown::One(keyspace) => keyspace.load(),
            Shown::All(_) => unreachable!("an iterator walks one keyspace"),
        }
    }

    /// The keyspaces that `now` shows otherwise, or not at all.
    pub fn unlike(&self, now: &Arc<View>) -> Vec<Arc<KeyspaceView>> {
        match &self.shown {
            Shown::All(view) => {
                let view = view.load();
                let is_now = Arc::ptr_eq(&view, now);
                let unlike = (!is_now).then(|| view.keyspaces.unlike(&now.keyspaces));
                unlike.into_iter().flatten().cloned().collect()
            }
            Shown::One(keyspace) => {
                let keyspace = keyspace.load_full();
                let there = now.keyspaces.get(&keyspace.id);
                let is_now = there.is_some_and(|there| Arc::ptr_eq(there, &keyspace));
                (!is_now).then_some(keyspace).into_iter().collect()
            }
        }
    }

    /// Shows a keyspace as another View of the same content has it.
    pub fn show(&self, keyspace: &Arc<KeyspaceView>) {
        match &self.shown {
            Shown::All(shown) => {
                let mut view = View::clone(&shown.load());
                view.keyspaces.insert(keyspace.id, keyspace.clone());
                shown.store(Arc::new(view));
            }
            Shown::One(shown) => shown.store(keyspace.clone()),
        }
    }
}

/// See the module page. On lines of memory of its own: every step of an iterator looks at it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Pins {
    /// Half of what may be pinned is.
    is_tight: AtomicBool,
    /// Half of the budget and a memtable are.
    is_over: AtomicBool,
    /// What is pinned is being spilled.
    is_spilling: AtomicBool,
    /// How often memtables left the View, and iterators became [`Pinned`] that kept such.
    late: AtomicU64,
    /// How many iterators were noted.
    noted: AtomicU64,
    /// The snapshots and iterators that are open, as far as they are known, oldest first.
    known: Mutex<Vec<Weak<Pinned>>>,
    /// Memtables that left the View, as far as somebody kept them when it was last looked, and what they take.
    left: Mutex<Vec<(Weak<Memtable>, u64)>>,
}

impl Pins {
    fn add(&self, pinned: &Arc<Pinned>) {
        let mut known = lock(&self.known);
        if known.len() == known.capacity() {
            // Before it grows.
            known.retain(|pin| pin.strong_count() > 0);
        }
        known.push(Arc::downgrade(pinned));
    }

    fn all(&self) -> Vec<Arc<Pinned>> {
        lock(&self.known).iter().filter_map(Weak::upgrade).collect()
    }

    /// What of the memtables that left the View is still kept, bytes.
    fn kept_bytes(&self) -> u64 {
        let mut left = lock(&self.left);
        left.retain(|(memtable, _)| memtable.strong_count() > 0);
        left.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Engine {
    /// A snapshot of now.
    pub fn pin(&self) -> Arc<Pinned> {
        let (view, visible) = self.snapshot();
        let pinned = Arc::new(Pinned { shown: Shown::All(ArcSwap::new(view)), visible });
        self.pins.add(&pinned);
        pinned
    }

    /// Notes an iterator over what `keyspace` shows, operations up to `visible`.
    #[cold]
    pub fn pin_keyspace(
        &self,
        keyspace: &Arc<KeyspaceView>,
        visible: SequenceNumber,
    ) -> Arc<Pinned> {
        let shown = Shown::One(ArcSwap::new(keyspace.clone()));
        let pinned = Arc::new(Pinned { shown, visible });
        self.pins.add(&pinned);
        if still_shown(&self.view(), keyspace) < keyspace.memtables().count() {
            // Whoever looked for who keeps these did not find him.
            self.pins.late.fetch_add(1, Relaxed);
            self.executor.notify();
        }
        if self.pins.noted.fetch_add(1, Relaxed).is_multiple_of(NOTED_A_LOOK) {
            // Readers that let go tell nobody.
            self.pinned_memory_bytes();
            if !self.is_memory_tight() {
                self.fit_cache();
            }
        }
        pinned
    }

    /// Whether so much is pinned that iterators are to be known.
    #[inline]
    pub fn is_memory_tight(&self) -> bool {
        self.pins.is_tight.load(Relaxed)
    }

    /// How often something came to be pinned that a look before did not see.
    pub fn pinned_late(&self) -> u64 {
        self.pins.late.load(Relaxed)
    }

    /// The snapshots and iterators that are open, as far as they are known, oldest first.
    pub fn pinned(&self) -> Vec<Arc<Pinned>> {
        self.pins.all()
    }

    /// The tables of a keyspace that snapshots keep, and iterators that are known, whatever becomes of them.
    pub fn kept_by_snapshots(&self, keyspace: KeyspaceId) -> BTreeSet<TableId> {
        let pinned = self.pinned();
        let kept = pinned.iter().filter_map(|pin| Some(pin.keyspace(keyspace)?.tables.clone()));
        kept.flat_map(|tables| tables.all().map(|table| table.id()).collect::<Vec<_>>()).collect()
    }

    /// How many bytes memtables take that readers alone keep.
    pub fn pinned_memory_bytes(&self) -> u64 {
        let bytes = self.pins.kept_bytes();
        self.pins.is_tight.store(bytes > self.options.pinned_bytes() / 2, Relaxed);
        let most = self.options.memory_budget_bytes / 2 + self.options.memtable_bytes as u64;
        self.pins.is_over.store(bytes > most, Relaxed);
        bytes
    }

    /// Whether writers wait until some of what is pinned was spilled. Cheap while they do not.
    pub fn are_pins_over(&self) -> bool {
        self.pins.is_over.load(Relaxed) && self.pins.is_spilling.load(Acquire) && {
            self.pinned_memory_bytes();
            self.pins.is_over.load(Relaxed)
        }
    }

    /// The job that spills gets on, or has nothing that it could do. Wakes writers that wait in vain.
    pub fn note_spilling(&self, gets_on: bool) {
        if self.pins.is_spilling.swap(gets_on, AcqRel) && !gets_on {
            self.executor.notify();
        }
    }

    /// Puts the memtables that left these keyspaces since View `before` on the list. The cache was fitted before, since the flush
    /// itself still keeps them for a moment; it is again by the log's job, which the end of the flush wakes.
    pub(super) fn note_left(&self, before: &View, keyspaces: &BTreeSet<KeyspaceId>) {
        let now = self.view();
        let keyspaces = keyspaces.iter().filter_map(|id| before.keyspaces.get(id));
        let left = keyspaces.flat_map(|k| k.memtables().skip(still_shown(&now, k)));
        let left = left.filter(|memtable| !memtable.is_empty());
        let bytes = |memtable: &Memtable| (memtable.size_bytes() + memtable.filter_bytes()) as u64;
        let left: Vec<_> = left.map(|m| (Arc::downgrade(m), bytes(m))).collect();
        if !left.is_empty() {
            lock(&self.pins.left).extend(left);
            // Whoever saw the View without these did not see them here.
            self.pins.late.fetch_add(1, Relaxed);
        }
    }
}

/// How many of a reader's memtables of a keyspace, newest first, the View of now shows too. Those behind
/// them it shows no more: a keyspace's oldest is flushed first.
pub fn still_shown(now: &View, keyspace: &KeyspaceView) -> usize {
    let shown = |memtable: &Arc<Memtable>| {
        let now = now.keyspaces.get(&keyspace.id);
        now.is_some_and(|now| now.memtables().any(|shown| Arc::ptr_eq(shown, memtable)))
    };
    keyspace.memtables().take_while(|memtable| shown(memtable)).count()
}
