//! Filters that lookups have paid for, or may have: until they are there, or it is found that not enough was paid. Who
//! makes them is the stores' to know.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{Engine, lock};
use crate::format::entry::{KeyspaceId, TableId};
use crate::view::Tables;

/// A filter that may be wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// One over runs of a keyspace.
    Runs(KeyspaceId),
    /// One of a table of a keyspace.
    Table(KeyspaceId, TableId),
}

/// All that are wanted.
#[derive(Debug, Default)]
pub struct AllWanted {
    all: Mutex<BTreeSet<Wanted>>,
    /// Somebody makes them.
    has_maker: AtomicBool,
}

impl Engine {
    /// Somebody should look whether lookups have paid for a filter. True, once: there is nobody yet who does.
    pub fn want_filter(&self, wanted: Wanted) -> bool {
        let is_new = lock(&self.wanted.all).insert(wanted);
        if is_new {
            self.executor.notify();
        }
        is_new && !self.wanted.has_maker.swap(true, Ordering::AcqRel)
    }

    /// Whether somebody should, or one is being made.
    pub fn wants_filters(&self) -> bool {
        !lock(&self.wanted.all).is_empty()
    }

    /// What `begin` makes of the first that is wanted of which it makes anything; the others are not looked at again
    /// before lookups pay more. It stays until [`Engine::end_filter`].
    pub fn find_wanted_filter<T>(&self, mut begin: impl FnMut(Wanted) -> Option<T>) -> Option<T> {
        let mut all = lock(&self.wanted.all);
        let (mut begun, before) = (None, all.len());
        while let Some(&wanted) = all.first().filter(|_| begun.is_none()) {
            begun = begin(wanted);
            if begun.is_none() {
                all.remove(&wanted);
            }
        }
        let is_less = all.len() < before;
        drop(all);
        if is_less {
            // Somebody may wait until none is wanted.
            self.executor.notify();
        }
        begun
    }

    /// It is there, or was given up.
    pub fn end_filter(&self, wanted: Wanted) {
        lock(&self.wanted.all).remove(&wanted);
        self.executor.notify();
    }

    /// Has `join` have tables of a keyspace belong to generations, and shows its runs in the groups that this makes.
    pub fn regroup(&self, id: KeyspaceId, join: impl FnOnce(&Tables)) {
        // Else an edit might show groups that it made before.
        let no_edit = lock(&self.manifest);
        let Ok(keyspace) = self.keyspace(id) else { return };
        join(&keyspace.tables);
        let tables = Arc::new(keyspace.tables.regrouped());
        drop(keyspace);
        self.change_view(|view| {
            if let Some(keyspace) = view.keyspaces.get_mut(&id) {
                Arc::make_mut(keyspace).tables = tables;
            }
        });
        drop(no_edit);
        self.fit_cache();
    }
}
