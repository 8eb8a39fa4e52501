//! Which conversions (sweeps of a keyspace) were asked for, and which are done.
//!
//! A request is covered by a sweep whose freeze comes after it; requests made meanwhile wait for
//! the next one.

use std::collections::BTreeMap;

use crate::format::entry::KeyspaceId;

#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    asked: u64,
    done: u64,
}

/// The requests of all keyspaces.
#[derive(Debug, Default)]
pub struct Conversions {
    keyspaces: BTreeMap<KeyspaceId, Requests>,
}

impl Conversions {
    /// Asks for a conversion; [`Conversions::is_done`] answers for the number returned.
    pub fn ask(&mut self, keyspace: KeyspaceId) -> u64 {
        let requests = self.keyspaces.entry(keyspace).or_default();
        requests.asked += 1;
        requests.asked
    }

    /// The latest request of a keyspace, done or not: what a sweep that begins now will cover.
    pub fn asked(&self, keyspace: KeyspaceId) -> u64 {
        self.keyspaces.get(&keyspace).map_or(0, |r| r.asked)
    }

    /// Whether a keyspace has requests that no finished sweep covers.
    pub fn is_wanted(&self, keyspace: KeyspaceId) -> bool {
        self.keyspaces.get(&keyspace).is_some_and(|r| r.done < r.asked)
    }

    /// Whether a finished sweep covers request `number`.
    pub fn is_done(&self, keyspace: KeyspaceId, number: u64) -> bool {
        self.keyspaces.get(&keyspace).is_some_and(|r| r.done >= number)
    }

    /// Says that a sweep finished that covers requests up to `number`.
    pub fn finish(&mut self, keyspace: KeyspaceId, number: u64) {
        let requests = self.keyspaces.entry(keyspace).or_default();
        requests.done = requests.done.max(number);
    }
}
