//! Which conversions (sweeps of a keyspace) were asked for, and which are done.
//!
//! A request is covered by a sweep whose freeze comes after it; requests made meanwhile wait for
//! the next one.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::format::entry::KeyspaceId;

#[derive(Debug, Clone, Default)]
struct Requests {
    asked: u64,
    /// The latest that asked for whole partitions.
    whole: u64,
    /// The latest that what is under way covers.
    begun: u64,
    done: u64,
    /// What the last sweep could not read, and left where it is.
    damage: Option<Error>,
    /// The value segments that it was to empty, and that are still there.
    kept: BTreeSet<u64>,
    /// What else whoever asked is told.
    told: Option<Error>,
}

/// The requests of all keyspaces.
#[derive(Debug, Default)]
pub struct Conversions {
    keyspaces: BTreeMap<KeyspaceId, Requests>,
    /// Those with requests that no finished sweep covers: of the others there may be very many.
    wanted: BTreeSet<KeyspaceId>,
}

impl Conversions {
    /// Asks for a conversion; [`Conversions::is_done`] answers for the number returned.
    pub fn ask(&mut self, keyspace: KeyspaceId) -> u64 {
        let requests = self.keyspaces.entry(keyspace).or_default();
        requests.asked += 1;
        self.wanted.insert(keyspace);
        requests.asked
    }

    /// The same, of a conversion that leaves each partition whole: one table.
    pub fn ask_whole(&mut self, keyspace: KeyspaceId) -> u64 {
        let number = self.ask(keyspace);
        self.keyspaces.entry(keyspace).or_default().whole = number;
        number
    }

    /// Whether one of the requests of a keyspace that no finished sweep covers is for whole partitions.
    pub fn wants_whole(&self, keyspace: KeyspaceId) -> bool {
        self.keyspaces.get(&keyspace).is_some_and(|r| r.done < r.whole)
    }

    /// The latest request of a keyspace, done or not: what a sweep that begins now will cover.
    pub fn asked(&self, keyspace: KeyspaceId) -> u64 {
        self.keyspaces.get(&keyspace).map_or(0, |r| r.asked)
    }

    /// What begins now covers requests up to `number`.
    pub fn begin(&mut self, keyspace: KeyspaceId, number: u64) {
        self.keyspaces.entry(keyspace).or_default().begun = number;
    }

    /// Whether one of the requests of a keyspace is covered neither by what is under way nor by what is over.
    pub fn is_unbegun(&self, keyspace: KeyspaceId) -> bool {
        let requests = self.keyspaces.get(&keyspace);
        requests.is_some_and(|r| r.begun.max(r.done) < r.asked)
    }

    /// Whether a keyspace has requests that no finished sweep covers.
    pub fn is_wanted(&self, keyspace: KeyspaceId) -> bool {
        self.keyspaces.get(&keyspace).is_some_and(|r| r.done < r.asked)
    }

    /// Whether somebody waits for one of the requests up to `number`.
    pub fn is_awaited(&self, keyspace: KeyspaceId, number: u64) -> bool {
        self.keyspaces.get(&keyspace).is_some_and(|r| r.done < number)
    }

    /// The keyspaces that have [such](Conversions::is_wanted) requests.
    pub fn wanted(&self) -> impl Iterator<Item = KeyspaceId> {
        self.wanted.iter().copied()
    }

    /// Once a finished sweep covers request `number`: how it went.
    pub fn outcome(&self, keyspace: KeyspaceId, number: u64) -> Option<Result<()>> {
        let requests = self.keyspaces.get(&keyspace).filter(|r| r.done >= number)?;
        let told = requests.damage.as_ref().or(requests.told.as_ref());
        Some(told.cloned().map_or(Ok(()), Err))
    }

    /// What the last sweep of any of these keyspaces could not read.
    pub fn damage(&self, is_there: impl Fn(KeyspaceId) -> bool) -> Option<Error> {
        let there = self.keyspaces.iter().filter(|(id, _)| is_there(**id));
        there.filter_map(|(_, requests)| requests.damage.clone()).next()
    }

    /// Says that requests up to `number` are done, and what whoever asked is told if not all is well.
    pub fn finish(&mut self, keyspace: KeyspaceId, number: u64, told: Option<Error>) {
        let requests = self.keyspaces.entry(keyspace).or_default();
        // Who waited for one that was done before may still be about to ask.
        if number > requests.done {
            (requests.done, requests.told) = (number, told);
        }
        if requests.done >= requests.asked {
            self.wanted.remove(&keyspace);
        }
    }

    /// Says that a sweep finished, what it could not read, and which value segments it was to empty and did not.
    pub fn swept(&mut self, keyspace: KeyspaceId, damage: Option<Error>, kept: BTreeSet<u64>) {
        let requests = self.keyspaces.entry(keyspace).or_default();
        (requests.damage, requests.kept) = (damage, kept);
    }

    /// The value segments that the last sweep was to empty, and did not.
    pub fn kept(&self, keyspace: KeyspaceId) -> BTreeSet<u64> {
        self.keyspaces.get(&keyspace).map(|r| r.kept.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_partitions_are_wanted_until_a_sweep_that_began_since_is_over() {
        let mut conversions = Conversions::default();
        let first = conversions.ask(1);
        assert!(!conversions.wants_whole(1));
        let whole = conversions.ask_whole(1);
        assert!(conversions.wants_whole(1) && !conversions.wants_whole(2));
        assert!(conversions.wanted().eq([1]) && conversions.is_wanted(1));
        // One was under way, which covers the first.
        conversions.finish(1, first, None);
        assert!(conversions.wants_whole(1) && conversions.outcome(1, whole).is_none());
        // Who comes later gets what others wait for.
        let last = conversions.ask(1);
        assert!(conversions.wants_whole(1));
        conversions.finish(1, last, None);
        assert!(conversions.wanted().next().is_none() && !conversions.is_wanted(1));
        assert!(!conversions.wants_whole(1) && conversions.outcome(1, whole).unwrap().is_ok());
        conversions.ask(1);
        assert!(!conversions.wants_whole(1));
    }
}
